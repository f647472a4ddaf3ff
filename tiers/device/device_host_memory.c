/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_host_memory.c - memory of the emulated accelerator: slabs, what a program takes for
 * itself, registrations, slabs of peers.
 *
 * Memory of the device stands in the tables with the addresses that the caller sees: an address
 * without DEVICE_HOST_BIT is not found, and refused like any other foreign pointer.
 */
#include <inttypes.h>

#include "bytes.h"
#include "device_host_internal.h"
#include "device_pins.h"
#include "failure.h"
#include "try.h"

static const uint64_t REGISTER_BYTES_MAX = UINT64_C(1) << 30;
static const uint64_t SLAB_ALIGN_BYTES = UINT64_C(2) << 20;

/* Memory that is noted in `ranges`. */
static enum kvt_status
memory_take(
    struct device_host *device, struct device_ranges *ranges, uint64_t size, void **address_out)
{
    uint64_t free_bytes = device->memory_bytes - device->used_bytes;
    struct device_range range = {.size = size, .kind = DEVICE_RANGE_SLAB};
    enum kvt_status status;
    void *memory;

    if (size > free_bytes || round_up(size, SLAB_ALIGN_BYTES) > free_bytes) {
        return failure_set(KVT_E_NOMEM, 0,
            "The emulated device has %" PRIu64 " of %" PRIu64 " bytes left; a slab of %" PRIu64
            " does not fit.",
            free_bytes, device->memory_bytes, size);
    }
    memory = env_map(&device->env, (size_t)round_up(size, SLAB_ALIGN_BYTES));
    if (memory == NULL)
        return failure_set(KVT_E_NOMEM, 0, "No memory for a slab of %" PRIu64 " bytes.", size);
    range.start = address_of(memory) ^ DEVICE_HOST_BIT;
    status = device_ranges_add(ranges, &range);
    if (status != KVT_OK) {
        env_unmap(&device->env, memory, (size_t)round_up(size, SLAB_ALIGN_BYTES));
        return status;
    }
    device->used_bytes += round_up(size, SLAB_ALIGN_BYTES);
    *address_out = (void *)(uintptr_t)range.start;
    return KVT_OK;
}

enum kvt_status
device_host_slab_take(struct device *base, uint64_t size, void **address_out)
{
    struct device_host *device = device_host_of(base);
    enum kvt_status status;

    *address_out = NULL;
    KVT_TRY(device_host_call(device));
    if (size == 0)
        return failure_set(KVT_E_INVAL, 0, "A slab has one byte or more.");
    device_host_lock(device);
    status = memory_take(device, &device->ranges, size, address_out);
    device_host_unlock(device);
    return status;
}

bool
host_slab_leave(struct device_host *device, struct device_ranges *ranges,
    const struct device_range *range, void **memory_out)
{
    const struct device_range memory = {
        range->start ^ DEVICE_HOST_BIT, range->size, DEVICE_RANGE_SLAB};
    bool is_lost = atomic_load_explicit(&device->is_lost, memory_order_relaxed);
    uint32_t in_flight = 0;
    bool is_there;

    device_host_lock(device);
    is_there = device_ranges_remove(ranges, range);
    if (is_there) {
        in_flight = host_works_give_up(device, &memory);
        if (range->kind != DEVICE_RANGE_ADOPTED)
            device->used_bytes -= round_up(range->size, SLAB_ALIGN_BYTES);
    }
    device_host_unlock(device);
    KVT_ASSERT(is_there);
    KVT_ASSERT(is_lost || in_flight == 0);
    *memory_out = (void *)(uintptr_t)memory.start;
    return is_there;
}

static void
memory_put(struct device_host *device, struct device_ranges *ranges, void *address, uint64_t size)
{
    const struct device_range range = {address_of(address), size, DEVICE_RANGE_SLAB};
    void *memory;

    if (host_slab_leave(device, ranges, &range, &memory))
        env_unmap(&device->env, memory, (size_t)round_up(size, SLAB_ALIGN_BYTES));
}

void
device_host_slab_put(struct device *base, void *address, uint64_t size)
{
    if (!host_shared_put(device_host_of(base), address))
        memory_put(device_host_of(base), &device_host_of(base)->ranges, address, size);
}

enum kvt_status
device_host_memory_take(struct device *base, uint64_t size, void **memory_out)
{
    struct device_host *device = device_host_of(base);
    enum kvt_status status;

    *memory_out = NULL;
    device_host_lock(device);
    status = memory_take(device, &device->foreign, size, memory_out);
    device_host_unlock(device);
    return status;
}

void
device_host_memory_put(struct device *base, void *memory, uint64_t size)
{
    if (memory != NULL)
        memory_put(device_host_of(base), &device_host_of(base)->foreign, memory, size);
}

static enum kvt_status
memory_register(struct device_host *device, const struct device_range *range)
{
    if (range->size == 0)
        return failure_set(KVT_E_INVAL, 0, "Memory has one byte or more.");
    if (device_ranges_in_slab(&device->ranges, range))
        return KVT_OK;
    if (device_ranges_find(&device->foreign, range->start, range->size) == NULL)
        return failure_set(KVT_E_INVAL, 0,
            "%" PRIu64 " bytes at 0x%" PRIx64 " are no memory of the emulated device %" PRIu32 ".",
            range->size, range->start, device->ordinal);
    return device_ranges_add(&device->ranges, range);
}

enum kvt_status
device_host_memory_register(struct device *base, void *memory, uint64_t size)
{
    struct device_host *device = device_host_of(base);
    const struct device_range range = {address_of(memory), size, DEVICE_RANGE_MEMORY};
    enum kvt_status status;

    KVT_TRY(device_host_call(device));
    device_host_lock(device);
    status = memory_register(device, &range);
    device_host_unlock(device);
    return status;
}

void
device_host_memory_unregister(struct device *base, void *memory, uint64_t size)
{
    struct device_host *device = device_host_of(base);
    const struct device_range range = {address_of(memory), size, DEVICE_RANGE_MEMORY};

    device_host_lock(device);
    (void)device_ranges_remove(&device->ranges, &range); /* Of memory in a slab none was noted. */
    device_host_unlock(device);
}

/* Every page can be used as it is: only the rules hold. */
static enum kvt_status
pages_pin(void *device, struct device_pin *pin)
{
    (void)device;
    (void)pin;
    return KVT_OK;
}

static enum kvt_status
pages_unpin(void *device, const struct device_pin *pin)
{
    (void)device;
    (void)pin;
    return KVT_OK;
}

static const struct device_pin_driver pin_driver = {.pin = pages_pin, .unpin = pages_unpin};

enum kvt_status
device_host_host_register(struct device *base, void *memory, uint64_t size)
{
    struct device_host *device = device_host_of(base);
    const struct device_range range = {address_of(memory), size, DEVICE_RANGE_HOST};
    enum kvt_status status;

    KVT_TRY(device_host_call(device));
    if (memory == NULL || size == 0 || (range.start | size) % PAGE_BYTES != 0 ||
        size > REGISTER_BYTES_MAX) {
        return failure_set(KVT_E_INVAL, 0,
            "%" PRIu64
            " bytes at %p cannot be registered: it takes whole pages, and at most %" PRIu64
            " bytes.",
            size, memory, REGISTER_BYTES_MAX);
    }
    KVT_TRY(device_pins_take(&pin_driver, device, range.start, range.size));
    device_host_lock(device);
    status = device_ranges_add(&device->ranges, &range);
    device_host_unlock(device);
    if (status != KVT_OK)
        (void)device_pins_put(&pin_driver, device, range.start, range.size);
    return status;
}

/* What is in flight still arrives, or does not: whoever unmaps the memory meets it. */
static enum kvt_status
host_keep(struct device_host *device, void *memory, uint64_t size)
{
    device_host_host_abandon(&device->device, memory, size);
    return failure_set(KVT_E_GPU, 0,
        "The emulated device %" PRIu32 ", which is lost, does not let go of %" PRIu64
        " bytes of host memory at %p: they must stay where they are until the process ends.",
        device->ordinal, size, memory);
}

enum kvt_status
device_host_host_unregister(struct device *base, void *memory, uint64_t size)
{
    struct device_host *device = device_host_of(base);
    const struct device_range range = {address_of(memory), size, DEVICE_RANGE_HOST};
    bool is_lost = atomic_load_explicit(&device->is_lost, memory_order_relaxed);
    uint32_t in_flight = 0;
    bool is_there;

    if (is_lost && device->config != NULL && device->config->keeps_host)
        return host_keep(device, memory, size);
    device_host_lock(device);
    is_there = device_ranges_remove(&device->ranges, &range);
    if (is_there) {
        in_flight = host_works_give_up(device, &range);
        host_shades_forget(device, &range);
    }
    device_host_unlock(device);
    KVT_ASSERT(is_there);
    KVT_ASSERT(is_lost || in_flight == 0);
    return device_pins_put(&pin_driver, device, range.start, range.size);
}

void
device_host_host_abandon(struct device *base, void *memory, uint64_t size)
{
    struct device_host *device = device_host_of(base);
    const struct device_range range = {address_of(memory), size, DEVICE_RANGE_HOST};
    bool is_there;

    device_host_lock(device);
    is_there = device_ranges_remove(&device->ranges, &range);
    if (is_there)
        host_shades_forget(device, &range);
    device_host_unlock(device);
    KVT_ASSERT(is_there);
    device_pins_keep(&pin_driver, range.start, range.size);
}

static bool
slab_is_there(struct device_host *device, uint64_t start, uint64_t size)
{
    const struct device_range *range;
    bool is_there;

    device_host_lock(device);
    range = size == 0 ? NULL : device_ranges_find(&device->ranges, start, size);
    is_there = range != NULL && range->kind == DEVICE_RANGE_SLAB;
    device_host_unlock(device);
    return is_there;
}

enum kvt_status
device_host_peer_register(
    struct device *base, struct device *other, void *slab, uint64_t size, bool *is_faster_out)
{
    struct device_host *device = device_host_of(base);
    const struct device_range range = {address_of(slab), size, DEVICE_RANGE_PEER};
    enum kvt_status status;

    *is_faster_out = device->config == NULL || !device->config->has_slow_peers;
    KVT_TRY(device_host_call(device));
    if (device->config != NULL && device->config->has_no_peers)
        return failure_set(KVT_E_UNSUPPORTED, 0,
            "The emulated devices %" PRIu32 " and %" PRIu32 " do not reach each other.",
            device->ordinal, device_host_of(other)->ordinal);
    if (other == base || !slab_is_there(device_host_of(other), range.start, size))
        return failure_set(
            KVT_E_INVAL, 0, "%" PRIu64 " bytes at %p are no slab of another device.", size, slab);
    device_host_lock(device);
    status = device_ranges_add(&device->ranges, &range);
    device_host_unlock(device);
    return status;
}

void
device_host_peer_unregister(struct device *base, void *slab, uint64_t size)
{
    struct device_host *device = device_host_of(base);
    const struct device_range range = {address_of(slab), size, DEVICE_RANGE_PEER};
    const struct device_range memory = {range.start ^ DEVICE_HOST_BIT, size, DEVICE_RANGE_PEER};
    bool is_lost = atomic_load_explicit(&device->is_lost, memory_order_relaxed);
    uint32_t in_flight = 0;
    bool is_there;

    device_host_lock(device);
    is_there = device_ranges_remove(&device->ranges, &range);
    if (is_there)
        in_flight = host_works_give_up(device, &memory);
    device_host_unlock(device);
    KVT_ASSERT(is_there);
    KVT_ASSERT(is_lost || in_flight == 0);
}
