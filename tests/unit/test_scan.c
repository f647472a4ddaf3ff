/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_scan.c - kvt_scan(): each block once, and never more than a few numbers in one step of the
 * loop.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kvtier/kvtier_unstable.h"
#include "kvtier/scanning.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BLOCKS = 20000,
    STEP = 8192, /* Numbers that the loop looks at without a pause, at most. */
    ASKED = 3000,
};

static struct {
    struct sim_store sim;
    kvt_namespace ns;
    uint32_t numbers[BLOCKS];
    struct kvt_key keys[BLOCKS];
    struct kvt_put puts[BLOCKS];
    struct kvt_scan_entry found[ASKED];
    uint8_t seen[BLOCKS];
} scan;

static void
ticket_finish(kvt_ticket *ticket)
{
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
}

static int
setup(void **state)
{
    static const uint8_t byte = 1;
    struct kvt_options options = kit_options();
    kvt_ticket *ticket;

    (void)state;
    options.host_capacity_bytes = UINT64_C(128) << 20;
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    sim_store_open(&scan.sim, &options);
    assert_int_equal(kvt_namespace_open(scan.sim.store, "scan", "", 0, &scan.ns), KVT_OK);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        scan.numbers[i] = i;
        scan.keys[i] = (struct kvt_key){.bytes = &scan.numbers[i], .length = sizeof(uint32_t)};
        scan.puts[i] = (struct kvt_put){.key = scan.keys[i], .source = &byte, .length = 1};
    }
    assert_int_equal(
        kvt_put_submit(scan.sim.store, scan.ns, scan.puts, BLOCKS, KVT_MEMORY, NULL, &ticket),
        KVT_OK);
    ticket_finish(ticket);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    sim_store_close(&scan.sim);
    return 0;
}

static uint32_t
number_of_key(const struct kvt_scan_entry *entry)
{
    uint32_t number;

    assert_int_equal(entry->key_length, sizeof(number));
    memcpy(&number, entry->key, sizeof(number));
    assert_true(number < BLOCKS);
    return number;
}

static void
a_scan_in_pieces_finds_each_block_once(void **state)
{
    uint64_t cursor = 0;
    uint32_t count, found_count = 0;

    (void)state;
    while (kvt_scan(scan.sim.store, &cursor, scan.found, ASKED, &count) == KVT_OK) {
        assert_true(count == ASKED || found_count + count == BLOCKS);
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(scan.seen[number_of_key(&scan.found[i])]++, 0);
        found_count += count;
    }
    assert_int_equal(count, 0);
    assert_int_equal(found_count, BLOCKS);
}

static void
a_scan_past_many_free_entries_leaves_the_loop_to_others(void **state)
{
    struct gate *gate = &scan.sim.store->call_gate;
    uint64_t cursor = 0;
    kvt_ticket *ticket;
    uint32_t count, before;

    (void)state;
    assert_int_equal(
        kvt_delete_submit(scan.sim.store, scan.ns, scan.keys, BLOCKS - 1, NULL, &ticket), KVT_OK);
    ticket_finish(ticket);
    before = atomic_load(&gate->value);
    assert_int_equal(kvt_scan(scan.sim.store, &cursor, scan.found, 1, &count), KVT_OK);
    assert_int_equal(count, 1);
    assert_int_equal(number_of_key(scan.found), BLOCKS - 1);
    /* A post for each time that the loop was asked. */
    assert_true(atomic_load(&gate->value) - before >= (BLOCKS + STEP - 1) / STEP);
    assert_int_equal(kvt_scan(scan.sim.store, &cursor, scan.found, 1, &count), KVT_MISS);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_scan_in_pieces_finds_each_block_once, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_scan_past_many_free_entries_leaves_the_loop_to_others, setup, teardown),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
