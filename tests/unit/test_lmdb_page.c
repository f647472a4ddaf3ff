/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lmdb_page.c - numbers in the index's pages that no small file has.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "bytes.h"
#include "lmdb_page.h"
#include "stop_on_proof.h"

/* Offsets in pages: lmdb_page.h. */
enum {
    AT_NUMBER = 0,
    AT_FLAGS = 10,
    AT_LOWER = 12,
    AT_UPPER = 14,
    AT_POINTERS = 16,
};

/* A page of two nodes, the first with an empty key. */
static void
page_make(
    uint8_t page[PAGE_BYTES], uint16_t flags, const uint8_t *nodes, uint16_t size, uint16_t at)
{
    uint16_t upper = (uint16_t)(PAGE_BYTES - size);

    memset(page, 0, PAGE_BYTES);
    put_u64(page + AT_NUMBER, 7);
    put_u16(page + AT_FLAGS, flags);
    put_u16(page + AT_LOWER, AT_POINTERS + 4);
    put_u16(page + AT_UPPER, upper);
    put_u16(page + AT_POINTERS, upper);
    put_u16(page + AT_POINTERS + 2, (uint16_t)(upper + at));
    memcpy(page + upper, nodes, size);
}

static void
a_child_of_48_bits_is_read_whole(void **state)
{
    static const uint8_t nodes[] = {
        0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0, 0, 1, 0, 2, 0, 3, 0, 1, 0, 'k', 0};
    uint8_t bytes[PAGE_BYTES];
    struct lmdb_page page;
    struct lmdb_node node;

    (void)state;
    page_make(bytes, LMDB_PAGE_BRANCH, nodes, sizeof(nodes), 8);
    assert_int_equal(lmdb_page_parse(&page, bytes, PAGE_BYTES, 7, false), KVT_OK);
    lmdb_page_node(&page, 0, &node);
    assert_true(node.child == UINT64_C(0x665544332211));
    lmdb_page_node(&page, 1, &node);
    assert_true(node.child == UINT64_C(0x000300020001));
    assert_int_equal(node.key_size, 1);
}

static void
a_value_of_more_than_64_kib_is_read_whole(void **state)
{
    static const uint8_t nodes[] = {0x11, 0x22, 0x03, 0, LMDB_NODE_BIG, 0, 2, 0, 'k', '1', 1, 2, 3,
        4, 5, 6, 7, 8, 4, 0, 0, 0, 0, 0, 2, 0, 'k', '2', 'd', 'a', 't', 'a'};
    uint8_t bytes[PAGE_BYTES];
    struct lmdb_page page;
    struct lmdb_node node;

    (void)state;
    page_make(bytes, LMDB_PAGE_LEAF, nodes, sizeof(nodes), 18);
    assert_int_equal(lmdb_page_parse(&page, bytes, PAGE_BYTES, 7, true), KVT_OK);
    lmdb_page_node(&page, 0, &node);
    assert_int_equal(node.data_size, 0x32211);
    assert_true(node.run == UINT64_C(0x0807060504030201));
    lmdb_page_node(&page, 1, &node);
    assert_int_equal(node.data_size, 4);
    assert_memory_equal(node.data, "data", 4);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_of_48_bits_is_read_whole),
        cmocka_unit_test(a_value_of_more_than_64_kib_is_read_whole),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
