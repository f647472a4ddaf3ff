/* SPDX-License-Identifier: Apache-2.0 */
/*
 * map_room.c - room in the map: when it holds entry_count_max blocks, one leaves for each new one.
 *
 * A hand of each namespace that asks goes round over the entries. Of the next few that may go, the
 * one that is least important to the policy leaves the store, from whatever tiers it is in; a copy
 * on NVMe is killed. Only ends of chains may go: blocks that no other in the map builds on. (An
 * order of all blocks would take more than the 64 bytes an entry that are promised, and the policy
 * has one of memory only.)
 *
 * An open may find more blocks than that on NVMe: fewer were asked for, or kills were not durable
 * yet. None is lost for it. Then two leave for each that comes, until the bound holds.
 *
 * Threads   the loop.
 */
#include "store_internal.h"

enum {
    CANDIDATES = 8,       /* Of these the least important goes. */
    LOOKS_AT_ONCE = 1024, /* At entries, before other work has its turn. */
};

static bool
is_full(const struct kvt_store *store)
{
    return residency_count(store->map) >= store->options.entry_count_max;
}

static bool
is_held_by_share(struct kvt_store *store, uint32_t number, unsigned tiers, uint32_t asker)
{
    return ((tiers & TIER_HBM) != 0 && shares_hold(store, number, SHARE_HBM, asker)) ||
           ((tiers & TIER_HOST) != 0 && shares_hold(store, number, SHARE_HOST, asker)) ||
           ((tiers & TIER_NVME) != 0 && shares_hold(store, number, SHARE_NVME, asker));
}

/* What is under way with a block has a pin of it, or a flight. */
static bool
may_go(struct kvt_store *store, uint32_t number, uint32_t asker)
{
    uint64_t word =
        atomic_load_explicit(&residency_at(store->map, number)->word, memory_order_relaxed);
    const struct entry_state *state;

    if (word_state(word) != ENTRY_RESIDENT || word_pins(word) != 0)
        return false;
    state = entries_at(store->entries, number);
    return state->child_count == 0 && state->flight == NULL && !pins_hold(store, number) &&
           !is_held_by_share(store, number, word_tiers(word), asker);
}

/* The least important of the next few that may go; ENTRY_NONE: none of so many may. */
static uint32_t
candidate_find(struct kvt_store *store, struct map_hand *hand, uint32_t keep, uint32_t asker)
{
    uint32_t limit = residency_number_limit(store->map);
    uint32_t best = ENTRY_NONE;
    uint32_t found_count = 0;
    uint64_t least = 0;

    for (uint32_t i = 0; i < LOOKS_AT_ONCE && i < limit && found_count < CANDIDATES; i++) {
        uint32_t number = hand->next < limit ? hand->next : 0;
        uint64_t importance;

        hand->next = number + 1;
        hand->vain_count++;
        if (number == keep || !may_go(store, number, asker))
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

/* False: a reader was faster, or there is no memory to remember the kill. */
static bool
evict(struct kvt_store *store, uint32_t number)
{
    struct commit_kill kill = entry_kill(store, number, NULL);
    bool has_nvme = entries_has_copy(store->entries, POLICY_NVME, number);

    if (has_nvme && commit_kill_reserve(store) != KVT_OK)
        return false;
    if (!entry_drop(store, number, false, KVT_REASON_EVICTED))
        return false;
    if (has_nvme)
        (void)commit_kill(store, &kill); /* Room was reserved. */
    COUNT(store, map_evict_count, 1);
    return true;
}

enum kvt_status
map_room_make(struct kvt_store *store, uint32_t keep, uint32_t asker, struct patience *patience)
{
    struct map_hand *hand = &namespace_at(store, asker)->map_hand;
    uint32_t evicted_count = 0;

    /* Others who wait would look in vain, too, and keep the loop from other work. */
    if (is_full(store) && vain_is_known(store, &store->map_vain, asker)) {
        store->room_changed = true;
        return KVT_NOT_READY;
    }
    if (hand->vain_count == 0) {
        (void)patience_is_last(store, patience, PATIENCE_MAP); /* Its rounds may be over. */
        hand->begin = search_begin(store, PATIENCE_MAP);
    }
    while (is_full(store) && evicted_count < 2) {
        uint32_t number = candidate_find(store, hand, keep, asker);

        if (number == ENTRY_NONE || !evict(store, number))
            break;
        evicted_count++;
        hand->vain_count = 0;
    }
    if (evicted_count > 0 || !is_full(store)) {
        hand->vain_count = 0; /* What it has passed over may go when one is sought again. */
        store->map_given_count++;
        return KVT_OK;
    }
    vain_note(store, &store->map_vain, asker);
    if (hand->vain_count < residency_number_limit(store->map)) {
        store->room_changed = true;
        return KVT_NOT_READY;
    }
    hand->vain_count = 0;
    if (room_will_come(store) && !patience_ends(store, patience, PATIENCE_MAP, hand->begin))
        return KVT_NOT_READY;
    return failure_set(KVT_E_NOSPC, 0,
        "the map holds %llu blocks (entry_count_max is %llu): all are leased, pinned, in use, "
        "built "
        "on by others, or others' by their share",
        (unsigned long long)residency_count(store->map),
        (unsigned long long)store->options.entry_count_max);
}
