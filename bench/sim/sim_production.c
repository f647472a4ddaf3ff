/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_production.c - the policies of the library in the simulator: the object files that the engine
 * runs, with the map and the entries that they read.
 *
 * Owns      a map and a table of entries that hold the blocks of the simulated store.
 *
 * This file alone of the benchmark includes headers of engine/, index/ and base/.
 */
#include <stdlib.h>
#include <string.h>

#include "complain.h"
#include "entries.h"
#include "failure.h"
#include "policy.h"
#include "rng.h"
#include "sim_policy.h"

/* The trace begins then: 0 would be the last use of a block that was not used yet. */
#define TRACE_START_NS UINT64_C(1000000000)

struct production {
    struct sim_policy base;
    struct kvt_env env;
    struct rng rng; /* Instead of the machine's randomness: a run is the same each time. */
    struct residency *map;
    struct entries *entries;
    struct policy *policy;
    uint32_t *numbers; /* By block: its entry, or ENTRY_NONE. */
    uint32_t chain[TRACE_CHAIN_MAX];
    bool has_failed; /* A proof of the library was false. */
};

static const enum policy_place places[SIM_PLACE_COUNT] = {
    [SIM_HBM] = POLICY_HBM,
    [SIM_HOST] = POLICY_HOST,
    [SIM_NVME] = POLICY_NVME,
};

static struct production *
production_of(struct sim_policy *policy)
{
    return (struct production *)policy;
}

/* --- Opening ---------------------------------------------------------------------------------- */

static void
random_fill(void *context, void *target, size_t size)
{
    struct rng *rng = context;
    uint8_t *bytes = target;

    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)rng_next(rng);
}

static const struct random_ops random_ops = {.fill = random_fill};

static void
proof_note(void *context, const char *expression, const char *file, int line)
{
    struct production *production = context;

    production->has_failed = true;
    complain("%s:%d: a proof of the library is false: %s", file, line, expression);
}

static struct policy_costs
costs_of(const struct sim_costs *costs)
{
    const double ms = 1e6;

    return (struct policy_costs){
        .host_load_ns = (uint64_t)(costs->host_load_ms * ms),
        .nvme_load_ns = (uint64_t)(costs->nvme_load_ms * ms),
        .recompute_ns = (uint64_t)(costs->recompute_ms * ms),
        .recompute_depth_ns = (uint64_t)(costs->recompute_depth_ms * ms),
        .nvme_write_price_ns = (uint64_t)(costs->write_price_ms * ms),
        .nvme_writes_per_second_max = costs->writes_per_second_max,
    };
}

static void
production_close(struct sim_policy *policy)
{
    struct production *production = production_of(policy);

    (void)proof_handler_set((struct proof_handler){0});
    if (production->policy != NULL)
        production->policy->ops->close(production->policy);
    if (production->entries != NULL)
        entries_close(production->entries);
    if (production->map != NULL)
        residency_close(production->map);
    free(production->numbers);
    free(production);
}

static enum kvt_status
parts_open(struct production *production, const struct policy_ops *ops)
{
    const struct sim_view *view = production->base.view;
    size_t numbers_bytes = ((size_t)view->chains->block_count + 1) * sizeof(uint32_t);
    enum kvt_status status;

    production->numbers = malloc(numbers_bytes);
    if (production->numbers == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for the numbers of blocks");
    memset(production->numbers, 0xFF, numbers_bytes); /* ENTRY_NONE everywhere. */
    env_host(&production->env);
    production->env.random = &random_ops;
    production->env.random_context = &production->rng;
    status =
        residency_open(&production->env, (uint64_t)view->chains->block_count + 1, &production->map);
    if (status == KVT_OK)
        status = entries_open(&production->env, production->map, &production->entries);
    if (status == KVT_OK)
        status = ops->open(&production->env, production->entries, &production->policy);
    return status;
}

static bool
production_open(const struct sim_policy_ops *sim_ops, const struct policy_ops *ops,
    const struct sim_view *view, struct sim_policy **policy_out)
{
    struct production *production = calloc(1, sizeof(*production));
    struct policy_costs costs = costs_of(&view->costs);

    if (production == NULL) {
        complain("there is no memory for the policy %s", sim_ops->name);
        return false;
    }
    production->base = (struct sim_policy){.ops = sim_ops, .view = view};
    if (parts_open(production, ops) != KVT_OK) {
        complain("cannot open the policy %s: %s", sim_ops->name, failure_last()->text);
        production_close(&production->base);
        return false;
    }
    (void)proof_handler_set((struct proof_handler){proof_note, production});
    ops->costs_set(production->policy, &costs);
    *policy_out = &production->base;
    return true;
}

/* --- Blocks ----------------------------------------------------------------------------------- */

static struct hash128
fingerprint_of(uint32_t block)
{
    struct rng rng = {.state = block};
    uint64_t low = rng_next(&rng);

    return (struct hash128){.low = low, .high = rng_next(&rng)};
}

/* What a put says of its block. */
static void
block_describe(struct production *production, uint32_t number, uint32_t block)
{
    const struct sim_view *view = production->base.view;
    struct entry_state *state = entries_at(production->entries, number);
    uint32_t depth = view->chains->depths[block];

    state->depth = depth;
    state->token_count = view->block_tokens;
    state->token_start = depth * view->block_tokens;
    state->recompute_us =
        (uint32_t)(1000 * (view->costs.recompute_ms + depth * view->costs.recompute_depth_ms));
}

static bool
block_make(struct production *production, const struct chain *chain, uint32_t at)
{
    const uint8_t *hints = production->base.view->hints;
    uint32_t block = chain->blocks[at];
    const struct chains *chains = production->base.view->chains;
    struct block_key key = {.namespace_id = 1, .length = sizeof(block)};
    uint32_t parent = chains->parents[block];
    uint32_t number;

    memcpy(key.bytes, &block, sizeof(block));
    if (residency_insert(production->map, fingerprint_of(block), &key, &number) != KVT_OK ||
        entries_reserve(production->entries, number) != KVT_OK) {
        complain("no room for a block: %s", failure_last()->text);
        return false;
    }
    production->numbers[block] = number;
    block_describe(production, number, block);
    if (hints != NULL)
        entries_at(production->entries, number)->hint = hints[chain->id_start + at] & 3u;
    if (parent != BLOCK_NONE)
        entries_link(production->entries, number, production->numbers[parent]);
    residency_publish(production->map, number, TIER_NVME);
    return true;
}

/* The entries of a part of the chain, in production->chain. */
static void
chain_find(struct production *production, const struct chain *chain, uint32_t start, uint32_t end)
{
    for (uint32_t i = start; i < end; i++)
        production->chain[i] = production->numbers[chain->blocks[i]];
}

static void
production_request(struct sim_policy *policy, const struct chain *chain, uint32_t hit_count)
{
    struct production *production = production_of(policy);

    chain_find(production, chain, 0, hit_count);
    production->policy->ops->request(
        production->policy, production->chain, hit_count, TRACE_START_NS + chain->now_ns);
}

/* A block that stayed when its parents left: it has them again. */
static void
block_rejoin(struct production *production, const struct chain *chain, uint32_t at)
{
    uint32_t number = production->numbers[chain->blocks[at]];

    entries_turn(production->entries);
    if (at > 0)
        entries_link(production->entries, number, production->numbers[chain->blocks[at - 1]]);
    production->policy->ops->request(
        production->policy, &number, 1, TRACE_START_NS + chain->now_ns);
}

/* One call for each run of blocks that are new. */
static bool
production_arrive(struct sim_policy *policy, const struct chain *chain, uint32_t hit_count)
{
    struct production *production = production_of(policy);
    uint32_t start = hit_count;

    for (uint32_t i = hit_count; i < chain->count; i++) {
        bool is_new = production->numbers[chain->blocks[i]] == ENTRY_NONE;

        if (is_new && !block_make(production, chain, i))
            return false;
        if (is_new && i + 1 < chain->count &&
            production->numbers[chain->blocks[i + 1]] == ENTRY_NONE)
            continue;
        if (is_new) {
            chain_find(production, chain, start, i + 1);
            production->policy->ops->arrive(production->policy, &production->chain[start],
                i + 1 - start, TRACE_START_NS + chain->now_ns);
        } else {
            block_rejoin(production, chain, i);
        }
        start = i + 1;
    }
    return !production->has_failed;
}

static void
production_leave(struct sim_policy *policy, uint32_t block)
{
    struct production *production = production_of(policy);
    uint32_t number = production->numbers[block];

    production->policy->ops->leave(production->policy, number, true);
    if (entries_has_copy(production->entries, POLICY_NVME, number)) /* Only with segments. */
        entries_copy_remove(production->entries, POLICY_NVME, number);
    entries_unlink(production->entries, number);
    residency_doom(production->map, number);
    (void)residency_release(production->map, number); /* Nobody has it pinned. */
    production->numbers[block] = ENTRY_NONE;
}

/* --- Copies ----------------------------------------------------------------------------------- */

/* The store itself notes its copies there; the policy has no order of them. */
static bool
is_noted(const struct production *production, enum sim_place place)
{
    return place == SIM_NVME && production->base.view->has_segments;
}

static bool
production_add(struct sim_policy *policy, enum sim_place place, uint32_t block)
{
    struct production *production = production_of(policy);
    uint32_t number = production->numbers[block];

    if (is_noted(production, place)) {
        entries_copy_add(production->entries, POLICY_NVME, number);
        return true;
    }
    if (production->policy->ops->prepare(production->policy, number) != KVT_OK) {
        complain("no room for a copy: %s", failure_last()->text);
        return false;
    }
    production->policy->ops->add(production->policy, places[place], number);
    return !production->has_failed;
}

static void
production_remove(struct sim_policy *policy, enum sim_place place, uint32_t block)
{
    struct production *production = production_of(policy);
    uint32_t number = production->numbers[block];

    if (!is_noted(production, place))
        production->policy->ops->remove(production->policy, places[place], number);
    else if (policy->view->copies->places[block] != 0)
        entries_copy_remove(production->entries, POLICY_NVME, number);
    /* Else it leaves: the policy sees that it was there. */
}

static uint32_t
production_victim(struct sim_policy *policy, enum sim_place place)
{
    struct production *production = production_of(policy);
    uint32_t number =
        production->policy->ops->victim(production->policy, places[place], ENTRY_NONE);
    struct block_key key;
    uint32_t block;

    if (number == ENTRY_NONE || production->has_failed)
        return BLOCK_NONE;
    residency_key(production->map, number, &key);
    memcpy(&block, key.bytes, sizeof(block));
    return block;
}

static bool
production_admits(struct sim_policy *policy, uint32_t block)
{
    struct production *production = production_of(policy);

    return production->policy->ops->admits(production->policy, production->numbers[block]);
}

static uint64_t
production_importance(struct sim_policy *policy, uint32_t block)
{
    struct production *production = production_of(policy);

    return production->policy->ops->importance(production->policy, production->numbers[block]);
}

/* --- The vtables ------------------------------------------------------------------------------ */

#define PRODUCTION_OPS(symbol, text, opener) \
    const struct sim_policy_ops symbol = {   \
        .name = text,                        \
        .open = opener,                      \
        .close = production_close,           \
        .request = production_request,       \
        .arrive = production_arrive,         \
        .leave = production_leave,           \
        .add = production_add,               \
        .remove = production_remove,         \
        .victim = production_victim,         \
        .admits = production_admits,         \
        .importance = production_importance, \
    }

static bool
lru_open(const struct sim_view *view, struct sim_policy **policy_out)
{
    return production_open(&sim_lru_ops, &policy_lru_ops, view, policy_out);
}

static bool
s3fifo_open(const struct sim_view *view, struct sim_policy **policy_out)
{
    return production_open(&sim_s3fifo_ops, &policy_s3fifo_ops, view, policy_out);
}

static bool
default_open(const struct sim_view *view, struct sim_policy **policy_out)
{
    return production_open(&sim_default_ops, &policy_default_ops, view, policy_out);
}

PRODUCTION_OPS(sim_lru_ops, "lru", lru_open);
PRODUCTION_OPS(sim_s3fifo_ops, "s3fifo", s3fifo_open);
PRODUCTION_OPS(sim_default_ops, "default", default_open);
