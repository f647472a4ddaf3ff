/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_cuda_host.c - host memory that a GPU may use: pinned by the device, or by others before.
 */
#include <inttypes.h>

#include "bytes.h"
#include "device_cuda_internal.h"
#include "device_pins.h"
#include "failure.h"
#include "try.h"

static const uint64_t REGISTER_BYTES_MAX = UINT64_C(1) << 30;
static const uint64_t LOOK_BYTES = UINT64_C(2) << 20;

/* Is the byte at `address` pinned? */
static enum kvt_status
pinned_check(struct device_cuda *device, uint64_t address)
{
    struct cudaPointerAttributes attributes = {.type = cudaMemoryTypeUnregistered};

    KVT_TRY(cuda_check_foreign(device,
        cudaPointerGetAttributes(&attributes, (const void *)(uintptr_t)address), "look at memory"));
    if (attributes.type == cudaMemoryTypeHost)
        return KVT_OK;
    return failure_set(
        KVT_E_INVAL, 0, "Some of the memory at 0x%" PRIx64 " is pinned, some is not.", address);
}

/* --- 1. What the devices of this process share ------------------------------------------------ */

/* The context outlives its device while others use what was pinned in it. */
static enum kvt_status
pages_pin(void *context, struct device_pin *pin)
{
    struct device_cuda *device = context;
    void *memory = (void *)(uintptr_t)pin->start;
    CUcontext retained = NULL;
    CUresult result;
    cudaError_t error =
        cudaHostRegister(memory, pin->size, cudaHostRegisterPortable | cudaHostRegisterMapped);

    if (error == cudaErrorHostMemoryAlreadyRegistered) {
        (void)cudaGetLastError();
        return KVT_MISS;
    }
    /* The kernel refuses it, or the driver: pages of a file or a device, say, or too many. */
    if (error == cudaErrorOperatingSystem)
        return cuda_fail(KVT_E_NOMEM, device, error, "pin host memory");
    KVT_TRY(cuda_check_foreign(device, error, "register host memory"));
    result = device->driver.primary_retain(&retained, device->handle);
    if (result != CUDA_SUCCESS) {
        (void)cuda_check_foreign(device, cudaHostUnregister(memory), "unregister host memory");
        return failure_set(KVT_E_NOMEM, (int)result,
            "Device %d gives no context (CUDA driver error %d).", device->ordinal, (int)result);
    }
    pin->context = retained;
    pin->ordinal = device->handle;
    return KVT_OK;
}

/* In the scope of the context that pinned it. */
static enum kvt_status
pages_unpin_there(struct device_cuda *device, const struct device_pin *pin)
{
    cudaError_t error = cudaHostUnregister((void *)(uintptr_t)pin->start);

    if (error == cudaErrorHostMemoryNotRegistered) {
        (void)cudaGetLastError(); /* Then it is free, whoever did it. */
        return KVT_OK;
    }
    if (error == cudaSuccess || pin->context == device->context)
        return cuda_check_foreign(device, error, "unregister host memory");
    (void)cudaGetLastError();
    return failure_set(KVT_E_GPU, (int)error, "CUDA cannot unregister it where it was registered.");
}

static enum kvt_status
pages_unpin(void *context, const struct device_pin *pin)
{
    struct device_cuda *device = context;
    struct cuda_scope scope;
    enum kvt_status status = cuda_enter_context(device, pin->context, &scope);

    if (status == KVT_OK) {
        status = pages_unpin_there(device, pin);
        cuda_leave(&scope);
    }
    (void)device->driver.primary_release(pin->ordinal);
    return status;
}

static const struct device_pin_driver pin_driver = {.pin = pages_pin, .unpin = pages_unpin};

/* --- 2. Registrations ------------------------------------------------------------------------- */

/* Memory that somebody outside of the library has pinned: holes of less than a large page are not
 * seen, as a look costs a call of CUDA. */
static enum kvt_status
pinned_by_others_check(struct device_cuda *device, const struct device_range *range)
{
    uint64_t end = range->start + range->size;

    KVT_TRY(pinned_check(device, range->start));
    for (uint64_t at = round_up(range->start + 1, LOOK_BYTES); at < end; at += LOOK_BYTES)
        KVT_TRY(pinned_check(device, at));
    return pinned_check(device, end - 1);
}

static enum kvt_status
host_pin(struct device_cuda *device, struct device_range *range)
{
    enum kvt_status status = device_pins_take(&pin_driver, device, range->start, range->size);

    if (status != KVT_MISS)
        return status;
    KVT_TRY(pinned_by_others_check(device, range));
    range->kind = DEVICE_RANGE_PINNED;
    return KVT_OK;
}

/* What a lost device was doing is waited for: nobody else knows of it. */
static enum kvt_status
lost_await(struct device_cuda *device)
{
    struct cuda_scope scope;
    enum kvt_status status;

    if (!cuda_is_lost(device))
        return KVT_OK;
    KVT_TRY(cuda_enter_lost(device, &scope));
    status = cuda_lanes_await(device);
    cuda_leave(&scope);
    return status;
}

static enum kvt_status
host_let_go(struct device_cuda *device, const struct device_range *range)
{
    struct failure cause;
    enum kvt_status status = lost_await(device);

    if (range->kind == DEVICE_RANGE_HOST) {
        if (status == KVT_OK)
            status = device_pins_put(&pin_driver, device, range->start, range->size);
        else
            device_pins_keep(&pin_driver, range->start, range->size);
    }
    if (status == KVT_OK)
        return KVT_OK;
    cause = *failure_last();
    return failure_set(KVT_E_GPU, cause.foreign_code,
        "Device %d does not let go of %" PRIu64 " bytes of host memory at 0x%" PRIx64
        ": they must stay where they are until the process ends. %s",
        device->ordinal, range->size, range->start, cause.text);
}

static enum kvt_status
host_note(struct device_cuda *device, const struct device_range *range)
{
    enum kvt_status status = cuda_range_add(device, range);
    struct failure cause = *failure_last();

    if (status == KVT_OK)
        return KVT_OK;
    KVT_TRY(host_let_go(device, range));
    failure_copy(&cause);
    return status;
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
    cuda_leave(&scope);
    return status == KVT_OK ? host_note(device, &range) : status;
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
    bool is_pinned = cuda_range_remove(device, &pinned);

    if (!is_pinned) {
        bool is_there = cuda_range_remove(device, &range);

        KVT_ASSERT(is_there);
        device_pins_keep(&pin_driver, range.start, range.size);
    }
}
