/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cohorts.c - rows by binary search; rows that join, and rows that are forgotten.
 */
#include "cohorts.h"

#include <string.h>

#include "failure.h"

/* The row whose span has the tick; COHORT_NONE: it was forgotten. */
static uint32_t
row_find(const struct cohorts *cohorts, uint32_t tick)
{
    uint32_t low = 0;
    uint32_t high = cohorts->count;

    while (low < high) {
        uint32_t middle = (low + high) / 2;

        if (cohorts->starts[middle] <= tick)
            low = middle + 1;
        else
            high = middle;
    }
    return low == 0 ? COHORT_NONE : low - 1;
}

static uint32_t *
cell(struct cohorts *cohorts, uint32_t index, uint32_t class_index)
{
    return &cohorts->lives[class_index / COHORT_CLASSES][cohorts->rows[index]]
                          [class_index % COHORT_CLASSES];
}

/* The row for uses at `tick`. When all rows are taken the newest has a longer span. */
static uint32_t
row_of_now(struct cohorts *cohorts, uint32_t tick)
{
    if (!cohorts->has_rows) {
        for (uint32_t i = 0; i < COHORT_ROWS; i++)
            cohorts->rows[i] = (uint16_t)i;
        cohorts->has_rows = true;
    }
    if (cohorts->count == 0 ||
        (cohorts->starts[cohorts->count - 1] < tick && cohorts->count < COHORT_ROWS))
        cohorts->starts[cohorts->count++] = tick;
    return cohorts->count - 1;
}

void
cohorts_join(struct cohorts *cohorts, uint32_t class_index, uint32_t tick)
{
    uint32_t index = row_of_now(cohorts, tick);

    (*cell(cohorts, index, class_index))++;
    cohorts->totals[cohorts->rows[index]]++;
}

void
cohorts_leave(struct cohorts *cohorts, uint32_t class_index, uint32_t tick)
{
    uint32_t index = row_find(cohorts, tick);

    if (index == COHORT_NONE)
        return;
    KVT_ASSERT(*cell(cohorts, index, class_index) > 0);
    (*cell(cohorts, index, class_index))--;
    cohorts->totals[cohorts->rows[index]]--;
}

void
cohorts_move(struct cohorts *cohorts, uint32_t from, uint32_t to, uint32_t tick)
{
    uint32_t index = row_find(cohorts, tick);

    if (index == COHORT_NONE)
        return;
    KVT_ASSERT(*cell(cohorts, index, from) > 0);
    (*cell(cohorts, index, from))--;
    (*cell(cohorts, index, to))++;
}

const uint32_t *
cohorts_counts(const struct cohorts *cohorts, uint32_t plane, uint32_t index)
{
    return cohorts->lives[plane][cohorts->rows[index]];
}

uint32_t
cohorts_since(const struct cohorts *cohorts, uint32_t tick, uint32_t now, uint32_t *in_span_out)
{
    uint32_t index = row_find(cohorts, tick);
    uint32_t count = 0;

    if (index == COHORT_NONE)
        return COHORT_NONE;
    *in_span_out = cohorts->totals[cohorts->rows[index]];
    for (uint32_t i = index + 1; i < cohorts->count && cohorts->starts[i] < now; i++)
        count += cohorts->totals[cohorts->rows[i]];
    return count;
}

/* --- Age -------------------------------------------------------------------------------------- */

/* A plane that was never used stays untouched. */
static bool
row_is_empty(const uint32_t *counts)
{
    static const uint32_t none[COHORT_CLASSES];

    return memcmp(counts, none, sizeof(none)) == 0;
}

/* The counts of row `source` go to row `target` (-1: nowhere). */
static void
row_empty(struct cohorts *cohorts, int target, uint32_t source)
{
    if (target >= 0)
        cohorts->totals[cohorts->rows[target]] += cohorts->totals[cohorts->rows[source]];
    cohorts->totals[cohorts->rows[source]] = 0;
    for (uint32_t plane = 0; plane < COHORT_PLANES; plane++) {
        uint32_t *counts = cohorts->lives[plane][cohorts->rows[source]];

        if (row_is_empty(counts))
            continue;
        for (uint32_t i = 0; target >= 0 && i < COHORT_CLASSES; i++)
            cohorts->lives[plane][cohorts->rows[target]][i] += counts[i];
        memset(counts, 0, COHORT_CLASSES * sizeof(*counts));
    }
}

void
cohorts_age(struct cohorts *cohorts, uint32_t now, uint32_t age_max)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < cohorts->count; i++) {
        uint32_t end = i + 1 < cohorts->count ? cohorts->starts[i + 1] : now;
        uint32_t age = now - cohorts->starts[i];
        uint16_t row = cohorts->rows[i];

        if (age > age_max) {
            row_empty(cohorts, -1, i);
        } else if (kept > 0 && end - cohorts->starts[kept - 1] <= age / COHORT_BLUR) {
            row_empty(cohorts, (int)kept - 1, i);
        } else {
            /* Rows swap, so that none is lost. */
            cohorts->rows[i] = cohorts->rows[kept];
            cohorts->rows[kept] = row;
            cohorts->starts[kept++] = cohorts->starts[i];
        }
    }
    cohorts->count = kept;
}
