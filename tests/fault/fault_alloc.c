/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault_alloc.c - the n-th allocation of a small life fails, for every n, once and for good.
 *
 * An open or a request says KVT_E_NOMEM or succeeds; nothing leaks; the store closes; the next life
 * is a good one. The same for an open that must rebuild the index, and for a store with an HBM
 * tier, whose emulated device takes memory as a driver does.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "small_life.h"

enum {
    SEED = 43,
    N_LIMIT = 50000,
    HBM_SEED = 45,
    REBUILD_STICKY_STEP = 5, /* What fails for good in a rebuild mostly ends it at once. */
    /* With HBM a share of the allocations: each of them would take a minute. */
#if defined(__SANITIZE_ADDRESS__)
    HBM_STEP = 97,
#else
    HBM_STEP = 13,
#endif
};

static bool has_hbm; /* Of the lives of the test that runs. */

static void
report(bool sticky, uint64_t n, const char *failure)
{
    print_error("allocation %llu fails %s: %s\n", (unsigned long long)n,
        sticky ? "and all later ones" : "once", failure);
    fail();
}

/* False: the life made fewer than n allocations. */
static bool
life_short_of_memory(uint64_t n, bool sticky)
{
    char failure[MODEL_FAILURE_BYTES];
    struct small_life life;
    enum kvt_status status;
    char leaks[200];
    bool fired;

    small_life_init(&life, has_hbm ? SMALL_LIFE_HBM : SMALL_LIFE_PLAIN, has_hbm ? HBM_SEED : SEED);
    life.work->is_faulty = true;
    sim_memory_fail(life.host.world, n, sticky);
    status = small_life_run(&life);
    fired = sim_memory_asked(life.host.world) >= n;
    if (status != KVT_OK && status != KVT_E_NOMEM)
        model_fail(&life.work->model, "an open says %s", kvt_status_name(status));
    if (sim_leaks(life.host.world, leaks, sizeof(leaks)) != 0)
        model_fail(&life.work->model, "left behind after close: %s", leaks);
    sim_memory_fail(life.host.world, 0, false);
    if (life.work->model.failure[0] == '\0')
        small_life_prove(&life, false);
    snprintf(failure, sizeof(failure), "%s", life.work->model.failure);
    small_life_deinit(&life);
    if (failure[0] != '\0')
        report(sticky, n, failure);
    return fired;
}

static void
one_allocation_fails(void **state)
{
    uint64_t n = 1;

    (void)state;
    while (n < N_LIMIT && life_short_of_memory(n, false))
        n++;
    assert_in_range(n, 2, N_LIMIT - 1);
}

static void
all_allocations_fail_from_one_on(void **state)
{
    uint64_t n = 1;

    (void)state;
    while (n < N_LIMIT && life_short_of_memory(n, true))
        n++;
    assert_in_range(n, 2, N_LIMIT - 1);
}

/* False: the rebuild made fewer than n allocations. */
static bool
rebuild_short_of_memory(uint64_t n, bool sticky)
{
    char failure[MODEL_FAILURE_BYTES];
    struct small_life life;
    enum kvt_status status;
    uint64_t asked;
    char leaks[200];
    bool fired;

    small_life_init(&life, SMALL_LIFE_PLAIN, SEED);
    assert_int_equal(small_life_run(&life), KVT_OK);
    assert_int_equal(life.work->model.failure[0], '\0');
    sim_index_damage(life.host.world);
    life.work->is_faulty = true;
    asked = sim_memory_asked(life.host.world);
    sim_memory_fail(life.host.world, n, sticky);
    status = workload_open(life.work, 0, true);
    fired = sim_memory_asked(life.host.world) >= asked + n;
    if (status != KVT_OK && status != KVT_E_NOMEM)
        model_fail(&life.work->model, "an open says %s", kvt_status_name(status));
    if (life.work->store != NULL)
        (void)workload_close(life.work);
    if (sim_leaks(life.host.world, leaks, sizeof(leaks)) != 0)
        model_fail(&life.work->model, "left behind after close: %s", leaks);
    sim_memory_fail(life.host.world, 0, false);
    if (life.work->model.failure[0] == '\0')
        small_life_prove(&life, status != KVT_OK);
    snprintf(failure, sizeof(failure), "%s", life.work->model.failure);
    small_life_deinit(&life);
    if (failure[0] != '\0')
        report(sticky, n, failure);
    return fired;
}

/* An open that must rebuild the index has all blocks, or is refused and can be tried again. */
static void
allocations_fail_in_a_rebuild(void **state)
{
    (void)state;
    for (int sticky = 0; sticky < 2; sticky++) {
        uint64_t n = 1;

        while (n < N_LIMIT && rebuild_short_of_memory(n, sticky != 0))
            n += sticky != 0 ? REBUILD_STICKY_STEP : 1;
        assert_in_range(n, 50, N_LIMIT - 1);
    }
}

static void
allocations_fail_with_an_hbm_tier(void **state)
{
    (void)state;
    has_hbm = true;
    for (int sticky = 0; sticky < 2; sticky++) {
        uint64_t n = 1;

        while (n < N_LIMIT && life_short_of_memory(n, sticky != 0))
            n += HBM_STEP;
        print_message("each %dth of %llu allocations\n", HBM_STEP, (unsigned long long)n);
        assert_in_range(n, 500, N_LIMIT - 1);
    }
    has_hbm = false;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_allocation_fails),
        cmocka_unit_test(all_allocations_fail_from_one_on),
        cmocka_unit_test(allocations_fail_in_a_rebuild),
        cmocka_unit_test(allocations_fail_with_an_hbm_tier),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
