/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_forked.c - what kvtier.h says of every call that is given a handle: in a forked child it is
 * refused and hurts nothing of the parent's; after a broken invariant it says so.
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "hbm_kit.h"
#include "kvtier/kvtier_unstable.h"
#include "payload.h"
#include "store_internal.h"

enum {
    GONE = 0x55, /* What stands in memory that a call is to write. */
    EXTRA_BYTES = 4096,
    /* Numbers of blocks. */
    LEASED = 1,
    GOTTEN = 2,
    QUEUED = 3,
    RESERVED = 4,
    ABSENT = 5,
    NUMBERS = 6,
};

/* The parent's handles, of each kind one that is out. */
static struct {
    kvt_lease lease;
    kvt_queue *queue;
    kvt_ticket *ticket;        /* Of a get part by part into memory of the device. */
    kvt_ticket *queued_ticket; /* It reports to the queue. */
    void *stream;              /* Waits for the ticket: */
    kvt_hold *hold;
    kvt_reservation *reservation;
    kvt_layout layout;
    kvt_load load;
    void *extra; /* Memory of the device. */
    void *reserved;
    struct payload_key names[NUMBERS];
    struct kvt_key keys[NUMBERS];
    struct kvt_locator locator;
    uint8_t bytes[HBM_BLOCK_BYTES];
} out;

/* What calls are to write; handles among it must become none. */
static struct {
    kvt_namespace ns;
    kvt_queue *queue;
    kvt_ticket *ticket;
    kvt_hold *hold;
    kvt_reservation *reservation;
    kvt_lease lease;
    kvt_region region;
    kvt_layout layout;
    kvt_engram *table;
    kvt_load load;
    struct kvt_share share;
    int descriptor;
    const void *address;
    void *memory;
    uint64_t length;
    uint32_t count;
    struct kvt_options options;
    struct kvt_stats stats;
    struct kvt_namespace_info info;
    struct kvt_completion done;
    struct kvt_result result;
    struct kvt_locator locator;
    struct kvt_event event;
    struct kvt_cost cost;
    struct kvt_scan_entry entry;
    struct kvt_block_facts facts;
    struct kvt_explanation why;
    struct kvt_check_report report;
    char text[256];
} got;

static const struct kvt_prefetch to_host = {.struct_size = sizeof(to_host), .tier = KVT_TIER_HOST};
static const struct kvt_match_component component = {.policy = KVT_MATCH_ALL};
static const struct kvt_namespace_options plain = {.struct_size = sizeof(plain)};
static struct kvt_region_options region_about = {
    .struct_size = sizeof(region_about), .tier = KVT_TIER_HBM, .size = EXTRA_BYTES};
static struct kvt_run run = {.piece_count = 1, .piece_bytes = 64};
static const struct kvt_layout_options layout_about = {
    .struct_size = sizeof(layout_about), .run_count = 1, .runs = &run, .slot_count = 1};
static struct kvt_put put = {.source = out.bytes, .length = HBM_BLOCK_BYTES};
static struct kvt_put reserved = {.length = HBM_BLOCK_BYTES};
static struct kvt_get get = {.destination = got.text, .capacity = sizeof(got.text)};
static int a_stream; /* Nobody may look at it. */
static uint32_t cursor;
static uint64_t long_cursor;
static const struct kvt_file_load_options load_about = {
    .struct_size = sizeof(load_about), .length = KVT_LOAD_TO_END};
static const struct kvt_engram_source source = {.struct_size = sizeof(source), .name = "table"};

/* --- 1. Every call ---------------------------------------------------------------------------- */

static int
table_visit(void *context, const struct kvt_engram_info *info)
{
    (void)context;
    (void)info;
    return 1;
}

#define CALL(name, call)              \
    static enum kvt_status name(void) \
    {                                 \
        return call;                  \
    }

CALL(flush_call, kvt_flush(hbm.store))
CALL(options_call, kvt_options_get(hbm.store, &got.options))
CALL(stats_call, kvt_stats_get(hbm.store, &got.stats))
CALL(health_call, kvt_health(hbm.store, &got.count))
CALL(namespace_call, kvt_namespace_open(hbm.store, "forked", "", 0, &got.ns))
CALL(clear_call, kvt_namespace_clear(hbm.store, hbm.ns))
CALL(next_call, kvt_namespace_next(hbm.store, &cursor, &got.info))
CALL(configure_call, kvt_namespace_configure(hbm.store, hbm.ns, &plain))
CALL(share_call, kvt_namespace_share_set(hbm.store, hbm.ns, KVT_TIER_HOST, 4096))
CALL(lookup_call, kvt_lookup(hbm.store, hbm.ns, out.keys, 1, NULL, NULL, &got.lease))
CALL(lookup_prefetch_call, kvt_lookup_prefetch(hbm.store, hbm.ns, out.keys, 1, &to_host, NULL, NULL,
                               &got.lease, &got.ticket))
CALL(match_call,
    kvt_match(hbm.store, hbm.ns, out.keys, 1, &component, 1, &got.count, NULL, &got.lease))
CALL(touch_call, kvt_touch(hbm.store, hbm.ns, out.keys, 1))
CALL(pin_call, kvt_pin(hbm.store, hbm.ns, out.keys, 1, KVT_FOREVER))
CALL(importance_call, kvt_importance_set(hbm.store, hbm.ns, out.keys, 1, 1))
CALL(phase_call, kvt_phase_set(hbm.store, hbm.ns, out.keys, 1, KVT_PHASE_IO_WAIT, KVT_FOREVER))
CALL(estimate_call, kvt_estimate(hbm.store, hbm.ns, out.keys, 1, &got.cost))
CALL(address_call,
    kvt_lease_address(hbm.store, out.lease, 0, KVT_TIER_HOST, &got.address, &got.length))
CALL(export_call, kvt_lease_export(hbm.store, out.lease, 0, KVT_TIER_HOST, &got.locator))
CALL(locator_call, kvt_locator_check(hbm.store, &out.locator))
CALL(release_after_call, kvt_lease_release_after(hbm.store, out.lease, 0, &a_stream))
CALL(queue_call, kvt_queue_create(hbm.store, &got.queue))
CALL(destroy_call, kvt_queue_destroy(out.queue))
CALL(poll_call, kvt_queue_poll(out.queue, &got.done, 1, 0, &got.count))
CALL(drain_call, kvt_queue_drain(out.queue, 0))
CALL(wait_call, kvt_ticket_wait(out.ticket, KVT_STAGE_DONE, KVT_FOREVER))
CALL(results_call, kvt_ticket_results(out.ticket, KVT_STAGE_DONE, &got.result, 1))
CALL(cancel_call, kvt_ticket_cancel(out.queued_ticket))
CALL(part_wait_call, kvt_ticket_part_wait(out.ticket, 0, KVT_FOREVER))
CALL(stream_wait_call, kvt_ticket_stream_wait(out.ticket, 0, 0, &a_stream))
CALL(hold_call, kvt_hold_submit(out.ticket, 0, out.stream, 0, &got.hold))
CALL(hold_free_call, kvt_hold_free(out.hold))
CALL(put_call, kvt_put_submit(hbm.store, hbm.ns, &put, 1, KVT_SYNC, NULL, &got.ticket))
CALL(get_call, kvt_get_submit(hbm.store, hbm.ns, &get, 1, NULL, &got.ticket))
CALL(delete_call, kvt_delete_submit(hbm.store, hbm.ns, out.keys, NUMBERS, NULL, &got.ticket))
CALL(
    prefetch_call, kvt_prefetch_submit(hbm.store, hbm.ns, out.keys, 1, &to_host, NULL, &got.ticket))
CALL(demote_call,
    kvt_demote_submit(hbm.store, hbm.ns, out.keys, 1, KVT_TIER_NVME, NULL, &got.ticket))
CALL(reserve_call, kvt_reserve(hbm.store, hbm.ns, &reserved, &got.memory, &got.reservation))
CALL(commit_call, kvt_commit(out.reservation, KVT_SYNC, NULL, &got.ticket))
CALL(map_call, kvt_map(hbm.store, hbm.ns, out.keys, 0, &got.lease, &got.address, &got.length))
CALL(region_call, kvt_region_register(hbm.store, &region_about, &got.region))
CALL(unregister_call, kvt_region_unregister(hbm.store, hbm.region))
CALL(layout_call, kvt_layout_register(hbm.store, &layout_about, &got.layout))
CALL(layout_end_call, kvt_layout_unregister(hbm.store, out.layout))
CALL(events_call, kvt_events_read(hbm.store, &long_cursor, &got.event, 1, &got.count))
CALL(scan_call, kvt_scan(hbm.store, &long_cursor, &got.entry, 1, &got.count))
CALL(table_call, kvt_engram_open(hbm.store, "table", &got.table))
CALL(tables_call, kvt_engram_list(hbm.store, table_visit, NULL))
CALL(drop_call, kvt_engram_drop(hbm.store, "table"))
CALL(import_call, kvt_engram_import(hbm.store, &source))
CALL(why_call, kvt_why(hbm.store, hbm.ns, out.keys, &got.why))
CALL(load_call, kvt_file_load(hbm.store, "file", &load_about, &got.load))
CALL(load_count_call, kvt_load_chunk_count(hbm.store, out.load, &got.count))
CALL(load_wait_call, kvt_load_wait(hbm.store, out.load, 0, KVT_FOREVER, NULL))
CALL(load_stream_wait_call, kvt_load_stream_wait(hbm.store, out.load, 0, &a_stream, NULL))
CALL(load_cancel_call, kvt_load_cancel(hbm.store, out.load))
CALL(load_release_call, kvt_load_release(hbm.store, out.load, NULL, 0))
CALL(load_close_call, kvt_load_close(hbm.store, out.load))
CALL(shared_call, kvt_engram_open_shared(hbm.store, 0, &got.table))
CALL(hbm_export_call, kvt_hbm_export(hbm.store, 0, &got.share, &got.descriptor))
CALL(facts_call, kvt_block_facts_get(hbm.store, &got.entry, 1, &got.facts))
CALL(description_call,
    kvt_namespace_description(hbm.store, hbm.ns, got.text, sizeof(got.text), &(size_t){0}))
CALL(caps_call, kvt_caps_json(hbm.store, got.text, sizeof(got.text)))
CALL(scrub_call, kvt_scrub(hbm.store, hbm.ns, NULL, &got.report))
CALL(alloc_call, kvt_device_alloc(hbm.store, 0, EXTRA_BYTES, &got.memory))
CALL(write_call, kvt_device_write(hbm.store, 0, out.extra, out.bytes, 64))
CALL(read_call, kvt_device_read(hbm.store, 0, out.bytes, out.extra, 64))

static const struct {
    const char *name;
    enum kvt_status (*run)(void);
    const void *handle; /* Four bytes of it at least are zero when the call was refused. */
    bool is_for_the_poisoned;
} calls[] = {
    {"kvt_flush", flush_call, NULL, false},
    {"kvt_engram_open", table_call, &got.table, false},
    {"kvt_engram_list", tables_call, NULL, false},
    {"kvt_engram_open_shared", shared_call, &got.table, false},
    {"kvt_engram_drop", drop_call, NULL, false},
    {"kvt_engram_import", import_call, NULL, false},
    {"kvt_file_load", load_call, &got.load, false},
    {"kvt_load_chunk_count", load_count_call, NULL, false},
    {"kvt_load_wait", load_wait_call, NULL, false},
    {"kvt_load_stream_wait", load_stream_wait_call, NULL, false},
    {"kvt_load_cancel", load_cancel_call, NULL, false},
    {"kvt_load_release", load_release_call, NULL, false},
    {"kvt_load_close", load_close_call, NULL, false},
    {"kvt_hbm_export", hbm_export_call, NULL, false},
    {"kvt_options_get", options_call, NULL, false},
    {"kvt_stats_get", stats_call, NULL, false},
    {"kvt_health", health_call, NULL, true},
    {"kvt_namespace_open", namespace_call, &got.ns, false},
    {"kvt_namespace_clear", clear_call, NULL, false},
    {"kvt_namespace_next", next_call, NULL, false},
    {"kvt_namespace_configure", configure_call, NULL, false},
    {"kvt_namespace_share_set", share_call, NULL, false},
    {"kvt_lookup", lookup_call, &got.lease, false},
    {"kvt_lookup_prefetch", lookup_prefetch_call, &got.lease, false},
    {"kvt_match", match_call, &got.lease, false},
    {"kvt_touch", touch_call, NULL, false},
    {"kvt_pin", pin_call, NULL, false},
    {"kvt_importance_set", importance_call, NULL, false},
    {"kvt_phase_set", phase_call, NULL, false},
    {"kvt_estimate", estimate_call, NULL, false},
    {"kvt_lease_address", address_call, NULL, false},
    {"kvt_lease_export", export_call, NULL, false},
    {"kvt_locator_check", locator_call, NULL, false},
    {"kvt_lease_release_after", release_after_call, NULL, false},
    {"kvt_queue_create", queue_call, &got.queue, false},
    {"kvt_queue_destroy", destroy_call, NULL, true},
    {"kvt_queue_poll", poll_call, NULL, false},
    {"kvt_queue_drain", drain_call, NULL, false},
    {"kvt_ticket_wait", wait_call, NULL, false},
    {"kvt_ticket_results", results_call, NULL, false},
    {"kvt_ticket_cancel", cancel_call, NULL, false},
    {"kvt_ticket_part_wait", part_wait_call, NULL, false},
    {"kvt_ticket_stream_wait", stream_wait_call, NULL, false},
    {"kvt_hold_submit", hold_call, &got.hold, false},
    {"kvt_hold_free", hold_free_call, NULL, false},
    {"kvt_put_submit", put_call, &got.ticket, false},
    {"kvt_get_submit", get_call, &got.ticket, false},
    {"kvt_delete_submit", delete_call, &got.ticket, false},
    {"kvt_prefetch_submit", prefetch_call, &got.ticket, false},
    {"kvt_demote_submit", demote_call, &got.ticket, false},
    {"kvt_reserve", reserve_call, &got.reservation, false},
    {"kvt_commit", commit_call, &got.ticket, false},
    {"kvt_map", map_call, &got.lease, false},
    {"kvt_region_register", region_call, &got.region, false},
    {"kvt_region_unregister", unregister_call, NULL, false},
    {"kvt_layout_register", layout_call, &got.layout, false},
    {"kvt_layout_unregister", layout_end_call, NULL, false},
    {"kvt_events_read", events_call, NULL, false},
    {"kvt_scan", scan_call, NULL, false},
    {"kvt_why", why_call, NULL, false},
    {"kvt_block_facts_get", facts_call, NULL, false},
    {"kvt_namespace_description", description_call, NULL, false},
    {"kvt_caps_json", caps_call, NULL, false},
    {"kvt_scrub", scrub_call, NULL, false},
    {"kvt_device_alloc", alloc_call, NULL, false},
    {"kvt_device_write", write_call, NULL, false},
    {"kvt_device_read", read_call, NULL, false},
};

/* False: a call was answered otherwise. Runs in a child too, where nothing may fail a test. */
static bool
all_are_refused(enum kvt_status wanted, const char *word)
{
    static const uint8_t none[sizeof(uint32_t)];
    bool is_right = true;

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        struct kvt_error error;
        enum kvt_status status;

        if (wanted == KVT_E_POISONED && calls[i].is_for_the_poisoned)
            continue;
        memset(&got, GONE, sizeof(got));
        got.options.struct_size = sizeof(got.options);
        got.stats.struct_size = sizeof(got.stats);
        got.cost.struct_size = sizeof(got.cost);
        got.why.struct_size = sizeof(got.why);
        got.report.struct_size = sizeof(got.report);
        status = calls[i].run();
        kvt_last_error(&error);
        if (status == wanted && error.status == wanted && strstr(error.text, word) != NULL &&
            (calls[i].handle == NULL || memcmp(calls[i].handle, none, sizeof(none)) == 0))
            continue;
        (void)fprintf(stderr, "%s: %s, \"%s\"\n", calls[i].name, kvt_status_name(status),
            error.status == status ? error.text : "a handle is left");
        is_right = false;
    }
    return is_right;
}

/* --- 2. The parent's ---------------------------------------------------------------------- */

static int
setup(void **state)
{
    assert_int_equal(hbm_setup(state), 0);
    for (uint32_t i = 0; i < NUMBERS; i++) {
        payload_key_make(&out.names[i], i);
        out.keys[i] = out.names[i].key;
    }
    put.key = out.keys[ABSENT];
    reserved.key = out.keys[RESERVED];
    get.key = out.keys[LEASED];
    run.address = out.bytes;
    return 0;
}

/* One handle of each kind is out. */
static void
take_all(void)
{
    struct kvt_get by_part = {.key = out.keys[GOTTEN],
        .destination = hbm_pool_at(0),
        .capacity = HBM_BLOCK_BYTES,
        .region = hbm.region,
        .flags = KVT_GET_BY_PART,
        .part_count = 1};
    struct kvt_submit submit = {0};
    char path[KIT_PATH_BYTES + 16];

    assert_int_equal(kit_put(hbm.store, hbm.ns, LEASED, 1, HBM_BLOCK_BYTES, KVT_SYNC), KVT_OK);
    assert_int_equal(kit_put(hbm.store, hbm.ns, GOTTEN, 1, HBM_BLOCK_BYTES, KVT_SYNC), KVT_OK);
    assert_int_equal(
        kvt_lookup(hbm.store, hbm.ns, &out.keys[LEASED], 1, NULL, NULL, &out.lease), KVT_OK);
    assert_int_equal(
        kvt_lease_export(hbm.store, out.lease, 0, KVT_TIER_HOST, &out.locator), KVT_OK);
    assert_int_equal(kvt_queue_create(hbm.store, &out.queue), KVT_OK);
    assert_int_equal(kvt_get_submit(hbm.store, hbm.ns, &by_part, 1, NULL, &out.ticket), KVT_OK);
    assert_int_equal(
        device_host_stream_create(hbm_device(hbm.store->devices.tiers[0]), &out.stream), KVT_OK);
    assert_int_equal(kvt_hold_submit(out.ticket, 0, out.stream, 0, &out.hold), KVT_OK);
    submit.queue = out.queue;
    assert_int_equal(kvt_prefetch_submit(hbm.store, hbm.ns, &out.keys[LEASED], 1, &to_host, &submit,
                         &out.queued_ticket),
        KVT_OK);
    assert_int_equal(
        kvt_reserve(hbm.store, hbm.ns, &reserved, &out.reserved, &out.reservation), KVT_OK);
    assert_int_equal(kvt_layout_register(hbm.store, &layout_about, &out.layout), KVT_OK);
    snprintf(path, sizeof(path), "%s/STORE.a", hbm.path);
    assert_int_equal(kvt_file_load(hbm.store, path, &load_about, &out.load), KVT_OK);
    assert_int_equal(kvt_device_alloc(hbm.store, 0, EXTRA_BYTES, &out.extra), KVT_OK);
    region_about.address = out.extra;
}

/* Each of them is as it was, and can be used and given back. */
static void
use_all(void)
{
    struct kvt_completion done;
    uint64_t length, version = 0;
    struct kvt_result result;
    const void *address;
    uint32_t count;

    assert_int_equal(
        kvt_lease_address(hbm.store, out.lease, 0, KVT_TIER_HOST, &address, &length), KVT_OK);
    assert_true(payload_is_right(address, length, LEASED, &version));
    assert_int_equal(kvt_locator_check(hbm.store, &out.locator), KVT_OK);
    kvt_lease_release(hbm.store, out.lease);
    hbm_stream_finish(hbm_device(hbm.store->devices.tiers[0]), out.stream);
    assert_int_equal(kvt_hold_statuses(out.hold)[0], KVT_OK);
    assert_int_equal(kvt_hold_free(out.hold), KVT_OK);
    device_host_stream_destroy(hbm_device(hbm.store->devices.tiers[0]), out.stream);
    result = kit_result(out.ticket, KVT_STAGE_DONE);
    assert_int_equal(result.status, KVT_OK);
    assert_int_equal(
        kvt_device_read(hbm.store, 0, out.bytes, hbm_pool_at(0), HBM_BLOCK_BYTES), KVT_OK);
    assert_true(payload_is_right(out.bytes, HBM_BLOCK_BYTES, GOTTEN, &version));
    assert_int_equal(kvt_queue_poll(out.queue, &done, 1, KVT_FOREVER, &count), KVT_OK);
    assert_ptr_equal(done.ticket, out.queued_ticket);
    assert_int_equal(done.status, KVT_OK);
    kvt_ticket_free(out.queued_ticket);
    assert_int_equal(kvt_queue_destroy(out.queue), KVT_OK);
    payload_fill(out.reserved, HBM_BLOCK_BYTES, RESERVED, 1);
    assert_int_equal(kvt_commit(out.reservation, KVT_SYNC, NULL, &out.ticket), KVT_OK);
    assert_int_equal(kit_result(out.ticket, KVT_STAGE_DURABLE).status, KVT_OK);
    assert_int_equal(kvt_layout_unregister(hbm.store, out.layout), KVT_OK);
    assert_int_equal(kvt_load_wait(hbm.store, out.load, 0, KVT_FOREVER, NULL), KVT_OK);
    assert_int_equal(kvt_load_close(hbm.store, out.load), KVT_OK);
    kvt_device_free(hbm.store, 0, out.extra, EXTRA_BYTES);
}

static void
blocks_are_there(void)
{
    uint64_t version = 0;

    for (uint32_t i = LEASED; i <= RESERVED; i++) {
        if (i != QUEUED)
            assert_int_equal(kit_get(hbm.store, hbm.ns, i, &version), KVT_OK);
    }
    assert_int_equal(kit_get(hbm.store, hbm.ns, ABSENT, &version), KVT_MISS);
}

/* --- 3. The tests ----------------------------------------------------------------------------- */

/* What has no status does nothing. The exit code says what went wrong. */
static int
child_run(void)
{
    if (!all_are_refused(KVT_E_STATE, "process"))
        return 1;
    kvt_lease_release(hbm.store, out.lease);
    kvt_ticket_free(out.ticket);
    kvt_ticket_free(out.queued_ticket);
    kvt_discard(out.reservation);
    kvt_device_free(hbm.store, 0, out.extra, EXTRA_BYTES);
    if (kvt_queue_fd(out.queue) != -1 || kvt_hold_statuses(out.hold) != NULL)
        return 2;
    kvt_abort(hbm.store);
    /* It only forgets the handles, and can do that twice. */
    if (kvt_close(hbm.store) != KVT_OK || kvt_close(hbm.store) != KVT_OK)
        return 3;
    return 0;
}

static void
a_forked_child_is_refused_and_hurts_nothing(void **state)
{
    int outcome = -1;
    pid_t child;

    (void)state;
    take_all();
    for (uint32_t i = 0; i < 3; i++) {
        child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(child_run());
        assert_int_equal(waitpid(child, &outcome, 0), child);
        assert_true(WIFEXITED(outcome));
        assert_int_equal(WEXITSTATUS(outcome), 0);
    }
    use_all();
    blocks_are_there();
    hbm_close();
    hbm_open_again();
    blocks_are_there();
}

static void
a_poisoned_store_refuses_everything_but_its_end(void **state)
{
    uint32_t health;

    (void)state;
    take_all();
    /* Nothing is on its way any more. */
    assert_int_equal(kit_result(out.ticket, KVT_STAGE_DONE).status, KVT_OK);
    out.ticket = out.queued_ticket;
    atomic_store(&hbm.store->poisoned, 1);
    assert_true(all_are_refused(KVT_E_POISONED, "invariant"));
    assert_int_equal(kvt_health(hbm.store, &health), KVT_OK);
    kvt_lease_release(hbm.store, out.lease);
    kvt_device_free(hbm.store, 0, out.extra, EXTRA_BYTES);
    device_host_stream_destroy(hbm_device(hbm.store->devices.tiers[0]), out.stream);
    device_host_memory_put(hbm_device(hbm.store->devices.tiers[0]), hbm.pool,
        (uint64_t)HBM_POOL_BLOCKS * HBM_BLOCK_BYTES);
    assert_int_equal(kvt_close(hbm.store), KVT_OK);
    hbm_open_again();
}

/* Descriptors of memory that is shared. */
static uint32_t
memory_count(pid_t process)
{
    char folder[64];
    const struct dirent *entry;
    uint32_t count = 0;
    DIR *all;

    snprintf(folder, sizeof(folder), "/proc/%d/fd", (int)process);
    all = opendir(folder);
    assert_non_null(all);
    while ((entry = readdir(all)) != NULL) {
        char target[64] = {0};

        if (readlinkat(dirfd(all), entry->d_name, target, sizeof(target) - 1) > 0)
            count += strncmp(target, "/memfd:kvtier", strlen("/memfd:kvtier")) == 0;
    }
    assert_int_equal(closedir(all), 0);
    return count;
}

/* A child that lives on keeps nothing of a store that the parent has closed. */
static void
memory_that_is_shared_ends_with_the_parents_store(void **state)
{
    struct kvt_share share;
    int descriptor, go[2], there[2];
    char byte;
    pid_t child;

    (void)state;
    hbm_close();
    hbm.options.flags = KVT_OPEN_SHARE_HBM;
    hbm_open_again();
    assert_int_equal(kvt_hbm_export(hbm.store, 0, &share, &descriptor), KVT_OK);
    assert_int_equal(memory_count(getpid()), 1);
    assert_int_equal(pipe(go) + pipe(there), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)close(go[1]);
        _exit(write(there[1], "", 1) == 1 && read(go[0], &byte, 1) == 0 ? 0 : 1);
    }
    assert_int_equal(read(there[0], &byte, 1), 1); /* What a fork does there is done. */
    hbm_close();
    assert_int_equal(memory_count(getpid()), 0);
    assert_int_equal(memory_count(child), 0);
    assert_int_equal(close(go[0]) + close(go[1]) + close(there[0]) + close(there[1]), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_forked_child_is_refused_and_hurts_nothing, setup, hbm_teardown),
        cmocka_unit_test_setup_teardown(
            a_poisoned_store_refuses_everything_but_its_end, setup, hbm_teardown),
        cmocka_unit_test_setup_teardown(
            memory_that_is_shared_ends_with_the_parents_store, hbm_setup, hbm_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
