/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_compact.c - blocks of another size in a HOST that is full of blocks of one: they cost the
 * least important blocks, a superblock's worth at a time, and what is moved for them within HOST
 * stays what it was, also under the hands of those who have it leased.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "compact.h"
#include "kvtier/kvtier.h"
#include "payload.h"
#include "rng.h"
#include "sim_store.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    SMALL_BYTES = 16 << 10,
    LARGE_BYTES = 40 << 10,
    SUPERBLOCK_BYTES = 512 << 10, /* 1/64 of HOST. */
    HOST_BYTES = 32 << 20,
    SMALL_COUNT = 3000, /* HOST has 2,048 of them. */
    LARGE_FIRST = 10000,
    LARGE_COUNT = 60, /* Five superblocks. */
    TOUCHES = 6000,
};

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;

static void
begin(uint32_t policy, uint64_t nvme_bytes)
{
    struct kvt_options options = kit_options();
    struct rng rng = {policy + 1};

    options.policy = policy;
    options.host_capacity_bytes = HOST_BYTES;
    options.nvme_capacity_bytes = nvme_bytes;
    options.segment_bytes = nvme_bytes == KVT_CAPACITY_NONE ? options.segment_bytes : 4 << 20;
    sim_store_open(&sim, &options);
    store = sim.store;
    assert_int_equal(slab_capacity(store->slab), HOST_BYTES);
    assert_int_equal(kvt_namespace_open(store, "sizes", "", 0, &ns), KVT_OK);
    /* What order blocks leave HOST in has nothing to do with that in which they came. */
    for (uint64_t i = 0; i < SMALL_COUNT; i++) {
        assert_int_equal(kit_put(store, ns, i, 1, SMALL_BYTES, KVT_MEMORY), KVT_OK);
        for (uint32_t j = 0; j < TOUCHES / SMALL_COUNT; j++) {
            struct payload_key name;

            payload_key_make(&name, rng_below(&rng, (uint32_t)i + 1));
            assert_int_equal(kvt_touch(store, ns, &name.key, 1), KVT_OK);
        }
    }
}

/* How many of the small blocks HOST has; each that there is has its bytes. */
static uint32_t
small_count(void)
{
    uint32_t count = 0;

    for (uint64_t i = 0; i < SMALL_COUNT; i++) {
        uint32_t entry = kit_entry(store, ns, i);
        const struct entry *about = entry == ENTRY_NONE ? NULL : residency_at(store->map, entry);
        const uint8_t *bytes;
        uint64_t version;

        if (about == NULL || (entry_tiers(store, entry) & TIER_HOST) == 0)
            continue;
        bytes = entry_host_address(store, about);
        assert_true(payload_is_right(bytes, SMALL_BYTES, i, &version));
        count++;
    }
    return count;
}

/* Blocks of the other size cost as many bytes as they take, a superblock more, and what is kept
 * free. */
static void
large_ones_come(void)
{
    uint64_t version = 0;
    uint32_t before = small_count();
    uint32_t hit_count = 0;
    uint32_t least;

    assert_in_range(before, HOST_BYTES / SMALL_BYTES / 100 * 85, HOST_BYTES / SMALL_BYTES);
    least = before - (6 * SUPERBLOCK_BYTES + HOST_BYTES / 10) / SMALL_BYTES;
    for (uint64_t i = 0; i < LARGE_COUNT; i++)
        assert_int_equal(kit_put(store, ns, LARGE_FIRST + i, 1, LARGE_BYTES, KVT_MEMORY), KVT_OK);
    assert_in_range(small_count(), least, before);
    /* There are policies by which one of them goes first. */
    for (uint64_t i = 0; i < LARGE_COUNT; i++)
        hit_count += kit_get(store, ns, LARGE_FIRST + i, &version) == KVT_OK;
    assert_in_range(hit_count, LARGE_COUNT / 2, LARGE_COUNT);
}

static void
another_size_costs_a_superblock_at_a_time(void **state)
{
    static const uint32_t policies[] = {KVT_POLICY_LRU, KVT_POLICY_GHI, KVT_POLICY_S3FIFO};

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        begin(policies[i], KVT_CAPACITY_NONE);
        large_ones_come();
        kit_audit(store);
        sim_store_close(&sim);
    }
}

static void
so_it_does_with_a_tier_below(void **state)
{
    (void)state;
    begin(KVT_POLICY_LRU, 128 << 20);
    large_ones_come();
    kit_audit(store);
    sim_store_close(&sim);
}

/* --- Under a pin ------------------------------------------------------------------------------ */

/* As a lookup may have done when the loop had found that nobody had. */
static void
who_has_a_copy_pinned_that_is_moved_keeps_what_it_reads(void **state)
{
    const uint8_t *before, *after;
    uint64_t version, used;
    uint32_t number;

    (void)state;
    begin(KVT_POLICY_LRU, KVT_CAPACITY_NONE);
    number = kit_entry(store, ns, SMALL_COUNT - 1);
    assert_int_not_equal(number, ENTRY_NONE);
    assert_int_equal(kit_delete(store, ns, SMALL_COUNT - 2), KVT_OK);
    used = slab_used(store->slab);
    before = entry_host_address(store, residency_at(store->map, number));
    residency_pin(store->map, number);
    assert_true(entry_host_move(store, number));
    after = entry_host_address(store, residency_at(store->map, number));
    assert_ptr_not_equal(before, after);
    assert_true(payload_is_right(after, SMALL_BYTES, SMALL_COUNT - 1, &version));
    assert_int_equal(slab_used(store->slab), used + SMALL_BYTES);
    /* Nothing else comes there as long as it is pinned. */
    for (uint64_t i = 0; i < LARGE_COUNT; i++)
        assert_int_equal(kit_put(store, ns, LARGE_FIRST + i, 1, SMALL_BYTES, KVT_MEMORY), KVT_OK);
    sim_store_pass(&sim, UINT64_C(3) * 1000 * 1000 * 1000);
    assert_true(payload_is_right(before, SMALL_BYTES, SMALL_COUNT - 1, &version));
    entry_unpin(store, number);
    sim_store_pass(&sim, UINT64_C(3) * 1000 * 1000 * 1000);
    assert_int_equal(hidden_copies_next_ns(store), UINT64_MAX);
    kit_audit(store);
    sim_store_close(&sim);
}

/* Blocks that somebody has, and what nobody owns, stay where they are. */
static void
what_somebody_has_is_not_moved(void **state)
{
    struct payload_key names[64];
    struct kvt_key keys[64];
    const void *addresses[64];
    uint64_t length, version;
    kvt_lease lease;

    (void)state;
    begin(KVT_POLICY_LRU, KVT_CAPACITY_NONE);
    /* The newest: in as many superblocks as it takes. */
    for (uint32_t i = 0; i < 64; i++) {
        payload_key_make(&names[i], SMALL_COUNT - 1 - i);
        keys[i] = names[i].key;
    }
    assert_int_equal(kvt_lookup(store, ns, keys, 64, NULL, NULL, &lease), KVT_OK);
    for (uint32_t i = 0; i < 64; i++)
        assert_int_equal(
            kvt_lease_address(store, lease, i, KVT_TIER_HOST, &addresses[i], &length), KVT_OK);
    large_ones_come();
    for (uint32_t i = 0; i < 64; i++) {
        const void *address = NULL;

        assert_int_equal(
            kvt_lease_address(store, lease, i, KVT_TIER_HOST, &address, &length), KVT_OK);
        assert_ptr_equal(address, addresses[i]);
        assert_true(payload_is_right(address, SMALL_BYTES, SMALL_COUNT - 1 - i, &version));
    }
    kvt_lease_release(store, lease);
    kit_audit(store);
    sim_store_close(&sim);
}

/* --- A lookup that crosses a move ------------------------------------------------------------- */

/* The store's memory, with somebody who pins the first block that is moved in that moment, when the
 * loop has found that nobody has, and is done with the next one, or not before he is asked to. */
static struct {
    struct kvt_env host;
    struct memory_ops ops;
    size_t last_bytes;
    size_t move_bytes; /* What is taken for each block that is moved. */
    uint32_t move_count;
    uint32_t number; /* Of the entry. */
    bool is_brief;
} crossing;

static void *
crossing_take(void *context, size_t size)
{
    uint32_t cursor = 0;
    struct slot slot;

    (void)context;
    crossing.last_bytes = size;
    if (size == crossing.move_bytes && ++crossing.move_count == 1) {
        assert_true(slab_taken_next(
            store->slab, store->compact_next - 1, &cursor, &slot, &crossing.number));
        residency_pin(store->map, crossing.number);
    } else if (size == crossing.move_bytes && crossing.move_count == 2 && crossing.is_brief) {
        (void)residency_unpin(store->map, crossing.number);
    }
    return env_take(&crossing.host, size);
}

/* How many small blocks left for the first large one that others had to be moved for: HOST keeps so
 * much free that a superblock can be emptied. */
static uint32_t
crossed_put(bool is_brief)
{
    uint32_t before = 0;
    uint32_t after;

    begin(KVT_POLICY_LRU, KVT_CAPACITY_NONE);
    assert_int_equal(kit_delete(store, ns, SMALL_COUNT - 2), KVT_OK);
    memset(&crossing, 0, sizeof(crossing));
    crossing.host = store->env;
    crossing.ops = *store->env.memory;
    crossing.ops.take = crossing_take;
    crossing.is_brief = is_brief;
    store->env.memory = &crossing.ops;
    assert_true(entry_host_move(store, kit_entry(store, ns, SMALL_COUNT - 1)));
    crossing.move_bytes = crossing.last_bytes;
    for (uint64_t i = 0; i < LARGE_COUNT && crossing.move_count == 0; i++) {
        before = small_count();
        assert_int_equal(kit_put(store, ns, LARGE_FIRST + i, 1, LARGE_BYTES, KVT_MEMORY), KVT_OK);
    }
    assert_in_range(crossing.move_count, 2, 200);
    store->env.memory = crossing.host.memory;
    after = small_count();
    if (!is_brief)
        entry_unpin(store, crossing.number);
    sim_store_pass(&sim, UINT64_C(3) * 1000 * 1000 * 1000);
    assert_int_equal(hidden_copies_next_ns(store), UINT64_MAX);
    kit_audit(store);
    sim_store_close(&sim);
    return before - after;
}

static void
a_lookup_that_crosses_a_move_costs_no_more(void **state)
{
    (void)state;
    assert_int_equal(crossed_put(true), 0);
}

static void
one_that_stays_costs_a_block_more(void **state)
{
    (void)state;
    assert_in_range(crossed_put(false), 1, 2);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_size_costs_a_superblock_at_a_time),
        cmocka_unit_test(so_it_does_with_a_tier_below),
        cmocka_unit_test(who_has_a_copy_pinned_that_is_moved_keeps_what_it_reads),
        cmocka_unit_test(what_somebody_has_is_not_moved),
        cmocka_unit_test(a_lookup_that_crosses_a_move_costs_no_more),
        cmocka_unit_test(one_that_stays_costs_a_block_more),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
