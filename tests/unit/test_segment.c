/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_segment.c - every move of a segment, the reserve, and what the index may not talk it into.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rng.h"
#include "segment.h"
#include "stop_on_proof.h"

enum {
    PAGES = 256,
    FIRST_COUNT = 4,
    SECOND_COUNT = 3,
    SECOND = 1 << 24, /* Number of the first segment of the second root. */
};

static struct kvt_env env;

static struct segment_table *
table_open(void)
{
    const uint32_t counts[2] = {FIRST_COUNT, SECOND_COUNT};
    struct segment_table *table;

    env_host(&env);
    assert_int_equal(segment_table_open(&env, 2, counts, PAGES, &table), KVT_OK);
    return table;
}

/* A run that must be had. */
static struct segment *
run_take(struct segment_table *table, uint32_t root, uint32_t pages, uint32_t *page_out)
{
    struct segment *segment, *sealed;

    assert_int_equal(segment_run_take(table, root, pages, 0, &segment, page_out, &sealed), KVT_OK);
    return segment;
}

static enum kvt_status
run_try(struct segment_table *table, uint32_t root, uint32_t pages, uint32_t reserve_count)
{
    struct segment *segment, *sealed;
    uint32_t page;

    return segment_run_take(table, root, pages, reserve_count, &segment, &page, &sealed);
}

static void
a_new_table_has_only_free_segments(void **state)
{
    struct segment_table *table = table_open();
    uint32_t cursor = 0;
    uint32_t seen = 0;

    (void)state;
    for (struct segment *segment; (segment = segment_next(table, &cursor)) != NULL; seen++) {
        uint32_t number = seen < FIRST_COUNT ? seen : SECOND + seen - FIRST_COUNT;

        assert_int_equal(segment->number, number);
        assert_ptr_equal(segment_at(table, number), segment);
        assert_int_equal(segment->state, SEGMENT_FREE);
        assert_int_equal(segment->generation, 1);
        segment_check(segment, PAGES);
    }
    assert_int_equal(seen, FIRST_COUNT + SECOND_COUNT);
    assert_null(segment_at(table, FIRST_COUNT));
    assert_null(segment_at(table, SECOND + SECOND_COUNT));
    assert_null(segment_at(table, 2 << 24));
    assert_null(segment_at(table, UINT32_MAX));
    assert_int_equal(segment_pages(table), PAGES);
    assert_int_equal(segment_count_in(table, 0, SEGMENT_FREE), FIRST_COUNT);
    assert_null(segment_active(table, 0));
    segment_table_close(table);
}

static void
runs_follow_each_other_without_gap_or_overlap(void **state)
{
    struct segment_table *table = table_open();
    struct segment *first, *second, *sealed;
    uint32_t page;

    (void)state;
    first = run_take(table, 0, 100, &page);
    assert_int_equal(page, 0);
    assert_int_equal(first->state, SEGMENT_ACTIVE);
    assert_ptr_equal(segment_active(table, 0), first);
    assert_ptr_equal(run_take(table, 0, 1, &page), first);
    assert_int_equal(page, 100);
    assert_ptr_equal(run_take(table, 0, PAGES - 101, &page), first);
    assert_int_equal(page, 101);
    assert_int_equal(first->state, SEGMENT_ACTIVE);

    assert_int_equal(segment_run_take(table, 0, 1, 0, &second, &page, &sealed), KVT_OK);
    assert_ptr_equal(sealed, first);
    assert_int_equal(first->state, SEGMENT_SEALED);
    assert_int_equal(second->state, SEGMENT_ACTIVE);
    assert_int_equal(page, 0);
    assert_int_equal(segment_count_in(table, 0, SEGMENT_ACTIVE), 1);
    assert_int_equal(segment_count_in(table, 0, SEGMENT_SEALED), 1);
    segment_table_close(table);
}

static void
a_run_never_crosses_a_segment(void **state)
{
    struct segment_table *table = table_open();
    uint32_t page;
    struct rng rng = {.state = 3};
    uint32_t pages;

    (void)state;
    do {
        struct segment *segment, *sealed;

        pages = 1 + rng_below(&rng, PAGES);
        if (segment_run_take(table, 0, pages, 0, &segment, &page, &sealed) != KVT_OK)
            break;
        assert_true(page + pages <= PAGES);
        assert_int_equal(segment->fill_page, page + pages);
    } while (true);
    assert_int_equal(segment_count_in(table, 0, SEGMENT_FREE), 0);
    segment_table_close(table);
}

static void
impossible_runs_are_refused_and_change_nothing(void **state)
{
    struct segment_table *table = table_open();

    (void)state;
    assert_int_equal(run_try(table, 0, 0, 0), KVT_E_INVAL);
    assert_int_equal(run_try(table, 0, PAGES + 1, 0), KVT_E_INVAL);
    assert_int_equal(segment_count_in(table, 0, SEGMENT_FREE), FIRST_COUNT);
    segment_table_close(table);
}

static void
the_reserve_is_left_to_those_who_pass_zero(void **state)
{
    struct segment_table *table = table_open();

    (void)state;
    for (uint32_t i = 0; i < FIRST_COUNT - 2; i++) {
        assert_true(segment_fits(table, 0, PAGES, 2));
        assert_int_equal(run_try(table, 0, PAGES, 2), KVT_OK);
    }
    assert_false(segment_fits(table, 0, PAGES, 2));
    assert_int_equal(run_try(table, 0, PAGES, 2), KVT_E_NOSPC);
    assert_int_equal(segment_count_in(table, 0, SEGMENT_FREE), 2);
    assert_true(segment_fits(table, 0, PAGES, 0));
    assert_int_equal(run_try(table, 0, 10, 0), KVT_OK);
    /* What is left of the segment that was taken from the reserve is still the reserve's. */
    assert_false(segment_fits(table, 0, 1, 2));
    assert_int_equal(run_try(table, 0, 1, 2), KVT_E_NOSPC);
    assert_true(segment_fits(table, 0, 1, 1));
    assert_int_equal(run_try(table, 0, PAGES - 10, 0), KVT_OK);
    assert_int_equal(run_try(table, 0, PAGES, 0), KVT_OK);
    assert_int_equal(run_try(table, 0, 1, 0), KVT_E_NOSPC);
    segment_table_close(table);
}

static void
roots_do_not_take_from_each_other(void **state)
{
    struct segment_table *table = table_open();
    uint32_t page;

    (void)state;
    for (uint32_t i = 0; i < SECOND_COUNT; i++)
        assert_int_equal(run_take(table, 1, PAGES, &page)->number, SECOND + i);
    assert_int_equal(run_try(table, 1, 1, 0), KVT_E_NOSPC);
    assert_int_equal(segment_count_in(table, 0, SEGMENT_FREE), FIRST_COUNT);
    segment_table_close(table);
}

static void
a_failed_refill_leaves_the_active_segment_open(void **state)
{
    struct segment_table *table = table_open();
    uint32_t page;
    struct segment *last;

    (void)state;
    for (uint32_t i = 0; i < FIRST_COUNT - 1; i++)
        run_take(table, 0, PAGES, &page);
    last = run_take(table, 0, 200, &page);
    assert_int_equal(run_try(table, 0, 57, 0), KVT_E_NOSPC);
    assert_int_equal(last->state, SEGMENT_ACTIVE);
    assert_int_equal(run_try(table, 0, 56, 0), KVT_OK);
    segment_table_close(table);
}

/* Seal, recycle and free a segment as the engine does; `head_pages` as nvme_recycle() sets it. */
static void
segment_turn(struct segment_table *table, struct segment *segment, uint32_t head_pages)
{
    if (segment->state == SEGMENT_ACTIVE)
        segment_seal(table, segment);
    segment_recycle_begin(table, segment);
    assert_int_equal(segment->state, SEGMENT_RECYCLING);
    segment->fill_page = head_pages;
    segment_free(table, segment);
}

static void
a_freed_segment_has_the_next_generation_and_keeps_its_header(void **state)
{
    struct segment_table *table = table_open();
    uint32_t page;
    struct segment *segment = run_take(table, 1, 30, &page);

    (void)state;
    segment->record_count = 3;
    segment->crc_xor = 77;
    segment->live_bytes = 4096 * 29;
    segment_turn(table, segment, 2);
    assert_int_equal(segment->state, SEGMENT_FREE);
    assert_int_equal(segment->generation, 2);
    assert_int_equal(segment->record_count, 0);
    assert_int_equal(segment->crc_xor, 0);
    assert_int_equal(segment->live_bytes, 0);
    /* The others come first: segments are worn alike. */
    assert_int_equal(run_take(table, 1, PAGES - 2, &page)->number, SECOND + 1);
    assert_int_equal(run_take(table, 1, PAGES, &page)->number, SECOND + 2);
    assert_ptr_equal(run_take(table, 1, 10, &page), segment);
    assert_int_equal(page, 2);
    assert_int_equal(segment->generation, 2);
    segment_table_close(table);
}

static void
a_freed_segment_whose_header_length_is_unknown_fills_behind_the_longest(void **state)
{
    struct segment_table *table = table_open();
    uint32_t page;
    struct segment *segment = run_take(table, 0, 1, &page);

    (void)state;
    segment_turn(table, segment, 0);
    assert_int_equal(segment->fill_page, SEGMENT_HEAD_PAGES_MAX);
    for (uint32_t i = 0; i < FIRST_COUNT - 1; i++)
        run_take(table, 0, PAGES, &page);
    assert_int_equal(run_try(table, 0, PAGES, 0), KVT_E_NOSPC);
    assert_ptr_equal(run_take(table, 0, PAGES - SEGMENT_HEAD_PAGES_MAX, &page), segment);
    assert_int_equal(page, SEGMENT_HEAD_PAGES_MAX);
    segment_table_close(table);
}

static void
a_restored_segment_never_takes_what_was_filled_before(void **state)
{
    struct segment_table *table = table_open();
    struct segment facts = {.number = 1,
        .generation = 9,
        .state = SEGMENT_ACTIVE,
        .record_count = 2,
        .crc_xor = 5,
        .live_bytes = (uint64_t)PAGES * 4096}; /* All that there may be. */
    uint32_t page;

    (void)state;
    assert_true(segment_restore(table, &facts));
    assert_int_equal(segment_at(table, 1)->state, SEGMENT_SEALED);
    assert_int_equal(segment_at(table, 1)->generation, 9);
    assert_int_equal(segment_at(table, 1)->record_count, 2);
    assert_null(segment_active(table, 0));

    facts = (struct segment){.number = 2, .generation = 4, .state = SEGMENT_FREE};
    assert_true(segment_restore(table, &facts));
    facts = (struct segment){.number = 3, .generation = 4, .state = SEGMENT_RECYCLING};
    assert_true(segment_restore(table, &facts));
    assert_int_equal(segment_count_in(table, 0, SEGMENT_FREE), 2);
    assert_int_equal(segment_count_in(table, 0, SEGMENT_RECYCLING), 1);
    assert_int_equal(run_take(table, 0, PAGES, &page)->number, 0);
    assert_int_equal(page, 0);
    assert_int_equal(run_take(table, 0, 5, &page)->number, 2);
    assert_int_equal(page, SEGMENT_HEAD_PAGES_MAX);
    segment_table_close(table);
}

static void
facts_that_cannot_be_are_refused(void **state)
{
    const struct segment bad[] = {
        {.number = FIRST_COUNT, .generation = 1},
        {.number = 5 << 24, .generation = 1},
        {.number = 0, .generation = 0},
        {.number = 0, .generation = 1, .state = (enum segment_state)4},
        {.number = 0, .generation = 1, .state = (enum segment_state)UINT32_MAX},
        {.number = 0, .generation = 2, .state = SEGMENT_FREE, .record_count = 1},
        {.number = 0, .generation = 2, .state = SEGMENT_FREE, .live_bytes = 4096},
        {.number = 0, .generation = 2, .state = SEGMENT_RECYCLING, .record_count = 1},
        {.number = 0, .generation = 2, .state = SEGMENT_SEALED, .crc_xor = 1},
        {.number = 0,
            .generation = 2,
            .state = SEGMENT_SEALED,
            .record_count = 1,
            .live_bytes = (uint64_t)PAGES * 4096 + 1},
    };
    struct segment_table *table = table_open();

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(segment_restore(table, &bad[i]));
    assert_int_equal(segment_count_in(table, 0, SEGMENT_FREE), FIRST_COUNT);
    assert_int_equal(segment_at(table, 0)->generation, 1);
    segment_table_close(table);
}

static uint32_t proof_count;

static void
proof_counted(void *context, const char *expression, const char *file, int line)
{
    (void)context;
    (void)expression;
    (void)file;
    (void)line;
    proof_count++;
}

static void
wrong_moves_fail_a_proof(void **state)
{
#ifdef NDEBUG
    struct segment_table *table = table_open();
    struct segment *segment = segment_at(table, 0);
    uint32_t page;

    (void)state;
    (void)proof_handler_set((struct proof_handler){proof_counted, NULL});
    proof_count = 0;
    segment_recycle_begin(table, segment); /* FREE: was never sealed. */
    assert_true(proof_count > 0);
    segment_table_close(table);

    table = table_open();
    segment = run_take(table, 0, 1, &page);
    segment->writer_count = 1;
    segment_seal(table, segment);
    proof_count = 0;
    segment_recycle_begin(table, segment); /* A put is in flight. */
    assert_true(proof_count > 0);
    segment->writer_count = 0;
    segment->reader_count = 1;
    proof_count = 0;
    segment_free(table, segment); /* A read is in flight. */
    assert_true(proof_count > 0);
    segment_table_close(table);
    stop_on_proof();
#else
    /* A debug build stops the program at a false proof, as base/failure.h says. */
    (void)state;
    (void)proof_counted;
    assert_int_equal(proof_count, 0);
#endif
}

static void
every_state_has_a_name(void **state)
{
    (void)state;
    assert_string_equal(segment_state_name(SEGMENT_FREE), "FREE");
    assert_string_equal(segment_state_name(SEGMENT_ACTIVE), "ACTIVE");
    assert_string_equal(segment_state_name(SEGMENT_SEALED), "SEALED");
    assert_string_equal(segment_state_name(SEGMENT_RECYCLING), "RECYCLING");
    assert_string_equal(segment_state_name((enum segment_state)9), "?");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_table_has_only_free_segments),
        cmocka_unit_test(runs_follow_each_other_without_gap_or_overlap),
        cmocka_unit_test(a_run_never_crosses_a_segment),
        cmocka_unit_test(impossible_runs_are_refused_and_change_nothing),
        cmocka_unit_test(the_reserve_is_left_to_those_who_pass_zero),
        cmocka_unit_test(roots_do_not_take_from_each_other),
        cmocka_unit_test(a_failed_refill_leaves_the_active_segment_open),
        cmocka_unit_test(a_freed_segment_has_the_next_generation_and_keeps_its_header),
        cmocka_unit_test(a_freed_segment_whose_header_length_is_unknown_fills_behind_the_longest),
        cmocka_unit_test(a_restored_segment_never_takes_what_was_filled_before),
        cmocka_unit_test(facts_that_cannot_be_are_refused),
        cmocka_unit_test(wrong_moves_fail_a_proof),
        cmocka_unit_test(every_state_has_a_name),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
