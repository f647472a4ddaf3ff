/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_cuda_gather.c - rows of a table in pinned memory by their numbers, on a caller's stream.
 */
#include <inttypes.h>

#include "device_cuda_internal.h"
#include "failure.h"
#include "gather_kernel.h"
#include "try.h"

/* KVT_OK: all of it is known to the device. `is_own`: as its own memory. */
static enum kvt_status
memory_check(struct device_cuda *device, const void *address, uint64_t size, bool is_own)
{
    const struct device_range *range =
        device_ranges_find(&device->ranges, address_of(address), size);

    if (range != NULL && (!is_own || device_range_is_own(range)))
        return KVT_OK;
    return failure_set(KVT_E_INVAL, 0, "%" PRIu64 " bytes at %p lie in no %s.", size, address,
        is_own ? "memory of the device" : "slab and in no registered memory");
}

/* The mutex is held. */
static enum kvt_status
gather_check(struct device_cuda *device, const struct device_gather *gather, uint32_t target_bytes)
{
    const uint8_t *pages = gather->pages;
    uint64_t last = (gather->row_count - 1) / gather->rows_per_page;

    if (gather->count > UINT64_MAX / 8192)
        return failure_set(KVT_E_INVAL, 0, "%" PRIu64 " rows are too many.", gather->count);
    KVT_TRY(memory_check(device, gather->ids, gather->count * sizeof(*gather->ids), false));
    KVT_TRY(memory_check(device, gather->target, gather->count * target_bytes, true));
    KVT_TRY(memory_check(device, gather->verdict, sizeof(*gather->verdict), true));
    /* What lies between is registered with these, or not at all. */
    KVT_TRY(memory_check(device, pages, GATHER_PAGE_BYTES, false));
    return memory_check(device, pages + last * GATHER_PAGE_BYTES, GATHER_PAGE_BYTES, false);
}

/* In the device's scope. A stream that is none is found before anything is queued; whether it is
 * being captured makes no difference. */
static enum kvt_status
gather_start(struct device_cuda *device, const struct gather_work *work, cudaStream_t stream)
{
    static const struct copy_grid grid = {COPY_WIDE_BLOCKS, COPY_WIDE_THREADS};
    enum cudaStreamCaptureStatus capture;
    cudaError_t error;

    KVT_TRY(cuda_stream_look(device, stream, &capture));
    error = gather_kernel_launch(work, &grid, stream);
    if (error == cudaErrorNotSupported)
        return failure_set(KVT_E_UNSUPPORTED, 0, "This build has no kernels: it had no nvcc.");
    return cuda_check(device, error, "start a gather");
}

enum kvt_status
device_cuda_gather(struct device *base, void *stream, const struct device_gather *gather)
{
    struct device_cuda *device = device_cuda_of(base);
    const struct gather_work work = {.ids = gather->ids,
        .count = gather->count,
        .pages = gather->pages,
        .row_count = gather->row_count,
        .rows_per_page = gather->rows_per_page,
        .row_bytes = gather->row_bytes,
        .value_count = gather->value_count,
        .scale_count = gather->scale_count,
        .target = gather->target,
        .verdict = gather->verdict};
    struct cuda_scope scope;
    enum kvt_status status;

    KVT_TRY(cuda_stream_check(stream));
    (void)pthread_mutex_lock(&device->mutex);
    status = gather_check(device, gather, gather_target_bytes(&work));
    (void)pthread_mutex_unlock(&device->mutex);
    KVT_TRY(status);
    KVT_TRY(cuda_enter(device, &scope));
    status = gather_start(device, &work, stream);
    cuda_leave(&scope);
    return status;
}
