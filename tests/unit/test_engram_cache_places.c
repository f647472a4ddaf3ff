/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_engram_cache_places.c - the cache of rows on a device alone: its places against a model of
 * what fetches have in flight, and its judgement with a clock of the test's own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "device_host.h"
#include "engram_cache.h"
#include "engram_cache_device.h"
#include "engram_tags.h"
#include "rng.h"
#include "stop_on_proof.h"

enum {
    ROW_BYTES = 264,
    TINY_ROWS = 32,
    PAGE_NS = 100000,
};

/* A clock that goes on by `step_ns` each time that it is read. */
struct own_clock {
    uint64_t now_ns, step_ns;
};

static uint64_t
own_now(void *context)
{
    struct own_clock *clock = context;

    return clock->now_ns += clock->step_ns;
}

static const struct clock_ops own_clock_ops = {.now_ns = own_now};

struct alone {
    struct own_clock clock;
    struct kvt_env env;
    struct device_host_config config;
    struct device *device;
    struct engram_cache_device *cache;
};

static void
alone_open(struct alone *alone, uint64_t capacity_bytes)
{
    memset(alone, 0, sizeof(*alone));
    alone->clock = (struct own_clock){.now_ns = 1, .step_ns = 100};
    env_host(&alone->env);
    assert_int_equal(device_host_ops.open(&alone->config, &alone->env, 0, &alone->device), KVT_OK);
    alone->env.clock = &own_clock_ops;
    alone->env.clock_context = &alone->clock;
    assert_int_equal(engram_cache_device_open(
                         &alone->env, alone->device, capacity_bytes, ROW_BYTES, &alone->cache),
        KVT_OK);
}

static void
alone_close(struct alone *alone)
{
    engram_cache_device_close(alone->cache);
    device_host_ops.close(alone->device);
}

enum use {
    USE_NONE,
    USE_READ,
    USE_FILL,
};

/* What fetches have in pull. */
struct model_use {
    enum use use;
    uint32_t row;
    const void *place;
};

/* Of all places in use, nobody else's: they are read by several, or filled by one. */
static void
place_check(const struct model_use *uses, uint32_t count, const struct model_use *mine)
{
    for (uint32_t i = 0; i < count; i++) {
        if (&uses[i] == mine || uses[i].use == USE_NONE || uses[i].place != mine->place)
            continue;
        assert_int_equal(uses[i].use, USE_READ);
        assert_int_equal(mine->use, USE_READ);
        assert_int_equal(uses[i].row, mine->row);
    }
}

static void
use_begin(struct engram_cache_device *cache, struct model_use *use, uint32_t number, uint32_t row)
{
    use->row = row;
    if (engram_cache_device_find(cache, row, NULL)) {
        engram_cache_device_hold(cache, row);
        use->use = USE_READ;
        use->place = engram_cache_device_source(cache, row);
        assert_null(engram_cache_device_target(cache, row, number));
    } else if (engram_cache_device_keep(cache, row, number)) {
        use->use = USE_FILL;
        use->place = engram_cache_device_target(cache, row, number);
        assert_non_null(use->place);
        assert_null(engram_cache_device_target(cache, row, number + 1));
        assert_false(engram_cache_device_find(cache, row, NULL));
        assert_false(engram_cache_device_keep(cache, row, number + 1));
        /* No other's word ends it. */
        engram_cache_device_filled(cache, row, number + 1, true);
        assert_false(engram_cache_device_find(cache, row, NULL));
    }
}

static void
use_end(struct engram_cache_device *cache, struct model_use *use, uint32_t number, bool is_there)
{
    if (use->use == USE_READ) {
        assert_ptr_equal(engram_cache_device_source(cache, use->row), use->place);
        engram_cache_device_release(cache, use->row);
    } else {
        assert_ptr_equal(engram_cache_device_target(cache, use->row, number), use->place);
        engram_cache_device_filled(cache, use->row, number, is_there);
        assert_int_equal(engram_cache_device_find(cache, use->row, NULL), is_there);
    }
    use->use = USE_NONE;
}

static void
places_in_use_are_left_alone(void **state)
{
    struct model_use uses[40] = {0};
    struct rng rng = {.state = 3};
    struct alone alone;
    uint32_t refused = 0;

    (void)state;
    alone_open(&alone, TINY_ROWS * ROW_BYTES);
    alone.cache->judge.is_on = true;
    for (uint32_t i = 0; i < 200000; i++) {
        uint32_t number = rng_below(&rng, 40);
        struct model_use *use = &uses[number];

        if (use->use != USE_NONE) {
            use_end(alone.cache, use, number, rng_below(&rng, 4) != 0);
            continue;
        }
        use_begin(alone.cache, use, number, rng_below(&rng, 60));
        refused += use->use == USE_NONE;
        if (use->use != USE_NONE)
            place_check(uses, 40, use);
    }
    assert_in_range(refused, 1, 100000);
    assert_in_range(alone.cache->judge.counts.hit_count, 10000, 200000);
    alone_close(&alone);
}

/* Rows below `range`, each at once there; how many were found. */
static uint32_t
rows_pass(struct alone *alone, struct rng *rng, uint32_t range, const struct cache_prices *prices,
    struct engram_judge *host)
{
    uint32_t hits = 0;

    for (uint32_t i = 0; i < CACHE_WINDOW_ROWS; i++) {
        uint32_t row = rng_below(rng, range);

        if (engram_cache_device_find(alone->cache, row, host)) {
            engram_cache_device_hold(alone->cache, row);
            engram_cache_device_release(alone->cache, row);
            hits++;
        } else if (engram_cache_device_keep(alone->cache, row, 7)) {
            engram_cache_device_filled(alone->cache, row, 7, true);
        }
        if (host != NULL)
            engram_judge_pass(host, row);
        (void)engram_cache_device_judge(alone->cache, prices);
    }
    return hits;
}

static void
it_is_on_while_it_pays(void **state)
{
    const struct cache_prices nothing = {0};
    const struct cache_prices dear = {.page_ns = PAGE_NS, .in_ns = 500, .within_ns = 400};
    const struct cache_prices slow = {.page_ns = PAGE_NS, .in_ns = 500, .within_ns = 2 * PAGE_NS};
    struct rng rng = {.state = 1};
    struct alone alone;

    (void)state;
    alone_open(&alone, 1 << 20);
    /* Off while nobody knows what a page takes. */
    assert_int_equal(rows_pass(&alone, &rng, 1000, &nothing, NULL), 0);
    assert_int_equal(alone.cache->judge.worth_ns, 0);
    (void)rows_pass(&alone, &rng, 1000, &dear, NULL);
    assert_true(alone.cache->judge.is_on);
    (void)rows_pass(&alone, &rng, 1000, &dear, NULL);
    assert_true(rows_pass(&alone, &rng, 1000, &dear, NULL) > CACHE_WINDOW_ROWS * 9 / 10);
    /* The clock's step, once for each row, and the copy of those that were found. */
    assert_in_range(alone.cache->judge.cost_ns, 400, 600);
    assert_in_range(alone.cache->judge.worth_ns, PAGE_NS * 9 / 10, PAGE_NS + 500);
    /* Copies within the device that take as long as two pages. */
    (void)rows_pass(&alone, &rng, 1000, &slow, NULL);
    assert_false(alone.cache->judge.is_on);
    assert_true(alone.cache->judge.cost_ns > alone.cache->judge.worth_ns);
    /* That is believed less and less. */
    for (uint32_t i = 0; i < 30 && !alone.cache->judge.is_on; i++)
        (void)rows_pass(&alone, &rng, 1000, &dear, NULL);
    assert_true(alone.cache->judge.is_on);
    /* Nothing comes again. */
    (void)rows_pass(&alone, &rng, UINT32_MAX, &dear, NULL);
    (void)rows_pass(&alone, &rng, UINT32_MAX, &dear, NULL);
    assert_false(alone.cache->judge.is_on);
    alone_close(&alone);
}

/* What a cache in host memory has, too, costs a copy and no read. */
static void
what_the_host_has_is_worth_a_copy(void **state)
{
    const struct cache_prices cheap = {.page_ns = PAGE_NS, .in_ns = 300, .host_ns = 200};
    const struct cache_prices dear = {.page_ns = PAGE_NS, .in_ns = 1500, .host_ns = 200};
    struct engram_cache *host = NULL;
    struct rng rng = {.state = 1};
    struct alone alone;

    (void)state;
    alone_open(&alone, 1 << 20);
    assert_int_equal(engram_cache_open(&alone.env, 1 << 20, ROW_BYTES, &host), KVT_OK);
    host->judge.is_on = true;
    for (uint32_t i = 0; i < 4; i++)
        (void)rows_pass(&alone, &rng, 1000, &cheap, &host->judge);
    assert_in_range(alone.cache->judge.worth_ns, 450, 500);
    assert_false(alone.cache->judge.is_on);
    (void)rows_pass(&alone, &rng, 1000, &dear, &host->judge);
    assert_in_range(alone.cache->judge.worth_ns, 1600, 1700);
    assert_true(alone.cache->judge.is_on);
    /* One that is off has nothing. */
    host->judge.is_on = false;
    (void)rows_pass(&alone, &rng, 1000, &cheap, &host->judge);
    assert_true(alone.cache->judge.worth_ns > PAGE_NS / 2);
    engram_cache_close(host);
    alone_close(&alone);
}

static void
its_memory_is_bounded_and_taken_at_once(void **state)
{
    struct device_info before, after;
    struct rng rng = {.state = 1};
    struct alone alone;

    (void)state;
    for (uint64_t capacity = 256 << 10; capacity < 100 << 20; capacity = capacity * 3 + 4567) {
        alone_open(&alone, capacity);
        assert_in_range(alone.cache->rows_bytes, capacity - 8 * ROW_BYTES, capacity);
        assert_true(alone.cache->memory_bytes <= alone.cache->rows_bytes / ROW_BYTES * 9 + 1024);
        assert_int_equal(alone.device->ops->info(alone.device, &before), KVT_OK);
        alone.cache->judge.is_on = true;
        for (uint32_t i = 0; i < 10000; i++) {
            uint32_t row = rng_below(&rng, UINT32_MAX);
            uintptr_t at;

            assert_true(engram_cache_device_keep(alone.cache, row, 1));
            at = (uintptr_t)engram_cache_device_target(alone.cache, row, 1);
            assert_in_range(at, (uintptr_t)alone.cache->rows,
                (uintptr_t)alone.cache->rows + alone.cache->rows_bytes - ROW_BYTES);
            engram_cache_device_filled(alone.cache, row, 1, true);
        }
        assert_int_equal(alone.device->ops->info(alone.device, &after), KVT_OK);
        assert_int_equal(before.free_bytes, after.free_bytes);
        alone_close(&alone);
    }
}

/* Whatever bit they differ in: of one set, so that only the tags tell them apart. */
static void
no_row_is_taken_for_another(void **state)
{
    static uint64_t memory[16];
    struct engram_tags tags;

    (void)state;
    assert_in_range(engram_tags_bytes(1), 1, sizeof(memory));
    (void)engram_tags_place(&tags, 1, (uint8_t *)memory);
    for (uint32_t bit = 0; bit < 32; bit++) {
        uint32_t row = UINT32_C(0x2AAAAAAA) >> (bit % 2);
        size_t at = engram_tags_take(&tags, row, NULL);

        assert_int_equal(engram_tags_look(&tags, row), at);
        assert_true(engram_tags_look(&tags, row ^ UINT32_C(1) << bit) == SIZE_MAX);
        engram_tags_drop(&tags, at);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_in_use_are_left_alone),
        cmocka_unit_test(it_is_on_while_it_pays),
        cmocka_unit_test(what_the_host_has_is_worth_a_copy),
        cmocka_unit_test(its_memory_is_bounded_and_taken_at_once),
        cmocka_unit_test(no_row_is_taken_for_another),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
