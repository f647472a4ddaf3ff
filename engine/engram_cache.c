/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_cache.c - see engram_cache.h.
 */
#include "engram_cache.h"

#include <string.h>

#include "bytes.h"
#include "failure.h"

/* --- 1. Opening ------------------------------------------------------------------------------- */

enum kvt_status
engram_cache_open(const struct kvt_env *env, uint64_t capacity_bytes, uint32_t row_bytes,
    struct engram_cache **cache_out)
{
    /* For a row its number and its mark, and a sixteenth of that for the sample. */
    uint64_t set_bytes = CACHE_WAYS * ((uint64_t)row_bytes + CACHE_TAG_BYTES);
    uint64_t sets = capacity_bytes / set_bytes;
    uint32_t set_count = sets < UINT32_MAX / CACHE_WAYS ? (uint32_t)sets : UINT32_MAX / CACHE_WAYS;
    struct engram_cache *cache = env_take(env, sizeof(*cache));
    uint8_t *at;

    if (cache == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for a cache of rows");
    cache->memory_bytes = engram_tags_bytes(set_count) + engram_judge_bytes(set_count) +
                          (size_t)set_count * CACHE_WAYS * row_bytes;
    cache->memory = env_map(env, cache->memory_bytes);
    if (cache->memory == NULL) {
        size_t size = cache->memory_bytes;

        env_put(env, cache, sizeof(*cache));
        return failure_set(KVT_E_NOMEM, 0, "no memory for a cache of %zu bytes of rows", size);
    }
    /* Here and not in a fetch: a first touch clears up to 2 MiB. */
    for (size_t i = 0; i < cache->memory_bytes; i += PAGE_BYTES)
        ((volatile uint8_t *)cache->memory)[i] = 0;
    cache->row_bytes = row_bytes;
    at = engram_tags_place(&cache->tags, set_count, cache->memory);
    cache->rows = engram_judge_init(&cache->judge, env, set_count, at);
    *cache_out = cache;
    return KVT_OK;
}

void
engram_cache_close(struct engram_cache *cache)
{
    struct kvt_env env;

    if (cache == NULL)
        return;
    env = cache->judge.env;
    env_unmap(&env, cache->memory, cache->memory_bytes);
    env_put(&env, cache, sizeof(*cache));
}

/* --- 2. Rows ---------------------------------------------------------------------------------- */

bool
engram_cache_find(struct engram_cache *cache, uint32_t row, uint8_t *row_out)
{
    struct engram_judge *judge = &cache->judge;
    uint64_t begin_ns;
    size_t at;

    if (!judge->is_on) {
        (void)engram_judge_look(judge, row);
        return false;
    }
    begin_ns = engram_judge_begin(judge, &judge->found);
    (void)engram_judge_look(judge, row);
    judge->counts.row_count++;
    at = engram_tags_find(&cache->tags, row);
    if (at != SIZE_MAX) {
        judge->counts.hit_count++;
        memcpy(row_out, cache->rows + at * cache->row_bytes, cache->row_bytes);
    }
    engram_judge_end(judge, &judge->found, begin_ns);
    return at != SIZE_MAX;
}

void
engram_cache_keep(struct engram_cache *cache, uint32_t row, const uint8_t *bytes)
{
    struct engram_judge *judge = &cache->judge;
    uint64_t begin_ns;

    if (!judge->is_on)
        return;
    begin_ns = engram_judge_begin(judge, &judge->kept);
    /* Two fetches may have read it. */
    if (engram_tags_find(&cache->tags, row) == SIZE_MAX)
        memcpy(cache->rows + engram_tags_take(&cache->tags, row, NULL) * cache->row_bytes, bytes,
            cache->row_bytes);
    engram_judge_end(judge, &judge->kept, begin_ns);
}

bool
engram_cache_judge(struct engram_cache *cache, uint64_t page_ns)
{
    struct engram_judge *judge = &cache->judge;

    if (!engram_judge_is_due(judge) || page_ns == 0)
        return false;
    engram_judge_decide(judge, page_ns * judge->window_hits / judge->window_seen, 0);
    return true;
}
