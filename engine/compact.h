/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compact.h - a superblock of HOST that serves one size of slots becomes free for another.
 *
 * Eviction goes in the policy's order, and leaves free slots all over HOST. As soon as a size has
 * as many of them as a superblock has slots, what is in one superblock is moved to the free slots
 * of others: so another size costs as many of the least important blocks as fill a superblock, and
 * not most of HOST.
 *
 * Threads   the loop.
 */
#ifndef KVT_ENGINE_COMPACT_H
#define KVT_ENGINE_COMPACT_H

#include <stddef.h>

struct kvt_store;

enum compaction {
    COMPACT_NONE,  /* No other size has so many free slots. */
    COMPACT_STUCK, /* Somebody is at what would have to be moved. */
    COMPACT_FREED, /* A slot of that size can be taken. */
};

/* host_compact - for a slot of `size` bytes, for which HOST has no room. */
enum compaction host_compact(struct kvt_store *store, size_t size);

#endif /* KVT_ENGINE_COMPACT_H */
