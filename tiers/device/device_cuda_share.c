/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_cuda_share.c - a GPU in several processes: slabs that others map, and words of host memory
 * that streams write and wait for.
 *
 * A slab that is shared is memory of the driver's virtual memory management, which counts who has
 * it mapped and frees it after the last; a file descriptor stands for it. (What a handle of
 * cudaIpcGetMemHandle() stands for ends with the process that allocated it.) Who adopts one maps it
 * to read alone where the driver can, which it says by refusing; else to read and write.
 *
 * The driver's functions for it are asked for when they are first needed: without sharing a driver
 * need not have them. Their errors have the runtime's numbers, since CUDA 10.1.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bytes.h"
#include "device_cuda_internal.h"
#include "device_share.h"
#include "failure.h"
#include "fork_descriptor.h"
#include "streams_host.h"
#include "try.h"

static const uint64_t SLAB_ALIGN_BYTES = UINT64_C(2) << 20;

static enum kvt_status
share_check(struct device_cuda *device, CUresult result, const char *what)
{
    return cuda_check(device, (cudaError_t)result, what);
}

/* --- 1. The driver ---------------------------------------------------------------------------- */

static enum kvt_status
driver_load(struct cuda_share_driver *driver)
{
    KVT_TRY(driver_find("cuDeviceGetUuid", &driver->device_uuid));
    KVT_TRY(driver_find("cuDeviceGetAttribute", &driver->device_attribute));
    KVT_TRY(driver_find("cuMemGetAllocationGranularity", &driver->granularity));
    KVT_TRY(driver_find("cuMemAddressReserve", &driver->reserve));
    KVT_TRY(driver_find("cuMemAddressFree", &driver->unreserve));
    KVT_TRY(driver_find("cuMemCreate", &driver->create));
    KVT_TRY(driver_find("cuMemRelease", &driver->release));
    KVT_TRY(driver_find("cuMemMap", &driver->map));
    KVT_TRY(driver_find("cuMemUnmap", &driver->unmap));
    KVT_TRY(driver_find("cuMemSetAccess", &driver->set_access));
    KVT_TRY(driver_find("cuMemExportToShareableHandle", &driver->export));
    KVT_TRY(driver_find("cuMemImportFromShareableHandle", &driver->import));
    KVT_TRY(driver_find("cuStreamWriteValue64", &driver->word_write));
    return driver_find("cuStreamWaitValue64", &driver->word_wait);
}

static enum kvt_status
driver_of(struct device_cuda *device, struct cuda_share_driver *driver_out)
{
    (void)pthread_mutex_lock(&device->mutex);
    *driver_out = device->share_driver;
    (void)pthread_mutex_unlock(&device->mutex);
    if (driver_out->word_wait != NULL)
        return KVT_OK;
    KVT_TRY(driver_load(driver_out));
    (void)pthread_mutex_lock(&device->mutex);
    device->share_driver = *driver_out;
    (void)pthread_mutex_unlock(&device->mutex);
    return KVT_OK;
}

/* --- 2. Who a device is ----------------------------------------------------------------------- */

static enum kvt_status
share_identity(struct device *base, uint8_t id_out[DEVICE_ID_BYTES])
{
    struct device_cuda *device = device_cuda_of(base);
    struct cuda_share_driver driver;
    CUuuid uuid;

    if (cuda_is_lost(device))
        return failure_set(
            KVT_E_GPU, 0, "Device %d was lost by an earlier error of CUDA.", device->ordinal);
    KVT_TRY(driver_of(device, &driver));
    KVT_TRY(share_check(device, driver.device_uuid(&uuid, device->handle), "tell its identity"));
    memcpy(id_out, uuid.bytes, DEVICE_ID_BYTES);
    return KVT_OK;
}

static enum kvt_status
share_find(void *context, const uint8_t id[DEVICE_ID_BYTES], uint32_t *ordinal_out)
{
    PFN_cuDeviceGet_v2000 get;
    PFN_cuDeviceGetUuid_v11040 uuid_get;
    uint32_t count = 0;

    KVT_TRY(device_cuda_ops.count(context, &count));
    KVT_TRY(driver_find("cuDeviceGet", &get));
    KVT_TRY(driver_find("cuDeviceGetUuid", &uuid_get));
    for (uint32_t i = 0; i < count; i++) {
        CUdevice device;
        CUuuid uuid;

        if (get(&device, (int)i) == CUDA_SUCCESS && uuid_get(&uuid, device) == CUDA_SUCCESS &&
            memcmp(uuid.bytes, id, DEVICE_ID_BYTES) == 0) {
            *ordinal_out = i;
            return KVT_OK;
        }
    }
    return failure_set(KVT_E_INVAL, 0,
        "None of the %" PRIu32 " GPUs that this process sees has that identity.", count);
}

/* --- 3. Slabs --------------------------------------------------------------------------------- */

static CUmemAllocationProp
slab_properties(const struct device_cuda *device)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal}};
}

/* KVT_OK: the device has memory that can be handed on by a descriptor. */
static enum kvt_status
support_check(struct device_cuda *device, const struct cuda_share_driver *driver)
{
    static const CUdevice_attribute needed[] = {
        CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
    };

    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        int has = 0;

        KVT_TRY(share_check(
            device, driver->device_attribute(&has, needed[i], device->handle), "tell what it has"));
        if (!has)
            return failure_set(KVT_E_UNSUPPORTED, 0,
                "Device %d has no memory that other processes can map by a file descriptor.",
                device->ordinal);
    }
    return KVT_OK;
}

static CUresult
access_set(const struct device_cuda *device, const struct cuda_share_driver *driver,
    CUdeviceptr address, uint64_t size, CUmemAccess_flags flags)
{
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal}, .flags = flags};

    return driver->set_access(address, size, &access, 1);
}

/* Addresses of this process for the memory. */
static enum kvt_status
memory_map(struct device_cuda *device, const struct cuda_share_driver *driver,
    CUmemGenericAllocationHandle memory, const struct device_shared *shared,
    CUdeviceptr *address_out)
{
    uint64_t size = shared->range.size;
    CUdeviceptr address = 0;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    enum kvt_status status;

    KVT_TRY(share_check(
        device, driver->reserve(&address, size, SLAB_ALIGN_BYTES, 0, 0), "reserve addresses"));
    status = share_check(device, driver->map(address, size, 0, memory, 0), "map a slab");
    if (status == KVT_OK) {
        if (shared->range.kind == DEVICE_RANGE_ADOPTED)
            result = access_set(device, driver, address, size, CU_MEM_ACCESS_FLAGS_PROT_READ);
        if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_INVALID_VALUE)
            result = access_set(device, driver, address, size, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        status = share_check(device, result, "open a slab for its kernels");
        if (status != KVT_OK && !cuda_is_lost(device))
            (void)driver->unmap(address, size);
    }
    if (status != KVT_OK && !cuda_is_lost(device))
        (void)driver->unreserve(address, size);
    *address_out = address;
    return status;
}

static void
memory_unmap(struct device_cuda *device, const struct cuda_share_driver *driver,
    const struct device_shared *shared)
{
    CUdeviceptr address = (CUdeviceptr)shared->range.start;

    if (share_check(device, driver->unmap(address, shared->range.size), "unmap a slab") == KVT_OK)
        (void)share_check(device, driver->unreserve(address, shared->range.size), "free addresses");
}

/* It is mapped from here on, and noted in the device's table; the handle is not needed for that. */
static enum kvt_status
slab_note(struct device_cuda *device, const struct cuda_share_driver *driver,
    CUmemGenericAllocationHandle memory, struct device_shared *shared)
{
    CUdeviceptr address = 0;
    enum kvt_status status;

    KVT_TRY(memory_map(device, driver, memory, shared, &address));
    shared->range.start = (uint64_t)address;
    (void)pthread_mutex_lock(&device->mutex);
    status = device_ranges_add(&device->ranges, &shared->range);
    if (status == KVT_OK)
        device_shared_add(&device->shared, shared);
    (void)pthread_mutex_unlock(&device->mutex);
    if (status != KVT_OK)
        memory_unmap(device, driver, shared);
    return status;
}

static void
descriptor_close(struct device_shared *shared)
{
    if (shared->descriptor < 0)
        return;
    (void)fork_hold(); /* As when it was made. */
    fork_descriptor_remove(&shared->fork_item);
    (void)close(shared->descriptor);
    fork_release();
    shared->descriptor = -1;
}

/* A descriptor that exec closes, and forks from now on; no standard stream. The driver, which forks
 * itself at times, is not called under fork_hold(): a child that is forked meanwhile has one. */
static enum kvt_status
memory_export(struct device_cuda *device, const struct cuda_share_driver *driver,
    CUmemGenericAllocationHandle memory, struct device_shared *shared)
{
    int descriptor = -1;
    enum kvt_status status;

    KVT_TRY(share_check(device,
        driver->export(&descriptor, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        "export a slab"));
    descriptor = streams_pass(descriptor);
    if (descriptor < 0 || fcntl(descriptor, F_SETFD, FD_CLOEXEC) != 0)
        return failure_set(
            KVT_E_UNSUPPORTED, 0, "Device %d gave no descriptor for a slab.", device->ordinal);
    status = fork_hold();
    if (status != KVT_OK) {
        (void)close(descriptor);
        return status;
    }
    fork_descriptor_add(&shared->fork_item, descriptor);
    fork_release();
    shared->descriptor = descriptor;
    return KVT_OK;
}

static enum kvt_status
slab_make(struct device_cuda *device, struct device_shared *shared)
{
    CUmemAllocationProp properties = slab_properties(device);
    CUmemGenericAllocationHandle memory = 0;
    struct cuda_share_driver driver;
    size_t granularity = 0;
    enum kvt_status status;

    KVT_TRY(driver_of(device, &driver));
    KVT_TRY(support_check(device, &driver));
    KVT_TRY(share_check(device,
        driver.granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "tell how it cuts memory"));
    if (granularity == 0 || shared->range.size % granularity != 0)
        return failure_set(KVT_E_UNSUPPORTED, 0,
            "Device %d shares memory by %zu bytes, and %" PRIu64 " are no multiple.",
            device->ordinal, granularity, shared->range.size);
    KVT_TRY(share_check(
        device, driver.create(&memory, shared->range.size, &properties, 0), "allocate a slab"));
    status = memory_export(device, &driver, memory, shared);
    if (status == KVT_OK)
        status = slab_note(device, &driver, memory, shared);
    if (!cuda_is_lost(device))
        (void)share_check(device, driver.release(memory), "let go of a slab's handle");
    return status;
}

/* What it cannot be; the driver is not asked about files that are plainly something else. */
static enum kvt_status
descriptor_check(int descriptor)
{
    struct stat about;

    if (fstat(descriptor, &about) != 0 || S_ISREG(about.st_mode) || S_ISDIR(about.st_mode) ||
        S_ISFIFO(about.st_mode) || S_ISSOCK(about.st_mode))
        return failure_set(
            KVT_E_INVAL, 0, "Descriptor %d stands for no memory of a GPU.", descriptor);
    return KVT_OK;
}

static enum kvt_status
slab_map(struct device_cuda *device, int descriptor, struct device_shared *shared)
{
    CUmemGenericAllocationHandle memory = 0;
    struct cuda_share_driver driver;
    enum kvt_status status;
    CUresult result;

    KVT_TRY(descriptor_check(descriptor));
    KVT_TRY(driver_of(device, &driver));
    result = driver.import(
        &memory, (void *)(uintptr_t)(unsigned)descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    /* The driver has several words for what is no memory of its own. */
    if (result == CUDA_ERROR_OPERATING_SYSTEM || result == CUDA_ERROR_INVALID_DEVICE ||
        result == CUDA_ERROR_INVALID_HANDLE)
        result = CUDA_ERROR_INVALID_VALUE;
    KVT_TRY(share_check(device, result, "find the memory of a descriptor"));
    status = slab_note(device, &driver, memory, shared);
    if (!cuda_is_lost(device))
        (void)share_check(device, driver.release(memory), "let go of a slab's handle");
    return status;
}

static enum kvt_status
shared_begin(struct device_cuda *device, uint64_t size, enum device_range_kind kind,
    struct device_shared **shared_out)
{
    if (size == 0 || size % SLAB_ALIGN_BYTES != 0)
        return failure_set(KVT_E_INVAL, 0,
            "%" PRIu64 " bytes of shared memory are no whole pages of 2 MiB.", size);
    *shared_out = env_take(&device->env, sizeof(**shared_out));
    if (*shared_out == NULL)
        return failure_set(KVT_E_NOMEM, 0, "No memory for a slab that is shared.");
    (*shared_out)->range.size = size;
    (*shared_out)->range.kind = kind;
    (*shared_out)->descriptor = -1;
    return KVT_OK;
}

/* Made (descriptor negative), or adopted. */
static enum kvt_status
shared_take(struct device_cuda *device, uint64_t size, int descriptor, void **address_out,
    int *descriptor_out)
{
    struct device_shared *shared;
    struct cuda_scope scope;
    enum kvt_status status;

    *address_out = NULL;
    KVT_TRY(shared_begin(
        device, size, descriptor < 0 ? DEVICE_RANGE_SLAB : DEVICE_RANGE_ADOPTED, &shared));
    status = cuda_enter(device, &scope);
    if (status == KVT_OK) {
        status = descriptor < 0 ? slab_make(device, shared) : slab_map(device, descriptor, shared);
        cuda_leave(&scope);
    }
    if (status != KVT_OK) {
        descriptor_close(shared);
        env_put(&device->env, shared, sizeof(*shared));
        return status;
    }
    *address_out = (void *)(uintptr_t)shared->range.start;
    *descriptor_out = shared->descriptor;
    return KVT_OK;
}

static enum kvt_status
share_slab_take(struct device *base, uint64_t size, void **address_out, int *descriptor_out)
{
    return shared_take(device_cuda_of(base), size, -1, address_out, descriptor_out);
}

static enum kvt_status
share_slab_adopt(struct device *base, int descriptor, uint64_t size, void **address_out)
{
    int none;

    *address_out = NULL;
    if (descriptor < 0)
        return failure_set(KVT_E_INVAL, 0, "Descriptor %d is none.", descriptor);
    return shared_take(device_cuda_of(base), size, descriptor, address_out, &none);
}

bool
cuda_shared_put(struct device_cuda *device, const void *address)
{
    struct cuda_share_driver driver;
    struct device_shared *shared;
    struct cuda_scope scope;
    bool is_there = true;

    (void)pthread_mutex_lock(&device->mutex);
    shared = device_shared_take(&device->shared, address_of(address));
    if (shared != NULL)
        is_there = device_ranges_remove(&device->ranges, &shared->range);
    driver = device->share_driver;
    (void)pthread_mutex_unlock(&device->mutex);
    KVT_ASSERT(is_there);
    if (shared == NULL)
        return false;
    descriptor_close(shared); /* First: what frees the memory holds no lock. */
    if (cuda_enter(device, &scope) == KVT_OK) {
        memory_unmap(device, &driver, shared);
        cuda_leave(&scope);
    }
    env_put(&device->env, shared, sizeof(*shared));
    return true;
}

/* --- 4. Words --------------------------------------------------------------------------------- */

/* A word, as the device sees it; the scope has been entered. */
static enum kvt_status
word_find(struct device_cuda *device, uint64_t *word, CUdeviceptr *word_out)
{
    void *address = NULL;

    KVT_TRY(cuda_word_check(device, word, sizeof(*word)));
    KVT_TRY(cuda_check(
        device, cudaHostGetDevicePointer(&address, word, 0), "find a word in its memory"));
    *word_out = (CUdeviceptr)(uintptr_t)address;
    return KVT_OK;
}

static enum kvt_status
word_queue(
    struct device_cuda *device, cudaStream_t stream, uint64_t *word, uint64_t value, bool is_wait)
{
    struct cuda_share_driver driver;
    CUdeviceptr address = 0;

    KVT_TRY(driver_of(device, &driver));
    KVT_TRY(word_find(device, word, &address));
    /* In a graph it would be written, or waited for, at each launch, and not now. */
    KVT_TRY(cuda_capture_check(device, stream));
    /* Both with a barrier: who sees the number sees what was written before it. */
    if (!is_wait)
        return cuda_check_foreign(device,
            (cudaError_t)driver.word_write(stream, address, value, CU_STREAM_WRITE_VALUE_DEFAULT),
            "let a stream write a word");
    return cuda_check_foreign(device,
        (cudaError_t)driver.word_wait(stream, address, value, CU_STREAM_WAIT_VALUE_GEQ),
        "let a stream wait for a word");
}

static enum kvt_status
word_call(struct device *base, void *stream, uint64_t *word, uint64_t value, bool is_wait)
{
    struct device_cuda *device = device_cuda_of(base);
    struct cuda_scope scope;
    enum kvt_status status;

    KVT_TRY(cuda_stream_check(stream));
    KVT_TRY(cuda_enter(device, &scope));
    status = word_queue(device, stream, word, value, is_wait);
    cuda_leave(&scope);
    return status;
}

static enum kvt_status
share_word_write(struct device *device, void *stream, uint64_t *word, uint64_t value)
{
    return word_call(device, stream, word, value, false);
}

static enum kvt_status
share_word_wait(struct device *device, void *stream, uint64_t *word, uint64_t value)
{
    return word_call(device, stream, word, value, true);
}

const struct device_share_ops device_cuda_share_ops = {
    .identity = share_identity,
    .find = share_find,
    .slab_take = share_slab_take,
    .slab_adopt = share_slab_adopt,
    .word_write = share_word_write,
    .word_wait = share_word_wait,
};
