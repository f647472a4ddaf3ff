/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hazard.c - what is learned of classes of blocks, against small cases that are worked out
 * here in another way: curves with one peak by trying all ways to cut them, the Gittins index as
 * the best ratio over all stopping ages, exposure as the time that blocks have stood there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hazard.h"
#include "rng.h"
#include "stop_on_proof.h"

static float
importance_at(const struct hazard *hazard, uint32_t class_index, uint32_t age)
{
    return hazard_at(hazard_tables(hazard), class_index, age).index;
}

static float
reuse_at(const struct hazard *hazard, uint32_t class_index, uint32_t age)
{
    return hazard_at(hazard_tables(hazard), class_index, age).chance;
}

enum {
    CURVES = 40,
    BLOCKS = 300,
    STEPS = 6000,
};

static const struct hazard_traits fresh = {.use_count = 1, .turn = 1};

static int
setup(void **state)
{
    struct hazard *hazard;
    struct kvt_env env;

    env_host(&env);
    assert_int_equal(hazard_open(&env, &hazard), KVT_OK);
    *state = hazard;
    return 0;
}

static int
teardown(void **state)
{
    hazard_close(*state);
    return 0;
}

static uint32_t
ticks_of(double seconds)
{
    return (uint32_t)(seconds * 1e9 / (double)(1u << HAZARD_TICK_SHIFT) + 0.5);
}

static double
random_unit(struct rng *rng)
{
    return (rng_below(rng, 1000000) + 1) / 1e6;
}

static void
expect_near(double value, double wanted)
{
    assert_true(fabs(value - wanted) <= 1e-6 * (fabs(wanted) + 1e-12));
}

/* --- Curves ----------------------------------------------------------------------------------- */

/* The value at `k` of the nearest rising curve through values[from..to] is max over i <= k of min
 * over j >= k of the mean of i..j (Robertson, Wright and Dykstra 1988). Step -1: from the right. */
static double
rising_at(const double *values, const double *weights, uint32_t count, uint32_t k)
{
    double best = -INFINITY;

    for (uint32_t i = 0; i <= k; i++) {
        double least = INFINITY;

        for (uint32_t j = k; j < count; j++) {
            double sum = 0, weight = 0;

            for (uint32_t m = i; m <= j; m++) {
                sum += values[m] * weights[m];
                weight += weights[m];
            }
            least = fmin(least, sum / weight);
        }
        best = fmax(best, least);
    }
    return best;
}

/* The nearest curve with that peak, and how far it is. */
static double
curve_reference(const double *values, const double *weights, uint32_t peak, double *curve_out)
{
    double mirrored[HAZARD_BUCKETS], mirrored_weights[HAZARD_BUCKETS];
    double error = 0;
    uint32_t last = HAZARD_BUCKETS - 1;

    for (uint32_t k = 0; k <= last; k++) {
        mirrored[k] = values[last - k];
        mirrored_weights[k] = weights[last - k];
    }
    for (uint32_t k = 0; k <= last; k++) {
        curve_out[k] = k <= peak ? rising_at(values, weights, peak + 1, k)
                                 : rising_at(mirrored, mirrored_weights, last - peak, last - k);
        error += weights[k] * (curve_out[k] - values[k]) * (curve_out[k] - values[k]);
    }
    return error;
}

static void
curves_are_the_nearest_with_one_peak(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= CURVES; seed++) {
        struct rng rng = {.state = seed};
        double values[HAZARD_BUCKETS], weights[HAZARD_BUCKETS];
        double least = INFINITY;
        uint32_t peak, best = 0;

        for (uint32_t k = 0; k < HAZARD_BUCKETS; k++) {
            values[k] = random_unit(&rng);
            weights[k] = seed % 2 == 0 ? 1 : random_unit(&rng);
        }
        for (peak = 0; peak < HAZARD_BUCKETS; peak++) {
            double wanted[HAZARD_BUCKETS], fitted[HAZARD_BUCKETS];
            double error = curve_reference(values, weights, peak, wanted);

            memcpy(fitted, values, sizeof(fitted));
            hazard_unimodal(fitted, weights, peak);
            for (uint32_t k = 0; k < HAZARD_BUCKETS; k++)
                expect_near(fitted[k], wanted[k]);
            if (error < least - 1e-12) {
                least = error;
                best = peak;
            }
        }
        peak = hazard_peak(values, weights);
        assert_true(peak == best || curve_reference(values, weights, peak, values) < least + 1e-9);
    }
}

/* --- Index ------------------------------------------------------------------------------------ */

/* Reuses a second of keeping a block from bucket `from` to the end of `to`: by the probability of
 * being there, which decays at the rate of each bucket. */
static double
ratio_of(const double *rates, const double *widths, uint32_t from, uint32_t to)
{
    double waited = 0, seconds = 0;

    for (uint32_t k = from; k <= to; k++) {
        seconds += exp(-waited) * (1 - exp(-rates[k] * widths[k])) / rates[k];
        waited += rates[k] * widths[k];
    }
    return (1 - exp(-waited)) / seconds;
}

static void
the_index_is_the_best_ratio_over_all_stopping_ages(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= CURVES; seed++) {
        struct rng rng = {.state = seed};
        double rates[HAZARD_BUCKETS], widths[HAZARD_BUCKETS], index[HAZARD_BUCKETS];

        for (uint32_t k = 0; k < HAZARD_BUCKETS; k++) {
            rates[k] = pow(10, -4 * random_unit(&rng));
            widths[k] = 0.5 + 100 * random_unit(&rng);
        }
        hazard_gittins(rates, widths, index);
        for (uint32_t k = 0; k < HAZARD_BUCKETS; k++) {
            double best = 0;

            for (uint32_t to = k; to < HAZARD_BUCKETS; to++)
                best = fmax(best, ratio_of(rates, widths, k, to));
            expect_near(index[k], best);
        }
    }
}

/* --- Learning --------------------------------------------------------------------------------- */

static void
before_there_are_data_importance_falls_with_age(void **state)
{
    const struct hazard *hazard = *state;
    float last = INFINITY;

    for (uint32_t age = 0; age < ticks_of(3 * 3600); age += 7) {
        float importance = importance_at(hazard, hazard_class(&fresh), age);

        assert_true(importance < last || (age < ticks_of(1) && importance <= last));
        assert_true(importance > 0);
        last = importance;
    }
}

static void
classes_are_told_apart(void **state)
{
    static bool is_taken[HAZARD_CLASSES];
    static const uint8_t counts[] = {1, 2, 3, 5, 9};

    (void)state;
    for (uint32_t i = 0; i < HAZARD_CLASSES; i++) {
        const struct hazard_traits traits = {
            .use_count = counts[i % 5],
            .gap = (uint8_t)(i / 5 % 5),
            .segment = (uint8_t)(i / 25 % 4),
            .turn = (uint8_t)(2 + i / 100 % 3),
            .hint = (uint8_t)(i / 300),
        };
        uint32_t class_index = hazard_class(&traits);

        assert_in_range(class_index, 0, HAZARD_CLASSES - 1);
        assert_false(is_taken[class_index]);
        is_taken[class_index] = true;
    }
}

static void
a_use_raises_the_count_and_notes_the_gap(void **state)
{
    const double gaps[] = {0, 19, 21, 79, 81, 319, 321, 10000};
    const uint8_t buckets[] = {1, 1, 2, 2, 3, 3, 4, 4};
    struct hazard_traits traits = fresh;

    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        hazard_traits_use(&traits, ticks_of(gaps[i]));
        assert_int_equal(traits.gap, buckets[i]);
        assert_int_equal(traits.use_count, i + 2);
    }
    hazard_traits_use(&traits, 0);
    assert_int_equal(traits.use_count, HAZARD_USES_MAX);
    assert_int_equal(hazard_segment_bucket(3), 0);
    assert_int_equal(hazard_segment_bucket(4), 1);
    assert_int_equal(hazard_segment_bucket(8), 2);
    assert_int_equal(hazard_segment_bucket(16), 3);
}

static double
counted_sum(const struct hazard *hazard, bool of_seconds)
{
    double sum = 0;

    for (uint32_t c = 0; c < HAZARD_CLASSES; c++) {
        double reuses[HAZARD_BUCKETS], seconds[HAZARD_BUCKETS];

        hazard_counts(hazard, c, reuses, seconds);
        for (uint32_t k = 0; k < HAZARD_BUCKETS; k++)
            sum += of_seconds ? seconds[k] : reuses[k];
    }
    return sum;
}

/* A block whose life the test follows. */
struct life {
    struct hazard_traits traits;
    uint32_t last;
    bool is_tracked;
};

/* What one life does at `now`. */
static void
life_step(struct hazard *hazard, struct life *life, struct rng *rng, uint32_t now)
{
    uint32_t from = life->is_tracked ? hazard_class(&life->traits) : 0;

    if (!life->is_tracked) {
        *life = (struct life){.traits = fresh, .last = now, .is_tracked = true};
        life->traits.segment = (uint8_t)rng_below(rng, 3);
        hazard_arrive(hazard, hazard_class(&life->traits), now);
        from = hazard_class(&life->traits);
        life->traits.segment++; /* It turns out to be longer. */
        hazard_reclass(hazard, from, hazard_class(&life->traits), now);
    } else if (rng_below(rng, 4) == 0) {
        hazard_forget(hazard, from, life->last, now);
        life->is_tracked = false;
    } else {
        hazard_traits_use(&life->traits, now - life->last);
        hazard_use(hazard, from, hazard_class(&life->traits), life->last, now);
        life->last = now;
    }
}

/* Each second of each block counts once: at its use, or at an estimate, and fades from then on. */
static void
exposure_is_the_time_that_blocks_have_stood_there(void **state)
{
    struct hazard *hazard = *state;
    static struct life lives[BLOCKS];
    struct rng rng = {.state = 7};
    uint32_t now = 1000, last_estimate = 1000;
    double wanted = 0;

    memset(lives, 0, sizeof(lives));
    hazard_step(hazard, now);
    for (uint32_t i = 0; i < STEPS; i++) {
        struct life *life = &lives[rng_below(&rng, BLOCKS)];

        now += rng_below(&rng, 3);
        if (hazard_seconds(now - last_estimate) >= 5) {
            for (uint32_t j = 0; j < BLOCKS; j++) {
                uint32_t since = lives[j].last > last_estimate ? lives[j].last : last_estimate;

                wanted += lives[j].is_tracked ? hazard_seconds(now - since) : 0;
            }
            wanted *= exp2(-hazard_seconds(now - last_estimate) / 7200);
            hazard_step(hazard, now);
            last_estimate = now;
        }
        if (life->is_tracked)
            wanted +=
                hazard_seconds(now - (life->last > last_estimate ? life->last : last_estimate));
        life_step(hazard, life, &rng, now);
        expect_near(counted_sum(hazard, true), wanted);
    }
    assert_true(counted_sum(hazard, false) > 1000);
}

static void
what_is_older_than_an_hour_counts_no_more(void **state)
{
    struct hazard *hazard = *state;
    uint32_t class_index = hazard_class(&fresh);
    uint32_t hour = ticks_of(3600);

    hazard_step(hazard, 1);
    hazard_arrive(hazard, class_index, 1);
    hazard_use(hazard, class_index, class_index, 1, 1 + 2 * hour);
    assert_true(counted_sum(hazard, false) == 0);
    assert_true(fabs(counted_sum(hazard, true) - 3600) < 0.1);
    hazard_step(hazard, 1 + 2 * hour);
    hazard_step(hazard, 1 + 4 * hour); /* Its cohort goes, */
    hazard_step(hazard, 1 + 6 * hour);
    hazard_forget(hazard, class_index, 1 + 2 * hour, 1 + 6 * hour); /* and it does not mind. */
    hazard_arrive(hazard, class_index, 1 + 6 * hour);
    hazard_forget(hazard, class_index, 1 + 6 * hour, 1 + 6 * hour);
}

/* Blocks of one class come back after 40 s, those of another never. */
static void
what_comes_back_is_worth_more_when_it_is_due(void **state)
{
    struct hazard *hazard = *state;
    const struct hazard_traits short_run = fresh;
    struct hazard_traits long_run = fresh;
    uint32_t back, never;

    long_run.segment = 3;
    back = hazard_class(&short_run);
    never = hazard_class(&long_run);
    for (uint32_t second = 1; second < 3000; second++) {
        uint32_t now = ticks_of(second);

        hazard_step(hazard, now);
        hazard_arrive(hazard, back, now);
        hazard_arrive(hazard, never, now);
        if (second > 40) {
            hazard_use(hazard, back, back, ticks_of(second - 40), now);
            hazard_forget(hazard, back, now, now);
        }
    }
    assert_true(importance_at(hazard, back, 0) > 10 * importance_at(hazard, never, 0));
    assert_true(importance_at(hazard, back, ticks_of(35)) > importance_at(hazard, back, 0));
    assert_true(importance_at(hazard, back, ticks_of(35)) >
                10 * importance_at(hazard, back, ticks_of(120)));
    assert_true(reuse_at(hazard, back, 0) > 0.8);
    assert_true(reuse_at(hazard, never, 0) < 0.2);
}

static void
a_longer_horizon_makes_a_reuse_likelier(void **state)
{
    struct hazard *hazard = *state;
    uint32_t class_index = hazard_class(&fresh);
    float chance;

    hazard_step(hazard, 1);
    chance = reuse_at(hazard, class_index, 0);
    assert_true(chance > 0 && chance < 1);
    hazard_horizon_set(hazard, 6000);
    hazard_step(hazard, 1 + ticks_of(6));
    assert_true(reuse_at(hazard, class_index, 0) > chance);
    hazard_horizon_set(hazard, 6);
    hazard_step(hazard, 1 + ticks_of(12));
    assert_true(reuse_at(hazard, class_index, 0) < chance);
    /* The prior at the middle of each bucket, over six seconds. */
    assert_true(fabs((double)reuse_at(hazard, class_index, 0) - 6 * 0.5 / 63) < 0.005);
}

/* --- Keeping ---------------------------------------------------------------------------------- */

static void
what_was_learned_is_kept_and_nothing_else_is_taken(void **state)
{
    struct hazard *hazard = *state;
    struct kvt_env env;
    struct hazard *again;
    static uint8_t bytes[HAZARD_STATE_BYTES_MAX], broken[HAZARD_STATE_BYTES_MAX];
    uint32_t class_index = hazard_class(&fresh);
    size_t size;

    env_host(&env);
    assert_int_equal(hazard_save(hazard, bytes), 0);
    hazard_step(hazard, 1);
    for (uint32_t i = 0; i < 500; i++) {
        hazard_arrive(hazard, class_index, 1 + i * 15);
        hazard_use(hazard, class_index, class_index, 1 + i * 15, 1 + i * 15 + 14);
        hazard_step(hazard, 1 + i * 15 + 14);
    }
    hazard_step(hazard, 10000);
    size = hazard_save(hazard, bytes);
    assert_in_range(size, 9, sizeof(bytes));
    assert_int_equal(hazard_open(&env, &again), KVT_OK);
    for (size_t i = 0; i < size; i++)
        assert_false(hazard_restore(again, bytes, i));
    for (size_t i = 0; i < 12; i += i == 7 ? 2 : 1) { /* Version, count; a class too high. */
        memcpy(broken, bytes, size);
        broken[i] ^= 0x81;
        assert_false(hazard_restore(again, broken, size));
    }
    memcpy(broken, bytes, size);
    memset(broken + 12, 0xFF, 4); /* Not a number. */
    assert_false(hazard_restore(again, broken, size));
    assert_true(counted_sum(again, true) == 0);
    assert_true(hazard_restore(again, bytes, size));
    assert_true(fabs(counted_sum(again, false) - counted_sum(hazard, false)) < 0.01);
    for (uint32_t age = 0; age < 1000; age += 5)
        assert_true(
            fabsf(importance_at(again, class_index, age) / importance_at(hazard, class_index, age) -
                  1) < 0.02f);
    hazard_close(again);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(curves_are_the_nearest_with_one_peak),
        cmocka_unit_test(the_index_is_the_best_ratio_over_all_stopping_ages),
        cmocka_unit_test_setup_teardown(
            before_there_are_data_importance_falls_with_age, setup, teardown),
        cmocka_unit_test(classes_are_told_apart),
        cmocka_unit_test(a_use_raises_the_count_and_notes_the_gap),
        cmocka_unit_test_setup_teardown(
            exposure_is_the_time_that_blocks_have_stood_there, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_older_than_an_hour_counts_no_more, setup, teardown),
        cmocka_unit_test_setup_teardown(
            what_comes_back_is_worth_more_when_it_is_due, setup, teardown),
        cmocka_unit_test_setup_teardown(a_longer_horizon_makes_a_reuse_likelier, setup, teardown),
        cmocka_unit_test_setup_teardown(
            what_was_learned_is_kept_and_nothing_else_is_taken, setup, teardown),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
