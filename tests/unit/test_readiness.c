/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_readiness.c - gets whose parts come one after the other, and streams of the caller that wait
 * for copies which were queued.
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "hbm_kit.h"
#include "kvtier/kvtier_unstable.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"

enum {
    PARTS = 8,
    BLOCK_BYTES = HBM_BLOCK_BYTES, /* Parts of 2500 bytes. */
    PART_BYTES = BLOCK_BYTES / PARTS,
    COUNT = 12, /* Blocks of a submission. */
    POISON = 0x5C,
};

/* --- Blocks and gets -------------------------------------------------------------------------- */

static void
put_parts(kvt_store *store, kvt_namespace ns, uint64_t number, enum kvt_durability durability)
{
    uint8_t bytes[BLOCK_BYTES];
    struct payload_key name;
    struct kvt_put put = {.source = bytes, .length = BLOCK_BYTES, .part_count = PARTS};
    kvt_ticket *ticket;

    payload_key_make(&name, number);
    payload_fill(bytes, sizeof(bytes), number, 1);
    put.key = name.key;
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, durability, NULL, &ticket), KVT_OK);
    assert_int_equal(
        kvt_ticket_wait(ticket, durability == KVT_MEMORY ? 1 : 2, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
}

/* Gets of COUNT blocks, as the fields say. */
struct batch {
    struct payload_key names[COUNT];
    struct kvt_get gets[COUNT];
    uint8_t bytes[COUNT + 1][BLOCK_BYTES]; /* The last one is nobody's. */
    struct kvt_result results[COUNT];
    uint32_t first, count; /* Parts. */
    kvt_ticket *ticket;
};

static void
batch_init(struct batch *batch, uint32_t first, uint32_t count, bool by_device)
{
    memset(batch, 0, sizeof(*batch));
    memset(batch->bytes, POISON, sizeof(batch->bytes));
    batch->first = first;
    batch->count = count;
    for (uint32_t i = 0; i < COUNT; i++) {
        payload_key_make(&batch->names[i], i);
        batch->gets[i] = (struct kvt_get){.key = batch->names[i].key,
            .destination = by_device ? hbm_pool_at(i) : batch->bytes[i],
            .capacity = count * PART_BYTES,
            .flags = KVT_GET_BY_PART,
            .region = {by_device ? hbm.region.id : 0},
            .part_first = (uint16_t)first,
            .part_count = (uint16_t)count};
    }
}

static void
batch_submit(struct batch *batch, kvt_store *store, kvt_namespace ns)
{
    assert_int_equal(kvt_get_submit(store, ns, batch->gets, COUNT, NULL, &batch->ticket), KVT_OK);
}

static void
batch_finish(struct batch *batch)
{
    assert_int_equal(kvt_ticket_wait(batch->ticket, 1, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_ticket_results(batch->ticket, 1, batch->results, COUNT), KVT_OK);
    kvt_ticket_free(batch->ticket);
}

/* Part `part` of block `number` lies at `bytes`. */
static bool
part_is_right(const uint8_t *bytes, uint64_t number, uint32_t part)
{
    uint8_t whole[BLOCK_BYTES];

    payload_fill(whole, sizeof(whole), number, 1);
    return memcmp(bytes, whole + part * PART_BYTES, PART_BYTES) == 0;
}

/* --- Part after part -------------------------------------------------------------------------- */

/* From HOST, HBM and NVMe; to the host and to the device. */
static void
each_part_is_in_place_when_it_is_ready(void **state)
{
    static struct batch batch;

    (void)state;
    for (uint32_t i = 0; i < COUNT; i++) {
        put_parts(hbm.store, hbm.ns, i, KVT_SYNC);
        if (i % 3 == 1)
            assert_int_equal(hbm_prefetch(i, KVT_TIER_HBM, 0), KVT_OK);
        if (i % 3 == 2)
            assert_int_equal(hbm_demote(i, KVT_TIER_NVME), KVT_OK);
    }
    for (uint32_t round = 0; round < 4; round++) {
        bool by_device = round % 2 != 0;
        uint32_t first = round < 2 ? 0 : 3, count = round < 2 ? PARTS : 4;

        batch_init(&batch, first, count, by_device);
        batch_submit(&batch, hbm.store, hbm.ns);
        for (uint32_t part = first; part < first + count; part++) {
            assert_int_equal(kvt_ticket_part_wait(batch.ticket, part, KVT_FOREVER), KVT_OK);
            for (uint32_t i = 0; i < COUNT; i++) {
                uint8_t *at = batch.bytes[i] + (part - first) * PART_BYTES;

                if (by_device)
                    assert_int_equal(kvt_device_read(hbm.store, 0, at,
                                         hbm_pool_at(i) + (part - first) * PART_BYTES, PART_BYTES),
                        KVT_OK);
                assert_true(part_is_right(at, i, part));
            }
        }
        batch_finish(&batch);
        for (uint32_t i = 0; i < COUNT; i++) {
            assert_int_equal(batch.results[i].status, KVT_OK);
            assert_int_equal(batch.results[i].length, count * PART_BYTES);
        }
        if (!by_device && count < PARTS)
            assert_int_equal(batch.bytes[0][count * PART_BYTES], POISON);
    }
}

/* The loop begins a ticket's operations in their order, and devices copy in order. A part is told
 * when the last block has it. */
static void
first_parts_of_all_blocks_come_before_later_ones(void **state)
{
    static struct batch batch;
    static struct sim_store sim;
    struct kvt_options options = kit_options();
    struct payload_key name;
    kvt_ticket *ticket;
    kvt_namespace ns;

    (void)state;
    options.nvme_capacity_bytes = 32 << 20;
    sim_store_open(&sim, &options);
    assert_int_equal(kvt_namespace_open(sim.store, "order", "", 0, &ns), KVT_OK);
    for (uint32_t i = 0; i < COUNT; i++)
        put_parts(sim.store, ns, i, KVT_SYNC);
    payload_key_make(&name, COUNT - 1);
    assert_int_equal(
        kvt_demote_submit(sim.store, ns, &name.key, 1, KVT_TIER_NVME, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, 1, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
    batch_init(&batch, 2, 5, false);
    batch_submit(&batch, sim.store, ns);
    /* Nothing happens between two calls of a simulated store. */
    assert_int_equal(kvt_ticket_part_wait(batch.ticket, 2, 0), KVT_LATE);
    assert_int_equal(batch.ticket->count, 5 * COUNT);
    for (uint32_t i = 0; i < 5 * COUNT; i++) {
        assert_int_equal(batch.ticket->ops[i].part_first, 2 + i / COUNT);
        assert_ptr_equal(batch.ticket->ops[i].destination,
            batch.bytes[i % COUNT] + (size_t)(i / COUNT) * PART_BYTES);
    }
    /* The last block comes from a file, after the others. */
    while (kvt_ticket_part_wait(batch.ticket, 2, 0) == KVT_LATE)
        sim_run_steps(sim.world, 1);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(part_is_right(batch.bytes[i], i, 2));
    batch_finish(&batch);
    sim_store_close(&sim);
}

static void
a_block_that_is_not_there_spoils_no_other(void **state)
{
    static struct batch batch;

    (void)state;
    for (uint32_t i = 1; i < COUNT; i++)
        put_parts(hbm.store, hbm.ns, i, KVT_MEMORY);
    batch_init(&batch, 0, PARTS, true);
    batch_submit(&batch, hbm.store, hbm.ns);
    for (uint32_t part = 0; part < PARTS; part++)
        assert_int_equal(kvt_ticket_part_wait(batch.ticket, part, KVT_FOREVER), KVT_MISS);
    batch_finish(&batch);
    assert_int_equal(batch.results[0].status, KVT_MISS);
    for (uint32_t i = 1; i < COUNT; i++)
        assert_int_equal(batch.results[i].status, KVT_OK);
}

static void
parts_of_another_length_are_refused_one_by_one(void **state)
{
    static struct batch batch;

    (void)state;
    for (uint32_t i = 0; i < COUNT; i++)
        put_parts(hbm.store, hbm.ns, i, KVT_MEMORY);
    batch_init(&batch, 0, PARTS, false);
    batch.gets[3].capacity = BLOCK_BYTES - PARTS;
    batch.gets[COUNT - 1].capacity = BLOCK_BYTES + PARTS;
    batch_submit(&batch, hbm.store, hbm.ns);
    refused(kvt_ticket_part_wait(batch.ticket, 0, KVT_FOREVER), KVT_E_INVAL, "results");
    batch_finish(&batch);
    for (uint32_t i = 0; i < COUNT; i++) {
        bool fits = i != 3 && i != COUNT - 1;

        assert_int_equal(batch.results[i].status, fits ? KVT_OK : KVT_E_INVAL);
        assert_int_equal(batch.results[i].length, BLOCK_BYTES); /* The true one. */
        if (!fits)
            assert_int_equal(batch.bytes[i][0], POISON);
    }
}

/* --- Streams ---------------------------------------------------------------------------------- */

struct kernel {
    uint8_t seen[COUNT][BLOCK_BYTES];
    uint32_t at;
};

static void
kernel_read(void *context, void *memory)
{
    struct kernel *kernel = context;

    memcpy(kernel->seen[kernel->at++], memory, BLOCK_BYTES);
}

/* Kernels of the stream read all destinations; the host never waits for the copies. */
static void
a_stream_that_waits_reads_what_was_copied(void **state)
{
    static struct batch batch;
    static struct kernel kernel;
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    void *stream;

    (void)state;
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        put_parts(hbm.store, hbm.ns, i, KVT_SYNC);
        if (i % 2 == 0)
            assert_int_equal(hbm_prefetch(i, KVT_TIER_HBM, 0), KVT_OK);
    }
    for (uint32_t round = 0; round < 20; round++) {
        bool is_by_part = round % 2 != 0;
        uint32_t part = is_by_part ? PARTS - 1 : KVT_PART_ALL;
        enum kvt_status status;

        batch_init(&batch, 0, PARTS, true);
        for (uint32_t i = 0; i < COUNT && !is_by_part; i++) {
            batch.gets[i].flags = 0;
            batch.gets[i].part_count = 0;
        }
        batch_submit(&batch, hbm.store, hbm.ns);
        /* Parts are queued in order: those of the last are the last. */
        while ((status = kvt_ticket_stream_wait(batch.ticket, part, 0, stream)) == KVT_NOT_READY)
            sched_yield();
        assert_int_equal(status, KVT_OK);
        for (uint32_t i = 0; is_by_part && i < PARTS - 1; i++) {
            while ((status = kvt_ticket_stream_wait(batch.ticket, i, 0, stream)) == KVT_NOT_READY)
                sched_yield();
            assert_int_equal(status, KVT_OK);
        }
        kernel.at = 0;
        for (uint32_t i = 0; i < COUNT; i++)
            assert_int_equal(
                device_host_launch(device, stream, kernel_read, &kernel, hbm_pool_at(i)), KVT_OK);
        hbm_stream_finish(device, stream);
        for (uint32_t i = 0; i < COUNT; i++) {
            uint64_t version;

            assert_true(payload_is_right(kernel.seen[i], BLOCK_BYTES, i, &version));
        }
        batch_finish(&batch);
        assert_int_equal(
            kvt_device_write(hbm.store, 0, hbm_pool_at(0), batch.bytes, sizeof(batch.bytes)),
            KVT_OK);
    }
    device_host_stream_destroy(device, stream);
}

/* Each block by a copy of its own; they are over before a stream asks. */
static void
a_stream_waits_for_memory_that_is_spread(void **state)
{
    static struct batch batch;
    static struct kernel kernel;
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    struct kvt_run run = {.address = hbm_pool_at(0),
        .region = hbm.region,
        .piece_count = 2,
        .piece_bytes = BLOCK_BYTES / 2,
        .piece_stride = BLOCK_BYTES / 2,
        .slot_stride = (uint64_t)(hbm_pool_at(1) - hbm_pool_at(0))};
    struct kvt_layout_options about = {
        .struct_size = sizeof(about), .run_count = 1, .runs = &run, .slot_count = COUNT};
    kvt_layout layout;
    uint64_t version;
    void *stream;

    (void)state;
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    assert_int_equal(kvt_layout_register(hbm.store, &about, &layout), KVT_OK);
    batch_init(&batch, 0, PARTS, true);
    for (uint32_t i = 0; i < COUNT; i++) {
        put_parts(hbm.store, hbm.ns, i, KVT_MEMORY);
        batch.gets[i] = (struct kvt_get){.key = batch.names[i].key, .layout = layout, .slot = i};
    }
    batch_submit(&batch, hbm.store, hbm.ns);
    assert_int_equal(kvt_ticket_wait(batch.ticket, 1, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_ticket_stream_wait(batch.ticket, KVT_PART_ALL, 0, stream), KVT_OK);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(
            device_host_launch(device, stream, kernel_read, &kernel, hbm_pool_at(i)), KVT_OK);
    hbm_stream_finish(device, stream);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(payload_is_right(kernel.seen[i], BLOCK_BYTES, i, &version));
    batch_finish(&batch);
    assert_int_equal(kvt_layout_unregister(hbm.store, layout), KVT_OK);
    device_host_stream_destroy(device, stream);
}

static void
what_waits_for_an_event_is_not_ready(void **state)
{
    static struct batch batch;
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    _Atomic bool may_go = false;
    struct kvt_submit submit = {0};
    void *stream, *event;

    (void)state;
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    assert_int_equal(device->ops->event_create(device, &event), KVT_OK);
    for (uint32_t i = 0; i < COUNT; i++)
        put_parts(hbm.store, hbm.ns, i, KVT_MEMORY);
    batch_init(&batch, 0, PARTS, true);
    hbm_stream_hold(device, stream, hbm_pool_at(COUNT), &may_go);
    assert_int_equal(device->ops->event_record(device, event, stream), KVT_OK);
    submit.wait_event = event;
    assert_int_equal(
        kvt_get_submit(hbm.store, hbm.ns, batch.gets, COUNT, &submit, &batch.ticket), KVT_OK);
    assert_int_equal(kvt_ticket_stream_wait(batch.ticket, 0, 0, stream), KVT_NOT_READY);
    assert_int_equal(kvt_ticket_part_wait(batch.ticket, 0, 1000000), KVT_LATE);
    atomic_store(&may_go, true);
    assert_int_equal(kvt_ticket_part_wait(batch.ticket, 0, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_ticket_stream_wait(batch.ticket, 0, 0, stream), KVT_OK);
    batch_finish(&batch);
    hbm_stream_finish(device, stream);
    device->ops->event_destroy(device, event);
    device_host_stream_destroy(device, stream);
}

static void
a_miss_a_cancel_and_a_lost_device_are_told(void **state)
{
    static struct batch batch;
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    enum kvt_status status;
    void *stream;

    (void)state;
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    for (uint32_t i = 1; i < COUNT; i++)
        put_parts(hbm.store, hbm.ns, i, KVT_MEMORY);
    batch_init(&batch, 0, PARTS, true);
    batch_submit(&batch, hbm.store, hbm.ns);
    while ((status = kvt_ticket_stream_wait(batch.ticket, 0, 0, stream)) == KVT_NOT_READY)
        sched_yield();
    assert_int_equal(status, KVT_MISS);
    batch_finish(&batch);

    batch_init(&batch, 0, PARTS, true);
    batch_submit(&batch, hbm.store, hbm.ns);
    assert_int_equal(kvt_ticket_cancel(batch.ticket), KVT_OK);
    /* What had begun came, the rest was given up: nobody waits for ever. */
    status = kvt_ticket_part_wait(batch.ticket, PARTS - 1, KVT_FOREVER);
    assert_true(status == KVT_MISS || status == KVT_CANCELLED);
    batch_finish(&batch);

    hbm.config.fail_call = atomic_load(&hbm.config.call_count) + 1;
    batch_init(&batch, 0, PARTS, true);
    batch_submit(&batch, hbm.store, hbm.ns);
    assert_int_equal(kvt_ticket_part_wait(batch.ticket, PARTS - 1, KVT_FOREVER), KVT_MISS);
    while ((status = kvt_ticket_stream_wait(batch.ticket, 1, 0, stream)) == KVT_NOT_READY)
        sched_yield();
    assert_int_equal(status, KVT_E_GPU);
    batch_finish(&batch);
    assert_int_equal(batch.results[1].status, KVT_E_GPU);
    device_host_stream_destroy(device, stream);
}

/* --- Refusals --------------------------------------------------------------------------------- */

static void
what_makes_no_sense_is_refused(void **state)
{
    static struct batch batch;
    struct payload_key name;
    kvt_ticket *ticket;
    int stream;

    (void)state;
    for (uint32_t i = 0; i < COUNT; i++)
        put_parts(hbm.store, hbm.ns, i, KVT_MEMORY);
    batch_init(&batch, 2, 4, false);
#define GETS(word) \
    refused(kvt_get_submit(hbm.store, hbm.ns, batch.gets, COUNT, NULL, &ticket), KVT_E_INVAL, word)
    batch.gets[5].flags = 0;
    GETS("block 5: KVT_GET_BY_PART");
    batch.gets[5].flags = KVT_GET_BY_PART;
    batch.gets[6].part_first = 1;
    GETS("block 6: part by part");
    batch.gets[6].part_first = 2;
    batch.gets[7].part_count = 3;
    GETS("block 7: part by part");
    batch.gets[7].part_count = 4;
    batch.gets[8].capacity--;
    GETS("block 8: part by part");
    batch.gets[8].capacity++;
    for (uint32_t i = 0; i < COUNT; i++)
        batch.gets[i].part_count = 0;
    GETS("part by part");
    for (uint32_t i = 0; i < COUNT; i++) { /* Parts 65534, 65535, and then? */
        batch.gets[i].part_count = 4;
        batch.gets[i].part_first = UINT16_MAX - 1;
    }
    GETS("4 parts from part 65534 on");
    for (uint32_t i = 0; i < COUNT; i++)
        batch.gets[i].part_first = KVT_PARTS_MAX - 3;
    GETS("a block has 64 at most");
    for (uint32_t i = 0; i < COUNT; i++)
        batch.gets[i].part_first = 2;
#undef GETS
    batch_submit(&batch, hbm.store, hbm.ns);
    refused(kvt_ticket_part_wait(NULL, 0, 0), KVT_E_INVAL, "NULL");
    refused(kvt_ticket_part_wait(batch.ticket, 1, 0), KVT_E_INVAL, "part 1");
    refused(kvt_ticket_part_wait(batch.ticket, 6, 0), KVT_E_INVAL, "part 6");
    refused(kvt_ticket_part_wait(batch.ticket, KVT_PART_ALL, 0), KVT_E_INVAL, "part");
    refused(kvt_ticket_stream_wait(batch.ticket, 1, 0, &stream), KVT_E_INVAL, "part 1");
    refused(kvt_ticket_stream_wait(batch.ticket, 2, 0, &stream), KVT_E_INVAL, "device 0");
    refused(kvt_ticket_stream_wait(batch.ticket, 2, 0, NULL), KVT_E_INVAL, "NULL");
    refused(kvt_ticket_stream_wait(NULL, 2, 0, &stream), KVT_E_INVAL, "NULL");
    batch_finish(&batch);
    /* A ticket that has no parts. */
    payload_key_make(&name, 1);
    assert_int_equal(kvt_delete_submit(hbm.store, hbm.ns, &name.key, 1, NULL, &ticket), KVT_OK);
    refused(kvt_ticket_part_wait(ticket, 0, 0), KVT_E_INVAL, "part 0");
    refused(kvt_ticket_stream_wait(ticket, KVT_PART_ALL, 0, &stream), KVT_E_INVAL, "part");
    assert_int_equal(kit_result(ticket, 2).status, KVT_OK);
}

/* The most operations of a ticket, and parts behind them. */
static void
as_many_parts_as_a_batch_may_have(void **state)
{
    enum {
        BLOCKS = KVT_BATCH_MAX / KVT_PARTS_MAX
    };
    static struct payload_key names[BLOCKS + 1];
    static struct kvt_get gets[BLOCKS + 1];
    static struct kvt_result results[BLOCKS];
    static uint8_t bytes[BLOCKS + 1][KVT_PARTS_MAX];
    kvt_ticket *ticket;

    (void)state;
    for (uint32_t i = 0; i <= BLOCKS; i++) {
        payload_key_make(&names[i], i);
        gets[i] = (struct kvt_get){.key = names[i].key,
            .destination = bytes[i],
            .capacity = KVT_PARTS_MAX,
            .flags = KVT_GET_BY_PART,
            .part_count = KVT_PARTS_MAX};
    }
    refused(kvt_get_submit(hbm.store, hbm.ns, gets, BLOCKS + 1, NULL, &ticket), KVT_E_INVAL,
        "more than 65536 parts");
    assert_int_equal(kvt_get_submit(hbm.store, hbm.ns, gets, BLOCKS, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_part_wait(ticket, KVT_PARTS_MAX - 1, KVT_FOREVER), KVT_MISS);
    assert_int_equal(kvt_ticket_wait(ticket, 1, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, 1, results, BLOCKS), KVT_OK);
    assert_int_equal(results[BLOCKS - 1].status, KVT_MISS);
    kvt_ticket_free(ticket);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, hbm_setup, hbm_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_part_is_in_place_when_it_is_ready),
        cmocka_unit_test(first_parts_of_all_blocks_come_before_later_ones),
        TEST(a_block_that_is_not_there_spoils_no_other),
        TEST(parts_of_another_length_are_refused_one_by_one),
        TEST(a_stream_that_waits_reads_what_was_copied),
        TEST(a_stream_waits_for_memory_that_is_spread),
        TEST(what_waits_for_an_event_is_not_ready),
        TEST(a_miss_a_cancel_and_a_lost_device_are_told),
        TEST(what_makes_no_sense_is_refused),
        TEST(as_many_parts_as_a_batch_may_have),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
