/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_run.h - one run: a trace through a simulated store with one policy, and what was counted.
 *
 * One request at a time, in the order of their times. The leading blocks that are there are its
 * hits. They come to the highest tier, what NVMe alone has by way of HOST, and so do the blocks
 * that were missing; copies further down stay. Then each tier gives up what is above its capacity,
 * from the highest to the lowest: what leaves HBM goes to HOST, what leaves HOST to NVMe if the
 * policy admits it or a child needs it, and what has no copy any more has left the store. HOST
 * first gives up copies of what the request has just taken to HBM.
 *
 * With --capacity there is one tier, HOST.
 */
#ifndef BENCH_SIM_RUN_H
#define BENCH_SIM_RUN_H

#include "sim_policy.h"

struct sim_plan {
    const struct chains *chains;
    const struct sim_policy_ops *policy;
    uint32_t capacities[SIM_PLACE_COUNT]; /* Blocks; 0: there is no such tier. HOST is there. */
    struct sim_costs costs;
    const uint8_t *hints; /* By place in trace->ids; NULL: none. */
    uint32_t block_tokens;
    uint32_t score_from;      /* The first request that counts. */
    uint32_t segment_blocks;  /* 0: NVMe gives up block by block. */
    bool keeps_doubles;       /* HOST has no turn of its own for what the request took to HBM. */
    uint32_t hbm_low_percent; /* HBM, when it is full, gives up down to that. 0: one by one. */
    /* Called behind each request; NULL: nobody looks. */
    void (*look)(void *context, const struct sim_copies *copies, const struct chain *chain);
    void *look_context;
};

/* Everything that is counted, from score_from on. */
struct sim_totals {
    uint64_t request_count;
    uint64_t block_count; /* Asked for. */
    uint64_t input_tokens;
    uint64_t saved_tokens;
    uint64_t hits[SIM_PLACE_COUNT]; /* By the best tier. */
    uint64_t d2h_count;
    uint64_t nvme_write_count;   /* Of blocks that came down. */
    uint64_t nvme_rewrite_count; /* Of blocks that a segment's reclaim kept. */
    double recompute_ms;         /* Of everything that was asked for. */
    double saved_ms;
    double elapsed_seconds; /* Of the whole run. */
    uint64_t access_count;  /* Blocks asked for in the whole run. */
};

/* sim_plan_run - false: a sentence was printed. */
bool sim_plan_run(const struct sim_plan *plan, struct sim_totals *totals_out);

#endif /* BENCH_SIM_RUN_H */
