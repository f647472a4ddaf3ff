/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_runs.c - runs of the workload over stores of one shape.
 *
 * Stores with small tiers run four times the operations, and must have reclaimed, evicted and
 * relocated; those with a small map must have evicted for it.
 */
#include "store_runs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "store_host.h"
#include "workload.h"

enum {
    REOPEN_EVERY = 120, /* Operations, on average. */
    LOOK_EVERY = 4,     /* Times that it was closed. */
    /* Of several runs: by then chance has had its turn. Of 1,000 one in 4,680 lacked something. */
    MANY_OPERATIONS = 3000,
    ABORT_STEPS = 20,
    EVICT_LENGTH = 4, /* Runs that evict are longer: first NVMe has to be full. */
};

/* What happens by chance, and is wanted once in many operations: how often it has. */
#define CHANCES(X)                                                                                 \
    X(cancel_count, is_simulated, "requests that were cancelled") /* Else they may be too fast. */ \
    X(shadow_count, is_simulated, "scans that were compared with events")                          \
    X(watch_count, is_simulated && work->has_shares && work->evicts, "shares that were watched")   \
    X(spread_count[SPREAD_PLAIN], true, "reads into spread memory")                                \
    X(spread_count[SPREAD_PINNED], has_devices, "reads into spread memory that is pinned")         \
    X(spread_count[SPREAD_DEVICE], has_devices, "reads into spread memory of a device")            \
    X(told_count, true, "completions of a queue")                                                  \
    X(freed_count[0], true, "tickets freed before their stage 1")                                  \
    X(late_count, has_devices, "requests behind work of a stream")                                 \
    X(chain_count, true, "requests of one name in flight together")                                \
    X(asked_count[ASKED_REFUSED], true, "calls that break a rule")                                 \
    X(asked_count[ASKED_WHY], true, "answers of kvt_why()")                                        \
    X(asked_count[ASKED_SCRUB], true, "blocks of a closed store that were read as by a tool")      \
    X(asked_count[ASKED_LIST], work->host.path != NULL, "blocks of a closed store that it lists")  \
    X(pin_count, true, "pins")                                                                     \
    X(direct_count, true, "blocks that were written where they lie")                               \
    X(phase_count, true, "phases")

#define CHANCE_NAME(member, is_wanted, name) name,
#define CHANCE_ADD(member, is_wanted, name)          \
    chances->operations[i] += is_wanted ? count : 0; \
    chances->seen[i++] += work->member;

static const char *const chance_names[] = {CHANCES(CHANCE_NAME)};

enum {
    CHANCE_COUNT = sizeof(chance_names) / sizeof(chance_names[0]),
};

struct chances {
    uint64_t operations[CHANCE_COUNT]; /* Of runs in which it is wanted. */
    uint64_t seen[CHANCE_COUNT];
};

static void
chances_add(struct chances *chances, const struct workload *work, bool has_devices, uint32_t count)
{
    bool is_simulated = work->host.crashed != NULL;
    uint32_t i = 0;

    CHANCES(CHANCE_ADD)
}

static void
chances_judge(const struct chances *chances, const struct shape *shape)
{
    for (uint32_t i = 0; i < CHANCE_COUNT; i++) {
        if (chances->operations[i] >= MANY_OPERATIONS && chances->seen[i] == 0)
            fail_msg("%s: no %s in %llu operations", shape->name, chance_names[i],
                (unsigned long long)chances->operations[i]);
    }
}

/* What a store that is always short of room must have done, over its lives. */
struct pressure {
    uint64_t recycled_count, evicted_count, relocated_count, map_evicted_count;
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
    pressure->map_evicted_count += stats.map_evict_count;
}

static void
pressure_judge(struct workload *work, const struct shape *shape, const struct pressure *pressure,
    uint32_t operation_count)
{
    bool is_enough = pressure->recycled_count > 0 && pressure->evicted_count > 0 &&
                     pressure->relocated_count > 0;

    if (shape->is_small && operation_count >= EVICT_LENGTH * RUN_OPERATIONS && !is_enough)
        model_fail(&work->model, "no pressure: %u recycled, %u evicted, %u relocated",
            (unsigned)pressure->recycled_count, (unsigned)pressure->evicted_count,
            (unsigned)pressure->relocated_count);
    if (!shape->is_small && pressure->recycled_count > 0)
        model_fail(&work->model, "a store that holds everything has reclaimed a segment");
    if (shape->has_small_map != (pressure->map_evicted_count > 0) &&
        operation_count >= RUN_OPERATIONS)
        model_fail(&work->model, "%u evicted for the map", (unsigned)pressure->map_evicted_count);
}

/* Close, open again, and go on. `looks`: between the two, as a tool does. */
static void
reopen(struct workload *work, struct pressure *pressure, bool looks)
{
    workload_settle(work);
    pressure_add(work, pressure);
    (void)workload_close(work);
    if (work->model.failure[0] == '\0' && looks)
        workload_closed(work);
    if (work->model.failure[0] == '\0')
        (void)workload_open(work, 0, false);
}

/* Abort with requests in flight, none of them to memory that a device gave the caller: that is to
 * be given back before. What was acknowledged is there. */
static void
abort_and_reopen(struct workload *work)
{
    workload_memory_close(work);
    for (uint32_t i = 0; i < ABORT_STEPS && work->model.failure[0] == '\0'; i++)
        (void)workload_step(work);
    kvt_abort(work->store);
    workload_abandon(work);
    if (work->model.failure[0] == '\0' && workload_open(work, 0, false) == KVT_OK)
        (void)workload_close(work);
}

static void
run(struct workload *work, const struct shape *shape, uint32_t operation_count,
    struct chances *chances)
{
    struct pressure pressure = {0};
    bool has_devices = work->device_percent > 0; /* Until the abort. */

    if (workload_open(work, 0, false) != KVT_OK)
        return;
    for (uint32_t i = 0; i < operation_count && workload_step(work); i++) {
        if (rng_below(&work->rng, REOPEN_EVERY) == 0)
            reopen(work, &pressure, rng_below(&work->rng, LOOK_EVERY) == 0);
        if (work->model.failure[0] != '\0')
            return;
    }
    workload_settle(work);
    workload_verify(work);
    workload_scan(work);
    workload_stats(work);
    reopen(work, &pressure, true);
    workload_scan(work);
    abort_and_reopen(work);
    if (work->audit_count == 0)
        model_fail(&work->model, "the store was never at rest");
    if (work->hit_count == 0 && operation_count >= 100)
        model_fail(&work->model, "not one read was a hit");
    pressure_judge(work, shape, &pressure, operation_count);
    chances_add(chances, work, has_devices, operation_count);
}

static struct kvt_options
options_of(const struct shape *shape, uint64_t seed)
{
    struct kvt_options options = shape->is_small ? host_options_small() : host_options_large();

    options.policy = KVT_POLICY_LRU + (uint32_t)(seed / 2 % 3);
    if (shape->has_hbm)
        host_options_add_hbm(&options);
    if (shape->has_small_map)
        options.entry_count_max = SMALL_MAP;
    return options;
}

static void
work_init(struct workload *work, const struct workload_host *reach, const struct shape *shape,
    uint64_t seed)
{
    workload_init(work, reach, seed, shape->is_small ? SMALL_KEYS : LARGE_KEYS,
        shape->is_small ? SMALL_SHIFT : LARGE_SHIFT);
    work->evicts = shape->is_small || shape->has_small_map;
    work->device_percent = shape->has_hbm ? 60 : 0;
    work->spread_percent = 25;
}

static bool
run_simulated(uint64_t seed, uint32_t operation_count, const struct shape *shape,
    struct chances *chances, char *failure)
{
    struct sim_options world = {
        .seed = seed,
        .align_bytes = seed % 2 == 0 ? 512 : 4096,
        .short_per_mille = seed % 3 == 0 ? 20 : 0,
        .retry_per_mille = seed % 5 == 0 ? 20 : 0,
        .direct_unsupported = seed % 7 == 0,
    };
    struct kvt_options options = options_of(shape, seed);
    struct workload *work = calloc(1, sizeof(*work));
    struct workload_host reach;
    struct sim_host host;
    char leaks[200];

    assert_non_null(work);
    if (shape->has_hbm && seed % 2 == 1)
        options.device_mask = 3;
    sim_host_init(&host, &world, &options);
    reach = sim_host_of(&host);
    work_init(work, &reach, shape, seed);
    run(work, shape, operation_count, chances);
    if (work->model.failure[0] == '\0' && sim_leaks(host.world, leaks, sizeof(leaks)) != 0)
        model_fail(&work->model, "left behind after close: %s", leaks);
    if (work->model.failure[0] == '\0' && sim_stuck(host.world))
        model_fail(&work->model, "a caller waited while nothing could happen");
    snprintf(failure, MODEL_FAILURE_BYTES, "%s", work->model.failure);
    sim_host_deinit(&host);
    workload_abandon(work);
    free(work);
    return failure[0] == '\0';
}

static bool
run_real(uint64_t seed, uint32_t operation_count, const struct shape *shape,
    enum kvt_io_engine engine, struct chances *chances, char *failure)
{
    struct workload *work = calloc(1, sizeof(*work));
    struct kvt_options options = options_of(shape, seed);
    struct workload_host reach;
    struct real_host host;

    assert_non_null(work);
    options.io_engine = (uint32_t)engine;
    assert_true(real_host_init(&host, &options));
    reach = real_host_of(&host);
    work_init(work, &reach, shape, seed);
    run(work, shape, operation_count, chances);
    snprintf(failure, MODEL_FAILURE_BYTES, "%s", work->model.failure);
    kvt_abort(work->store); /* NULL unless the run failed. */
    workload_abandon(work);
    free(work);
    real_host_deinit(&host);
    return failure[0] == '\0';
}

static uint32_t
operations_of(const struct seeds *seeds, const struct shape *shape)
{
    return shape->is_small ? EVICT_LENGTH * seeds->operation_count : seeds->operation_count;
}

void
simulated_runs(const struct seeds *seeds, const struct shape *shape, uint64_t count)
{
    struct chances chances = {0};

    for (uint64_t seed = seeds->first; seed < seeds->first + count; seed++) {
        char failure[MODEL_FAILURE_BYTES];

        if (!run_simulated(seed, operations_of(seeds, shape), shape, &chances, failure)) {
            seeds_report(seeds, shape->name, seed, failure);
            fail();
        }
    }
    chances_judge(&chances, shape);
}

void
real_runs(const struct seeds *seeds, enum kvt_io_engine engine, const struct shape *shape)
{
    struct chances chances = {0};

    for (uint64_t seed = seeds->first; seed < seeds->first + (seeds->count + 19) / 20; seed++) {
        char failure[MODEL_FAILURE_BYTES];

        if (!run_real(seed, operations_of(seeds, shape), shape, engine, &chances, failure)) {
            seeds_report(seeds, shape->name, seed, failure);
            fail();
        }
    }
    chances_judge(&chances, shape);
}
