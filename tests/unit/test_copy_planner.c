/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_copy_planner.c - which runs the kernel copies, and how wide it is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "copy_planner.h"

enum {
    KIB = 1024,
    WARPS_WIDE = COPY_WIDE_BLOCKS * COPY_WIDE_THREADS / 32,
};

static const uint64_t BELOW_IN = 48 * KIB;
static const uint64_t BELOW_OUT = 32 * KIB;

static void
planner_make(struct copy_planner *planner)
{
    const struct device_plan plan = {
        .kernel_below_bytes = {[DEVICE_IN] = BELOW_IN, [DEVICE_OUT] = BELOW_OUT},
        .is_measured = true};

    copy_planner_set(planner, &plan);
}

/* A call with `count` runs of `size` one way. */
static struct copy_plan
call(struct copy_planner *planner, enum copy_way way, uint32_t count, uint64_t size, uint64_t now)
{
    struct copy_sum sums[COPY_WAY_COUNT] = {{0}};
    struct copy_plan plan;

    if (size < planner->kernel_below_bytes[way]) {
        sums[way].short_count = count;
        sums[way].short_bytes = count * size;
    } else {
        sums[way].long_bytes = count * size;
    }
    copy_planner_decide(planner, sums, now, &plan);
    return plan;
}

static void
short_runs_go_by_the_kernel_when_there_are_several(void **state)
{
    struct copy_planner planner;

    (void)state;
    planner_make(&planner);
    assert_int_equal(
        call(&planner, COPY_IN, 8, BELOW_IN - 1, 0).kernel_below_bytes[COPY_IN], BELOW_IN);
    planner_make(&planner);
    assert_int_equal(call(&planner, COPY_IN, 7, BELOW_IN - 1, 0).kernel_below_bytes[COPY_IN], 0);
    planner_make(&planner);
    assert_int_equal(call(&planner, COPY_OUT, 100, BELOW_OUT, 0).kernel_below_bytes[COPY_OUT], 0);
    planner_make(&planner);
    assert_int_equal(call(&planner, COPY_ACROSS, 100, 64, 0).kernel_below_bytes[COPY_ACROSS], 0);
    planner_make(&planner);
    assert_true(call(&planner, COPY_WITHIN, 8, 64 * KIB, 0).kernel_below_bytes[COPY_WITHIN] > 0);
}

static void
without_crossovers_the_kernel_does_nothing(void **state)
{
    const struct device_plan none = {.is_measured = false};
    struct device_plan found;
    struct copy_planner planner;

    (void)state;
    copy_planner_init(&planner);
    copy_planner_get(&planner, &found);
    assert_true(
        found.kernel_below_bytes[DEVICE_IN] > 0 && found.kernel_below_bytes[DEVICE_OUT] > 0);
    assert_false(found.is_measured);
    copy_planner_set(&planner, &none);
    for (uint32_t way = 0; way < COPY_WAY_COUNT; way++) {
        assert_int_equal(
            call(&planner, (enum copy_way)way, 1000, 64, 0).kernel_below_bytes[way], 0);
    }
}

static void
kernel_out_is_narrow_while_something_goes_in(void **state)
{
    struct copy_planner planner;
    struct copy_plan plan;

    (void)state;
    planner_make(&planner);
    plan = call(&planner, COPY_OUT, 1000, 4 * KIB, 1000);
    assert_int_equal(plan.block_count, COPY_WIDE_BLOCKS);
    assert_int_equal(plan.thread_count, COPY_WIDE_THREADS);
    /* What goes in is wide all the same. */
    plan = call(&planner, COPY_IN, 1000, 4 * KIB, 1000);
    assert_int_equal(plan.block_count, COPY_WIDE_BLOCKS);
    plan = call(&planner, COPY_OUT, 1000, 4 * KIB, 1000);
    assert_int_equal(plan.block_count, COPY_NARROW_BLOCKS);
    assert_int_equal(plan.thread_count, COPY_NARROW_THREADS);
    /* Within the device there is no bus to share. */
    plan = call(&planner, COPY_WITHIN, 1000, 4 * KIB, 1000);
    assert_int_equal(plan.block_count, COPY_WIDE_BLOCKS);
    /* What went in took 4,096,000 / 50 ns, as estimated. */
    plan = call(&planner, COPY_OUT, 1000, 4 * KIB, 1000 + 81919);
    assert_int_equal(plan.block_count, COPY_NARROW_BLOCKS);
    plan = call(&planner, COPY_OUT, 1000, 4 * KIB, 1000 + 81920);
    assert_int_equal(plan.block_count, COPY_WIDE_BLOCKS);
}

static void
chunks_are_so_long_that_every_warp_has_one(void **state)
{
    struct copy_planner planner;

    (void)state;
    planner_make(&planner);
    assert_int_equal(call(&planner, COPY_IN, 16, 264, 0).cut_bytes, COPY_CUT_BYTES_MIN);
    assert_int_equal(call(&planner, COPY_IN, 64, 4 * KIB, 0).cut_bytes, 64 * 4 * KIB / WARPS_WIDE);
    assert_int_equal(call(&planner, COPY_IN, 64, 4 * KIB + 4, 0).cut_bytes, 3 * COPY_CUT_BYTES_MIN);
    assert_int_equal(call(&planner, COPY_IN, 100000, 32 * KIB, 0).cut_bytes, COPY_CUT_BYTES_MAX);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_runs_go_by_the_kernel_when_there_are_several),
        cmocka_unit_test(without_crossovers_the_kernel_does_nothing),
        cmocka_unit_test(kernel_out_is_narrow_while_something_goes_in),
        cmocka_unit_test(chunks_are_so_long_that_every_warp_has_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
