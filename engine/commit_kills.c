/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commit_kills.c - copies that shall never come back: the queue of their kills, and kills that
 * travel with the block that replaces a copy.
 *
 * See commit.h. Threads: the loop.
 */
#include "commit_internal.h"

/* Kills that could not be written are tried again after that, when no batch has taken them. */
#define TOLD_PAUSE_NS (1ull * 1000 * 1000 * 1000)

/* Kills that are in a batch. */
static uint32_t
kills_travelling(const struct commit *commit)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < BATCH_COUNT; i++)
        count += commit->batches[i].kill_count;
    return count;
}

enum kvt_status
commit_kill_reserve(struct kvt_store *store)
{
    struct commit *commit = store->commit;

    /* What travels may come back: it keeps its room, and takes no other when it does. */
    if (commit->kills.count + commit->held_count + kills_travelling(commit) + 1 >=
            commit->kills.capacity &&
        !kill_queue_grow(&commit->kills, &store->env))
        return failure_set(KVT_E_NOMEM, 0, "no memory to remember a delete");
    return KVT_OK;
}

enum kvt_status
commit_kill(struct kvt_store *store, const struct commit_kill *kill)
{
    struct commit *commit = store->commit;
    struct kill_item item = {.kill = *kill, .order = commit->order + 1};
    uint64_t due_ns = store->now_ns;

    /* A store that is only looked at forgets blocks, and writes nothing. */
    if (store->is_read_only) {
        KVT_ASSERT(kill->waiter == NULL); /* Its deletes are refused. */
        return KVT_OK;
    }
    /* Everything written for the key so far is dead, also what never was acknowledged. Of a copy
     * that lost its block while it was written only itself: a newer block may be on its way. */
    item.sequence = kill->sequence;
    if (kill->sequence == 0 && !hash128_is_zero(kill->fingerprint))
        item.sequence = store->sequence;
    KVT_TRY(commit_kill_reserve(store));
    kill_queue_add(&commit->kills, &item);
    commit->order++;
    if (kill->waiter == NULL)
        due_ns += store->options.relaxed_interval_ns;
    if (commit->due_ns > due_ns)
        commit->due_ns = due_ns;
    return KVT_OK;
}

uint32_t
commit_kills_due(const struct commit *commit)
{
    return commit->is_last_try ? commit->kills.count : commit->kills.untold_count;
}

void
commit_kills_tell(struct kvt_store *store, struct batch *batch, enum kvt_status status)
{
    struct commit *commit = store->commit;
    struct op *waiter;

    kill_queue_return(&commit->kills, batch->kills, batch->kill_count);
    batch->kill_count = 0;
    /* Echoes go: whoever deletes again and again what could not be deleted adds one each time. */
    while (kill_queue_tell(&commit->kills, &waiter)) {
        if (waiter != NULL)
            op_reach(store, waiter, 2, status);
    }
    commit->told_due_ns = store->now_ns + TOLD_PAUSE_NS;
}

void
commit_doubt(struct kvt_store *store, enum kvt_status status)
{
    store->commit->lost_status = status;
}

bool
commit_is_in_doubt(const struct kvt_store *store)
{
    return store->commit->lost_status != KVT_OK;
}

void
commit_kill_lose(struct kvt_store *store)
{
    COUNT(store, kill_lost_count, 1);
    store->commit->is_record_left = true;
    commit_doubt(store, KVT_E_NOMEM);
}

void
commit_void(struct kvt_store *store, const struct tier_batch *batch)
{
    struct commit *commit = store->commit;
    const struct kill_item item = {.kill = {.extent = batch->header}, .sequence = batch->sequence};

    segment_at(store->segments, batch->header.segment)->void_count++;
    if (commit_kill_reserve(store) != KVT_OK) {
        COUNT(store, kill_lost_count, 1);
        commit_doubt(store, KVT_E_NOMEM);
        return;
    }
    kill_queue_return(&commit->kills, &item, 1);
    if (commit->due_ns > store->now_ns)
        commit->due_ns = store->now_ns;
}

uint32_t
commit_voids_travelling(const struct commit *commit, struct tier_kill *entries_out, uint32_t room)
{
    uint32_t count = 0;

    for (uint32_t n = 0; n < BATCH_COUNT; n++) {
        const struct batch *batch = &commit->batches[n];

        if (batch->state != BATCH_WRITING)
            continue;
        for (uint32_t i = 0; i < batch->kill_count && count < room; i++) {
            if (batch->kills[i].order != 0)
                break;
            if (entries_out != NULL)
                entries_out[count] = kill_item_entry(&batch->kills[i]);
            count++;
        }
    }
    return count;
}

uint32_t
commit_voids(const struct kvt_store *store, struct tier_kill *entries_out, uint32_t room)
{
    const struct kill_queue *queue = &store->commit->kills;
    uint32_t count = commit_voids_travelling(store->commit, entries_out, room);

    for (uint32_t at = queue->first; at != 0 && count < room; at = queue->slots[at].next) {
        if (queue->slots[at].item.order != 0)
            break;
        if (entries_out != NULL)
            entries_out[count] = kill_item_entry(&queue->slots[at].item);
        count++;
    }
    return count;
}

void
commit_bury(struct kvt_store *store, const struct commit_kill *kill)
{
    if (commit_kill(store, kill) != KVT_OK)
        commit_kill_lose(store);
}

/* --- Finding kills of a key ------------------------------------------------------------------- */

/* The place of the batch's first kill of that fingerprint, or the free one that it would have: a
 * place holds the kill's index + 1, and half of them are free. */
static uint32_t
place_of(const struct batch *batch, struct hash128 fingerprint)
{
    uint32_t place = fingerprint.low % KILL_PLACES;

    while (
        batch->kill_places[place] != 0 &&
        !hash128_equal(batch->kills[batch->kill_places[place] - 1].kill.fingerprint, fingerprint))
        place = (place + 1) % KILL_PLACES;
    return place;
}

void
commit_kills_note(struct batch *batch)
{
    memset(batch->kill_places, 0, sizeof(batch->kill_places));
    for (uint32_t i = 0; i < batch->kill_count; i++) {
        uint32_t place = place_of(batch, batch->kills[i].kill.fingerprint);

        if (batch->kill_places[place] == 0)
            batch->kill_places[place] = (uint16_t)(i + 1);
    }
}

const struct kill_item *
commit_kill_find(const struct commit *commit, struct hash128 fingerprint)
{
    const struct kill_item *item = kill_queue_find(&commit->kills, fingerprint);

    for (uint32_t n = 0; n < BATCH_COUNT && item == NULL; n++) {
        const struct batch *batch = &commit->batches[n];
        uint32_t number = 1; /* A void entry stands first. */

        if (batch->kill_count == 0)
            continue;
        if (batch->kills[0].order != 0)
            number = batch->kill_places[place_of(batch, fingerprint)];
        item = number == 0 ? NULL : &batch->kills[number - 1];
    }
    return item;
}

/* Fingerprints are uniform: a chain has few of other keys. */
static struct flight **
killed_head(const struct kvt_store *store, struct hash128 fingerprint)
{
    return &store->commit->killed[fingerprint.low % KILLED_HEADS];
}

void
commit_killed_add(struct kvt_store *store, struct flight *flight)
{
    struct flight **head = killed_head(store, residency_at(store->map, flight->entry)->fingerprint);

    KVT_ASSERT(flight->state == FLIGHT_WRITING && !flight->is_killed);
    flight->is_killed = true;
    flight->killed_next = *head;
    *head = flight;
    flight->is_room_kept = commit_kill_reserve(store) == KVT_OK;
    store->commit->held_count += flight->is_room_kept;
}

void
commit_killed_remove(struct kvt_store *store, struct flight *flight)
{
    struct flight **link = killed_head(store, residency_at(store->map, flight->entry)->fingerprint);

    while (*link != flight)
        link = &(*link)->killed_next;
    *link = flight->killed_next;
    flight->is_killed = false;
    store->commit->held_count -= flight->is_room_kept;
}

/* The last flight of that key whose block is gone while it is written; NULL. The kills of all such
 * come in their order. */
static struct flight *
killed_find(struct kvt_store *store, struct hash128 fingerprint)
{
    struct flight *flight = *killed_head(store, fingerprint);

    while (flight != NULL &&
           !hash128_equal(residency_at(store->map, flight->entry)->fingerprint, fingerprint))
        flight = flight->killed_next;
    return flight;
}

void
commit_kill_settle(
    struct kvt_store *store, struct hash128 fingerprint, enum kvt_status status, struct op *waiter)
{
    const struct kill_item *item = commit_kill_find(store->commit, fingerprint);
    struct flight *flight = killed_find(store, fingerprint);
    struct commit_kill kill;

    /* Its kill will come behind all that wait now. */
    if (flight != NULL) {
        op_list_add(&flight->kill_waiters, waiter);
        return;
    }
    if (item == NULL) {
        /* Whose kill was lost is not known: it may have been this key's. */
        if (store->commit->lost_status != KVT_OK)
            status = store->commit->lost_status;
        op_reach(store, waiter, 2, status);
        return;
    }
    /* Batches are committed in order: this one's is not before that one's. */
    kill = item->kill;
    kill.sequence = item->sequence;
    kill.is_indexed = false;
    kill.waiter = waiter;
    status = commit_kill(store, &kill);
    if (status != KVT_OK) {
        op_reach(store, waiter, 2, status);
        return;
    }
    store->commit->kills.slots[store->commit->kills.last].item.is_echo = true;
}

static uint64_t
replaced_bytes(const struct commit_kill *kill)
{
    return (uint64_t)pages_of(kill->stored_length) * PAGE_BYTES;
}

void
commit_replace(struct kvt_store *store, struct flight *flight, const struct commit_kill *kill)
{
    struct segment *segment = segment_at(store->segments, kill->extent.segment);

    KVT_ASSERT(!flight->has_replaced);
    flight->replaced = *kill;
    flight->has_replaced = true;
    /* Below the sequence that the flight's own block will get. */
    if (kill->sequence == 0)
        flight->replaced.sequence = store->sequence;
    store->commit->held_count++;
    /* Until then a crash would bring it back: it lives. */
    segment->held_bytes += replaced_bytes(kill);
    segment->live_bytes += replaced_bytes(kill);
}

bool
commit_replace_take(struct kvt_store *store, struct flight *flight, struct commit_kill *kill_out)
{
    if (!flight->has_replaced)
        return false;
    flight->has_replaced = false;
    store->commit->held_count--;
    *kill_out = flight->replaced;
    segment_at(store->segments, kill_out->extent.segment)->held_bytes -= replaced_bytes(kill_out);
    extent_forget(store, &kill_out->extent, kill_out->stored_length);
    return true;
}

void
commit_replace_end(struct kvt_store *store, struct flight *flight)
{
    struct commit_kill kill;

    if (commit_replace_take(store, flight, &kill)) {
        enum kvt_status status = commit_kill(store, &kill);

        KVT_ASSERT(status == KVT_OK); /* Its room was kept. */
        (void)status;
    }
}

/* The copies in that segment die before the blocks that replace them are durable. */
static void
replaced_evict(struct kvt_store *store, uint32_t segment)
{
    for (struct flight *flight = store->commit->oldest; flight != NULL; flight = flight->newer) {
        if (flight_is_waiting(flight) && commit_replaces_in(flight, segment)) {
            commit_replace_end(store, flight);
            COUNT(store, nvme_evict_count, 1);
        }
    }
}

/* Whether a flight whose block replaces a copy in that segment waits for its image's turn, which
 * may not come before a batch was written. */
static bool
is_waiting_for_image(const struct commit *commit, uint32_t segment)
{
    for (const struct flight *flight = commit->oldest; flight != NULL; flight = flight->newer) {
        if (flight->state == FLIGHT_IMAGING && flight->image == NULL &&
            commit_replaces_in(flight, segment))
            return true;
    }
    return false;
}

bool
commit_replace_leave(struct kvt_store *store, uint32_t segment)
{
    const struct commit *commit = store->commit;
    const struct segment *from = segment_at(store->segments, segment);
    enum kvt_status status;

    if (from->held_bytes == 0)
        return true;
    if (!commit->is_stalled) {
        commit_hurry_all(store);
        return false;
    }
    status = commit_batch_ahead(store, segment);
    if (status == KVT_E_NOSPC || (status == KVT_MISS && is_waiting_for_image(commit, segment)))
        replaced_evict(store, segment);
    return from->held_bytes == 0;
}

void
commit_kill_answer(struct kvt_store *store, const struct kill_item *item, enum kvt_status status)
{
    const struct commit *commit = store->commit;

    /* The one that takes the key's record out of the index, or an older copy's, may be the one that
     * was lost. */
    if (status < 0)
        commit_doubt(store, status);
    else if (commit->is_record_left || (!item->kill.is_indexed && commit->lost_status != KVT_OK))
        status = commit->lost_status;
    if (item->kill.waiter != NULL)
        op_reach(store, item->kill.waiter, 2, status);
}

uint64_t
commit_kill_mark(const struct kvt_store *store)
{
    return store->commit->order;
}

/* One of them, in their order, comes before the mark, and nobody was told of it. */
static bool
kills_are_before(const struct kill_item *kills, uint32_t count, uint64_t mark)
{
    for (uint32_t i = 0; i < count && kills[i].order <= mark; i++) {
        if (!kills[i].is_told)
            return true;
    }
    return false;
}

/* The same of those that wait. */
static bool
kills_wait_before(const struct kill_queue *queue, uint64_t mark)
{
    uint32_t at = queue->first_untold;

    return at != 0 && queue->slots[at].item.order <= mark;
}

bool
commit_kills_have_passed(const struct kvt_store *store, uint64_t mark)
{
    const struct commit *commit = store->commit;

    if (kills_wait_before(&commit->kills, mark))
        return false;
    for (uint32_t i = 0; i < BATCH_COUNT; i++) {
        const struct batch *batch = &commit->batches[i];

        if (batch->state != BATCH_IDLE && kills_are_before(batch->kills, batch->kill_count, mark))
            return false;
    }
    return true;
}
