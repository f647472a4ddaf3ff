/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_device_cuda_foreign.c - what errors of CUDA cost that are not the device's: of handles and
 * memory of callers. CUDA is played by cuda_play.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cuda_play.h"
#include "device_cuda.h"
#include "device_cuda_internal.h"
#include "device_share.h"
#include "failure.h"
#include "stop_on_proof.h"

enum {
    SLAB_BYTES = 2 << 20,
};

static const struct kvt_device_ops *const ops = &device_cuda_ops;

static struct {
    struct kvt_env env;
    struct device *device;
    void *stream; /* A caller's, as the next two. */
    void *memory; /* Of the device. */
    void *pages;  /* Of the host, not registered. */
    void *event;
    uint8_t *slab;
    uint8_t *host; /* Registered. */
} rig;

static int
setup(void **state)
{
    (void)state;
    play_begin();
    memset(&rig, 0, sizeof(rig));
    env_host(&rig.env);
    assert_int_equal(ops->open(NULL, &rig.env, 1, &rig.device), KVT_OK);
    rig.stream = play_hold(64);
    memset(rig.stream, 0, 64);
    rig.memory = play_hold(SLAB_BYTES);
    rig.pages = env_map(&rig.env, SLAB_BYTES);
    rig.host = env_map(&rig.env, SLAB_BYTES);
    assert_true(rig.pages != NULL && rig.host != NULL);
    assert_int_equal(ops->slab_take(rig.device, SLAB_BYTES, (void **)&rig.slab), KVT_OK);
    assert_int_equal(ops->host_register(rig.device, rig.host, SLAB_BYTES), KVT_OK);
    assert_int_equal(ops->event_create(rig.device, &rig.event), KVT_OK);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    ops->event_destroy(rig.device, rig.event);
    if (ops->host_unregister(rig.device, rig.host, SLAB_BYTES) == KVT_OK)
        env_unmap(&rig.env, rig.host, SLAB_BYTES);
    env_unmap(&rig.env, rig.pages, SLAB_BYTES);
    ops->slab_put(rig.device, rig.slab, SLAB_BYTES);
    (void)play_hold_end(rig.memory);
    (void)play_hold_end(rig.stream);
    ops->close(rig.device);
    play_judge();
    return 0;
}

/* --- 1. Calls with what is the caller's ------------------------------------------------------- */

static enum kvt_status
query(void)
{
    return ops->event_query(rig.device, rig.event);
}

static enum kvt_status
record(void)
{
    return ops->event_record(rig.device, rig.event, rig.stream);
}

static enum kvt_status
wait(void)
{
    return ops->stream_wait(rig.device, rig.stream, rig.event);
}

static enum kvt_status
wait_word(void)
{
    return ops->stream_wait_word(
        rig.device, rig.stream, (const _Atomic uint32_t *)(const void *)rig.host, 0);
}

static enum kvt_status
share_write(void)
{
    return ops->share->word_write(rig.device, rig.stream, (uint64_t *)(void *)rig.host, 1);
}

static enum kvt_status
share_wait(void)
{
    return ops->share->word_wait(rig.device, rig.stream, (uint64_t *)(void *)rig.host, 1);
}

/* The caller's stream is looked at before anything is queued. */
static enum kvt_status
copy(void)
{
    const struct device_piece piece = {rig.slab, rig.host, 4096};

    return ops->copy(rig.device, rig.stream, &piece, 1);
}

static enum kvt_status
gather(void)
{
    const struct device_gather work = {.ids = (const uint32_t *)(const void *)rig.host,
        .count = 1,
        .pages = rig.host,
        .row_count = 1,
        .rows_per_page = 1,
        .row_bytes = 64,
        .target = rig.slab,
        .verdict = (uint64_t *)(void *)(rig.slab + 4096)};

    return ops->gather(rig.device, rig.stream, &work);
}

static enum kvt_status
memory_register(void)
{
    enum kvt_status status = ops->memory_register(rig.device, rig.memory, SLAB_BYTES);

    if (status == KVT_OK)
        ops->memory_unregister(rig.device, rig.memory, SLAB_BYTES);
    return status;
}

static enum kvt_status
host_register(void)
{
    enum kvt_status status = ops->host_register(rig.device, rig.pages, SLAB_BYTES);

    if (status == KVT_OK)
        status = ops->host_unregister(rig.device, rig.pages, SLAB_BYTES);
    return status;
}

/* That somebody else has pinned. */
static enum kvt_status
pinned_register(void)
{
    enum kvt_status status;

    play.is_pinned_already = true;
    status = host_register();
    play.is_pinned_already = false;
    return status;
}

static const struct {
    const char *name;
    enum kvt_status (*run)(void);
    uint32_t at[4]; /* Which calls of CUDA have something of the caller's. */
    const char *said;
    bool is_of_event; /* Of a lost device it goes on. */
} calls[] = {
    {"query", query, {1}, "query an event", true},
    {"record", record, {1, 2}, "a", true},
    {"wait", wait, {1, 2}, "a stream", false},
    {"wait_word", wait_word, {1, 3}, "a stream", false},
    {"share_write", share_write, {2, 3}, "a stream", false},
    {"share_wait", share_wait, {2, 3}, "a stream", false},
    {"copy", copy, {1}, "look at a stream", false},
    {"gather", gather, {1}, "look at a stream", false},
    {"memory_register", memory_register, {1, 2}, "look at memory", false},
    {"host_register", host_register, {1}, "register host memory", false},
    {"pinned_register", pinned_register, {2, 3}, "look at memory", false},
};

/* The n-th call of CUDA from now on fails. */
static void
play_fails(uint32_t n, cudaError_t error, bool is_passing)
{
    play.fail_call = play.call_count + n;
    play.fail_with = error;
    play.is_passing = is_passing;
    play.look_count = 0;
}

static void
device_is_whole(void)
{
    const struct device_piece piece = {rig.slab, rig.host, 4096};
    struct device_info info;

    memset(rig.slab, 0, 4096);
    memset(rig.host, 7, 4096);
    assert_int_equal(ops->copy(rig.device, ops->stream(rig.device, DEVICE_IN), &piece, 1), KVT_OK);
    assert_memory_equal(rig.slab, rig.host, 4096);
    assert_int_equal(ops->info(rig.device, &info), KVT_OK);
}

static void
call_fails(size_t i, uint32_t at, cudaError_t error)
{
    char number[16];
    enum kvt_status status;

    play_fails(at, error, true);
    failure_clear();
    status = calls[i].run();
    if (play.look_count != 1 || status != KVT_E_INVAL)
        fail_msg("%s, call %u: %s, %u looks", calls[i].name, at, kvt_status_name(status),
            play.look_count);
    (void)snprintf(number, sizeof(number), ", %d)", (int)error);
    assert_int_equal(failure_last()->status, KVT_E_INVAL);
    assert_int_equal(failure_last()->foreign_code, (int)error);
    assert_non_null(strstr(failure_last()->text, calls[i].said));
    assert_non_null(strstr(failure_last()->text, number));
    device_is_whole();
    /* It was for once. */
    status = calls[i].run();
    if (status != KVT_NOT_READY)
        assert_int_equal(status, KVT_OK);
}

/* What CUDA 13.0 says of an event that was destroyed (seen on an H100); and what nobody knows. */
static void
what_is_no_handle_costs_its_call_alone(void **state)
{
    static const cudaError_t errors[] = {cudaErrorContextIsDestroyed, cudaErrorDeviceUninitialized,
        cudaErrorUnknown, (cudaError_t)12345};

    (void)state;
    /* What is asked for once only is known by then. */
    assert_int_equal(share_write(), KVT_OK);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        for (size_t k = 0; k < sizeof(errors) / sizeof(errors[0]); k++) {
            for (uint32_t n = 0; n < 4 && calls[i].at[n] != 0; n++)
                call_fails(i, calls[i].at[n], errors[k]);
        }
    }
    /* Also of a device that has work. */
    play.is_stuck = true;
    play_fails(1, cudaErrorContextIsDestroyed, true);
    assert_int_equal(query(), KVT_E_INVAL);
    play.is_stuck = false;
    device_is_whole();
}

static void
an_error_that_stays_loses_the_device_in_every_call(void **state)
{
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        for (uint32_t n = 0; n < 4 && calls[i].at[n] != 0; n++) {
            assert_int_equal(share_write(), KVT_OK);
            play_fails(calls[i].at[n], cudaErrorIllegalAddress, false);
            assert_int_equal(calls[i].run(), KVT_E_GPU);
            assert_int_equal(play.look_count, 1);
            assert_true(cuda_is_lost(device_cuda_of(rig.device)));
            /* Nobody is asked any more, but for events. */
            assert_int_equal(calls[i].run(), KVT_E_GPU);
            assert_int_equal(play.look_count, calls[i].is_of_event ? 2 : 1);
            assert_int_equal(teardown(state), 0);
            assert_int_equal(setup(state), 0);
        }
    }
}

/* What a copy has begun nobody knows, so it is not asked. */
static void
an_error_of_a_copy_loses_the_device(void **state)
{
    (void)state;
    play_fails(2, cudaErrorContextIsDestroyed, true);
    assert_int_equal(copy(), KVT_E_GPU);
    assert_int_equal(play.look_count, 0);
    assert_true(cuda_is_lost(device_cuda_of(rig.device)));
    play.is_lost = true;
}

/* Streams of callers go on there, and use memory of the host. */
static void
events_of_a_device_that_only_we_call_lost_go_on(void **state)
{
    void *event = NULL;

    (void)state;
    play_fails(2, cudaErrorContextIsDestroyed, true);
    assert_int_equal(copy(), KVT_E_GPU);
    assert_true(cuda_is_lost(device_cuda_of(rig.device)));
    assert_int_equal(ops->event_create(rig.device, &event), KVT_OK);
    assert_int_equal(ops->event_record(rig.device, event, rig.stream), KVT_OK);
    play.is_stuck = true;
    assert_int_equal(ops->event_query(rig.device, event), KVT_NOT_READY);
    /* Nor is what nobody knows an answer, while its stream does not stand still. */
    play_fails(1, cudaErrorUnknown, true);
    assert_int_equal(ops->event_query(rig.device, event), KVT_E_INVAL);
    play.is_stuck = false;
    assert_int_equal(ops->event_query(rig.device, event), KVT_OK);
    ops->event_destroy(rig.device, event);
    assert_int_equal(copy(), KVT_E_GPU);
    play.is_lost = true; /* What else it holds is left to the driver. */
}

/* A lease that a stream still reads ends where an event's making says that no stream goes on. */
static void
an_event_that_cannot_be_made_costs_no_device(void **state)
{
    static const cudaError_t errors[] = {
        cudaErrorOperatingSystem, cudaErrorUnknown, cudaErrorMemoryAllocation};
    void *event = &event;

    (void)state;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        play_fails(1, errors[i], true);
        failure_clear();
        assert_int_equal(ops->event_create(rig.device, &event), KVT_E_NOMEM);
        assert_int_equal(failure_last()->status, KVT_E_NOMEM);
        assert_int_equal(failure_last()->foreign_code, (int)errors[i]);
        assert_null(event);
        device_is_whole();
    }
    play_fails(1, cudaErrorIllegalAddress, false);
    assert_int_equal(ops->event_create(rig.device, &event), KVT_E_GPU);
    assert_true(cuda_is_lost(device_cuda_of(rig.device)));
}

/* 304: the kernel does not pin pages of this file, say, or no more of them. */
static void
memory_that_cannot_be_pinned_costs_no_device(void **state)
{
    (void)state;
    play_fails(1, cudaErrorOperatingSystem, true);
    failure_clear();
    assert_int_equal(host_register(), KVT_E_NOMEM);
    assert_int_equal(failure_last()->status, KVT_E_NOMEM);
    assert_non_null(strstr(failure_last()->text, "pin host memory"));
    assert_non_null(strstr(failure_last()->text, ", 304)"));
    assert_int_equal(play.look_count, 0);
    device_is_whole();
    assert_int_equal(host_register(), KVT_OK);
}

/* Its caller has unmapped it, say: it is told that the pages stay with the device, which works. */
static void
memory_that_cuda_does_not_let_go_of_costs_no_device(void **state)
{
    (void)state;
    assert_int_equal(ops->host_register(rig.device, rig.pages, SLAB_BYTES), KVT_OK);
    play_fails(1, cudaErrorOperatingSystem, true);
    assert_int_equal(ops->host_unregister(rig.device, rig.pages, SLAB_BYTES), KVT_E_GPU);
    assert_non_null(strstr(failure_last()->text, "until the process ends"));
    assert_int_equal(play.look_count, 1);
    device_is_whole();
    rig.pages = NULL;
}

/* --- 2. Peers --------------------------------------------------------------------------------- */

/* Of another store, say: what its device says is not this one's. */
static void
a_peer_that_is_not_reached_costs_no_device(void **state)
{
    static const struct {
        uint32_t call; /* Whether it is in reach, reach it, memory to try it with. */
        cudaError_t error;
        enum kvt_status status;
        uint32_t look_count;
    } cases[] = {
        {2, cudaErrorTooManyPeers, KVT_E_UNSUPPORTED, 0},
        {2, cudaErrorPeerAccessUnsupported, KVT_E_UNSUPPORTED, 0},
        {2, cudaErrorPeerAccessAlreadyEnabled, KVT_OK, 0},
        {1, cudaErrorDevicesUnavailable, KVT_E_INVAL, 1},
        {2, cudaErrorDevicesUnavailable, KVT_E_INVAL, 1},
        {3, cudaErrorMemoryAllocation, KVT_E_NOMEM, 0},
        {0, cudaSuccess, KVT_OK, 0},
    };
    struct device *other;
    struct device_piece piece = {.target = rig.slab, .size = 4096};
    void *stream = ops->stream(rig.device, DEVICE_IN);
    void *slab;
    bool is_faster;

    (void)state;
    assert_int_equal(ops->open(NULL, &rig.env, 1, &other), KVT_OK);
    assert_int_equal(ops->slab_take(other, SLAB_BYTES, &slab), KVT_OK);
    device_cuda_of(other)->ordinal = 0; /* The play has one device that can be opened. */
    play.has_peer = true;
    piece.source = slab;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        enum kvt_status status;

        play_fails(cases[i].call, cases[i].error, true);
        failure_clear();
        status = ops->peer_register(rig.device, other, slab, SLAB_BYTES, &is_faster);
        assert_int_equal(status, cases[i].status);
        assert_int_equal(failure_last()->status, status);
        assert_int_equal(play.look_count, cases[i].look_count);
        assert_int_equal(
            ops->copy(rig.device, stream, &piece, 1), status == KVT_OK ? KVT_OK : KVT_E_INVAL);
        if (status == KVT_OK)
            ops->peer_unregister(rig.device, slab, SLAB_BYTES);
        device_is_whole();
    }
    device_cuda_of(other)->ordinal = 1;
    ops->slab_put(other, slab, SLAB_BYTES);
    ops->close(other);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_is_no_handle_costs_its_call_alone),
        TEST(an_error_that_stays_loses_the_device_in_every_call),
        TEST(memory_that_cannot_be_pinned_costs_no_device),
        TEST(memory_that_cuda_does_not_let_go_of_costs_no_device),
        TEST(an_error_of_a_copy_loses_the_device),
        TEST(an_event_that_cannot_be_made_costs_no_device),
        TEST(events_of_a_device_that_only_we_call_lost_go_on),
        TEST(a_peer_that_is_not_reached_costs_no_device),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
