/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lmdb_transaction.c - the LMDB index's transactions but for walks (lmdb_walk.c).
 *
 * Owns      the translation of LMDB's codes, the keys, and the reserve of the map.
 * Format    SCHEMA.md, version 1.
 *
 * The reserve: LMDB copies what it changes, so a full map cannot even delete. Additions are refused
 * when less than a quarter of the map's pages would stay free. Free pages are not counted one by
 * one: what is in no tree is free, but for pages that were lost before the file was opened (a
 * crash inside LMDB's own bookkeeping), which lmdb_transaction_open() counts once.
 */
#include <errno.h>
#include <string.h>

#include "block_record.h"
#include "bytes.h"
#include "failure.h"
#include "growth_host.h"
#include "index_lmdb_internal.h"
#include "lmdb_check.h"
#include "lmdb_page.h"
#include "segment_facts.h"
#include "try.h"

enum {
    DBI_FREE = 0, /* LMDB's own databases. */
    DBI_MAIN = 1,
    NODE_OVERHEAD = 10, /* LMDB's bytes beside key and value. */
    ESTIMATE_EXTRA = 8, /* Branch pages and the free list. */
    ESTIMATE_HALF = 2,  /* Pages are at least half full after a split. */
    PAGE_HEADER_SIZE = 16,
    CODE_RESERVE = -1, /* Not LMDB's: the additions would use the reserve. */
    CODE_TOUCH = -2,   /* Nor is this: lmdb_touch() has failed. */
};

/* --- 1. Codes, keys --------------------------------------------------------------------------- */

static enum kvt_status
mdb_class(int code)
{
    switch (code) {
    case 0:
        return KVT_OK;
    case MDB_MAP_FULL:
    case ENOSPC:
    case EDQUOT:
        return KVT_E_NOSPC;
    case MDB_INVALID:
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_NOTFOUND:
    case MDB_INCOMPATIBLE:
        return KVT_E_CORRUPT;
    case MDB_VERSION_MISMATCH:
        return KVT_E_FORMAT;
    case ENOMEM:
        return KVT_E_NOMEM;
    case EACCES:
    case EPERM:
        return KVT_E_PERMISSION;
    case EROFS:
        return KVT_E_READONLY;
    case EIO:
        return KVT_E_IO;
    default:
        return KVT_E_META;
    }
}

enum kvt_status
status_from_mdb(int code, const char *what)
{
    enum kvt_status status = mdb_class(code);

    if (status == KVT_OK)
        return KVT_OK;
    return failure_set(status, code, "%s: %s (code %d).", what, mdb_strerror(code), code);
}

static MDB_val
value_of(const void *bytes, size_t size)
{
    return (MDB_val){.mv_size = size, .mv_data = (void *)(uintptr_t)bytes};
}

static MDB_val
block_key(uint8_t target[BLOCK_KEY_BYTES], uint32_t segment, uint32_t page)
{
    put_u32_big(target, segment);
    put_u32_big(target + 4, page);
    return value_of(target, BLOCK_KEY_BYTES);
}

static MDB_val
system_key(const char *name)
{
    return value_of(name, strlen(name));
}

/* --- 2. Writing transactions ------------------------------------------------------------------ */

enum kvt_status
lmdb_transaction_check(const struct index_lmdb *lmdb)
{
    if (lmdb->is_read_only)
        return failure_set(KVT_E_READONLY, 0, "The index was opened for reading.");
    if (lmdb->lmdb == NULL || lmdb->is_failed)
        return failure_set(KVT_E_META, 0, "The index failed before; it takes no further commit.");
    return KVT_OK;
}

/* Pages in all trees as the transaction sees them, and the number of block records. */
static int
pages_count(MDB_txn *txn, struct index_lmdb *lmdb)
{
    const MDB_dbi databases[] = {DBI_FREE, DBI_MAIN, lmdb->segment, lmdb->system, lmdb->block};
    MDB_stat stat = {0};

    lmdb->tree_pages = 0;
    for (size_t i = 0; i < sizeof(databases) / sizeof(databases[0]); i++) {
        int code = mdb_stat(txn, databases[i], &stat);

        if (code != 0)
            return code;
        lmdb->tree_pages += stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages;
    }
    lmdb->block_count = stat.ms_entries;
    lmdb->page_bytes = stat.ms_psize;
    return 0;
}

/* The end of a transaction whose pages cannot be read. */
static enum kvt_status
touch_failed(struct index_lmdb *lmdb, const char *what)
{
    const struct failure cause = *failure_last();

    lmdb->is_failed = true;
    return failure_set(
        KVT_E_META, cause.foreign_code, "%s: %s No further commit is tried.", what, cause.text);
}

/* The end of a failed transaction: what the caller is told, and whether there may be another. */
static enum kvt_status
write_failed(struct index_lmdb *lmdb, int code, const char *what)
{
    if (code == MDB_MAP_FULL || code == CODE_RESERVE) {
        return failure_set(KVT_E_NOSPC, code,
            "%s: the map of %llu bytes has no room (%llu pages used; a quarter is kept free).",
            what, (unsigned long long)lmdb->map_bytes, (unsigned long long)lmdb->tree_pages);
    }
    if (code == CODE_TOUCH)
        return touch_failed(lmdb, what);
    lmdb->is_failed = true;
    return failure_set(KVT_E_META, code, "%s: LMDB says: %s (code %d). No further commit is tried.",
        what, mdb_strerror(code), code);
}

/* What a transaction does; returns LMDB's code. May be run again after MDB_MAP_FULL. */
typedef int (*change_fn)(struct index_lmdb *lmdb, MDB_txn *txn, void *context);

/*
 * Leave LMDB's meta page to a later sync, or not. The flag of a single transaction does not do that
 * in LMDB 0.9.24: the page goes through the descriptor that syncs, whatever the transaction says.
 */
static void
meta_sync_defer(struct index_lmdb *lmdb, bool is_deferred)
{
    int code = mdb_env_set_flags(lmdb->lmdb, MDB_NOMETASYNC, is_deferred ? 1 : 0);

    KVT_ASSERT(code == 0); /* It only refuses flags that it does not know. */
    (void)code;
}

/* The fields of a meta page, which lmdb_touch() has read before. */
static int
meta_keep(const struct index_lmdb *lmdb, uint64_t number, uint8_t bytes_out[LMDB_META_BYTES])
{
    const struct fs_ops *fs = lmdb->env.fs;
    struct failure cause;
    size_t size = 0;

    if (fs->read_at(lmdb->file, bytes_out, LMDB_META_BYTES, number * lmdb->page_bytes, &size) ==
        KVT_OK) {
        if (size == LMDB_META_BYTES)
            return 0;
        (void)failure_set(KVT_E_META, 0, "The index's file ends in a meta page.");
        return CODE_TOUCH;
    }
    cause = *failure_last();
    (void)failure_set(KVT_E_META, cause.foreign_code,
        "Page %llu of the index's file cannot be read: %s.", (unsigned long long)number,
        cause.text);
    return CODE_TOUCH;
}

/*
 * LMDB's commit; the transaction is gone in any case. Where LMDB's write of the meta page fails, it
 * puts the old transaction's number over that, with the new one's trees: lmdb_check() cannot tell
 * it from a flipped bit. So the page is written as it was.
 */
static int
commit_or_undo(struct index_lmdb *lmdb, MDB_txn *txn)
{
    uint64_t number = mdb_txn_id(txn) % LMDB_META_PAGES;
    uint8_t bytes[LMDB_META_BYTES];
    int code = meta_keep(lmdb, number, bytes);

    if (code != 0) {
        mdb_txn_abort(txn);
        return code;
    }
    code = mdb_txn_commit(txn);
    if (code != 0)
        (void)lmdb->env.fs->write_at(lmdb->file, bytes, sizeof(bytes), number * lmdb->page_bytes);
    return code;
}

static int
write_try(struct index_lmdb *lmdb, change_fn change, void *context)
{
    uint64_t tree_pages = lmdb->tree_pages;
    uint64_t block_count = lmdb->block_count;
    MDB_txn *txn;
    int code = mdb_txn_begin(lmdb->lmdb, NULL, 0, &txn);

    if (code != 0)
        return code;
    code = change(lmdb, txn, context);
    if (code == 0)
        code = pages_count(txn, lmdb);
    if (code == 0)
        code = commit_or_undo(lmdb, txn);
    else
        mdb_txn_abort(txn);
    if (code != 0) {
        lmdb->tree_pages = tree_pages;
        lmdb->block_count = block_count;
    }
    return code;
}

static int
schema_put(struct index_lmdb *lmdb, MDB_txn *txn, void *context)
{
    uint8_t schema[4];
    MDB_val key = system_key(LMDB_KEY_SCHEMA);
    MDB_val value = value_of(schema, sizeof(schema));

    (void)context;
    put_u32(schema, LMDB_SCHEMA);
    return mdb_put(txn, lmdb->system, &key, &value, 0);
}

static int
last_sync(struct index_lmdb *lmdb)
{
    int code = mdb_env_sync(lmdb->lmdb, 1);

    if (code == 0)
        lmdb->deferred_number = 0;
    return code;
}

/* What was deferred before is durable with the pages of a transaction; of one that has none, as it
 * changed nothing, LMDB writes and syncs nothing. */
static int
deferred_settle(struct index_lmdb *lmdb, bool is_deferred)
{
    MDB_envinfo info;
    int code = mdb_env_info(lmdb->lmdb, &info);

    if (code == 0 && info.me_last_txnid == lmdb->deferred_number)
        return last_sync(lmdb);
    lmdb->deferred_number = is_deferred ? info.me_last_txnid : 0;
    return code;
}

/*
 * One transaction. Durable when KVT_OK is returned, unless it is deferred.
 *
 * Pages that the last transaction freed are not free to the next one, but to the one after it: so
 * when the map is full, a transaction that changes nothing may give back enough for a second try.
 * Pages that it wrote are in the page cache, but perhaps not all that a fault wants beside them.
 */
static enum kvt_status
write_run(struct index_lmdb *lmdb, const struct index_batch *batch, change_fn change, void *context,
    bool is_deferred, const char *what)
{
    struct growth_signal held;
    int code;

    KVT_TRY(lmdb_transaction_check(lmdb));
    if (lmdb_touch(lmdb, batch) != KVT_OK)
        return touch_failed(lmdb, what);
    growth_signal_hold(&held);
    meta_sync_defer(lmdb, is_deferred);
    code = write_try(lmdb, change, context);
    if (code == MDB_MAP_FULL) {
        code = write_try(lmdb, schema_put, NULL);
        if (code == 0 && lmdb_touch(lmdb, batch) != KVT_OK)
            code = CODE_TOUCH;
        if (code == 0)
            code = write_try(lmdb, change, context);
    }
    meta_sync_defer(lmdb, false);
    if (code == 0)
        code = deferred_settle(lmdb, is_deferred);
    growth_signal_drop(&held);
    if (code != 0)
        return write_failed(lmdb, code, what);
    lmdb->commit_count++;
    return KVT_OK;
}

static int
segment_put(struct index_lmdb *lmdb, MDB_txn *txn, const struct index_segment *segment)
{
    uint8_t key_bytes[SEGMENT_KEY_BYTES];
    uint8_t bytes[SEGMENT_FACTS_BYTES];
    MDB_val key = value_of(key_bytes, sizeof(key_bytes));
    MDB_val value = value_of(bytes, sizeof(bytes));

    put_u32_big(key_bytes, segment->number);
    segment_facts_encode(segment, bytes);
    return mdb_put(txn, lmdb->segment, &key, &value, 0);
}

/* Whether the batch's additions leave the reserve free; asked after its deletions. */
static int
room_check(struct index_lmdb *lmdb, MDB_txn *txn, const struct index_batch *batch)
{
    uint64_t map_pages;
    uint64_t bytes = 0;
    uint64_t pages;
    int code = pages_count(txn, lmdb);

    if (code != 0)
        return code;
    for (uint32_t i = 0; i < batch->added_count; i++)
        bytes += (uint64_t)batch->added[i].size + BLOCK_KEY_BYTES + NODE_OVERHEAD;
    pages = bytes * ESTIMATE_HALF / (lmdb->page_bytes - PAGE_HEADER_SIZE) + ESTIMATE_EXTRA;
    pages += LMDB_META_PAGES + lmdb->tree_pages + lmdb->lost_pages;
    map_pages = lmdb->map_bytes / lmdb->page_bytes;
    return pages <= map_pages - map_pages / LMDB_RESERVE_DIVISOR ? 0 : CODE_RESERVE;
}

/* Always the first record that is left: no cursor has to survive the merging of pages. */
static int
first_delete(MDB_cursor *cursor, uint32_t segment, bool *is_empty_out)
{
    uint8_t bytes[BLOCK_KEY_BYTES];
    MDB_val key = block_key(bytes, segment, 0);
    MDB_val value;
    int code = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);

    *is_empty_out =
        code == MDB_NOTFOUND ||
        (code == 0 && (key.mv_size != BLOCK_KEY_BYTES || get_u32_big(key.mv_data) != segment));
    if (*is_empty_out)
        return 0;
    return code == 0 ? mdb_cursor_del(cursor, 0) : code;
}

static int
segments_empty(struct index_lmdb *lmdb, MDB_txn *txn, const struct index_batch *batch)
{
    MDB_cursor *cursor;
    int code;

    if (batch->emptied_count == 0)
        return 0;
    code = mdb_cursor_open(txn, lmdb->block, &cursor);
    if (code != 0)
        return code;
    for (uint32_t i = 0; code == 0 && i < batch->emptied_count; i++) {
        bool is_empty = false;

        while (code == 0 && !is_empty)
            code = first_delete(cursor, batch->emptied[i], &is_empty);
    }
    mdb_cursor_close(cursor);
    return code;
}

static int
blocks_delete(struct index_lmdb *lmdb, MDB_txn *txn, const struct index_batch *batch)
{
    for (uint32_t i = 0; i < batch->deleted_count; i++) {
        uint8_t bytes[BLOCK_KEY_BYTES];
        MDB_val key = block_key(bytes, batch->deleted[i].segment, batch->deleted[i].page);
        int code = mdb_del(txn, lmdb->block, &key, NULL);

        if (code != 0 && code != MDB_NOTFOUND)
            return code;
    }
    return 0;
}

/* Whether `key` lies behind every key: then LMDB can append, and fills its pages to the brim. */
static int
key_is_last(MDB_cursor *cursor, const MDB_val *key, bool *is_last_out)
{
    MDB_val last;
    MDB_val value;
    int code = mdb_cursor_get(cursor, &last, &value, MDB_LAST);

    *is_last_out =
        code == MDB_NOTFOUND || (code == 0 && last.mv_size == key->mv_size &&
                                    memcmp(last.mv_data, key->mv_data, key->mv_size) < 0);
    return code == MDB_NOTFOUND ? 0 : code;
}

static int
blocks_put(const struct index_batch *batch, MDB_cursor *cursor)
{
    bool is_last = false;

    for (uint32_t i = 0; i < batch->added_count; i++) {
        const struct index_block *block = &batch->added[i];
        uint8_t bytes[BLOCK_KEY_BYTES];
        MDB_val key = block_key(bytes, block->segment, block->page);
        MDB_val value = value_of(block->bytes, block->size);
        int code = 0;

        KVT_ASSERT(block->size > 0 && block->size <= BLOCK_RECORD_BYTES_MAX);
        if (i == 0)
            code = key_is_last(cursor, &key, &is_last);
        if (code != 0)
            return code;
        code = mdb_cursor_put(cursor, &key, &value, is_last ? MDB_APPEND : 0);
        if (code == MDB_KEYEXIST) {
            is_last = false;
            code = mdb_cursor_put(cursor, &key, &value, 0);
        }
        if (code != 0)
            return code;
    }
    return 0;
}

static int
batch_change(struct index_lmdb *lmdb, MDB_txn *txn, void *context)
{
    const struct index_batch *batch = context;
    MDB_cursor *cursor;
    int code = segments_empty(lmdb, txn, batch);

    if (code == 0)
        code = blocks_delete(lmdb, txn, batch);
    if (code == 0 && batch->added_count > 0) {
        code = room_check(lmdb, txn, batch);
        if (code == 0)
            code = mdb_cursor_open(txn, lmdb->block, &cursor);
        if (code == 0) {
            code = blocks_put(batch, cursor);
            mdb_cursor_close(cursor);
        }
    }
    for (uint32_t i = 0; code == 0 && i < batch->segment_count; i++)
        code = segment_put(lmdb, txn, &batch->segments[i]);
    return code;
}

static enum kvt_status
batch_commit(struct index *index, const struct index_batch *batch, bool is_deferred)
{
    return write_run(lmdb_of(index), batch, batch_change, (void *)(uintptr_t)batch, is_deferred,
        "The commit of a batch failed");
}

enum kvt_status
lmdb_commit(struct index *index, const struct index_batch *batch)
{
    return batch_commit(index, batch, false);
}

enum kvt_status
lmdb_commit_deferred(struct index *index, const struct index_batch *batch)
{
    return batch_commit(index, batch, true);
}

enum kvt_status
lmdb_sync(struct index *index)
{
    struct index_lmdb *lmdb = lmdb_of(index);
    int code;

    KVT_TRY(lmdb_transaction_check(lmdb));
    if (lmdb_touch_metas(lmdb) != KVT_OK)
        return touch_failed(lmdb, "The sync of a commit failed");
    code = last_sync(lmdb);
    return code == 0 ? KVT_OK : write_failed(lmdb, code, "The sync of a commit failed");
}

static int
clean_put(MDB_txn *txn, MDB_dbi system, bool clean)
{
    const uint8_t byte = clean ? LMDB_CLEAN : LMDB_UNCLEAN;
    MDB_val key = system_key(LMDB_KEY_CLEAN);
    MDB_val value = value_of(&byte, sizeof(byte));

    return mdb_put(txn, system, &key, &value, 0);
}

static int
mark_change(struct index_lmdb *lmdb, MDB_txn *txn, void *context)
{
    const bool *clean = context;

    return clean_put(txn, lmdb->system, *clean);
}

enum kvt_status
lmdb_mark(struct index *index, bool clean)
{
    return write_run(
        lmdb_of(index), NULL, mark_change, &clean, false, "Setting the clean flag failed");
}

/* --- 3. The first transactions of an environment ---------------------------------------------- */

static int
databases_open(struct index_lmdb *lmdb, MDB_txn *txn, unsigned flags)
{
    int code = mdb_dbi_open(txn, "block", flags, &lmdb->block);

    if (code == 0)
        code = mdb_dbi_open(txn, "segment", flags, &lmdb->segment);
    if (code == 0)
        code = mdb_dbi_open(txn, "system", flags, &lmdb->system);
    return code;
}

static int
create_change(struct index_lmdb *lmdb, MDB_txn *txn, void *context)
{
    int code = databases_open(lmdb, txn, MDB_CREATE);

    /* Without the clean flag: lmdb_check() refuses it until the first lmdb_mark(). */
    if (code == 0)
        code = schema_put(lmdb, txn, context);
    return code;
}

enum kvt_status
lmdb_transaction_create(struct index_lmdb *lmdb)
{
    KVT_TRY(write_run(
        lmdb, NULL, create_change, NULL, false, "The first commit of a new index failed"));
    lmdb->commit_count = 0;
    return KVT_OK;
}

/* Pages on LMDB's free list: each of its values begins with how many it names. */
static int
free_pages_count(MDB_txn *txn, uint64_t *count_out)
{
    MDB_cursor *cursor;
    MDB_val key;
    MDB_val value;
    int code = mdb_cursor_open(txn, DBI_FREE, &cursor);

    *count_out = 0;
    if (code != 0)
        return code;
    while ((code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
        if (value.mv_size >= sizeof(uint64_t))
            *count_out += get_u64(value.mv_data);
    }
    mdb_cursor_close(cursor);
    return code == MDB_NOTFOUND ? 0 : code;
}

static int
environment_count(struct index_lmdb *lmdb, MDB_txn *txn)
{
    MDB_envinfo info;
    uint64_t known;
    uint64_t free_pages;
    int code = pages_count(txn, lmdb);

    if (code == 0)
        code = mdb_env_info(lmdb->lmdb, &info);
    if (code == 0)
        code = free_pages_count(txn, &free_pages);
    if (code != 0)
        return code;
    known = LMDB_META_PAGES + lmdb->tree_pages + free_pages;
    lmdb->lost_pages = info.me_last_pgno + 1 > known ? info.me_last_pgno + 1 - known : 0;
    return 0;
}

enum kvt_status
lmdb_transaction_open(struct index_lmdb *lmdb)
{
    MDB_txn *txn;
    int code = mdb_txn_begin(lmdb->lmdb, NULL, MDB_RDONLY, &txn);

    if (code != 0)
        return status_from_mdb(code, "LMDB cannot read the index");
    code = databases_open(lmdb, txn, 0);
    if (code == 0)
        code = environment_count(lmdb, txn);
    if (code != 0) {
        mdb_txn_abort(txn);
        return status_from_mdb(code, "The index's databases cannot be opened");
    }
    /* Committed, not aborted: that keeps the handles of the databases. */
    return status_from_mdb(mdb_txn_commit(txn), "LMDB cannot read the index");
}
