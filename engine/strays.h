/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strays.h - batches that a crash left on disk without a commit of the index.
 *
 * The index does not know their blocks and their kills, and nobody can see them; but a later
 * rebuild would take them for good, although the lives in between went on without them. So they are
 * made void at the next open. In a segment they are those above its batch_number: a void entry
 * (tiers/FORMAT.md section 3.3) is written for each that stands in a segment that was ACTIVE or is
 * RECYCLING. A FREE segment in which some stand becomes RECYCLING before that; all other FREE
 * segments get a higher generation for their next fill, so that a torn header in them can never be
 * followed by one of the same generation.
 *
 * Of a FREE segment only the beginning is looked at: when the header of its first batch is torn, a
 * whole one behind it is not found, and a rebuild takes that one's blocks until the segment is used
 * again. Nobody was told that they exist.
 *
 * Threads   the thread that opens, before anybody else has the store.
 */
#ifndef KVT_ENGINE_STRAYS_H
#define KVT_ENGINE_STRAYS_H

#include "kvtier/status.h"

struct kvt_store;

/* strays_recycle - the FREE segments; commits the facts of what it changed. After an unclean
 * stop. */
enum kvt_status strays_recycle(struct kvt_store *store);

/* strays_void - write the void entries, and wait for them. When that cannot be, no delete of a key
 * that is not there is promised in this life, and a line in the log says so. Behind the start of
 * the loop. KVT_E_NOMEM. */
enum kvt_status strays_void(struct kvt_store *store);

#endif /* KVT_ENGINE_STRAYS_H */
