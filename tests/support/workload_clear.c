/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload_clear.c - the workload's clears of a namespace, with requests of all kinds in flight
 * beside them, and what those may answer.
 *
 * A put leaves nothing. A get gives what was there before, or nothing. A delete has found a block
 * or not; what it deleted is gone for good when the clear has returned, whatever becomes of its own
 * stage 2. Nobody else names their blocks meanwhile, but for chains (workload_chain.c), of whose
 * answers a clear leaves nothing to judge.
 */
#include "workload_internal.h"

/* --- 1. Answers ------------------------------------------------------------------------------- */

void
cleared_get_landed(
    struct workload *work, struct flight *flight, uint32_t i, const struct kvt_result *result)
{
    const struct model_range *range = &flight->ranges[i];
    const uint8_t *bytes = flight->memory[i];
    struct model_name name = flight->names[i];
    bool is_given = result->status == KVT_OK;
    bool has_no_part = result->status == KVT_E_INVAL && result->length == 0 && range->count > 0;

    if ((is_given &&
            (result->length > flight->sizes[i] ||
                !model_had(&work->model, name, flight->met[i], range, bytes, result->length))) ||
        (has_no_part && !model_had(&work->model, name, flight->met[i], range, NULL, 0)))
        model_fail(&work->model,
            "space %u key %u: a get beside a clear gave %s, %llu bytes, that were not there before",
            name.space, name.key, kvt_status_name(result->status),
            (unsigned long long)result->length);
    work->cleared_count += is_given;
    if (is_given)
        return;
    if (!has_no_part && result->status != KVT_MISS &&
        (!work->model.may_miss || result->status != KVT_E_NOSPC))
        workload_expect(work, "a get beside a clear", result->status);
    if ((flight->flags & KVT_GET_TRANSIENT) == 0 && result->status != KVT_E_GPU &&
        !flight->is_on_device[i] && !is_poisoned_all(bytes, flight->sizes[i]))
        model_fail(&work->model, "space %u key %u: a get beside a clear gave %s and wrote",
            name.space, name.key, kvt_status_name(result->status));
}

void
cleared_delete_landed(
    struct workload *work, struct flight *flight, uint32_t i, enum kvt_status status)
{
    struct model_name name = flight->names[i];

    if (status != KVT_OK && status != KVT_MISS)
        model_fail(&work->model, "space %u key %u: a delete beside a clear gives %s", name.space,
            name.key, kvt_status_name(status));
    if (status == KVT_OK && flight->met[i] == MODEL_NOTHING)
        model_fail(&work->model, "space %u key %u: deleted beside a clear, but nothing was there",
            name.space, name.key);
    work->cleared_count += status == KVT_OK && flight->met[i] != 0;
}

/* --- 2. The clear ----------------------------------------------------------------------------- */

/* Its answers are to come: what they may show is what was there, if it is of no chain. */
static void
flight_meet(const struct workload *work, struct flight *flight)
{
    flight->is_cleared = true;
    for (uint32_t i = 0; i < flight->count; i++) {
        if (!flight->is_chained && flight->kind != FLIGHT_PUT)
            flight->met[i] |= model_states(&work->model, flight->names[i]);
    }
}

void
workload_clear(struct workload *work, uint32_t space)
{
    bool lands = rng_below(&work->rng, 2) == 0;
    enum kvt_status status;

    /* Every other clear comes while requests are under way. */
    for (uint32_t i = 0; i < FLIGHTS_MAX; i++) {
        if (work->flights[i].kind != FLIGHT_FREE && lands)
            flight_land(work, &work->flights[i]);
    }
    pin_forget_all(work, space);
    model_clear_begin(&work->model, space);
    status = kvt_namespace_clear(work->store, work->spaces[space]);
    workload_note(work, 9, (uint64_t)status);
    workload_expect(work, "kvt_namespace_clear", status);
    for (uint32_t i = 0; i < FLIGHTS_MAX && status == KVT_OK; i++) {
        struct flight *flight = &work->flights[i];

        if (flight->kind != FLIGHT_FREE && !flight->is_visible && flight->names[0].space == space)
            flight_meet(work, flight);
    }
    workload_mood(work);
    for (uint32_t key = 0; key < work->model.key_count && status == KVT_OK; key++)
        fate_clear(work, (struct model_name){.space = space, .key = key});
    model_clear_end(&work->model, space, status == KVT_OK);
}
