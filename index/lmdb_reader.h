/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lmdb_reader.h - pages of an LMDB file by number, each claimed at most once.
 *
 * Owns      the bitmap of pages that were claimed, and a few windows of the file.
 */
#ifndef KVT_INDEX_LMDB_READER_H
#define KVT_INDEX_LMDB_READER_H

#include "env.h"

enum {
    LMDB_WINDOW_BYTES = 1 << 18, /* Read at once: trees that grew by appending lie in order. */
    LMDB_WINDOW_COUNT = 16,
};

struct lmdb_window {
    uint64_t offset; /* UINT64_MAX: empty. */
    size_t size;     /* Bytes that were there. */
    uint8_t *bytes;
};

struct lmdb_reader {
    const struct kvt_env *env;
    struct fs_file *file;
    uint64_t page_count; /* Pages 0..page_count-1 exist. */
    uint32_t page_bytes;
    uint64_t *claimed; /* One bit a page. */
    size_t claimed_bytes;
    uint64_t claimed_count;
    uint8_t *window_bytes;
    struct lmdb_window windows[LMDB_WINDOW_COUNT];
};

/* lmdb_reader_open - the caller has proved that the file has page_count pages. */
enum kvt_status lmdb_reader_open(struct lmdb_reader *reader, const struct kvt_env *env,
    struct fs_file *file, uint32_t page_bytes, uint64_t page_count);
void lmdb_reader_close(struct lmdb_reader *reader);

/* lmdb_reader_claim - KVT_E_CORRUPT: no such page, a meta page, or claimed before. */
enum kvt_status lmdb_reader_claim(struct lmdb_reader *reader, uint64_t number);

/* lmdb_reader_page - the bytes of a page below page_count, good until the next call. */
enum kvt_status lmdb_reader_page(
    struct lmdb_reader *reader, uint64_t number, const uint8_t **bytes_out);

#endif /* KVT_INDEX_LMDB_READER_H */
