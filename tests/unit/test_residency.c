/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_residency.c - the map against a plain table of what was put in, with fingerprints that
 * collide; states, pins, growth, a full map, memory that runs out. Threads: stress_residency.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "counted_memory.h"
#include "residency_internal.h"
#include "rng.h"
#include "stop_on_proof.h"

enum {
    KEYS_MAX = 20000,
};

struct fixture {
    struct counted_memory memory;
    struct kvt_env env;
    struct residency *map;
};

static void
fixture_open(struct fixture *fixture, uint64_t entry_count_max)
{
    stop_on_proof();
    counted_memory_init(&fixture->memory, &fixture->env);
    assert_int_equal(residency_open(&fixture->env, entry_count_max, &fixture->map), KVT_OK);
}

static void
fixture_close(struct fixture *fixture)
{
    residency_check(fixture->map);
    residency_close(fixture->map);
    assert_int_equal(fixture->memory.out_bytes, 0);
}

/* Key n: its length is 4..64 and depends on n. */
static struct block_key
key_of(uint32_t n)
{
    struct block_key key = {
        .namespace_id = 1, .form = KEY_RAW, .length = (uint8_t)(4 + n % (KEY_BYTES_MAX - 3))};

    memset(key.bytes, 0x5A, key.length);
    memcpy(key.bytes, &n, sizeof(n));
    return key;
}

/* Few tags, few sub-tables, few home buckets: nearly everything collides. */
static struct hash128
colliding(uint32_t n)
{
    return (struct hash128){
        .high = (uint64_t)(n & 1) << 63 | (n >> 1 & 1), .low = (uint64_t)(n >> 2 & 7) << 61};
}

static struct hash128
spread(uint32_t n)
{
    struct block_key key = key_of(n);

    return key_fingerprint(7, &key);
}

static uint32_t
insert(struct residency *map, uint32_t n, struct hash128 (*fingerprint)(uint32_t))
{
    struct block_key key = key_of(n);
    uint32_t number = ENTRY_NONE;

    assert_int_equal(residency_insert(map, fingerprint(n), &key, &number), KVT_OK);
    return number;
}

static uint32_t
put(struct residency *map, uint32_t n, struct hash128 (*fingerprint)(uint32_t))
{
    uint32_t number = insert(map, n, fingerprint);

    residency_publish(map, number, TIER_HOST);
    return number;
}

/* The reader's look at one key, pinned; ENTRY_NONE: a miss. */
static uint32_t
pin(struct residency *map, uint32_t n, struct hash128 (*fingerprint)(uint32_t), uint8_t *tiers_out)
{
    struct block_key key = key_of(n);
    struct hash128 hash = fingerprint(n);
    uint32_t number = 0;
    size_t leading = residency_find_pin(map, &hash, &key, 1, &number, tiers_out);

    assert_int_equal(leading, number != ENTRY_NONE);
    return number;
}

static bool
is_hit(struct residency *map, uint32_t n, struct hash128 (*fingerprint)(uint32_t))
{
    uint8_t tiers = 0xFF;
    uint32_t number = pin(map, n, fingerprint, &tiers);

    if (number == ENTRY_NONE) {
        assert_int_equal(tiers, 0);
        return false;
    }
    assert_false(residency_unpin(map, number));
    return true;
}

static void
erase(struct residency *map, uint32_t number)
{
    residency_doom(map, number);
    assert_true(residency_release(map, number));
}

/* --- States and pins -------------------------------------------------------------------------- */

static void
entry_is_hit_from_its_publication_to_its_doom(void **state)
{
    struct fixture fixture;
    uint32_t number;
    struct block_key key = key_of(9);

    (void)state;
    fixture_open(&fixture, 100);
    assert_false(is_hit(fixture.map, 9, spread));
    number = insert(fixture.map, 9, spread);
    assert_false(is_hit(fixture.map, 9, spread));
    assert_int_equal(residency_find(fixture.map, spread(9), &key), number);
    residency_publish(fixture.map, number, TIER_NVME);
    assert_true(is_hit(fixture.map, 9, spread));
    assert_int_equal(residency_find_fingerprint(fixture.map, spread(9)), number);
    residency_doom(fixture.map, number);
    assert_false(is_hit(fixture.map, 9, spread));
    assert_int_equal(residency_find_near(fixture.map, number, spread(9), &key), ENTRY_NONE);
    assert_int_equal(residency_count(fixture.map), 1);
    assert_true(residency_release(fixture.map, number));
    assert_int_equal(residency_count(fixture.map), 0);
    residency_prefetch_key(fixture.map, number); /* Its key's place means another thing now. */
    assert_int_equal(residency_find_near(fixture.map, number, spread(9), &key), ENTRY_NONE);
    fixture_close(&fixture);
}

static void
pinned_entry_is_neither_evicted_nor_freed(void **state)
{
    struct fixture fixture;
    uint8_t tiers = 0;
    uint32_t number;
    struct block_key key;

    (void)state;
    fixture_open(&fixture, 100);
    number = put(fixture.map, 3, spread);
    residency_tier_set(fixture.map, number, TIER_NVME);
    assert_int_equal(pin(fixture.map, 3, spread, &tiers), number);
    assert_int_equal(tiers, TIER_HOST | TIER_NVME);
    assert_false(residency_tier_clear(fixture.map, number, TIER_HOST));
    assert_false(residency_doom_unpinned(fixture.map, number));
    residency_pin(fixture.map, number);
    residency_doom(fixture.map, number);
    assert_false(residency_release(fixture.map, number));
    assert_false(residency_unpin(fixture.map, number));
    assert_false(residency_release(fixture.map, number));
    residency_key(fixture.map, number, &key);
    assert_int_equal(key.length, key_of(3).length);
    assert_false(residency_take_released(fixture.map));
    assert_true(residency_unpin(fixture.map, number)); /* The last one tells, ... */
    assert_true(residency_has_released(fixture.map));
    assert_true(residency_take_released(fixture.map)); /* ... once. */
    assert_false(residency_take_released(fixture.map));
    assert_true(residency_release(fixture.map, number));
    fixture_close(&fixture);
}

static void
copy_is_given_up_when_nobody_has_it_pinned(void **state)
{
    struct fixture fixture;
    uint8_t tiers = 0;
    uint32_t number;

    (void)state;
    fixture_open(&fixture, 100);
    number = put(fixture.map, 3, spread);
    residency_tier_set(fixture.map, number, TIER_NVME);
    assert_true(residency_tier_clear(fixture.map, number, TIER_HOST));
    assert_int_equal(pin(fixture.map, 3, spread, &tiers), number);
    assert_int_equal(tiers, TIER_NVME);
    assert_false(residency_unpin(fixture.map, number));
    assert_true(residency_doom_unpinned(fixture.map, number));
    assert_true(residency_release(fixture.map, number));
    fixture_close(&fixture);
}

static void
entry_with_all_the_pins_of_readers_is_a_miss(void **state)
{
    const uint32_t most = UINT32_MAX / 2;
    struct fixture fixture;
    struct entry *entry;
    uint32_t number;
    uint64_t word;

    (void)state;
    fixture_open(&fixture, 100);
    number = put(fixture.map, 3, spread);
    entry = residency_at(fixture.map, number);
    word = atomic_load(&entry->word);
    atomic_store(&entry->word, word | (most - 1));
    assert_true(is_hit(fixture.map, 3, spread));
    atomic_store(&entry->word, word | most);
    assert_false(is_hit(fixture.map, 3, spread));
    assert_int_equal(atomic_load(&entry->word), word | most);
    residency_pin(fixture.map, number); /* The loop's own has its place beside them. */
    assert_false(is_hit(fixture.map, 3, spread));
    assert_int_equal(atomic_load(&entry->word), word | (most + 1));
    atomic_store(&entry->word, word);
    fixture_close(&fixture);
}

static void
number_comes_back_under_the_next_generation(void **state)
{
    struct fixture fixture;
    uint32_t number, generation;

    (void)state;
    fixture_open(&fixture, 100);
    number = put(fixture.map, 1, spread);
    generation = word_generation(atomic_load(&residency_at(fixture.map, number)->word));
    erase(fixture.map, number);
    assert_int_equal(insert(fixture.map, 2, spread), number);
    assert_int_equal(
        word_generation(atomic_load(&residency_at(fixture.map, number)->word)), generation + 1);
    residency_discard(fixture.map, number); /* A put that failed: the key can be put again. */
    assert_int_equal(put(fixture.map, 2, spread), number);
    assert_true(is_hit(fixture.map, 2, spread));
    fixture_close(&fixture);
}

/* A number is given out again at once: of the next entry it is another use, however often. */
static void
use_of_an_entry_is_no_later_one_under_its_number(void **state)
{
    struct fixture fixture;
    struct entry_use use;
    uint32_t number, generation;

    (void)state;
    fixture_open(&fixture, 100);
    number = put(fixture.map, 1, spread);
    use = residency_use(fixture.map, number);
    generation = use.generation;
    assert_true(residency_is_use(fixture.map, number, &use));
    assert_false(residency_is_use(fixture.map, number, &(struct entry_use){0}));
    assert_false(residency_is_use(fixture.map, put(fixture.map, 2, spread), &use));
    erase(fixture.map, number);
    assert_int_equal(insert(fixture.map, 1, spread), number);
    assert_false(residency_is_use(fixture.map, number, &use));
    /* Until its generation comes round. */
    do {
        residency_discard(fixture.map, number);
        assert_int_equal(insert(fixture.map, 1, spread), number);
    } while (residency_use(fixture.map, number).generation != generation);
    assert_false(residency_is_use(fixture.map, number, &use));
    residency_discard(fixture.map, number);
    fixture_close(&fixture);
}

/* --- Keys and fingerprints -------------------------------------------------------------------- */

static void
keys_of_every_length_are_kept_and_others_refused(void **state)
{
    struct fixture fixture;
    struct block_key key = {.namespace_id = 77, .component = 513, .form = KEY_HASHED};
    struct block_key kept;
    uint32_t number = 0;

    (void)state;
    fixture_open(&fixture, 100);
    memset(key.bytes, 0xC3, sizeof(key.bytes));
    for (uint8_t length = 1; length <= KEY_BYTES_MAX; length++) {
        struct hash128 fingerprint = {.low = length};

        key.length = length;
        assert_int_equal(residency_insert(fixture.map, fingerprint, &key, &number), KVT_OK);
        residency_key(fixture.map, number, &kept);
        assert_true(key_equal(&key, &kept));
    }
    assert_int_equal(residency_count(fixture.map), KEY_BYTES_MAX);
    key.length = 0;
    assert_int_equal(
        residency_insert(fixture.map, (struct hash128){0}, &key, &number), KVT_E_INVAL);
    key.length = KEY_BYTES_MAX + 1;
    assert_int_equal(
        residency_insert(fixture.map, (struct hash128){0}, &key, &number), KVT_E_INVAL);
    assert_int_equal(residency_count(fixture.map), KEY_BYTES_MAX);
    fixture_close(&fixture);
}

static struct hash128
all_the_same(uint32_t n)
{
    (void)n;
    return (struct hash128){.high = 5, .low = 5};
}

static void
keys_that_differ_in_one_field_are_different_keys(void **state)
{
    struct fixture fixture;
    struct block_key keys[6];
    struct hash128 fingerprint = {.high = 5, .low = 5};
    uint32_t numbers[6];

    (void)state;
    fixture_open(&fixture, 100);
    for (uint32_t i = 0; i < 6; i++)
        keys[i] = key_of(28);
    keys[1].namespace_id++;
    keys[2].component++;
    keys[3].form = KEY_HASHED;
    keys[4].length--;
    keys[5].bytes[keys[5].length - 1]++;
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(residency_find(fixture.map, fingerprint, &keys[i]), ENTRY_NONE);
        assert_int_equal(residency_insert(fixture.map, fingerprint, &keys[i], &numbers[i]), KVT_OK);
    }
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(residency_find(fixture.map, fingerprint, &keys[i]), numbers[i]);
    fixture_close(&fixture);
}

static void
equal_fingerprints_find_their_own_keys(void **state)
{
    struct fixture fixture;
    uint32_t numbers[300];

    (void)state;
    fixture_open(&fixture, 1000);
    for (uint32_t n = 0; n < 300; n++)
        numbers[n] = put(fixture.map, n, all_the_same);
    for (uint32_t n = 0; n < 300; n += 3)
        erase(fixture.map, numbers[n]);
    for (uint32_t n = 0; n < 300; n++) {
        uint8_t tiers = 0;
        uint32_t number = pin(fixture.map, n, all_the_same, &tiers);

        assert_int_equal(number, n % 3 == 0 ? ENTRY_NONE : numbers[n]);
        if (number != ENTRY_NONE)
            assert_false(residency_unpin(fixture.map, number));
    }
    for (uint32_t n = 300; n < 320 && insert(fixture.map, n, all_the_same) != ENTRY_NONE; n++)
        assert_false(is_hit(fixture.map, n, all_the_same));
    fixture_close(&fixture);
}

static void
batch_counts_its_leading_hits(void **state)
{
    static struct block_key keys[500];
    static struct hash128 fingerprints[500];
    uint32_t numbers[500];
    uint8_t tiers[500];
    struct fixture fixture;

    (void)state;
    fixture_open(&fixture, 1000);
    for (uint32_t n = 0; n < 500; n++) {
        keys[n] = key_of(n);
        fingerprints[n] = spread(n);
        if (n != 130)
            (void)put(fixture.map, n, spread);
    }
    assert_int_equal(residency_find_pin(fixture.map, fingerprints, keys, 500, numbers, tiers), 130);
    for (uint32_t n = 0; n < 500; n++) {
        assert_int_equal(numbers[n] == ENTRY_NONE, n == 130);
        assert_int_equal(tiers[n], n == 130 ? 0 : TIER_HOST);
        if (n != 130)
            assert_false(residency_unpin(fixture.map, numbers[n]));
    }
    assert_int_equal(residency_find_pin(fixture.map, fingerprints, keys, 0, numbers, tiers), 0);
    fixture_close(&fixture);
}

/* --- Growth ----------------------------------------------------------------------------------- */

/* The number: one sub-table, one tag. */
static struct hash128 table_fingerprints[16];

static const struct hash128 *
table_fingerprint_at(const void *context, uint32_t number)
{
    (void)context;
    table_fingerprints[number].low = (uint64_t)number << 60;
    return &table_fingerprints[number];
}

static void
table_put(struct table *table, uint32_t number)
{
    assert_int_equal(table_insert(table, *table_fingerprint_at(NULL, number), number,
                         table_fingerprint_at, NULL),
        KVT_OK);
}

static void
look_that_began_before_a_growth_stays_in_its_array(void **state)
{
    struct counted_memory memory;
    struct kvt_env env;
    struct table table;
    struct table_cursor cursor;
    uint32_t ticket;

    (void)state;
    counted_memory_init(&memory, &env);
    assert_int_equal(table_open(&table, &env), KVT_OK);
    for (uint32_t n = 0; n < 8; n++) /* As many as one bucket takes. */
        table_put(&table, n);
    ticket = table_enter(&table);
    cursor = table_look(&table, *table_fingerprint_at(NULL, 6));
    for (uint32_t n = 0; n < 5; n++)
        assert_int_equal(table_next(&cursor), n);
    table_put(&table, 8);
    for (uint32_t n = 5; n < 8; n++)
        assert_int_equal(table_next(&cursor), n);
    assert_int_equal(table_next(&cursor), ENTRY_NONE);
    table_leave(&table, ticket);
    table_close(&table);
    assert_int_equal(memory.out_bytes, 0);
}

static void
old_arrays_wait_for_the_readers_that_may_see_them(void **state)
{
    struct counted_memory memory;
    struct kvt_env env;
    struct table table;
    uint32_t early, late;
    size_t before;

    (void)state;
    counted_memory_init(&memory, &env);
    assert_int_equal(table_open(&table, &env), KVT_OK);
    early = table_enter(&table);
    for (uint32_t n = 0; n < 9; n++)
        table_put(&table, n);
    before = memory.out_bytes;
    late = table_enter(&table); /* Under the same parity; it cannot see the old array. */
    for (uint32_t i = 0; i < 5; i++)
        table_collect(&table);
    assert_int_equal(memory.out_bytes, before);
    table_leave(&table, early);
    for (uint32_t i = 0; i < 5; i++)
        table_collect(&table);
    assert_int_equal(memory.out_bytes, before); /* Nobody tells the two apart. */
    table_leave(&table, late);
    for (uint32_t i = 0; i < 5; i++) {
        uint32_t reader = table_enter(&table); /* One that comes later holds nothing up. */

        table_collect(&table);
        table_leave(&table, reader);
    }
    assert_true(memory.out_bytes < before);
    assert_null(table.retired);
    table_close(&table);
    assert_int_equal(memory.out_bytes, 0);
}

static void
full_map_refuses_until_an_entry_is_free(void **state)
{
    struct fixture fixture;
    struct block_key key = key_of(5000);
    uint32_t number = 0;

    (void)state;
    fixture_open(&fixture, 5000);
    for (uint32_t n = 0; n < 5000; n++)
        assert_int_equal(put(fixture.map, n, spread), n);
    assert_int_equal(residency_insert(fixture.map, spread(5000), &key, &number), KVT_E_NOSPC);
    assert_int_equal(residency_number_limit(fixture.map), 5000);
    residency_check(fixture.map);
    erase(fixture.map, 4200);
    assert_int_equal(put(fixture.map, 5000, spread), 4200);
    assert_int_equal(residency_number_limit(fixture.map), 5000);
    assert_true(is_hit(fixture.map, 5000, spread));
    assert_false(is_hit(fixture.map, 4200, spread));
    fixture_close(&fixture);
}

static void
scan_sees_every_entry_that_stays_while_others_are_erased(void **state)
{
    struct fixture fixture;
    static uint8_t seen[KEYS_MAX];

    (void)state;
    memset(seen, 0, sizeof(seen));
    fixture_open(&fixture, KEYS_MAX);
    for (uint32_t n = 0; n < KEYS_MAX; n++)
        assert_int_equal(put(fixture.map, n, spread), n);
    for (uint32_t i = 0; i < residency_number_limit(fixture.map); i++) {
        struct block_key key;
        uint32_t n = 0;

        if (word_state(atomic_load(&residency_at(fixture.map, i)->word)) == ENTRY_RESIDENT) {
            residency_key(fixture.map, i, &key);
            memcpy(&n, key.bytes, sizeof(n));
            assert_true(n < KEYS_MAX);
            seen[n]++;
        }
        /* One ahead of the scan, one behind it. */
        if (i % 4 == 0)
            erase(fixture.map, i + 1);
        if (i % 4 == 3)
            erase(fixture.map, i);
    }
    for (uint32_t n = 0; n < KEYS_MAX; n++)
        assert_int_equal(seen[n], n % 4 != 1);
    assert_int_equal(residency_count(fixture.map), KEYS_MAX / 2);
    fixture_close(&fixture);
}

/* --- Random lives ----------------------------------------------------------------------------- */

/* `numbers`: where key n is, or ENTRY_NONE. */
static void
random_life(uint64_t seed, uint32_t key_count, struct hash128 (*fingerprint)(uint32_t))
{
    static uint32_t numbers[KEYS_MAX];
    struct rng rng = {.state = seed};
    struct fixture fixture;
    uint32_t count = 0;

    memset(numbers, 0xFF, sizeof(numbers));
    fixture_open(&fixture, key_count);
    for (uint32_t i = 0; i < key_count * 4; i++) {
        uint32_t n = rng_below(&rng, key_count), near = numbers[rng_below(&rng, key_count)];
        struct block_key key = key_of(n);
        /* It fills, then it empties, then it fills again. */
        bool is_put = rng_below(&rng, 4) != 0 ? (i / key_count) % 2 == 0 : rng_below(&rng, 2) != 0;

        assert_int_equal(residency_find_near(fixture.map, near, fingerprint(n), &key), numbers[n]);
        assert_int_equal(is_hit(fixture.map, n, fingerprint), numbers[n] != ENTRY_NONE);
        if (is_put && numbers[n] == ENTRY_NONE) {
            numbers[n] = put(fixture.map, n, fingerprint);
            count++;
        } else if (!is_put && numbers[n] != ENTRY_NONE) {
            erase(fixture.map, numbers[n]);
            numbers[n] = ENTRY_NONE;
            count--;
        }
        if (i % 64 == 0)
            residency_collect(fixture.map);
        assert_int_equal(residency_count(fixture.map), count);
    }
    for (uint32_t n = 0; n < key_count; n++)
        assert_int_equal(is_hit(fixture.map, n, fingerprint), numbers[n] != ENTRY_NONE);
    fixture_close(&fixture);
}

static void
map_agrees_with_a_plain_table(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++)
        random_life(seed, KEYS_MAX, spread);
}

static void
map_agrees_with_a_plain_table_when_fingerprints_collide(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++)
        random_life(seed, 400, colliding);
}

/* --- Memory ----------------------------------------------------------------------------------- */

static void
open_that_finds_no_memory_gives_all_back(void **state)
{
    struct counted_memory memory;
    struct kvt_env env;
    struct residency *map;

    (void)state;
    for (uint64_t n = 1;; n++) {
        counted_memory_init(&memory, &env);
        memory.fail_at = n;
        if (residency_open(&env, 1000, &map) == KVT_OK)
            break;
        assert_null(map);
        assert_int_equal(memory.out_bytes, 0);
        assert_true(n < 10000);
    }
    residency_close(map);
    assert_int_equal(memory.out_bytes, 0);
}

static void
insert_that_finds_no_memory_changes_nothing(void **state)
{
    struct fixture fixture;
    uint32_t n = 0, failed_count = 0;

    (void)state;
    fixture_open(&fixture, KEYS_MAX);
    while (n < KEYS_MAX) {
        struct block_key key = key_of(n);
        uint32_t number = ENTRY_NONE;
        enum kvt_status status;

        fixture.memory.fail_at = fixture.memory.asked_count + 1;
        status = residency_insert(fixture.map, spread(n), &key, &number);
        fixture.memory.fail_at = 0;
        if (status != KVT_OK) {
            assert_int_equal(status, KVT_E_NOMEM);
            assert_int_equal(residency_count(fixture.map), n);
            assert_int_equal(residency_find(fixture.map, spread(n), &key), ENTRY_NONE);
            number = insert(fixture.map, n, spread);
            failed_count++;
        }
        assert_int_equal(number, n);
        residency_publish(fixture.map, number, TIER_HOST);
        n++;
    }
    assert_true(failed_count > 0);
    for (n = 0; n < KEYS_MAX; n++)
        assert_true(is_hit(fixture.map, n, spread));
    fixture_close(&fixture);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entry_is_hit_from_its_publication_to_its_doom),
        cmocka_unit_test(pinned_entry_is_neither_evicted_nor_freed),
        cmocka_unit_test(copy_is_given_up_when_nobody_has_it_pinned),
        cmocka_unit_test(entry_with_all_the_pins_of_readers_is_a_miss),
        cmocka_unit_test(number_comes_back_under_the_next_generation),
        cmocka_unit_test(use_of_an_entry_is_no_later_one_under_its_number),
        cmocka_unit_test(keys_of_every_length_are_kept_and_others_refused),
        cmocka_unit_test(keys_that_differ_in_one_field_are_different_keys),
        cmocka_unit_test(equal_fingerprints_find_their_own_keys),
        cmocka_unit_test(batch_counts_its_leading_hits),
        cmocka_unit_test(look_that_began_before_a_growth_stays_in_its_array),
        cmocka_unit_test(old_arrays_wait_for_the_readers_that_may_see_them),
        cmocka_unit_test(full_map_refuses_until_an_entry_is_free),
        cmocka_unit_test(scan_sees_every_entry_that_stays_while_others_are_erased),
        cmocka_unit_test(map_agrees_with_a_plain_table),
        cmocka_unit_test(map_agrees_with_a_plain_table_when_fingerprints_collide),
        cmocka_unit_test(open_that_finds_no_memory_gives_all_back),
        cmocka_unit_test(insert_that_finds_no_memory_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
