/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cohorts.h - how many blocks of each class were used last at about the same time.
 *
 * Owns      a table of counts: a row for each span of time, a column for each class. A block is in
 *           the row whose span has its last use: it is found by that, and stores nothing.
 * Not here  what a class is, and what the counts are for (hazard.h).
 *
 * Time is in ticks, and never falls. The newest rows have one tick each. cohorts_age() joins rows
 * that lie close together beside their age (one in COHORT_BLUR of it), and forgets those that are
 * older than it is told; so few rows are enough for ever.
 *
 * Threads   the loop only.
 */
#ifndef KVT_ENGINE_COHORTS_H
#define KVT_ENGINE_COHORTS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    COHORT_ROWS = 256,
    COHORT_BLUR = 12,
    COHORT_PLANES = 4, /* Classes come in planes: one that is not used takes no memory. */
    COHORT_CLASSES = 300,
};

#define COHORT_NONE UINT32_MAX

/* All zero: empty. */
struct cohorts {
    uint32_t starts[COHORT_ROWS]; /* Of the spans, oldest first. */
    uint16_t rows[COHORT_ROWS];   /* Where their counts are; behind `count`: rows that are free. */
    uint32_t count;
    bool has_rows;                /* `rows` is a permutation. */
    uint32_t totals[COHORT_ROWS]; /* Of all classes. */
    uint32_t lives[COHORT_PLANES][COHORT_ROWS][COHORT_CLASSES];
};

/* cohorts_join - one more block of the class was used at `tick`, which is not before any that was
 * given. */
void cohorts_join(struct cohorts *cohorts, uint32_t class_index, uint32_t tick);

/* cohorts_move - a block that was used at `tick` has another class. */
void cohorts_move(struct cohorts *cohorts, uint32_t from, uint32_t to, uint32_t tick);

/* cohorts_leave - a block that was used last at `tick` is none of them any more. */
void cohorts_leave(struct cohorts *cohorts, uint32_t class_index, uint32_t tick);

/* cohorts_counts - the counts of the row at `index` (0..count-1, oldest first). */
const uint32_t *cohorts_counts(const struct cohorts *cohorts, uint32_t plane, uint32_t index);

/* cohorts_since - how many blocks were used last behind the span with `tick` and before `now`, and
 * in `in_span_out` those in it. COHORT_NONE: it was forgotten. */
uint32_t cohorts_since(
    const struct cohorts *cohorts, uint32_t tick, uint32_t now, uint32_t *in_span_out);

/* cohorts_age - join rows, and forget those whose span begins more than `age_max` ticks ago. */
void cohorts_age(struct cohorts *cohorts, uint32_t now, uint32_t age_max);

#endif /* KVT_ENGINE_COHORTS_H */
