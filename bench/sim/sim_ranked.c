/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_ranked.c - policies that give up the copy of the lowest rank.
 *
 * Owns      for each tier a heap of copies, the lowest rank first.
 *
 * A copy that a child needs leaves the heap when it comes to its top, and is back in it as soon as
 * none does: when a child's copy goes, or one of its own comes further up.
 */
#include "sim_ranked.h"

#include <stdlib.h>
#include <string.h>

#include "complain.h"

#define POSITION_NONE UINT32_MAX /* In no heap. */

struct ranked_place {
    double age;
    double *ranks;       /* By block. */
    uint32_t *positions; /* By block: in the heap. */
    uint32_t *heap;
    uint32_t count;
};

struct ranked {
    struct sim_policy base;
    const struct ranked_rule *rule;
    uint32_t *use_counts; /* By block: all, in the store or not. */
    uint32_t *last_uses;  /* By block: the request. */
    struct ranked_place places[SIM_PLACE_COUNT];
};

static struct ranked *
ranked_of(struct sim_policy *policy)
{
    return (struct ranked *)policy;
}

void
ranked_close(struct sim_policy *policy)
{
    struct ranked *ranked = ranked_of(policy);

    for (unsigned i = 0; i < SIM_PLACE_COUNT; i++) {
        free(ranked->places[i].ranks);
        free(ranked->places[i].positions);
        free(ranked->places[i].heap);
    }
    free(ranked->use_counts);
    free(ranked->last_uses);
    free(ranked);
}

static bool
place_open(struct ranked_place *place, size_t count)
{
    place->ranks = calloc(count, sizeof(*place->ranks));
    place->positions = malloc(count * sizeof(*place->positions));
    place->heap = malloc(count * sizeof(*place->heap));
    if (place->ranks == NULL || place->positions == NULL || place->heap == NULL)
        return false;
    memset(place->positions, 0xFF, count * sizeof(*place->positions));
    return true;
}

bool
ranked_open(const struct sim_policy_ops *ops, const struct ranked_rule *rule,
    const struct sim_view *view, struct sim_policy **policy_out)
{
    struct ranked *ranked = calloc(1, sizeof(*ranked));
    size_t count = (size_t)view->chains->block_count + 1;
    bool is_fine = ranked != NULL;

    if (is_fine) {
        ranked->base = (struct sim_policy){.ops = ops, .view = view};
        ranked->rule = rule;
        ranked->use_counts = calloc(count, sizeof(*ranked->use_counts));
        ranked->last_uses = calloc(count, sizeof(*ranked->last_uses));
        is_fine = ranked->use_counts != NULL && ranked->last_uses != NULL;
    }
    for (unsigned i = 0; is_fine && i < SIM_PLACE_COUNT; i++)
        is_fine = view->capacities[i] == 0 || place_open(&ranked->places[i], count);
    if (!is_fine) {
        complain("there is no memory for the policy %s", ops->name);
        if (ranked != NULL)
            ranked_close(&ranked->base);
        return false;
    }
    *policy_out = &ranked->base;
    return true;
}

/* --- The heap --------------------------------------------------------------------------------- */

static bool
goes_before(const struct ranked *ranked, const struct ranked_place *place, uint32_t a, uint32_t b)
{
    const uint32_t *depths = ranked->base.view->chains->depths;

    if (place->ranks[a] != place->ranks[b])
        return place->ranks[a] < place->ranks[b];
    if (depths[a] != depths[b])
        return depths[a] > depths[b];
    if (ranked->last_uses[a] != ranked->last_uses[b])
        return ranked->last_uses[a] < ranked->last_uses[b];
    return a < b; /* A heap keeps no order of equals. */
}

static void
heap_set(struct ranked_place *place, uint32_t position, uint32_t block)
{
    place->heap[position] = block;
    place->positions[block] = position;
}

/* The block at `position` moves to where it belongs. */
static void
heap_settle(const struct ranked *ranked, struct ranked_place *place, uint32_t position)
{
    uint32_t block = place->heap[position];

    while (position > 0 && goes_before(ranked, place, block, place->heap[(position - 1) / 2])) {
        heap_set(place, position, place->heap[(position - 1) / 2]);
        position = (position - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * position + 1;

        if (child + 1 < place->count &&
            goes_before(ranked, place, place->heap[child + 1], place->heap[child]))
            child++;
        if (child >= place->count || !goes_before(ranked, place, place->heap[child], block))
            break;
        heap_set(place, position, place->heap[child]);
        position = child;
    }
    heap_set(place, position, block);
}

static void
heap_remove(const struct ranked *ranked, struct ranked_place *place, uint32_t block)
{
    uint32_t position = place->positions[block];
    uint32_t last;

    if (position == POSITION_NONE)
        return;
    last = place->heap[--place->count];
    place->positions[block] = POSITION_NONE;
    if (last == block)
        return;
    heap_set(place, position, last);
    heap_settle(ranked, place, position);
}

/* Copies of the block that no child needs are in their heaps. */
static void
heap_wake(struct ranked *ranked, uint32_t block)
{
    const struct sim_copies *copies = ranked->base.view->copies;

    for (unsigned i = 0; block != BLOCK_NONE && i < SIM_PLACE_COUNT; i++) {
        struct ranked_place *place = &ranked->places[i];

        if (!sim_copies_has(copies, i, block) || place->positions[block] != POSITION_NONE ||
            !sim_copies_is_leaf(copies, i, block))
            continue;
        heap_set(place, place->count++, block);
        heap_settle(ranked, place, place->count - 1);
    }
}

/* --- The policy ------------------------------------------------------------------------------- */

static void
copy_rank(struct ranked *ranked, struct ranked_place *place, uint32_t block)
{
    place->ranks[block] =
        place->age + ranked->rule->worth(ranked->base.view, block, ranked->use_counts[block]);
    if (place->positions[block] != POSITION_NONE)
        heap_settle(ranked, place, place->positions[block]);
}

void
ranked_request(struct sim_policy *policy, const struct chain *chain, uint32_t hit_count)
{
    struct ranked *ranked = ranked_of(policy);

    for (uint32_t i = 0; i < hit_count; i++) {
        uint32_t block = chain->blocks[i];

        ranked->use_counts[block]++;
        ranked->last_uses[block] = chain->request;
        for (unsigned place = 0; place < SIM_PLACE_COUNT; place++) {
            if (sim_copies_has(policy->view->copies, place, block))
                copy_rank(ranked, &ranked->places[place], block);
        }
    }
}

bool
ranked_arrive(struct sim_policy *policy, const struct chain *chain, uint32_t hit_count)
{
    struct ranked *ranked = ranked_of(policy);

    for (uint32_t i = hit_count; i < chain->count; i++) {
        ranked->use_counts[chain->blocks[i]]++;
        ranked->last_uses[chain->blocks[i]] = chain->request;
    }
    return true;
}

bool
ranked_add(struct sim_policy *policy, enum sim_place place, uint32_t block)
{
    struct ranked *ranked = ranked_of(policy);

    copy_rank(ranked, &ranked->places[place], block);
    heap_wake(ranked, block);
    return true;
}

void
ranked_remove(struct sim_policy *policy, enum sim_place place, uint32_t block)
{
    struct ranked *ranked = ranked_of(policy);
    struct ranked_place *here = &ranked->places[place];

    heap_remove(ranked, here, block);
    heap_wake(ranked, policy->view->chains->parents[block]);
}

uint32_t
ranked_victim(struct sim_policy *policy, enum sim_place place)
{
    struct ranked *ranked = ranked_of(policy);
    struct ranked_place *here = &ranked->places[place];

    while (here->count > 0) {
        uint32_t block = here->heap[0];

        if (sim_copies_is_leaf(policy->view->copies, place, block)) {
            if (ranked->rule->is_ageing)
                here->age = here->ranks[block];
            return block;
        }
        heap_remove(ranked, here, block);
    }
    return BLOCK_NONE;
}
