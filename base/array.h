/* SPDX-License-Identifier: Apache-2.0 */
/*
 * array.h - arrays that grow by doubling, from the memory of an environment.
 */
#ifndef KVT_BASE_ARRAY_H
#define KVT_BASE_ARRAY_H

#include <string.h>

#include "env.h"

enum {
    ARRAY_CAPACITY_FIRST = 256,
};

/*
 * array_grow_wide - the same elements in an array of twice the capacity (256 at first); NULL when
 * there is no memory, or no size_t counts its bytes: the old array is then as it was. Give it back
 * by env_put() with *capacity * element_size.
 */
static inline void *
array_grow_wide(const struct kvt_env *env, void *array, size_t *capacity, size_t element_size)
{
    size_t wanted = *capacity == 0 ? ARRAY_CAPACITY_FIRST : *capacity * 2;
    void *grown;

    if (*capacity > SIZE_MAX / 2 / element_size)
        return NULL;
    grown = env_take(env, wanted * element_size);
    if (grown == NULL)
        return NULL;
    if (*capacity > 0)
        memcpy(grown, array, *capacity * element_size);
    env_put(env, array, *capacity * element_size);
    *capacity = wanted;
    return grown;
}

/* array_grow - the same for a count of 32 bits; NULL also when the capacity would pass 2^31. */
static inline void *
array_grow(const struct kvt_env *env, void *array, uint32_t *capacity, size_t element_size)
{
    size_t wide = *capacity;
    void *grown;

    if (*capacity > UINT32_MAX / 2)
        return NULL;
    grown = array_grow_wide(env, array, &wide, element_size);
    *capacity = (uint32_t)wide;
    return grown;
}

#endif /* KVT_BASE_ARRAY_H */
