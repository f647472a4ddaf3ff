/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lane_files.c - the lane on both real engines and a real file: random transfers whose bytes
 * are all compared.
 */
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
    TRANSFER_COUNT = 2000,
};

struct place {
    struct kvt_env env;
    char path[64];
    struct fs_dir *dir;
    struct fs_file *file;
    uint8_t *memory;
    struct lane *lane;
};

static void
place_open(struct place *place, const struct io_ops *io, unsigned flags)
{
    const struct fs_ops *fs;

    env_host(&place->env);
    place->env.io = io;
    place->env.io_context = &place->env;
    fs = place->env.fs;
    (void)snprintf(place->path, sizeof(place->path), "/tmp/test-lane-XXXXXX");
    assert_non_null(mkdtemp(place->path));
    assert_int_equal(fs->dir_open(place->env.fs_context, place->path, 0, &place->dir), KVT_OK);
    assert_int_equal(fs->open(place->dir, "data", FS_CREATE | flags, &place->file), KVT_OK);
    assert_int_equal(fs->allocate(place->file, 0, USER_REGION_BYTES), KVT_OK);
    place->memory = env_map(&place->env, USER_MEMORY_BYTES);
    assert_non_null(place->memory);
    assert_int_equal(
        lane_open(&place->env, "lane", place->memory, USER_MEMORY_BYTES, &place->lane), KVT_OK);
}

static void
place_close(struct place *place)
{
    const struct fs_ops *fs = place->env.fs;

    env_unmap(&place->env, place->memory, USER_MEMORY_BYTES);
    fs->close(place->file);
    assert_int_equal(fs->unlink(place->dir, "data"), KVT_OK);
    fs->dir_close(place->dir);
    assert_int_equal(rmdir(place->path), 0);
}

static void
run_on(const struct io_ops *io, unsigned flags)
{
    struct lane_user *user = calloc(1, sizeof(*user));
    struct place place;
    struct lane_stats stats;

    assert_non_null(user);
    place_open(&place, io, flags);
    assert_true(lane_user_open(user, &place.env, 42, place.file, 0, place.memory));
    lane_user_run(user, place.lane, TRANSFER_COUNT);
    if (user->wrong != NULL)
        fail_msg("%s, engine %s", user->wrong, io->name);
    assert_true(user->read_slots > TRANSFER_COUNT / 4);
    lane_stats_get(place.lane, &stats);
    assert_int_equal(stats.bytes_in_flight_now, 0);
    assert_int_equal(stats.error_count, 0);
    assert_true(stats.sync_count > 0);
    /* Some were joined, or there would be an operation for each transfer. */
    assert_true(stats.read_count + stats.write_count + stats.sync_count < TRANSFER_COUNT);
    lane_close(place.lane);
    lane_user_close(user);
    place_close(&place);
    free(user);
}

static void
random_transfers_on_threads_move_the_right_bytes(void **state)
{
    (void)state;
    run_on(&io_threads_ops, 0);
    run_on(&io_threads_ops, FS_DIRECT);
}

static void
random_transfers_on_uring_move_the_right_bytes(void **state)
{
    (void)state;
    if (io_uring_probe() != KVT_OK) {
        printf("SKIPPED: %s\n", failure_last()->text);
        skip();
    }
    run_on(&io_uring_ops, 0);
    run_on(&io_uring_ops, FS_DIRECT);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_transfers_on_threads_move_the_right_bytes),
        cmocka_unit_test(random_transfers_on_uring_move_the_right_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
