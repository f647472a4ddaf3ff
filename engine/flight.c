/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flight.c - making and ending flights.
 */
#include "store_internal.h"

struct flight *
flight_create(struct kvt_store *store, uint32_t entry, enum flight_state state)
{
    struct flight *flight = env_take(&store->env, sizeof(*flight));

    if (flight == NULL) {
        (void)failure_set(KVT_E_NOMEM, 0, "no memory for a block's work");
        return NULL;
    }
    flight->state = state;
    flight->entry = entry;
    KVT_ASSERT(policy_at(store->policy, entry)->flight == NULL);
    policy_at(store->policy, entry)->flight = flight;
    return flight;
}

void
flight_destroy(struct kvt_store *store, struct flight *flight)
{
    struct entry_state *state = policy_at(store->policy, flight->entry);

    KVT_ASSERT(flight->waiters.first == NULL && flight->durable_waiters.first == NULL);
    KVT_ASSERT(state->flight == flight);
    state->flight = NULL;
    env_put(&store->env, flight, sizeof(*flight));
}
