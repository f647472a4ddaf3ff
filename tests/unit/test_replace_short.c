/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_replace_short.c - a put that is to replace a block and finds no memory, or no room in HOST,
 * leaves that block as it was: in memory, and on the disk.
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
    BLOCK_BYTES = 20000,
    FAILURES_MAX = 40, /* More than a put and its store's first steps ask for memory. */
    NUMBER = 1,
    LARGE_BYTES = 65536,
    SMALL_BYTES = 4096,
    FITTING_BYTES = LARGE_BYTES - SMALL_BYTES, /* One takes the last of HOST ... */
    LARGE_COUNT = 31, /* ... beside so many large ones, and nothing is trimmed. */
};

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;
static uint8_t bytes[BLOCK_BYTES];

static void
open_with(const struct kvt_options *options)
{
    sim_store_open(&sim, options);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "short", "", 0, &ns), KVT_OK);
}

static int
setup(void **state)
{
    const struct kvt_options options = kit_options();

    (void)state;
    open_with(&options);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    sim_store_close(&sim);
    return 0;
}

/* What earlier requests have left in pools is gone with their life. */
static void
life_begin(uint32_t flags)
{
    assert_int_equal(kvt_close(store), KVT_OK);
    sim.options.flags = flags;
    sim_store_reopen(&sim);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "short", "", 0, &ns), KVT_OK);
}

/* The n-th allocation behind the submission fails. */
static enum kvt_status
replace(uint64_t version, uint64_t n)
{
    struct kvt_put put = {.source = bytes, .length = BLOCK_BYTES, .flags = KVT_PUT_REPLACE};
    struct payload_key name;
    struct kvt_result result;
    kvt_ticket *ticket;

    payload_key_make(&name, NUMBER);
    payload_fill(bytes, BLOCK_BYTES, NUMBER, version);
    put.key = name.key;
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, KVT_MEMORY, NULL, &ticket), KVT_OK);
    sim_memory_fail(sim.world, n, false);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    sim_memory_fail(sim.world, 0, false);
    assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DONE, &result, 1), KVT_OK);
    kvt_ticket_free(ticket);
    return result.status;
}

static void
version_is(uint64_t wanted)
{
    uint64_t version = 0;

    assert_int_equal(kit_get(store, ns, NUMBER, &version), KVT_OK);
    assert_int_equal(version, wanted);
}

static void
a_put_without_memory_replaces_nothing(void **state)
{
    uint32_t refused_count = 0;

    (void)state;
    for (uint64_t n = 1; n < FAILURES_MAX; n++) {
        enum kvt_status status;

        (void)kit_delete(store, ns, NUMBER);
        assert_int_equal(kit_put(store, ns, NUMBER, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
        life_begin(0);
        status = replace(2, n);
        assert_true(status == KVT_OK || status == KVT_E_NOMEM);
        version_is(status == KVT_OK ? 2 : 1);
        if (status == KVT_OK)
            continue;
        refused_count++;
        life_begin(n % 2 == 0 ? 0 : KVT_OPEN_REBUILD);
        version_is(1);
        /* Nothing of it is in the way of the next. */
        assert_int_equal(replace(3, 0), KVT_OK);
        version_is(3);
    }
    assert_in_range(refused_count, 3, FAILURES_MAX - 1);
}

/* --- Without room ----------------------------------------------------------------------------- */

static kvt_lease
lease_of(uint64_t number)
{
    struct payload_key name;
    uint32_t hit_count;
    kvt_lease lease;

    payload_key_make(&name, number);
    assert_int_equal(kvt_lookup(store, ns, &name.key, 1, NULL, &hit_count, &lease), KVT_OK);
    assert_int_equal(hit_count, 1);
    return lease;
}

/* HOST has room for one more block beside those that are leased. */
static void
host_begin(uint64_t nvme_capacity_bytes, enum kvt_policy policy, kvt_lease leases[LARGE_COUNT])
{
    struct kvt_options options = kit_options();

    options.host_capacity_bytes = (LARGE_COUNT + 1) * LARGE_BYTES;
    options.host_high_percent = options.host_low_percent = 100;
    options.nvme_capacity_bytes = nvme_capacity_bytes;
    options.policy = policy;
    open_with(&options);
    for (uint64_t i = 0; i < LARGE_COUNT; i++) {
        assert_int_equal(kit_put(store, ns, 100 + i, 1, LARGE_BYTES, KVT_MEMORY), KVT_OK);
        leases[i] = lease_of(100 + i);
    }
}

static void
host_end(kvt_lease leases[LARGE_COUNT])
{
    for (uint32_t i = 0; i < LARGE_COUNT; i++)
        kvt_lease_release(store, leases[i]);
    sim_store_close(&sim);
}

/* Its own slot would not do, as it is too small; or it would, and a put that was given it could
 * still be refused. */
static void
a_put_without_room_replaces_nothing(void **state)
{
    static const uint64_t lengths[][2] = {
        {SMALL_BYTES, LARGE_BYTES}, {FITTING_BYTES, FITTING_BYTES}};
    kvt_lease leases[LARGE_COUNT];
    kvt_lease other = {0};

    (void)state;
    for (enum kvt_policy policy = KVT_POLICY_LRU; policy <= KVT_POLICY_GHI; policy++) {
        for (uint32_t i = 0; i < 2; i++) {
            host_begin(KVT_CAPACITY_NONE, policy, leases);
            if (i == 0) {
                assert_int_equal(kit_put(store, ns, 200, 1, SMALL_BYTES, KVT_MEMORY), KVT_OK);
                other = lease_of(200);
            }
            assert_int_equal(kit_put(store, ns, NUMBER, 1, lengths[i][0], KVT_MEMORY), KVT_OK);
            assert_int_equal(kit_put(store, ns, NUMBER, 2, lengths[i][1], KVT_MEMORY), KVT_E_NOSPC);
            version_is(1);
            /* There is room when a lease ends. */
            kvt_lease_release(store, leases[0]);
            assert_int_equal(kit_put(store, ns, NUMBER, 2, lengths[i][1], KVT_MEMORY), KVT_OK);
            version_is(2);
            leases[0] = (kvt_lease){0};
            if (i == 0)
                kvt_lease_release(store, other);
            host_end(leases);
        }
    }
}

/* NVMe keeps it until the other one is there: HOST's copy is what room is made of. */
static void
a_durable_block_makes_room_for_what_replaces_it(void **state)
{
    kvt_lease leases[LARGE_COUNT];

    (void)state;
    host_begin(8 << 20, KVT_POLICY_LRU, leases);
    for (uint64_t version = 1; version < 5; version++) {
        assert_int_equal(kit_put(store, ns, NUMBER, version, FITTING_BYTES, KVT_SYNC), KVT_OK);
        version_is(version);
    }
    host_end(leases);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_put_without_memory_replaces_nothing, setup, teardown),
        cmocka_unit_test(a_put_without_room_replaces_nothing),
        cmocka_unit_test(a_durable_block_makes_room_for_what_replaces_it),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
