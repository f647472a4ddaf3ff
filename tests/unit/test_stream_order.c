/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_stream_order.c - the functions of examples/stream_order.c, with streams, events and kernels
 * of the emulated device.
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
#include "payload.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "stream_order.h"

enum {
    COUNT = 5,
    PARTS = 4,
    PART_BYTES = HBM_BLOCK_BYTES / PARTS,
};

/* Memory of the caller's program, and its stream. */
static struct device *device;
static void *stream;
static struct payload_key names[COUNT];
static uint8_t bytes[COUNT][HBM_BLOCK_BYTES];
static uint8_t seen[COUNT][HBM_BLOCK_BYTES];
static uint32_t seen_count;
static atomic_bool may_go;

static int
setup(void **state)
{
    hbm_setup(state);
    device = hbm_device(hbm.store->devices.tiers[0]);
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        payload_key_make(&names[i], i);
        payload_fill(bytes[i], HBM_BLOCK_BYTES, i, 1);
    }
    memset(seen, 0, sizeof(seen));
    seen_count = 0;
    atomic_store(&may_go, false);
    return 0;
}

static int
teardown(void **state)
{
    device_host_stream_destroy(device, stream);
    return hbm_teardown(state);
}

/* --- Kernels ---------------------------------------------------------------------------------- */

/* Fills all blocks, when it may. */
static void
kernel_fill(void *context, void *memory)
{
    (void)context;
    while (!atomic_load(&may_go))
        sched_yield();
    memcpy(memory, bytes, sizeof(bytes));
}

static void
kernel_read(void *context, void *memory)
{
    memcpy(context, memory, HBM_BLOCK_BYTES);
}

static void
kernel_read_part(void *context, void *memory)
{
    memcpy(context, memory, PART_BYTES);
}

/* A kernel for each block that looks whether it is there. */
static struct look {
    const int32_t *status;
    uint8_t *target;
} looks[COUNT];

static void
kernel_look(void *context, void *memory)
{
    const struct look *look = context;

    if (*look->status == KVT_OK)
        memcpy(look->target, memory, HBM_BLOCK_BYTES);
}

static void
looks_launch(void *context, const int32_t *statuses)
{
    (void)context;
    for (uint32_t i = 0; i < COUNT; i++) {
        looks[i] = (struct look){&statuses[i], seen[i]};
        assert_int_equal(
            device_host_launch(device, stream, kernel_look, &looks[i], hbm_pool_at(COUNT + i)),
            KVT_OK);
    }
}

/* As stream_order.h's kernel_launch. */
static void
read_launch(void *context, const void *address, uint64_t length)
{
    (void)context;
    assert_int_equal(length, HBM_BLOCK_BYTES);
    assert_int_equal(device_host_launch(device, stream, kernel_read, seen[seen_count++],
                         (void *)(uintptr_t)address),
        KVT_OK);
}

static void *
event_record(void)
{
    void *event;

    assert_int_equal(device->ops->event_create(device, &event), KVT_OK);
    assert_int_equal(device->ops->event_record(device, event, stream), KVT_OK);
    return event;
}

/* Puts all blocks from pages that a kernel is still to fill. */
static void
blocks_make(uint16_t part_count)
{
    struct kvt_put puts[COUNT];
    struct kvt_result results[COUNT];
    kvt_ticket *ticket;
    void *event;

    assert_int_equal(device_host_launch(device, stream, kernel_fill, NULL, hbm_pool_at(0)), KVT_OK);
    event = event_record();
    for (uint32_t i = 0; i < COUNT; i++)
        puts[i] = (struct kvt_put){.key = names[i].key,
            .source = hbm_pool_at(i),
            .length = HBM_BLOCK_BYTES,
            .region = hbm.region,
            .part_count = part_count,
            .tier = KVT_TIER_HBM};
    assert_int_equal(blocks_put_behind(hbm.store, hbm.ns, puts, COUNT, event, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, 10000000), KVT_LATE);
    atomic_store(&may_go, true);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DURABLE, results, COUNT), KVT_OK);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(results[i].status, KVT_OK);
    kvt_ticket_free(ticket);
    device->ops->event_destroy(device, event);
}

/* How many blocks of `count`, from key 0 on, kernels read in place. */
static uint32_t
chain_read(uint32_t count)
{
    static const struct kernel kernel = {.launch = read_launch};
    struct kvt_key keys[COUNT];
    kvt_lease lease;
    uint32_t used;

    for (uint32_t i = 0; i < count; i++)
        keys[i] = names[i].key;
    assert_int_equal(kvt_lookup(hbm.store, hbm.ns, keys, count, NULL, NULL, &lease), KVT_OK);
    assert_int_equal(lease_read_in_place(hbm.store, lease, count, stream, &kernel, &used), KVT_OK);
    return used;
}

/* --- Tests ------------------------------------------------------------------------------------ */

static void
put_begins_when_the_pages_are_filled_and_kernels_read_in_place(void **state)
{
    (void)state;
    blocks_make(1);
    assert_int_equal(chain_read(COUNT), COUNT);
    hbm_stream_finish(device, stream);
    assert_memory_equal(seen, bytes, sizeof(seen));
    while (hbm_stats().lease_count_now > 0) /* Until the store has seen the kernels end. */
        sched_yield();
}

static void
chain_ends_at_the_first_block_that_is_not_in_hbm(void **state)
{
    (void)state;
    blocks_make(1);
    assert_int_equal(hbm_demote(3, KVT_TIER_HOST), KVT_OK);
    assert_int_equal(chain_read(COUNT), 3);
    hbm_stream_finish(device, stream);
    assert_memory_equal(seen, bytes, 3 * sizeof(seen[0]));
    assert_memory_equal(seen[3], seen[4], sizeof(seen[3]));
}

static void
kernels_of_a_layer_read_what_was_copied(void **state)
{
    struct kvt_get gets[COUNT];
    kvt_ticket *ticket;

    (void)state;
    blocks_make(PARTS);
    for (uint32_t i = 0; i < COUNT; i++) {
        gets[i] = (struct kvt_get){.key = names[i].key,
            .destination = hbm_pool_at(COUNT + i),
            .capacity = HBM_BLOCK_BYTES,
            .region = hbm.region,
            .flags = KVT_GET_BY_PART,
            .part_count = PARTS};
        assert_int_equal(hbm_demote(i, KVT_TIER_NVME), KVT_OK);
    }
    assert_int_equal(kvt_get_submit(hbm.store, hbm.ns, gets, COUNT, NULL, &ticket), KVT_OK);
    for (uint32_t layer = 0; layer < PARTS; layer++) {
        assert_int_equal(layer_await(ticket, layer, stream), KVT_OK);
        for (uint32_t i = 0; i < COUNT; i++)
            assert_int_equal(
                device_host_launch(device, stream, kernel_read_part, seen[i] + layer * PART_BYTES,
                    hbm_pool_at(COUNT + i) + layer * PART_BYTES),
                KVT_OK);
    }
    hbm_stream_finish(device, stream);
    assert_memory_equal(seen, bytes, sizeof(seen));
    /* The stream has passed the copies before the loop sees them end, and the region be free. */
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
}

static void
kernels_are_queued_before_their_blocks_are_read(void **state)
{
    static const struct behind behind = {.launch = looks_launch};
    struct kvt_get gets[COUNT];

    (void)state;
    blocks_make(1);
    for (uint32_t i = 0; i < COUNT; i++) {
        gets[i] = (struct kvt_get){.key = names[i].key,
            .destination = hbm_pool_at(COUNT + i),
            .capacity = HBM_BLOCK_BYTES,
            .region = hbm.region};
        assert_int_equal(hbm_demote(i, KVT_TIER_NVME), KVT_OK);
    }
    assert_true(kit_delete(hbm.store, hbm.ns, 2) >= 0);
    assert_int_equal(blocks_get_ahead(hbm.store, hbm.ns, gets, COUNT, stream, &behind), KVT_OK);
    hbm_stream_finish(device, stream);
    for (uint32_t i = 0; i < COUNT; i++) {
        if (i != 2)
            assert_memory_equal(seen[i], bytes[i], HBM_BLOCK_BYTES);
    }
    assert_int_equal(seen[2][0] | seen[2][1] | seen[2][HBM_BLOCK_BYTES - 1], 0);
    refused(blocks_get_ahead(hbm.store, hbm.ns, gets, COUNT, NULL, &behind), KVT_E_INVAL, "NULL");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(put_begins_when_the_pages_are_filled_and_kernels_read_in_place),
        TEST(chain_ends_at_the_first_block_that_is_not_in_hbm),
        TEST(kernels_of_a_layer_read_what_was_copied),
        TEST(kernels_are_queued_before_their_blocks_are_read),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
