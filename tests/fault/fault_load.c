/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault_load.c - while a file is loaded to a device, the n-th call of the device fails (once, or
 * for good), the n-th operation on the file, or the n-th allocation; n = 1, 2, 3 ... until none
 * does.
 *
 * Each chunk that is there is right, each other one says why it is not; the blocks of the store are
 * as they were; what a load has taken is given back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "load_rig.h"
#include "store_kit.h"

enum {
    CHUNK = 64 << 10,
    CHUNKS = 5,
    FILE_BYTES = 4 * CHUNK + 100,
    N_LIMIT = 4000,
    BLOCK = 3, /* A key. */
};

static const struct kvt_options small = {.struct_size = sizeof(struct kvt_options),
    .host_capacity_bytes = 2 << 20,
    .nvme_capacity_bytes = 16 << 20,
    .segment_bytes = 1 << 20,
    .block_bytes_max = 64 << 10,
    .device_mask = 1,
    .device_kind = KVT_DEVICE_EMULATION};

enum fault {
    FAULT_DEVICE_ONCE,
    FAULT_DEVICE_LOST,
    FAULT_FILE,
    FAULT_MEMORY,
};

static bool
status_is_fine(enum fault fault, enum kvt_status status)
{
    switch (fault) {
    case FAULT_DEVICE_ONCE:
    case FAULT_MEMORY:
        return status == KVT_E_NOMEM;
    case FAULT_DEVICE_LOST:
        return status == KVT_E_GPU;
    case FAULT_FILE:
        return status == KVT_E_IO;
    }
    return false;
}

static void
fault_arm(struct sim_store *sim, enum fault fault, uint32_t n)
{
    const struct sim_rule rule = {
        .ops = SIM_ALL, .effect = SIM_EIO, .file = "weights", .nth = n, .sticky = n % 2 == 0};

    switch (fault) {
    case FAULT_DEVICE_ONCE:
    case FAULT_DEVICE_LOST:
        sim->device.fail_status = fault == FAULT_DEVICE_LOST ? KVT_E_GPU : KVT_E_NOMEM;
        sim->device.fail_call = atomic_load(&sim->device.call_count) + n;
        break;
    case FAULT_FILE:
        sim_rule_add(sim->world, &rule);
        break;
    case FAULT_MEMORY:
        sim_memory_fail(sim->world, n, false);
        break;
    }
}

/* Whether it struck; and it strikes no more. */
static bool
fault_disarm(struct sim_store *sim, enum fault fault, uint64_t asked, uint32_t n)
{
    uint32_t fail_call = sim->device.fail_call;

    switch (fault) {
    case FAULT_DEVICE_ONCE:
    case FAULT_DEVICE_LOST:
        sim->device.fail_call = 0;
        return atomic_load(&sim->device.call_count) >= fail_call;
    case FAULT_FILE:
        sim_rules_clear(sim->world);
        return sim_fault_count(sim->world) > 0;
    case FAULT_MEMORY:
        sim_memory_fail(sim->world, 0, false);
        return sim_memory_asked(sim->world) - asked >= n;
    }
    return false;
}

/* The chunks, in memory that holds all of them or two. *failed_out: those that did not come. */
static void
chunks_take(kvt_store *store, kvt_load load, enum fault fault, uint32_t *failed_out)
{
    enum kvt_status statuses[CHUNKS];
    struct kvt_load_chunk chunks[CHUNKS];

    for (uint32_t i = 0; i < CHUNKS; i++) {
        statuses[i] = kvt_load_wait(store, load, i, KVT_FOREVER, &chunks[i]);
        if (statuses[i] != KVT_OK) {
            assert_true(status_is_fine(fault, statuses[i]));
            ++*failed_out;
        } else if (fault != FAULT_DEVICE_LOST) {
            assert_true(
                load_rig_is_right(store, chunks[i].address, chunks[i].offset, chunks[i].size));
        }
        assert_int_equal(kvt_load_release(store, load, &i, 1), KVT_OK);
    }
}

/* False: there were fewer than n calls. */
static bool
load_with_fault(enum fault fault, uint32_t n, uint32_t *failed_out)
{
    const struct sim_options world = {.seed = 5 + n, .align_bytes = 512};
    struct kvt_file_load_options options = load_rig_options(33, KVT_LOAD_TO_END, CHUNK);
    struct sim_store sim;
    enum kvt_status status;
    char leaks[200] = "";
    uint64_t asked, version = 0;
    kvt_namespace ns;
    kvt_load load;
    bool struck;

    sim_store_open_world(&sim, &small, &world);
    load_rig_file(&sim, "weights", FILE_BYTES);
    assert_int_equal(kvt_namespace_open(sim.store, "n", "", 0, &ns), KVT_OK);
    assert_int_equal(kit_put(sim.store, ns, BLOCK, 1, 50000, KVT_SYNC), KVT_OK);
    options.capacity = n % 3 == 0 ? 2 * CHUNK : 0;
    asked = sim_memory_asked(sim.world);
    fault_arm(&sim, fault, n);
    status = kvt_file_load(sim.store, "/weights", &options, &load);
    if (status == KVT_OK) {
        /* Reading a chunk back is no part of what shall fail. */
        status = kvt_load_wait(
            sim.store, load, options.capacity == 0 ? KVT_LOAD_ALL : 1, KVT_FOREVER, NULL);
        assert_true(status == KVT_OK || status_is_fine(fault, status));
        struck = fault_disarm(&sim, fault, asked, n);
        chunks_take(sim.store, load, fault, failed_out);
        assert_int_equal(kvt_load_close(sim.store, load), KVT_OK);
    } else {
        struck = fault_disarm(&sim, fault, asked, n);
        assert_true(status_is_fine(fault, status));
        assert_int_equal(load.id, 0);
        ++*failed_out;
    }
    assert_int_equal(kit_get(sim.store, ns, BLOCK, &version), KVT_OK);
    assert_int_equal(version, 1);
    assert_int_equal(kvt_close(sim.store), KVT_OK);
    assert_int_equal(sim_leaks(sim.world, leaks, sizeof(leaks)), 0);
    sim_world_destroy(sim.world);
    return struck;
}

static void
fail_everywhere(enum fault fault, uint32_t n_min)
{
    uint32_t failed = 0, n = 1;

    while (n < N_LIMIT && load_with_fault(fault, n, &failed))
        n++;
    assert_in_range(n, n_min, N_LIMIT - 1);
    assert_in_range(failed, 1, UINT32_MAX);
    print_message("%u calls; %u chunks or loads failed\n", n - 1, failed);
}

static void
a_call_of_the_device_fails(void **state)
{
    (void)state;
    fail_everywhere(FAULT_DEVICE_ONCE, 8);
}

static void
the_device_is_lost(void **state)
{
    (void)state;
    fail_everywhere(FAULT_DEVICE_LOST, 8);
}

static void
the_file_fails(void **state)
{
    (void)state;
    fail_everywhere(FAULT_FILE, 5);
}

static void
memory_runs_out(void **state)
{
    (void)state;
    fail_everywhere(FAULT_MEMORY, 5);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_of_the_device_fails),
        cmocka_unit_test(the_device_is_lost),
        cmocka_unit_test(the_file_fails),
        cmocka_unit_test(memory_runs_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
