/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_index_metas.c - the write of LMDB's meta page fails: what was committed before is there
 * again, and the index is not taken for a damaged one.
 *
 * This program has a pwrite instead of libc's.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "bytes.h"
#include "index_model.h"
#include "lmdb_page.h"
#include "scratch_dir.h"
#include "stop_on_proof.h"

enum {
    MAP_BYTES = 1 << 20,
    COMMITS = 24, /* Before the one that fails: until pages are used again. */
    BATCH = 8,    /* Of blocks, so that the file does not grow with each commit. */
};

static struct {
    struct kvt_env env;
    struct scratch_dir scratch;
    struct fs_dir *dir;
    struct index_model model, before; /* The last batch. */
    struct model_batch batch;
    bool meta_fails;  /* The next write of a meta page... */
    bool has_arrived; /* ...is in the file all the same. */
    uint32_t fail_count;
} bench;

/* LMDB's, which is another library. It writes the fields of a meta page behind its header. */
__attribute__((visibility("default"))) ssize_t
pwrite(int descriptor, const void *source, size_t size, off_t offset)
{
    if (!bench.meta_fails || size >= LMDB_META_BYTES || offset >= 2 * PAGE_BYTES)
        return syscall(SYS_pwrite64, descriptor, source, size, offset);
    bench.meta_fails = false;
    bench.fail_count++;
    if (bench.has_arrived)
        (void)syscall(SYS_pwrite64, descriptor, source, size, offset);
    errno = EIO;
    return -1;
}

static int
setup(void **state)
{
    struct kvt_env *env = &bench.env;

    (void)state;
    memset(&bench, 0, sizeof(bench));
    env_host(env);
    scratch_dir_make(&bench.scratch);
    return env->fs->dir_open(env->fs_context, bench.scratch.path, 0, &bench.dir) == KVT_OK ? 0 : -1;
}

static int
teardown(void **state)
{
    (void)state;
    bench.env.fs->dir_close(bench.dir);
    scratch_dir_remove(&bench.scratch);
    return 0;
}

static enum kvt_status
batch_commit(struct index *index, uint64_t seed, bool is_deferred)
{
    struct rng rng = {.state = seed};

    model_batch_random(&bench.model, &bench.batch, &rng, BATCH, BATCH);
    return is_deferred ? index->ops->commit_deferred(index, &bench.batch.batch)
                       : index->ops->commit(index, &bench.batch.batch);
}

/* The index on the disk is no damaged one, and holds this. */
static void
index_check(const struct index_model *wanted)
{
    enum index_condition condition = INDEX_ABSENT;
    struct index *index;

    assert_int_equal(index_lmdb_ops.inspect(NULL, &bench.env, bench.dir, &condition), KVT_OK);
    assert_int_equal(condition, INDEX_UNCLEAN);
    assert_int_equal(index_lmdb_ops.open(NULL, &bench.env, bench.dir, false, &index), KVT_OK);
    model_check(wanted, index);
    index->ops->close(index);
}

static void
what_was_committed_is_there_where_the_meta_page_fails(void **state)
{
    for (uint32_t i = 0; i < 2 * 2 * 2; i++) {
        bool is_mark = (i & 1) != 0, is_deferred = (i & 2) != 0;
        enum kvt_status status;
        struct index *index;

        assert_int_equal(
            index_lmdb_ops.create(NULL, &bench.env, bench.dir, MAP_BYTES, &index), KVT_OK);
        assert_int_equal(index_lmdb_ops.install(index), KVT_OK);
        assert_int_equal(index->ops->mark(index, false), KVT_OK);
        for (uint32_t k = 1; k <= COMMITS + i; k++)
            assert_int_equal(batch_commit(index, k, is_deferred), KVT_OK);
        if (is_deferred)
            assert_int_equal(index->ops->sync(index), KVT_OK);
        bench.has_arrived = (i & 4) != 0;
        bench.meta_fails = true;
        bench.before = bench.model;
        status = is_mark ? index->ops->mark(index, true) : batch_commit(index, 0, is_deferred);
        assert_int_equal(status, KVT_E_META);
        assert_int_equal(bench.fail_count, 1);
        assert_int_equal(index->ops->mark(index, true), KVT_E_META);
        index->ops->close(index);
        index_check(&bench.before);
        assert_int_equal(teardown(state), 0);
        assert_int_equal(setup(state), 0);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            what_was_committed_is_there_where_the_meta_page_fails, setup, teardown),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
