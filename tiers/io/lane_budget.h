/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane_budget.h - how many bytes of bulk transfers a lane keeps in flight, found by trying.
 *
 * More bytes in flight than the device needs only add latency. So the budget starts with what the
 * disks that were measured need but for 1 to 6 % (with half of it they gave 5 to 13 % less, which a
 * trial on a disk whose speed drifts does not always see), and is doubled while that pays:
 * throughput is measured in windows of BUDGET_WINDOW_NS that alternate between the present budget
 * and twice of it (two of each, so that drift does not decide), and the double is kept when it
 * moves more than BUDGET_GAIN_PERCENT more bytes. Only time in which the budget was what held
 * transfers back counts; a trial may be made of many short bursts.
 *
 *            budget_note(): the double pays and is below the limit
 *                   +----+
 *                   |    v
 *                  TRYING ---------------------------------------> SETTLED
 *                            budget_note(): it does not pay, or
 *                            the limit is reached
 *
 * Threads: the lane's.
 */
#ifndef KVT_TIERS_IO_LANE_BUDGET_H
#define KVT_TIERS_IO_LANE_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

enum {
    BUDGET_FIRST_BYTES = 8 << 20,
    BUDGET_LAST_BYTES = 16 << 20,
    BUDGET_GAIN_PERCENT = 2,
    BUDGET_WINDOW_NS = 100 * 1000 * 1000,
    BUDGET_SKIP_NS = 10 * 1000 * 1000, /* After a change: what is in flight adapts first. */
};

enum budget_state {
    BUDGET_TRYING,
    BUDGET_SETTLED,
};

struct lane_budget {
    enum budget_state state;
    uint64_t bytes;   /* In force now. */
    uint64_t proven;  /* The last budget that paid. */
    uint32_t window;  /* 0..3 in a trial; odd ones run with twice `proven`. */
    uint64_t skip_ns; /* Time that is still to be left out. */
    uint64_t window_ns;
    uint64_t window_bytes;
    uint64_t noted_ns;       /* The last note ... */
    bool was_full;           /* ... said that the budget held back more. */
    uint64_t moved_bytes[2]; /* Of the even and of the odd windows. */
    uint64_t spent_ns[2];
};

void budget_init(struct lane_budget *budget);

/* budget_note - `moved_bytes` completed since the last note; is_full: the budget held back more. */
void budget_note(struct lane_budget *budget, uint64_t now_ns, uint64_t moved_bytes, bool is_full);

#endif /* KVT_TIERS_IO_LANE_BUDGET_H */
