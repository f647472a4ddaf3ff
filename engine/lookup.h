/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lookup.h - keys of callers, looked up in the map on their own threads.
 *
 * Threads   any.
 */
#ifndef KVT_ENGINE_LOOKUP_H
#define KVT_ENGINE_LOOKUP_H

#include "kvtier/kvtier.h"

enum {
    LOOKUP_KEYS = 64, /* Looked up at once: enough to hide cache misses. */
};

/* lookup_check - the store, the namespace, the keys and how many they are. */
enum kvt_status lookup_check(
    struct kvt_store *store, kvt_namespace ns, const struct kvt_key *keys, uint32_t count);

/*
 * lookup_find - `count` <= LOOKUP_KEYS keys that were checked; of `component` when that is not
 * NULL, else each of its own. Numbers (ENTRY_NONE: a miss) and tiers are filled, and what was found
 * is pinned. Returns the hits before the first miss. Counts them in the statistics.
 */
size_t lookup_find(struct kvt_store *store, kvt_namespace ns, const struct kvt_key *keys,
    uint32_t count, const uint16_t *component, uint32_t *numbers, uint8_t *tiers);

/* Blocks of a chain before its first miss, and how many of them have such copies. */
struct lookup_leading {
    uint32_t count;
    uint32_t hbm_count;
    uint32_t memory_count; /* HBM or HOST. */
};

/* lookup_chain - kvt_lookup(). */
enum kvt_status lookup_chain(struct kvt_store *store, kvt_namespace ns, const struct kvt_key *keys,
    uint32_t count, uint8_t *tiers_out, struct lookup_leading *leading_out, kvt_lease *lease_out);

#endif /* KVT_ENGINE_LOOKUP_H */
