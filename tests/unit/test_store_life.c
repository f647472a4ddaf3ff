/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_store_life.c - what kvtier.h promises about blocks over several lives of a store: what was
 * acknowledged is there, what was deleted is not, what is leased holds still. Lives end by an
 * abort, which leaves on disk what a SIGKILL would; each state is also read without its index.
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "env_host_internal.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BLOCKS = 24,
    PRESSURE = 160, /* Blocks of 64 KiB: two and a half times HOST. */
    LARGE_BYTES = 16 << 20,
};

struct fixture {
    char dir[KIT_PATH_BYTES];
    char path[KIT_PATH_BYTES + 16];
    struct kvt_options options;
    struct kvt_env env;
    kvt_store *store;
    kvt_namespace ns;
};

static int
setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    if (fixture == NULL)
        return -1;
    kit_dir_make(fixture->dir);
    snprintf(fixture->path, sizeof(fixture->path), "%s/store", fixture->dir);
    kvt_env_host(&fixture->env);
    fixture->options = kit_options();
    fixture->options.nvme_capacity_bytes = 64 << 20;
    *state = fixture;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *fixture = *state;

    kit_dir_remove(fixture->dir);
    free(fixture);
    return 0;
}

static void
life_begin(struct fixture *fixture, uint32_t flags)
{
    struct kvt_error error;

    fixture->options.flags = flags;
    if (kvt_open_env(fixture->path, &fixture->options, &fixture->env, &fixture->store) != KVT_OK) {
        kvt_last_error(&error);
        fail_msg("%s: %s", kvt_status_name(error.status), error.text);
    }
    assert_int_equal(kvt_namespace_open(fixture->store, "space", "model", 5, &fixture->ns), KVT_OK);
}

/* Ended as by SIGKILL, and begun again. */
static void
life_again(struct fixture *fixture, uint32_t flags)
{
    kvt_abort(fixture->store);
    life_begin(fixture, flags);
}

static void
expect_block(const struct fixture *fixture, uint64_t key, uint64_t wanted)
{
    uint64_t version = 0;
    enum kvt_status status = kit_get(fixture->store, fixture->ns, key, &version);

    if (status != (wanted == 0 ? KVT_MISS : KVT_OK) || version != wanted)
        fail_msg("block %u: %s with version %u, wanted %u", (unsigned)key, kvt_status_name(status),
            (unsigned)version, (unsigned)wanted);
}

static void
put(const struct fixture *fixture, uint64_t key, uint64_t version, enum kvt_durability durability)
{
    assert_int_equal(
        kit_put(fixture->store, fixture->ns, key, version, 3000 + key * 911, durability), KVT_OK);
}

/* --- Durability ------------------------------------------------------------------------------- */

static void
a_sync_put_survives(void **state)
{
    struct fixture *fixture = *state;
    struct kvt_stats stats = {.struct_size = sizeof(stats)};

    life_begin(fixture, 0);
    for (uint64_t key = 0; key < BLOCKS; key++)
        put(fixture, key, 1, KVT_SYNC);
    assert_int_equal(kvt_stats_get(fixture->store, &stats), KVT_OK);
    assert_int_equal(stats.put_visible_ns.count, BLOCKS);
    assert_int_equal(stats.put_durable_ns.count, BLOCKS);
    life_again(fixture, 0);
    for (uint64_t key = 0; key < BLOCKS; key++)
        expect_block(fixture, key, 1);
    life_again(fixture, KVT_OPEN_REBUILD);
    for (uint64_t key = 0; key < BLOCKS; key++)
        expect_block(fixture, key, 1);
    assert_int_equal(kvt_close(fixture->store), KVT_OK);
}

static void
a_flush_makes_relaxed_puts_survive(void **state)
{
    struct fixture *fixture = *state;
    struct payload_key key;
    kvt_ticket *tickets[BLOCKS];
    static uint8_t bytes[BLOCKS][3000];

    fixture->options.relaxed_interval_ns = UINT64_C(3600) * 1000000000;
    life_begin(fixture, 0);
    for (uint64_t i = 0; i < BLOCKS; i++) {
        payload_key_make(&key, i);
        payload_fill(bytes[i], sizeof(bytes[i]), i, 1);
        struct kvt_put one = {.key = key.key, .source = bytes[i], .length = sizeof(bytes[i])};
        assert_int_equal(
            kvt_put_submit(fixture->store, fixture->ns, &one, 1, KVT_RELAXED, NULL, &tickets[i]),
            KVT_OK);
    }
    assert_int_equal(kvt_flush(fixture->store), KVT_OK);
    for (uint64_t i = 0; i < BLOCKS; i++) {
        assert_int_equal(kvt_ticket_wait(tickets[i], KVT_STAGE_DURABLE, 0), KVT_OK);
        kvt_ticket_free(tickets[i]);
    }
    life_again(fixture, 0);
    for (uint64_t i = 0; i < BLOCKS; i++)
        expect_block(fixture, i, 1);
    assert_int_equal(kvt_close(fixture->store), KVT_OK);
}

static void
a_replaced_block_keeps_its_last_version(void **state)
{
    struct fixture *fixture = *state;

    life_begin(fixture, 0);
    for (uint64_t version = 1; version <= 5; version++) {
        for (uint64_t key = 0; key < 4; key++)
            put(fixture, key, version, KVT_SYNC);
        if (version == 3)
            life_again(fixture, 0);
    }
    for (uint32_t life = 0; life < 3; life++) {
        life_again(fixture, life == 2 ? KVT_OPEN_REBUILD : 0);
        for (uint64_t key = 0; key < 4; key++)
            expect_block(fixture, key, 5);
    }
    assert_int_equal(kvt_close(fixture->store), KVT_OK);
}

static void
a_deleted_block_stays_away(void **state)
{
    struct fixture *fixture = *state;

    life_begin(fixture, 0);
    for (uint64_t key = 0; key < BLOCKS; key++)
        put(fixture, key, 1, KVT_SYNC);
    for (uint64_t key = 0; key < BLOCKS; key += 2)
        assert_int_equal(kit_delete(fixture->store, fixture->ns, key), KVT_OK);
    for (uint32_t life = 0; life < 3; life++) {
        life_again(fixture, life == 2 ? KVT_OPEN_REBUILD : 0);
        for (uint64_t key = 0; key < BLOCKS; key++)
            expect_block(fixture, key, key % 2);
    }
    assert_int_equal(kvt_close(fixture->store), KVT_OK);
}

/* A put that comes after the delete is newer than it, in every life. */
static void
a_block_that_was_deleted_can_be_put_again(void **state)
{
    struct fixture *fixture = *state;

    life_begin(fixture, 0);
    for (uint64_t version = 1; version <= 3; version++) {
        put(fixture, 1, version, KVT_SYNC);
        if (version < 3)
            assert_int_equal(kit_delete(fixture->store, fixture->ns, 1), KVT_OK);
        life_again(fixture, version % 2 == 0 ? KVT_OPEN_REBUILD : 0);
        expect_block(fixture, 1, version < 3 ? 0 : 3);
    }
    life_again(fixture, KVT_OPEN_REBUILD);
    expect_block(fixture, 1, 3);
    assert_int_equal(kvt_close(fixture->store), KVT_OK);
}

static void
a_cleared_namespace_stays_empty(void **state)
{
    struct fixture *fixture = *state;

    life_begin(fixture, 0);
    for (uint64_t key = 0; key < BLOCKS; key++)
        put(fixture, key, 1, KVT_SYNC);
    assert_int_equal(kvt_namespace_clear(fixture->store, fixture->ns), KVT_OK);
    put(fixture, 1, 2, KVT_SYNC);
    for (uint32_t life = 0; life < 3; life++) {
        life_again(fixture, life == 2 ? KVT_OPEN_REBUILD : 0);
        for (uint64_t key = 0; key < BLOCKS; key++)
            expect_block(fixture, key, key == 1 ? 2 : 0);
    }
    assert_int_equal(kvt_close(fixture->store), KVT_OK);
}

/* --- Leases ----------------------------------------------------------------------------------- */

/* Put block 0, lease it, press everything else out of HOST, and judge what the lease holds. */
static void
lease_under_pressure(struct fixture *fixture, enum kvt_durability durability)
{
    struct payload_key key;
    kvt_lease lease = {0};
    uint32_t leading = 0;
    uint8_t tiers = 0;
    const void *address = NULL;
    const void *address_then = NULL;
    uint64_t length = 0, version = 0;

    life_begin(fixture, 0);
    put(fixture, 0, 1, durability);
    payload_key_make(&key, 0);
    assert_int_equal(
        kvt_lookup(fixture->store, fixture->ns, &key.key, 1, &tiers, &leading, &lease), KVT_OK);
    assert_int_equal(leading, 1);
    assert_int_equal(
        kvt_lease_address(fixture->store, lease, 0, KVT_TIER_HOST, &address, &length), KVT_OK);
    for (uint64_t i = 1; i <= PRESSURE; i++)
        assert_int_equal(
            kit_put(fixture->store, fixture->ns, i, 1, KIT_BLOCK_BYTES_MAX, durability), KVT_OK);
    assert_true(payload_is_right(address, length, 0, &version));
    assert_int_equal(
        kvt_lease_address(fixture->store, lease, 0, KVT_TIER_HOST, &address_then, &length), KVT_OK);
    assert_ptr_equal(address, address_then);
    assert_int_equal(
        kvt_lookup(fixture->store, fixture->ns, &key.key, 1, &tiers, NULL, NULL), KVT_OK);
    assert_true((tiers & KVT_TIER_HOST) != 0);
    kvt_lease_release(fixture->store, lease);
}

static void
a_leased_block_holds_still_while_others_are_evicted(void **state)
{
    struct fixture *fixture = *state;
    struct payload_key key;
    uint8_t tiers = 0;

    fixture->options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    fixture->options.policy = KVT_POLICY_LRU; /* The default draws its victims: others may stay. */
    lease_under_pressure(fixture, KVT_MEMORY);
    /* Without the lease it goes the way of the others. */
    for (uint64_t i = 1; i <= PRESSURE; i++)
        assert_int_equal(
            kit_put(fixture->store, fixture->ns, PRESSURE + i, 1, KIT_BLOCK_BYTES_MAX, KVT_MEMORY),
            KVT_OK);
    payload_key_make(&key, 0);
    assert_int_equal(
        kvt_lookup(fixture->store, fixture->ns, &key.key, 1, &tiers, NULL, NULL), KVT_OK);
    assert_int_equal(tiers, 0);
    assert_int_equal(kvt_close(fixture->store), KVT_OK);
}

static void
a_leased_copy_in_host_stays_although_nvme_has_another(void **state)
{
    struct fixture *fixture = *state;

    lease_under_pressure(fixture, KVT_SYNC);
    for (uint64_t i = 0; i <= PRESSURE; i++)
        expect_block(fixture, i, 1);
    assert_int_equal(kvt_close(fixture->store), KVT_OK);
}

static void
a_leased_block_that_is_deleted_keeps_its_bytes(void **state)
{
    struct fixture *fixture = *state;
    struct payload_key key;
    kvt_lease lease = {0};
    const void *address = NULL;
    uint64_t length = 0, version = 0;

    life_begin(fixture, 0);
    put(fixture, 0, 1, KVT_SYNC);
    payload_key_make(&key, 0);
    assert_int_equal(
        kvt_lookup(fixture->store, fixture->ns, &key.key, 1, NULL, NULL, &lease), KVT_OK);
    assert_int_equal(
        kvt_lease_address(fixture->store, lease, 0, KVT_TIER_HOST, &address, &length), KVT_OK);
    assert_int_equal(kit_delete(fixture->store, fixture->ns, 0), KVT_OK);
    for (uint64_t i = 1; i <= PRESSURE; i++)
        assert_int_equal(
            kit_put(fixture->store, fixture->ns, i, 1, KIT_BLOCK_BYTES_MAX, KVT_SYNC), KVT_OK);
    assert_true(payload_is_right(address, length, 0, &version));
    kvt_lease_release(fixture->store, lease);
    expect_block(fixture, 0, 0);
    assert_int_equal(kvt_close(fixture->store), KVT_OK);
}

/* --- While a block is filled ------------------------------------------------------------------ */

/* The fill of a large block takes milliseconds; the answer to who comes second waits for it. */
static void
a_put_of_a_block_that_is_being_filled_waits_for_it(void **state)
{
    struct fixture *fixture = *state;
    struct payload_key key;
    struct kvt_submit submit = {0};
    struct kvt_completion done[2];
    kvt_ticket *tickets[2];
    uint8_t *bytes = malloc(LARGE_BYTES);

    assert_non_null(bytes);
    memset(bytes, 7, LARGE_BYTES);
    fixture->options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    fixture->options.host_capacity_bytes = 4 * LARGE_BYTES;
    fixture->options.segment_bytes = 4 * LARGE_BYTES;
    fixture->options.block_bytes_max = LARGE_BYTES;
    life_begin(fixture, 0);
    assert_int_equal(kvt_queue_create(fixture->store, &submit.queue), KVT_OK);
    for (uint64_t i = 0; i < 3; i++) {
        payload_key_make(&key, i);
        const struct kvt_put one = {.key = key.key, .source = bytes, .length = LARGE_BYTES};
        for (uint32_t k = 0; k < 2; k++)
            assert_int_equal(kvt_put_submit(fixture->store, fixture->ns, &one, 1, KVT_MEMORY,
                                 &submit, &tickets[k]),
                KVT_OK);
        for (uint32_t k = 0; k < 2; k++) {
            uint32_t count = 0;
            struct kvt_result result = {0};

            assert_int_equal(
                kvt_queue_poll(submit.queue, &done[k], 1, KVT_FOREVER, &count), KVT_OK);
            assert_ptr_equal(done[k].ticket, tickets[k]);
            assert_int_equal(kvt_ticket_results(tickets[k], KVT_STAGE_DONE, &result, 1), KVT_OK);
            assert_int_equal(result.status, k == 0 ? KVT_OK : KVT_EXISTS);
        }
        kvt_ticket_free(tickets[0]);
        kvt_ticket_free(tickets[1]);
    }
    assert_int_equal(kvt_queue_destroy(submit.queue), KVT_OK);
    assert_int_equal(kvt_close(fixture->store), KVT_OK);
    free(bytes);
}

/* The loop has the processor when the one who destroys its queue sleeps. */
static struct {
    struct sched_ops ops;
    atomic_bool is_late, is_posting, is_destroying, has_slept;
} turn;

static void
post_late(void *context, int signal)
{
    const struct timespec tick = {.tv_nsec = 1000 * 1000};

    sched_host_ops.signal_post(context, signal);
    if (!turn.is_late)
        return;
    turn.is_posting = true;
    for (uint32_t i = 0; i < 2000 && !turn.has_slept; i++)
        nanosleep(&tick, NULL);
}

static void
sleep_noted(void *context, struct gate *gate, uint32_t seen, uint64_t until_ns)
{
    if (turn.is_destroying)
        turn.has_slept = true;
    sched_host_ops.gate_wait(context, gate, seen, until_ns);
}

static void
who_destroys_a_queue_sleeps_while_the_loop_is_at_it(void **state)
{
    struct fixture *fixture = *state;
    struct kvt_submit submit = {0};
    struct kvt_completion done;
    struct payload_key name;
    struct kvt_get get = {.capacity = 1};
    kvt_ticket *ticket;
    uint32_t count = 0;
    uint8_t byte;

    turn.ops = sched_host_ops;
    turn.ops.signal_post = post_late;
    turn.ops.gate_wait = sleep_noted;
    fixture->env.sched = &turn.ops;
    life_begin(fixture, 0);
    assert_int_equal(kvt_queue_create(fixture->store, &submit.queue), KVT_OK);
    payload_key_make(&name, 1);
    get.key = name.key;
    get.destination = &byte;
    turn.is_late = true;
    assert_int_equal(
        kvt_get_submit(fixture->store, fixture->ns, &get, 1, &submit, &ticket), KVT_OK);
    while (!turn.is_posting)
        sched_yield();
    assert_int_equal(kvt_queue_poll(submit.queue, &done, 1, 0, &count), KVT_OK);
    turn.is_destroying = true;
    kvt_ticket_free(ticket);
    assert_int_equal(kvt_queue_destroy(submit.queue), KVT_OK);
    turn.is_destroying = turn.is_late = false;
    assert_true(turn.has_slept);
    assert_int_equal(kvt_close(fixture->store), KVT_OK);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_sync_put_survives, setup, teardown),
        cmocka_unit_test_setup_teardown(a_flush_makes_relaxed_puts_survive, setup, teardown),
        cmocka_unit_test_setup_teardown(a_replaced_block_keeps_its_last_version, setup, teardown),
        cmocka_unit_test_setup_teardown(a_deleted_block_stays_away, setup, teardown),
        cmocka_unit_test_setup_teardown(a_block_that_was_deleted_can_be_put_again, setup, teardown),
        cmocka_unit_test_setup_teardown(a_cleared_namespace_stays_empty, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_leased_block_holds_still_while_others_are_evicted, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_leased_copy_in_host_stays_although_nvme_has_another, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_leased_block_that_is_deleted_keeps_its_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_put_of_a_block_that_is_being_filled_waits_for_it, setup, teardown),
        cmocka_unit_test_setup_teardown(
            who_destroys_a_queue_sleeps_while_the_loop_is_at_it, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
