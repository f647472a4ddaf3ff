/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_replace_short.c - a put that is to replace a block and finds no memory leaves that block as
 * it was: in memory, and on the disk.
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
};

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;
static uint8_t bytes[BLOCK_BYTES];

static int
setup(void **state)
{
    const struct kvt_options options = kit_options();

    (void)state;
    sim_store_open(&sim, &options);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "short", "", 0, &ns), KVT_OK);
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

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_put_without_memory_replaces_nothing, setup, teardown),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
