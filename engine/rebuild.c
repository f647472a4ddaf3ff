/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rebuild.c - a new index from the batch headers of all segments (tiers/FORMAT.md section 4).
 *
 * Threads   the thread that opens.
 */
#include <stdlib.h>

#include "batch_header.h"
#include "rebuild_internal.h"
#include "store_internal.h"

enum {
    REBUILD_BATCH = 1024, /* Records, or segments, in a transaction. */
    MAP_BYTES_LEAST = 1 << 20,
    MAP_RECORD_BYTES = 350, /* With the map's reserve. A map that is too small grows. */
};

/* --- The new index ---------------------------------------------------------------------------- */

/* What a transaction has, or another one behind it. All are deferred: it is the install that makes
 * them durable. */
struct transaction {
    struct index_block blocks[REBUILD_BATCH];
    uint8_t bytes[REBUILD_BATCH][BLOCK_RECORD_BYTES_MAX];
    struct index_segment facts[REBUILD_BATCH];
};

/* The records that live, on their way into a new index. */
struct writer {
    struct rebuild *rebuild;
    struct index *index;
    struct transaction *transaction;
    struct index_batch batch;
    size_t next; /* Of the traces that live: the first whose record was not come to. */
    enum kvt_status status;
};

static enum kvt_status
writer_commit(struct writer *writer)
{
    enum kvt_status status = KVT_OK;

    if (writer->batch.added_count > 0)
        status = index_commit_deferred(writer->index, &writer->batch);
    writer->batch.added_count = 0;
    return status;
}

static enum kvt_status
record_write(struct writer *writer, const struct block_record *record)
{
    struct segment *segment = segment_at(writer->rebuild->store->segments, record->extent.segment);
    uint32_t n = writer->batch.added_count++;
    uint8_t *bytes = writer->transaction->bytes[n];

    writer->transaction->blocks[n] = (struct index_block){.segment = record->extent.segment,
        .page = record->extent.page,
        .bytes = bytes,
        .size = (uint32_t)block_record_encode(record, bytes)};
    segment->record_count++;
    segment->crc_xor ^= block_record_crc(bytes);
    return n + 1 < REBUILD_BATCH ? KVT_OK : writer_commit(writer);
}

/* The first of the traces that live at that place or behind it; live_count: there is none. */
static size_t
live_seek(struct writer *writer, const struct extent *place)
{
    const struct rebuild *rebuild = writer->rebuild;

    while (writer->next < rebuild->live_count &&
           extent_compare(&rebuild->traces[writer->next].extent, place) < 0)
        writer->next++;
    return writer->next;
}

static bool
batch_write(void *visitor, const struct batch_header *header, const struct block_record *records,
    const struct tier_kill *kills)
{
    struct writer *writer = visitor;
    const struct rebuild *rebuild = writer->rebuild;

    (void)kills;
    for (uint32_t i = 0; i < header->block_count && writer->status == KVT_OK; i++) {
        size_t live = live_seek(writer, &records[i].extent);

        if (live < rebuild->live_count &&
            extent_equal(&rebuild->traces[live].extent, &records[i].extent))
            writer->status = record_write(writer, &records[i]);
    }
    return false;
}

static bool
batch_has_live(struct writer *writer, const struct found_batch *batch)
{
    const struct rebuild *rebuild = writer->rebuild;
    size_t live = live_seek(writer, &batch->header);

    return !batch->is_void && live < rebuild->live_count &&
           rebuild->traces[live].extent.segment == batch->header.segment &&
           rebuild->traces[live].extent.page - batch->header.page < batch->total_pages;
}

static int
batch_compare(const void *a, const void *b)
{
    return extent_compare(
        &((const struct found_batch *)a)->header, &((const struct found_batch *)b)->header);
}

/* The batches that count stand behind each other, so that what lives in them comes in the order of
 * the index. */
static enum kvt_status
records_commit(struct rebuild *rebuild, struct index *index, struct transaction *transaction)
{
    struct writer writer = {.rebuild = rebuild,
        .index = index,
        .transaction = transaction,
        .batch = {.added = transaction->blocks}};

    if (rebuild->batch_count > 0)
        qsort(rebuild->batches, rebuild->batch_count, sizeof(*rebuild->batches), batch_compare);
    for (size_t i = 0; i < rebuild->batch_count; i++) {
        if (batch_has_live(&writer, &rebuild->batches[i]))
            KVT_TRY(rebuild_batch_read(rebuild, &rebuild->batches[i], batch_write, &writer));
        KVT_TRY(writer.status);
    }
    return writer_commit(&writer);
}

static enum kvt_status
segments_commit(struct rebuild *rebuild, struct index *index, struct transaction *transaction)
{
    struct kvt_store *store = rebuild->store;
    struct index_batch batch = {.segments = transaction->facts};
    struct segment *segment;
    uint32_t cursor = 0;

    while (store->nvme != NULL && (segment = segment_next(store->segments, &cursor)) != NULL) {
        if (segment->state == SEGMENT_FREE && segment->generation == 1)
            continue;
        segment_facts(segment, &transaction->facts[batch.segment_count++]);
        if (batch.segment_count < REBUILD_BATCH)
            continue;
        KVT_TRY(index_commit_deferred(index, &batch));
        batch.segment_count = 0;
    }
    return batch.segment_count == 0 ? KVT_OK : index_commit_deferred(index, &batch);
}

/*
 * The old index has its space until the new one is in its place: where the disk has no room for
 * another one of the usual size, one does in which the records have room.
 */
static enum kvt_status
index_create(struct rebuild *rebuild, struct index **index_out)
{
    struct kvt_store *store = rebuild->store;
    const struct store_world *world = &store->world;
    bool may_be_smaller = store->index_map_is_default && !store->is_being_made;
    uint64_t least = MAP_BYTES_LEAST + (uint64_t)rebuild->live_count * MAP_RECORD_BYTES;
    uint64_t map_bytes = store->options.index_map_bytes;

    for (;;) {
        enum kvt_status status = world->index_ops->create(
            world->index_context, &store->env, store->meta_dir, map_bytes, index_out);

        if (status != KVT_E_NOSPC || !may_be_smaller || map_bytes <= least)
            return status;
        map_bytes = map_bytes / 2 < least ? least : map_bytes / 2;
        log_line(&store->logger, LOG_WARN, "rebuild",
            "event=smaller_index map_bytes=%llu text=\"%s\"", (unsigned long long)map_bytes,
            failure_last()->text);
    }
}

static enum kvt_status
index_write(struct rebuild *rebuild)
{
    struct kvt_store *store = rebuild->store;
    const struct kvt_env *env = &store->env;
    struct transaction *transaction = env_take(env, sizeof(*transaction));
    struct index *index = NULL;
    enum kvt_status status;

    if (transaction == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory to write a new index");
    KVT_TRY_GOTO(index_create(rebuild, &index), done);
    KVT_TRY_GOTO(records_commit(rebuild, index, transaction), done);
    KVT_TRY_GOTO(segments_commit(rebuild, index, transaction), done);
    KVT_TRY_GOTO(index->ops->install(index), done);
    store->index = index;
    index = NULL;

done:
    if (index != NULL)
        index->ops->close(index);
    env_put(env, transaction, sizeof(*transaction));
    return status;
}

static void
rebuild_tell(const struct rebuild *rebuild)
{
    struct kvt_store *store = rebuild->store;

    if (rebuild->torn_count > 0)
        log_line(&store->logger, LOG_WARN, "rebuild",
            "event=torn blocks=%llu text=\"written last before a crash, and not whole\"",
            (unsigned long long)rebuild->torn_count);
    if (rebuild->buried_count > 0)
        log_line(&store->logger, LOG_INFO, "rebuild",
            "event=buried blocks=%llu text=\"dead, and no kill of them was found\"",
            (unsigned long long)rebuild->buried_count);
    if (rebuild->unread_count > 0)
        log_line(&store->logger, LOG_WARN, "rebuild",
            "event=unread blocks=%llu text=\"written last, and cannot be read: they count\"",
            (unsigned long long)rebuild->unread_count);
    if (rebuild->later_count > 0)
        log_line(&store->logger, LOG_WARN, "rebuild",
            "event=later blocks=%llu text=\"of a later version: they are misses\"",
            (unsigned long long)rebuild->later_count);
    COUNT(store, recover_dropped_count, rebuild->later_count);
}

enum kvt_status
rebuild_index(struct kvt_store *store)
{
    struct rebuild rebuild = {.store = store};
    enum kvt_status status = KVT_OK;

    /* A process that was killed may have left what no disk has yet: the new index must not name
     * it. When that cannot be, a later life finds such a block damaged, and what a recycle header
     * hides may be there again: a delete of it is not promised. */
    if (store->nvme != NULL && !store->is_read_only)
        status = nvme_files_sync(store->nvme);
    if (status != KVT_OK) {
        commit_doubt(store, status);
        log_line(&store->logger, LOG_WARN, "rebuild", "event=sync_failed text=\"%s\"",
            failure_last()->text);
    }
    KVT_TRY_GOTO(rebuild_scan(&rebuild), done);
    KVT_TRY_GOTO(rebuild_choose(&rebuild), done);
    KVT_TRY_GOTO(index_write(&rebuild), done);
    status = rebuild_bury(&rebuild);

done:
    rebuild_tell(&rebuild);
    env_put(&store->env, rebuild.passed_segments,
        rebuild.passed_capacity * sizeof(*rebuild.passed_segments));
    env_put(&store->env, rebuild.batches, rebuild.batch_capacity * sizeof(*rebuild.batches));
    env_put(&store->env, rebuild.traces, rebuild.trace_capacity * sizeof(*rebuild.traces));
    return status;
}
