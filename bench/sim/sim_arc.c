/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_arc.c - ARC (Megiddo and Modha 2003): what was used once and what was used more often have a
 * list each, and blocks that lately left either say which of the two should be longer.
 */
#include "sim_queues.h"

enum {
    ARC_ONCE,       /* T1 */
    ARC_OFTEN,      /* T2 */
    ARC_ONCE_GONE,  /* B1 */
    ARC_OFTEN_GONE, /* B2 */
};

static bool
arc_open(const struct sim_view *view, struct sim_policy **policy_out)
{
    return queued_open(&sim_arc_ops, view, policy_out);
}

static uint32_t
count_of(const struct queues *queues, uint32_t queue)
{
    return queues->lists.lists[queue].count;
}

static void
arc_request(struct sim_policy *policy, const struct chain *chain, uint32_t hit_count)
{
    for (uint32_t i = hit_count; i-- > 0;) {
        for (unsigned place = 0; place < SIM_PLACE_COUNT; place++) {
            if (sim_copies_has(policy->view->copies, place, chain->blocks[i]))
                sim_lists_move(&queues_at(policy, place)->lists, ARC_OFTEN, chain->blocks[i]);
        }
    }
}

/* A block came back that had left `gone`: the target, of ARC_ONCE, was too small, or too large. */
static void
target_adapt(struct queues *queues, uint32_t gone)
{
    uint32_t other = gone == ARC_ONCE_GONE ? ARC_OFTEN_GONE : ARC_ONCE_GONE;
    uint32_t step = count_of(queues, other) / count_of(queues, gone);

    if (step == 0)
        step = 1;
    if (gone == ARC_ONCE_GONE)
        queues->target =
            step < queues->capacity - queues->target ? queues->target + step : queues->capacity;
    else
        queues->target = step < queues->target ? queues->target - step : 0;
}

static bool
arc_add(struct sim_policy *policy, enum sim_place place, uint32_t block)
{
    struct queues *here = queues_at(policy, place);
    uint32_t gone = sim_lists_of(&here->lists, block);

    if (gone == LIST_NONE) {
        queues_insert(policy, place, ARC_ONCE, block);
        return true;
    }
    target_adapt(here, gone);
    sim_lists_remove(&here->lists, block);
    queues_insert(policy, place, ARC_OFTEN, block);
    return true;
}

static void
arc_remove(struct sim_policy *policy, enum sim_place place, uint32_t block)
{
    struct queues *here = queues_at(policy, place);
    uint32_t gone = sim_lists_of(&here->lists, block) + (ARC_ONCE_GONE - ARC_ONCE);

    sim_lists_remove(&here->lists, block);
    sim_lists_insert(&here->lists, gone, block, BLOCK_NONE);
    if (count_of(here, ARC_ONCE) + count_of(here, ARC_ONCE_GONE) > here->capacity)
        queues_forget(here, ARC_ONCE_GONE,
            count_of(here, ARC_ONCE) < here->capacity ? here->capacity - count_of(here, ARC_ONCE)
                                                      : 0);
    queues_forget(here, ARC_OFTEN_GONE, here->capacity);
}

static uint32_t
arc_victim(struct sim_policy *policy, enum sim_place place)
{
    struct queues *here = queues_at(policy, place);
    bool is_once = count_of(here, ARC_ONCE) > here->target;
    uint32_t victim = queues_leaf(policy, place, is_once ? ARC_ONCE : ARC_OFTEN);

    if (victim != BLOCK_NONE)
        return victim;
    return queues_leaf(policy, place, is_once ? ARC_OFTEN : ARC_ONCE);
}

const struct sim_policy_ops sim_arc_ops = {
    .name = "arc",
    .has_no_bypass = true,
    .open = arc_open,
    .close = queued_close,
    .request = arc_request,
    .add = arc_add,
    .remove = arc_remove,
    .victim = arc_victim,
};
