/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crew.c - a small pool of worker actors that run jobs.
 *
 * Owns      the queue of jobs that no worker has begun.
 * Threads   one mutex guards the queue and the set of idle workers; it is held for a few
 *           instructions, never while a job runs.
 *
 * The job belongs to the receiver from the moment it lies in `done`, so nothing of it is read
 * after that. The inbox, the task and the variable that `done_task` points to must live until
 * crew_close() has returned.
 *
 * No job is forgotten: a worker declares itself idle in the same hold of the mutex in which it saw
 * the queue empty, and whoever submits next takes it out of the idle set and wakes it.
 */
#include "crew.h"

#include <inttypes.h>
#include <pthread.h>

#include "failure.h"

enum {
    WORKER_COUNT_MAX = 64, /* Bits in `idle`. */
};

/* A wake costs who is woken some microseconds: those of short jobs are saved up for so long. */
static const uint64_t WAKE_DELAY_NS = 400 * 1000;

struct worker {
    struct crew *crew;
    struct task *task;
    uint32_t index;
    struct task *owed; /* Who has yet to be woken for what this worker finished; NULL: nobody. */
    uint64_t owed_ns;  /* Since when. */
};

struct crew {
    const struct kvt_env *env;
    pthread_mutex_t mutex;
    struct inbox_node *first; /* Oldest job; guarded by: mutex */
    struct inbox_node *last;  /* Newest job, when there is one; guarded by: mutex */
    uint64_t idle;            /* Workers that wait for a wake; guarded by: mutex */
    uint32_t worker_count;    /* Set at open, then constant. */
    struct worker workers[WORKER_COUNT_MAX];
};

static struct crew_job *
queue_take(struct crew *crew)
{
    struct inbox_node *node = crew->first;

    if (node == NULL)
        return NULL;
    crew->first = node->next;
    return CONTAINER_OF(node, struct crew_job, node);
}

/* Run it and those that follow it; who must be woken for them, or NULL. */
static struct task *
job_run(struct crew_job *job)
{
    struct inbox *done = job->done;
    struct task *const *done_task = job->done_task;

    job->run(job);
    for (uint32_t i = 0; i < job->follower_count; i++)
        job->followers[i]->run(job->followers[i]);
    return inbox_push(done, &job->node) ? *done_task : NULL;
}

static void
worker_wake(struct worker *worker)
{
    if (worker->owed != NULL)
        env_wake(worker->crew->env, worker->owed);
    worker->owed = NULL;
}

static bool
worker_step(void *context, uint64_t now_ns, uint64_t *next_ns_out)
{
    struct worker *worker = context;
    struct crew *crew = worker->crew;
    struct crew_job *job;
    struct task *task;

    *next_ns_out = UINT64_MAX;
    (void)pthread_mutex_lock(&crew->mutex);
    job = queue_take(crew);
    if (job == NULL)
        crew->idle |= UINT64_C(1) << worker->index;
    else
        crew->idle &= ~(UINT64_C(1) << worker->index);
    (void)pthread_mutex_unlock(&crew->mutex);
    if (job == NULL || !job->is_short || now_ns - worker->owed_ns >= WAKE_DELAY_NS)
        worker_wake(worker);
    if (job == NULL)
        return false;
    task = job_run(job);
    if (task != NULL && task != worker->owed) {
        worker_wake(worker);
        worker->owed = task;
        worker->owed_ns = now_ns;
    }
    return true;
}

void
crew_submit_many(
    struct crew *crew, struct inbox_node *first, struct inbox_node *last, uint32_t count)
{
    struct task *tasks[WORKER_COUNT_MAX];
    uint32_t task_count = 0;

    (void)pthread_mutex_lock(&crew->mutex);
    if (crew->first == NULL)
        crew->first = first;
    else
        crew->last->next = first;
    crew->last = last;
    while (crew->idle != 0 && task_count < count) {
        /* The lowest: the few workers that suffice stay warm. */
        uint32_t index = (uint32_t)__builtin_ctzll(crew->idle);

        crew->idle &= crew->idle - 1;
        tasks[task_count++] = crew->workers[index].task;
    }
    (void)pthread_mutex_unlock(&crew->mutex);
    for (uint32_t i = 0; i < task_count; i++)
        env_wake(crew->env, tasks[i]);
}

void
crew_submit(struct crew *crew, struct crew_job *job)
{
    job->node.next = NULL;
    job->follower_count = 0;
    crew_submit_many(crew, &job->node, &job->node, 1);
}

/* Run what waits on the calling thread. */
static void
crew_drain(struct crew *crew)
{
    struct crew_job *job;

    do {
        (void)pthread_mutex_lock(&crew->mutex);
        job = queue_take(crew);
        (void)pthread_mutex_unlock(&crew->mutex);
        if (job != NULL) {
            struct task *task = job_run(job);

            if (task != NULL)
                env_wake(crew->env, task);
        }
    } while (job != NULL);
}

void
crew_close(struct crew *crew)
{
    const struct kvt_env *env;

    if (crew == NULL)
        return;
    env = crew->env;
    /* Lend a hand first, while the workers still run. */
    crew_drain(crew);
    for (uint32_t i = 0; i < crew->worker_count; i++)
        env->sched->stop(env->sched_context, crew->workers[i].task);
    crew->idle = 0;
    /* What the last jobs submitted. */
    crew_drain(crew);
    (void)pthread_mutex_destroy(&crew->mutex);
    env_put(env, crew, sizeof(*crew));
}

enum kvt_status
crew_open(
    const struct kvt_env *env, const char *name, uint32_t worker_count, struct crew **crew_out)
{
    struct crew *crew;

    *crew_out = NULL;
    if (worker_count == 0 || worker_count > WORKER_COUNT_MAX) {
        return failure_set(KVT_E_INVAL, 0, "A crew has 1 to %d workers, not %" PRIu32 ".",
            WORKER_COUNT_MAX, worker_count);
    }
    crew = env_take(env, sizeof(*crew));
    if (crew == NULL)
        return failure_set(KVT_E_NOMEM, 0, "No memory for a crew of %" PRIu32 ".", worker_count);
    crew->env = env;
    (void)pthread_mutex_init(&crew->mutex, NULL);
    for (uint32_t i = 0; i < worker_count; i++) {
        struct worker *worker = &crew->workers[i];
        const struct actor actor = {
            .name = name,
            .step = worker_step,
            .context = worker,
        };
        enum kvt_status status;

        worker->crew = crew;
        worker->index = i;
        status = env->sched->start(env->sched_context, &actor, &worker->task);
        if (status != KVT_OK) {
            crew_close(crew);
            return status;
        }
        crew->worker_count++;
    }
    *crew_out = crew;
    return KVT_OK;
}
