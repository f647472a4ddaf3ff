/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hbm_store.c - a store with an HBM tier: where blocks are kept, and how they move.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "hbm_kit.h"
#include "kvtier/kvtier_unstable.h"
#include "payload.h"
#include "stop_on_proof.h"
#include "store_kit.h"

#define WAIT_NS (UINT64_C(20) * 1000000000)

static void
a_block_born_in_hbm_is_read_back_there_and_on_the_host(void **state)
{
    uint32_t tier = 0;

    (void)state;
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
    assert_int_equal(hbm_tiers_of(1), KVT_TIER_HBM);
    assert_int_equal(hbm_get(1, 1, true, &tier), KVT_OK);
    assert_int_equal(tier, KVT_TIER_HBM);
    assert_int_equal(hbm_tiers_of(1), KVT_TIER_HBM);
    /* The host cannot read HBM: the block comes down first, and stays up too. */
    assert_int_equal(hbm_get(1, 1, false, &tier), KVT_OK);
    assert_int_equal(tier, KVT_TIER_HOST);
    assert_int_equal(hbm_tiers_of(1), KVT_TIER_HBM | KVT_TIER_HOST);
    assert_int_equal(hbm_stats().hbm_lower_count, 1);
}

static void
a_block_from_the_device_may_be_kept_in_host_first(void **state)
{
    uint32_t tier = 0;

    (void)state;
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HOST, KVT_MEMORY, 0), KVT_OK);
    assert_int_equal(hbm_tiers_of(1), KVT_TIER_HOST);
    assert_int_equal(hbm_get(1, 1, true, &tier), KVT_OK);
    assert_int_equal(tier, KVT_TIER_HOST);
}

static kvt_ticket *
put_begin(struct kvt_put *put, const struct payload_key *name, enum kvt_durability durability)
{
    kvt_ticket *ticket = NULL;

    put->key = name->key;
    put->length = HBM_BLOCK_BYTES;
    assert_int_equal(kvt_put_submit(hbm.store, hbm.ns, put, 1, durability, NULL, &ticket), KVT_OK);
    return ticket;
}

/* A SYNC put waits for its block, there before, to come down from HBM; meanwhile the block is
 * deleted, and when the wait is over another one of the key is being copied. */
static void
a_put_that_waits_for_a_block_of_hbm_joins_the_next_one_of_its_key(void **state)
{
    static const uint8_t bytes[HBM_BLOCK_BYTES];

    (void)state;
    for (uint32_t i = 0; i < 100; i++) {
        struct kvt_put again = {.source = bytes};
        struct kvt_put next = {.source = hbm_pool_at((i + 1) % HBM_POOL_BLOCKS),
            .region = hbm.region,
            .tier = i % 2 == 0 ? KVT_TIER_HBM : KVT_TIER_HOST};
        struct payload_key name;
        kvt_ticket *tickets[3] = {NULL};

        payload_key_make(&name, i);
        assert_int_equal(hbm_put(i, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
        tickets[0] = put_begin(&again, &name, KVT_SYNC);
        assert_int_equal(
            kvt_delete_submit(hbm.store, hbm.ns, &name.key, 1, NULL, &tickets[1]), KVT_OK);
        tickets[2] = put_begin(&next, &name, KVT_MEMORY);
        assert_int_equal(kvt_ticket_wait(tickets[0], KVT_STAGE_DURABLE, WAIT_NS), KVT_OK);
        assert_int_equal(kvt_ticket_wait(tickets[1], KVT_STAGE_DURABLE, WAIT_NS), KVT_OK);
        assert_int_equal(kvt_ticket_wait(tickets[2], KVT_STAGE_DONE, WAIT_NS), KVT_OK);
        /* No copy has failed. */
        assert_true(kit_result(tickets[0], KVT_STAGE_DURABLE).status >= 0);
        kvt_ticket_free(tickets[1]);
        kvt_ticket_free(tickets[2]);
    }
}

static void
what_was_put_durably_in_hbm_survives(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 20; i++)
        assert_int_equal(hbm_put(i, 1, KVT_TIER_HBM, KVT_SYNC, 0), KVT_OK);
    assert_int_equal(hbm_tiers_of(3), KVT_TIER_HBM | KVT_TIER_HOST | KVT_TIER_NVME);
    assert_int_equal(hbm_put(4, 2, KVT_TIER_HBM, KVT_SYNC, KVT_PUT_REPLACE), KVT_OK);
    assert_int_equal(hbm_get(4, 2, true, NULL), KVT_OK);
    hbm_close();
    hbm_open_again();
    for (uint64_t i = 0; i < 20; i++) {
        assert_int_equal(hbm_tiers_of(i), KVT_TIER_NVME);
        assert_int_equal(hbm_get(i, i == 4 ? 2 : 1, i % 2 == 0, NULL), KVT_OK);
    }
}

static void
a_memory_block_of_hbm_becomes_durable_when_it_is_put_again(void **state)
{
    (void)state;
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
    assert_int_equal(hbm_put(1, 2, KVT_TIER_HBM, KVT_SYNC, 0), KVT_OK);
    assert_int_equal(hbm_tiers_of(1), KVT_TIER_HBM | KVT_TIER_HOST | KVT_TIER_NVME);
    hbm_close();
    hbm_open_again();
    assert_int_equal(hbm_get(1, 1, false, NULL), KVT_OK);
}

static void
a_full_hbm_gives_way_to_host_and_that_to_nvme(void **state)
{
    enum {
        COUNT_ALL = 400
    }; /* 8 MiB: HBM holds 2, HOST 4. */
    unsigned seen = 0;
    struct kvt_stats all;

    (void)state;
    for (uint64_t i = 0; i < COUNT_ALL; i++)
        assert_int_equal(hbm_put(i, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
    for (uint64_t i = 0; i < COUNT_ALL; i++)
        seen |= hbm_tiers_of(i);
    assert_int_equal(seen, KVT_TIER_HBM | KVT_TIER_HOST | KVT_TIER_NVME);
    for (uint64_t i = 0; i < COUNT_ALL; i++) {
        enum kvt_status status = hbm_get(i, 1, i % 3 != 0, NULL);

        assert_true(status == KVT_OK || status == KVT_MISS);
    }
    all = hbm_stats();
    assert_true(all.hbm_lower_count > 0 && all.hbm_evict_count > 0);
    assert_true(all.host_demote_count > 0);
    assert_true(all.hbm_used_bytes_now <= all.hbm_capacity_bytes_now);
}

static void
a_prefetch_brings_a_block_up_and_a_demotion_down(void **state)
{
    (void)state;
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HOST, KVT_SYNC, 0), KVT_OK);
    assert_int_equal(hbm_demote(1, KVT_TIER_NVME), KVT_OK);
    assert_int_equal(hbm_tiers_of(1), KVT_TIER_NVME);
    assert_int_equal(hbm_prefetch(1, KVT_TIER_HOST, 0), KVT_OK);
    assert_int_equal(hbm_tiers_of(1), KVT_TIER_HOST | KVT_TIER_NVME);
    assert_int_equal(hbm_prefetch(1, KVT_TIER_HOST, 0), KVT_EXISTS);
    assert_int_equal(hbm_demote(1, KVT_TIER_NVME), KVT_OK);
    assert_int_equal(hbm_prefetch(1, KVT_TIER_HBM, 1), KVT_LATE);
    assert_int_equal(hbm_prefetch(1, KVT_TIER_HBM, 0), KVT_OK);
    assert_int_equal(hbm_tiers_of(1), KVT_TIER_HBM | KVT_TIER_HOST | KVT_TIER_NVME);
    assert_int_equal(hbm_get(1, 1, true, NULL), KVT_OK);
    assert_int_equal(hbm_demote(1, KVT_TIER_HOST), KVT_OK);
    assert_int_equal(hbm_tiers_of(1), KVT_TIER_HOST | KVT_TIER_NVME);
    assert_int_equal(hbm_prefetch(77, KVT_TIER_HBM, 0), KVT_MISS);
    assert_int_equal(hbm_demote(77, KVT_TIER_HOST), KVT_MISS);
    /* What is only in HBM goes all the way. */
    assert_int_equal(hbm_put(2, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
    assert_int_equal(hbm_demote(2, KVT_TIER_NVME), KVT_OK);
    assert_int_equal(hbm_tiers_of(2), KVT_TIER_NVME);
    assert_int_equal(hbm_get(2, 1, false, NULL), KVT_OK);
}

static void
a_block_that_is_deleted_leaves_its_slots(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 8; i++)
        assert_int_equal(
            hbm_put(i, 1, i % 2 == 0 ? KVT_TIER_HBM : KVT_TIER_HOST, KVT_MEMORY, 0), KVT_OK);
    assert_true(hbm_stats().hbm_used_bytes_now > 0);
    assert_true(hbm_stats().host_used_bytes_now > 0);
    for (uint64_t i = 0; i < 8; i++)
        assert_int_equal(kit_delete(hbm.store, hbm.ns, i), KVT_OK);
    assert_int_equal(hbm_stats().hbm_used_bytes_now, 0);
    assert_int_equal(hbm_stats().host_used_bytes_now, 0);
}

static void
a_leased_copy_is_not_demoted(void **state)
{
    struct payload_key name;
    kvt_lease lease;
    const void *address;
    uint64_t length;

    (void)state;
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HBM, KVT_SYNC, 0), KVT_OK);
    payload_key_make(&name, 1);
    assert_int_equal(kvt_lookup(hbm.store, hbm.ns, &name.key, 1, NULL, NULL, &lease), KVT_OK);
    assert_int_equal(
        kvt_lease_address(hbm.store, lease, 0, KVT_TIER_HBM, &address, &length), KVT_OK);
    assert_int_equal(length, HBM_BLOCK_BYTES);
    assert_int_equal(hbm_demote(1, KVT_TIER_NVME), KVT_NOT_READY);
    assert_int_equal(hbm_tiers_of(1), KVT_TIER_HBM | KVT_TIER_HOST | KVT_TIER_NVME);
    kvt_lease_release(hbm.store, lease);
    assert_int_equal(hbm_demote(1, KVT_TIER_NVME), KVT_OK);
}

static void
a_get_to_the_device_says_that_the_block_came_from_nvme(void **state)
{
    uint32_t tier = 0;

    (void)state;
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HOST, KVT_SYNC, 0), KVT_OK);
    assert_int_equal(hbm_demote(1, KVT_TIER_NVME), KVT_OK);
    assert_int_equal(hbm_get(1, 1, true, &tier), KVT_OK);
    assert_int_equal(tier, KVT_TIER_NVME);
    assert_int_equal(hbm_stats().get_nvme_count, 1);
    assert_int_equal(hbm_stats().get_host_count, 0);
    assert_int_equal(hbm_get(1, 1, true, &tier), KVT_OK);
    assert_int_equal(tier, KVT_TIER_HOST);
}

/* All blocks at once: more than may be on their way to the device at a time. */
static void
transient_gets_to_the_device_leave_no_copy_in_host(void **state)
{
    enum {
        COUNT_ALL = 128
    };
    struct payload_key names[COUNT_ALL];
    struct kvt_get gets[COUNT_ALL] = {0};
    struct kvt_result results[COUNT_ALL];
    kvt_ticket *ticket;

    (void)state;
    for (uint64_t i = 0; i < COUNT_ALL; i++) {
        assert_int_equal(hbm_put(i, 1, KVT_TIER_HOST, KVT_SYNC, 0), KVT_OK);
        assert_int_equal(hbm_demote(i, KVT_TIER_NVME), KVT_OK);
    }
    for (uint32_t i = 0; i < COUNT_ALL; i++) {
        payload_key_make(&names[i], i);
        gets[i] = (struct kvt_get){.key = names[i].key,
            .destination = hbm_pool_at(i),
            .region = hbm.region,
            .capacity = HBM_BLOCK_BYTES,
            .flags = KVT_GET_TRANSIENT};
    }
    assert_int_equal(kvt_get_submit(hbm.store, hbm.ns, gets, COUNT_ALL, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DONE, results, COUNT_ALL), KVT_OK);
    kvt_ticket_free(ticket);
    for (uint32_t i = 0; i < COUNT_ALL; i++) {
        uint8_t bytes[HBM_BLOCK_BYTES];
        uint64_t version = 0;

        assert_int_equal(results[i].status, KVT_OK);
        assert_int_equal(results[i].tier, KVT_TIER_NVME);
        assert_int_equal(hbm_tiers_of(i), KVT_TIER_NVME);
        assert_int_equal(
            kvt_device_read(hbm.store, 0, bytes, hbm_pool_at(i), sizeof(bytes)), KVT_OK);
        assert_true(payload_is_right(bytes, sizeof(bytes), i, &version));
        assert_int_equal(version, 1);
    }
    assert_int_equal(hbm_stats().host_used_bytes_now, 0);
}

static void
memory_of_the_device_is_reached_from_a_region_when_host_has_no_slot(void **state)
{
    enum {
        SIZE = 16 * 4096,
        COUNT_ALL = 400
    };
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HOST, .size = SIZE};
    struct payload_key names[COUNT_ALL];
    struct kvt_key keys[COUNT_ALL];
    static uint8_t plain[SIZE];
    kvt_region host;
    kvt_lease lease;
    uint8_t *memory = aligned_alloc(4096, SIZE);

    (void)state;
    assert_non_null(memory);
    /* HOST is full, and all that is in it leased. */
    for (uint64_t i = 0; i < COUNT_ALL; i++) {
        payload_key_make(&names[i], i);
        keys[i] = names[i].key;
        assert_int_equal(hbm_put(i, 1, KVT_TIER_HOST, KVT_MEMORY, 0), KVT_OK);
    }
    assert_int_equal(kvt_lookup(hbm.store, hbm.ns, keys, COUNT_ALL, NULL, NULL, &lease), KVT_OK);
    refused(kvt_device_write(hbm.store, 0, hbm.pool, plain, SIZE), KVT_E_NOSPC, "HOST");
    refused(kvt_device_read(hbm.store, 0, plain, hbm.pool, SIZE), KVT_E_NOSPC, "HOST");
    about.address = memory;
    assert_int_equal(kvt_region_register(hbm.store, &about, &host), KVT_OK);
    for (uint32_t i = 0; i < SIZE; i++)
        memory[i] = (uint8_t)(i * 7 >> 3);
    assert_int_equal(kvt_device_write(hbm.store, 0, hbm.pool, memory, SIZE), KVT_OK);
    memset(memory, 0, SIZE);
    assert_int_equal(kvt_device_read(hbm.store, 0, memory, hbm.pool, SIZE), KVT_OK);
    for (uint32_t i = 0; i < SIZE; i++)
        assert_int_equal(memory[i], (uint8_t)(i * 7 >> 3));
    kvt_lease_release(hbm.store, lease);
    assert_int_equal(kvt_region_unregister(hbm.store, host), KVT_OK);
    assert_int_equal(kvt_device_read(hbm.store, 0, plain, hbm.pool, SIZE), KVT_OK);
    assert_memory_equal(plain, memory, SIZE);
    free(memory);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, hbm_setup, hbm_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_block_born_in_hbm_is_read_back_there_and_on_the_host),
        TEST(a_block_from_the_device_may_be_kept_in_host_first),
        TEST(what_was_put_durably_in_hbm_survives),
        TEST(a_put_that_waits_for_a_block_of_hbm_joins_the_next_one_of_its_key),
        TEST(a_memory_block_of_hbm_becomes_durable_when_it_is_put_again),
        TEST(a_full_hbm_gives_way_to_host_and_that_to_nvme),
        TEST(a_prefetch_brings_a_block_up_and_a_demotion_down),
        TEST(a_block_that_is_deleted_leaves_its_slots),
        TEST(a_leased_copy_is_not_demoted),
        TEST(a_get_to_the_device_says_that_the_block_came_from_nvme),
        TEST(transient_gets_to_the_device_leave_no_copy_in_host),
        TEST(memory_of_the_device_is_reached_from_a_region_when_host_has_no_slot),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
