/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_lists.h - lists of blocks, from the newest to the oldest; a block is in one of them, or none.
 */
#ifndef BENCH_SIM_LISTS_H
#define BENCH_SIM_LISTS_H

#include "chains.h"

#define LIST_NONE UINT32_MAX /* The number of no list. */

struct sim_list {
    uint32_t newest, oldest; /* BLOCK_NONE: it is empty. */
    uint32_t count;
};

struct sim_link {
    uint32_t newer, older; /* BLOCK_NONE at the ends. */
    uint32_t list;         /* LIST_NONE: the block is in none. */
};

struct sim_lists {
    struct sim_list *lists;
    struct sim_link *links; /* By block. */
};

/* sim_lists_create - all empty. False: there is no memory; destroy what is there. */
bool sim_lists_create(struct sim_lists *lists, uint32_t block_count, uint32_t list_count);
void sim_lists_destroy(struct sim_lists *lists); /* Zeroed ones are fine. */

/* sim_lists_insert - next to `newer`, which is in that list, on its older side; BLOCK_NONE: at the
 * newest end. The block is in no list. */
void sim_lists_insert(struct sim_lists *lists, uint32_t list, uint32_t block, uint32_t newer);
void sim_lists_remove(struct sim_lists *lists, uint32_t block);

/* sim_lists_move - to the newest end of `list`, from wherever it is. */
void sim_lists_move(struct sim_lists *lists, uint32_t list, uint32_t block);

static inline uint32_t
sim_lists_of(const struct sim_lists *lists, uint32_t block)
{
    return lists->links[block].list;
}

#endif /* BENCH_SIM_LISTS_H */
