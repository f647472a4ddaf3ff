/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lmdb_reader.c - read pages through the file vtable, never through a map.
 */
#include "lmdb_reader.h"

#include <string.h>

#include "failure.h"
#include "lmdb_page.h"
#include "try.h"

enum {
    WORD_BITS = 64,
    META_PAGES = 2,
    WARM_BYTES = 1 << 20, /* In one read. */
};

/* The first `size` bytes, through a map. */
static enum kvt_status
map_prove(const struct kvt_env *env, struct fs_file *file, uint64_t size)
{
    enum kvt_status status;
    void *map;

    if (env->fs->map == NULL || size == 0)
        return KVT_OK;
    KVT_TRY(env->fs->map(file, size, &map));
    status = env->fs->map_prove(file, map, 0, size);
    env->fs->unmap(map, size);
    return status;
}

enum kvt_status
lmdb_reader_warm(const struct kvt_env *env, struct fs_file *file, uint64_t size)
{
    size_t piece = size < WARM_BYTES ? (size_t)size : WARM_BYTES;
    size_t count = piece;
    void *bytes = env_take(env, piece);
    enum kvt_status status = KVT_OK;
    uint64_t offset;

    if (bytes == NULL)
        return failure_set(KVT_E_NOMEM, 0, "No memory to read the index.");
    for (offset = 0; status == KVT_OK && offset < size && count > 0; offset += count) {
        uint64_t left = size - offset;

        status = env->fs->read_at(file, bytes, left < piece ? (size_t)left : piece, offset, &count);
    }
    env_put(env, bytes, piece);
    return status == KVT_OK ? map_prove(env, file, offset) : status;
}

enum kvt_status
lmdb_reader_open(struct lmdb_reader *reader, const struct kvt_env *env, struct fs_file *file,
    uint32_t page_bytes, uint64_t page_count)
{
    *reader = (struct lmdb_reader){
        .env = env,
        .file = file,
        .page_bytes = page_bytes,
        .page_count = page_count,
        .claimed_bytes = (size_t)(page_count / WORD_BITS + 1) * sizeof(uint64_t),
        .page_number = UINT64_MAX,
    };
    reader->claimed = env_take(env, reader->claimed_bytes);
    reader->page = env_take(env, page_bytes);
    if (reader->claimed == NULL || reader->page == NULL) {
        lmdb_reader_close(reader);
        return failure_set(KVT_E_NOMEM, 0, "No memory to check %llu pages of the index.",
            (unsigned long long)page_count);
    }
    return KVT_OK;
}

void
lmdb_reader_close(struct lmdb_reader *reader)
{
    if (reader->claimed != NULL)
        env_put(reader->env, reader->claimed, reader->claimed_bytes);
    if (reader->page != NULL)
        env_put(reader->env, reader->page, reader->page_bytes);
    reader->claimed = NULL;
    reader->page = NULL;
}

static enum kvt_status
number_check(const struct lmdb_reader *reader, uint64_t number)
{
    if (number >= META_PAGES && number < reader->page_count)
        return KVT_OK;
    return failure_set(KVT_E_CORRUPT, 0, "The index's file refers to page %llu of %llu.",
        (unsigned long long)number, (unsigned long long)reader->page_count);
}

enum kvt_status
lmdb_reader_claim(struct lmdb_reader *reader, uint64_t number)
{
    uint64_t bit = 1ull << (number % WORD_BITS);

    KVT_TRY(number_check(reader, number));
    if ((reader->claimed[number / WORD_BITS] & bit) != 0) {
        return failure_set(KVT_E_CORRUPT, 0, "Page %llu of the index's file is used twice.",
            (unsigned long long)number);
    }
    reader->claimed[number / WORD_BITS] |= bit;
    reader->claimed_count++;
    return KVT_OK;
}

enum kvt_status
lmdb_reader_page(struct lmdb_reader *reader, uint64_t number, const uint8_t **bytes_out)
{
    size_t size = 0;

    KVT_TRY(number_check(reader, number));
    *bytes_out = reader->page;
    if (reader->page_number == number)
        return KVT_OK;
    reader->page_number = UINT64_MAX;
    KVT_TRY(reader->env->fs->read_at(
        reader->file, reader->page, reader->page_bytes, number * reader->page_bytes, &size));
    if (size < reader->page_bytes) {
        return failure_set(KVT_E_CORRUPT, 0, "The index's file ends before page %llu.",
            (unsigned long long)number);
    }
    reader->page_number = number;
    return KVT_OK;
}
