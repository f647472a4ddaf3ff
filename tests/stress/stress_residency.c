/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stress_residency.c - one writer puts, moves and erases entries and lets the table grow, while
 * readers look up batches of keys and check what they have pinned.
 *
 * Each entry has a cell of ordinary memory, as a block has a slot: the writer fills it before it
 * publishes the entry and wipes it when the entry is free. A reader that has an entry pinned reads
 * the cell; ThreadSanitizer sees it if that is not ordered. Fingerprints collide, and stable keys
 * are there all the time: a lookup that misses one of them is wrong.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "residency.h"
#include "rng.h"
#include "stop_on_proof.h"

enum {
    READER_COUNT = 3,
    STABLE_KEYS = 6000, /* Put one after the other, never erased. */
    CHURN_KEYS = 500,   /* Put and erased all the time. */
    KEY_COUNT = STABLE_KEYS + CHURN_KEYS,
    ENTRIES_MAX = KEY_COUNT + 200, /* Doomed ones wait for their pins. */
    BATCH_KEYS = 96,
    TURN_COUNT = 200000,
};

struct cell {
    uint64_t value; /* Key + 1; 0: free. */
    uint64_t copy;  /* The same for the second tier, while its bit is set. */
};

struct arena {
    struct residency *map;
    struct cell cells[ENTRIES_MAX];
    _Atomic uint32_t stable_count; /* Stable keys below it are there. */
    _Atomic uint32_t is_over;
    _Atomic uint32_t last_pin_count; /* Last pins of doomed entries that readers gave back. */
};

struct writer {
    struct arena *arena;
    struct rng rng;
    uint32_t numbers[KEY_COUNT]; /* ENTRY_NONE: not there. */
    uint32_t doomed[ENTRIES_MAX];
    uint32_t doomed_count;
    uint32_t kept_count; /* Evictions that a pin refused. */
};

struct reader {
    struct arena *arena;
    uint64_t seed;
    _Atomic uint32_t has_hit;
    uint64_t wrong_count;
    uint64_t missed_count; /* Stable keys that were not found. */
};

static struct block_key
key_of(uint32_t n)
{
    struct block_key key = {.namespace_id = 1, .form = KEY_RAW, .length = 32};

    memcpy(key.bytes, &n, sizeof(n));
    return key;
}

/* Four sub-tables, two tags; home buckets are spread, so that looking takes a bearable time. */
static struct hash128
fingerprint_of(uint32_t n)
{
    return (struct hash128){.high = (uint64_t)(n & 3) << 62 | (n >> 2 & 1),
        .low = (n >> 3) * UINT64_C(0x9E3779B97F4A7C15)};
}

/* --- The writer ------------------------------------------------------------------------------- */

static void
writer_put(struct writer *writer, uint32_t n)
{
    struct block_key key = key_of(n);
    uint32_t number = ENTRY_NONE;

    if (residency_insert(writer->arena->map, fingerprint_of(n), &key, &number) != KVT_OK)
        return; /* The doomed ones have them all. */
    writer->arena->cells[number] = (struct cell){.value = (uint64_t)n + 1};
    residency_publish(writer->arena->map, number, TIER_HOST);
    writer->numbers[n] = number;
}

static void
writer_sweep(struct writer *writer)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < writer->doomed_count; i++) {
        uint32_t number = writer->doomed[i];

        if (residency_release(writer->arena->map, number))
            writer->arena->cells[number] = (struct cell){0};
        else
            writer->doomed[kept++] = number;
    }
    writer->doomed_count = kept;
}

static void
writer_erase(struct writer *writer, uint32_t n)
{
    uint32_t number = writer->numbers[n];

    if (rng_below(&writer->rng, 2) != 0) {
        if (!residency_doom_unpinned(writer->arena->map, number)) {
            writer->kept_count++;
            return;
        }
    } else {
        residency_doom(writer->arena->map, number);
    }
    writer->doomed[writer->doomed_count++] = number;
    writer->numbers[n] = ENTRY_NONE;
}

/* A second copy comes, or goes when nobody has it pinned. */
static void
writer_move(struct writer *writer, uint32_t n)
{
    uint32_t number = writer->numbers[n];
    uint64_t word =
        atomic_load_explicit(&residency_at(writer->arena->map, number)->word, memory_order_relaxed);

    if ((word_tiers(word) & TIER_NVME) == 0) {
        writer->arena->cells[number].copy = (uint64_t)n + 1;
        residency_tier_set(writer->arena->map, number, TIER_NVME);
    } else if (residency_tier_clear(writer->arena->map, number, TIER_NVME)) {
        writer->arena->cells[number].copy = 0;
    }
}

static void
writer_turn(struct writer *writer)
{
    struct arena *arena = writer->arena;
    uint32_t stable = atomic_load_explicit(&arena->stable_count, memory_order_relaxed);
    uint32_t churn = STABLE_KEYS + rng_below(&writer->rng, CHURN_KEYS);

    if (writer->numbers[churn] == ENTRY_NONE)
        writer_put(writer, churn);
    else if (rng_below(&writer->rng, 3) == 0)
        writer_move(writer, churn);
    else
        writer_erase(writer, churn);
    writer_sweep(writer);
    if (stable < STABLE_KEYS && rng_below(&writer->rng, 4) == 0) {
        writer_put(writer, stable);
        if (writer->numbers[stable] != ENTRY_NONE)
            atomic_store_explicit(&arena->stable_count, stable + 1, memory_order_release);
    }
    if (rng_below(&writer->rng, 16) == 0)
        residency_collect(arena->map);
}

/* --- Readers ---------------------------------------------------------------------------------- */

static void
reader_look_at(
    struct reader *reader, uint32_t n, uint32_t number, unsigned tiers, bool must_be_there)
{
    struct arena *arena = reader->arena;
    const struct cell *cell = &arena->cells[number == ENTRY_NONE ? 0 : number];
    struct block_key key;
    struct block_key wanted = key_of(n);

    if (number == ENTRY_NONE) {
        reader->missed_count += must_be_there;
        return;
    }
    atomic_store_explicit(&reader->has_hit, 1, memory_order_relaxed);
    residency_key(arena->map, number, &key);
    if (!key_equal(&key, &wanted) || cell->value != (uint64_t)n + 1)
        reader->wrong_count++;
    if ((tiers & TIER_NVME) != 0 && cell->copy != (uint64_t)n + 1)
        reader->wrong_count++;
}

static void
reader_turn(struct reader *reader, struct rng *rng)
{
    struct arena *arena = reader->arena;
    struct block_key keys[BATCH_KEYS];
    struct hash128 fingerprints[BATCH_KEYS];
    uint32_t names[BATCH_KEYS];
    uint32_t numbers[BATCH_KEYS];
    uint8_t tiers[BATCH_KEYS];
    uint32_t stable = atomic_load_explicit(&arena->stable_count, memory_order_acquire);

    for (uint32_t i = 0; i < BATCH_KEYS; i++) {
        names[i] =
            i % 2 == 0 ? rng_below(rng, STABLE_KEYS) : STABLE_KEYS + rng_below(rng, CHURN_KEYS);
        keys[i] = key_of(names[i]);
        fingerprints[i] = fingerprint_of(names[i]);
    }
    (void)residency_find_pin(arena->map, fingerprints, keys, BATCH_KEYS, numbers, tiers);
    for (uint32_t i = 0; i < BATCH_KEYS; i++)
        reader_look_at(reader, names[i], numbers[i], tiers[i], names[i] < stable);
    for (uint32_t i = 0; i < BATCH_KEYS; i++) {
        if (numbers[i] != ENTRY_NONE && residency_unpin(arena->map, numbers[i]))
            atomic_fetch_add_explicit(&arena->last_pin_count, 1, memory_order_relaxed);
    }
}

static void *
reader_main(void *argument)
{
    struct reader *reader = argument;
    struct rng rng = {.state = reader->seed};

    stop_on_proof();
    while (atomic_load_explicit(&reader->arena->is_over, memory_order_relaxed) == 0)
        reader_turn(reader, &rng);
    return NULL;
}

/* A busy machine may let one of them wait for longer than all turns take. */
static bool
all_have_hit(const struct reader readers[READER_COUNT])
{
    for (uint32_t i = 0; i < READER_COUNT; i++) {
        if (atomic_load_explicit(&readers[i].has_hit, memory_order_relaxed) == 0)
            return false;
    }
    return true;
}

static void
readers_see_whole_entries_while_the_map_changes(void **state)
{
    static struct arena arena;
    static struct writer writer = {.arena = &arena, .rng = {.state = 1}};
    struct reader readers[READER_COUNT] = {0};
    pthread_t threads[READER_COUNT];
    struct kvt_env env;

    (void)state;
    stop_on_proof();
    env_host(&env);
    memset(writer.numbers, 0xFF, sizeof(writer.numbers));
    assert_int_equal(residency_open(&env, ENTRIES_MAX, &arena.map), KVT_OK);
    for (uint32_t i = 0; i < READER_COUNT; i++) {
        readers[i] = (struct reader){.arena = &arena, .seed = i + 100};
        assert_int_equal(pthread_create(&threads[i], NULL, reader_main, &readers[i]), 0);
    }
    for (uint32_t i = 0; i < TURN_COUNT || !all_have_hit(readers); i++)
        writer_turn(&writer);
    atomic_store_explicit(&arena.is_over, 1, memory_order_relaxed);
    for (uint32_t i = 0; i < READER_COUNT; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(readers[i].wrong_count, 0);
        assert_int_equal(readers[i].missed_count, 0);
    }
    writer_sweep(&writer);
    assert_int_equal(writer.doomed_count, 0); /* Every pin was given back. */
    assert_int_equal(atomic_load(&arena.stable_count), STABLE_KEYS);
    print_message("%u last pins were readers', %u evictions met a pin\n",
        atomic_load(&arena.last_pin_count), writer.kept_count);
    residency_check(arena.map);
    residency_close(arena.map);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_see_whole_entries_while_the_map_changes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
