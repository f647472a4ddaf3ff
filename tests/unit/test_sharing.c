/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_sharing.c - HBM that other processes read where it lies, events that put their streams in
 * order, and what happens when one of them dies. The processes are real (peer_kit.h).
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "kvtier/kvtier_unstable.h"
#include "peer_kit.h"
#include "stop_on_proof.h"
#include "store_internal.h"

enum {
    BLOCK = 1, /* Its number; others are beside it. */
    OTHER = 2,
    WATCHDOG_S = 120, /* A wait that never ends is not waited for. */
};

static const uint64_t MS = 1000 * 1000;

static atomic_bool may_go; /* What overwrite_late() holds. */

static void
pause_ns(uint64_t ns)
{
    const struct timespec pause = {
        .tv_sec = (time_t)(ns / (1000 * MS)), .tv_nsec = (long)(ns % (1000 * MS))};

    (void)nanosleep(&pause, NULL);
}

static struct device *
own_device(void)
{
    return hbm_device(hbm.store->devices.tiers[0]);
}

static int
setup(void **state)
{
    assert_int_equal(hbm_setup(state), 0);
    hbm_close();
    hbm.options.flags = KVT_OPEN_SHARE_HBM;
    hbm_open_again();
    return 0;
}

/* --- 1. Here is the owner --------------------------------------------------------------------- */

struct held {
    kvt_lease lease;
    struct kvt_locator locator;
    void *address;
};

static struct held
block_hold(uint64_t number, uint64_t version)
{
    struct payload_key name;
    struct held held;
    const void *address;
    uint64_t length;

    payload_key_make(&name, number);
    assert_int_equal(hbm_put(number, version, KVT_TIER_HBM, KVT_MEMORY, KVT_PUT_REPLACE), KVT_OK);
    assert_int_equal(kvt_lookup(hbm.store, hbm.ns, &name.key, 1, NULL, NULL, &held.lease), KVT_OK);
    assert_int_equal(
        kvt_lease_export(hbm.store, held.lease, 0, KVT_TIER_HBM, &held.locator), KVT_OK);
    assert_int_equal(
        kvt_lease_address(hbm.store, held.lease, 0, KVT_TIER_HBM, &address, &length), KVT_OK);
    held.address = (void *)(uintptr_t)address;
    return held;
}

static struct peer_message
message_of(enum peer_what what)
{
    return (struct peer_message){.what = what, .descriptor = -1};
}

static void
ask_well(const struct peer *peer, enum peer_what what)
{
    const struct peer_message message = message_of(what);

    assert_int_equal(peer_ask(peer, &message).status, KVT_OK);
}

/* A process that has imported this one's HBM. */
static struct peer
reader_start(uint64_t delay_ns)
{
    struct peer_message message = {.what = PEER_IMPORT, .delay_ns = delay_ns};
    struct peer reader = peer_start();

    assert_int_equal(kvt_hbm_export(hbm.store, 0, &message.share, &message.descriptor), KVT_OK);
    assert_int_equal(peer_ask(&reader, &message).status, KVT_OK);
    return reader;
}

static struct kvt_side
own_side(void)
{
    return (struct kvt_side){.store = hbm.store};
}

/* An event of this process, which the peer has opened. */
static kvt_shared_event *
event_give(const struct peer *peer)
{
    struct peer_message message = {.what = PEER_EVENT_OPEN};
    const struct kvt_side side = own_side();
    kvt_shared_event *event;

    assert_int_equal(
        kvt_shared_event_create(&side, &message.share, &message.descriptor, &event), KVT_OK);
    assert_int_equal(peer_ask(peer, &message).status, KVT_OK);
    return event;
}

/* An event of the peer's, which this process has opened. */
static kvt_shared_event *
event_get(const struct peer *peer, const struct kvt_side *side)
{
    struct peer_message message = message_of(PEER_EVENT_MAKE);
    kvt_shared_event *event;

    message = peer_ask(peer, &message);
    assert_int_equal(message.status, KVT_OK);
    assert_int_equal(
        kvt_shared_event_open(side, &message.share, message.descriptor, &event), KVT_OK);
    assert_int_equal(close(message.descriptor), 0);
    return event;
}

static struct peer_message
block_ask(const struct peer *peer, enum peer_what what, const struct held *held, uint64_t number)
{
    const struct peer_message message = {
        .what = what, .descriptor = -1, .locator = held->locator, .number = number};

    return peer_ask(peer, &message);
}

/* The reader's copy of the block has this version. */
static void
reads_version(const struct peer *peer, const struct held *held, uint64_t number, uint64_t version)
{
    struct peer_message answer = block_ask(peer, PEER_READ, held, number);

    assert_int_equal(answer.status, KVT_OK);
    assert_int_equal(answer.version, version);
}

static void
another_process_reads_a_leased_block_where_it_lies(void **state)
{
    struct held first = block_hold(BLOCK, 5), second = block_hold(OTHER, 6);
    struct peer reader = reader_start(MS);
    struct peer_message answer;
    struct kvt_options options = {.struct_size = sizeof(options)};

    (void)state;
    assert_int_equal(kvt_options_get(hbm.store, &options), KVT_OK);
    assert_int_equal(options.flags, KVT_OPEN_SHARE_HBM);
    reads_version(&reader, &first, BLOCK, 5);
    reads_version(&reader, &second, OTHER, 6);
    answer = block_ask(&reader, PEER_STREAM_READ, &first, BLOCK);
    assert_int_equal(answer.status, KVT_OK);
    assert_int_equal(answer.version, 5);
    kvt_lease_release(hbm.store, first.lease);
    first = block_hold(BLOCK, 7);
    reads_version(&reader, &first, BLOCK, 7);
    ask_well(&reader, PEER_CLOSE);
    peer_end(&reader, 0);
    kvt_lease_release(hbm.store, first.lease);
    kvt_lease_release(hbm.store, second.lease);
}

/* The owner's stream writes the block anew when it may go. */
static void
overwrite_late(void *stream, kvt_shared_event *event, const struct held *held, uint64_t number,
    uint64_t version)
{
    const struct device_piece piece = {
        .target = held->address, .source = hbm_pool_at(9), .size = HBM_BLOCK_BYTES};
    uint8_t bytes[HBM_BLOCK_BYTES];

    payload_fill(bytes, sizeof(bytes), number, version);
    assert_int_equal(kvt_device_write(hbm.store, 0, hbm_pool_at(9), bytes, sizeof(bytes)), KVT_OK);
    /* What the kernel uses is not the target, which is poisoned at once. */
    atomic_store(&may_go, false);
    hbm_stream_hold(own_device(), stream, hbm_pool_at(0), &may_go);
    assert_int_equal(own_device()->ops->copy(own_device(), stream, &piece, 1), KVT_OK);
    assert_int_equal(kvt_shared_event_record(event, stream), KVT_OK);
}

static void
what_is_written_late_is_seen_behind_its_event_only(void **state)
{
    struct held held = block_hold(BLOCK, 1);
    struct peer reader = reader_start(0);
    kvt_shared_event *event = event_give(&reader);
    struct peer_message answer;
    void *stream;

    (void)state;
    assert_int_equal(device_host_stream_create(own_device(), &stream), KVT_OK);
    /* Never recorded: there is nothing to wait for. */
    assert_int_equal(kvt_shared_event_wait(event, 0), KVT_OK);
    ask_well(&reader, PEER_EVENT_WAIT);
    for (uint64_t version = 2; version < 8; version++) {
        struct peer_message message = {.what = PEER_EVENT_WAIT, .descriptor = -1};

        overwrite_late(stream, event, &held, BLOCK, version);
        answer = block_ask(&reader, PEER_READ, &held, BLOCK);
        assert_int_equal(answer.status, KVT_OK);
        assert_int_equal(answer.version, 0);
        assert_int_equal(answer.number, DEVICE_POISON);
        assert_int_equal(peer_ask(&reader, &message).status, KVT_LATE);
        if (version % 2 == 0)
            message.delay_ns = KVT_FOREVER;
        else
            message = (struct peer_message){.what = PEER_STREAM_READ,
                .descriptor = -1,
                .locator = held.locator,
                .number = BLOCK,
                .version = 1};
        peer_tell(&reader, &message);
        pause_ns(5 * MS); /* The reader waits by now, as a rule. */
        atomic_store(&may_go, true);
        assert_true(peer_hear(&reader, false, &answer));
        if (version % 2 == 0) {
            assert_int_equal(answer.status, KVT_OK);
            answer = block_ask(&reader, PEER_READ, &held, BLOCK);
        }
        assert_int_equal(answer.status, KVT_OK);
        assert_int_equal(answer.version, version);
        /* What has been reached is not waited for. */
        assert_int_equal(kvt_shared_event_wait(event, 0), KVT_OK);
    }
    ask_well(&reader, PEER_CLOSE);
    peer_end(&reader, 0);
    assert_int_equal(kvt_shared_event_close(event), KVT_OK);
    device_host_stream_destroy(own_device(), stream);
    kvt_lease_release(hbm.store, held.lease);
}

static void
the_owner_reuses_a_slot_when_the_readers_event_says_so(void **state)
{
    const struct kvt_side side = own_side();
    struct held held = block_hold(BLOCK, 1);
    struct peer reader = reader_start(0);
    kvt_shared_event *event = event_get(&reader, &side);
    struct peer_message message = {.what = PEER_HELD, .descriptor = -1, .locator = held.locator};
    uint64_t used = hbm_stats().hbm_used_bytes_now;
    struct payload_key name;
    kvt_ticket *ticket;
    bool was_answered;
    void *stream;

    (void)state;
    assert_int_equal(device_host_stream_create(own_device(), &stream), KVT_OK);
    assert_int_equal(peer_ask(&reader, &message).status, KVT_OK);
    assert_int_equal(kvt_shared_event_wait(event, 0), KVT_LATE);
    assert_int_equal(kvt_shared_event_stream_wait(event, stream), KVT_OK);
    assert_int_equal(kvt_lease_release_after(hbm.store, held.lease, 0, stream), KVT_OK);
    payload_key_make(&name, BLOCK);
    assert_int_equal(kvt_delete_submit(hbm.store, hbm.ns, &name.key, 1, NULL, &ticket), KVT_OK);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
    /* Deleted, but still read. */
    assert_false(peer_hear(&reader, true, &message));
    assert_int_equal(hbm_stats().hbm_used_bytes_now, used);
    message = message_of(PEER_GO);
    peer_tell(&reader, &message);
    hbm_stream_finish(own_device(), stream);
    /* What it says before its event has been said; its answer comes when it comes. */
    for (was_answered = false; message.what != PEER_DONE;) {
        assert_true(peer_hear(&reader, true, &message));
        was_answered = was_answered || message.what == PEER_GO;
    }
    if (!was_answered)
        assert_true(peer_hear(&reader, false, &message));
    while (hbm_stats().hbm_used_bytes_now == used)
        pause_ns(MS);
    assert_int_equal(kvt_shared_event_wait(event, 0), KVT_OK);
    assert_int_equal(kvt_shared_event_close(event), KVT_OK);
    ask_well(&reader, PEER_CLOSE);
    peer_end(&reader, 0);
    device_host_stream_destroy(own_device(), stream);
}

/* --- 2. A reader dies ------------------------------------------------------------------------- */

static void
a_reader_that_is_killed_disturbs_nobody(void **state)
{
    struct held held = block_hold(BLOCK, 1);
    struct peer other = reader_start(0);

    (void)state;
    for (uint64_t moment = 0; moment < 12; moment++) {
        struct peer reader = peer_start();
        struct peer_message message = {.what = PEER_IMPORT, .delay_ns = 20 * MS};

        /* Its answers are not awaited: it dies while it opens, reads, or has read. */
        assert_int_equal(kvt_hbm_export(hbm.store, 0, &message.share, &message.descriptor), KVT_OK);
        peer_tell(&reader, &message);
        message = (struct peer_message){
            .what = PEER_READ, .descriptor = -1, .locator = held.locator, .number = BLOCK};
        for (uint32_t i = 0; i < 8; i++)
            peer_tell(&reader, &message);
        pause_ns(moment * moment * MS / 2);
        assert_int_equal(kill(reader.pid, SIGKILL), 0);
        /* What its server sees: the socket ends, and the lease can go. */
        while (peer_hear(&reader, false, &message))
            ;
        peer_end(&reader, SIGKILL);
        kvt_lease_release(hbm.store, held.lease);
        held = block_hold(BLOCK, moment + 2);
        reads_version(&other, &held, BLOCK, moment + 2);
    }
    assert_int_equal(hbm_get(BLOCK, 13, false, NULL), KVT_OK);
    ask_well(&other, PEER_CLOSE);
    peer_end(&other, 0);
    kvt_lease_release(hbm.store, held.lease);
}

static void
a_stream_that_waits_for_a_killed_reader_goes_on(void **state)
{
    const struct kvt_side side = own_side();
    struct held held = block_hold(BLOCK, 1);
    struct peer reader = reader_start(0);
    kvt_shared_event *event = event_get(&reader, &side);
    struct peer_message message = {.what = PEER_HELD, .descriptor = -1, .locator = held.locator};
    void *stream;

    (void)state;
    assert_int_equal(device_host_stream_create(own_device(), &stream), KVT_OK);
    assert_int_equal(peer_ask(&reader, &message).status, KVT_OK);
    assert_int_equal(kvt_shared_event_stream_wait(event, stream), KVT_OK);
    assert_int_equal(kvt_lease_release_after(hbm.store, held.lease, 0, stream), KVT_OK);
    pause_ns(50 * MS);
    assert_int_equal(kvt_shared_event_wait(event, 0), KVT_LATE);
    peer_end(&reader, SIGKILL);
    hbm_stream_finish(own_device(), stream);
    assert_int_equal(kvt_shared_event_wait(event, KVT_FOREVER), KVT_CANCELLED);
    assert_int_equal(kvt_shared_event_stream_wait(event, stream), KVT_CANCELLED);
    assert_int_equal(kvt_shared_event_close(event), KVT_OK);
    device_host_stream_destroy(own_device(), stream);
}

/* --- 3. The owner is another process, and dies ------------------------------------------------ */

struct theirs {
    struct peer peer;
    char path[KIT_PATH_BYTES];
    struct device_host_config config;
    kvt_import *import;
    kvt_shared_event *event;
    struct kvt_side side;
};

static struct kvt_env
emulated_env(struct device_host_config *config)
{
    struct kvt_env env;

    kvt_env_host(&env);
    env.device = &device_host_ops;
    env.device_context = config;
    return env;
}

static void
theirs_open(struct theirs *theirs)
{
    struct kvt_env env = emulated_env(&theirs->config);
    struct peer_message message = message_of(PEER_OWN);

    theirs->peer = peer_start();
    kit_dir_make(theirs->path);
    memcpy(message.path, theirs->path, sizeof(message.path));
    message = peer_ask(&theirs->peer, &message);
    assert_int_equal(message.status, KVT_OK);
    assert_int_equal(
        import_open_in(&env, &message.share, message.descriptor, &theirs->import), KVT_OK);
    assert_int_equal(close(message.descriptor), 0);
    theirs->side = (struct kvt_side){.import = theirs->import};
    theirs->event = event_get(&theirs->peer, &theirs->side);
}

static struct kvt_locator
theirs_put(struct theirs *theirs, uint64_t number, uint64_t version)
{
    struct peer_message message = {
        .what = PEER_PUT, .descriptor = -1, .number = number, .version = version};

    message = peer_ask(&theirs->peer, &message);
    assert_int_equal(message.status, KVT_OK);
    return message.locator;
}

static uint64_t
theirs_read(struct theirs *theirs, const struct kvt_locator *locator, uint64_t number)
{
    uint8_t bytes[HBM_BLOCK_BYTES];
    uint64_t version = 0;

    assert_int_equal(kvt_import_read(theirs->import, locator, bytes, sizeof(bytes)), KVT_OK);
    return payload_is_right(bytes, sizeof(bytes), number, &version) ? version : 0;
}

static void
theirs_close(struct theirs *theirs)
{
    assert_int_equal(kvt_shared_event_close(theirs->event), KVT_OK);
    assert_int_equal(kvt_import_close(theirs->import), KVT_OK);
    kit_dir_remove(theirs->path);
}

static void
what_a_killed_owner_wrote_stays(void **state)
{
    struct theirs theirs = {.path = ""};
    struct peer_message message = {.what = PEER_OVERWRITE,
        .descriptor = -1,
        .number = OTHER,
        .version = 4,
        .delay_ns = 3600 * 1000 * MS};
    struct kvt_locator block, other;
    const void *address;
    void *stream;

    (void)state;
    theirs_open(&theirs);
    block = theirs_put(&theirs, BLOCK, 3);
    other = theirs_put(&theirs, OTHER, 3);
    assert_int_equal(theirs_read(&theirs, &other, OTHER), 3);
    assert_int_equal(kvt_import_address(theirs.import, &block, &address), KVT_OK);
    assert_int_equal(device_host_stream_create(theirs.import->device, &stream), KVT_OK);
    assert_int_equal(peer_ask(&theirs.peer, &message).status, KVT_OK);
    assert_int_equal(kvt_shared_event_wait(theirs.event, 10 * MS), KVT_LATE);
    assert_int_equal(kvt_shared_event_stream_wait(theirs.event, stream), KVT_OK);
    peer_end(&theirs.peer, SIGKILL);
    /* A kernel that was to wait for it. */
    assert_int_equal(peer_read_by_kernel(theirs.import->device, stream, address, BLOCK, NULL), 3);
    assert_int_equal(kvt_shared_event_wait(theirs.event, KVT_FOREVER), KVT_CANCELLED);
    assert_int_equal(kvt_shared_event_stream_wait(theirs.event, stream), KVT_CANCELLED);
    assert_int_equal(theirs_read(&theirs, &block, BLOCK), 3);
    assert_int_equal(theirs_read(&theirs, &other, OTHER), 0); /* Half written for ever. */
    device_host_stream_destroy(theirs.import->device, stream);
    theirs_close(&theirs);
}

static void
a_wait_ends_when_the_owner_is_killed_at_any_moment(void **state)
{
    (void)state;
    for (uint64_t moment = 0; moment < 8; moment++) {
        struct theirs theirs = {.path = ""};
        struct peer_message message = {.what = PEER_OVERWRITE,
            .descriptor = -1,
            .number = BLOCK,
            .version = 9,
            .delay_ns = 20 * MS};
        struct kvt_locator block;
        enum kvt_status status;
        uint64_t version;

        theirs_open(&theirs);
        block = theirs_put(&theirs, BLOCK, 3);
        assert_int_equal(peer_ask(&theirs.peer, &message).status, KVT_OK);
        pause_ns(moment * 6 * MS);
        peer_end(&theirs.peer, SIGKILL);
        status = kvt_shared_event_wait(theirs.event, KVT_FOREVER);
        assert_true(status == KVT_OK || status == KVT_CANCELLED);
        version = theirs_read(&theirs, &block, BLOCK);
        if (status == KVT_OK)
            assert_int_equal(version, 9);
        /* It was told to the end, and stays so. */
        assert_int_equal(kvt_shared_event_wait(theirs.event, 0), status);
        theirs_close(&theirs);
    }
}

static void
what_a_closed_store_left_is_read(void **state)
{
    struct theirs theirs = {.path = ""};
    struct kvt_locator block;

    (void)state;
    theirs_open(&theirs);
    block = theirs_put(&theirs, BLOCK, 3);
    ask_well(&theirs.peer, PEER_CLOSE);
    assert_int_equal(theirs_read(&theirs, &block, BLOCK), 3);
    /* Nothing was recorded: nothing is missing. */
    assert_int_equal(kvt_shared_event_wait(theirs.event, 0), KVT_OK);
    peer_end(&theirs.peer, 0);
    assert_int_equal(theirs_read(&theirs, &block, BLOCK), 3);
    theirs_close(&theirs);
}

static int
teardown(void **state)
{
    atomic_store(&may_go, true); /* Of a test that failed before. */
    return hbm_teardown(state);
}

#define HBM(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        HBM(another_process_reads_a_leased_block_where_it_lies),
        HBM(what_is_written_late_is_seen_behind_its_event_only),
        HBM(the_owner_reuses_a_slot_when_the_readers_event_says_so),
        HBM(a_reader_that_is_killed_disturbs_nobody),
        HBM(a_stream_that_waits_for_a_killed_reader_goes_on),
        HBM(what_a_killed_owner_wrote_stays),
        HBM(a_wait_ends_when_the_owner_is_killed_at_any_moment),
        HBM(what_a_closed_store_left_is_read),
    };

    peer_main(argc, argv);
    (void)alarm(WATCHDOG_S);
    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
