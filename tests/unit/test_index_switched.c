/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_index_switched.c - the path of a store comes to mean another store while its index is
 * opened: a link is switched, another thread of the host changes the directory.
 *
 * LMDB opens by path, so this program has an open() and a stat() that LMDB and the library find
 * before libc's.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "failure.h"
#include "index_model.h"
#include "scratch_dir.h"

enum {
    MAP_BYTES = 1 << 20,
    STORES = 2,
};

/* When the path comes to mean the other store. */
enum moment {
    NEVER,
    BEHIND_OWN_OPEN, /* The library's, in the store's directory. */
    BEFORE_LMDB,     /* Behind the last look at the path. */
};

static struct kvt_env env;
static struct fs_ops ops;
static const struct fs_ops *host;
static struct scratch_dir scratch;
static struct fs_dir *dirs[STORES]; /* The first by the path that will be switched. */
static struct index_model model;
static struct model_batch batch;
static enum moment moment;
static bool has_proc;
static bool is_by_link; /* Or by the working directory. */
static uint8_t before[MAP_BYTES];
static uint8_t after[MAP_BYTES + 1];

static void
path_switch(void)
{
    moment = NEVER;
    if (is_by_link) {
        assert_int_equal(unlink(scratch_path(&scratch, "now")), 0);
        assert_int_equal(symlink("two", scratch_path(&scratch, "now")), 0);
    } else {
        assert_int_equal(chdir(scratch_path(&scratch, "two")), 0);
    }
}

__attribute__((visibility("default"))) int
open(const char *path, int flags, ...)
{
    const char *name = strrchr(path, '/');
    va_list rest;
    int mode;

    va_start(rest, flags);
    mode = (flags & O_CREAT) != 0 ? va_arg(rest, int) : 0;
    va_end(rest);
    if (moment == BEFORE_LMDB && name != NULL && strncmp(name, "/data.mdb", 9) == 0)
        path_switch();
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

__attribute__((visibility("default"))) int
stat(const char *path, struct stat *facts)
{
    if (has_proc || strncmp(path, "/proc/", 6) != 0)
        return fstatat(AT_FDCWD, path, facts, 0);
    errno = ENOENT;
    return -1;
}

static enum kvt_status
open_and_switch(struct fs_dir *dir, const char *name, unsigned flags, struct fs_file **file_out)
{
    enum kvt_status status = host->open(dir, name, flags, file_out);

    if (moment == BEHIND_OWN_OPEN && dir == dirs[0])
        path_switch();
    return status;
}

static struct index *
index_make(struct fs_dir *dir)
{
    struct index *index;

    assert_int_equal(index_lmdb_ops.create(NULL, &env, dir, MAP_BYTES, &index), KVT_OK);
    assert_int_equal(index_lmdb_ops.install(index), KVT_OK);
    assert_int_equal(index_lmdb_ops.mark(index, false), KVT_OK);
    return index;
}

static void
batch_commit(struct index *index)
{
    struct rng rng = {.state = 7};

    model_batch_random(&model, &batch, &rng, 100, 50);
    assert_int_equal(index->ops->commit(index, &batch.batch), KVT_OK);
}

/* Two stores, of which the second has an index, and the first is open by the path. */
static void
world_make(enum moment wanted, bool by_link, bool proc)
{
    static const char *const names[] = {"one", "two", "one/meta", "two/meta"};

    moment = NEVER;
    has_proc = true;
    env_host(&env);
    host = env.fs;
    ops = *host;
    ops.open = open_and_switch;
    env.fs = &ops;
    memset(&model, 0, sizeof(model));
    scratch_dir_make(&scratch);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_int_equal(mkdir(scratch_path(&scratch, names[i]), 0700), 0);
    assert_int_equal(symlink("one", scratch_path(&scratch, "now")), 0);
    assert_int_equal(chdir(scratch_path(&scratch, "one")), 0);
    is_by_link = by_link;
    assert_int_equal(host->dir_open(env.fs_context,
                         by_link ? scratch_path(&scratch, "now/meta") : "meta", 0, &dirs[0]),
        KVT_OK);
    assert_int_equal(
        host->dir_open(env.fs_context, scratch_path(&scratch, "two/meta"), 0, &dirs[1]), KVT_OK);
    index_lmdb_ops.close(index_make(dirs[1]));
    assert_int_equal(
        scratch_read(&scratch, "two/meta/data.mdb", before, sizeof(before)), sizeof(before));
    moment = wanted;
    has_proc = proc;
}

/* Nothing has happened to the second store. */
static void
world_end(void)
{
    assert_int_equal(moment, NEVER);
    assert_int_equal(
        scratch_read(&scratch, "two/meta/data.mdb", after, sizeof(after)), sizeof(before));
    assert_memory_equal(before, after, sizeof(before));
    assert_false(scratch_exists(&scratch, "two/meta/data.mdb.new"));
    for (size_t i = 0; i < STORES; i++)
        host->dir_close(dirs[i]);
    assert_int_equal(chdir("/"), 0);
    scratch_dir_remove(&scratch);
}

static void
an_index_is_opened_where_its_store_is(void **state)
{
    (void)state;
    for (int by_link = 0; by_link < 2; by_link++) {
        struct index *index;

        world_make(NEVER, by_link, true);
        index = index_make(dirs[0]);
        batch_commit(index);
        index_lmdb_ops.close(index);
        moment = BEHIND_OWN_OPEN;
        assert_int_equal(index_lmdb_ops.open(NULL, &env, dirs[0], false, &index), KVT_OK);
        model_check(&model, index);
        batch_commit(index);
        assert_int_equal(index->ops->grow(index, 0), KVT_OK);
        model_check(&model, index);
        index_lmdb_ops.close(index);
        world_end();
    }
}

static void
an_index_is_made_where_its_store_is(void **state)
{
    (void)state;
    for (int by_link = 0; by_link < 2; by_link++) {
        struct index *index;

        world_make(BEHIND_OWN_OPEN, by_link, true);
        index = index_make(dirs[0]);
        batch_commit(index);
        model_check(&model, index);
        assert_true(scratch_exists(&scratch, "one/meta/data.mdb"));
        index_lmdb_ops.close(index);
        world_end();
    }
}

static void
without_proc_an_index_opens_as_long_as_its_path_is_the_stores(void **state)
{
    struct index *index;

    (void)state;
    world_make(NEVER, true, false);
    index = index_make(dirs[0]);
    batch_commit(index);
    index_lmdb_ops.close(index);
    for (enum moment when = BEHIND_OWN_OPEN; when <= BEFORE_LMDB; when++) {
        moment = when;
        assert_int_equal(index_lmdb_ops.open(NULL, &env, dirs[0], false, &index), KVT_E_BUSY);
        assert_null(index);
        assert_non_null(strstr(failure_last()->text, "now/meta"));
        assert_int_equal(unlink(scratch_path(&scratch, "now")), 0);
        assert_int_equal(symlink("one", scratch_path(&scratch, "now")), 0);
        assert_int_equal(index_lmdb_ops.open(NULL, &env, dirs[0], false, &index), KVT_OK);
        model_check(&model, index);
        index_lmdb_ops.close(index);
    }
    world_end();
}

static void
without_proc_no_index_is_made_where_the_path_leads_elsewhere(void **state)
{
    (void)state;
    /* The other store may be making one, too. */
    for (int has_other = 0; has_other < 2; has_other++) {
        struct index *index;

        world_make(BEHIND_OWN_OPEN, true, false);
        if (has_other != 0)
            scratch_write(&scratch, "two/meta/data.mdb.new", "", 0);
        assert_int_equal(index_lmdb_ops.create(NULL, &env, dirs[0], MAP_BYTES, &index), KVT_E_BUSY);
        assert_null(index);
        assert_false(scratch_exists(&scratch, "one/meta/data.mdb.new"));
        if (has_other != 0) {
            assert_int_equal(
                scratch_read(&scratch, "two/meta/data.mdb.new", after, sizeof(after)), 0);
            scratch_unlink(&scratch, "two/meta/data.mdb.new");
        }
        world_end();
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_index_is_opened_where_its_store_is),
        cmocka_unit_test(an_index_is_made_where_its_store_is),
        cmocka_unit_test(without_proc_an_index_opens_as_long_as_its_path_is_the_stores),
        cmocka_unit_test(without_proc_no_index_is_made_where_the_path_leads_elsewhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
