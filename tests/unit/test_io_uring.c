/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_io_uring.c - the io_uring engine where the system denies it something: the ring itself, to
 * enter it later, locked memory, or threads. Each such case runs in a child that takes the right
 * away from itself.
 * And what a child has of its parent's ring.
 */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "call_refuse.h"
#include "failure.h"
#include "io_engines.h"

enum {
    ARENA_BYTES = 8 << 20,
    NOBODY = 65534,
};

/* Run `check` in a child; it returns 0 when all is well. */
static void
in_child(int (*check)(int argument), int argument)
{
    pid_t child = fork();
    int state = 0;

    assert_true(child >= 0);
    if (child == 0)
        _exit(check(argument));
    assert_int_equal(waitpid(child, &state, 0), child);
    assert_true(WIFEXITED(state));
    assert_int_equal(WEXITSTATUS(state), 0);
}

static int
denied(int error)
{
    struct kvt_env env;
    struct io_queue *queue;

    env_host(&env);
    if (!call_refuse(SYS_io_uring_setup, (unsigned)error))
        return 1;
    if (io_uring_probe() != KVT_E_UNSUPPORTED || failure_last()->foreign_code != error)
        return 2;
    if (io_uring_ops.open(&env, 8, &queue) != KVT_E_UNSUPPORTED || queue != NULL)
        return 3;
    return 0;
}

static void
denied_ring_is_reported_as_unsupported(void **state)
{
    (void)state;
    in_child(denied, EPERM);
    in_child(denied, ENOSYS);
}

/* How many mappings of rings this process has; -1: it cannot be told. */
static int
ring_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    int count = 0;

    if (maps == NULL)
        return -1;
    while (fgets(line, sizeof(line), maps) != NULL)
        count += strstr(line, "[io_uring]") != NULL;
    (void)fclose(maps);
    return count;
}

/* How many descriptors of rings; -1: it cannot be told. */
static int
ring_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    const struct dirent *entry;
    char target[64];
    int count = 0;

    if (folder == NULL)
        return -1;
    while ((entry = readdir(folder)) != NULL) {
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);

        target[length > 0 ? length : 0] = '\0';
        count += strstr(target, "[io_uring]") != NULL;
    }
    (void)closedir(folder);
    return count;
}

static int
without_rings(int argument)
{
    (void)argument;
    return (ring_mappings() != 0) + 2 * (ring_descriptors() != 0);
}

static void
forked_child_has_nothing_of_a_ring(void **state)
{
    struct kvt_env env;
    struct io_queue *queue;

    (void)state;
    if (io_uring_probe() != KVT_OK) {
        printf("SKIPPED: %s\n", failure_last()->text);
        skip();
    }
    env_host(&env);
    assert_int_equal(io_uring_ops.open(&env, 8, &queue), KVT_OK);
    assert_true(ring_mappings() > 0);
    assert_int_equal(ring_descriptors(), 1);
    in_child(without_rings, 0);
    assert_int_equal(ring_descriptors(), 1);
    io_uring_ops.close(queue);
    assert_int_equal(ring_mappings() + ring_descriptors(), 0);
    in_child(without_rings, 0);
}

/* Write and read bytes of `arena` through a queue that has adopted it. */
static int
use_arena(char *arena)
{
    struct fs_file file = {memfd_create("data", MFD_CLOEXEC)};
    struct kvt_env env;
    struct io_queue *queue;
    struct iovec piece = {arena + 4096, 65536};
    struct io_op op = {1, IO_WRITE, &file, 0, &piece, 1};
    const struct io_op *ops = &op;
    struct io_done done = {0};

    env_host(&env);
    if (file.descriptor < 0 || io_uring_ops.open(&env, 8, &queue) != KVT_OK)
        return 10;
    io_uring_ops.adopt(queue, arena, ARENA_BYTES);
    memset(arena, 0x42, 1 << 20);
    for (op.id = 1; op.id <= 2; op.id++) {
        if (io_uring_ops.submit(queue, &ops, 1) != 1)
            return 11;
        while (io_uring_ops.reap(queue, &done, 1) == 0)
            io_uring_ops.wait(queue, 0, UINT64_MAX);
        if (done.result != 65536)
            return 12;
        op.kind = IO_READ;
        piece.iov_base = arena + (1 << 20);
    }
    io_uring_ops.close(queue);
    return memcmp(arena + (1 << 20), arena + 4096, 65536) == 0 ? 0 : 13;
}

static int
without_locked_memory(int limit_bytes)
{
    struct rlimit limit = {(rlim_t)limit_bytes, (rlim_t)limit_bytes};
    char *arena =
        mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (arena == MAP_FAILED)
        return 1;
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        return 2;
    /* Root may lock what it likes. */
    if (geteuid() == 0 && setuid(NOBODY) != 0)
        return 3;
    return use_arena(arena);
}

static void
arena_that_may_not_be_locked_is_used_unregistered(void **state)
{
    (void)state;
    if (io_uring_probe() != KVT_OK) {
        printf("SKIPPED: %s\n", failure_last()->text);
        skip();
    }
    in_child(without_locked_memory, 1 << 20);
}

/* --- Threads ---------------------------------------------------------------------------------- */

/* One operation, waited for. */
static int64_t
queue_do(struct io_queue *queue, const struct io_op *op)
{
    struct io_done done = {0};

    if (io_uring_ops.submit(queue, &op, 1) != 1)
        return -1000;
    while (io_uring_ops.reap(queue, &done, 1) == 0)
        io_uring_ops.wait(queue, 0, UINT64_MAX);
    return done.id == op->id ? done.result : -1001;
}

/* 0: a sync, for which the kernel needs a thread, is made where it gets none. */
static int
without_threads(int descriptor)
{
    const struct rlimit none = {0, 0};
    struct fs_file file = {.descriptor = descriptor};
    struct io_op op = {.id = 7, .kind = IO_SYNC, .file = &file};
    struct io_queue *queue = NULL;
    struct kvt_env env;
    int ends[2];

    env_host(&env);
    if (io_uring_ops.open(&env, 8, &queue) != KVT_OK)
        return 1;
    /* Root has no such limit. */
    if ((geteuid() == 0 && setuid(NOBODY) != 0) || setrlimit(RLIMIT_NPROC, &none) != 0)
        return 2;
    if (queue_do(queue, &op) != 0)
        return 3;
    /* What cannot be synced tells that the call was made. */
    if (pipe(ends) != 0)
        return 4;
    file.descriptor = ends[1];
    if (queue_do(queue, &op) != -EINVAL)
        return 5;
    io_uring_ops.close(queue);
    return 0;
}

/* With a file; where there are rings. */
static void
in_child_with_file(int (*check)(int descriptor))
{
    FILE *file;

    if (io_uring_probe() != KVT_OK) {
        printf("SKIPPED: %s\n", failure_last()->text);
        skip();
    }
    file = tmpfile();
    assert_non_null(file);
    in_child(check, fileno(file));
    (void)fclose(file);
}

static void
what_the_kernel_has_no_thread_for_is_done_all_the_same(void **state)
{
    (void)state;
    in_child_with_file(without_threads);
}

/* --- A filter that comes after the ring ------------------------------------------------------- */

enum {
    BLOCK_BYTES = 4096,
    WAIT_NS = 5000000,
};

/* 0: what the kernel had not taken is done, and a wait waits. */
static int
refused_before(int descriptor)
{
    static char bytes[2][BLOCK_BYTES];
    struct fs_file file = {.descriptor = descriptor};
    struct iovec pieces[2] = {{bytes[0], BLOCK_BYTES}, {bytes[1], BLOCK_BYTES}};
    const struct io_op write = {1, IO_WRITE, &file, 0, &pieces[0], 1};
    const struct io_op read = {2, IO_READ, &file, 0, &pieces[1], 1};
    struct io_op past = {3, IO_READ, &file, BLOCK_BYTES, &pieces[1], 1};
    const struct io_op *two[2] = {&read, &past};
    struct io_done done[2] = {{0}, {0}};
    struct io_queue *queue = NULL;
    struct kvt_env env;
    uint64_t begin_ns;

    env_host(&env);
    memset(bytes[0], 0x5a, BLOCK_BYTES);
    if (io_uring_ops.open(&env, 2, &queue) != KVT_OK || queue_do(queue, &write) != BLOCK_BYTES)
        return 1;
    if (io_uring_ops.submit(queue, two, 2) != 2 || !call_refuse(SYS_io_uring_enter, EPERM))
        return 2;
    if (io_uring_ops.reap(queue, done, 1) != 1 || io_uring_ops.reap(queue, done + 1, 2) != 1)
        return 3;
    if (done[0].id + done[1].id != 5 || done[0].result + done[1].result != BLOCK_BYTES ||
        memcmp(bytes[0], bytes[1], BLOCK_BYTES) != 0)
        return 4;
    begin_ns = env_now(&env);
    io_uring_ops.wait(queue, begin_ns, begin_ns + WAIT_NS);
    if (env_now(&env) - begin_ns < WAIT_NS)
        return 5;
    /* No more than it has places for, and each of them again. */
    memset(bytes[1], 0, BLOCK_BYTES);
    if (io_uring_ops.submit(queue, two, 2) != 2 || io_uring_ops.submit(queue, two, 1) != 0)
        return 6;
    io_uring_ops.wait(queue, 0, UINT64_MAX);
    if (io_uring_ops.reap(queue, done, 2) != 2 || io_uring_ops.reap(queue, done, 2) != 0)
        return 7;
    past.offset = 0;
    if (queue_do(queue, &past) != BLOCK_BYTES || memcmp(bytes[0], bytes[1], BLOCK_BYTES) != 0)
        return 8;
    io_uring_ops.close(queue);
    return 0;
}

#ifdef NDEBUG
static void
proof_count(void *count, const char *expression, const char *file, int line)
{
    (void)expression;
    (void)file;
    (void)line;
    ++*(int *)count;
}
#endif

/* 0: of what the kernel had taken nobody knows the end. A false proof says so. */
static int
refused_in_flight(int descriptor)
{
#ifdef NDEBUG
    char byte;
    int ends[2], proof_count_seen = 0;
    struct fs_file file = {.descriptor = descriptor}, empty;
    struct iovec piece = {&byte, 1};
    const struct io_op read = {1, IO_READ, &empty, 0, &piece, 1};
    const struct io_op sync = {2, IO_SYNC, &file, 0, NULL, 0};
    const struct io_op *op = &read;
    struct io_done done[2] = {{0}, {0}};
    struct io_queue *queue = NULL;
    struct kvt_env env;

    env_host(&env);
    if (pipe(ends) != 0 || io_uring_ops.open(&env, 8, &queue) != KVT_OK)
        return 1;
    empty.descriptor = ends[0];
    if (io_uring_ops.submit(queue, &op, 1) != 1 || io_uring_ops.reap(queue, done, 2) != 0)
        return 2;
    (void)proof_handler_set((struct proof_handler){proof_count, &proof_count_seen});
    op = &sync;
    if (io_uring_ops.submit(queue, &op, 1) != 1 || !call_refuse(SYS_io_uring_enter, ENOSYS))
        return 3;
    if (io_uring_ops.reap(queue, done, 2) != 2 || proof_count_seen != 1)
        return 4;
    if (done[0].id + done[1].id != 3 || done[0].result + done[1].result != -EIO)
        return 5;
    if (queue_do(queue, &sync) != 0 || proof_count_seen != 1)
        return 6;
    io_uring_ops.close(queue);
#else
    (void)descriptor; /* A proof ends the process here. */
#endif
    return 0;
}

static void
a_kernel_that_is_not_entered_any_more_is_done_without(void **state)
{
    (void)state;
    in_child_with_file(refused_before);
    in_child_with_file(refused_in_flight);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(denied_ring_is_reported_as_unsupported),
        cmocka_unit_test(a_kernel_that_is_not_entered_any_more_is_done_without),
        cmocka_unit_test(arena_that_may_not_be_locked_is_used_unregistered),
        cmocka_unit_test(what_the_kernel_has_no_thread_for_is_done_all_the_same),
        cmocka_unit_test(forked_child_has_nothing_of_a_ring),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
