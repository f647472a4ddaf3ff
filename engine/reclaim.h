/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reclaim.h - making segments free: the blocks of the segment that was used least lately leave NVMe, and
 * the segment is recycled under a higher generation.
 *
 * Owns      the one reclaim that may be under way.
 * Threads   the loop; the scan of the victim's headers runs on a worker.
 * Limit     survivors are not rewritten: what is dropped with its segment and has no copy in HOST is
 *           gone, also when other blocks of the segment were used lately or have children elsewhere.
 *
 *   IDLE --reclaim_start()--> SCANNING --scan_finish()--> DELETING --delete_finish()--> HEADING
 *    ^                            | some block is pinned                                   |
 *    |<---------------------------+                    head_start(): no reader is left     |
 *    |                                                                                     v
 *    +----------- free_finish() ------- FREEING <---------- head_finish() ------------- WRITING
 *
 *   SCANNING  A worker reads the victim's batch headers: records and kills.
 *   DELETING  Its blocks have left the map; the index forgets their records and has it as RECYCLING.
 *   HEADING   Reads of it may be in flight.
 *   WRITING   The recycle header of the next generation is written, with the kills of the victim whose
 *             own copies still stand somewhere.
 *   FREEING   The index has it as FREE.
 */
#ifndef KVT_ENGINE_RECLAIM_H
#define KVT_ENGINE_RECLAIM_H

#include <stdbool.h>

#include "kvtier/status.h"

struct kvt_store;
struct reclaim;

/* reclaim_open - also finds the segments that a crash left RECYCLING: they are finished first. */
enum kvt_status reclaim_open(struct kvt_store *store);
void reclaim_close(struct kvt_store *store);
bool reclaim_step(struct kvt_store *store);
bool reclaim_is_idle(struct kvt_store *store);

/* reclaim_want - a batch found no room. False: nothing can be reclaimed now. */
bool reclaim_want(struct kvt_store *store);

#endif /* KVT_ENGINE_RECLAIM_H */
