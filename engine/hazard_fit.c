/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hazard_fit.c - pooling of adjacent violators, and the Gittins maximum over stopping ages.
 */
#include "hazard_fit.h"

#include <math.h>
#include <stdbool.h>

/* Neighbours that have one value. */
struct pool {
    double mean, weight;
    uint32_t size;
};

static struct pool
pool_join(struct pool a, struct pool b)
{
    double weight = a.weight + b.weight;

    return (struct pool){(a.mean * a.weight + b.mean * b.weight) / weight, weight, a.size + b.size};
}

/* The nearest curve to values[0], values[step] ... (count of them) that does not fall. */
static void
rising_fit(double *values, const double *weights, uint32_t count, int step)
{
    struct pool pools[HAZARD_BUCKETS];
    uint32_t pool_count = 0;

    for (uint32_t i = 0; i < count; i++) {
        pools[pool_count++] = (struct pool){values[(int)i * step], weights[(int)i * step], 1};
        while (pool_count > 1 && pools[pool_count - 2].mean > pools[pool_count - 1].mean) {
            pools[pool_count - 2] = pool_join(pools[pool_count - 2], pools[pool_count - 1]);
            pool_count--;
        }
    }
    for (uint32_t pool = 0, i = 0; pool < pool_count; pool++) {
        for (uint32_t member = 0; member < pools[pool].size; member++, i++)
            values[(int)i * step] = pools[pool].mean;
    }
}

void
hazard_unimodal(double values[HAZARD_BUCKETS], const double weights[HAZARD_BUCKETS], uint32_t peak)
{
    uint32_t last = HAZARD_BUCKETS - 1;

    rising_fit(values, weights, peak + 1, 1);
    rising_fit(&values[last], &weights[last], last - peak, -1);
}

uint32_t
hazard_peak(const double values[HAZARD_BUCKETS], const double weights[HAZARD_BUCKETS])
{
    double least = INFINITY;
    uint32_t best = 0;

    for (uint32_t peak = 0; peak < HAZARD_BUCKETS; peak++) {
        double fitted[HAZARD_BUCKETS];
        double error = 0;

        for (uint32_t k = 0; k < HAZARD_BUCKETS; k++)
            fitted[k] = values[k];
        hazard_unimodal(fitted, weights, peak);
        for (uint32_t k = 0; k < HAZARD_BUCKETS; k++)
            error += weights[k] * (fitted[k] - values[k]) * (fitted[k] - values[k]);
        if (error < least) {
            least = error;
            best = peak;
        }
    }
    return best;
}

void
hazard_gittins(const double rates[HAZARD_BUCKETS], const double widths[HAZARD_BUCKETS],
    double index_out[HAZARD_BUCKETS])
{
    double reuse[HAZARD_BUCKETS]; /* Probability within the bucket, of those that reach it. */

    for (uint32_t k = 0; k < HAZARD_BUCKETS; k++)
        reuse[k] = -expm1(-rates[k] * widths[k]);
    for (uint32_t k = 0; k < HAZARD_BUCKETS; k++) {
        double reuses = 0, seconds = 0, waiting = 1, best = 0;

        for (uint32_t j = k; j < HAZARD_BUCKETS; j++) {
            reuses += waiting * reuse[j];
            seconds += waiting * reuse[j] / rates[j];
            waiting *= 1 - reuse[j];
            if (reuses > best * seconds)
                best = reuses / seconds;
        }
        index_out[k] = best;
    }
}
