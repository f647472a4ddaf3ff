/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_exec.c - no descriptor of a store is left to a program that the host's process becomes, or
 * that a child of it does.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engram_rig.h"
#include "hbm_kit.h"
#include "stop_on_proof.h"

enum {
    DESCRIPTORS_MAX = 1024,
    PATH_SIZE = 512,
    ROWS = 64,
    ROW_BYTES = 256,
};

static bool was_open[DESCRIPTORS_MAX];

static bool
is_open(int descriptor)
{
    return fcntl(descriptor, F_GETFD) >= 0;
}

/* How many there are that were not there before; each of them ends with exec. */
static uint32_t
descriptors_check(void)
{
    uint32_t count = 0;

    for (int i = 0; i < DESCRIPTORS_MAX; i++) {
        char name[PATH_SIZE];
        char target[PATH_SIZE] = {0};

        if (was_open[i] || !is_open(i))
            continue;
        count++;
        (void)snprintf(name, sizeof(name), "/proc/self/fd/%d", i);
        (void)readlink(name, target, sizeof(target) - 1);
        if ((fcntl(i, F_GETFD) & FD_CLOEXEC) == 0)
            fail_msg("descriptor %d survives exec: %s", i, target);
    }
    return count;
}

static int
setup(void **state)
{
    for (int i = 0; i < DESCRIPTORS_MAX; i++)
        was_open[i] = is_open(i);
    return hbm_setup(state);
}

/* A new store, and one that is there; with HBM that others read, and tables. */
static void
descriptors_end_with_exec(void **state)
{
    static const uint32_t engines[] = {KVT_IO_THREADS, KVT_IO_AUTO};
    struct engram_rig rig;
    struct kvt_share share;
    kvt_engram *table;
    int descriptor;

    (void)state;
    assert_in_range(descriptors_check(), 4, DESCRIPTORS_MAX);
    engram_rig_init(&rig, "table", ROW_BYTES, ROWS);
    assert_int_equal(engram_rig_import(&rig, hbm.store, "table", 0), KVT_OK);
    for (size_t i = 0; i < sizeof(engines) / sizeof(engines[0]); i++) {
        hbm_close();
        hbm.options.flags = KVT_OPEN_SHARE_HBM;
        hbm.options.io_engine = engines[i];
        hbm_open_again();
        assert_int_equal(kvt_engram_open(hbm.store, "table", &table), KVT_OK);
        assert_int_equal(kvt_hbm_export(hbm.store, 0, &share, &descriptor), KVT_OK);
        assert_int_equal(hbm_put(i, 1, KVT_TIER_HBM, KVT_SYNC, 0), KVT_OK);
        assert_in_range(descriptors_check(), 4, DESCRIPTORS_MAX);
        assert_int_equal(kvt_engram_close(table), KVT_OK);
    }
    hbm_close();
    assert_int_equal(descriptors_check(), 0); /* Nor is any left. */
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(descriptors_end_with_exec, setup, hbm_teardown),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
