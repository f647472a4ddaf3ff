/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_full_map.c - a map that holds entry_count_max blocks takes more: which blocks leave for
 * them, which never do, and what a crash leaves of that. In a simulated world.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kvtier/explaining.h"
#include "kvtier/hints.h"
#include "sim_store.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BLOCK_BYTES = 8192,
    BOUND = 64,   /* Half a MiB: no tier is ever full. */
    LARGE = 2048, /* Two looks of a search for room. */
    NAMES = LARGE + 8,
    LEASED_FIRST = 1000,
    SHORT_BYTES = 512,
    CHAIN = 16,
    CRASH_PUTS = 40,
};

static const uint64_t SECOND = UINT64_C(1000) * 1000 * 1000;

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;
static struct payload_key names[NAMES];
static struct kvt_key keys[NAMES];

static void
space_open(void)
{
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "space", "", 0, &ns), KVT_OK);
}

static void
open_as(const struct kvt_options *options)
{
    sim_store_open(&sim, options);
    space_open();
    for (uint32_t i = 0; i < NAMES; i++) {
        payload_key_make(&names[i], i);
        keys[i] = names[i].key;
    }
}

static void
open_with(uint64_t nvme_capacity_bytes, enum kvt_policy policy)
{
    struct kvt_options options = kit_options();

    options.nvme_capacity_bytes = nvme_capacity_bytes;
    options.entry_count_max = BOUND;
    options.policy = policy;
    open_as(&options);
}

static int
setup(void **state)
{
    (void)state;
    open_with(8 << 20, KVT_POLICY_LRU);
    return 0;
}

static int
setup_memory(void **state)
{
    (void)state;
    open_with(KVT_CAPACITY_NONE, KVT_POLICY_LRU);
    return 0;
}

static int
setup_large(void **state)
{
    struct kvt_options options = kit_options();

    (void)state;
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    options.host_capacity_bytes = 32 << 20;
    options.entry_count_max = LARGE;
    options.policy = KVT_POLICY_LRU;
    open_as(&options);
    return 0;
}

static int
setup_ghi(void **state)
{
    (void)state;
    open_with(8 << 20, KVT_POLICY_GHI);
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
reopen_with(uint64_t bound)
{
    sim.options.entry_count_max = bound;
    sim_store_reopen(&sim);
    space_open();
}

static void
puts_of(uint64_t first, uint64_t count, enum kvt_durability durability)
{
    for (uint64_t key = first; key < first + count; key++)
        assert_int_equal(kit_put(store, ns, key, 1, BLOCK_BYTES, durability), KVT_OK);
}

static bool
is_there(uint64_t key)
{
    uint64_t version;
    enum kvt_status status = kit_get(store, ns, key, &version);

    assert_true(status == KVT_OK || status == KVT_MISS);
    return status == KVT_OK;
}

static uint64_t
count_there(uint64_t first, uint64_t count)
{
    uint64_t there = 0;

    for (uint64_t key = first; key < first + count; key++)
        there += is_there(key);
    return there;
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

/* --- Which leave ------------------------------------------------------------------------------ */

static void
a_full_map_takes_more_blocks(void **state)
{
    (void)state;
    puts_of(0, BOUND, KVT_SYNC);
    assert_int_equal(kit_stats(store).map_evict_count, 0);
    for (uint64_t key = BOUND; key < 10 * BOUND; key++) {
        assert_int_equal(kit_put(store, ns, key, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
        assert_true(is_there(key));
        assert_int_equal(kit_stats(store).entry_count_now, BOUND);
    }
    assert_int_equal(kit_stats(store).map_evict_count, 9 * BOUND);
    assert_int_equal(kit_stats(store).put_refused_count, 0);
    assert_int_equal(count_there(0, 10 * BOUND), BOUND);
}

static void
what_left_is_told_as_evicted_and_does_not_come_back(void **state)
{
    bool was_there[3 * BOUND];

    (void)state;
    puts_of(0, 3 * BOUND, KVT_SYNC);
    for (uint32_t key = 0; key < 3 * BOUND; key++)
        was_there[key] = is_there(key);
    assert_int_equal(kit_stats(store).miss_evicted_count, 2 * BOUND);
    assert_int_equal(kvt_close(store), KVT_OK);
    reopen_with(4 * BOUND);
    for (uint32_t key = 0; key < 3 * BOUND; key++)
        assert_int_equal(is_there(key), was_there[key]);
    assert_int_equal(kvt_close(store), KVT_OK);
    sim.options.flags = KVT_OPEN_REBUILD;
    reopen_with(4 * BOUND);
    for (uint32_t key = 0; key < 3 * BOUND; key++)
        assert_int_equal(is_there(key), was_there[key]);
}

/* One that NVMe has is compared with none: no place is short of room. */
static void
what_leaves_from_nvme_is_told_by_its_importance(void **state)
{
    (void)state;
    puts_of(0, BOUND, KVT_SYNC);
    for (uint64_t key = 0; key < BOUND; key++) {
        kvt_ticket *ticket;

        assert_int_equal(
            kvt_demote_submit(store, ns, &keys[key], 1, KVT_TIER_NVME, NULL, &ticket), KVT_OK);
        assert_int_equal(kit_result(ticket, 1).status, KVT_OK);
    }
    puts_of(BOUND, BOUND / 2, KVT_SYNC);
    for (uint64_t key = 0; key < BOUND; key++) {
        struct kvt_explanation why = {.struct_size = sizeof(why)};

        assert_int_equal(kvt_why(store, ns, &keys[key], &why), KVT_OK);
        if (why.tiers != 0)
            continue;
        assert_int_equal(why.fate, KVT_FATE_EVICTED);
        assert_true(why.score > 0 && isnan(why.cut));
    }
    assert_int_equal(kit_stats(store).map_evict_count, BOUND / 2);
}

static void
what_is_used_stays(void **state)
{
    (void)state;
    puts_of(0, BOUND, KVT_SYNC);
    for (uint64_t key = BOUND; key < 8 * BOUND; key++) {
        assert_int_equal(kit_put(store, ns, key, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
        sim_store_pass(&sim, SECOND);
        (void)count_there(3, 4);
    }
    assert_int_equal(count_there(3, 4), 4);
}

/* Its blocks are the first `count`. */
static void
chain_put(uint32_t count)
{
    static uint8_t bytes[BLOCK_BYTES];
    struct kvt_put puts[BOUND];
    kvt_ticket *ticket;

    for (uint32_t i = 0; i < count; i++)
        puts[i] = (struct kvt_put){.key = keys[i],
            .parent = i == 0 ? NULL : &keys[i - 1],
            .source = bytes,
            .length = BLOCK_BYTES,
            .depth = i};
    assert_int_equal(kvt_put_submit(store, ns, puts, count, KVT_SYNC, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
}

static void
a_chain_leaves_from_its_end(void **state)
{
    (void)state;
    chain_put(CHAIN);
    for (uint64_t key = 1000; key < 1000 + 10 * BOUND; key++) {
        uint8_t tiers[CHAIN];
        bool has_ended = false;

        assert_int_equal(kit_put(store, ns, key, 1, BLOCK_BYTES, KVT_MEMORY), KVT_OK);
        assert_int_equal(kvt_lookup(store, ns, keys, CHAIN, tiers, NULL, NULL), KVT_OK);
        for (uint32_t i = 0; i < CHAIN; i++) {
            assert_false(has_ended && tiers[i] != 0);
            has_ended |= tiers[i] == 0;
        }
    }
    assert_int_equal(count_there(0, 1), 0);
}

/* --- Which do not ----------------------------------------------------------------------------- */

static void
leased_blocks_stay_and_a_put_without_room_is_refused(void **state)
{
    kvt_lease lease;

    (void)state;
    puts_of(0, BOUND, KVT_SYNC);
    lease = lease_of(0, BOUND - 1);
    puts_of(1000, 3, KVT_SYNC);
    assert_true(is_there(1002));
    kvt_lease_release(store, lease);
    assert_int_equal(count_there(0, BOUND - 1), BOUND - 1);
    lease = lease_of(0, BOUND - 1);
    assert_int_equal(kvt_pin(store, ns, &keys[0], 1, KVT_FOREVER), KVT_OK);
    assert_int_equal(kit_delete(store, ns, 1002), KVT_OK);
    puts_of(BOUND, 1, KVT_SYNC);
    assert_int_equal(kvt_pin(store, ns, &keys[BOUND], 1, KVT_FOREVER), KVT_OK);
    assert_int_equal(kit_put(store, ns, 2000, 1, BLOCK_BYTES, KVT_SYNC), KVT_E_NOSPC);
    assert_int_equal(kit_put(store, ns, 2000, 1, BLOCK_BYTES, KVT_MEMORY), KVT_E_NOSPC);
    /* A block that a lease holds keeps its entry until that ends: its successor needs another. */
    assert_int_equal(kit_put(store, ns, 5, 2, BLOCK_BYTES, KVT_SYNC), KVT_E_NOSPC);
    assert_true(is_there(5));
    kvt_lease_release(store, lease);
    assert_int_equal(count_there(0, BOUND + 1), BOUND);
    puts_of(2000, 2 * BOUND, KVT_SYNC);
    assert_true(is_there(0));
    assert_true(is_there(BOUND));
}

static void
blocks_within_their_share_stay(void **state)
{
    kvt_namespace own;

    (void)state;
    assert_int_equal(kvt_namespace_open(store, "own", "", 0, &own), KVT_OK);
    assert_int_equal(kvt_namespace_share_set(store, own, KVT_TIER_NVME, 1 << 20), KVT_OK);
    for (uint64_t key = 0; key < BOUND / 2; key++)
        assert_int_equal(kit_put(store, own, key, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    puts_of(0, 10 * BOUND, KVT_SYNC);
    for (uint64_t key = 0; key < BOUND / 2; key++) {
        uint64_t version;

        assert_int_equal(kit_get(store, own, key, &version), KVT_OK);
    }
}

static void
puts_wait_for_blocks_that_are_on_their_way(void **state)
{
    static uint8_t bytes[BLOCK_BYTES];
    struct kvt_put puts[NAMES];
    struct kvt_result results[NAMES];
    kvt_ticket *ticket;

    (void)state;
    for (uint32_t i = 0; i < NAMES; i++)
        puts[i] = (struct kvt_put){.key = keys[i], .source = bytes, .length = BLOCK_BYTES};
    /* All at once: while a block is being written it has a pin, and cannot go. */
    assert_int_equal(kvt_put_submit(store, ns, puts, NAMES, KVT_SYNC, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DURABLE, results, NAMES), KVT_OK);
    for (uint32_t i = 0; i < NAMES; i++)
        assert_int_equal(results[i].status, KVT_OK);
    kvt_ticket_free(ticket);
    assert_int_equal(kit_stats(store).entry_count_now, BOUND);
}

static kvt_ticket *
replace_submit(uint64_t key, enum kvt_durability durability)
{
    static uint8_t bytes[BLOCK_BYTES];
    const struct kvt_put put = {
        .key = keys[key], .source = bytes, .length = BLOCK_BYTES, .flags = KVT_PUT_REPLACE};
    kvt_ticket *ticket;

    payload_fill(bytes, BLOCK_BYTES, key, 2);
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, durability, NULL, &ticket), KVT_OK);
    return ticket;
}

static void
a_block_that_is_replaced_is_not_the_one_that_leaves(void **state)
{
    uint64_t version = 0;
    kvt_lease lease;

    (void)state;
    puts_of(0, BOUND, KVT_SYNC);
    lease = lease_of(7, 1);
    for (uint64_t next = 2; next < 20; next++) {
        assert_int_equal(kit_put(store, ns, 7, next, BLOCK_BYTES, KVT_SYNC), KVT_OK);
        assert_int_equal(kit_get(store, ns, 7, &version), KVT_OK);
        assert_int_equal(version, next);
    }
    assert_true(kit_stats(store).entry_count_now <= BOUND);
    kvt_lease_release(store, lease);
}

/* What replaces a block takes its place in the map, too: none leaves for it. */
static void
a_replace_in_a_full_map_costs_no_other_block(void **state)
{
    static const enum kvt_durability durabilities[] = {KVT_SYNC, KVT_RELAXED, KVT_MEMORY};

    (void)state;
    puts_of(0, BOUND, KVT_SYNC);
    for (uint32_t i = 0; i < 3; i++) {
        /* One that still waits to be written, too. */
        kvt_ticket *ticket = replace_submit(7, durabilities[i]);

        assert_int_equal(kit_put(store, ns, 7, 3, BLOCK_BYTES, durabilities[i]), KVT_OK);
        assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
        assert_int_equal(kit_stats(store).map_evict_count, 0);
        assert_int_equal(kit_stats(store).entry_count_now, BOUND);
    }
    assert_int_equal(count_there(0, BOUND), BOUND);
}

/* All are built on by others but its end. */
static void
any_block_of_a_chain_as_long_as_the_map_is_replaced(void **state)
{
    (void)state;
    chain_put(BOUND);
    for (uint64_t key = 0; key < BOUND; key++)
        assert_int_equal(kit_put(store, ns, key, 2, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    assert_int_equal(kit_stats(store).map_evict_count, 0);
    assert_int_equal(count_there(0, BOUND), BOUND);
}

/* --- Memory alone, and lives after this ------------------------------------------------------- */

static void
without_nvme_blocks_leave_memory(void **state)
{
    (void)state;
    puts_of(0, 10 * BOUND, KVT_MEMORY);
    assert_int_equal(kit_stats(store).entry_count_now, BOUND);
    assert_int_equal(kit_stats(store).map_evict_count, 9 * BOUND);
    assert_int_equal(kit_stats(store).host_used_bytes_now, (uint64_t)BOUND * BLOCK_BYTES);
    assert_true(is_there(10 * BOUND - 1));
}

static void
a_store_with_more_blocks_keeps_them_until_others_come(void **state)
{
    (void)state;
    puts_of(0, BOUND, KVT_SYNC);
    assert_int_equal(kvt_close(store), KVT_OK);
    reopen_with(BOUND / 4);
    assert_int_equal(count_there(0, BOUND), BOUND);
    for (uint64_t i = 1; i <= BOUND - BOUND / 4; i++) {
        puts_of(1000 + i, 1, KVT_SYNC);
        assert_true(is_there(1000 + i));
        assert_int_equal(kit_stats(store).entry_count_now, BOUND - i);
    }
    puts_of(2000, BOUND, KVT_SYNC);
    assert_int_equal(kit_stats(store).entry_count_now, BOUND / 4);
}

/* Deletes and evictions whose kills are not yet durable leave more blocks on the disk than the map
 * takes; and whoever was told that a block is gone does not find it again. */
static void
a_crash_leaves_a_store_that_opens_and_nothing_deleted(void **state)
{
    (void)state;
    for (uint64_t n = 1; n < 400; n += 3) {
        bool is_deleted[CRASH_PUTS] = {false};

        puts_of(0, BOUND, KVT_SYNC);
        sim_crash_after(sim.world, n);
        for (uint64_t i = 0; i < CRASH_PUTS && !sim_crashed(sim.world); i++) {
            (void)kit_put(store, ns, 1000 + i, 1, BLOCK_BYTES, KVT_SYNC);
            /* Some were evicted by now, others are there. */
            if (!sim_crashed(sim.world))
                is_deleted[i] = kit_delete(store, ns, i) >= 0 && !sim_crashed(sim.world);
        }
        sim_crash_after(sim.world, 0);
        kvt_abort(store);
        sim_power_cut(sim.world, SIM_CUT_SEEDED);
        reopen_with(BOUND);
        for (uint64_t i = 0; i < CRASH_PUTS; i++)
            assert_false(is_deleted[i] && is_there(i));
        (void)count_there(0, BOUND);
        puts_of(3000, 2 * BOUND, KVT_SYNC);
        assert_int_equal(kit_stats(store).entry_count_now, BOUND);
    }
}

/* Nothing may go while a put seeks room, and a delete makes some. What the search had passed over
 * may go when room is sought again, much later. */
static void
a_put_that_found_room_in_the_middle_leaves_no_half_a_walk(void **state)
{
    static uint8_t bytes[SHORT_BYTES];
    struct kvt_put chain[2] = {
        {.source = bytes, .length = SHORT_BYTES}, {.source = bytes, .length = SHORT_BYTES}};
    struct kvt_put put = {.source = bytes, .length = SHORT_BYTES};
    kvt_lease early, late, child, last;
    kvt_ticket *ticket, *deletion;

    (void)state;
    for (uint64_t key = 0; key < LARGE - 2; key++)
        assert_int_equal(kit_put(store, ns, key, 1, SHORT_BYTES, KVT_MEMORY), KVT_OK);
    chain[0].key = keys[LARGE - 2];
    chain[1].key = keys[LARGE - 1];
    chain[1].parent = &chain[0].key;
    assert_int_equal(kvt_put_submit(store, ns, chain, 2, KVT_MEMORY, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
    early = lease_of(0, LEASED_FIRST);
    late = lease_of(LEASED_FIRST, LARGE - 2 - LEASED_FIRST);
    child = lease_of(LARGE - 1, 1);
    put.key = keys[LARGE];
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, KVT_MEMORY, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_delete_submit(store, ns, &keys[LARGE - 2], 1, NULL, &deletion), KVT_OK);
    assert_int_equal(kvt_ticket_wait(deletion, KVT_STAGE_DURABLE, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(deletion);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    last = lease_of(LARGE, 1);
    kvt_lease_release(store, early);
    sim_store_pass(&sim, 3600 * SECOND);
    assert_int_equal(kit_put(store, ns, LARGE + 1, 1, SHORT_BYTES, KVT_MEMORY), KVT_OK);
    kvt_lease_release(store, late);
    kvt_lease_release(store, child);
    kvt_lease_release(store, last);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_full_map_takes_more_blocks, setup, teardown),
        cmocka_unit_test_setup_teardown(a_full_map_takes_more_blocks, setup_ghi, teardown),
        cmocka_unit_test_setup_teardown(
            what_left_is_told_as_evicted_and_does_not_come_back, setup, teardown),
        cmocka_unit_test_setup_teardown(
            what_leaves_from_nvme_is_told_by_its_importance, setup_ghi, teardown),
        cmocka_unit_test_setup_teardown(what_is_used_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_used_stays, setup_ghi, teardown),
        cmocka_unit_test_setup_teardown(a_chain_leaves_from_its_end, setup, teardown),
        cmocka_unit_test_setup_teardown(
            leased_blocks_stay_and_a_put_without_room_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(blocks_within_their_share_stay, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_put_that_found_room_in_the_middle_leaves_no_half_a_walk, setup_large, teardown),
        cmocka_unit_test_setup_teardown(
            puts_wait_for_blocks_that_are_on_their_way, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_block_that_is_replaced_is_not_the_one_that_leaves, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_replace_in_a_full_map_costs_no_other_block, setup, teardown),
        cmocka_unit_test_setup_teardown(
            any_block_of_a_chain_as_long_as_the_map_is_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(without_nvme_blocks_leave_memory, setup_memory, teardown),
        cmocka_unit_test_setup_teardown(
            a_store_with_more_blocks_keeps_them_until_others_come, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_crash_leaves_a_store_that_opens_and_nothing_deleted, setup, teardown),
    };

    return cmocka_run_group_tests_name("full_map", tests, NULL, NULL);
}
