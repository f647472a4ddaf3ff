/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_commit_growth.c - the index has to grow for one commit while another is committed and not
 * durable: that one does not wait until it has grown.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "failure.h"
#include "full_store.h"
#include "stop_on_proof.h"

enum {
    SEEDS = 128,
    PUTS = 3,
    FIRST = 100,
};

/* What the index was asked for, behind the functions that it has. */
static struct {
    const struct index_ops *real;
    struct index_ops ops;
    uint32_t commit_count; /* Good ones. */
    uint32_t sync_count;
    uint32_t growth_count;
    bool is_full;     /* From the first good commit on, until it has grown. */
    bool is_deferred; /* A commit that nothing has made durable. */
    bool sync_fails;
} watch;

static enum kvt_status
commit_watched(struct index *index, const struct index_batch *batch)
{
    enum kvt_status status;

    if (watch.is_full)
        return failure_set(KVT_E_NOSPC, 0, "the map is full");
    status = watch.real->commit_deferred(index, batch);
    watch.commit_count++;
    watch.is_full = watch.growth_count == 0;
    watch.is_deferred = true;
    return status;
}

static enum kvt_status
sync_watched(struct index *index)
{
    watch.sync_count++;
    if (watch.sync_fails)
        return failure_set(KVT_E_META, 0, "the disk cannot sync");
    watch.is_deferred = false;
    return watch.real->sync(index);
}

static enum kvt_status
grow_watched(struct index *index, uint64_t map_bytes)
{
    assert_false(watch.is_deferred);
    watch.growth_count++;
    watch.is_full = false;
    return watch.real->grow(index, map_bytes);
}

static struct full_store *
watched_begin(uint64_t seed, bool sync_fails)
{
    struct full_store *full = full_begin_hasty(seed);

    watch.real = full->store->index->ops;
    watch.ops = *watch.real;
    watch.ops.commit_deferred = commit_watched;
    watch.ops.sync = sync_watched;
    watch.ops.grow = grow_watched;
    watch.commit_count = watch.sync_count = watch.growth_count = 0;
    watch.is_full = watch.is_deferred = false;
    watch.sync_fails = sync_fails;
    full->store->index->ops = &watch.ops;
    return full;
}

static void
watched_end(struct full_store *full)
{
    full->store->index->ops = watch.real;
    full_again(full, 0);
    full_end(full);
}

/* Puts one after another, each in a batch of its own; their results. */
static void
puts_play(struct full_store *full, enum kvt_status results_out[PUTS])
{
    kvt_ticket *tickets[PUTS];

    for (uint32_t i = 0; i < PUTS; i++) {
        tickets[i] = full_put_submit(full, FIRST + i, 1, KVT_SYNC);
        assert_int_equal(kvt_ticket_wait(tickets[i], KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    }
    for (uint32_t i = 0; i < PUTS; i++)
        results_out[i] = full_result(tickets[i]);
}

static void
a_commit_is_durable_before_the_index_grows_for_the_next(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct full_store *full = watched_begin(seed, false);
        enum kvt_status results[PUTS];

        puts_play(full, results);
        for (uint32_t i = 0; i < PUTS; i++)
            assert_int_equal(results[i], KVT_OK);
        assert_int_equal(watch.growth_count, watch.commit_count > 1);
        watched_end(full);
    }
}

static void
the_index_does_not_grow_behind_a_sync_that_failed(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct full_store *full = watched_begin(seed, true);
        enum kvt_status results[PUTS];

        puts_play(full, results);
        for (uint32_t i = 0; i < PUTS; i++)
            assert_int_equal(results[i], KVT_E_META);
        assert_int_equal(watch.sync_count, 1);
        assert_int_equal(watch.commit_count, 1);
        assert_int_equal(watch.growth_count, 0);
        watched_end(full);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_commit_is_durable_before_the_index_grows_for_the_next),
        cmocka_unit_test(the_index_does_not_grow_behind_a_sync_that_failed),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
