/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier_null.c - a tier that accepts everything and keeps nothing: what remains is the engine's
 * cost.
 */
#include "env.h"
#include "failure.h"
#include "tier.h"

struct tier_null {
    struct tier tier;
    const struct kvt_env *env;
};

static enum kvt_status
null_put(struct tier *tier, struct tier_batch *batch)
{
    struct tier_null *null = (struct tier_null *)(void *)tier;

    for (uint32_t i = 0; i < batch->block_count; i++) {
        batch->blocks[i].record.extent = (struct extent){.generation = 1};
        batch->blocks[i].status = KVT_OK;
    }
    batch->status = KVT_OK;
    tier_answer(null->env, batch);
    return KVT_OK;
}

static enum kvt_status
null_get(struct tier *tier, struct tier_batch *batch)
{
    struct tier_null *null = (struct tier_null *)(void *)tier;

    for (uint32_t i = 0; i < batch->block_count; i++)
        batch->blocks[i].status = KVT_MISS;
    batch->status = KVT_OK;
    tier_answer(null->env, batch);
    return KVT_OK;
}

static void
null_drop(struct tier *tier, const struct tier_place *place)
{
    (void)tier;
    (void)place;
}

static void
null_usage(struct tier *tier, struct tier_usage *usage_out)
{
    (void)tier;
    /* Room that never ends, without overflow in sums. */
    *usage_out = (struct tier_usage){.capacity_bytes = 1ull << 60, .free_bytes = 1ull << 60};
}

static void
null_close(struct tier *tier)
{
    struct tier_null *null = (struct tier_null *)(void *)tier;

    if (null != NULL)
        env_put(null->env, null, sizeof(*null));
}

static const struct tier_ops null_ops = {
    .name = "null",
    .put = null_put,
    .get = null_get,
    .drop = null_drop,
    .usage = null_usage,
    .close = null_close,
};

enum kvt_status
tier_null_open(const struct kvt_env *env, struct tier **tier_out)
{
    struct tier_null *null = env_take(env, sizeof(*null));

    *tier_out = NULL;
    if (null == NULL)
        return failure_set(KVT_E_NOMEM, 0, "null tier: no memory for %zu bytes", sizeof(*null));
    null->tier.ops = &null_ops;
    null->env = env;
    *tier_out = &null->tier;
    return KVT_OK;
}
