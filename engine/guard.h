/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guard.h - whether plain LRU would do better than what is learned, and for how long it is obeyed
 * then.
 *
 * What leaf-first LRU with the same room would hit is known without a second cache: a block that is
 * used is a hit of LRU exactly when fewer blocks were used since its last use than fit, and how
 * many those are the cohorts say (cohorts.h; ghosts are in them). Both counts of hits fade by half
 * in 300 s.
 *
 *              LRU has had 5 % more hits for four minutes
 *     LEARNED ------------------------------------------> LRU
 *        ^                                                 |
 *        +-------------------------------------------------+
 *           after a while: twice as long each time, from 5 minutes to 80
 *
 * What the learned order would hit while LRU is obeyed nobody knows: it is tried again.
 *
 * Threads   the loop only.
 */
#ifndef KVT_ENGINE_GUARD_H
#define KVT_ENGINE_GUARD_H

#include <stdbool.h>
#include <stdint.h>

/* All zero: LEARNED, nothing seen. */
struct guard {
    double hits, lru_hits; /* Of late. */
    double lead_seconds;   /* LRU has led for so long. */
    double end;            /* Of LRU's term, seconds. */
    uint32_t relapse_count;
    bool is_lru;
};

/* guard_note - a block was used that is one of `capacity` or was once: whether it was there, and
 * how many others were used since its last use. */
void guard_note(struct guard *guard, bool was_there, uint64_t rank, uint64_t capacity);

/* guard_step - it is `now` (seconds), `passed` after the last step. */
void guard_step(struct guard *guard, double now, double passed);

#endif /* KVT_ENGINE_GUARD_H */
