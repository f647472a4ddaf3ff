/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shares_look.h - what a namespace has of each tier, and its shares, as the store counts them
 * (store_audit.h says that it counts right).
 */
#ifndef KVT_TESTS_SHARES_LOOK_H
#define KVT_TESTS_SHARES_LOOK_H

#include <stdbool.h>
#include <stdint.h>

#include "kvtier/kvtier.h"
#include "shares.h"

struct shares_look {
    bool is_still;   /* Nothing is under way that the namespace may have asked for. */
    bool has_room;   /* No tier in memory is half full. */
    bool may_go_own; /* A block of it may leave the map for another of it. */
    uint64_t used_bytes[SHARE_TIER_COUNT], share_bytes[SHARE_TIER_COUNT];
};

/* shares_look - on the store's loop. */
struct shares_look shares_look(kvt_store *store, kvt_namespace ns);

#endif /* KVT_TESTS_SHARES_LOOK_H */
