/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_engram_cache_device.c - rows that are kept in memory of a device: fetches by the dozen over
 * a tiny cache and a device whose copies are late and whose events come out of order; copies that
 * fail, devices that are lost. The cache alone: test_engram_cache_places.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engram_rig.h"
#include "engram_set.h"
#include "hbm_kit.h"
#include "kvtier/kvtier_unstable.h"
#include "rng.h"
#include "sim_store.h"
#include "stop_on_proof.h"

enum {
    ROW_BYTES = 264,
    COLUMNS = 4,
    TOKENS = 24, /* Of a fetch, at most. */
    ROWS_BYTES = TOKENS * COLUMNS * ROW_BYTES,
    PULLS = 8, /* Fetches at once. */
    FILLER = 0x6B,
    TINY_ROWS = 32,
#if defined(__SANITIZE_THREAD__)
    LATE_SEEDS = 5, /* Simulated, in one thread. */
#else
    LATE_SEEDS = 20,
#endif
};

/* --- 1. Fetches ------------------------------------------------------------------------------- */

struct pull {
    kvt_engram_plan *plan;
    kvt_engram_fetch *fetch; /* NULL: none. */
    uint8_t *memory;         /* Of the device. */
    uint8_t host[ROWS_BYTES];
    bool is_host;
};

/* A store with a table and memory of its device. */
struct rig {
    struct engram_rig rows;
    kvt_store *store;
    kvt_engram *table;
    kvt_engram_hasher *hasher;
    kvt_region region;
    struct pull pulls[PULLS];
    struct rng rng;
    uint32_t range; /* Of tokens. */
};

static struct rig rig;

static const struct kvt_options sim_options = {.struct_size = sizeof(struct kvt_options),
    .host_capacity_bytes = 2 << 20,
    .nvme_capacity_bytes = 16 << 20,
    .segment_bytes = 1 << 20,
    .block_bytes_max = 64 << 10,
    .hbm_capacity_bytes = 2 << 20};

/* `memory`: of the device, PULLS * ROWS_BYTES in `region`. */
static void
rig_open(kvt_store *store, void *memory, kvt_region region, uint64_t seed)
{
    memset(&rig, 0, sizeof(rig));
    rig.store = store;
    rig.region = region;
    rig.rng.state = seed;
    rig.range = 30;
    engram_rig_init(&rig.rows, "t", ROW_BYTES, 500);
    assert_int_equal(engram_rig_import(&rig.rows, store, "t", 0), KVT_OK);
    assert_int_equal(kvt_engram_open(store, "t", &rig.table), KVT_OK);
    assert_int_equal(kvt_engram_hasher_open(&rig.rows.profile, NULL, 0, &rig.hasher), KVT_OK);
    for (uint32_t i = 0; i < PULLS; i++) {
        rig.pulls[i].memory = (uint8_t *)((uintptr_t)memory + (uintptr_t)i * ROWS_BYTES);
        assert_int_equal(kvt_engram_plan_create(rig.hasher, TOKENS, &rig.pulls[i].plan), KVT_OK);
    }
}

static void
rig_close(void)
{
    for (uint32_t i = 0; i < PULLS; i++)
        kvt_engram_plan_destroy(rig.pulls[i].plan);
    kvt_engram_hasher_close(rig.hasher);
    assert_int_equal(kvt_engram_close(rig.table), KVT_OK);
}

/* So small that rows drive each other out all the time, and on whatever it pays. */
static struct engram_cache_device *
tiny_cache(void)
{
    struct engram_cache_device *cache = rig.table->device_caches[0];

    if (cache == NULL) {
        assert_int_equal(
            engram_cache_device_open(&rig.store->env, hbm_device(rig.store->devices.tiers[0]),
                TINY_ROWS * ROW_BYTES, ROW_BYTES, &cache),
            KVT_OK);
        rig.table->device_caches[0] = cache;
    }
    engram_rig_cache_on(rig.table, 0);
    return cache;
}

/* Nobody has anything in pull. */
static void
tiny_check(const struct engram_cache_device *cache)
{
    for (uint32_t i = 0; i < TINY_ROWS; i++)
        assert_int_equal(cache->uses[i], 0);
}

static void
pull_begin(struct pull *pull, uint32_t count, bool is_host)
{
    struct kvt_engram_target target = {.table = rig.table,
        .destination = is_host ? pull->host : pull->memory,
        .capacity = ROWS_BYTES,
        .deadline_ns = rng_below(&rig.rng, 3)};
    struct kvt_engram_sequence sequences[TOKENS];
    uint32_t tokens[TOKENS];

    for (uint32_t i = 0; i < count; i++) {
        tokens[i] = rng_below(&rig.rng, rig.range);
        sequences[i] = (struct kvt_engram_sequence){.tokens = tokens + i, .token_count = 1};
    }
    if (!is_host)
        target.region = rig.region;
    pull->is_host = is_host;
    assert_int_equal(kvt_engram_plan_fill(pull->plan, sequences, count, KVT_ENGRAM_UNIQUE), KVT_OK);
    assert_int_equal(kvt_engram_fetch_submit(pull->plan, &target, 1, &pull->fetch), KVT_OK);
}

static void
rows_compare(const struct pull *pull)
{
    uint8_t bytes[ROWS_BYTES], wanted[ROW_BYTES];
    const uint8_t *got = pull->host;
    struct kvt_engram_rows rows;

    if (!pull->is_host) {
        assert_int_equal(kvt_device_read(rig.store, 0, bytes, pull->memory, sizeof(bytes)), KVT_OK);
        got = bytes;
    }
    assert_int_equal(kvt_engram_plan_rows(pull->plan, 0, &rows), KVT_OK);
    for (uint32_t i = 0; i < rows.slot_count; i++) {
        engram_rig_row(&rig.rows, 0, rows.rows[rows.inverse[i]], wanted);
        assert_memory_equal(got + (size_t)i * ROW_BYTES, wanted, ROW_BYTES);
    }
}

static enum kvt_status
pull_end(struct pull *pull)
{
    enum kvt_status status = kvt_engram_fetch_wait(pull->fetch, 0, KVT_FOREVER, NULL);

    kvt_engram_fetch_free(pull->fetch);
    pull->fetch = NULL;
    if (status == KVT_OK)
        rows_compare(pull);
    return status;
}

/* Fetches begin and end by chance; then all have ended. */
static void
pulls_round(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct pull *pull = &rig.pulls[rng_below(&rig.rng, PULLS)];

        if (pull->fetch != NULL)
            assert_int_equal(pull_end(pull), KVT_OK);
        else
            pull_begin(pull, 1 + rng_below(&rig.rng, TOKENS), rng_below(&rig.rng, 10) == 0);
    }
    for (uint32_t i = 0; i < PULLS; i++) {
        if (rig.pulls[i].fetch != NULL)
            assert_int_equal(pull_end(&rig.pulls[i]), KVT_OK);
    }
}

/* --- 2. In a simulation ----------------------------------------------------------------------- */

static struct sim_store sim;
static void *sim_memory;

static void
sim_begin(uint64_t seed)
{
    const struct sim_options world = {.seed = seed, .align_bytes = 512};
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HBM, .size = PULLS * ROWS_BYTES};
    kvt_region region;

    sim_store_open_world(&sim, &sim_options, &world);
    assert_int_equal(kvt_device_alloc(sim.store, 0, about.size, &sim_memory), KVT_OK);
    about.address = sim_memory;
    assert_int_equal(kvt_region_register(sim.store, &about, &region), KVT_OK);
    rig_open(sim.store, sim_memory, region, seed);
}

static void
sim_end(void)
{
    rig_close();
    assert_int_equal(kvt_region_unregister(sim.store, rig.region), KVT_OK);
    kvt_device_free(sim.store, 0, sim_memory, PULLS * ROWS_BYTES);
    sim_store_close(&sim);
}

static void
rows_are_right_however_late_the_device_is(void **state)
{
    uint64_t hits = 0, rows = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= LATE_SEEDS; seed++) {
        struct engram_cache_device *cache;

        sim_begin(seed);
        rig.range = 10 + 5 * (uint32_t)seed;
        for (uint32_t round = 0; round < 10; round++) {
            cache = tiny_cache();
            pulls_round(40);
            tiny_check(cache);
        }
        hits += kit_stats(sim.store).engram_cache_device_hit_count;
        rows += kit_stats(sim.store).engram_cache_device_row_count;
        sim_end();
    }
    assert_in_range(hits, rows / 20, rows);
}

/* So many fetches of one token each, one after the other. */
static void
fetches_run(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        pull_begin(&rig.pulls[0], TOKENS, false);
        assert_int_equal(pull_end(&rig.pulls[0]), KVT_OK);
    }
}

static void
a_stream_that_repeats_itself_turns_it_on(void **state)
{
    struct kvt_stats before, after;

    (void)state;
    sim_begin(1);
    rig.range = 20;
    assert_int_equal(kvt_engram_cache_device(rig.table, 0, 4 << 20), KVT_OK);
    fetches_run(4 * CACHE_WINDOW_ROWS / (TOKENS * COLUMNS / 2));
    before = kit_stats(sim.store);
    assert_int_equal(before.engram_cache_device_on_now, 1);
    assert_true(before.engram_cache_device_hit_count > 0);
    assert_true(before.engram_cache_device_sample_hit_count > 0);
    assert_true(
        before.engram_cache_device_sample_count >= before.engram_cache_device_sample_hit_count);
    assert_true(before.engram_cache_device_worth_ns_now > before.engram_cache_device_cost_ns_now);
    assert_int_equal(before.engram_cache_on_now, 0);
    fetches_run(20);
    after = kit_stats(sim.store);
    assert_int_equal(after.engram_page_count, before.engram_page_count);
    /* Rows for the host are none of its business. */
    pull_begin(&rig.pulls[0], TOKENS, true);
    assert_int_equal(pull_end(&rig.pulls[0]), KVT_OK);
    assert_true(kit_stats(sim.store).engram_page_count > after.engram_page_count);
    assert_int_equal(kvt_engram_close(rig.table), KVT_OK);
    assert_int_equal(kit_stats(sim.store).engram_cache_device_on_now, 0);
    assert_int_equal(kvt_engram_open(sim.store, "t", &rig.table), KVT_OK);
    sim_end();
}

static void
a_stream_without_repetition_leaves_it_off(void **state)
{
    struct kvt_stats stats;

    (void)state;
    sim_begin(1);
    rig.range = RIG_CLASSES;
    assert_int_equal(kvt_engram_cache_device(rig.table, 0, CACHE_BYTES_MIN), KVT_OK);
    rig.table->device_caches[0]->judge.shadow.set_count = 1; /* Smaller than the table. */
    fetches_run(3 * CACHE_WINDOW_ROWS / (TOKENS * COLUMNS / 2));
    stats = kit_stats(sim.store);
    assert_true(stats.engram_cache_device_sample_count > 1000);
    assert_true(
        stats.engram_cache_device_sample_hit_count < stats.engram_cache_device_sample_count / 4);
    assert_true(stats.engram_cache_device_worth_ns_now > 0);
    sim_end();
}

/* What the host's cache has comes to the device's without a read. */
static void
rows_of_the_host_s_cache_are_kept_on_the_device(void **state)
{
    struct engram_cache_device *cache;
    uint64_t pages;

    (void)state;
    sim_begin(1);
    rig.range = 2;
    assert_int_equal(kvt_engram_cache(rig.table, 1 << 20), KVT_OK);
    rig.table->cache->judge.is_on = true;
    pull_begin(&rig.pulls[0], TOKENS, true);
    assert_int_equal(pull_end(&rig.pulls[0]), KVT_OK);
    pages = kit_stats(sim.store).engram_page_count;
    cache = tiny_cache();
    pull_begin(&rig.pulls[0], TOKENS, false);
    assert_int_equal(pull_end(&rig.pulls[0]), KVT_OK);
    assert_int_equal(cache->window_found, 0);
    rig.table->cache->judge.is_on = false;
    pull_begin(&rig.pulls[0], TOKENS, false);
    assert_int_equal(pull_end(&rig.pulls[0]), KVT_OK);
    assert_int_equal(cache->window_found, 2 * COLUMNS);
    assert_int_equal(kit_stats(sim.store).engram_page_count, pages);
    sim_end();
}

static void
wrong_caches_on_devices_are_refused(void **state)
{
    void *rest;

    (void)state;
    sim_begin(1);
    assert_int_equal(kvt_engram_cache_device(NULL, 0, 4 << 20), KVT_E_INVAL);
    assert_int_equal(kvt_engram_cache_device(rig.table, 1, 4 << 20), KVT_E_INVAL);
    assert_int_equal(kvt_engram_cache_device(rig.table, 99, 4 << 20), KVT_E_INVAL);
    assert_int_equal(kvt_engram_cache_device(rig.table, 0, CACHE_BYTES_MIN - 1), KVT_E_INVAL);
    assert_int_equal(kvt_engram_cache_device(rig.table, 0, UINT64_MAX), KVT_E_INVAL);
    for (uint64_t nth = 1; nth <= 2; nth++) {
        sim_memory_fail(sim.world, nth, false);
        assert_int_equal(kvt_engram_cache_device(rig.table, 0, 4 << 20), KVT_E_NOMEM);
    }
    /* The device has 64 MiB. */
    assert_int_equal(kvt_engram_cache_device(rig.table, 0, 100 << 20), KVT_E_NOMEM);
    assert_int_equal(kvt_engram_cache_device(rig.table, 0, 4 << 20), KVT_OK);
    assert_int_equal(kvt_engram_cache_device(rig.table, 0, 4 << 20), KVT_E_STATE);
    /* Its memory comes back with the table's end. */
    assert_int_equal(kvt_device_alloc(sim.store, 0, 58 << 20, &rest), KVT_E_NOMEM);
    assert_int_equal(kvt_engram_close(rig.table), KVT_OK);
    assert_int_equal(kvt_device_alloc(sim.store, 0, 58 << 20, &rest), KVT_OK);
    kvt_device_free(sim.store, 0, rest, 58 << 20);
    assert_int_equal(kvt_engram_open(sim.store, "t", &rig.table), KVT_OK);
    sim_end();
}

/* --- 3. Among threads ------------------------------------------------------------------------- */

static int
setup(void **state)
{
    (void)hbm_setup(state);
    rig_open(hbm.store, hbm.pool, hbm.region, 5);
    return 0;
}

static int
teardown(void **state)
{
    rig_close();
    return hbm_teardown(state);
}

/* The store's next life. */
static void
life_begin(void)
{
    hbm_open_again();
    rig.store = hbm.store;
    rig.region = hbm.region;
    for (uint32_t i = 0; i < PULLS; i++)
        rig.pulls[i].memory = (uint8_t *)((uintptr_t)hbm.pool + (uintptr_t)i * ROWS_BYTES);
    assert_int_equal(kvt_engram_open(hbm.store, "t", &rig.table), KVT_OK);
}

static void
rows_are_right_among_threads(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 30; round++) {
        struct engram_cache_device *cache = tiny_cache();

        rig.range = 10 + 3 * round;
        pulls_round(40);
        tiny_check(cache);
    }
    assert_true(kit_stats(hbm.store).engram_cache_device_hit_count > 0);
}

/* Each call of the device in turn fails this once: what did not arrive is not found. */
static void
a_copy_that_fails_leaves_no_row_behind(void **state)
{
    uint32_t lost = 0;

    (void)state;
    for (uint32_t round = 0; round < 60 || (lost < 10 && round < 3000); round++) {
        struct engram_cache_device *cache = tiny_cache();
        struct rng rng = rig.rng;
        enum kvt_status status;

        rig.range = 200;
        hbm.config.fail_status = KVT_E_NOMEM;
        hbm.config.fail_call = atomic_load(&hbm.config.call_count) + 1 + round % 7;
        pull_begin(&rig.pulls[0], 1, false);
        (void)!kvt_engram_fetch_wait(rig.pulls[0].fetch, 0, KVT_FOREVER, NULL);
        hbm.config.fail_call = 0;
        status = pull_end(&rig.pulls[0]);
        assert_true(status == KVT_OK || status == KVT_E_NOMEM);
        lost += status != KVT_OK;
        tiny_check(cache);
        /* The same rows, once more. */
        rig.rng = rng;
        pull_begin(&rig.pulls[0], 1, false);
        assert_int_equal(pull_end(&rig.pulls[0]), KVT_OK);
        pulls_round(10);
    }
    assert_true(lost >= 10);
}

static void
a_lost_device_has_no_cache(void **state)
{
    uint32_t lost = 0;

    (void)state;
    for (uint32_t round = 0; round < 20; round++) {
        struct engram_cache_device *cache = tiny_cache();

        pulls_round(20);
        (void)tiny_cache();
        hbm.config.fail_status = KVT_E_GPU;
        hbm.config.fail_call = atomic_load(&hbm.config.call_count) + 1 + round * 5;
        for (uint32_t i = 0; i < 40; i++) {
            struct pull *pull = &rig.pulls[i % PULLS];

            if (pull->fetch != NULL) {
                enum kvt_status status = kvt_engram_fetch_wait(pull->fetch, 0, KVT_FOREVER, NULL);

                assert_true(status == KVT_OK || status == KVT_E_GPU);
                lost += status == KVT_E_GPU;
                kvt_engram_fetch_free(pull->fetch);
            }
            pull_begin(pull, TOKENS, false);
        }
        for (uint32_t i = 0; i < PULLS; i++) {
            (void)!kvt_engram_fetch_wait(rig.pulls[i].fetch, 0, KVT_FOREVER, NULL);
            kvt_engram_fetch_free(rig.pulls[i].fetch);
            rig.pulls[i].fetch = NULL;
        }
        if (device_is_lost(hbm.store, 0)) {
            /* Who asks next finds it lost; fetches to the host go on. */
            pull_begin(&rig.pulls[0], TOKENS, false);
            assert_int_equal(pull_end(&rig.pulls[0]), KVT_E_GPU);
            assert_true(cache->is_lost);
            assert_int_equal(kit_stats(hbm.store).engram_cache_device_on_now, 0);
            pull_begin(&rig.pulls[0], TOKENS, true);
            assert_int_equal(pull_end(&rig.pulls[0]), KVT_OK);
        }
        hbm.config.fail_call = 0;
        assert_int_equal(kvt_engram_close(rig.table), KVT_OK);
        hbm_close();
        life_begin();
    }
    assert_true(lost > 0);
}

static void
a_device_that_was_lost_before_is_refused_a_cache(void **state)
{
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    struct device_info info;

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        hbm.config.fail_call = i == 0 ? atomic_load(&hbm.config.call_count) + 1 : 0;
        if (i == 0) /* Nobody knows it yet. */
            assert_int_equal(device->ops->info(device, &info), KVT_E_GPU);
        assert_int_equal(kvt_engram_cache_device(rig.table, 0, 1 << 20), KVT_E_GPU);
        assert_true(device_is_lost(hbm.store, 0));
    }
    pull_begin(&rig.pulls[0], TOKENS, true);
    assert_int_equal(pull_end(&rig.pulls[0]), KVT_OK);
}

/* A table is not closed under its fetches; an abort takes all of it along, whatever is in pull. */
static void
an_abort_takes_the_cache_with_it(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 15; round++) {
        struct kvt_region_options about = {
            .struct_size = sizeof(about), .tier = KVT_TIER_HBM, .size = PULLS * ROWS_BYTES};
        void *memory;

        /* The kit's memory must be given back before the device goes; the tier's own need not. */
        assert_int_equal(kvt_region_unregister(hbm.store, hbm.region), KVT_OK);
        device_host_memory_put(
            hbm_device(hbm.store->devices.tiers[0]), hbm.pool, HBM_POOL_BLOCKS * HBM_BLOCK_BYTES);
        memory = slab_base(hbm_slab(hbm.store->devices.tiers[0]));
        about.address = memory;
        assert_int_equal(kvt_region_register(hbm.store, &about, &rig.region), KVT_OK);
        for (uint32_t i = 0; i < PULLS; i++)
            rig.pulls[i].memory = (uint8_t *)((uintptr_t)memory + (uintptr_t)i * ROWS_BYTES);
        (void)tiny_cache();
        pulls_round(round % 3 * 10);
        (void)tiny_cache();
        for (uint32_t i = 0; i < PULLS; i++)
            pull_begin(&rig.pulls[i], TOKENS, false);
        assert_int_equal(kvt_engram_close(rig.table), KVT_E_STATE);
        (void)!kvt_engram_fetch_wait(rig.pulls[0].fetch, 0, round * 20000, NULL);
        kvt_abort(hbm.store);
        for (uint32_t i = 0; i < PULLS; i++)
            rig.pulls[i].fetch = NULL;
        life_begin();
    }
}

#define HBM(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_right_however_late_the_device_is),
        cmocka_unit_test(a_stream_that_repeats_itself_turns_it_on),
        cmocka_unit_test(a_stream_without_repetition_leaves_it_off),
        cmocka_unit_test(rows_of_the_host_s_cache_are_kept_on_the_device),
        cmocka_unit_test(wrong_caches_on_devices_are_refused),
        HBM(rows_are_right_among_threads),
        HBM(a_copy_that_fails_leaves_no_row_behind),
        HBM(a_lost_device_has_no_cache),
        HBM(a_device_that_was_lost_before_is_refused_a_cache),
        HBM(an_abort_takes_the_cache_with_it),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
