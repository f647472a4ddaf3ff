/* SPDX-License-Identifier: Apache-2.0 */
/*
 * committer.h - the one thread that uses the index while a store runs.
 *
 * Jobs run in the order in which they were handed over, and come back to the loop.
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
    uint64_t duration_ns;
};

enum kvt_status committer_open(struct kvt_store *store, struct committer **committer_out);
void committer_close(struct kvt_store *store, struct committer *committer); /* No job is left. */
void committer_submit(struct committer *committer, struct commit_job *job);

/* segment_facts - a segment as the index stores it. */
void segment_facts(const struct segment *segment, struct index_segment *facts_out);

/* index_commit_growing - commit; when the map is full grow it once and commit again. */
enum kvt_status index_commit_growing(struct index *index, const struct index_batch *batch);

#endif /* KVT_ENGINE_COMMITTER_H */
