/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shares_look.c - see shares_look.h.
 */
#include "shares_look.h"

#include "commit.h"
#include "store_internal.h"

struct look_call {
    kvt_namespace ns;
    struct shares_look look;
};

/* Its blocks will be brought back to HBM, which may be for others of its own. */
static bool
is_to_resume(const struct kvt_store *store, kvt_namespace ns)
{
    for (const struct wait *wait = store->phases.first; wait != NULL; wait = wait->next) {
        if (wait->up->ops[0].key.namespace_id == ns.id)
            return true;
    }
    return false;
}

static bool
has_room(const struct kvt_store *store)
{
    for (uint32_t place = 0; place < POLICY_NVME; place++) {
        const struct slab *slab = place_slab(store, (enum policy_place)place);

        if (slab != NULL && slab_used(slab) > slab_capacity(slab) / 2)
            return false;
    }
    return true;
}

/* Nobody holds it, and no block builds on it. */
static bool
may_go(struct kvt_store *store, uint32_t number, const struct namespace_state *space)
{
    uint64_t word = atomic_load(&residency_at(store->map, number)->word);

    return word_state(word) == ENTRY_RESIDENT && word_pins(word) == 0 &&
           !pins_hold(store, number) && entries_at(store->entries, number)->child_count == 0 &&
           entries_at(store->entries, number)->flight == NULL &&
           entry_namespace(store, number) == space;
}

/* The loop. */
static bool
look_run(struct kvt_store *store, void *context)
{
    struct look_call *call = context;
    const struct namespace_state *space = namespace_at(store, call->ns.id);

    call->look.is_still = commit_is_at_rest(store) && !work_is_in_flight(store) &&
                          turns_are_idle(&store->work) && turns_are_idle(&store->flights) &&
                          !room_is_wanted(store) && !is_to_resume(store, call->ns);
    call->look.has_room = has_room(store);
    for (uint32_t i = 0; i < residency_number_limit(store->map) && !call->look.may_go_own; i++)
        call->look.may_go_own = may_go(store, i, space);
    for (uint32_t i = 0; i < SHARE_TIER_COUNT; i++) {
        call->look.used_bytes[i] = space->used_bytes[i];
        call->look.share_bytes[i] = space->share_bytes[i];
    }
    return true;
}

struct shares_look
shares_look(kvt_store *store, kvt_namespace ns)
{
    struct look_call call = {.ns = ns};

    loop_call(store, look_run, &call);
    return call.look;
}
