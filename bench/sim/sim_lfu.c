/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_lfu.c - LFU: what was used least often goes first.
 */
#include "sim_ranked.h"

static double
lfu_worth(const struct sim_view *view, uint32_t block, uint32_t use_count)
{
    (void)view;
    (void)block;
    return use_count;
}

static const struct ranked_rule lfu_rule = {.worth = lfu_worth, .is_ageing = false};

static bool
lfu_open(const struct sim_view *view, struct sim_policy **policy_out)
{
    return ranked_open(&sim_lfu_ops, &lfu_rule, view, policy_out);
}

const struct sim_policy_ops sim_lfu_ops = RANKED_OPS("lfu", lfu_open);
