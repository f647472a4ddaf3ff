/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lmdb_touch.c - bring the pages that a transaction needs into the page cache, before LMDB goes
 * through its map to them.
 *
 * Why       A page that the disk cannot read is an error to read_at(); through the map it is a
 *           SIGBUS, which ends the host process. What was read just now is in the page cache, but a
 *           fault may need more than that page (env.h, map_prove): so each page that was read is
 *           proved in another map of the file, too.
 * Owns      that map; one page of memory for each level of a tree.
 * Not here  damage: pages are believed as far as LMDB believes them, but nothing here leaves a page
 *           or runs for ever, whatever they say.
 *
 * What LMDB 0.9 reads in a transaction:
 *   (1) Both meta pages, the main tree, the root of every tree.
 *   (2) The free list, as far as it needs pages; here all of it, with its overflow runs.
 *   (3) For each key the path to its leaf; behind the last key of a leaf, the next leaf.
 *   (4) For a removal from a page that has become too empty (a leaf below a quarter, a branch with
 *       one child) the page beside it. As long as that has enough, a node of it is moved over; else
 *       the two become one, and the page beside both is the next neighbour. For branches also the
 *       lowest page below either.
 *
 * How far (4) goes is bounded by the removals: each moves one node, or makes one page of two. So a
 * walk along a level has a budget: removals in a page add to it, and a page without any takes from
 * it what it costs to make it go. What lies behind a page at which the budget ends is out of reach.
 */
#include <stdlib.h>
#include <string.h>

#include "block_record.h"
#include "bytes.h"
#include "failure.h"
#include "index_lmdb_internal.h"
#include "lmdb_page.h"
#include "segment_facts.h"
#include "try.h"

enum {
    TREE_BLOCK,
    TREE_SEGMENT,
    TREE_SYSTEM,
    TREE_COUNT,

    NODE_OVERHEAD = 10, /* LMDB's bytes beside key and value. */
    NODE_BYTES_MIN = BLOCK_RECORD_BYTES_MIN + BLOCK_KEY_BYTES + NODE_OVERHEAD,
    NODE_BYTES_MAX = BLOCK_RECORD_BYTES_MAX + BLOCK_KEY_BYTES + NODE_OVERHEAD,
    EMPTY_DIVISOR = 4, /* A leaf with less than a quarter is too empty. */
    NO_KEYS = 0,
    UNPROVED_MAX = 256, /* Pages that are proved at once. */
};

#define KEY_MAX UINT64_MAX
#define BUDGET_UNBOUNDED ((int64_t)1 << 40)

static const char *const tree_names[TREE_COUNT] = {"block", "segment", "system"};

struct level {
    struct lmdb_page page;
    uint64_t first; /* All keys from here */
    uint64_t last;  /* to here are below this page. */
    uint32_t at;    /* The child that is the next level. */
    uint8_t *bytes;
};

struct lmdb_touch {
    size_t size; /* Of this and of what lies behind it. */
    uint32_t page_bytes;
    uint64_t page_count;
    uint8_t *scratch;
    uint32_t depth;    /* Of the tree that is walked. */
    uint32_t top;      /* The last level that is in use. */
    uint32_t key_size; /* Of its keys; NO_KEYS: it is walked from end to end. */
    struct lmdb_tree trees[TREE_COUNT];
    struct level levels[LMDB_DEPTH_MAX];
    void *map;
    uint64_t map_bytes;
    uint32_t unproved_count;
    uint64_t unproved[UNPROVED_MAX]; /* Pages that were read. */
};

/* --- 1. Its life ------------------------------------------------------------------------------ */

/* As the file says: LMDB, asked, would look through its map, of which nothing is proved yet. */
static enum kvt_status
page_size_read(const struct index_lmdb *lmdb, struct lmdb_meta *meta_out)
{
    uint8_t bytes[LMDB_META_BYTES] = {0};
    size_t size;

    KVT_TRY(lmdb->env.fs->read_at(lmdb->file, bytes, sizeof(bytes), 0, &size));
    return lmdb_meta_parse(meta_out, bytes, 0);
}

enum kvt_status
lmdb_touch_open(struct index_lmdb *lmdb)
{
    struct lmdb_touch *touch;
    struct lmdb_meta meta;
    enum kvt_status status;
    size_t size;

    KVT_TRY(page_size_read(lmdb, &meta));
    size = sizeof(struct lmdb_touch) + (size_t)meta.page_bytes * (LMDB_DEPTH_MAX + 1);
    touch = env_take(&lmdb->env, size);
    if (touch == NULL)
        return failure_set(KVT_E_NOMEM, 0, "No memory to walk the index.");
    *touch = (struct lmdb_touch){.size = size, .page_bytes = meta.page_bytes};
    touch->scratch = (uint8_t *)(touch + 1);
    for (uint32_t i = 0; i < LMDB_DEPTH_MAX; i++)
        touch->levels[i].bytes = touch->scratch + (size_t)meta.page_bytes * (i + 1);
    lmdb->touch = touch;
    status = lmdb_touch_map(lmdb, lmdb->map_bytes);
    if (status != KVT_OK)
        lmdb_touch_close(lmdb);
    return status;
}

enum kvt_status
lmdb_touch_map(struct index_lmdb *lmdb, uint64_t map_bytes)
{
    struct lmdb_touch *touch = lmdb->touch;
    void *map;

    KVT_TRY(lmdb->env.fs->map(lmdb->file, map_bytes, &map));
    lmdb->env.fs->unmap(touch->map, touch->map_bytes);
    touch->map = map;
    touch->map_bytes = map_bytes;
    return KVT_OK;
}

void
lmdb_touch_close(struct index_lmdb *lmdb)
{
    if (lmdb->touch == NULL)
        return;
    lmdb->env.fs->unmap(lmdb->touch->map, lmdb->touch->map_bytes);
    env_put(&lmdb->env, lmdb->touch, lmdb->touch->size);
    lmdb->touch = NULL;
}

/* --- 2. Pages --------------------------------------------------------------------------------- */

static enum kvt_status
page_unreadable(uint64_t number)
{
    const struct failure cause = *failure_last();

    return failure_set(KVT_E_META, cause.foreign_code,
        "Page %llu of the index's file cannot be read: %s.", (unsigned long long)number,
        cause.text);
}

static enum kvt_status
run_map_prove(const struct index_lmdb *lmdb, uint64_t number, uint64_t count)
{
    const struct lmdb_touch *touch = lmdb->touch;

    return lmdb->env.fs->map_prove(
        lmdb->file, touch->map, number * touch->page_bytes, count * touch->page_bytes);
}

static int
number_compare(const void *one, const void *other)
{
    uint64_t first = *(const uint64_t *)one;
    uint64_t second = *(const uint64_t *)other;

    return first < second ? -1 : first > second;
}

/* Pages that lie together in one call; when that fails, one by one, to say which it is. */
static enum kvt_status
unproved_prove(struct index_lmdb *lmdb)
{
    struct lmdb_touch *touch = lmdb->touch;
    const uint64_t *numbers = touch->unproved;
    uint32_t next;

    qsort(touch->unproved, touch->unproved_count, sizeof(*numbers), number_compare);
    for (uint32_t i = 0; i < touch->unproved_count; i = next) {
        next = i + 1;
        while (next < touch->unproved_count && numbers[next] <= numbers[next - 1] + 1)
            next++;
        if (run_map_prove(lmdb, numbers[i], numbers[next - 1] - numbers[i] + 1) == KVT_OK)
            continue;
        for (; i < next; i++) {
            if (run_map_prove(lmdb, numbers[i], 1) != KVT_OK)
                return page_unreadable(numbers[i]);
        }
    }
    touch->unproved_count = 0;
    return KVT_OK;
}

/* All of the page: where blocks are smaller, the rest of it could be on the disk still. */
static enum kvt_status
page_read(struct index_lmdb *lmdb, uint64_t number, uint8_t *target)
{
    struct lmdb_touch *touch = lmdb->touch;
    size_t size = 0;

    if (number >= touch->page_count) {
        return failure_set(KVT_E_META, 0, "The index's file refers to page %llu of %llu.",
            (unsigned long long)number, (unsigned long long)touch->page_count);
    }
    if (lmdb->env.fs->read_at(
            lmdb->file, target, touch->page_bytes, number * touch->page_bytes, &size) != KVT_OK)
        return page_unreadable(number);
    if (size != touch->page_bytes) {
        return failure_set(
            KVT_E_META, 0, "The index's file ends before page %llu.", (unsigned long long)number);
    }
    /* Proved later: walks go over the same pages several times, and over many that lie together. */
    touch->unproved[touch->unproved_count++] = number;
    return touch->unproved_count < UNPROVED_MAX ? KVT_OK : unproved_prove(lmdb);
}

static enum kvt_status
level_damaged(const struct level *level)
{
    return failure_set(KVT_E_META, 0, "Page %llu of the index's file is damaged.",
        (unsigned long long)level->page.number);
}

/* The child of node `i`, and its key as a number; the first key of a branch means nothing. */
static enum kvt_status
child_of(const struct lmdb_touch *touch, const struct level *level, uint32_t i,
    uint64_t *number_out, uint64_t *key_out)
{
    struct lmdb_node node;

    if (!lmdb_page_node_lies_inside(&level->page, i))
        return level_damaged(level);
    lmdb_page_node(&level->page, i, &node);
    *number_out = node.child;
    *key_out = level->first;
    if (i == 0 || touch->key_size == NO_KEYS)
        return KVT_OK;
    if (node.key_size != touch->key_size)
        return level_damaged(level);
    *key_out = get_u32_big(node.key);
    if (node.key_size == BLOCK_KEY_BYTES)
        *key_out = *key_out << 32 | get_u32_big(node.key + 4);
    return KVT_OK;
}

static enum kvt_status
level_enter(struct index_lmdb *lmdb, uint32_t depth, uint64_t number, uint64_t first, uint64_t last)
{
    struct lmdb_touch *touch = lmdb->touch;
    struct level *level = &touch->levels[depth];

    KVT_TRY(page_read(lmdb, number, level->bytes));
    KVT_TRY(lmdb_page_glance(
        &level->page, level->bytes, touch->page_bytes, number, depth + 1 == touch->depth));
    level->first = first;
    level->last = last;
    level->at = 0;
    touch->top = depth;
    return KVT_OK;
}

static enum kvt_status
child_enter(struct index_lmdb *lmdb, uint32_t depth, uint32_t i)
{
    const struct lmdb_touch *touch = lmdb->touch;
    struct level *level = &lmdb->touch->levels[depth];
    uint64_t last = level->last;
    uint64_t number;
    uint64_t first;
    uint64_t unused;

    KVT_TRY(child_of(touch, level, i, &number, &first));
    if (i + 1 < level->page.node_count && touch->key_size != NO_KEYS) {
        KVT_TRY(child_of(touch, level, i + 1, &unused, &last));
        last--;
    }
    if (first < level->first || last > level->last || first > last)
        return level_damaged(level);
    level->at = i;
    return level_enter(lmdb, depth + 1, number, first, last);
}

static enum kvt_status
tree_begin(struct index_lmdb *lmdb, const struct lmdb_tree *tree, uint32_t key_size)
{
    lmdb->touch->depth = tree->depth;
    lmdb->touch->key_size = key_size;
    return tree->depth == 0 ? KVT_OK : level_enter(lmdb, 0, tree->root, 0, KEY_MAX);
}

/* --- 3. Steps --------------------------------------------------------------------------------- */

/* The child below which `key` lies: the last whose own is not above it. */
static enum kvt_status
child_find(
    const struct lmdb_touch *touch, const struct level *level, uint64_t key, uint32_t *child_out)
{
    uint32_t low = 0;
    uint32_t high = level->page.node_count;

    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        uint64_t number;
        uint64_t first;

        KVT_TRY(child_of(touch, level, middle, &number, &first));
        if (first <= key)
            low = middle;
        else
            high = middle;
    }
    *child_out = low;
    return KVT_OK;
}

/* Go to the page at `depth` that has `key`, from where the walk is. */
static enum kvt_status
key_seek(struct index_lmdb *lmdb, uint32_t depth, uint64_t key)
{
    struct lmdb_touch *touch = lmdb->touch;
    uint32_t i;

    if (touch->top > depth)
        touch->top = depth;
    while (key < touch->levels[touch->top].first || key > touch->levels[touch->top].last)
        touch->top--; /* The root has every key. */
    while (touch->top < depth) {
        KVT_TRY(child_find(touch, &touch->levels[touch->top], key, &i));
        KVT_TRY(child_enter(lmdb, touch->top, i));
    }
    return KVT_OK;
}

/* Go down to `depth`, always to the first child or to the last. */
static enum kvt_status
edge_descend(struct index_lmdb *lmdb, uint32_t depth, bool is_first)
{
    const struct lmdb_touch *touch = lmdb->touch;

    while (touch->top < depth) {
        const struct level *level = &touch->levels[touch->top];

        KVT_TRY(child_enter(lmdb, touch->top, is_first ? 0 : level->page.node_count - 1));
    }
    return KVT_OK;
}

/* Go to the page beside the one at `depth`. KVT_MISS: there is none. */
static enum kvt_status
sibling_step(struct index_lmdb *lmdb, uint32_t depth, bool is_forward)
{
    struct lmdb_touch *touch = lmdb->touch;

    for (uint32_t above = depth; above > 0; above--) {
        const struct level *level = &touch->levels[above - 1];

        if (is_forward ? level->at + 1 < level->page.node_count : level->at > 0) {
            KVT_TRY(child_enter(lmdb, above - 1, is_forward ? level->at + 1 : level->at - 1));
            return edge_descend(lmdb, depth, is_forward);
        }
    }
    return KVT_MISS;
}

/* --- 4. Trees that are proved whole ----------------------------------------------------------- */

static enum kvt_status
run_prove(struct index_lmdb *lmdb, const struct lmdb_node *node)
{
    uint64_t size = LMDB_PAGE_HEADER_BYTES + (uint64_t)node->data_size;

    for (uint64_t i = 0; i * lmdb->touch->page_bytes < size; i++)
        KVT_TRY(page_read(lmdb, node->run + i, lmdb->touch->scratch));
    return KVT_OK;
}

static void
tree_note(struct lmdb_touch *touch, const struct lmdb_node *node, const struct lmdb_tree *tree)
{
    for (uint32_t i = 0; i < TREE_COUNT; i++) {
        if (node->key_size == strlen(tree_names[i]) &&
            memcmp(node->key, tree_names[i], node->key_size) == 0)
            touch->trees[i] = *tree;
    }
}

/* What the nodes of a leaf refer to: overflow runs, trees. */
static enum kvt_status
leaf_prove(struct index_lmdb *lmdb)
{
    struct lmdb_touch *touch = lmdb->touch;
    struct level *level = &touch->levels[touch->top];

    KVT_TRY(
        lmdb_page_parse(&level->page, level->bytes, touch->page_bytes, level->page.number, true));
    for (uint32_t i = 0; i < level->page.node_count; i++) {
        struct lmdb_node node;
        struct lmdb_tree tree;

        lmdb_page_node(&level->page, i, &node);
        if ((node.flags & LMDB_NODE_BIG) != 0) {
            KVT_TRY(run_prove(lmdb, &node));
        } else if ((node.flags & LMDB_NODE_TREE) != 0 && node.data_size == LMDB_TREE_BYTES) {
            KVT_TRY(lmdb_tree_parse(&tree, node.data));
            tree_note(touch, &node, &tree);
        }
    }
    return KVT_OK;
}

static enum kvt_status
tree_prove(struct index_lmdb *lmdb, const struct lmdb_tree *tree)
{
    enum kvt_status status;

    KVT_TRY(tree_begin(lmdb, tree, NO_KEYS));
    if (tree->depth == 0)
        return KVT_OK;
    status = edge_descend(lmdb, tree->depth - 1u, true);
    /* A tree that led back into itself would have no end. */
    for (uint64_t i = 0; status == KVT_OK && i < lmdb->touch->page_count; i++) {
        KVT_TRY(leaf_prove(lmdb));
        status = sibling_step(lmdb, tree->depth - 1u, true);
    }
    return status == KVT_MISS ? KVT_OK : status;
}

static enum kvt_status
metas_prove(struct index_lmdb *lmdb, struct lmdb_meta *meta_out)
{
    struct lmdb_touch *touch = lmdb->touch;
    struct lmdb_meta metas[LMDB_META_PAGES];

    touch->page_count = LMDB_META_PAGES;
    for (uint32_t i = 0; i < LMDB_META_PAGES; i++) {
        KVT_TRY(page_read(lmdb, i, touch->scratch));
        KVT_TRY(lmdb_meta_parse(&metas[i], touch->scratch, i));
    }
    *meta_out = metas[metas[0].transaction < metas[1].transaction ? 1 : 0];
    touch->page_count = meta_out->page_last + 1;
    return KVT_OK;
}

/* --- 5. The keys of a batch ------------------------------------------------------------------- */

static uint64_t
place_of(const struct index_block *block)
{
    return (uint64_t)block->segment << 32 | block->page;
}

/* How many of a sorted list are below `key`. */
static uint32_t
count_below(const struct index_block *list, uint32_t count, uint64_t key)
{
    uint32_t low = 0;

    while (low < count) {
        uint32_t middle = low + (count - low) / 2;

        if (place_of(&list[middle]) < key)
            low = middle + 1;
        else
            count = middle;
    }
    return low;
}

static uint32_t
count_to(const struct index_block *list, uint32_t count, uint64_t key)
{
    return key == KEY_MAX ? count : count_below(list, count, key + 1);
}

struct nearest {
    uint64_t from;
    bool is_forward;
    bool is_found;
    uint64_t key;
};

static void
nearest_offer(struct nearest *nearest, uint64_t key)
{
    if (nearest->is_forward ? key < nearest->from : key > nearest->from)
        return;
    if (!nearest->is_found || (nearest->is_forward ? key < nearest->key : key > nearest->key))
        nearest->key = key;
    nearest->is_found = true;
}

static void
nearest_offer_list(struct nearest *nearest, const struct index_block *list, uint32_t count)
{
    uint32_t i = nearest->is_forward ? count_below(list, count, nearest->from)
                                     : count_to(list, count, nearest->from) - 1u;

    if (i < count)
        nearest_offer(nearest, place_of(&list[i]));
}

/* The first key of the batch that is not below `from`; or the last that is not above it. */
static bool
key_near(const struct index_batch *batch, uint64_t from, bool is_forward, uint64_t *key_out)
{
    struct nearest nearest = {.from = from, .is_forward = is_forward};

    nearest_offer_list(&nearest, batch->added, batch->added_count);
    nearest_offer_list(&nearest, batch->deleted, batch->deleted_count);
    if (batch->added_count > 0)
        nearest_offer(&nearest, KEY_MAX); /* LMDB is asked for the last key. */
    for (uint32_t i = 0; i < batch->emptied_count; i++) {
        uint64_t first = (uint64_t)batch->emptied[i] << 32;

        if (batch->emptied[i] == from >> 32)
            nearest_offer(&nearest, from);
        nearest_offer(&nearest, is_forward ? first : first | UINT32_MAX);
    }
    *key_out = nearest.key;
    return nearest.is_found;
}

/* --- 6. Walks along a level ------------------------------------------------------------------- */

/* As many records as can go below the page at `depth`, or more. */
static int64_t
removals_of(const struct lmdb_touch *touch, uint32_t depth, const struct index_batch *batch)
{
    const struct level *level = &touch->levels[depth];
    int64_t count = count_to(batch->deleted, batch->deleted_count, level->last) -
                    count_below(batch->deleted, batch->deleted_count, level->first);
    uint32_t height = touch->depth - 1 - depth;

    for (uint32_t i = 0; i < batch->emptied_count; i++) {
        uint64_t first = (uint64_t)batch->emptied[i] << 32;

        if (first > level->last || (first | UINT32_MAX) < level->first)
            continue;
        if (height > 1)
            return BUDGET_UNBOUNDED;
        count += (int64_t)level->page.node_count *
                 (height == 0 ? 1 : touch->page_bytes / NODE_BYTES_MIN);
    }
    return count;
}

/* What it takes at least to make a page go that no key lies in. */
static int64_t
cost_of(const struct level *level)
{
    uint32_t room = level->page.size - LMDB_PAGE_HEADER_BYTES;
    uint32_t used = room - level->page.free_bytes;

    if (!level->page.is_leaf)
        return level->page.node_count > 1 ? level->page.node_count - 1 : 1;
    return used > room / EMPTY_DIVISOR ? 1 + (used - room / EMPTY_DIVISOR) / NODE_BYTES_MAX : 1;
}

static int64_t
page_budget(const struct lmdb_touch *touch, uint32_t depth, const struct index_batch *batch)
{
    const struct level *level = &touch->levels[depth];
    uint64_t key;

    if (key_near(batch, level->first, true, &key) && key <= level->last)
        return removals_of(touch, depth, batch);
    return -cost_of(level);
}

/* From the page of `*key` on, until the budget ends; *key: the last one that was proved. KVT_MISS:
 * the level ended first. */
static enum kvt_status
stretch_prove(struct index_lmdb *lmdb, uint32_t depth, const struct index_batch *batch,
    bool is_forward, uint64_t *key)
{
    const struct level *level = &lmdb->touch->levels[depth];
    enum kvt_status status = key_seek(lmdb, depth, *key);
    int64_t budget = 0;

    while (status == KVT_OK) {
        budget += page_budget(lmdb->touch, depth, batch);
        *key = is_forward ? level->last : level->first;
        KVT_TRY(edge_descend(lmdb, lmdb->touch->depth - 1, true));
        if (budget < 0)
            return KVT_OK;
        status = sibling_step(lmdb, depth, is_forward);
    }
    return status;
}

static enum kvt_status
level_prove(
    struct index_lmdb *lmdb, uint32_t depth, const struct index_batch *batch, bool is_forward)
{
    uint64_t from = is_forward ? 0 : KEY_MAX;
    uint64_t key;

    while (key_near(batch, from, is_forward, &key)) {
        enum kvt_status status = stretch_prove(lmdb, depth, batch, is_forward, &key);

        if (status != KVT_OK && status != KVT_MISS)
            return status;
        if (status == KVT_MISS || key == (is_forward ? KEY_MAX : 0))
            return KVT_OK;
        from = is_forward ? key + 1 : key - 1;
    }
    return KVT_OK;
}

static enum kvt_status
blocks_prove(struct index_lmdb *lmdb, const struct index_batch *batch)
{
    const struct lmdb_tree *tree = &lmdb->touch->trees[TREE_BLOCK];

    KVT_TRY(tree_begin(lmdb, tree, BLOCK_KEY_BYTES));
    for (uint32_t height = 0; height < tree->depth; height++) {
        KVT_TRY(level_prove(lmdb, tree->depth - 1 - height, batch, true));
        KVT_TRY(level_prove(lmdb, tree->depth - 1 - height, batch, false));
    }
    return KVT_OK;
}

/* Facts are written and never removed. */
static enum kvt_status
segments_prove(struct index_lmdb *lmdb, const struct index_batch *batch)
{
    const struct lmdb_tree *tree = &lmdb->touch->trees[TREE_SEGMENT];

    KVT_TRY(tree_begin(lmdb, tree, SEGMENT_KEY_BYTES));
    for (uint32_t i = 0; tree->depth > 0 && i < batch->segment_count; i++)
        KVT_TRY(key_seek(lmdb, tree->depth - 1u, batch->segments[i].number));
    return KVT_OK;
}

/* --- 7. Transactions -------------------------------------------------------------------------- */

static enum kvt_status
transaction_prove(struct index_lmdb *lmdb, const struct index_batch *batch)
{
    static const struct index_batch nothing;
    struct lmdb_meta meta;

    if (batch == NULL)
        batch = &nothing;
    memset(lmdb->touch->trees, 0, sizeof(lmdb->touch->trees));
    KVT_TRY(metas_prove(lmdb, &meta));
    KVT_TRY(tree_prove(lmdb, &meta.main));
    KVT_TRY(tree_prove(lmdb, &meta.free_list));
    KVT_TRY(tree_prove(lmdb, &lmdb->touch->trees[TREE_SYSTEM]));
    KVT_TRY(segments_prove(lmdb, batch));
    return blocks_prove(lmdb, batch);
}

/* The end of a walk. Whatever it was: the index takes no commit. */
static enum kvt_status
walk_end(struct index_lmdb *lmdb, enum kvt_status status)
{
    struct failure cause;

    if (status == KVT_OK)
        status = unproved_prove(lmdb);
    lmdb->touch->unproved_count = 0;
    if (status == KVT_OK || status == KVT_E_META)
        return status;
    cause = *failure_last();
    return failure_set(KVT_E_META, cause.foreign_code, "%s", cause.text);
}

enum kvt_status
lmdb_touch(struct index_lmdb *lmdb, const struct index_batch *batch)
{
    return walk_end(lmdb, transaction_prove(lmdb, batch));
}

enum kvt_status
lmdb_touch_metas(struct index_lmdb *lmdb)
{
    struct lmdb_meta meta;

    return walk_end(lmdb, metas_prove(lmdb, &meta));
}

enum kvt_status
lmdb_touch_walk(struct index_lmdb *lmdb)
{
    enum kvt_status status = transaction_prove(lmdb, NULL);
    struct failure cause;

    if (status == KVT_OK)
        status = tree_prove(lmdb, &lmdb->touch->trees[TREE_SEGMENT]);
    status = walk_end(lmdb, status);
    if (status == KVT_OK)
        return KVT_OK;
    cause = *failure_last();
    return failure_set(
        cause.foreign_code != 0 ? KVT_E_IO : KVT_E_CORRUPT, cause.foreign_code, "%s", cause.text);
}
