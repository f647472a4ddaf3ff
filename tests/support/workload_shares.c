/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload_shares.c - room of their own for namespaces: others take nothing of it, and it is in no
 * way of theirs.
 */
#include "shares_look.h"
#include "workload_internal.h"

enum {
    CALLS = 6, /* Of others, while a namespace is watched. */
};

/* --- 1. Setting one --------------------------------------------------------------------------- */

/* A fifth of the tier at most, so that others find room, too; or none any more. */
void
shares_choose(struct workload *work, uint32_t space)
{
    static const uint32_t tiers[3] = {KVT_TIER_HBM, KVT_TIER_HOST, KVT_TIER_NVME};
    struct kvt_options options = {.struct_size = sizeof(options)};
    uint32_t choice = rng_below(&work->rng, 3);
    enum kvt_status status = kvt_options_get(work->store, &options);
    uint64_t capacity_bytes[3], bytes;

    if (!workload_expect(work, "kvt_options_get", status))
        return;
    capacity_bytes[0] = options.hbm_capacity_bytes;
    capacity_bytes[1] = options.host_capacity_bytes;
    capacity_bytes[2] = options.nvme_capacity_bytes;
    bytes = capacity_bytes[choice] / 100 * rng_below(&work->rng, 21);
    status = kvt_namespace_share_set(work->store, work->spaces[space], tiers[choice], bytes);
    if (status == KVT_E_NOSPC && tiers[choice] == KVT_TIER_NVME)
        return; /* So much cannot be promised of so few segments. */
    if (capacity_bytes[choice] != 0 && capacity_bytes[choice] != KVT_CAPACITY_NONE)
        workload_expect(work, "kvt_namespace_share_set", status);
    else if (status != KVT_E_UNSUPPORTED)
        model_fail(
            &work->model, "a share of a tier that is not there: %s", kvt_status_name(status));
}

/* --- 2. Watching one -------------------------------------------------------------------------- */

/* Whatever others may ask for; no share is changed by it. */
static void
others_call(struct workload *work, uint32_t space)
{
    static const enum kvt_durability durabilities[3] = {KVT_MEMORY, KVT_RELAXED, KVT_SYNC};
    uint32_t up = work->has_hbm && rng_below(&work->rng, 2) == 0 ? KVT_TIER_HBM : KVT_TIER_HOST;
    uint32_t other = (space + 1 + rng_below(&work->rng, MODEL_SPACES - 1)) % MODEL_SPACES;
    uint32_t choice = rng_below(&work->rng, 8);
    struct model_name names[BATCH_MAX];
    uint32_t count = names_pick_in(work, other, names, choice < 6);

    if (count == 0)
        return;
    if (choice < 6)
        workload_put(work, names, count, durabilities[rng_below(&work->rng, 3)], 0);
    else if (choice == 6)
        workload_move(work, names, count, up, true);
    else
        workload_ahead(work, names, count, up, false);
}

static void
look_judge(struct workload *work, uint32_t space, const struct shares_look *before,
    const struct shares_look *after)
{
    uint64_t block_bytes = 2 * model_length_max(&work->model); /* With room for what NVMe adds. */
    uint64_t all_bytes = 0;

    for (uint32_t i = 0; i < SHARE_TIER_COUNT; i++)
        all_bytes += before->used_bytes[i];
    for (uint32_t i = 0; i < SHARE_TIER_COUNT; i++) {
        uint64_t used_bytes = before->used_bytes[i];
        uint64_t share_bytes = before->share_bytes[i];
        /* Above its share, where blocks of its other tiers may have brought it meanwhile, it may
         * lose one that is partly below. */
        uint64_t spare_bytes = all_bytes > share_bytes ? block_bytes : 0;
        uint64_t kept_bytes = used_bytes > share_bytes ? share_bytes : used_bytes;

        if (share_bytes > 0 && after->used_bytes[i] + spare_bytes < kept_bytes)
            model_fail(&work->model,
                "space %u had %llu bytes of tier %u, where %llu are its share, and others left it "
                "%llu",
                space, (unsigned long long)used_bytes, i, (unsigned long long)share_bytes,
                (unsigned long long)after->used_bytes[i]);
    }
}

static uint64_t
refused_count(struct workload *work)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};

    (void)workload_expect(work, "kvt_stats_get", kvt_stats_get(work->store, &stats));
    return stats.put_refused_count;
}

/* No share is in its owner's way: for what is put one of its own can leave a full map. */
static void
own_put(struct workload *work, uint32_t space)
{
    struct shares_look look = shares_look(work->store, work->spaces[space]);
    uint64_t before = refused_count(work);
    struct model_name names[BATCH_MAX];

    if (!look.is_still || !look.has_room || !look.may_go_own ||
        names_pick_in(work, space, names, true) == 0)
        return;
    workload_put(work, names, 1, KVT_MEMORY, 0);
    workload_settle(work);
    if (refused_count(work) != before && !workload_tolerates(work))
        model_fail(&work->model, "space %u key %u: refused, and another of its own could go", space,
            names[0].key);
}

void
workload_shares(struct workload *work, uint32_t space)
{
    struct shares_look before, after;

    workload_settle(work);
    before = shares_look(work->store, work->spaces[space]);
    if (!before.is_still)
        return;
    for (uint32_t i = 0; i < CALLS && work->model.failure[0] == '\0'; i++)
        others_call(work, space);
    workload_settle(work);
    after = shares_look(work->store, work->spaces[space]);
    if (!workload_tolerates(work) && !work->loses_devices && !work->finds_damage)
        look_judge(work, space, &before, &after);
    own_put(work, space);
    work->watch_count++;
}
