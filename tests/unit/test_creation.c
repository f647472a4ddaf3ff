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

#include "kvtier/kvtier_unstable.h"
#include "sim_world.h"
#include "stop_on_proof.h"
#include "store_internal.h"
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

static const char *const roots[] = {"/first", "/second"};

static struct {
    struct sim_world *world;
    struct kvt_env env;
    struct fs_ops fs; /* The world's, some functions replaced. */
    struct store_world reach;
    struct kvt_options options;
    kvt_store *store;
    bool has_third; /* One more begins to make a data file. */
} sim;

/* A world in which nothing was made yet. */
static void
sim_begin(uint64_t seed)
{
    const struct sim_options world = {.seed = seed, .directories_sync_late = true};

    memset(&sim, 0, sizeof(sim));
    sim.world = sim_world_create(&world);
    sim.env = *sim_env(sim.world);
    sim.fs = *sim.env.fs;
    sim.env.fs = &sim.fs;
    sim.reach = (struct store_world){
        .env = &sim.env, .index_ops = &sim_index_ops, .index_context = sim.world};
    sim.options = kit_options();
    sim.options.nvme_capacity_bytes = 32 * MIB;
    sim.options.roots = roots;
    sim.options.root_count = 2;
}

static void
sim_end(void)
{
    char leaks[200];

    if (sim_leaks(sim.world, leaks, sizeof(leaks)) != 0)
        fail_msg("left behind: %s", leaks);
    sim_world_destroy(sim.world);
}

static enum kvt_status
sim_open(void)
{
    return store_open_in(&sim.reach, "/store", &sim.options, &sim.store);
}

/* It is a store that has what kit_works() put. */
static void
works_still_and_ends(void)
{
    uint64_t version = 0;
    kvt_namespace ns;

    sim.options.flags = KVT_OPEN_EXISTING;
    assert_int_equal(sim_open(), KVT_OK);
    assert_int_equal(kvt_namespace_open(sim.store, "here", "", 0, &ns), KVT_OK);
    assert_int_equal(kit_get(sim.store, ns, 1, &version), KVT_OK);
    assert_int_equal(kvt_close(sim.store), KVT_OK);
    sim_end();
}

/* There is none, and one of other sizes can be made. */
static void
nothing_was_made(void)
{
    sim.options.flags = KVT_OPEN_EXISTING;
    assert_int_equal(sim_open(), KVT_MISS);
    sim.options.flags = 0;
    sim.options.nvme_capacity_bytes = 40 * MIB;
    sim.options.segment_bytes = 2 * MIB;
    sim.options.block_bytes_max /= 2;
    sim.options.root_count = 1;
    assert_int_equal(sim_open(), KVT_OK);
    assert_int_equal(sim.store->options.nvme_capacity_bytes, 40 * MIB);
    kit_works(sim.store);
}

static void
a_creation_without_memory_leaves_no_store(void **state)
{
    uint32_t refused_count = 0;

    (void)state;
    for (uint32_t n = 1; n < CALLS_MAX; n += n < 100 ? STRIDE : 7) {
        enum kvt_status status;

        sim_begin(n);
        sim_memory_fail(sim.world, n, false);
        status = sim_open();
        sim_memory_fail(sim.world, 0, false);
        assert_true(status == KVT_OK || status == KVT_E_NOMEM);
        if (status == KVT_OK) {
            kit_works(sim.store);
        } else {
            refused_count++;
            nothing_was_made();
        }
        sim_end();
    }
    assert_true(refused_count > 40 / STRIDE);
}

/* Returns whether the creation failed. */
static bool
creation_with_a_failed_call(unsigned ops, uint32_t n)
{
    const struct sim_rule rule = {.ops = ops, .effect = SIM_EIO, .nth = n};
    enum kvt_status status;

    sim_begin(n);
    sim_rule_add(sim.world, &rule);
    status = sim_open();
    sim_rules_clear(sim.world);
    if (status == KVT_OK)
        kit_works(sim.store);
    else
        nothing_was_made();
    sim_end();
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
    sim_begin(1);
    sim.options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    sim.options.root_count = 0;
    sim_rule_add(sim.world, &fails);
    assert_int_not_equal(sim_open(), KVT_OK);
    sim_rules_clear(sim.world);
    nothing_was_made();
    sim_end();
}

static void
a_creation_with_a_root_that_cannot_be_made_leaves_no_store(void **state)
{
    static const char *const gone[] = {"/first", "/gone/second"};

    (void)state;
    sim_begin(1);
    sim.options.roots = gone;
    refused(sim_open(), KVT_E_IO, "root 1, /gone/second, is missing");
    sim.options.roots = roots;
    nothing_was_made();
    sim_end();
}

/* The power goes at the n-th call of a creation that fails. Whatever that leaves can be opened: as
 * the store that it was to be (*is_made_out), or as none. False: it has fewer calls. */
static bool
creation_cut(uint32_t n, enum sim_cut cut, bool *is_made_out)
{
    static const struct sim_rule fails = {.ops = SIM_COMMIT, .effect = SIM_EIO, .nth = 3};
    bool has_crashed;

    sim_begin(n);
    sim_rule_add(sim.world, &fails);
    sim_crash_after(sim.world, n);
    assert_int_not_equal(sim_open(), KVT_OK);
    has_crashed = sim_crashed(sim.world);
    sim_rules_clear(sim.world);
    sim_power_cut(sim.world, cut);
    sim.options.nvme_capacity_bytes = 48 * MIB; /* What is left of one may grow. */
    sim.options.flags = KVT_OPEN_EXISTING;
    *is_made_out = sim_open() == KVT_OK;
    sim.options.flags = 0;
    if (!*is_made_out && sim_open() != KVT_OK)
        fail_msg("cut at call %u: %s", (unsigned)n, failure_last()->text);
    kit_works(sim.store);
    sim_end();
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
        sim_begin(i);
        sim_rule_add(sim.world, &rules[i]);
        sim_rule_add(sim.world, &fails);
        assert_int_not_equal(sim_open(), KVT_OK);
        sim_rules_clear(sim.world);
        sim.options.flags = KVT_OPEN_EXISTING;
        assert_int_equal(sim_open(), KVT_OK);
        kit_works(sim.store);
        sim_end();
    }
}

/* A process was killed when it had made a folder, and before its name was sure there: for the open
 * that finds it nothing is to be made. `found`: which of them are there. */
static void
creation_in_folders_that_are_not_sure(uint32_t found, uint32_t root_count)
{
    static const char *const folders[] = {"/store", "/first", "/second"};

    sim_begin(found);
    sim.options.root_count = root_count;
    sim.options.roots = root_count == 0 ? NULL : roots;
    for (uint32_t i = 0; i < 3; i++) {
        struct fs_dir *dir = NULL;

        if ((found & 1u << i) == 0)
            continue;
        assert_int_equal(sim.fs.dir_open(sim.env.fs_context, folders[i], FS_CREATE, &dir), KVT_OK);
        sim.fs.dir_close(dir);
    }
    sim_vanish(sim.world);
    assert_int_equal(sim_open(), KVT_OK);
    kit_works(sim.store);
    sim_power_cut(sim.world, SIM_CUT_NOTHING_KEPT);
    works_still_and_ends();
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

/* --- What is not of this open ----------------------------------------------------------------- */

/* Somebody else makes a data file there when the creation has looked for one. */
static enum kvt_status
dir_open_and_use(void *context, const char *path, unsigned flags, struct fs_dir **dir_out)
{
    enum kvt_status status = sim_env(sim.world)->fs->dir_open(context, path, flags, dir_out);
    struct fs_file *file;

    if (status != KVT_OK || (flags & FS_CREATE) == 0 || strcmp(path, roots[1]) != 0)
        return status;
    assert_int_equal(sim.fs.open(*dir_out, "data.00", FS_CREATE, &file), KVT_OK);
    assert_int_equal(sim.fs.allocate(file, 0, 16 * MIB), KVT_OK);
    sim.fs.close(file);
    return KVT_OK;
}

static void
a_data_file_that_somebody_else_made_stays(void **state)
{
    static const struct sim_rule fails = {.ops = SIM_COMMIT, .effect = SIM_EIO, .nth = 2};

    (void)state;
    sim_begin(1);
    sim.fs.dir_open = dir_open_and_use;
    sim_rule_add(sim.world, &fails);
    assert_int_not_equal(sim_open(), KVT_OK);
    assert_true(sim_file_exists(sim.world, "second/data.00"));
    assert_false(sim_file_exists(sim.world, "first/data.00"));
    assert_false(sim_file_exists(sim.world, "store/STORE.a"));
    sim_end();
}

static void
file_leave(struct fs_dir *dir, const char *name)
{
    struct fs_file *file = NULL;

    assert_int_equal(sim.fs.open(dir, name, FS_CREATE | FS_EXCLUSIVE, &file), KVT_OK);
    assert_int_equal(sim.fs.truncate(file, 5), KVT_OK);
    sim.fs.close(file);
}

/* Another store makes its data file there while this one's has its space already. A third has taken
 * that for a crash's, and begun. */
static enum kvt_status
sync_parent_and_make(struct fs_dir *dir)
{
    if (strcmp(sim.fs.dir_path(dir), roots[1]) == 0) {
        file_leave(dir, "data.00");
        if (sim.has_third) {
            assert_int_equal(sim.fs.unlink(dir, "data.00.new"), KVT_OK);
            file_leave(dir, "data.00.new");
        }
    }
    return sim_env(sim.world)->fs->dir_sync_parent(dir);
}

/* Or has only begun, and removed what it took for a crash's. */
static enum kvt_status
sync_parent_and_remove(struct fs_dir *dir)
{
    if (strcmp(sim.fs.dir_path(dir), roots[1]) == 0)
        assert_int_equal(sim.fs.unlink(dir, "data.00.new"), KVT_OK);
    return sim_env(sim.world)->fs->dir_sync_parent(dir);
}

/* And has its own there when this one's gets its last name. */
static enum kvt_status
sync_parent_and_replace(struct fs_dir *dir)
{
    enum kvt_status status = sync_parent_and_remove(dir);

    if (strcmp(sim.fs.dir_path(dir), roots[1]) == 0)
        file_leave(dir, "data.00.new");
    return status;
}

/* Somebody removes what has just got its last name. */
static enum kvt_status
sync_and_remove(struct fs_dir *dir)
{
    struct fs_file *file = NULL;

    if (strcmp(sim.fs.dir_path(dir), roots[1]) == 0 &&
        sim.fs.open(dir, "data.00", FS_READ_ONLY, &file) == KVT_OK) {
        sim.fs.close(file);
        assert_int_equal(sim.fs.unlink(dir, "data.00"), KVT_OK);
    }
    return sim_env(sim.world)->fs->dir_sync(dir);
}

static void
a_data_file_that_is_removed_while_it_is_made_is_refused(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        sim_begin(1);
        if (i == 0)
            sim.fs.dir_sync_parent = sync_parent_and_remove;
        else
            sim.fs.dir_sync = sync_and_remove;
        refused(
            sim_open(), KVT_E_INVAL, "/second/data.00 is made by another store at the same time");
        sim.fs = *sim_env(sim.world)->fs;
        nothing_was_made();
        sim_end();
    }
}

/* The host forks whenever a file has been opened to be locked. */
static enum kvt_status
lock_of_a_forked(struct fs_file *file, uint64_t timeout_ns)
{
    (void)file;
    (void)timeout_ns;
    return failure_set(KVT_E_BUSY, 0, "the process forked");
}

static void
a_creation_whose_process_forks_all_the_time_says_so(void **state)
{
    (void)state;
    sim_begin(1);
    sim.fs.lock = lock_of_a_forked;
    refused(sim_open(), KVT_E_BUSY, "the process forked");
    sim.fs.lock = sim_env(sim.world)->fs->lock;
    nothing_was_made();
    sim_end();
}

/* The data file of the second root is the other store's. */
static void
second_is_of_five_bytes(void)
{
    struct fs_dir *dir = NULL;
    struct fs_file *file;
    uint64_t size = 0;

    assert_int_equal(sim.fs.dir_open(sim.env.fs_context, roots[1], 0, &dir), KVT_OK);
    assert_int_equal(sim.fs.open(dir, "data.00", FS_READ_ONLY, &file), KVT_OK);
    assert_int_equal(sim.fs.size(file, &size), KVT_OK);
    assert_int_equal(size, 5);
    sim.fs.close(file);
    sim.fs.dir_close(dir);
}

static void
a_data_file_that_is_made_at_the_same_time_is_not_replaced(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        sim_begin(1);
        sim.has_third = i == 1;
        sim.fs.dir_sync_parent = sync_parent_and_make;
        refused(
            sim_open(), KVT_E_INVAL, "/second/data.00 is made by another store at the same time");
        second_is_of_five_bytes();
        assert_int_equal(sim_file_exists(sim.world, "second/data.00.new"), sim.has_third);
        assert_false(sim_file_exists(sim.world, "first/data.00"));
        assert_false(sim_file_exists(sim.world, "store/STORE.a"));
        sim_end();
    }
}

/* It could not open this one's, which another user made, and so did not see that it is locked. */
static void
a_data_file_that_is_another_when_it_has_its_name_is_not_taken(void **state)
{
    (void)state;
    sim_begin(1);
    sim.fs.dir_sync_parent = sync_parent_and_replace;
    refused(sim_open(), KVT_E_INVAL, "/second/data.00 is made by another store at the same time");
    second_is_of_five_bytes();
    assert_false(sim_file_exists(sim.world, "first/data.00"));
    assert_false(sim_file_exists(sim.world, "store/STORE.a"));
    sim_end();
}

/* It holds the file for half a minute, to remove it. */
static enum kvt_status
lock_of_another(struct fs_file *file, uint64_t timeout_ns)
{
    struct fs_dir *dir = NULL;
    struct fs_file *named = NULL;
    enum kvt_status status = sim_env(sim.world)->fs->lock(file, timeout_ns);

    assert_int_equal(sim.fs.dir_open(sim.env.fs_context, roots[1], 0, &dir), KVT_OK);
    if (sim.fs.open(dir, "data.00.new", 0, &named) == KVT_OK && sim.fs.is_same(named, file))
        status = failure_set(KVT_E_LOCKED, 0, "another has it");
    sim.fs.close(named);
    sim.fs.dir_close(dir);
    return status;
}

static void
a_data_file_that_another_has_locked_is_left_to_it(void **state)
{
    struct fs_dir *dir;

    (void)state;
    sim_begin(1);
    assert_int_equal(sim.fs.dir_open(sim.env.fs_context, roots[1], FS_CREATE, &dir), KVT_OK);
    sim.fs.dir_close(dir);
    sim.fs.lock = lock_of_another;
    refused(sim_open(), KVT_E_LOCKED, "/second/data.00 is locked");
    sim.fs.lock = sim_env(sim.world)->fs->lock;
    assert_true(sim_file_exists(sim.world, "second/data.00.new"));
    nothing_was_made();
    sim_end();
}

/* Another store is made with that root while this one's has its space already: it must not take it
 * for what a crash left. */
static enum kvt_status
sync_parent_and_create(struct fs_dir *dir)
{
    static const char *const other_roots[] = {"/second"};
    struct kvt_options options = sim.options;
    kvt_store *other = NULL;

    if (strcmp(sim.fs.dir_path(dir), roots[1]) == 0) {
        sim.fs.dir_sync_parent = sim_env(sim.world)->fs->dir_sync_parent;
        options.roots = other_roots;
        options.root_count = 1;
        refused(store_open_in(&sim.reach, "/other", &options, &other), KVT_E_LOCKED,
            "/second/data.00 is locked");
    }
    return sim_env(sim.world)->fs->dir_sync_parent(dir);
}

static void
a_data_file_that_is_being_made_is_not_taken(void **state)
{
    (void)state;
    sim_begin(1);
    sim.fs.dir_sync_parent = sync_parent_and_create;
    assert_int_equal(sim_open(), KVT_OK);
    assert_false(sim_file_exists(sim.world, "second/data.00.new"));
    assert_false(sim_file_exists(sim.world, "other/STORE.a"));
    kit_works(sim.store);
    works_still_and_ends();
}

/* The other one has made its data file when this one, which has opened it, gets its lock. */
static enum kvt_status
lock_when_it_is_made(struct fs_file *file, uint64_t timeout_ns)
{
    struct fs_dir *dir = NULL;
    struct fs_file *named = NULL;

    assert_int_equal(sim.fs.dir_open(sim.env.fs_context, roots[1], 0, &dir), KVT_OK);
    if (sim.fs.open(dir, "data.00.new", 0, &named) == KVT_OK && sim.fs.is_same(named, file)) {
        assert_int_equal(sim.fs.truncate(file, 5), KVT_OK);
        assert_int_equal(sim.fs.rename_new(dir, "data.00.new", "data.00"), KVT_OK);
        if (sim.has_third)
            file_leave(dir, "data.00.new");
    }
    sim.fs.close(named);
    sim.fs.dir_close(dir);
    return sim_env(sim.world)->fs->lock(file, timeout_ns);
}

static void
a_data_file_that_has_been_made_meanwhile_is_not_emptied(void **state)
{
    struct fs_dir *dir;

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        sim_begin(1);
        sim.has_third = (i & 1) != 0;
        sim.fs.lock = lock_when_it_is_made;
        assert_int_equal(sim.fs.dir_open(sim.env.fs_context, roots[1], FS_CREATE, &dir), KVT_OK);
        if ((i & 2) != 0)
            file_leave(dir, "data.00.new"); /* The other has begun first. */
        sim.fs.dir_close(dir);
        refused(
            sim_open(), KVT_E_INVAL, "/second/data.00 is made by another store at the same time");
        second_is_of_five_bytes();
        assert_int_equal(sim_file_exists(sim.world, "second/data.00.new"), sim.has_third);
        sim_end();
    }
}

/* With and without a file that a crash left. */
static void
an_error_of_the_disk_is_not_told_as_another_store(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t failed_count = 0;
        enum kvt_status status;

        do {
            const struct sim_rule fails = {
                .ops = SIM_OPEN, .effect = SIM_EIO, .file = "data.00.new", .nth = failed_count + 1};
            struct fs_dir *dir;

            sim_begin(1);
            assert_int_equal(
                sim.fs.dir_open(sim.env.fs_context, roots[0], FS_CREATE, &dir), KVT_OK);
            if (i == 1)
                file_leave(dir, "data.00.new");
            sim.fs.dir_close(dir);
            sim_rule_add(sim.world, &fails);
            status = sim_open();
            sim_rules_clear(sim.world);
            if (status != KVT_OK) {
                assert_int_equal(status, KVT_E_IO);
                failed_count++;
                if (i == 0) {
                    assert_false(sim_file_exists(sim.world, "first/data.00.new"));
                    assert_false(sim_file_exists(sim.world, "second/data.00.new"));
                }
                assert_int_equal(sim_open(), KVT_OK);
            }
            kit_works(sim.store);
            sim_end();
        } while (status != KVT_OK);
        assert_int_equal(failed_count, i == 0 ? 6 : 9); /* Three opens of each, and three. */
    }
}

/* One that was there is as it was, though this open was allowed to make one. */
static void
a_store_that_was_there_is_never_taken_back(void **state)
{
    (void)state;
    for (uint32_t n = 1; n < CALLS_MAX; n += 5 * STRIDE) {
        const struct sim_rule rule = {.ops = SIM_ALL, .effect = SIM_EIO, .nth = n};

        sim_begin(n);
        assert_int_equal(sim_open(), KVT_OK);
        kit_works(sim.store);
        sim_rule_add(sim.world, &rule);
        if (sim_open() == KVT_OK)
            kvt_abort(sim.store);
        sim_rules_clear(sim.world);
        works_still_and_ends();
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
    sim_begin(1);
    sim.fs.allocate = allocate_with_a_false_proof;
    assert_int_equal(sim_open(), KVT_E_IO);
    assert_true(sim_file_exists(sim.world, "store/STORE.a"));
    sim_end();
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
        cmocka_unit_test(a_data_file_that_somebody_else_made_stays),
        cmocka_unit_test(a_creation_whose_process_forks_all_the_time_says_so),
        cmocka_unit_test(a_data_file_that_is_removed_while_it_is_made_is_refused),
        cmocka_unit_test(a_data_file_that_is_made_at_the_same_time_is_not_replaced),
        cmocka_unit_test(a_data_file_that_is_another_when_it_has_its_name_is_not_taken),
        cmocka_unit_test(a_data_file_that_another_has_locked_is_left_to_it),
        cmocka_unit_test(a_data_file_that_is_being_made_is_not_taken),
        cmocka_unit_test(a_data_file_that_has_been_made_meanwhile_is_not_emptied),
        cmocka_unit_test(an_error_of_the_disk_is_not_told_as_another_store),
        cmocka_unit_test(a_store_that_was_there_is_never_taken_back),
        cmocka_unit_test(a_creation_that_was_poisoned_stays_as_it_is),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
