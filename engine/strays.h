/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strays.h - batches that a crash left on disk and that shall not count: without a commit of the
 * index, or in a segment that was being recycled.
 *
 * The index does not know their blocks and their kills, and nobody can see them; but a later
 * rebuild would take them for good, although the lives in between went on without them. So the next
 * open takes them away. In a segment that was ACTIVE they are those above its batch_number, and in
 * one that is RECYCLING all: what had left it before the crash may be deleted after it, and nothing
 * is written then that would say so. The first page of each header of the former is overwritten
 * with zeros; those of the latter get a recycle header of the next generation, which hides all of
 * them at once: header by header, a cut could leave a copy without the kill that stands behind it
 * there, and nowhere else. Both are synced; zeros that stand there already, and a recycle header
 * that hides them, are synced behind a crash, with the headers of the next paragraph. Behind an
 * orderly end all that has left such a segment has kills elsewhere: nothing is in doubt then.
 *
 * In a FREE segment they may stand anywhere, also behind one of which the disk has nothing, and the
 * index does not say which ones a life has begun to fill. So each gets a higher generation for its
 * next fill, and a recycle header of it that voids all others, whatever they are: a write a
 * segment, one after the other, one sync, and no read. A rebuild, which reads all of them, has each
 * voided likewise.
 *
 * A segment that was ACTIVE goes on being filled behind its last batch, one a root: a store whose
 * process dies again and again does not spend a segment on each life, and reclaiming keeps the room
 * that it needs. Where a root has less than that all the same, since writes that failed have closed
 * its segments and the store was closed, or cut off, before it could reclaim them, one that is
 * SEALED goes on likewise: what failed behind its last batch is overwritten, and the index has it
 * as ACTIVE before anything else is written there.
 *
 * A header that was torn is none. A page that cannot be read may be one, unless a batch that was
 * committed stands behind it: all from the last commit, or the recycle header, up to it is
 * overwritten, too. When it still cannot be read, or the one that it begins behind was not found,
 * it is as if a header could not be erased, at each open until the segment is recycled: to seal it
 * for good would leave the header to a rebuild, on a day on which the disk can read it.
 *
 * Threads   the thread that opens, before anybody else has the store.
 */
#ifndef KVT_ENGINE_STRAYS_H
#define KVT_ENGINE_STRAYS_H

#include <stdbool.h>

#include "kvtier/status.h"

struct kvt_store;

/*
 * strays_recycle - the FREE segments; commits their facts. After an unclean stop, and behind a
 * rebuild, which has searched them (was_searched): there the headers are for what the disk answers
 * another day. When one cannot be written or synced (no memory, no space in a sparse file, a disk
 * that fails), and they were not searched, no delete of a key that is not there is promised in this
 * life, and no close marks this life clean (commit_is_in_doubt()), so that the next open tries
 * again. A line in the log says so.
 */
enum kvt_status strays_recycle(struct kvt_store *store, bool was_searched);

/*
 * strays_remove - the others, at each open. When that cannot be, likewise, and from where it failed
 * on segments that were ACTIVE stay SEALED, and ACTIVE in the index; but that a root stays without
 * room costs no promise. Behind the start of the loop, when that was told before (seeks_strays).
 */
void strays_remove(struct kvt_store *store);

#endif /* KVT_ENGINE_STRAYS_H */
