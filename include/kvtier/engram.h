/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram.h - which rows of N-gram embedding tables (Engram) a batch of tokens needs, and what the
 * bytes of a row mean. Part of kvtier.h, whose rules hold; no store is needed for what is here.
 *
 * A model has one table for each of its Engram layers. For each token a layer reads
 * `column_count` = (order_max - 1) * head_count rows: column (order - 2) * head_count + head is the
 * row that the N-gram of that order, ending in the token, hashes to for that head. With class ids c
 * of the tokens and the layer's odd multipliers m:
 *
 *   blocked = false
 *   for s = 0 .. order_max - 1:  blocked |= the token s before is missing or dead
 *                                tok[s] = blocked ? pad_class : c of the token s before
 *   x = tok[0] * m[0]
 *   for s = 1 .. order_max - 1:  x ^= tok[s] * m[s]
 *                                row of order s + 1, head h = offset + x mod prime (of that column)
 */
#ifndef KVTIER_ENGRAM_H
#define KVTIER_ENGRAM_H

#include "kvtier/kvtier.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVT_ENGRAM_LAYERS_MAX 4u
#define KVT_ENGRAM_ORDER_MAX 8u
#define KVT_ENGRAM_COLUMNS_MAX 64u
#define KVT_ENGRAM_TOKENS_MAX 1048576u /* Tokens of one plan. */
#define KVT_ENGRAM_DEAD UINT32_MAX     /* As a token: an image's, say. Breaks N-grams. */
#define KVT_ENGRAM_RANKS_MAX 1024u
#define KVT_ENGRAM_ELSEWHERE UINT32_MAX /* In an inverse: the row is another rank's. */

/* --- 1. Profiles ------------------------------------------------------------------------------ */

enum kvt_engram_model {
    KVT_ENGRAM_DEEPSEEK_V41_FLASH = 1,
    /* The demonstration of the paper, with numpy's multipliers for 99,092 classes. */
    KVT_ENGRAM_PAPER_DEMO = 2,
    /* Without multipliers and pad class: they come from the checkpoint, and the profile is refused
     * until the caller has set them. */
    KVT_ENGRAM_QWEN38_FLASH_NEXT = 3,
};

/* What a row is made of. */
enum kvt_engram_encoding {
    KVT_ENGRAM_BYTES = 0,     /* row_bytes of anything. */
    KVT_ENGRAM_E4M3_E8M0 = 1, /* value_count E4M3 numbers, then scale_count E8M0 scales; no 0. */
    KVT_ENGRAM_BF16 = 2,      /* value_count bfloat16 numbers. */
};

struct kvt_engram_layer {
    uint32_t number;    /* In the model, from 0. */
    uint32_t row_count; /* At least the sum of primes, which is below 2^32. */
    uint64_t multipliers[KVT_ENGRAM_ORDER_MAX]; /* Odd; times any class below 2^63. */
    uint32_t primes[KVT_ENGRAM_COLUMNS_MAX];    /* Rows of each column: 2.. */
    uint32_t offsets[KVT_ENGRAM_COLUMNS_MAX];   /* Its first row. Columns lie one behind another. */
};

/* The manifest of a model's tables. */
struct kvt_engram_profile {
    uint32_t struct_size; /* sizeof(struct kvt_engram_profile) */
    uint32_t layer_count; /* 1..KVT_ENGRAM_LAYERS_MAX */
    uint32_t order_max;   /* The longest N-gram: 2..KVT_ENGRAM_ORDER_MAX */
    uint32_t head_count;  /* Of each order: 1.., with at most KVT_ENGRAM_COLUMNS_MAX columns. */
    uint32_t class_count; /* Different classes of tokens: 1..2^32 - 2. */
    uint32_t pad_class;   /* In the place of tokens that are blocked. Below class_count. */
    uint32_t token_count; /* Length of the class map. 0: there is none, tokens are classes. */
    uint32_t pad_token;   /* With a class map: the token of class pad_class, below token_count. */
    uint32_t encoding;    /* enum kvt_engram_encoding */
    uint32_t row_bytes;   /* 1..; of numbers: as many as these have. */
    uint32_t value_count; /* Of numbers: 1.. */
    uint32_t scale_count; /* E4M3_E8M0: 1.., and value_count is a multiple of it. */
    uint8_t class_map_sha256[32]; /* Of the map as little-endian u32; all zero: not known. */
    struct kvt_engram_layer layers[KVT_ENGRAM_LAYERS_MAX];
};

/*
 * kvt_engram_profile_get - one of the profiles that are built in. Fields may then be changed.
 *
 * KVT_E_INVAL: NULL. KVT_E_UNSUPPORTED: no such model.
 * Threads: any. Ownership: borrows `profile_out`. Blocks: never.
 */
KVT_CHECKED enum kvt_status kvt_engram_profile_get(
    enum kvt_engram_model model, struct kvt_engram_profile *profile_out);

/*
 * kvt_engram_profile_check - whether a profile keeps every bound that is named above.
 *
 * KVT_E_INVAL: it does not; the sentence names the field. KVT_E_UNSUPPORTED: it is longer than this
 * library's, and not zero there.
 * Threads: any. Ownership: borrows. Blocks: never.
 */
KVT_CHECKED enum kvt_status kvt_engram_profile_check(const struct kvt_engram_profile *profile);

/*
 * kvt_engram_map_hash - SHA-256 of a class map, for a profile's class_map_sha256.
 *
 * KVT_E_INVAL: NULL. KVT_E_NOMEM.
 * Threads: any. Ownership: borrows. Blocks: never.
 */
KVT_CHECKED enum kvt_status kvt_engram_map_hash(
    const uint32_t *class_map, uint32_t token_count, uint8_t sha256_out[32]);

/* --- 2. Addressing ---------------------------------------------------------------------------- */

typedef struct kvt_engram_hasher kvt_engram_hasher;
typedef struct kvt_engram_plan kvt_engram_plan;

/*
 * kvt_engram_hasher_open - ready to address rows of `profile`.
 *
 * `class_map` has the class of each of `token_count` tokens, classes numbered in the order of their
 * first appearance. NULL, with 0: the caller's tokens are classes already.
 *
 * KVT_E_INVAL: the profile breaks a bound; the map has another length, number of classes, checksum
 * or class of the pad token than the profile says (every hash would be another one), or is not
 * numbered like that. KVT_E_UNSUPPORTED as kvt_engram_profile_check(). KVT_E_NOMEM.
 * Threads: any. Ownership: borrows; gives *hasher_out, see kvt_engram_hasher_close(). Blocks:
 * never.
 */
KVT_CHECKED enum kvt_status kvt_engram_hasher_open(const struct kvt_engram_profile *profile,
    const uint32_t *class_map, uint32_t token_count, kvt_engram_hasher **hasher_out);

/*
 * kvt_engram_hasher_close - its plans have been destroyed. NULL does nothing.
 * Threads: serial. Ownership: takes `hasher`. Blocks: never.
 */
KVT_API void kvt_engram_hasher_close(kvt_engram_hasher *hasher);

/*
 * kvt_engram_plan_create - room for a plan of up to `token_count_max` tokens
 * (1..KVT_ENGRAM_TOKENS_MAX). All memory that it will ever use is taken now.
 *
 * KVT_E_INVAL: a bound, NULL. KVT_E_NOMEM.
 * Threads: any. Ownership: keeps `hasher`; gives *plan_out, see kvt_engram_plan_destroy(). Blocks:
 * never.
 */
KVT_CHECKED enum kvt_status kvt_engram_plan_create(
    const kvt_engram_hasher *hasher, uint32_t token_count_max, kvt_engram_plan **plan_out);

/*
 * kvt_engram_plan_destroy - no fetch of it is under way. NULL does nothing.
 * Threads: serial. Ownership: takes `plan`. Blocks: never.
 */
KVT_API void kvt_engram_plan_destroy(kvt_engram_plan *plan);

/* The rows of one rank, where those of a table are divided among several: row / part_rows == rank,
 * with part_rows = row_count / rank_count, rounded up. (Bounds of columns lie anywhere in that.) */
struct kvt_engram_shard {
    uint32_t rank;       /* 0 .. rank_count - 1 */
    uint32_t rank_count; /* 1 .. KVT_ENGRAM_RANKS_MAX */
};

/*
 * kvt_engram_shard_rows - which rows of a table of `row_count` they are: *row_count_out from
 * *row_first_out on, 0 where there are more ranks than rows.
 *
 * KVT_E_INVAL: NULL, a bound.
 * Threads: any. Ownership: borrows. Blocks: never.
 */
KVT_CHECKED enum kvt_status kvt_engram_shard_rows(const struct kvt_engram_shard *shard,
    uint32_t row_count, uint32_t *row_first_out, uint32_t *row_count_out);

/*
 * kvt_engram_plan_shard - from its next fill on, which must be KVT_ENGRAM_UNIQUE, a plan has the
 * rows of one rank only, of every layer's table. A new plan has all: rank 0 of 1.
 *
 * KVT_E_INVAL: NULL, a bound.
 * Threads: serial for one plan. Ownership: borrows. Blocks: never.
 */
KVT_CHECKED enum kvt_status kvt_engram_plan_shard(
    kvt_engram_plan *plan, const struct kvt_engram_shard *shard);

/* One sequence of a batch. What is before its first token is a sequence's start. */
struct kvt_engram_sequence {
    const uint32_t *tokens; /* Oldest first; KVT_ENGRAM_DEAD is allowed. */
    uint32_t token_count;   /* All of them. */
    uint32_t history_count; /* The first so many are history: no rows are wanted for them. Of
                             * tokens that came before, the last order_max - 1 suffice. */
};

enum kvt_engram_plan_flags {
    KVT_ENGRAM_UNIQUE = 1, /* Each row once, sorted: what kvt_engram_fetch_submit() needs. */
};

/*
 * kvt_engram_plan_fill - the rows that the tokens of `count` sequences need, of every layer. What
 * was in the plan before is gone.
 *
 * KVT_E_INVAL: a NULL, a flag, a token that the map (or the profile) does not have, more history
 * than tokens, more tokens than the plan has room for, a shard without KVT_ENGRAM_UNIQUE: the plan
 * is empty then.
 * Threads: serial for one plan. Ownership: borrows. Blocks: never.
 */
KVT_CHECKED enum kvt_status kvt_engram_plan_fill(kvt_engram_plan *plan,
    const struct kvt_engram_sequence *sequences, uint32_t count, uint32_t flags);

/*
 * What a plan wants of one layer's table. Slot i is column i % column_count of planned token
 * i / column_count; tokens count through all sequences.
 */
struct kvt_engram_rows {
    uint32_t layer;          /* Its number in the model. */
    uint32_t column_count;   /* Rows of a token. */
    uint32_t slot_count;     /* Of the tokens, whatever the shard. */
    uint32_t row_count;      /* UNIQUE: different rows; else slot_count. */
    const uint32_t *rows;    /* row_count: UNIQUE: rising, so that rows of a page are neighbours;
                              * else the row of each slot. */
    const uint32_t *inverse; /* UNIQUE: slot i has rows[inverse[i]], or with a shard
                              * KVT_ENGRAM_ELSEWHERE. Else NULL. */
    const uint32_t *slots;   /* UNIQUE: slots in the order of their rows ... */
    const uint32_t *firsts;  /* ... of rows[j]: slots[firsts[j]] up to before slots[firsts[j + 1]];
                              * row_count + 1. Else both NULL. */
};

/*
 * kvt_engram_plan_rows - of layer `index` (0 .. layer_count - 1). The pointers last until the plan
 * is filled again or destroyed.
 *
 * KVT_E_INVAL: NULL, no such layer.
 * Threads: any, while nobody fills the plan. Ownership: the plan's. Blocks: never.
 */
KVT_CHECKED enum kvt_status kvt_engram_plan_rows(
    const kvt_engram_plan *plan, uint32_t index, struct kvt_engram_rows *rows_out);

/* --- 3. Values -------------------------------------------------------------------------------- */

/*
 * kvt_engram_dequantise - `row_count` rows of KVT_ENGRAM_E4M3_E8M0, one behind another, as bfloat16
 * numbers: value i of a row is E4M3(byte i) * 2^(scale - 127), with the scale of its group.
 *
 * Every product is exact but those that are too small for bfloat16's full precision, which are
 * rounded to the nearest, ties to even; 2^128 and above is infinity with its sign. E4M3 0x7F and
 * 0xFF, and anything under scale 255 (E8M0's NaN), is the quiet NaN 0x7FC0 with the sign of the
 * value. The floating-point mode of the thread does not matter.
 *
 * KVT_E_INVAL: NULL, another encoding, counts that do not fit row_bytes.
 * Threads: any. Ownership: borrows; `values_out` has room for row_count * value_count. Blocks:
 * never.
 */
KVT_CHECKED enum kvt_status kvt_engram_dequantise(const struct kvt_engram_profile *profile,
    const void *rows, uint64_t row_count, uint16_t *values_out);

#ifdef __cplusplus
}
#endif

#include "kvtier/engram_tables.h"

#endif /* KVTIER_ENGRAM_H */
