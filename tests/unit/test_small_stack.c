/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_small_stack.c - no call of the library takes more of its caller's stack than kvtier.h says.
 *
 * A thread makes the calls on a stack that was filled with one byte; where that byte is gone, the
 * stack was in use. What the thread finds it only notes: cmocka jumps, and not between threads.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "engram_rig.h"
#include "kvtier/kvtier.h"
#include "kvtier/kvtier_unstable.h"
#include "payload.h"
#include "stop_on_proof.h"
#include "store_kit.h"

enum {
    STACK_BYTES = 1 << 20,
    STACK_PROMISED = 64 << 10, /* kvtier.h, of a call. */
    FILL = 0x5A,
    BLOCK_BYTES = 8192,
    COUNT = 200, /* Keys of one call. */
};

static struct {
    char dir[KIT_PATH_BYTES];
    char path[KIT_PATH_BYTES + 16];
    struct kvt_options options;
    kvt_store *store;
    kvt_namespace ns;
    struct payload_key names[COUNT];
    struct kvt_key keys[COUNT];
    uint8_t *stack;
    int failed_line; /* The first that went wrong; 0: none did. */
    enum kvt_status failed_status;
} it;

#define NOTE(call) note((call), __LINE__)

static void
note(enum kvt_status status, int line)
{
    if (status < 0 && it.failed_line == 0) {
        it.failed_line = line;
        it.failed_status = status;
    }
}

/* --- Calls (the thread) ----------------------------------------------------------------------- */

static void
ticket_end(kvt_ticket *ticket, uint32_t stage)
{
    static struct kvt_result results[COUNT];

    NOTE(kvt_ticket_wait(ticket, stage, KVT_FOREVER));
    NOTE(kvt_ticket_results(ticket, stage, results, COUNT));
    kvt_ticket_free(ticket);
}

static void
store_begin(void)
{
    NOTE(kvt_open(it.path, &it.options, &it.store));
    NOTE(kvt_namespace_open(it.store, "space", "model", 5, &it.ns));
}

static void
blocks_put(enum kvt_durability durability)
{
    static uint8_t bytes[BLOCK_BYTES];
    static struct kvt_put puts[COUNT];
    struct kvt_submit submit = {0};
    kvt_ticket *ticket = NULL;

    for (uint32_t i = 0; i < COUNT; i++)
        puts[i] = (struct kvt_put){.key = it.keys[i],
            .parent = i == 0 ? NULL : &it.keys[i - 1],
            .source = bytes,
            .length = BLOCK_BYTES,
            .part_count = 4,
            .flags = KVT_PUT_REPLACE};
    NOTE(kvt_put_submit(it.store, it.ns, puts, COUNT, durability, &submit, &ticket));
    ticket_end(ticket, durability == KVT_MEMORY ? KVT_STAGE_DONE : KVT_STAGE_DURABLE);
}

static void
blocks_get(uint32_t flags)
{
    static uint8_t bytes[COUNT][BLOCK_BYTES];
    static struct kvt_get gets[COUNT];
    struct kvt_submit submit = {0};
    kvt_ticket *ticket = NULL;

    for (uint32_t i = 0; i < COUNT; i++)
        gets[i] = (struct kvt_get){.key = it.keys[i],
            .destination = bytes[i],
            .capacity = BLOCK_BYTES,
            .part_count = flags == KVT_GET_BY_PART ? 4 : 0,
            .flags = flags};
    NOTE(kvt_get_submit(it.store, it.ns, gets, COUNT, &submit, &ticket));
    ticket_end(ticket, KVT_STAGE_DONE);
}

static void
blocks_look(void)
{
    static uint8_t tiers[COUNT];
    const struct kvt_match_component component = {.policy = KVT_MATCH_ALL};
    struct kvt_cost cost = {.struct_size = sizeof(cost)};
    struct kvt_explanation why = {.struct_size = sizeof(why)};
    const void *address;
    uint64_t length;
    uint32_t leading, usable;
    kvt_lease lease;

    NOTE(kvt_lookup(it.store, it.ns, it.keys, COUNT, tiers, &leading, &lease));
    kvt_lease_release(it.store, lease);
    NOTE(kvt_match(it.store, it.ns, it.keys, COUNT, &component, 1, &usable, NULL, &lease));
    kvt_lease_release(it.store, lease);
    NOTE(kvt_map(it.store, it.ns, &it.keys[0], KVT_FOREVER, &lease, &address, &length));
    kvt_lease_release(it.store, lease);
    NOTE(kvt_touch(it.store, it.ns, it.keys, COUNT));
    NOTE(kvt_pin(it.store, it.ns, it.keys, 4, 0));
    NOTE(kvt_importance_set(it.store, it.ns, it.keys, COUNT, 7));
    NOTE(kvt_estimate(it.store, it.ns, it.keys, COUNT, &cost));
    NOTE(kvt_phase_set(it.store, it.ns, it.keys, COUNT, KVT_PHASE_DECODE, 0));
    NOTE(kvt_why(it.store, it.ns, &it.keys[0], &why));
    NOTE(kvt_namespace_share_set(it.store, it.ns, KVT_TIER_HOST, 1 << 20));
    NOTE(kvt_namespace_share_set(it.store, it.ns, KVT_TIER_HOST, 0));
}

static void
blocks_move(void)
{
    const struct kvt_prefetch up = {.struct_size = sizeof(up), .tier = KVT_TIER_HOST};
    struct kvt_submit submit = {0};
    kvt_ticket *ticket = NULL;

    NOTE(kvt_demote_submit(it.store, it.ns, it.keys, COUNT, KVT_TIER_NVME, &submit, &ticket));
    ticket_end(ticket, KVT_STAGE_DONE);
    NOTE(kvt_prefetch_submit(it.store, it.ns, it.keys, COUNT, &up, &submit, &ticket));
    ticket_end(ticket, KVT_STAGE_DONE);
}

static void
store_show(void)
{
    static struct kvt_stats stats = {.struct_size = sizeof(stats)};
    static struct kvt_options options = {.struct_size = sizeof(options)};
    static struct kvt_scan_entry entries[COUNT];
    static struct kvt_event events[COUNT];
    static char json[8192];
    uint64_t scan_cursor = 0, event_cursor = 0;
    uint32_t count, flags;

    NOTE(kvt_stats_get(it.store, &stats));
    NOTE(kvt_options_get(it.store, &options));
    NOTE(kvt_health(it.store, &flags));
    NOTE(kvt_scan(it.store, &scan_cursor, entries, COUNT, &count));
    NOTE(kvt_events_read(it.store, &event_cursor, events, COUNT, &count));
    NOTE(kvt_machine_json(it.path, json, sizeof(json)));
    NOTE(kvt_flush(it.store));
}

static int
table_visit(void *context, const struct kvt_engram_info *info)
{
    (void)context;
    (void)info;
    return 1;
}

static void
table_use(void)
{
    static struct engram_rig rig;
    static uint8_t rows[8 * RIG_ROW_BYTES_MAX];
    static struct kvt_engram_findings findings;
    static uint32_t tokens[COUNT];
    const struct kvt_engram_sequence sequence = {.tokens = tokens, .token_count = COUNT};
    kvt_engram_hasher *hasher = NULL;
    kvt_engram_plan *plan = NULL;
    kvt_engram *table = NULL;

    engram_rig_init(&rig, "table", 264, 100);
    for (uint32_t i = 0; i < COUNT; i++)
        tokens[i] = i % rig.profile.class_count;
    NOTE(kvt_engram_hasher_open(&rig.profile, NULL, 0, &hasher));
    NOTE(kvt_engram_plan_create(hasher, COUNT, &plan));
    NOTE(kvt_engram_plan_fill(plan, &sequence, 1, KVT_ENGRAM_UNIQUE));
    kvt_engram_plan_destroy(plan);
    kvt_engram_hasher_close(hasher);
    NOTE(kvt_engram_import(it.store, &rig.source));
    NOTE(kvt_engram_list(it.store, table_visit, NULL));
    NOTE(kvt_engram_open(it.store, "table", &table));
    NOTE(kvt_engram_read(table, 0, 8, rows));
    NOTE(kvt_engram_verify(table, NULL, NULL, &findings));
    NOTE(kvt_engram_pin(table, KVT_ENGRAM_ROWS_ALL, 0));
    NOTE(kvt_engram_close(table));
    NOTE(kvt_engram_drop(it.store, "table"));
}

static void
blocks_end(void)
{
    struct kvt_submit submit = {0};
    kvt_ticket *ticket = NULL;

    NOTE(kvt_delete_submit(it.store, it.ns, it.keys, COUNT, &submit, &ticket));
    ticket_end(ticket, KVT_STAGE_DURABLE);
    NOTE(kvt_namespace_clear(it.store, it.ns));
}

static void *
calls_make(void *nothing)
{
    static struct kvt_check_report report = {.struct_size = sizeof(report)};

    store_begin();
    blocks_put(KVT_MEMORY);
    blocks_put(KVT_SYNC);
    blocks_get(0);
    blocks_get(KVT_GET_BY_PART);
    blocks_look();
    blocks_move();
    store_show();
    table_use();
    NOTE(kvt_close(it.store));
    NOTE(kvt_check(it.path, NULL, &report));
    it.options.flags = KVT_OPEN_REBUILD;
    store_begin();
    blocks_end();
    kvt_abort(it.store); /* The next open has to recover. */
    it.options.flags = 0;
    store_begin();
    NOTE(kvt_close(it.store));
    return nothing;
}

/* --- The stack -------------------------------------------------------------------------------- */

static size_t
stack_used(void)
{
    size_t untouched = 0;

    while (untouched < STACK_BYTES && it.stack[untouched] == FILL)
        untouched++;
    return STACK_BYTES - untouched;
}

/* A thread that does nothing has its own bytes there: its descriptor and its thread-locals. */
static void *
nothing_do(void *nothing)
{
    return nothing;
}

static size_t
thread_run(void *(*run)(void *nothing))
{
    pthread_attr_t attributes;
    pthread_t thread;

    memset(it.stack, FILL, STACK_BYTES);
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstack(&attributes, it.stack, STACK_BYTES), 0);
    assert_int_equal(pthread_create(&thread, &attributes, run, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(pthread_attr_destroy(&attributes), 0);
    return stack_used();
}

static void
a_call_takes_no_more_stack_than_is_promised(void **state)
{
    size_t bare, used;

    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
    skip(); /* Frames are larger there. */
#endif
    kit_dir_make(it.dir);
    (void)snprintf(it.path, sizeof(it.path), "%s/store", it.dir);
    it.options = kit_options();
    it.options.event_count_max = 64;
    for (uint32_t i = 0; i < COUNT; i++) {
        payload_key_make(&it.names[i], i);
        it.keys[i] = it.names[i].key;
    }
    it.stack = mmap(
        NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    assert_true(it.stack != MAP_FAILED);
    bare = thread_run(nothing_do);
    used = thread_run(calls_make);
    if (it.failed_line != 0)
        fail_msg("line %d: %s", it.failed_line, kvt_status_name(it.failed_status));
    print_message("%zu bytes, %zu of them the thread's own\n", used, bare);
    assert_in_range(used, bare, bare + STACK_PROMISED);
    assert_int_equal(munmap(it.stack, STACK_BYTES), 0);
    kit_dir_remove(it.dir);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_takes_no_more_stack_than_is_promised),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
