/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lmdb_check.c - prove that an index file is safe to map, and that it says what was committed; list
 * what is in one without mapping it.
 *
 * Not here  pages (lmdb_page.c), reading (lmdb_reader.c), trees (lmdb_tree.c).
 * Format    SCHEMA.md, version 1, in LMDB 0.9's data format 1.
 *
 * Order: meta pages, the main tree (which names the others), `system`, `block`,
 * `segment` and the free list. Pages claimed by one are refused to the next.
 */
#include "lmdb_check.h"

#include <string.h>

#include "array.h"
#include "block_record.h"
#include "bytes.h"
#include "failure.h"
#include "lmdb_tree.h"
#include "segment_facts.h"
#include "try.h"

enum {
    META_COUNT = 2,
    SCHEMA = 1,
};

/* What the records of one segment add up to. */
struct segment_run {
    uint32_t segment;
    uint32_t count;
    uint32_t crc_xor;
};

struct check {
    struct lmdb_reader reader;
    struct lmdb_meta metas[META_COUNT];
    struct lmdb_meta meta; /* The newer one. */
    struct lmdb_tree block;
    struct lmdb_tree segment;
    struct lmdb_tree system;
    bool has_block;
    bool has_segment;
    bool has_system;
    bool has_clean;
    bool has_schema;
    struct segment_run *runs; /* In order of segment. */
    uint32_t run_count;
    uint32_t run_capacity;
    size_t run_next;       /* The first that `segment` has not confirmed. */
    struct failure damage; /* The first damaged record. */
    struct lmdb_report report;
};

/* --- 1. Meta pages ---------------------------------------------------------------------------- */

static enum kvt_status
meta_read(const struct kvt_env *env, struct fs_file *file, uint64_t number, uint32_t page_bytes,
    struct lmdb_meta *meta_out)
{
    uint8_t bytes[LMDB_META_BYTES];
    size_t size;

    KVT_TRY(env->fs->read_at(file, bytes, sizeof(bytes), number * page_bytes, &size));
    if (size != sizeof(bytes)) {
        return failure_set(KVT_E_CORRUPT, 0, "The index's file ends inside meta page %llu.",
            (unsigned long long)number);
    }
    return lmdb_meta_parse(meta_out, bytes, number);
}

/*
 * LMDB writes transaction n to meta page n % 2, so the two are those of the last transactions; a
 * file that never had one has 0 in both. Anything else was not written by LMDB.
 */
static enum kvt_status
meta_choose(const struct lmdb_meta metas[META_COUNT], struct lmdb_meta *meta_out)
{
    uint64_t first = metas[0].transaction;
    uint64_t second = metas[1].transaction;
    bool is_new = first == 0 && second == 0;
    bool is_pair =
        first % 2 == 0 && second % 2 == 1 && (first + 1 == second || second + 1 == first);

    if (!is_new && !is_pair) {
        return failure_set(KVT_E_CORRUPT, 0,
            "The index's meta pages are of transactions %llu and %llu, which cannot be.",
            (unsigned long long)first, (unsigned long long)second);
    }
    if (metas[0].page_bytes != metas[1].page_bytes) {
        return failure_set(KVT_E_CORRUPT, 0, "The index's meta pages differ in the page size.");
    }
    *meta_out = metas[first < second ? 1 : 0];
    return KVT_OK;
}

/* Read and choose; then the file must hold all pages that either counts. */
static enum kvt_status
meta_find(struct check *check, const struct kvt_env *env, struct fs_file *file)
{
    struct lmdb_meta *metas = check->metas;
    uint64_t size;

    KVT_TRY(env->fs->size(file, &size));
    KVT_TRY(meta_read(env, file, 0, 0, &metas[0]));
    KVT_TRY(meta_read(env, file, 1, metas[0].page_bytes, &metas[1]));
    KVT_TRY(meta_choose(metas, &check->meta));
    for (size_t i = 0; i < META_COUNT; i++) {
        if (metas[i].page_last < META_COUNT - 1 ||
            metas[i].page_last >= size / metas[i].page_bytes) {
            return failure_set(KVT_E_CORRUPT, 0,
                "The index's file has %llu bytes, but meta page %zu says that page %llu is used.",
                (unsigned long long)size, i, (unsigned long long)metas[i].page_last);
        }
    }
    return KVT_OK;
}

static enum kvt_status
entry_pass(void *visitor, const struct lmdb_node *node)
{
    (void)visitor;
    (void)node;
    return KVT_OK;
}

/* Whether the free list of `meta`, whole, is of that transaction. What cannot be read is not. */
static enum kvt_status
free_list_compare(
    struct lmdb_reader *reader, const struct lmdb_meta *meta, uint64_t transaction, bool *is_so_out)
{
    const struct lmdb_walk walk = {
        .keys_are_numbers = true, .runs_are_allowed = true, .visit = entry_pass};
    uint64_t last = 0;
    enum kvt_status status = lmdb_tree_last(reader, &meta->free_list, &last);

    if (status == KVT_OK && last == transaction)
        status = lmdb_tree_walk(reader, &meta->free_list, &walk);
    *is_so_out = status == KVT_OK && last == transaction;
    if (status != KVT_E_CORRUPT && status != KVT_E_IO)
        return status;
    failure_clear();
    return KVT_OK;
}

/*
 * The number of a transaction is nowhere but in its meta page, whose bits may flip, and in its free
 * list: each but the first takes the place of pages, of the main tree's root at least, and notes
 * those there under its number, the highest. Without this a flipped bit makes the state before the
 * last commit the newer one.
 *
 * The newest state is whole, also where its meta page says that it is the older one. Over the pages
 * of a state that is the older one the next transaction has not written; the one after that may
 * have, when a crash cut it short (SCHEMA.md).
 */
static enum kvt_status
metas_prove(const struct check *check, struct lmdb_reader *reader)
{
    const struct lmdb_meta *newer = &check->meta;
    const struct lmdb_meta *older = &check->metas[(newer->transaction + 1) % META_COUNT];
    uint64_t last;
    bool is_newest;

    KVT_TRY(lmdb_tree_last(reader, &newer->free_list, &last));
    if (last != (newer->transaction > 1 ? newer->transaction : 0)) {
        return failure_set(KVT_E_CORRUPT, 0,
            "The index's newer meta page is of transaction %llu, but its free list of %llu.",
            (unsigned long long)newer->transaction, (unsigned long long)last);
    }
    KVT_TRY(free_list_compare(reader, older, older->transaction + META_COUNT, &is_newest));
    if (!is_newest)
        return KVT_OK;
    return failure_set(KVT_E_CORRUPT, 0,
        "The index's older meta page is of transaction %llu, but its free list of %llu.",
        (unsigned long long)older->transaction,
        (unsigned long long)older->transaction + META_COUNT);
}

/* A reader of the pages that either knows. */
static enum kvt_status
metas_read(const struct check *check, const struct kvt_env *env, struct fs_file *file)
{
    uint64_t first = check->metas[0].page_last;
    uint64_t second = check->metas[1].page_last;
    struct lmdb_reader reader;
    enum kvt_status status;

    KVT_TRY(lmdb_reader_open(
        &reader, env, file, check->meta.page_bytes, (first > second ? first : second) + 1));
    status = metas_prove(check, &reader);
    lmdb_reader_close(&reader);
    return status;
}

/* --- 2. The main tree and `system` ------------------------------------------------------------ */

static bool
key_is(const struct lmdb_node *node, const char *name)
{
    return node->key_size == strlen(name) && memcmp(node->key, name, node->key_size) == 0;
}

static enum kvt_status
main_visit(void *visitor, const struct lmdb_node *node)
{
    struct check *check = visitor;
    struct lmdb_tree *tree;

    if (node->flags != LMDB_NODE_TREE || node->data_size != LMDB_TREE_BYTES)
        return failure_set(KVT_E_CORRUPT, 0, "The index's main tree has an entry that is no tree.");
    if (key_is(node, "block")) {
        tree = &check->block;
        check->has_block = true;
    } else if (key_is(node, "segment")) {
        tree = &check->segment;
        check->has_segment = true;
    } else if (key_is(node, "system")) {
        tree = &check->system;
        check->has_system = true;
    } else {
        return failure_set(KVT_E_CORRUPT, 0, "The index has a database with an unknown name.");
    }
    KVT_TRY(lmdb_tree_parse(tree, node->data));
    if (tree->flags != 0)
        return failure_set(KVT_E_CORRUPT, 0, "A database of the index has unknown flags.");
    return KVT_OK;
}

static bool
clean_flag_is_known(const struct lmdb_node *node)
{
    return node->data_size == 1 && (node->data[0] == LMDB_CLEAN || node->data[0] == LMDB_UNCLEAN ||
                                       node->data[0] == LMDB_UNCLEAN_OLD);
}

static enum kvt_status
system_visit(void *visitor, const struct lmdb_node *node)
{
    struct check *check = visitor;

    if (node->flags == 0 && key_is(node, "clean") && clean_flag_is_known(node)) {
        check->report.is_clean = node->data[0] == LMDB_CLEAN;
        check->has_clean = true;
    } else if (node->flags == 0 && key_is(node, "schema") && node->data_size == 4 &&
               get_u32(node->data) == SCHEMA) {
        check->has_schema = true;
    } else {
        return failure_set(KVT_E_CORRUPT, 0, "The index's database `system` has a wrong entry.");
    }
    return KVT_OK;
}

static enum kvt_status
names_check(struct check *check)
{
    const struct lmdb_walk main_walk = {.visit = main_visit, .visitor = check};
    const struct lmdb_walk system_walk = {.visit = system_visit, .visitor = check};

    KVT_TRY(lmdb_tree_walk(&check->reader, &check->meta.main, &main_walk));
    if (!check->has_block || !check->has_segment || !check->has_system)
        return failure_set(KVT_E_CORRUPT, 0, "A database of the index is missing.");
    KVT_TRY(lmdb_tree_walk(&check->reader, &check->system, &system_walk));
    if (!check->has_schema)
        return failure_set(KVT_E_CORRUPT, 0, "The index's schema is missing.");
    if (!check->has_clean)
        return failure_set(
            KVT_E_CORRUPT, 0, "The index was not finished: its clean flag is missing.");
    return KVT_OK;
}

/* --- 3. Blocks and segments ------------------------------------------------------------------- */

/* The run of `segment`, which is the last one or a new one: keys rise. */
static struct segment_run *
run_of(struct check *check, uint32_t segment)
{
    if (check->run_count > 0 && check->runs[check->run_count - 1].segment == segment)
        return &check->runs[check->run_count - 1];
    if (check->run_count == check->run_capacity) {
        struct segment_run *grown =
            array_grow(check->reader.env, check->runs, &check->run_capacity, sizeof(*grown));

        if (grown == NULL)
            return NULL;
        check->runs = grown;
    }
    check->runs[check->run_count] = (struct segment_run){.segment = segment};
    return &check->runs[check->run_count++];
}

static enum kvt_status
block_key_check(const struct lmdb_node *node)
{
    if (node->flags == 0 && node->key_size == BLOCK_KEY_BYTES)
        return KVT_OK;
    return failure_set(KVT_E_CORRUPT, 0,
        "The index's database `block` has a key of %u bytes, flags %u.", (unsigned)node->key_size,
        (unsigned)node->flags);
}

static enum kvt_status
block_visit(void *visitor, const struct lmdb_node *node)
{
    struct check *check = visitor;
    struct segment_run *run;
    uint32_t segment;

    KVT_TRY(block_key_check(node));
    segment = get_u32_big(node->key);
    check->report.block_count++;
    if (block_record_prove(segment, get_u32_big(node->key + 4), node->data, node->data_size) !=
        KVT_OK) {
        if (check->report.damaged_count == 0)
            check->damage = *failure_last();
        check->report.damaged_count++;
        return KVT_OK;
    }
    run = run_of(check, segment);
    if (run == NULL)
        return failure_set(KVT_E_NOMEM, 0, "No memory to check the index's segments.");
    run->count++;
    run->crc_xor ^= block_record_crc(node->data);
    return KVT_OK;
}

static enum kvt_status
segment_read(const struct lmdb_node *node, struct index_segment *segment_out)
{
    if (node->flags != 0 || node->key_size != SEGMENT_KEY_BYTES) {
        return failure_set(KVT_E_CORRUPT, 0,
            "The index's database `segment` has a key of %u bytes, flags %u.",
            (unsigned)node->key_size, (unsigned)node->flags);
    }
    return segment_facts_decode(segment_out, get_u32_big(node->key), node->data, node->data_size);
}

static enum kvt_status
segment_visit(void *visitor, const struct lmdb_node *node)
{
    struct check *check = visitor;
    struct index_segment segment;
    struct segment_run run = {0};
    uint32_t number;

    KVT_TRY(segment_read(node, &segment));
    number = get_u32_big(node->key);
    if (check->run_next < check->run_count && check->runs[check->run_next].segment == number)
        run = check->runs[check->run_next++];
    if (run.count != segment.record_count || run.crc_xor != segment.crc_xor) {
        return failure_set(KVT_E_CORRUPT, 0,
            "Segment %u has %u records with XOR %08x in the index, but its facts say %u and %08x.",
            (unsigned)number, (unsigned)run.count, (unsigned)run.crc_xor,
            (unsigned)segment.record_count, (unsigned)segment.crc_xor);
    }
    return KVT_OK;
}

static enum kvt_status
blocks_check(struct check *check)
{
    const struct lmdb_walk block_walk = {.visit = block_visit, .visitor = check};
    const struct lmdb_walk segment_walk = {.visit = segment_visit, .visitor = check};

    KVT_TRY(lmdb_tree_walk(&check->reader, &check->block, &block_walk));
    if (check->report.damaged_count > 0) {
        return failure_set(KVT_E_CORRUPT, 0, "%llu records of the index are damaged. The first: %s",
            (unsigned long long)check->report.damaged_count, check->damage.text);
    }
    KVT_TRY(lmdb_tree_walk(&check->reader, &check->segment, &segment_walk));
    /* Both rise: a run that was passed over, or is left, has no facts. */
    if (check->run_next != check->run_count) {
        return failure_set(KVT_E_CORRUPT, 0, "Segment %u has records in the index, but no facts.",
            (unsigned)check->runs[check->run_next].segment);
    }
    return KVT_OK;
}

/* --- 4. The free list ------------------------------------------------------------------------- */

/* A value: a count, then that many page numbers, falling. */
static enum kvt_status
free_visit(void *visitor, const struct lmdb_node *node)
{
    struct check *check = visitor;
    uint64_t prior = UINT64_MAX;
    uint64_t words = node->data_size / sizeof(uint64_t);
    uint64_t count = 0;

    if ((node->flags & ~LMDB_NODE_BIG) != 0 || words == 0 ||
        node->data_size % sizeof(uint64_t) != 0)
        return failure_set(KVT_E_CORRUPT, 0, "An entry of the index's free list cannot be.");
    KVT_TRY(lmdb_node_word(&check->reader, node, 0, &count));
    if (count >= words) {
        return failure_set(KVT_E_CORRUPT, 0,
            "An entry of the index's free list names %llu pages in %u bytes.",
            (unsigned long long)count, (unsigned)node->data_size);
    }
    for (uint64_t i = 1; i <= count; i++) {
        uint64_t number = 0;

        KVT_TRY(lmdb_node_word(&check->reader, node, i, &number));
        if (number >= prior)
            return failure_set(KVT_E_CORRUPT, 0, "The index's free list is out of order.");
        KVT_TRY(lmdb_reader_claim(&check->reader, number));
        prior = number;
    }
    return KVT_OK;
}

/* Last, so that a page which is both free and in a tree is found. */
static enum kvt_status
free_list_check(struct check *check)
{
    const struct lmdb_walk walk = {
        .keys_are_numbers = true,
        .runs_are_allowed = true,
        .visit = free_visit,
        .visitor = check,
    };

    return lmdb_tree_walk(&check->reader, &check->meta.free_list, &walk);
}

/* --- 5. The whole file ------------------------------------------------------------------------ */

static enum kvt_status
check_run(struct check *check)
{
    KVT_TRY(lmdb_reader_warm(check->reader.env, check->reader.file,
        check->reader.page_count * check->reader.page_bytes));
    KVT_TRY(names_check(check));
    KVT_TRY(blocks_check(check));
    return free_list_check(check);
}

/* The meta page that counts, and a reader of the pages that it knows. */
static enum kvt_status
check_begin(struct check *check, const struct kvt_env *env, struct fs_file *file)
{
    KVT_TRY(meta_find(check, env, file));
    KVT_TRY(metas_read(check, env, file));
    return lmdb_reader_open(
        &check->reader, env, file, check->meta.page_bytes, check->meta.page_last + 1);
}

enum kvt_status
lmdb_check(const struct kvt_env *env, struct fs_file *file, struct lmdb_report *report_out)
{
    struct check check = {0};
    enum kvt_status status;

    *report_out = (struct lmdb_report){0};
    KVT_TRY(check_begin(&check, env, file));
    status = check_run(&check);
    check.report.page_count = META_COUNT + check.reader.claimed_count;
    *report_out = check.report;
    if (check.runs != NULL)
        env_put(env, check.runs, check.run_capacity * sizeof(*check.runs));
    lmdb_reader_close(&check.reader);
    return status;
}

/* --- 6. Listing ------------------------------------------------------------------------------- */

/* KVT_CANCELLED: it wants no more. */
static enum kvt_status
segment_show(void *visitor, const struct lmdb_node *node)
{
    const struct lmdb_lister *lister = visitor;
    struct index_segment segment;

    KVT_TRY(segment_read(node, &segment));
    return lister->visit_segment(lister->visitor, &segment) ? KVT_OK : KVT_CANCELLED;
}

static enum kvt_status
block_show(void *visitor, const struct lmdb_node *node)
{
    const struct lmdb_lister *lister = visitor;
    struct index_block block = {.bytes = node->data, .size = node->data_size};

    KVT_TRY(block_key_check(node));
    block.segment = get_u32_big(node->key);
    block.page = get_u32_big(node->key + 4);
    return lister->visit_block(lister->visitor, &block) ? KVT_OK : KVT_CANCELLED;
}

static enum kvt_status
list_run(struct check *check, const struct lmdb_lister *lister)
{
    const struct lmdb_walk segment_walk = {.visit = segment_show, .visitor = (void *)lister};
    const struct lmdb_walk block_walk = {.visit = block_show, .visitor = (void *)lister};

    KVT_TRY(names_check(check));
    if (!check->report.is_clean)
        return failure_set(KVT_NOT_READY, 0, "The index was not closed in order.");
    KVT_TRY(lmdb_tree_walk(&check->reader, &check->segment, &segment_walk));
    return lmdb_tree_walk(&check->reader, &check->block, &block_walk);
}

enum kvt_status
lmdb_list(const struct kvt_env *env, struct fs_file *file, const struct lmdb_lister *lister)
{
    struct check check = {0};
    enum kvt_status status;

    KVT_TRY(check_begin(&check, env, file));
    status = list_run(&check, lister);
    lmdb_reader_close(&check.reader);
    return status == KVT_CANCELLED ? KVT_OK : status;
}
