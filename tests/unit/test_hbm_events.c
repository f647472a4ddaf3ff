/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hbm_events.c - a store with an HBM tier beside a program's own streams: what waits for what,
 * what is refused, what is noticed, and what a lost device costs.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "hbm_kit.h"
#include "kvtier/kvtier_unstable.h"
#include "payload.h"
#include "stop_on_proof.h"
#include "store_internal.h"

enum {
    PATIENCE_NS = 2000000000,
    A_WHILE_NS = 20000000,
    TRIES = 10000,
};

/* --- Streams and events ----------------------------------------------------------------------- */

struct kernel {
    uint64_t number, version;
    uint8_t seen[HBM_BLOCK_BYTES];
};

static void
kernel_fill(void *context, void *memory)
{
    struct kernel *kernel = context;

    payload_fill(memory, HBM_BLOCK_BYTES, kernel->number, kernel->version);
}

static void
kernel_read(void *context, void *memory)
{
    struct kernel *kernel = context;

    memcpy(kernel->seen, memory, HBM_BLOCK_BYTES);
}

static void
a_put_waits_for_the_event_of_what_fills_its_source(void **state)
{
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    void *stream, *event;

    (void)state;
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    assert_int_equal(device->ops->event_create(device, &event), KVT_OK);
    for (uint64_t i = 0; i < 20; i++) {
        struct kernel kernel = {.number = i, .version = 1};
        struct payload_key name;
        struct kvt_submit submit = {.wait_event = event};
        struct kvt_put put = {.length = HBM_BLOCK_BYTES,
            .source = hbm_pool_at((uint32_t)i),
            .region = hbm.region,
            .tier = i % 2 == 0 ? KVT_TIER_HBM : KVT_TIER_HOST};
        kvt_ticket *ticket;

        payload_key_make(&name, i);
        put.key = name.key;
        assert_int_equal(
            device_host_launch(device, stream, kernel_fill, &kernel, hbm_pool_at((uint32_t)i)),
            KVT_OK);
        assert_int_equal(device->ops->event_record(device, event, stream), KVT_OK);
        assert_int_equal(
            kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_MEMORY, &submit, &ticket), KVT_OK);
        assert_int_equal(kit_result(ticket, 1).status, KVT_OK);
        assert_int_equal(hbm_get(i, 1, i % 3 == 0, NULL), KVT_OK);
    }
    device->ops->event_destroy(device, event);
    device_host_stream_destroy(device, stream);
}

static void
a_put_whose_event_does_not_come_can_be_cancelled(void **state)
{
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    _Atomic bool is_over = false;
    struct payload_key name;
    struct kvt_put put = {.length = HBM_BLOCK_BYTES,
        .source = hbm_pool_at(1),
        .region = hbm.region,
        .tier = KVT_TIER_HBM};
    struct kvt_submit submit = {0};
    void *stream, *event;
    kvt_ticket *ticket;

    (void)state;
    payload_key_make(&name, 1);
    put.key = name.key;
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    assert_int_equal(device->ops->event_create(device, &event), KVT_OK);
    submit.wait_event = event;
    hbm_stream_hold(device, stream, hbm.pool, &is_over);
    assert_int_equal(device->ops->event_record(device, event, stream), KVT_OK);
    assert_int_equal(
        kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_SYNC, &submit, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, 1, 10 * 1000 * 1000), KVT_LATE);
    assert_int_equal(kvt_ticket_cancel(ticket), KVT_OK);
    assert_int_equal(kit_result(ticket, 2).status, KVT_CANCELLED);
    assert_int_equal(hbm_tiers_of(1), 0);
    /* Nobody asks for the event any more, and nobody uses the hbm.region. */
    device->ops->event_destroy(device, event);
    assert_int_equal(kvt_region_unregister(hbm.store, hbm.region), KVT_OK);
    hbm.region.id = 0;
    atomic_store(&is_over, true);
    device_host_stream_destroy(device, stream);
}

static void
a_leased_copy_stays_until_the_stream_has_read_it(void **state)
{
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    void *stream;

    (void)state;
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    for (uint64_t round = 0; round < 4; round++) {
        struct kernel kernel = {.number = round};
        _Atomic bool may_go = false;
        struct payload_key name;
        const void *address;
        uint64_t length, version;
        kvt_lease lease;

        payload_key_make(&name, round);
        assert_int_equal(hbm_put(round, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
        assert_int_equal(kvt_lookup(hbm.store, hbm.ns, &name.key, 1, NULL, NULL, &lease), KVT_OK);
        assert_int_equal(
            kvt_lease_address(hbm.store, lease, 0, KVT_TIER_HBM, &address, &length), KVT_OK);
        /* The stream is busy: by then the slot would be somebody else's. */
        hbm_stream_hold(device, stream, hbm_pool_at(0), &may_go);
        assert_int_equal(
            device_host_launch(device, stream, kernel_read, &kernel, (void *)(uintptr_t)address),
            KVT_OK);
        assert_int_equal(kvt_lease_release_after(hbm.store, lease, 0, stream), KVT_OK);
        assert_int_equal(kvt_lease_release_after(hbm.store, lease, 0, stream), KVT_E_INVAL);
        /* The block goes; its slot is wanted by others. */
        assert_true(kit_delete(hbm.store, hbm.ns, round) >= 0);
        for (uint64_t i = 0; i < 120; i++)
            (void)hbm_put(1000 + round * 200 + i, 1, KVT_TIER_HBM, KVT_MEMORY, 0);
        atomic_store(&may_go, true);
        while (hbm_stats().lease_count_now != 0)
            sched_yield();
        assert_true(payload_is_right(kernel.seen, HBM_BLOCK_BYTES, round, &version));
    }
    device_host_stream_destroy(device, stream);
}

/* It counts until the stream is done, and not longer. */
static void
what_a_stream_reads_counts_as_a_lease_that_is_out(void **state)
{
    struct device *device;
    _Atomic bool may_go = false;
    struct payload_key name;
    kvt_lease lease;
    void *stream;

    (void)state;
    hbm_close();
    hbm.options.lease_count_max = 1;
    hbm_open_again();
    device = hbm_device(hbm.store->devices.tiers[0]);
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    payload_key_make(&name, 1);
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
    assert_int_equal(kvt_lookup(hbm.store, hbm.ns, &name.key, 1, NULL, NULL, &lease), KVT_OK);
    hbm_stream_hold(device, stream, hbm_pool_at(0), &may_go);
    assert_int_equal(kvt_lease_release_after(hbm.store, lease, 0, stream), KVT_OK);
    refused(kvt_touch(hbm.store, hbm.ns, &name.key, 1), KVT_E_NOSPC, "lease_count_max");
    atomic_store(&may_go, true);
    while (hbm_stats().lease_count_now != 0)
        sched_yield();
    assert_int_equal(kvt_touch(hbm.store, hbm.ns, &name.key, 1), KVT_OK);
    device_host_stream_destroy(device, stream);
}

/* What was given back is nobody's: a close waits for the stream, and does not refuse. */
static void
a_store_can_be_closed_while_a_stream_reads_what_was_given_back(void **state)
{
    struct payload_key name;
    kvt_lease lease;

    (void)state;
    payload_key_make(&name, 1);
    for (uint32_t i = 0; i < 8; i++) {
        struct kernel kernel = {.number = 1};
        const void *address;
        uint64_t length, version;

        struct device *device = hbm_device(hbm.store->devices.tiers[0]);
        void *stream = device->ops->stream(device, DEVICE_OUT);

        assert_int_equal(hbm_put(1, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
        assert_int_equal(kvt_lookup(hbm.store, hbm.ns, &name.key, 1, NULL, NULL, &lease), KVT_OK);
        assert_int_equal(
            kvt_lease_address(hbm.store, lease, 0, KVT_TIER_HBM, &address, &length), KVT_OK);
        assert_int_equal(
            device_host_launch(device, stream, kernel_read, &kernel, (void *)(uintptr_t)address),
            KVT_OK);
        assert_int_equal(kvt_lease_release_after(hbm.store, lease, 0, stream), KVT_OK);
        hbm_close();
        assert_true(payload_is_right(kernel.seen, HBM_BLOCK_BYTES, 1, &version));
        hbm_open_again();
    }
}

/* Leases hold all of HOST. Returns how many. */
static uint32_t
host_lease_all(kvt_lease leases[HBM_POOL_BLOCKS])
{
    struct payload_key name;
    uint32_t count = 0;

    while (kit_put(hbm.store, hbm.ns, count, 1, HBM_BLOCK_BYTES, KVT_MEMORY) == KVT_OK) {
        assert_true(count < HBM_POOL_BLOCKS);
        payload_key_make(&name, count);
        assert_int_equal(
            kvt_lookup(hbm.store, hbm.ns, &name.key, 1, NULL, NULL, &leases[count++]), KVT_OK);
    }
    return count;
}

/* A put that finds no room in HOST. */
static kvt_ticket *
wanting_put(uint64_t number)
{
    struct payload_key name;
    struct kvt_put put = {
        .length = HBM_BLOCK_BYTES, .source = hbm_pool_at(0), .region = hbm.region};
    kvt_ticket *ticket;

    payload_key_make(&name, number);
    put.key = name.key;
    assert_int_equal(kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_MEMORY, NULL, &ticket), KVT_OK);
    return ticket;
}

static bool
is_copying(struct kvt_store *store, void *is_copying_out)
{
    *(bool *)is_copying_out = store->devices.in_flight > 0;
    return true;
}

static _Alignas(4096) uint8_t page[4096];

static void *
page_read(void *status_out)
{
    *(enum kvt_status *)status_out =
        kvt_device_read(hbm.store, 0, page, hbm_pool_at(2), sizeof(page));
    return NULL;
}

/* All that is under way is a copy that has no slot and no pin. */
static void
who_waits_for_room_is_told_when_a_copy_was_all_that_was_under_way(void **state)
{
    const struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HOST, .address = page, .size = sizeof(page)};
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    kvt_lease leases[HBM_POOL_BLOCKS];
    kvt_region region;
    kvt_ticket *ticket;
    pthread_t thread;
    _Atomic bool may_go = false;
    bool is_begun = false;
    enum kvt_status status, read_status;
    uint32_t count;

    (void)state;
    assert_int_equal(kvt_region_register(hbm.store, &about, &region), KVT_OK);
    count = host_lease_all(leases);
    hbm_stream_hold(device, device->ops->stream(device, DEVICE_OUT), hbm_pool_at(0), &may_go);
    assert_int_equal(pthread_create(&thread, NULL, page_read, &read_status), 0);
    while (!is_begun)
        loop_call(hbm.store, is_copying, &is_begun);
    ticket = wanting_put(20000);
    assert_int_equal(kvt_ticket_wait(ticket, 1, A_WHILE_NS), KVT_LATE);
    atomic_store(&may_go, true);
    status = kvt_ticket_wait(ticket, 1, PATIENCE_NS);
    for (uint32_t i = 0; i < count; i++)
        kvt_lease_release(hbm.store, leases[i]);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(read_status, KVT_OK);
    assert_int_equal(status, KVT_OK);
    assert_int_equal(kit_result(ticket, 1).status, KVT_E_NOSPC);
    assert_int_equal(kvt_region_unregister(hbm.store, region), KVT_OK);
}

/* It has no slot and no pin that it could give back. */
static void
nobody_waits_for_room_for_what_has_not_begun(void **state)
{
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    struct payload_key name;
    uint8_t bytes[64];
    struct kvt_get get = {.destination = bytes, .capacity = sizeof(bytes)};
    struct kvt_submit submit = {0};
    kvt_lease leases[HBM_POOL_BLOCKS];
    kvt_ticket *behind_event, *ticket;
    _Atomic bool may_go = false;
    enum kvt_status status;
    uint32_t count;
    void *stream;

    (void)state;
    count = host_lease_all(leases);
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    assert_int_equal(device->ops->event_create(device, &submit.wait_event), KVT_OK);
    hbm_stream_hold(device, stream, hbm_pool_at(0), &may_go);
    assert_int_equal(device->ops->event_record(device, submit.wait_event, stream), KVT_OK);
    payload_key_make(&name, 10000); /* Not there. */
    get.key = name.key;
    assert_int_equal(kvt_get_submit(hbm.store, hbm.ns, &get, 1, &submit, &behind_event), KVT_OK);
    ticket = wanting_put(20000);
    status = kvt_ticket_wait(ticket, 1, PATIENCE_NS);
    assert_int_equal(kvt_ticket_wait(behind_event, 1, 0), KVT_LATE);
    atomic_store(&may_go, true);
    for (uint32_t i = 0; i < count; i++)
        kvt_lease_release(hbm.store, leases[i]);
    assert_int_equal(status, KVT_OK);
    assert_int_equal(kit_result(ticket, 1).status, KVT_E_NOSPC);
    assert_int_equal(kit_result(behind_event, 1).status, KVT_MISS);
    device->ops->event_destroy(device, submit.wait_event);
    device_host_stream_destroy(device, stream);
}

/* --- What must be noticed --------------------------------------------------------------------- */

/* A block in HBM (`is_durable`: and on NVMe), where a kernel that has no right to writes over it;
 * with a lease. */
static kvt_lease
copy_overwrite(bool is_durable)
{
    unsigned tiers = KVT_TIER_HBM | (is_durable ? KVT_TIER_NVME : 0u);
    struct payload_key name;
    uint8_t bytes[16] = {1, 2, 3};
    const void *address;
    uint64_t length;
    kvt_lease lease;

    hbm_close();
    hbm.options.policy = KVT_POLICY_LRU; /* Copies of what HBM holds too go in their turn. */
    hbm_open_again();
    if (is_durable) {
        assert_int_equal(hbm_put(1, 1, KVT_TIER_HOST, KVT_SYNC, 0), KVT_OK);
        assert_int_equal(hbm_demote(1, KVT_TIER_NVME), KVT_OK);
    } else { /* It is summed up on its way down. */
        assert_int_equal(hbm_put(1, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
        assert_int_equal(hbm_demote(1, KVT_TIER_HOST), KVT_OK);
    }
    assert_int_equal(hbm_prefetch(1, KVT_TIER_HBM, 0), KVT_OK);
    for (uint64_t i = 0; i < 1000 && hbm_tiers_of(1) != tiers; i++)
        (void)kit_put(hbm.store, hbm.ns, 1000 + i, 1, KIT_BLOCK_BYTES_MAX, KVT_MEMORY);
    assert_int_equal(hbm_tiers_of(1), tiers);
    payload_key_make(&name, 1);
    assert_int_equal(kvt_lookup(hbm.store, hbm.ns, &name.key, 1, NULL, NULL, &lease), KVT_OK);
    assert_int_equal(
        kvt_lease_address(hbm.store, lease, 0, KVT_TIER_HBM, &address, &length), KVT_OK);
    assert_int_equal(
        kvt_device_write(hbm.store, 0, (void *)(uintptr_t)address, bytes, sizeof(bytes)), KVT_OK);
    return lease;
}

/* It costs its tier alone, also under a kvt_pin(): the block was promised durability. */
static void
a_copy_that_changed_in_hbm_goes_alone(void **state)
{
    struct payload_key name;
    kvt_lease lease;

    (void)state;
    lease = copy_overwrite(true); /* And another store. */
    kvt_lease_release(hbm.store, lease);
    payload_key_make(&name, 1);
    assert_int_equal(kvt_pin(hbm.store, hbm.ns, &name.key, 1, KVT_FOREVER), KVT_OK);
    assert_int_equal(hbm_get(1, 1, false, NULL), KVT_OK);
    assert_int_equal(hbm_tiers_of(1) & (KVT_TIER_HBM | KVT_TIER_NVME), KVT_TIER_NVME);
    assert_int_equal(hbm_stats().corrupt_count, 1);
    hbm_close();
    hbm_open_again();
    assert_int_equal(hbm_get(1, 1, false, NULL), KVT_OK);
}

/* Any pin is like that lease, the short ones of reads and of reclaiming too. Nobody else finds the
 * copy; its slot is nobody's while somebody may read it, and is used again. */
static void
a_copy_that_changed_under_a_lease_goes_alone(void **state)
{
    uint8_t bytes[16] = {0};
    struct payload_key name;
    const void *held, *address;
    uint64_t length, used_bytes;
    kvt_lease lease, later;
    enum kvt_status status;

    (void)state;
    lease = copy_overwrite(true);
    assert_int_equal(kvt_lease_address(hbm.store, lease, 0, KVT_TIER_HBM, &held, &length), KVT_OK);
    used_bytes = hbm_stats().hbm_used_bytes_now;
    assert_int_equal(hbm_get(1, 1, false, NULL), KVT_OK);
    assert_int_equal(hbm_stats().corrupt_count, 1);
    assert_int_equal(hbm_tiers_of(1) & (KVT_TIER_HBM | KVT_TIER_NVME), KVT_TIER_NVME);
    payload_key_make(&name, 1);
    assert_int_equal(kvt_lookup(hbm.store, hbm.ns, &name.key, 1, NULL, NULL, &later), KVT_OK);
    assert_int_equal(
        kvt_lease_address(hbm.store, later, 0, KVT_TIER_HBM, &address, &length), KVT_MISS);
    kvt_lease_release(hbm.store, later);
    assert_int_equal(hbm_get(1, 1, true, NULL), KVT_OK);
    assert_int_equal(hbm_prefetch(1, KVT_TIER_HBM, 0), KVT_E_NOSPC);
    for (uint64_t i = 0; i < 2 * HBM_POOL_BLOCKS; i++)
        (void)hbm_put(2000 + i, 1, KVT_TIER_HBM, KVT_MEMORY, 0);
    assert_int_equal(
        kvt_lease_address(hbm.store, lease, 0, KVT_TIER_HBM, &address, &length), KVT_OK);
    assert_ptr_equal(address, held);
    assert_int_equal(kvt_device_read(hbm.store, 0, bytes, held, sizeof(bytes)), KVT_OK);
    assert_memory_equal(bytes, ((const uint8_t[16]){1, 2, 3}), sizeof(bytes));
    for (uint64_t i = 0; i < 2 * HBM_POOL_BLOCKS; i++)
        (void)kit_delete(hbm.store, hbm.ns, 2000 + i);
    assert_int_equal(hbm_stats().hbm_used_bytes_now, used_bytes);
    kvt_lease_release(hbm.store, lease);
    status = KVT_E_NOSPC;
    for (uint32_t i = 0; i < TRIES && status == KVT_E_NOSPC; i++)
        status = hbm_prefetch(1, KVT_TIER_HBM, 0);
    assert_int_equal(status, KVT_OK);
    assert_int_equal(hbm_get(1, 1, true, NULL), KVT_OK);
    assert_int_equal(hbm_stats().hbm_used_bytes_now, used_bytes);
}

static void
a_copy_that_changed_and_was_the_only_one_is_no_hit(void **state)
{
    kvt_lease lease;

    (void)state;
    lease = copy_overwrite(false);
    assert_int_equal(hbm_get(1, 1, false, NULL), KVT_MISS);
    assert_int_equal(hbm_tiers_of(1), 0);
    assert_int_equal(hbm_stats().corrupt_count, 1);
    kvt_lease_release(hbm.store, lease);
}

static void
a_region_in_use_is_not_given_back(void **state)
{
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    _Atomic bool may_go = false;
    struct payload_key name;
    void *stream, *event;
    struct kvt_submit submit = {0};
    struct kvt_put put = {.length = HBM_BLOCK_BYTES, .tier = KVT_TIER_HBM, .region = hbm.region};
    kvt_ticket *ticket;

    (void)state;
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    assert_int_equal(device->ops->event_create(device, &event), KVT_OK);
    payload_key_make(&name, 1);
    put.key = name.key;
    put.source = hbm_pool_at(0);
    hbm_stream_hold(device, stream, hbm_pool_at(0), &may_go);
    assert_int_equal(device->ops->event_record(device, event, stream), KVT_OK);
    submit.wait_event = event;
    assert_int_equal(
        kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_MEMORY, &submit, &ticket), KVT_OK);
    refused(kvt_region_unregister(hbm.store, hbm.region), KVT_E_STATE, "under way");
    atomic_store(&may_go, true);
    assert_int_equal(kit_result(ticket, 1).status, KVT_OK);
    device->ops->event_destroy(device, event);
    device_host_stream_destroy(device, stream);
}

/* --- Refusals --------------------------------------------------------------------------------- */

static void
what_makes_no_sense_is_refused(void **state)
{
    struct payload_key name;
    uint8_t bytes[HBM_BLOCK_BYTES] = {0};
    struct kvt_put put = {.source = bytes, .length = HBM_BLOCK_BYTES, .tier = KVT_TIER_HBM};
    struct kvt_region_options about = {.struct_size = sizeof(about),
        .tier = KVT_TIER_HBM,
        .address = hbm.pool,
        .size = 1,
        .device = 1};
    struct kvt_submit submit = {.wait_event = bytes, .wait_device = 1};
    struct kvt_prefetch how = {.struct_size = sizeof(how), .tier = KVT_TIER_NVME};
    kvt_region other;
    kvt_ticket *ticket;

    (void)state;
    payload_key_make(&name, 1);
    put.key = name.key;
#define PUT(word) \
    refused(      \
        kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_MEMORY, NULL, &ticket), KVT_E_INVAL, word)
    PUT("region");
    put.region = hbm.region;
    PUT("do not lie");
    put.source = hbm_pool_at(HBM_POOL_BLOCKS - 1);
    put.length = HBM_BLOCK_BYTES + 1;
    PUT("do not lie");
    put.length = HBM_BLOCK_BYTES;
    put.device = 1;
    PUT("device 1");
    put.device = 0;
    put.tier = KVT_TIER_NVME;
    PUT("tier");
    put.tier = KVT_TIER_HBM;
    put.region.id += 1u << 20;
    PUT("region");
#undef PUT
    put.region = hbm.region;
    refused(kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_MEMORY, &submit, &ticket), KVT_E_INVAL,
        "wait_device");
    refused(kvt_region_register(hbm.store, &about, &other), KVT_E_INVAL, "device 1");
    about.device = 0;
    about.reserved0 = 1;
    refused(kvt_region_register(hbm.store, &about, &other), KVT_E_INVAL, "reserved0");
    about.reserved0 = 0;
    about.tier = KVT_TIER_HOST;
    about.address = (void *)(uintptr_t)4096;
    about.size = (UINT64_C(1) << 30) + 4096;
    refused(kvt_region_register(hbm.store, &about, &other), KVT_E_INVAL, "1 GiB");
    about.struct_size = 1;
    refused(kvt_region_register(hbm.store, &about, &other), KVT_E_INVAL, "struct_size");
    refused(kvt_prefetch_submit(hbm.store, hbm.ns, &name.key, 1, &how, NULL, &ticket), KVT_E_INVAL,
        "tier");
    how.tier = KVT_TIER_HBM;
    how.device = 5;
    refused(kvt_prefetch_submit(hbm.store, hbm.ns, &name.key, 1, &how, NULL, &ticket), KVT_E_INVAL,
        "device 5");
    refused(kvt_demote_submit(hbm.store, hbm.ns, &name.key, 1, KVT_TIER_HBM, NULL, &ticket),
        KVT_E_INVAL, "tier");
    /* Nothing of this was kept: the hbm.region can go. */
    assert_int_equal(kvt_region_unregister(hbm.store, hbm.region), KVT_OK);
    refused(kvt_region_unregister(hbm.store, hbm.region), KVT_E_INVAL, "stale");
    hbm.region.id = 0;
}

/* What a caller gives that is none any more is the matter of its own call. */
static void
an_event_or_a_stream_that_is_none_costs_its_call_alone(void **state)
{
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    uint8_t bytes[HBM_BLOCK_BYTES];
    struct kvt_get get = {.destination = bytes, .capacity = sizeof(bytes)};
    struct kvt_put put = {.length = HBM_BLOCK_BYTES,
        .source = hbm_pool_at(1),
        .region = hbm.region,
        .tier = KVT_TIER_HBM};
    struct kvt_submit submit = {0};
    struct payload_key names[2];
    uint32_t health = 0;
    kvt_ticket *ticket;
    kvt_lease lease;

    (void)state;
    payload_key_make(&names[0], 0);
    payload_key_make(&names[1], 1);
    get.key = names[0].key;
    put.key = names[1].key;
    assert_int_equal(hbm_put(0, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
    assert_int_equal(kvt_lookup(hbm.store, hbm.ns, &get.key, 1, NULL, NULL, &lease), KVT_OK);
    assert_int_equal(device->ops->event_create(device, &submit.wait_event), KVT_OK);
    device->ops->event_destroy(device, submit.wait_event);
    assert_int_equal(
        kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_SYNC, &submit, &ticket), KVT_OK);
    assert_int_equal(kit_result(ticket, 2).status, KVT_E_INVAL);
    assert_int_equal(kvt_get_submit(hbm.store, hbm.ns, &get, 1, &submit, &ticket), KVT_OK);
    assert_int_equal(kit_result(ticket, 1).status, KVT_E_INVAL);
    refused(
        kvt_lease_release_after(hbm.store, lease, 0, submit.wait_event), KVT_E_INVAL, "no stream");
    /* The lease is out as before, and the device is whole. */
    kvt_lease_release(hbm.store, lease);
    assert_int_equal(hbm_stats().lease_stale_count, 0);
    refused(kvt_lease_release_after(hbm.store, lease, 0, &submit), KVT_E_INVAL, "stale");
    assert_int_equal(hbm_stats().lease_stale_count, 1);
    refused(kvt_lease_release_after(hbm.store, (kvt_lease){0}, 0, &submit), KVT_E_INVAL, "none");
    assert_int_equal(hbm_stats().lease_stale_count, 1);
    assert_int_equal(kvt_health(hbm.store, &health), KVT_OK);
    assert_int_equal(health & KVT_HEALTH_GPU_LOST, 0);
    assert_int_equal(hbm_tiers_of(0), KVT_TIER_HBM);
    assert_int_equal(hbm_tiers_of(1), 0);
    assert_int_equal(hbm_get(0, 1, true, NULL), KVT_OK);
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HBM, KVT_SYNC, 0), KVT_OK);
}

/* --- A lost device ---------------------------------------------------------------------------- */

static void
a_lost_device_costs_what_only_it_held(void **state)
{
    struct payload_key name;
    const void *address;
    uint64_t length;
    kvt_lease lease;
    uint32_t health = 0;
    uint32_t tier = 0;

    (void)state;
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
    assert_int_equal(hbm_put(5, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
    payload_key_make(&name, 5);
    assert_int_equal(kvt_lookup(hbm.store, hbm.ns, &name.key, 1, NULL, NULL, &lease), KVT_OK);
    assert_int_equal(hbm_put(2, 1, KVT_TIER_HBM, KVT_SYNC, 0), KVT_OK);
    hbm.config.fail_call = atomic_load(&hbm.config.call_count) + 1;
    assert_int_equal(hbm_get(2, 1, false, &tier), KVT_OK); /* Needs no device. */
    assert_int_equal(hbm_prefetch(1, KVT_TIER_HOST, 0), KVT_MISS);
    assert_int_equal(kvt_health(hbm.store, &health), KVT_OK);
    assert_true((health & KVT_HEALTH_GPU_LOST) != 0);
    assert_int_equal(hbm_tiers_of(1), 0);
    assert_int_equal(hbm_tiers_of(2), KVT_TIER_HOST | KVT_TIER_NVME);
    /* A leased copy cannot be given up yet; but it is worth nothing. */
    assert_int_equal(hbm_tiers_of(5), 0);
    refused(
        kvt_lease_address(hbm.store, lease, 0, KVT_TIER_HBM, &address, &length), KVT_E_GPU, "lost");
    kvt_lease_release(hbm.store, lease);
    /* The slot that block 1 was on its way to may still be written. */
    assert_int_equal(hbm_stats().slot_stranded_count, 1);
    assert_int_equal(hbm_get(1, 1, false, NULL), KVT_MISS);
    assert_int_equal(hbm_get(2, 1, false, &tier), KVT_OK);
    assert_int_equal(kit_put(hbm.store, hbm.ns, 3, 1, HBM_BLOCK_BYTES, KVT_SYNC), KVT_OK);
    hbm_close();
    hbm.config.fail_call = 0;
    hbm_open_again();
    assert_int_equal(hbm_get(2, 1, true, NULL), KVT_OK);
    assert_int_equal(hbm_get(3, 1, true, NULL), KVT_OK);
    assert_int_equal(hbm_get(1, 1, true, NULL), KVT_MISS);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, hbm_setup, hbm_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_put_waits_for_the_event_of_what_fills_its_source),
        TEST(a_put_whose_event_does_not_come_can_be_cancelled),
        TEST(a_leased_copy_stays_until_the_stream_has_read_it),
        TEST(what_a_stream_reads_counts_as_a_lease_that_is_out),
        TEST(a_store_can_be_closed_while_a_stream_reads_what_was_given_back),
        TEST(who_waits_for_room_is_told_when_a_copy_was_all_that_was_under_way),
        TEST(nobody_waits_for_room_for_what_has_not_begun),
        TEST(a_copy_that_changed_in_hbm_goes_alone),
        TEST(a_copy_that_changed_under_a_lease_goes_alone),
        TEST(a_copy_that_changed_and_was_the_only_one_is_no_hit),
        TEST(a_region_in_use_is_not_given_back),
        TEST(what_makes_no_sense_is_refused),
        TEST(an_event_or_a_stream_that_is_none_costs_its_call_alone),
        TEST(a_lost_device_costs_what_only_it_held),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
