/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload_read_only.c - steps in a store that was opened for reading only.
 */
#include "workload_internal.h"

enum {
    READ_STEPS = 40,
    PUT_STEPS = 20,
    SOURCE_BYTES = 4096,
};

/* --- 1. Changes ------------------------------------------------------------------------------- */

static void
puts_refused(struct workload *work, const struct model_name *name)
{
    static const uint8_t source[SOURCE_BYTES];
    uint8_t bytes[WORKLOAD_KEY_BYTES];
    struct kvt_put put = {.key = workload_key(*name, bytes),
        .source = source,
        .length = sizeof(source),
        .flags = KVT_PUT_REPLACE * rng_below(&work->rng, 2)};
    enum kvt_durability durability = rng_below(&work->rng, 2) == 0 ? KVT_RELAXED : KVT_SYNC;
    kvt_ticket *ticket;

    refused_judge(work, "a durable put of a store that is only read", KVT_E_READONLY,
        kvt_put_submit(work->store, work->spaces[name->space], &put, 1, durability, NULL, &ticket));
}

/* The memory is given, but what is written there does not become durable. */
static void
commit_refused(struct workload *work, const struct model_name *name)
{
    uint8_t bytes[WORKLOAD_KEY_BYTES];
    struct kvt_put put = {.key = workload_key(*name, bytes), .length = SOURCE_BYTES};
    kvt_reservation *reservation;
    kvt_ticket *ticket;
    void *address;
    enum kvt_status status =
        kvt_reserve(work->store, work->spaces[name->space], &put, &address, &reservation);

    if (status == KVT_E_BUSY || (status == KVT_E_NOSPC && work->evicts) ||
        !workload_expect(work, "kvt_reserve", status))
        return;
    refused_judge(work, "kvt_commit to a store that is only read", KVT_E_READONLY,
        kvt_commit(reservation, KVT_SYNC, NULL, &ticket));
    kvt_discard(reservation);
}

static void
change_refused(struct workload *work, const struct model_name *names, uint32_t count)
{
    kvt_namespace ns = work->spaces[names[0].space], other;
    uint8_t bytes[BATCH_MAX][WORKLOAD_KEY_BYTES];
    struct kvt_key keys[BATCH_MAX];
    kvt_ticket *ticket;

    for (uint32_t i = 0; i < count; i++)
        keys[i] = workload_key(names[i], bytes[i]);
    switch (rng_below(&work->rng, 6)) {
    case 0:
        puts_refused(work, &names[0]);
        break;
    case 1:
        commit_refused(work, &names[0]);
        break;
    case 2:
        refused_judge(work, "a delete in a store that is only read", KVT_E_READONLY,
            kvt_delete_submit(work->store, ns, keys, count, NULL, &ticket));
        break;
    case 3:
        refused_judge(work, "a demote in a store that is only read", KVT_E_READONLY,
            kvt_demote_submit(work->store, ns, keys, count, KVT_TIER_NVME, NULL, &ticket));
        break;
    case 4:
        refused_judge(work, "a clear of a store that is only read", KVT_E_READONLY,
            kvt_namespace_clear(work->store, ns));
        break;
    default:
        refused_judge(work, "a new namespace of a store that is only read", KVT_MISS,
            kvt_namespace_open(work->store, "new", "", 0, &other));
        break;
    }
}

/* --- 2. Steps --------------------------------------------------------------------------------- */

static void
step_read(struct workload *work, const struct model_name *names, uint32_t count)
{
    switch (rng_below(&work->rng, 10)) {
    case 0:
        workload_lookup(work, names, count);
        break;
    case 1:
        workload_map(work, names[0]);
        break;
    case 2:
        workload_scan(work);
        break;
    case 3:
        workload_stats(work);
        break;
    case 4:
        workload_events(work);
        break;
    case 5:
        workload_pin(work, names, count);
        break;
    case 6:
        workload_move(work, names, count, work->has_hbm ? KVT_TIER_HBM : KVT_TIER_HOST, true);
        break;
    case 7:
        workload_flush(work);
        break;
    case 8:
        lease_give_back(work, &work->leases[rng_below(&work->rng, LEASES_MAX)]);
        break;
    default:
        workload_get(work, names, count, KVT_GET_TRANSIENT * rng_below(&work->rng, 2));
        break;
    }
}

/* Nothing takes what HOST has no room for. */
static void
step_memory(struct workload *work)
{
    uint32_t flags = KVT_PUT_REPLACE * rng_below(&work->rng, 2);
    struct model_name names[BATCH_MAX];
    uint32_t count = names_pick_in(work, rng_below(&work->rng, MODEL_SPACES), names, true);

    if (count > 0 && rng_below(&work->rng, 4) == 0)
        workload_direct(work, names[0], KVT_MEMORY, flags);
    else if (count > 0)
        workload_put(work, names, count, KVT_MEMORY, flags);
}

void
workload_read_only(struct workload *work)
{
    bool evicted = work->evicts;
    uint32_t health = 0;

    work->asked_count[ASKED_READ_ONLY]++;
    if (workload_expect(work, "kvt_health", kvt_health(work->store, &health)) &&
        (health & KVT_HEALTH_READ_ONLY) == 0)
        model_fail(&work->model, "kvt_health of a store that is only read says %#x", health);
    for (uint32_t i = 0; i < READ_STEPS + PUT_STEPS && work->model.failure[0] == '\0'; i++) {
        struct model_name names[BATCH_MAX];
        uint32_t count = names_pick_in(work, rng_below(&work->rng, MODEL_SPACES), names, false);

        work->evicts = evicted || i >= READ_STEPS;
        if (i >= READ_STEPS && rng_below(&work->rng, 2) == 0)
            step_memory(work);
        else if (count > 0 && rng_below(&work->rng, 3) == 0)
            change_refused(work, names, count);
        else if (count > 0)
            step_read(work, names, count);
    }
    workload_settle(work);
    work->evicts = evicted;
}
