/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process_import.c - HBM of another process: mapped, and read through the host by who has no
 * kernels.
 */
#include "bytes.h"
#include "device_kinds.h"
#include "failure.h"
#include "kvtier/direct.h"
#include "processes.h"
#include "try.h"

enum {
    IMPORT_ALIVE = 1,
    STAGE_BYTES = 1 << 20,
};

static const uint64_t LOOK_NS_MIN = 10 * 1000, LOOK_NS_MAX = 500 * 1000;

enum kvt_status
import_enter(const kvt_import *import)
{
    if (import == NULL)
        return failure_set(KVT_E_INVAL, 0, "import is NULL");
    if (atomic_load_explicit(import->fork_page, memory_order_relaxed) != IMPORT_ALIVE)
        return failure_set(KVT_E_STATE, 0, "the import belongs to the process that opened it");
    return KVT_OK;
}

/* --- 1. Open and close ------------------------------------------------------------------------ */

static void
import_free(kvt_import *import)
{
    const struct kvt_env env = import->env;
    struct device *device = import->device;
    bool is_stage_kept = false;

    process_watch_close(&import->watch);
    if (device != NULL) {
        if (import->event != NULL)
            device->ops->event_destroy(device, import->event);
        if (import->is_stage_known)
            is_stage_kept =
                device->ops->host_unregister(device, import->stage, STAGE_BYTES) != KVT_OK;
        if (import->memory != NULL)
            device->ops->slab_put(device, import->memory, import->share.bytes);
        device->ops->close(device);
    }
    if (!is_stage_kept)
        env_unmap(&env, import->stage, STAGE_BYTES);
    if (import->fork_page != NULL)
        env_unmap(&env, import->fork_page, PAGE_BYTES);
    process_watch_deinit(&import->watch);
    (void)pthread_mutex_destroy(&import->lock);
    env_put(&env, import, sizeof(*import));
}

static enum kvt_status
kind_choose(kvt_import *import)
{
    bool is_cuda = import->share.device_kind == KVT_DEVICE_CUDA;

    if (!is_cuda && import->share.device_kind != KVT_DEVICE_EMULATION)
        return failure_set(
            KVT_E_FORMAT, 0, "the share is of device kind %u", import->share.device_kind);
    if (import->env.device == NULL)
        return device_choose(is_cuda ? DEVICE_CUDA : DEVICE_EMULATED, &import->env.device);
    return KVT_OK;
}

static enum kvt_status
memory_map(kvt_import *import, int descriptor)
{
    const struct kvt_env *env = &import->env;
    const struct kvt_device_ops *ops;
    void *memory;

    KVT_TRY(kind_choose(import));
    ops = env->device;
    if (ops->share == NULL)
        return failure_set(
            KVT_E_UNSUPPORTED, 0, "devices of the kind %s cannot be shared", ops->name);
    KVT_TRY(ops->share->find(env->device_context, import->share.device_id, &import->ordinal));
    KVT_TRY(ops->open(env->device_context, env, import->ordinal, &import->device));
    KVT_TRY(ops->share->slab_adopt(import->device, descriptor, import->share.bytes, &memory));
    import->memory = memory;
    import->stage = env_map(env, STAGE_BYTES);
    if (import->stage == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory to read shared memory through");
    KVT_TRY(ops->host_register(import->device, import->stage, STAGE_BYTES));
    import->is_stage_known = true;
    return ops->event_create(import->device, &import->event);
}

static enum kvt_status
import_start(kvt_import *import, int descriptor)
{
    import->fork_page = import->env.memory->fork_page(import->env.memory_context);
    if (import->fork_page == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for an import");
    atomic_store_explicit(import->fork_page, IMPORT_ALIVE, memory_order_relaxed);
    return memory_map(import, descriptor);
}

enum kvt_status
import_open_in(const struct kvt_env *env, const struct kvt_share *share, int descriptor,
    kvt_import **import_out)
{
    kvt_import *import;
    enum kvt_status status;

    if (import_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "import_out is NULL");
    *import_out = NULL;
    KVT_TRY(share_check(share, KVT_SHARE_HBM));
    import = env_take(env, sizeof(*import));
    if (import == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for an import");
    import->env = *env;
    import->share = *share;
    (void)pthread_mutex_init(&import->lock, NULL);
    process_watch_init(&import->watch, &import->env);
    status = import_start(import, descriptor);
    if (status != KVT_OK) {
        struct failure failure = *failure_last();

        import_free(import);
        failure_copy(&failure);
        return status;
    }
    *import_out = import;
    return KVT_OK;
}

enum kvt_status
kvt_import_open(const struct kvt_share *share, int descriptor, kvt_import **import_out)
{
    struct kvt_env env;

    env_host(&env);
    return import_open_in(&env, share, descriptor, import_out);
}

enum kvt_status
kvt_import_close(kvt_import *import)
{
    if (import == NULL)
        return KVT_OK;
    KVT_TRY(import_enter(import));
    if (process_watch_count(&import->watch) > 0)
        return failure_set(KVT_E_STATE, 0, "%u events of the import are open",
            process_watch_count(&import->watch));
    import_free(import);
    return KVT_OK;
}

/* --- 2. Reading ------------------------------------------------------------------------------- */

enum kvt_status
kvt_import_device(kvt_import *import, uint32_t *device_out)
{
    if (device_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "device_out is NULL");
    KVT_TRY(import_enter(import));
    *device_out = import->ordinal;
    return KVT_OK;
}

enum kvt_status
kvt_import_address(kvt_import *import, const struct kvt_locator *locator, const void **address_out)
{
    if (locator == NULL || address_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "locator or address_out is NULL");
    KVT_TRY(import_enter(import));
    if (memcmp(locator->store, import->share.store, sizeof(locator->store)) != 0)
        return failure_set(KVT_E_INVAL, 0, "the locator is of another store");
    if (locator->tier != KVT_TIER_HBM || locator->device != import->share.device)
        return failure_set(KVT_E_INVAL, 0, "tier %u of device %u was not imported", locator->tier,
            locator->device);
    if (locator->offset > import->share.bytes ||
        locator->length > import->share.bytes - locator->offset)
        return failure_set(KVT_E_INVAL, 0,
            "%llu bytes at %llu end behind the imported memory, which has %llu",
            (unsigned long long)locator->length, (unsigned long long)locator->offset,
            (unsigned long long)import->share.bytes);
    *address_out = (const void *)((uintptr_t)import->memory + locator->offset);
    return KVT_OK;
}

/* Until the event is reached. */
static enum kvt_status
event_await(kvt_import *import)
{
    const struct kvt_device_ops *ops = import->device->ops;
    struct gate gate = {0};
    uint64_t look_ns = LOOK_NS_MIN;
    enum kvt_status status;

    while ((status = ops->event_query(import->device, import->event)) == KVT_NOT_READY) {
        gate_wait(&import->env, &gate, 0, env_until(&import->env, look_ns));
        look_ns = look_ns * 2 < LOOK_NS_MAX ? look_ns * 2 : LOOK_NS_MAX;
    }
    return status;
}

/* At most STAGE_BYTES; the lock is held. */
static enum kvt_status
stage_read(kvt_import *import, const void *source, uint8_t *target, uint64_t size)
{
    const struct kvt_device_ops *ops = import->device->ops;
    const struct device_piece piece = {.target = import->stage, .source = source, .size = size};
    void *stream = ops->stream(import->device, DEVICE_OUT);

    KVT_TRY(ops->copy(import->device, stream, &piece, 1));
    KVT_TRY(ops->event_record(import->device, import->event, stream));
    KVT_TRY(event_await(import));
    memcpy(target, import->stage, size);
    return KVT_OK;
}

enum kvt_status
kvt_import_read(
    kvt_import *import, const struct kvt_locator *locator, void *target, uint64_t capacity)
{
    enum kvt_status status = KVT_OK;
    const void *address;

    if (target == NULL)
        return failure_set(KVT_E_INVAL, 0, "target is NULL");
    KVT_TRY(kvt_import_address(import, locator, &address));
    if (capacity < locator->length)
        return failure_set(KVT_E_INVAL, 0, "capacity %llu: the block has %llu bytes",
            (unsigned long long)capacity, (unsigned long long)locator->length);
    (void)pthread_mutex_lock(&import->lock);
    for (uint64_t at = 0; at < locator->length && status == KVT_OK; at += STAGE_BYTES) {
        uint64_t left = locator->length - at;

        status = stage_read(import, (const uint8_t *)((uintptr_t)address + at),
            (uint8_t *)target + at, left < STAGE_BYTES ? left : STAGE_BYTES);
    }
    (void)pthread_mutex_unlock(&import->lock);
    return status;
}
