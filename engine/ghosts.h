/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ghosts.h - fingerprints of what left lately, in a table of bounded size: the ghost queue of a
 * policy (S3-FIFO).
 *
 * A ghost is 8 bytes: part of the fingerprint, and its turn among all ghosts. The queue has no
 * links: who asks says how many turns back still count. A bucket that is full loses its oldest,
 * which is rare while the table has room for twice as many as count.
 *
 * Threads   the loop only.
 */
#ifndef KVT_ENGINE_GHOSTS_H
#define KVT_ENGINE_GHOSTS_H

#include "env.h"

struct ghost_bucket;

/* All zero: empty, without memory. */
struct ghosts {
    struct ghost_bucket *buckets;
    uint32_t bucket_count; /* 0, or a power of two. */
    uint32_t turn;         /* Of the ghost that came last. */
};

void ghosts_close(struct ghosts *ghosts, const struct kvt_env *env);

/* ghosts_reserve - room for `count` ghosts that count. Growing forgets those that are there; when
 * there is no memory everything stays as it is, and ghosts are forgotten sooner. */
void ghosts_reserve(struct ghosts *ghosts, const struct kvt_env *env, uint32_t count);

/* ghosts_add - the block with this fingerprint has left. */
void ghosts_add(struct ghosts *ghosts, uint64_t fingerprint);

/* ghosts_take - whether it is among the `window` ghosts that came last. It is none any more. */
bool ghosts_take(struct ghosts *ghosts, uint64_t fingerprint, uint32_t window);

/* ghosts_bytes - memory that the table has. */
size_t ghosts_bytes(const struct ghosts *ghosts);

#endif /* KVT_ENGINE_GHOSTS_H */
