/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_cache.h - the rows of one table that fetches brought from its file, while memory lasts.
 *
 * Owns      memory for rows, their numbers, and a sample of what a cache of this size would have.
 * How       Sets of eight rows; of a set the next goes that was not asked for since the hand passed
 *           it. A row that comes is the first to go: rows that are asked for once pass through.
 * Sample    One row of 16, by a hash of its number, is also looked for in a shadow: numbers only,
 *           in so many sets as its share is. So the rate of hits is known while nothing is kept.
 *           After each window of rows it is judged: the hit rate times what a page's read takes,
 *           against what looking up and keeping a row takes. Rows are kept from the window on in
 *           which that pays twice over, and no more after one in which it does not pay. What it
 *           took then is believed less with each window, so that it is tried again.
 * Threads   serial: the reader's actor, from the moment that the table has it.
 */
#ifndef KVT_ENGINE_ENGRAM_CACHE_H
#define KVT_ENGINE_ENGRAM_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "env.h"

enum {
    CACHE_WAYS = 8,
    CACHE_SAMPLE_SHIFT = 4,      /* One row of 16. */
    CACHE_WINDOW_ROWS = 8192,    /* That were looked for, between two judgements. */
    CACHE_BYTES_MIN = 256 << 10, /* Less is no sample. */
    CACHE_COST_NS_MIN = 100,     /* For a row; until it was measured 300. */
    CACHE_COST_NS = 300,
    CACHE_TIMED_EVERY = 64, /* Rows: the clock costs as much as a row. */
};

/* Numbers of rows, by sets; where the rows are is the owner's. */
struct cache_tags {
    uint32_t *rows;   /* CACHE_WAYS a set; row + 1, 0: nothing. */
    uint8_t *is_used; /* Asked for since the hand passed. */
    uint8_t *hands;   /* A set's. */
    uint32_t set_count;
};

/* What it counts; the owner takes the sums. */
struct cache_counts {
    uint64_t row_count;  /* Looked for. */
    uint64_t hit_count;  /* Found. */
    uint64_t seen_count; /* Of the sample. */
    uint64_t seen_hit_count;
};

/* What one kind of call takes: one of CACHE_TIMED_EVERY is timed. */
struct cache_meter {
    uint64_t call_count; /* Since the last judgement, as what follows. */
    uint64_t timed_count;
    uint64_t timed_ns;
};

struct engram_cache {
    struct kvt_env env;
    struct cache_tags tags, shadow;
    uint8_t *memory; /* Of the rows, and everything. */
    size_t memory_bytes;
    uint8_t *rows;
    uint32_t row_bytes;
    bool is_on;
    struct cache_counts counts;
    uint64_t window_rows, window_seen, window_hits; /* Since the last judgement. */
    uint64_t worth_ns, cost_ns;                     /* Of a row, as last judged. */
    struct cache_meter found, kept;
};

/* engram_cache_open - within `capacity_bytes`, all of which are taken now. KVT_E_NOMEM. */
enum kvt_status engram_cache_open(const struct kvt_env *env, uint64_t capacity_bytes,
    uint32_t row_bytes, struct engram_cache **cache_out);
void engram_cache_close(struct engram_cache *cache); /* NULL is fine. */

/* engram_cache_find - the row's bytes to `row_out`; false: it is not kept. */
bool engram_cache_find(struct engram_cache *cache, uint32_t row, uint8_t *row_out);
/* engram_cache_keep - bytes of a row that engram_cache_find() did not find. */
void engram_cache_keep(struct engram_cache *cache, uint32_t row, const uint8_t *bytes);

/* engram_cache_judge - after rows were looked for; `page_ns`: what a page's read takes, 0: nobody
 * knows. False: it is too early. */
bool engram_cache_judge(struct engram_cache *cache, uint64_t page_ns);

#endif /* KVT_ENGINE_ENGRAM_CACHE_H */
