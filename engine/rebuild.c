/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rebuild.c - a new index from the batch headers of all segments (tiers/FORMAT.md section 4).
 *
 * A batch counts unless a void entry names it. A record of one that counts is live when its
 * namespace has its epoch, its payload is not torn (looked at where a crash may have torn it), no
 * kill of its key has a sequence at or above its own, and no other such record of the key has a
 * higher one. Those that are dead, and that no kill names, get one.
 *
 * Threads   the thread that opens.
 */
#include <stdlib.h>

#include "array.h"
#include "image.h"
#include "rebuild_internal.h"
#include "store_internal.h"

enum {
    REBUILD_BATCH = 1024, /* Records, or segments, in a transaction. */
    /* With blocks, and not void: others say nothing of how old one is that may be torn. Until it is
     * answered the rest of commit.c's and one of relocate.c can be put behind it; when it has
     * failed each that is put later names it as void (commit_voids()), so that it is the 7th at
     * most. Twice as many: more cost no more than reads. */
    UNPROVEN_BATCHES = 2 * (COMMIT_GROUP_MAX + 1),
    READS_MAX = 2, /* Of a payload that is not right the first time. */
    MAP_BYTES_LEAST = 1 << 20,
    MAP_RECORD_BYTES = 350, /* With the map's reserve. A map that is too small grows. */
};

/* --- Which batches count ---------------------------------------------------------------------- */

/* The one that a void entry names; NULL: it is not there. */
static struct found_batch *
batch_named(struct rebuild *rebuild, const struct tier_kill *entry)
{
    for (uint32_t i = 0; i < rebuild->batch_count; i++) {
        struct found_batch *batch = &rebuild->batches[i];
        const struct extent *extent = &batch->header;

        if (batch->number == entry->sequence && extent->segment == entry->extent.segment &&
            extent->generation == entry->extent.generation && extent->page == entry->extent.page)
            return batch;
    }
    return NULL;
}

/* A void entry names a batch that was never committed: the life in which it failed wrote it. It
 * counts in a batch that is void itself, too: what it says stays true. */
static void
batches_void(struct rebuild *rebuild)
{
    for (uint32_t i = 0; i < rebuild->kill_count; i++) {
        const struct tier_kill *kill = &rebuild->kills[i];
        struct found_batch *batch =
            hash128_is_zero(kill->fingerprint) ? batch_named(rebuild, kill) : NULL;

        if (batch != NULL)
            batch->is_void = true;
    }
}

/* --- Which payloads are whole ----------------------------------------------------------------- */

/* Newest first. */
static int
batch_compare(const void *a, const void *b)
{
    const struct found_batch *left = a;
    const struct found_batch *right = b;

    if (left->number != right->number)
        return left->number > right->number ? -1 : 1;
    return 0;
}

/*
 * Torn is what was read, and is wrong, each time. What cannot be read may be whole: an older copy,
 * the place of which it took with an acknowledgement, must not come back for that. It counts, and
 * is judged when somebody gets it.
 */
static enum kvt_status
payload_judge(
    struct rebuild *rebuild, const struct block_record *record, void *memory, bool *is_torn_out)
{
    const struct image_shape shape = {.length = record->length,
        .stored_length = record->stored_length,
        .part_count = record->part_count,
        .has_trailer = record->codec == RECORD_PARTS,
        .checksum = record->checksum};
    enum kvt_status status = KVT_OK;

    for (uint32_t i = 0; i < READS_MAX; i++) {
        status = nvme_peek(rebuild->store->nvme, &record->extent, record->stored_length, memory);
        *is_torn_out = status == KVT_OK && !image_is_right(&shape, memory);
        if (status == KVT_E_NOMEM || (status == KVT_OK && !*is_torn_out))
            break;
    }
    rebuild->unread_count += status != KVT_OK;
    return status == KVT_E_NOMEM ? KVT_E_NOMEM : KVT_OK;
}

static enum kvt_status
batch_prove(struct rebuild *rebuild, struct found_batch *batch, void *memory)
{
    for (uint32_t i = 0; i < batch->record_count; i++) {
        struct found_record *found = &rebuild->records[batch->first_record + i];
        bool is_torn;

        KVT_TRY(payload_judge(rebuild, &found->record, memory, &is_torn));
        if (!is_torn)
            continue;
        found->mark = RECORD_TORN;
        batch->has_torn = true;
        rebuild->torn_count++;
    }
    return KVT_OK;
}

/*
 * A header may have reached the disk before a crash, and its payloads not: such a copy must not
 * hide an older one of its key. Batches are answered in the order of their numbers, so that only
 * the last ones of each life can be torn.
 */
static enum kvt_status
batches_prove(struct rebuild *rebuild)
{
    const struct kvt_env *env = &rebuild->store->env;
    size_t size = (size_t)round_up(
        rebuild->store->file.block_bytes_max + IMAGE_TRAILER_BYTES_MAX, PAGE_BYTES);
    void *memory;
    uint64_t epoch = 0;
    uint32_t count = 0;
    enum kvt_status status = KVT_OK;

    if (rebuild->batch_count == 0)
        return KVT_OK;
    memory = env_map(env, size);
    if (memory == NULL)
        return rebuild_no_memory(rebuild);
    qsort(rebuild->batches, rebuild->batch_count, sizeof(*rebuild->batches), batch_compare);
    for (uint32_t i = 0; i < rebuild->batch_count && status == KVT_OK; i++) {
        struct found_batch *batch = &rebuild->batches[i];

        if (batch->number >> EPOCH_SHIFT != epoch)
            count = 0;
        epoch = batch->number >> EPOCH_SHIFT;
        if (batch->record_count > 0 && !batch->is_void && count++ < UNPROVEN_BATCHES)
            status = batch_prove(rebuild, batch, memory);
    }
    env_unmap(env, memory, size);
    return status;
}

/* --- Which records live ----------------------------------------------------------------------- */

static enum kvt_status
trace_add(struct rebuild *rebuild, const struct trace *trace)
{
    if (rebuild->trace_count == rebuild->trace_capacity) {
        struct trace *grown = array_grow(
            &rebuild->store->env, rebuild->traces, &rebuild->trace_capacity, sizeof(*grown));

        if (grown == NULL)
            return rebuild_no_memory(rebuild);
        rebuild->traces = grown;
    }
    rebuild->traces[rebuild->trace_count++] = *trace;
    return KVT_OK;
}

/* Whether the kill is of the copy that a torn one of its own batch was to replace: then that
 * stays. */
static bool
kill_is_for_torn(
    struct rebuild *rebuild, const struct found_batch *batch, const struct tier_kill *kill)
{
    if (!batch->has_torn)
        return false;
    for (uint32_t i = batch->first_record; i < batch->first_record + batch->record_count; i++) {
        const struct found_record *found = &rebuild->records[i];

        if (found->mark == RECORD_TORN &&
            hash128_equal(key_fingerprint(rebuild->store->fingerprint_seed, &found->record.key),
                kill->fingerprint))
            return true;
    }
    return false;
}

/* Everything of the batches that count. */
static enum kvt_status
batch_trace(struct rebuild *rebuild, const struct found_batch *batch)
{
    for (uint32_t i = batch->first_record; i < batch->first_record + batch->record_count; i++) {
        const struct block_record *record = &rebuild->records[i].record;
        const struct trace trace = {
            .fingerprint = key_fingerprint(rebuild->store->fingerprint_seed, &record->key),
            .sequence = record->sequence,
            .record = i,
            .extent = record->extent};

        KVT_TRY(trace_add(rebuild, &trace));
    }
    for (uint32_t i = batch->first_kill; i < batch->first_kill + batch->kill_count; i++) {
        const struct tier_kill *kill = &rebuild->kills[i];

        const struct trace trace = {.fingerprint = kill->fingerprint,
            .sequence = kill->sequence,
            .record = UINT32_MAX,
            .extent = kill->extent};

        if (!kill_is_for_torn(rebuild, batch, kill))
            KVT_TRY(trace_add(rebuild, &trace));
    }
    return KVT_OK;
}

static enum kvt_status
batches_trace(struct rebuild *rebuild)
{
    for (uint32_t i = 0; i < rebuild->batch_count; i++) {
        if (!rebuild->batches[i].is_void)
            KVT_TRY(batch_trace(rebuild, &rebuild->batches[i]));
    }
    return KVT_OK;
}

static int
fingerprint_compare(struct hash128 left, struct hash128 right)
{
    if (left.high != right.high)
        return left.high < right.high ? -1 : 1;
    return (left.low > right.low) - (left.low < right.low);
}

/* Newest first, then kills before records. */
static int
age_compare(const struct trace *left, const struct trace *right)
{
    if (left->sequence != right->sequence)
        return left->sequence > right->sequence ? -1 : 1;
    return (left->record != UINT32_MAX) - (right->record != UINT32_MAX);
}

/* By key, then by age. */
static int
trace_compare(const void *a, const void *b)
{
    const struct trace *left = a;
    const struct trace *right = b;
    int order = fingerprint_compare(left->fingerprint, right->fingerprint);

    return order != 0 ? order : age_compare(left, right);
}

/* Whether both are, or name, copies of one key in one fill of a segment; else how they compare. */
static int
fill_compare(const struct trace *left, const struct trace *right)
{
    int order = fingerprint_compare(left->fingerprint, right->fingerprint);

    if (order != 0)
        return order;
    if (left->extent.segment != right->extent.segment)
        return left->extent.segment < right->extent.segment ? -1 : 1;
    return (left->extent.generation > right->extent.generation) -
           (left->extent.generation < right->extent.generation);
}

/* By key, then by segment, then by age. */
static int
place_compare(const void *a, const void *b)
{
    int order = fill_compare(a, b);

    return order != 0 ? order : age_compare(a, b);
}

static int
record_compare(const void *a, const void *b)
{
    const struct block_record *left = &((const struct found_record *)a)->record;
    const struct block_record *right = &((const struct found_record *)b)->record;

    if (left->extent.segment != right->extent.segment)
        return left->extent.segment < right->extent.segment ? -1 : 1;
    return left->extent.page < right->extent.page ? -1 : left->extent.page > right->extent.page;
}

/*
 * Of the traces of one key the first one decides that is not a torn record: a kill, or the newest
 * record, which lives. Its kills, and the records that do not live, are put to where traces that
 * are kept end; of a key without such records nothing is. Nor are torn records that are newer than
 * the one that lives: a kill of theirs would reach that one as well. Returns the new end.
 */
static uint32_t
key_choose(struct rebuild *rebuild, uint32_t first, uint32_t end, uint32_t kept_end)
{
    uint32_t kept_first = kept_end;
    uint32_t dead_count = 0;
    bool is_decided = false;

    for (uint32_t i = first; i < end; i++) {
        const struct trace trace = rebuild->traces[i];
        bool is_kill = trace.record == UINT32_MAX;
        bool decides =
            !is_decided && (is_kill || rebuild->records[trace.record].mark != RECORD_TORN);

        is_decided = is_decided || decides;
        if (decides && !is_kill) {
            rebuild->records[trace.record].mark = RECORD_LIVE;
            kept_end = kept_first;
            dead_count = 0;
            continue;
        }
        rebuild->traces[kept_end++] = trace;
        dead_count += !is_kill;
    }
    return dead_count > 0 ? kept_end : kept_first;
}

/* Which records live; of the traces only those stay that copies_bury() needs. */
static void
traces_choose(struct rebuild *rebuild)
{
    uint32_t kept_count = 0;
    uint32_t end;

    if (rebuild->trace_count > 0)
        qsort(rebuild->traces, rebuild->trace_count, sizeof(*rebuild->traces), trace_compare);
    for (uint32_t first = 0; first < rebuild->trace_count; first = end) {
        const struct hash128 key = rebuild->traces[first].fingerprint;

        for (end = first + 1; end < rebuild->trace_count; end++) {
            if (!hash128_equal(rebuild->traces[end].fingerprint, key))
                break;
        }
        kept_count = key_choose(rebuild, first, end, kept_count);
    }
    rebuild->trace_count = kept_count;
}

/* Keep only the records that live, in order of place. */
static void
records_choose(struct rebuild *rebuild)
{
    uint32_t live_count = 0;
    struct found_record *records = rebuild->records;

    traces_choose(rebuild);
    for (uint32_t i = 0; i < rebuild->record_count; i++) {
        if (records[i].mark == RECORD_LIVE)
            records[live_count++] = records[i];
    }
    rebuild->record_count = live_count;
    if (live_count > 0)
        qsort(records, live_count, sizeof(*records), record_compare);
}

/*
 * A kill stands until the segment is filled anew in which the copy is that it names. A dead copy of
 * which none names its own segment is dead only as long as a kill of another copy of the key, or
 * what took its place, is there: it gets one.
 */
static enum kvt_status
copies_bury(struct rebuild *rebuild)
{
    const struct trace *traces = rebuild->traces;
    bool is_killed = false;

    if (rebuild->trace_count > 0)
        qsort(rebuild->traces, rebuild->trace_count, sizeof(*rebuild->traces), place_compare);
    for (uint32_t i = 0; i < rebuild->trace_count; i++) {
        const struct trace *trace = &traces[i];

        if (i == 0 || fill_compare(trace, &traces[i - 1]) != 0)
            is_killed = false;
        is_killed = is_killed || trace->record == UINT32_MAX;
        if (is_killed)
            continue;
        KVT_TRY(commit_kill(rebuild->store, &(struct commit_kill){.extent = trace->extent,
                                                .fingerprint = trace->fingerprint,
                                                .sequence = trace->sequence}));
        rebuild->buried_count++;
    }
    return KVT_OK;
}

/* From now on all that were found, and are not void, count as committed. In a segment those that
 * are void stand behind all others. */
static void
batches_number(struct rebuild *rebuild)
{
    for (uint32_t i = 0; i < rebuild->batch_count; i++) {
        const struct found_batch *batch = &rebuild->batches[i];
        struct segment *segment = segment_at(rebuild->store->segments, batch->header.segment);

        if (batch->is_void)
            continue;
        if (batch->number > segment->batch_number)
            segment->batch_number = batch->number;
        rebuild->later_count += batch->later_count;
    }
}

/* --- The new index ---------------------------------------------------------------------------- */

/* What a transaction has, or another one behind it. All are deferred: it is the install that makes
 * them durable. */
struct transaction {
    struct index_block blocks[REBUILD_BATCH];
    uint8_t bytes[REBUILD_BATCH][BLOCK_RECORD_BYTES_MAX];
    struct index_segment facts[REBUILD_BATCH];
};

static enum kvt_status
records_commit(struct rebuild *rebuild, struct index *index, struct transaction *transaction)
{
    struct kvt_store *store = rebuild->store;

    for (uint32_t first = 0; first < rebuild->record_count; first += REBUILD_BATCH) {
        struct index_batch batch = {.added = transaction->blocks};

        for (uint32_t i = first; i < rebuild->record_count && i < first + REBUILD_BATCH; i++) {
            const struct block_record *record = &rebuild->records[i].record;
            struct segment *segment = segment_at(store->segments, record->extent.segment);
            uint32_t n = batch.added_count++;
            uint8_t *bytes = transaction->bytes[n];

            transaction->blocks[n] = (struct index_block){.segment = record->extent.segment,
                .page = record->extent.page,
                .bytes = bytes,
                .size = (uint32_t)block_record_encode(record, bytes)};
            segment->record_count++;
            segment->crc_xor ^= block_record_crc(bytes);
        }
        KVT_TRY(index_commit_deferred(index, &batch));
    }
    return KVT_OK;
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
    uint64_t least = MAP_BYTES_LEAST + (uint64_t)rebuild->record_count * MAP_RECORD_BYTES;
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
    status = rebuild_scan(&rebuild);
    if (status == KVT_OK) {
        batches_void(&rebuild);
        batches_number(&rebuild);
        status = batches_prove(&rebuild);
    }
    if (status == KVT_OK)
        status = batches_trace(&rebuild);
    if (status == KVT_OK) {
        records_choose(&rebuild);
        status = index_write(&rebuild);
    }
    if (status == KVT_OK)
        status = copies_bury(&rebuild);
    if (rebuild.torn_count > 0)
        log_line(&store->logger, LOG_WARN, "rebuild",
            "event=torn blocks=%u text=\"written last before a crash, and not whole\"",
            rebuild.torn_count);
    if (rebuild.buried_count > 0)
        log_line(&store->logger, LOG_INFO, "rebuild",
            "event=buried blocks=%u text=\"dead, and no kill of them was found\"",
            rebuild.buried_count);
    if (rebuild.unread_count > 0)
        log_line(&store->logger, LOG_WARN, "rebuild",
            "event=unread blocks=%u text=\"written last, and cannot be read: they count\"",
            rebuild.unread_count);
    if (rebuild.later_count > 0)
        log_line(&store->logger, LOG_WARN, "rebuild",
            "event=later blocks=%u text=\"of a later version: they are misses\"",
            rebuild.later_count);
    COUNT(store, recover_dropped_count, rebuild.later_count);
    env_put(&store->env, rebuild.kills, rebuild.kill_capacity * sizeof(*rebuild.kills));
    env_put(&store->env, rebuild.batches, rebuild.batch_capacity * sizeof(*rebuild.batches));
    env_put(&store->env, rebuild.records, rebuild.record_capacity * sizeof(*rebuild.records));
    env_put(&store->env, rebuild.traces, rebuild.trace_capacity * sizeof(*rebuild.traces));
    return status;
}
