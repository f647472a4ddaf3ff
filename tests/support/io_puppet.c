/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_puppet.c - the scripted io engine.
 */
#include "io_puppet.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "bytes.h"
#include "failure.h"

enum {
    KINDS = 3,
    DONE_MAX = 4096,
};

struct puppet_rule {
    uint32_t fail_skip, fail_count;
    int fail_error;
    uint32_t shorten_count;
    bool is_held;
    const struct fs_file *held_file;
    uint32_t submit_count;
    uint32_t held_count;
};

struct io_puppet {
    pthread_mutex_t lock; /* Guards the rules, and everything in the queues. */
    struct gate changed;
    struct kvt_env env; /* The host's, for its gates and its clock. */
    struct puppet_rule rules[KINDS];
};

struct io_queue {
    struct io_puppet *script;
    struct io_done done[DONE_MAX];
    uint32_t done_count;
    const struct io_op *held[DONE_MAX];
    uint32_t held_count;
    bool is_woken;
};

/* --- Operations ------------------------------------------------------------------------------- */

static int64_t
op_run(struct puppet_rule *rule, const struct io_op *op)
{
    struct iovec page;
    const struct iovec *pieces = op->pieces;
    int count = (int)op->piece_count;
    ssize_t result;

    if (rule->fail_skip > 0) {
        rule->fail_skip--;
    } else if (rule->fail_count > 0) {
        rule->fail_count--;
        return -rule->fail_error;
    }
    if (op->kind == IO_SYNC)
        return fdatasync(op->file->descriptor) == 0 ? 0 : -errno;
    if (rule->shorten_count > 0) {
        rule->shorten_count--;
        page = op->pieces[0];
        page.iov_len = page.iov_len < PAGE_BYTES ? page.iov_len : PAGE_BYTES;
        pieces = &page;
        count = 1;
    }
    if (op->kind == IO_READ)
        result = preadv(op->file->descriptor, pieces, count, (off_t)op->offset);
    else
        result = pwritev(op->file->descriptor, pieces, count, (off_t)op->offset);
    return result < 0 ? -errno : result;
}

static void
op_finish(struct io_queue *queue, const struct io_op *op)
{
    struct io_done *done = &queue->done[queue->done_count++];

    done->id = op->id;
    done->result = op_run(&queue->script->rules[op->kind], op);
}

static bool
op_is_held(const struct io_puppet *script, const struct io_op *op)
{
    const struct puppet_rule *rule = &script->rules[op->kind];

    return rule->is_held && (rule->held_file == NULL || rule->held_file == op->file);
}

/* Finish what is not to be held any more. */
static void
held_review(struct io_queue *queue)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < queue->held_count; i++) {
        const struct io_op *op = queue->held[i];

        if (op_is_held(queue->script, op)) {
            queue->held[kept++] = op;
            continue;
        }
        queue->script->rules[op->kind].held_count--;
        op_finish(queue, op);
    }
    queue->held_count = kept;
}

/* --- The vtable ------------------------------------------------------------------------------- */

static enum kvt_status
puppet_open(void *context, uint32_t depth, struct io_queue **queue_out)
{
    struct io_queue *queue = calloc(1, sizeof(*queue));

    *queue_out = NULL;
    if (queue == NULL || depth > DONE_MAX) {
        free(queue);
        return failure_set(KVT_E_NOMEM, 0, "io_puppet: no memory");
    }
    queue->script = context;
    *queue_out = queue;
    return KVT_OK;
}

static void
puppet_close(struct io_queue *queue)
{
    free(queue);
}

static void
puppet_adopt(struct io_queue *queue, void *memory, size_t size)
{
    (void)queue;
    (void)memory;
    (void)size;
}

static size_t
puppet_submit(struct io_queue *queue, const struct io_op *const *ops, size_t count)
{
    struct io_puppet *script = queue->script;

    (void)pthread_mutex_lock(&script->lock);
    held_review(queue); /* What was submitted before goes first. */
    for (size_t i = 0; i < count; i++) {
        script->rules[ops[i]->kind].submit_count++;
        if (op_is_held(script, ops[i])) {
            script->rules[ops[i]->kind].held_count++;
            queue->held[queue->held_count++] = ops[i];
        } else {
            op_finish(queue, ops[i]);
        }
    }
    (void)pthread_mutex_unlock(&script->lock);
    return count;
}

static size_t
puppet_reap(struct io_queue *queue, struct io_done *done, size_t count_max)
{
    size_t count;

    (void)pthread_mutex_lock(&queue->script->lock);
    held_review(queue);
    count = queue->done_count < count_max ? queue->done_count : count_max;
    memcpy(done, queue->done, count * sizeof(*done));
    queue->done_count -= (uint32_t)count;
    memmove(queue->done, queue->done + count, queue->done_count * sizeof(*done));
    (void)pthread_mutex_unlock(&queue->script->lock);
    return count;
}

static void
puppet_wait(struct io_queue *queue, uint64_t now_ns, uint64_t until_ns)
{
    struct io_puppet *script = queue->script;
    uint32_t seen = atomic_load_explicit(&script->changed.value, memory_order_seq_cst);
    bool is_news;

    (void)now_ns;
    (void)until_ns;
    (void)pthread_mutex_lock(&script->lock);
    held_review(queue);
    is_news = queue->done_count > 0 || queue->is_woken;
    (void)pthread_mutex_unlock(&script->lock);
    /* Not longer than 10 ms, which covers every time that was asked for well enough. */
    if (!is_news)
        gate_wait(&script->env, &script->changed, seen, env_now(&script->env) + 10 * 1000 * 1000);
    (void)pthread_mutex_lock(&script->lock);
    queue->is_woken = false;
    (void)pthread_mutex_unlock(&script->lock);
}

static void
puppet_wake(struct io_queue *queue)
{
    (void)pthread_mutex_lock(&queue->script->lock);
    queue->is_woken = true;
    (void)pthread_mutex_unlock(&queue->script->lock);
    gate_post(&queue->script->env, &queue->script->changed);
}

const struct io_ops io_puppet_ops = {
    .name = "puppet",
    .open = puppet_open,
    .close = puppet_close,
    .adopt = puppet_adopt,
    .submit = puppet_submit,
    .reap = puppet_reap,
    .wait = puppet_wait,
    .wake = puppet_wake,
};

/* --- The script ------------------------------------------------------------------------------- */

struct io_puppet *
io_puppet_create(void)
{
    struct io_puppet *script = calloc(1, sizeof(*script));

    if (script == NULL)
        abort();
    (void)pthread_mutex_init(&script->lock, NULL);
    env_host(&script->env);
    return script;
}

void
io_puppet_destroy(struct io_puppet *script)
{
    (void)pthread_mutex_destroy(&script->lock);
    free(script);
}

void
io_puppet_fail(
    struct io_puppet *script, enum io_kind kind, uint32_t skip, uint32_t count, int error)
{
    (void)pthread_mutex_lock(&script->lock);
    script->rules[kind].fail_skip = skip;
    script->rules[kind].fail_count = count;
    script->rules[kind].fail_error = error;
    (void)pthread_mutex_unlock(&script->lock);
}

void
io_puppet_shorten(struct io_puppet *script, enum io_kind kind, uint32_t count)
{
    (void)pthread_mutex_lock(&script->lock);
    script->rules[kind].shorten_count = count;
    (void)pthread_mutex_unlock(&script->lock);
}

void
io_puppet_hold(struct io_puppet *script, enum io_kind kind, const struct fs_file *file)
{
    (void)pthread_mutex_lock(&script->lock);
    script->rules[kind].is_held = true;
    script->rules[kind].held_file = file;
    (void)pthread_mutex_unlock(&script->lock);
}

void
io_puppet_release(struct io_puppet *script, enum io_kind kind)
{
    (void)pthread_mutex_lock(&script->lock);
    script->rules[kind].is_held = false;
    (void)pthread_mutex_unlock(&script->lock);
    gate_post(&script->env, &script->changed);
}

uint32_t
io_puppet_count(struct io_puppet *script, enum io_kind kind)
{
    uint32_t count;

    (void)pthread_mutex_lock(&script->lock);
    count = script->rules[kind].submit_count;
    (void)pthread_mutex_unlock(&script->lock);
    return count;
}

uint32_t
io_puppet_held(struct io_puppet *script, enum io_kind kind)
{
    uint32_t count;

    (void)pthread_mutex_lock(&script->lock);
    count = script->rules[kind].held_count;
    (void)pthread_mutex_unlock(&script->lock);
    return count;
}
