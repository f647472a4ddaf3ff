/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_image.c - images of blocks that are made of parts: what is written is read, and nothing else
 * is believed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "bytes.h"
#include "codec_rig.h"
#include "image.h"

enum {
    BLOCK_MAX = 1 << 20,
    DAMAGES = 20000,
};

static uint8_t *payload, *image, *back;

static int
memory_open(void **state)
{
    payload = malloc(BLOCK_MAX);
    image = malloc(BLOCK_MAX + 2 * PAGE_BYTES);
    back = malloc(BLOCK_MAX);
    assert_true(payload != NULL && image != NULL && back != NULL);
    return codec_rig_open(state);
}

static int
memory_close(void **state)
{
    free(payload);
    free(image);
    free(back);
    return codec_rig_close(state);
}

/* An image as the store makes one: encoded, or with raw parts; a shape of neither for a plain
 * block. */
static struct image_shape
image_make(enum codec_id id, uint32_t part_count, uint32_t part_bytes)
{
    struct image_shape shape = {.length = part_count * part_bytes, .part_count = part_count};
    uint32_t raw_count;

    if (id != CODEC_RAW && image_encode(codec_rig.codec, id, &shape, payload, image, &raw_count))
        return shape;
    memcpy(image, payload, shape.length);
    image_note_raw(&shape, payload, image + shape.length);
    return shape;
}

/* Prove the part and decode it. */
static bool
part_read(const struct image_shape *shape, uint32_t part)
{
    struct image_part parts[RECORD_PARTS_MAX];

    if (image_trailer_read(shape, image + image_trailer_at(shape), parts) != KVT_OK)
        return false;
    if (!image_part_is_right(&parts[part], image + parts[part].offset))
        return false;
    return codec_decode(codec_rig.codec, parts[part].codec, image + parts[part].offset,
               parts[part].stored_length, back, image_part_bytes(shape)) == KVT_OK;
}

static void
trip(enum codec_id id, uint32_t part_count, uint32_t part_bytes)
{
    struct image_shape shape = image_make(id, part_count, part_bytes);
    uint32_t raw_bytes = record_raw_bytes(shape.length, part_count);

    assert_true(shape.has_trailer);
    assert_true(image_is_right(&shape, image));
    if (image_is_encoded(&shape))
        assert_true(pages_of(shape.stored_length) < pages_of(raw_bytes));
    else
        assert_int_equal(shape.stored_length, raw_bytes);
    for (uint32_t i = 0; i < part_count; i++) {
        memset(back, 0xA5, part_bytes);
        assert_true(part_read(&shape, i));
        assert_memory_equal(back, payload + (size_t)i * part_bytes, part_bytes);
    }
}

static void
every_part_comes_back_alone(void **state)
{
    static const uint32_t counts[] = {1, 2, 3, 64};
    static const uint32_t sizes[] = {1, 2, 3, 63, 100, 2047, 2048, 4096, 5001, 16384};

    (void)state;
    for (uint32_t id = CODEC_RAW; id <= CODEC_FP16; id++) {
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
            for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
                struct rng rng = {id + c * 10 + s * 100};
                uint32_t bytes = counts[c] * sizes[s];

                codec_rig_fill(payload, id == CODEC_FP16 ? CODEC_FP16 : CODEC_BF16, bytes, s);
                trip((enum codec_id)id, counts[c], sizes[s]);
                random_fill(payload, bytes, &rng);
                trip((enum codec_id)id, counts[c], sizes[s]);
            }
        }
    }
}

static void
what_saves_no_page_is_not_encoded(void **state)
{
    struct image_shape shape = {.length = 8192, .part_count = 4};
    struct rng rng = {5};
    uint32_t raw_count = 0;

    (void)state;
    random_fill(payload, 8192, &rng);
    assert_false(image_encode(codec_rig.codec, CODEC_BF16, &shape, payload, image, &raw_count));
    assert_int_equal(raw_count, 4);
    assert_false(shape.has_trailer);
    /* One page in any case, however much is saved. */
    shape = (struct image_shape){.length = 2000, .part_count = 2};
    codec_rig_fill(payload, CODEC_BF16, 2000, 1);
    assert_false(image_encode(codec_rig.codec, CODEC_BF16, &shape, payload, image, &raw_count));
    /* A single part that is larger with its trailer: as it was given. */
    shape = (struct image_shape){.length = 4096, .part_count = 1};
    random_fill(payload, 4096, &rng);
    assert_false(image_encode(codec_rig.codec, CODEC_BF16, &shape, payload, image, &raw_count));
}

static void
parts_that_do_not_pay_stay_raw_beside_others(void **state)
{
    struct image_shape shape = {.length = 8 * 4096, .part_count = 8};
    struct rng rng = {6};
    struct image_part parts[RECORD_PARTS_MAX];
    uint32_t raw_count = 0;

    (void)state;
    codec_rig_fill(payload, CODEC_BF16, 8 * 4096, 1);
    random_fill(payload + 2 * 4096, 4096, &rng);
    random_fill(payload + 7 * 4096, 4096, &rng);
    assert_true(image_encode(codec_rig.codec, CODEC_BF16, &shape, payload, image, &raw_count));
    assert_int_equal(raw_count, 2);
    assert_int_equal(image_trailer_read(&shape, image + image_trailer_at(&shape), parts), KVT_OK);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(parts[i].codec, i == 2 || i == 7 ? CODEC_RAW : CODEC_BF16);
        assert_true(part_read(&shape, i));
        assert_memory_equal(back, payload + (size_t)i * 4096, 4096);
    }
}

static void
every_byte_is_under_a_checksum(void **state)
{
    (void)state;
    for (uint32_t id = CODEC_RAW; id <= CODEC_FP16; id++) {
        struct image_shape shape;

        codec_rig_fill(payload, id == CODEC_FP16 ? CODEC_FP16 : CODEC_BF16, 3 * 1400, 3);
        shape = image_make((enum codec_id)id, 3, 1400);
        assert_int_equal(image_is_encoded(&shape), id != CODEC_RAW);
        for (uint32_t at = 0; at < shape.stored_length; at++) {
            struct image_part parts[RECORD_PARTS_MAX];

            image[at] ^= 1;
            assert_false(image_is_right(&shape, image));
            if (at >= image_trailer_at(&shape))
                assert_int_equal(
                    image_trailer_read(&shape, image + image_trailer_at(&shape), parts),
                    KVT_E_CORRUPT);
            image[at] ^= 1;
        }
        assert_true(image_is_right(&shape, image));
    }
}

/* --- Whoever forges checksums too ------------------------------------------------------------- */

/* A trailer with a checksum that fits, whatever it says. */
static enum kvt_status
forged_read(struct image_shape *shape, struct image_part *parts)
{
    const uint8_t *trailer = image + image_trailer_at(shape);

    shape->checksum = hash_payload(trailer, image_trailer_bytes(shape));
    return image_trailer_read(shape, trailer, parts);
}

static void
impossible_notes_are_refused_though_the_checksum_fits(void **state)
{
    static const struct {
        uint32_t at, width;
        uint64_t value;
    } forged[] = {{16, 4, 0}, {16, 4, 1499}, {16, 4, 1501}, {16, 4, UINT32_MAX},
        {16, 4, 0x80000000}, {20, 1, 1}, {20, 1, 3}, {20, 1, 255}, {21, 1, 1}, {22, 1, 1},
        {23, 1, 128}};
    struct image_part parts[RECORD_PARTS_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof(forged) / sizeof(forged[0]); i++) {
        struct image_shape shape;

        codec_rig_fill(payload, CODEC_BF16, 3 * 1500, 3);
        shape = image_make(CODEC_RAW, 3, 1500);
        assert_int_equal(forged_read(&shape, parts), KVT_OK);
        for (uint32_t k = 0; k < forged[i].width; k++)
            image[image_trailer_at(&shape) + 24 + forged[i].at + k] =
                (uint8_t)(forged[i].value >> 8 * k);
        print_message("forgery %zu\n", i);
        assert_int_equal(forged_read(&shape, parts), KVT_E_CORRUPT);
    }
}

/* Notes, lengths and frames at random: decoded, if at all, within bounds. */
static void
forged_images_are_refused_or_decoded_in_bounds(void **state)
{
    struct rng rng = {77};
    uint32_t decoded_count = 0, refused_count = 0;

    (void)state;
    for (uint32_t n = 0; n < DAMAGES; n++) {
        struct image_part parts[RECORD_PARTS_MAX];
        enum codec_id id = (enum codec_id)(1 + n % 2);
        struct image_shape shape;

        if (n % 64 == 0)
            codec_rig_fill(payload, id, 3 * 1501, n);
        shape = image_make(id, 3, 1501);
        for (uint32_t k = rng_below(&rng, 4) + 1; k > 0; k--)
            image[rng_below(&rng, shape.stored_length)] = (uint8_t)rng_next(&rng);
        if (forged_read(&shape, parts) != KVT_OK) {
            refused_count++;
            continue;
        }
        for (uint32_t i = 0; i < 3; i++) {
            assert_true(parts[i].offset + parts[i].stored_length <= image_trailer_at(&shape));
            memcpy(fenced_end(&codec_rig.target, parts[i].stored_length), image + parts[i].offset,
                parts[i].stored_length);
            if (codec_decode(codec_rig.codec, parts[i].codec,
                    fenced_end(&codec_rig.target, parts[i].stored_length), parts[i].stored_length,
                    fenced_end(&codec_rig.back, 1501), 1501) == KVT_OK)
                decoded_count++;
            else
                refused_count++;
        }
    }
    assert_true(decoded_count > DAMAGES && refused_count > DAMAGES / 10);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_comes_back_alone),
        cmocka_unit_test(what_saves_no_page_is_not_encoded),
        cmocka_unit_test(parts_that_do_not_pay_stay_raw_beside_others),
        cmocka_unit_test(every_byte_is_under_a_checksum),
        cmocka_unit_test(impossible_notes_are_refused_though_the_checksum_fits),
        cmocka_unit_test(forged_images_are_refused_or_decoded_in_bounds),
    };

    return cmocka_run_group_tests(tests, memory_open, memory_close);
}
