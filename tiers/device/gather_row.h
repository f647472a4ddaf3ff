/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gather_row.h - what gathering rows of a table does: where a row lies, and what its 8-bit numbers
 * are as bfloat16.
 *
 * Read by C and by CUDA (kernels.cu), so that a processor and a GPU give the same bits. All of it
 * is in integers: no floating-point mode of a thread changes anything.
 *
 * E4M3 (the "fn" kind): sign, 4 bits of exponent with bias 7, 3 of mantissa; subnormals are
 * multiples of 2^-9; 0x7F and 0xFF are NaN, there is no infinity. E8M0: 2^(byte - 127), 255 is NaN.
 */
#ifndef KVT_TIERS_GATHER_ROW_H
#define KVT_TIERS_GATHER_ROW_H

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#    define GATHER_SHARED static __host__ __device__ inline
#else
#    define GATHER_SHARED static inline
#endif

enum {
    GATHER_PAGE_BYTES = 4096,
    MAGNITUDE_NAN = 0x7F,
    SCALE_NAN = 255,
    SCALE_ONE = 127,
    BF16_NAN = 0x7FC0,
    BF16_INFINITY = 0x7F80,
};

#define GATHER_FINE UINT64_MAX /* A verdict: every id was in range. */

/* One gather. The addresses are those of whoever does it. */
struct gather_work {
    const uint32_t *ids;
    uint64_t count;
    const uint8_t *pages; /* Of GATHER_PAGE_BYTES, rows_per_page rows at the beginning of each. */
    uint32_t row_count;   /* Ids are below it. */
    uint32_t rows_per_page;
    uint32_t row_bytes;
    uint32_t value_count; /* 0: rows as they are. Else so many E4M3 numbers a row ... */
    uint32_t scale_count; /* ... and E8M0 scales behind them, to bfloat16. */
    uint8_t *target;
    uint64_t *verdict; /* GATHER_FINE, or which id is the first that is out of range: then nothing
                        * is written to the target. */
};

GATHER_SHARED const uint8_t *
gather_row(const struct gather_work *work, uint32_t id)
{
    return work->pages + (size_t)(id / work->rows_per_page) * GATHER_PAGE_BYTES +
           (size_t)(id % work->rows_per_page) * work->row_bytes;
}

/* Bytes of a row in the target. */
GATHER_SHARED uint32_t
gather_target_bytes(const struct gather_work *work)
{
    return work->value_count > 0 ? work->value_count * 2 : work->row_bytes;
}

/* A magnitude at scale 1: all of them are normal numbers but 0. */
GATHER_SHARED uint32_t
magnitude_plain(uint32_t magnitude)
{
    uint32_t shift;

    if (magnitude >= 8)
        return (magnitude << 4) + (120u << 7);
    if (magnitude == 0)
        return 0;
    /* m * 2^-9, m = 1.. 7: bring its highest bit in front of the point. */
    shift = (uint32_t)(magnitude >= 2) + (uint32_t)(magnitude >= 4);
    return (118 + shift) << 7 | ((magnitude << (7 - shift)) & 0x7F);
}

/* A magnitude at any scale but NaN. */
GATHER_SHARED uint32_t
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
        return (uint32_t)exponent << 7 | (plain & 0x7F);
    /* A subnormal: the nearest multiple of 2^-133, ties to even. It may become the least normal. */
    shift = (uint32_t)(1 - exponent);
    half = 1u << (shift - 1);
    return (significand + half - 1 + (significand >> shift & 1)) >> shift;
}

/* One number. */
GATHER_SHARED uint16_t
gather_value(uint32_t byte, uint32_t scale)
{
    uint32_t magnitude = byte & 0x7F;
    uint32_t value = magnitude == MAGNITUDE_NAN || scale == SCALE_NAN
                         ? (uint32_t)BF16_NAN
                         : magnitude_scaled(magnitude, scale);

    return (uint16_t)((byte & 0x80u) << 8 | value);
}

#endif /* KVT_TIERS_GATHER_ROW_H */
