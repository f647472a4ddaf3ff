/* SPDX-License-Identifier: Apache-2.0 */
/*
 * payload.h - blocks whose every byte follows from their key's number and version, so that
 * any read can be judged without a memory of what was written.
 */
#ifndef KVT_TESTS_PAYLOAD_H
#define KVT_TESTS_PAYLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "kvtier/kvtier.h"
#include "rng.h"

enum {
    PAYLOAD_BYTES_MIN = 32,
    KEY_BYTES = 120,
};

struct payload_key {
    uint8_t bytes[KEY_BYTES];
    struct kvt_key key;
};

/* The key with this number: 8 to 64 bytes, or 120 (kept as a hash) for every ninth. */
static inline void
payload_key_make(struct payload_key *target, uint64_t number)
{
    struct rng rng = {number * 31 + 7};
    uint32_t length = number % 9 == 8 ? KEY_BYTES : 8 + rng_below(&rng, 57);

    for (uint32_t i = 0; i < length; i++)
        target->bytes[i] = (uint8_t)rng_next(&rng);
    memcpy(target->bytes, &number, sizeof(number));
    target->key = (struct kvt_key){.bytes = target->bytes, .length = length};
}

/* The next word of a payload at `at`, as much of it as the length lets in: written there, and
 * compared with what is there. Whole ones apart: with a size that is not constant either is a call.
 */
static inline void
payload_word_put(uint8_t *target, uint64_t length, uint64_t at, uint64_t word)
{
    if (length - at >= sizeof(word))
        memcpy(target + at, &word, sizeof(word));
    else
        memcpy(target + at, &word, (size_t)(length - at));
}

static inline bool
payload_word_is(const uint8_t *source, uint64_t length, uint64_t at, uint64_t word)
{
    uint64_t found;

    if (length - at < sizeof(word))
        return memcmp(source + at, &word, (size_t)(length - at)) == 0;
    memcpy(&found, source + at, sizeof(found));
    return found == word;
}

/* `length` >= PAYLOAD_BYTES_MIN. */
static inline void
payload_fill(void *target, uint64_t length, uint64_t key, uint64_t version)
{
    const uint64_t head[4] = {UINT64_C(0x6B76742D74657374), key, version, length};
    struct rng rng = {key * UINT64_C(0x9E3779B97F4A7C15) + version};
    uint8_t *to = target;
    uint64_t at = sizeof(head);

    memcpy(to, head, sizeof(head));
    for (; at < length; at += sizeof(uint64_t))
        payload_word_put(to, length, at, rng_next(&rng));
}

/* True when the bytes are a whole payload of this key; its version. */
static inline bool
payload_is_right(const void *source, uint64_t length, uint64_t key, uint64_t *version_out)
{
    const uint8_t *from = source;
    uint64_t head[4];

    if (length < sizeof(head))
        return false;
    memcpy(head, from, sizeof(head));
    if (head[0] != UINT64_C(0x6B76742D74657374) || head[1] != key || head[3] != length)
        return false;
    struct rng rng = {key * UINT64_C(0x9E3779B97F4A7C15) + head[2]};
    for (uint64_t at = sizeof(head); at < length; at += sizeof(uint64_t)) {
        if (!payload_word_is(from, length, at, rng_next(&rng)))
            return false;
    }
    *version_out = head[2];
    return true;
}

/* A length in low..high that follows from key and version; seldom a multiple of a page. */
static inline uint64_t
payload_length(uint64_t key, uint64_t version, uint32_t low, uint32_t high)
{
    struct rng rng = {key * 1000003 + version};

    return rng_next(&rng) % 4 == 0 ? high : low + rng_below(&rng, high - low + 1);
}

#endif /* KVT_TESTS_PAYLOAD_H */
