/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_full_arrays.c - an open and a rebuild of as much as their arrays have room for at first:
 * what lies behind the last child, or the last batch, is not looked at (the address sanitizer sees
 * it). And the most that an array may have.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "array.h"
#include "store_internal.h"
#include "store_kit.h"

/* A batch of its own; the parent is the key before, but for key 0. */
static void
block_put(kvt_store *store, kvt_namespace ns, uint64_t key)
{
    uint8_t bytes[100];
    struct payload_key name, above;
    struct kvt_put put = {.source = bytes, .length = sizeof(bytes)};
    struct kvt_submit submit = {0};
    kvt_ticket *ticket = NULL;

    payload_key_make(&name, key);
    payload_fill(bytes, sizeof(bytes), key, 1);
    put.key = name.key;
    if (key > 0) {
        payload_key_make(&above, key - 1);
        put.parent = &above.key;
    }
    assert_int_equal(kvt_put_submit(store, ns, &put, 1, KVT_SYNC, &submit, &ticket), KVT_OK);
    assert_int_equal(kit_result(ticket, KVT_STAGE_DURABLE).status, KVT_OK);
}

static kvt_store *
store_open(const char *path, uint32_t flags, kvt_namespace *ns_out)
{
    struct kvt_options options = kit_options();
    kvt_store *store = NULL;

    options.flags = flags;
    assert_int_equal(kvt_open(path, &options, &store), KVT_OK);
    assert_int_equal(kvt_namespace_open(store, "space", "model", 5, ns_out), KVT_OK);
    return store;
}

static void
all_are_found(uint32_t count, uint32_t flags)
{
    char dir[KIT_PATH_BYTES], path[KIT_PATH_BYTES + 16];
    uint64_t version = 0;
    kvt_namespace ns;
    kvt_store *store;

    kit_dir_make(dir);
    snprintf(path, sizeof(path), "%s/store", dir);
    store = store_open(path, 0, &ns);
    for (uint64_t key = 0; key < count; key++)
        block_put(store, ns, key);
    assert_int_equal(kvt_close(store), KVT_OK);
    store = store_open(path, flags, &ns);
    assert_int_equal(kit_stats(store).recover_block_count, count);
    for (uint64_t key = 1; key < count; key++)
        assert_int_equal(entries_parent(store->entries, kit_entry(store, ns, key)),
            kit_entry(store, ns, key - 1));
    assert_int_equal(kit_get(store, ns, count - 1, &version), KVT_OK);
    assert_int_equal(kvt_close(store), KVT_OK);
    kit_dir_remove(dir);
}

static void
as_many_children_as_an_array_has_at_first_are_linked(void **state)
{
    (void)state;
    all_are_found(ARRAY_CAPACITY_FIRST + 1, 0);
}

static void
as_many_batches_as_an_array_has_at_first_are_found(void **state)
{
    (void)state;
    all_are_found(ARRAY_CAPACITY_FIRST, KVT_OPEN_REBUILD);
}

static void *
refuse(void *context, size_t size)
{
    *(size_t *)context = size;
    return NULL;
}

static void
an_array_grows_to_as_much_as_is_said(void **state)
{
    static const struct memory_ops none = {.take = refuse};
    size_t asked = 0;
    const struct kvt_env env = {.memory = &none, .memory_context = &asked};
    uint32_t capacity = UINT32_C(1) << 30;
    void *volatile array = &asked; /* It is not looked at. */

    (void)state;
    assert_null(array_grow(&env, array, &capacity, sizeof(uint64_t)));
    assert_int_equal(asked, UINT64_C(1) << 34);
    assert_int_equal(capacity, UINT32_C(1) << 30);
    capacity = UINT32_C(1) << 31;
    asked = 0;
    assert_null(array_grow(&env, array, &capacity, sizeof(uint64_t)));
    assert_int_equal(asked, 0);
}

static void
a_wide_array_grows_to_as_much_as_is_said(void **state)
{
    static const struct memory_ops none = {.take = refuse};
    size_t asked = 0;
    const struct kvt_env env = {.memory = &none, .memory_context = &asked};
    static volatile const size_t most = SIZE_MAX / 2 / sizeof(uint64_t) + 1; /* Not known here. */
    size_t capacity = UINT32_C(1) << 31;
    void *volatile array = &asked; /* It is not looked at. */

    (void)state;
    assert_null(array_grow_wide(&env, array, &capacity, sizeof(uint64_t)));
    assert_int_equal(asked, UINT64_C(1) << 35);
    assert_int_equal(capacity, UINT32_C(1) << 31);
    capacity = most / 2;
    assert_null(array_grow_wide(&env, array, &capacity, sizeof(uint64_t)));
    assert_int_equal(asked, UINT64_C(1) << 63);
    asked = 0;
    capacity = most;
    assert_null(array_grow_wide(&env, array, &capacity, sizeof(uint64_t)));
    assert_int_equal(asked, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_children_as_an_array_has_at_first_are_linked),
        cmocka_unit_test(as_many_batches_as_an_array_has_at_first_are_found),
        cmocka_unit_test(a_wide_array_grows_to_as_much_as_is_said),
        cmocka_unit_test(an_array_grows_to_as_much_as_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
