/* SPDX-License-Identifier: Apache-2.0 */
/*
 * delete.c - forgetting blocks for good: by a delete, a replace, a namespace's clear, or damage.
 *
 * Threads   the loop.
 */
#include "store_internal.h"

struct commit_kill
entry_kill(struct kvt_store *store, uint32_t number, struct op *waiter)
{
    const struct entry *entry = residency_at(store->map, number);

    return (struct commit_kill){
        .extent = {entry->segment, entry->extent_generation, entry->page},
        .fingerprint = entry->fingerprint,
        .is_indexed = true,
        .record_crc = entries_at(store->entries, number)->record_crc,
        .stored_length = entry->stored_length,
        .waiter = waiter,
    };
}

enum kvt_status
entry_erase(struct kvt_store *store, uint32_t number, struct op *waiter)
{
    struct entry *entry = residency_at(store->map, number);
    struct flight *flight = entries_at(store->entries, number)->flight;
    unsigned tiers = word_tiers(atomic_load_explicit(&entry->word, memory_order_relaxed));
    bool is_old_copy_left = waiter != NULL && reclaim_has_dropped(store, entry->fingerprint);
    /* A delete that waits for the end of a reclaim waits for its own kill behind that. */
    struct op *killer = is_old_copy_left ? NULL : waiter;
    struct commit_kill kill = entry_kill(store, number, killer);

    /* First what can fail, so that a refusal changes nothing. */
    if ((tiers & TIER_NVME) != 0)
        KVT_TRY(commit_kill(store, &kill));
    /* Out of the map before anybody is told: operations that waited for the flight start again in
     * commit_cancel(), and a lookup of whoever sees stage 1 must not find the block. */
    (void)entry_drop(store, number, true, waiter != NULL ? KVT_REASON_DELETED : KVT_REASON_CORRUPT);
    if (waiter != NULL)
        op_reach(store, waiter, 1, KVT_OK);
    if (flight != NULL && flight_is_commit(flight) &&
        commit_cancel(store, flight, KVT_MISS, killer))
        killer = NULL;
    if (is_old_copy_left)
        reclaim_settle(store, waiter);
    else if (killer != NULL && (tiers & TIER_NVME) == 0)
        commit_kill_settle(store, kill.fingerprint, KVT_OK, killer);
    return KVT_OK;
}

enum kvt_status
entry_replace(
    struct kvt_store *store, uint32_t number, struct commit_kill *kill_out, bool *has_kill_out)
{
    struct entry *entry = residency_at(store->map, number);
    struct flight *flight = entries_at(store->entries, number)->flight;
    unsigned tiers = word_tiers(atomic_load_explicit(&entry->word, memory_order_relaxed));

    KVT_ASSERT(
        flight == NULL || (flight->state != FLIGHT_FILLING && flight->state != FLIGHT_WRITING));
    KVT_TRY(commit_kill_reserve(store));
    *has_kill_out = (tiers & TIER_NVME) != 0;
    if (*has_kill_out)
        *kill_out = entry_kill(store, number, NULL);
    if (flight != NULL && flight_is_waiting(flight)) {
        /* What this block was to replace, the next one does. */
        *has_kill_out = commit_replace_take(store, flight, kill_out);
        (void)commit_cancel(store, flight, KVT_MISS, NULL);
    }
    (void)entry_drop(store, number, true, KVT_REASON_REPLACED);
    return KVT_OK;
}

void
delete_settle(struct kvt_store *store, struct op *op)
{
    commit_kill_settle(store, op->fingerprint, op->status[0], op);
}

/* Nobody can see a block of this key; one that was killed or evicted may still come back in a
 * crash. */
static void
delete_absent(struct kvt_store *store, struct op *op)
{
    op_reach(store, op, 1, KVT_MISS);
    if (reclaim_has_dropped(store, op->fingerprint))
        reclaim_settle(store, op);
    else
        delete_settle(store, op);
}

void
delete_begin(struct kvt_store *store, struct op *op)
{
    uint32_t number = residency_find_near(store->map, op->near, op->fingerprint, &op->key);
    struct flight *flight;
    enum kvt_status status;

    if (relocate_wait(store, op))
        return;
    if (number == ENTRY_NONE) {
        delete_absent(store, op);
        return;
    }
    flight = entries_at(store->entries, number)->flight;
    if (flight != NULL && flight->state == FLIGHT_FILLING) {
        op_list_add(&flight->waiters, op);
        return;
    }
    /* The erasure can only fail before it changes anything, for want of memory. */
    status = commit_kill_reserve(store);
    if (status != KVT_OK) {
        op_finish(store, op, status);
        return;
    }
    COUNT(store, delete_count, 1);
    status = entry_erase(store, number, op);
    KVT_ASSERT(status == KVT_OK);
}
