/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_tiers.c - random operations on a store with three tiers against a plain map, as
 * model_store.c: sources and destinations on the host and on a device, prefetches, demotions.
 *
 * --seed N --seeds N --ops N; twice the seeds hold everything, for half the operations, and half of
 * them evict for room, or for the map.
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
    static const struct shape shape = {.name = "large with HBM, simulated", .has_hbm = true};
    struct seeds shorter = *(const struct seeds *)*state;

    shorter.operation_count /= 2;
    simulated_runs(&shorter, &shape, 2 * shorter.count);
}

static void
store_that_evicts_forgets_but_never_lies(void **state)
{
    static const struct shape shape = {
        .name = "small with HBM, simulated", .is_small = true, .has_hbm = true};
    const struct seeds *seeds = *state;

    simulated_runs(seeds, &shape, (seeds->count + 1) / 2);
}

static void
store_with_a_full_map_forgets_but_never_lies(void **state)
{
    static const struct shape shape = {
        .name = "small map with HBM, simulated", .has_small_map = true, .has_hbm = true};
    const struct seeds *seeds = *state;

    simulated_runs(seeds, &shape, (seeds->count + 1) / 2);
}

int
main(int argc, char **argv)
{
    struct seeds seeds = {.first = 1, .count = RUN_SEEDS / 2, .operation_count = RUN_OPERATIONS};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(store_that_holds_everything_is_a_map, &seeds),
        cmocka_unit_test_prestate(store_that_evicts_forgets_but_never_lies, &seeds),
        cmocka_unit_test_prestate(store_with_a_full_map_forgets_but_never_lies, &seeds),
    };

    if (!seeds_parse(&seeds, argc, argv))
        return 2;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
