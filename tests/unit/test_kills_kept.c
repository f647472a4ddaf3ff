/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_kills_kept.c - kills that are still to come: those of blocks that are to take the place of
 * others have their room, those of blocks that are being written are found in a few steps, and one
 * that failed is waited for. In the simulated world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "commit_internal.h"
#include "full_store.h"
#include "nvme_internal.h"
#include "stop_on_proof.h"

enum {
    KEY = FULL_COLD,
    OTHER,
    MANY = 100, /* Most of them in one batch. */
    ABSENT = 100000,
    STEPS_MAX = 6, /* Of a chain, by chance. */
#if defined(__SANITIZE_ADDRESS__)
    ORDER_SEEDS = 3,
#else
    ORDER_SEEDS = 8,
#endif
};

/* RELAXED puts wait for long. */
static struct full_store *
patient_begin(uint64_t seed)
{
    struct full_store *full = full_begin(seed, FULL_SEGMENTS);

    full->options.relaxed_interval_ns = FULL_WAIT_NS;
    full_again(full, 0);
    return full;
}

/* --- 1. Room ---------------------------------------------------------------------------------- */

/* Kills of nothing, until no more can be remembered. */
static void
kills_fill(struct full_store *full)
{
    const struct commit_kill kill = {.fingerprint = full_fingerprint(full, ABSENT)};

    while (commit_kill(full->store, &kill) == KVT_OK)
        continue;
}

/* So many of them travel in the batch. */
static void
kills_travel(struct commit *commit, struct batch *batch, uint32_t count)
{
    batch->kill_count = count;
    for (uint32_t i = 0; i < count; i++)
        kill_queue_take(&commit->kills, &batch->kills[i]);
}

/* The kill that travels with a block keeps its room, whatever comes back from batches that failed;
 * what comes back has its own. */
static void
a_kill_of_a_failed_batch_takes_no_room_of_others(void **state)
{
    struct full_store *full = patient_begin(50);
    struct commit *commit = full->store->commit;
    struct flight *flight;
    struct kill_item item;
    uint32_t count;

    (void)state;
    full_put(full, KEY, 1);
    assert_int_equal(
        full_stage_result(full_put_submit(full, KEY, 2, KVT_RELAXED), KVT_STAGE_DONE).status,
        KVT_OK);
    flight = entries_at(full->store->entries, full_entry(full, KEY))->flight;
    assert_true(flight->state == FLIGHT_QUEUED && flight->has_replaced);
    assert_int_equal(commit->held_count, 1);
    sim_memory_fail(full->world, 1, true);
    kills_fill(full);
    for (uint32_t i = 0; i < BATCH_COUNT; i++) {
        assert_int_equal(commit->batches[i].state, BATCH_IDLE);
        kills_travel(commit, &commit->batches[i], COMMIT_KILLS_MAX);
        kills_fill(full);
    }
    for (uint32_t i = 0; i < BATCH_COUNT; i++) {
        kill_queue_return(&commit->kills, commit->batches[i].kills, COMMIT_KILLS_MAX);
        commit->batches[i].kill_count = 0;
    }
    count = commit->kills.count;
    commit_replace_end(full->store, flight); /* Fails a proof if there is no room. */
    assert_int_equal(commit->kills.count, count + 1);
    sim_memory_fail(full->world, 0, false);
    for (count = 0; commit->kills.count > 0; count++)
        kill_queue_take(&commit->kills, &item);
    assert_in_range(count, BATCH_COUNT * COMMIT_KILLS_MAX, COMMIT_KILLS_START);
    assert_true(hash128_equal(item.kill.fingerprint, full_fingerprint(full, KEY)));
    full_again(full, 0);
    full_end(full);
}

/* Nor does that of a block that leaves the map while it is written, when there is no room. */
static void
a_kill_without_room_takes_none_of_others(void **state)
{
    struct full_store *full = patient_begin(51);
    struct commit *commit = full->store->commit;
    struct flight *flight;
    uint32_t count;

    (void)state;
    full_put(full, OTHER, 1);
    sim_rule_add(full->world, &full_late_syncs);
    kvt_ticket_free(full_put_submit(full, KEY, 1, KVT_SYNC));
    full_writing_meet(full, KEY);
    assert_int_equal(
        full_stage_result(full_put_submit(full, OTHER, 2, KVT_RELAXED), KVT_STAGE_DONE).status,
        KVT_OK);
    flight = entries_at(full->store->entries, full_entry(full, OTHER))->flight;
    assert_true(flight->state == FLIGHT_QUEUED && flight->has_replaced);
    sim_memory_fail(full->world, 1, true);
    kills_fill(full);
    count = commit->kills.count;
    full_writing_meet(full, KEY);
    assert_int_equal(entry_erase(full->store, full_entry(full, KEY), NULL), KVT_OK);
    commit_replace_end(full->store, flight); /* Fails a proof if there is no room. */
    assert_int_equal(commit->kills.count, count + 1);
    sim_memory_fail(full->world, 0, false);
    full_again(full, 0);
    full_end(full);
}

/* A block that could not be written waits for its turn, and a put that is to replace it for it. */
static kvt_ticket *
put_waits_for_a_failed_block(struct full_store *full)
{
    const struct sim_rule fails = {.ops = SIM_WRITE, .effect = SIM_EIO, .nth = 1, .file = "data."};
    const struct flight *flight;
    kvt_ticket *ticket = full_put_submit(full, KEY, 1, KVT_SYNC);
    kvt_ticket *second;

    sim_rule_add(full->world, &fails);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, FULL_WAIT_NS), KVT_OK);
    full_writing_meet(full, KEY);
    full->store->commit->lack_until_ns = UINT64_MAX;
    second = full_put_submit(full, KEY, 2, KVT_RELAXED);
    flight = entries_at(full->store->entries, full_entry(full, KEY))->flight;
    while (flight->state == FLIGHT_WRITING)
        sim_run_steps(full->world, 1);
    assert_int_equal(flight->state, FLIGHT_QUEUED);
    assert_non_null(flight->waiters.first);
    kvt_ticket_free(ticket);
    return second;
}

/*
 * The delete of that block lets the put begin, which evicts another one: there was room for one
 * more kill, and that takes it. The delete is told, and nothing else is lost.
 */
static void
a_delete_that_cannot_wait_for_a_kill_is_told(void **state)
{
    struct full_store *full = patient_begin(52);
    struct commit *commit = full->store->commit;
    const struct commit_kill kill = {.fingerprint = full_fingerprint(full, ABSENT)};
    kvt_ticket *put;
    kvt_ticket *deletion;

    (void)state;
    full_put(full, KEY + 1, 1);
    put = put_waits_for_a_failed_block(full);
    assert_int_equal(commit->kills.count, 1); /* The void entry, for which deletes wait. */
    while (commit->kills.count + 2 < commit->kills.capacity)
        assert_int_equal(commit_kill(full->store, &kill), KVT_OK);
    full->store->options.entry_count_max = 1;
    deletion = full_delete_submit(full, KEY);
    sim_memory_fail(full->world, 1, true);
    assert_int_equal(kvt_ticket_wait(deletion, KVT_STAGE_DONE, FULL_WAIT_NS), KVT_OK);
    assert_int_equal(full_entry(full, KEY + 1), ENTRY_NONE);
    assert_int_equal(commit->kills.count + 1, commit->kills.capacity);
    assert_int_equal(full_result(deletion), KVT_E_NOMEM);
    assert_int_equal(commit_kill_find(commit, full_fingerprint(full, KEY))->order, 0);
    sim_memory_fail(full->world, 0, false);
    assert_int_equal(kvt_ticket_wait(put, KVT_STAGE_DONE, FULL_WAIT_NS), KVT_OK);
    kvt_ticket_free(put);
    sim_rules_clear(full->world);
    full_again(full, 0);
    full_end(full);
}

/* --- 2. Steps --------------------------------------------------------------------------------- */

static struct payload_key names[MANY];
static struct kvt_key keys[MANY];
static struct kvt_put about[MANY];

/* They are written together, with the block of another key. */
static void
many_put(struct full_store *full)
{
    static uint8_t bytes[512];
    kvt_ticket *ticket;

    for (uint32_t i = 0; i < MANY; i++) {
        payload_key_make(&names[i], KEY + i);
        keys[i] = names[i].key;
        about[i] = (struct kvt_put){.key = keys[i], .source = bytes, .length = sizeof(bytes)};
    }
    assert_int_equal(
        kvt_put_submit(full->store, full->ns, about, MANY, KVT_RELAXED, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, FULL_WAIT_NS), KVT_OK);
    kvt_ticket_free(ticket);
    kvt_ticket_free(full_put_submit(full, KEY + MANY, 1, KVT_SYNC));
    full_writing_meet(full, KEY + MANY);
}

/* How many flights there are whose blocks were deleted while they are written. *longest_out: what
 * whoever looks for one passes by at most. */
static uint32_t
killed_count(const struct commit *commit, uint32_t *longest_out)
{
    uint32_t count = 0;

    *longest_out = 0;
    for (uint32_t i = 0; i < KILLED_HEADS; i++) {
        uint32_t step_count = 0;

        for (const struct flight *at = commit->killed[i]; at != NULL; at = at->killed_next)
            step_count++;
        count += step_count;
        *longest_out = step_count > *longest_out ? step_count : *longest_out;
    }
    return count;
}

static void
a_delete_of_an_absent_key_passes_by_few_blocks_that_are_written(void **state)
{
    struct full_store *full = patient_begin(51);
    const struct commit *commit = full->store->commit;
    kvt_ticket *deletion;
    uint32_t longest;

    (void)state;
    many_put(full);
    assert_int_equal(killed_count(commit, &longest), 0);
    assert_int_equal(kvt_delete_submit(full->store, full->ns, keys, MANY, NULL, &deletion), KVT_OK);
    while (full_entry(full, KEY + MANY - 1) != ENTRY_NONE)
        sim_run_steps(full->world, 1);
    assert_in_range(killed_count(commit, &longest), MANY / 2, MANY);
    assert_in_range(longest, 1, STEPS_MAX);
    assert_int_equal(kvt_ticket_wait(deletion, KVT_STAGE_DURABLE, FULL_WAIT_NS), KVT_OK);
    assert_int_equal(killed_count(commit, &longest), 0);
    kvt_ticket_free(deletion);
    full_again(full, KVT_OPEN_REBUILD);
    for (uint32_t i = 0; i < MANY; i++)
        assert_int_equal(full_entry(full, KEY + i), ENTRY_NONE);
    full_end(full);
}

/* --- 3. In order ------------------------------------------------------------------------------ */

/* The kill of a block is in a batch that has failed, behind one that is still being written: nobody
 * else who deletes the block is told before the kill is durable. */
static void
a_kill_that_failed_is_waited_for_before_anybody_knows(void **state)
{
    uint32_t met_count = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= ORDER_SEEDS; seed++) {
        const struct sim_rule slow = {.ops = SIM_WRITE,
            .effect = SIM_STALL,
            .nth = 1,
            .file = "data.",
            .stall_ns = UINT64_C(20) * 1000 * 1000};
        const struct sim_rule fails = {
            .ops = SIM_WRITE, .effect = SIM_EIO, .nth = 2, .file = "data."};
        struct full_store *full = full_begin_two_roots_hasty(seed);
        const struct nvme_tier *nvme = full->store->nvme;
        kvt_ticket *first;

        full_put(full, OTHER, 1);
        sim_rule_add(full->world, &slow);
        sim_rule_add(full->world, &fails);
        (void)full_put_submit(full, KEY, 1, KVT_SYNC);
        full_writing_meet(full, KEY);
        first = full_delete_submit(full, OTHER);
        while (kvt_ticket_wait(first, KVT_STAGE_DURABLE, 0) == KVT_LATE) {
            if (nvme->put_last != nvme->put_first && nvme->put_last->state == PUT_FAILED)
                break;
            sim_run_steps(full->world, 1);
        }
        met_count += nvme->put_last != nvme->put_first;
        assert_true(full_result(full_delete_submit(full, OTHER)) >= 0);
        full_again(full, 0);
        assert_false(full_expect_at_most(full, OTHER, 0));
        full_end(full);
    }
    assert_true(met_count > 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kill_of_a_failed_batch_takes_no_room_of_others),
        cmocka_unit_test(a_kill_without_room_takes_none_of_others),
        cmocka_unit_test(a_delete_that_cannot_wait_for_a_kill_is_told),
        cmocka_unit_test(a_delete_of_an_absent_key_passes_by_few_blocks_that_are_written),
        cmocka_unit_test(a_kill_that_failed_is_waited_for_before_anybody_knows),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
