/* SPDX-License-Identifier: Apache-2.0 */
/*
 * room.c - HOST slots: taking one, evicting for it, and who waits.
 *
 * Order of answers when a slot is wanted: a free one; the slot of a copy that NVMe has too; a block
 * that is only in HOST is written to NVMe first (the caller waits) or, when too much waits for NVMe
 * already, there is no NVMe to write to, or the policy does not admit it there, dropped. What was
 * promised durability is never dropped.
 *
 * Threads   the loop.
 */
#include "store_internal.h"

enum {
    VICTIMS_LOOKED_AT = 4096,
    DEMOTE_BYTES = 8 << 20, /* Started at once when room is wanted. */
};

enum victim_action {
    VICTIM_RELEASED,  /* A slot came free. */
    VICTIM_DEMOTING,  /* It is on its way to NVMe. */
    VICTIM_UNTOUCHED, /* Pinned, or waiting for something already. */
};

static bool
nvme_takes_writes(const struct kvt_store *store)
{
    uint32_t health = atomic_load_explicit(&store->health, memory_order_relaxed);

    return store->nvme != NULL && (health & (KVT_HEALTH_META_READONLY | KVT_HEALTH_READ_ONLY)) == 0;
}

static uint32_t
host_victim(struct kvt_store *store, uint32_t cursor)
{
    return store->policy->ops->victim(store->policy, POLICY_HOST, cursor);
}

static enum victim_action
victim_evict(struct kvt_store *store, uint32_t number)
{
    struct entry *entry = residency_at(store->map, number);
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);
    struct entry_state *state = entries_at(store->entries, number);

    if (word_pins(word) != 0 || state->flight != NULL)
        return VICTIM_UNTOUCHED;
    if ((word_tiers(word) & TIER_NVME) != 0) {
        if (!entry_host_release(store, number))
            return VICTIM_UNTOUCHED;
        COUNT(store, host_evict_count, 1);
        return VICTIM_RELEASED;
    }
    if (nvme_takes_writes(store) && store->dirty_bytes < store->options.dirty_bytes_max &&
        store->policy->ops->admits(store->policy, number)) {
        struct flight *flight = flight_create(store, number, FLIGHT_QUEUED);

        if (flight != NULL) {
            flight->is_demotion = true;
            commit_queue(store, flight, store->now_ns);
            COUNT(store, host_demote_count, 1);
            return VICTIM_DEMOTING;
        }
    }
    if (!entry_drop(store, number, false))
        return VICTIM_UNTOUCHED;
    COUNT(store, host_drop_count, 1);
    return VICTIM_RELEASED;
}

/* Evict what the policy shows until a slot of the size can be taken. Returns true when it was. */
static bool
room_evict(struct kvt_store *store, uint64_t size, struct slot *slot_out)
{
    uint32_t victim = host_victim(store, ENTRY_NONE);
    uint64_t demoting_bytes = 0;

    for (uint32_t i = 0; i < VICTIMS_LOOKED_AT && victim != ENTRY_NONE; i++) {
        uint32_t next = host_victim(store, victim);
        uint32_t length = residency_at(store->map, victim)->length;
        enum victim_action action = victim_evict(store, victim);

        if (action == VICTIM_RELEASED && slab_take(store->slab, size, slot_out) == KVT_OK)
            return true;
        if (action == VICTIM_DEMOTING)
            demoting_bytes += length;
        if (demoting_bytes >= DEMOTE_BYTES)
            return false;
        /* A parent whose last child went has become a leaf: it may lie behind us. */
        victim = action == VICTIM_RELEASED ? host_victim(store, ENTRY_NONE) : next;
    }
    return false;
}

enum kvt_status
room_take(struct kvt_store *store, uint64_t size, struct slot *slot_out)
{
    enum kvt_status status = slab_take(store->slab, size, slot_out);

    if (status != KVT_E_NOSPC)
        return status;
    if (room_evict(store, size, slot_out))
        return KVT_OK;
    if (!commit_is_idle(store)) {
        commit_hurry_all(store);
        return KVT_NOT_READY;
    }
    if (store->fills_in_flight + store->reads_in_flight + store->copies_in_flight > 0)
        return KVT_NOT_READY;
    return failure_set(KVT_E_NOSPC, 0,
        "every slot of HOST is leased or in use; %llu bytes were wanted", (unsigned long long)size);
}

void
room_put(struct kvt_store *store, struct slot slot)
{
    bool was_taken = slab_put(store->slab, slot);

    KVT_ASSERT(was_taken);
    (void)was_taken;
    store->room_changed = true;
}

void
room_wait(struct kvt_store *store, struct op *op)
{
    op_list_add(&store->room_waiters, op);
}

/* Keep a share free, so that puts seldom wait. */
static void
room_trim(struct kvt_store *store)
{
    uint64_t capacity = slab_capacity(store->slab);
    uint64_t high = capacity / 100 * store->options.host_high_percent;
    uint64_t low = capacity / 100 * store->options.host_low_percent;
    uint32_t victim = ENTRY_NONE;

    if (slab_used(store->slab) + store->dirty_bytes / 2 <= high)
        return;
    victim = host_victim(store, ENTRY_NONE);
    for (uint32_t i = 0; i < 64 && victim != ENTRY_NONE && slab_used(store->slab) > low; i++) {
        uint32_t next = host_victim(store, victim);

        (void)victim_evict(store, victim);
        victim = next;
        if (victim != ENTRY_NONE && !entries_has_copy(store->entries, POLICY_HOST, victim))
            break;
    }
}

bool
room_step(struct kvt_store *store)
{
    struct op_list waiters = store->room_waiters;
    struct op *op;

    if (!store->room_changed)
        return false;
    store->room_changed = false;
    /* A reclaim that found too much pinned may find less of it now. */
    if (reclaim_is_idle(store))
        commit_unstall(store);
    store->room_waiters = (struct op_list){NULL, NULL};
    while ((op = op_list_take(&waiters)) != NULL) {
        op_begin(store, op);
        if (store->room_waiters.first == NULL)
            continue;
        /* The oldest still has no room: the others keep their places behind it. */
        while ((op = op_list_take(&waiters)) != NULL)
            room_wait(store, op);
    }
    if (store->room_waiters.first == NULL)
        room_trim(store);
    return true;
}
