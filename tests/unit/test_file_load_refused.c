/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_file_load_refused.c - mistakes of callers who load files, and loads that lack something: on
 * a simulated disk, by an emulated device.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kvtier/kvtier_unstable.h"
#include "load_rig.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    CHUNK = LOAD_RIG_CHUNK,
    FILE_BYTES = LOAD_RIG_FILE_BYTES,
};

/* --- 1. Mistakes ------------------------------------------------------------------------------ */

static void
chunks_are_released_once(void **state)
{
    struct kvt_file_load_options options = load_rig_options(0, 6 * CHUNK, CHUNK);
    static const uint32_t twice[] = {1, 2, 1}, some[] = {1, 2}, unknown[] = {3, 6};
    kvt_load load = load_rig_begin(&options);
    kvt_load closed = load;
    struct kvt_load_chunk chunk;
    uint32_t count;

    (void)state;
    refused(kvt_load_release(load_sim.store, load, some, 2), KVT_E_STATE, "still to come");
    assert_int_equal(load_rig_await(load, KVT_LOAD_ALL), KVT_OK);
    refused(kvt_load_release(load_sim.store, load, twice, 3), KVT_E_STATE, "twice");
    refused(kvt_load_release(load_sim.store, load, unknown, 2), KVT_E_INVAL, "chunk 6");
    refused(kvt_load_release(load_sim.store, load, NULL, 2), KVT_E_INVAL, "count 2");
    refused(kvt_load_wait(load_sim.store, load, 6, 0, NULL), KVT_E_INVAL, "chunk 6");
    for (uint32_t i = 0; i < 6; i++) /* Nothing has changed. */
        assert_int_equal(load_rig_look(load, i), KVT_OK);
    assert_int_equal(kvt_load_release(load_sim.store, load, some, 2), KVT_OK);
    refused(kvt_load_release(load_sim.store, load, some, 2), KVT_E_STATE, "before");
    refused(kvt_load_wait(load_sim.store, load, 1, 0, &chunk), KVT_E_STATE, "released");
    refused(
        kvt_load_stream_wait(load_sim.store, load, 1, &load_sim, NULL), KVT_E_STATE, "released");
    assert_int_equal(kvt_load_release(load_sim.store, load, NULL, 0), KVT_OK);
    assert_int_equal(kvt_load_release(load_sim.store, load, NULL, 0), KVT_OK);
    assert_int_equal(load_rig_await(load, KVT_LOAD_ALL), KVT_OK);
    refused(kvt_close(load_sim.store), KVT_E_STATE, "1 loads");
    load_rig_end(load);
    assert_int_equal(kvt_load_close(load_sim.store, (kvt_load){0}), KVT_OK);
    load = load_rig_begin(&options); /* In the same place. */
    refused(kvt_load_close(load_sim.store, closed), KVT_E_INVAL, "closed");
    refused(kvt_load_cancel(load_sim.store, closed), KVT_E_INVAL, "closed");
    refused(kvt_load_wait(load_sim.store, closed, 0, 0, NULL), KVT_E_INVAL, "closed");
    refused(
        kvt_load_stream_wait(load_sim.store, closed, 0, &load_sim, NULL), KVT_E_INVAL, "closed");
    refused(kvt_load_stream_wait(load_sim.store, load, 0, NULL, NULL), KVT_E_INVAL, "NULL");
    refused(kvt_load_release(load_sim.store, closed, NULL, 0), KVT_E_INVAL, "closed");
    refused(kvt_load_chunk_count(load_sim.store, closed, &count), KVT_E_INVAL, "closed");
    refused(kvt_load_chunk_count(load_sim.store, load, NULL), KVT_E_INVAL, "NULL");
    load_rig_end(load);
}

static void
wrong_loads_are_refused(void **state)
{
    const struct kvt_file_load_options right = load_rig_options(0, KVT_LOAD_TO_END, CHUNK);
    struct kvt_file_load_options options;
    uint8_t host;
    kvt_load load;

    (void)state;
#define LOAD(path, status, word, ...)                                                \
    do {                                                                             \
        options = right;                                                             \
        __VA_ARGS__;                                                                 \
        load.id = 7;                                                                 \
        refused(kvt_file_load(load_sim.store, path, &options, &load), status, word); \
        assert_int_equal(load.id, 0);                                                \
    } while (0)
    LOAD("/absent", KVT_MISS, "absent", );
    LOAD("/absent/weights", KVT_MISS, "absent", );
    LOAD("/store", KVT_E_INVAL, "directory", );
    LOAD("", KVT_E_INVAL, "", );
    LOAD("/weights", KVT_E_INVAL, "struct_size", options.struct_size--);
    LOAD("/weights", KVT_E_INVAL, "reserved0", options.reserved0 = 1);
    LOAD("/weights", KVT_E_INVAL, "device 2", options.device = 2);
    LOAD("/weights", KVT_E_INVAL, "offset", options.offset = FILE_BYTES + 1);
    LOAD("/weights", KVT_E_INVAL, "offset", options.offset = UINT64_MAX);
    LOAD("/weights", KVT_E_INVAL, "the file has", options.length = FILE_BYTES + 1);
    LOAD("/weights", KVT_E_INVAL, "the file has", options.offset = 1; options.length = FILE_BYTES);
    LOAD("/weights", KVT_E_INVAL, "whole pages", options.chunk_bytes = 5000);
    LOAD("/weights", KVT_E_INVAL, "hold one chunk", options.capacity = CHUNK - 1);
    LOAD("/weights", KVT_E_INVAL, "no destination", options.region.id = 1);
    LOAD("/weights", KVT_E_INVAL, "hold one chunk", options.destination = &host);
    LOAD("/weights", KVT_E_INVAL, "memory", options.destination = &host; options.capacity = CHUNK);
    LOAD("/weights", KVT_E_INVAL, "region", options.destination = &host; options.capacity = CHUNK;
         options.region.id = 77);
#undef LOAD
    options = right;
    load.id = 7;
    refused(kvt_file_load(load_sim.store, NULL, &options, &load), KVT_E_INVAL, "NULL");
    assert_int_equal(load.id, 0);
    refused(kvt_file_load(load_sim.store, "/weights", NULL, &load), KVT_E_INVAL, "NULL");
    refused(kvt_file_load(load_sim.store, "/weights", &options, NULL), KVT_E_INVAL, "NULL");
}

static void
a_region_of_the_host_is_no_destination(void **state)
{
    static _Alignas(4096) uint8_t host[CHUNK];
    struct kvt_file_load_options options = load_rig_options(0, CHUNK, CHUNK);
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HOST, .address = host, .size = sizeof(host)};
    kvt_region region;
    kvt_load load;

    (void)state;
    assert_int_equal(kvt_region_register(load_sim.store, &about, &region), KVT_OK);
    options.destination = host;
    options.capacity = sizeof(host);
    options.region = region;
    refused(kvt_file_load(load_sim.store, "/weights", &options, &load), KVT_E_INVAL, "device 0");
    assert_int_equal(kvt_region_unregister(load_sim.store, region), KVT_OK);
}

static void
limits_are_kept(void **state)
{
    struct kvt_file_load_options options = load_rig_options(5, 0, CHUNK);
    kvt_load loads[KVT_LOADS_MAX], one_more;

    (void)state;
    for (uint32_t i = 0; i < KVT_LOADS_MAX; i++)
        loads[i] = load_rig_begin(&options);
    refused(
        kvt_file_load(load_sim.store, "/weights", &options, &one_more), KVT_E_NOSPC, "64 loads");
    for (uint32_t i = 0; i < KVT_LOADS_MAX; i++)
        load_rig_end(loads[i]);
    load_rig_file(&load_sim, "long", (uint64_t)(KVT_LOAD_CHUNKS_MAX / 16 + 1) * 4096);
    options = load_rig_options(0, KVT_LOAD_TO_END, 4096);
    options.capacity = 4096;
    assert_int_equal(kvt_file_load(load_sim.store, "/long", &options, &one_more), KVT_OK);
    load_rig_end(one_more);
}

/* --- 2. What is lacking ----------------------------------------------------------------------- */

/* All of HOST is somebody's. */
static void
without_a_slot_of_host_nothing_is_loaded(void **state)
{
    struct kvt_file_load_options options = load_rig_options(0, 4096, CHUNK);
    struct kvt_put put = {.length = 64 << 10};
    kvt_reservation *reservations[64];
    struct payload_key name;
    kvt_namespace ns;
    uint32_t count = 0;
    kvt_load load;
    void *memory;

    (void)state;
    assert_int_equal(kvt_namespace_open(load_sim.store, "full", "", 0, &ns), KVT_OK);
    for (enum kvt_status status = KVT_OK; status == KVT_OK && count < 64; count++) {
        payload_key_make(&name, count);
        put.key = name.key;
        status = kvt_reserve(load_sim.store, ns, &put, &memory, &reservations[count]);
        if (status != KVT_OK)
            break;
    }
    assert_in_range(count, 8, 63);
    refused(kvt_file_load(load_sim.store, "/weights", &options, &load), KVT_E_NOSPC, "HOST");
    for (uint32_t i = 0; i < count; i++)
        kvt_discard(reservations[i]);
    load = load_rig_begin(&options);
    load_rig_check(load_sim.store, load, &options, 4096);
    load_rig_end(load);
}

static void
a_device_without_memory_says_so(void **state)
{
    struct kvt_file_load_options options = load_rig_options(0, KVT_LOAD_TO_END, CHUNK);
    kvt_load load;

    (void)state;
    load_sim.device.fail_status = KVT_E_NOMEM;
    load_sim.device.fail_call = atomic_load(&load_sim.device.call_count) + 1;
    assert_int_equal(kvt_file_load(load_sim.store, "/weights", &options, &load), KVT_E_NOMEM);
    assert_int_equal(load.id, 0);
    load = load_rig_begin(&options);
    load_rig_check(load_sim.store, load, &options, FILE_BYTES);
    load_rig_end(load);
}

/* Files of somebody else. */
static enum kvt_status
open_denied(struct fs_dir *dir, const char *name, unsigned flags, struct fs_file **file_out)
{
    (void)dir;
    (void)flags;
    *file_out = NULL;
    return failure_set(KVT_E_PERMISSION, 0, "Cannot open %s", name);
}

static void
a_file_of_somebody_else_is_refused(void **state)
{
    struct kvt_file_load_options options = load_rig_options(0, KVT_LOAD_TO_END, CHUNK);
    struct fs_ops denied = *load_sim.env.fs;
    kvt_load load;

    (void)state;
    denied.open = open_denied;
    load_sim.store->env.fs = &denied;
    refused(
        kvt_file_load(load_sim.store, "/weights", &options, &load), KVT_E_PERMISSION, "weights");
    load_sim.store->env.fs = load_sim.env.fs;
}

static void
a_file_that_is_replaced_for_ever_is_refused(void **state)
{
    struct kvt_file_load_options options = load_rig_options(0, KVT_LOAD_TO_END, CHUNK);
    kvt_load load;

    (void)state;
    load_rig_replace(UINT32_MAX);
    refused(kvt_file_load(load_sim.store, "/weights", &options, &load), KVT_E_IO, "replaced");
    load_sim.store->env.fs = load_sim.env.fs;
    load = load_rig_begin(&options);
    load_rig_check(load_sim.store, load, &options, FILE_BYTES);
    load_rig_end(load);
}

static void
a_failing_disk_is_an_error_of_the_open(void **state)
{
    const struct sim_rule rule = {.ops = SIM_OPEN, .effect = SIM_EIO, .file = "weights", .nth = 1};
    struct kvt_file_load_options options = load_rig_options(0, KVT_LOAD_TO_END, CHUNK);
    kvt_load load;

    (void)state;
    sim_rule_add(load_sim.world, &rule);
    assert_int_equal(kvt_file_load(load_sim.store, "/weights", &options, &load), KVT_E_IO);
}

static enum kvt_status
copy_refused(struct device *device, void *stream, const struct device_piece *pieces, uint32_t count)
{
    (void)device;
    (void)stream;
    (void)pieces;
    return failure_set(KVT_E_NOMEM, 0, "no memory for %u pieces", count);
}

static void
copies_without_memory_are_told(void **state)
{
    struct kvt_file_load_options options = load_rig_options(0, 2 * CHUNK, CHUNK);
    struct device *device = sim_store_device(load_sim.store);
    struct kvt_device_ops refusing = device_host_ops;
    kvt_load load;

    (void)state;
    refusing.copy = copy_refused;
    device->ops = &refusing;
    load = load_rig_begin(&options);
    refused(load_rig_await(load, 1), KVT_E_NOMEM, "chunk 1");
    refused(kvt_load_stream_wait(load_sim.store, load, 1, &load_sim, NULL), KVT_E_NOMEM, "chunk 1");
    device->ops = &device_host_ops;
    load_rig_end(load);
    load_rig_reads_fail(1);
    sim_rule_add(load_sim.world,
        &(struct sim_rule){.ops = SIM_READ, .effect = SIM_EIO, .file = "weights", .nth = 3});
    load = load_rig_begin(&options);
    refused(load_rig_await(load, 1), KVT_E_IO, "chunk 1");
    refused(kvt_load_stream_wait(load_sim.store, load, 1, &load_sim, NULL), KVT_E_IO, "chunk 1");
    load_rig_end(load);
}

int
main(void)
{
#define LOAD_TEST(name) cmocka_unit_test_setup_teardown(name, load_rig_setup, load_rig_teardown)
    const struct CMUnitTest tests[] = {
        LOAD_TEST(chunks_are_released_once),
        LOAD_TEST(wrong_loads_are_refused),
        LOAD_TEST(a_region_of_the_host_is_no_destination),
        LOAD_TEST(limits_are_kept),
        LOAD_TEST(without_a_slot_of_host_nothing_is_loaded),
        LOAD_TEST(a_device_without_memory_says_so),
        LOAD_TEST(a_file_of_somebody_else_is_refused),
        LOAD_TEST(a_file_that_is_replaced_for_ever_is_refused),
        LOAD_TEST(a_failing_disk_is_an_error_of_the_open),
        LOAD_TEST(copies_without_memory_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
