/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer.h - something that keeps blocks on a disk, as `tierbench vs` sees it: kvtier and those that
 * it is compared with.
 *
 * A peer lives in a directory of its own, which is there. It is opened and closed several times;
 * what was put stays. Several threads ("callers", numbered from 0) put and get batches at the same
 * time; a batch has ended when its call returns.
 */
#ifndef BENCH_PEER_H
#define BENCH_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PEER_CALLERS_MAX = 16,
    PEER_VARIANTS_MAX = 6,
    PEER_BATCH_MAX = 1024,
    PEER_PAGE_BYTES = 4096, /* What memory and sizes of blocks are multiples of. */
};

/* A block on its way. `bytes` are the caller's: aligned to a page, on huge pages. */
struct peer_block {
    uint64_t number; /* Its key is pattern_key(number). */
    uint8_t *bytes;
    bool is_refused; /* Set by get_batch: the peer says itself that it has no good copy. */
};

/* Where a peer works, and on what. */
struct peer_place {
    const char *directory;
    uint64_t block_bytes;
    uint64_t block_count; /* It will hold so many. */
    uint32_t batch_blocks;
};

/* What a peer says of itself. */
struct peer_facts {
    char version[64];
    char settings[512]; /* A few clauses, separated by commas. */
};

/* A peer. Constant. */
struct peer {
    const char *name;
    /* Which numbers of callers are measured; the best counts. Ends with 0. */
    uint32_t put_callers[PEER_VARIANTS_MAX];
    uint32_t get_callers[PEER_VARIANTS_MAX];

    /* NULL: complained. */
    void *(*open)(const struct peer_place *place);
    /* All blocks are durable when it returns. False: complained. */
    bool (*put_batch)(
        void *state, uint32_t caller, const struct peer_block *blocks, uint32_t count);
    /* Every block that is not refused is in its bytes. False: complained. */
    bool (*get_batch)(void *state, uint32_t caller, struct peer_block *blocks, uint32_t count);
    /* Gives up what it, and the system for it, has cached: called before each lap of gets. NULL:
     * its gets use no cache of blocks. False: complained. */
    bool (*forget)(void *state);
    /* What was put is where a reader finds it best. False: complained. */
    bool (*close)(void *state);
    void (*describe)(const struct peer_place *place, struct peer_facts *facts_out);
};

extern const struct peer peer_kvtier;
extern const struct peer peer_rocksdb;
extern const struct peer peer_sqlite;
extern const struct peer peer_files; /* O_DIRECT */
extern const struct peer peer_files_cached;

#endif /* BENCH_PEER_H */
