/* SPDX-License-Identifier: Apache-2.0 */
/*
 * room.c - slots of HOST and HBM: taking one, evicting for it, and who waits.
 *
 * Order of answers when a slot of HOST is wanted: a free one; the slot of a copy that HBM or NVMe
 * has too; a block that is only in HOST is written to NVMe first (the caller waits) or, when the
 * policy does not admit it, too much waits for NVMe already, or there is no NVMe to write to,
 * dropped. What was promised durability is never dropped. Blocks in HBM keep those above them in
 * their chains in HOST (policy.h): when nothing else can go, these do.
 *
 * When a slot of HBM is wanted: a free one; the slot of a copy that HOST or NVMe has too; a block
 * that is only in HBM is copied down to HOST first (the caller waits), which may need room there;
 * dropped when HOST can have none. When such a copy failed none is begun for a while, and who
 * wants room is told.
 *
 * Threads   the loop.
 */
#include "compact.h"
#include "store_internal.h"

enum {
    VICTIMS_AT_ONCE = 1024,       /* Looked at before other work has its turn. */
    DEMOTE_BYTES = 8 << 20,       /* To NVMe: started at once when room is wanted. */
    LOWER_BYTES = 32 << 20,       /* From HBM: under way at a time ... */
    LOWER_SHARE = 256,            /* ... but no more than this part of the tier ... */
    LOWER_BLOCKS = 4,             /* ... nor fewer than so many blocks. */
    COMPACT_TRIES = 4,            /* That are in vain, in one search. */
    KEPT_LOOKS_AT_ONCE = 1 << 14, /* At entries, for what HBM keeps in HOST. */
    KEPT_CANDIDATES = 8,          /* Of these the least important goes. */
    LINE_LOOKS = 1024,            /* At those who wait: for one of another namespace. */
    TRIM_COUNT = 64,              /* Victims of one step. */
    HBM_HIGH_PERCENT = 95,        /* Of HBM: a share is kept free, so that puts seldom wait. */
    HBM_LOW_PERCENT = 90,
};

/* A walk in pieces that nobody has gone on with for so long begins anew: what could not go then may
 * be able to go now. As long a rest has a device whose copy down failed. */
static const uint64_t walk_ns = UINT64_C(1000) * 1000 * 1000;

enum search {
    SEARCH_FOUND,
    SEARCH_GOES_ON,  /* Victims that were not looked at yet are left. */
    SEARCH_PROMISES, /* No slot yet, but something went or is on its way. */
    SEARCH_ENDED,    /* Nothing can go now. */
};

enum victim_action {
    VICTIM_RELEASED,  /* A slot came free. */
    VICTIM_DEMOTING,  /* It is on its way to the tier below. */
    VICTIM_NEXT,      /* HOST makes room for it. */
    VICTIM_UNTOUCHED, /* Pinned, or waiting for something already. */
};

void
room_open(struct kvt_store *store)
{
    for (uint32_t place = 0; place < POLICY_NVME; place++)
        store->room_hands[place] = (struct room_hand){.entry = ENTRY_NONE};
    store->kept_hand = (struct kept_hand){0};
}

struct slab *
place_slab(const struct kvt_store *store, enum policy_place place)
{
    struct hbm_tier *hbm;

    if (place == POLICY_HOST)
        return store->slab;
    hbm = store->devices.tiers[place - POLICY_HBM];
    return hbm == NULL ? NULL : hbm_slab(hbm);
}

static bool
nvme_takes_writes(const struct kvt_store *store)
{
    uint32_t health = atomic_load_explicit(&store->health, memory_order_relaxed);

    return store->nvme != NULL && (health & (KVT_HEALTH_META_READONLY | KVT_HEALTH_READ_ONLY)) == 0;
}

/* --- Victims ---------------------------------------------------------------------------------- */

/* Start to write a block that is only in HOST. */
static bool
victim_demote(struct kvt_store *store, uint32_t number)
{
    struct flight *flight;

    if (!nvme_takes_writes(store) || store->dirty_bytes >= store->options.dirty_bytes_max)
        return false;
    if (!store->policy->ops->admits(store->policy, number)) {
        fates_refuse(store, number);
        return false;
    }
    flight = flight_create(store, number, FLIGHT_QUEUED);
    if (flight == NULL)
        return false;
    flight->is_demotion = true;
    costs_note_demotion(store, residency_at(store->map, number)->length);
    commit_queue(store, flight, store->now_ns);
    COUNT(store, host_demote_count, 1);
    return true;
}

static enum victim_action
host_victim_evict(struct kvt_store *store, uint32_t number)
{
    if (entry_tiers(store, number) != TIER_HOST) {
        if (!entry_host_release(store, number, KVT_REASON_EVICTED))
            return VICTIM_UNTOUCHED;
        COUNT(store, host_evict_count, 1);
        return VICTIM_RELEASED;
    }
    if (victim_demote(store, number))
        return VICTIM_DEMOTING;
    if (!entry_drop(store, number, false, KVT_REASON_EVICTED))
        return VICTIM_UNTOUCHED;
    COUNT(store, host_drop_count, 1);
    return VICTIM_RELEASED;
}

/* Whether copies down from that place failed just now: tried at once they would fail again, and who
 * wants room would have no answer for as long as the device is so. */
static bool
is_refused(const struct kvt_store *store, enum policy_place place)
{
    return store->now_ns < store->room_hands[place].refused_ns;
}

void
room_refused(struct kvt_store *store, enum policy_place place, enum kvt_status status)
{
    store->room_hands[place].refused_ns = store->now_ns + walk_ns;
    store->room_hands[place].refused_status = status;
}

/* As much may be on its way down for one who wants room. */
static uint64_t
leaving_bytes_max(const struct kvt_store *store, enum policy_place place, uint64_t block_bytes)
{
    uint64_t share = slab_capacity(place_slab(store, place)) / LOWER_SHARE;
    uint64_t least = LOWER_BLOCKS * block_bytes;

    if (place == POLICY_HOST)
        return DEMOTE_BYTES;
    share = share < LOWER_BYTES ? share : LOWER_BYTES;
    return share > least ? share : least;
}

/* A search in HBM begins: it has not asked HOST for anything. */
static void
host_unasked(struct kvt_store *store, enum policy_place place)
{
    store->room_hands[place].lacking_bytes = UINT64_MAX;
    store->room_hands[POLICY_HOST].begun_bytes = 0;
}

/* HOST is not searched again and again for one search in HBM: nor for as much or more as it could
 * not give, nor when it has begun to write as much as it may. What is free there it gives. */
static bool
host_is_asked_out(const struct kvt_store *store, enum policy_place place, uint32_t length)
{
    bool is_asked_out =
        length >= store->room_hands[place].lacking_bytes ||
        store->room_hands[POLICY_HOST].begun_bytes >= leaving_bytes_max(store, POLICY_HOST, length);

    return is_asked_out && !slab_has_room(store->slab, length);
}

static enum victim_action
hbm_victim_evict(struct kvt_store *store, const struct room_want *want, uint32_t number)
{
    uint64_t word =
        atomic_load_explicit(&residency_at(store->map, number)->word, memory_order_relaxed);
    struct room_hand *hand = &store->room_hands[want->place];
    uint32_t length = residency_at(store->map, number)->length;
    enum kvt_status status;

    /* A copy of a lost device, too, is the only one or is not. */
    if (word_tiers(word) != TIER_HBM) {
        if (!entry_hbm_release(store, number, KVT_REASON_EVICTED))
            return VICTIM_UNTOUCHED;
        COUNT(store, hbm_evict_count, 1);
        return VICTIM_RELEASED;
    }
    if (is_refused(store, want->place))
        return VICTIM_UNTOUCHED;
    if (host_is_asked_out(store, want->place, length))
        return want->is_last && !hand->is_cut ? VICTIM_NEXT : VICTIM_UNTOUCHED;
    status = move_down_within(store, number, want->namespace_id, want->is_last);
    if (status == KVT_NOT_READY)
        hand->lacking_bytes = length;
    hand->is_cut = status == KVT_NOT_READY && store->room_hands[POLICY_HOST].is_cut;
    if (status == KVT_OK) {
        entries_at(store->entries, number)->flight->is_demotion = true;
        return VICTIM_DEMOTING;
    }
    if (status == KVT_NOT_READY && want->is_last && !hand->is_cut)
        return VICTIM_NEXT;
    if (status == KVT_NOT_READY || !entry_drop(store, number, false, KVT_REASON_EVICTED))
        return VICTIM_UNTOUCHED;
    COUNT(store, hbm_drop_count, 1);
    return VICTIM_RELEASED;
}

/* It is not pinned, nor others' by their share, nor does it wait for something already. */
static bool
victim_may_go(struct kvt_store *store, const struct room_want *want, uint32_t number)
{
    uint64_t word =
        atomic_load_explicit(&residency_at(store->map, number)->word, memory_order_relaxed);

    return word_pins(word) == 0 && entries_at(store->entries, number)->flight == NULL &&
           !pins_hold(store, number) &&
           !shares_hold(store, number, share_of_place(want->place), want->namespace_id);
}

static enum victim_action
victim_evict(struct kvt_store *store, const struct room_want *want, uint32_t number)
{
    if (!victim_may_go(store, want, number))
        return VICTIM_UNTOUCHED;
    return want->place == POLICY_HOST ? host_victim_evict(store, number)
                                      : hbm_victim_evict(store, want, number);
}

static uint32_t
victim_next(struct kvt_store *store, enum policy_place place, uint32_t cursor)
{
    return store->policy->ops->victim(store->policy, place, cursor);
}

/* A search goes on in the next turn of the loop. The policy has one walk a place: another one would
 * be the end of it, and a search that is cut off each time never comes to its own. */
static bool
walk_goes_on(const struct kvt_store *store, enum policy_place place)
{
    const struct room_hand *hand = &store->room_hands[place];

    return hand->entry != ENTRY_NONE && store->now_ns - hand->looked_ns < walk_ns;
}

/* The first victim of a walk, or of the rest of one that was too long for one search. */
static uint32_t
walk_first(struct kvt_store *store, enum policy_place place)
{
    struct room_hand *hand = &store->room_hands[place];
    uint32_t victim = ENTRY_NONE;

    if (walk_goes_on(store, place))
        victim = victim_next(store, place, hand->entry);
    if (victim != ENTRY_NONE)
        return victim;
    hand->entry = ENTRY_NONE;
    hand->has_found = hand->is_cut = false;
    hand->begin = search_begin(store, place);
    return victim_next(store, place, ENTRY_NONE);
}

/* Slots have come free somewhere: what is free of another size in HOST may be brought together.
 * Lookups can be in the way: it is tried again with what comes free next, if not for ever. */
static bool
slot_win(struct kvt_store *store, const struct room_want *want, uint32_t *stuck_count,
    struct slot *slot_out)
{
    struct slab *slab = place_slab(store, want->place);

    if (!slab_has_room(slab, want->size)) {
        enum compaction compaction = COMPACT_NONE;

        if (want->place == POLICY_HOST && *stuck_count < COMPACT_TRIES)
            compaction = host_compact(store, want->size);
        *stuck_count += compaction == COMPACT_STUCK;
        if (compaction != COMPACT_FREED)
            return false;
    }
    return slab_take(slab, want->size, slot_out) == KVT_OK;
}

/* Evict in the policy's order until the slot can be taken. */
static enum search
room_evict(struct kvt_store *store, const struct room_want *want, struct slot *slot_out)
{
    struct room_hand *hand = &store->room_hands[want->place];
    uint32_t stuck_count = 0;
    uint32_t victim = walk_first(store, want->place);
    uint32_t first = hand->entry;
    uint32_t last = first;
    uint64_t demoting_bytes = want->is_within ? hand->begun_bytes : hand->leaving_bytes;
    bool has_begun = false;
    bool goes_on;

    if (want->place == POLICY_HOST)
        hand->is_cut = false;
    else
        host_unasked(store, want->place);
    if (slot_win(store, want, &stuck_count, slot_out))
        return SEARCH_FOUND;
    for (uint32_t i = 0; i < VICTIMS_AT_ONCE && victim != ENTRY_NONE; i++) {
        uint32_t length = residency_at(store->map, victim)->length;
        enum victim_action action = victim_evict(store, want, victim);

        hand->has_found |= action != VICTIM_UNTOUCHED;
        has_begun |= action != VICTIM_UNTOUCHED;
        if (action == VICTIM_RELEASED && slot_win(store, want, &stuck_count, slot_out))
            return SEARCH_FOUND;
        if (action == VICTIM_DEMOTING)
            demoting_bytes += length;
        if (want->is_within)
            hand->begun_bytes = demoting_bytes;
        if (demoting_bytes >= leaving_bytes_max(store, want->place, want->size))
            return SEARCH_PROMISES;
        /* A parent whose last child went has become a leaf: it may lie behind us. A copy that did
         * not go is still there to go on from. */
        last = action == VICTIM_RELEASED ? first : victim;
        victim = victim_next(store, want->place, last);
    }
    if (!has_begun)
        vain_note(store, &hand->vain, want->namespace_id);
    hand->entry = victim == ENTRY_NONE ? ENTRY_NONE : last;
    hand->looked_ns = store->now_ns; /* However long it takes, it is gone on with. */
    /* At the end of a walk in one piece nothing can go; of one in pieces something may have gone
     * meanwhile. And what HOST takes is known when the search there has come to its end. */
    goes_on = victim != ENTRY_NONE || (first != ENTRY_NONE && hand->has_found);
    if (want->place == POLICY_HOST)
        hand->is_cut = goes_on;
    if (goes_on || hand->is_cut)
        return SEARCH_GOES_ON;
    return hand->has_found ? SEARCH_PROMISES : SEARCH_ENDED;
}

/* The least important of the next few that only blocks in HBM keep in HOST, and that may go;
 * ENTRY_NONE: none of as many as are looked at. */
static uint32_t
kept_find(struct kvt_store *store, const struct room_want *want, uint32_t *look_count)
{
    struct kept_hand *hand = &store->kept_hand;
    uint32_t limit = residency_number_limit(store->map);
    uint32_t best = ENTRY_NONE;
    uint32_t found_count = 0;
    uint64_t least = 0;

    while (*look_count < KEPT_LOOKS_AT_ONCE && hand->vain_count < limit &&
           found_count < KEPT_CANDIDATES) {
        uint32_t number = hand->next < limit ? hand->next : 0;
        uint64_t importance;

        ++*look_count;
        hand->next = number + 1;
        hand->vain_count++;
        if (!entries_is_kept(store->entries, number) || !victim_may_go(store, want, number))
            continue;
        importance = store->policy->ops->importance(store->policy, number);
        if (best == ENTRY_NONE || importance < least) {
            best = number;
            least = importance;
        }
        found_count++;
    }
    return best;
}

/* Nothing of HOST is a victim; but blocks in HBM may be what keeps blocks there. Of these some go,
 * by a hand that goes round over the entries: the policy's walk of HBM is for those who want room
 * there. One look is as long as it may be, and the next goes on behind it; when a whole round was
 * in vain, there is none for a while. */
static enum search
kept_evict(struct kvt_store *store, const struct room_want *want, struct slot *slot_out)
{
    struct kept_hand *hand = &store->kept_hand;
    uint32_t look_count = 0;
    uint32_t stuck_count = 0;
    uint32_t demoting = ENTRY_NONE; /* The first one. */
    uint64_t demoting_bytes = 0;
    bool has_released = false;
    uint32_t number;

    if (store->now_ns < hand->vain_until_ns)
        return SEARCH_ENDED;
    if (store->now_ns - hand->looked_ns >= walk_ns)
        hand->vain_count = 0;
    hand->looked_ns = store->now_ns;
    while (demoting_bytes < DEMOTE_BYTES &&
           (number = kept_find(store, want, &look_count)) != ENTRY_NONE) {
        uint32_t length = residency_at(store->map, number)->length;
        enum victim_action action = victim_evict(store, want, number);

        if (action == VICTIM_UNTOUCHED)
            continue;
        hand->vain_count = 0;
        if (action == VICTIM_DEMOTING) {
            demoting = demoting == ENTRY_NONE ? number : demoting;
            demoting_bytes += length;
            continue;
        }
        has_released = true; /* And its parent may have become a victim. */
        if (slot_win(store, want, &stuck_count, slot_out))
            return SEARCH_FOUND;
    }
    if (demoting != ENTRY_NONE)
        hand->next = demoting; /* When it is written it goes without another round. */
    if (has_released)
        return SEARCH_GOES_ON;
    if (demoting != ENTRY_NONE)
        return SEARCH_PROMISES;
    if (hand->vain_count < residency_number_limit(store->map))
        return SEARCH_GOES_ON;
    hand->vain_count = 0;
    hand->vain_until_ns = store->now_ns + walk_ns;
    return SEARCH_ENDED;
}

/* --- Slots ------------------------------------------------------------------------------------ */

bool
room_will_come(struct kvt_store *store)
{
    /* What HBM waits for may itself wait for HOST. */
    if (!commit_is_idle(store))
        commit_hurry_all(store);
    /* The last pin of a block that has left the map is gone: so are its slots, soon. */
    return work_may_make_room(store) || !turns_are_idle(&store->flights) ||
           residency_has_released(store->map);
}

/* A search found nothing. */
static bool
want_is_over(struct kvt_store *store, const struct room_want *want)
{
    if (want->is_within)
        return want->is_last;
    return patience_ends(store, want->patience, want->place, store->room_hands[want->place].begin);
}

/* Nothing goes, and nothing will. */
static enum kvt_status
room_refuse(const struct kvt_store *store, const struct room_want *want)
{
    uint32_t device = (uint32_t)(want->place - POLICY_HBM);

    if (want->place != POLICY_HOST && is_refused(store, want->place))
        return failure_set(
            store->room_hands[want->place].refused_status == KVT_E_NOMEM ? KVT_E_NOMEM : KVT_E_GPU,
            0, "device %u failed to copy a block down to HOST, which was to make room", device);
    return failure_set(KVT_E_NOSPC, 0,
        "every slot of %s is leased, pinned, in use, or others' by their share; %llu bytes were "
        "wanted",
        want->place == POLICY_HOST ? "HOST" : "HBM", (unsigned long long)want->size);
}

/* No slot is free. */
static enum kvt_status
room_make(struct kvt_store *store, struct room_want want, struct slot *slot_out)
{
    enum search search;
    bool is_coming = false;

    /* Others who can wait in line would search in vain, too, and keep the loop from other work. */
    if (want.is_in_line &&
        vain_is_known(store, &store->room_hands[want.place].vain, want.namespace_id)) {
        store->room_changed = true;
        return KVT_NOT_READY;
    }
    if (!want.is_within)
        want.is_last = patience_is_last(store, want.patience, want.place);
    search = room_evict(store, &want, slot_out);
    if (search == SEARCH_PROMISES) {
        if (want.patience != NULL)
            want.patience->is_begun = false;
        is_coming = room_will_come(store);
        if (!is_coming)
            search = SEARCH_ENDED; /* What went made no room. */
    } else if (search == SEARCH_ENDED) {
        is_coming = room_will_come(store) && !want_is_over(store, &want);
    }
    if (search == SEARCH_ENDED && !is_coming && want.place == POLICY_HOST && !want.is_within) {
        search = kept_evict(store, &want, slot_out);
        is_coming = search == SEARCH_PROMISES;
        if (is_coming && want.patience != NULL)
            want.patience->is_begun = false;
    }
    if (search == SEARCH_FOUND)
        return KVT_OK;
    /* Not for the sake of a share that is kept free: that would be sought in each turn. */
    if (search == SEARCH_GOES_ON && !want.is_within)
        store->room_changed = true;
    return is_coming || search == SEARCH_GOES_ON ? KVT_NOT_READY : room_refuse(store, &want);
}

enum kvt_status
room_take(struct kvt_store *store, const struct room_want *want, struct slot *slot_out)
{
    uint32_t device = (uint32_t)(want->place - POLICY_HBM);
    enum kvt_status status;

    if (want->place != POLICY_HOST && device_is_lost(store, device))
        return failure_set(KVT_E_GPU, 0, "device %u is lost", device);
    status = slab_take(place_slab(store, want->place), want->size, slot_out);
    if (status == KVT_E_NOSPC)
        status = room_make(store, *want, slot_out);
    if (status == KVT_OK)
        store->room_hands[want->place].given_count++;
    return status;
}

static void
slot_free(struct kvt_store *store, enum policy_place place, struct slot slot)
{
    bool was_taken = slab_put(place_slab(store, place), slot);

    KVT_ASSERT(was_taken);
    (void)was_taken;
}

void
room_untake(struct kvt_store *store, enum policy_place place, struct slot slot)
{
    slot_free(store, place, slot);
    store->room_hands[place].given_count--;
}

void
room_put(struct kvt_store *store, enum policy_place place, struct slot slot)
{
    slot_free(store, place, slot);
    store->room_changed = true;
}

/* --- Waiting ---------------------------------------------------------------------------------- */

void
room_wait(struct kvt_store *store, enum policy_place place, struct op *op)
{
    struct op_list *waiters = &store->room_waiters[place];

    if (waiters->first != NULL)
        patience_join(store, &op->patience, &waiters->last->patience);
    op_list_add(waiters, op);
}

bool
room_is_wanted(const struct kvt_store *store)
{
    for (uint32_t place = 0; place < POLICY_NVME; place++) {
        if (store->room_waiters[place].first != NULL)
            return true;
    }
    return false;
}

bool
room_line_has(const struct kvt_store *store, enum policy_place place, uint32_t asker)
{
    const struct op *op = store->room_waiters[place].first;

    for (uint32_t i = 0; store->has_shares && i < LINE_LOOKS && op != NULL; i++, op = op->next) {
        if (op->key.namespace_id == asker)
            return true;
    }
    return op != NULL;
}

/* The least that room_trim() leaves. */
static uint64_t
low_mark(const struct kvt_store *store, enum policy_place place)
{
    uint64_t percent = place == POLICY_HOST ? store->options.host_low_percent : HBM_LOW_PERCENT;

    return slab_capacity(place_slab(store, place)) / 100 * percent;
}

void
room_lowered(struct kvt_store *store, enum policy_place place, uint32_t number, uint32_t asker)
{
    const struct slab *slab = place_slab(store, place);
    bool is_wanted =
        store->room_waiters[place].first != NULL || slab_used(slab) > low_mark(store, place);

    if (is_wanted && entries_has_copy(store->entries, place, number) &&
        entries_is_leaf(store->entries, place, number) &&
        !shares_hold(store, number, share_of_place(place), asker) &&
        entry_hbm_release(store, number, KVT_REASON_EVICTED))
        COUNT(store, hbm_evict_count, 1);
}

/* Keep a share free, so that puts seldom wait. */
static void
room_trim(struct kvt_store *store, enum policy_place place)
{
    bool is_host = place == POLICY_HOST;
    struct slab *slab = place_slab(store, place);
    uint64_t percent = slab_capacity(slab) / 100;
    uint64_t high = percent * (is_host ? store->options.host_high_percent : HBM_HIGH_PERCENT);
    uint64_t low = low_mark(store, place);
    uint64_t leaving = is_host ? store->dirty_bytes / 2 : 0;
    uint32_t victim;

    if (slab_used(slab) + leaving <= high || walk_goes_on(store, place))
        return;
    victim = victim_next(store, place, ENTRY_NONE);
    if (!is_host)
        host_unasked(store, place);
    for (uint32_t i = 0; i < TRIM_COUNT && victim != ENTRY_NONE; i++) {
        uint64_t lowering = store->room_hands[place].leaving_bytes;
        uint32_t next;

        /* With more on its way the ends of many chains would go, instead of one chain to its root:
         * a parent is no victim before its child has left. */
        if (slab_used(slab) <= low + lowering ||
            lowering >= leaving_bytes_max(store, place, residency_at(store->map, victim)->length))
            break;
        next = victim_next(store, place, victim);
        (void)victim_evict(store, &(struct room_want){.place = place}, victim);
        victim = next;
        if (victim != ENTRY_NONE && !entries_has_copy(store->entries, place, victim))
            break;
    }
}

/* The oldest still has no room: the others keep their places behind it. As whoever is impatient
 * stands behind all who are not, their patience is looked at no farther than to the first such. */
static void
line_keep(struct kvt_store *store, enum policy_place place, struct op_list *others)
{
    struct op_list *line = &store->room_waiters[place];

    while (
        others->first != NULL && line->last->patience.is_begun && !others->first->patience.is_begun)
        room_wait(store, place, op_list_take(others));
    op_list_append(line, others);
}

/* Those who wait are tried again, up to the oldest of each namespace that still has no room: what a
 * share keeps from one may go for another. */
static void
line_try(struct kvt_store *store, enum policy_place place, struct op_list *waiters)
{
    const struct op_list *line = &store->room_waiters[place];
    struct vain_askers waiting = {0};

    for (uint32_t i = 0; i < LINE_LOOKS && waiters->first != NULL; i++) {
        uint32_t asker = waiters->first->key.namespace_id;
        const struct op *last = line->last;

        if (vain_is_known(store, &waiting, asker)) {
            if (!store->has_shares || waiting.count == VAIN_ASKERS_MAX)
                return;
            room_wait(store, place, op_list_take(waiters));
            continue;
        }
        op_begin(store, op_list_take(waiters));
        if (line->last != last)
            vain_note(store, &waiting, asker);
        else
            i = 0; /* It had room, or was refused. */
    }
}

static void
place_step(struct kvt_store *store, enum policy_place place)
{
    struct op_list waiters = store->room_waiters[place];

    store->room_waiters[place] = (struct op_list){NULL, NULL};
    store->room_hands[place].vain.turn = 0; /* The oldest looks, whoever has come since. */
    if (place == POLICY_HOST)
        store->map_vain.turn = 0; /* Whoever waits for room in the map stands in that line. */
    line_try(store, place, &waiters);
    if (waiters.first != NULL)
        line_keep(store, place, &waiters);
    if (store->room_waiters[place].first == NULL && !store->is_draining)
        room_trim(store, place);
}

bool
room_step(struct kvt_store *store)
{
    bool is_nvme_due = nvme_room_step(store);

    /* A reclaim that found too much pinned may find less of it now. */
    if (is_nvme_due)
        commit_unstall(store);
    if (!store->room_changed)
        return is_nvme_due;
    store->room_changed = false;
    for (uint32_t i = 0; i < POLICY_NVME; i++) {
        if (place_slab(store, (enum policy_place)i) != NULL)
            place_step(store, (enum policy_place)i);
    }
    return true;
}
