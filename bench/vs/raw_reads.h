/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raw_reads.h - what the disk gives of a file without anything in between: everybody's ceiling.
 */
#ifndef BENCH_RAW_READS_H
#define BENCH_RAW_READS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    RAW_DEPTHS = 3
};

/* raw_depth - the index-th number of pieces that are read at once: 2, 4 or 8 MiB of them. */
uint32_t raw_depth(uint64_t piece_bytes, uint32_t index);

/*
 * raw_reads - random reads of pieces from the first `end_bytes` of the file, with O_DIRECT,
 * io_uring and registered buffers on huge pages; `seconds` for each depth. False: complained.
 */
bool raw_reads(const char *path, uint64_t piece_bytes, uint64_t end_bytes, double seconds,
    double rates_out[RAW_DEPTHS]);

#endif /* BENCH_RAW_READS_H */
