/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_internal.h - what a hasher and a plan are made of. Private to the engram files of engine/.
 */
#ifndef KVT_ENGINE_ENGRAM_INTERNAL_H
#define KVT_ENGINE_ENGRAM_INTERNAL_H

#include "env.h"
#include "kvtier/kvtier.h"

enum {
    ENGRAM_PROFILE_SIZE_V1 = sizeof(struct kvt_engram_profile), /* As first published. */
};

/* x mod prime by a multiplication: see bucket_row(). */
struct engram_bucket {
    uint64_t reciprocal; /* 2^64 / prime, rounded down. */
    uint32_t prime;
    uint32_t offset;
};

struct engram_layer {
    uint64_t multipliers[KVT_ENGRAM_ORDER_MAX];
    struct engram_bucket buckets[KVT_ENGRAM_COLUMNS_MAX];
    uint32_t number;
    uint32_t row_count;
};

/* Constant from open to close: any thread. */
struct kvt_engram_hasher {
    struct kvt_env env;
    struct engram_layer layers[KVT_ENGRAM_LAYERS_MAX];
    uint32_t layer_count;
    uint32_t order_max;
    uint32_t head_count;
    uint32_t column_count;
    uint32_t class_count;
    uint32_t pad_class;
    uint32_t token_count;         /* Of the map. */
    uint32_t *class_map;          /* NULL: tokens are classes. */
    uint8_t class_map_sha256[32]; /* All zero: not known. */
};

/* What a plan has of one layer. */
struct engram_plan_layer {
    uint32_t *rows;    /* slot_count_max */
    uint32_t *inverse; /* slot_count_max */
    uint32_t *slots;   /* slot_count_max */
    uint32_t *firsts;  /* slot_count_max + 1 */
    uint32_t row_count;
    uint32_t slot_count; /* In slots: with a shard those of its rows. */
};

struct kvt_engram_plan {
    const struct kvt_engram_hasher *hasher;
    struct engram_plan_layer layers[KVT_ENGRAM_LAYERS_MAX];
    uint32_t token_count_max;
    uint32_t token_count;
    bool is_unique;
    bool is_part; /* It was filled with the rows of one rank of several. */
    struct kvt_engram_shard shard;
    /* Scratch: */
    uint32_t *windows[KVT_ENGRAM_ORDER_MAX]; /* [s][token]: the class s before it. */
    uint64_t *hashes;                        /* Of N-grams of one order. */
    uint64_t *keys[2];                       /* {row in the column 32, token 32} */
    uint32_t *places;                        /* Of a sort: [pass][digit] */
    uint32_t *ranks[KVT_ENGRAM_COLUMNS_MAX]; /* Of an order: [head][token]: its row's number. */
    void *memory;                            /* All of it. */
    size_t memory_bytes;
};

/* engram_hasher_open_in, engram_map_hash_in - the public functions with memory of `env`. */
enum kvt_status engram_hasher_open_in(const struct kvt_env *env,
    const struct kvt_engram_profile *profile, const uint32_t *class_map, uint32_t token_count,
    kvt_engram_hasher **hasher_out);
enum kvt_status engram_map_hash_in(const struct kvt_env *env, const uint32_t *class_map,
    uint32_t token_count, uint8_t sha256_out[32]);

/* engram_row_check - whether a row's bytes are what its encoding and counts say. KVT_E_INVAL. */
enum kvt_status engram_row_check(const struct kvt_engram_profile *profile);

/* engram_profile_import - a profile as long as ours, checked. KVT_E_INVAL, KVT_E_UNSUPPORTED. */
enum kvt_status engram_profile_import(
    struct kvt_engram_profile *target, const struct kvt_engram_profile *source);

#endif /* KVT_ENGINE_ENGRAM_INTERNAL_H */
