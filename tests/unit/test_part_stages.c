/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_part_stages.c - reads of single parts from NVMe in a HOST that is full of blocks of one
 * size: what is read to, for as long as that takes, costs a block or two of them.
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
#include "store_kit.h"

enum {
    PARTS = 12,
    PART_BYTES = 8 << 10,
    BLOCK_BYTES = PARTS * PART_BYTES, /* Five of them fill a superblock, almost. */
    HOST_BYTES = 32 << 20,
    BLOCKS = 600,      /* About twice as many as HOST has. */
    LAST_AT_ONCE = 40, /* More than what is kept free for puts. */
    TOUCHES = 4000,
    READS = 20,
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

static bool
part_read(uint32_t number)
{
    static uint8_t part[PART_BYTES];
    struct kvt_get get = {.key = names[number].key,
        .destination = part,
        .capacity = sizeof(part),
        .part_first = 3,
        .part_count = 1};
    struct kvt_result result;
    kvt_ticket *ticket;

    assert_int_equal(kvt_get_submit(sim.store, ns, &get, 1, NULL, &ticket), KVT_OK);
    result = kit_result(ticket, KVT_STAGE_DONE);
    assert_int_equal(result.status, KVT_OK);
    assert_memory_equal(part, bytes + 3 * PART_BYTES, PART_BYTES);
    return result.tier == KVT_TIER_NVME;
}

static void
a_part_that_is_read_costs_no_superblock(void **state)
{
    struct kvt_options options = kit_options();
    uint32_t read_count = 0;
    uint64_t full_bytes;

    (void)state;
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
    for (uint32_t i = 0; i < BLOCKS && read_count < READS; i++)
        read_count += part_read(i);
    assert_int_equal(read_count, READS);
    assert_in_range(
        kit_stats(sim.store).host_used_bytes_now, full_bytes - 2 * BLOCK_BYTES, HOST_BYTES);
    sim_store_close(&sim);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_part_that_is_read_costs_no_superblock),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
