/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_part_stages.c - reads of single parts from NVMe in a HOST that is full of blocks of one
 * size: what is read to, for as long as that takes, costs a block or two of them; and many at once
 * no more than the superblocks that it needs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kvtier/kvtier.h"
#include "payload.h"
#include "rng.h"
#include "sim_store.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    PARTS = 12,
    PART_BYTES = 8 << 10,
    STAGE_BYTES = PART_BYTES + (9 << 12), /* What a part is read to (fetch_slots.c). */
    BLOCK_BYTES = PARTS * PART_BYTES,     /* Five of them fill a superblock, almost. */
    HOST_BYTES = 32 << 20,
    BLOCKS = 600,      /* About twice as many as HOST has. */
    LAST_AT_ONCE = 40, /* More than what is kept free for puts. */
    TOUCHES = 4000,
    READS = 40,
};

static struct sim_store sim;
static kvt_namespace ns;
static struct payload_key names[BLOCKS];
static uint8_t bytes[BLOCK_BYTES];

static void
put(uint64_t first, uint32_t count)
{
    struct kvt_put puts[LAST_AT_ONCE];
    kvt_ticket *ticket;

    for (uint32_t i = 0; i < count; i++)
        puts[i] = (struct kvt_put){.key = names[first + i].key,
            .source = bytes,
            .length = BLOCK_BYTES,
            .part_count = PARTS};
    assert_int_equal(
        kvt_put_submit(sim.store, ns, puts, count, KVT_RELAXED, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
}

/* What order blocks leave HOST in has nothing to do with that in which they came. */
static void
host_fill(void)
{
    struct rng rng = {1};

    for (uint32_t i = 0; i < BLOCKS - LAST_AT_ONCE; i++)
        put(i, 1);
    for (uint32_t i = 0; i < TOUCHES; i++) {
        const struct kvt_key *key = &names[rng_below(&rng, BLOCKS - LAST_AT_ONCE)].key;

        assert_int_equal(kvt_touch(sim.store, ns, key, 1), KVT_OK);
    }
    put(BLOCKS - LAST_AT_ONCE, LAST_AT_ONCE);
}

/* Of so many blocks that NVMe alone has, at once: those behind number *next, which goes behind
 * them. */
static void
parts_read(uint32_t *next, uint32_t count)
{
    static uint8_t parts[READS][PART_BYTES];
    struct kvt_get gets[READS];
    struct kvt_result results[READS];
    kvt_ticket *ticket;

    for (uint32_t i = 0; i < count; ++*next) {
        uint32_t entry = kit_entry(sim.store, ns, *next);

        assert_true(*next < BLOCKS);
        if (entry == ENTRY_NONE || entry_tiers(sim.store, entry) != TIER_NVME)
            continue;
        gets[i] = (struct kvt_get){.key = names[*next].key,
            .destination = parts[i],
            .capacity = PART_BYTES,
            .part_first = 3,
            .part_count = 1};
        i++;
    }
    assert_int_equal(kvt_get_submit(sim.store, ns, gets, count, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DONE, results, count), KVT_OK);
    kvt_ticket_free(ticket);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(results[i].status, KVT_OK);
        assert_int_equal(results[i].tier, KVT_TIER_NVME);
        assert_memory_equal(parts[i], bytes + 3 * PART_BYTES, PART_BYTES);
    }
}

/* A store whose HOST is full; what it has there: bytes. */
static uint64_t
full_begin(void)
{
    struct kvt_options options = kit_options();
    uint64_t full_bytes;

    options.host_capacity_bytes = HOST_BYTES;
    options.nvme_capacity_bytes = 96 << 20;
    options.segment_bytes = 4 << 20;
    options.block_bytes_max = BLOCK_BYTES;
    sim_store_open(&sim, &options);
    assert_int_equal(kvt_namespace_open(sim.store, "stages", "", 0, &ns), KVT_OK);
    for (uint32_t i = 0; i < BLOCKS; i++)
        payload_key_make(&names[i], i);
    payload_fill(bytes, BLOCK_BYTES, 1, 1);
    host_fill();
    full_bytes = kit_stats(sim.store).host_used_bytes_now;
    assert_in_range(full_bytes, HOST_BYTES / 100 * 80, HOST_BYTES);
    return full_bytes;
}

static void
a_part_that_is_read_costs_no_superblock(void **state)
{
    uint64_t full_bytes = full_begin();
    uint32_t next = 0;

    (void)state;
    for (uint32_t i = 0; i < READS; i++)
        parts_read(&next, 1);
    assert_in_range(
        kit_stats(sim.store).host_used_bytes_now, full_bytes - 2 * BLOCK_BYTES, HOST_BYTES);
    sim_store_close(&sim);
}

static void
many_parts_at_once_cost_what_they_are_read_to(void **state)
{
    uint64_t full_bytes = full_begin();
    uint64_t superblock_bytes = slab_superblock_bytes(sim.store->slab);
    uint32_t next = 0;

    (void)state;
    assert_true(READS * BLOCK_BYTES > 7 * superblock_bytes);
    assert_true(READS * STAGE_BYTES < 4 * superblock_bytes);
    for (uint32_t i = 0; i < 3; i++)
        parts_read(&next, READS);
    assert_in_range(
        kit_stats(sim.store).host_used_bytes_now, full_bytes - 4 * superblock_bytes, HOST_BYTES);
    sim_store_close(&sim);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_part_that_is_read_costs_no_superblock),
        cmocka_unit_test(many_parts_at_once_cost_what_they_are_read_to),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
