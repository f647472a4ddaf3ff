/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_engram_values.c - every E4M3 number under every E8M0 scale, against long double arithmetic;
 * corners by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>
#if defined(__x86_64__)
#    include <xmmintrin.h>
#endif

#include "kvtier/kvtier.h"

/* The formula, as the formats' standard has it. */
static long double
value_of(uint32_t byte, uint32_t scale)
{
    uint32_t exponent = byte >> 3 & 15, mantissa = byte & 7;
    long double value = exponent == 0 ? ldexpl((long double)mantissa, -9)
                                      : ldexpl(1 + (long double)mantissa / 8, (int)exponent - 7);

    return ldexpl((byte & 0x80) != 0 ? -value : value, (int)scale - 127);
}

/* The bfloat16 number that is nearest, ties to even, found by trying both neighbours. */
static uint16_t
bf16_nearest(long double value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    long double magnitude = fabsl(value);
    uint32_t low = 0, high = 0x7F80;

    /* The largest number that is not above; 0x7F80 stands for 2^128 here. */
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        uint32_t exponent = middle >> 7;
        long double number =
            exponent == 0 ? ldexpl((long double)(middle & 0x7F), -133)
                          : ldexpl((long double)(0x80 | (middle & 0x7F)), (int)exponent - 134);

        if (number <= magnitude)
            low = middle;
        else
            high = middle;
    }
    if (magnitude >= ldexpl(1, 128))
        return (uint16_t)(sign | 0x7F80);
    {
        long double step = ldexpl(1, low >> 7 == 0 ? -133 : (int)(low >> 7) - 134);
        long double base = low >> 7 == 0
                               ? ldexpl((long double)(low & 0x7F), -133)
                               : ldexpl((long double)(0x80 | (low & 0x7F)), (int)(low >> 7) - 134);
        long double rest = magnitude - base;

        if (rest * 2 > step || (rest * 2 == step && (low & 1) != 0))
            low++;
    }
    return (uint16_t)(sign | low);
}

static uint16_t
wanted(uint32_t byte, uint32_t scale)
{
    if ((byte & 0x7F) == 0x7F || scale == 255)
        return (uint16_t)((byte & 0x80) << 8 | 0x7FC0);
    return bf16_nearest(value_of(byte, scale));
}

static const struct kvt_engram_profile all_bytes = {
    .encoding = KVT_ENGRAM_E4M3_E8M0, .value_count = 256, .scale_count = 1, .row_bytes = 257};

static uint16_t values_of_all[256][256];

static void
all_pairs_compute(void)
{
    static uint8_t rows[256][257];

    for (uint32_t scale = 0; scale < 256; scale++) {
        for (uint32_t byte = 0; byte < 256; byte++)
            rows[scale][byte] = (uint8_t)byte;
        rows[scale][256] = (uint8_t)scale;
    }
    memset(values_of_all, 0xEE, sizeof(values_of_all));
    assert_int_equal(kvt_engram_dequantise(&all_bytes, rows, 256, values_of_all[0]), KVT_OK);
}

static void
all_pairs_prove(void)
{
    for (uint32_t scale = 0; scale < 256; scale++) {
        for (uint32_t byte = 0; byte < 256; byte++)
            assert_int_equal(values_of_all[scale][byte], wanted(byte, scale));
    }
}

static void
all_pairs_of_value_and_scale_are_the_nearest_number(void **state)
{
    (void)state;
    all_pairs_compute();
    all_pairs_prove();
}

static void
the_thread_s_floating_point_mode_changes_nothing(void **state)
{
#if defined(__x86_64__)
    unsigned mode = _mm_getcsr();

    _mm_setcsr(mode | 0xC040); /* Subnormals become zero, rounding goes up. */
    all_pairs_compute();
    _mm_setcsr(mode);
#else
    all_pairs_compute();
#endif
    (void)state;
    all_pairs_prove();
}

/* Known by hand, so that formula and code cannot be wrong together. */
static void
corners_are_as_computed_by_hand(void **state)
{
    static const struct {
        uint8_t byte, scale;
        uint16_t value;
    } corners[] = {
        {0x38, 127, 0x3F80}, /* 1 */
        {0xB8, 128, 0xC000}, /* -2 */
        {0x7E, 127, 0x43E0}, /* 448 */
        {0x01, 127, 0x3B00}, /* 2^-9 */
        {0x07, 127, 0x3C60}, /* 7 * 2^-9 */
        {0x7F, 127, 0x7FC0}, {0xFF, 127, 0xFFC0}, {0x80, 255, 0xFFC0}, {0x80, 127, 0x8000}, /* -0 */
        {0x00, 254, 0x0000}, {0x38, 254, 0x7F00}, /* 2^127 */
        {0x40, 254, 0x7F80},                      /* 2^128 */
        {0xC0, 254, 0xFF80}, {0x38, 0, 0x0040},   /* 2^-127 */
        {0x40, 0, 0x0080},                        /* 2^-126, the least normal number */
        {0x3F, 0, 0x0078},                        /* 15 * 2^-130 */
        {0x01, 0, 0x0000},                        /* 2^-136: an eighth of the least */
        {0x04, 0, 0x0000},                        /* 4 * 2^-136: half of it, tied to even */
        {0x05, 0, 0x0001}, {0x0C, 0, 0x0002},     /* 12 * 2^-136 = 1.5: tied to even */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(corners) / sizeof(corners[0]); i++) {
        const struct kvt_engram_profile one = {
            .encoding = KVT_ENGRAM_E4M3_E8M0, .value_count = 1, .scale_count = 1, .row_bytes = 2};
        const uint8_t row[] = {corners[i].byte, corners[i].scale};
        uint16_t value = 0xEEEE;

        assert_int_equal(kvt_engram_dequantise(&one, row, 1, &value), KVT_OK);
        assert_int_equal(value, corners[i].value);
    }
}

static void
each_group_has_its_own_scale(void **state)
{
    struct kvt_engram_profile profile;
    uint8_t rows[3][264];
    uint16_t values[3 * 256];

    (void)state;
    assert_int_equal(kvt_engram_profile_get(KVT_ENGRAM_DEEPSEEK_V41_FLASH, &profile), KVT_OK);
    for (uint32_t r = 0; r < 3; r++) {
        for (uint32_t i = 0; i < 264; i++)
            rows[r][i] = (uint8_t)(i < 256 ? i * 7 + r : i * 31 + r * 5);
    }
    assert_int_equal(kvt_engram_dequantise(&profile, rows, 3, values), KVT_OK);
    for (uint32_t i = 0; i < 3 * 256; i++)
        assert_int_equal(
            values[i], wanted(rows[i / 256][i % 256], rows[i / 256][256 + i % 256 / 32]));
}

static void
what_has_no_scales_is_refused(void **state)
{
    struct kvt_engram_profile profile = all_bytes;
    uint8_t row[257] = {0};
    uint16_t values[256];

    (void)state;
    assert_int_equal(kvt_engram_dequantise(NULL, row, 1, values), KVT_E_INVAL);
    assert_int_equal(kvt_engram_dequantise(&profile, NULL, 1, values), KVT_E_INVAL);
    assert_int_equal(kvt_engram_dequantise(&profile, row, 1, NULL), KVT_E_INVAL);
    assert_int_equal(kvt_engram_dequantise(&profile, NULL, 0, NULL), KVT_OK);
    profile.row_bytes++;
    assert_int_equal(kvt_engram_dequantise(&profile, row, 1, values), KVT_E_INVAL);
    profile = all_bytes;
    profile.scale_count = 0;
    assert_int_equal(kvt_engram_dequantise(&profile, row, 1, values), KVT_E_INVAL);
    profile = all_bytes;
    profile.encoding = KVT_ENGRAM_BF16;
    assert_int_equal(kvt_engram_dequantise(&profile, row, 1, values), KVT_E_INVAL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_pairs_of_value_and_scale_are_the_nearest_number),
        cmocka_unit_test(the_thread_s_floating_point_mode_changes_nothing),
        cmocka_unit_test(corners_are_as_computed_by_hand),
        cmocka_unit_test(each_group_has_its_own_scale),
        cmocka_unit_test(what_has_no_scales_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
