/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_cache_device.c - see engram_cache_device.h.
 */
#include "engram_cache_device.h"

#include "bytes.h"
#include "failure.h"
#include "try.h"

/* --- 1. Opening ------------------------------------------------------------------------------- */

/* Its memory on the host. */
static enum kvt_status
memory_take(struct engram_cache_device *cache, const struct kvt_env *env, uint32_t set_count)
{
    size_t uses_bytes = (size_t)set_count * CACHE_WAYS * sizeof(*cache->uses);
    uint8_t *at;

    cache->memory_bytes = engram_tags_bytes(set_count) + engram_judge_bytes(set_count) + uses_bytes;
    cache->memory = env_map(env, cache->memory_bytes);
    if (cache->memory == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for %zu bytes of numbers of rows on a device",
            cache->memory_bytes);
    at = engram_tags_place(&cache->tags, set_count, cache->memory);
    cache->uses = (uint16_t *)(void *)engram_judge_init(&cache->judge, env, set_count, at);
    return KVT_OK;
}

enum kvt_status
engram_cache_device_open(const struct kvt_env *env, struct device *device, uint64_t capacity_bytes,
    uint32_t row_bytes, struct engram_cache_device **cache_out)
{
    uint64_t sets = capacity_bytes / ((uint64_t)row_bytes * CACHE_WAYS);
    uint32_t set_count = sets < UINT32_MAX / CACHE_WAYS ? (uint32_t)sets : UINT32_MAX / CACHE_WAYS;
    struct engram_cache_device *cache = env_take(env, sizeof(*cache));
    enum kvt_status status;

    if (cache == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for a cache of rows");
    cache->device = device;
    cache->row_bytes = row_bytes;
    cache->rows_bytes = (uint64_t)set_count * CACHE_WAYS * row_bytes;
    KVT_TRY_GOTO(memory_take(cache, env, set_count), free_cache);
    KVT_TRY_GOTO(device->ops->slab_take(device, cache->rows_bytes, &cache->rows), free_memory);
    *cache_out = cache;
    return KVT_OK;

free_memory:
    env_unmap(env, cache->memory, cache->memory_bytes);
free_cache:
    env_put(env, cache, sizeof(*cache));
    return status;
}

void
engram_cache_device_close(struct engram_cache_device *cache)
{
    struct kvt_env env;

    if (cache == NULL)
        return;
    env = cache->judge.env;
    cache->device->ops->slab_put(cache->device, cache->rows, cache->rows_bytes);
    env_unmap(&env, cache->memory, cache->memory_bytes);
    env_put(&env, cache, sizeof(*cache));
}

/* --- 2. Rows that are there ------------------------------------------------------------------- */

static void *
place_address(const struct engram_cache_device *cache, size_t at)
{
    /* No pointer of the host. */
    return (void *)((uintptr_t)cache->rows + (uintptr_t)at * cache->row_bytes);
}

static void
sample_look(struct engram_cache_device *cache, uint32_t row, const struct engram_judge *host)
{
    if (engram_judge_look(&cache->judge, row) && host != NULL && host->is_on &&
        engram_judge_would_find(host, row))
        cache->window_elsewhere++;
}

bool
engram_cache_device_find(
    struct engram_cache_device *cache, uint32_t row, const struct engram_judge *host)
{
    struct engram_judge *judge = &cache->judge;
    uint64_t begin_ns;
    bool is_there;
    size_t at;

    if (cache->is_lost)
        return false;
    if (!judge->is_on) {
        sample_look(cache, row, host);
        return false;
    }
    begin_ns = engram_judge_begin(judge, &judge->found);
    sample_look(cache, row, host);
    judge->counts.row_count++;
    at = engram_tags_find(&cache->tags, row);
    is_there = at != SIZE_MAX && cache->uses[at] < CACHE_FILLING;
    judge->counts.hit_count += is_there;
    engram_judge_end(judge, &judge->found, begin_ns);
    return is_there;
}

void
engram_cache_device_hold(struct engram_cache_device *cache, uint32_t row)
{
    size_t at = engram_tags_look(&cache->tags, row);
    bool is_there = at != SIZE_MAX && cache->uses[at] < CACHE_FILLING - 1;

    KVT_ASSERT(is_there);
    if (!is_there)
        return;
    cache->uses[at]++;
    cache->window_found++;
}

void
engram_cache_device_release(struct engram_cache_device *cache, uint32_t row)
{
    size_t at = engram_tags_look(&cache->tags, row);
    bool is_held = at != SIZE_MAX && cache->uses[at] > 0 && cache->uses[at] < CACHE_FILLING;

    KVT_ASSERT(is_held);
    if (is_held)
        cache->uses[at]--;
}

const void *
engram_cache_device_source(const struct engram_cache_device *cache, uint32_t row)
{
    return place_address(cache, engram_tags_look(&cache->tags, row));
}

/* --- 3. Rows that come ------------------------------------------------------------------------ */

bool
engram_cache_device_keep(struct engram_cache_device *cache, uint32_t row, uint32_t filler)
{
    struct engram_judge *judge = &cache->judge;
    size_t at = SIZE_MAX;
    uint64_t begin_ns;

    if (!judge->is_on)
        return false;
    begin_ns = engram_judge_begin(judge, &judge->kept);
    /* Two fetches may have read it; or some other row of its page is missing. */
    if (engram_tags_find(&cache->tags, row) == SIZE_MAX)
        at = engram_tags_take(&cache->tags, row, cache->uses);
    if (at != SIZE_MAX)
        cache->uses[at] = (uint16_t)(CACHE_FILLING | filler);
    engram_judge_end(judge, &judge->kept, begin_ns);
    return at != SIZE_MAX;
}

void *
engram_cache_device_target(const struct engram_cache_device *cache, uint32_t row, uint32_t filler)
{
    size_t at = engram_tags_look(&cache->tags, row);

    if (at == SIZE_MAX || cache->uses[at] != (CACHE_FILLING | filler))
        return NULL;
    return place_address(cache, at);
}

void
engram_cache_device_filled(
    struct engram_cache_device *cache, uint32_t row, uint32_t filler, bool is_there)
{
    size_t at = engram_tags_look(&cache->tags, row);

    if (at == SIZE_MAX || cache->uses[at] != (CACHE_FILLING | filler))
        return;
    cache->uses[at] = 0;
    if (!is_there)
        engram_tags_drop(&cache->tags, at);
}

/* --- 4. Whether it pays ----------------------------------------------------------------------- */

void
engram_cache_device_lose(struct engram_cache_device *cache)
{
    cache->is_lost = true;
    cache->judge.is_on = false;
}

bool
engram_cache_device_judge(struct engram_cache_device *cache, const struct cache_prices *prices)
{
    struct engram_judge *judge = &cache->judge;
    uint64_t pages = judge->window_hits - cache->window_elsewhere;
    uint64_t saved_ns;

    if (cache->is_lost || !engram_judge_is_due(judge) || prices->page_ns == 0)
        return false;
    saved_ns = judge->window_hits * prices->in_ns + pages * prices->page_ns +
               cache->window_elsewhere * prices->host_ns;
    engram_judge_decide(judge, saved_ns / judge->window_seen,
        cache->window_found * prices->within_ns / judge->window_rows);
    cache->window_found = cache->window_elsewhere = 0;
    return true;
}
