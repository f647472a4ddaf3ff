/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_hasher.c - a profile and its class map, checked and made ready to address rows.
 */
#include "engram_internal.h"

#include "bytes.h"
#include "failure.h"
#include "hash.h"
#include "try.h"

static void
layer_prepare(struct engram_layer *layer, const struct kvt_engram_layer *from, uint32_t columns)
{
    layer->number = from->number;
    layer->row_count = from->row_count;
    memcpy(layer->multipliers, from->multipliers, sizeof(layer->multipliers));
    for (uint32_t i = 0; i < columns; i++) {
        layer->buckets[i].prime = from->primes[i];
        layer->buckets[i].offset = from->offsets[i];
        /* 2^64 / prime: of a power of two the division of 2^64 - 1 would be one too small. */
        layer->buckets[i].reciprocal =
            UINT64_MAX / from->primes[i] +
            (uint64_t)(UINT64_MAX % from->primes[i] == from->primes[i] - 1);
    }
}

static enum kvt_status
map_check(const struct kvt_engram_profile *profile, const uint32_t *map,
    const struct kvt_engram_hasher *hasher)
{
    const uint32_t *map_copy = hasher->class_map;
    uint32_t class_count = 0;

    for (uint32_t i = 0; i < profile->token_count; i++) {
        uint32_t class = get_u32(&map_copy[i]);

        if (class > class_count)
            return failure_set(KVT_E_INVAL, 0,
                "class_map[%u] is %u, and %u classes came before it: classes are numbered in the "
                "order of their first appearance",
                i, class, class_count);
        class_count += (uint32_t)(class == class_count);
    }
    if (class_count != profile->class_count)
        return failure_set(KVT_E_INVAL, 0,
            "class_map has %u classes, the profile %u: every hash would differ", class_count,
            profile->class_count);
    if (map[profile->pad_token] != profile->pad_class)
        return failure_set(KVT_E_INVAL, 0, "class_map[%u], the pad token's, is %u, not %u",
            profile->pad_token, map[profile->pad_token], profile->pad_class);
    if (!bytes_are_zero(profile->class_map_sha256, sizeof(profile->class_map_sha256)) &&
        memcmp(hasher->class_map_sha256, profile->class_map_sha256,
            sizeof(profile->class_map_sha256)) != 0)
        return failure_set(KVT_E_INVAL, 0, "class_map has another SHA-256 than the profile says");
    return KVT_OK;
}

enum kvt_status
engram_map_hash_in(const struct kvt_env *env, const uint32_t *class_map, uint32_t token_count,
    uint8_t sha256_out[32])
{
    size_t size = (size_t)token_count * sizeof(*class_map);
    uint32_t *copy;

    if (class_map == NULL || token_count == 0 || sha256_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "class_map or sha256_out is NULL, or has no tokens");
    copy = env_take(env, size);
    if (copy == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for a class map of %zu bytes", size);
    for (uint32_t i = 0; i < token_count; i++)
        put_u32(&copy[i], class_map[i]);
    hash_sha256(sha256_out, copy, size);
    env_put(env, copy, size);
    return KVT_OK;
}

enum kvt_status
kvt_engram_map_hash(const uint32_t *class_map, uint32_t token_count, uint8_t sha256_out[32])
{
    struct kvt_env env;

    env_host(&env);
    return engram_map_hash_in(&env, class_map, token_count, sha256_out);
}

/* The hasher's own map. */
static enum kvt_status
map_adopt(struct kvt_engram_hasher *hasher, const struct kvt_engram_profile *profile,
    const uint32_t *class_map)
{
    size_t size = (size_t)profile->token_count * sizeof(*class_map);
    enum kvt_status status;

    hasher->class_map = env_take(&hasher->env, size);
    if (hasher->class_map == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for a class map of %zu bytes", size);
    hasher->token_count = profile->token_count;
    /* As it is hashed: little-endian. */
    for (uint32_t i = 0; i < profile->token_count; i++)
        put_u32(&hasher->class_map[i], class_map[i]);
    hash_sha256(hasher->class_map_sha256, hasher->class_map, size);
    status = map_check(profile, class_map, hasher);
    memcpy(hasher->class_map, class_map, size);
    return status;
}

enum kvt_status
engram_hasher_open_in(const struct kvt_env *env, const struct kvt_engram_profile *profile,
    const uint32_t *class_map, uint32_t token_count, kvt_engram_hasher **hasher_out)
{
    struct kvt_engram_hasher *hasher;
    struct kvt_engram_profile own;
    enum kvt_status status = KVT_OK;

    if (hasher_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "hasher_out is NULL");
    *hasher_out = NULL;
    if (profile == NULL || (class_map == NULL) != (token_count == 0))
        return failure_set(
            KVT_E_INVAL, 0, "profile is NULL, or one of class_map and token_count is missing");
    KVT_TRY(engram_profile_import(&own, profile));
    if (class_map != NULL && token_count != own.token_count)
        return failure_set(KVT_E_INVAL, 0, "class_map has %u tokens, the profile %u", token_count,
            own.token_count);
    hasher = env_take(env, sizeof(*hasher));
    if (hasher == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for a hasher");
    hasher->env = *env;
    hasher->layer_count = own.layer_count;
    hasher->order_max = own.order_max;
    hasher->head_count = own.head_count;
    hasher->column_count = (own.order_max - 1) * own.head_count;
    hasher->class_count = own.class_count;
    hasher->pad_class = own.pad_class;
    memcpy(hasher->class_map_sha256, own.class_map_sha256, sizeof(own.class_map_sha256));
    for (uint32_t i = 0; i < own.layer_count; i++)
        layer_prepare(&hasher->layers[i], &own.layers[i], hasher->column_count);
    if (class_map != NULL)
        status = map_adopt(hasher, &own, class_map);
    if (status != KVT_OK) {
        kvt_engram_hasher_close(hasher);
        return status;
    }
    *hasher_out = hasher;
    return KVT_OK;
}

enum kvt_status
kvt_engram_hasher_open(const struct kvt_engram_profile *profile, const uint32_t *class_map,
    uint32_t token_count, kvt_engram_hasher **hasher_out)
{
    struct kvt_env env;

    env_host(&env);
    return engram_hasher_open_in(&env, profile, class_map, token_count, hasher_out);
}

void
kvt_engram_hasher_close(kvt_engram_hasher *hasher)
{
    struct kvt_env env;

    if (hasher == NULL)
        return;
    env = hasher->env;
    env_put(&env, hasher->class_map, (size_t)hasher->token_count * sizeof(*hasher->class_map));
    env_put(&env, hasher, sizeof(*hasher));
}
