/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_play.c - the CUDA runtime's functions and the copy kernel, played with host memory, at once:
 * a program that is linked with this file is not linked with the real ones.
 */
#include "cuda_play.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "device_cuda_internal.h"

struct cuda_play play;

cudaError_t
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
    play.is_lost = !play.is_passing && status_from_cuda(play.fail_with) == KVT_E_GPU;
    return play.fail_with;
}

/* A call that a lost device may still get: it says what the host may have back, or is of events. */
static cudaError_t
play_call_late(void)
{
    uint32_t after_loss_count = play.after_loss_count;
    cudaError_t error = play_call(true);

    play.after_loss_count = after_loss_count;
    return error;
}

#define PLAY_TRY_LATE()                        \
    do {                                       \
        cudaError_t error_ = play_call_late(); \
        if (error_ != cudaSuccess)             \
            return error_;                     \
    } while (0)

/* In the memory of a stream, and of an event: until the word is there no event is reached that was
 * recorded behind the wait for it. */
struct play_stream {
    const _Atomic uint32_t *word;
    uint32_t value;
};

struct play_event {
    const struct play_stream *stream;
};

/* Something that takes the device so long is queued. */
static void
play_time(uint64_t time_ns)
{
    play.until_ns = (play.until_ns > play.now_ns ? play.until_ns : play.now_ns) + time_ns;
}

void *
play_hold(size_t size)
{
    void *memory = aligned_alloc(2 << 20, (size + (2 << 20) - 1) & ~(size_t)((2 << 20) - 1));

    assert_non_null(memory);
    for (size_t i = 0; i < PLAY_HOLDS_MAX; i++) {
        if (play.memory[i] == NULL) {
            play.memory[i] = memory;
            play.sizes[i] = size;
            play.holds++;
            return memory;
        }
    }
    fail_msg("more than %d pieces of memory", PLAY_HOLDS_MAX);
    return NULL;
}

cudaError_t
play_hold_end(const void *memory)
{
    for (size_t i = 0; i < PLAY_HOLDS_MAX; i++) {
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

void
play_begin(void)
{
    for (size_t i = 0; i < PLAY_HOLDS_MAX; i++)
        free(play.memory[i]);
    memset(&play, 0, sizeof(play));
    play.foreign_type = cudaMemoryTypeDevice;
}

void
play_judge(void)
{
    assert_int_equal(play.depth, 0);
    assert_int_equal(play.capture_mode, cudaStreamCaptureModeGlobal);
    assert_int_equal(play.after_loss_count, 0);
    if (!play.is_lost)
        assert_int_equal(play.holds, 0);
}

/* A driver keeps what it opens here. */
static void
play_descriptor_note(void)
{
    int next = dup(STDERR_FILENO);

    if (next < play.lowest_descriptor)
        play.lowest_descriptor = next;
    (void)close(next);
}

cudaError_t
cudaGetDeviceCount(int *count)
{
    PLAY_TRY(false);
    play_descriptor_note();
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
    play_descriptor_note();
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

static CUresult
play_wait_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)
{
    cudaError_t error = play_call(true);

    assert_non_null(stream);
    assert_int_equal(flags, CU_STREAM_WAIT_VALUE_GEQ);
    if (error == cudaSuccess)
        *(struct play_stream *)(void *)stream =
            (struct play_stream){(const _Atomic uint32_t *)(uintptr_t)address, value};
    return (CUresult)error;
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
        {"cuStreamWaitValue32", (void (*)(void))play_wait_value},
    };

    (void)flags;
    /* An open can do without it. */
    if (strcmp(name, "cuStreamWaitValue32") != 0)
        PLAY_TRY(play.depth > 0);
    else if (play.has_no_words)
        return cudaErrorSymbolNotFound;
    assert_in_range(version, 4000, 13000);
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        if (strcmp(functions[i].name, name) == 0) {
            memcpy(function_out, &functions[i].function, sizeof(*function_out));
            *found_out = cudaDriverEntryPointSuccess;
            return cudaSuccess;
        }
    }
    if (!play_share_find(name, function_out))
        return cudaErrorSymbolNotFound;
    *found_out = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

cudaError_t
cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    PLAY_TRY(true);
    assert_true(attribute == cudaDevAttrUnifiedAddressing ||
                attribute == cudaDevAttrCanUseHostPointerForRegisteredMem);
    assert_int_equal(device, 1);
    *value = attribute == cudaDevAttrUnifiedAddressing || !play.is_word_moved;
    return cudaSuccess;
}

cudaError_t
cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    PLAY_TRY(true);
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

/* Whatever a program's streams wait for, those of the device do not stand behind them. */
cudaError_t
cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
    PLAY_TRY(true);
    assert_int_equal(flags, cudaStreamNonBlocking);
    assert_int_equal(priority, -5);
    *stream = play_hold(sizeof(struct play_stream));
    memset(*stream, 0, sizeof(struct play_stream));
    return cudaSuccess;
}

cudaError_t
cudaStreamSynchronize(cudaStream_t stream)
{
    assert_non_null(stream);
    play.sync_count++;
    if (play.until_ns > play.now_ns)
        play.now_ns = play.until_ns;
    return play_call_late();
}

/* Which is asked to see whether the device is lost. */
cudaError_t
cudaStreamQuery(cudaStream_t stream)
{
    cudaError_t error = play_call_late();

    assert_non_null(stream);
    play.look_count++;
    return error == cudaSuccess && play.is_stuck ? cudaErrorNotReady : error;
}

cudaError_t
cudaStreamDestroy(cudaStream_t stream)
{
    cudaError_t error = play_call(true);

    (void)play_hold_end(stream);
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
    *address = (uint8_t *)play_hold(size) + (play.is_malloc_odd ? 4096 : 0);
    return cudaSuccess;
}

cudaError_t
cudaFree(void *address)
{
    cudaError_t error = play_call(true);

    (void)play_hold_end((uint8_t *)address - (play.is_malloc_odd ? 4096 : 0));
    return error;
}

/* What was given is memory of device 1, all other memory the host's. */
cudaError_t
cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *address)
{
    PLAY_TRY(true);
    *attributes = (struct cudaPointerAttributes){.type = cudaMemoryTypeUnregistered};
    if (play.is_pinned_already && (play.pinned_end == NULL || address < play.pinned_end) &&
        (play.hole == NULL || address < play.hole ||
            (const uint8_t *)address >= (const uint8_t *)play.hole + (2 << 20)))
        attributes->type = cudaMemoryTypeHost;
    for (size_t i = 0; i < PLAY_HOLDS_MAX; i++) {
        if (play.memory[i] != NULL && (const uint8_t *)address >= (uint8_t *)play.memory[i] &&
            (const uint8_t *)address < (uint8_t *)play.memory[i] + play.sizes[i])
            *attributes = (struct cudaPointerAttributes){.type = play.foreign_type, .device = 1};
    }
    return cudaSuccess;
}

cudaError_t
cudaHostAlloc(void **address, size_t size, unsigned int flags)
{
    PLAY_TRY(true);
    assert_int_equal(flags, cudaHostAllocPortable | cudaHostAllocMapped);
    *address = play_hold(size);
    return cudaSuccess;
}

cudaError_t
cudaFreeHost(void *address)
{
    cudaError_t error = play_call(true);

    (void)play_hold_end(address);
    return error;
}

/* Where a registration that begins there is noted; NULL: there is none. */
static const uint8_t **
pin_at(const void *memory)
{
    for (size_t i = 0; i < PLAY_HOLDS_MAX; i++) {
        if (play.pins[i] == memory)
            return &play.pins[i];
    }
    return NULL;
}

cudaError_t
cudaHostRegister(void *memory, size_t size, unsigned int flags)
{
    PLAY_TRY(true);
    assert_true(memory != NULL && size > 0);
    assert_int_equal(flags, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (play.is_pinned_already || pin_at(memory) != NULL)
        return cudaErrorHostMemoryAlreadyRegistered;
    *pin_at(NULL) = memory;
    play.holds++;
    play.pin_count++;
    return cudaSuccess;
}

cudaError_t
cudaHostUnregister(void *memory)
{
    cudaError_t error = play_call_late();

    assert_non_null(memory);
    assert_non_null(pin_at(memory));
    play.holds--;
    if (error == cudaSuccess) {
        *pin_at(memory) = NULL;
        play.pin_count--;
    }
    return error;
}

cudaError_t
cudaDeviceCanAccessPeer(int *can_reach, int device, int other)
{
    PLAY_TRY(true);
    assert_int_equal(device, 1);
    assert_int_not_equal(other, device);
    *can_reach = play.has_peer;
    return cudaSuccess;
}

cudaError_t
cudaDeviceEnablePeerAccess(int other, unsigned int flags)
{
    if (!play.has_peer || other != 0 || flags != 0)
        fail_msg("device %d is not in reach (flags %u)", other, flags);
    PLAY_TRY(true);
    return cudaSuccess;
}

cudaError_t
cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    PLAY_TRY_LATE();
    assert_int_equal(flags, cudaEventDisableTiming);
    *event = play_hold(sizeof(struct play_event));
    memset(*event, 0, sizeof(struct play_event));
    return cudaSuccess;
}

cudaError_t
cudaEventDestroy(cudaEvent_t event)
{
    cudaError_t error = play_call_late();

    (void)play_hold_end(event);
    return error;
}

cudaError_t
cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    assert_true(event != NULL && stream != NULL);
    PLAY_TRY_LATE();
    play.is_busy = true;
    ((struct play_event *)(void *)event)->stream = (const struct play_stream *)(void *)stream;
    return cudaSuccess;
}

cudaError_t
cudaEventQuery(cudaEvent_t event)
{
    const struct play_stream *stream;
    bool was_busy = play.is_busy;

    assert_non_null(event);
    PLAY_TRY_LATE();
    play.is_busy = false;
    stream = ((const struct play_event *)(const void *)event)->stream;
    if (stream != NULL && stream->word != NULL &&
        (int32_t)(atomic_load(stream->word) - stream->value) < 0)
        return cudaErrorNotReady;
    return was_busy || play.is_stuck ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t
cudaEventSynchronize(cudaEvent_t event)
{
    assert_non_null(event);
    return play_call(true);
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
    PLAY_TRY_LATE();
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
    play.now_ns += count * 720;
    play_time(300000);
    for (size_t i = 0; i < count && !play.has_no_bytes; i++)
        memcpy(targets[i], sources[i], sizes[i]);
    return cudaSuccess;
}

/* --- The kernel ------------------------------------------------------------------------------- */

cudaError_t
copy_kernel_load(void)
{
    if (play.is_kernel_missing)
        return cudaErrorNoKernelImageForDevice;
    return play_call(true);
}

/* By the accesses that the kernel makes, so that the address checker sees a wrong one. */
static void
chunk_copy(struct copy_chunk chunk)
{
    struct copy_split split = copy_chunk_split(chunk);
    uint8_t *target = (uint8_t *)(uintptr_t)chunk.target;
    const uint8_t *source = (const uint8_t *)(uintptr_t)copy_chunk_source(chunk);
    uint32_t size = copy_chunk_size(chunk);
    uint32_t at = 0;

    assert_true(size > 0 && size <= COPY_CHUNK_BYTES_MAX);
    for (; at < split.head; at++)
        target[at] = source[at];
    for (; at < split.head + split.body; at += split.width) {
        assert_int_equal((uintptr_t)(target + at) % split.width, 0);
        assert_int_equal((uintptr_t)(source + at) % split.width, 0);
        memcpy(target + at, source + at, split.width);
    }
    for (; at < size; at++)
        target[at] = source[at];
}

cudaError_t
copy_kernel_launch(const struct copy_chunk *chunks, uint32_t count, const struct copy_grid *grid,
    cudaStream_t stream)
{
    assert_non_null(stream);
    assert_in_range(count, 1, CUDA_LIST_CHUNKS);
    assert_in_range(grid->block_count, 1, 8);
    assert_true(grid->thread_count % 32 == 0);
    assert_in_range(grid->thread_count, 32, 1024);
    PLAY_TRY(true);
    play.launch_count++;
    play_time(335000);
    play.chunk_count = count;
    play.chunk_bytes_max = 0;
    play.grid = *grid;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t size = copy_chunk_size(chunks[i]);

        if (size > play.chunk_bytes_max)
            play.chunk_bytes_max = size;
        if (!play.has_no_bytes)
            chunk_copy(chunks[i]);
    }
    return cudaSuccess;
}

/* As the kernels do it, in order. */
cudaError_t
gather_kernel_launch(
    const struct gather_work *work, const struct copy_grid *grid, cudaStream_t stream)
{
    assert_non_null(stream);
    assert_in_range(grid->block_count, 1, 8);
    assert_in_range(grid->thread_count, 32, 1024);
    if (play.is_kernel_missing)
        return cudaErrorNotSupported;
    PLAY_TRY(true);
    *work->verdict = GATHER_FINE;
    for (uint64_t i = 0; i < work->count; i++) {
        if (work->ids[i] >= work->row_count && i < *work->verdict)
            *work->verdict = i;
    }
    for (uint64_t i = 0; i < work->count && *work->verdict == GATHER_FINE; i++)
        memcpy(work->target + i * work->row_bytes, gather_row(work, work->ids[i]), work->row_bytes);
    return cudaSuccess;
}
