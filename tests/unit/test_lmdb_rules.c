/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lmdb_rules.c - each rule of the index's checker is broken alone, and must be the one that
 * is named. Random damage (test_lmdb_check.c) rarely gets past the checks of records.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bytes.h"
#include "failure.h"
#include "lmdb_files.h"
#include "segment_facts.h"
#include "stop_on_proof.h"

/* Offsets in pages: lmdb_page.h. */
enum {
    AT_NUMBER = 0,
    AT_FLAGS = 10,
    AT_LOWER = 12,
    AT_UPPER = 14,
    AT_POINTERS = 16,
    NODE_AT_FLAGS = 4,
    NODE_AT_KEY_SIZE = 6,
    NODE_AT_KEY = 8,
    META_AT_MAGIC = 16,
    META_AT_VERSION = 20,
    META_AT_FREE_LIST = 40,
    META_AT_MAIN = 88,
    META_AT_PAGE_LAST = 136,
    META_AT_TRANSACTION = 144,
    TREE_AT_FLAGS = 4,
    TREE_AT_DEPTH = 6,
    TREE_AT_ENTRIES = 32,
};

static struct lmdb_files made;

/* A copy of a good file, with ways into it. */
struct patient {
    uint8_t *bytes;
    const struct good_file *good;
    uint8_t *meta;    /* The newer one. */
    uint8_t *main;    /* Root pages. */
    uint8_t *block;   /* A branch. */
    uint8_t *segment; /* A leaf. */
    uint8_t *system;  /* A leaf. */
};

static uint8_t *
page_at(const struct patient *patient, uint64_t number)
{
    assert_true(number < patient->good->page_used_count);
    return patient->bytes + number * PAGE_BYTES;
}

static uint8_t *
node_at(uint8_t *page, uint32_t i)
{
    return page + get_u16(page + AT_POINTERS + (size_t)i * 2);
}

static uint32_t
node_count(const uint8_t *page)
{
    return (get_u16(page + AT_LOWER) - AT_POINTERS) / 2u;
}

static uint8_t *
node_data(uint8_t *node)
{
    return node + NODE_AT_KEY + get_u16(node + NODE_AT_KEY_SIZE);
}

static uint64_t
child_of(uint8_t *branch, uint32_t i)
{
    uint8_t *node = node_at(branch, i);

    return get_u32(node) | (uint64_t)get_u16(node + NODE_AT_FLAGS) << 32;
}

/* Nodes of the main tree: block, segment, system. */
static uint8_t *
root_of(const struct patient *patient, uint32_t i)
{
    struct lmdb_tree tree;

    assert_int_equal(lmdb_tree_parse(&tree, node_data(node_at(patient->main, i))), KVT_OK);
    return page_at(patient, tree.root);
}

static void
patient_take(struct patient *patient, enum lmdb_file_kind kind)
{
    const struct good_file *good = &made.files[kind];

    patient->good = good;
    patient->bytes = malloc(good->size);
    assert_non_null(patient->bytes);
    memcpy(patient->bytes, good->bytes, good->size);
    patient->meta = page_at(patient, good->meta.transaction % 2);
    patient->main = page_at(patient, good->meta.main.root);
    patient->block = root_of(patient, 0);
    patient->segment = root_of(patient, 1);
    patient->system = root_of(patient, 2);
}

/* The leaf of `block` below child `i` of its root. */
static uint8_t *
leaf_of(const struct patient *patient, uint32_t i)
{
    return page_at(patient, child_of(patient->block, i));
}

static uint8_t *
free_leaf(const struct patient *patient)
{
    assert_int_equal(patient->good->meta.free_list.depth, 1);
    return page_at(patient, patient->good->meta.free_list.root);
}

/* An entry of the free list with at least two pages, inline. */
static uint8_t *
free_words(const struct patient *patient)
{
    uint8_t *leaf = free_leaf(patient);

    for (uint32_t i = 0; i < node_count(leaf); i++) {
        uint8_t *node = node_at(leaf, i);

        if (get_u16(node + NODE_AT_FLAGS) == 0 && get_u64(node_data(node)) >= 2)
            return node_data(node);
    }
    fail_msg("no entry of the free list has two pages");
    return NULL;
}

/* An entry of the free list in an overflow run. */
static uint8_t *
free_node(const struct patient *patient)
{
    uint8_t *leaf = free_leaf(patient);

    for (uint32_t i = 0; i < node_count(leaf); i++) {
        uint8_t *node = node_at(leaf, i);

        if (get_u16(node + NODE_AT_FLAGS) == LMDB_NODE_BIG)
            return node;
    }
    fail_msg("no entry of the free list has an overflow run");
    return NULL;
}

static uint8_t *
free_run(const struct patient *patient)
{
    return page_at(patient, get_u64(node_data(free_node(patient))));
}

/* --- Damage, one rule each -------------------------------------------------------------------- */

static void
meta_type(struct patient *patient)
{
    put_u16(patient->meta + AT_FLAGS, LMDB_PAGE_LEAF);
}

static void
meta_magic(struct patient *patient)
{
    patient->meta[META_AT_MAGIC] ^= 1;
}

static void
meta_version(struct patient *patient)
{
    patient->meta[META_AT_VERSION] ^= 2;
}

static void
meta_page_size(struct patient *patient)
{
    put_u32(patient->bytes + META_AT_FREE_LIST, 4097);
}

static void
meta_page_sizes(struct patient *patient)
{
    put_u32(page_at(patient, 1) + META_AT_FREE_LIST, 2 * PAGE_BYTES);
}

static void
meta_tree_flags(struct patient *patient)
{
    patient->meta[META_AT_MAIN + TREE_AT_FLAGS] |= 4; /* MDB_DUPSORT. */
}

static void
meta_tree_depth(struct patient *patient)
{
    put_u16(patient->meta + META_AT_MAIN + TREE_AT_DEPTH, 0);
}

static void
meta_transaction(struct patient *patient)
{
    put_u64(patient->meta + META_AT_TRANSACTION, patient->good->meta.transaction + 2);
}

static void
meta_page_last(struct patient *patient)
{
    put_u64(patient->meta + META_AT_PAGE_LAST, patient->good->size / PAGE_BYTES);
}

static void
tree_beyond_the_last_page(struct patient *patient)
{
    put_u64(patient->meta + META_AT_PAGE_LAST, 3);
}

static void
page_number(struct patient *patient)
{
    put_u64(leaf_of(patient, 1) + AT_NUMBER, child_of(patient->block, 2));
}

static void
page_flags(struct patient *patient)
{
    put_u16(leaf_of(patient, 1) + AT_FLAGS, LMDB_PAGE_LEAF | 0x20);
}

static void
page_bounds(struct patient *patient)
{
    put_u16(leaf_of(patient, 1) + AT_LOWER, 4098);
}

static void
node_outside(struct patient *patient)
{
    put_u16(leaf_of(patient, 1) + AT_POINTERS, 4092);
}

static void
node_below_upper(struct patient *patient)
{
    put_u16(leaf_of(patient, 1) + AT_POINTERS, AT_POINTERS);
}

static void
node_long(struct patient *patient)
{
    put_u16(node_at(leaf_of(patient, 1), 0), 5000);
}

static void
nodes_overlapping(struct patient *patient)
{
    uint8_t *leaf = leaf_of(patient, 1);

    put_u16(leaf + AT_POINTERS + 2, get_u16(leaf + AT_POINTERS));
}

static void
nodes_with_a_gap(struct patient *patient)
{
    uint8_t *leaf = leaf_of(patient, 1);

    put_u16(leaf + AT_LOWER, (uint16_t)(get_u16(leaf + AT_LOWER) - 2));
}

static void
keys_swapped(struct patient *patient)
{
    uint8_t *leaf = leaf_of(patient, 1);
    uint16_t first = get_u16(leaf + AT_POINTERS);

    put_u16(leaf + AT_POINTERS, get_u16(leaf + AT_POINTERS + 2));
    put_u16(leaf + AT_POINTERS + 2, first);
}

static void
key_too_low(struct patient *patient)
{
    memset(node_at(leaf_of(patient, 1), 0) + NODE_AT_KEY, 0, 8);
}

static void
key_too_high(struct patient *patient)
{
    uint8_t *leaf = leaf_of(patient, 1);

    memset(node_at(leaf, node_count(leaf) - 1) + NODE_AT_KEY, 0xFF, 8);
}

/* The next page's bound is the first key that is too high. */
static void
key_at_the_bound(struct patient *patient)
{
    uint8_t *leaf = leaf_of(patient, 1);

    memcpy(node_at(leaf, node_count(leaf) - 1) + NODE_AT_KEY,
        node_at(patient->block, 2) + NODE_AT_KEY, 8);
}

static void
key_empty(struct patient *patient)
{
    /* The data take the key's bytes, so the node keeps its length. */
    uint8_t *node = node_at(leaf_of(patient, 1), 0);

    put_u16(node, (uint16_t)(get_u16(node) + get_u16(node + NODE_AT_KEY_SIZE)));
    put_u16(node + NODE_AT_KEY_SIZE, 0);
}

static void
branch_with_one_node(struct patient *patient)
{
    uint16_t upper = get_u16(patient->block + AT_UPPER);

    assert_true(PAGE_BYTES - upper < LMDB_KEY_BYTES_MAX);
    put_u16(patient->block + AT_LOWER, AT_POINTERS + 2);
    memmove(patient->block + upper, node_at(patient->block, 0), NODE_AT_KEY);
    put_u16(patient->block + AT_POINTERS, upper);
    put_u16(patient->block + upper + NODE_AT_KEY_SIZE, (uint16_t)(PAGE_BYTES - upper - 8));
}

static void
child_twice(struct patient *patient)
{
    memcpy(node_at(patient->block, 1), node_at(patient->block, 0), 6);
}

static void
child_outside(struct patient *patient)
{
    put_u16(node_at(patient->block, 1) + NODE_AT_FLAGS, 1);
}

static void
entries_miscounted(struct patient *patient)
{
    node_data(node_at(patient->main, 1))[TREE_AT_ENTRIES]++;
}

static void
database_unknown(struct patient *patient)
{
    node_at(patient->main, 2)[NODE_AT_KEY + 5] = 'n';
}

static void
database_flags(struct patient *patient)
{
    node_data(node_at(patient->main, 2))[TREE_AT_FLAGS] = 4;
}

static void
database_that_is_none(struct patient *patient)
{
    put_u16(node_at(patient->main, 0) + NODE_AT_FLAGS, 0);
}

static void
clean_flag_of_two(struct patient *patient)
{
    node_data(node_at(patient->system, 0))[0] = 2;
}

static void
schema_of_two(struct patient *patient)
{
    node_data(node_at(patient->system, 1))[0] = 2;
}

static void
block_with_flags(struct patient *patient)
{
    put_u16(node_at(leaf_of(patient, 1), 0) + NODE_AT_FLAGS, 4);
}

static void
record_of_another_place(struct patient *patient)
{
    /* The last key of a leaf that stays below the next leaf's first key when it grows by one: then
     * only the record's CRC can tell. */
    for (uint32_t i = 0; i + 1 < node_count(patient->block); i++) {
        uint8_t *leaf = leaf_of(patient, i);
        uint8_t *key = node_at(leaf, node_count(leaf) - 1) + NODE_AT_KEY;

        put_u32_big(key + 4, get_u32_big(key + 4) + 1);
        if (memcmp(key, node_at(patient->block, i + 1) + NODE_AT_KEY, 8) < 0)
            return;
        put_u32_big(key + 4, get_u32_big(key + 4) - 1);
    }
    fail_msg("no leaf ends with a gap behind it");
}

static void
segment_crc(struct patient *patient)
{
    node_data(node_at(patient->segment, 2))[16] ^= 1;
}

/* Rewrite the facts of one segment, with a right CRC. */
static void
facts_change(struct patient *patient, uint32_t i, uint32_t number, int count, uint32_t xor)
{
    uint8_t *node = node_at(patient->segment, i);
    struct index_segment facts;

    assert_int_equal(segment_facts_decode(&facts, get_u32_big(node + NODE_AT_KEY), node_data(node),
                         SEGMENT_FACTS_BYTES),
        KVT_OK);
    facts.number = number == 0 ? facts.number : number;
    facts.record_count = number == 0 ? (uint32_t)((int)facts.record_count + count) : 0;
    facts.crc_xor = number == 0 ? facts.crc_xor ^ xor : 0;
    put_u32_big(node + NODE_AT_KEY, facts.number);
    segment_facts_encode(&facts, node_data(node));
}

static void
segment_count_wrong(struct patient *patient)
{
    facts_change(patient, 1, 0, 1, 0);
}

static void
segment_xor_wrong(struct patient *patient)
{
    facts_change(patient, 1, 0, 0, 1);
}

static void
segment_without_facts(struct patient *patient)
{
    facts_change(patient, node_count(patient->segment) - 1, UINT32_MAX, 0, 0);
}

static void
free_page_in_use(struct patient *patient)
{
    uint8_t *words = free_words(patient);

    put_u64(words, 1);
    put_u64(words + 8, get_u64(patient->block + AT_NUMBER));
}

static void
free_page_outside(struct patient *patient)
{
    put_u64(free_words(patient) + 8, patient->good->page_used_count);
}

static void
free_page_that_is_meta(struct patient *patient)
{
    uint8_t *words = free_words(patient);

    put_u64(words, 1);
    put_u64(words + 8, 1);
}

static void
free_pages_rising(struct patient *patient)
{
    uint8_t *words = free_words(patient);
    uint64_t first = get_u64(words + 8);

    put_u64(words + 8, get_u64(words + 16));
    put_u64(words + 16, first);
}

static void
free_count_too_large(struct patient *patient)
{
    put_u64(free_words(patient), 600);
}

static void
free_in_the_future(struct patient *patient)
{
    uint8_t *leaf = free_leaf(patient);

    put_u64(node_at(leaf, node_count(leaf) - 1) + NODE_AT_KEY, patient->good->meta.transaction + 1);
}

static void
run_too_short(struct patient *patient)
{
    put_u16(free_node(patient), 60000); /* Bytes of data. */
}

/* A page number behind the run's first page. */
static void
run_word_in_use(struct patient *patient)
{
    uint8_t *words = free_run(patient) + AT_POINTERS;
    uint64_t count = get_u64(words);

    assert_true(count > PAGE_BYTES / 8);
    put_u64(words + count * 8, 2);
}

static void
run_too_long(struct patient *patient)
{
    put_u32(free_run(patient) + AT_LOWER, UINT32_MAX);
}

static void
run_that_is_none(struct patient *patient)
{
    put_u16(free_run(patient) + AT_FLAGS, LMDB_PAGE_LEAF);
}

static void
run_of_no_pages(struct patient *patient)
{
    put_u32(free_run(patient) + AT_LOWER, 0);
}

static const struct rule {
    const char *name;
    enum lmdb_file_kind kind;
    void (*damage)(struct patient *patient);
    const char *sentence; /* A part of it. */
} rules[] = {
    {"meta type", LMDB_FILE_SMALL, meta_type, "no meta page"},
    {"meta magic", LMDB_FILE_SMALL, meta_magic, "magic number"},
    {"meta version", LMDB_FILE_SMALL, meta_version, "version is not 1"},
    {"meta page size", LMDB_FILE_SMALL, meta_page_size, "page size"},
    {"meta page sizes", LMDB_FILE_SMALL, meta_page_sizes, "differ in the page size"},
    {"meta tree flags", LMDB_FILE_SMALL, meta_tree_flags, "trees have unknown flags"},
    {"meta tree depth", LMDB_FILE_SMALL, meta_tree_depth, "has depth 0"},
    {"meta transaction", LMDB_FILE_SMALL, meta_transaction, "are of transactions"},
    {"meta last page", LMDB_FILE_SMALL, meta_page_last, "says that page"},
    {"beyond last page", LMDB_FILE_SMALL, tree_beyond_the_last_page, "refers to page"},
    {"page number", LMDB_FILE_SMALL, page_number, "another page's number"},
    {"page flags", LMDB_FILE_SMALL, page_flags, "it is no leaf"},
    {"page bounds", LMDB_FILE_SMALL, page_bounds, "its bounds cannot be"},
    {"node outside", LMDB_FILE_SMALL, node_outside, "a node lies outside"},
    {"node below", LMDB_FILE_SMALL, node_below_upper, "a node lies outside"},
    {"node long", LMDB_FILE_SMALL, node_long, "a node ends outside"},
    {"nodes overlapping", LMDB_FILE_SMALL, nodes_overlapping, "two nodes overlap"},
    {"nodes with a gap", LMDB_FILE_SMALL, nodes_with_a_gap, "a gap between"},
    {"keys swapped", LMDB_FILE_SMALL, keys_swapped, "keys do not rise"},
    {"key too low", LMDB_FILE_SMALL, key_too_low, "below the bound"},
    {"key too high", LMDB_FILE_SMALL, key_too_high, "above the bound"},
    {"key at the bound", LMDB_FILE_SMALL, key_at_the_bound, "above the bound"},
    {"key empty", LMDB_FILE_SMALL, key_empty, "a key has a size"},
    {"branch with one", LMDB_FILE_SMALL, branch_with_one_node, "one page only"},
    {"child twice", LMDB_FILE_SMALL, child_twice, "is used twice"},
    {"child outside", LMDB_FILE_SMALL, child_outside, "refers to page"},
    {"entries", LMDB_FILE_SMALL, entries_miscounted, "are counted"},
    {"database unknown", LMDB_FILE_SMALL, database_unknown, "unknown name"},
    {"database flags", LMDB_FILE_SMALL, database_flags, "database of the index has unknown flags"},
    {"database none", LMDB_FILE_SMALL, database_that_is_none, "that is no tree"},
    {"clean flag", LMDB_FILE_SMALL, clean_flag_of_two, "`system` has a wrong entry"},
    {"schema", LMDB_FILE_SMALL, schema_of_two, "`system` has a wrong entry"},
    {"block flags", LMDB_FILE_SMALL, block_with_flags, "`block` has a key of 8 bytes, flags 4"},
    {"record's place", LMDB_FILE_SMALL, record_of_another_place, "its CRC differs"},
    {"segment CRC", LMDB_FILE_SMALL, segment_crc, "its CRC differs"},
    {"segment count", LMDB_FILE_SMALL, segment_count_wrong, "but its facts say"},
    {"segment XOR", LMDB_FILE_SMALL, segment_xor_wrong, "but its facts say"},
    {"segment facts", LMDB_FILE_SMALL, segment_without_facts, "but no facts"},
    {"free in use", LMDB_FILE_WORN, free_page_in_use, "is used twice"},
    {"free outside", LMDB_FILE_WORN, free_page_outside, "refers to page"},
    {"free meta", LMDB_FILE_WORN, free_page_that_is_meta, "refers to page 1 "},
    {"free rising", LMDB_FILE_WORN, free_pages_rising, "out of order"},
    {"free count", LMDB_FILE_WORN, free_count_too_large, "names 600 pages"},
    {"free future", LMDB_FILE_WORN, free_in_the_future, "but its free list of"},
    {"run short", LMDB_FILE_LONG, run_too_short, "pages for 60000 bytes"},
    {"run word", LMDB_FILE_LONG, run_word_in_use, "is used twice"},
    {"run long", LMDB_FILE_LONG, run_too_long, "has 4294967295 pages for"},
    {"run none", LMDB_FILE_LONG, run_that_is_none, "begins no overflow run"},
    {"run of none", LMDB_FILE_LONG, run_of_no_pages, "begins no overflow run"},
};

static void
every_broken_rule_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        struct patient patient;
        struct lmdb_report report;
        enum kvt_status status;

        patient_take(&patient, rules[i].kind);
        status = lmdb_files_check(patient.bytes, patient.good->size, &report);
        assert_int_equal(status, KVT_OK);
        rules[i].damage(&patient);
        status = lmdb_files_check(patient.bytes, patient.good->size, &report);
        if (status != KVT_E_CORRUPT || strstr(failure_last()->text, rules[i].sentence) == NULL) {
            fail_msg("%s: status %d, \"%s\" does not say \"%s\"", rules[i].name, (int)status,
                failure_last()->text, rules[i].sentence);
        }
        free(patient.bytes);
    }
}

/* A transaction that a crash has cut short may have written there. */
static void
pages_of_the_older_state_need_not_be_there(void **state)
{
    struct patient patient;
    struct lmdb_report report;
    struct lmdb_meta older;
    uint8_t *meta, *page;

    (void)state;
    patient_take(&patient, LMDB_FILE_SMALL);
    meta = page_at(&patient, (patient.good->meta.transaction + 1) % 2);
    assert_int_equal(lmdb_meta_parse(&older, meta, get_u64(meta + AT_NUMBER)), KVT_OK);
    assert_int_equal(older.transaction + 1, patient.good->meta.transaction);
    assert_int_equal(older.free_list.depth, 1);
    page = page_at(&patient, older.free_list.root);
    put_u64(node_at(page, node_count(page) - 1) + NODE_AT_KEY, older.transaction + 3);
    assert_int_equal(lmdb_files_check(patient.bytes, patient.good->size, &report), KVT_OK);
    /* Of the number in question, but not all that was counted: a part of a longer list. */
    put_u64(node_at(page, node_count(page) - 1) + NODE_AT_KEY, older.transaction + 2);
    assert_int_equal(lmdb_files_check(patient.bytes, patient.good->size, &report), KVT_E_CORRUPT);
    put_u64(meta + META_AT_FREE_LIST + TREE_AT_ENTRIES, older.free_list.entries + 1);
    assert_int_equal(lmdb_files_check(patient.bytes, patient.good->size, &report), KVT_OK);
    memset(page, 0, PAGE_BYTES);
    assert_int_equal(lmdb_files_check(patient.bytes, patient.good->size, &report), KVT_OK);
    free(patient.bytes);
}

/* Of a store that was not closed, of which the next open is to look for what a crash left. */
static void
no_flipped_bit_makes_an_index_clean(void **state)
{
    struct patient patient;
    struct lmdb_report report;
    uint8_t *flag;

    (void)state;
    patient_take(&patient, LMDB_FILE_SMALL);
    flag = node_data(node_at(patient.system, 0));
    for (uint32_t bit = 0; bit < 8; bit++) {
        *flag ^= (uint8_t)(1u << bit);
        assert_int_equal(
            lmdb_files_check(patient.bytes, patient.good->size, &report), KVT_E_CORRUPT);
        *flag ^= (uint8_t)(1u << bit);
    }
    *flag = LMDB_UNCLEAN_OLD;
    assert_int_equal(lmdb_files_check(patient.bytes, patient.good->size, &report), KVT_OK);
    assert_false(report.is_clean);
    free(patient.bytes);
}

static int
files_make(void **state)
{
    (void)state;
    lmdb_files_make(&made);
    return 0;
}

static int
files_remove(void **state)
{
    (void)state;
    lmdb_files_remove(&made);
    return 0;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_broken_rule_is_named),
        cmocka_unit_test(pages_of_the_older_state_need_not_be_there),
        cmocka_unit_test(no_flipped_bit_makes_an_index_clean),
    };

    stop_on_proof();
    return cmocka_run_group_tests(tests, files_make, files_remove);
}
