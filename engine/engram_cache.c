/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_cache.c - see engram_cache.h.
 */
#include "engram_cache.h"

#include <string.h>

#include "bytes.h"
#include "failure.h"

/* --- 1. Numbers of rows ----------------------------------------------------------------------- */

static inline uint64_t
row_hash(uint32_t row)
{
    uint64_t hash = row * UINT64_C(0x9E3779B97F4A7C15);

    return hash ^ hash >> 29;
}

/* Where the row is, or SIZE_MAX. */
static size_t
tags_find(struct cache_tags *tags, uint32_t row)
{
    size_t first = (size_t)((row_hash(row) >> 32) % tags->set_count) * CACHE_WAYS;

    for (size_t i = first; i < first + CACHE_WAYS; i++) {
        if (tags->rows[i] == row + 1) {
            tags->is_used[i] = 1;
            return i;
        }
    }
    return SIZE_MAX;
}

/* A place for a row that is not there. */
static size_t
tags_take(struct cache_tags *tags, uint32_t row)
{
    size_t set = (size_t)((row_hash(row) >> 32) % tags->set_count);
    size_t at = set * CACHE_WAYS + tags->hands[set];

    /* Each that the hand passes has one life less: it ends within a round and one. */
    while (tags->is_used[at] != 0) {
        tags->is_used[at] = 0;
        tags->hands[set] = (uint8_t)((tags->hands[set] + 1) % CACHE_WAYS);
        at = set * CACHE_WAYS + tags->hands[set];
    }
    tags->hands[set] = (uint8_t)((tags->hands[set] + 1) % CACHE_WAYS);
    tags->rows[at] = row + 1;
    return at;
}

/* --- 2. Opening ------------------------------------------------------------------------------- */

static size_t
tags_bytes(uint32_t set_count)
{
    return (size_t)round_up(
        (uint64_t)set_count * (CACHE_WAYS * (sizeof(uint32_t) + sizeof(uint8_t)) + 1), 64);
}

static uint8_t *
tags_place(struct cache_tags *tags, uint32_t set_count, uint8_t *memory)
{
    size_t ways = (size_t)set_count * CACHE_WAYS;

    tags->set_count = set_count;
    tags->rows = (uint32_t *)(void *)memory;
    tags->is_used = memory + ways * sizeof(uint32_t);
    tags->hands = tags->is_used + ways;
    return memory + tags_bytes(set_count);
}

enum kvt_status
engram_cache_open(const struct kvt_env *env, uint64_t capacity_bytes, uint32_t row_bytes,
    struct engram_cache **cache_out)
{
    /* 6 bytes a row for its number and its mark, and a sixteenth of that for the sample. */
    uint64_t set_bytes = CACHE_WAYS * ((uint64_t)row_bytes + 6);
    uint64_t sets = capacity_bytes / set_bytes;
    uint32_t set_count = sets < UINT32_MAX / CACHE_WAYS ? (uint32_t)sets : UINT32_MAX / CACHE_WAYS;
    uint32_t shadow_count = (set_count >> CACHE_SAMPLE_SHIFT) + 1;
    struct engram_cache *cache = env_take(env, sizeof(*cache));
    uint8_t *at;

    if (cache == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for a cache of rows");
    cache->memory_bytes = tags_bytes(set_count) + tags_bytes(shadow_count) +
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
    cache->env = *env;
    cache->row_bytes = row_bytes;
    cache->cost_ns = CACHE_COST_NS;
    at = tags_place(&cache->tags, set_count, cache->memory);
    cache->rows = tags_place(&cache->shadow, shadow_count, at);
    *cache_out = cache;
    return KVT_OK;
}

void
engram_cache_close(struct engram_cache *cache)
{
    struct kvt_env env;

    if (cache == NULL)
        return;
    env = cache->env;
    env_unmap(&env, cache->memory, cache->memory_bytes);
    env_put(&env, cache, sizeof(*cache));
}

/* --- 3. Rows ---------------------------------------------------------------------------------- */

/* What a cache of this size would have had. */
static void
shadow_look(struct engram_cache *cache, uint32_t row)
{
    if ((row_hash(row) & ((1u << CACHE_SAMPLE_SHIFT) - 1)) != 0)
        return;
    cache->counts.seen_count++;
    cache->window_seen++;
    if (tags_find(&cache->shadow, row) != SIZE_MAX) {
        cache->counts.seen_hit_count++;
        cache->window_hits++;
    } else {
        (void)tags_take(&cache->shadow, row);
    }
}

/* Of a call that is timed the time; else 0. */
static uint64_t
meter_begin(const struct engram_cache *cache, struct cache_meter *meter)
{
    return meter->call_count++ % CACHE_TIMED_EVERY == 0 ? env_now(&cache->env) : 0;
}

static void
meter_end(const struct engram_cache *cache, struct cache_meter *meter, uint64_t begin_ns)
{
    if (begin_ns == 0)
        return;
    meter->timed_count++;
    meter->timed_ns += env_now(&cache->env) - begin_ns;
}

/* Of all its calls, as if each had taken what the timed ones did. */
static uint64_t
meter_ns(const struct cache_meter *meter)
{
    return meter->timed_count == 0 ? 0 : meter->timed_ns * meter->call_count / meter->timed_count;
}

bool
engram_cache_find(struct engram_cache *cache, uint32_t row, uint8_t *row_out)
{
    uint64_t begin_ns;
    size_t at;

    cache->window_rows++;
    if (!cache->is_on) {
        shadow_look(cache, row);
        return false;
    }
    begin_ns = meter_begin(cache, &cache->found);
    shadow_look(cache, row);
    cache->counts.row_count++;
    at = tags_find(&cache->tags, row);
    if (at != SIZE_MAX) {
        cache->counts.hit_count++;
        memcpy(row_out, cache->rows + at * cache->row_bytes, cache->row_bytes);
    }
    meter_end(cache, &cache->found, begin_ns);
    return at != SIZE_MAX;
}

void
engram_cache_keep(struct engram_cache *cache, uint32_t row, const uint8_t *bytes)
{
    uint64_t begin_ns;

    if (!cache->is_on)
        return;
    begin_ns = meter_begin(cache, &cache->kept);
    /* Two fetches may have read it. */
    if (tags_find(&cache->tags, row) == SIZE_MAX)
        memcpy(
            cache->rows + tags_take(&cache->tags, row) * cache->row_bytes, bytes, cache->row_bytes);
    meter_end(cache, &cache->kept, begin_ns);
}

bool
engram_cache_judge(struct engram_cache *cache, uint64_t page_ns)
{
    if (cache->window_rows < CACHE_WINDOW_ROWS || cache->window_seen == 0 || page_ns == 0)
        return false;
    if (cache->is_on) {
        cache->cost_ns = (meter_ns(&cache->found) + meter_ns(&cache->kept)) / cache->window_rows;
        if (cache->cost_ns < CACHE_COST_NS_MIN)
            cache->cost_ns = CACHE_COST_NS_MIN;
    } else if (cache->cost_ns > CACHE_COST_NS) {
        /* It may have been a bad moment: some time it is tried again. */
        cache->cost_ns -= (cache->cost_ns - CACHE_COST_NS + 7) / 8;
    }
    cache->worth_ns = page_ns * cache->window_hits / cache->window_seen;
    cache->is_on = cache->worth_ns > (cache->is_on ? cache->cost_ns : 2 * cache->cost_ns);
    cache->window_rows = cache->window_seen = cache->window_hits = 0;
    memset(&cache->found, 0, sizeof(cache->found));
    memset(&cache->kept, 0, sizeof(cache->kept));
    return true;
}
