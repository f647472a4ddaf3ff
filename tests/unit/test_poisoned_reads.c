/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_poisoned_reads.c - a poisoned store ends while the disk still reads for it: nothing that the
 * kernel may write into is given back before it has ended. (The world stops at a queue that is
 * closed too early.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "hold_kit.h"
#include "io_lane.h"
#include "payload.h"
#include "store_internal.h"

static uint8_t targets[HOLD_COUNT][HOLD_BLOCK_BYTES];

static void
run(void (*end)(kvt_store *store))
{
    struct payload_key names[HOLD_COUNT];
    struct kvt_get gets[HOLD_COUNT];
    struct lane_stats reads;
    kvt_ticket *ticket;

    reads_stall();
    for (uint32_t i = 0; i < HOLD_COUNT; i++) {
        payload_key_make(&names[i], i);
        gets[i] = (struct kvt_get){
            .key = names[i].key, .destination = targets[i], .capacity = HOLD_BLOCK_BYTES};
    }
    assert_int_equal(
        kvt_get_submit(bench.sim.store, bench.ns, gets, HOLD_COUNT, NULL, &ticket), KVT_OK);
    sim_store_pass(&bench.sim, 10 * MS);
    nvme_lane_stats(bench.sim.store->nvme, 0, &reads);
    assert_true(reads.operations_in_flight_now > 0);
    bench.device->ops->event_destroy(bench.device, bench.event);
    atomic_store(&bench.sim.store->poisoned, 1);
    end(bench.sim.store);
    hold_forget_aborted();
}

static void
closed(kvt_store *store)
{
    assert_int_equal(kvt_close(store), KVT_OK);
}

static void
a_close_waits_for_reads_in_flight(void **state)
{
    (void)state;
    run(closed);
}

static void
an_abort_waits_for_reads_in_flight(void **state)
{
    (void)state;
    run(kvt_abort);
}

/* --- The library's own reads ------------------------------------------------------------------ */

enum {
    SCRUB_BLOCKS = 600, /* More than a batch has. */
    SCRUB_BLOCK_BYTES = 4096,
};

static struct sim_store sim;

/* What is mapped. */
static struct {
    struct memory_ops ops;
    const struct memory_ops *sim_ops;
    atomic_uint count;
} maps;

static void *
map(void *context, size_t size)
{
    void *memory = maps.sim_ops->map(context, size);

    atomic_fetch_add(&maps.count, memory != NULL);
    return memory;
}

static void *
fork_page(void *context)
{
    void *memory = maps.sim_ops->fork_page(context);

    atomic_fetch_add(&maps.count, memory != NULL);
    return memory;
}

static void
unmap(void *context, void *memory, size_t size)
{
    atomic_fetch_sub(&maps.count, memory != NULL);
    maps.sim_ops->unmap(context, memory, size);
}

static uint64_t
reads_in_flight(void)
{
    struct lane_stats reads;

    nvme_lane_stats(sim.store->nvme, 0, &reads);
    return reads.operations_in_flight_now;
}

/* When the first batch has come. */
static int
poison(void *in_flight, uint64_t done, uint64_t total)
{
    assert_true(done < total);
    *(uint64_t *)in_flight = reads_in_flight();
    atomic_store(&sim.store->poisoned, 1);
    return 1;
}

static void
a_scrub_leaves_its_memory_to_reads_in_flight(void **state)
{
    struct kvt_options options = kit_options();
    struct kvt_check_report report = {.struct_size = sizeof(report)};
    uint64_t in_flight = 0;
    const struct kvt_examiner examiner = {.progress = poison, .context = &in_flight};
    kvt_namespace ns;

    (void)state;
    sim_store_open(&sim, &options);
    assert_int_equal(kvt_namespace_open(sim.store, "scrub", "", 0, &ns), KVT_OK);
    for (uint64_t i = 0; i < SCRUB_BLOCKS; i++)
        assert_int_equal(kit_put(sim.store, ns, i, 1, SCRUB_BLOCK_BYTES, KVT_RELAXED), KVT_OK);
    assert_int_equal(kvt_flush(sim.store), KVT_OK);
    assert_int_equal(kvt_close(sim.store), KVT_OK);
    maps.sim_ops = sim.env.memory;
    maps.ops = *maps.sim_ops;
    maps.ops.map = map;
    maps.ops.fork_page = fork_page;
    maps.ops.unmap = unmap;
    sim.env.memory = &maps.ops;
    sim.options.flags = KVT_OPEN_READ_ONLY;
    sim_store_reopen(&sim);
    assert_int_equal(kvt_scrub(sim.store, (kvt_namespace){0}, &examiner, &report), KVT_E_POISONED);
    assert_true(in_flight > 0);
    assert_int_equal(kvt_close(sim.store), KVT_OK);
    assert_int_equal(atomic_load(&maps.count), 0); /* Tickets are void: something stays of them. */
    sim_world_destroy(sim.world);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, hold_setup, hold_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_close_waits_for_reads_in_flight),
        TEST(an_abort_waits_for_reads_in_flight),
        cmocka_unit_test(a_scrub_leaves_its_memory_to_reads_in_flight),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
