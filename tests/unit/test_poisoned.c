/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_poisoned.c - a proof fails on a thread of the store: whoever waits for something of it is
 * told, and it can be closed. Debug builds stop at the proof instead.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "hbm_kit.h"
#include "payload.h"
#include "store_internal.h"

enum {
#ifdef NDEBUG
    STOPS_AT_PROOFS = false,
#else
    STOPS_AT_PROOFS = true, /* A debug build stops where a proof is false. */
#endif
    SLEEPERS = 3,
    PATIENCE_S = 30, /* Whoever sleeps longer is not told. */
};

struct sleeper {
    pthread_t thread;
    kvt_ticket *ticket;
    kvt_queue *queue;
    enum kvt_status status;
    _Atomic bool is_begun;
};

static void *
ticket_sleep(void *context)
{
    struct sleeper *sleeper = context;

    atomic_store(&sleeper->is_begun, true);
    sleeper->status = kvt_ticket_wait(sleeper->ticket, KVT_STAGE_DONE, KVT_FOREVER);
    return NULL;
}

static void *
queue_sleep(void *context)
{
    struct sleeper *sleeper = context;
    struct kvt_completion done[1];
    uint32_t count;

    atomic_store(&sleeper->is_begun, true);
    sleeper->status = kvt_queue_poll(sleeper->queue, done, 1, KVT_FOREVER, &count);
    return NULL;
}

static void *
flush_sleep(void *context)
{
    struct sleeper *sleeper = context;

    atomic_store(&sleeper->is_begun, true);
    sleeper->status = kvt_flush(hbm.store);
    return NULL;
}

/* --- Where a proof fails ---------------------------------------------------------------------- */

static bool
fail_on_the_loop(struct kvt_store *store, void *context)
{
    (void)context;
    KVT_ASSERT(store == NULL);
    return true;
}

static struct job worker_job;

static void
fail_here(struct crew_job *job)
{
    KVT_ASSERT(job == NULL);
}

static void
job_over(struct kvt_store *store, struct job *job)
{
    (void)store;
    (void)job;
}

static bool
fail_on_a_worker(struct kvt_store *store, void *context)
{
    (void)context;
    worker_job.crew.run = fail_here;
    worker_job.finish = job_over;
    loop_job(store, &worker_job);
    return true;
}

/* --- Who is told ------------------------------------------------------------------------------ */

/* A put that waits for an event which does not come before `may_go`. Nobody cancels it: its bytes
 * stay. */
static kvt_ticket *
put_behind(void *event)
{
    static uint8_t bytes[HBM_BLOCK_BYTES];
    const struct kvt_submit submit = {.wait_event = event};
    struct kvt_put put = {.source = bytes, .length = sizeof(bytes)};
    struct payload_key name;
    kvt_ticket *ticket;

    payload_key_make(&name, 1);
    put.key = name.key;
    assert_int_equal(
        kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_SYNC, &submit, &ticket), KVT_OK);
    return ticket;
}

static void
sleepers_begin(struct sleeper sleepers[SLEEPERS], kvt_ticket *ticket)
{
    static void *(*const sleeps[SLEEPERS])(void *) = {ticket_sleep, queue_sleep, flush_sleep};

    for (uint32_t i = 0; i < SLEEPERS; i++) {
        sleepers[i] = (struct sleeper){.ticket = ticket};
        if (i == 1)
            assert_int_equal(kvt_queue_create(hbm.store, &sleepers[i].queue), KVT_OK);
        assert_int_equal(pthread_create(&sleepers[i].thread, NULL, sleeps[i], &sleepers[i]), 0);
        while (!atomic_load(&sleepers[i].is_begun))
            sched_yield();
    }
}

static void
run(bool (*fail)(struct kvt_store *, void *))
{
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    struct sleeper sleepers[SLEEPERS];
    atomic_bool may_go = false;
    struct timespec until;
    void *stream, *event;
    kvt_ticket *ticket;

    if (STOPS_AT_PROOFS)
        skip();
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    assert_int_equal(device->ops->event_create(device, &event), KVT_OK);
    hbm_stream_hold(device, stream, hbm_pool_at(0), &may_go);
    assert_int_equal(device->ops->event_record(device, event, stream), KVT_OK);
    ticket = put_behind(event);
    sleepers_begin(sleepers, ticket);
    /* Asleep, most of them; one that is not yet is told just as well. */
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, 20 * 1000 * 1000), KVT_LATE);
    loop_call(hbm.store, fail, NULL);
    assert_int_equal(clock_gettime(CLOCK_REALTIME, &until), 0);
    until.tv_sec += PATIENCE_S;
    for (uint32_t i = 0; i < SLEEPERS; i++) {
        assert_int_equal(pthread_timedjoin_np(sleepers[i].thread, NULL, &until), 0);
        assert_int_equal(sleepers[i].status, KVT_E_POISONED);
    }
    atomic_store(&may_go, true);
    hbm_stream_finish(device, stream);
    device_host_stream_destroy(device, stream);
    device_host_memory_put(device, hbm.pool, (uint64_t)HBM_POOL_BLOCKS * HBM_BLOCK_BYTES);
    assert_int_equal(kvt_close(hbm.store), KVT_OK);
    hbm.store = NULL;
}

static void
whoever_waits_is_told_when_a_proof_fails_on_the_loop(void **state)
{
    (void)state;
    run(fail_on_the_loop);
}

static void
a_proof_that_fails_on_a_worker_poisons_the_store(void **state)
{
    (void)state;
    run(fail_on_a_worker);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, hbm_setup, hbm_teardown)
    const struct CMUnitTest tests[] = {
        TEST(whoever_waits_is_told_when_a_proof_fails_on_the_loop),
        TEST(a_proof_that_fails_on_a_worker_poisons_the_store),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
