/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_wrong_disk.c - the disk of another store, or of another root, stands where a root's own did:
 * the open is refused before anything is changed, and all blocks are there when the disks are back
 * in their places. Damage is not taken for such a disk.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "failure.h"
#include "full_store.h"
#include "stop_on_proof.h"
#include "store_file.h"

enum {
    COUNT = 40, /* Blocks. */
    BYTES = 32768,
    ROOTS = 2,
    AT_UUID = 8, /* In a header: FORMAT.md section 3.3. */
    AT_SEGMENT_ROOT = 27,
    AT_MAC = 64,
    PATH_BYTES = 2 * KIT_PATH_BYTES,
};

static const uint32_t all_flags[] = {0, KVT_OPEN_READ_ONLY, KVT_OPEN_REBUILD};

/* --- On this machine: one disk for each store ------------------------------------------------- */

struct shelf {
    char dir[KIT_PATH_BYTES];
    kvt_store *store;
    kvt_namespace ns;
};

static void
path_of(const struct shelf *shelf, const char *name, char path_out[PATH_BYTES])
{
    (void)snprintf(path_out, PATH_BYTES, "%s/%s", shelf->dir, name);
}

/* The store `name`, whose data is on the disk that is mounted at `root`. */
static enum kvt_status
shelf_open(struct shelf *shelf, const char *name, const char *root, uint32_t flags)
{
    struct kvt_options options = kit_options();
    char path[PATH_BYTES], root_path[PATH_BYTES];
    const char *const roots[] = {root_path};
    enum kvt_status status;

    path_of(shelf, name, path);
    path_of(shelf, root, root_path);
    options.roots = roots;
    options.root_count = 1;
    options.flags = flags;
    status = kvt_open(path, &options, &shelf->store);
    if (status == KVT_OK)
        assert_int_equal(kvt_namespace_open(shelf->store, "space", "model", 5, &shelf->ns), KVT_OK);
    return status;
}

static void
shelf_put(struct shelf *shelf, uint64_t first, uint64_t count)
{
    for (uint64_t key = first; key < first + count; key++)
        assert_int_equal(kit_put(shelf->store, shelf->ns, key, 1, BYTES, KVT_SYNC), KVT_OK);
}

/* All blocks are there; and the store is closed. */
static void
shelf_expect(struct shelf *shelf, uint64_t first, uint64_t count)
{
    for (uint64_t key = first; key < first + count; key++) {
        uint64_t version = 0;

        assert_int_equal(kit_get(shelf->store, shelf->ns, key, &version), KVT_OK);
        assert_int_equal(version, 1);
    }
    assert_int_equal(kvt_close(shelf->store), KVT_OK);
}

static void
disk_move(const struct shelf *shelf, const char *from, const char *to)
{
    char old_path[PATH_BYTES], new_path[PATH_BYTES];

    path_of(shelf, from, old_path);
    path_of(shelf, to, new_path);
    assert_int_equal(rename(old_path, new_path), 0);
}

/* The uuid of a store as its refusal names it. */
static void
uuid_text(const struct shelf *shelf, const char *name, char text_out[64])
{
    uint8_t bytes[64];
    char path[PATH_BYTES];
    int length = snprintf(text_out, 64, "another store, of uuid ");

    path_of(shelf, name, path);
    (void)snprintf(path + strlen(path), sizeof(path) - strlen(path), "/STORE.a");
    assert_int_equal(kit_file_read(path, bytes, sizeof(bytes)), sizeof(bytes));
    for (size_t i = 0; i < 16; i++)
        length += snprintf(text_out + length, 64 - (size_t)length, "%02x", bytes[40 + i]);
}

static void
a_root_with_the_disk_of_another_store_is_refused(void **state)
{
    struct shelf shelf;
    char uuid[64];

    (void)state;
    kit_dir_make(shelf.dir);
    assert_int_equal(shelf_open(&shelf, "a", "disk_a", 0), KVT_OK);
    shelf_put(&shelf, 0, COUNT);
    assert_int_equal(kvt_close(shelf.store), KVT_OK);
    assert_int_equal(shelf_open(&shelf, "b", "disk_b", 0), KVT_OK);
    shelf_put(&shelf, 1000, 1);
    assert_int_equal(kvt_close(shelf.store), KVT_OK);
    uuid_text(&shelf, "a", uuid);

    disk_move(&shelf, "disk_b", "away");
    disk_move(&shelf, "disk_a", "disk_b");
    for (size_t i = 0; i < sizeof(all_flags) / sizeof(all_flags[0]); i++) {
        refused(shelf_open(&shelf, "b", "disk_b", all_flags[i]), KVT_E_INVAL, uuid);
        assert_non_null(strstr(failure_last()->text, "/disk_b/data.00 has blocks"));
        assert_non_null(strstr(failure_last()->text, "mount the right disk"));
    }
    disk_move(&shelf, "disk_b", "disk_a");
    disk_move(&shelf, "away", "disk_b");
    assert_int_equal(shelf_open(&shelf, "a", "disk_a", 0), KVT_OK);
    shelf_expect(&shelf, 0, COUNT);
    assert_int_equal(shelf_open(&shelf, "b", "disk_b", 0), KVT_OK);
    shelf_expect(&shelf, 1000, 1);
    kit_dir_remove(shelf.dir);
}

/* Bits of a header at that place of the data file change. */
static void
header_damage(const struct shelf *shelf, off_t at, const off_t fields[], size_t count, uint8_t mask)
{
    char path[PATH_BYTES];
    int fd;

    path_of(shelf, "disk_a/data.00", path);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    for (size_t i = 0; i < count; i++) {
        uint8_t byte;

        assert_int_equal(pread(fd, &byte, 1, at + fields[i]), 1);
        byte ^= mask;
        assert_int_equal(pwrite(fd, &byte, 1, at + fields[i]), 1);
    }
    assert_int_equal(close(fd), 0);
}

/* Whatever the first header says then, it is one of this store, or none. */
static void
a_damaged_header_is_not_of_another_store(void **state)
{
    static const off_t uuid[] = {AT_UUID, AT_UUID + 5, AT_UUID + 15};
    static const off_t root[] = {AT_SEGMENT_ROOT};
    static const off_t root_and_uuid[] = {AT_SEGMENT_ROOT, AT_UUID};
    static const off_t uuid_and_mac[] = {AT_UUID, AT_MAC};
    static const struct {
        const off_t *fields;
        size_t count;
        uint64_t blocks; /* A segment has less than 32 of them. */
    } cases[] = {{uuid, 3, 1}, {root, 1, 1}, {root_and_uuid, 2, COUNT}, {uuid_and_mac, 2, COUNT},
        {uuid_and_mac, 2, 1}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct shelf shelf;

        kit_dir_make(shelf.dir);
        assert_int_equal(shelf_open(&shelf, "a", "disk_a", 0), KVT_OK);
        shelf_put(&shelf, 0, cases[i].blocks);
        assert_int_equal(kvt_close(shelf.store), KVT_OK);
        header_damage(&shelf, 0, cases[i].fields, cases[i].count, 1);
        for (size_t k = 0; k < 2; k++) {
            assert_int_equal(shelf_open(&shelf, "a", "disk_a", all_flags[k]), KVT_OK);
            shelf_expect(&shelf, 0, cases[i].blocks);
        }
        kit_dir_remove(shelf.dir);
    }
}

/* Its index is lost: nobody knows that the file is its own but by what stands in it. */
static void
a_disk_is_known_without_the_index(void **state)
{
    /* As far from the store's uuid as another's. */
    static const off_t uuid_and_mac[] = {AT_UUID, AT_UUID + 4, AT_UUID + 9, AT_MAC};
    struct shelf shelf;
    char path[PATH_BYTES];
    uint64_t version = 0;

    (void)state;
    kit_dir_make(shelf.dir);
    assert_int_equal(shelf_open(&shelf, "a", "disk_a", 0), KVT_OK);
    shelf_put(&shelf, 0, COUNT);
    assert_int_equal(kvt_close(shelf.store), KVT_OK);
    path_of(&shelf, "a/meta/data.mdb", path);
    assert_int_equal(unlink(path), 0);
    header_damage(&shelf, 0, uuid_and_mac, 4, 0xFF);
    assert_int_equal(shelf_open(&shelf, "a", "disk_a", 0), KVT_OK);
    assert_int_equal(kit_get(shelf.store, shelf.ns, COUNT - 1, &version), KVT_OK);
    assert_int_equal(kvt_close(shelf.store), KVT_OK);
    kit_dir_remove(shelf.dir);
}

/* --- In a simulated world: two disks of one store --------------------------------------------- */

static void
roots_name(struct full_store *full, const char *first, const char *second)
{
    const struct kvt_env *env = full->reach.env;
    const char *const paths[ROOTS] = {first, second};
    bool is_unwritable = false;
    struct store_file file;
    struct fs_dir *dir;

    assert_int_equal(env->fs->dir_open(env->fs_context, "/store", 0, &dir), KVT_OK);
    assert_int_equal(store_file_read(env, dir, &file, &is_unwritable), KVT_OK);
    for (uint32_t i = 0; i < ROOTS; i++) {
        memset(file.root_paths[i], 0, sizeof(file.root_paths[i]));
        memcpy(file.root_paths[i], paths[i], strlen(paths[i]));
    }
    assert_int_equal(store_file_write(env, dir, &file), KVT_OK);
    env->fs->dir_close(dir);
}

static void
two_begin(struct full_store **full_out, uint64_t seed, uint32_t block_count)
{
    struct full_store *full = full_begin_two_roots(seed);

    for (uint32_t i = 0; i < block_count; i++)
        full_put(full, full->next_cold++, 1);
    assert_int_equal(kvt_close(full->store), KVT_OK);
    full->options.roots = NULL;
    full->options.root_count = 0;
    *full_out = full;
}

static void
two_refused(struct full_store *full, const char *words)
{
    for (size_t i = 0; i < sizeof(all_flags) / sizeof(all_flags[0]); i++) {
        full->options.flags = all_flags[i];
        refused(store_open_in(&full->reach, "/store", &full->options, &full->store), KVT_E_INVAL,
            words);
    }
}

/* The disks are in their places: nothing is missing. */
static void
two_end(struct full_store *full)
{
    roots_name(full, "/first", "/second");
    full_open(full, 0);
    for (uint64_t key = FULL_COLD; key < full->next_cold; key++)
        full_expect(full, key, 1);
    full_end(full);
}

static void
two_roots_that_were_exchanged_are_refused(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct full_store *full;

        two_begin(&full, seed, 4 * FULL_SEGMENTS);
        roots_name(full, "/second", "/first");
        two_refused(full, "root 0: /second/data.00 has blocks of root 1 of this store");
        two_end(full);
    }
}

/* Whether anything was written to the first segment of the disk. */
static bool
disk_is_used(struct full_store *full, const char *root)
{
    const struct kvt_env *env = full->reach.env;
    uint8_t bytes[PAGE_BYTES] = {0};
    struct fs_file *file;
    struct fs_dir *dir;
    size_t size;

    assert_int_equal(env->fs->dir_open(env->fs_context, root, 0, &dir), KVT_OK);
    assert_int_equal(env->fs->open(dir, "data.00", FS_READ_ONLY, &file), KVT_OK);
    assert_int_equal(env->fs->read_at(file, bytes, sizeof(bytes), 0, &size), KVT_OK);
    env->fs->close(file);
    env->fs->dir_close(dir);
    return bytes[0] != 0;
}

/* Which of them it is, it tells for both. */
static void
one_root_with_blocks_tells_that_they_were_exchanged(void **state)
{
    struct full_store *full;

    (void)state;
    two_begin(&full, 1, 1);
    assert_true(disk_is_used(full, "/first"));
    assert_false(disk_is_used(full, "/second"));
    roots_name(full, "/second", "/first");
    two_refused(full, "root 1: /first/data.00 has blocks of root 0 of this store");
    two_end(full);
}

/* No root's file is made, or grown, before all that are there were asked. */
static void
nothing_is_made_beside_a_disk_of_another_root(void **state)
{
    struct full_store *full;
    uint64_t capacity;

    (void)state;
    two_begin(&full, 1, 4 * FULL_SEGMENTS);
    capacity = full->options.nvme_capacity_bytes;
    full->options.nvme_capacity_bytes = 2 * capacity;
    roots_name(full, "/third", "/first");
    full->options.flags = KVT_OPEN_REBUILD;
    refused(store_open_in(&full->reach, "/store", &full->options, &full->store), KVT_E_INVAL,
        "root 1: /first/data.00 has blocks of root 0 of this store");
    assert_false(sim_file_exists(full->world, "third/data.00"));
    roots_name(full, "/second", "/first");
    two_refused(full, "of this store");
    full->options.nvme_capacity_bytes = 0;
    roots_name(full, "/first", "/second");
    full_open(full, 0);
    assert_int_equal(full->store->options.nvme_capacity_bytes, capacity);
    assert_int_equal(kvt_close(full->store), KVT_OK);
    two_end(full);
}

/* --- What the disk answers, and how often it is asked ----------------------------------------- */

/* A store in the world, and a disk that somebody stands before. */
struct watched_disk {
    struct full_store *full;
    struct kvt_env env;
    struct fs_ops fs;
};

static const struct fs_ops *world_fs;
static uint32_t page_count; /* Single pages that were read. */

static void
disk_watch(struct watched_disk *disk, uint32_t segment_count,
    enum kvt_status (*read_at)(struct fs_file *, void *, size_t, uint64_t, size_t *))
{
    disk->full = full_begin(1, segment_count);
    disk->env = *disk->full->reach.env;
    disk->fs = *disk->env.fs;
    world_fs = disk->env.fs;
    disk->fs.read_at = read_at;
    disk->env.fs = &disk->fs;
    disk->full->reach.env = &disk->env;
}

/* What a read of the first header has wrong: bytes of it are turned over. */
struct misread {
    uint32_t at, size;
};

static const uint8_t header_magic[] = {0xB5, 0xF3, 0x91, 0x7E};
static const struct misread *misreads; /* Of one open's reads, from the first on. */
static uint32_t misread_count;

static enum kvt_status
read_wrong(struct fs_file *file, void *target, size_t size, uint64_t offset, size_t *read_out)
{
    uint8_t *bytes = target;
    enum kvt_status status = world_fs->read_at(file, target, size, offset, read_out);

    if (misread_count > 0 && offset == 0 && memcmp(bytes, header_magic, 4) == 0) {
        for (uint32_t i = 0; i < misreads->size; i++)
            bytes[misreads->at + i] ^= 0xFF;
        misreads++;
        misread_count--;
    }
    return status;
}

/* Neither alone, nor one behind the other, do they make the disk another's. */
static void
wrong_reads_are_not_of_another_disk(void **state)
{
    /* The first read, which is right, asks whether the file answers. */
    static const struct misread uuid_and_mac[] = {{0, 0}, {AT_UUID, 16}, {AT_MAC, 1}};
    static const struct misread root[] = {{0, 0}, {AT_SEGMENT_ROOT, 1}};
    static const struct misread root_and_mac[] = {{0, 0}, {AT_SEGMENT_ROOT, 1}, {AT_MAC, 1}};
    static const struct misread uuid_and_root[] = {{0, 0}, {AT_UUID, 16}, {AT_SEGMENT_ROOT, 1}};
    static const struct {
        const struct misread *reads;
        uint32_t count;
    } cases[] = {{uuid_and_mac, 3}, {root, 2}, {root_and_mac, 3}, {uuid_and_root, 3}};
    struct watched_disk disk;

    (void)state;
    disk_watch(&disk, 8, read_wrong);
    full_put(disk.full, disk.full->next_cold++, 1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(kvt_close(disk.full->store), KVT_OK);
        misreads = cases[i].reads;
        misread_count = cases[i].count;
        full_open(disk.full, 0);
        assert_int_equal(misread_count, 0);
        full_expect(disk.full, FULL_COLD, 1);
    }
    full_end(disk.full);
}

static enum kvt_status
read_counted(struct fs_file *file, void *target, size_t size, uint64_t offset, size_t *read_out)
{
    page_count += size == PAGE_BYTES && offset % PAGE_BYTES == 0;
    return world_fs->read_at(file, target, size, offset, read_out);
}

static void
an_open_asks_few_segments_whose_they_are(void **state)
{
    enum {
        SEGMENTS = 200,
        ASKED = 64,
        OTHERS = 8
    };
    struct watched_disk disk;

    (void)state;
    disk_watch(&disk, SEGMENTS, read_counted);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(kvt_close(disk.full->store), KVT_OK);
        page_count = 0;
        full_open(disk.full, 0);
        /* Without a header all of the first ones are asked; then the first one. */
        assert_in_range(page_count, i == 0 ? ASKED : 1, i == 0 ? ASKED + OTHERS : OTHERS);
        full_put(disk.full, disk.full->next_cold++, 1);
    }
    full_end(disk.full);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_root_with_the_disk_of_another_store_is_refused),
        cmocka_unit_test(a_damaged_header_is_not_of_another_store),
        cmocka_unit_test(a_disk_is_known_without_the_index),
        cmocka_unit_test(two_roots_that_were_exchanged_are_refused),
        cmocka_unit_test(one_root_with_blocks_tells_that_they_were_exchanged),
        cmocka_unit_test(nothing_is_made_beside_a_disk_of_another_root),
        cmocka_unit_test(wrong_reads_are_not_of_another_disk),
        cmocka_unit_test(an_open_asks_few_segments_whose_they_are),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
