/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cancel.c - kvt_ticket_cancel() and kvt_queue_drain(), in a simulated world: between two
 * calls of a test nothing happens, so that what waits is known.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "payload.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BLOCK_BYTES = 64 << 10,
    MANY = 128, /* 8 MiB: twice HOST. */
    POISON = 0xA5,
};

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;
static uint8_t memory[MANY][BLOCK_BYTES];
static struct payload_key names[MANY];

static int
setup(void **state)
{
    struct kvt_options options = kit_options();

    options.nvme_capacity_bytes = 32 << 20; /* What is written stays. */
    options.device_mask = 1;
    options.device_kind = KVT_DEVICE_EMULATION;
    (void)state;
    sim_store_open(&sim, &options);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "cancel", "", 0, &ns), KVT_OK);
    for (uint32_t i = 0; i < MANY; i++)
        payload_key_make(&names[i], i);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    sim_store_close(&sim);
    return 0;
}

/* A cancel after the loop has begun the ticket. */
static void
cancel_begun(kvt_ticket *ticket)
{
    sim_store_loop(&sim);
    assert_int_equal(kvt_ticket_cancel(ticket), KVT_OK);
    sim_store_loop(&sim);
}

/* --- One request at a time -------------------------------------------------------------------- */

/* Puts of the blocks first..first + count - 1; nothing of them has begun. */
static kvt_ticket *
puts_submit(uint32_t first, uint32_t count, enum kvt_durability durability, kvt_queue *queue)
{
    const struct kvt_submit submit = {.queue = queue};
    struct kvt_put puts[MANY] = {{.length = 0}};
    kvt_ticket *ticket;

    for (uint32_t i = 0; i < count; i++) {
        payload_fill(memory[first + i], BLOCK_BYTES, first + i, 1);
        puts[i].key = names[first + i].key;
        puts[i].source = memory[first + i];
        puts[i].length = BLOCK_BYTES;
    }
    assert_int_equal(kvt_put_submit(store, ns, puts, count, durability, &submit, &ticket), KVT_OK);
    return ticket;
}

static kvt_ticket *
get_submit(uint32_t number)
{
    struct kvt_get get = {
        .key = names[number].key, .destination = memory[number], .capacity = BLOCK_BYTES};
    kvt_ticket *ticket;

    memset(memory[number], POISON, BLOCK_BYTES);
    assert_int_equal(kvt_get_submit(store, ns, &get, 1, NULL, &ticket), KVT_OK);
    return ticket;
}

static kvt_ticket *
prefetch_submit(uint32_t number)
{
    const struct kvt_prefetch how = {.struct_size = sizeof(how), .tier = KVT_TIER_HOST};
    kvt_ticket *ticket;

    assert_int_equal(
        kvt_prefetch_submit(store, ns, &names[number].key, 1, &how, NULL, &ticket), KVT_OK);
    return ticket;
}

static void
results_of(kvt_ticket *ticket, uint32_t stage, struct kvt_result *results, uint32_t count)
{
    assert_int_equal(kvt_ticket_wait(ticket, stage, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, stage, results, count), KVT_OK);
}

static unsigned
tiers_of(uint32_t number)
{
    uint8_t tiers;

    assert_int_equal(kvt_lookup(store, ns, &names[number].key, 1, &tiers, NULL, NULL), KVT_OK);
    return tiers;
}

static void
put_on_nvme_only(uint32_t number)
{
    kvt_ticket *ticket;

    assert_int_equal(kit_result(puts_submit(number, 1, KVT_SYNC, NULL), 2).status, KVT_OK);
    assert_int_equal(
        kvt_demote_submit(store, ns, &names[number].key, 1, KVT_TIER_NVME, NULL, &ticket), KVT_OK);
    assert_int_equal(kit_result(ticket, 1).status, KVT_OK);
    assert_int_equal(tiers_of(number), KVT_TIER_NVME);
}

static bool
is_poisoned(uint32_t number)
{
    for (uint32_t i = 0; i < BLOCK_BYTES; i++) {
        if (memory[number][i] != POISON)
            return false;
    }
    return true;
}

/* --- Cancelling ------------------------------------------------------------------------------- */

static void
puts_that_wait_for_room_leave_nothing_and_the_others_go_on(void **state)
{
    static struct kvt_result visible[MANY], durable[MANY];
    kvt_ticket *ticket = puts_submit(0, MANY, KVT_SYNC, NULL);
    struct kvt_stats stats = {.struct_size = sizeof(stats)};
    uint32_t cancelled_count = 0;

    (void)state;
    cancel_begun(ticket);
    assert_int_equal(kvt_ticket_cancel(ticket), KVT_OK);
    results_of(ticket, 1, visible, MANY);
    results_of(ticket, 2, durable, MANY);
    for (uint32_t i = 0; i < MANY; i++) {
        bool is_cancelled = visible[i].status == KVT_CANCELLED;

        assert_true(is_cancelled || visible[i].status == KVT_OK);
        assert_int_equal(durable[i].status, visible[i].status);
        assert_int_equal(tiers_of(i) != 0, !is_cancelled);
        cancelled_count += is_cancelled;
    }
    assert_true(cancelled_count >= MANY / 4 && cancelled_count <= MANY - MANY / 4);
    assert_int_equal(kvt_stats_get(store, &stats), KVT_OK);
    assert_int_equal(stats.cancel_count, cancelled_count);
    kvt_ticket_free(ticket);
}

static void
who_waited_behind_them_has_the_room(void **state)
{
    struct kvt_result results[MANY];
    kvt_ticket *ticket = puts_submit(0, MANY - 1, KVT_SYNC, NULL);
    kvt_ticket *other = puts_submit(MANY - 1, 1, KVT_MEMORY, NULL);

    (void)state;
    cancel_begun(ticket);
    assert_int_equal(kit_result(other, 1).status, KVT_OK);
    results_of(ticket, 2, results, MANY - 1);
    kvt_ticket_free(ticket);
}

static void
a_put_whose_bytes_move_is_not_cancelled(void **state)
{
    kvt_ticket *ticket = puts_submit(0, 1, KVT_SYNC, NULL);

    (void)state;
    cancel_begun(ticket);
    assert_int_equal(kit_result(ticket, 2).status, KVT_OK);
    assert_true((tiers_of(0) & KVT_TIER_NVME) != 0);
}

static void
what_the_loop_has_not_seen_yet_never_begins(void **state)
{
    kvt_ticket *ticket = puts_submit(0, 1, KVT_SYNC, NULL);

    (void)state;
    assert_int_equal(kvt_ticket_cancel(ticket), KVT_OK);
    assert_int_equal(kit_result(ticket, 2).status, KVT_CANCELLED);
    assert_int_equal(tiers_of(0), 0);
}

static void
stage_2_of_what_is_visible_is_not_cancelled(void **state)
{
    kvt_ticket *ticket = puts_submit(0, 1, KVT_RELAXED, NULL);
    struct kvt_result result;

    (void)state;
    results_of(ticket, 1, &result, 1);
    assert_int_equal(kvt_ticket_cancel(ticket), KVT_OK);
    assert_int_equal(kit_result(ticket, 2).status, KVT_OK);
    assert_true((tiers_of(0) & KVT_TIER_NVME) != 0);
}

static void
a_put_that_joined_another_still_has_the_stage_2_of_that(void **state)
{
    kvt_ticket *first = puts_submit(0, 1, KVT_RELAXED, NULL);
    kvt_ticket *second;
    struct kvt_result result;

    (void)state;
    results_of(first, 1, &result, 1);
    second = puts_submit(0, 1, KVT_SYNC, NULL);
    results_of(second, 1, &result, 1);
    assert_int_equal(result.status, KVT_EXISTS);
    assert_int_equal(kvt_ticket_cancel(second), KVT_OK);
    assert_int_equal(kit_result(second, 2).status, KVT_OK);
    assert_int_equal(kit_result(first, 2).status, KVT_OK);
}

static void
a_get_that_waits_for_the_read_of_another_is_answered_without_it(void **state)
{
    kvt_ticket *first, *second;
    struct kvt_get get;
    static uint8_t target[BLOCK_BYTES];
    struct kvt_result result;
    uint64_t version;

    (void)state;
    put_on_nvme_only(0);
    first = get_submit(0);
    get = (struct kvt_get){.key = names[0].key, .destination = target, .capacity = sizeof(target)};
    memset(target, POISON, sizeof(target));
    assert_int_equal(kvt_get_submit(store, ns, &get, 1, NULL, &second), KVT_OK);
    cancel_begun(second);
    assert_int_equal(second->stage, 1); /* At once: nothing else has happened. */
    results_of(second, 1, &result, 1);
    assert_int_equal(result.status, KVT_CANCELLED);
    assert_int_equal(result.length, 0);
    kvt_ticket_free(second);
    cancel_begun(first);
    assert_int_equal(kit_result(first, 1).status, KVT_OK);
    assert_true(payload_is_right(memory[0], BLOCK_BYTES, 0, &version));
    for (uint32_t i = 0; i < sizeof(target); i++)
        assert_int_equal(target[i], POISON);
}

static void
a_put_and_a_get_that_wait_for_a_put_are_cancelled(void **state)
{
    kvt_ticket *first = puts_submit(0, 1, KVT_MEMORY, NULL);
    kvt_ticket *second = puts_submit(0, 1, KVT_SYNC, NULL);
    kvt_ticket *third;

    (void)state;
    third = get_submit(1);
    assert_int_equal(kit_result(third, 1).status, KVT_MISS);
    assert_int_equal(kit_result(first, 1).status, KVT_OK);
    assert_int_equal(kit_result(second, 2).status, KVT_OK);
    first = puts_submit(1, 1, KVT_MEMORY, NULL);
    second = puts_submit(1, 1, KVT_SYNC, NULL);
    cancel_begun(second);
    assert_int_equal(second->stage, 2);
    assert_int_equal(kit_result(second, 2).status, KVT_CANCELLED);
    assert_int_equal(kit_result(first, 1).status, KVT_OK);
    assert_int_equal(tiers_of(1), KVT_TIER_HOST);
}

static void
a_delete_that_waits_for_a_put_is_cancelled_and_the_block_stays(void **state)
{
    kvt_ticket *put = puts_submit(0, 1, KVT_MEMORY, NULL);
    kvt_ticket *delete;

    (void)state;
    assert_int_equal(kvt_delete_submit(store, ns, &names[0].key, 1, NULL, &delete), KVT_OK);
    cancel_begun(delete);
    assert_int_equal(delete->stage, 2);
    assert_int_equal(kit_result(delete, 2).status, KVT_CANCELLED);
    assert_int_equal(kit_result(put, 1).status, KVT_OK);
    assert_int_equal(tiers_of(0), KVT_TIER_HOST);
}

static void
a_prefetch_is_answered_and_the_read_that_it_began_goes_on(void **state)
{
    kvt_ticket *ticket;

    (void)state;
    put_on_nvme_only(0);
    ticket = prefetch_submit(0);
    cancel_begun(ticket);
    assert_int_equal(ticket->stage, 1);
    assert_int_equal(kit_result(ticket, 1).status, KVT_CANCELLED);
    assert_int_equal(tiers_of(0), KVT_TIER_NVME);
    sim_store_pass(&sim, 1000 * 1000 * 1000);
    assert_int_equal(tiers_of(0), KVT_TIER_NVME | KVT_TIER_HOST);
}

static void
a_demote_is_answered_and_the_write_that_it_began_goes_on(void **state)
{
    kvt_ticket *ticket;

    (void)state;
    assert_int_equal(kit_result(puts_submit(0, 1, KVT_MEMORY, NULL), 1).status, KVT_OK);
    assert_int_equal(
        kvt_demote_submit(store, ns, &names[0].key, 1, KVT_TIER_NVME, NULL, &ticket), KVT_OK);
    cancel_begun(ticket);
    assert_int_equal(ticket->stage, 1);
    assert_int_equal(kit_result(ticket, 1).status, KVT_CANCELLED);
    sim_store_pass(&sim, 1000 * 1000 * 1000);
    assert_int_equal(tiers_of(0), KVT_TIER_NVME | KVT_TIER_HOST);
}

/* test_device_mover.c has events that never come. */
static void
a_put_that_waits_for_an_event_never_begins(void **state)
{
    struct device *device = hbm_device(store->devices.tiers[0]);
    struct kvt_submit submit = {0};
    struct kvt_put put = {.key = names[0].key, .source = memory[0], .length = BLOCK_BYTES};
    kvt_ticket *ticket;

    (void)state;
    assert_int_equal(device->ops->event_create(device, &submit.wait_event), KVT_OK);
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, KVT_SYNC, &submit, &ticket), KVT_OK);
    cancel_begun(ticket);
    assert_int_equal(kit_result(ticket, 2).status, KVT_CANCELLED);
    assert_int_equal(tiers_of(0), 0);
    device->ops->event_destroy(device, submit.wait_event);
}

static void
a_get_that_waits_for_an_event_brings_nothing(void **state)
{
    struct device *device = hbm_device(store->devices.tiers[0]);
    struct kvt_submit submit = {0};
    struct kvt_get get = {
        .key = names[0].key, .destination = memory[0], .capacity = sizeof(memory[0])};
    struct kvt_result result;
    kvt_ticket *ticket;

    (void)state;
    assert_int_equal(device->ops->event_create(device, &submit.wait_event), KVT_OK);
    assert_int_equal(kvt_get_submit(store, ns, &get, 1, &submit, &ticket), KVT_OK);
    cancel_begun(ticket);
    result = kit_result(ticket, KVT_STAGE_DONE);
    assert_int_equal(result.status, KVT_CANCELLED);
    assert_int_equal(result.length, 0);
    device->ops->event_destroy(device, submit.wait_event);
}

static void
every_stage_of_a_cancelled_ticket_is_delivered_once(void **state)
{
    struct kvt_completion done[8];
    uint32_t count = 0;
    uint32_t stages = 0;
    kvt_queue *queue;
    kvt_ticket *tickets[2];

    (void)state;
    assert_int_equal(kvt_queue_create(store, &queue), KVT_OK);
    tickets[0] = puts_submit(0, MANY / 2, KVT_SYNC, queue);
    tickets[1] = puts_submit(MANY / 2, MANY / 2, KVT_SYNC, queue);
    cancel_begun(tickets[1]);
    /* One is forgotten while its cancel is on its way. */
    assert_int_equal(kvt_ticket_cancel(tickets[0]), KVT_OK);
    kvt_ticket_free(tickets[0]);
    assert_int_equal(kvt_queue_drain(queue, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_queue_poll(queue, done, 8, 0, &count), KVT_OK);
    assert_int_equal(count, 4);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(done[i].status, KVT_OK);
        stages |= 1u << (done[i].stage + (done[i].ticket == NULL ? 0 : 2));
    }
    assert_int_equal(stages, 0x1e);
    assert_int_equal(kvt_queue_poll(queue, done, 8, 0, &count), KVT_LATE);
    kvt_ticket_free(tickets[1]);
    assert_int_equal(kvt_queue_destroy(queue), KVT_OK);
}

static void
what_is_over_or_nothing_is_left_as_it_is(void **state)
{
    kvt_ticket *ticket = puts_submit(0, 1, KVT_MEMORY, NULL);
    struct kvt_result result;

    (void)state;
    results_of(ticket, 1, &result, 1);
    assert_int_equal(kvt_ticket_cancel(ticket), KVT_OK);
    results_of(ticket, 1, &result, 1);
    assert_int_equal(result.status, KVT_OK);
    kvt_ticket_free(ticket);
    refused(kvt_ticket_cancel(NULL), KVT_E_INVAL, "ticket");
    ticket = get_submit(2);
    assert_int_equal(kit_result(ticket, 1).status, KVT_MISS);
    assert_true(is_poisoned(2));
}

/* --- Draining --------------------------------------------------------------------------------- */

static void
a_drain_waits_for_every_completion_and_collects_none(void **state)
{
    struct kvt_completion done[4];
    uint32_t count = 0;
    kvt_queue *queue;
    kvt_ticket *ticket;

    (void)state;
    assert_int_equal(kvt_queue_create(store, &queue), KVT_OK);
    assert_int_equal(kvt_queue_drain(queue, 0), KVT_OK);
    ticket = puts_submit(0, 1, KVT_RELAXED, queue);
    assert_int_equal(kvt_queue_drain(queue, 0), KVT_LATE);
    /* Stage 1 is there long before stage 2. */
    assert_int_equal(kvt_queue_poll(queue, done, 1, KVT_FOREVER, &count), KVT_OK);
    assert_int_equal(done[0].stage, KVT_STAGE_DONE);
    assert_int_equal(kvt_queue_drain(queue, 1000), KVT_LATE);
    assert_int_equal(kvt_queue_drain(queue, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_queue_destroy(queue), KVT_E_STATE);
    assert_int_equal(kvt_queue_poll(queue, done, 4, 0, &count), KVT_OK);
    assert_int_equal(count, 1);
    assert_int_equal(done[0].stage, KVT_STAGE_DURABLE);
    kvt_ticket_free(ticket);
    assert_int_equal(kvt_queue_destroy(queue), KVT_OK);
    refused(kvt_queue_drain(NULL, 0), KVT_E_INVAL, "queue");
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(puts_that_wait_for_room_leave_nothing_and_the_others_go_on),
        TEST(who_waited_behind_them_has_the_room),
        TEST(a_put_whose_bytes_move_is_not_cancelled),
        TEST(what_the_loop_has_not_seen_yet_never_begins),
        TEST(stage_2_of_what_is_visible_is_not_cancelled),
        TEST(a_put_that_joined_another_still_has_the_stage_2_of_that),
        TEST(a_get_that_waits_for_the_read_of_another_is_answered_without_it),
        TEST(a_put_and_a_get_that_wait_for_a_put_are_cancelled),
        TEST(a_delete_that_waits_for_a_put_is_cancelled_and_the_block_stays),
        TEST(a_prefetch_is_answered_and_the_read_that_it_began_goes_on),
        TEST(a_demote_is_answered_and_the_write_that_it_began_goes_on),
        TEST(a_put_that_waits_for_an_event_never_begins),
        TEST(a_get_that_waits_for_an_event_brings_nothing),
        TEST(every_stage_of_a_cancelled_ticket_is_delivered_once),
        TEST(what_is_over_or_nothing_is_left_as_it_is),
        TEST(a_drain_waits_for_every_completion_and_collects_none),
    };
#undef TEST

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
