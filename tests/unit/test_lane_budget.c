/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lane_budget.c - the budget doubles while that pays, on a simulated device whose throughput
 * depends on the bytes in flight.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "lane_budget.h"

enum {
    STEP_NS = 1000 * 1000,
};

/* Run for `step_count` milliseconds on a device that moves `bytes_per_ms` of the budget. */
static uint64_t
run(struct lane_budget *budget, uint64_t now_ns, uint32_t step_count,
    uint64_t (*bytes_per_ms)(uint64_t budget_bytes))
{
    for (uint32_t i = 0; i < step_count; i++) {
        now_ns += STEP_NS;
        budget_note(budget, now_ns, bytes_per_ms(budget->bytes), true);
    }
    return now_ns;
}

static uint64_t
proportional(uint64_t budget_bytes)
{
    return budget_bytes;
}

static uint64_t
enough_with_the_first(uint64_t budget_bytes)
{
    (void)budget_bytes;
    return BUDGET_FIRST_BYTES;
}

static uint64_t
one_percent_better(uint64_t budget_bytes)
{
    return budget_bytes < 2 * BUDGET_FIRST_BYTES ? 1000000 : 1010000;
}

static uint64_t
three_percent_better(uint64_t budget_bytes)
{
    return budget_bytes < 2 * BUDGET_FIRST_BYTES ? 1000000 : 1030000;
}

static void
budget_grows_to_its_limit_where_that_pays(void **state)
{
    struct lane_budget budget;

    (void)state;
    budget_init(&budget);
    assert_int_equal(budget.bytes, BUDGET_FIRST_BYTES);
    (void)run(&budget, 1, 2000, proportional);
    assert_int_equal(budget.state, BUDGET_SETTLED);
    assert_int_equal(budget.bytes, BUDGET_LAST_BYTES);
}

static void
budget_stops_where_more_does_not_pay(void **state)
{
    struct lane_budget budget;

    (void)state;
    budget_init(&budget);
    (void)run(&budget, 1, 2000, enough_with_the_first);
    assert_int_equal(budget.state, BUDGET_SETTLED);
    assert_int_equal(budget.bytes, BUDGET_FIRST_BYTES);
}

static void
gain_below_the_mark_does_not_count(void **state)
{
    struct lane_budget budget;

    (void)state;
    budget_init(&budget);
    (void)run(&budget, 1, 2000, one_percent_better);
    assert_int_equal(budget.bytes, BUDGET_FIRST_BYTES);
    budget_init(&budget);
    (void)run(&budget, 1, 2000, three_percent_better);
    assert_int_equal(budget.bytes, 2 * BUDGET_FIRST_BYTES);
}

static void
trial_never_exceeds_the_limit(void **state)
{
    struct lane_budget budget;

    (void)state;
    budget_init(&budget);
    for (uint64_t now_ns = 1; budget.state == BUDGET_TRYING; now_ns += STEP_NS) {
        budget_note(&budget, now_ns, budget.bytes, true);
        assert_true(budget.bytes >= BUDGET_FIRST_BYTES && budget.bytes <= BUDGET_LAST_BYTES);
    }
}

static void
idle_time_is_not_measured(void **state)
{
    struct lane_budget budget;
    uint64_t now_ns = 1;

    (void)state;
    budget_init(&budget);
    /* The budget never holds anything back: nothing is learnt, nothing changes. */
    for (uint32_t i = 0; i < 1000; i++) {
        now_ns += STEP_NS;
        budget_note(&budget, now_ns, budget.bytes, false);
    }
    assert_int_equal(budget.state, BUDGET_TRYING);
    assert_int_equal(budget.bytes, BUDGET_FIRST_BYTES);
}

/* Bursts of 3 ms on a device where twice the bytes pay, and pauses that hide it. */
static void
short_bursts_add_up_to_a_trial(void **state)
{
    struct lane_budget budget;
    uint64_t now_ns = 1;

    (void)state;
    budget_init(&budget);
    for (uint32_t i = 0; i < 1000; i++) {
        now_ns = run(&budget, now_ns, 3, proportional);
        now_ns += STEP_NS;
        budget_note(&budget, now_ns, 0, false);
        /* A pause; its length depends on the budget, and must not matter. */
        now_ns += budget.bytes * 10;
        budget_note(&budget, now_ns, 0, true);
    }
    assert_int_equal(budget.state, BUDGET_SETTLED);
    assert_int_equal(budget.bytes, BUDGET_LAST_BYTES);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(budget_grows_to_its_limit_where_that_pays),
        cmocka_unit_test(budget_stops_where_more_does_not_pay),
        cmocka_unit_test(gain_below_the_mark_does_not_count),
        cmocka_unit_test(trial_never_exceeds_the_limit),
        cmocka_unit_test(idle_time_is_not_measured),
        cmocka_unit_test(short_bursts_add_up_to_a_trial),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
