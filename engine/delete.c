/* SPDX-License-Identifier: Apache-2.0 */
/*
 * delete.c - forgetting blocks for good: by a delete, a replace, a namespace's clear, or damage.
 *
 * Threads   the loop.
 */
#include "store_internal.h"

enum kvt_status
entry_erase(struct kvt_store *store, uint32_t number, struct op *waiter)
{
    struct entry *entry = residency_at(store->map, number);
    struct entry_state *state = policy_at(store->policy, number);
    struct flight *flight = state->flight;
    unsigned tiers = word_tiers(atomic_load_explicit(&entry->word, memory_order_relaxed));
    struct commit_kill kill = {
        .extent = {entry->segment, entry->extent_generation, entry->page},
        .fingerprint = entry->fingerprint,
        .is_indexed = true,
        .record_crc = state->record_crc,
        .waiter = waiter,
    };

    /* First what can fail, so that a refusal changes nothing. */
    if ((tiers & TIER_NVME) != 0)
        KVT_TRY(commit_kill(store, &kill));
    if (flight != NULL && flight->state != FLIGHT_READING &&
        commit_cancel(store, flight, KVT_MISS, waiter)) {
        (void)entry_drop(store, number, true);
        return KVT_OK;
    }
    (void)entry_drop(store, number, true);
    if (waiter != NULL && (tiers & TIER_NVME) == 0)
        op_reach(store, waiter, 2, KVT_OK);
    return KVT_OK;
}

void
delete_begin(struct kvt_store *store, struct op *op)
{
    uint32_t number = residency_find(store->map, op->fingerprint, &op->key);
    struct flight *flight;
    enum kvt_status status;

    if (number == ENTRY_NONE) {
        op_reach(store, op, 1, KVT_MISS);
        reclaim_settle(store, op);
        return;
    }
    flight = policy_at(store->policy, number)->flight;
    if (flight != NULL && flight->state == FLIGHT_FILLING) {
        op_list_add(&flight->waiters, op);
        return;
    }
    /* Stage 1 first: the erasure may reach stage 2 at once. It can only fail before it changes
     * anything, for want of memory. */
    status = commit_kill_reserve(store);
    if (status != KVT_OK) {
        op_finish(store, op, status);
        return;
    }
    COUNT(store, delete_count, 1);
    op_reach(store, op, 1, KVT_OK);
    status = entry_erase(store, number, op);
    KVT_ASSERT(status == KVT_OK);
}
