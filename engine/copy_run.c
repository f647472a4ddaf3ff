/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_run.c - see copy_run.h.
 */
#include "copy_run.h"

#include "store_internal.h"

enum {
    RUNS_KEPT = 256,
    MEMBERS_AHEAD = 8, /* Whose entries are on their way to the processor. */
};

struct copy_run {
    struct device_job device_job;
    enum device_lane lane;
    uint32_t count;
    uint64_t bytes;
    struct copy_member members[COPY_RUN_BLOCKS];
    struct device_piece pieces[COPY_RUN_BLOCKS];
};

void
copy_member_begin(struct kvt_store *store, const struct copy_member *member)
{
    if (member->tier != KVT_TIER_HBM)
        host_load_begin(store);
}

/* Where the device that has the bytes is lost, another one may have read anything. */
static enum kvt_status
member_status(
    const struct kvt_store *store, const struct copy_member *member, enum kvt_status status)
{
    const struct entry *entry = residency_at(store->map, member->entry);

    if (status == KVT_OK && member->tier == KVT_TIER_HBM &&
        device_is_lost(store, entry_device(entry)))
        return KVT_E_GPU;
    return status;
}

void
copy_member_finish(
    struct kvt_store *store, const struct copy_member *member, const struct device_move *move)
{
    enum kvt_status status = member_status(store, member, move->status);
    bool is_copied = status == KVT_OK;

    if (member->tier != KVT_TIER_HBM)
        host_load_end(store, is_copied ? member->range.length : 0);
    member->op->is_queued = move->is_marked;
    if (is_copied)
        get_answer(store, member->op, &member->range, member->tier);
    else
        op_finish(store, member->op, status);
}

static void
run_finish(struct kvt_store *store, struct device_job *job)
{
    struct copy_run *run = CONTAINER_OF(job, struct copy_run, device_job);

    for (uint32_t i = 0; i < run->count; i++) {
        const struct copy_member *member = &run->members[i];
        uint32_t entry = member->entry;

        if (i + MEMBERS_AHEAD < run->count)
            __builtin_prefetch(residency_at(store->map, member[MEMBERS_AHEAD].entry), 1);
        copy_member_finish(store, member, &job->move);
        entry_unpin(store, entry);
    }
    pool_put(&store->run_pool, run);
}

void
copy_run_send(struct kvt_store *store)
{
    struct copy_run *run = store->copy_run;

    store->copy_run = NULL;
    if (run != NULL)
        device_job_pieces(store, &run->device_job, run->lane, run->pieces, run->count);
}

static bool
run_takes(const struct copy_run *run, const struct copy_member *member, uint32_t device,
    enum device_lane lane)
{
    return run != NULL && run->device_job.device == device && run->lane == lane &&
           run->device_job.mark == ticket_part_mark(member->op, device) &&
           run->count < COPY_RUN_BLOCKS && run->bytes + member->range.length <= COPY_RUN_BYTES;
}

/* A new one, empty: of what is large, only what is added is written. NULL: no memory. */
static struct copy_run *
run_create(struct kvt_store *store, const struct op *op, uint32_t device, enum device_lane lane)
{
    struct copy_run *run = pool_take_as_is(&store->run_pool);

    if (run == NULL)
        return NULL;
    run->lane = lane;
    run->count = 0;
    run->bytes = 0;
    run->device_job = (struct device_job){.device = device,
        .is_urgent = true,
        .mark = ticket_part_mark(op, device),
        .finish = run_finish};
    return run;
}

void
copy_run_add(struct kvt_store *store, const struct copy_member *member, uint8_t *bytes,
    uint32_t device, enum device_lane lane)
{
    struct copy_run *run = store->copy_run;

    if (!run_takes(run, member, device, lane)) {
        copy_run_send(store);
        run = store->copy_run = run_create(store, member->op, device, lane);
    }
    if (run == NULL) {
        entry_unpin(store, member->entry);
        op_finish(store, member->op, KVT_E_NOMEM);
        return;
    }
    copy_member_begin(store, member);
    run->members[run->count] = *member;
    run->pieces[run->count] = (struct device_piece){
        .target = member->op->destination, .source = bytes, .size = member->range.length};
    run->bytes += member->range.length;
    run->count++;
}

void
copy_run_pool_open(struct kvt_store *store)
{
    pool_init(&store->run_pool, &store->env, sizeof(struct copy_run), RUNS_KEPT);
}
