/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strays.h - batches that a crash left on disk without a commit of the index.
 *
 * The index does not know their blocks and their kills, and nobody can see them; but a later
 * rebuild would take them for good, although the lives in between went on without them. So they are
 * made void at the next open. In a segment that was ACTIVE they are those above its batch_number: a
 * void entry (tiers/FORMAT.md section 3.3) is written for each. A FREE segment in which some stand
 * is recycled under a higher generation; all other FREE segments get a higher generation for their
 * next fill, so that a torn header in them can never be followed by one of the same generation.
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

/* strays_void - write void entries for the segments in store->active_at_crash, and wait for them.
 * When that cannot be, no delete is promised in this life, and a line in the log says so. Behind
 * the start of the loop. KVT_E_NOMEM. */
enum kvt_status strays_void(struct kvt_store *store);

#endif /* KVT_ENGINE_STRAYS_H */
