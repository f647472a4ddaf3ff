/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_touch.c - what was touched with kvt_touch(), or read, outlives what was not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "full_store.h"
#include "payload.h"
#include "stop_on_proof.h"
#include "store_kit.h"

enum {
    BLOCK_BYTES = 64 << 10,
    OLD_COUNT = 32, /* 2 MiB of a HOST of 4 MiB. */
    NEW_COUNT = 40, /* With the old ones more than fits: some old ones go, but not all. */
    READ_COUNT = 2, /* Of blocks on NVMe: no more than is written again; as many are not read. */
};

static char path[KIT_PATH_BYTES];
static kvt_store *store;
static kvt_namespace ns;

static int
store_setup(void **state)
{
    struct kvt_options options = kit_options();

    (void)state;
    kit_dir_make(path);
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    options.policy = KVT_POLICY_LRU; /* Order alone counts. */
    assert_int_equal(kvt_open(path, &options, &store), KVT_OK);
    assert_int_equal(kvt_namespace_open(store, "touch", "", 0, &ns), KVT_OK);
    return 0;
}

static int
store_teardown(void **state)
{
    (void)state;
    assert_int_equal(kvt_close(store), KVT_OK);
    kit_dir_remove(path);
    return 0;
}

static bool
block_is_there(uint64_t number)
{
    struct payload_key name;
    uint32_t leading = 0;

    payload_key_make(&name, number);
    assert_int_equal(kvt_lookup(store, ns, &name.key, 1, NULL, &leading, NULL), KVT_OK);
    return leading == 1;
}

static void
what_was_touched_outlives_what_was_not(void **state)
{
    struct payload_key names[OLD_COUNT / 2 + 1];
    struct kvt_key keys[OLD_COUNT / 2 + 1];
    uint32_t untouched_count = 0;

    (void)state;
    for (uint64_t i = 0; i < OLD_COUNT; i++)
        assert_true(kit_put(store, ns, i, 1, BLOCK_BYTES, KVT_MEMORY) >= 0);
    /* The oldest half, and one that is not there. */
    for (uint32_t i = 0; i <= OLD_COUNT / 2; i++) {
        payload_key_make(&names[i], i < OLD_COUNT / 2 ? i : UINT64_C(1) << 40);
        keys[i] = names[i].key;
    }
    assert_int_equal(kvt_touch(store, ns, keys, OLD_COUNT / 2 + 1), KVT_OK);
    for (uint64_t i = 1000; i < 1000 + NEW_COUNT; i++)
        assert_true(kit_put(store, ns, i, 1, BLOCK_BYTES, KVT_MEMORY) >= 0);
    for (uint64_t i = 0; i < OLD_COUNT / 2; i++)
        assert_true(block_is_there(i));
    for (uint64_t i = OLD_COUNT / 2; i < OLD_COUNT; i++)
        untouched_count += block_is_there(i);
    assert_true(untouched_count < OLD_COUNT / 2);
}

static void
a_touch_of_nothing_is_refused_by_name(void **state)
{
    struct payload_key name;

    (void)state;
    payload_key_make(&name, 1);
    refused(kvt_touch(NULL, ns, &name.key, 1), KVT_E_INVAL, "store");
    refused(kvt_touch(store, ns, NULL, 1), KVT_E_INVAL, "keys");
    refused(kvt_touch(store, ns, &name.key, 0), KVT_E_INVAL, "count");
    refused(kvt_touch(store, (kvt_namespace){0}, &name.key, 1), KVT_E_INVAL, "namespace");
}

/* From NVMe straight to the caller, whose memory is aligned. */
static enum kvt_status
transient_get(struct full_store *full, uint64_t number)
{
    static _Alignas(4096) uint8_t bytes[FULL_BLOCK_BYTES];
    struct payload_key name;
    struct kvt_get get;
    struct kvt_result result;
    kvt_ticket *ticket;

    payload_key_make(&name, number);
    get = (struct kvt_get){.key = name.key,
        .destination = bytes,
        .capacity = sizeof(bytes),
        .flags = KVT_GET_TRANSIENT};
    assert_int_equal(kvt_get_submit(full->store, full->ns, &get, 1, NULL, &ticket), KVT_OK);
    result = full_stage_result(ticket, KVT_STAGE_DONE);
    if (result.status == KVT_OK)
        assert_int_equal(result.tier, KVT_TIER_NVME);
    return result.status;
}

static void
leave_host(struct full_store *full, uint64_t number)
{
    struct payload_key name;
    kvt_ticket *ticket;

    payload_key_make(&name, number);
    assert_int_equal(
        kvt_demote_submit(full->store, full->ns, &name.key, 1, KVT_TIER_NVME, NULL, &ticket),
        KVT_OK);
    assert_int_equal(full_stage_result(ticket, KVT_STAGE_DONE).status, KVT_OK);
}

static void
a_read_that_leaves_no_copy_in_host_is_a_use(void **state)
{
    struct full_store *full = full_begin(1, FULL_SEGMENTS + 2);

    (void)state;
    for (uint64_t i = 0; i < 2 * READ_COUNT; i++) {
        full_put(full, i, 1);
        leave_host(full, i);
    }
    for (uint64_t i = 0; i < 2 * FULL_BLOCKS; i++) {
        full_put(full, FULL_COLD + i, 1);
        (void)sim_run_for(full->world, UINT64_C(100) * 1000 * 1000); /* A tick of last_use. */
        for (uint64_t j = 0; j < READ_COUNT; j++)
            assert_int_equal(transient_get(full, j), KVT_OK);
    }
    for (uint64_t j = READ_COUNT; j < 2 * READ_COUNT; j++)
        assert_int_equal(transient_get(full, j), KVT_MISS);
    full_end(full);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_touched_outlives_what_was_not),
        cmocka_unit_test(a_touch_of_nothing_is_refused_by_name),
        cmocka_unit_test(a_read_that_leaves_no_copy_in_host_is_a_use),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, store_setup, store_teardown);
}
