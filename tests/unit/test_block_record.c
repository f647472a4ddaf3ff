/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_block_record.c - the bytes of FORMAT.md section 3.4, and that no other bytes pass.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "block_record.h"
#include "bytes.h"
#include "failure.h"

enum {
    SEGMENT = 2 << 24 | 5,
    PAGE = 77,
};

/* Made by a separate program from the table in FORMAT.md alone; the CRC too. */
static const char golden[] = "\x01\x01\x08\x00\x34\x12\x01\x03\xa4\xa3\xa2\xa1\xb4\xb3\xb2\xb1"
                             "\xc8\xc7\xc6\xc5\xc4\xc3\xc2\xc1\xd4\xd3\xd2\xd1\xe2\xe1\x00\x00"
                             "\x00\x00\x01\x00\x00\x00\x01\x00\x08\x07\x06\x05\x04\x03\x02\x01"
                             "\x18\x17\x16\x15\x14\x13\x12\x11\x28\x27\x26\x25\x24\x23\x22\x21"
                             "\x38\x37\x36\x35\x34\x33\x32\x31\x07\x00\x00\x00\x00\x04\x00\x00"
                             "\x00\x01\x00\x00\xe1\x10\x00\x00\x66\x77\x88\x99\x00\x00\x00\x00"
                             "\x99\x39\x93\x7d\x62\x6c\x6f\x63\x6b\x2d\x31\x37";

enum {
    GOLDEN_SIZE = sizeof(golden) - 1,
};

static struct block_record
golden_record(void)
{
    struct block_record record = {
        .key = {.namespace_id = 0xA1A2A3A4, .component = 0x1234, .form = KEY_RAW, .length = 8},
        .namespace_epoch = 0xB1B2B3B4,
        .extent = {.segment = SEGMENT, .generation = 0xD1D2D3D4, .page = PAGE},
        .sequence = 0xC1C2C3C4C5C6C7C8,
        .length = 65536,
        .stored_length = 65536,
        .part_count = 1,
        .hint = 3,
        .class_id = 0xE1E2,
        .checksum = {.high = 0x0102030405060708, .low = 0x1112131415161718},
        .parent = {.high = 0x2122232425262728, .low = 0x3132333435363738},
        .depth = 7,
        .token_start = 1024,
        .token_count = 256,
        .recompute_us = 4321,
        .importance = 0x99887766,
    };

    memcpy(record.key.bytes, "block-17", 8);
    return record;
}

static void
assert_records_equal(const struct block_record *a, const struct block_record *b)
{
    assert_true(key_equal(&a->key, &b->key));
    assert_memory_equal(a->key.bytes, b->key.bytes, KEY_BYTES_MAX);
    assert_int_equal(a->namespace_epoch, b->namespace_epoch);
    assert_int_equal(a->extent.segment, b->extent.segment);
    assert_int_equal(a->extent.generation, b->extent.generation);
    assert_int_equal(a->extent.page, b->extent.page);
    assert_true(a->sequence == b->sequence);
    assert_int_equal(a->length, b->length);
    assert_int_equal(a->stored_length, b->stored_length);
    assert_int_equal(a->codec, b->codec);
    assert_int_equal(a->part_count, b->part_count);
    assert_int_equal(a->hint, b->hint);
    assert_int_equal(a->class_id, b->class_id);
    assert_true(hash128_equal(a->checksum, b->checksum));
    assert_true(hash128_equal(a->parent, b->parent));
    assert_int_equal(a->depth, b->depth);
    assert_int_equal(a->token_start, b->token_start);
    assert_int_equal(a->token_count, b->token_count);
    assert_int_equal(a->recompute_us, b->recompute_us);
    assert_int_equal(a->importance, b->importance);
}

static void
encoded_bytes_are_those_of_the_format(void **state)
{
    struct block_record record = golden_record();
    uint8_t bytes[BLOCK_RECORD_BYTES_MAX];

    (void)state;
    memset(bytes, 0xEE, sizeof(bytes));
    assert_int_equal(block_record_encode(&record, bytes), GOLDEN_SIZE);
    assert_memory_equal(bytes, golden, GOLDEN_SIZE);
    for (size_t i = GOLDEN_SIZE; i < sizeof(bytes); i++)
        assert_int_equal(bytes[i], 0xEE);
    assert_int_equal(block_record_crc(bytes), 0x7D933999);
}

static void
bytes_of_the_format_decode_to_every_field(void **state)
{
    struct block_record expected = golden_record();
    struct block_record record;

    (void)state;
    memset(&record, 0xEE, sizeof(record));
    assert_int_equal(
        block_record_decode(&record, SEGMENT, PAGE, (const uint8_t *)golden, GOLDEN_SIZE), KVT_OK);
    assert_records_equal(&record, &expected);
}

static void
shortest_and_longest_key_survive_a_round_trip(void **state)
{
    (void)state;
    for (uint32_t length = 1; length <= KEY_BYTES_MAX; length++) {
        struct block_record record = golden_record();
        struct block_record decoded;
        uint8_t bytes[BLOCK_RECORD_BYTES_MAX];
        size_t size;

        record.key.length = (uint8_t)length;
        memset(record.key.bytes, 0, KEY_BYTES_MAX);
        memset(record.key.bytes, 0x5A, length);
        size = block_record_encode(&record, bytes);
        assert_int_equal(size, BLOCK_RECORD_BYTES_MIN - 1 + length);
        assert_true(size <= BLOCK_RECORD_BYTES_MAX);
        assert_int_equal(block_record_decode(&decoded, SEGMENT, PAGE, bytes, size), KVT_OK);
        assert_records_equal(&record, &decoded);
    }
}

static void
each_flipped_bit_is_refused_and_writes_nothing(void **state)
{
    (void)state;
    for (size_t bit = 0; bit < (size_t)GOLDEN_SIZE * 8; bit++) {
        struct block_record record;
        struct block_record before;
        uint8_t bytes[GOLDEN_SIZE];

        memset(&record, 0xEE, sizeof(record));
        before = record;
        memcpy(bytes, golden, GOLDEN_SIZE);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(
            block_record_decode(&record, SEGMENT, PAGE, bytes, GOLDEN_SIZE), KVT_E_CORRUPT);
        assert_int_equal(failure_last()->status, KVT_E_CORRUPT);
        assert_memory_equal(&record, &before, sizeof(record));
    }
}

static void
record_is_refused_at_any_other_place_or_size(void **state)
{
    struct block_record record;
    uint8_t bytes[2 * BLOCK_RECORD_BYTES_MAX] = {0};

    (void)state;
    memcpy(bytes, golden, GOLDEN_SIZE);
    assert_int_equal(
        block_record_decode(&record, SEGMENT + 1, PAGE, bytes, GOLDEN_SIZE), KVT_E_CORRUPT);
    assert_int_equal(
        block_record_decode(&record, SEGMENT, PAGE + 1, bytes, GOLDEN_SIZE), KVT_E_CORRUPT);
    assert_int_equal(
        block_record_decode(&record, PAGE, SEGMENT, bytes, GOLDEN_SIZE), KVT_E_CORRUPT);
    for (size_t size = 0; size < sizeof(bytes); size++) {
        if (size != GOLDEN_SIZE) {
            assert_int_equal(
                block_record_decode(&record, SEGMENT, PAGE, bytes, size), KVT_E_CORRUPT);
        }
    }
    assert_int_equal(block_record_decode(&record, SEGMENT, PAGE, NULL, 0), KVT_E_CORRUPT);
}

/* Give changed bytes the CRC that belongs to them, as whoever forges a record would. */
static void
crc_mend(uint8_t *bytes, size_t size)
{
    uint8_t place[8];
    uint32_t crc = crc32c(0, bytes, 96);

    put_u32_big(place, SEGMENT);
    put_u32_big(place + 4, PAGE);
    crc = crc32c(crc, bytes + 100, size - 100);
    put_u32(bytes + 96, crc32c(crc, place, sizeof(place)));
}

struct forgery {
    const char *what;
    size_t at;
    size_t width;
    uint32_t value;
    const char *word; /* Of the sentence. */
};

static const struct forgery forgeries[] = {
    {"version 0", 0, 1, 0, "version"},
    {"version 2", 0, 1, 2, "version"},
    {"key form 0", 1, 1, 0, "form"},
    {"key form 3", 1, 1, 3, "form"},
    {"hashed key of 8 bytes", 1, 1, 2, "hash"},
    {"key length 0", 2, 1, 0, "size"},
    {"key length 7", 2, 1, 7, "size"},
    {"key length 255", 2, 1, 255, "size"},
    {"codec 2", 3, 1, 2, "codec"},
    {"codec 255", 3, 1, 255, "codec"},
    {"no part", 6, 1, 0, "part"},
    {"two parts", 6, 1, 2, "part"},
    {"hint 4", 7, 1, 4, "hint"},
    {"reserved at 30", 30, 1, 1, "reserved"},
    {"reserved at 31", 31, 1, 1, "reserved"},
    {"reserved at 92", 92, 4, 0x01000000, "reserved"},
    {"length 0", 32, 4, 0, "its length"},
    {"length above 64 MiB", 32, 4, (64u << 20) + 1, "its length"},
    {"length 2^32-1", 32, 4, UINT32_MAX, "its length"},
    {"stored length differs", 36, 4, 65535, "stored length"},
};

static void
each_field_out_of_bounds_is_refused_though_the_crc_fits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(forgeries) / sizeof(forgeries[0]); i++) {
        const struct forgery *forgery = &forgeries[i];
        struct block_record record;
        uint8_t bytes[GOLDEN_SIZE];

        memcpy(bytes, golden, GOLDEN_SIZE);
        for (size_t k = 0; k < forgery->width; k++)
            bytes[forgery->at + k] = (uint8_t)(forgery->value >> (8 * k));
        crc_mend(bytes, GOLDEN_SIZE);
        print_message("%s\n", forgery->what);
        assert_int_equal(
            block_record_decode(&record, SEGMENT, PAGE, bytes, GOLDEN_SIZE), KVT_E_CORRUPT);
        assert_non_null(strstr(failure_last()->text, forgery->word));
        /* Only what cannot have been written so is damage. */
        assert_int_equal(block_record_prove(SEGMENT, PAGE, bytes, GOLDEN_SIZE),
            strcmp(forgery->word, "size") == 0 ? KVT_E_CORRUPT : KVT_OK);
    }
}

static void
a_record_of_other_bytes_or_another_place_is_damaged(void **state)
{
    uint8_t bytes[GOLDEN_SIZE];

    (void)state;
    memcpy(bytes, golden, GOLDEN_SIZE);
    assert_int_equal(block_record_prove(SEGMENT, PAGE, bytes, GOLDEN_SIZE), KVT_OK);
    assert_int_equal(block_record_prove(SEGMENT, PAGE + 1, bytes, GOLDEN_SIZE), KVT_E_CORRUPT);
    assert_int_equal(block_record_prove(SEGMENT, PAGE, bytes, GOLDEN_SIZE - 1), KVT_E_CORRUPT);
    assert_int_equal(block_record_prove(SEGMENT, PAGE, NULL, 0), KVT_E_CORRUPT);
    for (size_t bit = 0; bit < (size_t)GOLDEN_SIZE * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(block_record_prove(SEGMENT, PAGE, bytes, GOLDEN_SIZE), KVT_E_CORRUPT);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

/* How blocks of parts may be stored, and how not. */
static void
stored_lengths_of_parts_have_bounds(void **state)
{
    static const struct {
        uint32_t length, part_count, stored_length;
        bool is_right;
    } cases[] = {
        {8192, 1, 8192 + 24, true},
        {8192, 1, 8192 + 25, false},
        {8192, 1, 8192, true}, /* Encoded: two pages, not three. */
        {8192, 1, 8193, false},
        {8192, 1, 25, true},
        {8192, 1, 24, false},
        {8192, 1, 0, false},
        {8192, 0, 8192, false},
        {8192, 64, 8192 + 64 * 24, true},
        {8192, 64, 64 * 24, false},
        {8192, 64, 64 * 24 + 1, true},
        {8192, 65, 4096, false},
        {8190, 3, 8190 + 3 * 24, true},
        {8192, 3, 8192 + 3 * 24, false},
        {8192, 3, 4096, false},
        {100, 2, 148, true},
        {100, 2, 147, false}, /* Encoded, and no page is saved. */
        {4000, 4, 4096, true},
        {4000, 4, 4095, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct block_record record = golden_record();
        struct block_record back;
        uint8_t bytes[BLOCK_RECORD_BYTES_MAX];
        size_t size;
        enum kvt_status wanted = cases[i].is_right ? KVT_OK : KVT_E_CORRUPT;

        record.codec = RECORD_PARTS;
        record.length = cases[i].length;
        record.part_count = (uint8_t)cases[i].part_count;
        record.stored_length = cases[i].stored_length;
        size = block_record_encode(&record, bytes);
        print_message("case %zu\n", i);
        assert_int_equal(block_record_decode(&back, SEGMENT, PAGE, bytes, size), wanted);
        if (wanted == KVT_OK)
            assert_records_equal(&record, &back);
    }
}

static void
largest_block_and_largest_hash_key_pass(void **state)
{
    struct block_record record = golden_record();
    struct block_record decoded;
    uint8_t bytes[BLOCK_RECORD_BYTES_MAX];
    size_t size;

    (void)state;
    record.length = record.stored_length = 64u << 20;
    record.key.form = KEY_HASHED;
    record.key.length = KEY_HASHED_BYTES;
    size = block_record_encode(&record, bytes);
    assert_int_equal(block_record_decode(&decoded, SEGMENT, PAGE, bytes, size), KVT_OK);
    assert_records_equal(&record, &decoded);
}

static void
segment_number_holds_root_and_index(void **state)
{
    (void)state;
    assert_int_equal(segment_root(SEGMENT), 2);
    assert_int_equal(segment_index(SEGMENT), 5);
    assert_int_equal(segment_root(UINT32_MAX), 255);
    assert_int_equal(segment_index(UINT32_MAX), 0xFFFFFF);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encoded_bytes_are_those_of_the_format),
        cmocka_unit_test(bytes_of_the_format_decode_to_every_field),
        cmocka_unit_test(shortest_and_longest_key_survive_a_round_trip),
        cmocka_unit_test(each_flipped_bit_is_refused_and_writes_nothing),
        cmocka_unit_test(record_is_refused_at_any_other_place_or_size),
        cmocka_unit_test(each_field_out_of_bounds_is_refused_though_the_crc_fits),
        cmocka_unit_test(a_record_of_other_bytes_or_another_place_is_damaged),
        cmocka_unit_test(stored_lengths_of_parts_have_bounds),
        cmocka_unit_test(largest_block_and_largest_hash_key_pass),
        cmocka_unit_test(segment_number_holds_root_and_index),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
