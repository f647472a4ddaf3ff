/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_failed_batches.c - batches whose write, sync or commit failed, although they may be on the
 * disk: whatever a crash and a rebuild find of them, nothing that was deleted comes back, and
 * nothing that was promised is hidden. In the simulated world, where an error can be a lie.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "commit_internal.h"
#include "full_store.h"
#include "stop_on_proof.h"

enum {
#if defined(__SANITIZE_ADDRESS__)
    SEEDS = 3,
#else
    SEEDS = 8,
#endif
    STEPS_MAX = 200000,
    FILLER = 13, /* Blocks that leave room for two more in their segment. */
    FIRST = 100,
    SECOND,
    THIRD,
    BULK = 200, /* Keys of blocks that fill a batch. */
    BULK_COUNT = 8,
    MANY = 60, /* Four batches and more; as many as HOST takes. */
    MANY_SEGMENTS = 64,
    MOMENTS = 40, /* Of 100 us. */
    WRITES = 3,   /* From the third on: one of them is the last of two batches, written twice. */
};

/* The n-th write is answered with an error, and is there all the same. */
static struct sim_rule
arriving(uint64_t nth, bool sticky)
{
    return (struct sim_rule){
        .ops = SIM_WRITE, .effect = SIM_ARRIVES, .nth = nth, .sticky = sticky, .file = "data."};
}

/* From the n-th on syncs take long. */
static struct sim_rule
late_from(uint64_t nth)
{
    return (struct sim_rule){.ops = SIM_SYNC,
        .effect = SIM_STALL,
        .nth = nth,
        .sticky = true,
        .file = "data.",
        .stall_ns = UINT64_C(50) * 1000 * 1000};
}

/* The bytes of the put are free again. */
static kvt_ticket *
put_submit(struct full_store *full, uint64_t key, uint64_t version, enum kvt_durability durability)
{
    kvt_ticket *ticket = full_put_submit(full, key, version, durability);

    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, FULL_WAIT_NS), KVT_OK);
    return ticket;
}

static kvt_ticket *
put_start(struct full_store *full, uint64_t key)
{
    kvt_ticket *ticket = put_submit(full, key, 1, KVT_SYNC);

    full_writing_meet(full, key);
    return ticket;
}

/* The power goes; all that was written is there, synced or not. */
static void
cut_with_all_kept(struct full_store *full)
{
    sim_rules_clear(full->world);
    sim_power_cut(full->world, SIM_CUT_ALL_KEPT);
    full_open(full, 0);
}

/* A key that is deleted, or was not there, has no block behind a rebuild. */
static void
delete_holds(struct full_store *full, uint64_t key)
{
    assert_true(kit_delete(full->store, full->ns, key) >= 0);
    full_again(full, KVT_OPEN_REBUILD);
    assert_false(full_expect_at_most(full, key, 0));
}

/* --- Those behind it -------------------------------------------------------------------------- */

/* They fail with it, and are written again; what is put only then does not fail, too, and so on
 * without an end. */
static void
one_failure_costs_no_more_than_what_was_in_flight(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        const struct sim_rule fails = {
            .ops = SIM_WRITE, .effect = SIM_EIO, .nth = 2, .file = "data."};
        const struct sim_rule slow = {.ops = SIM_WRITE,
            .effect = SIM_STALL,
            .nth = 1,
            .sticky = true,
            .file = "data.",
            .stall_ns = UINT64_C(20) * 1000 * 1000};
        struct full_store *full = full_begin(seed, MANY_SEGMENTS);
        kvt_ticket *tickets[MANY];

        sim_rule_add(full->world, &fails);
        sim_rule_add(full->world, &slow);
        for (uint64_t i = 0; i < MANY; i++)
            tickets[i] = put_submit(full, BULK + i, 1, KVT_SYNC);
        for (uint64_t i = 0; i < MANY; i++)
            assert_int_equal(full_result(tickets[i]), KVT_OK);
        assert_in_range(atomic_load(&full->store->counters.batch_failed_count), 2, BATCH_COUNT);
        sim_rules_clear(full->world);
        full_end(full);
    }
}

/* --- A batch that failed and arrived ---------------------------------------------------------- */

/* A void entry and kills travel with the first batch that has any; NULL: they do not. */
static const struct batch *
void_batch(const struct full_store *full)
{
    const struct commit *commit = full->store->commit;

    for (uint32_t i = 0; i < BATCH_COUNT; i++) {
        const struct batch *batch = &commit->batches[i];

        if (batch->kill_count > 0)
            return batch->kill_count > 1 && batch->kills[0].order == 0 && batch->kills[1].order != 0
                       ? batch
                       : NULL;
    }
    return NULL;
}

/* The batch that it voids may have a copy of any key: a delete, also of one that is not there, is
 * not promised before that entry is durable. */
static void
any_key_may_be_in_what_a_travelling_entry_voids(void **state)
{
    uint32_t met_count = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct full_store *full = full_begin(seed, FULL_SEGMENTS);
        const struct sim_rule arrives = arriving(1, false);
        const struct sim_rule late = late_from(1);
        const struct batch *batch;
        kvt_ticket *second;
        kvt_ticket *third;

        full_put(full, SECOND, 1);
        sim_rule_add(full->world, &arrives);
        sim_rule_add(full->world, &late);
        (void)put_start(full, FIRST);
        second = full_delete_submit(full, SECOND);
        while ((batch = void_batch(full)) == NULL &&
               kvt_ticket_wait(second, KVT_STAGE_DURABLE, 0) == KVT_LATE)
            sim_run_steps(full->world, 1);
        if (batch != NULL)
            assert_ptr_equal(commit_kill_find(full->store->commit, full_fingerprint(full, THIRD)),
                &batch->kills[0]);
        third = full_delete_submit(full, THIRD);
        if (batch != NULL)
            assert_int_equal(
                kvt_ticket_wait(third, KVT_STAGE_DURABLE, UINT64_C(10) * 1000 * 1000), KVT_LATE);
        met_count += batch != NULL;
        assert_int_equal(full_result(second), KVT_OK);
        assert_true(full_result(third) >= 0);
        full_again(full, 0);
        full_end(full);
    }
    assert_true(met_count > 0);
}

/* Behind it, in the same segment, stands one that was committed. */
static void
what_failed_before_a_batch_of_its_segment_was_committed_stays_deleted(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct full_store *full = full_begin_hasty(seed);
        const struct sim_rule arrives = arriving(1, false);
        const struct sim_rule late = late_from(2);
        kvt_ticket *ticket;

        full_put(full, THIRD, 1);
        sim_rule_add(full->world, &arrives);
        sim_rule_add(full->world, &late);
        (void)put_start(full, FIRST);
        ticket = put_start(full, SECOND);
        assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, FULL_WAIT_NS), KVT_OK);
        cut_with_all_kept(full);
        full_expect(full, SECOND, 1);
        delete_holds(full, FIRST);
        full_expect(full, SECOND, 1);
        full_expect(full, THIRD, 1);
        full_end(full);
    }
}

/* It is the last one of a segment, and the next segment has one that was committed. */
static void
what_failed_at_the_end_of_a_closed_segment_stays_deleted(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct full_store *full = full_begin_hasty(seed);
        const struct sim_rule arrives = arriving(1, false);
        const struct sim_rule late = late_from(2);
        const struct segment *closed;
        kvt_ticket *ticket;

        for (uint64_t key = 0; key < FILLER; key++)
            full_put(full, key, 1);
        full_put(full, FIRST, 1);
        closed = segment_active(full->store->segments, 0);
        sim_rule_add(full->world, &arrives);
        sim_rule_add(full->world, &late);
        (void)put_start(full, SECOND);
        ticket = put_start(full, THIRD);
        assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, FULL_WAIT_NS), KVT_OK);
        assert_int_equal(closed->void_count, 0); /* It travelled with that batch. */
        cut_with_all_kept(full);
        full_expect(full, THIRD, 1);
        delete_holds(full, SECOND);
        full_expect(full, FIRST, 1);
        full_expect(full, THIRD, 1);
        full_end(full);
    }
}

/*
 * The write of the first batch fails; the second, behind it on another segment, is still being
 * written and fails with it. The first is not written again before that is known; the power goes
 * when it is committed.
 */
static void
doomed_one_stays_deleted(struct full_store *full)
{
    const struct sim_rule arrives = arriving(1, false);
    const struct sim_rule slow = {.ops = SIM_WRITE,
        .effect = SIM_STALL,
        .nth = 2,
        .file = "data.",
        .stall_ns = UINT64_C(20) * 1000 * 1000};
    const struct sim_rule late = late_from(2);
    kvt_ticket *ticket;

    sim_rule_add(full->world, &arrives);
    sim_rule_add(full->world, &slow);
    sim_rule_add(full->world, &late);
    ticket = put_start(full, FIRST);
    (void)put_start(full, SECOND);
    for (uint32_t i = 0; i < STEPS_MAX; i++) {
        if (atomic_load(&full->store->counters.batch_failed_count) > 0)
            break;
        sim_run_steps(full->world, 1);
    }
    full_writing_meet(full, FIRST);
    assert_int_equal(atomic_load(&full->store->counters.batch_failed_count), 2);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, FULL_WAIT_NS), KVT_OK);
    cut_with_all_kept(full);
    full_expect(full, FIRST, 1);
    delete_holds(full, SECOND);
    full_expect(full, FIRST, 1);
}

static void
what_failed_with_another_of_the_segment_before_stays_deleted(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct full_store *full = full_begin_hasty(seed);

        for (uint64_t key = 0; key <= FILLER; key++)
            full_put(full, key, 1);
        doomed_one_stays_deleted(full);
        full_end(full);
    }
}

static void
what_failed_with_one_of_another_root_stays_deleted(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct full_store *full = full_begin_two_roots_hasty(seed);

        doomed_one_stays_deleted(full);
        full_end(full);
    }
}

/* The power goes when the last but one of a closed segment is committed, and the last one is on the
 * disk without a commit. False: both were committed together. */
static bool
last_one_stays_deleted(uint64_t seed)
{
    const struct sim_rule slow = {.ops = SIM_WRITE,
        .effect = SIM_STALL,
        .nth = 2,
        .file = "data.",
        .stall_ns = UINT64_C(20) * 1000 * 1000};
    const struct sim_rule second_commit_fails = {
        .ops = SIM_COMMIT, .effect = SIM_ENOSPC, .nth = 2, .sticky = true};
    struct full_store *full = full_begin_hasty(seed);
    const struct segment *closed;
    kvt_ticket *ticket;
    bool is_met;

    for (uint64_t key = 0; key < FILLER; key++)
        full_put(full, key, 1);
    closed = segment_active(full->store->segments, 0);
    sim_rule_add(full->world, &slow);
    sim_rule_add(full->world, &second_commit_fails);
    ticket = put_start(full, FIRST);
    (void)put_start(full, SECOND);
    (void)put_start(full, THIRD);
    assert_int_equal(closed->state, SEGMENT_SEALED);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, FULL_WAIT_NS), KVT_OK);
    is_met = commit_writes(full->store, closed->number);
    (void)sim_run_for(full->world, UINT64_C(40) * 1000 * 1000);
    cut_with_all_kept(full);
    if (is_met)
        assert_int_equal(full_entry(full, SECOND), ENTRY_NONE);
    delete_holds(full, SECOND);
    full_expect(full, FIRST, 1);
    full_end(full);
    return is_met;
}

static void
what_was_not_committed_at_the_end_of_a_closed_segment_stays_deleted(void **state)
{
    uint32_t met_count = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        met_count += last_one_stays_deleted(seed);
    assert_true(met_count > 0);
}

/* No attempt succeeds, the block is in HOST alone, and is deleted there. */
static void
what_could_not_be_made_durable_stays_deleted(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct full_store *full = full_begin_hasty(seed);
        const struct sim_rule arrives = arriving(1, true);
        uint64_t version = 0;

        full->is_refusing = true;
        full_put(full, THIRD, 1);
        sim_rule_add(full->world, &arrives);
        assert_int_equal(
            kit_put(full->store, full->ns, FIRST, 1, FULL_BLOCK_BYTES, KVT_SYNC), KVT_E_IO);
        assert_int_equal(kit_get(full->store, full->ns, FIRST, &version), KVT_OK);
        sim_rules_clear(full->world);
        assert_true(kit_delete(full->store, full->ns, FIRST) >= 0);
        full_put(full, SECOND, 1); /* A sync brings to the disk whatever arrived. */
        full_again(full, KVT_OPEN_REBUILD);
        assert_false(full_expect_at_most(full, FIRST, 0));
        full_expect(full, SECOND, 1);
        full_expect(full, THIRD, 1);
        full_end(full);
    }
}

/*
 * The first attempt arrives, and nothing behind it: no void entry of it is durable when the store
 * is closed in order.
 */
static void
what_failed_before_an_orderly_close_stays_deleted(void **state)
{
    const struct sim_rule arrives = arriving(1, false);
    const struct sim_rule fails = {
        .ops = SIM_WRITE, .effect = SIM_EIO, .nth = 2, .sticky = true, .file = "data."};

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct full_store *full = full_begin_hasty(seed);

        full_put(full, THIRD, 1);
        sim_rule_add(full->world, &arrives);
        sim_rule_add(full->world, &fails);
        assert_int_equal(
            kit_put(full->store, full->ns, FIRST, 1, FULL_BLOCK_BYTES, KVT_SYNC), KVT_E_IO);
        assert_int_equal(kvt_close(full->store), KVT_E_IO);
        sim_rules_clear(full->world);
        full_open(full, 0);
        assert_true(kit_delete(full->store, full->ns, FIRST) >= 0);
        full_put(full, SECOND, 1); /* A sync brings to the disk whatever arrived. */
        full_again(full, KVT_OPEN_REBUILD);
        assert_false(full_expect_at_most(full, FIRST, 0));
        full_expect(full, SECOND, 1);
        full_expect(full, THIRD, 1);
        full_end(full);
    }
}

/* --- Two batches under one failed sync -------------------------------------------------------- */

/*
 * A full batch, and behind it one with a block that replaces an old copy, both written when a sync
 * fails. Both are written again, the power goes at some moment of that, and the index with it.
 * True: the failure was met.
 */
static bool
replace_survives(uint64_t seed, uint32_t write, uint32_t moment)
{
    const struct sim_rule late = {.ops = SIM_SYNC,
        .effect = SIM_STALL,
        .nth = 1,
        .file = "data.",
        .stall_ns = UINT64_C(20) * 1000 * 1000};
    const struct sim_rule fails = {.ops = SIM_SYNC, .effect = SIM_EIO, .nth = 2, .file = "data."};
    /* The second batch, the second time, say: another sync than that of the first covers it. */
    const struct sim_rule late_write = {.ops = SIM_WRITE,
        .effect = SIM_STALL,
        .nth = write,
        .file = "data.",
        .stall_ns = UINT64_C(2) * 1000 * 1000};
    struct full_store *full = full_begin_hasty(seed);
    uint64_t failed_count;
    uint64_t version = 0;

    full_put(full, SECOND, 1);
    sim_rule_add(full->world, &late);
    sim_rule_add(full->world, &fails);
    sim_rule_add(full->world, &late_write);
    (void)put_start(full, FIRST);
    for (uint64_t key = BULK; key < BULK + BULK_COUNT; key++)
        (void)put_submit(full, key, 1, KVT_RELAXED);
    (void)put_submit(full, SECOND, 2, KVT_RELAXED);
    full_writing_meet(full, SECOND);
    for (uint32_t i = 0; i < STEPS_MAX; i++) {
        if (atomic_load(&full->store->counters.batch_failed_count) == 2)
            break;
        sim_run_steps(full->world, 1);
    }
    failed_count = atomic_load(&full->store->counters.batch_failed_count);
    (void)sim_run_for(full->world, moment * UINT64_C(100) * 1000);
    sim_rules_clear(full->world);
    full_again(full, KVT_OPEN_REBUILD);
    assert_int_equal(kit_get(full->store, full->ns, SECOND, &version), KVT_OK);
    assert_in_range(version, 1, 2);
    full_end(full);
    return failed_count == 2;
}

static void
what_is_written_again_hides_no_copy_before_it_is_durable(void **state)
{
    uint32_t met_count = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        for (uint32_t i = 0; i < WRITES * MOMENTS; i++)
            met_count += replace_survives(seed, 3 + i % WRITES, i / WRITES);
    }
    assert_true(met_count > SEEDS * WRITES * MOMENTS / 4);
}

/* --- A commit that was deferred --------------------------------------------------------------- */

/* Whatever fails behind it first, the next commit or the sync, and the sync in any case. */
static void
a_commit_is_not_acknowledged_when_what_makes_it_durable_fails(void **state)
{
    const struct sim_rule rule = {.ops = SIM_COMMIT, .effect = SIM_EIO, .nth = 2, .sticky = true};

    (void)state;
    for (uint64_t seed = 1; seed <= 16 * SEEDS; seed++) {
        struct full_store *full = full_begin_hasty(seed);
        kvt_ticket *first;
        kvt_ticket *second;

        full_put(full, THIRD, 1);
        sim_rule_add(full->world, &rule);
        first = put_submit(full, FIRST, 1, KVT_SYNC);
        second = put_submit(full, SECOND, 1, KVT_SYNC);
        assert_int_equal(full_result(first), KVT_E_META);
        assert_int_equal(full_result(second), KVT_E_META);
        sim_rules_clear(full->world);
        full_again(full, 0);
        full_expect(full, THIRD, 1);
        full_end(full);
    }
}

static uint32_t told_count;   /* Commits that failed, says the log, */
static uint32_t caused_count; /* and those of them of which it says why. */

static void
failure_note(void *context, int level, const char *module, const char *line)
{
    (void)context;
    (void)level;
    (void)module;
    if (strstr(line, "event=commit_failed") == NULL)
        return;
    told_count++;
    caused_count += strstr(line, "injected I/O error") != NULL;
}

/* The sync for the commit that was deferred before fails, too, and for another reason. */
static void
the_log_says_why_a_commit_failed(void **state)
{
    const struct sim_rule rule = {.ops = SIM_COMMIT, .effect = SIM_EIO, .nth = 2, .sticky = true};

    (void)state;
    for (uint64_t seed = 1; seed <= 16 * SEEDS; seed++) {
        struct full_store *full = full_begin_hasty(seed);
        kvt_ticket *tickets[2];

        full->options.log = failure_note;
        full->options.log_level = KVT_LOG_ERROR;
        full_again(full, 0);
        told_count = caused_count = 0;
        sim_rule_add(full->world, &rule);
        tickets[0] = put_submit(full, FIRST, 1, KVT_SYNC);
        tickets[1] = put_submit(full, SECOND, 1, KVT_SYNC);
        assert_int_equal(full_result(tickets[0]), KVT_E_META);
        assert_int_equal(full_result(tickets[1]), KVT_E_META);
        assert_true(told_count > 0);
        assert_int_equal(caused_count, 1);
        sim_rules_clear(full->world);
        full_again(full, 0);
        full_end(full);
    }
}

/*
 * A commit that failed, of a block that takes the place of another; the next batch is written
 * already. Were it committed, its segment would say that both count: the open would not take the
 * first one for a stray, and a rebuild would find what the index knows nothing of.
 */
static void
a_batch_behind_a_commit_that_failed_is_not_committed(void **state)
{
    const struct sim_rule fails = {.ops = SIM_COMMIT, .effect = SIM_EIO, .nth = 1};

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct full_store *full = full_begin_hasty(900 + seed);
        kvt_ticket *tickets[2];
        uint64_t version = 0;

        full_put(full, FIRST, 1);
        sim_rule_add(full->world, &fails);
        tickets[0] = put_submit(full, FIRST, 2, KVT_SYNC);
        full_writing_meet(full, FIRST);
        tickets[1] = put_submit(full, SECOND, 1, KVT_SYNC);
        assert_int_equal(full_result(tickets[0]), KVT_E_META);
        assert_int_equal(full_result(tickets[1]), KVT_E_META);
        sim_rules_clear(full->world);
        full_again(full, 0);
        assert_int_equal(kit_get(full->store, full->ns, FIRST, &version), KVT_OK);
        full_again(full, KVT_OPEN_REBUILD);
        full_expect(full, FIRST, version);
        full_end(full);
    }
}

/*
 * A commit that failed may be in the index all the same, and a delete that was handed over before
 * that was known begins behind it, when nothing of its key waits or travels any more. True: it was
 * such a delete, and was not promised.
 */
static bool
delete_behind_a_failed_commit(uint64_t seed, uint32_t moment)
{
    const struct sim_rule fails = {.ops = SIM_COMMIT, .effect = SIM_EIO, .nth = 1};
    struct full_store *full = full_begin_hasty(seed);
    kvt_ticket *put;
    enum kvt_status status;
    bool is_behind;

    full_put(full, SECOND, 1);
    sim_rule_add(full->world, &fails);
    put = put_submit(full, FIRST, 1, KVT_SYNC);
    full_writing_meet(full, FIRST);
    sim_run_steps(full->world, moment);
    status = KVT_E_READONLY;
    is_behind = atomic_load(&full->store->counters.commit_failed_count) == 0;
    if (is_behind)
        status = full_result(full_delete_submit(full, FIRST));
    assert_int_equal(full_result(put) >= 0, false);
    sim_rules_clear(full->world);
    full_again(full, 0);
    if (status >= 0)
        assert_false(full_expect_at_most(full, FIRST, 0));
    full_expect(full, SECOND, 1);
    full_end(full);
    return is_behind;
}

static void
a_delete_behind_a_commit_that_failed_is_not_promised(void **state)
{
    uint32_t met_count = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        for (uint32_t moment = 0; delete_behind_a_failed_commit(seed, moment); moment++)
            met_count++;
    }
    assert_true(met_count > SEEDS);
}

/* The file of the index grows, and the commit is tried again. */
static void
a_commit_that_finds_the_index_full_goes_through(void **state)
{
    const struct sim_rule is_full = {.ops = SIM_COMMIT, .effect = SIM_ENOSPC, .nth = 1};
    struct full_store *full = full_begin_hasty(1);

    (void)state;
    full_put(full, FIRST, 1);
    sim_rule_add(full->world, &is_full);
    full_put(full, FIRST, 2);
    full_put(full, SECOND, 1);
    assert_int_equal(atomic_load(&full->store->health), 0);
    full_again(full, 0);
    full_expect(full, FIRST, 2);
    full_expect(full, SECOND, 1);
    full_end(full);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_key_may_be_in_what_a_travelling_entry_voids),
        cmocka_unit_test(what_failed_before_a_batch_of_its_segment_was_committed_stays_deleted),
        cmocka_unit_test(what_failed_at_the_end_of_a_closed_segment_stays_deleted),
        cmocka_unit_test(what_failed_with_another_of_the_segment_before_stays_deleted),
        cmocka_unit_test(what_failed_with_one_of_another_root_stays_deleted),
        cmocka_unit_test(what_was_not_committed_at_the_end_of_a_closed_segment_stays_deleted),
        cmocka_unit_test(what_could_not_be_made_durable_stays_deleted),
        cmocka_unit_test(what_failed_before_an_orderly_close_stays_deleted),
        cmocka_unit_test(what_is_written_again_hides_no_copy_before_it_is_durable),
        cmocka_unit_test(a_commit_is_not_acknowledged_when_what_makes_it_durable_fails),
        cmocka_unit_test(the_log_says_why_a_commit_failed),
        cmocka_unit_test(one_failure_costs_no_more_than_what_was_in_flight),
        cmocka_unit_test(a_batch_behind_a_commit_that_failed_is_not_committed),
        cmocka_unit_test(a_delete_behind_a_commit_that_failed_is_not_promised),
        cmocka_unit_test(a_commit_that_finds_the_index_full_goes_through),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
