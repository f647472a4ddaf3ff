/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_load_rates.c - what kvt_estimate() knows of HOST: each way that bytes are had from there
 * tells it, and nothing else does; of NVMe, of which parts are read by pages; and for how long it
 * knows that.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "hbm_kit.h"
#include "kvtier/hints.h"
#include "kvtier/kvtier_unstable.h"
#include "payload.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"

enum {
    KEY = 5,
    OTHER = 6
};

/* Of a block in HOST. */
static uint64_t
load_ns(void)
{
    struct kvt_cost cost = {.struct_size = sizeof(cost)};
    struct payload_key name;

    payload_key_make(&name, KEY);
    assert_int_equal(kvt_estimate(hbm.store, hbm.ns, &name.key, 1, &cost), KVT_OK);
    assert_int_equal(cost.host_bytes, HBM_BLOCK_BYTES);
    return cost.load_ns;
}

static void
a_get_into_the_memory_of_the_host_tells_the_rate(void **state)
{
    (void)state;
    assert_int_equal(hbm_put(KEY, 1, KVT_TIER_HOST, KVT_MEMORY, 0), KVT_OK);
    assert_int_equal(load_ns(), 0);
    assert_int_equal(hbm_get(KEY, 1, false, NULL), KVT_OK);
    assert_int_not_equal(load_ns(), 0);
    assert_int_equal(hbm.store->host_meter.bytes, HBM_BLOCK_BYTES);
}

static void
a_get_into_the_memory_of_a_device_tells_the_rate(void **state)
{
    uint32_t tier = 0;

    (void)state;
    assert_int_equal(hbm_put(KEY, 1, KVT_TIER_HOST, KVT_MEMORY, 0), KVT_OK);
    assert_int_equal(hbm_get(KEY, 1, true, &tier), KVT_OK);
    assert_int_equal(tier, KVT_TIER_HOST);
    assert_int_not_equal(load_ns(), 0);
    assert_int_equal(hbm.store->host_meter.bytes, HBM_BLOCK_BYTES);
}

static void
a_move_up_tells_the_rate(void **state)
{
    (void)state;
    assert_int_equal(hbm_put(KEY, 1, KVT_TIER_HOST, KVT_MEMORY, 0), KVT_OK);
    assert_int_equal(hbm_put(OTHER, 1, KVT_TIER_HOST, KVT_MEMORY, 0), KVT_OK);
    assert_int_equal(hbm_prefetch(OTHER, KVT_TIER_HBM, 0), KVT_OK);
    assert_int_not_equal(load_ns(), 0);
    assert_int_equal(hbm.store->host_meter.bytes, HBM_BLOCK_BYTES);
}

/* What comes down is summed on its way, which is no load; nor is a get of what is in HBM. */
static void
a_move_down_tells_nothing(void **state)
{
    uint32_t tier = 0;

    (void)state;
    assert_int_equal(hbm_put(KEY, 1, KVT_TIER_HOST, KVT_MEMORY, 0), KVT_OK);
    assert_int_equal(hbm_put(OTHER, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
    assert_int_equal(hbm_get(OTHER, 1, true, &tier), KVT_OK);
    assert_int_equal(tier, KVT_TIER_HBM);
    assert_int_equal(hbm_demote(OTHER, KVT_TIER_HOST), KVT_OK);
    assert_int_equal(hbm_stats().hbm_lower_count, 1);
    assert_int_equal(hbm.store->host_meter.busy_ns, 0);
    assert_int_equal(hbm.store->host_meter.bytes, 0);
    assert_int_equal(load_ns(), 0);
}

/* A store that only ever reads small parts knows from them what whole blocks take. */
static void
a_part_on_nvme_tells_the_rate_of_its_pages(void **state)
{
    enum {
        PARTS = 64,
        BLOCK_PAGES = 4,
    };
    static uint8_t bytes[BLOCK_PAGES * PAGE_BYTES];
    static const struct {
        uint64_t length, counted_bytes;
    } blocks[] = {
        {PAGE_BYTES / 2, PAGE_BYTES / 2},
        {sizeof(bytes), PAGE_BYTES},
    };

    (void)state;
    for (uint64_t key = 0; key < 2; key++) {
        struct kvt_key name = {.bytes = &key, .length = sizeof(key)};
        struct kvt_put put = {
            .key = name, .source = bytes, .length = blocks[key].length, .part_count = PARTS};
        struct kvt_get get = {.key = name,
            .destination = bytes,
            .capacity = sizeof(bytes),
            .part_first = 3,
            .part_count = 1};
        uint64_t known_bytes;
        kvt_ticket *ticket;

        assert_int_equal(
            kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_SYNC, NULL, &ticket), KVT_OK);
        assert_int_equal(kit_result(ticket, KVT_STAGE_DURABLE).status, KVT_OK);
        hbm_close();
        hbm_open_again();
        known_bytes = hbm.store->nvme_meter.bytes;
        assert_int_equal(kvt_get_submit(hbm.store, hbm.ns, &get, 1, NULL, &ticket), KVT_OK);
        assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
        (void)hbm_stats(); /* The loop is past the answer. */
        assert_int_equal(hbm.store->nvme_meter.bytes - known_bytes, blocks[key].counted_bytes);
    }
}

/* As behind a process that was stopped while a block was on its way: what came before, and that,
 * count for little as soon as other blocks have come at the rate of before. */
static void
a_read_that_took_an_hour_is_forgotten(void **state)
{
    static const struct kvt_options options = {.struct_size = sizeof(options),
        .host_capacity_bytes = 2 << 20,
        .nvme_capacity_bytes = 16 << 20,
        .segment_bytes = 1 << 20,
        .block_bytes_max = 64 << 10};
    static const struct sim_rule stall = {.ops = SIM_READ,
        .effect = SIM_STALL,
        .file = "data.",
        .nth = 1,
        .stall_ns = UINT64_C(3600) * 1000 * 1000 * 1000};
    static uint8_t bytes[64 << 10];
    const uint64_t ms_ns = 1000 * 1000;
    const uint64_t mib = 1 << 20;
    struct kvt_get get = {.destination = bytes, .capacity = sizeof(bytes)};
    struct payload_key name;
    struct sim_store sim;
    struct load_meter *meter;
    kvt_namespace ns;
    kvt_ticket *ticket;

    (void)state;
    payload_key_make(&name, KEY);
    get.key = name.key;
    sim_store_open(&sim, &options);
    assert_int_equal(kvt_namespace_open(sim.store, "ns", "", 0, &ns), KVT_OK);
    assert_int_equal(kit_put(sim.store, ns, KEY, 1, sizeof(bytes), KVT_SYNC), KVT_OK);
    assert_int_equal(kvt_close(sim.store), KVT_OK);
    sim_store_reopen(&sim);
    assert_int_equal(kvt_namespace_open(sim.store, "ns", "", 0, &ns), KVT_OK);
    meter = &sim.store->nvme_meter;
    *meter = (struct load_meter){.bytes = 512 * mib, .busy_ns = 512 * ms_ns};
    sim_rule_add(sim.world, &stall);
    assert_int_equal(kvt_get_submit(sim.store, ns, &get, 1, NULL, &ticket), KVT_OK);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    sim_rules_clear(sim.world);
    assert_in_range(meter->busy_ns, 1, 10 * 1000 * ms_ns);
    assert_true(load_meter_ns(meter, mib) > 2 * ms_ns);
    for (uint32_t i = 0; i < 4 * 1024; i++) {
        meter->bytes += mib;
        meter->busy_ns += ms_ns;
        load_meter_age(meter);
    }
    assert_in_range(load_meter_ns(meter, mib), ms_ns / 2, 2 * ms_ns);
    sim_store_close(&sim);
}

/* One long read of few bytes: what it tells of many is more than 64 bits of nanoseconds. */
static void
a_time_beyond_all_numbers_is_told_as_a_long_one(void **state)
{
    const struct load_meter meter = {.bytes = 8, .busy_ns = UINT64_C(7) * 1000 * 1000 * 1000};

    (void)state;
    assert_int_equal(load_meter_ns(&meter, UINT64_C(64) << 30), UINT64_C(1000000000000000000));
    assert_int_equal(load_meter_ns(&meter, 16), 2 * meter.busy_ns);
}

#define HBM(test) cmocka_unit_test_setup_teardown(test, hbm_setup, hbm_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        HBM(a_get_into_the_memory_of_the_host_tells_the_rate),
        HBM(a_get_into_the_memory_of_a_device_tells_the_rate),
        HBM(a_move_up_tells_the_rate),
        HBM(a_move_down_tells_nothing),
        HBM(a_part_on_nvme_tells_the_rate_of_its_pages),
        cmocka_unit_test(a_read_that_took_an_hour_is_forgotten),
        cmocka_unit_test(a_time_beyond_all_numbers_is_told_as_a_long_one),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
