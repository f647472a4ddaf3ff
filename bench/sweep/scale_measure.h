/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scale_measure.h - what one number of small blocks costs.
 */
#ifndef BENCH_SCALE_MEASURE_H
#define BENCH_SCALE_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

/* What is measured. */
struct scale_store {
    const char *path;
    uint64_t entries;
    uint32_t block_bytes;
    bool keeps; /* It stays at `path`, closed. */
};

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
 * scale_measure - with a new store, in place of what lies there. The work is done in a process of
 * its own: memory that another number of blocks had left behind would hide what this one takes.
 * False: complained, and there is no store.
 */
bool scale_measure(const struct scale_store *store, struct scale_row *row_out);

#endif /* BENCH_SCALE_MEASURE_H */
