/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_judge.c - see engram_judge.h.
 */
#include "engram_judge.h"

#include <string.h>

static uint32_t
shadow_sets(uint32_t set_count)
{
    return (set_count >> CACHE_SAMPLE_SHIFT) + 1;
}

size_t
engram_judge_bytes(uint32_t set_count)
{
    return engram_tags_bytes(shadow_sets(set_count));
}

uint8_t *
engram_judge_init(
    struct engram_judge *judge, const struct kvt_env *env, uint32_t set_count, uint8_t *memory)
{
    judge->env = *env;
    judge->cost_ns = CACHE_COST_NS;
    return engram_tags_place(&judge->shadow, shadow_sets(set_count), memory);
}

/* --- 1. The sample ---------------------------------------------------------------------------- */

static bool
is_of_sample(uint32_t row)
{
    return (engram_tags_hash(row) & ((1u << CACHE_SAMPLE_SHIFT) - 1)) == 0;
}

/* What a cache of this size would have had. */
static bool
shadow_look(struct engram_judge *judge, uint32_t row)
{
    if (engram_tags_find(&judge->shadow, row) != SIZE_MAX)
        return true;
    (void)engram_tags_take(&judge->shadow, row, NULL);
    return false;
}

bool
engram_judge_look(struct engram_judge *judge, uint32_t row)
{
    judge->window_rows++;
    if (!is_of_sample(row))
        return false;
    judge->counts.seen_count++;
    judge->window_seen++;
    if (!shadow_look(judge, row))
        return false;
    judge->counts.seen_hit_count++;
    judge->window_hits++;
    return true;
}

void
engram_judge_pass(struct engram_judge *judge, uint32_t row)
{
    if (is_of_sample(row))
        (void)shadow_look(judge, row);
}

bool
engram_judge_would_find(const struct engram_judge *judge, uint32_t row)
{
    return engram_tags_look(&judge->shadow, row) != SIZE_MAX;
}

/* --- 2. Times --------------------------------------------------------------------------------- */

uint64_t
engram_judge_begin(const struct engram_judge *judge, struct cache_meter *meter)
{
    return meter->call_count++ % CACHE_TIMED_EVERY == 0 ? env_now(&judge->env) : 0;
}

void
engram_judge_end(const struct engram_judge *judge, struct cache_meter *meter, uint64_t begin_ns)
{
    if (begin_ns == 0)
        return;
    meter->timed_count++;
    meter->timed_ns += env_now(&judge->env) - begin_ns;
}

/* Of all its calls, as if each had taken what the timed ones did. */
static uint64_t
meter_ns(const struct cache_meter *meter)
{
    return meter->timed_count == 0 ? 0 : meter->timed_ns * meter->call_count / meter->timed_count;
}

/* --- 3. Judging ------------------------------------------------------------------------------- */

bool
engram_judge_is_due(const struct engram_judge *judge)
{
    return judge->window_rows >= CACHE_WINDOW_ROWS && judge->window_seen > 0;
}

void
engram_judge_decide(struct engram_judge *judge, uint64_t worth_ns, uint64_t more_ns)
{
    if (judge->is_on) {
        judge->cost_ns =
            (meter_ns(&judge->found) + meter_ns(&judge->kept)) / judge->window_rows + more_ns;
        if (judge->cost_ns < CACHE_COST_NS_MIN)
            judge->cost_ns = CACHE_COST_NS_MIN;
    } else if (judge->cost_ns > CACHE_COST_NS) {
        /* It may have been a bad moment: some time it is tried again. */
        judge->cost_ns -= (judge->cost_ns - CACHE_COST_NS + 7) / 8;
    }
    judge->worth_ns = worth_ns;
    judge->is_on = worth_ns > (judge->is_on ? judge->cost_ns : 2 * judge->cost_ns);
    judge->window_rows = judge->window_seen = judge->window_hits = 0;
    memset(&judge->found, 0, sizeof(judge->found));
    memset(&judge->kept, 0, sizeof(judge->kept));
}
