/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_pool.c - memory of a store's device that plays the KV pages of a serving engine.
 */
#include "device_pool.h"

#include <string.h>

#include "complain.h"
#include "kvtier/kvtier_unstable.h"

static bool
region_take(struct device_pool *pool, void *address, uint32_t tier, kvt_region *region_out)
{
    const struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = tier, .address = address, .size = pool->size};
    enum kvt_status status = kvt_region_register(pool->store, &about, region_out);

    if (status != KVT_OK)
        complain_status(status, "cannot register memory with the device");
    return status == KVT_OK;
}

bool
device_pool_create(struct device_pool *pool, kvt_store *store, uint8_t *host, uint64_t size)
{
    void *address = NULL;
    enum kvt_status status = kvt_device_alloc(store, 0, size, &address);

    memset(pool, 0, sizeof(*pool));
    if (status != KVT_OK) {
        complain_status(status, "cannot take %llu bytes of the device", (unsigned long long)size);
        return false;
    }
    pool->store = store;
    pool->address = address;
    pool->host = host;
    pool->size = size;
    if (region_take(pool, address, KVT_TIER_HBM, &pool->region) &&
        region_take(pool, host, KVT_TIER_HOST, &pool->host_region))
        return true;
    device_pool_destroy(pool);
    return false;
}

void
device_pool_destroy(struct device_pool *pool)
{
    if (pool->address == NULL)
        return;
    if (kvt_region_unregister(pool->store, pool->region) != KVT_OK ||
        kvt_region_unregister(pool->store, pool->host_region) != KVT_OK)
        complain("memory of the device is still in use");
    kvt_device_free(pool->store, 0, pool->address, pool->size);
    memset(pool, 0, sizeof(*pool));
}

void *
device_pool_at(const struct device_pool *pool, uint64_t offset)
{
    return (void *)((uintptr_t)pool->address + offset);
}

bool
device_pool_write(struct device_pool *pool, uint64_t offset, uint64_t size)
{
    enum kvt_status status =
        kvt_device_write(pool->store, 0, device_pool_at(pool, offset), pool->host + offset, size);

    if (status != KVT_OK)
        complain_status(status, "cannot write memory of the device");
    return status == KVT_OK;
}

bool
device_pool_read(struct device_pool *pool, uint64_t offset, uint64_t size)
{
    enum kvt_status status =
        kvt_device_read(pool->store, 0, pool->host + offset, device_pool_at(pool, offset), size);

    if (status != KVT_OK)
        complain_status(status, "cannot read memory of the device");
    return status == KVT_OK;
}
