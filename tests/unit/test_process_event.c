/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_process_event.c - shared events whose maker, or whose device, does what it can: a stream
 * that takes no more work, streams that are not done when the store is aborted, numbers in the
 * event's page that nobody can have counted to.
 *
 * The other process is played: its side of an event is a page that the test writes, and it is gone
 * when the test ends the page.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "device_share.h"
#include "env_host_internal.h"
#include "hbm_kit.h"
#include "kvtier/kvtier_unstable.h"
#include "kvtier/sharing.h"
#include "payload.h"
#include "processes.h"
#include "queue_internal.h"
#include "stop_on_proof.h"
#include "store_internal.h"

enum {
    WATCHDOG_S = 30, /* A wait that never ends is not waited for. */
};

/* An event of another process, which has recorded it once. */
static struct {
    struct shared_page page;
    struct shared_page view; /* The same, which stays when it is gone. */
    bool is_there;
    struct kvt_share share;
    kvt_shared_event *opened; /* By the store. */
} theirs;

static struct {
    struct kvt_side side;
    struct kvt_share share;
    int descriptor;
    kvt_shared_event *made; /* By the store. */
    void *stream;
} ours;

static struct device *
own_device(void)
{
    return hbm_device(hbm.store->devices.tiers[0]);
}

static struct process_words *
their_words(void)
{
    return theirs.view.memory;
}

static void
theirs_die(void)
{
    if (theirs.is_there)
        hbm.env.memory->page_end(hbm.env.memory_context, &theirs.page);
    theirs.is_there = false;
}

static int
setup(void **state)
{
    struct process_words *words;

    assert_int_equal(hbm_setup(state), 0);
    memset(&theirs, 0, sizeof(theirs));
    assert_int_equal(hbm.env.memory->page_make(hbm.env.memory_context, &theirs.page), KVT_OK);
    theirs.is_there = true;
    assert_int_equal(
        hbm.env.memory->page_adopt(hbm.env.memory_context, theirs.page.descriptor, &theirs.view),
        KVT_OK);
    words = their_words();
    words->magic = PROCESS_WORDS_MAGIC;
    words->version = PROCESS_WORDS_VERSION;
    words->number = 7;
    atomic_store(&words->recorded, 1);
    theirs.share = (struct kvt_share){.kind = KVT_SHARE_EVENT, .number = 7};
    share_seal(&theirs.share);
    ours.side = (struct kvt_side){.store = hbm.store};
    assert_int_equal(
        kvt_shared_event_open(&ours.side, &theirs.share, theirs.page.descriptor, &theirs.opened),
        KVT_OK);
    assert_int_equal(
        kvt_shared_event_create(&ours.side, &ours.share, &ours.descriptor, &ours.made), KVT_OK);
    assert_int_equal(device_host_stream_create(own_device(), &ours.stream), KVT_OK);
    return 0;
}

static int
teardown(void **state)
{
    theirs_die();
    device_host_stream_destroy(own_device(), ours.stream);
    assert_int_equal(kvt_shared_event_close(ours.made), KVT_OK);
    assert_int_equal(kvt_shared_event_close(theirs.opened), KVT_OK);
    hbm.env.memory->page_end(hbm.env.memory_context, &theirs.view);
    return hbm_teardown(state);
}

/* --- 1. A stream that is full ----------------------------------------------------------------- */

/* What a driver does whose stream has as much work as it can have, and waits for `theirs`. */
static struct {
    struct kvt_device_ops ops;
    struct device_share_ops share;
    const struct kvt_device_ops *real;
    atomic_bool is_blocked;
} full;

static void
driver_block(void)
{
    const _Atomic uint64_t *reached = (const _Atomic uint64_t *)&their_words()->reached;

    atomic_store(&full.is_blocked, true);
    while (atomic_load(reached) < 1)
        sched_yield();
}

static enum kvt_status
full_word_write(struct device *device, void *stream, uint64_t *word, uint64_t value)
{
    driver_block();
    return full.real->share->word_write(device, stream, word, value);
}

static enum kvt_status
full_word_wait(struct device *device, void *stream, uint64_t *word, uint64_t value)
{
    driver_block();
    return full.real->share->word_wait(device, stream, word, value);
}

static void
full_begin(void)
{
    full.real = own_device()->ops;
    full.ops = *full.real;
    full.share = *full.real->share;
    full.share.word_write = full_word_write;
    full.share.word_wait = full_word_wait;
    full.ops.share = &full.share;
    atomic_store(&full.is_blocked, false);
    own_device()->ops = &full.ops;
}

static void
blocked_await(void)
{
    while (!atomic_load(&full.is_blocked))
        sched_yield();
}

static void *
wait_run(void *status_out)
{
    *(enum kvt_status *)status_out = kvt_shared_event_stream_wait(theirs.opened, ours.stream);
    return NULL;
}

static void *
record_run(void *status_out)
{
    *(enum kvt_status *)status_out = kvt_shared_event_record(ours.made, ours.stream);
    return NULL;
}

/* A call that blocks in the driver ends when the maker of what its stream waits for has died. */
static void
blocked_call_ends(void *(*call)(void *))
{
    enum kvt_status status = KVT_LATE;
    kvt_shared_event *other;
    struct kvt_share share;
    pthread_t thread;
    int descriptor;

    full_begin();
    assert_int_equal(pthread_create(&thread, NULL, call, &status), 0);
    blocked_await();
    /* Nobody else waits for it. */
    assert_int_equal(kvt_shared_event_create(&ours.side, &share, &descriptor, &other), KVT_OK);
    assert_int_equal(kvt_shared_event_close(other), KVT_OK);
    theirs_die();
    assert_int_equal(pthread_join(thread, NULL), 0);
    own_device()->ops = full.real;
    assert_int_equal(status, KVT_OK);
    refused(kvt_shared_event_wait(theirs.opened, 0), KVT_CANCELLED, "never be reached");
}

static void
a_wait_on_a_full_stream_ends_with_the_maker(void **state)
{
    (void)state;
    blocked_call_ends(wait_run);
}

static void
a_record_on_a_full_stream_ends_with_the_maker_that_the_stream_waits_for(void **state)
{
    (void)state;
    assert_int_equal(kvt_shared_event_stream_wait(theirs.opened, ours.stream), KVT_OK);
    blocked_call_ends(record_run);
    assert_int_equal(kvt_shared_event_wait(ours.made, KVT_FOREVER), KVT_OK);
}

/* --- 2. An abort ------------------------------------------------------------------------------ */

/* How many mappings of shared pages the process has. */
static int
mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int count = 0;

    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) != NULL)
        count += strstr(line, "memfd:kvtier") != NULL;
    assert_int_equal(fclose(maps), 0);
    return count;
}

/* The stream goes on when its device is closed, and not before. */
static void
stream_stop(void)
{
    struct device *device = own_device();
    _Atomic uint32_t *word = env_map(&hbm.env, PAGE_BYTES);

    assert_non_null(word);
    assert_int_equal(device->ops->host_register(device, (void *)word, PAGE_BYTES), KVT_OK);
    assert_int_equal(device->ops->stream_wait_word(device, ours.stream, word, 1), KVT_OK);
    device->ops->host_abandon(device, (void *)word, PAGE_BYTES);
}

/* By kvt_abort(), or, of a broken store, by kvt_close(). */
static void
store_end(bool is_broken)
{
    assert_int_equal(kvt_region_unregister(hbm.store, hbm.region), KVT_OK);
    device_host_memory_put(own_device(), hbm.pool, (uint64_t)HBM_POOL_BLOCKS * HBM_BLOCK_BYTES);
    if (is_broken) {
        atomic_store(&hbm.store->poisoned, 1);
        assert_int_equal(kvt_close(hbm.store), KVT_OK);
    } else {
        kvt_abort(hbm.store);
    }
    hbm_open_again();
    ours.made = theirs.opened = NULL;
    ours.stream = NULL;
}

static void
pages_that_streams_still_use_outlive_an_abort(void **state)
{
    struct shared_page view;
    struct process_words *words;
    kvt_shared_event *unused;
    struct kvt_share share;
    int descriptor, count;

    (void)state;
    assert_int_equal(
        hbm.env.memory->page_adopt(hbm.env.memory_context, ours.descriptor, &view), KVT_OK);
    words = view.memory;
    assert_int_equal(kvt_shared_event_create(&ours.side, &share, &descriptor, &unused), KVT_OK);
    stream_stop();
    assert_int_equal(kvt_shared_event_stream_wait(theirs.opened, ours.stream), KVT_OK);
    assert_int_equal(kvt_shared_event_record(ours.made, ours.stream), KVT_OK);
    count = mappings();
    store_end(false);
    assert_int_equal(mappings(), count - 1);
    /* What it waited for has ended, for all. What it was to reach, its stream has written. */
    assert_int_equal(atomic_load(&their_words()->is_broken), 1);
    assert_int_equal(words->reached, 1);
    assert_int_equal(atomic_load(&words->is_broken), 0);
    /* Who waits for it sees that nobody makes it any more. */
    assert_false(hbm.env.memory->page_is_made(hbm.env.memory_context, &view));
    hbm.env.memory->page_end(hbm.env.memory_context, &view);
}

static void
pages_that_no_stream_uses_go_with_an_abort(void **state)
{
    int count;

    (void)state;
    assert_int_equal(kvt_shared_event_record(ours.made, ours.stream), KVT_OK);
    hbm_stream_finish(own_device(), ours.stream);
    count = mappings();
    store_end(false);
    assert_int_equal(mappings(), count - 2);
    assert_int_equal(atomic_load(&their_words()->is_broken), 0);
}

static enum kvt_status
no_word_wait(struct device *device, void *stream, uint64_t *word, uint64_t value)
{
    (void)device;
    (void)stream;
    (void)word;
    (void)value;
    return failure_set(KVT_E_NOMEM, 0, "no wait, on purpose");
}

/* Others may wait for it. */
static void
an_abort_ends_no_wait_that_failed(void **state)
{
    (void)state;
    full_begin();
    full.share.word_wait = no_word_wait;
    assert_int_equal(kvt_shared_event_stream_wait(theirs.opened, ours.stream), KVT_E_NOMEM);
    own_device()->ops = full.real;
    store_end(false);
    assert_int_equal(atomic_load(&their_words()->is_broken), 0);
}

static enum kvt_status
no_event_record(struct device *device, void *event, void *stream)
{
    (void)device;
    (void)event;
    (void)stream;
    return failure_set(KVT_E_NOMEM, 0, "no event, on purpose");
}

static void
a_record_that_fails_half_way_keeps_its_number_and_its_page(void **state)
{
    const struct kvt_device_ops *real = own_device()->ops;
    struct kvt_device_ops poor = *real;
    void *other;
    int count;

    (void)state;
    assert_int_equal(device_host_stream_create(own_device(), &other), KVT_OK);
    poor.event_record = no_event_record;
    own_device()->ops = &poor;
    refused(kvt_shared_event_record(ours.made, ours.stream), KVT_E_NOMEM, "on purpose");
    own_device()->ops = real;
    /* Nothing was recorded, and who waits for the next record is not given the number of this. */
    assert_int_equal(kvt_shared_event_wait(ours.made, 0), KVT_OK);
    refused(kvt_shared_event_record(ours.made, other), KVT_E_STATE, "another stream");
    assert_int_equal(kvt_shared_event_record(ours.made, ours.stream), KVT_OK);
    assert_int_equal(kvt_shared_event_wait(ours.made, KVT_FOREVER), KVT_OK);
    own_device()->ops = &poor;
    refused(kvt_shared_event_record(ours.made, ours.stream), KVT_E_NOMEM, "on purpose");
    own_device()->ops = real;
    count = mappings();
    assert_int_equal(kvt_shared_event_close(ours.made), KVT_OK);
    ours.made = NULL;
    assert_int_equal(mappings(), count);
    device_host_stream_destroy(own_device(), other);
}

/* --- 3. What stands in the page --------------------------------------------------------------- */

/* What others can do to an event that the store makes. */
static struct process_words *
made_adopt(struct shared_page *view_out)
{
    assert_int_equal(
        hbm.env.memory->page_adopt(hbm.env.memory_context, ours.descriptor, view_out), KVT_OK);
    return view_out->memory;
}

static void
number_write(struct process_words *words, uint64_t number)
{
    atomic_store((_Atomic uint64_t *)&words->reached, number);
}

static void
a_maker_goes_by_its_own_count_and_its_device(void **state)
{
    struct shared_page view;
    struct process_words *words = made_adopt(&view);
    void *other;

    (void)state;
    assert_int_equal(device_host_stream_create(own_device(), &other), KVT_OK);
    assert_int_equal(kvt_shared_event_stream_wait(theirs.opened, ours.stream), KVT_OK);
    atomic_store(&words->recorded, UINT64_MAX - 1);
    assert_int_equal(kvt_shared_event_record(ours.made, ours.stream), KVT_OK);
    assert_int_equal(atomic_load(&words->recorded), 1);
    /* It is said to be reached, and then to be broken. */
    for (uint32_t is_broken = 0; is_broken < 2; is_broken++) {
        number_write(words, INT64_MAX);
        atomic_store(&words->is_broken, is_broken);
        refused(kvt_shared_event_wait(ours.made, 0), KVT_LATE, "in time");
        refused(kvt_shared_event_record(ours.made, other), KVT_E_STATE, "another stream");
        refused(kvt_shared_event_close(ours.made), KVT_E_STATE, "has not been reached");
    }
    number_write(their_words(), 1);
    assert_int_equal(kvt_shared_event_wait(ours.made, KVT_FOREVER), KVT_OK);
    /* It is said to be not reached. */
    number_write(words, 0);
    atomic_store(&words->recorded, 1);
    assert_int_equal(kvt_shared_event_wait(ours.made, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_shared_event_stream_wait(ours.made, other), KVT_OK);
    hbm_stream_finish(own_device(), other);
    atomic_store(&words->recorded, 0);
    assert_int_equal(kvt_shared_event_record(ours.made, other), KVT_OK);
    assert_int_equal(kvt_shared_event_wait(ours.made, KVT_FOREVER), KVT_OK);
    assert_int_equal(atomic_load(&words->recorded), 2);
    assert_int_equal(words->reached, 2);
    number_write(words, 1);
    assert_int_equal(kvt_shared_event_close(ours.made), KVT_OK);
    ours.made = NULL;
    device_host_stream_destroy(own_device(), other);
    hbm.env.memory->page_end(hbm.env.memory_context, &view);
}

static void
a_lost_device_is_said_to_who_waits_for_its_record(void **state)
{
    (void)state;
    assert_int_equal(kvt_shared_event_stream_wait(theirs.opened, ours.stream), KVT_OK);
    assert_int_equal(kvt_shared_event_record(ours.made, ours.stream), KVT_OK);
    hbm.config.fail_call = atomic_load(&hbm.config.call_count) + 1;
    refused(kvt_shared_event_wait(ours.made, KVT_FOREVER), KVT_E_GPU, "lost");
}

static void
a_number_that_nobody_can_have_counted_to_is_not_waited_for(void **state)
{
    static const uint64_t records[] = {INT64_MAX, (uint64_t)INT64_MAX + 5, UINT64_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof(records) / sizeof(records[0]); i++) {
        atomic_store(&their_words()->recorded, records[i]);
        refused(kvt_shared_event_wait(theirs.opened, KVT_FOREVER), KVT_CANCELLED, "counted");
        refused(kvt_shared_event_stream_wait(theirs.opened, ours.stream), KVT_CANCELLED, "counted");
    }
    /* Nothing was recorded, whatever else is there. */
    atomic_store(&their_words()->recorded, 0);
    number_write(their_words(), UINT64_MAX);
    assert_int_equal(kvt_shared_event_stream_wait(theirs.opened, ours.stream), KVT_OK);
    hbm_stream_finish(own_device(), ours.stream);
}

/* The stream waits; the maker dies: the wait ends, and it is said that it was for nothing. */
static void
wait_ends_with_the_maker(void)
{
    theirs_die();
    hbm_stream_finish(own_device(), ours.stream);
    atomic_store(&their_words()->recorded, 5);
    refused(kvt_shared_event_wait(theirs.opened, 0), KVT_CANCELLED, "never be reached");
}

static void
a_number_means_the_same_to_the_host_as_to_the_device(void **state)
{
    (void)state;
    atomic_store(&their_words()->recorded, 5);
    number_write(their_words(), UINT64_MAX - 2);
    refused(kvt_shared_event_wait(theirs.opened, 0), KVT_LATE, "in time");
    assert_int_equal(kvt_shared_event_stream_wait(theirs.opened, ours.stream), KVT_OK);
    wait_ends_with_the_maker();
}

static void
records_that_are_taken_back_keep_no_stream(void **state)
{
    (void)state;
    atomic_store(&their_words()->recorded, 5);
    assert_int_equal(kvt_shared_event_stream_wait(theirs.opened, ours.stream), KVT_OK);
    atomic_store(&their_words()->recorded, 0);
    wait_ends_with_the_maker();
}

static void
a_number_that_is_taken_back_keeps_no_stream(void **state)
{
    _Atomic uint32_t *word = env_map(&hbm.env, PAGE_BYTES);
    struct device *device = own_device();

    (void)state;
    assert_non_null(word);
    assert_int_equal(device->ops->host_register(device, (void *)word, PAGE_BYTES), KVT_OK);
    atomic_store(&their_words()->recorded, 5);
    /* The stream comes to the wait when the number was there, and is gone again. */
    assert_int_equal(device->ops->stream_wait_word(device, ours.stream, word, 1), KVT_OK);
    assert_int_equal(kvt_shared_event_stream_wait(theirs.opened, ours.stream), KVT_OK);
    number_write(their_words(), 5);
    (void)nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL); /* Two looks at it. */
    number_write(their_words(), 0);
    atomic_store(word, 1);
    wait_ends_with_the_maker();
    device->ops->host_unregister(device, (void *)word, PAGE_BYTES);
    env_unmap(&hbm.env, (void *)word, PAGE_BYTES);
}

static kvt_ticket *
block_get(void)
{
    static uint8_t bytes[HBM_BLOCK_BYTES];
    struct payload_key name;
    struct kvt_get get = {.destination = bytes, .capacity = sizeof(bytes)};
    kvt_ticket *ticket;

    assert_int_equal(hbm_put(5, 1, KVT_TIER_HOST, KVT_MEMORY, 0), KVT_OK);
    payload_key_make(&name, 5);
    get.key = name.key;
    assert_int_equal(kvt_get_submit(hbm.store, hbm.ns, &get, 1, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    return ticket;
}

/* The maker lives, and never records; a hold is out, too. */
static void
an_abort_does_not_wait_for_a_living_maker(void **state)
{
    kvt_ticket *ticket = block_get();
    kvt_hold *hold;

    (void)state;
    assert_int_equal(kvt_hold_submit(ticket, 0, ours.stream, 0, &hold), KVT_OK);
    assert_int_equal(kvt_shared_event_stream_wait(theirs.opened, ours.stream), KVT_OK);
    (void)alarm(10);
    store_end(false);
    (void)alarm(WATCHDOG_S);
}

/* The stream waits for a living reader, and a lease ends behind it (sharing.h's own pattern). */
static void
an_abort_ends_the_wait_that_a_lease_stands_behind(void **state)
{
    struct payload_key name;
    kvt_lease lease;

    (void)state;
    assert_int_equal(hbm_put(6, 1, KVT_TIER_HBM, KVT_MEMORY, 0), KVT_OK);
    payload_key_make(&name, 6);
    assert_int_equal(kvt_lookup(hbm.store, hbm.ns, &name.key, 1, NULL, NULL, &lease), KVT_OK);
    assert_int_equal(kvt_shared_event_stream_wait(theirs.opened, ours.stream), KVT_OK);
    assert_int_equal(kvt_lease_release_after(hbm.store, lease, 0, ours.stream), KVT_OK);
    store_end(false);
}

static void
an_abort_ends_the_wait_that_a_freed_hold_stands_behind(void **state)
{
    kvt_ticket *ticket = block_get();
    kvt_hold *hold;

    (void)state;
    assert_int_equal(kvt_hold_submit(ticket, 0, ours.stream, 0, &hold), KVT_OK);
    assert_int_equal(kvt_shared_event_stream_wait(theirs.opened, ours.stream), KVT_OK);
    assert_int_equal(kvt_hold_free(hold), KVT_OK);
    store_end(false);
}

/* A GPU waits for all streams when memory is given back: waits must have ended. */
static uint32_t early_count;

static enum kvt_status
count_and_unregister(struct device *device, void *memory, uint64_t size)
{
    if (atomic_load(&their_words()->is_broken) == 0)
        early_count++;
    return device_host_ops.host_unregister(device, memory, size);
}

static void
memory_is_given_back_after_the_waits(bool is_broken)
{
    static struct kvt_device_ops ops;

    assert_int_equal(kvt_shared_event_stream_wait(theirs.opened, ours.stream), KVT_OK);
    ops = *own_device()->ops;
    ops.host_unregister = count_and_unregister;
    own_device()->ops = &ops;
    early_count = 0;
    store_end(is_broken);
    assert_int_equal(early_count, 0);
}

static void
waits_end_before_memory_is_given_back(void **state)
{
    (void)state;
    memory_is_given_back_after_the_waits(false);
}

static void
waits_end_before_a_broken_store_gives_memory_back(void **state)
{
    (void)state;
    memory_is_given_back_after_the_waits(true);
}

/* The store breaks while completions are collected: who then waits for the descriptor is told. */
static struct sched_ops clearing_sched;
static bool shall_poison;

static void
poison_and_clear(void *context, int signal)
{
    if (shall_poison) {
        shall_poison = false;
        atomic_store(&hbm.store->poisoned, 1);
        queues_wake(hbm.store);
    }
    sched_host_ops.signal_clear(context, signal);
}

static void
a_queue_keeps_the_news_that_the_store_broke(void **state)
{
    static uint8_t bytes[HBM_BLOCK_BYTES];
    struct payload_key name;
    struct kvt_get get = {.destination = bytes, .capacity = sizeof(bytes)};
    struct kvt_completion done[4];
    struct kvt_submit submit = {0};
    kvt_ticket *ticket;
    kvt_queue *queue;
    struct pollfd descriptor;
    uint32_t count = 0;
    int ready;

    (void)state;
    assert_int_equal(hbm_put(5, 1, KVT_TIER_HOST, KVT_MEMORY, 0), KVT_OK);
    payload_key_make(&name, 5);
    get.key = name.key;
    assert_int_equal(kvt_queue_create(hbm.store, &queue), KVT_OK);
    submit.queue = queue;
    assert_int_equal(kvt_get_submit(hbm.store, hbm.ns, &get, 1, &submit, &ticket), KVT_OK);
    assert_int_equal(kvt_queue_drain(queue, KVT_FOREVER), KVT_OK);
    clearing_sched = *hbm.store->env.sched;
    clearing_sched.signal_clear = poison_and_clear;
    hbm.store->env.sched = &clearing_sched;
    shall_poison = true;
    assert_int_equal(kvt_queue_poll(queue, done, 4, 0, &count), KVT_OK);
    assert_int_equal(count, 1);
    descriptor = (struct pollfd){.fd = kvt_queue_fd(queue), .events = POLLIN};
    ready = poll(&descriptor, 1, 200);
    atomic_store(&hbm.store->poisoned, 0);
    kvt_ticket_free(ticket);
    assert_int_equal(kvt_queue_destroy(queue), KVT_OK);
    assert_int_equal(ready, 1);
}

#define HBM(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        HBM(a_queue_keeps_the_news_that_the_store_broke),
        HBM(waits_end_before_memory_is_given_back),
        HBM(waits_end_before_a_broken_store_gives_memory_back),
        HBM(a_wait_on_a_full_stream_ends_with_the_maker),
        HBM(a_record_on_a_full_stream_ends_with_the_maker_that_the_stream_waits_for),
        HBM(pages_that_streams_still_use_outlive_an_abort),
        HBM(pages_that_no_stream_uses_go_with_an_abort),
        HBM(an_abort_ends_no_wait_that_failed),
        HBM(a_record_that_fails_half_way_keeps_its_number_and_its_page),
        HBM(a_maker_goes_by_its_own_count_and_its_device),
        HBM(a_lost_device_is_said_to_who_waits_for_its_record),
        HBM(a_number_that_nobody_can_have_counted_to_is_not_waited_for),
        HBM(a_number_means_the_same_to_the_host_as_to_the_device),
        HBM(records_that_are_taken_back_keep_no_stream),
        HBM(a_number_that_is_taken_back_keeps_no_stream),
        HBM(an_abort_does_not_wait_for_a_living_maker),
        HBM(an_abort_ends_the_wait_that_a_lease_stands_behind),
        HBM(an_abort_ends_the_wait_that_a_freed_hold_stands_behind),
    };

    (void)alarm(WATCHDOG_S);
    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
