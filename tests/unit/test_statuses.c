/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_statuses.c - refusals that the public headers name, of stores that are in the way of the
 * caller: all tickets, leases or regions out, no such tier, no commits, others' shares. Each is
 * made, leaves everything as it was, and ends with its cause.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "failure.h"
#include "kvtier/kvtier_unstable.h"
#include "payload.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_kit.h"

enum {
    TICKETS_MAX = 16,
    LEASES_MAX = 3,
    BLOCK_BYTES = 60000,
    HOST_SLOTS_MAX = 80, /* More than HOST has. */
};

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;
static uint8_t bytes[BLOCK_BYTES];
static struct payload_key names[HOST_SLOTS_MAX];
static struct kvt_key keys[HOST_SLOTS_MAX];

static struct kvt_options
options_small(void)
{
    struct kvt_options options = kit_options();

    options.request_count_max = TICKETS_MAX;
    options.lease_count_max = LEASES_MAX;
    return options;
}

static void
open_with(const struct kvt_options *options)
{
    sim_store_open(&sim, options);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "here", "", 0, &ns), KVT_OK);
    for (uint32_t i = 0; i < HOST_SLOTS_MAX; i++) {
        payload_key_make(&names[i], i);
        keys[i] = names[i].key;
    }
}

static int
setup(void **state)
{
    struct kvt_options options = options_small();

    (void)state;
    options.hbm_capacity_bytes = 2 << 20;
    options.nvme_capacity_bytes = 32 << 20;
    options.pin_bytes_max = options.host_capacity_bytes;
    open_with(&options);
    return 0;
}

/* Neither devices nor files. */
static int
setup_host_only(void **state)
{
    struct kvt_options options = options_small();

    (void)state;
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    open_with(&options);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    sim_store_close(&sim);
    return 0;
}

static const struct kvt_prefetch to_host = {.struct_size = sizeof(to_host), .tier = KVT_TIER_HOST};
static const struct kvt_prefetch to_hbm = {.struct_size = sizeof(to_hbm), .tier = KVT_TIER_HBM};

static struct kvt_put
put_of(uint32_t i)
{
    return (struct kvt_put){.key = keys[i], .source = bytes, .length = BLOCK_BYTES};
}

static enum kvt_status
prefetch(uint32_t i, const struct kvt_prefetch *how)
{
    kvt_ticket *ticket;

    assert_int_equal(kvt_prefetch_submit(store, ns, &keys[i], 1, how, NULL, &ticket), KVT_OK);
    return kit_result(ticket, KVT_STAGE_DONE).status;
}

static enum kvt_status
demote(uint32_t i, uint32_t tier)
{
    kvt_ticket *ticket;

    assert_int_equal(kvt_demote_submit(store, ns, &keys[i], 1, tier, NULL, &ticket), KVT_OK);
    return kit_result(ticket, KVT_STAGE_DONE).status;
}

static kvt_reservation *
reservation_of(uint32_t i)
{
    struct kvt_put put = {.key = keys[i], .length = BLOCK_BYTES};
    kvt_reservation *reservation;
    void *address;

    assert_int_equal(kvt_reserve(store, ns, &put, &address, &reservation), KVT_OK);
    payload_fill(address, BLOCK_BYTES, i, 1);
    return reservation;
}

/* --- Too much of it is out -------------------------------------------------------------------- */

static void
while_all_tickets_are_out_nothing_can_be_submitted(void **state)
{
    struct kvt_get get = {.key = keys[0], .destination = bytes, .capacity = BLOCK_BYTES};
    struct kvt_put put = put_of(1);
    kvt_ticket *tickets[TICKETS_MAX];
    kvt_reservation *reservation;
    kvt_ticket *ticket;
    const void *address;
    uint64_t length;
    kvt_lease lease;

    (void)state;
    get.key = keys[0];
    assert_int_equal(kit_put(store, ns, 0, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    assert_int_equal(demote(0, KVT_TIER_NVME), KVT_OK);
    reservation = reservation_of(2);
    for (uint32_t i = 0; i < TICKETS_MAX; i++)
        assert_int_equal(
            kvt_prefetch_submit(store, ns, &keys[9], 1, &to_host, NULL, &tickets[i]), KVT_OK);
    refused(kvt_put_submit(store, ns, &put, 1, KVT_SYNC, NULL, &ticket), KVT_E_BUSY, "tickets");
    refused(kvt_get_submit(store, ns, &get, 1, NULL, &ticket), KVT_E_BUSY, "tickets");
    refused(kvt_delete_submit(store, ns, keys, 1, NULL, &ticket), KVT_E_BUSY, "tickets");
    refused(
        kvt_prefetch_submit(store, ns, keys, 1, &to_host, NULL, &ticket), KVT_E_BUSY, "tickets");
    refused(
        kvt_demote_submit(store, ns, keys, 1, KVT_TIER_NVME, NULL, &ticket), KVT_E_BUSY, "tickets");
    refused(kvt_commit(reservation, KVT_SYNC, NULL, &ticket), KVT_E_BUSY, "tickets");
    refused(kvt_map(store, ns, &keys[0], KVT_FOREVER, &lease, &address, &length), KVT_E_BUSY,
        "tickets");
    assert_int_equal(lease.id, 0);
    for (uint32_t i = 0; i < TICKETS_MAX; i++)
        assert_int_equal(kit_result(tickets[i], KVT_STAGE_DONE).status, KVT_MISS);
    assert_int_equal(kvt_map(store, ns, &keys[0], KVT_FOREVER, &lease, &address, &length), KVT_OK);
    kvt_lease_release(store, lease);
    assert_int_equal(kvt_commit(reservation, KVT_SYNC, NULL, &ticket), KVT_OK);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DURABLE).status, KVT_OK);
    assert_int_equal(kit_get(store, ns, 2, &length), KVT_OK);
}

static void
while_all_leases_are_out_nothing_can_be_leased(void **state)
{
    const struct kvt_match_component component = {.policy = KVT_MATCH_ALL};
    kvt_lease leases[LEASES_MAX], lease;
    const void *address;
    uint64_t length;
    uint32_t usable;

    (void)state;
    assert_int_equal(kit_put(store, ns, 0, 1, BLOCK_BYTES, KVT_MEMORY), KVT_OK);
    for (uint32_t i = 0; i < LEASES_MAX; i++)
        assert_int_equal(kvt_lookup(store, ns, keys, 1, NULL, NULL, &leases[i]), KVT_OK);
    refused(kvt_lookup(store, ns, keys, 1, NULL, NULL, &lease), KVT_E_NOSPC, "leases");
    refused(kvt_touch(store, ns, keys, 1), KVT_E_NOSPC, "leases");
    refused(kvt_lookup_prefetch(store, ns, keys, 1, &to_host, NULL, NULL, &lease, NULL),
        KVT_E_NOSPC, "leases");
    refused(
        kvt_match(store, ns, keys, 1, &component, 1, &usable, NULL, &lease), KVT_E_NOSPC, "leases");
    refused(kvt_map(store, ns, keys, 0, &lease, &address, &length), KVT_E_NOSPC, "leases");
    assert_int_equal(lease.id, 0);
    /* Without one a lookup goes on. */
    assert_int_equal(kvt_lookup(store, ns, keys, 1, NULL, NULL, NULL), KVT_OK);
    for (uint32_t i = 0; i < LEASES_MAX; i++)
        kvt_lease_release(store, leases[i]);
    sim_store_loop(&sim);
    assert_int_equal(kvt_touch(store, ns, keys, 1), KVT_OK);
}

static void
regions_are_bounded(void **state)
{
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HBM, .size = 4096};
    static kvt_region regions[KVT_REGIONS_MAX];
    kvt_region another;

    (void)state;
    about.address = bytes;
    refused(kvt_region_register(store, &about, &another), KVT_E_INVAL, "no memory of the emulated");
    assert_int_equal(kvt_device_alloc(store, 0, about.size, &about.address), KVT_OK);
    for (uint32_t i = 0; i < KVT_REGIONS_MAX - 1; i++)
        assert_int_equal(kvt_region_register(store, &about, &regions[i]), KVT_OK);
    refused(kvt_region_register(store, &about, &another), KVT_E_NOSPC, "regions");
    for (uint32_t i = 0; i < KVT_REGIONS_MAX - 1; i++)
        assert_int_equal(kvt_region_unregister(store, regions[i]), KVT_OK);
    assert_int_equal(kvt_region_register(store, &about, &another), KVT_OK);
    assert_int_equal(kvt_region_unregister(store, another), KVT_OK);
    kvt_device_free(store, 0, about.address, about.size);
}

/* --- No room ---------------------------------------------------------------------------------- */

static void
host_that_is_leased_whole_takes_nothing(void **state)
{
    uint32_t count = 0;
    const void *address;
    uint64_t length;
    kvt_lease lease, other;
    enum kvt_status status;

    (void)state;
    assert_int_equal(kit_put(store, ns, 0, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    assert_int_equal(demote(0, KVT_TIER_NVME), KVT_OK);
    while (count < 60) {
        count++;
        assert_int_equal(kit_put(store, ns, count, 1, BLOCK_BYTES, KVT_MEMORY), KVT_OK);
    }
    assert_int_equal(kvt_lookup(store, ns, keys + 1, 60, NULL, NULL, &lease), KVT_OK);
    /* The rest, which is not a block's yet. */
    do {
        count++;
        status = kit_put(store, ns, count, 1, BLOCK_BYTES, KVT_MEMORY);
        if (status == KVT_OK)
            assert_int_equal(kvt_pin(store, ns, &keys[count], 1, KVT_FOREVER), KVT_OK);
    } while (status == KVT_OK);
    assert_int_equal(status, KVT_E_NOSPC);
    assert_int_equal(kit_put(store, ns, count, 1, BLOCK_BYTES, KVT_SYNC), KVT_E_NOSPC);
    assert_int_equal(kvt_flush(store), KVT_OK); /* That was told, and was never there. */
    assert_int_equal(prefetch(0, &to_host), KVT_E_NOSPC);
    refused(
        kvt_map(store, ns, &keys[0], KVT_FOREVER, &other, &address, &length), KVT_E_NOSPC, "HOST");
    assert_int_equal(demote(1, KVT_TIER_NVME), KVT_NOT_READY);
    kvt_lease_release(store, lease);
    assert_int_equal(prefetch(0, &to_host), KVT_OK);
}

/* It is only in HBM, and can go nowhere. */
static void
a_demotion_into_host_that_is_reserved_whole_keeps_the_copy(void **state)
{
    kvt_reservation *held[HOST_SLOTS_MAX];
    struct kvt_put put = {.length = BLOCK_BYTES};
    enum kvt_status status = KVT_OK;
    uint32_t count = 0;
    void *address;
    uint8_t tiers;

    (void)state;
    assert_int_equal(demote(0, KVT_TIER_HOST), KVT_MISS);
    assert_int_equal(kit_put(store, ns, 0, 1, BLOCK_BYTES, KVT_MEMORY), KVT_OK);
    assert_int_equal(prefetch(0, &to_hbm), KVT_OK);
    while (count < TICKETS_MAX) {
        put.key = keys[1 + count];
        assert_int_equal(kvt_reserve(store, ns, &put, &address, &held[count]), KVT_OK);
        count++;
    }
    for (uint32_t i = 20; status == KVT_OK && i < HOST_SLOTS_MAX; i++) {
        status = kit_put(store, ns, i, 1, BLOCK_BYTES, KVT_MEMORY);
        if (status == KVT_OK)
            assert_int_equal(kvt_pin(store, ns, &keys[i], 1, KVT_FOREVER), KVT_OK);
    }
    assert_int_equal(status, KVT_E_NOSPC);
    assert_int_equal(kvt_lookup(store, ns, keys, 1, &tiers, NULL, NULL), KVT_OK);
    assert_int_equal(tiers, KVT_TIER_HBM);
    assert_int_equal(demote(0, KVT_TIER_HOST), KVT_E_NOSPC);
    assert_int_equal(kvt_lookup(store, ns, keys, 1, &tiers, NULL, NULL), KVT_OK);
    assert_int_equal(tiers, KVT_TIER_HBM);
    while (count > 0)
        kvt_discard(held[--count]);
    assert_int_equal(demote(0, KVT_TIER_HOST), KVT_OK);
}

static void
what_others_have_by_their_share_is_not_reserved(void **state)
{
    struct kvt_put put = {.length = BLOCK_BYTES};
    kvt_reservation *reservation;
    enum kvt_status status = KVT_OK;
    struct kvt_stats stats = {.struct_size = sizeof(stats)};
    kvt_namespace guest;
    kvt_reservation *held[HOST_SLOTS_MAX];
    uint32_t count = 0, mine = 0;
    void *address;

    (void)state;
    assert_int_equal(kvt_stats_get(store, &stats), KVT_OK);
    assert_int_equal(kvt_namespace_open(store, "guest", "", 0, &guest), KVT_OK);
    assert_int_equal(
        kvt_namespace_share_set(store, ns, KVT_TIER_HOST, stats.host_capacity_bytes_now / 100 * 90),
        KVT_OK);
    /* All of HOST is full, nearly all of it by right. */
    for (uint32_t i = 0; i < 55; i++)
        assert_int_equal(kit_put(store, ns, i, 1, BLOCK_BYTES, KVT_MEMORY), KVT_OK);
    while (status == KVT_OK && count < HOST_SLOTS_MAX) {
        put.key = keys[count];
        status = kvt_reserve(store, guest, &put, &address, &held[count]);
        if (status == KVT_E_BUSY) {
            sim_store_pass(&sim, 1000 * 1000);
            status = KVT_OK;
        } else if (status == KVT_OK) {
            count++;
        }
    }
    refused(status, KVT_E_NOSPC, "share");
    assert_in_range(count, 1, 20);
    for (uint32_t i = 0; i < 55; i++) {
        uint8_t tiers = 0;

        assert_int_equal(kvt_lookup(store, ns, &keys[i], 1, &tiers, NULL, NULL), KVT_OK);
        mine += (tiers & KVT_TIER_HOST) != 0;
    }
    assert_int_equal(mine, 55);
    /* Without the share the room is anybody's. */
    assert_int_equal(kvt_namespace_share_set(store, ns, KVT_TIER_HOST, 0), KVT_OK);
    put.key = keys[70];
    while ((status = kvt_reserve(store, guest, &put, &address, &reservation)) == KVT_E_BUSY)
        sim_store_pass(&sim, 1000 * 1000);
    assert_int_equal(status, KVT_OK);
    kvt_discard(reservation);
    while (count > 0)
        kvt_discard(held[--count]);
}

/* --- No such tier ----------------------------------------------------------------------------- */

static void
a_store_without_a_tier_says_so(void **state)
{
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HOST, .size = 4096};
    struct kvt_put put = put_of(1);
    struct kvt_event event;
    uint64_t cursor = 0;
    kvt_region region;
    kvt_ticket *ticket;
    uint32_t count;

    (void)state;
    about.address = (void *)(uintptr_t)4096;
    refused(kvt_put_submit(store, ns, &put, 1, KVT_SYNC, NULL, &ticket), KVT_E_UNSUPPORTED, "NVME");
    refused(
        kvt_put_submit(store, ns, &put, 1, KVT_RELAXED, NULL, &ticket), KVT_E_UNSUPPORTED, "NVME");
    put.tier = KVT_TIER_HBM;
    refused(
        kvt_put_submit(store, ns, &put, 1, KVT_MEMORY, NULL, &ticket), KVT_E_UNSUPPORTED, "HBM");
    refused(
        kvt_prefetch_submit(store, ns, keys, 1, &to_hbm, NULL, &ticket), KVT_E_UNSUPPORTED, "HBM");
    refused(kvt_demote_submit(store, ns, keys, 1, KVT_TIER_NVME, NULL, &ticket), KVT_E_UNSUPPORTED,
        "NVME");
    refused(kvt_namespace_share_set(store, ns, KVT_TIER_HBM, 4096), KVT_E_UNSUPPORTED, "tier");
    refused(kvt_namespace_share_set(store, ns, KVT_TIER_NVME, 4096), KVT_E_UNSUPPORTED, "tier");
    refused(kvt_region_register(store, &about, &region), KVT_E_UNSUPPORTED, "device");
    refused(kvt_events_read(store, &cursor, &event, 1, &count), KVT_E_UNSUPPORTED, "event");
    refused(kvt_device_alloc(store, 0, 4096, &about.address), KVT_E_INVAL, "device 0");
    refused(kvt_device_read(store, 0, bytes, bytes, 64), KVT_E_INVAL, "device 0");
    refused(kvt_device_write(store, 0, bytes, bytes, 64), KVT_E_INVAL, "device 0");
}

/* --- No commits ------------------------------------------------------------------------------- */

/* A commit fails for good: what is in memory goes on. */
static void
a_store_that_takes_no_commits_says_so(void **state)
{
    struct sim_rule rule = {.ops = SIM_COMMIT, .effect = SIM_EIO, .nth = 1, .sticky = true};
    struct kvt_put put = put_of(3);
    kvt_reservation *reservation;
    kvt_ticket *ticket;
    uint32_t health;
    uint64_t version;

    (void)state;
    assert_int_equal(kit_put(store, ns, 0, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    reservation = reservation_of(2);
    sim_rule_add(sim.world, &rule);
    assert_int_equal(kit_put(store, ns, 1, 1, BLOCK_BYTES, KVT_SYNC), KVT_E_META);
    assert_int_equal(kvt_health(store, &health), KVT_OK);
    assert_true((health & KVT_HEALTH_META_READONLY) != 0);
    refused(kvt_put_submit(store, ns, &put, 1, KVT_SYNC, NULL, &ticket), KVT_E_READONLY, "commit");
    refused(
        kvt_put_submit(store, ns, &put, 1, KVT_RELAXED, NULL, &ticket), KVT_E_READONLY, "commit");
    refused(kvt_commit(reservation, KVT_RELAXED, NULL, &ticket), KVT_E_READONLY, "commit");
    refused(kvt_commit(reservation, KVT_SYNC, NULL, &ticket), KVT_E_READONLY, "commit");
    refused(kvt_delete_submit(store, ns, keys, 1, NULL, &ticket), KVT_E_READONLY, "commit");
    refused(kvt_demote_submit(store, ns, keys, 1, KVT_TIER_NVME, NULL, &ticket), KVT_E_READONLY,
        "commit");
    /* The reservation is as before. */
    assert_int_equal(kvt_commit(reservation, KVT_MEMORY, NULL, &ticket), KVT_OK);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    assert_int_equal(kit_get(store, ns, 2, &version), KVT_OK);
    assert_int_equal(kit_put(store, ns, 3, 1, BLOCK_BYTES, KVT_MEMORY), KVT_OK);
    assert_int_equal(kit_get(store, ns, 0, &version), KVT_OK);
    sim_rules_clear(sim.world);
    assert_int_equal(kvt_close(store), KVT_E_IO);
    sim_store_reopen(&sim);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "here", "", 0, &ns), KVT_OK);
    assert_int_equal(kit_get(store, ns, 0, &version), KVT_OK);
}

/* What was promised for later, and could not be kept. */
static void
a_flush_says_what_could_not_be_made_durable(void **state)
{
    static const struct sim_rule rules[2] = {
        {.ops = SIM_WRITE, .effect = SIM_EIO, .file = "data.", .nth = 1, .sticky = true},
        {.ops = SIM_COMMIT, .effect = SIM_EIO, .nth = 1, .sticky = true}};
    static const enum kvt_status wanted[2] = {KVT_E_IO, KVT_E_META};

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct kvt_put put = put_of(i);
        kvt_ticket *ticket;

        sim_rule_add(sim.world, &rules[i]);
        assert_int_equal(kvt_put_submit(store, ns, &put, 1, KVT_RELAXED, NULL, &ticket), KVT_OK);
        refused(kvt_flush(store), wanted[i], i == 0 ? "could not" : "commit");
        assert_int_equal(kit_result(ticket, KVT_STAGE_DURABLE).status, wanted[i]);
        sim_rules_clear(sim.world);
        /* Not again. */
        assert_int_equal(kvt_close(store), KVT_OK);
        sim_store_reopen(&sim);
        store = sim.store;
        assert_int_equal(kvt_namespace_open(store, "here", "", 0, &ns), KVT_OK);
    }
}

/* Its ticket may be all that knew. */
static void
a_flush_says_once_what_failed_before_it(void **state)
{
    static const struct sim_rule rule = {
        .ops = SIM_WRITE, .effect = SIM_EIO, .file = "data.", .nth = 1, .sticky = true};

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        sim_rule_add(sim.world, &rule);
        assert_int_equal(kit_put(store, ns, i, 1, BLOCK_BYTES, KVT_SYNC), KVT_E_IO);
        sim_rules_clear(sim.world);
        refused(kvt_flush(store), KVT_E_IO, "1 puts");
        assert_int_equal(kvt_flush(store), KVT_OK);
    }
    assert_int_equal(kvt_close(store), KVT_OK);
    sim_store_reopen(&sim);
    store = sim.store;
}

/* It stays where it is, and goes when it can be written. */
static void
a_demotion_that_cannot_be_written_keeps_the_copy(void **state)
{
    struct sim_rule rule = {
        .ops = SIM_WRITE, .effect = SIM_EIO, .file = "data.", .nth = 1, .sticky = true};
    uint8_t tiers;

    (void)state;
    assert_int_equal(kit_put(store, ns, 0, 1, BLOCK_BYTES, KVT_MEMORY), KVT_OK);
    sim_rule_add(sim.world, &rule);
    assert_int_equal(demote(0, KVT_TIER_NVME), KVT_E_IO);
    sim_rules_clear(sim.world);
    assert_int_equal(kvt_lookup(store, ns, keys, 1, &tiers, NULL, NULL), KVT_OK);
    assert_int_equal(tiers, KVT_TIER_HOST);
    assert_int_equal(demote(0, KVT_TIER_NVME), KVT_OK);
    assert_int_equal(kvt_lookup(store, ns, keys, 1, &tiers, NULL, NULL), KVT_OK);
    assert_int_equal(tiers, KVT_TIER_NVME);
}

static void
names_that_cannot_be_written_are_refused(void **state)
{
    static const enum kvt_status statuses[2] = {KVT_E_IO, KVT_E_NOSPC};
    struct sim_rule rule = {.ops = SIM_WRITE, .file = "NAMES", .nth = 1};
    kvt_namespace other;
    uint64_t version;

    (void)state;
    assert_int_equal(kit_put(store, ns, 0, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    for (uint32_t i = 0; i < 2; i++) {
        rule.effect = i == 0 ? SIM_EIO : SIM_ENOSPC;
        sim_rule_add(sim.world, &rule);
        refused(kvt_namespace_open(store, "other", "", 0, &other), statuses[i], "NAMES");
        sim_rules_clear(sim.world);
        sim_rule_add(sim.world, &rule);
        refused(kvt_namespace_clear(store, ns), statuses[i], "NAMES");
        sim_rules_clear(sim.world);
    }
    assert_int_equal(kit_get(store, ns, 0, &version), KVT_OK);
    assert_int_equal(kvt_namespace_open(store, "other", "", 0, &other), KVT_OK);
    assert_int_equal(kvt_namespace_clear(store, ns), KVT_OK);
    assert_int_equal(kit_get(store, ns, 0, &version), KVT_MISS);
}

static void
reopen(void)
{
    assert_int_equal(kvt_close(store), KVT_OK);
    sim_store_reopen(&sim);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "here", "", 0, &ns), KVT_OK);
}

/* The write arrives, and is not known to have: it must not count for what is put after it. */
static void
a_refused_clear_takes_nothing_that_is_put_later(void **state)
{
    struct sim_rule rule = {.ops = SIM_SYNC, .effect = SIM_EIO, .file = "NAMES", .nth = 1};
    uint32_t health;
    uint64_t version;

    (void)state;
    for (uint32_t round = 0; round < 8; round++) {
        sim_rule_add(sim.world, &rule);
        refused(kvt_namespace_clear(store, ns), KVT_E_IO, "NAMES");
        sim_rules_clear(sim.world);
        assert_int_equal(kvt_health(store, &health), KVT_OK);
        assert_int_equal(health & KVT_HEALTH_META_READONLY, 0);
        assert_int_equal(kit_put(store, ns, round, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
        reopen();
        for (uint32_t i = 0; i <= round; i++)
            assert_int_equal(kit_get(store, ns, i, &version), KVT_OK);
    }
}

/* The next life can read one copy of NAMES only. */
static void
reopen_without(const char *copy)
{
    const struct sim_rule fails = {
        .ops = SIM_READ, .effect = SIM_EIO, .file = copy, .nth = 1, .sticky = true};

    sim_rule_add(sim.world, &fails);
    reopen();
    sim_rules_clear(sim.world);
}

/* A clear that is made is in both copies; one that only one could take is none. */
static void
a_clear_is_in_either_copy_of_names_or_in_none(void **state)
{
    const struct sim_rule second = {.ops = SIM_WRITE, .effect = SIM_EIO, .file = "NAMES", .nth = 2};
    uint32_t health;
    uint64_t version;

    (void)state;
    for (uint32_t round = 0; round < 4; round++) {
        const char *copy = round % 2 == 0 ? "NAMES.a" : "NAMES.b";

        assert_int_equal(kit_put(store, ns, 0, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
        sim_rule_add(sim.world, &second);
        refused(kvt_namespace_clear(store, ns), KVT_E_IO, "one copy of NAMES.a");
        sim_rules_clear(sim.world);
        assert_int_equal(kvt_health(store, &health), KVT_OK);
        assert_int_equal(health & KVT_HEALTH_META_READONLY, 0);
        reopen_without(copy);
        assert_int_equal(kit_get(store, ns, 0, &version), KVT_OK);
        assert_int_equal(kvt_namespace_clear(store, ns), KVT_OK);
        reopen_without(copy);
        assert_int_equal(kit_get(store, ns, 0, &version), KVT_MISS);
    }
}

/* The world's files, but that the next sync, which goes through, says that there was no memory. */
static struct {
    struct fs_ops ops;
    const struct fs_ops *inner;
    bool is_armed;
} short_sync;

static enum kvt_status
sync_short_of_memory(struct fs_file *file)
{
    enum kvt_status status = short_sync.inner->sync(file);

    if (status != KVT_OK || !short_sync.is_armed)
        return status;
    short_sync.is_armed = false;
    return failure_errno(ENOMEM, "sync", "NAMES");
}

/* It is not what a clear says that found no memory for what it was to write. */
static void
a_clear_that_ran_out_of_memory_when_it_had_written_takes_nothing_later(void **state)
{
    uint64_t version;

    (void)state;
    short_sync.inner = sim.env.fs;
    short_sync.ops = *sim.env.fs;
    short_sync.ops.sync = sync_short_of_memory;
    sim.env.fs = &short_sync.ops;
    reopen();
    short_sync.is_armed = true;
    refused(kvt_namespace_clear(store, ns), KVT_E_IO, "NAMES");
    assert_false(short_sync.is_armed);
    assert_int_equal(kit_put(store, ns, 0, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    reopen();
    assert_int_equal(kit_get(store, ns, 0, &version), KVT_OK);
}

static void
a_clear_that_can_neither_be_made_nor_undone_ends_the_commits(void **state)
{
    struct sim_rule rule = {
        .ops = SIM_SYNC, .effect = SIM_EIO, .file = "NAMES", .nth = 1, .sticky = true};
    struct kvt_put put = put_of(1);
    kvt_ticket *ticket;
    uint32_t health;
    uint64_t version;

    (void)state;
    assert_int_equal(kit_put(store, ns, 0, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    sim_rule_add(sim.world, &rule);
    refused(kvt_namespace_clear(store, ns), KVT_E_IO, "NAMES");
    assert_int_equal(kvt_health(store, &health), KVT_OK);
    assert_true((health & KVT_HEALTH_META_READONLY) != 0);
    refused(kvt_put_submit(store, ns, &put, 1, KVT_SYNC, NULL, &ticket), KVT_E_READONLY, "commit");
    assert_int_equal(kit_get(store, ns, 0, &version), KVT_OK);
    sim_rules_clear(sim.world);
}

static void
a_store_that_was_opened_to_be_read_says_so(void **state)
{
    struct kvt_put put = put_of(3);
    kvt_reservation *reservation;
    kvt_namespace other;
    kvt_ticket *ticket;
    uint64_t version;

    (void)state;
    assert_int_equal(kit_put(store, ns, 0, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    assert_int_equal(kvt_close(store), KVT_OK);
    sim.options.flags = KVT_OPEN_READ_ONLY;
    sim_store_reopen(&sim);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "here", "", 0, &ns), KVT_OK);
    refused(kvt_namespace_open(store, "new", "", 0, &other), KVT_MISS, "new");
    refused(kvt_namespace_clear(store, ns), KVT_E_READONLY, "reading");
    refused(kvt_put_submit(store, ns, &put, 1, KVT_SYNC, NULL, &ticket), KVT_E_READONLY, "reading");
    refused(kvt_delete_submit(store, ns, keys, 1, NULL, &ticket), KVT_E_READONLY, "reading");
    refused(kvt_demote_submit(store, ns, keys, 1, KVT_TIER_NVME, NULL, &ticket), KVT_E_READONLY,
        "reading");
    reservation = reservation_of(2);
    refused(kvt_commit(reservation, KVT_SYNC, NULL, &ticket), KVT_E_READONLY, "reading");
    kvt_discard(reservation);
    assert_int_equal(kit_get(store, ns, 0, &version), KVT_OK);
    assert_int_equal(version, 1);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(while_all_tickets_are_out_nothing_can_be_submitted),
        TEST(while_all_leases_are_out_nothing_can_be_leased),
        TEST(regions_are_bounded),
        TEST(host_that_is_leased_whole_takes_nothing),
        TEST(a_demotion_into_host_that_is_reserved_whole_keeps_the_copy),
        TEST(what_others_have_by_their_share_is_not_reserved),
        cmocka_unit_test_setup_teardown(a_store_without_a_tier_says_so, setup_host_only, teardown),
        TEST(a_store_that_takes_no_commits_says_so),
        TEST(a_flush_says_what_could_not_be_made_durable),
        TEST(a_flush_says_once_what_failed_before_it),
        TEST(a_demotion_that_cannot_be_written_keeps_the_copy),
        TEST(names_that_cannot_be_written_are_refused),
        TEST(a_refused_clear_takes_nothing_that_is_put_later),
        TEST(a_clear_is_in_either_copy_of_names_or_in_none),
        TEST(a_clear_that_ran_out_of_memory_when_it_had_written_takes_nothing_later),
        TEST(a_clear_that_can_neither_be_made_nor_undone_ends_the_commits),
        TEST(a_store_that_was_opened_to_be_read_says_so),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
