/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload_spread.c - the workload's memory that is spread in strided runs (layouts.h): what is
 * written into it, and that nothing else is.
 */
#include <stdlib.h>
#include <string.h>

#include "kvtier/kvtier_unstable.h"
#include "workload_internal.h"

enum {
    POISON = 0xA5,
    SLOTS = 3,
};

uint64_t
spread_area_bytes(const struct workload *work)
{
    return work->spread_percent == 0 ? model_length_max(&work->model)
                                     : SLOTS * (model_length_max(&work->model) + PLAN_GAPS_MAX);
}

/* --- Areas ------------------------------------------------------------------------------------ */

static enum spread_kind
kind_choose(struct workload *work)
{
    uint32_t choice = rng_below(&work->rng, 4);

    if (work->pinned.id == 0 || choice == 0)
        return SPREAD_PLAIN;
    return choice == 1 ? SPREAD_PINNED : SPREAD_DEVICE;
}

/* What the copy of a device's area holds is sent there, or brought from there. */
static bool
area_send(struct workload *work, const struct flight *flight, uint32_t i)
{
    const struct spread_area *area = &flight->spreads[i];
    enum kvt_status status;

    if (area->kind != SPREAD_DEVICE)
        return true;
    status = kvt_device_write(work->store, flight->devices[i], device_memory(work, flight, i),
        area->bytes, area->plan.area_bytes);
    return (status == KVT_E_NOSPC && work->evicts)
               ? false
               : workload_expect(work, "kvt_device_write of an area", status);
}

static bool
area_bring(struct workload *work, const struct flight *flight, uint32_t i)
{
    const struct spread_area *area = &flight->spreads[i];
    enum kvt_status status;

    if (area->kind != SPREAD_DEVICE)
        return true;
    status = kvt_device_read(work->store, flight->devices[i], area->bytes,
        device_memory(work, flight, i), area->plan.area_bytes);
    return (status == KVT_E_NOSPC && work->evicts)
               ? false
               : workload_expect(work, "kvt_device_read of an area", status);
}

static void
area_place(struct workload *work, struct flight *flight, uint32_t i)
{
    struct spread_area *area = &flight->spreads[i];
    uint64_t block = (uint64_t)(flight - work->flights) * BATCH_MAX + i;

    if (area->kind == SPREAD_PINNED) {
        area->bytes = work->pinned_pool + block * spread_area_bytes(work);
        run_plan_place(&area->plan, area->bytes, work->pinned);
        return;
    }
    area->bytes = malloc((size_t)area->plan.area_bytes);
    if (area->bytes == NULL)
        abort();
    if (area->kind == SPREAD_DEVICE) {
        flight->devices[i] = (uint8_t)device_pick(work);
        run_plan_place(&area->plan, device_memory(work, flight, i), device_region(work, flight, i));
    } else {
        run_plan_place(&area->plan, area->bytes, (kvt_region){0});
    }
}

bool
spread_choose(struct workload *work, struct flight *flight, uint32_t i, uint64_t length)
{
    struct spread_area *area = &flight->spreads[i];
    uint32_t slots = 1 + rng_below(&work->rng, SLOTS);
    enum kvt_status status = KVT_OK;

    /* Where blocks may be damaged each is read, also one that would not fit. */
    if (work->spread_percent == 0 || (work->is_verifying && work->finds_damage) ||
        rng_below(&work->rng, 100) >= work->spread_percent)
        return false;
    area->kind = kind_choose(work);
    run_plan_make(&area->plan, &work->rng, length, slots);
    area_place(work, flight, i);
    memset(area->bytes, POISON, (size_t)area->plan.area_bytes);
    area->slot = rng_below(&work->rng, slots);
    if (flight->kind == FLIGHT_PUT)
        run_plan_store(&area->plan, &(struct run_plan_range){area->slot, 0, length}, area->bytes,
            flight->memory[i]);
    if (slots > 1 || rng_below(&work->rng, 2) == 0)
        status = run_plan_register(&area->plan, work->store, &area->layout);
    if (workload_expect(work, "kvt_layout_register", status) && area_send(work, flight, i))
        return true;
    spread_end(work, flight, i);
    return false;
}

void
spread_end(struct workload *work, struct flight *flight, uint32_t i)
{
    workload_expect(work, "kvt_layout_unregister",
        kvt_layout_unregister(work->store, flight->spreads[i].layout));
    spread_forget(flight, i);
}

void
spread_forget(struct flight *flight, uint32_t i)
{
    struct spread_area *area = &flight->spreads[i];

    if (area->kind != SPREAD_PINNED)
        free(area->bytes);
    memset(area, 0, sizeof(*area));
}

/* --- Puts and gets ---------------------------------------------------------------------------- */

void
spread_name_put(struct workload *work, const struct flight *flight, uint32_t i, struct kvt_put *put)
{
    const struct spread_area *area = &flight->spreads[i];

    put->source = NULL;
    put->layout = area->layout;
    put->slot = area->slot;
    if (area->layout.id == 0) {
        put->runs = area->plan.runs;
        put->run_count = area->plan.run_count;
    }
    if (area->kind != SPREAD_PLAIN)
        put->tier = rng_below(&work->rng, 3) == 0 || !work->has_hbm ? KVT_TIER_HOST : KVT_TIER_HBM;
    if (put->tier == KVT_TIER_HBM)
        put->device = area->kind == SPREAD_DEVICE ? flight->devices[i] : device_pick(work);
}

void
spread_name_get(const struct flight *flight, uint32_t i, struct kvt_get *get)
{
    const struct spread_area *area = &flight->spreads[i];

    get->destination = NULL;
    get->capacity = 0;
    get->layout = area->layout;
    get->slot = area->slot;
    if (area->layout.id == 0) {
        get->runs = area->plan.runs;
        get->run_count = area->plan.run_count;
    }
}

bool
spread_is_untouched(struct workload *work, const struct flight *flight, uint32_t i)
{
    const struct spread_area *area = &flight->spreads[i];

    return area->kind == SPREAD_NONE || !area_bring(work, flight, i) ||
           run_plan_is_clean(&area->plan, &(struct run_plan_range){0}, area->bytes, POISON);
}

/* Which bytes of the block may have been written, by what the answer says. */
static struct run_plan_range
range_written(const struct flight *flight, uint32_t i, const struct kvt_result *result)
{
    const struct model_range *parts = &flight->ranges[i];
    struct run_plan_range range = {.slot = flight->spreads[i].slot};

    /* A copy that was on its way when its device was lost may have come. */
    if (result->status == KVT_E_GPU)
        range.length = flight->spreads[i].plan.block_bytes;
    if (result->status != KVT_OK)
        return range;
    range.length = result->length;
    if (parts->count > 0)
        range.offset = result->length / parts->count * parts->first;
    return range;
}

bool
spread_fetch(
    struct workload *work, struct flight *flight, uint32_t i, const struct kvt_result *result)
{
    struct spread_area *area = &flight->spreads[i];
    const struct run_plan_range range = range_written(flight, i, result);
    struct model_name name = flight->names[i];

    if (range.offset + range.length > area->plan.block_bytes) {
        model_fail(
            &work->model, "space %u key %u: more bytes than its layout has", name.space, name.key);
        return false;
    }
    if (!area_bring(work, flight, i))
        return false;
    if (!run_plan_is_clean(&area->plan, &range, area->bytes, POISON))
        model_fail(&work->model, "space %u key %u: %s wrote beside its places", name.space,
            name.key, kvt_status_name(result->status));
    run_plan_load(&area->plan, &range, area->bytes, flight->memory[i]);
    if (result->status == KVT_OK)
        work->spread_count[area->kind]++;
    if (result->status != KVT_E_INVAL || result->length == 0)
        return true;
    /* Another version is there. */
    if (result->length == area->plan.block_bytes)
        model_fail(
            &work->model, "space %u key %u: its own layout is refused", name.space, name.key);
    if (flight->met[i] == 0)
        model_found(&work->model, name, true);
    return false;
}

void
spread_scribble(struct workload *work, const struct flight *flight, uint32_t i, uint8_t filler)
{
    const struct spread_area *area = &flight->spreads[i];

    memset(area->bytes, filler, (size_t)area->plan.area_bytes);
    (void)area_send(work, flight, i);
}
