/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hbm_asks_host.c - what a search for room in HBM asks of a full HOST, for the blocks that
 * would go there: no more than one who wants room in HOST. In a simulated world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "payload.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BYTES = 61440, /* 17 in a superblock, and a page is left: HOST is full, and not trimmed. */
    HOST_BYTES = 64 << 20,
    HBM_BYTES = 4 << 20,
    IN_HBM_MAX = 256,
    BEGUN_BYTES_MAX = 8 << 20, /* Written at once for one who wants room in HOST. */
    HBM_FIRST = 1000000,
    SHORT_BYTES = 4096,
    SHORT_COUNT = 32,
};

static const uint64_t put_ns = UINT64_C(5) * 1000 * 1000; /* Ample. */

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;
static struct kvt_region_options memory; /* Of the device. */
static struct kvt_put device_put;

static int
setup(void **state)
{
    struct kvt_options options = kit_options();

    (void)state;
    options.host_capacity_bytes = HOST_BYTES;
    options.pin_bytes_max = HOST_BYTES;
    options.host_high_percent = 100;
    options.hbm_capacity_bytes = HBM_BYTES;
    options.nvme_capacity_bytes = 4 * HOST_BYTES;
    options.policy = KVT_POLICY_LRU; /* Which lets all of them onto NVMe. */
    sim_store_open(&sim, &options);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "here", "", 0, &ns), KVT_OK);
    memory = (struct kvt_region_options){
        .struct_size = sizeof(memory), .tier = KVT_TIER_HBM, .size = BYTES};
    device_put = (struct kvt_put){.tier = KVT_TIER_HBM};
    assert_int_equal(kvt_device_alloc(store, 0, memory.size, &memory.address), KVT_OK);
    assert_int_equal(kvt_region_register(store, &memory, &device_put.region), KVT_OK);
    device_put.source = memory.address;
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    assert_int_equal(kvt_region_unregister(store, device_put.region), KVT_OK);
    kvt_device_free(store, 0, memory.address, memory.size);
    sim_store_close(&sim);
    return 0;
}

static kvt_ticket *
hbm_submit(uint64_t number, uint64_t length)
{
    struct kvt_put put = device_put;
    struct payload_key name;
    kvt_ticket *ticket;

    payload_key_make(&name, HBM_FIRST + number);
    put.key = name.key;
    put.length = length;
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, KVT_MEMORY, NULL, &ticket), KVT_OK);
    return ticket;
}

/* HOST is full of blocks that are only there. */
static void
host_fill(void)
{
    for (uint64_t number = 0; slab_has_room(store->slab, BYTES); number++)
        assert_int_equal(kit_put(store, ns, number, 1, BYTES, KVT_MEMORY), KVT_OK);
    assert_int_equal(kit_stats(store).host_demote_count, 0);
}

/* --- 1. What HOST begins ---------------------------------------------------------------------- */

/* HBM is filled with blocks each of which is shorter than the one before it by so much, up to the
 * first one for which HOST begins to write. */
static void
demotions_check(uint64_t step_bytes)
{
    uint64_t length = BYTES;

    host_fill();
    for (uint64_t number = 0; kit_stats(store).host_demote_count == 0; number++) {
        assert_in_range(number, 0, IN_HBM_MAX);
        assert_int_equal(kit_result(hbm_submit(number, length), KVT_STAGE_DONE).status, KVT_OK);
        length -= step_bytes;
    }
    assert_in_range(kit_stats(store).host_demote_count, 1, BEGUN_BYTES_MAX / BYTES + 1);
    assert_int_equal(kit_stats(store).host_drop_count, 0);
    assert_int_equal(kit_stats(store).hbm_drop_count, 0);
}

static void
host_begins_no_more_for_a_put_in_hbm(void **state)
{
    (void)state;
    demotions_check(0);
}

static void
host_begins_no_more_for_shorter_and_shorter_victims(void **state)
{
    (void)state;
    demotions_check(1);
}

/* --- 2. What is free there -------------------------------------------------------------------- */

/* Nothing of HOST can go, and something is in flight. No slot there is free for the victims that
 * come first, which are short, and one is for those that come then. */
static void
a_longer_victim_goes_where_a_slot_is_free(void **state)
{
    uint8_t turn = work_begin(store, &store->fills_in_flight);
    struct payload_key name;
    kvt_ticket *ticket = NULL;

    (void)state;
    host_fill();
    for (uint64_t number = 1; number < slab_used(store->slab) / BYTES; number++) {
        payload_key_make(&name, number);
        assert_int_equal(kvt_pin(store, ns, &name.key, 1, KVT_FOREVER), KVT_OK);
    }
    for (uint64_t number = 0; number < SHORT_COUNT; number++)
        assert_int_equal(
            kit_result(hbm_submit(number, SHORT_BYTES), KVT_STAGE_DONE).status, KVT_OK);
    assert_int_equal(kit_delete(store, ns, 0), KVT_OK);
    assert_true(slab_has_room(store->slab, BYTES));
    for (uint64_t number = SHORT_COUNT; slab_has_room(store->slab, BYTES); number++) {
        assert_in_range(number, 0, IN_HBM_MAX);
        ticket = hbm_submit(number, BYTES);
        sim_store_pass(&sim, put_ns);
        assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, 0), KVT_OK);
        kvt_ticket_free(ticket);
    }
    work_end(store, &store->fills_in_flight, turn);
    assert_int_equal(kit_stats(store).hbm_drop_count, 0);
    assert_int_equal(kit_stats(store).hbm_lower_count, 1);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(host_begins_no_more_for_a_put_in_hbm),
        TEST(host_begins_no_more_for_shorter_and_shorter_victims),
        TEST(a_longer_victim_goes_where_a_slot_is_free),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
