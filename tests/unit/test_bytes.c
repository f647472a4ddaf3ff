/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_bytes.c - fields at byte offsets, sizes, and the repeatable random numbers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bytes.h"
#include "rng.h"

static void
little_endian_fields_have_their_bytes_in_place(void **state)
{
    static const uint8_t expected[] = {0xEE, 0x02, 0x01, 0x06, 0x05, 0x04, 0x03, 0x0E, 0x0D, 0x0C,
        0x0B, 0x0A, 0x09, 0x08, 0x07, 0xEE};
    uint8_t bytes[16];

    (void)state;
    /* Odd offsets: nothing may assume alignment. */
    memset(bytes, 0xEE, sizeof(bytes));
    put_u16(bytes + 1, 0x0102);
    put_u32(bytes + 3, 0x03040506);
    put_u64(bytes + 7, 0x0708090A0B0C0D0E);
    assert_memory_equal(bytes, expected, sizeof(bytes));
    assert_int_equal(get_u16(bytes + 1), 0x0102);
    assert_int_equal(get_u32(bytes + 3), 0x03040506);
    assert_true(get_u64(bytes + 7) == 0x0708090A0B0C0D0E);
}

static void
big_endian_field_sorts_as_its_number(void **state)
{
    static const uint8_t expected[] = {0x01, 0x02, 0x03, 0xFF};
    uint8_t bytes[4];

    (void)state;
    put_u32_big(bytes, 0x010203FF);
    assert_memory_equal(bytes, expected, 4);
    assert_int_equal(get_u32_big(bytes), 0x010203FF);
}

static void
extreme_values_survive(void **state)
{
    uint8_t bytes[8];

    (void)state;
    put_u16(bytes, UINT16_MAX);
    assert_int_equal(get_u16(bytes), UINT16_MAX);
    put_u32(bytes, 0x80000000);
    assert_int_equal(get_u32(bytes), 0x80000000);
    put_u32(bytes, UINT32_MAX);
    assert_int_equal(get_u32(bytes), UINT32_MAX);
    put_u64(bytes, UINT64_MAX);
    assert_true(get_u64(bytes) == UINT64_MAX);
}

static void
zero_bytes_are_seen_and_others_too(void **state)
{
    uint8_t bytes[40] = {0};

    (void)state;
    assert_true(bytes_are_zero(bytes, 0));
    assert_true(bytes_are_zero(bytes, sizeof(bytes)));
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = 0x80;
        assert_false(bytes_are_zero(bytes, sizeof(bytes)));
        assert_true(bytes_are_zero(bytes, i));
        bytes[i] = 0;
    }
}

static void
pages_are_counted_up(void **state)
{
    (void)state;
    assert_int_equal(pages_of(0), 0);
    assert_int_equal(pages_of(1), 1);
    assert_int_equal(pages_of(4096), 1);
    assert_int_equal(pages_of(4097), 2);
    assert_int_equal(pages_of((uint64_t)1 << 43), (uint64_t)1 << 31);
}

static void
sizes_are_rounded_up_to_the_alignment(void **state)
{
    (void)state;
    assert_int_equal(round_up(0, 512), 0);
    assert_int_equal(round_up(1, 512), 512);
    assert_int_equal(round_up(512, 512), 512);
    assert_int_equal(round_up(513, 512), 1024);
    assert_int_equal(round_up(7, 1), 7);
    assert_true(round_up(((uint64_t)1 << 40) + 1, (uint64_t)1 << 40) == (uint64_t)1 << 41);
}

static void
random_numbers_repeat_from_their_seed(void **state)
{
    /* SplitMix64 from seed 0; the values of the authors' reference code. */
    static const uint64_t expected[] = {0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F};
    struct rng rng = {0};

    (void)state;
    for (size_t i = 0; i < 3; i++)
        assert_true(rng_next(&rng) == expected[i]);
}

static void
random_choice_stays_below_its_limit_and_reaches_all(void **state)
{
    struct rng rng = {.state = 1};
    uint32_t seen[10] = {0};

    (void)state;
    for (uint32_t i = 0; i < 10000; i++) {
        uint32_t choice = rng_below(&rng, 10);

        assert_true(choice < 10);
        seen[choice]++;
    }
    for (uint32_t i = 0; i < 10; i++)
        assert_in_range(seen[i], 800, 1200);
    assert_int_equal(rng_below(&rng, 0), 0);
    assert_int_equal(rng_below(&rng, 1), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(little_endian_fields_have_their_bytes_in_place),
        cmocka_unit_test(big_endian_field_sorts_as_its_number),
        cmocka_unit_test(extreme_values_survive),
        cmocka_unit_test(zero_bytes_are_seen_and_others_too),
        cmocka_unit_test(pages_are_counted_up),
        cmocka_unit_test(sizes_are_rounded_up_to_the_alignment),
        cmocka_unit_test(random_numbers_repeat_from_their_seed),
        cmocka_unit_test(random_choice_stays_below_its_limit_and_reaches_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
