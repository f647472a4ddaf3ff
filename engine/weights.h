/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weights.h - what a caller's weight of a block means beside those of other blocks.
 *
 * Callers give weights on scales of their own. What counts is the rank among the blocks that came
 * lately: up to the middle a weight changes nothing, from there on it multiplies a score, up to
 * 4096 times in the top tenth, more than ages differ that are minutes apart. When all weights are
 * equal none counts.
 *
 * Threads   the loop only.
 */
#ifndef KVT_ENGINE_WEIGHTS_H
#define KVT_ENGINE_WEIGHTS_H

#include <stdint.h>

enum {
    WEIGHT_BUCKETS = 257, /* 0; then eight an octave. */
};

/* All zero: no block came. */
struct weights {
    uint32_t counts[WEIGHT_BUCKETS]; /* Of blocks that came, older ones count less. */
    uint32_t total;
    uint32_t fresh_count; /* Came since the factors were worked out. */
    float factors[WEIGHT_BUCKETS];
};

static inline uint32_t
weights_bucket(uint32_t weight)
{
    uint32_t octave;

    if (weight == 0)
        return 0;
    octave = 31 - (uint32_t)__builtin_clz(weight);
    return 1 + octave * 8 + (uint32_t)(((uint64_t)weight << 3 >> octave) & 7);
}

/* weights_add - a block with this weight came. */
void weights_add(struct weights *weights, uint32_t weight);

/* weights_factor - what its weight multiplies a block's score by: 1..4096. */
static inline float
weights_factor(const struct weights *weights, uint32_t weight)
{
    float factor = weights->factors[weights_bucket(weight)];

    return factor > 0 ? factor : 1; /* Too few have come. */
}

#endif /* KVT_ENGINE_WEIGHTS_H */
