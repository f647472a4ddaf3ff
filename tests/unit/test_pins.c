/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_pins.c - kvt_pin(), kvt_importance_set() and kvt_estimate(), in a simulated world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "payload.h"
#include "rng.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BLOCK_BYTES = 64 << 10,
    NAMES = 64,
    PINNED = 8, /* 512 KiB of the MiB that may be pinned. */
    OTHERS = 1000,
    MANY = 250, /* All of them may be pinned. */
    SMALL_BYTES = 4096,
    SMALL_IN_HOST = 2048, /* In open_wide()'s: 8 MiB. */
    SMALL_PINNED = 1200,  /* More than one search looks at. */
    ALL_PINNED = 40,      /* More of HOST than may stay when they are not: 2.5 MiB of 4. */
};

static const uint64_t SECOND = UINT64_C(1000) * 1000 * 1000;

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;
static struct payload_key names[NAMES];
static struct kvt_key keys[NAMES];

static void
open_with(uint64_t nvme_capacity_bytes)
{
    struct kvt_options options = kit_options();

    options.nvme_capacity_bytes = nvme_capacity_bytes;
    options.policy = KVT_POLICY_LRU; /* Which of the others go is expected. */
    sim_store_open(&sim, &options);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "pins", "", 0, &ns), KVT_OK);
    for (uint32_t i = 0; i < NAMES; i++) {
        payload_key_make(&names[i], i);
        keys[i] = names[i].key;
    }
}

static int
setup(void **state)
{
    (void)state;
    open_with(8 << 20);
    return 0;
}

static int
setup_memory(void **state)
{
    (void)state;
    open_with(KVT_CAPACITY_NONE);
    return 0;
}

/* A wide HOST and nothing below; a share of it may be pinned that no single search gets past. */
static void
open_wide(enum kvt_policy policy)
{
    struct kvt_options options = kit_options();

    options.host_capacity_bytes = SMALL_IN_HOST * SMALL_BYTES;
    options.pin_bytes_max = options.host_capacity_bytes;
    options.host_high_percent = 100;
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    options.policy = policy;
    sim_store_open(&sim, &options);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "pins", "", 0, &ns), KVT_OK);
}

static int
setup_wide_lru(void **state)
{
    (void)state;
    open_wide(KVT_POLICY_LRU);
    return 0;
}

static int
setup_wide_ghi(void **state)
{
    (void)state;
    open_wide(KVT_POLICY_GHI);
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
put(uint64_t number, enum kvt_durability durability)
{
    assert_int_equal(kit_put(store, ns, number, 1, BLOCK_BYTES, durability), KVT_OK);
}

static void
puts_of(uint64_t first, uint32_t count, enum kvt_durability durability)
{
    for (uint32_t i = 0; i < count; i++)
        put(first + i, durability);
}

static unsigned
tiers_of(uint32_t number)
{
    uint8_t tiers;

    assert_int_equal(kvt_lookup(store, ns, &keys[number], 1, &tiers, NULL, NULL), KVT_OK);
    return tiers;
}

static enum kvt_status
demote(uint32_t number)
{
    struct kvt_result result;
    kvt_ticket *ticket;

    assert_int_equal(
        kvt_demote_submit(store, ns, &keys[number], 1, KVT_TIER_NVME, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, 1, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, 1, &result, 1), KVT_OK);
    kvt_ticket_free(ticket);
    return result.status;
}

static struct kvt_stats
stats(void)
{
    struct kvt_stats all = {.struct_size = sizeof(all)};

    assert_int_equal(kvt_stats_get(store, &all), KVT_OK);
    return all;
}

/* --- What a pin keeps ------------------------------------------------------------------------- */

static void
what_is_pinned_in_host_stays_until_its_time_is_over(void **state)
{
    uint32_t left_count = 0;

    (void)state;
    puts_of(0, 2 * PINNED, KVT_MEMORY);
    assert_int_equal(kvt_pin(store, ns, keys, PINNED, 1000 * SECOND), KVT_OK);
    puts_of(OTHERS, 200, KVT_MEMORY);
    for (uint32_t i = 0; i < 2 * PINNED; i++)
        assert_int_equal(tiers_of(i), i < PINNED ? KVT_TIER_HOST : 0);
    assert_int_equal(stats().pin_count_now, PINNED);
    assert_int_equal(stats().pin_bytes_now, PINNED * BLOCK_BYTES);
    sim_store_pass(&sim, 1001 * SECOND);
    assert_int_equal(stats().pin_count_now, 0);
    puts_of(OTHERS + 200, 200, KVT_MEMORY);
    for (uint32_t i = 0; i < PINNED; i++)
        left_count += tiers_of(i) != 0;
    assert_int_equal(left_count, 0);
}

static void
what_is_pinned_in_host_is_not_evicted_to_nvme(void **state)
{
    (void)state;
    puts_of(0, PINNED, KVT_SYNC);
    assert_int_equal(kvt_pin(store, ns, keys, PINNED, KVT_FOREVER), KVT_OK);
    puts_of(OTHERS, 100, KVT_MEMORY);
    for (uint32_t i = 0; i < PINNED; i++)
        assert_int_equal(tiers_of(i), KVT_TIER_HOST | KVT_TIER_NVME);
}

static void
what_is_pinned_on_nvme_outlives_its_segment(void **state)
{
    struct kvt_stats before, after;

    (void)state;
    puts_of(0, 2 * PINNED, KVT_SYNC);
    for (uint32_t i = 0; i < 2 * PINNED; i++)
        assert_int_equal(demote(i), KVT_OK);
    assert_int_equal(kvt_pin(store, ns, keys, PINNED, KVT_FOREVER), KVT_OK);
    before = stats();
    /* Three times what NVMe holds. */
    puts_of(OTHERS, 400, KVT_SYNC);
    after = stats();
    assert_true(after.segment_recycle_count > before.segment_recycle_count + 8);
    assert_true(after.nvme_evict_count > before.nvme_evict_count);
    for (uint32_t i = 0; i < PINNED; i++) {
        uint64_t version;

        assert_int_equal(tiers_of(i), KVT_TIER_NVME);
        assert_int_equal(kit_get(store, ns, i, &version), KVT_OK);
    }
    for (uint32_t i = PINNED; i < 2 * PINNED; i++)
        assert_int_equal(tiers_of(i), 0);
}

static void
room_is_found_behind_any_number_of_pins(void **state)
{
    uint32_t host_count = 0;

    (void)state;
    for (uint64_t i = 0; i < SMALL_PINNED; i++) {
        struct payload_key name;

        assert_int_equal(kit_put(store, ns, i, 1, SMALL_BYTES, KVT_MEMORY), KVT_OK);
        payload_key_make(&name, i);
        assert_int_equal(kvt_pin(store, ns, &name.key, 1, KVT_FOREVER), KVT_OK);
    }
    for (uint64_t i = 0; i < 2 * SMALL_IN_HOST; i++)
        assert_int_equal(kit_put(store, ns, SMALL_PINNED + i, 1, SMALL_BYTES, KVT_MEMORY), KVT_OK);
    for (uint64_t i = 0; i < SMALL_PINNED; i++) {
        struct payload_key name;
        uint8_t tiers;

        payload_key_make(&name, i);
        assert_int_equal(kvt_lookup(store, ns, &name.key, 1, &tiers, NULL, NULL), KVT_OK);
        host_count += tiers == KVT_TIER_HOST;
    }
    assert_int_equal(host_count, SMALL_PINNED);
}

/* However long the search is, it ends. */
static void
when_all_is_pinned_there_is_no_room(void **state)
{
    enum kvt_status status = KVT_OK;
    uint64_t count = 0;

    (void)state;
    for (; count < 2 * SMALL_IN_HOST && status == KVT_OK; count++) {
        struct payload_key name;

        payload_key_make(&name, count);
        status = kit_put(store, ns, count, 1, SMALL_BYTES, KVT_MEMORY);
        if (status == KVT_OK)
            assert_int_equal(kvt_pin(store, ns, &name.key, 1, KVT_FOREVER), KVT_OK);
    }
    assert_int_equal(status, KVT_E_NOSPC);
    assert_in_range(count, SMALL_IN_HOST / 2, SMALL_IN_HOST + 1);
    assert_int_equal(kit_put(store, ns, count, 1, SMALL_BYTES, KVT_MEMORY), KVT_E_NOSPC);
}

static void
a_demote_of_what_is_pinned_waits_for_a_better_time(void **state)
{
    (void)state;
    put(0, KVT_SYNC);
    assert_int_equal(kvt_pin(store, ns, keys, 1, KVT_FOREVER), KVT_OK);
    assert_int_equal(demote(0), KVT_NOT_READY);
    assert_int_equal(tiers_of(0), KVT_TIER_HOST | KVT_TIER_NVME);
    assert_int_equal(kvt_pin(store, ns, keys, 1, 0), KVT_OK);
    assert_int_equal(demote(0), KVT_OK);
    assert_int_equal(tiers_of(0), KVT_TIER_NVME);
}

/* --- What it does not ------------------------------------------------------------------------- */

static void
a_pin_does_not_outlive_its_block(void **state)
{
    (void)state;
    puts_of(0, 3, KVT_SYNC);
    assert_int_equal(kvt_pin(store, ns, keys, 3, KVT_FOREVER), KVT_OK);
    assert_int_equal(kit_delete(store, ns, 0), KVT_OK);
    assert_int_equal(stats().pin_count_now, 2);
    assert_int_equal(kit_put(store, ns, 1, 2, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    assert_int_equal(stats().pin_count_now, 1);
    assert_int_equal(demote(1), KVT_OK); /* The new block is another one. */
    assert_int_equal(kvt_namespace_clear(store, ns), KVT_OK);
    assert_int_equal(stats().pin_count_now, 0);
    assert_int_equal(stats().pin_bytes_now, 0);
    assert_int_equal(tiers_of(2), 0);
}

static void
more_than_the_bound_is_refused_and_nothing_changes(void **state)
{
    (void)state;
    puts_of(0, 20, KVT_MEMORY); /* The bound is 16 of these. */
    assert_int_equal(kvt_pin(store, ns, keys, 10, 10 * SECOND), KVT_OK);
    refused(kvt_pin(store, ns, keys, 17, 100 * SECOND), KVT_E_NOSPC, "pin_bytes_max");
    assert_int_equal(stats().pin_count_now, 10);
    /* Each block counts once, however often it is named. */
    keys[15] = keys[0];
    assert_int_equal(kvt_pin(store, ns, keys, 16, 10 * SECOND), KVT_OK);
    assert_int_equal(stats().pin_count_now, 15);
    /* The refused call has not lengthened the first ten. */
    sim_store_pass(&sim, 11 * SECOND);
    assert_int_equal(stats().pin_count_now, 0);
}

static void
keys_that_are_not_there_are_passed_over(void **state)
{
    (void)state;
    put(1, KVT_MEMORY);
    assert_int_equal(kvt_pin(store, ns, keys, 3, SECOND), KVT_OK);
    assert_int_equal(stats().pin_count_now, 1);
    assert_int_equal(kvt_pin(store, ns, &keys[2], 3, SECOND), KVT_MISS);
    assert_int_equal(kvt_pin(store, ns, &keys[2], 3, 0), KVT_MISS);
    refused(kvt_pin(NULL, ns, keys, 1, 1), KVT_E_INVAL, "store");
    refused(kvt_pin(store, ns, NULL, 1, 1), KVT_E_INVAL, "keys");
    refused(kvt_pin(store, ns, keys, 0, 1), KVT_E_INVAL, "count");
    refused(kvt_pin(store, (kvt_namespace){77}, keys, 1, 1), KVT_E_INVAL, "namespace");
}

/* --- The table -------------------------------------------------------------------------------- */

static void
random_pins_end_when_they_shall(void **state)
{
    static uint64_t ends[MANY]; /* In seconds; 0: no pin. */
    struct rng rng = {.state = 5};
    uint64_t now = 0;

    (void)state;
    memset(ends, 0, sizeof(ends));
    for (uint64_t i = 0; i < MANY; i++)
        assert_int_equal(kit_put(store, ns, i, 1, 4096, KVT_MEMORY), KVT_OK);
    for (uint32_t round = 0; round < 4000; round++) {
        uint32_t number = rng_below(&rng, MANY);
        uint64_t length = rng_below(&rng, 3) == 0 ? 0 : 1 + rng_below(&rng, 200);
        struct payload_key name;
        uint32_t expected_count = 0;

        payload_key_make(&name, number);
        assert_int_equal(
            kvt_pin(store, ns, &name.key, 1, length == 0 ? 0 : length * SECOND - SECOND / 2),
            KVT_OK);
        ends[number] = length == 0 ? 0 : now + length;
        if (rng_below(&rng, 3) == 0) {
            /* Calls take time of their own, but little. */
            sim_store_pass(&sim, SECOND);
            now++;
        }
        for (uint32_t i = 0; i < MANY; i++)
            expected_count += ends[i] > now;
        assert_int_equal(stats().pin_count_now, expected_count);
        assert_int_equal(stats().pin_bytes_now, expected_count * 4096);
    }
}

/* --- The end of the store --------------------------------------------------------------------- */

static struct sched_ops slow_sched;

/* Everybody works, and the pins end; nothing is begun. */
static void
time_passes_at_rest(void)
{
    uint64_t io_count = sim_io_count(sim.world);

    sim_store_pass(&sim, 2 * SECOND);
    assert_int_equal(sim_io_count(sim.world), io_count);
}

static void
slow_stop(void *context, struct task *task)
{
    time_passes_at_rest();
    sim_env(sim.world)->sched->stop(context, task);
}

static void
slow_gate_wait(void *context, struct gate *gate, uint32_t seen, uint64_t until_ns)
{
    sim_env(sim.world)->sched->gate_wait(context, gate, seen, until_ns);
    time_passes_at_rest();
}

/* HOST is above its mark, for as long as its pins last; nothing is under way. The closer's calls
 * take long from now on. */
static void
all_is_pinned(void)
{
    struct kvt_options options = kit_options();

    options.host_high_percent = 50;
    options.host_low_percent = 10;
    options.pin_bytes_max = options.host_capacity_bytes;
    sim_store_open(&sim, &options);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "pins", "", 0, &ns), KVT_OK);
    for (uint32_t i = 0; i < ALL_PINNED; i++) {
        payload_key_make(&names[i], i);
        keys[i] = names[i].key;
        put(i, KVT_MEMORY);
        assert_int_equal(kvt_pin(store, ns, &keys[i], 1, SECOND), KVT_OK);
    }
    assert_int_equal(kvt_flush(store), KVT_OK);
    assert_int_equal(stats().pin_count_now, ALL_PINNED);
    assert_true(stats().host_used_bytes_now > options.host_capacity_bytes / 2);
    slow_sched = *store->env.sched;
    slow_sched.stop = slow_stop;
    slow_sched.gate_wait = slow_gate_wait;
    store->env.sched = &slow_sched;
}

static void
pins_that_end_while_the_store_is_closed_begin_nothing(void **state)
{
    (void)state;
    all_is_pinned();
    assert_int_equal(kvt_close(store), KVT_OK);
    assert_int_equal(sim_leaks(sim.world, NULL, 0), 0);
    sim_store_reopen(&sim);
    sim_store_close(&sim);
}

static void
pins_that_end_while_the_store_is_given_up_begin_nothing(void **state)
{
    (void)state;
    all_is_pinned();
    kvt_abort(store);
    assert_int_equal(sim_leaks(sim.world, NULL, 0), 0);
    sim_store_reopen(&sim);
    sim_store_close(&sim);
}

/* --- Importance ------------------------------------------------------------------------------- */

static uint32_t
importance_of(uint32_t number)
{
    struct block_key key;
    uint32_t entry;

    assert_true(
        key_init(&key, store->file.secret, ns.id, 0, keys[number].bytes, keys[number].length));
    entry = residency_find(store->map, key_fingerprint(store->fingerprint_seed, &key), &key);
    assert_int_not_equal(entry, ENTRY_NONE);
    return entries_at(store->entries, entry)->importance;
}

static void
importance_is_what_was_said_last(void **state)
{
    (void)state;
    puts_of(0, 3, KVT_MEMORY);
    assert_int_equal(importance_of(1), 0);
    assert_int_equal(kvt_importance_set(store, ns, keys, 2, 7), KVT_OK);
    assert_int_equal(importance_of(1), 7);
    assert_int_equal(importance_of(2), 0);
    assert_int_equal(kvt_importance_set(store, ns, &keys[1], 5, 9), KVT_OK);
    assert_int_equal(importance_of(0), 7);
    assert_int_equal(importance_of(1), 9);
    assert_int_equal(kvt_importance_set(store, ns, &keys[5], 5, 9), KVT_MISS);
    refused(kvt_importance_set(store, ns, NULL, 1, 1), KVT_E_INVAL, "keys");
    refused(kvt_importance_set(store, ns, keys, KVT_BATCH_MAX + 1, 1), KVT_E_INVAL, "count");
}

/* --- Estimates -------------------------------------------------------------------------------- */

static struct kvt_cost
estimate_of(uint32_t first, uint32_t count)
{
    struct kvt_cost estimate = {.struct_size = sizeof(estimate)};

    assert_int_equal(kvt_estimate(store, ns, &keys[first], count, &estimate), KVT_OK);
    return estimate;
}

static void
put_with_cost(uint32_t number, uint32_t recompute_us)
{
    static uint8_t bytes[BLOCK_BYTES];
    struct kvt_put about = {
        .key = keys[number], .source = bytes, .length = BLOCK_BYTES, .recompute_us = recompute_us};
    struct kvt_result result;
    kvt_ticket *ticket;

    payload_fill(bytes, BLOCK_BYTES, number, 1);
    assert_int_equal(kvt_put_submit(store, ns, &about, 1, KVT_SYNC, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, 2, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, 2, &result, 1), KVT_OK);
    assert_int_equal(result.status, KVT_OK);
    kvt_ticket_free(ticket);
}

static void
an_estimate_follows_what_was_seen(void **state)
{
    struct kvt_cost one, two, wrong = {.struct_size = 8};
    uint64_t version;

    (void)state;
    for (uint32_t i = 0; i < 6; i++)
        put_with_cost(i, i < 4 ? 100 : 0);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(demote(i), KVT_OK);
    one = estimate_of(0, 6);
    assert_int_equal(one.leading_count, 6);
    assert_int_equal(one.nvme_bytes, 4 * BLOCK_BYTES);
    assert_int_equal(one.host_bytes, 2 * BLOCK_BYTES);
    assert_int_equal(one.recompute_ns, 4 * 100 * 1000);
    assert_int_equal(one.recompute_unknown_count, 2);
    assert_int_equal(one.load_ns, 0); /* Nothing was read yet. */
    assert_int_equal(kit_get(store, ns, 0, &version), KVT_OK);
    one = estimate_of(1, 1);
    two = estimate_of(1, 2);
    assert_true(one.load_ns > 0);
    assert_in_range(two.load_ns, 2 * one.load_ns, 2 * one.load_ns + 1);
    /* Of HOST no rate is known yet, so neither is the whole. */
    assert_int_equal(estimate_of(0, 2).load_ns, 0);
    assert_int_equal(kit_get(store, ns, 0, &version), KVT_OK);
    assert_true(estimate_of(0, 2).load_ns > one.load_ns);
    /* What lies behind a miss does not count. */
    assert_int_equal(kit_delete(store, ns, 1), KVT_OK);
    assert_int_equal(estimate_of(0, 6).leading_count, 1);
    assert_int_equal(estimate_of(1, 5).leading_count, 0);
    refused(kvt_estimate(store, ns, keys, 1, NULL), KVT_E_INVAL, "cost_out");
    refused(kvt_estimate(store, ns, keys, 1, &wrong), KVT_E_INVAL, "struct_size");
    refused(kvt_estimate(store, ns, NULL, 1, &one), KVT_E_INVAL, "keys");
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define MEMORY_TEST(name) cmocka_unit_test_setup_teardown(name, setup_memory, teardown)
    const struct CMUnitTest tests[] = {
        MEMORY_TEST(what_is_pinned_in_host_stays_until_its_time_is_over),
        TEST(what_is_pinned_in_host_is_not_evicted_to_nvme),
        TEST(what_is_pinned_on_nvme_outlives_its_segment),
        TEST(a_demote_of_what_is_pinned_waits_for_a_better_time),
        cmocka_unit_test_setup_teardown(
            room_is_found_behind_any_number_of_pins, setup_wide_lru, teardown),
        cmocka_unit_test_setup_teardown(
            room_is_found_behind_any_number_of_pins, setup_wide_ghi, teardown),
        cmocka_unit_test_setup_teardown(
            when_all_is_pinned_there_is_no_room, setup_wide_lru, teardown),
        cmocka_unit_test_setup_teardown(
            when_all_is_pinned_there_is_no_room, setup_wide_ghi, teardown),
        TEST(a_pin_does_not_outlive_its_block),
        MEMORY_TEST(more_than_the_bound_is_refused_and_nothing_changes),
        MEMORY_TEST(keys_that_are_not_there_are_passed_over),
        MEMORY_TEST(random_pins_end_when_they_shall),
        MEMORY_TEST(importance_is_what_was_said_last),
        TEST(an_estimate_follows_what_was_seen),
        cmocka_unit_test(pins_that_end_while_the_store_is_closed_begin_nothing),
        cmocka_unit_test(pins_that_end_while_the_store_is_given_up_begin_nothing),
    };
#undef TEST
#undef MEMORY_TEST

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
