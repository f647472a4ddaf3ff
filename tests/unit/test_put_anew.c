/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_put_anew.c - what a get, a prefetch, a demotion and a durable put are told whose block is
 * put anew while it moves: once, and again and again. In a simulated world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "payload.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    KEY = 1,
    BLOCK_BYTES = 10000,
    VERSIONS = 64, /* At most; those of the device's memory. */
    STEPS_MAX = 1000000,
    JOINERS = 3,
};

#define MOMENT_NS 1000
#define STALL_NS (UINT64_C(100) * 1000 * 1000)

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;
static uint8_t *pool; /* Of the device: a place for each version, and one to read to. */
static kvt_region region;
static struct payload_key name;
static uint64_t version;   /* That was put last. */
static uint64_t put_bytes; /* Of the next ones. */
static uint8_t found[JOINERS][BLOCK_BYTES];

static int
setup(void **state)
{
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HBM, .size = (VERSIONS + 1) * BLOCK_BYTES};
    struct kvt_options options = kit_options();
    uint8_t bytes[BLOCK_BYTES];
    void *memory;

    (void)state;
    options.hbm_capacity_bytes = 2 << 20;
    sim_store_open(&sim, &options);
    store = sim.store;
    payload_key_make(&name, KEY);
    assert_int_equal(kvt_namespace_open(store, "space", "", 0, &ns), KVT_OK);
    assert_int_equal(kvt_device_alloc(store, 0, about.size, &memory), KVT_OK);
    about.address = pool = memory;
    assert_int_equal(kvt_region_register(store, &about, &region), KVT_OK);
    for (version = 0; version < VERSIONS; version++) {
        payload_fill(bytes, BLOCK_BYTES, KEY, version);
        assert_int_equal(
            kvt_device_write(store, 0, pool + version * BLOCK_BYTES, bytes, BLOCK_BYTES), KVT_OK);
    }
    version = 0;
    put_bytes = BLOCK_BYTES;
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    assert_int_equal(kvt_region_unregister(store, region), KVT_OK);
    kvt_device_free(store, 0, pool, (VERSIONS + 1) * BLOCK_BYTES);
    sim_store_close(&sim);
    return 0;
}

/* --- Requests, none of which is waited for ---------------------------------------------------- */

/* The next version, in the place of what is there. */
static kvt_ticket *
put_anew(uint32_t tier, enum kvt_durability durability)
{
    struct kvt_put put = {.key = name.key,
        .length = put_bytes,
        .flags = KVT_PUT_REPLACE,
        .region = region,
        .tier = (uint8_t)tier};
    kvt_ticket *ticket;

    version++;
    assert_true(version < VERSIONS);
    put.source = pool + version * BLOCK_BYTES;
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, durability, NULL, &ticket), KVT_OK);
    sim_store_loop(&sim);
    return ticket;
}

static void
block_make(uint32_t tier, enum kvt_durability durability)
{
    uint32_t stage = durability == KVT_MEMORY ? KVT_STAGE_DONE : KVT_STAGE_DURABLE;

    assert_int_equal(kit_result(put_anew(tier, durability), stage).status, KVT_OK);
}

static kvt_ticket *
get_submit_to(uint8_t *target, kvt_region where)
{
    struct kvt_get get = {
        .key = name.key, .destination = target, .capacity = BLOCK_BYTES, .region = where};
    kvt_ticket *ticket;

    assert_int_equal(kvt_get_submit(store, ns, &get, 1, NULL, &ticket), KVT_OK);
    sim_store_loop(&sim);
    return ticket;
}

static kvt_ticket *
get_submit(void)
{
    return get_submit_to(found[0], (kvt_region){0});
}

static kvt_ticket *
prefetch_submit(uint32_t tier)
{
    const struct kvt_prefetch how = {.struct_size = sizeof(how), .tier = tier};
    kvt_ticket *ticket;

    assert_int_equal(kvt_prefetch_submit(store, ns, &name.key, 1, &how, NULL, &ticket), KVT_OK);
    sim_store_loop(&sim);
    return ticket;
}

static kvt_ticket *
prefetch_up(void)
{
    return prefetch_submit(KVT_TIER_HBM);
}

static kvt_ticket *
prefetch_down(void)
{
    return prefetch_submit(KVT_TIER_HOST);
}

static kvt_ticket *
demote_submit(uint32_t tier)
{
    kvt_ticket *ticket;

    assert_int_equal(kvt_demote_submit(store, ns, &name.key, 1, tier, NULL, &ticket), KVT_OK);
    sim_store_loop(&sim);
    return ticket;
}

static kvt_ticket *
demote_to_host(void)
{
    return demote_submit(KVT_TIER_HOST);
}

static kvt_ticket *
demote_to_nvme(void)
{
    return demote_submit(KVT_TIER_NVME);
}

/* A durable put of a block that is there. */
static kvt_ticket *
put_again(void)
{
    static uint8_t bytes[BLOCK_BYTES];
    struct kvt_put put = {.key = name.key, .source = bytes, .length = BLOCK_BYTES};
    kvt_ticket *ticket;

    assert_int_equal(kvt_put_submit(store, ns, &put, 1, KVT_SYNC, NULL, &ticket), KVT_OK);
    sim_store_loop(&sim);
    return ticket;
}

/* --- What is under way ------------------------------------------------------------------------ */

/* The entry of the key, if its flight is in that state; else ENTRY_NONE. */
static uint32_t
entry_in(enum flight_state state)
{
    struct block_key key;
    const struct flight *flight;
    uint32_t number;

    assert_true(key_init(&key, store->file.secret, ns.id, 0, name.key.bytes, name.key.length));
    number = residency_find(store->map, key_fingerprint(store->fingerprint_seed, &key), &key);
    if (number == ENTRY_NONE)
        return ENTRY_NONE;
    flight = entries_at(store->entries, number)->flight;
    return flight != NULL && flight->state == state ? number : ENTRY_NONE;
}

/* One step, or, when there is nothing to do, a moment. */
static void
go_on(void)
{
    uint64_t step_count = sim_step_count(sim.world);

    sim_run_steps(sim.world, 1);
    if (sim_step_count(sim.world) == step_count)
        sim_store_pass(&sim, MOMENT_NS);
}

static void
reach(enum flight_state state)
{
    for (uint32_t i = 0; entry_in(state) == ENTRY_NONE; i++) {
        assert_true(i < STEPS_MAX);
        go_on();
    }
}

static unsigned
tiers_now(void)
{
    uint8_t tiers;

    assert_int_equal(kvt_lookup(store, ns, &name.key, 1, &tiers, NULL, NULL), KVT_OK);
    return tiers;
}

static void
found_is(const uint8_t *bytes, uint64_t wanted)
{
    uint64_t seen;

    assert_true(payload_is_right(bytes, BLOCK_BYTES, KEY, &seen));
    assert_int_equal(seen, wanted);
}

/* --- Once ------------------------------------------------------------------------------------- */

/* A block of `tier` is put anew there while what was submitted has it in that state. */
static enum kvt_status
once(kvt_ticket *(*submit)(void), enum flight_state state, uint32_t tier)
{
    kvt_ticket *ticket, *put;

    block_make(tier, KVT_MEMORY);
    ticket = submit();
    reach(state);
    put = put_anew(tier, KVT_MEMORY);
    assert_int_equal(kit_result(put, KVT_STAGE_DONE).status, KVT_OK);
    return kit_result(ticket, KVT_STAGE_DONE).status;
}

static void
a_get_of_what_is_put_anew_while_it_comes_down_is_the_new_block(void **state)
{
    (void)state;
    assert_int_equal(once(get_submit, FLIGHT_LOWERING, KVT_TIER_HBM), KVT_OK);
    found_is(found[0], 2);
    assert_int_equal(kit_stats(store).get_miss_count, 0);
    assert_int_equal(kit_stats(store).miss_damaged_count, 0);
}

/* A get to that memory is reading the block from NVMe. */
static kvt_ticket *
slow_get_begin(uint8_t *target)
{
    const struct sim_rule slow = {
        .ops = SIM_READ, .effect = SIM_STALL, .nth = 1, .stall_ns = STALL_NS};
    kvt_ticket *ticket;

    block_make(KVT_TIER_HOST, KVT_SYNC);
    assert_int_equal(kit_result(demote_to_nvme(), KVT_STAGE_DONE).status, KVT_OK);
    sim_rule_add(sim.world, &slow);
    ticket = get_submit_to(target, region);
    reach(FLIGHT_READING);
    return ticket;
}

static void
a_get_of_what_is_put_anew_while_it_is_read_is_the_new_block(void **state)
{
    uint8_t *target = pool + (size_t)VERSIONS * BLOCK_BYTES;
    kvt_ticket *ticket = slow_get_begin(target);

    (void)state;
    block_make(KVT_TIER_HOST, KVT_SYNC);
    assert_int_equal(kit_result(demote_to_nvme(), KVT_STAGE_DONE).status, KVT_OK);
    assert_int_equal(tiers_now(), KVT_TIER_NVME);
    assert_false(ticket->ops[0].is_reached[0]);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    assert_int_equal(kvt_device_read(store, 0, found[0], target, BLOCK_BYTES), KVT_OK);
    found_is(found[0], 2);
    assert_int_equal(kit_stats(store).miss_damaged_count, 0);
}

/* The old one was read from NVMe for it, which is no matter. */
static void
a_get_of_what_is_put_anew_into_host_tells_where_it_came_from(void **state)
{
    uint8_t *target = pool + (size_t)VERSIONS * BLOCK_BYTES;
    kvt_ticket *ticket = slow_get_begin(target);
    struct kvt_result result;

    (void)state;
    block_make(KVT_TIER_HOST, KVT_MEMORY);
    assert_false(ticket->ops[0].is_reached[0]);
    result = kit_result(ticket, KVT_STAGE_DONE);
    assert_int_equal(result.status, KVT_OK);
    assert_int_equal(result.tier, KVT_TIER_HOST);
    assert_int_equal(kit_stats(store).get_nvme_count, 0);
    assert_int_equal(kvt_device_read(store, 0, found[0], target, BLOCK_BYTES), KVT_OK);
    found_is(found[0], 2);
}

static void
a_prefetch_of_what_is_put_anew_while_it_moves_brings_the_new_block(void **state)
{
    (void)state;
    assert_int_equal(once(prefetch_up, FLIGHT_RAISING, KVT_TIER_HOST), KVT_OK);
    assert_int_equal(tiers_now(), KVT_TIER_HOST | KVT_TIER_HBM);
    assert_int_equal(once(prefetch_down, FLIGHT_LOWERING, KVT_TIER_HBM), KVT_OK);
    assert_int_equal(tiers_now(), KVT_TIER_HOST | KVT_TIER_HBM);
}

/* The new block may be longer: the slot that was taken for the other is none for it. */
static void
prefetch_read_anew(uint64_t first_bytes)
{
    const struct sim_rule slow = {
        .ops = SIM_READ, .effect = SIM_STALL, .nth = 1, .stall_ns = STALL_NS};
    uint8_t *target = pool + (size_t)VERSIONS * BLOCK_BYTES;
    kvt_ticket *ticket;

    put_bytes = first_bytes;
    block_make(KVT_TIER_HOST, KVT_SYNC);
    assert_int_equal(kit_result(demote_to_nvme(), KVT_STAGE_DONE).status, KVT_OK);
    sim_rule_add(sim.world, &slow);
    ticket = prefetch_up();
    reach(FLIGHT_READING);
    put_bytes = BLOCK_BYTES;
    block_make(KVT_TIER_HOST, KVT_SYNC);
    assert_int_equal(kit_result(demote_to_nvme(), KVT_STAGE_DONE).status, KVT_OK);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    assert_int_equal(tiers_now(), KVT_TIER_HOST | KVT_TIER_HBM | KVT_TIER_NVME);
    assert_int_equal(kit_result(get_submit_to(target, region), KVT_STAGE_DONE).status, KVT_OK);
    assert_int_equal(kvt_device_read(store, 0, found[0], target, BLOCK_BYTES), KVT_OK);
    found_is(found[0], 2);
}

static void
a_prefetch_of_what_is_put_anew_while_it_is_read_brings_the_new_block(void **state)
{
    (void)state;
    prefetch_read_anew(BLOCK_BYTES);
}

static void
a_prefetch_of_what_is_put_anew_and_longer_has_room_for_it(void **state)
{
    (void)state;
    prefetch_read_anew(BLOCK_BYTES / 8);
}

static void
a_demotion_to_host_of_what_is_put_anew_moves_the_new_block(void **state)
{
    (void)state;
    assert_int_equal(once(demote_to_host, FLIGHT_LOWERING, KVT_TIER_HBM), KVT_OK);
    assert_int_equal(tiers_now(), KVT_TIER_HOST);
}

static void
a_demotion_to_nvme_of_what_is_put_anew_moves_the_new_block(void **state)
{
    (void)state;
    assert_int_equal(once(demote_to_nvme, FLIGHT_LOWERING, KVT_TIER_HBM), KVT_OK);
    assert_int_equal(tiers_now(), KVT_TIER_NVME);
}

/* The put that waits for the end of the write has its turn before the demotion that does. */
static void
a_demotion_of_what_is_put_anew_behind_a_write_moves_the_new_block(void **state)
{
    kvt_ticket *first, *second, *demotion;

    (void)state;
    first = put_anew(KVT_TIER_HOST, KVT_SYNC);
    reach(FLIGHT_WRITING);
    second = put_anew(KVT_TIER_HOST, KVT_MEMORY);
    demotion = demote_to_nvme();
    assert_int_equal(kit_result(demotion, KVT_STAGE_DONE).status, KVT_OK);
    assert_int_equal(tiers_now(), KVT_TIER_NVME);
    assert_int_equal(kit_result(first, KVT_STAGE_DURABLE).status, KVT_OK);
    assert_int_equal(kit_result(second, KVT_STAGE_DONE).status, KVT_OK);
}

/* What was being written is deleted: that is no failure of the write. */
static void
a_demotion_of_what_is_deleted_and_put_moves_the_new_block(void **state)
{
    const struct sim_rule slow = {
        .ops = SIM_WRITE | SIM_SYNC, .effect = SIM_STALL, .nth = 1, .stall_ns = STALL_NS};
    kvt_ticket *demotion, *delete_ticket;

    (void)state;
    block_make(KVT_TIER_HOST, KVT_MEMORY);
    sim_rule_add(sim.world, &slow);
    demotion = demote_to_nvme();
    reach(FLIGHT_WRITING);
    assert_int_equal(kvt_delete_submit(store, ns, &name.key, 1, NULL, &delete_ticket), KVT_OK);
    sim_store_loop(&sim);
    block_make(KVT_TIER_HOST, KVT_MEMORY);
    assert_false(demotion->ops[0].is_reached[0]);
    assert_int_equal(kit_result(demotion, KVT_STAGE_DONE).status, KVT_OK);
    assert_int_equal(tiers_now(), KVT_TIER_NVME);
    assert_int_equal(kit_result(delete_ticket, KVT_STAGE_DURABLE).status, KVT_OK);
}

/* The old block is gone, and the new one not there yet: it will be. */
static void
a_demotion_of_what_is_being_put_waits_for_it(void **state)
{
    kvt_ticket *put, *demotion;

    (void)state;
    block_make(KVT_TIER_HBM, KVT_MEMORY);
    put = put_anew(KVT_TIER_HBM, KVT_MEMORY);
    assert_int_not_equal(entry_in(FLIGHT_FILLING), ENTRY_NONE);
    demotion = demote_to_host();
    assert_int_equal(kit_result(demotion, KVT_STAGE_DONE).status, KVT_OK);
    assert_int_equal(tiers_now(), KVT_TIER_HOST);
    assert_int_equal(kit_result(put, KVT_STAGE_DONE).status, KVT_OK);
}

/* --- Again and again -------------------------------------------------------------------------- */

/* A block of `tier` is put anew there each time that it is in that state, until the tickets have
 * reached the stage. Returns how often. */
static uint32_t
without_end(kvt_ticket *const *tickets, uint32_t count, uint32_t stage, enum flight_state state,
    uint32_t tier)
{
    kvt_ticket *put = NULL;
    uint32_t put_count = 0;
    uint32_t left = count;

    for (uint32_t i = 0; left > 0; i++) {
        assert_true(i < STEPS_MAX);
        if (entry_in(state) != ENTRY_NONE) {
            kvt_ticket_free(put);
            put = put_anew(tier, KVT_MEMORY);
            put_count++;
        }
        go_on();
        left = 0;
        for (uint32_t t = 0; t < count; t++)
            left += !tickets[t]->ops[0].is_reached[stage - 1];
    }
    assert_int_equal(kit_result(put, KVT_STAGE_DONE).status, KVT_OK);
    return put_count;
}

static void
has_a_bound(kvt_ticket *(*submit)(void), uint32_t stage, enum flight_state state, uint32_t tier)
{
    kvt_ticket *ticket;

    block_make(tier, KVT_MEMORY);
    ticket = submit();
    assert_int_equal(without_end(&ticket, 1, stage, state, tier), OP_LOSSES_MAX);
    assert_int_equal(kit_result(ticket, stage).status, KVT_MISS);
}

static void
a_get_of_what_is_put_anew_without_end_is_a_miss(void **state)
{
    (void)state;
    has_a_bound(get_submit, KVT_STAGE_DONE, FLIGHT_LOWERING, KVT_TIER_HBM);
    assert_int_equal(kit_stats(store).get_miss_count, 1);
    assert_int_equal(kit_stats(store).miss_deleted_count, 1);
    assert_int_equal(kit_stats(store).miss_damaged_count, 0);
}

static void
a_get_of_what_is_put_anew_while_it_is_read_without_end_is_a_miss(void **state)
{
    const struct sim_rule slow = {
        .ops = SIM_READ, .effect = SIM_STALL, .nth = 1, .sticky = true, .stall_ns = STALL_NS};
    kvt_ticket *ticket;

    (void)state;
    block_make(KVT_TIER_HOST, KVT_SYNC);
    assert_int_equal(kit_result(demote_to_nvme(), KVT_STAGE_DONE).status, KVT_OK);
    sim_rule_add(sim.world, &slow);
    ticket = get_submit_to(pool + (size_t)VERSIONS * BLOCK_BYTES, region);
    for (uint32_t i = 0; i < OP_LOSSES_MAX; i++) {
        reach(FLIGHT_READING);
        block_make(KVT_TIER_HOST, KVT_SYNC);
        assert_int_equal(kit_result(demote_to_nvme(), KVT_STAGE_DONE).status, KVT_OK);
        assert_false(ticket->ops[0].is_reached[0]);
    }
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_MISS);
    assert_int_equal(kit_stats(store).miss_deleted_count, 1);
    assert_int_equal(kit_stats(store).miss_damaged_count, 0);
}

/* Nor does it wait for others' moves without end. */
static void
gets_of_what_is_put_anew_without_end_are_misses_at_once(void **state)
{
    kvt_ticket *tickets[JOINERS];

    (void)state;
    block_make(KVT_TIER_HBM, KVT_MEMORY);
    for (uint32_t i = 0; i < JOINERS; i++)
        tickets[i] = get_submit_to(found[i], (kvt_region){0});
    assert_int_equal(without_end(tickets, JOINERS, KVT_STAGE_DONE, FLIGHT_LOWERING, KVT_TIER_HBM),
        OP_LOSSES_MAX);
    for (uint32_t i = 0; i < JOINERS; i++)
        assert_int_equal(kit_result(tickets[i], KVT_STAGE_DONE).status, KVT_MISS);
}

static void
a_prefetch_of_what_is_put_anew_without_end_finds_no_block(void **state)
{
    (void)state;
    has_a_bound(prefetch_up, KVT_STAGE_DONE, FLIGHT_RAISING, KVT_TIER_HOST);
    has_a_bound(prefetch_down, KVT_STAGE_DONE, FLIGHT_LOWERING, KVT_TIER_HBM);
}

static void
a_demotion_of_what_is_put_anew_without_end_finds_no_block(void **state)
{
    (void)state;
    has_a_bound(demote_to_host, KVT_STAGE_DONE, FLIGHT_LOWERING, KVT_TIER_HBM);
    has_a_bound(demote_to_nvme, KVT_STAGE_DONE, FLIGHT_LOWERING, KVT_TIER_HBM);
}

static void
a_durable_put_of_what_is_put_anew_without_end_is_told(void **state)
{
    (void)state;
    has_a_bound(put_again, KVT_STAGE_DURABLE, FLIGHT_LOWERING, KVT_TIER_HBM);
    assert_int_equal(kvt_flush(store), KVT_OK);
}

/* Each of them reads what none of them keeps: others that come before are no loss. */
static void
gets_that_wait_for_each_other_all_have_the_block(void **state)
{
    static uint8_t bytes[2 * OP_LOSSES_MAX][BLOCK_BYTES + 1];
    kvt_ticket *tickets[2 * OP_LOSSES_MAX];

    (void)state;
    block_make(KVT_TIER_HOST, KVT_SYNC);
    assert_int_equal(kit_result(demote_to_nvme(), KVT_STAGE_DONE).status, KVT_OK);
    for (uint32_t i = 0; i < 2 * OP_LOSSES_MAX; i++) {
        struct kvt_get get = {.key = name.key,
            .destination = bytes[i] + ((uintptr_t)bytes[i] % 2 == 0),
            .capacity = BLOCK_BYTES,
            .flags = KVT_GET_TRANSIENT};

        assert_int_equal(kvt_get_submit(store, ns, &get, 1, NULL, &tickets[i]), KVT_OK);
    }
    for (uint32_t i = 0; i < 2 * OP_LOSSES_MAX; i++)
        assert_int_equal(kit_result(tickets[i], KVT_STAGE_DONE).status, KVT_OK);
    assert_int_equal(tiers_now(), KVT_TIER_NVME);
}

/* --- Meanwhile -------------------------------------------------------------------------------- */

/* What became of another block of the key, long before, says nothing of this one. */
static void
a_block_that_is_being_replaced_has_no_fate(void **state)
{
    struct kvt_explanation why = {.struct_size = sizeof(why)};
    kvt_ticket *put;

    (void)state;
    block_make(KVT_TIER_HBM, KVT_MEMORY);
    assert_int_equal(kit_delete(store, ns, KEY), KVT_OK);
    assert_int_equal(kvt_why(store, ns, &name.key, &why), KVT_OK);
    assert_int_equal(why.fate, KVT_FATE_DELETED);
    block_make(KVT_TIER_HBM, KVT_MEMORY);
    put = put_anew(KVT_TIER_HBM, KVT_MEMORY);
    assert_int_not_equal(entry_in(FLIGHT_FILLING), ENTRY_NONE);
    assert_int_equal(kvt_why(store, ns, &name.key, &why), KVT_OK);
    assert_int_equal(why.tiers, 0);
    assert_int_equal(why.fate, KVT_FATE_NONE);
    assert_int_equal(kit_result(put, KVT_STAGE_DONE).status, KVT_OK);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_get_of_what_is_put_anew_while_it_comes_down_is_the_new_block),
        TEST(a_get_of_what_is_put_anew_while_it_is_read_is_the_new_block),
        TEST(a_get_of_what_is_put_anew_into_host_tells_where_it_came_from),
        TEST(a_prefetch_of_what_is_put_anew_while_it_moves_brings_the_new_block),
        TEST(a_prefetch_of_what_is_put_anew_while_it_is_read_brings_the_new_block),
        TEST(a_prefetch_of_what_is_put_anew_and_longer_has_room_for_it),
        TEST(a_demotion_to_host_of_what_is_put_anew_moves_the_new_block),
        TEST(a_demotion_to_nvme_of_what_is_put_anew_moves_the_new_block),
        TEST(a_demotion_of_what_is_put_anew_behind_a_write_moves_the_new_block),
        TEST(a_demotion_of_what_is_deleted_and_put_moves_the_new_block),
        TEST(a_demotion_of_what_is_being_put_waits_for_it),
        TEST(a_get_of_what_is_put_anew_without_end_is_a_miss),
        TEST(a_get_of_what_is_put_anew_while_it_is_read_without_end_is_a_miss),
        TEST(gets_of_what_is_put_anew_without_end_are_misses_at_once),
        TEST(a_prefetch_of_what_is_put_anew_without_end_finds_no_block),
        TEST(a_demotion_of_what_is_put_anew_without_end_finds_no_block),
        TEST(a_durable_put_of_what_is_put_anew_without_end_is_told),
        TEST(gets_that_wait_for_each_other_all_have_the_block),
        TEST(a_block_that_is_being_replaced_has_no_fate),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
