/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lease_places.c - lease_count_max is about leases that callers have, and not about those that
 * they gave back and of which the loop does not know yet. The loop works when a test lets it, but
 * for the first test.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kvtier/kvtier_unstable.h"
#include "lease.h"
#include "payload.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    LEASES_MAX = 3,
    IN_A_ROW = 10000, /* Of real threads, faster than the loop takes them. */
    BLOCK_BYTES = 4096,
    MANY = LEASE_INLINE + 1, /* Keys of a lease that takes memory. */
};

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;
static kvt_lease leases[LEASES_MAX];
static struct payload_key names[MANY];
static struct kvt_key keys[MANY];

static struct kvt_options
options_of(uint32_t lease_count_max)
{
    struct kvt_options options = kit_options();

    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    options.lease_count_max = lease_count_max;
    return options;
}

static void
block_put(void)
{
    assert_int_equal(kvt_namespace_open(store, "here", "", 0, &ns), KVT_OK);
    for (uint32_t i = 0; i < MANY; i++) {
        payload_key_make(&names[i], i);
        keys[i] = names[i].key;
    }
    assert_int_equal(kit_put(store, ns, 0, 1, BLOCK_BYTES, KVT_MEMORY), KVT_OK);
}

static int
setup(void **state)
{
    struct kvt_options options = options_of(LEASES_MAX);

    (void)state;
    sim_store_open(&sim, &options);
    store = sim.store;
    block_put();
    sim_store_loop(&sim);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    sim_store_close(&sim);
    return 0;
}

static kvt_lease
lease_one(void)
{
    kvt_lease lease;

    assert_int_equal(kvt_lookup(store, ns, keys, 1, NULL, NULL, &lease), KVT_OK);
    return lease;
}

/* All that there are, and not one more. */
static void
lease_all(void)
{
    kvt_lease another;

    for (uint32_t i = 0; i < LEASES_MAX; i++)
        leases[i] = lease_one();
    refused(kvt_lookup(store, ns, keys, 1, NULL, NULL, &another), KVT_E_NOSPC, "lease_count_max");
}

static void
release_all(void)
{
    for (uint32_t i = 0; i < LEASES_MAX; i++)
        kvt_lease_release(store, leases[i]);
}

/* The loop has as many before it as it may have. */
static void
loop_outrun(void)
{
    for (uint32_t i = 0; i < LEASE_SPARE; i++)
        assert_int_equal(kvt_touch(store, ns, keys, 1), KVT_OK);
}

static void
the_only_lease_can_be_had_again_at_once(void **state)
{
    const struct kvt_options options = options_of(1);
    char path[KIT_PATH_BYTES];

    (void)state;
    kit_dir_make(path);
    assert_int_equal(kvt_open(path, &options, &store), KVT_OK);
    block_put();
    for (uint32_t i = 0; i < IN_A_ROW; i++) {
        kvt_lease_release(store, lease_one());
        assert_int_equal(kvt_touch(store, ns, keys, 1), KVT_OK);
    }
    assert_int_equal(kvt_close(store), KVT_OK);
    kit_dir_remove(path);
}

static void
what_was_given_back_can_be_had_before_the_loop_knows(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 3; round++) {
        lease_all();
        release_all();
    }
    sim_store_loop(&sim);
    lease_all();
    release_all();
}

/* More rounds than places: none is lost, and none is there twice. */
static void
so_it_is_with_more_than_the_loop_may_have_before_it(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 3; round++) {
        loop_outrun();
        for (uint32_t i = 0; i < 2 * LEASE_SPARE; i++) {
            lease_all();
            release_all();
        }
        sim_store_loop(&sim);
    }
}

/* With nothing found there is no lease. */
static void
a_lookup_that_finds_nothing_keeps_no_place(void **state)
{
    kvt_lease lease;

    (void)state;
    for (uint32_t i = 0; i < 2 * LEASES_MAX; i++) {
        assert_int_equal(kvt_lookup(store, ns, &keys[1], 1, NULL, NULL, &lease), KVT_OK);
        assert_int_equal(lease.id, 0);
    }
    lease_all();
    release_all();
}

static void
the_one_that_the_loop_looks_at_stays_whole(void **state)
{
    const struct lease *seen;
    uint32_t cursor = 0;
    uint32_t number;
    kvt_lease lease;

    (void)state;
    loop_outrun();
    assert_int_equal(kvt_lookup(store, ns, keys, MANY, NULL, NULL, &lease), KVT_OK);
    seen = lease_next(store, &cursor, UINT32_MAX);
    assert_non_null(seen);
    assert_int_equal(seen->count, MANY);
    number = seen->numbers[0];
    kvt_lease_release(store, lease);
    /* Those who come next have others. */
    for (uint32_t i = 0; i < 2; i++) {
        lease_all();
        release_all();
    }
    assert_int_equal(seen->count, MANY);
    assert_int_equal(seen->numbers[0], number);
    assert_null(lease_next(store, &cursor, UINT32_MAX));
    /* It is there again: the last that was put back is the first to be had. */
    lease = lease_one();
    assert_ptr_equal(lease_current(store, lease), seen);
    kvt_lease_release(store, lease);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_only_lease_can_be_had_again_at_once),
        cmocka_unit_test_setup_teardown(
            what_was_given_back_can_be_had_before_the_loop_knows, setup, teardown),
        cmocka_unit_test_setup_teardown(
            so_it_is_with_more_than_the_loop_may_have_before_it, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_lookup_that_finds_nothing_keeps_no_place, setup, teardown),
        cmocka_unit_test_setup_teardown(
            the_one_that_the_loop_looks_at_stays_whole, setup, teardown),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
