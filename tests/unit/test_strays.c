/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_strays.c - batches that were written and not committed when the power went, wherever they
 * stand: what the next open did not find, no later rebuild brings back. In the simulated world,
 * where a sync or a commit can be made to come late.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "batch_header.h"
#include "bytes.h"
#include "commit.h"
#include "full_faults.h"
#include "stop_on_proof.h"

enum {
    SEEDS = 8,
    STEPS_MAX = 200000,
    FILLER = 13, /* Blocks that leave room for two more in their segment. */
    FIRST = 100, /* Keys: the one that is committed, one behind it, one in the next segment. */
    SECOND,
    THIRD,
};

/* A block that is being written. */
static kvt_ticket *
put_start(struct full_store *full, uint64_t key)
{
    kvt_ticket *ticket = full_put_submit(full, key, 1, KVT_SYNC);

    full_writing_meet(full, key);
    return ticket;
}

/* Step until so many more io operations were started. */
static void
io_meet(struct full_store *full, uint64_t count)
{
    uint64_t io_count = sim_io_count(full->world) + count;

    for (uint32_t i = 0; i < STEPS_MAX && sim_io_count(full->world) < io_count; i++)
        sim_run_steps(full->world, 1);
    assert_true(sim_io_count(full->world) >= io_count);
}

static enum segment_state
state_of(const struct full_store *full, uint32_t number)
{
    return segment_at(full->store->segments, number)->state;
}

/* The power goes; all that was written is there, synced or not. */
static void
cut_with_all_kept(struct full_store *full)
{
    sim_rules_clear(full->world);
    sim_power_cut(full->world, SIM_CUT_ALL_KEPT);
    full_open(full, 0);
}

/* A batch is written, and the power goes before its commit; all that was written is there. */
static void
stray_leave(struct full_store *full)
{
    sim_rule_add(full->world, &full_late_syncs);
    (void)put_start(full, SECOND);
    (void)sim_run_for(full->world, UINT64_C(10) * 1000 * 1000);
    sim_rules_clear(full->world);
    sim_power_cut(full->world, SIM_CUT_ALL_KEPT);
}

/* --- A segment that was closed ---------------------------------------------------------------- */

/*
 * Three batches are written side by side, two into the rest of a segment, and one that does not fit
 * any more: so the segment is closed before the first of them is committed. Then the power goes.
 */
static void
what_is_behind_the_last_commit_of_a_closed_segment_never_comes_to_life(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct full_store *full = full_begin_hasty(seed);
        kvt_ticket *ticket;

        for (uint64_t key = 0; key < FILLER; key++)
            full_put(full, key, 1);
        assert_int_equal(state_of(full, 0), SEGMENT_ACTIVE);
        sim_rule_add(full->world, &full_late_syncs);
        ticket = put_start(full, FIRST);
        io_meet(full, 2); /* Its write, and a sync that does not cover the others. */
        (void)put_start(full, SECOND);
        (void)put_start(full, THIRD);
        assert_int_equal(state_of(full, 0), SEGMENT_SEALED);
        assert_int_equal(state_of(full, 1), SEGMENT_ACTIVE);
        assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, FULL_WAIT_NS), KVT_OK);
        cut_with_all_kept(full);
        assert_int_equal(segment_at(full->store->segments, 0)->void_count, 0); /* Nor left to do. */
        full_expect(full, FIRST, 1);
        assert_false(full_expect_at_most(full, SECOND, 0));
        assert_false(full_expect_at_most(full, THIRD, 0));
        full_again(full, KVT_OPEN_REBUILD);
        full_expect(full, FIRST, 1);
        assert_false(full_expect_at_most(full, SECOND, 0));
        assert_false(full_expect_at_most(full, THIRD, 0));
        full_end(full);
    }
}

/* --- More than one ACTIVE segment in the index ------------------------------------------------ */

static bool
has_free_below(const struct full_store *full, uint32_t number)
{
    for (uint32_t i = 0; i < number; i++) {
        if (state_of(full, i) == SEGMENT_FREE)
            return true;
    }
    return false;
}

/*
 * The last segment of a life stays ACTIVE in the index, however that life ends. The next life goes
 * on with it after a crash, and may fill one before it after an orderly end: a crash then leaves
 * two of them.
 */
static void
a_life_that_fills_a_segment_before_the_last_one_of_another_leaves_nothing_either(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct full_store *full = full_begin_hasty(seed);
        bool is_closed = seed % 2 == 0;
        uint32_t last = 0;

        for (uint32_t i = 0; i < FULL_BLOCKS && !has_free_below(full, last); i++) {
            full_put(full, full->next_cold++, 1);
            (void)sim_run_for(full->world, UINT64_C(100) * 1000 * 1000);
            last = full_active(full)->number;
        }
        assert_true(has_free_below(full, last));
        if (is_closed) {
            assert_int_equal(kvt_close(full->store), KVT_OK);
            full_open(full, 0);
        } else {
            full_again(full, 0);
        }
        full_put(full, FIRST, 1);
        assert_true(
            is_closed ? full_active(full)->number < last : full_active(full)->number == last);
        sim_rule_add(full->world, &full_late_syncs);
        (void)put_start(full, SECOND);
        assert_true(
            is_closed ? full_active(full)->number < last : full_active(full)->number == last);
        (void)sim_run_for(full->world, UINT64_C(10) * 1000 * 1000);
        cut_with_all_kept(full);
        full_expect(full, FIRST, 1);
        assert_false(full_expect_at_most(full, SECOND, 0));
        full_again(full, KVT_OPEN_REBUILD);
        full_expect(full, FIRST, 1);
        assert_false(full_expect_at_most(full, SECOND, 0));
        full_end(full);
    }
}

/* --- What cannot be done ---------------------------------------------------------------------- */

static void
a_stray_that_cannot_be_erased_makes_deletes_of_nothing_fail(void **state)
{
    const struct sim_rule no_write = {
        .ops = SIM_WRITE, .effect = SIM_EIO, .nth = 1, .sticky = true, .file = "data."};

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct full_store *full = full_begin_hasty(seed);

        full_put(full, FIRST, 1);
        sim_rule_add(full->world, &full_late_syncs);
        (void)put_start(full, SECOND);
        (void)sim_run_for(full->world, UINT64_C(10) * 1000 * 1000);
        sim_rules_clear(full->world);
        sim_power_cut(full->world, SIM_CUT_ALL_KEPT);
        sim_rule_add(full->world, &no_write);
        full_open(full, 0);
        assert_null(segment_active(full->store->segments, 0));
        full_expect(full, FIRST, 1);
        assert_int_equal(kit_delete(full->store, full->ns, SECOND), KVT_E_IO);
        cut_with_all_kept(full);
        assert_int_equal(kit_delete(full->store, full->ns, SECOND), KVT_MISS);
        full_again(full, KVT_OPEN_REBUILD);
        full_expect(full, FIRST, 1);
        assert_false(full_expect_at_most(full, SECOND, 0));
        full_end(full);
    }
}

/*
 * It is tried again by the next open, whether the life of the failure ended in order or not, and
 * also when facts of the stray's segment were committed in it.
 */
static void
a_stray_that_could_not_be_erased_is_looked_for_again(void **state)
{
    const struct sim_rule no_write = {
        .ops = SIM_WRITE, .effect = SIM_EIO, .nth = 1, .sticky = true, .file = "data."};

    (void)state;
    for (uint64_t seed = 1; seed <= 2 * SEEDS; seed++) {
        struct full_store *full = full_begin_hasty(seed);

        full_put(full, FIRST, 1);
        full_put(full, THIRD, 1);
        stray_leave(full);
        sim_rule_add(full->world, &no_write);
        full_open(full, 0);
        sim_rules_clear(full->world);
        assert_int_equal(kit_delete(full->store, full->ns, SECOND), KVT_E_IO);
        if (seed % 4 < 2)
            (void)kit_delete(full->store, full->ns, FIRST);
        if (seed % 2 == 0) {
            assert_int_equal(kvt_close(full->store), KVT_E_IO); /* Of the delete. */
            full_open(full, 0);
        } else {
            cut_with_all_kept(full);
        }
        assert_int_equal(kit_delete(full->store, full->ns, SECOND), KVT_MISS);
        full_again(full, KVT_OPEN_REBUILD);
        full_expect(full, THIRD, 1);
        assert_false(full_expect_at_most(full, SECOND, 0));
        full_end(full);
    }
}

/* --- What cannot be read ---------------------------------------------------------------------- */

/* It is not known whether the block of the stray is gone, until the page can be read. */
static void
stray_is_in_doubt(struct full_store *full)
{
    full_open(full, 0);
    assert_null(segment_active(full->store->segments, 0));
    assert_int_equal(kit_delete(full->store, full->ns, SECOND), KVT_E_IO);
    full_faults.page = FULL_PAGE_NONE;
    cut_with_all_kept(full);
    assert_int_equal(kit_delete(full->store, full->ns, SECOND), KVT_MISS);
    full_again(full, KVT_OPEN_REBUILD);
    assert_false(full_expect_at_most(full, SECOND, 0));
}

static void
a_stray_that_cannot_be_read_makes_deletes_of_nothing_fail(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct full_store *full = full_begin_faulty(seed);

        full_put(full, FIRST, 1);
        full_faults.page = segment_active(full->store->segments, 0)->fill_page;
        stray_leave(full);
        stray_is_in_doubt(full);
        full_expect(full, FIRST, 1);
        full_end(full);
    }
}

/* Disks have another sector for a bad one that is written to. */
static void
a_stray_that_cannot_be_read_is_written_over(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct full_store *full = full_begin_faulty(seed);

        full_put(full, FIRST, 1);
        full_faults.page = segment_active(full->store->segments, 0)->fill_page;
        full_faults.is_mending = true;
        stray_leave(full);
        full_open(full, 0);
        assert_true(full_faults.page == FULL_PAGE_NONE);
        assert_non_null(segment_active(full->store->segments, 0));
        assert_int_equal(kit_delete(full->store, full->ns, SECOND), KVT_MISS);
        full_put(full, THIRD, 1);
        full_again(full, KVT_OPEN_REBUILD);
        assert_false(full_expect_at_most(full, SECOND, 0));
        full_expect(full, FIRST, 1);
        full_expect(full, THIRD, 1);
        full_end(full);
    }
}

/* The process is killed when it has erased the stray, before that is on the disk, and the next one
 * finds none. It ends in order, and nobody looks any more when the power has gone. */
static void
a_stray_that_was_erased_by_a_process_that_was_killed_stays_away(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct full_store *full = full_begin_faulty(seed);

        full_put(full, FIRST, 1);
        stray_leave(full);
        full_faults.sync_status = KVT_E_IO;
        full_open(full, 0);
        full_faults.sync_status = KVT_OK;
        sim_vanish(full->world);
        full_open(full, 0);
        assert_int_equal(kit_delete(full->store, full->ns, SECOND), KVT_MISS);
        assert_int_equal(kvt_close(full->store), KVT_OK);
        sim_power_cut(full->world, SIM_CUT_NOTHING_KEPT);
        full_open(full, 0);
        full_again(full, KVT_OPEN_REBUILD);
        full_expect(full, FIRST, 1);
        assert_false(full_expect_at_most(full, SECOND, 0));
        full_end(full);
    }
}

/* Nobody knows where the last commit ends when its own header cannot be read. */
static void
what_may_be_committed_is_not_written_over(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct full_store *full = full_begin_faulty(seed);

        full_put(full, FIRST, 1);
        full_faults.page = residency_at(full->store->map, full_entry(full, FIRST))->page - 1;
        full_faults.is_mending = true;
        stray_leave(full);
        full_open(full, 0);
        assert_true(full_faults.page != FULL_PAGE_NONE);
        full_expect(full, FIRST, 1);
        full_faults.page = FULL_PAGE_NONE;
        full_again(full, KVT_OPEN_REBUILD);
        full_expect(full, FIRST, 1);
        full_end(full);
    }
}

/* What was committed last stands behind it: it is no stray. */
static void
a_page_before_the_last_commit_leaves_nothing_in_doubt(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct full_store *full = full_begin_faulty(seed);

        full_put(full, FIRST, 1);
        full_faults.page = segment_active(full->store->segments, 0)->fill_page;
        full_put(full, THIRD, 1);
        full_put(full, SECOND + 100, 1);
        stray_leave(full);
        full_open(full, 0);
        assert_non_null(segment_active(full->store->segments, 0));
        assert_int_equal(kit_delete(full->store, full->ns, SECOND), KVT_MISS);
        full_faults.page = FULL_PAGE_NONE;
        full_again(full, KVT_OPEN_REBUILD);
        assert_false(full_expect_at_most(full, SECOND, 0));
        full_expect(full, FIRST, 1);
        full_expect(full, THIRD, 1);
        full_end(full);
    }
}

static uint32_t told_count;

static void
told_note(void *context, int level, const char *module, const char *line)
{
    (void)context;
    told_count += level <= KVT_LOG_WARN && strcmp(module, "reclaim") == 0 &&
                  strstr(line, "event=header_unreadable segment=0 page=0 ") != NULL;
}

/* Neither its blocks nor its room are lost with it, and its kills are told and counted. */
static void
a_victim_whose_header_cannot_be_read_is_reclaimed_and_told(void **state)
{
    struct full_store *full = full_begin_faulty(1);
    uint32_t generation;

    (void)state;
    full->options.log = told_note;
    full->options.log_level = KVT_LOG_WARN;
    for (uint32_t i = 0; i < FULL_BLOCKS / 2; i++)
        full_put(full, full->next_cold++, 1);
    assert_int_equal(kvt_close(full->store), KVT_OK);
    full_faults.page = 0;
    full_open(full, 0);
    told_count = 0;
    generation = segment_at(full->store->segments, 0)->generation;
    for (uint32_t i = 0; i < FULL_BLOCKS; i++)
        full_put(full, full->next_cold++, 1);
    assert_true(segment_at(full->store->segments, 0)->generation > generation);
    assert_true(told_count > 0);
    assert_int_equal(atomic_load(&full->store->counters.kill_lost_count), told_count);
    /* Nothing is in doubt for that. */
    assert_int_equal(kit_delete(full->store, full->ns, SECOND), KVT_MISS);
    for (uint64_t key = full->next_cold - FULL_BLOCKS / 4; key < full->next_cold; key++)
        full_expect(full, key, 1);
    full_end(full);
}

/* The page of the next header, from the start of the data file. */
static uint64_t
next_page(const struct full_store *full)
{
    const struct segment *active = segment_active(full->store->segments, 0);

    return (uint64_t)segment_index(active->number) * full->store->file.segment_pages +
           active->fill_page;
}

/* The only kill of a copy that stands in another segment: it is read when the page can be. */
static void
a_kill_whose_header_cannot_be_read_once_is_kept(void **state)
{
    struct full_store *full = full_begin_faulty(1);
    struct segment *victim, *segment;
    uint32_t generation, cursor = 0;
    uint64_t page;

    (void)state;
    assert_int_equal(kvt_close(full->store), KVT_OK);
    full_open(full, 0);
    full_put(full, FIRST, 1);
    (void)full_leave(full);
    victim = segment_active(full->store->segments, 0);
    generation = victim->generation;
    page = next_page(full);
    assert_int_equal(kit_delete(full->store, full->ns, FIRST), KVT_OK);
    assert_int_equal(full_copies_check(full, FIRST), 1);
    (void)full_leave(full);
    while ((segment = segment_next(full->store->segments, &cursor)) != NULL)
        segment->is_passed_over = segment != victim;
    full_faults.page = page;
    assert_true(reclaim_want(full->store));
    for (uint32_t i = 0; i < FULL_BLOCKS && victim->generation == generation; i++) {
        full_put(full, full->next_cold++, 1);
        if (victim->was_unreadable)
            full_faults.page = FULL_PAGE_NONE;
    }
    assert_true(full_faults.page == FULL_PAGE_NONE);
    assert_int_equal(victim->generation, generation + 1);
    assert_int_equal(full_copies_check(full, FIRST), 1);
    assert_int_equal(atomic_load(&full->store->counters.kill_lost_count), 0);
    full_again(full, KVT_OPEN_REBUILD);
    assert_false(full_expect_at_most(full, FIRST, 0));
    full_end(full);
}

/* --- Void entries ----------------------------------------------------------------------------- */

static bool
batch_note(void *visitor, const struct batch_header *header, const struct block_record *records,
    const struct tier_kill *kills)
{
    struct tier_batch *last = visitor;

    (void)records;
    (void)kills;
    last->header = header->extent;
    last->sequence = header->sequence;
    return true;
}

/* Where a batch failed another may stand later, when its segment is filled once more. */
static void
a_void_entry_names_its_batch_and_no_other_in_its_place(void **state)
{
    struct full_store *full = full_begin(1, FULL_SEGMENTS);
    struct tier_batch batch, other;
    struct nvme_scan_result result;

    (void)state;
    full_put(full, FIRST, 1);
    assert_int_equal(
        nvme_scan(full->store->nvme, full_active(full)->number, batch_note, &batch, &result),
        KVT_OK);
    other = batch;
    other.sequence--;
    commit_void(full->store, &other);
    assert_int_equal(kvt_flush(full->store), KVT_OK);
    full_again(full, KVT_OPEN_REBUILD);
    full_expect(full, FIRST, 1);
    commit_void(full->store, &batch);
    assert_int_equal(kvt_flush(full->store), KVT_OK);
    full_again(full, KVT_OPEN_REBUILD);
    assert_false(full_expect_at_most(full, FIRST, 0));
    full_end(full);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_behind_the_last_commit_of_a_closed_segment_never_comes_to_life),
        cmocka_unit_test(
            a_life_that_fills_a_segment_before_the_last_one_of_another_leaves_nothing_either),
        cmocka_unit_test(a_stray_that_cannot_be_erased_makes_deletes_of_nothing_fail),
        cmocka_unit_test(a_stray_that_could_not_be_erased_is_looked_for_again),
        cmocka_unit_test(a_stray_that_cannot_be_read_makes_deletes_of_nothing_fail),
        cmocka_unit_test(a_stray_that_cannot_be_read_is_written_over),
        cmocka_unit_test(a_stray_that_was_erased_by_a_process_that_was_killed_stays_away),
        cmocka_unit_test(what_may_be_committed_is_not_written_over),
        cmocka_unit_test(a_page_before_the_last_commit_leaves_nothing_in_doubt),
        cmocka_unit_test(a_victim_whose_header_cannot_be_read_is_reclaimed_and_told),
        cmocka_unit_test(a_kill_whose_header_cannot_be_read_once_is_kept),
        cmocka_unit_test(a_void_entry_names_its_batch_and_no_other_in_its_place),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
