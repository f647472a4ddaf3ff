/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_held.h - moves that wait for events of callers, and which of them a round looks at.
 *
 * It looks at few, since copies wait for its end. Rounds make a turn, in which each that was there
 * at its beginning is looked at once, in their order. An event that was not reached is not asked
 * again for those that follow and wait for it, too: so these end in their order.
 *
 * Threads   the mover's.
 */
#ifndef KVT_TIERS_DEVICE_HELD_H
#define KVT_TIERS_DEVICE_HELD_H

#include "device_call_plan.h"

enum {
    DEVICE_HELD_LOOKS = 32, /* In a round. */
};

struct held_moves {
    struct move_queue looked; /* In this turn. */
    struct move_queue others; /* Behind them. */
    struct device_move *last; /* That this turn looks at; NULL: it is over. */
    uint32_t look_count;      /* In this round. */
    void *asked;              /* The event that was asked last; NULL: what it said is old. */
    enum kvt_status answer;
};

/* held_round - a round begins, and maybe a turn. */
void held_round(struct held_moves *held);
/* held_next - the next to look at, taken out, or NULL: no more in this round. held_keep - it goes
 * on waiting. held_add - a new one. */
struct device_move *held_next(struct held_moves *held);
void held_keep(struct held_moves *held, struct device_move *move);
void held_add(struct held_moves *held, struct device_move *move);

static inline bool
held_is_empty(const struct held_moves *held)
{
    return held->looked.first == NULL && held->others.first == NULL;
}

/* held_is_in_turn - the mover does not sleep: others would be seen late. */
static inline bool
held_is_in_turn(const struct held_moves *held)
{
    return held->last != NULL;
}

#endif /* KVT_TIERS_DEVICE_HELD_H */
