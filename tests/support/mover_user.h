/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mover_user.h - one user of a device mover: random moves in and out of the slots of a rig, with
 * every byte that comes out compared with what went in. No cmocka: the program for machines with a
 * GPU is carried there alone.
 *
 * A slot has a place in the rig's memory on each side: the source of moves in, the bytes on the
 * device, a shadow of them there, the target of moves out. At most one thing happens to a slot at a
 * time. What a forgotten wait would show:
 *   - the source is overwritten as soon as a move in was answered, and new bytes are put in it for
 *     every one;
 *   - the target is cleared before a move out, and compared as soon as that was answered;
 *   - half of the moves out are staged: work on the caller's stream first writes the shadow, and
 *     the move, which reads the shadow, waits for the event behind that work.
 *
 * Threads   one.
 */
#ifndef KVT_TESTS_MOVER_USER_H
#define KVT_TESTS_MOVER_USER_H

#include "device_mover.h"
#include "device_rig.h"
#include "rng.h"

enum {
    MOVER_USER_SLOT_BYTES = 64 * 1024,
    MOVER_USER_SLOTS = RIG_CHUNK_BYTES / MOVER_USER_SLOT_BYTES,
    MOVER_USER_PIECES = 4,
};

enum mover_user_state {
    SLOT_IDLE,
    SLOT_IN,
    SLOT_OUT,
};

struct mover_user_slot {
    struct device_move move;
    struct device_piece pieces[MOVER_USER_PIECES];
    void *event; /* Behind the caller's work. */
    uint8_t *source, *memory, *shadow, *target;
    enum mover_user_state state;
    uint64_t version; /* 0: nothing was moved in yet. */
    uint64_t size;
};

struct mover_user {
    struct device_rig *rig;
    struct device_mover *mover;
    void *stream; /* The caller's. */
    struct inbox done;
    struct rng rng;
    struct mover_user_slot slots[MOVER_USER_SLOTS];
    uint64_t version;
    uint32_t busy_count;
    uint64_t staged_count, out_count; /* Moves out that were compared. */
};

/* False, and a sentence on stderr. The rig is open; `stream` is one of its device's. */
bool mover_user_open(struct mover_user *user, struct device_rig *rig, struct device_mover *mover,
    void *stream, uint64_t seed);
void mover_user_close(struct mover_user *user);

/* mover_user_run - `count` moves, all answered when it returns. False: something was wrong. */
bool mover_user_run(struct mover_user *user, uint64_t count);

#endif /* KVT_TESTS_MOVER_USER_H */
