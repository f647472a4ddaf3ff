/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_tickets_out.c - what counts for request_count_max: a ticket that its caller has, or that has
 * not ended; and no longer, however much of it the loop has still to do. In a simulated world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "payload.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    TICKETS_MAX = 16,
    BLOCK_BYTES = 4096,
};

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;
static kvt_queue *queue;
static kvt_ticket *tickets[TICKETS_MAX];
static struct payload_key name;
static uint8_t bytes[BLOCK_BYTES];

/* The store wakes who waits by these; who was woken is quick, and acts in their midst. */
static struct sched_ops sched;
static const struct sched_ops *sched_real;
static uint32_t woken_count;

static enum kvt_status
put_submit(kvt_ticket **ticket_out)
{
    struct kvt_put put = {.key = name.key, .source = bytes, .length = BLOCK_BYTES};
    struct kvt_submit submit = {.queue = queue};

    return kvt_put_submit(store, ns, &put, 1, KVT_MEMORY, &submit, ticket_out);
}

static void
submit_all(void)
{
    kvt_ticket *another;

    for (uint32_t i = 0; i < TICKETS_MAX; i++)
        assert_int_equal(put_submit(&tickets[i]), KVT_OK);
    refused(put_submit(&another), KVT_E_BUSY, "request_count_max");
}

/* One ticket for another. */
static void
ticket_turn(uint32_t i)
{
    woken_count++;
    kvt_ticket_free(tickets[i]);
    assert_int_equal(put_submit(&tickets[i]), KVT_OK);
}

static void
gate_post_hasty(void *context, struct gate *gate)
{
    sched_real->gate_post(context, gate);
    for (uint32_t i = 0; i < TICKETS_MAX && queue == NULL; i++) {
        if (tickets[i] == NULL || gate != &tickets[i]->gate)
            continue;
        assert_int_equal(kvt_ticket_wait(tickets[i], KVT_STAGE_DONE, 0), KVT_OK);
        ticket_turn(i);
    }
}

static void
signal_post_hasty(void *context, int signal)
{
    struct kvt_completion done;
    uint32_t count = 0;

    sched_real->signal_post(context, signal);
    if (kvt_queue_poll(queue, &done, 1, 0, &count) != KVT_OK)
        return;
    for (uint32_t i = 0; i < TICKETS_MAX; i++) {
        if (tickets[i] != done.ticket)
            continue;
        ticket_turn(i);
        return;
    }
}

static int
setup(void **state)
{
    struct kvt_options options = kit_options();

    (void)state;
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    options.request_count_max = TICKETS_MAX;
    sim_store_open(&sim, &options);
    store = sim.store;
    queue = NULL;
    assert_int_equal(kvt_namespace_open(store, "here", "", 0, &ns), KVT_OK);
    payload_key_make(&name, 1);
    sched_real = store->env.sched;
    sched = *sched_real;
    woken_count = 0;
    store->env.sched = &sched;
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    sim_store_close(&sim);
    return 0;
}

/* Everybody who was woken is calm again. */
static void
tickets_end(void)
{
    store->env.sched = sched_real;
    for (uint32_t i = 0; i < TICKETS_MAX; i++) {
        kvt_ticket_free(tickets[i]);
        tickets[i] = NULL;
    }
}

static void
queue_end(void)
{
    struct kvt_completion done[TICKETS_MAX];
    uint32_t count;

    sim_store_pass(&sim, 1000 * 1000);
    assert_int_equal(kvt_queue_poll(queue, done, TICKETS_MAX, 0, &count), KVT_OK);
    assert_int_equal(kvt_queue_destroy(queue), KVT_OK);
    queue = NULL;
}

static void
who_was_woken_may_have_another_at_once(void **state)
{
    (void)state;
    submit_all();
    sched.gate_post = gate_post_hasty;
    sim_store_pass(&sim, 1000 * 1000);
    assert_true(woken_count >= TICKETS_MAX);
    tickets_end();
}

static void
so_may_who_has_collected_it_from_a_queue(void **state)
{
    (void)state;
    assert_int_equal(kvt_queue_create(store, &queue), KVT_OK);
    submit_all();
    sched.signal_post = signal_post_hasty;
    sim_store_pass(&sim, 1000 * 1000);
    assert_true(woken_count > 0);
    tickets_end();
    queue_end();
}

static void
what_was_freed_counts_until_it_has_ended(void **state)
{
    kvt_ticket *another;

    (void)state;
    submit_all();
    tickets_end();
    refused(put_submit(&another), KVT_E_BUSY, "request_count_max");
    sim_store_pass(&sim, 1000 * 1000);
    submit_all();
    tickets_end();
}

static void
with_a_queue_it_counts_until_it_was_collected(void **state)
{
    kvt_ticket *another;

    (void)state;
    assert_int_equal(kvt_queue_create(store, &queue), KVT_OK);
    submit_all();
    tickets_end();
    sim_store_pass(&sim, 1000 * 1000);
    refused(put_submit(&another), KVT_E_BUSY, "request_count_max");
    queue_end();
    submit_all();
    tickets_end();
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(who_was_woken_may_have_another_at_once),
        TEST(so_may_who_has_collected_it_from_a_queue),
        TEST(what_was_freed_counts_until_it_has_ended),
        TEST(with_a_queue_it_counts_until_it_was_collected),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
