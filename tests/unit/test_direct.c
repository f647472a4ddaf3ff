/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_direct.c - kvt_reserve(), kvt_commit(), kvt_discard() and kvt_map(), in a simulated world.
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
    BLOCK_BYTES = 60000, /* No whole number of pages. */
    SLOT_BYTES = 61440,
    HOST_SLOTS_MAX = 80, /* More than HOST has of them. */
    TICKETS_MAX = 128,
};

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;

static void
open_with(uint64_t nvme_capacity_bytes)
{
    struct kvt_options options = kit_options();

    options.nvme_capacity_bytes = nvme_capacity_bytes;
    options.request_count_max = TICKETS_MAX;
    options.lease_count_max = 2;
    sim_store_open(&sim, &options);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "direct", "", 0, &ns), KVT_OK);
}

static int
setup(void **state)
{
    (void)state;
    open_with(32 << 20);
    return 0;
}

static int
setup_memory(void **state)
{
    (void)state;
    open_with(KVT_CAPACITY_NONE);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    sim_store_close(&sim);
    return 0;
}

static enum kvt_status
reserve(uint64_t number, uint32_t flags, void **address_out, kvt_reservation **reservation_out)
{
    struct payload_key name;
    struct kvt_put put = {.length = BLOCK_BYTES, .flags = flags};

    payload_key_make(&name, number);
    put.key = name.key;
    return kvt_reserve(store, ns, &put, address_out, reservation_out);
}

/* A reservation with the payload of that version in it. */
static kvt_reservation *
written(uint64_t number, uint64_t version, uint32_t flags, void **address_out)
{
    kvt_reservation *reservation;

    assert_int_equal(reserve(number, flags, address_out, &reservation), KVT_OK);
    assert_int_equal((uintptr_t)*address_out % 4096, 0);
    payload_fill(*address_out, BLOCK_BYTES, number, version);
    return reservation;
}

static enum kvt_status
commit(kvt_reservation *reservation, enum kvt_durability durability)
{
    kvt_ticket *ticket;

    assert_int_equal(kvt_commit(reservation, durability, NULL, &ticket), KVT_OK);
    return kit_result(ticket, durability == KVT_MEMORY ? KVT_STAGE_DONE : KVT_STAGE_DURABLE).status;
}

static enum kvt_status
map(uint64_t number, uint64_t timeout_ns, kvt_lease *lease_out, const void **address_out)
{
    struct payload_key name;
    uint64_t length = 0;
    enum kvt_status status;

    payload_key_make(&name, number);
    status = kvt_map(store, ns, &name.key, timeout_ns, lease_out, address_out, &length);
    if (status == KVT_OK)
        assert_int_equal(length, BLOCK_BYTES);
    else
        assert_int_equal(lease_out->id, 0);
    return status;
}

static void
demote(uint64_t number)
{
    struct payload_key name;
    kvt_ticket *ticket;

    payload_key_make(&name, number);
    assert_int_equal(
        kvt_demote_submit(store, ns, &name.key, 1, KVT_TIER_NVME, NULL, &ticket), KVT_OK);
    assert_int_equal(kit_result(ticket, 1).status, KVT_OK);
}

static struct kvt_stats
stats(void)
{
    struct kvt_stats all = {.struct_size = sizeof(all)};

    assert_int_equal(kvt_stats_get(store, &all), KVT_OK);
    return all;
}

static uint64_t
version_of(uint64_t number)
{
    uint64_t version;

    assert_int_equal(kit_get(store, ns, number, &version), KVT_OK);
    return version;
}

/* --- Reserving -------------------------------------------------------------------------------- */

static void
what_was_reserved_becomes_the_block_where_it_lies(void **state)
{
    const void *seen;
    kvt_reservation *reservation;
    kvt_lease lease;
    uint64_t version;
    void *address;

    (void)state;
    reservation = written(1, 1, 0, &address);
    assert_int_equal(kit_get(store, ns, 1, &version), KVT_MISS);
    assert_int_equal(commit(reservation, KVT_SYNC), KVT_OK);
    assert_int_equal(map(1, 0, &lease, &seen), KVT_OK);
    assert_ptr_equal(seen, address);
    kvt_lease_release(store, lease);
    assert_int_equal(version_of(1), 1);
    assert_int_equal(stats().durable_count, 1);
    /* Read back from NVMe its checksum is right. */
    demote(1);
    assert_int_equal(version_of(1), 1);
    assert_int_equal(stats().get_nvme_count, 1);
}

static void
what_was_discarded_leaves_nothing(void **state)
{
    kvt_reservation *reservation;
    uint64_t version;
    void *address;

    (void)state;
    reservation = written(1, 1, 0, &address);
    assert_int_equal(stats().host_used_bytes_now, SLOT_BYTES);
    assert_int_equal(stats().reservation_count_now, 1);
    kvt_discard(reservation);
    kvt_discard(NULL);
    assert_int_equal(stats().host_used_bytes_now, 0);
    assert_int_equal(stats().reservation_count_now, 0);
    assert_int_equal(kit_get(store, ns, 1, &version), KVT_MISS);
}

static void
a_block_that_is_there_stays_or_is_replaced(void **state)
{
    kvt_reservation *reservation;
    uint64_t used_bytes;
    void *address;

    (void)state;
    assert_int_equal(commit(written(1, 1, 0, &address), KVT_MEMORY), KVT_OK);
    used_bytes = stats().host_used_bytes_now;
    reservation = written(1, 2, 0, &address);
    assert_int_equal(commit(reservation, KVT_MEMORY), KVT_EXISTS);
    assert_int_equal(version_of(1), 1);
    assert_int_equal(stats().host_used_bytes_now, used_bytes);
    reservation = written(1, 3, KVT_PUT_REPLACE, &address);
    assert_int_equal(commit(reservation, KVT_SYNC), KVT_OK);
    assert_int_equal(version_of(1), 3);
    assert_int_equal(stats().host_used_bytes_now, used_bytes);
}

static void
of_two_commits_of_one_key_the_first_wins(void **state)
{
    void *address;
    kvt_reservation *first = written(1, 1, 0, &address);
    kvt_reservation *second = written(1, 2, 0, &address);
    kvt_ticket *tickets[2];

    (void)state;
    assert_int_equal(kvt_commit(second, KVT_SYNC, NULL, &tickets[1]), KVT_OK);
    assert_int_equal(kvt_commit(first, KVT_SYNC, NULL, &tickets[0]), KVT_OK);
    assert_int_equal(kit_result(tickets[0], 2).status, KVT_OK);
    assert_int_equal(kit_result(tickets[1], 2).status, KVT_OK);
    assert_int_equal(version_of(1), 2);
    assert_int_equal(stats().host_used_bytes_now, SLOT_BYTES);
}

static void
a_commit_that_is_cancelled_gives_the_memory_back(void **state)
{
    kvt_reservation *reservation;
    kvt_ticket *ticket;
    uint64_t version;
    void *address;

    (void)state;
    reservation = written(1, 1, 0, &address);
    assert_int_equal(kvt_commit(reservation, KVT_SYNC, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_cancel(ticket), KVT_OK);
    assert_int_equal(kit_result(ticket, 2).status, KVT_CANCELLED);
    assert_int_equal(stats().host_used_bytes_now, 0);
    assert_int_equal(kit_get(store, ns, 1, &version), KVT_MISS);
}

static void
a_clear_before_the_commit_does_not_concern_it_and_one_after_does(void **state)
{
    kvt_reservation *reservation;
    kvt_ticket *ticket;
    uint64_t version;
    void *address;

    (void)state;
    reservation = written(1, 1, 0, &address);
    assert_int_equal(kvt_namespace_clear(store, ns), KVT_OK);
    assert_int_equal(commit(reservation, KVT_MEMORY), KVT_OK);
    assert_int_equal(version_of(1), 1);
    reservation = written(2, 1, 0, &address);
    assert_int_equal(kvt_commit(reservation, KVT_MEMORY, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_namespace_clear(store, ns), KVT_OK);
    (void)kit_result(ticket, 1);
    assert_int_equal(kit_get(store, ns, 2, &version), KVT_MISS);
    assert_int_equal(stats().host_used_bytes_now, 0);
}

/* --- Bounds ----------------------------------------------------------------------------------- */

static void
host_can_be_reserved_whole_and_then_nothing_finds_room(void **state)
{
    kvt_reservation *reservations[HOST_SLOTS_MAX];
    enum kvt_status status = KVT_OK;
    uint32_t count = 0;
    void *address;

    (void)state;
    while (count < HOST_SLOTS_MAX && status == KVT_OK) {
        status = reserve(count, 0, &address, &reservations[count]);
        count += status == KVT_OK;
    }
    refused(status, KVT_E_NOSPC, "reserved");
    assert_true(count > HOST_SLOTS_MAX / 2);
    assert_int_equal(kit_put(store, ns, 500, 1, BLOCK_BYTES, KVT_MEMORY), KVT_E_NOSPC);
    kvt_discard(reservations[--count]);
    assert_int_equal(kit_put(store, ns, 500, 1, BLOCK_BYTES, KVT_MEMORY), KVT_OK);
    while (count > 0)
        kvt_discard(reservations[--count]);
}

static void
while_room_is_being_made_the_caller_is_to_ask_again(void **state)
{
    static uint8_t bytes[BLOCK_BYTES];
    struct payload_key names[HOST_SLOTS_MAX];
    struct kvt_put puts[HOST_SLOTS_MAX] = {{.length = 0}};
    kvt_reservation *reservation;
    enum kvt_status status;
    uint32_t busy_count = 0;
    kvt_ticket *ticket;
    void *address;

    (void)state;
    for (uint32_t i = 0; i < HOST_SLOTS_MAX; i++) {
        payload_key_make(&names[i], i);
        puts[i] = (struct kvt_put){.key = names[i].key, .source = bytes, .length = BLOCK_BYTES};
    }
    assert_int_equal(
        kvt_put_submit(store, ns, puts, HOST_SLOTS_MAX, KVT_SYNC, NULL, &ticket), KVT_OK);
    while ((status = reserve(1000, 0, &address, &reservation)) == KVT_E_BUSY) {
        refused(status, KVT_E_BUSY, "room");
        busy_count++;
        sim_store_pass(&sim, 1000 * 1000);
    }
    assert_int_equal(status, KVT_OK);
    assert_true(busy_count > 0);
    /* Those who waited came first. */
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, 1000 * 1000), KVT_OK);
    payload_fill(address, BLOCK_BYTES, 1000, 1);
    assert_int_equal(commit(reservation, KVT_MEMORY), KVT_OK);
    assert_int_equal(version_of(1000), 1);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
}

static void
reservations_are_counted_and_bounded(void **state)
{
    kvt_reservation *reservations[TICKETS_MAX];
    struct payload_key name;
    struct kvt_put put = {.length = 1};
    kvt_reservation *another;
    void *address;

    (void)state;
    payload_key_make(&name, 1);
    put.key = name.key;
    for (uint32_t i = 0; i < TICKETS_MAX; i++)
        assert_int_equal(kvt_reserve(store, ns, &put, &address, &reservations[i]), KVT_OK);
    refused(kvt_reserve(store, ns, &put, &address, &another), KVT_E_BUSY, "reservations");
    assert_null(another);
    refused(kvt_close(store), KVT_E_STATE, "128 reservations");
    for (uint32_t i = 0; i < TICKETS_MAX; i++)
        kvt_discard(reservations[i]);
}

static void
what_makes_no_sense_is_refused(void **state)
{
    struct payload_key name;
    struct kvt_put put = {.length = BLOCK_BYTES};
    kvt_reservation *reservation;
    kvt_ticket *ticket;
    void *address;

    (void)state;
    payload_key_make(&name, 1);
#define RESERVE(word) \
    refused(kvt_reserve(store, ns, &put, &address, &reservation), KVT_E_INVAL, word)
    RESERVE("key");
    put.key = name.key;
    put.source = &put;
    RESERVE("source");
    put.source = NULL;
    put.region.id = 1;
    RESERVE("region");
    put.region.id = 0;
    put.tier = KVT_TIER_HBM;
    RESERVE("tier");
    put.tier = 0;
    put.length = 0;
    RESERVE("length");
    put.length = BLOCK_BYTES;
#undef RESERVE
    refused(kvt_reserve(NULL, ns, &put, &address, &reservation), KVT_E_INVAL, "store");
    refused(kvt_reserve(store, ns, NULL, &address, &reservation), KVT_E_INVAL, "put");
    reservation = (kvt_reservation *)(uintptr_t)1;
    refused(kvt_reserve(store, ns, &put, NULL, &reservation), KVT_E_INVAL, "address_out");
    assert_null(reservation);
    refused(kvt_reserve(store, (kvt_namespace){99}, &put, &address, &reservation), KVT_E_INVAL,
        "namespace");
    assert_int_equal(kvt_reserve(store, ns, &put, &address, &reservation), KVT_OK);
    payload_fill(address, BLOCK_BYTES, 1, 1);
    /* A refused commit leaves the reservation as it was. */
    refused(
        kvt_commit(reservation, (enum kvt_durability)7, NULL, &ticket), KVT_E_INVAL, "durability");
    refused(kvt_commit(reservation, KVT_SYNC, NULL, &ticket), KVT_E_UNSUPPORTED, "NVME");
    refused(kvt_commit(reservation, KVT_MEMORY, NULL, NULL), KVT_E_INVAL, "ticket_out");
    ticket = (kvt_ticket *)(uintptr_t)1;
    refused(kvt_commit(NULL, KVT_MEMORY, NULL, &ticket), KVT_E_INVAL, "reservation");
    assert_null(ticket);
    assert_int_equal(commit(reservation, KVT_MEMORY), KVT_OK);
    assert_int_equal(version_of(1), 1);
}

static void
reservations_that_are_out_at_an_abort_are_freed_with_the_store(void **state)
{
    kvt_reservation *reservations[3];
    uint64_t version;
    void *address;

    (void)state;
    assert_int_equal(commit(written(1, 1, 0, &address), KVT_SYNC), KVT_OK);
    for (uint32_t i = 0; i < 3; i++)
        reservations[i] = written(2 + i, 1, 0, &address);
    kvt_discard(reservations[1]);
    kvt_abort(store);
    assert_int_equal(sim_leaks(sim.world, NULL, 0), 0);
    sim_store_reopen(&sim);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "direct", "", 0, &ns), KVT_OK);
    assert_int_equal(version_of(1), 1);
    assert_int_equal(kit_get(store, ns, 2, &version), KVT_MISS);
}

/* --- Mapping ---------------------------------------------------------------------------------- */

static void
a_block_on_nvme_is_brought_up_and_leased(void **state)
{
    const void *address = NULL;
    kvt_lease lease;
    uint64_t version;

    (void)state;
    assert_int_equal(kit_put(store, ns, 1, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    demote(1);
    assert_int_equal(map(1, 0, &lease, &address), KVT_LATE);
    assert_int_equal(map(1, KVT_FOREVER, &lease, &address), KVT_OK);
    assert_true(payload_is_right(address, BLOCK_BYTES, 1, &version));
    assert_int_equal(stats().lease_count_now, 1);
    /* It is where it is as long as the lease is out. */
    assert_int_equal(kit_put(store, ns, 1, 2, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    assert_true(payload_is_right(address, BLOCK_BYTES, 1, &version));
    assert_int_equal(version, 1);
    kvt_lease_release(store, lease);
    assert_int_equal(stats().lease_count_now, 0);
}

static void
a_map_that_cannot_be_says_why(void **state)
{
    kvt_reservation *reservations[HOST_SLOTS_MAX];
    struct payload_key name;
    const void *address;
    uint32_t count = 0;
    uint64_t length;
    kvt_lease lease, other, bad;
    void *memory;

    (void)state;
    assert_int_equal(map(1, KVT_FOREVER, &lease, &address), KVT_MISS);
    assert_int_equal(kit_put(store, ns, 1, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    demote(1);
    while (count < HOST_SLOTS_MAX && reserve(count, 0, &memory, &reservations[count]) == KVT_OK)
        count++;
    refused(map(1, KVT_FOREVER, &lease, &address), KVT_E_NOSPC, "HOST");
    while (count > 0)
        kvt_discard(reservations[--count]);
    sim_store_pass(&sim, 1000 * 1000);
    /* Of two leases one is out: the other is enough for what is there. */
    assert_int_equal(map(1, KVT_FOREVER, &lease, &address), KVT_OK);
    sim_store_pass(&sim, 1000 * 1000);
    assert_int_equal(map(1, KVT_FOREVER, &other, &address), KVT_OK);
    refused(map(1, KVT_FOREVER, &bad, &address), KVT_E_NOSPC, "leases");
    kvt_lease_release(store, other);
    payload_key_make(&name, 1);
    refused(kvt_map(store, ns, NULL, 0, &other, &address, &length), KVT_E_INVAL, "keys");
    refused(kvt_map(store, ns, &name.key, 0, NULL, &address, &length), KVT_E_INVAL, "lease_out");
    refused(kvt_map(NULL, ns, &name.key, 0, &other, &address, &length), KVT_E_INVAL, "store");
    other.id = 7;
    refused(kvt_map(store, ns, &name.key, 0, &other, NULL, &length), KVT_E_INVAL, "address_out");
    assert_int_equal(other.id, 0);
    kvt_lease_release(store, lease);
}

/* --- Locators --------------------------------------------------------------------------------- */

static void
a_locator_is_good_while_its_lease_is_out(void **state)
{
    struct kvt_locator locator, other;
    const void *first, *second;
    kvt_lease lease, another;
    void *address;

    (void)state;
    assert_int_equal(commit(written(1, 1, 0, &address), KVT_MEMORY), KVT_OK);
    assert_int_equal(commit(written(2, 1, 0, &address), KVT_MEMORY), KVT_OK);
    assert_int_equal(map(1, 0, &lease, &first), KVT_OK);
    assert_int_equal(map(2, 0, &another, &second), KVT_OK);
    assert_int_equal(kvt_lease_export(store, lease, 0, KVT_TIER_HOST, &locator), KVT_OK);
    assert_int_equal(kvt_lease_export(store, another, 0, KVT_TIER_HOST, &other), KVT_OK);
    assert_int_equal(locator.length, BLOCK_BYTES);
    assert_int_equal(other.offset - locator.offset, (uintptr_t)second - (uintptr_t)first);
    assert_int_equal(kvt_locator_check(store, &locator), KVT_OK);
    assert_int_equal(kvt_locator_check(store, &other), KVT_OK);
    kvt_lease_release(store, lease);
    assert_int_equal(kvt_locator_check(store, &locator), KVT_MISS);
    assert_int_equal(kvt_locator_check(store, &other), KVT_OK);
    /* The next lease of the block is another one. */
    sim_store_pass(&sim, 1000 * 1000);
    assert_int_equal(map(1, 0, &lease, &first), KVT_OK);
    assert_int_equal(kvt_locator_check(store, &locator), KVT_MISS);
    kvt_lease_release(store, lease);
    kvt_lease_release(store, another);
}

static void
no_byte_of_a_locator_can_be_changed(void **state)
{
    struct kvt_locator locator;
    const void *seen;
    kvt_lease lease;
    void *address;

    (void)state;
    assert_int_equal(commit(written(1, 1, 0, &address), KVT_MEMORY), KVT_OK);
    assert_int_equal(map(1, 0, &lease, &seen), KVT_OK);
    assert_int_equal(kvt_lease_export(store, lease, 0, KVT_TIER_HOST, &locator), KVT_OK);
    for (size_t i = 0; i < sizeof(locator); i++) {
        struct kvt_locator changed = locator;
        uint8_t byte;

        memcpy(&byte, (uint8_t *)&changed + i, 1);
        byte ^= 1;
        memcpy((uint8_t *)&changed + i, &byte, 1);
        assert_int_equal(kvt_locator_check(store, &changed), KVT_MISS);
    }
    /* Another life of the same store knows none of its leases. */
    store->life[0] ^= 1;
    assert_int_equal(kvt_locator_check(store, &locator), KVT_MISS);
    store->life[0] ^= 1;
    assert_int_equal(kvt_locator_check(store, &locator), KVT_OK);
    refused(kvt_lease_export(store, lease, 1, KVT_TIER_HOST, &locator), KVT_E_INVAL, "index");
    refused(kvt_lease_export(store, lease, 0, KVT_TIER_NVME, &locator), KVT_E_INVAL, "tier");
    assert_int_equal(kvt_lease_export(store, lease, 0, KVT_TIER_HBM, &locator), KVT_MISS);
    refused(kvt_lease_export(store, lease, 0, KVT_TIER_HOST, NULL), KVT_E_INVAL, "locator_out");
    refused(kvt_locator_check(store, NULL), KVT_E_INVAL, "locator");
    refused(kvt_locator_check(NULL, &locator), KVT_E_INVAL, "store");
    kvt_lease_release(store, lease);
    refused(kvt_lease_export(store, lease, 0, KVT_TIER_HOST, &locator), KVT_E_INVAL, "stale");
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define MEMORY_TEST(name) cmocka_unit_test_setup_teardown(name, setup_memory, teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_was_reserved_becomes_the_block_where_it_lies),
        TEST(what_was_discarded_leaves_nothing),
        TEST(a_block_that_is_there_stays_or_is_replaced),
        TEST(of_two_commits_of_one_key_the_first_wins),
        TEST(a_commit_that_is_cancelled_gives_the_memory_back),
        TEST(a_clear_before_the_commit_does_not_concern_it_and_one_after_does),
        MEMORY_TEST(host_can_be_reserved_whole_and_then_nothing_finds_room),
        TEST(while_room_is_being_made_the_caller_is_to_ask_again),
        TEST(reservations_are_counted_and_bounded),
        TEST(reservations_that_are_out_at_an_abort_are_freed_with_the_store),
        MEMORY_TEST(what_makes_no_sense_is_refused),
        TEST(a_block_on_nvme_is_brought_up_and_leased),
        TEST(a_map_that_cannot_be_says_why),
        MEMORY_TEST(a_locator_is_good_while_its_lease_is_out),
        MEMORY_TEST(no_byte_of_a_locator_can_be_changed),
    };
#undef TEST
#undef MEMORY_TEST

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
