/* SPDX-License-Identifier: Apache-2.0 */
/*
 * direct.c - memory of the HOST tier in the caller's hands: kvt_reserve(), kvt_commit(),
 * kvt_discard(), kvt_map().
 *
 * Owns      the slot of a reservation until kvt_commit() gives it to the put's operation
 *           (op->has_slot), or kvt_discard() to the loop. Its memory is in a list of the store, so
 *           that kvt_abort() finds those that are out.
 * Threads   any; *_run() and *_deliver() are the loop's.
 */
#include "submit.h"

#include "quota.h"
#include "store_internal.h"

struct kvt_reservation {
    struct message message; /* Discarded: to the loop. */
    struct kvt_store *store;
    struct kvt_reservation *next, *previous; /* In the store's list, under reservations_lock. */
    struct op op;                            /* What the put said. */
    struct slot slot;
    enum kvt_status status; /* Of taking it. */
};

/* --- The list --------------------------------------------------------------------------------- */

static struct kvt_reservation *
reservation_make(struct kvt_store *store)
{
    struct kvt_reservation *reservation = env_take(&store->env, sizeof(*reservation));

    if (reservation == NULL)
        return NULL;
    reservation->store = store;
    reservation->op.memory_device = MEMORY_PLAIN;
    pthread_mutex_lock(&store->reservations_lock);
    reservation->next = store->reservations;
    if (reservation->next != NULL)
        reservation->next->previous = reservation;
    store->reservations = reservation;
    pthread_mutex_unlock(&store->reservations_lock);
    return reservation;
}

/* Its slot has another owner, or it has none. */
static void
reservation_free(struct kvt_reservation *reservation)
{
    struct kvt_store *store = reservation->store;

    pthread_mutex_lock(&store->reservations_lock);
    if (reservation->next != NULL)
        reservation->next->previous = reservation->previous;
    if (reservation->previous != NULL)
        reservation->previous->next = reservation->next;
    else
        store->reservations = reservation->next;
    pthread_mutex_unlock(&store->reservations_lock);
    env_put(&store->env, reservation, sizeof(*reservation));
}

void
reservations_close(struct kvt_store *store)
{
    while (store->reservations != NULL)
        reservation_free(store->reservations);
}

/* --- Reserving -------------------------------------------------------------------------------- */

/* Who asks again no sooner is another one. */
static const uint64_t asked_anew_ns = UINT64_C(1000) * 1000 * 1000;

/* Who is told KVT_E_BUSY asks again: what was in flight when they began to ask may have ended in
 * vain. */
static bool
reserve_run(struct kvt_store *store, void *context)
{
    struct kvt_reservation *reservation = context;
    struct reserve_wait *wait = &store->reserve_wait;
    const struct room_want want = {.place = POLICY_HOST,
        .namespace_id = reservation->op.key.namespace_id,
        .size = round_up(reservation->op.length, PAGE_BYTES),
        .patience = &wait->patience};

    if (store->now_ns - wait->asked_ns >= asked_anew_ns)
        wait->patience = (struct patience){0};
    wait->asked_ns = store->now_ns;
    /* Those who wait come first, but for those whom another's share may keep waiting. */
    if (room_line_has(store, POLICY_HOST, want.namespace_id))
        reservation->status = KVT_NOT_READY;
    else
        reservation->status = room_take(store, &want, &reservation->slot);
    if (reservation->status != KVT_NOT_READY)
        wait->patience = (struct patience){0};
    return true;
}

static enum kvt_status
reservation_check(const struct kvt_put *put)
{
    if (put == NULL)
        return failure_set(KVT_E_INVAL, 0, "put is NULL");
    if (put->source != NULL || put->region.id != 0)
        return failure_set(
            KVT_E_INVAL, 0, "put.source or put.region is set: the caller writes the bytes later");
    if (put->runs != NULL || (put->layout.id | put->slot | put->run_count) != 0)
        return failure_set(KVT_E_INVAL, 0,
            "put.layout, slot, runs or run_count is set: the caller writes the bytes in one run");
    if (put->tier != 0 && put->tier != KVT_TIER_HOST)
        return failure_set(KVT_E_INVAL, 0, "put.tier %u: only KVT_TIER_HOST", put->tier);
    return KVT_OK;
}

/* One more, if there may be one more. */
static enum kvt_status
reservation_create(struct kvt_store *store, struct kvt_reservation **reservation_out)
{
    if (!quota_take(&store->reservation_count, store->options.request_count_max))
        return failure_set(KVT_E_BUSY, 0, "%u reservations are out already (request_count_max)",
            store->options.request_count_max);
    *reservation_out = reservation_make(store);
    if (*reservation_out != NULL)
        return KVT_OK;
    atomic_fetch_sub_explicit(&store->reservation_count, 1, memory_order_relaxed);
    return failure_set(KVT_E_NOMEM, 0, "no memory for a reservation");
}

static void
reservation_destroy(struct kvt_reservation *reservation)
{
    struct kvt_store *store = reservation->store;

    reservation_free(reservation);
    atomic_fetch_sub_explicit(&store->reservation_count, 1, memory_order_relaxed);
}

enum kvt_status
kvt_reserve(kvt_store *store, kvt_namespace ns, const struct kvt_put *put, void **address_out,
    kvt_reservation **reservation_out)
{
    struct kvt_reservation *reservation;
    struct kvt_put about;
    enum kvt_status status;

    if (reservation_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "reservation_out is NULL");
    *reservation_out = NULL;
    if (address_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "address_out is NULL");
    KVT_TRY(store_enter(store));
    KVT_TRY(reservation_check(put));
    KVT_TRY(reservation_create(store, &reservation));
    about = *put;
    about.source = put; /* Any: it is never read. */
    status = put_import(store, &reservation->op, ns, &about);
    if (status != KVT_OK) {
        reservation_destroy(reservation);
        return status;
    }
    reservation->op.source = NULL;
    loop_call(store, reserve_run, reservation);
    status = reservation->status;
    if (status != KVT_OK) {
        reservation_destroy(reservation);
        return status == KVT_NOT_READY ? failure_set(KVT_E_BUSY, 0, "room is being made in HOST")
                                       : failure_set(status, 0,
                                             "every slot of HOST is leased, pinned, reserved, or "
                                             "others' by their share");
    }
    *address_out = slab_address(store->slab, reservation->slot);
    *reservation_out = reservation;
    return KVT_OK;
}

enum kvt_status
kvt_commit(kvt_reservation *reservation, enum kvt_durability durability,
    const struct kvt_submit *submit, kvt_ticket **ticket_out)
{
    struct kvt_store *store;
    struct kvt_ticket *ticket;
    struct op *op;

    if (ticket_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "ticket_out is NULL");
    *ticket_out = NULL;
    if (reservation == NULL)
        return failure_set(KVT_E_INVAL, 0, "reservation is NULL");
    store = reservation->store;
    KVT_TRY(store_enter(store));
    KVT_TRY(put_ticket_create(store, 1, durability, submit, &ticket));
    op = &ticket->ops[0];
    *op = reservation->op;
    op->ticket = ticket;
    op->is_direct = op->has_slot = true;
    op->slot = reservation->slot.number;
    /* It is submitted now: a clear in between has nothing to do with it. */
    op->namespace_epoch = atomic_load_explicit(
        &namespace_at(store, op->key.namespace_id)->epoch, memory_order_acquire);
    reservation_destroy(reservation);
    *ticket_out = ticket;
    ticket_send(ticket);
    return KVT_OK;
}

static void
discard_deliver(struct kvt_store *store, struct message *message)
{
    struct kvt_reservation *reservation = CONTAINER_OF(message, struct kvt_reservation, message);

    room_put(store, POLICY_HOST, reservation->slot);
    reservation_free(reservation);
}

void
kvt_discard(kvt_reservation *reservation)
{
    struct kvt_store *store;

    if (reservation == NULL || store_enter(reservation->store) == KVT_E_STATE)
        return;
    store = reservation->store;
    reservation->message.deliver = discard_deliver;
    loop_send(store, &reservation->message);
    /* Now, not when the loop has it: the caller may close the store next, and what the loop was
     * sent before comes first. */
    atomic_fetch_sub_explicit(&store->reservation_count, 1, memory_order_relaxed);
}

/* --- Mapping ---------------------------------------------------------------------------------- */

/* Bring the block to HOST. KVT_EXISTS: it is there already. */
static enum kvt_status
map_bring(struct kvt_store *store, kvt_namespace ns, const struct kvt_key *key, uint64_t timeout_ns)
{
    const struct kvt_prefetch how = {.struct_size = sizeof(how), .tier = KVT_TIER_HOST};
    struct kvt_result result;
    kvt_ticket *ticket;
    enum kvt_status status;

    KVT_TRY(kvt_prefetch_submit(store, ns, key, 1, &how, NULL, &ticket));
    status = kvt_ticket_wait(ticket, KVT_STAGE_DONE, timeout_ns);
    if (status == KVT_OK)
        status = kvt_ticket_results(ticket, KVT_STAGE_DONE, &result, 1);
    else if (status == KVT_LATE)
        (void)kvt_ticket_cancel(ticket);
    kvt_ticket_free(ticket);
    if (status != KVT_OK || result.status >= 0)
        return status != KVT_OK ? status : result.status;
    return failure_set(result.status, 0, "the block could not be brought to HOST");
}

/* A lease of the block if it is in HOST. KVT_NOT_READY: it is somewhere else; the lease keeps it
 * from leaving the store for want of room. */
static enum kvt_status
map_lease(struct kvt_store *store, kvt_namespace ns, const struct kvt_key *key, kvt_lease *lease)
{
    uint8_t tiers;

    KVT_TRY(kvt_lookup(store, ns, key, 1, &tiers, NULL, lease));
    if ((tiers & KVT_TIER_HOST) != 0)
        return KVT_OK;
    return tiers == 0 ? KVT_MISS : KVT_NOT_READY;
}

enum kvt_status
kvt_map(kvt_store *store, kvt_namespace ns, const struct kvt_key *key, uint64_t timeout_ns,
    kvt_lease *lease_out, const void **address_out, uint64_t *length_out)
{
    kvt_lease below = {0}; /* Of the copy that is brought up. */
    kvt_lease lease = {0};
    uint64_t now_ns, until_ns;
    enum kvt_status status;

    if (lease_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "lease_out is NULL");
    lease_out->id = 0;
    if (address_out == NULL || length_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "address_out or length_out is NULL");
    KVT_TRY(store_enter(store));
    until_ns = env_until(&store->env, timeout_ns);
    for (;;) {
        status = map_lease(store, ns, key, &lease);
        /* While the new lease holds the block the old one can go. */
        kvt_lease_release(store, below);
        below = lease;
        if (status != KVT_NOT_READY)
            break;
        now_ns = env_now(&store->env);
        status = now_ns >= until_ns ? KVT_LATE : map_bring(store, ns, key, until_ns - now_ns);
        if (status != KVT_OK && status != KVT_EXISTS)
            break;
    }
    if (status == KVT_OK)
        status = kvt_lease_address(store, lease, 0, KVT_TIER_HOST, address_out, length_out);
    if (status == KVT_OK)
        *lease_out = lease;
    else
        kvt_lease_release(store, lease);
    return status;
}
