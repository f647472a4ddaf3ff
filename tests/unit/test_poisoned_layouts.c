/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_poisoned_layouts.c - a poisoned store ends while workers copy by its layouts, or are about
 * to: these are there until the last of them has ended. (What the world's memory takes back is
 * scribbled over.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sim_store.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BLOCKS = 40,
    RUNS = 16, /* Of one piece. */
    PIECE_BYTES = 1024,
    BLOCK_BYTES = RUNS * PIECE_BYTES,
    STEPS_MAX = 20, /* After so many all has long been copied. */
};

static const uint8_t untouched[PIECE_BYTES];
static uint8_t memory[BLOCKS * BLOCK_BYTES];

/* How many of the blocks were copied, or begun, by the store's end, which comes after `steps` steps
 * of the world's. */
static uint32_t
run(uint32_t steps, void (*end)(kvt_store *store))
{
    struct kvt_run runs[RUNS];
    const struct kvt_layout_options about = {
        .struct_size = sizeof(about), .run_count = RUNS, .runs = runs, .slot_count = BLOCKS};
    struct kvt_options options = kit_options();
    struct payload_key names[BLOCKS];
    struct kvt_get gets[BLOCKS];
    uint32_t copied_count = 0;
    kvt_layout layout;
    kvt_namespace ns;
    kvt_ticket *ticket;
    struct sim_store sim;

    /* Those of a slot are apart, so that they are not one. */
    for (uint32_t i = 0; i < RUNS; i++)
        runs[i] = (struct kvt_run){.address = memory + i * BLOCKS * PIECE_BYTES,
            .piece_count = 1,
            .piece_bytes = PIECE_BYTES,
            .slot_stride = PIECE_BYTES};
    sim_store_open(&sim, &options);
    assert_int_equal(kvt_namespace_open(sim.store, "layouts", "", 0, &ns), KVT_OK);
    assert_int_equal(kvt_layout_register(sim.store, &about, &layout), KVT_OK);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        assert_int_equal(kit_put(sim.store, ns, i, 1, BLOCK_BYTES, KVT_MEMORY), KVT_OK);
        payload_key_make(&names[i], i);
        gets[i] = (struct kvt_get){.key = names[i].key, .layout = layout, .slot = i};
    }
    memset(memory, 0, sizeof(memory));
    assert_int_equal(kvt_get_submit(sim.store, ns, gets, BLOCKS, NULL, &ticket), KVT_OK);
    sim_run_steps(sim.world, steps);
    for (uint32_t i = 0; i < BLOCKS; i++)
        copied_count += memcmp(memory + i * PIECE_BYTES, untouched, PIECE_BYTES) != 0;
    atomic_store(&sim.store->poisoned, 1);
    end(sim.store);
    sim_world_destroy(sim.world);
    return copied_count;
}

static void
closed(kvt_store *store)
{
    assert_int_equal(kvt_close(store), KVT_OK);
}

static void
layouts_outlive_the_workers(void **state)
{
    uint32_t unfinished_count = 0;

    (void)state;
    for (uint32_t steps = 0; steps <= STEPS_MAX; steps++) {
        unfinished_count += run(steps, closed) < BLOCKS;
        unfinished_count += run(steps, kvt_abort) < BLOCKS;
    }
    assert_in_range(unfinished_count, 4, 2 * STEPS_MAX);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_outlive_the_workers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
