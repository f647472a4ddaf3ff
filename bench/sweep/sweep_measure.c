/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sweep_measure.c - measures one block size through a store and, in turns with it, the machine
 * without one: on the same file system, and for reads in the same file.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench_store.h"
#include "ceiling.h"
#include "complain.h"
#include "disk_probe.h"
#include "memory_probe.h"
#include "statistics.h"
#include "sweep.h"

enum {
    CHOICE_MAX = 65536, /* Blocks that reads choose from. */
    LOOKUP_COUNT = 500,
    FIRST_SLICE_BYTES = 256 << 20,
    HOST_BYTES = 512 << 20,
};

/* Everything that is open while one block size is measured. */
struct sweep_run {
    const struct sweep_plan *plan;
    struct sweep_row *row;
    struct bench_store *bench;
    struct disk_probe probe; /* The raw file to write, later the store's own data file to read. */
    bool has_probe;
    struct bench_choice choice;
};

static bool
probe_complain(const struct sweep_run *run)
{
    complain("the raw measurement failed: %s", run->probe.message);
    return false;
}

/* Fills both, in turns, into space that was allocated and never written. */
static bool
first_measure(struct sweep_run *run)
{
    double ours[64];
    double raw[64];
    uint32_t count = 0;
    uint64_t position = 0;
    uint64_t end = run->plan->store_bytes / 100 * 80; /* Below the mark where reclaiming starts. */

    for (; count < 64 && position + FIRST_SLICE_BYTES <= end; count++) {
        ours[count] = bench_store_put(run->bench, FIRST_SLICE_BYTES, 3600);
        if (ours[count] < 0)
            return false;
        raw[count] = disk_probe_write(&run->probe, &position, position + FIRST_SLICE_BYTES, 3600);
        if (raw[count] < 0)
            return probe_complain(run);
    }
    run->row->put_first.ours_bytes_per_s = median(ours, count);
    run->row->put_first.raw_bytes_per_s = median(raw, count);
    return true;
}

/* Brings both into the state where every write goes over written space, then measures in turns. */
static bool
again_measure(struct sweep_run *run)
{
    double ours[SWEEP_ROUND_COUNT];
    double raw[SWEEP_ROUND_COUNT];
    double slice = run->plan->seconds / SWEEP_ROUND_COUNT;
    uint64_t position = run->plan->store_bytes / 100 * 80 / FIRST_SLICE_BYTES * FIRST_SLICE_BYTES;

    if (bench_store_put(run->bench, run->plan->store_bytes / 100 * 40, 3600) < 0)
        return false;
    if (disk_probe_write(&run->probe, &position, run->plan->store_bytes, 3600) < 0)
        return probe_complain(run);
    position = 0;
    for (uint32_t i = 0; i < SWEEP_ROUND_COUNT; i++) {
        ours[i] = bench_store_put(run->bench, UINT64_MAX, slice);
        if (ours[i] < 0)
            return false;
        if (position + DISK_BATCH_BYTES > run->plan->store_bytes)
            position = 0;
        raw[i] = disk_probe_write(&run->probe, &position, run->plan->store_bytes, slice);
        if (raw[i] < 0)
            return probe_complain(run);
    }
    run->row->put_again.ours_bytes_per_s = median(ours, SWEEP_ROUND_COUNT);
    run->row->put_again.raw_bytes_per_s = median(raw, SWEEP_ROUND_COUNT);
    return true;
}

static bool
writes_measure(struct sweep_run *run)
{
    bool is_fine = false;

    run->has_probe = disk_probe_create(&run->probe, run->plan->directory, run->plan->store_bytes);
    if (!run->has_probe)
        return probe_complain(run);
    is_fine = first_measure(run) && again_measure(run);
    disk_probe_close(&run->probe);
    run->has_probe = false;
    return is_fine;
}

/* A depth whose blocks fit the buffers. */
static uint32_t
depth_at(const struct sweep_run *run, uint32_t index)
{
    uint64_t depth = run->plan->depths[index];
    uint64_t room = BENCH_POOL_BYTES / run->bench->stride_bytes;

    if (depth > room)
        depth = room;
    if (depth > DISK_DEPTH_MAX)
        depth = DISK_DEPTH_MAX;
    return (uint32_t)depth;
}

/* One round of one depth: the store, then the same file without it. */
static bool
read_pair(struct sweep_run *run, uint32_t depth, double rates_out[2])
{
    struct stat facts;
    double slice = run->plan->seconds / SWEEP_ROUND_COUNT;
    struct disk_read_plan plan = {
        .piece_bytes = run->bench->stride_bytes,
        .depth = depth,
        .is_random = true,
        .seconds = slice,
        .offsets = run->choice.offsets,
        .offset_count = run->choice.count,
    };

    if (fstat(run->probe.fd, &facts) != 0)
        return probe_complain(run);
    plan.end_bytes = (uint64_t)facts.st_size;
    rates_out[0] = bench_store_read(run->bench, &run->choice, depth, slice);
    if (rates_out[0] < 0)
        return false;
    rates_out[1] = disk_probe_read(&run->probe, &plan);
    return rates_out[1] >= 0 || probe_complain(run);
}

static void
read_best(struct sweep_run *run)
{
    struct sweep_row *row = run->row;

    for (uint32_t i = 0; i < run->plan->depth_count; i++) {
        if (row->reads[i].ours_bytes_per_s > row->read_best.ours_bytes_per_s) {
            row->read_best.ours_bytes_per_s = row->reads[i].ours_bytes_per_s;
            row->ours_best_depth = depth_at(run, i);
        }
        if (row->reads[i].raw_bytes_per_s > row->read_best.raw_bytes_per_s) {
            row->read_best.raw_bytes_per_s = row->reads[i].raw_bytes_per_s;
            row->raw_best_depth = depth_at(run, i);
        }
    }
}

static bool
nvme_measure(struct sweep_run *run)
{
    double ours[SWEEP_DEPTH_MAX][SWEEP_ROUND_COUNT];
    double raw[SWEEP_DEPTH_MAX][SWEEP_ROUND_COUNT];

    if (!bench_store_settle(run->bench) ||
        !bench_store_resident(run->bench, KVT_TIER_NVME, &run->choice))
        return false;
    for (uint32_t round = 0; round < SWEEP_ROUND_COUNT; round++) {
        for (uint32_t i = 0; i < run->plan->depth_count; i++) {
            double rates[2];

            if (!read_pair(run, depth_at(run, i), rates))
                return false;
            ours[i][round] = rates[0];
            raw[i][round] = rates[1];
        }
    }
    for (uint32_t i = 0; i < run->plan->depth_count; i++) {
        run->row->reads[i].ours_bytes_per_s = median(ours[i], SWEEP_ROUND_COUNT);
        run->row->reads[i].raw_bytes_per_s = median(raw[i], SWEEP_ROUND_COUNT);
    }
    read_best(run);
    return true;
}

static bool
reads_measure(struct sweep_run *run)
{
    char path[4096];
    bool is_fine = false;

    if (snprintf(path, sizeof(path), "%s/data/data.00", run->bench->path) >= (int)sizeof(path)) {
        complain("%s is too long", run->bench->path);
        return false;
    }
    run->has_probe = disk_probe_open(&run->probe, path);
    if (!run->has_probe)
        return probe_complain(run);
    is_fine = nvme_measure(run);
    disk_probe_close(&run->probe);
    run->has_probe = false;
    return is_fine;
}

/* Blocks in pinned memory against memcpy of pieces of the same size. */
static bool
host_measure(struct sweep_run *run)
{
    double ours[SWEEP_ROUND_COUNT];
    double raw[SWEEP_ROUND_COUNT];
    double slice = run->plan->seconds / SWEEP_ROUND_COUNT;
    uint64_t depth = BENCH_POOL_BYTES / run->bench->stride_bytes;

    if (!bench_store_resident(run->bench, KVT_TIER_HOST, &run->choice))
        return false;
    if (depth > 32)
        depth = 32;
    for (uint32_t i = 0; i < SWEEP_ROUND_COUNT; i++) {
        ours[i] = bench_store_read(run->bench, &run->choice, (uint32_t)depth, slice);
        if (ours[i] < 0)
            return false;
        raw[i] = memory_probe_copy(&run->bench->targets, run->bench->stride_bytes, slice);
    }
    run->row->host_get.ours_bytes_per_s = median(ours, SWEEP_ROUND_COUNT);
    run->row->host_get.raw_bytes_per_s = median(raw, SWEEP_ROUND_COUNT);
    return true;
}

static bool
lookups_measure(struct sweep_run *run)
{
    uint64_t times[LOOKUP_COUNT];
    uint32_t found = 0;

    for (uint32_t i = 0; i < LOOKUP_COUNT; i++) {
        times[i] = bench_store_lookup(run->bench, &found);
        if (times[i] == 0)
            return false;
    }
    run->row->lookup_p50_ns = number_percentile(times, LOOKUP_COUNT, 0.50);
    run->row->lookup_p99_ns = number_percentile(times, LOOKUP_COUNT, 0.99);
    return true;
}

static bool
run_all(struct sweep_run *run)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};

    if (!bench_store_new(run->bench) || !writes_measure(run) || !reads_measure(run) ||
        !host_measure(run) || !lookups_measure(run))
        return false;
    if (kvt_stats_get(run->bench->store, &stats) != KVT_OK)
        return false;
    run->row->get_p50_ns = stats.get_nvme_ns.p50_ns;
    run->row->get_p99_ns = stats.get_nvme_ns.p99_ns;
    run->row->wrong_bytes = run->bench->wrong_bytes;
    run->row->miss_count = run->bench->miss_count;
    return true;
}

bool
sweep_measure(const struct sweep_plan *plan, uint64_t block_bytes, struct sweep_row *row_out)
{
    char path[4096];
    struct sweep_run run = {.plan = plan, .row = row_out};
    bool is_fine = false;

    memset(row_out, 0, sizeof(*row_out));
    row_out->block_bytes = block_bytes;
    if (snprintf(path, sizeof(path), "%s/sweep-store", plan->directory) >= (int)sizeof(path)) {
        complain("%s is too long", plan->directory);
        return false;
    }
    run.bench = calloc(1, sizeof(*run.bench));
    if (run.bench == NULL) {
        complain("there is no memory");
        return false;
    }
    if (bench_choice_create(&run.choice, CHOICE_MAX)) {
        run.bench->path = path;
        run.bench->block_bytes = block_bytes;
        run.bench->host_bytes = HOST_BYTES;
        run.bench->nvme_bytes = plan->store_bytes;
        run.bench->segment_bytes = plan->segment_bytes;
        is_fine = run_all(&run);
        bench_store_end(run.bench);
        bench_choice_destroy(&run.choice);
    }
    free(run.bench);
    return is_fine;
}
