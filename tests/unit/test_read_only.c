/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_read_only.c - a store that is opened for reading only gives up blocks as any other does, and
 * changes nothing on the disk; one copy of STORE is enough for it. In a simulated world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "commit_internal.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_kit.h"

enum {
    BLOCK_BYTES = 20000,
    COUNT = 3, /* Blocks that there are. */
};

static struct sim_store sim;
static kvt_namespace ns;

static void
space_open(void)
{
    assert_int_equal(kvt_namespace_open(sim.store, "space", "", 0, &ns), KVT_OK);
}

static void
reopen(uint32_t flags, uint64_t entry_count_max)
{
    assert_int_equal(kvt_close(sim.store), KVT_OK);
    sim.options.flags = flags;
    sim.options.entry_count_max = entry_count_max;
    sim_store_reopen(&sim);
    space_open();
}

static int
setup(void **state)
{
    struct kvt_options options = kit_options();

    (void)state;
    sim_store_open(&sim, &options);
    space_open();
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(kit_put(sim.store, ns, i, 1, BLOCK_BYTES, KVT_SYNC), KVT_OK);
    return 0;
}

/* Whatever was given up meanwhile is there again. */
static int
teardown(void **state)
{
    (void)state;
    reopen(0, 0);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint64_t version;

        assert_int_equal(kit_get(sim.store, ns, i, &version), KVT_OK);
        assert_int_equal(version, 1);
    }
    sim_store_close(&sim);
    return 0;
}

static void
a_block_that_is_replaced_is_there_again_for_the_next(void **state)
{
    uint64_t version;

    (void)state;
    reopen(KVT_OPEN_READ_ONLY, 0);
    assert_int_equal(kit_put(sim.store, ns, 0, 2, BLOCK_BYTES, KVT_MEMORY), KVT_OK);
    assert_int_equal(kit_get(sim.store, ns, 0, &version), KVT_OK);
    assert_int_equal(version, 2);
    assert_int_equal(sim.store->commit->order, 0);
}

static void
a_block_that_leaves_a_full_map_is_there_again_for_the_next(void **state)
{
    uint32_t there_count = 0;
    uint64_t version;

    (void)state;
    reopen(KVT_OPEN_READ_ONLY, COUNT - 1);
    assert_int_equal(kit_put(sim.store, ns, COUNT, 1, BLOCK_BYTES, KVT_MEMORY), KVT_OK);
    for (uint32_t i = 0; i < COUNT; i++)
        there_count += kit_get(sim.store, ns, i, &version) == KVT_OK;
    assert_in_range(there_count, 0, COUNT - 1);
    assert_int_equal(sim.store->commit->order, 0); /* No kill was queued that nobody can write. */
}

/* As every store has it that learns, and others that name no creation that was cut short. */
static void
other_file_make(void)
{
    const struct fs_ops *fs = sim.env.fs;
    struct fs_dir *dir;
    struct fs_file *file;

    assert_int_equal(fs->dir_open(sim.env.fs_context, "/store", 0, &dir), KVT_OK);
    assert_int_equal(fs->open(dir, "learned", FS_CREATE, &file), KVT_OK);
    fs->close(file);
    fs->dir_close(dir);
}

static void
a_copy_of_store_that_cannot_be_opened_does_not_matter(void **state)
{
    static const char *const names[] = {"STORE.a", "STORE.b"};

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const struct sim_rule fails = {
            .ops = SIM_OPEN, .effect = SIM_EIO, .nth = 1, .sticky = true, .file = names[i]};
        uint64_t version;

        other_file_make();
        sim_rule_add(sim.world, &fails);
        reopen(KVT_OPEN_READ_ONLY, 0);
        sim_rules_clear(sim.world);
        assert_int_equal(kit_get(sim.store, ns, 0, &version), KVT_OK);
    }
}

/* Without any it is no store, whatever else is there. */
static void
a_folder_with_other_things_and_no_store_is_refused(void **state)
{
    struct kvt_options options = sim.options;
    kvt_store *store;
    struct fs_dir *dir;
    struct fs_file *file;

    (void)state;
    assert_int_equal(sim.env.fs->dir_open(sim.env.fs_context, "/x", FS_CREATE, &dir), KVT_OK);
    assert_int_equal(sim.env.fs->open(dir, "learned", FS_CREATE, &file), KVT_OK);
    sim.env.fs->close(file);
    sim.env.fs->dir_close(dir);
    refused(store_open_in(&sim.store_world, "/x", &options, &store), KVT_E_INVAL, "no store");
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_block_that_is_replaced_is_there_again_for_the_next),
        TEST(a_block_that_leaves_a_full_map_is_there_again_for_the_next),
        TEST(a_copy_of_store_that_cannot_be_opened_does_not_matter),
        TEST(a_folder_with_other_things_and_no_store_is_refused),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
