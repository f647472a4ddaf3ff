/* SPDX-License-Identifier: Apache-2.0 */
/*
 * statistics.h - the middle and the tail of a few measured values.
 */
#ifndef BENCH_STATISTICS_H
#define BENCH_STATISTICS_H

#include <stdint.h>

/* median - sorts `values` and gives the middle one; 0 of none. */
double median(double *values, uint32_t count);

/* number_percentile - sorts the numbers; the value that `share` (0..1) of them do not exceed. */
uint64_t number_percentile(uint64_t *numbers, uint32_t count, double share);

#endif /* BENCH_STATISTICS_H */
