/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_engram_folder.c - the folder of Engram tables: what is said of names in it stays so after a
 * crash, and one thing in it that is damaged, unreadable or not ours does not concern the others.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engram_rig.h"
#include "failure.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"

static const struct kvt_options small_options = {.struct_size = sizeof(struct kvt_options),
    .host_capacity_bytes = 2 << 20,
    .nvme_capacity_bytes = 16 << 20,
    .segment_bytes = 1 << 20,
    .block_bytes_max = 64 << 10,
    .engram_capacity_bytes = 16 << 20};

static struct sim_store sim;
static struct engram_rig rig;

static struct fs_dir *
folder_open(const char *path)
{
    struct fs_dir *dir;

    assert_int_equal(sim.env.fs->dir_open(sim.env.fs_context, path, 0, &dir), KVT_OK);
    return dir;
}

static int
setup(void **state)
{
    const struct sim_options options = {.seed = 7, .directories_sync_late = true};
    struct fs_dir *root;

    (void)state;
    sim_store_open_world(&sim, &small_options, &options);
    root = folder_open("/"); /* Its owner's to sync. */
    assert_int_equal(sim.env.fs->dir_sync(root), KVT_OK);
    sim.env.fs->dir_close(root);
    engram_rig_init(&rig, "t", 4088, 100); /* 406 pages: two chunks. */
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    sim_store_close(&sim);
    return 0;
}

static enum kvt_status
import(const char *name)
{
    return engram_rig_import(&rig, sim.store, name, 0);
}

static void
rule_add(unsigned ops, const char *file, bool is_sticky)
{
    const struct sim_rule rule = {
        .ops = ops, .effect = SIM_EIO, .file = file, .nth = 1, .sticky = is_sticky};

    sim_rule_add(sim.world, &rule);
}

/* Everything that was not synced is lost. */
static void
power_goes(void)
{
    sim_power_cut(sim.world, SIM_CUT_NOTHING_KEPT);
    sim_store_reopen(&sim);
}

static enum kvt_status
open_status(const char *name)
{
    kvt_engram *table;
    enum kvt_status status = kvt_engram_open(sim.store, name, &table);

    assert_int_equal(kvt_engram_close(table), KVT_OK);
    return status;
}

/* --- Names that are durable ------------------------------------------------------------------- */

static void
a_table_that_is_said_to_be_gone_stays_gone(void **state)
{
    (void)state;
    assert_int_equal(import("t"), KVT_OK);
    rule_add(SIM_DIR_SYNC, NULL, true);
    assert_int_equal(kvt_engram_drop(sim.store, "t"), KVT_E_IO);
    assert_int_equal(kvt_engram_drop(sim.store, "t"), KVT_E_IO); /* It may come back. */
    sim_rules_clear(sim.world);
    assert_int_equal(kvt_engram_drop(sim.store, "t"), KVT_MISS);
    power_goes();
    assert_int_equal(open_status("t"), KVT_MISS);
}

/* The process is killed when a drop has taken the table away and not come to its sync. */
static void
a_table_is_gone_when_the_next_life_says_so(void **state)
{
    struct fs_dir *dir;

    (void)state;
    assert_int_equal(import("t"), KVT_OK);
    dir = folder_open("/store/engram");
    assert_int_equal(sim.env.fs->unlink(dir, "t.engram"), KVT_OK);
    sim.env.fs->dir_close(dir);
    sim_vanish(sim.world);
    sim_store_reopen(&sim);
    assert_int_equal(kvt_engram_drop(sim.store, "t"), KVT_MISS);
    power_goes();
    assert_int_equal(open_status("t"), KVT_MISS);
}

/* An import that fails takes its file away and leaves the sync to who asks. */
static void
what_an_import_has_taken_away_stays_gone(void **state)
{
    struct fs_dir *dir;
    struct fs_file *file;

    (void)state;
    rig.fail_at = 1;
    assert_int_equal(import("t"), KVT_E_BUSY);
    assert_int_equal(kvt_engram_drop(sim.store, "t"), KVT_MISS);
    power_goes();
    dir = folder_open("/store/engram");
    assert_int_equal(sim.env.fs->open(dir, "t.engram.new", FS_READ_ONLY, &file), KVT_MISS);
    sim.env.fs->dir_close(dir);
}

/* The last sync of an import fails: the table is there, and may not be after a cut. */
static void
a_table_that_exists_is_there_after_a_cut(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        kvt_engram *table = NULL;

        assert_int_equal(import("before"), i == 0 ? KVT_OK : KVT_EXISTS); /* The folder is there. */
        rig.stop_at = 256;
        assert_int_equal(import("t"), KVT_CANCELLED);
        rig.stop_at = 0;
        rule_add(SIM_DIR_SYNC, NULL, true);
        assert_int_equal(import("t"), KVT_E_IO);
        if (i == 1) /* Open tables are no other case. */
            assert_int_equal(kvt_engram_open(sim.store, "t", &table), KVT_OK);
        assert_int_equal(import("t"), KVT_E_IO);
        sim_rules_clear(sim.world);
        assert_int_equal(import("t"), KVT_EXISTS);
        assert_int_equal(kvt_engram_close(table), KVT_OK);
        power_goes();
        assert_int_equal(open_status("t"), KVT_OK);
        assert_int_equal(kvt_engram_drop(sim.store, "t"), KVT_OK);
    }
}

static int
info_visit(void *context, const struct kvt_engram_info *info)
{
    *(struct kvt_engram_info *)context = *info;
    return strcmp(info->name, "t") != 0;
}

/* That of the table "t", or of the last one. */
static struct kvt_engram_info
info_of_t(void)
{
    struct kvt_engram_info info = {0};

    assert_int_equal(kvt_engram_list(sim.store, info_visit, &info), KVT_OK);
    return info;
}

/* What a first import leaves that could not sync the folder, nor take its file away. */
static void
an_import_that_is_gone_on_with_keeps_its_name(void **state)
{
    const struct sim_rule forget = {
        .ops = SIM_UNLINK, .effect = SIM_EIO, .file = "t.engram.new", .nth = 2};

    (void)state;
    assert_int_equal(import("before"), KVT_OK); /* The folder is there. */
    sim_rule_add(sim.world, &forget);
    rule_add(SIM_DIR_SYNC, NULL, false);
    assert_int_equal(import("t"), KVT_E_IO);
    assert_int_equal(sim_fault_count(sim.world), 2);
    sim_rules_clear(sim.world);
    rig.source.step_bytes = 1;
    rig.stop_at = rig.profile.layers[0].row_count;
    assert_int_equal(import("t"), KVT_CANCELLED);
    power_goes();
    assert_string_equal(info_of_t().name, "t");
    assert_int_equal(info_of_t().rows_done, 256); /* What the last mark but one has named. */
}

static const struct fs_ops *fs_below;
static uint32_t sync_count;

static enum kvt_status
counted_dir_sync(struct fs_dir *dir)
{
    sync_count++;
    return fs_below->dir_sync(dir);
}

static void
what_is_durable_is_not_synced_again(void **state)
{
    struct fs_ops counting;

    (void)state;
    assert_int_equal(import("t"), KVT_OK);
    assert_int_equal(kvt_close(sim.store), KVT_OK);
    sim_store_reopen(&sim);
    fs_below = sim.store->env.fs;
    counting = *fs_below;
    counting.dir_sync = counted_dir_sync;
    sim.store->env.fs = &counting;
    sync_count = 0;
    assert_int_equal(import("t"), KVT_EXISTS);
    assert_int_equal(sync_count, 2); /* The folder's own name, and those in it: once a life. */
    assert_int_equal(import("t"), KVT_EXISTS);
    assert_int_equal(kvt_engram_drop(sim.store, "u"), KVT_MISS);
    assert_int_equal(sync_count, 2);
    assert_int_equal(import("u"), KVT_OK);
    assert_int_equal(sync_count, 4); /* When it was made, and when it was named. */
    assert_int_equal(kvt_engram_drop(sim.store, "u"), KVT_OK);
    assert_int_equal(sync_count, 5);
    assert_int_equal(kvt_engram_drop(sim.store, "u"), KVT_MISS);
    assert_int_equal(sync_count, 5);
    sim.store->env.fs = fs_below;
}

/* --- Names that are in use -------------------------------------------------------------------- */

static void
an_import_over_an_open_table_says_that_it_exists(void **state)
{
    kvt_engram *table;

    (void)state;
    assert_int_equal(import("t"), KVT_OK);
    assert_int_equal(kvt_engram_open(sim.store, "t", &table), KVT_OK);
    assert_int_equal(import("t"), KVT_EXISTS);
    assert_int_equal(kvt_engram_drop(sim.store, "t"), KVT_E_STATE);
    assert_int_equal(kvt_engram_close(table), KVT_OK);
}

/* While an open looks for a table that is not there, an import is told to come again. */
static enum kvt_status
open_and_import(struct fs_dir *dir, const char *name, unsigned flags, struct fs_file **file_out)
{
    sim.store->env.fs = fs_below;
    assert_int_equal(import("t"), KVT_E_STATE);
    return fs_below->open(dir, name, flags, file_out);
}

static void
an_import_beside_an_open_that_finds_nothing_does_not_say_that_it_exists(void **state)
{
    struct fs_ops importing;
    kvt_engram *table;

    (void)state;
    assert_int_equal(import("before"), KVT_OK);
    fs_below = sim.store->env.fs;
    importing = *fs_below;
    importing.open = open_and_import;
    sim.store->env.fs = &importing;
    assert_int_equal(kvt_engram_open(sim.store, "t", &table), KVT_MISS);
    assert_ptr_equal(sim.store->env.fs, fs_below);
    assert_int_equal(import("t"), KVT_OK);
}

/* --- One of many ------------------------------------------------------------------------------ */

struct seen {
    char names[8]; /* Each of one letter. */
    uint32_t count;
};

static int
seen_add(void *context, const struct kvt_engram_info *info)
{
    struct seen *seen = context;

    assert_true(seen->count < sizeof(seen->names) - 1);
    assert_int_equal(strlen(info->name), 1);
    assert_int_equal(info->state, KVT_ENGRAM_WHOLE);
    seen->names[seen->count++] = info->name[0];
    return 1;
}

static void
an_unreadable_table_does_not_hide_others(void **state)
{
    struct seen seen = {0};

    (void)state;
    assert_int_equal(import("a"), KVT_OK);
    assert_int_equal(import("t"), KVT_OK);
    assert_int_equal(import("z"), KVT_OK);
    rule_add(SIM_READ, "t.engram", true);
    assert_int_equal(kvt_engram_list(sim.store, seen_add, &seen), KVT_E_IO);
    assert_int_equal(failure_last()->status, KVT_E_IO);
    assert_non_null(strstr(failure_last()->text, "t.engram"));
    sim_rules_clear(sim.world);
    assert_int_equal(seen.count, 2);
    assert_non_null(strchr(seen.names, 'a'));
    assert_non_null(strchr(seen.names, 'z'));
}

static enum kvt_status
open_refused(struct fs_dir *dir, const char *name, unsigned flags, struct fs_file **file_out)
{
    if (strcmp(name, "t.engram") == 0)
        return failure_set(KVT_E_PERMISSION, 0, "%s: not ours", name);
    return fs_below->open(dir, name, flags, file_out);
}

static void
nor_does_one_that_we_may_not_read(void **state)
{
    struct seen seen = {0};
    struct fs_ops refusing;

    (void)state;
    assert_int_equal(import("a"), KVT_OK);
    assert_int_equal(import("t"), KVT_OK);
    fs_below = sim.store->env.fs;
    refusing = *fs_below;
    refusing.open = open_refused;
    sim.store->env.fs = &refusing;
    assert_int_equal(kvt_engram_list(sim.store, seen_add, &seen), KVT_E_PERMISSION);
    sim.store->env.fs = fs_below;
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.names[0], 'a');
}

/* As a file system has them in its first folder, or somebody has made them. */
static void
what_is_no_table_stops_nothing(void **state)
{
    static const char *const names[] = {"lost+found", "b.engram", "c.engram.new"};
    struct seen seen = {0};
    struct fs_dir *dir, *below;
    struct fs_file *file;
    kvt_engram *table;

    (void)state;
    assert_int_equal(import("t"), KVT_OK);
    dir = folder_open("/store/engram");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_int_equal(sim.env.fs->dir_open_at(dir, names[i], FS_CREATE, &below), KVT_OK);
        sim.env.fs->dir_close(below);
    }
    /* Larger than what there may be of tables. */
    assert_int_equal(sim.env.fs->open(dir, "image", FS_CREATE, &file), KVT_OK);
    assert_int_equal(sim.env.fs->truncate(file, small_options.engram_capacity_bytes), KVT_OK);
    sim.env.fs->close(file);
    sim.env.fs->dir_close(dir);
    assert_int_equal(import("u"), KVT_OK);
    assert_int_equal(kvt_engram_list(sim.store, seen_add, &seen), KVT_OK);
    assert_int_equal(seen.count, 2);
    assert_int_equal(kvt_engram_open(sim.store, "b", &table), KVT_E_INVAL);
}

static void
rename_file(const char *from, const char *to)
{
    struct fs_dir *dir = folder_open("/store/engram");

    assert_int_equal(sim.env.fs->rename(dir, from, to), KVT_OK);
    sim.env.fs->dir_close(dir);
}

/* Files that were given other names: the list and an open agree. */
static void
what_is_listed_as_whole_can_be_opened(void **state)
{
    (void)state;
    assert_int_equal(import("u"), KVT_OK);
    rename_file("u.engram", "t.engram");
    assert_int_equal(open_status("t"), KVT_E_CORRUPT);
    assert_int_equal(info_of_t().state, KVT_ENGRAM_DAMAGED);
    assert_string_equal(info_of_t().name, "t");
    assert_int_equal(info_of_t().row_count, 0);
    rename_file("t.engram", "tt.engram"); /* A longer name is another one, too. */
    rename_file("tt.engram", "t.engram.new");
    assert_int_equal(info_of_t().state, KVT_ENGRAM_DAMAGED);
    assert_int_equal(kvt_engram_drop(sim.store, "t"), KVT_OK);
    rig.stop_at = 256;
    assert_int_equal(import("t"), KVT_CANCELLED);
    assert_int_equal(info_of_t().state, KVT_ENGRAM_IMPORTING);
    rename_file("t.engram.new", "t.engram");
    assert_int_equal(open_status("t"), KVT_E_CORRUPT);
    assert_int_equal(info_of_t().state, KVT_ENGRAM_DAMAGED);
}

static int
state_visit(void *context, const struct kvt_engram_info *info)
{
    *(uint32_t *)context = info->state;
    return 1;
}

/* Wherever memory ran out: what stays, if anything, can be gone on with. */
static void
an_import_that_has_no_memory_leaves_no_empty_file(void **state)
{
    enum kvt_status status = KVT_E_NOMEM;
    uint64_t n;

    (void)state;
    for (n = 1; status != KVT_OK; n++) {
        uint32_t table_state = 0;

        sim_memory_fail(sim.world, n, false);
        status = import("t");
        sim_memory_fail(sim.world, 0, false);
        assert_true(status == KVT_OK || status == KVT_E_NOMEM);
        assert_true(status == KVT_OK || failure_last()->status == KVT_E_NOMEM);
        assert_int_equal(kvt_engram_list(sim.store, state_visit, &table_state), KVT_OK);
        assert_int_not_equal(table_state, KVT_ENGRAM_DAMAGED);
        assert_in_range(kvt_engram_drop(sim.store, "t"), KVT_OK, KVT_MISS);
    }
    assert_in_range(n, 5, 100);
}

/* Before the first head of its file is written. */
static uint32_t state_meanwhile;

static enum kvt_status
allocate_and_list(struct fs_file *file, uint64_t offset, uint64_t size)
{
    assert_int_equal(kvt_engram_list(sim.store, state_visit, &state_meanwhile), KVT_OK);
    return fs_below->allocate(file, offset, size);
}

static void
an_import_that_has_written_nothing_yet_is_no_damage(void **state)
{
    struct fs_ops listing;

    (void)state;
    fs_below = sim.store->env.fs;
    listing = *fs_below;
    listing.allocate = allocate_and_list;
    sim.store->env.fs = &listing;
    state_meanwhile = 0;
    assert_int_equal(import("t"), KVT_OK);
    sim.store->env.fs = fs_below;
    assert_int_equal(state_meanwhile, KVT_ENGRAM_IMPORTING);
}

/* What the folder had at first, and what it has now: an import ends between. */
static bool is_new_name_seen;

static enum kvt_status
dir_list_old_names(
    struct fs_dir *dir, bool (*visit)(void *visitor, const char *name), void *visitor)
{
    (void)dir;
    if (visit(visitor, "t.engram.new") && is_new_name_seen)
        (void)visit(visitor, "t.engram");
    return KVT_OK;
}

static void
a_table_that_gets_its_name_meanwhile_is_listed_once(void **state)
{
    struct fs_ops listing;

    (void)state;
    assert_int_equal(import("t"), KVT_OK);
    fs_below = sim.store->env.fs;
    listing = *fs_below;
    listing.dir_list = dir_list_old_names;
    sim.store->env.fs = &listing;
    for (uint32_t i = 0; i < 2; i++) {
        struct seen seen = {0};

        is_new_name_seen = i == 1;
        assert_int_equal(kvt_engram_list(sim.store, seen_add, &seen), KVT_OK);
        assert_int_equal(seen.count, 1);
    }
    sim_memory_fail(sim.world, 1, true);
    assert_int_equal(kvt_engram_list(sim.store, state_visit, &state_meanwhile), KVT_E_NOMEM);
    sim_memory_fail(sim.world, 0, false);
    sim.store->env.fs = fs_below;
}

int
main(void)
{
#define FOLDER_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(a_table_that_is_said_to_be_gone_stays_gone),
        FOLDER_TEST(a_table_is_gone_when_the_next_life_says_so),
        FOLDER_TEST(what_an_import_has_taken_away_stays_gone),
        FOLDER_TEST(a_table_that_exists_is_there_after_a_cut),
        FOLDER_TEST(an_import_that_is_gone_on_with_keeps_its_name),
        FOLDER_TEST(what_is_durable_is_not_synced_again),
        FOLDER_TEST(an_import_over_an_open_table_says_that_it_exists),
        FOLDER_TEST(an_import_beside_an_open_that_finds_nothing_does_not_say_that_it_exists),
        FOLDER_TEST(an_unreadable_table_does_not_hide_others),
        FOLDER_TEST(nor_does_one_that_we_may_not_read),
        FOLDER_TEST(what_is_no_table_stops_nothing),
        FOLDER_TEST(what_is_listed_as_whole_can_be_opened),
        FOLDER_TEST(an_import_that_has_no_memory_leaves_no_empty_file),
        FOLDER_TEST(an_import_that_has_written_nothing_yet_is_no_damage),
        FOLDER_TEST(a_table_that_gets_its_name_meanwhile_is_listed_once),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
