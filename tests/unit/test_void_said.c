/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_void_said.c - a batch that failed may be on the disk, with torn payloads: as long as its
 * void entry is not durable all that are put behind its answer say that it is void, however many
 * these are. A rebuild proves the payloads of no more than the last few.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "batch_header.h"
#include "commit_internal.h"
#include "full_store.h"
#include "relocate.h"
#include "stop_on_proof.h"

enum {
    STEPS_MAX = 200000,
    FIRST = 100,
    SECOND,
    THIRD,
    MANY = 20, /* More than a rebuild proves. */
};

/* The next write is answered with an error, and is there all the same. */
static const struct sim_rule arrives = {
    .ops = SIM_WRITE, .effect = SIM_ARRIVES, .nth = 1, .file = "data."};

static void
failures_await(struct full_store *full, uint64_t count)
{
    for (uint32_t i = 0; i < STEPS_MAX; i++) {
        if (atomic_load(&full->store->counters.batch_failed_count) >= count)
            return;
        sim_run_steps(full->world, 1);
    }
    fail_msg("no batch fails");
}

/* The key's new version is written, which fails. Returns where the batch stands. */
static struct extent
replace_fails(struct full_store *full, uint64_t key, uint64_t *number_out)
{
    const struct batch *batches = full->store->commit->batches;
    struct extent header = {0};

    sim_rule_add(full->world, &arrives);
    (void)full_put_submit(full, key, 2, KVT_SYNC);
    full_writing_meet(full, key);
    for (uint32_t i = 0; i < BATCH_COUNT; i++) {
        if (batches[i].state == BATCH_WRITING) {
            header = batches[i].tier_batch.header;
            *number_out = batches[i].tier_batch.sequence;
        }
    }
    return header;
}

/* --- A void entry that is lost ---------------------------------------------------------------- */

/* There was no memory for it; then the block is deleted. A rebuild takes the batch for good, and
 * the kill of what it was to replace reaches the block in it, too. */
static void
a_delete_reaches_a_copy_in_a_batch_that_failed(void **state)
{
    struct full_store *full = full_begin(1, FULL_SEGMENTS);
    struct commit *commit = full->store->commit;
    uint64_t number;

    (void)state;
    full_put(full, FIRST, 1);
    (void)replace_fails(full, FIRST, &number);
    commit->lack_until_ns = UINT64_MAX; /* It is not written again. */
    commit->held_count += COMMIT_KILLS_START;
    sim_memory_fail(full->world, 1, true);
    failures_await(full, 1);
    sim_memory_fail(full->world, 0, false);
    commit->held_count -= COMMIT_KILLS_START;
    assert_int_equal(kit_stats(full->store).kill_lost_count, 1);
    sim_rules_clear(full->world);
    commit->lack_until_ns = 0;
    assert_int_equal(full_result(full_delete_submit(full, FIRST)), KVT_OK);
    sim_power_cut(full->world, SIM_CUT_ALL_KEPT);
    full_open(full, KVT_OPEN_REBUILD);
    assert_false(full_expect_at_most(full, FIRST, 0));
    full_end(full);
}

/* --- Relocations ------------------------------------------------------------------------------ */

static void
block_relocate(struct full_store *full, uint64_t key)
{
    const uint32_t number = full_entry(full, key);
    const struct entry *entry = residency_at(full->store->map, number);
    const struct resident resident = {
        .number = number, .extent = {entry->segment, entry->extent_generation, entry->page}};

    assert_int_equal(relocate_start(full->store, &resident, 1, NVME_ROOT_NONE), 1);
    for (uint32_t i = 0; i < STEPS_MAX && !relocate_is_idle(full->store); i++)
        sim_run_steps(full->world, 1);
    assert_int_equal(relocate_status_take(full->store), KVT_OK);
}

/* NVMe has no room, say, and its blocks are moved until it has. */
static void
a_torn_copy_behind_many_relocations_hides_no_older_one(void **state)
{
    struct full_store *full = full_begin(1, FULL_SEGMENTS);
    struct extent header;
    uint64_t number;

    (void)state;
    full_put(full, FIRST, 1);
    full_put(full, SECOND, 1);
    header = replace_fails(full, FIRST, &number);
    full->store->commit->lack_until_ns = UINT64_MAX;
    failures_await(full, 1);
    for (uint32_t i = 0; i < MANY; i++)
        block_relocate(full, SECOND);
    assert_int_equal(full->store->commit->kills.count, 1); /* Its void entry waits. */
    sim_rules_clear(full->world);
    assert_true(sim_file_corrupt(full->world, "store/data/data.00",
        segment_index(header.segment) * full->options.segment_bytes +
            (uint64_t)(header.page + batch_header_pages(1, 1)) * PAGE_BYTES,
        1));
    sim_power_cut(full->world, SIM_CUT_ALL_KEPT);
    full_open(full, KVT_OPEN_REBUILD);
    full_expect(full, FIRST, 1);
    full_expect(full, SECOND, 1);
    full_end(full);
}

/* --- Batches ---------------------------------------------------------------------------------- */

static bool
says_void(const struct batch *batch, uint64_t number)
{
    for (uint32_t i = 0; i < batch->tier_batch.kill_count; i++) {
        const struct tier_kill *kill = &batch->tier_batch.kills[i];

        if (hash128_is_zero(kill->fingerprint) && kill->sequence == number)
            return true;
    }
    return false;
}

/* The one that has the void entry may be lost, and those beside it not. */
static void
each_batch_beside_that_of_a_void_entry_says_it_too(void **state)
{
    struct full_store *full = full_begin_hasty(1);
    const struct batch *batches = full->store->commit->batches;
    uint32_t writing_count = 0;
    uint64_t number = 0;

    (void)state;
    full_put(full, FIRST, 1);
    sim_rule_add(full->world, &full_late_syncs);
    (void)replace_fails(full, FIRST, &number);
    failures_await(full, 1);
    for (uint64_t key = SECOND; key <= THIRD; key++) {
        assert_int_equal(kvt_ticket_wait(full_put_submit(full, key, 1, KVT_RELAXED), KVT_STAGE_DONE,
                             FULL_WAIT_NS),
            KVT_OK);
        full_writing_meet(full, key);
    }
    for (uint32_t i = 0; i < BATCH_COUNT; i++) {
        if (batches[i].state != BATCH_WRITING)
            continue;
        writing_count++;
        assert_true(says_void(&batches[i], number));
    }
    assert_int_equal(writing_count, 3);
    sim_rules_clear(full->world);
    full_again(full, 0);
    full_end(full);
}

/* What another life has put at the place of a batch that failed, and was voided there, counts: the
 * audit of what is on the disk goes by the number, too, as a rebuild does. */
static void
a_batch_where_a_void_one_stood_counts(void **state)
{
    struct full_store *full = full_begin(1, FULL_SEGMENTS);
    const struct segment *segment;
    struct tier_batch older = {.sequence = 1};

    (void)state;
    full_put(full, 0, 1);
    full_put(full, 1, 1);
    segment = segment_active(full->store->segments, 0);
    older.header =
        (struct extent){segment->number, segment->generation, segment->fill_page}; /* The kill's. */
    assert_int_equal(kit_delete(full->store, full->ns, 0), KVT_OK);
    assert_true(segment->fill_page > older.header.page);
    commit_void(full->store, &older);
    full_put(full, 2, 1);
    kit_audit(full->store);
    full_end(full);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_delete_reaches_a_copy_in_a_batch_that_failed),
        cmocka_unit_test(a_torn_copy_behind_many_relocations_hides_no_older_one),
        cmocka_unit_test(each_batch_beside_that_of_a_void_entry_says_it_too),
        cmocka_unit_test(a_batch_where_a_void_one_stood_counts),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
