/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lmdb_page.c - parse pages of an LMDB 0.9 file, believing nothing.
 *
 * Format    lmdb_page.h.
 */
#include "lmdb_page.h"

#include "bytes.h"
#include "failure.h"
#include "try.h"

enum {
    AT_NUMBER = 0,
    AT_FLAGS = 10,
    AT_LOWER = 12,
    AT_UPPER = 14,
    AT_RUN_LENGTH = 12,

    NODE_AT_LOW = 0,
    NODE_AT_HIGH = 2,
    NODE_AT_FLAGS = 4,
    NODE_AT_KEY_SIZE = 6,
    NODE_HEADER_BYTES = 8,

    TREE_AT_FLAGS = 4,
    TREE_AT_DEPTH = 6,
    TREE_AT_BRANCH_PAGES = 8,
    TREE_AT_LEAF_PAGES = 16,
    TREE_AT_OVERFLOW_PAGES = 24,
    TREE_AT_ENTRIES = 32,
    TREE_AT_ROOT = 40,

    META_AT_MAGIC = 16,
    META_AT_VERSION = 20,
    META_AT_MAP_BYTES = 32,
    META_AT_FREE_LIST = 40,
    META_AT_MAIN = 88,
    META_AT_PAGE_LAST = 136,
    META_AT_TRANSACTION = 144,

    META_VERSION = 1,
    FREE_LIST_FLAGS = 0x08,    /* MDB_INTEGERKEY: its keys are numbers. */
    ENVIRONMENT_FLAG = 0x4000, /* MDB_NOSUBDIR, kept beside them. */
    OVERFLOW_NUMBER_BYTES = 8,
    POINTER_BYTES = 2,
};

static const uint32_t META_MAGIC = 0xBEEFC0DEu;

static enum kvt_status
page_fault(uint64_t number, const char *fault)
{
    return failure_set(KVT_E_CORRUPT, 0, "Page %llu of the index's file is damaged: %s.",
        (unsigned long long)number, fault);
}

/* --- 1. Meta pages and trees ------------------------------------------------------------------ */

enum kvt_status
lmdb_tree_parse(struct lmdb_tree *tree_out, const uint8_t *bytes)
{
    bool is_empty;

    tree_out->flags = get_u16(bytes + TREE_AT_FLAGS);
    tree_out->depth = get_u16(bytes + TREE_AT_DEPTH);
    tree_out->branch_pages = get_u64(bytes + TREE_AT_BRANCH_PAGES);
    tree_out->leaf_pages = get_u64(bytes + TREE_AT_LEAF_PAGES);
    tree_out->overflow_pages = get_u64(bytes + TREE_AT_OVERFLOW_PAGES);
    tree_out->entries = get_u64(bytes + TREE_AT_ENTRIES);
    tree_out->root = get_u64(bytes + TREE_AT_ROOT);
    is_empty = tree_out->root == LMDB_PAGE_NONE;
    if (tree_out->depth > LMDB_DEPTH_MAX || is_empty != (tree_out->depth == 0)) {
        return failure_set(KVT_E_CORRUPT, 0, "A tree of the index has depth %u and root %llu.",
            (unsigned)tree_out->depth, (unsigned long long)tree_out->root);
    }
    if (is_empty && (tree_out->branch_pages | tree_out->leaf_pages | tree_out->overflow_pages |
                        tree_out->entries) != 0)
        return failure_set(KVT_E_CORRUPT, 0, "An empty tree of the index counts pages.");
    return KVT_OK;
}

enum kvt_status
lmdb_meta_parse(struct lmdb_meta *meta_out, const uint8_t *bytes, uint64_t number)
{
    uint32_t page_bytes = get_u32(bytes + META_AT_FREE_LIST);

    if (get_u64(bytes + AT_NUMBER) != number || get_u16(bytes + AT_FLAGS) != LMDB_PAGE_META)
        return page_fault(number, "it is no meta page");
    if (get_u32(bytes + META_AT_MAGIC) != META_MAGIC)
        return page_fault(number, "LMDB's magic number is missing");
    if (get_u32(bytes + META_AT_VERSION) != META_VERSION)
        return page_fault(number, "LMDB's version is not 1");
    if (page_bytes < LMDB_PAGE_BYTES_MIN || page_bytes > LMDB_PAGE_BYTES_MAX ||
        (page_bytes & (page_bytes - 1)) != 0)
        return page_fault(number, "the page size cannot be");
    meta_out->page_bytes = page_bytes;
    meta_out->map_bytes = get_u64(bytes + META_AT_MAP_BYTES);
    meta_out->page_last = get_u64(bytes + META_AT_PAGE_LAST);
    meta_out->transaction = get_u64(bytes + META_AT_TRANSACTION);
    KVT_TRY(lmdb_tree_parse(&meta_out->free_list, bytes + META_AT_FREE_LIST));
    KVT_TRY(lmdb_tree_parse(&meta_out->main, bytes + META_AT_MAIN));
    if ((meta_out->free_list.flags & ~ENVIRONMENT_FLAG) != FREE_LIST_FLAGS ||
        meta_out->main.flags != 0)
        return page_fault(number, "its trees have unknown flags");
    return KVT_OK;
}

/* --- 2. Branch and leaf pages ----------------------------------------------------------------- */

static uint32_t
node_offset(const struct lmdb_page *page, uint32_t i)
{
    return get_u16(page->bytes + LMDB_PAGE_HEADER_BYTES + (size_t)i * POINTER_BYTES);
}

/* The length of the node at `offset`, 0 when it does not end inside the page. */
static uint32_t
node_bytes(const uint8_t *bytes, uint32_t size, uint32_t offset, bool is_leaf)
{
    const uint8_t *node = bytes + offset;
    uint64_t length = NODE_HEADER_BYTES + (uint64_t)get_u16(node + NODE_AT_KEY_SIZE);

    if (is_leaf && (get_u16(node + NODE_AT_FLAGS) & LMDB_NODE_BIG) != 0)
        length += OVERFLOW_NUMBER_BYTES;
    else if (is_leaf)
        length += get_u16(node + NODE_AT_LOW) | (uint32_t)get_u16(node + NODE_AT_HIGH) << 16;
    length = round_up(length, 2);
    return length <= size - offset ? (uint32_t)length : 0;
}

/*
 * Every node lies in upper..size, and none overlaps another: `used` has one byte for each two of
 * the page. Nodes without gaps are part of it: LMDB moves them by adding up their lengths.
 */
static const char *
nodes_fault(const struct lmdb_page *page, uint32_t upper)
{
    uint8_t used[LMDB_PAGE_BYTES_MAX / 2];
    uint64_t sum = 0;

    memset(used, 0, page->size / 2);
    for (uint32_t i = 0; i < page->node_count; i++) {
        uint32_t offset = node_offset(page, i);
        uint32_t length;

        if (offset < upper || offset % 2 != 0 || offset + NODE_HEADER_BYTES > page->size)
            return "a node lies outside its bounds";
        length = node_bytes(page->bytes, page->size, offset, page->is_leaf);
        if (length == 0)
            return "a node ends outside it";
        if (get_u16(page->bytes + offset + NODE_AT_KEY_SIZE) > LMDB_KEY_BYTES_MAX)
            return "a key is too long";
        if (memchr(used + offset / 2, 1, length / 2) != NULL)
            return "two nodes overlap";
        memset(used + offset / 2, 1, length / 2);
        sum += length;
    }
    return sum == page->size - upper ? NULL : "there is a gap between its nodes";
}

enum kvt_status
lmdb_page_glance(
    struct lmdb_page *page_out, const uint8_t *bytes, uint32_t size, uint64_t number, bool is_leaf)
{
    uint32_t lower = get_u16(bytes + AT_LOWER);
    uint32_t upper = get_u16(bytes + AT_UPPER);

    if (get_u64(bytes + AT_NUMBER) != number)
        return page_fault(number, "it has another page's number");
    if (get_u16(bytes + AT_FLAGS) != (is_leaf ? LMDB_PAGE_LEAF : LMDB_PAGE_BRANCH))
        return page_fault(number, is_leaf ? "it is no leaf" : "it is no branch");
    if (lower < LMDB_PAGE_HEADER_BYTES + POINTER_BYTES || lower % POINTER_BYTES != 0 ||
        lower > upper || upper > size || upper % 2 != 0)
        return page_fault(number, "its bounds cannot be");
    page_out->bytes = bytes;
    page_out->number = number;
    page_out->size = size;
    page_out->node_count = (lower - LMDB_PAGE_HEADER_BYTES) / POINTER_BYTES;
    page_out->free_bytes = upper - lower;
    page_out->is_leaf = is_leaf;
    return KVT_OK;
}

bool
lmdb_page_node_lies_inside(const struct lmdb_page *page, uint32_t i)
{
    uint32_t begin = node_offset(page, i) + NODE_HEADER_BYTES;

    return begin <= page->size && get_u16(page->bytes + begin - NODE_HEADER_BYTES +
                                          NODE_AT_KEY_SIZE) <= page->size - begin;
}

enum kvt_status
lmdb_page_parse(
    struct lmdb_page *page_out, const uint8_t *bytes, uint32_t size, uint64_t number, bool is_leaf)
{
    const char *fault;

    KVT_TRY(lmdb_page_glance(page_out, bytes, size, number, is_leaf));
    fault = nodes_fault(page_out, get_u16(bytes + AT_UPPER));
    return fault == NULL ? KVT_OK : page_fault(number, fault);
}

void
lmdb_page_node(const struct lmdb_page *page, uint32_t i, struct lmdb_node *node_out)
{
    const uint8_t *node = page->bytes + node_offset(page, i);
    uint32_t low = get_u16(node + NODE_AT_LOW) | (uint32_t)get_u16(node + NODE_AT_HIGH) << 16;
    uint16_t flags = get_u16(node + NODE_AT_FLAGS);

    KVT_ASSERT(i < page->node_count);
    *node_out = (struct lmdb_node){0};
    node_out->key = node + NODE_HEADER_BYTES;
    node_out->key_size = get_u16(node + NODE_AT_KEY_SIZE);
    if (!page->is_leaf) {
        node_out->child = (uint64_t)flags << 32 | low;
        return;
    }
    node_out->flags = flags;
    node_out->data_size = low;
    if ((flags & LMDB_NODE_BIG) != 0)
        node_out->run = get_u64(node_out->key + node_out->key_size);
    else
        node_out->data = node_out->key + node_out->key_size;
}

enum kvt_status
lmdb_run_parse(uint32_t *page_count_out, const uint8_t *bytes, uint64_t number)
{
    *page_count_out = get_u32(bytes + AT_RUN_LENGTH);
    if (get_u64(bytes + AT_NUMBER) != number)
        return page_fault(number, "it has another page's number");
    if (get_u16(bytes + AT_FLAGS) != LMDB_PAGE_OVERFLOW || *page_count_out == 0)
        return page_fault(number, "it begins no overflow run");
    return KVT_OK;
}
