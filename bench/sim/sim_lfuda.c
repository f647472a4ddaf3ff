/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_lfuda.c - LFU with dynamic ageing: uses count on top of the rank of the last copy that was
 * given up before.
 */
#include "sim_ranked.h"

static double
lfuda_worth(const struct sim_view *view, uint32_t block, uint32_t use_count)
{
    (void)view;
    (void)block;
    return use_count;
}

static const struct ranked_rule lfuda_rule = {.worth = lfuda_worth, .is_ageing = true};

static bool
lfuda_open(const struct sim_view *view, struct sim_policy **policy_out)
{
    return ranked_open(&sim_lfuda_ops, &lfuda_rule, view, policy_out);
}

const struct sim_policy_ops sim_lfuda_ops = RANKED_OPS("lfuda", lfuda_open);
