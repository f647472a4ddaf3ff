/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_caches.c - caches of rows of an open table: giving it memory for them, telling the
 * statistics what they counted, and their end.
 */
#include "engram_set.h"

/* --- 1. What they counted --------------------------------------------------------------------- */

/* `prefix`: of the counters' names. */
#define JUDGE_TELL(store, prefix, judge, was_on)                                                \
    do {                                                                                        \
        COUNT(store, prefix##_row_count, (judge)->counts.row_count);                            \
        COUNT(store, prefix##_hit_count, (judge)->counts.hit_count);                            \
        COUNT(store, prefix##_sample_count, (judge)->counts.seen_count);                        \
        COUNT(store, prefix##_sample_hit_count, (judge)->counts.seen_hit_count);                \
        memset(&(judge)->counts, 0, sizeof((judge)->counts));                                   \
        COUNT(store, prefix##_on_now, (uint64_t)(judge)->is_on - (uint64_t)(was_on));           \
        atomic_store_explicit(                                                                  \
            &(store)->counters.prefix##_worth_ns_now, (judge)->worth_ns, memory_order_relaxed); \
        atomic_store_explicit(                                                                  \
            &(store)->counters.prefix##_cost_ns_now, (judge)->cost_ns, memory_order_relaxed);   \
    } while (0)

void
engram_cache_tell(struct kvt_store *store, struct engram_cache *cache, bool was_on)
{
    JUDGE_TELL(store, engram_cache, &cache->judge, was_on);
}

void
engram_cache_device_tell(struct kvt_store *store, struct engram_cache_device *cache, bool was_on)
{
    JUDGE_TELL(store, engram_cache_device, &cache->judge, was_on);
}

/* --- 2. Giving them --------------------------------------------------------------------------- */

static enum kvt_status
capacity_check(uint64_t capacity_bytes)
{
    if (capacity_bytes < CACHE_BYTES_MIN || capacity_bytes > INT64_MAX)
        return failure_set(KVT_E_INVAL, 0, "%llu bytes: a cache of rows has %d or more",
            (unsigned long long)capacity_bytes, CACHE_BYTES_MIN);
    return KVT_OK;
}

enum kvt_status
kvt_engram_cache(kvt_engram *table, uint64_t capacity_bytes)
{
    struct engram_cache *cache = NULL;

    if (table == NULL)
        return failure_set(KVT_E_INVAL, 0, "table is NULL");
    KVT_TRY(store_enter(table->store));
    KVT_TRY(capacity_check(capacity_bytes));
    if (atomic_load_explicit(&table->cache, memory_order_relaxed) != NULL)
        return failure_set(KVT_E_STATE, 0, "the table %s has a cache of rows", table->head.name);
    KVT_TRY(engram_cache_open(
        &table->store->env, capacity_bytes, table->head.profile.row_bytes, &cache));
    atomic_store_explicit(&table->cache, cache, memory_order_release); /* (F4) */
    return KVT_OK;
}

enum kvt_status
kvt_engram_cache_device(kvt_engram *table, uint32_t device, uint64_t capacity_bytes)
{
    struct engram_cache_device *cache = NULL;
    struct kvt_store *store;

    if (table == NULL)
        return failure_set(KVT_E_INVAL, 0, "table is NULL");
    store = table->store;
    KVT_TRY(store_enter(store));
    KVT_TRY(capacity_check(capacity_bytes));
    if (!device_is_open(store, device))
        return failure_set(
            KVT_E_INVAL, 0, "device %u is not one of the store's (device_mask)", device);
    if (atomic_load_explicit(&table->device_caches[device], memory_order_relaxed) != NULL)
        return failure_set(KVT_E_STATE, 0, "the table %s has a cache of rows on device %u",
            table->head.name, device);
    if (device_is_lost(store, device))
        return failure_set(KVT_E_GPU, 0, "device %u is lost", device);
    KVT_TRY(device_answer(store, device,
        engram_cache_device_open(&store->env, hbm_device(store->devices.tiers[device]),
            capacity_bytes, table->head.profile.row_bytes, &cache)));
    atomic_store_explicit(&table->device_caches[device], cache, memory_order_release); /* (F4) */
    return KVT_OK;
}

/* --- 3. Their end ----------------------------------------------------------------------------- */

static void
device_cache_end(struct kvt_store *store, struct engram_cache_device *cache)
{
    bool was_on;

    if (cache == NULL)
        return;
    was_on = cache->judge.is_on;
    cache->judge.is_on = false;
    engram_cache_device_tell(store, cache, was_on);
    engram_cache_device_close(cache);
}

void
engram_caches_end(struct kvt_engram *table)
{
    struct engram_cache *cache = table->cache;

    for (uint32_t i = 0; i < POLICY_DEVICES_MAX; i++)
        device_cache_end(table->store, table->device_caches[i]);
    if (cache != NULL) {
        bool was_on = cache->judge.is_on;

        cache->judge.is_on = false;
        engram_cache_tell(table->store, cache, was_on);
        engram_cache_close(cache);
    }
}
