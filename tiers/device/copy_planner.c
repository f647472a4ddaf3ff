/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_planner.c - kernel or copy engine, how wide a kernel, and how long a chunk.
 */
#include "copy_planner.h"

#include <string.h>

#include "bytes.h"

enum {
    KIB = 1024,
    LANES = 32, /* Threads of a warp. */
};

/* As device_cuda_measure.c finds them on an H200 behind PCIe 5 x16. */
static const uint64_t BELOW_BYTES_IN = 64 * KIB;
static const uint64_t BELOW_BYTES_OUT = 48 * KIB;

/* Within the device the kernel moves 260 GB/s with 8 blocks, and an engine begins a run every
 * 4.7 us, however long it is. That is not measured anew: neither has to do with the bus. */
static const uint64_t BELOW_BYTES_WITHIN = 1024 * KIB;

void
copy_planner_init(struct copy_planner *planner)
{
    memset(planner, 0, sizeof(*planner));
    planner->kernel_below_bytes[COPY_IN] = BELOW_BYTES_IN;
    planner->kernel_below_bytes[COPY_OUT] = BELOW_BYTES_OUT;
    planner->kernel_below_bytes[COPY_WITHIN] = BELOW_BYTES_WITHIN;
}

void
copy_planner_set(struct copy_planner *planner, const struct device_plan *plan)
{
    bool is_any = false;

    memset(planner, 0, sizeof(*planner));
    for (uint32_t i = 0; i < DEVICE_LANE_COUNT; i++) {
        planner->kernel_below_bytes[i] = plan->kernel_below_bytes[i];
        is_any = is_any || plan->kernel_below_bytes[i] > 0;
    }
    planner->kernel_below_bytes[COPY_WITHIN] = is_any ? BELOW_BYTES_WITHIN : 0;
    planner->is_measured = plan->is_measured;
}

void
copy_planner_get(const struct copy_planner *planner, struct device_plan *plan_out)
{
    for (uint32_t i = 0; i < DEVICE_LANE_COUNT; i++)
        plan_out->kernel_below_bytes[i] = planner->kernel_below_bytes[i];
    plan_out->is_measured = planner->is_measured;
}

static uint64_t
later(uint64_t until_ns, uint64_t now_ns, uint64_t bytes)
{
    return (until_ns > now_ns ? until_ns : now_ns) + bytes / COPY_BYTES_PER_NS;
}

void
copy_planner_decide(struct copy_planner *planner, const struct copy_sum *sums, uint64_t now_ns,
    struct copy_plan *plan)
{
    bool is_narrow = planner->busy_until_ns[COPY_IN] > now_ns;
    uint64_t kernel_bytes = 0;
    uint64_t cut_bytes;

    for (uint32_t i = 0; i < COPY_WAY_COUNT; i++) {
        plan->kernel_below_bytes[i] = 0;
        if (sums[i].short_count >= COPY_KERNEL_RUNS_MIN) {
            plan->kernel_below_bytes[i] = planner->kernel_below_bytes[i];
            kernel_bytes += sums[i].short_bytes;
        }
        /* What goes out, and nothing else. */
        is_narrow = is_narrow && (i == COPY_OUT || plan->kernel_below_bytes[i] == 0);
        planner->busy_until_ns[i] =
            later(planner->busy_until_ns[i], now_ns, sums[i].short_bytes + sums[i].long_bytes);
    }
    plan->block_count = is_narrow ? COPY_NARROW_BLOCKS : COPY_WIDE_BLOCKS;
    plan->thread_count = is_narrow ? COPY_NARROW_THREADS : COPY_WIDE_THREADS;
    /* A chunk for every warp, as far as the bytes go. */
    cut_bytes = round_up(
        kernel_bytes / (plan->block_count * (plan->thread_count / LANES)), COPY_CUT_BYTES_MIN);
    if (cut_bytes < COPY_CUT_BYTES_MIN)
        cut_bytes = COPY_CUT_BYTES_MIN;
    if (cut_bytes > COPY_CUT_BYTES_MAX)
        cut_bytes = COPY_CUT_BYTES_MAX;
    plan->cut_bytes = (uint32_t)cut_bytes;
}
