/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commit_batch.c - putting an index transaction together.
 */
#include "commit_batch.h"

#include <stdlib.h>

#include "commit.h"
#include "committer.h"
#include "relocate.h"
#include "store_internal.h"

void
index_work_reset(struct index_work *work)
{
    work->added_count = work->deleted_count = work->touched_count = 0;
    work->change = NULL;
}

void
index_work_touch(struct index_work *work, uint32_t segment)
{
    KVT_ASSERT(work->touched_count < COMMIT_SEGMENTS_MAX);
    work->touched[work->touched_count++] = segment;
}

uint32_t
index_work_add(struct kvt_store *store, struct index_work *work, const struct block_record *record)
{
    struct segment *segment = segment_at(store->segments, record->extent.segment);
    uint8_t *bytes = work->records[work->added_count];
    uint32_t size = (uint32_t)block_record_encode(record, bytes);
    uint32_t crc = block_record_crc(bytes);

    work->added[work->added_count++] = (struct index_block){.segment = record->extent.segment,
        .page = record->extent.page,
        .bytes = bytes,
        .size = size};
    segment->record_count++;
    segment->crc_xor ^= crc;
    segment->live_bytes += (uint64_t)pages_of(record->stored_length) * PAGE_BYTES;
    index_work_touch(work, segment->number);
    return crc;
}

void
index_work_delete(struct kvt_store *store, struct index_work *work, const struct extent *extent,
    uint32_t record_crc)
{
    struct segment *segment = segment_at(store->segments, extent->segment);

    /* The segment was recycled meanwhile: the record went with it. */
    if (segment->generation != extent->generation || segment->state == SEGMENT_RECYCLING)
        return;
    KVT_ASSERT(segment->record_count > 0);
    work->deleted[work->deleted_count++] =
        (struct index_block){.segment = extent->segment, .page = extent->page};
    segment->record_count--;
    segment->crc_xor ^= record_crc;
    index_work_touch(work, segment->number);
}

void
index_work_change(struct index_work *work, const struct segment_change *change)
{
    KVT_ASSERT(work->change == NULL);
    work->change = change;
    index_work_touch(work, change->facts.number);
}

static int
number_compare(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a;
    uint32_t right = *(const uint32_t *)b;

    return left < right ? -1 : left > right;
}

static int
block_compare(const void *a, const void *b)
{
    const struct index_block *left = a;
    const struct index_block *right = b;

    if (left->segment != right->segment)
        return left->segment < right->segment ? -1 : 1;
    return left->page < right->page ? -1 : left->page > right->page;
}

/* A segment that was closed in memory is ACTIVE in the index until its last batch is committed, and
 * void entries for those that failed are: after a crash what stands in an ACTIVE one without a
 * commit is taken away (strays.h). */
static void
facts_take(struct kvt_store *store, const struct index_work *work, uint32_t number,
    struct index_segment *facts_out)
{
    if (work->change != NULL && work->change->facts.number == number) {
        *facts_out = work->change->facts;
        return;
    }
    segment_facts(segment_at(store->segments, number), facts_out);
    if (facts_out->state == SEGMENT_SEALED &&
        (segment_at(store->segments, number)->void_count > 0 || commit_writes(store, number) ||
            relocate_is_writing(store, number)))
        facts_out->state = SEGMENT_ACTIVE;
}

void
index_work_seal(struct kvt_store *store, struct index_work *work, struct index_batch *batch_out)
{
    uint32_t segment_count = 0;

    qsort(work->touched, work->touched_count, sizeof(work->touched[0]), number_compare);
    qsort(work->added, work->added_count, sizeof(work->added[0]), block_compare);
    qsort(work->deleted, work->deleted_count, sizeof(work->deleted[0]), block_compare);
    for (uint32_t i = 0; i < work->touched_count; i++) {
        if (i > 0 && work->touched[i] == work->touched[i - 1])
            continue;
        facts_take(store, work, work->touched[i], &work->segments[segment_count++]);
    }
    *batch_out = (struct index_batch){
        .added = work->added,
        .added_count = work->added_count,
        .deleted = work->deleted,
        .deleted_count = work->deleted_count,
        .segments = work->segments,
        .segment_count = segment_count,
    };
    if (work->change != NULL && work->change->is_emptied) {
        batch_out->emptied = &work->change->facts.number;
        batch_out->emptied_count = 1;
    }
}
