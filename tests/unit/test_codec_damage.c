/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_codec_damage.c - bytes that are no encoded part: each is refused, or decoded to the right
 * number of bytes, and nothing behind a fence is touched.
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
#include "failure.h"
#include "rng.h"

enum {
    UNKNOWN_ID = 3,
};

/* --- Bytes that are no encoded part ----------------------------------------------------------- */

/* Parts that damage begins with: pairs with escapes and an odd byte, bytes of either kind. */
static size_t
small_part(uint32_t which, enum codec_id *id_out, uint64_t *stored_out)
{
    static const size_t sizes[] = {1501, 1400, 1600};
    size_t size = sizes[which];
    uint8_t *source = fenced_end(&codec_rig.source, size);
    uint32_t far_count = which == 1 ? 100 : 20;

    *id_out = which == 2 ? CODEC_FP16 : CODEC_BF16;
    codec_rig_fill(source, *id_out, size, 9);
    for (uint32_t i = 0; which < 2 && i < far_count; i++)
        put_u16(source + 2 * (i * 7), 0x3F);
    assert_int_equal(codec_rig_encode(*id_out, size, 0, stored_out), *id_out);
    assert_int_equal(fenced_end(&codec_rig.target, size)[AT_FORM], which == 0);
    return size;
}

static void
every_flipped_bit_is_refused_or_decoded_in_bounds(void **state)
{
    static uint8_t whole[2048];

    (void)state;
    for (uint32_t which = 0; which < 3; which++) {
        uint64_t stored = 0;
        enum codec_id id = CODEC_RAW;
        size_t size = small_part(which, &id, &stored);
        uint8_t *encoded = fenced_end(&codec_rig.target, stored);
        uint32_t refused_count = 0, decoded_count = 0;

        memcpy(whole, fenced_end(&codec_rig.target, size), stored);
        for (size_t bit = 0; bit < stored * 8; bit++) {
            enum kvt_status status = KVT_OK;

            memcpy(encoded, whole, stored);
            encoded[bit / 8] ^= (uint8_t)(1 << bit % 8);
            status = codec_rig_decode(id, stored, size);
            refused_count += status == KVT_E_CORRUPT;
            decoded_count += status == KVT_OK;
            /* The head of the part and of the chunk: nothing there may be another. */
            assert_true(bit >= AT_BASE * 8 || status == KVT_E_CORRUPT);
        }
        assert_int_equal(refused_count + decoded_count, stored * 8);
        assert_true(refused_count > 0 && decoded_count >= size / 2 * 8);
        /* And the codec still works. */
        memcpy(fenced_end(&codec_rig.target, size), whole, stored);
        codec_rig_compare(id, size, 0, stored);
    }
}

static void
every_other_length_is_refused(void **state)
{
    static uint8_t whole[2048];

    (void)state;
    for (uint32_t which = 0; which < 3; which++) {
        uint64_t stored = 0;
        enum codec_id id = CODEC_RAW;
        size_t size = small_part(which, &id, &stored);

        memcpy(whole, fenced_end(&codec_rig.target, size), stored);
        for (uint64_t length = 0; length <= stored + 40; length++) {
            memcpy(fenced_end(&codec_rig.target, length), whole, length < stored ? length : stored);
            assert_int_equal(
                codec_rig_decode(id, length, size), length == stored ? KVT_OK : KVT_E_CORRUPT);
        }
        memcpy(fenced_end(&codec_rig.target, stored), whole, stored);
        for (size_t other = 0; other <= size + 40; other++)
            assert_int_equal(
                codec_rig_decode(id, stored, other), other == size ? KVT_OK : KVT_E_CORRUPT);
        assert_int_equal(codec_rig_decode(id, stored, PART_BYTES_MAX + 1), KVT_E_CORRUPT);
    }
}

/* Heads that are right as far as they go, with fields at their limits and garbage behind. */
static void
garbage_is_refused(void **state)
{
    static const uint32_t extremes[] = {0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 0xFFFFFFF0};
    struct rng rng = {.state = 10};

    (void)state;
    for (uint32_t i = 0; i < 40000; i++) {
        size_t size = 1 + rng_below(&rng, 2000);
        uint64_t stored = rng_below(&rng, 3000);
        uint8_t *encoded = fenced_end(&codec_rig.target, stored);
        uint32_t rest = (uint32_t)(stored - HEAD_BYTES - 8 - size / 2);

        random_fill(encoded, stored, &rng);
        if (stored >= AT_RESTS && i % 8 != 0) {
            put_u32(encoded, (uint32_t)size);
            put_u32(encoded + 4, CODEC_BF16);
            put_u32(encoded + AT_FRAME, i % 2 == 0 ? rest : extremes[rng_below(&rng, 5)]);
            put_u16(encoded + AT_ESCAPES, (uint16_t)rng_below(&rng, i % 4 == 0 ? 65536 : 3));
            encoded[AT_FORM] = (uint8_t)rng_below(&rng, 3);
        }
        assert_int_equal(codec_rig_decode(CODEC_BF16, stored, size), KVT_E_CORRUPT);
        assert_int_equal(codec_rig_decode(CODEC_FP16, stored, size), KVT_E_CORRUPT);
    }
}

/* A frame that is right, of another length than the chunk wants. */
static void
a_frame_of_another_length_is_refused(void **state)
{
    enum {
        COUNT = 640,
        HEADS = AT_RESTS + COUNT,
    };
    static const uint8_t plane[2 * COUNT] = {0};

    (void)state;
    for (uint32_t form = FORM_IS_BYTES; form <= FORM_IS_PAIRS; form++) {
        size_t wanted = form == FORM_IS_PAIRS ? COUNT / 2 : COUNT;

        for (size_t given = 0; given <= wanted + 64; given++) {
            uint8_t frame[256];
            size_t frame_bytes = ZSTD_compress(frame, sizeof(frame), plane, given, 1);
            uint64_t stored = HEADS + frame_bytes;
            uint8_t *encoded = fenced_end(&codec_rig.target, stored);

            assert_false(ZSTD_isError(frame_bytes));
            memset(encoded, 0, HEADS);
            put_u32(encoded, 2 * COUNT);
            encoded[4] = CODEC_BF16;
            put_u32(encoded + AT_FRAME, (uint32_t)frame_bytes);
            encoded[AT_FORM] = (uint8_t)form;
            memcpy(encoded + HEADS, frame, frame_bytes);
            assert_int_equal(codec_rig_decode(CODEC_BF16, stored, (size_t)2 * COUNT),
                given == wanted ? KVT_OK : KVT_E_CORRUPT);
        }
    }
}

static void
escapes_are_all_there_and_all_used(void **state)
{
    enum {
        COUNT = 100, /* The last group is not whole. */
    };
    static uint8_t codes[64], rests[COUNT];
    uint8_t *escapes = fenced_end(&codec_rig.target, 3);
    struct pairs_source source = {
        .base = 90, .codes = codes, .rests = rests, .escapes = escapes, .escape_count = 3};
    uint8_t *target = fenced_end(&codec_rig.back, (size_t)2 * COUNT);

    (void)state;
    codes[0] = 0xF0;  /* Number 16. */
    codes[17] = 0x0F; /* Number 33. */
    codes[48] = 0x0F; /* Number 96. */
    escapes[0] = 1;
    escapes[1] = 2;
    escapes[2] = 255;
    assert_true(pairs_unpack(&source, target, COUNT));
    assert_int_equal(get_u16(target), 90 << 7);
    assert_int_equal(get_u16(target + (ptrdiff_t)2 * 16), 1 << 7);
    assert_int_equal(get_u16(target + (ptrdiff_t)2 * 33), 2 << 7);
    assert_int_equal(get_u16(target + (ptrdiff_t)2 * 96), 255 << 7);
    codes[49] = 0x0F;
    assert_false(pairs_unpack(&source, target, COUNT));
    codes[48] = codes[49] = 0;
    assert_false(pairs_unpack(&source, target, COUNT));
}

static void
a_part_of_another_codec_is_refused(void **state)
{
    uint64_t stored = 0;
    enum codec_id id = CODEC_RAW;
    size_t size = small_part(0, &id, &stored);

    (void)state;
    memmove(fenced_end(&codec_rig.target, stored), fenced_end(&codec_rig.target, size), stored);
    assert_int_equal(codec_rig_decode(CODEC_FP16, stored, size), KVT_E_CORRUPT);
    assert_int_equal(codec_rig_decode(CODEC_RAW, stored, size), KVT_E_CORRUPT);
    for (uint32_t other = UNKNOWN_ID; other < 300; other++)
        assert_int_equal(codec_rig_decode((enum codec_id)other, stored, size), KVT_E_FORMAT);
    assert_int_equal(codec_rig_decode((enum codec_id)UINT32_MAX, stored, size), KVT_E_FORMAT);
    assert_string_equal(failure_last()->text, "a part of the unknown codec 4294967295");
    assert_int_equal(codec_rig_decode(CODEC_BF16, stored, size), KVT_OK);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_flipped_bit_is_refused_or_decoded_in_bounds),
        cmocka_unit_test(every_other_length_is_refused),
        cmocka_unit_test(garbage_is_refused),
        cmocka_unit_test(a_frame_of_another_length_is_refused),
        cmocka_unit_test(escapes_are_all_there_and_all_used),
        cmocka_unit_test(a_part_of_another_codec_is_refused),
    };

    return cmocka_run_group_tests(tests, codec_rig_open, codec_rig_close);
}
