/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h - objects of one size that come and go all the time: what was given back is handed out
 * again, so that the steady state asks for no memory.
 *
 * Owns      the objects that lie in it.
 * Threads   one at a time; whoever shares a pool guards it.
 */
#ifndef KVT_BASE_POOL_H
#define KVT_BASE_POOL_H

#include "env.h"

struct pool {
    const struct kvt_env *env;
    size_t size; /* Of an object, at least a pointer's. */
    void *free;  /* Each begins with the next one's address. */
    uint32_t free_count;
    uint32_t keep_max; /* More are given back to the env. */
};

/* pool_init - an empty pool; it takes nothing. `env` must outlive it. */
void pool_init(struct pool *pool, const struct kvt_env *env, size_t size, uint32_t keep_max);
/* pool_deinit - every object must have been given back. Fine when it was never made. */
void pool_deinit(struct pool *pool);

/* pool_take - zeroed; NULL when there is no memory. pool_take_as_is - with what the last one left
 * in it: of large objects that their owner fills anyway. */
void *pool_take(struct pool *pool);
void *pool_take_as_is(struct pool *pool);
void pool_put(struct pool *pool, void *object); /* NULL is fine. */

#endif /* KVT_BASE_POOL_H */
