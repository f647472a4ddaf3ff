/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_real.c - random operations on stores of this machine, with its threads and files, against
 * a plain map: model_store and model_tiers outside the simulation.
 *
 * --seed N --seeds N --ops N; a twentieth of the seeds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "io_engines.h"
#include "store_runs.h"

static void
runs_over_uring(const struct seeds *seeds, const struct shape *shape)
{
    if (io_uring_probe() != KVT_OK) {
        print_message("io_uring is denied here\n");
        skip();
    }
    real_runs(seeds, KVT_IO_URING, shape);
}

static void
store_over_threads_is_a_map(void **state)
{
    static const struct shape shape = {.name = "large, threads"};

    real_runs(*state, KVT_IO_THREADS, &shape);
}

static void
store_over_threads_that_evicts_never_lies(void **state)
{
    static const struct shape shape = {.name = "small, threads", .is_small = true};

    real_runs(*state, KVT_IO_THREADS, &shape);
}

static void
store_over_uring_is_a_map(void **state)
{
    static const struct shape shape = {.name = "large, uring"};

    runs_over_uring(*state, &shape);
}

static void
store_over_uring_that_evicts_never_lies(void **state)
{
    static const struct shape shape = {.name = "small, uring", .is_small = true};

    runs_over_uring(*state, &shape);
}

static void
store_with_hbm_over_threads_that_evicts_never_lies(void **state)
{
    static const struct shape shape = {
        .name = "small with HBM, threads", .is_small = true, .has_hbm = true};

    real_runs(*state, KVT_IO_THREADS, &shape);
}

static void
store_with_hbm_over_uring_is_a_map(void **state)
{
    static const struct shape shape = {.name = "large with HBM, uring", .has_hbm = true};

    runs_over_uring(*state, &shape);
}

int
main(int argc, char **argv)
{
    struct seeds seeds = {.first = 1, .count = RUN_SEEDS, .operation_count = RUN_OPERATIONS};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(store_over_threads_is_a_map, &seeds),
        cmocka_unit_test_prestate(store_over_threads_that_evicts_never_lies, &seeds),
        cmocka_unit_test_prestate(store_over_uring_is_a_map, &seeds),
        cmocka_unit_test_prestate(store_over_uring_that_evicts_never_lies, &seeds),
        cmocka_unit_test_prestate(store_with_hbm_over_threads_that_evicts_never_lies, &seeds),
        cmocka_unit_test_prestate(store_with_hbm_over_uring_is_a_map, &seeds),
    };

    if (!seeds_parse(&seeds, argc, argv))
        return 2;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
