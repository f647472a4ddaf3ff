/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_cuda_measure.c - from which length of runs on the copy engines are faster than the kernel.
 *
 * Both copy the same scattered runs, several calls behind each other as the mover has them. The
 * shortest runs with which the engines win are the direction's crossover. They win when they are
 * not slower, and leave the thread that queues their runs some time: short ones keep it as busy as
 * the bus, and then nothing is left of it for the other direction. Each way has its best time of a
 * few, so that what else the machine does has little to say.
 */
#include "device_cuda_internal.h"
#include "failure.h"
#include "try.h"

enum {
    KIB = 1024,
    TOTAL_BYTES = 16 * 1024 * KIB, /* On each side: a call of the mover. */
    CALLS = 4,                     /* In flight: what the mover has. */
    ROUNDS = 2,
    QUEUE_PERCENT_MAX = 75, /* Of the time, for the thread that queues. */
    /* The engines begin when all runs of the first call are queued; so in a stream of calls those
     * that are not slower are, by this much, in one of CALLS. */
    TIME_PERCENT_MAX = 108,
    RUN_BYTES_MIN = 16 * KIB,
};

static const uint64_t PATIENCE_NS = 200 * 1000 * 1000;

struct measure {
    struct device_cuda *device;
    uint8_t *host;
    void *memory;
    bool is_registered;
    uint64_t deadline_ns;
    struct device_piece pieces[TOTAL_BYTES / RUN_BYTES_MIN];
};

static enum kvt_status
measure_begin(struct measure *measure)
{
    struct device *device = &measure->device->device;

    measure->host = env_map(&measure->device->env, TOTAL_BYTES);
    if (measure->host == NULL)
        return failure_set(KVT_E_NOMEM, 0, "No memory to measure copies with.");
    KVT_TRY(device->ops->host_register(device, measure->host, TOTAL_BYTES));
    measure->is_registered = true;
    return device->ops->slab_take(device, TOTAL_BYTES, &measure->memory);
}

static void
measure_end(struct measure *measure)
{
    struct device *device = &measure->device->device;

    if (measure->memory != NULL)
        device->ops->slab_put(device, measure->memory, TOTAL_BYTES);
    if (measure->is_registered &&
        device->ops->host_unregister(device, measure->host, TOTAL_BYTES) != KVT_OK)
        return; /* It stays mapped. */
    if (measure->host != NULL)
        env_unmap(&measure->device->env, measure->host, TOTAL_BYTES);
}

/* From now on all runs go this way; nothing counts as busy. */
static void
plan_force(struct device_cuda *device, const struct device_plan *plan)
{
    (void)pthread_mutex_lock(&device->mutex);
    copy_planner_set(&device->planner, plan);
    (void)pthread_mutex_unlock(&device->mutex);
}

struct way_cost {
    uint64_t all_ns;
    uint64_t queue_ns; /* Of them, for the thread that queues. */
};

static enum kvt_status
calls_time(
    struct measure *measure, enum device_lane lane, uint32_t run_count, struct way_cost *cost_out)
{
    struct device_cuda *device = measure->device;
    uint64_t begin_ns = env_now(&device->env);

    for (uint32_t i = 0; i < CALLS; i++) {
        KVT_TRY(
            device_cuda_copy(&device->device, device->streams[lane], measure->pieces, run_count));
    }
    cost_out->queue_ns = env_now(&device->env) - begin_ns;
    KVT_TRY(cuda_stream_await(device, device->streams[lane]));
    cost_out->all_ns = env_now(&device->env) - begin_ns;
    if (begin_ns + cost_out->all_ns >= measure->deadline_ns)
        return failure_set(KVT_NOT_READY, 0, "Copies were not measured in time.");
    return KVT_OK;
}

/* The best of a few. */
static enum kvt_status
way_time(struct measure *measure, enum device_lane lane, uint32_t run_count, bool is_kernel,
    struct way_cost *best_out)
{
    struct device_plan plan = {.is_measured = false};

    plan.kernel_below_bytes[lane] = is_kernel ? TOTAL_BYTES : 0;
    plan_force(measure->device, &plan);
    best_out->all_ns = UINT64_MAX;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct way_cost cost;

        KVT_TRY(calls_time(measure, lane, run_count, &cost));
        if (cost.all_ns < best_out->all_ns)
            *best_out = cost;
    }
    return KVT_OK;
}

/* No two runs that touch are neighbours in the list. */
static uint32_t
runs_make(struct measure *measure, enum device_lane lane, uint64_t size)
{
    uint32_t count = (uint32_t)(TOTAL_BYTES / size);

    for (uint32_t i = 0; i < count; i++) {
        uint8_t *host = measure->host + i * size;
        uint8_t *memory = (uint8_t *)measure->memory + (count - 1 - i) * size;

        measure->pieces[i] = lane == DEVICE_IN ? (struct device_piece){memory, host, size}
                                               : (struct device_piece){host, memory, size};
    }
    return count;
}

/* Do the engines win with runs of this length? */
static enum kvt_status
engines_win(struct measure *measure, enum device_lane lane, uint64_t size, bool *is_won_out)
{
    uint32_t count = runs_make(measure, lane, size);
    struct way_cost kernel;
    struct way_cost engines;

    KVT_TRY(way_time(measure, lane, count, true, &kernel));
    KVT_TRY(way_time(measure, lane, count, false, &engines));
    *is_won_out = engines.all_ns <= kernel.all_ns / 100 * TIME_PERCENT_MAX &&
                  engines.queue_ns <= engines.all_ns / 100 * QUEUE_PERCENT_MAX;
    return KVT_OK;
}

/* Between the length with which they never win and the one with which they always do. */
static enum kvt_status
lane_measure(struct measure *measure, enum device_lane lane, uint64_t *below_bytes_out)
{
    static const uint64_t sizes[] = {
        RUN_BYTES_MIN, 24 * KIB, 32 * KIB, 40 * KIB, 48 * KIB, 64 * KIB, 96 * KIB, 128 * KIB};
    uint32_t low = 0;
    uint32_t high = sizeof(sizes) / sizeof(sizes[0]) - 1;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        bool is_won;

        KVT_TRY(engines_win(measure, lane, sizes[middle], &is_won));
        if (is_won)
            high = middle;
        else
            low = middle + 1;
    }
    *below_bytes_out = sizes[low];
    return KVT_OK;
}

static enum kvt_status
plan_measure(struct device_cuda *device, struct device_plan *plan)
{
    struct measure *measure = env_take(&device->env, sizeof(*measure));
    struct device_plan measured = {.is_measured = true};
    enum kvt_status status;

    if (measure == NULL)
        return failure_set(KVT_E_NOMEM, 0, "No memory to measure copies with.");
    measure->device = device;
    measure->deadline_ns = env_now(&device->env) + PATIENCE_NS;
    status = measure_begin(measure);
    for (uint32_t i = 0; i < DEVICE_LANE_COUNT && status == KVT_OK; i++)
        status = lane_measure(measure, (enum device_lane)i, &measured.kernel_below_bytes[i]);
    measure_end(measure);
    env_put(&device->env, measure, sizeof(*measure));
    if (status == KVT_OK)
        *plan = measured;
    return status;
}

enum kvt_status
device_cuda_plan(struct device *base, enum device_plan_choice choice, struct device_plan *plan_out)
{
    struct device_cuda *device = device_cuda_of(base);
    struct device_plan plan;
    enum kvt_status status = KVT_OK;

    (void)pthread_mutex_lock(&device->mutex);
    copy_planner_get(&device->planner, &plan);
    (void)pthread_mutex_unlock(&device->mutex);
    switch (choice) {
    case DEVICE_PLAN_KEEP:
        break;
    case DEVICE_PLAN_ENGINES:
        plan = (struct device_plan){.is_measured = false};
        break;
    case DEVICE_PLAN_MEASURE:
        if (device->lists.count > 0)
            status = plan_measure(device, &plan);
        break;
    }
    if (choice != DEVICE_PLAN_KEEP)
        plan_force(device, &plan);
    *plan_out = plan;
    /* What could not be measured is as it was. */
    return status == KVT_E_GPU ? status : KVT_OK;
}
