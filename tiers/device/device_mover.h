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
 *     that waits would stop every later copy of its direction.) An event that cannot be asked is
 *     the answer of its moves, and a move that is cancelled waits no longer, unless the wait is
 *     firm: then it is asked again;
 *   - moves of one direction that lie ready together are joined into calls of at most
 *     DEVICE_MOVER_PIECES_MAX pieces and DEVICE_MOVER_CALL_BYTES, each with one event behind it. A
 *     move is cut only when a call of its own does not hold it, a piece never. Moves whose pieces
 *     share memory must not be in flight together: that is the caller's to prevent;
 *   - a move is answered when its (last) call's event was seen reached: then its sources may
 *     change, and what it wrote may be read by whoever takes the answer;
 *   - at most DEVICE_MOVER_CALLS_MAX calls are in flight in a direction, so that an urgent move
 *     waits for little: urgent moves pass others that have not been queued, and share no call with
 *     them. Others never wait for more than DEVICE_MOVER_URGENT_RUN urgent calls in a row;
 *   - moves of one direction that are alike (urgent or not) and wait for no event are queued, and
 *     answered, in the order in which they were pushed, errors among them;
 *   - after an error of the device that stays (KVT_E_GPU) every move, in flight or new, is
 *     answered with KVT_E_GPU and the device is not called any more, but for firm waits: they are
 *     asked about until their event is reached, or the device says KVT_E_GPU of it, since streams
 *     of callers may go on where copies fail. Copies of those that were begun may still arrive:
 *     host memory that such a move was to write must not be used before the device is closed;
 *   - any other error is the answer of the moves of that call alone (they are tried one by one
 *     first); a move is answered with such an error only when nothing of it is in flight;
 *   - an event of its own that cannot be recorded or asked is tried again: without it nobody knows
 *     when the bytes are there. After DEVICE_MOVER_PATIENCE_NS the device counts as lost.
 *
 * Threads   any, but for open and close; the rest belongs to the actor. A finished move lies in the
 *           inbox that it named, whose task is woken once a round. The task and the pointer to it
 *           must outlive the mover.
 */
#ifndef KVT_TIERS_DEVICE_MOVER_H
#define KVT_TIERS_DEVICE_MOVER_H

#include "device.h"
#include "env.h"
#include "inbox.h"

enum {
    /* Of one call. A kernel's start and end cost as much as 200 KiB on the bus; copy engines alone
     * need 2.5 ms to begin so many. */
    DEVICE_MOVER_PIECES_MAX = 2048,
    DEVICE_MOVER_CALLS_MAX = 4,  /* In flight in one direction. */
    DEVICE_MOVER_URGENT_RUN = 8, /* Calls. */
    /* Of one call: 0.3 ms at 50 GB/s. Several in flight keep the stream busy all the same. */
    DEVICE_MOVER_CALL_BYTES = 16 << 20,
};

#define DEVICE_MOVER_PATIENCE_NS (UINT64_C(10) * 1000 * 1000 * 1000)

/*
 * How far the moves of one piece of work have come, for somebody who waits for them with a stream
 * of his own (device_mover_wait()). All zero at first; it must live until the last of them is
 * answered.
 */
struct device_mark {
    _Atomic uint64_t call[DEVICE_LANE_COUNT]; /* Number of the last call that has one of them. */
    _Atomic uint32_t queued_count;            /* Of moves of which all pieces were queued. */
};

/* The caller's from creation to the answer it takes out of the inbox; the mover's in between. */
struct device_move {
    struct inbox_node node;
    enum device_lane lane;             /* Copies within the device go with DEVICE_OUT. */
    bool is_urgent;                    /* Somebody waits for these bytes now. */
    const struct device_piece *pieces; /* Live until the answer. */
    uint32_t piece_count;              /* 0: only the event is waited for (there must be one). */
    /* Not before this event is reached. NULL: at once. It must live until the answer, and not be
     * recorded again: only its last record would count. */
    void *wait;
    bool is_wait_firm;         /* Only the event ends the wait, or what the device says of it:
                                * KVT_E_GPU. */
    bool is_wait_owned;        /* is_wait_firm: the mover destroys `wait` before the answer. */
    struct device_mark *mark;  /* NULL: nobody asks. */
    uint32_t mark_count;       /* For how many it counts there. */
    bool is_marked;            /* The answer: it was counted there. */
    bool is_begun;             /* The answer: the device was given some of it. Without it, what the
                                * move was to write is not touched, whatever its status. */
    _Atomic bool is_cancelled; /* device_move_cancel() */
    struct inbox *done;
    struct task *const *done_task; /* May be, and may point to, NULL. */
    enum kvt_status status;        /* The answer. */
    void *user;
    struct {
        struct device_move *next; /* In one of its lists. */
        uint32_t piece_at;        /* The first piece that has not been queued. */
        bool is_alone;            /* Shares no call any more. */
    } mover;                      /* The mover's own. */
};

struct device_mover_stats {
    uint64_t call_count[DEVICE_LANE_COUNT]; /* Queued. */
    uint64_t move_count[DEVICE_LANE_COUNT]; /* Answered with KVT_OK. */
    uint64_t bytes[DEVICE_LANE_COUNT];      /* Of calls that are done. */
    uint64_t error_count;                   /* Moves answered with anything else. */
};

struct device_mover;

/*
 * device_mover_open - start the actor `name` (at most 15 characters) for `device` (borrowed), with
 * all the events that it will need. KVT_E_NOMEM, KVT_E_GPU.
 */
enum kvt_status device_mover_open(const struct kvt_env *env, struct device *device,
    const char *name, struct device_mover **mover_out);

/* device_mover_close - every move must have been answered. NULL is fine. */
void device_mover_close(struct device_mover *mover);

/* device_mover_push - hand moves over, in this order; never fails, never blocks. */
void device_mover_push(
    struct device_mover *mover, struct device_move *const *moves, uint32_t count);

/* device_move_cancel - a move that is still held back by its event is answered with KVT_CANCELLED,
 * soon; another, or one whose wait is firm, goes on. Of one that was pushed and whose answer was
 * not taken yet. Any thread. */
void device_move_cancel(struct device_move *move);

/*
 * device_mover_wait - work that is submitted to `stream` from now on waits for all moves that
 * `mark` counts. The errors of stream_wait (device.h): the stream may wait for some of them. Any
 * thread.
 */
enum kvt_status device_mover_wait(
    struct device_mover *mover, const struct device_mark *mark, void *stream);

/* device_mover_lose - the device was lost in a call that is not the mover's. */
void device_mover_lose(struct device_mover *mover);
bool device_mover_is_lost(const struct device_mover *mover);

void device_mover_stats_get(struct device_mover *mover, struct device_mover_stats *stats_out);

#endif /* KVT_TIERS_DEVICE_MOVER_H */
