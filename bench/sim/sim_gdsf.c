/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_gdsf.c - GreedyDual-Size-Frequency: uses weighed by what a block costs to compute, with
 * ageing. All blocks have one size here.
 */
#include "sim_ranked.h"

static double
gdsf_worth(const struct sim_view *view, uint32_t block, uint32_t use_count)
{
    double recompute_ms =
        view->costs.recompute_ms + view->costs.recompute_depth_ms * view->chains->depths[block];

    return use_count * recompute_ms;
}

static const struct ranked_rule gdsf_rule = {.worth = gdsf_worth, .is_ageing = true};

static bool
gdsf_open(const struct sim_view *view, struct sim_policy **policy_out)
{
    return ranked_open(&sim_gdsf_ops, &gdsf_rule, view, policy_out);
}

const struct sim_policy_ops sim_gdsf_ops = RANKED_OPS("gdsf", gdsf_open);
