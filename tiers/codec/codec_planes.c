/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_planes.c - splits numbers into planes of bytes and joins them again.
 *
 * The last few numbers, fewer than a vector has, travel through a vector of their own.
 */
#include <stdbool.h>

#include "codec_planes.h"
#include "codec_vector.h"

enum {
    VECTOR_BYTES = 2 * VECTOR_NUMBERS, /* Of sixteen numbers. */
};

static inline void
vector_split(bool is_bf16, const uint8_t *source, uint8_t *skewed, uint8_t *rests)
{
    bytes16 one, other;

    if (is_bf16)
        bf16_split(source, &one, &other);
    else
        bytes16_unweave(source, &other, &one);
    bytes16_store(skewed, one);
    bytes16_store(rests, other);
}

static inline void
vector_join(bool is_bf16, uint8_t *target, const uint8_t *skewed, const uint8_t *rests)
{
    bytes16 numbers[2];

    if (is_bf16)
        bf16_join(bytes16_load(skewed), bytes16_load(rests), numbers);
    else
        bytes16_weave(bytes16_load(rests), bytes16_load(skewed), numbers);
    bytes16_store(target, numbers[0]);
    bytes16_store(target + VECTOR_NUMBERS, numbers[1]);
}

void
planes_split(enum codec_id id, const uint8_t *source, size_t count, uint8_t *skewed, uint8_t *rests)
{
    bool is_bf16 = id == CODEC_BF16;
    size_t whole = count - count % VECTOR_NUMBERS;
    uint8_t last[VECTOR_BYTES] = {0};
    uint8_t last_skewed[VECTOR_NUMBERS], last_rests[VECTOR_NUMBERS];

    for (size_t i = 0; i < whole; i += VECTOR_NUMBERS) {
        ahead_read(source + 2 * i);
        ahead_write(rests + i);
        vector_split(is_bf16, source + 2 * i, skewed + i, rests + i);
    }
    if (whole < count) {
        memcpy(last, source + 2 * whole, 2 * (count - whole));
        vector_split(is_bf16, last, last_skewed, last_rests);
        memcpy(skewed + whole, last_skewed, count - whole);
        memcpy(rests + whole, last_rests, count - whole);
    }
}

void
planes_join(
    enum codec_id id, uint8_t *target, size_t count, const uint8_t *skewed, const uint8_t *rests)
{
    bool is_bf16 = id == CODEC_BF16;
    size_t whole = count - count % VECTOR_NUMBERS;
    uint8_t last[VECTOR_BYTES];
    uint8_t last_skewed[VECTOR_NUMBERS] = {0}, last_rests[VECTOR_NUMBERS] = {0};

    for (size_t i = 0; i < whole; i += VECTOR_NUMBERS) {
        ahead_read(rests + i);
        ahead_write(target + 2 * i);
        vector_join(is_bf16, target + 2 * i, skewed + i, rests + i);
    }
    if (whole < count) {
        memcpy(last_skewed, skewed + whole, count - whole);
        memcpy(last_rests, rests + whole, count - whole);
        vector_join(is_bf16, last, last_skewed, last_rests);
        memcpy(target + 2 * whole, last, 2 * (count - whole));
    }
}
