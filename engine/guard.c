/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guard.c - two counts, and who leads.
 */
#include "guard.h"

#include <math.h>

enum {
    FADE_SECONDS = 300, /* By half. */
    LEAD_SECONDS = 240, /* LRU is obeyed when it has led for so long, */
    TERM_SECONDS = 300, /* and for so long the first time. */
    RELAPSES_MAX = 4,   /* From then on its terms grow no longer. */
    HITS_MIN = 1000,    /* Fewer say nothing. */
};

static const double lead_min = 1.05;

void
guard_note(struct guard *guard, bool was_there, uint64_t rank, uint64_t capacity)
{
    guard->hits += was_there;
    guard->lru_hits += rank < capacity;
}

void
guard_step(struct guard *guard, double now, double passed)
{
    double share = exp2(-passed / FADE_SECONDS);
    bool leads = guard->lru_hits >= HITS_MIN && guard->lru_hits > guard->hits * lead_min;

    guard->lead_seconds = leads && !guard->is_lru ? guard->lead_seconds + passed : 0;
    if (guard->is_lru && now >= guard->end) {
        guard->is_lru = false;
        guard->hits = guard->lru_hits = 0; /* They were LRU's own: what is learned begins anew. */
    } else if (guard->lead_seconds >= LEAD_SECONDS) {
        guard->is_lru = true;
        guard->end = now + ldexp(TERM_SECONDS, (int)guard->relapse_count);
        guard->relapse_count += guard->relapse_count < RELAPSES_MAX;
    }
    guard->hits *= share;
    guard->lru_hits *= share;
}
