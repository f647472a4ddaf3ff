/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_plan.c - the rows that a batch of tokens needs: hashed, sorted, each once.
 *
 * How       Tokens become windows: for each s the class of the token s before it, whole batch in
 *           one array. Then, layer by layer and order by order, one array of hashes, and for each
 *           head the rows of one column. Columns lie one behind another in a table, so that sorting
 *           each column alone sorts the layer; what is sorted at a time fits the nearest caches.
 * Sorting   By radix, of {row in the column, token} in 64 bits. It is stable: the slots of a row
 *           rise.
 */
#include "engram_internal.h"

#include "bytes.h"
#include "failure.h"
#include "try.h"

enum {
    DIGIT_BITS_MAX = 12, /* 4,096 counters of 4 bytes: half of a 32 KiB cache. */
    PASSES_MAX = 4,
    SHORT_COUNT = 32, /* So few keys are sorted by insertion. */
    /* Of an inverse of 512 KiB: with the keys it fits a second-level cache. */
    NEAR_SLOTS = 128 << 10,
};

/* --- 1. Memory -------------------------------------------------------------------------------- */

/* `count` elements out of the plan's memory; with none yet it only counts. */
static void *
part_take(struct kvt_engram_plan *plan, size_t *used, size_t count, size_t element_bytes)
{
    size_t at = *used;

    *used = (size_t)round_up(at + count * element_bytes, 64);
    return plan->memory == NULL ? NULL : (char *)plan->memory + at;
}

/* Bytes of all parts. */
static size_t
parts_place(struct kvt_engram_plan *plan)
{
    const struct kvt_engram_hasher *hasher = plan->hasher;
    size_t tokens = plan->token_count_max;
    size_t slots = tokens * hasher->column_count;
    size_t used = 0;

    for (uint32_t s = 0; s < hasher->order_max; s++)
        plan->windows[s] = part_take(plan, &used, tokens, sizeof(uint32_t));
    plan->hashes = part_take(plan, &used, tokens, sizeof(uint64_t));
    plan->keys[0] = part_take(plan, &used, tokens, sizeof(uint64_t));
    plan->keys[1] = part_take(plan, &used, tokens, sizeof(uint64_t));
    plan->places = part_take(plan, &used, PASSES_MAX << DIGIT_BITS_MAX, sizeof(uint32_t));
    for (uint32_t h = 0; h < hasher->head_count; h++)
        plan->ranks[h] = part_take(plan, &used, tokens, sizeof(uint32_t));
    for (uint32_t i = 0; i < hasher->layer_count; i++) {
        struct engram_plan_layer *layer = &plan->layers[i];

        layer->rows = part_take(plan, &used, slots, sizeof(uint32_t));
        layer->inverse = part_take(plan, &used, slots, sizeof(uint32_t));
        layer->slots = part_take(plan, &used, slots, sizeof(uint32_t));
        layer->firsts = part_take(plan, &used, slots + 1, sizeof(uint32_t));
    }
    return used;
}

enum kvt_status
kvt_engram_plan_create(
    const kvt_engram_hasher *hasher, uint32_t token_count_max, kvt_engram_plan **plan_out)
{
    struct kvt_engram_plan *plan;

    if (plan_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "plan_out is NULL");
    *plan_out = NULL;
    if (hasher == NULL || token_count_max == 0 || token_count_max > KVT_ENGRAM_TOKENS_MAX)
        return failure_set(KVT_E_INVAL, 0, "hasher is NULL, or token_count_max %u is not in 1..%u",
            token_count_max, KVT_ENGRAM_TOKENS_MAX);
    plan = env_take(&hasher->env, sizeof(*plan));
    if (plan == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for a plan");
    plan->hasher = hasher;
    plan->shard.rank_count = 1;
    plan->token_count_max = token_count_max;
    plan->memory_bytes = parts_place(plan);
    plan->memory = env_take(&hasher->env, plan->memory_bytes);
    if (plan->memory == NULL) {
        size_t size = plan->memory_bytes;

        env_put(&hasher->env, plan, sizeof(*plan));
        return failure_set(
            KVT_E_NOMEM, 0, "no memory for a plan of %u tokens: %zu bytes", token_count_max, size);
    }
    (void)parts_place(plan);
    *plan_out = plan;
    return KVT_OK;
}

void
kvt_engram_plan_destroy(kvt_engram_plan *plan)
{
    if (plan == NULL)
        return;
    env_put(&plan->hasher->env, plan->memory, plan->memory_bytes);
    env_put(&plan->hasher->env, plan, sizeof(*plan));
}

/* --- 2. Shards -------------------------------------------------------------------------------- */

static enum kvt_status
shard_check(const struct kvt_engram_shard *shard)
{
    if (shard == NULL || shard->rank_count == 0 || shard->rank_count > KVT_ENGRAM_RANKS_MAX ||
        shard->rank >= shard->rank_count)
        return failure_set(KVT_E_INVAL, 0,
            "shard is NULL, its ranks are not 1..%u, or its rank is none of them",
            KVT_ENGRAM_RANKS_MAX);
    return KVT_OK;
}

/* A run of rows. */
struct row_span {
    uint32_t first;
    uint32_t count;
};

static struct row_span
shard_span(const struct kvt_engram_shard *shard, uint32_t row_count)
{
    uint64_t part = ((uint64_t)row_count + shard->rank_count - 1) / shard->rank_count;
    uint64_t first = part * shard->rank;
    uint64_t left = first < row_count ? row_count - first : 0;

    return (struct row_span){
        (uint32_t)(left == 0 ? row_count : first), (uint32_t)(left < part ? left : part)};
}

enum kvt_status
kvt_engram_shard_rows(const struct kvt_engram_shard *shard, uint32_t row_count,
    uint32_t *row_first_out, uint32_t *row_count_out)
{
    struct row_span span;

    if (row_first_out == NULL || row_count_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "row_first_out or row_count_out is NULL");
    KVT_TRY(shard_check(shard));
    span = shard_span(shard, row_count);
    *row_first_out = span.first;
    *row_count_out = span.count;
    return KVT_OK;
}

enum kvt_status
kvt_engram_plan_shard(kvt_engram_plan *plan, const struct kvt_engram_shard *shard)
{
    if (plan == NULL)
        return failure_set(KVT_E_INVAL, 0, "plan is NULL");
    KVT_TRY(shard_check(shard));
    plan->shard = *shard;
    return KVT_OK;
}

/* --- 3. Tokens -------------------------------------------------------------------------------- */

/* The class of a token, KVT_ENGRAM_DEAD included. False: there is no such token. */
static inline bool
token_class(const struct kvt_engram_hasher *hasher, uint32_t token, uint32_t *class_out)
{
    *class_out = token;
    if (token == KVT_ENGRAM_DEAD)
        return true;
    if (hasher->class_map == NULL)
        return token < hasher->class_count;
    if (token >= hasher->token_count)
        return false;
    *class_out = hasher->class_map[token];
    return true;
}

/*
 * The windows of a sequence's tokens. What lies `reach` behind is open: neither dead nor before the
 * sequence's start, and nothing between is.
 */
static enum kvt_status
sequence_windows(struct kvt_engram_plan *plan, const struct kvt_engram_sequence *sequence)
{
    const struct kvt_engram_hasher *hasher = plan->hasher;
    uint32_t order_max = hasher->order_max;
    uint32_t history =
        sequence->history_count < order_max - 1 ? sequence->history_count : order_max - 1;
    uint32_t recent[KVT_ENGRAM_ORDER_MAX] = {0}; /* recent[s]: the class s before. */
    uint32_t open_count = 0;

    for (uint32_t i = sequence->history_count - history; i < sequence->token_count; i++) {
        uint32_t class;

        if (!token_class(hasher, sequence->tokens[i], &class))
            return failure_set(KVT_E_INVAL, 0, "token %u at place %u of a sequence: there are %u",
                sequence->tokens[i], i,
                hasher->class_map == NULL ? hasher->class_count : hasher->token_count);
        for (uint32_t s = order_max - 1; s > 0; s--)
            recent[s] = recent[s - 1];
        recent[0] = class;
        open_count = class == KVT_ENGRAM_DEAD ? 0 : open_count + 1;
        if (i < sequence->history_count)
            continue;
        for (uint32_t s = 0; s < order_max; s++)
            plan->windows[s][plan->token_count] = s < open_count ? recent[s] : hasher->pad_class;
        plan->token_count++;
    }
    return KVT_OK;
}

/* --- 4. Rows ---------------------------------------------------------------------------------- */

/*
 * x mod prime. The quotient by the reciprocal is at most one too small: the reciprocal is short of
 * 2^64 / prime by less than 1, hence the product of 2^64 by less than x / 2^64, which is below 1.
 */
static inline uint32_t
bucket_row(const struct engram_bucket *bucket, uint64_t x)
{
    __extension__ typedef unsigned __int128 wide;
    uint64_t quotient = (uint64_t)((wide)x * bucket->reciprocal >> 64);
    uint64_t rest = x - quotient * bucket->prime;

    return (uint32_t)(rest >= bucket->prime ? rest - bucket->prime : rest);
}

/* The hashes of (order)-grams from those of the order below. */
static void
hashes_extend(struct kvt_engram_plan *plan, const struct engram_layer *layer, uint32_t s)
{
    const uint32_t *restrict window = plan->windows[s];
    uint64_t *restrict hashes = plan->hashes;
    uint64_t multiplier = layer->multipliers[s];

    for (uint32_t i = 0; i < plan->token_count; i++)
        hashes[i] = (s == 0 ? 0 : hashes[i]) ^ window[i] * multiplier;
}

/* As they come: slot after slot. */
static void
rows_plain(struct kvt_engram_plan *plan, const struct engram_bucket *buckets, uint32_t column,
    struct engram_plan_layer *target)
{
    uint32_t head_count = plan->hasher->head_count;
    uint32_t column_count = plan->hasher->column_count;
    uint32_t *rows = target->rows + column;

    for (uint32_t i = 0; i < plan->token_count; i++, rows += column_count) {
        for (uint32_t h = 0; h < head_count; h++)
            rows[h] = buckets[h].offset + bucket_row(&buckets[h], plan->hashes[i]);
    }
}

/* --- 5. Sorting ------------------------------------------------------------------------------- */

static void
keys_insert(uint64_t *keys, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        uint64_t key = keys[i];
        uint32_t at = i;

        for (; at > 0 && keys[at - 1] > key; at--)
            keys[at] = keys[at - 1];
        keys[at] = key;
    }
}

/* One pass of the sort, by `bits` bits from `shift` on. */
static void
keys_pass(const uint64_t *restrict source, uint64_t *restrict target, uint32_t count,
    unsigned shift, uint32_t mask, uint32_t *restrict places)
{
    uint32_t sum = 0;

    for (uint32_t i = 0; i <= mask; i++) {
        uint32_t here = places[i];

        places[i] = sum;
        sum += here;
    }
    for (uint32_t i = 0; i < count; i++)
        target[places[source[i] >> shift & mask]++] = source[i];
}

/* Sorts `count` of keys[0] by their rows, below `row_count`. Returns where the result is. */
static uint64_t *
keys_sort(struct kvt_engram_plan *plan, uint32_t count, uint32_t row_count)
{
    unsigned row_bits = 32 - (unsigned)__builtin_clz((row_count - 1) | 1);
    /* Few keys: counters cost more than a pass. */
    unsigned passes =
        count < 4096 ? (row_bits + 7) / 8 : (row_bits + DIGIT_BITS_MAX - 1) / DIGIT_BITS_MAX;
    unsigned bits = (row_bits + passes - 1) / passes;
    uint32_t mask = (1u << bits) - 1;
    uint64_t *source = plan->keys[0], *target = plan->keys[1];
    uint32_t *restrict places = plan->places;

    if (count <= SHORT_COUNT) {
        keys_insert(source, count);
        return source;
    }
    memset(places, 0, passes * sizeof(*places) << bits);
    for (uint32_t i = 0; i < count; i++) {
        for (unsigned pass = 0; pass < passes; pass++)
            places[(pass << bits) + (source[i] >> (32 + pass * bits) & mask)]++;
    }
    for (unsigned pass = 0; pass < passes; pass++) {
        uint64_t *other = source;

        keys_pass(source, target, count, 32 + pass * bits, mask, places + (pass << bits));
        source = target;
        target = other;
    }
    return source;
}

/* A layer's inverse stays in the caches while its columns are sorted. */
static inline bool
plan_is_near(const struct kvt_engram_plan *plan)
{
    return plan->token_count <= NEAR_SLOTS / plan->hasher->column_count;
}

/* Where a column's ranks go, token after token. */
struct rank_list {
    uint32_t *ranks;
    size_t stride;
};

/* The keys of a column's rows that are the shard's; *count_out. The others are elsewhere. */
static void
keys_make(struct kvt_engram_plan *plan, const struct engram_bucket *bucket, struct row_span span,
    struct rank_list list, uint32_t *count_out)
{
    uint64_t *restrict keys = plan->keys[0];
    uint32_t count = 0;

    for (uint32_t i = 0; i < plan->token_count; i++) {
        uint32_t row = bucket_row(bucket, plan->hashes[i]);

        keys[count] = (uint64_t)row << 32 | i;
        if (bucket->offset + row - span.first < span.count)
            count++;
        else
            list.ranks[i * list.stride] = KVT_ENGRAM_ELSEWHERE;
    }
    *count_out = count;
}

/* One column, each row once, behind those of the columns before it. */
static void
column_unique(struct kvt_engram_plan *plan, const struct engram_layer *layer, uint32_t column,
    struct engram_plan_layer *target)
{
    const struct engram_bucket *bucket = &layer->buckets[column];
    uint32_t column_count = plan->hasher->column_count;
    bool is_near = plan_is_near(plan);
    const struct rank_list list = {
        is_near ? target->inverse + column : plan->ranks[column % plan->hasher->head_count],
        is_near ? column_count : 1};
    uint32_t count = plan->token_count;
    uint32_t slot_at = target->slot_count;
    uint32_t row_at = target->row_count;
    uint32_t before = UINT32_MAX; /* No row of a column: a prime is at most 2^32 - 1. */
    const uint64_t *keys;

    if (plan->is_part) {
        keys_make(plan, bucket, shard_span(&plan->shard, layer->row_count), list, &count);
    } else {
        for (uint32_t i = 0; i < count; i++)
            plan->keys[0][i] = (uint64_t)bucket_row(bucket, plan->hashes[i]) << 32 | i;
    }
    keys = keys_sort(plan, count, bucket->prime);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t row = (uint32_t)(keys[i] >> 32);
        uint32_t token = (uint32_t)keys[i];

        if (row != before) {
            target->rows[row_at] = bucket->offset + row;
            target->firsts[row_at++] = slot_at;
            before = row;
        }
        target->slots[slot_at++] = token * column_count + column;
        list.ranks[token * list.stride] = row_at - 1;
    }
    target->row_count = row_at;
    target->slot_count = slot_at;
}

/*
 * The inverse of an order's columns, from what column_unique() left in plan->ranks. A column's own
 * places lie a token's slots apart, in the order of rows each in another line: written at once they
 * would miss every cache.
 */
static void
inverse_fill(struct kvt_engram_plan *plan, uint32_t column, struct engram_plan_layer *target)
{
    uint32_t head_count = plan->hasher->head_count;
    uint32_t column_count = plan->hasher->column_count;
    uint32_t *restrict inverse = target->inverse + column;

    for (uint32_t i = 0; i < plan->token_count; i++, inverse += column_count) {
        for (uint32_t h = 0; h < head_count; h++)
            inverse[h] = plan->ranks[h][i];
    }
}

/* --- 6. The plan ------------------------------------------------------------------------------ */

static void
layer_fill(struct kvt_engram_plan *plan, uint32_t index)
{
    const struct kvt_engram_hasher *hasher = plan->hasher;
    const struct engram_layer *layer = &hasher->layers[index];
    struct engram_plan_layer *target = &plan->layers[index];

    hashes_extend(plan, layer, 0);
    for (uint32_t s = 1; s < hasher->order_max; s++) {
        uint32_t column = (s - 1) * hasher->head_count;

        hashes_extend(plan, layer, s);
        if (!plan->is_unique) {
            rows_plain(plan, &layer->buckets[column], column, target);
            continue;
        }
        for (uint32_t h = 0; h < hasher->head_count; h++)
            column_unique(plan, layer, column + h, target);
        if (!plan_is_near(plan))
            inverse_fill(plan, column, target);
    }
    if (plan->is_unique)
        target->firsts[target->row_count] = target->slot_count;
    else
        target->row_count = plan->token_count * hasher->column_count;
}

static enum kvt_status
sequence_check(const struct kvt_engram_plan *plan, const struct kvt_engram_sequence *sequence,
    uint64_t *token_count)
{
    if (sequence->tokens == NULL && sequence->token_count > 0)
        return failure_set(KVT_E_INVAL, 0, "the tokens of a sequence are NULL");
    if (sequence->history_count > sequence->token_count)
        return failure_set(KVT_E_INVAL, 0, "%u tokens of a sequence of %u are history",
            sequence->history_count, sequence->token_count);
    *token_count += sequence->token_count - sequence->history_count;
    if (*token_count > plan->token_count_max)
        return failure_set(KVT_E_INVAL, 0, "more tokens than the plan's %u", plan->token_count_max);
    return KVT_OK;
}

enum kvt_status
kvt_engram_plan_fill(kvt_engram_plan *plan, const struct kvt_engram_sequence *sequences,
    uint32_t count, uint32_t flags)
{
    uint64_t token_count = 0;

    if (plan == NULL)
        return failure_set(KVT_E_INVAL, 0, "plan is NULL");
    plan->token_count = 0;
    plan->is_unique = false;
    plan->is_part = plan->shard.rank_count > 1;
    for (uint32_t i = 0; i < plan->hasher->layer_count; i++)
        plan->layers[i].row_count = plan->layers[i].slot_count = 0;
    if (sequences == NULL && count > 0)
        return failure_set(KVT_E_INVAL, 0, "sequences is NULL");
    if ((flags & ~(uint32_t)KVT_ENGRAM_UNIQUE) != 0)
        return failure_set(KVT_E_INVAL, 0, "flags 0x%x: only KVT_ENGRAM_UNIQUE is known", flags);
    if (plan->is_part && flags == 0)
        return failure_set(KVT_E_INVAL, 0, "rows of one rank take KVT_ENGRAM_UNIQUE");
    for (uint32_t i = 0; i < count; i++)
        KVT_TRY(sequence_check(plan, &sequences[i], &token_count));
    for (uint32_t i = 0; i < count; i++) {
        enum kvt_status status = sequence_windows(plan, &sequences[i]);

        if (status != KVT_OK) {
            plan->token_count = 0;
            return status;
        }
    }
    plan->is_unique = (flags & KVT_ENGRAM_UNIQUE) != 0;
    for (uint32_t i = 0; i < plan->hasher->layer_count; i++)
        layer_fill(plan, i);
    return KVT_OK;
}

enum kvt_status
kvt_engram_plan_rows(const kvt_engram_plan *plan, uint32_t index, struct kvt_engram_rows *rows_out)
{
    const struct engram_plan_layer *layer;

    if (plan == NULL || rows_out == NULL || index >= plan->hasher->layer_count)
        return failure_set(
            KVT_E_INVAL, 0, "plan or rows_out is NULL, or there is no layer %u", index);
    layer = &plan->layers[index];
    *rows_out = (struct kvt_engram_rows){
        .layer = plan->hasher->layers[index].number,
        .column_count = plan->hasher->column_count,
        .slot_count = plan->token_count * plan->hasher->column_count,
        .row_count = layer->row_count,
        .rows = layer->rows,
        .inverse = plan->is_unique ? layer->inverse : NULL,
        .slots = plan->is_unique ? layer->slots : NULL,
        .firsts = plan->is_unique ? layer->firsts : NULL,
    };
    return KVT_OK;
}
