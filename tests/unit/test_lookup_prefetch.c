/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lookup_prefetch.c - kvt_lookup_prefetch(), how much bulk prefetches read at a time, and what
 * a lease holds, in a simulated world: between two calls of a test nothing happens, so that what
 * waits is known.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "payload.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BLOCK_BYTES = 64 << 10,
    MANY = 48,      /* 3 MiB of HOST's 4. */
    AT_A_TIME = 16, /* A quarter of HOST. */
    TICKETS_MAX = 16,
};

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;
static uint8_t memory[MANY][BLOCK_BYTES];
static struct payload_key names[MANY + 1];
static struct kvt_key keys[MANY + 1]; /* A chain; the last was never stored. */

static const struct kvt_prefetch to_host = {
    .struct_size = sizeof(to_host), .tier = KVT_TIER_HOST, .flags = KVT_PREFETCH_BULK};

static kvt_ticket *
puts_submit(void)
{
    struct kvt_put puts[MANY] = {{.length = 0}};
    kvt_ticket *ticket;

    for (uint32_t i = 0; i < MANY; i++) {
        payload_fill(memory[i], BLOCK_BYTES, i, 1);
        puts[i].key = keys[i];
        puts[i].source = memory[i];
        puts[i].length = BLOCK_BYTES;
    }
    assert_int_equal(kvt_put_submit(store, ns, puts, MANY, KVT_SYNC, NULL, &ticket), KVT_OK);
    return ticket;
}

/* The ticket's outcome for every block is `wanted`. */
static void
finish(kvt_ticket *ticket, uint32_t stage, uint32_t count, enum kvt_status wanted)
{
    struct kvt_result results[MANY];

    assert_int_equal(kvt_ticket_wait(ticket, stage, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, stage, results, count), KVT_OK);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(results[i].status, wanted);
    kvt_ticket_free(ticket);
}

static int
setup(void **state)
{
    struct kvt_options options = kit_options();
    kvt_ticket *ticket;

    (void)state;
    options.nvme_capacity_bytes = 32 << 20;
    options.request_count_max = TICKETS_MAX;
    sim_store_open(&sim, &options);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "ahead", "", 0, &ns), KVT_OK);
    for (uint32_t i = 0; i <= MANY; i++) {
        payload_key_make(&names[i], i);
        keys[i] = names[i].key;
    }
    finish(puts_submit(), KVT_STAGE_DURABLE, MANY, KVT_OK);
    assert_int_equal(
        kvt_demote_submit(store, ns, keys, MANY, KVT_TIER_NVME, NULL, &ticket), KVT_OK);
    finish(ticket, KVT_STAGE_DONE, MANY, KVT_OK);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    sim_store_close(&sim);
    return 0;
}

/* How many of the first `count` are in HOST. */
static uint32_t
in_host(uint32_t count)
{
    uint8_t tiers[MANY];
    uint32_t found = 0;

    assert_int_equal(kvt_lookup(store, ns, keys, count, tiers, NULL, NULL), KVT_OK);
    for (uint32_t i = 0; i < count; i++)
        found += (tiers[i] & KVT_TIER_HOST) != 0;
    return found;
}

static void
lookup_has_the_blocks_before_the_first_miss_brought_up(void **state)
{
    uint8_t tiers[MANY + 1];
    uint32_t leading = 0;
    kvt_ticket *ticket;
    kvt_lease lease;

    (void)state;
    assert_int_equal(
        kvt_lookup_prefetch(store, ns, keys, MANY + 1, &to_host, tiers, &leading, &lease, &ticket),
        KVT_OK);
    /* The answer is of before. */
    assert_int_equal(leading, MANY);
    assert_int_equal(tiers[0], KVT_TIER_NVME);
    assert_int_equal(tiers[MANY], 0);
    assert_int_not_equal(lease.id, 0);
    assert_non_null(ticket);
    finish(ticket, KVT_STAGE_DONE, MANY, KVT_OK);
    assert_int_equal(in_host(MANY), MANY);
    kvt_lease_release(store, lease);
    assert_int_equal(kit_stats(store).prefetch_count, MANY);
}

static void
prefetch_that_nobody_waits_for_comes_all_the_same(void **state)
{
    (void)state;
    assert_int_equal(
        kvt_lookup_prefetch(store, ns, keys, MANY, &to_host, NULL, NULL, NULL, NULL), KVT_OK);
    while (in_host(MANY) < MANY)
        sim_store_pass(&sim, 1000000);
}

static void
what_is_there_is_not_brought(void **state)
{
    uint32_t leading = 0;
    kvt_ticket *ticket;

    (void)state;
    assert_int_equal(
        kvt_lookup_prefetch(store, ns, keys, MANY, &to_host, NULL, NULL, NULL, &ticket), KVT_OK);
    finish(ticket, KVT_STAGE_DONE, MANY, KVT_OK);
    assert_int_equal(
        kvt_lookup_prefetch(store, ns, keys, MANY, &to_host, NULL, &leading, NULL, &ticket),
        KVT_OK);
    assert_null(ticket);
    assert_int_equal(leading, MANY);
    /* Nor what does not lead. */
    assert_int_equal(
        kvt_lookup_prefetch(store, ns, &keys[MANY], 1, &to_host, NULL, &leading, NULL, &ticket),
        KVT_OK);
    assert_null(ticket);
    assert_int_equal(leading, 0);
}

static void
lookup_is_answered_though_all_tickets_are_out(void **state)
{
    kvt_ticket *others[TICKETS_MAX], *ticket;
    uint32_t leading = 0;

    (void)state;
    for (uint32_t i = 0; i < TICKETS_MAX; i++)
        assert_int_equal(
            kvt_prefetch_submit(store, ns, &keys[i], 1, &to_host, NULL, &others[i]), KVT_OK);
    assert_int_equal(
        kvt_lookup_prefetch(store, ns, keys, MANY, &to_host, NULL, &leading, NULL, &ticket),
        KVT_OK);
    assert_null(ticket);
    assert_int_equal(leading, MANY);
    assert_int_equal(kit_stats(store).prefetch_skip_count, MANY);
    for (uint32_t i = 0; i < TICKETS_MAX; i++)
        finish(others[i], KVT_STAGE_DONE, 1, KVT_OK);
}

static void
bulk_prefetch_reads_a_part_at_a_time_in_order(void **state)
{
    kvt_ticket *ticket;

    (void)state;
    assert_int_equal(
        kvt_lookup_prefetch(store, ns, keys, MANY, &to_host, NULL, NULL, NULL, &ticket), KVT_OK);
    sim_store_loop(&sim);
    assert_int_equal(store->reads_in_flight, AT_A_TIME);
    for (uint32_t i = 0; i < MANY; i++) {
        struct block_key key;
        uint32_t number;

        assert_true(key_init(&key, store->file.secret, ns.id, 0, keys[i].bytes, keys[i].length));
        number = residency_find(store->map, key_fingerprint(store->fingerprint_seed, &key), &key);
        assert_int_equal(entries_at(store->entries, number)->flight != NULL, i < AT_A_TIME);
    }
    finish(ticket, KVT_STAGE_DONE, MANY, KVT_OK);
    assert_int_equal(store->reads_in_flight, 0);
}

static void
get_reads_what_a_bulk_prefetch_has_not_begun(void **state)
{
    struct kvt_get get = {
        .key = keys[MANY - 1], .destination = memory[MANY - 1], .capacity = BLOCK_BYTES};
    kvt_ticket *ticket, *wanted;
    uint64_t version;

    (void)state;
    assert_int_equal(
        kvt_lookup_prefetch(store, ns, keys, MANY, &to_host, NULL, NULL, NULL, &ticket), KVT_OK);
    sim_store_loop(&sim);
    memset(memory[MANY - 1], 0, BLOCK_BYTES);
    assert_int_equal(kvt_get_submit(store, ns, &get, 1, NULL, &wanted), KVT_OK);
    sim_store_loop(&sim);
    assert_int_equal(store->reads_in_flight, AT_A_TIME + 1);
    finish(wanted, KVT_STAGE_DONE, 1, KVT_OK);
    assert_true(payload_is_right(memory[MANY - 1], BLOCK_BYTES, MANY - 1, &version));
    assert_int_equal(version, 1);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
    assert_int_equal(in_host(MANY), MANY);
}

static void
cancel_ends_what_waits_for_its_turn(void **state)
{
    struct kvt_result results[MANY];
    uint32_t count = 0;
    kvt_ticket *ticket;

    (void)state;
    assert_int_equal(
        kvt_lookup_prefetch(store, ns, keys, MANY, &to_host, NULL, NULL, NULL, &ticket), KVT_OK);
    sim_store_loop(&sim);
    assert_int_equal(kvt_ticket_cancel(ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DONE, results, MANY), KVT_OK);
    kvt_ticket_free(ticket);
    for (uint32_t i = 0; i < MANY; i++)
        count += results[i].status == KVT_CANCELLED;
    assert_int_equal(count, MANY);
    /* Others have their turn. */
    assert_int_equal(
        kvt_lookup_prefetch(store, ns, keys, MANY, &to_host, NULL, NULL, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
    assert_int_equal(in_host(MANY), MANY);
}

static void
refused_call_looks_nothing_up(void **state)
{
    const struct kvt_prefetch to_hbm = {.struct_size = sizeof(to_hbm), .tier = KVT_TIER_HBM};
    uint64_t before = kit_stats(store).lookup_count;
    kvt_ticket *ticket = NULL;
    kvt_lease lease = {.id = 7};

    (void)state;
    refused(kvt_lookup_prefetch(store, ns, keys, MANY, NULL, NULL, NULL, &lease, &ticket),
        KVT_E_INVAL, "how");
    assert_int_equal(lease.id, 0);
    refused(kvt_lookup_prefetch(store, ns, keys, MANY, &to_hbm, NULL, NULL, &lease, &ticket),
        KVT_E_UNSUPPORTED, "HBM");
    refused(kvt_lookup_prefetch(store, ns, NULL, MANY, &to_host, NULL, NULL, &lease, &ticket),
        KVT_E_INVAL, "keys");
    assert_null(ticket);
    assert_int_equal(kit_stats(store).lookup_count, before);
}

/* Pins of all blocks together. */
static uint64_t
pin_count(void)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < MANY; i++) {
        struct block_key block;
        uint32_t number;

        assert_true(key_init(&block, store->file.secret, ns.id, 0, keys[i].bytes, keys[i].length));
        number =
            residency_find(store->map, key_fingerprint(store->fingerprint_seed, &block), &block);
        assert_int_not_equal(number, ENTRY_NONE);
        count += word_pins(atomic_load(&residency_at(store->map, number)->word));
    }
    return count;
}

/* Of whatever length it was: what stays pinned can leave no tier, and no segment. */
static void
lease_that_is_over_holds_none_of_its_blocks(void **state)
{
    (void)state;
    for (uint32_t count = 1; count <= MANY; count++) {
        kvt_lease lease;

        assert_int_equal(kvt_lookup(store, ns, keys, count, NULL, NULL, &lease), KVT_OK);
        assert_int_equal(pin_count(), count);
        kvt_lease_release(store, lease);
        assert_int_equal(pin_count(), 0);
    }
}

int
main(void)
{
#define CHECK(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest checks[] = {
        CHECK(lookup_has_the_blocks_before_the_first_miss_brought_up),
        CHECK(prefetch_that_nobody_waits_for_comes_all_the_same),
        CHECK(what_is_there_is_not_brought),
        CHECK(lookup_is_answered_though_all_tickets_are_out),
        CHECK(bulk_prefetch_reads_a_part_at_a_time_in_order),
        CHECK(get_reads_what_a_bulk_prefetch_has_not_begun),
        CHECK(cancel_ends_what_waits_for_its_turn),
        CHECK(refused_call_looks_nothing_up),
        CHECK(lease_that_is_over_holds_none_of_its_blocks),
    };
#undef CHECK

    stop_on_proof();
    return cmocka_run_group_tests(checks, NULL, NULL);
}
