/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lmdb_tree.h - walk one tree of an LMDB file in order of its keys and prove its shape.
 */
#ifndef KVT_INDEX_LMDB_TREE_H
#define KVT_INDEX_LMDB_TREE_H

#include "lmdb_page.h"
#include "lmdb_reader.h"

struct lmdb_walk {
    bool keys_are_numbers; /* u64 in the machine's order, as the free list has them. */
    bool runs_are_allowed; /* Values in overflow runs. */
    enum kvt_status (*visit)(void *visitor, const struct lmdb_node *node);
    void *visitor;
};

/*
 * lmdb_tree_walk - claim every page of the tree, check that keys rise within the bounds that their
 * parents set, that counts agree with the tree's, and call `visit` for each leaf node. KVT_OK: all
 * of this holds. Else the first failure, from `visit` too.
 */
enum kvt_status lmdb_tree_walk(
    struct lmdb_reader *reader, const struct lmdb_tree *tree, const struct lmdb_walk *walk);

/* lmdb_tree_last - the highest key of a tree whose keys are numbers; 0: it is empty. It reads what
 * leads there, and claims nothing. KVT_E_CORRUPT: no such page, or a damaged one. */
enum kvt_status lmdb_tree_last(
    struct lmdb_reader *reader, const struct lmdb_tree *tree, uint64_t *key_out);

/* lmdb_node_word - the u64 at byte 8 * i of a node's data, which has at least 8 * (i + 1) bytes;
 * from an overflow run that lmdb_tree_walk() has claimed, or inline. */
enum kvt_status lmdb_node_word(
    struct lmdb_reader *reader, const struct lmdb_node *node, uint64_t i, uint64_t *word_out);

#endif /* KVT_INDEX_LMDB_TREE_H */
