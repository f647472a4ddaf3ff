/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment.h - the table of segments: what each range of a data file is used for now.
 *
 * Owns      state, generation, fill mark and counts of every segment of every root.
 * Not here  files and transfers (nvme_tier.c), which segment deserves to be reclaimed (engine/),
 *           durability of these facts (the engine writes them to the index with each commit).
 * Threads   the loop thread only.
 *
 * States, and the function that makes each move:
 *
 *         segment_activate()          segment_seal()          segment_recycle_begin()
 *   FREE --------------------> ACTIVE ---------------> SEALED ------------------------> RECYCLING
 *    ^                                                                                      |
 *    |                              segment_free(): generation + 1                          |
 *    +--------------------------------------------------------------------------------------+
 *
 *   FREE       No live record names it. Its generation is the one the next fill will use, and (once
 *              used before) a header of that generation stands durably at page 0, so that whatever
 *              older headers remain in it are void (FORMAT.md section 4).
 *   ACTIVE     Takes runs at `fill_page`; at most one a root. Never survives a crash as ACTIVE.
 *   SEALED     Full, or closed early after failures or a crash. Only read.
 *   RECYCLING  The index no longer has records in it (the range delete is durable); readers may
 *              still be in flight.
 */
#ifndef KVT_TIERS_SEGMENT_H
#define KVT_TIERS_SEGMENT_H

#include "env.h"

enum segment_state {
    SEGMENT_FREE = 0,
    SEGMENT_ACTIVE = 1,
    SEGMENT_SEALED = 2,
    SEGMENT_RECYCLING = 3,
};

struct segment {
    uint32_t number;     /* root << 24 | index */
    uint32_t generation; /* 1.. */
    enum segment_state state;
    uint32_t fill_page;   /* First page not yet given out. */
    uint32_t record_count; /* Live records, as the index has them. */
    uint32_t crc_xor;      /* XOR of the CRCs of those records. */
    uint64_t live_bytes;   /* Whole pages of the live extents. */
    uint32_t failure_count; /* Batches that failed in it. */
    uint32_t reader_count;  /* Reads in flight. */
};

struct segment_table;

enum kvt_status segment_table_open(const struct kvt_env *env, uint32_t root_count,
    const uint32_t *segment_counts, uint32_t segment_pages, struct segment_table **table_out);
void segment_table_close(struct segment_table *table);

/* segment_at - NULL when there is no such segment. */
struct segment *segment_at(struct segment_table *table, uint32_t number);
uint32_t segment_pages(const struct segment_table *table); /* Pages in a segment. */

/* Walk all: start with *cursor = 0; NULL at the end. */
struct segment *segment_next(struct segment_table *table, uint32_t *cursor);

/* segment_restore - set one as the index has it (recovery only). */
void segment_restore(struct segment_table *table, const struct segment *segment);

/*
 * segment_run_take - `pages` pages in the active segment of a root, sealing it and activating a
 * free one when they do not fit; *sealed_out is the segment that was sealed or NULL. Leaves
 * `reserve_count` free segments untouched (those are for reclaiming, which passes 0).
 * KVT_E_NOSPC: no free segment. KVT_E_INVAL: pages is 0 or above segment_pages.
 */
enum kvt_status segment_run_take(struct segment_table *table, uint32_t root, uint32_t pages,
    uint32_t reserve_count, struct segment **segment_out, uint32_t *page_out,
    struct segment **sealed_out);

void segment_seal(struct segment_table *table, struct segment *segment);
void segment_recycle_begin(struct segment_table *table, struct segment *segment);
void segment_free(struct segment_table *table, struct segment *segment);

uint32_t segment_count_in(const struct segment_table *table, uint32_t root,
    enum segment_state state);
void segment_check(const struct segment *segment, uint32_t segment_pages);
const char *segment_state_name(enum segment_state state);

#endif /* KVT_TIERS_SEGMENT_H */
