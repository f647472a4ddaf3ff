/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patience.c - see patience.h.
 */
#include "patience.h"

#include "store_internal.h"
#include "victim.h"

enum {
    ROUNDS = 3,    /* A copy down, a write, a copy up. */
    AGAIN_MAX = 8, /* Others have that often been faster. */
};

static const uint64_t nvme_again_ns = UINT64_C(1000) * 1000 * 1000;

/* Turns go on as far as they can, but no farther than somebody waits for. */
static bool
turns_reach(struct turns *turns, uint32_t until)
{
    while ((int32_t)(until - turns->now) > 0 && turns->counts[(turns->now + 1) & 1] == 0)
        turns->now++;
    return (int32_t)(until - turns->now) <= 0;
}

/* How often somebody was given room in the place. Of NVMe: or a segment became free. */
static uint32_t
given_count(const struct kvt_store *store, uint32_t place)
{
    const struct counters *counters = &store->counters;

    if (place == PATIENCE_MAP)
        return store->map_hand.given_count;
    if (place != POLICY_NVME)
        return store->room_hands[place].given_count;
    return (uint32_t)(atomic_load_explicit(&counters->batch_count, memory_order_relaxed) +
                      atomic_load_explicit(&counters->segment_recycle_count, memory_order_relaxed));
}

/* --- Rounds ----------------------------------------------------------------------------------- */

/* What waits for room on NVMe has flights itself: these are waited for in memory alone. */
static void
round_begin(const struct kvt_store *store, struct patience *patience, uint8_t round)
{
    patience->round = round;
    patience->until = search_begin(store);
    patience->until.work += 2;
    if (patience->place != POLICY_NVME)
        patience->until.flights += 2;
}

static bool
round_is_over(struct kvt_store *store, const struct patience *patience)
{
    bool is_work_over = turns_reach(&store->work, patience->until.work);

    return turns_reach(&store->flights, patience->until.flights) && is_work_over;
}

/* Others were given room, and that does not count yet as there being none. */
static bool
others_were_faster(const struct kvt_store *store, const struct patience *patience)
{
    return patience->again_count < AGAIN_MAX &&
           patience->given_count != given_count(store, patience->place);
}

struct search_begin
search_begin(const struct kvt_store *store)
{
    return (struct search_begin){.work = store->work.now, .flights = store->flights.now};
}

bool
patience_is_last(struct kvt_store *store, const struct patience *patience, uint32_t place)
{
    return patience != NULL && patience->place == place && patience->round == ROUNDS &&
           round_is_over(store, patience) && !others_were_faster(store, patience);
}

bool
patience_ends(struct kvt_store *store, struct patience *patience, uint32_t place,
    const struct search_begin *begin)
{
    if (patience == NULL)
        return false;
    if (patience->round == 0 || patience->place != place) {
        *patience =
            (struct patience){.place = (uint8_t)place, .given_count = given_count(store, place)};
        round_begin(store, patience, 1);
        return false;
    }
    if (!round_is_over(store, patience))
        return false;
    if (patience->round < ROUNDS) {
        round_begin(store, patience, patience->round + 1);
        return false;
    }
    if (others_were_faster(store, patience)) {
        patience->again_count++;
        patience->given_count = given_count(store, place);
        round_begin(store, patience, 1);
        return false;
    }
    if ((int32_t)(patience->until.work - begin->work) <= 0 &&
        (int32_t)(patience->until.flights - begin->flights) <= 0)
        return true;
    /* It passed over some before all had ended that had to. */
    store->room_changed = true;
    return false;
}

/* --- NVMe ------------------------------------------------------------------------------------- */

bool
nvme_room_waits(struct kvt_store *store)
{
    struct nvme_wait *wait = &store->nvme_wait;

    wait->is_waiting = work_may_make_room(store) &&
                       !patience_ends(store, &wait->patience, POLICY_NVME, &wait->begin);
    wait->again_ns = store->now_ns + nvme_again_ns;
    if (wait->is_waiting)
        return true;
    wait->patience.round = 0;
    victim_spare_none(store);
    return false;
}

/* The rounds go by without a search in each. */
static bool
nvme_search_is_due(struct kvt_store *store)
{
    struct patience *patience = &store->nvme_wait.patience;

    while (patience->round < ROUNDS && round_is_over(store, patience))
        round_begin(store, patience, patience->round + 1);
    return store->now_ns >= store->nvme_wait.again_ns ||
           (patience->round == ROUNDS && round_is_over(store, patience));
}

bool
nvme_room_step(struct kvt_store *store)
{
    struct nvme_wait *wait = &store->nvme_wait;

    if (wait->patience.round > 0 && commit_is_idle(store))
        wait->patience.round = 0; /* Nobody waits any more. */
    if (!reclaim_is_idle(store) || (wait->is_waiting && !nvme_search_is_due(store)))
        return false;
    if (!wait->is_waiting)
        return store->room_changed;
    wait->is_waiting = false;
    wait->begin = search_begin(store);
    /* They have pins, which may have been what kept a segment from being reclaimed. */
    victim_spare_none(store);
    return true;
}

uint64_t
nvme_room_next_ns(const struct kvt_store *store)
{
    const struct nvme_wait *wait = &store->nvme_wait;

    return wait->is_waiting && reclaim_is_idle(store) ? wait->again_ns : UINT64_MAX;
}
