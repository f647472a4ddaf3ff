/* SPDX-License-Identifier: Apache-2.0 */
/*
 * imaging.h - what a block looks like on NVMe, when that is not how HOST has it: its trailer, and
 * its encoded parts. Made by a worker before a batch takes the block.
 *
 * Owns      images: the slot of HOST, or the memory of the last pages, that one lies in; which
 *           flights wait for a turn.
 * Not here  the bytes (image.h), batches (commit.h).
 * Threads   the loop; imaging_run() a worker.
 *
 * A flight that wants an image is IMAGING (flight.h). Images that are being made or wait to be
 * written are a bounded share of HOST; the flights behind wait for a turn, in order. An encoded
 * image lies in a slot of HOST that is free at once: when there is none the block is stored raw.
 * Of an image with raw parts only the last pages are made: the others are the HOST copy's.
 *
 * A flight may end at any moment. One whose image is being made leaves it behind: the worker's
 * answer then gives back what the image has, and the pin by which the HOST copy stayed until then.
 *
 *   imaging_begin()      imaging_step()              imaging_done()
 *     (waits) ----------------> (being made) ----------------> (made: QUEUED)
 *        |                           |                             |
 *        | imaging_end()             | imaging_end(): left behind  | imaging_end(): given back
 *        v                           v                             v
 *     (none)                      (given back by imaging_done())  (none)
 */
#ifndef KVT_ENGINE_IMAGING_H
#define KVT_ENGINE_IMAGING_H

#include "flight.h"
#include "slab.h"
#include "tier.h"

struct image;

struct imaging {
    struct flight *first, *last; /* Wait for a turn. */
    uint64_t bytes;              /* Of images. */
    uint32_t count;
    uint32_t slot_count; /* Of them, those that have a slot. */
};

/* imaging_begin - the flight's entry is to be written. True: -> IMAGING; commit_ready() follows, or
 * the flight's end. False: it is written as HOST has it. */
bool imaging_begin(struct kvt_store *store, struct flight *flight);

/* imaging_step - give turns. False: there was nothing to do. */
bool imaging_step(struct kvt_store *store);

/* imaging_end - the flight ends: it waits no longer, and has no image. */
void imaging_end(struct kvt_store *store, struct flight *flight);

/* imaging_bytes - what the flight's block takes on NVMe: whole pages. */
uint64_t imaging_bytes(const struct kvt_store *store, const struct flight *flight);

/* imaging_fill - after entry_record(): how the flight's block is stored, where its pages lie. */
void imaging_fill(
    const struct kvt_store *store, const struct flight *flight, struct tier_block *block);

#endif /* KVT_ENGINE_IMAGING_H */
