/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_policy.h - the vtable of a policy in the simulator: what leaves a tier first.
 *
 * The policies of the library run here as they are, behind sim_production.c; the others are from
 * the literature, one file each, made leaf-first: the victim is the first block in the policy's
 * order that no child needs.
 *
 * The simulator tells a policy, for each request: the leading blocks that are there (request), the
 * new ones (arrive), each copy that comes (add), then each that goes (remove), and each block that
 * has no copy any more (leave). sim_copies has a copy from `add` on and no more from `remove` on:
 * it is changed before either is called.
 */
#ifndef BENCH_SIM_POLICY_H
#define BENCH_SIM_POLICY_H

#include "sim_copies.h"

/* What moving and computing a block cost. */
struct sim_costs {
    double host_load_ms;
    double nvme_load_ms;
    double recompute_ms;            /* Of a block at depth 0 ... */
    double recompute_depth_ms;      /* ... and more for each block above it. */
    double write_price_ms;          /* Of a block written to NVMe. */
    uint32_t writes_per_second_max; /* 0: no budget. */
};

/* What a policy may know. Constant while it is open, but for the copies. */
struct sim_view {
    const struct chains *chains;
    const struct sim_copies *copies;
    uint32_t capacities[SIM_PLACE_COUNT]; /* Blocks; 0: there is no such tier. */
    struct sim_costs costs;
    uint32_t block_tokens;
    const uint8_t *hints; /* By place in trace->ids; NULL: none. */
    /* NVMe is reclaimed by segments: no victim is asked for there, and blocks may stay there while
     * their parents leave. Such a block does not arrive when they are back, but is used. */
    bool has_segments;
};

struct sim_policy;

struct sim_policy_ops {
    const char *name;
    /* Room is made for each block when it comes, while the request holds all of its own; else for
     * all of them behind the request. As the policies of the literature are described. */
    bool has_no_bypass;

    /* False: a sentence was printed. */
    bool (*open)(const struct sim_view *view, struct sim_policy **policy_out);
    void (*close)(struct sim_policy *policy);

    /* The first `hit_count` blocks of the chain are there and are used. */
    void (*request)(struct sim_policy *policy, const struct chain *chain, uint32_t hit_count);
    /* The others come: those that have no copy are new. False: a sentence was printed. NULL:
     * nothing to do. */
    bool (*arrive)(struct sim_policy *policy, const struct chain *chain, uint32_t hit_count);
    void (*leave)(struct sim_policy *policy, uint32_t block); /* NULL: nothing to do. */

    /* False: a sentence was printed. */
    bool (*add)(struct sim_policy *policy, enum sim_place place, uint32_t block);
    void (*remove)(struct sim_policy *policy, enum sim_place place, uint32_t block);

    /* The next copy to give up in `place`, which may go; BLOCK_NONE: there is none. */
    uint32_t (*victim)(struct sim_policy *policy, enum sim_place place);

    /* Whether a block that leaves HBM is worth a place in HOST. NULL: each is. */
    bool (*lowers)(struct sim_policy *policy, uint32_t block);
    /* Whether a block that leaves memory is worth being written to NVMe. NULL: each is. */
    bool (*admits)(struct sim_policy *policy, uint32_t block);
    /* The larger the longer it is worth keeping. NULL: the later it was used. */
    uint64_t (*importance)(struct sim_policy *policy, uint32_t block);
};

/* The first member of every policy. */
struct sim_policy {
    const struct sim_policy_ops *ops;
    const struct sim_view *view;
};

extern const struct sim_policy_ops sim_lru_ops;
extern const struct sim_policy_ops sim_s3fifo_ops;
extern const struct sim_policy_ops sim_default_ops;
extern const struct sim_policy_ops sim_min_ops;
extern const struct sim_policy_ops sim_lfu_ops;
extern const struct sim_policy_ops sim_lfuda_ops;
extern const struct sim_policy_ops sim_gdsf_ops;
extern const struct sim_policy_ops sim_sieve_ops;
extern const struct sim_policy_ops sim_arc_ops;
extern const struct sim_policy_ops sim_two_queue_ops;

#endif /* BENCH_SIM_POLICY_H */
