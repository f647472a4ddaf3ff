/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entry.c - what happens to entries: leaving the map, giving up copies, being described.
 *
 * Owns      the list of doomed entries that wait for their last pin, and the rounds over it.
 * Threads   the loop.
 */
#include <stdio.h>

#include "array.h"
#include "inspect.h"
#include "store_internal.h"

enum {
    DOOMED_AT_ONCE = 1024, /* Looked at in one step of the loop. */
};

uint64_t
sequence_next(struct kvt_store *store)
{
    return ++store->sequence;
}

struct namespace_state *
entry_namespace(struct kvt_store *store, uint32_t number)
{
    struct block_key key;

    residency_key(store->map, number, &key);
    return namespace_at(store, key.namespace_id);
}

void
entry_record(const struct kvt_store *store, uint32_t number, struct block_record *record_out)
{
    const struct entry *entry = residency_at(store->map, number);
    const struct entry_state *state = entries_at(store->entries, number);
    struct namespace_state *space;

    memset(record_out, 0, sizeof(*record_out));
    residency_key(store->map, number, &record_out->key);
    space = namespace_at((struct kvt_store *)store, record_out->key.namespace_id);
    record_out->namespace_epoch = atomic_load_explicit(&space->epoch, memory_order_relaxed);
    record_out->length = entry->length;
    record_out->stored_length = entry->stored_length;
    record_out->codec = entry->has_trailer ? RECORD_PARTS : RECORD_WHOLE;
    record_out->part_count = entry->has_trailer ? (uint8_t)entry_parts(entry) : 1;
    record_out->checksum = entry->checksum;
    record_out->hint = state->hint;
    record_out->class_id = state->class_id;
    if (entries_parent(store->entries, number) != ENTRY_NONE)
        record_out->parent = residency_at(store->map, state->parent)->fingerprint;
    record_out->depth = state->depth;
    record_out->token_start = state->token_start;
    record_out->token_count = state->token_count;
    record_out->recompute_us = state->recompute_us;
    record_out->importance = state->importance;
}

void
extent_forget(struct kvt_store *store, const struct extent *extent, uint32_t stored_length)
{
    struct segment *segment = segment_at(store->segments, extent->segment);
    uint64_t bytes = (uint64_t)pages_of(stored_length) * PAGE_BYTES;

    if (segment == NULL || segment->generation != extent->generation)
        return;
    segment->live_bytes -= segment->live_bytes < bytes ? segment->live_bytes : bytes;
}

/* --- Copies on NVMe --------------------------------------------------------------------------- */

struct extent
entry_extent(const struct entry *entry)
{
    return (struct extent){entry->segment, entry->extent_generation, entry->page};
}

void
entry_place(struct kvt_store *store, uint32_t number, const struct block_record *record,
    uint32_t record_crc)
{
    struct entry *entry = residency_at(store->map, number);
    struct entry_state *state = entries_at(store->entries, number);

    entry->segment = record->extent.segment;
    entry->extent_generation = record->extent.generation;
    entry->page = record->extent.page & ((1u << ENTRY_PAGE_BITS) - 1);
    entry->has_trailer = record->codec == RECORD_PARTS;
    entry->stored_length = record->stored_length;
    entry->checksum = record->checksum;
    entry->sequence = record->sequence;
    state->record_crc = record_crc;
    entries_copy_add(store->entries, POLICY_NVME, number);
    store->nvme_use_sum += state->last_use;
    store->nvme_copy_count++;
    if (store->has_shares)
        shares_add(
            store, number, SHARE_NVME, (uint64_t)pages_of(record->stored_length) * PAGE_BYTES);
}

void
entry_place_forget(struct kvt_store *store, uint32_t number)
{
    const struct entry *entry = residency_at(store->map, number);
    const struct extent extent = entry_extent(entry);

    KVT_ASSERT(segment_at(store->segments, extent.segment)->generation == extent.generation);
    KVT_ASSERT(store->nvme_copy_count > 0);
    entries_copy_remove(store->entries, POLICY_NVME, number);
    store->nvme_use_sum -= entries_at(store->entries, number)->last_use;
    store->nvme_copy_count--;
    extent_forget(store, &extent, entry->stored_length);
    if (store->has_shares)
        shares_remove(
            store, number, SHARE_NVME, (uint64_t)pages_of(entry->stored_length) * PAGE_BYTES);
}

/* The bit is gone: so is what the entry says of that copy. */
static void
nvme_copy_forget(struct kvt_store *store, uint32_t number, enum kvt_event_reason reason)
{
    struct entry *entry = residency_at(store->map, number);

    entry_place_forget(store, number);
    if (entry->has_trailer) {
        /* What was summed up is gone; what is in memory is the block's bytes. */
        entry->has_trailer = 0;
        entry->stored_length = entry->length;
        entry->checksum = (struct hash128){0, 0};
    }
    event_add(store, number, TIER_NVME, KVT_EVENT_REMOVED, reason);
}

bool
entry_nvme_release(struct kvt_store *store, uint32_t number)
{
    if (pins_hold(store, number) || !residency_tier_clear(store->map, number, TIER_NVME))
        return false;
    nvme_copy_forget(store, number, KVT_REASON_RECLAIMED);
    return true;
}

bool
entry_nvme_condemn(struct kvt_store *store, uint32_t number)
{
    bool is_in_host = (entry_tiers(store, number) & TIER_HOST) != 0;
    struct commit_kill kill = entry_kill(store, number, NULL);
    struct flight *flight;
    enum kvt_status status;

    /* A kvt_pin() keeps what can be read, and asks for no more. But who has the entry pinned may be
     * reading that copy part by part (fetch.c), and must not meet another of other shape. */
    if (commit_kill_reserve(store) != KVT_OK ||
        !residency_tier_clear(store->map, number, TIER_NVME))
        return false;
    nvme_copy_forget(store, number, KVT_REASON_CORRUPT);
    /* A store that is only looked at forgets the copy, and writes nothing. */
    if (store->is_read_only)
        return true;
    /* Who works on a block has it pinned: there is no other flight of one that HOST has. */
    flight = is_in_host ? flight_create(store, number, FLIGHT_QUEUED) : NULL;
    if (flight != NULL) {
        commit_replace(store, flight, &kill);
        commit_queue(store, flight, store->now_ns);
        return true;
    }
    status = commit_kill(store, &kill);
    KVT_ASSERT(status == KVT_OK); /* Room was reserved. */
    (void)status;
    return true;
}

/* --- Uses ------------------------------------------------------------------------------------- */

uint64_t
entry_use_share(const struct kvt_store *store, uint32_t number)
{
    return entries_has_copy(store->entries, POLICY_NVME, number)
               ? entries_at(store->entries, number)->last_use
               : 0;
}

/* Whether the block can be told as used, and was not listed yet. */
static bool
request_lists(struct kvt_store *store, uint32_t number)
{
    struct entry_state *state;

    if (number == ENTRY_NONE ||
        word_state(atomic_load_explicit(
            &residency_at(store->map, number)->word, memory_order_relaxed)) != ENTRY_RESIDENT)
        return false;
    state = entries_at(store->entries, number);
    if (state->is_listed)
        return false;
    state->is_listed = true;
    return true;
}

void
entry_request(struct kvt_store *store, uint32_t *numbers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!request_lists(store, numbers[i]))
            numbers[i] = ENTRY_NONE;
        else
            store->nvme_use_sum -= entry_use_share(store, numbers[i]);
    }
    store->policy->ops->request(store->policy, numbers, count, store->now_ns);
    for (uint32_t i = 0; i < count; i++) {
        if (numbers[i] == ENTRY_NONE)
            continue;
        entries_at(store->entries, numbers[i])->is_listed = false;
        store->nvme_use_sum += entry_use_share(store, numbers[i]);
    }
}

void
entry_touch(struct kvt_store *store, uint32_t number)
{
    entry_request(store, &number, 1);
}

/* --- Leaving the map -------------------------------------------------------------------------- */

/* Whether the block was given up for want of room: it may be put again. */
static bool
is_eviction(enum kvt_event_reason reason)
{
    return reason == KVT_REASON_EVICTED || reason == KVT_REASON_RECLAIMED ||
           reason == KVT_REASON_DEVICE_LOST;
}

/* The last pin is gone: the slot and the entry may be used again. */
static bool
entry_free(struct kvt_store *store, uint32_t number)
{
    struct entry *entry = residency_at(store->map, number);
    unsigned tiers = word_tiers(atomic_load_explicit(&entry->word, memory_order_relaxed));
    const struct entry was = {
        .host_slot = atomic_load_explicit(&entry->host_slot, memory_order_relaxed),
        .hbm_slot = entry->hbm_slot};

    if (!residency_release(store->map, number))
        return false;
    KVT_ASSERT(entries_at(store->entries, number)->node == 0);
    copies_free(store, &was, tiers);
    return true;
}

static void
entry_doomed_add(struct kvt_store *store, uint32_t number)
{
    if (store->doomed_count == store->doomed_capacity) {
        uint32_t *doomed =
            array_grow(&store->env, store->doomed, &store->doomed_capacity, sizeof(*doomed));

        if (doomed == NULL) {
            /* The entry stays doomed for ever: its memory is lost to the store, nothing else. */
            COUNT(store, entry_leak_count, 1);
            return;
        }
        store->doomed = doomed;
    }
    store->doomed[store->doomed_count++] = number;
}

/* The round that is over was in flight until now, and so is the next one at once: whoever waits for
 * room waits for both. */
static void
doomed_round_next(struct kvt_store *store)
{
    if (store->is_sweeping)
        turns_end(&store->work, store->sweep_turn);
    store->is_sweeping = residency_take_released(store->map);
    if (!store->is_sweeping)
        return;
    store->sweep_turn = turns_begin(&store->work);
    store->doomed_left = store->doomed_count;
}

bool
entry_doomed_step(struct kvt_store *store)
{
    bool was_sweeping = store->is_sweeping;

    if (store->doomed_left == 0)
        doomed_round_next(store);
    /* Downwards: the one that takes a free place was looked at, or came during the round. */
    for (uint32_t i = 0; i < DOOMED_AT_ONCE && store->doomed_left > 0; i++) {
        uint32_t *doomed = &store->doomed[--store->doomed_left];

        if (entry_free(store, *doomed))
            *doomed = store->doomed[--store->doomed_count];
    }
    if (!was_sweeping && !store->is_sweeping)
        return false;
    /* Somebody may have waited for no more than that (room_will_come()). */
    if (store->doomed_left == 0)
        store->room_changed = true;
    return true;
}

bool
entry_drop(struct kvt_store *store, uint32_t number, bool is_forced, enum kvt_event_reason reason)
{
    struct entry *entry = residency_at(store->map, number);
    struct namespace_state *space = entry_namespace(store, number);
    bool has_nvme;

    /* A pin keeps what can be read: copies of lost devices cannot. */
    if (!is_forced && pins_hold(store, number) && entry_tiers(store, number) != 0)
        return false;
    if (is_forced)
        residency_doom(store->map, number);
    else if (!residency_doom_unpinned(store->map, number))
        return false;
    has_nvme =
        (word_tiers(atomic_load_explicit(&entry->word, memory_order_relaxed)) & TIER_NVME) != 0;
    if (has_nvme)
        event_add(store, number, TIER_NVME, KVT_EVENT_REMOVED, reason);
    fates_leave(store, number, reason);
    space->block_count--;
    space->block_bytes -= entry->length;
    pins_drop(store, number);
    copies_forget(store, number, reason);
    store->policy->ops->leave(store->policy, number, is_eviction(reason));
    if (has_nvme) /* The policy has seen that it was there. */
        entry_place_forget(store, number);
    entries_unlink(store->entries, number);
    if (!entry_free(store, number))
        entry_doomed_add(store, number);
    return true;
}

bool
entry_is_held(const struct kvt_store *store, uint32_t number)
{
    uint64_t word =
        atomic_load_explicit(&residency_at(store->map, number)->word, memory_order_relaxed);

    return word_pins(word) > (entries_at(store->entries, number)->flight != NULL ? 1u : 0u);
}

void
entry_unpin(struct kvt_store *store, uint32_t number)
{
    (void)residency_unpin(store->map, number);
    store->room_changed = true;
}

void
entry_corrupt_note(
    struct kvt_store *store, uint32_t number, unsigned tier, const struct extent *extent)
{
    const struct entry *entry = residency_at(store->map, number);
    char place[64];

    if (tier == TIER_NVME) {
        (void)snprintf(place, sizeof(place), "segment=%u page=%u generation=%u", extent->segment,
            extent->page, extent->generation);
        scrubs_note(store, extent);
    } else {
        (void)snprintf(place, sizeof(place), "tier=%s", tier == TIER_HOST ? "host" : "hbm");
    }
    COUNT(store, corrupt_count, 1);
    log_line(&store->logger, LOG_ERROR, "entry",
        "event=corrupt %s bytes=%u expected=%016llx%016llx", place, entry->stored_length,
        (unsigned long long)entry->checksum.high, (unsigned long long)entry->checksum.low);
}

void
entry_quarantine(struct kvt_store *store, uint32_t number)
{
    uint64_t word =
        atomic_load_explicit(&residency_at(store->map, number)->word, memory_order_relaxed);

    if (word_state(word) == ENTRY_RESIDENT)
        (void)entry_erase(store, number, NULL);
}
