/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_device.c - the emulated device, with a list of the host memory that it has registered.
 */
#include "sim_device.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    PINS_MAX = 256, /* Arenas and regions of one store. */
};

struct sim_pin {
    struct device *device;
    void *memory;
    uint64_t size;
};

static struct {
    struct kvt_device_ops ops;
    struct sim_pin pins[PINS_MAX];
    uint32_t count;
} noted;

static void
pin_remove(const struct device *device, const void *memory)
{
    for (uint32_t i = 0; i < noted.count; i++) {
        if (noted.pins[i].device == device && noted.pins[i].memory == memory) {
            noted.pins[i] = noted.pins[--noted.count];
            return;
        }
    }
}

static enum kvt_status
noted_register(struct device *device, void *memory, uint64_t size)
{
    enum kvt_status status = device_host_ops.host_register(device, memory, size);

    if (status != KVT_OK)
        return status;
    if (noted.count == PINS_MAX) {
        fprintf(stderr, "sim_device: more than %d registrations\n", PINS_MAX);
        abort();
    }
    noted.pins[noted.count++] = (struct sim_pin){device, memory, size};
    return KVT_OK;
}

static enum kvt_status
noted_unregister(struct device *device, void *memory, uint64_t size)
{
    pin_remove(device, memory);
    return device_host_ops.host_unregister(device, memory, size);
}

static void
noted_abandon(struct device *device, void *memory, uint64_t size)
{
    pin_remove(device, memory);
    device_host_ops.host_abandon(device, memory, size);
}

static enum kvt_status
noted_open(void *context, const struct kvt_env *env, uint32_t ordinal, struct device **device_out)
{
    enum kvt_status status = device_host_ops.open(context, env, ordinal, device_out);

    if (status == KVT_OK)
        (*device_out)->ops = &noted.ops;
    return status;
}

const struct kvt_device_ops *
sim_device_ops(void)
{
    noted.ops = device_host_ops;
    noted.ops.open = noted_open;
    noted.ops.host_register = noted_register;
    noted.ops.host_unregister = noted_unregister;
    noted.ops.host_abandon = noted_abandon;
    return &noted.ops;
}

void
sim_device_forget(struct device_host_config *config)
{
    while (noted.count > 0) {
        struct sim_pin pin = noted.pins[noted.count - 1];
        struct device_info info;

        /* A lost device lets go of memory that it is at work on. */
        config->fail_call = config->call_count + 1;
        config->fail_status = KVT_E_GPU;
        (void)device_host_ops.info(pin.device, &info);
        (void)noted_unregister(pin.device, pin.memory, pin.size);
    }
    config->fail_call = 0;
}
