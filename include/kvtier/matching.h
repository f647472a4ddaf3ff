/* SPDX-License-Identifier: Apache-2.0 */
/*
 * matching.h - how much of a chain can be used when its blocks have several components. Part of
 * kvtier.h, whose rules hold.
 */
#ifndef KVTIER_MATCHING_H
#define KVTIER_MATCHING_H

#include "kvtier/kvtier.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVT_MATCH_COMPONENTS_MAX 16u

enum kvt_match_policy {
    KVT_MATCH_ALL = 1,      /* Every block of the prefix (attention KV, indexer keys). */
    KVT_MATCH_TRAILING = 2, /* The last trailing_count blocks of the prefix, or all of a shorter one
                             * (sliding windows, recurrent state). */
};

struct kvt_match_component {
    uint16_t component;      /* As in struct kvt_key. */
    uint16_t policy;         /* enum kvt_match_policy */
    uint32_t trailing_count; /* KVT_MATCH_TRAILING: 1 or more. KVT_MATCH_ALL: zero. */
};

/*
 * kvt_match - the longest prefix of a chain of `count` keys that can be used.
 *
 * A prefix is usable when each of the `component_count` components has the blocks that its policy
 * asks for. *usable_out gets the length of the longest one in blocks, 0 when there is none;
 * usable_lengths_out (`count` bytes, may be NULL) gets 1 at [n - 1] for every usable length n, else
 * 0. keys[i].component must be zero: `components` name them, each once. With `lease_out` all that
 * the longest usable prefix needs is pinned by one lease, and nothing else; key i of components[c]
 * has the index c * count + i in it. Otherwise as kvt_lookup(), which is one component with
 * KVT_MATCH_ALL.
 *
 * KVT_E_INVAL: a NULL, a key's bound, component_count not in 1..16, an unknown policy, a
 * trailing_count that does not fit its policy, a component named twice, count * component_count
 * above KVT_BATCH_MAX. KVT_E_NOSPC: lease_count_max. KVT_E_NOMEM.
 * Threads: any. Ownership: borrows; gives *lease_out. Blocks: never.
 */
KVT_CHECKED enum kvt_status kvt_match(kvt_store *store, kvt_namespace ns,
    const struct kvt_key *keys, uint32_t count, const struct kvt_match_component *components,
    uint32_t component_count, uint32_t *usable_out, uint8_t *usable_lengths_out,
    kvt_lease *lease_out);

#ifdef __cplusplus
}
#endif

#endif /* KVTIER_MATCHING_H */
