/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_pool.h - memory of a store's device that plays the KV pages of a serving engine: blocks
 * are made there before they are put, and read back to there.
 *
 * The host cannot follow its addresses: bytes go in and out by copies that wait, from and to host
 * memory of the same size that is registered with the device. They are the benchmark's, not the
 * store's, and their time is counted apart.
 *
 * Threads: one.
 */
#ifndef BENCH_DEVICE_POOL_H
#define BENCH_DEVICE_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "kvtier/kvtier.h"

struct device_pool {
    kvt_store *store;
    uint8_t *address; /* Of device 0. NULL: there is no pool. */
    uint64_t size;
    kvt_region region;
    uint8_t *host; /* The host memory. */
    kvt_region host_region;
};

/* device_pool_create - as large as `host`, whole pages that outlive the pool. False: complained.
 * The store stays the caller's. */
bool device_pool_create(struct device_pool *pool, kvt_store *store, uint8_t *host, uint64_t size);
/* Before the store is closed; nothing may be under way in it. */
void device_pool_destroy(struct device_pool *pool);

/* device_pool_at - the address of a place, for the store. */
void *device_pool_at(const struct device_pool *pool, uint64_t offset);

/* `size` bytes at `offset` of the host memory to the same place of the device's, or back. False:
 * complained. */
bool device_pool_write(struct device_pool *pool, uint64_t offset, uint64_t size);
bool device_pool_read(struct device_pool *pool, uint64_t offset, uint64_t size);

#endif /* BENCH_DEVICE_POOL_H */
