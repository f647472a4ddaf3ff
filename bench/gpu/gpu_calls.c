/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_calls.c - counts calls at the device's vtable: the one file of `tierbench gpu` that sees the
 * library's inside.
 */
#include "gpu_calls.h"

#include <stdatomic.h>

#include "device.h"
#include "device_kinds.h"
#include "env.h"
#include "kvtier/kvtier_unstable.h"

/* The vtable has no place for a context of its own: so the counts are the program's. */
static struct {
    const struct kvt_device_ops *real;
    struct kvt_device_ops ops; /* The real one's, but for what is counted. */
    _Atomic uint64_t memory, pins, events;
} counted;

static void
count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static enum kvt_status
slab_take_counted(struct device *device, uint64_t size, void **address_out)
{
    count(&counted.memory);
    return counted.real->slab_take(device, size, address_out);
}

static enum kvt_status
host_register_counted(struct device *device, void *memory, uint64_t size)
{
    count(&counted.pins);
    return counted.real->host_register(device, memory, size);
}

static enum kvt_status
event_create_counted(struct device *device, void **event_out)
{
    count(&counted.events);
    return counted.real->event_create(device, event_out);
}

static enum kvt_status
open_counted(void *context, const struct kvt_env *env, uint32_t ordinal, struct device **device_out)
{
    enum kvt_status status = counted.real->open(context, env, ordinal, device_out);

    if (status == KVT_OK)
        (*device_out)->ops = &counted.ops;
    return status;
}

enum kvt_status
gpu_calls_open(const char *path, const struct kvt_options *options, kvt_store **store_out)
{
    static const enum device_choice choices[] = {
        [KVT_DEVICE_AUTO] = DEVICE_ANY,
        [KVT_DEVICE_CUDA] = DEVICE_CUDA,
        [KVT_DEVICE_EMULATION] = DEVICE_EMULATED,
    };
    enum kvt_status status = device_choose(choices[options->device_kind], &counted.real);
    struct kvt_env env;

    *store_out = NULL;
    if (status != KVT_OK)
        return status;
    counted.ops = *counted.real;
    counted.ops.open = open_counted;
    counted.ops.slab_take = slab_take_counted;
    counted.ops.host_register = host_register_counted;
    counted.ops.event_create = event_create_counted;
    kvt_env_host(&env);
    env.device = &counted.ops;
    env.device_context = NULL;
    return kvt_open_env(path, options, &env, store_out);
}

void
gpu_calls_get(struct gpu_calls *calls_out)
{
    calls_out->memory_count = atomic_load_explicit(&counted.memory, memory_order_relaxed);
    calls_out->pin_count = atomic_load_explicit(&counted.pins, memory_order_relaxed);
    calls_out->event_count = atomic_load_explicit(&counted.events, memory_order_relaxed);
}
