/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvme_get.c - reads of the NVME tier: one transfer a block, from a pool that grows.
 *
 * Whether the bytes are right is the caller's to prove; here only places are checked, and that a
 * segment is not reused while a read of it is in flight (reader_count).
 */
#include "bytes.h"
#include "failure.h"
#include "nvme_internal.h"
#include "try.h"

/* Transfers of a batch that are still out; `tier_private` is ours while the batch is. */
static void
left_set(struct tier_batch *batch, uint32_t left)
{
    batch->tier_private = (void *)(uintptr_t)left; /* NOLINT: a number, not an address. */
}

static uint32_t
left_get(const struct tier_batch *batch)
{
    return (uint32_t)(uintptr_t)batch->tier_private;
}

/* --- The pool --------------------------------------------------------------------------------- */

static enum kvt_status
pool_reserve(struct nvme_tier *nvme, uint32_t count)
{
    while (nvme->read_pool_count < count) {
        struct nvme_read_chunk *chunk = env_take(nvme->env, sizeof(*chunk));

        if (chunk == NULL)
            return failure_set(KVT_E_NOMEM, 0, "nvme tier: no memory for %u more reads", count);
        chunk->next = nvme->read_chunks;
        nvme->read_chunks = chunk;
        for (uint32_t i = 0; i < NVME_READS_CHUNK; i++) {
            chunk->reads[i].next = nvme->read_pool;
            nvme->read_pool = &chunk->reads[i];
        }
        nvme->read_pool_count += NVME_READS_CHUNK;
    }
    return KVT_OK;
}

void
nvme_reads_deinit(struct nvme_tier *nvme)
{
    while (nvme->read_chunks != NULL) {
        struct nvme_read_chunk *next = nvme->read_chunks->next;

        env_put(nvme->env, nvme->read_chunks, sizeof(*nvme->read_chunks));
        nvme->read_chunks = next;
    }
}

/* --- Reading ---------------------------------------------------------------------------------- */

/* The segment of a place that can be read now; NULL: it names nothing that is there. */
static struct segment *
place_find(struct nvme_tier *nvme, const struct tier_block *block)
{
    const struct extent *extent = &block->record.extent;
    struct segment *segment = segment_at(nvme->table, extent->segment);
    uint32_t pages = pages_of(block->record.stored_length);

    if (segment == NULL || segment->generation != extent->generation)
        return NULL;
    /* In these states a record of the current generation is a leftover. */
    if (segment->state == SEGMENT_FREE || segment->state == SEGMENT_RECYCLING)
        return NULL;
    if (pages == 0 || extent->page >= nvme->options.segment_pages ||
        pages > nvme->options.segment_pages - extent->page)
        return NULL;
    return segment;
}

static void
piece_add(struct nvme_read *read, void *memory, uint32_t pages)
{
    if (pages > 0)
        read->pieces[read->op.transfer.piece_count++] =
            (struct iovec){.iov_base = memory, .iov_len = (size_t)pages * PAGE_BYTES};
}

static struct nvme_read *
read_make(struct nvme_tier *nvme, struct tier_batch *batch, struct tier_block *block,
    struct segment *segment)
{
    struct nvme_read *read = nvme->read_pool;
    struct nvme_root *root = &nvme->roots[segment_root(segment->number)];

    nvme->read_pool = read->next;
    nvme->read_pool_count--;
    nvme_op_init(nvme, &read->op, NVME_OP_READ, root);
    read->next = NULL;
    read->batch = batch;
    read->block = block;
    read->segment = segment;
    read->op.transfer.class = batch->urgent != 0 ? LANE_URGENT : LANE_BULK;
    read->op.transfer.offset = nvme_offset(nvme, segment->number, block->record.extent.page);
    read->op.transfer.pieces = read->pieces;
    read->op.transfer.piece_count = 0;
    piece_add(read, block->memory, pages_of(block->record.stored_length) - block->tail_pages);
    piece_add(read, block->tail, block->tail_pages);
    segment->reader_count++;
    return read;
}

static enum kvt_status
memory_check(const struct tier_batch *batch)
{
    for (uint32_t i = 0; i < batch->block_count; i++)
        KVT_TRY(nvme_block_check(&batch->blocks[i], i));
    return KVT_OK;
}

enum kvt_status
nvme_get_start(struct nvme_tier *nvme, struct tier_batch *batch)
{
    struct nvme_read *first = NULL;
    struct nvme_read **last = &first;
    uint32_t left = 0;

    KVT_TRY(memory_check(batch));
    KVT_TRY(pool_reserve(nvme, batch->block_count));
    batch->status = KVT_OK;
    for (uint32_t i = 0; i < batch->block_count; i++) {
        struct tier_block *block = &batch->blocks[i];
        struct segment *segment = place_find(nvme, block);

        block->status = KVT_MISS;
        if (segment == NULL)
            continue;
        *last = read_make(nvme, batch, block, segment);
        last = &(*last)->next;
        left++;
    }
    if (left == 0) {
        tier_answer(nvme->env, batch);
        return KVT_OK;
    }
    left_set(batch, left);
    for (struct nvme_read *read = first; read != NULL;) {
        struct nvme_read *next = read->next;

        lane_push(nvme->roots[segment_root(read->segment->number)].lane, &read->op.transfer);
        read = next;
    }
    return KVT_OK;
}

void
nvme_read_done(struct nvme_tier *nvme, struct nvme_read *read)
{
    struct tier_batch *batch = read->batch;
    uint32_t left = left_get(batch);

    KVT_ASSERT(left > 0);
    KVT_ASSERT(read->segment->reader_count > 0);
    read->block->status = read->op.transfer.status;
    read->segment->reader_count--;
    read->batch = NULL;
    read->next = nvme->read_pool;
    nvme->read_pool = read;
    nvme->read_pool_count++;
    left_set(batch, left - 1);
    if (left == 1)
        tier_answer(nvme->env, batch);
}
