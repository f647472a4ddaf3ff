/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_holds.c - streams of the caller that wait for gets before any copy of these is queued, and
 * everything that lets them go on. Statuses and word are held against each other on threads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "hbm_kit.h"
#include "hold_kit.h"
#include "stop_on_proof.h"
#include "store_internal.h"

static struct batch batch, second;

/* --- 1. In place ------------------------------------------------------------------------------ */

static void
kernels_behind_a_hold_find_what_was_on_nvme(void **state)
{
    static const uint32_t flags[] = {
        0, KVT_GET_TRANSIENT, KVT_GET_BY_PART, KVT_GET_BY_PART | KVT_GET_TRANSIENT};

    (void)state;
    for (uint32_t round = 0; round < sizeof(flags) / sizeof(flags[0]); round++) {
        uint32_t part = (flags[round] & KVT_GET_BY_PART) != 0 ? HOLD_PARTS - 1 : KVT_PART_ALL;

        for (uint64_t i = 0; i < HOLD_COUNT && round > 0; i++)
            hold_block_demote(i);
        batch_init(&batch, 0, flags[round]);
        batch_submit(&batch, NULL);
        /* Nothing is queued that the stream could wait for. */
        assert_int_equal(
            kvt_ticket_stream_wait(batch.ticket, part, 0, bench.stream), KVT_NOT_READY);
        batch_hold(&batch, bench.stream, 0);
        assert_int_equal(batch.looks[0].status[0], KVT_NOT_READY);
        looks_check_none(&batch);
        batch_run(&batch);
        looks_check(&batch, 0, HOLD_COUNT, KVT_OK);
        batch_end(&batch);
    }
}

static void
a_ticket_that_is_done_holds_nobody(void **state)
{
    uint32_t call_count;

    (void)state;
    batch_init(&batch, 0, 0);
    payload_key_make(&batch.names[HOLD_COUNT - 1], HOLD_ABSENT);
    batch.gets[HOLD_COUNT - 1].key = batch.names[HOLD_COUNT - 1].key;
    batch_submit(&batch, NULL);
    assert_int_equal(kvt_ticket_wait(batch.ticket, 1, KVT_FOREVER), KVT_OK);
    batch_hold(&batch, bench.stream, 0);
    call_count = atomic_load(&bench.sim.device.call_count);
    for (uint32_t i = 0; i + 1 < HOLD_COUNT; i++)
        assert_int_equal(batch.looks[i].status[0], KVT_OK);
    assert_int_equal(batch.looks[HOLD_COUNT - 1].status[0], KVT_MISS);
    batch_run(&batch);
    looks_check(&batch, 0, HOLD_COUNT - 1, KVT_OK);
    looks_check(&batch, HOLD_COUNT - 1, HOLD_COUNT, KVT_MISS);
    batch_end(&batch);
    /* And nothing was asked of the device for it. */
    assert_true(call_count > 0);
    batch_init(&second, 0, 0);
    batch_submit(&second, NULL);
    assert_int_equal(kvt_ticket_wait(second.ticket, 1, KVT_FOREVER), KVT_OK);
    sim_store_pass(&bench.sim, 100 * MS);
    call_count = atomic_load(&bench.sim.device.call_count);
    assert_int_equal(kvt_hold_submit(second.ticket, 0, bench.stream, 0, &second.hold), KVT_OK);
    assert_int_equal(atomic_load(&bench.sim.device.call_count), call_count);
    batch_end(&second);
}

/* Freed behind the launches: the stream waits as it was told to. */
static void
a_hold_may_be_freed_behind_the_launches(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 3; round++) {
        struct kvt_submit submit = behind_the_gate();

        batch_init(&batch, 0, 0);
        batch_submit(&batch, &submit);
        batch_hold(&batch, bench.stream, 0);
        batch_end(&batch);
        sim_store_pass(&bench.sim, 100 * MS);
        looks_check_none(&batch);
        atomic_store(bench.gate, 1);
        batch_run(&batch);
        looks_check(&batch, 0, HOLD_COUNT, KVT_OK);
        atomic_store(bench.gate, 0);
    }
}

/* --- 2. What else lets a stream go on --------------------------------------------------------- */

static void
each_get_has_its_own_status(void **state)
{
    (void)state;
    batch_init(&batch, 0, 0);
    payload_key_make(&batch.names[1], HOLD_ABSENT);
    batch.gets[1].key = batch.names[1].key;
    batch.gets[2].capacity = HOLD_BLOCK_BYTES - 1;
    batch_submit(&batch, NULL);
    batch_hold(&batch, bench.stream, 0);
    batch_run(&batch);
    looks_check(&batch, 0, 1, KVT_OK);
    looks_check(&batch, 1, 2, KVT_MISS);
    looks_check(&batch, 2, 3, KVT_E_INVAL);
    looks_check(&batch, 3, HOLD_COUNT, KVT_OK);
    batch_end(&batch);
}

static void
a_cancelled_ticket_lets_its_stream_go_on(void **state)
{
    struct kvt_submit submit;

    (void)state;
    submit = behind_the_gate();
    batch_init(&batch, 0, KVT_GET_BY_PART);
    batch_submit(&batch, &submit);
    batch_hold(&batch, bench.stream, 0);
    sim_store_pass(&bench.sim, 10 * MS);
    looks_check_none(&batch);
    assert_int_equal(kvt_ticket_cancel(batch.ticket), KVT_OK);
    batch_run(&batch);
    looks_check(&batch, 0, HOLD_COUNT, KVT_CANCELLED);
    batch_end(&batch);
    atomic_store(bench.gate, 1);
}

static void
a_deadline_lets_the_stream_go_on_without_what_is_late(void **state)
{
    uint64_t deadline_ns;

    (void)state;
    /* One block is in HOST; the others come late. */
    batch_init(&batch, 0, 0);
    assert_int_equal(
        kvt_get_submit(bench.sim.store, bench.ns, batch.gets, 1, NULL, &batch.ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(batch.ticket, 1, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(batch.ticket);
    reads_stall();
    deadline_ns = sim_now(bench.sim.world) + 50 * MS;
    batch_submit(&batch, NULL);
    batch_hold(&batch, bench.stream, deadline_ns);
    sim_store_pass(&bench.sim, 49 * MS);
    looks_check_none(&batch);
    batch_run(&batch);
    assert_in_range(sim_now(bench.sim.world), deadline_ns, deadline_ns + 5 * MS);
    looks_check(&batch, 0, 1, KVT_OK);
    looks_check(&batch, 1, HOLD_COUNT, KVT_LATE);
    /* The gets go on without it, and it stays as it is. */
    assert_int_equal(kvt_ticket_wait(batch.ticket, 1, KVT_FOREVER), KVT_OK);
    for (uint32_t i = 0; i < HOLD_COUNT; i++)
        assert_int_equal(batch.looks[i].status[0], i == 0 ? KVT_OK : KVT_LATE);
    batch_end(&batch);
}

static void
a_deadline_that_has_passed_is_no_wait(void **state)
{
    struct kvt_submit submit;
    uint64_t begin_ns;

    (void)state;
    submit = behind_the_gate();
    batch_init(&batch, 0, 0);
    batch_submit(&batch, &submit);
    begin_ns = sim_now(bench.sim.world);
    batch_hold(&batch, bench.stream, 1);
    batch_run(&batch);
    assert_true(sim_now(bench.sim.world) - begin_ns < 10 * MS);
    looks_check(&batch, 0, HOLD_COUNT, KVT_LATE);
    batch_end(&batch);
    atomic_store(bench.gate, 1);
}

/* Of two streams one waits for the blocks, the other until its time has come; the second hold of a
 * stream that waits already is another. */
static void
holds_of_one_ticket_end_by_themselves(void **state)
{
    kvt_hold *third;

    (void)state;
    reads_stall();
    batch_init(&batch, 0, 0);
    batch_submit(&batch, NULL);
    second = batch;
    batch_hold(&batch, bench.stream, 0);
    batch_hold(&second, bench.other, sim_now(bench.sim.world) + 30 * MS);
    assert_int_equal(kvt_hold_submit(batch.ticket, 0, bench.stream, 0, &third), KVT_OK);
    batch_run(&second);
    looks_check(&second, 0, HOLD_COUNT, KVT_LATE);
    looks_check_none(&batch);
    assert_int_equal(kvt_hold_statuses(third)[0], KVT_NOT_READY);
    assert_int_equal(kvt_hold_free(second.hold), KVT_OK);
    batch_run(&batch);
    looks_check(&batch, 0, HOLD_COUNT, KVT_OK);
    for (uint32_t i = 0; i < HOLD_COUNT; i++)
        assert_int_equal(kvt_hold_statuses(third)[i], KVT_OK);
    assert_int_equal(kvt_hold_free(third), KVT_OK);
    batch_end(&batch);
}

static void
a_lost_device_keeps_nobody(void **state)
{
    kvt_hold *hold;

    (void)state;
    reads_stall();
    batch_init(&batch, 0, 0);
    batch_submit(&batch, NULL);
    batch_hold(&batch, bench.stream, 0);
    batch_init(&second, 0, 0);
    second.ticket = batch.ticket;
    assert_int_equal(kvt_hold_submit(second.ticket, 0, bench.stream, 0, &second.hold), KVT_OK);
    bench.sim.device.fail_call = atomic_load(&bench.sim.device.call_count) + 1;
    /* Freed before its gets are over. */
    refused(kvt_hold_free(second.hold), KVT_E_GPU, "");
    assert_int_equal(kvt_ticket_wait(batch.ticket, 1, KVT_FOREVER), KVT_OK);
    for (uint32_t i = 0; i < HOLD_COUNT; i++)
        assert_int_equal(batch.looks[i].status[0], KVT_E_GPU);
    refused(kvt_hold_submit(batch.ticket, 0, bench.stream, 0, &hold), KVT_E_GPU, "lost");
    assert_null(hold);
    assert_int_equal(kvt_hold_free(batch.hold), KVT_E_GPU);
    kvt_ticket_free(batch.ticket);
}

/* --- 3. Threads ------------------------------------------------------------------------------- */

struct census {
    const int32_t *statuses;
    uint32_t count, miss_count;
};

static void
kernel_count(void *context, void *memory)
{
    struct census *census = context;

    (void)memory;
    census->miss_count = 0;
    for (uint32_t i = census->count; i > 0; i--)
        census->miss_count += census->statuses[i - 1] == KVT_MISS;
}

/* So many that a stream which goes on too early is seen. */
static void
statuses_are_written_before_the_stream_goes_on(void **state)
{
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    void *stream;

    (void)state;
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    for (uint32_t round = 0; round < 20; round++) {
        kvt_ticket *ticket = many_submit(hbm.store, hbm.ns, KVT_BATCH_MAX);
        struct census census = {.count = KVT_BATCH_MAX};
        kvt_hold *hold;

        assert_int_equal(kvt_hold_submit(ticket, 0, stream, 0, &hold), KVT_OK);
        census.statuses = kvt_hold_statuses(hold);
        assert_int_equal(
            device_host_launch(device, stream, kernel_count, &census, hbm_pool_at(0)), KVT_OK);
        assert_int_equal(kvt_hold_free(hold), KVT_OK);
        kvt_ticket_free(ticket);
        hbm_stream_finish(device, stream);
        assert_int_equal(census.miss_count, KVT_BATCH_MAX);
    }
    device_host_stream_destroy(device, stream);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, hold_setup, hold_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(kernels_behind_a_hold_find_what_was_on_nvme),
        TEST(a_ticket_that_is_done_holds_nobody),
        TEST(a_hold_may_be_freed_behind_the_launches),
        TEST(each_get_has_its_own_status),
        TEST(a_cancelled_ticket_lets_its_stream_go_on),
        TEST(a_deadline_lets_the_stream_go_on_without_what_is_late),
        TEST(a_deadline_that_has_passed_is_no_wait),
        TEST(holds_of_one_ticket_end_by_themselves),
        TEST(a_lost_device_keeps_nobody),
        cmocka_unit_test_setup_teardown(
            statuses_are_written_before_the_stream_goes_on, hbm_setup, hbm_teardown),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
