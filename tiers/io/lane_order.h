/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane_order.h - which syncs of a lane may start: those whose file has no unfinished write that
 * was pushed before them. Other files do not hold them back.
 *
 *              order_sync()              order_write_done() of the last one
 *    (pushed) -------------> WAITING ------------------------------------> READY --> (started)
 *       |                                                                    ^ order_sync_take()
 *       +--------------------------------------------------------------------+
 *               order_sync(): no earlier write of the file is unfinished
 *
 * A failed write is finished too: what a sync is worth then is for whoever pushed both to say.
 *
 * Threads: the lane's.
 */
#ifndef KVT_TIERS_IO_LANE_ORDER_H
#define KVT_TIERS_IO_LANE_ORDER_H

#include "io_lane.h"

/* Transfers in order of arrival, linked by lane.next. */
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

/* transfer_queue_pop - the oldest, or NULL. */
static inline struct transfer *
transfer_queue_pop(struct transfer_queue *queue)
{
    struct transfer *transfer = queue->first;

    if (transfer != NULL)
        queue->first = transfer->lane.next;
    return transfer;
}

struct lane_order {
    uint64_t next_number;
    struct transfer *oldest_write, *newest_write; /* Unfinished, linked by older and newer. */
    struct transfer_queue waiting;
    struct transfer_queue ready;
};

/* order_write, order_sync - note a transfer, in the order of pushes. */
void order_write(struct lane_order *order, struct transfer *write);
void order_sync(struct lane_order *order, struct transfer *sync);

/* order_write_done - `write` has been answered or is about to be; it may make syncs READY. */
void order_write_done(struct lane_order *order, struct transfer *write);

/* order_sync_take - the oldest READY sync, or NULL. */
struct transfer *order_sync_take(struct lane_order *order);

/* order_is_empty - no write is unfinished and no sync waits. */
bool order_is_empty(const struct lane_order *order);

#endif /* KVT_TIERS_IO_LANE_ORDER_H */
