/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_device_cuda_calls.c - which calls the CUDA device makes: the runtime's functions are played
 * by cuda_play.c (so the real ones are not linked).
 *
 * What a GPU does with these calls only tests/gpu/gpu_device.c can tell.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda_play.h"
#include "device_checks.h"
#include "device_cuda.h"
#include "device_cuda_internal.h"
#include "failure.h"
#include "stop_on_proof.h"

/* --- 1. The second device, so that a mistake for device 0 shows ------------------------------- */

struct bench {
    struct kvt_env env;
    struct device_rig rig;
};

static void
pass_at_once(struct device_rig *rig)
{
    (void)rig;
}

static enum kvt_status
own_memory_take(struct device *device, uint64_t size, void **memory_out)
{
    (void)device;
    *memory_out = play_hold(size);
    return KVT_OK;
}

static void
own_memory_put(struct device *device, void *memory, uint64_t size)
{
    (void)device;
    (void)size;
    (void)play_hold_end(memory);
}

static void
bench_init(struct bench *bench)
{
    play_begin();
    env_host(&bench->env);
    bench->rig = (struct device_rig){.ops = &device_cuda_ops,
        .env = &bench->env,
        .ordinal = 1,
        .pass = pass_at_once,
        .memory_take = own_memory_take,
        .memory_put = own_memory_put};
}

static void
bench_open(struct bench *bench)
{
    bench_init(bench);
    assert_true(device_rig_open(&bench->rig));
}

static void
bench_close(struct bench *bench)
{
    device_rig_close(&bench->rig);
    play_judge();
}

static void
list_of_all_devices_passes(void **state)
{
    (void)state;
    for (size_t i = 0; i < DEVICE_CHECK_COUNT; i++) {
        struct bench bench;

        bench_init(&bench);
        if (!device_check_fits(&device_checks[i], &bench.rig))
            continue;
        if (!device_check_run(&device_checks[i], &bench.rig))
            fail_msg("%s", device_checks[i].name);
        play_judge();
    }
}

static void
managed_memory_and_that_of_other_devices_are_refused(void **state)
{
    struct bench bench;
    void *memory = NULL;

    (void)state;
    bench_open(&bench);
    memory = play_hold(4096);
    play.foreign_type = cudaMemoryTypeManaged;
    assert_int_equal(device_cuda_ops.memory_register(bench.rig.device, memory, 4096), KVT_E_INVAL);
    play.foreign_type = cudaMemoryTypeDevice;
    /* One byte too many. */
    assert_int_equal(device_cuda_ops.memory_register(bench.rig.device, memory, 4097), KVT_E_INVAL);
    assert_int_equal(device_cuda_ops.memory_register(bench.rig.device, memory, 4096), KVT_OK);
    device_cuda_ops.memory_unregister(bench.rig.device, memory, 4096);
    (void)play_hold_end(memory);
    bench_close(&bench);
}

/* As torch pins memory, or another device of the store: it is used, and stays as it is. */
static void
memory_that_somebody_else_pinned_is_used_and_left_so(void **state)
{
    struct bench bench;
    uint8_t *memory;
    int holds;

    (void)state;
    bench_open(&bench);
    memory = aligned_alloc(4096, RIG_CHUNK_BYTES);
    assert_non_null(memory);
    holds = play.holds;
    play.is_pinned_already = true;
    assert_int_equal(
        device_cuda_ops.host_register(bench.rig.device, memory, RIG_CHUNK_BYTES), KVT_OK);
    device_rig_fill(memory, 4096, 1);
    assert_int_equal(
        device_rig_copy(&bench.rig, bench.rig.in, bench.rig.slab, memory, 4096), KVT_OK);
    assert_true(device_rig_is_filled(bench.rig.slab, 4096, 1));
    device_cuda_ops.host_unregister(bench.rig.device, memory, RIG_CHUNK_BYTES);
    assert_int_equal(play.holds, holds);
    /* Only half of it is pinned. */
    play.pinned_end = memory + RIG_CHUNK_BYTES / 2;
    assert_int_equal(
        device_cuda_ops.host_register(bench.rig.device, memory, RIG_CHUNK_BYTES), KVT_E_INVAL);
    assert_int_equal(
        device_rig_copy(&bench.rig, bench.rig.in, bench.rig.slab, memory, 4096), KVT_E_INVAL);
    play.is_pinned_already = false;
    free(memory);
    bench_close(&bench);
}

static void
hole_in_memory_that_somebody_else_pinned_is_found(void **state)
{
    struct bench bench;
    uint8_t *memory;

    (void)state;
    bench_open(&bench);
    memory = aligned_alloc(RIG_CHUNK_BYTES, 3 * RIG_CHUNK_BYTES);
    assert_non_null(memory);
    play.is_pinned_already = true;
    play.hole = memory + RIG_CHUNK_BYTES;
    assert_int_equal(
        device_cuda_ops.host_register(bench.rig.device, memory, 3 * RIG_CHUNK_BYTES), KVT_E_INVAL);
    assert_int_equal(
        device_cuda_ops.host_register(bench.rig.device, memory, RIG_CHUNK_BYTES), KVT_OK);
    assert_int_equal(
        device_cuda_ops.host_unregister(bench.rig.device, memory, RIG_CHUNK_BYTES), KVT_OK);
    play.is_pinned_already = false;
    free(memory);
    bench_close(&bench);
}

/* Two stores of a process: the first to come pins, the last to go unpins, in the context in which
 * it was pinned, whose device is closed by then. */
static void
memory_of_two_stores_is_pinned_until_both_have_let_go(void **state)
{
    struct bench bench;
    struct device_rig other;
    int holds;

    (void)state;
    bench_open(&bench);
    other = bench.rig;
    assert_int_equal(device_cuda_ops.open(NULL, &bench.env, 1, &other.device), KVT_OK);
    holds = play.holds;
    for (uint32_t i = 0; i + 1 < RIG_CHUNK_COUNT; i++)
        assert_int_equal(device_cuda_ops.host_register(other.device,
                             bench.rig.host + (size_t)i * RIG_CHUNK_BYTES, RIG_CHUNK_BYTES),
            KVT_OK);
    assert_int_equal(play.holds, holds);
    device_cuda_ops.event_destroy(bench.rig.device, bench.rig.event);
    bench.rig.event = NULL;
    other.host = bench.rig.host;
    for (uint32_t i = 0; i + 1 < RIG_CHUNK_COUNT; i++)
        assert_int_equal(device_cuda_ops.host_unregister(bench.rig.device,
                             bench.rig.host + (size_t)i * RIG_CHUNK_BYTES, RIG_CHUNK_BYTES),
            KVT_OK);
    bench.rig.host = NULL;
    device_rig_close(&bench.rig);
    assert_int_equal(play.pin_count, RIG_CHUNK_COUNT - 1);
    other.slab = other.slab_other = NULL;
    other.event = NULL;
    device_rig_close(&other);
    assert_int_equal(play.pin_count, 0);
    play_judge();
}

/* --- 2. Copies -------------------------------------------------------------------------------- */

static void
pieces_that_touch_on_both_sides_are_one_run(void **state)
{
    struct bench bench;
    struct device_piece pieces[4];

    (void)state;
    bench_open(&bench);
    for (uint32_t i = 0; i < 4; i++)
        pieces[i] = (struct device_piece){bench.rig.slab + i * 100, bench.rig.host + i * 100, 100};
    device_rig_fill(bench.rig.host, 400, 1);
    assert_int_equal(device_cuda_ops.copy(bench.rig.device, bench.rig.in, pieces, 4), KVT_OK);
    assert_int_equal(play.single_count, 1);
    assert_int_equal(play.batch_count, 0);
    assert_true(device_rig_is_filled(bench.rig.slab, 400, 1));
    /* On one side only: two runs. */
    pieces[2].target = bench.rig.slab + 1000;
    pieces[3].target = bench.rig.slab + 1100;
    assert_int_equal(device_cuda_ops.copy(bench.rig.device, bench.rig.in, pieces, 4), KVT_OK);
    assert_int_equal(play.single_count, 1);
    assert_int_equal(play.batch_count, 1);
    assert_int_equal(play.run_count, 2);
    pieces[2].target = bench.rig.slab + 200;
    pieces[3].target = bench.rig.slab + 300;
    pieces[3].source = bench.rig.host + 2000;
    assert_int_equal(device_cuda_ops.copy(bench.rig.device, bench.rig.in, pieces, 4), KVT_OK);
    assert_int_equal(play.batch_count, 2);
    assert_int_equal(play.run_count, 2);
    bench_close(&bench);
}

static void
run_never_crosses_from_one_registration_to_the_next(void **state)
{
    struct bench bench;
    struct device_piece pieces[2];

    (void)state;
    bench_open(&bench);
    pieces[0] =
        (struct device_piece){bench.rig.slab, bench.rig.host + RIG_CHUNK_BYTES - 4096, 4096};
    pieces[1] =
        (struct device_piece){bench.rig.slab + 4096, bench.rig.host + RIG_CHUNK_BYTES, 4096};
    assert_int_equal(device_cuda_ops.copy(bench.rig.device, bench.rig.in, pieces, 2), KVT_OK);
    assert_int_equal(play.batch_count, 1);
    assert_int_equal(play.run_count, 2);
    bench_close(&bench);
}

static void
stream_that_is_captured_or_the_legacy_one_is_refused(void **state)
{
    struct bench bench;
    int stream;

    (void)state;
    bench_open(&bench);
    assert_int_equal(
        device_rig_copy(&bench.rig, &stream, bench.rig.slab, bench.rig.host, 4096), KVT_OK);
    assert_int_equal(
        device_rig_copy(&bench.rig, cudaStreamLegacy, bench.rig.slab, bench.rig.host, 4096),
        KVT_E_INVAL);
    play.is_stream_captured = true;
    assert_int_equal(
        device_rig_copy(&bench.rig, &stream, bench.rig.slab, bench.rig.host, 4096), KVT_E_INVAL);
    assert_int_equal(
        device_rig_copy(&bench.rig, bench.rig.in, bench.rig.slab, bench.rig.host, 4096), KVT_OK);
    assert_int_equal(play.single_count, 2);
    bench_close(&bench);
}

static void
slab_at_an_odd_place_is_given_back(void **state)
{
    struct bench bench;
    void *slab = NULL;

    (void)state;
    bench_open(&bench);
    play.is_malloc_odd = true;
    assert_int_equal(device_cuda_ops.slab_take(bench.rig.device, 4096, &slab), KVT_E_UNSUPPORTED);
    assert_null(slab);
    play.is_malloc_odd = false;
    bench_close(&bench);
}

/* Part of it may be queued, and nobody can say which. */
static void
batch_that_fails_loses_the_device(void **state)
{
    struct bench bench;
    struct device_piece pieces[2];

    (void)state;
    bench_open(&bench);
    pieces[0] = (struct device_piece){bench.rig.slab, bench.rig.host, 4096};
    pieces[1] = (struct device_piece){bench.rig.slab + 8192, bench.rig.host, 4096};
    play.fail_call = play.call_count + 1;
    play.fail_with = cudaErrorInvalidValue;
    assert_int_equal(device_cuda_ops.copy(bench.rig.device, bench.rig.in, pieces, 2), KVT_E_GPU);
    assert_int_equal(
        device_rig_copy(&bench.rig, bench.rig.in, bench.rig.slab, bench.rig.host, 4096), KVT_E_GPU);
    assert_int_equal(play.call_count, play.fail_call);
    play.is_lost = true;
    bench_close(&bench);
}

static void
batch_lose(struct bench *bench)
{
    struct device_piece pieces[2];

    bench_open(bench);
    assert_int_equal(play.pin_count, RIG_CHUNK_COUNT - 1);
    pieces[0] = (struct device_piece){bench->rig.slab, bench->rig.host, 4096};
    pieces[1] = (struct device_piece){bench->rig.slab + 8192, bench->rig.host, 4096};
    play.fail_call = play.call_count + 1;
    play.fail_with = cudaErrorInvalidValue;
    assert_int_equal(device_cuda_ops.copy(bench->rig.device, bench->rig.in, pieces, 2), KVT_E_GPU);
}

/* The loss is the library's word: CUDA lives on, and what it does is waited for. */
static void
lost_device_lets_go_of_host_memory(void **state)
{
    struct bench bench;
    uint32_t sync_count;

    (void)state;
    batch_lose(&bench);
    sync_count = play.sync_count;
    assert_int_equal(device_cuda_ops.host_unregister(
                         bench.rig.device, bench.rig.host + RIG_CHUNK_BYTES, RIG_CHUNK_BYTES),
        KVT_OK);
    assert_int_equal(play.sync_count, sync_count + DEVICE_LANE_COUNT);
    assert_int_equal(
        device_cuda_ops.host_unregister(bench.rig.device, bench.rig.host, RIG_CHUNK_BYTES), KVT_OK);
    assert_int_equal(device_cuda_ops.host_unregister(
                         bench.rig.device, bench.rig.host + 2 * RIG_CHUNK_BYTES, RIG_CHUNK_BYTES),
        KVT_OK);
    assert_int_equal(play.pin_count, 0);
    env_unmap(&bench.env, bench.rig.host, RIG_HOST_BYTES);
    bench.rig.host = NULL;
    sync_count = play.sync_count;
    device_rig_close(&bench.rig);
    assert_int_equal(play.sync_count, sync_count + DEVICE_LANE_COUNT);
    play.is_lost = true; /* What is the device's own is left to the driver. */
    play_judge();
}

/* An error that stays: the driver does not say that it has stopped. */
static void
host_memory_that_cuda_keeps_is_told(void **state)
{
    struct bench bench;
    struct device *device;
    uint8_t *chunk;

    (void)state;
    batch_lose(&bench);
    play.is_lost = true;
    play.fail_with = cudaErrorIllegalAddress;
    for (uint32_t i = 0; i + 1 < RIG_CHUNK_COUNT; i++) {
        assert_int_equal(device_cuda_ops.host_unregister(bench.rig.device,
                             bench.rig.host + (size_t)i * RIG_CHUNK_BYTES, RIG_CHUNK_BYTES),
            KVT_E_GPU);
        assert_non_null(strstr(failure_last()->text, "until the process ends"));
    }
    assert_int_equal(play.pin_count, RIG_CHUNK_COUNT - 1);
    chunk = bench.rig.host;
    bench.rig.host = NULL;
    bench_close(&bench);
    /* Whatever is there by then: it is not taken for memory that others have pinned. */
    bench_init(&bench);
    play.is_pinned_already = true;
    assert_int_equal(device_cuda_ops.open(NULL, &bench.env, 1, &device), KVT_OK);
    assert_int_equal(device_cuda_ops.host_register(device, chunk, RIG_CHUNK_BYTES), KVT_E_INVAL);
    assert_non_null(strstr(failure_last()->text, "kept by a device that is lost"));
    device_cuda_ops.close(device);
    play_judge();
}

/* Everything else works without. */
static void
stream_waits_for_no_word_that_its_device_cannot_see(void **state)
{
    struct bench bench;
    const _Atomic uint32_t *word;

    (void)state;
    bench_init(&bench);
    play.has_no_words = true;
    assert_true(device_rig_open(&bench.rig));
    word = (const _Atomic uint32_t *)(const void *)bench.rig.host;
    assert_int_equal(device_cuda_ops.stream_wait_word(bench.rig.device, bench.rig.in, word, 0),
        KVT_E_UNSUPPORTED);
    assert_non_null(strstr(failure_last()->text, "cuStreamWaitValue32"));
    assert_true(device_rig_drain(&bench.rig, bench.rig.in));
    bench_close(&bench);

    bench_open(&bench);
    word = (const _Atomic uint32_t *)(const void *)bench.rig.host;
    play.is_word_moved = true;
    assert_int_equal(device_cuda_ops.stream_wait_word(bench.rig.device, bench.rig.in, word, 0),
        KVT_E_UNSUPPORTED);
    assert_non_null(strstr(failure_last()->text, "another address"));
    play.is_word_moved = false;
    assert_int_equal(
        device_cuda_ops.stream_wait_word(bench.rig.device, bench.rig.in, word, 0), KVT_OK);
    bench_close(&bench);
}

/* What such a stream would wait for, or tell, is nothing that happens when it is asked for. */
static void
words_and_events_on_a_captured_stream_are_refused(void **state)
{
    struct bench bench;
    void *stream;

    (void)state;
    bench_open(&bench);
    stream = play_hold(64);
    memset(stream, 0, 64);
    play.is_stream_captured = true;
    assert_int_equal(device_cuda_ops.stream_wait_word(bench.rig.device, stream,
                         (const _Atomic uint32_t *)(const void *)bench.rig.host, 0),
        KVT_E_INVAL);
    assert_int_equal(
        device_cuda_ops.event_record(bench.rig.device, bench.rig.event, stream), KVT_E_INVAL);
    /* CUDA itself answers 905, and the capture is invalid from then on. */
    assert_int_equal(
        device_cuda_ops.stream_wait(bench.rig.device, stream, bench.rig.event), KVT_E_INVAL);
    play.is_stream_captured = false;
    assert_int_equal(
        device_cuda_ops.event_record(bench.rig.device, bench.rig.event, stream), KVT_OK);
    assert_true(device_rig_await(&bench.rig, bench.rig.event));
    (void)play_hold_end(stream);
    bench_close(&bench);
}

/* --- 3. Every call fails once ----------------------------------------------------------------- */

struct life {
    struct device *device;
    uint8_t *host;
    void *slab;
    void *event;
    bool is_registered;
    bool is_kept;
};

#define LIFE_TRY(expr)                  \
    do {                                \
        enum kvt_status tried = (expr); \
        if (tried != KVT_OK)            \
            return tried;               \
    } while (0)

static enum kvt_status
life_run(struct life *life, const struct kvt_env *env)
{
    const struct kvt_device_ops *ops = &device_cuda_ops;
    struct device_info info;
    struct device_piece piece;
    enum kvt_status status = KVT_NOT_READY;
    void *in;

    LIFE_TRY(ops->open(NULL, env, 1, &life->device));
    in = ops->stream(life->device, DEVICE_IN);
    LIFE_TRY(ops->info(life->device, &info));
    LIFE_TRY(ops->slab_take(life->device, 4096, &life->slab));
    LIFE_TRY(ops->memory_register(life->device, life->slab, 4096));
    LIFE_TRY(ops->event_create(life->device, &life->event));
    LIFE_TRY(ops->host_register(life->device, life->host, RIG_CHUNK_BYTES));
    life->is_registered = true;
    piece = (struct device_piece){life->slab, life->host, 4096};
    LIFE_TRY(ops->copy(life->device, in, &piece, 1));
    LIFE_TRY(ops->event_record(life->device, life->event, in));
    LIFE_TRY(ops->stream_wait(life->device, in, life->event));
    LIFE_TRY(ops->stream_wait_word(
        life->device, in, (_Atomic uint32_t *)(void *)(life->host + 4096), 0));
    while (status == KVT_NOT_READY)
        status = ops->event_query(life->device, life->event);
    return status;
}

static void
life_end(struct life *life)
{
    const struct kvt_device_ops *ops = &device_cuda_ops;

    if (life->device == NULL)
        return;
    if (life->is_registered)
        life->is_kept = ops->host_unregister(life->device, life->host, RIG_CHUNK_BYTES) != KVT_OK;
    if (life->slab != NULL)
        ops->slab_put(life->device, life->slab, 4096);
    ops->event_destroy(life->device, life->event);
    ops->close(life->device);
}

/* False: there was no n-th call. */
static bool
life_fails(uint32_t n, cudaError_t error)
{
    struct kvt_env env;
    struct life life = {.device = NULL};
    uint32_t run_calls;
    enum kvt_status status;

    play_begin();
    play.fail_call = n;
    play.fail_with = error;
    env_host(&env);
    life.host = env_map(&env, RIG_CHUNK_BYTES);
    assert_non_null(life.host);
    failure_clear();
    status = life_run(&life, &env);
    run_calls = play.call_count;
    if (run_calls >= n) {
        assert_true(status < KVT_OK);
        assert_int_equal(failure_last()->status, status);
        assert_true(failure_last()->text[0] != '\0');
        assert_true(life.device == NULL || !play.is_lost || status == KVT_E_GPU);
    } else {
        assert_int_equal(status, KVT_OK);
    }
    life_end(&life);
    play_judge();
    if (!life.is_kept)
        env_unmap(&env, life.host, RIG_CHUNK_BYTES);
    return play.call_count >= n;
}

static void
each_call_of_cuda_may_fail(void **state)
{
    static const cudaError_t errors[] = {
        cudaErrorMemoryAllocation, cudaErrorInvalidValue, cudaErrorIllegalAddress};

    (void)state;
    for (uint32_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        uint32_t n = 1;

        while (life_fails(n, errors[i]))
            n++;
        /* Opening alone makes nine. */
        assert_true(n > 20);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(list_of_all_devices_passes),
        cmocka_unit_test(managed_memory_and_that_of_other_devices_are_refused),
        cmocka_unit_test(memory_that_somebody_else_pinned_is_used_and_left_so),
        cmocka_unit_test(hole_in_memory_that_somebody_else_pinned_is_found),
        cmocka_unit_test(memory_of_two_stores_is_pinned_until_both_have_let_go),
        cmocka_unit_test(pieces_that_touch_on_both_sides_are_one_run),
        cmocka_unit_test(run_never_crosses_from_one_registration_to_the_next),
        cmocka_unit_test(stream_that_is_captured_or_the_legacy_one_is_refused),
        cmocka_unit_test(slab_at_an_odd_place_is_given_back),
        cmocka_unit_test(batch_that_fails_loses_the_device),
        cmocka_unit_test(lost_device_lets_go_of_host_memory),
        cmocka_unit_test(host_memory_that_cuda_keeps_is_told),
        cmocka_unit_test(stream_waits_for_no_word_that_its_device_cannot_see),
        cmocka_unit_test(words_and_events_on_a_captured_stream_are_refused),
        cmocka_unit_test(each_call_of_cuda_may_fail),
    };

    int failed;

    stop_on_proof();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    play_begin();
    return failed;
}
