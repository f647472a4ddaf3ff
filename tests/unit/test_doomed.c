/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_doomed.c - blocks that have left the map while leases hold them: a step of the loop looks at
 * some of them, and only when one was given back; all that were come free, and whoever waits for
 * room waits for that. In a simulated world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kvtier/kvtier_unstable.h"
#include "lease.h"
#include "payload.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BLOCK_BYTES = 4096,
    IN_HOST = 8192,
    BLOCKS_MIN = 6144,
    LOOKS_MAX = 1024, /* In a step of the loop: six of them for all blocks. */
    STEPS_MAX = 2000, /* Of all actors, for one put. */
};

static const uint64_t settle_ns = UINT64_C(10) * 1000 * 1000;

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;
static kvt_lease leases[IN_HOST];
static uint32_t numbers[IN_HOST]; /* Entries that these hold; ENTRY_NONE: it was given back. */
static uint32_t count;

static void
lease(uint32_t i)
{
    struct payload_key name;
    uint32_t leading_count;

    assert_true(i < IN_HOST);
    payload_key_make(&name, i);
    assert_int_equal(kvt_lookup(store, ns, &name.key, 1, NULL, &leading_count, &leases[i]), KVT_OK);
    numbers[i] = lease_current(store, leases[i])->numbers[0];
}

/* HOST is full of blocks that have left the map, and are leased. */
static int
setup(void **state)
{
    struct kvt_options options = kit_options();

    (void)state;
    options.host_capacity_bytes = IN_HOST * BLOCK_BYTES;
    options.host_high_percent = 100;
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    options.lease_count_max = IN_HOST;
    sim_store_open(&sim, &options);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "here", "", 0, &ns), KVT_OK);
    count = 0;
    while (kit_put(store, ns, count, 1, BLOCK_BYTES, KVT_MEMORY) == KVT_OK)
        lease(count++);
    assert_in_range(count, BLOCKS_MIN, IN_HOST);
    assert_int_equal(kvt_namespace_clear(store, ns), KVT_OK);
    sim_store_pass(&sim, settle_ns);
    assert_int_equal(store->doomed_count, count);
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

static void
release(uint32_t i)
{
    kvt_lease_release(store, leases[i]);
    numbers[i] = ENTRY_NONE;
}

/* The block at that place among those that wait. */
static void
release_at(uint32_t place)
{
    uint32_t i = 0;

    while (i < count && numbers[i] != store->doomed[place])
        i++;
    assert_true(i < count);
    release(i);
}

static void
a_step_looks_at_some_of_them_when_one_was_given_back(void **state)
{
    uint32_t left = count;

    (void)state;
    assert_false(entry_doomed_step(store));
    assert_int_equal(store->doomed_left, 0);
    release_at(0);
    for (; left > 0; left = store->doomed_left) {
        assert_true(entry_doomed_step(store));
        assert_in_range(left - store->doomed_left, 1, LOOKS_MAX);
    }
    assert_int_equal(store->doomed_count, count - 1);
    assert_true(entry_doomed_step(store)); /* The end of the round. */
    assert_false(entry_doomed_step(store));
}

static void
all_come_free_that_were_given_back(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < count; i += 2)
        release(i);
    sim_store_pass(&sim, settle_ns);
    assert_int_equal(store->doomed_count, count / 2);
    for (uint32_t i = 1; i < count; i += 2)
        release(i);
    sim_store_pass(&sim, settle_ns);
    assert_int_equal(store->doomed_count, 0);
    assert_int_equal(residency_count(store->map), 0);
    assert_int_equal(slab_used(store->slab), 0);
}

static void
one_that_is_given_back_behind_the_look_comes_free_in_the_next_round(void **state)
{
    (void)state;
    release_at(0);
    assert_true(entry_doomed_step(store));
    release_at(count - 1);
    sim_store_pass(&sim, settle_ns);
    assert_int_equal(store->doomed_count, count - 2);
}

/* It is tried again in each step. */
static void
put_check(void)
{
    static uint8_t bytes[BLOCK_BYTES];
    struct kvt_put put = {.source = bytes, .length = BLOCK_BYTES};
    struct payload_key name;
    kvt_ticket *ticket;

    payload_key_make(&name, count);
    put.key = name.key;
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, KVT_MEMORY, NULL, &ticket), KVT_OK);
    for (uint32_t i = 0; i < STEPS_MAX && kvt_ticket_wait(ticket, KVT_STAGE_DONE, 0) == KVT_LATE;
         i++) {
        store->room_changed = true;
        sim_run_steps(sim.world, 1);
    }
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
}

/* Of all that were given back it is looked at last. */
static void
a_put_waits_for_the_end_of_a_round(void **state)
{
    (void)state;
    release_at(0);
    assert_true(entry_doomed_step(store));
    put_check();
}

static void
a_put_waits_for_the_round_behind_this_one(void **state)
{
    struct slot slot;

    (void)state;
    release_at(count - 1);
    assert_true(entry_doomed_step(store));
    assert_int_equal(slab_take(store->slab, BLOCK_BYTES, &slot), KVT_OK);
    release_at(store->doomed_count - 1);
    put_check();
}

/* With the end of the round nothing is in flight any more. */
static void
a_put_is_refused_when_nothing_was_given_back(void **state)
{
    struct slot slot;

    (void)state;
    release_at(0);
    while (entry_doomed_step(store))
        ;
    assert_int_equal(slab_take(store->slab, BLOCK_BYTES, &slot), KVT_OK);
    assert_int_equal(kit_put(store, ns, count, 1, BLOCK_BYTES, KVT_MEMORY), KVT_E_NOSPC);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_step_looks_at_some_of_them_when_one_was_given_back),
        TEST(all_come_free_that_were_given_back),
        TEST(one_that_is_given_back_behind_the_look_comes_free_in_the_next_round),
        TEST(a_put_waits_for_the_end_of_a_round),
        TEST(a_put_waits_for_the_round_behind_this_one),
        TEST(a_put_is_refused_when_nothing_was_given_back),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
