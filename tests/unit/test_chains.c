/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_chains.c - blocks are linked to their parents whatever has become of these meanwhile: a
 * parent without its children counts as the end of its chain, and leaves before them. Parents that
 * form a ring are not all linked: its blocks could never leave, and a walk up would not end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kvtier/regions.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BLOCK_BYTES = 16384,
    HBM_BLOCKS = 256, /* A superblock. */
    HBM_FILLED = 243, /* 95 %: as far as it is filled before some are taken away. */
    HOST_BLOCKS = 512,
    CHAIN_FIRST = 600,
    CHAIN_COUNT = 100,
    BLOCKS_MAX = 1000,
    RING_BLOCKS = 800, /* More than HOST has. */
};

static struct sim_store sim;
static kvt_namespace ns;
static kvt_region region;
static uint8_t *memory;
static uint32_t names[BLOCKS_MAX];
static struct kvt_key keys[BLOCKS_MAX];
static struct kvt_region_options region_options;

static int
setup(void **state)
{
    struct kvt_options options = KVT_OPTIONS_INIT;

    (void)state;
    options.hbm_capacity_bytes = (uint64_t)HBM_BLOCKS * BLOCK_BYTES;
    options.host_capacity_bytes = (uint64_t)HOST_BLOCKS * BLOCK_BYTES;
    options.nvme_capacity_bytes = 64 << 20;
    options.segment_bytes = 4 << 20;
    options.block_bytes_max = BLOCK_BYTES;
    options.index_map_bytes = 16 << 20;
    sim_store_open(&sim, &options);
    assert_int_equal(kvt_namespace_open(sim.store, "chains", "", 0, &ns), KVT_OK);
    memory = aligned_alloc(BLOCK_BYTES, BLOCK_BYTES);
    assert_non_null(memory);
    memset(memory, 0x5A, BLOCK_BYTES);
    region_options = (struct kvt_region_options){.struct_size = sizeof(region_options),
        .tier = KVT_TIER_HOST,
        .size = BLOCK_BYTES,
        .address = memory};
    assert_int_equal(kvt_region_register(sim.store, &region_options, &region), KVT_OK);
    for (uint32_t i = 0; i < BLOCKS_MAX; i++) {
        names[i] = i;
        keys[i] = (struct kvt_key){.bytes = &names[i], .length = sizeof(names[i])};
    }
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    assert_int_equal(kvt_region_unregister(sim.store, region), KVT_OK);
    sim_store_close(&sim);
    free(memory);
    return 0;
}

/* Blocks first..first + count - 1, each the child of the one before it, in one submission. */
static void
chain_put(uint32_t first, uint32_t count, uint32_t tier, enum kvt_durability durability)
{
    struct kvt_put puts[CHAIN_COUNT];
    uint32_t stage = durability == KVT_MEMORY ? KVT_STAGE_DONE : KVT_STAGE_DURABLE;
    kvt_ticket *ticket;

    for (uint32_t i = 0; i < count; i++)
        puts[i] = (struct kvt_put){.key = keys[first + i],
            .parent = i == 0 ? NULL : &keys[first + i - 1],
            .source = memory,
            .region = region,
            .length = BLOCK_BYTES,
            .depth = i,
            .tier = (uint8_t)tier};
    assert_int_equal(kvt_put_submit(sim.store, ns, puts, count, durability, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, stage, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
    sim_store_pass(&sim, UINT64_C(10) * 1000 * 1000);
}

/* One block; what came of it. */
static enum kvt_status
block_put(
    uint32_t block, const struct kvt_key *parent, uint32_t flags, enum kvt_durability durability)
{
    uint32_t stage = durability == KVT_MEMORY ? KVT_STAGE_DONE : KVT_STAGE_DURABLE;
    const struct kvt_put put = {.key = keys[block],
        .parent = parent,
        .source = memory,
        .region = region,
        .length = BLOCK_BYTES,
        .flags = flags};
    kvt_ticket *ticket;

    assert_int_equal(kvt_put_submit(sim.store, ns, &put, 1, durability, NULL, &ticket), KVT_OK);
    return kit_result(ticket, stage).status;
}

static void
block_delete(uint32_t block)
{
    kvt_ticket *ticket;

    assert_int_equal(kvt_delete_submit(sim.store, ns, &keys[block], 1, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
}

static uint32_t
entry_of(uint32_t block)
{
    struct block_key key;

    assert_true(key_init(&key, sim.store->file.secret, ns.id, keys[block].component,
        keys[block].bytes, keys[block].length));
    return residency_find(sim.store->map, key_fingerprint(sim.store->fingerprint_seed, &key), &key);
}

static void
a_child_that_stayed_is_linked_to_its_parent_again(void **state)
{
    (void)state;
    chain_put(0, 2, KVT_TIER_HOST, KVT_SYNC);
    block_delete(0);
    assert_int_equal(entries_parent(sim.store->entries, entry_of(1)), ENTRY_NONE);
    chain_put(0, 2, KVT_TIER_HOST, KVT_SYNC);
    assert_int_equal(entries_parent(sim.store->entries, entry_of(1)), entry_of(0));
    kit_audit(sim.store);
}

/* It has children: its link takes steps, of which each turn of the loop has its own. */
static void
a_block_within_a_chain_is_linked_to_its_parent_again(void **state)
{
    (void)state;
    chain_put(0, 3, KVT_TIER_HOST, KVT_SYNC);
    block_delete(0);
    sim.store->entries->climb_count = LINK_CLIMB_MAX;
    chain_put(0, 3, KVT_TIER_HOST, KVT_SYNC);
    assert_int_equal(entries_parent(sim.store->entries, entry_of(1)), entry_of(0));
    kit_audit(sim.store);
}

/* The parent was there before its child was put again, and was a leaf until then. */
static void
a_parent_that_is_back_is_no_leaf_when_its_child_is_linked(void **state)
{
    (void)state;
    chain_put(0, 2, KVT_TIER_HOST, KVT_SYNC);
    block_delete(0);
    chain_put(0, 1, KVT_TIER_HOST, KVT_SYNC);
    chain_put(0, 2, KVT_TIER_HOST, KVT_SYNC);
    assert_int_equal(entries_parent(sim.store->entries, entry_of(1)), entry_of(0));
    kit_audit(sim.store);
}

/* Whether the way up from a block ends. */
static bool
has_top(uint32_t block)
{
    uint32_t number = entry_of(block);

    for (uint32_t i = 0; i < BLOCKS_MAX && number != ENTRY_NONE; i++)
        number = entries_parent(sim.store->entries, number);
    return number == ENTRY_NONE;
}

/* Each of the two is to be the parent of the other; the first may have left for the second. */
static void
ring_put(uint32_t first, uint32_t second)
{
    assert_int_equal(block_put(first, &keys[second], 0, KVT_MEMORY), KVT_OK);
    assert_int_equal(block_put(second, &keys[first], 0, KVT_MEMORY), KVT_OK);
    assert_true(block_put(first, &keys[second], 0, KVT_MEMORY) >= KVT_OK);
}

/* A run that becomes longer is walked up, as far as its blocks were used since it began. */
static void
a_chain_on_a_ring_of_parents_has_a_top(void **state)
{
    (void)state;
    ring_put(0, 1);
    assert_true(has_top(0) && has_top(1));
    assert_int_equal(entries_parent(sim.store->entries, entry_of(1)), entry_of(0));
    for (uint32_t i = 2; i < 5; i++)
        assert_int_equal(block_put(i, &keys[i == 2 ? 0 : i - 1], 0, KVT_MEMORY), KVT_OK);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(block_put(i, NULL, 0, KVT_MEMORY), KVT_EXISTS);
    assert_int_equal(block_put(5, &keys[4], 0, KVT_MEMORY), KVT_OK);
}

static void
blocks_of_rings_of_parents_leave_for_others(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < RING_BLOCKS; i += 2)
        ring_put(i, i + 1);
    for (uint32_t i = RING_BLOCKS; i < BLOCKS_MAX; i++)
        assert_int_equal(block_put(i, NULL, 0, KVT_MEMORY), KVT_OK);
}

static void
store_again(void)
{
    assert_int_equal(kvt_region_unregister(sim.store, region), KVT_OK);
    assert_int_equal(kvt_close(sim.store), KVT_OK);
    sim_store_reopen(&sim);
    assert_int_equal(kvt_namespace_open(sim.store, "chains", "", 0, &ns), KVT_OK);
    assert_int_equal(kvt_region_register(sim.store, &region_options, &region), KVT_OK);
}

/* The record of a block keeps the parent that it had when it was written. */
static void
records_whose_parents_form_a_ring_have_a_top(void **state)
{
    (void)state;
    chain_put(0, 4, KVT_TIER_HOST, KVT_SYNC);
    block_delete(0);
    assert_int_equal(block_put(0, &keys[2], 0, KVT_SYNC), KVT_OK);
    store_again();
    for (uint32_t i = 0; i < 4; i++)
        assert_true(has_top(i));
    /* All links but the one that closes it. */
    assert_int_equal(entries_parent(sim.store->entries, entry_of(3)), entry_of(2));
    assert_int_equal((entries_parent(sim.store->entries, entry_of(0)) == ENTRY_NONE) +
                         (entries_parent(sim.store->entries, entry_of(1)) == ENTRY_NONE) +
                         (entries_parent(sim.store->entries, entry_of(2)) == ENTRY_NONE),
        1);
}

/* Records lie in the order in which blocks were replaced. */
static void
a_chain_is_linked_whatever_the_order_of_its_records(void **state)
{
    static const uint32_t steps[] = {1, CHAIN_COUNT - 1, 63}; /* Upwards, downwards, mixed. */

    (void)state;
    for (uint32_t turn = 0; turn < 3; turn++) {
        chain_put(0, CHAIN_COUNT, KVT_TIER_HOST, KVT_SYNC);
        for (uint32_t i = 1; i <= CHAIN_COUNT; i++) {
            uint32_t block = i * steps[turn] % CHAIN_COUNT;

            assert_int_equal(
                block_put(block, block == 0 ? NULL : &keys[block - 1], KVT_PUT_REPLACE, KVT_SYNC),
                KVT_OK);
        }
        store_again();
        for (uint32_t i = 0; i < CHAIN_COUNT; i++) {
            assert_int_not_equal(entry_of(i), ENTRY_NONE);
            assert_int_equal(entries_parent(sim.store->entries, entry_of(i)),
                i == 0 ? ENTRY_NONE : entry_of(i - 1));
        }
    }
}

/* What is only in HBM gives no room at once, what HOST has too does: later blocks would find it. */
static void
blocks_of_one_put_come_in_their_order(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < HBM_FILLED; i++)
        chain_put(i, 1, KVT_TIER_HBM, i % 2 == 0 ? KVT_MEMORY : KVT_SYNC);
    sim_store_pass(&sim, UINT64_C(60) * 1000 * 1000 * 1000);
    chain_put(CHAIN_FIRST, CHAIN_COUNT, KVT_TIER_HBM, KVT_MEMORY);
    for (uint32_t i = CHAIN_FIRST + 1; i < CHAIN_FIRST + CHAIN_COUNT; i++) {
        assert_int_not_equal(entry_of(i), ENTRY_NONE);
        assert_int_equal(entries_parent(sim.store->entries, entry_of(i)), entry_of(i - 1));
    }
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_child_that_stayed_is_linked_to_its_parent_again),
        TEST(a_block_within_a_chain_is_linked_to_its_parent_again),
        TEST(a_parent_that_is_back_is_no_leaf_when_its_child_is_linked),
        TEST(a_chain_on_a_ring_of_parents_has_a_top),
        TEST(blocks_of_rings_of_parents_leave_for_others),
        TEST(records_whose_parents_form_a_ring_have_a_top),
        TEST(a_chain_is_linked_whatever_the_order_of_its_records),
        TEST(blocks_of_one_put_come_in_their_order),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
