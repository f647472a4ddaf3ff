/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commit_batch.h - the index transaction of write batches: what is added, deleted, which segments'
 * facts change. Used by commit_group.c and relocate.c.
 *
 * The segment table is changed while the transaction is put together, in the order in which the
 * committer will run them, so that facts in the index always agree with its records.
 */
#ifndef KVT_ENGINE_COMMIT_BATCH_H
#define KVT_ENGINE_COMMIT_BATCH_H

#include "block_record.h"
#include "index.h"
#include "request.h"

enum {
    COMMIT_BLOCKS_MAX = 256,
    COMMIT_KILLS_MAX = 1024,
    COMMIT_GROUP_MAX = 6, /* Batches of one transaction: all that there are. */
    COMMIT_ADDED_MAX = COMMIT_GROUP_MAX * COMMIT_BLOCKS_MAX,
    COMMIT_DELETED_MAX = COMMIT_GROUP_MAX * (COMMIT_BLOCKS_MAX + COMMIT_KILLS_MAX),
    COMMIT_SEGMENTS_MAX = COMMIT_ADDED_MAX + COMMIT_DELETED_MAX + 32,
};

/* What becomes of one segment, with the next transaction of batches; the caller's until `finish`
 * (on the loop). */
struct segment_change {
    struct index_segment facts;
    bool is_emptied; /* All its records leave the index. */
    void (*finish)(struct kvt_store *store, struct segment_change *change, enum kvt_status status);
};

struct index_work {
    struct index_block added[COMMIT_ADDED_MAX];
    uint8_t records[COMMIT_ADDED_MAX][BLOCK_RECORD_BYTES_MAX];
    struct index_block deleted[COMMIT_DELETED_MAX];
    uint32_t touched[COMMIT_SEGMENTS_MAX];
    struct index_segment segments[COMMIT_SEGMENTS_MAX];
    uint32_t added_count, deleted_count, touched_count;
    const struct segment_change *change; /* NULL: none. */
};

void index_work_reset(struct index_work *work);

/* index_work_add - a record; returns its CRC. */
uint32_t index_work_add(
    struct kvt_store *store, struct index_work *work, const struct block_record *record);

/* index_work_delete - the record at `extent` with that CRC. */
void index_work_delete(struct kvt_store *store, struct index_work *work,
    const struct extent *extent, uint32_t record_crc);

/* index_work_touch - the facts of a segment have changed. */
void index_work_touch(struct index_work *work, uint32_t segment);

/* index_work_change - at most one; its facts count, whatever else touches the segment. */
void index_work_change(struct index_work *work, const struct segment_change *change);

/* index_work_seal - collect the facts of what was touched; the batch is then ready. */
void index_work_seal(
    struct kvt_store *store, struct index_work *work, struct index_batch *batch_out);

#endif /* KVT_ENGINE_COMMIT_BATCH_H */
