/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_rig.h - a codec, and buffers for it that end at fences and are never longer than said.
 *
 * The source's and the encoded bytes are the last ones before their fences.
 */
#ifndef KVT_TESTS_CODEC_RIG_H
#define KVT_TESTS_CODEC_RIG_H

#include <stddef.h>
#include <stdint.h>

#include "codec.h"
#include "fenced_buffer.h"
#include "rng.h"

enum {
    PART_BYTES_MAX = 4 << 20,
    CHUNK_BYTES = 512 << 10,

    /* Of FORMAT.md section 3.5, in a part of one chunk. */
    HEAD_BYTES = 8,
    AT_FRAME = HEAD_BYTES,
    AT_ESCAPES = HEAD_BYTES + 4,
    AT_FORM = HEAD_BYTES + 6,
    AT_BASE = HEAD_BYTES + 7,
    AT_RESTS = HEAD_BYTES + 8,
    FORM_IS_BYTES = 0,
    FORM_IS_PAIRS = 1,
    FORM_IS_TOPS = 2,
};

struct codec_rig {
    struct kvt_env env;
    struct codec *codec;
    struct fenced_buffer source;
    struct fenced_buffer target;
    struct fenced_buffer back;
};

extern struct codec_rig codec_rig;

/* For cmocka_run_group_tests(). */
int codec_rig_open(void **state);
int codec_rig_close(void **state);

/* codec_rig_fill - what a KV cache looks like: channels of different scales, a few far out. */
void codec_rig_fill(uint8_t *target, enum codec_id id, size_t size, uint64_t seed);

void random_fill(uint8_t *target, size_t size, struct rng *rng);

/* codec_rig_encode - the source's `size` bytes that end `skew` before its fence, to the target's
 * last `size` bytes. */
enum codec_id codec_rig_encode(enum codec_id id, size_t size, size_t skew, uint64_t *stored_out);

/* codec_rig_encode_exponents - the source's last `size` bytes (of one chunk, an exponent in sixteen
 * far at most) as pairs of exponents, which nobody writes any more; returns how many were stored,
 * where codec_rig_encode() stores them. */
uint64_t codec_rig_encode_exponents(size_t size, uint8_t base);

/* codec_rig_compare - decode what codec_rig_encode() made; it must be the source's bytes. */
void codec_rig_compare(enum codec_id id, size_t size, size_t skew, uint64_t stored);

/* codec_rig_trip - both. Returns what the part was encoded as. */
enum codec_id codec_rig_trip(enum codec_id id, size_t size, size_t skew);

/* codec_rig_decode - the target's last `stored` bytes, to `size` bytes. */
enum kvt_status codec_rig_decode(enum codec_id id, uint64_t stored, size_t size);

#endif /* KVT_TESTS_CODEC_RIG_H */
