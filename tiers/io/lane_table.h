/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane_table.h - the operations of a lane: which are free, which wait for submission, which fly.
 *
 * Owns      the operations, their ids, the count of bytes in flight.
 * Not here  which transfers become operations, and when (io_lane.c).
 *
 * Invariants (table_check)
 *   (1) Each operation is FREE and in the free list, QUEUED and in the submission queue (or in the
 *       hands of the lane within a round), or FLYING.
 *   (2) bytes_in_flight is the sum of `charged` over operations that are not FREE, for each class;
 *       bulk_count is how many of them have a share in LANE_BULK's.
 *   (3) Each attempt has an id of its own, so a completion cannot be taken for another attempt's.
 *
 * Threads: the lane's.
 */
#ifndef KVT_TIERS_IO_LANE_TABLE_H
#define KVT_TIERS_IO_LANE_TABLE_H

#include "lane_operation.h"

struct lane_table {
    uint64_t bytes_in_flight[2]; /* By lane_class. */
    uint64_t serial;             /* Of the newest attempt. */
    uint32_t free_count;
    uint32_t flying_count;
    uint32_t bulk_count;               /* Operations that are charged to LANE_BULK. */
    struct lane_operation *free_first; /* Used before: others are memory that nobody touched. */
    uint32_t used_count;               /* How many were ever taken: the first ones. */
    struct lane_operation *queued_first, *queued_last;
    struct lane_operation operations[LANE_DEPTH];
};

/* table_init - all FREE. The memory is zero. */
void table_init(struct lane_table *table);

/* table_take - a FREE operation; free_count is above 0. The caller begins it, appends, queues. */
struct lane_operation *table_take(struct lane_table *table);

/* table_put - QUEUED -> FREE. */
void table_put(struct lane_table *table, struct lane_operation *operation);

/* table_charge - count an operation that was just built as bytes in flight. */
void table_charge(struct lane_table *table, const struct lane_operation *operation);

static inline uint64_t
table_bytes(const struct lane_table *table)
{
    return table->bytes_in_flight[LANE_URGENT] + table->bytes_in_flight[LANE_BULK];
}

/* table_queue - an attempt is ready: give it an id and let table_submit() find it. */
void table_queue(struct lane_table *table, struct lane_operation *operation);

/* table_submit - QUEUED -> FLYING for as many as the io queue takes. */
void table_submit(struct lane_table *table, const struct io_ops *io, struct io_queue *queue);

/* table_land - FLYING -> QUEUED (in the lane's hands): the operation that flies under `id`, or
 * NULL and a proof that failed when there is none. */
struct lane_operation *table_land(struct lane_table *table, uint64_t id);

void table_check(const struct lane_table *table);

#endif /* KVT_TIERS_IO_LANE_TABLE_H */
