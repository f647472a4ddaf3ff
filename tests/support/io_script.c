/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_script.c - the scripted io queue and the scheduler that is stepped by hand.
 */
#include "io_script.h"

#include <stdlib.h>
#include <string.h>

#include "failure.h"

struct io_queue {
    struct io_script *script;
};

/* Tasks are only names here. */
struct task {
    struct io_script *script;
    bool is_lane;
};

/* A broken promise of the code under test. */
static void
script_require(bool is_true)
{
    if (!is_true)
        abort();
}

static uint64_t
script_now(void *context)
{
    const struct io_script *script = context;

    return script->now_ns;
}

static const struct clock_ops script_clock = {.now_ns = script_now, .wall_ns = script_now};

/* --- Memory ----------------------------------------------------------------------------------- */

static void *
script_take(void *context, size_t size)
{
    struct io_script *script = context;

    if (script->memory_left == 0)
        return NULL;
    if (script->memory_left != UINT32_MAX)
        script->memory_left--;
    return env_take(&script->host, size);
}

static void
script_put(void *context, void *memory, size_t size)
{
    struct io_script *script = context;

    env_put(&script->host, memory, size);
}

static const struct memory_ops script_memory = {.take = script_take, .put = script_put};

/* --- Tasks ------------------------------------------------------------------------------------ */

static enum kvt_status
script_start(void *context, const struct actor *actor, struct task **task_out)
{
    struct io_script *script = context;
    struct task *task;

    *task_out = NULL;
    if (script->refuses_task)
        return failure_set(KVT_E_NOMEM, 0, "The script refuses the task.");
    task = calloc(1, sizeof(*task));
    script_require(task != NULL);
    task->script = script;
    task->is_lane = true;
    script->actor = *actor;
    script->is_started = true;
    *task_out = task;
    return KVT_OK;
}

static void
script_wake(void *context, struct task *task)
{
    struct io_script *script = context;

    if (task->is_lane) {
        script->actor.wake(script->actor.context);
        return;
    }
    script->user_wakes++;
    if (script->user_woken != NULL)
        script->user_woken(script->user_context);
}

static void
script_stop(void *context, struct task *task)
{
    struct io_script *script = context;

    script->is_started = false;
    free(task);
}

/* The lane goes on meanwhile, and what is in flight ends, the newest first. */
static void
script_gate_wait(void *context, struct gate *gate, uint32_t seen, uint64_t until_ns)
{
    struct io_script *script = context;

    (void)until_ns;
    io_script_step(script);
    while (atomic_load_explicit(&gate->value, memory_order_acquire) == seen) {
        uint32_t last = script->flying_count - 1;

        script_require(script->flying_count > 0);
        io_script_answer(script, last, (int64_t)io_script_size(script, last));
        io_script_step(script);
    }
}

static void
script_gate_post(void *context, struct gate *gate)
{
    (void)context;
    atomic_fetch_add_explicit(&gate->value, 1, memory_order_release);
}

static const struct sched_ops script_sched = {
    .start = script_start,
    .wake = script_wake,
    .stop = script_stop,
    .gate_wait = script_gate_wait,
    .gate_post = script_gate_post,
};

struct task *
io_script_task(struct io_script *script)
{
    struct task *task = calloc(1, sizeof(*task));

    script_require(task != NULL);
    task->script = script;
    return task;
}

/* --- The queue -------------------------------------------------------------------------------- */

static enum kvt_status
script_open(void *context, uint32_t depth, struct io_queue **queue_out)
{
    struct io_script *script = context;

    *queue_out = NULL;
    if (script->refuses_queue)
        return failure_set(KVT_E_UNSUPPORTED, 0, "The script refuses the queue.");
    script_require(depth <= SCRIPT_OPS_MAX);
    *queue_out = calloc(1, sizeof(**queue_out));
    script_require(*queue_out != NULL);
    (*queue_out)->script = script;
    script->is_queue_open = true;
    return KVT_OK;
}

static void
script_close(struct io_queue *queue)
{
    script_require(queue->script->flying_count == 0 && queue->script->done_count == 0);
    queue->script->is_queue_open = false;
    free(queue);
}

static void
script_adopt(struct io_queue *queue, void *memory, size_t size)
{
    queue->script->adopted = memory;
    queue->script->adopted_size = size;
}

static size_t
script_submit(struct io_queue *queue, const struct io_op *const *ops, size_t count)
{
    struct io_script *script = queue->script;
    uint32_t limit = script->take_limit == 0 ? SCRIPT_OPS_MAX : script->take_limit;
    size_t taken = 0;

    while (taken < count && script->flying_count < limit) {
        for (uint32_t i = 0; i < script->flying_count; i++)
            script_require(script->flying[i]->id != ops[taken]->id);
        script_require(ops[taken]->piece_count <= IO_PIECES_MAX);
        script->flying[script->flying_count++] = ops[taken++];
        script->submit_count++;
    }
    return taken;
}

static size_t
script_reap(struct io_queue *queue, struct io_done *done, size_t count_max)
{
    struct io_script *script = queue->script;
    size_t count = script->done_count < count_max ? script->done_count : count_max;

    memcpy(done, script->done, count * sizeof(*done));
    script->done_count -= (uint32_t)count;
    memmove(script->done, script->done + count, script->done_count * sizeof(*done));
    return count;
}

static void
script_wait(struct io_queue *queue, uint64_t now_ns, uint64_t until_ns)
{
    (void)queue;
    (void)now_ns;
    (void)until_ns;
}

static void
script_wake_queue(struct io_queue *queue)
{
    queue->script->wake_count++;
}

static const struct io_ops script_ops = {
    .name = "script",
    .open = script_open,
    .close = script_close,
    .adopt = script_adopt,
    .submit = script_submit,
    .reap = script_reap,
    .wait = script_wait,
    .wake = script_wake_queue,
};

/* --- For the test ----------------------------------------------------------------------------- */

void
io_script_init(struct io_script *script)
{
    memset(script, 0, sizeof(*script));
    env_host(&script->host);
    script->env = script->host;
    script->env.clock = &script_clock;
    script->env.clock_context = script;
    script->env.memory = &script_memory;
    script->env.memory_context = script;
    script->env.sched = &script_sched;
    script->env.sched_context = script;
    script->env.io = &script_ops;
    script->env.io_context = script;
    script->now_ns = 1000;
    script->memory_left = UINT32_MAX;
}

void
io_script_step(struct io_script *script)
{
    bool has_more = true;

    script->wake_count = 0;
    while (has_more) {
        script->next_ns = UINT64_MAX;
        has_more = script->actor.step(script->actor.context, script->now_ns, &script->next_ns);
    }
    script->actor.park(script->actor.context, script->now_ns, script->next_ns);
}

uint64_t
io_script_size(const struct io_script *script, uint32_t index)
{
    const struct io_op *op = script->flying[index];
    uint64_t size = 0;

    for (uint32_t i = 0; i < op->piece_count; i++)
        size += op->pieces[i].iov_len;
    return size;
}

void
io_script_answer(struct io_script *script, uint32_t index, int64_t result)
{
    script_require(index < script->flying_count);
    script->done[script->done_count++] = (struct io_done){script->flying[index]->id, result};
    script->flying_count--;
    memmove(&script->flying[index], &script->flying[index + 1],
        (script->flying_count - index) * sizeof(script->flying[0]));
}
