/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_bench.h - what `tierbench gpu` measures: every way to a device beside what bounds it.
 */
#ifndef BENCH_GPU_BENCH_H
#define BENCH_GPU_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "gpu_calls.h"
#include "load_bench.h"

struct gpu_plan {
    const char *directory;
    uint32_t device_kind;  /* enum kvt_device_kind */
    uint64_t host_bytes;   /* Of blocks in HOST. */
    uint64_t nvme_bytes;   /* Of blocks on NVMe; the file that is loaded is as large. */
    uint64_t pinned_bytes; /* Of the HOST tier whose open is measured. */
    double seconds;        /* Of each figure. */
};

struct gpu_figures {
    bool is_emulated;
    double copy_bytes_per_s; /* One large copy from pinned memory: the ceiling. */
    /* Blocks of 64 KiB from HOST in batches of 256. */
    double host_bytes_per_s;
    double loop_ns_per_block; /* Time of the loop's thread on a processor; the mover's. */
    double mover_ns_per_block;
    struct gpu_calls steady; /* Calls meanwhile. */
    /* Blocks of 1 MiB from NVMe, verified, in turns with the disk: medians. */
    double nvme_bytes_per_s;
    double disk_bytes_per_s;
    double nvme_share; /* Of the turns' shares. */
    struct load_figures load;
    double open_ns;      /* With so much pinned memory. */
    double first_use_ns; /* The open, and a first block on the device. */
    uint64_t wrong_bytes;
};

/* gpu_measure - False: complained. */
bool gpu_measure(const struct gpu_plan *plan, struct gpu_figures *figures_out);

/* gpu_thread_ns - how long threads of this name were on a processor; 0: not known. */
uint64_t gpu_thread_ns(const char *name);

#endif /* BENCH_GPU_BENCH_H */
