/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index_lmdb_internal.h - what the files of the LMDB index (index_lmdb.c: its life,
 * lmdb_transaction.c: its writes, lmdb_touch.c: the pages that they need, lmdb_walk.c: its walks,
 * lmdb_file.c: its file) show each other.
 */
#ifndef KVT_INDEX_INDEX_LMDB_INTERNAL_H
#define KVT_INDEX_INDEX_LMDB_INTERNAL_H

#include <lmdb.h>

#include "index.h"

#define LMDB_FILE_NAME "data.mdb"
#define LMDB_FILE_NAME_NEW "data.mdb.new"
#define LMDB_KEY_CLEAN "clean"
#define LMDB_KEY_SCHEMA "schema"

enum {
    LMDB_SCHEMA = 1,
    LMDB_RESERVE_DIVISOR = 4, /* A quarter of the map is kept for deletions. */
    LMDB_META_PAGES = 2,
};

struct lmdb_touch;

struct index_lmdb {
    struct index index; /* First: the vtable's functions get a pointer to it. */
    struct kvt_env env;
    struct fs_dir *dir;
    struct fs_file *file;     /* What `file_name` is in `dir`: LMDB's own opens are of this one. */
    MDB_env *lmdb;            /* NULL: closed by an install that failed. */
    struct lmdb_touch *touch; /* NULL where `lmdb` is. */
    const char *file_name;    /* LMDB_FILE_NAME or LMDB_FILE_NAME_NEW. */
    MDB_dbi block;
    MDB_dbi segment;
    MDB_dbi system;
    uint64_t map_bytes;
    uint32_t page_bytes;
    bool is_read_only;
    bool is_failed; /* A commit failed: no other is tried. */
    /* LMDB's number of the last transaction, when that was deferred and not synced since, or 0. */
    uint64_t deferred_number;

    uint64_t tree_pages; /* In all trees, after the last commit. */
    uint64_t lost_pages; /* In no tree and not free, when the file was opened. */
    uint64_t block_count;
    uint64_t commit_count;
};

static inline struct index_lmdb *
lmdb_of(struct index *index)
{
    return (struct index_lmdb *)(void *)index;
}

/* --- lmdb_file.c ------------------------------------------------------------------------------ */

/* Make the empty file "data.mdb.new" in the place of any old one. */
enum kvt_status lmdb_file_create(
    const struct kvt_env *env, struct fs_dir *dir, struct fs_file **file_out);

/* Write zeros up to `size` and sync. When it fails the file has its old length again; KVT_E_NOSPC:
 * what the disk has is less, and nothing was written, or was used up meanwhile. */
enum kvt_status lmdb_file_fill(const struct index_lmdb *lmdb, uint64_t size);

/* --- lmdb_touch.c ----------------------------------------------------------------------------- */

/* Of a file that has its meta pages. */
enum kvt_status lmdb_touch_open(struct index_lmdb *lmdb);
/* A map of another size. KVT_E_NOMEM: it has that of before. */
enum kvt_status lmdb_touch_map(struct index_lmdb *lmdb, uint64_t map_bytes);
void lmdb_touch_close(struct index_lmdb *lmdb);

/*
 * lmdb_touch - read what LMDB will read of the file in a transaction that makes `batch` (NULL:
 * writes to `system` alone), so that it finds that in the page cache, whole as a fault wants it.
 * KVT_E_META: the disk cannot read one of the pages; or they are not what LMDB would have written.
 */
enum kvt_status lmdb_touch(struct index_lmdb *lmdb, const struct index_batch *batch);
/* The meta pages alone. */
enum kvt_status lmdb_touch_metas(struct index_lmdb *lmdb);
/* What an open reads, and a walk of `segment`. KVT_E_IO, KVT_E_CORRUPT: for the same reasons. */
enum kvt_status lmdb_touch_walk(struct index_lmdb *lmdb);

/* --- lmdb_transaction.c ----------------------------------------------------------------------- */

/* status_from_mdb - LMDB's code (or errno value) as a status, with "<what>: <LMDB's words>". */
enum kvt_status status_from_mdb(int code, const char *what);

/* Make the databases and their first values in an empty environment. */
enum kvt_status lmdb_transaction_create(struct index_lmdb *lmdb);
/* Take up the databases of an environment that lmdb_check() found right; count its pages. */
enum kvt_status lmdb_transaction_open(struct index_lmdb *lmdb);
/* KVT_OK when the index may be written. */
enum kvt_status lmdb_transaction_check(const struct index_lmdb *lmdb);

enum kvt_status lmdb_commit(struct index *index, const struct index_batch *batch);
enum kvt_status lmdb_commit_deferred(struct index *index, const struct index_batch *batch);
enum kvt_status lmdb_sync(struct index *index);
enum kvt_status lmdb_mark(struct index *index, bool clean);

/* --- lmdb_walk.c ------------------------------------------------------------------------------ */

enum kvt_status lmdb_each_block(struct index *index,
    bool (*visit)(void *visitor, const struct index_block *block), void *visitor);
enum kvt_status lmdb_each_segment(struct index *index,
    bool (*visit)(void *visitor, const struct index_segment *segment), void *visitor);

#endif /* KVT_INDEX_INDEX_LMDB_INTERNAL_H */
