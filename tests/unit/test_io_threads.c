/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_io_threads.c - the threads of the thread io engine, as the host sees them.
 */
#include <dirent.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "io_engines.h"

/* The signals that a thread of this process blocks; 0: it has another name. */
static uint64_t
blocked_by(const char *thread, const char *name)
{
    unsigned long long mask = 0;
    char path[64], line[256], found[32] = "";
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/self/task/%.20s/status", thread);
    file = fopen(path, "re");
    if (file == NULL)
        return 0;
    while (fgets(line, sizeof(line), file) != NULL) {
        (void)sscanf(line, "Name: %31s", found);
        (void)sscanf(line, "SigBlk: %llx", &mask);
    }
    (void)fclose(file);
    return strcmp(found, name) == 0 ? mask : 0;
}

static void
mask_check(uint64_t mask)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    static const int foreign[] = {SIGINT, SIGTERM, SIGCHLD, SIGUSR1, SIGPROF, SIGALRM, SIGPIPE};

    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        assert_int_equal(mask >> (own[i] - 1) & 1, 0);
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
        assert_int_equal(mask >> (foreign[i] - 1) & 1, 1);
}

/* All but those that a fault of their own raises: for these the host may have a handler. */
static void
threads_leave_signals_to_the_host(void **state)
{
    const struct dirent *entry;
    struct io_queue *queue;
    sigset_t before = {0}, after = {0};
    struct kvt_env env;
    uint32_t count = 0;
    DIR *folder;

    (void)state;
    env_host(&env);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &before), 0);
    assert_int_equal(io_threads_ops.open(&env, 8, &queue), KVT_OK);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &after), 0);
    assert_memory_equal(&before, &after, sizeof(before));
    folder = opendir("/proc/self/task");
    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL) {
        uint64_t mask = blocked_by(entry->d_name, "kvt-io-pool");

        /* One that has not begun yet blocks all. */
        while ((mask >> (SIGSEGV - 1) & 1) != 0) {
            sched_yield();
            mask = blocked_by(entry->d_name, "kvt-io-pool");
        }
        if (mask == 0)
            continue;
        mask_check(mask);
        count++;
    }
    (void)closedir(folder);
    assert_true(count > 0);
    io_threads_ops.close(queue);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_leave_signals_to_the_host),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
