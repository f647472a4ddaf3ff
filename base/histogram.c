/* SPDX-License-Identifier: Apache-2.0 */
/*
 * histogram.c - log-linear buckets. Values below 16 have a bucket each; above, each octave (the
 * values of one highest bit) has 16 of equal width.
 *
 * Memory order: (H1) adding raises `max` and then releases through the bucket; a reader acquires
 * the buckets and then reads `max`. So `max` is never below a value that the reader counted.
 */
#include "histogram.h"

enum {
    SUB_BITS = 4,
};

_Static_assert(HISTOGRAM_SUB_COUNT == 1 << SUB_BITS, "16 to an octave");

static uint32_t
bucket_of(uint64_t value)
{
    uint32_t octave;

    if (value < HISTOGRAM_SUB_COUNT)
        return (uint32_t)value;
    octave = 63 - SUB_BITS - (uint32_t)__builtin_clzll(value);
    return HISTOGRAM_SUB_COUNT + octave * HISTOGRAM_SUB_COUNT +
           (uint32_t)((value >> octave) & (HISTOGRAM_SUB_COUNT - 1));
}

/* The largest value of a bucket. */
static uint64_t
bucket_edge(uint32_t bucket)
{
    uint32_t octave;
    uint64_t sub;

    if (bucket < HISTOGRAM_SUB_COUNT)
        return bucket;
    octave = (bucket - HISTOGRAM_SUB_COUNT) / HISTOGRAM_SUB_COUNT;
    sub = bucket % HISTOGRAM_SUB_COUNT;
    /* In the last bucket the shift gives 2^64, which is 0, and the result UINT64_MAX. */
    return ((HISTOGRAM_SUB_COUNT + sub + 1) << octave) - 1;
}

void
histogram_add(struct histogram *histogram, uint64_t value)
{
    /* Relaxed: a stale maximum costs one more turn of the loop. */
    uint64_t max = atomic_load_explicit(&histogram->max, memory_order_relaxed);

    while (max < value && !atomic_compare_exchange_weak_explicit(&histogram->max, &max, value,
                              memory_order_relaxed, memory_order_relaxed)) {
    }
    atomic_fetch_add_explicit(&histogram->count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&histogram->sum, value, memory_order_relaxed);
    /* (H1) release: pairs with the acquire in histogram_at(). */
    atomic_fetch_add_explicit(&histogram->buckets[bucket_of(value)], 1, memory_order_release);
}

uint64_t
histogram_at(const struct histogram *histogram, double share)
{
    uint64_t counts[HISTOGRAM_BUCKET_COUNT];
    uint64_t total = 0;
    uint64_t seen = 0;
    uint64_t max;

    for (uint32_t i = 0; i < HISTOGRAM_BUCKET_COUNT; i++) {
        /* (H1) acquire: pairs with the release in histogram_add(). */
        counts[i] = atomic_load_explicit(&histogram->buckets[i], memory_order_acquire);
        total += counts[i];
    }
    max = atomic_load_explicit(&histogram->max, memory_order_relaxed);
    if (total == 0)
        return 0;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKET_COUNT; i++) {
        seen += counts[i];
        if (counts[i] != 0 && (double)seen >= share * (double)total) {
            uint64_t edge = bucket_edge(i);

            return edge < max ? edge : max;
        }
    }
    return max;
}
