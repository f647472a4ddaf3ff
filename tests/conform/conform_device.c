/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conform_device.c - the emulated accelerator passes the list of tests/support/device_checks.c: on
 * threads, and in the simulated world for many seeds; and whatever of it fails, nothing is left.
 *
 * tests/gpu/gpu_device.c asks the same of CUDA, on machines that have a GPU.
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "device_checks.h"
#include "device_host.h"
#include "failure.h"
#include "seeds.h"
#include "sim_world.h"
#include "stop_on_proof.h"

enum {
    MEMORY_BYTES = 16 << 20,
};

static struct seeds seeds = {.first = 1, .count = 25};

/* --- 1. The list, on threads and in the simulated world --------------------------------------- */

struct row {
    const struct device_check *check;
    uint64_t delay_ns_max;
};

static void
pass_real(struct device_rig *rig)
{
    (void)rig;
    (void)sched_yield();
}

static void
pass_sim(struct device_rig *rig)
{
    (void)sim_run_for(rig->pass_context, 2000);
}

static void
passes_on_threads(void **state)
{
    const struct row *row = *state;
    struct kvt_env env;
    struct device_host_config config = {
        .seed = 1, .delay_ns_max = row->delay_ns_max, .memory_bytes = MEMORY_BYTES};
    struct device_rig rig = {.ops = &device_host_ops,
        .context = &config,
        .env = &env,
        .pass = pass_real,
        .memory_take = device_host_memory_take,
        .memory_put = device_host_memory_put,
        .is_emulated = true,
        .has_threads = true};

    env_host(&env);
    assert_true(device_check_fits(row->check, &rig));
    assert_true(device_check_run(row->check, &rig));
}

/* One life of a check in a world of its own; the hash of what happened. */
static uint64_t
sim_check(const struct device_check *check, uint64_t seed)
{
    struct sim_options options = {.seed = seed};
    struct sim_world *world = sim_world_create(&options);
    struct device_host_config config = {
        .seed = seed, .delay_ns_max = seed % 3 * 20000, .memory_bytes = MEMORY_BYTES};
    struct device_rig rig = {.ops = &device_host_ops,
        .context = &config,
        .env = sim_env(world),
        .pass = pass_sim,
        .pass_context = world,
        .memory_take = device_host_memory_take,
        .memory_put = device_host_memory_put,
        .is_emulated = true};
    char leaks[256] = "";
    uint64_t hash;

    assert_non_null(world);
    if (!device_check_run(check, &rig)) {
        seeds_report(&seeds, check->name, seed, "see above");
        fail();
    }
    if (sim_leaks(world, leaks, sizeof(leaks)) != 0)
        fail_msg("%s: seed %llu leaves %s", check->name, (unsigned long long)seed, leaks);
    hash = sim_trace_hash(world);
    sim_world_destroy(world);
    return hash;
}

static void
passes_in_the_simulated_world(void **state)
{
    const struct row *row = *state;
    uint64_t first_hash = 0;

    for (uint64_t i = 0; i < seeds.count; i++) {
        uint64_t hash = sim_check(row->check, seeds.first + i);

        if (i == 0)
            first_hash = hash;
    }
    /* The same seed, the same life. */
    assert_true(seeds.count == 0 || sim_check(row->check, seeds.first) == first_hash);
}

/* --- 2. Every call fails once ----------------------------------------------------------------- */

struct life {
    struct device_rig rig;
    void *stream;
    uint8_t launched;
};

static void
life_launch(void *context, void *memory)
{
    struct life *life = context;

    memset(memory, 0x5A, 4096);
    life->launched++;
}

static enum kvt_status
life_await(struct life *life)
{
    enum kvt_status status;

    while (
        (status = life->rig.ops->event_query(life->rig.device, life->rig.event)) == KVT_NOT_READY)
        life->rig.pass(&life->rig);
    return status;
}

#define LIFE_TRY(expr)                  \
    do {                                \
        enum kvt_status tried = (expr); \
        if (tried != KVT_OK)            \
            return tried;               \
    } while (0)

static enum kvt_status
life_open(struct life *life)
{
    struct device_rig *rig = &life->rig;
    const struct kvt_device_ops *ops = rig->ops;
    void *slab = NULL;
    uint32_t count = 0;

    LIFE_TRY(ops->count(rig->context, &count));
    LIFE_TRY(ops->open(rig->context, rig->env, 0, &rig->device));
    LIFE_TRY(ops->slab_take(rig->device, RIG_CHUNK_BYTES, &slab));
    rig->slab = slab;
    LIFE_TRY(ops->event_create(rig->device, &rig->event));
    LIFE_TRY(device_host_stream_create(rig->device, &life->stream));
    return KVT_OK;
}

static _Atomic uint32_t *
life_word(struct device_rig *rig)
{
    return (_Atomic uint32_t *)(void *)(rig->host + (1 << 20));
}

/* Every call that can fail, once or more; `is_registered` says what must be given back. */
static enum kvt_status
life_run(struct life *life, bool *is_registered)
{
    struct device_rig *rig = &life->rig;
    const struct kvt_device_ops *ops = rig->ops;
    struct device_info info;

    LIFE_TRY(life_open(life));
    LIFE_TRY(ops->info(rig->device, &info));
    LIFE_TRY(ops->host_register(rig->device, rig->host, RIG_CHUNK_BYTES));
    *is_registered = true;
    rig->in = ops->stream(rig->device, DEVICE_IN);
    LIFE_TRY(device_rig_copy(rig, rig->in, rig->slab, rig->host, 65536));
    LIFE_TRY(device_host_launch(rig->device, rig->in, life_launch, life, rig->slab));
    LIFE_TRY(ops->event_record(rig->device, rig->event, rig->in));
    LIFE_TRY(ops->stream_wait(rig->device, life->stream, rig->event));
    LIFE_TRY(ops->stream_wait_word(rig->device, life->stream, life_word(rig), 1));
    atomic_store(life_word(rig), 1);
    LIFE_TRY(device_rig_copy(rig, life->stream, rig->host + 65536, rig->slab, 65536));
    LIFE_TRY(ops->event_record(rig->device, rig->event, life->stream));
    LIFE_TRY(life_await(life));
    return KVT_OK;
}

/* Give back what there is; first the work in flight ends, as far as the device says so. */
static void
life_end(struct life *life, bool is_registered)
{
    struct device_rig *rig = &life->rig;
    const struct kvt_device_ops *ops = rig->ops;

    if (rig->device == NULL)
        return;
    device_host_stream_destroy(rig->device, life->stream);
    if (rig->event != NULL && ops->event_record(rig->device, rig->event, rig->in) == KVT_OK)
        (void)life_await(life);
    if (is_registered)
        ops->host_unregister(rig->device, rig->host, RIG_CHUNK_BYTES);
    ops->event_destroy(rig->device, rig->event);
    if (rig->slab != NULL)
        ops->slab_put(rig->device, rig->slab, RIG_CHUNK_BYTES);
    ops->close(rig->device);
}

/* A life in which call `fail_call`, or allocation `fail_allocation`, fails. True: nothing did. */
static bool
life_passes(
    uint64_t seed, uint32_t fail_call, enum kvt_status fail_status, uint64_t fail_allocation)
{
    struct sim_options options = {.seed = seed};
    struct sim_world *world = sim_world_create(&options);
    struct device_host_config config = {.seed = seed,
        .delay_ns_max = 10000,
        .memory_bytes = MEMORY_BYTES,
        .fail_call = fail_call,
        .fail_status = fail_status};
    struct life life = {.rig = {.ops = &device_host_ops,
                            .context = &config,
                            .env = sim_env(world),
                            .pass = pass_sim,
                            .pass_context = world}};
    bool is_registered = false;
    char leaks[256] = "";
    uint64_t asked;
    enum kvt_status status;

    life.rig.host = env_map(sim_outer_env(world), RIG_CHUNK_BYTES);
    assert_non_null(life.rig.host);
    device_rig_fill(life.rig.host, RIG_CHUNK_BYTES, 1);
    sim_memory_fail(world, fail_allocation, false);
    asked = sim_memory_asked(world);
    failure_clear();
    status = life_run(&life, &is_registered);
    asked = sim_memory_asked(world) - asked;
    sim_memory_fail(world, 0, false);
    if (fail_call != 0 && config.call_count >= fail_call) {
        assert_int_equal(status, fail_status);
    } else if (fail_allocation != 0 && asked >= fail_allocation) {
        assert_int_equal(status, KVT_E_NOMEM);
    } else {
        assert_int_equal(status, KVT_OK);
        assert_int_equal(life.launched, 1);
        assert_int_equal(life.rig.host[65536], 0x5A);
    }
    if (status != KVT_OK) {
        assert_int_equal(failure_last()->status, status);
        assert_true(failure_last()->text[0] != '\0');
    }
    life_end(&life, is_registered);
    if (sim_leaks(world, leaks, sizeof(leaks)) != 0)
        fail_msg("call %u, allocation %llu: leaves %s", fail_call,
            (unsigned long long)fail_allocation, leaks);
    env_unmap(sim_outer_env(world), life.rig.host, RIG_CHUNK_BYTES);
    sim_world_destroy(world);
    return status == KVT_OK;
}

static void
each_call_may_fail_and_nothing_is_left(void **state)
{
    static const enum kvt_status statuses[] = {KVT_E_NOMEM, KVT_E_INVAL, KVT_E_GPU};

    (void)state;
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; seed++) {
        uint32_t n = 1;

        while (!life_passes(seed, n, statuses[seed % 3], 0))
            n++;
        /* Each of the thirteen kinds of calls, and then none. */
        assert_true(n > 13);
    }
}

static void
each_allocation_may_fail_and_nothing_is_left(void **state)
{
    (void)state;
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; seed++) {
        uint64_t n = 1;

        while (!life_passes(seed, 0, KVT_OK, n))
            n++;
        assert_true(n > 12);
    }
}

static void
lost_device_stays_lost(void **state)
{
    struct kvt_env env;
    struct device_host_config config = {.memory_bytes = MEMORY_BYTES};
    struct device_rig rig = {.ops = &device_host_ops, .context = &config, .env = &env};
    struct device_info info;
    void *made = NULL;

    (void)state;
    env_host(&env);
    assert_true(device_rig_open(&rig));
    config.fail_call = config.call_count + 2;
    assert_int_equal(device_rig_copy(&rig, rig.in, rig.slab, rig.host, 1 << 20), KVT_OK);
    assert_int_equal(device_rig_copy(&rig, rig.out, rig.host + (1 << 20), rig.slab, 4), KVT_E_GPU);
    assert_int_equal(device_rig_copy(&rig, rig.in, rig.slab, rig.host, 4096), KVT_E_GPU);
    assert_int_equal(rig.ops->info(rig.device, &info), KVT_E_GPU);
    assert_int_equal(rig.ops->slab_take(rig.device, 1, &made), KVT_E_GPU);
    assert_int_equal(rig.ops->event_create(rig.device, &made), KVT_E_GPU);
    assert_null(made);
    assert_int_equal(rig.ops->event_record(rig.device, rig.event, rig.in), KVT_E_GPU);
    assert_int_equal(rig.ops->event_query(rig.device, rig.event), KVT_E_GPU);
    assert_int_equal(rig.ops->stream_wait(rig.device, rig.in, rig.event), KVT_E_GPU);
    assert_int_equal(rig.ops->stream_wait_word(rig.device, rig.in, life_word(&rig), 1), KVT_E_GPU);
    assert_int_equal(
        rig.ops->host_register(rig.device, rig.host + 3 * RIG_CHUNK_BYTES, 4096), KVT_E_GPU);
    assert_int_equal(device_host_stream_create(rig.device, &made), KVT_E_GPU);
    assert_int_equal(
        device_host_launch(rig.device, rig.in, life_launch, NULL, rig.slab), KVT_E_GPU);
    /* All is given back with copies in flight, of which nothing is known. */
    device_rig_close(&rig);
}

/* What is in flight may still arrive there: the memory is there for it until the process ends. */
static void
host_memory_that_a_lost_device_keeps_is_told(void **state)
{
    struct kvt_env env;
    struct device_host_config config = {.memory_bytes = MEMORY_BYTES, .keeps_host = true};
    struct device_rig rig = {.ops = &device_host_ops, .context = &config, .env = &env};
    uint8_t *chunk;

    (void)state;
    env_host(&env);
    assert_true(device_rig_open(&rig));
    chunk = rig.host + 2 * RIG_CHUNK_BYTES;
    /* Not while it is there. */
    assert_int_equal(rig.ops->host_unregister(rig.device, chunk, RIG_CHUNK_BYTES), KVT_OK);
    assert_int_equal(rig.ops->host_register(rig.device, chunk, RIG_CHUNK_BYTES), KVT_OK);
    assert_int_equal(device_rig_copy(&rig, rig.out, rig.host, rig.slab, 1 << 20), KVT_OK);
    config.fail_call = config.call_count + 1;
    assert_int_equal(device_rig_copy(&rig, rig.in, rig.slab, rig.host, 4096), KVT_E_GPU);
    for (uint32_t i = 0; i + 1 < RIG_CHUNK_COUNT; i++) {
        assert_int_equal(rig.ops->host_unregister(
                             rig.device, rig.host + (size_t)i * RIG_CHUNK_BYTES, RIG_CHUNK_BYTES),
            KVT_E_GPU);
        assert_non_null(strstr(failure_last()->text, "until the process ends"));
    }
    chunk = rig.host;
    rig.host = NULL;
    device_rig_close(&rig);
    /* What is there by then may be something else. */
    config.fail_call = 0;
    assert_int_equal(device_host_ops.open(&config, &env, 0, &rig.device), KVT_OK);
    assert_int_equal(rig.ops->host_register(rig.device, chunk, 4096), KVT_E_INVAL);
    device_host_ops.close(rig.device);
}

/* --- 3. Opening ------------------------------------------------------------------------------- */

static void
devices_are_counted_and_numbered(void **state)
{
    struct kvt_env env;
    struct device_host_config config = {.device_count = 3};
    struct device *device = NULL;
    struct device_info info;
    uint32_t count = 0;

    (void)state;
    env_host(&env);
    assert_int_equal(device_host_ops.count(NULL, &count), KVT_OK);
    assert_int_equal(count, 1);
    assert_int_equal(device_host_ops.open(NULL, &env, 1, &device), KVT_E_INVAL);
    assert_null(device);
    assert_int_equal(device_host_ops.open(NULL, &env, 0, &device), KVT_OK);
    assert_int_equal(device_host_ops.info(device, &info), KVT_OK);
    assert_int_equal(info.memory_bytes, UINT64_C(1) << 30);
    device_host_ops.close(device);
    device_host_ops.close(NULL);
    assert_int_equal(device_host_ops.count(&config, &count), KVT_OK);
    assert_int_equal(count, 3);
    assert_int_equal(device_host_ops.open(&config, &env, 2, &device), KVT_OK);
    device_host_ops.close(device);
    assert_int_equal(device_host_ops.open(&config, &env, 3, &device), KVT_E_INVAL);
    config.device_count = DEVICE_HOST_DEVICES_MAX + 1;
    assert_int_equal(device_host_ops.count(&config, &count), KVT_E_INVAL);
    config.device_count = 0;
    config.delay_ns_max = UINT64_MAX;
    assert_int_equal(device_host_ops.open(&config, &env, 0, &device), KVT_E_INVAL);
    assert_null(device);
}

static void
streams_of_callers_are_limited(void **state)
{
    struct kvt_env env;
    struct device *device = NULL;
    void *streams[DEVICE_HOST_STREAMS_MAX] = {NULL};
    void *none = NULL;
    uint32_t count = DEVICE_HOST_STREAMS_MAX - DEVICE_LANE_COUNT;

    (void)state;
    env_host(&env);
    assert_int_equal(device_host_ops.open(NULL, &env, 0, &device), KVT_OK);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(device_host_stream_create(device, &streams[i]), KVT_OK);
    assert_int_equal(device_host_stream_create(device, &none), KVT_E_BUSY);
    assert_null(none);
    device_host_stream_destroy(device, streams[0]);
    assert_int_equal(device_host_stream_create(device, &streams[0]), KVT_OK);
    for (uint32_t i = 0; i < count; i++)
        device_host_stream_destroy(device, streams[i]);
    device_host_stream_destroy(device, NULL);
    device_host_ops.close(device);
}

/* --- 4. The program --------------------------------------------------------------------------- */

/* The list as a group; each check is a test with a row of its own as its state. */
static int
list_run(const char *group, void (*run)(void **state), uint64_t delay_ns_max, bool has_threads)
{
    static struct row rows[DEVICE_CHECK_COUNT];
    struct CMUnitTest tests[DEVICE_CHECK_COUNT];
    size_t count = 0;

    for (size_t i = 0; i < DEVICE_CHECK_COUNT; i++) {
        if (device_checks[i].needs_threads && !has_threads)
            continue;
        rows[count] = (struct row){&device_checks[i], delay_ns_max};
        tests[count] = (struct CMUnitTest){
            .name = device_checks[i].name, .test_func = run, .initial_state = &rows[count]};
        count++;
    }
    return _cmocka_run_group_tests(group, tests, count, NULL, NULL);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test(each_call_may_fail_and_nothing_is_left),
        cmocka_unit_test(each_allocation_may_fail_and_nothing_is_left),
        cmocka_unit_test(lost_device_stays_lost),
        cmocka_unit_test(host_memory_that_a_lost_device_keeps_is_told),
        cmocka_unit_test(devices_are_counted_and_numbered),
        cmocka_unit_test(streams_of_callers_are_limited),
    };
    int failed;

    if (!seeds_parse(&seeds, argc, argv))
        return 2;
    stop_on_proof();
    failed = list_run("emulation: threads", passes_on_threads, 0, true);
    failed += list_run("emulation: threads, late", passes_on_threads, 20000, true);
    failed += list_run("emulation: simulated", passes_in_the_simulated_world, 0, false);
    return failed + cmocka_run_group_tests_name("emulation: failures", others, NULL, NULL);
}
