/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hint.h - blocks of which a caller says something, on their way to the loop.
 */
#ifndef KVT_ENGINE_HINT_H
#define KVT_ENGINE_HINT_H

#include "hash.h"
#include "kvtier/kvtier.h"
#include "tier.h"

struct kvt_store;

/* Blocks by their keys, on their way to the loop. */
struct hint {
    struct block_key *keys;
    struct hash128 *fingerprints;
    uint32_t *numbers; /* Of those that are there; ENTRY_NONE. */
    uint32_t *added;   /* Of those that had no pin. */
    uint32_t count;
    uint32_t found_count;
    uint32_t importance;
    uint64_t ttl_ns;
    enum kvt_status status;
};

/* hint_make - the keys, checked, and memory for the rest (any). KVT_E_INVAL as kvt_lookup(),
 * KVT_E_NOMEM. hint_free: what hint_make() took. */
enum kvt_status hint_make(struct kvt_store *store, kvt_namespace ns, const struct kvt_key *keys,
    uint32_t count, struct hint *hint);
void hint_free(struct kvt_store *store, struct hint *hint);

/* hint_find - which of them are there (loop); status: KVT_OK, or KVT_MISS when none is. */
void hint_find(struct kvt_store *store, struct hint *hint);

#endif /* KVT_ENGINE_HINT_H */
