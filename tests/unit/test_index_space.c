/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_index_space.c - the space of a new index: what one leaves that was not put in the old one's
 * place, and a disk that has no room for a second one; and how often LMDB syncs for it.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "env.h"
#include "failure.h"
#include "kvtier/kvtier_unstable.h"
#include "stop_on_proof.h"
#include "store_kit.h"

#define MIB (UINT64_C(1) << 20)

enum {
    COUNT = 20,   /* Blocks. */
    SEGMENTS = 8, /* Of kit_options(). */
    NAME_BYTES = KIT_PATH_BYTES + 64,
};

static struct {
    char dir[KIT_PATH_BYTES];
    char path[KIT_PATH_BYTES + 16];
    struct kvt_options options;
    struct kvt_env env;
    struct fs_ops fs; /* The host's, some functions replaced. */
    const struct fs_ops *host;
    uint64_t free_bytes; /* That the disk says it has. */
    kvt_store *store;
    kvt_namespace ns;
} it;

static void
name_of(const char *name, char name_out[NAME_BYTES])
{
    (void)snprintf(name_out, NAME_BYTES, "%s/meta/%s", it.path, name);
}

/* 0: there is none. */
static uint64_t
size_of(const char *name)
{
    char path[NAME_BYTES];
    struct stat info;

    name_of(name, path);
    return stat(path, &info) == 0 ? (uint64_t)info.st_size : 0;
}

static enum kvt_status
store_open(uint32_t flags)
{
    enum kvt_status status;

    it.options.flags = flags;
    status = kvt_open_env(it.path, &it.options, &it.env, &it.store);
    if (status == KVT_OK)
        assert_int_equal(kvt_namespace_open(it.store, "space", "model", 5, &it.ns), KVT_OK);
    return status;
}

/* All blocks are there; and the store is closed. */
static void
store_expect(uint64_t count)
{
    for (uint64_t key = 0; key < count; key++) {
        uint64_t version = 0;

        assert_int_equal(kit_get(it.store, it.ns, key, &version), KVT_OK);
    }
    assert_int_equal(kvt_close(it.store), KVT_OK);
}

static int
setup(void **state)
{
    (void)state;
    memset(&it, 0, sizeof(it));
    kit_dir_make(it.dir);
    (void)snprintf(it.path, sizeof(it.path), "%s/store", it.dir);
    it.options = kit_options();
    it.options.index_map_bytes = 0;
    kvt_env_host(&it.env);
    it.host = it.env.fs;
    it.fs = *it.host;
    it.env.fs = &it.fs;
    assert_int_equal(store_open(0), KVT_OK);
    for (uint64_t key = 0; key < COUNT; key++)
        assert_int_equal(kit_put(it.store, it.ns, key, 1, 4096, KVT_SYNC), KVT_OK);
    assert_int_equal(kvt_close(it.store), KVT_OK);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    kit_dir_remove(it.dir);
    return 0;
}

/* --- What is left ----------------------------------------------------------------------------- */

static enum kvt_status
rename_never(struct fs_dir *dir, const char *from, const char *to)
{
    if (strcmp(from, "data.mdb.new") == 0)
        return failure_set(KVT_E_IO, EIO, "rename %s: on purpose", from);
    return it.host->rename(dir, from, to);
}

static void
a_rebuild_that_fails_leaves_no_second_index(void **state)
{
    (void)state;
    it.fs.rename = rename_never;
    refused(store_open(KVT_OPEN_REBUILD), KVT_E_IO, "on purpose");
    assert_int_equal(size_of("data.mdb.new"), 0);
    it.fs.rename = it.host->rename;
    assert_int_equal(store_open(0), KVT_OK);
    store_expect(COUNT);
}

/* Whoever made it was killed. For reading only, nothing is changed. */
static void
a_second_index_that_was_left_goes_with_the_next_open_for_writing(void **state)
{
    char path[NAME_BYTES];

    (void)state;
    name_of("data.mdb.new", path);
    kit_file_write(path, "half an index", 13);
    assert_int_equal(store_open(KVT_OPEN_READ_ONLY), KVT_OK);
    store_expect(COUNT);
    assert_int_equal(size_of("data.mdb.new"), 13);
    assert_int_equal(store_open(0), KVT_OK);
    store_expect(COUNT);
    assert_int_equal(size_of("data.mdb.new"), 0);
}

/* --- A disk without room ---------------------------------------------------------------------- */

static enum kvt_status
space_little(struct fs_dir *dir, uint64_t *free_bytes_out)
{
    (void)dir;
    *free_bytes_out = it.free_bytes;
    return KVT_OK;
}

static void
index_damage(void)
{
    char path[NAME_BYTES];
    FILE *file;

    name_of("data.mdb", path);
    file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fwrite(path, 64, 1, file), 1);
    assert_int_equal(fclose(file), 0);
}

/* The damaged one has the space of a whole map, and is there until the new one is made. */
static void
a_damaged_index_is_rebuilt_with_a_smaller_map(void **state)
{
    uint64_t usual = size_of("data.mdb");

    (void)state;
    for (it.free_bytes = usual / 2; it.free_bytes > 2 * MIB; it.free_bytes /= 3) {
        index_damage();
        it.fs.dir_space = space_little;
        assert_int_equal(store_open(0), KVT_OK);
        store_expect(COUNT);
        assert_in_range(size_of("data.mdb"), it.free_bytes / 4, it.free_bytes);
        it.fs.dir_space = it.host->dir_space;
    }
    index_damage(); /* With room for it, it is as large as ever. */
    assert_int_equal(store_open(0), KVT_OK);
    store_expect(COUNT);
    assert_int_equal(size_of("data.mdb"), usual);
}

static void
a_map_that_was_asked_for_is_not_made_smaller(void **state)
{
    (void)state;
    index_damage();
    it.fs.dir_space = space_little;
    it.free_bytes = 8 * MIB;
    it.options.index_map_bytes = 16 * MIB;
    refused(store_open(0), KVT_E_NOSPC, "8388608 are free");
    it.options.index_map_bytes = 0;
    it.free_bytes = MIB / 2; /* It is not made smaller than a map may be. */
    refused(store_open(0), KVT_E_NOSPC, "524288 are free");
    assert_int_equal(size_of("data.mdb.new"), 0);
    it.fs.dir_space = it.host->dir_space;
    assert_int_equal(store_open(0), KVT_OK);
    store_expect(COUNT);
}

/* --- What it costs ---------------------------------------------------------------------------- */

static atomic_uint sync_count; /* LMDB's: others call fsync(). */

/* In the place of the library's. */
__attribute__((visibility("default"))) int
fdatasync(int descriptor)
{
    atomic_fetch_add(&sync_count, 1);
    return (int)syscall(SYS_fdatasync, descriptor);
}

/* The facts of all segments are one transaction, as long as they are not thousands. */
static void
a_rebuild_does_not_sync_for_each_segment(void **state)
{
    (void)state;
    atomic_store(&sync_count, 0);
    assert_int_equal(store_open(KVT_OPEN_REBUILD), KVT_OK);
    assert_in_range(atomic_load(&sync_count), 1, SEGMENTS - 1);
    store_expect(COUNT);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_rebuild_that_fails_leaves_no_second_index),
        TEST(a_second_index_that_was_left_goes_with_the_next_open_for_writing),
        TEST(a_damaged_index_is_rebuilt_with_a_smaller_map),
        TEST(a_map_that_was_asked_for_is_not_made_smaller),
        TEST(a_rebuild_does_not_sync_for_each_segment),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
