/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_histogram.c - how close a reported percentile is, and that threads lose no count.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>

#include "histogram.h"
#include "rng.h"

static void
empty_histogram_reports_zero(void **state)
{
    static struct histogram histogram;

    (void)state;
    assert_true(histogram_at(&histogram, 0.5) == 0);
}

static void
small_values_are_exact(void **state)
{
    static struct histogram histogram;

    (void)state;
    for (uint64_t value = 1; value <= 10; value++)
        histogram_add(&histogram, value);
    assert_true(histogram_at(&histogram, 0.1) == 1);
    assert_true(histogram_at(&histogram, 0.5) == 5);
    assert_true(histogram_at(&histogram, 0.51) == 6);
    assert_true(histogram_at(&histogram, 0.99) == 10);
    assert_true(histogram_at(&histogram, 1.0) == 10);
    assert_true(histogram_at(&histogram, 0.0) == 1);
    assert_true(histogram.count == 10);
    assert_true(histogram.sum == 55);
    assert_true(histogram.max == 10);
}

/* The value alone in the lower half: the report is its bucket's edge. */
static void
report_check(uint64_t value)
{
    static struct histogram histogram;
    uint64_t report;

    memset(&histogram, 0, sizeof(histogram));
    histogram_add(&histogram, value);
    histogram_add(&histogram, UINT64_MAX);
    report = histogram_at(&histogram, 0.5);
    assert_true(report >= value);
    assert_true(report - value <= value / 16);
}

static void
report_is_at_most_one_sixteenth_above_the_value(void **state)
{
    struct rng rng = {.state = 42};

    (void)state;
    report_check(0);
    for (uint32_t shift = 0; shift < 64; shift++) {
        uint64_t power = (uint64_t)1 << shift;

        report_check(power - 1);
        report_check(power);
        report_check(power + 1);
        report_check(power + power / 2);
        for (uint32_t i = 0; i < 50; i++)
            report_check(rng_next(&rng) >> shift);
    }
    report_check(UINT64_MAX);
}

static void
report_is_never_above_the_largest_value(void **state)
{
    static struct histogram histogram;

    (void)state;
    histogram_add(&histogram, 1000);
    assert_true(histogram_at(&histogram, 0.5) == 1000);
    assert_true(histogram_at(&histogram, 1.0) == 1000);
}

enum {
    THREAD_COUNT = 4,
    ADD_COUNT = 20000,
};

static void *
adder(void *argument)
{
    struct histogram *histogram = argument;

    for (uint64_t i = 1; i <= ADD_COUNT; i++)
        histogram_add(histogram, i);
    return NULL;
}

static void
threads_lose_no_count(void **state)
{
    static struct histogram histogram;
    pthread_t threads[THREAD_COUNT];

    (void)state;
    for (size_t i = 0; i < THREAD_COUNT; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, adder, &histogram), 0);
    for (int i = 0; i < 50; i++)
        assert_true(histogram_at(&histogram, 1.0) <= ADD_COUNT);
    for (size_t i = 0; i < THREAD_COUNT; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_true(histogram.count == THREAD_COUNT * ADD_COUNT);
    assert_true(histogram.sum == (uint64_t)THREAD_COUNT * ADD_COUNT * (ADD_COUNT + 1) / 2);
    assert_true(histogram.max == ADD_COUNT);
    assert_true(histogram_at(&histogram, 1.0) == ADD_COUNT);
    assert_in_range(histogram_at(&histogram, 0.5), ADD_COUNT / 2, ADD_COUNT / 2 + ADD_COUNT / 32);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_histogram_reports_zero),
        cmocka_unit_test(small_values_are_exact),
        cmocka_unit_test(report_is_at_most_one_sixteenth_above_the_value),
        cmocka_unit_test(report_is_never_above_the_largest_value),
        cmocka_unit_test(threads_lose_no_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
