/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hbm_kit.c - a small store with an HBM tier (hbm_kit.h).
 */
#include "hbm_kit.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "kvtier/kvtier_unstable.h"
#include "payload.h"
#include "store_internal.h"

enum {
    HBM_BYTES = 2 << 20,
    POOL_BYTES = HBM_POOL_BLOCKS * HBM_BLOCK_BYTES,
    DELAY_NS = 200000,
};

struct hbm_kit hbm;

void
hbm_open_again(void)
{
    struct kvt_region_options about = {.struct_size = sizeof(about), .tier = KVT_TIER_HBM};
    void *address;

    assert_int_equal(kvt_open_env(hbm.path, &hbm.options, &hbm.env, &hbm.store), KVT_OK);
    assert_int_equal(kvt_namespace_open(hbm.store, "hbm", "", 0, &hbm.ns), KVT_OK);
    assert_int_equal(
        device_host_memory_take(hbm_device(hbm.store->devices.tiers[0]), POOL_BYTES, &address),
        KVT_OK);
    hbm.pool = address;
    about.address = address;
    about.size = POOL_BYTES;
    assert_int_equal(kvt_region_register(hbm.store, &about, &hbm.region), KVT_OK);
}

void
hbm_close(void)
{
    assert_int_equal(kvt_region_unregister(hbm.store, hbm.region), KVT_OK);
    device_host_memory_put(hbm_device(hbm.store->devices.tiers[0]), hbm.pool, POOL_BYTES);
    assert_int_equal(kvt_close(hbm.store), KVT_OK);
    hbm.store = NULL;
}

int
hbm_setup(void **state)
{
    (void)state;
    kit_dir_make(hbm.path);
    hbm.config =
        (struct device_host_config){.seed = 7, .delay_ns_max = DELAY_NS, .device_count = 2};
    kvt_env_host(&hbm.env);
    hbm.env.device = &device_host_ops;
    hbm.env.device_context = &hbm.config;
    hbm.options = kit_options();
    hbm.options.hbm_capacity_bytes = HBM_BYTES;
    hbm_open_again();
    return 0;
}

int
hbm_teardown(void **state)
{
    (void)state;
    if (hbm.store != NULL)
        hbm_close();
    kit_dir_remove(hbm.path);
    return 0;
}

uint8_t *
hbm_pool_at(uint32_t i)
{
    return (uint8_t *)((uintptr_t)hbm.pool + (uintptr_t)i * HBM_BLOCK_BYTES);
}

/* Born on the device: filled there, then put. */
enum kvt_status
hbm_put(uint64_t number, uint64_t version, uint32_t tier, enum kvt_durability durability,
    uint32_t flags)
{
    struct payload_key name;
    struct kvt_put put = {.length = HBM_BLOCK_BYTES,
        .source = hbm_pool_at((uint32_t)number % HBM_POOL_BLOCKS),
        .region = hbm.region,
        .tier = (uint8_t)tier,
        .flags = flags};
    uint8_t bytes[HBM_BLOCK_BYTES];
    kvt_ticket *ticket;

    payload_key_make(&name, number);
    payload_fill(bytes, sizeof(bytes), number, version);
    assert_int_equal(
        kvt_device_write(hbm.store, 0, (void *)(uintptr_t)put.source, bytes, sizeof(bytes)),
        KVT_OK);
    put.key = name.key;
    assert_int_equal(kvt_put_submit(hbm.store, hbm.ns, &put, 1, durability, NULL, &ticket), KVT_OK);
    return kit_result(ticket, durability == KVT_MEMORY ? 1 : 2).status;
}

/* The block's bytes, by way of the device or straight to the host. */
enum kvt_status
hbm_get(uint64_t number, uint64_t version, bool by_device, uint32_t *tier_out)
{
    struct payload_key name;
    uint8_t bytes[HBM_BLOCK_BYTES] = {0};
    struct kvt_get get = {.destination = bytes, .capacity = sizeof(bytes)};
    struct kvt_result result;
    uint64_t found = 0;
    kvt_ticket *ticket;

    payload_key_make(&name, number);
    get.key = name.key;
    if (by_device) {
        memset(bytes, 0xEE, sizeof(bytes));
        get.destination = hbm_pool_at(HBM_POOL_BLOCKS - 1);
        get.region = hbm.region;
        assert_int_equal(
            kvt_device_write(hbm.store, 0, get.destination, bytes, sizeof(bytes)), KVT_OK);
    }
    assert_int_equal(kvt_get_submit(hbm.store, hbm.ns, &get, 1, NULL, &ticket), KVT_OK);
    result = kit_result(ticket, 1);
    if (result.status != KVT_OK)
        return result.status;
    if (by_device)
        assert_int_equal(
            kvt_device_read(hbm.store, 0, bytes, get.destination, sizeof(bytes)), KVT_OK);
    assert_int_equal(result.length, HBM_BLOCK_BYTES);
    assert_true(payload_is_right(bytes, sizeof(bytes), number, &found));
    assert_int_equal(found, version);
    if (tier_out != NULL)
        *tier_out = result.tier;
    return KVT_OK;
}

unsigned
hbm_tiers_of(uint64_t number)
{
    struct payload_key name;
    uint8_t tiers;

    payload_key_make(&name, number);
    assert_int_equal(kvt_lookup(hbm.store, hbm.ns, &name.key, 1, &tiers, NULL, NULL), KVT_OK);
    return tiers;
}

enum kvt_status
hbm_prefetch(uint64_t number, uint32_t tier, uint64_t deadline_ns)
{
    struct kvt_prefetch how = {
        .struct_size = sizeof(how), .tier = tier, .deadline_ns = deadline_ns};
    struct payload_key name;
    kvt_ticket *ticket;

    payload_key_make(&name, number);
    assert_int_equal(
        kvt_prefetch_submit(hbm.store, hbm.ns, &name.key, 1, &how, NULL, &ticket), KVT_OK);
    return kit_result(ticket, 1).status;
}

enum kvt_status
hbm_demote(uint64_t number, uint32_t tier)
{
    struct payload_key name;
    kvt_ticket *ticket;

    payload_key_make(&name, number);
    assert_int_equal(
        kvt_demote_submit(hbm.store, hbm.ns, &name.key, 1, tier, NULL, &ticket), KVT_OK);
    return kit_result(ticket, 1).status;
}

void
hbm_stream_finish(struct device *device, void *stream)
{
    enum kvt_status status;
    void *event;

    assert_int_equal(device->ops->event_create(device, &event), KVT_OK);
    assert_int_equal(device->ops->event_record(device, event, stream), KVT_OK);
    while ((status = device->ops->event_query(device, event)) == KVT_NOT_READY)
        sched_yield();
    assert_int_equal(status, KVT_OK);
    device->ops->event_destroy(device, event);
}

static void
kernel_hold(void *context, void *memory)
{
    const atomic_bool *may_go = context;

    (void)memory;
    while (!atomic_load(may_go))
        sched_yield();
}

void
hbm_stream_hold(struct device *device, void *stream, void *memory, atomic_bool *may_go)
{
    assert_int_equal(device_host_launch(device, stream, kernel_hold, may_go, memory), KVT_OK);
}

struct kvt_stats
hbm_stats(void)
{
    struct kvt_stats all = {.struct_size = sizeof(all)};

    assert_int_equal(kvt_stats_get(hbm.store, &all), KVT_OK);
    return all;
}
