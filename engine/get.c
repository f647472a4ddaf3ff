/* SPDX-License-Identifier: Apache-2.0 */
/*
 * get.c - one block, or some of its parts, into the caller's memory: from which copy, and the
 * copies in HBM and HOST.
 *
 * Where a block comes from, the first that is possible:
 *
 *   HBM    memory of the same device, or host memory in a region: a copy of the device; memory of
 *          another device that reaches this one, and from which HOST is farther: a copy of that one
 *   HOST   other host memory: a worker; memory of a device: a copy of the device
 *   HBM    otherwise: the block is first copied down to HOST (move.c), then as above
 *   NVMe   host memory, or TRANSIENT: fetch.c; memory of a device: first read into HOST
 *          (get_bring()), then as above
 *
 * Threads   the loop; copies run on workers and devices.
 */
#include "get.h"

#include "copy_run.h"
#include "store_internal.h"

/* The work of one copy that a worker makes. Holds one pin of the entry. */
struct copy {
    struct job job;
    struct op *op;
    struct part_range range;
    uint8_t *memory; /* Of what is wanted. */
    uint32_t entry;
    uint8_t turn; /* patience.h */
};

/* The same of a device, into memory that is spread. */
struct spread_copy {
    struct device_job job;
    struct copy_member member;
};

bool
part_range_of(const struct op *op, const struct entry *entry, struct part_range *range_out)
{
    uint32_t parts = entry_parts(entry);
    uint32_t bytes = entry->length / parts;
    uint32_t first = op->part_first;
    uint32_t count = op->part_count == 0 ? parts : op->part_count;

    if (first >= parts || count > parts - first)
        return false;
    *range_out = (struct part_range){.first = first,
        .count = count,
        .offset = (uint64_t)first * bytes,
        .length = (uint64_t)count * bytes,
        .is_whole = count == parts};
    return true;
}

void
get_answer(struct kvt_store *store, struct op *op, const struct part_range *range, uint32_t tier)
{
    uint64_t latency_ns;

    if (op == NULL)
        return;
    latency_ns = ticket_age_ns(store, op->ticket);
    op->length = range->length;
    op->tier = tier;
    COUNT(store, get_part_count, !range->is_whole);
    if (tier == KVT_TIER_HBM) {
        COUNT(store, get_hbm_count, 1);
        COUNT(store, get_hbm_bytes, range->length);
        histogram_add(&store->latencies.get_hbm_ns, latency_ns);
    } else if (tier == KVT_TIER_HOST) {
        COUNT(store, get_host_count, 1);
        COUNT(store, get_host_bytes, range->length);
        histogram_add(&store->latencies.get_host_ns, latency_ns);
    } else {
        COUNT(store, get_nvme_count, 1);
        COUNT(store, get_nvme_bytes, range->length);
        histogram_add(&store->latencies.get_nvme_ns, latency_ns);
    }
    op_reach(store, op, 1, KVT_OK);
}

void
get_miss(struct kvt_store *store, struct op *op)
{
    if (op == NULL)
        return;
    COUNT(store, get_miss_count, 1);
    /* What is there all the same could not be read. */
    if (residency_find(store->map, op->fingerprint, &op->key) != ENTRY_NONE)
        COUNT(store, miss_damaged_count, 1);
    else
        fates_count(store, op->fingerprint);
    op->length = 0;
    op_reach(store, op, 1, KVT_MISS);
}

/* Its block was put anew: other parts of it are of a put that is not there any more, or it moved
 * each time. */
static void
replaced_miss(struct kvt_store *store, struct op *op)
{
    COUNT(store, get_miss_count, 1);
    COUNT(store, miss_deleted_count, 1);
    op->length = 0;
    op_reach(store, op, 1, KVT_MISS);
}

void
destination_store(const struct op *op, const struct part_range *range, uint8_t *bytes)
{
    struct spread spread;

    if (op->layout == NULL) {
        memcpy(op->destination, bytes, range->length);
        return;
    }
    spread = op_spread(op, range->offset, range->length, bytes);
    spread_scatter(&spread);
}

/* --- From HBM, and to a device ---------------------------------------------------------------- */

static void
move_start(struct kvt_store *store, const struct op *op, const struct part_range *range,
    uint8_t *bytes, enum device_lane lane, struct device_job *job)
{
    job->is_urgent = true;
    job->mark = ticket_part_mark(op, job->device);
    if (op->layout != NULL) {
        struct spread spread = op_spread(op, range->offset, range->length, bytes);

        device_job_spread(store, job, lane, &spread, false);
        return;
    }
    device_job_copy(store, job, lane,
        &(struct device_piece){.target = op->destination, .source = bytes, .size = range->length});
}

void
get_send(struct kvt_store *store, const struct op *op, const struct part_range *range,
    uint8_t *bytes, struct device_job *job)
{
    job->device = (uint32_t)op->memory_device;
    move_start(store, op, range, bytes, DEVICE_IN, job);
}

/* Whether `device` has the block in its own HBM, or reads it from another's. */
static bool
is_in_reach(const struct kvt_store *store, uint32_t number, unsigned tiers, uint32_t device)
{
    uint32_t owner = entry_device(residency_at(store->map, number));

    return (tiers & TIER_HBM) != 0 &&
           (owner == device || device_reads_peer(store, device, owner, (tiers & TIER_HOST) != 0));
}

static void
spread_finish(struct kvt_store *store, struct device_job *job)
{
    struct spread_copy *copy = CONTAINER_OF(job, struct spread_copy, job);
    const struct copy_member *member = &copy->member;

    copy_member_finish(store, member, &job->move);
    entry_unpin(store, member->entry);
    pool_put(&store->spread_pool, copy);
}

/* Into memory that is spread: a move of its own. The entry is pinned. */
static void
spread_by_device(struct kvt_store *store, const struct copy_member *member, uint8_t *bytes,
    uint32_t device, enum device_lane lane)
{
    struct spread_copy *copy = pool_take(&store->spread_pool);

    if (copy == NULL) {
        entry_unpin(store, member->entry);
        op_finish(store, member->op, KVT_E_NOMEM);
        return;
    }
    copy->member = *member;
    copy_member_begin(store, member);
    copy->job.device = device;
    copy->job.finish = spread_finish;
    move_start(store, member->op, &member->range, bytes, lane, &copy->job);
}

/* A copy of device `device` into the caller's memory. `tiers`: as get_device() saw them. A device
 * may be lost meanwhile, and another look would show none. */
static void
get_by_device(
    struct kvt_store *store, struct op *op, uint32_t number, unsigned tiers, uint32_t device)
{
    const struct entry *entry = residency_at(store->map, number);
    bool is_from_hbm = is_in_reach(store, number, tiers, device);
    bool is_from_peer = is_from_hbm && entry_device(entry) != device;
    enum device_lane lane = is_from_hbm && !is_from_peer ? DEVICE_OUT : DEVICE_IN;
    struct copy_member member = {
        .op = op, .entry = number, .tier = is_from_hbm ? KVT_TIER_HBM : KVT_TIER_HOST};
    uint8_t *bytes =
        is_from_hbm ? entry_hbm_address(store, entry) : entry_host_address(store, entry);

    COUNT(store, get_peer_count, is_from_peer);
    (void)part_range_of(op, entry, &member.range);
    bytes += member.range.offset;
    if (op->is_brought && !is_from_hbm)
        member.tier = KVT_TIER_NVME;
    ticket_part_begin(store, op, number);
    residency_pin(store->map, number);
    entry_touch(store, number);
    if (op->layout != NULL)
        spread_by_device(store, &member, bytes, device, lane);
    else
        copy_run_add(store, &member, bytes, device, lane);
}

/* --- From HOST -------------------------------------------------------------------------------- */

static void
copy_run(struct crew_job *crew_job)
{
    struct copy *copy = CONTAINER_OF(crew_job, struct copy, job.crew);

    destination_store(copy->op, &copy->range, copy->memory);
}

static void
copy_finish(struct kvt_store *store, struct job *job)
{
    struct copy *copy = CONTAINER_OF(job, struct copy, job);

    work_end(store, &store->copies_in_flight, copy->turn);
    host_load_end(store, copy->range.length);
    get_answer(store, copy->op, &copy->range, KVT_TIER_HOST);
    entry_unpin(store, copy->entry);
    pool_put(&store->copy_pool, copy);
}

static void
get_from_host(struct kvt_store *store, struct op *op, uint32_t number)
{
    const struct entry *entry = residency_at(store->map, number);
    struct copy *copy = pool_take(&store->copy_pool);

    if (copy == NULL) {
        op_finish(store, op, KVT_E_NOMEM);
        return;
    }
    ticket_part_begin(store, op, number);
    copy->op = op;
    copy->entry = number;
    (void)part_range_of(op, entry, &copy->range);
    copy->memory = entry_host_address(store, entry);
    copy->memory += copy->range.offset;
    residency_pin(store->map, number);
    entry_touch(store, number);
    copy->job.crew.run = copy_run;
    copy->job.finish = copy_finish;
    copy->job.crew.is_short = copy->range.length <= SHORT_JOB_BYTES;
    copy->turn = work_begin(store, &store->copies_in_flight);
    host_load_begin(store);
    loop_job(store, &copy->job);
}

/* --- To HOST first ---------------------------------------------------------------------------- */

void
get_lower(struct kvt_store *store, struct op *op, uint32_t number)
{
    enum kvt_status status = move_down(store, number, &op->patience);

    if (status == KVT_OK) {
        op->is_lowered = true;
        op_await(store, op, number);
    } else if (status == KVT_NOT_READY) {
        room_wait(store, POLICY_HOST, op);
    } else {
        /* NVMe may have the block, too. */
        op_note(store, op, number);
        op->is_lowered = true;
        op->moved_status = status;
        op_begin(store, op);
    }
}

/* The device that can copy the block straight into the caller's memory, or -1. */
static int
get_device(const struct kvt_store *store, const struct op *op, uint32_t number, unsigned tiers)
{
    if ((tiers & TIER_HBM) != 0 && op->memory_device == MEMORY_PINNED)
        return (int)entry_device(residency_at(store->map, number));
    if (op->memory_device < 0)
        return -1;
    return (tiers & TIER_HOST) != 0 ||
                   is_in_reach(store, number, tiers, (uint32_t)op->memory_device)
               ? op->memory_device
               : -1;
}

/* Of parts that come one by one, each has its own place; in a layout it has that anyway. */
static bool
length_fits(const struct op *op, uint64_t length)
{
    return op->ticket->is_by_part && op->layout == NULL ? op->length == length
                                                        : op->length >= length;
}

/* False: the operation was answered. */
static bool
get_fits(struct kvt_store *store, struct op *op, const struct entry *entry)
{
    struct part_range range = {0};

    if (op->layout != NULL && op->layout->block_bytes != entry->length)
        range.length = entry->length; /* Its bytes would come to wrong places. */
    else if (part_range_of(op, entry, &range) && length_fits(op, range.length))
        return true;
    op->length = range.length;
    op_reach(store, op, 1, KVT_E_INVAL);
    return false;
}

static void
get_from_nvme(struct kvt_store *store, struct op *op, uint32_t number)
{
    if (op->memory_device < 0 || op_is_transient(op))
        fetch_get(store, op, number);
    else
        get_bring(store, op, number);
}

void
get_begin(struct kvt_store *store, struct op *op)
{
    uint32_t number = residency_find_near(store->map, op->near, op->fingerprint, &op->key);
    struct entry *entry;
    struct flight *flight;
    unsigned tiers;
    int device;

    if (number == ENTRY_NONE) {
        get_miss(store, op);
        return;
    }
    if (ticket_part_is_strange(store, op, number)) {
        replaced_miss(store, op);
        return;
    }
    entry = residency_at(store->map, number);
    flight = entries_at(store->entries, number)->flight;
    if (flight != NULL && flight->state == FLIGHT_FILLING) {
        op_list_add(&flight->waiters, op);
        return;
    }
    if (!get_fits(store, op, entry))
        return;
    op_look(store, op, number);
    tiers = entry_tiers(store, number);
    device = get_device(store, op, number, tiers);
    if (device >= 0)
        get_by_device(store, op, number, tiers, (uint32_t)device);
    else if ((tiers & TIER_HOST) != 0)
        get_from_host(store, op, number);
    else if (op_is_outrun(op))
        replaced_miss(store, op);
    else if (flight != NULL && flight_is_coming(flight))
        op_await(store, op, number);
    else if ((tiers & TIER_HBM) != 0 && !op->is_lowered)
        get_lower(store, op, number);
    else if ((tiers & TIER_NVME) != 0 && !op->is_brought)
        get_from_nvme(store, op, number);
    else if (op_moved_status(op, KVT_MISS) == KVT_MISS)
        get_miss(store, op);
    else
        op_finish(store, op, op->moved_status);
}

void
copy_pool_open(struct kvt_store *store)
{
    pool_init(&store->copy_pool, &store->env, sizeof(struct copy), WORK_KEEP_MAX);
    pool_init(&store->spread_pool, &store->env, sizeof(struct spread_copy), WORK_KEEP_MAX);
}
