/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_cuda_host.c - host memory that a GPU may use: pinned by the device, or by others before.
 */
#include <inttypes.h>

#include "bytes.h"
#include "device_cuda_internal.h"
#include "failure.h"
#include "try.h"

static const uint64_t REGISTER_BYTES_MAX = UINT64_C(1) << 30;

/* Is the byte at `address` pinned? */
static enum kvt_status
pinned_check(struct device_cuda *device, uint64_t address)
{
    struct cudaPointerAttributes attributes = {.type = cudaMemoryTypeUnregistered};

    KVT_TRY(cuda_check(device,
        cudaPointerGetAttributes(&attributes, (const void *)(uintptr_t)address), "look at memory"));
    if (attributes.type == cudaMemoryTypeHost)
        return KVT_OK;
    return failure_set(
        KVT_E_INVAL, 0, "Some of the memory at 0x%" PRIx64 " is pinned, some is not.", address);
}

/* Pinning is the process's, for all devices: another one, or the program itself, may have done it.
 */
static enum kvt_status
host_pin(struct device_cuda *device, struct device_range *range)
{
    void *memory = (void *)(uintptr_t)range->start;
    cudaError_t error =
        cudaHostRegister(memory, range->size, cudaHostRegisterPortable | cudaHostRegisterMapped);

    if (error != cudaErrorHostMemoryAlreadyRegistered)
        return cuda_check(device, error, "register host memory");
    (void)cudaGetLastError();
    KVT_TRY(pinned_check(device, range->start));
    KVT_TRY(pinned_check(device, range->start + range->size - 1));
    range->kind = DEVICE_RANGE_PINNED;
    return KVT_OK;
}

enum kvt_status
device_cuda_host_register(struct device *base, void *memory, uint64_t size)
{
    struct device_cuda *device = device_cuda_of(base);
    struct device_range range = {address_of(memory), size, DEVICE_RANGE_HOST};
    struct cuda_scope scope;
    enum kvt_status status;

    if (memory == NULL || size == 0 || (range.start | size) % PAGE_BYTES != 0 ||
        size > REGISTER_BYTES_MAX) {
        return failure_set(KVT_E_INVAL, 0,
            "%" PRIu64
            " bytes at %p cannot be registered: it takes whole pages, and at most %" PRIu64
            " bytes.",
            size, memory, REGISTER_BYTES_MAX);
    }
    KVT_TRY(cuda_enter(device, &scope));
    status = host_pin(device, &range);
    if (status == KVT_OK) {
        status = cuda_range_add(device, &range);
        if (status != KVT_OK && range.kind == DEVICE_RANGE_HOST)
            (void)cuda_check(device, cudaHostUnregister(memory), "unregister host memory");
    }
    cuda_leave(&scope);
    return status;
}

/* In its scope. What a lost device was doing is waited for: nobody else knows of it. */
static enum kvt_status
host_unpin(struct device_cuda *device, const struct device_range *range)
{
    cudaError_t error;

    if (cuda_is_lost(device))
        KVT_TRY(cuda_lanes_await(device));
    if (range->kind == DEVICE_RANGE_PINNED)
        return KVT_OK;
    error = cudaHostUnregister((void *)(uintptr_t)range->start);
    if (error == cudaErrorHostMemoryNotRegistered) {
        (void)cudaGetLastError(); /* Then it is free, whoever did it. */
        return KVT_OK;
    }
    return cuda_check(device, error, "unregister host memory");
}

static enum kvt_status
host_let_go(struct device_cuda *device, const struct device_range *range)
{
    struct failure cause;
    struct cuda_scope scope;
    enum kvt_status status = cuda_enter_lost(device, &scope);

    if (status == KVT_OK) {
        status = host_unpin(device, range);
        cuda_leave(&scope);
    }
    if (status == KVT_OK)
        return KVT_OK;
    cause = *failure_last();
    return failure_set(KVT_E_GPU, cause.foreign_code,
        "Device %d does not let go of %" PRIu64 " bytes of host memory at 0x%" PRIx64
        ": they must stay where they are until the process ends. %s",
        device->ordinal, range->size, range->start, cause.text);
}

enum kvt_status
device_cuda_host_unregister(struct device *base, void *memory, uint64_t size)
{
    struct device_cuda *device = device_cuda_of(base);
    struct device_range range = {address_of(memory), size, DEVICE_RANGE_PINNED};
    bool is_there = cuda_range_remove(device, &range);

    if (!is_there) {
        range.kind = DEVICE_RANGE_HOST;
        is_there = cuda_range_remove(device, &range);
    }
    KVT_ASSERT(is_there);
    return is_there ? host_let_go(device, &range) : KVT_OK;
}

void
device_cuda_host_abandon(struct device *base, void *memory, uint64_t size)
{
    struct device_cuda *device = device_cuda_of(base);
    const struct device_range range = {address_of(memory), size, DEVICE_RANGE_HOST};
    const struct device_range pinned = {address_of(memory), size, DEVICE_RANGE_PINNED};
    bool is_there = cuda_range_remove(device, &pinned) || cuda_range_remove(device, &range);

    KVT_ASSERT(is_there);
}
