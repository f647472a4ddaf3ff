/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_parts.c - blocks made of parts, raw and encoded, through the public interface: any parts of
 * them from any tier, the bytes on disk damaged one by one, other lives.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "bytes.h"
#include "kvtier/kvtier_unstable.h"
#include "store_kit.h"

enum {
    DAMAGED_PARTS = 2,
    DAMAGED_PART_BYTES = 2050, /* Raw two pages, encoded one. */
    BLOCKS_MAX = 8192,
    BATCH = 256,
#if defined(__SANITIZE_THREAD__)
    DAMAGED_CODEC_FIRST = KVT_CODEC_BF16, /* It has workers encode and decode. */
#else
    DAMAGED_CODEC_FIRST = KVT_CODEC_NONE,
#endif
};

struct bench {
    char path[KIT_PATH_BYTES];
    struct kvt_options options;
    kvt_store *store;
    kvt_namespace ns;
    uint32_t codec;
};

static void
bench_open(struct bench *bench)
{
    const struct kvt_namespace_options options = {
        .struct_size = sizeof(options), .codec = bench->codec};

    assert_int_equal(kvt_open(bench->path, &bench->options, &bench->store), KVT_OK);
    assert_int_equal(kvt_namespace_open(bench->store, "parts", "", 0, &bench->ns), KVT_OK);
    assert_int_equal(kvt_namespace_configure(bench->store, bench->ns, &options), KVT_OK);
}

static void
bench_begin(struct bench *bench, uint32_t codec)
{
    memset(bench, 0, sizeof(*bench));
    kit_dir_make(bench->path);
    bench->options = kit_options();
    bench->options.host_capacity_bytes = 16 << 20;
    bench->options.nvme_capacity_bytes = 192 << 20;
    bench->codec = codec;
    bench_open(bench);
}

static void
bench_end(struct bench *bench)
{
    assert_int_equal(kvt_close(bench->store), KVT_OK);
    kit_dir_remove(bench->path);
}

static void
bench_again(struct bench *bench, uint32_t flags)
{
    assert_int_equal(kvt_close(bench->store), KVT_OK);
    bench->options.flags = flags;
    bench_open(bench);
}

static struct kvt_stats
bench_stats(struct bench *bench)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};

    assert_int_equal(kvt_stats_get(bench->store, &stats), KVT_OK);
    return stats;
}

/* What looks like 16-bit numbers of much the same size, another for each key. */
static void
numbers_fill(uint8_t *target, uint64_t length, uint64_t key)
{
    struct rng rng = {key + 99};

    for (uint64_t i = 0; i < length; i++)
        target[i] =
            i % 2 == 0 ? (uint8_t)rng_next(&rng) : (uint8_t)(0x3C | (rng_next(&rng) & 0x81));
}

static enum kvt_status
parts_put(struct bench *bench, uint64_t key, uint64_t length, uint32_t part_count,
    enum kvt_durability durability)
{
    uint32_t stage = durability == KVT_MEMORY ? KVT_STAGE_DONE : KVT_STAGE_DURABLE;
    uint8_t *bytes = malloc(length);
    struct kvt_put put = {.key = {.bytes = &key, .length = sizeof(key)},
        .source = bytes,
        .length = length,
        .part_count = (uint16_t)part_count};
    struct kvt_result result = {0};
    kvt_ticket *ticket;

    assert_non_null(bytes);
    numbers_fill(bytes, length, key);
    assert_int_equal(
        kvt_put_submit(bench->store, bench->ns, &put, 1, durability, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, stage, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, stage, &result, 1), KVT_OK);
    kvt_ticket_free(ticket);
    free(bytes);
    return result.status;
}

/* The parts, or a miss; anything else fails the test, and so do bytes that are not theirs. */
static struct kvt_result
parts_get(struct bench *bench, uint64_t key, uint64_t length, uint32_t part_count, uint32_t first,
    uint32_t count)
{
    uint8_t *bytes = malloc(length + 1), *wanted = malloc(length);
    struct kvt_get get = {.key = {.bytes = &key, .length = sizeof(key)},
        .destination = bytes,
        .capacity = length,
        .part_first = (uint16_t)first,
        .part_count = (uint16_t)count};
    uint64_t part_bytes = length / part_count;
    struct kvt_result result = {0};
    kvt_ticket *ticket;

    assert_true(bytes != NULL && wanted != NULL);
    numbers_fill(wanted, length, key);
    memset(bytes, 0xA5, length + 1);
    assert_int_equal(kvt_get_submit(bench->store, bench->ns, &get, 1, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DONE, &result, 1), KVT_OK);
    kvt_ticket_free(ticket);
    if (result.status == KVT_OK) {
        assert_int_equal(result.length, count == 0 ? length : count * part_bytes);
        assert_memory_equal(bytes, wanted + first * part_bytes, result.length);
    } else {
        result.length = 0;
    }
    for (uint64_t i = result.length; i < length + 1; i++)
        assert_int_equal(bytes[i], 0xA5);
    free(bytes);
    free(wanted);
    return result;
}

/* In which tiers the block is. */
static uint32_t
tiers_of(struct bench *bench, uint64_t key)
{
    struct kvt_key name = {.bytes = &key, .length = sizeof(key)};
    uint8_t tiers = 0;

    assert_int_equal(kvt_lookup(bench->store, bench->ns, &name, 1, &tiers, NULL, NULL), KVT_OK);
    return tiers;
}

static struct kvt_scan_entry
entry_of(struct bench *bench, uint64_t key)
{
    struct kvt_scan_entry entry;
    uint64_t cursor = 0;
    uint32_t count;

    while (kvt_scan(bench->store, &cursor, &entry, 1, &count) == KVT_OK) {
        if (memcmp(entry.key, &key, sizeof(key)) == 0)
            return entry;
    }
    fail_msg("key %u is not there", (unsigned)key);
    return entry;
}

/* --- Any parts, from any tier ----------------------------------------------------------------- */

static const uint32_t part_counts[] = {1, 2, 3, 7, 64};
static const uint32_t part_sizes[] = {1, 63, 700, 1024};

static uint64_t
length_of(uint64_t key)
{
    return (uint64_t)part_counts[key % 5] * part_sizes[key / 5];
}

/* Every first and last part of small blocks, some of those with many. */
static void
ranges_read(struct bench *bench, uint64_t key, uint32_t tier)
{
    uint32_t parts = part_counts[key % 5];
    uint32_t step = parts > 8 ? 9 : 1;

    for (uint32_t first = 0; first < parts; first += step) {
        for (uint32_t count = 1; first + count <= parts; count += step) {
            struct kvt_result result = parts_get(bench, key, length_of(key), parts, first, count);

            /* All of them is the whole block, which stays in HOST. */
            if (count == parts)
                continue;
            assert_int_equal(result.status, KVT_OK);
            assert_int_equal(result.tier, tier);
        }
    }
}

static void
any_parts_come_from_host_and_from_nvme(void **state)
{
    (void)state;
    for (uint32_t codec = KVT_CODEC_NONE; codec <= KVT_CODEC_FP16; codec++) {
        struct bench bench;
        uint64_t part_count = 0;

        bench_begin(&bench, codec);
        for (uint64_t key = 0; key < 20; key++)
            assert_int_equal(
                parts_put(&bench, key, length_of(key), part_counts[key % 5], KVT_SYNC), KVT_OK);
        for (uint64_t key = 0; key < 20; key++)
            ranges_read(&bench, key, KVT_TIER_HOST);
        part_count = bench_stats(&bench).get_part_count;
        assert_true(part_count > 100);
        bench_again(&bench, 0);
        for (uint64_t key = 0; key < 20; key++) {
            if (part_counts[key % 5] == 1)
                continue;
            /* A first read of some parts leaves no copy; a read of the block does. */
            assert_int_equal(
                parts_get(&bench, key, length_of(key), part_counts[key % 5], 1, 1).tier,
                KVT_TIER_NVME);
            assert_int_equal(tiers_of(&bench, key), KVT_TIER_NVME);
            assert_int_equal(
                parts_get(&bench, key, length_of(key), part_counts[key % 5], 0, 0).status, KVT_OK);
            (void)bench_stats(&bench); /* The loop is past the answer. */
            assert_int_equal(tiers_of(&bench, key), KVT_TIER_NVME | KVT_TIER_HOST);
            ranges_read(&bench, key, KVT_TIER_HOST);
        }
        assert_int_equal(bench_stats(&bench).corrupt_count, 0);
        assert_true((bench_stats(&bench).codec_decode_bytes > 0) == (codec != KVT_CODEC_NONE));
        bench_end(&bench);
    }
}

static void
every_range_is_read_from_nvme(void **state)
{
    (void)state;
    for (uint32_t codec = KVT_CODEC_NONE; codec <= KVT_CODEC_FP16; codec++) {
        struct bench bench;
        uint64_t length = (uint64_t)9 * 5000;

        bench_begin(&bench, codec);
        assert_int_equal(parts_put(&bench, 1, length, 9, KVT_SYNC), KVT_OK);
        bench_again(&bench, 0);
        for (uint32_t first = 0; first < 9; first++) {
            for (uint32_t count = 1; first + count <= 9 && count < 9; count++) {
                struct kvt_result result = parts_get(&bench, 1, length, 9, first, count);

                assert_int_equal(result.status, KVT_OK);
                assert_int_equal(result.tier, KVT_TIER_NVME);
            }
        }
        bench_end(&bench);
    }
}

static void
parts_that_are_not_there_are_refused(void **state)
{
    struct bench bench;
    struct kvt_result result;
    uint64_t key = 1;
    struct kvt_put put = {.key = {.bytes = &key, .length = sizeof(key)},
        .source = &key,
        .length = sizeof(key),
        .part_count = 3};
    struct kvt_get get = {.key = put.key, .destination = &key, .capacity = 8, .part_first = 1};
    kvt_ticket *ticket;

    (void)state;
    bench_begin(&bench, KVT_CODEC_NONE);
    assert_int_equal(parts_put(&bench, 1, 3000, 3, KVT_SYNC), KVT_OK);
    for (uint32_t life = 0; life < 2; life++) {
        result = parts_get(&bench, 1, 3000, 3, 3, 1);
        assert_int_equal(result.status, KVT_E_INVAL);
        assert_int_equal(parts_get(&bench, 1, 3000, 3, 1, 3).status, KVT_E_INVAL);
        assert_int_equal(parts_get(&bench, 1, 3000, 3, 65535, 65535).status, KVT_E_INVAL);
        assert_int_equal(parts_get(&bench, 1, 3000, 3, 2, 1).status, KVT_OK);
        bench_again(&bench, 0);
    }
    refused(kvt_put_submit(bench.store, bench.ns, &put, 1, KVT_MEMORY, NULL, &ticket), KVT_E_INVAL,
        "part_count");
    put.part_count = 65;
    refused(kvt_put_submit(bench.store, bench.ns, &put, 1, KVT_MEMORY, NULL, &ticket), KVT_E_INVAL,
        "part_count");
    refused(
        kvt_get_submit(bench.store, bench.ns, &get, 1, NULL, &ticket), KVT_E_INVAL, "part_first");
    bench_end(&bench);
}

static void
a_namespace_is_configured_with_what_is_known(void **state)
{
    struct kvt_namespace_options options = {.struct_size = sizeof(options)};
    struct bench bench;

    (void)state;
    bench_begin(&bench, KVT_CODEC_NONE);
    refused(kvt_namespace_configure(bench.store, bench.ns, NULL), KVT_E_INVAL, "options");
    options.codec = KVT_CODEC_FP16 + 1;
    refused(kvt_namespace_configure(bench.store, bench.ns, &options), KVT_E_INVAL, "codec");
    options.codec = KVT_CODEC_BF16;
    options.reserved1 = 1;
    refused(kvt_namespace_configure(bench.store, bench.ns, &options), KVT_E_INVAL, "reserved");
    options.reserved1 = 0;
    options.struct_size--;
    refused(kvt_namespace_configure(bench.store, bench.ns, &options), KVT_E_INVAL, "struct_size");
    options.struct_size++;
    refused(kvt_namespace_configure(bench.store, (kvt_namespace){7}, &options), KVT_E_INVAL,
        "namespace 7");
    bench_end(&bench);
}

/* --- Other lives ------------------------------------------------------------------------------ */

static void
a_rebuilt_index_knows_how_blocks_are_stored(void **state)
{
    struct bench bench;
    struct kvt_scan_entry before[20];
    struct kvt_check_report report;

    (void)state;
    bench_begin(&bench, KVT_CODEC_BF16);
    for (uint64_t key = 0; key < 20; key++) {
        assert_int_equal(
            parts_put(&bench, key, length_of(key), part_counts[key % 5], KVT_SYNC), KVT_OK);
        before[key] = entry_of(&bench, key);
        assert_int_equal(before[key].part_count, part_counts[key % 5]);
        assert_true(before[key].stored_length > 0);
    }
    assert_true(before[19].is_encoded && before[19].stored_length < before[19].length);
    assert_false(before[0].is_encoded);
    bench.codec = KVT_CODEC_NONE;
    bench_again(&bench, KVT_OPEN_REBUILD);
    assert_int_equal(bench_stats(&bench).recover_rebuilt_count, 1);
    for (uint64_t key = 0; key < 20; key++) {
        struct kvt_scan_entry entry = entry_of(&bench, key);

        assert_int_equal(entry.part_count, before[key].part_count);
        assert_int_equal(entry.stored_length, before[key].stored_length);
        assert_int_equal(entry.is_encoded, before[key].is_encoded);
        assert_int_equal(
            parts_get(&bench, key, length_of(key), part_counts[key % 5], 0, 0).status, KVT_OK);
    }
    assert_int_equal(kvt_close(bench.store), KVT_OK);
    report.struct_size = sizeof(report);
    assert_int_equal(kvt_check(bench.path, NULL, &report), KVT_OK);
    assert_int_equal(report.block_count, 20);
    assert_int_equal(report.damaged_count, 0);
    bench.options.flags = 0;
    bench_open(&bench);
    bench_end(&bench);
}

/* --- Damage ----------------------------------------------------------------------------------- */

static uint64_t
damaged_length(void)
{
    return (uint64_t)DAMAGED_PARTS * DAMAGED_PART_BYTES;
}

static void
blocks_put(struct bench *bench, uint32_t count)
{
    uint64_t length = damaged_length();
    uint8_t *bytes = malloc(length * BATCH);
    uint64_t keys[BATCH];
    struct kvt_put puts[BATCH];
    kvt_ticket *ticket;

    assert_non_null(bytes);
    for (uint32_t first = 0; first < count; first += BATCH) {
        uint32_t size = count - first < BATCH ? count - first : BATCH;

        for (uint32_t i = 0; i < size; i++) {
            keys[i] = first + i;
            numbers_fill(bytes + i * length, length, keys[i]);
            puts[i] = (struct kvt_put){.key = {.bytes = &keys[i], .length = sizeof(keys[i])},
                .source = bytes + i * length,
                .length = length,
                .part_count = DAMAGED_PARTS};
        }
        assert_int_equal(
            kvt_put_submit(bench->store, bench->ns, puts, size, KVT_SYNC, NULL, &ticket), KVT_OK);
        assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, KVT_FOREVER), KVT_OK);
        kvt_ticket_free(ticket);
    }
    free(bytes);
}

/* Change byte `at` of the key's stored bytes; false: there are not so many. */
static bool
stored_damage(struct bench *bench, const struct kvt_scan_entry *entry, uint32_t at)
{
    char path[KIT_PATH_BYTES + 16];
    off_t place = (off_t)(((uint64_t)entry->segment * 256 + entry->page) * PAGE_BYTES + at);
    uint8_t byte;
    int file;

    if (at >= entry->stored_length)
        return false;
    (void)snprintf(path, sizeof(path), "%s/data/data.00", bench->path);
    file = open(path, O_RDWR | O_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(pread(file, &byte, 1, place), 1);
    byte ^= (uint8_t)(1u << at % 8);
    assert_int_equal(pwrite(file, &byte, 1, place), 1);
    assert_int_equal(close(file), 0);
    return true;
}

/* One block for each byte that can be damaged. Returns how many were. */
static uint32_t
damage_all(struct bench *bench)
{
    struct kvt_scan_entry *entries = calloc(BLOCKS_MAX, sizeof(*entries));
    uint32_t count = 0, damaged_count = 0;
    uint64_t cursor = 0;

    assert_non_null(entries);
    assert_int_equal(kvt_scan(bench->store, &cursor, entries, BLOCKS_MAX, &count), KVT_OK);
    assert_int_equal(kvt_close(bench->store), KVT_OK);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t key;

        memcpy(&key, entries[i].key, sizeof(key));
        damaged_count += stored_damage(bench, &entries[i], (uint32_t)key);
    }
    free(entries);
    /* Nothing is reclaimed meanwhile, which would find damage too. */
    bench->options.flags = KVT_OPEN_READ_ONLY;
    bench_open(bench);
    return damaged_count;
}

static void
every_damaged_byte_is_a_miss_of_what_it_is_in(void **state)
{
    (void)state;
    for (uint32_t codec = DAMAGED_CODEC_FIRST; codec <= KVT_CODEC_BF16; codec++) {
        for (uint32_t mode = 0; mode < 2; mode++) {
            struct bench bench;
            uint32_t count = (uint32_t)damaged_length() + DAMAGED_PARTS * 24;
            uint32_t damaged_count, miss_count = 0;

            bench_begin(&bench, codec);
            blocks_put(&bench, count);
            assert_int_equal(bench_stats(&bench).durable_count, count);
            damaged_count = damage_all(&bench);
            assert_true(damaged_count > damaged_length() / 2 && damaged_count <= count);
            for (uint64_t key = 0; key < count; key++) {
                /* Bytes that are wrong fail the test in there. */
                struct kvt_result result = parts_get(&bench, key, damaged_length(), DAMAGED_PARTS,
                    mode == 0 ? 0 : (uint32_t)key % 2, mode == 0 ? 0 : 1);

                assert_true(result.status == KVT_OK || result.status == KVT_MISS);
                miss_count += result.status == KVT_MISS;
                if (result.status == KVT_MISS)
                    assert_int_equal(tiers_of(&bench, key), 0);
            }
            if (mode == 0)
                assert_int_equal(miss_count, damaged_count);
            else
                assert_true(miss_count > damaged_count / 4 && miss_count < damaged_count);
            assert_int_equal(bench_stats(&bench).corrupt_count, miss_count);
            bench_end(&bench);
        }
    }
}

/* Every slot of HOST is leased: only what needs none can be read. */
static kvt_lease
host_lease_all(struct bench *bench)
{
    static uint64_t keys[BLOCKS_MAX];
    static struct kvt_key names[BLOCKS_MAX];
    uint32_t count = (uint32_t)(bench->options.host_capacity_bytes / KIT_BLOCK_BYTES_MAX);
    kvt_lease lease;

    for (uint32_t i = 0; i < count; i++) {
        keys[i] = 1000 + i;
        names[i] = (struct kvt_key){.bytes = &keys[i], .length = sizeof(keys[i])};
        assert_int_equal(parts_put(bench, keys[i], KIT_BLOCK_BYTES_MAX, 1, KVT_MEMORY), KVT_OK);
    }
    assert_int_equal(kvt_lookup(bench->store, bench->ns, names, count, NULL, NULL, &lease), KVT_OK);
    return lease;
}

static struct kvt_result
transient_get(struct bench *bench, uint64_t key, uint8_t *memory, uint64_t capacity)
{
    struct kvt_get get = {.key = {.bytes = &key, .length = sizeof(key)},
        .destination = memory,
        .capacity = capacity,
        .flags = KVT_GET_TRANSIENT};
    struct kvt_result result;
    kvt_ticket *ticket;

    assert_int_equal(kvt_get_submit(bench->store, bench->ns, &get, 1, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DONE, &result, 1), KVT_OK);
    kvt_ticket_free(ticket);
    return result;
}

static void
what_goes_straight_to_its_destination_ends_with_it(void **state)
{
    static const uint64_t lengths[] = {1, 4095, 4096, 4097, 20000, 65535, 65536};
    enum {
        COUNT = sizeof(lengths) / sizeof(lengths[0]),
        ROOM = KIT_BLOCK_BYTES_MAX + 2 * PAGE_BYTES
    };
    uint8_t *memory = aligned_alloc(PAGE_BYTES, ROOM), *wanted = malloc(ROOM);
    struct bench bench;
    kvt_lease lease;

    (void)state;
    assert_true(memory != NULL && wanted != NULL);
    bench_begin(&bench, KVT_CODEC_NONE);
    for (uint64_t i = 0; i < COUNT; i++)
        assert_int_equal(parts_put(&bench, i, lengths[i], 1, KVT_SYNC), KVT_OK);
    bench.options.host_high_percent = bench.options.host_low_percent = 100; /* Stays full. */
    bench_again(&bench, 0);
    lease = host_lease_all(&bench);
    for (uint64_t i = 0; i < COUNT; i++) {
        for (uint64_t more = 0; more < 3; more++) { /* Bytes of room behind the block. */
            uint64_t capacity = lengths[i] + (more < 2 ? more : PAGE_BYTES);
            struct kvt_result result;

            memset(memory, 0xA5, ROOM);
            numbers_fill(wanted, lengths[i], i);
            result = transient_get(&bench, i, memory, capacity);
            assert_int_equal(result.status, KVT_OK);
            assert_int_equal(result.length, lengths[i]);
            assert_memory_equal(memory, wanted, lengths[i]);
            for (uint64_t at = capacity; at < ROOM; at++)
                assert_int_equal(memory[at], 0xA5);
        }
    }
    /* HOST had no slot: another destination needs one. */
    assert_int_equal(transient_get(&bench, 4, memory + 1, 20000).status, KVT_E_NOSPC);
    kvt_lease_release(bench.store, lease);
    bench_end(&bench);
    free(memory);
    free(wanted);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_parts_come_from_host_and_from_nvme),
        cmocka_unit_test(every_range_is_read_from_nvme),
        cmocka_unit_test(parts_that_are_not_there_are_refused),
        cmocka_unit_test(a_namespace_is_configured_with_what_is_known),
        cmocka_unit_test(a_rebuilt_index_knows_how_blocks_are_stored),
        cmocka_unit_test(every_damaged_byte_is_a_miss_of_what_it_is_in),
        cmocka_unit_test(what_goes_straight_to_its_destination_ends_with_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
