/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_engram_shards.c - plans of the rows of one rank: every row is some rank's, and only one's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kvtier/kvtier.h"
#include "rng.h"
#include "stop_on_proof.h"

enum {
    TOKENS = 6000,
};

/* A plan of all rows, and one of a rank's. */
struct fixture {
    struct kvt_engram_profile profile;
    kvt_engram_hasher *hasher;
    kvt_engram_plan *whole, *part;
};

static void
fixture_open(struct fixture *fixture, enum kvt_engram_model model)
{
    assert_int_equal(kvt_engram_profile_get(model, &fixture->profile), KVT_OK);
    assert_int_equal(kvt_engram_hasher_open(&fixture->profile, NULL, 0, &fixture->hasher), KVT_OK);
    assert_int_equal(kvt_engram_plan_create(fixture->hasher, TOKENS, &fixture->whole), KVT_OK);
    assert_int_equal(kvt_engram_plan_create(fixture->hasher, TOKENS, &fixture->part), KVT_OK);
}

static void
fixture_close(struct fixture *fixture)
{
    kvt_engram_plan_destroy(fixture->whole);
    kvt_engram_plan_destroy(fixture->part);
    kvt_engram_hasher_close(fixture->hasher);
}

/* Plans of all ranks: each slot has its row at exactly one of them. */
static void
ranks_agree(
    const struct fixture *fixture, const struct kvt_engram_sequence *sequence, uint32_t rank_count)
{
    kvt_engram_plan *part = fixture->part;
    static uint8_t owners[2][TOKENS * 24];
    struct kvt_engram_rows all, own;

    memset(owners, 0, sizeof(owners));
    for (uint32_t rank = 0; rank < rank_count; rank++) {
        const struct kvt_engram_shard shard = {.rank = rank, .rank_count = rank_count};

        assert_int_equal(kvt_engram_plan_shard(part, &shard), KVT_OK);
        assert_int_equal(kvt_engram_plan_fill(part, sequence, 1, KVT_ENGRAM_UNIQUE), KVT_OK);
        for (uint32_t layer = 0; layer < 2; layer++) {
            uint32_t count = fixture->profile.layers[layer].row_count;
            uint32_t part_rows = (count + rank_count - 1) / rank_count;
            uint32_t own_slots = 0;

            assert_int_equal(kvt_engram_plan_rows(fixture->whole, layer, &all), KVT_OK);
            assert_int_equal(kvt_engram_plan_rows(part, layer, &own), KVT_OK);
            assert_int_equal(own.slot_count, all.slot_count);
            for (uint32_t j = 0; j < own.row_count; j++) {
                assert_int_equal(own.rows[j] / part_rows, rank);
                assert_true(j == 0 || own.rows[j] > own.rows[j - 1]);
            }
            for (uint32_t i = 0; i < own.slot_count; i++) {
                uint32_t row = all.rows[all.inverse[i]];

                if (row / part_rows != rank) {
                    assert_int_equal(own.inverse[i], KVT_ENGRAM_ELSEWHERE);
                    continue;
                }
                assert_true(own.inverse[i] < own.row_count);
                assert_int_equal(own.rows[own.inverse[i]], row);
                owners[layer][i]++;
                own_slots++;
            }
            /* Its slots, and no others, in the order of their rows. */
            assert_int_equal(own.firsts[own.row_count], own_slots);
            for (uint32_t j = 0; j < own.row_count; j++) {
                assert_true(own.firsts[j] < own.firsts[j + 1]);
                for (uint32_t k = own.firsts[j]; k < own.firsts[j + 1]; k++)
                    assert_int_equal(own.inverse[own.slots[k]], j);
            }
        }
    }
    for (uint32_t layer = 0; layer < 2; layer++) {
        for (uint32_t i = 0; i < all.slot_count; i++)
            assert_int_equal(owners[layer][i], 1);
    }
}

static void
ranks_have_each_row_once(void **state)
{
    static const enum kvt_engram_model models[] = {
        KVT_ENGRAM_DEEPSEEK_V41_FLASH, KVT_ENGRAM_PAPER_DEMO};
    static uint32_t tokens[TOKENS];

    (void)state;
    for (uint32_t m = 0; m < 2; m++) {
        struct rng rng = {.state = 77 + m};
        struct fixture fixture;

        fixture_open(&fixture, models[m]);
        for (uint32_t i = 0; i < TOKENS; i++)
            tokens[i] = i >= 4 && rng_below(&rng, 3) == 0
                            ? tokens[i - 4]
                            : rng_below(&rng, fixture.profile.class_count);
        for (uint32_t ranks = 1; ranks <= 32; ranks++) {
            /* So many that the inverse is written after the sorting, once. */
            const struct kvt_engram_sequence sequence = {
                .tokens = tokens, .token_count = ranks == 8 ? TOKENS : 300};

            assert_int_equal(
                kvt_engram_plan_fill(fixture.whole, &sequence, 1, KVT_ENGRAM_UNIQUE), KVT_OK);
            ranks_agree(&fixture, &sequence, ranks);
        }
        fixture_close(&fixture);
    }
}

static void
shards_share_out_all_rows(void **state)
{
    static const uint32_t counts[] = {1, 2, 31, 384006168, 384016682, UINT32_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (uint32_t ranks = 1; ranks <= KVT_ENGRAM_RANKS_MAX; ranks = ranks * 2 + ranks % 3) {
            uint64_t at = 0;

            for (uint32_t rank = 0; rank < ranks; rank++) {
                const struct kvt_engram_shard shard = {.rank = rank, .rank_count = ranks};
                uint32_t first = 0, count = 0;

                assert_int_equal(kvt_engram_shard_rows(&shard, counts[i], &first, &count), KVT_OK);
                assert_int_equal(first, at);
                at += count;
            }
            assert_int_equal(at, counts[i]);
        }
    }
}

static void
wrong_shards_are_refused(void **state)
{
    static const struct kvt_engram_shard fine = {.rank = 1, .rank_count = 2},
                                         wrong[] = {{0, 0}, {2, 2}, {0, KVT_ENGRAM_RANKS_MAX + 1}};
    const uint32_t tokens[] = {1, 2};
    const struct kvt_engram_sequence sequence = {.tokens = tokens, .token_count = 2};
    struct fixture fixture;
    uint32_t first, count;

    (void)state;
    fixture_open(&fixture, KVT_ENGRAM_PAPER_DEMO);
    assert_int_equal(kvt_engram_plan_shard(NULL, &fine), KVT_E_INVAL);
    assert_int_equal(kvt_engram_plan_shard(fixture.part, NULL), KVT_E_INVAL);
    assert_int_equal(kvt_engram_shard_rows(NULL, 10, &first, &count), KVT_E_INVAL);
    assert_int_equal(kvt_engram_shard_rows(&fine, 10, NULL, &count), KVT_E_INVAL);
    assert_int_equal(kvt_engram_shard_rows(&fine, 10, &first, NULL), KVT_E_INVAL);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(kvt_engram_plan_shard(fixture.part, &wrong[i]), KVT_E_INVAL);
        assert_int_equal(kvt_engram_shard_rows(&wrong[i], 10, &first, &count), KVT_E_INVAL);
    }
    assert_int_equal(kvt_engram_plan_shard(fixture.part, &fine), KVT_OK);
    assert_int_equal(kvt_engram_plan_fill(fixture.part, &sequence, 1, 0), KVT_E_INVAL);
    fixture_close(&fixture);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_have_each_row_once),
        cmocka_unit_test(shards_share_out_all_rows),
        cmocka_unit_test(wrong_shards_are_refused),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
