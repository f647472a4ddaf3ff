/* SPDX-License-Identifier: Apache-2.0 */
/*
 * committer.c - the committer's thread.
 */
#include "committer.h"

#include "store_internal.h"

struct committer {
    struct kvt_store *store;
    struct inbox inbox;
    struct inbox_node *taken; /* The actor's. */
    struct task *task;
};

static bool
committer_step(void *context, uint64_t now_ns, uint64_t *next_ns_out)
{
    struct committer *committer = context;
    struct kvt_store *store = committer->store;
    struct commit_job *job;

    *next_ns_out = UINT64_MAX;
    if (committer->taken == NULL)
        committer->taken = inbox_take(&committer->inbox);
    if (committer->taken == NULL)
        return false;
    job = CONTAINER_OF(committer->taken, struct commit_job, message.node);
    committer->taken = committer->taken->next;
    job->status = job->run(store, job);
    job->duration_ns = env_now(&store->env) - now_ns;
    if (job->status < 0)
        log_line(&store->logger, LOG_ERROR, "index", "event=commit_failed status=%s text=\"%s\"",
            kvt_status_name(job->status), failure_last()->text);
    loop_send(store, &job->message);
    return true;
}

enum kvt_status
committer_open(struct kvt_store *store, struct committer **committer_out)
{
    struct committer *committer = env_take(&store->env, sizeof(*committer));
    struct actor actor = {.name = "kvt-commit", .step = committer_step};
    enum kvt_status status;

    *committer_out = NULL;
    if (committer == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for the committer");
    committer->store = store;
    actor.context = committer;
    status = store->env.sched->start(store->env.sched_context, &actor, &committer->task);
    if (status != KVT_OK) {
        env_put(&store->env, committer, sizeof(*committer));
        return status;
    }
    *committer_out = committer;
    return KVT_OK;
}

void
committer_close(struct kvt_store *store, struct committer *committer)
{
    if (committer == NULL)
        return;
    store->env.sched->stop(store->env.sched_context, committer->task);
    env_put(&store->env, committer, sizeof(*committer));
}

static void
job_deliver(struct kvt_store *store, struct message *message)
{
    struct commit_job *job = CONTAINER_OF(message, struct commit_job, message);

    job->finish(store, job);
}

void
committer_submit(struct committer *committer, struct commit_job *job)
{
    job->message.deliver = job_deliver;
    if (inbox_push(&committer->inbox, &job->message.node))
        env_wake(&committer->store->env, committer->task);
}

void
segment_facts(const struct segment *segment, struct index_segment *facts_out)
{
    *facts_out = (struct index_segment){
        .number = segment->number,
        .generation = segment->generation,
        .state = (uint32_t)segment->state,
        .record_count = segment->record_count,
        .crc_xor = segment->crc_xor,
        .live_bytes = segment->live_bytes,
        .batch_number = segment->batch_number,
    };
}

enum kvt_status
index_commit_growing(struct index *index, const struct index_batch *batch)
{
    enum kvt_status status = index->ops->commit(index, batch);

    if (status != KVT_E_NOSPC)
        return status;
    KVT_TRY(index->ops->grow(index, 0));
    status = index->ops->commit(index, batch);
    return status == KVT_E_NOSPC ? KVT_E_META : status;
}
