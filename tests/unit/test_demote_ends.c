/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_demote_ends.c - what a demotion to NVMe is told whose block could not be written, or left
 * meanwhile. In a simulated world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "payload.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_kit.h"

enum {
    PARTS = 2, /* An image is made before the block is written. */
    BLOCK_BYTES = 60000,
    BLOCKS_MAX = 200, /* More than NVMe has room for. */
    ALLOCATIONS = 8,  /* Of which one fails; some more than a write takes. */
    MOMENTS = 60, /* Steps of the world after which something comes; some more than the write. */
};

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;

static int
setup(void **state)
{
    struct kvt_options options = kit_options();

    (void)state;
    sim_store_open(&sim, &options);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "space", "", 0, &ns), KVT_OK);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    sim_store_close(&sim);
    return 0;
}

/* A block that is only in HOST. */
static void
block_make(uint64_t number)
{
    static uint8_t bytes[BLOCK_BYTES];
    struct payload_key name;
    struct kvt_put put = {.source = bytes, .length = BLOCK_BYTES, .part_count = PARTS};
    kvt_ticket *ticket;

    payload_key_make(&name, number);
    payload_fill(bytes, BLOCK_BYTES, number, 1);
    put.key = name.key;
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, KVT_MEMORY, NULL, &ticket), KVT_OK);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
}

static kvt_ticket *
demote_submit(uint64_t number)
{
    struct payload_key name;
    kvt_ticket *ticket;

    payload_key_make(&name, number);
    assert_int_equal(
        kvt_demote_submit(store, ns, &name.key, 1, KVT_TIER_NVME, NULL, &ticket), KVT_OK);
    return ticket;
}

static void
a_demotion_of_what_is_cleared_meanwhile_finds_no_block(void **state)
{
    uint32_t missed_count = 0;

    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        enum kvt_status status;
        kvt_ticket *ticket;

        block_make(moment);
        ticket = demote_submit(moment);
        sim_run_steps(sim.world, moment);
        assert_int_equal(kvt_namespace_clear(store, ns), KVT_OK);
        status = kit_result(ticket, KVT_STAGE_DONE).status;
        if (status != KVT_MISS)
            assert_int_equal(status, KVT_OK);
        missed_count += status == KVT_MISS;
    }
    assert_in_range(missed_count, 1, MOMENTS - 1);
}

/* No memory for the image, for one thing. */
static void
a_demotion_without_memory_to_write_says_so(void **state)
{
    uint32_t refused_count = 0;

    (void)state;
    for (uint32_t nth = 1; nth <= ALLOCATIONS; nth++) {
        enum kvt_status status;
        kvt_ticket *ticket;

        block_make(nth);
        ticket = demote_submit(nth);
        sim_memory_fail(sim.world, nth, false);
        status = kit_result(ticket, KVT_STAGE_DONE).status;
        sim_memory_fail(sim.world, 0, false);
        if (status == KVT_OK)
            continue;
        assert_int_equal(status, KVT_E_NOMEM);
        refused_count++;
        assert_int_equal(kit_result(demote_submit(nth), KVT_STAGE_DONE).status, KVT_OK);
    }
    assert_in_range(refused_count, 1, ALLOCATIONS);
}

/* Leases hold all that NVMe has: none of it can go. */
static void
a_demotion_without_room_to_write_says_so(void **state)
{
    kvt_lease leases[BLOCKS_MAX];
    enum kvt_status status = KVT_OK;
    uint32_t count = 0;
    uint8_t tiers;

    (void)state;
    while (status == KVT_OK) {
        struct payload_key name;

        assert_true(count < BLOCKS_MAX);
        block_make(count);
        status = kit_result(demote_submit(count), KVT_STAGE_DONE).status;
        payload_key_make(&name, count);
        assert_int_equal(kvt_lookup(store, ns, &name.key, 1, &tiers, NULL, &leases[count]), KVT_OK);
        count++;
    }
    assert_int_equal(status, KVT_E_NOSPC);
    assert_int_equal(tiers, KVT_TIER_HOST);
    while (count-- > 0)
        kvt_lease_release(store, leases[count]);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_demotion_of_what_is_cleared_meanwhile_finds_no_block),
        TEST(a_demotion_without_memory_to_write_says_so),
        TEST(a_demotion_without_room_to_write_says_so),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
