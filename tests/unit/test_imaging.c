/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_imaging.c - blocks whose image is being made when they are deleted, replaced, cleared or
 * abandoned: in the simulated world, at each moment; and blocks for which there is no room or no
 * memory to make one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bytes.h"
#include "full_store.h"
#include "stop_on_proof.h"

enum {
    MOMENTS = 60,
    STEPS = 180, /* Of the world, in which a block is written; events come at MOMENTS of them. */
    KEYS = 24,
    PARTS = 8,
};

/* What each put that is met is met with. */
enum event {
    EVENT_DELETE,
    EVENT_REPLACE,
    EVENT_CLEAR,
    EVENT_FLUSH,
    EVENT_COUNT,
};

struct bench {
    struct full_store *full;
    uint8_t *bytes[KEYS]; /* Of puts; kept until their stage 1. */
};

static void
numbers_fill(uint8_t *target, uint64_t key, uint64_t version)
{
    struct rng rng = {key * 1000 + version};

    for (uint32_t i = 0; i < FULL_BLOCK_BYTES; i++)
        target[i] =
            i % 2 == 0 ? (uint8_t)rng_next(&rng) : (uint8_t)(0x3C | (rng_next(&rng) & 0x81));
}

static void
codec_set(struct full_store *full, uint32_t codec)
{
    const struct kvt_namespace_options options = {.struct_size = sizeof(options), .codec = codec};

    assert_int_equal(kvt_namespace_configure(full->store, full->ns, &options), KVT_OK);
}

static void
bench_begin(struct bench *bench, uint64_t seed, uint32_t codec)
{
    bench->full = full_begin(seed, 16);
    codec_set(bench->full, codec);
    for (uint32_t i = 0; i < KEYS; i++) {
        bench->bytes[i] = malloc(FULL_BLOCK_BYTES);
        assert_non_null(bench->bytes[i]);
    }
}

/* The store must be empty by now: every slot was given back, once. */
static void
bench_end(struct bench *bench)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};

    assert_int_equal(kvt_flush(bench->full->store), KVT_OK);
    assert_int_equal(kvt_namespace_clear(bench->full->store, bench->full->ns), KVT_OK);
    (void)sim_run_for(bench->full->world, UINT64_C(100) * 1000 * 1000);
    assert_int_equal(kvt_stats_get(bench->full->store, &stats), KVT_OK);
    assert_int_equal(stats.host_used_bytes_now, 0);
    assert_int_equal(stats.host_dirty_bytes_now, 0);
    assert_int_equal(bench->full->store->imaging.bytes, 0);
    assert_int_equal(bench->full->store->imaging.count, 0);
    assert_int_equal(bench->full->store->imaging.slot_count, 0);
    full_end(bench->full);
    for (uint32_t i = 0; i < KEYS; i++)
        free(bench->bytes[i]);
}

static kvt_ticket *
put_begin_one(struct bench *bench, uint64_t key, uint64_t version, enum kvt_durability durability)
{
    struct kvt_put put = {.key = {.bytes = &key, .length = sizeof(key)},
        .source = bench->bytes[key],
        .length = FULL_BLOCK_BYTES,
        .flags = KVT_PUT_REPLACE,
        .part_count = (uint16_t)(key % 2 == 0 ? PARTS : 1)};
    kvt_ticket *ticket;

    numbers_fill(bench->bytes[key], key, version);
    assert_int_equal(
        kvt_put_submit(bench->full->store, bench->full->ns, &put, 1, durability, NULL, &ticket),
        KVT_OK);
    return ticket;
}

/* KVT_MISS, or KVT_OK and the bytes of this version. */
static enum kvt_status
block_get(struct bench *bench, uint64_t key, uint64_t version, uint32_t flags)
{
    uint8_t *wanted = malloc(FULL_BLOCK_BYTES);
    struct kvt_get get = {.key = {.bytes = &key, .length = sizeof(key)},
        .destination = bench->full->bytes,
        .capacity = FULL_BLOCK_BYTES,
        .flags = flags};
    kvt_ticket *ticket;
    enum kvt_status status;

    assert_non_null(wanted);
    assert_int_equal(
        kvt_get_submit(bench->full->store, bench->full->ns, &get, 1, NULL, &ticket), KVT_OK);
    status = full_stage_result(ticket, KVT_STAGE_DONE).status;
    numbers_fill(wanted, key, version);
    if (status == KVT_OK)
        assert_memory_equal(bench->full->bytes, wanted, FULL_BLOCK_BYTES);
    free(wanted);
    return status;
}

/* Whether some block's image is being made, or waits for its turn. */
static bool
is_imaging(const struct full_store *full)
{
    return full->store->imaging.first != NULL || full->store->imaging.count > 0;
}

static void
event_happen(struct bench *bench, enum event event, uint64_t key)
{
    struct kvt_key name = {.bytes = &key, .length = sizeof(key)};
    struct full_store *full = bench->full;
    kvt_ticket *ticket;
    enum kvt_status status;

    switch (event) {
    case EVENT_DELETE:
        assert_int_equal(kvt_delete_submit(full->store, full->ns, &name, 1, NULL, &ticket), KVT_OK);
        status = full_stage_result(ticket, KVT_STAGE_DURABLE).status;
        assert_true(status == KVT_OK || status == KVT_MISS);
        assert_int_equal(block_get(bench, key, 1, 0), KVT_MISS);
        break;
    case EVENT_REPLACE:
        status =
            full_stage_result(put_begin_one(bench, key, 2, KVT_SYNC), KVT_STAGE_DURABLE).status;
        assert_int_equal(status, KVT_OK);
        assert_int_equal(block_get(bench, key, 2, 0), KVT_OK);
        break;
    case EVENT_CLEAR:
        assert_int_equal(kvt_namespace_clear(full->store, full->ns), KVT_OK);
        assert_int_equal(block_get(bench, key, 1, 0), KVT_MISS);
        break;
    case EVENT_FLUSH:
        assert_int_equal(kvt_flush(full->store), KVT_OK);
        assert_int_equal(block_get(bench, key, 1, 0), KVT_OK);
        break;
    case EVENT_COUNT:
        break;
    }
}

static void
blocks_end_at_any_moment_of_their_image(void **state)
{
    uint32_t met_count = 0;

    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS * EVENT_COUNT; moment++) {
        struct bench bench;
        enum event event = (enum event)(moment % EVENT_COUNT);
        kvt_ticket *tickets[KEYS];

        bench_begin(&bench, moment + 1, moment / EVENT_COUNT % 3);
        for (uint64_t key = 0; key < KEYS; key++)
            tickets[key] = put_begin_one(&bench, key, 1, key % 3 == 0 ? KVT_RELAXED : KVT_SYNC);
        sim_run_steps(bench.full->world, moment / EVENT_COUNT * STEPS / MOMENTS);
        met_count += is_imaging(bench.full);
        event_happen(&bench, event, moment % KEYS);
        for (uint64_t key = 0; key < KEYS; key++) {
            enum kvt_status status = full_stage_result(tickets[key], KVT_STAGE_DURABLE).status;

            assert_true(status == KVT_OK || status == KVT_MISS);
        }
        bench_end(&bench);
    }
    assert_true(met_count > MOMENTS / 2);
}

static void
an_abort_gives_images_back(void **state)
{
    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        struct bench bench;
        kvt_ticket *tickets[KEYS];

        bench_begin(&bench, moment + 1, KVT_CODEC_BF16);
        for (uint64_t key = 0; key < KEYS; key++)
            tickets[key] = put_begin_one(&bench, key, 1, KVT_SYNC);
        sim_run_steps(bench.full->world, moment * 3);
        for (uint64_t key = 0; key < KEYS; key++)
            (void)full_stage_result(tickets[key], KVT_STAGE_DONE);
        kvt_abort(bench.full->store);
        assert_int_equal(sim_leaks(bench.full->world, NULL, 0), 0);
        full_open(bench.full, 0);
        bench_end(&bench);
    }
}

/* HOST is full of blocks that shall go: they are written all the same, as they were given. */
static void
without_room_for_an_image_blocks_are_written_raw(void **state)
{
    struct bench bench;
    struct kvt_stats stats = {.struct_size = sizeof(stats)};
    uint32_t count = 0;

    (void)state;
    bench_begin(&bench, 7, KVT_CODEC_BF16);
    for (uint32_t round = 0; round < 6; round++) {
        for (uint64_t key = 0; key < KEYS; key++) {
            (void)full_stage_result(
                put_begin_one(&bench, key, round * KEYS + key, KVT_MEMORY), KVT_STAGE_DONE)
                .status;
            count += block_get(&bench, key, round * KEYS + key, 0) == KVT_OK;
        }
    }
    assert_int_equal(count, 6 * KEYS);
    assert_int_equal(kvt_stats_get(bench.full->store, &stats), KVT_OK);
    assert_int_equal(stats.corrupt_count, 0);
    bench_end(&bench);
}

enum {
    SLOTS = 64, /* All that HOST has, at most. */
};

/* Every slot of HOST that is free. */
static uint32_t
slots_take(struct full_store *full, struct slot slots[SLOTS])
{
    uint32_t count = 0;

    while (slab_take(full->store->slab, FULL_BLOCK_BYTES, &slots[count]) == KVT_OK)
        assert_true(++count < SLOTS);
    return count;
}

/* No image has a slot that others could wait for: they are made at once, and go together. */
static void
blocks_of_parts_share_a_batch_when_there_is_no_room_for_images(void **state)
{
    struct bench bench;
    struct slot slots[SLOTS];
    struct kvt_key names[KEYS / 2];
    uint64_t keys[KEYS / 2];
    struct kvt_stats stats = {.struct_size = sizeof(stats)};
    uint64_t batch_count;
    uint32_t slot_count;
    kvt_ticket *ticket;

    (void)state;
    bench_begin(&bench, 11, KVT_CODEC_BF16);
    for (uint32_t i = 0; i < KEYS / 2; i++) {
        keys[i] = 2 * (uint64_t)i; /* Those have parts. */
        names[i] = (struct kvt_key){.bytes = &keys[i], .length = sizeof(keys[i])};
        assert_int_equal(
            full_stage_result(put_begin_one(&bench, keys[i], 1, KVT_MEMORY), KVT_STAGE_DONE).status,
            KVT_OK);
    }
    assert_int_equal(kvt_stats_get(bench.full->store, &stats), KVT_OK);
    batch_count = stats.batch_count;
    slot_count = slots_take(bench.full, slots);
    assert_int_equal(kvt_demote_submit(bench.full->store, bench.full->ns, names, KEYS / 2,
                         KVT_TIER_NVME, NULL, &ticket),
        KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, FULL_WAIT_NS), KVT_OK);
    kvt_ticket_free(ticket);
    for (uint32_t i = 0; i < slot_count; i++)
        assert_true(slab_put(bench.full->store->slab, slots[i]));
    assert_int_equal(kvt_stats_get(bench.full->store, &stats), KVT_OK);
    assert_in_range(stats.batch_count - batch_count, 1, 3);
    assert_int_equal(stats.codec_in_bytes, 0);
    for (uint32_t i = 0; i < KEYS / 2; i++)
        assert_int_equal(block_get(&bench, keys[i], 1, KVT_GET_TRANSIENT), KVT_OK);
    bench_end(&bench);
}

/* A block loses its encoded copy, stays in HOST, and is written again without a codec. */
static void
a_copy_that_was_released_is_summed_up_anew(void **state)
{
    struct bench bench;
    struct kvt_scan_entry entry;
    uint64_t cursor = 0;
    uint32_t count;

    (void)state;
    bench_begin(&bench, 9, KVT_CODEC_BF16);
    for (uint64_t key = 0; key < 2; key++) {
        assert_int_equal(
            full_stage_result(put_begin_one(&bench, key, 1, KVT_SYNC), KVT_STAGE_DURABLE).status,
            KVT_OK);
        assert_int_equal(kvt_scan(bench.full->store, &cursor, &entry, 1, &count), KVT_OK);
        assert_true(entry.is_encoded);
        assert_true(entry_nvme_release(bench.full->store, (uint32_t)cursor - 1));
    }
    codec_set(bench.full, KVT_CODEC_NONE);
    for (uint64_t key = 0; key < 2; key++) {
        struct kvt_key name = {.bytes = &key, .length = sizeof(key)};
        kvt_ticket *ticket;

        assert_int_equal(kvt_demote_submit(bench.full->store, bench.full->ns, &name, 1,
                             KVT_TIER_NVME, NULL, &ticket),
            KVT_OK);
        assert_int_equal(full_stage_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
        assert_int_equal(block_get(&bench, key, 1, KVT_GET_TRANSIENT), KVT_OK);
    }
    for (cursor = 0; kvt_scan(bench.full->store, &cursor, &entry, 1, &count) == KVT_OK;) {
        assert_false(entry.is_encoded);
        assert_int_equal(entry.tiers, KVT_TIER_NVME);
    }
    bench_end(&bench);
}

/* Through a lease, say. It has the checksum of its put, whatever is made of it later. */
static void
a_block_that_was_written_over_in_host_is_never_read(void **state)
{
    static const uint32_t codecs[] = {KVT_CODEC_NONE, KVT_CODEC_BF16};

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct kvt_stats stats = {.struct_size = sizeof(stats)};
        uint64_t key = 1; /* Without parts. */
        struct kvt_key name = {.bytes = &key, .length = sizeof(key)};
        struct bench bench;
        const void *address;
        uint64_t length;
        kvt_ticket *ticket;
        kvt_lease lease;

        bench_begin(&bench, 13, codecs[i]);
        assert_int_equal(
            full_stage_result(put_begin_one(&bench, key, 1, KVT_MEMORY), KVT_STAGE_DONE).status,
            KVT_OK);
        assert_int_equal(
            kvt_lookup(bench.full->store, bench.full->ns, &name, 1, NULL, NULL, &lease), KVT_OK);
        assert_int_equal(
            kvt_lease_address(bench.full->store, lease, 0, KVT_TIER_HOST, &address, &length),
            KVT_OK);
        ((uint8_t *)(uintptr_t)address)[1000] ^= 16;
        kvt_lease_release(bench.full->store, lease);
        assert_int_equal(kvt_demote_submit(bench.full->store, bench.full->ns, &name, 1,
                             KVT_TIER_NVME, NULL, &ticket),
            KVT_OK);
        assert_int_equal(full_stage_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
        assert_int_equal(block_get(&bench, key, 1, KVT_GET_TRANSIENT), KVT_MISS);
        assert_int_equal(kvt_stats_get(bench.full->store, &stats), KVT_OK);
        assert_int_equal(stats.corrupt_count, 1);
        assert_int_equal(stats.codec_in_bytes, 0);
        bench_end(&bench);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_end_at_any_moment_of_their_image),
        cmocka_unit_test(an_abort_gives_images_back),
        cmocka_unit_test(without_room_for_an_image_blocks_are_written_raw),
        cmocka_unit_test(blocks_of_parts_share_a_batch_when_there_is_no_room_for_images),
        cmocka_unit_test(a_copy_that_was_released_is_summed_up_anew),
        cmocka_unit_test(a_block_that_was_written_over_in_host_is_never_read),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
