/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_queues.c - a few lists of blocks for each tier.
 */
#include "sim_queues.h"

#include <stdlib.h>

#include "complain.h"

static bool
queues_open(struct queues *queues, uint32_t block_count)
{
    queues->hand = BLOCK_NONE;
    for (unsigned i = 0; i < QUEUE_COUNT; i++)
        queues->last_came[i] = BLOCK_NONE;
    queues->marks = calloc((size_t)block_count + 1, sizeof(*queues->marks));
    return queues->marks != NULL && sim_lists_create(&queues->lists, block_count, QUEUE_COUNT);
}

bool
queued_open(
    const struct sim_policy_ops *ops, const struct sim_view *view, struct sim_policy **policy_out)
{
    struct queued *queued = calloc(1, sizeof(*queued));
    bool is_fine = queued != NULL;

    if (is_fine)
        queued->base = (struct sim_policy){.ops = ops, .view = view};
    for (unsigned i = 0; is_fine && i < SIM_PLACE_COUNT; i++) {
        queued->places[i].capacity = view->capacities[i];
        is_fine =
            view->capacities[i] == 0 || queues_open(&queued->places[i], view->chains->block_count);
    }
    if (!is_fine) {
        complain("there is no memory for the policy %s", ops->name);
        if (queued != NULL)
            queued_close(&queued->base);
        return false;
    }
    *policy_out = &queued->base;
    return true;
}

void
queued_close(struct sim_policy *policy)
{
    struct queued *queued = (struct queued *)policy;

    for (unsigned i = 0; i < SIM_PLACE_COUNT; i++) {
        sim_lists_destroy(&queued->places[i].lists);
        free(queued->places[i].marks);
    }
    free(queued);
}

struct queues *
queues_at(struct sim_policy *policy, enum sim_place place)
{
    return &((struct queued *)policy)->places[place];
}

void
queues_insert(struct sim_policy *policy, enum sim_place place, uint32_t queue, uint32_t block)
{
    struct sim_lists *lists = &queues_at(policy, place)->lists;
    uint32_t parent = policy->view->chains->parents[block];
    uint32_t *last = &queues_at(policy, place)->last_came[queue];
    bool is_behind =
        parent != BLOCK_NONE && *last == parent && sim_lists_of(lists, parent) == queue;

    sim_lists_insert(lists, queue, block, is_behind ? parent : BLOCK_NONE);
    *last = block;
}

uint32_t
queues_leaf(struct sim_policy *policy, enum sim_place place, uint32_t queue)
{
    const struct sim_lists *lists = &queues_at(policy, place)->lists;
    uint32_t block = lists->lists[queue].oldest;

    while (block != BLOCK_NONE && !sim_copies_may_go(policy->view->copies, place, block))
        block = lists->links[block].newer;
    return block;
}

void
queues_forget(struct queues *queues, uint32_t queue, uint32_t count)
{
    while (queues->lists.lists[queue].count > count)
        sim_lists_remove(&queues->lists, queues->lists.lists[queue].oldest);
}
