/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vs_settings.h - the command line of `tierbench vs`, which tierbench checks and tierbench-peers
 * obeys.
 */
#ifndef BENCH_VS_SETTINGS_H
#define BENCH_VS_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "outputs.h"

enum {
    VS_SIZES_MAX = 8,
    VS_ROUNDS_MAX = 15,
    VS_PEERS = 5,
};

/* In the order in which they are listed. */
enum vs_peer {
    VS_KVTIER,
    VS_ROCKSDB,
    VS_SQLITE,
    VS_FILES,
    VS_FILES_CACHED,
};

struct vs_settings {
    const char *directory;
    uint64_t block_bytes[VS_SIZES_MAX];
    uint32_t size_count;
    uint64_t block_count;  /* 0: as many as total_bytes hold. */
    uint64_t total_bytes;  /* Of each peer. */
    uint32_t batch_blocks; /* 0: by the block size. */
    double seconds;
    uint32_t rounds;
    bool has_peer[VS_PEERS]; /* By enum vs_peer. */
    bool has_damage;
    bool as_json;
    struct outputs outputs;
};

/* vs_settings_read - false: leave with *exit_out. */
bool vs_settings_read(struct vs_settings *settings_out, int argc, char **argv, int *exit_out);

#endif /* BENCH_VS_SETTINGS_H */
