/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hbm_lost.c - a device that is lost: who notices it, and what is left of the blocks whose
 * only copies it had.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "hbm_kit.h"
#include "kvtier/kvtier_unstable.h"
#include "payload.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"

enum {
    FULL_SLOT_BYTES = 32 << 10,
    FULL_SLOTS = 64,  /* Of 2 MiB. */
    LOOKS_MAX = 1024, /* In a step of the loop. */
    MANY = 3 * LOOKS_MAX,
};

/* The next call of the device is its last. Nothing is in flight. */
static void
lose_next(void)
{
    hbm.config.fail_call = atomic_load(&hbm.config.call_count) + 1;
}

/* Something that needs the device, and is told. */
static void
lose_now(void)
{
    uint8_t bytes[64];

    lose_next();
    assert_int_equal(kvt_device_read(hbm.store, 0, bytes, hbm.pool, sizeof(bytes)), KVT_E_GPU);
}

static bool
is_known_lost(void)
{
    uint32_t health = 0;

    assert_int_equal(kvt_health(hbm.store, &health), KVT_OK);
    return (health & KVT_HEALTH_GPU_LOST) != 0;
}

static kvt_lease
lease_of(uint64_t number)
{
    struct payload_key name;
    kvt_lease lease;

    payload_key_make(&name, number);
    assert_int_equal(kvt_lookup(hbm.store, hbm.ns, &name.key, 1, NULL, NULL, &lease), KVT_OK);
    assert_true(lease.id != 0);
    return lease;
}

static uint32_t
scanned_count(void)
{
    struct kvt_scan_entry entries[8];
    uint64_t cursor = 0;
    uint32_t count = 0, sum = 0;

    while (kvt_scan(hbm.store, &cursor, entries, 8, &count) == KVT_OK) {
        for (uint32_t i = 0; i < count; i++)
            assert_int_not_equal(entries[i].tiers, 0);
        sum += count;
    }
    return sum;
}

/* --- Who notices ------------------------------------------------------------------------------ */

static enum kvt_status
register_memory(uint64_t number)
{
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HOST, .size = 4096};
    kvt_region region = {0};
    enum kvt_status status;

    (void)number;
    about.address = aligned_alloc(4096, 4096);
    assert_non_null(about.address);
    status = kvt_region_register(hbm.store, &about, &region);
    assert_int_equal(kvt_region_unregister(hbm.store, region), KVT_OK);
    free(about.address);
    return status;
}

static enum kvt_status
take_memory(uint64_t number)
{
    void *address;

    (void)number;
    return kvt_device_alloc(hbm.store, 0, 4096, &address);
}

static enum kvt_status
release_behind_a_stream(uint64_t number)
{
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);

    return kvt_lease_release_after(
        hbm.store, lease_of(number), 0, device->ops->stream(device, DEVICE_OUT));
}

/* Not only what the loop hears of: each call of the public interface that says KVT_E_GPU. */
static void
a_device_is_lost_when_a_call_has_said_so(void **state)
{
    static enum kvt_status (*const calls[])(uint64_t) = {
        register_memory, take_memory, release_behind_a_stream};

    (void)state;
    for (uint64_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        uint64_t only = 10 + i, durable = 20 + i;

        assert_int_equal(hbm_put(only, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
        assert_int_equal(hbm_put(durable, 1, KVT_TIER_HBM, KVT_SYNC, 0), KVT_OK);
        assert_false(is_known_lost());
        lose_next();
        assert_int_equal(calls[i](durable), KVT_E_GPU);
        assert_true(is_known_lost());
        assert_int_equal(hbm_stats().gpu_lost_count, 1);
        assert_int_equal(hbm_tiers_of(only), 0);
        assert_int_equal(hbm_tiers_of(durable), KVT_TIER_HOST | KVT_TIER_NVME);
        assert_int_equal(hbm_stats().hbm_used_bytes_now, 0);
        hbm_close();
        hbm.config.fail_call = 0;
        hbm_open_again();
        assert_int_equal(hbm_get(durable, 1, true, NULL), KVT_OK);
    }
}

/* --- What is left ----------------------------------------------------------------------------- */

static void
a_copy_on_a_lost_device_is_not_shown_while_it_is_leased(void **state)
{
    kvt_lease first, second;

    (void)state;
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
    assert_int_equal(hbm_put(2, 1, KVT_TIER_HBM, KVT_SYNC, 0), KVT_OK);
    first = lease_of(1);
    second = lease_of(2);
    assert_int_equal(scanned_count(), 2);
    lose_now();
    assert_int_equal(hbm_tiers_of(1), 0);
    assert_int_equal(hbm_tiers_of(2), KVT_TIER_HOST | KVT_TIER_NVME);
    assert_int_equal(scanned_count(), 1);
    kvt_lease_release(hbm.store, first);
    kvt_lease_release(hbm.store, second);
    assert_int_equal(scanned_count(), 1);
    assert_int_equal(hbm_stats().hbm_used_bytes_now, 0);
}

static void
a_key_whose_only_copy_is_lost_can_be_put_anew(void **state)
{
    static const enum kvt_durability durabilities[] = {KVT_MEMORY, KVT_SYNC};
    kvt_lease leases[2];
    uint64_t version = 0;

    (void)state;
    for (uint64_t i = 0; i < 2; i++) {
        assert_int_equal(hbm_put(i, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
        leases[i] = lease_of(i);
    }
    lose_now();
    for (uint64_t i = 0; i < 2; i++) {
        uint8_t bytes[HBM_BLOCK_BYTES];
        struct payload_key name;
        struct kvt_put put = {.source = bytes, .length = sizeof(bytes)};
        kvt_ticket *ticket;

        payload_key_make(&name, i);
        payload_fill(bytes, sizeof(bytes), i, 2);
        put.key = name.key;
        assert_int_equal(
            kvt_put_submit(hbm.store, hbm.ns, &put, 1, durabilities[i], NULL, &ticket), KVT_OK);
        assert_int_equal(kit_result(ticket, i == 0 ? 1 : 2).status, KVT_OK);
        assert_int_equal(kit_get(hbm.store, hbm.ns, i, &version), KVT_OK);
        assert_int_equal(version, 2);
        kvt_lease_release(hbm.store, leases[i]);
    }
    assert_int_equal(hbm_stats().hbm_used_bytes_now, 0);
    assert_int_equal(scanned_count(), 2);
}

/* Of the number of a block that was on NVMe: where that was says nothing of this one. */
static void
what_only_a_lost_device_has_is_not_looked_for_below(void **state)
{
    static const uint32_t tiers[] = {KVT_TIER_HBM, KVT_TIER_HOST};

    (void)state;
    for (uint32_t run = 0; run < 2; run++) {
        kvt_lease lease;

        if (run == 0) {
            assert_int_equal(hbm_put(2, 1, KVT_TIER_HOST, KVT_SYNC, 0), KVT_OK);
            assert_int_equal(kit_delete(hbm.store, hbm.ns, 2), KVT_OK);
        }
        assert_int_equal(hbm_put(1, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
        lease = lease_of(1);
        lose_now();
        for (uint32_t i = 0; i < 2; i++)
            assert_int_equal(hbm_prefetch(1, tiers[i], 0), KVT_MISS);
        assert_int_equal(hbm_stats().corrupt_count, 0);
        assert_int_equal(hbm_stats().read_failed_count, 0);
        kvt_lease_release(hbm.store, lease);
        hbm_close();
        hbm.config.fail_call = 0;
        kit_dir_remove(hbm.path);
        kit_dir_make(hbm.path);
        hbm.options.nvme_capacity_bytes = KVT_CAPACITY_NONE; /* The second time. */
        hbm_open_again();
    }
}

/* A block as it is on the device, of so many bytes. */
static enum kvt_status
device_put(uint64_t number, uint64_t length)
{
    struct kvt_put put = {
        .length = length, .source = hbm.pool, .region = hbm.region, .tier = KVT_TIER_HBM};
    struct payload_key name;
    kvt_ticket *ticket;

    payload_key_make(&name, number);
    put.key = name.key;
    assert_int_equal(kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_MEMORY, NULL, &ticket), KVT_OK);
    return kit_result(ticket, 1).status;
}

/* The device is lost behind the loop's look at its devices, and HBM is nearly full. */
static void
blocks_of_a_device_that_is_lost_meanwhile_leave_for_room(void **state)
{
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HBM, .size = FULL_SLOT_BYTES};
    struct kvt_options options = kit_options();
    kvt_lease leases[FULL_SLOTS];
    struct sim_store sim;

    (void)state;
    options.hbm_capacity_bytes = 2 << 20;
    sim_store_open(&sim, &options);
    hbm.store = sim.store;
    assert_int_equal(kvt_namespace_open(hbm.store, "hbm", "", 0, &hbm.ns), KVT_OK);
    assert_int_equal(kvt_device_alloc(hbm.store, 0, about.size, &about.address), KVT_OK);
    assert_int_equal(kvt_region_register(hbm.store, &about, &hbm.region), KVT_OK);
    hbm.pool = about.address;
    for (uint32_t i = 0; i < FULL_SLOTS; i++) {
        assert_int_equal(device_put(i, FULL_SLOT_BYTES), KVT_OK);
        leases[i] = lease_of(i);
    }
    for (uint32_t i = 0; i < FULL_SLOTS; i++)
        kvt_lease_release(hbm.store, leases[i]);
    atomic_store(&hbm.store->devices.lost, 1);
    hbm.store->room_changed = true;
    assert_true(room_step(hbm.store));
    assert_true(hbm_stats().hbm_drop_count > 0);
    (void)kit_put(hbm.store, hbm.ns, 0, 1, HBM_BLOCK_BYTES, KVT_SYNC); /* The loop runs. */
    assert_int_equal(hbm_stats().hbm_used_bytes_now, 0);
    atomic_store(&hbm.store->devices.lost, 0);
    assert_int_equal(kvt_region_unregister(hbm.store, hbm.region), KVT_OK);
    kvt_device_free(hbm.store, 0, about.address, about.size);
    hbm.store = NULL;
    sim_store_close(&sim);
}

static enum kvt_status
prefetch_to_device_1(uint64_t number)
{
    struct kvt_prefetch how = {.struct_size = sizeof(how), .tier = KVT_TIER_HBM, .device = 1};
    struct payload_key name;
    kvt_ticket *ticket;

    payload_key_make(&name, number);
    assert_int_equal(
        kvt_prefetch_submit(hbm.store, hbm.ns, &name.key, 1, &how, NULL, &ticket), KVT_OK);
    return kit_result(ticket, 1).status;
}

/* A block is in HBM of one device. */
static void
a_block_goes_to_another_device_when_its_lost_copy_is_let_go(void **state)
{
    uint64_t version;
    kvt_lease lease;

    (void)state;
    hbm_close();
    hbm.options.device_mask = 3;
    hbm_open_again();
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HBM, KVT_SYNC, 0), KVT_OK);
    lease = lease_of(1);
    lose_now();
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(prefetch_to_device_1(1), KVT_E_GPU);
        assert_int_equal(hbm_tiers_of(1), KVT_TIER_HOST | KVT_TIER_NVME);
    }
    assert_int_equal(hbm_stats().hbm_drop_count, 0);
    kvt_lease_release(hbm.store, lease);
    assert_int_equal(prefetch_to_device_1(1), KVT_OK);
    assert_int_equal(hbm_tiers_of(1), KVT_TIER_HBM | KVT_TIER_HOST | KVT_TIER_NVME);
    assert_int_equal(hbm_stats().hbm_drop_count, 1);
    assert_int_equal(kit_get(hbm.store, hbm.ns, 1, &version), KVT_OK);
    assert_int_equal(hbm_demote(1, KVT_TIER_NVME), KVT_OK);
    assert_int_equal(hbm_stats().hbm_used_bytes_now, 0);
}

/* The loop hears of the prefetch before it looks at its devices. */
static void
a_block_goes_to_another_device_before_its_lost_copy_was_looked_for(void **state)
{
    struct kvt_options options = kit_options();
    struct sim_store sim;
    uint64_t version;
    void *other;

    (void)state;
    options.hbm_capacity_bytes = 2 << 20;
    options.device_mask = 3;
    sim_store_open(&sim, &options);
    hbm.store = sim.store;
    assert_int_equal(kvt_namespace_open(hbm.store, "hbm", "", 0, &hbm.ns), KVT_OK);
    assert_int_equal(kit_put(hbm.store, hbm.ns, 1, 1, HBM_BLOCK_BYTES, KVT_SYNC), KVT_OK);
    assert_int_equal(hbm_prefetch(1, KVT_TIER_HBM, 0), KVT_OK);
    sim.device.fail_call = atomic_load(&sim.device.call_count) + 1;
    assert_int_equal(kvt_device_alloc(hbm.store, 0, 4096, &other), KVT_E_GPU);
    assert_int_equal(prefetch_to_device_1(1), KVT_OK);
    assert_int_equal(hbm_tiers_of(1), KVT_TIER_HBM | KVT_TIER_HOST | KVT_TIER_NVME);
    assert_int_equal(hbm_stats().hbm_drop_count, 1);
    assert_int_equal(kit_get(hbm.store, hbm.ns, 1, &version), KVT_OK);
    hbm.store = NULL;
    sim_store_close(&sim);
}

/* Its copies have come, and a worker has yet to sum the block: then the device is lost. */
static void
a_copy_that_becomes_visible_after_the_loss_is_given_up(void **state)
{
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HBM, .size = HBM_BLOCK_BYTES};
    struct kvt_options options = kit_options();
    struct kvt_put put = {.length = HBM_BLOCK_BYTES, .tier = KVT_TIER_HBM};
    uint8_t bytes[HBM_BLOCK_BYTES];
    struct payload_key name;
    struct sim_store sim;
    kvt_ticket *ticket;
    uint64_t version, next_ns;
    void *other;

    (void)state;
    options.hbm_capacity_bytes = 2 << 20;
    sim_store_open(&sim, &options);
    hbm.store = sim.store;
    assert_int_equal(kvt_namespace_open(hbm.store, "hbm", "", 0, &hbm.ns), KVT_OK);
    assert_int_equal(kvt_device_alloc(hbm.store, 0, about.size, &about.address), KVT_OK);
    assert_int_equal(kvt_region_register(hbm.store, &about, &put.region), KVT_OK);
    payload_fill(bytes, sizeof(bytes), 1, 1);
    assert_int_equal(kvt_device_write(hbm.store, 0, about.address, bytes, sizeof(bytes)), KVT_OK);
    payload_key_make(&name, 1);
    put.key = name.key;
    put.source = about.address;
    assert_int_equal(kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_SYNC, NULL, &ticket), KVT_OK);
    while (hbm.store->fills_in_flight == 0 || hbm.store->devices.in_flight > 0) {
        uint64_t steps = sim_step_count(sim.world);

        sim_run_steps(sim.world, 1);
        if (sim_step_count(sim.world) == steps)
            sim_store_pass(&sim, 100);
    }
    assert_int_equal(hbm_tiers_of(1), 0);
    sim.device.fail_call = atomic_load(&sim.device.call_count) + 1;
    assert_int_equal(kvt_device_alloc(hbm.store, 0, 4096, &other), KVT_E_GPU);
    /* The loop looks for what was lost: there is nothing yet. */
    (void)loop_step(hbm.store, sim_now(sim.world), &next_ns);
    assert_int_equal(kit_result(ticket, 2).status, KVT_OK);
    assert_int_equal(hbm_tiers_of(1), KVT_TIER_HOST | KVT_TIER_NVME);
    assert_int_equal(kit_get(hbm.store, hbm.ns, 1, &version), KVT_OK);
    assert_int_equal(hbm_stats().hbm_used_bytes_now, 0);
    kvt_device_free(hbm.store, 0, about.address, about.size);
    hbm.store = NULL;
    sim_store_close(&sim);
}

/* As in a step of the loop. */
static bool
devices_look(struct kvt_store *store)
{
    bool was_busy = devices_step(store);

    (void)room_step(store);
    return was_busy;
}

/* So many steps of the loop it takes to look at all entries; in none at more than at some. */
static uint32_t
round_steps(struct kvt_store *store)
{
    struct devices *devices = &store->devices;
    uint32_t count = 0;

    while (devices->is_sweeping) {
        uint32_t before = devices->sweep_next;

        assert_false(turns_are_idle(&store->work)); /* Who waits for room waits for it. */
        assert_true(devices_look(store));
        assert_in_range(devices->sweep_next - before, 1, LOOKS_MAX);
        count++;
    }
    return count;
}

/* Two leases hold copies of the device, the first and the last of many blocks. */
static void
what_was_lost_is_looked_for_in_rounds_that_take_several_steps(void **state)
{
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HBM, .size = HBM_BLOCK_BYTES};
    struct kvt_options options = kit_options();
    struct kvt_store *store;
    kvt_lease first, last;
    struct sim_store sim;

    (void)state;
    options.hbm_capacity_bytes = 2 << 20;
    options.host_capacity_bytes = 32 << 20;
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    sim_store_open(&sim, &options);
    hbm.store = store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "hbm", "", 0, &hbm.ns), KVT_OK);
    assert_int_equal(kvt_device_alloc(store, 0, about.size, &about.address), KVT_OK);
    assert_int_equal(kvt_region_register(store, &about, &hbm.region), KVT_OK);
    hbm.pool = about.address;
    assert_int_equal(device_put(0, HBM_BLOCK_BYTES), KVT_OK);
    first = lease_of(0);
    for (uint64_t i = 1; i < MANY; i++)
        assert_int_equal(kit_put(store, hbm.ns, i, 1, 64, KVT_MEMORY), KVT_OK);
    assert_int_equal(device_put(MANY, HBM_BLOCK_BYTES), KVT_OK);
    last = lease_of(MANY);
    sim_store_pass(&sim, 1000 * 1000);
    atomic_store(&store->devices.lost, 1);
    assert_true(devices_look(store));
    assert_int_equal(round_steps(store), 3);
    assert_true(turns_are_idle(&store->work));
    assert_false(devices_look(store)); /* Nothing is looked at again before room has changed. */
    store->room_changed = true;
    assert_true(devices_look(store));
    kvt_lease_release(store, first); /* Behind the look of the round. */
    sim_store_pass(&sim, 1000 * 1000);
    assert_int_equal(hbm_stats().hbm_drop_count, 1);
    assert_int_equal(hbm_stats().entry_count_now, MANY);
    kvt_lease_release(store, last);
    sim_store_pass(&sim, 1000 * 1000);
    assert_int_equal(hbm_stats().hbm_used_bytes_now, 0);
    assert_false(store->devices.is_sweeping || store->devices.has_remains);
    atomic_store(&store->devices.lost, 0);
    assert_int_equal(kvt_region_unregister(store, hbm.region), KVT_OK);
    kvt_device_free(store, 0, about.address, about.size);
    hbm.store = NULL;
    sim_store_close(&sim);
}

static void
a_locator_into_hbm_is_good_until_its_device_is_lost(void **state)
{
    struct kvt_locator locator, other;
    const void *address;
    uint64_t length;
    kvt_lease lease;

    (void)state;
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HBM, KVT_SYNC, 0), KVT_OK);
    lease = lease_of(1);
    assert_int_equal(
        kvt_lease_address(hbm.store, lease, 0, KVT_TIER_HBM, &address, &length), KVT_OK);
    assert_int_equal(kvt_lease_export(hbm.store, lease, 0, KVT_TIER_HBM, &locator), KVT_OK);
    assert_int_equal(kvt_lease_export(hbm.store, lease, 0, KVT_TIER_HOST, &other), KVT_OK);
    assert_int_equal(locator.tier, KVT_TIER_HBM);
    assert_int_equal(locator.device, 0);
    assert_int_equal(locator.length, HBM_BLOCK_BYTES);
    assert_int_equal(locator.offset, (uintptr_t)address - (uintptr_t)slab_base(place_slab(hbm.store,
                                                              place_of_device(locator.device))));
    assert_int_equal(kvt_locator_check(hbm.store, &locator), KVT_OK);
    lose_now();
    assert_int_equal(kvt_locator_check(hbm.store, &locator), KVT_MISS);
    assert_int_equal(kvt_locator_check(hbm.store, &other), KVT_OK);
    refused(
        kvt_lease_export(hbm.store, lease, 0, KVT_TIER_HBM, &locator), KVT_E_GPU, "device 0 is");
    kvt_lease_release(hbm.store, lease);
    assert_int_equal(kvt_locator_check(hbm.store, &other), KVT_MISS);
}

static void
what_cannot_be_brought_down_from_a_lost_device_is_a_miss(void **state)
{
    struct payload_key name;
    const void *address;
    uint64_t length;
    kvt_lease lease;

    (void)state;
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
    payload_key_make(&name, 1);
    /* The copy down is the call that fails. */
    lose_next();
    assert_int_equal(
        kvt_map(hbm.store, hbm.ns, &name.key, KVT_FOREVER, &lease, &address, &length), KVT_MISS);
    assert_int_equal(lease.id, 0);
    assert_true(is_known_lost());
    assert_int_equal(hbm_stats().lease_count_now, 0);
    assert_int_equal(hbm_prefetch(1, KVT_TIER_HOST, 0), KVT_MISS);
    assert_int_equal(hbm_demote(1, KVT_TIER_NVME), KVT_MISS);
}

static void
a_lost_device_takes_and_gives_nothing_more(void **state)
{
    (void)state;
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HOST, KVT_SYNC, 0), KVT_OK);
    lose_now();
    assert_int_equal(hbm_prefetch(1, KVT_TIER_HBM, 0), KVT_E_GPU);
    assert_int_equal(hbm_tiers_of(1), KVT_TIER_HOST | KVT_TIER_NVME);
    refused(kvt_device_write(hbm.store, 0, hbm.pool, &hbm, 64), KVT_E_GPU, "device 0 failed");
    refused(register_memory(0), KVT_E_GPU, "lost");
    refused(take_memory(0), KVT_E_GPU, "lost");
    assert_int_equal(hbm_stats().gpu_lost_count, 1);
}

/* Each block says so: what was asked is not done, and nothing hangs. */
static void
requests_that_need_a_lost_device_say_so(void **state)
{
    static const uint32_t tiers[] = {KVT_TIER_HBM, KVT_TIER_HOST};
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    struct kvt_submit submit = {0};

    (void)state;
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HOST, KVT_SYNC, 0), KVT_OK);
    assert_int_equal(device->ops->event_create(device, &submit.wait_event), KVT_OK);
    lose_now();
    for (uint32_t i = 0; i < 2; i++) {
        struct kvt_put put = {.source = hbm_pool_at(0),
            .length = HBM_BLOCK_BYTES,
            .region = hbm.region,
            .tier = (uint8_t)tiers[i]};
        struct kvt_get get = {
            .destination = hbm_pool_at(0), .capacity = HBM_BLOCK_BYTES, .region = hbm.region};
        struct payload_key name;
        kvt_ticket *ticket;

        payload_key_make(&name, 5);
        put.key = name.key;
        assert_int_equal(
            kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_SYNC, NULL, &ticket), KVT_OK);
        assert_int_equal(kit_result(ticket, 2).status, KVT_E_GPU);
        assert_int_equal(hbm_tiers_of(5), 0);
        payload_key_make(&name, 1);
        get.key = name.key;
        assert_int_equal(kvt_get_submit(hbm.store, hbm.ns, &get, 1, NULL, &ticket), KVT_OK);
        assert_int_equal(kit_result(ticket, 1).status, KVT_E_GPU);
        assert_int_equal(
            kvt_delete_submit(hbm.store, hbm.ns, &name.key, 1, &submit, &ticket), KVT_OK);
        assert_int_equal(kit_result(ticket, 1).status, KVT_E_GPU);
    }
    device->ops->event_destroy(device, submit.wait_event);
    refused(
        kvt_lease_release_after(hbm.store, lease_of(1), 0, device->ops->stream(device, DEVICE_OUT)),
        KVT_E_GPU, "lost");
    assert_int_equal(hbm_stats().lease_count_now, 0); /* It was released all the same. */
    assert_int_equal(hbm_get(1, 1, false, NULL), KVT_OK);
}

/* A copy that fails is not a device that is lost: what was above stays, and goes the next time. */
static void
a_demotion_whose_copy_fails_keeps_the_copy(void **state)
{
    static const enum kvt_status answers[] = {KVT_E_NOMEM, KVT_E_INVAL};
    static const enum kvt_status told[] = {KVT_E_NOMEM, KVT_E_GPU};

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(hbm_put(i, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
        hbm.config.fail_status = answers[i];
        lose_next();
        assert_int_equal(hbm_demote(i, KVT_TIER_NVME), told[i]);
        assert_false(is_known_lost());
        assert_int_equal(hbm_tiers_of(i), KVT_TIER_HBM);
        assert_int_equal(hbm_demote(i, KVT_TIER_NVME), KVT_OK);
        assert_int_equal(hbm_tiers_of(i), KVT_TIER_NVME);
        assert_int_equal(hbm_get(i, 1, true, NULL), KVT_OK);
    }
    hbm.config.fail_status = KVT_OK;
}

/* Whoever goes on as if the device were there costs no memory. */
static void
what_is_asked_of_a_lost_device_takes_no_slots(void **state)
{
    uint8_t bytes[HBM_BLOCK_BYTES] = {0};
    struct payload_key name;
    struct kvt_put put = {
        .source = hbm_pool_at(0), .length = HBM_BLOCK_BYTES, .region = hbm.region};
    uint64_t stranded_count;
    kvt_ticket *ticket;

    (void)state;
    lose_now();
    stranded_count = hbm_stats().slot_stranded_count;
    assert_in_range(stranded_count, 0, 1);
    payload_key_make(&name, 1);
    put.key = name.key;
    for (uint32_t i = 0; i < 300; i++) { /* 4 MiB of HOST have some 200. */
        assert_int_equal(
            kvt_device_write(hbm.store, 0, hbm_pool_at(0), bytes, sizeof(bytes)), KVT_E_GPU);
        assert_int_equal(
            kvt_device_read(hbm.store, 0, bytes, hbm_pool_at(0), sizeof(bytes)), KVT_E_GPU);
        assert_int_equal(
            kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_SYNC, NULL, &ticket), KVT_OK);
        assert_int_equal(kit_result(ticket, 2).status, KVT_E_GPU);
    }
    assert_int_equal(hbm_stats().slot_stranded_count, stranded_count);
    assert_int_equal(kit_put(hbm.store, hbm.ns, 2, 1, HBM_BLOCK_BYTES, KVT_SYNC), KVT_OK);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, hbm_setup, hbm_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_device_is_lost_when_a_call_has_said_so),
        TEST(a_copy_on_a_lost_device_is_not_shown_while_it_is_leased),
        TEST(a_key_whose_only_copy_is_lost_can_be_put_anew),
        TEST(what_only_a_lost_device_has_is_not_looked_for_below),
        cmocka_unit_test(blocks_of_a_device_that_is_lost_meanwhile_leave_for_room),
        cmocka_unit_test(a_copy_that_becomes_visible_after_the_loss_is_given_up),
        cmocka_unit_test(what_was_lost_is_looked_for_in_rounds_that_take_several_steps),
        TEST(a_block_goes_to_another_device_when_its_lost_copy_is_let_go),
        cmocka_unit_test(a_block_goes_to_another_device_before_its_lost_copy_was_looked_for),
        TEST(a_locator_into_hbm_is_good_until_its_device_is_lost),
        TEST(what_cannot_be_brought_down_from_a_lost_device_is_a_miss),
        TEST(a_lost_device_takes_and_gives_nothing_more),
        TEST(requests_that_need_a_lost_device_say_so),
        TEST(a_demotion_whose_copy_fails_keeps_the_copy),
        TEST(what_is_asked_of_a_lost_device_takes_no_slots),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
