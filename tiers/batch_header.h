/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batch_header.h - the header of a write batch in a segment: its bytes (FORMAT.md section 3.3).
 *
 * Owns the encoding and the proof (MAC). Pure functions. Bytes come from devices: nothing in them
 * is believed before it was checked, and what the MAC proves is checked all the same.
 */
#ifndef KVT_TIERS_BATCH_HEADER_H
#define KVT_TIERS_BATCH_HEADER_H

#include "block_record.h"
#include "tier.h"

enum {
    BATCH_BLOCKS_MAX = 1024,
    BATCH_KILLS_MAX = 4096,
    BATCH_HEADER_PAGES_MAX = 84, /* batch_header_pages() of both. */
};

struct batch_header {
    uint8_t store_uuid[16];
    struct extent extent;  /* Where it stands: segment, generation, its own first page. */
    uint32_t header_pages; /* Pages of the header itself. */
    uint32_t total_pages;  /* Header and payloads: the next header stands behind them. */
    uint64_t sequence;     /* Of the batch; rises within the life of a store. */
    uint32_t block_count;  /* batch_header_decode(): of those that this version knows. */
    uint32_t later_count;  /* Blocks whose records are whole, and of a later version. */
    uint32_t kill_count;
    /* Voids every older generation of its segment (FORMAT.md section 4). At page 0; or, a copy
     * without kills, at page 1. */
    bool is_recycle;
};

/* batch_header_pages - pages that a header with these counts needs (worst-case records). */
uint32_t batch_header_pages(uint32_t block_count, uint32_t kill_count);

/*
 * batch_header_encode - `target` has header_pages * 4096 bytes and header_pages is at least
 * batch_header_pages(). Records are taken from blocks, whose extents are inside the run, in order.
 */
void batch_header_encode(const struct batch_header *header, const struct tier_block *blocks,
    const struct tier_kill *kills, const uint8_t secret[HASH_SECRET_BYTES], uint8_t *target);

/* batch_header_copy - the page behind a recycle header of one page without kills: its copy, so that
 * damage of one page brings nothing back that the two void. */
void batch_header_copy(
    const struct batch_header *header, const uint8_t secret[HASH_SECRET_BYTES], uint8_t *page_out);

/*
 * batch_header_peek - read the fixed part of the first page, without proof: enough to know how
 * many pages to read. KVT_MISS: no magic there. KVT_E_CORRUPT: magic, but impossible numbers.
 */
enum kvt_status batch_header_peek(const uint8_t *page, struct batch_header *header_out);

/*
 * batch_header_is_of - whether that store wrote the header, whatever uuid stands in it: damage may
 * have changed that. `bytes` are its header_pages, as batch_header_peek() tells; the store's uuid
 * is put into them.
 */
bool batch_header_is_of(uint8_t *bytes, uint32_t header_pages, const uint8_t store_uuid[16],
    const uint8_t secret[HASH_SECRET_BYTES]);

/*
 * batch_header_decode - all of it: the MAC, the store, its own place (`extent.segment` and
 * `extent.page` must be where it was read), bounds of every block inside the run. Fills
 * block_count records and kill_count kills (room for BATCH_BLOCKS_MAX and BATCH_KILLS_MAX). Records
 * of a later version are proved, counted (later_count) and passed over: all else is as it says.
 * KVT_MISS as peek's; KVT_E_CORRUPT with the reason: nothing in what was filled may be used.
 */
enum kvt_status batch_header_decode(const uint8_t *bytes, size_t size, const uint8_t store_uuid[16],
    const uint8_t secret[HASH_SECRET_BYTES], uint32_t segment, uint32_t page,
    uint32_t segment_pages, struct batch_header *header_out, struct block_record *records,
    struct tier_kill *kills);

#endif /* KVT_TIERS_BATCH_HEADER_H */
