/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_values.c - rows of 8-bit numbers with shared scales as bfloat16 numbers, in integers, so
 * that no floating-point mode of the caller's thread changes a bit: gather_row.h, faster.
 */
#include "engram_internal.h"

#include "failure.h"
#include "gather_row.h"
#include "try.h"

enum {
    /* Between these every value is a normal bfloat16: its exponent at scale 1 is 118 .. 135. */
    SCALE_PLAIN_MIN = 10,
    SCALE_PLAIN_MAX = 246,
};

/* What each magnitude is at this scale. */
static void
magnitudes_make(uint16_t table[128], uint32_t scale)
{
    for (uint32_t magnitude = 0; magnitude < 128; magnitude++)
        table[magnitude] = gather_value(magnitude, scale);
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
    if (profile->encoding != KVT_ENGRAM_E4M3_E8M0)
        return failure_set(
            KVT_E_INVAL, 0, "encoding %u: no rows of E4M3 with E8M0", profile->encoding);
    KVT_TRY(engram_row_check(profile));
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
