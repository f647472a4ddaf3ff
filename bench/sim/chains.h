/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chains.h - a trace as the simulator walks it: blocks are numbers from 0 on, each with its parent,
 * and requests are in the order of their times.
 */
#ifndef BENCH_SIM_CHAINS_H
#define BENCH_SIM_CHAINS_H

#include "trace.h"

#define BLOCK_NONE UINT32_MAX   /* The number of no block. */
#define REQUEST_NONE UINT32_MAX /* Of no request: a block is not used again. */

struct chains {
    const struct trace *trace;
    uint32_t *blocks; /* By the place of an id in trace->ids: its block. */
    /* The same: the request that uses the block next, or REQUEST_NONE. */
    uint32_t *next_uses;
    uint32_t *parents; /* By block; BLOCK_NONE: it is the first of its chain. */
    uint32_t *depths;  /* By block: how many blocks are above it. */
    uint32_t block_count;
    uint32_t *order; /* trace->requests in the order of their times. */
    uint32_t request_count;
    uint64_t start_ms; /* When the first one came. */
};

/* One request of them. */
struct chain {
    uint32_t request; /* Its number in the order of times. */
    size_t id_start;  /* Of its ids in the trace. */
    const uint32_t *blocks;
    const uint32_t *next_uses;
    uint32_t count;
    uint64_t now_ns; /* When it came, after the first one. */
    uint64_t tokens; /* Of its input. */
};

/*
 * chains_create - the trace stays the caller's, and must outlive them. False: nothing to destroy,
 * and a sentence in `message`: an id that stands behind two different ones names no prefix.
 */
bool chains_create(
    struct chains *chains_out, const struct trace *trace, char message[TRACE_MESSAGE_BYTES]);
void chains_destroy(struct chains *chains);

/* chains_at - the request of that number. */
struct chain chains_at(const struct chains *chains, uint32_t request);

#endif /* BENCH_SIM_CHAINS_H */
