/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_bad_input.c - every public function with arguments that break its rules: a status, a
 * sentence that names the cause, and a store that has lost nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "kvtier/kvtier_unstable.h"
#include "store_kit.h"

#define HUGE_SIZE (UINT64_C(1) << 63)
struct fixture {
    char dir[KIT_PATH_BYTES];
    char path[KIT_PATH_BYTES + 16];
    kvt_store *store;
    kvt_namespace ns;
};

static int
setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    struct kvt_options options = kit_options();

    if (fixture == NULL)
        return -1;
    kit_dir_make(fixture->dir);
    snprintf(fixture->path, sizeof(fixture->path), "%s/store", fixture->dir);
    assert_int_equal(kvt_open(fixture->path, &options, &fixture->store), KVT_OK);
    assert_int_equal(kvt_namespace_open(fixture->store, "space", "model", 5, &fixture->ns), KVT_OK);
    assert_int_equal(kit_put(fixture->store, fixture->ns, 1, 1, 9000, KVT_SYNC), KVT_OK);
    assert_int_equal(kit_put(fixture->store, fixture->ns, 2, 1, 5000, KVT_SYNC), KVT_OK);
    *state = fixture;
    return 0;
}

/* Whatever was refused: the blocks of setup() are there, and the store closes. */
static int
teardown(void **state)
{
    struct fixture *fixture = *state;
    uint64_t version = 0;

    assert_int_equal(kit_get(fixture->store, fixture->ns, 1, &version), KVT_OK);
    assert_int_equal(version, 1);
    assert_int_equal(kit_get(fixture->store, fixture->ns, 2, &version), KVT_OK);
    assert_int_equal(kvt_close(fixture->store), KVT_OK);
    kit_dir_remove(fixture->dir);
    free(fixture);
    return 0;
}

/* --- Options ---------------------------------------------------------------------------------- */

static void
try_options(void **state, const struct kvt_options *options, enum kvt_status wanted,
    const char *word, int line)
{
    struct fixture *fixture = *state;
    char path[KIT_PATH_BYTES + 16];
    kvt_store *store = (kvt_store *)(uintptr_t)1;

    snprintf(path, sizeof(path), "%s/other", fixture->dir);
    enum kvt_status status = kvt_open(path, options, &store);
    kit_refused(status, wanted, word, line);
    if (store != NULL)
        fail_msg("line %d: the handle is not NULL", line);
}

/* One field set to a value that it must not have. */
#define refused_option(field, value, wanted)                       \
    do {                                                           \
        struct kvt_options options_ = kit_options();               \
        options_.field = (value);                                  \
        try_options(state, &options_, (wanted), #field, __LINE__); \
    } while (0)

static void
options_outside_their_bounds_are_refused_by_name(void **state)
{
    refused_option(flags, 0x80000000u, KVT_E_UNSUPPORTED);
    refused_option(host_capacity_bytes, 4096, KVT_E_INVAL);
    refused_option(host_capacity_bytes, KVT_CAPACITY_NONE, KVT_E_INVAL);
    refused_option(nvme_capacity_bytes, 1, KVT_E_INVAL);
    refused_option(nvme_capacity_bytes, 7 << 20, KVT_E_INVAL);
    refused_option(segment_bytes, 3 << 20, KVT_E_INVAL);
    refused_option(segment_bytes, 4096, KVT_E_INVAL);
    refused_option(segment_bytes, HUGE_SIZE, KVT_E_INVAL);
    refused_option(block_bytes_max, 1, KVT_E_INVAL);
    refused_option(block_bytes_max, 512 << 10, KVT_E_INVAL);
    refused_option(block_bytes_max, HUGE_SIZE, KVT_E_INVAL);
    refused_option(root_count, 9, KVT_E_INVAL);
    refused_option(root_count, 1, KVT_E_INVAL); /* roots is NULL. */
    refused_option(io_engine, 3, KVT_E_INVAL);
    refused_option(worker_count, 65, KVT_E_INVAL);
    refused_option(request_count_max, 15, KVT_E_INVAL);
    refused_option(request_count_max, 65537, KVT_E_INVAL);
    refused_option(lease_count_max, (1u << 20) + 1, KVT_E_INVAL);
    refused_option(index_map_bytes, (1 << 20) - 1, KVT_E_INVAL);
    refused_option(entry_count_max, (UINT64_C(1) << 31) + 1, KVT_E_INVAL);
    refused_option(relaxed_interval_ns, UINT64_C(3600000000001), KVT_E_INVAL);
    refused_option(batch_delay_ns, UINT64_C(1000000001), KVT_E_INVAL);
    refused_option(host_high_percent, 101, KVT_E_INVAL);
    refused_option(host_low_percent, 99, KVT_E_INVAL);
    refused_option(nvme_high_percent, 101, KVT_E_INVAL);
    refused_option(nvme_high_percent, 9, KVT_E_INVAL);
    refused_option(log_level, 4, KVT_E_INVAL);
    refused_option(policy, KVT_POLICY_GHI + 1, KVT_E_INVAL);
}

/* No machine has these: whatever the status, it comes with a sentence and without a crash. */
static void
sizes_that_no_machine_has_are_refused(void **state)
{
    struct fixture *fixture = *state;
    uint64_t sizes[] = {HUGE_SIZE, HUGE_SIZE - 1, UINT64_MAX - 1, UINT64_C(1) << 55};

    for (size_t i = 0; i < 4 * sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint64_t size = sizes[i / 4];
        struct kvt_options options = kit_options();
        char path[KIT_PATH_BYTES + 16];
        kvt_store *store = NULL;
        struct kvt_error error;

        options.host_capacity_bytes = i % 4 == 0 ? size : options.host_capacity_bytes;
        options.nvme_capacity_bytes = i % 4 == 1 ? size : options.nvme_capacity_bytes;
        options.index_map_bytes = i % 4 == 2 ? size : options.index_map_bytes;
        options.dirty_bytes_max = i % 4 == 3 ? size : 0;
        snprintf(path, sizeof(path), "%s/huge%zu", fixture->dir, i);
        enum kvt_status status = kvt_open(path, &options, &store);
        if (i % 4 == 3 && status == KVT_OK) {
            /* A cap above all memory is no cap. */
            assert_int_equal(kvt_close(store), KVT_OK);
            continue;
        }
        kvt_last_error(&error);
        assert_true(status < 0);
        assert_null(store);
        assert_int_equal(error.status, status);
        assert_true(strlen(error.text) > 10);
    }
}

static void
struct_size_is_judged_before_anything_else(void **state)
{
    union {
        struct kvt_options options;
        uint8_t bytes[8192];
    } longer = {0};

    refused_option(struct_size, 0, KVT_E_INVAL);
    refused_option(struct_size, 4, KVT_E_INVAL);
    refused_option(struct_size, UINT32_MAX, KVT_E_INVAL);
    longer.options = kit_options();
    longer.options.struct_size = sizeof(struct kvt_options) + 64;
    longer.bytes[sizeof(struct kvt_options) + 63] = 1;
    try_options(state, &longer.options, KVT_E_UNSUPPORTED, "struct", __LINE__);
    longer.bytes[sizeof(struct kvt_options) + 63] = 0;
    struct fixture *fixture = *state;
    char path[KIT_PATH_BYTES + 16];
    kvt_store *store = NULL;
    snprintf(path, sizeof(path), "%s/longer", fixture->dir);
    assert_int_equal(kvt_open(path, &longer.options, &store), KVT_OK);
    assert_int_equal(kvt_close(store), KVT_OK);
}

static void
open_refuses_missing_arguments_and_a_store_in_use(void **state)
{
    struct fixture *fixture = *state;
    struct kvt_options options = kit_options();
    const char *const roots[1] = {NULL};
    kvt_store *store = NULL;

    refused(kvt_open(NULL, &options, &store), KVT_E_INVAL, "path");
    store = fixture->store;
    refused(kvt_open_env("/dev/shm/nothing", &options, NULL, &store), KVT_E_INVAL, "env");
    assert_null(store);
    refused(kvt_open("", &options, &store), KVT_E_INVAL, "path");
    refused(kvt_open("/no-such-directory/store", NULL, &store), KVT_E_INVAL, "missing");
    refused(kvt_open(fixture->path, &options, NULL), KVT_E_INVAL, "store_out");
    refused(kvt_open(fixture->path, &options, &store), KVT_E_LOCKED, fixture->path);
    options.roots = roots;
    options.root_count = 1;
    try_options(state, &options, KVT_E_INVAL, "roots", __LINE__);
}

/* --- Put, get, delete ------------------------------------------------------------------------- */

static struct kvt_put
good_put(const struct payload_key *key, const void *source)
{
    return (struct kvt_put){.key = key->key, .source = source, .length = 5000};
}

#define refused_put(field, value, wanted, word)                                                 \
    do {                                                                                        \
        struct kvt_put put_ = good_put(&key, bytes);                                            \
        kvt_ticket *ticket_ = (kvt_ticket *)(uintptr_t)1;                                       \
        put_.field = (value);                                                                   \
        refused(                                                                                \
            kvt_put_submit(fixture->store, fixture->ns, &put_, 1, KVT_SYNC, &submit, &ticket_), \
            (wanted), (word));                                                                  \
        assert_null(ticket_);                                                                   \
    } while (0)

static void
a_put_with_a_bad_field_is_refused_by_name(void **state)
{
    static uint8_t bytes[5000];
    struct fixture *fixture = *state;
    struct kvt_submit submit = {0};
    struct payload_key key;

    payload_key_make(&key, 77);
    refused_put(key.bytes, NULL, KVT_E_INVAL, "key");
    refused_put(key.length, 0, KVT_E_INVAL, "key");
    refused_put(key.length, KVT_KEY_BYTES_MAX + 1, KVT_E_INVAL, "key");
    refused_put(key.reserved0, 1, KVT_E_INVAL, "reserved");
    refused_put(source, NULL, KVT_E_INVAL, "source");
    refused_put(length, 0, KVT_E_INVAL, "length");
    refused_put(length, KIT_BLOCK_BYTES_MAX + 1, KVT_E_INVAL, "length");
    refused_put(length, HUGE_SIZE, KVT_E_INVAL, "length");
    refused_put(length, UINT64_MAX, KVT_E_INVAL, "length");
    refused_put(length, (UINT64_C(1) << 32) + 5000, KVT_E_INVAL, "length");
    refused_put(flags, 0x100, KVT_E_INVAL, "flags");
    refused_put(hint, 4, KVT_E_INVAL, "hint");
    refused_put(tier, 9, KVT_E_INVAL, "tier");
    refused_put(region.id, 5, KVT_E_INVAL, "region");
    refused_put(layout.id, 5, KVT_E_INVAL, "source");
    refused_put(slot, 5, KVT_E_INVAL, "source");
    refused_put(run_count, 5, KVT_E_INVAL, "source");
    refused_put(reserved1, 5, KVT_E_INVAL, "reserved1");
    struct kvt_key parent = {.bytes = NULL, .length = 8};
    refused_put(parent, &parent, KVT_E_INVAL, "parent");
    parent = (struct kvt_key){.bytes = bytes, .length = 0};
    refused_put(parent, &parent, KVT_E_INVAL, "parent");
    parent = (struct kvt_key){.bytes = bytes, .length = 8, .reserved0 = 1};
    refused_put(parent, &parent, KVT_E_INVAL, "parent");
}

static void
a_put_call_with_bad_arguments_is_refused(void **state)
{
    static uint8_t bytes[5000];
    struct fixture *fixture = *state;
    struct kvt_submit submit = {0};
    struct payload_key key;
    kvt_ticket *ticket = NULL;
    kvt_store *store = fixture->store;
    kvt_namespace none = {0}, wild = {UINT32_MAX};

    payload_key_make(&key, 77);
    struct kvt_put put = good_put(&key, bytes);
    refused(kvt_put_submit(NULL, fixture->ns, &put, 1, KVT_SYNC, &submit, &ticket), KVT_E_INVAL,
        "store");
    refused(kvt_put_submit(store, fixture->ns, NULL, 1, KVT_SYNC, &submit, &ticket), KVT_E_INVAL,
        "puts");
    refused(kvt_put_submit(store, fixture->ns, &put, 0, KVT_SYNC, &submit, &ticket), KVT_E_INVAL,
        "count");
    refused(kvt_put_submit(store, fixture->ns, &put, KVT_BATCH_MAX + 1, KVT_SYNC, &submit, &ticket),
        KVT_E_INVAL, "count");
    refused(kvt_put_submit(store, fixture->ns, &put, UINT32_MAX, KVT_SYNC, &submit, &ticket),
        KVT_E_INVAL, "count");
    refused(kvt_put_submit(store, fixture->ns, &put, 1, (enum kvt_durability)3, &submit, &ticket),
        KVT_E_INVAL, "durability");
    refused(kvt_put_submit(store, fixture->ns, &put, 1, KVT_SYNC, &submit, NULL), KVT_E_INVAL,
        "ticket_out");
    refused(
        kvt_put_submit(store, none, &put, 1, KVT_SYNC, &submit, &ticket), KVT_E_INVAL, "namespace");
    refused(
        kvt_put_submit(store, wild, &put, 1, KVT_SYNC, &submit, &ticket), KVT_E_INVAL, "namespace");
}

static enum kvt_status
get_two(struct fixture *fixture, void *first, void *second, uint64_t capacity, uint32_t flags,
    struct kvt_result results_out[2])
{
    struct payload_key keys[2];
    struct kvt_submit submit = {0};
    kvt_ticket *ticket = NULL;

    payload_key_make(&keys[0], 1);
    payload_key_make(&keys[1], 2);
    struct kvt_get gets[2] = {
        {.key = keys[0].key, .destination = first, .capacity = capacity, .flags = flags},
        {.key = keys[1].key, .destination = second, .capacity = capacity, .flags = flags},
    };
    enum kvt_status status = kvt_get_submit(fixture->store, fixture->ns, gets, 2, &submit, &ticket);
    if (status != KVT_OK)
        return status;
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DONE, results_out, 2), KVT_OK);
    kvt_ticket_free(ticket);
    return KVT_OK;
}

static void
overlapping_destinations_are_refused(void **state)
{
    static uint8_t bytes[4 * KIT_BLOCK_BYTES_MAX];
    struct kvt_result results[2];

    refused(get_two(*state, bytes, bytes, 10000, 0, results), KVT_E_INVAL, "overlap");
    refused(get_two(*state, bytes + 9999, bytes, 10000, 0, results), KVT_E_INVAL, "overlap");
    refused(get_two(*state, bytes, bytes + 9999, 10000, KVT_GET_TRANSIENT, results), KVT_E_INVAL,
        "overlap");
}

static void
misaligned_destinations_are_served(void **state)
{
    static uint8_t bytes[4 * KIT_BLOCK_BYTES_MAX] __attribute__((aligned(4096)));
    struct kvt_result results[2];
    uint64_t version;

    for (uint32_t flags = 0; flags <= KVT_GET_TRANSIENT; flags++) {
        for (size_t shift = 1; shift < 4096; shift = shift * 3 + 1) {
            memset(bytes, 0xA5, sizeof(bytes));
            uint8_t *second = bytes + 100000 + shift;
            assert_int_equal(get_two(*state, bytes + shift, second, 9000, flags, results), KVT_OK);
            assert_int_equal(results[0].status, KVT_OK);
            assert_int_equal(results[1].status, KVT_OK);
            assert_true(payload_is_right(bytes + shift, results[0].length, 1, &version));
            assert_true(payload_is_right(second, results[1].length, 2, &version));
            assert_int_equal(bytes[shift - 1], 0xA5);
            assert_int_equal(bytes[shift + 9000], 0xA5);
        }
    }
}

static void
a_destination_that_is_too_small_learns_the_length(void **state)
{
    static uint8_t bytes[2][KIT_BLOCK_BYTES_MAX];
    struct kvt_result results[2];

    memset(bytes, 0xA5, sizeof(bytes));
    assert_int_equal(get_two(*state, bytes[0], bytes[1], 6000, 0, results), KVT_OK);
    assert_int_equal(results[0].status, KVT_E_INVAL);
    assert_int_equal(results[0].length, 9000);
    assert_int_equal(results[1].status, KVT_OK);
    assert_int_equal(bytes[0][0], 0xA5);
    assert_int_equal(bytes[0][6000], 0xA5);
    assert_int_equal(get_two(*state, bytes[0], bytes[1], 1, KVT_GET_TRANSIENT, results), KVT_OK);
    assert_int_equal(results[1].status, KVT_E_INVAL);
    assert_int_equal(results[1].length, 5000);
}

static void
a_get_with_a_bad_field_is_refused_by_name(void **state)
{
    static uint8_t bytes[5000];
    struct fixture *fixture = *state;
    struct kvt_submit submit = {0};
    kvt_ticket *ticket = NULL;
    kvt_store *store = fixture->store;
    struct payload_key key;

    payload_key_make(&key, 1);
    const struct kvt_get good = {.key = key.key, .destination = bytes, .capacity = 5000};
    struct kvt_get bad = good;
    bad.destination = NULL;
    refused(
        kvt_get_submit(store, fixture->ns, &bad, 1, &submit, &ticket), KVT_E_INVAL, "destination");
    bad = good;
    bad.capacity = 0;
    refused(kvt_get_submit(store, fixture->ns, &bad, 1, &submit, &ticket), KVT_E_INVAL, "capacity");
    bad.capacity = HUGE_SIZE + HUGE_SIZE / 2; /* Ends behind the address space. */
    refused(kvt_get_submit(store, fixture->ns, &bad, 1, &submit, &ticket), KVT_E_INVAL, "capacity");
    bad = good;
    bad.flags = 0x100;
    refused(kvt_get_submit(store, fixture->ns, &bad, 1, &submit, &ticket), KVT_E_INVAL, "flags");
    bad = good;
    bad.region.id = 5;
    refused(kvt_get_submit(store, fixture->ns, &bad, 1, &submit, &ticket), KVT_E_INVAL, "region");
    bad = good;
    bad.layout.id = 5;
    refused(kvt_get_submit(store, fixture->ns, &bad, 1, &submit, &ticket), KVT_E_INVAL, "layout");
    bad.destination = NULL;
    bad.capacity = 0;
    refused(kvt_get_submit(store, fixture->ns, &bad, 1, &submit, &ticket), KVT_E_INVAL, "layout 5");
    bad = good;
    bad.key.length = 0;
    refused(kvt_get_submit(store, fixture->ns, &bad, 1, &submit, &ticket), KVT_E_INVAL, "key");
    refused(kvt_get_submit(NULL, fixture->ns, &good, 1, &submit, &ticket), KVT_E_INVAL, "store");
    refused(kvt_get_submit(store, fixture->ns, NULL, 1, &submit, &ticket), KVT_E_INVAL, "gets");
    refused(kvt_get_submit(store, fixture->ns, &good, 0, &submit, &ticket), KVT_E_INVAL, "count");
    refused(kvt_get_submit(store, fixture->ns, &good, UINT32_MAX, &submit, &ticket), KVT_E_INVAL,
        "count");
    refused(kvt_get_submit(store, fixture->ns, &good, 1, &submit, NULL), KVT_E_INVAL, "ticket_out");
    refused(kvt_get_submit(store, (kvt_namespace){99}, &good, 1, &submit, &ticket), KVT_E_INVAL,
        "namespace");
}

static void
a_delete_with_bad_arguments_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct kvt_submit submit = {0};
    kvt_ticket *ticket = NULL;
    kvt_store *store = fixture->store;
    struct payload_key key;

    payload_key_make(&key, 1);
    struct kvt_key bad = {.bytes = NULL, .length = 4};
    refused(kvt_delete_submit(store, fixture->ns, &bad, 1, &submit, &ticket), KVT_E_INVAL, "key");
    refused(
        kvt_delete_submit(NULL, fixture->ns, &key.key, 1, &submit, &ticket), KVT_E_INVAL, "store");
    refused(kvt_delete_submit(store, fixture->ns, NULL, 1, &submit, &ticket), KVT_E_INVAL, "keys");
    refused(
        kvt_delete_submit(store, fixture->ns, &key.key, 0, &submit, &ticket), KVT_E_INVAL, "count");
    refused(kvt_delete_submit(store, fixture->ns, &key.key, 1, &submit, NULL), KVT_E_INVAL,
        "ticket_out");
    refused(kvt_delete_submit(store, (kvt_namespace){0}, &key.key, 1, &submit, &ticket),
        KVT_E_INVAL, "namespace");
}

/* --- Tickets and queues ----------------------------------------------------------------------- */

static void
tickets_and_queues_refuse_what_they_do_not_have(void **state)
{
    struct fixture *fixture = *state;
    static uint8_t bytes[KIT_BLOCK_BYTES_MAX];
    struct kvt_submit submit = {0};
    struct payload_key key;
    kvt_ticket *ticket = NULL;
    kvt_queue *queue = NULL;
    struct kvt_result results[2];
    struct kvt_completion done;
    uint32_t count = 7;

    payload_key_make(&key, 1);
    struct kvt_get get = {.key = key.key, .destination = bytes, .capacity = sizeof(bytes)};
    assert_int_equal(
        kvt_get_submit(fixture->store, fixture->ns, &get, 1, &submit, &ticket), KVT_OK);
    refused(kvt_ticket_wait(ticket, 0, KVT_FOREVER), KVT_E_INVAL, "stage");
    refused(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, KVT_FOREVER), KVT_E_INVAL, "stage");
    refused(kvt_ticket_wait(ticket, 77, KVT_FOREVER), KVT_E_INVAL, "stage");
    refused(kvt_ticket_wait(NULL, KVT_STAGE_DONE, KVT_FOREVER), KVT_E_INVAL, "ticket");
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    refused(kvt_ticket_results(ticket, KVT_STAGE_DONE, results, 2), KVT_E_INVAL, "count");
    refused(kvt_ticket_results(ticket, KVT_STAGE_DONE, NULL, 1), KVT_E_INVAL, "results");
    refused(kvt_ticket_results(NULL, KVT_STAGE_DONE, results, 1), KVT_E_INVAL, "ticket");
    refused(kvt_ticket_results(ticket, 9, results, 1), KVT_E_INVAL, "stage");
    refused(kvt_close(fixture->store), KVT_E_STATE, "ticket");
    kvt_ticket_free(ticket);
    kvt_ticket_free(NULL);

    refused(kvt_queue_create(NULL, &queue), KVT_E_INVAL, "store");
    refused(kvt_queue_create(fixture->store, NULL), KVT_E_INVAL, "queue");
    assert_int_equal(kvt_queue_create(fixture->store, &queue), KVT_OK);
    refused(kvt_queue_poll(NULL, &done, 1, 0, &count), KVT_E_INVAL, "queue");
    refused(kvt_queue_poll(queue, NULL, 1, 0, &count), KVT_E_INVAL, "done");
    refused(kvt_queue_poll(queue, &done, 0, 0, &count), KVT_E_INVAL, "count");
    refused(kvt_queue_poll(queue, &done, 1, 0, NULL), KVT_E_INVAL, "count_out");
    assert_int_equal(kvt_queue_poll(queue, &done, 1, 0, &count), KVT_LATE);
    assert_int_equal(count, 0);
    refused(kvt_close(fixture->store), KVT_E_STATE, "queue");
    submit.queue = queue;
    assert_int_equal(
        kvt_get_submit(fixture->store, fixture->ns, &get, 1, &submit, &ticket), KVT_OK);
    refused(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_E_STATE, "queue");
    assert_int_equal(kvt_queue_poll(queue, &done, 1, KVT_FOREVER, &count), KVT_OK);
    kvt_ticket_free(ticket);
    assert_int_equal(kvt_queue_destroy(queue), KVT_OK);
    assert_int_equal(kvt_queue_destroy(NULL), KVT_OK);
}

static void
without_descriptors_there_is_no_queue(void **state)
{
    struct fixture *fixture = *state;
    struct rlimit limit, none;
    kvt_queue *queue = NULL;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = (struct rlimit){.rlim_cur = 1, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    refused(kvt_queue_create(fixture->store, &queue), KVT_E_IO, "eventfd");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_null(queue);
}

static void
a_queue_of_another_store_is_refused(void **state)
{
    static uint8_t bytes[5000];
    struct fixture *fixture = *state;
    struct kvt_options options = kit_options();
    char path[KIT_PATH_BYTES + 16];
    struct payload_key key;
    kvt_ticket *ticket = NULL;
    kvt_queue *queue = NULL;
    kvt_store *other = NULL;

    snprintf(path, sizeof(path), "%s/neighbour", fixture->dir);
    assert_int_equal(kvt_open(path, &options, &other), KVT_OK);
    assert_int_equal(kvt_queue_create(other, &queue), KVT_OK);
    const struct kvt_submit submit = {.queue = queue};
    payload_key_make(&key, 1);
    const struct kvt_put put = good_put(&key, bytes);
    const struct kvt_get get = {.key = key.key, .destination = bytes, .capacity = 5000};
    refused(kvt_put_submit(fixture->store, fixture->ns, &put, 1, KVT_SYNC, &submit, &ticket),
        KVT_E_INVAL, "queue");
    refused(kvt_get_submit(fixture->store, fixture->ns, &get, 1, &submit, &ticket), KVT_E_INVAL,
        "queue");
    refused(kvt_delete_submit(fixture->store, fixture->ns, &key.key, 1, &submit, &ticket),
        KVT_E_INVAL, "queue");
    assert_int_equal(kvt_queue_destroy(queue), KVT_OK);
    assert_int_equal(kvt_close(other), KVT_OK);
}

/* --- Lookups, leases, names ------------------------------------------------------------------- */

static void
lookups_and_leases_refuse_bad_arguments(void **state)
{
    struct fixture *fixture = *state;
    kvt_store *store = fixture->store;
    struct payload_key key;
    uint8_t tiers = 0;
    uint32_t leading = 0;
    kvt_lease lease = {0};
    const void *address = NULL;
    uint64_t length = 0;

    payload_key_make(&key, 1);
    struct kvt_key bad = {.bytes = key.bytes, .length = 0};
    refused(
        kvt_lookup(NULL, fixture->ns, &key.key, 1, &tiers, &leading, NULL), KVT_E_INVAL, "store");
    refused(kvt_lookup(store, fixture->ns, NULL, 1, &tiers, &leading, NULL), KVT_E_INVAL, "keys");
    refused(kvt_lookup(store, fixture->ns, &bad, 1, &tiers, &leading, NULL), KVT_E_INVAL, "key");
    refused(kvt_lookup(store, fixture->ns, &key.key, KVT_BATCH_MAX + 1, &tiers, &leading, NULL),
        KVT_E_INVAL, "count");
    refused(kvt_lookup(store, (kvt_namespace){0}, &key.key, 1, &tiers, &leading, NULL), KVT_E_INVAL,
        "namespace");

    assert_int_equal(kvt_lookup(store, fixture->ns, &key.key, 1, &tiers, &leading, &lease), KVT_OK);
    assert_int_equal(leading, 1);
    refused(
        kvt_lease_address(store, lease, 1, KVT_TIER_HOST, &address, &length), KVT_E_INVAL, "index");
    refused(kvt_lease_address(store, lease, UINT32_MAX, KVT_TIER_HOST, &address, &length),
        KVT_E_INVAL, "index");
    refused(
        kvt_lease_address(store, lease, 0, KVT_TIER_HOST, NULL, &length), KVT_E_INVAL, "address");
    refused(kvt_lease_address(store, (kvt_lease){0}, 0, KVT_TIER_HOST, &address, &length),
        KVT_E_INVAL, "lease");
    refused(kvt_close(store), KVT_E_STATE, "lease");
    kvt_lease_release(store, lease);
    refused(
        kvt_lease_address(store, lease, 0, KVT_TIER_HOST, &address, &length), KVT_E_INVAL, "lease");
    kvt_lease_release(store, lease);
    kvt_lease_release(store, (kvt_lease){0});
    kvt_lease_release(store, (kvt_lease){UINT64_MAX});
    kvt_lease_release(NULL, lease);
    struct kvt_stats stats = {.struct_size = sizeof(stats)};
    assert_int_equal(kvt_stats_get(store, &stats), KVT_OK);
    assert_int_equal(stats.lease_stale_count, 2);
    assert_int_equal(stats.lease_count_now, 0);
}

static void
namespaces_refuse_bad_names(void **state)
{
    struct fixture *fixture = *state;
    kvt_store *store = fixture->store;
    static char text[5000];
    kvt_namespace ns = {0};
    struct kvt_namespace_info info;
    uint32_t cursor = 0;

    memset(text, 'n', sizeof(text) - 1);
    refused(kvt_namespace_open(NULL, "a", "", 0, &ns), KVT_E_INVAL, "store");
    ns.id = 7;
    refused(kvt_namespace_open(store, NULL, "", 0, &ns), KVT_E_INVAL, "name");
    assert_int_equal(ns.id, 0);
    refused(kvt_namespace_open(store, "", "", 0, &ns), KVT_E_INVAL, "name");
    refused(kvt_namespace_open(store, text + 5000 - 257, "", 0, &ns), KVT_E_INVAL, "name");
    refused(kvt_namespace_open(store, "a", text, 4097, &ns), KVT_E_INVAL, "description");
    refused(kvt_namespace_open(store, "a", text, SIZE_MAX, &ns), KVT_E_INVAL, "description");
    refused(kvt_namespace_open(store, "a", NULL, 5, &ns), KVT_E_INVAL, "description");
    refused(kvt_namespace_open(store, "a", "", 0, NULL), KVT_E_INVAL, "namespace_out");
    refused(kvt_namespace_open(store, "space", "another", 7, &ns), KVT_E_INVAL, "description");
    refused(kvt_namespace_clear(store, (kvt_namespace){0}), KVT_E_INVAL, "namespace");
    refused(kvt_namespace_clear(store, (kvt_namespace){77}), KVT_E_INVAL, "namespace");
    refused(kvt_namespace_clear(NULL, fixture->ns), KVT_E_INVAL, "store");
    refused(kvt_namespace_next(store, NULL, &info), KVT_E_INVAL, "cursor");
    refused(kvt_namespace_next(store, &cursor, NULL), KVT_E_INVAL, "info");
    cursor = UINT32_MAX;
    assert_int_equal(kvt_namespace_next(store, &cursor, &info), KVT_MISS);
    assert_int_equal(ns.id, 0);
}

static int
line_print(void *context, const char *line)
{
    (void)context;
    (void)line;
    return 0;
}

static void
inspection_refuses_bad_arguments(void **state)
{
    struct fixture *fixture = *state;
    kvt_store *store = fixture->store;
    struct kvt_stats stats = {.struct_size = 0};
    struct kvt_options options = {.struct_size = 3};
    struct kvt_scan_entry entry;
    struct kvt_check_report report = {.struct_size = sizeof(report)};
    uint64_t cursor = 0;
    uint32_t count = 0, flags = 0;
    char text[8];

    refused(kvt_stats_get(store, &stats), KVT_E_INVAL, "struct_size");
    refused(kvt_stats_get(store, NULL), KVT_E_INVAL, "stats");
    refused(kvt_stats_get(NULL, &stats), KVT_E_INVAL, "store");
    refused(kvt_options_get(store, &options), KVT_E_INVAL, "struct_size");
    refused(kvt_options_get(store, NULL), KVT_E_INVAL, "options");
    refused(kvt_health(store, NULL), KVT_E_INVAL, "flags");
    refused(kvt_health(NULL, &flags), KVT_E_INVAL, "store");
    refused(kvt_scan(store, NULL, &entry, 1, &count), KVT_E_INVAL, "cursor");
    refused(kvt_scan(store, &cursor, NULL, 1, &count), KVT_E_INVAL, "entries");
    refused(kvt_scan(store, &cursor, &entry, 0, &count), KVT_E_INVAL, "count");
    refused(kvt_scan(store, &cursor, &entry, 1, NULL), KVT_E_INVAL, "count_out");
    cursor = UINT64_MAX;
    assert_int_equal(kvt_scan(store, &cursor, &entry, 1, &count), KVT_MISS);
    refused(kvt_flush(NULL), KVT_E_INVAL, "store");
    refused(kvt_caps_json(store, NULL, 100), KVT_E_INVAL, "target");
    refused(kvt_caps_json(store, text, sizeof(text)), KVT_E_INVAL, "size");
    refused(kvt_check(NULL, NULL, &report), KVT_E_INVAL, "path");
    refused(kvt_check(fixture->path, NULL, NULL), KVT_E_INVAL, "report");
    refused(kvt_check(fixture->path, NULL, &report), KVT_E_LOCKED, fixture->path);
    refused(kvt_dump(NULL, KVT_DUMP_SEGMENTS, UINT32_MAX, NULL, NULL), KVT_E_INVAL, "path");
    refused(
        kvt_dump(fixture->path, KVT_DUMP_SEGMENTS, UINT32_MAX, NULL, NULL), KVT_E_INVAL, "line");
    refused(kvt_dump(fixture->path, (enum kvt_dump_kind)4, UINT32_MAX, line_print, NULL),
        KVT_E_INVAL, "kind");
    refused(kvt_dump(fixture->path, KVT_DUMP_SEGMENTS, UINT32_MAX, line_print, NULL), KVT_E_LOCKED,
        fixture->path);
}

static void
empty_handles_and_values_do_nothing(void **state)
{
    (void)state;
    assert_int_equal(kvt_close(NULL), KVT_OK);
    kvt_abort(NULL);
    kvt_last_error(NULL);
    assert_int_equal(kvt_queue_fd(NULL), -1);
    assert_string_equal(kvt_status_name((enum kvt_status)12345), "KVT_?");
    assert_string_equal(kvt_version(), "0.1.0");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_outside_their_bounds_are_refused_by_name),
        cmocka_unit_test(sizes_that_no_machine_has_are_refused),
        cmocka_unit_test(struct_size_is_judged_before_anything_else),
        cmocka_unit_test(open_refuses_missing_arguments_and_a_store_in_use),
        cmocka_unit_test(a_put_with_a_bad_field_is_refused_by_name),
        cmocka_unit_test(a_put_call_with_bad_arguments_is_refused),
        cmocka_unit_test(overlapping_destinations_are_refused),
        cmocka_unit_test(misaligned_destinations_are_served),
        cmocka_unit_test(a_destination_that_is_too_small_learns_the_length),
        cmocka_unit_test(a_get_with_a_bad_field_is_refused_by_name),
        cmocka_unit_test(a_delete_with_bad_arguments_is_refused),
        cmocka_unit_test(tickets_and_queues_refuse_what_they_do_not_have),
        cmocka_unit_test(without_descriptors_there_is_no_queue),
        cmocka_unit_test(a_queue_of_another_store_is_refused),
        cmocka_unit_test(lookups_and_leases_refuse_bad_arguments),
        cmocka_unit_test(namespaces_refuse_bad_names),
        cmocka_unit_test(inspection_refuses_bad_arguments),
        cmocka_unit_test(empty_handles_and_values_do_nothing),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
