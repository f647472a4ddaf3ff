/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h - how the bytes of a block are spread over memory of a caller: strided runs.
 *
 * Owns      the table of registered layouts; the runs of each, and its hold of their regions.
 * Not here  who copies (put.c, get.c, fetch.c), copies by a device (devices.h).
 * Threads   any.
 *
 * An operation has a layout from its submission to its stage 1: a registered one, which counts it
 * as a use, or one of its own. Runs that lie behind each other without a gap are joined when a
 * layout is made, so that what is copied is as long as it can be.
 *
 * (R3) of use_word.h holds for this table too.
 */
#ifndef KVT_ENGINE_LAYOUT_H
#define KVT_ENGINE_LAYOUT_H

#include "device.h"
#include "kvtier/kvtier.h"
#include "request.h"

struct layout_table;
struct layout_place;

struct layout_run {
    uintptr_t address; /* Of its first piece, in slot 0; of a device perhaps. */
    kvt_region region; /* Held. 0: none. */
    uint32_t piece_count;
    uint64_t piece_bytes, piece_stride, slot_stride;
    uint64_t offset; /* Of its first byte, in the block. */
};

/* Constant once it is made. */
struct layout {
    struct layout_place *place; /* NULL: an operation's own. */
    uint64_t block_bytes;
    int memory_device;    /* As an operation's. */
    uint32_t owner_count; /* place NULL: operations. They are let go one after the other. */
    uint32_t slot_count;
    uint32_t run_capacity; /* Memory was taken for so many. */
    uint32_t run_count;
    struct layout_run runs[];
};

enum kvt_status layouts_open(struct kvt_store *store);
/* layouts_close - all that are registered are forgotten. Before regions_close(). */
void layouts_close(struct kvt_store *store);

/* How a put or get says where its block is spread. */
struct layout_name {
    uint32_t index; /* Of the block, for sentences. */
    kvt_layout layout;
    uint32_t slot;
    const struct kvt_run *runs;
    uint32_t run_count;
};

static inline bool
layout_is_named(const struct layout_name *name)
{
    return name->runs != NULL || (name->layout.id | name->slot | name->run_count) != 0;
}

/* layout_use - note in the operation how its memory is spread, until layout_unuse() (of one that
 * has a layout). KVT_E_INVAL, KVT_E_UNSUPPORTED, KVT_E_NOMEM; the sentence names the block. */
enum kvt_status layout_use(struct kvt_store *store, struct op *op, const struct layout_name *name);
void layout_unuse(struct kvt_store *store, struct op *op);
/* layout_share - the operation has the layout of another one of its ticket, which is not sent. */
void layout_share(struct op *op, const struct op *other);

/* Some bytes of a block, and where they lie in one run. */
struct spread {
    const struct layout *layout;
    uint32_t slot;
    uint64_t offset, length; /* Which bytes. length > 0 */
    uint8_t *memory;
};

/* op_spread - of an operation that has a layout. */
static inline struct spread
op_spread(const struct op *op, uint64_t offset, uint64_t length, uint8_t *memory)
{
    return (struct spread){op->layout, op->layout_slot, offset, length, memory};
}

/* spread_gather - from the slot to the memory; spread_scatter: back. Host memory only. */
void spread_gather(const struct spread *spread);
void spread_scatter(const struct spread *spread);

/* spread_pieces - as copies, from the slot to the memory (`is_gather`) or back. `pieces_out` may be
 * NULL. How many they are. */
uint32_t spread_pieces(
    const struct spread *spread, bool is_gather, struct device_piece *pieces_out);

#endif /* KVT_ENGINE_LAYOUT_H */
