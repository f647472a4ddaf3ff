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
#include "hash.h"
#include "index_model.h"
#include "lmdb_check.h"
#include "lmdb_page.h"
#include "scratch_dir.h"
#include "seeds.h"
#include "stop_on_proof.h"

enum {
    SEEDS = 6000,
    MAP_BYTES_MAX = 4 << 20,
    FILE_COUNT = 4,
    FILE_LONG = 2, /* The index of the long one; it is damaged less often, being slow. */
    FILE_LONG_EVERY = 8,
    LONG_RECORDS = 12000,
    LONG_BATCH = 240,
    LONG_DELETED = 6500,
    WRITE_EVERY = 25, /* One in so many files that pass is written to as well. */
};

/* A whole file, and what it holds after its last and its last but one transaction. */
struct good_file {
    uint8_t *bytes;
    size_t size;
    uint64_t page_used_count;
    uint32_t content[2];
};

/* A file in memory behind the file vtable. */
struct memory_file {
    struct fs_file file; /* First. */
    const uint8_t *bytes;
    size_t size;
};

static struct kvt_env env;
static struct scratch_dir scratch;
static struct fs_dir *dir;
static struct good_file good_files[FILE_COUNT];
static struct index_model model;
static struct model_batch batch;

/* --- 1. Files --------------------------------------------------------------------------------- */

static enum kvt_status
memory_read_at(struct fs_file *file, void *target, size_t size, uint64_t offset, size_t *read_out)
{
    const struct memory_file *memory = (const struct memory_file *)(void *)file;
    size_t count = 0;

    if (offset < memory->size) {
        count = memory->size - (size_t)offset;
        if (count > size)
            count = size;
        memcpy(target, memory->bytes + offset, count);
    }
    *read_out = count;
    return KVT_OK;
}

static enum kvt_status
memory_size(struct fs_file *file, uint64_t *size_out)
{
    *size_out = ((const struct memory_file *)(void *)file)->size;
    return KVT_OK;
}

static enum kvt_status
check_bytes(const uint8_t *bytes, size_t size, bool thorough, struct lmdb_report *report_out)
{
    static const struct fs_ops memory_fs = {.read_at = memory_read_at, .size = memory_size};
    struct memory_file file = {.file.descriptor = -1, .bytes = bytes, .size = size};
    struct kvt_env memory_env = env;

    memory_env.fs = &memory_fs;
    failure_clear();
    return lmdb_check(&memory_env, &file.file, thorough, report_out);
}

static bool
block_sum(void *visitor, const struct index_block *block)
{
    uint32_t *sum = visitor;

    *sum = crc32c(*sum, &block->segment, sizeof(block->segment));
    *sum = crc32c(*sum, &block->page, sizeof(block->page));
    *sum = crc32c(*sum, block->bytes, block->size);
    return true;
}

static bool
segment_sum(void *visitor, const struct index_segment *segment)
{
    uint32_t *sum = visitor;

    *sum = crc32c(*sum, segment, sizeof(*segment));
    return true;
}

static uint32_t
content_of(struct index *index)
{
    uint32_t sum = 0;

    assert_int_equal(index->ops->each_block(index, block_sum, &sum), KVT_OK);
    assert_int_equal(index->ops->each_segment(index, segment_sum, &sum), KVT_OK);
    return sum;
}

static struct index *
index_make(uint64_t map_bytes)
{
    struct index *index;

    memset(&model, 0, sizeof(model));
    assert_int_equal(index_lmdb_ops.create(NULL, &env, dir, map_bytes, &index), KVT_OK);
    assert_int_equal(index_lmdb_ops.install(index), KVT_OK);
    return index;
}

/* Keep the file's bytes; the index is closed. */
static void
good_file_take(struct good_file *good, struct index *index)
{
    struct lmdb_meta metas[2];

    index_lmdb_ops.close(index);
    good->bytes = malloc(MAP_BYTES_MAX);
    assert_non_null(good->bytes);
    good->size = scratch_read(&scratch, "data.mdb", good->bytes, MAP_BYTES_MAX);
    for (uint64_t i = 0; i < 2; i++)
        assert_int_equal(lmdb_meta_parse(&metas[i], good->bytes + i * PAGE_BYTES, i), KVT_OK);
    good->page_used_count = metas[metas[0].transaction < metas[1].transaction].page_last + 1;
}

static void
random_commit(struct index *index, struct rng *rng, uint32_t added, uint32_t deleted)
{
    model_batch_random(&model, &batch, rng, added, deleted);
    assert_int_equal(index->ops->commit(index, &batch.batch), KVT_OK);
}

/* Many batches, so that pages are split, merged, freed and used again. */
static void
random_file_make(struct good_file *good, uint64_t map_bytes, uint32_t batches)
{
    struct rng rng = {.state = 1};
    struct index *index = index_make(map_bytes);

    for (uint32_t i = 0; i < batches; i++)
        random_commit(index, &rng, rng_below(&rng, 200), rng_below(&rng, 200));
    good->content[1] = content_of(index);
    random_commit(index, &rng, 20, 20);
    good->content[0] = content_of(index);
    good_file_take(good, index);
}

static void
empty_file_make(struct good_file *good)
{
    struct index *index = index_make(MAP_BYTES_MAX / 8);

    good->content[1] = content_of(index);
    assert_int_equal(index->ops->mark(index, true), KVT_OK);
    good->content[0] = content_of(index);
    good_file_take(good, index);
}

static struct index_segment
long_segment(uint32_t first, uint32_t end)
{
    struct index_segment segment = {.number = 9, .generation = 1, .state = 2};
    uint8_t bytes[BLOCK_RECORD_BYTES_MAX];

    for (uint32_t page = first; page < end; page++) {
        (void)model_record(segment.number, page, 1, bytes);
        segment.record_count++;
        segment.crc_xor ^= block_record_crc(bytes);
    }
    return segment;
}

/* A deep tree and a free list in overflow pages: a long segment, half of it deleted at once. */
static void
long_file_make(struct good_file *good)
{
    struct index *index = index_make(MAP_BYTES_MAX);
    struct index_segment segment;
    uint32_t deleted;

    for (uint32_t page = 0; page < LONG_RECORDS; page += LONG_BATCH) {
        segment = long_segment(0, page + LONG_BATCH);
        for (uint32_t i = 0; i < LONG_BATCH; i++) {
            batch.added[i] = (struct index_block){.segment = 9, .page = page + i};
            batch.added[i].bytes = batch.bytes[i];
            batch.added[i].size = model_record(9, page + i, 1, batch.bytes[i]);
        }
        batch.batch = (struct index_batch){.added = batch.added, .added_count = LONG_BATCH};
        batch.batch.segments = &segment;
        batch.batch.segment_count = 1;
        assert_int_equal(index->ops->commit(index, &batch.batch), KVT_OK);
    }
    good->content[1] = content_of(index);
    segment = long_segment(0, LONG_RECORDS - LONG_DELETED);
    assert_int_equal(index->ops->delete_range(
                         index, &segment, LONG_RECORDS - LONG_DELETED, LONG_RECORDS, &deleted),
        KVT_OK);
    assert_int_equal(deleted, LONG_DELETED);
    good->content[0] = content_of(index);
    good_file_take(good, index);
}

static int
files_make(void **state)
{
    (void)state;
    env_host(&env);
    scratch_dir_make(&scratch);
    assert_int_equal(env.fs->dir_open(env.fs_context, scratch.path, 0, &dir), KVT_OK);
    random_file_make(&good_files[0], MAP_BYTES_MAX / 4, 3);
    random_file_make(&good_files[1], MAP_BYTES_MAX / 2, 200);
    long_file_make(&good_files[FILE_LONG]);
    empty_file_make(&good_files[3]);
    return 0;
}

static int
files_remove(void **state)
{
    (void)state;
    for (size_t i = 0; i < FILE_COUNT; i++)
        free(good_files[i].bytes);
    env.fs->dir_close(dir);
    scratch_dir_remove(&scratch);
    return 0;
}

/* --- 2. Tests --------------------------------------------------------------------------------- */

static void
files_that_lmdb_made_pass(void **state)
{
    struct lmdb_meta meta;

    (void)state;
    for (size_t i = 0; i < FILE_COUNT; i++) {
        struct lmdb_report report;

        assert_int_equal(
            check_bytes(good_files[i].bytes, good_files[i].size, false, &report), KVT_OK);
        assert_int_equal(report.is_clean, i == 3);
        assert_int_equal(
            check_bytes(good_files[i].bytes, good_files[i].size, true, &report), KVT_OK);
        assert_int_equal(report.is_clean, i == 3);
        assert_int_equal(report.damaged_count, 0);
        assert_true(report.page_count <= good_files[i].page_used_count);
        /* Hardly a page is lost to LMDB: all that it used is in a tree or free. */
        assert_true(report.page_count + 4 >= good_files[i].page_used_count);
    }
    /* The long one is what it is meant to be. */
    assert_int_equal(lmdb_meta_parse(&meta, good_files[FILE_LONG].bytes, 0), KVT_OK);
    if (meta.free_list.overflow_pages == 0)
        assert_int_equal(
            lmdb_meta_parse(&meta, good_files[FILE_LONG].bytes + PAGE_BYTES, 1), KVT_OK);
    assert_true(meta.free_list.overflow_pages > 0);
}

static void
file_put(const struct damaged_file *file)
{
    scratch_write(&scratch, "data.mdb", file->bytes, file->size);
}

/* LMDB opens what passed, and finds what was committed. */
static void
passed_file_use(const struct damaged_file *file, const struct good_file *good, struct rng *rng)
{
    uint32_t content;
    struct index *index;

    file_put(file);
    assert_int_equal(index_lmdb_ops.open(NULL, &env, dir, false, &index), KVT_OK);
    content = content_of(index);
    assert_true(content == good->content[0] || content == good->content[1]);
    if (rng_below(rng, WRITE_EVERY) == 0) {
        memset(&model, 0, sizeof(model));
        for (uint32_t i = 0; i < 4; i++) {
            enum kvt_status status;

            model_batch_random(&model, &batch, rng, 100, 100);
            status = index->ops->commit(index, &batch.batch);
            assert_true(status == KVT_OK || status == KVT_E_NOSPC);
        }
        (void)content_of(index);
    }
    index_lmdb_ops.close(index);
}

static const struct good_file *
good_file_pick(struct rng *rng)
{
    uint32_t i = rng_below(rng, FILE_COUNT);

    if (i == FILE_LONG && rng_below(rng, FILE_LONG_EVERY) != 0)
        i = 0;
    return &good_files[i];
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
    enum kvt_status quick;
    enum kvt_status status;

    file.bytes = malloc(good->size);
    assert_non_null(file.bytes);
    memcpy(file.bytes, good->bytes, good->size);
    kind = file_damage_apply(&file, &rng);
    quick = check_bytes(file.bytes, file.size, false, &report);
    status = check_bytes(file.bytes, file.size, true, &report);
    assert_true(status == KVT_OK || status == KVT_E_CORRUPT);
    /* What fails quickly fails thoroughly. */
    assert_true(quick == KVT_OK || status == KVT_E_CORRUPT);
    if (status == KVT_E_CORRUPT) {
        assert_int_equal(failure_last()->status, KVT_E_CORRUPT);
        assert_true(strlen(failure_last()->text) > 20);
    }
    if (file.size < good->page_used_count * PAGE_BYTES)
        assert_int_equal(quick, KVT_E_CORRUPT);
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
        const struct good_file *good = &good_files[i];
        uint8_t *bytes = malloc(good->size);
        struct lmdb_report report;
        uint32_t refused = 0;

        assert_non_null(bytes);
        memcpy(bytes, good->bytes, good->size);
        for (uint64_t page = 0; page < good->page_used_count; page++) {
            uint8_t *at = bytes + page * PAGE_BYTES;

            memset(at, 0, PAGE_BYTES);
            refused += check_bytes(bytes, good->size, true, &report) == KVT_E_CORRUPT;
            memcpy(at, good->bytes + page * PAGE_BYTES, PAGE_BYTES);
        }
        /* The rest is free. */
        assert_true(refused >= 2 + 5); /* Two meta pages, five trees. */
        assert_true(refused < good->page_used_count);
        assert_int_equal(check_bytes(bytes, good->size, true, &report), KVT_OK);
        free(bytes);
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
        uint32_t size = model_record(9, page, 1, record);

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
    const struct good_file *good = &good_files[FILE_LONG];
    size_t at = record_find(good);
    struct lmdb_report report;

    (void)state;
    good->bytes[at + 12] ^= 4; /* Of the namespace's epoch. */
    assert_int_equal(check_bytes(good->bytes, good->size, false, &report), KVT_OK);
    assert_int_equal(check_bytes(good->bytes, good->size, true, &report), KVT_E_CORRUPT);
    assert_int_equal(report.damaged_count, 1);
    assert_int_equal(report.block_count, LONG_RECORDS - LONG_DELETED);
    good->bytes[at + 12] ^= 4;
    assert_int_equal(check_bytes(good->bytes, good->size, true, &report), KVT_OK);
}

int
main(int argc, char **argv)
{
    struct seeds seeds = {.first = 1, .count = SEEDS};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_that_lmdb_made_pass),
        cmocka_unit_test(every_page_that_is_in_a_tree_is_needed),
        cmocka_unit_test(a_flipped_bit_in_a_record_is_found_and_counted),
        cmocka_unit_test_prestate(damaged_files_get_a_verdict_and_what_passes_is_whole, &seeds),
    };

    if (!seeds_parse(&seeds, argc, argv))
        return 2;
    stop_on_proof();
    return cmocka_run_group_tests(tests, files_make, files_remove);
}
