/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fetch_internal.h - what fetch.c (the read), fetch_slots.c (where it reads to) and fetch_verify.c
 * (its bytes) share.
 */
#ifndef KVT_ENGINE_FETCH_INTERNAL_H
#define KVT_ENGINE_FETCH_INTERNAL_H

#include "get.h"
#include "image.h"
#include "store_internal.h"

enum {
    GAP_PAGES = 8, /* As much is read in vain rather than by one more read. */
};

/* The work of one read. Holds one pin of the entry. */
struct fetch {
    struct batch_owner owner;
    struct job job;
    struct op *op; /* NULL: get_bring(), nobody is answered. */
    uint32_t entry;
    struct extent extent;  /* Where the block was when its bytes were asked for, the last time. */
    struct flight *flight; /* READING: of a read into `copy`. */
    struct image_shape shape;
    struct part_range range;
    bool has_stage, has_copy, has_decoded;
    struct slot stage, copy, decoded;
    uint8_t *copy_memory; /* NULL: there will be no HOST copy. */
    uint8_t
        *decoded_memory; /* Decoded bytes that are not a copy; the destination's, or a slot's. */
    uint8_t *memory;     /* Where pages from first_page on are read to: copy, stage, destination. */
    uint32_t first_page; /* Of the image. */
    uint8_t *found;      /* What is wanted, verified. */
    uint8_t *tail;       /* The pages from tail_page on; NULL: it has no trailer, nor a bounce. */
    void *tail_taken;
    uint32_t tail_page, tail_pages;
    enum kvt_status status; /* Not KVT_OK: nothing is known of its bytes, they could not be read;
                             * KVT_E_NOMEM: or proved, for want of memory. */
    uint8_t turn;           /* patience.h */
    bool is_right;
    bool is_failed;        /* Nothing is known of its bytes: a codec had no memory. */
    bool is_direct;        /* `memory` is the caller's, who may write it, too. */
    bool is_bulk;          /* A prefetch's: reads of others go first. */
    bool is_transient;     /* The get's flag: the ticket may be gone when the read is settled. */
    bool is_trailer;       /* Only the trailer was asked for. */
    bool is_sent;          /* A device copies it to its memory. */
    struct window *window; /* It counts in that; or NULL. */
    struct device_job device_job; /* is_sent */
    uint64_t decode_ns;           /* 0: nothing was decoded. */
    struct tier_batch tier_batch;
    struct tier_block blocks[2];
};

/* fetch_run - prove, decode and hand over the bytes that were read: is_right, is_failed and found
 * say what came of it (a worker). */
void fetch_run(struct crew_job *crew_job);

/*
 * Slots of HOST, as room_take() gives them. fetch_stage_take - for stored bytes that are no copy.
 * fetch_copy_take - for a copy, with a flight that says so. fetch_decoded_take - for decoded bytes
 * when there will be no copy, or the destination. fetch_slots_put - at the end of a read: those
 * that are no copies. fetch_slots_untake - the same of one that was not begun.
 */
enum kvt_status fetch_stage_take(struct kvt_store *store, struct fetch *fetch, bool is_in_line);
enum kvt_status fetch_copy_take(struct kvt_store *store, struct fetch *fetch);
enum kvt_status fetch_decoded_take(struct kvt_store *store, struct fetch *fetch);
void fetch_slots_put(struct kvt_store *store, struct fetch *fetch);
void fetch_slots_untake(struct kvt_store *store, struct fetch *fetch);

#endif /* KVT_ENGINE_FETCH_INTERNAL_H */
