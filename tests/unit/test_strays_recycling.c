/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_strays_recycling.c - an open finds a segment that was being recycled, and the power goes
 * while it hides what stands there: no copy is left without the kill that stands behind it. In the
 * simulated world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "full_store.h"
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

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_leaves_no_copy_without_the_kill_behind_it),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
