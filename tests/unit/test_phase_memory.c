/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_phase_memory.c - what a wait of kvt_phase_set() takes of memory, and that it changes nothing
 * when there is none. In a simulated world.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kvtier/kvtier_unstable.h"
#include "payload.h"
#include "sim_store.h"
#include "stop_on_proof.h"
#include "store_internal.h"
#include "store_kit.h"

enum {
    BLOCK_BYTES = 4096,
    WAITS_MAX = 4,
    BLOCKS = 2 * WAITS_MAX, /* In HBM; each wait remembers two. */
    WAIT_BYTES_MAX = 16384, /* Of two tickets for two blocks, and what the demotions have left. */
};

static const uint64_t MILLISECOND = UINT64_C(1000) * 1000;

static struct sim_store sim;
static kvt_store *store;
static kvt_namespace ns;
static struct payload_key names[BLOCKS + 1];
static struct kvt_key keys[BLOCKS + 1]; /* The last one is of no block. */
static struct kvt_key many[KVT_BATCH_MAX];

/* All born on the device. */
static void
blocks_put(void)
{
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HBM, .size = BLOCK_BYTES};
    struct kvt_put put = {.length = BLOCK_BYTES, .tier = KVT_TIER_HBM};
    void *memory;
    kvt_ticket *ticket;

    assert_int_equal(kvt_device_alloc(store, 0, BLOCK_BYTES, &memory), KVT_OK);
    about.address = memory;
    assert_int_equal(kvt_region_register(store, &about, &put.region), KVT_OK);
    put.source = memory;
    for (uint32_t i = 0; i <= BLOCKS; i++) {
        payload_key_make(&names[i], i);
        keys[i] = names[i].key;
    }
    for (uint32_t i = 0; i < BLOCKS; i++) {
        put.key = keys[i];
        assert_int_equal(kvt_put_submit(store, ns, &put, 1, KVT_MEMORY, NULL, &ticket), KVT_OK);
        assert_int_equal(kit_result(ticket, 1).status, KVT_OK);
    }
    assert_int_equal(kvt_region_unregister(store, put.region), KVT_OK);
    kvt_device_free(store, 0, memory, BLOCK_BYTES);
}

static int
setup(void **state)
{
    struct kvt_options options = kit_options();

    (void)state;
    options.hbm_capacity_bytes = 2 << 20;
    options.request_count_max = 4 * WAITS_MAX;
    sim_store_open(&sim, &options);
    store = sim.store;
    assert_int_equal(kvt_namespace_open(store, "phases", "", 0, &ns), KVT_OK);
    blocks_put();
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    sim_store_close(&sim);
    return 0;
}

static void
expect_in_hbm(uint32_t first, uint32_t count, bool wanted)
{
    for (uint32_t i = first; i < first + count; i++) {
        uint8_t tiers;

        assert_int_equal(kvt_lookup(store, ns, &keys[i], 1, &tiers, NULL, NULL), KVT_OK);
        assert_int_equal((tiers & KVT_TIER_HBM) != 0, wanted);
    }
}

/* Of wait `i`: as many keys as a call takes, of which the first two have blocks. */
static enum kvt_status
phase_set(uint32_t i, enum kvt_phase phase, uint64_t resume_ns)
{
    for (uint32_t k = 0; k < KVT_BATCH_MAX; k++)
        many[k] = keys[k < 2 ? 2 * i + k : BLOCKS];
    return kvt_phase_set(store, ns, many, KVT_BATCH_MAX, phase, resume_ns);
}

static void
pass(void)
{
    sim_store_pass(&sim, 10 * MILLISECOND);
}

static void
nothing_is_remembered(void)
{
    assert_int_equal(store->phases.wait_count, 0);
    assert_int_equal(store->phases.block_count, 0);
    assert_int_equal(store->ticket_count, 0);
}

/* What the store has of memory, but for what is mapped. */
static struct {
    struct memory_ops ops;
    struct memory_ops really;
    size_t bytes;
    size_t most_bytes;
} counted;

static void *
take_counted(void *context, size_t size)
{
    counted.bytes += size;
    if (counted.most_bytes < counted.bytes)
        counted.most_bytes = counted.bytes;
    return counted.really.take(context, size);
}

static void
put_counted(void *context, void *taken, size_t size)
{
    counted.bytes -= taken == NULL ? 0 : size;
    counted.really.put(context, taken, size);
}

static void
count_begin(void)
{
    counted.ops = counted.really = *store->env.memory;
    counted.ops.take = take_counted;
    counted.ops.put = put_counted;
    counted.bytes = counted.most_bytes = UINT32_MAX; /* What is there already may be put back. */
    store->env.memory = &counted.ops;
}

static void
a_wait_keeps_no_more_than_it_remembers(void **state)
{
    const size_t ticket_bytes = KVT_BATCH_MAX * sizeof(struct op);
    size_t before;

    (void)state;
    count_begin();
    before = counted.bytes;
    for (uint32_t i = 0; i < WAITS_MAX; i++) {
        assert_int_equal(phase_set(i, KVT_PHASE_IO_WAIT, KVT_FOREVER), KVT_OK);
        pass();
        expect_in_hbm(2 * i, 2, false);
    }
    assert_int_equal(store->phases.block_count, BLOCKS);
    assert_in_range(counted.bytes, before, before + (size_t)WAITS_MAX * WAIT_BYTES_MAX);
    /* What the call itself needs is less than a ticket of as many keys. */
    assert_in_range(counted.most_bytes, before + 1, before + ticket_bytes);
    for (uint32_t i = 0; i < WAITS_MAX; i++)
        assert_int_equal(phase_set(i, KVT_PHASE_DECODE, 0), KVT_OK);
    pass();
    expect_in_hbm(0, BLOCKS, true);
    nothing_is_remembered();
    store->env.memory = sim.env.memory;
}

static void
a_wait_without_memory_gives_nothing_up(void **state)
{
    uint32_t refused_count = 0;

    (void)state;
    for (;;) {
        enum kvt_status status;

        sim_memory_fail(sim.world, refused_count + 1, true);
        status = phase_set(0, KVT_PHASE_IO_WAIT, KVT_FOREVER);
        sim_memory_fail(sim.world, 0, false);
        if (status == KVT_OK)
            break;
        refused(status, KVT_E_NOMEM, "no memory");
        refused_count++;
        pass();
        expect_in_hbm(0, BLOCKS, true);
        nothing_is_remembered();
    }
    assert_in_range(refused_count, 5, 20);
    pass();
    expect_in_hbm(0, 2, false);
    assert_int_equal(phase_set(0, KVT_PHASE_DECODE, 0), KVT_OK);
    pass();
    nothing_is_remembered();
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_wait_keeps_no_more_than_it_remembers),
        TEST(a_wait_without_memory_gives_nothing_up),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
