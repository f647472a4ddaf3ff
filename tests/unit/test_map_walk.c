/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_map_walk.c - a search for room in a full map that takes several looks, and is not gone on
 * with.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

#define HOUR_NS (UINT64_C(3600) * 1000 * 1000 * 1000)

enum {
    BOUND = 2048, /* Two looks. */
    FIRST = 1000,
    BYTES = 512,
};

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;
static struct payload_key names[BOUND + 8];
static struct kvt_key keys[BOUND + 8];

static int
setup(void **state)
{
    struct kvt_options options = kit_options();

    (void)state;
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    options.host_capacity_bytes = 32 << 20;
    options.entry_count_max = BOUND;
    options.policy = KVT_POLICY_LRU;
    sim_store_open(&sim, &options);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "space", "", 0, &ns), KVT_OK);
    for (uint32_t i = 0; i < BOUND + 8; i++) {
        payload_key_make(&names[i], i);
        keys[i] = names[i].key;
    }
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
lease_of(uint64_t first, uint32_t count)
{
    kvt_lease lease;
    uint32_t hit_count;

    assert_int_equal(kvt_lookup(store, ns, &keys[first], count, NULL, &hit_count, &lease), KVT_OK);
    assert_int_equal(hit_count, count);
    return lease;
}

/* All that may not go but for the first ones; a delete makes room while a put seeks it. What has
 * been passed over then may go when room is sought again, much later. */
static void
a_put_that_found_room_in_the_middle_leaves_no_half_a_walk(void **state)
{
    static uint8_t bytes[BYTES];
    struct kvt_put chain[2] = {
        {.source = bytes, .length = BYTES}, {.source = bytes, .length = BYTES}};
    struct kvt_put put = {.source = bytes, .length = BYTES};
    kvt_lease early, late, child, last;
    kvt_ticket *ticket, *deletion;

    (void)state;
    for (uint64_t key = 0; key < BOUND - 2; key++)
        assert_int_equal(kit_put(store, ns, key, 1, BYTES, KVT_MEMORY), KVT_OK);
    chain[0].key = keys[BOUND - 2];
    chain[1].key = keys[BOUND - 1];
    chain[1].parent = &chain[0].key;
    assert_int_equal(kvt_put_submit(store, ns, chain, 2, KVT_MEMORY, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
    early = lease_of(0, FIRST);
    late = lease_of(FIRST, BOUND - 2 - FIRST);
    child = lease_of(BOUND - 1, 1);
    put.key = keys[BOUND];
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, KVT_MEMORY, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_delete_submit(store, ns, &keys[BOUND - 2], 1, NULL, &deletion), KVT_OK);
    assert_int_equal(kvt_ticket_wait(deletion, KVT_STAGE_DURABLE, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(deletion);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    last = lease_of(BOUND, 1);
    kvt_lease_release(store, early);
    sim_store_pass(&sim, HOUR_NS);
    assert_int_equal(kit_put(store, ns, BOUND + 1, 1, BYTES, KVT_MEMORY), KVT_OK);
    kvt_lease_release(store, late);
    kvt_lease_release(store, child);
    kvt_lease_release(store, last);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_put_that_found_room_in_the_middle_leaves_no_half_a_walk, setup, teardown),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
