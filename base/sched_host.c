/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched_host.c - actors on threads, gates on futexes, signals on eventfds.
 *
 * Owns      the thread of each task.
 * Threads   as env.h says. A gate, and whatever a task is woken through, must outlive everybody who
 *           posts to it: a post touches the gate once more after the waiter may have gone on.
 *
 * No wake is lost. A task reads its gate before it steps; a wake during the step changes the value,
 * and the wait that follows returns at once. An actor with its own `park` promises the same.
 *
 * Memory order of a gate
 *   (G1) The waiter raises `waiters`, then reads `value`. The poster raises `value`, then reads
 *        `waiters`. All four are seq_cst, so they have one order, and whoever comes second in it
 *        sees what the first wrote: either the waiter finds the new value and does not sleep, or
 *        the poster finds a waiter and makes the call. With anything weaker both could miss.
 *   (G2) Between the waiter's look and its sleep the kernel compares the value once more.
 *   (G3) The poster's raise releases and the reader's look acquires (both by being seq_cst): what
 *        was written before the post is seen by whoever sees the new value.
 */
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "env_host_internal.h"
#include "failure.h"
#include "foreign_signals.h"
#include "streams_host.h"

struct task {
    struct actor actor;                 /* Constant after start. */
    struct proof_handler proof_handler; /* Constant after start. */
    pthread_t thread;                   /* Constant after start. */
    struct gate gate;                   /* Posted by host_wake(), host_stop(). */
    _Atomic bool is_stopped;            /* Set once by host_stop(); see (T1). */
};

/* --- 1. Gates --------------------------------------------------------------------------------- */

static void
host_gate_wait(void *context, struct gate *gate, uint32_t seen, uint64_t until_ns)
{
    struct timespec until = {
        .tv_sec = (time_t)(until_ns / NS_PER_S),
        .tv_nsec = (long)(until_ns % NS_PER_S),
    };

    (void)context;
    if (atomic_load_explicit(&gate->value, memory_order_seq_cst) != seen)
        return;
    /* (G1), the waiter's side. */
    (void)atomic_fetch_add_explicit(&gate->waiters, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&gate->value, memory_order_seq_cst) == seen) {
        /* (G2). Time over, interrupted, value changed: all are an early return. The bitset form is
         * the one whose time is absolute. */
        (void)syscall(SYS_futex, &gate->value, FUTEX_WAIT_BITSET_PRIVATE, seen,
            until_ns == UINT64_MAX ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
    }
    (void)atomic_fetch_sub_explicit(&gate->waiters, 1, memory_order_seq_cst);
    /* (G3): the caller reads the value again before it believes anything. */
}

static void
host_gate_post(void *context, struct gate *gate)
{
    (void)context;
    /* (G1), the poster's side. */
    (void)atomic_fetch_add_explicit(&gate->value, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&gate->waiters, memory_order_seq_cst) == 0)
        return;
    (void)syscall(SYS_futex, &gate->value, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* --- 2. Tasks --------------------------------------------------------------------------------- */

static void *
task_main(void *argument)
{
    struct task *task = argument;
    const struct actor *actor = &task->actor;

    (void)pthread_setname_np(pthread_self(), actor->name);
    (void)proof_handler_set(task->proof_handler);
    for (;;) {
        uint32_t seen = atomic_load_explicit(&task->gate.value, memory_order_seq_cst);
        uint64_t next_ns = UINT64_MAX;

        /* (T1) acquire: pairs with the release in host_stop(). The flag is set before the gate
         * is posted, so a task that misses it here finds another value below. */
        if (atomic_load_explicit(&task->is_stopped, memory_order_acquire))
            return NULL;
        if (actor->step(actor->context, clock_read_ns(CLOCK_MONOTONIC), &next_ns))
            continue;
        if (actor->park != NULL)
            actor->park(actor->context, clock_read_ns(CLOCK_MONOTONIC), next_ns);
        else
            host_gate_wait(NULL, &task->gate, seen, next_ns);
    }
}

static enum kvt_status
host_start(void *context, const struct actor *actor, struct task **task_out)
{
    struct task *task;
    sigset_t before;
    int error;

    (void)context;
    *task_out = NULL;
    KVT_ASSERT(strlen(actor->name) <= 15);
    task = calloc(1, sizeof(*task));
    if (task == NULL)
        return failure_set(KVT_E_NOMEM, ENOMEM, "No memory for the task %s.", actor->name);
    task->actor = *actor;
    task->proof_handler = proof_handler_get();
    /* Before it runs: what it does may make others wake it through *task_out at once. */
    *task_out = task;
    foreign_signals_block(&before);
    error = pthread_create(&task->thread, NULL, task_main, task);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        *task_out = NULL;
        free(task);
        return failure_set(KVT_E_NOMEM, error,
            "The system gives no thread for the task %s (errno %d): raise the limit on threads.",
            actor->name, error);
    }
    return KVT_OK;
}

static void
host_wake(void *context, struct task *task)
{
    if (task->actor.wake != NULL)
        task->actor.wake(task->actor.context);
    else
        host_gate_post(context, &task->gate);
}

static void
host_stop(void *context, struct task *task)
{
    int error;

    if (task == NULL)
        return;
    /* (T1) release: pairs with the acquire in task_main(). */
    atomic_store_explicit(&task->is_stopped, true, memory_order_release);
    host_wake(context, task);
    error = pthread_join(task->thread, NULL);
    /* It fails only for a task that stops itself; then the thread still uses the memory. */
    KVT_ASSERT(error == 0);
    if (error == 0)
        free(task);
}

/* --- 3. Signals ------------------------------------------------------------------------------- */

static enum kvt_status
host_signal_open(void *context, int *signal_out)
{
    int signal = streams_pass(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));

    (void)context;
    *signal_out = -1;
    if (signal < 0)
        return failure_errno(errno, "Cannot make an eventfd", NULL);
    *signal_out = signal;
    return KVT_OK;
}

static void
host_signal_post(void *context, int signal)
{
    uint64_t one = 1;
    ssize_t count;

    (void)context;
    /* A full counter (EAGAIN) is readable already, which is all that a signal says. */
    do {
        count = write(signal, &one, sizeof(one));
    } while (count < 0 && errno == EINTR);
}

static void
host_signal_clear(void *context, int signal)
{
    uint64_t value;
    ssize_t count;

    (void)context;
    /* An empty counter (EAGAIN) is clear already. */
    do {
        count = read(signal, &value, sizeof(value));
    } while (count < 0 && errno == EINTR);
}

static void
host_signal_close(void *context, int signal)
{
    (void)context;
    if (signal >= 0)
        (void)close(signal);
}

const struct sched_ops sched_host_ops = {
    .start = host_start,
    .wake = host_wake,
    .stop = host_stop,
    .gate_wait = host_gate_wait,
    .gate_post = host_gate_post,
    .signal_open = host_signal_open,
    .signal_post = host_signal_post,
    .signal_clear = host_signal_clear,
    .signal_close = host_signal_close,
};
