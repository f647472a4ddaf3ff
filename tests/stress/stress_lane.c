/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stress_lane.c - several threads push into one lane at once, on both real engines, while another
 * reads its statistics; every byte that is read is compared.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "failure.h"
#include "io_engines.h"
#include "lane_user.h"

enum {
    USER_COUNT = 4,
    LIFE_COUNT = 2, /* Lanes opened one after the other over the same file. */
    TRANSFER_COUNT = 1000,
};

struct place {
    struct kvt_env env;
    char path[64];
    struct fs_dir *dir;
    struct fs_file *file;
    uint8_t *memory;
    struct lane *lane;
    struct lane_user users[USER_COUNT];
    _Atomic bool is_over;
};

struct pusher {
    struct place *place;
    struct lane_user *user;
};

static void *
pusher_main(void *argument)
{
    struct pusher *pusher = argument;

    lane_user_run(pusher->user, pusher->place->lane, TRANSFER_COUNT);
    return NULL;
}

static void *
watcher_main(void *argument)
{
    struct place *place = argument;

    while (!atomic_load_explicit(&place->is_over, memory_order_relaxed)) {
        struct lane_stats stats;

        lane_stats_get(place->lane, &stats);
        (void)usleep(100);
    }
    return NULL;
}

static void
place_open(struct place *place, const struct io_ops *io)
{
    const struct fs_ops *fs;

    env_host(&place->env);
    place->env.io = io;
    place->env.io_context = &place->env;
    fs = place->env.fs;
    (void)snprintf(place->path, sizeof(place->path), "/tmp/stress-lane-XXXXXX");
    assert_non_null(mkdtemp(place->path));
    assert_int_equal(fs->dir_open(place->env.fs_context, place->path, 0, &place->dir), KVT_OK);
    assert_int_equal(fs->open(place->dir, "data", FS_CREATE | FS_DIRECT, &place->file), KVT_OK);
    assert_int_equal(fs->allocate(place->file, 0, USER_COUNT * USER_REGION_BYTES), KVT_OK);
    place->memory = env_map(&place->env, USER_COUNT * (size_t)USER_MEMORY_BYTES);
    assert_non_null(place->memory);
}

static void
place_close(struct place *place)
{
    const struct fs_ops *fs = place->env.fs;

    env_unmap(&place->env, place->memory, USER_COUNT * (size_t)USER_MEMORY_BYTES);
    fs->close(place->file);
    assert_int_equal(fs->unlink(place->dir, "data"), KVT_OK);
    fs->dir_close(place->dir);
    assert_int_equal(rmdir(place->path), 0);
}

static void
live(struct place *place, uint64_t seed)
{
    struct pusher pushers[USER_COUNT];
    pthread_t threads[USER_COUNT];
    pthread_t watcher;

    assert_int_equal(lane_open(&place->env, "lane", place->memory,
                         USER_COUNT * (size_t)USER_MEMORY_BYTES, &place->lane),
        KVT_OK);
    atomic_store_explicit(&place->is_over, false, memory_order_relaxed);
    assert_int_equal(pthread_create(&watcher, NULL, watcher_main, place), 0);
    for (uint32_t i = 0; i < USER_COUNT; i++) {
        assert_true(lane_user_open(&place->users[i], &place->env, seed + i, place->file,
            (uint64_t)i * USER_REGION_BYTES, place->memory + (size_t)i * USER_MEMORY_BYTES));
        pushers[i] = (struct pusher){place, &place->users[i]};
        assert_int_equal(pthread_create(&threads[i], NULL, pusher_main, &pushers[i]), 0);
    }
    for (uint32_t i = 0; i < USER_COUNT; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    atomic_store_explicit(&place->is_over, true, memory_order_relaxed);
    assert_int_equal(pthread_join(watcher, NULL), 0);
    lane_close(place->lane);
    for (uint32_t i = 0; i < USER_COUNT; i++) {
        if (place->users[i].wrong != NULL)
            fail_msg(
                "%s, user %u of seed %lu", place->users[i].wrong, (unsigned)i, (unsigned long)seed);
        assert_true(place->users[i].read_slots > TRANSFER_COUNT / 4);
        lane_user_close(&place->users[i]);
    }
}

static void
run_on(const struct io_ops *io)
{
    struct place *place = calloc(1, sizeof(*place));

    assert_non_null(place);
    place_open(place, io);
    for (uint64_t seed = 1; seed <= LIFE_COUNT; seed++)
        live(place, seed * 100);
    place_close(place);
    free(place);
}

static void
threads_engine_serves_many_pushers(void **state)
{
    (void)state;
    run_on(&io_threads_ops);
}

static void
uring_engine_serves_many_pushers(void **state)
{
    (void)state;
    if (io_uring_probe() != KVT_OK) {
        printf("SKIPPED: %s\n", failure_last()->text);
        skip();
    }
    run_on(&io_uring_ops);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_engine_serves_many_pushers),
        cmocka_unit_test(uring_engine_serves_many_pushers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
