/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_mover.h - the thread of one device: an actor that queues batches of copies on the device's
 * own streams, and answers each batch when the device has done it.
 *
 * Owns      the events of the batches in flight.
 * Not here  the device (hbm_tier.h opens it), slots, what the bytes mean.
 *
 * What it does with a move
 *   - one that waits for an event of the caller is held until that event is reached: nothing else
 *     waits behind it, on this thread or on a stream. (`wait` is asked, not waited for: a stream
 *     that waits would stop every later copy of its direction.)
 *   - moves of one direction that lie ready together are joined into calls of at most
 *     DEVICE_MOVER_PIECES_MAX pieces, each with one event behind it; moves whose pieces share
 *     memory must not be in flight together: that is the caller's to prevent;
 *   - a move is answered when its call's event was seen reached: then its sources may change, and
 *     what it wrote may be read by whoever takes the answer;
 *   - at most DEVICE_MOVER_CALLS_MAX calls are in flight in a direction, so that an urgent move
 *     waits for little: urgent moves pass others that have not been queued;
 *   - after an error of the device that stays (KVT_E_GPU) every move, in flight or new, is
 *     answered with KVT_E_GPU and the device is not called any more. Any other error is the
 *     answer of the moves of that call alone (they are tried one by one first).
 *
 * Threads   device_mover_push(), device_mover_is_lost(): any; the rest belongs to the actor. A
 *           finished move lies in the inbox that it named, whose task is woken once a round. The
 *           task and the pointer to it must outlive the lane.
 */
#ifndef KVT_TIERS_DEVICE_MOVER_H
#define KVT_TIERS_DEVICE_MOVER_H

#include "device.h"
#include "env.h"
#include "inbox.h"

enum {
    DEVICE_MOVER_PIECES_MAX = 256, /* Of one call. */
    DEVICE_MOVER_CALLS_MAX = 4,    /* In flight in one direction. */
};

/* The caller's from creation to the answer it takes out of the inbox; the lane's in between. */
struct device_move {
    struct inbox_node node;
    enum device_lane lane;             /* Copies within the device go with DEVICE_OUT. */
    bool is_urgent;                    /* Somebody waits for these bytes now. */
    const struct device_piece *pieces; /* Live until the answer. */
    uint32_t piece_count;              /* 1 or more. */
    void *wait;                        /* Not before this event is reached. NULL: at once. */
    struct inbox *done;
    struct task *const *done_task; /* May point to NULL. */
    enum kvt_status status;        /* The answer. */
    void *user;
    struct device_move *next; /* The mover's own: in one of its lists. */
};

struct device_mover_stats {
    uint64_t call_count[DEVICE_LANE_COUNT];
    uint64_t move_count[DEVICE_LANE_COUNT];
    uint64_t bytes[DEVICE_LANE_COUNT];
    uint64_t error_count;
};

struct device_mover;

/* device_mover_open - start the actor `name` for `device` (borrowed). KVT_E_NOMEM, KVT_E_GPU. */
enum kvt_status device_mover_open(const struct kvt_env *env, struct device *device,
    const char *name, struct device_mover **mover_out);

/* device_mover_close - every move must have been answered. NULL is fine. */
void device_mover_close(struct device_mover *mover);

/* device_mover_push - hand moves over, in this order; never fails, never blocks. */
void device_mover_push(
    struct device_mover *mover, struct device_move *const *moves, uint32_t count);

bool device_mover_is_lost(const struct device_mover *mover);

void device_mover_stats_get(struct device_mover *mover, struct device_mover_stats *stats_out);

#endif /* KVT_TIERS_DEVICE_MOVER_H */
