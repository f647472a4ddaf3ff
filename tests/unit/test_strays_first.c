/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_strays_first.c - an open that finds kills to write looks for what a crash left before it
 * writes them: the segment that takes batches again is not being reclaimed by then. In the
 * simulated world.
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
    FILLS = 24,
    SEEDS = 4, /* Of each: when the loop has its turns. */
    STEPS = 2000,
    KEY = 100,
};

static const struct sim_rule slow = {.ops = SIM_COMMIT,
    .effect = SIM_STALL,
    .nth = 1,
    .stall_ns = UINT64_C(5) * 1000000,
    .sticky = true};

/* Two records of the key are committed, and the kill of the older one is not: the block was deleted
 * while it was written. Then the power goes. */
static void
doubled_leave(struct full_store *full)
{
    kvt_ticket *ticket;

    sim_rule_add(full->world, &slow);
    (void)full_put_submit(full, KEY, 1, KVT_SYNC);
    full_writing_meet(full, KEY);
    (void)full_delete_submit(full, KEY);
    ticket = full_put_submit(full, KEY, 2, KVT_SYNC);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, FULL_WAIT_NS), KVT_OK);
    sim_rules_clear(full->world);
    sim_power_cut(full->world, SIM_CUT_ALL_KEPT);
}

/* Most of what NVMe holds is deleted: the emptiest segment is the one to reclaim. */
static void
most_delete(struct full_store *full)
{
    kvt_ticket *last = NULL;

    for (uint64_t key = FULL_COLD; key < full->next_cold; key++) {
        if (key % 3 != 0 && full_entry(full, key) != ENTRY_NONE)
            last = full_delete_submit(full, key);
    }
    assert_int_equal(full_result(last), KVT_OK);
}

static bool
is_active_claimed(const struct full_store *full)
{
    const struct segment *active = segment_active(full->store->segments, 0);

    return active != NULL && active->is_claimed;
}

/* It has one block more each time, and is full again. */
static void
the_segment_that_takes_batches_again_is_no_victim(void **state)
{
    uint32_t doubled_count = 0;

    (void)state;
    for (uint32_t run = 0; run < SEEDS * FILLS; run++) {
        struct full_store *full = full_begin_hasty(1000 + run);

        full_fill(full);
        for (uint32_t i = 0; i < run % FILLS; i++)
            full_put(full, full->next_cold++, 1);
        most_delete(full);
        doubled_leave(full);
        full_open(full, 0);
        doubled_count += full->store->commit->order > 0;
        for (uint32_t i = 0; i < STEPS; i++) {
            assert_false(is_active_claimed(full));
            sim_run_steps(full->world, 1);
        }
        assert_false(store_is_poisoned(full->store));
        full_expect(full, KEY, 2);
        full_again(full, KVT_OPEN_REBUILD);
        full_expect(full, KEY, 2);
        full_end(full);
    }
    assert_true(doubled_count > SEEDS * FILLS / 2);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_segment_that_takes_batches_again_is_no_victim),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
