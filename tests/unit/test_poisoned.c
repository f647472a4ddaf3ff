/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_poisoned.c - a proof fails on a thread of the store: whoever waits for something of it is
 * told, and it can be closed. Debug builds stop at the proof instead.
 */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "engram_reader.h"
#include "engram_rig.h"
#include "hbm_kit.h"
#include "kvtier/kvtier_unstable.h"
#include "payload.h"
#include "store_internal.h"

enum {
#ifdef NDEBUG
    STOPS_AT_PROOFS = false,
#else
    STOPS_AT_PROOFS = true, /* A debug build stops where a proof is false. */
#endif
    SLEEPERS = 8,
    ROW_BYTES = 264,
    ROWS_BYTES = 4 * ROW_BYTES, /* Of one token. */
    RESERVATIONS_MAX = 256,
    PATIENCE_S = 30, /* Whoever sleeps longer is not told. */
};

/* What never ends while the streams are held: of the device, and of the caller. */
static struct {
    kvt_ticket *ticket;
    kvt_queue *queue;
    kvt_queue *idle; /* Of which a program has the descriptor alone. */
    kvt_load load;
    kvt_engram_hasher *hasher;
    kvt_engram_plan *plan;
    kvt_engram_fetch *fetches[2];
    kvt_shared_event *event;
    atomic_bool may_go;
} held;

struct sleeper {
    pthread_t thread;
    enum kvt_status (*sleep)(void);
    enum kvt_status status;
    _Atomic bool is_begun;
};

/* --- Who sleeps ------------------------------------------------------------------------------- */

static enum kvt_status
ticket_sleep(void)
{
    return kvt_ticket_wait(held.ticket, KVT_STAGE_DONE, KVT_FOREVER);
}

static enum kvt_status
queue_sleep(void)
{
    struct kvt_completion done[1];
    uint32_t count;

    return kvt_queue_poll(held.queue, done, 1, KVT_FOREVER, &count);
}

static enum kvt_status
flush_sleep(void)
{
    return kvt_flush(hbm.store);
}

static enum kvt_status
load_close_sleep(void)
{
    return kvt_load_close(hbm.store, held.load);
}

static enum kvt_status
fetch_sleep(void)
{
    return kvt_engram_fetch_wait(held.fetches[0], 0, KVT_FOREVER, NULL);
}

/* It has no status. */
static enum kvt_status
fetch_free_sleep(void)
{
    kvt_engram_fetch_free(held.fetches[1]);
    return store_enter(hbm.store);
}

static enum kvt_status
event_sleep(void)
{
    return kvt_shared_event_wait(held.event, KVT_FOREVER);
}

/* For a slot of HOST, which would come when what is under way had ended. */
static enum kvt_status
access_sleep(void)
{
    uint8_t byte;

    return kvt_device_read(hbm.store, 0, &byte, hbm_pool_at(2), sizeof(byte));
}

static enum kvt_status (*const sleeps[SLEEPERS])(void) = {ticket_sleep, queue_sleep, flush_sleep,
    load_close_sleep, fetch_sleep, fetch_free_sleep, event_sleep, access_sleep};

static void *
sleeper_main(void *context)
{
    struct sleeper *sleeper = context;

    atomic_store(&sleeper->is_begun, true);
    sleeper->status = sleeper->sleep();
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

/* Two fetches of one token's rows to memory of the device. */
static void
fetches_begin(void)
{
    const uint32_t token = 7;
    const struct kvt_engram_sequence sequence = {.tokens = &token, .token_count = 1};
    struct kvt_engram_target target = {
        .destination = hbm_pool_at(3), .capacity = ROWS_BYTES, .region = hbm.region};
    struct engram_rig rig;

    engram_rig_init(&rig, "t", ROW_BYTES, 500);
    assert_int_equal(engram_rig_import(&rig, hbm.store, "t", 0), KVT_OK);
    assert_int_equal(kvt_engram_open(hbm.store, "t", &target.table), KVT_OK);
    assert_int_equal(kvt_engram_hasher_open(&rig.profile, NULL, 0, &held.hasher), KVT_OK);
    assert_int_equal(kvt_engram_plan_create(held.hasher, 1, &held.plan), KVT_OK);
    assert_int_equal(kvt_engram_plan_fill(held.plan, &sequence, 1, KVT_ENGRAM_UNIQUE), KVT_OK);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(kvt_engram_fetch_submit(held.plan, &target, 1, &held.fetches[i]), KVT_OK);
        target.destination = hbm_pool_at(4);
    }
}

static void
load_begin(void)
{
    const struct kvt_file_load_options about = {
        .struct_size = sizeof(about), .length = KVT_LOAD_TO_END};
    char path[KIT_PATH_BYTES + 16];

    (void)snprintf(path, sizeof(path), "%s/STORE.a", hbm.path);
    assert_int_equal(kvt_file_load(hbm.store, path, &about, &held.load), KVT_OK);
    assert_int_equal(kvt_load_wait(hbm.store, held.load, 0, 0, NULL), KVT_LATE);
}

static void
event_begin(void *stream)
{
    const struct kvt_side side = {.store = hbm.store};
    struct kvt_share share;
    int descriptor;

    assert_int_equal(kvt_shared_event_create(&side, &share, &descriptor, &held.event), KVT_OK);
    assert_int_equal(kvt_shared_event_record(held.event, stream), KVT_OK);
}

/* All of HOST that is free: the reservations end with the store. */
static void
host_fill(void)
{
    kvt_reservation *reservation;
    struct payload_key name;
    struct kvt_put put = {.length = KIT_BLOCK_BYTES_MAX};
    uint64_t count = 0;
    void *address;

    for (; put.length > 0; put.length /= 2) {
        do {
            payload_key_make(&name, 100 + count);
            put.key = name.key;
            assert_true(count++ < RESERVATIONS_MAX);
        } while (kvt_reserve(hbm.store, hbm.ns, &put, &address, &reservation) == KVT_OK);
    }
}

/* A lease that ends with the stream: so long something is under way that makes room. */
static void
lease_give_back(void *stream)
{
    struct payload_key name;
    kvt_lease lease;

    payload_key_make(&name, 99);
    assert_int_equal(kit_put(hbm.store, hbm.ns, 99, 1, HBM_BLOCK_BYTES, KVT_MEMORY), KVT_OK);
    assert_int_equal(kvt_lookup(hbm.store, hbm.ns, &name.key, 1, NULL, NULL, &lease), KVT_OK);
    assert_int_equal(kvt_lease_release_after(hbm.store, lease, 0, stream), KVT_OK);
}

static void
all_begin(void *stream, void *event)
{
    assert_int_equal(kvt_queue_create(hbm.store, &held.queue), KVT_OK);
    assert_int_equal(kvt_queue_create(hbm.store, &held.idle), KVT_OK);
    load_begin();
    fetches_begin();
    event_begin(stream);
    lease_give_back(stream);
    host_fill();
    held.ticket = put_behind(event);
}

static void
sleepers_begin(struct sleeper sleepers[SLEEPERS])
{
    for (uint32_t i = 0; i < SLEEPERS; i++) {
        sleepers[i] = (struct sleeper){.sleep = sleeps[i]};
        assert_int_equal(pthread_create(&sleepers[i].thread, NULL, sleeper_main, &sleepers[i]), 0);
        while (!atomic_load(&sleepers[i].is_begun))
            sched_yield();
    }
}

static void
run(bool (*fail)(struct kvt_store *, void *))
{
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    struct sleeper sleepers[SLEEPERS];
    struct pollfd told;
    struct timespec until;
    void *stream, *event;

    if (STOPS_AT_PROOFS)
        skip();
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    assert_int_equal(device->ops->event_create(device, &event), KVT_OK);
    hbm_stream_hold(device, stream, hbm_pool_at(0), &held.may_go);
    hbm_stream_hold(device, device->ops->stream(device, DEVICE_IN), hbm_pool_at(1), &held.may_go);
    assert_int_equal(device->ops->event_record(device, event, stream), KVT_OK);
    all_begin(stream, event);
    sleepers_begin(sleepers);
    /* Asleep, most of them; one that is not yet is told just as well. */
    assert_int_equal(kvt_ticket_wait(held.ticket, KVT_STAGE_DONE, 20 * 1000 * 1000), KVT_LATE);
    loop_call(hbm.store, fail, NULL);
    assert_int_equal(clock_gettime(CLOCK_REALTIME, &until), 0);
    until.tv_sec += PATIENCE_S;
    for (uint32_t i = 0; i < SLEEPERS; i++) {
        if (pthread_timedjoin_np(sleepers[i].thread, NULL, &until) != 0)
            fail_msg("sleeper %u was not told", i);
        if (sleepers[i].status != KVT_E_POISONED)
            fail_msg("sleeper %u was told %s", i, kvt_status_name(sleepers[i].status));
    }
    told = (struct pollfd){.fd = kvt_queue_fd(held.idle), .events = POLLIN};
    assert_int_equal(poll(&told, 1, PATIENCE_S * 1000), 1);
    atomic_store(&held.may_go, true);
    hbm_stream_finish(device, stream);
    /* Their destinations are given back next. */
    for (uint32_t i = 0; i < 2; i++) {
        while (atomic_load(&held.fetches[i]->targets[0].is_settled) == 0)
            sched_yield();
    }
    device_host_stream_destroy(device, stream);
    device_host_memory_put(device, hbm.pool, (uint64_t)HBM_POOL_BLOCKS * HBM_BLOCK_BYTES);
    assert_int_equal(kvt_close(hbm.store), KVT_OK);
    kvt_engram_plan_destroy(held.plan);
    kvt_engram_hasher_close(held.hasher);
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

static int
setup(void **state)
{
    atomic_store(&held.may_go, false);
    return hbm_setup(state);
}

static int
teardown(void **state)
{
    atomic_store(&held.may_go, true);
    return hbm_teardown(state);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(whoever_waits_is_told_when_a_proof_fails_on_the_loop),
        TEST(a_proof_that_fails_on_a_worker_poisons_the_store),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
