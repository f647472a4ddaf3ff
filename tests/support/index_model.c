/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index_model.c - the reference for indexes.
 */
#include "index_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

uint32_t
model_segment(uint32_t i)
{
    return (i % 2) << 24 | (i * 3 + 1);
}

uint32_t
model_record(uint32_t segment, uint32_t page, uint32_t version, uint8_t *target)
{
    struct rng rng = {.state = (uint64_t)segment << 40 ^ (uint64_t)page << 20 ^ version};
    struct block_record record = {
        .key = {.namespace_id = 1, .form = KEY_RAW},
        .namespace_epoch = 1,
        .extent = {.segment = segment, .generation = 1, .page = page},
        .sequence = version,
        .length = 1 + rng_below(&rng, 4096),
        .part_count = 1,
    };

    record.stored_length = record.length;
    record.key.length = (uint8_t)(1 + rng_below(&rng, KEY_BYTES_MAX));
    for (uint32_t i = 0; i < record.key.length; i++)
        record.key.bytes[i] = (uint8_t)rng_next(&rng);
    return (uint32_t)block_record_encode(&record, target);
}

void
index_model_empty(struct index_model *model, struct model_batch *batch, uint32_t row)
{
    uint32_t i = batch->batch.emptied_count++;

    assert_true(i < MODEL_SEGMENTS);
    memset(model->versions[row], 0, sizeof(model->versions[row]));
    batch->emptied[i] = model_segment(row);
}

void
model_add(struct index_model *model, struct model_batch *batch, uint32_t row, uint32_t page)
{
    uint32_t i = batch->batch.added_count++;
    uint32_t version = ++model->version_next;

    assert_true(i < MODEL_BATCH_MAX);
    model->versions[row][page] = version;
    batch->added[i].segment = model_segment(row);
    batch->added[i].page = page;
    batch->added[i].bytes = batch->bytes[i];
    batch->added[i].size = model_record(model_segment(row), page, version, batch->bytes[i]);
}

void
index_model_delete(
    struct index_model *model, struct model_batch *batch, uint32_t row, uint32_t page)
{
    uint32_t i = batch->batch.deleted_count++;

    assert_true(i < MODEL_BATCH_MAX);
    model->versions[row][page] = 0;
    batch->deleted[i] = (struct index_block){.segment = model_segment(row), .page = page};
}

static int
block_order(const void *a, const void *b)
{
    const struct index_block *left = a;
    const struct index_block *right = b;

    if (left->segment != right->segment)
        return left->segment < right->segment ? -1 : 1;
    if (left->page != right->page)
        return left->page < right->page ? -1 : 1;
    return left->bytes < right->bytes ? -1 : 1; /* In the order in which they were added. */
}

struct index_segment
model_facts(const struct index_model *model, uint32_t row)
{
    uint8_t bytes[BLOCK_RECORD_BYTES_MAX];
    struct index_segment facts = {
        .number = model_segment(row),
        .generation = 1 + model->version_next,
        .state = row % 4,
    };

    for (uint32_t page = 0; page < MODEL_PAGES; page++) {
        if (model->versions[row][page] == 0)
            continue;
        (void)model_record(model_segment(row), page, model->versions[row][page], bytes);
        facts.record_count++;
        facts.crc_xor ^= block_record_crc(bytes);
        facts.live_bytes += 4096;
    }
    return facts;
}

void
model_seal(struct index_model *model, struct model_batch *batch)
{
    qsort(batch->added, batch->batch.added_count, sizeof(batch->added[0]), block_order);
    qsort(batch->deleted, batch->batch.deleted_count, sizeof(batch->deleted[0]), block_order);
    for (uint32_t row = 0; row < MODEL_SEGMENTS; row++) {
        model->segments[row] = model_facts(model, row);
        batch->segments[row] = model->segments[row];
    }
    batch->batch.emptied = batch->emptied;
    batch->batch.added = batch->added;
    batch->batch.deleted = batch->deleted;
    batch->batch.segments = batch->segments;
    batch->batch.segment_count = MODEL_SEGMENTS;
}

void
model_batch_random(struct index_model *model, struct model_batch *batch, struct rng *rng,
    uint32_t added, uint32_t deleted)
{
    batch->batch = (struct index_batch){0};
    for (uint32_t i = 0; i < deleted; i++) {
        uint32_t page = rng_below(rng, MODEL_PAGES);
        uint32_t row = rng_below(rng, MODEL_SEGMENTS);

        index_model_delete(model, batch, row, page);
    }
    for (uint32_t i = 0; i < added; i++) {
        uint32_t row = rng_below(rng, MODEL_SEGMENTS);
        uint32_t page = rng_below(rng, MODEL_PAGES);

        if (model->versions[row][page] == 0)
            model_add(model, batch, row, page);
    }
    model_seal(model, batch);
}

uint32_t
model_count(const struct index_model *model)
{
    uint32_t count = 0;

    for (uint32_t row = 0; row < MODEL_SEGMENTS; row++) {
        for (uint32_t page = 0; page < MODEL_PAGES; page++)
            count += model->versions[row][page] != 0;
    }
    return count;
}

struct model_visit {
    const struct index_model *model;
    uint32_t count;
    uint64_t last; /* The place before, + 1. */
};

static uint32_t
row_of(uint32_t segment)
{
    for (uint32_t row = 0; row < MODEL_SEGMENTS; row++) {
        if (model_segment(row) == segment)
            return row;
    }
    fail_msg("the index has segment %u", (unsigned)segment);
    return 0;
}

static bool
block_compare(void *visitor, const struct index_block *block)
{
    struct model_visit *visit = visitor;
    uint64_t place = (uint64_t)block->segment << 32 | block->page;
    uint8_t bytes[BLOCK_RECORD_BYTES_MAX];
    uint32_t version;
    uint32_t size;

    assert_true(place + 1 > visit->last);
    assert_true(block->page < MODEL_PAGES);
    visit->last = place + 1;
    version = visit->model->versions[row_of(block->segment)][block->page];
    assert_int_not_equal(version, 0);
    size = model_record(block->segment, block->page, version, bytes);
    assert_int_equal(block->size, size);
    assert_memory_equal(block->bytes, bytes, size);
    visit->count++;
    return true;
}

static bool
segment_compare(void *visitor, const struct index_segment *segment)
{
    struct model_visit *visit = visitor;
    const struct index_segment *wanted = &visit->model->segments[row_of(segment->number)];

    assert_true((uint64_t)segment->number + 1 > visit->last);
    visit->last = (uint64_t)segment->number + 1;
    assert_int_equal(segment->number, wanted->number);
    assert_int_equal(segment->generation, wanted->generation);
    assert_int_equal(segment->state, wanted->state);
    assert_int_equal(segment->record_count, wanted->record_count);
    assert_int_equal(segment->crc_xor, wanted->crc_xor);
    assert_int_equal(segment->live_bytes, wanted->live_bytes);
    visit->count++;
    return true;
}

void
model_check(const struct index_model *model, struct index *index)
{
    struct model_visit visit = {.model = model};
    struct index_stats stats = {0};
    uint32_t segments = 0;

    assert_int_equal(index->ops->each_block(index, block_compare, &visit), KVT_OK);
    assert_int_equal(visit.count, model_count(model));
    index->ops->stats(index, &stats);
    assert_int_equal(stats.block_count, visit.count);
    assert_true(stats.used_bytes <= stats.map_bytes);
    visit = (struct model_visit){.model = model};
    assert_int_equal(index->ops->each_segment(index, segment_compare, &visit), KVT_OK);
    for (uint32_t row = 0; row < MODEL_SEGMENTS; row++)
        segments += model->segments[row].generation != 0;
    assert_int_equal(visit.count, segments);
}
