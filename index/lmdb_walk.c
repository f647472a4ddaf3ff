/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lmdb_walk.c - walk the LMDB index's databases in order of their keys.
 *
 * Each walk is one read transaction that ends with it: an older one would keep pages from reuse.
 */
#include "block_record.h"
#include "bytes.h"
#include "failure.h"
#include "index_lmdb_internal.h"
#include "lmdb_reader.h"
#include "segment_facts.h"
#include "try.h"

struct read_walk {
    bool (*visit_block)(void *visitor, const struct index_block *block);
    bool (*visit_segment)(void *visitor, const struct index_segment *segment);
    void *visitor;
};

/* KVT_MISS: the visitor wants no more. */
static enum kvt_status
block_show(const struct read_walk *walk, const MDB_val *key, const MDB_val *value)
{
    struct index_block block = {.bytes = value->mv_data};

    if (key->mv_size != BLOCK_KEY_BYTES || value->mv_size > BLOCK_RECORD_BYTES_MAX) {
        return failure_set(KVT_E_CORRUPT, 0,
            "The index has a block with a key of %zu and a record of %zu bytes.", key->mv_size,
            value->mv_size);
    }
    block.segment = get_u32_big(key->mv_data);
    block.page = get_u32_big((const uint8_t *)key->mv_data + 4);
    block.size = (uint32_t)value->mv_size;
    return walk->visit_block(walk->visitor, &block) ? KVT_OK : KVT_MISS;
}

static enum kvt_status
segment_show(const struct read_walk *walk, const MDB_val *key, const MDB_val *value)
{
    struct index_segment segment;

    if (key->mv_size != SEGMENT_KEY_BYTES) {
        return failure_set(
            KVT_E_CORRUPT, 0, "The index has a segment with a key of %zu bytes.", key->mv_size);
    }
    KVT_TRY(
        segment_facts_decode(&segment, get_u32_big(key->mv_data), value->mv_data, value->mv_size));
    return walk->visit_segment(walk->visitor, &segment) ? KVT_OK : KVT_MISS;
}

static enum kvt_status
database_walk(MDB_txn *txn, MDB_dbi database, const struct read_walk *walk)
{
    enum kvt_status status = KVT_OK;
    MDB_cursor *cursor;
    MDB_val key;
    MDB_val value;
    int code = mdb_cursor_open(txn, database, &cursor);

    if (code != 0)
        return status_from_mdb(code, "LMDB cannot walk the index");
    while (status == KVT_OK && (code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
        status = walk->visit_block != NULL ? block_show(walk, &key, &value)
                                           : segment_show(walk, &key, &value);
    }
    mdb_cursor_close(cursor);
    if (status == KVT_MISS)
        return KVT_OK;
    if (status == KVT_OK && code != MDB_NOTFOUND)
        return status_from_mdb(code, "LMDB cannot walk the index");
    return status;
}

static enum kvt_status
read_run(struct index_lmdb *lmdb, MDB_dbi database, const struct read_walk *walk)
{
    enum kvt_status status;
    MDB_txn *txn;
    int code;

    if (lmdb->lmdb == NULL)
        return failure_set(KVT_E_META, 0, "The index failed before and is closed.");
    code = mdb_txn_begin(lmdb->lmdb, NULL, MDB_RDONLY, &txn);
    if (code != 0)
        return status_from_mdb(code, "LMDB cannot read the index");
    status = database_walk(txn, database, walk);
    mdb_txn_abort(txn);
    return status;
}

enum kvt_status
lmdb_each_block(struct index *index, bool (*visit)(void *visitor, const struct index_block *block),
    void *visitor)
{
    const struct read_walk walk = {.visit_block = visit, .visitor = visitor};
    struct index_lmdb *lmdb = lmdb_of(index);
    MDB_envinfo info;
    int code;

    if (lmdb->lmdb == NULL)
        return failure_set(KVT_E_META, 0, "The index failed before and is closed.");
    KVT_TRY(lmdb_touch_walk(lmdb));
    code = mdb_env_info(lmdb->lmdb, &info);
    if (code != 0)
        return status_from_mdb(code, "LMDB cannot describe the index");
    /* What the disk cannot read is an error here; through the map it would be a SIGBUS. */
    KVT_TRY(lmdb_reader_warm(
        &lmdb->env, lmdb->file, ((uint64_t)info.me_last_pgno + 1) * lmdb->page_bytes));
    return read_run(lmdb, lmdb->block, &walk);
}

enum kvt_status
lmdb_each_segment(struct index *index,
    bool (*visit)(void *visitor, const struct index_segment *segment), void *visitor)
{
    const struct read_walk walk = {.visit_segment = visit, .visitor = visitor};
    struct index_lmdb *lmdb = lmdb_of(index);

    if (lmdb->lmdb != NULL)
        KVT_TRY(lmdb_touch_walk(lmdb));
    return read_run(lmdb, lmdb->segment, &walk);
}
