/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hints.h - what the caller knows about the worth of blocks, and of whole namespaces. Part of
 * kvtier.h, whose rules hold.
 */
#ifndef KVTIER_HINTS_H
#define KVTIER_HINTS_H

#include "kvtier/kvtier.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * kvt_importance_set - the weight (struct kvt_put) of `count` blocks from now on. Keys that are not
 * there are passed over. On NVMe it is kept with the block's next write: until then a restart
 * brings the old one back. What the weight does is the policy's affair: KVT_POLICY_GHI keeps blocks
 * longer that weigh more than half of those that were put lately, those of the top tenth longest;
 * KVT_POLICY_LRU and KVT_POLICY_S3FIFO do not look at it.
 *
 * KVT_MISS: none of the keys is there. KVT_E_INVAL as kvt_lookup(). KVT_E_NOMEM.
 * Threads: any. Ownership: borrows. Blocks: until the loop has answered.
 */
KVT_CHECKED enum kvt_status kvt_importance_set(kvt_store *store, kvt_namespace ns,
    const struct kvt_key *keys, uint32_t count, uint32_t importance);

/*
 * kvt_touch - `count` keys (a chain, first block first) count as used now, as if a lease of them
 * had been released: for blocks that the caller still has elsewhere and will want back. Keys that
 * are not there are passed over. Of many touches in a row, faster than the store's thread takes
 * them, the policy may not learn of some. In the statistics it is a lookup.
 *
 * KVT_E_INVAL as kvt_lookup(). KVT_E_NOSPC: lease_count_max. KVT_E_NOMEM.
 * Threads: any. Ownership: borrows. Blocks: never; it takes effect soon after.
 */
KVT_CHECKED enum kvt_status kvt_touch(
    kvt_store *store, kvt_namespace ns, const struct kvt_key *keys, uint32_t count);

/*
 * kvt_pin - `count` blocks stay in the tiers in which they are, and in those to which they come
 * later, for `ttl_ns` from now; KVT_FOREVER: as long as the store is open. No copy of them is given
 * up for room, and on NVMe they are written again when their segment is reclaimed. A block that is
 * pinned already has the new end from now on; 0 ends it at once. Keys that are not there are passed
 * over.
 *
 * A pin gives no address (kvt_lookup() with a lease does), survives no restart, and keeps nothing
 * from kvt_delete_submit(), kvt_namespace_clear(), a put with KVT_PUT_REPLACE (the new block is not
 * pinned), damage, or the loss of a device. kvt_demote_submit() of a pinned block answers
 * KVT_NOT_READY.
 *
 * KVT_MISS: none of the keys is there. KVT_E_NOSPC: all that is pinned would have more than
 * pin_bytes_max bytes (whole pages, each block once): nothing changed. KVT_E_NOMEM: nothing
 * changed. KVT_E_INVAL as kvt_lookup().
 * Threads: any. Ownership: borrows. Blocks: until the loop has answered.
 */
KVT_CHECKED enum kvt_status kvt_pin(kvt_store *store, kvt_namespace ns, const struct kvt_key *keys,
    uint32_t count, uint64_t ttl_ns);

/*
 * kvt_namespace_share_set - `bytes` of `tier` (one of enum kvt_tiers; HBM: all devices together)
 * are the namespace's own, while the store is open: as long as its copies there take no more, none
 * of them goes for what another namespace writes. 0: none (the default). Above its share, and
 * without one, a namespace competes for the rest. It is no limit: what is free can be used. HBM is
 * cut into pieces of at most 64 MiB, each for blocks of one size (in whole pages) at a time: what a
 * share keeps there may lie in many of them, the rest of which is of no use for blocks of other
 * sizes (in HOST it is moved together). Each search for room in HBM or HOST passes over what shares
 * and pins keep: beside 1,000 such blocks that are old, puts of 4 KiB that evict are 30 to 80 times
 * slower with KVT_POLICY_LRU and KVT_POLICY_S3FIFO, 3 times with KVT_POLICY_GHI.
 *
 * KVT_E_INVAL: no such namespace or tier. KVT_E_UNSUPPORTED: the store does not have that tier.
 * KVT_E_NOSPC: all shares together would be more than can be promised: 90 % of HBM or HOST; of NVMe
 * half of what it has beyond four segments of each root, less pin_bytes_max.
 * Threads: any. Ownership: nothing changes hands. Blocks: until the loop has answered; for the
 * first share in proportion to the map.
 */
KVT_CHECKED enum kvt_status kvt_namespace_share_set(
    kvt_store *store, kvt_namespace ns, uint32_t tier, uint64_t bytes);

#define KVT_PHASE_BLOCKS_MAX 65536u /* Blocks that are remembered for all waits together. */

/* What a request does with its chain of blocks. */
enum kvt_phase {
    KVT_PHASE_PREFILL = 1, /* It reads them now. */
    KVT_PHASE_DECODE = 2,  /* It builds on them now. */
    KVT_PHASE_IO_WAIT = 3, /* It waits for something outside: a tool's answer, say. */
};

/*
 * kvt_phase_set - what the request of this chain of `count` keys, first block first, does from now
 * on. `resume_ns`, with KVT_PHASE_IO_WAIT: it goes on about so long from now; else zero.
 *
 * KVT_PHASE_IO_WAIT gives up the copies in HBM now, last block first, as kvt_demote_submit() to
 * HOST does. Blocks stay that are pinned, leased or being read, or have a child in HBM that stays
 * or belongs to another chain. The store remembers which blocks had copies in which HBM, and has
 * them back there, first block first, before the request goes on: it begins as long before as it
 * takes to load them at the rates that kvt_estimate() knows (1 GB/s while it knows none), twice
 * that and 5 ms to be sure. That is a bulk prefetch: its reads give way. When there is less time
 * than that, nothing is given up. 0: so too. KVT_FOREVER: nobody knows when; nothing is brought
 * back before the call that ends the wait. The same wait again: the new time counts.
 *
 * KVT_PHASE_PREFILL and KVT_PHASE_DECODE end the waits whose keys are the first of these (all of
 * them, as a rule): what was remembered is brought back now, not as bulk. The blocks count as used,
 * as by kvt_touch(). A wait ends too when its blocks are on their way back, and by kvt_close().
 * Blocks that were deleted meanwhile, or cleared with their namespace, are passed over. Nothing is
 * promised: room in HBM may be short then, and what is back may be evicted again.
 *
 * KVT_MISS: none of the keys is there. KVT_E_BUSY: a quarter of request_count_max chains wait (a
 * wait takes two tickets), or all tickets are out. KVT_E_NOSPC: KVT_PHASE_BLOCKS_MAX. With the last
 * two nothing changed. KVT_E_INVAL as kvt_lookup(), or no such phase, or a resume_ns without
 * KVT_PHASE_IO_WAIT. KVT_E_NOMEM.
 * Threads: any. Ownership: borrows. Blocks: until the loop has answered.
 */
KVT_CHECKED enum kvt_status kvt_phase_set(kvt_store *store, kvt_namespace ns,
    const struct kvt_key *keys, uint32_t count, enum kvt_phase phase, uint64_t resume_ns);

/* What it would take to have blocks again. Set struct_size. */
struct kvt_cost {
    uint32_t struct_size;             /* sizeof(struct kvt_cost) */
    uint32_t leading_count;           /* Blocks before the first miss: the rest is about these. */
    uint64_t hbm_bytes;               /* Payload bytes with a copy in HBM; ... */
    uint64_t host_bytes;              /* ... of the others, in HOST; ... */
    uint64_t nvme_bytes;              /* ... and on NVMe only. */
    uint64_t load_ns;                 /* To get what is in HOST and on NVMe, at the rates at which
                                       * gets, and moves up, had bytes from there of late: in the
                                       * last gigabytes, or while the last ten seconds or so of
                                       * loading lasted (a part from NVMe counts as the pages that
                                       * it is in). 0: nothing has to be loaded, or a rate is not
                                       * known. */
    uint64_t recompute_ns;            /* Sum of recompute_us (struct kvt_put). */
    uint32_t recompute_unknown_count; /* Blocks that do not say. */
    uint32_t reserved0;
};

/*
 * kvt_estimate - load against recompute, for a chain of `count` keys, first block first. An
 * estimate promises nothing: what else is under way counts only in that the rates are means of what
 * was seen, however busy the store was then.
 *
 * KVT_E_INVAL as kvt_lookup(), or cost_out is NULL or has another struct_size. KVT_E_NOMEM.
 * Threads: any. Ownership: borrows. Blocks: until the loop has answered.
 */
KVT_CHECKED enum kvt_status kvt_estimate(kvt_store *store, kvt_namespace ns,
    const struct kvt_key *keys, uint32_t count, struct kvt_cost *cost_out);

#ifdef __cplusplus
}
#endif

#endif /* KVTIER_HINTS_H */
