/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvme_tier.c - life, vtable and step of the NVME tier.
 *
 * The work is in nvme_put.c (batches), nvme_get.c (reads), nvme_files.c (data files) and
 * nvme_scan.c (rebuild).
 */
#include "nvme_tier.h"

#include <stdio.h>

#include "bytes.h"
#include "failure.h"
#include "nvme_internal.h"
#include "try.h"

enum {
    SEGMENT_PAGES_MIN = 256, /* FORMAT.md section 3.1. */
    SEGMENT_PAGES_MAX = 262144,
};

static struct nvme_tier *
nvme_of(struct tier *tier)
{
    return (struct nvme_tier *)(void *)tier;
}

enum kvt_status
nvme_block_check(const struct tier_block *block, uint32_t index)
{
    uint32_t pages = pages_of(block->record.stored_length);

    if (block->tail_pages > pages ||
        (block->tail_pages > 0 &&
            (block->tail == NULL || (uintptr_t)block->tail % PAGE_BYTES != 0)))
        return failure_set(KVT_E_INVAL, 0,
            "nvme tier: the tail of block %u is not aligned to 4096, or longer than the block",
            index);
    if (block->tail_pages == pages && pages > 0)
        return KVT_OK;
    if (block->memory == NULL || (uintptr_t)block->memory % PAGE_BYTES != 0)
        return failure_set(
            KVT_E_INVAL, 0, "nvme tier: the memory of block %u is not aligned to 4096", index);
    return KVT_OK;
}

void
nvme_op_init(
    struct nvme_tier *nvme, struct nvme_op *op, enum nvme_op_kind kind, struct nvme_root *root)
{
    memset(op, 0, sizeof(*op));
    op->kind = kind;
    op->transfer.class = LANE_BULK;
    op->transfer.file = root->file;
    op->transfer.done = &nvme->inbox;
    op->transfer.done_task =
        nvme->options.loop_task == NULL ? &nvme->nobody : nvme->options.loop_task;
    switch (kind) {
    case NVME_OP_WRITE:
        op->transfer.kind = IO_WRITE;
        break;
    case NVME_OP_SYNC:
        op->transfer.kind = IO_SYNC;
        break;
    case NVME_OP_READ:
        op->transfer.kind = IO_READ;
        break;
    }
}

/* --- Step ------------------------------------------------------------------------------------- */

static void
op_done(struct nvme_tier *nvme, struct nvme_op *op)
{
    switch (op->kind) {
    case NVME_OP_WRITE:
        nvme_put_written(nvme, CONTAINER_OF(op, struct nvme_put, op));
        break;
    case NVME_OP_SYNC:
        nvme_put_synced(nvme, CONTAINER_OF(op, struct nvme_root, sync));
        break;
    case NVME_OP_READ:
        nvme_read_done(nvme, CONTAINER_OF(op, struct nvme_read, op));
        break;
    }
}

bool
nvme_step(struct nvme_tier *nvme)
{
    struct inbox_node *node = inbox_take(&nvme->inbox);
    bool has_work = node != NULL;

    while (node != NULL) {
        struct inbox_node *next = node->next;
        struct transfer *transfer = CONTAINER_OF(node, struct transfer, node);

        op_done(nvme, CONTAINER_OF(transfer, struct nvme_op, transfer));
        node = next;
    }
    if (has_work) {
        nvme_syncs_start(nvme);
        nvme_puts_answer(nvme);
    }
    return has_work;
}

/* --- The vtable ------------------------------------------------------------------------------- */

static enum kvt_status
nvme_put(struct tier *tier, struct tier_batch *batch)
{
    return nvme_put_start(
        nvme_of(tier), batch, nvme_of(tier)->options.reserve_count, NVME_ROOT_NONE);
}

enum kvt_status
nvme_put_reserved(struct nvme_tier *nvme, struct tier_batch *batch, uint32_t last_of)
{
    return nvme_put_start(nvme, batch, 1, last_of);
}

static enum kvt_status
nvme_get(struct tier *tier, struct tier_batch *batch)
{
    return nvme_get_start(nvme_of(tier), batch);
}

static void
nvme_drop(struct tier *tier, const struct tier_place *place)
{
    /* Extents are not reused one by one: the segment is, when the engine recycles it. */
    (void)tier;
    (void)place;
}

static void
nvme_usage(struct tier *tier, struct tier_usage *usage_out)
{
    struct nvme_tier *nvme = nvme_of(tier);
    uint64_t segment_bytes = (uint64_t)nvme->options.segment_pages * PAGE_BYTES;

    *usage_out = (struct tier_usage){0};
    for (uint32_t i = 0; i < nvme->root_count; i++) {
        const struct nvme_root *root = &nvme->roots[i];
        uint64_t free_count = segment_count_in(nvme->table, i, SEGMENT_FREE);
        uint64_t reserve_count = nvme->options.reserve_count;
        const struct segment *active = segment_active(nvme->table, i);

        usage_out->capacity_bytes += root->segment_count * segment_bytes;
        usage_out->used_bytes += (root->segment_count - free_count) * segment_bytes;
        if (root->is_read_only)
            continue;
        if (free_count > reserve_count)
            usage_out->free_bytes += (free_count - reserve_count) * segment_bytes;
        if (active != NULL && free_count >= reserve_count)
            usage_out->free_bytes +=
                (uint64_t)(nvme->options.segment_pages - active->fill_page) * PAGE_BYTES;
    }
}

static void
nvme_close(struct tier *tier)
{
    struct nvme_tier *nvme = nvme_of(tier);

    if (nvme == NULL)
        return;
    KVT_ASSERT(nvme->put_first == NULL);
    for (uint32_t i = 0; i < nvme->root_count; i++) {
        lane_close(nvme->roots[i].lane);
        nvme_file_close(nvme, i);
    }
    nvme_reads_deinit(nvme);
    nvme_puts_deinit(nvme);
    nvme_scan_deinit(nvme);
    segment_table_close(nvme->table);
    env_put(nvme->env, nvme, sizeof(*nvme));
}

static const struct tier_ops nvme_ops = {
    .name = "nvme",
    .put = nvme_put,
    .get = nvme_get,
    .drop = nvme_drop,
    .usage = nvme_usage,
    .close = nvme_close,
};

/* --- Opening ---------------------------------------------------------------------------------- */

static enum kvt_status
options_check(const struct nvme_options *options)
{
    uint32_t pages = options->segment_pages;

    if (options->root_count == 0 || options->root_count > NVME_ROOTS_MAX)
        return failure_set(KVT_E_INVAL, 0, "nvme tier: %u roots, allowed are 1..%d",
            options->root_count, NVME_ROOTS_MAX);
    if (pages < SEGMENT_PAGES_MIN || pages > SEGMENT_PAGES_MAX || (pages & (pages - 1)) != 0)
        return failure_set(KVT_E_INVAL, 0,
            "nvme tier: segments of %u pages, allowed are powers of two in %d..%d", pages,
            SEGMENT_PAGES_MIN, SEGMENT_PAGES_MAX);
    return KVT_OK;
}

/* Two roots in one file would write over each other's blocks, whatever their paths are. */
static enum kvt_status
root_is_another(const struct nvme_tier *nvme, uint32_t number)
{
    const struct nvme_root *root = &nvme->roots[number];

    for (uint32_t i = 0; i < number; i++) {
        if (nvme->roots[i].file != NULL && nvme->env->fs->is_same(root->file, nvme->roots[i].file))
            return failure_set(KVT_E_INVAL, 0, "roots %u and %u are one folder: %s", i, number,
                nvme->env->fs->dir_path(root->dir));
    }
    return KVT_OK;
}

static enum kvt_status
root_find(struct nvme_tier *nvme, uint32_t number)
{
    struct nvme_root *root = &nvme->roots[number];

    root->dir = nvme->options.roots[number];
    root->is_read_only = nvme->options.read_only;
    nvme->root_count = number + 1; /* From here on nvme_close() closes it. */
    return nvme_file_find(nvme, number);
}

static enum kvt_status
root_open(struct nvme_tier *nvme, uint32_t number)
{
    struct nvme_root *root = &nvme->roots[number];
    char name[24];

    KVT_TRY(nvme_file_ready(nvme, number));
    if (root->file == NULL)
        return KVT_OK;
    KVT_TRY(root_is_another(nvme, number));
    (void)snprintf(name, sizeof(name), "kvt-io-%u", number);
    return lane_open(nvme->env, name, nvme->options.arena, nvme->options.arena_size, &root->lane);
}

enum kvt_status
nvme_open(
    const struct kvt_env *env, const struct nvme_options *options, struct nvme_tier **nvme_out)
{
    uint32_t counts[NVME_ROOTS_MAX] = {0};
    struct nvme_tier *nvme;
    enum kvt_status status;

    *nvme_out = NULL;
    KVT_TRY(options_check(options));
    nvme = env_take(env, sizeof(*nvme));
    if (nvme == NULL)
        return failure_set(KVT_E_NOMEM, 0, "nvme tier: no memory for %zu bytes", sizeof(*nvme));
    nvme->tier.ops = &nvme_ops;
    nvme->env = env;
    nvme->options = *options;
    KVT_TRY_GOTO(nvme_puts_init(nvme), close);
    for (uint32_t i = 0; i < options->root_count; i++)
        KVT_TRY_GOTO(root_find(nvme, i), close);
    for (uint32_t i = 0; i < options->root_count; i++) {
        KVT_TRY_GOTO(root_open(nvme, i), close);
        counts[i] = nvme->roots[i].segment_count;
    }
    KVT_TRY_GOTO(
        segment_table_open(env, options->root_count, counts, options->segment_pages, &nvme->table),
        close);
    *nvme_out = nvme;
    return KVT_OK;
close:
    nvme_close(&nvme->tier);
    return status;
}

/* --- Looking at it ---------------------------------------------------------------------------- */

struct tier *
nvme_as_tier(struct nvme_tier *nvme)
{
    return &nvme->tier;
}

struct segment_table *
nvme_segments(struct nvme_tier *nvme)
{
    return nvme->table;
}

void
nvme_caps_get(struct nvme_tier *nvme, struct nvme_caps *caps_out)
{
    *caps_out = (struct nvme_caps){.io_engine = nvme->env->io->name};
    for (uint32_t i = 0; i < nvme->root_count; i++) {
        caps_out->align_bytes[i] = nvme->roots[i].align_bytes;
        caps_out->is_direct[i] = nvme->roots[i].is_direct;
        caps_out->is_read_only[i] = nvme->roots[i].is_read_only;
    }
}

bool
nvme_root_is_writable(const struct nvme_tier *nvme, uint32_t root)
{
    return !nvme->roots[root].is_read_only;
}

void
nvme_lane_stats(struct nvme_tier *nvme, uint32_t root, struct lane_stats *stats_out)
{
    *stats_out = (struct lane_stats){0};
    if (root < nvme->root_count && nvme->roots[root].lane != NULL)
        lane_stats_get(nvme->roots[root].lane, stats_out);
}
