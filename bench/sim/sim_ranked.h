/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_ranked.h - what the policies share that give each copy a rank when it is used, and give up
 * the copy of the lowest one: of equals the deepest, then the one used longest ago. Uses of a block
 * are remembered when it leaves the store.
 *
 * The rank counts from the tier's age, which is the rank of the last copy that it gave up: so old
 * fame fades. A policy without ageing leaves the age at 0.
 */
#ifndef BENCH_SIM_RANKED_H
#define BENCH_SIM_RANKED_H

#include "sim_policy.h"

/* What a policy makes of it. */
struct ranked_rule {
    /* By how much a block that was used so often ranks above the tier's age. */
    double (*worth)(const struct sim_view *view, uint32_t block, uint32_t use_count);
    bool is_ageing;
};

/* ranked_open - false: a sentence was printed. */
bool ranked_open(const struct sim_policy_ops *ops, const struct ranked_rule *rule,
    const struct sim_view *view, struct sim_policy **policy_out);

/* The operations of such a policy. */
void ranked_close(struct sim_policy *policy);
void ranked_request(struct sim_policy *policy, const struct chain *chain, uint32_t hit_count);
bool ranked_arrive(struct sim_policy *policy, const struct chain *chain, uint32_t hit_count);
bool ranked_add(struct sim_policy *policy, enum sim_place place, uint32_t block);
void ranked_remove(struct sim_policy *policy, enum sim_place place, uint32_t block);
uint32_t ranked_victim(struct sim_policy *policy, enum sim_place place);

#define RANKED_OPS(text, opener)                                                        \
    {                                                                                   \
        .name = text, .open = opener, .close = ranked_close, .request = ranked_request, \
        .arrive = ranked_arrive, .add = ranked_add, .remove = ranked_remove,            \
        .victim = ranked_victim,                                                        \
    }

#endif /* BENCH_SIM_RANKED_H */
