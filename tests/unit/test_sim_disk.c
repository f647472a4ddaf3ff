/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_sim_disk.c - the simulated disk keeps its promises: what was synced survives every power
 * cut, what was not may not, and calls fail where they were asked to.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "bytes.h"
#include "sim_disk.h"
#include "sim_file_kit.h"

/* --- 1. Files and power cuts ------------------------------------------------------------------ */

static void
synced_bytes_survive_every_cut(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < KIT_SEEDS; seed++) {
        struct sim_world *world = world_of(seed);
        const struct fs_ops *fs = sim_env(world)->fs;
        struct fs_dir *dir = dir_of(world);
        struct fs_file *file = file_of(world, dir, "a", FS_CREATE);

        write_all(world, file, 1);
        assert_int_equal(fs->sync(file), KVT_OK);
        assert_int_equal(fs->dir_sync(dir), KVT_OK);
        sim_power_cut(world, SIM_CUT_SEEDED);
        file = file_of(world, dir_of(world), "a", 0);
        assert_int_equal(count_sectors(world, file, 1), FILE_BYTES / 512);
        sim_world_destroy(world);
    }
}

static void
unsynced_bytes_are_lost_in_some_seeds_kept_in_others_and_torn_in_some(void **state)
{
    uint32_t kept = 0, lost = 0, torn = 0;

    (void)state;
    for (uint64_t seed = 0; seed < KIT_SEEDS; seed++) {
        struct sim_world *world = world_of(seed);
        const struct fs_ops *fs = sim_env(world)->fs;
        struct fs_dir *dir = dir_of(world);
        struct fs_file *file = file_of(world, dir, "a", FS_CREATE);
        uint32_t now;

        write_all(world, file, 1);
        assert_int_equal(fs->sync(file), KVT_OK);
        assert_int_equal(fs->dir_sync(dir), KVT_OK);
        write_all(world, file, 2);
        assert_int_equal(count_sectors(world, file, 2), FILE_BYTES / 512);
        sim_power_cut(world, SIM_CUT_SEEDED);
        file = file_of(world, dir_of(world), "a", 0);
        now = count_sectors(world, file, 2);
        assert_int_equal(now + count_sectors(world, file, 1), FILE_BYTES / 512);
        kept += now == FILE_BYTES / 512;
        lost += now == 0;
        torn += now > 0 && now < FILE_BYTES / 512;
        sim_world_destroy(world);
    }
    assert_true(kept > 0);
    assert_true(lost > 0);
    assert_true(torn > 0);
}

static void
new_file_needs_the_sync_of_its_directory(void **state)
{
    uint32_t there = 0;

    (void)state;
    for (uint64_t seed = 0; seed < KIT_SEEDS; seed++) {
        struct sim_world *world = world_of(seed);
        struct fs_file *file = file_of(world, dir_of(world), "a", FS_CREATE);

        write_all(world, file, 1);
        assert_int_equal(sim_env(world)->fs->sync(file), KVT_OK);
        sim_power_cut(world, SIM_CUT_SEEDED);
        there += sim_file_exists(world, "/store/a");
        sim_world_destroy(world);
    }
    assert_in_range(there, 1, KIT_SEEDS - 1);
}

static void
rename_is_old_or_new_and_never_neither(void **state)
{
    uint32_t renamed = 0;

    (void)state;
    for (uint64_t seed = 0; seed < KIT_SEEDS; seed++) {
        struct sim_world *world = world_of(seed);
        const struct fs_ops *fs = sim_env(world)->fs;
        struct fs_dir *dir = dir_of(world);
        struct fs_file *old = file_of(world, dir, "a", FS_CREATE);
        struct fs_file *new = file_of(world, dir, "a.new", FS_CREATE);
        bool is_new;

        write_all(world, old, 1);
        write_all(world, new, 2);
        assert_int_equal(fs->sync(old), KVT_OK);
        assert_int_equal(fs->sync(new), KVT_OK);
        assert_int_equal(fs->dir_sync(dir), KVT_OK);
        assert_int_equal(fs->rename(dir, "a.new", "a"), KVT_OK);
        sim_power_cut(world, SIM_CUT_SEEDED);
        old = file_of(world, dir_of(world), "a", 0);
        is_new = count_sectors(world, old, 2) == FILE_BYTES / 512;
        assert_true(is_new || count_sectors(world, old, 1) == FILE_BYTES / 512);
        assert_true(is_new != sim_file_exists(world, "/store/a.new"));
        renamed += is_new;
        sim_world_destroy(world);
    }
    assert_in_range(renamed, 1, KIT_SEEDS - 1);
}

static void
unlinked_file_comes_back_unless_its_directory_was_synced(void **state)
{
    struct sim_world *world = world_of(1);
    const struct fs_ops *fs = sim_env(world)->fs;
    struct fs_dir *dir = dir_of(world);

    (void)state;
    fs->close(file_of(world, dir, "a", FS_CREATE));
    fs->close(file_of(world, dir, "b", FS_CREATE));
    assert_int_equal(fs->dir_sync(dir), KVT_OK);
    assert_int_equal(fs->unlink(dir, "a"), KVT_OK);
    assert_int_equal(fs->dir_sync(dir), KVT_OK);
    assert_int_equal(fs->unlink(dir, "b"), KVT_OK);
    assert_int_equal(fs->unlink(dir, "b"), KVT_MISS);
    sim_power_cut(world, SIM_CUT_NOTHING_KEPT);
    assert_false(sim_file_exists(world, "/store/a"));
    assert_true(sim_file_exists(world, "/store/b"));
    sim_world_destroy(world);
}

static void
killed_process_loses_nothing_it_wrote(void **state)
{
    struct sim_world *world = world_of(1);
    struct fs_file *file = file_of(world, dir_of(world), "a", FS_CREATE);

    (void)state;
    write_all(world, file, 3);
    sim_vanish(world);
    file = file_of(world, dir_of(world), "a", 0);
    assert_int_equal(count_sectors(world, file, 3), FILE_BYTES / 512);
    sim_world_destroy(world);
}

static void
killed_process_makes_nothing_durable(void **state)
{
    struct sim_world *world = world_of(1);
    struct fs_dir *dir = dir_of(world);
    struct fs_file *file = file_of(world, dir, "a", FS_CREATE);

    (void)state;
    write_all(world, file, 3);
    assert_int_equal(sim_env(world)->fs->sync(file), KVT_OK);
    assert_int_equal(sim_env(world)->fs->dir_sync(dir), KVT_OK);
    write_all(world, file, 4);
    assert_int_equal(sim_env(world)->fs->lock(file, 0), KVT_OK);
    sim_vanish(world);
    file = file_of(world, dir_of(world), "a", 0);
    assert_int_equal(sim_env(world)->fs->lock(file, 0), KVT_OK);
    assert_int_equal(count_sectors(world, file, 4), FILE_BYTES / 512);
    sim_power_cut(world, SIM_CUT_NOTHING_KEPT);
    file = file_of(world, dir_of(world), "a", 0);
    assert_int_equal(count_sectors(world, file, 3), FILE_BYTES / 512);
    sim_world_destroy(world);
}

static void
truncated_file_reads_as_zero_when_it_grows_again(void **state)
{
    struct sim_world *world = world_of(1);
    const struct fs_ops *fs = sim_env(world)->fs;
    struct fs_file *file = file_of(world, dir_of(world), "a", FS_CREATE);
    uint64_t size;

    (void)state;
    write_all(world, file, 3);
    assert_int_equal(fs->truncate(file, 1024), KVT_OK);
    assert_int_equal(fs->allocate(file, 0, FILE_BYTES), KVT_OK);
    assert_int_equal(fs->size(file, &size), KVT_OK);
    assert_int_equal(size, FILE_BYTES);
    assert_int_equal(count_sectors(world, file, 3), 2);
    assert_int_equal(count_sectors(world, file, 0), FILE_BYTES / 512 - 2);
    sim_world_destroy(world);
}

static void
lock_has_one_owner_and_dies_with_its_life(void **state)
{
    struct sim_world *world = world_of(1);
    const struct fs_ops *fs = sim_env(world)->fs;
    struct fs_dir *dir = dir_of(world);
    struct fs_file *first = file_of(world, dir, "LOCK", FS_CREATE);
    struct fs_file *second = file_of(world, dir, "LOCK", 0);

    (void)state;
    assert_int_equal(fs->dir_sync(dir), KVT_OK);
    assert_int_equal(fs->lock(first, 0), KVT_OK);
    assert_int_equal(fs->lock(second, 0), KVT_E_LOCKED);
    fs->close(first);
    assert_int_equal(fs->lock(second, 0), KVT_OK);
    sim_power_cut(world, SIM_CUT_SEEDED);
    first = file_of(world, dir_of(world), "LOCK", 0);
    assert_int_equal(fs->lock(first, 0), KVT_OK);
    sim_world_destroy(world);
}

static void
full_disk_refuses_growth_until_there_is_space(void **state)
{
    struct sim_world *world = world_of(1);
    const struct fs_ops *fs = sim_env(world)->fs;
    struct fs_dir *dir = dir_of(world);
    struct fs_file *file = file_of(world, dir, "a", FS_CREATE);
    uint64_t room;

    (void)state;
    sim_space_set(world, FILE_BYTES + 4096);
    write_all(world, file, 1);
    assert_int_equal(fs->dir_space(dir, &room), KVT_OK);
    assert_int_equal(room, 4096);
    assert_int_equal(fs->allocate(file, 0, FILE_BYTES + 4097), KVT_E_NOSPC);
    assert_int_equal(fs->write_at(file, "12345678", 8, FILE_BYTES + 4090), KVT_E_NOSPC);
    write_all(world, file, 2);
    sim_space_set(world, UINT64_C(1) << 30);
    assert_int_equal(fs->allocate(file, 0, FILE_BYTES + 4097), KVT_OK);
    sim_world_destroy(world);
}

static void
names_that_leave_the_directory_are_refused(void **state)
{
    struct sim_world *world = world_of(1);
    const struct fs_ops *fs = sim_env(world)->fs;
    struct fs_dir *dir = dir_of(world);
    struct fs_file *file;

    (void)state;
    assert_int_equal(fs->open(dir, "../a", FS_CREATE, &file), KVT_E_INVAL);
    assert_int_equal(fs->open(dir, "b/a", FS_CREATE, &file), KVT_E_INVAL);
    assert_int_equal(fs->open(dir, "a", 0, &file), KVT_MISS);
    fs->close(file_of(world, dir, "a", FS_CREATE));
    assert_int_equal(fs->open(dir, "a", FS_CREATE | FS_EXCLUSIVE, &file), KVT_EXISTS);
    sim_world_destroy(world);
}

/* --- 2. Faults -------------------------------------------------------------------------------- */

static void
sticky_faults_stay_and_rules_can_name_a_file(void **state)
{
    struct sim_world *world = world_of(1);
    const struct fs_ops *fs = sim_env(world)->fs;
    struct fs_dir *dir = dir_of(world);
    struct fs_file *a = file_of(world, dir, "a", FS_CREATE);
    struct fs_file *b = file_of(world, dir, "b", FS_CREATE);
    struct sim_rule rule = {
        .ops = SIM_SYNC, .effect = SIM_EIO, .nth = 2, .sticky = true, .file = "b"};

    (void)state;
    sim_rule_add(world, &rule);
    assert_int_equal(fs->sync(b), KVT_OK);
    assert_int_equal(fs->sync(b), KVT_E_IO);
    assert_int_equal(fs->sync(a), KVT_OK);
    assert_int_equal(fs->sync(b), KVT_E_IO);
    sim_rules_clear(world);
    assert_int_equal(fs->sync(b), KVT_OK);
    sim_world_destroy(world);
}

static void
failed_sync_loses_bytes_that_a_second_sync_does_not_bring_back(void **state)
{
    uint32_t lost = 0;

    (void)state;
    for (uint64_t seed = 0; seed < KIT_SEEDS; seed++) {
        struct sim_world *world = world_of(seed);
        const struct fs_ops *fs = sim_env(world)->fs;
        struct fs_dir *dir = dir_of(world);
        struct fs_file *file = file_of(world, dir, "a", FS_CREATE);
        struct sim_rule rule = {.ops = SIM_SYNC, .effect = SIM_EIO, .nth = 1};

        assert_int_equal(fs->dir_sync(dir), KVT_OK);
        sim_rule_add(world, &rule);
        write_all(world, file, 5);
        assert_int_equal(fs->sync(file), KVT_E_IO);
        assert_int_equal(fs->sync(file), KVT_OK);
        assert_int_equal(count_sectors(world, file, 5), FILE_BYTES / 512);
        sim_power_cut(world, SIM_CUT_ALL_KEPT);
        file = file_of(world, dir_of(world), "a", 0);
        lost += count_sectors(world, file, 5) == 0;
        sim_world_destroy(world);
    }
    assert_in_range(lost, 1, KIT_SEEDS - 1);
}

static void
crash_at_the_nth_operation_freezes_the_disk(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 6; n++) {
        struct sim_world *world = world_of(n);
        const struct fs_ops *fs = sim_env(world)->fs;
        struct fs_dir *dir = dir_of(world);
        struct fs_file *file = file_of(world, dir, "a", FS_CREATE);
        uint64_t done = 0;

        assert_int_equal(fs->dir_sync(dir), KVT_OK);
        sim_crash_after(world, n);
        while (!sim_crashed(world)) {
            uint8_t value = (uint8_t)(done + 1);

            done += fs->write_at(file, &value, 1, done) == KVT_OK;
        }
        assert_int_equal(done, n - 1);
        assert_int_equal(fs->write_at(file, "x", 1, 100), KVT_E_IO);
        assert_int_equal(fs->sync(file), KVT_E_IO);
        assert_int_equal(sim_run_for(world, 1000), SIM_CRASHED);
        sim_power_cut(world, SIM_CUT_NOTHING_KEPT);
        assert_false(sim_crashed(world));
        file = file_of(world, dir_of(world), "a", 0);
        assert_int_equal(count_sectors(world, file, 1), 0);
        sim_world_destroy(world);
    }
}

/* --- 3. Pages that are shared ----------------------------------------------------------------- */

static void
write_value(
    struct sim_disk *disk, struct sim_node *file, uint8_t value, uint64_t offset, size_t size)
{
    uint8_t bytes[2 * PAGE_BYTES];

    memset(bytes, value, size);
    disk_write(disk, file, bytes, offset, size);
}

static bool
holds(const struct sim_image *image, uint8_t value, uint64_t offset, size_t size)
{
    uint8_t bytes[2 * PAGE_BYTES];

    image_read(image, offset, bytes, size);
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != value)
            return false;
    }
    return true;
}

static enum sim_fate
drop(void *context, const struct sim_change *change)
{
    (void)context;
    (void)change;
    return FATE_DROP;
}

/* A disk with one file, its name synced, whose two pages are all `value`, synced. */
static struct sim_node *
synced_file(struct sim_disk *disk, uint8_t value)
{
    struct sim_node *file;

    disk_init(disk);
    file = disk_create(disk, disk->root, "a", false);
    disk_sync(disk->root, UINT64_MAX);
    write_value(disk, file, value, 0, 2 * PAGE_BYTES);
    disk_sync(file, UINT64_MAX);
    return file;
}

static void
write_behind_a_sync_leaves_what_is_durable(void **state)
{
    struct sim_disk disk;
    struct sim_node *file = synced_file(&disk, 1);

    (void)state;
    write_value(&disk, file, 2, 0, PAGE_BYTES);
    write_value(&disk, file, 3, PAGE_BYTES + 100, 700);
    assert_true(holds(&file->current, 2, 0, PAGE_BYTES));
    assert_true(holds(&file->current, 1, PAGE_BYTES, 100));
    assert_true(holds(&file->current, 3, PAGE_BYTES + 100, 700));
    assert_true(holds(&file->current, 1, PAGE_BYTES + 800, PAGE_BYTES - 800));
    assert_true(holds(&file->durable, 1, 0, 2 * PAGE_BYTES));
    disk_cut(&disk, NULL, drop, NULL);
    assert_true(holds(&file->current, 1, 0, 2 * PAGE_BYTES));
    disk_deinit(&disk);
}

static void
write_of_a_part_leaves_the_writes_before_it(void **state)
{
    struct sim_disk disk;
    struct sim_node *file = synced_file(&disk, 1);
    uint64_t first;

    (void)state;
    write_value(&disk, file, 2, 0, PAGE_BYTES);
    first = disk.change_count;
    write_value(&disk, file, 3, 512, 512);
    write_value(&disk, file, 4, 512, 100);
    disk_sync(file, first);
    assert_true(holds(&file->durable, 2, 0, PAGE_BYTES));
    disk_sync(file, first + 1);
    assert_true(holds(&file->durable, 2, 0, 512));
    assert_true(holds(&file->durable, 3, 512, 512));
    assert_true(holds(&file->durable, 2, 1024, PAGE_BYTES - 1024));
    disk_cut(&disk, NULL, drop, NULL);
    assert_true(holds(&file->current, 3, 512, 512));
    disk_deinit(&disk);
}

/* Only its own part of the page is the write's: the rest is of one that a failed sync has lost. */
static void
write_of_a_part_keeps_nothing_else_of_its_page(void **state)
{
    struct sim_disk disk;
    struct sim_node *file = synced_file(&disk, 1);
    struct rng rng = {.state = 1};

    (void)state;
    for (uint32_t i = 0; i < KIT_SEEDS && !disk.has_lies; i++) {
        write_value(&disk, file, 1, 0, PAGE_BYTES);
        disk_sync(file, UINT64_MAX);
        write_value(&disk, file, 2, 0, PAGE_BYTES);
        disk_sync_lossy(&disk, file, UINT64_MAX, &rng);
    }
    assert_true(holds(&file->durable, 1, 0, PAGE_BYTES));
    write_value(&disk, file, 3, 512, 512);
    disk_sync(file, UINT64_MAX);
    assert_true(holds(&file->durable, 3, 512, 512));
    assert_true(holds(&file->current, 2, 0, 512));
    disk_cut(&disk, NULL, drop, NULL);
    assert_true(holds(&file->current, 1, 0, 512));
    assert_true(holds(&file->current, 3, 512, 512));
    assert_true(holds(&file->current, 1, 1024, PAGE_BYTES));
    disk_deinit(&disk);
}

static void
stale_bytes_are_those_before_the_last_write_of_each_place(void **state)
{
    struct sim_disk disk;
    struct sim_node *file = synced_file(&disk, 1);

    (void)state;
    assert_true(holds(&file->previous, 0, 0, 2 * PAGE_BYTES));
    write_value(&disk, file, 2, 0, 2 * PAGE_BYTES);
    assert_true(holds(&file->previous, 1, 0, 2 * PAGE_BYTES));
    write_value(&disk, file, 3, 512, 512);
    assert_true(holds(&file->previous, 1, 0, 512));
    assert_true(holds(&file->previous, 2, 512, 512));
    assert_true(holds(&file->previous, 1, 1024, PAGE_BYTES));
    assert_true(holds(&file->durable, 1, 0, 2 * PAGE_BYTES));
    disk_cut(&disk, NULL, drop, NULL);
    write_value(&disk, file, 4, 0, 100); /* To a page that all three images may share. */
    assert_true(holds(&file->previous, 1, 0, 512));
    assert_true(holds(&file->durable, 1, 0, 2 * PAGE_BYTES));
    disk_deinit(&disk);
}

static void
truncation_leaves_what_is_durable(void **state)
{
    struct sim_disk disk;
    struct sim_node *file = synced_file(&disk, 1);

    (void)state;
    disk_resize(&disk, file, CHANGE_SIZE, 1000);
    assert_true(holds(&file->current, 0, 1000, PAGE_BYTES));
    assert_true(holds(&file->durable, 1, 0, 2 * PAGE_BYTES));
    disk_cut(&disk, NULL, drop, NULL);
    assert_int_equal(file->current.size, 2 * PAGE_BYTES);
    assert_true(holds(&file->current, 1, 0, 2 * PAGE_BYTES));
    disk_resize(&disk, file, CHANGE_SIZE, 1000);
    disk_sync(file, UINT64_MAX);
    assert_true(holds(&file->durable, 1, 0, 1000));
    assert_true(holds(&file->durable, 0, 1000, PAGE_BYTES));
    disk_deinit(&disk);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(synced_bytes_survive_every_cut),
        cmocka_unit_test(unsynced_bytes_are_lost_in_some_seeds_kept_in_others_and_torn_in_some),
        cmocka_unit_test(new_file_needs_the_sync_of_its_directory),
        cmocka_unit_test(rename_is_old_or_new_and_never_neither),
        cmocka_unit_test(unlinked_file_comes_back_unless_its_directory_was_synced),
        cmocka_unit_test(killed_process_loses_nothing_it_wrote),
        cmocka_unit_test(killed_process_makes_nothing_durable),
        cmocka_unit_test(truncated_file_reads_as_zero_when_it_grows_again),
        cmocka_unit_test(lock_has_one_owner_and_dies_with_its_life),
        cmocka_unit_test(full_disk_refuses_growth_until_there_is_space),
        cmocka_unit_test(names_that_leave_the_directory_are_refused),
        cmocka_unit_test(sticky_faults_stay_and_rules_can_name_a_file),
        cmocka_unit_test(failed_sync_loses_bytes_that_a_second_sync_does_not_bring_back),
        cmocka_unit_test(crash_at_the_nth_operation_freezes_the_disk),
        cmocka_unit_test(write_behind_a_sync_leaves_what_is_durable),
        cmocka_unit_test(write_of_a_part_leaves_the_writes_before_it),
        cmocka_unit_test(write_of_a_part_keeps_nothing_else_of_its_page),
        cmocka_unit_test(stale_bytes_are_those_before_the_last_write_of_each_place),
        cmocka_unit_test(truncation_leaves_what_is_durable),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
