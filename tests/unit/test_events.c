/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_events.c - kvt_events_read(): what came and went, and why; readers that are too slow;
 * readers beside the loop.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "payload.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BLOCK_BYTES = 60000,
    EVENTS_MAX = 256,
    RING = 64,
};

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;
static uint64_t cursor;

static void
open_with(uint64_t nvme_capacity_bytes, uint32_t event_count_max)
{
    struct kvt_options options = kit_options();

    options.nvme_capacity_bytes = nvme_capacity_bytes;
    options.event_count_max = event_count_max;
    options.hbm_capacity_bytes = 1 << 20;
    options.device_kind = KVT_DEVICE_EMULATION;
    sim_store_open(&sim, &options);
    store = sim.store;
    cursor = 0;
    assert_int_equal(kvt_namespace_open(store, "events", "", 0, &ns), KVT_OK);
}

static int
setup(void **state)
{
    (void)state;
    open_with(8 << 20, 1 << 16);
    return 0;
}

static int
setup_small_ring(void **state)
{
    (void)state;
    open_with(KVT_CAPACITY_NONE, RING);
    return 0;
}

static int
setup_without(void **state)
{
    (void)state;
    open_with(KVT_CAPACITY_NONE, 0);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    sim_store_close(&sim);
    return 0;
}

/* The next event is this one. */
static void
expect(uint64_t number, enum kvt_event_kind kind, uint32_t tier, enum kvt_event_reason reason)
{
    struct payload_key name;
    struct kvt_event event;
    uint64_t sequence = cursor + 1;
    uint32_t count;

    payload_key_make(&name, number);
    assert_int_equal(kvt_events_read(store, &cursor, &event, 1, &count), KVT_OK);
    assert_int_equal(count, 1);
    assert_int_equal(cursor, sequence);
    assert_int_equal(event.sequence, sequence);
    assert_int_equal(event.kind, kind);
    assert_int_equal(event.tier, tier);
    assert_int_equal(event.reason, reason);
    assert_int_equal(event.ns.id, ns.id);
    assert_int_equal(event.component, 0);
    assert_int_equal(event.length, BLOCK_BYTES);
    assert_int_equal(event.is_hashed, name.key.length > 64);
    if (event.is_hashed) {
        assert_int_equal(event.key_length, 32);
        return;
    }
    assert_int_equal(event.key_length, name.key.length);
    assert_memory_equal(event.key, name.bytes, name.key.length);
}

static void
expect_none(void)
{
    struct kvt_event event;
    uint32_t count = 7;

    assert_int_equal(kvt_events_read(store, &cursor, &event, 1, &count), KVT_MISS);
    assert_int_equal(count, 0);
}

static enum kvt_status
move(uint64_t number, uint32_t tier, bool is_up)
{
    const struct kvt_prefetch how = {.struct_size = sizeof(how), .tier = tier};
    struct payload_key name;
    kvt_ticket *ticket;

    payload_key_make(&name, number);
    if (is_up)
        assert_int_equal(kvt_prefetch_submit(store, ns, &name.key, 1, &how, NULL, &ticket), KVT_OK);
    else
        assert_int_equal(kvt_demote_submit(store, ns, &name.key, 1, tier, NULL, &ticket), KVT_OK);
    return kit_result(ticket, KVT_STAGE_DONE).status;
}

static void
put(uint64_t number, uint64_t version, enum kvt_durability durability)
{
    assert_int_equal(kit_put(store, ns, number, version, BLOCK_BYTES, durability), KVT_OK);
}

/* --- Reasons ---------------------------------------------------------------------------------- */

static void
puts_moves_and_deletes_are_told_in_their_order(void **state)
{
    (void)state;
    expect_none();
    put(1, 1, KVT_SYNC);
    expect(1, KVT_EVENT_STORED, KVT_TIER_HOST, KVT_REASON_PUT);
    expect(1, KVT_EVENT_STORED, KVT_TIER_NVME, KVT_REASON_PUT);
    assert_int_equal(move(1, KVT_TIER_NVME, false), KVT_OK);
    expect(1, KVT_EVENT_REMOVED, KVT_TIER_HOST, KVT_REASON_DEMOTED);
    assert_int_equal(move(1, KVT_TIER_HBM, true), KVT_OK);
    expect(1, KVT_EVENT_STORED, KVT_TIER_HOST, KVT_REASON_RAISED);
    expect(1, KVT_EVENT_STORED, KVT_TIER_HBM, KVT_REASON_RAISED);
    assert_int_equal(kit_delete(store, ns, 1), KVT_OK);
    expect(1, KVT_EVENT_REMOVED, KVT_TIER_NVME, KVT_REASON_DELETED);
    expect(1, KVT_EVENT_REMOVED, KVT_TIER_HOST, KVT_REASON_DELETED);
    expect(1, KVT_EVENT_REMOVED, KVT_TIER_HBM, KVT_REASON_DELETED);
    /* A key of more than 64 bytes. */
    put(8, 1, KVT_MEMORY);
    expect(8, KVT_EVENT_STORED, KVT_TIER_HOST, KVT_REASON_PUT);
    assert_int_equal(move(8, KVT_TIER_NVME, false), KVT_OK);
    expect(8, KVT_EVENT_STORED, KVT_TIER_NVME, KVT_REASON_DEMOTED);
    expect(8, KVT_EVENT_REMOVED, KVT_TIER_HOST, KVT_REASON_DEMOTED);
    expect_none();
}

static void
a_replaced_block_and_a_cleared_one_are_told(void **state)
{
    (void)state;
    put(1, 1, KVT_MEMORY);
    put(1, 2, KVT_MEMORY);
    expect(1, KVT_EVENT_STORED, KVT_TIER_HOST, KVT_REASON_PUT);
    expect(1, KVT_EVENT_REMOVED, KVT_TIER_HOST, KVT_REASON_REPLACED);
    expect(1, KVT_EVENT_STORED, KVT_TIER_HOST, KVT_REASON_PUT);
    assert_int_equal(kvt_namespace_clear(store, ns), KVT_OK);
    expect(1, KVT_EVENT_REMOVED, KVT_TIER_HOST, KVT_REASON_CLEARED);
    expect_none();
}

static void
damage_and_a_lost_device_are_told(void **state)
{
    struct payload_key name;
    struct block_key key;
    uint64_t version;
    uint32_t number;

    (void)state;
    put(1, 1, KVT_SYNC);
    put(2, 1, KVT_MEMORY);
    assert_int_equal(move(1, KVT_TIER_NVME, false), KVT_OK);
    assert_int_equal(move(2, KVT_TIER_HBM, true), KVT_OK);
    for (uint32_t i = 0; i < 5; i++) {
        struct kvt_event event;
        uint32_t count;

        assert_int_equal(kvt_events_read(store, &cursor, &event, 1, &count), KVT_OK);
    }
    expect_none();
    payload_key_make(&name, 1);
    assert_true(key_init(&key, store->file.secret, ns.id, 0, name.key.bytes, name.key.length));
    number = residency_find(store->map, key_fingerprint(store->fingerprint_seed, &key), &key);
    residency_at(store->map, number)->checksum.low ^= 1;
    assert_int_equal(kit_get(store, ns, 1, &version), KVT_MISS);
    expect(1, KVT_EVENT_REMOVED, KVT_TIER_NVME, KVT_REASON_CORRUPT);
    sim.device.fail_call = atomic_load(&sim.device.call_count) + 1;
    put(3, 1, KVT_MEMORY);
    expect(3, KVT_EVENT_STORED, KVT_TIER_HOST, KVT_REASON_PUT);
    (void)move(3, KVT_TIER_HBM, true);
    sim_store_pass(&sim, 1000 * 1000);
    expect(2, KVT_EVENT_REMOVED, KVT_TIER_HBM, KVT_REASON_DEVICE_LOST);
    expect_none();
}

static void
what_leaves_for_room_is_told(void **state)
{
    static struct kvt_event events[EVENTS_MAX];
    uint32_t reasons = 0;
    uint32_t count;

    (void)state;
    for (uint64_t i = 0; i < 400; i++)
        put(100 + i, 1, i % 2 == 0 ? KVT_SYNC : KVT_MEMORY);
    while (kvt_events_read(store, &cursor, events, EVENTS_MAX, &count) == KVT_OK) {
        for (uint32_t i = 0; i < count; i++)
            reasons |= 1u << events[i].reason;
    }
    assert_int_equal(reasons, 1u << KVT_REASON_PUT | 1u << KVT_REASON_DEMOTED |
                                  1u << KVT_REASON_EVICTED | 1u << KVT_REASON_RECLAIMED);
}

/* --- Readers ---------------------------------------------------------------------------------- */

static void
a_reader_that_is_too_slow_is_told_and_goes_on(void **state)
{
    static struct kvt_event events[EVENTS_MAX];
    uint32_t count;

    (void)state;
    for (uint64_t i = 0; i < RING; i++)
        put(i, 1, KVT_MEMORY);
    /* Exactly what is kept. */
    assert_int_equal(kvt_events_read(store, &cursor, events, EVENTS_MAX, &count), KVT_OK);
    assert_int_equal(count, RING);
    cursor = 0;
    assert_int_equal(kit_delete(store, ns, 0), KVT_OK);
    assert_int_equal(kvt_events_read(store, &cursor, events, EVENTS_MAX, &count), KVT_OVERRUN);
    assert_int_equal(count, 0);
    assert_int_equal(cursor, RING + 1);
    expect_none();
    assert_int_equal(kit_delete(store, ns, 1), KVT_OK);
    expect(1, KVT_EVENT_REMOVED, KVT_TIER_HOST, KVT_REASON_DELETED);
    cursor = 2;
    assert_int_equal(kvt_events_read(store, &cursor, events, EVENTS_MAX, &count), KVT_OK);
    assert_int_equal(events[0].sequence, 3);
    assert_int_equal(events[RING - 1].sequence, RING + 2);
}

static void
what_makes_no_sense_is_refused(void **state)
{
    struct kvt_event event;
    uint32_t count;

    (void)state;
    refused(kvt_events_read(NULL, &cursor, &event, 1, &count), KVT_E_INVAL, "store");
    refused(kvt_events_read(store, NULL, &event, 1, &count), KVT_E_INVAL, "cursor");
    refused(kvt_events_read(store, &cursor, &event, 0, &count), KVT_E_INVAL, "count_max");
    cursor = 1;
    refused(kvt_events_read(store, &cursor, &event, 1, &count), KVT_E_INVAL, "newest");
}

static void
without_the_option_there_are_none(void **state)
{
    struct kvt_event event;
    uint32_t count;

    (void)state;
    put(1, 1, KVT_MEMORY);
    refused(kvt_events_read(store, &cursor, &event, 1, &count), KVT_E_UNSUPPORTED, "event_count");
}

/* --- A reader beside the loop ----------------------------------------------------------------- */

struct reader {
    _Atomic bool is_over;
    _Atomic uint64_t seen_count;
    _Atomic bool is_wrong;
};

/* Each event is whole: what it says of its key and length belongs together. */
static void
event_judge(struct reader *reader, const struct kvt_event *event, uint64_t sequence)
{
    uint64_t number;
    struct payload_key name;

    memcpy(&number, event->key, sizeof(number));
    payload_key_make(&name, number);
    if (event->sequence != sequence || event->tier != KVT_TIER_HOST ||
        (!event->is_hashed && (event->key_length != name.key.length ||
                                  memcmp(event->key, name.bytes, name.key.length) != 0 ||
                                  event->length != 1000 + number % 1000)))
        reader->is_wrong = true;
}

static void *
reader_run(void *context)
{
    struct reader *reader = context;
    struct kvt_event events[16];
    uint64_t at = 0;
    bool was_over;

    do {
        uint64_t before = at;
        uint32_t count;
        enum kvt_status status;

        was_over = atomic_load(&reader->is_over);
        status = kvt_events_read(store, &at, events, 16, &count);
        for (uint32_t i = 0; status == KVT_OK && i < count; i++)
            event_judge(reader, &events[i], before + 1 + i);
        reader->seen_count += status == KVT_OK ? count : 0;
    } while (!was_over && !reader->is_wrong);
    return NULL;
}

static void
events_that_are_read_beside_the_loop_are_whole(void **state)
{
    struct kvt_options options = kit_options();
    struct reader reader = {.is_over = false};
    char path[KIT_PATH_BYTES];
    pthread_t thread;

    (void)state;
    kit_dir_make(path);
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    options.event_count_max = RING;
    assert_int_equal(kvt_open(path, &options, &store), KVT_OK);
    assert_int_equal(kvt_namespace_open(store, "events", "", 0, &ns), KVT_OK);
    assert_int_equal(pthread_create(&thread, NULL, reader_run, &reader), 0);
    /* However the two are scheduled: until the reader has had its share. */
    for (uint64_t i = 0; atomic_load(&reader.seen_count) < 2000 && !atomic_load(&reader.is_wrong);
         i++) {
        uint64_t number = i / 2;

        if (i % 2 == 0)
            assert_int_equal(
                kit_put(store, ns, number, 1, 1000 + number % 1000, KVT_MEMORY), KVT_OK);
        else
            assert_int_equal(kit_delete(store, ns, number), KVT_OK);
    }
    atomic_store(&reader.is_over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(reader.is_wrong);
    assert_int_equal(kvt_close(store), KVT_OK);
    kit_dir_remove(path);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(puts_moves_and_deletes_are_told_in_their_order),
        TEST(a_replaced_block_and_a_cleared_one_are_told),
        TEST(damage_and_a_lost_device_are_told),
        TEST(what_leaves_for_room_is_told),
        cmocka_unit_test_setup_teardown(
            a_reader_that_is_too_slow_is_told_and_goes_on, setup_small_ring, teardown),
        TEST(what_makes_no_sense_is_refused),
        cmocka_unit_test_setup_teardown(without_the_option_there_are_none, setup_without, teardown),
        cmocka_unit_test(events_that_are_read_beside_the_loop_are_whole),
    };
#undef TEST

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
