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
turns_reach(struct turns *turns, uint64_t until)
{
    while (turns->now < until && turns->counts[(turns->now + 1) & 1] == 0)
        turns->now++;
    return turns->now >= until;
}

/* How often somebody was given room in the place. Of NVMe: or a segment became free. */
static uint32_t
given_count(const struct kvt_store *store, uint32_t place)
{
    const struct counters *counters = &store->counters;

    if (place == PATIENCE_MAP)
        return store->map_given_count;
    if (place != POLICY_NVME)
        return store->room_hands[place].given_count;
    return (uint32_t)(atomic_load_explicit(&counters->batch_count, memory_order_relaxed) +
                      atomic_load_explicit(&counters->segment_recycle_count, memory_order_relaxed));
}

/* --- Rounds ----------------------------------------------------------------------------------- */

static struct rounds *
rounds_of(struct kvt_store *store, uint32_t place)
{
    return place == POLICY_NVME ? &store->nvme_wait.rounds : &store->rounds;
}

/* What waits for room on NVMe has flights itself: these are waited for in memory alone. */
static void
round_begin(const struct kvt_store *store, struct rounds *rounds)
{
    rounds->now++;
    rounds->work_until = store->work.now + 2;
    rounds->flights_until = store->flights.now + (rounds == &store->rounds ? 2 : 0);
}

static bool
rounds_reach(struct kvt_store *store, uint32_t place, uint64_t until)
{
    struct rounds *rounds = rounds_of(store, place);

    while (rounds->now < until) {
        bool is_work_over = turns_reach(&store->work, rounds->work_until);

        if (!turns_reach(&store->flights, rounds->flights_until) || !is_work_over)
            return false;
        round_begin(store, rounds);
    }
    return true;
}

/* From now on; the present round counts if it begins now. */
static void
patience_begin(struct kvt_store *store, struct patience *patience)
{
    struct rounds *rounds = rounds_of(store, patience->place);

    if (rounds->wanted <= rounds->now)
        round_begin(store, rounds);
    patience->is_begun = true;
    patience->given_count = given_count(store, patience->place);
    patience->until = rounds->now + ROUNDS;
    if (store->work.now + 2 != rounds->work_until ||
        (patience->place != POLICY_NVME && store->flights.now + 2 != rounds->flights_until))
        patience->until++;
    rounds->wanted = patience->until;
}

/* Others were given room, and that does not count yet as there being none. */
static bool
others_were_faster(const struct kvt_store *store, const struct patience *patience)
{
    return patience->again_count < AGAIN_MAX &&
           patience->given_count != given_count(store, patience->place);
}

uint64_t
search_begin(struct kvt_store *store, uint32_t place)
{
    return rounds_of(store, place)->now;
}

void
patience_join(struct kvt_store *store, struct patience *patience, const struct patience *ahead)
{
    if (patience->is_begun || !ahead->is_begun)
        return;
    *patience = (struct patience){.place = ahead->place};
    patience_begin(store, patience);
}

bool
patience_is_last(struct kvt_store *store, const struct patience *patience, uint32_t place)
{
    return patience != NULL && patience->is_begun && patience->place == place &&
           rounds_reach(store, place, patience->until) && !others_were_faster(store, patience);
}

bool
patience_ends(struct kvt_store *store, struct patience *patience, uint32_t place, uint64_t begin)
{
    if (patience == NULL)
        return false;
    if (!patience->is_begun || patience->place != place) {
        *patience = (struct patience){.place = (uint8_t)place};
        patience_begin(store, patience);
        return false;
    }
    if (!rounds_reach(store, place, patience->until))
        return false;
    if (others_were_faster(store, patience)) {
        patience->again_count++;
        patience_begin(store, patience);
        return false;
    }
    if (patience->until <= begin)
        return true;
    /* It passed over some before all had ended that had to. */
    store->room_changed = true;
    return false;
}

/* --- NVMe ------------------------------------------------------------------------------------- */

void
nvme_room_lacks(struct kvt_store *store)
{
    struct nvme_wait *wait = &store->nvme_wait;

    if (wait->is_lacking)
        return;
    wait->is_lacking = true;
    wait->is_whole = !victim_is_any_passed_over(store);
}

void
nvme_room_found(struct kvt_store *store)
{
    store->nvme_wait.is_lacking = false;
}

bool
nvme_room_waits(struct kvt_store *store)
{
    struct nvme_wait *wait = &store->nvme_wait;

    wait->is_waiting = work_may_make_room(store) &&
                       !patience_ends(store, &wait->patience, POLICY_NVME, wait->begin);
    wait->again_ns = store->now_ns + nvme_again_ns;
    if (wait->is_waiting)
        return true;
    wait->patience.is_begun = false;
    victim_spare_none(store);
    return false;
}

bool
nvme_room_again(struct kvt_store *store)
{
    bool is_due = !store->nvme_wait.is_whole;

    store->nvme_wait.is_whole = true;
    return is_due;
}

/* The rounds go by without a search in each. */
static bool
nvme_search_is_due(struct kvt_store *store)
{
    const struct nvme_wait *wait = &store->nvme_wait;

    return (wait->patience.is_begun && rounds_reach(store, POLICY_NVME, wait->patience.until)) ||
           store->now_ns >= wait->again_ns;
}

bool
nvme_room_step(struct kvt_store *store)
{
    struct nvme_wait *wait = &store->nvme_wait;

    if ((wait->patience.is_begun || wait->is_lacking) && commit_is_at_rest(store)) {
        wait->patience.is_begun = false; /* Nobody waits any more. */
        nvme_room_found(store);
    }
    if (!reclaim_is_idle(store) || (wait->is_waiting && !nvme_search_is_due(store)))
        return false;
    if (!wait->is_waiting)
        return store->room_changed;
    wait->is_waiting = false;
    wait->begin = search_begin(store, POLICY_NVME);
    /* They have pins, which may have been what kept a segment from being reclaimed. */
    victim_spare_none(store);
    wait->is_whole = true;
    return true;
}

uint64_t
nvme_room_next_ns(const struct kvt_store *store)
{
    const struct nvme_wait *wait = &store->nvme_wait;

    return wait->is_waiting && reclaim_is_idle(store) ? wait->again_ns : UINT64_MAX;
}
