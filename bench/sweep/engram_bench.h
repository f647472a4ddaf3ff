/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_bench.h - `tierbench engram`: what is measured for one kind and number of tokens.
 */
#ifndef BENCH_ENGRAM_BENCH_H
#define BENCH_ENGRAM_BENCH_H

#include <stdbool.h>
#include <stdint.h>

enum {
    ENGRAM_BATCH_MAX = 16,
    ENGRAM_TABLES = 2, /* As V4.1 has. */
};

struct engram_plan {
    const char *directory;
    uint64_t row_count; /* Of each table. */
    uint64_t batches[ENGRAM_BATCH_MAX];
    uint32_t batch_count;
    double seconds; /* For each figure. */
};

struct engram_row {
    bool is_zipf;
    uint64_t batch;             /* Tokens of a step. */
    double plan_tokens_per_s;   /* Hashing, each row once. */
    double step_tokens_per_s;   /* Plan, fetch of both tables, wait: one step at a time. */
    double stream_tokens_per_s; /* Four steps in flight. */
    double stream_rows_per_s;   /* Rows in their slots. */
    double stream_pages_per_s;
    double ceiling_pages_per_s; /* Random reads of 4 KiB of the same file, in turns with it. */
    uint64_t first_p50_ns, first_p99_ns; /* One step: until the first table's rows are there. */
    uint64_t step_p50_ns, step_p99_ns;   /* ... and both tables'. */
    uint64_t wrong_rows;
};

/* engram_measure - every row of the result; two for each batch. False: complained. */
bool engram_measure(const struct engram_plan *plan, struct engram_row *rows_out);

#endif /* BENCH_ENGRAM_BENCH_H */
