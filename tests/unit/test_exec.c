/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_exec.c - no descriptor of a store is left to a program that the host's process becomes, or
 * that a child of it does; and none has the number of a standard stream that the host has closed.
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
#include "streams_host.h"

enum {
    DESCRIPTORS_MAX = 1024,
    PATH_SIZE = 512,
    ROWS = 64,
    ROW_BYTES = 256,
    ENGINES = 2,
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

/* Open the store, with HBM that others read (*descriptor_out is of that), and use it. */
static kvt_engram *
store_use(uint32_t number, uint32_t flags, int *descriptor_out)
{
    static const uint32_t engines[ENGINES] = {KVT_IO_THREADS, KVT_IO_AUTO};
    struct kvt_share share;
    kvt_engram *table;

    hbm.options.flags = KVT_OPEN_SHARE_HBM | flags;
    hbm.options.io_engine = engines[number];
    hbm_open_again();
    assert_int_equal(kvt_engram_open(hbm.store, "table", &table), KVT_OK);
    assert_int_equal(kvt_hbm_export(hbm.store, 0, &share, descriptor_out), KVT_OK);
    assert_int_equal(hbm_put(number, 1, KVT_TIER_HBM, KVT_SYNC, 0), KVT_OK);
    return table;
}

/* A new store, and one that is there, with tables. */
static void
descriptors_end_with_exec(void **state)
{
    struct engram_rig rig;
    kvt_engram *table;
    int descriptor;

    (void)state;
    assert_in_range(descriptors_check(), 4, DESCRIPTORS_MAX);
    engram_rig_init(&rig, "table", ROW_BYTES, ROWS);
    assert_int_equal(engram_rig_import(&rig, hbm.store, "table", 0), KVT_OK);
    for (uint32_t i = 0; i < ENGINES; i++) {
        hbm_close();
        table = store_use(i, 0, &descriptor);
        assert_in_range(descriptors_check(), 4, DESCRIPTORS_MAX);
        assert_int_equal(kvt_engram_close(table), KVT_OK);
    }
    hbm_close();
    assert_int_equal(descriptors_check(), 0); /* Nor is any left. */
}

/* --- Standard streams ------------------------------------------------------------------------- */

static int streams[STREAM_COUNT] = {-1, -1, -1}; /* While they are closed. */

static void
streams_close(void)
{
    (void)fflush(NULL);
    for (int i = 0; i < STREAM_COUNT; i++) {
        streams[i] = fcntl(i, F_DUPFD_CLOEXEC, DESCRIPTORS_MAX / 2);
        assert_true(streams[i] >= 0);
    }
    for (int i = 0; i < STREAM_COUNT; i++)
        (void)close(i);
}

static void
streams_open(void)
{
    for (int i = 0; i < STREAM_COUNT; i++) {
        if (streams[i] < 0)
            continue;
        (void)dup2(streams[i], i);
        (void)close(streams[i]);
        streams[i] = -1;
    }
}

static int
streams_teardown(void **state)
{
    streams_open();
    return hbm_teardown(state);
}

static bool
streams_are_closed(void)
{
    return !is_open(0) && !is_open(1) && !is_open(2);
}

/* What a store asks of its world beside files, for itself or for another process's. */
static bool
world_takes_none(int descriptor)
{
    struct shared_page made, adopted;
    struct kvt_env env;
    void *memory;
    size_t size;
    int signal, own;
    bool takes_none;

    env_host(&env);
    if (env.sched->signal_open(env.sched_context, &signal) != KVT_OK ||
        env.memory->share_adopt(env.memory_context, descriptor, &memory, &size, &own) != KVT_OK ||
        env.memory->page_make(env.memory_context, &made) != KVT_OK ||
        env.memory->page_adopt(env.memory_context, made.descriptor, &adopted) != KVT_OK)
        return false;
    takes_none = streams_are_closed();
    env.memory->page_end(env.memory_context, &adopted);
    env.memory->page_end(env.memory_context, &made);
    env.memory->share_end(env.memory_context, memory, size, own);
    env.sched->signal_close(env.sched_context, signal);
    return takes_none;
}

/* What the host writes to a stream that it has closed fails, and does not go into the store. */
static void
descriptors_are_no_standard_streams(void **state)
{
    struct engram_rig rig;
    kvt_engram *table;
    int descriptor;

    (void)state;
    engram_rig_init(&rig, "table", ROW_BYTES, ROWS);
    assert_int_equal(engram_rig_import(&rig, hbm.store, "table", 0), KVT_OK);
    hbm_close();
    streams_close();
    for (uint32_t i = 0; i < ENGINES; i++) {
        bool are_closed;

        table = store_use(i, i == 0 ? KVT_OPEN_REBUILD : 0, &descriptor);
        are_closed = streams_are_closed() && world_takes_none(descriptor);
        assert_int_equal(kvt_engram_close(table), KVT_OK);
        hbm_close();
        assert_true(are_closed);
    }
    streams_open();
    hbm_open_again();
}

/* Another thread opens a stream anew while the numbers are held. */
static void
what_others_put_under_a_held_number_stays(void **state)
{
    struct streams_hold hold;
    bool is_kept, are_closed;
    int count;

    (void)state;
    streams_close();
    streams_hold(&hold);
    (void)dup2(streams[1], 1);
    streams_drop(&hold);
    count = hold.count;
    is_kept = is_open(1);
    are_closed = !is_open(0) && !is_open(2);
    streams_open();
    assert_int_equal(count, STREAM_COUNT);
    assert_true(is_kept);
    assert_true(are_closed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(descriptors_end_with_exec, setup, hbm_teardown),
        cmocka_unit_test_setup_teardown(
            descriptors_are_no_standard_streams, hbm_setup, streams_teardown),
        cmocka_unit_test(what_others_put_under_a_held_number_stays),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
