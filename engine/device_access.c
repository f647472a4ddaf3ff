/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_access.c - memory of devices for tests and tools: taking it, and copies that wait.
 *
 * The bytes go through a HOST slot, which every device knows: the caller's memory needs no region.
 * When it lies in one they are copied at once.
 *
 * Threads   any; the copies are made by the loop's devices.
 */
#include "kvtier/kvtier_unstable.h"
#include "store_internal.h"

enum access_state {
    ACCESS_NEW,
    ACCESS_COPYING, /* The device has it. */
    ACCESS_COPIED,
};

/* By way of a slot: at most block_bytes_max bytes. */
struct access {
    struct device_job device_job;
    enum access_state state;
    struct patience patience;
    struct slot slot;
    uint8_t *device_memory;
    uint8_t *memory;
    size_t size;
    bool is_write;  /* To the device. */
    bool is_pinned; /* The caller's memory lies in a region: no slot. */
    enum kvt_status status;
};

static void
access_copied(struct kvt_store *store, struct device_job *job)
{
    struct access *access = CONTAINER_OF(job, struct access, device_job);

    (void)store;
    access->status = job->move.status;
    access->state = ACCESS_COPIED;
}

static void
access_copy(struct kvt_store *store, struct access *access, uint8_t *memory)
{
    access->state = ACCESS_COPYING;
    access->device_job.finish = access_copied;
    device_job_copy(store, &access->device_job, access->is_write ? DEVICE_IN : DEVICE_OUT,
        &(struct device_piece){.target = access->is_write ? access->device_memory : memory,
            .source = access->is_write ? memory : access->device_memory,
            .size = access->size});
}

static bool
access_begin(struct kvt_store *store, struct access *access)
{
    uint8_t *slot_memory;

    if (access->is_pinned) {
        access_copy(store, access, access->memory);
        return false;
    }
    access->status = room_take(store,
        &(struct room_want){.place = POLICY_HOST,
            .size = round_up(access->size, PAGE_BYTES),
            .patience = &access->patience},
        &access->slot);
    if (access->status == KVT_NOT_READY)
        return false;
    if (access->status != KVT_OK)
        return true;
    slot_memory = slab_address(store->slab, access->slot);
    if (access->is_write)
        memcpy(slot_memory, access->memory, access->size);
    access_copy(store, access, slot_memory);
    return false;
}

static bool
access_run(struct kvt_store *store, void *context)
{
    struct access *access = context;

    if (access->state == ACCESS_NEW && store_is_poisoned(store)) {
        access->status = KVT_E_POISONED;
        return true;
    }
    if (access->state == ACCESS_NEW)
        return access_begin(store, access);
    if (access->state == ACCESS_COPYING)
        return false;
    if (access->is_pinned)
        return true;
    if (!access->is_write && access->status == KVT_OK)
        memcpy(access->memory, slab_address(store->slab, access->slot), access->size);
    copy_slot_put(store, POLICY_HOST, access->slot, &access->device_job.move);
    return true;
}

static enum kvt_status
access_check(struct kvt_store *store, uint32_t device, const void *address)
{
    KVT_TRY(store_enter(store));
    if (!device_is_open(store, device))
        return failure_set(
            KVT_E_INVAL, 0, "device %u is not one of the store's (device_mask)", device);
    if (address == NULL)
        return failure_set(KVT_E_INVAL, 0, "an address is NULL");
    return KVT_OK;
}

/* The loop's sentence is not the caller's. */
static enum kvt_status
access_failed(enum kvt_status status, uint32_t device, size_t size)
{
    if (status == KVT_E_NOSPC)
        return failure_set(
            status, 0, "every slot of HOST is leased or in use; %zu bytes go through one", size);
    return failure_set(status, 0, "a copy of %zu bytes by device %u failed: %s", size, device,
        kvt_status_name(status));
}

static enum kvt_status
access_all(struct kvt_store *store, struct access access, uint32_t device, uint64_t size)
{
    kvt_region region = region_hold_host(store, access.memory, size);
    uint64_t part_max = region.id != 0 ? size : store->options.block_bytes_max;
    uint64_t done = 0;

    while (done < size && access.status == KVT_OK) {
        struct access part = access;
        uint64_t left = size - done;

        part.device_job.device = device;
        part.is_pinned = region.id != 0;
        part.device_memory += done;
        part.memory += done;
        part.size = (size_t)(left < part_max ? left : part_max);
        loop_call(store, access_run, &part);
        if (part.status == KVT_E_POISONED)
            access.status = store_enter(store);
        else if (part.status != KVT_OK)
            access.status = access_failed(part.status, device, part.size);
        done += part.size;
    }
    region_let_go(store, region);
    return access.status;
}

enum kvt_status
kvt_device_write(kvt_store *store, uint32_t device, void *target, const void *source, uint64_t size)
{
    KVT_TRY(access_check(store, device, target));
    if (source == NULL)
        return failure_set(KVT_E_INVAL, 0, "source is NULL");
    return access_all(store,
        (struct access){
            .device_memory = target, .memory = (uint8_t *)(uintptr_t)source, .is_write = true},
        device, size);
}

enum kvt_status
kvt_device_read(kvt_store *store, uint32_t device, void *target, const void *source, uint64_t size)
{
    KVT_TRY(access_check(store, device, source));
    if (target == NULL)
        return failure_set(KVT_E_INVAL, 0, "target is NULL");
    return access_all(store,
        (struct access){.device_memory = (uint8_t *)(uintptr_t)source, .memory = target}, device,
        size);
}

enum kvt_status
kvt_device_alloc(kvt_store *store, uint32_t device, uint64_t size, void **address_out)
{
    struct device *handle;

    KVT_TRY(access_check(store, device, address_out));
    *address_out = NULL;
    handle = hbm_device(store->devices.tiers[device]);
    return device_answer(store, device, handle->ops->slab_take(handle, size, address_out));
}

void
kvt_device_free(kvt_store *store, uint32_t device, void *address, uint64_t size)
{
    enum kvt_status status = store_enter(store);
    struct device *handle;

    /* A poisoned store gives it back: it cannot be closed with it. */
    if (address == NULL || (status != KVT_OK && status != KVT_E_POISONED) ||
        !device_is_open(store, device))
        return;
    handle = hbm_device(store->devices.tiers[device]);
    handle->ops->slab_put(handle, address, size);
}
