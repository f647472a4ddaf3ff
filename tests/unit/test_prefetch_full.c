/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_prefetch_full.c - more blocks are to come from NVMe to an HBM in which nothing can go than
 * HOST holds on their way: each is read once, and each is answered.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kvtier/hints.h"
#include "kvtier/kvtier_unstable.h"
#include "payload.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BLOCK = 512 << 10,
    ROOM = 4, /* Blocks in HBM, and in HOST. */
    WANTED = 24,
};

static struct {
    struct sim_store sim;
    kvt_namespace ns;
    void *memory; /* Of the device; a region. */
    kvt_region region;
    struct payload_key names[ROOM + WANTED]; /* Those in HBM come first. */
    struct kvt_key keys[ROOM + WANTED];
    kvt_lease leases[ROOM];
} full;

static void
block_put(struct kvt_put put, uint32_t i, enum kvt_durability durability)
{
    kvt_ticket *ticket;

    payload_key_make(&full.names[i], i);
    full.keys[i] = full.names[i].key;
    put.key = full.keys[i];
    put.length = BLOCK;
    assert_int_equal(
        kvt_put_submit(full.sim.store, full.ns, &put, 1, durability, NULL, &ticket), KVT_OK);
    assert_int_equal(kit_result(ticket, durability == KVT_SYNC ? 2 : 1).status, KVT_OK);
}

static int
setup(void **state)
{
    static uint8_t bytes[BLOCK];
    struct kvt_options options = kit_options();
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HBM, .size = BLOCK};
    kvt_ticket *ticket;

    (void)state;
    options.block_bytes_max = BLOCK;
    options.hbm_capacity_bytes = options.host_capacity_bytes = ROOM * BLOCK;
    options.pin_bytes_max = ROOM * BLOCK;
    options.segment_bytes = 4 << 20;
    options.nvme_capacity_bytes = 128 << 20;
    sim_store_open(&full.sim, &options);
    assert_int_equal(kvt_namespace_open(full.sim.store, "full", "", 0, &full.ns), KVT_OK);
    assert_int_equal(kvt_device_alloc(full.sim.store, 0, BLOCK, &full.memory), KVT_OK);
    about.address = full.memory;
    assert_int_equal(kvt_region_register(full.sim.store, &about, &full.region), KVT_OK);
    for (uint32_t i = 0; i < ROOM; i++) {
        uint8_t tiers;

        block_put(
            (struct kvt_put){.source = full.memory, .tier = KVT_TIER_HBM, .region = full.region}, i,
            KVT_MEMORY);
        assert_int_equal(
            kvt_lookup(full.sim.store, full.ns, &full.keys[i], 1, &tiers, NULL, &full.leases[i]),
            KVT_OK);
        assert_int_equal(tiers, KVT_TIER_HBM);
    }
    for (uint32_t i = ROOM; i < ROOM + WANTED; i++) {
        block_put((struct kvt_put){.source = bytes, .tier = KVT_TIER_HOST}, i, KVT_SYNC);
        assert_int_equal(kvt_demote_submit(full.sim.store, full.ns, &full.keys[i], 1, KVT_TIER_NVME,
                             NULL, &ticket),
            KVT_OK);
        assert_int_equal(kit_result(ticket, 1).status, KVT_OK);
    }
    return 0;
}

static void
leases_release(void)
{
    for (uint32_t i = 0; i < ROOM; i++)
        kvt_lease_release(full.sim.store, full.leases[i]);
}

static void
memory_free(void)
{
    assert_int_equal(kvt_region_unregister(full.sim.store, full.region), KVT_OK);
    kvt_device_free(full.sim.store, 0, full.memory, BLOCK);
}

static kvt_ticket *
wanted_prefetch(void)
{
    const struct kvt_prefetch how = {.struct_size = sizeof(how), .tier = KVT_TIER_HBM};
    kvt_ticket *ticket;

    assert_int_equal(
        kvt_prefetch_submit(full.sim.store, full.ns, &full.keys[ROOM], WANTED, &how, NULL, &ticket),
        KVT_OK);
    return ticket;
}

/* How they end, all of them the same way; `read_count`: blocks that were read for them. */
static void
all_end(enum kvt_status status, uint64_t read_count)
{
    kvt_ticket *ticket = wanted_prefetch();

    sim_store_pass(&full.sim, UINT64_C(1000) * 1000 * 1000);
    for (uint32_t i = 0; i < WANTED; i++) {
        assert_true(ticket->ops[i].is_reached[0]);
        assert_int_equal(ticket->ops[i].status[0], status);
    }
    assert_int_equal(full.sim.store->nvme_meter.bytes, read_count * BLOCK);
    kvt_ticket_free(ticket);
}

static void
prefetches_that_find_no_room_in_hbm_end(void **state)
{
    (void)state;
    all_end(KVT_E_NOSPC, 0);
    leases_release();
    memory_free();
    sim_store_close(&full.sim);
}

/* What is there goes down first, by way of a HOST that has room for no more than that. */
static void
prefetches_into_a_full_hbm_are_made(void **state)
{
    (void)state;
    leases_release();
    all_end(KVT_OK, WANTED);
    memory_free();
    sim_store_close(&full.sim);
}

/* What cannot be read takes no room. */
static void
prefetches_that_fail_give_their_room_back(void **state)
{
    const struct sim_rule fails = {.ops = SIM_READ,
        .effect = SIM_EIO,
        .nth = 1,
        .sticky = true,
        .path = "/store/data/data.00"};
    uint64_t bytes = 0;

    (void)state;
    leases_release();
    sim_rule_add(full.sim.world, &fails);
    all_end(KVT_MISS, 0);
    for (uint32_t i = 0; i < ROOM; i++) {
        uint8_t tiers = 0;

        if (kvt_lookup(full.sim.store, full.ns, &full.keys[i], 1, &tiers, NULL, NULL) == KVT_OK)
            bytes += (tiers & KVT_TIER_HBM) != 0 ? BLOCK : 0;
    }
    assert_int_equal(slab_used(place_slab(full.sim.store, POLICY_HBM)), bytes);
    memory_free();
    sim_store_close(&full.sim);
}

static void
a_close_ends_behind_prefetches_that_find_no_room(void **state)
{
    (void)state;
    assert_int_equal(kvt_pin(full.sim.store, full.ns, full.keys, ROOM, KVT_FOREVER), KVT_OK);
    leases_release();
    kvt_ticket_free(wanted_prefetch());
    memory_free();
    sim_store_close(&full.sim);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(prefetches_that_find_no_room_in_hbm_end, setup),
        cmocka_unit_test_setup(prefetches_into_a_full_hbm_are_made, setup),
        cmocka_unit_test_setup(prefetches_that_fail_give_their_room_back, setup),
        cmocka_unit_test_setup(a_close_ends_behind_prefetches_that_find_no_room, setup),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
