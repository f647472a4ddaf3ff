/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_fate_table.c - the table of fates: bounded, in order within a bucket, saved and restored,
 * and not misled by bytes that are none.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bytes.h"
#include "fate_table.h"
#include "kvtier/explaining.h"
#include "kvtier/kvtier_unstable.h"
#include "rng.h"

/* What was written by somebody else, with a sum that is right. */
static void
records_that_are_no_fates_are_passed_over(void **state)
{
    struct fate_table table = {0};
    struct kvt_env env;
    struct fate fate;
    uint8_t records[4 * FATE_RECORD_BYTES + 5] = {0};

    (void)state;
    kvt_env_host(&env);
    fate_table_open(&table, &env, 0);
    put_u64(records, 7); /* No kind. */
    put_u64(records + 16, 0);
    put_u64(records + 24, (uint64_t)KVT_FATE_DELETED << 60); /* No tag. */
    put_u64(records + 32, 8);
    put_u64(records + 40, UINT64_MAX); /* A kind that there is not. */
    put_u64(records + 48, 9);
    put_u64(records + 56, (uint64_t)KVT_FATE_DELETED << 60);
    fate_table_restore(&table, records, sizeof(records));
    assert_false(fate_table_find(&table, 7, &fate));
    assert_false(fate_table_find(&table, 0, &fate));
    assert_false(fate_table_find(&table, 8, &fate));
    assert_true(fate_table_find(&table, 9, &fate));
    assert_true(fate_in_records(records, sizeof(records), 9, &fate));
    assert_false(fate_in_records(records, sizeof(records), 8, &fate));
    fate_table_close(&table, &env);
}

/* --- The table -------------------------------------------------------------------------------- */

static void
a_full_bucket_forgets_its_oldest(void **state)
{
    static uint8_t saved[FATE_SLOTS_LEAST * FATE_RECORD_BYTES];
    struct fate_table table = {0}, again = {0};
    struct kvt_env env;
    struct fate fate = {.kind = KVT_FATE_DELETED, .score = NAN, .cut = 0.0126f};
    size_t size;

    (void)state;
    kvt_env_host(&env);
    fate_table_open(&table, &env, 1);
    assert_int_equal(table.slot_count, FATE_SLOTS_LEAST);
    for (uint64_t i = 1; i <= 6; i++) {
        fate.when_s = (uint32_t)i;
        fate_table_add(&table, i * FATE_SLOTS_LEAST, &fate);
    }
    /* The third is noted once more: then the fourth is the oldest. */
    fate_table_add(&table, 3 * (uint64_t)FATE_SLOTS_LEAST, &fate);
    fate_table_add(&table, 7 * (uint64_t)FATE_SLOTS_LEAST, &fate);
    size = fate_table_save(&table, saved);
    assert_int_equal(size, FATE_WAYS * FATE_RECORD_BYTES);
    fate_table_open(&again, &env, 1);
    fate_table_restore(&again, saved, size);
    /* It takes over which is the oldest, too. */
    fate_table_add(&again, 8 * (uint64_t)FATE_SLOTS_LEAST, &fate);
    for (uint64_t i = 1; i <= 8; i++) {
        bool is_found = fate_table_find(&table, i * FATE_SLOTS_LEAST, &fate);

        assert_int_equal(is_found, i == 3 || i == 5 || i == 6 || i == 7);
        if (is_found)
            assert_true(isnan(fate.score) && fabsf(fate.cut - 0.0126f) < 0.0002f);
        is_found = fate_table_find(&again, i * FATE_SLOTS_LEAST, &fate);
        assert_int_equal(is_found, i == 3 || i == 6 || i == 7 || i == 8);
    }
    fate_table_close(&table, &env);
    fate_table_close(&again, &env);
}

/* Behind it in its bucket nothing is lost, and what is noted again stands there once. */
static void
what_is_removed_is_not_found(void **state)
{
    static uint8_t saved[FATE_SLOTS_LEAST * FATE_RECORD_BYTES];
    struct fate_table table = {0};
    const struct fate fate = {.kind = KVT_FATE_DELETED};
    struct kvt_env env;
    struct fate found;

    (void)state;
    kvt_env_host(&env);
    fate_table_remove(&table, FATE_SLOTS_LEAST); /* Without memory. */
    fate_table_open(&table, &env, 1);
    for (uint64_t i = 1; i <= FATE_WAYS; i++)
        fate_table_add(&table, i * FATE_SLOTS_LEAST, &fate);
    (void)fate_table_save(&table, saved);
    fate_table_remove(&table, 3 * (uint64_t)FATE_SLOTS_LEAST);
    assert_int_equal(atomic_load(&table.is_changed), 1);
    for (uint64_t i = 1; i <= FATE_WAYS; i++)
        assert_int_equal(fate_table_find(&table, i * FATE_SLOTS_LEAST, &found), i != 3);
    fate_table_add(&table, FATE_SLOTS_LEAST, &fate);
    assert_int_equal(fate_table_save(&table, saved), (FATE_WAYS - 1) * FATE_RECORD_BYTES);
    fate_table_remove(&table, FATE_SLOTS_LEAST);
    assert_false(fate_table_find(&table, FATE_SLOTS_LEAST, &found));
    assert_int_equal(fate_table_save(&table, saved), (FATE_WAYS - 2) * FATE_RECORD_BYTES);
    fate_table_close(&table, &env);
}

static void
a_table_has_a_bound_whatever_is_asked_of_it(void **state)
{
    struct fate_table table = {0};
    const struct fate fate = {.kind = KVT_FATE_EVICTED};
    struct kvt_env env;
    struct fate found;
    struct rng rng = {.state = 5};
    uint32_t count = 0;

    (void)state;
    kvt_env_host(&env);
    fate_table_open(&table, &env, UINT64_MAX);
    assert_int_equal(table.slot_count, KVT_FATES_MAX);
    for (uint32_t i = 0; i < KVT_FATES_MAX * 2; i++)
        fate_table_add(&table, rng_next(&rng), &fate);
    rng.state = 5;
    for (uint32_t i = 0; i < KVT_FATES_MAX * 2; i++)
        count += fate_table_find(&table, rng_next(&rng), &found);
    assert_true(count > KVT_FATES_MAX / 2 && count <= KVT_FATES_MAX);
    fate_table_close(&table, &env);
    fate_table_add(&table, 1, &fate); /* Without memory it stays empty. */
    assert_false(fate_table_find(&table, 1, &found));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_that_are_no_fates_are_passed_over),
        cmocka_unit_test(a_full_bucket_forgets_its_oldest),
        cmocka_unit_test(what_is_removed_is_not_found),
        cmocka_unit_test(a_table_has_a_bound_whatever_is_asked_of_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
