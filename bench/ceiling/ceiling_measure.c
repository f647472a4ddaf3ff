/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ceiling_measure.c - measures what a machine gives without kvtier, point by point in rounds, so
 * that a slow moment of the machine falls on all points alike.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "ceiling.h"
#include "memory_probe.h"
#include "progress.h"
#include "statistics.h"

const struct ceiling_point *
ceiling_best_read(const struct ceiling *ceiling, uint64_t piece_bytes, bool is_random)
{
    const struct ceiling_point *best = NULL;

    for (uint32_t i = 0; i < ceiling->point_count; i++) {
        const struct ceiling_point *point = &ceiling->points[i];

        if (point->piece_bytes == piece_bytes && point->is_random == is_random &&
            (best == NULL || point->bytes_per_s > best->bytes_per_s))
            best = point;
    }
    return best;
}

/* Lists the points of the plan, without rates. */
static void
points_list(struct ceiling *ceiling, const struct ceiling_plan *plan)
{
    for (uint32_t mode = plan->has_sequential ? 0 : 1; mode < 2; mode++) {
        for (uint32_t i = 0; i < plan->piece_count; i++) {
            for (uint32_t j = 0; j < plan->depth_count; j++) {
                if (ceiling->point_count == CEILING_POINT_MAX ||
                    plan->pieces[i] > DISK_BUFFER_BYTES / plan->depths[j])
                    continue;
                ceiling->points[ceiling->point_count++] = (struct ceiling_point){
                    .piece_bytes = plan->pieces[i],
                    .depth = plan->depths[j],
                    .is_random = mode == 1,
                };
            }
        }
    }
}

/* Writes the whole file once, which is the first figure, then over it again. */
static bool
writes_measure(struct disk_probe *probe, struct ceiling *ceiling, const struct ceiling_plan *plan)
{
    double rates[CEILING_ROUND_MAX];
    uint64_t position = 0;

    ceiling->write_first_bytes_per_s = disk_probe_write(probe, &position, plan->file_bytes, 3600);
    if (ceiling->write_first_bytes_per_s < 0)
        return false;
    position = 0;
    for (uint32_t i = 0; i < plan->rounds; i++) {
        if (position + DISK_BATCH_BYTES > plan->file_bytes)
            position = 0;
        rates[i] =
            disk_probe_write(probe, &position, plan->file_bytes, plan->seconds / plan->rounds);
        if (rates[i] < 0)
            return false;
    }
    ceiling->write_again_bytes_per_s = median(rates, plan->rounds);
    return true;
}

static bool
reads_measure(struct disk_probe *probe, struct ceiling *ceiling, const struct ceiling_plan *plan)
{
    static double rates[CEILING_POINT_MAX][CEILING_ROUND_MAX];
    struct progress progress;

    progress_begin(
        &progress, "ceiling", PROGRESS_COUNT, 0, (uint64_t)ceiling->point_count * plan->rounds);
    for (uint32_t round = 0; round < plan->rounds; round++) {
        for (uint32_t i = 0; i < ceiling->point_count; i++) {
            const struct disk_read_plan read = {
                .end_bytes = plan->file_bytes,
                .piece_bytes = ceiling->points[i].piece_bytes,
                .depth = ceiling->points[i].depth,
                .is_random = ceiling->points[i].is_random,
                .seconds = plan->seconds / plan->rounds,
            };

            rates[i][round] = disk_probe_read(probe, &read);
            if (rates[i][round] < 0)
                return false;
            progress_at(&progress, (uint64_t)round * ceiling->point_count + i + 1);
        }
    }
    progress_end(&progress);
    for (uint32_t i = 0; i < ceiling->point_count; i++)
        ceiling->points[i].bytes_per_s = median(rates[i], plan->rounds);
    ceiling->read_bytes_hash = XXH3_64bits(probe->buffer.bytes, probe->buffer.size);
    return true;
}

bool
ceiling_measure(struct ceiling *ceiling_out, const struct ceiling_plan *plan)
{
    struct disk_probe probe;
    bool is_fine = false;

    memset(ceiling_out, 0, sizeof(*ceiling_out));
    points_list(ceiling_out, plan);
    if (!disk_probe_create(&probe, plan->directory, plan->file_bytes)) {
        memcpy(ceiling_out->message, probe.message, sizeof(probe.message));
        return false;
    }
    ceiling_out->is_direct = probe.is_direct;
    ceiling_out->is_registered = probe.is_registered;
    is_fine = writes_measure(&probe, ceiling_out, plan) && reads_measure(&probe, ceiling_out, plan);
    if (is_fine) {
        ceiling_out->copy_bytes_per_s =
            memory_probe_copy(&probe.buffer, plan->pieces[0], plan->seconds);
        ceiling_out->hash_bytes_per_s =
            memory_probe_hash(&probe.buffer, plan->pieces[0], plan->seconds);
    }
    memcpy(ceiling_out->message, probe.message, sizeof(probe.message));
    disk_probe_close(&probe);
    return is_fine;
}
