/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compact.c - see compact.h.
 */
#include "compact.h"

#include "store_internal.h"

enum {
    SLOTS_AT_ONCE = 1 << 15, /* Looked at for a superblock whose copies can all be moved: at least
                              * two superblocks of 64 MiB. */
};

/* *slot_count goes down by the slots that were looked at. */
static bool
superblock_is_movable(const struct kvt_store *store, uint32_t superblock, uint32_t *slot_count)
{
    uint32_t cursor = 0;
    uint32_t owner;
    struct slot slot;

    while (slab_taken_next(store->slab, superblock, &cursor, &slot, &owner)) {
        *slot_count -= *slot_count > 0;
        if (owner == UINT32_MAX || !entry_host_is_movable(store, owner, slot))
            return false;
    }
    return true;
}

/*
 * All of it at once, up to 64 MiB: 10 ms or some more, for as many bytes of blocks that come. In
 * pieces, others would take the free slots that it goes to, and those that it leaves. What there is
 * no memory for stays, and so does the slot that somebody has pinned since, until he is done.
 */
static void
superblock_move(struct kvt_store *store, uint32_t superblock)
{
    const struct hidden_copy *first = store->hidden.first;
    uint32_t cursor = 0;
    uint32_t owner;
    struct slot slot;

    while (slab_taken_next(store->slab, superblock, &cursor, &slot, &owner) &&
           entry_host_move(store, owner))
        ;
    hidden_newest_free(store, first);
}

enum compaction
host_compact(struct kvt_store *store, size_t size)
{
    uint32_t slot_count = SLOTS_AT_ONCE;
    uint32_t first = slab_emptiable(store->slab, size, store->compact_next);
    uint32_t superblock = first;

    if (first == UINT32_MAX)
        return COMPACT_NONE;
    do {
        store->compact_next = superblock + 1;
        if (superblock_is_movable(store, superblock, &slot_count)) {
            superblock_move(store, superblock);
            return slab_has_room(store->slab, size) ? COMPACT_FREED : COMPACT_STUCK;
        }
        superblock = slab_emptiable(store->slab, size, store->compact_next);
    } while (slot_count > 0 && superblock != first);
    return COMPACT_STUCK;
}
