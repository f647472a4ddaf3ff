/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_calls.h - stores whose calls of the device are counted: what takes memory, pins it, or makes
 * an event has no place in a steady state.
 */
#ifndef BENCH_GPU_CALLS_H
#define BENCH_GPU_CALLS_H

#include <stdint.h>

#include "kvtier/kvtier.h"

/* Ever, of all stores that were opened so. */
struct gpu_calls {
    uint64_t memory_count; /* Memory of the device taken (cudaMalloc). */
    uint64_t pin_count;    /* Memory of the host registered (cudaHostRegister). */
    uint64_t event_count;  /* Events created. */
};

/* gpu_calls_open - kvt_open() with a device of options->device_kind, counted. */
enum kvt_status gpu_calls_open(
    const char *path, const struct kvt_options *options, kvt_store **store_out);
void gpu_calls_get(struct gpu_calls *calls_out);

#endif /* BENCH_GPU_CALLS_H */
