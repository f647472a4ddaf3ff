/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_cache.h - the rows of one table that fetches brought from its file, in host memory, while
 * that lasts.
 *
 * Owns      memory for rows, their numbers (engram_tags.h), and what says whether keeping them pays
 *           (engram_judge.h): a hit saves the read of a page.
 * Threads   serial: the reader's actor, from the moment that the table has it.
 */
#ifndef KVT_ENGINE_ENGRAM_CACHE_H
#define KVT_ENGINE_ENGRAM_CACHE_H

#include "engram_judge.h"

enum {
    CACHE_BYTES_MIN = 256 << 10, /* Less is no sample. */
};

struct engram_cache {
    struct engram_tags tags;
    struct engram_judge judge;
    uint8_t *memory; /* Of the rows, and everything. */
    size_t memory_bytes;
    uint8_t *rows;
    uint32_t row_bytes;
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
