/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lmdb_reader.h - pages of an LMDB file by number, each claimed at most once.
 *
 * Owns      the bitmap of pages that were claimed, and the page that was read last.
 */
#ifndef KVT_INDEX_LMDB_READER_H
#define KVT_INDEX_LMDB_READER_H

#include "env.h"

/*
 * lmdb_reader_warm - read the first `size` bytes in their order, so that they are in the page
 * cache: a tree that has lived is scattered over its file, and what reads it page by page would
 * cost a cold disk a random read of 4 KiB for each. What the disk cannot read is an error, also
 * what it cannot read for a map alone (fs_ops.map_prove).
 */
enum kvt_status lmdb_reader_warm(const struct kvt_env *env, struct fs_file *file, uint64_t size);

struct lmdb_reader {
    const struct kvt_env *env;
    struct fs_file *file;
    uint64_t page_count; /* Pages 0..page_count-1 exist. */
    uint32_t page_bytes;
    uint64_t *claimed; /* One bit a page. */
    size_t claimed_bytes;
    uint64_t claimed_count;
    uint8_t *page;
    uint64_t page_number; /* What is there; UINT64_MAX: nothing. */
};

/* lmdb_reader_open - the caller has proved that the file has page_count pages. */
enum kvt_status lmdb_reader_open(struct lmdb_reader *reader, const struct kvt_env *env,
    struct fs_file *file, uint32_t page_bytes, uint64_t page_count);
void lmdb_reader_close(struct lmdb_reader *reader);

/* lmdb_reader_claim - KVT_E_CORRUPT: no such page, a meta page, or claimed before. */
enum kvt_status lmdb_reader_claim(struct lmdb_reader *reader, uint64_t number);

/* lmdb_reader_page - the bytes of a page, good until the next call. KVT_E_CORRUPT: no such page, or
 * a meta page. */
enum kvt_status lmdb_reader_page(
    struct lmdb_reader *reader, uint64_t number, const uint8_t **bytes_out);

#endif /* KVT_INDEX_LMDB_READER_H */
