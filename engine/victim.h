/* SPDX-License-Identifier: Apache-2.0 */
/*
 * victim.h - which segment is reclaimed next, and which of its blocks are worth writing again.
 *
 * Owns      the two orders: of segments, and of the blocks of one segment.
 * Not here  doing it (reclaim.h).
 * Threads   the loop.
 *
 * Segments: the mean of the last uses of its blocks, lowest first; of equals (after a restart none
 * was used yet) the one whose records are oldest. A segment without blocks comes first of all, and
 * one with copies that are being replaced last.
 *
 * Blocks: pinned ones (by readers, or kvt_pin()) stay whatever they are, up to half a segment. Of
 * the others those stay that have children in the map, without which these could not be reached by
 * a prefix, and those that were used later than the average block on NVMe, if the policy finds them
 * worth being written once more. When they fill more than a quarter of a segment, or more than can
 * be written elsewhere, those go that are least important to the policy, the deepest first: so each
 * reclaim gains at least half a segment, and one is possible when no segment is free. A quarter,
 * because on the conversation trace (NVMe of 30 % of its blocks) it had as many hits as a half,
 * with a quarter of the writes.
 *
 * When less than half of what the SEALED segments hold is alive, nothing has to be lost: the
 * segment with the least alive goes first, and all of it stays for which there is room elsewhere.
 */
#ifndef KVT_ENGINE_VICTIM_H
#define KVT_ENGINE_VICTIM_H

#include "relocate.h"
#include "segment.h"

#define VICTIM_UNMOVABLE UINT32_MAX /* More of it is pinned than can be moved with a gain. */

/* victim_choose - the segment to reclaim next; NULL: none can be. */
struct segment *victim_choose(struct kvt_store *store);

/* victim_unfinished - a segment that a crash left RECYCLING; NULL: there is none. */
struct segment *victim_unfinished(struct kvt_store *store);

/* victim_spare_none - segments that were passed over are looked at again. */
void victim_spare_none(struct kvt_store *store);

/* victim_survivors - put the blocks that are to be written again in front, and say how many they
 * are; or VICTIM_UNMOVABLE. All are in one segment. */
uint32_t victim_survivors(struct kvt_store *store, struct resident *residents, uint32_t count);

#endif /* KVT_ENGINE_VICTIM_H */
