/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lock.c - the owner's lock: between handles, between processes, and across fork.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "env.h"
#include "failure.h"

struct world {
    const struct fs_ops *fs;
    struct fs_dir *dir;
    char path[64];
};

static int
world_open(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    struct kvt_env env;

    if (world == NULL)
        return -1;
    env_host(&env);
    world->fs = env.fs;
    (void)snprintf(world->path, sizeof(world->path), "%s", "/tmp/kvt_test_lock_XXXXXX");
    if (mkdtemp(world->path) == NULL)
        return -1;
    *state = world;
    return world->fs->dir_open(NULL, world->path, 0, &world->dir) == KVT_OK ? 0 : -1;
}

static int
world_close(void **state)
{
    struct world *world = *state;

    (void)world->fs->unlink(world->dir, "LOCK");
    (void)world->fs->unlink(world->dir, "OTHER");
    world->fs->dir_close(world->dir);
    (void)rmdir(world->path);
    free(world);
    return 0;
}

static struct fs_file *
file_open(const struct world *world, const char *name)
{
    struct fs_file *file = NULL;

    return world->fs->open(world->dir, name, FS_CREATE, &file) == KVT_OK ? file : NULL;
}

static void
second_handle_of_one_process_is_refused_until_the_first_is_closed(void **state)
{
    struct world *world = *state;
    struct fs_file *first = file_open(world, "LOCK");
    struct fs_file *second = file_open(world, "LOCK");
    struct fs_file *other = file_open(world, "OTHER");

    assert_int_equal(world->fs->lock(first, 0), KVT_OK);
    assert_int_equal(world->fs->lock(first, 0), KVT_OK);
    assert_int_equal(world->fs->lock(second, 0), KVT_E_LOCKED);
    assert_int_equal(failure_last()->status, KVT_E_LOCKED);
    assert_non_null(strstr(failure_last()->text, "LOCK is locked"));
    assert_non_null(strstr(failure_last()->text, world->path));
    assert_int_equal(world->fs->lock(other, 0), KVT_OK);
    world->fs->close(first);
    assert_int_equal(world->fs->lock(second, 0), KVT_OK);
    world->fs->close(other);
    world->fs->close(second);
}

static void
refused_handle_that_is_closed_does_not_free_the_lock(void **state)
{
    struct world *world = *state;
    struct fs_file *first = file_open(world, "LOCK");
    struct fs_file *second = file_open(world, "LOCK");

    /* A plain POSIX lock would go here: it dies with any descriptor of the process. */
    assert_int_equal(world->fs->lock(first, 0), KVT_OK);
    assert_int_equal(world->fs->lock(second, 0), KVT_E_LOCKED);
    world->fs->close(second);
    second = file_open(world, "LOCK");
    assert_int_equal(world->fs->lock(second, 0), KVT_E_LOCKED);
    world->fs->close(second);
    world->fs->close(first);
}

/* A child process that runs `main` and exits with its result; returns its id. */
static pid_t
child_start(int (*main_of_child)(void *context), void *context)
{
    pid_t child = fork();

    if (child == 0) {
        /* Straight to the kernel: _exit() of a thread sanitizer would complain that the parent's
         * threads are missing here. */
        (void)syscall(SYS_exit_group, main_of_child(context));
    }
    assert_true(child > 0);
    return child;
}

static int
child_result(pid_t child)
{
    int status = 0;

    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* 0: refused; 1: locked; 2: something else. */
static int
try_in_child(void *context)
{
    const struct world *world = context;
    struct fs_file *file = file_open(world, "LOCK");
    enum kvt_status status;

    if (file == NULL)
        return 2;
    status = world->fs->lock(file, 0);
    world->fs->close(file);
    return status == KVT_E_LOCKED ? 0 : status == KVT_OK ? 1 : 2;
}

static void
other_process_is_refused_while_the_owner_lives(void **state)
{
    struct world *world = *state;
    struct fs_file *file = file_open(world, "LOCK");

    assert_int_equal(child_result(child_start(try_in_child, world)), 1);
    assert_int_equal(world->fs->lock(file, 0), KVT_E_BUSY); /* A fork since it was opened. */
    world->fs->close(file);
    file = file_open(world, "LOCK");
    assert_int_equal(world->fs->lock(file, 0), KVT_OK);
    assert_int_equal(child_result(child_start(try_in_child, world)), 0);
    /* And the fork has not cost the owner its lock. */
    assert_int_equal(child_result(child_start(try_in_child, world)), 0);
    world->fs->close(file);
    assert_int_equal(child_result(child_start(try_in_child, world)), 1);
}

/* --- A child that outlives its owner ---------------------------------------------------------- */

struct family {
    const struct world *world;
    int ready[2]; /* The grandchild writes a byte when it runs. */
    int hold[2];  /* It lives until the writing end is closed everywhere. */
};

static int
grandchild_main(void *context)
{
    struct family *family = context;
    char byte = 1;

    (void)close(family->hold[1]);
    if (write(family->ready[1], &byte, 1) != 1)
        return 1;
    return read(family->hold[0], &byte, 1) == 0 ? 0 : 1;
}

static int
owner_main(void *context)
{
    struct family *family = context;
    const struct world *world = family->world;
    struct fs_file *file = file_open(world, "LOCK");
    struct fs_file *other = file_open(world, "OTHER");
    pid_t child;

    /* Should the test fail, nobody would kill us. */
    (void)alarm(100);
    if (file == NULL || other == NULL || world->fs->lock(file, 0) != KVT_OK ||
        world->fs->lock(other, 0) != KVT_OK)
        return 1;
    child = fork();
    if (child == 0)
        _exit(grandchild_main(family));
    /* Live until killed. */
    for (;;)
        (void)pause();
}

static void
child_that_outlives_a_killed_owner_does_not_keep_the_lock(void **state)
{
    struct world *world = *state;
    struct family family = {.world = world};
    struct fs_file *file;
    struct fs_file *other;
    int status = 0;
    char byte;
    pid_t owner;

    assert_int_equal(pipe(family.ready), 0);
    assert_int_equal(pipe(family.hold), 0);
    owner = child_start(owner_main, &family);
    assert_int_equal(read(family.ready[0], &byte, 1), 1);
    file = file_open(world, "LOCK");
    assert_int_equal(world->fs->lock(file, 0), KVT_E_LOCKED);
    assert_int_equal(kill(owner, SIGKILL), 0);
    assert_int_equal(waitpid(owner, &status, 0), owner);
    /* The grandchild still lives: it waits for the end of `hold`, which we keep open. */
    assert_int_equal(world->fs->lock(file, 0), KVT_OK);
    other = file_open(world, "OTHER");
    assert_int_equal(world->fs->lock(other, 0), KVT_OK);
    world->fs->close(other);
    world->fs->close(file);
    for (int i = 0; i < 2; i++) {
        (void)close(family.ready[i]);
        (void)close(family.hold[i]);
    }
}

struct inherited {
    const struct world *world;
    struct fs_file *file;
    int descriptor;
};

/* 0: as it should be. */
static int
inherited_main(void *context)
{
    struct inherited *inherited = context;
    const struct world *world = inherited->world;
    size_t count;
    char byte;

    if (fcntl(inherited->descriptor, F_GETFD) != -1)
        return 1; /* The descriptor is still open. */
    if (world->fs->read_at(inherited->file, &byte, 1, 0, &count) == KVT_OK)
        return 2;
    /* The number now belongs to somebody else: closing the old handle must not touch it. */
    if (dup2(STDERR_FILENO, inherited->descriptor) != inherited->descriptor)
        return 3;
    world->fs->close(inherited->file);
    return fcntl(inherited->descriptor, F_GETFD) == -1 ? 4 : 0;
}

static void
child_has_the_owners_handle_closed_and_may_close_it_again(void **state)
{
    struct world *world = *state;
    struct inherited inherited = {.world = world, .file = file_open(world, "LOCK")};

    inherited.descriptor = inherited.file->descriptor;
    assert_int_equal(world->fs->lock(inherited.file, 0), KVT_OK);
    assert_int_equal(child_result(child_start(inherited_main, &inherited)), 0);
    assert_true(fcntl(inherited.descriptor, F_GETFD) != -1);
    world->fs->close(inherited.file);
}

struct three {
    const struct world *world;
    struct fs_file *files[3];
    int descriptors[3];
};

/* How many of the three descriptors are open. */
static int
three_main(void *context)
{
    struct three *three = context;
    int count = 0;

    for (size_t i = 0; i < 3; i++) {
        if (fcntl(three->descriptors[i], F_GETFD) != -1)
            count++;
    }
    return count;
}

static void
child_has_every_owned_handle_closed_whatever_was_closed_before(void **state)
{
    static const char *const names[] = {"LOCK", "OTHER", "THIRD"};
    struct world *world = *state;

    for (size_t gone = 0; gone < 3; gone++) {
        struct three three = {.world = world};

        for (size_t i = 0; i < 3; i++) {
            three.files[i] = file_open(world, names[i]);
            three.descriptors[i] = three.files[i]->descriptor;
            assert_int_equal(world->fs->lock(three.files[i], 0), KVT_OK);
        }
        world->fs->close(three.files[gone]);
        assert_int_equal(child_result(child_start(three_main, &three)), 0);
        /* The freed number in other hands: not the fork's business any more. */
        assert_int_equal(dup2(STDERR_FILENO, three.descriptors[gone]), three.descriptors[gone]);
        assert_int_equal(child_result(child_start(three_main, &three)), 1);
        (void)close(three.descriptors[gone]);
        for (size_t i = 0; i < 3; i++) {
            if (i != gone)
                world->fs->close(three.files[i]);
        }
    }
    assert_int_equal(world->fs->unlink(world->dir, "THIRD"), KVT_OK);
}

static int
nothing_main(void *context)
{
    (void)context;
    return 0;
}

static void
file_that_a_child_shares_already_is_refused(void **state)
{
    struct world *world = *state;
    struct fs_file *file = file_open(world, "LOCK");

    assert_int_equal(child_result(child_start(nothing_main, NULL)), 0);
    assert_int_equal(world->fs->lock(file, 0), KVT_E_BUSY);
    assert_non_null(strstr(failure_last()->text, "forked"));
    world->fs->close(file);
    file = file_open(world, "LOCK");
    assert_int_equal(world->fs->lock(file, 0), KVT_OK);
    world->fs->close(file);
}

/* --- Threads ---------------------------------------------------------------------------------- */

static void *
lock_often(void *argument)
{
    const struct world *world = argument;
    uintptr_t owner_count = 0;

    for (int i = 0; i < 300; i++) {
        struct fs_file *file = file_open(world, "LOCK");
        enum kvt_status status = file == NULL ? KVT_E_IO : world->fs->lock(file, 0);

        if (status == KVT_OK)
            owner_count++;
        else if (status != KVT_E_LOCKED && status != KVT_E_BUSY)
            owner_count += 1000000;
        world->fs->close(file);
    }
    return (void *)owner_count;
}

static void
threads_lock_and_close_while_the_process_forks(void **state)
{
    struct world *world = *state;
    pthread_t threads[3];
    uintptr_t owner_count = 0;

    for (size_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, lock_often, world), 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(child_result(child_start(nothing_main, NULL)), 0);
    for (size_t i = 0; i < 3; i++) {
        void *result;

        assert_int_equal(pthread_join(threads[i], &result), 0);
        owner_count += (uintptr_t)result;
    }
    assert_in_range(owner_count, 1, 900);
    /* Nothing is left locked. */
    assert_int_equal(child_result(child_start(try_in_child, world)), 1);
}

/* --- Waiting for it --------------------------------------------------------------------------- */

static uint64_t
now_ns(void)
{
    struct timespec time = {0};

    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &time), 0);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void
who_waits_is_refused_when_the_time_is_over(void **state)
{
    struct world *world = *state;
    struct fs_file *first = file_open(world, "LOCK");
    struct fs_file *second = file_open(world, "LOCK");
    uint64_t begin_ns = now_ns();

    assert_int_equal(world->fs->lock(first, 30000000), KVT_OK); /* Nobody else has it. */
    assert_int_equal(world->fs->lock(second, 30000000), KVT_E_LOCKED);
    assert_true(now_ns() - begin_ns >= 30000000);
    world->fs->close(first);
    world->fs->close(second);
}

struct waiter {
    const struct world *world;
    struct fs_file *file;
    enum kvt_status status;
};

static void *
waiter_main(void *argument)
{
    struct waiter *waiter = argument;

    waiter->status = waiter->world->fs->lock(waiter->file, (uint64_t)20 * 1000000000);
    return NULL;
}

/* It would wait as long, if who waits kept the mutex that every fork takes. */
static void
a_fork_does_not_wait_for_who_waits_for_a_lock(void **state)
{
    struct world *world = *state;
    struct fs_file *first = file_open(world, "LOCK");
    struct waiter waiter = {.world = world, .file = file_open(world, "LOCK")};
    pthread_t thread;

    assert_int_equal(world->fs->lock(first, 0), KVT_OK);
    assert_int_equal(pthread_create(&thread, NULL, waiter_main, &waiter), 0);
    (void)usleep(20000);
    assert_int_equal(child_result(child_start(nothing_main, NULL)), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(waiter.status, KVT_E_BUSY); /* The child has the file, too. */
    world->fs->close(waiter.file);
    world->fs->close(first);
}

/* As vfork() and posix_spawn() make one, which run no handlers; or one of fork() that has not got
 * to them yet: it has the owner's descriptor for a moment. */
static void
child_that_is_on_its_way_to_its_exec_does_not_keep_a_lock_that_was_given_back(void **state)
{
    struct world *world = *state;
    struct fs_file *file = file_open(world, "LOCK");
    int hold[2];
    pid_t child;
    char byte;

    assert_int_equal(world->fs->lock(file, 0), KVT_OK);
    assert_int_equal(pipe(hold), 0);
    child = (pid_t)syscall(SYS_clone, (long)SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0) {
        (void)close(hold[1]);
        byte = (char)(read(hold[0], &byte, 1) == 0);
        (void)syscall(SYS_exit_group, 0);
    }
    assert_true(child > 0);
    world->fs->close(file);
    file = file_open(world, "LOCK");
    assert_int_equal(world->fs->lock(file, 0), KVT_OK);
    (void)close(hold[1]);
    (void)close(hold[0]);
    assert_int_equal(child_result(child), 0);
    /* Nor does its end cost the next owner the lock. */
    assert_int_equal(child_result(child_start(try_in_child, world)), 0);
    world->fs->close(file);
}

#define LOCK_TEST(name) cmocka_unit_test_setup_teardown(name, world_open, world_close)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        LOCK_TEST(second_handle_of_one_process_is_refused_until_the_first_is_closed),
        LOCK_TEST(refused_handle_that_is_closed_does_not_free_the_lock),
        LOCK_TEST(other_process_is_refused_while_the_owner_lives),
        LOCK_TEST(child_that_outlives_a_killed_owner_does_not_keep_the_lock),
        LOCK_TEST(child_has_the_owners_handle_closed_and_may_close_it_again),
        LOCK_TEST(child_has_every_owned_handle_closed_whatever_was_closed_before),
        LOCK_TEST(file_that_a_child_shares_already_is_refused),
        LOCK_TEST(threads_lock_and_close_while_the_process_forks),
        LOCK_TEST(who_waits_is_refused_when_the_time_is_over),
        LOCK_TEST(a_fork_does_not_wait_for_who_waits_for_a_lock),
        LOCK_TEST(child_that_is_on_its_way_to_its_exec_does_not_keep_a_lock_that_was_given_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
