/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_map_refused.c - an index that cannot grow for want of address space (RLIMIT_AS) stays as it
 * is, and can be committed to. LMDB gives its old map up before it asks for the larger one: that is
 * not refused where the one that the index has tried before it was not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "bytes.h"
#include "index_model.h"
#include "scratch_dir.h"
#include "stop_on_proof.h"

enum {
    MAP_BYTES = 4 << 20,
    STEP_BYTES = MAP_BYTES / 4,
    STEPS = 32, /* Of address space: more than a growth takes. */
};

static struct kvt_env env;
static struct scratch_dir scratch;
static struct fs_dir *dir;
static struct index_model model;
static struct model_batch batch;

static int
dir_make(void **state)
{
    (void)state;
    env_host(&env);
    scratch_dir_make(&scratch);
    memset(&model, 0, sizeof(model));
    return env.fs->dir_open(env.fs_context, scratch.path, 0, &dir) == KVT_OK ? 0 : -1;
}

static int
dir_remove(void **state)
{
    (void)state;
    env.fs->dir_close(dir);
    scratch_dir_remove(&scratch);
    return 0;
}

static struct index *
lmdb_make(void)
{
    struct index *index;

    assert_int_equal(index_lmdb_ops.create(NULL, &env, dir, MAP_BYTES, &index), KVT_OK);
    assert_int_equal(index_lmdb_ops.install(index), KVT_OK);
    assert_int_equal(index_lmdb_ops.mark(index, false), KVT_OK);
    return index;
}

static uint64_t
address_space_used(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;

    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu", &pages), 1);
    assert_int_equal(fclose(file), 0);
    return (uint64_t)pages * PAGE_BYTES;
}

/* With so much address space more than there is in use. */
static enum kvt_status
grow_within(struct index *index, uint64_t bytes)
{
    struct rlimit before, limit;
    enum kvt_status status;

    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    limit = before;
    limit.rlim_cur = (rlim_t)(address_space_used() + bytes);
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    status = index->ops->grow(index, 0);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    return status;
}

static void
commit_holds(struct index *index, uint64_t seed)
{
    struct rng rng = {.state = seed};

    model_batch_random(&model, &batch, &rng, 100, 50);
    assert_int_equal(index->ops->commit(index, &batch.batch), KVT_OK);
    model_check(&model, index);
}

static void
an_index_without_address_space_to_grow_goes_on(void **state)
{
    struct index *index = lmdb_make();
    struct index_stats stats;
    uint32_t refused_count = 0;

    (void)state;
    commit_holds(index, 1);
    while (refused_count < STEPS) {
        enum kvt_status status = grow_within(index, (uint64_t)refused_count * STEP_BYTES);

        if (status == KVT_OK)
            break;
        assert_int_equal(status, KVT_E_NOMEM);
        index->ops->stats(index, &stats);
        assert_int_equal(stats.map_bytes, MAP_BYTES);
        refused_count++;
        commit_holds(index, 1 + refused_count);
    }
    assert_in_range(refused_count, 2 * MAP_BYTES / STEP_BYTES - 1, STEPS - 1);
    index->ops->stats(index, &stats);
    assert_int_equal(stats.map_bytes, 2 * MAP_BYTES);
    commit_holds(index, 2 + refused_count);
    index->ops->close(index);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            an_index_without_address_space_to_grow_goes_on, dir_make, dir_remove),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
