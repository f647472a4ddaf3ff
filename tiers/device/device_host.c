/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_host.c - the emulated accelerator: devices and events.
 *
 * Owns      a device, and the table of what belongs to it.
 * Not here  memory (device_host_memory.c), streams (device_host_stream.c), the bytes of a copy
 *           (device_host_copy.c).
 * Threads   device_host_internal.h.
 *
 * Events stand in the table, so that a foreign one is refused without being looked into.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bytes.h"
#include "device_host_internal.h"
#include "failure.h"
#include "try.h"

static const uint64_t MEMORY_BYTES_DEFAULT = UINT64_C(1) << 30;
static const uint64_t DELAY_NS_LIMIT = UINT64_C(3600) * 1000 * 1000 * 1000;

/* --- 1. Calls that fail on purpose ------------------------------------------------------------ */

static enum kvt_status
config_call(struct device_host_config *config)
{
    uint32_t number;
    enum kvt_status status;

    if (config == NULL)
        return KVT_OK;
    /* Relaxed: a number for each call, nothing is published with it. */
    number = atomic_fetch_add_explicit(&config->call_count, 1, memory_order_relaxed) + 1;
    if (number != config->fail_call)
        return KVT_OK;
    status = config->fail_status == KVT_OK ? KVT_E_GPU : config->fail_status;
    return failure_set(status, 0, "Call %" PRIu32 " of the emulated device fails on purpose: %s.",
        number, kvt_status_name(status));
}

enum kvt_status
device_host_call(struct device_host *device)
{
    enum kvt_status status = config_call(device->config);

    if (status == KVT_E_GPU)
        atomic_store_explicit(&device->is_lost, true, memory_order_relaxed);
    if (atomic_load_explicit(&device->is_lost, memory_order_relaxed))
        return failure_set(
            KVT_E_GPU, 0, "The emulated device %" PRIu32 " is lost.", device->ordinal);
    return status;
}

/* --- 2. Devices ------------------------------------------------------------------------------- */

static enum kvt_status
config_check(const struct device_host_config *config, uint32_t *count_out)
{
    *count_out = 1;
    if (config == NULL)
        return KVT_OK;
    if (config->device_count > DEVICE_HOST_DEVICES_MAX) {
        return failure_set(KVT_E_INVAL, 0,
            "There are at most %d emulated devices, not %" PRIu32 ".", DEVICE_HOST_DEVICES_MAX,
            config->device_count);
    }
    if (config->delay_ns_max > DELAY_NS_LIMIT) {
        return failure_set(KVT_E_INVAL, 0,
            "The delay of an emulated device is at most an hour, not %" PRIu64 " ns.",
            config->delay_ns_max);
    }
    if (config->device_count > 0)
        *count_out = config->device_count;
    return KVT_OK;
}

static enum kvt_status
host_count(void *context, uint32_t *count_out)
{
    enum kvt_status status = config_call(context);
    uint32_t count = 0;

    if (status == KVT_OK)
        status = config_check(context, &count);
    if (status == KVT_OK)
        *count_out = count;
    return status;
}

/* What is left of it; the device is NULL or whole. */
static void
device_free(struct device_host *device)
{
    const struct kvt_env env = device->env;

    device_ranges_deinit(&device->ranges);
    device_ranges_deinit(&device->foreign);
    (void)pthread_mutex_destroy(&device->mutex);
    env_put(&env, device, sizeof(*device));
}

static enum kvt_status
device_make(struct device_host_config *config, const struct kvt_env *env, uint32_t ordinal,
    struct device_host **device_out)
{
    struct device_host *device = env_take(env, sizeof(*device));
    struct host_stream *stream;

    if (device == NULL)
        return failure_set(KVT_E_NOMEM, 0, "No memory for an emulated device.");
    device->device.ops = &device_host_ops;
    device->env = *env;
    device->config = config;
    device->ordinal = ordinal;
    device->delay_ns_max = config == NULL ? 0 : config->delay_ns_max;
    device->memory_bytes = MEMORY_BYTES_DEFAULT;
    if (config != NULL && config->memory_bytes > 0)
        device->memory_bytes = config->memory_bytes;
    device->ranges.env = &device->env;
    device->foreign.env = &device->env;
    (void)pthread_mutex_init(&device->mutex, NULL);
    for (uint32_t i = 0; i < DEVICE_LANE_COUNT; i++) {
        enum kvt_status status = host_stream_create(device, &stream);

        if (status != KVT_OK) {
            host_streams_close(device);
            device_free(device);
            return status;
        }
    }
    *device_out = device;
    return KVT_OK;
}

static enum kvt_status
host_open(void *context, const struct kvt_env *env, uint32_t ordinal, struct device **device_out)
{
    struct device_host *device = NULL;
    uint32_t count;

    *device_out = NULL;
    KVT_TRY(config_call(context));
    KVT_TRY(config_check(context, &count));
    if (ordinal >= count) {
        return failure_set(KVT_E_INVAL, 0,
            "There is no emulated device %" PRIu32 ": they are numbered below %" PRIu32 ".",
            ordinal, count);
    }
    KVT_TRY(device_make(context, env, ordinal, &device));
    *device_out = &device->device;
    return KVT_OK;
}

static void event_free(struct device_host *device, struct host_event *event);

static void
host_close(struct device *base)
{
    struct device_host *device = device_host_of(base);
    struct host_clock everything;

    if (device == NULL)
        return;
    host_streams_close(device);
    memset(&everything, 0xFF, sizeof(everything));
    host_shades_release(device, &everything);
    /* Slabs, registrations and events have been given back; what was not goes with the device. */
    KVT_ASSERT(device->ranges.count == 0 && device->foreign.count == 0);
    for (uint32_t i = 0; i < device->ranges.count; i++) {
        const struct device_range *range = &device->ranges.items[i];

        switch (range->kind) {
        case DEVICE_RANGE_SLAB:
            env_unmap(&device->env, (void *)(uintptr_t)(range->start ^ DEVICE_HOST_BIT),
                (size_t)round_up(range->size, 2 << 20));
            break;
        case DEVICE_RANGE_ADOPTED:
        case DEVICE_RANGE_MEMORY:
        case DEVICE_RANGE_HOST:
        case DEVICE_RANGE_PINNED:
        case DEVICE_RANGE_PEER:
            break;
        case DEVICE_RANGE_EVENT:
            event_free(device, (struct host_event *)(uintptr_t)range->start);
            break;
        }
    }
    device_free(device);
}

static enum kvt_status
host_info(struct device *base, struct device_info *info_out)
{
    struct device_host *device = device_host_of(base);

    KVT_TRY(device_host_call(device));
    memset(info_out, 0, sizeof(*info_out));
    (void)snprintf(info_out->name, sizeof(info_out->name), "emulation");
    device_host_lock(device);
    info_out->memory_bytes = device->memory_bytes;
    info_out->free_bytes = device->memory_bytes - device->used_bytes;
    device_host_unlock(device);
    return KVT_OK;
}

/* --- 3. Streams and work ---------------------------------------------------------------------- */

static void *
host_stream(struct device *base, enum device_lane lane)
{
    KVT_ASSERT(lane < DEVICE_LANE_COUNT);
    return device_host_of(base)->streams[lane];
}

enum kvt_status
device_host_stream_create(struct device *base, void **stream_out)
{
    struct host_stream *stream = NULL;
    enum kvt_status status;

    *stream_out = NULL;
    KVT_TRY(device_host_call(device_host_of(base)));
    status = host_stream_create(device_host_of(base), &stream);
    *stream_out = stream;
    return status;
}

static enum kvt_status
copy_push(struct device_host *device, const void *handle, struct host_work *work)
{
    struct host_stream *stream = host_stream_find(device, handle);

    if (stream == NULL)
        return KVT_E_INVAL;
    KVT_TRY(host_batch_resolve(device, work->batch));
    host_batch_poison(stream, work->batch);
    host_stream_push(stream, work);
    return KVT_OK;
}

static enum kvt_status
host_copy(struct device *base, void *stream, const struct device_piece *pieces, uint32_t count)
{
    struct device_host *device = device_host_of(base);
    struct host_batch *batch = NULL;
    struct host_work *work;
    enum kvt_status status;

    KVT_TRY(device_host_call(device));
    KVT_TRY(host_batch_create(device, pieces, count, &batch));
    work = host_work_take(device, HOST_WORK_COPY);
    if (work == NULL) {
        host_batch_release(device, batch);
        return KVT_E_NOMEM;
    }
    work->batch = batch;
    device_host_lock(device);
    status = copy_push(device, stream, work);
    device_host_unlock(device);
    if (status != KVT_OK)
        host_work_put(device, work);
    return status;
}

static enum kvt_status
launch_push(struct device_host *device, const void *handle, struct host_work *work,
    const void *device_address)
{
    const struct device_range *slab =
        device_ranges_find(&device->ranges, address_of(device_address), 1);
    struct host_stream *stream = host_stream_find(device, handle);

    /* A kernel uses its program's memory, registered or not. */
    if (slab == NULL || slab->kind == DEVICE_RANGE_MEMORY)
        slab = device_ranges_find(&device->foreign, address_of(device_address), 1);

    if (stream == NULL)
        return KVT_E_INVAL;
    if (slab == NULL || (slab->kind != DEVICE_RANGE_SLAB && slab->kind != DEVICE_RANGE_ADOPTED))
        return failure_set(KVT_E_INVAL, 0, "%p is no memory of the device.", device_address);
    work->launch.memory = (uint8_t *)(uintptr_t)(address_of(device_address) ^ DEVICE_HOST_BIT);
    host_launch_use(&work->launch, slab->start ^ DEVICE_HOST_BIT, slab->size);
    host_stream_push(stream, work);
    return KVT_OK;
}

enum kvt_status
device_host_launch(struct device *base, void *stream, void (*run)(void *context, void *memory),
    void *context, void *device_address)
{
    struct device_host *device = device_host_of(base);
    struct host_work *work;
    enum kvt_status status;

    KVT_TRY(device_host_call(device));
    if (run == NULL)
        return failure_set(KVT_E_INVAL, 0, "A launch needs something to run.");
    work = host_work_take(device, HOST_WORK_LAUNCH);
    if (work == NULL)
        return KVT_E_NOMEM;
    work->launch.run = run;
    work->launch.context = context;
    device_host_lock(device);
    status = launch_push(device, stream, work, device_address);
    device_host_unlock(device);
    if (status != KVT_OK)
        host_work_put(device, work);
    return status;
}

/* --- 4. Events -------------------------------------------------------------------------------- */

static struct device_range
event_range(const void *event)
{
    return (struct device_range){address_of(event), sizeof(struct host_event), DEVICE_RANGE_EVENT};
}

/* NULL, and a sentence: it is no event of this device. */
static struct host_event *
event_find(const struct device_host *device, void *event)
{
    const struct device_range *range =
        device_ranges_find(&device->ranges, address_of(event), sizeof(struct host_event));

    if (range == NULL || range->kind != DEVICE_RANGE_EVENT) {
        (void)failure_set(KVT_E_INVAL, 0, "%p is no event of the emulated device %" PRIu32 ".",
            event, device->ordinal);
        return NULL;
    }
    return event;
}

static void
event_free(struct device_host *device, struct host_event *event)
{
    host_record_release(device, event->record);
    env_put(&device->env, event, sizeof(*event));
}

static enum kvt_status
host_event_create(struct device *base, void **event_out)
{
    struct device_host *device = device_host_of(base);
    struct host_event *event;
    struct device_range range;
    enum kvt_status status;

    *event_out = NULL;
    KVT_TRY(device_host_call(device));
    event = env_take(&device->env, sizeof(*event));
    if (event == NULL)
        return failure_set(KVT_E_NOMEM, 0, "No memory for an event.");
    event->record = host_record_take(device);
    range = event_range(event);
    device_host_lock(device);
    status = event->record == NULL ? KVT_E_NOMEM : device_ranges_add(&device->ranges, &range);
    if (status != KVT_OK)
        event_free(device, event);
    device_host_unlock(device);
    if (status == KVT_OK)
        *event_out = event;
    return status;
}

static void
host_event_destroy(struct device *base, void *event)
{
    struct device_host *device = device_host_of(base);
    const struct device_range range = event_range(event);
    bool is_there;

    if (event == NULL)
        return;
    device_host_lock(device);
    is_there = device_ranges_remove(&device->ranges, &range);
    if (is_there)
        event_free(device, event);
    device_host_unlock(device);
    KVT_ASSERT(is_there);
}

/* Into the event's own record when nobody else has that any more: recording an event again needs no
 * memory then, and who gives something back behind one is not refused. Otherwise with *fresh, which
 * is taken; KVT_NOT_READY: it is wanted. */
static enum kvt_status
record_push(
    struct device_host *device, void *event_handle, const void *handle, struct host_record **fresh)
{
    struct host_event *event = event_find(device, event_handle);
    struct host_stream *stream = event == NULL ? NULL : host_stream_find(device, handle);
    struct host_record *record;

    if (stream == NULL)
        return KVT_E_INVAL;
    record = event->record;
    if (record->reference_count > 1) {
        if (*fresh == NULL)
            return KVT_NOT_READY;
        host_record_release(device, record);
        record = event->record = *fresh;
        *fresh = NULL;
    }
    record->is_reached = record->is_seen = false;
    record->reference_count++;
    host_stream_push(stream, &record->work);
    return KVT_OK;
}

static enum kvt_status
host_event_record(struct device *base, void *event, void *stream)
{
    struct device_host *device = device_host_of(base);
    struct host_record *fresh = NULL;
    enum kvt_status status;

    KVT_TRY(device_host_call(device));
    do {
        device_host_lock(device);
        status = record_push(device, event, stream, &fresh);
        device_host_unlock(device);
        if (status == KVT_NOT_READY && (fresh = host_record_take(device)) == NULL)
            return KVT_E_NOMEM;
    } while (status == KVT_NOT_READY);
    host_record_release(device, fresh);
    return status;
}

static enum kvt_status
record_query(struct device_host *device, struct host_record *record)
{
    if (record->is_seen)
        return KVT_OK;
    if (!record->is_reached || env_now(&device->env) < record->seen_ns)
        return KVT_NOT_READY;
    record->is_seen = true;
    host_shades_release(device, &record->clock);
    return KVT_OK;
}

static enum kvt_status
host_event_query(struct device *base, void *handle)
{
    struct device_host *device = device_host_of(base);
    struct host_event *event;
    enum kvt_status status = KVT_E_INVAL;

    KVT_TRY(device_host_call(device));
    device_host_lock(device);
    event = event_find(device, handle);
    if (event != NULL)
        status = record_query(device, event->record);
    device_host_unlock(device);
    return status;
}

static enum kvt_status
wait_push(
    struct device_host *device, const void *handle, void *event_handle, struct host_work *work)
{
    struct host_event *event = event_find(device, event_handle);
    struct host_stream *stream = event == NULL ? NULL : host_stream_find(device, handle);

    if (stream == NULL)
        return KVT_E_INVAL;
    work->record = event->record;
    work->record->reference_count++;
    host_stream_push(stream, work);
    return KVT_OK;
}

static enum kvt_status
host_stream_wait(struct device *base, void *stream, void *event)
{
    struct device_host *device = device_host_of(base);
    struct host_work *work;
    enum kvt_status status;

    KVT_TRY(device_host_call(device));
    work = host_work_take(device, HOST_WORK_WAIT);
    if (work == NULL)
        return KVT_E_NOMEM;
    device_host_lock(device);
    status = wait_push(device, stream, event, work);
    if (status != KVT_OK)
        host_work_put(device, work);
    device_host_unlock(device);
    return status;
}

const struct kvt_device_ops device_host_ops = {
    .name = "emulation",
    .count = host_count,
    .open = host_open,
    .close = host_close,
    .info = host_info,
    .slab_take = device_host_slab_take,
    .slab_put = device_host_slab_put,
    .memory_register = device_host_memory_register,
    .memory_unregister = device_host_memory_unregister,
    .host_register = device_host_host_register,
    .host_unregister = device_host_host_unregister,
    .host_abandon = device_host_host_abandon,
    .peer_register = device_host_peer_register,
    .peer_unregister = device_host_peer_unregister,
    .stream = host_stream,
    .copy = host_copy,
    .gather = device_host_gather,
    .event_create = host_event_create,
    .event_destroy = host_event_destroy,
    .event_record = host_event_record,
    .event_query = host_event_query,
    .stream_wait = host_stream_wait,
    .stream_wait_word = device_host_stream_wait_word,
    .share = &device_host_share_ops,
};
