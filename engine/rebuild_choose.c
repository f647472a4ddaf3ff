/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rebuild_choose.c - which of the blocks that the headers name live (tiers/FORMAT.md section 4).
 *
 * A batch counts unless a void entry names it. A record of one that counts is live when its
 * namespace has its epoch, its payload is not torn (looked at where a crash may have torn it), no
 * kill of its key has a sequence at or above its own, and no other such record of the key has a
 * higher one. Those that are dead, and that no kill names, get one.
 *
 * Threads   the thread that opens.
 */
#include <stdlib.h>

#include "batch_header.h"
#include "image.h"
#include "rebuild_internal.h"
#include "store_internal.h"

enum {
    /* With blocks, and not void: others say nothing of how old one is that may be torn. Until it is
     * answered the rest of commit.c's and one of relocate.c can be put behind it; when it has
     * failed each that is put later names it as void (commit_voids()), so that it is the 7th at
     * most. Twice as many: more cost no more than reads. */
    UNPROVEN_BATCHES = 2 * (COMMIT_GROUP_MAX + 1),
};

/* --- Which batches count ---------------------------------------------------------------------- */

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

/* The first batch, of those in order, with no higher number. */
static size_t
batch_seek(const struct rebuild *rebuild, uint64_t number)
{
    size_t low = 0;
    size_t high = rebuild->batch_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (rebuild->batches[middle].number > number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The batch that a void entry names; NULL: it is not there. */
static struct found_batch *
batch_named(struct rebuild *rebuild, const struct trace *entry)
{
    for (size_t i = batch_seek(rebuild, entry->sequence); i < rebuild->batch_count; i++) {
        struct found_batch *batch = &rebuild->batches[i];

        if (batch->number != entry->sequence)
            return NULL;
        if (extent_equal(&batch->header, &entry->extent))
            return batch;
    }
    return NULL;
}

/* A void entry names a batch that was never committed: the life in which it failed wrote it. It
 * counts in a batch that is void itself, too: what it says stays true. */
static void
batches_void(struct rebuild *rebuild)
{
    for (size_t i = 0; i < rebuild->trace_count; i++) {
        struct trace *trace = &rebuild->traces[i];
        struct found_batch *batch;

        if (trace->mark != TRACE_KILL || !hash128_is_zero(trace->fingerprint))
            continue;
        trace->mark = TRACE_VOID;
        batch = batch_named(rebuild, trace);
        if (batch != NULL)
            batch->is_void = true;
    }
}

static void
traces_void(struct rebuild *rebuild)
{
    for (size_t i = 0; i < rebuild->batch_count; i++) {
        const struct found_batch *batch = &rebuild->batches[i];

        for (uint32_t k = 0; batch->is_void && k < batch->record_count + batch->kill_count; k++)
            rebuild->traces[batch->first_trace + k].mark = TRACE_VOID;
    }
}

/* From now on all that were found, and are not void, count as committed. In a segment those that
 * are void stand behind all others. */
static void
batches_number(struct rebuild *rebuild)
{
    for (size_t i = 0; i < rebuild->batch_count; i++) {
        const struct found_batch *batch = &rebuild->batches[i];
        struct segment *segment = segment_at(rebuild->store->segments, batch->header.segment);

        if (batch->is_void)
            continue;
        if (batch->number > segment->batch_number)
            segment->batch_number = batch->number;
        rebuild->later_count += batch->later_count;
    }
}

/* --- Which payloads are whole ----------------------------------------------------------------- */

/* A batch whose payloads are looked at. */
struct proof {
    struct rebuild *rebuild;
    const struct found_batch *batch;
    uint8_t *memory; /* For a payload. */
    enum kvt_status status;
};

/*
 * Torn is what was read, and is wrong, each time. What cannot be read may be whole: an older copy,
 * the place of which it took with an acknowledgement, must not come back for that. It counts, and
 * is judged when somebody gets it.
 */
static enum kvt_status
payload_judge(struct proof *proof, const struct block_record *record, bool *is_torn_out)
{
    const struct image_shape shape = {.length = record->length,
        .stored_length = record->stored_length,
        .part_count = record->part_count,
        .has_trailer = record->codec == RECORD_PARTS,
        .checksum = record->checksum};
    struct nvme_tier *nvme = proof->rebuild->store->nvme;
    enum kvt_status status = KVT_OK;

    *is_torn_out = false;
    for (uint32_t i = 0; i < REBUILD_READS_MAX; i++) {
        status = nvme_peek(nvme, &record->extent, record->stored_length, proof->memory);
        *is_torn_out = status == KVT_OK && !image_is_right(&shape, proof->memory);
        if (status == KVT_E_NOMEM || (status == KVT_OK && !*is_torn_out))
            break;
    }
    proof->rebuild->unread_count += status != KVT_OK;
    return status == KVT_E_NOMEM ? KVT_E_NOMEM : KVT_OK;
}

/* The kill of the copy that a torn one of its own batch was to replace is of no account: that
 * stays. */
static void
torn_note(struct proof *proof, struct trace *torn)
{
    struct trace *kills =
        &proof->rebuild->traces[proof->batch->first_trace + proof->batch->record_count];

    torn->mark = TRACE_TORN;
    proof->rebuild->torn_count++;
    for (uint32_t i = 0; i < proof->batch->kill_count; i++) {
        if (hash128_equal(kills[i].fingerprint, torn->fingerprint))
            kills[i].mark = TRACE_VOID;
    }
}

static bool
batch_prove(void *visitor, const struct batch_header *header, const struct block_record *records,
    const struct tier_kill *kills)
{
    struct proof *proof = visitor;
    struct trace *traces = &proof->rebuild->traces[proof->batch->first_trace];
    uint32_t next = 0;

    (void)kills;
    for (uint32_t i = 0; i < header->block_count && proof->status == KVT_OK; i++) {
        bool is_torn;

        if (next == proof->batch->record_count ||
            !extent_equal(&traces[next].extent, &records[i].extent))
            continue; /* Of a namespace that was cleared. */
        proof->status = payload_judge(proof, &records[i], &is_torn);
        if (is_torn)
            torn_note(proof, &traces[next]);
        next++;
    }
    return false;
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
    struct proof proof = {.rebuild = rebuild, .status = KVT_OK};
    uint64_t epoch = 0;
    uint32_t count = 0;
    enum kvt_status status = KVT_OK;

    if (rebuild->batch_count == 0)
        return KVT_OK;
    proof.memory = env_map(env, size);
    if (proof.memory == NULL)
        return rebuild_no_memory(rebuild);
    for (size_t i = 0; i < rebuild->batch_count && status == KVT_OK; i++) {
        const struct found_batch *batch = &rebuild->batches[i];

        if (batch->number >> EPOCH_SHIFT != epoch)
            count = 0;
        epoch = batch->number >> EPOCH_SHIFT;
        if (batch->record_count == 0 || batch->is_void || count++ >= UNPROVEN_BATCHES)
            continue;
        proof.batch = batch;
        status = rebuild_batch_read(rebuild, batch, batch_prove, &proof);
        if (status == KVT_OK)
            status = proof.status;
    }
    env_unmap(env, proof.memory, size);
    return status;
}

/* --- Which records live ----------------------------------------------------------------------- */

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
    return (left->mark != TRACE_KILL) - (right->mark != TRACE_KILL);
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

/* Those that live first, by place; then the others by key, then by segment, then by age. */
static int
chosen_compare(const void *a, const void *b)
{
    const struct trace *left = a;
    const struct trace *right = b;
    int order = (left->mark != TRACE_LIVE) - (right->mark != TRACE_LIVE);

    if (order == 0 && left->mark == TRACE_LIVE)
        return extent_compare(&left->extent, &right->extent);
    if (order == 0)
        order = fill_compare(left, right);
    return order != 0 ? order : age_compare(left, right);
}

static void
traces_sort(struct rebuild *rebuild, int (*compare)(const void *, const void *))
{
    if (rebuild->trace_count > 0)
        qsort(rebuild->traces, rebuild->trace_count, sizeof(*rebuild->traces), compare);
}

/*
 * Of the traces of one key the first one decides that is not a torn record: a kill, or the newest
 * record, which lives. That, its kills, and the records that do not live are put to where traces
 * that are kept end; of a key without records that do not live no kills are. Nor are torn records
 * that are newer than the one that lives: a kill of theirs would reach that one as well. Returns
 * the new end.
 */
static size_t
key_choose(struct rebuild *rebuild, size_t first, size_t end, size_t kept_end)
{
    struct trace *traces = rebuild->traces;
    size_t kept_first = kept_end;
    size_t dead_count = 0;
    bool is_decided = false;

    for (size_t i = first; i < end; i++) {
        struct trace trace = traces[i];
        bool is_kill = trace.mark == TRACE_KILL;

        if (!is_decided && trace.mark == TRACE_RECORD) {
            trace.mark = TRACE_LIVE;
            traces[kept_first++] = trace;
            kept_end = kept_first;
            dead_count = 0;
            rebuild->live_count++;
        } else {
            traces[kept_end++] = trace;
            dead_count += !is_kill;
        }
        is_decided = is_decided || trace.mark != TRACE_TORN;
    }
    return dead_count > 0 ? kept_end : kept_first;
}

static void
traces_drop(struct rebuild *rebuild)
{
    size_t kept_count = 0;

    for (size_t i = 0; i < rebuild->trace_count; i++) {
        if (rebuild->traces[i].mark != TRACE_VOID)
            rebuild->traces[kept_count++] = rebuild->traces[i];
    }
    rebuild->trace_count = kept_count;
}

static void
traces_choose(struct rebuild *rebuild)
{
    size_t kept_count = 0;
    size_t end;

    traces_sort(rebuild, trace_compare);
    for (size_t first = 0; first < rebuild->trace_count; first = end) {
        const struct hash128 key = rebuild->traces[first].fingerprint;

        for (end = first + 1; end < rebuild->trace_count; end++) {
            if (!hash128_equal(rebuild->traces[end].fingerprint, key))
                break;
        }
        kept_count = key_choose(rebuild, first, end, kept_count);
    }
    rebuild->trace_count = kept_count;
    traces_sort(rebuild, chosen_compare);
}

enum kvt_status
rebuild_choose(struct rebuild *rebuild)
{
    if (rebuild->batch_count > 0)
        qsort(rebuild->batches, rebuild->batch_count, sizeof(*rebuild->batches), batch_compare);
    batches_void(rebuild);
    traces_void(rebuild);
    batches_number(rebuild);
    KVT_TRY(batches_prove(rebuild));
    traces_drop(rebuild);
    traces_choose(rebuild);
    return KVT_OK;
}

/* --- What is dead ----------------------------------------------------------------------------- */

/*
 * A kill stands until the segment is filled anew in which the copy is that it names. A dead copy of
 * which none names its own segment is dead only as long as a kill of another copy of the key, or
 * what took its place, is there: it gets one.
 */
enum kvt_status
rebuild_bury(struct rebuild *rebuild)
{
    const struct trace *traces = rebuild->traces;
    bool is_killed = false;

    for (size_t i = rebuild->live_count; i < rebuild->trace_count; i++) {
        const struct trace *trace = &traces[i];

        if (i == rebuild->live_count || fill_compare(trace, &traces[i - 1]) != 0)
            is_killed = false;
        is_killed = is_killed || trace->mark == TRACE_KILL;
        if (is_killed)
            continue;
        KVT_TRY(commit_kill(rebuild->store, &(struct commit_kill){.extent = trace->extent,
                                                .fingerprint = trace->fingerprint,
                                                .sequence = trace->sequence}));
        rebuild->buried_count++;
    }
    return KVT_OK;
}
