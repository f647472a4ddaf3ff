/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_index_failures.c - commits that fail, power cuts, and files that are none.
 *
 * LMDB's writes are made to fail with RLIMIT_FSIZE: beyond it pwrite gives EFBIG; or by the pwrite
 * that this program has instead of libc's.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "bytes.h"
#include "committer.h"
#include "failure.h"
#include "index_model.h"
#include "scratch_dir.h"
#include "stop_on_proof.h"

enum {
    MAP_BYTES = 1 << 20,
};

#define UNLIMITED UINT64_MAX

static struct kvt_env env;
static struct scratch_dir scratch;
static struct fs_dir *dir;
static struct index_model model;
static struct index_model model_before;
static struct model_batch batch;
static int pwrite_error; /* That every pwrite gives; 0: none does. */

/* LMDB's too, which is another library. */
__attribute__((visibility("default"))) ssize_t
pwrite(int descriptor, const void *source, size_t size, off_t offset)
{
    if (pwrite_error == 0)
        return syscall(SYS_pwrite64, descriptor, source, size, offset);
    errno = pwrite_error;
    return -1;
}

static int
dir_make(void **state)
{
    (void)state;
    env_host(&env);
    scratch_dir_make(&scratch);
    memset(&model, 0, sizeof(model));
    return env.fs->dir_open(env.fs_context, scratch.path, 0, &dir) == KVT_OK ? 0 : -1;
}

static int
dir_remove(void **state)
{
    (void)state;
    env.fs->dir_close(dir);
    scratch_dir_remove(&scratch);
    return 0;
}

/* Writes beyond `size` bytes fail from now on; UNLIMITED: none does. */
static void
writes_limit(uint64_t size)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = size == UNLIMITED ? limit.rlim_max : (rlim_t)size;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static struct index *
lmdb_make(void)
{
    struct index *index;

    assert_int_equal(index_lmdb_ops.create(NULL, &env, dir, MAP_BYTES, &index), KVT_OK);
    assert_int_equal(index_lmdb_ops.install(index), KVT_OK);
    assert_int_equal(index_lmdb_ops.mark(index, false), KVT_OK);
    return index;
}

static struct index *
lmdb_open(void)
{
    struct index *index;

    assert_int_equal(index_lmdb_ops.open(NULL, &env, dir, false, &index), KVT_OK);
    return index;
}

static enum index_condition
lmdb_condition(void)
{
    enum index_condition condition = INDEX_ABSENT;

    assert_int_equal(index_lmdb_ops.inspect(NULL, &env, dir, &condition), KVT_OK);
    return condition;
}

static void
batch_make(uint64_t seed)
{
    struct rng rng = {.state = seed};

    model_before = model;
    model_batch_random(&model, &batch, &rng, 100, 50);
}

/* --- 1. LMDB ---------------------------------------------------------------------------------- */

static void
no_commit_is_tried_after_one_failed(void **state)
{
    struct index *index = lmdb_make();

    (void)state;
    batch_make(1);
    assert_int_equal(index->ops->commit(index, &batch.batch), KVT_OK);
    batch_make(2);
    writes_limit(4 * PAGE_BYTES);
    assert_int_equal(index->ops->commit(index, &batch.batch), KVT_E_META);
    writes_limit(UNLIMITED);
    assert_non_null(strstr(failure_last()->text, "No further commit"));
    assert_int_equal(index->ops->commit(index, &batch.batch), KVT_E_META);
    assert_int_equal(index->ops->mark(index, true), KVT_E_META);
    assert_int_equal(index->ops->grow(index, 0), KVT_E_META);
    /* Reads go on, and see what was committed. */
    model = model_before;
    model_check(&model, index);
    index->ops->close(index);
    assert_int_equal(lmdb_condition(), INDEX_UNCLEAN);
    index = lmdb_open();
    model_check(&model, index);
    batch_make(3);
    assert_int_equal(index->ops->commit(index, &batch.batch), KVT_OK);
    model_check(&model, index);
    index->ops->close(index);
}

static enum kvt_status
unreadable(struct fs_file *file, void *target, size_t size, uint64_t offset, size_t *read_out)
{
    (void)file;
    (void)target;
    (void)size;
    (void)offset;
    (void)read_out;
    return failure_set(KVT_E_IO, 5, "the disk cannot read that");
}

static bool
no_block(void *visitor, const struct index_block *block)
{
    (void)visitor;
    (void)block;
    fail_msg("a block was shown that the disk could not read");
    return false;
}

static void
a_file_that_cannot_be_read_is_not_walked_through_its_map(void **state)
{
    struct index *index = lmdb_make();
    struct kvt_env broken = env;
    struct fs_ops ops = *env.fs;

    (void)state;
    batch_make(1);
    assert_int_equal(index->ops->commit(index, &batch.batch), KVT_OK);
    index->ops->close(index);
    broken.fs = &ops;
    assert_int_equal(index_lmdb_ops.open(NULL, &broken, dir, true, &index), KVT_OK);
    ops.read_at = unreadable;
    assert_int_equal(index->ops->each_block(index, no_block, NULL), KVT_E_IO);
    index->ops->close(index);
}

static void
a_map_that_cannot_grow_stays_as_it_is(void **state)
{
    struct index *index = lmdb_make();
    struct index_stats stats;
    struct fs_file *file;
    uint64_t size = 0;

    (void)state;
    batch_make(1);
    assert_int_equal(index->ops->commit(index, &batch.batch), KVT_OK);
    writes_limit(MAP_BYTES + MAP_BYTES / 2);
    assert_int_equal(index->ops->grow(index, 0), KVT_E_IO);
    writes_limit(UNLIMITED);
    index->ops->stats(index, &stats);
    assert_int_equal(stats.map_bytes, MAP_BYTES);
    assert_int_equal(env.fs->open(dir, "data.mdb", FS_READ_ONLY, &file), KVT_OK);
    assert_int_equal(env.fs->size(file, &size), KVT_OK);
    env.fs->close(file);
    assert_int_equal(size, MAP_BYTES);
    batch_make(2);
    assert_int_equal(index->ops->commit(index, &batch.batch), KVT_OK);
    model_check(&model, index);
    assert_int_equal(index->ops->grow(index, UINT64_MAX), KVT_E_INVAL);
    assert_int_equal(index->ops->grow(index, 0), KVT_OK);
    model_check(&model, index);
    index->ops->close(index);
}

static enum kvt_status
open_none(struct fs_dir *other, const char *name, unsigned flags, struct fs_file **file_out)
{
    (void)other;
    (void)flags;
    *file_out = NULL;
    return failure_errno(EMFILE, "Cannot open", name);
}

static void *
take_none(void *context, size_t size)
{
    (void)context;
    (void)size;
    return NULL;
}

/* Of a lack that passes. */
static void
a_map_grows_without_a_descriptor_and_without_memory(void **state)
{
    struct kvt_env lean = env;
    struct fs_ops ops = *env.fs;
    struct memory_ops memory = *env.memory;
    struct index_stats stats;
    struct index *index;

    (void)state;
    lean.fs = &ops;
    lean.memory = &memory;
    index_lmdb_ops.close(lmdb_make());
    assert_int_equal(index_lmdb_ops.open(NULL, &lean, dir, false, &index), KVT_OK);
    ops.open = open_none;
    memory.take = take_none;
    batch_make(1);
    assert_int_equal(index->ops->commit(index, &batch.batch), KVT_OK);
    assert_int_equal(index->ops->grow(index, 0), KVT_OK);
    index->ops->stats(index, &stats);
    assert_int_equal(stats.map_bytes, 2 * MAP_BYTES);
    batch_make(2);
    assert_int_equal(index->ops->commit(index, &batch.batch), KVT_OK);
    memory.take = env.memory->take;
    model_check(&model, index);
    index->ops->close(index);
}

static uint64_t space_bytes; /* What the disk has, says space_tell(). */

static enum kvt_status
space_tell(struct fs_dir *other, uint64_t *free_bytes_out)
{
    (void)other;
    *free_bytes_out = space_bytes;
    return KVT_OK;
}

static enum kvt_status
write_never(struct fs_file *file, const void *source, size_t size, uint64_t offset)
{
    (void)file;
    (void)source;
    (void)offset;
    fail_msg("%u bytes are written that the disk does not have", (unsigned)size);
    return KVT_E_NOSPC;
}

/* The size of the map when it has grown with so much on the disk; 0: KVT_E_NOSPC, for which nothing
 * was written. */
static uint64_t
grown_with(struct fs_ops *ops, struct index *index, uint64_t free_bytes, uint64_t wanted)
{
    struct index_stats before, after;
    enum kvt_status status;

    space_bytes = free_bytes;
    index->ops->stats(index, &before);
    status = index->ops->grow(index, wanted);
    index->ops->stats(index, &after);
    ops->write_at = env.fs->write_at;
    if (status == KVT_OK)
        return after.map_bytes;
    assert_int_equal(status, KVT_E_NOSPC);
    assert_int_equal(after.map_bytes, before.map_bytes);
    return 0;
}

static void
a_map_on_a_full_disk_grows_by_less(void **state)
{
    struct kvt_env full = env;
    struct fs_ops ops = *env.fs;
    struct index *index;
    const uint64_t mib = 1 << 20;

    (void)state;
    ops.dir_space = space_tell;
    full.fs = &ops;
    space_bytes = 16 * mib;
    assert_int_equal(index_lmdb_ops.create(NULL, &full, dir, 16 * mib, &index), KVT_OK);
    assert_int_equal(index_lmdb_ops.install(index), KVT_OK);
    batch_make(1);
    assert_int_equal(index->ops->commit(index, &batch.batch), KVT_OK);
    ops.write_at = write_never;
    assert_int_equal(grown_with(&ops, index, 4 * mib - 1, 0), 0);
    assert_non_null(strstr(failure_last()->text, "4194304 more bytes are wanted, 4194303 are"));
    ops.write_at = write_never;
    assert_int_equal(grown_with(&ops, index, 9 * mib, 26 * mib), 0);
    assert_int_equal(grown_with(&ops, index, 4 * mib, 0), 20 * mib);
    assert_int_equal(grown_with(&ops, index, 11 * mib + 5, 0), 25 * mib);
    assert_int_equal(grown_with(&ops, index, 8 * mib, 32 * mib), 32 * mib);
    assert_int_equal(grown_with(&ops, index, 32 * mib, 0), 64 * mib);
    batch_make(2);
    assert_int_equal(index->ops->commit(index, &batch.batch), KVT_OK);
    model_check(&model, index);
    index->ops->close(index);
    index = lmdb_open();
    model_check(&model, index);
    index->ops->close(index);
}

static enum kvt_status
space_untold(struct fs_dir *other, uint64_t *free_bytes_out)
{
    (void)other;
    (void)free_bytes_out;
    return failure_set(KVT_E_UNSUPPORTED, 0, "the disk does not say what it has");
}

static uint64_t quota_bytes; /* Of the file. */

static enum kvt_status
write_within_quota(struct fs_file *file, const void *source, size_t size, uint64_t offset)
{
    if (offset + size > quota_bytes)
        return failure_errno(EDQUOT, "Cannot write", "data.mdb");
    return env.fs->write_at(file, source, size, offset);
}

/* What the disk refuses it had not said before: of a quota, of a limit of the process's, of others
 * who were there first. What was written in vain is given back. */
static void
a_growth_that_is_refused_part_way_is_tried_by_less(void **state)
{
    static const uint64_t mib = 1 << 20;

    (void)state;
    for (int by_limit = 0; by_limit < 2; by_limit++) {
        struct kvt_env full = env;
        struct fs_ops ops = *env.fs;
        const enum kvt_status refused = by_limit ? KVT_E_IO : KVT_E_NOSPC;
        struct index_stats stats;
        struct fs_file *file;
        struct index *index;
        uint64_t size = 0;

        memset(&model, 0, sizeof(model));
        ops.dir_space = space_untold;
        if (!by_limit)
            ops.write_at = write_within_quota;
        full.fs = &ops;
        quota_bytes = 30 * mib;
        assert_int_equal(index_lmdb_ops.create(NULL, &full, dir, 16 * mib, &index), KVT_OK);
        assert_int_equal(index_lmdb_ops.install(index), KVT_OK);
        assert_int_equal(index_lmdb_ops.mark(index, false), KVT_OK);
        batch_make(1);
        assert_int_equal(index->ops->commit(index, &batch.batch), KVT_OK);
        if (by_limit)
            writes_limit(quota_bytes);
        assert_int_equal(index->ops->grow(index, 31 * mib), refused);
        assert_int_equal(index->ops->grow(index, 0), KVT_OK); /* 16, 8. */
        index->ops->stats(index, &stats);
        assert_int_equal(stats.map_bytes, 24 * mib);
        assert_int_equal(index->ops->grow(index, 0), KVT_OK); /* 24, 12, 6. */
        assert_int_equal(index->ops->grow(index, 0), refused);
        index->ops->stats(index, &stats);
        assert_int_equal(stats.map_bytes, 30 * mib);
        assert_int_equal(env.fs->open(dir, "data.mdb", FS_READ_ONLY, &file), KVT_OK);
        assert_int_equal(env.fs->size(file, &size), KVT_OK);
        env.fs->close(file);
        assert_int_equal(size, 30 * mib);
        batch_make(2);
        assert_int_equal(index->ops->commit(index, &batch.batch), KVT_OK);
        writes_limit(UNLIMITED);
        model_check(&model, index);
        index->ops->close(index);
        assert_int_equal(lmdb_condition(), INDEX_UNCLEAN);
    }
}

static void
an_index_that_the_disk_does_not_have_is_not_begun(void **state)
{
    struct kvt_env full = env;
    struct fs_ops ops = *env.fs;
    struct index *index;

    (void)state;
    ops.dir_space = space_tell;
    ops.write_at = write_never;
    full.fs = &ops;
    space_bytes = MAP_BYTES / 2;
    assert_int_equal(index_lmdb_ops.create(NULL, &full, dir, MAP_BYTES, &index), KVT_E_NOSPC);
    assert_null(index);
    assert_false(scratch_exists(&scratch, "data.mdb.new"));
}

static void
an_index_that_cannot_be_made_leaves_no_file(void **state)
{
    struct index *index;

    (void)state;
    writes_limit(MAP_BYTES / 2);
    assert_int_equal(index_lmdb_ops.create(NULL, &env, dir, MAP_BYTES, &index), KVT_E_IO);
    writes_limit(UNLIMITED);
    assert_null(index);
    assert_false(scratch_exists(&scratch, "data.mdb.new"));
    writes_limit(0); /* Not even LMDB's first pages. */
    assert_int_equal(index_lmdb_ops.create(NULL, &env, dir, MAP_BYTES, &index), KVT_E_META);
    writes_limit(UNLIMITED);
    assert_null(index);
    assert_false(scratch_exists(&scratch, "data.mdb.new"));
    assert_int_equal(index_lmdb_ops.create(NULL, &env, dir, 4096, &index), KVT_E_INVAL);
    assert_int_equal(index_lmdb_ops.create(NULL, &env, dir, UINT64_MAX, &index), KVT_E_INVAL);
    assert_false(scratch_exists(&scratch, "data.mdb.new"));
}

/* LMDB writes the first pages itself. */
static void
an_index_that_finds_no_space_says_so(void **state)
{
    static const int errors[] = {ENOSPC, EDQUOT};
    struct index *index;

    (void)state;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        pwrite_error = errors[i];
        assert_int_equal(index_lmdb_ops.create(NULL, &env, dir, MAP_BYTES, &index), KVT_E_NOSPC);
        pwrite_error = 0;
        assert_null(index);
        assert_int_equal(failure_last()->foreign_code, errors[i]);
        assert_non_null(strstr(failure_last()->text, strerror(errors[i])));
        assert_false(scratch_exists(&scratch, "data.mdb.new"));
    }
}

static void
a_file_that_is_no_index_is_damaged(void **state)
{
    static uint8_t bytes[3 * PAGE_BYTES];
    const size_t sizes[] = {0, 1, 100, PAGE_BYTES, 2 * PAGE_BYTES, sizeof(bytes)};

    (void)state;
    for (uint32_t fill = 0; fill < 2; fill++) {
        memset(bytes, fill == 0 ? 0 : 0xA5, sizeof(bytes));
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            struct index *index;

            scratch_write(&scratch, "data.mdb", bytes, sizes[i]);
            failure_clear();
            assert_int_equal(lmdb_condition(), INDEX_DAMAGED);
            assert_int_equal(failure_last()->status, KVT_E_CORRUPT);
            assert_int_equal(index_lmdb_ops.open(NULL, &env, dir, false, &index), KVT_E_CORRUPT);
            assert_null(index);
        }
    }
}

static void
a_damaged_index_is_replaced_by_a_new_one(void **state)
{
    struct index *index;

    (void)state;
    scratch_write(&scratch, "data.mdb", "garbage", 7);
    assert_int_equal(lmdb_condition(), INDEX_DAMAGED);
    index = lmdb_make();
    batch_make(1);
    assert_int_equal(index->ops->commit(index, &batch.batch), KVT_OK);
    index->ops->close(index);
    assert_int_equal(lmdb_condition(), INDEX_UNCLEAN);
    assert_false(scratch_exists(&scratch, "data.mdb.new"));
}

/* --- 2. The in-memory index ------------------------------------------------------------------- */

static struct index *
mem_make(struct index_disk **disk_out)
{
    struct index *index;

    assert_int_equal(index_disk_create(&env, disk_out), KVT_OK);
    assert_int_equal(index_mem_ops.create(*disk_out, &env, dir, MAP_BYTES, &index), KVT_OK);
    assert_int_equal(index_mem_ops.install(index), KVT_OK);
    return index;
}

static struct index *
mem_reopen(struct index_disk *disk, struct index *index)
{
    struct index *opened;

    index_mem_ops.close(index);
    assert_int_equal(index_mem_ops.open(disk, &env, dir, false, &opened), KVT_OK);
    return opened;
}

static void
a_power_cut_keeps_all_or_nothing_of_a_commit(void **state)
{
    (void)state;
    for (int applied = 0; applied < 2; applied++) {
        struct index_disk *disk;
        struct index *index = mem_make(&disk);

        memset(&model, 0, sizeof(model));
        batch_make(1);
        assert_int_equal(index->ops->commit(index, &batch.batch), KVT_OK);
        index_disk_power_cut(disk, false); /* Nothing is running: nothing is lost. */
        model_check(&model, index);
        batch_make(2);
        index_disk_fail(disk, 1, KVT_E_META);
        assert_int_equal(index->ops->commit(index, &batch.batch), KVT_E_META);
        assert_int_equal(index->ops->mark(index, true), KVT_E_META);
        index_disk_power_cut(disk, applied == 1);
        if (applied == 0)
            model = model_before;
        index = mem_reopen(disk, index);
        model_check(&model, index);
        index->ops->close(index);
        index_disk_destroy(disk);
    }
}

static void
the_nth_commit_fails_as_it_was_asked(void **state)
{
    struct index_disk *disk;
    struct index *index = mem_make(&disk);

    (void)state;
    index_disk_fail(disk, 3, KVT_E_NOSPC);
    for (uint64_t i = 1; i <= 4; i++) {
        batch_make(i);
        assert_int_equal(index->ops->commit(index, &batch.batch), i == 3 ? KVT_E_NOSPC : KVT_OK);
        if (i == 3)
            model = model_before;
        model_check(&model, index);
    }
    /* Without a power cut a failed commit is gone at the next open. */
    batch_make(5);
    index_disk_fail(disk, 1, KVT_E_META);
    assert_int_equal(index->ops->commit(index, &batch.batch), KVT_E_META);
    model = model_before;
    index = mem_reopen(disk, index);
    index_disk_power_cut(disk, true);
    model_check(&model, index);
    index->ops->close(index);
    index_disk_destroy(disk);
}

/* Whatever is refused, or fails, behind it: how much of both does a power cut keep? */
static void
a_deferred_commit_is_lost_behind_one_that_is_refused_or_fails(void **state)
{
    static const struct index_batch nothing = {0};
    enum {
        FULL,
        FAILING,
        SYNC,
        KINDS
    };

    (void)state;
    for (uint32_t i = 0; i < KINDS * 3; i++) {
        uint32_t kind = i / 3, kept_count = i % 3;
        struct index_disk *disk;
        struct index *index = mem_make(&disk);
        enum kvt_status status;

        memset(&model, 0, sizeof(model));
        batch_make(1);
        assert_int_equal(index->ops->commit_deferred(index, &batch.batch), KVT_OK);
        index_disk_fail(disk, 1, kind == FULL ? KVT_E_NOSPC : KVT_E_META);
        status = kind == SYNC ? index->ops->sync(index) : index->ops->commit(index, &nothing);
        assert_int_equal(status, kind == FULL ? KVT_E_NOSPC : KVT_E_META);
        if (kind != FULL)
            assert_int_equal(index->ops->sync(index), KVT_E_META);
        index_disk_power_cut(disk, kept_count);
        if (kept_count == 0)
            model = model_before;
        index = mem_reopen(disk, index);
        model_check(&model, index);
        index->ops->close(index);
        index_disk_destroy(disk);
    }
}

/* --- 3. Commits that grow the map ------------------------------------------------------------- */

static struct {
    uint32_t growths_wanted; /* The commit fits when the map has grown so often. */
    uint32_t growths_left;   /* Then the disk is full. */
    uint32_t growth_count;
} fake;

static enum kvt_status
fake_commit(struct index *index, const struct index_batch *wanted)
{
    (void)index;
    (void)wanted;
    return fake.growth_count < fake.growths_wanted ? KVT_E_NOSPC : KVT_OK;
}

static enum kvt_status
fake_grow(struct index *index, uint64_t map_bytes)
{
    (void)index;
    (void)map_bytes;
    if (fake.growths_left == 0)
        return failure_set(KVT_E_NOSPC, 0, "the disk is full on purpose");
    fake.growths_left--;
    fake.growth_count++;
    return KVT_OK;
}

static enum kvt_status
fake_run(uint32_t growths_wanted, uint32_t growths_left)
{
    static const struct index_ops ops = {.commit = fake_commit, .grow = fake_grow};
    struct index index = {.ops = &ops};

    fake.growths_wanted = growths_wanted;
    fake.growths_left = growths_left;
    fake.growth_count = 0;
    return index_commit_growing(&index, &batch.batch);
}

/* On a disk that is nearly full a growth may be too small for a commit. */
static void
a_commit_lets_the_map_grow_until_it_fits(void **state)
{
    (void)state;
    assert_int_equal(fake_run(0, 0), KVT_OK);
    assert_int_equal(fake_run(1, 1), KVT_OK);
    assert_int_equal(fake_run(3, 3), KVT_OK);
    assert_int_equal(fake_run(3, 2), KVT_E_NOSPC);
    assert_int_equal(fake_run(UINT32_MAX, UINT32_MAX), KVT_E_META); /* It never does. */
    assert_in_range(fake.growth_count, 3, 100);
}

int
main(void)
{
#define CHECK(name) cmocka_unit_test_setup_teardown(name, dir_make, dir_remove)
    const struct CMUnitTest tests[] = {
        CHECK(no_commit_is_tried_after_one_failed),
        CHECK(a_file_that_cannot_be_read_is_not_walked_through_its_map),
        CHECK(a_map_that_cannot_grow_stays_as_it_is),
        CHECK(a_map_grows_without_a_descriptor_and_without_memory),
        CHECK(a_map_on_a_full_disk_grows_by_less),
        CHECK(a_growth_that_is_refused_part_way_is_tried_by_less),
        CHECK(an_index_that_the_disk_does_not_have_is_not_begun),
        CHECK(an_index_that_cannot_be_made_leaves_no_file),
        CHECK(an_index_that_finds_no_space_says_so),
        CHECK(a_file_that_is_no_index_is_damaged),
        CHECK(a_damaged_index_is_replaced_by_a_new_one),
        CHECK(a_power_cut_keeps_all_or_nothing_of_a_commit),
        CHECK(the_nth_commit_fails_as_it_was_asked),
        CHECK(a_deferred_commit_is_lost_behind_one_that_is_refused_or_fails),
        CHECK(a_commit_lets_the_map_grow_until_it_fits),
    };
#undef CHECK

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
