/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commit_group.c - batches that were written become one transaction of the index.
 *
 * Owns      the transactions of batches that are out, the list of the batches that wait for the
 * next.
 * Threads   the loop; group_run() the committer.
 *
 * The transaction is put together when it is handed over, not when a batch was written: what others
 * (relocate.c, reclaim.c) hand over in between is then in the index before it, and the facts of
 * segments agree with the records in every state that a crash can leave.
 */
#include "commit.h"
#include "commit_internal.h"
#include "reclaim.h"

static void group_committed(struct kvt_store *store, struct commit_job *job);

/* --- Putting it together ---------------------------------------------------------------------- */

static enum kvt_status
group_run(struct kvt_store *store, struct commit_job *job)
{
    struct commit_group *group = CONTAINER_OF(job, struct commit_group, job);

    if (group->change != NULL) /* A segment is recycled. */
        KVT_TRY(index_finish(store));
    return index_commit_job(store, &group->index_batch);
}

/* A void entry is durable with this transaction: nothing else keeps its segment ACTIVE in the index
 * then. */
static void
void_take(struct kvt_store *store, struct index_work *work, const struct extent *header)
{
    struct segment *segment = segment_at(store->segments, header->segment);

    if (segment->generation != header->generation || segment->state == SEGMENT_RECYCLING)
        return;
    KVT_ASSERT(segment->void_count > 0);
    segment->void_count--;
    index_work_touch(work, segment->number);
}

/* Blocks that were killed meanwhile, too, until their own kills are durable: what a header that
 * counts has, and neither the index nor a kill knows, no delete behind a crash would find. */
static void
group_take(struct kvt_store *store, struct commit_group *group, struct batch *batch)
{
    struct index_work *work = &group->work;

    KVT_ASSERT(batch->state == BATCH_WRITTEN);
    commit_touch(store, work, &batch->tier_batch);
    for (uint32_t i = 0; i < batch->count; i++) {
        const struct commit_kill *kill = &batch->flights[i]->replaced;

        if (batch->flights[i]->has_replaced)
            index_work_delete(store, work, &kill->extent, kill->record_crc);
        batch->crcs[i] = index_work_add(store, work, &batch->blocks[i].record);
    }
    for (uint32_t i = 0; i < batch->kill_count; i++) {
        const struct commit_kill *kill = &batch->kills[i].kill;

        if (kill->is_indexed)
            index_work_delete(store, work, &kill->extent, kill->record_crc);
        if (batch->kills[i].order == 0)
            void_take(store, work, &kill->extent);
    }
    batch->state = BATCH_COMMITTING;
    group->batches[group->count++] = batch;
}

/* Hand over what is WRITTEN, and what waits with it. There is a free transaction. */
static void
group_submit(struct kvt_store *store)
{
    struct commit *commit = store->commit;
    struct commit_group *group = NULL;

    for (uint32_t i = 0; i < GROUP_COUNT && group == NULL; i++) {
        if (commit->groups[i].count == 0 && commit->groups[i].change == NULL)
            group = &commit->groups[i];
    }
    KVT_ASSERT(group != NULL);
    if (group == NULL)
        return; /* They wait for the answer of one that is out. */
    index_work_reset(&group->work);
    group->change = commit->change;
    commit->change = NULL;
    if (group->change != NULL)
        index_work_change(&group->work, group->change);
    while (commit->written_first != NULL) {
        struct batch *batch = commit->written_first;

        commit->written_first = batch->next;
        group_take(store, group, batch);
    }
    commit->group_count++;
    index_work_seal(store, &group->work, &group->index_batch);
    group->job.run = group_run;
    group->job.finish = group_committed;
    committer_submit(store->committer, &group->job);
}

void
commit_touch(struct kvt_store *store, struct index_work *work, const struct tier_batch *batch)
{
    uint32_t segment = batch->header.segment;
    uint32_t *last = &store->commit->segment_last[segment_root(segment)];
    struct segment *at = segment_at(store->segments, segment);

    /* A relocation, which does not wait for others: those that were written before it go first. */
    if (store->commit->written_first != NULL &&
        store->commit->written_first->tier_batch.sequence < batch->sequence)
        group_submit(store);
    KVT_ASSERT(at->batch_number < batch->sequence);
    at->batch_number = batch->sequence;
    if (batch->kill_count > 0)
        segment_kills_note(
            store->segments, at, segment_kills_left(store->segments, at) + batch->kill_count);
    index_work_touch(work, segment);
    if (*last != segment && *last != SEGMENT_NONE)
        index_work_touch(work, *last);
    *last = segment;
}

void
commit_group_add(struct kvt_store *store, struct batch *batch)
{
    struct commit *commit = store->commit;

    KVT_ASSERT(batch->state == BATCH_WRITING);
    batch->state = BATCH_WRITTEN;
    batch->next = NULL;
    if (commit->written_first == NULL)
        commit->written_first = batch;
    else
        commit->written_last->next = batch;
    commit->written_last = batch;
}

void
commit_segment(struct kvt_store *store, struct segment_change *change)
{
    KVT_ASSERT(store->commit->change == NULL);
    store->commit->change = change;
}

static bool
is_change_out(const struct commit *commit)
{
    for (uint32_t i = 0; i < GROUP_COUNT; i++) {
        if (commit->groups[i].change != NULL)
            return true;
    }
    return false;
}

bool
commit_group_step(struct kvt_store *store)
{
    const struct commit *commit = store->commit;

    if (commit->written_first == NULL && (commit->change == NULL || commit->group_count > 0))
        return false;
    if (commit->group_count >= GROUPS_OUT_MAX || is_change_out(commit))
        return false;
    for (uint32_t i = 0; commit->written_first == NULL && i < BATCH_COUNT; i++) {
        if (commit->batches[i].state == BATCH_WRITING)
            return false; /* Its answer brings the next transaction, or the next step. */
    }
    group_submit(store);
    return true;
}

bool
commit_writes(struct kvt_store *store, uint32_t segment)
{
    for (uint32_t i = 0; i < BATCH_COUNT; i++) {
        const struct batch *batch = &store->commit->batches[i];

        if ((batch->state == BATCH_WRITING || batch->state == BATCH_WRITTEN) &&
            batch->tier_batch.header.segment == segment)
            return true;
    }
    return false;
}

/* --- Answers ---------------------------------------------------------------------------------- */

static void
block_durable(struct kvt_store *store, struct batch *batch, uint32_t i)
{
    struct flight *flight = batch->flights[i];
    const struct block_record *record = &batch->blocks[i].record;

    entry_place(store, flight->entry, record, batch->crcs[i]);
    residency_tier_set(store->map, flight->entry, TIER_NVME);
    event_add(store, flight->entry, TIER_NVME, KVT_EVENT_STORED,
        flight->is_demotion ? KVT_REASON_DEMOTED : KVT_REASON_PUT);
    COUNT(store, durable_count, 1);
    COUNT(store, durable_bytes, record->length);
    reclaim_admitted(store, (uint64_t)pages_of(record->stored_length) * PAGE_BYTES);
    commit_flight_settle(store, flight, KVT_OK);
}

static void
batch_committed(struct kvt_store *store, struct batch *batch)
{
    KVT_ASSERT(batch->state == BATCH_COMMITTING);
    for (uint32_t i = 0; i < batch->count; i++) {
        struct flight *flight = batch->flights[i];
        const struct block_record *record = &batch->blocks[i].record;
        struct commit_kill kill = {.extent = record->extent,
            .sequence = record->sequence,
            .fingerprint = residency_at(store->map, flight->entry)->fingerprint,
            .is_indexed = true,
            .record_crc = batch->crcs[i]};
        struct commit_kill replaced;

        (void)commit_replace_take(store, flight, &replaced);
        if (!flight->is_killed) {
            block_durable(store, batch, i);
            continue;
        }
        extent_forget(store, &record->extent, record->stored_length);
        commit_flight_bury(store, flight, &kill);
    }
    for (uint32_t i = 0; i < batch->kill_count; i++)
        commit_kill_answer(store, &batch->kills[i], KVT_OK);
    commit_batch_end(store, batch);
}

static void
group_committed(struct kvt_store *store, struct commit_job *job)
{
    struct commit_group *group = CONTAINER_OF(job, struct commit_group, job);
    struct commit *commit = store->commit;
    struct segment_change *change = group->change;
    uint32_t count = group->count;

    histogram_add(&store->latencies.commit_ns, job->duration_ns);
    COUNT(store, commit_count, 1);
    for (uint32_t i = 0; i < count; i++) {
        if (job->status == KVT_OK)
            batch_committed(store, group->batches[i]);
        else
            commit_batch_fail(store, group->batches[i], KVT_E_META);
    }
    group->count = 0;
    group->change = NULL;
    commit->group_count--;
    if (change != NULL)
        change->finish(store, change, job->status);
    if (job->status != KVT_OK)
        commit_failed(store);
}
