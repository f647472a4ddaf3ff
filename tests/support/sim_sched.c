/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_sched.c - actors, stepped one at a time in a seeded order, and the passing of time.
 *
 * An actor is runnable when its last step said so, when it was woken, when its time has come, or
 * when a queue of its own has completions that it did not reap. While anything is runnable one
 * of them is picked by seed and stepped, and the clock moves a little. When nothing is, the clock
 * jumps to the nearest moment at which something will be.
 *
 * A wake that is lost is therefore not repaired by accident: the caller who waits gets stuck.
 */
#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "sim_world_internal.h"

enum {
    STEP_NS_MIN = 200,
    STEP_NS_SPREAD = 2000,
    RESTLESS_LIMIT =
        64, /* Steps in a row of an actor that did nothing and asks for a time that has come. */
    STUCK_LIMIT = 1000, /* Waits in a row without hope: the caller loops for ever. */
};

static const uint64_t STEP_LIMIT = UINT64_C(200) * 1000 * 1000; /* Of one world. */

struct task {
    struct sim_world *world;
    struct task *next;
    struct actor actor;
    struct proof_handler proof_handler;
    uint64_t next_ns;
    uint32_t restless_count;
    bool wants_more;
    bool is_woken;
};

/* --- 1. The vtable's small parts -------------------------------------------------------------- */

static enum kvt_status
sched_start(void *context, const struct actor *actor, struct task **task_out)
{
    struct sim_world *world = context;
    struct task **end = &world->tasks;
    struct task *task;

    *task_out = NULL;
    if (strlen(actor->name) > 15)
        sim_panic(world, "actor name '%s' is longer than 15", actor->name);
    task = calloc(1, sizeof(*task));
    if (task == NULL)
        sim_panic(world, "out of memory");
    task->world = world;
    task->actor = *actor;
    task->proof_handler = proof_handler_get();
    task->wants_more = true;
    while (*end != NULL)
        end = &(*end)->next;
    *end = task;
    *task_out = task;
    return KVT_OK;
}

static void
sched_wake(void *context, struct task *task)
{
    (void)context;
    task->is_woken = true;
}

static void
sched_stop(void *context, struct task *task)
{
    struct sim_world *world = context;
    struct task **link = &world->tasks;

    if (task == world->current)
        sim_panic(world, "actor '%s' is stopped inside its own step", task->actor.name);
    while (*link != NULL && *link != task)
        link = &(*link)->next;
    if (*link == NULL)
        sim_panic(world, "a task is stopped that is not running");
    *link = task->next;
    free(task);
}

static void
sched_gate_post(void *context, struct gate *gate)
{
    (void)context;
    atomic_fetch_add_explicit(&gate->value, 1, memory_order_release);
}

static enum kvt_status
sched_signal_open(void *context, int *signal_out)
{
    struct sim_world *world = context;

    world->signals_open++;
    *signal_out = -1 - ++world->signal_count;
    return KVT_OK;
}

static void
sched_signal_ignore(void *context, int signal)
{
    struct sim_world *world = context;

    if (signal >= 0)
        sim_panic(world, "signal %d was never opened", signal);
}

static void
sched_signal_close(void *context, int signal)
{
    struct sim_world *world = context;

    sched_signal_ignore(context, signal);
    if (world->signals_open-- == 0)
        sim_panic(world, "more signals closed than opened");
}

/* --- 2. Steps --------------------------------------------------------------------------------- */

static bool
task_is_runnable(const struct task *task)
{
    const struct sim_world *world = task->world;

    return task->wants_more || task->is_woken || task->next_ns <= world->now_ns ||
           sim_io_has_news(world, task);
}

static struct task *
task_pick(struct sim_world *world)
{
    uint32_t count = 0;
    uint32_t pick;

    for (struct task *task = world->tasks; task != NULL; task = task->next)
        count += task_is_runnable(task);
    if (count == 0)
        return NULL;
    pick = rng_below(&world->sched_rng, count);
    for (struct task *task = world->tasks; task != NULL; task = task->next) {
        if (task_is_runnable(task) && pick-- == 0)
            return task;
    }
    return NULL;
}

static uint64_t
task_position(const struct sim_world *world, const struct task *wanted)
{
    uint64_t position = 0;

    for (const struct task *task = world->tasks; task != wanted; task = task->next)
        position++;
    return position;
}

/* On a thread such an actor turns without a pause and takes a processor from the others. */
static void
restless_check(struct sim_world *world, struct task *task)
{
    bool is_restless = !task->wants_more && task->next_ns <= world->now_ns;

    task->restless_count = is_restless ? task->restless_count + 1 : 0;
    if (task->restless_count > RESTLESS_LIMIT)
        sim_panic(world,
            "actor '%s' does nothing, and asks again and again for a time that has come",
            task->actor.name);
}

static void
task_step(struct sim_world *world, struct task *task)
{
    struct proof_handler before = proof_handler_set(task->proof_handler);
    uint64_t next_ns = UINT64_MAX;

    if (++world->step_count > STEP_LIMIT)
        sim_panic(world, "%llu steps: actor '%s' never comes to rest",
            (unsigned long long)STEP_LIMIT, task->actor.name);
    sim_trace_mix(world, TRACE_STEP, task_position(world, task));
    task->is_woken = false;
    world->current = task;
    task->wants_more = task->actor.step(task->actor.context, world->now_ns, &next_ns);
    task->next_ns = next_ns;
    restless_check(world, task);
    /* As a thread would: park when there is nothing to do. The queue's wait() returns at once. */
    if (!task->wants_more && task->actor.park != NULL)
        task->actor.park(task->actor.context, world->now_ns, next_ns);
    world->current = NULL;
    (void)proof_handler_set(before);
    world->now_ns += STEP_NS_MIN + rng_below(&world->sched_rng, STEP_NS_SPREAD);
}

static uint64_t
next_moment(const struct sim_world *world)
{
    uint64_t next_ns = sim_io_next_ns(world);

    for (const struct task *task = world->tasks; task != NULL; task = task->next) {
        if (task->next_ns < next_ns)
            next_ns = task->next_ns;
    }
    return next_ns;
}

/* One step, or one jump of the clock (never beyond `until_ns`). False: nothing can ever happen. */
static bool
world_advance(struct sim_world *world, uint64_t until_ns)
{
    struct task *task;
    uint64_t next_ns;

    sim_io_advance(world);
    task = task_pick(world);
    if (task != NULL) {
        task_step(world, task);
        return true;
    }
    next_ns = next_moment(world);
    if (next_ns > until_ns)
        next_ns = until_ns;
    if (next_ns == UINT64_MAX)
        return false;
    if (next_ns > world->now_ns)
        world->now_ns = next_ns;
    sim_trace_mix(world, TRACE_CLOCK, world->now_ns);
    return true;
}

static void
sched_gate_wait(void *context, struct gate *gate, uint32_t seen, uint64_t until_ns)
{
    struct sim_world *world = context;

    if (world->current != NULL)
        sim_panic(world, "actor '%s' waits inside its step", world->current->actor.name);
    while (atomic_load_explicit(&gate->value, memory_order_acquire) == seen &&
           world->now_ns < until_ns) {
        if (!world_advance(world, until_ns)) {
            if (++world->stuck_count > STUCK_LIMIT)
                sim_panic(world, "stuck: a caller waits and nothing can ever happen");
            return;
        }
    }
}

const struct sched_ops sim_sched_ops = {
    .start = sched_start,
    .wake = sched_wake,
    .stop = sched_stop,
    .gate_wait = sched_gate_wait,
    .gate_post = sched_gate_post,
    .signal_open = sched_signal_open,
    .signal_post = sched_signal_ignore,
    .signal_clear = sched_signal_ignore,
    .signal_close = sched_signal_close,
};

/* --- 3. The test's side ----------------------------------------------------------------------- */

/* With no time given, timers alone are no reason to go on. */
static bool
is_at_rest(struct sim_world *world)
{
    sim_io_advance(world);
    if (sim_io_next_ns(world) != UINT64_MAX)
        return false;
    for (const struct task *task = world->tasks; task != NULL; task = task->next) {
        if (task_is_runnable(task))
            return false;
    }
    return true;
}

enum sim_outcome
sim_run(struct sim_world *world, bool (*done)(void *context), void *context, uint64_t until_ns)
{
    for (;;) {
        if (world->is_crashed)
            return SIM_CRASHED;
        if (done != NULL && done(context))
            return SIM_DONE;
        if (world->now_ns >= until_ns)
            return SIM_TIME;
        if (until_ns == UINT64_MAX && is_at_rest(world))
            return SIM_IDLE;
        world_advance(world, until_ns);
    }
}

enum sim_outcome
sim_run_for(struct sim_world *world, uint64_t duration_ns)
{
    return sim_run(world, NULL, NULL, world->now_ns + duration_ns);
}

void
sim_run_steps(struct sim_world *world, uint32_t count)
{
    while (count-- > 0 && !is_at_rest(world))
        world_advance(world, UINT64_MAX);
}

uint64_t
sim_step_count(const struct sim_world *world)
{
    return world->step_count;
}

bool
sim_stuck(const struct sim_world *world)
{
    return world->stuck_count > 0;
}

uint64_t
sim_task_count(const struct sim_world *world)
{
    uint64_t count = 0;

    for (const struct task *task = world->tasks; task != NULL; task = task->next)
        count++;
    return count;
}

void
sim_tasks_clear(struct sim_world *world)
{
    while (world->tasks != NULL) {
        struct task *task = world->tasks;

        world->tasks = task->next;
        free(task);
    }
}
