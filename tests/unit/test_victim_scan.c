/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_victim_scan.c - a search for a victim that was in vain is made again when something has
 * changed, or a second is over, and not before. In a simulated world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "full_store.h"
#include "stop_on_proof.h"
#include "victim.h"
#include "victim_scan.h"

enum {
    SCANS = 3, /* As many as there are. */
};

/* At rest, and short of segments; all are passed over, and that was found. */
static struct full_store *
search_in_vain(uint64_t seed)
{
    struct full_store *full = full_begin(seed, FULL_SEGMENTS);
    struct kvt_store *store = full->store;
    struct segment *segment;
    uint32_t cursor = 0;

    full_fill(full);
    while (!commit_is_at_rest(store) || !reclaim_is_idle(store))
        sim_run_steps(full->world, 1);
    store->options.nvme_high_percent = 10;
    while ((segment = segment_next(store->segments, &cursor)) != NULL)
        segment->is_passed_over = true;
    segment_changed(store->segments);
    assert_true(victim_root_is_short(store, 0));
    assert_false(victim_scan_ahead(store, true));
    return full;
}

/* One that can be reclaimed, and of which the search is not told. */
static struct segment *
one_spare(struct full_store *full)
{
    struct segment *segment;
    uint32_t cursor = 0;

    while ((segment = segment_next(full->store->segments, &cursor)) != NULL) {
        if (segment->state == SEGMENT_SEALED && !segment->is_claimed) {
            segment->is_passed_over = false;
            return segment;
        }
    }
    fail_msg("no segment is SEALED");
    return NULL;
}

static void
a_search_in_vain_is_not_made_again(void **state)
{
    struct full_store *full = search_in_vain(1);
    struct segment *segment = one_spare(full);

    (void)state;
    full->store->now_ns += UINT64_C(999) * 1000 * 1000;
    for (uint32_t i = 0; i < 10; i++)
        assert_false(victim_scan_ahead(full->store, true));
    segment_changed(full->store->segments);
    assert_true(victim_scan_ahead(full->store, true));
    assert_true(segment->is_claimed);
    full_end(full);
}

static void
a_search_in_vain_is_made_again_after_a_second(void **state)
{
    struct full_store *full = search_in_vain(2);

    (void)state;
    (void)one_spare(full);
    full->store->now_ns += UINT64_C(1000) * 1000 * 1000;
    assert_true(victim_scan_ahead(full->store, true));
    full_end(full);
}

static void
what_has_another_turn_is_found(void **state)
{
    struct full_store *full = search_in_vain(3);

    (void)state;
    victim_spare_none(full->store);
    assert_true(victim_scan_ahead(full->store, true));
    full_end(full);
}

static void
a_segment_that_is_full_is_found(void **state)
{
    struct full_store *full = search_in_vain(4);
    struct segment *active = full_active(full);

    (void)state;
    active->is_passed_over = false;
    segment_seal(full->store->segments, active);
    assert_true(victim_scan_ahead(full->store, true));
    assert_true(active->is_claimed);
    full_end(full);
}

/* While it was written it could not be reclaimed, and searches were in vain. */
static void
a_segment_whose_batch_ends_is_found(void **state)
{
    struct full_store *full = search_in_vain(5);
    struct segment *active = full_active(full);
    kvt_ticket *ticket = full_put_submit(full, FULL_HOT, 1, KVT_SYNC);

    (void)state;
    full_writing_meet(full, FULL_HOT);
    assert_ptr_equal(full_active(full), active);
    active->is_passed_over = false;
    segment_seal(full->store->segments, active);
    assert_false(victim_scan_ahead(full->store, true));
    assert_int_equal(full_result(ticket), KVT_OK);
    assert_true(victim_scan_ahead(full->store, true));
    assert_true(active->is_claimed);
    full_end(full);
}

static void
another_is_searched_when_a_scan_ends(void **state)
{
    struct full_store *full = search_in_vain(6);
    struct kvt_store *store = full->store;

    (void)state;
    victim_spare_none(store);
    for (uint32_t i = 0; i < SCANS; i++)
        (void)victim_scan_ahead(store, true);
    assert_int_equal(victim_scan_count(store, 0), SCANS);
    while (victim_scan_is_reading(store))
        sim_run_steps(full->world, 1);
    assert_false(victim_scan_ahead(store, true));
    victim_scan_end(victim_scan_take(store));
    assert_true(victim_scan_ahead(store, true));
    full_end(full);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_search_in_vain_is_not_made_again),
        cmocka_unit_test(a_search_in_vain_is_made_again_after_a_second),
        cmocka_unit_test(what_has_another_turn_is_found),
        cmocka_unit_test(a_segment_that_is_full_is_found),
        cmocka_unit_test(a_segment_whose_batch_ends_is_found),
        cmocka_unit_test(another_is_searched_when_a_scan_ends),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
