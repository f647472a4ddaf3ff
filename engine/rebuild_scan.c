/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rebuild_scan.c - what the headers of all segments say (tiers/FORMAT.md section 4), for a rebuild
 * of the index.
 *
 * Threads   the thread that opens.
 */
#include "array.h"
#include "batch_header.h"
#include "rebuild_internal.h"
#include "store_internal.h"

/* --- What the headers say --------------------------------------------------------------------- */

enum kvt_status
rebuild_no_memory(const struct rebuild *rebuild)
{
    return failure_set(
        KVT_E_NOMEM, 0, "no memory to rebuild from %zu records and kills", rebuild->trace_count);
}

static enum kvt_status
trace_add(struct rebuild *rebuild, const struct trace *trace)
{
    if (rebuild->trace_count == rebuild->trace_capacity) {
        struct trace *grown = array_grow_wide(
            &rebuild->store->env, rebuild->traces, &rebuild->trace_capacity, sizeof(*grown));

        if (grown == NULL)
            return rebuild_no_memory(rebuild);
        rebuild->traces = grown;
    }
    rebuild->traces[rebuild->trace_count++] = *trace;
    return KVT_OK;
}

static enum kvt_status
record_add(struct rebuild *rebuild, struct found_batch *batch, const struct block_record *record)
{
    struct kvt_store *store = rebuild->store;
    struct namespace_state *space = namespace_at(store, record->key.namespace_id);

    if (space == NULL)
        names_id_note(&store->names, record->key.namespace_id);
    if (space == NULL || record->length > store->file.block_bytes_max ||
        atomic_load_explicit(&space->epoch, memory_order_relaxed) != record->namespace_epoch)
        return KVT_OK;
    batch->record_count++;
    return trace_add(rebuild,
        &(struct trace){.fingerprint = key_fingerprint(store->fingerprint_seed, &record->key),
            .sequence = record->sequence,
            .extent = record->extent,
            .mark = TRACE_RECORD});
}

static enum kvt_status
kill_add(struct rebuild *rebuild, struct found_batch *batch, const struct tier_kill *kill)
{
    batch->kill_count++;
    return trace_add(rebuild, &(struct trace){.fingerprint = kill->fingerprint,
                                  .sequence = kill->sequence,
                                  .extent = kill->extent,
                                  .mark = TRACE_KILL});
}

static enum kvt_status
batch_add(struct rebuild *rebuild, const struct found_batch *batch)
{
    if (rebuild->batch_count == rebuild->batch_capacity) {
        struct found_batch *grown = array_grow_wide(
            &rebuild->store->env, rebuild->batches, &rebuild->batch_capacity, sizeof(*grown));

        if (grown == NULL)
            return rebuild_no_memory(rebuild);
        rebuild->batches = grown;
    }
    rebuild->batches[rebuild->batch_count++] = *batch;
    return KVT_OK;
}

static bool
batch_visit(void *visitor, const struct batch_header *header, const struct block_record *records,
    const struct tier_kill *kills)
{
    struct rebuild *rebuild = visitor;
    struct found_batch batch = {.number = header->sequence,
        .first_trace = rebuild->trace_count,
        .header = header->extent,
        .total_pages = header->total_pages,
        .later_count = header->later_count,
        .is_bare = header->is_recycle && header->kill_count == 0};
    enum kvt_status status = KVT_OK;

    for (uint32_t i = 0; i < header->block_count && status == KVT_OK; i++)
        status = record_add(rebuild, &batch, &records[i]);
    for (uint32_t i = 0; i < header->kill_count && status == KVT_OK; i++)
        status = kill_add(rebuild, &batch, &kills[i]);
    if (status == KVT_OK)
        status = batch_add(rebuild, &batch);
    rebuild->status = status;
    return status == KVT_OK;
}

/* Go on without a header, or not: told, and counted, once for each segment. */
static enum kvt_status
header_pass_over(struct rebuild *rebuild, uint32_t segment, uint32_t page)
{
    for (uint32_t i = 0; i < rebuild->passed_count; i++) {
        if (rebuild->passed_segments[i] == segment)
            return KVT_OK;
    }
    KVT_TRY(recover_pass_over(rebuild->store, segment, page));
    if (rebuild->passed_count == rebuild->passed_capacity) {
        uint32_t *grown = array_grow(&rebuild->store->env, rebuild->passed_segments,
            &rebuild->passed_capacity, sizeof(*grown));

        if (grown == NULL)
            return rebuild_no_memory(rebuild);
        rebuild->passed_segments = grown;
    }
    rebuild->passed_segments[rebuild->passed_count++] = segment;
    return KVT_OK;
}

enum kvt_status
rebuild_batch_read(
    struct rebuild *rebuild, const struct found_batch *batch, nvme_scan_fn visit, void *visitor)
{
    enum kvt_status status = KVT_E_IO;

    for (uint32_t i = 0; i < REBUILD_READS_MAX && status == KVT_E_IO; i++)
        status =
            nvme_scan_again(rebuild->store->nvme, &batch->header, batch->number, visit, visitor);
    if (status == KVT_E_IO)
        return header_pass_over(rebuild, batch->header.segment, batch->header.page);
    return status;
}

/* --- All segments ----------------------------------------------------------------------------- */

/*
 * Whether nothing counts in a segment, and nothing is in doubt: of the highest generation it has
 * its recycle header, which has no kills, or two, when a cut fell between them, and no other. One
 * is written when the kills of the segment are durable elsewhere and its records are gone from the
 * index, or to one that is FREE: so nothing that is older counts any more, whatever becomes of the
 * segment. What a crash has torn so that no header is left to be found is no batch, and
 * strays_recycle() voids it before anything is written there. What looks like a header and is none,
 * or cannot be read (damaged_pages), may be one another day: then it is as if there were blocks.
 */
static bool
segment_is_free(
    const struct rebuild *rebuild, size_t first_batch, const struct nvme_scan_result *result)
{
    for (size_t i = first_batch; i < rebuild->batch_count; i++) {
        if (!rebuild->batches[i].is_bare)
            return false;
    }
    return rebuild->batch_count > first_batch && result->damaged_pages == 0;
}

enum kvt_status
rebuild_scan(struct rebuild *rebuild)
{
    struct kvt_store *store = rebuild->store;
    struct segment *segment;
    uint32_t cursor = 0;

    while (store->nvme != NULL && (segment = segment_next(store->segments, &cursor)) != NULL) {
        struct nvme_scan_result result;
        size_t first_batch = rebuild->batch_count;

        KVT_TRY(nvme_scan(store->nvme, segment->number, batch_visit, rebuild, &result));
        KVT_TRY(rebuild->status);
        if (result.generation > rebuild->generation_max)
            rebuild->generation_max = result.generation;
        if (result.unreadable_end > 0)
            KVT_TRY(header_pass_over(rebuild, segment->number, result.unreadable_end - 1));
        if ((result.generation == 0 && result.unreadable_end == 0) ||
            segment_is_free(rebuild, first_batch, &result))
            continue;
        segment_restore(
            store->segments, &(struct segment){.number = segment->number,
                                 .generation = result.generation == 0 ? 1 : result.generation,
                                 .state = SEGMENT_SEALED});
    }
    /* Whatever headers stand in the others, damaged or void: their next fill is newer. */
    cursor = 0;
    while (store->nvme != NULL && (segment = segment_next(store->segments, &cursor)) != NULL) {
        if (segment->state != SEGMENT_FREE || rebuild->generation_max == 0)
            continue;
        segment->generation = rebuild->generation_max + 1;
        segment->fill_page = SEGMENT_HEAD_PAGES_MAX;
    }
    return KVT_OK;
}
