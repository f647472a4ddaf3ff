/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_outcomes.c - outcomes of single blocks that kvt_ticket_results() names and that need a store
 * in trouble, or something that happens meanwhile.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "commit_internal.h"
#include "payload.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_kit.h"

enum {
    BLOCK_BYTES = 60000,
    KEYS_MAX = 400, /* More than NVMe has room for. */
    CROWD = 20000,  /* Deletes, more than a new store has memory to remember. */
};

#define SECOND_NS (UINT64_C(1000) * 1000 * 1000)

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;
static uint8_t bytes[BLOCK_BYTES];
static struct payload_key names[KEYS_MAX];
static struct kvt_key keys[KEYS_MAX];

static void
open_with(uint64_t nvme_capacity_bytes)
{
    struct kvt_options options = kit_options();

    options.nvme_capacity_bytes = nvme_capacity_bytes;
    options.host_capacity_bytes = 16 << 20;
    options.relaxed_interval_ns = UINT64_C(3600) * 1000000000;
    options.pin_bytes_max = options.host_capacity_bytes;
    sim_store_open(&sim, &options);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "here", "", 0, &ns), KVT_OK);
    for (uint32_t i = 0; i < KEYS_MAX; i++) {
        payload_key_make(&names[i], i);
        keys[i] = names[i].key;
    }
}

static int
setup(void **state)
{
    (void)state;
    open_with(kit_options().nvme_capacity_bytes);
    return 0;
}

/* More segments than will be tried. */
static int
setup_wide(void **state)
{
    (void)state;
    open_with(128 << 20);
    return 0;
}

/* Blocks that could not be made durable are no success. */
static int
teardown(void **state)
{
    (void)state;
    sim_rules_clear(sim.world);
    kvt_abort(store);
    sim_world_destroy(sim.world);
    return 0;
}

static kvt_ticket *
put_submit(uint32_t i, enum kvt_durability durability)
{
    struct kvt_put put = {.key = keys[i], .source = bytes, .length = BLOCK_BYTES};
    kvt_ticket *ticket;

    assert_int_equal(kvt_put_submit(store, ns, &put, 1, durability, NULL, &ticket), KVT_OK);
    return ticket;
}

static enum kvt_status
result_of(kvt_ticket *ticket, uint32_t stage)
{
    struct kvt_result result;

    assert_int_equal(kvt_ticket_wait(ticket, stage, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, stage, &result, 1), KVT_OK);
    return result.status;
}

static void
a_put_that_a_clear_overtakes_is_a_miss(void **state)
{
    kvt_ticket *ticket;
    uint64_t version;

    (void)state;
    ticket = put_submit(1, KVT_SYNC);
    assert_int_equal(kvt_namespace_clear(store, ns), KVT_OK);
    assert_int_equal(result_of(ticket, KVT_STAGE_DONE), KVT_MISS);
    assert_int_equal(result_of(ticket, KVT_STAGE_DURABLE), KVT_MISS);
    kvt_ticket_free(ticket);
    assert_int_equal(kit_get(store, ns, 1, &version), KVT_MISS);
}

static void
a_put_that_is_deleted_before_its_commit_is_no_longer_durable(void **state)
{
    kvt_ticket *ticket;

    (void)state;
    ticket = put_submit(1, KVT_RELAXED);
    assert_int_equal(result_of(ticket, KVT_STAGE_DONE), KVT_OK);
    assert_int_equal(kit_delete(store, ns, 1), KVT_OK);
    assert_int_equal(result_of(ticket, KVT_STAGE_DURABLE), KVT_MISS);
    kvt_ticket_free(ticket);
    /* There is nothing left to delete. */
    assert_int_equal(kvt_delete_submit(store, ns, &keys[1], 1, NULL, &ticket), KVT_OK);
    assert_int_equal(result_of(ticket, KVT_STAGE_DONE), KVT_MISS);
    kvt_ticket_free(ticket);
}

/* More kills wait than there is memory for. */
static void
a_delete_that_no_memory_can_remember_is_refused(void **state)
{
    static struct kvt_key crowd[CROWD];
    static struct kvt_result results[CROWD];
    kvt_ticket *ticket;
    uint8_t tiers = 0;

    (void)state;
    for (uint32_t i = 1; i <= 2; i++)
        assert_int_equal(kit_result(put_submit(i, KVT_SYNC), KVT_STAGE_DURABLE).status, KVT_OK);
    for (uint32_t i = 0; i < CROWD; i++)
        crowd[i] = keys[i + 1 < CROWD ? 1 : 2];
    assert_int_equal(kvt_delete_submit(store, ns, crowd, CROWD, NULL, &ticket), KVT_OK);
    sim_memory_fail(sim.world, 1, true);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, KVT_FOREVER), KVT_OK);
    sim_memory_fail(sim.world, 0, false);
    assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DONE, results, CROWD), KVT_OK);
    assert_int_equal(results[0].status, KVT_OK);
    assert_int_equal(results[1].status, KVT_MISS);
    assert_int_equal(results[CROWD - 1].status, KVT_E_NOMEM);
    kvt_ticket_free(ticket);
    assert_int_equal(kvt_lookup(store, ns, &keys[2], 1, &tiers, NULL, NULL), KVT_OK);
    assert_int_not_equal(tiers, 0);
}

static void
results_of_a_stage_that_was_not_reached_are_not_given(void **state)
{
    struct kvt_result result;
    kvt_ticket *ticket;

    (void)state;
    ticket = put_submit(1, KVT_RELAXED);
    assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DONE, &result, 1), KVT_NOT_READY);
    assert_int_equal(result_of(ticket, KVT_STAGE_DONE), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DURABLE, &result, 1), KVT_NOT_READY);
    assert_int_equal(kvt_flush(store), KVT_OK);
    assert_int_equal(result_of(ticket, KVT_STAGE_DURABLE), KVT_OK);
    kvt_ticket_free(ticket);
}

/* What is pinned leaves no room, however often it is written again. */
static void
nvme_that_is_pinned_whole_takes_nothing_more(void **state)
{
    enum kvt_status status = KVT_OK;
    uint32_t count = 0;
    uint64_t version;

    (void)state;
    for (; status == KVT_OK && count < KEYS_MAX; count++) {
        kvt_ticket *ticket = put_submit(count, KVT_SYNC);

        assert_int_equal(result_of(ticket, KVT_STAGE_DONE), KVT_OK);
        assert_int_equal(kvt_pin(store, ns, &keys[count], 1, KVT_FOREVER), KVT_OK);
        status = result_of(ticket, KVT_STAGE_DURABLE);
        kvt_ticket_free(ticket);
    }
    assert_int_equal(status, KVT_E_NOSPC);
    assert_in_range(count, 60, 200);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(kit_get(store, ns, i, &version), KVT_E_CORRUPT); /* It is all zeros. */
}

static void
roots_that_take_no_writes_any_more_say_so(void **state)
{
    struct sim_rule rule = {
        .ops = SIM_SYNC, .effect = SIM_EIO, .file = "data.", .nth = 1, .sticky = true};
    enum kvt_status status = KVT_E_IO;
    uint32_t count = 0, health;

    (void)state;
    sim_rule_add(sim.world, &rule);
    for (; status == KVT_E_IO && count < KEYS_MAX; count++) {
        kvt_ticket *ticket = put_submit(count, KVT_SYNC);

        status = result_of(ticket, KVT_STAGE_DURABLE);
        kvt_ticket_free(ticket);
    }
    assert_int_equal(status, KVT_E_READONLY);
    assert_true(count >= 1);
    assert_int_equal(kvt_health(store, &health), KVT_OK);
    assert_true((health & KVT_HEALTH_ROOT_READONLY) != 0);
}

static struct kvt_result
get_result(uint32_t i, uint64_t capacity, bool has_memory)
{
    struct kvt_get get = {.key = keys[i], .destination = bytes, .capacity = capacity};
    struct kvt_result result;
    kvt_ticket *ticket;

    assert_int_equal(kvt_get_submit(store, ns, &get, 1, NULL, &ticket), KVT_OK);
    sim_memory_fail(sim.world, has_memory ? 0 : 1, true);
    result = kit_result(ticket, KVT_STAGE_DONE);
    sim_memory_fail(sim.world, 0, false);
    return result;
}

/* It has the length of what was wanted when that is there, also where it does not fit. */
static void
a_get_that_brings_nothing_has_no_length(void **state)
{
    static kvt_reservation *held[KEYS_MAX];
    struct kvt_put put = {.length = BLOCK_BYTES};
    uint32_t count = 0;
    struct kvt_result result;
    enum kvt_status status;
    kvt_ticket *ticket = put_submit(0, KVT_SYNC);

    (void)state;
    assert_int_equal(kit_result(ticket, KVT_STAGE_DURABLE).status, KVT_OK);
    result = get_result(0, BLOCK_BYTES, false);
    assert_int_equal(result.status, KVT_E_NOMEM);
    assert_int_equal(result.length, 0);
    assert_int_equal(
        kvt_demote_submit(store, ns, &keys[0], 1, KVT_TIER_NVME, NULL, &ticket), KVT_OK);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    do {
        void *address;

        put.key = keys[1 + count];
        status = kvt_reserve(store, ns, &put, &address, &held[count]);
        count += status == KVT_OK;
    } while (status == KVT_OK);
    assert_int_equal(status, KVT_E_NOSPC);
    result = get_result(0, BLOCK_BYTES, true);
    assert_int_equal(result.status, KVT_E_NOSPC);
    assert_int_equal(result.length, 0);
    while (count > 0)
        kvt_discard(held[--count]);
    result = get_result(0, BLOCK_BYTES - 1, true);
    assert_int_equal(result.status, KVT_E_INVAL);
    assert_int_equal(result.length, BLOCK_BYTES);
    result = get_result(0, BLOCK_BYTES, true);
    assert_int_equal(result.status, KVT_OK);
    assert_int_equal(result.length, BLOCK_BYTES);
}

/* --- A disk without space --------------------------------------------------------------------- */

static void
disk_fill(void)
{
    struct sim_rule rule = {
        .ops = SIM_WRITE, .effect = SIM_ENOSPC, .file = "data.", .nth = 1, .sticky = true};

    sim_rule_add(sim.world, &rule);
}

static enum kvt_status
put_of(uint32_t i)
{
    return kit_result(put_submit(i, KVT_SYNC), KVT_STAGE_DURABLE).status;
}

static uint64_t
failed_count(void)
{
    return kit_stats(store).batch_failed_count;
}

static void
health_is_well(void)
{
    uint32_t health;

    assert_int_equal(kvt_health(store, &health), KVT_OK);
    assert_int_equal(health & (KVT_HEALTH_ROOT_READONLY | KVT_HEALTH_META_READONLY), 0);
}

/* However many puts there are meanwhile: each failed write costs a segment. */
static void
a_disk_whose_space_returns_takes_writes_again(void **state)
{
    uint64_t begin_ns;

    (void)state;
    assert_int_equal(put_of(0), KVT_OK);
    disk_fill();
    begin_ns = sim_now(sim.world);
    for (uint32_t i = 1; i < 100; i++)
        assert_int_equal(put_of(i), KVT_E_NOSPC);
    assert_in_range(sim_now(sim.world) - begin_ns, SECOND_NS, 10 * SECOND_NS);
    assert_in_range(failed_count(), 2, 5);
    health_is_well();
    sim_rules_clear(sim.world);
    sim_store_pass(&sim, 10 * SECOND_NS);
    for (uint32_t i = 100; i < 160; i++)
        assert_int_equal(put_of(i), KVT_OK);
    /* The next time puts wait again. */
    disk_fill();
    begin_ns = sim_now(sim.world);
    assert_int_equal(put_of(160), KVT_E_NOSPC);
    assert_in_range(sim_now(sim.world) - begin_ns, SECOND_NS, 2 * SECOND_NS);
    health_is_well();
}

/* Pauses become longer: a disk that is full for a day does not cost the store its segments. */
static void
a_full_disk_is_tried_seldom(void **state)
{
    (void)state;
    disk_fill();
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(put_of(i), KVT_E_NOSPC);
        sim_store_pass(&sim, SECOND_NS);
    }
    assert_in_range(failed_count(), 4, 8);
    health_is_well();
    sim_rules_clear(sim.world);
    sim_store_pass(&sim, 40 * SECOND_NS);
    assert_int_equal(put_of(100), KVT_OK);
}

static void
a_delete_waits_for_space_that_comes_soon(void **state)
{
    kvt_ticket *ticket;

    (void)state;
    assert_int_equal(put_of(0), KVT_OK);
    assert_int_equal(put_of(1), KVT_OK);
    disk_fill();
    assert_int_equal(kvt_delete_submit(store, ns, &keys[0], 1, NULL, &ticket), KVT_OK);
    sim_store_pass(&sim, 2 * SECOND_NS);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, 0), KVT_LATE);
    sim_rules_clear(sim.world);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DURABLE).status, KVT_OK);
    kvt_ticket_free(ticket);
    /* Nothing is in doubt. */
    assert_int_equal(kit_delete(store, ns, 0), KVT_MISS);
    health_is_well();
}

static void
a_flush_of_a_full_disk_ends(void **state)
{
    kvt_ticket *gone, *put;

    (void)state;
    assert_int_equal(put_of(0), KVT_OK);
    disk_fill();
    assert_int_equal(kvt_delete_submit(store, ns, &keys[0], 1, NULL, &gone), KVT_OK);
    put = put_submit(1, KVT_RELAXED);
    assert_int_equal(kvt_flush(store), KVT_E_IO);
    assert_int_equal(kit_result(gone, KVT_STAGE_DURABLE).status, KVT_E_NOSPC);
    assert_int_equal(kit_result(put, KVT_STAGE_DURABLE).status, KVT_E_NOSPC);
    health_is_well();
}

static void
is_gone_behind(enum kvt_status close_status)
{
    uint64_t version;

    assert_int_equal(kvt_close(store), close_status);
    sim_store_reopen(&sim);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "here", "", 0, &ns), KVT_OK);
    assert_int_equal(kit_get(store, ns, 0, &version), KVT_MISS);
}

/* A delete that failed is made good by the next batch: else its record would still be in the index
 * when the key's newer one is gone. */
static void
what_is_deleted_after_a_delete_in_vain_stays_deleted(void **state)
{
    (void)state;
    assert_int_equal(put_of(0), KVT_OK);
    disk_fill();
    assert_int_equal(kit_delete(store, ns, 0), KVT_E_NOSPC);
    sim_rules_clear(sim.world);
    sim_store_pass(&sim, 40 * SECOND_NS);
    assert_int_equal(put_of(0), KVT_OK);
    assert_int_equal(kit_delete(store, ns, 0), KVT_OK);
    assert_int_equal(kvt_flush(store), KVT_E_IO); /* Tells of the first. */
    is_gone_behind(KVT_OK);
}

/* Nothing else comes, and nobody asks. */
static void
a_delete_in_vain_is_tried_again(void **state)
{
    uint64_t version;

    (void)state;
    assert_int_equal(put_of(0), KVT_OK);
    disk_fill();
    assert_int_equal(kit_delete(store, ns, 0), KVT_E_NOSPC);
    assert_int_equal(kvt_flush(store), KVT_E_IO);
    assert_int_equal(kvt_flush(store), KVT_OK); /* It was told, and is not waited for. */
    sim_store_pass(&sim, 100 * SECOND_NS);
    assert_in_range(failed_count(), 4, 8);
    assert_int_equal(kvt_flush(store), KVT_OK);
    sim_rules_clear(sim.world);
    sim_store_pass(&sim, 40 * SECOND_NS);
    sim_power_cut(sim.world, SIM_CUT_NOTHING_KEPT);
    sim_store_reopen(&sim);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "here", "", 0, &ns), KVT_OK);
    assert_int_equal(kit_get(store, ns, 0, &version), KVT_MISS);
}

/* A kill travels with a batch. */
static bool
is_travelling(void)
{
    bool is_met = false;

    for (uint32_t i = 0; i < BATCH_COUNT; i++)
        is_met = is_met || store->commit->batches[i].kill_count > 0;
    return is_met;
}

/* It was told; a flush does not wait for the write, which takes an hour, with which it is tried. */
static void
a_flush_does_not_wait_for_the_next_try_of_a_delete_in_vain(void **state)
{
    const struct sim_rule late = {.ops = SIM_WRITE,
        .effect = SIM_STALL,
        .file = "data.",
        .nth = 1,
        .sticky = true,
        .stall_ns = 3600 * SECOND_NS};

    (void)state;
    assert_int_equal(put_of(0), KVT_OK);
    disk_fill();
    assert_int_equal(kit_delete(store, ns, 0), KVT_E_NOSPC);
    assert_int_equal(kvt_flush(store), KVT_E_IO);
    sim_rules_clear(sim.world);
    sim_rule_add(sim.world, &late);
    sim_store_pass(&sim, 40 * SECOND_NS);
    assert_true(is_travelling());
    assert_int_equal(kvt_flush(store), KVT_OK);
    assert_true(is_travelling());
}

/* The close tries once more, and the disk is still full: the next open looks for what came back. */
static void
a_close_gives_up_a_delete_in_vain(void **state)
{
    (void)state;
    assert_int_equal(put_of(0), KVT_OK);
    disk_fill();
    assert_int_equal(kit_delete(store, ns, 0), KVT_E_NOSPC);
    assert_int_equal(kvt_close(store), KVT_E_IO);
    sim_rules_clear(sim.world);
    sim_store_reopen(&sim);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "here", "", 0, &ns), KVT_OK);
    assert_int_equal(put_of(0), KVT_EXISTS);
}

/* Nobody waits for the kill of what a put has replaced: it is lost with the put. */
static void
a_delete_behind_a_replace_that_found_no_space_is_for_good(void **state)
{
    struct kvt_put put = {
        .key = keys[1], .source = bytes, .length = BLOCK_BYTES, .flags = KVT_PUT_REPLACE};
    enum kvt_status status;
    kvt_ticket *ticket;
    uint64_t version = 0;

    (void)state;
    payload_fill(bytes, BLOCK_BYTES, 1, 1);
    assert_int_equal(put_of(1), KVT_OK);
    payload_fill(bytes, BLOCK_BYTES, 1, 2);
    disk_fill();
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, KVT_SYNC, NULL, &ticket), KVT_OK);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DURABLE).status, KVT_E_NOSPC);
    kvt_ticket_free(ticket);
    assert_int_equal(put_of(2), KVT_E_NOSPC);
    sim_rules_clear(sim.world);
    sim_store_pass(&sim, 10 * SECOND_NS);
    /* What is in HOST becomes durable, and is deleted. */
    assert_true(put_of(1) >= 0);
    assert_int_equal(kvt_delete_submit(store, ns, &keys[1], 1, NULL, &ticket), KVT_OK);
    status = kit_result(ticket, KVT_STAGE_DURABLE).status;
    kvt_ticket_free(ticket);
    kvt_abort(store);
    sim_store_reopen(&sim);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "here", "", 0, &ns), KVT_OK);
    if (status == KVT_OK)
        assert_int_equal(kit_get(store, ns, 1, &version), KVT_MISS);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_put_that_a_clear_overtakes_is_a_miss),
        TEST(a_put_that_is_deleted_before_its_commit_is_no_longer_durable),
        TEST(a_delete_that_no_memory_can_remember_is_refused),
        TEST(results_of_a_stage_that_was_not_reached_are_not_given),
        TEST(nvme_that_is_pinned_whole_takes_nothing_more),
        TEST(a_get_that_brings_nothing_has_no_length),
        TEST(roots_that_take_no_writes_any_more_say_so),
        TEST(a_disk_whose_space_returns_takes_writes_again),
        cmocka_unit_test_setup_teardown(a_full_disk_is_tried_seldom, setup_wide, teardown),
        TEST(a_delete_waits_for_space_that_comes_soon),
        TEST(a_flush_of_a_full_disk_ends),
        TEST(what_is_deleted_after_a_delete_in_vain_stays_deleted),
        TEST(a_delete_in_vain_is_tried_again),
        TEST(a_flush_does_not_wait_for_the_next_try_of_a_delete_in_vain),
        TEST(a_delete_behind_a_replace_that_found_no_space_is_for_good),
        TEST(a_close_gives_up_a_delete_in_vain),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
