/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_threads.c - the io engine over a pool of threads that call preadv, pwritev and fdatasync.
 *
 * For containers that forbid io_uring, and for tests that watch system calls. Same semantics as
 * io_uring.c: what the kernel said is delivered as it was said.
 *
 * Owns      the pool's threads, the ring of operations that wait for one, the ring of completions.
 * Threads   open and close by the owner; wake any; the rest by the thread that uses the queue; the
 *           pool's threads take and finish operations. One lock guards all that is shared.
 *
 * Invariants (under the lock)
 *   (1) in_flight_count = waiting + being run + done_count, at most depth; so neither ring, each
 *       with depth entries, can overflow.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "failure.h"
#include "io_engines.h"

enum {
    POOL_THREAD_COUNT = 8,
    DEPTH_MAX = 4096,
    NS_PER_SECOND = 1000000000,
};

struct io_queue {
    const struct kvt_env *env; /* Set at open, then constant; so are the next two. */
    uint32_t depth;
    uint32_t thread_count;
    pthread_t threads[POOL_THREAD_COUNT];
    pthread_mutex_t lock;
    pthread_cond_t work; /* The pool waits: something to run, or is_closing. */
    pthread_cond_t news; /* The user waits: something to reap, or is_woken. */
    /* Guarded by lock, all that follows. */
    uint32_t in_flight_count;
    const struct io_op **waiting;
    uint64_t waiting_first, waiting_end; /* Positions; modulo depth they are indices. */
    struct io_done *done;
    uint64_t done_first, done_end;
    uint32_t idle_count; /* Pool threads that wait for work. */
    bool is_user_waiting;
    bool is_woken;
    bool is_closing;
};

/* --- The pool --------------------------------------------------------------------------------- */

static int64_t
operation_run(const struct io_op *op)
{
    ssize_t result = -1;

    switch (op->kind) {
    case IO_READ:
        result = preadv(op->file->descriptor, op->pieces, (int)op->piece_count, (off_t)op->offset);
        break;
    case IO_WRITE:
        result = pwritev(op->file->descriptor, op->pieces, (int)op->piece_count, (off_t)op->offset);
        break;
    case IO_SYNC:
        result = fdatasync(op->file->descriptor);
        break;
    }
    return result < 0 ? -errno : result;
}

static void *
pool_main(void *argument)
{
    struct io_queue *queue = argument;

    (void)pthread_mutex_lock(&queue->lock);
    for (;;) {
        const struct io_op *op;
        struct io_done done;

        while (queue->waiting_first == queue->waiting_end && !queue->is_closing) {
            queue->idle_count++;
            (void)pthread_cond_wait(&queue->work, &queue->lock);
            queue->idle_count--;
        }
        if (queue->waiting_first == queue->waiting_end)
            break;
        op = queue->waiting[queue->waiting_first++ % queue->depth];
        (void)pthread_mutex_unlock(&queue->lock);
        done.id = op->id;
        done.result = operation_run(op);
        (void)pthread_mutex_lock(&queue->lock);
        queue->done[queue->done_end++ % queue->depth] = done;
        if (queue->is_user_waiting)
            (void)pthread_cond_signal(&queue->news);
    }
    (void)pthread_mutex_unlock(&queue->lock);
    return NULL;
}

/* Start as many threads as the system gives, with the host's signals blocked. */
static enum kvt_status
pool_start(struct io_queue *queue)
{
    sigset_t blocked, before;
    int error = 0;

    (void)sigfillset(&blocked);
    (void)sigdelset(&blocked, SIGSEGV);
    (void)sigdelset(&blocked, SIGBUS);
    (void)pthread_sigmask(SIG_SETMASK, &blocked, &before);
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

static void
queue_free(struct io_queue *queue)
{
    env_put(queue->env, queue->waiting, queue->depth * sizeof(*queue->waiting));
    env_put(queue->env, queue->done, queue->depth * sizeof(*queue->done));
    env_put(queue->env, queue, sizeof(*queue));
}

static void
queue_sync_init(struct io_queue *queue)
{
    pthread_condattr_t attributes;

    (void)pthread_mutex_init(&queue->lock, NULL);
    (void)pthread_cond_init(&queue->work, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&queue->news, &attributes);
    (void)pthread_condattr_destroy(&attributes);
}

static void
queue_sync_deinit(struct io_queue *queue)
{
    (void)pthread_cond_destroy(&queue->news);
    (void)pthread_cond_destroy(&queue->work);
    (void)pthread_mutex_destroy(&queue->lock);
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
    queue_sync_init(queue);
    status = pool_start(queue);
    if (status != KVT_OK) {
        queue_sync_deinit(queue);
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
    (void)pthread_mutex_lock(&queue->lock);
    KVT_ASSERT(queue->in_flight_count == 0);
    queue->is_closing = true;
    (void)pthread_cond_broadcast(&queue->work);
    (void)pthread_mutex_unlock(&queue->lock);
    for (uint32_t i = 0; i < queue->thread_count; i++)
        (void)pthread_join(queue->threads[i], NULL);
    queue_sync_deinit(queue);
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
    for (size_t i = 0; i < taken && i < queue->idle_count; i++)
        (void)pthread_cond_signal(&queue->work);
    (void)pthread_mutex_unlock(&queue->lock);
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

/* `left_ns` from now on the clock of the condition variable. */
static struct timespec
deadline_in(uint64_t left_ns)
{
    struct timespec at;

    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += (time_t)(left_ns / NS_PER_SECOND);
    at.tv_nsec += (long)(left_ns % NS_PER_SECOND);
    if (at.tv_nsec >= NS_PER_SECOND) {
        at.tv_sec++;
        at.tv_nsec -= NS_PER_SECOND;
    }
    return at;
}

static void
queue_wait(struct io_queue *queue, uint64_t now_ns, uint64_t until_ns)
{
    bool is_endless = until_ns == UINT64_MAX;
    struct timespec deadline = {0};
    int error = 0;

    if (!is_endless)
        deadline = deadline_in(until_ns > now_ns ? until_ns - now_ns : 0);
    (void)pthread_mutex_lock(&queue->lock);
    queue->is_user_waiting = true;
    while (queue->done_first == queue->done_end && !queue->is_woken && error == 0) {
        error = is_endless ? pthread_cond_wait(&queue->news, &queue->lock)
                           : pthread_cond_timedwait(&queue->news, &queue->lock, &deadline);
    }
    queue->is_user_waiting = false;
    queue->is_woken = false;
    (void)pthread_mutex_unlock(&queue->lock);
}

static void
queue_wake(struct io_queue *queue)
{
    (void)pthread_mutex_lock(&queue->lock);
    queue->is_woken = true;
    if (queue->is_user_waiting)
        (void)pthread_cond_signal(&queue->news);
    (void)pthread_mutex_unlock(&queue->lock);
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
