/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_read_only.c - a store that is opened for reading only gives up blocks as any other does, and
 * changes nothing on the disk. In a simulated world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_kit.h"

enum {
    BLOCK_BYTES = 20000,
    COUNT = 3, /* Blocks that there are. */
};

static struct sim_store sim;
static kvt_namespace ns;

static void
space_open(void)
{
    assert_int_equal(kvt_namespace_open(sim.store, "space", "", 0, &ns), KVT_OK);
}

static void
reopen(uint32_t flags, uint64_t entry_count_max)
{
    assert_int_equal(kvt_close(sim.store), KVT_OK);
    sim.options.flags = flags;
    sim.options.entry_count_max = entry_count_max;
    sim_store_reopen(&sim);
    space_open();
}

static int
setup(void **state)
{
    struct kvt_options options = kit_options();

    (void)state;
    sim_store_open(&sim, &options);
    space_open();
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(kit_put(sim.store, ns, i, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    return 0;
}

/* Whatever was given up meanwhile is there again. */
static int
teardown(void **state)
{
    (void)state;
    reopen(0, 0);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint64_t version;

        assert_int_equal(kit_get(sim.store, ns, i, &version), KVT_OK);
        assert_int_equal(version, 1);
    }
    sim_store_close(&sim);
    return 0;
}

static void
a_block_that_is_replaced_is_there_again_for_the_next(void **state)
{
    uint64_t version;

    (void)state;
    reopen(KVT_OPEN_READ_ONLY, 0);
    assert_int_equal(kit_put(sim.store, ns, 0, 2, BLOCK_BYTES, KVT_MEMORY), KVT_OK);
    assert_int_equal(kit_get(sim.store, ns, 0, &version), KVT_OK);
    assert_int_equal(version, 2);
}

static void
a_block_that_leaves_a_full_map_is_there_again_for_the_next(void **state)
{
    uint32_t there_count = 0;
    uint64_t version;

    (void)state;
    reopen(KVT_OPEN_READ_ONLY, COUNT - 1);
    assert_int_equal(kit_put(sim.store, ns, COUNT, 1, BLOCK_BYTES, KVT_MEMORY), KVT_OK);
    for (uint32_t i = 0; i < COUNT; i++)
        there_count += kit_get(sim.store, ns, i, &version) == KVT_OK;
    assert_in_range(there_count, 0, COUNT - 1);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_block_that_is_replaced_is_there_again_for_the_next),
        TEST(a_block_that_leaves_a_full_map_is_there_again_for_the_next),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
