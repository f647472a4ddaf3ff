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
 * and, at an open, SEALED --segment_resume()--> ACTIVE.
 *
 *   FREE       No live record names it. Its generation is the one the next fill will use, and (once
 *              used before) a header of that generation stands durably at page 0, so that whatever
 *              older headers remain in it are void (FORMAT.md section 4). The fill mark is 0 in a
 *              segment that was never used, and behind that header in others. An open after a crash
 *              passes a generation over, with a header of the next; when that cannot be written the
 *              one that stands there is older.
 *   ACTIVE     Takes runs at `fill_page`; at most one a root. After a crash it is SEALED at first.
 *   SEALED     Full, or closed early after failures or a crash. Only read.
 *   RECYCLING  The index no longer has records in it (the range delete is durable); readers may
 *              still be in flight. No writers.
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
    uint32_t fill_page;    /* First page not yet given out. */
    uint32_t record_count; /* Live records, as the index has them. */
    uint32_t crc_xor;      /* XOR of the CRCs of those records. */
    uint64_t live_bytes;   /* Whole pages of the live extents. */
    uint64_t batch_number; /* Of the last batch in it that was committed; 0: none. */
    /* The highest in its headers, when it was read to be recycled; 0: it was not. What a rebuild
     * that could not read all of it took for its generation may be lower. */
    uint32_t generation_seen;
    uint32_t reader_count; /* Reads in flight. */
    uint32_t writer_count; /* Puts in flight: taken and not yet answered. */
    bool was_active;       /* The engine's: in the index that a crash left. */
    uint32_t void_count;   /* The engine's: void entries of its batches that are not durable; and
                            * one until an open has taken its strays away. */

    /* The engine's, for choosing what to reclaim. */
    uint32_t
        kill_count; /* Kills in it that were needed when they were last counted, and newer ones:
                          * segment_kills_note(). 0, too: this life does not know. */
    uint64_t kill_turn;
    uint64_t held_bytes; /* Of the live ones: copies that others replace, but not durably yet. They
                          * stay, and no entry has them. */
    bool is_claimed;     /* It is being reclaimed, or will be next. */
    bool is_passed_over; /* Could not be emptied: others have their turn first. */
    bool are_kills_elsewhere; /* SEALED: those in it that are needed were written once more. */
    bool was_unreadable; /* That, because something in it could not be read: what cannot be read
                          * in its next turn is given up. */
};

enum {
    /* Pages that a recycle header needs at most. The fill of a segment that was free before the
     * store was opened starts behind so many, since nobody remembers how long its header is. */
    SEGMENT_HEAD_PAGES_MAX = 41,
};

struct segment_table;

enum kvt_status segment_table_open(const struct kvt_env *env, uint32_t root_count,
    const uint32_t *segment_counts, uint32_t segment_pages, struct segment_table **table_out);
void segment_table_close(struct segment_table *table);

/* segment_at - NULL when there is no such segment. A NULL table (a store without NVMe) has none;
 * the same holds for segment_next(). */
struct segment *segment_at(struct segment_table *table, uint32_t number);
uint32_t segment_pages(const struct segment_table *table); /* Pages in a segment. */

/* Walk all: start with *cursor = 0; NULL at the end. */
struct segment *segment_next(struct segment_table *table, uint32_t *cursor);

/*
 * segment_restore - set one as the index has it (recovery only): number, generation, state,
 * record_count, crc_xor, live_bytes, batch_number. ACTIVE becomes SEALED, and a fill mark that the
 * index does not have becomes what is safe. False, and nothing changes: no such segment, or
 * impossible values.
 */
bool segment_restore(struct segment_table *table, const struct segment *segment);

/* segment_resume - SEALED -> ACTIVE, to be filled from `fill_page` on: nothing stands there or
 * behind it that counts (recovery only). The root has no other that is ACTIVE. */
void segment_resume(struct segment_table *table, struct segment *segment, uint32_t fill_page);

/*
 * segment_run_take - `pages` pages in the active segment of a root, sealing it and activating a
 * free one when they do not fit; *sealed_out is the segment that was sealed or NULL. Leaves
 * `reserve_count` free segments untouched (those are for reclaiming, which passes 0); when fewer
 * are free, the active segment is one of them, and is left to reclaiming as well.
 * KVT_E_NOSPC: no free segment that holds the run. KVT_E_INVAL: pages is 0 or above segment_pages.
 * A run of up to segment_pages - SEGMENT_HEAD_PAGES_MAX fits into every free segment.
 */
enum kvt_status segment_run_take(struct segment_table *table, uint32_t root, uint32_t pages,
    uint32_t reserve_count, struct segment **segment_out, uint32_t *page_out,
    struct segment **sealed_out);

/* segment_fits - whether segment_run_take() with the same arguments would find room. */
bool segment_fits(
    const struct segment_table *table, uint32_t root, uint32_t pages, uint32_t reserve_count);

/* segment_active - the segment of a root that takes runs; NULL when there is none. */
struct segment *segment_active(struct segment_table *table, uint32_t root);

void segment_seal(struct segment_table *table, struct segment *segment);
/* SEALED, without writers. Its counts of live records become zero. */
void segment_recycle_begin(struct segment_table *table, struct segment *segment);
/* RECYCLING, without readers; its recycle header is durable. A fill mark of 0 (nobody set it behind
 * that header) becomes SEGMENT_HEAD_PAGES_MAX. A generation of 2^32-1 cannot be freed. */
uint32_t segment_generation_next(const struct segment *segment); /* That it has then. */
void segment_free(struct segment_table *table, struct segment *segment);

/* segment_change_count - rises whenever the state of a segment changes, and with segment_changed():
 * something else has that a walk over all of them looks for. */
uint64_t segment_change_count(const struct segment_table *table);
void segment_changed(struct segment_table *table);

/* segment_total - segments of a root, in whatever state. */
uint64_t segment_total(const struct segment_table *table, uint32_t root);

/*
 * segment_kills_note - so many of its kills are needed: the copies that they name are in segments
 * that were not freed since. segment_kills_left - how many still are, as far as that can be told
 * without reading: fewer with each segment that is freed, none when that were as many as there are.
 */
void segment_kills_note(struct segment_table *table, struct segment *segment, uint32_t count);
uint32_t segment_kills_left(const struct segment_table *table, const struct segment *segment);
uint32_t segment_count_in(
    const struct segment_table *table, uint32_t root, enum segment_state state);
void segment_check(const struct segment *segment, uint32_t segment_pages);
const char *segment_state_name(enum segment_state state);

#endif /* KVT_TIERS_SEGMENT_H */
