/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ceiling.h - what a machine gives without kvtier: the limits against which every figure is held.
 */
#ifndef BENCH_CEILING_H
#define BENCH_CEILING_H

#include <stdbool.h>
#include <stdint.h>

#include "disk_probe.h"

enum {
    CEILING_POINT_MAX = 128,
    CEILING_ROUND_MAX = 9,
};

/* One way to read. */
struct ceiling_point {
    uint64_t piece_bytes;
    uint32_t depth;
    bool is_random;
    double bytes_per_s; /* Median over the rounds. */
};

struct ceiling {
    bool is_direct;
    bool is_registered;
    double write_first_bytes_per_s; /* Into space that was allocated and never written. */
    double write_again_bytes_per_s; /* Over space that was written before. */
    double copy_bytes_per_s;
    double hash_bytes_per_s;
    struct ceiling_point points[CEILING_POINT_MAX];
    uint32_t point_count;
    uint64_t read_bytes_hash; /* Of the last buffer read: proof that something was. */
    char message[DISK_MESSAGE_BYTES];
};

/* What to measure. */
struct ceiling_plan {
    const char *directory;
    uint64_t file_bytes; /* At least two batches. */
    double seconds;      /* Of each point, all rounds together. */
    uint32_t rounds;     /* 1..CEILING_ROUND_MAX */
    const uint64_t *pieces;
    uint32_t piece_count;
    const uint32_t *depths;
    uint32_t depth_count;
    bool has_sequential; /* Sequential reads too, not only random ones. */
};

/* ceiling_measure - false: a sentence is in ceiling_out->message. */
bool ceiling_measure(struct ceiling *ceiling_out, const struct ceiling_plan *plan);

/* ceiling_best_read - the fastest point of this piece, NULL when there is none. */
const struct ceiling_point *ceiling_best_read(
    const struct ceiling *ceiling, uint64_t piece_bytes, bool is_random);

#endif /* BENCH_CEILING_H */
