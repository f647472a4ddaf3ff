/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_call_plan.h - which moves the next call of a device takes from a queue.
 *
 * Threads   the mover's.
 */
#ifndef KVT_TIERS_DEVICE_CALL_PLAN_H
#define KVT_TIERS_DEVICE_CALL_PLAN_H

#include "device_mover.h"

/* In order of arrival, linked by mover.next. */
struct move_queue {
    struct device_move *first;
    struct device_move *last;
};

void move_queue_push(struct move_queue *queue, struct device_move *move);
struct device_move *move_queue_pop(struct move_queue *queue); /* The oldest, or NULL. */

struct call_plan {
    uint32_t piece_count;
    uint64_t bytes;
    uint32_t move_count; /* With one that is not wholly taken, and is then the last. */
    struct device_move *last;
    uint32_t last_piece_at; /* Where that one goes on. */
    struct device_piece pieces[DEVICE_MOVER_PIECES_MAX];
};

/* plan_make - whole moves from the head of a queue that has one, or a part of the first when a call
 * does not hold it. They count as begun. */
void plan_make(struct call_plan *plan, const struct move_queue *queue);

/* plan_commit - the copy was queued: its moves leave the queue for those of the call. */
void plan_commit(const struct call_plan *plan, struct move_queue *queue, struct move_queue *called);

#endif /* KVT_TIERS_DEVICE_CALL_PLAN_H */
