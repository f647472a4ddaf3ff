/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mover_user.c - random moves whose every byte is known.
 */
#include "mover_user.h"

#include <string.h>

/* --- 1. Opening ------------------------------------------------------------------------------- */

bool
mover_user_open(struct mover_user *user, struct device_rig *rig, struct device_mover *mover,
    void *stream, uint64_t seed)
{
    memset(user, 0, sizeof(*user));
    user->rig = rig;
    user->mover = mover;
    user->stream = stream;
    user->rng.state = seed;
    for (size_t i = 0; i < MOVER_USER_SLOTS; i++) {
        struct mover_user_slot *slot = &user->slots[i];
        size_t at = i * MOVER_USER_SLOT_BYTES;

        slot->source = rig->host + at;
        slot->target = rig->host + RIG_CHUNK_BYTES + at;
        slot->memory = rig->slab + at;
        slot->shadow = rig->slab_other + at;
        RIG_CHECK(rig->ops->event_create(rig->device, &slot->event) == KVT_OK);
    }
    return true;
}

void
mover_user_close(struct mover_user *user)
{
    for (size_t i = 0; i < MOVER_USER_SLOTS; i++)
        user->rig->ops->event_destroy(user->rig->device, user->slots[i].event);
}

/* --- 2. Moves --------------------------------------------------------------------------------- */

/* The slot's bytes in pieces, in a random order of theirs. */
static uint32_t
pieces_cut(struct mover_user *user, struct mover_user_slot *slot, uint8_t *target, uint8_t *source)
{
    uint32_t count = 0;
    uint64_t done = 0;

    while (done < slot->size) {
        uint64_t rest = slot->size - done;
        uint64_t size = 1 + rng_below(&user->rng, (uint32_t)rest);
        uint32_t place = rng_below(&user->rng, count + 1);

        if (count + 1 == MOVER_USER_PIECES)
            size = rest;
        slot->pieces[count++] = slot->pieces[place];
        slot->pieces[place] = (struct device_piece){target + done, source + done, size};
        done += size;
    }
    return count;
}

/* Sizes of all kinds: some bytes, whole pages, whole slots. */
static uint64_t
size_choose(struct mover_user *user)
{
    switch (rng_below(&user->rng, 4)) {
    case 0:
        return 1 + rng_below(&user->rng, 300);
    case 1:
        return MOVER_USER_SLOT_BYTES;
    case 2:
        return 4096u * (1 + rng_below(&user->rng, MOVER_USER_SLOT_BYTES / 4096));
    default:
        return 1 + rng_below(&user->rng, MOVER_USER_SLOT_BYTES);
    }
}

static void
slot_fill(struct mover_user *user, struct mover_user_slot *slot)
{
    slot->version = ++user->version;
    slot->size = size_choose(user);
    slot->state = SLOT_IN;
    device_rig_fill(slot->source, slot->size, slot->version);
    slot->move.lane = DEVICE_IN;
    slot->move.piece_count = pieces_cut(user, slot, slot->memory, slot->source);
}

static bool
slot_fetch(struct mover_user *user, struct mover_user_slot *slot, bool is_staged)
{
    struct device_rig *rig = user->rig;

    slot->state = SLOT_OUT;
    memset(slot->target, 0, MOVER_USER_SLOT_BYTES);
    slot->move.lane = DEVICE_OUT;
    if (is_staged) {
        RIG_CHECK(
            device_rig_copy(rig, user->stream, slot->shadow, slot->memory, slot->size) == KVT_OK);
        RIG_CHECK(rig->ops->event_record(rig->device, slot->event, user->stream) == KVT_OK);
        slot->move.wait = slot->event;
        user->staged_count++;
    }
    slot->move.piece_count =
        pieces_cut(user, slot, slot->target, is_staged ? slot->shadow : slot->memory);
    return true;
}

/* Let the next thing happen to an idle slot. */
static bool
slot_start(struct mover_user *user, struct mover_user_slot *slot)
{
    slot->move = (struct device_move){.is_urgent = rng_below(&user->rng, 3) == 0,
        .pieces = slot->pieces,
        .done = &user->done,
        .status = KVT_E_POISONED,
        .user = slot};
    user->busy_count++;
    if (slot->version != 0 && rng_below(&user->rng, 2) == 0)
        return slot_fetch(user, slot, rng_below(&user->rng, 2) == 0);
    slot_fill(user, slot);
    return true;
}

static bool
slot_finish(struct mover_user *user, struct mover_user_slot *slot)
{
    RIG_CHECK(slot->state != SLOT_IDLE); /* Or it was answered twice. */
    RIG_CHECK(slot->move.status == KVT_OK);
    if (slot->state == SLOT_IN) {
        memset(slot->source, 0x11, MOVER_USER_SLOT_BYTES);
    } else {
        RIG_CHECK(device_rig_is_filled(slot->target, slot->size, slot->version));
        if (slot->size < MOVER_USER_SLOT_BYTES)
            RIG_CHECK(slot->target[slot->size] == 0);
        user->out_count++;
    }
    slot->state = SLOT_IDLE;
    user->busy_count--;
    return true;
}

/* --- 3. The run ------------------------------------------------------------------------------- */

static bool
user_take(struct mover_user *user)
{
    struct inbox_node *node = inbox_take(&user->done);

    while (node != NULL) {
        struct device_move *move = CONTAINER_OF(node, struct device_move, node);

        node = node->next;
        if (!slot_finish(user, move->user))
            return false;
    }
    return true;
}

/* Start up to `limit` moves on idle slots, and push them together or one by one. */
static bool
user_push(struct mover_user *user, uint64_t limit, uint32_t *count_out)
{
    struct device_move *moves[MOVER_USER_SLOTS];
    uint32_t wanted = 1 + rng_below(&user->rng, MOVER_USER_SLOTS);
    uint32_t first = rng_below(&user->rng, MOVER_USER_SLOTS);
    uint32_t count = 0;

    for (uint32_t i = 0; i < MOVER_USER_SLOTS && count < limit && count < wanted; i++) {
        struct mover_user_slot *slot = &user->slots[(first + i) % MOVER_USER_SLOTS];

        if (slot->state != SLOT_IDLE)
            continue;
        if (!slot_start(user, slot))
            return false;
        moves[count++] = &slot->move;
    }
    if (rng_below(&user->rng, 2) == 0) {
        device_mover_push(user->mover, moves, count);
    } else {
        for (uint32_t i = 0; i < count; i++)
            device_mover_push(user->mover, &moves[i], 1);
    }
    *count_out = count;
    return true;
}

bool
mover_user_run(struct mover_user *user, uint64_t count)
{
    while (count > 0 || user->busy_count > 0) {
        uint32_t started = 0;

        if (!user_push(user, count, &started))
            return false;
        count -= started;
        user->rig->pass(user->rig);
        if (!user_take(user))
            return false;
    }
    return true;
}
