/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mover_bench.c - a mover in the simulated world, and what it asks of its device.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "mover_bench.h"

#include "failure.h"

#define PATIENCE_NS (UINT64_C(60) * 1000 * 1000 * 1000)

/* --- 1. An eye on the calls ------------------------------------------------------------------- */

struct mover_watch mover_watch;

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
    if (count > mover_watch.pieces_max)
        mover_watch.pieces_max = count;
    if (count > 1 && bytes > mover_watch.bytes_max)
        mover_watch.bytes_max = bytes;
    if (status == KVT_OK && ++mover_watch.flying[lane] > mover_watch.flying_max[lane])
        mover_watch.flying_max[lane] = mover_watch.flying[lane];
    return status;
}

static enum kvt_status
watch_record(struct device *device, void *event, void *stream)
{
    uint32_t i = 0;
    enum kvt_status status;

    if (mover_watch.has_no_records)
        return failure_set(KVT_E_NOMEM, 0, "No records, on purpose.");
    status = device_host_ops.event_record(device, event, stream);
    if (status != KVT_OK)
        return status;
    while (i < mover_watch.record_count && mover_watch.records[i].event != event)
        i++;
    assert_true(i < sizeof(mover_watch.records) / sizeof(mover_watch.records[0]));
    if (i == mover_watch.record_count)
        mover_watch.record_count++;
    mover_watch.records[i].event = event;
    mover_watch.records[i].lane = lane_of(device, stream);
    mover_watch.records[i].is_flying = true;
    return status;
}

static enum kvt_status
watch_query(struct device *device, void *event)
{
    enum kvt_status status;

    if (event == mover_watch.held_event && event != NULL)
        return KVT_NOT_READY;
    status = device_host_ops.event_query(device, event);
    for (uint32_t i = 0; i < mover_watch.record_count && status == KVT_OK; i++) {
        if (mover_watch.records[i].event != event || !mover_watch.records[i].is_flying)
            continue;
        mover_watch.records[i].is_flying = false;
        mover_watch.flying[mover_watch.records[i].lane]--;
    }
    return status;
}

static struct kvt_device_ops watch_ops;

/* --- 2. The rig ------------------------------------------------------------------------------- */

void
mover_bench_pass(struct device_rig *rig)
{
    (void)sim_run_for(rig->pass_context, 2000);
}

void
mover_bench_world(struct mover_bench *bench, uint64_t seed, uint64_t delay_ns_max)
{
    struct sim_options options = {.seed = seed};

    memset(bench, 0, sizeof(*bench));
    memset(&mover_watch, 0, sizeof(mover_watch));
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
        .pass = mover_bench_pass,
        .pass_context = bench->world,
        .is_emulated = true};
}

void
mover_bench_open(struct mover_bench *bench, uint64_t seed)
{
    mover_bench_world(bench, seed, 30000);
    assert_true(device_rig_open(&bench->rig));
    bench->rig.device->ops = &watch_ops;
    assert_int_equal(
        device_mover_open(bench->rig.env, bench->rig.device, "mover", &bench->mover), KVT_OK);
}

void
mover_bench_close(struct mover_bench *bench)
{
    char leaks[256] = "";

    device_mover_close(bench->mover);
    device_rig_close(&bench->rig);
    if (sim_leaks(bench->world, leaks, sizeof(leaks)) != 0)
        fail_msg("left: %s", leaks);
    sim_world_destroy(bench->world);
}

struct device_move *
mover_bench_move(
    struct mover_bench *bench, uint32_t i, enum device_lane lane, size_t at, size_t size)
{
    struct device_move *move = &bench->moves[i];
    uint8_t *device = bench->rig.slab + at;
    uint8_t *host = bench->rig.host + (lane == DEVICE_IN ? 0 : RIG_CHUNK_BYTES) + at;

    assert_true(i < MOVER_BENCH_MOVES);
    bench->pieces[i] = lane == DEVICE_IN ? (struct device_piece){device, host, size}
                                         : (struct device_piece){host, device, size};
    *move = (struct device_move){.lane = lane,
        .pieces = &bench->pieces[i],
        .piece_count = 1,
        .done = &bench->done,
        .status = KVT_E_POISONED};
    return move;
}

struct device_move *
mover_bench_move_many(
    struct mover_bench *bench, uint32_t i, struct device_piece *pieces, uint32_t count, size_t at)
{
    struct device_move *move = mover_bench_move(bench, i, DEVICE_IN, at, MOVER_BENCH_PIECE_BYTES);

    for (uint32_t k = 0; k < count; k++) {
        size_t offset = at + (size_t)k * MOVER_BENCH_PIECE_BYTES;

        pieces[k] = (struct device_piece){
            bench->rig.slab + offset, bench->rig.host + offset, MOVER_BENCH_PIECE_BYTES};
    }
    move->pieces = pieces;
    move->piece_count = count;
    return move;
}

void
mover_bench_push(struct mover_bench *bench, struct device_move *move)
{
    device_mover_push(bench->mover, &move, 1);
}

void
mover_bench_take(struct mover_bench *bench)
{
    for (struct inbox_node *node = inbox_take(&bench->done); node != NULL; node = node->next) {
        assert_true(bench->answer_count < sizeof(bench->answers) / sizeof(bench->answers[0]));
        bench->answers[bench->answer_count++] = CONTAINER_OF(node, struct device_move, node);
    }
}

void
mover_bench_await(struct mover_bench *bench, uint32_t count)
{
    uint64_t until_ns = sim_now(bench->world) + PATIENCE_NS;

    while (bench->answer_count < count) {
        mover_bench_pass(&bench->rig);
        mover_bench_take(bench);
        if (sim_now(bench->world) > until_ns)
            fail_msg("%u of %u answers", bench->answer_count, count);
    }
    (void)sim_run_for(bench->world, 1000 * 1000);
    mover_bench_take(bench);
    assert_int_equal(bench->answer_count, count);
}

uint32_t
mover_bench_place(const struct mover_bench *bench, const struct device_move *move)
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

struct device_mover_stats
mover_bench_stats(const struct mover_bench *bench)
{
    struct device_mover_stats stats;

    device_mover_stats_get(bench->mover, &stats);
    return stats;
}
