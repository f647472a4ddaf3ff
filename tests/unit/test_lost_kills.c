/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lost_kills.c - a block is deleted while it is written: room is kept for the kill of its
 * copy; and when there is none all the same, no delete is promised any more. In the simulated
 * world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "commit_internal.h"
#include "full_store.h"
#include "stop_on_proof.h"

enum {
    KEY = 7,
    BESIDE,
};

/* The block is deleted while it is written, and then its kill cannot be remembered. */
static void
no_delete_is_promised_when_the_kill_of_a_block_in_flight_is_lost(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        bool is_asked = i % 2 != 0, is_rebuilt = i / 2 != 0;
        struct full_store *full = full_begin_hasty(10 + i);
        struct commit *commit = full->store->commit;
        kvt_ticket *put = full_put_submit(full, KEY, 1, KVT_SYNC);
        kvt_ticket *deletion = NULL;

        full_writing_meet(full, KEY);
        /* Of what is found damaged nobody waits for the kill. */
        if (!is_asked)
            (void)entry_erase(full->store, full_entry(full, KEY), NULL);
        else
            deletion = full_delete_submit(full, KEY);
        while (full_entry(full, KEY) != ENTRY_NONE)
            sim_run_steps(full->world, 1);
        commit->held_count += COMMIT_KILLS_START; /* As if so many travelled. */
        sim_memory_fail(full->world, 1, true);
        assert_true(full_result(put) >= 0);
        if (deletion != NULL)
            assert_int_equal(full_result(deletion), KVT_E_NOMEM);
        sim_memory_fail(full->world, 0, false);
        commit->held_count -= COMMIT_KILLS_START;
        assert_int_equal(kit_delete(full->store, full->ns, KEY), KVT_E_NOMEM);
        assert_int_equal(kit_stats(full->store).kill_lost_count, 1);
        /* Nor is one of a later copy, whose own kill goes well: the index has the first. */
        full_put(full, KEY, 2);
        assert_int_equal(kit_delete(full->store, full->ns, KEY), KVT_E_NOMEM);
        full_again(full, is_rebuilt ? KVT_OPEN_REBUILD : 0);
        (void)full_expect_at_most(full, KEY, 1);
        assert_true(kit_delete(full->store, full->ns, KEY) >= 0);
        full_again(full, is_rebuilt ? KVT_OPEN_REBUILD : 0);
        assert_false(full_expect_at_most(full, KEY, 0));
        full_end(full);
    }
}

/* The block is deleted while it is written; then other deletes take all room but its kill's. */
static void
room_is_kept_for_the_kill_of_a_block_in_flight(void **state)
{
    struct full_store *full = full_begin_hasty(12);
    struct commit *commit = full->store->commit;
    kvt_ticket *put, *deletion;

    (void)state;
    full_put(full, BESIDE, 1);
    put = full_put_submit(full, KEY, 1, KVT_SYNC);
    full_writing_meet(full, KEY);
    deletion = full_delete_submit(full, KEY);
    while (full_entry(full, KEY) != ENTRY_NONE)
        sim_run_steps(full->world, 1);
    assert_int_equal(commit->held_count, 1);
    commit->held_count = COMMIT_KILLS_START - 1; /* As if so many travelled. */
    sim_memory_fail(full->world, 1, true);
    assert_int_equal(kit_delete(full->store, full->ns, BESIDE), KVT_E_NOMEM);
    assert_int_equal(full_result(put), KVT_MISS);
    assert_int_equal(full_result(deletion), KVT_OK);
    sim_memory_fail(full->world, 0, false);
    assert_int_equal(commit->held_count, COMMIT_KILLS_START - 2);
    commit->held_count = 0;
    assert_int_equal(kit_stats(full->store).kill_lost_count, 0);
    full_expect(full, BESIDE, 1);
    full_again(full, KVT_OPEN_REBUILD);
    assert_false(full_expect_at_most(full, KEY, 0));
    full_end(full);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_delete_is_promised_when_the_kill_of_a_block_in_flight_is_lost),
        cmocka_unit_test(room_is_kept_for_the_kill_of_a_block_in_flight),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
