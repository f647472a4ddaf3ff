/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_min.c - MIN, which knows the future: what is used again last goes first. No policy has more
 * hits in one tier.
 *
 * Every request that uses a block uses those above it, so that none of them is used again later
 * than the block; of those that are used again by the same request the deepest goes first. So a
 * child never stays without its parent. What the running request uses stays until its end: the
 * simulator asks for victims then only.
 *
 * Owns      for each tier a queue of copies for each request: those that it is the next to use,
 *           in the order of their last uses. One more has those that none uses again.
 *
 * What waits for one request is a part of its chain; the deeper of two was used longer ago, or by
 * the same request, and stands behind its parent then. So the oldest of a queue is the deepest.
 * (Copies that come down from a higher tier can stand in the way of others there; they are passed
 * over, as everything is that a child needs.)
 */
#include <stdlib.h>

#include "complain.h"
#include "sim_lists.h"
#include "sim_policy.h"

enum {
    WORD_BITS = 64,
};

struct min_place {
    struct sim_lists lists;
    /* Which queues have something, a bit each; and which words of those, a bit each. */
    uint64_t *filled, *filled_words;
};

struct min {
    struct sim_policy base;
    uint32_t queue_count; /* Requests, and one more. */
    uint32_t *next_uses;  /* By block, of its last use. */
    struct min_place places[SIM_PLACE_COUNT];
};

static struct min *
min_of(struct sim_policy *policy)
{
    return (struct min *)policy;
}

static void
min_close(struct sim_policy *policy)
{
    struct min *min = min_of(policy);

    for (unsigned place = 0; place < SIM_PLACE_COUNT; place++) {
        sim_lists_destroy(&min->places[place].lists);
        free(min->places[place].filled);
        free(min->places[place].filled_words);
    }
    free(min->next_uses);
    free(min);
}

static bool
place_open(struct min *min, struct min_place *place)
{
    uint32_t word_count = min->queue_count / WORD_BITS + 1;

    place->filled = calloc(word_count, sizeof(*place->filled));
    place->filled_words = calloc(word_count / WORD_BITS + 1, sizeof(*place->filled_words));
    return place->filled != NULL && place->filled_words != NULL &&
           sim_lists_create(&place->lists, min->base.view->chains->block_count, min->queue_count);
}

static bool
min_open(const struct sim_view *view, struct sim_policy **policy_out)
{
    struct min *min = calloc(1, sizeof(*min));
    bool is_fine = min != NULL;

    if (is_fine) {
        min->base = (struct sim_policy){.ops = &sim_min_ops, .view = view};
        min->queue_count = view->chains->request_count + 1;
        min->next_uses = calloc((size_t)view->chains->block_count + 1, sizeof(*min->next_uses));
        is_fine = min->next_uses != NULL;
    }
    for (unsigned place = 0; is_fine && place < SIM_PLACE_COUNT; place++)
        is_fine = view->capacities[place] == 0 || place_open(min, &min->places[place]);
    if (!is_fine) {
        complain("there is no memory for the policy min");
        if (min != NULL)
            min_close(&min->base);
        return false;
    }
    *policy_out = &min->base;
    return true;
}

/* --- Queues ----------------------------------------------------------------------------------- */

static void
queue_mark(struct min_place *place, uint32_t queue)
{
    uint32_t word = queue / WORD_BITS;
    bool is_filled = place->lists.lists[queue].count > 0;

    if (is_filled)
        place->filled[word] |= UINT64_C(1) << queue % WORD_BITS;
    else
        place->filled[word] &= ~(UINT64_C(1) << queue % WORD_BITS);
    if (place->filled[word] != 0)
        place->filled_words[word / WORD_BITS] |= UINT64_C(1) << word % WORD_BITS;
    else
        place->filled_words[word / WORD_BITS] &= ~(UINT64_C(1) << word % WORD_BITS);
}

/* The highest bit of `words` that is set below `limit`; UINT32_MAX: none is. */
static uint32_t
bit_below(const uint64_t *words, uint32_t limit)
{
    uint32_t word = limit / WORD_BITS;
    uint64_t bits = words[word] & ((UINT64_C(1) << limit % WORD_BITS) - 1);

    while (bits == 0 && word > 0)
        bits = words[--word];
    return bits == 0 ? UINT32_MAX
                     : word * WORD_BITS + (WORD_BITS - 1) - (uint32_t)__builtin_clzll(bits);
}

/* The last queue below `limit` that has something; UINT32_MAX: none has. */
static uint32_t
queue_below(const struct min_place *place, uint32_t limit)
{
    uint32_t word = limit / WORD_BITS;
    uint64_t bits = place->filled[word] & ((UINT64_C(1) << limit % WORD_BITS) - 1);

    if (bits == 0) {
        word = bit_below(place->filled_words, word);
        if (word == UINT32_MAX)
            return UINT32_MAX;
        bits = place->filled[word];
    }
    return word * WORD_BITS + (WORD_BITS - 1) - (uint32_t)__builtin_clzll(bits);
}

static bool
min_add(struct sim_policy *policy, enum sim_place place, uint32_t block)
{
    struct min_place *here = &min_of(policy)->places[place];
    uint32_t next_use = min_of(policy)->next_uses[block];
    uint32_t queue = next_use == REQUEST_NONE ? min_of(policy)->queue_count - 1 : next_use;
    uint32_t parent = policy->view->chains->parents[block];
    bool is_behind = parent != BLOCK_NONE && sim_lists_of(&here->lists, parent) == queue;

    sim_lists_insert(&here->lists, queue, block, is_behind ? parent : BLOCK_NONE);
    queue_mark(here, queue);
    return true;
}

static void
min_remove(struct sim_policy *policy, enum sim_place place, uint32_t block)
{
    struct min_place *here = &min_of(policy)->places[place];
    uint32_t queue = sim_lists_of(&here->lists, block);

    sim_lists_remove(&here->lists, block);
    queue_mark(here, queue);
}

/* Copies of the request's blocks wait for the next one that uses them. */
static void
min_request(struct sim_policy *policy, const struct chain *chain, uint32_t hit_count)
{
    struct min *min = min_of(policy);

    (void)hit_count; /* What is new has no copies yet. */
    for (uint32_t i = chain->count; i-- > 0;) {
        min->next_uses[chain->blocks[i]] = chain->next_uses[i];
        for (unsigned place = 0; place < SIM_PLACE_COUNT; place++) {
            if (!sim_copies_has(policy->view->copies, place, chain->blocks[i]))
                continue;
            min_remove(policy, place, chain->blocks[i]);
            (void)min_add(policy, place, chain->blocks[i]);
        }
    }
}

static uint32_t
min_victim(struct sim_policy *policy, enum sim_place place)
{
    struct min_place *here = &min_of(policy)->places[place];
    uint32_t queue = queue_below(here, min_of(policy)->queue_count);

    while (queue != UINT32_MAX) {
        uint32_t block = here->lists.lists[queue].oldest;

        while (block != BLOCK_NONE && !sim_copies_may_go(policy->view->copies, place, block))
            block = here->lists.links[block].newer;
        if (block != BLOCK_NONE)
            return block;
        queue = queue_below(here, queue);
    }
    return BLOCK_NONE;
}

/* What is not used again is not worth a copy anywhere. */
static bool
min_returns(struct sim_policy *policy, uint32_t block)
{
    return min_of(policy)->next_uses[block] != REQUEST_NONE;
}

const struct sim_policy_ops sim_min_ops = {
    .name = "min",
    .open = min_open,
    .close = min_close,
    .request = min_request,
    .add = min_add,
    .remove = min_remove,
    .victim = min_victim,
    .lowers = min_returns,
    .admits = min_returns,
};
