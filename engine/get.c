/* SPDX-License-Identifier: Apache-2.0 */
/*
 * get.c - one block into the caller's memory: from its HBM or HOST slot, or read from NVMe,
 * verified.
 *
 * Where a block comes from, the first that is possible:
 *
 *   HBM    memory of the same device, or host memory in a region: a copy of the device
 *   HOST   other host memory: a worker; memory of a device: a copy of the device
 *   HBM    otherwise: the block is first copied down to HOST (move.c), then as above
 *   NVMe   host memory: read, verified, copied; memory of a device: first read into HOST
 *          (get_bring()), then as above
 *
 * A block that is read into a slot becomes a HOST copy, unless the get was TRANSIENT. A second get
 * of a block that is being read waits for the first.
 *
 * Threads   the loop; copies run on workers and devices, checksums on workers.
 */
#include "store_internal.h"

/* The work of one get. Holds one pin of the entry. */
struct fetch {
    struct batch_owner owner;
    struct job job;
    struct device_job device_job;
    struct op *op; /* NULL: get_bring(), nobody is answered. */
    uint32_t entry;
    struct flight *flight; /* A read into a slot; NULL: straight into the destination, or a copy. */
    struct slot slot;
    struct hash128 checksum;
    uint64_t length;
    const void *memory; /* Where the bytes are. */
    bool is_right;      /* The checksum agreed. */
    bool is_bulk;       /* Reads of others go first. */
    bool is_transient;  /* The get's flag: the ticket may be gone when the read is settled. */
    uint32_t tier;      /* By a device: where it comes from. */
    struct tier_batch tier_batch;
    struct tier_block block;
};

/* `op` is answered when there is no memory. */
static struct fetch *
fetch_create(struct kvt_store *store, struct op *op, uint32_t number)
{
    struct entry *entry = residency_at(store->map, number);
    struct fetch *fetch = pool_take(&store->fetch_pool);

    if (fetch == NULL) {
        op_finish(store, op, KVT_E_NOMEM);
        return NULL;
    }
    fetch->op = op;
    fetch->is_transient = op->ticket->kind == TICKET_GET && (op->flags & KVT_GET_TRANSIENT) != 0;
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
    pool_put(&store->fetch_pool, fetch);
}

static void
get_answer(struct kvt_store *store, struct fetch *fetch, uint32_t tier)
{
    struct op *op = fetch->op;
    uint64_t latency_ns;

    if (op == NULL)
        return;
    latency_ns = store->now_ns - op->ticket->submit_ns;
    op->length = fetch->length;
    op->tier = tier;
    if (tier == KVT_TIER_HBM) {
        COUNT(store, get_hbm_count, 1);
        COUNT(store, get_hbm_bytes, fetch->length);
        histogram_add(&store->latencies.get_hbm_ns, latency_ns);
    } else if (tier == KVT_TIER_HOST) {
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
    if (op == NULL)
        return;
    COUNT(store, get_miss_count, 1);
    op->length = 0;
    op_reach(store, op, 1, KVT_MISS);
}

/* --- From HBM, and to a device ---------------------------------------------------------------- */

static void
device_copy_finish(struct kvt_store *store, struct device_job *job)
{
    struct fetch *fetch = CONTAINER_OF(job, struct fetch, device_job);

    if (job->move.status == KVT_OK)
        get_answer(store, fetch, fetch->tier);
    else
        op_finish(store, fetch->op, job->move.status);
    fetch_destroy(store, fetch);
}

/* A copy of device `device` into the caller's memory. */
static void
get_by_device(struct kvt_store *store, struct op *op, uint32_t number, uint32_t device)
{
    const struct entry *entry = residency_at(store->map, number);
    bool is_from_hbm =
        (entry_tiers(store, number) & TIER_HBM) != 0 && entry_device(entry) == device;
    struct fetch *fetch = fetch_create(store, op, number);

    if (fetch == NULL)
        return;
    entry_touch(store, number);
    fetch->tier = is_from_hbm ? KVT_TIER_HBM : KVT_TIER_HOST;
    /* get_bring() was for this get; get_lower() leaves the copy in HBM. */
    if (op->is_brought && (entry_tiers(store, number) & TIER_HBM) == 0)
        fetch->tier = KVT_TIER_NVME;
    fetch->device_job.device = device;
    fetch->device_job.finish = device_copy_finish;
    device_job_copy(store, &fetch->device_job, is_from_hbm ? DEVICE_OUT : DEVICE_IN,
        &(struct device_piece){.target = op->destination,
            .source =
                is_from_hbm ? entry_hbm_address(store, entry) : entry_host_address(store, entry),
            .size = fetch->length});
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
    store->host_meter.bytes += fetch->length;
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
    fetch->memory = entry_host_address(store, residency_at(store->map, number));
    fetch->job.crew.run = copy_run;
    fetch->job.finish = copy_finish;
    fetch->job.crew.is_short = fetch->length <= SHORT_JOB_BYTES;
    store->copies_in_flight++;
    loop_job(store, &fetch->job);
}

/* --- From NVMe -------------------------------------------------------------------------------- */

static void
verify_run(struct crew_job *crew_job)
{
    struct fetch *fetch = CONTAINER_OF(crew_job, struct fetch, job.crew);

    fetch->is_right = hash128_equal(hash_payload(fetch->memory, fetch->length), fetch->checksum);
    if (fetch->is_right && fetch->op != NULL && fetch->memory != fetch->op->destination)
        memcpy(fetch->op->destination, fetch->memory, fetch->length);
}

/* The read into the slot is over: the slot becomes the HOST copy or is given back. */
static void
slot_settle(struct kvt_store *store, struct fetch *fetch)
{
    struct entry *entry = residency_at(store->map, fetch->entry);
    struct flight *flight = fetch->flight;
    struct op_list waiters;
    bool is_kept =
        fetch->is_right && !fetch->is_transient &&
        word_state(atomic_load_explicit(&entry->word, memory_order_relaxed)) == ENTRY_RESIDENT;

    waiters = flight->waiters;
    flight->waiters = (struct op_list){NULL, NULL};
    flight_destroy(store, flight);
    if (is_kept) {
        entry_copy_add(store, fetch->entry, POLICY_HOST, fetch->slot, KVT_REASON_RAISED);
    } else {
        entry_unprepare(store, fetch->entry);
        room_put(store, POLICY_HOST, fetch->slot);
    }
    ops_restart(store, &waiters);
}

static void
get_verified(struct kvt_store *store, struct job *job)
{
    struct fetch *fetch = CONTAINER_OF(job, struct fetch, job);

    store->reads_in_flight--;
    store->nvme_meter.bytes += fetch->length;
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
        fetch->job.crew.is_short = fetch->length <= SHORT_JOB_BYTES;
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
        .urgent = !fetch->is_bulk,
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
    return op->ticket->kind == TICKET_GET && (op->flags & KVT_GET_TRANSIENT) != 0 &&
           ((uintptr_t)op->destination & (PAGE_BYTES - 1)) == 0 &&
           op->length >= round_up(length, PAGE_BYTES);
}

/* A fetch into a slot, with a flight; NULL: `op` was answered, or waits for room. */
static struct fetch *
fetch_into_slot(struct kvt_store *store, struct op *op, uint32_t number)
{
    const struct entry *entry = residency_at(store->map, number);
    struct fetch *fetch = fetch_create(store, op, number); /* Its pin keeps the entry. */
    enum kvt_status status;

    if (fetch == NULL)
        return NULL;
    status = entry_prepare(store, number);
    if (status == KVT_OK) {
        status = room_take(store,
            &(struct room_want){.place = POLICY_HOST,
                .namespace_id = op->key.namespace_id,
                .size = round_up(entry->stored_length, PAGE_BYTES)},
            &fetch->slot);
        if (status == KVT_OK) {
            fetch->flight = flight_create(store, number, FLIGHT_READING);
            if (fetch->flight != NULL) {
                fetch->memory = slab_address(store->slab, fetch->slot);
                return fetch;
            }
            room_put(store, POLICY_HOST, fetch->slot);
            status = KVT_E_NOMEM;
        }
        entry_unprepare(store, number);
    }
    fetch_destroy(store, fetch);
    if (status == KVT_NOT_READY)
        room_wait(store, POLICY_HOST, op);
    else
        op_finish(store, op, status);
    return NULL;
}

static void
get_from_nvme(struct kvt_store *store, struct op *op, uint32_t number)
{
    struct fetch *fetch;

    if (get_is_direct(op, residency_at(store->map, number)->stored_length)) {
        fetch = fetch_create(store, op, number);
        if (fetch != NULL)
            fetch->memory = op->destination;
    } else {
        fetch = fetch_into_slot(store, op, number);
    }
    if (fetch != NULL)
        fetch_read(store, fetch);
}

/* --- To HOST first ---------------------------------------------------------------------------- */

void
get_bring(struct kvt_store *store, struct op *op, uint32_t number)
{
    struct fetch *fetch = fetch_into_slot(store, op, number);

    if (fetch == NULL)
        return;
    fetch->op = NULL;
    fetch->is_transient = false;
    fetch->is_bulk = op->ticket->is_bulk;
    op->is_brought = true;
    op_list_add(&fetch->flight->waiters, op);
    fetch_read(store, fetch);
}

void
get_lower(struct kvt_store *store, struct op *op, uint32_t number)
{
    enum kvt_status status = move_down(store, number);

    if (status == KVT_OK) {
        op->is_brought = true;
        op_list_add(&entries_at(store->entries, number)->flight->waiters, op);
    } else if (status == KVT_NOT_READY) {
        room_wait(store, POLICY_HOST, op);
    } else {
        op_finish(store, op, status);
    }
}

/* The device that can copy the block straight into the caller's memory, or -1. */
static int
get_device(const struct kvt_store *store, const struct op *op, uint32_t number, unsigned tiers)
{
    uint32_t device = entry_device(residency_at(store->map, number));

    if ((tiers & TIER_HBM) != 0 &&
        (op->memory_device == (int)device || op->memory_device == MEMORY_PINNED))
        return (int)device;
    return (tiers & TIER_HOST) != 0 && op->memory_device >= 0 ? op->memory_device : -1;
}

void
get_begin(struct kvt_store *store, struct op *op)
{
    uint32_t number = residency_find(store->map, op->fingerprint, &op->key);
    struct entry *entry;
    struct flight *flight;
    unsigned tiers;
    int device;

    if (number == ENTRY_NONE) {
        get_miss(store, op);
        return;
    }
    entry = residency_at(store->map, number);
    flight = entries_at(store->entries, number)->flight;
    if (flight != NULL && flight->state == FLIGHT_FILLING) {
        op_list_add(&flight->waiters, op);
        return;
    }
    if (op->length < entry->length) {
        op->length = entry->length;
        op_finish(store, op, KVT_E_INVAL);
        return;
    }
    tiers = entry_tiers(store, number);
    device = get_device(store, op, number, tiers);
    if (device >= 0)
        get_by_device(store, op, number, (uint32_t)device);
    else if ((tiers & TIER_HOST) != 0)
        get_from_host(store, op, number);
    else if (flight != NULL && flight_is_coming(flight))
        op_list_add(&flight->waiters, op);
    else if ((tiers & TIER_HBM) != 0 && !op->is_brought)
        get_lower(store, op, number);
    else if ((tiers & TIER_NVME) != 0 && op->memory_device < 0)
        get_from_nvme(store, op, number);
    else if ((tiers & TIER_NVME) != 0 && !op->is_brought)
        get_bring(store, op, number);
    else
        get_miss(store, op);
}

void
fetch_pool_open(struct kvt_store *store)
{
    pool_init(&store->fetch_pool, &store->env, sizeof(struct fetch), WORK_KEEP_MAX);
}
