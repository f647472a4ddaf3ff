/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ill_device.c - an emulated device that refuses some of its work (ill_device.h).
 */
#include "ill_device.h"

#include <string.h>

struct ill_device ill;

static enum kvt_status
ill_record(struct device *device, void *event, void *stream)
{
    if (stream == ill.stream)
        atomic_store(&ill.event, event);
    return device_host_ops.event_record(device, event, stream);
}

static enum kvt_status
ill_query(struct device *device, void *event)
{
    if (event == atomic_load(&ill.never))
        return KVT_NOT_READY;
    if (event == atomic_load(&ill.event) && atomic_load(&ill.fail_count) > 0) {
        atomic_fetch_sub(&ill.fail_count, 1);
        return KVT_E_NOMEM;
    }
    return device_host_ops.event_query(device, event);
}

static enum kvt_status
ill_copy(struct device *device, void *stream, const struct device_piece *pieces, uint32_t count)
{
    if (atomic_load(&ill.copy_status) != KVT_OK)
        return (enum kvt_status)atomic_load(&ill.copy_status);
    for (uint32_t i = 0; atomic_load(&ill.keeps_all) && i < count; i++) {
        if (((uintptr_t)pieces[i].target & DEVICE_HOST_BIT) == 0)
            return KVT_E_NOMEM;
    }
    return device_host_ops.copy(device, stream, pieces, count);
}

static enum kvt_status
ill_open(void *context, const struct kvt_env *env, uint32_t ordinal, struct device **device_out)
{
    enum kvt_status status = device_host_ops.open(context, env, ordinal, device_out);

    if (status == KVT_OK)
        (*device_out)->ops = &ill.ops;
    return status;
}

void
ill_device_init(void)
{
    memset(&ill, 0, sizeof(ill));
    ill.ops = device_host_ops;
    ill.ops.open = ill_open;
    ill.ops.event_record = ill_record;
    ill.ops.event_query = ill_query;
    ill.ops.copy = ill_copy;
}
