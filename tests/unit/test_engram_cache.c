/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_engram_cache.c - rows that are kept while that pays: the cache alone against a model, and
 * fetches in a simulation, with streams for which it pays and for which it does not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engram_cache.h"
#include "engram_rig.h"
#include "engram_set.h"
#include "rng.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_kit.h"

enum {
    ROW_BYTES = 264,
    TOKENS = 300,
    COLUMNS = 4,
    SLOTS = TOKENS * COLUMNS,
    PAGE_NS = 100000, /* To read a page; */
    LOOK_NS = 200,    /* to look for a row, or to keep it. */
};

static const struct kvt_options options = {.struct_size = sizeof(struct kvt_options),
    .host_capacity_bytes = 2 << 20,
    .nvme_capacity_bytes = 64 << 20,
    .segment_bytes = 1 << 20,
    .block_bytes_max = 64 << 10};

/* --- The cache alone -------------------------------------------------------------------------- */

static void
row_make(uint32_t row, uint8_t bytes[ROW_BYTES])
{
    struct rng rng = {.state = row + 1};

    for (uint32_t i = 0; i < ROW_BYTES; i++)
        bytes[i] = (uint8_t)rng_next(&rng);
}

/* Look for rows below `range`, and keep what was not found; how many were. */
static uint32_t
rows_pass(struct engram_cache *cache, struct rng *rng, uint32_t count, uint32_t range)
{
    uint32_t hits = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t row = rng_below(rng, range);
        uint8_t wanted[ROW_BYTES], got[ROW_BYTES];

        row_make(row, wanted);
        if (engram_cache_find(cache, row, got)) {
            assert_memory_equal(got, wanted, ROW_BYTES);
            hits++;
        } else {
            engram_cache_keep(cache, row, wanted);
        }
        (void)engram_cache_judge(cache, PAGE_NS);
    }
    return hits;
}

/* What the cache measures is what it costs, however busy the machine is. */
static uint64_t
look_now(void *context)
{
    uint64_t *now_ns = context;

    return *now_ns += LOOK_NS;
}

static struct engram_cache *
cache_make(uint64_t bytes)
{
    static const struct clock_ops clock = {.now_ns = look_now};
    static uint64_t now_ns;
    struct engram_cache *cache = NULL;
    struct kvt_env env;

    env_host(&env);
    env.clock = &clock;
    env.clock_context = &now_ns;
    assert_int_equal(engram_cache_open(&env, bytes, ROW_BYTES, &cache), KVT_OK);
    assert_true(cache->memory_bytes <= bytes);
    return cache;
}

static void
rows_that_come_again_are_kept_and_right(void **state)
{
    struct engram_cache *cache = cache_make(1 << 20);
    struct rng rng = {.state = 1};

    (void)state;
    /* Off until the first window was judged. */
    assert_int_equal(rows_pass(cache, &rng, CACHE_WINDOW_ROWS - 1, 2000), 0);
    assert_int_equal(cache->judge.counts.row_count, 0);
    (void)rows_pass(cache, &rng, CACHE_WINDOW_ROWS, 2000);
    assert_true(cache->judge.is_on);
    assert_true(rows_pass(cache, &rng, CACHE_WINDOW_ROWS, 2000) > CACHE_WINDOW_ROWS * 9 / 10);
    engram_cache_close(cache);
}

static void
the_sample_foresees_the_rate_of_hits(void **state)
{
    static const uint32_t ranges[] = {3000, 6000, 12000, 40000};

    (void)state;
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        struct engram_cache *cache = cache_make(1 << 20);
        struct rng rng = {.state = i};
        uint32_t hits;
        double seen;

        cache->judge.is_on = true;
        (void)rows_pass(cache, &rng, 10 * CACHE_WINDOW_ROWS, ranges[i]);
        memset(&cache->judge.counts, 0, sizeof(cache->judge.counts));
        cache->judge.is_on = true;
        hits = rows_pass(cache, &rng, 8 * CACHE_WINDOW_ROWS, ranges[i]);
        seen = (double)cache->judge.counts.seen_hit_count / (double)cache->judge.counts.seen_count;
        assert_true(cache->judge.counts.seen_count > 1000);
        assert_true(seen > (double)hits / (8 * CACHE_WINDOW_ROWS) - 0.1);
        assert_true(seen < (double)hits / (8 * CACHE_WINDOW_ROWS) + 0.1);
        engram_cache_close(cache);
    }
}

/* Rows of one pass do not drive out those that are asked for again and again. */
static void
rows_that_come_once_pass_through(void **state)
{
    struct engram_cache *cache = cache_make(1 << 20);
    struct rng rng = {.state = 1};
    uint32_t once = 1000000, hits = 0;

    (void)state;
    (void)rows_pass(cache, &rng, 3 * CACHE_WINDOW_ROWS, 1000);
    assert_true(cache->judge.is_on);
    for (uint32_t round = 0; round < 40; round++) {
        for (uint32_t i = 0; i < 500; i++) {
            uint8_t bytes[ROW_BYTES];

            row_make(once, bytes);
            assert_false(engram_cache_find(cache, once, bytes));
            engram_cache_keep(cache, once++, bytes);
        }
        hits += rows_pass(cache, &rng, 1000, 1000);
    }
    assert_true(hits > 40 * 1000 * 9 / 10);
    engram_cache_close(cache);
}

/* --- Fetches ---------------------------------------------------------------------------------- */

struct fixture {
    struct sim_store sim;
    struct engram_rig rig;
    kvt_engram_hasher *hasher;
    kvt_engram_plan *plan;
    kvt_engram *table;
    struct rng rng;
    uint8_t rows[SLOTS * ROW_BYTES];
};

static struct fixture fixture;

static int
setup(void **state)
{
    (void)state;
    memset(&fixture, 0, sizeof(fixture));
    engram_rig_init(&fixture.rig, "t", ROW_BYTES, 20000);
    sim_store_open(&fixture.sim, &options);
    assert_int_equal(engram_rig_import(&fixture.rig, fixture.sim.store, "t", 0), KVT_OK);
    assert_int_equal(kvt_engram_open(fixture.sim.store, "t", &fixture.table), KVT_OK);
    assert_int_equal(
        kvt_engram_hasher_open(&fixture.rig.profile, NULL, 0, &fixture.hasher), KVT_OK);
    assert_int_equal(kvt_engram_plan_create(fixture.hasher, TOKENS, &fixture.plan), KVT_OK);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    kvt_engram_plan_destroy(fixture.plan);
    kvt_engram_hasher_close(fixture.hasher);
    assert_int_equal(kvt_engram_close(fixture.table), KVT_OK);
    sim_store_close(&fixture.sim);
    return 0;
}

/* A step whose tokens are below `range`, each its own sequence of two. */
static void
fetch_step(uint32_t range)
{
    const struct kvt_engram_target target = {
        .table = fixture.table, .destination = fixture.rows, .capacity = sizeof(fixture.rows)};
    struct kvt_engram_rows rows;
    kvt_engram_fetch *fetch;
    uint32_t tokens[TOKENS];
    struct kvt_engram_sequence sequences[TOKENS];

    for (uint32_t i = 0; i < TOKENS; i++) {
        tokens[i] = rng_below(&fixture.rng, range);
        sequences[i] = (struct kvt_engram_sequence){
            .tokens = tokens + i - i % 2, .token_count = i % 2 + 1u, .history_count = i % 2};
    }
    assert_int_equal(
        kvt_engram_plan_fill(fixture.plan, sequences, TOKENS, KVT_ENGRAM_UNIQUE), KVT_OK);
    assert_int_equal(kvt_engram_fetch_submit(fixture.plan, &target, 1, &fetch), KVT_OK);
    assert_int_equal(kvt_engram_fetch_wait(fetch, 0, KVT_FOREVER, NULL), KVT_OK);
    kvt_engram_fetch_free(fetch);
    assert_int_equal(kvt_engram_plan_rows(fixture.plan, 0, &rows), KVT_OK);
    for (uint32_t i = 0; i < rows.slot_count; i++) {
        uint8_t wanted[ROW_BYTES];

        engram_rig_row(&fixture.rig, 0, rows.rows[rows.inverse[i]], wanted);
        assert_memory_equal(fixture.rows + (size_t)i * ROW_BYTES, wanted, ROW_BYTES);
    }
}

static void
a_stream_that_repeats_itself_turns_the_cache_on(void **state)
{
    uint64_t pages;

    (void)state;
    assert_int_equal(kvt_engram_cache(fixture.table, 4 << 20), KVT_OK);
    for (uint32_t i = 0; i < 120; i++)
        fetch_step(20);
    assert_int_equal(kit_stats(fixture.sim.store).engram_cache_on_now, 1);
    assert_true(kit_stats(fixture.sim.store).engram_cache_hit_count > 0);
    assert_true(kit_stats(fixture.sim.store).engram_cache_worth_ns_now >
                kit_stats(fixture.sim.store).engram_cache_cost_ns_now);
    assert_true(kit_stats(fixture.sim.store).engram_cache_sample_hit_count > 0);
    /* Few pages are read any more. */
    pages = kit_stats(fixture.sim.store).engram_page_count;
    for (uint32_t i = 0; i < 20; i++)
        fetch_step(20);
    assert_true(kit_stats(fixture.sim.store).engram_page_count - pages < 20 * SLOTS / 100);
    assert_int_equal(kvt_engram_close(fixture.table), KVT_OK);
    assert_int_equal(kit_stats(fixture.sim.store).engram_cache_on_now, 0);
    assert_int_equal(kvt_engram_open(fixture.sim.store, "t", &fixture.table), KVT_OK);
}

static void
a_stream_without_repetition_leaves_it_off(void **state)
{
    (void)state;
    assert_int_equal(kvt_engram_cache(fixture.table, CACHE_BYTES_MIN), KVT_OK);
    for (uint32_t i = 0; i < 60; i++)
        fetch_step(RIG_CLASSES);
    assert_true(kit_stats(fixture.sim.store).engram_cache_sample_count > 1000);
    assert_int_equal(
        fixture.table->cache->judge.is_on, kit_stats(fixture.sim.store).engram_cache_on_now);
    assert_true(kit_stats(fixture.sim.store).engram_cache_sample_hit_count <
                kit_stats(fixture.sim.store).engram_cache_sample_count / 4);
}

static void
a_cache_that_does_not_pay_any_more_is_left(void **state)
{
    struct engram_cache *cache = cache_make(1 << 20);
    struct rng rng = {.state = 1};

    (void)state;
    (void)rows_pass(cache, &rng, 3 * CACHE_WINDOW_ROWS, 1000);
    assert_true(cache->judge.is_on);
    (void)rows_pass(cache, &rng, 3 * CACHE_WINDOW_ROWS, UINT32_MAX);
    assert_false(cache->judge.is_on);
    assert_true(cache->judge.worth_ns < cache->judge.cost_ns);
    engram_cache_close(cache);
}

/* A moment in which everything took long does not keep it off for ever. */
static void
a_cache_that_was_slow_once_is_tried_again(void **state)
{
    struct engram_cache *cache = cache_make(1 << 20);
    struct rng rng = {.state = 1};

    (void)state;
    cache->judge.cost_ns = 200000;
    (void)rows_pass(cache, &rng, 3 * CACHE_WINDOW_ROWS, 1000);
    assert_false(cache->judge.is_on);
    (void)rows_pass(cache, &rng, 30 * CACHE_WINDOW_ROWS, 1000);
    assert_true(cache->judge.is_on);
    engram_cache_close(cache);
}

static void
wrong_caches_are_refused(void **state)
{
    (void)state;
    assert_int_equal(kvt_engram_cache(NULL, 4 << 20), KVT_E_INVAL);
    assert_int_equal(kvt_engram_cache(fixture.table, CACHE_BYTES_MIN - 1), KVT_E_INVAL);
    assert_int_equal(kvt_engram_cache(fixture.table, UINT64_MAX), KVT_E_INVAL);
    for (uint64_t nth = 1; nth <= 2; nth++) {
        sim_memory_fail(fixture.sim.world, nth, false);
        assert_int_equal(kvt_engram_cache(fixture.table, 4 << 20), KVT_E_NOMEM);
    }
    assert_int_equal(kvt_engram_cache(fixture.table, 4 << 20), KVT_OK);
    assert_int_equal(kvt_engram_cache(fixture.table, 4 << 20), KVT_E_STATE);
}

#define SIM(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_come_again_are_kept_and_right),
        cmocka_unit_test(the_sample_foresees_the_rate_of_hits),
        cmocka_unit_test(rows_that_come_once_pass_through),
        cmocka_unit_test(a_cache_that_does_not_pay_any_more_is_left),
        cmocka_unit_test(a_cache_that_was_slow_once_is_tried_again),
        SIM(a_stream_that_repeats_itself_turns_the_cache_on),
        SIM(a_stream_without_repetition_leaves_it_off),
        SIM(wrong_caches_are_refused),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
