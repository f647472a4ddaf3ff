/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_engram_pinned.c - rows in pinned memory: fetched without a file, gathered by the host and by
 * an emulated device with the same bits.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engram_file.h"
#include "engram_set.h"
#include "failure.h"
#include "kvtier/kvtier_unstable.h"
#include "pinned_kit.h"
#include "rng.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"

enum {
    TOKENS = 100,
};

#define POOL_BYTES (HBM_POOL_BLOCKS * HBM_BLOCK_BYTES)

static const struct kvt_options sim_options = {.struct_size = sizeof(struct kvt_options),
    .host_capacity_bytes = 2 << 20,
    .nvme_capacity_bytes = 16 << 20,
    .segment_bytes = 1 << 20,
    .block_bytes_max = 64 << 10};

/* --- Fetches, in a simulation ----------------------------------------------------------------- */

struct fixture {
    struct sim_store sim;
    struct engram_rig rig;
    kvt_engram_hasher *hasher;
    kvt_engram_plan *plan;
    kvt_engram *table;
    uint8_t rows[TOKENS * COLUMNS * ROW_BYTES];
};

static struct fixture fixture;

static int
sim_setup(void **state)
{
    struct rng rng = {.state = 3};
    uint32_t tokens[TOKENS];
    const struct kvt_engram_sequence sequence = {.tokens = tokens, .token_count = TOKENS};

    (void)state;
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = rng_below(&rng, RIG_CLASSES);
    pinned_rig_make(&fixture.rig);
    sim_store_open(&fixture.sim, &sim_options);
    assert_int_equal(engram_rig_import(&fixture.rig, fixture.sim.store, "t", 0), KVT_OK);
    assert_int_equal(kvt_engram_open(fixture.sim.store, "t", &fixture.table), KVT_OK);
    assert_int_equal(
        kvt_engram_hasher_open(&fixture.rig.profile, NULL, 0, &fixture.hasher), KVT_OK);
    assert_int_equal(kvt_engram_plan_create(fixture.hasher, TOKENS, &fixture.plan), KVT_OK);
    assert_int_equal(kvt_engram_plan_fill(fixture.plan, &sequence, 1, KVT_ENGRAM_UNIQUE), KVT_OK);
    return 0;
}

static int
sim_teardown(void **state)
{
    (void)state;
    kvt_engram_plan_destroy(fixture.plan);
    kvt_engram_hasher_close(fixture.hasher);
    assert_int_equal(kvt_engram_close(fixture.table), KVT_OK);
    sim_store_close(&fixture.sim);
    return 0;
}

static void
fetch_all(void)
{
    const struct kvt_engram_target target = {
        .table = fixture.table, .destination = fixture.rows, .capacity = sizeof(fixture.rows)};
    struct kvt_engram_rows rows;
    kvt_engram_fetch *fetch;

    memset(fixture.rows, FILLER, sizeof(fixture.rows));
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
pinned_rows_are_fetched_without_a_file(void **state)
{
    struct kvt_engram_info info;
    uint64_t pages;

    (void)state;
    fetch_all();
    pages = kit_stats(fixture.sim.store).engram_page_count;
    assert_true(pages > 0);
    assert_int_equal(kit_stats(fixture.sim.store).engram_pinned_bytes_now, 0);
    assert_int_equal(kvt_engram_pin(fixture.table, KVT_ENGRAM_ROWS_ALL, 0), KVT_OK);
    assert_true(engram_rig_has(&fixture.rig, fixture.table, 0));
    fetch_all();
    assert_int_equal(kit_stats(fixture.sim.store).engram_page_count, pages);
    assert_int_equal(kit_stats(fixture.sim.store).engram_pinned_page_count, pages);
    assert_true(kit_stats(fixture.sim.store).engram_pinned_bytes_now >
                (uint64_t)pinned_row_count(&fixture.rig) / ROWS_A_PAGE * PAGE_BYTES);
    assert_int_equal(kvt_engram_info_get(fixture.table, &info), KVT_OK);
    assert_int_equal(info.rows_pinned, pinned_row_count(&fixture.rig));
}

static void
rows_behind_the_pinned_ones_come_from_the_file(void **state)
{
    struct kvt_engram_info info;

    (void)state;
    assert_int_equal(kvt_engram_pin(fixture.table, 1000, 0), KVT_OK);
    assert_int_equal(kvt_engram_info_get(fixture.table, &info), KVT_OK);
    assert_int_equal(info.rows_pinned, 1005); /* 67 pages. */
    fetch_all();
    assert_true(kit_stats(fixture.sim.store).engram_page_count > 10);
    assert_true(kit_stats(fixture.sim.store).engram_pinned_page_count > 10);
    assert_true(engram_rig_has(&fixture.rig, fixture.table, 0));
}

static void
a_damaged_page_is_not_pinned(void **state)
{
    (void)state;
    assert_true(sim_file_corrupt(
        fixture.sim.world, "store/engram/t.engram", engram_page_offset(30) + 100, 4));
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(kvt_engram_pin(fixture.table, KVT_ENGRAM_ROWS_ALL, 0), KVT_E_CORRUPT);
        assert_int_equal(kit_stats(fixture.sim.store).engram_pinned_bytes_now, 0);
    }
    assert_int_equal(kvt_engram_pin(fixture.table, 30 * ROWS_A_PAGE, 0), KVT_OK);
    assert_int_equal(kvt_engram_pin(fixture.table, 30 * ROWS_A_PAGE, 0), KVT_E_STATE);
}

static void
what_cannot_be_pinned_says_so(void **state)
{
    const struct sim_rule rule = {.ops = SIM_READ, .effect = SIM_EIO, .nth = 1, .sticky = true};
    kvt_engram *table;
    int descriptor;

    (void)state;
    assert_int_equal(kvt_engram_pin(NULL, 1, 0), KVT_E_INVAL);
    assert_int_equal(kvt_engram_pin(fixture.table, 0, 0), KVT_E_INVAL);
    assert_int_equal(kvt_engram_pin(fixture.table, 1, 2), KVT_E_INVAL);
    assert_int_equal(
        kvt_engram_pin(fixture.table, pinned_row_count(&fixture.rig) + 1, 0), KVT_E_INVAL);
    assert_int_equal(kvt_engram_pin(fixture.table, 1, KVT_ENGRAM_PIN_SHARED), KVT_E_UNSUPPORTED);
    assert_int_equal(kvt_engram_open_shared(fixture.sim.store, 0, &table), KVT_E_UNSUPPORTED);
    assert_int_equal(kvt_engram_share(NULL, &descriptor), KVT_E_INVAL);
    assert_int_equal(kvt_engram_share(fixture.table, NULL), KVT_E_INVAL);
    assert_int_equal(kvt_engram_share(fixture.table, &descriptor), KVT_E_STATE);
    sim_memory_fail(fixture.sim.world, 1, false);
    assert_int_equal(kvt_engram_pin(fixture.table, 1, 0), KVT_E_NOMEM);
    sim_rule_add(fixture.sim.world, &rule);
    assert_int_equal(kvt_engram_pin(fixture.table, 1, 0), KVT_E_IO);
    sim_rules_clear(fixture.sim.world);
    assert_int_equal(kvt_engram_pin(fixture.table, 1, 0), KVT_OK);
    assert_int_equal(kvt_engram_share(fixture.table, &descriptor), KVT_E_STATE);
}

static void
an_abort_takes_pinned_rows_with_it(void **state)
{
    struct engram_rig made;
    struct sim_store sim;
    kvt_engram *open;

    (void)state;
    pinned_rig_make(&made);
    sim_store_open(&sim, &sim_options);
    assert_int_equal(engram_rig_import(&made, sim.store, "t", 0), KVT_OK);
    assert_int_equal(kvt_engram_open(sim.store, "t", &open), KVT_OK);
    assert_int_equal(kvt_engram_pin(open, 100, 0), KVT_OK);
    kvt_abort(sim.store);
    assert_int_equal(sim_leaks(sim.world, NULL, 0), 0);
    sim_world_destroy(sim.world);
}

/* --- Gathers --------------------------------------------------------------------------------- */

static void
the_host_gathers_rows_and_values(void **state)
{
    struct kvt_engram_selection gather = pinned_host_gather(false);

    (void)state;
    pinned_ids_make(pinned.ids, 1000);
    assert_int_equal(kvt_engram_gather(&gather), KVT_E_INVAL); /* Nothing is pinned. */
    assert_int_equal(kvt_engram_pin(pinned.table, 1000, 0), KVT_OK);
    for (uint32_t i = 0; i < 2; i++) {
        gather = pinned_host_gather(i == 1);
        pinned_wanted_make(&pinned.rig, pinned.ids, i == 1, pinned.wanted);
        assert_int_equal(kvt_engram_gather(&gather), KVT_OK);
        assert_memory_equal(pinned.got, pinned.wanted, gather.capacity);
        pinned_assert_untouched(gather.capacity);
        /* One id out of range, the last: nothing is written. */
        pinned.ids[COUNT - 1] = 1005;
        gather = pinned_host_gather(i == 1);
        assert_int_equal(kvt_engram_gather(&gather), KVT_E_INVAL);
        pinned_assert_untouched(0);
        pinned.ids[COUNT - 1] = 1004;
    }
}

static void
a_device_gathers_the_same_bits(void **state)
{
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    struct kvt_engram_selection gather;
    void *stream;

    (void)state;
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    assert_int_equal(kvt_engram_pin(pinned.table, 1000, 0), KVT_OK);
    pinned_ids_make(pinned.ids, 1005);
    for (uint32_t i = 0; i < 2; i++) {
        pinned_wanted_make(&pinned.rig, pinned.ids, i == 1, pinned.wanted);
        gather = pinned_device_gather(i == 1, stream);
        assert_int_equal(kvt_engram_gather(&gather), KVT_OK);
        hbm_stream_finish(hbm_device(hbm.store->devices.tiers[0]), stream);
        assert_true(pinned_device_look() == KVT_ENGRAM_GATHER_FINE);
        assert_memory_equal(pinned.got, pinned.wanted, gather.capacity);
        pinned_assert_untouched(gather.capacity);
    }
    device_host_stream_destroy(device, stream);
}

static void
an_id_out_of_range_leaves_the_device_as_it_was(void **state)
{
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    static const uint32_t wrong[] = {1005, UINT32_MAX, 2000};
    struct kvt_engram_selection gather;
    void *stream;

    (void)state;
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    assert_int_equal(kvt_engram_pin(pinned.table, 1000, 0), KVT_OK);
    for (uint32_t i = 0; i < 3; i++) {
        pinned_ids_make(pinned.ids, 1005);
        pinned.ids[100 * (i + 1) - 1] = wrong[i];
        pinned.ids[COUNT - 1] = wrong[i];
        gather = pinned_device_gather(i % 2 == 1, stream);
        assert_int_equal(kvt_engram_gather(&gather), KVT_OK);
        hbm_stream_finish(hbm_device(hbm.store->devices.tiers[0]), stream);
        assert_int_equal(pinned_device_look(), 100 * (i + 1) - 1);
        pinned_assert_untouched(0);
    }
    device_host_stream_destroy(device, stream);
}

static void
wrong_gathers_are_refused(void **state)
{
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    struct kvt_engram_selection good, bad;
    struct kvt_device_ops without = device_host_ops;
    void *stream;

#define REFUSED(change)                                         \
    do {                                                        \
        bad = good;                                             \
        change;                                                 \
        assert_int_equal(kvt_engram_gather(&bad), KVT_E_INVAL); \
    } while (0)

    (void)state;
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    assert_int_equal(kvt_engram_pin(pinned.table, 1000, 0), KVT_OK);
    pinned_ids_make(pinned.ids, 1005);
    assert_int_equal(kvt_engram_gather(NULL), KVT_E_INVAL);
    for (uint32_t i = 0; i < 2; i++) {
        good = i == 0 ? pinned_host_gather(true) : pinned_device_gather(true, stream);
        REFUSED(bad.table = NULL);
        REFUSED(bad.ids = NULL);
        REFUSED(bad.destination = NULL);
        REFUSED(bad.destination = (void *)((uintptr_t)good.destination + 1));
        REFUSED(bad.capacity--);
        REFUSED(bad.flags |= 2);
        REFUSED(bad.reserved0 = 1);
    }
    REFUSED(bad.stream = NULL);
    REFUSED(bad.verdict = NULL);
    REFUSED(bad.verdict = (uint64_t *)((uintptr_t)good.verdict + 4));
    REFUSED(bad.verdict = (uint64_t *)((uintptr_t)hbm.pool + (uintptr_t)(POOL_BYTES / 8 * 8)));
    REFUSED(bad.region.id += 1u << 12);
    REFUSED(bad.ids_region.id = 0);
    REFUSED(bad.ids = pinned.ids);
    REFUSED(bad.count = 0);
    REFUSED(bad.destination = hbm_pool_at(HBM_POOL_BLOCKS - 1));
    good = pinned_host_gather(true);
    REFUSED(bad.stream = stream);
    REFUSED(bad.verdict = pinned_device_verdict());
    REFUSED(bad.ids_region = hbm.region);
    pinned.table->head.profile.encoding = KVT_ENGRAM_BYTES;
    REFUSED((void)0);
    pinned.table->head.profile.encoding = KVT_ENGRAM_E4M3_E8M0;
    /* A device without such kernels. */
    without.gather = NULL;
    device->ops = &without;
    bad = pinned_device_gather(true, stream);
    assert_int_equal(kvt_engram_gather(&bad), KVT_E_UNSUPPORTED);
    device->ops = &device_host_ops;
    device_host_stream_destroy(device, stream);
#undef REFUSED
}

static void
calls_of_the_device_that_fail_are_told(void **state)
{
    static const enum kvt_status statuses[] = {KVT_E_NOMEM, KVT_E_GPU};
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    struct kvt_engram_selection gather;
    void *stream;

    (void)state;
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    assert_int_equal(kvt_engram_pin(pinned.table, 1000, 0), KVT_OK);
    pinned_ids_make(pinned.ids, 1005);
    gather = pinned_device_gather(false, stream);
    for (uint32_t i = 0; i < 2; i++) {
        hbm.config.fail_status = statuses[i];
        hbm.config.fail_call = atomic_load(&hbm.config.call_count) + 1;
        assert_int_equal(kvt_engram_gather(&gather), statuses[i]);
        hbm.config.fail_call = 0;
    }
    assert_int_equal(kvt_engram_gather(&gather), KVT_E_GPU);
    device_host_stream_destroy(device, stream);
}

/* Relaxed, so that they order nothing else: a thread checker shall see what the two share. */
static _Atomic uint32_t fetched;
static atomic_bool is_enough;

/* Fetches of the table go on beside it. */
static void *
fetch_beside(void *context)
{
    static uint8_t rows[TOKENS * COLUMNS * ROW_BYTES];
    const struct kvt_engram_target target = {
        .table = pinned.table, .destination = rows, .capacity = sizeof(rows)};
    kvt_engram_plan *plan = context;
    enum kvt_status status = KVT_OK;
    kvt_engram_fetch *fetch;

    while (status == KVT_OK && !atomic_load_explicit(&is_enough, memory_order_relaxed)) {
        status = kvt_engram_fetch_submit(plan, &target, 1, &fetch);
        if (status != KVT_OK)
            break;
        status = kvt_engram_fetch_wait(fetch, 0, KVT_FOREVER, NULL);
        kvt_engram_fetch_free(fetch);
        atomic_fetch_add_explicit(&fetched, 1, memory_order_relaxed);
    }
    return (void *)(intptr_t)status;
}

/* Of a pin: the reader has looked for pinned rows meanwhile. */
static enum kvt_status
fail_behind_fetches(struct device *device, void *memory, uint64_t size)
{
    uint32_t wanted = atomic_load_explicit(&fetched, memory_order_relaxed) + 2;

    (void)device;
    (void)memory;
    (void)size;
    while (atomic_load_explicit(&fetched, memory_order_relaxed) < wanted)
        (void)sched_yield();
    return failure_set(KVT_E_NOMEM, 0, "no memory for a registration");
}

static void
a_pin_that_fails_leaves_fetches_alone(void **state)
{
    uint32_t tokens[TOKENS] = {0};
    const struct kvt_engram_sequence sequence = {.tokens = tokens, .token_count = TOKENS};
    kvt_engram_hasher *hasher;
    kvt_engram_plan *plan;
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    struct kvt_device_ops ops;
    pthread_t thread;
    void *result;

    (void)state;
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = i * 7 % RIG_CLASSES;
    assert_int_equal(kvt_engram_hasher_open(&pinned.rig.profile, NULL, 0, &hasher), KVT_OK);
    assert_int_equal(kvt_engram_plan_create(hasher, TOKENS, &plan), KVT_OK);
    assert_int_equal(kvt_engram_plan_fill(plan, &sequence, 1, KVT_ENGRAM_UNIQUE), KVT_OK);
    assert_int_equal(pthread_create(&thread, NULL, fetch_beside, plan), 0);
    ops = device_host_ops;
    ops.host_register = fail_behind_fetches;
    device->ops = &ops;
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(kvt_engram_pin(pinned.table, 1000, 0), KVT_E_NOMEM);
    device->ops = &device_host_ops;
    assert_int_equal(kvt_engram_pin(pinned.table, 1000, 0), KVT_OK);
    atomic_store_explicit(&is_enough, true, memory_order_relaxed);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_int_equal((int)(intptr_t)result, KVT_OK);
    kvt_engram_plan_destroy(plan);
    kvt_engram_hasher_close(hasher);
}

#define SIM(test) cmocka_unit_test_setup_teardown(test, sim_setup, sim_teardown)
#define HBM(test) cmocka_unit_test_setup_teardown(test, pinned_setup, pinned_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        SIM(pinned_rows_are_fetched_without_a_file),
        SIM(rows_behind_the_pinned_ones_come_from_the_file),
        SIM(a_damaged_page_is_not_pinned),
        SIM(what_cannot_be_pinned_says_so),
        cmocka_unit_test(an_abort_takes_pinned_rows_with_it),
        HBM(the_host_gathers_rows_and_values),
        HBM(a_device_gathers_the_same_bits),
        HBM(an_id_out_of_range_leaves_the_device_as_it_was),
        HBM(wrong_gathers_are_refused),
        HBM(calls_of_the_device_that_fail_are_told),
        HBM(a_pin_that_fails_leaves_fetches_alone),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
