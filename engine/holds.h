/* SPDX-License-Identifier: Apache-2.0 */
/*
 * holds.h - streams of callers that wait for a word which the loop writes when gets are settled.
 *
 * Owns      words and statuses, in memory that every device knows; an event for each hold and
 *           device that had one.
 * Not here  how a stream waits (base/device.h).
 * Threads   the loop, but where noted.
 *
 * The life of a hold, and the function that makes each move:
 *
 *          kvt_hold_submit()           hold_settle()
 *   FREE -------------------> WAITING ---------------> SETTLED
 *    ^  \                                              |    ^
 *    |   \  of a ticket that is done: no stream waits  |    |
 *    |    +--------------------------------------------|----+
 *    |          hold_passed(): the stream has done     |
 *    +------------- what is_ended was behind <---------+  hold_pass()
 *
 *   FREE      Nobody reads its memory, which others may have.
 *   WAITING   Its word is 0. It is in the loop's list, or on the way there in a message; the ticket
 *             has a reference of it.
 *   SETTLED   Statuses are written, and after them the word: 1. Nothing changes any more.
 *   is_ended  (either) kvt_hold_free() was called, and has recorded an event. Of a hold that is
 *             both, the mover asks for the event.
 *
 * Memory order:
 *   (H2) word: released with the statuses, and with what the gets have written to the host, by the
 *        loop; acquired by the device.
 */
#ifndef KVT_ENGINE_HOLDS_H
#define KVT_ENGINE_HOLDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kvtier/status.h"

struct hold_table;
struct kvt_hold;
struct kvt_store;
struct kvt_ticket;

enum {
    HOLD_LINE_BYTES = 64, /* A word has a line of its own, and so have its statuses. */
    HOLD_LINES = 16384,   /* Of all holds: 1 MiB. */
};

struct holds {
    struct hold_table *table; /* any; NULL: there is no device. */
    struct kvt_hold *waiting;
    uint64_t look_ns;           /* When holds_step() has something to do; UINT64_MAX: nothing. */
    _Atomic uint32_t out_count; /* any */
};

/* holds_open - before the loop, after the devices. KVT_E_NOMEM, KVT_E_GPU. */
enum kvt_status holds_open(struct kvt_store *store);

/* holds_release - of a store that is poisoned: writes the words that nobody wrote, of all holds,
 * since one stream may stand behind another. When the loop rests, before any memory goes that a
 * device knows; any thread. */
void holds_release(struct kvt_store *store);

/* holds_stop - waits until all streams have passed. When the loop rests, before the devices go; any
 * thread. holds_close - after them: of a poisoned store a mover may still have a hold. */
void holds_stop(struct kvt_store *store);
void holds_close(struct kvt_store *store);

/* holds_reach - every operation of the ticket is over: for one that has holds. */
void holds_reach(struct kvt_store *store, struct kvt_ticket *ticket);

/* holds_step - deadlines; true when one has passed. */
bool holds_step(struct kvt_store *store);

/* holds_cancel - nobody waits any more: kvt_abort(). */
void holds_cancel(struct kvt_store *store);

#endif /* KVT_ENGINE_HOLDS_H */
