/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_creation.c - an open that was to make a store, and could not, leaves nothing that the next
 * one must agree with: wherever it failed, wherever the power went while it was taken back.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "creation_rig.h"
#include "stop_on_proof.h"
#include "store_kit.h"

#define MIB (UINT64_C(1) << 20)

enum {
#ifdef NDEBUG
    STOPS_AT_PROOFS = false,
#else
    STOPS_AT_PROOFS = true, /* A debug build stops where a proof is false. */
#endif
    CALLS_MAX = 400, /* More than a creation makes of any kind. */
#if defined(__SANITIZE_ADDRESS__)
    STRIDE = 3, /* Each third of them fails, ... */
#else
    STRIDE = 1,             /* ... or each. */
#endif
};

static struct creation_rig sim;

static void
a_creation_without_memory_leaves_no_store(void **state)
{
    uint32_t refused_count = 0;

    (void)state;
    for (uint32_t n = 1; n < CALLS_MAX; n += n < 100 ? STRIDE : 7) {
        enum kvt_status status;

        creation_begin(&sim, n);
        sim_memory_fail(sim.world, n, false);
        status = creation_open(&sim);
        sim_memory_fail(sim.world, 0, false);
        assert_true(status == KVT_OK || status == KVT_E_NOMEM);
        if (status == KVT_OK) {
            kit_works(sim.store);
        } else {
            refused_count++;
            creation_left_nothing(&sim);
        }
        creation_end(&sim);
    }
    assert_true(refused_count > 40 / STRIDE);
}

/* Returns whether the creation failed. */
static bool
creation_with_a_failed_call(unsigned ops, uint32_t n)
{
    const struct sim_rule rule = {.ops = ops, .effect = SIM_EIO, .nth = n};
    enum kvt_status status;

    creation_begin(&sim, n);
    sim_rule_add(sim.world, &rule);
    status = creation_open(&sim);
    sim_rules_clear(sim.world);
    if (status == KVT_OK)
        kit_works(sim.store);
    else
        creation_left_nothing(&sim);
    creation_end(&sim);
    return status != KVT_OK;
}

static void
a_creation_of_which_a_call_fails_leaves_no_store(void **state)
{
    uint32_t refused_count = 0;

    (void)state;
    for (uint32_t n = 1; n < CALLS_MAX / 4; n += STRIDE) {
        refused_count += creation_with_a_failed_call(SIM_ALL, n);
        refused_count += n < 8 && creation_with_a_failed_call(SIM_COMMIT, n);
    }
    assert_true(refused_count > 40 / STRIDE);
}

/* A store in memory alone: its index is all that follows STORE. */
static void
a_creation_without_nvme_leaves_no_store(void **state)
{
    static const struct sim_rule fails = {.ops = SIM_COMMIT, .effect = SIM_EIO, .nth = 2};

    (void)state;
    creation_begin(&sim, 1);
    sim.options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    sim.options.root_count = 0;
    sim_rule_add(sim.world, &fails);
    assert_int_not_equal(creation_open(&sim), KVT_OK);
    sim_rules_clear(sim.world);
    creation_left_nothing(&sim);
    creation_end(&sim);
}

static void
a_creation_with_a_root_that_cannot_be_made_leaves_no_store(void **state)
{
    static const char *const gone[] = {"/first", "/gone/second"};

    (void)state;
    creation_begin(&sim, 1);
    sim.options.roots = gone;
    refused(creation_open(&sim), KVT_E_IO, "root 1, /gone/second, is missing");
    sim.options.roots = creation_roots;
    creation_left_nothing(&sim);
    creation_end(&sim);
}

/* The power goes at the n-th call of a creation that fails. Whatever that leaves can be opened: as
 * the store that it was to be (*is_made_out), or as none. False: it has fewer calls. */
static bool
creation_cut(uint32_t n, enum sim_cut cut, bool *is_made_out)
{
    static const struct sim_rule fails = {.ops = SIM_COMMIT, .effect = SIM_EIO, .nth = 3};
    bool has_crashed;

    creation_begin(&sim, n);
    sim_rule_add(sim.world, &fails);
    sim_crash_after(sim.world, n);
    assert_int_not_equal(creation_open(&sim), KVT_OK);
    has_crashed = sim_crashed(sim.world);
    sim_rules_clear(sim.world);
    sim_power_cut(sim.world, cut);
    sim.options.nvme_capacity_bytes = 48 * MIB; /* What is left of one may grow. */
    sim.options.flags = KVT_OPEN_EXISTING;
    *is_made_out = creation_open(&sim) == KVT_OK;
    sim.options.flags = 0;
    if (!*is_made_out && creation_open(&sim) != KVT_OK)
        fail_msg("cut at call %u: %s", (unsigned)n, failure_last()->text);
    kit_works(sim.store);
    creation_end(&sim);
    return has_crashed;
}

static void
a_power_cut_while_a_creation_is_taken_back_leaves_a_store_or_none(void **state)
{
    (void)state;
    for (enum sim_cut cut = SIM_CUT_NOTHING_KEPT; cut <= SIM_CUT_TORN; cut++) {
        uint32_t made_count = 0, n = 1;
        bool is_made = false;

        while (n < CALLS_MAX && creation_cut(n, cut, &is_made)) {
            made_count += is_made;
            n++;
        }
        assert_in_range(made_count, 10, n - 10);
        assert_false(is_made); /* It was taken back in full. */
    }
}

/* What cannot be taken back can be opened. */
static void
a_creation_that_cannot_be_taken_back_is_completed_by_the_next_open(void **state)
{
    static const struct sim_rule rules[] = {
        {.ops = SIM_COMMIT, .effect = SIM_EIO, .nth = 3, .sticky = true},
        {.ops = SIM_UNLINK, .effect = SIM_EIO, .file = "data.00", .nth = 1, .sticky = true},
        {.ops = SIM_UNLINK, .effect = SIM_EIO, .file = "STORE.b", .nth = 1},
    };
    static const struct sim_rule fails = {.ops = SIM_COMMIT, .effect = SIM_EIO, .nth = 3};

    (void)state;
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        creation_begin(&sim, i);
        sim_rule_add(sim.world, &rules[i]);
        sim_rule_add(sim.world, &fails);
        assert_int_not_equal(creation_open(&sim), KVT_OK);
        sim_rules_clear(sim.world);
        sim.options.flags = KVT_OPEN_EXISTING;
        assert_int_equal(creation_open(&sim), KVT_OK);
        kit_works(sim.store);
        creation_end(&sim);
    }
}

/* A process was killed when it had made a folder, and before its name was sure there: for the open
 * that finds it nothing is to be made. `found`: which of them are there. */
static void
creation_in_folders_that_are_not_sure(uint32_t found, uint32_t root_count)
{
    static const char *const folders[] = {"/store", "/first", "/second"};

    creation_begin(&sim, found);
    sim.options.root_count = root_count;
    sim.options.roots = root_count == 0 ? NULL : creation_roots;
    for (uint32_t i = 0; i < 3; i++) {
        struct fs_dir *dir = NULL;

        if ((found & 1u << i) == 0)
            continue;
        assert_int_equal(sim.fs.dir_open(sim.env.fs_context, folders[i], FS_CREATE, &dir), KVT_OK);
        sim.fs.dir_close(dir);
    }
    sim_vanish(sim.world);
    assert_int_equal(creation_open(&sim), KVT_OK);
    kit_works(sim.store);
    sim_power_cut(sim.world, SIM_CUT_NOTHING_KEPT);
    creation_works_still(&sim);
}

static void
a_store_in_folders_that_a_killed_process_made_survives_a_power_cut(void **state)
{
    (void)state;
    for (uint32_t found = 0; found < 8; found++)
        creation_in_folders_that_are_not_sure(found, 2);
    creation_in_folders_that_are_not_sure(0, 0);
    creation_in_folders_that_are_not_sure(1, 0);
}

/* A process was killed at the n-th sync of a folder, and what it made is there: for the open that
 * finds it no name is to be made. False: a creation has fewer syncs. */
static bool
creation_behind_a_cut_short_one(uint32_t n)
{
    const struct sim_rule rules[] = {
        {.ops = SIM_DIR_SYNC, .effect = SIM_EIO, .nth = n, .sticky = true},
        {.ops = SIM_UNLINK, .effect = SIM_EIO, .nth = 1, .sticky = true},
    };
    bool was_cut_short;

    creation_begin(&sim, n);
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        sim_rule_add(sim.world, &rules[i]);
    was_cut_short = creation_open(&sim) != KVT_OK;
    if (!was_cut_short)
        kvt_abort(sim.store);
    sim_rules_clear(sim.world);
    sim_vanish(sim.world);
    assert_int_equal(creation_open(&sim), KVT_OK);
    kit_works(sim.store);
    sim_power_cut(sim.world, SIM_CUT_NOTHING_KEPT);
    creation_works_still(&sim);
    return was_cut_short;
}

static void
a_store_with_names_that_a_killed_process_made_survives_a_power_cut(void **state)
{
    uint32_t n = 1;

    (void)state;
    while (creation_behind_a_cut_short_one(n))
        n++;
    assert_true(n > 8);
}

/* One that was there is as it was, though this open was allowed to make one. */
static void
a_store_that_was_there_is_never_taken_back(void **state)
{
    (void)state;
    for (uint32_t n = 1; n < CALLS_MAX; n += 5 * STRIDE) {
        const struct sim_rule rule = {.ops = SIM_ALL, .effect = SIM_EIO, .nth = n};

        creation_begin(&sim, n);
        assert_int_equal(creation_open(&sim), KVT_OK);
        kit_works(sim.store);
        sim_rule_add(sim.world, &rule);
        if (creation_open(&sim) == KVT_OK)
            kvt_abort(sim.store);
        sim_rules_clear(sim.world);
        creation_works_still(&sim);
    }
}

static enum kvt_status
allocate_with_a_false_proof(struct fs_file *file, uint64_t offset, uint64_t size)
{
    KVT_ASSERT(file == NULL);
    (void)offset;
    (void)size;
    return failure_set(KVT_E_IO, EIO, "no space, on purpose");
}

/* Nothing is known of one of which an invariant broke. */
static void
a_creation_that_was_poisoned_stays_as_it_is(void **state)
{
    (void)state;
    if (STOPS_AT_PROOFS)
        skip();
    creation_begin(&sim, 1);
    sim.fs.allocate = allocate_with_a_false_proof;
    assert_int_equal(creation_open(&sim), KVT_E_IO);
    assert_true(sim_file_exists(sim.world, "store/STORE.a"));
    creation_end(&sim);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_creation_without_memory_leaves_no_store),
        cmocka_unit_test(a_creation_of_which_a_call_fails_leaves_no_store),
        cmocka_unit_test(a_creation_without_nvme_leaves_no_store),
        cmocka_unit_test(a_creation_with_a_root_that_cannot_be_made_leaves_no_store),
        cmocka_unit_test(a_power_cut_while_a_creation_is_taken_back_leaves_a_store_or_none),
        cmocka_unit_test(a_creation_that_cannot_be_taken_back_is_completed_by_the_next_open),
        cmocka_unit_test(a_store_in_folders_that_a_killed_process_made_survives_a_power_cut),
        cmocka_unit_test(a_store_with_names_that_a_killed_process_made_survives_a_power_cut),
        cmocka_unit_test(a_store_that_was_there_is_never_taken_back),
        cmocka_unit_test(a_creation_that_was_poisoned_stays_as_it_is),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
