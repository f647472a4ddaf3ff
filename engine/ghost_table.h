/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ghost_table.h - what is remembered of blocks that were evicted: of what class they were, and when
 * they were used last.
 *
 * Owns      the table: buckets of one cache line with five ghosts each. A full bucket forgets the
 *           ghost whose last use is oldest.
 * Not here  what a class is worth (hazard.h); which blocks become ghosts (policy_default.c).
 * Memory    64 bytes for five ghosts, of which up to GHOSTS_BYTES_MAX are taken, however many
 *           blocks there are. The table grows bucket by bucket (linear hashing): no step of it
 *           takes long, and nothing is forgotten by it.
 *
 * Threads   the loop only.
 */
#ifndef KVT_ENGINE_GHOST_TABLE_H
#define KVT_ENGINE_GHOST_TABLE_H

#include "env.h"

enum {
    GHOSTS_A_BUCKET = 5,
    GHOSTS_BYTES_MAX = 64 << 20, /* 5.2 million ghosts. */
};

struct ghost_facts {
    uint32_t last_use; /* Ticks. */
    uint16_t traits;   /* The policy's own; never 0. */
};

struct ghost_row;

/* All zero: empty, without memory. */
struct ghost_table {
    struct ghost_row **chunks;
    uint32_t bucket_count;
};

void ghost_table_close(struct ghost_table *table, const struct kvt_env *env);

/* ghost_table_reserve - room for about `count` ghosts, or for as many as there is memory for: then
 * ghosts are forgotten sooner. It grows a few buckets a call, and never shrinks. */
void ghost_table_reserve(struct ghost_table *table, const struct kvt_env *env, uint64_t count);

/* ghost_table_add - the block with this fingerprint has left. Returns true when a ghost (that one,
 * perhaps) was forgotten for it, and which. */
bool ghost_table_add(struct ghost_table *table, uint64_t fingerprint,
    const struct ghost_facts *facts, struct ghost_facts *forgotten_out);

/* ghost_table_take - whether the block is a ghost. It is none any more. */
bool ghost_table_take(
    struct ghost_table *table, uint64_t fingerprint, struct ghost_facts *facts_out);

size_t ghost_table_bytes(const struct ghost_table *table);

#endif /* KVT_ENGINE_GHOST_TABLE_H */
