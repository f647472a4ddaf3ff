/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raw_reads.c - what the disk gives of a file without anything in between.
 */
#include "raw_reads.h"

#include "complain.h"
#include "disk_probe.h"
#include "progress.h"
#include "usage.h"

uint32_t
raw_depth(uint64_t piece_bytes, uint32_t index)
{
    uint64_t depth = ((UINT64_C(2) << 20) << index) / piece_bytes;

    if (depth < UINT64_C(1) << index)
        depth = UINT64_C(1) << index;
    if (depth * piece_bytes > DISK_BUFFER_BYTES)
        depth = DISK_BUFFER_BYTES / piece_bytes;
    return (uint32_t)(depth < DISK_DEPTH_MAX ? depth : DISK_DEPTH_MAX);
}

/* The rate of one depth. Where the file has space that was never written, reads of it cost nothing:
 * what counts is what the kernel had from storage, if it says so. */
static double
depth_measure(struct disk_probe *probe, const struct disk_read_plan *plan)
{
    struct usage before;
    struct usage after;
    bool is_accounted = usage_now(&before);
    double start = clock_seconds();
    double rate = disk_probe_read(probe, plan);
    double elapsed = clock_seconds() - start;

    usage_now(&after);
    if (rate < 0 || !is_accounted)
        return rate;
    return (double)(after.read_bytes - before.read_bytes) / elapsed;
}

bool
raw_reads(const char *path, uint64_t piece_bytes, uint64_t end_bytes, double seconds,
    double rates_out[RAW_DEPTHS])
{
    struct disk_probe probe;
    bool is_fine = disk_probe_open(&probe, path);

    for (uint32_t i = 0; is_fine && i < RAW_DEPTHS; i++) {
        struct disk_read_plan plan = {
            .piece_bytes = piece_bytes,
            .depth = raw_depth(piece_bytes, i),
            .is_random = true,
            .seconds = seconds,
            .end_bytes = end_bytes,
        };

        rates_out[i] = depth_measure(&probe, &plan);
        is_fine = rates_out[i] >= 0;
    }
    if (!is_fine)
        complain("the raw reads failed: %s", probe.message);
    disk_probe_close(&probe);
    return is_fine;
}
