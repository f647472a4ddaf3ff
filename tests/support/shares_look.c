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

/* The loop. */
static bool
look_run(struct kvt_store *store, void *context)
{
    struct look_call *call = context;
    const struct namespace_state *space = namespace_at(store, call->ns.id);

    call->look.is_still = commit_is_at_rest(store) && !work_is_in_flight(store) &&
                          turns_are_idle(&store->work) && turns_are_idle(&store->flights) &&
                          !room_is_wanted(store) && !is_to_resume(store, call->ns);
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
