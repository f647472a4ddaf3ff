/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_shares.c - a namespace's share of a tier: what others write leaves its blocks alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "hbm_kit.h"
#include "payload.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BLOCK_BYTES = KIT_BLOCK_BYTES_MAX,
    OWN_COUNT = 16,       /* 1 MiB of a HOST of 4 MiB and an NVMe of 8 MiB. */
    OTHER_COUNT = 160,    /* Ten times as much. */
    OTHER_FIRST = 100000, /* Keys of the other namespace. */
    MAP_COUNT = 2500,     /* Entries: more than two looks of a search. */
    FIRST_CHAIN = 900,    /* Of these. */
    TURNS = 100,          /* More than that takes. */
    MIB = 1 << 20,
    HBM_SLOT_BYTES = (HBM_BLOCK_BYTES + 4095) / 4096 * 4096,
};

static kvt_namespace own, other;

static int
setup(void **state)
{
    int result = hbm_setup(state);

    assert_int_equal(kvt_namespace_open(hbm.store, "own", "", 0, &own), KVT_OK);
    assert_int_equal(kvt_namespace_open(hbm.store, "other", "", 0, &other), KVT_OK);
    return result;
}

static unsigned
tiers_in(kvt_namespace ns, uint64_t number)
{
    struct payload_key name;
    uint8_t tiers;

    payload_key_make(&name, number);
    assert_int_equal(kvt_lookup(hbm.store, ns, &name.key, 1, &tiers, NULL, NULL), KVT_OK);
    return tiers;
}

static uint32_t
count_in(kvt_namespace ns, uint64_t first, uint32_t count, unsigned tier)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < count; i++)
        found += (tiers_in(ns, first + i) & tier) != 0;
    return found;
}

static void
share(kvt_namespace ns, uint32_t tier, uint64_t bytes)
{
    assert_int_equal(kvt_namespace_share_set(hbm.store, ns, tier, bytes), KVT_OK);
}

static void
ten_times_its_share_evicts_no_block_of_another_from_host(void **state)
{
    (void)state;
    share(own, KVT_TIER_HOST, OWN_COUNT * BLOCK_BYTES);
    share(other, KVT_TIER_HOST, OWN_COUNT * BLOCK_BYTES);
    for (uint64_t i = 0; i < OWN_COUNT; i++)
        assert_int_equal(kit_put(hbm.store, own, i, 1, BLOCK_BYTES, KVT_MEMORY), KVT_OK);
    for (uint64_t i = 0; i < OTHER_COUNT; i++)
        assert_int_equal(
            kit_put(hbm.store, other, OTHER_FIRST + i, 1, BLOCK_BYTES, KVT_MEMORY), KVT_OK);
    assert_int_equal(count_in(own, 0, OWN_COUNT, KVT_TIER_HOST), OWN_COUNT);
    assert_true(count_in(other, OTHER_FIRST, OTHER_COUNT, KVT_TIER_HOST) < OTHER_COUNT);
    kit_audit(hbm.store);
}

static void
ten_times_its_share_evicts_no_block_of_another_from_nvme(void **state)
{
    (void)state;
    share(own, KVT_TIER_NVME, OWN_COUNT * BLOCK_BYTES);
    for (uint64_t i = 0; i < OWN_COUNT; i++)
        assert_int_equal(kit_put(hbm.store, own, i, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    /* Among them: what is held has to be relocated, again and again. */
    for (uint64_t i = 0; i < 3 * OTHER_COUNT; i++)
        assert_int_equal(
            kit_put(hbm.store, other, OTHER_FIRST + i, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    assert_int_equal(count_in(own, 0, OWN_COUNT, KVT_TIER_NVME), OWN_COUNT);
    for (uint64_t i = 0; i < OWN_COUNT; i++) {
        uint64_t version = 0;

        assert_int_equal(kit_get(hbm.store, own, i, &version), KVT_OK);
        assert_int_equal(version, 1);
    }
    kit_audit(hbm.store);
}

/* The largest share of NVMe that is promised. */
static uint64_t
share_most(void)
{
    uint64_t bytes = 8 * MIB;

    while (kvt_namespace_share_set(hbm.store, own, KVT_TIER_NVME, bytes) != KVT_OK)
        bytes -= BLOCK_BYTES;
    return bytes;
}

static void
pin(kvt_namespace ns, uint64_t number)
{
    struct payload_key name;

    payload_key_make(&name, number);
    assert_int_equal(kvt_pin(hbm.store, ns, &name.key, 1, KVT_FOREVER), KVT_OK);
}

/* As much as can be promised, and more of the same namespace, and pins beside it, spread over the
 * segments: a part of each is held. */
static void
promises_keep(uint64_t more_count)
{
    uint64_t share_count = share_most() / BLOCK_BYTES;
    uint64_t own_count = share_count + more_count;
    uint64_t pin_count, next = OTHER_FIRST;
    struct kvt_options options = {.struct_size = sizeof(options)};

    assert_int_equal(kvt_options_get(hbm.store, &options), KVT_OK);
    pin_count = options.pin_bytes_max / BLOCK_BYTES;
    assert_true(share_count > 0 && pin_count > 0);
    for (uint64_t i = 0; i < own_count || i < pin_count; i++) {
        if (i < own_count)
            assert_int_equal(kit_put(hbm.store, own, i, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
        if (i < pin_count) {
            assert_int_equal(kit_put(hbm.store, other, i, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
            pin(other, i);
        }
        assert_int_equal(kit_put(hbm.store, other, next++, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    }
    for (uint64_t i = 0; i < 3 * OTHER_COUNT; i++)
        assert_int_equal(kit_put(hbm.store, other, next++, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    assert_true(count_in(own, 0, (uint32_t)own_count, KVT_TIER_NVME) >= share_count);
    assert_int_equal(count_in(other, 0, (uint32_t)pin_count, KVT_TIER_NVME), pin_count);
}

static void
what_can_be_promised_of_nvme_leaves_room_for_others(void **state)
{
    (void)state;
    promises_keep(0);
}

static void
so_it_does_when_a_namespace_has_more_than_that(void **state)
{
    (void)state;
    for (uint64_t more_count = 1; more_count <= 5; more_count += 2)
        promises_keep(more_count);
}

static void
blocks_above_the_share_compete(void **state)
{
    (void)state;
    share(own, KVT_TIER_HOST, OWN_COUNT / 4 * BLOCK_BYTES);
    for (uint64_t i = 0; i < OWN_COUNT; i++)
        assert_int_equal(kit_put(hbm.store, own, i, 1, BLOCK_BYTES, KVT_MEMORY), KVT_OK);
    for (uint64_t i = 0; i < OTHER_COUNT; i++)
        assert_int_equal(
            kit_put(hbm.store, other, OTHER_FIRST + i, 1, BLOCK_BYTES, KVT_MEMORY), KVT_OK);
    /* What is on its way to NVMe goes a little later. */
    for (uint64_t i = 0; i < 1000 && count_in(own, 0, OWN_COUNT, KVT_TIER_HOST) > OWN_COUNT / 4;
         i++)
        (void)kit_put(hbm.store, other, 2 * OTHER_FIRST + i, 1, BLOCK_BYTES, KVT_MEMORY);
    assert_int_equal(count_in(own, 0, OWN_COUNT, KVT_TIER_HOST), OWN_COUNT / 4);
    kit_audit(hbm.store);
}

static void
a_share_that_is_set_late_counts_what_is_there(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < OWN_COUNT; i++)
        assert_int_equal(kit_put(hbm.store, own, i, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HBM, KVT_SYNC, 0), KVT_OK);
    share(own, KVT_TIER_HOST, OWN_COUNT * BLOCK_BYTES);
    kit_audit(hbm.store);
    assert_int_equal(kit_delete(hbm.store, own, 3), KVT_OK);
    assert_int_equal(hbm_demote(1, KVT_TIER_NVME), KVT_OK);
    assert_int_equal(kvt_namespace_clear(hbm.store, own), KVT_OK);
    kit_audit(hbm.store);
}

static void
what_cannot_be_promised_is_refused(void **state)
{
    const kvt_namespace none = {77};

    (void)state;
    refused(kvt_namespace_share_set(hbm.store, none, KVT_TIER_HOST, 1), KVT_E_INVAL, "77");
    refused(kvt_namespace_share_set(hbm.store, own, 3, 1), KVT_E_INVAL, "tier");
    refused(
        kvt_namespace_share_set(hbm.store, own, KVT_TIER_HOST, 4 * MIB), KVT_E_NOSPC, "promised");
    refused(
        kvt_namespace_share_set(hbm.store, own, KVT_TIER_NVME, 2 * MIB), KVT_E_NOSPC, "1048576");
    share(own, KVT_TIER_HBM, MIB);
    refused(kvt_namespace_share_set(hbm.store, other, KVT_TIER_HBM, MIB), KVT_E_NOSPC, "other");
    share(own, KVT_TIER_HBM, 0);
    share(other, KVT_TIER_HBM, MIB);
}

/* Its blocks are lost with it, and its id is given to no other. */
static void
first_namespace_lose(void)
{
    struct names_file names;
    struct fs_dir *dir;
    uint8_t uuid[16];

    memcpy(uuid, hbm.store->file.uuid, sizeof(uuid));
    hbm_close();
    assert_int_equal(hbm.env.fs->dir_open(hbm.env.fs_context, hbm.path, 0, &dir), KVT_OK);
    names_init(&names, &hbm.env, uuid);
    assert_int_equal(names_read(&names, dir), KVT_OK);
    assert_int_equal(names.entries[0].id, 1);
    names.count--;
    memmove(names.entries, names.entries + 1, names.count * sizeof(*names.entries));
    assert_int_equal(names_write(&names, dir), KVT_OK);
    names_deinit(&names);
    hbm.env.fs->dir_close(dir);
    hbm_open_again();
}

static void
shares_behind_a_lost_namespace_are_promised_too(void **state)
{
    (void)state;
    first_namespace_lose();
    assert_int_equal(kvt_namespace_open(hbm.store, "own", "", 0, &own), KVT_OK);
    assert_int_equal(kvt_namespace_open(hbm.store, "other", "", 0, &other), KVT_OK);
    assert_int_equal(hbm.ns.id, 4);
    assert_int_equal(hbm_stats().namespace_count_now, 3);
    share(own, KVT_TIER_HBM, MIB);
    refused(kvt_namespace_share_set(hbm.store, other, KVT_TIER_HBM, MIB), KVT_E_NOSPC, "other");
    share(own, KVT_TIER_HBM, 0);
    share(other, KVT_TIER_HBM, MIB);
}

/* A block more than the share: that one competes, the others stay. */
static void
a_block_above_the_share_of_nvme_takes_no_other_along(void **state)
{
    const uint32_t share_count = OWN_COUNT - 4;

    (void)state;
    share(own, KVT_TIER_NVME, share_count * BLOCK_BYTES);
    for (uint64_t i = 0; i < share_count + 1; i++)
        assert_int_equal(kit_put(hbm.store, own, i, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    for (uint64_t i = 0; i < 3 * OTHER_COUNT; i++)
        assert_int_equal(
            kit_put(hbm.store, other, OTHER_FIRST + i, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    assert_true(count_in(own, 0, OWN_COUNT, KVT_TIER_NVME) >= share_count);
    kit_audit(hbm.store);
}

static uint32_t
number_of(kvt_namespace ns, uint64_t number)
{
    struct payload_key name;
    struct block_key key;
    uint32_t found;

    payload_key_make(&name, number);
    assert_true(key_init(&key, hbm.store->file.secret, ns.id, 0, name.key.bytes, name.key.length));
    found =
        residency_find(hbm.store->map, key_fingerprint(hbm.store->fingerprint_seed, &key), &key);
    assert_int_not_equal(found, ENTRY_NONE);
    return found;
}

/* More than half of a segment: to write it again gains too little, whatever is above the share. */
static void
most_of_a_segment_stays_where_it_is(void **state)
{
    const uint32_t count = OWN_COUNT - 4;
    const struct entry *first;
    struct extent was;

    (void)state;
    share(own, KVT_TIER_NVME, (count - 1) * BLOCK_BYTES);
    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(kit_put(hbm.store, own, i, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    first = residency_at(hbm.store->map, number_of(own, 0));
    was = (struct extent){first->segment, first->extent_generation, first->page};
    for (uint64_t i = 0; i < 3 * OTHER_COUNT; i++)
        assert_int_equal(
            kit_put(hbm.store, other, OTHER_FIRST + i, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    for (uint64_t i = 0; i < count; i++) {
        const struct entry *entry = residency_at(hbm.store->map, number_of(own, i));

        assert_int_equal(entry->segment, was.segment);
        assert_int_equal(entry->extent_generation, was.generation);
    }
}

/* The same in HBM, from where some are on their way down at a time. */
static void
a_block_above_the_share_of_hbm_takes_no_other_along(void **state)
{
    const uint32_t share_count = OWN_COUNT - 4;

    (void)state;
    hbm.ns = own;
    share(own, KVT_TIER_HBM, share_count * HBM_SLOT_BYTES);
    for (uint64_t i = 0; i < share_count + 1; i++)
        assert_int_equal(hbm_put(i, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
    hbm.ns = other;
    for (uint64_t i = 0; i < 3 * OTHER_COUNT; i++)
        assert_int_equal(hbm_put(OTHER_FIRST + i, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
    assert_true(count_in(own, 0, OWN_COUNT, KVT_TIER_HBM) >= share_count);
    kit_audit(hbm.store);
}

/* A copy that is down in HOST, and what may be done with the one in HBM. */
struct lowered {
    uint32_t number, asker;
};

static bool
lowered_run(struct kvt_store *store, void *context)
{
    const struct lowered *lowered = context;

    room_lowered(store, POLICY_HBM, lowered->number, lowered->asker);
    return true;
}

static void
what_came_down_leaves_hbm_for_its_own_namespace(void **state)
{
    struct lowered lowered;

    (void)state;
    hbm.ns = own;
    share(own, KVT_TIER_HBM, OWN_COUNT * HBM_SLOT_BYTES);
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HBM, KVT_SYNC, 0), KVT_OK);
    hbm.ns = other;
    /* Above the mark down to which room is made. */
    for (uint64_t i = 0;
         hbm_stats().hbm_used_bytes_now <= hbm.options.hbm_capacity_bytes / 100 * 91; i++)
        assert_int_equal(hbm_put(OTHER_FIRST + i, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
    lowered = (struct lowered){.number = number_of(own, 1), .asker = other.id};
    loop_call(hbm.store, lowered_run, &lowered);
    lowered.asker = 0;
    loop_call(hbm.store, lowered_run, &lowered);
    assert_true((tiers_in(own, 1) & KVT_TIER_HBM) != 0);
    lowered.asker = own.id;
    loop_call(hbm.store, lowered_run, &lowered);
    assert_int_equal(tiers_in(own, 1) & KVT_TIER_HBM, 0);
}

/* For what others put there its blocks come down from HBM, where it has no share: not at the cost
 * of those in HOST, where it has one. */
static void
what_others_put_into_hbm_takes_nothing_from_host(void **state)
{
    (void)state;
    hbm.ns = own;
    share(own, KVT_TIER_HOST, 56 * BLOCK_BYTES);
    for (uint64_t i = 0; i < OWN_COUNT; i++)
        assert_int_equal(kit_put(hbm.store, own, i, 1, BLOCK_BYTES, KVT_MEMORY), KVT_OK);
    for (uint64_t i = OWN_COUNT; i < 2 * OWN_COUNT; i++)
        assert_int_equal(hbm_put(i, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
    for (uint64_t i = 0; i < OTHER_COUNT; i++)
        assert_int_equal(
            kit_put(hbm.store, other, OTHER_FIRST + i, 1, BLOCK_BYTES, KVT_MEMORY), KVT_OK);
    hbm.ns = other;
    for (uint64_t i = 0; i < OTHER_COUNT; i++)
        assert_int_equal(hbm_put(2 * OTHER_FIRST + i, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
    assert_int_equal(count_in(own, OWN_COUNT, OWN_COUNT, KVT_TIER_HBM), 0);
    assert_int_equal(count_in(own, 0, OWN_COUNT, KVT_TIER_HOST), OWN_COUNT);
    kit_audit(hbm.store);
}

/* --- A full map ------------------------------------------------------------------------------- */

/* All in it will be of one namespace, which has less than its share. */
static void
full_map_open(uint64_t entry_count)
{
    hbm_close();
    hbm.options.entry_count_max = entry_count;
    hbm.options.host_capacity_bytes = 16 * MIB;
    hbm_open_again();
    assert_int_equal(kvt_namespace_open(hbm.store, "own", "", 0, &own), KVT_OK);
    assert_int_equal(kvt_namespace_open(hbm.store, "other", "", 0, &other), KVT_OK);
    share(own, KVT_TIER_HOST, 14 * MIB);
}

static void
a_share_keeps_no_room_in_the_map_from_its_owner(void **state)
{
    (void)state;
    full_map_open(OWN_COUNT);
    for (uint64_t i = 0; i < 2 * OWN_COUNT; i++)
        assert_int_equal(kit_put(hbm.store, own, i, 1, BLOCK_BYTES, KVT_MEMORY), KVT_OK);
    assert_int_equal(
        kit_put(hbm.store, other, OTHER_FIRST, 1, BLOCK_BYTES, KVT_MEMORY), KVT_E_NOSPC);
    assert_int_equal(count_in(own, 0, 2 * OWN_COUNT, KVT_TIER_HOST), OWN_COUNT);
    kit_audit(hbm.store);
}

/* Blocks that build on each other, the last of them on none. */
static void
chain_put(kvt_namespace ns, uint64_t first, uint32_t count)
{
    static const uint8_t bytes[PAGE_BYTES];
    struct payload_key parent, name;

    for (uint32_t i = 0; i < count; i++) {
        struct kvt_put put = {.source = bytes, .length = sizeof(bytes), .depth = i};
        kvt_ticket *ticket;

        payload_key_make(&name, first + i);
        put.key = name.key;
        put.parent = i == 0 ? NULL : &parent.key;
        assert_int_equal(kvt_put_submit(hbm.store, ns, &put, 1, KVT_MEMORY, NULL, &ticket), KVT_OK);
        assert_int_equal(kit_result(ticket, 1).status, KVT_OK);
        payload_key_make(&parent, first + i);
    }
}

/* Two look for room by turns in a map that takes more than one look. */
struct searches {
    enum kvt_status others, owners;
};

static bool
searches_run(struct kvt_store *store, void *context)
{
    struct searches *searches = context;
    struct patience others = {0}, owners = {0};

    namespace_at(store, own.id)->map_hand = (struct map_hand){0};
    *searches = (struct searches){KVT_NOT_READY, KVT_NOT_READY};
    for (uint32_t i = 0; i < TURNS; i++) {
        store->map_vain.turn = 0; /* Each search as if in a turn of its own. */
        if (searches->others == KVT_NOT_READY)
            searches->others = map_room_make(store, ENTRY_NONE, other.id, &others);
        store->map_vain.turn = 0;
        if (searches->owners == KVT_NOT_READY && i > 0)
            searches->owners = map_room_make(store, ENTRY_NONE, own.id, &owners);
    }
    return true;
}

static void
searches_by_turns_each_come_to_their_end(void **state)
{
    struct searches searches;

    (void)state;
    full_map_open(MAP_COUNT);
    chain_put(own, 0, FIRST_CHAIN);
    chain_put(own, FIRST_CHAIN, MAP_COUNT - FIRST_CHAIN);
    pin(own, MAP_COUNT - 1);
    loop_call(hbm.store, searches_run, &searches);
    assert_int_equal(searches.others, KVT_OK); /* Where the owner's has made room. */
    assert_int_equal(searches.owners, KVT_OK);
    assert_int_equal(kit_stats(hbm.store).map_evict_count, 1);
    /* Now none may go for anybody. */
    pin(own, FIRST_CHAIN - 2);
    chain_put(own, MAP_COUNT, 1);
    pin(own, MAP_COUNT);
    loop_call(hbm.store, searches_run, &searches);
    assert_int_equal(searches.others, KVT_E_NOSPC);
    assert_int_equal(searches.owners, KVT_E_NOSPC);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, hbm_teardown)
    const struct CMUnitTest tests[] = {
        TEST(ten_times_its_share_evicts_no_block_of_another_from_host),
        TEST(ten_times_its_share_evicts_no_block_of_another_from_nvme),
        TEST(what_can_be_promised_of_nvme_leaves_room_for_others),
        TEST(so_it_does_when_a_namespace_has_more_than_that),
        TEST(blocks_above_the_share_compete),
        TEST(a_share_that_is_set_late_counts_what_is_there),
        TEST(what_cannot_be_promised_is_refused),
        TEST(a_block_above_the_share_of_nvme_takes_no_other_along),
        TEST(most_of_a_segment_stays_where_it_is),
        TEST(a_block_above_the_share_of_hbm_takes_no_other_along),
        TEST(what_came_down_leaves_hbm_for_its_own_namespace),
        TEST(what_others_put_into_hbm_takes_nothing_from_host),
        TEST(a_share_keeps_no_room_in_the_map_from_its_owner),
        TEST(searches_by_turns_each_come_to_their_end),
        TEST(shares_behind_a_lost_namespace_are_promised_too),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
