/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vs_ratios.c - kvtier's figures divided by those of the others, and the bars for them.
 */
#include <assert.h>
#include <string.h>

#include "vs_report.h"

/* The bars, for blocks of 64 KiB and of 1 MiB. */
static const struct {
    const char *name;
    const char *peer;
    bool is_cpu;
    double bar_64k;
    double bar_1m;
} bars[] = {
    {"get_rate_to_rocksdb", "rocksdb", false, 1.7, 2.2},
    {"get_cpu_to_rocksdb", "rocksdb", true, 0.2, 0.1},
    {"get_rate_to_sqlite", "sqlite", false, 0, 0},
    {"get_cpu_to_sqlite", "sqlite", true, 0, 0},
    {"get_rate_to_files", "files", false, 1.8, 1.3},
    {"get_cpu_to_files", "files", true, 0.2, 0.1},
    {"get_rate_to_files_cached", "files_cached", false, 1.8, 1.3},
    {"get_cpu_to_files_cached", "files_cached", true, 0.2, 0.1},
};

static_assert(sizeof(bars) / sizeof(bars[0]) <= VS_RATIO_MAX, "there is room for every ratio");

/* What kvtier is held against: of files the one with 8 threads, of the others the fastest. */
static const struct contest_point *
opponent_of(const struct contest_row *row)
{
    for (uint32_t i = 0; strncmp(row->peer->name, "files", 5) == 0 && i < row->get_count; i++) {
        if (row->gets[i].callers == 8)
            return &row->gets[i];
    }
    return contest_best(row->gets, row->get_count);
}

uint32_t
vs_ratios(const struct contest *contest, struct vs_ratio ratios_out[VS_RATIO_MAX])
{
    const struct contest_row *ours = contest_row_of(contest, "kvtier");
    uint32_t count = 0;

    for (size_t i = 0; ours != NULL && i < sizeof(bars) / sizeof(bars[0]); i++) {
        const struct contest_row *theirs = contest_row_of(contest, bars[i].peer);
        const struct contest_point *our_point = contest_best(ours->gets, ours->get_count);
        const struct contest_point *their_point = NULL;
        double value = 0;

        if (theirs == NULL)
            continue;
        their_point = opponent_of(theirs);
        if (bars[i].is_cpu && their_point->cpu_ns > 0)
            value = our_point->cpu_ns / their_point->cpu_ns;
        else if (!bars[i].is_cpu && their_point->bytes_per_s > 0)
            value = our_point->bytes_per_s / their_point->bytes_per_s;
        ratios_out[count++] = (struct vs_ratio){
            .name = bars[i].name,
            .value = value,
            .bar = contest->block_bytes == 65536     ? bars[i].bar_64k
                   : contest->block_bytes == 1048576 ? bars[i].bar_1m
                                                     : 0,
            .is_limit = bars[i].is_cpu,
        };
    }
    return count;
}

bool
vs_ratio_is_reached(const struct vs_ratio *ratio)
{
    if (ratio->bar <= 0)
        return true;
    return ratio->is_limit ? ratio->value <= ratio->bar : ratio->value >= ratio->bar;
}
