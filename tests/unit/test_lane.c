/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lane.c - what the lane makes of transfers, against an io queue that answers as the test
 * says: short, interrupted, wrong, out of order.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lane_bench.h"

/* --- Short, interrupted, failed --------------------------------------------------------------- */

static void
short_transfer_has_its_rest_submitted_again(void **state)
{
    struct bench *bench = *state;
    struct transfer *read = push(bench, IO_READ, LANE_BULK, 8192, 64 * KIB);
    uint64_t first_id;

    (void)step(bench);
    expect_operation(bench, 0, IO_READ, 8192, 64 * KIB);
    first_id = bench->script.flying[0]->id;
    io_script_answer(&bench->script, 0, 4096);
    assert_int_equal(step(bench), 0);
    expect_operation(bench, 0, IO_READ, 8192 + 4096, 60 * KIB);
    assert_ptr_equal(
        bench->script.flying[0]->pieces[0].iov_base, (char *)read->pieces[0].iov_base + 4096);
    assert_true(bench->script.flying[0]->id != first_id);
    io_script_answer(&bench->script, 0, 60 * KIB);
    assert_int_equal(step(bench), 1);
    expect_answer(bench, read, KVT_OK, 0);
}

static void
interrupted_operation_is_submitted_again(void **state)
{
    struct bench *bench = *state;
    struct transfer *write = push(bench, IO_WRITE, LANE_BULK, 0, 4096);

    for (int i = 0; i < LANE_RETRY_MAX; i++) {
        (void)step(bench);
        expect_operation(bench, 0, IO_WRITE, 0, 4096);
        io_script_answer(&bench->script, 0, i % 2 == 0 ? -EINTR : -EAGAIN);
    }
    finish(bench);
    expect_answer(bench, write, KVT_OK, 0);
}

static void
interrupted_operation_fails_after_the_limit(void **state)
{
    /* EAGAIN to the last: the kernel lacked something, not the disk. */
    static const struct {
        enum io_kind kind;
        int error;
        enum kvt_status status;
    } rows[] = {
        {IO_WRITE, EAGAIN, KVT_E_NOMEM},
        {IO_READ, EAGAIN, KVT_E_NOMEM},
        {IO_READ, EINTR, KVT_E_IO},
    };
    struct bench *bench = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct transfer *transfer = push(bench, rows[i].kind, LANE_BULK, 0, 4096);

        for (int j = 0; j <= LANE_RETRY_MAX; j++) {
            (void)step(bench);
            io_script_answer(&bench->script, 0, -rows[i].error);
        }
        assert_int_equal(step(bench), 1);
        assert_int_equal(bench->script.flying_count, 0);
        expect_answer(bench, transfer, rows[i].status, rows[i].error);
    }
}

static void
read_at_the_end_of_the_file_fails(void **state)
{
    struct bench *bench = *state;
    struct transfer *read = push(bench, IO_READ, LANE_URGENT, 0, 8192);

    (void)step(bench);
    io_script_answer(&bench->script, 0, 4096);
    (void)step(bench);
    io_script_answer(&bench->script, 0, 0);
    assert_int_equal(step(bench), 1);
    expect_answer(bench, read, KVT_E_IO, 0);
}

static void
more_bytes_than_were_asked_for_fail_the_transfer(void **state)
{
    struct bench *bench = *state;
    struct transfer *read = push(bench, IO_READ, LANE_URGENT, 0, 8192);

    (void)step(bench);
    io_script_answer(&bench->script, 0, 8193);
    (void)step(bench);
    expect_answer(bench, read, KVT_E_IO, EIO);
}

static void
first_error_is_the_transfers_and_its_rest_never_starts(void **state)
{
    struct bench *bench = *state;
    struct transfer *write = push(bench, IO_WRITE, LANE_BULK, 0, 16 * MIB);
    struct transfer *behind = push(bench, IO_WRITE, LANE_BULK, 100 * MIB, 4096);

    (void)step(bench);
    assert_int_equal(bench->script.flying_count, BUDGET / LANE_OP_BYTES);
    io_script_answer(&bench->script, 1, -ENOSPC);
    (void)step(bench);
    io_script_answer(&bench->script, 0, -EIO);
    assert_int_equal(step(bench), 0);
    /* Only what had started still flies, and the transfer behind it. */
    assert_int_equal(bench->script.flying_count, BUDGET / LANE_OP_BYTES - 2 + 1);
    finish(bench);
    expect_answer(bench, write, KVT_E_NOSPC, ENOSPC);
    expect_answer(bench, behind, KVT_OK, 0);
    assert_int_equal(bench->script.submit_count, BUDGET / LANE_OP_BYTES + 1);
}

/* What an operation lacked may be there again later. A read lacks no space; that the kernel had no
 * memory for it says nothing of the disk. */
static void
what_an_operation_lacked_is_told(void **state)
{
    static const struct {
        enum io_kind kind;
        int error;
        enum kvt_status status;
    } rows[] = {
        {IO_WRITE, ENOSPC, KVT_E_NOSPC},
        {IO_WRITE, EDQUOT, KVT_E_NOSPC},
        {IO_WRITE, ENOMEM, KVT_E_NOMEM},
        {IO_WRITE, EIO, KVT_E_IO},
        {IO_READ, ENOMEM, KVT_E_NOMEM},
        {IO_READ, ENOSPC, KVT_E_IO},
    };
    struct bench *bench = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct transfer *transfer = push(bench, rows[i].kind, LANE_BULK, 0, 4096);

        (void)step(bench);
        io_script_answer(&bench->script, 0, -rows[i].error);
        (void)step(bench);
        expect_answer(bench, transfer, rows[i].status, rows[i].error);
    }
}

static void
completions_out_of_order_reach_their_own_transfers(void **state)
{
    struct bench *bench = *state;
    struct transfer *reads[8];

    for (uint32_t i = 0; i < 8; i++)
        reads[i] = push(bench, IO_READ, LANE_BULK, i * 1000000ull, 4096);
    (void)step(bench);
    for (uint32_t i = 8; i > 0; i--)
        io_script_answer(&bench->script, i - 1, i % 2 == 0 ? 4096 : -EIO);
    assert_int_equal(step(bench), 8);
    for (uint32_t i = 0; i < 8; i++)
        expect_answer(bench, reads[i], i % 2 == 1 ? KVT_OK : KVT_E_IO, i % 2 == 1 ? 0 : EIO);
}

static void
senseless_transfers_are_refused_and_empty_ones_are_done(void **state)
{
    struct bench *bench = *state;
    struct transfer *beyond = make(bench, IO_READ, LANE_BULK, INT64_MAX - 4095, 4096 + 1);
    struct transfer *overflow = make(bench, IO_WRITE, LANE_BULK, 4096, UINT64_MAX - 4095);
    struct transfer *no_pieces = make(bench, IO_READ, LANE_BULK, 0, 4096);
    struct transfer *empty = make(bench, IO_WRITE, LANE_URGENT, 0, 0);

    no_pieces->pieces = NULL;
    lane_push(bench->lane, beyond);
    lane_push(bench->lane, overflow);
    lane_push(bench->lane, no_pieces);
    lane_push(bench->lane, empty);
    assert_int_equal(step(bench), 4);
    assert_int_equal(bench->script.submit_count, 0);
    expect_answer(bench, beyond, KVT_E_INVAL, EINVAL);
    expect_answer(bench, overflow, KVT_E_INVAL, EINVAL);
    expect_answer(bench, no_pieces, KVT_E_INVAL, EINVAL);
    expect_answer(bench, empty, KVT_OK, 0);
}

/* --- Cutting and joining ---------------------------------------------------------------------- */

static void
large_transfer_is_cut_and_answered_once(void **state)
{
    struct bench *bench = *state;
    struct transfer *read = push(bench, IO_READ, LANE_BULK, 4096, 2 * MIB + 4096);

    (void)step(bench);
    assert_int_equal(bench->script.flying_count, 3);
    expect_operation(bench, 0, IO_READ, 4096, LANE_OP_BYTES);
    expect_operation(bench, 1, IO_READ, 4096 + LANE_OP_BYTES, LANE_OP_BYTES);
    expect_operation(bench, 2, IO_READ, 4096 + 2 * LANE_OP_BYTES, 4096);
    io_script_answer(&bench->script, 2, 4096);
    io_script_answer(&bench->script, 0, LANE_OP_BYTES);
    assert_int_equal(step(bench), 0);
    io_script_answer(&bench->script, 0, LANE_OP_BYTES);
    assert_int_equal(step(bench), 1);
    expect_answer(bench, read, KVT_OK, 0);
}

static void
many_pieces_are_cut_at_the_limit_of_an_operation(void **state)
{
    struct bench *bench = *state;
    struct transfer *read = make(bench, IO_READ, LANE_BULK, 0, 0);
    struct iovec pieces[IO_PIECES_MAX + 10];

    for (uint32_t i = 0; i < IO_PIECES_MAX + 10; i++)
        pieces[i] = (struct iovec){(void *)(uintptr_t)(0x1000000ull * (i + 1)), 4096};
    pieces[3].iov_len = 0; /* An empty one in between changes nothing. */
    read->pieces = pieces;
    read->piece_count = IO_PIECES_MAX + 10;
    lane_push(bench->lane, read);
    (void)step(bench);
    assert_int_equal(bench->script.flying_count, 2);
    expect_operation(bench, 0, IO_READ, 0, IO_PIECES_MAX * 4096);
    assert_int_equal(bench->script.flying[0]->piece_count, IO_PIECES_MAX);
    expect_operation(bench, 1, IO_READ, IO_PIECES_MAX * 4096, 9 * 4096);
    assert_ptr_equal(
        bench->script.flying[1]->pieces[0].iov_base, pieces[IO_PIECES_MAX + 1].iov_base);
    finish(bench);
}

static void
neighbours_in_the_file_become_one_operation(void **state)
{
    struct bench *bench = *state;

    for (uint32_t i = 0; i < 20; i++)
        (void)push(bench, IO_READ, LANE_BULK, i * 64ull * KIB, 64 * KIB);
    (void)step(bench);
    assert_int_equal(bench->script.flying_count, 2);
    expect_operation(bench, 0, IO_READ, 0, LANE_OP_BYTES);
    assert_int_equal(bench->script.flying[0]->piece_count, 16);
    expect_operation(bench, 1, IO_READ, LANE_OP_BYTES, 4 * 64 * KIB);
    io_script_answer(&bench->script, 0, LANE_OP_BYTES);
    assert_int_equal(step(bench), 16);
    finish(bench);
    for (uint32_t i = 0; i < 20; i++)
        expect_answer(bench, &bench->transfers[i], KVT_OK, 0);
}

static void
neighbours_in_memory_as_well_become_one_piece(void **state)
{
    struct bench *bench = *state;

    for (uint32_t i = 0; i < 100; i++) {
        struct transfer *write = make(bench, IO_WRITE, LANE_BULK, i * 4096ull, 4096);

        bench->pieces[i].iov_base = (void *)(uintptr_t)(0x40000000u + i * 4096);
        lane_push(bench->lane, write);
    }
    (void)step(bench);
    assert_int_equal(bench->script.flying[0]->piece_count, 1);
    /* An operation has no more parts than pieces. */
    expect_operation(bench, 0, IO_WRITE, 0, IO_PIECES_MAX * 4096);
    finish(bench);
}

static void
only_transfers_that_touch_are_joined(void **state)
{
    struct bench *bench = *state;
    struct transfer *other_file;

    (void)push(bench, IO_READ, LANE_BULK, 0, 4096);
    (void)push(bench, IO_READ, LANE_BULK, 8192, 4096);   /* A gap. */
    (void)push(bench, IO_WRITE, LANE_BULK, 12288, 4096); /* Another kind. */
    other_file = make(bench, IO_WRITE, LANE_BULK, 16384, 4096);
    other_file->file = &bench->files[1];
    lane_push(bench->lane, other_file);
    (void)push(bench, IO_READ, LANE_URGENT, 20480, 4096); /* Another class. */
    (void)step(bench);
    assert_int_equal(bench->script.flying_count, 5);
    finish(bench);
}

static void
failed_joined_read_is_tried_again_part_by_part(void **state)
{
    struct bench *bench = *state;
    struct transfer *reads[4];

    for (uint32_t i = 0; i < 4; i++)
        reads[i] = push(bench, IO_READ, LANE_URGENT, i * 8192ull, 8192);
    (void)step(bench);
    expect_operation(bench, 0, IO_READ, 0, 4 * 8192);
    io_script_answer(&bench->script, 0, -EIO);
    assert_int_equal(step(bench), 0);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(bench->script.flying_count, 1);
        expect_operation(bench, 0, IO_READ, i * 8192ull, 8192);
        assert_ptr_equal(bench->script.flying[0]->pieces[0].iov_base, reads[i]->pieces[0].iov_base);
        io_script_answer(&bench->script, 0, i == 2 ? -EIO : 8192);
        assert_int_equal(step(bench), 1);
        expect_answer(bench, reads[i], i == 2 ? KVT_E_IO : KVT_OK, i == 2 ? EIO : 0);
    }
    assert_int_equal(bench->script.flying_count, 0);
}

static void
joined_read_that_was_short_before_it_failed_keeps_what_it_read(void **state)
{
    struct bench *bench = *state;
    struct transfer *reads[3];

    for (uint32_t i = 0; i < 3; i++)
        reads[i] = push(bench, IO_READ, LANE_URGENT, i * 8192ull, 8192);
    (void)step(bench);
    io_script_answer(&bench->script, 0, 8192 + 512);
    assert_int_equal(step(bench), 0);
    expect_operation(bench, 0, IO_READ, 8192 + 512, 2 * 8192 - 512);
    io_script_answer(&bench->script, 0, 0);
    assert_int_equal(step(bench), 1);
    expect_answer(bench, reads[0], KVT_OK, 0);
    /* The second from its beginning, alone; then the third. */
    expect_operation(bench, 0, IO_READ, 8192, 8192);
    io_script_answer(&bench->script, 0, 8192);
    (void)step(bench);
    expect_operation(bench, 0, IO_READ, 2 * 8192, 8192);
    io_script_answer(&bench->script, 0, 0);
    (void)step(bench);
    expect_answer(bench, reads[1], KVT_OK, 0);
    expect_answer(bench, reads[2], KVT_E_IO, 0);
}

/* The end of a transfer that was cut, joined with the transfer behind it. */
static void
part_that_is_tried_alone_keeps_its_place_in_its_transfer(void **state)
{
    struct bench *bench = *state;
    struct transfer *large = push(bench, IO_READ, LANE_URGENT, 4096, LANE_OP_BYTES + 8192);
    struct transfer *small = push(bench, IO_READ, LANE_URGENT, 4096 + LANE_OP_BYTES + 8192, 4096);

    (void)step(bench);
    expect_operation(bench, 1, IO_READ, 4096 + LANE_OP_BYTES, 8192 + 4096);
    io_script_answer(&bench->script, 1, -EIO);
    (void)step(bench);
    expect_operation(bench, 1, IO_READ, 4096 + LANE_OP_BYTES, 8192);
    assert_ptr_equal(bench->script.flying[1]->pieces[0].iov_base,
        (char *)large->pieces[0].iov_base + LANE_OP_BYTES);
    io_script_answer(&bench->script, 1, 8192);
    (void)step(bench);
    expect_operation(bench, 1, IO_READ, 4096 + LANE_OP_BYTES + 8192, 4096);
    finish(bench);
    expect_answer(bench, large, KVT_OK, 0);
    expect_answer(bench, small, KVT_OK, 0);
}

static void
failed_joined_write_fails_its_transfers(void **state)
{
    struct bench *bench = *state;
    struct transfer *writes[3];

    for (uint32_t i = 0; i < 3; i++)
        writes[i] = push(bench, IO_WRITE, LANE_BULK, i * 8192ull, 8192);
    (void)step(bench);
    assert_int_equal(bench->script.flying_count, 1);
    io_script_answer(&bench->script, 0, -EIO);
    assert_int_equal(step(bench), 3);
    assert_int_equal(bench->script.flying_count, 0);
    for (uint32_t i = 0; i < 3; i++)
        expect_answer(bench, writes[i], KVT_E_IO, EIO);
}

/* --- Syncs ------------------------------------------------------------------------------------ */

static void
sync_starts_beside_writes_that_are_in_flight(void **state)
{
    struct bench *bench = *state;
    struct transfer *write = push(bench, IO_WRITE, LANE_BULK, 0, 16 * MIB);
    struct transfer *sync;

    (void)step(bench);
    /* The budget is full, and most of the write waits for room. */
    assert_int_equal(bench->script.flying_count, BUDGET / LANE_OP_BYTES);
    sync = push(bench, IO_SYNC, LANE_BULK, 0, 0);
    (void)step(bench);
    assert_int_equal(bench->script.flying_count, BUDGET / LANE_OP_BYTES + 1);
    expect_operation(bench, BUDGET / LANE_OP_BYTES, IO_SYNC, 0, 0);
    assert_int_equal(bench->script.flying[BUDGET / LANE_OP_BYTES]->piece_count, 0);
    io_script_answer(&bench->script, BUDGET / LANE_OP_BYTES, 0);
    assert_int_equal(step(bench), 1);
    expect_answer(bench, sync, KVT_OK, 0);
    assert_false(is_answered(bench, write));
    finish(bench);
}

static void
failed_sync_is_never_tried_again(void **state)
{
    struct bench *bench = *state;
    static const int errors[] = {EIO, EINTR, EAGAIN};

    for (uint32_t i = 0; i < 3; i++) {
        struct transfer *sync = push(bench, IO_SYNC, LANE_BULK, 0, 0);

        (void)step(bench);
        io_script_answer(&bench->script, 0, -errors[i]);
        assert_int_equal(step(bench), 1);
        expect_answer(bench, sync, KVT_E_IO, errors[i]);
        assert_int_equal(bench->script.flying_count, 0);
    }
}

static void
syncs_keep_their_order(void **state)
{
    struct bench *bench = *state;
    struct transfer *syncs[4];

    /* Every place in the table is taken, and more wait for one. */
    for (uint32_t i = 0; i < LANE_DEPTH + 8; i++)
        (void)push(bench, IO_READ, LANE_URGENT, i * 8192ull, 4096);
    (void)step(bench);
    assert_int_equal(bench->script.flying_count, LANE_DEPTH);
    for (uint32_t i = 0; i < 4; i++) {
        syncs[i] = make(bench, IO_SYNC, LANE_BULK, 0, 0);
        syncs[i]->file = &bench->files[i % 2];
        lane_push(bench->lane, syncs[i]);
    }
    assert_int_equal(step(bench), 0);
    for (uint32_t i = 0; i < 4; i++) {
        io_script_answer(&bench->script, 0, 4096);
        assert_int_equal(step(bench), 1);
        assert_int_equal(bench->script.flying_count, LANE_DEPTH);
        expect_operation(bench, LANE_DEPTH - 1, IO_SYNC, 0, 0);
        assert_ptr_equal(bench->script.flying[LANE_DEPTH - 1]->file, &bench->files[i % 2]);
    }
    /* Each one's end is its own. */
    io_script_answer(&bench->script, LANE_DEPTH - 3, -EIO);
    assert_int_equal(step(bench), 1);
    expect_answer(bench, syncs[1], KVT_E_IO, EIO);
    finish(bench);
    expect_answer(bench, syncs[3], KVT_OK, 0);
}

#define CHECK(function) cmocka_unit_test_setup_teardown(function, bench_open, bench_close)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK(short_transfer_has_its_rest_submitted_again),
        CHECK(interrupted_operation_is_submitted_again),
        CHECK(interrupted_operation_fails_after_the_limit),
        CHECK(read_at_the_end_of_the_file_fails),
        CHECK(more_bytes_than_were_asked_for_fail_the_transfer),
        CHECK(first_error_is_the_transfers_and_its_rest_never_starts),
        CHECK(what_an_operation_lacked_is_told),
        CHECK(completions_out_of_order_reach_their_own_transfers),
        CHECK(senseless_transfers_are_refused_and_empty_ones_are_done),
        CHECK(large_transfer_is_cut_and_answered_once),
        CHECK(many_pieces_are_cut_at_the_limit_of_an_operation),
        CHECK(neighbours_in_the_file_become_one_operation),
        CHECK(neighbours_in_memory_as_well_become_one_piece),
        CHECK(only_transfers_that_touch_are_joined),
        CHECK(failed_joined_read_is_tried_again_part_by_part),
        CHECK(joined_read_that_was_short_before_it_failed_keeps_what_it_read),
        CHECK(part_that_is_tried_alone_keeps_its_place_in_its_transfer),
        CHECK(failed_joined_write_fails_its_transfers),
        CHECK(sync_starts_beside_writes_that_are_in_flight),
        CHECK(failed_sync_is_never_tried_again),
        CHECK(syncs_keep_their_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
