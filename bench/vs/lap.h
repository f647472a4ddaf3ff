/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lap.h - a list of blocks that callers move through a peer, batch by batch, against the clock.
 *
 * The clock runs from the moment when all callers stand ready to the end of the last of them.
 * Making the bytes and comparing them lies outside of it.
 */
#ifndef BENCH_LAP_H
#define BENCH_LAP_H

#include <stdbool.h>
#include <stdint.h>

#include "peer.h"

struct lap {
    const struct peer *peer;
    void *state; /* Of the open peer. */
    struct peer_block *blocks;
    uint32_t block_count;
    uint32_t batch_blocks; /* 1..PEER_BATCH_MAX */
    uint32_t callers;      /* 1..PEER_CALLERS_MAX */
    bool is_put;
};

/* What one lap, or several, came to. */
struct lap_result {
    double seconds;
    double cpu_seconds;
    uint64_t read_bytes;
    uint64_t block_count;
};

/* lap_run - adds to *result. False: a caller complained. */
bool lap_run(const struct lap *lap, struct lap_result *result);

#endif /* BENCH_LAP_H */
