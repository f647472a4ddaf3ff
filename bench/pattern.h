/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pattern.h - the bytes and the key of a benchmark's block, as functions of its number.
 *
 * Any block that is read can be verified without remembering what was written: the bytes depend on
 * the number, the length and the place in the block, so that another block's bytes, an older length
 * and a shifted read all differ. They look random (nothing on the way can compress them) and are
 * made at memory speed: word i is the two halves of a 64 x 64 bit product, folded, as wyhash does.
 */
#ifndef BENCH_PATTERN_H
#define BENCH_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PATTERN_KEY_BYTES = 32, /* The number, big endian, and 24 bytes that follow from it. */
    PATTERN_POISON = 0xA5,  /* What a destination holds before a read. */
};

void pattern_fill(uint64_t number, void *target, size_t length);

/* pattern_wrong_bytes - how many bytes of `source` are not pattern_fill()'s. */
uint64_t pattern_wrong_bytes(uint64_t number, const void *source, size_t length);

void pattern_key(uint64_t number, uint8_t key_out[PATTERN_KEY_BYTES]);

/* pattern_key_number - false when `key` is not one of pattern_key()'s. */
bool pattern_key_number(const uint8_t key[PATTERN_KEY_BYTES], uint64_t *number_out);

/* A well mixed 64-bit value of `number` (SplitMix64's output function). */
static inline uint64_t
pattern_mix(uint64_t number)
{
    uint64_t z = number + 0x9E3779B97F4A7C15u;

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

#endif /* BENCH_PATTERN_H */
