/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_rig.c - fills, encodes and decodes at fences.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include <zstd.h>

#include "bytes.h"
#include "codec_rig.h"
#include "stop_on_proof.h"

enum {
    SLACK = 64, /* Room before a buffer, for what is not aligned. */
};

struct codec_rig codec_rig;

int
codec_rig_open(void **state)
{
    (void)state;
    stop_on_proof();
    env_host(&codec_rig.env);
    fenced_open(&codec_rig.source, PART_BYTES_MAX + SLACK);
    fenced_open(&codec_rig.target, PART_BYTES_MAX + SLACK);
    fenced_open(&codec_rig.back, PART_BYTES_MAX + SLACK);
    return codec_open(&codec_rig.env, PART_BYTES_MAX, &codec_rig.codec) == KVT_OK ? 0 : 1;
}

int
codec_rig_close(void **state)
{
    (void)state;
    codec_close(codec_rig.codec);
    fenced_close(&codec_rig.back);
    fenced_close(&codec_rig.target);
    fenced_close(&codec_rig.source);
    return 0;
}

/* --- Numbers ---------------------------------------------------------------------------------- */

/* Nearly gaussian, deviation 1: the sum of twelve uniform numbers. */
static float
gaussian(struct rng *rng)
{
    float sum = -6;

    for (uint32_t i = 0; i < 12; i++)
        sum += (float)(rng_next(rng) >> 40) * 0x1p-24f;
    return sum;
}

static void
number_put(uint8_t *target, enum codec_id id, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    /* fp16: the exponent's bias is 15 and not 127; what is too small becomes zero. */
    if (id == CODEC_FP16)
        bits = (bits & 0x7FFFFFFF) < 113u << 23
                   ? 0
                   : (bits & 0x80000000) | ((bits & 0x7FFFFFFF) - (112u << 23)) << 3;
    put_u16(target, (uint16_t)(bits >> 16));
}

void
codec_rig_fill(uint8_t *target, enum codec_id id, size_t size, uint64_t seed)
{
    struct rng rng = {.state = seed};

    for (size_t i = 0; i < size / 2; i++) {
        size_t channel = i % 128;
        float scale = (1 + (float)(channel % 8) / 4) * (channel % 37 == 5 ? 20.0f : 1.0f);

        number_put(target + 2 * i, id, gaussian(&rng) * scale);
    }
    if (size % 2 != 0)
        target[size - 1] = (uint8_t)rng_next(&rng);
}

void
random_fill(uint8_t *target, size_t size, struct rng *rng)
{
    for (size_t i = 0; i < size; i++)
        target[i] = (uint8_t)rng_next(rng);
}

/* --- Round trips ------------------------------------------------------------------------------ */

enum codec_id
codec_rig_encode(enum codec_id id, size_t size, size_t skew, uint64_t *stored_out)
{
    assert_int_equal(codec_bound(size), size);
    return codec_encode(codec_rig.codec, id, fenced_end(&codec_rig.source, size + skew), size,
        fenced_end(&codec_rig.target, codec_bound(size)), stored_out);
}

uint64_t
codec_rig_encode_exponents(size_t size, uint8_t base)
{
    static uint8_t codes[CHUNK_BYTES / 4 + 16];
    size_t count = size / 2, escape_count = 0, codes_bytes = (count + 31) / 32 * 16, frame_bytes;
    const uint8_t *source = fenced_end(&codec_rig.source, size);
    uint8_t *head = fenced_end(&codec_rig.target, size), *rests = head + AT_RESTS;

    assert_true(size <= CHUNK_BYTES);
    memset(head, 0, AT_RESTS);
    memset(codes, 0, codes_bytes);
    for (size_t i = 0; i < count; i++) {
        uint16_t number = get_u16(source + 2 * i);
        uint8_t exponent = (uint8_t)(number >> 7);
        bool is_far = exponent < base || exponent >= base + 15;
        uint8_t code = is_far ? 15 : (uint8_t)(exponent - base);

        rests[i] = (uint8_t)((number >> 8 & 0x80) | (number & 0x7F));
        codes[i / 32 * 16 + i % 16] |= (uint8_t)(i % 32 < 16 ? code : code << 4);
        if (is_far)
            rests[count + escape_count++] = exponent;
    }
    assert_true(escape_count <= count / 16);
    frame_bytes = ZSTD_compress(rests + count + escape_count,
        size - AT_RESTS - count - escape_count - size % 2, codes, codes_bytes, 1);
    assert_false(ZSTD_isError(frame_bytes));
    put_u32(head, (uint32_t)size);
    head[4] = CODEC_BF16;
    put_u32(head + AT_FRAME, (uint32_t)frame_bytes);
    put_u16(head + AT_ESCAPES, (uint16_t)escape_count);
    head[AT_FORM] = FORM_IS_PAIRS;
    head[AT_BASE] = base;
    if (size % 2 != 0)
        rests[count + escape_count + frame_bytes] = source[size - 1];
    return AT_RESTS + count + escape_count + frame_bytes + size % 2;
}

void
codec_rig_compare(enum codec_id id, size_t size, size_t skew, uint64_t stored)
{
    const uint8_t *encoded = fenced_end(&codec_rig.target, codec_bound(size));
    uint8_t *back = fenced_end(&codec_rig.back, size);

    assert_true(stored > 0 && stored <= size);
    memset(back, 0xEE, size);
    memmove(fenced_end(&codec_rig.target, stored), encoded, stored);
    assert_int_equal(codec_decode(codec_rig.codec, id, fenced_end(&codec_rig.target, stored),
                         stored, back, size),
        KVT_OK);
    assert_memory_equal(back, fenced_end(&codec_rig.source, size + skew), size);
}

enum codec_id
codec_rig_trip(enum codec_id id, size_t size, size_t skew)
{
    uint64_t stored = 0;
    enum codec_id made = codec_rig_encode(id, size, skew, &stored);

    assert_true(made == id || (made == CODEC_RAW && stored == size));
    codec_rig_compare(made, size, skew, stored);
    return made;
}

enum kvt_status
codec_rig_decode(enum codec_id id, uint64_t stored, size_t size)
{
    return codec_decode(codec_rig.codec, id, fenced_end(&codec_rig.target, stored), stored,
        fenced_end(&codec_rig.back, size), size);
}
