/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shares.h - room that a namespace has for itself in a tier: what others write does not push out
 * its blocks while it has no more than its share.
 *
 * Owns      the shares, and how many bytes of each tier every namespace has (in its
 *           namespace_state). Nothing is counted until the first share is set.
 * Not here  who is evicted among the others (policy.h), how big a tier is.
 * Threads   the loop.
 *
 * A block is held when its namespace has a share of the tier and uses no more than that. Blocks
 * of a namespace that is above its share are like those of one without, until so many have left.
 * Who lets several go at once asks before each of them (reclaim.c, room_lowered()).
 */
#ifndef KVT_ENGINE_SHARES_H
#define KVT_ENGINE_SHARES_H

#include <stdbool.h>
#include <stdint.h>

#include "entries.h"

struct kvt_store;

enum share_tier {
    SHARE_HBM, /* All devices together. */
    SHARE_HOST,
    SHARE_NVME,
    SHARE_TIER_COUNT,
};

enum {
    VAIN_ASKERS_MAX = 8,
};

/* Whose searches for room were in vain in a turn of the loop: another one of theirs would be, too.
 * Without shares anybody's would, and as soon as so many were. */
struct vain_askers {
    uint64_t turn;
    uint32_t count;
    uint32_t ids[VAIN_ASKERS_MAX]; /* Of their namespaces; 0: nobody's. */
};

static inline enum share_tier
share_of_place(enum policy_place place)
{
    return place == POLICY_HOST ? SHARE_HOST : SHARE_HBM;
}

/* shares_add, shares_remove - the entry has `bytes` more, or less, of the tier. Only while
 * store->has_shares. */
void shares_add(struct kvt_store *store, uint32_t number, enum share_tier tier, uint64_t bytes);
void shares_remove(struct kvt_store *store, uint32_t number, enum share_tier tier, uint64_t bytes);

/* shares_hold - the entry's copy there must not go for what namespace `asker` (0: any) wants. */
bool shares_hold(struct kvt_store *store, uint32_t number, enum share_tier tier, uint32_t asker);

/* vain_note - the search of `asker` was in vain in this turn of the loop. vain_is_known - another
 * one need not be made in it. */
void vain_note(const struct kvt_store *store, struct vain_askers *vain, uint32_t asker);
bool vain_is_known(const struct kvt_store *store, const struct vain_askers *vain, uint32_t asker);

#endif /* KVT_ENGINE_SHARES_H */
