/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_store_hostonly.c - stores without an NVMe tier: opened again after an abort, with large
 * blocks; not where an earlier life had one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kvtier/kvtier.h"
#include "scratch_dir.h"
#include "stop_on_proof.h"

static struct scratch_dir scratch;

static enum kvt_status
store_open(uint64_t nvme_bytes, kvt_store **store_out)
{
    struct kvt_options options = KVT_OPTIONS_INIT;

    options.host_capacity_bytes = UINT64_C(64) << 20;
    options.nvme_capacity_bytes = nvme_bytes;
    return kvt_open(scratch_path(&scratch, "store"), &options, store_out);
}

static void
store_without_nvme_opens_again_after_an_abort(void **state)
{
    kvt_store *store = NULL;

    (void)state;
    scratch_dir_make(&scratch);
    for (uint32_t life = 0; life < 3; life++) {
        assert_int_equal(store_open(KVT_CAPACITY_NONE, &store), KVT_OK);
        kvt_abort(store);
    }
    assert_int_equal(store_open(KVT_CAPACITY_NONE, &store), KVT_OK);
    assert_int_equal(kvt_close(store), KVT_OK);
    scratch_dir_remove(&scratch);
}

static const struct kvt_key key = {.bytes = "key", .length = 3};

static void
block_put(kvt_store *store)
{
    static const uint8_t bytes[4096] = {7};
    const struct kvt_put put = {.key = key, .source = bytes, .length = sizeof(bytes)};
    kvt_ticket *ticket = NULL;
    kvt_namespace ns;

    assert_int_equal(kvt_namespace_open(store, "hostonly", "", 0, &ns), KVT_OK);
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, KVT_SYNC, NULL, &ticket), KVT_OK);
    assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, UINT64_MAX), KVT_OK);
    kvt_ticket_free(ticket);
}

static uint8_t
block_tiers(kvt_store *store)
{
    kvt_namespace ns;
    uint8_t tiers = 0;

    assert_int_equal(kvt_namespace_open(store, "hostonly", "", 0, &ns), KVT_OK);
    assert_int_equal(kvt_lookup(store, ns, &key, 1, &tiers, NULL, NULL), KVT_OK);
    return tiers;
}

static void
store_without_nvme_takes_large_blocks(void **state)
{
    static uint8_t bytes[8 << 20];
    struct kvt_options options = KVT_OPTIONS_INIT;
    const struct kvt_put put = {.key = key, .source = bytes, .length = sizeof(bytes)};
    kvt_ticket *ticket = NULL;
    kvt_store *store = NULL;
    kvt_namespace ns;

    (void)state;
    options.host_capacity_bytes = UINT64_C(64) << 20;
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    options.block_bytes_max = sizeof(bytes);
    scratch_dir_make(&scratch);
    for (uint32_t life = 0; life < 2; life++) {
        assert_int_equal(kvt_open(scratch_path(&scratch, "store"), &options, &store), KVT_OK);
        assert_int_equal(kvt_namespace_open(store, "hostonly", "", 0, &ns), KVT_OK);
        assert_int_equal(kvt_put_submit(store, ns, &put, 1, KVT_MEMORY, NULL, &ticket), KVT_OK);
        assert_int_equal(kvt_ticket_wait(ticket, KVT_STAGE_DONE, UINT64_MAX), KVT_OK);
        kvt_ticket_free(ticket);
        assert_int_equal(block_tiers(store), KVT_TIER_HOST);
        assert_int_equal(kvt_close(store), KVT_OK);
    }
    scratch_dir_remove(&scratch);
}

/* What such a life deleted or replaced would be back in the next one. */
static void
a_store_with_an_nvme_tier_is_not_opened_without_it(void **state)
{
    kvt_store *store = NULL;

    (void)state;
    scratch_dir_make(&scratch);
    assert_int_equal(store_open(UINT64_C(256) << 20, &store), KVT_OK);
    block_put(store);
    kvt_abort(store);
    assert_int_equal(store_open(KVT_CAPACITY_NONE, &store), KVT_E_INVAL);
    assert_null(store);
    assert_int_equal(store_open(0, &store), KVT_OK);
    assert_int_equal(block_tiers(store), KVT_TIER_NVME);
    assert_int_equal(kvt_close(store), KVT_OK);
    scratch_dir_remove(&scratch);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(store_without_nvme_opens_again_after_an_abort),
        cmocka_unit_test(store_without_nvme_takes_large_blocks),
        cmocka_unit_test(a_store_with_an_nvme_tier_is_not_opened_without_it),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
