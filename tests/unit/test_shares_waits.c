/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_shares_waits.c - a namespace whose own blocks could go does not wait for room behind one for
 * which all of them are held by its share. In a simulated world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kvtier/direct.h"
#include "kvtier/hints.h"
#include "payload.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BYTES = 4096,
    IN_HOST = 1024,
    OWN_COUNT = 900, /* Within its share. */
    SHARE_COUNT = 920,
    OTHER_FIRST = 100000,
    NEW = 50000,
    FEW = 4,
};

static const uint64_t settle_ns = UINT64_C(10) * 1000 * 1000;

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace own, other;
static uint8_t turn;
static kvt_ticket *others[FEW], *owners;

/* Others' blocks are pinned: HOST, or the map, is full for everybody but the owner of the share;
 * and something is in flight. */
static void
full_open(uint64_t in_host, uint64_t in_map)
{
    struct kvt_options options = kit_options();
    enum kvt_status status = KVT_OK;

    options.host_capacity_bytes = in_host * BYTES;
    options.pin_bytes_max = options.host_capacity_bytes;
    options.host_high_percent = 100;
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    options.entry_count_max = in_map;
    sim_store_open(&sim, &options);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "own", "", 0, &own), KVT_OK);
    assert_int_equal(kvt_namespace_open(store, "other", "", 0, &other), KVT_OK);
    assert_int_equal(
        kvt_namespace_share_set(store, own, KVT_TIER_HOST, (uint64_t)SHARE_COUNT * BYTES), KVT_OK);
    for (uint64_t i = 0; i < OWN_COUNT; i++)
        assert_int_equal(kit_put(store, own, i, 1, BYTES, KVT_MEMORY), KVT_OK);
    for (uint64_t number = OTHER_FIRST; status == KVT_OK; number++) {
        struct payload_key name;

        payload_key_make(&name, number);
        status = kit_put(store, other, number, 1, BYTES, KVT_MEMORY);
        if (status == KVT_OK)
            assert_int_equal(kvt_pin(store, other, &name.key, 1, KVT_FOREVER), KVT_OK);
    }
    assert_int_equal(status, KVT_E_NOSPC);
    turn = work_begin(store, &store->fills_in_flight);
}

static kvt_ticket *
put_submit(kvt_namespace ns, uint64_t number)
{
    static const uint8_t bytes[BYTES];
    struct kvt_put put = {.source = bytes, .length = BYTES};
    struct payload_key name;
    kvt_ticket *ticket;

    payload_key_make(&name, number);
    put.key = name.key;
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, KVT_MEMORY, NULL, &ticket), KVT_OK);
    return ticket;
}

/* Some of the others come, and then the owner. */
static void
all_submit(void)
{
    for (uint64_t i = 0; i < FEW; i++)
        others[i] = put_submit(other, NEW + i);
    owners = put_submit(own, NEW);
}

static bool
is_over(kvt_ticket *ticket)
{
    return kvt_ticket_wait(ticket, KVT_STAGE_DONE, 0) == KVT_OK;
}

/* The owner has its answer while the others wait. */
static void
owner_goes_first(void)
{
    uint32_t over_count = 0;
    bool is_owners_over;

    sim_store_pass(&sim, settle_ns);
    is_owners_over = is_over(owners);
    for (uint32_t i = 0; i < FEW; i++)
        over_count += is_over(others[i]);
    work_end(store, &store->fills_in_flight, turn);
    store->room_changed = true;
    env_wake(&store->env, store->loop_task);
    assert_int_equal(kit_result(owners, KVT_STAGE_DONE).status, KVT_OK);
    for (uint32_t i = 0; i < FEW; i++)
        assert_int_equal(kit_result(others[i], KVT_STAGE_DONE).status, KVT_E_NOSPC);
    assert_true(is_owners_over);
    assert_int_equal(over_count, 0);
    sim_store_close(&sim);
}

static void
who_comes_with_others_has_room_at_once(void **state)
{
    (void)state;
    full_open(IN_HOST, kit_options().entry_count_max);
    all_submit();
    owner_goes_first();
}

static void
who_comes_with_others_to_a_full_map_has_room_at_once(void **state)
{
    (void)state;
    full_open(2 * IN_HOST, IN_HOST);
    all_submit();
    owner_goes_first();
}

/* The owner's blocks are in use when it comes, and no more when it stands behind the others. */
static void
who_waits_behind_others_has_room_when_there_is_some(void **state)
{
    (void)state;
    full_open(IN_HOST, kit_options().entry_count_max);
    for (uint64_t i = 0; i < OWN_COUNT; i++)
        residency_pin(store->map, kit_entry(store, own, i));
    all_submit();
    sim_store_pass(&sim, settle_ns);
    assert_false(is_over(owners));
    for (uint64_t i = 0; i < OWN_COUNT; i++)
        entry_unpin(store, kit_entry(store, own, i));
    env_wake(&store->env, store->loop_task);
    owner_goes_first();
}

/* A reservation is of its owner's room, too. */
static void
who_reserves_waits_behind_no_others(void **state)
{
    struct kvt_put put = {.length = BYTES};
    struct payload_key name;
    kvt_reservation *reservation;
    enum kvt_status status;
    uint32_t over_count = 0;
    void *address;

    (void)state;
    full_open(IN_HOST, kit_options().entry_count_max);
    for (uint64_t i = 0; i < FEW; i++)
        others[i] = put_submit(other, NEW + i);
    sim_store_pass(&sim, settle_ns);
    for (uint32_t i = 0; i < FEW; i++)
        over_count += is_over(others[i]);
    payload_key_make(&name, NEW);
    put.key = name.key;
    status = kvt_reserve(store, own, &put, &address, &reservation);
    if (status == KVT_OK)
        kvt_discard(reservation);
    work_end(store, &store->fills_in_flight, turn);
    store->room_changed = true;
    env_wake(&store->env, store->loop_task);
    for (uint32_t i = 0; i < FEW; i++)
        (void)kit_result(others[i], KVT_STAGE_DONE);
    assert_int_equal(over_count, 0);
    assert_int_equal(status, KVT_OK);
    sim_store_close(&sim);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_comes_with_others_has_room_at_once),
        cmocka_unit_test(who_comes_with_others_to_a_full_map_has_room_at_once),
        cmocka_unit_test(who_waits_behind_others_has_room_when_there_is_some),
        cmocka_unit_test(who_reserves_waits_behind_no_others),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
