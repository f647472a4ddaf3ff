/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hazard_tables.h - what follows from what was learned, for each class at the edges of its age
 * buckets, and looking it up. A choice of one victim looks up 32 blocks, so that all of it is
 * inline. hazard.c makes the tables.
 */
#ifndef KVT_ENGINE_HAZARD_TABLES_H
#define KVT_ENGINE_HAZARD_TABLES_H

#include <string.h>

#include "cohorts.h"
#include "failure.h"
#include "hazard_fit.h"

#define HAZARD_TICK_SECONDS ((double)(UINT64_C(1) << HAZARD_TICK_SHIFT) / 1e9)
#define HAZARD_ROOT_2 1.4142135f
#define HAZARD_ROOT_2_BITS 0x3504F3u /* Behind its octave. */

enum {
    HAZARD_TICK_SHIFT = 26, /* A tick is 2^26 ns: 67 ms. */
    HAZARD_AGE_MAX_SECONDS = 3600,
    HAZARD_PRIOR_SECONDS = 60, /* The hazard before there are data falls with age + this. */
    HAZARD_USES_MAX = 9,
    HAZARD_TURNS_MAX = 4,
    HAZARD_SEGMENTS = 4,
    HAZARD_GAPS = 5,
    HAZARD_GAP_NONE = 0, /* It was used once. */
    HAZARD_USE_BUCKETS = 5,
    HAZARD_CLASSES = COHORT_PLANES * COHORT_CLASSES,
};

/* What makes the class of a block. */
struct hazard_traits {
    uint8_t use_count; /* 1..HAZARD_USES_MAX, which stands for more too. */
    uint8_t gap;       /* Bucket of the gap before the last use: 1..4, or HAZARD_GAP_NONE. */
    uint8_t segment;   /* Bucket of the length of the run of new blocks with which it came: 0..3. */
    uint8_t turn;      /* 1..HAZARD_TURNS_MAX: runs of new blocks in its chain, its own included. */
    uint8_t hint;      /* 0..3 */
};

/* Both are asked of one block, so that they stand together. */
struct hazard_point {
    float index;  /* Reuses a block-second that keeping it can earn. */
    float chance; /* Of a reuse within the horizon. */
};

struct hazard_tables {
    float starts[HAZARD_BUCKETS], widths_inverse[HAZARD_BUCKETS];   /* Of buckets; seconds. */
    struct hazard_point points[HAZARD_CLASSES][HAZARD_BUCKETS + 1]; /* At the edges. */
};

/* hazard_class - the number of the class of a block. */
static inline uint32_t
hazard_class(const struct hazard_traits *traits)
{
    static const uint8_t use_buckets[HAZARD_USES_MAX + 1] = {0, 0, 1, 2, 2, 3, 3, 3, 3, 4};
    uint32_t turn = traits->turn <= 2 ? 0 : traits->turn - 2u;

    KVT_ASSERT(traits->use_count >= 1 && traits->use_count <= HAZARD_USES_MAX);
    return traits->hint * COHORT_CLASSES +
           ((turn * HAZARD_SEGMENTS + traits->segment) * HAZARD_USE_BUCKETS +
               use_buckets[traits->use_count]) *
               HAZARD_GAPS +
           traits->gap;
}

/* hazard_bucket - of an age in seconds below HAZARD_AGE_MAX_SECONDS. The bits of a float are its
 * octave and, below, where in the octave it is. */
static inline uint32_t
hazard_bucket(float age)
{
    uint32_t bits;

    if (age < 1)
        return 0;
    memcpy(&bits, &age, sizeof(bits));
    return 1 + 2 * ((bits >> 23) - 127) + ((bits & 0x7FFFFFu) >= HAZARD_ROOT_2_BITS);
}

/* hazard_at - of a class at an age (ticks), between the edges. From the last one on the index falls
 * as it would before there are data, and the chance stays. */
static inline struct hazard_point
hazard_at(const struct hazard_tables *tables, uint32_t class_index, uint32_t age)
{
    const struct hazard_point *points = tables->points[class_index];
    float seconds = (float)age * (float)HAZARD_TICK_SECONDS;
    const struct hazard_point *last = &points[HAZARD_BUCKETS];
    float share;
    uint32_t k;

    if (seconds >= HAZARD_AGE_MAX_SECONDS)
        return (struct hazard_point){last->index *
                                         (float)(HAZARD_AGE_MAX_SECONDS + HAZARD_PRIOR_SECONDS) /
                                         (seconds + (float)HAZARD_PRIOR_SECONDS),
            last->chance};
    k = hazard_bucket(seconds);
    share = (seconds - tables->starts[k]) * tables->widths_inverse[k];
    return (struct hazard_point){
        points[k].index + (points[k + 1].index - points[k].index) * share,
        points[k].chance + (points[k + 1].chance - points[k].chance) * share,
    };
}

#endif /* KVT_ENGINE_HAZARD_TABLES_H */
