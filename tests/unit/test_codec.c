/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_codec.c - encoded parts: round trips, what they save, the bytes of FORMAT.md section 3.5,
 * and memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include <zstd.h>

#include "bytes.h"
#include "codec_pairs.h"
#include "codec_rig.h"
#include "rng.h"
#include "sim_world.h"

/* --- Round trips ------------------------------------------------------------------------------ */

static void
every_small_size_comes_back(void **state)
{
    uint32_t encoded_count = 0;

    (void)state;
    for (enum codec_id id = CODEC_BF16; id <= CODEC_FP16; id++) {
        for (size_t size = 1; size <= 4097; size++) {
            size_t skew = size % 7;

            codec_rig_fill(fenced_end(&codec_rig.source, size + skew), id, size, size);
            encoded_count += codec_rig_trip(id, size, skew) == id;
        }
    }
    assert_true(encoded_count > 4097);
}

static void
sizes_of_several_chunks_come_back(void **state)
{
    static const size_t around[] = {CHUNK_BYTES, 2 * CHUNK_BYTES};
    struct rng rng = {.state = 5};

    (void)state;
    for (enum codec_id id = CODEC_BF16; id <= CODEC_FP16; id++) {
        for (size_t i = 0; i < sizeof(around) / sizeof(around[0]); i++) {
            for (size_t size = around[i] - 3; size <= around[i] + 3; size++) {
                codec_rig_fill(fenced_end(&codec_rig.source, size), id, size, size);
                assert_int_equal(codec_rig_trip(id, size, 0), id);
            }
        }
        for (uint32_t i = 0; i < 12; i++) {
            size_t size = 1 + rng_below(&rng, PART_BYTES_MAX);

            codec_rig_fill(fenced_end(&codec_rig.source, size + i), id, size, i);
            assert_int_equal(codec_rig_trip(id, size, i), id);
        }
    }
}

static void
what_nobody_expects_in_a_cache_comes_back(void **state)
{
    enum {
        SIZE = 3 * 65536,
    };
    static const uint16_t extremes[] = {
        0x0000, 0x8000, 0x7F80, 0xFF80, 0x7FC1, 0xFFFF, 0x0001, 0x7F7F};
    uint8_t *source = fenced_end(&codec_rig.source, SIZE);

    (void)state;
    for (enum codec_id id = CODEC_BF16; id <= CODEC_FP16; id++) {
        memset(source, 0, SIZE);
        assert_int_equal(codec_rig_trip(id, SIZE, 0), id);
        memset(source, 0xFF, SIZE);
        assert_int_equal(codec_rig_trip(id, SIZE, 0), id);
        codec_rig_fill(source, id, SIZE, 1);
        memset(source + SIZE / 3, 0, SIZE / 2);
        assert_int_equal(codec_rig_trip(id, SIZE, 0), id);
        for (size_t i = 0; i < SIZE / 2; i++)
            put_u16(source + 2 * i, (uint16_t)(i * 40503));
        codec_rig_trip(id, SIZE, 0);
        /* A cache with zeros, infinities and no numbers at all among the rest. */
        codec_rig_fill(source, id, SIZE, 2);
        for (size_t i = 0; i < SIZE / 2; i += 61)
            put_u16(source + 2 * i, extremes[i % 8]);
        assert_int_equal(codec_rig_trip(id, SIZE, 0), id);
    }
}

static void
the_same_part_gives_the_same_bytes(void **state)
{
    static uint8_t first[100000];
    uint64_t stored = 0, stored_again = 0;

    (void)state;
    codec_rig_fill(fenced_end(&codec_rig.source, sizeof(first)), CODEC_BF16, sizeof(first), 3);
    codec_rig_encode(CODEC_BF16, sizeof(first), 0, &stored);
    memcpy(first, fenced_end(&codec_rig.target, sizeof(first)), stored);
    codec_rig_fill(fenced_end(&codec_rig.source, 5000), CODEC_FP16, 5000, 4);
    codec_rig_trip(CODEC_FP16, 5000, 0);
    codec_rig_fill(fenced_end(&codec_rig.source, sizeof(first)), CODEC_BF16, sizeof(first), 3);
    codec_rig_encode(CODEC_BF16, sizeof(first), 0, &stored_again);
    assert_int_equal(stored, stored_again);
    assert_memory_equal(first, fenced_end(&codec_rig.target, sizeof(first)), stored);
}

/* --- What is saved ---------------------------------------------------------------------------- */

static void
a_cache_of_bf16_becomes_a_third_smaller(void **state)
{
    enum {
        SIZE = 1 << 20,
    };
    uint64_t stored = 0;

    (void)state;
    codec_rig_fill(fenced_end(&codec_rig.source, SIZE), CODEC_BF16, SIZE, 4);
    assert_int_equal(codec_rig_encode(CODEC_BF16, SIZE, 0, &stored), CODEC_BF16);
    assert_true(stored * 145 < (uint64_t)SIZE * 100);
    codec_rig_fill(fenced_end(&codec_rig.source, SIZE), CODEC_FP16, SIZE, 4);
    assert_int_equal(codec_rig_encode(CODEC_FP16, SIZE, 0, &stored), CODEC_FP16);
    assert_true(stored * 112 < (uint64_t)SIZE * 100);
}

static void
random_bytes_and_raw_parts_stay_as_they_are(void **state)
{
    static const size_t sizes[] = {1, 2, 777, 65536, CHUNK_BYTES + 1, PART_BYTES_MAX};
    struct rng rng = {.state = 6};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        random_fill(fenced_end(&codec_rig.source, sizes[i]), sizes[i], &rng);
        assert_int_equal(codec_rig_trip(CODEC_BF16, sizes[i], 0), CODEC_RAW);
        assert_int_equal(codec_rig_trip(CODEC_FP16, sizes[i], 0), CODEC_RAW);
    }
    codec_rig_fill(fenced_end(&codec_rig.source, 65536), CODEC_BF16, 65536, 6);
    assert_int_equal(codec_rig_trip(CODEC_RAW, 65536, 0), CODEC_RAW);
}

/* More and more of a part becomes random: the last encoded form saves 5 %, and hardly more. */
static void
less_than_five_percent_is_not_worth_it(void **state)
{
    static const size_t sizes[] = {20000, 20019};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        size_t size = sizes[i];
        uint8_t *source = fenced_end(&codec_rig.source, size);
        uint64_t most = 0;
        uint32_t raw_count = 0;

        codec_rig_fill(source, CODEC_FP16, size, 7);
        for (size_t random_bytes = 0; random_bytes < size; random_bytes += 16) {
            struct rng rng = {.state = random_bytes};
            uint64_t stored = 0;

            random_fill(source + random_bytes, random_bytes + 16 <= size ? 16 : 1, &rng);
            if (codec_rig_encode(CODEC_FP16, size, 0, &stored) == CODEC_RAW)
                raw_count++;
            else
                most = stored > most ? stored : most;
        }
        assert_true(raw_count > 0);
        assert_true(most * 100 <= size * 95);
        assert_true(most * 1000 >= size * 945);
    }
}

/* --- The bytes on disk ------------------------------------------------------------------------ */

/* A part of one chunk, decoded by the words of FORMAT.md section 3.5. */
static void
reference_decode(const uint8_t *encoded, size_t stored, uint8_t *target, size_t size)
{
    static uint8_t plane[CHUNK_BYTES];
    size_t count = size / 2;
    size_t escape_count = get_u16(encoded + AT_ESCAPES);
    bool is_tops = encoded[AT_FORM] == FORM_IS_TOPS;
    size_t signs_bytes = is_tops ? (count + 127) / 128 * 16 : 0;
    const uint8_t *signs = encoded + AT_RESTS + count;
    const uint8_t *escape = signs + signs_bytes;
    size_t frame_bytes = get_u32(encoded + AT_FRAME);

    assert_int_equal(get_u32(encoded), size);
    assert_true(bytes_are_zero(encoded + 5, 3));
    assert_int_equal(
        stored, AT_RESTS + count + signs_bytes + escape_count + frame_bytes + size % 2);
    assert_int_equal(ZSTD_decompress(plane, sizeof(plane), escape + escape_count, frame_bytes),
        is_tops ? (count + 31) / 32 * 16 : count);
    for (size_t i = 0; i < count; i++) {
        uint8_t pair = plane[i / 32 * 16 + i % 16];
        uint8_t code = i % 32 < 16 ? pair & 15 : pair >> 4;
        uint8_t sign = is_tops ? signs[i / 128 * 16 + i % 16] >> (7 - i % 128 / 16) & 1 : 0;
        uint8_t top = 0;
        uint8_t rest = encoded[AT_RESTS + i];

        if (is_tops)
            top = code < 15 ? (uint8_t)(encoded[AT_BASE] + code) : *escape++;
        if (is_tops)
            put_u16(target + 2 * i, (uint16_t)(sign << 15 | top << 8 | rest));
        else if (encoded[4] == CODEC_BF16)
            put_u16(target + 2 * i, (uint16_t)((rest & 0x80) << 8 | plane[i] << 7 | (rest & 0x7F)));
        else
            put_u16(target + 2 * i, (uint16_t)(plane[i] << 8 | rest));
    }
    assert_ptr_equal(escape, signs + signs_bytes + escape_count);
    if (size % 2 != 0)
        target[size - 1] = encoded[stored - 1];
}

static void
the_bytes_are_those_of_the_format(void **state)
{
    static const size_t sizes[] = {1500, 1501, 4096, 65536 + 38, CHUNK_BYTES - 1, CHUNK_BYTES};

    (void)state;
    for (enum codec_id id = CODEC_BF16; id <= CODEC_FP16; id++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            size_t size = sizes[i];
            const uint8_t *encoded = fenced_end(&codec_rig.target, size);
            uint8_t *source = fenced_end(&codec_rig.source, size);
            uint8_t *back = fenced_end(&codec_rig.back, size);
            uint64_t stored = 0;

            codec_rig_fill(source, id, size, 8);
            for (size_t far = 5; far < size / 2; far += 41)
                put_u16(source + 2 * far, (uint16_t)(far << 15 | far % 7));
            assert_int_equal(codec_rig_encode(id, size, 0, &stored), id);
            assert_int_equal(encoded[4], id);
            assert_int_equal(encoded[AT_FORM], id == CODEC_BF16 ? FORM_IS_TOPS : FORM_IS_BYTES);
            assert_int_equal(get_u16(encoded + AT_ESCAPES) > 0, id == CODEC_BF16);
            reference_decode(encoded, stored, back, size);
            assert_memory_equal(back, source, size);
        }
    }
}

/* What earlier encoders wrote: of each length of a last group, to each alignment. */
static void
pairs_of_exponents_are_still_read(void **state)
{
    static const size_t sizes[] = {65536 + 38, CHUNK_BYTES - 1, CHUNK_BYTES};

    (void)state;
    for (size_t i = 0; i < 800; i++) {
        size_t size = i < 3 ? sizes[i] : 1200 + i;
        uint8_t *source = fenced_end(&codec_rig.source, size);

        codec_rig_fill(source, CODEC_BF16, size, i);
        for (size_t far = i % 41; far < size / 2; far += 41)
            put_u16(source + 2 * far, (uint16_t)(far % 2 == 0 ? 0x8000 : 0x7F80));
        codec_rig_compare(CODEC_BF16, size, 0, codec_rig_encode_exponents(size, 119));
    }
}

/* 1024 numbers, of which `far_count` lie outside of any window with the others. */
static uint8_t
form_with_far_numbers(uint32_t far_count, uint32_t *escape_count_out)
{
    enum {
        COUNT = 1024,
        STEP = 5, /* Coprime to COUNT. */
    };
    uint8_t *source = fenced_end(&codec_rig.source, 2 * COUNT);
    const uint8_t *encoded = fenced_end(&codec_rig.target, 2 * COUNT);
    uint64_t stored = 0;

    for (uint32_t i = 0; i < COUNT; i++)
        put_u16(source + 2 * i, (uint16_t)(100 << 7 | (i & 0x7F)));
    for (uint32_t i = 0; i < far_count; i++)
        put_u16(source + 2 * (i * STEP % COUNT), (uint16_t)((i % 2 == 0 ? 70 : 130) << 7));
    assert_int_equal(codec_rig_encode(CODEC_BF16, 2 * COUNT, 0, &stored), CODEC_BF16);
    *escape_count_out = get_u16(encoded + AT_ESCAPES);
    codec_rig_trip(CODEC_BF16, 2 * COUNT, 0);
    codec_rig_encode(CODEC_BF16, 2 * COUNT, 0, &stored);
    return encoded[AT_FORM];
}

static void
pairs_are_left_when_a_sixteenth_is_far(void **state)
{
    uint32_t escape_count = 0;

    (void)state;
    assert_int_equal(form_with_far_numbers(0, &escape_count), FORM_IS_TOPS);
    assert_int_equal(escape_count, 0);
    assert_int_equal(form_with_far_numbers(1, &escape_count), FORM_IS_TOPS);
    assert_int_equal(escape_count, 1);
    assert_int_equal(form_with_far_numbers(64, &escape_count), FORM_IS_TOPS);
    assert_int_equal(escape_count, 64);
    assert_int_equal(form_with_far_numbers(65, &escape_count), FORM_IS_BYTES);
    assert_int_equal(escape_count, 0);
}

/* The sample sees only the smooth part of a chunk; the rest has more escapes than there is room. */
static void
a_window_that_the_sample_got_wrong_is_given_up(void **state)
{
    enum {
        COUNT = 65536,
        RUN_NUMBERS = 2048, /* One run of a sample lies in each of these. */
    };
    uint8_t *source = fenced_end(&codec_rig.source, 2 * COUNT);
    const uint8_t *encoded = fenced_end(&codec_rig.target, 2 * COUNT);
    uint64_t stored = 0;
    uint8_t base = 0;

    (void)state;
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t run = i / RUN_NUMBERS;
        bool is_seen = i >= run * RUN_NUMBERS + run * 32 && i < run * RUN_NUMBERS + run * 32 + 32;

        put_u16(source + 2 * i, (uint16_t)((is_seen ? 100 : 140 + i % 30) << 7 | (i & 0x7F)));
    }
    assert_true(pairs_window(source, COUNT, &base));
    assert_int_equal(codec_rig_encode(CODEC_BF16, 2 * COUNT, 0, &stored), CODEC_BF16);
    assert_int_equal(encoded[AT_FORM], FORM_IS_BYTES);
    codec_rig_trip(CODEC_BF16, 2 * COUNT, 0);
}

/* --- Memory ----------------------------------------------------------------------------------- */

static void
all_memory_is_taken_at_open_or_none(void **state)
{
    static const uint64_t sizes[] = {1, 2, 4096, 65536, CHUNK_BYTES, 64 << 20, UINT64_MAX};
    struct sim_options options = {.seed = 1};
    struct sim_world *world = sim_world_create(&options);

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct codec *codec = codec_rig.codec;
        uint64_t asked = 0;

        sim_memory_fail(world, 1, true);
        assert_int_equal(codec_open(sim_env(world), sizes[i], &codec), KVT_E_NOMEM);
        assert_null(codec);
        assert_int_equal(sim_leaks(world, NULL, 0), 0);
        sim_memory_fail(world, 0, false);
        asked = sim_memory_asked(world);
        assert_int_equal(codec_open(sim_env(world), sizes[i], &codec), KVT_OK);
        assert_int_equal(sim_memory_asked(world), asked + 1);
        sim_memory_fail(world, 1, true);
        codec_close(codec);
        assert_int_equal(sim_leaks(world, NULL, 0), 0);
    }
    codec_close(NULL);
    sim_world_destroy(world);
}

/* A codec for small parts has little scratch: it must be enough for each size up to its limit. */
static void
a_codec_of_each_size_codes_its_largest_part(void **state)
{
    struct codec *usual = codec_rig.codec;

    (void)state;
    for (size_t size = 1; size <= 1300; size += 3) {
        for (enum codec_id id = CODEC_BF16; id <= CODEC_FP16; id++) {
            assert_int_equal(codec_open(&codec_rig.env, size, &codec_rig.codec), KVT_OK);
            memset(fenced_end(&codec_rig.source, size), (int)(size & 0xFF), size);
            codec_rig_trip(id, size, 0);
            codec_close(codec_rig.codec);
        }
    }
    codec_rig.codec = usual;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_small_size_comes_back),
        cmocka_unit_test(sizes_of_several_chunks_come_back),
        cmocka_unit_test(what_nobody_expects_in_a_cache_comes_back),
        cmocka_unit_test(the_same_part_gives_the_same_bytes),
        cmocka_unit_test(a_cache_of_bf16_becomes_a_third_smaller),
        cmocka_unit_test(random_bytes_and_raw_parts_stay_as_they_are),
        cmocka_unit_test(less_than_five_percent_is_not_worth_it),
        cmocka_unit_test(the_bytes_are_those_of_the_format),
        cmocka_unit_test(pairs_of_exponents_are_still_read),
        cmocka_unit_test(pairs_are_left_when_a_sixteenth_is_far),
        cmocka_unit_test(a_window_that_the_sample_got_wrong_is_given_up),
        cmocka_unit_test(all_memory_is_taken_at_open_or_none),
        cmocka_unit_test(a_codec_of_each_size_codes_its_largest_part),
    };

    return cmocka_run_group_tests(tests, codec_rig_open, codec_rig_close);
}
