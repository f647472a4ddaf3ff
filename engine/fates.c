/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fates.c - what is noted of blocks that leave, and counted of misses.
 */
#include "fates.h"

#include <math.h>

#include "store_internal.h"

enum {
    AT_VERSION = 0,
    AT_RESERVED = 4,
    AT_WRITTEN = 8,
};

static const uint64_t second_ns = UINT64_C(1000000000);

/* --- Noting ----------------------------------------------------------------------------------- */

static uint32_t
wall_seconds(const struct kvt_store *store)
{
    return (uint32_t)(store->env.clock->wall_ns(store->env.clock_context) / 1000000000);
}

/* The same, asked for once a second: blocks leave by the hundred thousand. */
static uint32_t
wall_seconds_about(struct kvt_store *store)
{
    struct fates *fates = &store->fates;

    if (fates->wall_s == 0 || store->now_ns - fates->wall_asked_ns >= second_ns) {
        fates->wall_s = wall_seconds(store);
        fates->wall_asked_ns = store->now_ns;
    }
    return fates->wall_s;
}

static void
note(
    struct kvt_store *store, struct hash128 fingerprint, enum kvt_fate kind, float score, float cut)
{
    const struct fate fate = {
        .kind = (uint8_t)kind, .when_s = wall_seconds_about(store), .score = score, .cut = cut};

    fate_table_add(&store->fates.table, fingerprint.low, &fate);
}

void
fates_note(struct kvt_store *store, struct hash128 fingerprint, enum kvt_fate kind)
{
    note(store, fingerprint, kind, NAN, NAN);
}

static float
score_of(struct kvt_store *store, enum policy_place place, uint32_t number)
{
    return store->policy->ops->score(store->policy, place, number);
}

void
fates_refuse(struct kvt_store *store, uint32_t number)
{
    store->policy->ops->worth(store->policy, number, &store->fates.refusal);
    store->fates.refused = number;
}

void
fates_cut(struct kvt_store *store, uint32_t number)
{
    store->fates.cuts[POLICY_NVME] =
        number == ENTRY_NONE ? NAN : score_of(store, POLICY_NVME, number);
}

/* --- Leaving ---------------------------------------------------------------------------------- */

/* From memory, for room: nothing below it has the block. Or from NVMe too, for room in the map: no
 * block of one place is given up for it, and it is compared with none. */
static void
note_evicted(struct kvt_store *store, uint32_t number, struct hash128 fingerprint)
{
    struct fates *fates = &store->fates;
    const struct entry *entry = residency_at(store->map, number);
    enum policy_place place = POLICY_HOST;
    float score;

    if (entries_has_copy(store->entries, POLICY_NVME, number)) {
        note(store, fingerprint, KVT_FATE_EVICTED, score_of(store, POLICY_NVME, number), NAN);
        return;
    }
    if (!entries_has_copy(store->entries, POLICY_HOST, number))
        place = place_of_device(entry_device(entry));
    score = score_of(store, place, number);
    if (fates->refused == number)
        note(
            store, fingerprint, KVT_FATE_REFUSED, fates->refusal.worth_ns, fates->refusal.price_ns);
    else
        note(store, fingerprint, KVT_FATE_EVICTED, score, fates->cuts[place]);
    fates->cuts[place] = score;
}

void
fates_leave(struct kvt_store *store, uint32_t number, enum kvt_event_reason reason)
{
    struct hash128 fingerprint = residency_at(store->map, number)->fingerprint;

    if (store->fates.table.slots == NULL)
        return;
    switch (reason) {
    case KVT_REASON_EVICTED:
        note_evicted(store, number, fingerprint);
        break;
    case KVT_REASON_RECLAIMED:
        note(store, fingerprint, KVT_FATE_RECLAIMED, score_of(store, POLICY_NVME, number),
            store->fates.cuts[POLICY_NVME]);
        break;
    case KVT_REASON_DELETED:
        fates_note(store, fingerprint, KVT_FATE_DELETED);
        break;
    case KVT_REASON_CLEARED:
        fates_note(store, fingerprint, KVT_FATE_CLEARED);
        break;
    case KVT_REASON_REPLACED:
        /* If no block takes its place, put.c says so. Until then what was noted when another block
         * of the key left says nothing of this one. */
        fate_table_remove(&store->fates.table, fingerprint.low);
        break;
    case KVT_REASON_CORRUPT:
        fates_note(store, fingerprint, KVT_FATE_DAMAGED);
        break;
    case KVT_REASON_DEVICE_LOST:
        fates_note(store, fingerprint, KVT_FATE_DEVICE_LOST);
        break;
    case KVT_REASON_PUT:
    case KVT_REASON_DEMOTED:
    case KVT_REASON_RAISED:
        KVT_ASSERT(false); /* No block leaves by these. */
        break;
    }
    store->fates.refused = ENTRY_NONE;
}

void
fates_end(struct kvt_store *store)
{
    uint32_t limit = residency_number_limit(store->map);

    if (store->fates.table.slots == NULL)
        return;
    for (uint32_t number = 0; number < limit; number++) {
        const struct entry *entry = residency_at(store->map, number);
        uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);

        if (word_state(word) == ENTRY_RESIDENT && (word_tiers(word) & TIER_NVME) == 0)
            fates_note(store, entry->fingerprint, KVT_FATE_CLOSED);
    }
}

/* --- Keeping ---------------------------------------------------------------------------------- */

static size_t
fates_fill(struct kvt_store *store, uint8_t *target)
{
    struct fate_table *table = &store->fates.table;

    if (atomic_load_explicit(&table->is_changed, memory_order_relaxed) == 0)
        return 0;
    put_u32(target + AT_VERSION, FATES_VERSION);
    put_u32(target + AT_RESERVED, 0);
    put_u64(target + AT_WRITTEN, wall_seconds(store));
    return FATES_HEAD_BYTES + fate_table_save(table, target + FATES_HEAD_BYTES);
}

bool
fates_are_known(const uint8_t *source, size_t size, uint64_t *written_seconds_out)
{
    if (size < FATES_HEAD_BYTES || get_u32(source + AT_VERSION) != FATES_VERSION)
        return false;
    *written_seconds_out = get_u64(source + AT_WRITTEN);
    return true;
}

static bool
fates_take(struct kvt_store *store, const uint8_t *source, size_t size)
{
    uint64_t written_seconds;

    if (!fates_are_known(source, size, &written_seconds))
        return false;
    fate_table_restore(&store->fates.table, source + FATES_HEAD_BYTES, size - FATES_HEAD_BYTES);
    return true;
}

const struct lazy_file_kind fates_file = {
    .name = "fates",
    .new_name = "fates.new",
    .magic = UINT32_C(0x5DA37C1E),
    .bytes_max = FATES_HEAD_BYTES + KVT_FATES_MAX * FATE_RECORD_BYTES,
    .is_filled_apart = true,
    .fill = fates_fill,
    .take = fates_take,
};

void
fates_open(struct kvt_store *store)
{
    for (uint32_t place = 0; place < POLICY_PLACE_COUNT; place++)
        store->fates.cuts[place] = NAN;
    store->fates.refused = ENTRY_NONE;
    fate_table_open(&store->fates.table, &store->env, store->options.entry_count_max);
    store->fates_file = lazy_file_open(store, &fates_file);
}

void
fates_close(struct kvt_store *store)
{
    lazy_file_close(store->fates_file);
    fate_table_close(&store->fates.table, &store->env);
}

/* --- Asking ----------------------------------------------------------------------------------- */

bool
fates_find(const struct kvt_store *store, struct hash128 fingerprint, struct fate *fate_out)
{
    return fate_table_find(&store->fates.table, fingerprint.low, fate_out);
}

void
fates_count(struct kvt_store *store, struct hash128 fingerprint)
{
    struct fate fate = {.kind = KVT_FATE_NONE};

    (void)fates_find(store, fingerprint, &fate);
    switch ((enum kvt_fate)fate.kind) {
    case KVT_FATE_NONE:
        COUNT(store, miss_unknown_count, 1);
        break;
    case KVT_FATE_EVICTED:
    case KVT_FATE_RECLAIMED:
        COUNT(store, miss_evicted_count, 1);
        break;
    case KVT_FATE_REFUSED:
        COUNT(store, miss_refused_count, 1);
        break;
    case KVT_FATE_DAMAGED:
        COUNT(store, miss_damaged_count, 1);
        break;
    case KVT_FATE_DELETED:
    case KVT_FATE_CLEARED:
        COUNT(store, miss_deleted_count, 1);
        break;
    case KVT_FATE_PUT_FAILED:
    case KVT_FATE_DEVICE_LOST:
    case KVT_FATE_CLOSED:
        COUNT(store, miss_lost_count, 1);
        break;
    }
}

void
fates_count_key(
    struct kvt_store *store, kvt_namespace ns, const struct kvt_key *key, uint16_t component)
{
    struct block_key block_key;

    /* Checked before: it cannot fail. */
    (void)key_init(&block_key, store->file.secret, ns.id, component, key->bytes, key->length);
    fates_count(store, key_fingerprint(store->fingerprint_seed, &block_key));
}
