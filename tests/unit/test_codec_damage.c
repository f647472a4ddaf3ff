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

/* Parts that damage begins with: pairs of either kind with escapes and an odd byte, bytes of either
 * kind. */
enum small_part {
    TOPS,
    EXPONENTS,
    BYTES,
    BYTES_FP16,
    SMALL_PARTS,
};

static size_t
small_part(enum small_part which, enum codec_id *id_out, uint64_t *stored_out)
{
    static const size_t sizes[] = {1501, 1501, 1400, 1600};
    static const uint8_t forms[] = {FORM_IS_TOPS, FORM_IS_PAIRS, FORM_IS_BYTES, FORM_IS_BYTES};
    size_t size = sizes[which];
    uint8_t *source = fenced_end(&codec_rig.source, size);
    uint32_t far_count = which == BYTES ? 100 : 20;

    *id_out = which == BYTES_FP16 ? CODEC_FP16 : CODEC_BF16;
    codec_rig_fill(source, *id_out, size, 9);
    for (uint32_t i = 0; which != BYTES_FP16 && i < far_count; i++)
        put_u16(source + 2 * (i * 7), 0x3F);
    if (which == EXPONENTS)
        *stored_out = codec_rig_encode_exponents(size, 119);
    else
        assert_int_equal(codec_rig_encode(*id_out, size, 0, stored_out), *id_out);
    assert_int_equal(fenced_end(&codec_rig.target, size)[AT_FORM], forms[which]);
    return size;
}

static void
every_flipped_bit_is_refused_or_decoded_in_bounds(void **state)
{
    static uint8_t whole[2048];

    (void)state;
    for (enum small_part which = TOPS; which < SMALL_PARTS; which++) {
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
    for (enum small_part which = TOPS; which < SMALL_PARTS; which++) {
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
            encoded[AT_FORM] = (uint8_t)rng_below(&rng, 4);
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
    };
    static const uint8_t plane[2 * COUNT] = {0};

    (void)state;
    for (uint32_t form = FORM_IS_BYTES; form <= FORM_IS_TOPS; form++) {
        size_t wanted = form == FORM_IS_BYTES ? COUNT : COUNT / 2;
        size_t heads = AT_RESTS + COUNT + (form == FORM_IS_TOPS ? COUNT / 8 : 0);

        for (size_t given = 0; given <= wanted + 64; given++) {
            uint8_t frame[256];
            size_t frame_bytes = ZSTD_compress(frame, sizeof(frame), plane, given, 1);
            uint64_t stored = heads + frame_bytes;
            uint8_t *encoded = fenced_end(&codec_rig.target, stored);

            assert_false(ZSTD_isError(frame_bytes));
            memset(encoded, 0, heads);
            put_u32(encoded, 2 * COUNT);
            encoded[4] = CODEC_BF16;
            put_u32(encoded + AT_FRAME, (uint32_t)frame_bytes);
            encoded[AT_FORM] = (uint8_t)form;
            memcpy(encoded + heads, frame, frame_bytes);
            assert_int_equal(codec_rig_decode(CODEC_BF16, stored, (size_t)2 * COUNT),
                given == wanted ? KVT_OK : KVT_E_CORRUPT);
        }
    }
}

/* Behind a frame that is right stands nothing, an empty frame, or bytes to skip; or two frames are
 * right together. */
static void
more_than_one_frame_is_refused(void **state)
{
    enum {
        COUNT = 640,
        HEADS = AT_RESTS + COUNT,
    };
    static const uint8_t plane[COUNT] = {0};
    static const uint8_t skipped[] = {0x50, 0x2A, 0x4D, 0x18, 0, 0, 0, 0};

    (void)state;
    for (uint32_t more = 0; more < 4; more++) {
        uint8_t frames[512];
        size_t bytes = ZSTD_compress(frames, 256, plane, more == 3 ? COUNT / 2 : COUNT, 1);
        uint8_t *encoded = NULL;

        if (more == 1 || more == 3)
            bytes += ZSTD_compress(frames + bytes, 256, plane, more == 3 ? COUNT / 2 : 0, 1);
        if (more == 2) {
            memcpy(frames + bytes, skipped, sizeof(skipped));
            bytes += sizeof(skipped);
        }
        encoded = fenced_end(&codec_rig.target, HEADS + bytes);
        memset(encoded, 0, HEADS);
        put_u32(encoded, 2 * COUNT);
        encoded[4] = CODEC_BF16;
        put_u32(encoded + AT_FRAME, (uint32_t)bytes);
        memcpy(encoded + HEADS, frames, bytes);
        assert_int_equal(codec_rig_decode(CODEC_BF16, HEADS + bytes, (size_t)2 * COUNT),
            more == 0 ? KVT_OK : KVT_E_CORRUPT);
    }
}

enum {
    UNPACKED = 100, /* The last group is not whole. */
};

/* `UNPACKED` numbers from planes of zeros with a few codes of escapes. */
struct unpacked {
    uint8_t codes[64], rests[UNPACKED], signs[16];
    struct pairs_source source;
    uint8_t *escapes;
    uint8_t *target;
};

static void
unpacked_init(struct unpacked *unpacked, bool is_tops)
{
    memset(unpacked, 0, sizeof(*unpacked));
    unpacked->escapes = fenced_end(&codec_rig.target, 3);
    unpacked->target = fenced_end(&codec_rig.back, (size_t)2 * UNPACKED);
    unpacked->source = (struct pairs_source){
        .base = 90,
        .codes = unpacked->codes,
        .rests = unpacked->rests,
        .signs = is_tops ? unpacked->signs : NULL,
        .escapes = unpacked->escapes,
        .escape_count = 3,
    };
    unpacked->codes[0] = 0xF0;  /* Number 16. */
    unpacked->codes[17] = 0x0F; /* Number 33. */
    unpacked->codes[48] = 0x0F; /* Number 96. */
    unpacked->escapes[0] = 1;
    unpacked->escapes[1] = 2;
    unpacked->escapes[2] = is_tops ? 127 : 255;
}

static bool
unpacked_try(const struct unpacked *unpacked)
{
    return pairs_unpack(&unpacked->source, unpacked->target, UNPACKED);
}

static void
escapes_are_all_there_and_all_used(void **state)
{
    struct unpacked unpacked;

    (void)state;
    for (uint32_t is_tops = 0; is_tops < 2; is_tops++) {
        uint32_t shift = is_tops != 0 ? 8 : 7;

        unpacked_init(&unpacked, is_tops != 0);
        assert_true(unpacked_try(&unpacked));
        assert_int_equal(get_u16(unpacked.target), 90 << shift);
        assert_int_equal(get_u16(unpacked.target + (ptrdiff_t)2 * 16), 1 << shift);
        assert_int_equal(get_u16(unpacked.target + (ptrdiff_t)2 * 33), 2 << shift);
        assert_int_equal(
            get_u16(unpacked.target + (ptrdiff_t)2 * 96), unpacked.escapes[2] << shift);
        unpacked.codes[49] = 0x0F;
        assert_false(unpacked_try(&unpacked));
        unpacked.codes[48] = unpacked.codes[49] = 0;
        assert_false(unpacked_try(&unpacked));
    }
}

/* It would set the sign, too. */
static void
an_escape_that_is_no_top_is_refused(void **state)
{
    struct unpacked unpacked;

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        unpacked_init(&unpacked, true);
        assert_true(unpacked_try(&unpacked));
        unpacked.escapes[i] |= 0x80;
        assert_false(unpacked_try(&unpacked));
    }
}

static void
numbers_behind_the_last_are_refused(void **state)
{
    struct unpacked unpacked;

    (void)state;
    for (uint32_t i = 0; i < 128; i++) {
        unpacked_init(&unpacked, true);
        unpacked.signs[i % 16] |= (uint8_t)(0x80 >> i / 16);
        assert_int_equal(unpacked_try(&unpacked), i < UNPACKED);
        for (uint32_t is_tops = 0; is_tops < 2; is_tops++) {
            uint8_t *pair = NULL;

            unpacked_init(&unpacked, is_tops != 0);
            pair = &unpacked.codes[i / 32 * 16 + i % 16];
            if (i != 16 && i != 33 && i != 96)
                *pair |= i % 32 < 16 ? 1 : 0x10;
            assert_int_equal(unpacked_try(&unpacked), i < UNPACKED);
        }
    }
}

static void
a_part_of_another_codec_is_refused(void **state)
{
    uint64_t stored = 0;
    enum codec_id id = CODEC_RAW;
    size_t size = small_part(TOPS, &id, &stored);

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
        cmocka_unit_test(more_than_one_frame_is_refused),
        cmocka_unit_test(escapes_are_all_there_and_all_used),
        cmocka_unit_test(an_escape_that_is_no_top_is_refused),
        cmocka_unit_test(numbers_behind_the_last_are_refused),
        cmocka_unit_test(a_part_of_another_codec_is_refused),
    };

    return cmocka_run_group_tests(tests, codec_rig_open, codec_rig_close);
}
