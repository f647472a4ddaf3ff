/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lmdb_files.h - index files that LMDB made, in memory, and lmdb_check() over bytes in memory.
 */
#ifndef KVT_TESTS_LMDB_FILES_H
#define KVT_TESTS_LMDB_FILES_H

#include "index_model.h"
#include "lmdb_check.h"
#include "lmdb_page.h"
#include "scratch_dir.h"

enum lmdb_file_kind {
    LMDB_FILE_SMALL,
    LMDB_FILE_WORN, /* Many batches: pages were split, merged, freed and used again. */
    LMDB_FILE_LONG, /* A long segment, half of it deleted at once: a free list in overflow runs. */
    LMDB_FILE_EMPTY,
    LMDB_FILE_KIND_COUNT,
};

enum {
    LMDB_FILES_BYTES_MAX = 8 << 20,
    LMDB_FILES_LONG_SEGMENT = 9,
    LMDB_FILES_LONG_LEFT = 5500, /* Records in the long file: version 1, pages from 0. */
};

/* A whole file, and what it holds. */
struct good_file {
    uint8_t *bytes;
    size_t size;
    uint64_t page_used_count;
    uint32_t content;      /* index_content() */
    struct lmdb_meta meta; /* The newer one. */
};

struct lmdb_files {
    struct kvt_env env;
    struct scratch_dir scratch;
    struct fs_dir *dir;
    struct good_file files[LMDB_FILE_KIND_COUNT];
};

void lmdb_files_make(struct lmdb_files *files);
void lmdb_files_remove(struct lmdb_files *files);

/* lmdb_files_check - lmdb_check() of these bytes; it must give back all memory that it takes.
 * lmdb_files_check_short - its n-th allocation fails. */
enum kvt_status lmdb_files_check(const uint8_t *bytes, size_t size, struct lmdb_report *report_out);
enum kvt_status lmdb_files_check_short(
    const uint8_t *bytes, size_t size, uint64_t n, struct lmdb_report *report_out);

/* index_content - a sum over all that an index holds; stops the test when it cannot be read. */
uint32_t index_content(struct index *index);

#endif /* KVT_TESTS_LMDB_FILES_H */
