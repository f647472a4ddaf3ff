/* SPDX-License-Identifier: Apache-2.0 */
/*
 * residency_internal.h - the parts of the map: the hash table and the keys' bytes.
 */
#ifndef KVT_INDEX_RESIDENCY_INTERNAL_H
#define KVT_INDEX_RESIDENCY_INTERNAL_H

#include "residency.h"

/* --- The table: fingerprint -> candidate numbers --------------------------------------------- */

enum {
    BUCKET_SLOTS = 10,
    SUBTABLE_BITS = 6,
    SUBTABLE_COUNT = 1 << SUBTABLE_BITS,
};

/*
 * One cache line. tag 0: free. overflow_count: elements whose probe passed this bucket.
 *
 * (B1) A number is stored before its tag (both release) and read behind it (both acquire): a reader
 *      that sees the tag finds a number that was under it or, when the slot was given away since,
 *      a newer one. Either way it sees what the writer made before it stored that number: the chunk
 *      of the entry is there. That it is the right entry, the key proves.
 */
struct bucket {
    _Atomic uint16_t tags[BUCKET_SLOTS];
    _Atomic uint32_t overflow_count;
    _Atomic uint32_t numbers[BUCKET_SLOTS];
};

/* One array of buckets of a sub-table; replaced by one half as large again. */
struct bucket_array {
    uint64_t bucket_count;
    struct bucket *buckets;     /* Aligned to a cache line; whole huge pages when there are many. */
    void *memory;               /* What they were cut from, ... */
    size_t size;                /* ... and its size. */
    struct bucket_array *older; /* RETIRED: the next in the list. */
    uint64_t retired_at;        /* The guard's flip that readers of it may still be under. */
};

struct subtable {
    _Atomic(struct bucket_array *) array;
    uint32_t count;
};

enum {
    GUARD_STRIPES = 16,
};

/* Who may be looking into arrays: see residency_table.c. */
struct table_guard {
    _Atomic uint32_t parity;
    struct {
        _Alignas(64) _Atomic uint32_t counts[2];
    } stripes[GUARD_STRIPES];
    uint64_t flip_count; /* Writer. */
};

struct table {
    const struct kvt_env *env;
    struct table_guard *guard; /* In guard_memory, on a cache line. */
    void *guard_memory;
    struct bucket_array *retired;
    struct subtable subtables[SUBTABLE_COUNT];
};

enum kvt_status table_open(struct table *table, const struct kvt_env *env);
void table_close(struct table *table);
/* table_insert - KVT_E_NOMEM when an array could not grow: that takes the fingerprints of numbers
 * that are in the table already. */
typedef const struct hash128 *(*table_fingerprint_fn)(const void *context, uint32_t number);
enum kvt_status table_insert(struct table *table, struct hash128 fingerprint, uint32_t number,
    table_fingerprint_fn fingerprint_at, const void *context);
void table_remove(struct table *table, struct hash128 fingerprint, uint32_t number);
void table_collect(struct table *table);

/* table_enter, table_leave - around any reader's use of a cursor. */
uint32_t table_enter(struct table *table);
void table_leave(struct table *table, uint32_t ticket);

/* One look at one fingerprint. It stays in the array that it began in: places mean nothing in the
 * array that replaces it. */
struct table_cursor {
    const struct bucket_array *array;
    uint64_t bucket;
    uint64_t left; /* Buckets that may still be looked at. */
    uint32_t slot;
    uint16_t tag;
};

/* table_look - begin; the home bucket is on its way into the cache. */
struct table_cursor table_look(const struct table *table, struct hash128 fingerprint);

/* table_next - the next number that may be under the fingerprint; ENTRY_NONE at the end. */
uint32_t table_next(struct table_cursor *cursor);

/* --- The keys' bytes ------------------------------------------------------------------------- */

enum {
    KEY_CLASS_COUNT = 4,      /* 16, 32, 48, 64 bytes. */
    KEY_HEAD_BYTES = 8,       /* namespace id, component, form, length. */
    KEYS_FIRST = 4096,        /* In ordinary memory, so that a small map is small. */
    KEYS_PER_CHUNK = 1 << 18, /* Of every class this is a number of whole huge pages. */
};

/* Chunks never move, and their directory has its full size from the start: pinned readers look
 * without a lock. A reference: class in the top two bits, slot below. */
struct key_heap {
    const struct kvt_env *env;
    uint32_t chunk_count_max;
    struct {
        uint8_t *first;
        uint8_t **chunks;
        uint32_t used_count; /* Slots ever given out. */
        uint32_t free_first; /* Slot + 1; linked through the slots' bytes. */
    } classes[KEY_CLASS_COUNT];
};

enum kvt_status key_heap_open(
    struct key_heap *heap, const struct kvt_env *env, uint64_t key_count_max);
void key_heap_close(struct key_heap *heap);
enum kvt_status key_heap_add(
    struct key_heap *heap, const struct block_key *key, uint32_t *reference_out);
void key_heap_remove(struct key_heap *heap, uint32_t reference);
/* key_heap_prefetch - the key's bytes are on their way into the cache. */
void key_heap_prefetch(const struct key_heap *heap, uint32_t reference);
bool key_heap_equal(const struct key_heap *heap, uint32_t reference, const struct block_key *key);
void key_heap_read(const struct key_heap *heap, uint32_t reference, struct block_key *key_out);

#endif /* KVT_INDEX_RESIDENCY_INTERNAL_H */
