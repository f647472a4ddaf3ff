/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_load_rates.c - what kvt_estimate() knows of HOST: each way that bytes are had from there
 * tells it, and nothing else does.
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

#define HBM(test) cmocka_unit_test_setup_teardown(test, hbm_setup, hbm_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        HBM(a_get_into_the_memory_of_the_host_tells_the_rate),
        HBM(a_get_into_the_memory_of_a_device_tells_the_rate),
        HBM(a_move_up_tells_the_rate),
        HBM(a_move_down_tells_nothing),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
