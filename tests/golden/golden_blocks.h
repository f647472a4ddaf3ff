/* SPDX-License-Identifier: Apache-2.0 */
/*
 * golden_blocks.h - what the stores in tests/golden hold: the same list makes and judges them.
 */
#ifndef KVT_TESTS_GOLDEN_BLOCKS_H
#define KVT_TESTS_GOLDEN_BLOCKS_H

#include "store_kit.h"

enum {
    GOLDEN_BLOCKS = 16,
    GOLDEN_REPLACED = 4, /* Keys below this one have version 2. */
    GOLDEN_DELETED = 12, /* Keys from this one on are gone. */
    GOLDEN_SHORTEST = 4,
    GOLDEN_LONGEST = 5,
};

#define GOLDEN_SPACE "golden"
#define GOLDEN_CLEARED "cleared"
#define GOLDEN_MODEL "a model, fp8"
#define GOLDEN_MODEL_BYTES (sizeof(GOLDEN_MODEL) - 1)

/* From the shortest payload to the longest block, most of them not whole pages. */
static inline uint64_t
golden_length(uint64_t key, uint64_t version)
{
    if (key == GOLDEN_SHORTEST)
        return PAYLOAD_BYTES_MIN;
    return key == GOLDEN_LONGEST ? KIT_BLOCK_BYTES_MAX : 100 + key * 331 + version;
}

static inline uint64_t
golden_version(uint64_t key)
{
    return key < GOLDEN_REPLACED ? 2 : 1;
}

#endif /* KVT_TESTS_GOLDEN_BLOCKS_H */
