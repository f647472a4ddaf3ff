/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lmdb_tree.c - walk a tree without recursion and without trust.
 *
 * One level of the walk holds a copy of its page: the keys in it bound the subtrees below, so they
 * must stay while those are read. A tree has at most LMDB_DEPTH_MAX levels; every page is claimed,
 * so a cycle ends at the first page that comes again.
 */
#include "lmdb_tree.h"

#include <string.h>

#include "bytes.h"
#include "failure.h"
#include "try.h"

enum {
    NUMBER_KEY_BYTES = 8,
    BRANCH_NODES_MIN = 2, /* LMDB asserts it; in its free list one may remain. */
};

struct key_span {
    const uint8_t *bytes; /* NULL: no bound. */
    uint32_t size;
};

struct level {
    uint8_t *bytes;
    struct lmdb_page page;
    uint32_t next;        /* The node to go to next. */
    struct key_span low;  /* Keys of this page are not below it, */
    struct key_span high; /* and are below this one. */
};

struct walker {
    struct lmdb_reader *reader;
    const struct lmdb_tree *tree;
    const struct lmdb_walk *walk;
    uint8_t *page_copies; /* One for each level. */
    struct level levels[LMDB_DEPTH_MAX];
    uint32_t depth; /* Levels in use. */
    uint64_t branch_pages;
    uint64_t leaf_pages;
    uint64_t overflow_pages;
    uint64_t entries;
};

/* --- 1. Keys ---------------------------------------------------------------------------------- */

static int
key_compare(const struct walker *walker, struct key_span a, struct key_span b)
{
    uint32_t common = a.size < b.size ? a.size : b.size;
    int order;

    if (walker->walk->keys_are_numbers) {
        uint64_t left = get_u64(a.bytes);
        uint64_t right = get_u64(b.bytes);

        return left < right ? -1 : left > right;
    }
    order = memcmp(a.bytes, b.bytes, common);
    if (order != 0)
        return order;
    return a.size < b.size ? -1 : a.size > b.size;
}

/*
 * The keys of a parsed page rise and lie between its bounds. The first key of a branch means
 * nothing: everything below the second goes there.
 */
static const char *
keys_fault(const struct walker *walker, const struct level *level)
{
    struct key_span prior = {NULL, 0};

    for (uint32_t i = level->page.is_leaf ? 0 : 1; i < level->page.node_count; i++) {
        struct lmdb_node node;
        struct key_span key;

        lmdb_page_node(&level->page, i, &node);
        key = (struct key_span){node.key, node.key_size};
        if (key.size == 0 || (walker->walk->keys_are_numbers && key.size != NUMBER_KEY_BYTES))
            return "a key has a size that cannot be";
        if (prior.bytes != NULL && key_compare(walker, prior, key) >= 0)
            return "its keys do not rise";
        if (level->low.bytes != NULL && key_compare(walker, key, level->low) < 0)
            return "a key is below the bound that its parent sets";
        if (level->high.bytes != NULL && key_compare(walker, key, level->high) >= 0)
            return "a key is above the bound that its parent sets";
        prior = key;
    }
    return NULL;
}

/* --- 2. Pages --------------------------------------------------------------------------------- */

static enum kvt_status
level_push(struct walker *walker, uint64_t number, struct key_span low, struct key_span high)
{
    struct level *level = &walker->levels[walker->depth];
    bool is_leaf = walker->depth + 1u == walker->tree->depth;
    const uint8_t *bytes;
    const char *fault;

    KVT_TRY(lmdb_reader_claim(walker->reader, number));
    KVT_TRY(lmdb_reader_page(walker->reader, number, &bytes));
    level->bytes = walker->page_copies + (size_t)walker->depth * walker->reader->page_bytes;
    memcpy(level->bytes, bytes, walker->reader->page_bytes);
    KVT_TRY(
        lmdb_page_parse(&level->page, level->bytes, walker->reader->page_bytes, number, is_leaf));
    level->next = 0;
    level->low = low;
    level->high = high;
    fault = keys_fault(walker, level);
    if (!is_leaf && !walker->walk->keys_are_numbers && level->page.node_count < BRANCH_NODES_MIN)
        fault = "it is a branch to one page only";
    if (fault != NULL) {
        return failure_set(KVT_E_CORRUPT, 0, "Page %llu of the index's file is damaged: %s.",
            (unsigned long long)number, fault);
    }
    walker->branch_pages += is_leaf ? 0 : 1;
    walker->leaf_pages += is_leaf ? 1 : 0;
    walker->depth++;
    return KVT_OK;
}

/* Claim the overflow run of a node and see that its data fit. */
static enum kvt_status
run_claim(struct walker *walker, const struct lmdb_node *node)
{
    struct lmdb_reader *reader = walker->reader;
    uint64_t needed =
        round_up((uint64_t)LMDB_PAGE_HEADER_BYTES + node->data_size, reader->page_bytes) /
        reader->page_bytes;
    const uint8_t *bytes;
    uint32_t count;

    if (!walker->walk->runs_are_allowed) {
        return failure_set(
            KVT_E_CORRUPT, 0, "The index has a value in an overflow run, where none belongs.");
    }
    KVT_TRY(lmdb_reader_claim(reader, node->run));
    KVT_TRY(lmdb_reader_page(reader, node->run, &bytes));
    KVT_TRY(lmdb_run_parse(&count, bytes, node->run));
    if (count < needed || count > reader->page_count - node->run) {
        return failure_set(KVT_E_CORRUPT, 0,
            "The overflow run at page %llu has %u pages for %u bytes, of %llu in the file.",
            (unsigned long long)node->run, (unsigned)count, (unsigned)node->data_size,
            (unsigned long long)reader->page_count);
    }
    for (uint64_t i = 1; i < count; i++)
        KVT_TRY(lmdb_reader_claim(reader, node->run + i));
    walker->overflow_pages += count;
    return KVT_OK;
}

static enum kvt_status
leaf_visit(struct walker *walker, const struct level *level)
{
    for (uint32_t i = 0; i < level->page.node_count; i++) {
        struct lmdb_node node;

        lmdb_page_node(&level->page, i, &node);
        if ((node.flags & LMDB_NODE_BIG) != 0)
            KVT_TRY(run_claim(walker, &node));
        walker->entries++;
        KVT_TRY(walker->walk->visit(walker->walk->visitor, &node));
    }
    return KVT_OK;
}

/* Go to the next child of the lowest branch. */
static enum kvt_status
branch_descend(struct walker *walker, struct level *level)
{
    struct key_span low = level->low;
    struct key_span high = level->high;
    uint32_t i = level->next++;
    struct lmdb_node node;
    struct lmdb_node after;

    lmdb_page_node(&level->page, i, &node);
    if (i > 0)
        low = (struct key_span){node.key, node.key_size};
    if (i + 1 < level->page.node_count) {
        lmdb_page_node(&level->page, i + 1, &after);
        high = (struct key_span){after.key, after.key_size};
    }
    return level_push(walker, node.child, low, high);
}

static enum kvt_status
tree_descend(struct walker *walker)
{
    const struct key_span unbounded = {NULL, 0};

    KVT_TRY(level_push(walker, walker->tree->root, unbounded, unbounded));
    while (walker->depth > 0) {
        struct level *level = &walker->levels[walker->depth - 1];

        if (level->page.is_leaf) {
            KVT_TRY(leaf_visit(walker, level));
            walker->depth--;
        } else if (level->next == level->page.node_count) {
            walker->depth--;
        } else {
            KVT_TRY(branch_descend(walker, level));
        }
    }
    return KVT_OK;
}

/* --- 3. Trees --------------------------------------------------------------------------------- */

enum kvt_status
lmdb_tree_walk(
    struct lmdb_reader *reader, const struct lmdb_tree *tree, const struct lmdb_walk *walk)
{
    struct walker walker = {.reader = reader, .tree = tree, .walk = walk};
    size_t copies_bytes = (size_t)tree->depth * reader->page_bytes;
    enum kvt_status status;

    if (tree->depth == 0)
        return KVT_OK;
    walker.page_copies = env_take(reader->env, copies_bytes);
    if (walker.page_copies == NULL)
        return failure_set(KVT_E_NOMEM, 0, "No memory to check a tree of the index.");
    status = tree_descend(&walker);
    env_put(reader->env, walker.page_copies, copies_bytes);
    if (status != KVT_OK)
        return status;
    if (walker.branch_pages != tree->branch_pages || walker.leaf_pages != tree->leaf_pages ||
        walker.overflow_pages != tree->overflow_pages || walker.entries != tree->entries) {
        return failure_set(KVT_E_CORRUPT, 0,
            "The index's tree at page %llu has %llu entries where %llu are counted, or other "
            "pages than are counted.",
            (unsigned long long)tree->root, (unsigned long long)walker.entries,
            (unsigned long long)tree->entries);
    }
    return KVT_OK;
}

enum kvt_status
lmdb_tree_last(struct lmdb_reader *reader, const struct lmdb_tree *tree, uint64_t *key_out)
{
    struct lmdb_node node = {.child = tree->root};

    *key_out = 0;
    for (uint32_t left = tree->depth; left > 0; left--) {
        uint64_t number = node.child;
        struct lmdb_page page;
        const uint8_t *bytes;

        KVT_TRY(lmdb_reader_page(reader, number, &bytes));
        KVT_TRY(lmdb_page_parse(&page, bytes, reader->page_bytes, number, left == 1));
        lmdb_page_node(&page, page.node_count - 1, &node);
    }
    if (tree->depth == 0)
        return KVT_OK;
    if (node.key_size != NUMBER_KEY_BYTES)
        return failure_set(KVT_E_CORRUPT, 0, "A number of the index has %u bytes.", node.key_size);
    *key_out = get_u64(node.key);
    return KVT_OK;
}

enum kvt_status
lmdb_node_word(
    struct lmdb_reader *reader, const struct lmdb_node *node, uint64_t i, uint64_t *word_out)
{
    uint64_t offset = LMDB_PAGE_HEADER_BYTES + i * sizeof(uint64_t);
    const uint8_t *bytes;

    KVT_ASSERT((i + 1) * sizeof(uint64_t) <= node->data_size);
    if (node->data != NULL) {
        *word_out = get_u64(node->data + i * sizeof(uint64_t));
        return KVT_OK;
    }
    KVT_TRY(lmdb_reader_page(reader, node->run + offset / reader->page_bytes, &bytes));
    *word_out = get_u64(bytes + offset % reader->page_bytes);
    return KVT_OK;
}
