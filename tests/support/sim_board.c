/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_board.c - what the owner of a store shows others, in a simulated world: memory that is no
 * part of the disk, so that a store which shows something meets the same faults as one that does
 * not.
 */
#include <stdlib.h>
#include <string.h>

#include "sim_world_internal.h"

struct board {
    struct sim_world *world;
    bool is_open;
    bool is_there;
    size_t size;
    uint8_t bytes[1 << 16];
};

static enum kvt_status
board_open(void *context, struct fs_dir *dir, const char *name, struct board **board_out)
{
    struct sim_world *world = context;

    (void)dir;
    (void)name;
    if (world->board->is_open)
        sim_panic(world, "a board is opened twice");
    world->board->is_open = true;
    world->board->is_there = true;
    world->board->size = 0;
    *board_out = world->board;
    return KVT_OK;
}

static void
board_write(struct board *board, const void *bytes, size_t size)
{
    if (!board->is_open || size > sizeof(board->bytes))
        sim_panic(board->world, "a board is written that is not open, or too much");
    memcpy(board->bytes, bytes, size);
    board->size = size;
}

static void
board_close(struct board *board)
{
    if (board == NULL)
        return;
    if (!board->is_open)
        sim_panic(board->world, "a board is closed twice");
    board->is_open = false;
    board->is_there = false;
}

static void
board_self(void *context, struct process_id *id_out)
{
    (void)context;
    *id_out = (struct process_id){.pid = 1, .start_time = 1, .program = "simulation"};
}

static bool
board_is_alive(void *context, const struct process_id *id)
{
    (void)context;
    return id->pid == 1;
}

static const struct board_ops sim_board_ops = {
    .open = board_open,
    .write = board_write,
    .close = board_close,
    .self = board_self,
    .is_alive = board_is_alive,
};

void
sim_board_enable(struct sim_world *world)
{
    if (world->board == NULL)
        world->board = calloc(1, sizeof(*world->board));
    if (world->board == NULL)
        sim_panic(world, "out of memory");
    world->board->world = world;
    world->env.board = &sim_board_ops;
    world->env.board_context = world;
}

const void *
sim_board(const struct sim_world *world, size_t *size_out)
{
    if (world->board == NULL || !world->board->is_there)
        return NULL;
    *size_out = world->board->size;
    return world->board->bytes;
}

void
sim_board_clear(struct board *board)
{
    if (board != NULL)
        board->is_open = false;
}

void
sim_board_free(struct board *board)
{
    free(board);
}
