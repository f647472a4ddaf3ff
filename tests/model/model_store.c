/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_store.c - random operations on a store against a plain map, without faults: in the
 * simulated world and on this machine, with tiers that hold everything and with tiers that do not.
 *
 * --seed N --seeds N --ops N; real stores run a tenth of the seeds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "io_engines.h"
#include "seeds.h"
#include "store_host.h"
#include "workload.h"

enum {
    REOPEN_EVERY = 60, /* Operations, on average. */
};

/* Close, open again, and go on. */
static void
reopen(struct workload *work)
{
    (void)workload_close(work);
    if (work->model.failure[0] == '\0')
        (void)workload_open(work, 0, false);
}

static void
run(struct workload *work, uint32_t operation_count)
{
    if (workload_open(work, 0, false) != KVT_OK)
        return;
    for (uint32_t i = 0; i < operation_count && workload_step(work); i++) {
        if (rng_below(&work->rng, REOPEN_EVERY) == 0)
            reopen(work);
        if (work->model.failure[0] != '\0')
            return;
    }
    workload_settle(work);
    workload_verify(work);
    workload_scan(work);
    workload_stats(work);
    reopen(work);
    workload_scan(work);
    (void)workload_close(work);
    if (work->hit_count == 0 && operation_count >= 100)
        model_fail(&work->model, "not one read was a hit");
}

static bool
run_simulated(uint64_t seed, uint32_t operation_count, bool is_small, char *failure, size_t size)
{
    struct sim_options world = {
        .seed = seed,
        .align_bytes = seed % 2 == 0 ? 512 : 4096,
        .short_per_mille = seed % 3 == 0 ? 20 : 0,
        .retry_per_mille = seed % 5 == 0 ? 20 : 0,
        .direct_unsupported = seed % 7 == 0,
    };
    struct kvt_options options = is_small ? host_options_small() : host_options_large();
    struct workload *work = calloc(1, sizeof(*work));
    struct workload_host reach;
    struct sim_host host;
    char leaks[200];

    assert_non_null(work);
    sim_host_init(&host, &world, &options);
    reach = sim_host_of(&host);
    workload_init(work, &reach, seed, is_small ? SMALL_KEYS : LARGE_KEYS,
        is_small ? SMALL_SHIFT : LARGE_SHIFT);
    work->evicts = is_small;
    run(work, operation_count);
    if (work->model.failure[0] == '\0' && sim_leaks(host.world, leaks, sizeof(leaks)) != 0)
        model_fail(&work->model, "left behind after close: %s", leaks);
    if (work->model.failure[0] == '\0' && sim_stuck(host.world))
        model_fail(&work->model, "a caller waited while nothing could happen");
    snprintf(failure, size, "%s", work->model.failure);
    sim_host_deinit(&host);
    workload_abandon(work);
    free(work);
    return failure[0] == '\0';
}

static bool
run_real(uint64_t seed, uint32_t operation_count, const struct kvt_options *options, bool is_small,
    char *failure)
{
    struct workload *work = calloc(1, sizeof(*work));
    struct workload_host reach;
    struct real_host host;

    assert_non_null(work);
    assert_true(real_host_init(&host, options));
    reach = real_host_of(&host);
    workload_init(work, &reach, seed, is_small ? SMALL_KEYS : LARGE_KEYS,
        is_small ? SMALL_SHIFT : LARGE_SHIFT);
    work->evicts = is_small;
    run(work, operation_count);
    snprintf(failure, MODEL_FAILURE_BYTES, "%s", work->model.failure);
    kvt_abort(work->store); /* NULL unless the run failed. */
    workload_abandon(work);
    free(work);
    real_host_deinit(&host);
    return failure[0] == '\0';
}

static void
simulated_runs(const struct seeds *seeds, bool is_small)
{
    for (uint64_t seed = seeds->first; seed < seeds->first + seeds->count; seed++) {
        char failure[MODEL_FAILURE_BYTES];

        if (!run_simulated(seed, seeds->operation_count, is_small, failure, sizeof(failure))) {
            seeds_report(seeds, is_small ? "small, simulated" : "large, simulated", seed, failure);
            fail();
        }
    }
}

static void
real_runs(const struct seeds *seeds, enum kvt_io_engine engine, bool is_small)
{
    struct kvt_options options = is_small ? host_options_small() : host_options_large();

    options.io_engine = (uint32_t)engine;
    for (uint64_t seed = seeds->first; seed < seeds->first + (seeds->count + 9) / 10; seed++) {
        char failure[MODEL_FAILURE_BYTES];

        if (!run_real(seed, seeds->operation_count, &options, is_small, failure)) {
            seeds_report(
                seeds, engine == KVT_IO_URING ? "real, uring" : "real, threads", seed, failure);
            fail();
        }
    }
}

static void
simulated_store_that_holds_everything_is_a_map(void **state)
{
    simulated_runs(*state, false);
}

static void
simulated_store_that_evicts_forgets_but_never_lies(void **state)
{
    simulated_runs(*state, true);
}

static void
real_store_over_threads_is_a_map(void **state)
{
    real_runs(*state, KVT_IO_THREADS, false);
}

static void
real_store_over_threads_that_evicts_never_lies(void **state)
{
    real_runs(*state, KVT_IO_THREADS, true);
}

static void
real_store_over_uring_is_a_map(void **state)
{
    if (io_uring_probe() != KVT_OK) {
        print_message("io_uring is denied here\n");
        skip();
    }
    real_runs(*state, KVT_IO_URING, false);
}

static void
real_store_over_uring_that_evicts_never_lies(void **state)
{
    if (io_uring_probe() != KVT_OK) {
        print_message("io_uring is denied here\n");
        skip();
    }
    real_runs(*state, KVT_IO_URING, true);
}

int
main(int argc, char **argv)
{
    struct seeds seeds = {.first = 1, .count = 100, .operation_count = 250};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(simulated_store_that_holds_everything_is_a_map, &seeds),
        cmocka_unit_test_prestate(simulated_store_that_evicts_forgets_but_never_lies, &seeds),
        cmocka_unit_test_prestate(real_store_over_threads_is_a_map, &seeds),
        cmocka_unit_test_prestate(real_store_over_threads_that_evicts_never_lies, &seeds),
        cmocka_unit_test_prestate(real_store_over_uring_is_a_map, &seeds),
        cmocka_unit_test_prestate(real_store_over_uring_that_evicts_never_lies, &seeds),
    };

    if (!seeds_parse(&seeds, argc, argv))
        return 2;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
