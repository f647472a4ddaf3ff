/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_io.c - asynchronous transfers on simulated files: late, out of order, sometimes short.
 *
 * A write reaches the file when it completes, not when it is submitted, so that memory that was
 * reused too early is written as what it became. A sync covers the changes that were complete when
 * it was submitted. Completions become visible at their moments; their owner is then runnable.
 *
 * States of a transfer, and the function that makes each move:
 *
 *   queue_submit()            transfer_complete()           queue_reap()
 *     ----------> IN FLIGHT -----------------> COMPLETE ----------------> gone
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sim_world_internal.h"

enum {
    LATENCY_NS_MIN = 5000,
    LATENCY_NS_MAX = 400 * 1000, /* Unless the options say otherwise. */
    BYTES_PER_NS = 4,            /* What a large transfer costs besides. */
};

struct sim_transfer {
    struct io_op op; /* A copy; the pieces stay the caller's. */
    enum sim_effect effect;
    uint64_t due_ns;
    uint64_t order;
    uint64_t sync_up_to;
    bool is_complete;
    int64_t result;
};

struct io_queue {
    struct sim_world *world;
    struct io_queue *next;
    struct task *owner; /* Who submits and reaps; NULL: not yet known, or the test itself. */
    uint32_t depth;
    uint32_t count;
    uint64_t order;
    struct sim_transfer *transfers; /* depth of them; the first `count` are used. */
};

/* --- 1. Doing what was asked ------------------------------------------------------------------ */

static uint64_t
op_size(const struct io_op *op)
{
    uint64_t size = 0;

    for (uint32_t i = 0; i < op->piece_count; i++)
        size += op->pieces[i].iov_len;
    return size;
}

static bool
op_is_aligned(const struct io_op *op, uint32_t align)
{
    if (op->offset % align != 0)
        return false;
    for (uint32_t i = 0; i < op->piece_count; i++) {
        if ((uintptr_t)op->pieces[i].iov_base % align != 0 || op->pieces[i].iov_len % align != 0)
            return false;
    }
    return true;
}

static uint64_t
short_size(struct sim_world *world, const struct io_op *op, uint64_t size)
{
    uint32_t align = sim_align_of((const struct sim_handle *)op->file);
    uint64_t unit = align < SIM_SECTOR_BYTES ? SIM_SECTOR_BYTES : align;

    if (size <= unit)
        return size;
    return (1 + rng_next(&world->io_rng) % ((size - 1) / unit)) * unit;
}

static void
write_pieces(struct sim_world *world, struct sim_node *node, const struct io_op *op, uint64_t size)
{
    uint64_t offset = op->offset;

    for (uint32_t i = 0; i < op->piece_count && size > 0; i++) {
        size_t piece = op->pieces[i].iov_len < size ? op->pieces[i].iov_len : (size_t)size;

        disk_write(&world->disk, node, op->pieces[i].iov_base, offset, piece);
        offset += piece;
        size -= piece;
    }
}

static int64_t
transfer_write(struct sim_world *world, const struct sim_transfer *transfer)
{
    const struct io_op *op = &transfer->op;
    struct sim_node *node = ((struct sim_handle *)op->file)->node;
    uint64_t size = op_size(op);

    if (transfer->effect == SIM_TORN) {
        sim_torn_write(world, node, op->pieces, op->piece_count, op->offset);
        return -EIO;
    }
    if (transfer->effect == SIM_ARRIVES) {
        write_pieces(world, node, op, size);
        return -EIO;
    }
    if (!sim_space_for(world, node, op->offset + size))
        return -ENOSPC;
    if (transfer->effect == SIM_SHORT)
        size = short_size(world, op, size);
    write_pieces(world, node, op, size);
    return (int64_t)size;
}

static int64_t
transfer_read(struct sim_world *world, const struct sim_transfer *transfer)
{
    const struct io_op *op = &transfer->op;
    const struct sim_node *node = ((const struct sim_handle *)op->file)->node;
    uint64_t size = op_size(op);
    uint64_t offset = op->offset;
    uint64_t left;

    if (offset >= node->current.size)
        return 0;
    if (size > node->current.size - offset)
        size = node->current.size - offset;
    if (transfer->effect == SIM_SHORT)
        size = short_size(world, op, size);
    left = size;
    for (uint32_t i = 0; i < op->piece_count && left > 0; i++) {
        size_t piece = op->pieces[i].iov_len < left ? op->pieces[i].iov_len : (size_t)left;

        image_read(&node->current, offset, op->pieces[i].iov_base, piece);
        offset += piece;
        left -= piece;
    }
    if (transfer->effect == SIM_FLIP || transfer->effect == SIM_MISDIRECT ||
        transfer->effect == SIM_STALE)
        sim_read_spoil(world, node, transfer->effect, op->offset, op->pieces, op->piece_count);
    return (int64_t)size;
}

static int64_t
transfer_sync(struct sim_world *world, const struct sim_transfer *transfer)
{
    struct sim_node *node = ((struct sim_handle *)transfer->op.file)->node;

    if (transfer->effect == SIM_EIO || transfer->effect == SIM_TORN ||
        transfer->effect == SIM_ENOSPC) {
        disk_sync_lossy(&world->disk, node, transfer->sync_up_to, &world->fault_rng);
        return transfer->effect == SIM_ENOSPC ? -ENOSPC : -EIO;
    }
    disk_sync(node, transfer->sync_up_to);
    return 0;
}

static int64_t
transfer_perform(struct sim_world *world, const struct sim_transfer *transfer)
{
    if (transfer->effect == SIM_EINTR)
        return -EINTR;
    if (transfer->effect == SIM_EAGAIN)
        return -EAGAIN;
    if (transfer->op.kind == IO_SYNC)
        return transfer_sync(world, transfer);
    if (transfer->effect == SIM_EIO)
        return -EIO;
    if (transfer->effect == SIM_ENOSPC)
        return -ENOSPC;
    if (transfer->effect == SIM_ENOMEM)
        return -ENOMEM;
    if (transfer->op.kind == IO_WRITE)
        return transfer_write(world, transfer);
    if (transfer->effect == SIM_TORN)
        return -EIO;
    if (sim_read_is_refused((const struct sim_handle *)transfer->op.file))
        return -EINVAL;
    return transfer_read(world, transfer);
}

static void
transfer_complete(struct sim_world *world, struct sim_transfer *transfer)
{
    transfer->result = world->is_crashed ? -EIO : transfer_perform(world, transfer);
    transfer->is_complete = true;
    sim_trace_mix(world, TRACE_DONE, transfer->op.id * 31 + (uint64_t)transfer->result);
}

/* --- 2. Queues -------------------------------------------------------------------------------- */

static enum kvt_status
queue_open(void *context, uint32_t depth, struct io_queue **queue_out)
{
    struct sim_world *world = context;
    struct io_queue *queue = calloc(1, sizeof(*queue));
    struct io_queue **end = &world->queues;

    *queue_out = NULL;
    if (queue == NULL || depth == 0)
        sim_panic(world, "no memory for a queue of depth %u", depth);
    queue->transfers = calloc(depth, sizeof(queue->transfers[0]));
    if (queue->transfers == NULL)
        sim_panic(world, "no memory for a queue of depth %u", depth);
    queue->world = world;
    queue->depth = depth;
    while (*end != NULL)
        end = &(*end)->next;
    *end = queue;
    *queue_out = queue;
    return KVT_OK;
}

static void
queue_free(struct io_queue *queue)
{
    free(queue->transfers);
    free(queue);
}

static void
queue_close(struct io_queue *queue)
{
    struct io_queue **link;

    if (queue == NULL)
        return;
    if (queue->count > 0)
        sim_panic(queue->world, "a queue is closed with %u transfers in flight", queue->count);
    link = &queue->world->queues;
    while (*link != queue)
        link = &(*link)->next;
    *link = queue->next;
    queue_free(queue);
}

static void
queue_adopt(struct io_queue *queue, void *memory, size_t size)
{
    (void)memory;
    if (queue->order > 0)
        sim_panic(queue->world, "adopt() of %zu bytes behind the first submit", size);
}

static void
queue_own(struct io_queue *queue)
{
    struct sim_world *world = queue->world;

    if (world->current == NULL)
        return;
    if (queue->owner == NULL)
        queue->owner = world->current;
    if (queue->owner != world->current)
        sim_panic(world, "a queue is used by two actors");
}

static enum sim_effect
chance_effect(struct sim_world *world, const struct io_op *op)
{
    const struct sim_options *options = &world->options;

    if (op->kind == IO_SYNC)
        return SIM_NOTHING; /* Nobody may repeat a sync. */
    if (rng_below(&world->io_rng, 1000) < options->retry_per_mille)
        return rng_below(&world->io_rng, 2) == 0 ? SIM_EINTR : SIM_EAGAIN;
    if (rng_below(&world->io_rng, 1000) < options->short_per_mille)
        return SIM_SHORT;
    return SIM_NOTHING;
}

static void
op_check(const struct io_queue *queue, const struct io_op *op)
{
    if (op->piece_count > IO_PIECES_MAX)
        sim_panic(queue->world, "an operation of %u pieces", op->piece_count);
    if ((op->kind == IO_SYNC) != (op->piece_count == 0))
        sim_panic(
            queue->world, "an operation of kind %d with %u pieces", (int)op->kind, op->piece_count);
    for (uint32_t i = 0; i < queue->count; i++) {
        if (queue->transfers[i].op.id == op->id)
            sim_panic(queue->world, "two operations with the id %llu", (unsigned long long)op->id);
    }
}

static enum sim_op
op_class(const struct io_op *op)
{
    switch (op->kind) {
    case IO_READ:
        return SIM_READ;
    case IO_WRITE:
        return SIM_WRITE;
    case IO_SYNC:
        return SIM_SYNC;
    }
    return SIM_ALL;
}

static void
transfer_start(struct io_queue *queue, const struct io_op *op)
{
    struct sim_world *world = queue->world;
    const struct sim_handle *handle = (const struct sim_handle *)op->file;
    struct sim_transfer *transfer = &queue->transfers[queue->count];
    uint64_t spread = world->options.latency_ns_max;

    op_check(queue, op);
    memset(transfer, 0, sizeof(*transfer));
    transfer->op = *op;
    transfer->order = ++queue->order;
    transfer->due_ns = world->now_ns + LATENCY_NS_MIN + op_size(op) / BYTES_PER_NS +
                       rng_next(&world->io_rng) % (spread == 0 ? LATENCY_NS_MAX : spread);
    transfer->sync_up_to = world->disk.change_count;
    queue->count++;
    if (!world->is_crashed) {
        struct sim_verdict verdict =
            sim_verdict_of(world, op_class(op), handle->name, handle->node);

        transfer->effect = verdict.effect;
        transfer->due_ns += verdict.stall_ns;
        if (transfer->effect == SIM_NOTHING)
            transfer->effect = chance_effect(world, op);
    }
    if (!op_is_aligned(op, sim_align_of(handle))) {
        transfer->is_complete = true;
        transfer->result = -EINVAL;
    }
}

static size_t
queue_submit(struct io_queue *queue, const struct io_op *const *ops, size_t count)
{
    size_t taken = 0;

    queue_own(queue);
    while (taken < count && queue->count < queue->depth)
        transfer_start(queue, ops[taken++]);
    return taken;
}

/* Out of order: whichever comes first by seed. */
static size_t
queue_reap(struct io_queue *queue, struct io_done *done, size_t count_max)
{
    struct sim_world *world = queue->world;
    size_t reaped = 0;
    uint32_t start = rng_below(&world->io_rng, queue->count);

    queue_own(queue);
    sim_io_advance(world);
    for (uint32_t seen = 0, i = start; seen < queue->count && reaped < count_max;) {
        if (i >= queue->count)
            i = 0;
        if (!queue->transfers[i].is_complete) {
            seen++;
            i++;
            continue;
        }
        done[reaped].id = queue->transfers[i].op.id;
        done[reaped++].result = queue->transfers[i].result;
        queue->transfers[i] = queue->transfers[--queue->count];
        seen = 0;
    }
    return reaped;
}

static void
queue_wait(struct io_queue *queue, uint64_t now_ns, uint64_t until_ns)
{
    (void)now_ns;
    (void)until_ns;
    queue_own(queue);
}

static void
queue_wake(struct io_queue *queue)
{
    (void)queue; /* The task was woken by whoever calls this; wait() never blocks. */
}

const struct io_ops sim_io_ops = {
    .name = "sim",
    .open = queue_open,
    .close = queue_close,
    .adopt = queue_adopt,
    .submit = queue_submit,
    .reap = queue_reap,
    .wait = queue_wait,
    .wake = queue_wake,
};

/* --- 3. Time and the end of it ---------------------------------------------------------------- */

static struct sim_transfer *
earliest_in_flight(const struct sim_world *world)
{
    struct sim_transfer *first = NULL;

    for (struct io_queue *queue = world->queues; queue != NULL; queue = queue->next) {
        for (uint32_t i = 0; i < queue->count; i++) {
            struct sim_transfer *each = &queue->transfers[i];

            if (each->is_complete)
                continue;
            if (first == NULL || each->due_ns < first->due_ns ||
                (each->due_ns == first->due_ns && each->order < first->order))
                first = each;
        }
    }
    return first;
}

bool
sim_io_advance(struct sim_world *world)
{
    bool something = false;

    for (;;) {
        struct sim_transfer *transfer = earliest_in_flight(world);

        if (transfer == NULL || transfer->due_ns > world->now_ns)
            return something;
        transfer_complete(world, transfer);
        something = true;
    }
}

uint64_t
sim_io_next_ns(const struct sim_world *world)
{
    const struct sim_transfer *transfer = earliest_in_flight(world);

    return transfer == NULL ? UINT64_MAX : transfer->due_ns;
}

/* A write in flight becomes one more unsynced change, which the cut keeps, tears or drops. */
void
sim_io_freeze(struct sim_world *world)
{
    for (struct io_queue *queue = world->queues; queue != NULL; queue = queue->next) {
        for (uint32_t i = 0; i < queue->count; i++) {
            struct sim_transfer *each = &queue->transfers[i];
            struct sim_node *node = ((struct sim_handle *)each->op.file)->node;

            if (!each->is_complete && each->op.kind == IO_WRITE && each->effect == SIM_NOTHING &&
                rng_below(&world->cut_rng, 4) != 0)
                write_pieces(world, node, &each->op, op_size(&each->op));
        }
    }
}

void
sim_queues_clear(struct sim_world *world)
{
    while (world->queues != NULL) {
        struct io_queue *queue = world->queues;

        world->queues = queue->next;
        queue_free(queue);
    }
}

uint64_t
sim_queue_count(const struct sim_world *world)
{
    uint64_t count = 0;

    for (const struct io_queue *queue = world->queues; queue != NULL; queue = queue->next)
        count++;
    return count;
}

bool
sim_io_has_news(const struct sim_world *world, const struct task *task)
{
    for (const struct io_queue *queue = world->queues; queue != NULL; queue = queue->next) {
        if (queue->owner != task)
            continue;
        for (uint32_t i = 0; i < queue->count; i++) {
            if (queue->transfers[i].is_complete)
                return true;
        }
    }
    return false;
}
