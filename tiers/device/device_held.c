/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_held.c - turns among moves that wait for events (device_held.h).
 */
#include "device_held.h"

/* A turn is over: those that were looked at are the first again. */
static void
turn_end(struct held_moves *held)
{
    struct move_queue *others = &held->others;

    if (held->looked.first == NULL)
        return;
    held->looked.last->mover.next = others->first;
    if (others->first == NULL)
        others->last = held->looked.last;
    others->first = held->looked.first;
    held->looked.first = NULL;
}

void
held_round(struct held_moves *held)
{
    held->look_count = 0;
    /* A device may give the place of an event that was reached to another one. */
    if (held->last == NULL || held->answer != KVT_NOT_READY)
        held->asked = NULL;
    if (held->last != NULL)
        return;
    turn_end(held);
    if (held->others.first != NULL)
        held->last = held->others.last;
}

struct device_move *
held_next(struct held_moves *held)
{
    struct device_move *move;

    if (held->last == NULL || held->look_count == DEVICE_HELD_LOOKS)
        return NULL;
    held->look_count++;
    move = move_queue_pop(&held->others);
    if (move == held->last)
        held->last = NULL;
    return move;
}

void
held_keep(struct held_moves *held, struct device_move *move)
{
    move_queue_push(&held->looked, move);
}

void
held_add(struct held_moves *held, struct device_move *move)
{
    move_queue_push(&held->others, move);
}
