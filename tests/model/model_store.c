/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_store.c - random operations on a store against a plain map, without faults: in the
 * simulated world and on this machine, with tiers that hold everything and with tiers that do not,
 * under each policy.
 *
 * Stores that evict run four times the operations, and must have reclaimed, evicted and relocated.
 *
 * --seed N --seeds N --ops N; stores that evict run a quarter of the seeds, real stores a
 * twentieth.
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
    EVICT_LENGTH = 4,  /* Runs that evict are longer: first NVMe has to be full. */
#if defined(__SANITIZE_THREAD__)
    SEED_COUNT = 4,
#else
    SEED_COUNT = 200,
#endif
    OPERATION_COUNT = 250,
};

/* What a store that is always short of room must have done, over its lives. */
struct pressure {
    uint64_t recycled_count, evicted_count, relocated_count;
};

static void
pressure_add(struct workload *work, struct pressure *pressure)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};

    if (work->store == NULL || kvt_stats_get(work->store, &stats) != KVT_OK)
        return;
    pressure->recycled_count += stats.segment_recycle_count;
    pressure->evicted_count += stats.nvme_evict_count;
    pressure->relocated_count += stats.nvme_relocate_count;
}

static void
pressure_judge(struct workload *work, const struct pressure *pressure, uint32_t operation_count)
{
    bool is_enough = pressure->recycled_count > 0 && pressure->evicted_count > 0 &&
                     pressure->relocated_count > 0;

    if (work->evicts && operation_count >= EVICT_LENGTH * OPERATION_COUNT && !is_enough)
        model_fail(&work->model, "no pressure: %u recycled, %u evicted, %u relocated",
            (unsigned)pressure->recycled_count, (unsigned)pressure->evicted_count,
            (unsigned)pressure->relocated_count);
    if (!work->evicts && pressure->recycled_count > 0)
        model_fail(&work->model, "a store that holds everything has reclaimed a segment");
}

/* Close, open again, and go on. */
static void
reopen(struct workload *work, struct pressure *pressure)
{
    workload_settle(work);
    pressure_add(work, pressure);
    (void)workload_close(work);
    if (work->model.failure[0] == '\0')
        (void)workload_open(work, 0, false);
}

static void
run(struct workload *work, uint32_t operation_count)
{
    struct pressure pressure = {0};

    if (workload_open(work, 0, false) != KVT_OK)
        return;
    for (uint32_t i = 0; i < operation_count && workload_step(work); i++) {
        if (rng_below(&work->rng, REOPEN_EVERY) == 0)
            reopen(work, &pressure);
        if (work->model.failure[0] != '\0')
            return;
    }
    workload_settle(work);
    workload_verify(work);
    workload_scan(work);
    workload_stats(work);
    reopen(work, &pressure);
    workload_scan(work);
    (void)workload_close(work);
    if (work->hit_count == 0 && operation_count >= 100)
        model_fail(&work->model, "not one read was a hit");
    pressure_judge(work, &pressure, operation_count);
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
    options.policy = seed / 2 % 2 == 0 ? KVT_POLICY_LRU : KVT_POLICY_S3FIFO;
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

static uint32_t
operations_of(const struct seeds *seeds, bool is_small)
{
    return is_small ? EVICT_LENGTH * seeds->operation_count : seeds->operation_count;
}

static void
simulated_runs(const struct seeds *seeds, bool is_small)
{
    uint64_t count = is_small ? (seeds->count + 3) / 4 : seeds->count;

    for (uint64_t seed = seeds->first; seed < seeds->first + count; seed++) {
        char failure[MODEL_FAILURE_BYTES];

        if (!run_simulated(
                seed, operations_of(seeds, is_small), is_small, failure, sizeof(failure))) {
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
    for (uint64_t seed = seeds->first; seed < seeds->first + (seeds->count + 19) / 20; seed++) {
        char failure[MODEL_FAILURE_BYTES];

        options.policy = seed % 2 == 0 ? KVT_POLICY_LRU : KVT_POLICY_S3FIFO;
        if (!run_real(seed, operations_of(seeds, is_small), &options, is_small, failure)) {
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
    struct seeds seeds = {.first = 1, .count = SEED_COUNT, .operation_count = OPERATION_COUNT};
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
