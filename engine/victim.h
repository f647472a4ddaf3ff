/* SPDX-License-Identifier: Apache-2.0 */
/*
 * victim.h - which segment is reclaimed next, and which of its blocks are worth writing again.
 *
 * Owns      the two orders: of segments, and of the blocks of one segment.
 * Not here  doing it (reclaim.h).
 * Threads   the loop.
 *
 * Segments: in the order in which they were filled, the oldest first, over and over: what is worth
 * it is written again, behind what is new, and has another turn. A segment without blocks comes
 * first of all, and one with copies that are being replaced last. All that among those of roots
 * that are short of FREE segments, and only when a batch finds no room among others: whatever
 * leaves another root, one that is short stays so, also when nothing of it can be reclaimed.
 *
 * Kills that are needed are written again, too: until the copy that they name is void. A segment
 * full of them gains nothing, again and again, while those with the copies wait. So they count like
 * what lives: how many were needed is known of each segment that this life wrote to, or whose
 * headers it has read (segment_kills_note()); what gains less than an eighth of a segment is let
 * go.
 *
 * Blocks: pinned ones (by readers, or kvt_pin()) stay whatever they are, up to half a segment. So
 * do those that a share keeps: all of a namespace that has no more than its share; of one that has
 * more, what is not above it when the least important ones have left. The others go from the ends
 * of their chains: a block that no other in the map builds on any more, if it was not used later
 * than the average block on NVMe; then its parent, if that is one, and so on.
 * Of what is left a block that nothing builds on stays if the policy finds it worth being written
 * once more; the others stay, since what builds on them could not be reached by a prefix. When they
 * fill more than half a segment, or more than can be written elsewhere, or than the credit allows,
 * those go that are least important to the policy, the deepest first: so each reclaim gains at
 * least half a segment, and one is possible when no segment is free.
 *
 * The credit holds what is written again to a fifth of what was admitted (reclaim.h). On the
 * conversation trace (NVMe of 30 % of its blocks, segments of 200 to 312) that costs 0.3 points of
 * hits in the mean beside eviction block by block, with LRU and with the default policy. Segments
 * in the order of their blocks' mean last use cost the default policy 0.6: one that is read now and
 * then stays for long, with all that nobody asks for in it. Mean importance costs 0.9, the median
 * of samples of it 0.4 to 0.6, the exact median 0.4, and two segments filled at a time, by uses or
 * for what is written again, 0.6 to 0.7.
 *
 * When less than half of what the SEALED segments hold is alive, or such kills, nothing has to be
 * lost: the segment with the least of that goes first, and all of it stays for which there is room
 * elsewhere; when that is not all, and another is emptier, it is passed over. So is one of which
 * more than half would stay (it was chosen by its age, or those that are emptier had no turn): to
 * write it again gains nothing, and might be done for ever. When no other can be reclaimed its
 * blocks go as if most were alive. For the same reason copies that are being replaced put off the
 * turn of a segment only behind those of which at most half stays.
 */
#ifndef KVT_ENGINE_VICTIM_H
#define KVT_ENGINE_VICTIM_H

#include "relocate.h"
#include "segment.h"

/* More of it is pinned than can be moved with a gain; or another one costs less. */
#define VICTIM_UNMOVABLE UINT32_MAX

/* victim_is_writable - whether its root takes writes. Where it takes none nothing can be reclaimed,
 * and what lives there can still be read. */
bool victim_is_writable(const struct kvt_store *store, const struct segment *segment);

/* victim_root_is_short - it takes writes, and has fewer FREE segments than it should, also with
 * those that its present victims will be. */
bool victim_root_is_short(const struct kvt_store *store, uint32_t root);

/* victim_choose - the segment to reclaim next; NULL: none can be. `is_for_shortage`: nobody waits
 * for room, but a root is short: of another root only where most is dead. */
struct segment *victim_choose(struct kvt_store *store, bool is_for_shortage);

/* victim_unfinished - a segment that a crash left RECYCLING, and that was not passed over; NULL:
 * there is none. */
struct segment *victim_unfinished(struct kvt_store *store);

/* victim_is_any_passed_over - a segment was, and has no turn. victim_spare_none - those that were
 * are looked at again. */
bool victim_is_any_passed_over(const struct kvt_store *store);
void victim_spare_none(struct kvt_store *store);

/* victim_spare_unreadable - those of them of which something could not be read. False: there is
 * none. */
bool victim_spare_unreadable(struct kvt_store *store);

/* victim_gains - whether the segment, of whose kills so many are needed, is worth a reclaim: else
 * it is let go, and others have their turn. */
bool victim_gains(struct kvt_store *store, struct segment *victim, uint32_t kill_count);

/* victim_is_last - no other segment can be reclaimed now: they were passed over, or cannot be. Then
 * what stays of this one may take the last FREE segment of its root. */
bool victim_is_last(struct kvt_store *store, const struct segment *victim);

/* victim_survivors - put the blocks that are to be written again in front, and say how many they
 * are; or VICTIM_UNMOVABLE. All are in one segment. `takes_last`: victim_is_last(). With shares the
 * last of the others is to leave first. What they take is taken off *credit_bytes, unless most of
 * NVMe is dead. */
uint32_t victim_survivors(struct kvt_store *store, struct resident *residents, uint32_t count,
    bool takes_last, uint64_t *credit_bytes);

#endif /* KVT_ENGINE_VICTIM_H */
