/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_lists.c - lists of blocks.
 */
#include "sim_lists.h"

#include <stdlib.h>
#include <string.h>

bool
sim_lists_create(struct sim_lists *lists, uint32_t block_count, uint32_t list_count)
{
    size_t links_bytes = ((size_t)block_count + 1) * sizeof(*lists->links);
    size_t lists_bytes = list_count * sizeof(*lists->lists);

    lists->links = malloc(links_bytes);
    lists->lists = malloc(lists_bytes);
    if (lists->links == NULL || lists->lists == NULL)
        return false;
    memset(lists->links, 0xFF, links_bytes); /* BLOCK_NONE and LIST_NONE everywhere. */
    memset(lists->lists, 0xFF, lists_bytes);
    for (uint32_t i = 0; i < list_count; i++)
        lists->lists[i].count = 0;
    return true;
}

void
sim_lists_destroy(struct sim_lists *lists)
{
    free(lists->links);
    free(lists->lists);
    memset(lists, 0, sizeof(*lists));
}

void
sim_lists_insert(struct sim_lists *lists, uint32_t list, uint32_t block, uint32_t newer)
{
    struct sim_list *into = &lists->lists[list];
    uint32_t older = newer == BLOCK_NONE ? into->newest : lists->links[newer].older;

    lists->links[block] = (struct sim_link){.newer = newer, .older = older, .list = list};
    if (newer == BLOCK_NONE)
        into->newest = block;
    else
        lists->links[newer].older = block;
    if (older == BLOCK_NONE)
        into->oldest = block;
    else
        lists->links[older].newer = block;
    into->count++;
}

void
sim_lists_remove(struct sim_lists *lists, uint32_t block)
{
    struct sim_link gone = lists->links[block];
    struct sim_list *from = &lists->lists[gone.list];

    if (gone.newer == BLOCK_NONE)
        from->newest = gone.older;
    else
        lists->links[gone.newer].older = gone.older;
    if (gone.older == BLOCK_NONE)
        from->oldest = gone.newer;
    else
        lists->links[gone.older].newer = gone.newer;
    from->count--;
    lists->links[block] =
        (struct sim_link){.newer = BLOCK_NONE, .older = BLOCK_NONE, .list = LIST_NONE};
}

void
sim_lists_move(struct sim_lists *lists, uint32_t list, uint32_t block)
{
    if (lists->links[block].list != LIST_NONE)
        sim_lists_remove(lists, block);
    sim_lists_insert(lists, list, block, BLOCK_NONE);
}
