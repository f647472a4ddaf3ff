/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane_bench.h - a lane on a scripted queue (io_script.h), with transfers to push into it.
 *
 * The memory of the transfers does not exist: nothing is read or written. The functions assert for
 * the test that calls them.
 */
#ifndef KVT_TESTS_LANE_BENCH_H
#define KVT_TESTS_LANE_BENCH_H

#include "io_lane.h"
#include "io_script.h"
#include "lane_budget.h"

enum {
    TRANSFERS = 600,
    KIB = 1024,
    MIB = 1024 * 1024,
    BUDGET = BUDGET_FIRST_BYTES,
};

struct bench {
    struct io_script script;
    struct lane *lane;
    struct inbox inbox;
    struct task *user;
    struct fs_file files[2];
    struct transfer transfers[TRANSFERS];
    struct iovec pieces[TRANSFERS];
    uint32_t transfer_count;
    uint32_t answer_count[TRANSFERS];
};

/* bench_open, bench_close - for cmocka; closing proves that nothing is left unanswered. */
int bench_open(void **state);
int bench_close(void **state);

/* make - a transfer with one piece; the memory of no two transfers touches. push - and push it. */
struct transfer *make(
    struct bench *bench, enum io_kind kind, enum lane_class class, uint64_t offset, uint64_t size);
struct transfer *push(
    struct bench *bench, enum io_kind kind, enum lane_class class, uint64_t offset, uint64_t size);

/* step - step the lane, then take the answers; returns how many there were. answers_take - of a
 * lane that may be gone. */
uint32_t step(struct bench *bench);
uint32_t answers_take(struct bench *bench);

/* finish - answer everything in flight in full until nothing is; then all have one answer. */
void finish(struct bench *bench);

bool is_answered(const struct bench *bench, const struct transfer *transfer);
void expect_operation(
    const struct bench *bench, uint32_t index, enum io_kind kind, uint64_t offset, uint64_t size);
void expect_answer(
    const struct bench *bench, const struct transfer *transfer, enum kvt_status status, int error);

#endif /* KVT_TESTS_LANE_BENCH_H */
