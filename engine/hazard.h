/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hazard.h - what a class of blocks is worth at each age: learned from what came back, and when.
 *
 * Owns      for each class and age bucket the reuses that were seen (H) and the block-seconds that
 *           blocks stood there (E), the hazards and the Gittins index that follow from them, and
 *           the cohorts of the blocks that are tracked.
 * Not here  the blocks: who asks says of each its class and the tick of its last use. Which of them
 *           are kept (policy_default.c).
 *
 * Terms: a block is tracked from its arrival till it is forgotten, wherever its copies are, or
 * while it is only remembered. Its age is the time since its last use. Its class says what it was
 * like then: how often it was used, after which gap, in how long a run of new blocks it came, how
 * deep in a conversation, and the caller's hint.
 *
 * Ages have 25 buckets with edges 0, 1, 1.41, 2 ... s (half octaves), the last ends at 3600 s; what
 * is older neither stands in E nor counts when it comes back.
 *
 * Each 5 s an estimate:
 *   pooled    the hazard of all classes together; before there are data 0.5 / (age + 60 s), which
 *             makes the index fall with age: LRU. One peak (hazard_fit.h).
 *   family    of the classes with one count, gap and hint: (H + k) / (E + k / (r x pooled)), r the
 *             family's ratio to the pooled hazard, k = 10: what has shown little is like the
 *             others. The pooled peak.
 *   class     the same, from its family's hazard instead of the pooled one.
 *   index     the Gittins index of the class's hazard, at each bucket's beginning.
 *   then      H and E fade by half in two hours.
 *
 * Invariant: the sum of E (before it fades) is the time that tracked blocks have spent younger than
 * an hour, up to the last estimate or the block's last use, whichever is later.
 *
 * Threads   the loop only.
 */
#ifndef KVT_ENGINE_HAZARD_H
#define KVT_ENGINE_HAZARD_H

#include "env.h"
#include "hazard_tables.h"

enum {
    HAZARD_HORIZON_FIRST = 600,
    HAZARD_STATE_BYTES_MAX = 8 + HAZARD_CLASSES * (4 + 2 * 4 * HAZARD_BUCKETS),
};

struct hazard;

enum kvt_status hazard_open(const struct kvt_env *env, struct hazard **hazard_out);
void hazard_close(struct hazard *hazard); /* NULL is fine. */

/* --- Classes ---------------------------------------------------------------------------------- */

/* hazard_segment_bucket - of a run of `length` new blocks. */
uint8_t hazard_segment_bucket(uint32_t length);
/* hazard_traits_use - what the block is like after a use at the age of `age` ticks. */
void hazard_traits_use(struct hazard_traits *traits, uint32_t age);

/* --- Blocks ----------------------------------------------------------------------------------- */

/* hazard_arrive - a block is tracked, as if used at `now`. */
void hazard_arrive(struct hazard *hazard, uint32_t class_index, uint32_t now);
/* hazard_use - one of class `from`, used last at `last`, is used, and of class `to` from now on. */
void hazard_use(struct hazard *hazard, uint32_t from, uint32_t to, uint32_t last, uint32_t now);
/* hazard_reclass - one that was used last at `last` turns out to be of class `to`. */
void hazard_reclass(struct hazard *hazard, uint32_t from, uint32_t to, uint32_t last);
/* hazard_forget - a block is tracked no longer. */
void hazard_forget(struct hazard *hazard, uint32_t class_index, uint32_t last, uint32_t now);

/* hazard_step - what is due at `now`, which never falls. */
void hazard_step(struct hazard *hazard, uint32_t now);

/* --- Answers ---------------------------------------------------------------------------------- */

/* hazard_tables - what the last estimate made, for hazard_at(); they stay where they are. */
const struct hazard_tables *hazard_tables(const struct hazard *hazard);

/* hazard_seconds - of so many ticks. */
double hazard_seconds(uint32_t ticks);

/* hazard_since - cohorts_since(). */
uint32_t hazard_since(
    const struct hazard *hazard, uint32_t tick, uint32_t now, uint32_t *in_span_out);

/* hazard_horizon_set - the horizon, in seconds (600 at first), from the next estimate on. */
void hazard_horizon_set(struct hazard *hazard, double horizon);

/* hazard_counts - H and E of a class. */
void hazard_counts(const struct hazard *hazard, uint32_t class_index,
    double reuses_out[HAZARD_BUCKETS], double seconds_out[HAZARD_BUCKETS]);

/* --- Keeping ---------------------------------------------------------------------------------- */

/* hazard_save - H and E, as at most HAZARD_STATE_BYTES_MAX bytes; returns how many, 0: nothing was
 * counted. The bytes are those of tiers/FORMAT.md 3.8. */
size_t hazard_save(const struct hazard *hazard, uint8_t *target);

/* hazard_restore - what hazard_save() wrote, into one that has counted nothing; false, and it stays
 * so, when it is not that. */
bool hazard_restore(struct hazard *hazard, const uint8_t *source, size_t size);

#endif /* KVT_ENGINE_HAZARD_H */
