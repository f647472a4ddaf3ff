/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_file_load.c - files to memory of a device, on a simulated disk (direct reads must be aligned
 * there, and are slow, short and out of order) by an emulated device (late copies, poisoned
 * targets): bytes, order, places, and cancelling.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "file_load.h"
#include "kvtier/kvtier_unstable.h"
#include "load_rig.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    CHUNK = LOAD_RIG_CHUNK,
    FILE_BYTES = LOAD_RIG_FILE_BYTES,
    MEMORY_BYTES = 2 << 20,
    POISON = 0x5C,
};

static uint64_t
counted(const char *what)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};

    assert_int_equal(kvt_stats_get(load_sim.store, &stats), KVT_OK);
    return what[0] == 'b' ? stats.load_bytes : stats.load_lost_count;
}

/* --- 1. Bytes --------------------------------------------------------------------------------- */

static void
any_range_arrives_whole(void **state)
{
    static const uint64_t offsets[] = {0, 1, 511, 4095, 4096, 70001, FILE_BYTES - 1, FILE_BYTES};
    static const uint64_t lengths[] = {
        0, 1, 4095, 4096, 4097, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 77, KVT_LOAD_TO_END};

    (void)state;
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        for (size_t j = 0; j < sizeof(lengths) / sizeof(lengths[0]); j++) {
            uint64_t left = FILE_BYTES - offsets[i];
            struct kvt_file_load_options options =
                load_rig_options(offsets[i], lengths[j], j % 2 == 0 ? CHUNK : 20480);
            kvt_load load;

            if (lengths[j] != KVT_LOAD_TO_END && lengths[j] > left)
                continue;
            load = load_rig_begin(&options);
            load_rig_check(
                load_sim.store, load, &options, lengths[j] == KVT_LOAD_TO_END ? left : lengths[j]);
            load_rig_end(load);
        }
    }
}

/* What stands before and behind the destination is left alone. */
static void
memory_of_the_caller_gets_the_range_and_nothing_else(void **state)
{
    struct device *device = sim_store_device(load_sim.store);
    struct kvt_file_load_options options = load_rig_options(4000, 3 * CHUNK + 5, CHUNK);
    static uint8_t bytes[MEMORY_BYTES];
    struct kvt_load_chunk chunk;
    void *memory;
    kvt_load load;

    (void)state;
    assert_int_equal(device_host_memory_take(device, MEMORY_BYTES, &memory), KVT_OK);
    for (uint32_t round = 0; round < 2; round++) {
        struct kvt_region_options about = {.struct_size = sizeof(about),
            .tier = KVT_TIER_HBM,
            .address = memory,
            .size = MEMORY_BYTES};
        kvt_region region = {0};

        assert_int_equal(kvt_region_register(load_sim.store, &about, &region), KVT_OK);
        memset(bytes, POISON, sizeof(bytes));
        assert_int_equal(kvt_device_write(load_sim.store, 0, memory, bytes, sizeof(bytes)), KVT_OK);
        options.destination = (uint8_t *)memory + 8192;
        options.capacity = options.length;
        options.region.id = round == 0 ? region.id : 0;
        if (round == 1)
            assert_int_equal(kvt_region_unregister(load_sim.store, region), KVT_OK);
        load = load_rig_begin(&options);
        if (round == 0)
            assert_int_equal(kvt_region_unregister(load_sim.store, region), KVT_E_STATE);
        load_rig_check(load_sim.store, load, &options, options.length);
        assert_int_equal(kvt_load_wait(load_sim.store, load, 2, 0, &chunk), KVT_OK);
        assert_ptr_equal(chunk.address, (uint8_t *)options.destination + 2 * CHUNK);
        load_rig_end(load);
        if (round == 0)
            assert_int_equal(
                kvt_device_read(load_sim.store, 0, bytes, memory, sizeof(bytes)), KVT_OK);
        for (size_t i = 0; i < 8192; i++)
            assert_int_equal(bytes[i], POISON);
        for (size_t i = 8192 + options.length; round == 0 && i < sizeof(bytes); i++)
            assert_int_equal(bytes[i], POISON);
        if (round == 0)
            assert_int_equal(kvt_region_unregister(load_sim.store, region), KVT_OK);
    }
    device_host_memory_put(device, memory, MEMORY_BYTES);
}

static void
a_file_that_is_replaced_while_it_is_opened_comes_from_one_of_both(void **state)
{
    struct kvt_file_load_options options = load_rig_options(0, KVT_LOAD_TO_END, CHUNK);

    (void)state;
    for (uint32_t count = 1; count < 4; count++) {
        kvt_load load;

        load_rig_replace(count);
        load = load_rig_begin(&options);
        load_rig_check(load_sim.store, load, &options, FILE_BYTES);
        load_rig_end(load);
    }
    load_sim.store->env.fs = load_sim.env.fs;
}

/* --- 2. Order --------------------------------------------------------------------------------- */

static void
the_first_chunk_is_there_before_the_last_was_read(void **state)
{
    struct kvt_file_load_options options = load_rig_options(0, KVT_LOAD_TO_END, CHUNK);
    struct kvt_load_chunk first, last;
    kvt_load load = load_rig_begin(&options);

    (void)state;
    assert_int_equal(kvt_load_wait(load_sim.store, load, 0, KVT_FOREVER, &first), KVT_OK);
    assert_int_equal(load_rig_look(load, 9), KVT_LATE);
    assert_true(load_rig_is_right(load_sim.store, first.address, 0, CHUNK));
    assert_int_equal(kvt_load_wait(load_sim.store, load, 9, KVT_FOREVER, &last), KVT_OK);
    /* And the disk did not wait for the device. */
    assert_true(first.copy_end_ns < last.read_begin_ns || first.copy_begin_ns < last.read_end_ns);
    assert_int_equal(load_rig_await(load, KVT_LOAD_ALL), KVT_OK);
    assert_int_equal(counted("bytes"), FILE_BYTES);
    load_rig_end(load);
}

static void
a_file_larger_than_its_memory_comes_as_chunks_are_released(void **state)
{
    struct kvt_file_load_options options = load_rig_options(777, KVT_LOAD_TO_END, CHUNK);
    kvt_load load;

    (void)state;
    options.capacity = 3 * CHUNK - 1;
    load = load_rig_begin(&options);
    for (uint32_t i = 0; i < 10; i++) {
        struct kvt_load_chunk chunk;

        assert_int_equal(kvt_load_wait(load_sim.store, load, i, KVT_FOREVER, &chunk), KVT_OK);
        sim_store_pass(&load_sim, 50000000);
        if (i + 2 < 10) /* There are two places. */
            assert_int_equal(load_rig_look(load, i + 2), KVT_LATE);
        assert_true(load_rig_is_right(load_sim.store, chunk.address, 777 + i * CHUNK, chunk.size));
        assert_int_equal(kvt_load_release(load_sim.store, load, &i, 1), KVT_OK);
    }
    assert_int_equal(load_rig_await(load, KVT_LOAD_ALL), KVT_OK);
    load_rig_end(load);
}

static void
several_loads_share_the_stages(void **state)
{
    struct kvt_file_load_options options = load_rig_options(100, KVT_LOAD_TO_END, CHUNK);
    kvt_load loads[4];

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        options.device = i == 3;
        loads[i] = load_rig_begin(&options);
    }
    for (uint32_t i = 0; i < 3; i++)
        load_rig_check(load_sim.store, loads[i], &options, FILE_BYTES - 100);
    assert_int_equal(load_rig_await(loads[3], KVT_LOAD_ALL), KVT_OK);
    for (uint32_t i = 0; i < 4; i++)
        load_rig_end(loads[i]);
}

/* What a kernel of the caller saw of a chunk. */
struct seen {
    uint8_t bytes[CHUNK];
};

static void
kernel_read(void *context, void *memory)
{
    memcpy(((struct seen *)context)->bytes, memory, CHUNK);
}

static void
a_stream_waits_for_a_chunk_that_is_on_its_way(void **state)
{
    struct kvt_file_load_options options = load_rig_options(0, 8 * CHUNK, CHUNK);
    struct device *device = sim_store_device(load_sim.store);
    static struct seen seen;
    static uint8_t wanted[CHUNK];
    uint32_t early_count = 0;
    void *stream, *event;
    kvt_load load;

    (void)state;
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    assert_int_equal(device->ops->event_create(device, &event), KVT_OK);
    load = load_rig_begin(&options);
    assert_int_equal(kvt_load_stream_wait(load_sim.store, load, 7, stream, NULL), KVT_NOT_READY);
    for (uint32_t i = 0; i < 8; i++) {
        struct kvt_load_chunk chunk;
        enum kvt_status status;

        while ((status = kvt_load_stream_wait(load_sim.store, load, i, stream, &chunk)) ==
               KVT_NOT_READY)
            sim_store_pass(&load_sim, 1000);
        assert_int_equal(status, KVT_OK);
        early_count += load_rig_look(load, i) == KVT_LATE;
        assert_int_equal(
            device_host_launch(device, stream, kernel_read, &seen, chunk.address), KVT_OK);
        assert_int_equal(device->ops->event_record(device, event, stream), KVT_OK);
        while ((status = device->ops->event_query(device, event)) == KVT_NOT_READY)
            sim_store_pass(&load_sim, 1000);
        assert_int_equal(status, KVT_OK);
        load_rig_bytes(wanted, i * CHUNK, CHUNK);
        assert_memory_equal(seen.bytes, wanted, CHUNK);
    }
    assert_in_range(early_count, 1, 8); /* Else the host waited, and nothing was shown. */
    load_rig_end(load);
    device->ops->event_destroy(device, event);
    device_host_stream_destroy(device, stream);
}

/* --- 3. Chunks that do not come --------------------------------------------------------------- */

static struct {
    uint32_t count;
    uint32_t locked_count; /* Told while calls that "never block" would have had to wait. */
} lines;

static void
line_take(void *context, int level, const char *module, const char *line)
{
    pthread_mutex_t *lock = &load_sim.store->loads->lock;

    (void)context;
    (void)level;
    (void)module;
    (void)line;
    lines.count++;
    if (pthread_mutex_trylock(lock) == 0)
        pthread_mutex_unlock(lock);
    else
        lines.locked_count++;
}

static void
lines_watch(void)
{
    lines.count = lines.locked_count = 0;
    load_sim.store->logger.callback = line_take;
    load_sim.store->logger.level_max = LOG_ERROR;
}

static void
unreadable_chunks_fail_alone(void **state)
{
    struct kvt_file_load_options options = load_rig_options(0, 9 * CHUNK, CHUNK);
    uint32_t sum = 0;

    (void)state;
    lines_watch();
    for (uint64_t nth = 1; nth < 12; nth++) {
        uint32_t failed = 0;
        kvt_load load;

        load_rig_reads_fail(nth);
        load = load_rig_begin(&options);
        for (uint32_t i = 0; i < 9; i++) {
            struct kvt_load_chunk chunk;
            enum kvt_status status = kvt_load_wait(load_sim.store, load, i, KVT_FOREVER, &chunk);

            if (status == KVT_OK)
                assert_true(load_rig_is_right(load_sim.store, chunk.address, i * CHUNK, CHUNK));
            else
                refused(status, KVT_E_IO, "could not be read");
            failed += status != KVT_OK;
        }
        assert_in_range(failed, 0, 2);
        assert_int_equal(load_rig_await(load, KVT_LOAD_ALL), failed > 0 ? KVT_E_IO : KVT_OK);
        load_rig_end(load);
        sum += failed;
    }
    assert_in_range(sum, 3, 22);
    assert_int_equal(counted("lost"), sum);
    assert_in_range(lines.count, sum, UINT32_MAX);
    assert_int_equal(lines.locked_count, 0);
}

static void
a_file_that_becomes_shorter_fails_what_it_lacks(void **state)
{
    struct kvt_file_load_options options = load_rig_options(0, KVT_LOAD_TO_END, CHUNK);
    kvt_load load;
    uint32_t i;

    (void)state;
    options.capacity = CHUNK;
    load = load_rig_begin(&options);
    assert_int_equal(load_rig_await(load, 0), KVT_OK);
    load_rig_truncate(&load_sim, "weights", 2 * CHUNK + 100);
    for (i = 0; i < 10; i++) {
        assert_int_equal(load_rig_await(load, i), i < 2 ? KVT_OK : KVT_E_IO);
        assert_int_equal(kvt_load_release(load_sim.store, load, &i, 1), KVT_OK);
    }
    load_rig_end(load);
}

static void
what_has_not_begun_is_given_up_by_a_cancel(void **state)
{
    struct kvt_file_load_options options = load_rig_options(0, KVT_LOAD_TO_END, CHUNK);
    kvt_load load;

    (void)state;
    options.capacity = 2 * CHUNK;
    load = load_rig_begin(&options);
    assert_int_equal(load_rig_await(load, 0), KVT_OK);
    assert_int_equal(load_rig_await(load, 1), KVT_OK);
    assert_int_equal(kvt_load_cancel(load_sim.store, load), KVT_OK);
    assert_int_equal(kvt_load_cancel(load_sim.store, load), KVT_OK);
    assert_int_equal(load_rig_look(load, 0), KVT_OK);
    for (uint32_t i = 2; i < 10; i++)
        assert_int_equal(load_rig_look(load, i), KVT_CANCELLED);
    assert_int_equal(load_rig_look(load, KVT_LOAD_ALL), KVT_CANCELLED);
    assert_int_equal(kvt_load_stream_wait(load_sim.store, load, 5, &load_sim, NULL), KVT_CANCELLED);
    assert_int_equal(kvt_load_release(load_sim.store, load, NULL, 0), KVT_OK);
    load_rig_end(load);
}

/* At any moment: all chunks are settled then, one way or the other, and those that are there are
 * right. */
static void
a_cancel_at_any_moment_settles_everything(void **state)
{
    struct kvt_file_load_options options = load_rig_options(9, KVT_LOAD_TO_END, CHUNK);

    (void)state;
    for (uint32_t steps = 0; steps < 400; steps += 7) {
        kvt_load load = load_rig_begin(&options);

        sim_run_steps(load_sim.world, steps);
        assert_int_equal(kvt_load_cancel(load_sim.store, load), KVT_OK);
        for (uint32_t i = 0; i < 10; i++) {
            struct kvt_load_chunk chunk;
            enum kvt_status status = kvt_load_wait(load_sim.store, load, i, KVT_FOREVER, &chunk);

            if (status != KVT_CANCELLED) {
                assert_int_equal(status, KVT_OK);
                assert_true(
                    load_rig_is_right(load_sim.store, chunk.address, 9 + i * CHUNK, chunk.size));
            }
        }
        load_rig_end(load);
    }
}

static void
a_load_can_be_closed_at_any_moment(void **state)
{
    struct kvt_file_load_options options = load_rig_options(9, KVT_LOAD_TO_END, CHUNK);

    (void)state;
    for (uint32_t steps = 0; steps < 400; steps += 7) {
        kvt_load load = load_rig_begin(&options);

        sim_run_steps(load_sim.world, steps);
        load_rig_end(load);
    }
}

static void
a_lost_device_costs_its_chunks(void **state)
{
    struct kvt_file_load_options options = load_rig_options(0, KVT_LOAD_TO_END, CHUNK);
    kvt_load load, other;
    uint32_t health;

    (void)state;
    options.capacity = CHUNK;
    lines_watch();
    load = load_rig_begin(&options);
    assert_int_equal(load_rig_await(load, 0), KVT_OK);
    load_sim.device.fail_call = atomic_load(&load_sim.device.call_count) + 1;
    assert_int_equal(kvt_load_release(load_sim.store, load, NULL, 0), KVT_E_STATE);
    assert_int_equal(kvt_load_release(load_sim.store, load, (uint32_t[]){0}, 1), KVT_OK);
    refused(load_rig_await(load, 1), KVT_E_GPU, "chunk 1");
    refused(kvt_load_stream_wait(load_sim.store, load, 1, &load_sim, NULL), KVT_E_GPU, "chunk 1");
    assert_int_equal(kvt_health(load_sim.store, &health), KVT_OK);
    assert_int_equal(health & KVT_HEALTH_GPU_LOST, KVT_HEALTH_GPU_LOST);
    options.capacity = 0;
    refused(kvt_file_load(load_sim.store, "/weights", &options, &other), KVT_E_GPU, "lost");
    load_rig_end(load);
    assert_int_equal(lines.count, 1);
    assert_int_equal(lines.locked_count, 0);
    options.device = 1;
    load = load_rig_begin(&options);
    assert_int_equal(load_rig_await(load, KVT_LOAD_ALL), KVT_OK);
    load_rig_end(load);
}

/* It promised them, and refuses them at once, or after some. */
static void
a_file_system_that_refuses_direct_reads_is_read_without(void **state)
{
    struct kvt_file_load_options options = load_rig_options(3, KVT_LOAD_TO_END, CHUNK);

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        kvt_load load = load_rig_begin(&options);

        if (i == 0)
            assert_int_equal(load_rig_await(load, 1), KVT_OK);
        sim_direct_refuse(load_sim.world);
        load_rig_check(load_sim.store, load, &options, FILE_BYTES - 3);
        load_rig_end(load);
    }
    assert_int_equal(counted("lost"), 0);
}

/* --- 4. The end of a store -------------------------------------------------------------------- */

static void
an_abort_ends_loads_at_any_moment(void **state)
{
    struct kvt_file_load_options options = load_rig_options(3, KVT_LOAD_TO_END, CHUNK);
    char leaks[200] = "";

    (void)state;
    for (uint32_t steps = 0; steps < 300; steps += 37) {
        kvt_load load = load_rig_begin(&options);

        options.capacity = steps % 2 == 0 ? 0 : 2 * CHUNK;
        sim_run_steps(load_sim.world, steps);
        (void)load;
        kvt_abort(load_sim.store);
        assert_int_equal(sim_leaks(load_sim.world, leaks, sizeof(leaks)), 0);
        sim_store_reopen(&load_sim);
    }
}

/* Who waits with a full stream blocks in the driver; the actor needs the lock meanwhile. */
static uint32_t wait_count, locked_count;

static enum kvt_status
wait_and_look(struct device *device, void *stream, void *event)
{
    wait_count++;
    if (pthread_mutex_trylock(&load_sim.store->loads->lock) == 0)
        pthread_mutex_unlock(&load_sim.store->loads->lock);
    else
        locked_count++;
    return device_host_ops.stream_wait(device, stream, event);
}

static void
a_full_stream_does_not_stop_loads(void **state)
{
    static struct kvt_device_ops ops;
    struct kvt_file_load_options options = load_rig_options(0, 8 * CHUNK, CHUNK);
    struct device *device = sim_store_device(load_sim.store);
    const struct kvt_device_ops *real = device->ops;
    enum kvt_status status;
    void *stream;
    kvt_load load;

    (void)state;
    ops = *real;
    ops.stream_wait = wait_and_look;
    device->ops = &ops;
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    load = load_rig_begin(&options);
    for (uint32_t i = 0; i < 8; i++) {
        while (
            (status = kvt_load_stream_wait(load_sim.store, load, i, stream, NULL)) == KVT_NOT_READY)
            sim_store_pass(&load_sim, 1000);
        assert_int_equal(status, KVT_OK);
    }
    load_rig_end(load);
    device->ops = real;
    device_host_stream_destroy(device, stream);
    assert_true(wait_count > 0);
    assert_int_equal(locked_count, 0);
}

int
main(void)
{
#define LOAD_TEST(name) cmocka_unit_test_setup_teardown(name, load_rig_setup, load_rig_teardown)
    const struct CMUnitTest tests[] = {
        LOAD_TEST(a_full_stream_does_not_stop_loads),
        LOAD_TEST(any_range_arrives_whole),
        LOAD_TEST(memory_of_the_caller_gets_the_range_and_nothing_else),
        LOAD_TEST(a_file_that_is_replaced_while_it_is_opened_comes_from_one_of_both),
        LOAD_TEST(the_first_chunk_is_there_before_the_last_was_read),
        LOAD_TEST(a_file_larger_than_its_memory_comes_as_chunks_are_released),
        LOAD_TEST(several_loads_share_the_stages),
        LOAD_TEST(a_stream_waits_for_a_chunk_that_is_on_its_way),
        LOAD_TEST(unreadable_chunks_fail_alone),
        LOAD_TEST(a_file_that_becomes_shorter_fails_what_it_lacks),
        LOAD_TEST(what_has_not_begun_is_given_up_by_a_cancel),
        LOAD_TEST(a_cancel_at_any_moment_settles_everything),
        LOAD_TEST(a_load_can_be_closed_at_any_moment),
        LOAD_TEST(a_lost_device_costs_its_chunks),
        LOAD_TEST(a_file_system_that_refuses_direct_reads_is_read_without),
        LOAD_TEST(an_abort_ends_loads_at_any_moment),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
