/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reclaim.h - making segments free: the blocks of one segment leave it, and it is recycled under a
 * higher generation.
 *
 * Owns      the one reclaim that may be under way.
 * Not here  which segment, and which of its blocks are written again (victim.h); what is in it
 *           (victim_scan.h); writing blocks elsewhere (relocate.h).
 * Threads   the loop.
 *
 *   IDLE --reclaim_start()--> RELOCATING --victim_emptied()--> DELETING
 *    ^                         |      |                           |
 *    +---- reclaim_let_go() ---+      | it was RECYCLING already  | delete_finish()
 *    |                                +------------> HEADING <----+
 *    |                                     head_start() |  ^
 *    |                                                  v  | headers_erase()
 *    +------ free_finish() -- FREEING <-- head_finish() -- WRITING
 *
 *   IDLE        The headers of the next victims may be read already (victim_scan.h).
 *   RELOCATING  Blocks that stay are written elsewhere, group by group; the others can still be
 *               read. Then its kills whose own copies still stand somewhere, so that none is ever
 *               lost to a torn recycle header. At the end all other blocks leave NVMe at once; one
 *               that somebody has pinned is moved after all.
 *   DELETING    No entry names the victim. The next transaction of batches takes its records out of
 *               the index, which then has it as RECYCLING.
 *   HEADING     Reads of it may be in flight.
 *   WRITING     The recycle header of the next generation is written. When a header could not be
 *               read, zeros are written over all up to there behind it, and it is written once
 *               more: of zeros alone a cut could take a kill, and leave the copy before it.
 *   FREEING     The transaction after that says FREE.
 *
 * Each reclaim gains room, however much of its victim has leases or pins: at most half a segment is
 * moved (victim.h), and what is moved fills the segments that it goes to but for less than a block,
 * which is a quarter of a segment at most. So a victim of which more than seven eighths are kills
 * that are needed is let go, as long as they are.
 *
 * Writes that fail close segments (nvme_tier.h). However many do, each root keeps a segment that
 * can become FREE without a write elsewhere: its last FREE one is for the last group of a victim
 * alone, and of one that is RECYCLING nothing is written again, nor are the kills of one that was
 * let go behind them. A victim of which something is pinned, or with more kills than one batch
 * takes, waits for all others; when none of them can be reclaimed it may take that one for any of
 * its groups. If a write fails then, too, it is an open that finds room again (strays.h).
 *
 * A victim that cannot be emptied (too much of it is pinned, no memory, be it the kernel's for a
 * read, a write that failed) is let go and passed over until another was reclaimed, or a batch for
 * which there is no room would be refused for what was so before it came. So is one of which
 * something cannot be read, the first time: an error may pass. In its next turn, for which it need
 * not wait when no other is left and a batch finds no room, a block that cannot be read is given
 * up, and so are the kills in a header that cannot be read (kill_lost_count). When the index fails,
 * nothing more is reclaimed in this life of the store; while the disks have no space (nvme_lack()),
 * nothing is begun. In each of these cases the copies that have left the victim are killed one by
 * one: a delete of their keys shall not promise what a crash takes back.
 */
#ifndef KVT_ENGINE_RECLAIM_H
#define KVT_ENGINE_RECLAIM_H

#include <stdbool.h>

#include "hash.h"
#include "kvtier/status.h"

enum {
    RECLAIM_RESERVE = 2, /* FREE segments of a root that puts leave. */
};

struct kvt_store;
struct op;
struct reclaim;

/* reclaim_open - segments that a crash left RECYCLING are finished before others are begun. */
enum kvt_status reclaim_open(struct kvt_store *store);
void reclaim_close(struct kvt_store *store);
bool reclaim_step(struct kvt_store *store);
bool reclaim_is_idle(const struct kvt_store *store);

/* reclaim_want - a batch found no room. False: nothing can be reclaimed now; else commit_unstall()
 * is called when there is news. */
bool reclaim_want(struct kvt_store *store);

/* reclaim_admitted - so many bytes were written for the first time. A fifth of them may be written
 * again, now or later in this life, to spare what victims hold (but for what is pinned, and while
 * most of NVMe is dead). */
void reclaim_admitted(struct kvt_store *store, uint64_t bytes);

/*
 * reclaim_has_dropped - a copy of a block with that fingerprint has left NVMe with the victim, but
 * its record is still in the index, or its header on the disk: a crash may bring it back, also
 * behind the kill of a newer copy. reclaim_settle - `op`, a delete of such a block, gets
 * delete_settle() when that is over: the segment is FREE, or the copy's kill waits.
 */
bool reclaim_has_dropped(const struct kvt_store *store, struct hash128 fingerprint);
void reclaim_settle(struct kvt_store *store, struct op *op);

#endif /* KVT_ENGINE_RECLAIM_H */
