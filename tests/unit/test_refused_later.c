/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_refused_later.c - a store whose system calls are refused by a seccomp filter that came after
 * it was opened, for all of its threads: of io_uring it needs nothing more. Each case runs in a
 * child, which the filter ends with.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "call_refuse.h"
#include "io_engines.h"
#include "store_kit.h"

enum {
    BLOCKS = 70, /* More than HOST has. */
    LIMIT_S = 120,
};

static int
live(const char *path, unsigned error)
{
    struct kvt_options options = kit_options();
    uint64_t version = 0;
    uint32_t flags = 0;
    kvt_namespace ns;
    kvt_store *store;

    if (kvt_open(path, &options, &store) != KVT_OK ||
        kvt_namespace_open(store, "refused", "", 0, &ns) != KVT_OK)
        return 1;
    if (kit_put(store, ns, 0, 1, KIT_BLOCK_BYTES_MAX, KVT_SYNC) != KVT_OK ||
        !call_refuse(SYS_io_uring_enter, error))
        return 2;
    for (uint64_t i = 1; i < BLOCKS; i++) {
        if (kit_put(store, ns, i, 1, KIT_BLOCK_BYTES_MAX, KVT_SYNC) != KVT_OK)
            return 3;
    }
    for (uint64_t i = 0; i < BLOCKS; i++) {
        if (kit_get(store, ns, i, &version) != KVT_OK || version != 1)
            return 4;
    }
    if (kvt_health(store, &flags) != KVT_OK || flags != 0)
        return 5;
    return kvt_close(store) == KVT_OK ? 0 : 6;
}

static void
run(unsigned error)
{
    struct kvt_options options = kit_options();
    char path[KIT_PATH_BYTES];
    uint64_t version = 0;
    int state = 0;
    kvt_namespace ns;
    kvt_store *store;
    pid_t child;

    kit_dir_make(path);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)alarm(LIMIT_S); /* Whoever waits for what the kernel does not tell waits for ever. */
        _exit(live(path, error));
    }
    assert_int_equal(waitpid(child, &state, 0), child);
    assert_true(WIFEXITED(state));
    assert_int_equal(WEXITSTATUS(state), 0);
    assert_int_equal(kvt_open(path, &options, &store), KVT_OK);
    assert_int_equal(kvt_namespace_open(store, "refused", "", 0, &ns), KVT_OK);
    for (uint64_t i = 0; i < BLOCKS; i++) {
        assert_int_equal(kit_get(store, ns, i, &version), KVT_OK);
        assert_int_equal(version, 1);
    }
    assert_int_equal(kvt_close(store), KVT_OK);
    kit_dir_remove(path);
}

static void
a_store_that_may_not_enter_its_rings_goes_on_without(void **state)
{
    (void)state;
    if (io_uring_probe() != KVT_OK) {
        printf("SKIPPED: no io_uring here\n");
        skip();
    }
    run(EPERM);
    run(ENOSYS);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_store_that_may_not_enter_its_rings_goes_on_without),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
