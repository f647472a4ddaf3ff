/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_segments.c - copies on NVMe in segments that are reclaimed whole.
 *
 * States of a segment: FREE (nothing was written into it) -> the active one -> sealed (full) ->
 * reclaimed, which is FREE again.
 */
#include "sim_segments.h"

#include <stdlib.h>

#include "complain.h"

enum {
    /* As in engine/reclaim.c: percent of all (nvme_high_percent is 97), at least so many; and of
     * what is admitted the part that may be written again. */
    FREE_PERCENT = 3,
    FREE_MIN = 3,
    FREE_MIN_LARGE = 4,
    LARGE_SEGMENTS = 64,
    AGAIN_DIVISOR = 5,
};

/* A block of the segment that is reclaimed. */
struct resident {
    uint64_t importance;
    uint32_t block;
    uint32_t depth;
    uint32_t place; /* In the segment. */
};

struct segment {
    uint64_t opened; /* Its turn: a lower one has older blocks. */
    uint32_t fill;   /* Blocks written into it. 0: FREE. */
};

struct sim_segments {
    const struct chains *chains;
    struct sim_segments_user user;
    struct segment *segments;
    struct sim_lists lists; /* A list for each segment: its copies, as they were written. */
    uint32_t *last_uses;    /* By block. */
    struct resident *residents;
    uint64_t turn;
    uint64_t use_sum; /* Of the last uses of all copies. */
    uint64_t credit;  /* Blocks that may be written again, in parts of AGAIN_DIVISOR. */
    uint32_t copy_count;
    uint32_t segment_count, segment_blocks;
    uint32_t active;
    uint32_t free_count;
};

struct sim_segments *
sim_segments_create(const struct chains *chains, uint32_t segment_count, uint32_t segment_blocks,
    const struct sim_segments_user *user)
{
    struct sim_segments *made = calloc(1, sizeof(*made));

    if (made != NULL) {
        *made = (struct sim_segments){
            .chains = chains,
            .user = *user,
            .segment_count = segment_count,
            .segment_blocks = segment_blocks,
            .active = 0,
            .free_count = segment_count,
        };
        made->segments = calloc(segment_count, sizeof(*made->segments));
        made->last_uses = calloc((size_t)chains->block_count + 1, sizeof(*made->last_uses));
        made->residents = calloc(segment_blocks, sizeof(*made->residents));
        if (sim_lists_create(&made->lists, chains->block_count, segment_count) &&
            made->segments != NULL && made->last_uses != NULL && made->residents != NULL)
            return made;
    }
    complain("there is no memory for segments");
    sim_segments_destroy(made);
    return NULL;
}

void
sim_segments_destroy(struct sim_segments *segments)
{
    if (segments == NULL)
        return;
    sim_lists_destroy(&segments->lists);
    free(segments->segments);
    free(segments->last_uses);
    free(segments->residents);
    free(segments);
}

/* --- Copies ----------------------------------------------------------------------------------- */

void
sim_segments_use(struct sim_segments *segments, uint32_t block, uint32_t tick)
{
    if (sim_lists_of(&segments->lists, block) != LIST_NONE)
        segments->use_sum += tick - segments->last_uses[block];
    segments->last_uses[block] = tick;
}

uint32_t
sim_segments_last_use(const struct sim_segments *segments, uint32_t block)
{
    return segments->last_uses[block];
}

void
sim_segments_forget(struct sim_segments *segments, uint32_t block)
{
    segments->use_sum -= segments->last_uses[block];
    segments->copy_count--;
    sim_lists_remove(&segments->lists, block);
}

/* The active segment has room, or a free one follows it. */
static void
active_advance(struct sim_segments *segments)
{
    if (segments->segments[segments->active].fill == segments->segment_blocks) {
        while (segments->segments[segments->active].fill > 0)
            segments->active = (segments->active + 1) % segments->segment_count;
    }
    if (segments->segments[segments->active].fill == 0) {
        segments->free_count--;
        segments->segments[segments->active].opened = ++segments->turn;
    }
}

static void
copy_append(struct sim_segments *segments, uint32_t block)
{
    struct segment *active;

    active_advance(segments);
    active = &segments->segments[segments->active];
    active->fill++;
    segments->use_sum += segments->last_uses[block];
    segments->copy_count++;
    sim_lists_insert(&segments->lists, segments->active, block, BLOCK_NONE);
}

/* --- Reclaiming ------------------------------------------------------------------------------- */

static uint32_t
live_count(const struct sim_segments *segments, uint32_t segment)
{
    return segments->lists.lists[segment].count;
}

static bool
is_sealed(const struct sim_segments *segments, uint32_t segment)
{
    return segments->segments[segment].fill == segments->segment_blocks;
}

static bool
is_mostly_dead(const struct sim_segments *segments)
{
    uint64_t live = 0, count = 0;

    for (uint32_t i = 0; i < segments->segment_count; i++) {
        if (!is_sealed(segments, i))
            continue;
        live += live_count(segments, i);
        count++;
    }
    return live < count * segments->segment_blocks / 2;
}

static bool
goes_before(const struct sim_segments *segments, uint32_t a, uint32_t b, bool by_live)
{
    uint32_t a_live = live_count(segments, a), b_live = live_count(segments, b);

    if (by_live && a_live != b_live)
        return a_live < b_live;
    if ((a_live == 0) != (b_live == 0))
        return a_live == 0;
    return segments->segments[a].opened < segments->segments[b].opened;
}

/* There is a sealed one: few are free, and one is active. */
static uint32_t
victim_choose(const struct sim_segments *segments, bool by_live)
{
    uint32_t victim = LIST_NONE;

    for (uint32_t i = 0; i < segments->segment_count; i++) {
        if (is_sealed(segments, i) &&
            (victim == LIST_NONE || goes_before(segments, i, victim, by_live)))
            victim = i;
    }
    return victim;
}

/* The most important first, then what lies higher in its chain. */
static int
resident_compare(const void *a, const void *b)
{
    const struct resident *left = a;
    const struct resident *right = b;

    if (left->importance != right->importance)
        return left->importance > right->importance ? -1 : 1;
    if (left->depth != right->depth)
        return left->depth < right->depth ? -1 : 1;
    return (left->place > right->place) - (left->place < right->place);
}

/* How many of the victim's blocks are in segments->residents, in order. */
static uint32_t
residents_list(struct sim_segments *segments, uint32_t victim)
{
    uint32_t count = 0;

    for (uint32_t block = segments->lists.lists[victim].oldest; block != BLOCK_NONE;
         block = segments->lists.links[block].newer) {
        segments->residents[count] = (struct resident){
            .importance = segments->user.importance(segments->user.context, block),
            .block = block,
            .depth = segments->chains->depths[block],
            .place = count,
        };
        count++;
    }
    qsort(segments->residents, count, sizeof(*segments->residents), resident_compare);
    return count;
}

/* Chains go from their ends, as far as they lie in the victim and are no younger than that. */
static void
ends_drop(struct sim_segments *segments, uint32_t victim, uint32_t count, uint64_t mean)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t block = segments->residents[i].block;

        while (block != BLOCK_NONE && sim_lists_of(&segments->lists, block) == victim &&
               !segments->user.has_children(segments->user.context, block) &&
               segments->last_uses[block] <= mean) {
            segments->user.drop(segments->user.context, block);
            block = segments->chains->parents[block];
        }
    }
}

/* How many blocks of the victim may be written again. */
static uint32_t
room_for(const struct sim_segments *segments, bool keeps_all)
{
    uint64_t credit = segments->credit / AGAIN_DIVISOR;
    uint32_t half = segments->segment_blocks / 2;

    return keeps_all || credit > half ? half : (uint32_t)credit;
}

static void
segment_reclaim(struct sim_segments *segments)
{
    bool keeps_all = is_mostly_dead(segments);
    uint32_t victim = victim_choose(segments, keeps_all);
    uint32_t count = residents_list(segments, victim);
    uint32_t room = room_for(segments, keeps_all);
    uint64_t mean = segments->copy_count == 0 ? 0 : segments->use_sum / segments->copy_count;

    if (!keeps_all)
        ends_drop(segments, victim, count, mean);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t block = segments->residents[i].block;

        if (sim_lists_of(&segments->lists, block) != victim)
            continue;
        if (room == 0) {
            segments->user.drop(segments->user.context, block);
            continue;
        }
        room--;
        if (!keeps_all)
            segments->credit -= AGAIN_DIVISOR;
        sim_segments_forget(segments, block);
        copy_append(segments, block);
        segments->user.rewritten(segments->user.context, block);
    }
    segments->segments[victim].fill = 0;
    segments->free_count++;
}

void
sim_segments_write(struct sim_segments *segments, uint32_t block)
{
    uint32_t wanted = segments->segment_count * FREE_PERCENT / 100;
    uint32_t least = segments->segment_count < LARGE_SEGMENTS ? FREE_MIN : FREE_MIN_LARGE;

    while (segments->free_count < (wanted > least ? wanted : least))
        segment_reclaim(segments);
    if (segments->credit < (uint64_t)segments->segment_count * segments->segment_blocks)
        segments->credit++; /* A fifth of NVMe at most. */
    copy_append(segments, block);
}
