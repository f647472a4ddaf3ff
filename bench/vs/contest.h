/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contest.h - the same puts and gets through each peer, in rounds, for one block size.
 *
 * In each round every peer has its turn, alone: it is opened, its share of the blocks is put, it is
 * closed; later, when all blocks are there, opened, read, closed. So a slow moment of the machine
 * falls on all of them, and no peer's threads run in another's time. Figures are medians over the
 * rounds. Gets go through all blocks in a random order, so that none is read twice before all were.
 */
#ifndef BENCH_CONTEST_H
#define BENCH_CONTEST_H

#include <stdbool.h>
#include <stdint.h>

#include "peer.h"

enum {
    CONTEST_PEERS_MAX = 5,
    CONTEST_ROUNDS_MAX = 15,
    CONTEST_SIZES_MAX = 8,
};

/* What to measure. */
struct contest_plan {
    const char *directory;
    uint64_t block_bytes[CONTEST_SIZES_MAX];
    uint32_t size_count;
    uint64_t block_count;  /* 0: as many as total_bytes hold. */
    uint64_t total_bytes;  /* Of each peer. */
    uint32_t batch_blocks; /* 0: 4 MiB, but at most 64 blocks and at least 4. */
    double seconds;        /* Of gets for each number of callers, all rounds together. */
    uint32_t rounds;
    const struct peer *peers[CONTEST_PEERS_MAX];
    uint32_t peer_count;
    bool has_damage; /* A byte of block 0 is changed behind the back of each peer. */
};

/* Medians for one number of callers. */
struct contest_point {
    uint32_t callers;
    double bytes_per_s;
    double cpu_ns;     /* Of each block, all threads of the process. */
    double read_bytes; /* From storage, of each block. */
};

/* One peer. */
struct contest_row {
    const struct peer *peer;
    struct peer_facts facts;
    struct contest_point puts[PEER_VARIANTS_MAX];
    uint32_t put_count;
    struct contest_point gets[PEER_VARIANTS_MAX];
    uint32_t get_count;
    uint64_t got_blocks; /* Compared, all laps. */
    uint64_t wrong_bytes;
    uint64_t wrong_blocks;
    uint64_t refused_blocks;
};

/* All peers at one block size. */
struct contest {
    uint64_t block_bytes;
    uint64_t block_count;
    uint32_t batch_blocks;
    uint32_t lap_blocks;
    struct contest_row rows[CONTEST_PEERS_MAX];
    uint32_t row_count;
    double ceiling_bytes_per_s; /* Reads of kvtier's data file in the same rounds; 0: none. */
    uint32_t ceiling_depth;
    bool has_read_bytes; /* The kernel accounts them. */
};

/* contest_measure - one block size. False: complained. What it makes in the directory is gone. */
bool contest_measure(
    const struct contest_plan *plan, uint64_t block_bytes, struct contest *contest_out);

/* contest_row_of - the peer of this name; NULL: it took no part. */
const struct contest_row *contest_row_of(const struct contest *contest, const char *name);

/* contest_best - the fastest of them. */
const struct contest_point *contest_best(const struct contest_point *points, uint32_t count);

/* contest_is_cold - the gets of this row read every block from storage. */
bool contest_is_cold(const struct contest *contest, const struct contest_row *row);

#endif /* BENCH_CONTEST_H */
