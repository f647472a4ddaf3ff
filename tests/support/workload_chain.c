/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload_chain.c - the workload's chains: puts, replaces, deletes and gets of the same few blocks
 * that are in flight together.
 *
 * No header promises an order between requests in flight, so what they answer is judged when all
 * have: some order must explain it (model_chain.c). What is durable is judged by each of them, as
 * ever. Stage 1 of a chain is collected at once, or any number of steps later; stage 2 of each
 * request as that of any other.
 */
#include <string.h>

#include "workload_internal.h"

/* --- 1. Growing ------------------------------------------------------------------------------- */

static bool
names_are_equal(struct model_name one, struct model_name other)
{
    return one.space == other.space && one.key == other.key;
}

bool
chain_names(const struct workload *work, struct model_name name)
{
    for (uint32_t i = 0; i < work->chain.name_count; i++) {
        if (names_are_equal(work->chain.names[i], name))
            return true;
    }
    return false;
}

/* Links of the name whose stage 1 was reached before the present request was submitted. */
static uint32_t
links_before(const struct workload *work, struct model_name name)
{
    const struct workload_chain *chain = &work->chain;
    uint32_t links = 0;

    for (uint32_t i = 0; i < chain->count; i++) {
        const struct flight *flight = chain->flights[i];

        for (uint32_t j = 0; j < flight->count && (chain->reached & 1u << i) != 0; j++) {
            if (names_are_equal(flight->names[j], name))
                links |= 1u << flight->links[j];
        }
    }
    return links;
}

static enum model_act
act_of(const struct flight *flight)
{
    if (flight->kind == FLIGHT_GET)
        return MODEL_READ;
    if (flight->kind == FLIGHT_DELETE)
        return MODEL_DELETE;
    return (flight->flags & KVT_PUT_REPLACE) != 0 ? MODEL_REPLACE : MODEL_PUT;
}

void
chain_grow(struct workload *work, struct flight *flight)
{
    struct workload_chain *chain = &work->chain;

    for (uint32_t i = 0; i < flight->count; i++)
        flight->links[i] = model_chain_add(&work->model, flight->names[i], act_of(flight),
            flight->ops[i], links_before(work, flight->names[i]));
    flight->is_chained = true;
    chain->flights[chain->count++] = flight;
}

/* Asks nobody to wait. */
static void
reached_look(struct workload *work)
{
    struct workload_chain *chain = &work->chain;
    struct kvt_result results[BATCH_MAX];

    for (uint32_t i = 0; i < chain->count; i++) {
        const struct flight *flight = chain->flights[i];

        if (kvt_ticket_results(flight->ticket, KVT_STAGE_DONE, results, flight->count) == KVT_OK)
            chain->reached |= 1u << i;
    }
}

/* A request may leave some of the chain's names out. */
static uint32_t
names_choose(struct workload *work, struct model_name *names)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < work->chain.name_count; i++) {
        if (rng_below(&work->rng, 4) > 0 || i + 1 == work->chain.name_count)
            names[count++] = work->chain.names[i];
    }
    return count;
}

static void
request_submit(struct workload *work)
{
    static const enum kvt_durability durabilities[4] = {
        KVT_MEMORY, KVT_RELAXED, KVT_SYNC, KVT_SYNC};
    enum kvt_durability durability = durabilities[rng_below(&work->rng, 4)];
    uint32_t choice = rng_below(&work->rng, 16);
    struct model_name names[CHAIN_NAMES];
    uint32_t count = names_choose(work, names);

    reached_look(work);
    if (choice < 4)
        workload_put(work, names, count, durability, 0);
    else if (choice < 8)
        workload_put(work, names, count, durability, KVT_PUT_REPLACE);
    else if (choice < 14)
        workload_delete(work, names, count);
    else
        workload_get(work, names, count, KVT_GET_TRANSIENT * rng_below(&work->rng, 2));
    /* Some are on their way when the next one comes. */
    if (work->host.pass != NULL && rng_below(&work->rng, 6) == 0)
        work->host.pass(work->host.context, &work->rng);
}

/* --- 2. Landing ------------------------------------------------------------------------------- */

void
chain_land(struct workload *work)
{
    struct workload_chain *chain = &work->chain;

    for (uint32_t i = 0; i < chain->count; i++) {
        chain->flights[i]->is_chained = false;
        flight_collect(work, chain->flights[i]);
    }
    for (uint32_t i = 0; i < chain->name_count; i++)
        model_chain_end(&work->model, chain->names[i]);
    chain->count = chain->name_count = 0;
}

/* --- 3. A chain ------------------------------------------------------------------------------- */

/* More than half of the chains are about one name. */
static void
names_take(struct workload *work, uint32_t space)
{
    struct model_name names[BATCH_MAX];
    uint32_t found = names_pick_in(work, space, names, true);
    uint32_t wanted = rng_below(&work->rng, 2) == 0 ? 1 : 1 + rng_below(&work->rng, CHAIN_NAMES);
    struct workload_chain *chain = &work->chain;

    for (uint32_t i = 0; i < found && chain->name_count < wanted; i++) {
        if (!model_has_room(&work->model, names[i], MODEL_LINKS))
            continue;
        model_chain_begin(&work->model, names[i]);
        chain->names[chain->name_count++] = names[i];
    }
}

/* So many requests can be in flight. */
static void
flights_make(struct workload *work, uint32_t wanted)
{
    uint32_t start = rng_below(&work->rng, FLIGHTS_MAX);
    uint32_t free_count = 0;

    for (uint32_t i = 0; i < FLIGHTS_MAX; i++)
        free_count += work->flights[i].kind == FLIGHT_FREE;
    for (uint32_t i = 0; i < FLIGHTS_MAX && free_count < wanted; i++) {
        struct flight *flight = &work->flights[(start + i) % FLIGHTS_MAX];

        if (flight->kind == FLIGHT_FREE)
            continue;
        flight_finish(work, flight);
        free_count++;
    }
}

void
workload_chain(struct workload *work, uint32_t space)
{
    uint32_t wanted = 2 + rng_below(&work->rng, MODEL_LINKS - 1);
    struct workload_chain *chain = &work->chain;
    struct flight *flights[MODEL_LINKS];
    struct model_name names[CHAIN_NAMES];
    uint32_t count, name_count;

    chain_land(work);
    flights_make(work, wanted);
    names_take(work, space);
    if (chain->name_count == 0)
        return;
    chain->is_growing = true;
    chain->reached = 0;
    for (uint32_t i = 0; i < wanted; i++)
        request_submit(work);
    chain->is_growing = false;
    work->chain_count++;
    for (uint32_t i = 0; i < chain->count; i++) {
        if (rng_below(&work->rng, 12) == 0)
            flight_cancel(work, chain->flights[i]);
    }
    if (chain->count > 0 && rng_below(&work->rng, 4) == 0)
        return;
    count = chain->count;
    name_count = chain->name_count;
    memcpy(flights, chain->flights, sizeof(flights));
    memcpy(names, chain->names, sizeof(names));
    chain_land(work);
    /* What there is now tells the orders apart, of which the acknowledgements are to come. */
    if (rng_below(&work->rng, 2) == 0)
        workload_get(work, names, name_count, 0);
    for (uint32_t i = 0; i < count; i++) {
        /* The get may have needed one of them. */
        if (flights[i]->kind != FLIGHT_FREE && rng_below(&work->rng, 2) == 0)
            flight_finish(work, flights[i]);
    }
}
