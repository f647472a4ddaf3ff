/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_creation_others.c - stores that are made at the same time with one root: at most one of them
 * gets it, and what is one's stays when the other is refused.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "creation_rig.h"
#include "failure.h"
#include "stop_on_proof.h"
#include "store_kit.h"

static struct creation_rig sim;
static bool has_third;      /* One more begins to make a data file. */
static uint32_t call_count; /* Until it happens. */

static void
file_leave(struct fs_dir *dir, const char *name)
{
    struct fs_file *file = NULL;

    assert_int_equal(sim.fs.open(dir, name, FS_CREATE | FS_EXCLUSIVE, &file), KVT_OK);
    assert_int_equal(sim.fs.truncate(file, 5), KVT_OK);
    sim.fs.close(file);
}

/* That file of the second root is the other store's. */
static void
second_is_of_five_bytes(const char *name)
{
    struct fs_dir *dir = NULL;
    struct fs_file *file;
    uint64_t size = 0;

    assert_int_equal(sim.fs.dir_open(sim.env.fs_context, creation_roots[1], 0, &dir), KVT_OK);
    assert_int_equal(sim.fs.open(dir, name, FS_READ_ONLY, &file), KVT_OK);
    assert_int_equal(sim.fs.size(file, &size), KVT_OK);
    assert_int_equal(size, 5);
    sim.fs.close(file);
    sim.fs.dir_close(dir);
}

/* Somebody else makes a data file there when the creation has looked for one. */
static enum kvt_status
dir_open_and_make(void *context, const char *path, unsigned flags, struct fs_dir **dir_out)
{
    enum kvt_status status = sim_env(sim.world)->fs->dir_open(context, path, flags, dir_out);

    if (status == KVT_OK && (flags & FS_CREATE) != 0 && strcmp(path, creation_roots[1]) == 0)
        file_leave(*dir_out, "data.00");
    return status;
}

/* Or when it has looked in all roots, and makes the first one's. */
static enum kvt_status
dir_sync_and_make(struct fs_dir *dir)
{
    struct fs_dir *second = NULL;

    if (strcmp(sim.fs.dir_path(dir), creation_roots[0]) == 0 &&
        !sim_file_exists(sim.world, "second/data.00")) {
        assert_int_equal(
            sim.fs.dir_open(sim.env.fs_context, creation_roots[1], 0, &second), KVT_OK);
        file_leave(second, "data.00");
        sim.fs.dir_close(second);
    }
    return sim_env(sim.world)->fs->dir_sync(dir);
}

/* It lies in the second root. */
static bool
is_file(const char *name, const struct fs_file *file)
{
    struct fs_dir *dir = NULL;
    struct fs_file *named = NULL;
    bool is_same = false;

    if (sim_env(sim.world)->fs->dir_open(sim.env.fs_context, creation_roots[1], 0, &dir) != KVT_OK)
        return false;
    if (sim_env(sim.world)->fs->open(dir, name, FS_READ_ONLY, &named) == KVT_OK)
        is_same = sim.fs.is_same(named, file);
    sim.fs.close(named);
    sim.fs.dir_close(dir);
    return is_same;
}

/* Who is refused does not keep the file from its maker. */
static enum kvt_status
lock_of_none(struct fs_file *file, uint64_t timeout_ns)
{
    assert_false(is_file("data.00", file));
    return sim_env(sim.world)->fs->lock(file, timeout_ns);
}

/* This creation is refused, and takes back what is its own. */
static void
second_stays_the_others(void)
{
    refused(creation_open(&sim), KVT_E_INVAL,
        "/second/data.00 is made by another store at the same time");
    second_is_of_five_bytes("data.00");
    assert_false(sim_file_exists(sim.world, "first/data.00"));
    assert_false(sim_file_exists(sim.world, "store/STORE.a"));
}

static void
a_data_file_that_somebody_else_made_stays(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        creation_begin(&sim, 1);
        if (i == 0)
            sim.fs.dir_open = dir_open_and_make;
        else
            sim.fs.dir_sync = dir_sync_and_make;
        sim.fs.lock = lock_of_none;
        second_stays_the_others();
        creation_end(&sim);
    }
}

/* Another store makes its data file there while this one's has its space already. A third has taken
 * that for a crash's, and begun. */
static enum kvt_status
sync_parent_and_make(struct fs_dir *dir)
{
    if (strcmp(sim.fs.dir_path(dir), creation_roots[1]) == 0) {
        file_leave(dir, "data.00");
        if (has_third) {
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
    if (strcmp(sim.fs.dir_path(dir), creation_roots[1]) == 0)
        assert_int_equal(sim.fs.unlink(dir, "data.00.new"), KVT_OK);
    return sim_env(sim.world)->fs->dir_sync_parent(dir);
}

/* And has its own there when this one's gets its last name. */
static enum kvt_status
sync_parent_and_replace(struct fs_dir *dir)
{
    enum kvt_status status = sync_parent_and_remove(dir);

    if (strcmp(sim.fs.dir_path(dir), creation_roots[1]) == 0)
        file_leave(dir, "data.00.new");
    return status;
}

/* Somebody removes what has just got its last name. */
static enum kvt_status
rename_and_remove(struct fs_dir *dir, const char *from, const char *to)
{
    enum kvt_status status = sim_env(sim.world)->fs->rename_new(dir, from, to);

    if (strcmp(sim.fs.dir_path(dir), creation_roots[1]) == 0)
        assert_int_equal(sim.fs.unlink(dir, to), KVT_OK);
    return status;
}

static void
a_data_file_that_is_removed_while_it_is_made_is_refused(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        creation_begin(&sim, 1);
        if (i == 0)
            sim.fs.dir_sync_parent = sync_parent_and_remove;
        else
            sim.fs.rename_new = rename_and_remove;
        refused(creation_open(&sim), KVT_E_INVAL,
            "/second/data.00 is made by another store at the same time");
        sim.fs = *sim_env(sim.world)->fs;
        creation_left_nothing(&sim);
        creation_end(&sim);
    }
}

/* The host forks whenever that has been opened to be locked. */
static enum kvt_status
lock_of_a_forked(struct fs_file *file, uint64_t timeout_ns)
{
    if (!is_file("data.00.new", file))
        return sim_env(sim.world)->fs->lock(file, timeout_ns);
    sim_clock_jump(sim.world, 1000000000);
    return failure_set(KVT_E_BUSY, 0, "the process forked");
}

static void
a_creation_whose_process_forks_all_the_time_says_so(void **state)
{
    (void)state;
    creation_begin(&sim, 1);
    sim.fs.lock = lock_of_a_forked;
    refused(creation_open(&sim), KVT_E_BUSY, "the process forked");
    sim.fs = *sim_env(sim.world)->fs;
    assert_false(sim_file_exists(sim.world, "second/data.00.new"));
    creation_left_nothing(&sim);
    creation_end(&sim);
}

static void
a_data_file_that_is_made_at_the_same_time_is_not_replaced(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        creation_begin(&sim, 1);
        has_third = i == 1;
        sim.fs.dir_sync_parent = sync_parent_and_make;
        second_stays_the_others();
        assert_int_equal(sim_file_exists(sim.world, "second/data.00.new"), has_third);
        creation_end(&sim);
    }
}

/* The other's file that is there now is another user's, too. */
static enum kvt_status
open_of_another_user(
    struct fs_dir *dir, const char *name, unsigned flags, struct fs_file **file_out)
{
    *file_out = NULL;
    if (strcmp(sim.fs.dir_path(dir), creation_roots[1]) == 0 && strcmp(name, "data.00") == 0 &&
        sim_file_exists(sim.world, "second/data.00"))
        return failure_set(KVT_E_PERMISSION, EACCES, "not this user's");
    return sim_env(sim.world)->fs->open(dir, name, flags, file_out);
}

/* It could not open this one's, or there are no locks, and it took it for a crash's. */
static void
a_data_file_that_is_another_when_it_has_its_name_is_not_taken(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        creation_begin(&sim, 1);
        sim.fs.dir_sync_parent = sync_parent_and_replace;
        if (i == 1)
            sim.fs.open = open_of_another_user;
        refused(creation_open(&sim), KVT_E_INVAL,
            "/second/data.00 is made by another store at the same time");
        sim.fs = *sim_env(sim.world)->fs;
        second_is_of_five_bytes("data.00");
        assert_false(sim_file_exists(sim.world, "first/data.00"));
        assert_false(sim_file_exists(sim.world, "store/STORE.a"));
        creation_end(&sim);
    }
}

/* Another has begun its file when this one, which has made its own, opens that to lock it; or opens
 * it anew, as direct reads of it do not work. */
static enum kvt_status
open_and_replace(struct fs_dir *dir, const char *name, unsigned flags, struct fs_file **file_out)
{
    const struct fs_ops *fs = sim_env(sim.world)->fs;

    if (strcmp(fs->dir_path(dir), creation_roots[1]) == 0 && strcmp(name, "data.00.new") == 0 &&
        (flags & (FS_EXCLUSIVE | FS_READ_ONLY)) == 0 && --call_count == 0) {
        assert_int_equal(fs->unlink(dir, name), KVT_OK);
        file_leave(dir, name);
    }
    return fs->open(dir, name, flags, file_out);
}

static enum kvt_status
read_not_direct(struct fs_file *file, void *target, size_t size, uint64_t offset, size_t *read_out)
{
    if (sim.fs.is_direct(file))
        return failure_set(KVT_E_INVAL, EINVAL, "no direct reads");
    return sim_env(sim.world)->fs->read_at(file, target, size, offset, read_out);
}

static void
a_data_file_that_another_has_begun_is_left_to_it(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        creation_begin(&sim, 1);
        call_count = i + 1;
        sim.fs.open = open_and_replace;
        if (i == 1)
            sim.fs.read_at = read_not_direct;
        refused(creation_open(&sim), KVT_E_INVAL,
            "/second/data.00 is made by another store at the same time");
        assert_int_equal(call_count, 0);
        sim.fs = *sim_env(sim.world)->fs;
        second_is_of_five_bytes("data.00.new");
        assert_false(sim_file_exists(sim.world, "second/data.00"));
        creation_left_nothing(&sim);
        creation_end(&sim);
    }
}

/* It holds the file for half a minute, to remove it. */
static enum kvt_status
lock_of_another(struct fs_file *file, uint64_t timeout_ns)
{
    if (is_file("data.00.new", file))
        return failure_set(KVT_E_LOCKED, 0, "another has it");
    return sim_env(sim.world)->fs->lock(file, timeout_ns);
}

static void
a_data_file_that_another_has_locked_is_left_to_it(void **state)
{
    (void)state;
    creation_begin(&sim, 1);
    sim.fs.lock = lock_of_another;
    refused(creation_open(&sim), KVT_E_LOCKED, "/second/data.00 is locked");
    sim.fs = *sim_env(sim.world)->fs;
    assert_true(sim_file_exists(sim.world, "second/data.00.new"));
    creation_left_nothing(&sim);
    creation_end(&sim);
}

/* Another open waits for the lock of the file that is taken back. */
static enum kvt_status
unlink_while_another_waits(struct fs_dir *dir, const char *name)
{
    const struct fs_ops *fs = sim_env(sim.world)->fs;
    struct fs_file *file = NULL;

    if (strcmp(fs->dir_path(dir), creation_roots[1]) == 0 && strcmp(name, "data.00") == 0) {
        assert_int_equal(fs->open(dir, name, 0, &file), KVT_OK);
        assert_int_equal(fs->lock(file, 0), KVT_E_LOCKED);
        fs->close(file);
    }
    return fs->unlink(dir, name);
}

static void
a_data_file_that_is_taken_back_is_nobody_elses(void **state)
{
    static const struct sim_rule fails = {.ops = SIM_COMMIT, .effect = SIM_EIO, .nth = 2};

    (void)state;
    creation_begin(&sim, 1);
    sim.fs.unlink = unlink_while_another_waits;
    sim_rule_add(sim.world, &fails);
    assert_int_equal(creation_open(&sim), KVT_E_META);
    sim_rules_clear(sim.world);
    sim.fs = *sim_env(sim.world)->fs;
    creation_left_nothing(&sim);
    creation_end(&sim);
}

/* When all data files are made: where a rename replaces, another's can come to their names. */
static enum kvt_status
dir_sync_and_replace(struct fs_dir *dir)
{
    const struct fs_ops *fs = sim_env(sim.world)->fs;

    if (strcmp(fs->dir_path(dir), creation_roots[1]) == 0 && call_count > 0 && --call_count == 0) {
        assert_int_equal(fs->unlink(dir, "data.00"), KVT_OK);
        file_leave(dir, "data.00");
    }
    return fs->dir_sync(dir);
}

static void
a_data_file_that_was_replaced_is_not_taken_back(void **state)
{
    static const struct sim_rule fails = {.ops = SIM_COMMIT, .effect = SIM_EIO, .nth = 2};

    (void)state;
    creation_begin(&sim, 1);
    call_count = 2; /* Behind the rename, and when all names are made sure. */
    sim.fs.dir_sync = dir_sync_and_replace;
    sim_rule_add(sim.world, &fails);
    assert_int_equal(creation_open(&sim), KVT_E_META);
    sim_rules_clear(sim.world);
    assert_int_equal(call_count, 0);
    second_is_of_five_bytes("data.00");
    assert_false(sim_file_exists(sim.world, "first/data.00"));
    assert_false(sim_file_exists(sim.world, "store/STORE.a"));
    creation_end(&sim);
}

/* Who had that file locked removes it before it lets go. */
static enum kvt_status
lock_behind_its_end(struct fs_file *file, uint64_t timeout_ns)
{
    struct fs_dir *dir = NULL;

    if (is_file("data.00", file)) {
        assert_int_equal(sim.fs.dir_open(sim.env.fs_context, creation_roots[1], 0, &dir), KVT_OK);
        assert_int_equal(sim.fs.unlink(dir, "data.00"), KVT_OK);
        sim.fs.dir_close(dir);
    }
    return sim_env(sim.world)->fs->lock(file, timeout_ns);
}

static void
a_data_file_that_is_gone_when_its_lock_is_had_is_missing(void **state)
{
    (void)state;
    creation_begin(&sim, 1);
    assert_int_equal(creation_open(&sim), KVT_OK);
    kit_works(sim.store);
    sim.fs.lock = lock_behind_its_end;
    refused(creation_open(&sim), KVT_E_IO, "/second/data.00 is missing");
    creation_end(&sim);
}

/* Another store is made with that root while this one's has its space already: it must not take it
 * for what a crash left. */
static enum kvt_status
sync_parent_and_create(struct fs_dir *dir)
{
    static const char *const other_roots[] = {"/second"};
    struct kvt_options options = sim.options;
    kvt_store *other = NULL;

    if (strcmp(sim.fs.dir_path(dir), creation_roots[1]) == 0) {
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
    creation_begin(&sim, 1);
    sim.fs.dir_sync_parent = sync_parent_and_create;
    assert_int_equal(creation_open(&sim), KVT_OK);
    assert_false(sim_file_exists(sim.world, "second/data.00.new"));
    assert_false(sim_file_exists(sim.world, "other/STORE.a"));
    kit_works(sim.store);
    creation_works_still(&sim);
}

/* The other one has made its data file when this one, which has opened it, gets its lock. */
static enum kvt_status
lock_when_it_is_made(struct fs_file *file, uint64_t timeout_ns)
{
    struct fs_dir *dir = NULL;

    if (is_file("data.00.new", file)) {
        assert_int_equal(sim.fs.dir_open(sim.env.fs_context, creation_roots[1], 0, &dir), KVT_OK);
        assert_int_equal(sim.fs.truncate(file, 5), KVT_OK);
        assert_int_equal(sim.fs.rename_new(dir, "data.00.new", "data.00"), KVT_OK);
        if (has_third)
            file_leave(dir, "data.00.new");
        sim.fs.dir_close(dir);
    }
    return sim_env(sim.world)->fs->lock(file, timeout_ns);
}

static void
a_data_file_that_has_been_made_meanwhile_is_not_emptied(void **state)
{
    struct fs_dir *dir;

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        creation_begin(&sim, 1);
        has_third = (i & 1) != 0;
        sim.fs.lock = lock_when_it_is_made;
        assert_int_equal(
            sim.fs.dir_open(sim.env.fs_context, creation_roots[1], FS_CREATE, &dir), KVT_OK);
        if ((i & 2) != 0)
            file_leave(dir, "data.00.new"); /* The other has begun first. */
        sim.fs.dir_close(dir);
        refused(creation_open(&sim), KVT_E_INVAL,
            "/second/data.00 is made by another store at the same time");
        second_is_of_five_bytes("data.00");
        assert_int_equal(sim_file_exists(sim.world, "second/data.00.new"), has_third);
        creation_end(&sim);
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

            creation_begin(&sim, 1);
            assert_int_equal(
                sim.fs.dir_open(sim.env.fs_context, creation_roots[0], FS_CREATE, &dir), KVT_OK);
            if (i == 1)
                file_leave(dir, "data.00.new");
            sim.fs.dir_close(dir);
            sim_rule_add(sim.world, &fails);
            status = creation_open(&sim);
            sim_rules_clear(sim.world);
            if (status != KVT_OK) {
                assert_int_equal(status, KVT_E_IO);
                failed_count++;
                if (i == 0) {
                    assert_false(sim_file_exists(sim.world, "first/data.00.new"));
                    assert_false(sim_file_exists(sim.world, "second/data.00.new"));
                }
                assert_int_equal(creation_open(&sim), KVT_OK);
            }
            kit_works(sim.store);
            creation_end(&sim);
        } while (status != KVT_OK);
        assert_int_equal(failed_count, i == 0 ? 6 : 9); /* Three opens of each, and three. */
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_data_file_that_somebody_else_made_stays),
        cmocka_unit_test(a_data_file_that_is_removed_while_it_is_made_is_refused),
        cmocka_unit_test(a_creation_whose_process_forks_all_the_time_says_so),
        cmocka_unit_test(a_data_file_that_is_made_at_the_same_time_is_not_replaced),
        cmocka_unit_test(a_data_file_that_is_another_when_it_has_its_name_is_not_taken),
        cmocka_unit_test(a_data_file_that_another_has_begun_is_left_to_it),
        cmocka_unit_test(a_data_file_that_another_has_locked_is_left_to_it),
        cmocka_unit_test(a_data_file_that_is_taken_back_is_nobody_elses),
        cmocka_unit_test(a_data_file_that_was_replaced_is_not_taken_back),
        cmocka_unit_test(a_data_file_that_is_gone_when_its_lock_is_had_is_missing),
        cmocka_unit_test(a_data_file_that_is_being_made_is_not_taken),
        cmocka_unit_test(a_data_file_that_has_been_made_meanwhile_is_not_emptied),
        cmocka_unit_test(an_error_of_the_disk_is_not_told_as_another_store),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
