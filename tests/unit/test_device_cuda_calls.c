/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_device_cuda_calls.c - which calls the CUDA device makes: the runtime's functions are played
 * by this file (so the real ones are not linked), with host memory, at once.
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

#include "device_checks.h"
#include "device_cuda.h"
#include "device_cuda_internal.h"
#include "failure.h"
#include "stop_on_proof.h"

/* --- 1. The play ------------------------------------------------------------------------------ */

enum {
    HOLDS_MAX = 32,
};

static struct play {
    uint32_t call_count;   /* Of the functions that can fail. */
    uint32_t fail_call;    /* 0: none. */
    cudaError_t fail_with; /* Sticky when it loses the device. */
    uint32_t after_loss_count;
    bool is_lost;
    bool is_stream_captured;
    bool is_malloc_odd; /* It is not aligned as it should be. */
    bool is_busy;       /* The next query of an event says so. */

    int depth; /* Of pushed contexts. */
    enum cudaStreamCaptureMode capture_mode;
    int holds; /* Whatever must be given back. */
    void *memory[HOLDS_MAX];
    size_t sizes[HOLDS_MAX];
    enum cudaMemoryType foreign_type; /* Of what was given. */

    uint32_t single_count; /* Calls of cudaMemcpyAsync(). */
    uint32_t batch_count;
    size_t run_count; /* Of the last batch. */
} play;

/* In a call that needs the device's context, which can fail. */
static cudaError_t
play_call(bool needs_context)
{
    assert_int_equal(play.depth, needs_context ? 1 : 0);
    if (needs_context)
        assert_int_equal(play.capture_mode, cudaStreamCaptureModeRelaxed);
    if (play.is_lost) {
        play.after_loss_count++;
        return play.fail_with;
    }
    if (++play.call_count != play.fail_call)
        return cudaSuccess;
    play.is_lost = status_from_cuda(play.fail_with) == KVT_E_GPU;
    return play.fail_with;
}

#define PLAY_TRY(needs_context)                        \
    do {                                               \
        cudaError_t error_ = play_call(needs_context); \
        if (error_ != cudaSuccess)                     \
            return error_;                             \
    } while (0)

static void *
hold(size_t size)
{
    void *memory = aligned_alloc(2 << 20, (size + (2 << 20) - 1) & ~(size_t)((2 << 20) - 1));

    assert_non_null(memory);
    for (size_t i = 0; i < HOLDS_MAX; i++) {
        if (play.memory[i] == NULL) {
            play.memory[i] = memory;
            play.sizes[i] = size;
            play.holds++;
            return memory;
        }
    }
    fail_msg("more than %d pieces of memory", HOLDS_MAX);
    return NULL;
}

static cudaError_t
hold_end(const void *memory)
{
    for (size_t i = 0; i < HOLDS_MAX; i++) {
        if (play.memory[i] == memory) {
            free(play.memory[i]);
            play.memory[i] = NULL;
            play.holds--;
            return cudaSuccess;
        }
    }
    fail_msg("%p was not given", memory);
    return cudaErrorInvalidValue;
}

/* A new play. What a lost device held is the driver's: here it ends with the play. */
static void
play_begin(void)
{
    for (size_t i = 0; i < HOLDS_MAX; i++)
        free(play.memory[i]);
    memset(&play, 0, sizeof(play));
    play.foreign_type = cudaMemoryTypeDevice;
}

cudaError_t
cudaGetDeviceCount(int *count)
{
    PLAY_TRY(false);
    *count = 2;
    return cudaSuccess;
}

cudaError_t
cudaDriverGetVersion(int *version)
{
    *version = 12040;
    return cudaSuccess;
}

cudaError_t
cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *
cudaGetErrorString(cudaError_t error)
{
    return error == cudaSuccess ? "no error" : "an error of the play";
}

const char *
cudaGetErrorName(cudaError_t error)
{
    return error == cudaSuccess ? "cudaSuccess" : "cudaErrorPlayed";
}

cudaError_t
cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    enum cudaStreamCaptureMode found = play.capture_mode;

    play.capture_mode = *mode;
    *mode = found;
    return cudaSuccess;
}

static CUresult
play_device_get(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return CUDA_SUCCESS;
}

static CUresult
play_retain(CUcontext *context, CUdevice device)
{
    assert_int_equal(device, 1);
    *context = (CUcontext)&play;
    play.holds++;
    return CUDA_SUCCESS;
}

static CUresult
play_release(CUdevice device)
{
    assert_int_equal(device, 1);
    play.holds--;
    return CUDA_SUCCESS;
}

static CUresult
play_push(CUcontext context)
{
    assert_ptr_equal(context, &play);
    play.depth++;
    return CUDA_SUCCESS;
}

static CUresult
play_pop(CUcontext *context)
{
    *context = (CUcontext)&play;
    play.depth--;
    return CUDA_SUCCESS;
}

cudaError_t
cudaGetDriverEntryPointByVersion(const char *name, void **function_out, unsigned int version,
    unsigned long long flags, enum cudaDriverEntryPointQueryResult *found_out)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } functions[] = {
        {"cuDeviceGet", (void (*)(void))play_device_get},
        {"cuDevicePrimaryCtxRetain", (void (*)(void))play_retain},
        {"cuDevicePrimaryCtxRelease", (void (*)(void))play_release},
        {"cuCtxPushCurrent", (void (*)(void))play_push},
        {"cuCtxPopCurrent", (void (*)(void))play_pop},
    };

    PLAY_TRY(false);
    (void)flags;
    assert_in_range(version, 4000, 13000);
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        if (strcmp(functions[i].name, name) == 0) {
            memcpy(function_out, &functions[i].function, sizeof(*function_out));
            *found_out = cudaDriverEntryPointSuccess;
            return cudaSuccess;
        }
    }
    return cudaErrorSymbolNotFound;
}

cudaError_t
cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    PLAY_TRY(true);
    assert_int_equal(attribute, cudaDevAttrUnifiedAddressing);
    assert_int_equal(device, 1);
    *value = 1;
    return cudaSuccess;
}

cudaError_t
cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    PLAY_TRY(true);
    assert_int_equal(flags, cudaStreamNonBlocking);
    *stream = hold(1);
    return cudaSuccess;
}

cudaError_t
cudaStreamSynchronize(cudaStream_t stream)
{
    assert_non_null(stream);
    return play_call(true);
}

cudaError_t
cudaStreamDestroy(cudaStream_t stream)
{
    cudaError_t error = play_call(true);

    (void)hold_end(stream);
    return error;
}

cudaError_t
cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    PLAY_TRY(true);
    assert_int_equal(device, 1);
    memset(properties, 0, sizeof(*properties));
    memset(properties->name, 'x', sizeof(properties->name) - 1);
    return cudaSuccess;
}

cudaError_t
cudaMemGetInfo(size_t *free_out, size_t *total_out)
{
    PLAY_TRY(true);
    *free_out = 64 << 20;
    *total_out = 128 << 20;
    return cudaSuccess;
}

cudaError_t
cudaMalloc(void **address, size_t size)
{
    PLAY_TRY(true);
    if (size > 128 << 20)
        return cudaErrorMemoryAllocation;
    *address = (uint8_t *)hold(size) + (play.is_malloc_odd ? 4096 : 0);
    return cudaSuccess;
}

cudaError_t
cudaFree(void *address)
{
    cudaError_t error = play_call(true);

    (void)hold_end((uint8_t *)address - (play.is_malloc_odd ? 4096 : 0));
    return error;
}

/* What was given is memory of device 1, all other memory the host's. */
cudaError_t
cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *address)
{
    PLAY_TRY(true);
    *attributes = (struct cudaPointerAttributes){.type = cudaMemoryTypeUnregistered};
    for (size_t i = 0; i < HOLDS_MAX; i++) {
        if (play.memory[i] != NULL && (const uint8_t *)address >= (uint8_t *)play.memory[i] &&
            (const uint8_t *)address < (uint8_t *)play.memory[i] + play.sizes[i])
            *attributes = (struct cudaPointerAttributes){.type = play.foreign_type, .device = 1};
    }
    return cudaSuccess;
}

cudaError_t
cudaHostRegister(void *memory, size_t size, unsigned int flags)
{
    PLAY_TRY(true);
    assert_true(memory != NULL && size > 0);
    assert_int_equal(flags, cudaHostRegisterPortable | cudaHostRegisterMapped);
    play.holds++;
    return cudaSuccess;
}

cudaError_t
cudaHostUnregister(void *memory)
{
    cudaError_t error = play_call(true);

    assert_non_null(memory);
    play.holds--;
    return error;
}

cudaError_t
cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    PLAY_TRY(true);
    assert_int_equal(flags, cudaEventDisableTiming);
    *event = hold(1);
    return cudaSuccess;
}

cudaError_t
cudaEventDestroy(cudaEvent_t event)
{
    cudaError_t error = play_call(true);

    (void)hold_end(event);
    return error;
}

cudaError_t
cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    assert_true(event != NULL && stream != NULL);
    play.is_busy = true;
    return play_call(true);
}

cudaError_t
cudaEventQuery(cudaEvent_t event)
{
    bool was_busy = play.is_busy;

    assert_non_null(event);
    PLAY_TRY(true);
    play.is_busy = false;
    return was_busy ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t
cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    assert_true(event != NULL && stream != NULL);
    assert_int_equal(flags, cudaEventWaitDefault);
    return play_call(true);
}

cudaError_t
cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    PLAY_TRY(true);
    assert_non_null(stream);
    *status = play.is_stream_captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t
cudaMemcpyAsync(
    void *target, const void *source, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    assert_non_null(stream);
    assert_int_equal(kind, cudaMemcpyDefault);
    PLAY_TRY(true);
    play.single_count++;
    memcpy(target, source, size);
    return cudaSuccess;
}

cudaError_t
cudaMemcpyBatchAsync(void *const *targets, const void *const *sources, const size_t *sizes,
    size_t count, struct cudaMemcpyAttributes *attributes, size_t *first, size_t attribute_count,
    cudaStream_t stream)
{
    assert_non_null(stream);
    assert_int_equal(attribute_count, 1);
    assert_int_equal(first[0], 0);
    assert_int_equal(attributes->srcAccessOrder, cudaMemcpySrcAccessOrderStream);
    assert_int_equal(attributes->flags, 0);
    PLAY_TRY(true);
    play.batch_count++;
    play.run_count = count;
    for (size_t i = 0; i < count; i++)
        memcpy(targets[i], sources[i], sizes[i]);
    return cudaSuccess;
}

/* --- 2. The second device, so that a mistake for device 0 shows ------------------------------- */

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
    *memory_out = hold(size);
    return KVT_OK;
}

static void
own_memory_put(struct device *device, void *memory, uint64_t size)
{
    (void)device;
    (void)size;
    (void)hold_end(memory);
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

/* The thread is as it was; once the device is lost CUDA is left alone, else all is given back. */
static void
bench_check(void)
{
    assert_int_equal(play.depth, 0);
    assert_int_equal(play.capture_mode, cudaStreamCaptureModeGlobal);
    assert_int_equal(play.after_loss_count, 0);
    if (!play.is_lost)
        assert_int_equal(play.holds, 0);
}

static void
bench_close(struct bench *bench)
{
    device_rig_close(&bench->rig);
    bench_check();
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
        bench_check();
    }
}

static void
managed_memory_and_that_of_other_devices_are_refused(void **state)
{
    struct bench bench;
    void *memory = NULL;

    (void)state;
    bench_open(&bench);
    memory = hold(4096);
    play.foreign_type = cudaMemoryTypeManaged;
    assert_int_equal(device_cuda_ops.memory_register(bench.rig.device, memory, 4096), KVT_E_INVAL);
    play.foreign_type = cudaMemoryTypeDevice;
    /* One byte too many. */
    assert_int_equal(device_cuda_ops.memory_register(bench.rig.device, memory, 4097), KVT_E_INVAL);
    assert_int_equal(device_cuda_ops.memory_register(bench.rig.device, memory, 4096), KVT_OK);
    device_cuda_ops.memory_unregister(bench.rig.device, memory, 4096);
    (void)hold_end(memory);
    bench_close(&bench);
}

/* --- 3. Copies -------------------------------------------------------------------------------- */

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

/* --- 4. Every call fails once ----------------------------------------------------------------- */

struct life {
    struct device *device;
    uint8_t *host;
    void *slab;
    void *event;
    bool is_registered;
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
        ops->host_unregister(life->device, life->host, RIG_CHUNK_BYTES);
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
    bench_check();
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
        cmocka_unit_test(pieces_that_touch_on_both_sides_are_one_run),
        cmocka_unit_test(run_never_crosses_from_one_registration_to_the_next),
        cmocka_unit_test(stream_that_is_captured_or_the_legacy_one_is_refused),
        cmocka_unit_test(slab_at_an_odd_place_is_given_back),
        cmocka_unit_test(batch_that_fails_loses_the_device),
        cmocka_unit_test(each_call_of_cuda_may_fail),
    };

    int failed;

    stop_on_proof();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    play_begin();
    return failed;
}
