/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_bench.h - what `tierbench load` measures: a file to memory of a device, beside what the disk
 * and the way to the device give.
 */
#ifndef BENCH_LOAD_BENCH_H
#define BENCH_LOAD_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "kvtier/kvtier.h"

enum {
    LOAD_ROUNDS_MAX = 9,
};

struct load_plan {
    const char *directory; /* Of the store, which is made for it. */
    const char *path;
    uint64_t chunk_bytes;
    uint64_t memory_bytes; /* Of the device; 0: enough for the file. */
    uint64_t host_bytes;
    uint32_t device_kind; /* enum kvt_device_kind */
    uint32_t rounds;
    double seconds; /* For the disk's ceiling, each round. */
};

/* What of the file is loaded. */
struct load_range {
    uint64_t offset, length;
    bool is_safetensors; /* The range is its tensors. */
    uint64_t tensor_count;
    uint64_t tensor_bytes;
};

/* Medians over the rounds. */
struct load_figures {
    struct load_range range;
    bool is_emulated;
    bool is_direct; /* The disk's ceiling was read past the page cache. */
    double load_bytes_per_s;
    double first_chunk_ns;
    double disk_bytes_per_s;
    double copy_bytes_per_s;
    double overlap; /* Of the time in which a chunk was copied, how much others were read. */
    uint64_t wrong_bytes;
    struct kvt_load_chunk *chunks; /* Of the last round. */
    uint32_t chunk_count;
};

/* load_range_find - all of the file, or the tensors when its name ends in .safetensors. False:
 * complained. */
bool load_range_find(const char *path, struct load_range *range_out);

/* load_measure - False: complained. The chunks are the caller's to free(). */
bool load_measure(const struct load_plan *plan, struct load_figures *figures_out);

/* load_trace_write - the chunks' reads and copies as a timeline that browsers show
 * (chrome://tracing, Perfetto). False: complained. */
bool load_trace_write(const char *path, const struct kvt_load_chunk *chunks, uint32_t count);

/* load_overlap - the share of the time of copies in which something was read as well. */
double load_overlap(const struct kvt_load_chunk *chunks, uint32_t count);

#endif /* BENCH_LOAD_BENCH_H */
