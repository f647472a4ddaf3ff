/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload_race.c - the workload's gets part by part of blocks that are put anew meanwhile: what
 * comes is of one put, whichever.
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

void
workload_race(struct workload *work, uint32_t space)
{
    uint8_t keys[BATCH_MAX][WORKLOAD_KEY_BYTES];
    struct model_name names[BATCH_MAX];
    struct kvt_get gets[BATCH_MAX];
    uint32_t parts;
    uint32_t count = names_pick(work, space, names, &parts);
    struct flight *flight;
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
    workload_put(work, names, count, KVT_MEMORY, KVT_PUT_REPLACE);
    /* The put may have needed the flight. */
    if (flight->is_race)
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
    if (result->status == KVT_OK &&
        !model_has_parts(&work->model, name, &flight->ranges[i], flight->memory[i], result->length))
        model_fail(&work->model, "space %u key %u: its parts are of more than one put", name.space,
            name.key);
    /* The new block may have other parts. */
    if (result->status < 0 && result->status != KVT_E_INVAL && result->status != KVT_E_NOSPC)
        workload_expect(work, "a get part by part", result->status);
}
