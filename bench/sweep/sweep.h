/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sweep.h - `tierbench sweep`: what is measured for one block size, and the plan for all.
 */
#ifndef BENCH_SWEEP_H
#define BENCH_SWEEP_H

#include <stdbool.h>
#include <stdint.h>

enum {
    SWEEP_SIZE_MAX = 16,
    SWEEP_DEPTH_MAX = 16,
    SWEEP_ROUND_COUNT = 5,
};

struct sweep_plan {
    const char *directory;
    uint64_t store_bytes;
    uint64_t segment_bytes;
    double seconds; /* Of each figure, all rounds together. */
    uint64_t block_bytes[SWEEP_SIZE_MAX];
    uint32_t size_count;
    uint64_t depths[SWEEP_DEPTH_MAX];
    uint32_t depth_count;
};

/* A figure of the store and of the machine without it, measured in turns. */
struct sweep_pair {
    double ours_bytes_per_s;
    double raw_bytes_per_s;
};

struct sweep_row {
    uint64_t block_bytes;
    struct sweep_pair put_first; /* Into space that was never written. */
    struct sweep_pair put_again; /* Over recycled segments. */
    struct sweep_pair reads[SWEEP_DEPTH_MAX];
    struct sweep_pair read_best; /* Each at its own best depth. */
    uint32_t ours_best_depth;
    uint32_t raw_best_depth;
    struct sweep_pair host_get;
    uint64_t lookup_p50_ns; /* 1,000 keys under a lease, release included. */
    uint64_t lookup_p99_ns;
    uint64_t get_p50_ns; /* Of an NVMe block, all depths together. */
    uint64_t get_p99_ns;
    uint64_t wrong_bytes;
    uint64_t miss_count;
};

/* sweep_measure - one block size. False: complained. */
bool sweep_measure(const struct sweep_plan *plan, uint64_t block_bytes, struct sweep_row *row_out);

#endif /* BENCH_SWEEP_H */
