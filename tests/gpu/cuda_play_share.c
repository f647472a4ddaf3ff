/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_play_share.c - the driver's functions for memory and words of several processes, played as
 * in cuda_play.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda_play.h"
#include "device_cuda_internal.h"

static const size_t SHARED_GRANULARITY = 2 << 20;

static CUresult
play_uuid(CUuuid *uuid, CUdevice device)
{
    memset(uuid->bytes, 'a' + device, sizeof(uuid->bytes));
    return (CUresult)(play.depth == 0 ? cudaSuccess : play_call(true));
}

static CUresult
play_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    assert_true(attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED ||
                attribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
    assert_int_equal(device, 1);
    *value = attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED ||
             !play.has_no_sharing;
    return (CUresult)play_call(true);
}

static void
properties_check(const CUmemAllocationProp *properties)
{
    assert_int_equal(properties->type, CU_MEM_ALLOCATION_TYPE_PINNED);
    assert_int_equal(properties->requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    assert_int_equal(properties->location.type, CU_MEM_LOCATION_TYPE_DEVICE);
    assert_int_equal(properties->location.id, 1);
}

static CUresult
play_granularity(
    size_t *size_out, const CUmemAllocationProp *properties, CUmemAllocationGranularity_flags flags)
{
    properties_check(properties);
    assert_int_equal(flags, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    *size_out = play.granularity == 0 ? SHARED_GRANULARITY : play.granularity;
    return (CUresult)play_call(true);
}

static CUresult
play_reserve(
    CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wish, unsigned long long flags)
{
    cudaError_t error = play_call(true);

    assert_true(alignment == SHARED_GRANULARITY && wish == 0 && flags == 0);
    if (error == cudaSuccess)
        *address = (CUdeviceptr)(uintptr_t)play_hold(size);
    return (CUresult)error;
}

static CUresult
play_unreserve(CUdeviceptr address, size_t size)
{
    assert_int_equal(size % SHARED_GRANULARITY, 0);
    (void)play_hold_end((void *)(uintptr_t)address);
    return (CUresult)play_call(true);
}

/* A handle is so many bytes. */
static CUresult
play_create(CUmemGenericAllocationHandle *handle, size_t size,
    const CUmemAllocationProp *properties, unsigned long long flags)
{
    cudaError_t error = play_call(true);

    properties_check(properties);
    assert_int_equal(flags, 0);
    if (error != cudaSuccess)
        return (CUresult)error;
    if (size > 128 << 20)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = size;
    play.holds++;
    return CUDA_SUCCESS;
}

static CUresult
play_let_go(CUmemGenericAllocationHandle handle)
{
    assert_true(handle > 0);
    play.holds--;
    return (CUresult)play_call(true);
}

static CUresult
play_map(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
    unsigned long long flags)
{
    cudaError_t error = play_call(true);

    assert_true(address != 0 && offset == 0 && flags == 0);
    if (error != cudaSuccess)
        return (CUresult)error;
    if (size != handle)
        return CUDA_ERROR_INVALID_VALUE;
    play.holds++;
    return CUDA_SUCCESS;
}

static CUresult
play_unmap(CUdeviceptr address, size_t size)
{
    assert_true(address != 0 && size > 0);
    play.holds--;
    return (CUresult)play_call(true);
}

static CUresult
play_set_access(CUdeviceptr address, size_t size, const CUmemAccessDesc *access, size_t count)
{
    cudaError_t error = play_call(true);

    assert_true(address != 0 && size > 0 && count == 1);
    assert_int_equal(access->location.type, CU_MEM_LOCATION_TYPE_DEVICE);
    assert_int_equal(access->location.id, 1);
    if (error == cudaSuccess && play.is_read_refused &&
        access->flags == CU_MEM_ACCESS_FLAGS_PROT_READ)
        return CUDA_ERROR_NOT_SUPPORTED;
    play.access = access->flags;
    return (CUresult)error;
}

/* The descriptor's number of bytes is the handle's: an eventfd is no plain file, either. */
static CUresult
play_export(void *descriptor, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
    unsigned long long flags)
{
    cudaError_t error = play_call(true);
    int made;

    assert_true(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && flags == 0);
    if (error != cudaSuccess)
        return (CUresult)error;
    made = eventfd((unsigned)handle, 0);
    assert_true(made >= 0);
    memcpy(descriptor, &made, sizeof(made));
    return CUDA_SUCCESS;
}

static CUresult
play_import(CUmemGenericAllocationHandle *handle, void *descriptor, CUmemAllocationHandleType type)
{
    cudaError_t error = play_call(true);
    uint64_t size = 0;

    assert_int_equal(type, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (error != cudaSuccess)
        return (CUresult)error;
    if (play.is_import_refused)
        return CUDA_ERROR_OPERATING_SYSTEM;
    assert_int_equal(eventfd_read((int)(intptr_t)descriptor, &size), 0);
    assert_int_equal(eventfd_write((int)(intptr_t)descriptor, size), 0);
    *handle = size;
    play.holds++;
    return CUDA_SUCCESS;
}

static CUresult
play_word_write(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags)
{
    cudaError_t error = play_call(true);

    assert_non_null(stream);
    assert_int_equal(flags, CU_STREAM_WRITE_VALUE_DEFAULT);
    if (error == cudaSuccess)
        *(uint64_t *)(uintptr_t)address = value;
    return (CUresult)error;
}

static CUresult
play_word_wait(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags)
{
    assert_true(stream != NULL && address != 0);
    assert_int_equal(flags, CU_STREAM_WAIT_VALUE_GEQ);
    play.waited = value;
    return (CUresult)play_call(true);
}

cudaError_t
cudaHostGetDevicePointer(void **address, void *memory, unsigned int flags)
{
    PLAY_TRY(true);
    assert_int_equal(flags, 0);
    *address = memory;
    return cudaSuccess;
}

bool
play_share_find(const char *name, void **function_out)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } functions[] = {
        {"cuDeviceGetUuid", (void (*)(void))play_uuid},
        {"cuDeviceGetAttribute", (void (*)(void))play_attribute},
        {"cuMemGetAllocationGranularity", (void (*)(void))play_granularity},
        {"cuMemAddressReserve", (void (*)(void))play_reserve},
        {"cuMemAddressFree", (void (*)(void))play_unreserve},
        {"cuMemCreate", (void (*)(void))play_create},
        {"cuMemRelease", (void (*)(void))play_let_go},
        {"cuMemMap", (void (*)(void))play_map},
        {"cuMemUnmap", (void (*)(void))play_unmap},
        {"cuMemSetAccess", (void (*)(void))play_set_access},
        {"cuMemExportToShareableHandle", (void (*)(void))play_export},
        {"cuMemImportFromShareableHandle", (void (*)(void))play_import},
        {"cuStreamWriteValue64", (void (*)(void))play_word_write},
        {"cuStreamWaitValue64", (void (*)(void))play_word_wait},
    };

    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        if (strcmp(functions[i].name, name) == 0) {
            memcpy(function_out, &functions[i].function, sizeof(*function_out));
            return true;
        }
    }
    return false;
}
