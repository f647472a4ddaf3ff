/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_engram.c - profiles of Engram tables and the rows that tokens need: published vectors, an
 * oracle that divides, and every bound.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engram_oracle.h"
#include "failure.h"
#include "kvtier/kvtier.h"
#include "rng.h"
#include "stop_on_proof.h"

#define DEAD KVT_ENGRAM_DEAD

/* A hasher that takes classes, and a plan. */
struct fixture {
    struct kvt_engram_profile profile;
    kvt_engram_hasher *hasher;
    kvt_engram_plan *plan;
};

static void
fixture_open(struct fixture *fixture, enum kvt_engram_model model, uint32_t token_count_max)
{
    assert_int_equal(kvt_engram_profile_get(model, &fixture->profile), KVT_OK);
    assert_int_equal(kvt_engram_hasher_open(&fixture->profile, NULL, 0, &fixture->hasher), KVT_OK);
    assert_int_equal(
        kvt_engram_plan_create(fixture->hasher, token_count_max, &fixture->plan), KVT_OK);
}

static void
fixture_close(struct fixture *fixture)
{
    kvt_engram_plan_destroy(fixture->plan);
    kvt_engram_hasher_close(fixture->hasher);
}

static void
fill(struct fixture *fixture, const uint32_t *tokens, uint32_t count, uint32_t history,
    uint32_t flags)
{
    const struct kvt_engram_sequence sequence = {
        .tokens = tokens, .token_count = count, .history_count = history};

    assert_int_equal(kvt_engram_plan_fill(fixture->plan, &sequence, 1, flags), KVT_OK);
}

static struct kvt_engram_rows
rows_of(struct fixture *fixture, uint32_t layer)
{
    struct kvt_engram_rows rows;

    assert_int_equal(kvt_engram_plan_rows(fixture->plan, layer, &rows), KVT_OK);
    return rows;
}

/* --- Profiles --------------------------------------------------------------------------------- */

static void
primes_are_those_that_the_search_finds(void **state)
{
    static const struct {
        enum kvt_engram_model model;
        uint32_t base;
        uint32_t rows[2];
    } cases[] = {
        {KVT_ENGRAM_DEEPSEEK_V41_FLASH, 16000000, {384006168, 384016682}},
        {KVT_ENGRAM_PAPER_DEMO, 646400, {10344164, 10348242}},
        {KVT_ENGRAM_QWEN38_FLASH_NEXT, 20000000, {320001446, 0}},
    };
    uint32_t primes[KVT_ENGRAM_LAYERS_MAX][KVT_ENGRAM_COLUMNS_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct kvt_engram_profile profile;

        assert_int_equal(kvt_engram_profile_get(cases[i].model, &profile), KVT_OK);
        oracle_primes(
            cases[i].base, profile.layer_count, profile.order_max, profile.head_count, primes);
        for (uint32_t layer = 0; layer < profile.layer_count; layer++) {
            uint64_t sum = 0;

            for (uint32_t c = 0; c < (profile.order_max - 1) * profile.head_count; c++) {
                assert_int_equal(profile.layers[layer].primes[c], primes[layer][c]);
                assert_int_equal(profile.layers[layer].offsets[c], sum);
                sum += primes[layer][c];
            }
            assert_int_equal(sum, cases[i].rows[layer]);
            assert_int_equal(profile.layers[layer].row_count, sum);
        }
    }
}

static void
multipliers_are_those_that_the_generator_gives(void **state)
{
    static const enum kvt_engram_model models[] = {
        KVT_ENGRAM_DEEPSEEK_V41_FLASH, KVT_ENGRAM_PAPER_DEMO};
    uint64_t multipliers[KVT_ENGRAM_ORDER_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        struct kvt_engram_profile profile;

        assert_int_equal(kvt_engram_profile_get(models[i], &profile), KVT_OK);
        for (uint32_t layer = 0; layer < profile.layer_count; layer++) {
            oracle_multipliers(10007 * profile.layers[layer].number, profile.class_count,
                profile.order_max, multipliers);
            assert_memory_equal(profile.layers[layer].multipliers, multipliers,
                profile.order_max * sizeof(multipliers[0]));
        }
    }
}

static void
built_in_profiles_are_whole_but_for_what_a_checkpoint_must_say(void **state)
{
    struct kvt_engram_profile profile;

    (void)state;
    assert_int_equal(kvt_engram_profile_get(KVT_ENGRAM_DEEPSEEK_V41_FLASH, &profile), KVT_OK);
    assert_int_equal(kvt_engram_profile_check(&profile), KVT_OK);
    assert_int_equal(kvt_engram_profile_get(KVT_ENGRAM_PAPER_DEMO, &profile), KVT_OK);
    assert_int_equal(kvt_engram_profile_check(&profile), KVT_OK);
    assert_int_equal(kvt_engram_profile_get(KVT_ENGRAM_QWEN38_FLASH_NEXT, &profile), KVT_OK);
    assert_int_equal(kvt_engram_profile_check(&profile), KVT_E_INVAL);
    profile.pad_class = 7;
    assert_int_equal(kvt_engram_profile_check(&profile), KVT_E_INVAL);
    for (uint32_t s = 0; s < profile.order_max; s++)
        profile.layers[0].multipliers[s] = 12345 + 2 * s;
    profile.layers[0].row_count = 320001536; /* Padded, as published. */
    assert_int_equal(kvt_engram_profile_check(&profile), KVT_OK);
    assert_int_equal(kvt_engram_profile_get((enum kvt_engram_model)0, &profile), KVT_E_UNSUPPORTED);
    assert_int_equal(kvt_engram_profile_get(KVT_ENGRAM_PAPER_DEMO, NULL), KVT_E_INVAL);
}

static void
profiles_out_of_bounds_are_refused(void **state)
{
    struct kvt_engram_profile good, bad;

#define REFUSED(change)                                                \
    do {                                                               \
        bad = good;                                                    \
        change;                                                        \
        assert_int_equal(kvt_engram_profile_check(&bad), KVT_E_INVAL); \
    } while (0)

    (void)state;
    assert_int_equal(kvt_engram_profile_get(KVT_ENGRAM_DEEPSEEK_V41_FLASH, &good), KVT_OK);
    REFUSED(bad.struct_size--);
    REFUSED(bad.struct_size = UINT32_MAX);
    REFUSED(bad.layer_count = 0);
    REFUSED(bad.layer_count = KVT_ENGRAM_LAYERS_MAX + 1);
    REFUSED(bad.order_max = 1);
    REFUSED(bad.order_max = KVT_ENGRAM_ORDER_MAX + 1);
    REFUSED(bad.head_count = 0);
    REFUSED(bad.head_count = 22);
    REFUSED(bad.head_count = UINT32_MAX);
    REFUSED(bad.class_count = 0);
    REFUSED(bad.class_count = UINT32_MAX);
    REFUSED(bad.pad_class = bad.class_count);
    REFUSED(bad.pad_token = bad.token_count);
    REFUSED(bad.encoding = 3);
    REFUSED(bad.row_bytes = 263);
    REFUSED(bad.scale_count = 0);
    REFUSED(bad.scale_count = 7);
    REFUSED(bad.value_count = 0);
    REFUSED(bad.layers[1].multipliers[3] = 2);
    REFUSED(bad.layers[1].multipliers[0] = (UINT64_MAX >> 1) / bad.class_count + 2);
    REFUSED(bad.layers[0].primes[0] = 1);
    REFUSED(bad.layers[0].offsets[23]++);
    REFUSED(bad.layers[1].row_count--);
    REFUSED(bad.layers[0].primes[23] = UINT32_MAX);
    assert_int_equal(kvt_engram_profile_check(NULL), KVT_E_INVAL);
    assert_int_equal(kvt_engram_profile_check(&good), KVT_OK);
#undef REFUSED
}

/* Each encoding, each pair of small counts, each length: only what has values is a row of them. */
static void
rows_without_values_or_scales_are_refused(void **state)
{
    struct kvt_engram_profile profile;

    (void)state;
    assert_int_equal(kvt_engram_profile_get(KVT_ENGRAM_DEEPSEEK_V41_FLASH, &profile), KVT_OK);
    for (uint32_t i = 0; i < 4 * 5 * 5 * 12; i++) {
        uint32_t values = i / 4 % 5, scales = i / 20 % 5, bytes = i / 100;
        bool is_fine = bytes > 0;

        profile.encoding = i % 4;
        profile.value_count = values;
        profile.scale_count = scales;
        profile.row_bytes = bytes;
        if (i % 4 == KVT_ENGRAM_E4M3_E8M0)
            is_fine = values > 0 && scales > 0 && values % scales == 0 && values + scales == bytes;
        else if (i % 4 == KVT_ENGRAM_BF16)
            is_fine = values > 0 && 2 * values == bytes;
        else if (i % 4 != KVT_ENGRAM_BYTES)
            is_fine = false;
        assert_int_equal(kvt_engram_profile_check(&profile), is_fine ? KVT_OK : KVT_E_INVAL);
        if (i % 4 == KVT_ENGRAM_E4M3_E8M0 && !is_fine)
            assert_int_equal(kvt_engram_dequantise(&profile, NULL, 0, NULL), KVT_E_INVAL);
    }
}

static void
longer_profiles_are_taken_when_the_rest_is_zero(void **state)
{
    struct {
        struct kvt_engram_profile profile;
        uint32_t later[4];
    } longer = {.later = {0}};
    kvt_engram_hasher *hasher;

    (void)state;
    assert_int_equal(kvt_engram_profile_get(KVT_ENGRAM_PAPER_DEMO, &longer.profile), KVT_OK);
    longer.profile.struct_size = sizeof(longer);
    assert_int_equal(kvt_engram_profile_check(&longer.profile), KVT_OK);
    longer.later[3] = 1;
    assert_int_equal(kvt_engram_profile_check(&longer.profile), KVT_E_UNSUPPORTED);
    assert_int_equal(kvt_engram_hasher_open(&longer.profile, NULL, 0, &hasher), KVT_E_UNSUPPORTED);
    assert_null(hasher);
}

/* --- Class maps ------------------------------------------------------------------------------- */

static void
a_class_map_must_be_the_one_of_the_profile(void **state)
{
    struct kvt_engram_profile profile;
    kvt_engram_hasher *hasher;
    uint32_t map[10] = {0, 1, 2, 1, 3, 0, 4, 4, 5, 5};

    (void)state;
    assert_int_equal(kvt_engram_profile_get(KVT_ENGRAM_PAPER_DEMO, &profile), KVT_OK);
    profile.token_count = 10;
    profile.class_count = 6;
    assert_int_equal(kvt_engram_hasher_open(&profile, map, 10, &hasher), KVT_OK);
    kvt_engram_hasher_close(hasher);
    assert_int_equal(kvt_engram_map_hash(map, 10, profile.class_map_sha256), KVT_OK);
    assert_int_equal(kvt_engram_hasher_open(&profile, map, 10, &hasher), KVT_OK);
    kvt_engram_hasher_close(hasher);

    map[9] = 4; /* The same classes, and another map. */
    assert_int_equal(kvt_engram_hasher_open(&profile, map, 10, &hasher), KVT_E_INVAL);
    assert_non_null(strstr(failure_last()->text, "SHA-256"));
    assert_null(hasher);
    memset(profile.class_map_sha256, 0, sizeof(profile.class_map_sha256));
    assert_int_equal(kvt_engram_hasher_open(&profile, map, 10, &hasher), KVT_OK);
    kvt_engram_hasher_close(hasher);
    map[8] = 4; /* One class less. */
    assert_int_equal(kvt_engram_hasher_open(&profile, map, 10, &hasher), KVT_E_INVAL);
    assert_non_null(strstr(failure_last()->text, "5 classes, the profile 6"));
    map[8] = 6; /* Not numbered as they come. */
    assert_int_equal(kvt_engram_hasher_open(&profile, map, 10, &hasher), KVT_E_INVAL);
    map[8] = 5;
    profile.pad_class = 3;
    assert_int_equal(kvt_engram_hasher_open(&profile, map, 10, &hasher), KVT_E_INVAL);
    assert_non_null(strstr(failure_last()->text, "pad token"));
    profile.pad_class = 2;
    assert_int_equal(kvt_engram_hasher_open(&profile, map, 9, &hasher), KVT_E_INVAL);
    assert_int_equal(kvt_engram_hasher_open(&profile, NULL, 10, &hasher), KVT_E_INVAL);
    assert_int_equal(kvt_engram_hasher_open(&profile, map, 0, &hasher), KVT_E_INVAL);
    assert_int_equal(kvt_engram_hasher_open(NULL, map, 10, &hasher), KVT_E_INVAL);
    assert_int_equal(kvt_engram_hasher_open(&profile, map, 10, NULL), KVT_E_INVAL);
    assert_int_equal(kvt_engram_hasher_open(&profile, map, 10, &hasher), KVT_OK);
    kvt_engram_hasher_close(hasher);
    kvt_engram_hasher_close(NULL);
}

static void
tokens_are_hashed_by_their_classes(void **state)
{
    static const uint32_t map[10] = {0, 1, 2, 1, 3, 0, 4, 4, 5, 5};
    static const uint32_t tokens[] = {9, 7, 3, DEAD, 0, 5};
    static const uint32_t classes[] = {5, 4, 1, DEAD, 0, 0};
    const struct kvt_engram_sequence sequence = {.tokens = tokens, .token_count = 6};
    struct kvt_engram_sequence wrong = {.tokens = (const uint32_t[]){10}, .token_count = 1};
    struct kvt_engram_profile profile;
    struct kvt_engram_rows rows;
    kvt_engram_hasher *hasher;
    kvt_engram_plan *plan;

    (void)state;
    assert_int_equal(kvt_engram_profile_get(KVT_ENGRAM_DEEPSEEK_V41_FLASH, &profile), KVT_OK);
    profile.token_count = 10;
    profile.class_count = 6;
    assert_int_equal(kvt_engram_hasher_open(&profile, map, 10, &hasher), KVT_OK);
    assert_int_equal(kvt_engram_plan_create(hasher, 6, &plan), KVT_OK);
    assert_int_equal(kvt_engram_plan_fill(plan, &sequence, 1, 0), KVT_OK);
    assert_int_equal(kvt_engram_plan_rows(plan, 1, &rows), KVT_OK);
    for (uint32_t i = 0; i < rows.slot_count; i++)
        assert_int_equal(rows.rows[i], oracle_row(&profile, 1, classes, i / 24, i % 24));
    assert_int_equal(kvt_engram_plan_fill(plan, &wrong, 1, 0), KVT_E_INVAL);
    assert_int_equal(kvt_engram_plan_rows(plan, 1, &rows), KVT_OK);
    assert_int_equal(rows.row_count, 0);
    kvt_engram_plan_destroy(plan);
    kvt_engram_hasher_close(hasher);
}

/* --- Rows ------------------------------------------------------------------------------------- */

static void
vector_a_gives_the_published_rows(void **state)
{
    static const uint32_t tokens[] = {1000, 2000, 3000, 4000};
    static const uint32_t wanted[2][24] = {
        {15465977, 28790835, 32971381, 50776212, 70685234, 88308810, 97180690, 115458442, 130437439,
            147954272, 164404239, 187601822, 193743686, 213368287, 235496802, 240837074, 261497777,
            281534125, 295127654, 310093209, 325466156, 340619041, 353861828, 370049875},
        {531236, 19249339, 45052628, 57007057, 71010245, 82245460, 99433893, 116549208, 136118722,
            154953410, 173178409, 178921715, 199111094, 209268856, 237367362, 252206497, 257108840,
            284056046, 289026701, 314018640, 331002487, 337033192, 356038043, 371061263},
    };
    struct fixture fixture;

    (void)state;
    fixture_open(&fixture, KVT_ENGRAM_DEEPSEEK_V41_FLASH, 1);
    fill(&fixture, tokens, 4, 3, 0);
    for (uint32_t layer = 0; layer < 2; layer++) {
        struct kvt_engram_rows rows = rows_of(&fixture, layer);

        assert_int_equal(rows.layer, layer == 0 ? 1 : 14);
        assert_int_equal(rows.row_count, 24);
        assert_memory_equal(rows.rows, wanted[layer], sizeof(wanted[layer]));
    }
    fixture_close(&fixture);
}

/* Heads 0 of orders 2, 3 and 4 of both layers, for the last token. */
static void
assert_heads(const uint32_t *tokens, uint32_t count, const uint32_t wanted[6])
{
    struct fixture fixture;

    fixture_open(&fixture, KVT_ENGRAM_DEEPSEEK_V41_FLASH, 4);
    fill(&fixture, tokens, count, count - 1, 0);
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(rows_of(&fixture, i / 3).rows[i % 3 * 8], wanted[i]);
    fixture_close(&fixture);
}

static void
vector_b_pads_before_the_start_of_a_sequence(void **state)
{
    static const uint32_t tokens[] = {4000};
    static const uint32_t wanted[] = {
        5166492, 129748150, 271186983, 12417736, 135003109, 260718563};

    (void)state;
    assert_heads(tokens, 1, wanted);
}

static void
vector_c_pads_behind_a_dead_token_and_all_before_it(void **state)
{
    static const uint32_t tokens[] = {1000, DEAD, 3000, 4000};
    static const uint32_t wanted[] = {15465977, 143104226, 258721394, 531236, 133821855, 268688662};

    (void)state;
    assert_heads(tokens, 4, wanted);
}

static void
tokens_fill(struct rng *rng, uint32_t *tokens, uint32_t count, uint32_t class_count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t chance = rng_next(rng) % 16;

        tokens[i] = (uint32_t)(rng_next(rng) % class_count);
        if (chance == 0)
            tokens[i] = DEAD;
        else if (chance < 6 && i >= 4) /* So that N-grams come again. */
            tokens[i] = tokens[i - 4];
        else if (chance == 6)
            tokens[i] = class_count - 1;
    }
}

static void
assert_unique(const struct kvt_engram_rows *rows, uint32_t i, uint32_t wanted)
{
    assert_in_range(rows->inverse[i], 0, rows->row_count - 1);
    assert_int_equal(rows->rows[rows->inverse[i]], wanted);
}

/* Rows rise, and each slot is among those of its row. */
static void
assert_sorted(const struct kvt_engram_rows *rows)
{
    assert_int_equal(rows->firsts[0], 0);
    assert_int_equal(rows->firsts[rows->row_count], rows->slot_count);
    for (uint32_t j = 0; j < rows->row_count; j++) {
        if (j > 0)
            assert_true(rows->rows[j] > rows->rows[j - 1]);
        assert_true(rows->firsts[j] < rows->firsts[j + 1]);
        for (uint32_t k = rows->firsts[j]; k < rows->firsts[j + 1]; k++) {
            assert_int_equal(rows->inverse[rows->slots[k]], j);
            if (k > rows->firsts[j])
                assert_true(rows->slots[k] > rows->slots[k - 1]);
        }
    }
}

enum {
    SEQUENCES = 6,
    TOKENS = 5000,
};

/* Random batches of one model, both kinds of plan, against the oracle. */
static void
batches_agree(enum kvt_engram_model model, uint64_t seed, uint32_t tokens_max)
{
    static uint32_t tokens[SEQUENCES][TOKENS];
    struct kvt_engram_sequence sequences[SEQUENCES];
    struct rng rng = {.state = seed};
    struct fixture fixture;

    fixture_open(&fixture, model, SEQUENCES * tokens_max);
    for (uint32_t flags = 0; flags <= KVT_ENGRAM_UNIQUE; flags++) {
        for (uint32_t i = 0; i < SEQUENCES; i++) {
            uint32_t count = (uint32_t)(rng_next(&rng) % (tokens_max + 1));

            tokens_fill(&rng, tokens[i], count, fixture.profile.class_count);
            sequences[i] = (struct kvt_engram_sequence){.tokens = tokens[i],
                .token_count = count,
                .history_count = (uint32_t)(rng_next(&rng) % (count + 1)) / (1 + i % 3)};
        }
        assert_int_equal(kvt_engram_plan_fill(fixture.plan, sequences, SEQUENCES, flags), KVT_OK);
        for (uint32_t layer = 0; layer < fixture.profile.layer_count; layer++) {
            struct kvt_engram_rows rows = rows_of(&fixture, layer);
            uint32_t slot = 0;

            for (uint32_t i = 0; i < SEQUENCES; i++) {
                for (uint32_t at = sequences[i].history_count; at < sequences[i].token_count;
                     at++) {
                    for (uint32_t column = 0; column < rows.column_count; column++, slot++) {
                        uint32_t wanted =
                            oracle_row(&fixture.profile, layer, tokens[i], at, column);

                        if (flags == 0)
                            assert_int_equal(rows.rows[slot], wanted);
                        else
                            assert_unique(&rows, slot, wanted);
                    }
                }
            }
            assert_int_equal(rows.slot_count, slot);
            if (flags != 0)
                assert_sorted(&rows);
        }
    }
    fixture_close(&fixture);
}

static void
plans_of_random_batches_agree_with_divisions(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        batches_agree(KVT_ENGRAM_DEEPSEEK_V41_FLASH, seed, (uint32_t)(seed * seed));
        batches_agree(KVT_ENGRAM_PAPER_DEMO, seed, (uint32_t)(seed * seed));
    }
    batches_agree(KVT_ENGRAM_DEEPSEEK_V41_FLASH, 99, 700); /* Every width of digits. */
    /* An inverse that is written after the sorting of its columns. */
    batches_agree(KVT_ENGRAM_DEEPSEEK_V41_FLASH, 100, TOKENS);
}

/* Primes of every size, powers of two among them: what the reciprocals must take. */
static void
any_number_of_rows_a_column_is_addressed_exactly(void **state)
{
    static uint32_t tokens[400];
    struct rng rng = {.state = 5};

    (void)state;
    for (uint32_t round = 0; round < 20; round++) {
        const struct kvt_engram_sequence sequence = {.tokens = tokens, .token_count = 400};
        struct kvt_engram_profile profile;
        struct kvt_engram_rows rows;
        kvt_engram_hasher *hasher;
        kvt_engram_plan *plan;
        uint32_t sum = 0;

        assert_int_equal(kvt_engram_profile_get(KVT_ENGRAM_DEEPSEEK_V41_FLASH, &profile), KVT_OK);
        profile.layer_count = 1;
        for (uint32_t c = 0; c < 24; c++) {
            uint32_t bits = 1 + (c + round) % 26;

            profile.layers[0].primes[c] =
                round % 2 == 0 ? 1u << bits : 2 + (uint32_t)(rng_next(&rng) % (1u << bits));
            profile.layers[0].offsets[c] = sum;
            sum += profile.layers[0].primes[c];
        }
        profile.layers[0].row_count = sum;
        for (uint32_t s = 0; s < 4; s++)
            profile.layers[0].multipliers[s] =
                (rng_next(&rng) % ((UINT64_MAX >> 1) / profile.class_count)) | 1;
        tokens_fill(&rng, tokens, 400, profile.class_count);
        assert_int_equal(kvt_engram_hasher_open(&profile, NULL, 0, &hasher), KVT_OK);
        assert_int_equal(kvt_engram_plan_create(hasher, 400, &plan), KVT_OK);
        assert_int_equal(kvt_engram_plan_fill(plan, &sequence, 1, KVT_ENGRAM_UNIQUE), KVT_OK);
        assert_int_equal(kvt_engram_plan_rows(plan, 0, &rows), KVT_OK);
        for (uint32_t i = 0; i < rows.slot_count; i++)
            assert_unique(&rows, i, oracle_row(&profile, 0, tokens, i / 24, i % 24));
        assert_sorted(&rows);
        kvt_engram_plan_destroy(plan);
        kvt_engram_hasher_close(hasher);
    }
}

static void
prefill_in_chunks_with_three_tokens_of_history_equals_one_shot(void **state)
{
    static uint32_t tokens[500];
    struct fixture whole, part;
    struct rng rng = {.state = 8};

    (void)state;
    fixture_open(&whole, KVT_ENGRAM_DEEPSEEK_V41_FLASH, 500);
    fixture_open(&part, KVT_ENGRAM_DEEPSEEK_V41_FLASH, 500);
    tokens_fill(&rng, tokens, 500, whole.profile.class_count);
    fill(&whole, tokens, 500, 0, 0);
    for (uint32_t at = 0; at < 500;) {
        uint32_t count = 1 + (uint32_t)(rng_next(&rng) % 40);
        uint32_t history = at < 3 ? at : 3;

        count = count > 500 - at ? 500 - at : count;
        fill(&part, tokens + at - history, history + count, history, 0);
        for (uint32_t layer = 0; layer < 2; layer++)
            assert_memory_equal(rows_of(&part, layer).rows,
                rows_of(&whole, layer).rows + (size_t)at * 24,
                (size_t)count * 24 * sizeof(uint32_t));
        at += count;
    }
    fixture_close(&part);
    fixture_close(&whole);
}

static void
a_plan_is_refused_what_it_cannot_hold(void **state)
{
    static const uint32_t tokens[] = {1, 2, 3, 99092};
    struct kvt_engram_sequence sequence = {.tokens = tokens, .token_count = 3};
    struct kvt_engram_sequence two[2] = {sequence, sequence};
    struct kvt_engram_rows rows;
    struct fixture fixture;
    kvt_engram_plan *plan;

    (void)state;
    fixture_open(&fixture, KVT_ENGRAM_DEEPSEEK_V41_FLASH, 5);
    assert_int_equal(kvt_engram_plan_fill(fixture.plan, two, 2, 0), KVT_E_INVAL);
    two[1].history_count = 1;
    assert_int_equal(kvt_engram_plan_fill(fixture.plan, two, 2, 0), KVT_OK);
    assert_int_equal(rows_of(&fixture, 1).slot_count, 5 * 24);
    assert_int_equal(kvt_engram_plan_fill(fixture.plan, two, 2, 2), KVT_E_INVAL);
    assert_int_equal(rows_of(&fixture, 1).slot_count, 0);
    two[1].history_count = 4;
    assert_int_equal(kvt_engram_plan_fill(fixture.plan, two, 2, 0), KVT_E_INVAL);
    sequence.token_count = 4; /* A class that the profile does not have. */
    assert_int_equal(kvt_engram_plan_fill(fixture.plan, &sequence, 1, 0), KVT_E_INVAL);
    sequence.tokens = NULL;
    assert_int_equal(kvt_engram_plan_fill(fixture.plan, &sequence, 1, 0), KVT_E_INVAL);
    assert_int_equal(kvt_engram_plan_fill(fixture.plan, two, 1, 0), KVT_OK);
    assert_int_equal(kvt_engram_plan_fill(fixture.plan, NULL, 1, 0), KVT_E_INVAL);
    assert_int_equal(rows_of(&fixture, 1).slot_count, 0);
    assert_int_equal(kvt_engram_plan_fill(NULL, two, 1, 0), KVT_E_INVAL);
    assert_int_equal(kvt_engram_plan_fill(fixture.plan, NULL, 0, KVT_ENGRAM_UNIQUE), KVT_OK);
    assert_int_equal(rows_of(&fixture, 0).row_count, 0);
    assert_int_equal(rows_of(&fixture, 0).firsts[0], 0);
    assert_int_equal(kvt_engram_plan_rows(fixture.plan, 2, &rows), KVT_E_INVAL);
    assert_int_equal(kvt_engram_plan_rows(NULL, 0, &rows), KVT_E_INVAL);
    assert_int_equal(kvt_engram_plan_create(fixture.hasher, 0, &plan), KVT_E_INVAL);
    assert_int_equal(
        kvt_engram_plan_create(fixture.hasher, KVT_ENGRAM_TOKENS_MAX + 1, &plan), KVT_E_INVAL);
    assert_int_equal(kvt_engram_plan_create(NULL, 1, &plan), KVT_E_INVAL);
    assert_null(plan);
    fixture_close(&fixture);
    kvt_engram_plan_destroy(NULL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(primes_are_those_that_the_search_finds),
        cmocka_unit_test(multipliers_are_those_that_the_generator_gives),
        cmocka_unit_test(built_in_profiles_are_whole_but_for_what_a_checkpoint_must_say),
        cmocka_unit_test(profiles_out_of_bounds_are_refused),
        cmocka_unit_test(rows_without_values_or_scales_are_refused),
        cmocka_unit_test(longer_profiles_are_taken_when_the_rest_is_zero),
        cmocka_unit_test(a_class_map_must_be_the_one_of_the_profile),
        cmocka_unit_test(tokens_are_hashed_by_their_classes),
        cmocka_unit_test(vector_a_gives_the_published_rows),
        cmocka_unit_test(vector_b_pads_before_the_start_of_a_sequence),
        cmocka_unit_test(vector_c_pads_behind_a_dead_token_and_all_before_it),
        cmocka_unit_test(plans_of_random_batches_agree_with_divisions),
        cmocka_unit_test(any_number_of_rows_a_column_is_addressed_exactly),
        cmocka_unit_test(prefill_in_chunks_with_three_tokens_of_history_equals_one_shot),
        cmocka_unit_test(a_plan_is_refused_what_it_cannot_hold),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
