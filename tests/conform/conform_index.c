/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conform_index.c - one list of checks over the LMDB index and the in-memory index.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "failure.h"
#include "index_model.h"
#include "scratch_dir.h"
#include "stop_on_proof.h"

enum {
    MAP_BYTES = 4 << 20,
    MAP_BYTES_SMALL = 512 << 10,
};

struct rig {
    const struct index_ops *ops;
    void *context; /* The disk of the in-memory index. */
    struct kvt_env env;
    struct scratch_dir scratch;
    struct fs_dir *dir;
};

static const struct index_ops *tested_ops;
static struct index_model model;
static struct index_model model_before;
static struct model_batch batch;

static uint32_t sync_count;

/* In the place of the library's, also for LMDB. */
__attribute__((visibility("default"))) int
fdatasync(int descriptor)
{
    sync_count++;
    return (int)syscall(SYS_fdatasync, descriptor);
}

__attribute__((visibility("default"))) int
fsync(int descriptor)
{
    sync_count++;
    return (int)syscall(SYS_fsync, descriptor);
}

static int
rig_open(void **state)
{
    static struct rig rig;

    rig = (struct rig){.ops = tested_ops};
    memset(&model, 0, sizeof(model));
    env_host(&rig.env);
    scratch_dir_make(&rig.scratch);
    assert_int_equal(rig.env.fs->dir_open(rig.env.fs_context, rig.scratch.path, 0, &rig.dir), 0);
    if (rig.ops == &index_mem_ops) {
        struct index_disk *disk;

        assert_int_equal(index_disk_create(&rig.env, &disk), KVT_OK);
        rig.context = disk;
    }
    *state = &rig;
    return 0;
}

static int
rig_close(void **state)
{
    struct rig *rig = *state;

    index_disk_destroy(rig->context);
    rig->env.fs->dir_close(rig->dir);
    scratch_dir_remove(&rig->scratch);
    return 0;
}

static enum index_condition
condition_of(struct rig *rig)
{
    enum index_condition condition = INDEX_DAMAGED;

    assert_int_equal(rig->ops->inspect(rig->context, &rig->env, rig->dir, &condition), KVT_OK);
    return condition;
}

/* A new, empty index in its place, which is not finished. */
static struct index *
index_begin(struct rig *rig, uint64_t map_bytes)
{
    struct index *index;

    assert_int_equal(
        rig->ops->create(rig->context, &rig->env, rig->dir, map_bytes, &index), KVT_OK);
    assert_int_equal(rig->ops->install(index), KVT_OK);
    return index;
}

static struct index *
index_make(struct rig *rig, uint64_t map_bytes)
{
    struct index *index = index_begin(rig, map_bytes);

    assert_int_equal(rig->ops->mark(index, false), KVT_OK);
    return index;
}

static struct index *
index_open(struct rig *rig, bool read_only)
{
    struct index *index;

    assert_int_equal(rig->ops->open(rig->context, &rig->env, rig->dir, read_only, &index), KVT_OK);
    return index;
}

static struct index *
index_reopen(struct rig *rig, struct index *index)
{
    rig->ops->close(index);
    return index_open(rig, false);
}

/* --- The list --------------------------------------------------------------------------------- */

static void
an_index_that_was_never_made_is_absent(void **state)
{
    struct rig *rig = *state;
    struct index *index = (struct index *)state;

    assert_int_equal(condition_of(rig), INDEX_ABSENT);
    assert_int_equal(condition_of(rig), INDEX_ABSENT);
    assert_int_equal(rig->ops->open(rig->context, &rig->env, rig->dir, false, &index), KVT_MISS);
    assert_null(index);
    rig->ops->close(NULL);
}

static void
a_new_index_is_empty_and_not_finished(void **state)
{
    struct rig *rig = *state;
    struct index *index = index_begin(rig, MAP_BYTES);
    struct index_stats stats;

    model_check(&model, index);
    rig->ops->stats(index, &stats);
    assert_int_equal(stats.map_bytes, MAP_BYTES);
    assert_int_equal(stats.block_count, 0);
    assert_int_equal(stats.commit_count, 0);
    rig->ops->close(index);
    failure_clear();
    assert_int_equal(condition_of(rig), INDEX_DAMAGED);
    assert_non_null(strstr(failure_last()->text, "not finished"));
}

/* Until it is marked, whatever is committed before; then as other ones are. */
static void
a_new_index_is_finished_when_it_is_marked(void **state)
{
    struct rig *rig = *state;
    struct rng rng = {.state = 13};

    for (int clean = 0; clean < 2; clean++) {
        struct index *index = index_begin(rig, MAP_BYTES);

        memset(&model, 0, sizeof(model));
        model_batch_random(&model, &batch, &rng, 50, 0);
        assert_int_equal(rig->ops->commit(index, &batch.batch), KVT_OK);
        rig->ops->close(index);
        assert_int_equal(condition_of(rig), INDEX_DAMAGED);
        index = index_open(rig, false);
        model_batch_random(&model, &batch, &rng, 50, 0);
        assert_int_equal(rig->ops->commit(index, &batch.batch), KVT_OK);
        assert_int_equal(rig->ops->mark(index, clean != 0), KVT_OK);
        model_check(&model, index);
        rig->ops->close(index);
        assert_int_equal(condition_of(rig), clean != 0 ? INDEX_CLEAN : INDEX_UNCLEAN);
    }
}

static void
an_index_that_was_made_but_not_installed_is_absent(void **state)
{
    struct rig *rig = *state;
    struct index *index;

    assert_int_equal(
        rig->ops->create(rig->context, &rig->env, rig->dir, MAP_BYTES, &index), KVT_OK);
    assert_int_equal(condition_of(rig), INDEX_ABSENT);
    rig->ops->close(index);
    assert_int_equal(condition_of(rig), INDEX_ABSENT);
}

static void
random_batches_leave_what_the_model_holds(void **state)
{
    struct rig *rig = *state;
    struct rng rng = {.state = 7};
    struct index *index = index_make(rig, MAP_BYTES);

    for (uint32_t i = 0; i < 60; i++) {
        uint32_t deleted = rng_below(&rng, 100);
        uint32_t added = rng_below(&rng, 120);

        model_batch_random(&model, &batch, &rng, added, deleted);
        assert_int_equal(rig->ops->commit(index, &batch.batch), KVT_OK);
        if (i % 10 == 0)
            model_check(&model, index);
        if (i % 20 == 0)
            index = index_reopen(rig, index);
    }
    model_check(&model, index);
    index = index_reopen(rig, index);
    model_check(&model, index);
    rig->ops->close(index);
    assert_int_equal(condition_of(rig), INDEX_UNCLEAN);
}

static void
deletions_come_before_additions(void **state)
{
    struct rig *rig = *state;
    struct index *index = index_make(rig, MAP_BYTES);

    batch.batch = (struct index_batch){0};
    model_add(&model, &batch, 1, 5);
    model_seal(&model, &batch);
    assert_int_equal(rig->ops->commit(index, &batch.batch), KVT_OK);

    batch.batch = (struct index_batch){0};
    index_model_delete(&model, &batch, 1, 5);
    index_model_delete(&model, &batch, 1, 6); /* Never was there. */
    model_add(&model, &batch, 1, 5);
    model_seal(&model, &batch);
    assert_int_equal(rig->ops->commit(index, &batch.batch), KVT_OK);
    model_check(&model, index);
    rig->ops->close(index);
}

static void
an_addition_to_a_place_in_use_takes_its_place(void **state)
{
    struct rig *rig = *state;
    struct index *index = index_make(rig, MAP_BYTES);

    for (uint32_t i = 0; i < 3; i++) {
        batch.batch = (struct index_batch){0};
        model_add(&model, &batch, 2, 9);
        model_add(&model, &batch, 2, 7);
        model_seal(&model, &batch);
        assert_int_equal(rig->ops->commit(index, &batch.batch), KVT_OK);
        model_check(&model, index);
    }
    rig->ops->close(index);
}

static void
a_place_that_is_added_twice_keeps_the_last(void **state)
{
    struct rig *rig = *state;
    struct index *index = index_make(rig, MAP_BYTES);

    batch.batch = (struct index_batch){0};
    model_add(&model, &batch, 2, 9);
    model_add(&model, &batch, 2, 9);
    model_add(&model, &batch, 2, 10);
    model_seal(&model, &batch);
    assert_int_equal(rig->ops->commit(index, &batch.batch), KVT_OK);
    model_check(&model, index);
    rig->ops->close(index);
}

static void
a_segment_is_emptied_before_the_same_batch_fills_it(void **state)
{
    struct rig *rig = *state;
    struct rng rng = {.state = 11};
    struct index *index = index_make(rig, MAP_BYTES);

    for (uint32_t i = 0; i < 12; i++) {
        model_batch_random(&model, &batch, &rng, 200, 0);
        assert_int_equal(rig->ops->commit(index, &batch.batch), KVT_OK);
    }
    for (uint32_t row = 0; row < MODEL_SEGMENTS; row++) {
        batch.batch = (struct index_batch){0};
        index_model_empty(&model, &batch, row);
        if (row % 3 == 1)
            index_model_empty(&model, &batch, (row + 1) % MODEL_SEGMENTS);
        for (uint32_t i = 0; i < row % 4; i++) {
            index_model_delete(&model, &batch, (row + 2) % MODEL_SEGMENTS, i);
            model_add(&model, &batch, row, rng_below(&rng, MODEL_PAGES / 4) * 4 + i);
        }
        model_seal(&model, &batch);
        assert_int_equal(rig->ops->commit(index, &batch.batch), KVT_OK);
        model_check(&model, index);
    }
    index = index_reopen(rig, index);
    model_check(&model, index);
    rig->ops->close(index);
    assert_int_equal(condition_of(rig), INDEX_UNCLEAN);
}

static void
emptying_an_empty_segment_only_writes_the_facts(void **state)
{
    struct rig *rig = *state;
    struct index *index = index_make(rig, MAP_BYTES);

    batch.batch = (struct index_batch){0};
    index_model_empty(&model, &batch, 3);
    model_seal(&model, &batch);
    assert_int_equal(rig->ops->commit(index, &batch.batch), KVT_OK);
    model_check(&model, index);
    rig->ops->close(index);
}

static void
the_clean_flag_is_what_was_marked_last(void **state)
{
    struct rig *rig = *state;
    struct index *index = index_make(rig, MAP_BYTES);

    assert_int_equal(rig->ops->mark(index, true), KVT_OK);
    rig->ops->close(index);
    assert_int_equal(condition_of(rig), INDEX_CLEAN);
    assert_int_equal(condition_of(rig), INDEX_CLEAN);
    index = index_open(rig, false);
    assert_int_equal(rig->ops->mark(index, false), KVT_OK);
    rig->ops->close(index);
    assert_int_equal(condition_of(rig), INDEX_UNCLEAN);
}

static void
an_installed_index_replaces_the_old_one(void **state)
{
    struct rig *rig = *state;
    struct rng rng = {.state = 5};
    struct index *index = index_make(rig, MAP_BYTES);

    model_batch_random(&model, &batch, &rng, 200, 0);
    assert_int_equal(rig->ops->commit(index, &batch.batch), KVT_OK);
    rig->ops->close(index);

    /* Blocks may be committed before it is installed; until then the old one is in its place. */
    assert_int_equal(
        rig->ops->create(rig->context, &rig->env, rig->dir, MAP_BYTES, &index), KVT_OK);
    memset(&model, 0, sizeof(model));
    model_batch_random(&model, &batch, &rng, 100, 0);
    assert_int_equal(rig->ops->commit(index, &batch.batch), KVT_OK);
    assert_int_equal(rig->ops->install(index), KVT_OK);
    model_check(&model, index);
    assert_int_equal(rig->ops->install(index), KVT_E_STATE);
    index = index_reopen(rig, index);
    model_check(&model, index);
    rig->ops->close(index);
}

static void
a_second_create_starts_over(void **state)
{
    struct rig *rig = *state;
    struct rng rng = {.state = 5};
    struct index *index;

    assert_int_equal(
        rig->ops->create(rig->context, &rig->env, rig->dir, MAP_BYTES, &index), KVT_OK);
    model_batch_random(&model, &batch, &rng, 100, 0);
    assert_int_equal(rig->ops->commit(index, &batch.batch), KVT_OK);
    rig->ops->close(index);
    memset(&model, 0, sizeof(model));
    index = index_make(rig, MAP_BYTES);
    model_check(&model, index);
    rig->ops->close(index);
}

/* Add until the index says that it is full; the model is what it held before that. */
static void
fill(struct rig *rig, struct index *index)
{
    for (uint32_t row = 0; row < MODEL_SEGMENTS; row++) {
        for (uint32_t page = 0; page + 20 <= MODEL_PAGES; page += 20) {
            enum kvt_status status;

            model_before = model;
            batch.batch = (struct index_batch){0};
            for (uint32_t i = 0; i < 20; i++)
                model_add(&model, &batch, row, page + i);
            model_seal(&model, &batch);
            status = rig->ops->commit(index, &batch.batch);
            if (status == KVT_E_NOSPC) {
                model = model_before;
                return;
            }
            assert_int_equal(status, KVT_OK);
        }
    }
    fail_msg("the map never got full");
}

static void
a_full_map_refuses_additions_and_changes_nothing(void **state)
{
    struct rig *rig = *state;
    struct index *index = index_make(rig, MAP_BYTES_SMALL);
    struct index_stats stats;

    fill(rig, index);
    model_check(&model, index);
    rig->ops->stats(index, &stats);
    /* Most of what may be used is used, and the reserve is not. */
    assert_true(stats.used_bytes > MAP_BYTES_SMALL / 2);
    assert_true(stats.used_bytes <= MAP_BYTES_SMALL - MAP_BYTES_SMALL / 4);
    index = index_reopen(rig, index);
    model_check(&model, index);
    rig->ops->close(index);
    assert_int_equal(condition_of(rig), INDEX_UNCLEAN);
}

static void
a_full_map_still_deletes_and_then_adds_again(void **state)
{
    struct rig *rig = *state;
    struct index *index = index_make(rig, MAP_BYTES_SMALL);

    for (uint32_t round = 0; round < 4; round++) {
        fill(rig, index);
        for (uint32_t page = round; page + 4 < MODEL_PAGES; page += 5) {
            batch.batch = (struct index_batch){0};
            for (uint32_t i = 0; i < 4; i++) {
                for (uint32_t row = 0; row < MODEL_SEGMENTS; row++)
                    index_model_delete(&model, &batch, row, page + i);
            }
            model_seal(&model, &batch);
            assert_int_equal(rig->ops->commit(index, &batch.batch), KVT_OK);
        }
        model_check(&model, index);
    }
    rig->ops->close(index);
    assert_int_equal(condition_of(rig), INDEX_UNCLEAN);
}

static void
a_grown_map_keeps_everything_and_takes_more(void **state)
{
    struct rig *rig = *state;
    struct index *index = index_make(rig, MAP_BYTES_SMALL);
    struct index_stats stats;
    struct rng rng = {.state = 3};

    fill(rig, index);
    assert_int_equal(rig->ops->grow(index, 0), KVT_OK);
    rig->ops->stats(index, &stats);
    assert_int_equal(stats.map_bytes, 2 * MAP_BYTES_SMALL);
    model_check(&model, index);
    model_batch_random(&model, &batch, &rng, 200, 0);
    assert_int_equal(rig->ops->commit(index, &batch.batch), KVT_OK);
    assert_int_equal(rig->ops->grow(index, 8 * MAP_BYTES_SMALL), KVT_OK);
    index = index_reopen(rig, index);
    rig->ops->stats(index, &stats);
    assert_int_equal(stats.map_bytes, 8 * MAP_BYTES_SMALL);
    model_check(&model, index);
    rig->ops->close(index);
    assert_int_equal(condition_of(rig), INDEX_UNCLEAN);
}

static void
an_index_opened_for_reading_takes_no_writes(void **state)
{
    struct rig *rig = *state;
    struct rng rng = {.state = 3};
    struct index *index = index_make(rig, MAP_BYTES);

    model_batch_random(&model, &batch, &rng, 200, 0);
    assert_int_equal(rig->ops->commit(index, &batch.batch), KVT_OK);
    assert_int_equal(rig->ops->mark(index, true), KVT_OK);
    rig->ops->close(index);
    index = index_open(rig, true);
    model_check(&model, index);
    assert_int_equal(rig->ops->commit(index, &batch.batch), KVT_E_READONLY);
    assert_int_equal(rig->ops->mark(index, false), KVT_E_READONLY);
    assert_int_equal(rig->ops->grow(index, 0), KVT_E_READONLY);
    model_check(&model, index);
    rig->ops->close(index);
    assert_int_equal(condition_of(rig), INDEX_CLEAN);
}

/* Installed, only made, neither. */
static void
an_index_that_is_removed_is_absent(void **state)
{
    struct rig *rig = *state;

    for (int i = 0; i < 3; i++) {
        struct index *index = i == 1 ? NULL : index_make(rig, MAP_BYTES);

        if (index != NULL)
            rig->ops->close(index);
        if (i < 2) {
            assert_int_equal(
                rig->ops->create(rig->context, &rig->env, rig->dir, MAP_BYTES, &index), KVT_OK);
            rig->ops->close(index);
        }
        assert_int_equal(rig->ops->remove(rig->context, &rig->env, rig->dir), KVT_OK);
        assert_int_equal(condition_of(rig), INDEX_ABSENT);
        assert_false(scratch_exists(&rig->scratch, "data.mdb"));
        assert_false(scratch_exists(&rig->scratch, "data.mdb.new"));
        assert_int_equal(rig->ops->remove(rig->context, &rig->env, rig->dir), KVT_OK);
    }
    rig->ops->close(index_make(rig, MAP_BYTES));
    assert_int_equal(condition_of(rig), INDEX_UNCLEAN);
}

static bool
visit_three(void *visitor, const struct index_block *block)
{
    uint32_t *count = visitor;

    (void)block;
    return ++*count < 3;
}

static bool
visit_two_segments(void *visitor, const struct index_segment *segment)
{
    uint32_t *count = visitor;

    (void)segment;
    return ++*count < 2;
}

static void
a_visitor_can_stop_the_walk(void **state)
{
    struct rig *rig = *state;
    struct rng rng = {.state = 3};
    struct index *index = index_make(rig, MAP_BYTES);
    uint32_t count = 0;

    model_batch_random(&model, &batch, &rng, 50, 0);
    assert_int_equal(rig->ops->commit(index, &batch.batch), KVT_OK);
    assert_int_equal(rig->ops->each_block(index, visit_three, &count), KVT_OK);
    assert_int_equal(count, 3);
    count = 0;
    assert_int_equal(rig->ops->each_segment(index, visit_two_segments, &count), KVT_OK);
    assert_int_equal(count, 2);
    rig->ops->close(index);
}

static void
commits_are_counted(void **state)
{
    struct rig *rig = *state;
    struct rng rng = {.state = 3};
    struct index *index = index_begin(rig, MAP_BYTES);
    struct index_stats stats;

    for (uint32_t i = 0; i < 5; i++) {
        model_batch_random(&model, &batch, &rng, 5, 5);
        assert_int_equal(rig->ops->commit(index, &batch.batch), KVT_OK);
    }
    assert_int_equal(rig->ops->mark(index, true), KVT_OK);
    rig->ops->stats(index, &stats);
    assert_int_equal(stats.commit_count, 6);
    rig->ops->close(index);
}

/* By a sync or the next commit, deferred or not; then everything may be read. */
static void
deferred_commits_are_there_after_what_makes_them_durable(void **state)
{
    struct rig *rig = *state;
    struct rng rng = {.state = 5};
    struct index *index = index_make(rig, MAP_BYTES);

    for (uint32_t i = 0; i < 40; i++) {
        model_batch_random(&model, &batch, &rng, 40, 30);
        assert_int_equal(rig->ops->commit_deferred(index, &batch.batch), KVT_OK);
        if (i % 4 == 1) {
            assert_int_equal(rig->ops->sync(index), KVT_OK);
            model_check(&model, index);
        } else if (i % 4 == 3) {
            model_batch_random(&model, &batch, &rng, 10, 10);
            assert_int_equal(rig->ops->commit(index, &batch.batch), KVT_OK);
            model_check(&model, index);
            index = index_reopen(rig, index);
        }
    }
    assert_int_equal(rig->ops->sync(index), KVT_OK);
    index = index_reopen(rig, index);
    model_check(&model, index);
    rig->ops->close(index);
}

/* The in-memory index loses what is not durable; of LMDB's it is known that there was a sync. */
static void
durable_check(struct rig *rig)
{
    if (rig->context != NULL)
        index_disk_power_cut(rig->context, 0);
    else
        assert_true(sync_count > 0);
}

/* As those of blocks that are not there. */
static void
a_commit_that_changes_nothing_makes_a_deferred_one_durable(void **state)
{
    const struct index_block absent = {.segment = model_segment(0), .page = MODEL_PAGES};
    const struct index_batch nothing = {.deleted = &absent, .deleted_count = 1};
    struct rig *rig = *state;
    struct rng rng = {.state = 5};
    struct index *index = index_make(rig, MAP_BYTES);

    for (uint32_t i = 0; i < 4; i++) {
        model_batch_random(&model, &batch, &rng, 40, 30);
        assert_int_equal(rig->ops->commit_deferred(index, &batch.batch), KVT_OK);
        sync_count = 0;
        assert_int_equal(
            (i % 2 == 0 ? rig->ops->commit : rig->ops->commit_deferred)(index, &nothing), KVT_OK);
        durable_check(rig);
        assert_int_equal(rig->ops->commit(index, &nothing), KVT_OK);
        model_check(&model, index);
        index = index_reopen(rig, index);
        model_check(&model, index);
    }
    rig->ops->close(index);
}

/* What is installed has all that was committed before. */
static void
an_install_makes_a_deferred_commit_durable(void **state)
{
    struct rig *rig = *state;
    struct rng rng = {.state = 5};
    struct index *index;

    assert_int_equal(
        rig->ops->create(rig->context, &rig->env, rig->dir, MAP_BYTES, &index), KVT_OK);
    model_batch_random(&model, &batch, &rng, 40, 0);
    assert_int_equal(rig->ops->commit_deferred(index, &batch.batch), KVT_OK);
    sync_count = 0;
    assert_int_equal(rig->ops->install(index), KVT_OK);
    durable_check(rig);
    model_check(&model, index);
    rig->ops->close(index);
}

static int
list_run(const struct index_ops *ops)
{
#define CHECK(name) cmocka_unit_test_setup_teardown(name, rig_open, rig_close)
    const struct CMUnitTest tests[] = {
        CHECK(an_index_that_was_never_made_is_absent),
        CHECK(a_new_index_is_empty_and_not_finished),
        CHECK(a_new_index_is_finished_when_it_is_marked),
        CHECK(an_index_that_was_made_but_not_installed_is_absent),
        CHECK(random_batches_leave_what_the_model_holds),
        CHECK(deletions_come_before_additions),
        CHECK(an_addition_to_a_place_in_use_takes_its_place),
        CHECK(a_place_that_is_added_twice_keeps_the_last),
        CHECK(a_segment_is_emptied_before_the_same_batch_fills_it),
        CHECK(emptying_an_empty_segment_only_writes_the_facts),
        CHECK(the_clean_flag_is_what_was_marked_last),
        CHECK(an_installed_index_replaces_the_old_one),
        CHECK(a_second_create_starts_over),
        CHECK(a_full_map_refuses_additions_and_changes_nothing),
        CHECK(a_full_map_still_deletes_and_then_adds_again),
        CHECK(a_grown_map_keeps_everything_and_takes_more),
        CHECK(an_index_opened_for_reading_takes_no_writes),
        CHECK(an_index_that_is_removed_is_absent),
        CHECK(a_visitor_can_stop_the_walk),
        CHECK(commits_are_counted),
        CHECK(deferred_commits_are_there_after_what_makes_them_durable),
        CHECK(a_commit_that_changes_nothing_makes_a_deferred_one_durable),
        CHECK(an_install_makes_a_deferred_commit_durable),
    };
#undef CHECK

    tested_ops = ops;
    return cmocka_run_group_tests_name(ops->name, tests, NULL, NULL);
}

int
main(void)
{
    int failed;

    stop_on_proof();
    failed = list_run(&index_mem_ops);
    return failed + list_run(&index_lmdb_ops);
}
