/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_batch_header.c - headers of batches: round trip, every damaged byte, forged fields under a
 * right MAC, records of a later version, and the offsets of FORMAT.md section 3.3.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "batch_header.h"
#include "bytes.h"
#include "rng.h"
#include "stop_on_proof.h"

enum {
    SEGMENT = 2 << 24 | 5,
    SEGMENT_PAGES = 4096,
    HEADER_BYTES_MAX = BATCH_HEADER_PAGES_MAX * PAGE_BYTES,
};

static const uint8_t uuid[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
static const uint8_t secret[HASH_SECRET_BYTES] = "the secret of a store, 32 bytes";

static struct tier_block blocks[BATCH_BLOCKS_MAX];
static struct tier_kill kills[BATCH_KILLS_MAX];
static struct block_record records[BATCH_BLOCKS_MAX];
static struct tier_kill kills_out[BATCH_KILLS_MAX];
static uint8_t bytes[HEADER_BYTES_MAX];

static void
record_make(struct block_record *record, struct rng *rng, struct extent extent)
{
    memset(record, 0, sizeof(*record));
    record->key.namespace_id = 1 + rng_below(rng, 100);
    record->key.component = (uint16_t)rng_next(rng);
    record->key.form = KEY_RAW;
    record->key.length = (uint8_t)(1 + rng_below(rng, KEY_BYTES_MAX));
    for (uint32_t i = 0; i < record->key.length; i++)
        record->key.bytes[i] = (uint8_t)rng_next(rng);
    record->namespace_epoch = 1 + rng_below(rng, 9);
    record->extent = extent;
    record->sequence = rng_next(rng);
    record->length = 1 + rng_below(rng, 8192);
    record->stored_length = record->length;
    record->part_count = 1;
    record->hint = (uint8_t)rng_below(rng, 4);
    record->class_id = (uint16_t)rng_next(rng);
    record->checksum = (struct hash128){rng_next(rng), rng_next(rng)};
    record->parent = (struct hash128){rng_next(rng), rng_next(rng)};
    record->depth = (uint32_t)rng_next(rng);
    record->token_start = (uint32_t)rng_next(rng);
    record->token_count = (uint32_t)rng_next(rng);
    record->recompute_us = (uint32_t)rng_next(rng);
    record->importance = (uint32_t)rng_next(rng);
}

/* Fill `blocks`, `kills` and `bytes`; returns what was encoded. */
static struct batch_header
header_make(uint64_t seed, uint32_t block_count, uint32_t kill_count)
{
    struct rng rng = {.state = seed};
    struct batch_header header = {
        .extent = {.segment = SEGMENT, .generation = 1 + rng_below(&rng, 1000), .page = 7},
        .header_pages = batch_header_pages(block_count, kill_count),
        .sequence = rng_next(&rng),
        .block_count = block_count,
        .kill_count = kill_count,
    };
    uint32_t page = header.extent.page + header.header_pages;

    memcpy(header.store_uuid, uuid, sizeof(uuid));
    for (uint32_t i = 0; i < block_count; i++) {
        struct extent extent = header.extent;

        extent.page = page;
        record_make(&blocks[i].record, &rng, extent);
        page += pages_of(blocks[i].record.stored_length);
    }
    for (uint32_t i = 0; i < kill_count; i++) {
        kills[i].extent = (struct extent){
            (uint32_t)rng_next(&rng), (uint32_t)rng_next(&rng), (uint32_t)rng_next(&rng)};
        kills[i].fingerprint = (struct hash128){rng_next(&rng), rng_next(&rng)};
        kills[i].sequence = rng_next(&rng);
    }
    header.total_pages = page - header.extent.page;
    memset(bytes, 0xEE, sizeof(bytes));
    batch_header_encode(&header, blocks, kills, secret, bytes);
    return header;
}

static enum kvt_status
decode_at(uint32_t segment, uint32_t page, struct batch_header *header_out)
{
    return batch_header_decode(bytes, sizeof(bytes), uuid, secret, segment, page, SEGMENT_PAGES,
        header_out, records, kills_out);
}

static enum kvt_status
decode(void)
{
    struct batch_header header;

    return decode_at(SEGMENT, 7, &header);
}

/* Make the MAC right again after `bytes` was changed on purpose; says what a MAC covers. */
static void
mac_repair(uint32_t header_pages)
{
    uint8_t mac[HASH_MAC_BYTES];

    memset(bytes + 64, 0, sizeof(mac));
    hash_mac(mac, secret, bytes, (size_t)header_pages * PAGE_BYTES);
    memcpy(bytes + 64, mac, sizeof(mac));
}

/* --- Round trip ------------------------------------------------------------------------------- */

static void
record_compare(const struct block_record *a, const struct block_record *b)
{
    assert_true(key_equal(&a->key, &b->key));
    assert_int_equal(a->namespace_epoch, b->namespace_epoch);
    assert_memory_equal(&a->extent, &b->extent, sizeof(a->extent));
    assert_int_equal(a->sequence, b->sequence);
    assert_int_equal(a->length, b->length);
    assert_int_equal(a->stored_length, b->stored_length);
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
round_trip(uint64_t seed, uint32_t block_count, uint32_t kill_count)
{
    struct batch_header wanted = header_make(seed, block_count, kill_count);
    struct batch_header header;

    assert_int_equal(batch_header_peek(bytes, &header), KVT_OK);
    assert_int_equal(header.header_pages, wanted.header_pages);
    assert_int_equal(decode_at(SEGMENT, 7, &header), KVT_OK);
    assert_memory_equal(header.store_uuid, uuid, sizeof(uuid));
    assert_memory_equal(&header.extent, &wanted.extent, sizeof(header.extent));
    assert_int_equal(header.header_pages, wanted.header_pages);
    assert_int_equal(header.total_pages, wanted.total_pages);
    assert_int_equal(header.sequence, wanted.sequence);
    assert_int_equal(header.block_count, block_count);
    assert_int_equal(header.kill_count, kill_count);
    assert_false(header.is_recycle);
    for (uint32_t i = 0; i < block_count; i++)
        record_compare(&records[i], &blocks[i].record);
    assert_memory_equal(kills_out, kills, kill_count * sizeof(kills[0]));
}

static void
what_was_encoded_is_decoded(void **state)
{
    (void)state;
    round_trip(1, 1, 0);
    round_trip(2, 0, 1);
    round_trip(3, 17, 5);
    for (uint64_t seed = 10; seed < 60; seed++)
        round_trip(seed, (uint32_t)seed * 3, (uint32_t)(seed * 7 % 40));
    round_trip(4, BATCH_BLOCKS_MAX, BATCH_KILLS_MAX);
    assert_int_equal(batch_header_pages(BATCH_BLOCKS_MAX, BATCH_KILLS_MAX), BATCH_HEADER_PAGES_MAX);
}

static void
fields_lie_where_the_format_says(void **state)
{
    struct batch_header header = header_make(5, 3, 2);
    size_t at = 128;

    (void)state;
    assert_int_equal(get_u32(bytes), 0x7E91F3B5);
    assert_int_equal(get_u16(bytes + 4), 1);
    assert_int_equal(get_u16(bytes + 6), 0);
    assert_memory_equal(bytes + 8, uuid, 16);
    assert_int_equal(get_u32(bytes + 24), SEGMENT);
    assert_int_equal(get_u32(bytes + 28), header.extent.generation);
    assert_int_equal(get_u32(bytes + 32), 7);
    assert_int_equal(get_u32(bytes + 36), header.header_pages);
    assert_int_equal(get_u32(bytes + 40), header.total_pages);
    assert_int_equal(get_u32(bytes + 44), 3);
    assert_int_equal(get_u32(bytes + 48), 2);
    assert_int_equal(get_u64(bytes + 56), header.sequence);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(get_u32(bytes + at), 100u + blocks[i].record.key.length);
        assert_int_equal(get_u32(bytes + at + 4), blocks[i].record.extent.page);
        at += 8 + get_u32(bytes + at);
    }
    at = round_up(at, 8);
    assert_int_equal(get_u32(bytes + at), kills[0].extent.segment);
    assert_int_equal(get_u64(bytes + at + 16), kills[0].fingerprint.high);
    assert_int_equal(get_u64(bytes + at + 72), kills[1].sequence);
    assert_true(bytes_are_zero(bytes + at + 80, header.header_pages * PAGE_BYTES - at - 80));
}

/* --- Damage ----------------------------------------------------------------------------------- */

static void
every_single_flipped_byte_is_refused(void **state)
{
    struct batch_header header = header_make(6, 20, 30);
    size_t size = (size_t)header.header_pages * PAGE_BYTES;

    (void)state;
    assert_int_equal(decode(), KVT_OK);
    for (size_t i = 0; i < size; i++) {
        uint8_t flip = (uint8_t)(1u << i % 8);
        enum kvt_status status;

        bytes[i] ^= flip;
        status = decode();
        assert_int_equal(status, i < 4 ? KVT_MISS : KVT_E_CORRUPT);
        bytes[i] ^= flip;
    }
    assert_int_equal(decode(), KVT_OK);
}

static void
a_header_counts_only_where_it_was_written(void **state)
{
    struct batch_header header;
    uint8_t other[16] = {0};

    (void)state;
    header_make(7, 4, 0);
    assert_int_equal(decode_at(SEGMENT, 7, &header), KVT_OK);
    assert_int_equal(decode_at(SEGMENT, 8, &header), KVT_E_CORRUPT);
    assert_int_equal(decode_at(SEGMENT + 1, 7, &header), KVT_E_CORRUPT);
    assert_int_equal(batch_header_decode(bytes, sizeof(bytes), other, secret, SEGMENT, 7,
                         SEGMENT_PAGES, &header, records, kills_out),
        KVT_E_CORRUPT);
    assert_int_equal(batch_header_decode(bytes, sizeof(bytes), uuid, bytes, SEGMENT, 7,
                         SEGMENT_PAGES, &header, records, kills_out),
        KVT_E_CORRUPT);
}

/* The uuid may be damaged, and nothing else. */
static void
a_header_with_another_uuid_is_known_by_its_mac(void **state)
{
    uint8_t other[HASH_SECRET_BYTES] = {1};

    (void)state;
    for (uint32_t blocks_in_it = 1; blocks_in_it <= 200; blocks_in_it += 199) {
        struct batch_header header = header_make(8, blocks_in_it, 3);
        size_t last = (size_t)header.header_pages * PAGE_BYTES - 1;

        assert_true(batch_header_is_of(bytes, header.header_pages, uuid, secret));
        memset(bytes + 8, 0x77, sizeof(uuid));
        assert_true(batch_header_is_of(bytes, header.header_pages, uuid, secret));
        assert_memory_equal(bytes + 8, uuid, sizeof(uuid));
        assert_false(batch_header_is_of(bytes, header.header_pages, uuid, other));
        assert_false(batch_header_is_of(bytes, header.header_pages, other, secret));
        bytes[last] ^= 1;
        assert_false(batch_header_is_of(bytes, header.header_pages, uuid, secret));
    }
}

static void
a_truncated_header_is_refused(void **state)
{
    struct batch_header wanted = header_make(8, 100, 0);
    struct batch_header header;

    (void)state;
    assert_true(wanted.header_pages > 1);
    for (size_t size = 0; size < (size_t)wanted.header_pages * PAGE_BYTES; size += 512)
        assert_int_equal(batch_header_decode(bytes, size, uuid, secret, SEGMENT, 7, SEGMENT_PAGES,
                             &header, records, kills_out),
            KVT_E_CORRUPT);
}

static void
a_run_that_leaves_the_segment_is_refused(void **state)
{
    struct batch_header wanted = header_make(9, 10, 0);
    struct batch_header header;
    uint32_t end = 7 + wanted.total_pages;

    (void)state;
    assert_int_equal(batch_header_decode(bytes, sizeof(bytes), uuid, secret, SEGMENT, 7, end,
                         &header, records, kills_out),
        KVT_OK);
    assert_int_equal(batch_header_decode(bytes, sizeof(bytes), uuid, secret, SEGMENT, 7, end - 1,
                         &header, records, kills_out),
        KVT_E_CORRUPT);
    assert_int_equal(batch_header_decode(bytes, sizeof(bytes), uuid, secret, SEGMENT, 7, 3, &header,
                         records, kills_out),
        KVT_E_CORRUPT);
}

/* Fields that only someone with the secret could have written: still nothing may go wrong. */
static void
forged_fields_under_a_right_mac_are_refused(void **state)
{
    static const struct {
        size_t at;
        uint32_t value;
    } forged[] = {
        {6, 2},               /* Unknown flag (and half of the uuid's first bytes). */
        {28, 0},              /* Generation. */
        {36, 0},              /* Header pages: none, too few, too many. */
        {36, 1},              /* */
        {36, 85},             /* */
        {36, UINT32_MAX},     /* */
        {40, 0},              /* Total pages: below the header's, too many, overflow. */
        {40, 1},              /* */
        {40, 262145},         /* */
        {40, UINT32_MAX},     /* */
        {40, UINT32_MAX - 6}, /* */
        {44, 0},              /* Blocks: fewer than stand there, more, far more. */
        {44, 49},             /* */
        {44, 51},             /* */
        {44, 1025},           /* */
        {44, UINT32_MAX},     /* */
        {48, 2},              /* Kills alike. */
        {48, 4097},           /* */
        {48, UINT32_MAX},     /* */
        {52, 1},              /* Reserved. */
        {124, 1},             /* */
        {128, 0},             /* Size of the first record. */
        {128, 100},           /* */
        {128, 165},           /* */
        {128, UINT32_MAX},    /* */
        {132, 0},             /* Page of the first payload: in the header, outside, overflow. */
        {132, 7},             /* */
        {132, 4000},          /* */
        {132, UINT32_MAX},    /* */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(forged) / sizeof(forged[0]); i++) {
        struct batch_header header = header_make(20, 50, 3);

        assert_int_equal(decode(), KVT_OK);
        put_u32(bytes + forged[i].at, forged[i].value);
        mac_repair(header.header_pages);
        assert_int_equal(decode(), KVT_E_CORRUPT);
    }
}

/* As many as find room behind the entries, and not one more; behind the header is no memory. */
static void
kills_are_inside_the_header(void **state)
{
    struct batch_header header = header_make(20, 50, 3);
    size_t size = (size_t)header.header_pages * PAGE_BYTES;
    size_t at = 128;
    uint8_t *alone =
        mmap(NULL, size + PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(alone != MAP_FAILED);
    assert_int_equal(mprotect(alone + size, PAGE_BYTES, PROT_NONE), 0);
    for (uint32_t i = 0; i < 50; i++)
        at += 8 + get_u32(bytes + at);
    at = round_up(at, 8);
    for (uint32_t count = 3; count < 2 * size / 40; count++) {
        put_u32(bytes + 48, count);
        mac_repair(header.header_pages);
        memcpy(alone, bytes, size);
        assert_int_equal(batch_header_decode(alone, size, uuid, secret, SEGMENT, 7, SEGMENT_PAGES,
                             &header, records, kills_out),
            at + (size_t)count * 40 <= size ? KVT_OK : KVT_E_CORRUPT);
    }
    munmap(alone, size + PAGE_BYTES);
}

/* Two blocks whose records were encoded for each other's place, under a right MAC. */
static void
swapped_and_overlapping_blocks_are_refused(void **state)
{
    struct batch_header header = header_make(21, 2, 0);
    uint32_t page = blocks[1].record.extent.page;

    (void)state;
    blocks[1].record.extent.page = blocks[0].record.extent.page;
    batch_header_encode(&header, blocks, kills, secret, bytes);
    assert_int_equal(decode(), KVT_E_CORRUPT);
    blocks[1].record.extent.page = page;
    blocks[1].record.extent.generation++;
    batch_header_encode(&header, blocks, kills, secret, bytes);
    assert_int_equal(decode(), KVT_E_CORRUPT);
    blocks[1].record.extent.generation--;
    blocks[1].record.stored_length = blocks[1].record.length = 64 << 20;
    batch_header_encode(&header, blocks, kills, secret, bytes);
    assert_int_equal(decode(), KVT_E_CORRUPT);
}

/* --- Records of a later version --------------------------------------------------------------- */

/* Entry `index` says this page, and its record has this byte: its CRC and the MAC are right. */
static void
record_forge(
    const struct batch_header *header, uint32_t index, uint32_t page, size_t at, uint8_t value)
{
    size_t entry = 128;
    uint8_t place[8];
    uint8_t *record;
    uint32_t crc;

    for (uint32_t i = 0; i < index; i++)
        entry += 8 + get_u32(bytes + entry);
    put_u32(bytes + entry + 4, page);
    record = bytes + entry + 8;
    record[at] = value;
    put_u32_big(place, SEGMENT);
    put_u32_big(place + 4, page);
    crc = crc32c(0, record, 96);
    crc = crc32c(crc, record + 100, get_u32(bytes + entry) - 100);
    put_u32(record + 96, crc32c(crc, place, sizeof(place)));
    mac_repair(header->header_pages);
}

static void
a_record_of_a_later_version_hides_no_other(void **state)
{
    static const struct {
        size_t at;
        uint8_t value;
    } later[] = {{0, 2}, {1, 3}, {3, 2}, {6, 3}, {7, 4}, {30, 1}, {92, 1}};

    (void)state;
    for (uint32_t i = 0; i < 3 * sizeof(later) / sizeof(later[0]); i++) {
        struct batch_header wanted = header_make(40 + i, 3, 2);
        uint32_t forged = i % 3;
        struct batch_header header;

        record_forge(&wanted, forged, blocks[forged].record.extent.page, later[i / 3].at,
            later[i / 3].value);
        assert_int_equal(decode_at(SEGMENT, 7, &header), KVT_OK);
        assert_int_equal(header.block_count, 2);
        assert_int_equal(header.later_count, 1);
        for (uint32_t k = 0; k < 2; k++)
            record_compare(&records[k], &blocks[k + (k >= forged)].record);
        assert_memory_equal(kills_out, kills, 2 * sizeof(kills[0]));
    }
}

static void
a_record_of_a_later_version_lies_in_its_run(void **state)
{
    struct batch_header header = header_make(70, 3, 0);
    uint32_t end = header.extent.page + header.total_pages;
    uint32_t first = blocks[0].record.extent.page;

    (void)state;
    record_forge(&header, 2, end - 1, 0, 2);
    assert_int_equal(decode(), KVT_OK);
    record_forge(&header, 2, end, 0, 2);
    assert_int_equal(decode(), KVT_E_CORRUPT);
    record_forge(&header, 2, first, 0, 2);
    assert_int_equal(decode(), KVT_E_CORRUPT);
    record_forge(&header, 2, end - 1, 0, 2);
    record_forge(&header, 1, first, 0, 2);
    assert_int_equal(decode(), KVT_E_CORRUPT);
    header = header_make(71, 3, 0);
    record_forge(&header, 0, first - 1, 0, 2);
    assert_int_equal(decode(), KVT_E_CORRUPT);
}

static void
a_record_of_a_later_version_is_proved(void **state)
{
    struct batch_header header = header_make(72, 3, 0);

    (void)state;
    bytes[128 + 8] = 2;
    mac_repair(header.header_pages);
    assert_int_equal(decode(), KVT_E_CORRUPT);
}

static void
random_bytes_never_hurt(void **state)
{
    struct rng rng = {.state = 99};
    struct batch_header header;

    (void)state;
    for (uint32_t round = 0; round < 3000; round++) {
        struct batch_header made = header_make(round, 1 + round % 60, round % 50);
        size_t size = (size_t)made.header_pages * PAGE_BYTES;

        for (uint32_t i = 0; i <= round % 7; i++) {
            size_t at = 4 + rng_below(&rng, (uint32_t)(rng_below(&rng, 2) ? 124 : size - 8));

            put_u32(bytes + at, (uint32_t)rng_next(&rng) >> rng_below(&rng, 32));
        }
        /* As far as the header itself says that the MAC reaches. */
        if (batch_header_peek(bytes, &header) == KVT_OK)
            mac_repair(header.header_pages);
        (void)decode();
    }
}

/* --- Recycle headers -------------------------------------------------------------------------- */

static void
a_recycle_header_has_no_blocks_and_stands_in_front(void **state)
{
    struct batch_header header = header_make(30, 0, 3);
    struct batch_header read;

    (void)state;
    header.is_recycle = true;
    header.extent.page = 0;
    batch_header_encode(&header, NULL, kills, secret, bytes);
    assert_int_equal(get_u16(bytes + 6), 1);
    assert_int_equal(decode_at(SEGMENT, 0, &read), KVT_OK);
    assert_true(read.is_recycle);
    assert_int_equal(read.kill_count, 3);

    header.extent.page = 1;
    batch_header_encode(&header, NULL, kills, secret, bytes);
    assert_int_equal(decode_at(SEGMENT, 1, &read), KVT_E_CORRUPT);
    header.kill_count = 0;
    batch_header_encode(&header, NULL, kills, secret, bytes);
    assert_int_equal(decode_at(SEGMENT, 1, &read), KVT_OK); /* A copy. */
    assert_true(read.is_recycle);
    header.extent.page = 2;
    batch_header_encode(&header, NULL, kills, secret, bytes);
    assert_int_equal(decode_at(SEGMENT, 2, &read), KVT_E_CORRUPT);
    header = header_make(31, 1, 0);
    header.is_recycle = true;
    batch_header_encode(&header, blocks, kills, secret, bytes);
    assert_int_equal(decode(), KVT_E_CORRUPT);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_encoded_is_decoded),
        cmocka_unit_test(fields_lie_where_the_format_says),
        cmocka_unit_test(every_single_flipped_byte_is_refused),
        cmocka_unit_test(a_header_counts_only_where_it_was_written),
        cmocka_unit_test(a_header_with_another_uuid_is_known_by_its_mac),
        cmocka_unit_test(a_truncated_header_is_refused),
        cmocka_unit_test(a_run_that_leaves_the_segment_is_refused),
        cmocka_unit_test(forged_fields_under_a_right_mac_are_refused),
        cmocka_unit_test(kills_are_inside_the_header),
        cmocka_unit_test(swapped_and_overlapping_blocks_are_refused),
        cmocka_unit_test(a_record_of_a_later_version_hides_no_other),
        cmocka_unit_test(a_record_of_a_later_version_lies_in_its_run),
        cmocka_unit_test(a_record_of_a_later_version_is_proved),
        cmocka_unit_test(random_bytes_never_hurt),
        cmocka_unit_test(a_recycle_header_has_no_blocks_and_stands_in_front),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
