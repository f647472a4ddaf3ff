/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hidden_copies.c - slots of copies in HBM that were found bad under a pin: they come back
 * when no pin is left, whoever had it, and however many they are. In a simulated world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "payload.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BYTES = 4096,
    IN_HBM = 2048,
    MANY = 1500, /* More than a step of the loop looks at. */
    AT_ONCE = 1024,
};

static const uint64_t settle_ns = UINT64_C(3) * 1000 * 1000 * 1000;

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;

static int
setup(void **state)
{
    struct kvt_options options = kit_options();

    (void)state;
    options.hbm_capacity_bytes = (uint64_t)IN_HBM * BYTES;
    options.host_capacity_bytes = (uint64_t)4 * IN_HBM * BYTES;
    options.nvme_capacity_bytes = 64 << 20;
    sim_store_open(&sim, &options);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "here", "", 0, &ns), KVT_OK);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    kvt_abort(store);
    sim_world_destroy(sim.world);
    return 0;
}

static kvt_ticket *
raise_submit(uint64_t number)
{
    const struct kvt_prefetch how = {.struct_size = sizeof(how), .tier = KVT_TIER_HBM};
    struct payload_key name;
    kvt_ticket *ticket;

    payload_key_make(&name, number);
    assert_int_equal(kvt_prefetch_submit(store, ns, &name.key, 1, &how, NULL, &ticket), KVT_OK);
    return ticket;
}

/* A block on NVMe whose copy in HBM is hidden, with a pin; HOST has none. */
static uint32_t
hidden_make(uint64_t key)
{
    uint32_t number;

    assert_int_equal(kit_put(store, ns, key, 1, BYTES, KVT_SYNC), KVT_OK);
    assert_int_equal(kit_result(raise_submit(key), KVT_STAGE_DONE).status, KVT_OK);
    number = kit_entry(store, ns, key);
    sim_store_pass(&sim, settle_ns);
    assert_true(entry_host_release(store, number, KVT_REASON_EVICTED));
    residency_pin(store->map, number);
    assert_true(entry_hbm_hide(store, number));
    assert_int_equal(entry_tiers(store, number), TIER_NVME);
    return number;
}

static uint64_t
used_bytes(void)
{
    return slab_used(place_slab(store, POLICY_HBM));
}

static void
a_step_looks_at_some_of_many(void **state)
{
    uint64_t used;
    uint32_t numbers[MANY];

    (void)state;
    for (uint64_t i = 0; i < MANY; i++) {
        assert_int_equal(kit_put(store, ns, i, 1, BYTES, KVT_MEMORY), KVT_OK);
        assert_int_equal(kit_result(raise_submit(i), KVT_STAGE_DONE).status, KVT_OK);
        numbers[i] = kit_entry(store, ns, i);
    }
    sim_store_pass(&sim, settle_ns);
    used = used_bytes();
    for (uint32_t i = 0; i < MANY; i++) {
        residency_pin(store->map, numbers[i]);
        assert_true(entry_hbm_hide(store, numbers[i]));
        assert_true(entry_is_hiding(store, numbers[i]));
        entry_unpin(store, numbers[i]);
        assert_false(entry_is_hiding(store, numbers[i]));
    }
    assert_true(hidden_copies_step(store));
    assert_int_equal(used_bytes(), used - (uint64_t)AT_ONCE * BYTES);
    assert_true(hidden_copies_step(store));
    assert_int_equal(used_bytes(), used - (uint64_t)MANY * BYTES);
}

/* Lookups say nothing when their pin goes. */
static void
a_pin_that_goes_in_silence_keeps_no_slot(void **state)
{
    uint32_t number = hidden_make(1);
    uint64_t used = used_bytes();
    uint64_t step_count;

    (void)state;
    env_wake(&store->env, store->loop_task);
    sim_store_loop(&sim);
    step_count = sim_step_count(sim.world);
    sim_store_pass(&sim, settle_ns);
    assert_in_range(sim_step_count(sim.world) - step_count, 0, 100); /* No spin. */
    assert_int_equal(used_bytes(), used);
    (void)residency_unpin(store->map, number);
    sim_store_pass(&sim, settle_ns);
    assert_int_equal(used_bytes(), used - BYTES);
    assert_int_equal(hidden_copies_next_ns(store), UINT64_MAX);
}

/* The read that a prefetch waits for has a pin of its own. */
static void
a_prefetch_is_not_in_its_own_way(void **state)
{
    uint32_t number = hidden_make(1);
    kvt_ticket *ticket = raise_submit(1);

    (void)state;
    sim_store_loop(&sim);
    assert_int_equal(store->reads_in_flight, 1);
    (void)residency_unpin(store->map, number);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    sim_store_pass(&sim, settle_ns);
    assert_int_equal(used_bytes(), BYTES);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_step_looks_at_some_of_many),
        TEST(a_pin_that_goes_in_silence_keeps_no_slot),
        TEST(a_prefetch_is_not_in_its_own_way),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
