/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_cuda_lists.c - the lists of chunks that the copy kernel reads, and starting it.
 *
 * Owns      pinned memory for CUDA_LISTS_MAX lists, taken at open, and an event for each.
 * Threads   any. A list belongs to the call that took it until it is queued or put back.
 *
 * Where a list is, and the function that makes each move:
 *
 *           cuda_list_take()          cuda_list_queue()
 *    FREE -------------------> TAKEN -------------------> QUEUED
 *     ^                         | ^                         |
 *     +-------------------------+ +-------------------------+
 *           cuda_list_put()         cuda_list_take(): its event was reached
 *
 *   FREE    Nobody reads it, and its event tells nothing.
 *   TAKEN   One call fills it.
 *   QUEUED  A kernel may read it until its event is reached.
 *
 * No call waits: when all are in use the copy engines do the work.
 */
#include "device_cuda_internal.h"
#include "try.h"

/* --- 1. Opening and closing ------------------------------------------------------------------- */

/* The kernel is not for this device, or not in this build. */
static bool
is_missing(cudaError_t error)
{
    static const cudaError_t missing[] = {cudaErrorNotSupported, cudaErrorNoKernelImageForDevice,
        cudaErrorInvalidDeviceFunction, cudaErrorUnsupportedPtxVersion, cudaErrorInvalidPtx,
        cudaErrorJitCompilerNotFound, cudaErrorJitCompilationDisabled};

    for (size_t i = 0; i < sizeof(missing) / sizeof(missing[0]); i++) {
        if (missing[i] == error)
            return true;
    }
    return false;
}

static enum kvt_status
lists_take(struct device_cuda *device)
{
    struct cuda_lists *lists = &device->lists;
    const size_t list_bytes = CUDA_LIST_CHUNKS * sizeof(struct copy_chunk);

    KVT_TRY(cuda_check(device,
        cudaHostAlloc(&lists->memory, CUDA_LISTS_MAX * list_bytes,
            cudaHostAllocPortable | cudaHostAllocMapped),
        "take pinned memory"));
    for (; lists->count < CUDA_LISTS_MAX; lists->count++) {
        struct cuda_list *list = &lists->lists[lists->count];

        list->chunks = (struct copy_chunk *)lists->memory + lists->count * CUDA_LIST_CHUNKS;
        KVT_TRY(cuda_check(device, cudaEventCreateWithFlags(&list->event, cudaEventDisableTiming),
            "make an event"));
    }
    return KVT_OK;
}

enum kvt_status
cuda_lists_open(struct device_cuda *device)
{
    static const struct device_plan engines = {.is_measured = false};
    int is_same = 0;
    cudaError_t error = copy_kernel_load();

    /* The kernel takes the host's addresses. A device has others only on systems that are not
     * those of this library. */
    if (!is_missing(error)) {
        KVT_TRY(cuda_check(device, error, "load the copy kernel"));
        KVT_TRY(cuda_check(device,
            cudaDeviceGetAttribute(
                &is_same, cudaDevAttrCanUseHostPointerForRegisteredMem, device->ordinal),
            "tell how it addresses the host's memory"));
    }
    if (is_same)
        return lists_take(device);
    (void)cudaGetLastError();
    copy_planner_set(&device->planner, &engines);
    return KVT_OK;
}

void
cuda_lists_close(struct device_cuda *device)
{
    struct cuda_lists *lists = &device->lists;

    for (uint32_t i = 0; i < lists->count && !cuda_is_lost(device); i++) {
        struct cuda_list *list = &lists->lists[i];

        /* A stream of the host's may still be at it. */
        if (atomic_load_explicit(&list->state, memory_order_acquire) == CUDA_LIST_QUEUED)
            (void)cuda_check(device, cudaEventSynchronize(list->event), "wait for an event");
        if (!cuda_is_lost(device))
            (void)cuda_check(device, cudaEventDestroy(list->event), "free an event");
    }
    if (lists->memory != NULL && !cuda_is_lost(device))
        (void)cuda_check(device, cudaFreeHost(lists->memory), "free pinned memory");
}

/* --- 2. Lists --------------------------------------------------------------------------------- */

static bool
list_claim(struct cuda_list *list, int state)
{
    /* (L1) acquire: what the caller before did with the list is done. Pairs with (L2). */
    return atomic_compare_exchange_strong_explicit(
        &list->state, &state, CUDA_LIST_TAKEN, memory_order_acquire, memory_order_relaxed);
}

static void
list_leave(struct cuda_list *list, enum cuda_list_state state)
{
    atomic_store_explicit(&list->state, (int)state, memory_order_release); /* (L2) */
}

struct cuda_list *
cuda_list_take(struct device_cuda *device)
{
    struct cuda_lists *lists = &device->lists;

    for (uint32_t i = 0; i < lists->count; i++) {
        uint32_t number = atomic_fetch_add_explicit(&lists->next, 1, memory_order_relaxed);
        struct cuda_list *list = &lists->lists[number % lists->count];
        cudaError_t error;

        if (list_claim(list, CUDA_LIST_FREE))
            return list;
        if (!list_claim(list, CUDA_LIST_QUEUED))
            continue;
        error = cudaEventQuery(list->event);
        if (error == cudaSuccess)
            return list;
        list_leave(list, CUDA_LIST_QUEUED);
        if (error != cudaErrorNotReady) {
            (void)cuda_check(device, error, "query an event");
            return NULL;
        }
        /* It counts as the thread's last error, though it is none. */
        (void)cudaGetLastError();
    }
    return NULL;
}

void
cuda_list_put(struct cuda_list *list)
{
    list_leave(list, CUDA_LIST_FREE);
}

enum kvt_status
cuda_list_queue(struct device_cuda *device, struct cuda_list *list, uint32_t count,
    const struct copy_plan *plan, cudaStream_t stream)
{
    const struct copy_grid grid = {plan->block_count, plan->thread_count};
    cudaError_t error = copy_kernel_launch(list->chunks, count, &grid, stream);

    if (error != cudaSuccess) {
        list_leave(list, CUDA_LIST_FREE);
        return cuda_check(device, error, "start the copy kernel");
    }
    error = cudaEventRecord(list->event, stream);
    /* Nobody would know when the list may be used again, nor that the copy was queued. */
    if (error != cudaSuccess)
        return cuda_lose(device, error, "record an event");
    list_leave(list, CUDA_LIST_QUEUED);
    return KVT_OK;
}
