/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index_model.h - what an index should hold, as plain arrays, and batches that change both.
 *
 * A record's bytes come from its place and a version, so that nothing has to be kept but these.
 * Segments' facts are those that lmdb_check() wants to see: count and XOR of the records.
 */
#ifndef KVT_TESTS_INDEX_MODEL_H
#define KVT_TESTS_INDEX_MODEL_H

#include "block_record.h"
#include "index.h"
#include "rng.h"

enum {
    MODEL_SEGMENTS = 6,
    MODEL_PAGES = 700,
    MODEL_BATCH_MAX = 256,
};

struct index_model {
    uint32_t versions[MODEL_SEGMENTS][MODEL_PAGES]; /* 0: no record. */
    struct index_segment segments[MODEL_SEGMENTS];  /* generation 0: no facts. */
    uint32_t version_next;
};

/* A batch with memory for all that it points to. */
struct model_batch {
    struct index_batch batch;
    struct index_block added[MODEL_BATCH_MAX];
    struct index_block deleted[MODEL_BATCH_MAX];
    uint32_t emptied[MODEL_SEGMENTS];
    struct index_segment segments[MODEL_SEGMENTS];
    uint8_t bytes[MODEL_BATCH_MAX][BLOCK_RECORD_BYTES_MAX];
};

/* model_segment - the segment number of row `i`: not consecutive, on two roots. */
uint32_t model_segment(uint32_t i);

/* model_record - encode the record of a place; returns its size. */
uint32_t model_record(uint32_t segment, uint32_t page, uint32_t version, uint8_t *target);

/* index_model_empty - before anything else is put into the batch: no record of the row is left. */
void index_model_empty(struct index_model *model, struct model_batch *batch, uint32_t row);

/* model_add, index_model_delete - change the model and put the change into the batch. */
void model_add(struct index_model *model, struct model_batch *batch, uint32_t row, uint32_t page);
void index_model_delete(
    struct index_model *model, struct model_batch *batch, uint32_t row, uint32_t page);

/* model_seal - sort the additions and put the facts of all segments into the batch. */
void model_seal(struct index_model *model, struct model_batch *batch);

/* model_batch_random - start `batch` anew with up to `added` additions and `deleted` deletions. */
void model_batch_random(struct index_model *model, struct model_batch *batch, struct rng *rng,
    uint32_t added, uint32_t deleted);

/* model_facts - the facts of a row as the model has them now. */
struct index_segment model_facts(const struct index_model *model, uint32_t row);
uint32_t model_count(const struct index_model *model);

/* model_check - stops the test unless the index holds exactly what the model does. */
void model_check(const struct index_model *model, struct index *index);

#endif /* KVT_TESTS_INDEX_MODEL_H */
