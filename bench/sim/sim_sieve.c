/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_sieve.c - SIEVE (Zhang and others 2024): a hand goes from the oldest copy to the newest, and
 * takes the first that was not used since it last came by. Nothing ever moves.
 */
#include "sim_queues.h"

enum {
    SIEVE_ALL,
};

static bool
sieve_open(const struct sim_view *view, struct sim_policy **policy_out)
{
    return queued_open(&sim_sieve_ops, view, policy_out);
}

static void
sieve_request(struct sim_policy *policy, const struct chain *chain, uint32_t hit_count)
{
    for (uint32_t i = 0; i < hit_count; i++) {
        for (unsigned place = 0; place < SIM_PLACE_COUNT; place++) {
            if (sim_copies_has(policy->view->copies, place, chain->blocks[i]))
                queues_at(policy, place)->marks[chain->blocks[i]] = 1;
        }
    }
}

static bool
sieve_add(struct sim_policy *policy, enum sim_place place, uint32_t block)
{
    queues_at(policy, place)->marks[block] = 0;
    queues_insert(policy, place, SIEVE_ALL, block);
    return true;
}

static void
sieve_remove(struct sim_policy *policy, enum sim_place place, uint32_t block)
{
    struct queues *here = queues_at(policy, place);

    if (here->hand == block)
        here->hand = here->lists.links[block].newer;
    sim_lists_remove(&here->lists, block);
}

/* Two turns: the first may only take the marks away. */
static uint32_t
sieve_victim(struct sim_policy *policy, enum sim_place place)
{
    struct queues *here = queues_at(policy, place);
    uint32_t count = here->lists.lists[SIEVE_ALL].count;

    for (uint64_t look = 0; look < 2 * (uint64_t)count + 1; look++) {
        uint32_t block =
            here->hand == BLOCK_NONE ? here->lists.lists[SIEVE_ALL].oldest : here->hand;

        here->hand = block;
        if (here->marks[block] == 0 && sim_copies_may_go(policy->view->copies, place, block))
            return block;
        if (!sim_copies_is_pinned(policy->view->copies, block))
            here->marks[block] = 0;
        here->hand = here->lists.links[block].newer;
    }
    return BLOCK_NONE;
}

const struct sim_policy_ops sim_sieve_ops = {
    .name = "sieve",
    .has_no_bypass = true,
    .open = sieve_open,
    .close = queued_close,
    .request = sieve_request,
    .add = sieve_add,
    .remove = sieve_remove,
    .victim = sieve_victim,
};
