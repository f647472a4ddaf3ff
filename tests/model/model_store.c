/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_store.c - random operations on a store with HOST and NVMe against a plain map, without
 * faults, in the simulated world: with tiers that hold everything and with tiers that do not, under
 * each policy.
 *
 * --seed N --seeds N --ops N; stores that evict, for room or for the map, run a quarter of the
 * seeds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store_runs.h"

static void
store_that_holds_everything_is_a_map(void **state)
{
    static const struct shape shape = {.name = "large, simulated"};
    const struct seeds *seeds = *state;

    simulated_runs(seeds, &shape, seeds->count);
}

static void
store_that_evicts_forgets_but_never_lies(void **state)
{
    static const struct shape shape = {.name = "small, simulated", .is_small = true};
    const struct seeds *seeds = *state;

    simulated_runs(seeds, &shape, (seeds->count + 3) / 4);
}

static void
store_with_a_full_map_forgets_but_never_lies(void **state)
{
    static const struct shape shape = {.name = "small map, simulated", .has_small_map = true};
    const struct seeds *seeds = *state;

    simulated_runs(seeds, &shape, (seeds->count + 3) / 4);
}

int
main(int argc, char **argv)
{
    struct seeds seeds = {.first = 1, .count = RUN_SEEDS, .operation_count = RUN_OPERATIONS};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(store_that_holds_everything_is_a_map, &seeds),
        cmocka_unit_test_prestate(store_that_evicts_forgets_but_never_lies, &seeds),
        cmocka_unit_test_prestate(store_with_a_full_map_forgets_but_never_lies, &seeds),
    };

    if (!seeds_parse(&seeds, argc, argv))
        return 2;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
