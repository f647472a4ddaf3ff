/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_patience.c - whoever waits for room waits for three steps that follow one another, and not
 * for what others begin all the time; however many wait, whenever they came, and however long ago
 * the last one did.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "stop_on_proof.h"
#include "store_internal.h"

enum {
    STEPS = 3,       /* A copy down, a write, a copy up: the second is a flight, too. */
    STEP_TICKS = 20, /* Of one of them. */
    OTHERS = 2,      /* Are in flight, each for so many ticks. */
    ENOUGH = 40,     /* Ticks, for who waits for nothing that takes long. */
};

static struct kvt_store *store;
static uint8_t others[OTHERS], other_flights[OTHERS];
static uint32_t tick_count;

static int
setup(void **state)
{
    (void)state;
    store = calloc(1, sizeof(*store));
    assert_non_null(store);
    tick_count = 0;
    /* Turns and rounds are counted beyond 32 bits. */
    store->work.now = UINT32_MAX - 6;
    store->flights.now = UINT32_MAX - 3;
    store->rounds.now = store->rounds.wanted = UINT32_MAX - 1;
    for (uint32_t i = 0; i < OTHERS; i++) {
        others[i] = turns_begin(&store->work);
        other_flights[i] = turns_begin(&store->flights);
    }
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    free(store);
    return 0;
}

static void
tick(void)
{
    uint32_t oldest = tick_count++ % OTHERS;

    turns_end(&store->work, others[oldest]);
    turns_end(&store->flights, other_flights[oldest]);
    others[oldest] = turns_begin(&store->work);
    other_flights[oldest] = turns_begin(&store->flights);
}

/* A search that finds nothing. */
static bool
is_told_in(uint32_t place, struct patience *patience)
{
    uint64_t begin;

    (void)patience_is_last(store, patience, place);
    begin = search_begin(store, place);
    return patience_ends(store, patience, place, begin);
}

static bool
is_told(struct patience *patience)
{
    return is_told_in(POLICY_HOST, patience);
}

/* Three steps that follow one another, while others come and go. Nobody is told before they are
 * over, and everybody soon after. */
static void
steps_go_by(struct patience *waiting, uint32_t count)
{
    uint32_t told_count = 0;

    for (uint32_t step = 0; step < STEPS; step++) {
        struct turns *turns = step == 1 ? &store->flights : &store->work;
        uint8_t turn = turns_begin(turns);

        for (uint32_t i = 0; i < STEP_TICKS; i++) {
            for (uint32_t k = 0; k < count; k++)
                assert_false(is_told(&waiting[k]));
            tick();
        }
        turns_end(turns, turn);
    }
    for (uint32_t i = 0; i < ENOUGH; i++) {
        told_count = 0;
        for (uint32_t k = 0; k < count; k++)
            told_count += is_told(&waiting[k]);
        tick();
    }
    assert_int_equal(told_count, count);
}

static void
three_steps_are_waited_for(void **state)
{
    struct patience waiting = {0};

    (void)state;
    steps_go_by(&waiting, 1);
}

/* Whenever they came: somebody has waited for some ticks, and so may the rounds have. */
static void
three_steps_are_waited_for_in_the_middle_of_others_rounds(void **state)
{
    (void)state;
    for (uint32_t ticks = 0; ticks < 2 * OTHERS * (STEPS + 1); ticks++) {
        struct patience before = {0}, waiting = {0};

        for (uint32_t i = 0; i < ticks; i++) {
            (void)is_told(&before);
            tick();
        }
        steps_go_by(&waiting, 1);
    }
}

/* Only the first of them searches. */
static void
who_waits_behind_another_is_told_with_it(void **state)
{
    struct patience waiting[2] = {{0}};
    uint32_t ticks = 0;

    (void)state;
    patience_join(store, &waiting[1], &waiting[0]);
    assert_false(waiting[1].is_begun);
    assert_false(is_told(&waiting[0]));
    patience_join(store, &waiting[1], &waiting[0]);
    for (; !is_told(&waiting[0]); ticks++) {
        assert_in_range(ticks, 0, ENOUGH);
        tick();
    }
    assert_true(is_told(&waiting[1]));
}

static void
who_is_behind_waits_for_three_steps(void **state)
{
    struct patience waiting[2] = {{0}};

    (void)state;
    assert_false(is_told(&waiting[0]));
    patience_join(store, &waiting[1], &waiting[0]);
    tick();
    patience_join(store, &waiting[1], &waiting[0]);
    steps_go_by(waiting, 2);
}

/* The loop looks only when something has ended: long after. */
static void
whoever_has_not_asked_for_long_is_told_at_once(void **state)
{
    struct patience waiting = {0};
    uint32_t asked_count = 0;

    (void)state;
    assert_false(is_told(&waiting));
    for (uint32_t i = 0; i < OTHERS; i++) {
        turns_end(&store->work, others[i]);
        turns_end(&store->flights, other_flights[i]);
    }
    while (!is_told(&waiting))
        asked_count++;
    assert_int_equal(asked_count, 0);
}

/* The last one found its room: the round of NVMe stands still while the turns of others pass. */
static void
who_waits_for_nvme_is_told_however_long_ago_the_last_one_waited(void **state)
{
    static const uint64_t passed[] = {
        0, UINT64_C(1) << 31, UINT64_C(3) << 30, UINT64_C(1) << 32, UINT64_C(3) << 32};

    (void)state;
    for (size_t i = 0; i < sizeof(passed) / sizeof(*passed); i++) {
        struct patience found = {0}, waiting = {0};
        uint32_t ticks = 0;

        assert_false(is_told_in(POLICY_NVME, &found));
        store->work.now += passed[i];
        for (; !is_told_in(POLICY_NVME, &waiting); ticks++) {
            assert_in_range(ticks, 0, ENOUGH);
            tick();
        }
        assert_in_range(ticks, STEPS, ENOUGH);
    }
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(three_steps_are_waited_for),
        TEST(three_steps_are_waited_for_in_the_middle_of_others_rounds),
        TEST(who_waits_behind_another_is_told_with_it),
        TEST(who_is_behind_waits_for_three_steps),
        TEST(whoever_has_not_asked_for_long_is_told_at_once),
        TEST(who_waits_for_nvme_is_told_however_long_ago_the_last_one_waited),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
