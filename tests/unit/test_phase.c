/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_phase.c - kvt_phase_set(), in a simulated world: what a waiting request's blocks give up,
 * and when they are back.
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
    BLOCK_BYTES = 20000,
    CHAIN = 8,
    OTHER = 20, /* The first block of another chain that shares SHARED with the first. */
    SHARED = 3,
    NAMES = 40,
    TICKETS_MAX = 16,
    WAITS_MAX = TICKETS_MAX / 4,
};

static const uint64_t SECOND = UINT64_C(1000) * 1000 * 1000;
static const uint64_t MILLISECOND = UINT64_C(1000) * 1000;

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;
static struct payload_key names[NAMES];
static struct kvt_key keys[NAMES];
static uint8_t *memory; /* Of the device. */
static kvt_region region;

static void
device_take(void)
{
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HBM, .size = BLOCK_BYTES};

    assert_int_equal(kvt_device_alloc(store, 0, BLOCK_BYTES, (void **)&memory), KVT_OK);
    about.address = memory;
    assert_int_equal(kvt_region_register(store, &about, &region), KVT_OK);
}

static void
device_give_back(void)
{
    assert_int_equal(kvt_region_unregister(store, region), KVT_OK);
    kvt_device_free(store, 0, memory, BLOCK_BYTES);
}

static int
setup(void **state)
{
    struct kvt_options options = kit_options();

    (void)state;
    options.hbm_capacity_bytes = 2 << 20;
    options.nvme_capacity_bytes = 32 << 20;
    options.request_count_max = TICKETS_MAX;
    options.event_count_max = 256;
    sim_store_open(&sim, &options);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "phases", "", 0, &ns), KVT_OK);
    for (uint32_t i = 0; i < NAMES; i++) {
        payload_key_make(&names[i], i);
        keys[i] = names[i].key;
    }
    device_take();
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    device_give_back();
    sim_store_close(&sim);
    return 0;
}

/* Born on the device, and nowhere else but for what its durability asks for. */
static void
put(uint32_t i, const struct kvt_key *parent, enum kvt_durability durability)
{
    struct kvt_put about = {.key = keys[i],
        .parent = parent,
        .source = memory,
        .length = BLOCK_BYTES,
        .region = region,
        .flags = KVT_PUT_REPLACE,
        .tier = KVT_TIER_HBM};
    static uint8_t bytes[BLOCK_BYTES];
    kvt_ticket *ticket;

    payload_fill(bytes, sizeof(bytes), i, 1);
    assert_int_equal(kvt_device_write(store, 0, memory, bytes, sizeof(bytes)), KVT_OK);
    assert_int_equal(kvt_put_submit(store, ns, &about, 1, durability, NULL, &ticket), KVT_OK);
    assert_int_equal(kit_result(ticket, durability == KVT_MEMORY ? 1 : 2).status, KVT_OK);
}

static void
chain_put(enum kvt_durability durability)
{
    for (uint32_t i = 0; i < CHAIN; i++)
        put(i, i == 0 ? NULL : &keys[i - 1], durability);
}

static unsigned
tiers_of(uint32_t i)
{
    uint8_t tiers;

    assert_int_equal(kvt_lookup(store, ns, &keys[i], 1, &tiers, NULL, NULL), KVT_OK);
    return tiers;
}

/* How many of them are in HBM, the first ones: those behind are not. */
static uint32_t
in_hbm(uint32_t first, uint32_t count)
{
    uint32_t leading = 0;

    while (leading < count && (tiers_of(first + leading) & KVT_TIER_HBM) != 0)
        leading++;
    for (uint32_t i = leading; i < count; i++)
        assert_int_equal(tiers_of(first + i) & KVT_TIER_HBM, 0);
    return leading;
}

static void
bytes_are_right(uint32_t first, uint32_t count)
{
    uint64_t version;

    for (uint32_t i = first; i < first + count; i++) {
        assert_int_equal(kit_get(store, ns, i, &version), KVT_OK);
        assert_int_equal(version, 1);
    }
}

static void
pass(uint64_t duration_ns)
{
    sim_store_pass(&sim, duration_ns);
}

static enum kvt_status
phase_set(uint32_t first, uint32_t count, enum kvt_phase phase, uint64_t resume_ns)
{
    return kvt_phase_set(store, ns, keys + first, count, phase, resume_ns);
}

static void
wait_for(uint32_t count, uint64_t resume_ns)
{
    assert_int_equal(phase_set(0, count, KVT_PHASE_IO_WAIT, resume_ns), KVT_OK);
}

static void
nothing_is_remembered(void)
{
    assert_int_equal(store->phases.wait_count, 0);
    assert_int_equal(store->phases.block_count, 0);
    assert_int_equal(store->phases.look_ns, UINT64_MAX);
    assert_int_equal(store->ticket_count, 0);
}

/* --- 1. Down, and up again -------------------------------------------------------------------- */

static void
a_wait_gives_hbm_up_now_and_has_it_back_in_time(void **state)
{
    (void)state;
    chain_put(KVT_MEMORY);
    assert_int_equal(in_hbm(0, CHAIN), CHAIN);
    wait_for(CHAIN, SECOND);
    pass(100 * MILLISECOND);
    for (uint32_t i = 0; i < CHAIN; i++)
        assert_int_equal(tiers_of(i), KVT_TIER_HOST);
    assert_int_equal(store->phases.block_count, CHAIN);
    pass(880 * MILLISECOND);
    assert_int_equal(in_hbm(0, CHAIN), 0); /* Not before it is needed. */
    pass(19 * MILLISECOND);
    assert_int_equal(in_hbm(0, CHAIN), CHAIN);
    bytes_are_right(0, CHAIN);
    nothing_is_remembered();
    /* The request is late, or never comes: nothing is held for it. */
    pass(1000 * SECOND);
    assert_int_equal(phase_set(0, CHAIN, KVT_PHASE_DECODE, 0), KVT_OK);
    nothing_is_remembered();
}

static void
copies_come_back_in_the_order_of_the_chain(void **state)
{
    struct kvt_event events[64];
    uint64_t cursor = 0;
    uint32_t count, seen = 0;

    (void)state;
    chain_put(KVT_MEMORY);
    wait_for(CHAIN, SECOND);
    pass(100 * MILLISECOND);
    while (kvt_events_read(store, &cursor, events, 64, &count) == KVT_OK)
        continue;
    pass(SECOND);
    assert_int_equal(kvt_events_read(store, &cursor, events, 64, &count), KVT_OK);
    for (uint32_t i = 0; i < count; i++) {
        if (events[i].tier != KVT_TIER_HBM || events[i].kind != KVT_EVENT_STORED)
            continue;
        assert_int_equal(events[i].reason, KVT_REASON_RAISED);
        assert_memory_equal(events[i].key, keys[seen].bytes, keys[seen].length);
        seen++;
    }
    assert_int_equal(seen, CHAIN);
}

/* A copy below is enough: nothing is copied down. It has sunk to NVMe when it is wanted. */
/* What a request that has gone on wants is no bulk any more. */
static void
reads_ahead_of_time_give_way_to_others(void **state)
{
    (void)state;
    chain_put(KVT_MEMORY);
    for (uint32_t i = 0; i < 2; i++) {
        struct kvt_ticket *up;

        wait_for(CHAIN, SECOND);
        pass(100 * MILLISECOND);
        up = store->phases.first->up;
        atomic_fetch_add(&up->reference_count, 1);
        if (i == 1)
            assert_int_equal(phase_set(0, CHAIN, KVT_PHASE_DECODE, 0), KVT_OK);
        pass(SECOND);
        assert_int_equal(up->stage, 1);
        assert_int_equal(up->is_bulk, i == 0);
        ticket_release(up);
    }
    nothing_is_remembered();
}

static void
what_has_a_copy_below_is_only_released(void **state)
{
    struct kvt_stats before = {.struct_size = sizeof(before)};
    struct kvt_stats after = {.struct_size = sizeof(after)};
    kvt_ticket *ticket;

    (void)state;
    chain_put(KVT_SYNC);
    assert_int_equal(kvt_stats_get(store, &before), KVT_OK);
    wait_for(CHAIN, SECOND);
    pass(10 * MILLISECOND);
    assert_int_equal(kvt_stats_get(store, &after), KVT_OK);
    assert_int_equal(after.hbm_lower_count, before.hbm_lower_count);
    assert_int_equal(in_hbm(0, CHAIN), 0);
    assert_int_equal(
        kvt_demote_submit(store, ns, keys + 2, 1, KVT_TIER_NVME, NULL, &ticket), KVT_OK);
    assert_int_equal(kit_result(ticket, 1).status, KVT_OK);
    assert_int_equal(tiers_of(2), KVT_TIER_NVME);
    pass(980 * MILLISECOND);
    assert_int_equal(in_hbm(0, CHAIN), 0);
    pass(9 * MILLISECOND);
    assert_int_equal(in_hbm(0, CHAIN), CHAIN);
    bytes_are_right(0, CHAIN);
}

/* The slower bytes came from NVMe so far, the earlier it begins. */
static void
it_begins_earlier_when_loading_is_known_to_be_slow(void **state)
{
    (void)state;
    chain_put(KVT_MEMORY);
    store->host_meter.bytes = CHAIN * BLOCK_BYTES;
    store->host_meter.busy_ns = SECOND; /* A second for all of them. */
    wait_for(CHAIN, 10 * SECOND);
    pass(7900 * MILLISECOND);
    assert_int_equal(in_hbm(0, CHAIN), 0);
    pass(200 * MILLISECOND);
    assert_int_equal(in_hbm(0, CHAIN), CHAIN);
}

static void
a_wait_without_an_end_lasts_until_the_request_goes_on(void **state)
{
    static const enum kvt_phase phases[] = {KVT_PHASE_DECODE, KVT_PHASE_PREFILL};

    (void)state;
    chain_put(KVT_MEMORY);
    for (uint32_t i = 0; i < 2; i++) {
        wait_for(CHAIN, KVT_FOREVER);
        pass(1000 * SECOND);
        assert_int_equal(in_hbm(0, CHAIN), 0);
        /* The chain has grown meanwhile, by a block that is not there. */
        assert_int_equal(phase_set(0, CHAIN + 1, phases[i], 0), KVT_OK);
        pass(10 * MILLISECOND);
        assert_int_equal(in_hbm(0, CHAIN), CHAIN);
        bytes_are_right(0, CHAIN);
        nothing_is_remembered();
    }
}

/* At once: the demotions that have not begun are not made. */
static void
a_request_that_goes_on_at_once_finds_its_blocks(void **state)
{
    (void)state;
    chain_put(KVT_MEMORY);
    wait_for(CHAIN, SECOND);
    assert_int_equal(phase_set(0, CHAIN, KVT_PHASE_DECODE, 0), KVT_OK);
    pass(20 * MILLISECOND);
    assert_int_equal(in_hbm(0, CHAIN), CHAIN);
    bytes_are_right(0, CHAIN);
    nothing_is_remembered();
}

static void
blocks_count_as_used_when_the_request_goes_on(void **state)
{
    struct block_key key;
    uint32_t number, before;

    (void)state;
    chain_put(KVT_MEMORY);
    pass(100 * SECOND);
    assert_true(key_init(
        &key, store->file.secret, ns.id, keys[0].component, keys[0].bytes, keys[0].length));
    number = residency_find(store->map, key_fingerprint(store->fingerprint_seed, &key), &key);
    assert_int_not_equal(number, ENTRY_NONE);
    wait_for(CHAIN, KVT_FOREVER);
    pass(100 * SECOND);
    before = entries_at(store->entries, number)->last_use; /* When it came to HOST. */
    assert_int_equal(phase_set(0, CHAIN, KVT_PHASE_DECODE, 0), KVT_OK);
    assert_true(entries_at(store->entries, number)->last_use - before >= 99 * SECOND >> 26);
}

/* --- 2. What stays ---------------------------------------------------------------------------- */

static void
what_is_pinned_or_leased_stays_with_all_before_it(void **state)
{
    kvt_lease lease;

    (void)state;
    chain_put(KVT_MEMORY);
    assert_int_equal(kvt_pin(store, ns, keys + 2, 1, KVT_FOREVER), KVT_OK);
    wait_for(CHAIN, KVT_FOREVER);
    pass(10 * MILLISECOND);
    assert_int_equal(in_hbm(0, CHAIN), 3);
    assert_int_equal(phase_set(0, CHAIN, KVT_PHASE_DECODE, 0), KVT_OK);
    pass(10 * MILLISECOND);
    assert_int_equal(kvt_pin(store, ns, keys + 2, 1, 0), KVT_OK);
    assert_int_equal(kvt_lookup(store, ns, keys + 4, 1, NULL, NULL, &lease), KVT_OK);
    wait_for(CHAIN, KVT_FOREVER);
    pass(10 * MILLISECOND);
    assert_int_equal(in_hbm(0, CHAIN), 5);
    kvt_lease_release(store, lease);
    wait_for(CHAIN, SECOND);
    pass(10 * MILLISECOND);
    assert_int_equal(in_hbm(0, CHAIN), 0);
    pass(SECOND);
    assert_int_equal(in_hbm(0, CHAIN), CHAIN);
}

/* Two chains share their first blocks: these go with the second of them, and come back with the
 * first. */
static void
what_another_chain_needs_stays(void **state)
{
    struct kvt_key other[SHARED + 2];

    (void)state;
    chain_put(KVT_MEMORY);
    memcpy(other, keys, SHARED * sizeof(*keys));
    memcpy(other + SHARED, keys + OTHER, 2 * sizeof(*keys));
    put(OTHER, &keys[SHARED - 1], KVT_MEMORY);
    put(OTHER + 1, &keys[OTHER], KVT_MEMORY);
    wait_for(CHAIN, 2 * SECOND);
    pass(10 * MILLISECOND);
    assert_int_equal(in_hbm(0, CHAIN), SHARED);
    assert_int_equal(
        kvt_phase_set(store, ns, other, SHARED + 2, KVT_PHASE_IO_WAIT, SECOND), KVT_OK);
    pass(10 * MILLISECOND);
    assert_int_equal(in_hbm(0, CHAIN), 0);
    assert_int_equal(in_hbm(OTHER, 2), 0);
    pass(SECOND);
    assert_int_equal(in_hbm(0, CHAIN), SHARED);
    assert_int_equal(in_hbm(OTHER, 2), 2);
    assert_int_equal(
        kvt_phase_set(store, ns, other, SHARED + 2, KVT_PHASE_IO_WAIT, KVT_FOREVER), KVT_OK);
    pass(10 * MILLISECOND);
    assert_int_equal(in_hbm(0, CHAIN), 0);
    pass(SECOND);
    assert_int_equal(in_hbm(0, CHAIN), CHAIN); /* What the other gave up is the first one's too. */
    assert_int_equal(in_hbm(OTHER, 2), 0);
}

/* A child that the chain names twice is not two, of which one could be the other chain's. */
static void
a_key_that_stands_twice_is_one_child(void **state)
{
    const struct kvt_key chain[] = {keys[0], keys[1], keys[1]};

    (void)state;
    put(0, NULL, KVT_MEMORY);
    put(1, &keys[0], KVT_MEMORY);
    put(OTHER, &keys[0], KVT_MEMORY);
    assert_int_equal(kvt_phase_set(store, ns, chain, 3, KVT_PHASE_IO_WAIT, SECOND), KVT_OK);
    pass(10 * MILLISECOND);
    assert_int_equal(tiers_of(0), KVT_TIER_HBM);
    assert_int_equal(tiers_of(1), KVT_TIER_HOST);
    assert_int_equal(tiers_of(OTHER), KVT_TIER_HBM);
    /* When the other chain waits, too, it goes, and is no more remembered as listed. */
    assert_int_equal(phase_set(OTHER, 1, KVT_PHASE_IO_WAIT, KVT_FOREVER), KVT_OK);
    pass(10 * MILLISECOND);
    assert_int_equal(kvt_phase_set(store, ns, chain, 3, KVT_PHASE_IO_WAIT, SECOND), KVT_OK);
    pass(10 * MILLISECOND);
    assert_int_equal(tiers_of(0), KVT_TIER_HOST);
    assert_int_equal(tiers_of(OTHER), KVT_TIER_HOST);
    pass(SECOND);
    assert_int_equal(in_hbm(0, 2), 2);
    bytes_are_right(0, 2);
}

static void
a_wait_that_is_too_short_gives_nothing_up(void **state)
{
    static const uint64_t times[] = {0, 1, 4 * MILLISECOND};

    (void)state;
    chain_put(KVT_MEMORY);
    for (uint32_t i = 0; i < 3; i++) {
        wait_for(CHAIN, times[i]);
        assert_int_equal(in_hbm(0, CHAIN), CHAIN);
        nothing_is_remembered();
        pass(10 * MILLISECOND);
        assert_int_equal(in_hbm(0, CHAIN), CHAIN);
    }
    /* It ends a longer one. */
    wait_for(CHAIN, KVT_FOREVER);
    pass(10 * MILLISECOND);
    assert_int_equal(in_hbm(0, CHAIN), 0);
    wait_for(CHAIN, 0);
    pass(10 * MILLISECOND);
    assert_int_equal(in_hbm(0, CHAIN), CHAIN);
    nothing_is_remembered();
}

/* --- 3. What happens meanwhile ---------------------------------------------------------------- */

static void
the_same_wait_again_has_the_new_time(void **state)
{
    (void)state;
    chain_put(KVT_MEMORY);
    wait_for(CHAIN, SECOND);
    pass(500 * MILLISECOND);
    wait_for(CHAIN, SECOND);
    assert_int_equal(store->phases.wait_count, 1);
    pass(900 * MILLISECOND);
    assert_int_equal(in_hbm(0, CHAIN), 0);
    pass(99 * MILLISECOND);
    assert_int_equal(in_hbm(0, CHAIN), CHAIN);
    nothing_is_remembered();
}

static void
what_was_deleted_or_cleared_does_not_come_back(void **state)
{
    (void)state;
    chain_put(KVT_SYNC);
    wait_for(CHAIN, SECOND);
    pass(10 * MILLISECOND);
    assert_int_equal(kit_delete(store, ns, 3), KVT_OK);
    pass(SECOND);
    assert_int_equal(in_hbm(0, 3), 3);
    assert_int_equal(tiers_of(3), 0);
    assert_int_equal(in_hbm(4, CHAIN - 4), CHAIN - 4);
    wait_for(CHAIN, SECOND);
    pass(10 * MILLISECOND);
    assert_int_equal(kvt_namespace_clear(store, ns), KVT_OK);
    /* Another block of that name is nobody's who waits. */
    assert_int_equal(kit_put(store, ns, 1, 1, BLOCK_BYTES, KVT_MEMORY), KVT_OK);
    pass(SECOND);
    assert_int_equal(tiers_of(0), 0);
    assert_int_equal(tiers_of(1), KVT_TIER_HOST);
    nothing_is_remembered();
}

static void
the_loss_of_the_device_ends_nothing_but_the_copies(void **state)
{
    (void)state;
    chain_put(KVT_SYNC);
    wait_for(CHAIN, SECOND);
    pass(10 * MILLISECOND);
    sim.device.fail_call = atomic_load(&sim.device.call_count) + 1;
    sim.device.fail_status = KVT_E_GPU;
    pass(2 * SECOND);
    assert_int_equal(in_hbm(0, CHAIN), 0);
    bytes_are_right(0, CHAIN);
    nothing_is_remembered();
    wait_for(CHAIN, SECOND);
    nothing_is_remembered();
    sim.device.fail_call = 0;
}

/* The last test of it: teardown closes the store. */
static void
waits_end_with_the_store(void **state)
{
    (void)state;
    chain_put(KVT_SYNC);
    wait_for(CHAIN, KVT_FOREVER);
    device_give_back();
    assert_int_equal(kvt_close(store), KVT_OK);
    sim_store_reopen(&sim);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "phases", "", 0, &ns), KVT_OK);
    nothing_is_remembered();
    device_take();
    chain_put(KVT_SYNC);
    wait_for(CHAIN, SECOND);
    device_give_back();
    kvt_abort(store);
    sim_store_reopen(&sim);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "phases", "", 0, &ns), KVT_OK);
    device_take();
    chain_put(KVT_SYNC);
    wait_for(CHAIN, SECOND);
    pass(10 * MILLISECOND);
}

/* --- 4. Refusals ------------------------------------------------------------------------------ */

static void
what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    assert_int_equal(phase_set(0, 1, KVT_PHASE_IO_WAIT, SECOND), KVT_MISS);
    assert_int_equal(phase_set(0, 1, KVT_PHASE_DECODE, 0), KVT_MISS);
    chain_put(KVT_MEMORY);
    refused(phase_set(0, 1, (enum kvt_phase)0, 0), KVT_E_INVAL, "phase 0");
    refused(phase_set(0, 1, (enum kvt_phase)4, 0), KVT_E_INVAL, "phase 4");
    refused(phase_set(0, 1, KVT_PHASE_DECODE, 1), KVT_E_INVAL, "resume_ns");
    refused(phase_set(0, 1, KVT_PHASE_PREFILL, KVT_FOREVER), KVT_E_INVAL, "resume_ns");
    refused(phase_set(0, 0, KVT_PHASE_PREFILL, 0), KVT_E_INVAL, "count");
    refused(kvt_phase_set(NULL, ns, keys, 1, KVT_PHASE_DECODE, 0), KVT_E_INVAL, "store");
    refused(kvt_phase_set(store, ns, NULL, 1, KVT_PHASE_DECODE, 0), KVT_E_INVAL, "keys");
    nothing_is_remembered();
    assert_int_equal(in_hbm(0, CHAIN), CHAIN);
}

static void
waits_are_bounded(void **state)
{
    kvt_ticket *tickets[TICKETS_MAX];
    struct kvt_prefetch how = {.struct_size = sizeof(how), .tier = KVT_TIER_HBM};

    (void)state;
    for (uint32_t i = 0; i <= WAITS_MAX; i++)
        put(i, NULL, KVT_MEMORY);
    for (uint32_t i = 0; i < WAITS_MAX; i++)
        assert_int_equal(phase_set(i, 1, KVT_PHASE_IO_WAIT, KVT_FOREVER), KVT_OK);
    pass(10 * MILLISECOND);
    refused(phase_set(WAITS_MAX, 1, KVT_PHASE_IO_WAIT, SECOND), KVT_E_BUSY, "chains");
    assert_int_equal(in_hbm(WAITS_MAX, 1), 1);
    /* Of those that wait each can wait anew. */
    assert_int_equal(phase_set(0, 1, KVT_PHASE_IO_WAIT, KVT_FOREVER), KVT_OK);
    pass(10 * MILLISECOND);
    for (uint32_t i = 0; i < TICKETS_MAX - 2 * WAITS_MAX; i++)
        assert_int_equal(kvt_prefetch_submit(store, ns, keys, 1, &how, NULL, &tickets[i]), KVT_OK);
    refused(phase_set(0, 1, KVT_PHASE_IO_WAIT, SECOND), KVT_E_BUSY, "tickets");
    for (uint32_t i = 0; i < TICKETS_MAX - 2 * WAITS_MAX; i++)
        (void)kit_result(tickets[i], 1);
    for (uint32_t i = 0; i < WAITS_MAX; i++)
        assert_int_equal(phase_set(i, 1, KVT_PHASE_DECODE, 0), KVT_OK);
    pass(10 * MILLISECOND);
    assert_int_equal(in_hbm(0, WAITS_MAX), WAITS_MAX);
    nothing_is_remembered();
}

/* A key that stands twice in a chain counts twice. */
static void
what_is_remembered_is_bounded(void **state)
{
    static struct kvt_key many[KVT_BATCH_MAX];

    (void)state;
    put(0, NULL, KVT_MEMORY);
    put(1, NULL, KVT_MEMORY);
    for (uint32_t i = 0; i < KVT_BATCH_MAX; i++)
        many[i] = keys[0];
    assert_int_equal(
        kvt_phase_set(store, ns, many, KVT_BATCH_MAX, KVT_PHASE_IO_WAIT, KVT_FOREVER), KVT_OK);
    pass(10 * MILLISECOND);
    refused(phase_set(1, 1, KVT_PHASE_IO_WAIT, KVT_FOREVER), KVT_E_NOSPC, "blocks");
    assert_int_equal(tiers_of(0), KVT_TIER_HOST);
    assert_int_equal(tiers_of(1), KVT_TIER_HBM);
    assert_int_equal(kvt_phase_set(store, ns, many, KVT_BATCH_MAX, KVT_PHASE_DECODE, 0), KVT_OK);
    pass(100 * MILLISECOND);
    assert_int_equal(in_hbm(0, 2), 2);
    nothing_is_remembered();
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_wait_gives_hbm_up_now_and_has_it_back_in_time),
        TEST(copies_come_back_in_the_order_of_the_chain),
        TEST(reads_ahead_of_time_give_way_to_others),
        TEST(what_has_a_copy_below_is_only_released),
        TEST(it_begins_earlier_when_loading_is_known_to_be_slow),
        TEST(a_wait_without_an_end_lasts_until_the_request_goes_on),
        TEST(a_request_that_goes_on_at_once_finds_its_blocks),
        TEST(blocks_count_as_used_when_the_request_goes_on),
        TEST(what_is_pinned_or_leased_stays_with_all_before_it),
        TEST(what_another_chain_needs_stays),
        TEST(a_key_that_stands_twice_is_one_child),
        TEST(a_wait_that_is_too_short_gives_nothing_up),
        TEST(the_same_wait_again_has_the_new_time),
        TEST(what_was_deleted_or_cleared_does_not_come_back),
        TEST(the_loss_of_the_device_ends_nothing_but_the_copies),
        TEST(waits_end_with_the_store),
        TEST(what_makes_no_sense_is_refused),
        TEST(waits_are_bounded),
        TEST(what_is_remembered_is_bounded),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
