/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_segments.h - NVMe of a simulated store as the engine has it: copies are appended to segments,
 * and segments are reclaimed whole.
 *
 * Owns      which segment each copy on NVMe is in, and the order of segments and of the blocks of
 *           one, as engine/victim.h has them: the segment that was filled longest ago goes first.
 *           Its blocks go from the ends of their chains, as long as they were not used later than
 *           the average block on NVMe; the others are written again, half a segment and a fifth of
 *           what was admitted at most: the least important of them go. When less than half of
 *           everything is alive, nothing is lost: the segment with the least alive goes, up to half
 *           of it moves.
 */
#ifndef BENCH_SIM_SEGMENTS_H
#define BENCH_SIM_SEGMENTS_H

#include "sim_lists.h"

/* Whoever has the blocks. */
struct sim_segments_user {
    void *context;
    bool (*has_children)(void *context, uint32_t block);
    uint64_t (*importance)(void *context, uint32_t block);
    void (*drop)(void *context, uint32_t block);      /* Not written again: sim_segments_forget. */
    void (*rewritten)(void *context, uint32_t block); /* It was written once more. */
};

struct sim_segments;

/* sim_segments_create - all free. NULL: complained. */
struct sim_segments *sim_segments_create(const struct chains *chains, uint32_t segment_count,
    uint32_t segment_blocks, const struct sim_segments_user *user);
void sim_segments_destroy(struct sim_segments *segments); /* NULL is fine. */

/* sim_segments_write - a copy comes. Reclaims when room is short. */
void sim_segments_write(struct sim_segments *segments, uint32_t block);

/* sim_segments_forget - a copy is there no more; its room is free when its segment is. */
void sim_segments_forget(struct sim_segments *segments, uint32_t block);

/* sim_segments_use - the block was used at that time, in the store or not. */
void sim_segments_use(struct sim_segments *segments, uint32_t block, uint32_t tick);

/* sim_segments_last_use - when that was. */
uint32_t sim_segments_last_use(const struct sim_segments *segments, uint32_t block);

#endif /* BENCH_SIM_SEGMENTS_H */
