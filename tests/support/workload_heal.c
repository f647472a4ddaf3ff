/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload_heal.c - what a store owes when its disks are well again in mid-life.
 *
 * A disk that failed costs what it could not write. What was durable before, or is told to be
 * since, is there, though it may have been unreadable meanwhile; and writes go on. Where one of two
 * disks takes none any more, what may not leave the other can be more than half of it: then there
 * may be no room (kvtier/hints.h).
 */
#include "workload_internal.h"

/* What failed until now is no news any more. False: no answer.
 * What a reclaim could not read twice is given up (engine/reclaim.h): a block, also one that
 * kvt_pin() was to keep, or what a header had killed. */
static bool
failures_note(struct workload *work)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};

    if (kvt_stats_get(work->store, &stats) != KVT_OK)
        return false;
    for (uint32_t i = 0; i < MODEL_SPACES && stats.read_failed_count > 0; i++)
        pin_forget_all(work, i);
    work->headers_may_lie = work->headers_may_lie || stats.kill_lost_count > 0;
    work->calmed_count = (uint32_t)(stats.corrupt_count + stats.read_failed_count +
                                    stats.batch_failed_count + stats.commit_failed_count);
    return true;
}

/* The store takes writes in this life. */
static bool
takes_writes(struct workload *work)
{
    uint32_t flags = 0;

    return kvt_health(work->store, &flags) == KVT_OK &&
           (flags & (KVT_HEALTH_META_READONLY | KVT_HEALTH_ROOT_READONLY)) == 0;
}

void
workload_heal(struct workload *work, bool has_lost_root)
{
    bool takes = takes_writes(work);
    bool is_whole = takes && !has_lost_root;
    enum kvt_status status;

    /* What failed is told by the first, if none has told it; the second has no reason left. */
    workload_flush(work);
    status = kvt_flush(work->store);
    workload_note(work, 44, (uint64_t)status);
    if (takes && status != KVT_OK)
        model_fail(
            &work->model, "kvt_flush, with all disks well again: %s", kvt_status_name(status));
    if (status == KVT_OK)
        model_ack_all(&work->model);
    if (!failures_note(work) || work->model.failure[0] != '\0')
        return;
    if (!work->keeps)
        model_doubt_volatile(&work->model);
    fate_heal(work);
    work->is_faulty = work->keeps = false;
    workload_verify(work);
    work->is_faulty = !is_whole;
    workload_audit(work, false);
    work->heal_count += is_whole;
}
