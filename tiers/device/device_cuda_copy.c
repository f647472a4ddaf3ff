/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_cuda_copy.c - batches of copies through the copy engines.
 *
 * Pieces that touch on both sides become one run. One run is a cudaMemcpyAsync(), several are one
 * cudaMemcpyBatchAsync(): a call for each piece costs more than the bytes of a small one.
 *
 * The source is read in stream order: a copy out may be behind the kernel that writes its source.
 * No overlap flag: copies within the device are many times slower with it.
 */
#include <assert.h>
#include <inttypes.h>

#include "device_cuda_internal.h"
#include "failure.h"
#include "try.h"

static_assert(CUDART_VERSION >= 13000, "cudaMemcpyBatchAsync() had another signature before");
static_assert(sizeof(size_t) == sizeof(uint64_t), "a piece's size is a size_t");

enum {
    RUNS_ON_STACK = 64,
};

struct runs {
    void **targets;
    const void **sources;
    size_t *sizes;
    uint32_t count;
    uint32_t capacity;
    /* Where the two ends of the last run lie: no run crosses from one range to the next. */
    const struct device_range *target_range;
    const struct device_range *source_range;
};

static const struct device_range *
end_find(struct device_cuda *device, const void *start, uint64_t size)
{
    const struct device_range *range =
        size == 0 ? NULL : device_ranges_find(&device->ranges, address_of(start), size);

    if (range == NULL) {
        (void)failure_set(KVT_E_INVAL, 0,
            "%" PRIu64 " bytes at %p lie in no slab and in no registered memory.", size, start);
    }
    return range;
}

/* Does the piece begin where the last run ends, on both sides? */
static bool
runs_touch(const struct runs *runs, const struct device_piece *piece)
{
    uint32_t last = runs->count - 1;

    return address_of(runs->targets[last]) + runs->sizes[last] == address_of(piece->target) &&
           address_of(runs->sources[last]) + runs->sizes[last] == address_of(piece->source);
}

static enum kvt_status
runs_add(struct runs *runs, struct device_cuda *device, const struct device_piece *piece)
{
    const struct device_range *target = end_find(device, piece->target, piece->size);
    const struct device_range *source =
        target == NULL ? NULL : end_find(device, piece->source, piece->size);

    if (source == NULL)
        return KVT_E_INVAL;
    if (runs->count > 0 && target == runs->target_range && source == runs->source_range &&
        runs_touch(runs, piece)) {
        runs->sizes[runs->count - 1] += piece->size;
        return KVT_OK;
    }
    runs->targets[runs->count] = piece->target;
    runs->sources[runs->count] = piece->source;
    runs->sizes[runs->count] = piece->size;
    runs->target_range = target;
    runs->source_range = source;
    runs->count++;
    return KVT_OK;
}

static enum kvt_status
runs_fill(struct runs *runs, struct device_cuda *device, const struct device_piece *pieces)
{
    enum kvt_status status = KVT_OK;

    (void)pthread_mutex_lock(&device->mutex);
    for (uint32_t i = 0; i < runs->capacity && status == KVT_OK; i++)
        status = runs_add(runs, device, &pieces[i]);
    (void)pthread_mutex_unlock(&device->mutex);
    return status;
}

/* A copy onto a stream that is being captured is not made now, and a batch is dropped silently. */
static enum kvt_status
capture_check(struct device_cuda *device, cudaStream_t stream)
{
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;

    for (uint32_t i = 0; i < DEVICE_LANE_COUNT; i++) {
        if (stream == device->streams[i])
            return KVT_OK;
    }
    KVT_TRY(cuda_check(device, cudaStreamIsCapturing(stream, &capture), "look at a stream"));
    if (capture != cudaStreamCaptureStatusNone) {
        return failure_set(KVT_E_INVAL, 0,
            "The stream %p is being captured into a graph: copies cannot be queued on it.",
            (void *)stream);
    }
    return KVT_OK;
}

static enum kvt_status
runs_queue(const struct runs *runs, struct device_cuda *device, cudaStream_t stream)
{
    struct cudaMemcpyAttributes attributes = {.srcAccessOrder = cudaMemcpySrcAccessOrderStream};
    size_t first = 0;
    cudaError_t error;

    KVT_TRY(capture_check(device, stream));
    if (runs->count == 1) {
        return cuda_check(device,
            cudaMemcpyAsync(
                runs->targets[0], runs->sources[0], runs->sizes[0], cudaMemcpyDefault, stream),
            "queue a copy");
    }
    error = cudaMemcpyBatchAsync((void *const *)runs->targets, (const void *const *)runs->sources,
        runs->sizes, runs->count, &attributes, &first, 1, stream);
    /* Some of it may be queued, and what it reads and writes is then not the caller's. Pieces and
     * stream were good, so this is no everyday error. */
    return error == cudaSuccess ? KVT_OK : cuda_lose(device, error, "queue a batch of copies");
}

static enum kvt_status
runs_copy(struct runs *runs, struct device_cuda *device, cudaStream_t stream,
    const struct device_piece *pieces)
{
    struct cuda_scope scope;
    enum kvt_status status;

    KVT_TRY(runs_fill(runs, device, pieces));
    KVT_TRY(cuda_enter(device, &scope));
    status = runs_queue(runs, device, stream);
    cuda_leave(&scope);
    return status;
}

enum kvt_status
device_cuda_copy(
    struct device *base, void *stream, const struct device_piece *pieces, uint32_t count)
{
    struct device_cuda *device = device_cuda_of(base);
    void *targets[RUNS_ON_STACK];
    const void *sources[RUNS_ON_STACK];
    size_t sizes[RUNS_ON_STACK];
    struct runs runs = {.targets = targets, .sources = sources, .sizes = sizes, .capacity = count};
    size_t bytes = (size_t)count * (sizeof(targets[0]) + sizeof(sources[0]) + sizeof(sizes[0]));
    enum kvt_status status;

    KVT_TRY(cuda_stream_check(stream));
    if (pieces == NULL || count == 0)
        return failure_set(KVT_E_INVAL, 0, "A copy has one piece or more.");
    if (count <= RUNS_ON_STACK)
        return runs_copy(&runs, device, stream, pieces);
    runs.targets = env_take(&device->env, bytes);
    if (runs.targets == NULL)
        return failure_set(KVT_E_NOMEM, 0, "No memory for a copy of %" PRIu32 " pieces.", count);
    runs.sources = (const void **)(runs.targets + count);
    runs.sizes = (size_t *)(void *)(runs.sources + count);
    status = runs_copy(&runs, device, stream, pieces);
    env_put(&device->env, runs.targets, bytes);
    return status;
}
