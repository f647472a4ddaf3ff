/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_device_cuda_kernel.c - which copies the CUDA device gives to its kernel, and what becomes of
 * the lists that the kernel reads. The runtime and the kernel are played (cuda_play.c).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda_play.h"
#include "device_cuda.h"
#include "device_cuda_internal.h"
#include "device_rig.h"
#include "failure.h"
#include "stop_on_proof.h"

enum {
    KIB = 1024,
    MIB = 1024 * KIB,
    RUN_BYTES = 1000,
    ROOM_BYTES = 1024, /* So that no two runs touch. */
    RUNS = 24,
};

struct bench {
    struct kvt_env env;
    struct device_rig rig;
    struct device_piece pieces[RUNS];
};

static void
pass_at_once(struct device_rig *rig)
{
    (void)rig;
}

static void
bench_open(struct bench *bench)
{
    play_begin();
    env_host(&bench->env);
    bench->rig = (struct device_rig){
        .ops = &device_cuda_ops, .env = &bench->env, .ordinal = 1, .pass = pass_at_once};
    assert_true(device_rig_open(&bench->rig));
}

static void
bench_close(struct bench *bench)
{
    device_rig_close(&bench->rig);
    play_judge();
}

static enum kvt_status
copy(struct bench *bench, void *stream, uint32_t count)
{
    return bench->rig.ops->copy(bench->rig.device, stream, bench->pieces, count);
}

/* Short scattered runs, with new bytes. */
static void
runs_make(struct bench *bench, uint64_t number)
{
    device_rig_fill(bench->rig.host, RUNS * ROOM_BYTES, number);
    memset(bench->rig.slab, 0xEE, RUNS * ROOM_BYTES);
    for (uint32_t i = 0; i < RUNS; i++) {
        bench->pieces[i] = (struct device_piece){bench->rig.slab + (RUNS - 1 - i) * ROOM_BYTES,
            bench->rig.host + i * ROOM_BYTES, RUN_BYTES};
    }
}

static void
runs_check(const struct bench *bench, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *target = bench->pieces[i].target;

        assert_memory_equal(target, bench->pieces[i].source, bench->pieces[i].size);
        if (bench->pieces[i].size == RUN_BYTES)
            assert_int_equal(target[RUN_BYTES], 0xEE);
    }
}

static void
short_runs_are_one_launch(void **state)
{
    struct bench bench;

    (void)state;
    bench_open(&bench);
    runs_make(&bench, 1);
    assert_int_equal(copy(&bench, bench.rig.in, RUNS), KVT_OK);
    runs_check(&bench, RUNS);
    assert_int_equal(play.launch_count, 1);
    assert_int_equal(play.single_count + play.batch_count, 0);
    /* 24,000 bytes are less than 512 for each warp. */
    assert_int_equal(play.chunk_count, 2 * RUNS);
    assert_int_equal(play.chunk_bytes_max, COPY_CUT_BYTES_MIN);
    assert_int_equal(play.grid.block_count, COPY_WIDE_BLOCKS);
    /* A few are sooner begun by the engines. */
    runs_make(&bench, 2);
    assert_int_equal(copy(&bench, bench.rig.in, COPY_KERNEL_RUNS_MIN - 1), KVT_OK);
    runs_check(&bench, COPY_KERNEL_RUNS_MIN - 1);
    assert_int_equal(play.launch_count, 1);
    assert_int_equal(play.batch_count, 1);
    bench_close(&bench);
}

static void
long_runs_of_the_same_call_go_by_the_engines(void **state)
{
    struct bench bench;

    (void)state;
    bench_open(&bench);
    runs_make(&bench, 3);
    for (uint32_t i = 0; i < 3; i++) {
        bench.pieces[5 * i] = (struct device_piece){
            bench.rig.slab + MIB + i * 300 * KIB, bench.rig.host + MIB + i * 200 * KIB, 100 * KIB};
    }
    assert_int_equal(copy(&bench, bench.rig.in, RUNS), KVT_OK);
    runs_check(&bench, RUNS);
    assert_int_equal(play.launch_count, 1);
    assert_int_equal(play.chunk_count, 2 * (RUNS - 3));
    assert_int_equal(play.batch_count, 1);
    assert_int_equal(play.run_count, 3);
    bench_close(&bench);
}

static void
run_of_more_than_8_mib_is_cut(void **state)
{
    struct bench bench;
    const struct device_rig *rig = &bench.rig;
    uint8_t *host;
    void *slab = NULL;

    (void)state;
    bench_open(&bench);
    host = env_map(&bench.env, 20 * MIB);
    assert_non_null(host);
    assert_int_equal(rig->ops->host_register(rig->device, host, 20 * MIB), KVT_OK);
    assert_int_equal(rig->ops->slab_take(rig->device, 20 * MIB, &slab), KVT_OK);
    device_rig_fill(host, 20 * MIB, 4);
    assert_int_equal(device_rig_copy(&bench.rig, rig->in, slab, host, 17 * MIB), KVT_OK);
    assert_int_equal(play.single_count, 3);
    assert_memory_equal(slab, host, 17 * MIB);
    /* Beside others, too; and within the device there is nobody to let pass. */
    runs_make(&bench, 5);
    bench.pieces[0] = (struct device_piece){slab, host, 9 * MIB};
    assert_int_equal(copy(&bench, rig->in, 3), KVT_OK);
    assert_int_equal(play.single_count, 5);
    assert_int_equal(play.run_count, 2);
    assert_int_equal(
        device_rig_copy(&bench.rig, rig->in, (uint8_t *)slab + 10 * MIB, slab, 10 * MIB), KVT_OK);
    assert_int_equal(play.single_count, 6);
    rig->ops->slab_put(rig->device, slab, 20 * MIB);
    rig->ops->host_unregister(rig->device, host, 20 * MIB);
    env_unmap(&bench.env, host, 20 * MIB);
    bench_close(&bench);
}

static void
lists_are_used_again_when_their_kernel_has_ended(void **state)
{
    struct bench bench;

    (void)state;
    bench_open(&bench);
    play.is_stuck = true;
    for (uint32_t i = 0; i < CUDA_LISTS_MAX + 3; i++) {
        runs_make(&bench, i);
        assert_int_equal(copy(&bench, bench.rig.in, RUNS), KVT_OK);
        runs_check(&bench, RUNS);
    }
    assert_int_equal(play.launch_count, CUDA_LISTS_MAX);
    assert_int_equal(play.batch_count, 3); /* Nobody waits for a list. */
    play.is_stuck = false;
    for (uint32_t i = 0; i < 3 * CUDA_LISTS_MAX; i++) {
        play.is_busy = false;
        runs_make(&bench, i);
        assert_int_equal(copy(&bench, bench.rig.in, RUNS), KVT_OK);
        runs_check(&bench, RUNS);
    }
    assert_int_equal(play.launch_count, 4 * CUDA_LISTS_MAX);
    bench_close(&bench);
}

static void
call_of_more_chunks_than_a_list_has_takes_several(void **state)
{
    enum {
        COUNT = 2 * CUDA_LIST_CHUNKS + 100,
        SIZE = 40,
        ROOM = 48,
    };
    struct bench bench;
    struct device_piece *pieces = calloc(COUNT, sizeof(*pieces));

    (void)state;
    assert_non_null(pieces);
    bench_open(&bench);
    device_rig_fill(bench.rig.host, COUNT * ROOM, 6);
    for (uint32_t i = 0; i < COUNT; i++) {
        pieces[i] = (struct device_piece){
            bench.rig.slab + (COUNT - 1 - i) * ROOM, bench.rig.host + i * ROOM, SIZE};
    }
    assert_int_equal(bench.rig.ops->copy(bench.rig.device, bench.rig.in, pieces, COUNT), KVT_OK);
    assert_int_equal(play.launch_count, 3);
    assert_int_equal(play.chunk_count, 100);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_memory_equal(pieces[i].target, pieces[i].source, SIZE);
    bench_close(&bench);
    free(pieces);
}

static void
launch_that_fails_leaves_nothing_queued(void **state)
{
    struct bench bench;

    (void)state;
    bench_open(&bench);
    runs_make(&bench, 7);
    play.fail_call = play.call_count + 1;
    play.fail_with = cudaErrorInvalidValue;
    assert_int_equal(copy(&bench, bench.rig.in, RUNS), KVT_E_INVAL);
    assert_int_equal(bench.rig.slab[0], 0xEE);
    /* Its list is free again, at once. */
    play.is_stuck = true;
    for (uint32_t i = 0; i < CUDA_LISTS_MAX; i++)
        assert_int_equal(copy(&bench, bench.rig.in, RUNS), KVT_OK);
    assert_int_equal(play.launch_count, CUDA_LISTS_MAX);
    runs_check(&bench, RUNS);
    bench_close(&bench);
}

/* The kernel is on its way: whoever is told of an error would use its bytes. */
static void
error_behind_a_launch_loses_the_device(void **state)
{
    (void)state;
    /* Of the event behind the kernel; of the engines' part. */
    for (uint32_t call = 2; call <= 3; call++) {
        struct bench bench;

        bench_open(&bench);
        runs_make(&bench, 8);
        bench.pieces[0] =
            (struct device_piece){bench.rig.slab + MIB, bench.rig.host + MIB, 200 * KIB};
        play.fail_call = play.call_count + call;
        play.fail_with = cudaErrorInvalidValue;
        failure_clear();
        assert_int_equal(copy(&bench, bench.rig.in, RUNS), KVT_E_GPU);
        assert_int_equal(failure_last()->status, KVT_E_GPU);
        assert_int_equal(play.launch_count, 1);
        assert_int_equal(copy(&bench, bench.rig.in, RUNS), KVT_E_GPU);
        play.is_lost = true;
        bench_close(&bench);
    }
}

static void
captured_stream_gets_no_kernel(void **state)
{
    struct bench bench;
    int stream;

    (void)state;
    bench_open(&bench);
    runs_make(&bench, 9);
    play.is_stream_captured = true;
    assert_int_equal(copy(&bench, &stream, RUNS), KVT_E_INVAL);
    assert_int_equal(play.launch_count, 0);
    assert_int_equal(copy(&bench, bench.rig.in, RUNS), KVT_OK);
    assert_int_equal(play.launch_count, 1);
    bench_close(&bench);
}

/* --- Plans ------------------------------------------------------------------------------------ */

static uint64_t
played_now(void *context)
{
    (void)context;
    return play.now_ns;
}

static const struct clock_ops played_clock = {.now_ns = played_now};

static void
measure_open(struct bench *bench)
{
    bench_open(bench);
    device_rig_close(&bench->rig);
    bench->env.clock = &played_clock;
    assert_true(device_rig_open(&bench->rig));
    play.has_no_bytes = true;
}

static struct device_plan
plan_choose(struct bench *bench, enum device_plan_choice choice)
{
    struct device_plan plan;

    assert_int_equal(bench->rig.ops->plan(bench->rig.device, choice, &plan), KVT_OK);
    return plan;
}

static void
plan_is_measured_or_of_engines_only(void **state)
{
    struct bench bench;
    struct device_plan plan;

    (void)state;
    measure_open(&bench);
    plan = plan_choose(&bench, DEVICE_PLAN_KEEP);
    assert_false(plan.is_measured);
    assert_true(plan.kernel_below_bytes[DEVICE_IN] > 0 && plan.kernel_below_bytes[DEVICE_OUT] > 0);
    plan = plan_choose(&bench, DEVICE_PLAN_MEASURE);
    /* 4 calls: 341 runs take 982 us to be queued and 1,445 us in all, 409 take 1,178 and 1,495; the
     * kernel takes 1,340. */
    for (uint32_t i = 0; i < DEVICE_LANE_COUNT; i++)
        assert_int_equal(plan.kernel_below_bytes[i], 48 * KIB);
    assert_true(plan.is_measured);
    assert_true(play.now_ns < 200 * 1000 * 1000);
    plan = plan_choose(&bench, DEVICE_PLAN_ENGINES);
    assert_int_equal(plan.kernel_below_bytes[DEVICE_IN] + plan.kernel_below_bytes[DEVICE_OUT], 0);
    plan = plan_choose(&bench, DEVICE_PLAN_KEEP);
    assert_int_equal(plan.kernel_below_bytes[DEVICE_IN] + plan.kernel_below_bytes[DEVICE_OUT], 0);
    play.launch_count = 0;
    runs_make(&bench, 10);
    assert_int_equal(copy(&bench, bench.rig.in, RUNS), KVT_OK);
    assert_int_equal(play.launch_count, 0);
    bench_close(&bench);
}

static void
device_without_the_kernel_has_its_engines(void **state)
{
    struct bench bench;
    struct device_plan plan;

    (void)state;
    play_begin();
    env_host(&bench.env);
    bench.rig = (struct device_rig){
        .ops = &device_cuda_ops, .env = &bench.env, .ordinal = 1, .pass = pass_at_once};
    play.is_kernel_missing = true;
    assert_true(device_rig_open(&bench.rig));
    plan = plan_choose(&bench, DEVICE_PLAN_MEASURE);
    assert_int_equal(plan.kernel_below_bytes[DEVICE_IN] + plan.kernel_below_bytes[DEVICE_OUT], 0);
    assert_false(plan.is_measured);
    runs_make(&bench, 11);
    assert_int_equal(copy(&bench, bench.rig.in, RUNS), KVT_OK);
    runs_check(&bench, RUNS);
    assert_int_equal(play.launch_count, 0);
    assert_int_equal(play.batch_count, 1);
    bench_close(&bench);
}

/* What cannot be measured is as it was. */
static void
each_call_may_fail_while_a_plan_is_measured(void **state)
{
    static const cudaError_t errors[] = {cudaErrorMemoryAllocation, cudaErrorIllegalAddress};
    uint32_t refused_count = 0;
    uint32_t lost_count = 0;

    (void)state;
    for (uint32_t k = 0; k < 2; k++) {
        for (uint32_t n = 1; n < 100; n++) {
            struct bench bench;
            struct device_plan before;
            struct device_plan plan;
            enum kvt_status status;

            measure_open(&bench);
            before = plan_choose(&bench, DEVICE_PLAN_KEEP);
            play.fail_call = play.call_count + n;
            play.fail_with = errors[k];
            status = bench.rig.ops->plan(bench.rig.device, DEVICE_PLAN_MEASURE, &plan);
            assert_true(status == KVT_OK || status == KVT_E_GPU);
            /* A batch that fails is half queued. */
            if (status == KVT_E_GPU)
                play.is_lost = true;
            lost_count += status == KVT_E_GPU;
            if (status == KVT_OK && !plan.is_measured) {
                assert_memory_equal(plan.kernel_below_bytes, before.kernel_below_bytes,
                    sizeof(plan.kernel_below_bytes));
                refused_count++;
            }
            bench_close(&bench);
        }
    }
    assert_true(refused_count > 0 && lost_count > 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_runs_are_one_launch),
        cmocka_unit_test(long_runs_of_the_same_call_go_by_the_engines),
        cmocka_unit_test(run_of_more_than_8_mib_is_cut),
        cmocka_unit_test(lists_are_used_again_when_their_kernel_has_ended),
        cmocka_unit_test(call_of_more_chunks_than_a_list_has_takes_several),
        cmocka_unit_test(launch_that_fails_leaves_nothing_queued),
        cmocka_unit_test(error_behind_a_launch_loses_the_device),
        cmocka_unit_test(captured_stream_gets_no_kernel),
        cmocka_unit_test(plan_is_measured_or_of_engines_only),
        cmocka_unit_test(device_without_the_kernel_has_its_engines),
        cmocka_unit_test(each_call_may_fail_while_a_plan_is_measured),
    };
    int failed;

    stop_on_proof();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    play_begin();
    return failed;
}
