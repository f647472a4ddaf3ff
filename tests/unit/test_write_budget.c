/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_write_budget.c - nvme_write_bytes_per_second holds what a store writes of blocks that leave
 * HOST, of whatever sizes they are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "rng.h"
#include "sim_store.h"
#include "store_kit.h"

enum {
    SECONDS = 2000,
    PUTS_A_SECOND = 4,
    BYTES_A_SECOND = 20000, /* A quarter of what is put is written. */
    LENGTH_MIN = 1000,
    LENGTH_MAX = 40000,
};

static struct sim_store sim;
static uint32_t lengths[SECONDS * PUTS_A_SECOND];
static uint8_t bytes[LENGTH_MAX];

static void
block_put(kvt_namespace ns, uint32_t number, struct rng *rng)
{
    struct payload_key name;
    kvt_ticket *ticket;

    payload_key_make(&name, number);
    lengths[number] = LENGTH_MIN + (uint32_t)rng_below(rng, LENGTH_MAX - LENGTH_MIN);
    const struct kvt_put put = {.key = name.key,
        .source = bytes,
        .length = lengths[number],
        .recompute_us = 1000 + 2 * lengths[number] + (uint32_t)rng_below(rng, 20000)};
    assert_int_equal(kvt_put_submit(sim.store, ns, &put, 1, KVT_MEMORY, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
}

static uint64_t
written_bytes(kvt_namespace ns, uint32_t count)
{
    uint64_t written = 0;

    for (uint32_t number = 0; number < count; number++) {
        struct payload_key name;
        uint8_t tiers = 0;

        payload_key_make(&name, number);
        assert_int_equal(kvt_lookup(sim.store, ns, &name.key, 1, &tiers, NULL, NULL), KVT_OK);
        if ((tiers & KVT_TIER_NVME) != 0)
            written += lengths[number];
    }
    return written;
}

/* Those that are worth a write are larger than others. */
static void
a_budget_of_bytes_is_held_for_blocks_of_all_sizes(void **state)
{
    struct kvt_options options = kit_options();
    struct rng rng = {5};
    kvt_namespace ns;
    uint64_t written;

    (void)state;
    options.nvme_capacity_bytes = 64 << 20; /* More than is written: nothing is reclaimed. */
    options.policy = KVT_POLICY_GHI;
    options.nvme_write_bytes_per_second = BYTES_A_SECOND;
    sim_store_open(&sim, &options);
    assert_int_equal(kvt_namespace_open(sim.store, "space", "", 0, &ns), KVT_OK);
    for (uint32_t second = 0; second < SECONDS; second++) {
        for (uint32_t i = 0; i < PUTS_A_SECOND; i++)
            block_put(ns, second * PUTS_A_SECOND + i, &rng);
        sim_store_pass(&sim, UINT64_C(1000000000));
    }
    written = written_bytes(ns, SECONDS * PUTS_A_SECOND);
    if (written < (uint64_t)SECONDS * BYTES_A_SECOND * 95 / 100 ||
        written > (uint64_t)SECONDS * BYTES_A_SECOND * 105 / 100)
        fail_msg("%llu bytes a second were written, %d are the budget",
            (unsigned long long)(written / SECONDS), BYTES_A_SECOND);
    sim_store_close(&sim);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_budget_of_bytes_is_held_for_blocks_of_all_sizes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
