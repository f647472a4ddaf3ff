/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_store.h - a store that a benchmark makes, fills with numbered blocks and reads at a fixed
 * depth.
 *
 * Block n has the key pattern_key(n) and the bytes of pattern n modulo the pool's size: sources lie
 * ready in memory, so that making them costs the measured time nothing.
 *
 * Threads: one.
 */
#ifndef BENCH_BENCH_STORE_H
#define BENCH_BENCH_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "huge_buffer.h"
#include "kvtier/kvtier.h"
#include "pattern.h"

enum {
    BENCH_POOL_BYTES = 64 << 20,   /* Sources, and as much for destinations. */
    BENCH_BATCH_BYTES = 8 << 20,   /* Of one put. */
    BENCH_BATCH_BLOCKS_MAX = 2048, /* Blocks of one ticket. */
    BENCH_TICKET_MAX = 8,          /* Tickets that are out at once. */
};

/* One ticket that is out. */
struct bench_ticket {
    kvt_ticket *ticket; /* NULL: free. */
    uint32_t count;
    uint32_t place; /* Its first destination ... */
    uint32_t turn;  /* ... of those that it goes around in. */
    uint64_t numbers[BENCH_BATCH_BLOCKS_MAX];
};

struct bench_store {
    const char *path;
    uint64_t block_bytes;
    uint64_t stride_bytes; /* Of a destination: whole pages. */
    uint64_t host_bytes;
    uint64_t nvme_bytes;
    uint64_t segment_bytes; /* 0: the library's choice. */
    bool keeps_files;       /* At the end. */
    uint32_t batch_blocks;  /* Of a put at most; 0: BENCH_BATCH_BLOCKS_MAX. */
    kvt_store *store;
    kvt_namespace ns;
    kvt_queue *queue;
    uint64_t next_number; /* Blocks 0 .. next_number - 1 were put. */
    uint64_t random;
    uint64_t wrong_bytes;
    uint64_t miss_count; /* Reads of blocks that were there when they were chosen. */
    struct huge_buffer sources;
    struct huge_buffer targets;
    uint32_t pool_count;
    uint32_t depth; /* Of the reads under way. */
    struct bench_ticket tickets[BENCH_TICKET_MAX];
    uint8_t keys[BENCH_BATCH_BLOCKS_MAX][PATTERN_KEY_BYTES];
    struct kvt_put puts[BENCH_BATCH_BLOCKS_MAX];
    struct kvt_get gets[BENCH_BATCH_BLOCKS_MAX];
};

/* bench_store_new - removes what is at `path`, opens a new store. Path and sizes are set. */
bool bench_store_new(struct bench_store *bench);

/* bench_store_open - the store as it is. bench_store_new() was called before. */
bool bench_store_open(struct bench_store *bench);

/* bench_store_close - closes the store; the buffers stay. True when all was written. */
bool bench_store_close(struct bench_store *bench);

/* bench_store_end - closes if need be, frees everything, removes the files (or not). */
void bench_store_end(struct bench_store *bench);

/*
 * bench_store_put - durable puts of new blocks in tickets of BENCH_BATCH_BYTES, BENCH_TICKET_MAX
 * at a time, until `bytes` are durable or `seconds` have passed. Bytes per second; below 0: it
 * complained.
 */
double bench_store_put(struct bench_store *bench, uint64_t bytes, double seconds);

/* Blocks that reads choose from, with the place of each in the data file (0: none there). */
struct bench_choice {
    uint64_t *numbers;
    uint64_t *offsets;
    uint32_t count;
    uint32_t room;
};

bool bench_choice_create(struct bench_choice *choice, uint32_t room);
void bench_choice_destroy(struct bench_choice *choice);

/* bench_store_settle - waits until no block has left NVMe for a second: a reclaim that the last
 * puts started goes on after them. False: complained. */
bool bench_store_settle(struct bench_store *bench);

/* bench_store_resident - fills the choice with blocks that are in HOST (KVT_TIER_HOST), or on NVMe
 * and nowhere else (KVT_TIER_NVME). False: complained. */
bool bench_store_resident(
    struct bench_store *bench, enum kvt_tiers tier, struct bench_choice *choice);

/*
 * bench_store_read - reads blocks, `depth` at a time, chosen at random, into all of the huge-page
 * buffers in turns. The ends of each block are compared on the way, and the last ones whole. Bytes
 * per second; below 0: complained.
 */
double bench_store_read(
    struct bench_store *bench, const struct bench_choice *choice, uint32_t depth, double seconds);

/* bench_store_lookup - one lookup of 1,000 random keys of blocks that were put, under a lease;
 * nanoseconds for lookup and release; 0: complained. *found_out counts the hits. */
uint64_t bench_store_lookup(struct bench_store *bench, uint32_t *found_out);

enum {
    BENCH_LOOKUP_KEYS = 1000
};

#endif /* BENCH_BENCH_STORE_H */
