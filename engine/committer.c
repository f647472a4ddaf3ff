/* SPDX-License-Identifier: Apache-2.0 */
/*
 * committer.c - the committer's thread.
 */
#include "committer.h"

#include "store_internal.h"

enum {
    GROWTHS_MAX = 8, /* For one commit: on a disk that is nearly full each is a small one. */
};

struct committer {
    struct kvt_store *store;
    struct inbox inbox;
    struct inbox_node *taken; /* The actor's; so is the next. */
    struct commit_job *held;  /* Committed and not known to be durable; NULL: none. */
    bool has_failed;          /* A commit or a sync: none is tried behind it (index.h). */
    struct task *task;
};

static void
job_return(struct committer *committer, struct commit_job *job)
{
    struct kvt_store *store = committer->store;

    job->duration_ns = env_now(&store->env) - job->start_ns;
    if (job->status < 0)
        log_line(&store->logger, LOG_ERROR, "index", "event=commit_failed status=%s text=\"%s\"",
            kvt_status_name(job->status), failure_last()->text);
    loop_send(store, &job->message);
}

/* The index's size as counters, which any thread may read. */
static void
index_size_note(struct kvt_store *store)
{
    struct index_stats stats = {0};

    store->index->ops->stats(store->index, &stats);
    atomic_store_explicit(
        &store->counters.index_map_bytes_now, stats.map_bytes, memory_order_relaxed);
    atomic_store_explicit(
        &store->counters.index_used_bytes_now, stats.used_bytes, memory_order_relaxed);
}

/* The job that is HELD goes back: durable with a commit that came behind it, or with a sync. */
static void
held_return(struct committer *committer, bool is_durable)
{
    struct commit_job *job = committer->held;

    committer->held = NULL;
    if (job == NULL)
        return;
    if (!is_durable)
        job->status = committer->store->index->ops->sync(committer->store->index);
    committer->has_failed = committer->has_failed || job->status != KVT_OK;
    job_return(committer, job);
}

/* Behind a commit that failed another could be good, and raise the batch_number of a segment above
 * that of a batch whose blocks are not in the index: nobody would ever take that for a stray. */
static enum kvt_status
job_run(struct committer *committer, struct commit_job *job)
{
    enum kvt_status status;

    if (committer->has_failed)
        return failure_set(KVT_E_META, 0, "A commit failed before; no further one is tried.");
    status = job->run(committer->store, job);
    committer->has_failed = status != KVT_OK;
    return status;
}

static bool
committer_step(void *context, uint64_t now_ns, uint64_t *next_ns_out)
{
    struct committer *committer = context;
    struct kvt_store *store = committer->store;
    struct failure cause;
    struct commit_job *job;

    *next_ns_out = UINT64_MAX;
    if (committer->taken == NULL)
        committer->taken = inbox_take(&committer->inbox);
    if (committer->taken == NULL) {
        bool has_held = committer->held != NULL;

        held_return(committer, false);
        return has_held;
    }
    job = CONTAINER_OF(committer->taken, struct commit_job, message.node);
    committer->taken = committer->taken->next;
    job->start_ns = now_ns;
    job->status = job_run(committer, job);
    cause = *failure_last();
    index_size_note(store);
    held_return(committer, job->status == KVT_OK);
    if (job->status == KVT_OK) {
        committer->held = job;
    } else {
        failure_copy(&cause); /* Its own: the sync for the one that was HELD has failed since. */
        job_return(committer, job);
    }
    return true;
}

enum kvt_status
committer_open(struct kvt_store *store, struct committer **committer_out)
{
    struct committer *committer = env_take(&store->env, sizeof(*committer));
    struct actor actor = {.name = "kvt-commit", .step = committer_step};
    enum kvt_status status;

    *committer_out = NULL;
    index_size_note(store); /* It is the committer's from here on. */
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

static enum kvt_status
commit_by(struct index *index, const struct index_batch *batch,
    enum kvt_status (*commit)(struct index *index, const struct index_batch *batch))
{
    enum kvt_status status = commit(index, batch);

    for (uint32_t i = 0; status == KVT_E_NOSPC && i < GROWTHS_MAX; i++) {
        KVT_TRY(index->ops->grow(index, 0));
        status = commit(index, batch);
    }
    return status == KVT_E_NOSPC ? KVT_E_META : status;
}

enum kvt_status
index_commit_growing(struct index *index, const struct index_batch *batch)
{
    return commit_by(index, batch, index->ops->commit);
}

enum kvt_status
index_commit_deferred(struct index *index, const struct index_batch *batch)
{
    return commit_by(index, batch, index->ops->commit_deferred);
}

enum kvt_status
index_commit_job(struct kvt_store *store, const struct index_batch *batch)
{
    struct committer *committer = store->committer;
    enum kvt_status status = store->index->ops->commit_deferred(store->index, batch);

    if (status != KVT_E_NOSPC)
        return status;
    held_return(committer, false);
    return committer->has_failed ? KVT_E_META : index_commit_deferred(store->index, batch);
}

/* --- A rebuilt index -------------------------------------------------------------------------- */

enum kvt_status
index_finish(struct kvt_store *store)
{
    if (!store->is_unfinished)
        return KVT_OK;
    KVT_TRY(store->index->ops->mark(store->index, false));
    store->is_unfinished = false;
    return KVT_OK;
}

struct finish {
    struct commit_job job;
    bool is_sent, is_back;
};

/* A job that is good makes the HELD one durable, though nothing was left to finish. */
static enum kvt_status
finish_run(struct kvt_store *store, struct commit_job *job)
{
    (void)job;
    return store->is_unfinished ? index_finish(store) : store->index->ops->sync(store->index);
}

static void
finish_back(struct kvt_store *store, struct commit_job *job)
{
    CONTAINER_OF(job, struct finish, job)->is_back = true;
    if (job->status != KVT_OK)
        commit_failed(store);
}

/* At rest: no kill is left that could not be written, and is tried again. */
static bool
finish_is_due(struct kvt_store *store)
{
    bool has_unread =
        atomic_load_explicit(&store->counters.recover_unread_count, memory_order_relaxed) > 0;

    return has_unread || (!commit_is_in_doubt(store) && commit_is_at_rest(store));
}

static bool
finish_call(struct kvt_store *store, void *context)
{
    struct finish *finish = context;

    if (finish->is_sent)
        return finish->is_back;
    if (store_is_poisoned(store) || !finish_is_due(store))
        return true;
    finish->is_sent = true;
    committer_submit(store->committer, &finish->job);
    return false;
}

void
index_finish_await(struct kvt_store *store)
{
    struct finish finish = {.job = {.run = finish_run, .finish = finish_back}};

    loop_call(store, finish_call, &finish);
}
