/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flight.c - making and ending flights.
 */
#include "store_internal.h"

void
flight_pool_open(struct kvt_store *store)
{
    pool_init(&store->flight_pool, &store->env, sizeof(struct flight), WORK_KEEP_MAX);
}

struct flight *
flight_create(struct kvt_store *store, uint32_t entry, enum flight_state state)
{
    struct flight *flight = pool_take(&store->flight_pool);

    if (flight == NULL) {
        (void)failure_set(KVT_E_NOMEM, 0, "no memory for a block's work");
        return NULL;
    }
    flight->state = state;
    flight->entry = entry;
    flight->turn = turns_begin(&store->flights);
    KVT_ASSERT(entries_at(store->entries, entry)->flight == NULL);
    entries_at(store->entries, entry)->flight = flight;
    store->policy->ops->recheck(store->policy, entry);
    return flight;
}

void
flight_destroy(struct kvt_store *store, struct flight *flight)
{
    struct entry_state *state = entries_at(store->entries, flight->entry);

    KVT_ASSERT(flight->waiters.first == NULL && flight->durable_waiters.first == NULL);
    KVT_ASSERT(state->flight == flight && flight->image == NULL);
    state->flight = NULL;
    turns_end(&store->flights, flight->turn);
    store->policy->ops->recheck(store->policy, flight->entry);
    pool_put(&store->flight_pool, flight);
}
