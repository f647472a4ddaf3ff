/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_rig_bench.h - two tables in a store, and steps that fetch rows of them: what the files of
 * `tierbench engram` share.
 */
#ifndef BENCH_ENGRAM_RIG_BENCH_H
#define BENCH_ENGRAM_RIG_BENCH_H

#include "disk_probe.h"
#include "engram_bench.h"
#include "kvtier/kvtier.h"

enum {
    ENGRAM_PATH_BYTES = 4096,
    ENGRAM_COLUMNS = 24,
    ENGRAM_STEPS_IN_FLIGHT = 4,
    ENGRAM_TOKENS_MAX = 16384, /* Of a step. */
};

/* One step's memory. */
struct engram_step {
    kvt_engram_plan *plan;
    kvt_engram_fetch *fetch;
    uint8_t *rows[ENGRAM_TABLES];
    uint64_t page_count, row_count;
};

struct engram_bench_rig {
    const struct engram_plan *plan;
    char path[ENGRAM_PATH_BYTES];
    struct kvt_engram_profile profile;
    kvt_store *store;
    kvt_engram_hasher *hasher;
    kvt_engram *tables[ENGRAM_TABLES];
    struct disk_probe probe;
    bool has_probe;
    uint32_t depth; /* At which the ceiling is highest. */
    double *sums;   /* Of Zipf's law. */
    uint32_t *tokens;
    uint64_t random;
    struct engram_step steps[ENGRAM_STEPS_IN_FLIGHT];
    uint64_t *first_ns, *step_ns;
    uint32_t layer_index; /* While a table is made. */
    bool has_device;      /* engram_device.h */
};

extern const char *const engram_table_names[ENGRAM_TABLES];

/* engram_token_next - a class, uniform or by Zipf's law. */
uint32_t engram_token_next(struct engram_bench_rig *rig, bool is_zipf);

/* engram_steps_take - memory for steps of `batch` tokens. False: there is none. */
bool engram_steps_take(struct engram_bench_rig *rig, uint32_t batch);
void engram_steps_put(struct engram_bench_rig *rig);
/* engram_step_count - pages and rows of its plan. */
void engram_step_count(struct engram_bench_rig *rig, struct engram_step *step);
bool engram_step_submit(struct engram_bench_rig *rig, struct engram_step *step, uint32_t batch);
/* engram_step_wait - both tables; the fetch is freed. */
bool engram_step_wait(struct engram_step *step);
uint64_t engram_step_wrong_rows(struct engram_bench_rig *rig, const struct engram_step *step);

/* engram_tables_again - the tables anew, with nothing pinned or cached. False: complained. */
bool engram_tables_again(struct engram_bench_rig *rig);

/* engram_steps_measure - every row of plan->step_row_count. False: complained. */
bool engram_steps_measure(struct engram_bench_rig *rig, struct engram_step_row *rows_out);
/* engram_device_measure - the rows of the rig's device. False: complained. */
bool engram_device_measure(struct engram_bench_rig *rig, struct engram_device_rows *rows_out);

#endif /* BENCH_ENGRAM_RIG_BENCH_H */
