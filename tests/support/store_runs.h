/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_runs.h - many runs of the workload, each with its own seed, over stores of one shape: in
 * the simulated world, or on this machine. Whatever goes wrong fails the running test.
 */
#ifndef KVT_TESTS_STORE_RUNS_H
#define KVT_TESTS_STORE_RUNS_H

#include "kvtier/kvtier.h"
#include "seeds.h"

enum {
    RUN_OPERATIONS =
        250, /* Of a run; of one that evicts four times as many: NVMe has to be full. */
    RUN_SEEDS = 200,
};

/* Tiers of a run. */
struct shape {
    const char *name;
    bool is_small;      /* They cannot hold everything. */
    bool has_small_map; /* They could, but the map cannot. */
    bool has_hbm;
};

void simulated_runs(const struct seeds *seeds, const struct shape *shape, uint64_t count);
/* A twentieth of the seeds. */
void real_runs(const struct seeds *seeds, enum kvt_io_engine engine, const struct shape *shape);

#endif /* KVT_TESTS_STORE_RUNS_H */
