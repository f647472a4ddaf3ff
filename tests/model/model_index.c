/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_index.c - random operations on the LMDB index, in maps so small that they are often full,
 * against plain arrays. After each operation the file must pass the checker.
 *
 * --seed N --seeds N --ops N (operations in one life of a file).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "failure.h"
#include "index_model.h"
#include "lmdb_check.h"
#include "scratch_dir.h"
#include "seeds.h"
#include "stop_on_proof.h"

enum {
    SEEDS = 15,
    OPERATIONS = 150,
    MAP_BYTES_MIN = 256 << 10,
    MAP_STEPS = 8,
};

struct life {
    struct kvt_env env;
    struct scratch_dir scratch;
    struct fs_dir *dir;
    struct index *index;
    struct rng rng;
    uint32_t refused_count;
};

static struct index_model model;
static struct index_model model_before;
static struct model_batch batch;

static void
batch_commit(struct life *life, uint32_t deleted_max)
{
    uint32_t deleted = rng_below(&life->rng, deleted_max);
    uint32_t added = rng_below(&life->rng, MODEL_BATCH_MAX);
    enum kvt_status status;

    model_before = model;
    model_batch_random(&model, &batch, &life->rng, added, deleted);
    status = life->index->ops->commit(life->index, &batch.batch);
    if (status == KVT_E_NOSPC) {
        life->refused_count++;
        model = model_before;
        return;
    }
    assert_int_equal(status, KVT_OK);
}

/* Never refused: it is how a full map gets room. */
static void
segment_empty(struct life *life)
{
    batch.batch = (struct index_batch){0};
    index_model_empty(&model, &batch, rng_below(&life->rng, MODEL_SEGMENTS));
    model_seal(&model, &batch);
    assert_int_equal(life->index->ops->commit(life->index, &batch.batch), KVT_OK);
}

static void
file_check(const struct life *life)
{
    struct lmdb_report report;
    struct fs_file *file;
    enum kvt_status status;

    assert_int_equal(life->env.fs->open(life->dir, "data.mdb", FS_READ_ONLY, &file), KVT_OK);
    status = lmdb_check(&life->env, file, &report);
    life->env.fs->close(file);
    if (status != KVT_OK)
        fail_msg("the checker refuses LMDB's own file: %s", failure_last()->text);
    assert_int_equal(report.block_count, model_count(&model));
}

static void
reopen(struct life *life)
{
    life->index->ops->close(life->index);
    assert_int_equal(index_lmdb_ops.open(NULL, &life->env, life->dir, false, &life->index), KVT_OK);
    model_check(&model, life->index);
}

static void
operation_run(struct life *life)
{
    switch (rng_below(&life->rng, 10)) {
    case 0:
        segment_empty(life);
        break;
    case 1:
        assert_int_equal(
            life->index->ops->mark(life->index, rng_below(&life->rng, 2) == 0), KVT_OK);
        break;
    case 2:
        if (rng_below(&life->rng, 30) == 0)
            assert_int_equal(life->index->ops->grow(life->index, 0), KVT_OK);
        break;
    case 3:
        reopen(life);
        break;
    case 4:
    case 5:
        batch_commit(life, MODEL_BATCH_MAX);
        break;
    default:
        batch_commit(life, MODEL_BATCH_MAX / 8);
        break;
    }
}

static void
life_run(struct life *life, uint64_t seed, uint32_t operation_count)
{
    uint64_t map_bytes;

    life->rng.state = seed;
    memset(&model, 0, sizeof(model));
    map_bytes = MAP_BYTES_MIN * (1 + (uint64_t)rng_below(&life->rng, MAP_STEPS)) / 2;
    map_bytes = map_bytes < MAP_BYTES_MIN ? MAP_BYTES_MIN : map_bytes;
    assert_int_equal(
        index_lmdb_ops.create(NULL, &life->env, life->dir, map_bytes, &life->index), KVT_OK);
    assert_int_equal(index_lmdb_ops.install(life->index), KVT_OK);
    assert_int_equal(index_lmdb_ops.mark(life->index, false), KVT_OK);
    for (uint32_t i = 0; i < operation_count; i++) {
        operation_run(life);
        file_check(life);
    }
    reopen(life);
    life->index->ops->close(life->index);
}

static void
an_index_in_a_full_map_does_what_arrays_do(void **state)
{
    const struct seeds *seeds = *state;
    struct life life = {0};

    env_host(&life.env);
    scratch_dir_make(&life.scratch);
    assert_int_equal(
        life.env.fs->dir_open(life.env.fs_context, life.scratch.path, 0, &life.dir), KVT_OK);
    for (uint64_t seed = seeds->first; seed < seeds->first + seeds->count; seed++)
        life_run(&life, seed, seeds->operation_count);
    if (seeds->count >= SEEDS)
        assert_true(life.refused_count > 0);
    life.env.fs->dir_close(life.dir);
    scratch_dir_remove(&life.scratch);
}

int
main(int argc, char **argv)
{
    struct seeds seeds = {.first = 1, .count = SEEDS, .operation_count = OPERATIONS};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(an_index_in_a_full_map_does_what_arrays_do, &seeds),
    };

    if (!seeds_parse(&seeds, argc, argv))
        return 2;
    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
