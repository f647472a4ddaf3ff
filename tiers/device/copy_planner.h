/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_planner.h - which runs of a call a kernel copies, and which the copy engines.
 *
 * Owns      the crossovers, and an estimate of how long each way is busy.
 * Not here  CUDA, addresses, lists (device_cuda_copy.c).
 * Threads   serial: guarded by the device's mutex.
 *
 * A copy engine takes a microsecond and more to begin a run, and then has the bus to itself; a
 * kernel begins any number of them at once, but fills the bus to nine tenths only, takes some of
 * the device's processors, and waits behind the work on them. So short runs go by the kernel, when
 * there are several of them, and all others by the engines. From which length on engines are
 * faster, the crossover, is measured when a store is opened (device_cuda_measure.c).
 *
 * Both directions at once disturb each other when both go by kernels: what is written out keeps
 * what is read in from asking for more. So the kernel out takes a small grid while something goes
 * in: on an H200 pieces of 4 KiB then go 41 + 39 GB/s instead of 18 + 47. (A kernel in and engines
 * out, or the other way round, was no better with runs short enough for a kernel: the engines need
 * the thread that queues, and from 64 KiB on engines both ways reach 49 + 51.)
 */
#ifndef KVT_TIERS_COPY_PLANNER_H
#define KVT_TIERS_COPY_PLANNER_H

#include <stdbool.h>
#include <stdint.h>

#include "device.h"

enum copy_way {
    COPY_IN = DEVICE_IN,
    COPY_OUT = DEVICE_OUT,
    COPY_WITHIN, /* From memory of the device to memory of the device. */
    COPY_ACROSS, /* From the host's to the host's: the kernel has no part in it. */
    COPY_WAY_COUNT,
};

enum {
    COPY_KERNEL_RUNS_MIN = 8,  /* Of a call: fewer are sooner begun by the engines. */
    COPY_WIDE_BLOCKS = 8,      /* Fewer do not fill the bus. */
    COPY_WIDE_THREADS = 1024,  /* In a block. */
    COPY_NARROW_BLOCKS = 2,    /* Two thirds of the bus. */
    COPY_NARROW_THREADS = 512, /* In a block. */
    COPY_CUT_BYTES_MIN = 512,  /* What a warp loads at once. */
    COPY_CUT_BYTES_MAX = 8192, /* Smaller ones cost more list, larger ones end unevenly. */
    COPY_BYTES_PER_NS = 50,    /* Of the bus, for the estimate. */
};

struct copy_planner {
    uint64_t kernel_below_bytes[COPY_WAY_COUNT]; /* The crossovers. 0: never the kernel. */
    bool is_measured;
    uint64_t busy_until_ns[COPY_WAY_COUNT]; /* All that was queued will be done, as estimated. */
};

/* What a call has to copy one way. */
struct copy_sum {
    uint32_t short_count; /* Runs below the crossover. */
    uint64_t short_bytes;
    uint64_t long_bytes; /* Of all others. */
};

/* What is decided for one call. */
struct copy_plan {
    uint64_t kernel_below_bytes[COPY_WAY_COUNT]; /* Shorter runs go by the kernel. */
    uint32_t cut_bytes;                          /* The kernel's chunks are at most so long. */
    uint32_t block_count;                        /* The kernel's grid. */
    uint32_t thread_count;
};

/* copy_planner_init - the crossovers that an H200 behind PCIe 5 x16 has. */
void copy_planner_init(struct copy_planner *planner);

/* copy_planner_set - others; 0 and 0: engines do everything, within the device too. */
void copy_planner_set(struct copy_planner *planner, const struct device_plan *plan);

void copy_planner_get(const struct copy_planner *planner, struct device_plan *plan_out);

/* copy_planner_decide - for a call with these sums, one for each way, by the crossovers; it counts
 * as queued. What is not worth a kernel has the crossover 0 in the plan. */
void copy_planner_decide(struct copy_planner *planner, const struct copy_sum *sums, uint64_t now_ns,
    struct copy_plan *plan);

#endif /* KVT_TIERS_COPY_PLANNER_H */
