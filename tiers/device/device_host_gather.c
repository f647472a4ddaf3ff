/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_host_gather.c - the emulation's gather: a launch that does what the kernels do, late.
 *
 * Ids and rows may lie in memory of the host that a copy behind the gather has shaded
 * (device_host_copy.c): they are looked at in copies.
 */
#include <inttypes.h>
#include <string.h>

#include "device_host_internal.h"
#include "failure.h"
#include "gather_row.h"
#include "try.h"

static uint32_t
id_at(const struct gather_work *work, uint64_t i)
{
    uint32_t id;

    host_bytes_move((uint8_t *)&id, (const uint8_t *)&work->ids[i], sizeof(id));
    return id;
}

static void
row_write(const struct gather_work *work, uint64_t i)
{
    const uint8_t *source = gather_row(work, id_at(work, i));
    uint8_t *target = work->target + i * gather_target_bytes(work);
    uint8_t row[GATHER_PAGE_BYTES];

    if (work->value_count == 0) {
        host_bytes_move(target, source, work->row_bytes);
        return;
    }
    host_bytes_move(row, source, work->row_bytes);
    for (uint32_t v = 0; v < work->value_count; v++) {
        uint32_t group = work->value_count / work->scale_count;
        uint16_t value = gather_value(row[v], row[work->value_count + v / group]);

        memcpy(target + v * sizeof(value), &value, sizeof(value));
    }
}

static void
gather_run(void *context, void *memory)
{
    const struct gather_work *work = context;

    (void)memory;
    *work->verdict = GATHER_FINE;
    for (uint64_t i = 0; i < work->count && *work->verdict == GATHER_FINE; i++) {
        if (id_at(work, i) >= work->row_count)
            *work->verdict = i;
    }
    for (uint64_t i = 0; i < work->count && *work->verdict == GATHER_FINE; i++)
        row_write(work, i);
}

/* The address that the process can use; NULL, and a sentence. The mutex is held. */
static void *
memory_find(struct device_host *device, const void *address, uint64_t size, bool is_own)
{
    const struct device_range *range =
        device_ranges_find(&device->ranges, address_of(address), size);

    if (range == NULL || range->kind == DEVICE_RANGE_EVENT ||
        (is_own && !device_range_is_own(range))) {
        (void)failure_set(KVT_E_INVAL, 0, "%" PRIu64 " bytes at %p lie in no %s.", size, address,
            is_own ? "memory of the device" : "slab and in no registered memory");
        return NULL;
    }
    return (void *)(uintptr_t)(range->kind == DEVICE_RANGE_HOST
                                   ? address_of(address)
                                   : address_of(address) ^ DEVICE_HOST_BIT);
}

static enum kvt_status
gather_push(struct device_host *device, const void *handle, struct host_work *host_work,
    const struct device_gather *gather)
{
    struct gather_work *work = host_work->launch.context;
    struct host_stream *stream = host_stream_find(device, handle);
    uint64_t page_count = (gather->row_count - 1) / gather->rows_per_page + 1;
    uint64_t target_bytes = gather->count * gather_target_bytes(work);

    if (stream == NULL)
        return KVT_E_INVAL;
    work->ids = memory_find(device, gather->ids, gather->count * sizeof(*gather->ids), false);
    work->target = memory_find(device, gather->target, target_bytes, true);
    work->verdict = memory_find(device, gather->verdict, sizeof(*gather->verdict), true);
    work->pages = memory_find(device, gather->pages, 1, false);
    if (work->ids == NULL || work->target == NULL || work->verdict == NULL || work->pages == NULL ||
        memory_find(device, (const uint8_t *)gather->pages + page_count * GATHER_PAGE_BYTES - 1, 1,
            false) == NULL)
        return KVT_E_INVAL;
    host_work->launch.memory = work->target;
    host_launch_use(
        &host_work->launch, address_of(work->ids), gather->count * sizeof(*gather->ids));
    host_launch_use(&host_work->launch, address_of(work->pages), page_count * GATHER_PAGE_BYTES);
    host_launch_use(&host_work->launch, address_of(work->target), target_bytes);
    host_launch_use(&host_work->launch, address_of(work->verdict), sizeof(*gather->verdict));
    host_stream_push(stream, host_work);
    return KVT_OK;
}

enum kvt_status
device_host_gather(struct device *base, void *stream, const struct device_gather *gather)
{
    struct device_host *device = device_host_of(base);
    struct gather_work *work;
    struct host_work *host_work;
    enum kvt_status status;

    KVT_TRY(device_host_call(device));
    host_work = host_work_take(device, HOST_WORK_LAUNCH);
    if (host_work == NULL)
        return KVT_E_NOMEM;
    work = env_take(&device->env, sizeof(*work));
    if (work == NULL) {
        host_work_put(device, host_work);
        return failure_set(KVT_E_NOMEM, 0, "No memory for a gather.");
    }
    *work = (struct gather_work){.count = gather->count,
        .row_count = gather->row_count,
        .rows_per_page = gather->rows_per_page,
        .row_bytes = gather->row_bytes,
        .value_count = gather->value_count,
        .scale_count = gather->scale_count};
    host_work->launch.run = gather_run;
    host_work->launch.context = work;
    host_work->launch.owned = work;
    host_work->launch.owned_bytes = sizeof(*work);
    device_host_lock(device);
    status = gather_push(device, stream, host_work, gather);
    device_host_unlock(device);
    if (status != KVT_OK)
        host_work_put(device, host_work);
    return status;
}
