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

/* Measured on an H200, PCIe 5 x16: at these lengths the engines reach the kernel's rate. */
static const uint64_t BELOW_BYTES_IN = 48 * KIB;
static const uint64_t BELOW_BYTES_OUT = 40 * KIB;

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

void
copy_planner_crossovers(
    const struct copy_planner *planner, uint64_t now_ns, uint64_t *below_bytes_out)
{
    memcpy(below_bytes_out, planner->kernel_below_bytes, sizeof(planner->kernel_below_bytes));
    if (planner->busy_until_ns[COPY_OUT] > now_ns)
        below_bytes_out[COPY_IN] = below_bytes_out[COPY_IN] / 3 * 2;
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
    uint64_t kernel_bytes[COPY_WAY_COUNT] = {0};
    uint64_t all_kernel_bytes = 0;
    uint64_t cut_bytes;
    bool is_narrow;

    for (uint32_t i = 0; i < COPY_WAY_COUNT; i++) {
        if (sums[i].short_count < COPY_KERNEL_RUNS_MIN)
            plan->kernel_below_bytes[i] = 0;
        else
            kernel_bytes[i] = sums[i].short_bytes;
        all_kernel_bytes += kernel_bytes[i];
        planner->busy_until_ns[i] =
            later(planner->busy_until_ns[i], now_ns, sums[i].short_bytes + sums[i].long_bytes);
        planner->kernel_until_ns[i] = later(planner->kernel_until_ns[i], now_ns, kernel_bytes[i]);
    }
    is_narrow = kernel_bytes[COPY_OUT] > 0 && planner->kernel_until_ns[COPY_IN] > now_ns;
    plan->block_count = is_narrow ? COPY_NARROW_BLOCKS : COPY_WIDE_BLOCKS;
    plan->thread_count = is_narrow ? COPY_NARROW_THREADS : COPY_WIDE_THREADS;
    /* A chunk for every warp, as far as the bytes go. */
    cut_bytes = round_up(
        all_kernel_bytes / (plan->block_count * (plan->thread_count / LANES)), COPY_CUT_BYTES_MIN);
    if (cut_bytes < COPY_CUT_BYTES_MIN)
        cut_bytes = COPY_CUT_BYTES_MIN;
    if (cut_bytes > COPY_CUT_BYTES_MAX)
        cut_bytes = COPY_CUT_BYTES_MAX;
    plan->cut_bytes = (uint32_t)cut_bytes;
}
