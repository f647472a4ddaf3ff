/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_roots.c - a store on two disks of which one takes no writes any more: that one can be read,
 * and the other is filled and reclaimed as if it were alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "full_store.h"
#include "nvme_internal.h"
#include "stop_on_proof.h"

enum {
    KEPT = 100, /* Blocks that there are when the disk fails: on both, and room is left. */
    MORE = 4 * FULL_BLOCKS,
    MOMENTS = 24,
};

/* Which of the first blocks lie on the second disk. */
static uint32_t
blocks_on_second(const struct full_store *full, bool is_there_out[KEPT])
{
    uint32_t count = 0;

    for (uint64_t key = 0; key < KEPT; key++) {
        uint32_t number = full_entry(full, key);

        is_there_out[key] = number != ENTRY_NONE &&
                            entries_has_copy(full->store->entries, POLICY_NVME, number) &&
                            segment_root(residency_at(full->store->map, number)->segment) == 1;
        count += is_there_out[key];
    }
    return count;
}

static uint64_t
recycled_count(const struct full_store *full)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};

    assert_int_equal(kvt_stats_get(full->store, &stats), KVT_OK);
    return stats.segment_recycle_count;
}

/* Four times what the other disk holds is put, and all of it is durable. */
static void
second_fails(struct full_store *full)
{
    uint64_t before = recycled_count(full);

    full->store->nvme->roots[1].is_read_only = true;
    for (uint32_t i = 0; i < MORE; i++)
        full_put(full, full->next_cold++, 1);
    assert_true(recycled_count(full) > before + FULL_SEGMENTS);
}

static void
a_disk_that_takes_no_writes_keeps_its_blocks_and_the_other_is_reclaimed(void **state)
{
    struct full_store *full = full_begin_two_roots(1);
    bool is_on_second[KEPT];

    (void)state;
    for (uint64_t key = 0; key < KEPT; key++)
        full_put(full, key, 1);
    assert_true(blocks_on_second(full, is_on_second) > KEPT / 4);
    second_fails(full);
    for (uint64_t key = 0; key < KEPT; key++) {
        if (is_on_second[key])
            full_expect(full, key, 1);
    }
    full_end(full);
}

/* A segment is being reclaimed; `is_empty`: one of the second disk, of which nothing is left. */
static bool
is_met(const struct full_store *full, bool is_empty)
{
    return is_empty ? segment_count_in(full->store->segments, 1, SEGMENT_RECYCLING) > 0
                    : !reclaim_is_idle(full->store);
}

/* Puts until one is under way then: its ticket. */
static kvt_ticket *
reclaim_meet(struct full_store *full, bool is_empty)
{
    for (uint32_t i = 0; i < FULL_BLOCKS; i++) {
        kvt_ticket *ticket = full_put_submit(full, full->next_cold++, 1, KVT_SYNC);

        for (uint32_t k = 0; k < 2000 && !is_met(full, is_empty); k++)
            sim_run_steps(full->world, 1);
        if (is_met(full, is_empty))
            return ticket;
        assert_int_equal(full_result(ticket), KVT_OK);
    }
    fail_msg("no segment is reclaimed");
    return NULL;
}

/* Wherever in the reclaim of a segment, of either. */
static void
a_disk_that_fails_in_a_reclaim_does_not_stop_the_reclaims_of_the_other(void **state)
{
    uint32_t met_count = 0;

    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        struct full_store *full = full_begin_two_roots(2 + moment);
        kvt_ticket *ticket;

        for (uint32_t i = 0; i < 2 * FULL_BLOCKS; i++)
            full_put(full, full->next_cold++, 1);
        ticket = reclaim_meet(full, moment % 2 == 0);
        sim_run_steps(full->world, moment / 2);
        met_count += !reclaim_is_idle(full->store);
        second_fails(full);
        assert_int_equal(full_result(ticket), KVT_OK);
        full_end(full);
    }
    assert_true(met_count > MOMENTS / 2);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_disk_that_takes_no_writes_keeps_its_blocks_and_the_other_is_reclaimed),
        cmocka_unit_test(a_disk_that_fails_in_a_reclaim_does_not_stop_the_reclaims_of_the_other),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
