/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.h - what the files of `tierbench sim` share: the command line, understood, and the figures of
 * each run.
 */
#ifndef BENCH_SIM_H
#define BENCH_SIM_H

#include "outputs.h"
#include "sim_run.h"

enum {
    SIM_POLICIES_MAX = 10,
    SIM_CAPACITIES_MAX = 16,
    SIM_PATH_BYTES = 4096,
};

/* How many blocks: a share of the trace's unique ones, or a number. */
struct sim_capacity {
    double percent; /* 0: `blocks` says it. */
    uint64_t blocks;
};

struct sim_settings {
    const char *trace_path;
    const struct sim_policy_ops *policies[SIM_POLICIES_MAX];
    uint32_t policy_count;
    struct sim_capacity capacities[SIM_CAPACITIES_MAX]; /* Of HOST, one run each. */
    uint32_t capacity_count;
    struct sim_capacity tiers[SIM_PLACE_COUNT];
    bool has_tiers; /* Then there are no capacities. */
    double write_price_ms;
    uint64_t writes_per_second_max; /* 0: no budget. */
    uint64_t segment_blocks;        /* 0: none. */
    uint64_t score_from;
    uint64_t block_tokens;
    double hint_accuracy; /* Below 0: there are no hints. */
    struct outputs outputs;
    char plot_path[SIM_PATH_BYTES]; /* What outputs.plot_path points to. */
    const char *plot_directory;
    bool as_json;
};

/* One run, and what came of it. */
struct sim_result {
    const struct sim_policy_ops *policy;
    struct sim_capacity capacity; /* With tiers: of all of them together. */
    uint32_t capacities[SIM_PLACE_COUNT];
    struct sim_totals totals;
};

struct sim_results {
    const struct sim_settings *settings;
    const struct chains *chains;
    double trace_seconds; /* From the first request that counts to the last. */
    struct sim_result rows[SIM_POLICIES_MAX * SIM_CAPACITIES_MAX]; /* A policy's stand together. */
    uint32_t count;
};

/* sim_settings_read - false, with a sentence or the help, and an exit code. */
bool sim_settings_read(struct sim_settings *settings, int argc, char **argv, int *exit_out);

/* sim_hints_create - a hint for each place in trace->ids: 2 for a block that will be used again, 1
 * for one that will not, wrong in 1 - `accuracy` of all requests. To be freed. NULL: complained. */
uint8_t *sim_hints_create(const struct chains *chains, double accuracy);

/* sim_report - to stdout, and to the files that were asked for. False: complained. */
bool sim_report(const struct sim_results *results);

/* Percent of the prompts' tokens that hits make needless, and of the blocks that were there. */
double sim_token_hits(const struct sim_totals *totals);
double sim_block_hits(const struct sim_totals *totals);

/* sim_curves - hits over capacities, a curve for each policy. False: complained. */
bool sim_curves(const struct sim_results *results, const char *path);

#endif /* BENCH_SIM_H */
