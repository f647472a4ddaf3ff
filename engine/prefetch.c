/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prefetch.c - moves that the caller asks for: up into HOST or HBM, down out of them.
 *
 * An operation looks at where its block is, starts one move, waits in that move's flight, and looks
 * again, until the block is where it shall be.
 *
 * Threads   the loop.
 */
#include "store_internal.h"

/* The block may be on its way already. True: the operation waits for that. */
static bool
prefetch_waits(struct kvt_store *store, struct op *op, uint32_t number)
{
    const struct flight *flight = entries_at(store->entries, number)->flight;

    if (flight == NULL || flight_is_commit(flight))
        return false;
    op_await(store, op, number);
    return true;
}

/* Its slot in HBM comes first, so that what comes to HOST on its way is not evicted while it waits
 * for one. False: the operation waits for room there, or was answered. */
static bool
prefetch_has_room(struct kvt_store *store, struct op *op, uint32_t number)
{
    const struct room_want want = {.place = place_of_device(op->device),
        .size = round_up(residency_at(store->map, number)->length, PAGE_BYTES),
        .namespace_id = entry_namespace(store, number)->id,
        .patience = &op->patience,
        .is_in_line = true};
    struct slot slot;
    enum kvt_status status;

    if (op->target != KVT_TIER_HBM || op->has_slot)
        return true;
    /* The search for room does not take the block itself. */
    residency_pin(store->map, number);
    status = room_take(store, &want, &slot);
    lease_unpin(store, number);
    if (status == KVT_OK) {
        op_note(store, op, number);
        op->slot = slot.number;
        op->has_slot = true;
    } else if (status == KVT_NOT_READY) {
        room_wait(store, want.place, op);
    } else {
        op_finish(store, op, status);
    }
    return status == KVT_OK;
}

/* One step up from HOST. */
static void
prefetch_raise(struct kvt_store *store, struct op *op, uint32_t number)
{
    struct flight *flight = entries_at(store->entries, number)->flight;
    struct slot slot = slab_slot(place_slab(store, place_of_device(op->device)), op->slot);
    enum kvt_status status;

    /* One flight an entry: what is being written goes up when that is over. */
    if (flight != NULL) {
        op_await(store, op, number);
        commit_hurry(store, flight, store->now_ns);
        return;
    }
    status = move_up(store, number, op->device, slot);
    if (status == KVT_OK) {
        op->has_slot = false;
        op->is_raised = true;
        op_await(store, op, number);
    } else {
        op_finish(store, op, status);
    }
}

static void
prefetch_done(struct kvt_store *store, struct op *op, uint32_t number)
{
    bool is_moved = op->is_brought || op->is_lowered || op->is_raised;

    COUNT(store, prefetch_count, is_moved);
    entry_touch(store, number);
    op->tier = op->target;
    op->length = residency_at(store->map, number)->length;
    op_reach(store, op, 1, is_moved ? KVT_OK : KVT_EXISTS);
}

/* The tier that the block comes from now; 0: it could not be read, or a lost device had the only
 * copy. */
static unsigned
prefetch_source(const struct op *op, unsigned tiers)
{
    if ((tiers & TIER_HOST) != 0)
        return TIER_HOST;
    if ((tiers & TIER_HBM) != 0 && !op->is_lowered)
        return TIER_HBM;
    return (tiers & TIER_NVME) != 0 && !op->is_brought ? TIER_NVME : 0;
}

static void
prefetch_step(struct kvt_store *store, struct op *op, uint32_t number, unsigned source)
{
    if (source == TIER_NVME && op->ticket->is_bulk && window_waits(&store->bulks, op))
        return;
    if (!prefetch_has_room(store, op, number))
        return;
    if (source == TIER_HOST)
        prefetch_raise(store, op, number);
    else if (source == TIER_HBM)
        get_lower(store, op, number);
    else
        get_bring(store, op, number);
}

void
prefetch_begin(struct kvt_store *store, struct op *op)
{
    uint32_t number = residency_find_near(store->map, op->near, op->fingerprint, &op->key);
    unsigned tiers, source;

    if (number == ENTRY_NONE) {
        op_reach(store, op, 1, KVT_MISS);
        return;
    }
    op_look(store, op, number);
    tiers = entry_tiers(store, number);
    source = prefetch_source(op, tiers);
    if ((tiers & op->target) != 0 || (op->is_raised && op->moved_status == KVT_OK))
        prefetch_done(store, op, number);
    else if (store->now_ns > op->ticket->deadline_ns)
        op_reach(store, op, 1, KVT_LATE);
    else if (op_is_outrun(op))
        op_reach(store, op, 1, KVT_MISS);
    else if (prefetch_waits(store, op, number))
        return;
    else if (op->is_raised)
        op_reach(store, op, 1, op_moved_status(op, KVT_E_GPU));
    else if (source != 0)
        prefetch_step(store, op, number, source);
    else
        op_reach(store, op, 1, op_moved_status(op, KVT_MISS));
}

/* --- Down ------------------------------------------------------------------------------------- */

/* Write the block to NVMe; the operation waits for the end of that. */
static void
demote_write(struct kvt_store *store, struct op *op, uint32_t number)
{
    struct flight *flight = entries_at(store->entries, number)->flight;

    if (flight != NULL) {
        commit_hurry(store, flight, store->now_ns);
    } else {
        flight = flight_create(store, number, FLIGHT_QUEUED);
        if (flight == NULL) {
            op_finish(store, op, KVT_E_NOMEM);
            return;
        }
        flight->is_demotion = true;
        commit_queue(store, flight, store->now_ns);
    }
    flight->is_asked_for = true;
    op->is_written = true;
    op_await(store, op, number);
}

/* Give up the copies above the target. False: somebody has them pinned. */
static bool
demote_release(struct kvt_store *store, uint32_t number, uint32_t target)
{
    unsigned tiers = entry_tiers(store, number);
    bool is_released = true;

    if ((tiers & TIER_HBM) != 0)
        is_released = entry_hbm_release(store, number, KVT_REASON_DEMOTED);
    if (target == KVT_TIER_NVME && (tiers & TIER_HOST) != 0)
        is_released = entry_host_release(store, number, KVT_REASON_DEMOTED) && is_released;
    return is_released;
}

/* The block has no copy in the target or below it. */
static void
demote_copy(struct kvt_store *store, struct op *op, uint32_t number, unsigned tiers)
{
    if (op->is_written)
        op_reach(store, op, 1, op_moved_status(op, KVT_E_IO));
    else if ((tiers & TIER_HOST) != 0)
        demote_write(store, op, number);
    else if (op->is_lowered)
        op_reach(store, op, 1, op_moved_status(op, KVT_E_GPU));
    else
        get_lower(store, op, number);
}

void
demote_begin(struct kvt_store *store, struct op *op)
{
    uint32_t number = residency_find_near(store->map, op->near, op->fingerprint, &op->key);
    unsigned below = op->target == KVT_TIER_HOST ? TIER_HOST | TIER_NVME : TIER_NVME;
    struct flight *flight;
    unsigned tiers;

    if (number == ENTRY_NONE) {
        op_reach(store, op, 1, KVT_MISS);
        return;
    }
    op_look(store, op, number);
    tiers = entry_tiers(store, number);
    flight = entries_at(store->entries, number)->flight;
    if ((tiers & below) == 0 && op_is_outrun(op)) {
        op_reach(store, op, 1, KVT_MISS);
    } else if (flight != NULL && !flight_is_commit(flight)) {
        op_await(store, op, number);
    } else if (tiers == 0) {
        op_reach(store, op, 1, KVT_MISS);
    } else if ((tiers & below) == 0) {
        demote_copy(store, op, number, tiers);
    } else if (flight != NULL) {
        op_await(store, op, number); /* It has a pin of its own. */
        commit_hurry(store, flight, store->now_ns);
    } else {
        op_reach(store, op, 1, demote_release(store, number, op->target) ? KVT_OK : KVT_NOT_READY);
    }
}
