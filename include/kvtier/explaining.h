/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explaining.h - why a block is where it is, or is not there. The rules of kvtier.h hold.
 */
#ifndef KVTIER_EXPLAINING_H
#define KVTIER_EXPLAINING_H

#include "kvtier/kvtier.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVT_FATES_MAX 65536u /* Blocks that left and are remembered; fewer in a small store. */

/* What became of a block that is not there. */
enum kvt_fate {
    KVT_FATE_NONE = 0,      /* It was never stored here, nothing is remembered of it any more, or a
                             * put with KVT_PUT_REPLACE is about to take its place. */
    KVT_FATE_EVICTED = 1,   /* Given up in memory, for room, and NVMe did not have it; or in all
                             * tiers, for room in the map (entry_count_max). */
    KVT_FATE_RECLAIMED = 2, /* Given up on NVMe, for room, with its segment; memory did not have
                             * it. */
    KVT_FATE_REFUSED = 3,   /* Given up in memory, for room; it was not worth a write to NVMe. */
    KVT_FATE_DAMAGED = 4,   /* Its checksum did not agree, or it could not be moved. */
    KVT_FATE_DELETED = 5,
    KVT_FATE_CLEARED = 6,     /* With its namespace. */
    KVT_FATE_PUT_FAILED = 7,  /* It was refused, or its bytes did not arrive. */
    KVT_FATE_DEVICE_LOST = 8, /* Nothing but a device that was lost had it. */
    KVT_FATE_CLOSED = 9,      /* Only memory had it when the store was closed. */
};

/* Set struct_size. */
struct kvt_explanation {
    uint32_t struct_size; /* sizeof(struct kvt_explanation) */
    uint8_t tiers;        /* enum kvt_tiers: where it is; 0: nowhere. */
    uint8_t fate;         /* enum kvt_fate; KVT_FATE_NONE when it is somewhere. */
    uint16_t reserved0;
    kvt_namespace other; /* A namespace of the store that has this key, when this one has not; id 0:
                          * none has. */
    uint32_t reserved1;
    uint64_t when_seconds; /* When that became of it, since 1970, by the machine's clock. */
    /*
     * What decided, to two digits; NaN: nothing that can be compared (all but KVT_POLICY_GHI).
     *
     * EVICTED    score: what the block was worth in its place; cut: the same of the block that was
     *            given up there before it. In HBM that is expected reuses in each second that it
     *            stands there; in HOST these times the nanoseconds that a use costs more without
     *            it, as far as that is known. If NVMe had it, which a full map does not look at:
     *            expected reuses in each second; cut: NaN.
     * RECLAIMED  score: expected reuses in each second; cut: the same of the least block that the
     *            reclaim wrote again of its own choice; NaN: none.
     * REFUSED    score: nanoseconds that having it on NVMe was expected to save; cut: the price of
     *            a write, which is more.
     */
    double score;
    double cut;
};

/*
 * kvt_why - where the block is, or what became of it. The last KVT_FATES_MAX or so blocks that left
 * are remembered, over a kvt_close() and, but for the last minute, over a crash too. They are told
 * apart by 64 bits of a hash: what is said of one is another's in one of 10^14 cases.
 *
 * It is no lookup in the statistics, and no use of the block.
 *
 * KVT_E_INVAL: as kvt_lookup(), or why_out is NULL or has another struct_size.
 * Threads: any. Ownership: borrows. Blocks: never; in proportion to the namespaces when the block
 * is not there.
 */
KVT_CHECKED enum kvt_status kvt_why(
    kvt_store *store, kvt_namespace ns, const struct kvt_key *key, struct kvt_explanation *why_out);

#ifdef __cplusplus
}
#endif

#endif /* KVTIER_EXPLAINING_H */
