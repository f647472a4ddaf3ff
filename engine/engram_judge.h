/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_judge.h - whether keeping rows of a table pays: what a cache would find, what it takes.
 *
 * Owns      a sample of what a cache of its size would have, and the times of the owner's calls.
 * Sample    One row of 16, by a hash of its number, is also looked for in a shadow: numbers only,
 *           in so many sets as its share is. So the rate of hits is known while nothing is kept.
 *           After each window of rows it is judged: what the hits save, as the owner says, against
 *           what looking up and keeping a row takes. Rows are kept from the window on in which that
 *           pays twice over, and no more after one in which it does not pay. What it took then is
 *           believed less with each window, so that it is tried again.
 * Threads   serial.
 */
#ifndef KVT_ENGINE_ENGRAM_JUDGE_H
#define KVT_ENGINE_ENGRAM_JUDGE_H

#include <stdbool.h>

#include "engram_tags.h"
#include "env.h"

enum {
    CACHE_SAMPLE_SHIFT = 4,   /* One row of 16. */
    CACHE_WINDOW_ROWS = 8192, /* That were looked for, between two judgements. */
    CACHE_COST_NS_MIN = 100,  /* For a row; until it was measured 300. */
    CACHE_COST_NS = 300,
    CACHE_TIMED_EVERY = 64, /* Rows: the clock costs as much as a row. */
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

struct engram_judge {
    struct kvt_env env;
    struct engram_tags shadow;
    bool is_on;
    struct cache_counts counts;                     /* row_count and hit_count are the owner's. */
    uint64_t window_rows, window_seen, window_hits; /* Since the last judgement. */
    uint64_t worth_ns, cost_ns;                     /* Of a row, as last judged. */
    struct cache_meter found, kept;
};

/* engram_judge_bytes - the memory that the judge of a cache of so many sets needs.
 * engram_judge_init: it is there, all zero; what follows it. */
size_t engram_judge_bytes(uint32_t set_count);
uint8_t *engram_judge_init(
    struct engram_judge *judge, const struct kvt_env *env, uint32_t set_count, uint8_t *memory);

/* engram_judge_look - a row is looked for. True: it is one of the sample, and would be found. */
bool engram_judge_look(struct engram_judge *judge, uint32_t row);
/* engram_judge_pass - a row that another cache had: what this one would have takes note of it. */
void engram_judge_pass(struct engram_judge *judge, uint32_t row);
/* engram_judge_would_find - a row of the sample, at this moment. */
bool engram_judge_would_find(const struct engram_judge *judge, uint32_t row);

/* engram_judge_begin - of a call that is timed the time; else 0, which engram_judge_end() takes. */
uint64_t engram_judge_begin(const struct engram_judge *judge, struct cache_meter *meter);
void engram_judge_end(
    const struct engram_judge *judge, struct cache_meter *meter, uint64_t begin_ns);

/* engram_judge_is_due - whether a window is over: then engram_judge_decide(). */
bool engram_judge_is_due(const struct engram_judge *judge);
/* engram_judge_decide - `worth_ns`: what a row that was looked for saved, or would have;
 * `more_ns`: what it took beside the calls that were timed. */
void engram_judge_decide(struct engram_judge *judge, uint64_t worth_ns, uint64_t more_ns);

#endif /* KVT_ENGINE_ENGRAM_JUDGE_H */
