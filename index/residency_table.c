/* SPDX-License-Identifier: Apache-2.0 */
/*
 * residency_table.c - the hash table: fingerprint -> candidate entries.
 *
 * Owns      the sub-tables (by the top bits of the fingerprint's high half), each an array of
 *           buckets of one cache line that grows by half when four fifths full, and arrays that
 *           readers may still see.
 * Threads   one writer; any number of readers between table_enter() and table_leave().
 *
 * Arrays that were replaced are freed when no reader can hold them. (T1) A reader raises a count of
 * the present parity (seq_cst) before it loads an array's address. The writer stores the new
 * address, then flips the parity, then waits (without blocking, in table_collect) until the counts
 * of the old parity are zero. A reader whose raise the writer did not see loads the address later
 * in the one order of all seq_cst operations, and so finds the new array.
 */
#include <string.h>

#include "failure.h"
#include "residency_internal.h"
#include "try.h"

enum {
    CACHE_LINE = 64,
    HUGE_BYTES = 2 << 20,
    HUGE_BUCKETS = HUGE_BYTES / CACHE_LINE,
    COPY_AHEAD = 4, /* Buckets; about 30 fingerprints. */
    GUARD_BYTES = sizeof(struct table_guard) + CACHE_LINE,
};

_Static_assert(sizeof(struct bucket) == CACHE_LINE, "a bucket is one cache line");

/* The first byte of a cache line at or behind `memory`. */
static void *
line_align(void *memory)
{
    return (void *)(((uintptr_t)memory + CACHE_LINE - 1) & ~(uintptr_t)(CACHE_LINE - 1));
}

/* --- Arrays ----------------------------------------------------------------------------------- */

/* Whether an array of so many buckets is a mapping: these begin on a cache line. */
static bool
is_mapped(uint64_t bucket_count)
{
    return bucket_count >= HUGE_BUCKETS;
}

static struct bucket_array *
array_create(const struct kvt_env *env, uint64_t bucket_count)
{
    struct bucket_array *array = env_take(env, sizeof(*array));
    size_t size = bucket_count * sizeof(struct bucket);

    if (array == NULL)
        return NULL;
    array->bucket_count = bucket_count;
    array->size = is_mapped(bucket_count) ? size : size + CACHE_LINE;
    array->memory = is_mapped(bucket_count) ? env_map(env, size) : env_take(env, array->size);
    if (array->memory == NULL) {
        env_put(env, array, sizeof(*array));
        return NULL;
    }
    array->buckets = line_align(array->memory);
    return array;
}

static void
array_destroy(const struct kvt_env *env, struct bucket_array *array)
{
    if (array == NULL)
        return;
    if (is_mapped(array->bucket_count))
        env_unmap(env, array->memory, array->size);
    else
        env_put(env, array->memory, array->size);
    env_put(env, array, sizeof(*array));
}

static uint16_t
tag_of(struct hash128 fingerprint)
{
    uint16_t tag = (uint16_t)fingerprint.high;

    return tag == 0 ? 1 : tag;
}

static uint32_t
subtable_of(struct hash128 fingerprint)
{
    return (uint32_t)(fingerprint.high >> (64 - SUBTABLE_BITS));
}

/* The bucket where looking begins: the fingerprint's place among 2^32, scaled to the array. */
static uint64_t
home_of(const struct bucket_array *array, struct hash128 fingerprint)
{
    return ((fingerprint.low >> 32) * array->bucket_count) >> 32;
}

static uint64_t
bucket_after(const struct bucket_array *array, uint64_t i)
{
    return i + 1 == array->bucket_count ? 0 : i + 1;
}

/* Put the number into the first bucket of its probe that has a free slot; there is one. */
static void
array_insert(struct bucket_array *array, struct hash128 fingerprint, uint32_t number)
{
    uint64_t i = home_of(array, fingerprint);

    for (;; i = bucket_after(array, i)) {
        struct bucket *bucket = &array->buckets[i];

        for (uint32_t slot = 0; slot < BUCKET_SLOTS; slot++) {
            if (atomic_load_explicit(&bucket->tags[slot], memory_order_relaxed) != 0)
                continue;
            /* (B1) */
            atomic_store_explicit(&bucket->numbers[slot], number, memory_order_release);
            atomic_store_explicit(&bucket->tags[slot], tag_of(fingerprint), memory_order_release);
            return;
        }
        atomic_fetch_add_explicit(&bucket->overflow_count, 1, memory_order_release);
    }
}

/* --- Life ------------------------------------------------------------------------------------- */

enum kvt_status
table_open(struct table *table, const struct kvt_env *env)
{
    memset(table, 0, sizeof(*table));
    table->env = env;
    table->guard_memory = env_take(env, GUARD_BYTES);
    if (table->guard_memory == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for the map's guard");
    table->guard = line_align(table->guard_memory);
    for (uint32_t i = 0; i < SUBTABLE_COUNT; i++) {
        struct bucket_array *array = array_create(env, 1);

        if (array == NULL)
            return failure_set(KVT_E_NOMEM, 0, "no memory for the map's table");
        atomic_store_explicit(&table->subtables[i].array, array, memory_order_relaxed);
    }
    return KVT_OK;
}

void
table_close(struct table *table)
{
    if (table->env == NULL)
        return;
    while (table->retired != NULL) {
        struct bucket_array *older = table->retired->older;

        array_destroy(table->env, table->retired);
        table->retired = older;
    }
    for (uint32_t i = 0; i < SUBTABLE_COUNT; i++)
        array_destroy(
            table->env, atomic_load_explicit(&table->subtables[i].array, memory_order_relaxed));
    env_put(table->env, table->guard_memory, GUARD_BYTES);
}

/* --- Readers ---------------------------------------------------------------------------------- */

uint32_t
table_enter(struct table *table)
{
    static _Thread_local char here;
    uint32_t stripe = (uint32_t)(((uintptr_t)&here >> 12) * 0x9E3779B1u >> 28) % GUARD_STRIPES;
    uint32_t parity = atomic_load(&table->guard->parity);

    atomic_fetch_add(&table->guard->stripes[stripe].counts[parity], 1); /* (T1) */
    return stripe * 2 + parity;
}

void
table_leave(struct table *table, uint32_t ticket)
{
    atomic_fetch_sub_explicit(
        &table->guard->stripes[ticket / 2].counts[ticket % 2], 1, memory_order_release);
}

struct table_cursor
table_look(const struct table *table, struct hash128 fingerprint)
{
    const struct bucket_array *array =
        atomic_load(&table->subtables[subtable_of(fingerprint)].array); /* (T1) */

    uint64_t home = home_of(array, fingerprint);

    __builtin_prefetch(&array->buckets[home]);
    return (struct table_cursor){
        .array = array, .tag = tag_of(fingerprint), .bucket = home, .left = array->bucket_count};
}

uint32_t
table_next(struct table_cursor *cursor)
{
    while (cursor->left > 0) {
        const struct bucket *bucket = &cursor->array->buckets[cursor->bucket];

        while (cursor->slot < BUCKET_SLOTS) {
            uint32_t slot = cursor->slot++;

            if (atomic_load_explicit(&bucket->tags[slot], memory_order_acquire) != cursor->tag)
                continue;
            return atomic_load_explicit(&bucket->numbers[slot], memory_order_acquire); /* (B1) */
        }
        if (atomic_load_explicit(&bucket->overflow_count, memory_order_acquire) == 0)
            break;
        cursor->slot = 0;
        cursor->bucket = bucket_after(cursor->array, cursor->bucket);
        cursor->left--;
    }
    return ENTRY_NONE;
}

/* --- The writer ------------------------------------------------------------------------------- */

/* Insert what is in a bucket of another array. */
static void
bucket_copy(struct bucket_array *array, const struct bucket *bucket,
    table_fingerprint_fn fingerprint_at, const void *context)
{
    for (uint32_t slot = 0; slot < BUCKET_SLOTS; slot++) {
        uint32_t number = atomic_load_explicit(&bucket->numbers[slot], memory_order_relaxed);

        if (atomic_load_explicit(&bucket->tags[slot], memory_order_relaxed) != 0)
            array_insert(array, *fingerprint_at(context, number), number);
    }
}

/* The fingerprints lie all over the map: they are asked for some buckets ahead. */
static void
bucket_prefetch(
    const struct bucket *bucket, table_fingerprint_fn fingerprint_at, const void *context)
{
    for (uint32_t slot = 0; slot < BUCKET_SLOTS; slot++) {
        uint32_t number = atomic_load_explicit(&bucket->numbers[slot], memory_order_relaxed);

        if (atomic_load_explicit(&bucket->tags[slot], memory_order_relaxed) != 0)
            __builtin_prefetch(fingerprint_at(context, number));
    }
}

/* Half as many again, and whole huge pages when they are large: what a table that has just grown
 * leaves empty counts for the memory of an entry. */
static uint64_t
count_above(uint64_t bucket_count)
{
    uint64_t larger = bucket_count + (bucket_count + 1) / 2;

    if (larger < HUGE_BUCKETS)
        return larger;
    return (larger + HUGE_BUCKETS - 1) / HUGE_BUCKETS * HUGE_BUCKETS;
}

static enum kvt_status
subtable_grow(struct table *table, struct subtable *subtable, table_fingerprint_fn fingerprint_at,
    const void *context)
{
    struct bucket_array *old = atomic_load_explicit(&subtable->array, memory_order_relaxed);
    uint64_t bucket_count = count_above(old->bucket_count);
    struct bucket_array *array = array_create(table->env, bucket_count);

    if (array == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for %llu buckets of the map",
            (unsigned long long)bucket_count);
    for (uint64_t i = 0; i < old->bucket_count; i++) {
        if (i + COPY_AHEAD < old->bucket_count)
            bucket_prefetch(&old->buckets[i + COPY_AHEAD], fingerprint_at, context);
        bucket_copy(array, &old->buckets[i], fingerprint_at, context);
    }
    atomic_store(&subtable->array, array); /* (T1) */
    old->retired_at = table->guard->flip_count;
    old->older = table->retired;
    table->retired = old;
    return KVT_OK;
}

enum kvt_status
table_insert(struct table *table, struct hash128 fingerprint, uint32_t number,
    table_fingerprint_fn fingerprint_at, const void *context)
{
    struct subtable *subtable = &table->subtables[subtable_of(fingerprint)];
    struct bucket_array *array = atomic_load_explicit(&subtable->array, memory_order_relaxed);

    if (subtable->count >= array->bucket_count * (BUCKET_SLOTS * 4 / 5))
        KVT_TRY(subtable_grow(table, subtable, fingerprint_at, context));
    array_insert(atomic_load_explicit(&subtable->array, memory_order_relaxed), fingerprint, number);
    subtable->count++;
    return KVT_OK;
}

void
table_remove(struct table *table, struct hash128 fingerprint, uint32_t number)
{
    struct subtable *subtable = &table->subtables[subtable_of(fingerprint)];
    struct bucket_array *array = atomic_load_explicit(&subtable->array, memory_order_relaxed);
    uint64_t home = home_of(array, fingerprint);
    uint64_t i = home;

    for (uint64_t step = 0; step < array->bucket_count; step++, i = bucket_after(array, i)) {
        struct bucket *bucket = &array->buckets[i];

        for (uint32_t slot = 0; slot < BUCKET_SLOTS; slot++) {
            if (atomic_load_explicit(&bucket->tags[slot], memory_order_relaxed) !=
                    tag_of(fingerprint) ||
                atomic_load_explicit(&bucket->numbers[slot], memory_order_relaxed) != number)
                continue;
            atomic_store_explicit(&bucket->tags[slot], 0, memory_order_release);
            for (uint64_t passed = home; passed != i; passed = bucket_after(array, passed))
                atomic_fetch_sub_explicit(
                    &array->buckets[passed].overflow_count, 1, memory_order_release);
            subtable->count--;
            return;
        }
    }
    KVT_ASSERT(subtable->count == 0 && number == ENTRY_NONE); /* It was not in the table. */
}

void
table_collect(struct table *table)
{
    struct table_guard *guard = table->guard;
    uint32_t parity = atomic_load_explicit(&guard->parity, memory_order_relaxed);
    struct bucket_array **link = &table->retired;

    if (table->retired == NULL)
        return;
    for (uint32_t i = 0; i < GUARD_STRIPES; i++) {
        if (atomic_load(&guard->stripes[i].counts[1 - parity]) != 0)
            return;
    }
    /* No reader is left under the other parity: what was retired before the last flip is free. */
    while (*link != NULL) {
        struct bucket_array *array = *link;

        if (array->retired_at >= guard->flip_count) {
            link = &array->older;
            continue;
        }
        *link = array->older;
        array_destroy(table->env, array);
    }
    if (table->retired == NULL)
        return;
    guard->flip_count++;
    atomic_store(&guard->parity, 1 - parity);
}
