/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mover_bench.h - a mover over the emulated accelerator in the simulated world, with an eye on the
 * calls that it makes; moves, and their answers in order.
 *
 * Needs cmocka: what cannot go on fails the test. Threads: one.
 */
#ifndef KVT_TESTS_MOVER_BENCH_H
#define KVT_TESTS_MOVER_BENCH_H

#include "device_host.h"
#include "device_mover.h"
#include "device_rig.h"
#include "sim_world.h"

enum {
    MOVER_BENCH_MOVES = 64,
    MOVER_BENCH_MANY = 1200, /* Pieces of a move that shares no call: two are too many for one. */
    MOVER_BENCH_PIECE_BYTES = 8,
    MOVER_BENCH_RECORDS = 64,
};

/* What the mover had of the device, and what it does not get. Cleared with each world. */
extern struct mover_watch {
    struct {
        void *event;
        enum device_lane lane;
        bool is_flying;
    } records[MOVER_BENCH_RECORDS];
    uint32_t record_count;
    uint32_t flying[DEVICE_LANE_COUNT];     /* Calls whose event was not seen reached. */
    uint32_t flying_max[DEVICE_LANE_COUNT]; /* At the most. */
    uint32_t pieces_max;
    uint64_t bytes_max;  /* Of a call with several pieces. */
    void *held_event;    /* Never reached. */
    bool has_no_records; /* Every record fails with KVT_E_NOMEM. */
} mover_watch;

struct mover_bench {
    struct sim_world *world;
    struct device_host_config config;
    struct device_rig rig;
    struct device_mover *mover;
    struct inbox done;
    struct device_move moves[MOVER_BENCH_MOVES];
    struct device_piece pieces[MOVER_BENCH_MOVES];
    struct device_move *answers[4 * MOVER_BENCH_MOVES]; /* In their order. */
    uint32_t answer_count;
};

/* The world and the device's settings only; the rest by the test, or by mover_bench_open(). */
void mover_bench_world(struct mover_bench *bench, uint64_t seed, uint64_t delay_ns_max);
void mover_bench_open(struct mover_bench *bench, uint64_t seed);
/* Nothing may be left of it. */
void mover_bench_close(struct mover_bench *bench);
void mover_bench_pass(struct device_rig *rig); /* Some microseconds. */

/* Move number `i`: its `size` bytes at `at` in the memory of the device, and of the host. */
struct device_move *mover_bench_move(
    struct mover_bench *bench, uint32_t i, enum device_lane lane, size_t at, size_t size);
/* A move in, of many small pieces that lie behind each other at `at`. */
struct device_move *mover_bench_move_many(
    struct mover_bench *bench, uint32_t i, struct device_piece *pieces, uint32_t count, size_t at);
void mover_bench_push(struct mover_bench *bench, struct device_move *move);

void mover_bench_take(struct mover_bench *bench);
/* Until `count` answers have come, and then for a while, in which no more may come. */
void mover_bench_await(struct mover_bench *bench, uint32_t count);
/* Where among the answers a move is; it is there once. */
uint32_t mover_bench_place(const struct mover_bench *bench, const struct device_move *move);
struct device_mover_stats mover_bench_stats(const struct mover_bench *bench);

#endif /* KVT_TESTS_MOVER_BENCH_H */
