/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease.c - the table of leases, their ids and their end.
 *
 * (E1) generation: odd while the lease is out. A release moves it on by compare-and-swap, so that
 * of two releases exactly one counts.
 *
 * (E3) A place that is not on the free stack is admitted, travels, or was left to the loop that
 * looks at it, and of each kind there are so many at most that the table has a place for all. Who
 * stops to be the one is the other before, or has put the place back before (release); who is next
 * to be counted sees that (acquire), and finds a place.
 *
 * (E4) looked: the place that the loop reads, with a mark when it was released meanwhile. The loop
 * writes it, then reads the generation; a release moves the generation, then reads `looked` (all
 * seq_cst): one of them sees the other. So nobody has the place anew before the loop has done with
 * it.
 */
#include "lease.h"

#include "quota.h"
#include "store_internal.h"

/* Of lease_table.looked: it was released, and the loop puts it back. */
#define LOOKED_LEFT (UINT32_C(1) << 31)

struct lease_table {
    struct lease *leases;
    uint32_t count;
    _Atomic uint32_t ever_count; /* Those behind so many were never taken: nobody touched them. */
    _Atomic uint64_t free;       /* {tag 32, number}: the tag defeats ABA. Above count: none. */
    _Atomic uint32_t admitted_count;   /* Begun, out, or waiting for a stream: lease_count_max. */
    _Atomic uint32_t travelling_count; /* Released, on their way to the loop: LEASE_SPARE. */
    _Atomic uint32_t looked;           /* Number of the one that the loop reads; 0: none. */
};

/* The leases of the table are 1, 2, ... */
static uint32_t
number_of(const struct lease_table *table, const struct lease *lease)
{
    return (uint32_t)(lease - table->leases) + 1;
}

enum kvt_status
leases_open(struct kvt_store *store)
{
    struct lease_table *table = env_take(&store->env, sizeof(*table));

    store->leases = table;
    if (table == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for leases");
    table->count = store->options.lease_count_max + LEASE_SPARE + 1; /* One that is looked at. */
    table->leases = env_take(&store->env, table->count * sizeof(*table->leases));
    if (table->leases == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for %u leases", table->count);
    atomic_init(&table->free, 1);
    return KVT_OK;
}

static void
lease_array_free(struct kvt_store *store, struct lease *lease)
{
    if (lease->capacity > 0) {
        env_put(&store->env, lease->numbers, lease->capacity * sizeof(*lease->numbers));
        env_put(&store->env, lease->tiers, lease->capacity);
    }
    lease->capacity = 0;
}

void
leases_close(struct kvt_store *store)
{
    struct lease_table *table = store->leases;

    if (table == NULL)
        return;
    for (uint32_t i = 0; i < atomic_load_explicit(&table->ever_count, memory_order_relaxed); i++)
        lease_array_free(store, &table->leases[i]);
    env_put(&store->env, table->leases, table->count * sizeof(*table->leases));
    env_put(&store->env, table, sizeof(*table));
    store->leases = NULL;
}

static uint64_t
head_make(uint64_t before, uint32_t number)
{
    return ((before >> 32) + 1) << 32 | number;
}

static void
lease_dismiss(struct lease_table *table)
{
    atomic_fetch_sub_explicit(&table->admitted_count, 1, memory_order_release);
}

/* For one that is admitted: there is a place (E3). */
static struct lease *
lease_take(struct lease_table *table)
{
    uint64_t head = atomic_load_explicit(&table->free, memory_order_acquire);
    uint32_t ever_count = atomic_load_explicit(&table->ever_count, memory_order_relaxed);
    struct lease *lease;
    uint32_t number, behind;

    do {
        number = (uint32_t)head;
        KVT_ASSERT(number <= table->count);
        lease = &table->leases[number - 1];
        behind = number + 1 + atomic_load_explicit(&lease->next, memory_order_relaxed);
    } while (!atomic_compare_exchange_weak_explicit(
        &table->free, &head, head_make(head, behind), memory_order_acquire, memory_order_acquire));
    while (number > ever_count &&
           !atomic_compare_exchange_weak_explicit(&table->ever_count, &ever_count, number,
               memory_order_relaxed, memory_order_relaxed)) {
    }
    return lease;
}

static void
lease_put(struct lease_table *table, struct lease *lease)
{
    uint64_t head = atomic_load_explicit(&table->free, memory_order_relaxed);
    uint32_t number = number_of(table, lease);

    do {
        atomic_store_explicit(&lease->next, (uint32_t)head - (number + 1), memory_order_relaxed);
    } while (!atomic_compare_exchange_weak_explicit(
        &table->free, &head, head_make(head, number), memory_order_release, memory_order_relaxed));
}

static enum kvt_status
lease_prepare(struct kvt_store *store, struct lease *lease, uint32_t count)
{
    lease->count = count;
    if (count <= LEASE_INLINE) {
        lease_array_free(store, lease);
        lease->numbers = lease->inline_numbers;
        lease->tiers = lease->inline_tiers;
        return KVT_OK;
    }
    if (count <= lease->capacity)
        return KVT_OK;
    lease_array_free(store, lease);
    lease->numbers = env_take(&store->env, count * sizeof(*lease->numbers));
    lease->tiers = env_take(&store->env, count);
    lease->capacity = count;
    if (lease->numbers != NULL && lease->tiers != NULL)
        return KVT_OK;
    lease_array_free(store, lease);
    return failure_set(KVT_E_NOMEM, 0, "no memory for a lease of %u blocks", count);
}

enum kvt_status
lease_begin(struct kvt_store *store, uint32_t count, struct lease **lease_out)
{
    struct lease *lease;
    enum kvt_status status;

    if (!quota_take(&store->leases->admitted_count, store->options.lease_count_max))
        return failure_set(
            KVT_E_NOSPC, 0, "%u leases are out (lease_count_max)", store->options.lease_count_max);
    lease = lease_take(store->leases);
    status = lease_prepare(store, lease, count);
    if (status != KVT_OK) {
        lease_cancel(store, lease);
        return status;
    }
    *lease_out = lease;
    return KVT_OK;
}

/* The loop: the request is over, its blocks were used. */
static void
lease_settle(struct kvt_store *store, struct lease *lease)
{
    entry_request(store, lease->numbers, lease->count);
    store->room_changed = true;
    store->kept_hand.vain_until_ns = 0; /* It may have been what that was in vain for. */
    lease_put(store->leases, lease);
}

static void
lease_deliver(struct kvt_store *store, struct message *message)
{
    lease_settle(store, CONTAINER_OF(message, struct lease, message));
    /* (E3, E5) */
    atomic_fetch_sub_explicit(&store->leases->travelling_count, 1, memory_order_acq_rel);
}

void
lease_unpin(struct kvt_store *store, uint32_t number)
{
    if (residency_unpin(store->map, number))
        env_wake(&store->env, store->loop_task);
}

kvt_lease
lease_keep(struct kvt_store *store, struct lease *lease, uint64_t now_ns)
{
    uint32_t generation;

    lease->taken_ns = now_ns;
    /* (E2) release: pairs with the acquire in lease_next(). */
    generation = atomic_fetch_add_explicit(&lease->generation, 1, memory_order_release) + 1;

    atomic_fetch_add_explicit(&store->lease_out_count, 1, memory_order_relaxed);
    COUNT(store, lease_count, 1);
    return (kvt_lease){(uint64_t)generation << 32 | number_of(store->leases, lease)};
}

static bool
lease_is_out(const struct lease *lease)
{
    return (atomic_load_explicit(&lease->generation, memory_order_seq_cst) & 1) != 0;
}

const struct lease *
lease_next(struct kvt_store *store, uint32_t *cursor, uint32_t end)
{
    struct lease_table *table = store->leases;
    uint32_t ever_count = atomic_load_explicit(&table->ever_count, memory_order_acquire);

    lease_look_end(store);
    while (*cursor < end && *cursor < ever_count) {
        const struct lease *lease = &table->leases[(*cursor)++];

        if (!lease_is_out(lease))
            continue;
        atomic_store_explicit(&table->looked, number_of(table, lease), memory_order_seq_cst);
        if (lease_is_out(lease))
            return lease;
        lease_look_end(store);
    }
    if (*cursor >= ever_count)
        *cursor = 0;
    return NULL;
}

void
lease_look_end(struct kvt_store *store)
{
    struct lease_table *table = store->leases;
    uint32_t looked = atomic_exchange_explicit(&table->looked, 0, memory_order_acq_rel);

    if ((looked & LOOKED_LEFT) != 0)
        lease_put(table, &table->leases[(looked & ~LOOKED_LEFT) - 1]);
}

/* The loop looks at the lease, which was released, and will put it back. False: it does not. */
static bool
lease_leave(struct lease_table *table, const struct lease *lease)
{
    uint32_t number = number_of(table, lease);

    return atomic_load_explicit(&table->looked, memory_order_seq_cst) == number &&
           atomic_compare_exchange_strong_explicit(&table->looked, &number, number | LOOKED_LEFT,
               memory_order_acq_rel, memory_order_acquire);
}

void
lease_cancel(struct kvt_store *store, struct lease *lease)
{
    lease_put(store->leases, lease);
    lease_dismiss(store->leases);
}

/* The lease behind an id, or NULL when there is no such lease. */
static struct lease *
lease_at(struct kvt_store *store, kvt_lease id)
{
    uint32_t index = (uint32_t)id.id;

    if (index == 0 || index > store->leases->count || ((id.id >> 32) & 1) == 0)
        return NULL;
    return &store->leases->leases[index - 1];
}

struct lease *
lease_current(struct kvt_store *store, kvt_lease id)
{
    struct lease *lease = lease_at(store, id);

    if (lease != NULL &&
        atomic_load_explicit(&lease->generation, memory_order_acquire) == (uint32_t)(id.id >> 32))
        return lease;
    (void)failure_set(KVT_E_INVAL, 0, "the lease is stale, or none");
    return NULL;
}

enum kvt_status
kvt_lease_address(kvt_store *store, kvt_lease id, uint32_t index, uint32_t tier,
    const void **address_out, uint64_t *length_out)
{
    struct lease *lease;
    const struct entry *entry;

    if (address_out == NULL || length_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "address_out or length_out is NULL");
    KVT_TRY(store_enter(store));
    lease = lease_current(store, id);
    if (lease == NULL)
        return KVT_E_INVAL;
    if (index >= lease->count)
        return failure_set(
            KVT_E_INVAL, 0, "index %u: the lease is of %u keys", index, lease->count);
    if (tier != KVT_TIER_HBM && tier != KVT_TIER_HOST)
        return failure_set(
            KVT_E_INVAL, 0, "tier %u is neither KVT_TIER_HBM nor KVT_TIER_HOST", tier);
    if (lease->numbers[index] == ENTRY_NONE || (lease->tiers[index] & tier) == 0)
        return KVT_MISS;
    entry = residency_at(store->map, lease->numbers[index]);
    if (tier == KVT_TIER_HBM && device_is_lost(store, entry_device(entry)))
        return failure_set(KVT_E_GPU, 0, "device %u is lost", entry_device(entry));
    *address_out =
        tier == KVT_TIER_HBM ? entry_hbm_address(store, entry) : entry_host_address(store, entry);
    *length_out = entry->length;
    return KVT_OK;
}

/* --- Release ---------------------------------------------------------------------------------- */

/* The id is worth nothing from here on. False: it was stale. */
static bool
lease_end(struct lease *lease, kvt_lease id)
{
    uint32_t generation = (uint32_t)(id.id >> 32);

    return atomic_compare_exchange_strong_explicit(&lease->generation, &generation, generation + 1,
        memory_order_seq_cst, memory_order_relaxed);
}

static void
lease_unpin_all(struct kvt_store *store, struct lease *lease)
{
    for (uint32_t i = 0; i < lease->count; i++) {
        if (lease->numbers[i] != ENTRY_NONE)
            lease_unpin(store, lease->numbers[i]);
    }
}

/* It is one of those on their way to the loop. False: they are as many as may be. */
static bool
lease_travel(struct lease_table *table)
{
    uint32_t count = atomic_load_explicit(&table->travelling_count, memory_order_relaxed);
    bool has_room;

    /* (E5) acq_rel, and written without room, too: all that travel are counted down by the loop
     * behind this, which so sees that the pins are gone, and then looks for room. */
    do {
        has_room = count < LEASE_SPARE;
    } while (!atomic_compare_exchange_weak_explicit(&table->travelling_count, &count,
        count + has_room, memory_order_acq_rel, memory_order_relaxed));
    return has_room;
}

/* What it pinned is free. The loop tells the policy, unless callers are far ahead of it: then that
 * hint is given up, and no lookup refused. */
static void
lease_return(struct kvt_store *store, struct lease *lease)
{
    if (lease_travel(store->leases)) {
        lease_dismiss(store->leases);
        lease->message.deliver = lease_deliver;
        loop_send(store, &lease->message);
        return;
    }
    if (!lease_leave(store->leases, lease))
        lease_put(store->leases, lease);
    lease_dismiss(store->leases);
}

void
kvt_lease_release(kvt_store *store, kvt_lease id)
{
    struct lease *lease;

    if (id.id == 0 || store_enter(store) == KVT_E_STATE || store == NULL)
        return;
    lease = lease_at(store, id);
    if (lease == NULL || !lease_end(lease, id)) {
        COUNT(store, lease_stale_count, 1);
        return;
    }
    lease_unpin_all(store, lease);
    lease_return(store, lease);
    atomic_fetch_sub_explicit(&store->lease_out_count, 1, memory_order_relaxed);
}

/* The loop: the stream's work is done, or no stream of its device goes on. */
static void
lease_waited(struct kvt_store *store, struct device_job *job)
{
    struct lease *lease = CONTAINER_OF(job, struct lease, wait_job);

    lease_unpin_all(store, lease);
    lease_settle(store, lease);
    lease_dismiss(store->leases);
    atomic_fetch_sub_explicit(&store->lease_waiting_count, 1, memory_order_relaxed);
}

static void
lease_wait(struct kvt_store *store, struct message *message)
{
    struct lease *lease = CONTAINER_OF(message, struct lease, message);

    device_job_wait(store, &lease->wait_job, lease->wait_event);
}

/* An event behind what was queued on the stream. */
static enum kvt_status
stream_mark(struct device *device, void *stream, void **event_out)
{
    enum kvt_status status;

    KVT_TRY(device->ops->event_create(device, event_out));
    status = device->ops->event_record(device, *event_out, stream);
    if (status != KVT_OK)
        device->ops->event_destroy(device, *event_out);
    return status;
}

enum kvt_status
kvt_lease_release_after(kvt_store *store, kvt_lease id, uint32_t device_number, void *stream)
{
    struct device *device;
    struct lease *lease;
    void *event;
    enum kvt_status status;

    KVT_TRY(store_enter(store));
    lease = lease_current(store, id);
    if (lease == NULL) {
        COUNT(store, lease_stale_count, id.id != 0);
        return KVT_E_INVAL;
    }
    if (!device_is_open(store, device_number))
        return failure_set(
            KVT_E_INVAL, 0, "device %u is not one of the store's (device_mask)", device_number);
    if (stream == NULL)
        return failure_set(KVT_E_INVAL, 0, "stream is NULL: the default stream is refused");
    device = hbm_device(store->devices.tiers[device_number]);
    status = device_answer(store, device_number, stream_mark(device, stream, &event));
    if (status == KVT_E_GPU)
        kvt_lease_release(store, id);
    KVT_TRY(status);
    if (!lease_end(lease, id)) {
        device->ops->event_destroy(device, event);
        COUNT(store, lease_stale_count, 1);
        return failure_set(KVT_E_INVAL, 0, "the lease is stale, or none");
    }
    lease->wait_event = event;
    lease->wait_job.device = device_number;
    lease->wait_job.is_firm = true;
    lease->wait_job.owns_event = true;
    lease->wait_job.finish = lease_waited;
    lease->message.deliver = lease_wait;
    /* It is not the caller's any more, who may close the store next: that waits for the stream. */
    atomic_fetch_add_explicit(&store->lease_waiting_count, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&store->lease_out_count, 1, memory_order_relaxed);
    loop_send(store, &lease->message);
    return KVT_OK;
}
