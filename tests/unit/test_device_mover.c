/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_device_mover.c - the mover over the emulated accelerator: whatever the schedule and the
 * delays, bytes are right when a move is answered, and moves come in their order and turns.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <sched.h>

#include "mover_bench.h"
#include "mover_user.h"
#include "seeds.h"
#include "stop_on_proof.h"

enum {
    KIB = 1024,
    USER_MOVES = 250,
};

static struct seeds seeds = {.first = 1, .count = 30};

/* --- 1. Bytes and order ----------------------------------------------------------------------- */

static uint64_t
user_life(uint64_t seed)
{
    static struct mover_user user;
    struct mover_bench bench;
    void *stream = NULL;
    uint64_t hash;

    mover_bench_open(&bench, seed);
    bench.config.delay_ns_max = seed % 3 * 20000;
    assert_int_equal(device_host_stream_create(bench.rig.device, &stream), KVT_OK);
    assert_true(mover_user_open(&user, &bench.rig, bench.mover, stream, seed));
    if (!mover_user_run(&user, USER_MOVES)) {
        seeds_report(&seeds, "random moves", seed, "see above");
        fail();
    }
    assert_true(user.out_count > 0 && user.staged_count > 0);
    assert_true(mover_watch.flying_max[DEVICE_IN] <= DEVICE_MOVER_CALLS_MAX);
    assert_true(mover_watch.flying_max[DEVICE_OUT] <= DEVICE_MOVER_CALLS_MAX);
    assert_int_equal(mover_bench_stats(&bench).move_count[DEVICE_IN] +
                         mover_bench_stats(&bench).move_count[DEVICE_OUT],
        USER_MOVES);
    mover_user_close(&user);
    device_host_stream_destroy(bench.rig.device, stream);
    hash = sim_trace_hash(bench.world);
    mover_bench_close(&bench);
    return hash;
}

static void
random_moves_bring_the_right_bytes(void **state)
{
    uint64_t hash = user_life(seeds.first);

    (void)state;
    for (uint64_t seed = seeds.first + 1; seed < seeds.first + seeds.count; seed++)
        (void)user_life(seed);
    /* The same seed, the same life. */
    assert_true(user_life(seeds.first) == hash);
}

static void
pass_real(struct device_rig *rig)
{
    (void)rig;
    (void)sched_yield();
}

static void
random_moves_bring_the_right_bytes_on_threads(void **state)
{
    static struct mover_user user;
    struct kvt_env env;
    struct device_host_config config = {.seed = 1, .delay_ns_max = 20000};
    struct device_rig rig = {.ops = &device_host_ops,
        .context = &config,
        .env = &env,
        .pass = pass_real,
        .is_emulated = true,
        .has_threads = true};
    struct device_mover *mover;
    void *stream = NULL;

    (void)state;
    env_host(&env);
    assert_true(device_rig_open(&rig));
    assert_int_equal(device_mover_open(&env, rig.device, "mover", &mover), KVT_OK);
    assert_int_equal(device_host_stream_create(rig.device, &stream), KVT_OK);
    assert_true(mover_user_open(&user, &rig, mover, stream, 1));
    assert_true(mover_user_run(&user, 4 * USER_MOVES));
    mover_user_close(&user);
    device_host_stream_destroy(rig.device, stream);
    device_mover_close(mover);
    device_rig_close(&rig);
}

static void
moves_that_are_alike_are_answered_in_order(void **state)
{
    (void)state;
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; seed++) {
        struct mover_bench bench;

        mover_bench_open(&bench, seed);
        for (uint32_t i = 0; i < MOVER_BENCH_MOVES; i++) {
            size_t size = 1 + (i * 7919) % (16 * KIB);

            (void)mover_bench_move(&bench, i, DEVICE_IN, i * 16u * KIB, size);
            if (i % 9 == 0)
                bench.pieces[i].source = &bench; /* Not registered: an error keeps the order. */
            mover_bench_push(&bench, &bench.moves[i]);
            if (i % 5 == 0)
                sim_run_steps(bench.world, (uint32_t)seed % 40);
        }
        mover_bench_await(&bench, MOVER_BENCH_MOVES);
        for (uint32_t i = 0; i < MOVER_BENCH_MOVES; i++) {
            assert_ptr_equal(bench.answers[i], &bench.moves[i]);
            assert_int_equal(bench.moves[i].status, i % 9 == 0 ? KVT_E_INVAL : KVT_OK);
        }
        mover_bench_close(&bench);
    }
}

static void
moves_that_lie_ready_share_a_call(void **state)
{
    struct device_move *moves[MOVER_BENCH_MOVES];
    struct mover_bench bench;
    struct device_mover_stats stats;

    (void)state;
    mover_bench_open(&bench, 1);
    for (uint32_t i = 0; i < MOVER_BENCH_MOVES; i++)
        moves[i] = mover_bench_move(&bench, i, DEVICE_OUT, i * 4u * KIB, 4 * KIB);
    device_mover_push(bench.mover, moves, MOVER_BENCH_MOVES);
    mover_bench_await(&bench, MOVER_BENCH_MOVES);
    stats = mover_bench_stats(&bench);
    assert_int_equal(stats.call_count[DEVICE_OUT], 1);
    assert_int_equal(stats.call_count[DEVICE_IN], 0);
    assert_int_equal(stats.move_count[DEVICE_OUT], MOVER_BENCH_MOVES);
    assert_int_equal(stats.bytes[DEVICE_OUT], MOVER_BENCH_MOVES * 4 * KIB);
    assert_int_equal(stats.error_count, 0);
    mover_bench_close(&bench);
}

/* Twelve moves of 2 MiB: one call takes eight of them. */
static void
bytes_of_a_call_are_bounded(void **state)
{
    enum {
        COUNT = 12
    };
    struct device_move *moves[COUNT];
    struct mover_bench bench;
    void *slab = NULL;

    (void)state;
    mover_bench_open(&bench, 1);
    assert_int_equal(
        bench.rig.ops->slab_take(bench.rig.device, COUNT * RIG_CHUNK_BYTES, &slab), KVT_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        moves[i] = mover_bench_move(&bench, i, DEVICE_IN, 0, 1);
        bench.pieces[i] = (struct device_piece){
            (uint8_t *)slab + i * (size_t)RIG_CHUNK_BYTES, bench.rig.host, RIG_CHUNK_BYTES};
    }
    device_mover_push(bench.mover, moves, COUNT);
    mover_bench_await(&bench, COUNT);
    assert_int_equal(mover_watch.bytes_max, DEVICE_MOVER_CALL_BYTES);
    assert_int_equal(mover_bench_stats(&bench).call_count[DEVICE_IN], 2);
    bench.rig.ops->slab_put(bench.rig.device, slab, COUNT * RIG_CHUNK_BYTES);
    mover_bench_close(&bench);
}

/* --- 2. Turns --------------------------------------------------------------------------------- */

static struct device_piece many[MOVER_BENCH_MOVES][MOVER_BENCH_MANY];

static void
urgent_moves_pass_those_that_are_not_queued(void **state)
{
    (void)state;
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; seed++) {
        struct mover_bench bench;
        struct device_move *urgent;

        mover_bench_open(&bench, seed);
        for (uint32_t i = 0; i < 12; i++)
            mover_bench_push(
                &bench, mover_bench_move_many(&bench, i, many[i], MOVER_BENCH_MANY, i * 16u * KIB));
        while (mover_bench_stats(&bench).call_count[DEVICE_IN] < DEVICE_MOVER_CALLS_MAX)
            (void)sim_run_for(bench.world, 500);
        urgent = mover_bench_move(&bench, 12, DEVICE_IN, 512 * KIB, 64);
        urgent->is_urgent = true;
        mover_bench_push(&bench, urgent);
        mover_bench_await(&bench, 13);
        assert_int_equal(mover_watch.flying_max[DEVICE_IN], DEVICE_MOVER_CALLS_MAX);
        /* Behind what was in flight, and what became so before its push was seen. */
        assert_true(mover_bench_place(&bench, urgent) <= DEVICE_MOVER_CALLS_MAX + 2);
        mover_bench_close(&bench);
    }
}

static void
others_have_a_turn_among_urgent_moves(void **state)
{
    struct device_move *moves[41];
    struct mover_bench bench;

    (void)state;
    mover_bench_open(&bench, 1);
    for (uint32_t i = 0; i <= 40; i++) {
        moves[i] = mover_bench_move_many(&bench, i, many[i], MOVER_BENCH_MANY, i * 16u * KIB);
        moves[i]->is_urgent = i < 40;
    }
    device_mover_push(bench.mover, moves, 41);
    mover_bench_await(&bench, 41);
    assert_int_equal(mover_bench_place(&bench, moves[40]), DEVICE_MOVER_URGENT_RUN);
    mover_bench_close(&bench);
}

static void
event_of_a_caller_holds_its_own_moves_only(void **state)
{
    struct mover_bench bench;
    struct device_move *held;
    void *event = NULL;

    (void)state;
    mover_bench_open(&bench, 1);
    assert_int_equal(bench.rig.ops->event_create(bench.rig.device, &event), KVT_OK);
    mover_watch.held_event = event;
    for (uint32_t i = 0; i < 3; i++) {
        held = mover_bench_move(&bench, i, DEVICE_IN, i * 4u * KIB, 4 * KIB);
        held->wait = event;
        mover_bench_push(&bench, held);
    }
    for (uint32_t i = 3; i < 20; i++)
        mover_bench_push(&bench, mover_bench_move(&bench, i, i % 2, i * 4u * KIB, 4 * KIB));
    /* The rig's event was never recorded, and counts as reached. */
    bench.moves[19].wait = bench.rig.event;
    mover_bench_await(&bench, 17);
    for (uint32_t i = 0; i < 17; i++)
        assert_true(bench.answers[i] >= &bench.moves[3]);
    mover_watch.held_event = NULL;
    mover_bench_await(&bench, 20);
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(bench.moves[i].status, KVT_OK);
    bench.rig.ops->event_destroy(bench.rig.device, event);
    mover_bench_close(&bench);
}

static void
a_move_that_is_cancelled_waits_for_its_event_no_longer(void **state)
{
    struct mover_bench bench;
    struct device_move *moves[3];
    void *event = NULL;

    (void)state;
    mover_bench_open(&bench, 1);
    assert_int_equal(bench.rig.ops->event_create(bench.rig.device, &event), KVT_OK);
    mover_watch.held_event = event;
    for (uint32_t i = 0; i < 3; i++) {
        moves[i] = mover_bench_move(&bench, i, DEVICE_IN, i * 4u * KIB, 4 * KIB);
        moves[i]->wait = i == 2 ? NULL : event;
        mover_bench_push(&bench, moves[i]);
    }
    /* What is not held back goes on. */
    device_move_cancel(moves[2]);
    device_move_cancel(moves[0]);
    mover_bench_await(&bench, 2);
    assert_int_equal(moves[0]->status, KVT_CANCELLED);
    assert_int_equal(moves[2]->status, KVT_OK);
    mover_watch.held_event = NULL;
    mover_bench_await(&bench, 3);
    assert_int_equal(moves[1]->status, KVT_OK);
    bench.rig.ops->event_destroy(bench.rig.device, event);
    mover_bench_close(&bench);
}

/* Held moves that each wait for an event of their own; none is reached. */
static struct {
    struct kvt_device_ops ops;
    struct device_move moves[4096];
    char events[4096]; /* Their addresses. */
    uint32_t query_count;
    uint32_t copied_at; /* So many queries had been made when a copy was queued. */
    bool is_reached;
} crowd;

static enum kvt_status
crowd_query(struct device *device, void *event)
{
    if ((uintptr_t)event - (uintptr_t)crowd.events >= sizeof(crowd.events))
        return device_host_ops.event_query(device, event);
    crowd.query_count++;
    return crowd.is_reached ? KVT_OK : KVT_NOT_READY;
}

static enum kvt_status
crowd_copy(struct device *device, void *stream, const struct device_piece *pieces, uint32_t count)
{
    crowd.copied_at = crowd.query_count;
    return device_host_ops.copy(device, stream, pieces, count);
}

/* `sharers` of them wait for the same event. */
static void
crowd_open(struct mover_bench *bench, uint32_t sharers)
{
    mover_bench_open(bench, 1);
    memset(&crowd, 0, sizeof(crowd));
    crowd.ops = *bench->rig.device->ops;
    crowd.ops.event_query = crowd_query;
    crowd.ops.copy = crowd_copy;
    bench->rig.device->ops = &crowd.ops;
    for (uint32_t i = 0; i < 4096; i++) {
        struct device_move *move = &crowd.moves[i];

        *move = (struct device_move){.lane = DEVICE_OUT,
            .wait = &crowd.events[i / sharers],
            .done = &bench->done,
            .status = KVT_E_POISONED};
        mover_bench_push(bench, move);
    }
}

/* All are answered; those that wait for the same event in their order. */
static void
crowd_close(struct mover_bench *bench)
{
    const struct device_move *last[4096] = {NULL};

    crowd.is_reached = true;
    for (uint32_t count = 0; count < 4096;) {
        mover_bench_pass(&bench->rig);
        for (struct inbox_node *node = inbox_take(&bench->done); node != NULL; node = node->next) {
            const struct device_move *move = CONTAINER_OF(node, struct device_move, node);
            size_t event = (size_t)((char *)move->wait - crowd.events);

            assert_int_equal(move->status, KVT_OK);
            assert_true(last[event] == NULL || move > last[event]);
            last[event] = move;
            count++;
        }
    }
    mover_bench_close(bench);
}

static void
a_copy_waits_for_few_looks_at_held_moves(void **state)
{
    struct mover_bench bench;
    uint32_t before;

    (void)state;
    crowd_open(&bench, 1);
    (void)sim_run_for(bench.world, 1000 * 1000);
    /* No actor sleeps before it has seen all. */
    assert_true(crowd.query_count >= 4096);
    before = crowd.query_count;
    mover_bench_push(&bench, mover_bench_move(&bench, 0, DEVICE_IN, 0, 4 * KIB));
    mover_bench_await(&bench, 1);
    assert_true(crowd.copied_at - before <= 2 * 32);
    crowd_close(&bench);
}

static void
moves_that_wait_for_one_event_end_in_their_order(void **state)
{
    struct mover_bench bench;

    (void)state;
    for (uint32_t steps = 1; steps < 200; steps += 11) {
        crowd_open(&bench, 100);
        sim_run_steps(bench.world, steps);
        crowd_close(&bench);
    }
}

/* --- 3. Streams of others --------------------------------------------------------------------- */

/* A stream that is full: who makes it wait for an event sleeps until moves have come. */
static struct {
    struct kvt_device_ops ops;
    struct mover_bench *bench;
    void *event; /* That it is to wait for, from then on. */
    uint32_t record_count;
} full;

static enum kvt_status
full_record(struct device *device, void *event, void *stream)
{
    full.record_count += full.event == event;
    return device_host_ops.event_record(device, event, stream);
}

static enum kvt_status
full_wait(struct device *device, void *stream, void *event)
{
    full.event = event;
    /* One call each, and more of them than there are events. */
    for (uint32_t i = 1; i <= 3 * DEVICE_MOVER_CALLS_MAX; i++) {
        mover_bench_push(
            full.bench, mover_bench_move(full.bench, i, DEVICE_IN, i * 4u * KIB, 4 * KIB));
        mover_bench_await(full.bench, i + 1);
    }
    return device_host_ops.stream_wait(device, stream, event);
}

static void
moves_come_while_a_full_stream_is_made_to_wait(void **state)
{
    struct mover_bench bench;
    struct device_mark mark = {0};
    struct device_move *move;
    void *stream = NULL;

    (void)state;
    mover_bench_open(&bench, 1);
    memset(&full, 0, sizeof(full));
    full.bench = &bench;
    full.ops = device_host_ops;
    full.ops.event_record = full_record;
    full.ops.stream_wait = full_wait;
    bench.rig.device->ops = &full.ops;
    assert_int_equal(device_host_stream_create(bench.rig.device, &stream), KVT_OK);
    move = mover_bench_move(&bench, 0, DEVICE_IN, 0, 4 * KIB);
    move->mark = &mark;
    move->mark_count = 1;
    mover_bench_push(&bench, move);
    mover_bench_await(&bench, 1);
    assert_int_equal(device_mover_wait(bench.mover, &mark, stream), KVT_OK);
    assert_non_null(full.event);
    assert_int_equal(full.record_count, 0);
    for (uint32_t i = 0; i <= 3 * DEVICE_MOVER_CALLS_MAX; i++)
        assert_int_equal(bench.moves[i].status, KVT_OK);
    device_host_stream_destroy(bench.rig.device, stream);
    mover_bench_close(&bench);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_moves_bring_the_right_bytes),
        cmocka_unit_test(random_moves_bring_the_right_bytes_on_threads),
        cmocka_unit_test(moves_that_are_alike_are_answered_in_order),
        cmocka_unit_test(moves_that_lie_ready_share_a_call),
        cmocka_unit_test(bytes_of_a_call_are_bounded),
        cmocka_unit_test(urgent_moves_pass_those_that_are_not_queued),
        cmocka_unit_test(others_have_a_turn_among_urgent_moves),
        cmocka_unit_test(event_of_a_caller_holds_its_own_moves_only),
        cmocka_unit_test(a_move_that_is_cancelled_waits_for_its_event_no_longer),
        cmocka_unit_test(a_copy_waits_for_few_looks_at_held_moves),
        cmocka_unit_test(moves_that_wait_for_one_event_end_in_their_order),
        cmocka_unit_test(moves_come_while_a_full_stream_is_made_to_wait),
    };

    if (!seeds_parse(&seeds, argc, argv))
        return 2;
    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
