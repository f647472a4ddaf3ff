/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hints.c - what the caller says about blocks: their weight, and that they shall stay; and what
 * they would cost to have again.
 *
 * Threads   any; the *_run() functions are the loop's.
 */
#include "hint.h"

#include "lookup.h"
#include "store_internal.h"

void
hint_free(struct kvt_store *store, struct hint *hint)
{
    env_put(&store->env, hint->keys, hint->count * sizeof(*hint->keys));
    env_put(&store->env, hint->fingerprints, hint->count * sizeof(*hint->fingerprints));
    env_put(&store->env, hint->numbers, hint->count * sizeof(*hint->numbers));
    env_put(&store->env, hint->added, hint->count * sizeof(*hint->added));
}

enum kvt_status
hint_make(struct kvt_store *store, kvt_namespace ns, const struct kvt_key *keys, uint32_t count,
    struct hint *hint)
{
    *hint = (struct hint){.count = count};
    KVT_TRY(lookup_check(store, ns, keys, count));
    hint->keys = env_take(&store->env, count * sizeof(*hint->keys));
    hint->fingerprints = env_take(&store->env, count * sizeof(*hint->fingerprints));
    hint->numbers = env_take(&store->env, count * sizeof(*hint->numbers));
    hint->added = env_take(&store->env, count * sizeof(*hint->added));
    if (hint->keys == NULL || hint->fingerprints == NULL || hint->numbers == NULL ||
        hint->added == NULL) {
        hint_free(store, hint);
        return failure_set(KVT_E_NOMEM, 0, "no memory for %u keys", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        /* Checked before: it cannot fail. */
        (void)key_init(&hint->keys[i], store->file.secret, ns.id, keys[i].component, keys[i].bytes,
            keys[i].length);
        hint->fingerprints[i] = key_fingerprint(store->fingerprint_seed, &hint->keys[i]);
    }
    return KVT_OK;
}

void
hint_find(struct kvt_store *store, struct hint *hint)
{
    for (uint32_t i = 0; i < hint->count; i++) {
        uint32_t number = residency_find(store->map, hint->fingerprints[i], &hint->keys[i]);

        if (number != ENTRY_NONE &&
            (word_state(atomic_load_explicit(&residency_at(store->map, number)->word,
                 memory_order_relaxed)) != ENTRY_RESIDENT ||
                entry_tiers(store, number) == 0))
            number = ENTRY_NONE;
        hint->numbers[i] = number;
        hint->found_count += number != ENTRY_NONE;
    }
    hint->status = hint->found_count > 0 ? KVT_OK : KVT_MISS;
}

/* --- Importance ------------------------------------------------------------------------------- */

static bool
importance_run(struct kvt_store *store, void *context)
{
    struct hint *hint = context;

    hint_find(store, hint);
    for (uint32_t i = 0; i < hint->count; i++) {
        if (hint->numbers[i] != ENTRY_NONE)
            entries_at(store->entries, hint->numbers[i])->importance = hint->importance;
    }
    return true;
}

enum kvt_status
kvt_importance_set(kvt_store *store, kvt_namespace ns, const struct kvt_key *keys, uint32_t count,
    uint32_t importance)
{
    struct hint hint;

    KVT_TRY(hint_make(store, ns, keys, count, &hint));
    hint.importance = importance;
    loop_call(store, importance_run, &hint);
    hint_free(store, &hint);
    return hint.status;
}

/* --- Estimates -------------------------------------------------------------------------------- */

struct estimate_call {
    struct hint hint;
    struct kvt_cost cost;
};

static void
estimate_add(struct kvt_store *store, uint32_t number, struct kvt_cost *cost)
{
    uint64_t length = residency_at(store->map, number)->length;
    uint32_t recompute_us = entries_at(store->entries, number)->recompute_us;
    unsigned tiers = entry_tiers(store, number);

    if ((tiers & TIER_HBM) != 0)
        cost->hbm_bytes += length;
    else if ((tiers & TIER_HOST) != 0)
        cost->host_bytes += length;
    else
        cost->nvme_bytes += length;
    cost->recompute_ns += (uint64_t)recompute_us * 1000;
    cost->recompute_unknown_count += recompute_us == 0;
    cost->leading_count++;
}

static bool
estimate_run(struct kvt_store *store, void *context)
{
    struct estimate_call *call = context;
    struct kvt_cost *cost = &call->cost;
    uint64_t host_ns, nvme_ns;

    hint_find(store, &call->hint);
    for (uint32_t i = 0; i < call->hint.count && call->hint.numbers[i] != ENTRY_NONE; i++)
        estimate_add(store, call->hint.numbers[i], cost);
    host_ns = load_meter_ns(&store->host_meter, cost->host_bytes);
    nvme_ns = load_meter_ns(&store->nvme_meter, cost->nvme_bytes);
    if ((cost->host_bytes == 0 || host_ns > 0) && (cost->nvme_bytes == 0 || nvme_ns > 0))
        cost->load_ns = host_ns + nvme_ns;
    return true;
}

enum kvt_status
kvt_estimate(kvt_store *store, kvt_namespace ns, const struct kvt_key *keys, uint32_t count,
    struct kvt_cost *cost_out)
{
    struct estimate_call call = {.cost = {.struct_size = sizeof(*cost_out)}};

    if (cost_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "cost_out is NULL");
    if (cost_out->struct_size != sizeof(*cost_out))
        return failure_set(KVT_E_INVAL, 0, "struct_size %u: struct kvt_cost has %zu",
            cost_out->struct_size, sizeof(*cost_out));
    KVT_TRY(hint_make(store, ns, keys, count, &call.hint));
    loop_call(store, estimate_run, &call);
    hint_free(store, &call.hint);
    *cost_out = call.cost;
    return KVT_OK;
}

/* --- Pins ------------------------------------------------------------------------------------- */

/* All of them, or none: those that had no pin get one first, which is taken back when they are too
 * many. */
static enum kvt_status
pins_add(struct kvt_store *store, struct hint *hint)
{
    uint64_t end_ns =
        hint->ttl_ns > UINT64_MAX - store->now_ns ? UINT64_MAX : store->now_ns + hint->ttl_ns;
    uint32_t added_count = 0;

    (void)pins_step(store);
    KVT_TRY(pins_reserve(store, hint->found_count));
    for (uint32_t i = 0; i < hint->count; i++) {
        if (hint->numbers[i] == ENTRY_NONE || pins_has(store, hint->numbers[i]))
            continue;
        pins_set(store, hint->numbers[i], UINT64_MAX);
        hint->added[added_count++] = hint->numbers[i];
    }
    if (!pins_are_within(store)) {
        for (uint32_t i = 0; i < added_count; i++)
            pins_drop(store, hint->added[i]);
        return KVT_E_NOSPC;
    }
    for (uint32_t i = 0; i < hint->count; i++) {
        if (hint->numbers[i] != ENTRY_NONE)
            pins_set(store, hint->numbers[i], end_ns);
    }
    return KVT_OK;
}

static bool
pin_run(struct kvt_store *store, void *context)
{
    struct hint *hint = context;

    hint_find(store, hint);
    if (hint->found_count == 0)
        return true;
    if (hint->ttl_ns > 0) {
        hint->status = pins_add(store, hint);
        return true;
    }
    for (uint32_t i = 0; i < hint->count; i++) {
        if (hint->numbers[i] != ENTRY_NONE)
            pins_drop(store, hint->numbers[i]);
    }
    return true;
}

enum kvt_status
kvt_pin(
    kvt_store *store, kvt_namespace ns, const struct kvt_key *keys, uint32_t count, uint64_t ttl_ns)
{
    struct hint hint;

    KVT_TRY(hint_make(store, ns, keys, count, &hint));
    hint.ttl_ns = ttl_ns;
    loop_call(store, pin_run, &hint);
    hint_free(store, &hint);
    if (hint.status == KVT_E_NOSPC)
        return failure_set(KVT_E_NOSPC, 0, "more than %llu bytes would be pinned (pin_bytes_max)",
            (unsigned long long)store->options.pin_bytes_max);
    if (hint.status == KVT_E_NOMEM)
        return failure_set(KVT_E_NOMEM, 0, "no memory for %u pins", count);
    return hint.status;
}
