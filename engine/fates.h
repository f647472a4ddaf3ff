/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fates.h - why blocks are not there: what is noted when one leaves, and who asks: kvt_why(), the
 * reasons of misses in the statistics.
 *
 * Owns      the store's table of fates (fate_table.h), what it compares them with, and what stands
 *           in DIR/fates (tiers/FORMAT.md 3.10).
 * Threads   fates_find() and fates_count() any, what opens and closes a store before and after its
 *           threads, the rest the loop.
 */
#ifndef KVT_ENGINE_FATES_H
#define KVT_ENGINE_FATES_H

#include "fate_table.h"
#include "kvtier/explaining.h"
#include "lazy_file.h"
#include "policy.h"

enum {
    FATES_HEAD_BYTES = 16, /* Of what is kept: version, reserved, when it was written. */
    FATES_VERSION = 1,
};

/* A part of a store. All zero: nothing is remembered, as before it is opened. */
struct fates {
    struct fate_table table;
    float cuts[POLICY_PLACE_COUNT]; /* What the next to leave each place is compared with. */
    struct policy_worth refusal;
    uint32_t refused;       /* The entry that `refusal` is about. */
    uint32_t wall_s;        /* Of the wall clock, when ... */
    uint64_t wall_asked_ns; /* ... it was asked last; 0: it was not. */
};

extern const struct lazy_file_kind fates_file;

void fates_open(struct kvt_store *store);
void fates_close(struct kvt_store *store);

/* fates_leave - an entry is about to leave the map: its copies are still there. */
void fates_leave(struct kvt_store *store, uint32_t number, enum kvt_event_reason reason);
/* fates_refuse - the policy does not admit the block to NVMe: if it leaves now, that is why. */
void fates_refuse(struct kvt_store *store, uint32_t number);
/* fates_cut - a reclaim begins (ENTRY_NONE), or chose to write this block again. */
void fates_cut(struct kvt_store *store, uint32_t number);
/* fates_note - a put came to nothing. Of a block that comes back nothing is noted: who asks looks
 * first whether it is there, and when it leaves again, that is noted. What was noted goes when it
 * is replaced: until the next one of its key is there, nobody finds either. */
void fates_note(struct kvt_store *store, struct hash128 fingerprint, enum kvt_fate kind);
/* fates_end - the store is closed in order: what only memory has is gone. */
void fates_end(struct kvt_store *store);

/* fates_are_known - bytes of DIR/fates are of a version that is known; when they were written. */
bool fates_are_known(const uint8_t *source, size_t size, uint64_t *written_seconds_out);

bool fates_find(const struct kvt_store *store, struct hash128 fingerprint, struct fate *fate_out);
/* fates_count - a miss, by its reason. fates_count_key: the same of a key that was checked. */
void fates_count(struct kvt_store *store, struct hash128 fingerprint);
void fates_count_key(
    struct kvt_store *store, kvt_namespace ns, const struct kvt_key *key, uint16_t component);

#endif /* KVT_ENGINE_FATES_H */
