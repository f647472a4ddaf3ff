/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_data_lock.c - the lock of a data file: an open waits for what a killed owner has in flight.
 *
 * Transfers in flight hold the description that they go through, and with it the lock. A child
 * process that has that lock stands for them: how long real ones take, nobody can say.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "env.h"
#include "sim_store.h"
#include "store_kit.h"

static struct {
    char dir[KIT_PATH_BYTES];
    char path[KIT_PATH_BYTES + 8];
    char data[KIT_PATH_BYTES + 32];
    struct kvt_options options;
} real;

static int
real_make(void **state)
{
    kvt_store *store = NULL;

    (void)state;
    kit_dir_make(real.dir);
    (void)snprintf(real.path, sizeof(real.path), "%s/store", real.dir);
    (void)snprintf(real.data, sizeof(real.data), "%s/data/data.00", real.path);
    real.options = kit_options();
    return kvt_open(real.path, &real.options, &store) == KVT_OK ? kvt_close(store) : -1;
}

static int
real_remove(void **state)
{
    (void)state;
    kit_dir_remove(real.dir);
    return 0;
}

/* Whether the lock of the data file can be had, F_RDLCK or F_WRLCK. 0, or the error. */
static int
lock_error(short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET};
    int fd = open(real.data, O_RDWR | O_CLOEXEC);
    int error = fd < 0 || fcntl(fd, F_OFD_SETLK, &lock) != 0 ? errno : 0;

    (void)close(fd);
    return error;
}

/* --- Between processes ------------------------------------------------------------------------ */

/* Has the lock a while, and writes a byte just before it goes: the last of its writes. */
static int
late_writer_main(int ready, volatile char *written)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = open(real.data, O_RDWR | O_CLOEXEC);
    char byte = 1;

    if (fd < 0 || fcntl(fd, F_OFD_SETLK, &lock) != 0 || write(ready, &byte, 1) != 1)
        return 1;
    (void)usleep(300000);
    *written = 1;
    return 0;
}

static void
an_open_waits_until_the_last_write_of_a_dead_owner_has_ended(void **state)
{
    static const uint32_t flags[] = {0, KVT_OPEN_READ_ONLY};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct kvt_options options = real.options;
        volatile char *written =
            mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        kvt_store *store = NULL;
        int ready[2], status;
        pid_t child;
        char byte;

        assert_ptr_not_equal(written, MAP_FAILED);
        assert_int_equal(pipe(ready), 0);
        child = fork();
        if (child == 0)
            (void)syscall(SYS_exit_group, late_writer_main(ready[1], written));
        (void)close(ready[1]);
        assert_int_equal(read(ready[0], &byte, 1), 1);
        options.flags |= flags[i];
        assert_int_equal(kvt_open(real.path, &options, &store), KVT_OK);
        assert_int_equal(*written, 1);
        assert_int_equal(kvt_close(store), KVT_OK);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        (void)close(ready[0]);
        (void)munmap((void *)written, 4096);
    }
}

static void
a_store_that_is_open_has_its_data_file_locked(void **state)
{
    struct kvt_options options = real.options;
    kvt_store *store = NULL;

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kvt_open(real.path, &real.options, &store), KVT_OK);
        assert_int_equal(lock_error(F_RDLCK), EAGAIN);
        if (i == 0)
            assert_int_equal(kvt_close(store), KVT_OK);
        else
            kvt_abort(store);
        assert_int_equal(lock_error(F_WRLCK), 0);
    }
    options.flags |= KVT_OPEN_READ_ONLY;
    assert_int_equal(kvt_open(real.path, &options, &store), KVT_OK);
    assert_int_equal(lock_error(F_RDLCK), 0);
    assert_int_equal(lock_error(F_WRLCK), EAGAIN);
    assert_int_equal(kvt_close(store), KVT_OK);
    assert_int_equal(lock_error(F_WRLCK), 0);
}

/* --- Children that live on -------------------------------------------------------------------- */

/* A child of the calling process that lives until `hold` is closed everywhere, and writes a byte
 * when it runs: until then it has what its parent has. */
static pid_t
survivor_start(const int hold[2], int ready)
{
    pid_t child = fork();
    char byte = 1;

    if (child == 0) {
        (void)close(hold[1]);
        if (write(ready, &byte, 1) != 1)
            (void)syscall(SYS_exit_group, 2);
        (void)syscall(SYS_exit_group, read(hold[0], &byte, 1) == 0 ? 0 : 1);
    }
    return child;
}

static void
a_child_that_lives_on_does_not_keep_it_behind_a_close(void **state)
{
    kvt_store *store = NULL;
    int hold[2], ready[2], status;
    pid_t child;
    char byte;

    (void)state;
    assert_int_equal(pipe(hold), 0);
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(kvt_open(real.path, &real.options, &store), KVT_OK);
    child = survivor_start(hold, ready[1]);
    assert_true(child > 0);
    (void)close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(lock_error(F_WRLCK), EAGAIN);
    assert_int_equal(kvt_close(store), KVT_OK);
    assert_int_equal(lock_error(F_WRLCK), 0);
    (void)close(hold[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    (void)close(hold[0]);
    (void)close(ready[0]);
}

/* Opens the store, has a child, and lives until it is killed. */
static int
owner_main(const int hold[2], int ready)
{
    kvt_store *store = NULL;

    (void)alarm(100); /* Should the test fail, nobody would kill us. */
    if (kvt_open(real.path, &real.options, &store) != KVT_OK || survivor_start(hold, ready) < 0)
        return 1;
    for (;;)
        (void)pause();
}

static void
a_child_that_lives_on_does_not_keep_it_when_its_owner_is_killed(void **state)
{
    kvt_store *store = NULL;
    int hold[2], ready[2], status;
    pid_t owner;
    char byte;

    (void)state;
    assert_int_equal(pipe(hold), 0);
    assert_int_equal(pipe(ready), 0);
    owner = fork();
    if (owner == 0)
        (void)syscall(SYS_exit_group, owner_main(hold, ready[1]));
    assert_true(owner > 0);
    (void)close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(lock_error(F_WRLCK), EAGAIN);
    assert_int_equal(kill(owner, SIGKILL), 0);
    assert_int_equal(waitpid(owner, &status, 0), owner);
    /* The owner's child lives still: it waits for the end of `hold`, which is open here. */
    assert_int_equal(kvt_open(real.path, &real.options, &store), KVT_OK);
    kit_works(store);
    (void)close(hold[0]);
    (void)close(hold[1]);
    (void)close(ready[0]);
}

/* --- In a simulated world --------------------------------------------------------------------- */

static struct sim_store sim;

/* A store that is closed, and whose data file somebody else has. */
static struct fs_file *
sim_locked(void)
{
    const struct kvt_options options = kit_options();
    struct fs_file *file = NULL;
    struct fs_dir *dir = NULL;

    sim_store_open(&sim, &options);
    assert_int_equal(kvt_close(sim.store), KVT_OK);
    assert_int_equal(sim.env.fs->dir_open(sim.env.fs_context, "/store/data", 0, &dir), KVT_OK);
    assert_int_equal(sim.env.fs->open(dir, "data.00", 0, &file), KVT_OK);
    assert_int_equal(sim.env.fs->lock(file, 0), KVT_OK);
    sim.env.fs->dir_close(dir);
    return file;
}

static void
an_open_gives_up_after_half_a_minute_and_says_why(void **state)
{
    struct fs_file *file = sim_locked();
    uint64_t begin_ns = sim_now(sim.world);
    const uint64_t patience_ns = (uint64_t)30 * 1000000000;

    (void)state;
    refused(store_open_in(&sim.store_world, "/store", &sim.options, &sim.store), KVT_E_LOCKED,
        "data/data.00 is locked: writes of an owner that was killed may still be on their way");
    assert_in_range(sim_now(sim.world) - begin_ns, patience_ns, patience_ns + 500000000);
    /* It has given LOCK back. */
    sim.env.fs->close(file);
    sim_store_reopen(&sim);
    sim_store_close(&sim);
}

struct late {
    struct fs_file *file;
    uint64_t end_ns;
};

static bool
late_step(void *context, uint64_t now_ns, uint64_t *next_ns_out)
{
    struct late *late = context;

    *next_ns_out = late->file == NULL ? UINT64_MAX : late->end_ns;
    if (late->file == NULL || now_ns < late->end_ns)
        return false;
    sim.env.fs->close(late->file);
    late->file = NULL;
    return true;
}

static void
an_open_goes_on_when_the_last_write_has_ended(void **state)
{
    struct late late = {.file = sim_locked()};
    const struct actor actor = {.name = "late", .step = late_step, .context = &late};
    struct task *task = NULL;

    (void)state;
    late.end_ns = sim_now(sim.world) + (uint64_t)29 * 1000000000;
    assert_int_equal(sim.env.sched->start(sim.env.sched_context, &actor, &task), KVT_OK);
    sim_store_reopen(&sim);
    assert_null(late.file);
    assert_in_range(sim_now(sim.world), late.end_ns, late.end_ns + 500000000);
    sim.env.sched->stop(sim.env.sched_context, task);
    sim_store_close(&sim);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_open_waits_until_the_last_write_of_a_dead_owner_has_ended),
        cmocka_unit_test(a_store_that_is_open_has_its_data_file_locked),
        cmocka_unit_test(a_child_that_lives_on_does_not_keep_it_behind_a_close),
        cmocka_unit_test(a_child_that_lives_on_does_not_keep_it_when_its_owner_is_killed),
        cmocka_unit_test(an_open_gives_up_after_half_a_minute_and_says_why),
        cmocka_unit_test(an_open_goes_on_when_the_last_write_has_ended),
    };

    return cmocka_run_group_tests(tests, real_make, real_remove);
}
