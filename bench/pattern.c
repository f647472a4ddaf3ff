/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pattern.c - the bytes and the key of a benchmark's block, as functions of its number.
 */
#include "pattern.h"

#include <endian.h>
#include <string.h>

__extension__ typedef unsigned __int128 wide;

static const uint64_t stride =
    0x9E3779B97F4A7C15u; /* 2^64 / golden ratio: neighbours lie far apart. */

/* What the words of one block start from. */
struct seeds {
    uint64_t sum;
    uint64_t mask;
};

static struct seeds
seeds_of(uint64_t number, size_t length)
{
    uint64_t first = pattern_mix(number);

    return (struct seeds){
        .sum = pattern_mix(first ^ length),
        .mask = pattern_mix(first + UINT64_C(0x6A09E667F3BCC909)) | 1,
    };
}

static inline uint64_t
word_at(struct seeds seeds, size_t index)
{
    uint64_t place = seeds.sum + (uint64_t)index * stride;
    wide product = (wide)place * (place ^ seeds.mask);
    uint64_t word = (uint64_t)product ^ (uint64_t)(product >> 64);

    return htole64(word);
}

void
pattern_fill(uint64_t number, void *target, size_t length)
{
    struct seeds seeds = seeds_of(number, length);
    unsigned char *bytes = target;
    size_t word_count = length / sizeof(uint64_t);
    size_t rest = length % sizeof(uint64_t);
    uint64_t word = 0;

    for (size_t i = 0; i < word_count; i++) {
        word = word_at(seeds, i);
        memcpy(bytes + i * sizeof(word), &word, sizeof(word));
    }
    word = word_at(seeds, word_count);
    memcpy(bytes + word_count * sizeof(word), &word, rest);
}

/* Only reached when something is wrong, so it may be slow. */
static uint64_t
wrong_bytes_count(struct seeds seeds, const unsigned char *bytes, size_t length)
{
    uint64_t wrong = 0;

    for (size_t i = 0; i < length; i++) {
        uint64_t word = word_at(seeds, i / sizeof(word));
        unsigned char expected[sizeof(word)];

        memcpy(expected, &word, sizeof(word));
        wrong += bytes[i] != expected[i % sizeof(word)];
    }
    return wrong;
}

uint64_t
pattern_wrong_bytes(uint64_t number, const void *source, size_t length)
{
    struct seeds seeds = seeds_of(number, length);
    const unsigned char *bytes = source;
    size_t word_count = length / sizeof(uint64_t);
    uint64_t word = 0;
    uint64_t difference = 0;

    for (size_t i = 0; i < word_count; i++) {
        memcpy(&word, bytes + i * sizeof(word), sizeof(word));
        difference |= word ^ word_at(seeds, i);
    }
    word = word_at(seeds, word_count);
    if (difference == 0 &&
        memcmp(bytes + word_count * sizeof(word), &word, length % sizeof(word)) == 0)
        return 0;
    return wrong_bytes_count(seeds, bytes, length);
}

void
pattern_key(uint64_t number, uint8_t key_out[PATTERN_KEY_BYTES])
{
    uint64_t words[4] = {htobe64(number), htobe64(pattern_mix(number)), 0, 0};

    words[2] = htobe64(pattern_mix(~number));
    words[3] = htobe64(pattern_mix(pattern_mix(number)));
    memcpy(key_out, words, sizeof(words));
}

bool
pattern_key_number(const uint8_t key[PATTERN_KEY_BYTES], uint64_t *number_out)
{
    uint8_t expected[PATTERN_KEY_BYTES];
    uint64_t number = 0;

    memcpy(&number, key, sizeof(number));
    number = be64toh(number);
    pattern_key(number, expected);
    if (memcmp(expected, key, PATTERN_KEY_BYTES) != 0)
        return false;
    *number_out = number;
    return true;
}
