/* SPDX-License-Identifier: Apache-2.0 */
/*
 * histogram.h - counts of nanoseconds (or any number) in log-linear buckets: 16 to an octave, so
 * a reported percentile is at most 6.25 % above the true one.
 *
 * Threads: any number add; a reader sees each bucket atomically, not all of them at one instant.
 */
#ifndef KVT_BASE_HISTOGRAM_H
#define KVT_BASE_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

enum {
    HISTOGRAM_SUB_COUNT = 16,
    HISTOGRAM_BUCKET_COUNT = 16 + 60 * HISTOGRAM_SUB_COUNT,
};

struct histogram {
    _Atomic uint64_t count;
    _Atomic uint64_t sum;
    _Atomic uint64_t max;
    _Atomic uint64_t buckets[HISTOGRAM_BUCKET_COUNT];
};

void histogram_add(struct histogram *histogram, uint64_t value);

/* histogram_at - the upper edge of the bucket in which the share (0..1) is reached; 0 if empty.
 * Never above the largest value that was added. */
uint64_t histogram_at(const struct histogram *histogram, double share);

#endif /* KVT_BASE_HISTOGRAM_H */
