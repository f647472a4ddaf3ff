/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_pairs.h - exponents of bf16 numbers, two in a byte.
 *
 * The exponents of a chunk lie in a narrow window: a code of four bits says where in it, or that
 * the number's lies elsewhere (an escape). zstd then codes pairs: half as many symbols as numbers,
 * which is where its time goes.
 *
 * What is written are codes of tops: a top is the upper seven bits of an exponent, so a number's
 * high byte without the sign. The lowest bit of an exponent is hardly less random than a mantissa
 * and stays where it is, in the low byte. So symbols are short, and zstd decodes two in a step; and
 * a window is 30 exponents wide, so that next to nothing is an escape. Whole exponents, which were
 * written before, are read only: the ratio was higher by 0.3 %, decoding took 1.6 times as long.
 *
 * Numbers go in groups of 128. Byte k of 16 has the codes of number k (low half) and number k + 16
 * of 32 numbers; of the signs of 128 numbers, in 16 bytes, byte k has in its bit 7 - j that of
 * number 16 j + k. The last group is filled up with the code 0. Nothing here allocates.
 */
#ifndef KVT_TIERS_CODEC_PAIRS_H
#define KVT_TIERS_CODEC_PAIRS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PAIRS_GROUP = 128,
    PAIRS_NUMBERS = 32,     /* Of which the codes fill a vector. */
    PAIRS_CODE_ESCAPE = 15, /* Lower codes: base + code. */
    PAIRS_TOP_MAX = 127,
    PAIRS_TOP_BASE_MAX = PAIRS_TOP_MAX + 1 - PAIRS_CODE_ESCAPE, /* No window ends behind it, */
    PAIRS_EXPONENT_BASE_MAX = 256 - PAIRS_CODE_ESCAPE,          /* nor behind 255. */
};

/* Bytes of codes for `count` numbers. */
static inline size_t
pairs_bytes(size_t count)
{
    return (count + PAIRS_NUMBERS - 1) / PAIRS_NUMBERS * (PAIRS_NUMBERS / 2);
}

/* Bytes of signs for `count` numbers. */
static inline size_t
pairs_signs_bytes(size_t count)
{
    return (count + PAIRS_GROUP - 1) / PAIRS_GROUP * (PAIRS_GROUP / 8);
}

/* The most escapes that `count` numbers may have: more, and pairs are no gain. */
static inline size_t
pairs_escapes_max(size_t count)
{
    return count / 16;
}

/* pairs_window - where the window of these numbers' tops begins, by a sample of them. False: there
 * is none that has nearly all of them. */
bool pairs_window(const uint8_t *source, size_t count, uint8_t *base_out);

/* Where the planes of a chunk go. */
struct pairs_target {
    uint8_t base;
    uint8_t *codes;   /* pairs_bytes(count) + PAIRS_GROUP */
    uint8_t *lows;    /* count */
    uint8_t *signs;   /* pairs_signs_bytes(count) */
    uint8_t *escapes; /* pairs_escapes_max(count) + PAIRS_GROUP */
};

/* pairs_pack - false: too many escapes; the planes are then undefined. */
bool pairs_pack(const struct pairs_target *target, const uint8_t *source, size_t count,
    size_t *escape_count_out);

/* The planes of a chunk, from bytes that nobody trusts. */
struct pairs_source {
    uint8_t base;         /* At most PAIRS_TOP_BASE_MAX or PAIRS_EXPONENT_BASE_MAX. */
    const uint8_t *codes; /* pairs_bytes(count) */
    const uint8_t *rests; /* count: low bytes; of whole exponents, signs and mantissas. */
    const uint8_t *signs; /* pairs_signs_bytes(count); NULL: codes are of whole exponents. */
    const uint8_t *escapes;
    size_t escape_count;
};

/* pairs_unpack - false: not as many codes of escapes as escapes, or one that is no top, or more
 * numbers than `count` in the last group. */
bool pairs_unpack(const struct pairs_source *source, uint8_t *target, size_t count);

#endif /* KVT_TIERS_CODEC_PAIRS_H */
