/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_sequences.c - the numbers of records and batches have 40 bits in each open: what comes when
 * they are used up. In a simulated world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "commit_internal.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    KEYS = 10,
    BYTES = 4096,
};

static struct sim_store sim;
static kvt_namespace ns;

static void
space_open(void)
{
    assert_int_equal(kvt_namespace_open(sim.store, "space", "", 0, &ns), KVT_OK);
}

static uint64_t
last_number(void)
{
    return ((uint64_t)(sim.store->file.open_epoch + 1) << EPOCH_SHIFT) - NUMBERS_LEFT - KEYS / 2;
}

/* What a life wrote that came to their end is older than what the next one writes. */
static void
life_ends(uint64_t *number)
{
    uint64_t version = 0;
    uint32_t health, durable_count = 0;

    *number = last_number();
    for (uint64_t key = 0; key < KEYS; key++)
        durable_count += kit_put(sim.store, ns, key, 1, BYTES, KVT_SYNC) == KVT_OK;
    assert_in_range(durable_count, 1, KEYS - 1);
    assert_int_equal(kvt_health(sim.store, &health), KVT_OK);
    assert_int_equal(health & KVT_HEALTH_META_READONLY, KVT_HEALTH_META_READONLY);
    assert_int_equal(kit_get(sim.store, ns, 0, &version), KVT_OK);
    assert_int_equal(kvt_close(sim.store), KVT_OK);

    sim_store_reopen(&sim);
    space_open();
    assert_int_equal(kit_delete(sim.store, ns, 0), KVT_OK);
    assert_int_equal(kit_put(sim.store, ns, 1, 2, BYTES, KVT_SYNC), KVT_OK);
    assert_int_equal(kvt_close(sim.store), KVT_OK);
    sim.options.flags = KVT_OPEN_REBUILD;
    sim_store_reopen(&sim);
    space_open();
    assert_int_equal(kit_get(sim.store, ns, 0, &version), KVT_MISS);
    assert_int_equal(kit_get(sim.store, ns, 1, &version), KVT_OK);
    assert_int_equal(version, 2);
}

static int
setup(void **state)
{
    struct kvt_options options = kit_options();

    (void)state;
    sim_store_open(&sim, &options);
    space_open();
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
no_record_has_a_number_of_the_next_open(void **state)
{
    (void)state;
    life_ends(&sim.store->sequence);
}

static void
nor_has_a_batch(void **state)
{
    (void)state;
    life_ends(&sim.store->batch_sequence);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_record_has_a_number_of_the_next_open, setup, teardown),
        cmocka_unit_test_setup_teardown(nor_has_a_batch, setup, teardown),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
