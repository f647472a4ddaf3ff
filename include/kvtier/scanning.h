/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scanning.h - walking all blocks of a store. Part of kvtier.h, whose rules hold.
 */
#ifndef KVTIER_SCANNING_H
#define KVTIER_SCANNING_H

#include "kvtier/kvtier.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One block of kvt_scan(). */
struct kvt_scan_entry {
    kvt_namespace ns;
    uint16_t component;
    uint8_t tiers;       /* enum kvt_tiers; with KVT_TIER_NVME set the block is durable. */
    uint8_t is_hashed;   /* key holds the hash of a longer key. */
    uint32_t key_length; /* 1..64 */
    uint8_t key[64];
    uint64_t length;   /* Payload bytes. */
    uint64_t sequence; /* Of the durable record; 0: none. */
    uint32_t segment;  /* Where the durable copy lies (KVT_TIER_NVME). */
    uint32_t page;
    uint64_t stored_length; /* Of the durable copy; 0: none. */
    uint16_t part_count;    /* Equal parts that can be read alone. */
    uint8_t is_encoded;     /* Parts of the durable copy are. */
    uint8_t reserved0[5];
};

/*
 * kvt_scan - walk all blocks: *cursor starts at 0; fills up to `count_max` entries (1..) and says
 * how many. KVT_MISS and 0 at the end. Blocks that come or go meanwhile may or may not be seen; no
 * other is missed or seen twice.
 *
 * Threads: any. Ownership: borrows. Blocks: briefly.
 */
KVT_CHECKED enum kvt_status kvt_scan(kvt_store *store, uint64_t *cursor,
    struct kvt_scan_entry *entries_out, uint32_t count_max, uint32_t *count_out);

#ifdef __cplusplus
}
#endif

#endif /* KVTIER_SCANNING_H */
