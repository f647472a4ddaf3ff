/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload_race.c - the workload's gets part by part of blocks that are put anew meanwhile, mostly:
 * what comes is of one put, whichever; a part that was waited for is in place.
 */
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "workload_internal.h"

/* The block of the name's last put, if it is there, and that of the next one have several parts,
 * and alike: each could be read for the other's. */
static bool
is_alike(const struct model *model, struct model_name name, uint32_t parts)
{
    uint32_t version = model->keys[name.space][name.key].version_last;

    return parts > 1 && model_parts(model, name, version) == parts &&
           model_parts(model, name, version + 1) == parts &&
           model_length(model, name, version) == model_length(model, name, version + 1);
}

/* Names of one namespace that no request in flight is concerned with, all of as many parts. */
static uint32_t
names_pick(
    const struct workload *work, uint32_t space, struct model_name *names, uint32_t *parts_out)
{
    const struct model *model = &work->model;
    uint32_t count = 0;

    for (uint32_t key = 0; key < model->key_count && count < BATCH_MAX; key++) {
        struct model_name name = {.space = space, .key = key};

        if (count == 0)
            *parts_out = model_parts(model, name, model->keys[space][key].version_last);
        if (is_alike(model, name, *parts_out) && model_has_room(model, name, 1) &&
            !name_is_busy(work, name))
            names[count++] = name;
    }
    return count;
}

/* Put anew meanwhile it may be any; else it is what was there. */
static uint64_t
race_states(const struct flight *flight, uint32_t i)
{
    return flight->met[i] != 0 ? flight->met[i] : ~MODEL_NOTHING;
}

/* Room for all parts of the block; on a device by chance. */
static void
race_get(struct workload *work, struct flight *flight, uint32_t i, struct kvt_get *get)
{
    struct model_name name = flight->names[i];

    flight->sizes[i] =
        model_length(&work->model, name, work->model.keys[name.space][name.key].version_last);
    flight->memory[i] = aligned_alloc(PAGE_BYTES, (size_t)round_up(flight->sizes[i], PAGE_BYTES));
    if (flight->memory[i] == NULL)
        abort();
    memset(flight->memory[i], 0, (size_t)flight->sizes[i]);
    get->destination = flight->memory[i];
    get->capacity = flight->sizes[i];
    if (!device_is_chosen(work, flight, i) || !device_fill(work, flight, i))
        return;
    flight->is_on_device[i] = true;
    get->destination = device_memory(work, flight, i);
    get->region = device_region(work, flight, i);
}

/* --- Parts ------------------------------------------------------------------------------------ */

/* The part is in place in every destination: of those in host memory it can be seen. */
static void
part_judge(struct workload *work, const struct flight *flight, uint32_t part)
{
    const struct model_range range = {.first = part, .count = 1};

    for (uint32_t i = 0; i < flight->count; i++) {
        uint64_t part_bytes = flight->sizes[i] / flight->ranges[i].count;

        if (!flight->is_on_device[i] &&
            !model_had(&work->model, flight->names[i], race_states(flight, i), &range,
                flight->memory[i] + part * part_bytes, part_bytes))
            model_fail(&work->model, "space %u key %u: part %u was waited for, and is not there",
                flight->names[i].space, flight->names[i].key, part);
    }
    work->asked_count[ASKED_PART]++;
}

static bool
part_wait(struct workload *work, const struct flight *flight, uint32_t part, uint64_t timeout_ns)
{
    enum kvt_status status = kvt_ticket_part_wait(flight->ticket, part, timeout_ns);

    workload_note(work, 39, (uint64_t)status);
    if (status == KVT_LATE && timeout_ns == KVT_FOREVER)
        model_fail(&work->model, "part %u: a wait without an end was late", part);
    if (status < 0 && status != KVT_E_INVAL && status != KVT_E_NOSPC)
        workload_expect(work, "kvt_ticket_part_wait", status);
    return status == KVT_OK;
}

/* Any part first; then all: what they say is what the results say. */
static void
parts_wait(struct workload *work, struct flight *flight)
{
    uint32_t parts = flight->ranges[0].count;
    uint32_t first = rng_below(&work->rng, parts);
    struct kvt_result results[BATCH_MAX];
    bool is_whole = true, is_there = true;

    if (part_wait(work, flight, first, rng_below(&work->rng, 2) == 0 ? 0 : KVT_FOREVER))
        part_judge(work, flight, first);
    if (rng_below(&work->rng, 2) == 0)
        return;
    for (uint32_t part = 0; part < parts; part++)
        is_whole = part_wait(work, flight, part, KVT_FOREVER) && is_whole;
    if (!delivery_await(work, flight, KVT_STAGE_DONE, results))
        return;
    for (uint32_t i = 0; i < flight->count; i++)
        is_there = is_there && results[i].status == KVT_OK;
    if (is_whole != is_there)
        model_fail(&work->model, "a get of %u parts: each %s there, and all %s", parts,
            is_whole ? "is" : "is not", is_there ? "are" : "are not");
}

/* --- The race --------------------------------------------------------------------------------- */

void
workload_race(struct workload *work, uint32_t space)
{
    uint8_t keys[BATCH_MAX][WORKLOAD_KEY_BYTES];
    struct model_name names[BATCH_MAX];
    struct kvt_get gets[BATCH_MAX];
    uint32_t parts;
    uint32_t count = names_pick(work, space, names, &parts);
    struct flight *flight;
    bool is_alone = rng_below(&work->rng, 3) == 0;
    enum kvt_status status;

    if (count == 0)
        return;
    if (rng_below(&work->rng, 2) == 0)
        workload_move(work, names, count, KVT_TIER_NVME, false);
    flight = flight_get(work);
    flight->kind = FLIGHT_GET;
    flight->is_race = true;
    flight->flags = KVT_GET_BY_PART | KVT_GET_TRANSIENT * rng_below(&work->rng, 2);
    flight->count = count;
    memcpy(flight->names, names, count * sizeof(names[0]));
    for (uint32_t i = 0; i < count; i++) {
        flight->ranges[i].count = parts;
        flight->met[i] = is_alone ? model_states(&work->model, names[i]) : 0;
        gets[i] = (struct kvt_get){.key = workload_key(names[i], keys[i]),
            .flags = flight->flags,
            .part_count = (uint16_t)parts};
        race_get(work, flight, i, &gets[i]);
    }
    status = kvt_get_submit(work->store, work->spaces[space], gets, count,
        delivery_choose(work, flight), &flight->ticket);
    workload_note(work, 7, (uint64_t)status);
    if (!workload_expect(work, "kvt_get_submit, part by part", status)) {
        flight_clear(flight);
        return;
    }
    if (work->host.pass != NULL)
        work->host.pass(work->host.context, &work->rng);
    if (!is_alone)
        workload_put(work, names, count, KVT_MEMORY, KVT_PUT_REPLACE);
    /* The put may have needed the flight. */
    if (!flight->is_race)
        return;
    if (rng_below(&work->rng, 2) == 0)
        parts_wait(work, flight);
    flight_finish(work, flight);
}

void
race_landed(
    struct workload *work, struct flight *flight, uint32_t i, const struct kvt_result *result)
{
    struct model_name name = flight->names[i];

    if (flight->is_on_device[i] && !device_fetch(work, flight, i))
        return;
    work->hit_count += result->status == KVT_OK;
    if (result->status == KVT_OK && !model_had(&work->model, name, race_states(flight, i),
                                        &flight->ranges[i], flight->memory[i], result->length))
        model_fail(&work->model, "space %u key %u: its parts are of more than one put, or another",
            name.space, name.key);
    if (result->status == KVT_MISS && flight->met[i] != 0)
        model_read(&work->model, name, NULL, 0);
    /* The new block may have other parts. */
    if (result->status < 0 && result->status != KVT_E_INVAL && result->status != KVT_E_NOSPC)
        workload_expect(work, "a get part by part", result->status);
}
