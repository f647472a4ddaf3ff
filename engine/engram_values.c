/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_values.c - rows of 8-bit numbers with shared scales as bfloat16 numbers, in integers, so
 * that no floating-point mode of the caller's thread changes a bit.
 *
 * E4M3 (the "fn" kind): sign, 4 bits of exponent with bias 7, 3 of mantissa; subnormals are
 * multiples of 2^-9; 0x7F and 0xFF are NaN, there is no infinity. E8M0: 2^(byte - 127), 255 is NaN.
 */
#include "engram_internal.h"

#include "failure.h"

enum {
    MAGNITUDE_NAN = 0x7F,
    SCALE_NAN = 255,
    SCALE_ONE = 127,
    BF16_NAN = 0x7FC0,
    BF16_INFINITY = 0x7F80,
    /* Between these every value is a normal bfloat16: its exponent at scale 1 is 118 .. 135. */
    SCALE_PLAIN_MIN = 10,
    SCALE_PLAIN_MAX = 246,
};

/* A magnitude at scale 1: all of them are normal numbers but 0. */
static uint16_t
magnitude_plain(uint32_t magnitude)
{
    uint32_t shift;

    if (magnitude >= 8)
        return (uint16_t)((magnitude << 4) + (120u << 7));
    if (magnitude == 0)
        return 0;
    /* m * 2^-9, m = 1.. 7: bring its highest bit in front of the point. */
    shift = 31 - (uint32_t)__builtin_clz(magnitude);
    return (uint16_t)((118 + shift) << 7 | ((magnitude << (7 - shift)) & 0x7F));
}

/* A magnitude at any scale but NaN. */
static uint16_t
magnitude_scaled(uint32_t magnitude, uint32_t scale)
{
    uint32_t plain = magnitude_plain(magnitude);
    int exponent = (int)(plain >> 7) + (int)scale - SCALE_ONE;
    uint32_t significand = 0x80 | (plain & 0x7F);
    uint32_t shift, half;

    if (magnitude == 0)
        return 0;
    if (exponent >= 255)
        return BF16_INFINITY;
    if (exponent >= 1)
        return (uint16_t)((uint32_t)exponent << 7 | (plain & 0x7F));
    /* A subnormal: the nearest multiple of 2^-133, ties to even. It may become the least normal. */
    shift = (uint32_t)(1 - exponent);
    half = 1u << (shift - 1);
    return (uint16_t)((significand + half - 1 + (significand >> shift & 1)) >> shift);
}

/* What each magnitude is at this scale. */
static void
magnitudes_make(uint16_t table[128], uint32_t scale)
{
    for (uint32_t magnitude = 0; magnitude < 128; magnitude++) {
        if (magnitude == MAGNITUDE_NAN || scale == SCALE_NAN)
            table[magnitude] = BF16_NAN;
        else
            table[magnitude] = magnitude_scaled(magnitude, scale);
    }
}

/* Values of one group, whose scale is far from both ends: exponents are added. */
static void
group_plain(const uint16_t table[128], const uint8_t *values, uint32_t count, uint32_t scale,
    uint16_t *values_out)
{
    uint32_t raise = (scale - SCALE_ONE) << 7; /* Modulo 2^16: it may be negative. */

    for (uint32_t i = 0; i < count; i++) {
        uint32_t magnitude = values[i] & 0x7Fu;
        uint32_t sign = (values[i] & 0x80u) << 8;
        bool is_fixed = magnitude == 0 || magnitude == MAGNITUDE_NAN;

        values_out[i] = (uint16_t)(sign | ((table[magnitude] + (is_fixed ? 0 : raise)) & 0x7FFF));
    }
}

static void
group_any(const uint8_t *values, uint32_t count, uint32_t scale, uint16_t *values_out)
{
    uint16_t table[128];

    magnitudes_make(table, scale);
    for (uint32_t i = 0; i < count; i++)
        values_out[i] = (uint16_t)((values[i] & 0x80u) << 8 | table[values[i] & 0x7F]);
}

enum kvt_status
kvt_engram_dequantise(const struct kvt_engram_profile *profile, const void *rows,
    uint64_t row_count, uint16_t *values_out)
{
    const uint8_t *row = rows;
    uint16_t table[128];
    uint32_t group;

    if (profile == NULL || (row_count > 0 && (rows == NULL || values_out == NULL)))
        return failure_set(KVT_E_INVAL, 0, "profile, rows or values_out is NULL");
    if (profile->encoding != KVT_ENGRAM_E4M3_E8M0 || profile->scale_count == 0 ||
        profile->value_count % profile->scale_count != 0 ||
        (uint64_t)profile->value_count + profile->scale_count != profile->row_bytes)
        return failure_set(KVT_E_INVAL, 0,
            "encoding %u, %u values and %u scales in %u bytes: no rows of E4M3 with E8M0",
            profile->encoding, profile->value_count, profile->scale_count, profile->row_bytes);
    magnitudes_make(table, SCALE_ONE);
    group = profile->value_count / profile->scale_count;
    for (uint64_t i = 0; i < row_count; i++, row += profile->row_bytes) {
        const uint8_t *scales = row + profile->value_count;

        for (uint32_t g = 0; g < profile->scale_count; g++, values_out += group) {
            if (scales[g] >= SCALE_PLAIN_MIN && scales[g] <= SCALE_PLAIN_MAX)
                group_plain(table, row + (size_t)g * group, group, scales[g], values_out);
            else
                group_any(row + (size_t)g * group, group, scales[g], values_out);
        }
    }
    return KVT_OK;
}
