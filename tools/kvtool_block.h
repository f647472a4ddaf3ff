/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_block.h - single blocks, waited for, and runs of them with many under way.
 */
#ifndef KVTOOL_BLOCK_H
#define KVTOOL_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "kvtier/kvtier.h"

enum {
    LANE_COUNT_MAX = 64,
    LANES_BYTES = 32 << 20 /* Of all buffers together, but each holds one block. */
};

/* A block's bytes in memory, aligned for direct reads. */
struct block {
    void *bytes;
    uint64_t capacity;
    struct kvt_result result;
};

/* block_get - the whole block; a buffer that is too small is made larger. */
enum kvt_status block_get(
    kvt_store *store, kvt_namespace ns, const struct kvt_key *key, struct block *block);
void block_free(struct block *block);

/* block_put - KVT_OK: stored and committed. KVT_EXISTS: it was there, and is durable. */
enum kvt_status block_put(kvt_store *store, kvt_namespace ns, const struct kvt_put *put);

/* blocks_delete - durable when it returns. KVT_MISS: none of them was there. */
enum kvt_status blocks_delete(
    kvt_store *store, kvt_namespace ns, const struct kvt_key *keys, uint32_t count);

/* blocks_are_there - KVT_OK: each has a durable copy. KVT_MISS: one has none. Else it could not be
 * found out. */
enum kvt_status blocks_are_there(
    kvt_store *store, kvt_namespace ns, const struct kvt_key *keys, uint32_t count);

/*
 * Lanes: buffers of one block each, used in turn, so that while one is filled or emptied the others
 * are on their way. A lane that is waited for gives its result.
 */
struct lane {
    uint8_t *bytes;
    kvt_ticket *ticket; /* NULL: nothing is under way. */
};

struct lanes {
    kvt_store *store;
    uint64_t block_bytes;
    uint32_t count;
    struct lane lanes[LANE_COUNT_MAX];
};

/* lanes_open - false, with a sentence, without memory. lanes_close waits for what is under way. */
bool lanes_open(struct lanes *lanes, kvt_store *store, uint64_t block_bytes);
void lanes_close(struct lanes *lanes);

/* The lane of the n-th block. */
struct lane *lanes_at(struct lanes *lanes, uint64_t number);

/* lane_put, lane_get - begin; the lane is empty. lane_wait: the result (a put's is that of both
 * stages), and the lane is empty; KVT_OK when it was. */
enum kvt_status lane_put(
    struct lanes *lanes, struct lane *lane, kvt_namespace ns, const struct kvt_put *put);
enum kvt_status lane_get(
    struct lanes *lanes, struct lane *lane, kvt_namespace ns, const struct kvt_key *key);
enum kvt_status lane_wait(struct lane *lane, uint64_t *length_out);

#endif /* KVTOOL_BLOCK_H */
