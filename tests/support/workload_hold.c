/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload_hold.c - the workload's hold on the store: blocks that are pinned, chains that wait,
 * memory of HOST that is reserved and committed, or mapped.
 */
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "workload_internal.h"

/* --- 1. Pins ---------------------------------------------------------------------------------- */

void
pin_forget(struct workload *work, struct model_name name)
{
    work->is_pinned[name.space][name.key] = false;
}

void
pin_forget_all(struct workload *work, uint32_t space)
{
    memset(work->is_pinned[space], 0, sizeof(work->is_pinned[space]));
}

void
pin_missed(struct workload *work, struct model_name name)
{
    if (work->is_pinned[name.space][name.key] && !workload_tolerates(work))
        model_fail(&work->model, "space %u key %u: pinned, and gone", name.space, name.key);
}

/* Bytes that are pinned, of those that may be. */
static bool
pins_look(struct workload *work, uint64_t *bytes_out, uint64_t *limit_out)
{
    struct kvt_options options = {.struct_size = sizeof(options)};
    struct kvt_stats stats = {.struct_size = sizeof(stats)};

    if (!workload_expect(work, "kvt_stats_get", kvt_stats_get(work->store, &stats)) ||
        !workload_expect(work, "kvt_options_get", kvt_options_get(work->store, &options)))
        return false;
    *bytes_out = stats.pin_bytes_now;
    *limit_out = options.pin_bytes_max;
    if (*bytes_out > *limit_out)
        model_fail(&work->model, "%llu bytes are pinned, %llu may be",
            (unsigned long long)*bytes_out, (unsigned long long)*limit_out);
    return true;
}

/* What was refused had no room, and has changed nothing. */
static void
pin_refused_judge(
    struct workload *work, const struct model_name *names, uint32_t count, uint64_t before)
{
    uint64_t bytes, limit, most = before;

    if (!pins_look(work, &bytes, &limit) || workload_tolerates(work))
        return;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t states = model_states(&work->model, names[i]) & ~MODEL_NOTHING;
        uint32_t version = states == 0 ? 0 : (uint32_t)__builtin_ctzll(states);
        bool is_known = states == UINT64_C(1) << version;
        uint64_t length = is_known ? model_length(&work->model, names[i], version)
                                   : model_length_max(&work->model);

        most += states == 0 ? 0 : round_up(length, PAGE_BYTES);
    }
    if (most <= limit || bytes > before)
        model_fail(&work->model,
            "kvt_pin beside %llu pinned bytes refuses what makes them %llu at most, of %llu; then "
            "%llu are pinned",
            (unsigned long long)before, (unsigned long long)most, (unsigned long long)limit,
            (unsigned long long)bytes);
    work->asked_count[ASKED_PIN_LIMIT]++;
}

/* Whether one of these blocks is there. */
static bool
names_look(struct workload *work, const struct model_name *names, const struct kvt_key *keys,
    uint32_t count, uint8_t *tiers)
{
    bool is_there = false;

    if (!workload_expect(work, "kvt_lookup",
            kvt_lookup(work->store, work->spaces[names[0].space], keys, count, tiers, NULL, NULL)))
        memset(tiers, 0, count);
    for (uint32_t i = 0; i < count; i++)
        is_there = is_there || tiers[i] != 0;
    return is_there;
}

void
workload_pin(struct workload *work, const struct model_name *names, uint32_t count)
{
    /* Most are for ever: what they keep must be there whenever it is asked for. */
    static const uint64_t times[4] = {KVT_FOREVER, KVT_FOREVER, 0, 3000000};
    uint64_t ttl_ns = times[rng_below(&work->rng, 4)];
    uint8_t bytes[BATCH_MAX][WORKLOAD_KEY_BYTES];
    struct kvt_key keys[BATCH_MAX];
    uint8_t tiers[BATCH_MAX];
    uint64_t pinned_bytes, limit;
    bool was_there, is_there;
    enum kvt_status status;

    for (uint32_t i = 0; i < count; i++)
        keys[i] = workload_key(names[i], bytes[i]);
    if (!pins_look(work, &pinned_bytes, &limit))
        return;
    was_there = names_look(work, names, keys, count, tiers);
    status = kvt_pin(work->store, work->spaces[names[0].space], keys, count, ttl_ns);
    workload_note(work, 16, (uint64_t)status);
    if (status == KVT_E_NOSPC) {
        pin_refused_judge(work, names, count, pinned_bytes);
        return;
    }
    if (status != KVT_MISS && !workload_expect(work, "kvt_pin", status))
        return;
    is_there = names_look(work, names, keys, count, tiers);
    if ((status == KVT_MISS ? is_there : !was_there) && !workload_tolerates(work))
        model_fail(&work->model, "space %u key %u: kvt_pin of %u gives %s", names[0].space,
            names[0].key, count, kvt_status_name(status));
    workload_mood(work);
    for (uint32_t i = 0; i < count && status == KVT_OK; i++) {
        model_found(&work->model, names[i], tiers[i] != 0);
        work->is_pinned[names[i].space][names[i].key] = tiers[i] != 0 && ttl_ns == KVT_FOREVER;
        work->pin_count += tiers[i] != 0;
    }
}

/* --- 2. Phases -------------------------------------------------------------------------------- */

/* Whatever it moves, no block is lost by it: that is judged whenever one is asked for. */
void
workload_phase(struct workload *work, const struct model_name *names, uint32_t count,
    enum kvt_phase phase, uint64_t resume_ns)
{
    uint8_t bytes[BATCH_MAX][WORKLOAD_KEY_BYTES];
    struct kvt_key keys[BATCH_MAX];
    enum kvt_status status;

    for (uint32_t i = 0; i < count; i++)
        keys[i] = workload_key(names[i], bytes[i]);
    status =
        kvt_phase_set(work->store, work->spaces[names[0].space], keys, count, phase, resume_ns);
    workload_note(work, 24, (uint64_t)status);
    if (phase == KVT_PHASE_IO_WAIT && status == KVT_E_BUSY)
        return; /* As many wait as may. */
    if (status != KVT_MISS && workload_expect(work, "kvt_phase_set", status))
        work->phase_count++;
}

/* --- 3. Reservations -------------------------------------------------------------------------- */

/* The bytes are written: as a put of one block from here on. */
static void
direct_commit(
    struct workload *work, struct flight *flight, kvt_reservation *reservation, void *address)
{
    struct model_name name = flight->names[0];
    enum kvt_status status;
    uint32_t version;

    flight->ops[0] = model_put(&work->model, name, (flight->flags & KVT_PUT_REPLACE) != 0,
        flight->durability != KVT_MEMORY);
    version = work->model.keys[name.space][name.key].version_last;
    model_fill(&work->model, name, version, address);
    pin_forget(work, name);
    status =
        kvt_commit(reservation, flight->durability, delivery_choose(work, flight), &flight->ticket);
    workload_note(work, 17, (uint64_t)status);
    if (workload_expect(work, "kvt_commit", status)) {
        work->direct_count++;
        flight_launched(work, flight);
        return;
    }
    kvt_discard(reservation);
    model_put_refused(&work->model, name, flight->ops[0]);
    flight_clear(flight);
}

void
workload_direct(
    struct workload *work, struct model_name name, enum kvt_durability durability, uint32_t flags)
{
    uint8_t bytes[WORKLOAD_KEY_BYTES];
    struct flight *flight = flight_take(work);
    uint32_t version = work->model.keys[name.space][name.key].version_last + 1;
    struct kvt_put put = {.key = workload_key(name, bytes),
        .length = model_length(&work->model, name, version),
        .flags = flags,
        .recompute_us = workload_recompute_us(work, name, version),
        .class_id = (uint16_t)name.space,
        .part_count = (uint16_t)model_parts(&work->model, name, version)};
    kvt_reservation *reservation;
    enum kvt_status status;
    void *address;

    if (flight == NULL)
        return;
    status = kvt_reserve(work->store, work->spaces[name.space], &put, &address, &reservation);
    workload_note(work, 18, (uint64_t)status);
    if (status == KVT_E_BUSY || (status == KVT_E_NOSPC && work->evicts) ||
        !workload_expect(work, "kvt_reserve", status))
        return;
    if (work->host.pass != NULL && rng_below(&work->rng, 2) == 0)
        work->host.pass(work->host.context, &work->rng);
    if (rng_below(&work->rng, 4) == 0) {
        memset(address, 0x77, (size_t)put.length);
        kvt_discard(reservation);
        return;
    }
    flight->kind = FLIGHT_PUT;
    flight->durability = durability;
    flight->flags = flags;
    flight->count = 1;
    flight->names[0] = name;
    /* What is written when the source is ours again must not be the block. */
    flight->sizes[0] = put.length;
    flight->memory[0] = calloc(1, (size_t)put.length);
    if (flight->memory[0] == NULL)
        abort();
    direct_commit(work, flight, reservation, address);
}

/* --- 4. Maps ---------------------------------------------------------------------------------- */

void
workload_map(struct workload *work, struct model_name name)
{
    uint64_t timeout_ns = rng_below(&work->rng, 4) == 0 ? 0 : KVT_FOREVER;
    uint8_t bytes[WORKLOAD_KEY_BYTES];
    struct kvt_key key = workload_key(name, bytes);
    const void *address;
    uint64_t length;
    kvt_lease lease;
    enum kvt_status status =
        kvt_map(work->store, work->spaces[name.space], &key, timeout_ns, &lease, &address, &length);

    workload_note(work, 19, (uint64_t)status);
    workload_mood(work);
    if (status == KVT_OK) {
        model_read(&work->model, name, address, length);
        kvt_lease_release(work->store, lease);
        work->hit_count++;
        return;
    }
    if (status == KVT_MISS) {
        pin_missed(work, name);
        model_read(&work->model, name, NULL, 0);
    } else if ((status != KVT_LATE || timeout_ns != 0) &&
               (status != KVT_E_NOSPC || !work->evicts)) {
        workload_expect(work, "kvt_map", status);
    }
}
