/* SPDX-License-Identifier: Apache-2.0 */
/*
 * committer.h - the one thread that uses the index while a store runs.
 *
 * Jobs run in the order in which they were handed over, and come back to the loop.
 *
 * The commit of a job is deferred (index.h): it is durable with the commit of the next job, if that
 * is there already, else with a sync that follows at once. Until then the job is HELD, and nobody
 * is told:
 *
 *   handed over --> RUN --> HELD --> back, durable: the next commit, or the sync, was good
 *                    |        +---> back, failed:  neither was
 *                    +------------> back, failed
 *
 * Behind a failure every job comes back failed, without having run. A map that cannot grow is one,
 * though the index is as it was: the batches of the job stand on the disk, and the table of
 * segments, from which the jobs behind it took their facts, has counted them. It would all have to
 * be undone.
 */
#ifndef KVT_ENGINE_COMMITTER_H
#define KVT_ENGINE_COMMITTER_H

#include "index.h"
#include "request.h"
#include "segment.h"

struct committer;

struct commit_job {
    struct message message;
    enum kvt_status (*run)(
        struct kvt_store *store, struct commit_job *job);            /* Committer's thread. */
    void (*finish)(struct kvt_store *store, struct commit_job *job); /* The loop. */
    enum kvt_status status;
    uint64_t start_ns;
    uint64_t duration_ns; /* Until it was durable. */
};

enum kvt_status committer_open(struct kvt_store *store, struct committer **committer_out);
void committer_close(struct kvt_store *store, struct committer *committer); /* No job is left. */
void committer_submit(struct committer *committer, struct commit_job *job);

/* segment_facts - a segment as the index stores it. */
void segment_facts(const struct segment *segment, struct index_segment *facts_out);

/* index_commit_growing - commit; while the map is full grow it and commit again.
 * index_commit_deferred - the same (index.h), before an install. index_commit_job - for jobs: what
 * is HELD is back before the map grows, which takes as long as its zeros need. */
enum kvt_status index_commit_growing(struct index *index, const struct index_batch *batch);
enum kvt_status index_commit_deferred(struct index *index, const struct index_batch *batch);
enum kvt_status index_commit_job(struct kvt_store *store, const struct index_batch *batch);

/*
 * index_finish - a rebuilt index is not finished before the kills are durable that the rebuild owes
 * (of copies that are dead, and that no kill names): a crash leaves it to the next open to rebuild
 * it, and to owe them, again. But another rebuild finds less than the first when a segment was
 * recycled meanwhile, which may have what a copy is dead by: before that the index is finished in
 * any case, which has none of these copies. The committer's thread.
 *
 * index_finish_await - the kills have been answered: finish it, unless they failed. In any case
 * when there were pages that could not be read: another rebuild would be refused for these
 * (recover_pass_over()), or find less, and what was opened once can be opened again. Who opens.
 */
enum kvt_status index_finish(struct kvt_store *store);
void index_finish_await(struct kvt_store *store);

#endif /* KVT_ENGINE_COMMITTER_H */
