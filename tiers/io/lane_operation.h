/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane_operation.h - one operation of a lane: a run of bytes of one file, made of parts of one or
 * more transfers that touch.
 *
 * An *attempt* is what the io queue is asked for: first all parts as one run; after that failed
 * (reads only) each part that has no answer yet, alone.
 *
 *              operation_begin(),
 *              operation_append()          lane_submit()
 *     FREE --------------------> QUEUED ------------------> FLYING
 *      ^                           ^                           |
 *      |                           |  rest of a short one, EINTR, EAGAIN: operation_advance();
 *      |                           |  next part alone: operation_alone()
 *      |                           +---------------------------+
 *      |              all parts have their answer              |
 *      +-------------------------------------------------------+
 *
 *   FREE    part_count is 0.
 *   QUEUED  Pieces describe what is left of the attempt; the io queue does not know it.
 *   FLYING  The io queue owns op and pieces; op.id is unique.
 *
 * Threads: the lane's.
 */
#ifndef KVT_TIERS_IO_LANE_OPERATION_H
#define KVT_TIERS_IO_LANE_OPERATION_H

#include "io_lane.h"

enum {
    OPERATION_PARTS_MAX = IO_PIECES_MAX,
};

enum operation_state {
    OPERATION_FREE,
    OPERATION_QUEUED,
    OPERATION_FLYING,
};

/* Bytes [from, from + size) of a transfer. */
struct lane_part {
    struct transfer *transfer;
    uint64_t from;
    uint64_t size;
};

struct lane_operation {
    struct io_op op;
    enum operation_state state;
    enum lane_class class;
    uint32_t part_count;
    uint32_t part_first;   /* The oldest part without an answer; the attempt starts with it. */
    uint32_t part_end;     /* The attempt ends before this one. */
    uint32_t retry_count;  /* EINTR and EAGAIN of this attempt. */
    uint64_t charged;      /* Bytes of all parts: what it takes of the budget until it is FREE. */
    uint64_t attempt_done; /* Bytes of the attempt that moved ... */
    uint64_t attempt_left; /* ... and that did not yet. */
    struct lane_operation *next; /* In the free list or in the queue for submission. */
    struct iovec pieces[IO_PIECES_MAX];
    struct lane_part parts[OPERATION_PARTS_MAX];
};

static inline uint64_t
smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* operation_begin - FREE -> QUEUED, for the unstarted bytes of `transfer` (or its sync); empty. */
void operation_begin(struct lane_operation *operation, const struct transfer *transfer);

/* operation_continues - the unstarted bytes of `transfer` lie right behind the operation's. */
bool operation_continues(const struct lane_operation *operation, const struct transfer *transfer);

/*
 * operation_append - take at most `limit` unstarted bytes of `transfer`, moving its cursor.
 * Returns how many; 0 when there is no room for another part or piece.
 */
uint64_t operation_append(
    struct lane_operation *operation, struct transfer *transfer, uint64_t limit);

/* operation_append_sync - make an IO_SYNC the only part. */
void operation_append_sync(struct lane_operation *operation, struct transfer *sync);

/* operation_advance - `moved` bytes of the attempt are done; at most attempt_left. */
void operation_advance(struct lane_operation *operation, uint64_t moved);

/* operation_alone - the next attempt is part_first, by itself, from its beginning. */
void operation_alone(struct lane_operation *operation);

void operation_check(const struct lane_operation *operation);

/* operation_status - of an attempt that ended with this errno value; 0: that came to nothing. */
enum kvt_status operation_status(const struct lane_operation *operation, int error);

#endif /* KVT_TIERS_IO_LANE_OPERATION_H */
