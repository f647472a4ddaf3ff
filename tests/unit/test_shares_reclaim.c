/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_shares_reclaim.c - a share of NVMe that changes while blocks of its namespace are about to
 * leave. In a simulated world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kvtier/hints.h"
#include "relocate.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BLOCK_BYTES = KIT_BLOCK_BYTES_MAX,
    OWN_COUNT = 20,   /* More than a segment holds. */
    SHARE_FIRST = 8,  /* Blocks: some of the first segment stay. */
    SHARE_LATER = 16, /* As much as can be promised. */
    OTHER_COUNT = 400,
    OTHER_FIRST = 100000,
    PUT_STEPS = 200, /* One is over by then. */
};

static struct sim_store sim;
static kvt_namespace own, other;

static int
setup(void **state)
{
    struct kvt_options options = kit_options();

    (void)state;
    sim_store_open(&sim, &options);
    assert_int_equal(kvt_namespace_open(sim.store, "own", "", 0, &own), KVT_OK);
    assert_int_equal(kvt_namespace_open(sim.store, "other", "", 0, &other), KVT_OK);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    sim_store_close(&sim);
    return 0;
}

static void
share(uint64_t count)
{
    assert_int_equal(
        kvt_namespace_share_set(sim.store, own, KVT_TIER_NVME, count * BLOCK_BYTES), KVT_OK);
}

static uint64_t
count_on_nvme(void)
{
    uint64_t count = 0;

    for (uint64_t i = 0; i < OWN_COUNT; i++) {
        struct payload_key name;
        uint8_t tiers;

        payload_key_make(&name, i);
        assert_int_equal(kvt_lookup(sim.store, own, &name.key, 1, &tiers, NULL, NULL), KVT_OK);
        count += (tiers & KVT_TIER_NVME) != 0;
    }
    return count;
}

/* Put blocks of others until some of its own are being written elsewhere: the rest is to leave. */
static void
reclaim_meet(void)
{
    for (uint64_t i = 0; i < OTHER_COUNT; i++) {
        static uint8_t bytes[BLOCK_BYTES];
        struct payload_key name;
        struct kvt_put put = {.source = bytes, .length = BLOCK_BYTES};
        kvt_ticket *ticket;

        payload_key_make(&name, OTHER_FIRST + i);
        put.key = name.key;
        assert_int_equal(
            kvt_put_submit(sim.store, other, &put, 1, KVT_SYNC, NULL, &ticket), KVT_OK);
        for (uint32_t step = 0; step < PUT_STEPS && relocate_is_idle(sim.store); step++)
            sim_run_steps(sim.world, 1);
        if (!relocate_is_idle(sim.store)) {
            share(SHARE_LATER);
            assert_int_equal(kit_result(ticket, 2).status, KVT_OK);
            return;
        }
        assert_int_equal(kit_result(ticket, 2).status, KVT_OK);
    }
    fail();
}

static void
what_was_to_leave_stays_when_the_share_has_grown(void **state)
{
    (void)state;
    share(SHARE_FIRST);
    for (uint64_t i = 0; i < OWN_COUNT; i++)
        assert_int_equal(kit_put(sim.store, own, i, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    reclaim_meet();
    for (uint64_t i = 0; i < OTHER_COUNT; i++)
        assert_int_equal(
            kit_put(sim.store, other, 2 * OTHER_FIRST + i, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    assert_true(count_on_nvme() >= SHARE_LATER);
    kit_audit(sim.store);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            what_was_to_leave_stays_when_the_share_has_grown, setup, teardown),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
