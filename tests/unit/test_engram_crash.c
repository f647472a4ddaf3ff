/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_engram_crash.c - imports of Engram tables: the power goes, calls fail and memory runs out at
 * every operation.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engram_rig.h"
#include "sim_store.h"
#include "stop_on_proof.h"

#define SMALL_OPTIONS                                                                           \
    {                                                                                           \
        .struct_size = sizeof(struct kvt_options), .host_capacity_bytes = 2 << 20,              \
        .nvme_capacity_bytes = 16 << 20, .segment_bytes = 1 << 20, .block_bytes_max = 64 << 10, \
    }

static const struct kvt_options small_options = SMALL_OPTIONS;

static kvt_engram *
opened(kvt_store *store, const char *name)
{
    kvt_engram *table;

    assert_int_equal(kvt_engram_open(store, name, &table), KVT_OK);
    return table;
}

static int
table_count(void *context, const struct kvt_engram_info *info)
{
    (void)info;
    ++*(uint32_t *)context;
    return 1;
}

/* --- Crashes and failures --------------------------------------------------------------------- */

enum {
    CRASH_ROWS = 8, /* A column: 46 pages of one row. */
    OPERATIONS_LIMIT = 3000,
};

static void
crash_rig(struct engram_rig *rig)
{
    engram_rig_init(rig, "t", 4088, CRASH_ROWS);
    rig->source.step_bytes = 8 * 4096; /* Marks on the way: the chunk is larger, hence one. */
}

/* After whatever happened: no table, or a whole one; and the import can be made. */
static void
prove_after(struct sim_store *sim, struct engram_rig *rig)
{
    struct kvt_engram_findings findings;
    kvt_engram *table;
    uint32_t count = 0;
    enum kvt_status status = kvt_engram_open(sim->store, "t", &table);

    if (status == KVT_OK) {
        assert_true(engram_rig_has(rig, table, 0));
        assert_int_equal(kvt_engram_close(table), KVT_OK);
        assert_int_equal(engram_rig_import(rig, sim->store, "t", 0), KVT_EXISTS);
    } else {
        assert_int_equal(status, KVT_MISS);
        assert_int_equal(engram_rig_import(rig, sim->store, "t", 0), KVT_OK);
    }
    assert_int_equal(kvt_engram_list(sim->store, table_count, &count), KVT_OK);
    assert_int_equal(count, 1);
    table = opened(sim->store, "t");
    assert_true(engram_rig_has(rig, table, 0));
    assert_int_equal(kvt_engram_verify(table, NULL, NULL, &findings), KVT_OK);
    assert_int_equal(findings.damaged_count + findings.is_sum_wrong, 0);
    assert_int_equal(kvt_engram_close(table), KVT_OK);
}

/* The directory that the store lies in is its owner's to sync. */
static void
store_name_sync(struct sim_store *sim)
{
    struct fs_dir *dir;

    assert_int_equal(sim->env.fs->dir_open(sim->env.fs_context, "/", 0, &dir), KVT_OK);
    assert_int_equal(sim->env.fs->dir_sync(dir), KVT_OK);
    sim->env.fs->dir_close(dir);
}

/* A life in which the power goes at the n-th operation of the import. False: it has fewer. */
static bool
life_with_cut(uint64_t n, enum sim_cut cut, uint64_t seed, uint32_t *there_count)
{
    struct sim_options options = {.seed = seed, .directories_sync_late = true};
    struct engram_rig rig;
    struct sim_store sim;
    kvt_engram *table;
    enum kvt_status status;
    bool crashed;

    sim_store_open_world(&sim, &small_options, &options);
    store_name_sync(&sim);
    crash_rig(&rig);
    sim_crash_after(sim.world, n);
    status = engram_rig_import(&rig, sim.store, "t", 0);
    crashed = sim_crashed(sim.world);
    if (!crashed)
        sim_crash_after(sim.world, 0);
    sim_power_cut(sim.world, cut);
    sim_store_reopen(&sim);
    if (!crashed) { /* What was acknowledged is there. */
        assert_int_equal(status, KVT_OK);
        table = opened(sim.store, "t");
        assert_int_equal(kvt_engram_close(table), KVT_OK);
    }
    if (kvt_engram_open(sim.store, "t", &table) == KVT_OK) {
        (*there_count)++;
        assert_int_equal(kvt_engram_close(table), KVT_OK);
    }
    prove_after(&sim, &rig);
    sim_store_close(&sim);
    return crashed;
}

static void
a_crash_at_any_operation_leaves_no_table_or_the_whole_one(void **state)
{
    static const enum sim_cut cuts[] = {
        SIM_CUT_NOTHING_KEPT, SIM_CUT_ALL_KEPT, SIM_CUT_PREFIX, SIM_CUT_EACH, SIM_CUT_TORN};
    uint32_t there_count = 0;
    uint64_t lives = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        uint64_t n = 1;

        while (n < OPERATIONS_LIMIT && life_with_cut(n, cuts[i], 7 + n, &there_count))
            n++;
        assert_in_range(n, 10, OPERATIONS_LIMIT - 1);
        lives += n;
    }
    assert_in_range(there_count, 5, lives - 5); /* Both outcomes were seen. */
}

/* False: the import has fewer operations. */
static bool
life_with_fault(uint64_t n, unsigned ops, enum sim_effect effect, bool sticky)
{
    const struct sim_rule rule = {.ops = ops, .effect = effect, .nth = n, .sticky = sticky};
    struct engram_rig rig;
    struct sim_store sim;
    bool fired;

    sim_store_open(&sim, &small_options);
    crash_rig(&rig);
    sim_rule_add(sim.world, &rule);
    (void)engram_rig_import(&rig, sim.store, "t", 0);
    fired = sim_fault_count(sim.world) > 0;
    sim_rules_clear(sim.world);
    prove_after(&sim, &rig);
    sim_store_close(&sim);
    return fired;
}

static void
an_error_of_any_operation_leaves_no_table_or_the_whole_one(void **state)
{
    static const struct {
        unsigned ops;
        enum sim_effect effect;
    } faults[] = {{SIM_ALL, SIM_EIO}, {SIM_WRITE | SIM_ALLOCATE | SIM_OPEN, SIM_ENOSPC},
        {SIM_WRITE, SIM_TORN}, {SIM_READ, SIM_FLIP}, {SIM_READ, SIM_MISDIRECT},
        {SIM_SYNC | SIM_DIR_SYNC, SIM_EIO}};

    (void)state;
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        for (int sticky = 0; sticky < 2; sticky++) {
            uint64_t n = 1;

            while (n < OPERATIONS_LIMIT &&
                   life_with_fault(n, faults[i].ops, faults[i].effect, sticky != 0))
                n++;
            assert_in_range(n, 2, OPERATIONS_LIMIT - 1);
        }
    }
}

static void
no_memory_at_any_point_leaves_nothing_behind(void **state)
{
    (void)state;
    for (uint64_t n = 1; n < 100; n++) {
        struct engram_rig rig;
        struct sim_store sim;
        kvt_engram *table = NULL;
        enum kvt_status status;

        sim_store_open(&sim, &small_options);
        crash_rig(&rig);
        sim_memory_fail(sim.world, n, false);
        status = engram_rig_import(&rig, sim.store, "t", 0);
        if (status == KVT_OK)
            status = kvt_engram_open(sim.store, "t", &table);
        if (table != NULL)
            assert_int_equal(kvt_engram_close(table), KVT_OK);
        sim_memory_fail(sim.world, 0, false);
        prove_after(&sim, &rig);
        assert_int_equal(kvt_close(sim.store), KVT_OK);
        assert_int_equal(sim_leaks(sim.world, NULL, 0), 0);
        sim_world_destroy(sim.world);
        if (status == KVT_OK) {
            assert_true(n > 5);
            return;
        }
        assert_int_equal(status, KVT_E_NOMEM);
    }
    fail();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crash_at_any_operation_leaves_no_table_or_the_whole_one),
        cmocka_unit_test(an_error_of_any_operation_leaves_no_table_or_the_whole_one),
        cmocka_unit_test(no_memory_at_any_point_leaves_nothing_behind),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
