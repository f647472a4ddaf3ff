/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_two_queue.c - 2Q (Johnson and Shasha 1994): blocks come into a short queue; those that come
 * back soon after they left it are kept in a long list, by last use.
 */
#include "sim_queues.h"

enum {
    TWO_QUEUE_IN,   /* A1in: a quarter of the copies. */
    TWO_QUEUE_MAIN, /* Am */
    TWO_QUEUE_OUT,  /* A1out: half as many blocks as the tier has copies. */
};

static bool
two_queue_open(const struct sim_view *view, struct sim_policy **policy_out)
{
    return queued_open(&sim_two_queue_ops, view, policy_out);
}

static void
two_queue_request(struct sim_policy *policy, const struct chain *chain, uint32_t hit_count)
{
    for (uint32_t i = hit_count; i-- > 0;) {
        for (unsigned place = 0; place < SIM_PLACE_COUNT; place++) {
            struct sim_lists *lists = &queues_at(policy, place)->lists;

            /* Uses in the short queue change nothing: they are of one occasion. */
            if (sim_copies_has(policy->view->copies, place, chain->blocks[i]) &&
                sim_lists_of(lists, chain->blocks[i]) == TWO_QUEUE_MAIN)
                sim_lists_move(lists, TWO_QUEUE_MAIN, chain->blocks[i]);
        }
    }
}

static bool
two_queue_add(struct sim_policy *policy, enum sim_place place, uint32_t block)
{
    struct sim_lists *lists = &queues_at(policy, place)->lists;
    bool is_back = sim_lists_of(lists, block) == TWO_QUEUE_OUT;

    if (is_back)
        sim_lists_remove(lists, block);
    queues_insert(policy, place, is_back ? TWO_QUEUE_MAIN : TWO_QUEUE_IN, block);
    return true;
}

static void
two_queue_remove(struct sim_policy *policy, enum sim_place place, uint32_t block)
{
    struct queues *here = queues_at(policy, place);
    bool was_in = sim_lists_of(&here->lists, block) == TWO_QUEUE_IN;

    sim_lists_remove(&here->lists, block);
    if (was_in)
        sim_lists_insert(&here->lists, TWO_QUEUE_OUT, block, BLOCK_NONE);
    queues_forget(here, TWO_QUEUE_OUT, here->capacity / 2);
}

static uint32_t
two_queue_victim(struct sim_policy *policy, enum sim_place place)
{
    struct queues *here = queues_at(policy, place);
    bool is_in = here->lists.lists[TWO_QUEUE_IN].count > here->capacity / 4;
    uint32_t victim = queues_leaf(policy, place, is_in ? TWO_QUEUE_IN : TWO_QUEUE_MAIN);

    if (victim != BLOCK_NONE)
        return victim;
    return queues_leaf(policy, place, is_in ? TWO_QUEUE_MAIN : TWO_QUEUE_IN);
}

const struct sim_policy_ops sim_two_queue_ops = {
    .name = "2q",
    .has_no_bypass = true,
    .open = two_queue_open,
    .close = queued_close,
    .request = two_queue_request,
    .add = two_queue_add,
    .remove = two_queue_remove,
    .victim = two_queue_victim,
};
