/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_scrub_beside.c - kvt_scrub() while others put into memory of the same store, which is open
 * for reading only: a block whose place they take is no damaged one. In a simulated world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kvtier/kvtier_unstable.h"
#include "payload.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BLOCK_BYTES = 64,
    LONG_BYTES = 3 * PAGE_BYTES,
    FEW = 5,     /* All are in the first batch. */
    MANY = 2600, /* More than a scrub has under way. */
    ADDED = 100,
};

static struct sim_store sim;
static kvt_namespace ns;
static struct kvt_check_report report;
static uint32_t finding_count;

/* What is done beside it, once. */
static bool is_done;

/* The caller's thread is on its way out of the loop; it acts there. */
static struct sched_ops sched;
static const struct sched_ops *sched_real;
static kvt_ticket *put_ticket;

/* A store of so many blocks, which is open for reading only; 0: as many in the map as there may
 * be. */
static void
begin(uint32_t count, uint64_t entry_count_max)
{
    struct kvt_options options = kit_options();

    options.nvme_capacity_bytes = 64 << 20;
    sim_store_open(&sim, &options);
    assert_int_equal(kvt_namespace_open(sim.store, "space", "", 0, &ns), KVT_OK);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(kit_put(sim.store, ns, i, 1, BLOCK_BYTES, KVT_RELAXED), KVT_OK);
    assert_int_equal(kvt_close(sim.store), KVT_OK);
    sim.options.flags = KVT_OPEN_READ_ONLY;
    sim.options.entry_count_max = entry_count_max;
    sim_store_reopen(&sim);
    assert_int_equal(kvt_namespace_open(sim.store, "space", "", 0, &ns), KVT_OK);
    report = (struct kvt_check_report){.struct_size = sizeof(report)};
    finding_count = 0;
    is_done = false;
}

static void
found(void *context, const struct kvt_finding *finding)
{
    (void)context;
    (void)finding;
    finding_count++;
}

static void
scrub(int (*progress)(void *context, uint64_t done_bytes, uint64_t total_bytes))
{
    const struct kvt_examiner examiner = {.found = found, .progress = progress};

    assert_int_equal(kvt_scrub(sim.store, (kvt_namespace){0}, &examiner, &report), KVT_OK);
    assert_true(is_done);
    assert_int_equal(finding_count, 0);
    assert_int_equal(report.damaged_count, 0);
    assert_int_equal(report.block_bytes, report.block_count * BLOCK_BYTES);
}

static int
replace_some(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    (void)context;
    assert_true(done_bytes <= total_bytes);
    for (uint32_t i = 0; i < ADDED && !is_done; i++)
        assert_int_equal(kit_put(sim.store, ns, MANY - 1 - i, 2, BLOCK_BYTES, KVT_MEMORY), KVT_OK);
    is_done = true;
    return 1;
}

static void
a_block_that_was_replaced_is_passed_over(void **state)
{
    (void)state;
    begin(MANY, 0);
    scrub(replace_some);
    assert_int_equal(report.block_count, MANY - ADDED);
    assert_int_equal(kit_stats(sim.store).get_host_count, 0); /* Nor is what took it read. */
    sim_store_close(&sim);
}

static int
add_some(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    (void)context;
    assert_true(done_bytes <= total_bytes);
    for (uint32_t i = 0; i < ADDED && !is_done; i++)
        assert_int_equal(kit_put(sim.store, ns, MANY + i, 1, BLOCK_BYTES, KVT_MEMORY), KVT_OK);
    is_done = true;
    return 1;
}

static void
a_block_that_left_a_full_map_is_passed_over(void **state)
{
    (void)state;
    begin(MANY, MANY);
    scrub(add_some);
    assert_true(sim_store_evicted(sim.store) > 0);
    assert_in_range(report.block_count, MANY - ADDED, MANY);
    sim_store_close(&sim);
}

/* The put of a longer block is sent when the keys of a batch are known, and its gets are not. */
static void
gate_post_hasty(void *context, struct gate *gate)
{
    static uint8_t bytes[LONG_BYTES];
    struct payload_key name;

    sched_real->gate_post(context, gate);
    if (is_done || gate != &sim.store->call_gate || sim.store->ticket_count == 0)
        return;
    is_done = true;
    payload_key_make(&name, 1);
    payload_fill(bytes, sizeof(bytes), 1, 2);
    const struct kvt_put put = {
        .key = name.key, .source = bytes, .length = sizeof(bytes), .flags = KVT_PUT_REPLACE};
    assert_int_equal(kvt_put_submit(sim.store, ns, &put, 1, KVT_MEMORY, NULL, &put_ticket), KVT_OK);
}

static void
a_longer_block_in_the_place_of_one_does_not_end_it(void **state)
{
    (void)state;
    begin(FEW, 0);
    sched_real = sim.store->env.sched;
    sched = *sched_real;
    sched.gate_post = gate_post_hasty;
    sim.store->env.sched = &sched;
    scrub(NULL);
    sim.store->env.sched = sched_real;
    assert_int_equal(kit_result(put_ticket, KVT_STAGE_DONE).status, KVT_OK);
    assert_int_equal(report.block_count, FEW - 1);
    sim_store_close(&sim);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_that_was_replaced_is_passed_over),
        cmocka_unit_test(a_block_that_left_a_full_map_is_passed_over),
        cmocka_unit_test(a_longer_block_in_the_place_of_one_does_not_end_it),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
