/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_copies.c - copies of blocks in the tiers of a simulated store, and counts of children.
 */
#include "sim_copies.h"

#include <stdlib.h>
#include <string.h>

/* The sets that a block with copies in `places` is in: those from its best tier on. */
static unsigned
first_set(unsigned places)
{
    return places == 0 ? SIM_PLACE_COUNT : (unsigned)__builtin_ctz(places);
}

bool
sim_copies_create(struct sim_copies *copies_out, const struct chains *chains)
{
    size_t count = (size_t)chains->block_count + 1;

    *copies_out = (struct sim_copies){.chains = chains};
    copies_out->places = calloc(count, sizeof(*copies_out->places));
    copies_out->child_counts = calloc(count * SIM_PLACE_COUNT, sizeof(*copies_out->child_counts));
    copies_out->users = calloc(count, sizeof(*copies_out->users));
    if (copies_out->places != NULL && copies_out->users != NULL && copies_out->child_counts != NULL)
        return true;
    sim_copies_destroy(copies_out);
    return false;
}

void
sim_copies_destroy(struct sim_copies *copies)
{
    free(copies->places);
    free(copies->users);
    free(copies->child_counts);
    memset(copies, 0, sizeof(*copies));
}

void
sim_copies_pin(struct sim_copies *copies, const struct chain *chain)
{
    copies->pinned = chain->request + 1;
    for (uint32_t i = 0; i < chain->count; i++)
        copies->users[chain->blocks[i]] = copies->pinned;
}

void
sim_copies_unpin(struct sim_copies *copies)
{
    copies->pinned = 0;
}

/* The block's copies are in `places` now: its parent has a child more, or less, in some sets. */
static void
places_change(struct sim_copies *copies, uint32_t block, unsigned places)
{
    uint32_t parent = copies->chains->parents[block];
    unsigned before = first_set(copies->places[block]);
    unsigned after = first_set(places);

    copies->places[block] = (uint8_t)places;
    copies->block_count += before == SIM_PLACE_COUNT;
    copies->block_count -= after == SIM_PLACE_COUNT;
    if (parent == BLOCK_NONE)
        return;
    for (unsigned set = after; set < before; set++)
        copies->child_counts[(size_t)parent * SIM_PLACE_COUNT + set]++;
    for (unsigned set = before; set < after; set++)
        copies->child_counts[(size_t)parent * SIM_PLACE_COUNT + set]--;
}

void
sim_copies_add(struct sim_copies *copies, enum sim_place place, uint32_t block)
{
    copies->counts[place]++;
    places_change(copies, block, copies->places[block] | 1u << place);
}

void
sim_copies_remove(struct sim_copies *copies, enum sim_place place, uint32_t block)
{
    copies->counts[place]--;
    places_change(copies, block, copies->places[block] & ~(1u << place));
}
