/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lmdb_reader.c - read pages through the file vtable, never through a map.
 */
#include "lmdb_reader.h"

#include <string.h>

#include "failure.h"
#include "lmdb_page.h"

enum {
    WORD_BITS = 64,
    META_PAGES = 2,
};

_Static_assert(LMDB_WINDOW_BYTES % LMDB_PAGE_BYTES_MAX == 0, "a page lies in one window");

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
    };
    reader->claimed = env_take(env, reader->claimed_bytes);
    reader->window_bytes = env_take(env, (size_t)LMDB_WINDOW_BYTES * LMDB_WINDOW_COUNT);
    if (reader->claimed == NULL || reader->window_bytes == NULL) {
        lmdb_reader_close(reader);
        return failure_set(KVT_E_NOMEM, 0, "No memory to check %llu pages of the index.",
            (unsigned long long)page_count);
    }
    for (size_t i = 0; i < LMDB_WINDOW_COUNT; i++) {
        reader->windows[i].offset = UINT64_MAX;
        reader->windows[i].bytes = reader->window_bytes + i * LMDB_WINDOW_BYTES;
    }
    return KVT_OK;
}

void
lmdb_reader_close(struct lmdb_reader *reader)
{
    if (reader->claimed != NULL)
        env_put(reader->env, reader->claimed, reader->claimed_bytes);
    if (reader->window_bytes != NULL)
        env_put(reader->env, reader->window_bytes, (size_t)LMDB_WINDOW_BYTES * LMDB_WINDOW_COUNT);
    reader->claimed = NULL;
    reader->window_bytes = NULL;
}

enum kvt_status
lmdb_reader_claim(struct lmdb_reader *reader, uint64_t number)
{
    uint64_t bit = 1ull << (number % WORD_BITS);

    if (number < META_PAGES || number >= reader->page_count) {
        return failure_set(KVT_E_CORRUPT, 0, "The index's file refers to page %llu of %llu.",
            (unsigned long long)number, (unsigned long long)reader->page_count);
    }
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
    uint64_t offset = number * reader->page_bytes;
    uint64_t first = offset - offset % LMDB_WINDOW_BYTES;
    struct lmdb_window *window = &reader->windows[first / LMDB_WINDOW_BYTES % LMDB_WINDOW_COUNT];
    size_t begin = (size_t)(offset - first);
    enum kvt_status status;

    KVT_ASSERT(number < reader->page_count);
    if (window->offset != first) {
        window->offset = UINT64_MAX;
        status = reader->env->fs->read_at(
            reader->file, window->bytes, LMDB_WINDOW_BYTES, first, &window->size);
        if (status != KVT_OK)
            return status;
        window->offset = first;
    }
    if (window->size < begin + reader->page_bytes) {
        return failure_set(KVT_E_CORRUPT, 0, "The index's file ends before page %llu.",
            (unsigned long long)number);
    }
    *bytes_out = window->bytes + begin;
    return KVT_OK;
}
