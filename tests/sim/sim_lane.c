/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_lane.c - a lane over simulated io: transfers that come back short, late, out of order and
 * interrupted end up whole, and what a sync covered survives the power cut.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bytes.h"
#include "io_lane.h"
#include "rng.h"
#include "sim_world.h"

enum {
    SEEDS = 60,
    TRANSFERS = 12,
    AREA_BYTES = 3 << 20, /* Of one transfer: several operations. */
};

struct rig {
    struct sim_world *world;
    const struct kvt_env *env;
    struct fs_file *file;
    struct lane *lane;
    struct inbox done;
    struct task *nobody;
    uint8_t *memory;
    struct transfer transfers[TRANSFERS];
    struct iovec pieces[TRANSFERS];
    struct rng rng;
};

static void
rig_open(struct rig *rig, uint64_t seed)
{
    struct sim_options options = {
        .seed = seed, .short_per_mille = 100, .retry_per_mille = 50, .align_bytes = 4096};
    struct fs_dir *dir;

    memset(rig, 0, sizeof(*rig));
    rig->world = sim_world_create(&options);
    rig->env = sim_env(rig->world);
    rig->rng.state = seed;
    assert_int_equal(
        rig->env->fs->dir_open(rig->env->fs_context, "/lane", FS_CREATE, &dir), KVT_OK);
    assert_int_equal(rig->env->fs->open(dir, "data", FS_CREATE | FS_DIRECT, &rig->file), KVT_OK);
    assert_int_equal(
        rig->env->fs->allocate(rig->file, 0, (uint64_t)TRANSFERS * AREA_BYTES), KVT_OK);
    assert_int_equal(rig->env->fs->sync(rig->file), KVT_OK);
    assert_int_equal(rig->env->fs->dir_sync(dir), KVT_OK);
    rig->env->fs->dir_close(dir);
    rig->memory = env_map(rig->env, (size_t)TRANSFERS * AREA_BYTES);
    assert_non_null(rig->memory);
    assert_int_equal(lane_open(rig->env, "lane", NULL, 0, &rig->lane), KVT_OK);
}

static void
rig_push(struct rig *rig, uint32_t i, enum io_kind kind, size_t size)
{
    rig->pieces[i].iov_base = rig->memory + (size_t)i * AREA_BYTES;
    rig->pieces[i].iov_len = size;
    rig->transfers[i] = (struct transfer){
        .kind = kind,
        .class = rng_below(&rig->rng, 2) == 0 ? LANE_URGENT : LANE_BULK,
        .file = rig->file,
        .offset = (uint64_t)i * AREA_BYTES,
        .pieces = kind == IO_SYNC ? NULL : &rig->pieces[i],
        .piece_count = kind == IO_SYNC ? 0 : 1,
        .done = &rig->done,
        .done_task = &rig->nobody,
    };
    lane_push(rig->lane, &rig->transfers[i]);
}

/* Run until `count` transfers have come back, each with KVT_OK. */
static void
rig_collect(struct rig *rig, uint32_t count)
{
    uint32_t got = 0;

    assert_int_equal(sim_run(rig->world, NULL, NULL, UINT64_MAX), SIM_IDLE);
    for (struct inbox_node *node = inbox_take(&rig->done); node != NULL; node = node->next) {
        assert_int_equal(CONTAINER_OF(node, struct transfer, node)->status, KVT_OK);
        got++;
    }
    assert_int_equal(got, count);
}

static size_t
size_of(uint64_t seed, uint32_t i)
{
    struct rng rng = {.state = seed * 100 + i};

    return (size_t)PAGE_BYTES * (1 + rng_below(&rng, AREA_BYTES / PAGE_BYTES));
}

static void
transfers_end_whole_and_synced_ones_survive(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct rig rig;

        rig_open(&rig, seed);
        for (uint32_t i = 0; i < TRANSFERS; i++) {
            memset(rig.memory + (size_t)i * AREA_BYTES, (int)(i + 1), size_of(seed, i));
            rig_push(&rig, i, IO_WRITE, size_of(seed, i));
        }
        rig_collect(&rig, TRANSFERS);
        rig_push(&rig, 0, IO_SYNC, 0);
        rig_collect(&rig, 1);
        memset(rig.memory, 0, (size_t)TRANSFERS * AREA_BYTES);
        for (uint32_t i = 0; i < TRANSFERS; i++)
            rig_push(&rig, i, IO_READ, size_of(seed, i));
        rig_collect(&rig, TRANSFERS);
        for (uint32_t i = 0; i < TRANSFERS; i++) {
            const uint8_t *area = rig.memory + (size_t)i * AREA_BYTES;

            for (size_t at = 0; at < size_of(seed, i); at += 128)
                assert_int_equal(area[at], i + 1);
        }
        lane_close(rig.lane);
        env_unmap(rig.env, rig.memory, (size_t)TRANSFERS * AREA_BYTES);
        rig.env->fs->close(rig.file);
        assert_int_equal(sim_leaks(rig.world, NULL, 0), 0);
        sim_world_destroy(rig.world);
    }
}

/* Cut the power, with the least that the disk may keep, and compare the first area with `value`. */
static bool
area_survives(struct rig *rig, uint8_t value)
{
    struct fs_dir *dir;
    bool is_whole = true;
    uint8_t *area;
    size_t got;

    sim_power_cut(rig->world, SIM_CUT_NOTHING_KEPT);
    assert_int_equal(rig->env->fs->dir_open(rig->env->fs_context, "/lane", 0, &dir), KVT_OK);
    assert_int_equal(rig->env->fs->open(dir, "data", FS_READ_ONLY, &rig->file), KVT_OK);
    area = env_take(rig->env, AREA_BYTES);
    assert_non_null(area);
    assert_int_equal(rig->env->fs->read_at(rig->file, area, AREA_BYTES, 0, &got), KVT_OK);
    for (size_t at = 0; at < AREA_BYTES; at += 512)
        is_whole = is_whole && area[at] == value;
    return is_whole;
}

static void
sync_behind_the_answer_of_a_write_covers_it(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct rig rig;

        rig_open(&rig, seed);
        memset(rig.memory, 9, 2 * AREA_BYTES);
        rig_push(&rig, 0, IO_WRITE, AREA_BYTES);
        rig_collect(&rig, 1);
        /* Beside another write, which changes nothing about it. */
        rig_push(&rig, 1, IO_WRITE, AREA_BYTES);
        rig_push(&rig, 2, IO_SYNC, 0);
        rig_collect(&rig, 2);
        assert_true(area_survives(&rig, 9));
        sim_world_destroy(rig.world);
    }
}

static void
sync_before_the_answer_of_a_write_promises_nothing(void **state)
{
    uint32_t lost_count = 0;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct rig rig;

        rig_open(&rig, seed);
        memset(rig.memory, 9, AREA_BYTES);
        rig_push(&rig, 0, IO_WRITE, AREA_BYTES);
        rig_push(&rig, 1, IO_SYNC, 0);
        rig_collect(&rig, 2);
        lost_count += !area_survives(&rig, 9);
        sim_world_destroy(rig.world);
    }
    /* The sync did not wait for the write, and the simulated disk lets it be seen. */
    assert_true(lost_count > 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transfers_end_whole_and_synced_ones_survive),
        cmocka_unit_test(sync_behind_the_answer_of_a_write_covers_it),
        cmocka_unit_test(sync_before_the_answer_of_a_write_promises_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
