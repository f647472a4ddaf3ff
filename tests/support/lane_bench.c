/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane_bench.c - makes, pushes and follows transfers.
 */
#include "lane_bench.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

int
bench_open(void **state)
{
    struct bench *bench = calloc(1, sizeof(*bench));

    assert_non_null(bench);
    io_script_init(&bench->script);
    bench->user = io_script_task(&bench->script);
    assert_int_equal(lane_open(&bench->script.env, "lane", NULL, 0, &bench->lane), KVT_OK);
    *state = bench;
    return 0;
}

int
bench_close(void **state)
{
    struct bench *bench = *state;

    lane_close(bench->lane);
    assert_false(bench->script.is_queue_open);
    free(bench->user);
    free(bench);
    return 0;
}

struct transfer *
make(struct bench *bench, enum io_kind kind, enum lane_class class, uint64_t offset, uint64_t size)
{
    uint32_t i = bench->transfer_count++;
    struct transfer *transfer = &bench->transfers[i];

    assert_true(i < TRANSFERS);
    bench->pieces[i].iov_base = (void *)(uintptr_t)(0x10000000u + i * 0x10000000ull);
    bench->pieces[i].iov_len = size;
    *transfer = (struct transfer){
        .kind = kind,
        .class = class,
        .file = &bench->files[0],
        .offset = offset,
        .pieces = kind == IO_SYNC ? NULL : &bench->pieces[i],
        .piece_count = kind == IO_SYNC ? 0 : 1,
        .done = &bench->inbox,
        .done_task = &bench->user,
        .status = KVT_E_POISONED,
    };
    return transfer;
}

struct transfer *
push(struct bench *bench, enum io_kind kind, enum lane_class class, uint64_t offset, uint64_t size)
{
    struct transfer *transfer = make(bench, kind, class, offset, size);

    lane_push(bench->lane, transfer);
    return transfer;
}

uint32_t
step(struct bench *bench)
{
    io_script_step(&bench->script);
    return answers_take(bench);
}

uint32_t
answers_take(struct bench *bench)
{
    struct inbox_node *node;
    uint32_t count = 0;

    for (node = inbox_take(&bench->inbox); node != NULL; node = node->next) {
        struct transfer *transfer = CONTAINER_OF(node, struct transfer, node);

        bench->answer_count[transfer - bench->transfers]++;
        count++;
    }
    return count;
}

bool
is_answered(const struct bench *bench, const struct transfer *transfer)
{
    uint32_t count = bench->answer_count[transfer - bench->transfers];

    assert_true(count <= 1);
    return count == 1;
}

void
finish(struct bench *bench)
{
    (void)step(bench);
    while (bench->script.flying_count > 0) {
        uint64_t size = io_script_size(&bench->script, 0);

        io_script_answer(&bench->script, 0, (int64_t)size);
        (void)step(bench);
    }
    for (uint32_t i = 0; i < bench->transfer_count; i++)
        assert_int_equal(bench->answer_count[i], 1);
}

void
expect_operation(
    const struct bench *bench, uint32_t index, enum io_kind kind, uint64_t offset, uint64_t size)
{
    assert_true(index < bench->script.flying_count);
    assert_int_equal(bench->script.flying[index]->kind, kind);
    assert_int_equal(bench->script.flying[index]->offset, offset);
    assert_int_equal(io_script_size(&bench->script, index), size);
}

void
expect_answer(
    const struct bench *bench, const struct transfer *transfer, enum kvt_status status, int error)
{
    assert_true(is_answered(bench, transfer));
    assert_int_equal(transfer->status, status);
    assert_int_equal(transfer->error, error);
}
