/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_copies.h - which tiers hold a copy of each block of a simulated store, and which copies no
 * child needs.
 *
 * Owns      the copies, their counts by tier, and the counts of children.
 *
 * The sets are nested, as engine/policy.h has them: a block with children in HBM may not leave HBM,
 * one with children in memory may not leave memory, one with children anywhere may not leave the
 * store. A copy in HOST or on NVMe of a block that is held higher up can go at any time.
 */
#ifndef BENCH_SIM_COPIES_H
#define BENCH_SIM_COPIES_H

#include "chains.h"

enum sim_place {
    SIM_HBM,
    SIM_HOST,
    SIM_NVME,
    SIM_PLACE_COUNT,
};

struct sim_copies {
    const struct chains *chains;
    uint8_t *places;                  /* By block: 1 << enum sim_place. */
    uint32_t *child_counts;           /* By block and set, SIM_PLACE_COUNT each. */
    uint32_t *users;                  /* By block: the last request that asked for it, + 1. */
    uint32_t pinned;                  /* Such a number: what it asked for stays. 0: none. */
    uint32_t counts[SIM_PLACE_COUNT]; /* Copies in each tier. */
    uint32_t block_count;             /* Blocks with a copy. */
};

/* sim_copies_create - none anywhere. False: there is no memory, and nothing to destroy. */
bool sim_copies_create(struct sim_copies *copies_out, const struct chains *chains);
void sim_copies_destroy(struct sim_copies *copies);

/* sim_copies_pin - the blocks of that request stay, until sim_copies_unpin. */
void sim_copies_pin(struct sim_copies *copies, const struct chain *chain);
void sim_copies_unpin(struct sim_copies *copies);

void sim_copies_add(struct sim_copies *copies, enum sim_place place, uint32_t block);
void sim_copies_remove(struct sim_copies *copies, enum sim_place place, uint32_t block);

static inline bool
sim_copies_has(const struct sim_copies *copies, enum sim_place place, uint32_t block)
{
    return (copies->places[block] & 1u << place) != 0;
}

/* sim_copies_is_leaf - no child needs the block's copy in `place`. */
static inline bool
sim_copies_is_leaf(const struct sim_copies *copies, enum sim_place place, uint32_t block)
{
    unsigned higher = (1u << place) - 1u;

    return copies->child_counts[(size_t)block * SIM_PLACE_COUNT + place] == 0 ||
           (copies->places[block] & higher) != 0;
}

/* sim_copies_is_pinned - the running request holds it. */
static inline bool
sim_copies_is_pinned(const struct sim_copies *copies, uint32_t block)
{
    return copies->pinned != 0 && copies->users[block] == copies->pinned;
}

/* sim_copies_may_go - it is a leaf, and not pinned. */
static inline bool
sim_copies_may_go(const struct sim_copies *copies, enum sim_place place, uint32_t block)
{
    return sim_copies_is_leaf(copies, place, block) && !sim_copies_is_pinned(copies, block);
}

#endif /* BENCH_SIM_COPIES_H */
