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
    MIB = 1 << 20,
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

/* What the counts say is what there is. */
static void
counts_check(void)
{
    uint64_t used[SHARE_TIER_COUNT] = {0};
    uint64_t counted[SHARE_TIER_COUNT] = {0};
    uint32_t limit = residency_number_limit(hbm.store->map);

    for (uint32_t id = 1; namespace_at(hbm.store, id) != NULL; id++) {
        for (int tier = 0; tier < SHARE_TIER_COUNT; tier++)
            counted[tier] += namespace_at(hbm.store, id)->used_bytes[tier];
    }
    for (uint32_t number = 0; number < limit; number++) {
        const struct entry *entry = residency_at(hbm.store->map, number);
        uint64_t word = atomic_load(&entry->word);

        if (word_state(word) != ENTRY_RESIDENT)
            continue;
        if ((word_tiers(word) & TIER_HOST) != 0)
            used[SHARE_HOST] += copy_bytes(hbm.store, POLICY_HOST, number);
        if ((word_tiers(word) & TIER_HBM) != 0)
            used[SHARE_HBM] += copy_bytes(hbm.store, POLICY_HBM, number);
        if ((word_tiers(word) & TIER_NVME) != 0)
            used[SHARE_NVME] += (uint64_t)pages_of(entry->stored_length) * PAGE_BYTES;
    }
    for (int tier = 0; tier < SHARE_TIER_COUNT; tier++)
        assert_int_equal(counted[tier], used[tier]);
}

static bool
check_run(struct kvt_store *store, void *context)
{
    (void)store;
    (void)context;
    counts_check();
    return true;
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
    loop_call(hbm.store, check_run, NULL);
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
    loop_call(hbm.store, check_run, NULL);
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
    loop_call(hbm.store, check_run, NULL);
}

static void
a_share_that_is_set_late_counts_what_is_there(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < OWN_COUNT; i++)
        assert_int_equal(kit_put(hbm.store, own, i, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HBM, KVT_SYNC, 0), KVT_OK);
    share(own, KVT_TIER_HOST, OWN_COUNT * BLOCK_BYTES);
    loop_call(hbm.store, check_run, NULL);
    assert_int_equal(kit_delete(hbm.store, own, 3), KVT_OK);
    assert_int_equal(hbm_demote(1, KVT_TIER_NVME), KVT_OK);
    assert_int_equal(kvt_namespace_clear(hbm.store, own), KVT_OK);
    loop_call(hbm.store, check_run, NULL);
}

static void
what_cannot_be_promised_is_refused(void **state)
{
    const kvt_namespace none = {77};

    (void)state;
    refused(kvt_namespace_share_set(hbm.store, none, KVT_TIER_HOST, 1), KVT_E_INVAL, "77");
    refused(kvt_namespace_share_set(hbm.store, own, 3, 1), KVT_E_INVAL, "tier");
    refused(kvt_namespace_share_set(hbm.store, own, KVT_TIER_HOST, 4 * MIB), KVT_E_NOSPC, "90");
    refused(kvt_namespace_share_set(hbm.store, own, KVT_TIER_NVME, 7 * MIB), KVT_E_NOSPC, "75");
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

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, hbm_teardown)
    const struct CMUnitTest tests[] = {
        TEST(ten_times_its_share_evicts_no_block_of_another_from_host),
        TEST(ten_times_its_share_evicts_no_block_of_another_from_nvme),
        TEST(blocks_above_the_share_compete),
        TEST(a_share_that_is_set_late_counts_what_is_there),
        TEST(what_cannot_be_promised_is_refused),
        TEST(shares_behind_a_lost_namespace_are_promised_too),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
