/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_rebuilt_owing.c - an index that was rebuilt is not finished before the kills are durable
 * that the rebuild owes: whatever fails or is cut until then leaves it to the next open to rebuild
 * it once more, unless a segment was recycled, which another rebuild would miss. In the simulated
 * world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "commit_internal.h"
#include "committer.h"
#include "full_faults.h"
#include "stop_on_proof.h"

enum {
    DEAD = 100, /* Keys: of the copy that is dead, and of a block beside it. */
    BESIDE,
    CRASHES_MAX = 400,
#if defined(__SANITIZE_ADDRESS__)
    STRIDE = 3, /* Each third crash, ... */
    RACES = 12,
#else
    STRIDE = 1, /* ... or each. */
    RACES = 40,
#endif
    STEPS_MAX = 100000,
    SEGMENTS = 3 * FULL_SEGMENTS, /* Writes that fail cost one each. */
    SEED = 900,
};

static const struct sim_rule no_space = {
    .ops = SIM_WRITE, .effect = SIM_ENOSPC, .nth = 1, .sticky = true, .file = "data."};

/* A dead copy that only a kill of another fill hides, in another segment than its own, which is
 * returned. */
static uint32_t
debt_make(struct full_store *full, uint32_t segment_count)
{
    struct commit_kill kill = {.extent = {.segment = segment_count - 1, .generation = 1}};
    uint32_t killer;

    full_put(full, DEAD, 1);
    full_put(full, BESIDE, 1);
    kill.fingerprint = full_fingerprint(full, DEAD);
    (void)full_leave(full);
    assert_int_equal(commit_kill(full->store, &kill), KVT_OK);
    assert_int_equal(kvt_flush(full->store), KVT_OK);
    killer = full_active(full)->number;
    (void)full_leave(full);
    return killer;
}

static void
index_lose(struct full_store *full)
{
    sim_power_cut(full->world, SIM_CUT_NOTHING_KEPT);
    sim_index_damage(full->world);
}

/* The index is lost, with such a copy, in a store that has recovered from a crash before, or not.
 * *killer_out: the segment of the kill. */
static struct full_store *
owing_begin(bool has_recovered, uint32_t *killer_out)
{
    struct full_store *full = full_begin(SEED, SEGMENTS);

    *killer_out = debt_make(full, SEGMENTS);
    if (has_recovered)
        full_again(full, 0);
    index_lose(full);
    return full;
}

static uint64_t
rebuilt_count(const struct full_store *full)
{
    return atomic_load(&full->store->counters.recover_rebuilt_count);
}

/* The copy is dead by a kill of its own, and the index is as any other. */
static void
debt_is_paid(struct full_store *full)
{
    assert_int_equal(full_copies_check(full, DEAD), 1);
    full_again(full, 0);
    assert_int_equal(rebuilt_count(full), 0);
    assert_int_equal(full_copies_check(full, DEAD), 1);
    full_expect(full, BESIDE, 1);
}

/* The power goes at each moment of the open that rebuilds. */
static void
crashes_cost_no_kills(bool has_recovered)
{
    bool has_ended = false;
    uint64_t n = 1;

    for (; n < CRASHES_MAX && !has_ended; n++) {
        uint32_t killer;
        struct full_store *full = owing_begin(has_recovered, &killer);

        sim_crash_after(full->world, n);
        (void)store_open_in(&full->reach, "/store", &full->options, &full->store);
        has_ended = !sim_crashed(full->world);
        sim_power_cut(full->world, SIM_CUT_NOTHING_KEPT);
        sim_crash_after(full->world, 0);
        full_open(full, 0);
        debt_is_paid(full);
        full_end(full);
    }
    assert_true(has_ended);
    assert_true(n > 10);
}

static void
kills_that_a_rebuild_owes_outlive_a_crash_in_its_open(void **state)
{
    (void)state;
    crashes_cost_no_kills(false);
    crashes_cost_no_kills(true);
}

/* Each commit of the open fails once, on the disk or not: it is refused, or takes no more commits,
 * and the next one pays. */
static void
failed_commits_are_told(bool has_recovered)
{
    bool has_ended = false;
    uint32_t told_count = 0;

    for (uint64_t nth = 1; nth < CRASHES_MAX && !has_ended; nth++) {
        const struct sim_rule rule = {.ops = SIM_COMMIT, .effect = SIM_EIO, .nth = nth};
        uint32_t killer, health = 0;
        struct full_store *full = owing_begin(has_recovered, &killer);
        uint64_t fault_count = sim_fault_count(full->world);
        enum kvt_status status;

        sim_rule_add(full->world, &rule);
        status = store_open_in(&full->reach, "/store", &full->options, &full->store);
        has_ended = sim_fault_count(full->world) == fault_count;
        sim_rules_clear(full->world);
        if (status == KVT_OK)
            assert_int_equal(kvt_health(full->store, &health), KVT_OK);
        assert_int_equal(status == KVT_OK && (health & KVT_HEALTH_META_READONLY) == 0, has_ended);
        told_count += health != 0;
        if (status == KVT_OK)
            assert_true(kvt_close(full->store) == KVT_OK || !has_ended);
        full_open(full, 0);
        debt_is_paid(full);
        full_end(full);
    }
    assert_true(has_ended);
    assert_true(told_count >= 2); /* The commit of the kill, and what finishes the index. */
}

static void
a_commit_that_fails_in_that_open_is_told(void **state)
{
    (void)state;
    failed_commits_are_told(false);
    failed_commits_are_told(true);
}

/* The life goes on, and nothing in it is lost; the next open owes the kills once more, but for
 * those that found space later, behind an orderly close. */
static void
kills_that_could_not_be_written_are_owed_by_the_next_open(void **state)
{
    static const enum sim_effect effects[] = {SIM_ENOSPC, SIM_EIO};

    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        struct sim_rule rule = no_space;
        bool has_ended_well = i % 4 < 2;
        uint32_t killer;
        struct full_store *full = owing_begin(i >= 4, &killer);

        rule.effect = effects[i % 2];
        sim_rule_add(full->world, &rule);
        full_open(full, 0);
        sim_rules_clear(full->world);
        assert_int_equal(rebuilt_count(full), 1);
        assert_false(full_expect_at_most(full, DEAD, 0));
        assert_true(kit_delete(full->store, full->ns, DEAD) < 0);
        (void)sim_run_for(full->world, UINT64_C(60) * 1000 * 1000 * 1000);
        if (rule.effect == SIM_ENOSPC) {
            full_put(full, full->next_cold, 1);
            assert_int_equal(kit_delete(full->store, full->ns, full->next_cold - 1), KVT_OK);
        }
        if (has_ended_well)
            assert_true(kvt_close(full->store) <= KVT_OK); /* What failed is told. */
        else
            sim_power_cut(full->world, SIM_CUT_NOTHING_KEPT);
        full_open(full, 0);
        assert_int_equal(rebuilt_count(full), has_ended_well && rule.effect == SIM_ENOSPC ? 0 : 1);
        if (rule.effect == SIM_ENOSPC) {
            full_expect(full, full->next_cold, 1);
            assert_false(full_expect_at_most(full, full->next_cold - 1, 0));
        }
        debt_is_paid(full);
        full_end(full);
    }
}

/*
 * In such a life the segment is recycled that has what the copy is dead by: another rebuild would
 * find that one alive. The index, which does not have it, counts from then on.
 */
static void
recycling_finishes(bool has_recovered)
{
    uint32_t number, cursor = 0;
    struct full_store *full = owing_begin(has_recovered, &number);
    struct segment *killer, *segment;
    uint32_t generation;

    sim_rule_add(full->world, &no_space);
    full_open(full, 0);
    sim_rules_clear(full->world);
    assert_int_equal(rebuilt_count(full), 1);
    (void)sim_run_for(full->world, UINT64_C(60) * 1000 * 1000 * 1000);
    killer = segment_at(full->store->segments, number);
    generation = killer->generation;
    while ((segment = segment_next(full->store->segments, &cursor)) != NULL)
        segment->is_passed_over = segment != killer;
    assert_true(reclaim_want(full->store));
    for (uint32_t i = 0; i < FULL_BLOCKS && killer->generation == generation; i++)
        full_put(full, full->next_cold++, 1);
    assert_true(killer->generation > generation);
    assert_int_equal(segment_at(full->store->segments, 0)->generation, 1); /* The copy's. */
    full_again(full, 0);
    assert_int_equal(rebuilt_count(full), 0);
    assert_false(full_expect_at_most(full, DEAD, 0));
    full_expect(full, BESIDE, 1);
    full_end(full);
}

static void
an_index_is_finished_before_a_segment_is_recycled(void **state)
{
    (void)state;
    recycling_finishes(false);
    recycling_finishes(true);
}

/* The index was finished meanwhile, by a commit that recycled a segment: then the job that was to
 * do it is no commit, with which the one before it would be durable. Its sync fails. */
static void
a_finish_with_nothing_to_do_is_no_commit(void **state)
{
    static const struct sim_rule second = {.ops = SIM_COMMIT, .effect = SIM_EIO, .nth = 2};

    (void)state;
    for (uint64_t seed = 0; seed < RACES; seed++) {
        struct full_store *full = full_begin(SEED + seed, FULL_SEGMENTS);
        uint32_t group_count = full->store->commit->group_count;
        kvt_ticket *ticket;

        atomic_store(&full->store->counters.recover_unread_count, 1); /* It waits for nothing. */
        sim_rule_add(full->world, &second);
        ticket = full_put_submit(full, BESIDE, 1, KVT_SYNC);
        for (uint32_t i = 0; i < STEPS_MAX && full->store->commit->group_count == group_count; i++)
            sim_run_steps(full->world, 1);
        index_finish_await(full->store);
        assert_true(full_result(ticket) < 0);
        assert_true(kvt_close(full->store) < 0);
        sim_rules_clear(full->world);
        full_open(full, 0);
        full_end(full);
    }
}

/* --- Pages that cannot be read ---------------------------------------------------------------- */

/* As owing_begin(); and a page that may be a header cannot be read. */
static struct full_store *
unread_begin(void)
{
    struct full_store *full = full_begin_faulty(SEED);
    uint64_t page;

    (void)debt_make(full, FULL_SEGMENTS);
    page = full_active(full)->fill_page +
           (uint64_t)full_active(full)->number * full->store->file.segment_pages;
    index_lose(full);
    full_faults.page = page;
    return full;
}

/*
 * A rebuild that was asked for has gone on without that page, and its kills could not be written:
 * what it promised nobody is told of, and no other open has to be asked for the same. The debt is
 * found again by the rebuild that can read all.
 */
static void
a_store_that_a_rebuild_could_not_read_all_of_opens_again(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct full_store *full = unread_begin();

        full->options.flags = 0;
        assert_int_equal(
            store_open_in(&full->reach, "/store", &full->options, &full->store), KVT_E_IO);
        sim_rule_add(full->world, &no_space);
        full_open(full, KVT_OPEN_REBUILD);
        assert_int_equal(atomic_load(&full->store->counters.recover_unread_count), 1);
        assert_true(kit_delete(full->store, full->ns, DEAD) < 0);
        if (i == 0)
            assert_true(kvt_close(full->store) <= KVT_OK);
        else
            sim_power_cut(full->world, SIM_CUT_NOTHING_KEPT);
        sim_rules_clear(full->world);
        full_open(full, 0);
        assert_int_equal(rebuilt_count(full), 0);
        assert_false(full_expect_at_most(full, DEAD, 0));
        full_expect(full, BESIDE, 1);
        full_faults.page = FULL_PAGE_NONE;
        full_again(full, KVT_OPEN_REBUILD);
        assert_false(full_expect_at_most(full, DEAD, 0));
        debt_is_paid(full);
        full_end(full);
    }
}

/* Until such an open has come to its end a crash leaves it to the next one, which has to be asked
 * for as this one had. */
static void
a_crash_before_its_end_costs_no_kills(void **state)
{
    bool has_ended = false;
    uint64_t n = 1;

    (void)state;
    for (; n < CRASHES_MAX && !has_ended; n++) {
        struct full_store *full = unread_begin();

        full->options.flags = KVT_OPEN_REBUILD;
        sim_crash_after(full->world, n);
        (void)store_open_in(&full->reach, "/store", &full->options, &full->store);
        has_ended = !sim_crashed(full->world);
        sim_power_cut(full->world, SIM_CUT_NOTHING_KEPT);
        sim_crash_after(full->world, 0);
        full->options.flags = 0;
        if (store_open_in(&full->reach, "/store", &full->options, &full->store) == KVT_OK)
            sim_power_cut(full->world, SIM_CUT_NOTHING_KEPT);
        else
            full->options.flags = KVT_OPEN_REBUILD;
        full_open(full, full->options.flags);
        full_faults.page = FULL_PAGE_NONE;
        debt_is_paid(full);
        full_end(full);
    }
    assert_true(has_ended);
    assert_true(n > 10);
}

/* --- A store that is made --------------------------------------------------------------------- */

/* Its first index owes nothing, and is not finished before it is marked, either: a cut leaves it to
 * the next open. */
static void
a_store_that_was_cut_while_it_was_made_is_made_anew(void **state)
{
    bool has_ended = false;

    (void)state;
    for (uint64_t n = 1; n < CRASHES_MAX && !has_ended; n += STRIDE) {
        const struct sim_options options = {.seed = n};
        struct sim_world *world = sim_world_create(&options);
        const struct store_world reach = {
            .env = sim_env(world), .index_ops = &sim_index_ops, .index_context = world};
        struct kvt_options wanted = kit_options();
        kvt_namespace space;
        kvt_store *store = NULL;

        wanted.nvme_capacity_bytes = (uint64_t)FULL_SEGMENTS << 20;
        sim_crash_after(world, n);
        (void)store_open_in(&reach, "/store", &wanted, &store);
        has_ended = !sim_crashed(world);
        sim_power_cut(world, SIM_CUT_NOTHING_KEPT);
        sim_crash_after(world, 0);
        for (uint64_t life = 0; life < 2; life++) {
            assert_int_equal(store_open_in(&reach, "/store", &wanted, &store), KVT_OK);
            if (life > 0)
                assert_int_equal(atomic_load(&store->counters.recover_rebuilt_count), 0);
            assert_int_equal(kvt_namespace_open(store, "space", "model", 5, &space), KVT_OK);
            assert_int_equal(
                kit_put(store, space, DEAD + life, 1, FULL_BLOCK_BYTES, KVT_SYNC), KVT_OK);
            sim_power_cut(world, SIM_CUT_NOTHING_KEPT);
        }
        sim_world_destroy(world);
    }
    assert_true(has_ended);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kills_that_a_rebuild_owes_outlive_a_crash_in_its_open),
        cmocka_unit_test(a_commit_that_fails_in_that_open_is_told),
        cmocka_unit_test(kills_that_could_not_be_written_are_owed_by_the_next_open),
        cmocka_unit_test(an_index_is_finished_before_a_segment_is_recycled),
        cmocka_unit_test(a_finish_with_nothing_to_do_is_no_commit),
        cmocka_unit_test(a_store_that_a_rebuild_could_not_read_all_of_opens_again),
        cmocka_unit_test(a_crash_before_its_end_costs_no_kills),
        cmocka_unit_test(a_store_that_was_cut_while_it_was_made_is_made_anew),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
