/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_room_waits.c - whoever waits for room is tried again when there may be more of it, and not
 * for what its own try took and gave back: the loop rests meanwhile, and its wait is no longer. No
 * block is given up for room that may come. In a simulated world.
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
#include "store_kit.h"

enum {
    BLOCK_BYTES = 61440, /* Whole pages: a stage of it is as large as a copy. */
    HELD_MAX = 80,       /* More than HOST has. */
    STEPS_MAX = 500,     /* In `quiet_ns` of a store that rests; else it is some ten thousand. */
    READS_MAX = 10,      /* While somebody waits in vain; else it is some forty. */
};

static const uint64_t quiet_ns = UINT64_C(50) * 1000 * 1000;
static const uint64_t settle_ns = UINT64_C(10) * 1000 * 1000;
static const uint64_t read_ns = UINT64_C(20) * 1000 * 1000;

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;
static uint8_t bytes[BLOCK_BYTES];
static kvt_reservation *held[HELD_MAX];
static uint32_t held_count;

static int
setup(void **state)
{
    struct kvt_options options = kit_options();

    (void)state;
    options.nvme_capacity_bytes = 32 << 20;
    options.hbm_capacity_bytes = 2 << 20;
    sim_store_open(&sim, &options);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "here", "", 0, &ns), KVT_OK);
    held_count = 0;
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    sim_store_close(&sim);
    return 0;
}

static kvt_ticket *
put_submit(uint64_t number, struct kvt_put put, enum kvt_durability durability)
{
    struct payload_key name;
    kvt_ticket *ticket;

    payload_key_make(&name, number);
    put.key = name.key;
    put.length = BLOCK_BYTES;
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, durability, NULL, &ticket), KVT_OK);
    return ticket;
}

/* A block that is only on NVMe. */
static void
block_make(uint64_t number)
{
    struct payload_key name;
    kvt_ticket *ticket = put_submit(number, (struct kvt_put){.source = bytes}, KVT_SYNC);

    assert_int_equal(kit_result(ticket, KVT_STAGE_DURABLE).status, KVT_OK);
    payload_key_make(&name, number);
    assert_int_equal(
        kvt_demote_submit(store, ns, &name.key, 1, KVT_TIER_NVME, NULL, &ticket), KVT_OK);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
}

/* The same, encoded. */
static void
encoded_make(uint64_t number)
{
    const struct kvt_namespace_options encoded = {
        .struct_size = sizeof(encoded), .codec = KVT_CODEC_BF16};
    const struct kvt_namespace_options plain = {.struct_size = sizeof(plain)};

    memset(bytes, 0, sizeof(bytes));
    assert_int_equal(kvt_namespace_configure(store, ns, &encoded), KVT_OK);
    block_make(number);
    assert_true(kit_stats(store).codec_out_bytes > 0);
    assert_int_equal(kvt_namespace_configure(store, ns, &plain), KVT_OK);
}

static kvt_ticket *
get_submit(uint64_t number, void *destination, uint32_t flags)
{
    struct payload_key name;
    struct kvt_get get = {.destination = destination, .capacity = BLOCK_BYTES, .flags = flags};
    kvt_ticket *ticket;

    payload_key_make(&name, number);
    get.key = name.key;
    assert_int_equal(kvt_get_submit(store, ns, &get, 1, NULL, &ticket), KVT_OK);
    return ticket;
}

/* All of HOST but `spared` slots is reserved; something is in flight. */
static void
host_reserve(uint32_t spared)
{
    struct kvt_put put = {.length = BLOCK_BYTES};
    enum kvt_status status = KVT_OK;

    while (status == KVT_OK) {
        struct payload_key name;
        void *address;

        assert_true(held_count < HELD_MAX);
        payload_key_make(&name, 1000 + held_count);
        put.key = name.key;
        status = kvt_reserve(store, ns, &put, &address, &held[held_count]);
        held_count += status == KVT_OK;
    }
    assert_int_equal(status, KVT_E_BUSY);
    while (spared-- > 0)
        kvt_discard(held[--held_count]);
}

/* The same, and a block that is being written for long may make room some day. The ticket is of its
 * put. */
static kvt_ticket *
host_fill(uint32_t spared)
{
    const struct sim_rule stalls = {.ops = SIM_WRITE,
        .effect = SIM_STALL,
        .file = "data.",
        .nth = 1,
        .sticky = true,
        .stall_ns = UINT64_C(60) * 1000 * 1000 * 1000};
    kvt_ticket *ticket;

    sim_rule_add(sim.world, &stalls);
    ticket = put_submit(1, (struct kvt_put){.source = bytes}, KVT_SYNC);
    sim_store_pass(&sim, settle_ns);
    host_reserve(spared);
    sim_rules_clear(sim.world);
    return ticket;
}

/* The loop rests although somebody waits for room. Then there is room. */
static void
rest_check(kvt_ticket *waiting)
{
    uint64_t step_count;

    sim_store_pass(&sim, settle_ns);
    step_count = sim_step_count(sim.world);
    sim_store_pass(&sim, quiet_ns);
    assert_in_range(sim_step_count(sim.world) - step_count, 0, STEPS_MAX);
    assert_int_equal(kvt_ticket_wait(waiting, KVT_STAGE_DONE, 0), KVT_LATE);
    while (held_count > 0)
        kvt_discard(held[--held_count]);
    assert_int_equal(kvt_ticket_wait(waiting, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
}

static void
a_get_that_waits_for_room_lets_the_loop_rest(void **state)
{
    kvt_ticket *writing, *ticket;

    (void)state;
    block_make(0);
    writing = host_fill(0);
    ticket = get_submit(0, bytes, 0);
    rest_check(ticket);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    assert_int_equal(kit_result(writing, KVT_STAGE_DURABLE).status, KVT_OK);
}

/* There is room for what is read, and none for what it is decoded to. */
static void
a_get_that_has_one_of_two_slots_lets_the_loop_rest(void **state)
{
    kvt_ticket *writing, *ticket;

    (void)state;
    encoded_make(0);
    writing = host_fill(1);
    ticket = get_submit(0, bytes, 0);
    rest_check(ticket);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    assert_int_equal(kit_result(writing, KVT_STAGE_DURABLE).status, KVT_OK);
}

/* It does without the second when all that was in flight has ended in vain, however many others
 * read. The first one, which it is given and gives back at each try, is not room for those. */
static void
a_get_that_has_one_of_two_slots_waits_no_longer(void **state)
{
    const struct sim_rule slow = {.ops = SIM_READ,
        .effect = SIM_STALL,
        .file = "data.",
        .nth = 1,
        .sticky = true,
        .stall_ns = read_ns};
    static _Alignas(4096) uint8_t read_bytes[BLOCK_BYTES];
    kvt_ticket *reading, *next, *ticket;

    (void)state;
    encoded_make(0);
    block_make(1);
    sim_rule_add(sim.world, &slow);
    reading = get_submit(1, read_bytes, KVT_GET_TRANSIENT);
    sim_store_pass(&sim, read_ns / 2);
    host_reserve(1);
    ticket = get_submit(0, bytes, 0);
    for (uint32_t count = 0; kvt_ticket_wait(ticket, KVT_STAGE_DONE, 0) == KVT_LATE; count++) {
        next = get_submit(1, read_bytes, KVT_GET_TRANSIENT);
        sim_store_pass(&sim, read_ns / 2);
        assert_int_equal(kit_result(reading, KVT_STAGE_DONE).status, KVT_OK);
        reading = next;
        assert_in_range(count, 0, READS_MAX);
    }
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    assert_int_equal(kit_result(reading, KVT_STAGE_DONE).status, KVT_OK);
    while (held_count > 0)
        kvt_discard(held[--held_count]);
}

/* Memory of the device, a region, and what a put to HBM has of it. */
static struct kvt_put
device_take(void)
{
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HBM, .size = BLOCK_BYTES};
    struct kvt_put put = {.tier = KVT_TIER_HBM};

    assert_int_equal(kvt_device_alloc(store, 0, about.size, &about.address), KVT_OK);
    assert_int_equal(kvt_device_write(store, 0, about.address, bytes, BLOCK_BYTES), KVT_OK);
    assert_int_equal(kvt_region_register(store, &about, &put.region), KVT_OK);
    put.source = about.address;
    return put;
}

static void
device_put(struct kvt_put put)
{
    assert_int_equal(kvt_region_unregister(store, put.region), KVT_OK);
    kvt_device_free(store, 0, (void *)(uintptr_t)put.source, BLOCK_BYTES);
}

/* HBM has room, and HOST, from which it is to be written, has none. */
static void
a_put_that_has_one_of_two_slots_lets_the_loop_rest(void **state)
{
    kvt_ticket *writing, *ticket;
    struct kvt_put put;

    (void)state;
    put = device_take();
    writing = host_fill(0);
    ticket = put_submit(0, put, KVT_SYNC);
    rest_check(ticket);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DURABLE).status, KVT_OK);
    assert_int_equal(kit_result(writing, KVT_STAGE_DURABLE).status, KVT_OK);
    device_put(put);
}

/* HOST has no room for what would have to leave HBM, and may have some soon. */
static void
a_put_to_a_full_hbm_waits_and_costs_no_block(void **state)
{
    struct kvt_put put = device_take();
    kvt_ticket *writing = host_fill(0);
    kvt_ticket *ticket = NULL;
    uint64_t count = 0;

    (void)state;
    for (; count < HELD_MAX; count++) {
        ticket = put_submit(count + 10, put, KVT_MEMORY);
        sim_store_pass(&sim, settle_ns);
        if (kvt_ticket_wait(ticket, KVT_STAGE_DONE, 0) == KVT_LATE)
            break;
        assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    }
    assert_in_range(count, 1, HELD_MAX - 1);
    for (uint64_t i = 0; i < count; i++) {
        struct payload_key name;
        uint8_t tiers = 0;

        payload_key_make(&name, i + 10);
        assert_int_equal(kvt_lookup(store, ns, &name.key, 1, &tiers, NULL, NULL), KVT_OK);
        assert_int_equal(tiers, KVT_TIER_HBM);
    }
    while (held_count > 0)
        kvt_discard(held[--held_count]);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    assert_int_equal(kit_result(writing, KVT_STAGE_DURABLE).status, KVT_OK);
    device_put(put);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_get_that_waits_for_room_lets_the_loop_rest),
        TEST(a_get_that_has_one_of_two_slots_lets_the_loop_rest),
        TEST(a_get_that_has_one_of_two_slots_waits_no_longer),
        TEST(a_put_that_has_one_of_two_slots_lets_the_loop_rest),
        TEST(a_put_to_a_full_hbm_waits_and_costs_no_block),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
