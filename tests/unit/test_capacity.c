/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_capacity.c - the capacity of a store belongs to the store: it grows once and for good,
 * whoever opens it later; it never shrinks; and what a crash or a full disk leaves of growing costs
 * no block.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "sim_store.h"
#include "store_internal.h"
#include "store_kit.h"

/* Each operation of a growing open; under a sanitizer some of them. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum {
    N_STEP = 9
};
#else
enum {
    N_STEP = 1
};
#endif

enum {
    MIB = 1 << 20,
    BLOCK_BYTES = KIT_BLOCK_BYTES_MAX,
    OPERATIONS_LIMIT = 400, /* Of an open in which the store grows. */
};

struct fixture {
    char dir[KIT_PATH_BYTES];
    char path[KIT_PATH_BYTES + 16];
    kvt_store *store;
    kvt_namespace ns;
};

static int
setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    if (fixture == NULL)
        return -1;
    kit_dir_make(fixture->dir);
    snprintf(fixture->path, sizeof(fixture->path), "%s/store", fixture->dir);
    *state = fixture;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *fixture = *state;

    kit_dir_remove(fixture->dir);
    free(fixture);
    return 0;
}

static enum kvt_status
open_with(struct fixture *fixture, uint64_t capacity, uint32_t flags)
{
    struct kvt_options options = kit_options();

    options.nvme_capacity_bytes = capacity;
    options.flags = flags;
    KVT_TRY(kvt_open(fixture->path, &options, &fixture->store));
    return kvt_namespace_open(fixture->store, "space", "", 0, &fixture->ns);
}

static uint64_t
capacity_in_force(const struct fixture *fixture)
{
    struct kvt_options options = KVT_OPTIONS_INIT;

    assert_int_equal(kvt_options_get(fixture->store, &options), KVT_OK);
    return options.nvme_capacity_bytes;
}

static void
blocks_put(const struct fixture *fixture, uint64_t first, uint64_t count)
{
    for (uint64_t key = first; key < first + count; key++)
        assert_int_equal(
            kit_put(fixture->store, fixture->ns, key, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
}

static uint64_t
blocks_there(const struct fixture *fixture, uint64_t first, uint64_t count)
{
    uint64_t there = 0, version = 0;

    for (uint64_t key = first; key < first + count; key++)
        there += kit_get(fixture->store, fixture->ns, key, &version) == KVT_OK;
    return there;
}

/* A closed store of 8 MiB that has grown to 32 and holds 12 of blocks. */
static uint64_t
grown(struct fixture *fixture)
{
    const uint64_t count = 12 * MIB / BLOCK_BYTES;

    assert_int_equal(open_with(fixture, 8 * MIB, 0), KVT_OK);
    assert_int_equal(kvt_close(fixture->store), KVT_OK);
    assert_int_equal(open_with(fixture, 32 * MIB, 0), KVT_OK);
    blocks_put(fixture, 0, count);
    assert_int_equal(kvt_close(fixture->store), KVT_OK);
    return count;
}

static void
a_store_that_has_grown_is_larger_for_whoever_opens_it(void **state)
{
    struct fixture *fixture = *state;
    uint64_t count = grown(fixture);
    struct kvt_check_report report = {.struct_size = sizeof(report)};

    assert_int_equal(open_with(fixture, 0, 0), KVT_OK);
    assert_int_equal(capacity_in_force(fixture), 32 * MIB);
    assert_int_equal(blocks_there(fixture, 0, count), count);
    assert_int_equal(kvt_close(fixture->store), KVT_OK);
    assert_int_equal(open_with(fixture, 64 * MIB, KVT_OPEN_READ_ONLY), KVT_OK);
    assert_int_equal(capacity_in_force(fixture), 32 * MIB);
    assert_int_equal(blocks_there(fixture, 0, count), count);
    assert_int_equal(kvt_close(fixture->store), KVT_OK);
    assert_int_equal(kvt_check(fixture->path, NULL, &report), KVT_OK);
    assert_int_equal(report.block_count, count);
    assert_int_equal(report.finding_count, 0);
}

/* Also when STORE's newer copy is lost. */
static void
both_copies_of_store_know_the_capacity(void **state)
{
    struct fixture *fixture = *state;
    uint64_t count;

    for (int copy = 0; copy < 2; copy++) {
        char name[KIT_PATH_BYTES + 32];

        count = grown(fixture);
        snprintf(name, sizeof(name), "%s/STORE.%c", fixture->path, 'a' + copy);
        assert_int_equal(truncate(name, 100), 0);
        assert_int_equal(open_with(fixture, 0, 0), KVT_OK);
        assert_int_equal(capacity_in_force(fixture), 32 * MIB);
        assert_int_equal(blocks_there(fixture, 0, count), count);
        assert_int_equal(kvt_close(fixture->store), KVT_OK);
        kit_dir_remove(fixture->path);
    }
}

static void
what_is_deleted_by_one_who_names_no_capacity_stays_deleted(void **state)
{
    struct fixture *fixture = *state;
    uint64_t count = grown(fixture);

    assert_int_equal(open_with(fixture, 0, 0), KVT_OK);
    for (uint64_t key = 0; key < count; key++)
        assert_int_equal(kit_delete(fixture->store, fixture->ns, key), KVT_OK);
    assert_int_equal(kvt_close(fixture->store), KVT_OK);
    assert_int_equal(open_with(fixture, 32 * MIB, 0), KVT_OK);
    assert_int_equal(blocks_there(fixture, 0, count), 0);
    kvt_abort(fixture->store);
    assert_int_equal(open_with(fixture, 32 * MIB, KVT_OPEN_REBUILD), KVT_OK);
    assert_int_equal(blocks_there(fixture, 0, count), 0);
    assert_int_equal(kvt_close(fixture->store), KVT_OK);
}

static void
a_store_does_not_shrink(void **state)
{
    static const uint64_t less[] = {8 * MIB, 31 * MIB, KVT_CAPACITY_NONE};
    struct fixture *fixture = *state;
    uint64_t count = grown(fixture);
    struct kvt_error error;

    for (size_t i = 0; i < sizeof(less) / sizeof(less[0]); i++) {
        assert_int_equal(open_with(fixture, less[i], 0), KVT_E_INVAL);
        kvt_last_error(&error);
        assert_non_null(strstr(error.text, "33554432"));
        assert_non_null(strstr(error.text, "nvme_capacity_bytes"));
    }
    /* What does not make a segment more is no growth. */
    assert_int_equal(open_with(fixture, 32 * MIB + 5, 0), KVT_OK);
    assert_int_equal(capacity_in_force(fixture), 32 * MIB);
    assert_int_equal(blocks_there(fixture, 0, count), count);
    assert_int_equal(kvt_close(fixture->store), KVT_OK);
}

static void
a_store_without_nvme_stays_so_until_it_is_given_some(void **state)
{
    struct fixture *fixture = *state;
    struct stat facts;
    char data[KIT_PATH_BYTES + 32];

    snprintf(data, sizeof(data), "%s/data", fixture->path);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(open_with(fixture, i == 1 ? 0 : KVT_CAPACITY_NONE, 0), KVT_OK);
        assert_true(capacity_in_force(fixture) == KVT_CAPACITY_NONE);
        assert_int_equal(kvt_close(fixture->store), KVT_OK);
        assert_int_not_equal(stat(data, &facts), 0);
    }
    assert_int_equal(open_with(fixture, 16 * MIB, 0), KVT_OK);
    blocks_put(fixture, 0, 10);
    assert_int_equal(kvt_close(fixture->store), KVT_OK);
    assert_int_equal(open_with(fixture, 0, 0), KVT_OK);
    assert_int_equal(capacity_in_force(fixture), 16 * MIB);
    assert_int_equal(blocks_there(fixture, 0, 10), 10);
    assert_int_equal(kvt_close(fixture->store), KVT_OK);
}

/* Two disks; one of them has no room for its share of the growth. */
static void
a_root_that_cannot_grow_stays_and_the_other_keeps_what_it_gained(void **state)
{
    static const struct sim_rule full = {.ops = SIM_ALLOCATE, .effect = SIM_ENOSPC, .nth = 2};
    static const char *const roots[] = {"/first", "/second"};
    struct kvt_options options = kit_options();
    struct sim_store sim;
    struct fixture fixture = {0};
    const uint64_t count = 20 * MIB / BLOCK_BYTES;

    (void)state;
    options.nvme_capacity_bytes = 16 * MIB;
    options.roots = roots;
    options.root_count = 2;
    sim_store_open(&sim, &options);
    assert_int_equal(kvt_close(sim.store), KVT_OK);
    sim.options.nvme_capacity_bytes = 48 * MIB;
    sim_rule_add(sim.world, &full);
    sim_store_reopen(&sim);
    sim_rules_clear(sim.world);
    for (int i = 0; i < 3; i++) {
        fixture.store = sim.store;
        assert_int_equal(kvt_namespace_open(fixture.store, "space", "", 0, &fixture.ns), KVT_OK);
        assert_int_equal(capacity_in_force(&fixture), (24 + 8) * MIB);
        if (i == 0)
            blocks_put(&fixture, 0, count);
        assert_int_equal(blocks_there(&fixture, 0, count), count);
        assert_int_equal(kvt_close(sim.store), KVT_OK);
        sim.options.nvme_capacity_bytes = i == 0 ? 0 : i == 1 ? 32 * MIB : 34 * MIB;
        sim_store_reopen(&sim);
    }
    /* The first keeps its 24 MiB, and the second gets the other 10. */
    fixture.store = sim.store;
    assert_int_equal(capacity_in_force(&fixture), 34 * MIB);
    sim_store_close(&sim);
}

/* A life in which the power goes at the n-th operation of an open in which the store grows. False:
 * it has fewer. */
static bool
life_with_cut(uint64_t n, enum sim_cut cut, uint64_t *grown_count)
{
    const struct sim_options world_options = {.seed = 3 + n};
    struct kvt_options options = kit_options();
    struct sim_store sim;
    struct fixture fixture = {0};
    bool has_crashed;
    enum kvt_status status;

    sim_store_open_world(&sim, &options, &world_options);
    fixture.store = sim.store;
    assert_int_equal(kvt_namespace_open(sim.store, "space", "", 0, &fixture.ns), KVT_OK);
    blocks_put(&fixture, 0, 10);
    assert_int_equal(kvt_close(sim.store), KVT_OK);
    sim.options.nvme_capacity_bytes = 16 * MIB;
    sim_crash_after(sim.world, n);
    status = store_open_in(&sim.store_world, "/store", &sim.options, &sim.store);
    has_crashed = sim_crashed(sim.world);
    sim_crash_after(sim.world, 0);
    if (!has_crashed)
        assert_int_equal(status, KVT_OK);
    sim_power_cut(sim.world, cut);
    sim.options.nvme_capacity_bytes = 0;
    sim_store_reopen(&sim);
    fixture.store = sim.store;
    assert_int_equal(kvt_namespace_open(sim.store, "space", "", 0, &fixture.ns), KVT_OK);
    assert_int_equal(blocks_there(&fixture, 0, 10), 10);
    if (capacity_in_force(&fixture) == 16 * MIB)
        (*grown_count)++;
    else
        assert_int_equal(capacity_in_force(&fixture), 8 * MIB);
    if (!has_crashed)
        assert_int_equal(capacity_in_force(&fixture), 16 * MIB);
    sim_store_close(&sim);
    return has_crashed;
}

static void
a_crash_while_a_store_grows_leaves_it_as_it_was_or_larger(void **state)
{
    static const enum sim_cut cuts[] = {
        SIM_CUT_NOTHING_KEPT, SIM_CUT_ALL_KEPT, SIM_CUT_PREFIX, SIM_CUT_EACH, SIM_CUT_TORN};
    uint64_t grown_count = 0, lives = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        uint64_t n = 1;

        while (n < OPERATIONS_LIMIT && life_with_cut(n, cuts[i], &grown_count))
            n += N_STEP;
        assert_in_range(n, 10, OPERATIONS_LIMIT - 1);
        lives += (n - 1) / N_STEP + 1;
    }
    assert_in_range(grown_count, 5, lives - 5); /* Both outcomes were seen. */
}

/* A life in which the n-th operation of such an open fails. False: it has fewer. */
static bool
life_with_error(uint64_t n, uint64_t *refused_count)
{
    const struct sim_rule rule = {.ops = SIM_ALL, .effect = SIM_EIO, .nth = n};
    struct kvt_options options = kit_options();
    struct fixture fixture = {0};
    struct sim_store sim;
    char leaks[200] = "";
    bool has_failed;

    sim_store_open(&sim, &options);
    fixture.store = sim.store;
    assert_int_equal(kvt_namespace_open(sim.store, "space", "", 0, &fixture.ns), KVT_OK);
    blocks_put(&fixture, 0, 10);
    assert_int_equal(kvt_close(sim.store), KVT_OK);
    sim.options.nvme_capacity_bytes = 16 * MIB;
    sim_rule_add(sim.world, &rule);
    if (store_open_in(&sim.store_world, "/store", &sim.options, &sim.store) == KVT_OK)
        assert_int_not_equal(kvt_close(sim.store), KVT_E_STATE); /* It may be what fails. */
    else
        (*refused_count)++;
    has_failed = sim_fault_count(sim.world) > 0;
    if (sim_leaks(sim.world, leaks, sizeof(leaks)) != 0)
        fail_msg("operation %llu fails, and there are left: %s", (unsigned long long)n, leaks);
    sim_rules_clear(sim.world);
    sim_store_reopen(&sim);
    fixture.store = sim.store;
    assert_int_equal(kvt_namespace_open(sim.store, "space", "", 0, &fixture.ns), KVT_OK);
    assert_int_equal(blocks_there(&fixture, 0, 10), 10);
    assert_int_equal(capacity_in_force(&fixture), 16 * MIB);
    sim_store_close(&sim);
    return has_failed;
}

static void
an_error_while_a_store_grows_leaves_nothing_behind(void **state)
{
    uint64_t refused_count = 0, n = 1;

    (void)state;
    while (n < OPERATIONS_LIMIT && life_with_error(n, &refused_count))
        n++;
    assert_in_range(n, 10, OPERATIONS_LIMIT - 1);
    assert_in_range(refused_count, 5, n);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_store_that_has_grown_is_larger_for_whoever_opens_it, setup, teardown),
        cmocka_unit_test_setup_teardown(both_copies_of_store_know_the_capacity, setup, teardown),
        cmocka_unit_test_setup_teardown(
            what_is_deleted_by_one_who_names_no_capacity_stays_deleted, setup, teardown),
        cmocka_unit_test_setup_teardown(a_store_does_not_shrink, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_store_without_nvme_stays_so_until_it_is_given_some, setup, teardown),
        cmocka_unit_test(a_root_that_cannot_grow_stays_and_the_other_keeps_what_it_gained),
        cmocka_unit_test(a_crash_while_a_store_grows_leaves_it_as_it_was_or_larger),
        cmocka_unit_test(an_error_while_a_store_grows_leaves_nothing_behind),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
