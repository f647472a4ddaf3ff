/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hbm_events.c - a store with an HBM tier beside a program's own streams: what waits for what,
 * what is refused, what is noticed, and what a lost device costs.
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
#include "kvtier/kvtier_unstable.h"
#include "payload.h"
#include "stop_on_proof.h"
#include "store_internal.h"

enum {
    PATIENCE_NS = 2000000000,
    A_WHILE_NS = 20000000
};

/* --- Streams and events ----------------------------------------------------------------------- */

struct kernel {
    uint64_t number, version;
    uint8_t seen[HBM_BLOCK_BYTES];
};

static void
kernel_fill(void *context, void *memory)
{
    struct kernel *kernel = context;

    payload_fill(memory, HBM_BLOCK_BYTES, kernel->number, kernel->version);
}

static void
kernel_read(void *context, void *memory)
{
    struct kernel *kernel = context;

    memcpy(kernel->seen, memory, HBM_BLOCK_BYTES);
}

static void
a_put_waits_for_the_event_of_what_fills_its_source(void **state)
{
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    void *stream, *event;

    (void)state;
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    assert_int_equal(device->ops->event_create(device, &event), KVT_OK);
    for (uint64_t i = 0; i < 20; i++) {
        struct kernel kernel = {.number = i, .version = 1};
        struct payload_key name;
        struct kvt_submit submit = {.wait_event = event};
        struct kvt_put put = {.length = HBM_BLOCK_BYTES,
            .source = hbm_pool_at((uint32_t)i),
            .region = hbm.region,
            .tier = i % 2 == 0 ? KVT_TIER_HBM : KVT_TIER_HOST};
        kvt_ticket *ticket;

        payload_key_make(&name, i);
        put.key = name.key;
        assert_int_equal(
            device_host_launch(device, stream, kernel_fill, &kernel, hbm_pool_at((uint32_t)i)),
            KVT_OK);
        assert_int_equal(device->ops->event_record(device, event, stream), KVT_OK);
        assert_int_equal(
            kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_MEMORY, &submit, &ticket), KVT_OK);
        assert_int_equal(hbm_finish(ticket, 1).status, KVT_OK);
        assert_int_equal(hbm_get(i, 1, i % 3 == 0, NULL), KVT_OK);
    }
    device->ops->event_destroy(device, event);
    device_host_stream_destroy(device, stream);
}

static void
a_put_whose_event_does_not_come_can_be_cancelled(void **state)
{
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    _Atomic bool is_over = false;
    struct payload_key name;
    struct kvt_put put = {.length = HBM_BLOCK_BYTES,
        .source = hbm_pool_at(1),
        .region = hbm.region,
        .tier = KVT_TIER_HBM};
    struct kvt_submit submit = {0};
    void *stream, *event;
    kvt_ticket *ticket;

    (void)state;
    payload_key_make(&name, 1);
    put.key = name.key;
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    assert_int_equal(device->ops->event_create(device, &event), KVT_OK);
    submit.wait_event = event;
    hbm_stream_hold(device, stream, hbm.pool, &is_over);
    assert_int_equal(device->ops->event_record(device, event, stream), KVT_OK);
    assert_int_equal(
        kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_SYNC, &submit, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, 1, 10 * 1000 * 1000), KVT_LATE);
    assert_int_equal(kvt_ticket_cancel(ticket), KVT_OK);
    assert_int_equal(hbm_finish(ticket, 2).status, KVT_CANCELLED);
    assert_int_equal(hbm_tiers_of(1), 0);
    /* Nobody asks for the event any more, and nobody uses the hbm.region. */
    device->ops->event_destroy(device, event);
    assert_int_equal(kvt_region_unregister(hbm.store, hbm.region), KVT_OK);
    hbm.region.id = 0;
    atomic_store(&is_over, true);
    device_host_stream_destroy(device, stream);
}

static void
a_leased_copy_stays_until_the_stream_has_read_it(void **state)
{
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    void *stream;

    (void)state;
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    for (uint64_t round = 0; round < 4; round++) {
        struct kernel kernel = {.number = round};
        _Atomic bool may_go = false;
        struct payload_key name;
        const void *address;
        uint64_t length, version;
        kvt_lease lease;

        payload_key_make(&name, round);
        assert_int_equal(hbm_put(round, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
        assert_int_equal(kvt_lookup(hbm.store, hbm.ns, &name.key, 1, NULL, NULL, &lease), KVT_OK);
        assert_int_equal(
            kvt_lease_address(hbm.store, lease, 0, KVT_TIER_HBM, &address, &length), KVT_OK);
        /* The stream is busy: by then the slot would be somebody else's. */
        hbm_stream_hold(device, stream, hbm_pool_at(0), &may_go);
        assert_int_equal(
            device_host_launch(device, stream, kernel_read, &kernel, (void *)(uintptr_t)address),
            KVT_OK);
        assert_int_equal(kvt_lease_release_after(hbm.store, lease, 0, stream), KVT_OK);
        assert_int_equal(kvt_lease_release_after(hbm.store, lease, 0, stream), KVT_E_INVAL);
        /* The block goes; its slot is wanted by others. */
        assert_true(kit_delete(hbm.store, hbm.ns, round) >= 0);
        for (uint64_t i = 0; i < 120; i++)
            (void)hbm_put(1000 + round * 200 + i, 1, KVT_TIER_HBM, KVT_MEMORY, 0);
        atomic_store(&may_go, true);
        while (hbm_stats().lease_count_now != 0)
            sched_yield();
        assert_true(payload_is_right(kernel.seen, HBM_BLOCK_BYTES, round, &version));
    }
    device_host_stream_destroy(device, stream);
}

/* What was given back is nobody's: a close waits for the stream, and does not refuse. */
static void
a_store_can_be_closed_while_a_stream_reads_what_was_given_back(void **state)
{
    struct payload_key name;
    kvt_lease lease;

    (void)state;
    payload_key_make(&name, 1);
    for (uint32_t i = 0; i < 8; i++) {
        struct kernel kernel = {.number = 1};
        const void *address;
        uint64_t length, version;

        struct device *device = hbm_device(hbm.store->devices.tiers[0]);
        void *stream = device->ops->stream(device, DEVICE_OUT);

        assert_int_equal(hbm_put(1, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
        assert_int_equal(kvt_lookup(hbm.store, hbm.ns, &name.key, 1, NULL, NULL, &lease), KVT_OK);
        assert_int_equal(
            kvt_lease_address(hbm.store, lease, 0, KVT_TIER_HBM, &address, &length), KVT_OK);
        assert_int_equal(
            device_host_launch(device, stream, kernel_read, &kernel, (void *)(uintptr_t)address),
            KVT_OK);
        assert_int_equal(kvt_lease_release_after(hbm.store, lease, 0, stream), KVT_OK);
        hbm_close();
        assert_true(payload_is_right(kernel.seen, HBM_BLOCK_BYTES, 1, &version));
        hbm_open_again();
    }
}

/* Nothing but an event is under way. Leases hold all of HOST, so that there will be no room. */
static void
who_waits_for_room_is_told_when_an_event_was_all_that_was_under_way(void **state)
{
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    struct payload_key name;
    uint8_t bytes[64];
    struct kvt_get get = {.destination = bytes, .capacity = sizeof(bytes)};
    struct kvt_put put = {
        .length = HBM_BLOCK_BYTES, .source = hbm_pool_at(0), .region = hbm.region};
    struct kvt_submit submit = {0};
    kvt_lease leases[HBM_POOL_BLOCKS];
    kvt_ticket *behind_event, *ticket;
    _Atomic bool may_go = false;
    enum kvt_status status;
    uint32_t count = 0;
    void *stream;

    (void)state;
    while (kit_put(hbm.store, hbm.ns, count, 1, HBM_BLOCK_BYTES, KVT_MEMORY) == KVT_OK) {
        assert_true(count < HBM_POOL_BLOCKS);
        payload_key_make(&name, count);
        assert_int_equal(
            kvt_lookup(hbm.store, hbm.ns, &name.key, 1, NULL, NULL, &leases[count++]), KVT_OK);
    }
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    assert_int_equal(device->ops->event_create(device, &submit.wait_event), KVT_OK);
    hbm_stream_hold(device, stream, hbm_pool_at(0), &may_go);
    assert_int_equal(device->ops->event_record(device, submit.wait_event, stream), KVT_OK);
    payload_key_make(&name, 10000); /* Not there. */
    get.key = name.key;
    assert_int_equal(kvt_get_submit(hbm.store, hbm.ns, &get, 1, &submit, &behind_event), KVT_OK);
    payload_key_make(&name, 20000);
    put.key = name.key;
    assert_int_equal(kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_MEMORY, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, 1, A_WHILE_NS), KVT_LATE);
    atomic_store(&may_go, true);
    assert_int_equal(hbm_finish(behind_event, 1).status, KVT_MISS);
    status = kvt_ticket_wait(ticket, 1, PATIENCE_NS);
    for (uint32_t i = 0; i < count; i++)
        kvt_lease_release(hbm.store, leases[i]);
    assert_int_equal(status, KVT_OK);
    assert_int_equal(hbm_finish(ticket, 1).status, KVT_E_NOSPC);
    device->ops->event_destroy(device, submit.wait_event);
    device_host_stream_destroy(device, stream);
}

/* --- A device that is not well ---------------------------------------------------------------- */

static struct {
    struct kvt_device_ops ops; /* The emulation's, but for this: */
    void *stream;              /* What is recorded here ... */
    void *_Atomic event;       /* ... last; it cannot be asked ... */
    atomic_uint fail_count;    /* ... so many times. */
    atomic_int copy_status;    /* Not KVT_OK: of all copies, none of which begins. */
    atomic_bool keeps_all;     /* Copies to the host fail. */
    void *_Atomic never;       /* An event that is not reached. */
    bool is_aborted;
    void *left; /* By the program: an event. */
} ill;

static enum kvt_status
ill_record(struct device *device, void *event, void *stream)
{
    if (stream == ill.stream)
        atomic_store(&ill.event, event);
    return device_host_ops.event_record(device, event, stream);
}

static enum kvt_status
ill_query(struct device *device, void *event)
{
    if (event == atomic_load(&ill.never))
        return KVT_NOT_READY;
    if (event == atomic_load(&ill.event) && atomic_load(&ill.fail_count) > 0) {
        atomic_fetch_sub(&ill.fail_count, 1);
        return KVT_E_NOMEM;
    }
    return device_host_ops.event_query(device, event);
}

static enum kvt_status
ill_copy(struct device *device, void *stream, const struct device_piece *pieces, uint32_t count)
{
    if (atomic_load(&ill.copy_status) != KVT_OK)
        return (enum kvt_status)atomic_load(&ill.copy_status);
    if (atomic_load(&ill.keeps_all) && ((uintptr_t)pieces[0].target & DEVICE_HOST_BIT) == 0)
        return KVT_E_NOMEM;
    return device_host_ops.copy(device, stream, pieces, count);
}

static enum kvt_status
ill_open(void *context, const struct kvt_env *env, uint32_t ordinal, struct device **device_out)
{
    enum kvt_status status = device_host_ops.open(context, env, ordinal, device_out);

    if (status == KVT_OK)
        (*device_out)->ops = &ill.ops;
    return status;
}

/* What an aborted program would do at its end: then nobody uses the memory any more. */
static void
ill_close(struct device *device)
{
    if (ill.is_aborted) {
        device_host_memory_put(device, hbm.pool, HBM_POOL_BLOCKS * HBM_BLOCK_BYTES);
        device_host_ops.event_destroy(device, ill.left);
    }
    device_host_ops.close(device);
}

static struct device *
ill_begin(void)
{
    hbm_close();
    memset(&ill, 0, sizeof(ill));
    ill.ops = device_host_ops;
    ill.ops.open = ill_open;
    ill.ops.close = ill_close;
    ill.ops.event_record = ill_record;
    ill.ops.event_query = ill_query;
    ill.ops.copy = ill_copy;
    hbm.env.device = &ill.ops;
    hbm_open_again();
    return hbm_device(hbm.store->devices.tiers[0]);
}

/* The event behind a stream's work cannot be asked for a while: that is no answer. */
static void
a_lease_goes_on_while_its_event_cannot_be_asked(void **state)
{
    struct device *device = ill_begin();
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

static void
put_joins_what_cannot_be_brought_down(enum kvt_status copied, enum kvt_status wanted)
{
    struct payload_key name;
    struct kvt_put put = {.length = HBM_BLOCK_BYTES, .tier = KVT_TIER_HBM};
    enum kvt_status status;
    kvt_ticket *ticket;

    (void)ill_begin();
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
    payload_key_make(&name, 1);
    put.key = name.key;
    put.source = hbm_pool_at(1);
    put.region = hbm.region;
    atomic_store(&ill.copy_status, copied);
    assert_int_equal(kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_SYNC, NULL, &ticket), KVT_OK);
    status = kvt_ticket_wait(ticket, 2, PATIENCE_NS);
    atomic_store(&ill.copy_status, KVT_OK);
    assert_int_equal(hbm_finish(ticket, 2).status, status == KVT_OK ? wanted : KVT_OK);
    assert_int_equal(status, KVT_OK);
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
    return hbm_finish(ticket, 1).status;
}

/* HBM fills up, because nothing can leave it: that has an end, and so has who wants room. */
static void
who_wants_room_that_no_copy_can_make_is_told(void **state)
{
    enum kvt_status status = KVT_OK;
    kvt_ticket *late = NULL;
    uint64_t count = 0;

    (void)state;
    (void)ill_begin();
    atomic_store(&ill.keeps_all, true);
    while (status == KVT_OK && count < HBM_POOL_BLOCKS)
        status = put_in_time(count++, &late);
    atomic_store(&ill.keeps_all, false);
    if (late != NULL)
        (void)hbm_finish(late, 1);
    assert_int_equal(status, KVT_E_NOMEM);
    assert_int_equal(hbm_stats().hbm_drop_count, 0);
    /* The device is well again, and has its rest. */
    while ((status = hbm_put(1000, 1, KVT_TIER_HBM, KVT_MEMORY, 0)) == KVT_E_NOMEM)
        sched_yield();
    assert_int_equal(status, KVT_OK);
    assert_int_equal(hbm_get(1000, 1, true, NULL), KVT_OK);
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
    struct device *device = ill_begin();
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
    ill.left = submit.wait_event;
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
    assert_int_equal(hbm_finish(tickets[1], 1).status, KVT_CANCELLED);
    ill.is_aborted = true;
    assert_int_equal(pthread_create(&thread, NULL, abort_run, &is_over), 0);
    for (uint32_t i = 0; i < PATIENCE_NS / tick.tv_nsec && !atomic_load(&is_over); i++)
        nanosleep(&tick, NULL);
    was_over = atomic_load(&is_over);
    atomic_store(&ill.never, NULL); /* It comes after all. */
    pthread_join(thread, NULL);
    hbm.store = NULL;
    assert_true(was_over);
}

/* --- What must be noticed --------------------------------------------------------------------- */

static void
a_copy_that_changed_in_hbm_is_no_hit(void **state)
{
    struct payload_key name;
    uint8_t bytes[16] = {1, 2, 3};
    const void *address;
    uint64_t length;
    kvt_lease lease;

    (void)state;
    hbm_close();
    hbm.options.policy = KVT_POLICY_LRU; /* Copies of what HBM holds too go in their turn. */
    hbm_open_again();
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HOST, KVT_SYNC, 0), KVT_OK);
    assert_int_equal(hbm_demote(1, KVT_TIER_NVME), KVT_OK);
    assert_int_equal(hbm_prefetch(1, KVT_TIER_HBM, 0), KVT_OK);
    /* HOST's copy goes; that in HBM is overwritten by a kernel that has no right to. */
    payload_key_make(&name, 1);
    assert_int_equal(kvt_lookup(hbm.store, hbm.ns, &name.key, 1, NULL, NULL, &lease), KVT_OK);
    assert_int_equal(
        kvt_lease_address(hbm.store, lease, 0, KVT_TIER_HBM, &address, &length), KVT_OK);
    kvt_lease_release(hbm.store, lease);
    assert_int_equal(
        kvt_device_write(hbm.store, 0, (void *)(uintptr_t)address, bytes, sizeof(bytes)), KVT_OK);
    for (uint64_t i = 0; i < 1000 && hbm_tiers_of(1) != (KVT_TIER_HBM | KVT_TIER_NVME); i++)
        (void)kit_put(hbm.store, hbm.ns, 1000 + i, 1, KIT_BLOCK_BYTES_MAX, KVT_MEMORY);
    assert_int_equal(hbm_tiers_of(1), KVT_TIER_HBM | KVT_TIER_NVME);
    assert_int_equal(hbm_get(1, 1, false, NULL), KVT_MISS);
    assert_int_equal(hbm_stats().corrupt_count, 1);
}

static void
a_region_in_use_is_not_given_back(void **state)
{
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    _Atomic bool may_go = false;
    struct payload_key name;
    void *stream, *event;
    struct kvt_submit submit = {0};
    struct kvt_put put = {.length = HBM_BLOCK_BYTES, .tier = KVT_TIER_HBM, .region = hbm.region};
    kvt_ticket *ticket;

    (void)state;
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    assert_int_equal(device->ops->event_create(device, &event), KVT_OK);
    payload_key_make(&name, 1);
    put.key = name.key;
    put.source = hbm_pool_at(0);
    hbm_stream_hold(device, stream, hbm_pool_at(0), &may_go);
    assert_int_equal(device->ops->event_record(device, event, stream), KVT_OK);
    submit.wait_event = event;
    assert_int_equal(
        kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_MEMORY, &submit, &ticket), KVT_OK);
    refused(kvt_region_unregister(hbm.store, hbm.region), KVT_E_STATE, "under way");
    atomic_store(&may_go, true);
    assert_int_equal(hbm_finish(ticket, 1).status, KVT_OK);
    device->ops->event_destroy(device, event);
    device_host_stream_destroy(device, stream);
}

/* --- Refusals --------------------------------------------------------------------------------- */

static void
what_makes_no_sense_is_refused(void **state)
{
    struct payload_key name;
    uint8_t bytes[HBM_BLOCK_BYTES] = {0};
    struct kvt_put put = {.source = bytes, .length = HBM_BLOCK_BYTES, .tier = KVT_TIER_HBM};
    struct kvt_region_options about = {.struct_size = sizeof(about),
        .tier = KVT_TIER_HBM,
        .address = hbm.pool,
        .size = 1,
        .device = 1};
    struct kvt_submit submit = {.wait_event = bytes, .wait_device = 1};
    struct kvt_prefetch how = {.struct_size = sizeof(how), .tier = KVT_TIER_NVME};
    kvt_region other;
    kvt_ticket *ticket;

    (void)state;
    payload_key_make(&name, 1);
    put.key = name.key;
#define PUT(word) \
    refused(      \
        kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_MEMORY, NULL, &ticket), KVT_E_INVAL, word)
    PUT("region");
    put.region = hbm.region;
    PUT("do not lie");
    put.source = hbm_pool_at(HBM_POOL_BLOCKS - 1);
    put.length = HBM_BLOCK_BYTES + 1;
    PUT("do not lie");
    put.length = HBM_BLOCK_BYTES;
    put.device = 1;
    PUT("device 1");
    put.device = 0;
    put.tier = KVT_TIER_NVME;
    PUT("tier");
    put.tier = KVT_TIER_HBM;
    put.region.id += 1u << 20;
    PUT("region");
#undef PUT
    put.region = hbm.region;
    refused(kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_MEMORY, &submit, &ticket), KVT_E_INVAL,
        "wait_device");
    refused(kvt_region_register(hbm.store, &about, &other), KVT_E_INVAL, "device 1");
    about.device = 0;
    about.reserved0 = 1;
    refused(kvt_region_register(hbm.store, &about, &other), KVT_E_INVAL, "reserved0");
    about.reserved0 = 0;
    about.tier = KVT_TIER_HOST;
    about.address = (void *)(uintptr_t)4096;
    about.size = (UINT64_C(1) << 30) + 4096;
    refused(kvt_region_register(hbm.store, &about, &other), KVT_E_INVAL, "1 GiB");
    about.struct_size = 1;
    refused(kvt_region_register(hbm.store, &about, &other), KVT_E_INVAL, "struct_size");
    refused(kvt_prefetch_submit(hbm.store, hbm.ns, &name.key, 1, &how, NULL, &ticket), KVT_E_INVAL,
        "tier");
    how.tier = KVT_TIER_HBM;
    how.device = 5;
    refused(kvt_prefetch_submit(hbm.store, hbm.ns, &name.key, 1, &how, NULL, &ticket), KVT_E_INVAL,
        "device 5");
    refused(kvt_demote_submit(hbm.store, hbm.ns, &name.key, 1, KVT_TIER_HBM, NULL, &ticket),
        KVT_E_INVAL, "tier");
    /* Nothing of this was kept: the hbm.region can go. */
    assert_int_equal(kvt_region_unregister(hbm.store, hbm.region), KVT_OK);
    refused(kvt_region_unregister(hbm.store, hbm.region), KVT_E_INVAL, "stale");
    hbm.region.id = 0;
}

/* --- A lost device ---------------------------------------------------------------------------- */

static void
a_lost_device_costs_what_only_it_held(void **state)
{
    struct payload_key name;
    const void *address;
    uint64_t length;
    kvt_lease lease;
    uint32_t health = 0;
    uint32_t tier = 0;

    (void)state;
    assert_int_equal(hbm_put(1, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
    assert_int_equal(hbm_put(5, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
    payload_key_make(&name, 5);
    assert_int_equal(kvt_lookup(hbm.store, hbm.ns, &name.key, 1, NULL, NULL, &lease), KVT_OK);
    assert_int_equal(hbm_put(2, 1, KVT_TIER_HBM, KVT_SYNC, 0), KVT_OK);
    hbm.config.fail_call = atomic_load(&hbm.config.call_count) + 1;
    assert_int_equal(hbm_get(2, 1, false, &tier), KVT_OK); /* Needs no device. */
    assert_int_equal(hbm_prefetch(1, KVT_TIER_HOST, 0), KVT_MISS);
    assert_int_equal(kvt_health(hbm.store, &health), KVT_OK);
    assert_true((health & KVT_HEALTH_GPU_LOST) != 0);
    assert_int_equal(hbm_tiers_of(1), 0);
    assert_int_equal(hbm_tiers_of(2), KVT_TIER_HOST | KVT_TIER_NVME);
    /* A leased copy cannot be given up yet; but it is worth nothing. */
    assert_int_equal(hbm_tiers_of(5), 0);
    refused(
        kvt_lease_address(hbm.store, lease, 0, KVT_TIER_HBM, &address, &length), KVT_E_GPU, "lost");
    kvt_lease_release(hbm.store, lease);
    /* The slot that block 1 was on its way to may still be written. */
    assert_int_equal(hbm_stats().slot_stranded_count, 1);
    assert_int_equal(hbm_get(1, 1, false, NULL), KVT_MISS);
    assert_int_equal(hbm_get(2, 1, false, &tier), KVT_OK);
    assert_int_equal(kit_put(hbm.store, hbm.ns, 3, 1, HBM_BLOCK_BYTES, KVT_SYNC), KVT_OK);
    hbm_close();
    hbm.config.fail_call = 0;
    hbm_open_again();
    assert_int_equal(hbm_get(2, 1, true, NULL), KVT_OK);
    assert_int_equal(hbm_get(3, 1, true, NULL), KVT_OK);
    assert_int_equal(hbm_get(1, 1, true, NULL), KVT_MISS);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, hbm_setup, hbm_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_put_waits_for_the_event_of_what_fills_its_source),
        TEST(a_put_whose_event_does_not_come_can_be_cancelled),
        TEST(a_leased_copy_stays_until_the_stream_has_read_it),
        TEST(a_store_can_be_closed_while_a_stream_reads_what_was_given_back),
        TEST(who_waits_for_room_is_told_when_an_event_was_all_that_was_under_way),
        TEST(a_lease_goes_on_while_its_event_cannot_be_asked),
        TEST(a_put_that_joins_a_block_that_cannot_be_brought_down_is_told),
        TEST(a_put_that_joins_a_block_that_no_memory_brings_down_is_told),
        TEST(who_wants_room_that_no_copy_can_make_is_told),
        TEST(an_abort_does_not_wait_for_events_of_tickets),
        TEST(a_copy_that_changed_in_hbm_is_no_hit),
        TEST(a_region_in_use_is_not_given_back),
        TEST(what_makes_no_sense_is_refused),
        TEST(a_lost_device_costs_what_only_it_held),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
