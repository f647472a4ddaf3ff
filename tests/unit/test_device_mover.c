/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_device_mover.c - the mover over the emulated accelerator, in the simulated world: whatever
 * the schedule and the delays, bytes are right when a move is answered, and each is answered once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <sched.h>
#include <stdio.h>

#include "device_host.h"
#include "device_mover.h"
#include "device_rig.h"
#include "failure.h"
#include "mover_user.h"
#include "seeds.h"
#include "sim_world.h"
#include "stop_on_proof.h"

enum {
    KIB = 1024,
    MOVES_MAX = 64,
    USER_MOVES = 250,
    MANY = 200, /* Pieces of a move that shares no call: two of them are too many for one. */
    PIECE_BYTES = 64,
    LONG = 3 * DEVICE_MOVER_PIECES_MAX + 7, /* Pieces of a move that needs four calls. */
};

#define PATIENCE_NS (UINT64_C(60) * 1000 * 1000 * 1000)

static struct seeds seeds = {.first = 1, .count = 30};

/* --- 1. An eye on the calls ------------------------------------------------------------------- */

/* What the mover had of the device, and what it does not get; only in the simulated world. */
static struct watch {
    struct {
        void *event;
        enum device_lane lane;
        bool is_flying;
    } records[64];
    uint32_t record_count;
    uint32_t flying[DEVICE_LANE_COUNT];     /* Calls whose event was not seen reached. */
    uint32_t flying_max[DEVICE_LANE_COUNT]; /* At the most. */
    uint32_t pieces_max;
    uint64_t bytes_max; /* Of a call with several pieces. */
    void *held_event;   /* Never reached. */
    bool has_no_records;
} watch;

static enum device_lane
lane_of(struct device *device, const void *stream)
{
    return stream == device_host_ops.stream(device, DEVICE_IN) ? DEVICE_IN : DEVICE_OUT;
}

static enum kvt_status
watch_copy(struct device *device, void *stream, const struct device_piece *pieces, uint32_t count)
{
    enum kvt_status status = device_host_ops.copy(device, stream, pieces, count);
    enum device_lane lane = lane_of(device, stream);
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < count; i++)
        bytes += pieces[i].size;
    if (count > watch.pieces_max)
        watch.pieces_max = count;
    if (count > 1 && bytes > watch.bytes_max)
        watch.bytes_max = bytes;
    if (status == KVT_OK && ++watch.flying[lane] > watch.flying_max[lane])
        watch.flying_max[lane] = watch.flying[lane];
    return status;
}

static enum kvt_status
watch_record(struct device *device, void *event, void *stream)
{
    uint32_t i = 0;
    enum kvt_status status;

    if (watch.has_no_records)
        return failure_set(KVT_E_NOMEM, 0, "No records, on purpose.");
    status = device_host_ops.event_record(device, event, stream);
    if (status != KVT_OK)
        return status;
    while (i < watch.record_count && watch.records[i].event != event)
        i++;
    assert_true(i < sizeof(watch.records) / sizeof(watch.records[0]));
    if (i == watch.record_count)
        watch.record_count++;
    watch.records[i].event = event;
    watch.records[i].lane = lane_of(device, stream);
    watch.records[i].is_flying = true;
    return status;
}

static enum kvt_status
watch_query(struct device *device, void *event)
{
    enum kvt_status status;

    if (event == watch.held_event && event != NULL)
        return KVT_NOT_READY;
    status = device_host_ops.event_query(device, event);
    for (uint32_t i = 0; i < watch.record_count && status == KVT_OK; i++) {
        if (watch.records[i].event != event || !watch.records[i].is_flying)
            continue;
        watch.records[i].is_flying = false;
        watch.flying[watch.records[i].lane]--;
    }
    return status;
}

static struct kvt_device_ops watch_ops;

/* --- 2. The rig ------------------------------------------------------------------------------- */

struct bench {
    struct sim_world *world;
    struct device_host_config config;
    struct device_rig rig;
    struct device_mover *mover;
    struct inbox done;
    struct device_move moves[MOVES_MAX];
    struct device_piece pieces[MOVES_MAX];
    struct device_move *answers[4 * MOVES_MAX]; /* In their order. */
    uint32_t answer_count;
};

static void
pass_sim(struct device_rig *rig)
{
    (void)sim_run_for(rig->pass_context, 2000);
}

static void
bench_world(struct bench *bench, uint64_t seed, uint64_t delay_ns_max)
{
    struct sim_options options = {.seed = seed};

    memset(bench, 0, sizeof(*bench));
    memset(&watch, 0, sizeof(watch));
    watch_ops = device_host_ops;
    watch_ops.copy = watch_copy;
    watch_ops.event_record = watch_record;
    watch_ops.event_query = watch_query;
    bench->world = sim_world_create(&options);
    assert_non_null(bench->world);
    bench->config = (struct device_host_config){.seed = seed, .delay_ns_max = delay_ns_max};
    bench->rig = (struct device_rig){.ops = &device_host_ops,
        .context = &bench->config,
        .env = sim_env(bench->world),
        .pass = pass_sim,
        .pass_context = bench->world,
        .is_emulated = true};
}

static void
bench_open(struct bench *bench, uint64_t seed)
{
    bench_world(bench, seed, 30000);
    assert_true(device_rig_open(&bench->rig));
    bench->rig.device->ops = &watch_ops;
    assert_int_equal(
        device_mover_open(bench->rig.env, bench->rig.device, "mover", &bench->mover), KVT_OK);
}

static void
bench_close(struct bench *bench)
{
    char leaks[256] = "";

    device_mover_close(bench->mover);
    device_rig_close(&bench->rig);
    if (sim_leaks(bench->world, leaks, sizeof(leaks)) != 0)
        fail_msg("left: %s", leaks);
    sim_world_destroy(bench->world);
}

/* Move number `i`: its `size` bytes at `at` in the memory of the device, and of the host. */
static struct device_move *
move_make(struct bench *bench, uint32_t i, enum device_lane lane, size_t at, size_t size)
{
    struct device_move *move = &bench->moves[i];
    uint8_t *device = bench->rig.slab + at;
    uint8_t *host = bench->rig.host + (lane == DEVICE_IN ? 0 : RIG_CHUNK_BYTES) + at;

    assert_true(i < MOVES_MAX);
    bench->pieces[i] = lane == DEVICE_IN ? (struct device_piece){device, host, size}
                                         : (struct device_piece){host, device, size};
    *move = (struct device_move){.lane = lane,
        .pieces = &bench->pieces[i],
        .piece_count = 1,
        .done = &bench->done,
        .status = KVT_E_POISONED};
    return move;
}

/* A move of many small pieces: they lie behind each other at `at`. */
static struct device_move *
move_make_many(
    struct bench *bench, uint32_t i, struct device_piece *pieces, uint32_t count, size_t at)
{
    struct device_move *move = move_make(bench, i, DEVICE_IN, at, PIECE_BYTES);

    for (uint32_t k = 0; k < count; k++) {
        size_t offset = at + (size_t)k * PIECE_BYTES;

        pieces[k] =
            (struct device_piece){bench->rig.slab + offset, bench->rig.host + offset, PIECE_BYTES};
    }
    move->pieces = pieces;
    move->piece_count = count;
    return move;
}

static void
push(struct bench *bench, struct device_move *move)
{
    device_mover_push(bench->mover, &move, 1);
}

static void
take(struct bench *bench)
{
    for (struct inbox_node *node = inbox_take(&bench->done); node != NULL; node = node->next) {
        assert_true(bench->answer_count < sizeof(bench->answers) / sizeof(bench->answers[0]));
        bench->answers[bench->answer_count++] = CONTAINER_OF(node, struct device_move, node);
    }
}

/* Until `count` answers have come, and then for a while, in which no more may come. */
static void
await(struct bench *bench, uint32_t count)
{
    uint64_t until_ns = sim_now(bench->world) + PATIENCE_NS;

    while (bench->answer_count < count) {
        pass_sim(&bench->rig);
        take(bench);
        if (sim_now(bench->world) > until_ns)
            fail_msg("%u of %u answers", bench->answer_count, count);
    }
    (void)sim_run_for(bench->world, 1000 * 1000);
    take(bench);
    assert_int_equal(bench->answer_count, count);
}

static uint32_t
place_of(const struct bench *bench, const struct device_move *move)
{
    uint32_t place = UINT32_MAX;

    for (uint32_t i = 0; i < bench->answer_count; i++) {
        if (bench->answers[i] != move)
            continue;
        assert_int_equal(place, UINT32_MAX); /* Or it was answered twice. */
        place = i;
    }
    assert_int_not_equal(place, UINT32_MAX);
    return place;
}

static struct device_mover_stats
stats_of(const struct bench *bench)
{
    struct device_mover_stats stats;

    device_mover_stats_get(bench->mover, &stats);
    return stats;
}

/* --- 3. Bytes and order ----------------------------------------------------------------------- */

static uint64_t
user_life(uint64_t seed)
{
    static struct mover_user user;
    struct bench bench;
    void *stream = NULL;
    uint64_t hash;

    bench_open(&bench, seed);
    bench.config.delay_ns_max = seed % 3 * 20000;
    assert_int_equal(device_host_stream_create(bench.rig.device, &stream), KVT_OK);
    assert_true(mover_user_open(&user, &bench.rig, bench.mover, stream, seed));
    if (!mover_user_run(&user, USER_MOVES)) {
        seeds_report(&seeds, "random moves", seed, "see above");
        fail();
    }
    assert_true(user.out_count > 0 && user.staged_count > 0);
    assert_true(watch.flying_max[DEVICE_IN] <= DEVICE_MOVER_CALLS_MAX);
    assert_true(watch.flying_max[DEVICE_OUT] <= DEVICE_MOVER_CALLS_MAX);
    assert_int_equal(
        stats_of(&bench).move_count[DEVICE_IN] + stats_of(&bench).move_count[DEVICE_OUT],
        USER_MOVES);
    mover_user_close(&user);
    device_host_stream_destroy(bench.rig.device, stream);
    hash = sim_trace_hash(bench.world);
    bench_close(&bench);
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
        struct bench bench;

        bench_open(&bench, seed);
        for (uint32_t i = 0; i < MOVES_MAX; i++) {
            size_t size = 1 + (i * 7919) % (16 * KIB);

            (void)move_make(&bench, i, DEVICE_IN, i * 16u * KIB, size);
            if (i % 9 == 0)
                bench.pieces[i].source = &bench; /* Not registered: an error keeps the order. */
            push(&bench, &bench.moves[i]);
            if (i % 5 == 0)
                sim_run_steps(bench.world, (uint32_t)seed % 40);
        }
        await(&bench, MOVES_MAX);
        for (uint32_t i = 0; i < MOVES_MAX; i++) {
            assert_ptr_equal(bench.answers[i], &bench.moves[i]);
            assert_int_equal(bench.moves[i].status, i % 9 == 0 ? KVT_E_INVAL : KVT_OK);
        }
        bench_close(&bench);
    }
}

static void
moves_that_lie_ready_share_a_call(void **state)
{
    struct device_move *moves[MOVES_MAX];
    struct bench bench;
    struct device_mover_stats stats;

    (void)state;
    bench_open(&bench, 1);
    for (uint32_t i = 0; i < MOVES_MAX; i++)
        moves[i] = move_make(&bench, i, DEVICE_OUT, i * 4u * KIB, 4 * KIB);
    device_mover_push(bench.mover, moves, MOVES_MAX);
    await(&bench, MOVES_MAX);
    stats = stats_of(&bench);
    assert_int_equal(stats.call_count[DEVICE_OUT], 1);
    assert_int_equal(stats.call_count[DEVICE_IN], 0);
    assert_int_equal(stats.move_count[DEVICE_OUT], MOVES_MAX);
    assert_int_equal(stats.bytes[DEVICE_OUT], MOVES_MAX * 4 * KIB);
    assert_int_equal(stats.error_count, 0);
    bench_close(&bench);
}

/* Twelve moves of 2 MiB: one call takes eight of them. */
static void
bytes_of_a_call_are_bounded(void **state)
{
    enum {
        COUNT = 12
    };
    struct device_move *moves[COUNT];
    struct bench bench;
    void *slab = NULL;

    (void)state;
    bench_open(&bench, 1);
    assert_int_equal(
        bench.rig.ops->slab_take(bench.rig.device, COUNT * RIG_CHUNK_BYTES, &slab), KVT_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        moves[i] = move_make(&bench, i, DEVICE_IN, 0, 1);
        bench.pieces[i] = (struct device_piece){
            (uint8_t *)slab + i * (size_t)RIG_CHUNK_BYTES, bench.rig.host, RIG_CHUNK_BYTES};
    }
    device_mover_push(bench.mover, moves, COUNT);
    await(&bench, COUNT);
    assert_int_equal(watch.bytes_max, DEVICE_MOVER_CALL_BYTES);
    assert_int_equal(stats_of(&bench).call_count[DEVICE_IN], 2);
    bench.rig.ops->slab_put(bench.rig.device, slab, COUNT * RIG_CHUNK_BYTES);
    bench_close(&bench);
}

/* --- 4. Turns --------------------------------------------------------------------------------- */

static struct device_piece many[MOVES_MAX][MANY];

static void
urgent_moves_pass_those_that_are_not_queued(void **state)
{
    (void)state;
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; seed++) {
        struct bench bench;
        struct device_move *urgent;

        bench_open(&bench, seed);
        for (uint32_t i = 0; i < 12; i++)
            push(&bench, move_make_many(&bench, i, many[i], MANY, i * 16u * KIB));
        while (stats_of(&bench).call_count[DEVICE_IN] < DEVICE_MOVER_CALLS_MAX)
            (void)sim_run_for(bench.world, 500);
        urgent = move_make(&bench, 12, DEVICE_IN, 512 * KIB, 64);
        urgent->is_urgent = true;
        push(&bench, urgent);
        await(&bench, 13);
        assert_int_equal(watch.flying_max[DEVICE_IN], DEVICE_MOVER_CALLS_MAX);
        /* Behind what was in flight, and what became so before its push was seen. */
        assert_true(place_of(&bench, urgent) <= DEVICE_MOVER_CALLS_MAX + 2);
        bench_close(&bench);
    }
}

static void
others_have_a_turn_among_urgent_moves(void **state)
{
    struct device_move *moves[41];
    struct bench bench;

    (void)state;
    bench_open(&bench, 1);
    for (uint32_t i = 0; i <= 40; i++) {
        moves[i] = move_make_many(&bench, i, many[i], MANY, i * 16u * KIB);
        moves[i]->is_urgent = i < 40;
    }
    device_mover_push(bench.mover, moves, 41);
    await(&bench, 41);
    assert_int_equal(place_of(&bench, moves[40]), DEVICE_MOVER_URGENT_RUN);
    bench_close(&bench);
}

static void
event_of_a_caller_holds_its_own_moves_only(void **state)
{
    struct bench bench;
    struct device_move *held;
    void *event = NULL;

    (void)state;
    bench_open(&bench, 1);
    assert_int_equal(bench.rig.ops->event_create(bench.rig.device, &event), KVT_OK);
    watch.held_event = event;
    for (uint32_t i = 0; i < 3; i++) {
        held = move_make(&bench, i, DEVICE_IN, i * 4u * KIB, 4 * KIB);
        held->wait = event;
        push(&bench, held);
    }
    for (uint32_t i = 3; i < 20; i++)
        push(&bench, move_make(&bench, i, i % 2, i * 4u * KIB, 4 * KIB));
    /* The rig's event was never recorded, and counts as reached. */
    bench.moves[19].wait = bench.rig.event;
    await(&bench, 17);
    for (uint32_t i = 0; i < 17; i++)
        assert_true(bench.answers[i] >= &bench.moves[3]);
    watch.held_event = NULL;
    await(&bench, 20);
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(bench.moves[i].status, KVT_OK);
    bench.rig.ops->event_destroy(bench.rig.device, event);
    bench_close(&bench);
}

/* --- 5. Bad moves ----------------------------------------------------------------------------- */

static void
bad_moves_fail_alone(void **state)
{
    (void)state;
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; seed++) {
        struct device_move *moves[20];
        struct bench bench;

        bench_open(&bench, seed);
        device_rig_fill(bench.rig.host, RIG_CHUNK_BYTES, seed);
        for (uint32_t i = 0; i < 20; i++)
            moves[i] = move_make(&bench, i, DEVICE_IN, i * 4u * KIB, 4 * KIB);
        bench.pieces[3].source = bench.rig.host + 3 * (size_t)RIG_CHUNK_BYTES; /* Unregistered. */
        bench.pieces[7].size = 0;
        moves[11]->piece_count = 0;
        moves[13]->wait = &bench; /* No event. */
        moves[17]->lane = DEVICE_LANE_COUNT;
        device_mover_push(bench.mover, moves, 20);
        await(&bench, 20);
        for (uint32_t i = 0; i < 20; i++) {
            bool is_bad = i == 3 || i == 7 || i == 11 || i == 13 || i == 17;

            assert_int_equal(moves[i]->status, is_bad ? KVT_E_INVAL : KVT_OK);
        }
        assert_int_equal(stats_of(&bench).error_count, 5);
        assert_int_equal(stats_of(&bench).move_count[DEVICE_IN], 15);
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
        bench_close(&bench);
    }
}

static void
long_moves_are_cut_and_end_whole(void **state)
{
    static struct device_piece pieces[2][LONG];

    (void)state;
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; seed++) {
        struct bench bench;
        struct device_move *good, *bad;

        bench_open(&bench, seed);
        device_rig_fill(bench.rig.host, RIG_CHUNK_BYTES, seed);
        good = move_make_many(&bench, 0, pieces[0], LONG, 0);
        bad = move_make_many(&bench, 1, pieces[1], LONG, 512 * KIB);
        pieces[1][LONG - 1].size = 0;
        push(&bench, good);
        push(&bench, bad);
        await(&bench, 2);
        assert_int_equal(watch.pieces_max, DEVICE_MOVER_PIECES_MAX);
        assert_int_equal(good->status, KVT_OK);
        assert_int_equal(bad->status, KVT_E_INVAL);
        assert_int_equal(device_rig_copy(&bench.rig, bench.rig.out,
                             bench.rig.host + RIG_CHUNK_BYTES, bench.rig.slab, LONG * PIECE_BYTES),
            KVT_OK);
        assert_true(device_rig_drain(&bench.rig, bench.rig.out));
        assert_memory_equal(bench.rig.host, bench.rig.host + RIG_CHUNK_BYTES, LONG * PIECE_BYTES);
        bench_close(&bench);
    }
}

/* A move whose last part is refused is answered when its first parts are no more in flight. */
static void
refused_move_is_answered_with_nothing_in_flight(void **state)
{
    static struct device_piece pieces[LONG];

    (void)state;
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; seed++) {
        struct bench bench;
        struct device_move *bad;

        bench_open(&bench, seed);
        bad = move_make_many(&bench, 0, pieces, LONG, 0);
        pieces[LONG - 1].size = 0;
        push(&bench, bad);
        while (bench.answer_count == 0) {
            (void)sim_run_for(bench.world, 500);
            take(&bench);
        }
        assert_int_equal(bad->status, KVT_E_INVAL);
        assert_true(watch.flying_max[DEVICE_IN] > 0);
        assert_int_equal(watch.flying[DEVICE_IN], 0);
        bench_close(&bench);
    }
}

/* --- 6. Calls that fail ----------------------------------------------------------------------- */

/* Moves of both directions, some that wait, some long; pushed at different moments. */
static uint32_t
traffic(struct bench *bench)
{
    enum {
        COUNT = 24
    };

    for (uint32_t i = 0; i < COUNT; i++) {
        struct device_move *move = i % 6 == 5
                                       ? move_make_many(bench, i, many[i], MANY, i * 16u * KIB)
                                       : move_make(bench, i, i % 2, i * 16u * KIB, 3000 + i);

        move->is_urgent = i % 5 == 0;
        if (i % 4 == 0)
            move->wait = bench->rig.event;
        push(bench, move);
        if (i % 3 == 0)
            sim_run_steps(bench->world, 20);
    }
    return COUNT;
}

/* The device's call `fail_call` fails; how many calls there were. */
static uint32_t
life_with_failure(uint64_t seed, uint32_t fail_call, enum kvt_status fail_status)
{
    struct bench bench;
    uint32_t opened;
    uint32_t asked;
    uint32_t count;
    uint32_t failed = 0;

    bench_open(&bench, seed);
    opened = bench.config.call_count;
    bench.config.fail_call = fail_call == 0 ? 0 : opened + fail_call;
    bench.config.fail_status = fail_status;
    count = traffic(&bench);
    await(&bench, count);
    asked = bench.config.call_count - opened;
    for (uint32_t i = 0; i < count; i++) {
        enum kvt_status status = bench.moves[i].status;

        (void)place_of(&bench, &bench.moves[i]);
        assert_true(status == KVT_OK || status == fail_status);
        failed += status != KVT_OK;
    }
    assert_int_equal(stats_of(&bench).error_count, failed);
    if (fail_call != 0 && asked >= fail_call && fail_status == KVT_E_GPU) {
        assert_true(failed > 0);
        assert_true(device_mover_is_lost(bench.mover));
        push(&bench, move_make(&bench, count, DEVICE_IN, 0, 64));
        bench.moves[count].wait = bench.rig.event;
        await(&bench, count + 1);
        assert_int_equal(bench.moves[count].status, KVT_E_GPU);
        /* The one that failed was the last call. */
        assert_int_equal(bench.config.call_count, opened + fail_call);
    } else {
        assert_true(failed <= 1);
        assert_false(device_mover_is_lost(bench.mover));
    }
    bench_close(&bench);
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

static void
device_without_records_is_lost_after_a_while(void **state)
{
    struct bench bench;
    uint64_t begin_ns;

    (void)state;
    bench_open(&bench, 1);
    watch.has_no_records = true;
    begin_ns = sim_now(bench.world);
    for (uint32_t i = 0; i < 5; i++)
        push(&bench, move_make(&bench, i, DEVICE_IN, i * 4u * KIB, 4 * KIB));
    await(&bench, 5);
    assert_true(sim_now(bench.world) - begin_ns >= DEVICE_MOVER_PATIENCE_NS);
    assert_true(device_mover_is_lost(bench.mover));
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(bench.moves[i].status, KVT_E_GPU);
    bench_close(&bench);

    /* A little later they come: the moves are answered then, and not before. */
    bench_open(&bench, 1);
    watch.has_no_records = true;
    push(&bench, move_make(&bench, 0, DEVICE_IN, 0, 4 * KIB));
    (void)sim_run_for(bench.world, DEVICE_MOVER_PATIENCE_NS / 2);
    take(&bench);
    assert_int_equal(bench.answer_count, 0);
    watch.has_no_records = false;
    await(&bench, 1);
    assert_int_equal(bench.moves[0].status, KVT_OK);
    assert_false(device_mover_is_lost(bench.mover));
    bench_close(&bench);
}

static void
open_may_fail_anywhere_and_leaves_nothing(void **state)
{
    struct bench bench;
    struct device_mover *mover = NULL;
    enum kvt_status status = KVT_E_GPU;
    uint32_t n = 0;

    (void)state;
    while (status != KVT_OK) {
        bench_world(&bench, 1, 0);
        assert_true(device_rig_open(&bench.rig));
        bench.config.fail_call = bench.config.call_count + ++n;
        bench.config.fail_status = n % 2 == 0 ? KVT_E_GPU : KVT_E_NOMEM;
        status = device_mover_open(bench.rig.env, bench.rig.device, "mover", &mover);
        assert_int_equal(status,
            bench.config.call_count < bench.config.fail_call ? KVT_OK : bench.config.fail_status);
        assert_true((mover == NULL) == (status != KVT_OK));
        bench.mover = mover;
        bench_close(&bench);
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
        struct bench bench;
        uint32_t count;

        bench_open(&bench, seed);
        sim_memory_fail(bench.world, 1 + seed % 12, false);
        count = traffic(&bench);
        await(&bench, count);
        for (uint32_t i = 0; i < count; i++)
            assert_true(bench.moves[i].status == KVT_OK || bench.moves[i].status == KVT_E_NOMEM);
        assert_false(device_mover_is_lost(bench.mover));
        bench_close(&bench);
    }
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
        cmocka_unit_test(bad_moves_fail_alone),
        cmocka_unit_test(long_moves_are_cut_and_end_whole),
        cmocka_unit_test(refused_move_is_answered_with_nothing_in_flight),
        cmocka_unit_test(each_call_may_lose_the_device),
        cmocka_unit_test(each_call_may_fail_once),
        cmocka_unit_test(device_without_records_is_lost_after_a_while),
        cmocka_unit_test(open_may_fail_anywhere_and_leaves_nothing),
        cmocka_unit_test(memory_that_runs_out_fails_moves_and_loses_none),
    };

    if (!seeds_parse(&seeds, argc, argv))
        return 2;
    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
