/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_pairs.h - exponents of bf16 numbers, two in a byte.
 *
 * The exponents of a chunk lie in a narrow window: a code of four bits says where in it, or that
 * the exponent is elsewhere (an escape). zstd then codes pairs: half as many symbols as exponents,
 * which is where its time goes. The ratio is the same; encoding becomes 1.37 times as fast and
 * decoding 1.08 times.
 *
 * Numbers go in groups of 32: byte k of a group's 16 has the codes of number k (low half) and
 * number k + 16. The last group is filled up with the code 0. Nothing here allocates.
 */
#ifndef KVT_TIERS_CODEC_PAIRS_H
#define KVT_TIERS_CODEC_PAIRS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PAIRS_GROUP = 32,
    PAIRS_CODE_ESCAPE = 15,                   /* Lower codes: the exponent is base + code. */
    PAIRS_BASE_MAX = 256 - PAIRS_CODE_ESCAPE, /* The window ends at 255 at the latest. */
};

/* Bytes of codes for `count` numbers. */
static inline size_t
pairs_bytes(size_t count)
{
    return (count + PAIRS_GROUP - 1) / PAIRS_GROUP * (PAIRS_GROUP / 2);
}

/* The most escapes that `count` numbers may have: more, and pairs are no gain. */
static inline size_t
pairs_escapes_max(size_t count)
{
    return count / 16;
}

/* pairs_window - where the window of these numbers begins, by a sample of them. False: there is
 * none that has nearly all of them. */
bool pairs_window(const uint8_t *source, size_t count, uint8_t *base_out);

/* Where the planes of a chunk go. */
struct pairs_target {
    uint8_t base;
    uint8_t *codes;   /* pairs_bytes(count) */
    uint8_t *rests;   /* count */
    uint8_t *escapes; /* pairs_escapes_max(count) + PAIRS_GROUP */
};

/* pairs_pack - false: too many escapes; the planes are then undefined. */
bool pairs_pack(const struct pairs_target *target, const uint8_t *source, size_t count,
    size_t *escape_count_out);

/* The planes of a chunk, from bytes that nobody trusts. base <= PAIRS_BASE_MAX. */
struct pairs_source {
    uint8_t base;
    const uint8_t *codes; /* pairs_bytes(count) */
    const uint8_t *rests; /* count */
    const uint8_t *escapes;
    size_t escape_count;
};

/* pairs_unpack - false: not as many codes of escapes as escapes. */
bool pairs_unpack(const struct pairs_source *source, uint8_t *target, size_t count);

#endif /* KVT_TIERS_CODEC_PAIRS_H */
