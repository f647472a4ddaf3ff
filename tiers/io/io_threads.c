/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_threads.c - the io engine over a pool of threads that make the calls (io_call.h).
 *
 * For containers that forbid io_uring, and for tests that watch system calls. Same semantics as
 * io_uring.c: what the kernel said is delivered as it was said.
 *
 * Owns      the pool's threads, the ring of operations that wait for one, the ring of completions.
 * Threads   open and close by the owner; wake any; the rest by the thread that uses the queue; the
 *           pool's threads take and finish operations. One lock guards all that is shared.
 *
 * No condition variables: those of glibc up to 2.40 can lose a wakeup (its bug 25847). The pool
 * waits on a semaphore, the user on a gate of the env, where what was posted before is not lost.
 *
 * Invariants (under the lock)
 *   (1) in_flight_count = waiting + being run + done_count, at most depth; so neither ring, each
 *       with depth entries, can overflow.
 *   (2) The semaphore has been posted once for each operation that was submitted, and, at the end,
 *       once for each thread: so who comes through it finds an operation, or the end.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>

#include "failure.h"
#include "foreign_signals.h"
#include "io_call.h"
#include "io_engines.h"

enum {
    POOL_THREAD_COUNT = 8,
    DEPTH_MAX = 4096,
};

struct io_queue {
    const struct kvt_env *env; /* Set at open, then constant; so are the next two. */
    uint32_t depth;
    uint32_t thread_count;
    pthread_t threads[POOL_THREAD_COUNT];
    pthread_mutex_t lock;
    sem_t work;       /* The pool waits: (2). */
    struct gate news; /* The user waits: something to reap, or is_woken. */
    /* Guarded by lock, all that follows. */
    uint32_t in_flight_count;
    const struct io_op **waiting;
    uint64_t waiting_first, waiting_end; /* Positions; modulo depth they are indices. */
    struct io_done *done;
    uint64_t done_first, done_end;
    bool is_woken;
};

/* --- The pool --------------------------------------------------------------------------------- */

/* Wait for an operation. False: the queue is closed. */
static bool
operation_take(struct io_queue *queue, const struct io_op **op_out)
{
    bool is_found;

    while (sem_wait(&queue->work) != 0)
        KVT_ASSERT(errno == EINTR);
    (void)pthread_mutex_lock(&queue->lock);
    is_found = queue->waiting_first != queue->waiting_end;
    if (is_found)
        *op_out = queue->waiting[queue->waiting_first++ % queue->depth];
    (void)pthread_mutex_unlock(&queue->lock);
    return is_found;
}

static void *
pool_main(void *argument)
{
    struct io_queue *queue = argument;
    const struct io_op *op = NULL;

    while (operation_take(queue, &op)) {
        struct io_done done = {.id = op->id};

        done.result = io_call(op);
        (void)pthread_mutex_lock(&queue->lock);
        queue->done[queue->done_end++ % queue->depth] = done;
        (void)pthread_mutex_unlock(&queue->lock);
        gate_post(queue->env, &queue->news);
    }
    return NULL;
}

/* Start as many threads as the system gives. */
static enum kvt_status
pool_start(struct io_queue *queue)
{
    sigset_t before;
    int error = 0;

    foreign_signals_block(&before);
    while (queue->thread_count < POOL_THREAD_COUNT && queue->thread_count < queue->depth) {
        error = pthread_create(&queue->threads[queue->thread_count], NULL, pool_main, queue);
        if (error != 0)
            break;
        (void)pthread_setname_np(queue->threads[queue->thread_count], "kvt-io-pool");
        queue->thread_count++;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (queue->thread_count == 0)
        return failure_set(KVT_E_NOMEM, error,
            "The system gives no thread for the io pool (%s): raise the limit on threads.",
            strerror(error));
    return KVT_OK;
}

/* --- Life ------------------------------------------------------------------------------------- */

/* Without its threads, and after queue_open() has made all of it. */
static void
queue_deinit(struct io_queue *queue)
{
    (void)sem_destroy(&queue->work);
    (void)pthread_mutex_destroy(&queue->lock);
}

static void
queue_free(struct io_queue *queue)
{
    env_put(queue->env, queue->waiting, queue->depth * sizeof(*queue->waiting));
    env_put(queue->env, queue->done, queue->depth * sizeof(*queue->done));
    env_put(queue->env, queue, sizeof(*queue));
}

static enum kvt_status
queue_open(void *context, uint32_t depth, struct io_queue **queue_out)
{
    const struct kvt_env *env = context;
    struct io_queue *queue;
    enum kvt_status status;

    *queue_out = NULL;
    if (env == NULL)
        return failure_set(
            KVT_E_INVAL, 0, "The context of the thread io engine must be an env, for memory.");
    if (depth == 0 || depth > DEPTH_MAX)
        return failure_set(KVT_E_INVAL, 0, "An io queue's depth of %u is not in 1..%d.",
            (unsigned)depth, DEPTH_MAX);
    queue = env_take(env, sizeof(*queue));
    if (queue == NULL)
        goto no_memory;
    queue->env = env;
    queue->depth = depth;
    queue->waiting = env_take(env, depth * sizeof(*queue->waiting));
    queue->done = env_take(env, depth * sizeof(*queue->done));
    if (queue->waiting == NULL || queue->done == NULL) {
        queue_free(queue);
        goto no_memory;
    }
    (void)pthread_mutex_init(&queue->lock, NULL);
    (void)sem_init(&queue->work, 0, 0);
    status = pool_start(queue);
    if (status != KVT_OK) {
        queue_deinit(queue);
        queue_free(queue);
        return status;
    }
    *queue_out = queue;
    return KVT_OK;

no_memory:
    return failure_set(
        KVT_E_NOMEM, ENOMEM, "No memory for an io queue of depth %u.", (unsigned)depth);
}

static void
queue_close(struct io_queue *queue)
{
    if (queue == NULL)
        return;
    KVT_ASSERT(queue->in_flight_count == 0);
    for (uint32_t i = 0; i < queue->thread_count; i++)
        (void)sem_post(&queue->work);
    for (uint32_t i = 0; i < queue->thread_count; i++)
        (void)pthread_join(queue->threads[i], NULL);
    queue_deinit(queue);
    queue_free(queue);
}

/* Registering memory means nothing to preadv. */
static void
queue_adopt(struct io_queue *queue, void *memory, size_t size)
{
    (void)queue;
    (void)memory;
    (void)size;
}

/* --- The thread that uses the queue ----------------------------------------------------------- */

static size_t
queue_submit(struct io_queue *queue, const struct io_op *const *ops, size_t count)
{
    size_t taken;

    (void)pthread_mutex_lock(&queue->lock);
    for (taken = 0; taken < count && queue->in_flight_count < queue->depth; taken++) {
        queue->waiting[queue->waiting_end++ % queue->depth] = ops[taken];
        queue->in_flight_count++;
    }
    (void)pthread_mutex_unlock(&queue->lock);
    for (size_t i = 0; i < taken; i++)
        (void)sem_post(&queue->work);
    return taken;
}

static size_t
queue_reap(struct io_queue *queue, struct io_done *done, size_t count_max)
{
    size_t count = 0;

    (void)pthread_mutex_lock(&queue->lock);
    while (count < count_max && queue->done_first != queue->done_end)
        done[count++] = queue->done[queue->done_first++ % queue->depth];
    queue->in_flight_count -= (uint32_t)count;
    (void)pthread_mutex_unlock(&queue->lock);
    return count;
}

/* Whether a wait may end; who is told so has been woken. */
static bool
news_take(struct io_queue *queue)
{
    bool is_news;

    (void)pthread_mutex_lock(&queue->lock);
    is_news = queue->done_first != queue->done_end || queue->is_woken;
    if (is_news)
        queue->is_woken = false;
    (void)pthread_mutex_unlock(&queue->lock);
    return is_news;
}

static void
queue_wait(struct io_queue *queue, uint64_t now_ns, uint64_t until_ns)
{
    while (now_ns < until_ns) {
        /* Read before the look: what comes behind the look changes it, and the gate is open. */
        uint32_t seen = atomic_load_explicit(&queue->news.value, memory_order_seq_cst);

        if (news_take(queue))
            return;
        gate_wait(queue->env, &queue->news, seen, until_ns);
        now_ns = env_now(queue->env);
    }
    (void)news_take(queue);
}

static void
queue_wake(struct io_queue *queue)
{
    (void)pthread_mutex_lock(&queue->lock);
    queue->is_woken = true;
    (void)pthread_mutex_unlock(&queue->lock);
    gate_post(queue->env, &queue->news);
}

const struct io_ops io_threads_ops = {
    .name = "threads",
    .open = queue_open,
    .close = queue_close,
    .adopt = queue_adopt,
    .submit = queue_submit,
    .reap = queue_reap,
    .wait = queue_wait,
    .wake = queue_wake,
};
