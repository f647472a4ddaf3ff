/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_store_file.c - STORE.a and STORE.b: round trip, the rule of two copies, versions and bounds;
 * the owner's lock.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "bytes.h"
#include "failure.h"
#include "rng.h"
#include "scratch_dir.h"
#include "stop_on_proof.h"
#include "store_file.h"

struct fixture {
    struct kvt_env env;
    struct fs_ops fs; /* The host's, some functions replaced. */
    struct scratch_dir scratch;
    struct fs_dir *dir;
};

static const struct fs_ops *host_fs;

static void
fixture_open(struct fixture *fixture)
{
    env_host(&fixture->env);
    host_fs = fixture->env.fs;
    fixture->fs = *host_fs;
    fixture->env.fs = &fixture->fs;
    scratch_dir_make(&fixture->scratch);
    assert_int_equal(
        fixture->fs.dir_open(fixture->env.fs_context, fixture->scratch.path, 0, &fixture->dir),
        KVT_OK);
}

static void
fixture_close(struct fixture *fixture)
{
    fixture->fs.dir_close(fixture->dir);
    scratch_dir_remove(&fixture->scratch);
}

static struct store_file
file_make(void)
{
    struct store_file file = {
        .uuid = {9, 8, 7},
        .secret = {1, 2, 3, [31] = 5},
        .version_major = 1,
        .created_ns = 1234567890123456789u,
        .open_epoch = 1,
        .segment_pages = 65536,
        .block_bytes_max = 2 << 20,
        .map_bytes = 1 << 30,
        .root_count = 2,
        .root_bytes = {1ull << 40, 77},
        .root_paths = {"/mnt/first", "/mnt/second"},
    };

    return file;
}

static enum kvt_status
read_back(struct fixture *fixture, struct store_file *file)
{
    bool unwritable = true;
    enum kvt_status status = store_file_read(&fixture->env, fixture->dir, file, &unwritable);

    if (status == KVT_OK)
        assert_false(unwritable);
    return status;
}

/* A store whose copies have sequences 4 (STORE.b, epoch 2) and 5 (STORE.a, epoch 3): the third
 * write was cut between them. */
static void
third_write_cut(struct fixture *fixture)
{
    struct store_file file = file_make();
    uint8_t older[4096];

    for (uint32_t epoch = 1; epoch <= 3; epoch++) {
        if (epoch == 3)
            scratch_read(&fixture->scratch, "STORE.b", older, sizeof(older));
        file.open_epoch = epoch;
        assert_int_equal(store_file_write(&fixture->env, fixture->dir, &file), KVT_OK);
        assert_int_equal(file.sequence, 2 * epoch);
    }
    scratch_write(&fixture->scratch, "STORE.b", older, sizeof(older));
}

/* --- Round trip ------------------------------------------------------------------------------- */

static void
what_was_written_is_read(void **state)
{
    struct fixture fixture;
    struct store_file file = file_make();
    struct store_file read;

    (void)state;
    fixture_open(&fixture);
    assert_int_equal(read_back(&fixture, &read), KVT_MISS);
    for (uint32_t epoch = 1; epoch < 6; epoch++) {
        file.open_epoch = epoch;
        assert_int_equal(store_file_write(&fixture.env, fixture.dir, &file), KVT_OK);
        memset(&read, 0xAA, sizeof(read));
        assert_int_equal(read_back(&fixture, &read), KVT_OK);
        assert_int_equal(read.sequence, 2 * epoch);
        assert_memory_equal(read.uuid, file.uuid, sizeof(file.uuid));
        assert_memory_equal(read.secret, file.secret, sizeof(file.secret));
        assert_int_equal(read.version_major, 1);
        assert_int_equal(read.version_minor, 1);
        assert_int_equal(read.created_ns, file.created_ns);
        assert_int_equal(read.open_epoch, epoch);
        assert_int_equal(read.segment_pages, file.segment_pages);
        assert_int_equal(read.block_bytes_max, file.block_bytes_max);
        assert_int_equal(read.map_bytes, file.map_bytes);
        assert_int_equal(read.root_count, 2);
        assert_memory_equal(read.root_bytes, file.root_bytes, sizeof(file.root_bytes));
        assert_memory_equal(read.root_paths, file.root_paths, sizeof(file.root_paths));
        file = read;
    }
    fixture_close(&fixture);
}

static void
fields_lie_where_the_format_says(void **state)
{
    struct fixture fixture;
    struct store_file file = file_make();
    uint8_t bytes[8192];

    (void)state;
    fixture_open(&fixture);
    assert_int_equal(store_file_write(&fixture.env, fixture.dir, &file), KVT_OK);
    assert_int_equal(scratch_read(&fixture.scratch, "STORE.a", bytes, sizeof(bytes)), 4096);
    assert_int_equal(get_u32(bytes), 0xA4D3C1E7);
    assert_int_equal(get_u32(bytes + 4), crc32c(0, bytes + 8, 4088));
    assert_int_equal(get_u64(bytes + 8), 1);
    assert_int_equal(get_u16(bytes + 16), 1);
    assert_memory_equal(bytes + 40, file.uuid, 16);
    assert_memory_equal(bytes + 56, file.secret, 32);
    assert_int_equal(get_u64(bytes + 88), file.created_ns);
    assert_int_equal(get_u32(bytes + 96), 1);
    assert_int_equal(get_u32(bytes + 100), 65536);
    assert_int_equal(get_u64(bytes + 104), 2 << 20);
    assert_int_equal(get_u64(bytes + 112), 1 << 30);
    assert_int_equal(get_u32(bytes + 120), 2);
    assert_int_equal(get_u64(bytes + 136), 77);
    assert_string_equal((char *)bytes + 192 + 400, "/mnt/second");
    assert_true(bytes_are_zero(bytes + 3392, 704));
    fixture_close(&fixture);
}

/* --- Two copies ------------------------------------------------------------------------------- */

static void
either_copy_has_what_was_written(void **state)
{
    struct fixture fixture;
    struct store_file file = file_make();
    uint8_t bytes[4096];

    (void)state;
    fixture_open(&fixture);
    for (uint32_t epoch = 1; epoch <= 3; epoch++) {
        file.open_epoch = epoch;
        assert_int_equal(store_file_write(&fixture.env, fixture.dir, &file), KVT_OK);
        scratch_read(&fixture.scratch, "STORE.a", bytes, sizeof(bytes));
        assert_int_equal(get_u64(bytes + 8), 2 * epoch - 1);
        assert_int_equal(get_u32(bytes + 96), epoch);
        scratch_read(&fixture.scratch, "STORE.b", bytes, sizeof(bytes));
        assert_int_equal(get_u64(bytes + 8), 2 * epoch);
        assert_int_equal(get_u32(bytes + 96), epoch);
    }
    fixture_close(&fixture);
}

/* Any tear of the copy that was being written leaves the other, and an epoch that is not reused. */
static void
a_torn_write_of_either_copy_keeps_the_other(void **state)
{
    static const char *const names[2] = {"STORE.a", "STORE.b"};
    struct fixture fixture;
    uint8_t whole[4096];
    uint8_t torn[4096];
    struct store_file read;

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct rng rng = {.state = i};

        fixture_open(&fixture);
        third_write_cut(&fixture);
        scratch_read(&fixture.scratch, names[i], whole, sizeof(whole));
        for (size_t keep = 0; keep < 4096; keep += 37) {
            memcpy(torn, whole, keep);
            for (size_t k = keep; k < sizeof(torn); k++)
                torn[k] = (uint8_t)rng_next(&rng);
            scratch_write(&fixture.scratch, names[i], torn, keep % 2 == 0 ? sizeof(torn) : keep);
            assert_int_equal(read_back(&fixture, &read), KVT_OK);
            assert_int_equal(read.sequence, i == 0 ? 4 : 5);
            /* One more than the whole copy says: the other may have been the newer one. */
            assert_int_equal(read.open_epoch, i == 0 ? 3 : 4);
        }
        /* The next write repairs the damaged copy. */
        read.open_epoch++;
        assert_int_equal(store_file_write(&fixture.env, fixture.dir, &read), KVT_OK);
        assert_int_equal(read.sequence, i == 0 ? 6 : 7);
        scratch_read(&fixture.scratch, names[i], torn, sizeof(torn));
        assert_int_equal(get_u32(torn + 4), crc32c(0, torn + 8, 4088));
        assert_int_equal(get_u32(torn + 96), read.open_epoch);
        fixture_close(&fixture);
    }
}

static void
every_single_flipped_byte_is_noticed(void **state)
{
    struct fixture fixture;
    uint8_t bytes[4096];
    struct store_file read;

    (void)state;
    fixture_open(&fixture);
    third_write_cut(&fixture);
    scratch_read(&fixture.scratch, "STORE.a", bytes, sizeof(bytes));
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] ^= (uint8_t)(1u << i % 8);
        scratch_write(&fixture.scratch, "STORE.a", bytes, sizeof(bytes));
        assert_int_equal(read_back(&fixture, &read), KVT_OK);
        assert_int_equal(read.sequence, 4);
        bytes[i] ^= (uint8_t)(1u << i % 8);
    }
    fixture_close(&fixture);
}

static void
both_copies_damaged_are_refused_by_name(void **state)
{
    struct fixture fixture;
    struct store_file read;

    (void)state;
    fixture_open(&fixture);
    third_write_cut(&fixture);
    scratch_write(&fixture.scratch, "STORE.a", "short", 5);
    scratch_unlink(&fixture.scratch, "STORE.b");
    assert_int_equal(read_back(&fixture, &read), KVT_E_CORRUPT);
    assert_non_null(strstr(failure_last()->text, "STORE.a"));
    assert_non_null(strstr(failure_last()->text, "STORE.b"));
    assert_non_null(strstr(failure_last()->text, fixture.scratch.path));
    fixture_close(&fixture);
}

static bool fails_sync;
static bool fails_write;

static enum kvt_status
sync_failing(struct fs_file *file)
{
    if (fails_sync)
        return failure_set(KVT_E_IO, 5, "the sync fails on purpose");
    return host_fs->sync(file);
}

static enum kvt_status
write_failing(struct fs_file *file, const void *source, size_t size, uint64_t offset)
{
    if (fails_write) {
        /* Half of it arrives. */
        (void)host_fs->write_at(file, source, size / 2, offset);
        return failure_set(KVT_E_NOSPC, 28, "the write fails on purpose");
    }
    return host_fs->write_at(file, source, size, offset);
}

static void
a_failed_write_leaves_the_copy_that_counted(void **state)
{
    struct fixture fixture;
    struct store_file file, read;

    (void)state;
    fixture_open(&fixture);
    fixture.fs.sync = sync_failing;
    fixture.fs.write_at = write_failing;
    third_write_cut(&fixture);
    assert_int_equal(read_back(&fixture, &file), KVT_OK);

    for (uint32_t round = 0; round < 6; round++) {
        fails_write = round % 2 == 0;
        fails_sync = !fails_write;
        file.open_epoch = 50;
        assert_int_equal(store_file_write(&fixture.env, fixture.dir, &file),
            fails_write ? KVT_E_NOSPC : KVT_E_IO);
        assert_int_equal(file.sequence, 5);
        /* The copy with sequence 5 was not touched, whatever the failed ones look like. */
        scratch_unlink(&fixture.scratch, "STORE.b");
        assert_int_equal(read_back(&fixture, &read), KVT_OK);
        assert_int_equal(read.sequence, 5);
        assert_int_equal(read.open_epoch, 4); /* The one that is missing may have been the newer. */
    }
    fails_write = fails_sync = false;
    assert_int_equal(store_file_write(&fixture.env, fixture.dir, &file), KVT_OK);
    assert_int_equal(read_back(&fixture, &read), KVT_OK);
    assert_int_equal(read.open_epoch, 50);
    file.open_epoch = 0xFFFFFF; /* There is none behind it. */
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(store_file_write(&fixture.env, fixture.dir, &file), KVT_OK);
    scratch_unlink(&fixture.scratch, "STORE.b");
    assert_int_equal(read_back(&fixture, &read), KVT_OK);
    assert_int_equal(read.open_epoch, 0xFFFFFF);
    fixture_close(&fixture);
}

/* --- Versions and bounds ---------------------------------------------------------------------- */

/* A store of one copy, STORE.a, with one field as given and a CRC that is right. */
static enum kvt_status
forged_read(struct fixture *fixture, size_t at, uint64_t value, size_t width, bool *unwritable)
{
    struct store_file file = file_make();
    uint8_t bytes[4096];

    if (scratch_exists(&fixture->scratch, "STORE.a"))
        scratch_unlink(&fixture->scratch, "STORE.a");
    assert_int_equal(store_file_write(&fixture->env, fixture->dir, &file), KVT_OK);
    scratch_unlink(&fixture->scratch, "STORE.b");
    assert_int_equal(scratch_read(&fixture->scratch, "STORE.a", bytes, sizeof(bytes)), 4096);
    for (size_t i = 0; i < width; i++)
        bytes[at + i] = (uint8_t)(value >> 8 * i);
    put_u32(bytes + 4, crc32c(0, bytes + 8, 4088));
    scratch_write(&fixture->scratch, "STORE.a", bytes, sizeof(bytes));
    *unwritable = false;
    file = (struct store_file){0};
    return store_file_read(&fixture->env, fixture->dir, &file, unwritable);
}

static void
versions_and_features_decide_what_may_be_done(void **state)
{
    struct fixture fixture;
    bool unwritable;

    (void)state;
    fixture_open(&fixture);
    assert_int_equal(forged_read(&fixture, 16, 2, 2, &unwritable), KVT_E_FORMAT);
    assert_int_equal(forged_read(&fixture, 16, 0, 2, &unwritable), KVT_E_FORMAT);
    assert_int_equal(forged_read(&fixture, 18, 7, 2, &unwritable), KVT_OK);
    assert_false(unwritable);
    assert_int_equal(forged_read(&fixture, 24, 1ull << 40, 8, &unwritable), KVT_E_FORMAT);
    assert_int_equal(forged_read(&fixture, 32, STORE_FEATURE_PARTS, 8, &unwritable), KVT_OK);
    assert_false(unwritable);
    assert_int_equal(forged_read(&fixture, 32, STORE_FEATURE_PARTS | 2, 8, &unwritable), KVT_OK);
    assert_true(unwritable);
    fixture_close(&fixture);
}

static void
a_copy_out_of_bounds_is_damaged_whatever_its_crc(void **state)
{
    static const struct {
        size_t at;
        uint64_t value;
        size_t width;
    } forged[] = {
        {8, 0, 8},
        {8, UINT64_MAX, 8},
        {20, 1, 4},
        {96, 0, 4},
        {96, 1 << 24, 4},
        {100, 0, 4},
        {100, 128, 4},
        {100, 257, 4},
        {100, 1 << 19, 4},
        {104, 0, 8},
        {104, (64ull << 20) + 1, 8},
        {120, 0, 4},
        {120, 1, 4}, /* The second root has a path. */
        {120, 9, 4},
        {120, UINT32_MAX, 4},
        {124, 1, 4},
        {192 + 395, 0x4141414141, 5}, /* No zero at the end of the first path... */
        {192 + 200, 0x41, 1},         /* ... or something behind its zero. */
        {4095, 1, 1},
    };
    struct fixture fixture;
    bool unwritable;

    (void)state;
    fixture_open(&fixture);
    for (size_t i = 0; i < sizeof(forged) / sizeof(forged[0]); i++)
        assert_int_equal(
            forged_read(&fixture, forged[i].at, forged[i].value, forged[i].width, &unwritable),
            KVT_E_CORRUPT);
    fixture_close(&fixture);
}

static void
a_file_that_would_be_refused_is_not_written(void **state)
{
    struct fixture fixture;
    struct store_file file = file_make();

    (void)state;
    fixture_open(&fixture);
    file.segment_pages = 100;
    assert_int_equal(store_file_write(&fixture.env, fixture.dir, &file), KVT_E_INVAL);
    assert_false(scratch_exists(&fixture.scratch, "STORE.a"));
    fixture_close(&fixture);
}

/* --- The lock --------------------------------------------------------------------------------- */

static void
a_second_owner_is_refused_until_the_first_has_gone(void **state)
{
    struct fixture fixture;
    struct fs_file *first, *second;

    (void)state;
    fixture_open(&fixture);
    assert_int_equal(store_lock(&fixture.env, fixture.dir, false, &first), KVT_OK);
    assert_int_equal(store_lock(&fixture.env, fixture.dir, false, &second), KVT_E_LOCKED);
    assert_null(second);
    fixture.fs.close(first);
    assert_int_equal(store_lock(&fixture.env, fixture.dir, false, &second), KVT_OK);
    fixture.fs.close(second);
    fixture_close(&fixture);
}

static bool
is_there(struct fixture *fixture, const char *name)
{
    struct fs_file *file;
    enum kvt_status status = fixture->fs.open(fixture->dir, name, FS_READ_ONLY, &file);

    fixture->fs.close(file);
    return status == KVT_OK;
}

static void
who_only_reads_makes_no_lock_where_no_store_is(void **state)
{
    struct fixture fixture;
    struct fs_file *lock, *other;

    (void)state;
    fixture_open(&fixture);
    assert_int_equal(store_lock(&fixture.env, fixture.dir, true, &lock), KVT_MISS);
    assert_null(lock);
    assert_non_null(strstr(failure_last()->text, "there is no store"));
    assert_false(is_there(&fixture, "LOCK"));
    /* One that was restored, with one copy of two and without LOCK. */
    assert_int_equal(
        fixture.fs.open(fixture.dir, "STORE.b", FS_CREATE | FS_EXCLUSIVE, &other), KVT_OK);
    fixture.fs.close(other);
    assert_int_equal(store_lock(&fixture.env, fixture.dir, true, &lock), KVT_OK);
    assert_true(is_there(&fixture, "LOCK"));
    assert_int_equal(store_lock(&fixture.env, fixture.dir, false, &other), KVT_E_LOCKED);
    fixture.fs.close(lock);
    assert_int_equal(store_lock(&fixture.env, fixture.dir, true, &lock), KVT_OK);
    fixture.fs.close(lock);
    fixture_close(&fixture);
}

static enum kvt_status (*lock_below)(struct fs_file *, uint64_t);
static uint32_t fork_count;

static enum kvt_status
lock_between_forks(struct fs_file *file, uint64_t timeout_ns)
{
    if (fork_count > 0 && --fork_count > 0)
        return failure_set(KVT_E_BUSY, 0, "the process forks on purpose");
    return lock_below(file, timeout_ns);
}

static void
forks_of_the_process_do_not_keep_an_owner_out(void **state)
{
    struct fixture fixture;
    struct fs_file *lock;

    (void)state;
    fixture_open(&fixture);
    lock_below = fixture.fs.lock;
    fixture.fs.lock = lock_between_forks;
    fork_count = 5;
    assert_int_equal(store_lock(&fixture.env, fixture.dir, false, &lock), KVT_OK);
    assert_int_equal(fork_count, 0);
    fixture.fs.close(lock);
    fork_count = UINT32_MAX;
    assert_int_equal(store_lock(&fixture.env, fixture.dir, false, &lock), KVT_E_BUSY);
    assert_null(lock);
    fixture_close(&fixture);
}

static void
roots_grow_to_equal_shares_but_none_shrinks(void **state)
{
    struct store_file file = {
        .root_count = 3, .root_bytes = {30, 10, 20, 1}}; /* The last is none. */

    (void)state;
    assert_int_equal(store_file_capacity(&file), 60);
    for (uint64_t capacity = 60; capacity < 120; capacity++) {
        uint64_t sum = 0;

        for (uint32_t root = 0; root < 3; root++) {
            uint64_t bytes = store_file_grown(&file, capacity, root);

            assert_true(bytes >= file.root_bytes[root]);
            sum += bytes;
        }
        assert_in_range(sum, capacity - 2, capacity);
    }
    assert_int_equal(store_file_grown(&file, 65, 1), 15);
    assert_int_equal(store_file_grown(&file, 65, 2), 20);
    assert_int_equal(store_file_grown(&file, 80, 0), 30);
    assert_int_equal(store_file_grown(&file, 80, 1), 25);
    assert_int_equal(store_file_grown(&file, 80, 2), 25);
    assert_int_equal(store_file_grown(&file, 120, 0), 40);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(fields_lie_where_the_format_says),
        cmocka_unit_test(either_copy_has_what_was_written),
        cmocka_unit_test(a_torn_write_of_either_copy_keeps_the_other),
        cmocka_unit_test(every_single_flipped_byte_is_noticed),
        cmocka_unit_test(both_copies_damaged_are_refused_by_name),
        cmocka_unit_test(a_failed_write_leaves_the_copy_that_counted),
        cmocka_unit_test(versions_and_features_decide_what_may_be_done),
        cmocka_unit_test(a_copy_out_of_bounds_is_damaged_whatever_its_crc),
        cmocka_unit_test(a_file_that_would_be_refused_is_not_written),
        cmocka_unit_test(roots_grow_to_equal_shares_but_none_shrinks),
        cmocka_unit_test(a_second_owner_is_refused_until_the_first_has_gone),
        cmocka_unit_test(who_only_reads_makes_no_lock_where_no_store_is),
        cmocka_unit_test(forks_of_the_process_do_not_keep_an_owner_out),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
