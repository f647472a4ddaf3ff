/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lmdb_files.c - make index files with LMDB and keep their bytes.
 */
#include "lmdb_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bytes.h"
#include "counted_memory.h"
#include "failure.h"
#include "hash.h"

enum {
    LONG_RECORDS = 24000,
    LONG_BATCH = 240,
    LONG_DELETED = LONG_RECORDS - LMDB_FILES_LONG_LEFT,
};

/* A file in memory behind the file vtable. */
struct memory_file {
    struct fs_file file; /* First. */
    const uint8_t *bytes;
    size_t size;
};

static struct index_model model;
static struct model_batch batch;

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

enum kvt_status
lmdb_files_check_short(
    const uint8_t *bytes, size_t size, uint64_t n, struct lmdb_report *report_out)
{
    static const struct fs_ops memory_fs = {.read_at = memory_read_at, .size = memory_size};
    struct memory_file file = {.file.descriptor = -1, .bytes = bytes, .size = size};
    struct counted_memory memory;
    struct kvt_env env;
    enum kvt_status status;

    counted_memory_init(&memory, &env);
    memory.fail_at = n;
    env.fs = &memory_fs;
    failure_clear();
    status = lmdb_check(&env, &file.file, report_out);
    assert_int_equal(memory.out_bytes, 0);
    return status;
}

enum kvt_status
lmdb_files_check(const uint8_t *bytes, size_t size, struct lmdb_report *report_out)
{
    return lmdb_files_check_short(bytes, size, 0, report_out);
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

    *sum = crc32c(*sum, &segment->number, sizeof(segment->number));
    *sum = crc32c(*sum, &segment->generation, sizeof(segment->generation));
    *sum = crc32c(*sum, &segment->state, sizeof(segment->state));
    *sum = crc32c(*sum, &segment->record_count, sizeof(segment->record_count));
    *sum = crc32c(*sum, &segment->crc_xor, sizeof(segment->crc_xor));
    *sum = crc32c(*sum, &segment->live_bytes, sizeof(segment->live_bytes));
    return true;
}

uint32_t
index_content(struct index *index)
{
    uint32_t sum = 0;

    assert_int_equal(index->ops->each_block(index, block_sum, &sum), KVT_OK);
    assert_int_equal(index->ops->each_segment(index, segment_sum, &sum), KVT_OK);
    return sum;
}

static struct index *
index_make(const struct lmdb_files *files, uint64_t map_bytes)
{
    struct index *index;

    memset(&model, 0, sizeof(model));
    assert_int_equal(
        index_lmdb_ops.create(NULL, &files->env, files->dir, map_bytes, &index), KVT_OK);
    assert_int_equal(index_lmdb_ops.install(index), KVT_OK);
    assert_int_equal(index_lmdb_ops.mark(index, false), KVT_OK);
    return index;
}

/* Keep the file's bytes; the index is closed. */
static void
good_file_take(struct lmdb_files *files, struct good_file *good, struct index *index)
{
    struct lmdb_meta metas[2];

    index_lmdb_ops.close(index);
    good->bytes = malloc(LMDB_FILES_BYTES_MAX);
    assert_non_null(good->bytes);
    good->size = scratch_read(&files->scratch, "data.mdb", good->bytes, LMDB_FILES_BYTES_MAX);
    for (uint64_t i = 0; i < 2; i++)
        assert_int_equal(lmdb_meta_parse(&metas[i], good->bytes + i * PAGE_BYTES, i), KVT_OK);
    good->meta = metas[metas[0].transaction < metas[1].transaction];
    good->page_used_count = good->meta.page_last + 1;
}

static void
random_commit(struct index *index, struct rng *rng, uint32_t added, uint32_t deleted)
{
    model_batch_random(&model, &batch, rng, added, deleted);
    assert_int_equal(index->ops->commit(index, &batch.batch), KVT_OK);
}

static void
random_file_make(
    struct lmdb_files *files, struct good_file *good, uint64_t map_bytes, uint32_t batches)
{
    struct rng rng = {.state = 1};
    struct index *index = index_make(files, map_bytes);

    for (uint32_t i = 0; i < batches; i++) {
        uint32_t deleted = rng_below(&rng, 200);
        uint32_t added = rng_below(&rng, 200);

        random_commit(index, &rng, added, deleted);
    }
    random_commit(index, &rng, 20, 20);
    good->content = index_content(index);
    good_file_take(files, good, index);
}

static void
empty_file_make(struct lmdb_files *files, struct good_file *good)
{
    struct index *index = index_make(files, LMDB_FILES_BYTES_MAX / 16);

    assert_int_equal(index->ops->mark(index, true), KVT_OK);
    good->content = index_content(index);
    good_file_take(files, good, index);
}

static struct index_segment
long_segment(uint32_t first, uint32_t end)
{
    struct index_segment segment = {.number = LMDB_FILES_LONG_SEGMENT, .generation = 1, .state = 2};
    uint8_t bytes[BLOCK_RECORD_BYTES_MAX];

    for (uint32_t page = first; page < end; page++) {
        (void)model_record(segment.number, page, 1, bytes);
        segment.record_count++;
        segment.crc_xor ^= block_record_crc(bytes);
    }
    return segment;
}

static struct index_block long_deleted[LONG_DELETED];

static void
long_file_make(struct lmdb_files *files, struct good_file *good)
{
    struct index *index = index_make(files, LMDB_FILES_BYTES_MAX);
    struct index_segment segment;

    for (uint32_t page = 0; page < LONG_RECORDS; page += LONG_BATCH) {
        segment = long_segment(0, page + LONG_BATCH);
        for (uint32_t i = 0; i < LONG_BATCH; i++) {
            batch.added[i] =
                (struct index_block){.segment = LMDB_FILES_LONG_SEGMENT, .page = page + i};
            batch.added[i].bytes = batch.bytes[i];
            batch.added[i].size =
                model_record(LMDB_FILES_LONG_SEGMENT, page + i, 1, batch.bytes[i]);
        }
        batch.batch = (struct index_batch){.added = batch.added, .added_count = LONG_BATCH};
        batch.batch.segments = &segment;
        batch.batch.segment_count = 1;
        assert_int_equal(index->ops->commit(index, &batch.batch), KVT_OK);
    }
    segment = long_segment(0, LONG_RECORDS - LONG_DELETED);
    for (uint32_t i = 0; i < LONG_DELETED; i++)
        long_deleted[i] = (struct index_block){
            .segment = LMDB_FILES_LONG_SEGMENT, .page = LONG_RECORDS - LONG_DELETED + i};
    batch.batch = (struct index_batch){.deleted = long_deleted,
        .deleted_count = LONG_DELETED,
        .segments = &segment,
        .segment_count = 1};
    assert_int_equal(index->ops->commit(index, &batch.batch), KVT_OK);
    good->content = index_content(index);
    good_file_take(files, good, index);
}

void
lmdb_files_make(struct lmdb_files *files)
{
    struct good_file *good = files->files;

    env_host(&files->env);
    scratch_dir_make(&files->scratch);
    assert_int_equal(
        files->env.fs->dir_open(files->env.fs_context, files->scratch.path, 0, &files->dir),
        KVT_OK);
    random_file_make(files, &good[LMDB_FILE_SMALL], LMDB_FILES_BYTES_MAX / 8, 3);
    random_file_make(files, &good[LMDB_FILE_WORN], LMDB_FILES_BYTES_MAX / 4, 200);
    long_file_make(files, &good[LMDB_FILE_LONG]);
    empty_file_make(files, &good[LMDB_FILE_EMPTY]);
}

void
lmdb_files_remove(struct lmdb_files *files)
{
    for (size_t i = 0; i < LMDB_FILE_KIND_COUNT; i++)
        free(files->files[i].bytes);
    files->env.fs->dir_close(files->dir);
    scratch_dir_remove(&files->scratch);
}
