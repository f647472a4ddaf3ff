/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_learned.c - the file of what was learned: a restart takes it over; one that is missing or
 * damaged in any way is a cold start, and never an error.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "payload.h"
#include "stop_on_proof.h"
#include "store_kit.h"

enum {
    BLOCK_BYTES = 4096,
    FILE_BYTES_MAX = 1 << 20,
};

static char path[KIT_PATH_BYTES];
static char file_path[KIT_PATH_BYTES + 16];
static uint8_t bytes[FILE_BYTES_MAX];

static int
setup(void **state)
{
    (void)state;
    kit_dir_make(path);
    (void)snprintf(file_path, sizeof(file_path), "%s/learned", path);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    kit_dir_remove(path);
    return 0;
}

static kvt_store *
store_open(uint32_t policy)
{
    struct kvt_options options = kit_options();
    kvt_store *store;

    options.policy = policy;
    assert_int_equal(kvt_open(path, &options, &store), KVT_OK);
    return store;
}

/* Blocks that come and are used. */
static void
store_use(kvt_store *store)
{
    kvt_namespace ns;

    assert_int_equal(kvt_namespace_open(store, "learned", "", 0, &ns), KVT_OK);
    for (uint64_t i = 0; i < 20; i++) {
        struct payload_key name;

        payload_key_make(&name, i);
        assert_true(kit_put(store, ns, i, 1, BLOCK_BYTES, KVT_MEMORY) >= 0);
        assert_int_equal(kvt_touch(store, ns, &name.key, 1), KVT_OK);
    }
}

static size_t
file_make(void)
{
    kvt_store *store = store_open(KVT_POLICY_GHI);
    size_t size;

    store_use(store);
    assert_int_equal(kvt_close(store), KVT_OK);
    size = kit_file_read(file_path, bytes, sizeof(bytes));
    assert_true(size > 100);
    return size;
}

static void
what_was_learned_outlives_a_close(void **state)
{
    size_t size = file_make();

    (void)state;
    /* A life in which nothing happens keeps it: it was taken over. */
    assert_int_equal(kvt_close(store_open(KVT_POLICY_GHI)), KVT_OK);
    assert_int_equal(kit_file_read(file_path, bytes, sizeof(bytes)), size);
    /* Without it there is nothing to keep. */
    assert_int_equal(unlink(file_path), 0);
    assert_int_equal(kvt_close(store_open(KVT_POLICY_GHI)), KVT_OK);
    assert_int_equal(kit_file_read(file_path, bytes, sizeof(bytes)), 0);
}

static void
a_policy_that_learns_nothing_leaves_the_file_alone(void **state)
{
    size_t size = file_make();

    (void)state;
    assert_int_equal(kvt_close(store_open(KVT_POLICY_LRU)), KVT_OK);
    assert_int_equal(kit_file_read(file_path, bytes, sizeof(bytes)), size);
}

/* What an abort leaves is the file of before. */
static void
an_abort_writes_nothing(void **state)
{
    kvt_store *store = store_open(KVT_POLICY_GHI);

    (void)state;
    store_use(store);
    kvt_abort(store);
    assert_int_equal(kit_file_read(file_path, bytes, sizeof(bytes)), 0);
}

static void
a_damaged_file_is_a_cold_start(void **state)
{
    static uint8_t whole[FILE_BYTES_MAX];
    size_t size = file_make();

    (void)state;
    memcpy(whole, bytes, size);
    for (size_t damage = 0; damage < 40; damage++) {
        size_t kept = damage % 2 == 0 ? size : size * damage / 40;

        memcpy(bytes, whole, size);
        if (damage % 2 == 0)
            bytes[damage < 24 ? damage / 2 : size * damage / 40] ^= 1;
        kit_file_write(file_path, bytes, kept);
        assert_int_equal(kvt_close(store_open(KVT_POLICY_GHI)), KVT_OK);
        /* Nothing was taken over, so nothing was written: the damage is still there. */
        assert_int_equal(kit_file_read(file_path, bytes, sizeof(bytes)), kept);
        assert_true(kept < size || memcmp(bytes, whole, size) != 0);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_learned_outlives_a_close, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_policy_that_learns_nothing_leaves_the_file_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(an_abort_writes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_damaged_file_is_a_cold_start, setup, teardown),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
