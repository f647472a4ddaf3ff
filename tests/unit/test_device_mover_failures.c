/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_device_mover_failures.c - moves that are bad, calls of the device that fail, and a device
 * that is lost: each move is answered once, and a bad one fails alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "mover_bench.h"
#include "seeds.h"
#include "stop_on_proof.h"

enum {
    KIB = 1024,
    LONG = 3 * DEVICE_MOVER_PIECES_MAX + 7, /* Pieces of a move that needs four calls. */
};

static struct seeds seeds = {.first = 1, .count = 30};
static struct device_piece many[MOVER_BENCH_MOVES][MOVER_BENCH_MANY];

/* --- 1. Bad moves ----------------------------------------------------------------------------- */

static void
bad_moves_fail_alone(void **state)
{
    (void)state;
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; seed++) {
        struct device_move *moves[20];
        struct mover_bench bench;

        mover_bench_open(&bench, seed);
        device_rig_fill(bench.rig.host, RIG_CHUNK_BYTES, seed);
        for (uint32_t i = 0; i < 20; i++)
            moves[i] = mover_bench_move(&bench, i, DEVICE_IN, i * 4u * KIB, 4 * KIB);
        bench.pieces[3].source = bench.rig.host + 3 * (size_t)RIG_CHUNK_BYTES; /* Unregistered. */
        bench.pieces[7].size = 0;
        moves[11]->piece_count = 0;
        moves[13]->wait = &bench; /* No event. */
        moves[17]->lane = DEVICE_LANE_COUNT;
        device_mover_push(bench.mover, moves, 20);
        mover_bench_await(&bench, 20);
        for (uint32_t i = 0; i < 20; i++) {
            bool is_bad = i == 3 || i == 7 || i == 11 || i == 13 || i == 17;

            assert_int_equal(moves[i]->status, is_bad ? KVT_E_INVAL : KVT_OK);
        }
        assert_int_equal(mover_bench_stats(&bench).error_count, 5);
        assert_int_equal(mover_bench_stats(&bench).move_count[DEVICE_IN], 15);
        assert_false(device_mover_is_lost(bench.mover));
        assert_int_equal(device_rig_copy(&bench.rig, bench.rig.out,
                             bench.rig.host + RIG_CHUNK_BYTES, bench.rig.slab, 80 * KIB),
            KVT_OK);
        assert_true(device_rig_drain(&bench.rig, bench.rig.out));
        for (size_t at = 0; at < 80 * KIB; at += 4 * KIB) {
            size_t i = at / (4 * KIB);

            if (i == 3 || i == 7 || i == 11 || i == 13 || i == 17)
                continue;
            assert_memory_equal(
                bench.rig.host + at, bench.rig.host + RIG_CHUNK_BYTES + at, 4 * KIB);
        }
        mover_bench_close(&bench);
    }
}

static void
long_moves_are_cut_and_end_whole(void **state)
{
    static struct device_piece pieces[2][LONG];

    (void)state;
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; seed++) {
        struct mover_bench bench;
        struct device_move *good, *bad;

        mover_bench_open(&bench, seed);
        device_rig_fill(bench.rig.host, RIG_CHUNK_BYTES, seed);
        good = mover_bench_move_many(&bench, 0, pieces[0], LONG, 0);
        bad = mover_bench_move_many(&bench, 1, pieces[1], LONG, 512 * KIB);
        pieces[1][LONG - 1].size = 0;
        mover_bench_push(&bench, good);
        mover_bench_push(&bench, bad);
        mover_bench_await(&bench, 2);
        assert_int_equal(mover_watch.pieces_max, DEVICE_MOVER_PIECES_MAX);
        assert_int_equal(good->status, KVT_OK);
        assert_int_equal(bad->status, KVT_E_INVAL);
        assert_int_equal(
            device_rig_copy(&bench.rig, bench.rig.out, bench.rig.host + RIG_CHUNK_BYTES,
                bench.rig.slab, LONG * MOVER_BENCH_PIECE_BYTES),
            KVT_OK);
        assert_true(device_rig_drain(&bench.rig, bench.rig.out));
        assert_memory_equal(
            bench.rig.host, bench.rig.host + RIG_CHUNK_BYTES, LONG * MOVER_BENCH_PIECE_BYTES);
        mover_bench_close(&bench);
    }
}

/* A move whose last part is refused is answered when its first parts are no more in flight. */
static void
refused_move_is_answered_with_nothing_in_flight(void **state)
{
    static struct device_piece pieces[LONG];

    (void)state;
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; seed++) {
        struct mover_bench bench;
        struct device_move *bad;

        mover_bench_open(&bench, seed);
        bad = mover_bench_move_many(&bench, 0, pieces, LONG, 0);
        pieces[LONG - 1].size = 0;
        mover_bench_push(&bench, bad);
        while (bench.answer_count == 0) {
            (void)sim_run_for(bench.world, 500);
            mover_bench_take(&bench);
        }
        assert_int_equal(bad->status, KVT_E_INVAL);
        assert_true(mover_watch.flying_max[DEVICE_IN] > 0);
        assert_int_equal(mover_watch.flying[DEVICE_IN], 0);
        mover_bench_close(&bench);
    }
}

/* --- 2. Calls that fail ----------------------------------------------------------------------- */

/* Moves of both directions, some that wait, some long; pushed at different moments. */
static uint32_t
traffic(struct mover_bench *bench)
{
    enum {
        COUNT = 24
    };

    for (uint32_t i = 0; i < COUNT; i++) {
        struct device_move *move =
            i % 6 == 5 ? mover_bench_move_many(bench, i, many[i], MOVER_BENCH_MANY, i * 16u * KIB)
                       : mover_bench_move(bench, i, i % 2, i * 16u * KIB, 3000 + i);

        move->is_urgent = i % 5 == 0;
        if (i % 4 == 0)
            move->wait = bench->rig.event;
        mover_bench_push(bench, move);
        if (i % 3 == 0)
            sim_run_steps(bench->world, 20);
    }
    return COUNT;
}

/* The device's call `fail_call` fails; how many calls there were. */
static uint32_t
life_with_failure(uint64_t seed, uint32_t fail_call, enum kvt_status fail_status)
{
    struct mover_bench bench;
    uint32_t opened;
    uint32_t asked;
    uint32_t count;
    uint32_t failed = 0;

    mover_bench_open(&bench, seed);
    opened = bench.config.call_count;
    bench.config.fail_call = fail_call == 0 ? 0 : opened + fail_call;
    bench.config.fail_status = fail_status;
    count = traffic(&bench);
    mover_bench_await(&bench, count);
    asked = bench.config.call_count - opened;
    for (uint32_t i = 0; i < count; i++) {
        enum kvt_status status = bench.moves[i].status;

        (void)mover_bench_place(&bench, &bench.moves[i]);
        assert_true(status == KVT_OK || status == fail_status);
        failed += status != KVT_OK;
    }
    assert_int_equal(mover_bench_stats(&bench).error_count, failed);
    if (fail_call != 0 && asked >= fail_call && fail_status == KVT_E_GPU) {
        assert_true(failed > 0);
        assert_true(device_mover_is_lost(bench.mover));
        mover_bench_push(&bench, mover_bench_move(&bench, count, DEVICE_IN, 0, 64));
        bench.moves[count].wait = bench.rig.event;
        mover_bench_await(&bench, count + 1);
        assert_int_equal(bench.moves[count].status, KVT_E_GPU);
        /* The one that failed was the last call. */
        assert_int_equal(bench.config.call_count, opened + fail_call);
    } else {
        assert_true(failed <= 1);
        assert_false(device_mover_is_lost(bench.mover));
    }
    mover_bench_close(&bench);
    return asked;
}

static void
each_call_may_lose_the_device(void **state)
{
    (void)state;
    for (uint64_t seed = seeds.first; seed < seeds.first + 1 + seeds.count / 8; seed++) {
        uint32_t n = 1;

        while (life_with_failure(seed, n, KVT_E_GPU) >= n)
            n++;
        assert_true(n > 30);
    }
}

static void
each_call_may_fail_once(void **state)
{
    static const enum kvt_status statuses[] = {KVT_E_INVAL, KVT_E_NOMEM};

    (void)state;
    for (uint64_t seed = seeds.first; seed < seeds.first + 1 + seeds.count / 8; seed++) {
        uint32_t n = 1;

        while (life_with_failure(seed, n, statuses[seed % 2]) >= n)
            n++;
        assert_true(n > 30);
    }
}

/* Its event fails a few times, and it is cancelled: neither is an answer. */
static struct {
    struct kvt_device_ops ops;
    void *event;
    uint32_t query_count, destroy_count;
    bool is_held; /* Its event is not reached. */
} firm;

static enum kvt_status
firm_query(struct device *device, void *event)
{
    if (event == firm.event && ++firm.query_count <= 3)
        return failure_set(KVT_E_NOMEM, 0, "No queries, on purpose.");
    if (event == firm.event && firm.is_held)
        return KVT_NOT_READY;
    return device_host_ops.event_query(device, event);
}

static void
firm_destroy(struct device *device, void *event)
{
    firm.destroy_count += event == firm.event;
    device_host_ops.event_destroy(device, event);
}

/* With an event of its own that is watched. */
static void
firm_bench_open(struct mover_bench *bench)
{
    void *event = NULL;

    memset(&firm, 0, sizeof(firm));
    mover_bench_open(bench, 1);
    firm.ops = *bench->rig.device->ops;
    firm.ops.event_query = firm_query;
    bench->rig.device->ops = &firm.ops;
    assert_int_equal(firm.ops.event_create(bench->rig.device, &event), KVT_OK);
    firm.event = event;
}

static struct device_move *
firm_move_make(struct mover_bench *bench)
{
    struct device_move *move = mover_bench_move(bench, 0, DEVICE_IN, 0, 4 * KIB);

    move->piece_count = 0;
    move->wait = firm.event;
    move->is_wait_firm = move->is_wait_owned = true;
    return move;
}

static void
firm_move_waits_for_its_event_alone(void **state)
{
    (void)state;
    for (uint32_t is_lost = 0; is_lost < 2; is_lost++) {
        struct mover_bench bench;
        struct device_move *move;

        firm_bench_open(&bench);
        firm.ops.event_destroy = firm_destroy;
        move = firm_move_make(&bench);
        mover_bench_push(&bench, move);
        device_move_cancel(move);
        for (uint32_t i = 0; i < 1000 && firm.query_count < 2; i++)
            mover_bench_pass(&bench.rig);
        assert_int_equal(firm.query_count, 2);
        assert_int_equal(firm.destroy_count, 0);
        bench.config.fail_call = is_lost ? bench.config.call_count + 1 : 0;
        bench.config.fail_status = KVT_E_GPU;
        mover_bench_await(&bench, 1);
        assert_int_equal(move->status, is_lost ? KVT_E_GPU : KVT_OK);
        assert_int_equal(firm.destroy_count, 1);
        mover_bench_close(&bench);
    }
}

static enum kvt_status
copy_refused(
    struct device *device, void *stream, const struct device_piece *pieces, uint32_t piece_count)
{
    (void)device;
    (void)stream;
    (void)pieces;
    (void)piece_count;
    return failure_set(KVT_E_GPU, 0, "No copies, on purpose.");
}

/* Others end, then and later: only copies have failed, and the stream goes on. */
static void
firm_move_outlasts_a_device_that_is_only_given_up(void **state)
{
    struct device_move *firm_move, *held, *copied, *late;
    struct mover_bench bench;

    (void)state;
    firm_bench_open(&bench);
    firm.ops.copy = copy_refused;
    firm.is_held = true;
    firm.query_count = 3; /* None fails. */
    firm_move = firm_move_make(&bench);
    held = mover_bench_move(&bench, 1, DEVICE_IN, 4 * KIB, 4 * KIB);
    held->wait = firm.event;
    mover_bench_push(&bench, firm_move);
    mover_bench_push(&bench, held);
    for (uint32_t i = 0; i < 100; i++)
        mover_bench_pass(&bench.rig);
    mover_bench_take(&bench);
    assert_int_equal(bench.answer_count, 0);
    copied = mover_bench_move(&bench, 2, DEVICE_IN, 8 * KIB, 4 * KIB);
    mover_bench_push(&bench, copied);
    mover_bench_await(&bench, 2);
    assert_true(device_mover_is_lost(bench.mover));
    assert_int_equal(held->status, KVT_E_GPU);
    assert_int_equal(copied->status, KVT_E_GPU);
    late = mover_bench_move(&bench, 3, DEVICE_IN, 12 * KIB, 4 * KIB);
    late->wait = firm.event;
    mover_bench_push(&bench, late);
    mover_bench_await(&bench, 3);
    assert_int_equal(late->status, KVT_E_GPU);
    firm.is_held = false;
    mover_bench_await(&bench, 4);
    assert_int_equal(firm_move->status, KVT_OK);
    mover_bench_close(&bench);
}

static void
device_without_records_is_lost_after_a_while(void **state)
{
    struct mover_bench bench;
    uint64_t begin_ns;

    (void)state;
    mover_bench_open(&bench, 1);
    mover_watch.has_no_records = true;
    begin_ns = sim_now(bench.world);
    for (uint32_t i = 0; i < 5; i++)
        mover_bench_push(&bench, mover_bench_move(&bench, i, DEVICE_IN, i * 4u * KIB, 4 * KIB));
    mover_bench_await(&bench, 5);
    assert_true(sim_now(bench.world) - begin_ns >= DEVICE_MOVER_PATIENCE_NS);
    assert_true(device_mover_is_lost(bench.mover));
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(bench.moves[i].status, KVT_E_GPU);
    mover_bench_close(&bench);

    /* A little later they come: the moves are answered then, and not before. */
    mover_bench_open(&bench, 1);
    mover_watch.has_no_records = true;
    mover_bench_push(&bench, mover_bench_move(&bench, 0, DEVICE_IN, 0, 4 * KIB));
    (void)sim_run_for(bench.world, DEVICE_MOVER_PATIENCE_NS / 2);
    mover_bench_take(&bench);
    assert_int_equal(bench.answer_count, 0);
    mover_watch.has_no_records = false;
    mover_bench_await(&bench, 1);
    assert_int_equal(bench.moves[0].status, KVT_OK);
    assert_false(device_mover_is_lost(bench.mover));
    mover_bench_close(&bench);
}

static void
open_may_fail_anywhere_and_leaves_nothing(void **state)
{
    struct mover_bench bench;
    struct device_mover *mover = NULL;
    enum kvt_status status = KVT_E_GPU;
    uint32_t n = 0;

    (void)state;
    while (status != KVT_OK) {
        mover_bench_world(&bench, 1, 0);
        assert_true(device_rig_open(&bench.rig));
        bench.config.fail_call = bench.config.call_count + ++n;
        bench.config.fail_status = n % 2 == 0 ? KVT_E_GPU : KVT_E_NOMEM;
        status = device_mover_open(bench.rig.env, bench.rig.device, "mover", &mover);
        assert_int_equal(status,
            bench.config.call_count < bench.config.fail_call ? KVT_OK : bench.config.fail_status);
        assert_true((mover == NULL) == (status != KVT_OK));
        bench.mover = mover;
        mover_bench_close(&bench);
    }
    assert_int_equal(n, DEVICE_LANE_COUNT * DEVICE_MOVER_CALLS_MAX + 1);
    device_mover_close(NULL);
}

/* In steady state the mover takes no memory; the emulation does, as a driver may. */
static void
memory_that_runs_out_fails_moves_and_loses_none(void **state)
{
    (void)state;
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; seed++) {
        struct mover_bench bench;
        uint32_t count;

        mover_bench_open(&bench, seed);
        sim_memory_fail(bench.world, 1 + seed % 12, false);
        count = traffic(&bench);
        mover_bench_await(&bench, count);
        for (uint32_t i = 0; i < count; i++)
            assert_true(bench.moves[i].status == KVT_OK || bench.moves[i].status == KVT_E_NOMEM);
        assert_false(device_mover_is_lost(bench.mover));
        mover_bench_close(&bench);
    }
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_moves_fail_alone),
        cmocka_unit_test(long_moves_are_cut_and_end_whole),
        cmocka_unit_test(refused_move_is_answered_with_nothing_in_flight),
        cmocka_unit_test(each_call_may_lose_the_device),
        cmocka_unit_test(each_call_may_fail_once),
        cmocka_unit_test(firm_move_waits_for_its_event_alone),
        cmocka_unit_test(firm_move_outlasts_a_device_that_is_only_given_up),
        cmocka_unit_test(device_without_records_is_lost_after_a_while),
        cmocka_unit_test(open_may_fail_anywhere_and_leaves_nothing),
        cmocka_unit_test(memory_that_runs_out_fails_moves_and_loses_none),
    };

    if (!seeds_parse(&seeds, argc, argv))
        return 2;
    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
