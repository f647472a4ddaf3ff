/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hbm_ill.c - a store with an HBM tier over a device that refuses some of its work: who is
 * told what, and that nobody waits for ever.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "hbm_kit.h"
#include "ill_device.h"
#include "kvtier/kvtier_unstable.h"
#include "payload.h"
#include "stop_on_proof.h"
#include "store_internal.h"

enum {
    PATIENCE_NS = 2000000000,
};

struct kernel {
    uint64_t number, version;
    const void *host; /* What it reads of the host's. */
    uint8_t seen[HBM_BLOCK_BYTES];
};

static void
kernel_read(void *context, void *memory)
{
    struct kernel *kernel = context;

    memcpy(kernel->seen, memory, HBM_BLOCK_BYTES);
}

static void
kernel_read_host(void *context, void *memory)
{
    struct kernel *kernel = context;

    (void)memory;
    memcpy(kernel->seen, kernel->host, HBM_BLOCK_BYTES);
}

/* What an aborted program would do at its end: then nobody uses the memory any more. */
static struct {
    bool is_aborted;
    void *left; /* By the program: an event. */
} program;

static void
close_behind_program(struct device *device)
{
    if (program.is_aborted) {
        device_host_memory_put(device, hbm.pool, HBM_POOL_BLOCKS * HBM_BLOCK_BYTES);
        device_host_ops.event_destroy(device, program.left);
    }
    device_host_ops.close(device);
}

static int
setup(void **state)
{
    int result = hbm_setup(state);

    hbm_close();
    memset(&program, 0, sizeof(program));
    ill_device_init();
    ill.ops.close = close_behind_program;
    hbm.env.device = &ill.ops;
    hbm_open_again();
    return result;
}

static struct device *
the_device(void)
{
    return hbm_device(hbm.store->devices.tiers[0]);
}

/* The event behind a stream's work cannot be asked for a while: that is no answer. */
static void
a_lease_goes_on_while_its_event_cannot_be_asked(void **state)
{
    struct device *device = the_device();
    struct kernel kernel = {.number = 1};
    _Atomic bool may_go = false;
    struct payload_key name;
    uint64_t length, version, lease_count;
    const void *address;
    uint32_t fail_count;
    kvt_lease lease;

    (void)state;
    payload_key_make(&name, 1);
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
    assert_int_equal(kvt_lookup(hbm.store, hbm.ns, &name.key, 1, NULL, NULL, &lease), KVT_OK);
    assert_int_equal(
        kvt_lease_address(hbm.store, lease, 0, KVT_TIER_HBM, &address, &length), KVT_OK);
    assert_int_equal(device_host_stream_create(device, &ill.stream), KVT_OK);
    hbm_stream_hold(device, ill.stream, hbm_pool_at(0), &may_go);
    assert_int_equal(
        device_host_launch(device, ill.stream, kernel_read, &kernel, (void *)(uintptr_t)address),
        KVT_OK);
    atomic_store(&ill.fail_count, 3);
    assert_int_equal(kvt_lease_release_after(hbm.store, lease, 0, ill.stream), KVT_OK);
    /* The block goes; its slot is wanted by others. */
    assert_true(kit_delete(hbm.store, hbm.ns, 1) >= 0);
    for (uint64_t i = 0; i < 120; i++)
        (void)hbm_put(1000 + i, 1, KVT_TIER_HBM, KVT_MEMORY, 0);
    lease_count = hbm_stats().lease_count_now;
    atomic_store(&may_go, true);
    while (hbm_stats().lease_count_now != 0)
        sched_yield();
    fail_count = atomic_exchange(&ill.fail_count, 0);
    hbm_stream_finish(device, ill.stream);
    device_host_stream_destroy(device, ill.stream);
    assert_int_equal(lease_count, 1);
    assert_int_equal(fail_count, 0);
    assert_true(payload_is_right(kernel.seen, HBM_BLOCK_BYTES, 1, &version));
}

/* Stage 1 of a put to HBM from memory of the device; KVT_LATE: there was none in time. */
static enum kvt_status
put_in_time(uint64_t number, kvt_ticket **late_out)
{
    struct payload_key name;
    struct kvt_put put = {.length = HBM_BLOCK_BYTES,
        .source = hbm_pool_at(0),
        .region = hbm.region,
        .tier = KVT_TIER_HBM};
    kvt_ticket *ticket;

    payload_key_make(&name, number);
    put.key = name.key;
    assert_int_equal(kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_MEMORY, NULL, &ticket), KVT_OK);
    *late_out = ticket;
    if (kvt_ticket_wait(ticket, 1, PATIENCE_NS) == KVT_LATE)
        return KVT_LATE;
    *late_out = NULL;
    return kit_result(ticket, 1).status;
}

/* Copies fail, so that the store gives the device up; a program's streams go on. */
static void
device_give_up(void)
{
    kvt_ticket *late;

    atomic_store(&ill.copy_status, KVT_E_GPU);
    assert_int_equal(put_in_time(500, &late), KVT_E_GPU);
    assert_true(device_is_lost(hbm.store, 0));
    atomic_store(&ill.copy_status, KVT_OK);
}

/* Blocks that the host puts into HOST, until its slots have been used again. */
static void
host_fill(void)
{
    uint8_t bytes[HBM_BLOCK_BYTES];
    uint64_t count = 4 * hbm.options.host_capacity_bytes / HBM_BLOCK_BYTES;

    for (uint64_t i = 0; i < count; i++) {
        struct payload_key name;
        struct kvt_put put = {.source = bytes, .length = HBM_BLOCK_BYTES, .tier = KVT_TIER_HOST};
        kvt_ticket *ticket;

        payload_key_make(&name, 1000 + i);
        payload_fill(bytes, sizeof(bytes), 1000 + i, 1);
        put.key = name.key;
        assert_int_equal(
            kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_MEMORY, NULL, &ticket), KVT_OK);
        (void)kit_result(ticket, 1);
    }
}

/* Released before the device was given up, or after it. */
static void
a_lease_goes_on_with_its_stream_where_only_copies_fail(void **state)
{
    for (uint32_t is_late = 0; is_late < 2; is_late++) {
        struct device *device = the_device();
        struct kernel kernel = {.number = 1};
        _Atomic bool may_go = false;
        struct payload_key name;
        uint64_t length, version, lease_count;
        kvt_lease lease;

        payload_key_make(&name, 1);
        assert_int_equal(hbm_put(1, 1, KVT_TIER_HOST, KVT_MEMORY, 0), KVT_OK);
        assert_int_equal(kvt_lookup(hbm.store, hbm.ns, &name.key, 1, NULL, NULL, &lease), KVT_OK);
        assert_int_equal(
            kvt_lease_address(hbm.store, lease, 0, KVT_TIER_HOST, &kernel.host, &length), KVT_OK);
        assert_int_equal(device_host_stream_create(device, &ill.stream), KVT_OK);
        hbm_stream_hold(device, ill.stream, hbm_pool_at(0), &may_go);
        assert_int_equal(
            device_host_launch(device, ill.stream, kernel_read_host, &kernel, hbm_pool_at(0)),
            KVT_OK);
        if (is_late)
            device_give_up();
        assert_int_equal(kvt_lease_release_after(hbm.store, lease, 0, ill.stream), KVT_OK);
        if (!is_late)
            device_give_up();
        assert_true(kit_delete(hbm.store, hbm.ns, 1) >= 0);
        host_fill();
        lease_count = hbm_stats().lease_count_now;
        atomic_store(&may_go, true);
        while (hbm_stats().lease_count_now != 0)
            sched_yield();
        hbm_stream_finish(device, ill.stream);
        device_host_stream_destroy(device, ill.stream);
        assert_int_equal(lease_count, 1);
        assert_true(payload_is_right(kernel.seen, HBM_BLOCK_BYTES, 1, &version));
        assert_int_equal(hbm_teardown(state), 0);
        assert_int_equal(setup(state), 0);
    }
}

static enum kvt_status
slab_refused(struct device *device, uint64_t size, void **address_out)
{
    (void)device;
    (void)size;
    *address_out = NULL;
    return failure_set(KVT_E_GPU, 0, "No slab, on purpose.");
}

/* The mover has not seen it: its copies are fine. */
static void
a_device_that_another_call_has_lost_ends_waits_for_its_events(void **state)
{
    struct device *device = the_device();
    uint8_t bytes[HBM_BLOCK_BYTES];
    struct kvt_get get = {.destination = bytes, .capacity = sizeof(bytes)};
    struct kvt_submit submit = {0};
    struct payload_key name;
    void *memory;
    kvt_ticket *ticket;
    enum kvt_status status;

    (void)state;
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HOST, KVT_MEMORY, 0), KVT_OK);
    assert_int_equal(device->ops->event_create(device, &submit.wait_event), KVT_OK);
    atomic_store(&ill.never, submit.wait_event);
    payload_key_make(&name, 1);
    get.key = name.key;
    assert_int_equal(kvt_get_submit(hbm.store, hbm.ns, &get, 1, &submit, &ticket), KVT_OK);
    ill.ops.slab_take = slab_refused;
    assert_int_equal(kvt_device_alloc(hbm.store, 0, 4096, &memory), KVT_E_GPU);
    status = kvt_ticket_wait(ticket, 1, PATIENCE_NS);
    atomic_store(&ill.never, NULL);
    assert_int_equal(kit_result(ticket, 1).status, status == KVT_OK ? KVT_E_GPU : KVT_OK);
    device->ops->event_destroy(device, submit.wait_event);
    assert_int_equal(status, KVT_OK);
}

struct look {
    const int32_t *status;
    int32_t seen;
};

static void
kernel_look(void *context, void *memory)
{
    struct look *look = context;

    (void)memory;
    look->seen = *look->status;
}

/* A ticket that is done, of one get. */
static kvt_ticket *
ticket_done(uint64_t number, uint8_t *bytes)
{
    struct kvt_get get = {.destination = bytes, .capacity = HBM_BLOCK_BYTES};
    struct payload_key name;
    kvt_ticket *ticket;

    payload_key_make(&name, number);
    get.key = name.key;
    assert_int_equal(kvt_get_submit(hbm.store, hbm.ns, &get, 1, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, 1, KVT_FOREVER), KVT_OK);
    return ticket;
}

/* Its statuses, which the stream is still to read, are not those of a hold of another device. */
static void
a_hold_goes_on_with_its_stream_where_only_copies_fail(void **state)
{
    struct device *other, *device;
    static uint8_t bytes[HBM_BLOCK_BYTES];
    struct look look = {.seen = -1};
    _Atomic bool may_go = false;
    kvt_ticket *missed, *found;
    kvt_hold *holds[2];

    (void)state;
    hbm_close();
    hbm.options.device_mask = 3;
    hbm_open_again();
    device = the_device();
    other = hbm_device(hbm.store->devices.tiers[1]);
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HOST, KVT_MEMORY, 0), KVT_OK);
    missed = ticket_done(2, bytes);
    found = ticket_done(1, bytes);
    assert_int_equal(device_host_stream_create(device, &ill.stream), KVT_OK);
    hbm_stream_hold(device, ill.stream, hbm_pool_at(0), &may_go);
    assert_int_equal(kvt_hold_submit(missed, 0, ill.stream, 0, &holds[0]), KVT_OK);
    look.status = kvt_hold_statuses(holds[0]);
    assert_int_equal(
        device_host_launch(device, ill.stream, kernel_look, &look, hbm_pool_at(0)), KVT_OK);
    assert_int_equal(kvt_hold_free(holds[0]), KVT_OK);
    device_give_up();
    host_fill();
    assert_int_equal(
        kvt_hold_submit(found, 1, other->ops->stream(other, DEVICE_OUT), 0, &holds[1]), KVT_OK);
    atomic_store(&may_go, true);
    hbm_stream_finish(device, ill.stream);
    device_host_stream_destroy(device, ill.stream);
    assert_int_equal(*kvt_hold_statuses(holds[1]), KVT_OK);
    assert_int_equal(kvt_hold_free(holds[1]), KVT_OK);
    kvt_ticket_free(missed);
    kvt_ticket_free(found);
    assert_int_equal(look.seen, KVT_MISS);
}

static atomic_uint loop_destroy_count, mover_destroy_count;

static void
destroy_noted(struct device *device, void *event)
{
    char name[16] = "";

    (void)pthread_getname_np(pthread_self(), name, sizeof(name));
    loop_destroy_count += strcmp(name, "kvt-loop") == 0;
    mover_destroy_count += strcmp(name, "kvt-mover") == 0;
    device_host_ops.event_destroy(device, event);
}

/* That call may wait for a lock of the driver, under which somebody waits for a stream, which waits
 * for a hold, whose deadline the loop sees. */
static void
the_loop_destroys_no_event(void **state)
{
    struct device *device = the_device();
    struct payload_key name;
    kvt_lease lease;

    (void)state;
    loop_destroy_count = mover_destroy_count = 0;
    ill.ops.event_destroy = destroy_noted;
    payload_key_make(&name, 1);
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
    assert_int_equal(device_host_stream_create(device, &ill.stream), KVT_OK);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(kvt_lookup(hbm.store, hbm.ns, &name.key, 1, NULL, NULL, &lease), KVT_OK);
        assert_int_equal(kvt_lease_release_after(hbm.store, lease, 0, ill.stream), KVT_OK);
        while (hbm_stats().lease_count_now != 0)
            sched_yield();
    }
    device_host_stream_destroy(device, ill.stream);
    assert_int_equal(loop_destroy_count, 0);
    assert_int_equal(mover_destroy_count, 4);
}

static void
put_joins_what_cannot_be_brought_down(enum kvt_status copied, enum kvt_status wanted)
{
    struct payload_key name;
    struct kvt_put put = {.length = HBM_BLOCK_BYTES, .tier = KVT_TIER_HBM};
    enum kvt_status status;
    kvt_ticket *ticket;

    assert_int_equal(hbm_put(1, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
    payload_key_make(&name, 1);
    put.key = name.key;
    put.source = hbm_pool_at(1);
    put.region = hbm.region;
    atomic_store(&ill.copy_status, copied);
    assert_int_equal(kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_SYNC, NULL, &ticket), KVT_OK);
    status = kvt_ticket_wait(ticket, 2, PATIENCE_NS);
    atomic_store(&ill.copy_status, KVT_OK);
    assert_int_equal(kit_result(ticket, 2).status, status == KVT_OK ? wanted : KVT_OK);
    assert_int_equal(status, KVT_OK);
    refused(kvt_flush(hbm.store), KVT_E_IO, "1 puts");
    /* Nothing else came of it. */
    assert_int_equal(hbm_tiers_of(1), KVT_TIER_HBM);
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HBM, KVT_SYNC, 0), KVT_OK);
}

static void
a_put_that_joins_a_block_that_cannot_be_brought_down_is_told(void **state)
{
    (void)state;
    put_joins_what_cannot_be_brought_down(KVT_E_INVAL, KVT_E_GPU);
}

static void
a_put_that_joins_a_block_that_no_memory_brings_down_is_told(void **state)
{
    (void)state;
    put_joins_what_cannot_be_brought_down(KVT_E_NOMEM, KVT_E_NOMEM);
}

static void *
flush_call(void *status_out)
{
    *(enum kvt_status *)status_out = kvt_flush(hbm.store);
    return NULL;
}

/* Beside this one. */
static bool
calls_count(struct kvt_store *store, void *count_out)
{
    uint32_t *count = count_out;

    *count = 0;
    for (const struct loop_call *call = store->calls; call->next != NULL; call = call->next)
        ++*count;
    return true;
}

/* Whose ticket is it? Each of those that wait has to know. */
static void
flushes_that_wait_at_once_both_say_what_failed(void **state)
{
    struct device *device = the_device();
    struct payload_key name;
    struct kvt_put put = {.length = HBM_BLOCK_BYTES,
        .source = hbm_pool_at(1),
        .region = hbm.region,
        .tier = KVT_TIER_HBM};
    struct kvt_submit submit = {0};
    enum kvt_status said[2];
    pthread_t threads[2];
    uint32_t count = 0;
    kvt_ticket *ticket;

    (void)state;
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
    assert_int_equal(device->ops->event_create(device, &submit.wait_event), KVT_OK);
    atomic_store(&ill.never, submit.wait_event);
    payload_key_make(&name, 1);
    put.key = name.key;
    assert_int_equal(
        kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_SYNC, &submit, &ticket), KVT_OK);
    kvt_ticket_free(ticket);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, flush_call, &said[i]), 0);
    while (count < 2)
        loop_call(hbm.store, calls_count, &count);
    atomic_store(&ill.copy_status, KVT_E_INVAL);
    atomic_store(&ill.never, NULL);
    for (uint32_t i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&ill.copy_status, KVT_OK);
    device->ops->event_destroy(device, submit.wait_event);
    assert_int_equal(said[0], KVT_E_IO);
    assert_int_equal(said[1], KVT_E_IO);
    assert_int_equal(kvt_flush(hbm.store), KVT_OK);
}

/* HBM fills up, because nothing can leave it: that has an end, and so has who wants room. */
static void
who_wants_room_that_no_copy_can_make_is_told(void **state)
{
    enum kvt_status status = KVT_OK;
    kvt_ticket *late = NULL;
    uint64_t count = 0;

    (void)state;
    atomic_store(&ill.keeps_all, true);
    while (status == KVT_OK && count < HBM_POOL_BLOCKS)
        status = put_in_time(count++, &late);
    atomic_store(&ill.keeps_all, false);
    if (late != NULL)
        (void)kit_result(late, 1);
    assert_int_equal(status, KVT_E_NOMEM);
    assert_int_equal(hbm_stats().hbm_drop_count, 0);
    /* The device is well again, and has its rest. */
    while ((status = hbm_put(1000, 1, KVT_TIER_HBM, KVT_MEMORY, 0)) == KVT_E_NOMEM)
        sched_yield();
    assert_int_equal(status, KVT_OK);
    assert_int_equal(hbm_get(1000, 1, true, NULL), KVT_OK);
}

/* The copy of a replace is asked for when the block that was there has gone already. */
static void
a_replace_that_the_device_fails_to_copy_leaves_neither(void **state)
{
    (void)state;
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HBM, KVT_SYNC, 0), KVT_OK);
    atomic_store(&ill.keeps_all, true);
    assert_int_equal(hbm_put(1, 2, KVT_TIER_HBM, KVT_SYNC, KVT_PUT_REPLACE), KVT_E_NOMEM);
    atomic_store(&ill.keeps_all, false);
    assert_int_equal(hbm_tiers_of(1), 0);
    hbm_close();
    hbm_open_again();
    assert_int_equal(hbm_tiers_of(1), 0);
    assert_int_equal(hbm_put(1, 3, KVT_TIER_HBM, KVT_SYNC, 0), KVT_OK);
    assert_int_equal(hbm_get(1, 3, true, NULL), KVT_OK);
}

static void *
abort_run(void *is_over)
{
    kvt_abort(hbm.store);
    atomic_store((atomic_bool *)is_over, true);
    return NULL;
}

static void
an_abort_does_not_wait_for_events_of_tickets(void **state)
{
    struct device *device = the_device();
    uint8_t bytes[HBM_BLOCK_BYTES];
    struct kvt_get get = {.destination = bytes, .capacity = sizeof(bytes)};
    struct kvt_put put = {
        .length = HBM_BLOCK_BYTES, .source = hbm_pool_at(2), .region = hbm.region};
    struct kvt_submit submit = {0};
    struct payload_key name;
    kvt_ticket *tickets[4];
    atomic_bool is_over = false;
    struct timespec tick = {.tv_nsec = 1000000};
    bool was_over;
    pthread_t thread;

    (void)state;
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
    assert_int_equal(device->ops->event_create(device, &submit.wait_event), KVT_OK);
    atomic_store(&ill.never, submit.wait_event);
    program.left = submit.wait_event;
    payload_key_make(&name, 1);
    get.key = name.key;
    assert_int_equal(kvt_get_submit(hbm.store, hbm.ns, &get, 1, &submit, &tickets[0]), KVT_OK);
    assert_int_equal(kvt_get_submit(hbm.store, hbm.ns, &get, 1, &submit, &tickets[1]), KVT_OK);
    payload_key_make(&name, 2);
    put.key = name.key;
    assert_int_equal(
        kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_SYNC, &submit, &tickets[2]), KVT_OK);
    assert_int_equal(
        kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_MEMORY, &submit, &tickets[3]), KVT_OK);
    /* One that leaves before the end, from among the others. */
    assert_int_equal(kvt_ticket_cancel(tickets[1]), KVT_OK);
    assert_int_equal(kit_result(tickets[1], 1).status, KVT_CANCELLED);
    program.is_aborted = true;
    assert_int_equal(pthread_create(&thread, NULL, abort_run, &is_over), 0);
    for (uint32_t i = 0; i < PATIENCE_NS / tick.tv_nsec && !atomic_load(&is_over); i++)
        nanosleep(&tick, NULL);
    was_over = atomic_load(&is_over);
    atomic_store(&ill.never, NULL); /* It comes after all. */
    pthread_join(thread, NULL);
    hbm.store = NULL;
    assert_true(was_over);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, hbm_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_lease_goes_on_while_its_event_cannot_be_asked),
        TEST(a_lease_goes_on_with_its_stream_where_only_copies_fail),
        TEST(a_hold_goes_on_with_its_stream_where_only_copies_fail),
        TEST(a_device_that_another_call_has_lost_ends_waits_for_its_events),
        TEST(the_loop_destroys_no_event),
        TEST(a_put_that_joins_a_block_that_cannot_be_brought_down_is_told),
        TEST(a_put_that_joins_a_block_that_no_memory_brings_down_is_told),
        TEST(flushes_that_wait_at_once_both_say_what_failed),
        TEST(who_wants_room_that_no_copy_can_make_is_told),
        TEST(a_replace_that_the_device_fails_to_copy_leaves_neither),
        TEST(an_abort_does_not_wait_for_events_of_tickets),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
