/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_peers.c - blocks in HBM of one device that are read to memory of another: by that device
 * itself where it reaches them, and by way of HOST where it does not. Streams of both that wait.
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device_host.h"
#include "env.h"
#include "failure.h"
#include "hbm_kit.h"
#include "kvtier/kvtier_unstable.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BYTES = 20000, /* No whole number of pages. */
    COUNT = 16,
    DEVICES = 2,
};

struct peers {
    char path[KIT_PATH_BYTES];
    struct device_host_config config;
    struct kvt_env env;
    struct kvt_options options;
    kvt_store *store;
    kvt_namespace ns;
    uint8_t *pools[DEVICES]; /* Of COUNT blocks, each in a region. */
    kvt_region regions[DEVICES];
};

/* The emulation, which may have no memory for peers; and what the log says then. */
static struct {
    struct kvt_device_ops ops;
    bool is_short;
    uint32_t told_count;
    kvt_store *loser; /* Device 0 is lost with the next copy. */
} world;

static enum kvt_status
peer_register_unless_short(
    struct device *device, struct device *other, void *slab, uint64_t size, bool *is_faster_out)
{
    if (world.is_short)
        return failure_set(KVT_E_NOMEM, 0, "no memory to measure with");
    return device_host_ops.peer_register(device, other, slab, size, is_faster_out);
}

static enum kvt_status
copy_and_lose(
    struct device *device, void *stream, const struct device_piece *pieces, uint32_t count)
{
    if (world.loser != NULL)
        (void)device_answer(world.loser, 0, KVT_E_GPU);
    return device_host_ops.copy(device, stream, pieces, count);
}

static enum kvt_status
device_open(void *context, const struct kvt_env *env, uint32_t ordinal, struct device **device_out)
{
    enum kvt_status status = device_host_ops.open(context, env, ordinal, device_out);

    if (status == KVT_OK)
        (*device_out)->ops = &world.ops;
    return status;
}

static void
told_note(void *context, int level, const char *module, const char *line)
{
    (void)context;
    (void)module;
    if (level == KVT_LOG_WARN && strstr(line, "event=peer_left_out") != NULL &&
        strstr(line, "no memory to measure with") != NULL)
        world.told_count++;
}

static void
peers_open(struct peers *peers, bool has_none, bool has_slow)
{
    memset(peers, 0, sizeof(*peers));
    kit_dir_make(peers->path);
    peers->config = (struct device_host_config){.seed = 11,
        .delay_ns_max = 200000,
        .device_count = DEVICES,
        .has_no_peers = has_none,
        .has_slow_peers = has_slow};
    kvt_env_host(&peers->env);
    world.ops = device_host_ops;
    world.ops.open = device_open;
    world.ops.peer_register = peer_register_unless_short;
    world.ops.copy = copy_and_lose;
    world.told_count = 0;
    peers->env.device = &world.ops;
    peers->env.device_context = &peers->config;
    peers->options = kit_options();
    peers->options.hbm_capacity_bytes = 4 << 20;
    peers->options.device_mask = 3;
    peers->options.log = told_note;
    peers->options.log_level = KVT_LOG_WARN;
    assert_int_equal(
        kvt_open_env(peers->path, &peers->options, &peers->env, &peers->store), KVT_OK);
    assert_int_equal(kvt_namespace_open(peers->store, "peers", "", 0, &peers->ns), KVT_OK);
    for (uint32_t i = 0; i < DEVICES; i++) {
        struct kvt_region_options about = {
            .struct_size = sizeof(about), .tier = KVT_TIER_HBM, .device = i, .size = COUNT * BYTES};
        void *address;

        assert_int_equal(kvt_device_alloc(peers->store, i, about.size, &address), KVT_OK);
        peers->pools[i] = address;
        about.address = address;
        assert_int_equal(kvt_region_register(peers->store, &about, &peers->regions[i]), KVT_OK);
    }
}

static void
peers_close(struct peers *peers)
{
    for (uint32_t i = 0; i < DEVICES; i++) {
        assert_int_equal(kvt_region_unregister(peers->store, peers->regions[i]), KVT_OK);
        kvt_device_free(peers->store, i, peers->pools[i], COUNT * BYTES);
    }
    assert_int_equal(kvt_close(peers->store), KVT_OK);
    kit_dir_remove(peers->path);
}

static uint8_t *
pool_at(const struct peers *peers, uint32_t device, uint32_t i)
{
    return (uint8_t *)((uintptr_t)peers->pools[device] + (uintptr_t)i * BYTES);
}

/* COUNT blocks, born in HBM of device 0. */
static void
blocks_put(struct peers *peers, enum kvt_durability durability)
{
    struct payload_key names[COUNT];
    struct kvt_put puts[COUNT];
    struct kvt_result results[COUNT];
    uint8_t bytes[BYTES];
    kvt_ticket *ticket;

    for (uint32_t i = 0; i < COUNT; i++) {
        payload_key_make(&names[i], i);
        payload_fill(bytes, BYTES, i, 1);
        assert_int_equal(
            kvt_device_write(peers->store, 0, pool_at(peers, 0, i), bytes, BYTES), KVT_OK);
        puts[i] = (struct kvt_put){.key = names[i].key,
            .source = pool_at(peers, 0, i),
            .length = BYTES,
            .region = peers->regions[0],
            .tier = KVT_TIER_HBM};
    }
    assert_int_equal(
        kvt_put_submit(peers->store, peers->ns, puts, COUNT, durability, NULL, &ticket), KVT_OK);
    assert_int_equal(
        kvt_ticket_wait(
            ticket, durability == KVT_MEMORY ? KVT_STAGE_DONE : KVT_STAGE_DURABLE, KVT_FOREVER),
        KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DONE, results, COUNT), KVT_OK);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(results[i].status, KVT_OK);
    kvt_ticket_free(ticket);
}

/* All of them to memory of `device`, over poison; the tier that they came from. */
static uint32_t
blocks_get(struct peers *peers, uint32_t device)
{
    struct payload_key names[COUNT];
    struct kvt_get gets[COUNT];
    struct kvt_result results[COUNT];
    uint8_t bytes[BYTES];
    kvt_ticket *ticket;

    memset(bytes, 0xEE, BYTES);
    for (uint32_t i = 0; i < COUNT; i++) {
        payload_key_make(&names[i], i);
        assert_int_equal(
            kvt_device_write(peers->store, device, pool_at(peers, device, i), bytes, BYTES),
            KVT_OK);
        gets[i] = (struct kvt_get){.key = names[i].key,
            .destination = pool_at(peers, device, i),
            .capacity = BYTES,
            .region = peers->regions[device]};
    }
    assert_int_equal(kvt_get_submit(peers->store, peers->ns, gets, COUNT, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    assert_int_equal(kvt_ticket_results(ticket, KVT_STAGE_DONE, results, COUNT), KVT_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint64_t version = 0;

        assert_int_equal(results[i].status, KVT_OK);
        assert_int_equal(results[i].tier, results[0].tier);
        assert_int_equal(
            kvt_device_read(peers->store, device, bytes, pool_at(peers, device, i), BYTES), KVT_OK);
        assert_true(payload_is_right(bytes, BYTES, i, &version));
        assert_int_equal(version, 1);
    }
    kvt_ticket_free(ticket);
    return results[0].tier;
}

static void
a_device_reads_what_another_has(void **state)
{
    struct peers peers;

    (void)state;
    peers_open(&peers, false, false);
    blocks_put(&peers, KVT_MEMORY);
    assert_int_equal(blocks_get(&peers, 1), KVT_TIER_HBM);
    assert_int_equal(kit_stats(peers.store).get_peer_count, COUNT);
    assert_int_equal(kit_stats(peers.store).get_hbm_count, COUNT);
    assert_int_equal(kit_stats(peers.store).hbm_lower_count, 0);
    /* Its own: no peer has to do with it. */
    assert_int_equal(blocks_get(&peers, 0), KVT_TIER_HBM);
    assert_int_equal(kit_stats(peers.store).get_peer_count, COUNT);
    peers_close(&peers);
}

/* Nothing failed on the device that reads, but what a lost one gave it may be anything. */
static void
what_was_read_from_a_device_that_is_lost_is_not_believed(void **state)
{
    struct payload_key name;
    struct kvt_get get = {.capacity = BYTES};
    struct peers peers;
    kvt_ticket *ticket;

    (void)state;
    peers_open(&peers, false, false);
    blocks_put(&peers, KVT_MEMORY);
    payload_key_make(&name, 3);
    get.key = name.key;
    get.destination = pool_at(&peers, 1, 0);
    get.region = peers.regions[1];
    world.loser = peers.store;
    assert_int_equal(kvt_get_submit(peers.store, peers.ns, &get, 1, NULL, &ticket), KVT_OK);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DONE).status, KVT_E_GPU);
    world.loser = NULL;
    assert_int_equal(kit_stats(peers.store).gpu_lost_count, 1);
    peers_close(&peers);
}

/* Also what HOST has, when that is farther. */
static void
the_nearer_of_peer_and_host_is_read(void **state)
{
    struct peers peers;

    (void)state;
    peers_open(&peers, false, false);
    blocks_put(&peers, KVT_SYNC);
    assert_int_equal(blocks_get(&peers, 1), KVT_TIER_HBM);
    assert_int_equal(kit_stats(peers.store).get_peer_count, COUNT);
    peers_close(&peers);
    peers_open(&peers, false, true);
    blocks_put(&peers, KVT_SYNC);
    assert_int_equal(blocks_get(&peers, 1), KVT_TIER_HOST);
    assert_int_equal(kit_stats(peers.store).get_peer_count, 0);
    peers_close(&peers);
}

/* Slow, but two copies by way of HOST are slower. */
static void
a_slow_peer_is_read_when_host_has_no_copy(void **state)
{
    struct peers peers;

    (void)state;
    peers_open(&peers, false, true);
    blocks_put(&peers, KVT_MEMORY);
    assert_int_equal(blocks_get(&peers, 1), KVT_TIER_HBM);
    assert_int_equal(kit_stats(peers.store).get_peer_count, COUNT);
    assert_int_equal(kit_stats(peers.store).hbm_lower_count, 0);
    peers_close(&peers);
}

static void
a_peer_out_of_reach_is_read_by_way_of_host(void **state)
{
    struct peers peers;

    (void)state;
    peers_open(&peers, true, false);
    blocks_put(&peers, KVT_MEMORY);
    assert_int_equal(blocks_get(&peers, 1), KVT_TIER_HOST);
    assert_int_equal(kit_stats(peers.store).get_peer_count, 0);
    assert_int_equal(kit_stats(peers.store).hbm_lower_count, COUNT);
    peers_close(&peers);
}

/* That is no reason to have no store. */
static void
a_peer_that_no_memory_is_there_to_try_is_read_by_way_of_host(void **state)
{
    struct peers peers;

    (void)state;
    world.is_short = true;
    peers_open(&peers, false, false);
    world.is_short = false;
    assert_int_equal(world.told_count, DEVICES);
    blocks_put(&peers, KVT_MEMORY);
    assert_int_equal(blocks_get(&peers, 1), KVT_TIER_HOST);
    assert_int_equal(kit_stats(peers.store).get_peer_count, 0);
    assert_int_equal(kit_stats(peers.store).hbm_lower_count, COUNT);
    peers_close(&peers);
    peers_open(&peers, true, false);
    assert_int_equal(world.told_count, 0);
    peers_close(&peers);
}

/* --- Readiness -------------------------------------------------------------------------------- */

struct kernel {
    uint8_t seen[COUNT][BYTES];
    uint32_t at;
};

static void
kernel_read(void *context, void *memory)
{
    struct kernel *kernel = context;

    memcpy(kernel->seen[kernel->at++], memory, BYTES);
}

/* Blocks go to memory of the devices by turns, when a stream of the first has done its work. */
static void
streams_of_both_devices_wait_for_what_went_to_both(void **state)
{
    static struct kernel kernel;
    struct payload_key names[COUNT];
    struct kvt_get gets[COUNT];
    struct kvt_submit submit = {0};
    struct device *devices[DEVICES];
    void *streams[DEVICES];
    struct peers peers;
    kvt_ticket *ticket;
    atomic_bool may_go = false;
    int stream;

    (void)state;
    peers_open(&peers, false, false);
    blocks_put(&peers, KVT_SYNC);
    for (uint32_t d = 0; d < DEVICES; d++) {
        devices[d] = hbm_device(peers.store->devices.tiers[d]);
        assert_int_equal(device_host_stream_create(devices[d], &streams[d]), KVT_OK);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        payload_key_make(&names[i], i);
        gets[i] = (struct kvt_get){.key = names[i].key,
            .destination = pool_at(&peers, i % DEVICES, i),
            .capacity = BYTES,
            .region = peers.regions[i % DEVICES]};
    }
    assert_int_equal(devices[0]->ops->event_create(devices[0], &submit.wait_event), KVT_OK);
    hbm_stream_hold(devices[0], streams[0], pool_at(&peers, 0, 1), &may_go);
    assert_int_equal(
        devices[0]->ops->event_record(devices[0], submit.wait_event, streams[0]), KVT_OK);
    assert_int_equal(kvt_get_submit(peers.store, peers.ns, gets, COUNT, &submit, &ticket), KVT_OK);
    for (uint32_t d = 0; d < DEVICES; d++)
        assert_int_equal(
            kvt_ticket_stream_wait(ticket, KVT_PART_ALL, d, streams[d]), KVT_NOT_READY);
    refused(kvt_ticket_stream_wait(ticket, KVT_PART_ALL, DEVICES, &stream), KVT_E_INVAL,
        "no destination");
    atomic_store(&may_go, true);
    for (uint32_t d = DEVICES; d-- > 0;) {
        enum kvt_status status;

        while (
            (status = kvt_ticket_stream_wait(ticket, KVT_PART_ALL, d, streams[d])) == KVT_NOT_READY)
            sched_yield();
        assert_int_equal(status, KVT_OK);
        kernel.at = 0;
        for (uint32_t i = d; i < COUNT; i += DEVICES)
            assert_int_equal(device_host_launch(devices[d], streams[d], kernel_read, &kernel,
                                 pool_at(&peers, d, i)),
                KVT_OK);
        hbm_stream_finish(devices[d], streams[d]);
        for (uint32_t i = d; i < COUNT; i += DEVICES) {
            uint64_t version = 0;

            assert_true(payload_is_right(kernel.seen[i / DEVICES], BYTES, i, &version));
        }
    }
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER), KVT_OK);
    kvt_ticket_free(ticket);
    devices[0]->ops->event_destroy(devices[0], submit.wait_event);
    for (uint32_t d = 0; d < DEVICES; d++)
        device_host_stream_destroy(devices[d], streams[d]);
    peers_close(&peers);
}

/* --- The device ------------------------------------------------------------------------------- */

static void
only_slabs_of_others_are_peers_and_only_to_be_read(void **state)
{
    const struct kvt_device_ops *ops = &device_host_ops;
    struct device_host_config config = {.device_count = DEVICES};
    struct device *devices[DEVICES];
    struct device_piece piece = {.size = 4096};
    struct kvt_env env;
    void *slabs[DEVICES];
    bool is_faster = false;

    (void)state;
    env_host(&env);
    for (uint32_t i = 0; i < DEVICES; i++) {
        assert_int_equal(ops->open(&config, &env, i, &devices[i]), KVT_OK);
        assert_int_equal(ops->slab_take(devices[i], 2 << 20, &slabs[i]), KVT_OK);
    }
    assert_int_equal(
        ops->peer_register(devices[1], devices[1], slabs[1], 2 << 20, &is_faster), KVT_E_INVAL);
    assert_int_equal(
        ops->peer_register(devices[1], devices[0], slabs[1], 2 << 20, &is_faster), KVT_E_INVAL);
    assert_int_equal(
        ops->peer_register(devices[1], devices[0], slabs[0], 4 << 20, &is_faster), KVT_E_INVAL);
    piece.source = slabs[0];
    piece.target = slabs[1];
    assert_int_equal(
        ops->copy(devices[1], ops->stream(devices[1], DEVICE_IN), &piece, 1), KVT_E_INVAL);
    assert_int_equal(
        ops->peer_register(devices[1], devices[0], slabs[0], 2 << 20, &is_faster), KVT_OK);
    assert_true(is_faster);
    assert_int_equal(ops->copy(devices[1], ops->stream(devices[1], DEVICE_IN), &piece, 1), KVT_OK);
    piece.source = slabs[1];
    piece.target = slabs[0];
    assert_int_equal(
        ops->copy(devices[1], ops->stream(devices[1], DEVICE_IN), &piece, 1), KVT_E_INVAL);
    hbm_stream_finish(devices[1], ops->stream(devices[1], DEVICE_IN));
    ops->peer_unregister(devices[1], slabs[0], 2 << 20);
    for (uint32_t i = 0; i < DEVICES; i++) {
        ops->slab_put(devices[i], slabs[i], 2 << 20);
        ops->close(devices[i]);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_reads_what_another_has),
        cmocka_unit_test(what_was_read_from_a_device_that_is_lost_is_not_believed),
        cmocka_unit_test(the_nearer_of_peer_and_host_is_read),
        cmocka_unit_test(a_slow_peer_is_read_when_host_has_no_copy),
        cmocka_unit_test(a_peer_out_of_reach_is_read_by_way_of_host),
        cmocka_unit_test(a_peer_that_no_memory_is_there_to_try_is_read_by_way_of_host),
        cmocka_unit_test(streams_of_both_devices_wait_for_what_went_to_both),
        cmocka_unit_test(only_slabs_of_others_are_peers_and_only_to_be_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
