/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_nvme_lock.c - the lock of a data file, as the NVME tier takes it and gives it back.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "failure.h"
#include "tier_rig.h"

static struct tier_rig rig;
static struct fs_ops fs_ops; /* The host's, some functions replaced. */
static const struct fs_ops *host_fs;
static uint32_t fork_count; /* So many locks are crossed by a fork. */
static enum kvt_status lock_status;

static void
rig_make(uint32_t root_count)
{
    rig_init(&rig, TIER_KIND_NVME_THREADS, root_count, 2);
    host_fs = rig.env.fs;
    fs_ops = *host_fs;
    rig.env.fs = &fs_ops;
}

/* Whether the lock of the first data file can be had. 0, or the error. */
static int
lock_error(void)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = open(scratch_path(&rig.scratch, "root0/data.00"), O_RDWR | O_CLOEXEC);
    int error = fd < 0 || fcntl(fd, F_OFD_SETLK, &lock) != 0 ? errno : 0;

    (void)close(fd);
    return error;
}

static enum kvt_status
lock_between_forks(struct fs_file *file, uint64_t timeout_ns)
{
    if (fork_count > 0) {
        fork_count--;
        return failure_set(KVT_E_BUSY, 0, "the process forks on purpose");
    }
    return host_fs->lock(file, timeout_ns);
}

static void
a_file_is_locked_however_often_the_process_forks(void **state)
{
    (void)state;
    rig_make(1);
    fs_ops.lock = lock_between_forks;
    for (int i = 0; i < 2; i++) { /* A file that is made, and one that is there. */
        fork_count = 500;
        assert_int_equal(rig_open(&rig), KVT_OK);
        assert_int_equal(fork_count, 0);
        assert_int_equal(lock_error(), EAGAIN);
        rig_close(&rig);
        assert_int_equal(lock_error(), 0);
    }
    rig_deinit(&rig);
}

static enum kvt_status
lock_refused(struct fs_file *file, uint64_t timeout_ns)
{
    (void)file;
    assert_in_range(timeout_ns, (uint64_t)29 * 1000000000, (uint64_t)30 * 1000000000);
    return failure_set(lock_status, 0, "the lock is refused on purpose");
}

static void
a_file_system_without_locks_is_used_without(void **state)
{
    (void)state;
    rig_make(1);
    fs_ops.lock = lock_refused;
    lock_status = KVT_E_UNSUPPORTED;
    assert_int_equal(rig_open(&rig), KVT_OK);
    rig_close(&rig);
    lock_status = KVT_E_PERMISSION; /* A security module says no. */
    assert_int_equal(rig_open(&rig), KVT_OK);
    rig_close(&rig);
    lock_status = KVT_E_IO;
    assert_int_equal(rig_open(&rig), KVT_E_IO);
    assert_non_null(strstr(failure_last()->text, "refused on purpose"));
    rig_deinit(&rig);
}

static bool
has_none(const struct fs_dir *dir)
{
    (void)dir;
    return false;
}

/* A server or a daemon, which may keep the lock of an owner that was killed. */
static void
locks_of_others_are_not_taken(void **state)
{
    (void)state;
    rig_make(1);
    fs_ops.dir_has_locks = has_none;
    assert_int_equal(rig_open(&rig), KVT_OK);
    assert_int_equal(lock_error(), 0);
    rig_deinit(&rig);
}

static enum kvt_status
read_refused(struct fs_file *file, void *target, size_t size, uint64_t offset, size_t *read_out)
{
    if (host_fs->is_direct(file))
        return failure_set(KVT_E_INVAL, EINVAL, "direct reads are refused on purpose");
    return host_fs->read_at(file, target, size, offset, read_out);
}

/* The file is opened twice: what is written goes through the second description. */
static void
a_file_without_direct_reads_is_locked(void **state)
{
    (void)state;
    rig_make(1);
    fs_ops.read_at = read_refused;
    assert_int_equal(rig_open(&rig), KVT_OK);
    assert_int_equal(lock_error(), EAGAIN);
    rig_deinit(&rig);
}

static void
an_open_that_is_refused_gives_the_lock_back(void **state)
{
    (void)state;
    rig_make(2);
    assert_int_equal(rig_open(&rig), KVT_OK);
    rig_close(&rig);
    scratch_unlink(&rig.scratch, "root1/data.00");
    rig.options.was_made[1] = true;
    assert_int_equal(rig_open(&rig), KVT_E_IO);
    assert_int_equal(lock_error(), 0);
    rig_deinit(&rig);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_locked_however_often_the_process_forks),
        cmocka_unit_test(a_file_system_without_locks_is_used_without),
        cmocka_unit_test(locks_of_others_are_not_taken),
        cmocka_unit_test(a_file_without_direct_reads_is_locked),
        cmocka_unit_test(an_open_that_is_refused_gives_the_lock_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
