/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_engram_device.c - rows of N-gram tables that go to memory of a device: late copies, poisoned
 * targets, streams that wait, damage, lost devices.
 */
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engram_file.h"
#include "engram_rig.h"
#include "hbm_kit.h"
#include "kvtier/kvtier_unstable.h"
#include "rng.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"

enum {
    TOKENS = 200,
    COLUMNS = 4,
    SLOTS = TOKENS * COLUMNS,
    ROW_BYTES = 264,
    ROWS_BYTES = SLOTS * ROW_BYTES,
    FILLER = 0x6B,
};

/* Two tables, a plan of both, and memory of the device for each: the halves of the kit's pool. */
struct fixture {
    struct engram_rig rig;
    kvt_engram_hasher *hasher;
    kvt_engram_plan *plan;
    kvt_engram *tables[2];
    uint32_t tokens[TOKENS];
    uint8_t states[2][SLOTS];
    uint8_t bytes[ROWS_BYTES + ROW_BYTES]; /* What was read back. */
};

static struct fixture fixture;

static uint8_t *
device_rows(uint32_t index)
{
    return (uint8_t *)((uintptr_t)hbm.pool + (uintptr_t)index * (ROWS_BYTES + ROW_BYTES));
}

static void
tables_open(void)
{
    assert_int_equal(kvt_engram_open(hbm.store, "zero", &fixture.tables[0]), KVT_OK);
    assert_int_equal(kvt_engram_open(hbm.store, "one", &fixture.tables[1]), KVT_OK);
}

static void
tables_close(void)
{
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(kvt_engram_close(fixture.tables[i]), KVT_OK);
}

static int
setup(void **state)
{
    struct rng rng = {.state = 17};

    (void)hbm_setup(state);
    engram_rig_init(&fixture.rig, "t", ROW_BYTES, 500);
    assert_int_equal(engram_rig_import(&fixture.rig, hbm.store, "zero", 0), KVT_OK);
    assert_int_equal(engram_rig_import(&fixture.rig, hbm.store, "one", 1), KVT_OK);
    assert_int_equal(
        kvt_engram_hasher_open(&fixture.rig.profile, NULL, 0, &fixture.hasher), KVT_OK);
    assert_int_equal(kvt_engram_plan_create(fixture.hasher, TOKENS, &fixture.plan), KVT_OK);
    tables_open();
    for (uint32_t i = 0; i < TOKENS; i++)
        fixture.tokens[i] = rng_below(&rng, RIG_CLASSES);
    return 0;
}

static int
teardown(void **state)
{
    if (hbm.store != NULL)
        tables_close();
    kvt_engram_plan_destroy(fixture.plan);
    kvt_engram_hasher_close(fixture.hasher);
    return hbm_teardown(state);
}

static void
plan_fill(uint32_t count)
{
    const struct kvt_engram_sequence sequence = {.tokens = fixture.tokens, .token_count = count};

    assert_int_equal(kvt_engram_plan_fill(fixture.plan, &sequence, 1, KVT_ENGRAM_UNIQUE), KVT_OK);
}

static struct kvt_engram_target
target_of(uint32_t index, uint32_t flags)
{
    memset(fixture.states[index], FILLER, SLOTS);
    return (struct kvt_engram_target){.table = fixture.tables[index],
        .layer_index = index,
        .flags = flags,
        .destination = device_rows(index),
        .capacity = ROWS_BYTES,
        .states = fixture.states[index],
        .region = hbm.region};
}

/* Fill both destinations, and a row behind each. */
static void
device_clear(void)
{
    memset(fixture.bytes, FILLER, sizeof(fixture.bytes));
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(
            kvt_device_write(hbm.store, 0, device_rows(i), fixture.bytes, sizeof(fixture.bytes)),
            KVT_OK);
}

/* fixture.bytes has, in the places of rows that are there, these rows; `is_clean`: others were left
 * alone. Returns how many are not there. */
static uint64_t
assert_rows(uint32_t index, uint32_t flags, bool is_clean)
{
    uint8_t wanted[ROW_BYTES], untouched[ROW_BYTES];
    struct kvt_engram_rows rows;
    uint64_t lost_count = 0;
    uint32_t count;

    memset(untouched, FILLER, sizeof(untouched));
    assert_int_equal(kvt_engram_plan_rows(fixture.plan, index, &rows), KVT_OK);
    count = flags == KVT_ENGRAM_ONCE ? rows.row_count : rows.slot_count;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *at = fixture.bytes + (size_t)i * ROW_BYTES;

        engram_rig_row(
            &fixture.rig, index, rows.rows[flags == KVT_ENGRAM_ONCE ? i : rows.inverse[i]], wanted);
        if (fixture.states[index][i] == KVT_ENGRAM_ROW_THERE)
            assert_memory_equal(at, wanted, ROW_BYTES);
        else if (is_clean)
            assert_memory_equal(at, untouched, ROW_BYTES);
        lost_count += fixture.states[index][i] != KVT_ENGRAM_ROW_THERE;
    }
    if (is_clean)
        assert_memory_equal(fixture.bytes + (size_t)count * ROW_BYTES, untouched, ROW_BYTES);
    return lost_count;
}

static void
read_back(uint32_t index)
{
    assert_int_equal(
        kvt_device_read(hbm.store, 0, fixture.bytes, device_rows(index), sizeof(fixture.bytes)),
        KVT_OK);
}

static void
fetch_both(uint32_t flags)
{
    const struct kvt_engram_target targets[2] = {target_of(0, flags), target_of(1, flags)};
    kvt_engram_fetch *fetch;
    uint64_t lost = 99;

    device_clear();
    assert_int_equal(kvt_engram_fetch_submit(fixture.plan, targets, 2, &fetch), KVT_OK);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(kvt_engram_fetch_wait(fetch, i, KVT_FOREVER, &lost), KVT_OK);
        assert_int_equal(lost, 0);
        read_back(i);
        assert_int_equal(assert_rows(i, flags, true), 0);
    }
    kvt_engram_fetch_free(fetch);
}

static void
every_row_comes_to_its_slots_on_the_device(void **state)
{
    (void)state;
    for (uint32_t count = 0; count <= TOKENS; count = count * 3 + 1) {
        plan_fill(count);
        fetch_both(0);
        fetch_both(KVT_ENGRAM_ONCE);
    }
    plan_fill(TOKENS);
    fetch_both(0);
}

/* More places than a move has pieces. */
static void
a_row_of_many_slots_comes_to_each(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < TOKENS; i++)
        fixture.tokens[i] = i % 70 == 0 ? 9 : 5;
    plan_fill(TOKENS);
    fetch_both(0);
}

/* --- Streams ---------------------------------------------------------------------------------- */

struct kernel {
    uint8_t *seen;
    size_t size;
};

static void
kernel_read(void *context, void *memory)
{
    struct kernel *kernel = context;

    memcpy(kernel->seen, memory, kernel->size);
}

/* The host never waits for the copies: the stream does. */
static void
a_stream_that_waits_reads_the_rows(void **state)
{
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    struct kernel kernel = {.seen = fixture.bytes, .size = sizeof(fixture.bytes)};
    void *stream;

    (void)state;
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    for (uint32_t round = 0; round < 20; round++) {
        uint32_t flags = round % 2 == 0 ? 0 : KVT_ENGRAM_ONCE;
        const struct kvt_engram_target targets[2] = {target_of(0, flags), target_of(1, flags)};
        kvt_engram_fetch *fetch;
        enum kvt_status status;

        plan_fill(round * 10 + 1);
        device_clear();
        assert_int_equal(kvt_engram_fetch_submit(fixture.plan, targets, 2, &fetch), KVT_OK);
        for (uint32_t i = 0; i < 2; i++) {
            while ((status = kvt_engram_fetch_stream_wait(fetch, i, stream)) == KVT_NOT_READY)
                sched_yield();
            assert_int_equal(status, KVT_OK);
            assert_int_equal(
                device_host_launch(device, stream, kernel_read, &kernel, device_rows(i)), KVT_OK);
            hbm_stream_finish(device, stream);
            assert_int_equal(kvt_engram_fetch_wait(fetch, i, KVT_FOREVER, NULL), KVT_OK);
            assert_int_equal(assert_rows(i, flags, true), 0);
        }
        assert_int_equal(kvt_engram_fetch_stream_wait(fetch, 0, stream), KVT_OK);
        kvt_engram_fetch_free(fetch);
    }
    device_host_stream_destroy(device, stream);
}

/* Of a plan without tokens, or whose rows are another rank's. */
static void
a_stream_need_not_wait_for_a_target_without_rows(void **state)
{
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    struct kvt_engram_shard shard = {.rank_count = 10};
    void *stream;

    (void)state;
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    for (uint32_t i = 0; i < 4; i++) {
        const struct kvt_engram_target target = target_of(0, i % 2 == 0 ? 0 : KVT_ENGRAM_ONCE);
        struct kvt_engram_rows rows;
        kvt_engram_fetch *fetch;

        plan_fill(i / 2);
        assert_int_equal(kvt_engram_plan_rows(fixture.plan, 0, &rows), KVT_OK);
        while (rows.row_count > 0) {
            shard.rank++;
            assert_int_equal(kvt_engram_plan_shard(fixture.plan, &shard), KVT_OK);
            plan_fill(i / 2);
            assert_int_equal(kvt_engram_plan_rows(fixture.plan, 0, &rows), KVT_OK);
        }
        assert_int_equal(kvt_engram_fetch_submit(fixture.plan, &target, 1, &fetch), KVT_OK);
        assert_int_equal(kvt_engram_fetch_stream_wait(fetch, 0, stream), KVT_OK);
        assert_int_equal(kvt_engram_fetch_wait(fetch, 0, KVT_FOREVER, NULL), KVT_OK);
        assert_int_equal(kvt_engram_fetch_stream_wait(fetch, 0, stream), KVT_OK);
        kvt_engram_fetch_free(fetch);
    }
    device_host_stream_destroy(device, stream);
}

static void
what_cannot_be_waited_for_is_refused(void **state)
{
    struct device *device = hbm_device(hbm.store->devices.tiers[0]);
    struct kvt_engram_target targets[2];
    kvt_engram_fetch *fetch;
    void *stream;

    (void)state;
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    plan_fill(1);
    targets[0] = target_of(0, 0);
    targets[1] = target_of(1, 0);
    targets[1].destination = fixture.bytes;
    targets[1].region.id = 0;
    assert_int_equal(kvt_engram_fetch_submit(fixture.plan, targets, 2, &fetch), KVT_OK);
    assert_int_equal(kvt_engram_fetch_stream_wait(NULL, 0, stream), KVT_E_INVAL);
    assert_int_equal(kvt_engram_fetch_stream_wait(fetch, 0, NULL), KVT_E_INVAL);
    assert_int_equal(kvt_engram_fetch_stream_wait(fetch, 2, stream), KVT_E_INVAL);
    assert_int_equal(kvt_engram_fetch_stream_wait(fetch, 1, stream), KVT_E_INVAL);
    kvt_engram_fetch_free(fetch);
    device_host_stream_destroy(device, stream);
}

/* --- Regions ---------------------------------------------------------------------------------- */

static void
a_region_is_kept_until_its_rows_are_there(void **state)
{
    struct kvt_engram_target target;
    kvt_engram_fetch *fetch;
    kvt_region stale = {hbm.region.id + (1u << 12)};

    (void)state;
    plan_fill(TOKENS);
#define REFUSED(change)                                                                           \
    do {                                                                                          \
        target = target_of(0, 0);                                                                 \
        change;                                                                                   \
        assert_int_equal(kvt_engram_fetch_submit(fixture.plan, &target, 1, &fetch), KVT_E_INVAL); \
        assert_null(fetch);                                                                       \
    } while (0)
    REFUSED(target.region = stale);
    REFUSED(target.destination = device_rows(0) - 1);
    REFUSED(target.destination = hbm_pool_at(HBM_POOL_BLOCKS) - ROWS_BYTES + 1);
    REFUSED(target.reserved0 = 1);
#undef REFUSED
    for (uint32_t i = 0; i < 10; i++) {
        const struct kvt_engram_target targets[2] = {target_of(0, 0), target_of(1, 0)};

        assert_int_equal(kvt_engram_fetch_submit(fixture.plan, targets, 2, &fetch), KVT_OK);
        assert_int_equal(kvt_region_unregister(hbm.store, hbm.region), KVT_E_STATE);
        assert_int_equal(kvt_engram_fetch_wait(fetch, 0, KVT_FOREVER, NULL), KVT_OK);
        assert_int_equal(kvt_engram_fetch_wait(fetch, 1, KVT_FOREVER, NULL), KVT_OK);
        kvt_engram_fetch_free(fetch);
    }
    /* Settled is free: the teardown unregisters it. */
}

/* --- What goes wrong -------------------------------------------------------------------------- */

static void
byte_flip(const char *path, uint64_t offset)
{
    int fd = open(path, O_RDWR);
    uint8_t byte;

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, (off_t)offset), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)offset), 1);
    assert_int_equal(close(fd), 0);
}

static void
rows_of_damaged_pages_are_left_alone_on_the_device(void **state)
{
    struct device *device;
    struct kvt_engram_target target;
    kvt_engram_fetch *fetch;
    enum kvt_status status;
    uint64_t lost = 0;
    char path[KIT_PATH_BYTES + 64];
    void *stream;

    (void)state;
    tables_close();
    hbm_close();
    snprintf(path, sizeof(path), "%s/engram/zero.engram", hbm.path);
    byte_flip(path, engram_page_offset(30) + 100);
    hbm_open_again();
    tables_open();
    device = hbm_device(hbm.store->devices.tiers[0]);
    assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
    plan_fill(TOKENS);
    device_clear();
    target = target_of(0, 0);
    assert_int_equal(kvt_engram_fetch_submit(fixture.plan, &target, 1, &fetch), KVT_OK);
    while ((status = kvt_engram_fetch_stream_wait(fetch, 0, stream)) == KVT_NOT_READY)
        sched_yield();
    assert_int_equal(status, KVT_E_CORRUPT);
    assert_int_equal(kvt_engram_fetch_wait(fetch, 0, KVT_FOREVER, &lost), KVT_E_CORRUPT);
    assert_int_equal(kvt_engram_fetch_stream_wait(fetch, 0, stream), KVT_E_CORRUPT);
    read_back(0);
    assert_true(lost > 0);
    assert_int_equal(assert_rows(0, 0, true), lost);
    kvt_engram_fetch_free(fetch);
    device_host_stream_destroy(device, stream);
}

/* Memory of a device that may be lost: of the rows that are there only, because copies of other
 * rows may still arrive. */
static void
read_lost(uint32_t index)
{
    const uint8_t *rows =
        (const uint8_t *)((uintptr_t)device_rows(index) ^ (uintptr_t)DEVICE_HOST_BIT);

    for (size_t i = 0; i < SLOTS; i++) {
        if (fixture.states[index][i] == KVT_ENGRAM_ROW_THERE)
            memcpy(fixture.bytes + i * ROW_BYTES, rows + i * ROW_BYTES, ROW_BYTES);
    }
}

/* Each call of the device in turn fails: for good, or this once. */
static void
calls_that_fail_lose_rows_and_give_no_wrong_ones(enum kvt_status fail_status)
{
    uint32_t lost_fetches = 0;

    for (uint32_t round = 0; round < 60 || (lost_fetches == 0 && round < 6000); round++) {
        struct kvt_engram_target targets[2];
        struct device *device = hbm_device(hbm.store->devices.tiers[0]);
        kvt_engram_fetch *fetch;
        void *stream;

        plan_fill(TOKENS);
        device_clear();
        targets[0] = target_of(0, 0);
        targets[1] = target_of(1, 0);
        assert_int_equal(device_host_stream_create(device, &stream), KVT_OK);
        hbm.config.fail_status = fail_status;
        hbm.config.fail_call = atomic_load(&hbm.config.call_count) + 1 + round % 60;
        assert_int_equal(kvt_engram_fetch_submit(fixture.plan, targets, 2, &fetch), KVT_OK);
        for (uint32_t i = 0; i < 2; i++) {
            uint64_t lost = 0;
            enum kvt_status status = kvt_engram_fetch_wait(fetch, i, KVT_FOREVER, &lost);

            assert_true(status == KVT_OK || status == fail_status);
            assert_int_equal(lost > 0, status != KVT_OK);
            read_lost(i);
            assert_int_equal(assert_rows(i, 0, false), lost);
            assert_int_equal(kvt_engram_fetch_stream_wait(fetch, i, stream), status);
            lost_fetches += lost > 0;
        }
        kvt_engram_fetch_free(fetch);
        device_host_stream_destroy(device, stream);
        hbm.config.fail_call = 0;
        if (fail_status == KVT_E_GPU) {
            tables_close();
            hbm_close();
            hbm_open_again();
            tables_open();
        }
    }
    assert_true(lost_fetches > 0);
}

static void
a_device_that_is_lost_gives_no_wrong_rows(void **state)
{
    (void)state;
    calls_that_fail_lose_rows_and_give_no_wrong_ones(KVT_E_GPU);
}

static void
a_copy_that_is_refused_is_an_error_of_its_rows(void **state)
{
    (void)state;
    /* Moves that share a call are tried again one by one: here each has one to itself often. */
    memset(fixture.tokens, 0, sizeof(fixture.tokens));
    calls_that_fail_lose_rows_and_give_no_wrong_ones(KVT_E_NOMEM);
}

static void
tables_of_a_store_whose_device_is_lost_are_read_to_the_host(void **state)
{
    struct kvt_engram_target target;
    kvt_engram_fetch *fetch;
    struct device_info info;
    struct device *device;

    (void)state;
    tables_close();
    hbm_close();
    hbm_open_again(); /* The reader is not there yet. */
    device = hbm_device(hbm.store->devices.tiers[0]);
    hbm.config.fail_call = atomic_load(&hbm.config.call_count) + 1;
    assert_int_equal(device->ops->info(device, &info), KVT_E_GPU);
    tables_open();
    plan_fill(TOKENS);
    target = target_of(0, 0);
    assert_int_equal(kvt_engram_fetch_submit(fixture.plan, &target, 1, &fetch), KVT_OK);
    assert_int_equal(kvt_engram_fetch_wait(fetch, 0, KVT_FOREVER, NULL), KVT_E_GPU);
    kvt_engram_fetch_free(fetch);
    memset(fixture.bytes, FILLER, sizeof(fixture.bytes));
    target = target_of(0, 0);
    target.region.id = 0;
    target.destination = fixture.bytes;
    assert_int_equal(kvt_engram_fetch_submit(fixture.plan, &target, 1, &fetch), KVT_OK);
    assert_int_equal(kvt_engram_fetch_wait(fetch, 0, KVT_FOREVER, NULL), KVT_OK);
    assert_int_equal(assert_rows(0, 0, true), 0);
    kvt_engram_fetch_free(fetch);
}

static void
an_abort_takes_fetches_to_a_device_with_it(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 10; i++) {
        struct kvt_region_options about = {.struct_size = sizeof(about), .tier = KVT_TIER_HBM};
        struct device *device = hbm_device(hbm.store->devices.tiers[0]);
        kvt_engram_fetch *fetches[3];

        /* The kit's memory must be given back before the device goes; the tier's own need not. */
        assert_int_equal(kvt_region_unregister(hbm.store, hbm.region), KVT_OK);
        device_host_memory_put(device, hbm.pool, HBM_POOL_BLOCKS * HBM_BLOCK_BYTES);
        hbm.pool = slab_base(hbm_slab(hbm.store->devices.tiers[0]));
        about.address = hbm.pool;
        about.size = 2 * (ROWS_BYTES + ROW_BYTES);
        assert_int_equal(kvt_region_register(hbm.store, &about, &hbm.region), KVT_OK);
        plan_fill(TOKENS);
        for (uint32_t f = 0; f < 3; f++) {
            const struct kvt_engram_target targets[2] = {target_of(0, 0), target_of(1, 0)};

            assert_int_equal(
                kvt_engram_fetch_submit(fixture.plan, targets, 2, &fetches[f]), KVT_OK);
        }
        if (i % 2 != 0)
            assert_in_range(
                kvt_engram_fetch_wait(fetches[0], 0, i * 30000, NULL), KVT_OK, KVT_LATE);
        kvt_abort(hbm.store);
        hbm_open_again();
        tables_open();
    }
}

/* As soon as the stream may wait it is given a kernel, which must read all rows. */
static void
stream_reads_in(struct sim_store *sim, kvt_engram_fetch *fetch, void *stream, void *memory)
{
    struct device *device = sim_store_device(sim->store);
    struct kernel kernel = {.seen = fixture.bytes, .size = ROWS_BYTES};
    enum kvt_status status;
    void *event;

    memset(fixture.states[0], KVT_ENGRAM_ROW_THERE, SLOTS);
    while ((status = kvt_engram_fetch_stream_wait(fetch, 0, stream)) == KVT_NOT_READY)
        sim_run_steps(sim->world, 1);
    assert_int_equal(status, KVT_OK);
    assert_int_equal(device_host_launch(device, stream, kernel_read, &kernel, memory), KVT_OK);
    assert_int_equal(device->ops->event_create(device, &event), KVT_OK);
    assert_int_equal(device->ops->event_record(device, event, stream), KVT_OK);
    while (device->ops->event_query(device, event) == KVT_NOT_READY)
        sim_store_pass(sim, 100000);
    device->ops->event_destroy(device, event);
    assert_int_equal(assert_rows(0, 0, false), 0);
}

/* Of a store in a simulated world. */
static const struct kvt_options sim_options = {.struct_size = sizeof(struct kvt_options),
    .host_capacity_bytes = 2 << 20,
    .nvme_capacity_bytes = 16 << 20,
    .segment_bytes = 1 << 20,
    .block_bytes_max = 64 << 10,
    .hbm_capacity_bytes = 2 << 20};

/* In a simulation nothing is read between two calls. */
static void
a_stream_is_told_to_ask_again_while_pages_are_read(void **state)
{
    static const struct {
        enum sim_effect effect;
        enum kvt_status status;
    } rows[] = {{SIM_NOTHING, KVT_OK}, {SIM_EIO, KVT_E_IO}, {SIM_ENOMEM, KVT_E_NOMEM}};
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HBM, .size = ROWS_BYTES};
    struct kvt_engram_target target = {.capacity = ROWS_BYTES};
    struct sim_store sim;
    kvt_engram_fetch *fetch;
    void *stream, *memory;

    (void)state;
    sim_store_open(&sim, &sim_options);
    assert_int_equal(engram_rig_import(&fixture.rig, sim.store, "zero", 0), KVT_OK);
    assert_int_equal(kvt_engram_open(sim.store, "zero", &target.table), KVT_OK);
    assert_int_equal(kvt_device_alloc(sim.store, 0, ROWS_BYTES, &memory), KVT_OK);
    about.address = memory;
    assert_int_equal(kvt_region_register(sim.store, &about, &target.region), KVT_OK);
    assert_int_equal(device_host_stream_create(sim_store_device(sim.store), &stream), KVT_OK);
    target.destination = memory;
    plan_fill(TOKENS);
    for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct sim_rule rule = {
            .ops = SIM_READ, .effect = rows[i].effect, .file = "zero", .nth = 1, .sticky = true};

        sim_rules_clear(sim.world);
        sim_rule_add(sim.world, &rule);
        assert_int_equal(kvt_engram_fetch_submit(fixture.plan, &target, 1, &fetch), KVT_OK);
        assert_int_equal(kvt_engram_fetch_stream_wait(fetch, 0, stream), KVT_NOT_READY);
        if (i == 0)
            stream_reads_in(&sim, fetch, stream, memory);
        assert_int_equal(kvt_engram_fetch_wait(fetch, 0, KVT_FOREVER, NULL), rows[i].status);
        assert_int_equal(kvt_engram_fetch_stream_wait(fetch, 0, stream), rows[i].status);
        kvt_engram_fetch_free(fetch);
    }
    sim_rules_clear(sim.world);
    device_host_stream_destroy(sim_store_device(sim.store), stream);
    assert_int_equal(kvt_region_unregister(sim.store, target.region), KVT_OK);
    kvt_device_free(sim.store, 0, memory, ROWS_BYTES);
    assert_int_equal(kvt_engram_close(target.table), KVT_OK);
    sim_store_close(&sim);
}

/* Both go to the device; a page a row, more than are in flight. */
static void
rows_of_the_earlier_deadline_are_on_the_device_first(void **state)
{
    struct engram_rig rig;
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HBM, .size = 2 * SLOTS * 4088};
    struct sim_store sim;
    kvt_engram_hasher *hasher;
    kvt_engram_plan *plan;
    const struct kvt_engram_sequence sequence = {.tokens = fixture.tokens, .token_count = TOKENS};
    void *memory;

    (void)state;
    engram_rig_init(&rig, "t", 4088, 1500);
    sim_store_open(&sim, &sim_options);
    assert_int_equal(kvt_engram_hasher_open(&rig.profile, NULL, 0, &hasher), KVT_OK);
    assert_int_equal(kvt_engram_plan_create(hasher, TOKENS, &plan), KVT_OK);
    assert_int_equal(kvt_engram_plan_fill(plan, &sequence, 1, KVT_ENGRAM_UNIQUE), KVT_OK);
    assert_int_equal(engram_rig_import(&rig, sim.store, "zero", 0), KVT_OK);
    assert_int_equal(engram_rig_import(&rig, sim.store, "one", 1), KVT_OK);
    assert_int_equal(kvt_device_alloc(sim.store, 0, about.size, &memory), KVT_OK);
    about.address = memory;
    for (uint32_t first = 0; first < 2; first++) {
        struct kvt_engram_target targets[2] = {{.layer_index = 0}, {.layer_index = 1}};
        kvt_engram_fetch *fetch;
        kvt_region region;

        assert_int_equal(kvt_region_register(sim.store, &about, &region), KVT_OK);
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(
                kvt_engram_open(sim.store, i == 0 ? "zero" : "one", &targets[i].table), KVT_OK);
            targets[i].destination = (void *)((uintptr_t)memory + (uintptr_t)i * SLOTS * 4088);
            targets[i].capacity = SLOTS * 4088;
            targets[i].region = region;
            targets[i].deadline_ns = i == first ? 1000 : 2000;
        }
        assert_int_equal(kvt_engram_fetch_submit(plan, targets, 2, &fetch), KVT_OK);
        assert_int_equal(kvt_engram_fetch_wait(fetch, first, KVT_FOREVER, NULL), KVT_OK);
        assert_int_equal(kvt_engram_fetch_wait(fetch, 1 - first, 0, NULL), KVT_LATE);
        assert_int_equal(kvt_engram_fetch_wait(fetch, 1 - first, KVT_FOREVER, NULL), KVT_OK);
        kvt_engram_fetch_free(fetch);
        for (uint32_t i = 0; i < 2; i++)
            assert_int_equal(kvt_engram_close(targets[i].table), KVT_OK);
        assert_int_equal(kvt_region_unregister(sim.store, region), KVT_OK);
    }
    kvt_device_free(sim.store, 0, memory, about.size);
    kvt_engram_plan_destroy(plan);
    kvt_engram_hasher_close(hasher);
    sim_store_close(&sim);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            every_row_comes_to_its_slots_on_the_device, setup, teardown),
        cmocka_unit_test_setup_teardown(a_row_of_many_slots_comes_to_each, setup, teardown),
        cmocka_unit_test_setup_teardown(a_stream_that_waits_reads_the_rows, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_stream_need_not_wait_for_a_target_without_rows, setup, teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_waited_for_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_region_is_kept_until_its_rows_are_there, setup, teardown),
        cmocka_unit_test_setup_teardown(
            rows_of_damaged_pages_are_left_alone_on_the_device, setup, teardown),
        cmocka_unit_test_setup_teardown(a_device_that_is_lost_gives_no_wrong_rows, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_copy_that_is_refused_is_an_error_of_its_rows, setup, teardown),
        cmocka_unit_test_setup_teardown(
            tables_of_a_store_whose_device_is_lost_are_read_to_the_host, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_stream_is_told_to_ask_again_while_pages_are_read, setup, teardown),
        cmocka_unit_test_setup_teardown(
            rows_of_the_earlier_deadline_are_on_the_device_first, setup, teardown),
        cmocka_unit_test_setup_teardown(
            an_abort_takes_fetches_to_a_device_with_it, setup, teardown),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
