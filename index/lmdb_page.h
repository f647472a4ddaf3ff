/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lmdb_page.h - one page of an LMDB 0.9 file, parsed without trust.
 *
 * Layout (little endian, as LMDB writes it on this machine)
 *   page header   0 number u64, 8 pad u16, 10 flags u16, 12 lower u16, 14 upper u16 (overflow
 *                 pages: 12 run length u32), 16 offsets of the nodes u16 each, up to `lower`;
 *                 the nodes lie in `upper`..end without gaps.
 *   node          0 low u16, 2 high u16, 4 flags u16, 6 key size u16, 8 key, then the data.
 *                 Leaf: low and high are the data's size; flag 1: the data is the u64 number of
 *                 an overflow run; flag 2: the data is a tree (48 bytes).
 *                 Branch: low, high and flags are the child's number; there is no data.
 *   tree          0 pad u32 (of the free list's: the page size), 4 flags u16, 6 depth u16,
 *                 8 branch pages, 16 leaf pages, 24 overflow pages, 32 entries, 40 root: u64.
 *   meta page     16 magic u32, 20 version u32, 24 address, 32 map size, 40 the free list's tree,
 *                 88 the main tree, 136 last page, 144 transaction: u64.
 */
#ifndef KVT_INDEX_LMDB_PAGE_H
#define KVT_INDEX_LMDB_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvtier/status.h"

enum {
    LMDB_PAGE_HEADER_BYTES = 16,
    LMDB_META_BYTES = 152, /* Header and meta. */
    LMDB_TREE_BYTES = 48,
    LMDB_KEY_BYTES_MAX = 511,
    LMDB_PAGE_BYTES_MIN = 512,
    LMDB_PAGE_BYTES_MAX = 65536,
    LMDB_DEPTH_MAX = 32,

    LMDB_PAGE_BRANCH = 1,
    LMDB_PAGE_LEAF = 2,
    LMDB_PAGE_OVERFLOW = 4,
    LMDB_PAGE_META = 8,

    LMDB_NODE_BIG = 1,
    LMDB_NODE_TREE = 2,
};

#define LMDB_PAGE_NONE UINT64_MAX /* The root of an empty tree. */

/* A branch or leaf page that lmdb_page_parse() has accepted. */
struct lmdb_page {
    const uint8_t *bytes;
    uint64_t number;
    uint32_t size;
    uint32_t node_count;
    uint32_t free_bytes; /* Between the offsets and the nodes. */
    bool is_leaf;
};

struct lmdb_node {
    const uint8_t *key;
    uint32_t key_size;
    uint16_t flags;      /* Of a leaf's node. */
    uint64_t child;      /* Branch: the page below. */
    const uint8_t *data; /* Leaf: inline data, or NULL when it is in an overflow run. */
    uint32_t data_size;
    uint64_t run; /* Leaf: first page of the overflow run. */
};

struct lmdb_tree {
    uint16_t flags;
    uint16_t depth;
    uint64_t branch_pages;
    uint64_t leaf_pages;
    uint64_t overflow_pages;
    uint64_t entries;
    uint64_t root;
};

struct lmdb_meta {
    uint32_t page_bytes;
    uint64_t map_bytes;
    struct lmdb_tree free_list;
    struct lmdb_tree main;
    uint64_t page_last;
    uint64_t transaction;
};

/* lmdb_meta_parse - LMDB_META_BYTES bytes from the start of meta page `number` (0 or 1). */
enum kvt_status lmdb_meta_parse(struct lmdb_meta *meta_out, const uint8_t *bytes, uint64_t number);

/* lmdb_tree_parse - LMDB_TREE_BYTES bytes. KVT_E_CORRUPT: an empty tree that has something. */
enum kvt_status lmdb_tree_parse(struct lmdb_tree *tree_out, const uint8_t *bytes);

/*
 * lmdb_page_parse - a branch (is_leaf false) or leaf page of `size` bytes. KVT_OK: number, flags
 * and bounds are right; every node lies inside the page and overlaps no other; there is at least
 * one. `bytes` must stay as long as the page is used.
 */
enum kvt_status lmdb_page_parse(
    struct lmdb_page *page_out, const uint8_t *bytes, uint32_t size, uint64_t number, bool is_leaf);

/* lmdb_page_glance - the same, but of the nodes nothing is known: lmdb_page_node() only for one of
 * which lmdb_page_node_lies_inside() says that its header and key lie in the page. */
enum kvt_status lmdb_page_glance(
    struct lmdb_page *page_out, const uint8_t *bytes, uint32_t size, uint64_t number, bool is_leaf);
bool lmdb_page_node_lies_inside(const struct lmdb_page *page, uint32_t i);

/* lmdb_page_node - node `i` < node_count of a parsed page. */
void lmdb_page_node(const struct lmdb_page *page, uint32_t i, struct lmdb_node *node_out);

/* lmdb_run_parse - the header of an overflow run: how many pages it has, at least 1. */
enum kvt_status lmdb_run_parse(uint32_t *page_count_out, const uint8_t *bytes, uint64_t number);

#endif /* KVT_INDEX_LMDB_PAGE_H */
