/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_lmdb_check.c - files that LMDB made pass; damaged ones end in a verdict, never in a crash,
 * and whatever passes can be opened, read and written with LMDB and holds what was committed.
 *
 * --seeds N: so many damaged files.
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
#include "file_damage.h"
#include "lmdb_files.h"
#include "seeds.h"
#include "stop_on_proof.h"

enum {
    SEEDS = 6000,
    LONG_EVERY = 8,   /* The long file is damaged less often, being slow. */
    WRITE_EVERY = 25, /* One in so many files that pass is written to as well. */
};

static struct lmdb_files made;
static struct index_model model;
static struct model_batch batch;

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

enum {
    CHURN_MAP_BYTES = 64 << 20,
    CHURN_SEGMENTS = 60,
    CHURN_PAGES = 1000,
    CHURN_ROUNDS = 60,
    CHURN_DELETIONS = 200, /* In a round. */
    CHECK_READS = 3,       /* Of a file as long as all pages, at most. */
};

enum {
    META_AT_TRANSACTION = 144, /* lmdb_page.h */
};

/* A large index: whole segments of blocks, in order; then deletions anywhere. */
static struct {
    struct index *index;
    struct index_block added[CHURN_PAGES];
    uint8_t bytes[CHURN_PAGES][BLOCK_RECORD_BYTES_MAX];
    struct index_segment facts[CHURN_SEGMENTS];
    bool is_there[CHURN_SEGMENTS][CHURN_PAGES];
} churn;

static void
churn_fill(uint32_t number)
{
    struct index_segment *facts = &churn.facts[number];
    const struct index_batch batch_of_all = {
        .added = churn.added, .added_count = CHURN_PAGES, .segments = facts, .segment_count = 1};

    *facts = (struct index_segment){
        .number = number, .generation = 1, .state = 2, .record_count = CHURN_PAGES};
    for (uint32_t page = 0; page < CHURN_PAGES; page++) {
        uint8_t *bytes = churn.bytes[page];

        churn.is_there[number][page] = true;
        churn.added[page] = (struct index_block){.segment = number,
            .page = page,
            .bytes = bytes,
            .size = model_record(number, page, 1, bytes)};
        facts->crc_xor ^= block_record_crc(bytes);
    }
    assert_int_equal(churn.index->ops->commit_deferred(churn.index, &batch_of_all), KVT_OK);
}

static void
churn_delete(struct rng *rng)
{
    struct index_block deleted[CHURN_DELETIONS];
    struct index_batch few = {
        .deleted = deleted, .segments = churn.facts, .segment_count = CHURN_SEGMENTS};

    while (few.deleted_count < CHURN_DELETIONS) {
        uint32_t number = rng_below(rng, CHURN_SEGMENTS);
        uint32_t page = rng_below(rng, CHURN_PAGES);
        uint8_t bytes[BLOCK_RECORD_BYTES_MAX];

        if (!churn.is_there[number][page])
            continue;
        churn.is_there[number][page] = false;
        (void)model_record(number, page, 1, bytes);
        churn.facts[number].record_count--;
        churn.facts[number].crc_xor ^= block_record_crc(bytes);
        deleted[few.deleted_count++] = (struct index_block){.segment = number, .page = page};
    }
    assert_int_equal(churn.index->ops->commit_deferred(churn.index, &few), KVT_OK);
}

static uint64_t bytes_read;

static enum kvt_status
read_counted(struct fs_file *file, void *target, size_t size, uint64_t offset, size_t *read_out)
{
    enum kvt_status status = made.env.fs->read_at(file, target, size, offset, read_out);

    bytes_read += status == KVT_OK ? *read_out : 0;
    return status;
}

static void
churn_check(void)
{
    struct kvt_env counting = made.env;
    struct fs_ops ops = *made.env.fs;
    struct lmdb_report report;
    struct fs_file *file;

    ops.read_at = read_counted;
    counting.fs = &ops;
    bytes_read = 0;
    assert_int_equal(ops.open(made.dir, "data.mdb", FS_READ_ONLY, &file), KVT_OK);
    assert_int_equal(lmdb_check(&counting, file, &report), KVT_OK);
    ops.close(file);
    assert_in_range(report.page_count, 1800, UINT64_MAX);
    assert_in_range(bytes_read, 0, report.page_count * PAGE_BYTES * CHECK_READS);
}

/* The leaves of one that has lived lie anywhere. */
static void
an_index_is_read_as_often_however_it_has_lived(void **state)
{
    struct rng rng = {.state = 7};

    (void)state;
    assert_int_equal(
        index_lmdb_ops.create(NULL, &made.env, made.dir, CHURN_MAP_BYTES, &churn.index), KVT_OK);
    assert_int_equal(index_lmdb_ops.install(churn.index), KVT_OK);
    for (uint32_t number = 0; number < CHURN_SEGMENTS; number++)
        churn_fill(number);
    assert_int_equal(churn.index->ops->mark(churn.index, false), KVT_OK);
    churn_check();
    for (uint32_t round = 0; round < CHURN_ROUNDS; round++)
        churn_delete(&rng);
    assert_int_equal(churn.index->ops->sync(churn.index), KVT_OK);
    churn_check();
    index_lmdb_ops.close(churn.index);
}

static enum kvt_status
check_bytes(const uint8_t *bytes, size_t size, struct lmdb_report *report_out)
{
    return lmdb_files_check(bytes, size, report_out);
}

static void
files_that_lmdb_made_pass(void **state)
{
    (void)state;
    for (size_t i = 0; i < LMDB_FILE_KIND_COUNT; i++) {
        struct lmdb_report report;

        assert_int_equal(check_bytes(made.files[i].bytes, made.files[i].size, &report), KVT_OK);
        assert_int_equal(report.is_clean, i == LMDB_FILE_EMPTY);
        assert_int_equal(report.damaged_count, 0);
        assert_true(report.page_count <= made.files[i].page_used_count);
        /* Hardly a page is lost to LMDB: all that it used is in a tree or free. */
        assert_true(report.page_count + 4 >= made.files[i].page_used_count);
    }
    /* The long one is what it is meant to be. */
    assert_true(made.files[LMDB_FILE_LONG].meta.free_list.overflow_pages > 1);
}

static void
a_check_without_memory_says_so(void **state)
{
    const struct good_file *good = &made.files[LMDB_FILE_WORN];
    struct lmdb_report report;
    uint64_t n = 1;

    (void)state;
    while (lmdb_files_check_short(good->bytes, good->size, n, &report) == KVT_E_NOMEM)
        n++;
    assert_true(n > 2);
    assert_int_equal(lmdb_files_check_short(good->bytes, good->size, n, &report), KVT_OK);
}

static void
file_put(const struct damaged_file *file)
{
    scratch_write(&made.scratch, "data.mdb", file->bytes, file->size);
}

/* LMDB opens what passed, and finds what was committed last. */
static void
passed_file_use(const struct damaged_file *file, const struct good_file *good, struct rng *rng)
{
    struct index *index;

    file_put(file);
    assert_int_equal(index_lmdb_ops.open(NULL, &made.env, made.dir, false, &index), KVT_OK);
    assert_int_equal(index_content(index), good->content);
    if (rng_below(rng, WRITE_EVERY) == 0) {
        memset(&model, 0, sizeof(model));
        for (uint32_t i = 0; i < 4; i++) {
            enum kvt_status status;

            model_batch_random(&model, &batch, rng, 100, 100);
            status = index->ops->commit(index, &batch.batch);
            assert_true(status == KVT_OK || status == KVT_E_NOSPC);
        }
        (void)index_content(index);
    }
    index_lmdb_ops.close(index);
}

static const struct good_file *
good_file_pick(struct rng *rng)
{
    uint32_t i = rng_below(rng, LMDB_FILE_KIND_COUNT);

    if (i == LMDB_FILE_LONG && rng_below(rng, LONG_EVERY) != 0)
        i = 0;
    return &made.files[i];
}

static void
damaged_file_run(uint64_t seed, uint32_t verdicts[DAMAGE_KIND_COUNT][2])
{
    struct rng rng = {.state = seed};
    const struct good_file *good = good_file_pick(&rng);
    struct damaged_file file = {
        .size = good->size,
        .page_used_count = good->page_used_count,
        .page_bytes = PAGE_BYTES,
    };
    struct lmdb_report report;
    enum file_damage kind;
    enum kvt_status status;

    file.bytes = malloc(good->size);
    assert_non_null(file.bytes);
    memcpy(file.bytes, good->bytes, good->size);
    kind = file_damage_apply(&file, &rng);
    status = check_bytes(file.bytes, file.size, &report);
    assert_true(status == KVT_OK || status == KVT_E_CORRUPT);
    if (status == KVT_E_CORRUPT) {
        assert_int_equal(failure_last()->status, KVT_E_CORRUPT);
        assert_true(strlen(failure_last()->text) > 20);
    }
    if (file.size < good->page_used_count * PAGE_BYTES)
        assert_int_equal(status, KVT_E_CORRUPT);
    if (status == KVT_OK)
        passed_file_use(&file, good, &rng);
    verdicts[kind][status == KVT_OK]++;
    free(file.bytes);
}

static void
damaged_files_get_a_verdict_and_what_passes_is_whole(void **state)
{
    const struct seeds *seeds = *state;
    uint32_t verdicts[DAMAGE_KIND_COUNT][2] = {{0}};

    for (uint64_t seed = seeds->first; seed < seeds->first + seeds->count; seed++)
        damaged_file_run(seed, verdicts);
    for (size_t i = 0; i < DAMAGE_KIND_COUNT; i++) {
        print_message("  %-10s %u refused, %u passed\n", file_damage_name((enum file_damage)i),
            (unsigned)verdicts[i][0], (unsigned)verdicts[i][1]);
        /* Neither verdict for everything: a run of one seed cannot say. */
        if (seeds->count >= SEEDS) {
            assert_int_not_equal(verdicts[i][0], 0);
            assert_int_not_equal(verdicts[i][1], 0);
        }
    }
}

static void
every_page_that_is_in_a_tree_is_needed(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const struct good_file *good = &made.files[i];
        uint8_t *bytes = malloc(good->size);
        struct lmdb_report report;
        uint32_t refused = 0;

        assert_non_null(bytes);
        memcpy(bytes, good->bytes, good->size);
        for (uint64_t page = 0; page < good->page_used_count; page++) {
            uint8_t *at = bytes + page * PAGE_BYTES;

            memset(at, 0, PAGE_BYTES);
            refused += check_bytes(bytes, good->size, &report) == KVT_E_CORRUPT;
            memcpy(at, good->bytes + page * PAGE_BYTES, PAGE_BYTES);
        }
        /* The rest is free. */
        assert_true(refused >= 2 + 5); /* Two meta pages, five trees. */
        assert_true(refused < good->page_used_count);
        assert_int_equal(check_bytes(bytes, good->size, &report), KVT_OK);
        free(bytes);
    }
}

/* A number that is believed wrongly would make the state before the last commit the newer one. */
static void
a_flipped_bit_in_a_meta_page_is_found_or_changes_nothing(void **state)
{
    static const enum lmdb_file_kind kinds[] = {LMDB_FILE_SMALL, LMDB_FILE_EMPTY};

    (void)state;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        const struct good_file *good = &made.files[kinds[i]];
        struct damaged_file file = {.bytes = good->bytes, .size = good->size};
        struct rng rng = {.state = i};
        struct lmdb_report report;
        uint32_t refused_count = 0;

        for (size_t bit = 0; bit < (size_t)2 * LMDB_META_BYTES * 8; bit++) {
            size_t page = bit / 8 / LMDB_META_BYTES;
            uint8_t *at = good->bytes + page * PAGE_BYTES + bit / 8 % LMDB_META_BYTES;
            bool is_number = bit / 8 % LMDB_META_BYTES >= META_AT_TRANSACTION;
            enum kvt_status status;

            *at ^= (uint8_t)(1u << bit % 8);
            status = check_bytes(good->bytes, good->size, &report);
            if (status == KVT_OK)
                passed_file_use(&file, good, &rng);
            *at ^= (uint8_t)(1u << bit % 8);
            assert_true(status == KVT_E_CORRUPT || (status == KVT_OK && !is_number));
            refused_count += status == KVT_E_CORRUPT;
        }
        assert_true(refused_count > 2 * 64 && refused_count < 2 * LMDB_META_BYTES * 8);
    }
}

/* Where a record of the newest snapshot lies: found by its bytes, which occur once in this file. */
static size_t
record_find(const struct good_file *good)
{
    size_t found = 0;
    uint32_t count = 0;

    for (uint32_t page = 0; page < 2000 && count != 1; page++) {
        uint8_t record[BLOCK_RECORD_BYTES_MAX];
        uint32_t size = model_record(LMDB_FILES_LONG_SEGMENT, page, 1, record);

        count = 0;
        for (size_t at = 2 * PAGE_BYTES; at + size <= good->size; at += 2) {
            if (memcmp(good->bytes + at, record, size) == 0) {
                found = at;
                count++;
            }
        }
    }
    assert_int_equal(count, 1);
    return found;
}

static void
a_flipped_bit_in_a_record_is_found_and_counted(void **state)
{
    const struct good_file *good = &made.files[LMDB_FILE_LONG];
    size_t at = record_find(good);
    struct lmdb_report report;

    (void)state;
    good->bytes[at + 12] ^= 4; /* Of the namespace's epoch. */
    assert_int_equal(check_bytes(good->bytes, good->size, &report), KVT_E_CORRUPT);
    assert_int_equal(report.damaged_count, 1);
    assert_int_equal(report.block_count, LMDB_FILES_LONG_LEFT);
    good->bytes[at + 12] ^= 4;
    assert_int_equal(check_bytes(good->bytes, good->size, &report), KVT_OK);
}

/* --- Lists ------------------------------------------------------------------------------------ */

struct listed {
    uint32_t segment_count, block_count;
    uint32_t count_max; /* Of blocks. */
    bool is_segment_behind;
    uint64_t last;
    bool is_in_order;
};

static bool
segment_list(void *visitor, const struct index_segment *segment)
{
    struct listed *listed = visitor;

    (void)segment;
    listed->is_segment_behind = listed->is_segment_behind || listed->block_count > 0;
    listed->segment_count++;
    return true;
}

static bool
block_list(void *visitor, const struct index_block *block)
{
    struct listed *listed = visitor;
    uint64_t place = (uint64_t)block->segment << 32 | block->page;
    uint8_t record[BLOCK_RECORD_BYTES_MAX];

    listed->is_in_order = listed->is_in_order &&
                          (listed->block_count == 0 || place > listed->last) &&
                          block->size == model_record(block->segment, block->page, 1, record) &&
                          memcmp(block->bytes, record, block->size) == 0;
    listed->last = place;
    return ++listed->block_count < listed->count_max;
}

static enum kvt_status
list_file(uint32_t count_max, struct listed *listed_out)
{
    const struct lmdb_lister lister = {
        .visit_segment = segment_list, .visit_block = block_list, .visitor = listed_out};
    struct fs_file *file;
    enum kvt_status status;

    *listed_out = (struct listed){.count_max = count_max, .is_in_order = true};
    assert_int_equal(made.env.fs->open(made.dir, "data.mdb", FS_READ_ONLY, &file), KVT_OK);
    status = lmdb_list(&made.env, file, &lister);
    made.env.fs->close(file);
    return status;
}

/* The long file, closed in order. */
static void
long_file_close(void)
{
    const struct good_file *good = &made.files[LMDB_FILE_LONG];
    struct index *index;

    scratch_write(&made.scratch, "data.mdb", good->bytes, good->size);
    assert_int_equal(index_lmdb_ops.open(NULL, &made.env, made.dir, false, &index), KVT_OK);
    assert_int_equal(index->ops->mark(index, true), KVT_OK);
    index_lmdb_ops.close(index);
}

static void
a_list_is_what_was_committed_as_far_as_it_is_wanted(void **state)
{
    const struct good_file *good = &made.files[LMDB_FILE_LONG];
    struct listed listed;

    (void)state;
    scratch_write(&made.scratch, "data.mdb", good->bytes, good->size);
    assert_int_equal(list_file(UINT32_MAX, &listed), KVT_NOT_READY);
    assert_int_equal(listed.segment_count + listed.block_count, 0);
    long_file_close();
    assert_int_equal(list_file(UINT32_MAX, &listed), KVT_OK);
    assert_int_equal(listed.block_count, LMDB_FILES_LONG_LEFT);
    assert_true(listed.is_in_order && !listed.is_segment_behind && listed.segment_count >= 1);
    assert_int_equal(list_file(7, &listed), KVT_OK);
    assert_int_equal(listed.block_count, 7);
}

/* Whatever page is gone: a list that ends well shows everything, any other only what was there. */
static void
a_list_of_a_damaged_file_shows_nothing_else(void **state)
{
    static const uint8_t nothing[PAGE_BYTES];
    uint8_t *bytes = malloc(LMDB_FILES_BYTES_MAX);
    uint32_t refused_count = 0, begun_count = 0;
    size_t size;

    (void)state;
    assert_non_null(bytes);
    long_file_close();
    size = scratch_read(&made.scratch, "data.mdb", bytes, LMDB_FILES_BYTES_MAX);
    for (size_t page = 0; page < made.files[LMDB_FILE_LONG].page_used_count; page++) {
        uint8_t kept[PAGE_BYTES];
        struct listed listed;
        enum kvt_status status;

        memcpy(kept, bytes + page * PAGE_BYTES, PAGE_BYTES);
        memcpy(bytes + page * PAGE_BYTES, nothing, PAGE_BYTES);
        scratch_write(&made.scratch, "data.mdb", bytes, size);
        memcpy(bytes + page * PAGE_BYTES, kept, PAGE_BYTES);
        status = list_file(UINT32_MAX, &listed);
        assert_true(status == KVT_OK || status == KVT_E_CORRUPT);
        assert_true(listed.is_in_order);
        assert_int_equal(listed.block_count == LMDB_FILES_LONG_LEFT, status == KVT_OK);
        refused_count += status == KVT_E_CORRUPT;
        begun_count += status == KVT_E_CORRUPT && listed.block_count > 0;
    }
    assert_true(refused_count > begun_count && begun_count > 0);
    free(bytes);
}

int
main(int argc, char **argv)
{
    struct seeds seeds = {.first = 1, .count = SEEDS};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_that_lmdb_made_pass),
        cmocka_unit_test(a_check_without_memory_says_so),
        cmocka_unit_test(every_page_that_is_in_a_tree_is_needed),
        cmocka_unit_test(a_flipped_bit_in_a_meta_page_is_found_or_changes_nothing),
        cmocka_unit_test(a_flipped_bit_in_a_record_is_found_and_counted),
        cmocka_unit_test(a_list_is_what_was_committed_as_far_as_it_is_wanted),
        cmocka_unit_test(a_list_of_a_damaged_file_shows_nothing_else),
        cmocka_unit_test(an_index_is_read_as_often_however_it_has_lived),
        cmocka_unit_test_prestate(damaged_files_get_a_verdict_and_what_passes_is_whole, &seeds),
    };

    if (!seeds_parse(&seeds, argc, argv))
        return 2;
    stop_on_proof();
    return cmocka_run_group_tests(tests, files_make, files_remove);
}
