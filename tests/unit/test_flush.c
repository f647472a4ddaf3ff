/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_flush.c - what kvt_flush() has answered is durable: each put and each delete that was
 * submitted before, wherever in the engine it was when the flush began. An abort waits for none.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "full_store.h"
#include "stop_on_proof.h"

#define HOUR_NS (UINT64_C(3600) * 1000 * 1000 * 1000)

enum {
    KEY = 7,
    MOMENTS = 250,
    CROWD = 128, /* Twice what HOST has room for. */
    ABORTS = 300,
};

/* The ticket has reached its last stage: nobody has to wait for it any more. */
static void
expect_durable(kvt_ticket *ticket)
{
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, 0), KVT_OK);
    kvt_ticket_free(ticket);
}

/* Each moment of a put's way to the disk, also the one in which its record is in a transaction of
 * the index that has not ended. */
static void
a_delete_is_flushed_whatever_its_block_was_doing(void **state)
{
    struct full_store *full = full_begin(11, FULL_SEGMENTS);

    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        kvt_ticket *put = full_put_submit(full, KEY + moment, 1, KVT_SYNC);
        kvt_ticket *gone;

        assert_int_equal(kvt_ticket_wait(put, KVT_STAGE_DONE, FULL_WAIT_NS), KVT_OK);
        sim_run_steps(full->world, moment);
        gone = full_delete_submit(full, KEY + moment);
        assert_int_equal(kvt_flush(full->store), KVT_OK);
        expect_durable(gone);
        assert_true(kvt_ticket_wait(put, KVT_STAGE_DURABLE, 0) >= 0);
        kvt_ticket_free(put);
    }
    full_again(full, 0);
    for (uint32_t moment = 0; moment < MOMENTS; moment++)
        assert_false(full_expect_at_most(full, KEY + moment, 0));
    full_end(full);
}

/* Each moment of a replacing put's way, from before its bytes are copied. */
static void
a_relaxed_put_that_replaces_is_flushed(void **state)
{
    struct full_store *full = full_begin(12, FULL_SEGMENTS);

    (void)state;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        kvt_ticket *first = full_put_submit(full, KEY, 2 * moment + 1, KVT_SYNC);
        kvt_ticket *second;

        assert_int_equal(kvt_ticket_wait(first, KVT_STAGE_DONE, FULL_WAIT_NS), KVT_OK);
        sim_run_steps(full->world, moment);
        second = full_put_submit(full, KEY, 2 * moment + 2, KVT_RELAXED);
        assert_int_equal(kvt_flush(full->store), KVT_OK);
        expect_durable(second);
        kvt_ticket_free(first);
        if (moment % 16 == 0) {
            full_again(full, 0);
            full_expect(full, KEY, 2 * moment + 2);
        }
    }
    full_end(full);
}

/* While segments are emptied: what a reclaim is about to write elsewhere is replaced. */
static void
what_waits_for_a_relocation_is_flushed(void **state)
{
    struct full_store *full = full_begin(13, FULL_SEGMENTS);
    uint64_t versions[FULL_HOT];
    uint32_t met_count = 0;

    (void)state;
    full_fill(full);
    for (uint64_t hot = 0; hot < FULL_HOT; hot++)
        versions[hot] = 1;
    for (uint32_t moment = 0; moment < MOMENTS; moment++) {
        uint64_t hot = moment % FULL_HOT;
        kvt_ticket *churn, *second;

        (void)sim_run_for(full->world, UINT64_C(100) * 1000 * 1000);
        for (uint64_t key = 0; key < FULL_HOT; key++)
            (void)full_expect_at_most(full, key, versions[key]);
        churn = full_put_submit(full, full->next_cold++, 1, KVT_SYNC);
        assert_int_equal(kvt_ticket_wait(churn, KVT_STAGE_DONE, FULL_WAIT_NS), KVT_OK);
        for (uint32_t i = 0; i < 2000 && relocate_is_idle(full->store); i++)
            sim_run_steps(full->world, 1);
        sim_run_steps(full->world, moment % 64);
        met_count += !relocate_is_idle(full->store);
        second = full_put_submit(full, hot, ++versions[hot], KVT_RELAXED);
        assert_int_equal(kvt_flush(full->store), KVT_OK);
        expect_durable(second);
        assert_int_equal(full_result(churn), KVT_OK);
    }
    assert_true(met_count > 0);
    full_again(full, 0);
    for (uint64_t key = 0; key < FULL_HOT; key++)
        (void)full_expect_at_most(full, key, versions[key]);
    full_end(full);
}

/* A put that is being filled when the abort begins is given up, and not written when its time has
 * come. */
static void
an_abort_waits_for_no_interval(void **state)
{
    struct full_store *full = full_begin(14, FULL_SEGMENTS);
    uint64_t begin_ns;

    (void)state;
    assert_int_equal(kvt_close(full->store), KVT_OK);
    full->options.relaxed_interval_ns = HOUR_NS;
    full_open(full, 0);
    (void)full_put_submit(full, KEY, 1, KVT_RELAXED);
    begin_ns = sim_now(full->world);
    kvt_abort(full->store);
    assert_true(sim_now(full->world) - begin_ns < HOUR_NS / 2);
    full_open(full, 0);
    assert_false(full_expect_at_most(full, KEY, 1));
    full_end(full);
}

/* More than HOST has room for. Of blocks in parts an image is made before they can be written. */
static kvt_ticket *
crowd_submit(struct full_store *full, enum kvt_durability durability)
{
    struct payload_key names[CROWD];
    struct kvt_put puts[CROWD];
    kvt_ticket *ticket = NULL;

    for (uint32_t i = 0; i < CROWD; i++) {
        payload_key_make(&names[i], full->next_cold++);
        puts[i] = (struct kvt_put){.key = names[i].key,
            .source = full->bytes,
            .length = FULL_BLOCK_BYTES,
            .part_count = 4};
    }
    assert_int_equal(
        kvt_put_submit(full->store, full->ns, puts, CROWD, durability, NULL, &ticket), KVT_OK);
    return ticket;
}

static void
crowd_gets_submit(struct full_store *full, uint8_t *target)
{
    struct payload_key names[FULL_HOT];
    struct kvt_get gets[FULL_HOT];
    kvt_ticket *ticket = NULL;

    for (uint32_t i = 0; i < FULL_HOT; i++) {
        payload_key_make(&names[i], i);
        gets[i] = (struct kvt_get){.key = names[i].key,
            .destination = target + i * FULL_BLOCK_BYTES,
            .capacity = FULL_BLOCK_BYTES};
    }
    assert_int_equal(kvt_get_submit(full->store, full->ns, gets, FULL_HOT, NULL, &ticket), KVT_OK);
}

/* What waits when an abort begins is cancelled, although there is room by then. */
static void
what_waits_for_room_is_cancelled_by_an_abort(void **state)
{
    struct kvt_result results[CROWD];
    struct full_store *full = full_begin(16, FULL_SEGMENTS);
    uint32_t waiting_count = 0, cancelled_count = 0;
    kvt_ticket *ticket;

    (void)state;
    full_fill(full);
    ticket = crowd_submit(full, KVT_MEMORY);
    while (!room_is_wanted(full->store))
        sim_run_steps(full->world, 1);
    for (struct op *op = full->store->room_waiters[POLICY_HOST].first; op != NULL; op = op->next)
        waiting_count++;
    full->store->is_draining = full->store->room_changed = true;
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, FULL_WAIT_NS), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DONE, results, CROWD), KVT_OK);
    for (uint32_t i = 0; i < CROWD; i++)
        cancelled_count += results[i].status == KVT_CANCELLED;
    assert_in_range(cancelled_count, waiting_count, CROWD);
    full->store->is_draining = false;
    kvt_ticket_free(ticket);
    full_end(full);
}

static void
an_abort_begins_nothing_that_waited_for_room(void **state)
{
    static const enum kvt_durability durabilities[] = {KVT_MEMORY, KVT_RELAXED, KVT_SYNC};
    struct full_store *full = full_begin(16, FULL_SEGMENTS);
    uint8_t *target = malloc(FULL_HOT * FULL_BLOCK_BYTES);
    char leaks[200] = "";

    (void)state;
    assert_non_null(target);
    full_fill(full);
    for (uint32_t i = 0; i < ABORTS; i++) {
        (void)crowd_submit(full, durabilities[i % 3]);
        crowd_gets_submit(full, target);
        sim_run_steps(full->world, i);
        kvt_abort(full->store);
        if (sim_leaks(full->world, leaks, sizeof(leaks)) != 0)
            fail_msg("left: %s", leaks);
        full_open(full, 0);
    }
    free(target);
    full_end(full);
}

static void
an_abort_takes_queues_along(void **state)
{
    struct full_store *full = full_begin(15, FULL_SEGMENTS);
    kvt_queue *queues[3];
    char leaks[200] = "";

    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(kvt_queue_create(full->store, &queues[i]), KVT_OK);
    assert_int_equal(kvt_queue_destroy(queues[1]), KVT_OK);
    kvt_abort(full->store);
    if (sim_leaks(full->world, leaks, sizeof(leaks)) != 0)
        fail_msg("left: %s", leaks);
    full_open(full, 0);
    full_end(full);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_delete_is_flushed_whatever_its_block_was_doing),
        cmocka_unit_test(a_relaxed_put_that_replaces_is_flushed),
        cmocka_unit_test(what_waits_for_a_relocation_is_flushed),
        cmocka_unit_test(an_abort_waits_for_no_interval),
        cmocka_unit_test(what_waits_for_room_is_cancelled_by_an_abort),
        cmocka_unit_test(an_abort_begins_nothing_that_waited_for_room),
        cmocka_unit_test(an_abort_takes_queues_along),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
