/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compact.c - see compact.h.
 */
#include "compact.h"

#include "store_internal.h"

enum {
    SUPERBLOCKS_AT_ONCE = 64, /* Looked at for one whose copies can all be moved. */
    MOVE_BYTES = 8 << 20,     /* In one step of the loop: a millisecond or two. */
};

static bool
superblock_is_movable(const struct kvt_store *store, uint32_t superblock)
{
    uint32_t cursor = 0;
    uint32_t owner;
    struct slot slot;

    while (slab_taken_next(store->slab, superblock, &cursor, &slot, &owner)) {
        if (owner == UINT32_MAX || !entry_host_is_movable(store, owner, slot))
            return false;
    }
    return true;
}

/* False: what is left of it cannot be moved. */
static bool
superblock_move(struct kvt_store *store, uint32_t superblock)
{
    uint64_t moved_bytes = 0;
    uint32_t cursor = 0;
    uint32_t owner;
    struct slot slot;

    while (moved_bytes < MOVE_BYTES &&
           slab_taken_next(store->slab, superblock, &cursor, &slot, &owner)) {
        if (!entry_host_move(store, owner))
            return false;
        moved_bytes += slab_slot_bytes(store->slab, slot);
    }
    return true;
}

enum compaction
host_compact(struct kvt_store *store, size_t size)
{
    for (uint32_t i = 0; i < SUPERBLOCKS_AT_ONCE; i++) {
        uint32_t superblock = slab_emptiable(store->slab, size, store->compact_next);

        if (superblock == UINT32_MAX)
            return i == 0 ? COMPACT_NONE : COMPACT_STUCK;
        /* The next step goes on with it. */
        store->compact_next = superblock;
        if (superblock_is_movable(store, superblock) && superblock_move(store, superblock))
            return slab_has_room(store->slab, size) ? COMPACT_FREED : COMPACT_GOES_ON;
        store->compact_next++;
    }
    return COMPACT_STUCK;
}
