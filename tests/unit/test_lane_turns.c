/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lane_turns.c - whose turn it is in a lane: classes, the budget, who is woken, opening.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lane_bench.h"

/* --- Classes and the budget ------------------------------------------------------------------- */

static uint64_t
bytes_flying(const struct bench *bench)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < bench->script.flying_count; i++)
        bytes += io_script_size(&bench->script, i);
    return bytes;
}

static void
bytes_in_flight_stay_within_the_budget(void **state)
{
    struct bench *bench = *state;
    struct lane_stats stats;

    for (uint32_t i = 0; i < 100; i++)
        (void)push(bench, IO_READ, LANE_BULK, i * 2ull * MIB, 300 * KIB + i * 4096);
    (void)step(bench);
    while (bench->script.flying_count > 0) {
        assert_true(bytes_flying(bench) <= BUDGET);
        lane_stats_get(bench->lane, &stats);
        assert_int_equal(stats.bytes_in_flight_now, bytes_flying(bench));
        assert_int_equal(stats.operations_in_flight_now, bench->script.flying_count);
        io_script_answer(&bench->script, bench->script.flying_count / 2,
            (int64_t)io_script_size(&bench->script, bench->script.flying_count / 2));
        (void)step(bench);
    }
    finish(bench);
    lane_stats_get(bench->lane, &stats);
    assert_int_equal(stats.read_count, 100);
    assert_int_equal(stats.bytes_in_flight_now, 0);
}

static void
bulk_operations_leave_slots_for_urgent_ones(void **state)
{
    struct bench *bench = *state;
    uint32_t before;

    for (uint32_t i = 0; i < 400; i++)
        (void)push(bench, IO_READ, LANE_BULK, i * 8192ull, 4096);
    (void)step(bench);
    before = bench->script.flying_count;
    assert_true(before < LANE_DEPTH);
    (void)push(bench, IO_READ, LANE_URGENT, 0, 4096);
    (void)step(bench);
    assert_int_equal(bench->script.flying_count, before + 1);
    finish(bench);
}

/* How many operations of that kind are in flight. */
static uint32_t
flying_count_of(const struct bench *bench, enum io_kind kind)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < bench->script.flying_count; i++)
        count += bench->script.flying[i]->kind == kind;
    return count;
}

static void
a_turn_of_bulk_ones_without_a_slot_does_not_hold_up_urgent_ones(void **state)
{
    struct bench *bench = *state;
    uint32_t bulk_count;

    for (uint32_t i = 0; i < 400; i++)
        (void)push(bench, IO_WRITE, LANE_BULK, i * 8192ull, 4096);
    (void)step(bench);
    bulk_count = bench->script.flying_count;
    assert_true(bulk_count < LANE_DEPTH);
    /* The first gives them credit. */
    for (uint32_t i = 0; i < LANE_DEPTH - bulk_count; i++)
        (void)push(bench, IO_READ, LANE_URGENT, i * 8192ull * KIB, i == 0 ? 256 * KIB : 4096);
    (void)step(bench);
    assert_int_equal(flying_count_of(bench, IO_READ), LANE_DEPTH - bulk_count);
    assert_int_equal(flying_count_of(bench, IO_WRITE), bulk_count);
    finish(bench);
}

static void
urgent_transfer_passes_bulk_ones_that_have_not_started(void **state)
{
    struct bench *bench = *state;
    struct transfer *urgent;

    for (uint32_t i = 0; i < 20; i++)
        (void)push(bench, IO_READ, LANE_BULK, i * 10ull * MIB, MIB);
    (void)step(bench);
    assert_int_equal(bench->script.flying_count, BUDGET / MIB);
    urgent = push(bench, IO_READ, LANE_URGENT, 5000 * (uint64_t)MIB, 4096);
    /* Bulk transfers fill the budget, and yet the urgent one has room, and wakes the lane. */
    assert_int_equal(bench->script.wake_count, 1);
    (void)step(bench);
    expect_operation(bench, BUDGET / MIB, IO_READ, urgent->offset, 4096);
    finish(bench);
}

static void
urgent_bytes_in_flight_have_a_limit_of_their_own(void **state)
{
    struct bench *bench = *state;

    for (uint32_t i = 0; i < 40; i++)
        (void)push(bench, IO_READ, LANE_URGENT, i * 10ull * MIB, MIB);
    (void)step(bench);
    assert_true((int)LANE_URGENT_BYTES > (int)BUDGET);
    assert_int_equal(bytes_flying(bench), LANE_URGENT_BYTES);
    io_script_answer(&bench->script, 0, MIB);
    (void)step(bench);
    assert_int_equal(bytes_flying(bench), LANE_URGENT_BYTES);
    finish(bench);
}

static void
bulk_ones_take_less_while_somebody_waits_for_bytes(void **state)
{
    enum {
        SHARED = 2 * MIB,
        MOMENT_NS = 10 * 1000 * 1000
    };
    struct bench *bench = *state;

    for (uint32_t i = 0; i < 20; i++)
        (void)push(bench, IO_READ, LANE_BULK, i * 10ull * MIB, MIB);
    (void)push(bench, IO_READ, LANE_URGENT, 5000 * (uint64_t)MIB, 4096);
    (void)step(bench);
    assert_int_equal(bytes_flying(bench), SHARED + 4096);
    io_script_answer(&bench->script, 0, 4096);
    (void)step(bench);
    assert_int_equal(bytes_flying(bench), SHARED);
    /* The moment passes, and the next completion lets more through. */
    bench->script.now_ns += MOMENT_NS;
    io_script_answer(&bench->script, 0, MIB);
    (void)step(bench);
    assert_int_equal(bytes_flying(bench), BUDGET);
    finish(bench);
}

static void
bulk_transfer_waits_for_its_share_of_urgent_bytes(void **state)
{
    struct bench *bench = *state;
    uint32_t bulk_at = UINT32_MAX;

    (void)push(bench, IO_WRITE, LANE_BULK, 0, 16384);
    for (uint32_t i = 0; i < 100; i++)
        (void)push(bench, IO_READ, LANE_URGENT, i * 8192ull, 4096);
    (void)step(bench);
    for (uint32_t i = 0; i < bench->script.flying_count && bulk_at == UINT32_MAX; i++) {
        if (bench->script.flying[i]->kind == IO_WRITE)
            bulk_at = i;
    }
    assert_int_equal(bulk_at, LANE_URGENT_SHARE * 16384 / 4096);
    finish(bench);
}

/* Bytes of bulk writes that start before the last of many urgent reads does. */
static uint64_t
bulk_bytes_beside(struct bench *bench, uint32_t urgent_size, uint32_t bulk_size)
{
    enum {
        URGENT_COUNT = 60,
        BULK_COUNT = 30,
    };
    uint64_t bytes[2] = {0, 0};

    for (uint64_t i = 0; i < BULK_COUNT; i++)
        (void)push(bench, IO_WRITE, LANE_BULK, i * 4 * MIB, bulk_size);
    for (uint64_t i = 0; i < URGENT_COUNT; i++)
        (void)push(bench, IO_READ, LANE_URGENT, i * 4 * MIB, urgent_size);
    (void)step(bench);
    while (bytes[IO_READ] < (uint64_t)URGENT_COUNT * urgent_size - LANE_URGENT_BYTES) {
        uint64_t size = io_script_size(&bench->script, 0);

        bytes[bench->script.flying[0]->kind] += size;
        io_script_answer(&bench->script, 0, (int64_t)size);
        (void)step(bench);
    }
    finish(bench);
    return bytes[IO_WRITE];
}

static void
bulk_ones_get_their_share_when_urgent_ones_do_not_end(void **state)
{
    const uint64_t share = (60 * MIB - LANE_URGENT_BYTES) / LANE_URGENT_SHARE;

    assert_in_range(bulk_bytes_beside(*state, MIB, MIB), share - 2 * MIB, share + MIB);
}

static void
share_of_bulk_ones_is_one_of_bytes(void **state)
{
    const uint64_t share = (60 * (MIB / 2) - LANE_URGENT_BYTES) / LANE_URGENT_SHARE;

    assert_in_range(bulk_bytes_beside(*state, MIB / 2, MIB), share - 2 * MIB, share + MIB);
}

static void
small_bulk_ones_get_the_same_share(void **state)
{
    const uint64_t share = (60 * MIB - LANE_URGENT_BYTES) / LANE_URGENT_SHARE;

    assert_in_range(bulk_bytes_beside(*state, MIB, MIB / 2), share - 2 * MIB, share + MIB);
}

static void
bulk_ones_get_their_share_when_urgent_ones_take_all_slots(void **state)
{
    enum {
        READS = 480,
        WRITES = 110,
    };
    struct bench *bench = *state;
    uint32_t counts[2] = {0, 0};

    for (uint64_t i = 0; i < WRITES; i++)
        (void)push(bench, IO_WRITE, LANE_BULK, i * 8192, 4096);
    for (uint64_t i = 0; i < READS; i++)
        (void)push(bench, IO_READ, LANE_URGENT, i * 8192, 4096);
    (void)step(bench);
    assert_int_equal(bench->script.flying_count, LANE_DEPTH);
    while (counts[IO_READ] < READS - LANE_DEPTH) {
        counts[bench->script.flying[0]->kind]++;
        io_script_answer(&bench->script, 0, 4096);
        (void)step(bench);
    }
    assert_in_range(counts[IO_WRITE] + flying_count_of(bench, IO_WRITE),
        (counts[IO_READ] + flying_count_of(bench, IO_READ)) / LANE_URGENT_SHARE - 1,
        (counts[IO_READ] + flying_count_of(bench, IO_READ)) / LANE_URGENT_SHARE);
    finish(bench);
}

/* A write in flight, else what is there first. */
static uint32_t
write_or_first(const struct bench *bench)
{
    for (uint32_t i = 0; i < bench->script.flying_count; i++) {
        if (bench->script.flying[i]->kind == IO_WRITE)
            return i;
    }
    return 0;
}

static void
bulk_ones_that_end_at_once_get_no_more_than_their_share(void **state)
{
    const uint64_t share = 60 * MIB / LANE_URGENT_SHARE;
    struct bench *bench = *state;
    uint64_t bytes[2] = {0, 0};

    for (uint64_t i = 0; i < 30; i++)
        (void)push(bench, IO_WRITE, LANE_BULK, i * 4 * MIB, MIB);
    for (uint64_t i = 0; i < 60; i++)
        (void)push(bench, IO_READ, LANE_URGENT, i * 4 * MIB, MIB);
    (void)step(bench);
    while (bytes[IO_READ] < 60 * MIB - LANE_URGENT_BYTES) {
        uint32_t at = write_or_first(bench);

        bytes[bench->script.flying[at]->kind] += MIB;
        io_script_answer(&bench->script, at, MIB);
        (void)step(bench);
    }
    finish(bench);
    assert_in_range(bytes[IO_WRITE], share - 2 * MIB, share);
}

/* --- Wakes and the queue's limits ------------------------------------------------------------- */

/* A user that is quick: its inbox is empty again before the next answer. */
static void
inbox_drain(void *context)
{
    struct bench *bench = context;
    struct inbox_node *node;

    for (node = inbox_take(&bench->inbox); node != NULL; node = node->next)
        bench->answer_count[CONTAINER_OF(node, struct transfer, node) - bench->transfers]++;
}

static void
one_round_wakes_the_user_once(void **state)
{
    struct bench *bench = *state;

    bench->script.user_woken = inbox_drain;
    bench->script.user_context = bench;
    for (uint32_t i = 0; i < 10; i++)
        (void)push(bench, IO_READ, LANE_BULK, i * 8192ull, 4096);
    (void)step(bench);
    assert_int_equal(bench->script.user_wakes, 0);
    for (uint32_t i = 0; i < 10; i++)
        io_script_answer(&bench->script, 0, 4096);
    (void)step(bench);
    assert_int_equal(bench->script.user_wakes, 1);
    for (uint32_t i = 0; i < 10; i++)
        assert_true(is_answered(bench, &bench->transfers[i]));
}

static void
many_transfers_are_pushed_with_one_wake(void **state)
{
    struct bench *bench = *state;
    struct transfer *reads[10];

    (void)step(bench);
    for (uint32_t i = 0; i < 10; i++)
        reads[i] = make(bench, IO_READ, LANE_URGENT, i * 8192ull, 4096);
    lane_push_many(bench->lane, reads, 10);
    assert_int_equal(bench->script.wake_count, 1);
    finish(bench);
}

static void
push_wakes_a_parked_lane_and_spares_one_that_waits_for_room(void **state)
{
    struct bench *bench = *state;

    (void)step(bench);
    (void)push(bench, IO_READ, LANE_BULK, 0, 4096);
    assert_int_equal(bench->script.wake_count, 1);
    (void)step(bench);
    /* Parked with something in flight and room for more. */
    (void)push(bench, IO_READ, LANE_BULK, 8 * MIB, 4096);
    assert_int_equal(bench->script.wake_count, 1);
    for (uint32_t i = 0; i < 10; i++)
        (void)push(bench, IO_READ, LANE_BULK, (100 + i) * 8ull * MIB, MIB);
    (void)step(bench);
    /* The budget is full: only an urgent one wakes. */
    (void)push(bench, IO_READ, LANE_BULK, 16 * MIB, 4096);
    assert_int_equal(bench->script.wake_count, 0);
    for (uint32_t i = 0; i < LANE_URGENT_BYTES / MIB; i++)
        (void)push(bench, IO_READ, LANE_URGENT, (200 + i) * 8ull * MIB, MIB);
    assert_true(bench->script.wake_count > 0);
    (void)step(bench);
    /* Urgent ones wait for room as well: nobody wakes. */
    (void)push(bench, IO_READ, LANE_URGENT, 24 * MIB, 4096);
    assert_int_equal(bench->script.wake_count, 0);
    finish(bench);
}

static void
sync_wakes_a_lane_that_waits_for_room(void **state)
{
    struct bench *bench = *state;

    for (uint32_t i = 0; i < 10; i++)
        (void)push(bench, IO_READ, LANE_BULK, i * 8ull * MIB, MIB);
    (void)step(bench);
    /* It needs no room, and the transfer in front of it woke nobody. */
    (void)push(bench, IO_READ, LANE_BULK, 100 * MIB, 4096);
    assert_int_equal(bench->script.wake_count, 0);
    (void)push(bench, IO_SYNC, LANE_BULK, 0, 0);
    assert_int_equal(bench->script.wake_count, 1);
    for (uint32_t i = 0; i < 10; i++)
        (void)push(bench, IO_READ, LANE_URGENT, (200 + i) * 8ull * MIB, MIB);
    (void)step(bench);
    (void)push(bench, IO_SYNC, LANE_BULK, 0, 0);
    assert_int_equal(bench->script.wake_count, 1);
    finish(bench);
}

static void
operations_that_the_queue_does_not_take_are_submitted_later(void **state)
{
    struct bench *bench = *state;

    bench->script.take_limit = 3;
    for (uint32_t i = 0; i < 100; i++)
        (void)push(bench, IO_READ, LANE_BULK, i * 8192ull, 4096);
    (void)step(bench);
    assert_int_equal(bench->script.flying_count, 3);
    assert_true(bench->script.next_ns != UINT64_MAX);
    finish(bench);
    assert_int_equal(bench->script.submit_count, 100);
}

/* --- Opening ---------------------------------------------------------------------------------- */

static void
lane_that_cannot_open_leaves_nothing_behind(void **state)
{
    struct io_script *script = calloc(1, sizeof(*script));
    struct lane *lane = (struct lane *)(void *)script;

    (void)state;
    assert_non_null(script);
    io_script_init(script);
    script->memory_left = 0;
    assert_int_equal(lane_open(&script->env, "lane", NULL, 0, &lane), KVT_E_NOMEM);
    assert_null(lane);
    script->memory_left = UINT32_MAX;
    script->refuses_queue = true;
    assert_int_equal(lane_open(&script->env, "lane", NULL, 0, &lane), KVT_E_UNSUPPORTED);
    assert_null(lane);
    script->refuses_queue = false;
    script->refuses_task = true;
    assert_int_equal(lane_open(&script->env, "lane", NULL, 0, &lane), KVT_E_NOMEM);
    assert_null(lane);
    assert_false(script->is_queue_open);
    lane_close(NULL);
    free(script);
}

static void
arena_is_adopted_by_the_queue(void **state)
{
    struct io_script *script = calloc(1, sizeof(*script));
    struct lane *lane;

    (void)state;
    assert_non_null(script);
    io_script_init(script);
    assert_int_equal(lane_open(&script->env, "lane", script, 4096, &lane), KVT_OK);
    assert_ptr_equal(script->adopted, script);
    assert_int_equal(script->adopted_size, 4096);
    lane_close(lane);
    free(script);
}

/* --- Closing ---------------------------------------------------------------------------------- */

static void
bench_lane_close(struct bench *bench)
{
    lane_close(bench->lane);
    bench->lane = NULL;
    assert_false(bench->script.is_queue_open);
    assert_int_equal(bench->script.flying_count, 0);
    (void)answers_take(bench);
}

/* Whoever closes it frees what the kernel reads and writes. */
static void
close_waits_for_what_is_in_flight(void **state)
{
    struct bench *bench = *state;
    struct transfer *transfers[4];

    for (uint32_t i = 0; i < 4; i++)
        transfers[i] = push(bench, i == 3 ? IO_WRITE : IO_READ, LANE_BULK, i * MIB, 4096);
    (void)step(bench);
    assert_int_equal(bench->script.flying_count, 4);
    bench_lane_close(bench);
    for (uint32_t i = 0; i < 4; i++)
        expect_answer(bench, transfers[i], KVT_OK, 0);
}

/* A debug build stops at a close with transfers that have no answer. */
static void
close_begins_nothing(void **state)
{
#ifdef NDEBUG
    struct bench *bench = *state;
    struct transfer *write = push(bench, IO_WRITE, LANE_BULK, 0, 2 * BUDGET);
    struct transfer *late;

    (void)step(bench);
    assert_int_equal(bench->script.flying_count, BUDGET / LANE_OP_BYTES);
    late = push(bench, IO_READ, LANE_URGENT, 0, 4096);
    bench_lane_close(bench);
    assert_int_equal(bench->script.submit_count, BUDGET / LANE_OP_BYTES);
    assert_false(is_answered(bench, write));
    assert_false(is_answered(bench, late));
#else
    (void)state;
    skip();
#endif
}

#define CHECK(function) cmocka_unit_test_setup_teardown(function, bench_open, bench_close)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK(bytes_in_flight_stay_within_the_budget),
        CHECK(bulk_operations_leave_slots_for_urgent_ones),
        CHECK(a_turn_of_bulk_ones_without_a_slot_does_not_hold_up_urgent_ones),
        CHECK(urgent_transfer_passes_bulk_ones_that_have_not_started),
        CHECK(urgent_bytes_in_flight_have_a_limit_of_their_own),
        CHECK(bulk_ones_take_less_while_somebody_waits_for_bytes),
        CHECK(bulk_transfer_waits_for_its_share_of_urgent_bytes),
        CHECK(bulk_ones_get_their_share_when_urgent_ones_do_not_end),
        CHECK(share_of_bulk_ones_is_one_of_bytes),
        CHECK(small_bulk_ones_get_the_same_share),
        CHECK(bulk_ones_get_their_share_when_urgent_ones_take_all_slots),
        CHECK(bulk_ones_that_end_at_once_get_no_more_than_their_share),
        CHECK(one_round_wakes_the_user_once),
        CHECK(many_transfers_are_pushed_with_one_wake),
        CHECK(push_wakes_a_parked_lane_and_spares_one_that_waits_for_room),
        CHECK(sync_wakes_a_lane_that_waits_for_room),
        CHECK(operations_that_the_queue_does_not_take_are_submitted_later),
        cmocka_unit_test(lane_that_cannot_open_leaves_nothing_behind),
        cmocka_unit_test(arena_is_adopted_by_the_queue),
        CHECK(close_waits_for_what_is_in_flight),
        CHECK(close_begins_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
