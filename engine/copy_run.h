/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_run.h - blocks that gets want from one device, or by one device, as one move: what a move
 * costs the loop and the mover is paid once for up to COPY_RUN_BLOCKS of them.
 *
 * Owns      the run that is being put together; it is sent when the next block does not go with it,
 *           when all of a ticket's operations were begun, and at the end of the loop's step.
 * Not here  which copy a block is read from (get.c); memory that is spread in runs of its own.
 * Threads   the loop.
 *
 * The blocks of a run are answered together. An error that is not the device's end is that of all.
 */
#ifndef KVT_ENGINE_COPY_RUN_H
#define KVT_ENGINE_COPY_RUN_H

#include "devices.h"
#include "get.h"

enum {
    COPY_RUN_BLOCKS = 128,
    COPY_RUN_BYTES = 8 << 20, /* What is there already does not wait long for the rest. */
};

/* One block; it has a pin of the entry until it is answered. */
struct copy_member {
    struct op *op;
    uint32_t entry;
    uint32_t tier; /* Where it comes from. */
    struct part_range range;
};

/* copy_member_begin - a device is about to copy it; copy_member_finish - it has, and the operation
 * is answered. The pin stays. */
void copy_member_begin(struct kvt_store *store, const struct copy_member *member);
void copy_member_finish(
    struct kvt_store *store, const struct copy_member *member, const struct device_move *move);

/* copy_run_add - `bytes` is where the range lies, in memory that `device` reaches, and the
 * operation's memory is another such. It is answered later, or now, when there is no memory. */
void copy_run_add(struct kvt_store *store, const struct copy_member *member, uint8_t *bytes,
    uint32_t device, enum device_lane lane);

/* copy_run_send - what was put together. Nothing may be. */
void copy_run_send(struct kvt_store *store);

void copy_run_pool_open(struct kvt_store *store);

#endif /* KVT_ENGINE_COPY_RUN_H */
