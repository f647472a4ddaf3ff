/* SPDX-License-Identifier: Apache-2.0 */
/*
 * get.c - one block into the caller's memory: from its HOST slot, or read from NVMe, verified.
 *
 * A block that is read into a slot becomes a HOST copy, unless the get was TRANSIENT. A second get
 * of a block that is being read waits for the first.
 *
 * Threads   the loop; copies and checksums run on workers.
 */
#include "store_internal.h"

/* The work of one get. Holds one pin of the entry. */
struct fetch {
    struct batch_owner owner;
    struct job job;
    struct op *op;
    uint32_t entry;
    struct flight *flight; /* A read into a slot; NULL: straight into the destination, or a copy. */
    struct slot slot;
    struct hash128 checksum;
    uint64_t length;
    const void *memory; /* Where the bytes are. */
    bool is_right;      /* The checksum agreed. */
    bool is_transient;  /* The get's flag: the ticket may be gone when the read is settled. */
    struct tier_batch tier_batch;
    struct tier_block block;
};

static struct fetch *
fetch_create(struct kvt_store *store, struct op *op, uint32_t number)
{
    struct entry *entry = residency_at(store->map, number);
    struct fetch *fetch = env_take(&store->env, sizeof(*fetch));

    if (fetch == NULL) {
        op_finish(store, op, KVT_E_NOMEM);
        return NULL;
    }
    fetch->op = op;
    fetch->is_transient = (op->flags & KVT_GET_TRANSIENT) != 0;
    fetch->entry = number;
    fetch->checksum = entry->checksum;
    fetch->length = entry->length;
    residency_pin(store->map, number);
    return fetch;
}

static void
fetch_destroy(struct kvt_store *store, struct fetch *fetch)
{
    entry_unpin(store, fetch->entry);
    env_put(&store->env, fetch, sizeof(*fetch));
}

static void
get_answer(struct kvt_store *store, struct fetch *fetch, uint32_t tier)
{
    struct op *op = fetch->op;
    uint64_t latency_ns = store->now_ns - op->ticket->submit_ns;

    op->length = fetch->length;
    op->tier = tier;
    if (tier == KVT_TIER_HOST) {
        COUNT(store, get_host_count, 1);
        COUNT(store, get_host_bytes, fetch->length);
        histogram_add(&store->latencies.get_host_ns, latency_ns);
    } else {
        COUNT(store, get_nvme_count, 1);
        COUNT(store, get_nvme_bytes, fetch->length);
        histogram_add(&store->latencies.get_nvme_ns, latency_ns);
    }
    op_reach(store, op, 1, KVT_OK);
}

static void
get_miss(struct kvt_store *store, struct op *op)
{
    COUNT(store, get_miss_count, 1);
    op->length = 0;
    op_reach(store, op, 1, KVT_MISS);
}

/* --- From HOST -------------------------------------------------------------------------------- */

static void
copy_run(struct crew_job *crew_job)
{
    struct fetch *fetch = CONTAINER_OF(crew_job, struct fetch, job.crew);

    memcpy(fetch->op->destination, fetch->memory, fetch->length);
}

static void
copy_finish(struct kvt_store *store, struct job *job)
{
    struct fetch *fetch = CONTAINER_OF(job, struct fetch, job);

    store->copies_in_flight--;
    get_answer(store, fetch, KVT_TIER_HOST);
    fetch_destroy(store, fetch);
}

static void
get_from_host(struct kvt_store *store, struct op *op, uint32_t number)
{
    struct fetch *fetch = fetch_create(store, op, number);

    if (fetch == NULL)
        return;
    entry_touch(store, number);
    fetch->memory = slab_address(store->slab, entry_slot(residency_at(store->map, number)));
    fetch->job.crew.run = copy_run;
    fetch->job.finish = copy_finish;
    store->copies_in_flight++;
    loop_job(store, &fetch->job);
}

/* --- From NVMe -------------------------------------------------------------------------------- */

static void
verify_run(struct crew_job *crew_job)
{
    struct fetch *fetch = CONTAINER_OF(crew_job, struct fetch, job.crew);

    fetch->is_right = hash128_equal(hash_payload(fetch->memory, fetch->length), fetch->checksum);
    if (fetch->is_right && fetch->memory != fetch->op->destination)
        memcpy(fetch->op->destination, fetch->memory, fetch->length);
}

/* The read into the slot is over: the slot becomes the HOST copy or is given back. */
static void
slot_settle(struct kvt_store *store, struct fetch *fetch)
{
    struct entry *entry = residency_at(store->map, fetch->entry);
    struct flight *flight = fetch->flight;
    struct op_list waiters;
    struct op *op;
    bool is_kept =
        fetch->is_right && !fetch->is_transient &&
        word_state(atomic_load_explicit(&entry->word, memory_order_relaxed)) == ENTRY_RESIDENT;

    waiters = flight->waiters;
    flight->waiters = (struct op_list){NULL, NULL};
    flight_destroy(store, flight);
    if (is_kept) {
        entry->host_slot = fetch->slot.number;
        entry->host_generation = fetch->slot.generation;
        residency_tier_set(store->map, fetch->entry, TIER_HOST);
        entry_host_add(store, fetch->entry);
    } else {
        store->policy->ops->unprepare(store->policy, fetch->entry);
        room_put(store, fetch->slot);
    }
    while ((op = op_list_take(&waiters)) != NULL)
        op_begin(store, op);
}

static void
get_verified(struct kvt_store *store, struct job *job)
{
    struct fetch *fetch = CONTAINER_OF(job, struct fetch, job);

    store->reads_in_flight--;
    if (fetch->is_right) {
        get_answer(store, fetch, KVT_TIER_NVME);
    } else {
        /* Before the answer: whoever has it finds the block no more, and the damage counted. */
        entry_quarantine(store, fetch->entry);
        get_miss(store, fetch->op);
    }
    if (fetch->flight != NULL)
        slot_settle(store, fetch);
    fetch_destroy(store, fetch);
}

static void
get_read(struct kvt_store *store, struct tier_batch *batch)
{
    struct fetch *fetch = CONTAINER_OF(batch->user, struct fetch, owner);

    if (fetch->block.status == KVT_OK) {
        fetch->job.crew.run = verify_run;
        fetch->job.finish = get_verified;
        loop_job(store, &fetch->job);
        return;
    }
    store->reads_in_flight--;
    if (fetch->block.status != KVT_MISS)
        COUNT(store, read_failed_count, 1);
    get_miss(store, fetch->op);
    if (fetch->flight != NULL)
        slot_settle(store, fetch);
    fetch_destroy(store, fetch);
}

static void
fetch_read(struct kvt_store *store, struct fetch *fetch)
{
    const struct entry *entry = residency_at(store->map, fetch->entry);
    struct tier *tier = nvme_as_tier(store->nvme);
    enum kvt_status status;

    fetch->block.record.extent =
        (struct extent){entry->segment, entry->extent_generation, entry->page};
    fetch->block.record.stored_length = entry->stored_length;
    fetch->block.memory = (void *)(uintptr_t)fetch->memory;
    fetch->owner.finish = get_read;
    fetch->tier_batch = (struct tier_batch){.blocks = &fetch->block,
        .block_count = 1,
        .urgent = 1,
        .done = &store->batches_done,
        .done_task = &store->loop_task,
        .user = &fetch->owner};
    store->reads_in_flight++;
    status = tier->ops->get(tier, &fetch->tier_batch);
    if (status != KVT_OK) {
        fetch->block.status = status;
        get_read(store, &fetch->tier_batch);
    }
}

/* Whether the read may go straight into the caller's memory. */
static bool
get_is_direct(const struct op *op, uint32_t length)
{
    return (op->flags & KVT_GET_TRANSIENT) != 0 &&
           ((uintptr_t)op->destination & (PAGE_BYTES - 1)) == 0 &&
           op->length >= round_up(length, PAGE_BYTES);
}

static void
get_from_nvme(struct kvt_store *store, struct op *op, uint32_t number)
{
    struct entry *entry = residency_at(store->map, number);
    struct fetch *fetch;
    struct slot slot;
    enum kvt_status status;

    if (get_is_direct(op, entry->stored_length)) {
        fetch = fetch_create(store, op, number);
        if (fetch == NULL)
            return;
        fetch->memory = op->destination;
        fetch_read(store, fetch);
        return;
    }
    /* The pin keeps the entry while room is made. */
    residency_pin(store->map, number);
    status = room_take(store, round_up(entry->stored_length, PAGE_BYTES), &slot);
    entry_unpin(store, number);
    if (status == KVT_NOT_READY) {
        room_wait(store, op);
        return;
    }
    if (status != KVT_OK) {
        op_finish(store, op, status);
        return;
    }
    fetch = fetch_create(store, op, number);
    if (fetch == NULL) {
        room_put(store, slot);
        return;
    }
    status = store->policy->ops->prepare(store->policy, number);
    if (status == KVT_OK) {
        fetch->flight = flight_create(store, number, FLIGHT_READING);
        if (fetch->flight == NULL) {
            store->policy->ops->unprepare(store->policy, number);
            status = KVT_E_NOMEM;
        }
    }
    if (status != KVT_OK) {
        room_put(store, slot);
        op_finish(store, op, status);
        fetch_destroy(store, fetch);
        return;
    }
    fetch->slot = slot;
    fetch->memory = slab_address(store->slab, slot);
    fetch_read(store, fetch);
}

void
get_begin(struct kvt_store *store, struct op *op)
{
    uint32_t number = residency_find(store->map, op->fingerprint, &op->key);
    struct entry *entry;
    struct flight *flight;
    uint64_t word;

    if (number == ENTRY_NONE) {
        get_miss(store, op);
        return;
    }
    entry = residency_at(store->map, number);
    flight = entries_at(store->entries, number)->flight;
    if (flight != NULL && (flight->state == FLIGHT_FILLING || flight->state == FLIGHT_READING)) {
        op_list_add(&flight->waiters, op);
        return;
    }
    if (op->length < entry->length) {
        op->length = entry->length;
        op_finish(store, op, KVT_E_INVAL);
        return;
    }
    word = atomic_load_explicit(&entry->word, memory_order_relaxed);
    if ((word_tiers(word) & TIER_HOST) != 0)
        get_from_host(store, op, number);
    else
        get_from_nvme(store, op, number);
}
