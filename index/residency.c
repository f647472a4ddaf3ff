/* SPDX-License-Identifier: Apache-2.0 */
/*
 * residency.c - entries, their words and their numbers. See residency.h for states and orders.
 */
#include "residency.h"

#include <string.h>

#include "failure.h"
#include "residency_internal.h"
#include "try.h"

enum {
    FIRST_ENTRIES = 4096, /* In ordinary memory, so that a small map is small. */
    CHUNK_SHIFT = 18,
    CHUNK_ENTRIES = 1 << CHUNK_SHIFT, /* 20 MiB: whole huge pages. */
    FIND_AHEAD = 64,
    GENERATION_COUNT = 1 << 24,
};

/* Of readers. The other half is the loop's, which asks nobody before it pins: one pin more than the
 * word counts would be added to the tier bits. */
#define READER_PINS_MAX (UINT32_MAX / 2)

_Static_assert(sizeof(struct entry) == 80, "the memory promise of the map");

struct residency {
    struct kvt_env env;
    struct table table;
    struct key_heap keys;
    struct entry *first;
    struct entry **chunks;
    uint64_t entry_count_max;
    uint32_t chunk_count_max;
    uint32_t used_count; /* Numbers ever given out. */
    uint32_t free_first; /* Number + 1, linked through key_reference. */
    uint64_t count;
    uint64_t recycle_count;    /* How often one was given back. */
    _Atomic uint32_t released; /* any: the last pin of a DOOMED entry went. */
};

static uint64_t
word_make(uint32_t generation, enum residency_state state, unsigned tiers, uint32_t pins)
{
    return (uint64_t)generation << 40 | (uint64_t)state << 37 | (uint64_t)tiers << 32 | pins;
}

enum kvt_status
residency_open(const struct kvt_env *env, uint64_t entry_count_max, struct residency **map_out)
{
    struct residency *map = env_take(env, sizeof(*map));
    enum kvt_status status = KVT_E_NOMEM;

    *map_out = NULL;
    if (map == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for the map");
    map->env = *env;
    map->entry_count_max = entry_count_max;
    map->chunk_count_max = (uint32_t)(entry_count_max >> CHUNK_SHIFT) + 1;
    map->first = env_take(env, FIRST_ENTRIES * sizeof(*map->first));
    map->chunks = env_take(env, map->chunk_count_max * sizeof(*map->chunks));
    if (map->first == NULL || map->chunks == NULL) {
        (void)failure_set(KVT_E_NOMEM, 0, "no memory for the map's entries");
        goto fail;
    }
    KVT_TRY_GOTO(key_heap_open(&map->keys, &map->env, entry_count_max), fail);
    KVT_TRY_GOTO(table_open(&map->table, &map->env), fail);
    *map_out = map;
    return KVT_OK;

fail:
    residency_close(map);
    return status;
}

void
residency_close(struct residency *map)
{
    struct kvt_env env;

    if (map == NULL)
        return;
    env = map->env;
    table_close(&map->table);
    if (map->keys.env != NULL)
        key_heap_close(&map->keys);
    for (uint32_t i = 0; map->chunks != NULL && i < map->chunk_count_max; i++) {
        if (map->chunks[i] != NULL)
            env_unmap(&env, map->chunks[i], CHUNK_ENTRIES * sizeof(struct entry));
    }
    env_put(&env, map->chunks, map->chunk_count_max * sizeof(*map->chunks));
    env_put(&env, map->first, FIRST_ENTRIES * sizeof(*map->first));
    env_put(&env, map, sizeof(*map));
}

struct entry *
residency_at(const struct residency *map, uint32_t number)
{
    if (number < FIRST_ENTRIES)
        return &map->first[number];
    number -= FIRST_ENTRIES;
    return &map->chunks[number >> CHUNK_SHIFT][number & (CHUNK_ENTRIES - 1)];
}

uint64_t
residency_count(const struct residency *map)
{
    return map->count;
}

uint32_t
residency_number_limit(const struct residency *map)
{
    return map->used_count;
}

void
residency_key(const struct residency *map, uint32_t number, struct block_key *key_out)
{
    key_heap_read(&map->keys, residency_at(map, number)->key_reference, key_out);
}

static const struct hash128 *
fingerprint_at(const void *context, uint32_t number)
{
    return &residency_at(context, number)->fingerprint;
}

/* --- The writer ------------------------------------------------------------------------------- */

static bool
entry_is(const struct residency *map, const struct entry *entry, struct hash128 fingerprint,
    const struct block_key *key)
{
    return hash128_equal(entry->fingerprint, fingerprint) &&
           key_heap_equal(&map->keys, entry->key_reference, key);
}

uint32_t
residency_find(const struct residency *map, struct hash128 fingerprint, const struct block_key *key)
{
    struct table_cursor cursor = table_look(&map->table, fingerprint);
    uint32_t number;

    while ((number = table_next(&cursor)) != ENTRY_NONE) {
        if (entry_is(map, residency_at(map, number), fingerprint, key))
            return number;
    }
    return ENTRY_NONE;
}

void
residency_prefetch_bucket(const struct residency *map, struct hash128 fingerprint)
{
    (void)table_look(&map->table, fingerprint);
}

uint32_t
residency_prefetch_entry(const struct residency *map, struct hash128 fingerprint)
{
    struct table_cursor cursor = table_look(&map->table, fingerprint);
    uint32_t number = table_next(&cursor);

    if (number != ENTRY_NONE) {
        __builtin_prefetch(residency_at(map, number), 1);
        __builtin_prefetch(residency_at(map, number) + 1, 1); /* Its end: perhaps the next line. */
    }
    return number;
}

/* The entry is in the table: neither free nor on its way to be. */
static bool
entry_is_listed(const struct entry *entry)
{
    unsigned state = word_state(atomic_load_explicit(&entry->word, memory_order_relaxed));

    return state == ENTRY_RESIDENT || state == ENTRY_FILLING;
}

void
residency_prefetch_key(const struct residency *map, uint32_t near)
{
    if (near != ENTRY_NONE && entry_is_listed(residency_at(map, near)))
        key_heap_prefetch(&map->keys, residency_at(map, near)->key_reference);
}

uint32_t
residency_find_near(const struct residency *map, uint32_t near, struct hash128 fingerprint,
    const struct block_key *key)
{
    if (near != ENTRY_NONE && entry_is_listed(residency_at(map, near)) &&
        entry_is(map, residency_at(map, near), fingerprint, key))
        return near;
    return residency_find(map, fingerprint, key);
}

uint32_t
residency_find_fingerprint(const struct residency *map, struct hash128 fingerprint)
{
    struct table_cursor cursor = table_look(&map->table, fingerprint);
    uint32_t number;

    while ((number = table_next(&cursor)) != ENTRY_NONE) {
        if (hash128_equal(residency_at(map, number)->fingerprint, fingerprint))
            return number;
    }
    return ENTRY_NONE;
}

static enum kvt_status
number_take(struct residency *map, uint32_t *number_out)
{
    uint32_t number = map->used_count;
    struct entry **chunk;

    if (map->free_first != 0) {
        number = map->free_first - 1;
        map->free_first = residency_at(map, number)->key_reference;
        *number_out = number;
        return KVT_OK;
    }
    if (number >= map->entry_count_max)
        return failure_set(
            KVT_E_NOSPC, 0, "the map holds %u blocks already (entry_count_max)", number);
    chunk = number < FIRST_ENTRIES ? NULL : &map->chunks[(number - FIRST_ENTRIES) >> CHUNK_SHIFT];
    if (chunk != NULL && *chunk == NULL)
        *chunk = env_map(&map->env, CHUNK_ENTRIES * sizeof(struct entry));
    if (chunk != NULL && *chunk == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for entry %u of the map", number);
    map->used_count++;
    *number_out = number;
    return KVT_OK;
}

static void
number_put(struct residency *map, uint32_t number)
{
    residency_at(map, number)->key_reference = map->free_first;
    map->free_first = number + 1;
}

enum kvt_status
residency_insert(struct residency *map, struct hash128 fingerprint, const struct block_key *key,
    uint32_t *number_out)
{
    uint32_t number = 0;
    uint32_t reference = 0;
    uint64_t word;
    struct entry *entry;
    enum kvt_status status;

    KVT_TRY(number_take(map, &number));
    KVT_TRY_GOTO(key_heap_add(&map->keys, key, &reference), put_number);
    entry = residency_at(map, number);
    entry->fingerprint = fingerprint;
    entry->key_reference = reference;
    entry->sequence = 0;
    KVT_TRY_GOTO(table_insert(&map->table, fingerprint, number, fingerprint_at, map), remove_key);
    word = atomic_load_explicit(&entry->word, memory_order_relaxed);
    KVT_ASSERT(word_state(word) == ENTRY_FREE);
    atomic_store_explicit(
        &entry->word, word_make(word_generation(word), ENTRY_FILLING, 0, 0), memory_order_relaxed);
    map->count++;
    *number_out = number;
    return KVT_OK;

remove_key:
    key_heap_remove(&map->keys, reference);
put_number:
    number_put(map, number);
    return status;
}

struct entry_use
residency_use(const struct residency *map, uint32_t number)
{
    uint64_t word = atomic_load_explicit(&residency_at(map, number)->word, memory_order_relaxed);

    return (struct entry_use){.number_more = number + 1,
        .generation = word_generation(word),
        .recycle_count = map->recycle_count};
}

bool
residency_is_use(const struct residency *map, uint32_t number, const struct entry_use *use)
{
    struct entry_use now = residency_use(map, number);

    return use->number_more == now.number_more && use->generation == now.generation &&
           now.recycle_count - use->recycle_count < GENERATION_COUNT;
}

void
residency_publish(struct residency *map, uint32_t number, unsigned tiers)
{
    struct entry *entry = residency_at(map, number);
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);

    KVT_ASSERT(word_state(word) == ENTRY_FILLING && tiers != 0);
    /* (R1) */
    atomic_store_explicit(&entry->word, word_make(word_generation(word), ENTRY_RESIDENT, tiers, 0),
        memory_order_release);
}

void
residency_tier_set(struct residency *map, uint32_t number, unsigned tier)
{
    uint64_t word = atomic_fetch_or_explicit(
        &residency_at(map, number)->word, (uint64_t)tier << 32, memory_order_release); /* (R1) */

    KVT_ASSERT(word_state(word) == ENTRY_RESIDENT && (word_tiers(word) & tier) == 0);
    (void)word;
}

bool
residency_tier_clear(struct residency *map, uint32_t number, unsigned tier)
{
    struct entry *entry = residency_at(map, number);
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);

    KVT_ASSERT((word_tiers(word) & tier) != 0 && (word_tiers(word) & ~tier) != 0);
    do {
        if (word_pins(word) != 0)
            return false;
        /* (R2) */
    } while (!atomic_compare_exchange_weak_explicit(&entry->word, &word,
        word & ~((uint64_t)tier << 32), memory_order_acquire, memory_order_relaxed));
    return true;
}

void
residency_tier_hide(struct residency *map, uint32_t number, unsigned tier)
{
    uint64_t word = atomic_fetch_and_explicit(
        &residency_at(map, number)->word, ~((uint64_t)tier << 32), memory_order_relaxed);

    KVT_ASSERT(word_state(word) == ENTRY_RESIDENT);
    KVT_ASSERT((word_tiers(word) & tier) != 0 && (word_tiers(word) & ~tier) != 0);
    (void)word;
}

bool
residency_settle(struct residency *map, uint32_t number)
{
    /* (R3): a write that changes nothing, as a load would not stand in the order of the pins. */
    uint64_t word =
        atomic_fetch_add_explicit(&residency_at(map, number)->word, 0, memory_order_acq_rel);

    return word_pins(word) == 0;
}

/* Change the state, keep the rest; with `is_unpinned` only at zero pins. */
static bool
word_doom(struct entry *entry, bool is_unpinned)
{
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);
    uint64_t doomed;

    do {
        KVT_ASSERT(word_state(word) == ENTRY_RESIDENT || word_state(word) == ENTRY_FILLING);
        if (is_unpinned && word_pins(word) != 0)
            return false;
        doomed = (word & ~((uint64_t)7 << 37)) | (uint64_t)ENTRY_DOOMED << 37;
    } while (!atomic_compare_exchange_weak_explicit(
        &entry->word, &word, doomed, memory_order_acq_rel, memory_order_relaxed));
    return true;
}

void
residency_doom(struct residency *map, uint32_t number)
{
    struct entry *entry = residency_at(map, number);

    (void)word_doom(entry, false);
    table_remove(&map->table, entry->fingerprint, number);
}

bool
residency_doom_unpinned(struct residency *map, uint32_t number)
{
    struct entry *entry = residency_at(map, number);

    if (!word_doom(entry, true))
        return false;
    table_remove(&map->table, entry->fingerprint, number);
    return true;
}

/* The entry's number and key may be used again, under the next generation. */
static void
entry_recycle(struct residency *map, uint32_t number, uint32_t generation)
{
    struct entry *entry = residency_at(map, number);

    key_heap_remove(&map->keys, entry->key_reference);
    number_put(map, number);
    map->count--;
    atomic_store_explicit(&entry->word,
        word_make((generation + 1) % GENERATION_COUNT, ENTRY_FREE, 0, 0), memory_order_release);
    map->recycle_count++;
}

bool
residency_release(struct residency *map, uint32_t number)
{
    struct entry *entry = residency_at(map, number);
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_acquire); /* (R2) */

    KVT_ASSERT(word_state(word) == ENTRY_DOOMED);
    if (word_pins(word) != 0)
        return false;
    entry_recycle(map, number, word_generation(word));
    return true;
}

bool
residency_has_released(const struct residency *map)
{
    return atomic_load_explicit(&map->released, memory_order_relaxed) != 0;
}

bool
residency_take_released(struct residency *map)
{
    return residency_has_released(map) &&
           atomic_exchange_explicit(&map->released, 0, memory_order_acquire) != 0; /* (R4) */
}

void
residency_discard(struct residency *map, uint32_t number)
{
    struct entry *entry = residency_at(map, number);
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);

    KVT_ASSERT(word_state(word) == ENTRY_FILLING);
    table_remove(&map->table, entry->fingerprint, number);
    entry_recycle(map, number, word_generation(word));
}

void
residency_pin(struct residency *map, uint32_t number)
{
    uint64_t word =
        atomic_fetch_add_explicit(&residency_at(map, number)->word, 1, memory_order_relaxed);

    KVT_ASSERT(word_state(word) == ENTRY_RESIDENT || word_state(word) == ENTRY_DOOMED);
    (void)word;
}

void
residency_collect(struct residency *map)
{
    table_collect(&map->table);
}

void
residency_check(const struct residency *map)
{
    uint64_t count = 0;

    for (uint32_t number = 0; number < map->used_count; number++) {
        const struct entry *entry = residency_at(map, number);
        uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);
        struct block_key key;

        if (word_state(word) == ENTRY_FREE)
            continue;
        count++;
        residency_key(map, number, &key);
        if (word_state(word) == ENTRY_DOOMED)
            continue;
        KVT_ASSERT(word_state(word) != ENTRY_RESIDENT || word_tiers(word) != 0);
        KVT_ASSERT(residency_find(map, entry->fingerprint, &key) == number);
    }
    KVT_ASSERT(count == map->count);
}

/* --- Any thread ------------------------------------------------------------------------------- */

bool
residency_unpin(struct residency *map, uint32_t number)
{
    uint64_t word = atomic_fetch_sub_explicit(
        &residency_at(map, number)->word, 1, memory_order_release); /* (R2) */

    KVT_ASSERT(word_pins(word) > 0);
    if (word_pins(word) != 1 || word_state(word) != ENTRY_DOOMED)
        return false;
    (void)atomic_exchange_explicit(&map->released, 1, memory_order_release); /* (R4) */
    return true;
}

/* Pin the entry if it is RESIDENT; 0 when it is not, else the word as it was pinned. An entry with
 * as many pins as readers may have is a miss to whoever wants one more. */
static uint64_t
word_pin(struct entry *entry)
{
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);

    do {
        if (word_state(word) != ENTRY_RESIDENT || word_pins(word) >= READER_PINS_MAX)
            return 0;
    } while (!atomic_compare_exchange_weak_explicit(
        &entry->word, &word, word + 1, memory_order_acquire, memory_order_relaxed)); /* (R1) */
    return word;
}

/*
 * Whether the entry, which is pinned, is the key's: only a pinned entry's bytes hold still. If not,
 * it is let go. That may be the last pin of a doomed entry: the writer hears of it when it has work
 * (residency_take_released); nobody wakes it for that.
 */
static bool
pinned_is_of(struct residency *map, uint32_t number, const struct block_key *key)
{
    if (key_heap_equal(&map->keys, residency_at(map, number)->key_reference, key))
        return true;
    (void)residency_unpin(map, number);
    return false;
}

/* The candidates behind the first: one key in ten thousand gets here. */
static uint32_t
key_pin(struct residency *map, const struct block_key *key, struct table_cursor *cursor,
    uint8_t *tiers_out)
{
    uint32_t candidate;

    while ((candidate = table_next(cursor)) != ENTRY_NONE) {
        uint64_t word = word_pin(residency_at(map, candidate));

        if (word == 0 || !pinned_is_of(map, candidate, key))
            continue;
        *tiers_out = (uint8_t)word_tiers(word);
        return candidate;
    }
    *tiers_out = 0;
    return ENTRY_NONE;
}

/*
 * Up to FIND_AHEAD keys. Each pass asks for what the next one reads, so that the cache misses of a
 * pass overlap: buckets; the entries they name; the keys of these, which are pinned from here on;
 * and then the proof.
 */
static void
chunk_pin(struct residency *map, const struct hash128 *fingerprints, const struct block_key *keys,
    size_t count, uint32_t *numbers_out, uint8_t *tiers_out)
{
    struct table_cursor cursors[FIND_AHEAD];

    for (size_t i = 0; i < count; i++)
        cursors[i] = table_look(&map->table, fingerprints[i]);
    for (size_t i = 0; i < count; i++) {
        numbers_out[i] = table_next(&cursors[i]);
        if (numbers_out[i] != ENTRY_NONE)
            __builtin_prefetch(residency_at(map, numbers_out[i]), 1);
    }
    for (size_t i = 0; i < count; i++) {
        struct entry *entry;
        uint64_t word;

        tiers_out[i] = 0;
        if (numbers_out[i] == ENTRY_NONE)
            continue;
        entry = residency_at(map, numbers_out[i]);
        word = word_pin(entry);
        tiers_out[i] = (uint8_t)word_tiers(word);
        if (word != 0)
            key_heap_prefetch(&map->keys, entry->key_reference);
    }
    for (size_t i = 0; i < count; i++) {
        bool is_pinned = tiers_out[i] != 0;

        if (numbers_out[i] != ENTRY_NONE &&
            (!is_pinned || !pinned_is_of(map, numbers_out[i], &keys[i])))
            numbers_out[i] = key_pin(map, &keys[i], &cursors[i], &tiers_out[i]);
    }
}

size_t
residency_find_pin(struct residency *map, const struct hash128 *fingerprints,
    const struct block_key *keys, size_t count, uint32_t *numbers_out, uint8_t *tiers_out)
{
    uint32_t ticket = table_enter(&map->table);
    size_t leading = 0;

    for (size_t first = 0; first < count; first += FIND_AHEAD) {
        size_t chunk = count - first < FIND_AHEAD ? count - first : FIND_AHEAD;

        chunk_pin(
            map, fingerprints + first, keys + first, chunk, numbers_out + first, tiers_out + first);
    }
    table_leave(&map->table, ticket);
    while (leading < count && numbers_out[leading] != ENTRY_NONE)
        leading++;
    return leading;
}
