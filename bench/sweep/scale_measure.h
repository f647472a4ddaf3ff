/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scale_measure.h - what one number of small blocks costs.
 */
#ifndef BENCH_SCALE_MEASURE_H
#define BENCH_SCALE_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

struct scale_row {
    uint64_t entries; /* That were put: whole batches, so a few more than asked for. */
    double entry_memory_bytes;
    double put_per_s;
    uint64_t lookup_p50_ns;
    uint64_t lookup_p99_ns;
    uint32_t lookup_found;
    double reopen_clean_seconds;
    double reopen_killed_seconds;
    bool cache_dropped;
};

/*
 * scale_measure - with `entries` blocks in a new store at `path`, which is removed. The work is
 * done in a process of its own: memory that another number of blocks had left behind would hide
 * what this one takes. False: complained.
 */
bool scale_measure(const char *path, uint64_t entries, struct scale_row *row_out);

#endif /* BENCH_SCALE_MEASURE_H */
