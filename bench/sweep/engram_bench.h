/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_bench.h - `tierbench engram`: what is measured for one kind and number of tokens.
 */
#ifndef BENCH_ENGRAM_BENCH_H
#define BENCH_ENGRAM_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    ENGRAM_BATCH_MAX = 16,
    ENGRAM_TABLES = 2, /* As V4.1 has. */
};

enum engram_device_choice {
    ENGRAM_DEVICE_AUTO, /* A GPU, when there is one. */
    ENGRAM_DEVICE_NONE,
    ENGRAM_DEVICE_CUDA,
    ENGRAM_DEVICE_EMULATION,
    ENGRAM_DEVICE_CHOICE_COUNT,
};

struct engram_plan {
    const char *directory;
    uint64_t row_count; /* Of each table. */
    uint64_t batches[ENGRAM_BATCH_MAX];
    uint32_t batch_count;
    double seconds; /* For each figure. */
    /* Steps with something to compute: */
    uint64_t step_ns;     /* 0: none are measured. */
    uint64_t cache_bytes; /* Of each table. */
    const char *text;     /* Files, separated by commas; NULL: no stream of text. */
    enum engram_device_choice device;
};

enum engram_tokens {
    ENGRAM_UNIFORM,
    ENGRAM_ZIPF, /* Exponent 1. */
    ENGRAM_TEXT, /* Of files, by byte pairs. */
    ENGRAM_TOKENS_COUNT,
};

enum engram_way {
    ENGRAM_PINNED, /* All rows in pinned memory, gathered. */
    ENGRAM_NVME,
    ENGRAM_NVME_CACHE,
    ENGRAM_WAY_COUNT,
};

enum {
    ENGRAM_STEP_ROWS_MAX = ENGRAM_BATCH_MAX * ENGRAM_TOKENS_COUNT * ENGRAM_WAY_COUNT * 2,
};

/* Steps that compute for plan->step_ns, a timed wait of the host, and need their rows first. */
struct engram_step_row {
    enum engram_tokens tokens;
    enum engram_way way;
    bool is_prefetched; /* The rows of a step are asked for before the one before it computes. */
    uint64_t batch;
    double tokens_per_s;
    double compute_share; /* Of the rate of steps that only compute, measured in turns with it. */
    uint64_t step_p50_ns, step_p99_ns;
    double pages_per_step; /* That were read. */
    double cache_hit_share;
    double cache_sample_share;              /* What a sample says that it would be. */
    uint64_t cache_worth_ns, cache_cost_ns; /* Of a row, at the end. */
    uint32_t cache_on_count;                /* Of the tables, at the end. */
    uint64_t wrong_rows;
};

static inline uint32_t
engram_tokens_count(const struct engram_plan *plan)
{
    return plan->text != NULL ? ENGRAM_TOKENS_COUNT : ENGRAM_TOKENS_COUNT - 1;
}

/* engram_step_row_count - rows of such a plan. */
static inline uint32_t
engram_step_row_count(const struct engram_plan *plan)
{
    return plan->step_ns == 0
               ? 0
               : engram_tokens_count(plan) * ENGRAM_WAY_COUNT * 2 * plan->batch_count;
}

/* Steps whose rows go to memory of a device, and what computes is the device. */
enum engram_device_way {
    ENGRAM_ON_DEVICE,     /* The tables lie in its memory; rows are gathered there. */
    ENGRAM_UVA,           /* ... in pinned memory; a kernel gathers rows over the bus. */
    ENGRAM_TO_DEVICE,     /* Rows are fetched from NVMe to the device. */
    ENGRAM_DEVICE_CACHED, /* ... with a cache of rows on the device. */
    ENGRAM_DEVICE_WAY_COUNT,
};

enum engram_mode {
    ENGRAM_ALONE, /* Nothing is computed: rows only, one step behind the other. */
    ENGRAM_SYNCHRONOUS,
    ENGRAM_PREFETCHED,
    ENGRAM_MODE_COUNT,
};

enum {
    ENGRAM_DEVICE_ROWS_MAX =
        ENGRAM_BATCH_MAX * ENGRAM_TOKENS_COUNT * ENGRAM_DEVICE_WAY_COUNT * ENGRAM_MODE_COUNT,
};

struct engram_device_facts {
    char name[64];
    bool is_emulated;
};

struct engram_device_row {
    enum engram_tokens tokens;
    enum engram_device_way way;
    enum engram_mode mode;
    uint64_t batch;
    double tokens_per_s, rows_per_s;
    double compute_share; /* As engram_step_row's; ALONE: 0. */
    uint64_t step_p50_ns, step_p99_ns;
    double pages_per_step; /* That were read. */
    double cache_hit_share, cache_sample_share;
    uint64_t cache_worth_ns, cache_cost_ns;
    uint32_t cache_on_count;
    uint64_t wrong_rows;
};

struct engram_device_rows {
    struct engram_device_facts facts;
    bool has_device;
    uint32_t count; /* None: there is no device. */
    struct engram_device_row rows[ENGRAM_DEVICE_ROWS_MAX];
};

/* engram_device_rows_print - as lines; engram_device_rows_print_json: members of the object that is
 * open. */
struct json;
void engram_device_rows_print(
    const struct engram_plan *plan, const struct engram_device_rows *rows);
void engram_device_rows_print_json(
    struct json *json, const struct engram_plan *plan, const struct engram_device_rows *rows);

struct engram_row {
    bool is_zipf;
    uint64_t batch;             /* Tokens of a step. */
    double plan_tokens_per_s;   /* Hashing, each row once. */
    double step_tokens_per_s;   /* Plan, fetch of both tables, wait: one step at a time. */
    double stream_tokens_per_s; /* Four steps in flight. */
    double stream_rows_per_s;   /* Rows in their slots. */
    double stream_pages_per_s;
    double stream_cpu_ns_per_page; /* Of the whole process: planning and waiting, too. */
    double ceiling_pages_per_s;    /* Random reads of 4 KiB of the same file, in turns with it. */
    uint64_t first_p50_ns, first_p99_ns; /* One step: until the first table's rows are there. */
    uint64_t step_p50_ns, step_p99_ns;   /* ... and both tables'. */
    uint64_t wrong_rows;
};

/* engram_measure - every row of the result; two for each batch. False: complained. */
bool engram_measure(const struct engram_plan *plan, struct engram_row *rows_out,
    struct engram_step_row *steps_out, struct engram_device_rows *device_rows_out);

const char *engram_tokens_name(enum engram_tokens tokens);

#endif /* BENCH_ENGRAM_BENCH_H */
