/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane_transfer.h - how long a transfer is, and queues of transfers in order of arrival.
 *
 * Threads: the lane's.
 */
#ifndef KVT_TIERS_IO_LANE_TRANSFER_H
#define KVT_TIERS_IO_LANE_TRANSFER_H

#include "io_lane.h"

/* Its bytes; false: its pieces or its offset make no sense. */
static inline bool
transfer_measure(const struct transfer *transfer, uint64_t *size_out)
{
    uint64_t size = 0;
    uint64_t end;

    if (transfer->piece_count > 0 && transfer->pieces == NULL)
        return false;
    for (uint32_t i = 0; i < transfer->piece_count; i++) {
        if (__builtin_add_overflow(size, transfer->pieces[i].iov_len, &size))
            return false;
    }
    if (__builtin_add_overflow(transfer->offset, size, &end) || end > INT64_MAX)
        return false;
    *size_out = size;
    return true;
}

/* Linked by lane.next. */
struct transfer_queue {
    struct transfer *first;
    struct transfer *last;
};

static inline void
transfer_queue_push(struct transfer_queue *queue, struct transfer *transfer)
{
    transfer->lane.next = NULL;
    if (queue->first == NULL)
        queue->first = transfer;
    else
        queue->last->lane.next = transfer;
    queue->last = transfer;
}

/* The oldest, or NULL. */
static inline struct transfer *
transfer_queue_pop(struct transfer_queue *queue)
{
    struct transfer *transfer = queue->first;

    if (transfer != NULL)
        queue->first = transfer->lane.next;
    return transfer;
}

#endif /* KVT_TIERS_IO_LANE_TRANSFER_H */
