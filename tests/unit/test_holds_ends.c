/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_holds_ends.c - holds when their store ends; how many there may be; what is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engram_set.h"
#include "hold_kit.h"
#include "payload.h"
#include "stop_on_proof.h"
#include "store_internal.h"

static struct batch batch, second;

/* --- 1. The end of a store -------------------------------------------------------------------- */

static void
a_close_waits_for_what_was_freed_and_refuses_what_is_out(void **state)
{
    (void)state;
    reads_stall();
    batch_init(&batch, 0, 0);
    batch_submit(&batch, NULL);
    batch_hold(&batch, bench.stream, 0);
    kvt_ticket_free(batch.ticket);
    refused(kvt_close(bench.sim.store), KVT_E_STATE, "1 holds");
    assert_int_equal(kvt_hold_free(batch.hold), KVT_OK);
    looks_check_none(&batch);
    bench.device->ops->event_destroy(bench.device, bench.event);
    assert_int_equal(kvt_close(bench.sim.store), KVT_OK);
    looks_check(&batch, 0, HOLD_COUNT, KVT_OK);
    hold_forget();
}

/* Work of the store's own stands behind the hold: a lease, and gets that wait for the stream. */
static void
an_abort_releases_streams_and_waits_for_them(void **state)
{
    const struct kvt_submit submit = {.wait_event = bench.event};
    struct payload_key name;
    kvt_lease lease;

    (void)state;
    reads_stall();
    batch_init(&batch, 0, 0);
    batch_submit(&batch, NULL);
    batch_hold(&batch, bench.stream, 0);
    payload_key_make(&name, 0);
    assert_int_equal(
        kvt_lookup(bench.sim.store, bench.ns, &name.key, 1, NULL, NULL, &lease), KVT_OK);
    assert_int_equal(kvt_lease_release_after(bench.sim.store, lease, 0, bench.stream), KVT_OK);
    assert_int_equal(
        bench.device->ops->event_record(bench.device, bench.event, bench.stream), KVT_OK);
    batch_init(&second, HOLD_COUNT, 0);
    batch_submit(&second, &submit);
    batch_hold(&second, bench.other, 0);
    assert_int_equal(kvt_hold_free(second.hold), KVT_OK);
    sim_store_pass(&bench.sim, 10 * MS);
    looks_check_none(&batch);
    looks_check_none(&second);
    bench.device->ops->event_destroy(bench.device, bench.event);
    kvt_abort(bench.sim.store);
    looks_check(&batch, 0, HOLD_COUNT, KVT_CANCELLED);
    looks_check(&second, 0, HOLD_COUNT, KVT_CANCELLED);
    hold_forget_aborted();
}

/* A status of a hold that is out; NULL: its memory is given back. */
static const int32_t *watched;
static uint32_t early_count;
static uint32_t query_count; /* While it was out. */

enum {
    QUERIES_MAX = 100000,
};

/* A GPU waits here for all streams: none of them may still wait for us. */
static enum kvt_status
unregister_watched(struct device *device, void *memory, uint64_t size)
{
    if (watched != NULL && *watched == KVT_NOT_READY)
        early_count++;
    if ((uintptr_t)watched - (uintptr_t)memory < size)
        watched = NULL;
    return device_host_ops.host_unregister(device, memory, size);
}

/* A GPU has few channels for its streams: work of the store's own may stand in one behind a stream
 * that waits for the hold. */
static enum kvt_status
query_behind_watched(struct device *device, void *event)
{
    if (watched == NULL || *watched != KVT_NOT_READY)
        return device_host_ops.event_query(device, event);
    query_count++;
    if (query_count > QUERIES_MAX)
        watched = NULL; /* The abort waits for what waits for it. */
    return KVT_NOT_READY;
}

static void
an_abort_lets_streams_go_before_it_waits(void **state)
{
    (void)state;
    query_count = 0;
    batch_init(&batch, 0, 0);
    batch_submit(&batch, NULL);
    batch_hold(&batch, bench.stream, 0);
    watched = batch.looks[0].status;
    bench.ops.event_query = query_behind_watched;
    sim_store_pass(&bench.sim, 10 * MS);
    assert_in_range(query_count, 1, QUERIES_MAX / 2); /* The copies to the device. */
    looks_check_none(&batch);
    bench.device->ops->event_destroy(bench.device, bench.event);
    kvt_abort(bench.sim.store);
    assert_in_range(query_count, 1, QUERIES_MAX);
    watched = NULL;
    looks_check(&batch, 0, HOLD_COUNT, KVT_CANCELLED);
    hold_forget_aborted();
}

/* The loop may not be believed any more, and the stream is let go by whoever closes, before
 * anything that the device knows is given back. */
static void
a_poisoned_store_lets_its_streams_go_on(void **state)
{
    struct engram_reader **reader;
    kvt_ticket *ticket;

    (void)state;
    for (uint32_t round = 0; round < 2; round++) {
        memset(&batch, 0, sizeof(batch));
        bench.ops.host_unregister = unregister_watched;
        reader = &bench.sim.store->engrams->reader;
        assert_int_equal(engram_reader_open(bench.sim.store, reader), KVT_OK);
        ticket = many_submit(bench.sim.store, bench.ns, 1);
        assert_int_equal(kvt_hold_submit(ticket, 0, bench.stream, 0, &batch.hold), KVT_OK);
        watched = batch.looks[0].status = kvt_hold_statuses(batch.hold);
        assert_int_equal(device_host_launch(
                             bench.device, bench.stream, kernel_look, &batch.looks[0], bench.pool),
            KVT_OK);
        bench.device->ops->event_destroy(bench.device, bench.event);
        atomic_store(&bench.sim.store->poisoned, 1);
        assert_int_equal(kvt_hold_free(batch.hold), KVT_E_POISONED);
        if (round == 0)
            assert_int_equal(kvt_close(bench.sim.store), KVT_OK);
        else
            kvt_abort(bench.sim.store);
        looks_check(&batch, 0, 1, KVT_CANCELLED);
        assert_null(watched);
        assert_int_equal(early_count, 0);
        hold_forget_aborted();
        if (round == 0)
            assert_int_equal(hold_setup(NULL), 0);
    }
}

/* --- 2. Bounds and refusals ------------------------------------------------------------------- */

static void
what_makes_no_sense_is_refused(void **state)
{
    struct payload_key name;
    kvt_ticket *ticket;
    kvt_hold *hold;
    int stream;

    (void)state;
    batch_init(&batch, 0, 0);
    batch_submit(&batch, NULL);
#define HOLD(ticket, device, stream, hold_out, word) \
    refused(kvt_hold_submit(ticket, device, stream, 0, hold_out), KVT_E_INVAL, word)
    HOLD(NULL, 0, bench.stream, &hold, "NULL");
    HOLD(batch.ticket, 0, NULL, &hold, "NULL");
    HOLD(batch.ticket, 0, (void *)1, &hold, "default stream");
    HOLD(batch.ticket, 0, (void *)2, &hold, "cudaStreamPerThread");
    HOLD(batch.ticket, 0, bench.stream, NULL, "NULL");
    HOLD(batch.ticket, 1, bench.stream, &hold, "device 1");
    HOLD(batch.ticket, UINT32_MAX, bench.stream, &hold, "device");
    HOLD(batch.ticket, 0, &stream, &hold, "no stream");
    assert_null(hold);
    payload_key_make(&name, 1);
    assert_int_equal(
        kvt_delete_submit(bench.sim.store, bench.ns, &name.key, 1, NULL, &ticket), KVT_OK);
    HOLD(ticket, 0, bench.stream, &hold, "gets");
#undef HOLD
    assert_int_equal(kvt_ticket_wait(ticket, 2, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
    assert_null(kvt_hold_statuses(NULL));
    assert_int_equal(kvt_hold_free(NULL), KVT_OK);
    /* Twice, while its memory is nobody else's. */
    assert_int_equal(kvt_hold_submit(batch.ticket, 0, bench.stream, 0, &hold), KVT_OK);
    assert_int_equal(kvt_hold_free(hold), KVT_OK);
    refused(kvt_hold_free(hold), KVT_E_INVAL, "before");
    assert_int_equal(kvt_ticket_wait(batch.ticket, 1, KVT_FOREVER), KVT_OK);
    /* Also where there is nothing to wait for, so that no device is asked. */
    refused(kvt_hold_submit(batch.ticket, 0, (void *)1, 0, &hold), KVT_E_INVAL, "default stream");
    refused(kvt_hold_submit(batch.ticket, 0, (void *)2, 0, &hold), KVT_E_INVAL, "PerThread");
    assert_null(hold);
    kvt_ticket_free(batch.ticket);
}

/* It cannot be asked: so the gets have failed, and nobody waits for them. */
static void
a_ticket_whose_event_is_none_lets_its_stream_go_on(void **state)
{
    struct kvt_submit submit = {.wait_event = &submit};

    (void)state;
    batch_init(&batch, 0, 0);
    batch_submit(&batch, &submit);
    batch_hold(&batch, bench.stream, 0);
    batch_run(&batch);
    looks_check(&batch, 0, HOLD_COUNT, KVT_E_INVAL);
    batch_end(&batch);
    batch_init(&batch, 0, 0);
    batch_submit(&batch, NULL);
    batch_hold(&batch, bench.stream, 0);
    batch_run(&batch);
    looks_check(&batch, 0, HOLD_COUNT, KVT_OK);
    batch_end(&batch);
}

/* Nobody waits, and it works later. */
static void
a_device_that_refuses_changes_nothing(void **state)
{
    static const enum kvt_status statuses[] = {KVT_E_UNSUPPORTED, KVT_E_NOMEM};
    kvt_hold *hold;

    (void)state;
    batch_init(&batch, 0, 0);
    reads_stall();
    batch_submit(&batch, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        bench.sim.device.fail_status = statuses[i];
        /* Its event, the first time; then the wait. */
        bench.sim.device.fail_call = atomic_load(&bench.sim.device.call_count) + 1;
        refused(kvt_hold_submit(batch.ticket, 0, bench.stream, 0, &hold),
            i == 0 ? KVT_E_UNSUPPORTED : KVT_E_NOMEM, "fails on purpose");
        assert_null(hold);
    }
    batch_hold(&batch, bench.stream, 0);
    bench.sim.device.fail_call = atomic_load(&bench.sim.device.call_count) + 1;
    refused(kvt_hold_free(batch.hold), KVT_E_NOMEM, "fails on purpose");
    batch_run(&batch);
    looks_check(&batch, 0, HOLD_COUNT, KVT_OK);
    /* The mover's question for the event fails: the memory stays until an answer comes. */
    assert_int_equal(kvt_hold_free(batch.hold), KVT_OK);
    bench.sim.device.fail_call = atomic_load(&bench.sim.device.call_count) + 1;
    sim_store_pass(&bench.sim, 100 * MS);
    assert_true(atomic_load(&bench.sim.device.call_count) > bench.sim.device.fail_call);
    kvt_ticket_free(batch.ticket);
}

/* All that there are, from few streams; the next one when one has passed. */
static void
holds_are_bounded_and_come_back(void **state)
{
    static kvt_hold *holds[KVT_HOLDS_MAX];
    struct kvt_submit submit;
    kvt_hold *more;

    (void)state;
    submit = behind_the_gate();
    batch_init(&batch, 0, 0);
    batch_submit(&batch, &submit);
    for (uint32_t i = 0; i < KVT_HOLDS_MAX; i++)
        assert_int_equal(kvt_hold_submit(batch.ticket, 0, bench.stream, 0, &holds[i]), KVT_OK);
    refused(kvt_hold_submit(batch.ticket, 0, bench.stream, 0, &more), KVT_E_NOSPC, "256 holds");
    assert_null(more);
    /* One that was freed is not there again before its stream has passed. */
    assert_int_equal(kvt_hold_free(holds[7]), KVT_OK);
    sim_store_pass(&bench.sim, 20 * MS);
    refused(kvt_hold_submit(batch.ticket, 0, bench.stream, 0, &more), KVT_E_NOSPC, "256 holds");
    atomic_store(bench.gate, 1);
    assert_int_equal(kvt_ticket_wait(batch.ticket, 1, KVT_FOREVER), KVT_OK);
    sim_store_pass(&bench.sim, 100 * MS);
    assert_int_equal(kvt_hold_submit(batch.ticket, 0, bench.stream, 0, &holds[7]), KVT_OK);
    refused(kvt_hold_submit(batch.ticket, 0, bench.stream, 0, &more), KVT_E_NOSPC, "256 holds");
    for (uint32_t i = 0; i < KVT_HOLDS_MAX; i++)
        assert_int_equal(kvt_hold_free(holds[i]), KVT_OK);
    kvt_ticket_free(batch.ticket);
}

/* The stream has yet to read what was freed behind its kernel, and another hold wants a place. */
static void
the_memory_of_a_hold_is_its_stream_s_until_that_has_passed(void **state)
{
    kvt_hold *hold;

    (void)state;
    for (uint32_t round = 0; round < 2; round++) {
        batch_init(&batch, 0, 0);
        batch_submit(&batch, NULL);
        /* Done before, or while the stream stands behind the gate. */
        if (round == 0)
            assert_int_equal(kvt_ticket_wait(batch.ticket, 1, KVT_FOREVER), KVT_OK);
        assert_int_equal(
            bench.ops.stream_wait_word(bench.device, bench.stream, bench.gate, round + 1), KVT_OK);
        batch_hold(&batch, bench.stream, 0);
        batch_end(&batch);
        sim_store_pass(&bench.sim, 100 * MS);
        second.ticket = many_submit(bench.sim.store, bench.ns, HOLD_COUNT);
        assert_int_equal(kvt_ticket_wait(second.ticket, 1, KVT_FOREVER), KVT_OK);
        assert_int_equal(kvt_hold_submit(second.ticket, 0, bench.other, 0, &hold), KVT_OK);
        assert_int_equal(kvt_hold_statuses(hold)[0], KVT_MISS);
        looks_check_none(&batch);
        atomic_store(bench.gate, round + 1);
        batch_run(&batch);
        looks_check(&batch, 0, HOLD_COUNT, KVT_OK);
        assert_int_equal(kvt_hold_free(hold), KVT_OK);
        kvt_ticket_free(second.ticket);
    }
}

static void
statuses_have_room_for_some_large_tickets(void **state)
{
    kvt_ticket *tickets[4];
    kvt_hold *holds[3];
    kvt_hold *more;

    (void)state;
    for (uint32_t i = 0; i < 4; i++)
        tickets[i] = many_submit(bench.sim.store, bench.ns, KVT_BATCH_MAX);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(kvt_hold_submit(tickets[i], 0, bench.stream, 0, &holds[i]), KVT_OK);
    refused(kvt_hold_submit(tickets[3], 0, bench.stream, 0, &more), KVT_E_NOSPC, "65536 statuses");
    assert_int_equal(kvt_hold_free(holds[1]), KVT_OK);
    assert_int_equal(kvt_ticket_wait(tickets[3], 1, KVT_FOREVER), KVT_OK);
    sim_store_pass(&bench.sim, 100 * MS);
    /* In the gap between the others, which keep theirs. */
    assert_int_equal(kvt_hold_submit(tickets[3], 0, bench.stream, 0, &more), KVT_OK);
    for (uint32_t i = 0; i < KVT_BATCH_MAX; i++) {
        assert_int_equal(kvt_hold_statuses(holds[0])[i], KVT_MISS);
        assert_int_equal(kvt_hold_statuses(holds[2])[i], KVT_MISS);
        assert_int_equal(kvt_hold_statuses(more)[i], KVT_MISS);
    }
    assert_int_equal(kvt_hold_free(holds[0]), KVT_OK);
    assert_int_equal(kvt_hold_free(holds[2]), KVT_OK);
    assert_int_equal(kvt_hold_free(more), KVT_OK);
    for (uint32_t i = 0; i < 4; i++)
        kvt_ticket_free(tickets[i]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, hold_setup, hold_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_close_waits_for_what_was_freed_and_refuses_what_is_out),
        TEST(an_abort_releases_streams_and_waits_for_them),
        TEST(an_abort_lets_streams_go_before_it_waits),
        TEST(a_poisoned_store_lets_its_streams_go_on),
        TEST(what_makes_no_sense_is_refused),
        TEST(a_ticket_whose_event_is_none_lets_its_stream_go_on),
        TEST(a_device_that_refuses_changes_nothing),
        TEST(holds_are_bounded_and_come_back),
        TEST(the_memory_of_a_hold_is_its_stream_s_until_that_has_passed),
        TEST(statuses_have_room_for_some_large_tickets),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
