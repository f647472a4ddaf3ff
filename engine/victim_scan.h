/* SPDX-License-Identifier: Apache-2.0 */
/*
 * victim_scan.h - what the batch headers of segments say that will be reclaimed next.
 *
 * Owns      the scans, and two threads that read: a read waits some milliseconds behind the writes
 *           in flight, and the next header is found through the one before it. A worker that waits
 *           copies nothing, and a reclaim that began with reading would be slower than the writes.
 * Not here  which segment (victim.h), what becomes of it (reclaim.h).
 * Threads   the loop; scan_run() those two.
 *
 *   IDLE --victim_scan_start()--> READING --scan_finish()--> READY --victim_scan_take()--> TAKEN
 *    ^                                                                                      |
 *    +------------------------------- victim_scan_end() ------------------------------------+
 *
 * From READING to the end the segment is claimed: nobody chooses it a second time. Until it is
 * TAKEN nothing else happens to it. Its headers do not change: what a scan found does not age.
 */
#ifndef KVT_ENGINE_VICTIM_SCAN_H
#define KVT_ENGINE_VICTIM_SCAN_H

#include <stdbool.h>

#include "hash.h"
#include "kvtier/status.h"

struct kvt_store;
struct segment;
struct tier_kill;
struct victim_scans;

/* A record in a header; its block may be long gone. */
struct victim_trace {
    struct hash128 fingerprint;
    uint32_t page;
};

struct victim_scan; /* A TAKEN one. */

/* victim_scan_open - needs the NVMe tier; a store without one, or one that is only read, has no
 * scans. KVT_E_NOMEM. */
enum kvt_status victim_scan_open(struct kvt_store *store);
void victim_scan_stop(struct kvt_store *store); /* The threads; before the tier is closed. */
void victim_scan_close(struct kvt_store *store);

/* victim_scan_start - claim the next victim (victim_choose()) and read its headers. False: there is
 * none, or all scans are in use. */
bool victim_scan_start(struct kvt_store *store, bool is_for_shortage);

/* victim_scan_ahead - the same while a root is short, or a segment is RECYCLING and nothing else is
 * being reclaimed (`is_idle`). Costs nothing when it was in vain, and nothing has changed. */
bool victim_scan_ahead(struct kvt_store *store, bool is_idle);

/* victim_scan_count - claimed segments of that root: what they gain is still to come. */
uint32_t victim_scan_count(const struct kvt_store *store, uint32_t root);
bool victim_scan_is_ready(const struct kvt_store *store);
bool victim_scan_is_reading(const struct kvt_store *store);

/* victim_scan_take - the oldest that is READY; NULL: none is. victim_scan_end: give it back. */
struct victim_scan *victim_scan_take(struct kvt_store *store);
void victim_scan_end(struct victim_scan *scan);

/* Of a TAKEN one. The status is KVT_E_NOMEM when not all was noted that its headers say; kills may
 * be changed. victim_scan_unreadable - behind the last page that the disk could not read, and that
 * may be one of a header: records and kills in it are missing. 0: all could be read.
 * victim_scan_generation - the highest that was found. */
struct segment *victim_scan_segment(const struct victim_scan *scan);
enum kvt_status victim_scan_status(const struct victim_scan *scan);
uint32_t victim_scan_unreadable(const struct victim_scan *scan);
uint32_t victim_scan_generation(const struct victim_scan *scan);
const struct victim_trace *victim_scan_traces(const struct victim_scan *scan, uint32_t *count_out);
struct tier_kill *victim_scan_kills(struct victim_scan *scan, uint32_t *count_out);

#endif /* KVT_ENGINE_VICTIM_SCAN_H */
