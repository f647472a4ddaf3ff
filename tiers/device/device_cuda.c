/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_cuda.c - an accelerator through the CUDA runtime: devices, slabs, registrations, events.
 *
 * Owns      a hold on the device's primary context, and the streams of the lanes.
 * Not here  errors (device_cuda_errors.c), copies (device_cuda_copy.c), the kernel's lists
 *           (device_cuda_lists.c), measuring which way of copying is faster
 *           (device_cuda_measure.c), other processes (device_cuda_share.c).
 * Threads   any. A mutex guards the table of addresses; it is never held during a call of CUDA.
 *
 * The host's threads and contexts stay as they are. A call pushes the primary context and pops it
 * again: cudaSetDevice() would do too, but putting back what it found would make a context on
 * device 0 for every thread that never had one. Nothing is reset, and no setting of the device is
 * touched.
 */
#include "device_cuda.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bytes.h"
#include "device_cuda_internal.h"
#include "failure.h"
#include "streams_host.h"
#include "try.h"

static const uint64_t SLAB_ALIGN_BYTES = UINT64_C(2) << 20;

enum {
    DRIVER_VERSION = 12000, /* Of the driver's functions that are asked for. */
};

/* --- 1. The thread of a call ------------------------------------------------------------------ */

enum kvt_status
cuda_enter(struct device_cuda *device, struct cuda_scope *scope_out)
{
    if (cuda_is_lost(device)) {
        return failure_set(
            KVT_E_GPU, 0, "Device %d was lost by an earlier error of CUDA.", device->ordinal);
    }
    return cuda_enter_lost(device, scope_out);
}

enum kvt_status
cuda_enter_lost(struct device_cuda *device, struct cuda_scope *scope_out)
{
    enum kvt_status status = cuda_enter_context(device, device->context, scope_out);

    if (status != KVT_OK)
        atomic_store_explicit(&device->is_lost, true, memory_order_relaxed);
    return status;
}

enum kvt_status
cuda_enter_context(struct device_cuda *device, CUcontext context, struct cuda_scope *scope_out)
{
    CUresult result = device->driver.push(context);

    if (result != CUDA_SUCCESS) {
        return failure_set(KVT_E_GPU, (int)result,
            "The context of device %d cannot be used any more (CUDA driver error %d).",
            device->ordinal, (int)result);
    }
    scope_out->device = device;
    scope_out->capture_mode = cudaStreamCaptureModeRelaxed;
    (void)cudaThreadExchangeStreamCaptureMode(&scope_out->capture_mode);
    return KVT_OK;
}

void
cuda_leave(const struct cuda_scope *scope)
{
    enum cudaStreamCaptureMode mode = scope->capture_mode;
    CUcontext context;

    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    (void)scope->device->driver.pop(&context);
}

/* --- 2. Devices ------------------------------------------------------------------------------- */

static enum kvt_status
devices_count(uint32_t *count_out)
{
    int count = 0;
    int driver_version = 0;
    cudaError_t error = cudaGetDeviceCount(&count);

    if (error == cudaSuccess && count > 0) {
        *count_out = (uint32_t)count;
        return KVT_OK;
    }
    (void)cudaGetLastError();
    if (error == cudaErrorInsufficientDriver) {
        (void)cudaDriverGetVersion(&driver_version);
        (void)cudaGetLastError();
        if (driver_version == 0) {
            return failure_set(
                KVT_E_UNSUPPORTED, (int)error, "No GPU: this machine has no NVIDIA driver.");
        }
        return failure_set(KVT_E_UNSUPPORTED, (int)error,
            "No GPU: the NVIDIA driver is for CUDA %d.%d, and this build needs CUDA %d.%d.",
            driver_version / 1000, driver_version % 1000 / 10, CUDART_VERSION / 1000,
            CUDART_VERSION % 1000 / 10);
    }
    if (error == cudaErrorNoDevice || error == cudaSuccess) {
        return failure_set(KVT_E_UNSUPPORTED, (int)error,
            "No GPU: there is an NVIDIA driver, but no device that this process may see.");
    }
    return failure_set(KVT_E_UNSUPPORTED, (int)error, "No GPU: %s (%s, %d).",
        cudaGetErrorString(error), cudaGetErrorName(error), (int)error);
}

/* The driver keeps what it opens in the first calls: under no number of a standard stream. */
static enum kvt_status
cuda_count(void *context, uint32_t *count_out)
{
    struct streams_hold streams;
    enum kvt_status status;

    (void)context;
    streams_hold(&streams);
    status = devices_count(count_out);
    streams_drop(&streams);
    return status;
}

enum kvt_status
driver_find(const char *name, void *function_out)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *function = NULL;
    cudaError_t error = cudaGetDriverEntryPointByVersion(
        name, &function, DRIVER_VERSION, cudaEnableDefault, &found);

    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess || function == NULL) {
        (void)cudaGetLastError();
        return failure_set(
            KVT_E_UNSUPPORTED, (int)error, "The NVIDIA driver has no function %s().", name);
    }
    /* ISO C has no conversion from an object's pointer to a function's. */
    memcpy(function_out, &function, sizeof(function));
    return KVT_OK;
}

static enum kvt_status
driver_load(struct cuda_driver *driver)
{
    KVT_TRY(driver_find("cuDeviceGet", &driver->device_get));
    KVT_TRY(driver_find("cuDevicePrimaryCtxRetain", &driver->primary_retain));
    KVT_TRY(driver_find("cuDevicePrimaryCtxRelease", &driver->primary_release));
    KVT_TRY(driver_find("cuCtxPushCurrent", &driver->push));
    KVT_TRY(driver_find("cuCtxPopCurrent", &driver->pop));
    if (driver_find("cuStreamWaitValue32", &driver->wait_value) != KVT_OK)
        driver->wait_value = NULL; /* Then no stream waits for a word: nothing else needs it. */
    return KVT_OK;
}

static enum kvt_status
context_take(struct device_cuda *device)
{
    CUresult result = device->driver.device_get(&device->handle, device->ordinal);

    if (result == CUDA_SUCCESS)
        result = device->driver.primary_retain(&device->context, device->handle);
    if (result == CUDA_SUCCESS)
        return KVT_OK;
    return failure_set(result == CUDA_ERROR_OUT_OF_MEMORY ? KVT_E_NOMEM : KVT_E_UNSUPPORTED,
        (int)result, "Device %d gives no context (CUDA driver error %d).", device->ordinal,
        (int)result);
}

/*
 * With the greatest priority: the hardware has few queues, which streams of one priority share, and
 * what a program's streams wait for (device_cuda_word.c) may be what these here are to copy. CUDA
 * does not promise queues of their own: gpu_hold has 32 streams wait at once, to see it.
 */
static enum kvt_status
streams_create(struct device_cuda *device)
{
    int least = 0, greatest = 0;
    int is_unified = 0;

    KVT_TRY(cuda_check(device,
        cudaDeviceGetAttribute(&is_unified, cudaDevAttrUnifiedAddressing, device->ordinal),
        "tell how it addresses memory"));
    if (!is_unified) {
        return failure_set(KVT_E_UNSUPPORTED, 0,
            "Device %d does not share its addresses with the host.", device->ordinal);
    }
    KVT_TRY(cuda_check(device, cudaDeviceGetStreamPriorityRange(&least, &greatest),
        "tell the priorities of its streams"));
    for (uint32_t i = 0; i < DEVICE_LANE_COUNT; i++) {
        KVT_TRY(cuda_check(device,
            cudaStreamCreateWithPriority(&device->streams[i], cudaStreamNonBlocking, greatest),
            "make a stream"));
    }
    return KVT_OK;
}

enum kvt_status
cuda_lanes_await(struct device_cuda *device)
{
    enum kvt_status status = KVT_OK;

    for (uint32_t i = 0; i < DEVICE_LANE_COUNT && status != KVT_E_GPU; i++) {
        enum kvt_status answer = KVT_OK;

        if (device->streams[i] != NULL)
            answer =
                cuda_check(device, cudaStreamSynchronize(device->streams[i]), "wait for a stream");
        if (answer != KVT_OK)
            status = answer;
    }
    return status;
}

/* Under its scope: wait for the lanes as long as CUDA answers; those of a lost device stay. */
static void
streams_destroy(struct device_cuda *device)
{
    (void)cuda_lanes_await(device);
    for (uint32_t i = 0; i < DEVICE_LANE_COUNT && !cuda_is_lost(device); i++) {
        if (device->streams[i] != NULL)
            (void)cuda_check(device, cudaStreamDestroy(device->streams[i]), "free a stream");
    }
}

static void
cuda_close(struct device *base)
{
    struct device_cuda *device = device_cuda_of(base);
    struct cuda_scope scope;
    struct kvt_env env;

    if (device == NULL)
        return;
    env = device->env;
    if (device->context != NULL) {
        if (cuda_enter_lost(device, &scope) == KVT_OK) {
            streams_destroy(device);
            cuda_lists_close(device);
            cuda_leave(&scope);
        }
        (void)device->driver.primary_release(device->handle);
    }
    KVT_ASSERT(device->ranges.count == 0);
    cuda_runs_free(device);
    device_ranges_deinit(&device->ranges);
    (void)pthread_mutex_destroy(&device->mutex);
    env_put(&env, device, sizeof(*device));
}

static enum kvt_status
device_start(struct device_cuda *device)
{
    struct cuda_scope scope;
    enum kvt_status status;

    KVT_TRY(cuda_runs_keep(device));
    KVT_TRY(driver_load(&device->driver));
    KVT_TRY(context_take(device));
    KVT_TRY(cuda_enter(device, &scope));
    status = streams_create(device);
    if (status == KVT_OK)
        status = cuda_lists_open(device);
    cuda_leave(&scope);
    return status;
}

static enum kvt_status
cuda_open(void *context, const struct kvt_env *env, uint32_t ordinal, struct device **device_out)
{
    struct device_cuda *device;
    struct streams_hold streams;
    uint32_t count = 0;
    enum kvt_status status;

    *device_out = NULL;
    KVT_TRY(cuda_count(context, &count));
    if (ordinal >= count) {
        return failure_set(KVT_E_INVAL, 0,
            "There is no GPU %" PRIu32 ": this process sees %" PRIu32 ".", ordinal, count);
    }
    device = env_take(env, sizeof(*device));
    if (device == NULL)
        return failure_set(KVT_E_NOMEM, 0, "No memory for a device.");
    device->device.ops = &device_cuda_ops;
    device->env = *env;
    device->ordinal = (int)ordinal;
    device->ranges.env = &device->env;
    copy_planner_init(&device->planner);
    (void)pthread_mutex_init(&device->mutex, NULL);
    streams_hold(&streams); /* As in cuda_count(). */
    status = device_start(device);
    streams_drop(&streams);
    if (status != KVT_OK) {
        /* The sentence of the cause, not one of the clean-up. */
        struct failure cause = *failure_last();

        cuda_close(&device->device);
        failure_copy(&cause);
        return status;
    }
    *device_out = &device->device;
    return KVT_OK;
}

static enum kvt_status
info_read(struct device_cuda *device, struct device_info *info_out)
{
    struct cudaDeviceProp properties;
    size_t free_bytes = 0;
    size_t memory_bytes = 0;

    KVT_TRY(cuda_check(
        device, cudaGetDeviceProperties(&properties, device->ordinal), "tell its properties"));
    KVT_TRY(cuda_check(device, cudaMemGetInfo(&free_bytes, &memory_bytes), "tell its memory"));
    memset(info_out, 0, sizeof(*info_out));
    (void)snprintf(info_out->name, sizeof(info_out->name), "%.*s", (int)sizeof(info_out->name) - 1,
        properties.name);
    info_out->memory_bytes = memory_bytes;
    info_out->free_bytes = free_bytes;
    return KVT_OK;
}

static enum kvt_status
cuda_info(struct device *base, struct device_info *info_out)
{
    struct device_cuda *device = device_cuda_of(base);
    struct cuda_scope scope;
    enum kvt_status status;

    KVT_TRY(cuda_enter(device, &scope));
    status = info_read(device, info_out);
    cuda_leave(&scope);
    return status;
}

/* --- 3. Memory -------------------------------------------------------------------------------- */

enum kvt_status
cuda_range_add(struct device_cuda *device, const struct device_range *range)
{
    enum kvt_status status;

    (void)pthread_mutex_lock(&device->mutex);
    status = device_ranges_add(&device->ranges, range);
    (void)pthread_mutex_unlock(&device->mutex);
    return status;
}

bool
cuda_range_remove(struct device_cuda *device, const struct device_range *range)
{
    bool is_there;

    (void)pthread_mutex_lock(&device->mutex);
    is_there = device_ranges_remove(&device->ranges, range);
    (void)pthread_mutex_unlock(&device->mutex);
    return is_there;
}

static enum kvt_status
slab_take(struct device_cuda *device, uint64_t size, void **address_out)
{
    struct device_range range = {.size = size, .kind = DEVICE_RANGE_SLAB};
    void *address = NULL;
    enum kvt_status status;

    /* Whole large pages: smaller pieces come from a pool of the runtime, with another alignment. */
    KVT_TRY(cuda_check(
        device, cudaMalloc(&address, round_up(size, SLAB_ALIGN_BYTES)), "allocate a slab"));
    range.start = address_of(address);
    if (range.start % SLAB_ALIGN_BYTES != 0) {
        status = failure_set(KVT_E_UNSUPPORTED, 0,
            "Device %d gave a slab at %p, which is not aligned to 2 MiB.", device->ordinal,
            address);
    } else {
        status = cuda_range_add(device, &range);
    }
    if (status != KVT_OK) {
        (void)cudaFree(address);
        return status;
    }
    *address_out = address;
    return KVT_OK;
}

static enum kvt_status
cuda_slab_take(struct device *base, uint64_t size, void **address_out)
{
    struct device_cuda *device = device_cuda_of(base);
    struct cuda_scope scope;
    enum kvt_status status;

    *address_out = NULL;
    if (size == 0)
        return failure_set(KVT_E_INVAL, 0, "A slab has one byte or more.");
    if (size > UINT64_MAX - SLAB_ALIGN_BYTES)
        return failure_set(KVT_E_NOMEM, 0, "No GPU has a slab of %" PRIu64 " bytes.", size);
    KVT_TRY(cuda_enter(device, &scope));
    status = slab_take(device, size, address_out);
    cuda_leave(&scope);
    return status;
}

static void
cuda_slab_put(struct device *base, void *address, uint64_t size)
{
    struct device_cuda *device = device_cuda_of(base);
    const struct device_range range = {address_of(address), size, DEVICE_RANGE_SLAB};
    struct cuda_scope scope;
    bool is_there;

    if (cuda_shared_put(device, address))
        return;
    is_there = cuda_range_remove(device, &range);
    KVT_ASSERT(is_there);
    if (!is_there || cuda_enter(device, &scope) != KVT_OK)
        return;
    (void)cuda_check(device, cudaFree(address), "free a slab");
    cuda_leave(&scope);
}

/* Is the byte at `address` plain memory of this device? */
static enum kvt_status
foreign_check(struct device_cuda *device, uint64_t address)
{
    struct cudaPointerAttributes attributes = {.type = cudaMemoryTypeUnregistered};

    KVT_TRY(cuda_check_foreign(device,
        cudaPointerGetAttributes(&attributes, (const void *)(uintptr_t)address), "look at memory"));
    if (attributes.type == cudaMemoryTypeDevice && attributes.device == device->ordinal)
        return KVT_OK;
    return failure_set(KVT_E_INVAL, 0,
        "0x%" PRIx64 " is no address of device %d's own memory (managed memory is not used).",
        address, device->ordinal);
}

/* Memory in a slab can be used anyway. */
static enum kvt_status
foreign_add(struct device_cuda *device, const struct device_range *range)
{
    enum kvt_status status = KVT_OK;

    (void)pthread_mutex_lock(&device->mutex);
    if (!device_ranges_in_slab(&device->ranges, range))
        status = device_ranges_add(&device->ranges, range);
    (void)pthread_mutex_unlock(&device->mutex);
    return status;
}

static enum kvt_status
cuda_memory_register(struct device *base, void *memory, uint64_t size)
{
    struct device_cuda *device = device_cuda_of(base);
    const struct device_range range = {address_of(memory), size, DEVICE_RANGE_MEMORY};
    struct cuda_scope scope;
    enum kvt_status status;

    if (memory == NULL || size == 0 || range.start > UINT64_MAX - size)
        return failure_set(KVT_E_INVAL, 0, "%" PRIu64 " bytes at %p are no memory.", size, memory);
    KVT_TRY(cuda_enter(device, &scope));
    status = foreign_check(device, range.start);
    if (status == KVT_OK)
        status = foreign_check(device, range.start + size - 1);
    cuda_leave(&scope);
    return status == KVT_OK ? foreign_add(device, &range) : status;
}

static void
cuda_memory_unregister(struct device *base, void *memory, uint64_t size)
{
    struct device_cuda *device = device_cuda_of(base);
    const struct device_range range = {address_of(memory), size, DEVICE_RANGE_MEMORY};

    (void)cuda_range_remove(device, &range); /* Of memory in a slab none was noted. */
}

/* --- 4. Streams and events -------------------------------------------------------------------- */

enum kvt_status
cuda_stream_check(const void *stream)
{
    if (stream == NULL || stream == (const void *)cudaStreamLegacy) {
        return failure_set(KVT_E_INVAL, 0,
            "The legacy default stream is refused: work on it waits for all other streams.");
    }
    return KVT_OK;
}

enum kvt_status
cuda_stream_await(struct device_cuda *device, cudaStream_t stream)
{
    struct cuda_scope scope;
    enum kvt_status status;

    KVT_TRY(cuda_enter(device, &scope));
    status = cuda_check(device, cudaStreamSynchronize(stream), "wait for a stream");
    cuda_leave(&scope);
    return status;
}

static enum kvt_status
event_check(const void *event)
{
    return event != NULL ? KVT_OK : failure_set(KVT_E_INVAL, 0, "The event is NULL.");
}

static void *
cuda_stream(struct device *base, enum device_lane lane)
{
    KVT_ASSERT(lane < DEVICE_LANE_COUNT);
    return device_cuda_of(base)->streams[lane];
}

/*
 * Events of a device that was declared lost are CUDA's all the same: where it lives on, so do
 * streams of callers, which use the host's memory.
 */

static enum kvt_status
cuda_event_create(struct device *base, void **event_out)
{
    struct device_cuda *device = device_cuda_of(base);
    struct cuda_scope scope;
    cudaEvent_t event = NULL;
    cudaError_t error;
    enum kvt_status status;

    *event_out = NULL;
    KVT_TRY(cuda_enter_lost(device, &scope));
    /* Without times a record and a query cost least. */
    error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    status = cuda_check_foreign(device, error, "make an event");
    /* Nothing of a caller's is in it: while all else goes on, there is a lack of something. */
    if (status == KVT_E_INVAL)
        status = cuda_fail(KVT_E_NOMEM, device, error, "make an event");
    cuda_leave(&scope);
    *event_out = status == KVT_OK ? event : NULL;
    return status;
}

static void
cuda_event_destroy(struct device *base, void *event)
{
    struct device_cuda *device = device_cuda_of(base);
    struct cuda_scope scope;

    if (event == NULL || cuda_enter_lost(device, &scope) != KVT_OK)
        return;
    (void)cuda_check(device, cudaEventDestroy(event), "free an event");
    cuda_leave(&scope);
}

static enum kvt_status
cuda_event_record(struct device *base, void *event, void *stream)
{
    struct device_cuda *device = device_cuda_of(base);
    struct cuda_scope scope;
    enum kvt_status status;

    KVT_TRY(event_check(event));
    KVT_TRY(cuda_stream_check(stream));
    KVT_TRY(cuda_enter_lost(device, &scope));
    status = cuda_capture_check(device, stream);
    if (status == KVT_OK)
        status = cuda_check_foreign(device, cudaEventRecord(event, stream), "record an event");
    cuda_leave(&scope);
    return status;
}

static enum kvt_status
cuda_event_query(struct device *base, void *event)
{
    struct device_cuda *device = device_cuda_of(base);
    struct cuda_scope scope;
    cudaError_t error;
    enum kvt_status status;

    KVT_TRY(event_check(event));
    KVT_TRY(cuda_enter_lost(device, &scope));
    error = cudaEventQuery(event);
    if (error == cudaErrorNotReady) {
        /* It counts as the thread's last error, though it is none. */
        (void)cudaGetLastError();
        status = KVT_NOT_READY;
    } else {
        status = cuda_check_foreign(device, error, "query an event");
    }
    cuda_leave(&scope);
    return status;
}

static enum kvt_status
cuda_stream_wait(struct device *base, void *stream, void *event)
{
    struct device_cuda *device = device_cuda_of(base);
    struct cuda_scope scope;
    enum kvt_status status;

    KVT_TRY(event_check(event));
    KVT_TRY(cuda_stream_check(stream));
    KVT_TRY(cuda_enter(device, &scope));
    status = cuda_capture_check(device, stream);
    if (status == KVT_OK)
        status = cuda_check_foreign(
            device, cudaStreamWaitEvent(stream, event, cudaEventWaitDefault), "let a stream wait");
    cuda_leave(&scope);
    return status;
}

const struct kvt_device_ops device_cuda_ops = {
    .name = "cuda",
    .count = cuda_count,
    .open = cuda_open,
    .close = cuda_close,
    .info = cuda_info,
    .slab_take = cuda_slab_take,
    .slab_put = cuda_slab_put,
    .memory_register = cuda_memory_register,
    .memory_unregister = cuda_memory_unregister,
    .host_register = device_cuda_host_register,
    .host_unregister = device_cuda_host_unregister,
    .host_abandon = device_cuda_host_abandon,
    .peer_register = device_cuda_peer_register,
    .peer_unregister = device_cuda_peer_unregister,
    .stream = cuda_stream,
    .copy = device_cuda_copy,
    .gather = device_cuda_gather,
    .plan = device_cuda_plan,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_query = cuda_event_query,
    .stream_wait = cuda_stream_wait,
    .stream_wait_word = device_cuda_stream_wait_word,
    .share = &device_cuda_share_ops,
};
