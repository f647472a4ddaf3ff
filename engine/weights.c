/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weights.c - a histogram of weights, and the factor of each rank.
 */
#include "weights.h"

#include <math.h>

enum {
    FRESH_MAX = 32,
    TOTAL_MAX = 1 << 16,
};

/* Ranks (shares of the blocks that came) between which the factor rises. */
static const double rank_low = 0.5;
static const double rank_high = 0.9;
static const double octaves = 12;

static void
factors_set(struct weights *weights)
{
    double below = 0;

    for (uint32_t i = 0; i < WEIGHT_BUCKETS; i++) {
        double rank = (below + weights->counts[i] / 2.0) / weights->total;
        double share = (rank - rank_low) / (rank_high - rank_low);

        below += weights->counts[i];
        weights->factors[i] = share <= 0 ? 1 : (float)exp2(octaves * (share < 1 ? share : 1));
    }
    weights->fresh_count = 0;
}

void
weights_add(struct weights *weights, uint32_t weight)
{
    weights->counts[weights_bucket(weight)]++;
    weights->total++;
    weights->fresh_count++;
    if (weights->total == TOTAL_MAX) {
        weights->total = 0;
        for (uint32_t i = 0; i < WEIGHT_BUCKETS; i++) {
            weights->counts[i] /= 2;
            weights->total += weights->counts[i];
        }
    }
    if (weights->fresh_count == FRESH_MAX)
        factors_set(weights);
}
