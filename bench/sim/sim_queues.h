/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_queues.h - what the policies share that keep copies, and blocks that have lost theirs, in a
 * few lists for each tier.
 */
#ifndef BENCH_SIM_QUEUES_H
#define BENCH_SIM_QUEUES_H

#include "sim_lists.h"
#include "sim_policy.h"

enum {
    QUEUE_COUNT = 4,
};

/* One tier's. */
struct queues {
    struct sim_lists lists;
    uint32_t capacity;               /* Copies that the tier holds. */
    uint32_t last_came[QUEUE_COUNT]; /* The block that came last. */
    /* The policy's own. */
    uint32_t target;
    uint32_t hand;
    uint8_t *marks; /* By block. */
};

/* The beginning of every such policy. */
struct queued {
    struct sim_policy base;
    struct queues places[SIM_PLACE_COUNT];
};

/* queued_open - all empty. False: a sentence was printed. */
bool queued_open(
    const struct sim_policy_ops *ops, const struct sim_view *view, struct sim_policy **policy_out);
void queued_close(struct sim_policy *policy);

/* queues_at - of a tier. */
struct queues *queues_at(struct sim_policy *policy, enum sim_place place);

/* queues_insert - a new copy: to the newest end, but behind its parent if that came just before. */
void queues_insert(struct sim_policy *policy, enum sim_place place, uint32_t queue, uint32_t block);

/* queues_leaf - the oldest copy in the queue that may go; BLOCK_NONE: there is none. */
uint32_t queues_leaf(struct sim_policy *policy, enum sim_place place, uint32_t queue);

/* queues_forget - the oldest of the queue, which has copies no more, until `count` are left. */
void queues_forget(struct queues *queues, uint32_t queue, uint32_t count);

#endif /* BENCH_SIM_QUEUES_H */
