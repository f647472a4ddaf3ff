/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_part_puts.c - gets part by part of blocks that are moved, or put anew, between two of their
 * parts: what comes is of one put.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kvtier/kvtier_unstable.h"
#include "payload.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    COUNT = 3, /* Blocks of a get. */
    PARTS = 4,
    PART_BYTES = 2500,
    BLOCK_BYTES = PARTS * PART_BYTES,
    POISON = 0x5C,
};

#define A_WHILE_NS (UINT64_C(100) * 1000)

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;
static uint8_t *pool; /* Of the device: a place for each block. */
static kvt_region region;
static struct payload_key names[COUNT];
static uint64_t window_bytes; /* As the store was opened. */

static int
setup(void **state)
{
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HBM, .size = COUNT * BLOCK_BYTES};
    struct kvt_options options = kit_options();
    void *memory;

    (void)state;
    options.hbm_capacity_bytes = 2 << 20;
    sim_store_open(&sim, &options);
    store = sim.store;
    window_bytes = store->sends.bytes_max;
    assert_int_equal(kvt_namespace_open(store, "parts", "", 0, &ns), KVT_OK);
    assert_int_equal(kvt_device_alloc(store, 0, COUNT * BLOCK_BYTES, &memory), KVT_OK);
    about.address = pool = memory;
    assert_int_equal(kvt_region_register(store, &about, &region), KVT_OK);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    assert_int_equal(kvt_region_unregister(store, region), KVT_OK);
    kvt_device_free(store, 0, pool, COUNT * BLOCK_BYTES);
    sim_store_close(&sim);
    return 0;
}

/* --- Blocks ----------------------------------------------------------------------------------- */

static void
put(uint64_t key, uint64_t version, uint64_t length, enum kvt_durability durability, uint32_t flags)
{
    static uint8_t bytes[2 * BLOCK_BYTES];
    struct kvt_put put = {.key = names[key].key,
        .source = bytes,
        .length = length,
        .part_count = PARTS,
        .flags = flags};
    kvt_ticket *ticket;

    payload_fill(bytes, length, key, version);
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, durability, NULL, &ticket), KVT_OK);
    assert_int_equal(
        kit_result(ticket, durability == KVT_MEMORY ? KVT_STAGE_DONE : KVT_STAGE_DURABLE).status,
        KVT_OK);
}

static void
demote(uint64_t key)
{
    kvt_ticket *ticket;

    assert_int_equal(
        kvt_demote_submit(store, ns, &names[key].key, 1, KVT_TIER_NVME, NULL, &ticket), KVT_OK);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
}

static void
prefetch(uint64_t key, uint32_t tier)
{
    const struct kvt_prefetch how = {.struct_size = sizeof(how), .tier = tier};
    kvt_ticket *ticket;

    assert_int_equal(
        kvt_prefetch_submit(store, ns, &names[key].key, 1, &how, NULL, &ticket), KVT_OK);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
}

static uint32_t
entry_of(uint64_t key)
{
    struct block_key block;

    assert_true(key_init(
        &block, store->file.secret, ns.id, 0, names[key].key.bytes, names[key].key.length));
    return residency_find(store->map, key_fingerprint(store->fingerprint_seed, &block), &block);
}

/* All of them, on NVMe alone. */
static void
blocks_make(void)
{
    for (uint64_t i = 0; i < COUNT; i++) {
        payload_key_make(&names[i], i);
        put(i, 1, BLOCK_BYTES, KVT_SYNC, KVT_PUT_REPLACE);
        demote(i);
    }
}

/* --- Gets ------------------------------------------------------------------------------------- */

/* No read into memory of the device is begun any more; nothing of those that were is on its way. */
static void
window_close(void)
{
    store->sends.bytes_max = 0;
    while (store->sends.bytes > 0)
        sim_store_pass(&sim, A_WHILE_NS);
}

static void
window_open(uint64_t bytes_max)
{
    store->sends.bytes_max = bytes_max;
    window_restart(store, &store->sends);
}

/* A get of all parts of all blocks, of which no read is begun. */
static kvt_ticket *
get_submit(void)
{
    uint8_t filler[BLOCK_BYTES];
    struct kvt_get gets[COUNT];
    kvt_ticket *ticket;

    memset(filler, POISON, sizeof(filler));
    for (uint32_t i = 0; i < COUNT; i++) {
        gets[i] = (struct kvt_get){.key = names[i].key,
            .destination = pool + (size_t)i * BLOCK_BYTES,
            .capacity = BLOCK_BYTES,
            .flags = KVT_GET_BY_PART | KVT_GET_TRANSIENT,
            .region = region,
            .part_count = PARTS};
        assert_int_equal(
            kvt_device_write(store, 0, gets[i].destination, filler, BLOCK_BYTES), KVT_OK);
    }
    store->sends.bytes_max = 0;
    assert_int_equal(kvt_get_submit(store, ns, gets, COUNT, NULL, &ticket), KVT_OK);
    sim_store_loop(&sim);
    return ticket;
}

/* Those of which the first `count` parts of each block are there, and no other was begun. */
static kvt_ticket *
get_begun(uint32_t count)
{
    kvt_ticket *ticket = get_submit();

    window_open(1);
    assert_int_equal(kvt_ticket_part_wait(ticket, count - 1, KVT_FOREVER), KVT_OK);
    window_close();
    assert_int_equal(kvt_ticket_part_wait(ticket, count, 0), KVT_LATE);
    return ticket;
}

static void
get_finish(kvt_ticket *ticket, struct kvt_result results[COUNT])
{
    window_open(window_bytes);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DONE, results, COUNT), KVT_OK);
    kvt_ticket_free(ticket);
}

/* The first `count` parts of the block's place are those of this version. */
static void
place_is(uint64_t key, uint64_t version, uint32_t count)
{
    uint8_t wanted[BLOCK_BYTES], found[BLOCK_BYTES];

    payload_fill(wanted, BLOCK_BYTES, key, version);
    assert_int_equal(
        kvt_device_read(store, 0, found, pool + key * BLOCK_BYTES, BLOCK_BYTES), KVT_OK);
    assert_memory_equal(found, wanted, (size_t)count * PART_BYTES);
    for (size_t i = (size_t)count * PART_BYTES; i < BLOCK_BYTES; i++)
        assert_int_equal(found[i], POISON);
}

/* Block 1 is another one since its first part came: its get is a miss, the others' are not. */
static void
block_1_is_missed(kvt_ticket *ticket)
{
    struct kvt_stats before = kit_stats(store);
    struct kvt_result results[COUNT];
    struct kvt_stats after;

    window_open(window_bytes);
    assert_int_equal(kvt_ticket_part_wait(ticket, 0, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_ticket_part_wait(ticket, PARTS - 1, KVT_FOREVER), KVT_MISS);
    get_finish(ticket, results);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(results[i].status, i == 1 ? KVT_MISS : KVT_OK);
        assert_int_equal(results[i].length, i == 1 ? 0 : BLOCK_BYTES);
        place_is(i, 1, i == 1 ? 1 : PARTS);
    }
    after = kit_stats(store);
    assert_int_equal(after.get_miss_count - before.get_miss_count, PARTS - 1);
    assert_int_equal(after.miss_deleted_count - before.miss_deleted_count, PARTS - 1);
    assert_int_equal(after.miss_damaged_count, before.miss_damaged_count);
}

static void
a_block_that_is_replaced_between_its_parts_is_missed(void **state)
{
    kvt_ticket *ticket;

    (void)state;
    blocks_make();
    ticket = get_begun(1);
    put(1, 2, BLOCK_BYTES, KVT_MEMORY, KVT_PUT_REPLACE);
    block_1_is_missed(ticket);
}

/* Nor are parts of another length refused as the caller's mistake. */
static void
a_block_that_is_replaced_by_a_longer_one_is_missed(void **state)
{
    kvt_ticket *ticket;

    (void)state;
    blocks_make();
    ticket = get_begun(1);
    put(1, 2, 2 * BLOCK_BYTES, KVT_SYNC, KVT_PUT_REPLACE);
    demote(1);
    block_1_is_missed(ticket);
}

/* The new block has the old one's entry. */
static void
a_block_that_is_deleted_and_put_again_is_missed(void **state)
{
    kvt_ticket *ticket;
    uint32_t number;

    (void)state;
    blocks_make();
    ticket = get_begun(1);
    number = entry_of(1);
    assert_int_equal(kit_delete(store, ns, 1), KVT_OK);
    put(1, 2, BLOCK_BYTES, KVT_SYNC, 0);
    assert_int_equal(entry_of(1), number);
    demote(1);
    block_1_is_missed(ticket);
}

/* Its other parts do not wait for the put either. */
static void
a_block_that_is_being_replaced_is_missed_at_once(void **state)
{
    static uint8_t bytes[BLOCK_BYTES];
    struct kvt_put put = {
        .source = bytes, .length = BLOCK_BYTES, .part_count = PARTS, .flags = KVT_PUT_REPLACE};
    struct kvt_result results[COUNT];
    kvt_ticket *ticket, *put_ticket;

    (void)state;
    blocks_make();
    ticket = get_begun(1);
    put.key = names[1].key;
    payload_fill(bytes, BLOCK_BYTES, 1, 2);
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, KVT_MEMORY, NULL, &put_ticket), KVT_OK);
    sim_store_loop(&sim);
    assert_int_equal(kvt_ticket_wait(put_ticket, KVT_STAGE_DONE, 0), KVT_LATE);
    window_open(window_bytes);
    assert_int_equal(ticket->ops[COUNT + 1].status[0], KVT_MISS);
    assert_true(ticket->ops[COUNT + 1].is_reached[0]);
    assert_int_equal(kit_result(put_ticket, KVT_STAGE_DONE).status, KVT_OK);
    get_finish(ticket, results);
    assert_int_equal(results[1].status, KVT_MISS);
}

/* It has begun with no put yet: the one that is there when it begins is the one. */
static void
a_block_that_is_replaced_before_its_parts_is_the_new_one(void **state)
{
    struct kvt_result results[COUNT];
    kvt_ticket *ticket;

    (void)state;
    blocks_make();
    ticket = get_submit();
    put(1, 2, BLOCK_BYTES, KVT_SYNC, KVT_PUT_REPLACE);
    demote(1);
    get_finish(ticket, results);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(results[i].status, KVT_OK);
        place_is(i, i == 1 ? 2 : 1, PARTS);
    }
}

/* Wherever its parts come from, it is the same put. */
static void
a_block_that_moves_between_its_parts_is_whole(void **state)
{
    struct kvt_result results[COUNT];
    kvt_ticket *ticket;

    (void)state;
    blocks_make();
    for (uint32_t to_hbm = 0; to_hbm < 2; to_hbm++) {
        ticket = get_begun(1);
        for (uint64_t i = 0; i < COUNT; i++) {
            prefetch(i, to_hbm ? KVT_TIER_HBM : KVT_TIER_HOST);
            /* Block 2 is back on NVMe when its other parts are read. */
            if (i == 2)
                demote(i);
        }
        get_finish(ticket, results);
        for (uint64_t i = 0; i < COUNT; i++) {
            assert_int_equal(results[i].status, KVT_OK);
            place_is(i, 1, PARTS);
            if (i < 2)
                demote(i);
        }
    }
}

/* The first part may come from memory as well. */
static void
a_block_of_which_a_part_was_in_memory_is_missed(void **state)
{
    static const uint32_t tiers[2] = {KVT_TIER_HOST, KVT_TIER_HBM};
    struct kvt_result results[COUNT];
    kvt_ticket *ticket;

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        blocks_make();
        ticket = get_submit();
        prefetch(0, tiers[i]);
        window_open(1); /* Part 0 of block 0, and then the read of block 1's. */
        assert_non_null(ticket->ops[2].list);
        window_close();
        put(0, 2, BLOCK_BYTES, KVT_SYNC, KVT_PUT_REPLACE);
        demote(0);
        get_finish(ticket, results);
        assert_int_equal(results[0].status, KVT_MISS);
        assert_int_equal(results[1].status, KVT_OK);
        place_is(0, 1, 1);
    }
}

/* --- What a block's result is ----------------------------------------------------------------- */

/* In whatever order its parts have them. */
static void
a_part_that_is_missed_hides_no_error_of_another(void **state)
{
    static const struct {
        enum kvt_status parts[PARTS], block;
    } cases[] = {
        {{KVT_OK, KVT_OK, KVT_OK, KVT_OK}, KVT_OK},
        {{KVT_OK, KVT_MISS, KVT_MISS, KVT_OK}, KVT_MISS},
        {{KVT_CANCELLED, KVT_MISS, KVT_OK, KVT_OK}, KVT_CANCELLED},
        {{KVT_MISS, KVT_OK, KVT_E_NOMEM, KVT_OK}, KVT_E_NOMEM},
        {{KVT_OK, KVT_MISS, KVT_E_GPU, KVT_E_NOMEM}, KVT_E_GPU},
        {{KVT_E_NOMEM, KVT_MISS, KVT_E_GPU, KVT_OK}, KVT_E_NOMEM},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct kvt_result result;
        struct kvt_ticket *ticket;

        assert_int_equal(ticket_create_by_part(store, 1, PARTS, NULL, &ticket), KVT_OK);
        for (uint32_t part = 0; part < PARTS; part++)
            ticket->ops[part].status[0] = cases[i].parts[part];
        atomic_store(&ticket->stage, 1);
        assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DONE, &result, 1), KVT_OK);
        assert_int_equal(result.status, cases[i].block);
        assert_int_equal(
            ticket_status(ticket, KVT_STAGE_DONE), cases[i].block < 0 ? cases[i].block : KVT_OK);
        kvt_ticket_free(ticket);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_block_that_is_replaced_between_its_parts_is_missed),
        TEST(a_block_that_is_replaced_by_a_longer_one_is_missed),
        TEST(a_block_that_is_deleted_and_put_again_is_missed),
        TEST(a_block_that_is_being_replaced_is_missed_at_once),
        TEST(a_block_that_is_replaced_before_its_parts_is_the_new_one),
        TEST(a_block_that_moves_between_its_parts_is_whole),
        TEST(a_block_of_which_a_part_was_in_memory_is_missed),
        TEST(a_part_that_is_missed_hides_no_error_of_another),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
