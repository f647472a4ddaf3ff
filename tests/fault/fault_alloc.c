/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault_alloc.c - the n-th allocation of a small life fails, for every n, once and for good.
 *
 * An open or a request says KVT_E_NOMEM or succeeds; nothing leaks; the store closes; the next life
 * is a good one. The same for an open alone, whose memory is short from some allocation on.
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
};

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

    small_life_init(&life, SEED);
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

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_allocation_fails),
        cmocka_unit_test(all_allocations_fail_from_one_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
