/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fate_table.h - what became of blocks that left: a bounded table that any thread may ask.
 *
 * Owns      the table: buckets of one cache line with four fates each, the newest first. A full
 *           bucket forgets its oldest.
 * Not here  what is a fate (fates.h).
 * Memory    16 bytes a fate, taken at once; pages that were never written to cost nothing.
 *
 * Threads   One writer (the loop) adds and removes; finding and saving on any thread at once.
 *
 * (F2) A fate is two words: its value, and its tag xor its value. The writer voids the second one,
 *      writes the value, then the second one; all are released, and acquired by readers. So a
 *      reader that sees a new value sees at its second look that the word beside it was voided.
 *      Should the old fate be back by then, the value that it saw in between gives a tag for which
 *      nobody asks: what is found is whole. Within a bucket fates are moved towards its end,
 *      the last one first, and readers look from its beginning: who sees that a fate is void, or
 *      another, in its old place sees it in the next one. Only one that is noted anew, and so goes
 *      back to the beginning, may be missed at that moment.
 * (F5) A fate that is noted while the table is saved is in what was saved, or the table is changed
 *      since: who takes the mark away sees all that was noted before it was set.
 */
#ifndef KVT_ENGINE_FATE_TABLE_H
#define KVT_ENGINE_FATE_TABLE_H

#include "env.h"

enum {
    FATE_WAYS = 4,
    FATE_SLOTS_LEAST = 1024,
    FATE_RECORD_BYTES = 16,
};

struct fate {
    uint8_t kind;    /* enum kvt_fate, never 0; below 16. */
    uint32_t when_s; /* Since 1970. */
    float score;     /* Not negative, to two digits; or NaN. */
    float cut;       /* The same. */
};

struct fate_slot;

/* All zero: empty, without memory; it then stays empty. */
struct fate_table {
    struct fate_slot *slots;
    uint32_t slot_count;
    _Atomic uint32_t is_changed; /* Since fate_table_save() was called. */
};

/* fate_table_open - for about `count` fates, KVT_FATES_MAX at most. Without memory it stays empty.
 */
void fate_table_open(struct fate_table *table, const struct kvt_env *env, uint64_t count);
void fate_table_close(struct fate_table *table, const struct kvt_env *env);

/* `fingerprint`: any 64 bits of it, the same ones each time. What was noted of it before goes. */
void fate_table_add(struct fate_table *table, uint64_t fingerprint, const struct fate *fate);
/* fate_table_remove - nothing is noted of it any more. fate_table_find: any. */
void fate_table_remove(struct fate_table *table, uint64_t fingerprint);
bool fate_table_find(const struct fate_table *table, uint64_t fingerprint, struct fate *fate_out);

/* fate_table_save - all of them, the oldest of each bucket first: at most FATE_RECORD_BYTES a slot;
 * returns how many bytes; any. fate_table_restore: records that are none are passed over. */
size_t fate_table_save(struct fate_table *table, uint8_t *target);
void fate_table_restore(struct fate_table *table, const uint8_t *source, size_t size);

/* fate_in_records - fate_table_find() in bytes that fate_table_save() wrote. */
bool fate_in_records(
    const uint8_t *source, size_t size, uint64_t fingerprint, struct fate *fate_out);

#endif /* KVT_ENGINE_FATE_TABLE_H */
