/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_strays_recycling.c - an open finds a segment that was being recycled, and the power goes
 * while it hides what stands there, or later, while the reclaim goes on over a page that cannot be
 * read: no copy is left without the kill that stands behind it, and none that was hidden comes
 * back. In the simulated world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "full_faults.h"
#include "stop_on_proof.h"

enum {
    DELETED = 100000, /* The first key of those. */
    IO_FIRST = 40,    /* Of an open: before it looks for strays; ... */
    IO_COUNT = 60,    /* ... some are behind its end. */
#if defined(__SANITIZE_ADDRESS__)
    SEEDS = 1,
#else
    SEEDS = 4,
#endif
    STEPS_MAX = 200000,
    COLD_MAX = 400, /* Blocks, at most, that are put until one is recycled. */
    BAD_PAGE = 20,  /* Of a segment: some batches stand behind it. */
    BAD_SEEDS = 8 * SEEDS,
};

/* In each segment are blocks, and their deletes behind them; the power goes while one is RECYCLING.
 * Returns behind the last key that was deleted. */
static uint64_t
recycling_leave(struct full_store *full)
{
    uint64_t deleted = DELETED;

    for (uint32_t i = 0; i < STEPS_MAX; i++) {
        kvt_ticket *ticket;

        full_put(full, deleted, 1);
        assert_int_equal(kit_delete(full->store, full->ns, deleted++), KVT_OK);
        ticket = full_put_submit(full, full->next_cold++, 1, KVT_SYNC);
        while (kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, 0) == KVT_LATE) {
            sim_run_steps(full->world, 1);
            if (segment_count_in(full->store->segments, 0, SEGMENT_RECYCLING) == 0)
                continue;
            sim_power_cut(full->world, SIM_CUT_ALL_KEPT);
            return deleted;
        }
        kvt_ticket_free(ticket);
    }
    fail_msg("no segment is reclaimed");
    return 0;
}

static void
a_cut_leaves_no_copy_without_the_kill_behind_it(void **state)
{
    uint32_t cut_count = 0;

    (void)state;
    for (uint64_t i = 0; i < (uint64_t)IO_COUNT * SEEDS; i++) {
        struct full_store *full = full_begin(1 + i, FULL_SEGMENTS);
        uint64_t end = recycling_leave(full);

        sim_crash_after(full->world, IO_FIRST + i % IO_COUNT);
        (void)store_open_in(&full->reach, "/store", &full->options, &full->store);
        cut_count += sim_crashed(full->world);
        sim_crash_after(full->world, 0);
        sim_power_cut(full->world, SIM_CUT_EACH);
        full_open(full, KVT_OPEN_REBUILD);
        for (uint64_t key = DELETED; key < end; key++)
            assert_int_equal(full_entry(full, key), ENTRY_NONE);
        full_end(full);
    }
    assert_true(cut_count > SEEDS * IO_COUNT / 4);
}

/* Step while blocks are put until it is so. */
static void
puts_until(struct full_store *full, bool (*is_so)(const struct full_store *full))
{
    for (uint32_t i = 0; i < STEPS_MAX; i++) {
        kvt_ticket *ticket = full_put_submit(full, full->next_cold++, 1, KVT_SYNC);

        while (kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, 0) == KVT_LATE) {
            if (is_so(full))
                return;
            sim_run_steps(full->world, 1);
        }
        kvt_ticket_free(ticket);
    }
    fail_msg("no segment is reclaimed");
}

static bool
is_recycling(const struct full_store *full)
{
    return segment_at(full->store->segments, 0)->state == SEGMENT_RECYCLING;
}

/* Outside of the lanes nothing else is written while no store is being opened. */
static bool
is_written_over(const struct full_store *full)
{
    (void)full;
    return full_faults.write_count > 0;
}

/*
 * A page of a segment that an open found RECYCLING cannot be read. Its blocks have gone, and that
 * open has hidden their headers by one; a delete of such a block finds nothing, and writes no kill.
 * Then zeros go over all up to that page, the power goes, and a rebuild looks at the segment.
 */
static void
a_cut_brings_back_nothing_behind_a_page_that_cannot_be_read(void **state)
{
    uint32_t written_count = 0;

    (void)state;
    for (uint64_t i = 0; i < BAD_SEEDS; i++) {
        struct full_store *full = full_begin_faulty(1 + i);
        uint64_t at[COLD_MAX] = {0}; /* The page in segment 0 of the block there; 0: elsewhere. */

        for (uint32_t j = 0; segment_at(full->store->segments, 0)->state != SEGMENT_SEALED; j++) {
            assert_true(j < COLD_MAX);
            full_put(full, full->next_cold, 1);
            if (full_copy_at(full, full->next_cold) < 1 << 20)
                at[j] = full_copy_at(full, full->next_cold) / PAGE_BYTES;
            full->next_cold++;
        }
        puts_until(full, is_recycling);
        sim_crash_after(full->world, 2 + i % 2);
        (void)sim_run_for(full->world, UINT64_C(1000) * 1000 * 1000);
        sim_crash_after(full->world, 0);
        full_again(full, 0);
        if (is_recycling(full)) { /* The index knew. */
            full_faults.page = BAD_PAGE;
            full_faults.write_count = 0;
            for (uint32_t j = 0; j < COLD_MAX; j++) {
                if (at[j] > 0)
                    assert_int_equal(kit_delete(full->store, full->ns, FULL_COLD + j), KVT_MISS);
            }
            puts_until(full, is_written_over);
            full_faults.page = FULL_PAGE_NONE;
            sim_power_cut(full->world, i % 4 < 2 ? SIM_CUT_EACH : SIM_CUT_TORN);
            full_open(full, KVT_OPEN_REBUILD);
            for (uint32_t j = 0; j < COLD_MAX; j++) {
                if (at[j] > 0)
                    assert_int_equal(full_entry(full, FULL_COLD + j), ENTRY_NONE);
            }
            written_count++;
        }
        full_end(full);
    }
    assert_true(written_count >= BAD_SEEDS / 4);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_leaves_no_copy_without_the_kill_behind_it),
        cmocka_unit_test(a_cut_brings_back_nothing_behind_a_page_that_cannot_be_read),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
