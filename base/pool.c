/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.c - a list of free objects of one size.
 */
#include "pool.h"

#include <string.h>

void
pool_init(struct pool *pool, const struct kvt_env *env, size_t size, uint32_t keep_max)
{
    *pool = (struct pool){
        .env = env, .size = size < sizeof(void *) ? sizeof(void *) : size, .keep_max = keep_max};
}

/* The first free object leaves the list; NULL: there is none. */
static void *
free_take(struct pool *pool)
{
    void *object = pool->free;

    if (object == NULL)
        return NULL;
    memcpy(&pool->free, object, sizeof(pool->free));
    pool->free_count--;
    /* Another thread had it last: on its way for the next take. */
    if (pool->free != NULL)
        __builtin_prefetch(pool->free, 1);
    return object;
}

void
pool_deinit(struct pool *pool)
{
    void *object;

    while ((object = free_take(pool)) != NULL)
        env_put(pool->env, object, pool->size);
}

void *
pool_take_as_is(struct pool *pool)
{
    void *object = free_take(pool);

    return object != NULL ? object : env_take(pool->env, pool->size);
}

void *
pool_take(struct pool *pool)
{
    void *object = free_take(pool);

    if (object == NULL)
        return env_take(pool->env, pool->size);
    memset(object, 0, pool->size);
    return object;
}

void
pool_put(struct pool *pool, void *object)
{
    if (object == NULL)
        return;
    if (pool->free_count == pool->keep_max) {
        env_put(pool->env, object, pool->size);
        return;
    }
    memcpy(object, &pool->free, sizeof(pool->free));
    pool->free = object;
    pool->free_count++;
}
