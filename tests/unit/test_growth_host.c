/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_growth_host.c - calls that may make a file longer: beyond the process's limit they fail and
 * nobody is killed; signals do not keep an allocation from its end.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "growth_host.h"
#include "scratch_dir.h"

enum {
    LIMIT = 65536,
    MIB = 1 << 20,
    CALLS_MAX = 16,
};

static struct scratch_dir scratch;
static int file;

/* As on a tmpfs under a timer: a call for more than this ends with EINTR, and is undone. 0: none
 * does. A smaller one does every other time. None is made after CALLS_MAX. */
static off_t patience;
static unsigned call_count;

/* In the place of the C library's. */
int
fallocate(int descriptor, int mode, off_t offset, off_t size)
{
    call_count++;
    if (call_count > CALLS_MAX) {
        errno = EIO;
        return -1;
    }
    if (patience != 0 && (size > patience || call_count % 2 == 0)) {
        errno = EINTR;
        return -1;
    }
    return (int)syscall(SYS_fallocate, descriptor, mode, offset, size);
}

static int
setup(void **state)
{
    (void)state;
    scratch_dir_make(&scratch);
    file = open(scratch_path(&scratch, "file"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    patience = 0;
    call_count = 0;
    return file < 0 ? -1 : 0;
}

static int
teardown(void **state)
{
    (void)state;
    (void)close(file);
    scratch_dir_remove(&scratch);
    return 0;
}

/* --- 1. The limit ----------------------------------------------------------------------------- */

/* Each of the calls, beyond the limit, with the signal's own effect. */
static void
calls_fail_beyond_the_limit(void)
{
    struct rlimit before, limit;
    int errors[3] = {0};

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = LIMIT;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    errors[0] = growth_write(file, "x", 1, LIMIT) < 0 ? errno : 0;
    errors[1] = growth_truncate(file, LIMIT + 1) < 0 ? errno : 0;
    errors[2] = growth_allocate(file, 0, LIMIT + 1) < 0 ? errno : 0;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(errors[i], EFBIG);
}

static bool
is_pending(void)
{
    sigset_t pending;

    assert_int_equal(sigpending(&pending), 0);
    return sigismember(&pending, SIGXFSZ) == 1;
}

static void
what_is_beyond_the_limit_is_an_error_and_no_signal(void **state)
{
    sigset_t mask;

    (void)state;
    calls_fail_beyond_the_limit();
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
    assert_int_equal(sigismember(&mask, SIGXFSZ), 0);
}

static void
signal_that_the_host_has_blocked_stays_as_it_was(void **state)
{
    sigset_t set, before, mask;
    int number;

    (void)state;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGXFSZ);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &set, &before), 0);
    calls_fail_beyond_the_limit();
    assert_false(is_pending());
    assert_int_equal(raise(SIGXFSZ), 0);
    calls_fail_beyond_the_limit();
    assert_true(is_pending());
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
    assert_int_equal(sigismember(&mask, SIGXFSZ), 1);
    assert_int_equal(sigwait(&set, &number), 0);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
}

/* --- 2. Signals during an allocation ---------------------------------------------------------- */

static void
assert_file_has(off_t size)
{
    struct stat facts;

    assert_int_equal(fstat(file, &facts), 0);
    assert_int_equal(facts.st_size, size);
    assert_true(facts.st_blocks * 512 >= size);
}

static void
allocation_that_nothing_disturbs_is_one_call(void **state)
{
    (void)state;
    assert_int_equal(growth_allocate(file, 0, 9 * MIB), 0);
    assert_int_equal(call_count, 1);
    assert_file_has(9 * MIB);
}

static void
allocation_that_signals_disturb_goes_on_piece_by_piece(void **state)
{
    (void)state;
    patience = 2 * MIB;
    assert_int_equal(growth_allocate(file, 0, 8 * MIB), 0);
    assert_file_has(8 * MIB);
    assert_int_equal(growth_allocate(file, 8 * MIB, 3 * MIB + 4096), 0);
    assert_file_has(11 * MIB + 4096);
}

int
main(void)
{
#define CHECK(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CHECK(what_is_beyond_the_limit_is_an_error_and_no_signal),
        CHECK(signal_that_the_host_has_blocked_stays_as_it_was),
        CHECK(allocation_that_nothing_disturbs_is_one_call),
        CHECK(allocation_that_signals_disturb_goes_on_piece_by_piece),
    };
#undef CHECK

    return cmocka_run_group_tests(tests, NULL, NULL);
}
