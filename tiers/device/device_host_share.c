/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_host_share.c - the emulated accelerator in several processes: slabs in memory that others
 * map to read (base/env.h), and words that streams write and wait for.
 *
 * An emulated device is called by its number, in every process of the machine: which process has
 * which memory is the descriptor's affair.
 */
#include <inttypes.h>
#include <string.h>

#include "bytes.h"
#include "device_host_internal.h"
#include "device_share.h"
#include "failure.h"
#include "try.h"

static const uint64_t SLAB_ALIGN_BYTES = UINT64_C(2) << 20;
static const char ID_NAME[DEVICE_ID_BYTES - 1] = "kvt emulation ";

static void
id_make(uint32_t ordinal, uint8_t id_out[DEVICE_ID_BYTES])
{
    memcpy(id_out, ID_NAME, sizeof(ID_NAME));
    id_out[DEVICE_ID_BYTES - 1] = (uint8_t)ordinal;
}

static enum kvt_status
share_identity(struct device *base, uint8_t id_out[DEVICE_ID_BYTES])
{
    struct device_host *device = device_host_of(base);

    KVT_TRY(device_host_call(device));
    id_make(device->ordinal, id_out);
    return KVT_OK;
}

static enum kvt_status
share_find(void *context, const uint8_t id[DEVICE_ID_BYTES], uint32_t *ordinal_out)
{
    uint8_t own[DEVICE_ID_BYTES];
    uint32_t count;

    KVT_TRY(device_host_ops.count(context, &count));
    for (uint32_t i = 0; i < count; i++) {
        id_make(i, own);
        if (memcmp(own, id, sizeof(own)) == 0) {
            *ordinal_out = i;
            return KVT_OK;
        }
    }
    return failure_set(KVT_E_INVAL, 0, "This process has no emulated device of that identity.");
}

/* --- Slabs ------------------------------------------------------------------------------------ */

/* Noted in the device's tables, or given back. */
static enum kvt_status
slab_note(struct device_host *device, struct device_shared *shared, void *memory)
{
    const struct kvt_env *env = &device->env;
    enum kvt_status status;

    shared->range.start = address_of(memory) ^ DEVICE_HOST_BIT;
    device_host_lock(device);
    status = device_ranges_add(&device->ranges, &shared->range);
    if (status == KVT_OK) {
        device_shared_add(&device->shared, shared);
        if (shared->range.kind == DEVICE_RANGE_SLAB)
            device->used_bytes += round_up(shared->range.size, SLAB_ALIGN_BYTES);
    }
    device_host_unlock(device);
    if (status != KVT_OK)
        env->memory->share_end(
            env->memory_context, memory, (size_t)shared->range.size, shared->descriptor);
    return status;
}

static enum kvt_status
room_check(struct device_host *device, uint64_t size)
{
    uint64_t free_bytes;

    device_host_lock(device);
    free_bytes = device->memory_bytes - device->used_bytes;
    device_host_unlock(device);
    if (size <= free_bytes && round_up(size, SLAB_ALIGN_BYTES) <= free_bytes)
        return KVT_OK;
    return failure_set(KVT_E_NOMEM, 0,
        "The emulated device has %" PRIu64 " bytes left; a slab of %" PRIu64 " does not fit.",
        free_bytes, size);
}

static enum kvt_status
slab_make(struct device_host *device, struct device_shared *shared)
{
    const struct kvt_env *env = &device->env;
    void *memory;

    KVT_TRY(room_check(device, shared->range.size));
    KVT_TRY(env->memory->share(
        env->memory_context, (size_t)shared->range.size, &memory, &shared->descriptor));
    return slab_note(device, shared, memory);
}

static enum kvt_status
slab_map(struct device_host *device, int descriptor, struct device_shared *shared)
{
    const struct kvt_env *env = &device->env;
    void *memory;
    size_t size;

    KVT_TRY(env->memory->share_adopt(
        env->memory_context, descriptor, &memory, &size, &shared->descriptor));
    if (size == shared->range.size)
        return slab_note(device, shared, memory);
    env->memory->share_end(env->memory_context, memory, size, shared->descriptor);
    return failure_set(KVT_E_INVAL, 0,
        "Descriptor %d is of %zu bytes of memory, not of %" PRIu64 ".", descriptor, size,
        shared->range.size);
}

static enum kvt_status
shared_begin(struct device_host *device, uint64_t size, enum device_range_kind kind,
    struct device_shared **shared_out)
{
    KVT_TRY(device_host_call(device));
    if (size == 0 || size % PAGE_BYTES != 0)
        return failure_set(KVT_E_INVAL, 0, "%" PRIu64 " bytes are no whole pages.", size);
    if (device->env.memory->share == NULL)
        return failure_set(
            KVT_E_UNSUPPORTED, 0, "There is no memory here that other processes may map.");
    *shared_out = env_take(&device->env, sizeof(**shared_out));
    if (*shared_out == NULL)
        return failure_set(KVT_E_NOMEM, 0, "No memory for a slab that is shared.");
    (*shared_out)->range.size = size;
    (*shared_out)->range.kind = kind;
    return KVT_OK;
}

static enum kvt_status
share_slab_take(struct device *base, uint64_t size, void **address_out, int *descriptor_out)
{
    struct device_host *device = device_host_of(base);
    struct device_shared *shared;
    enum kvt_status status;

    *address_out = NULL;
    KVT_TRY(shared_begin(device, size, DEVICE_RANGE_SLAB, &shared));
    status = slab_make(device, shared);
    if (status != KVT_OK) {
        env_put(&device->env, shared, sizeof(*shared));
        return status;
    }
    *address_out = (void *)(uintptr_t)shared->range.start;
    *descriptor_out = shared->descriptor;
    return KVT_OK;
}

static enum kvt_status
share_slab_adopt(struct device *base, int descriptor, uint64_t size, void **address_out)
{
    struct device_host *device = device_host_of(base);
    struct device_shared *shared;
    enum kvt_status status;

    *address_out = NULL;
    KVT_TRY(shared_begin(device, size, DEVICE_RANGE_ADOPTED, &shared));
    status = slab_map(device, descriptor, shared);
    if (status != KVT_OK) {
        env_put(&device->env, shared, sizeof(*shared));
        return status;
    }
    *address_out = (void *)(uintptr_t)shared->range.start;
    return KVT_OK;
}

bool
host_shared_put(struct device_host *device, const void *address)
{
    const struct kvt_env *env = &device->env;
    struct device_shared *shared;
    void *memory;

    device_host_lock(device);
    shared = device_shared_take(&device->shared, address_of(address));
    device_host_unlock(device);
    if (shared == NULL)
        return false;
    if (host_slab_leave(device, &device->ranges, &shared->range, &memory))
        env->memory->share_end(
            env->memory_context, memory, (size_t)shared->range.size, shared->descriptor);
    env_put(env, shared, sizeof(*shared));
    return true;
}

/* --- Words ------------------------------------------------------------------------------------ */

static enum kvt_status
share_word_write(struct device *device, void *stream, uint64_t *word, uint64_t value)
{
    return host_word_queue(device, stream, HOST_WORK_WORD_WRITE,
        (struct host_word){.address = word, .value = value, .is_wide = true});
}

static enum kvt_status
share_word_wait(struct device *device, void *stream, uint64_t *word, uint64_t value)
{
    return host_word_queue(device, stream, HOST_WORK_WORD_WAIT,
        (struct host_word){.address = word, .value = value, .is_wide = true});
}

const struct device_share_ops device_host_share_ops = {
    .identity = share_identity,
    .find = share_find,
    .slab_take = share_slab_take,
    .slab_adopt = share_slab_adopt,
    .word_write = share_word_write,
    .word_wait = share_word_wait,
};
