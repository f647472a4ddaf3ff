/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload_ops.c - each operation of the workload, and what its answers mean to the model.
 */
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "workload_internal.h"

enum {
    POISON = 0xA5,
    SCRIBBLE = 0x5A,
};

/* --- 1. Stage 1 ------------------------------------------------------------------------------- */

static uint8_t *
memory_take(struct model *model, size_t alignment, size_t size)
{
    uint8_t *memory = aligned_alloc(alignment, (size_t)round_up(size, alignment));

    if (memory == NULL) {
        model_fail(model, "the test has no memory left");
        abort();
    }
    return memory;
}

bool
is_poisoned_all(const uint8_t *bytes, uint64_t size)
{
    return size == 0 || (bytes[0] == POISON && memcmp(bytes, bytes + 1, (size_t)size - 1) == 0);
}

bool
block_is_untouched(const struct flight *flight, uint32_t i)
{
    return is_poisoned_all(flight->memory[i], flight->sizes[i]);
}

/* Nothing came of it: its stages say so, and nothing else. */
static void
block_cancelled(struct workload *work, struct flight *flight, uint32_t i)
{
    struct model_name name = flight->names[i];

    flight->first[i] = KVT_CANCELLED;
    work->cancel_count++;
    if (!flight->is_cancelled)
        model_fail(&work->model, "space %u key %u: cancelled by nobody", name.space, name.key);
    if (flight->kind != FLIGHT_GET)
        model_cancelled(&work->model, name, flight->ops[i]);
    else if (!spread_is_untouched(work, flight, i) ||
             (!flight->is_on_device[i] && !is_poisoned_all(flight->memory[i], flight->sizes[i])))
        model_fail(&work->model, "space %u key %u: a cancelled get wrote to its destination",
            name.space, name.key);
}

/* The source is ours again: whoever reads it now reads this. */
static void
source_scribble(struct workload *work, struct flight *flight, uint32_t i)
{
    memset(flight->memory[i], SCRIBBLE, (size_t)flight->sizes[i]);
    if (!late_scribble(flight, i, SCRIBBLE))
        return;
    if (flight->spreads[i].kind != SPREAD_NONE)
        spread_scribble(work, flight, i, SCRIBBLE);
    else if (flight->is_on_device[i])
        (void)device_fill(work, flight, i);
}

void
block_put_untold(struct workload *work, struct flight *flight, uint32_t i)
{
    flight->first[i] = KVT_NOT_READY;
    fate_put(work, flight, i, KVT_EXISTS);
    source_scribble(work, flight, i);
    if (!flight->is_cleared)
        model_put_either(&work->model, flight->names[i], flight->ops[i]);
}

void
block_put_landed(struct workload *work, struct flight *flight, uint32_t i, enum kvt_status status)
{
    struct model_name name = flight->names[i];

    flight->first[i] = status;
    fate_put(work, flight, i, status);
    source_scribble(work, flight, i);
    /* Whichever came first, the clear has told that nothing is there. */
    if (flight->is_cleared && status >= 0)
        return;
    if (status == KVT_OK)
        model_put_visible(&work->model, name, flight->ops[i]);
    else if (status == KVT_EXISTS && (flight->flags & KVT_PUT_REPLACE) != 0)
        model_fail(&work->model, "space %u key %u: REPLACE says EXISTS", name.space, name.key);
    else if (status == KVT_EXISTS)
        model_put_exists(&work->model, name, flight->ops[i]);
    else {
        model_put_refused(&work->model, name, flight->ops[i]);
        if (!work->model.may_miss || status != KVT_E_NOSPC)
            workload_expect(work, "a put, stage 1", status);
    }
}

/* Some parts of a block were asked for. */
static void
parts_landed(
    struct workload *work, struct flight *flight, uint32_t i, const struct kvt_result *result)
{
    struct model_name name = flight->names[i];
    uint64_t length = result->status == KVT_OK ? result->length : 0;
    bool is_checked =
        !flight->is_on_device[i] && length <= flight->sizes[i] && result->status != KVT_E_GPU;

    if (result->status == KVT_OK)
        model_read_parts(&work->model, name, &flight->ranges[i], flight->memory[i], result->length);
    else if (result->status == KVT_E_INVAL && result->length == 0)
        model_read_parts(&work->model, name, &flight->ranges[i], NULL, 0);
    else if (result->status == KVT_MISS)
        model_read(&work->model, name, NULL, 0);
    else if (!work->model.may_miss || result->status != KVT_E_NOSPC)
        workload_expect(work, "a get of parts", result->status);
    if ((flight->flags & KVT_GET_TRANSIENT) == 0 && is_checked &&
        !is_poisoned_all(flight->memory[i] + length, flight->sizes[i] - length))
        model_fail(&work->model, "space %u key %u: a get of parts wrote behind them", name.space,
            name.key);
}

void
block_get_landed(
    struct workload *work, struct flight *flight, uint32_t i, const struct kvt_result *result)
{
    struct model_name name = flight->names[i];
    bool is_direct = (flight->flags & KVT_GET_TRANSIENT) != 0;

    if (flight->spreads[i].kind != SPREAD_NONE && !spread_fetch(work, flight, i, result))
        return;
    if (flight->is_on_device[i] && !device_fetch(work, flight, i))
        return;
    if (flight->met[i] != 0) {
        cleared_get_landed(work, flight, i, result);
        return;
    }
    if (flight->ranges[i].count > 0) {
        parts_landed(work, flight, i, result);
        return;
    }
    if (result->status == KVT_OK) {
        if (result->length > flight->sizes[i])
            model_fail(&work->model, "space %u key %u: %llu bytes in a buffer of %llu", name.space,
                name.key, (unsigned long long)result->length, (unsigned long long)flight->sizes[i]);
        else
            model_read(&work->model, name, flight->memory[i], result->length);
        work->hit_count++;
        return;
    }
    if (result->status == KVT_MISS) {
        pin_missed(work, name);
        stay_missed(work, name);
        model_read(&work->model, name, NULL, 0);
    } else if (!work->model.may_miss || result->status != KVT_E_NOSPC) {
        workload_expect(work, "a get", result->status);
    }
    /* A copy that was on its way when its device was lost may have come. */
    if (!is_direct && result->status != KVT_E_GPU &&
        !is_poisoned_all(flight->memory[i], flight->sizes[i]))
        model_fail(&work->model, "space %u key %u: a get that gave %s wrote to its destination",
            name.space, name.key, kvt_status_name(result->status));
}

void
block_delete_landed(
    struct workload *work, struct flight *flight, uint32_t i, enum kvt_status status)
{
    flight->first[i] = status;
    fate_delete(work, flight, i, status);
    if (flight->is_cleared && status >= 0)
        cleared_delete_landed(work, flight, i, status);
    else if (status == KVT_OK || status == KVT_MISS)
        model_deleted(&work->model, flight->names[i], flight->ops[i], status == KVT_OK);
    else {
        model_doubt(&work->model, flight->names[i], flight->ops[i]);
        workload_expect(work, "a delete, stage 1", status);
    }
}

/* Some block says so. */
static bool
has_begun(const struct flight *flight, const struct kvt_result *results)
{
    for (uint32_t i = 0; i < flight->count; i++) {
        if (results[i].status == KVT_OK || results[i].status == KVT_EXISTS ||
            (results[i].status == KVT_MISS && flight->kind != FLIGHT_PUT))
            return true;
    }
    return false;
}

void
flight_collect(struct workload *work, struct flight *flight)
{
    struct kvt_result results[BATCH_MAX];
    bool is_freed = flight->ticket == NULL;
    bool is_told = is_freed ? delivery_reach(work, flight, KVT_STAGE_DONE)
                            : delivery_await(work, flight, KVT_STAGE_DONE, results);

    flight->is_visible = true;
    if (!is_told)
        return;
    late_landed(work, flight, is_freed ? flight->told[0] >= 0 : has_begun(flight, results));
    workload_mood(work);
    if (is_freed) {
        freed_landed(work, flight);
        spread_end(work, flight, 0);
        late_release(flight);
        return;
    }
    for (uint32_t i = 0; i < flight->count; i++) {
        workload_note(work, 4, (uint64_t)results[i].status);
        model_chain_hear(&work->model, flight->names[i], flight->links[i]);
        if (results[i].status == KVT_CANCELLED)
            block_cancelled(work, flight, i);
        else if (flight->kind == FLIGHT_PUT)
            block_put_landed(work, flight, i, results[i].status);
        else if (flight->is_race)
            race_landed(work, flight, i, &results[i]);
        else if (flight->kind == FLIGHT_GET)
            block_get_landed(work, flight, i, &results[i]);
        else
            block_delete_landed(work, flight, i, results[i].status);
        spread_end(work, flight, i);
    }
    late_release(flight);
}

/* --- 2. Puts ---------------------------------------------------------------------------------- */

static void
put_fill(struct workload *work, struct flight *flight, uint32_t i, struct kvt_put *put)
{
    struct model_name name = flight->names[i];
    bool is_lasting = flight->durability != KVT_MEMORY;
    uint32_t version;

    flight->ops[i] =
        model_put(&work->model, name, (flight->flags & KVT_PUT_REPLACE) != 0, is_lasting);
    version = work->model.keys[name.space][name.key].version_last;
    flight->sizes[i] = model_length(&work->model, name, version);
    flight->memory[i] = memory_take(&work->model, 64, (size_t)flight->sizes[i]);
    model_fill(&work->model, name, version, flight->memory[i]);
    *put = (struct kvt_put){
        .source = flight->memory[i],
        .length = flight->sizes[i],
        .flags = flight->flags,
        .depth = i,
        .token_start = i * 16,
        .token_count = 16,
        .class_id = (uint16_t)name.space,
        .part_count = (uint16_t)model_parts(&work->model, name, version),
    };
    put->recompute_us = workload_recompute_us(work, name, version);
    put->importance = rng_below(&work->rng, 3);
    put->hint = (uint8_t)rng_below(&work->rng, 4);
    if (spread_choose(work, flight, i, flight->sizes[i])) {
        spread_name_put(work, flight, i, put);
        return;
    }
    if (!device_is_chosen(work, flight, i) || !device_fill(work, flight, i))
        return;
    flight->is_on_device[i] = true;
    put->source = device_memory(work, flight, i);
    put->region = device_region(work, flight, i);
    put->device = flight->devices[i];
    put->tier = rng_below(&work->rng, 4) == 0 || !work->has_hbm ? KVT_TIER_HOST : KVT_TIER_HBM;
}

static void
puts_undo(struct workload *work, struct flight *flight)
{
    for (uint32_t i = 0; i < flight->count; i++)
        model_cancelled(&work->model, flight->names[i], flight->ops[i]);
    flight_clear(flight);
}

void
workload_put(struct workload *work, const struct model_name *names, uint32_t count,
    enum kvt_durability durability, uint32_t flags)
{
    uint8_t keys[BATCH_MAX][WORKLOAD_KEY_BYTES];
    uint8_t parent_key[WORKLOAD_KEY_BYTES];
    struct kvt_put puts[BATCH_MAX];
    struct flight *flight = flight_get(work);
    /* Any key of theirs, also one of their own: some callers' chains are no trees. */
    const struct model_name parent_name = {
        .space = names[0].space, .key = rng_below(&work->rng, work->model.key_count)};
    const struct kvt_key parent = workload_key(parent_name, parent_key);
    bool has_parent = rng_below(&work->rng, 2) == 0;
    enum kvt_status status;

    flight->kind = FLIGHT_PUT;
    flight->durability = durability;
    flight->flags = flags;
    flight->count = count;
    memcpy(flight->names, names, count * sizeof(names[0]));
    for (uint32_t i = 0; i < count; i++) {
        put_fill(work, flight, i, &puts[i]);
        pin_forget(work, names[i]);
        puts[i].key = workload_key(names[i], keys[i]);
        puts[i].parent = i > 0 ? &puts[i - 1].key : has_parent ? &parent : NULL;
    }
    late_puts(work, flight, puts);
    status = kvt_put_submit(work->store, work->spaces[names[0].space], puts, count, durability,
        delivery_choose(work, flight), &flight->ticket);
    workload_note(work, 6, (uint64_t)status);
    if (!workload_expect(work, "kvt_put_submit", status)) {
        puts_undo(work, flight);
        return;
    }
    flight_launched(work, flight);
}

/* --- 3. Gets ---------------------------------------------------------------------------------- */

/* Every third block is not read as a whole; seldom parts are asked for that it may not have. */
static void
parts_choose(struct workload *work, struct flight *flight, uint32_t i, struct kvt_get *get)
{
    struct model_name name = flight->names[i];
    uint32_t version = work->model.keys[name.space][name.key].version_last;
    uint32_t parts = model_parts(&work->model, name, version);
    struct model_range *range = &flight->ranges[i];

    if (rng_below(&work->rng, 3) != 0 || work->is_verifying || work->chain.is_growing)
        return;
    if (rng_below(&work->rng, 16) == 0)
        parts = 64;
    range->first = rng_below(&work->rng, parts);
    range->count = 1 + rng_below(&work->rng, parts - range->first);
    get->part_first = (uint16_t)range->first;
    get->part_count = (uint16_t)range->count;
}

/* What the block has if nothing else was put meanwhile. */
static uint64_t
length_known(const struct workload *work, struct model_name name)
{
    return model_length(&work->model, name, work->model.keys[name.space][name.key].version_last);
}

void
workload_get(struct workload *work, const struct model_name *names, uint32_t count, uint32_t flags)
{
    uint8_t keys[BATCH_MAX][WORKLOAD_KEY_BYTES];
    struct kvt_get gets[BATCH_MAX];
    struct flight *flight = flight_get(work);
    enum kvt_status status;

    flight->kind = FLIGHT_GET;
    flight->flags = flags;
    flight->count = count;
    memcpy(flight->names, names, count * sizeof(names[0]));
    for (uint32_t i = 0; i < count; i++) {
        flight->sizes[i] = model_length_max(&work->model);
        flight->memory[i] = memory_take(&work->model, PAGE_BYTES, (size_t)flight->sizes[i]);
        memset(flight->memory[i], POISON, (size_t)flight->sizes[i]);
        gets[i] = (struct kvt_get){.key = workload_key(names[i], keys[i]),
            .destination = flight->memory[i],
            .capacity = flight->sizes[i],
            .flags = flags};
        parts_choose(work, flight, i, &gets[i]);
        /* Of a chain nobody knows which version comes: it must fit. */
        if (!work->chain.is_growing &&
            spread_choose(work, flight, i, length_known(work, names[i]))) {
            spread_name_get(flight, i, &gets[i]);
            continue;
        }
        if (!device_is_chosen(work, flight, i) || !device_fill(work, flight, i))
            continue;
        flight->is_on_device[i] = true;
        gets[i].destination = device_memory(work, flight, i);
        gets[i].region = device_region(work, flight, i);
    }
    late_gets(work, flight, gets);
    status = kvt_get_submit(work->store, work->spaces[names[0].space], gets, count,
        delivery_choose(work, flight), &flight->ticket);
    workload_note(work, 7, (uint64_t)status);
    if (!workload_expect(work, "kvt_get_submit", status)) {
        flight_clear(flight);
        return;
    }
    flight_launched(work, flight);
}

/* --- 4. Deletes and flushes ------------------------------------------------------------------- */

void
workload_delete(struct workload *work, const struct model_name *names, uint32_t count)
{
    uint8_t bytes[BATCH_MAX][WORKLOAD_KEY_BYTES];
    struct kvt_key keys[BATCH_MAX];
    struct flight *flight = flight_get(work);
    enum kvt_status status;

    flight->kind = FLIGHT_DELETE;
    flight->count = count;
    memcpy(flight->names, names, count * sizeof(names[0]));
    for (uint32_t i = 0; i < count; i++) {
        pin_forget(work, names[i]);
        keys[i] = workload_key(names[i], bytes[i]);
        flight->ops[i] = model_delete(&work->model, names[i]);
    }
    late_alone(work, flight);
    status = kvt_delete_submit(work->store, work->spaces[names[0].space], keys, count,
        delivery_choose(work, flight), &flight->ticket);
    workload_note(work, 8, (uint64_t)status);
    if (!workload_expect(work, "kvt_delete_submit", status)) {
        for (uint32_t i = 0; i < count; i++)
            model_cancelled(&work->model, names[i], flight->ops[i]);
        flight_clear(flight);
        return;
    }
    flight_launched(work, flight);
}

void
workload_flush(struct workload *work)
{
    bool is_landed = rng_below(&work->rng, 2) == 0;
    enum kvt_status status;

    for (uint32_t i = 0; i < FLIGHTS_MAX; i++) {
        if (is_landed && work->flights[i].kind != FLIGHT_FREE)
            flight_land(work, &work->flights[i]);
    }
    status = kvt_flush(work->store);
    workload_note(work, 10, (uint64_t)status);
    for (uint32_t i = 0; i < FLIGHTS_MAX; i++) {
        if (status == KVT_OK && delivery_is_late(&work->flights[i]))
            model_fail(&work->model, "kvt_flush came before stage 2 of what was submitted earlier");
    }
    freed_flushed(work, status);
    workload_settle(work); /* Outcomes of stage 2 come before what the flush says. */
    if (workload_expect_told(work, "kvt_flush", status) && !workload_tolerates(work))
        model_ack_all(&work->model);
}

/* --- 5. Lookups and leases -------------------------------------------------------------------- */

void
lease_give_back(struct workload *work, struct held_lease *held)
{
    for (uint32_t i = 0; i < held->count; i++) {
        const void *address;
        uint64_t length;
        enum kvt_status status;

        if (held->hbm_versions[i] != 0 && work->store != NULL &&
            device_lease_version(work, held, i, false) != held->hbm_versions[i] &&
            !workload_tolerates(work))
            model_fail(&work->model, "space %u key %u: leased bytes in HBM changed",
                held->names[i].space, held->names[i].key);
        if (held->versions[i] == 0)
            continue;
        status = kvt_lease_address(work->store, held->lease, i, KVT_TIER_HOST, &address, &length);
        if (status != KVT_OK)
            model_fail(&work->model, "space %u key %u: a lease lost its address: %s",
                held->names[i].space, held->names[i].key, kvt_status_name(status));
        else if (!model_is(&work->model, held->names[i], held->versions[i], address, length))
            model_fail(&work->model, "space %u key %u: leased bytes changed", held->names[i].space,
                held->names[i].key);
    }
    if (work->store != NULL && !late_lease_end(work, held))
        kvt_lease_release(work->store, held->lease);
    if (held->lease.id != 0)
        work->stale_lease = held->lease;
    memset(held, 0, sizeof(*held));
}

/* Look at what was leased and remember which version it was. */
static void
lease_look(struct workload *work, struct held_lease *held, const uint8_t *tiers)
{
    for (uint32_t i = 0; i < held->count; i++) {
        const void *address;
        uint64_t length;
        enum kvt_status status =
            kvt_lease_address(work->store, held->lease, i, KVT_TIER_HOST, &address, &length);

        workload_note(work, 11, (uint64_t)status);
        if ((tiers[i] & KVT_TIER_HBM) != 0)
            held->hbm_versions[i] = device_lease_version(work, held, i, true);
        if (status == KVT_OK) {
            model_read(&work->model, held->names[i], address, length);
            held->versions[i] = model_identify(&work->model, held->names[i], address, length);
            work->hit_count++;
        } else if (status != KVT_MISS || (tiers[i] & KVT_TIER_HOST) != 0)
            model_fail(&work->model, "space %u key %u in tiers %u: kvt_lease_address gives %s",
                held->names[i].space, held->names[i].key, tiers[i], kvt_status_name(status));
    }
}

void
lookup_heard(struct workload *work, const struct model_name *names, const uint8_t *tiers,
    uint32_t count, uint32_t leading)
{
    uint32_t run = 0;

    workload_mood(work);
    while (run < count && tiers[run] != 0)
        run++;
    if (run != leading)
        model_fail(&work->model, "kvt_lookup counts %u leading hits, there are %u", leading, run);
    for (uint32_t i = 0; i < count; i++) {
        workload_note(work, 12, tiers[i]);
        if (tiers[i] == 0)
            pin_missed(work, names[i]);
        model_found(&work->model, names[i], tiers[i] != 0);
    }
}

void
workload_lookup(struct workload *work, const struct model_name *names, uint32_t count)
{
    uint8_t bytes[BATCH_MAX][WORKLOAD_KEY_BYTES];
    struct kvt_key keys[BATCH_MAX];
    uint8_t tiers[BATCH_MAX];
    uint32_t leading;
    struct held_lease *held = &work->leases[rng_below(&work->rng, LEASES_MAX)];
    bool leases = rng_below(&work->rng, 2) == 0;
    enum kvt_status status;

    for (uint32_t i = 0; i < count; i++)
        keys[i] = workload_key(names[i], bytes[i]);
    if (leases)
        lease_give_back(work, held);
    status = kvt_lookup(work->store, work->spaces[names[0].space], keys, count, tiers, &leading,
        leases ? &held->lease : NULL);
    workload_note(work, 13, (uint64_t)status);
    if (!workload_expect(work, "kvt_lookup", status)) {
        if (leases)
            memset(held, 0, sizeof(*held));
        return;
    }
    lookup_heard(work, names, tiers, count, leading);
    if (!leases || held->lease.id == 0)
        return;
    held->count = count;
    memcpy(held->names, names, count * sizeof(names[0]));
    lease_look(work, held, tiers);
}
