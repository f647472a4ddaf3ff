/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_latency.c - what is measured of operations that are submitted behind the loop's look at the
 * clock, and answered in the same step.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "payload.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BLOCK_BYTES = 4096,
};

/* The submission is later than whatever the loop will see on its clock. */
static void
finish_early(struct sim_store *sim, kvt_ticket *ticket, uint32_t stage)
{
    ticket->submit_ns = env_now(&sim->env) + UINT64_C(3600) * 1000 * 1000 * 1000;
    assert_int_equal(kit_result(ticket, stage).status, KVT_OK);
}

static void
no_age(const struct kvt_latency *latency)
{
    assert_int_equal(latency->count, 1);
    assert_int_equal(latency->max_ns, 0);
    assert_int_equal(latency->sum_ns, 0);
}

static void
what_is_submitted_within_a_step_has_no_age(void **state)
{
    static struct sim_store sim;
    static uint8_t bytes[BLOCK_BYTES];
    struct kvt_options options = kit_options();
    struct kvt_put put = {.source = bytes, .length = BLOCK_BYTES};
    struct kvt_get get = {.destination = bytes, .capacity = BLOCK_BYTES};
    struct kvt_stats stats;
    struct payload_key name;
    kvt_namespace ns;
    kvt_ticket *ticket;

    (void)state;
    sim_store_open(&sim, &options);
    assert_int_equal(kvt_namespace_open(sim.store, "latency", "", 0, &ns), KVT_OK);
    payload_key_make(&name, 1);
    payload_fill(bytes, BLOCK_BYTES, 1, 1);
    put.key = get.key = name.key;
    assert_int_equal(kvt_put_submit(sim.store, ns, &put, 1, KVT_SYNC, NULL, &ticket), KVT_OK);
    finish_early(&sim, ticket, KVT_STAGE_DURABLE);
    assert_int_equal(kvt_get_submit(sim.store, ns, &get, 1, NULL, &ticket), KVT_OK);
    finish_early(&sim, ticket, KVT_STAGE_DONE);
    stats = kit_stats(sim.store);
    no_age(&stats.put_visible_ns);
    no_age(&stats.put_durable_ns);
    no_age(&stats.get_host_ns);
    sim_store_close(&sim);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_submitted_within_a_step_has_no_age),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
