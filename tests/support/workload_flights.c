/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload_flights.c - the workload's requests in flight: which there are, from their submission to
 * their last stage.
 */
#include <stdlib.h>
#include <string.h>

#include "workload_internal.h"

/* --- 1. The table ----------------------------------------------------------------------------- */

struct flight *
flight_take(struct workload *work)
{
    for (uint32_t i = 0; i < FLIGHTS_MAX; i++) {
        if (work->flights[i].kind == FLIGHT_FREE)
            return &work->flights[i];
    }
    return NULL;
}

struct flight *
flight_get(struct workload *work)
{
    struct flight *flight = flight_take(work);

    if (flight == NULL) {
        flight = &work->flights[rng_below(&work->rng, FLIGHTS_MAX)];
        flight_finish(work, flight);
    }
    return flight;
}

bool
name_is_busy(const struct workload *work, struct model_name name)
{
    if (chain_names(work, name))
        return true;
    for (uint32_t i = 0; i < FLIGHTS_MAX; i++) {
        const struct flight *flight = &work->flights[i];

        if (flight->kind == FLIGHT_FREE || flight->is_visible)
            continue;
        for (uint32_t j = 0; j < flight->count; j++) {
            if (flight->names[j].space == name.space && flight->names[j].key == name.key)
                return true;
        }
    }
    return false;
}

void
flight_clear(struct flight *flight)
{
    late_release(flight);
    for (uint32_t i = 0; i < flight->count; i++) {
        free(flight->memory[i]);
        spread_forget(flight, i);
    }
    memset(flight, 0, sizeof(*flight));
}

/* --- 2. Stages -------------------------------------------------------------------------------- */

void
flight_land(struct workload *work, struct flight *flight)
{
    if (flight->is_chained)
        chain_land(work);
    else if (!flight->is_visible)
        flight_collect(work, flight);
}

/* Stage 2 of one block of a put or a delete. */
static void
block_finished(struct workload *work, struct flight *flight, uint32_t i, enum kvt_status status)
{
    struct model_name name = flight->names[i];

    work->volatile_count += flight->first[i] >= 0 && status < 0;
    if (flight->is_cleared) {
        if (flight->first[i] >= 0 && status < 0)
            workload_expect(work, "stage 2, beside a clear", status);
        return;
    }
    if (flight->first[i] == KVT_EXISTS) {
        /* It shares the first put's outcome. */
        if (status == KVT_OK || status == KVT_EXISTS)
            model_ack_present(&work->model, name, flight->ops[i]);
        return;
    }
    if ((status == KVT_CANCELLED) != (flight->first[i] == KVT_CANCELLED))
        model_fail(&work->model, "space %u key %u: stage 1 %s, stage 2 %s", name.space, name.key,
            kvt_status_name(flight->first[i]), kvt_status_name(status));
    if (flight->first[i] == KVT_MISS && flight->kind == FLIGHT_DELETE && status >= 0)
        model_ack(&work->model, name, flight->ops[i]); /* It stays so. */
    if (flight->first[i] != KVT_OK)
        return;
    if (status == KVT_OK || status == KVT_EXISTS) {
        model_ack(&work->model, name, flight->ops[i]);
        return;
    }
    model_doubt(&work->model, name, flight->ops[i]);
    if (status != KVT_MISS)
        workload_expect(work, "stage 2", status);
}

bool
flight_has_stage_2(const struct flight *flight)
{
    return flight->kind == FLIGHT_DELETE ||
           (flight->kind == FLIGHT_PUT && flight->durability != KVT_MEMORY);
}

void
flight_finish(struct workload *work, struct flight *flight)
{
    struct kvt_result results[BATCH_MAX];

    flight_land(work, flight);
    if (flight_has_stage_2(flight) && flight->ticket == NULL)
        freed_finished(work, flight);
    else if (flight_has_stage_2(flight) &&
             delivery_await(work, flight, KVT_STAGE_DURABLE, results)) {
        for (uint32_t i = 0; i < flight->count; i++) {
            workload_note(work, 5, (uint64_t)results[i].status);
            block_finished(work, flight, i, results[i].status);
        }
    }
    kvt_ticket_free(flight->ticket);
    flight_clear(flight);
}

void
flight_cancel(struct workload *work, struct flight *flight)
{
    if (flight->kind == FLIGHT_FREE || flight->ticket == NULL)
        return;
    flight->is_cancelled = true;
    workload_expect(work, "kvt_ticket_cancel", kvt_ticket_cancel(flight->ticket));
}

void
flight_launched(struct workload *work, struct flight *flight)
{
    uint32_t choice = rng_below(&work->rng, 8);
    bool is_get = flight->kind == FLIGHT_GET;

    if (work->chain.is_growing) {
        chain_grow(work, flight);
        return;
    }
    if (rng_below(&work->rng, 8) == 0) {
        if (work->host.pass != NULL && rng_below(&work->rng, 2) == 0)
            work->host.pass(work->host.context, &work->rng);
        flight_cancel(work, flight);
    }
    freed_early(work, flight);
    if (is_get ? !work->gets_fly : choice < 3)
        flight_finish(work, flight);
    else if (!is_get && choice < 6) {
        flight_land(work, flight);
        freed_later(work, flight);
    }
}
