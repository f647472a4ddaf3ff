/* SPDX-License-Identifier: Apache-2.0 */
/*
 * readiness.h - to use what a get has brought before all of it is there: part after part, and by
 * the caller's own stream while copies still run. Part of kvtier.h, whose rules hold.
 *
 * With KVT_GET_BY_PART in the flags of all gets of a submission, their parts (layers, say) are
 * fetched and copied in order: the first of every block, then the second ... A program computes
 * with layer n while n + 1 comes. All of these gets name the same part_first and part_count (1 or
 * more), and a capacity that is a multiple of that. kvt_get_submit() itself refuses (KVT_E_INVAL)
 * parts from KVT_PARTS_MAX on, which no block has, and more than KVT_BATCH_MAX parts in all.
 * Results, completions and cancelling are as without; so are the places of parts in memory that is
 * spread (layouts.h).
 *
 * All parts of a block that a get brings are those of one put. When another put takes the place of
 * that one before each part has been begun (KVT_PUT_REPLACE, or the block left and was put again),
 * the parts that are left are KVT_MISS; what parts there are in place stay what they were. Two gets
 * of a key, also of one submission, may find two puts. A block's result is that of the first of its
 * parts with an error, or else of the first that is not KVT_OK.
 */
#ifndef KVTIER_READINESS_H
#define KVTIER_READINESS_H

#include "kvtier/kvtier.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVT_PART_ALL UINT32_MAX /* The whole blocks. */

/*
 * kvt_ticket_part_wait - wait, at most `timeout_ns`, until `part` of each block is settled. Parts
 * have the numbers that they have in the block.
 *
 * KVT_OK: it is in place in every destination. KVT_LATE: not yet. KVT_E_INVAL: NULL; a ticket
 * without KVT_GET_BY_PART; a part that it does not bring. Any other status: it is the first that a
 * block got for this part (kvt_ticket_results() has them all, when the ticket is done); the part is
 * in place in the other destinations.
 * Threads: any, also when the submission named a queue. Ownership: nothing changes hands. Blocks:
 * as asked.
 */
KVT_CHECKED enum kvt_status kvt_ticket_part_wait(
    kvt_ticket *ticket, uint32_t part, uint64_t timeout_ns);

/*
 * kvt_ticket_stream_wait - work that is submitted to `stream` from now on waits, on the device,
 * until `part` (without KVT_GET_BY_PART: KVT_PART_ALL) has been copied to each destination. The
 * host does not wait.
 *
 * KVT_OK: the stream waits, or there is nothing to wait for any more. KVT_NOT_READY: the copy of
 * some block was not queued yet, because it is not verified, not read, or waits for room or for
 * submit->wait_event: nothing has changed, ask again. When destinations lie in memory of several
 * devices, only streams of the first one's wait on the device: for those of another it is
 * KVT_NOT_READY until all copies of the part are over. KVT_E_INVAL: NULL, not a ticket of gets, no
 * destination in memory of `device`, no such part, the default stream (NULL), a stream that is
 * being captured. KVT_E_GPU: the device is lost. Any other status: the first that a block got; the
 * stream waits for the others.
 * Threads: any. Ownership: `stream` is a cudaStream_t of the device. Blocks: never, but for the
 * driver.
 */
KVT_CHECKED enum kvt_status kvt_ticket_stream_wait(
    kvt_ticket *ticket, uint32_t part, uint32_t device, void *stream);

#ifdef __cplusplus
}
#endif

#endif /* KVTIER_READINESS_H */
