/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_profile.c - manifests of Engram tables: those that are built in, and what all must keep.
 *
 * Primes are stored as distances from the number at which the model's search begins; offsets are
 * their running sums. Multipliers are what numpy's default_rng(10007 * layer) gave when the models
 * were made. They are kept as numbers, because numpy promises no stability of its streams.
 */
#include "engram_internal.h"

#include "bytes.h"
#include "failure.h"
#include "try.h"

enum {
    PROFILE_BYTES_MAX = 1 << 20, /* A longer struct_size is a mistake. */
    V41_CLASS_COUNT = 99092,
    V41_TOKEN_COUNT = 129280,
};

/* What is built in of one layer. */
struct layer_facts {
    uint32_t number;
    uint64_t multipliers[4];
    uint16_t primes[24];
};

static const struct layer_facts v41_layers[] = {
    {.number = 1,
        .multipliers = {76632096046245, 4839876093313, 35959672319349, 73987337458391},
        .primes = {57, 79, 81, 97, 121, 129, 133, 183, 189, 207, 211, 253, 277, 289, 307, 321, 339,
            381, 393, 399, 403, 409, 447, 463}},
    {.number = 14,
        .multipliers = {67716810739261, 51510806800915, 30921347202721, 82619226485591},
        .primes = {477, 487, 499, 507, 511, 573, 609, 627, 667, 669, 693, 697, 711, 729, 759, 769,
            781, 799, 813, 819, 841, 877, 879, 889}},
};

static const struct layer_facts demo_layers[] = {
    {.number = 1,
        .multipliers = {76632096046245, 4839876093313, 35959672319349},
        .primes = {3, 11, 21, 23, 33, 53, 119, 123, 137, 143, 149, 171, 173, 177, 209, 219}},
    {.number = 15,
        .multipliers = {28919099099511, 56020370062535, 53929037264533},
        .primes = {231, 237, 243, 269, 287, 321, 357, 371, 381, 423, 431, 437, 443, 459, 473, 479}},
};

static const struct layer_facts qwen_layers[] = {
    {.number = 2, .primes = {3, 23, 33, 47, 59, 63, 69, 77, 81, 93, 107, 147, 153, 159, 161, 171}},
};

/* Everything but the layers. */
static const struct kvt_engram_profile v41_profile = {
    .layer_count = 2,
    .order_max = 4,
    .head_count = 8,
    .class_count = V41_CLASS_COUNT,
    .pad_class = 2,
    .token_count = V41_TOKEN_COUNT,
    .pad_token = 2,
    .encoding = KVT_ENGRAM_E4M3_E8M0,
    .row_bytes = 264,
    .value_count = 256,
    .scale_count = 8,
};

static const struct kvt_engram_profile demo_profile = {
    .layer_count = 2,
    .order_max = 3,
    .head_count = 8,
    .class_count = V41_CLASS_COUNT,
    .pad_class = 2,
    .token_count = V41_TOKEN_COUNT,
    .pad_token = 2,
    .encoding = KVT_ENGRAM_BF16,
    .row_bytes = 128,
    .value_count = 64,
};

static const struct kvt_engram_profile qwen_profile = {
    .layer_count = 1,
    .order_max = 3,
    .head_count = 8,
    .class_count = 248320,
    .pad_class = UINT32_MAX,
    .encoding = KVT_ENGRAM_BYTES,
    .row_bytes = 160,
};

static const struct {
    enum kvt_engram_model model;
    const struct kvt_engram_profile *profile;
    const struct layer_facts *layers;
    uint32_t prime_base;
} models[] = {
    {KVT_ENGRAM_DEEPSEEK_V41_FLASH, &v41_profile, v41_layers, 16000000},
    {KVT_ENGRAM_PAPER_DEMO, &demo_profile, demo_layers, 646400},
    {KVT_ENGRAM_QWEN38_FLASH_NEXT, &qwen_profile, qwen_layers, 20000000},
};

static void
layer_fill(struct kvt_engram_layer *layer, const struct layer_facts *facts, uint32_t prime_base,
    uint32_t column_count)
{
    layer->number = facts->number;
    for (uint32_t s = 0; s < 4; s++)
        layer->multipliers[s] = facts->multipliers[s];
    for (uint32_t column = 0; column < column_count; column++) {
        layer->primes[column] = prime_base + facts->primes[column];
        layer->offsets[column] = layer->row_count;
        layer->row_count += layer->primes[column];
    }
}

enum kvt_status
kvt_engram_profile_get(enum kvt_engram_model model, struct kvt_engram_profile *profile_out)
{
    if (profile_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "profile_out is NULL");
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        struct kvt_engram_profile profile = *models[i].profile;

        if (models[i].model != model)
            continue;
        profile.struct_size = sizeof(profile);
        for (uint32_t l = 0; l < profile.layer_count; l++)
            layer_fill(&profile.layers[l], &models[i].layers[l], models[i].prime_base,
                (profile.order_max - 1) * profile.head_count);
        *profile_out = profile;
        return KVT_OK;
    }
    return failure_set(KVT_E_UNSUPPORTED, 0, "model %d is not built in", (int)model);
}

/* --- Bounds ----------------------------------------------------------------------------------- */

static enum kvt_status
multipliers_check(const struct kvt_engram_profile *profile, uint32_t index)
{
    const struct kvt_engram_layer *layer = &profile->layers[index];

    for (uint32_t s = 0; s < profile->order_max; s++) {
        if ((layer->multipliers[s] & 1) == 0)
            return failure_set(KVT_E_INVAL, 0, "layers[%u].multipliers[%u] %llu is not odd", index,
                s, (unsigned long long)layer->multipliers[s]);
        if (layer->multipliers[s] > (UINT64_MAX >> 1) / profile->class_count)
            return failure_set(KVT_E_INVAL, 0,
                "layers[%u].multipliers[%u] %llu times %u classes is above 2^63", index, s,
                (unsigned long long)layer->multipliers[s], profile->class_count);
    }
    return KVT_OK;
}

static enum kvt_status
layer_check(const struct kvt_engram_profile *profile, uint32_t index)
{
    const struct kvt_engram_layer *layer = &profile->layers[index];
    uint64_t rows = 0;

    KVT_TRY(multipliers_check(profile, index));
    for (uint32_t i = 0; i < (profile->order_max - 1) * profile->head_count; i++) {
        if (layer->primes[i] < 2)
            return failure_set(
                KVT_E_INVAL, 0, "layers[%u].primes[%u] is %u", index, i, layer->primes[i]);
        if (layer->offsets[i] != rows)
            return failure_set(KVT_E_INVAL, 0,
                "layers[%u].offsets[%u] is %u: the columns before it have %llu rows", index, i,
                layer->offsets[i], (unsigned long long)rows);
        rows += layer->primes[i];
        if (rows > UINT32_MAX)
            return failure_set(KVT_E_INVAL, 0, "layers[%u] has 2^32 rows or more", index);
    }
    if (layer->row_count < rows)
        return failure_set(KVT_E_INVAL, 0, "layers[%u].row_count %u: its columns have %llu", index,
            layer->row_count, (unsigned long long)rows);
    return KVT_OK;
}

enum kvt_status
engram_row_check(const struct kvt_engram_profile *profile)
{
    uint64_t bytes = profile->row_bytes;

    switch (profile->encoding) {
    case KVT_ENGRAM_BYTES:
        break;
    case KVT_ENGRAM_E4M3_E8M0:
        if (profile->scale_count == 0 || profile->value_count == 0 ||
            profile->value_count % profile->scale_count != 0)
            return failure_set(KVT_E_INVAL, 0, "%u values do not divide into %u groups",
                profile->value_count, profile->scale_count);
        bytes = (uint64_t)profile->value_count + profile->scale_count;
        break;
    case KVT_ENGRAM_BF16:
        bytes = (uint64_t)profile->value_count * 2;
        break;
    default:
        return failure_set(KVT_E_INVAL, 0, "encoding %u", profile->encoding);
    }
    if (profile->row_bytes == 0 || bytes != profile->row_bytes)
        return failure_set(KVT_E_INVAL, 0, "row_bytes %u: %u values and %u scales have %llu",
            profile->row_bytes, profile->value_count, profile->scale_count,
            (unsigned long long)bytes);
    return KVT_OK;
}

static enum kvt_status
profile_check(const struct kvt_engram_profile *profile)
{
    if (profile->layer_count == 0 || profile->layer_count > KVT_ENGRAM_LAYERS_MAX)
        return failure_set(KVT_E_INVAL, 0, "layer_count %u is not in 1..%u", profile->layer_count,
            KVT_ENGRAM_LAYERS_MAX);
    if (profile->order_max < 2 || profile->order_max > KVT_ENGRAM_ORDER_MAX)
        return failure_set(KVT_E_INVAL, 0, "order_max %u is not in 2..%u", profile->order_max,
            KVT_ENGRAM_ORDER_MAX);
    if (profile->head_count == 0 ||
        profile->head_count > KVT_ENGRAM_COLUMNS_MAX / (profile->order_max - 1))
        return failure_set(KVT_E_INVAL, 0, "%u heads of %u orders are not 1..%u columns",
            profile->head_count, profile->order_max - 1, KVT_ENGRAM_COLUMNS_MAX);
    if (profile->class_count == 0 || profile->class_count == UINT32_MAX)
        return failure_set(KVT_E_INVAL, 0, "class_count %u", profile->class_count);
    if (profile->pad_class >= profile->class_count)
        return failure_set(KVT_E_INVAL, 0, "pad_class %u: there are %u classes", profile->pad_class,
            profile->class_count);
    if (profile->token_count != 0 && profile->pad_token >= profile->token_count)
        return failure_set(KVT_E_INVAL, 0, "pad_token %u: there are %u tokens", profile->pad_token,
            profile->token_count);
    KVT_TRY(engram_row_check(profile));
    for (uint32_t i = 0; i < profile->layer_count; i++)
        KVT_TRY(layer_check(profile, i));
    return KVT_OK;
}

enum kvt_status
engram_profile_import(struct kvt_engram_profile *target, const struct kvt_engram_profile *source)
{
    size_t size = source->struct_size;

    if (size < ENGRAM_PROFILE_SIZE_V1 || size > PROFILE_BYTES_MAX)
        return failure_set(KVT_E_INVAL, 0, "struct_size %zu is not in %d..%d", size,
            (int)ENGRAM_PROFILE_SIZE_V1, PROFILE_BYTES_MAX);
    if (!bytes_are_zero((const char *)source + sizeof(*target), size - sizeof(*target)))
        return failure_set(KVT_E_UNSUPPORTED, 0,
            "struct_size %zu: a field that this version does not know is set", size);
    memcpy(target, source, sizeof(*target));
    target->struct_size = sizeof(*target);
    return profile_check(target);
}

enum kvt_status
kvt_engram_profile_check(const struct kvt_engram_profile *profile)
{
    struct kvt_engram_profile copy;

    if (profile == NULL)
        return failure_set(KVT_E_INVAL, 0, "profile is NULL");
    return engram_profile_import(&copy, profile);
}
