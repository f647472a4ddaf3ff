/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload_freed.c - tickets that the workload frees before their last stage: what a queue, a flush
 * or nobody tells of their requests, and what the model may take from it.
 *
 * A completion has one status for all blocks: below zero one of them has failed, else none has. So
 * they are told apart only where nothing else can have come in between.
 */
#include "workload_internal.h"

enum {
    EARLY_EVERY = 2, /* Requests, on average, of those that may. */
    LATER_EVERY = 3,
};

bool
freed_is_untold(const struct flight *flight)
{
    return flight->kind != FLIGHT_FREE && flight->ticket == NULL && flight->submit.queue == NULL;
}

/* --- 1. Freeing ------------------------------------------------------------------------------- */

static void
ticket_give(struct workload *work, struct flight *flight)
{
    kvt_ticket_free(flight->ticket);
    flight->ticket = NULL;
    workload_note(work, 29, (uint64_t)flight->kind);
}

/* Its memory says what came of a get: plain memory, for all of the block. */
static bool
is_plain(const struct flight *flight)
{
    return flight->ranges[0].count == 0 && !flight->is_on_device[0] &&
           flight->spreads[0].kind == SPREAD_NONE;
}

void
freed_early(struct workload *work, struct flight *flight)
{
    if (flight->submit.queue == NULL || flight->count != 1 || flight->is_cancelled ||
        (flight->kind == FLIGHT_GET && !is_plain(flight)) ||
        rng_below(&work->rng, EARLY_EVERY) != 0)
        return;
    work->freed_count[0]++;
    ticket_give(work, flight);
}

void
freed_later(struct workload *work, struct flight *flight)
{
    if (flight->kind == FLIGHT_FREE || !flight->is_visible || flight->ticket == NULL ||
        !flight_has_stage_2(flight) || rng_below(&work->rng, LATER_EVERY) != 0)
        return;
    if (delivery_is_late(flight)) {
        work->freed_count[1]++;
        work->untold_count += flight->submit.queue == NULL;
    }
    ticket_give(work, flight);
}

/* --- 2. Stage 1 ------------------------------------------------------------------------------- */

static uint64_t
live_of(const struct workload *work, struct model_name name)
{
    return work->model.keys[name.space][name.key].live;
}

/* It was put, or something was there, or its namespace was cleared. */
static void
put_landed(struct workload *work, struct flight *flight)
{
    bool is_absent = live_of(work, flight->names[0]) == 1;
    bool is_certain = (live_of(work, flight->names[0]) & 1) == 0 && !work->model.may_be_gone;

    if ((flight->flags & KVT_PUT_REPLACE) != 0 || is_absent)
        block_put_landed(work, flight, 0, KVT_OK);
    else if (is_certain)
        block_put_landed(work, flight, 0, KVT_EXISTS);
    else
        block_put_untold(work, flight, 0);
}

/* The longest: what fills the memory behind a payload is none of it. */
static uint64_t
length_found(const struct workload *work, const struct flight *flight)
{
    struct model_name name = flight->names[0];
    uint64_t found = 0;

    for (uint32_t version = work->model.keys[name.space][name.key].version_last; version > 0;
         version--) {
        uint64_t length = model_length(&work->model, name, version);

        if (length > found && model_is(&work->model, name, version, flight->memory[0], length))
            found = length;
    }
    return found;
}

static void
get_landed(struct workload *work, struct flight *flight)
{
    struct kvt_result result = {.status = KVT_MISS};
    struct model_name name = flight->names[0];

    result.length = length_found(work, flight);
    if (block_is_untouched(flight, 0)) {
        if (result.length > 0)
            return; /* A byte or two that look like what stood there before: nobody can tell. */
    } else if (result.length > 0) {
        result.status = KVT_OK;
    } else if (workload_tolerates(work) && (flight->flags & KVT_GET_TRANSIENT) != 0) {
        return; /* Damaged, and read where it was to go. */
    } else {
        model_fail(&work->model, "space %u key %u: WRONG BYTES of a get whose ticket was freed",
            name.space, name.key);
    }
    block_get_landed(work, flight, 0, &result);
}

/* Nothing is there any more; whether something was is not told. */
static void
delete_landed(struct workload *work, struct flight *flight)
{
    bool is_certain = (live_of(work, flight->names[0]) & 1) == 0 && !work->model.may_be_gone;
    bool is_absent = live_of(work, flight->names[0]) == 1;

    block_delete_landed(work, flight, 0, is_certain ? KVT_OK : KVT_MISS);
    if (!is_certain && !is_absent)
        flight->first[0] = KVT_NOT_READY;
    /* A clear that it met may have come behind it. */
    if (!is_certain && (!is_absent || flight->is_cleared))
        fate_delete(work, flight, 0, KVT_NOT_READY);
}

void
freed_landed(struct workload *work, struct flight *flight)
{
    enum kvt_status told = flight->told[0];
    const struct kvt_result failed = {.status = told};

    workload_note(work, 4, (uint64_t)told);
    if (flight->kind == FLIGHT_PUT && told < 0)
        block_put_landed(work, flight, 0, told);
    else if (flight->kind == FLIGHT_PUT)
        put_landed(work, flight);
    else if (flight->kind == FLIGHT_GET && told < 0)
        block_get_landed(work, flight, 0, &failed);
    else if (flight->kind == FLIGHT_GET)
        get_landed(work, flight);
    else if (told < 0)
        block_delete_landed(work, flight, 0, told);
    else
        delete_landed(work, flight);
}

/* --- 3. Stage 2 ------------------------------------------------------------------------------- */

/* It is durable if nothing took it away before it could be. */
static bool
is_durable(const struct workload *work, const struct flight *flight, uint32_t i)
{
    return !work->evicts && (work->keeps || !workload_tolerates(work)) &&
           model_is_last(&work->model, flight->names[i], flight->ops[i]);
}

/* No block of it has failed. */
static void
block_well(struct workload *work, const struct flight *flight, uint32_t i)
{
    struct model_name name = flight->names[i];
    bool is_delete = flight->kind == FLIGHT_DELETE;

    if (flight->is_cleared)
        return;
    if (is_delete && flight->first[i] == KVT_MISS)
        model_ack(&work->model, name, flight->ops[i]);
    else if (!is_durable(work, flight, i))
        model_doubt(&work->model, name, flight->ops[i]);
    else if (flight->first[i] == KVT_OK || is_delete)
        model_ack(&work->model, name, flight->ops[i]);
    else if (flight->first[i] == KVT_EXISTS)
        model_ack_present(&work->model, name, flight->ops[i]);
}

static void
blocks_ended(struct workload *work, const struct flight *flight, bool is_well)
{
    for (uint32_t i = 0; i < flight->count; i++) {
        if (is_well)
            block_well(work, flight, i);
        else
            model_doubt(&work->model, flight->names[i], flight->ops[i]);
    }
}

void
freed_finished(struct workload *work, struct flight *flight)
{
    uint32_t refused_count = 0;
    enum kvt_status told;

    if (flight->submit.queue == NULL) {
        blocks_ended(work, flight, false); /* Nobody is told. */
        return;
    }
    if (!delivery_reach(work, flight, KVT_STAGE_DURABLE))
        return;
    told = flight->told[1];
    workload_note(work, 5, (uint64_t)told);
    for (uint32_t i = 0; i < flight->count; i++)
        refused_count += flight->first[i] < 0;
    blocks_ended(work, flight, told >= 0);
    if (refused_count > 0) {
        if (told >= 0)
            model_fail(&work->model, "stage 1 refused %u blocks, stage 2 says %s", refused_count,
                kvt_status_name(told));
        return;
    }
    work->volatile_count += told < 0;
    if (told < 0)
        workload_expect(work, "stage 2 of a ticket that was freed", told);
}

void
freed_flushed(struct workload *work, enum kvt_status status)
{
    for (uint32_t i = 0; i < FLIGHTS_MAX; i++) {
        struct flight *flight = &work->flights[i];

        if (!freed_is_untold(flight))
            continue;
        blocks_ended(work, flight, status == KVT_OK);
        flight_clear(flight);
    }
}
