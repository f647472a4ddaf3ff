/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_call_plan.c - joins moves into calls, and cuts those that no call holds.
 */
#include "device_call_plan.h"

void
move_queue_push(struct move_queue *queue, struct device_move *move)
{
    move->mover.next = NULL;
    if (queue->first == NULL)
        queue->first = move;
    else
        queue->last->mover.next = move;
    queue->last = move;
}

struct device_move *
move_queue_pop(struct move_queue *queue)
{
    struct device_move *move = queue->first;

    if (move != NULL)
        queue->first = move->mover.next;
    return move;
}

/* Take the pieces of one move that still fit; the index of the first that does not. */
static uint32_t
plan_add(struct call_plan *plan, const struct device_move *move)
{
    uint32_t at = move->mover.piece_at;

    for (; at < move->piece_count && plan->piece_count < DEVICE_MOVER_PIECES_MAX; at++) {
        const struct device_piece *piece = &move->pieces[at];
        bool is_first = plan->piece_count == 0;

        if (!is_first && piece->size > DEVICE_MOVER_CALL_BYTES - plan->bytes)
            break;
        plan->pieces[plan->piece_count++] = *piece;
        plan->bytes += piece->size;
        /* A large piece goes alone. */
        if (plan->bytes >= DEVICE_MOVER_CALL_BYTES) {
            at++;
            break;
        }
    }
    return at;
}

void
plan_make(struct call_plan *plan, const struct move_queue *queue)
{
    struct device_move *move = queue->first;

    plan->piece_count = 0;
    plan->bytes = 0;
    plan->move_count = 0;
    do {
        uint32_t pieces_before = plan->piece_count;
        uint64_t bytes_before = plan->bytes;
        uint32_t piece_at;

        if (plan->bytes >= DEVICE_MOVER_CALL_BYTES)
            return;
        piece_at = plan_add(plan, move);
        if (piece_at < move->piece_count && plan->move_count > 0) {
            plan->piece_count = pieces_before;
            plan->bytes = bytes_before;
            return;
        }
        /* What comes of a call that the device refuses for good is unknown. */
        move->is_begun = true;
        plan->move_count++;
        plan->last = move;
        plan->last_piece_at = piece_at;
        move = move->mover.next;
    } while (move != NULL && !move->mover.is_alone && !queue->first->mover.is_alone &&
             plan->last_piece_at == plan->last->piece_count);
}

void
plan_commit(const struct call_plan *plan, struct move_queue *queue, struct move_queue *called)
{
    for (uint32_t i = 0; i < plan->move_count; i++) {
        struct device_move *move = queue->first;

        if (move == plan->last && plan->last_piece_at < move->piece_count) {
            move->mover.piece_at = plan->last_piece_at;
            return;
        }
        move_queue_push(called, move_queue_pop(queue));
    }
}
