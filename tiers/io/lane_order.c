/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane_order.c - counts, for each sync, the earlier writes of its file that are not finished.
 */
#include "lane_order.h"

#include "failure.h"

void
order_write(struct lane_order *order, struct transfer *write)
{
    write->lane.order = order->next_number++;
    write->lane.newer = NULL;
    write->lane.older = order->newest_write;
    if (order->newest_write == NULL)
        order->oldest_write = write;
    else
        order->newest_write->lane.newer = write;
    order->newest_write = write;
}

void
order_sync(struct lane_order *order, struct transfer *sync)
{
    sync->lane.order = order->next_number++;
    sync->lane.blocker_count = 0;
    for (struct transfer *write = order->oldest_write; write != NULL; write = write->lane.newer) {
        if (write->file == sync->file)
            sync->lane.blocker_count++;
    }
    transfer_queue_push(sync->lane.blocker_count == 0 ? &order->ready : &order->waiting, sync);
}

static void
write_unlink(struct lane_order *order, struct transfer *write)
{
    if (write->lane.older == NULL)
        order->oldest_write = write->lane.newer;
    else
        write->lane.older->lane.newer = write->lane.newer;
    if (write->lane.newer == NULL)
        order->newest_write = write->lane.older;
    else
        write->lane.newer->lane.older = write->lane.older;
}

void
order_write_done(struct lane_order *order, struct transfer *write)
{
    struct transfer_queue waiting = order->waiting;
    struct transfer *sync;

    write_unlink(order, write);
    if (waiting.first == NULL)
        return;
    order->waiting.first = NULL;
    while ((sync = transfer_queue_pop(&waiting)) != NULL) {
        if (sync->file == write->file && sync->lane.order > write->lane.order) {
            KVT_ASSERT(sync->lane.blocker_count > 0);
            sync->lane.blocker_count--;
        }
        transfer_queue_push(sync->lane.blocker_count == 0 ? &order->ready : &order->waiting, sync);
    }
}

struct transfer *
order_sync_take(struct lane_order *order)
{
    return transfer_queue_pop(&order->ready);
}

bool
order_is_empty(const struct lane_order *order)
{
    return order->oldest_write == NULL && order->waiting.first == NULL &&
           order->ready.first == NULL;
}
