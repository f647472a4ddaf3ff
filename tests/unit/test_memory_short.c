/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_memory_short.c - every call that may say KVT_E_NOMEM says it, changes nothing by it, and
 * works when it is asked again; those that do not name it take no memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kvtier/kvtier_unstable.h"
#include "payload.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_kit.h"

enum {
    COUNT_ALL = 100, /* More than a lease has room for without an array. */
    BLOCK_BYTES = 8192,
    TRIES_MAX = 200,
};

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;
static struct payload_key names[2 * COUNT_ALL];
static struct kvt_key keys[2 * COUNT_ALL];
static uint8_t bytes[COUNT_ALL][BLOCK_BYTES];
static uint8_t *pages; /* Host memory that can be registered. */
static uint8_t *device_pages;

/* The blocks 0..COUNT_ALL - 1 are there, in HOST. */
static int
setup(void **state)
{
    struct kvt_options options = kit_options();

    (void)state;
    options.hbm_capacity_bytes = 2 << 20;
    options.event_count_max = 256;
    sim_store_open(&sim, &options);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "short", "", 0, &ns), KVT_OK);
    for (uint32_t i = 0; i < 2 * COUNT_ALL; i++) {
        payload_key_make(&names[i], i);
        keys[i] = names[i].key;
        if (i < COUNT_ALL)
            assert_int_equal(kit_put(store, ns, i, 1, BLOCK_BYTES, KVT_MEMORY), KVT_OK);
    }
    pages = aligned_alloc(4096, BLOCK_BYTES);
    assert_non_null(pages);
    assert_int_equal(kvt_device_alloc(store, 0, BLOCK_BYTES, (void **)&device_pages), KVT_OK);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    kvt_device_free(store, 0, device_pages, BLOCK_BYTES);
    free(pages);
    sim_store_close(&sim);
    return 0;
}

/* --- 1. Each call once, and what it gave taken back ------------------------------------------- */

static void
ticket_end(enum kvt_status status, kvt_ticket *ticket)
{
    if (status != KVT_OK) {
        assert_null(ticket);
        return;
    }
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
}

static enum kvt_status
lookup_call(void)
{
    kvt_lease lease;
    enum kvt_status status = kvt_lookup(store, ns, keys, COUNT_ALL, NULL, NULL, &lease);

    kvt_lease_release(store, lease);
    return status;
}

static enum kvt_status
touch_call(void)
{
    return kvt_touch(store, ns, keys, COUNT_ALL);
}

static enum kvt_status
match_call(void)
{
    const struct kvt_match_component component = {.policy = KVT_MATCH_ALL};
    uint32_t usable;
    kvt_lease lease;
    enum kvt_status status =
        kvt_match(store, ns, keys, COUNT_ALL, &component, 1, &usable, NULL, &lease);

    kvt_lease_release(store, lease);
    return status;
}

static enum kvt_status
queue_call(void)
{
    kvt_queue *queue;
    enum kvt_status status = kvt_queue_create(store, &queue);

    assert_int_equal(kvt_queue_destroy(queue), KVT_OK);
    return status;
}

static enum kvt_status
put_call(void)
{
    struct kvt_put puts[COUNT_ALL];
    kvt_ticket *ticket;
    enum kvt_status status;

    for (uint32_t i = 0; i < COUNT_ALL; i++)
        puts[i] =
            (struct kvt_put){.key = keys[COUNT_ALL + i], .source = bytes[i], .length = BLOCK_BYTES};
    status = kvt_put_submit(store, ns, puts, COUNT_ALL, KVT_MEMORY, NULL, &ticket);
    ticket_end(status, ticket);
    return status;
}

static enum kvt_status
get_call(void)
{
    struct kvt_get gets[COUNT_ALL];
    kvt_ticket *ticket;
    enum kvt_status status;

    for (uint32_t i = 0; i < COUNT_ALL; i++)
        gets[i] =
            (struct kvt_get){.key = keys[i], .destination = bytes[i], .capacity = BLOCK_BYTES};
    status = kvt_get_submit(store, ns, gets, COUNT_ALL, NULL, &ticket);
    ticket_end(status, ticket);
    return status;
}

static enum kvt_status
delete_call(void)
{
    kvt_ticket *ticket;
    enum kvt_status status =
        kvt_delete_submit(store, ns, keys + COUNT_ALL, COUNT_ALL, NULL, &ticket);

    ticket_end(status, ticket);
    return status;
}

static enum kvt_status
prefetch_call(void)
{
    const struct kvt_prefetch how = {.struct_size = sizeof(how), .tier = KVT_TIER_HBM};
    kvt_ticket *ticket;
    enum kvt_status status = kvt_prefetch_submit(store, ns, keys, COUNT_ALL, &how, NULL, &ticket);

    ticket_end(status, ticket);
    return status;
}

static enum kvt_status
lookup_prefetch_call(void)
{
    const struct kvt_prefetch how = {.struct_size = sizeof(how), .tier = KVT_TIER_HBM};
    kvt_ticket *ticket;
    kvt_lease lease;
    enum kvt_status status =
        kvt_lookup_prefetch(store, ns, keys, COUNT_ALL, &how, NULL, NULL, &lease, &ticket);

    kvt_ticket_free(ticket);
    kvt_lease_release(store, lease);
    return status;
}

static enum kvt_status
demote_call(void)
{
    kvt_ticket *ticket;
    enum kvt_status status =
        kvt_demote_submit(store, ns, keys, COUNT_ALL, KVT_TIER_NVME, NULL, &ticket);

    ticket_end(status, ticket);
    return status;
}

static enum kvt_status
reserve_call(void)
{
    struct kvt_put put = {.key = keys[2 * COUNT_ALL - 1], .length = BLOCK_BYTES};
    kvt_reservation *reservation;
    void *address;
    enum kvt_status status = kvt_reserve(store, ns, &put, &address, &reservation);

    kvt_discard(reservation);
    return status;
}

static enum kvt_status
commit_call(void)
{
    struct kvt_put put = {
        .key = keys[2 * COUNT_ALL - 1], .length = BLOCK_BYTES, .flags = KVT_PUT_REPLACE};
    kvt_reservation *reservation;
    kvt_ticket *ticket;
    enum kvt_status status;
    void *address;

    status = kvt_reserve(store, ns, &put, &address, &reservation);
    if (status != KVT_OK)
        return status;
    memset(address, 7, BLOCK_BYTES);
    status = kvt_commit(reservation, KVT_MEMORY, NULL, &ticket);
    ticket_end(status, ticket);
    if (status != KVT_OK)
        kvt_discard(reservation); /* As it was before. */
    return status;
}

/* The block is on NVMe only. */
static void
map_prepare(void)
{
    kvt_ticket *ticket;

    assert_int_equal(kvt_demote_submit(store, ns, keys, 1, KVT_TIER_NVME, NULL, &ticket), KVT_OK);
    ticket_end(KVT_OK, ticket);
}

static enum kvt_status
map_call(void)
{
    const void *address;
    uint64_t length;
    kvt_lease lease;
    enum kvt_status status = kvt_map(store, ns, &keys[0], KVT_FOREVER, &lease, &address, &length);

    kvt_lease_release(store, lease);
    return status;
}

static enum kvt_status
importance_call(void)
{
    return kvt_importance_set(store, ns, keys, COUNT_ALL, 3);
}

static enum kvt_status
pin_call(void)
{
    enum kvt_status status = kvt_pin(store, ns, keys, COUNT_ALL, KVT_FOREVER);
    struct kvt_stats stats = {.struct_size = sizeof(stats)};

    /* All of them, or none. */
    assert_int_equal(kvt_stats_get(store, &stats), KVT_OK);
    assert_int_equal(stats.pin_count_now, status == KVT_OK ? COUNT_ALL : 0);
    return status;
}

static enum kvt_status
estimate_call(void)
{
    struct kvt_cost cost = {.struct_size = sizeof(cost)};

    return kvt_estimate(store, ns, keys, COUNT_ALL, &cost);
}

/* It gives HBM up, and has it back. */
static enum kvt_status
phase_call(void)
{
    enum kvt_status status =
        kvt_phase_set(store, ns, keys, COUNT_ALL, KVT_PHASE_IO_WAIT, KVT_FOREVER);

    if (status == KVT_OK)
        status = kvt_phase_set(store, ns, keys, COUNT_ALL, KVT_PHASE_DECODE, 0);
    return status;
}

static enum kvt_status
register_call(void)
{
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HOST, .address = pages, .size = BLOCK_BYTES};
    kvt_region region = {0};
    enum kvt_status status = kvt_region_register(store, &about, &region);

    assert_int_equal(kvt_region_unregister(store, region), KVT_OK);
    return status;
}

static enum kvt_status
alloc_call(void)
{
    void *address = NULL;
    enum kvt_status status = kvt_device_alloc(store, 0, 4096, &address);

    kvt_device_free(store, 0, address, 4096);
    return status;
}

static enum kvt_status
write_call(void)
{
    return kvt_device_write(store, 0, device_pages, bytes[0], BLOCK_BYTES);
}

static enum kvt_status
read_call(void)
{
    return kvt_device_read(store, 0, bytes[0], device_pages, BLOCK_BYTES);
}

static enum kvt_status
release_after_call(void)
{
    struct device *device = sim_store_device(store);
    enum kvt_status status;
    kvt_lease lease;

    status = kvt_lookup(store, ns, keys, 1, NULL, NULL, &lease);
    if (status != KVT_OK)
        return status;
    status = kvt_lease_release_after(store, lease, 0, device->ops->stream(device, DEVICE_OUT));
    if (status != KVT_OK)
        kvt_lease_release(store, lease); /* It is still ours. */
    return status;
}

/* The blocks are in HBM. */
static void
phase_prepare(void)
{
    assert_int_equal(prefetch_call(), KVT_OK);
}

/* The driver has no memory either. */
static void
driver_prepare(void)
{
    sim.device.fail_call = atomic_load(&sim.device.call_count) + 1;
    sim.device.fail_status = KVT_E_NOMEM;
}

static enum kvt_status
namespace_call(void)
{
    static uint32_t number;
    kvt_namespace another;
    char name[32];

    snprintf(name, sizeof(name), "another %u", number++);
    return kvt_namespace_open(store, name, "", 0, &another);
}

static enum kvt_status
clear_call(void)
{
    return kvt_namespace_clear(store, ns);
}

/* The last: what it clears is not needed any more. */
static const struct {
    const char *name;
    enum kvt_status (*run)(void);
    void (*prepare)(void);
} calls[] = {
    {"kvt_lookup", lookup_call, NULL},
    {"kvt_touch", touch_call, NULL},
    {"kvt_match", match_call, NULL},
    {"kvt_queue_create", queue_call, NULL},
    {"kvt_put_submit", put_call, NULL},
    {"kvt_get_submit", get_call, NULL},
    {"kvt_delete_submit", delete_call, NULL},
    {"kvt_prefetch_submit", prefetch_call, NULL},
    {"kvt_lookup_prefetch", lookup_prefetch_call, NULL},
    {"kvt_reserve", reserve_call, NULL},
    {"kvt_commit", commit_call, NULL},
    {"kvt_demote_submit", demote_call, NULL},
    {"kvt_map", map_call, map_prepare},
    {"kvt_importance_set", importance_call, NULL},
    {"kvt_pin", pin_call, NULL},
    {"kvt_estimate", estimate_call, NULL},
    {"kvt_phase_set", phase_call, phase_prepare},
    {"kvt_region_register", register_call, driver_prepare},
    {"kvt_device_alloc", alloc_call, driver_prepare},
    {"kvt_device_write", write_call, driver_prepare},
    {"kvt_device_read", read_call, driver_prepare},
    {"kvt_lease_release_after", release_after_call, driver_prepare},
    {"kvt_namespace_open", namespace_call, NULL},
    {"kvt_namespace_clear", clear_call, NULL},
};

/* --- 2. The tests ----------------------------------------------------------------------------- */

/* In a store of its own: what one call takes is kept for the next. */
static void
call_is_short_of_memory(uint32_t i)
{
    uint32_t refused_count = 0;
    bool has_fired = true;

    assert_int_equal(setup(NULL), 0);
    for (uint64_t n = 1; has_fired && n < TRIES_MAX; n++) {
        enum kvt_status status;
        uint64_t asked;

        if (calls[i].prepare != NULL)
            calls[i].prepare();
        asked = sim_memory_asked(sim.world);
        sim_memory_fail(sim.world, n, false);
        status = calls[i].run();
        has_fired = sim_memory_asked(sim.world) - asked >= n;
        sim_memory_fail(sim.world, 0, false);
        if (status == KVT_E_NOMEM)
            refused_count++;
        /* What cannot be read is a miss, whatever the reason. */
        if (status == KVT_MISS && calls[i].run == map_call)
            continue;
        if (status != KVT_OK && status != KVT_E_NOMEM)
            fail_msg(
                "%s: allocation %u fails: %s", calls[i].name, (unsigned)n, kvt_status_name(status));
    }
    if (has_fired || refused_count == 0)
        fail_msg("%s said KVT_E_NOMEM %u times", calls[i].name, refused_count);
    assert_int_equal(calls[i].run(), KVT_OK);
    assert_int_equal(kvt_pin(store, ns, keys, COUNT_ALL, 0) >= 0, 1);
    assert_int_equal(teardown(NULL), 0);
}

static void
a_call_without_memory_says_so_and_works_later(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        call_is_short_of_memory(i);
}

/* What a caller needs to get out of trouble works without memory. */
static void
calls_that_name_no_such_status_take_no_memory(void **state)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};
    struct kvt_put put = {.key = keys[COUNT_ALL], .source = bytes[0], .length = BLOCK_BYTES};
    struct kvt_put reserved = {.key = keys[COUNT_ALL + 1], .length = BLOCK_BYTES};
    struct kvt_event events[4];
    struct kvt_result result;
    struct kvt_locator locator;
    struct kvt_scan_entry entry;
    kvt_reservation *reservation;
    kvt_ticket *ticket;
    kvt_queue *queue;
    const void *seen;
    void *address;
    uint64_t asked, length, cursor = 0, event_cursor = 0;
    uint32_t count, health;
    kvt_lease lease;

    (void)state;
    assert_int_equal(kvt_lookup(store, ns, keys, 2, NULL, NULL, &lease), KVT_OK);
    assert_int_equal(kvt_queue_create(store, &queue), KVT_OK);
    assert_int_equal(kvt_reserve(store, ns, &reserved, &address, &reservation), KVT_OK);
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, KVT_SYNC, NULL, &ticket), KVT_OK);
    asked = sim_memory_asked(sim.world);
    sim_memory_fail(sim.world, 1, true);
    assert_int_equal(kvt_ticket_cancel(ticket), KVT_OK);
    assert_int_equal(kvt_events_read(store, &event_cursor, events, 4, &count), KVT_OK);
    assert_int_equal(count, 4);
    assert_int_equal(kvt_lease_address(store, lease, 0, KVT_TIER_HOST, &seen, &length), KVT_OK);
    assert_int_equal(kvt_lease_export(store, lease, 0, KVT_TIER_HOST, &locator), KVT_OK);
    assert_int_equal(kvt_locator_check(store, &locator), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DURABLE, &result, 1), KVT_OK);
    assert_int_equal(result.status, KVT_CANCELLED);
    kvt_ticket_free(ticket);
    kvt_discard(reservation);
    kvt_lease_release(store, lease);
    assert_int_equal(kvt_queue_drain(queue, 0), KVT_OK);
    assert_int_equal(kvt_queue_destroy(queue), KVT_OK);
    assert_int_equal(kvt_health(store, &health), KVT_OK);
    assert_int_equal(kvt_stats_get(store, &stats), KVT_OK);
    assert_int_equal(kvt_scan(store, &cursor, &entry, 1, &count), KVT_OK);
    assert_int_equal(kvt_flush(store), KVT_OK);
    assert_int_equal(sim_memory_asked(sim.world), asked);
    sim_memory_fail(sim.world, 0, false);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_without_memory_says_so_and_works_later),
        cmocka_unit_test_setup_teardown(
            calls_that_name_no_such_status_take_no_memory, setup, teardown),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
