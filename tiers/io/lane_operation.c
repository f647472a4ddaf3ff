/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane_operation.c - builds operations from parts of transfers, and what is left of them.
 */
#include "lane_operation.h"

#include <errno.h>

#include "failure.h"

/* A position in the pieces of a transfer. */
struct cursor {
    uint32_t index;
    uint64_t offset;
};

void
operation_begin(struct lane_operation *operation, const struct transfer *transfer)
{
    KVT_ASSERT(operation->state == OPERATION_FREE);
    operation->state = OPERATION_QUEUED;
    operation->class = transfer->class == LANE_URGENT ? LANE_URGENT : LANE_BULK;
    operation->part_count = 0;
    operation->part_first = 0;
    operation->part_end = 0;
    operation->retry_count = 0;
    operation->charged = 0;
    operation->attempt_done = 0;
    operation->attempt_left = 0;
    operation->next = NULL;
    operation->op.kind = transfer->kind;
    operation->op.file = transfer->file;
    operation->op.offset = transfer->offset + transfer->lane.started;
    operation->op.pieces = operation->pieces;
    operation->op.piece_count = 0;
}

bool
operation_continues(const struct lane_operation *operation, const struct transfer *transfer)
{
    return operation->op.kind == transfer->kind && operation->op.file == transfer->file &&
           operation->op.offset + operation->attempt_left ==
               transfer->offset + transfer->lane.started;
}

/* Add memory to the pieces; one that continues the last piece makes it longer. */
static bool
piece_append(struct lane_operation *operation, char *memory, uint64_t size)
{
    struct iovec *last = &operation->pieces[operation->op.piece_count];

    if (operation->op.piece_count > 0) {
        struct iovec *before = last - 1;

        if ((char *)before->iov_base + before->iov_len == memory) {
            before->iov_len += size;
            return true;
        }
    }
    if (operation->op.piece_count == IO_PIECES_MAX)
        return false;
    last->iov_base = memory;
    last->iov_len = size;
    operation->op.piece_count++;
    return true;
}

/* Copy pieces from the cursor on until `limit` bytes or no room; returns the bytes. */
static uint64_t
pieces_copy(struct lane_operation *operation, const struct transfer *transfer,
    struct cursor *cursor, uint64_t limit)
{
    uint64_t copied = 0;

    while (copied < limit && cursor->index < transfer->piece_count) {
        const struct iovec *piece = &transfer->pieces[cursor->index];
        uint64_t size = smaller(piece->iov_len - cursor->offset, limit - copied);

        if (size > 0 && !piece_append(operation, (char *)piece->iov_base + cursor->offset, size))
            break;
        copied += size;
        cursor->offset += size;
        if (cursor->offset == piece->iov_len) {
            cursor->index++;
            cursor->offset = 0;
        }
    }
    return copied;
}

uint64_t
operation_append(struct lane_operation *operation, struct transfer *transfer, uint64_t limit)
{
    struct cursor cursor = {transfer->lane.piece_index, transfer->lane.piece_offset};
    struct lane_part *part = &operation->parts[operation->part_count];
    uint64_t size;

    if (operation->part_count == OPERATION_PARTS_MAX)
        return 0;
    size = pieces_copy(operation, transfer, &cursor, limit);
    if (size == 0)
        return 0;
    part->transfer = transfer;
    part->from = transfer->lane.started;
    part->size = size;
    operation->part_end = ++operation->part_count;
    operation->charged += size;
    operation->attempt_left += size;
    transfer->lane.started += size;
    transfer->lane.piece_index = cursor.index;
    transfer->lane.piece_offset = cursor.offset;
    KVT_ASSERT(transfer->lane.started <= transfer->lane.size);
    return size;
}

void
operation_append_sync(struct lane_operation *operation, struct transfer *sync)
{
    KVT_ASSERT(operation->part_count == 0 && sync->kind == IO_SYNC);
    operation->parts[0] = (struct lane_part){.transfer = sync};
    operation->part_count = 1;
    operation->part_end = 1;
    operation->op.pieces = NULL;
}

void
operation_advance(struct lane_operation *operation, uint64_t moved)
{
    uint64_t left = moved;

    KVT_ASSERT(moved <= operation->attempt_left);
    operation->attempt_done += moved;
    operation->attempt_left -= moved;
    operation->op.offset += moved;
    while (left > 0) {
        struct iovec *piece = &operation->pieces[operation->op.pieces - operation->pieces];
        uint64_t size = smaller(piece->iov_len, left);

        piece->iov_base = (char *)piece->iov_base + size;
        piece->iov_len -= size;
        left -= size;
        if (piece->iov_len == 0) {
            operation->op.pieces++;
            operation->op.piece_count--;
        }
    }
}

void
operation_alone(struct lane_operation *operation)
{
    const struct lane_part *part = &operation->parts[operation->part_first];
    const struct transfer *transfer = part->transfer;
    struct cursor cursor = {0, part->from};
    uint64_t copied;

    while (cursor.offset >= transfer->pieces[cursor.index].iov_len) {
        cursor.offset -= transfer->pieces[cursor.index].iov_len;
        cursor.index++;
    }
    operation->part_end = operation->part_first + 1;
    operation->retry_count = 0;
    operation->attempt_done = 0;
    operation->attempt_left = part->size;
    operation->op.offset = transfer->offset + part->from;
    operation->op.pieces = operation->pieces;
    operation->op.piece_count = 0;
    copied = pieces_copy(operation, transfer, &cursor, part->size);
    KVT_ASSERT(copied == part->size);
}

void
operation_check(const struct lane_operation *operation)
{
    uint64_t size = 0;

    if (operation->state == OPERATION_FREE) {
        KVT_ASSERT(operation->part_count == 0);
        return;
    }
    KVT_ASSERT(operation->part_first < operation->part_end);
    KVT_ASSERT(operation->part_end <= operation->part_count);
    for (uint32_t i = operation->part_first; i < operation->part_end; i++)
        size += operation->parts[i].size;
    KVT_ASSERT(size == operation->attempt_done + operation->attempt_left);
    size = 0;
    for (uint32_t i = 0; i < operation->op.piece_count; i++)
        size += operation->op.pieces[i].iov_len;
    KVT_ASSERT(size == operation->attempt_left);
}

/* What an operation lacked may be there again later: that is not the disk's fault, and says nothing
 * of what stands there. */
enum kvt_status
operation_status(const struct lane_operation *operation, int error)
{
    bool is_write = operation->op.kind == IO_WRITE;

    if (is_write && (error == ENOSPC || error == EDQUOT))
        return KVT_E_NOSPC;
    return error == ENOMEM || error == EAGAIN ? KVT_E_NOMEM : KVT_E_IO;
}
