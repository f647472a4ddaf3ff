/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvme_put.c - batches on their way into a segment: run, header, write, shared sync, answer.
 *
 * States of a put: nvme_internal.h. Rules on failure: nvme_tier.h.
 *
 * One sync of a root is out at a time. It covers the puts that were WRITTEN when it started, and no
 * others: the lane runs it beside the writes that are in flight, and those may end before or after
 * what it does. Whatever is WRITTEN when it is answered shares the next one. A sync starts only
 * when all answers that lie there have been taken: what was written together is synced together.
 */
#include "bytes.h"
#include "failure.h"
#include "nvme_internal.h"
#include "try.h"

#define SYNC_FAILURE_WINDOW_NS (60ull * 1000 * 1000 * 1000)

#define LACK_PAUSE_NS (1ull * 1000 * 1000 * 1000) /* The first one. */

enum {
    WRITE_FAILURES_MAX = 6, /* In a row: twice as many as are in flight. Each costs its segment. */
    LACK_DOUBLINGS_MAX = 5,
    LACK_LASTS = 3, /* Pauses in a row from which on nobody waits any more: after 3 s. */
};

/* --- The pool --------------------------------------------------------------------------------- */

#define HEADER_MEMORY_BYTES ((size_t)(BATCH_HEADER_PAGES_MAX + 1) * PAGE_BYTES)

static struct nvme_put *
put_create(struct nvme_tier *nvme)
{
    struct nvme_put *put = env_take(nvme->env, sizeof(*put));
    uintptr_t start;

    if (put == NULL)
        return NULL;
    put->header_memory = env_take(nvme->env, HEADER_MEMORY_BYTES);
    if (put->header_memory == NULL) {
        env_put(nvme->env, put, sizeof(*put));
        return NULL;
    }
    start = (uintptr_t)put->header_memory;
    put->header = put->header_memory + (round_up(start, PAGE_BYTES) - start);
    return put;
}

/* A put from the pool, which grows: before anything is taken for it, so that nothing fails
 * halfway. */
static enum kvt_status
put_take(struct nvme_tier *nvme, struct nvme_put **put_out)
{
    struct nvme_put *put = nvme->put_pool;

    if (put == NULL)
        put = put_create(nvme);
    else
        nvme->put_pool = put->next;
    if (put == NULL)
        return failure_set(KVT_E_NOMEM, 0, "nvme tier: no memory for one more batch in flight");
    put->next = NULL;
    *put_out = put;
    return KVT_OK;
}

static void
put_return(struct nvme_tier *nvme, struct nvme_put *put)
{
    put->state = PUT_FREE;
    put->batch = NULL;
    put->segment = NULL;
    put->next = nvme->put_pool;
    nvme->put_pool = put;
}

enum kvt_status
nvme_puts_init(struct nvme_tier *nvme)
{
    for (uint32_t i = 0; i < NVME_PUTS_KEPT && !nvme->options.read_only; i++) {
        struct nvme_put *put = put_create(nvme);

        if (put == NULL)
            return failure_set(
                KVT_E_NOMEM, 0, "nvme tier: no memory for %d headers of batches", NVME_PUTS_KEPT);
        put_return(nvme, put);
    }
    return KVT_OK;
}

void
nvme_puts_deinit(struct nvme_tier *nvme)
{
    while (nvme->put_pool != NULL) {
        struct nvme_put *next = nvme->put_pool->next;

        env_put(nvme->env, nvme->put_pool->header_memory, HEADER_MEMORY_BYTES);
        env_put(nvme->env, nvme->put_pool, sizeof(*nvme->put_pool));
        nvme->put_pool = next;
    }
}

/* --- Proofs ----------------------------------------------------------------------------------- */

static void
put_check(const struct nvme_put *put)
{
    switch (put->state) {
    case PUT_FREE:
        KVT_ASSERT(put->batch == NULL);
        break;
    case PUT_WRITING:
    case PUT_WRITTEN:
    case PUT_SYNCED:
        KVT_ASSERT(put->batch != NULL && put->segment != NULL);
        KVT_ASSERT(put->status == KVT_OK);
        KVT_ASSERT(put->state == PUT_WRITING || put->doom == KVT_OK);
        break;
    case PUT_FAILED:
        KVT_ASSERT(put->batch != NULL && put->segment != NULL);
        KVT_ASSERT(put->status < 0);
        break;
    }
}

/* --- Starting --------------------------------------------------------------------------------- */

/* Bounds of a batch; *pages_out: header and payloads. */
static enum kvt_status
batch_check(const struct nvme_tier *nvme, const struct tier_batch *batch, uint32_t *pages_out)
{
    uint32_t pages;

    if (batch->block_count > BATCH_BLOCKS_MAX || batch->kill_count > BATCH_KILLS_MAX ||
        (batch->block_count == 0 && batch->kill_count == 0))
        return failure_set(KVT_E_INVAL, 0,
            "nvme tier: a batch of %u blocks and %u kills, allowed are %d and %d",
            batch->block_count, batch->kill_count, BATCH_BLOCKS_MAX, BATCH_KILLS_MAX);
    pages = batch_header_pages(batch->block_count, batch->kill_count);
    for (uint32_t i = 0; i < batch->block_count; i++) {
        const struct tier_block *block = &batch->blocks[i];

        KVT_TRY(nvme_block_check(block, i));
        if (block->record.stored_length == 0 ||
            pages_of(block->record.stored_length) > nvme->options.segment_pages)
            return failure_set(
                KVT_E_INVAL, 0, "nvme tier: block %u has %u bytes", i, block->record.stored_length);
        pages += pages_of(block->record.stored_length);
    }
    if (pages > nvme->options.segment_pages)
        return failure_set(KVT_E_INVAL, 0, "nvme tier: a batch of %u pages, a segment has %u",
            pages, nvme->options.segment_pages);
    *pages_out = pages;
    return KVT_OK;
}

/* Pages that a root can still take: what decides which root is next. */
static uint64_t
root_room(const struct nvme_tier *nvme, uint32_t number)
{
    const struct segment *active = segment_active(nvme->table, number);
    uint64_t pages = nvme->options.segment_pages;
    uint64_t room = segment_count_in(nvme->table, number, SEGMENT_FREE) * pages;

    return active == NULL ? room : room + pages - active->fill_page;
}

/* A try is under way, or the pause is not over: *until_ns_out as in nvme_lack(). */
static bool
root_lacks(const struct nvme_tier *nvme, const struct nvme_root *root, uint64_t *until_ns_out)
{
    *until_ns_out = root->lack_until_ns;
    if (root->lack_count == 0)
        return false;
    for (const struct nvme_put *put = nvme->put_first; put != NULL; put = put->next) {
        if (put->op.transfer.file == root->file && put->state == PUT_WRITING && !put->is_recycle)
            *until_ns_out = UINT64_MAX;
    }
    return env_now(nvme->env) < *until_ns_out;
}

bool
nvme_lack(const struct nvme_tier *nvme, struct nvme_lack *lack_out)
{
    *lack_out = (struct nvme_lack){.status = KVT_OK, .is_lasting = true};
    for (uint32_t i = 0; i < nvme->root_count; i++) {
        const struct nvme_root *root = &nvme->roots[i];
        uint64_t until_ns;

        if (root->is_read_only)
            continue;
        if (!root_lacks(nvme, root, &until_ns))
            return false;
        /* Of several the try that is under way, whose end is told, or the next one. */
        if (lack_out->status == KVT_OK || until_ns == UINT64_MAX ||
            (until_ns < lack_out->until_ns && lack_out->until_ns != UINT64_MAX))
            lack_out->until_ns = until_ns;
        lack_out->status = root->lack_status;
        if (until_ns == UINT64_MAX || root->lack_count < LACK_LASTS)
            lack_out->is_lasting = false;
    }
    return lack_out->status != KVT_OK;
}

/* Segments of a root that are left FREE. */
static uint32_t
root_reserve(uint32_t root, uint32_t reserve_count, uint32_t last_of)
{
    return root == last_of ? 0 : reserve_count;
}

/* The writable root with the most room among those that fit the run. */
static enum kvt_status
root_choose(const struct nvme_tier *nvme, uint32_t pages, uint32_t reserve_count, uint32_t last_of,
    uint32_t *number_out)
{
    bool is_writable = false, has_space = false;
    bool is_found = false;
    uint64_t until_ns;

    for (uint32_t i = 0; i < nvme->root_count; i++) {
        if (nvme->roots[i].is_read_only)
            continue;
        is_writable = true;
        if (root_lacks(nvme, &nvme->roots[i], &until_ns))
            continue;
        has_space = true;
        if (!segment_fits(nvme->table, i, pages, root_reserve(i, reserve_count, last_of)))
            continue;
        if (!is_found || root_room(nvme, i) > root_room(nvme, *number_out))
            *number_out = i;
        is_found = true;
    }
    if (!is_writable)
        return failure_set(KVT_E_READONLY, 0, "nvme tier: no root takes writes");
    if (!has_space)
        return failure_set(KVT_E_BUSY, 0, "nvme tier: the last writes found no space or memory");
    if (!is_found)
        return failure_set(
            KVT_E_NOSPC, 0, "nvme tier: no root has a free segment for %u pages", pages);
    return KVT_OK;
}

uint32_t
nvme_tail_pages(const struct nvme_tier *nvme)
{
    const struct segment *active;
    uint32_t number;

    if (root_choose(nvme, 1, 0, NVME_ROOT_NONE, &number) != KVT_OK)
        return 0;
    active = segment_active(nvme->table, number);
    return active == NULL ? 0 : nvme->options.segment_pages - active->fill_page;
}

/* One more piece of a run; memory that goes on where the last piece ended makes that one longer. */
static void
piece_add(struct nvme_put *put, void *memory, size_t size)
{
    struct transfer *transfer = &put->op.transfer;
    struct iovec *last =
        transfer->piece_count == 0 ? NULL : &put->pieces[transfer->piece_count - 1];

    if (size == 0)
        return;
    if (last != NULL && (uint8_t *)last->iov_base + last->iov_len == memory) {
        last->iov_len += size;
        return;
    }
    put->pieces[transfer->piece_count] = (struct iovec){.iov_base = memory, .iov_len = size};
    transfer->piece_count++;
}

/* Encode the header and hand the run to the lane. `place` is where it stands. */
static void
put_push(struct nvme_tier *nvme, struct nvme_put *put, struct extent place, uint32_t total_pages)
{
    struct tier_batch *batch = put->batch;
    struct nvme_root *root = &nvme->roots[segment_root(place.segment)];
    struct batch_header header = {
        .extent = place,
        .header_pages = put->header_pages,
        .total_pages = total_pages,
        .sequence = batch->sequence,
        .block_count = batch->block_count,
        .kill_count = batch->kill_count,
        .is_recycle = put->is_recycle,
    };
    uint32_t page = place.page + put->header_pages;

    nvme_op_init(nvme, &put->op, NVME_OP_WRITE, root);
    piece_add(put, put->header, (size_t)(put->header_pages + put->copy_pages) * PAGE_BYTES);
    for (uint32_t i = 0; i < batch->block_count; i++) {
        struct tier_block *block = &batch->blocks[i];
        uint32_t pages = pages_of(block->record.stored_length);

        block->record.extent = place;
        block->record.extent.page = page;
        piece_add(put, block->memory, (size_t)(pages - block->tail_pages) * PAGE_BYTES);
        piece_add(put, block->tail, (size_t)block->tail_pages * PAGE_BYTES);
        page += pages;
    }
    KVT_ASSERT(page == place.page + total_pages);
    memcpy(header.store_uuid, nvme->options.store_uuid, sizeof(header.store_uuid));
    batch_header_encode(&header, batch->blocks, batch->kills, nvme->options.secret, put->header);
    if (put->copy_pages > 0)
        batch_header_copy(&header, nvme->options.secret, put->header + PAGE_BYTES);
    put->op.transfer.offset = nvme_offset(nvme, place.segment, place.page);
    put->op.transfer.pieces = put->pieces;

    if (nvme->put_last == NULL)
        nvme->put_first = put;
    else
        nvme->put_last->next = put;
    nvme->put_last = put;
    put->state = PUT_WRITING;
    put_check(put);
    lane_push(root->lane, &put->op.transfer);
}

static void
put_init(struct nvme_put *put, struct tier_batch *batch, struct segment *segment)
{
    put->batch = batch;
    put->segment = segment;
    put->status = KVT_OK;
    put->doom = KVT_OK;
    put->is_recycle = false;
    put->sync_number = 0;
    put->header_pages = batch_header_pages(batch->block_count, batch->kill_count);
    put->copy_pages = 0;
}

static void
put_fail(struct nvme_put *put, enum kvt_status status)
{
    KVT_ASSERT(put->state != PUT_FREE && put->state != PUT_FAILED);
    put->state = PUT_FAILED;
    put->status = status;
    put_check(put);
}

/* It will fail, or has: nothing more is written behind it, as nobody knows yet that it is void. */
static void
put_doom(struct nvme_tier *nvme, struct nvme_put *put, enum kvt_status status)
{
    if (put->segment->state == SEGMENT_ACTIVE)
        segment_seal(nvme->table, put->segment);
    if (put->state == PUT_WRITING && put->doom == KVT_OK)
        put->doom = status;
    else if (put->state == PUT_WRITTEN || put->state == PUT_SYNCED)
        put_fail(put, status);
}

bool
nvme_is_doomed(const struct nvme_tier *nvme)
{
    for (const struct nvme_put *put = nvme->put_first; put != NULL; put = put->next) {
        if (!put->is_recycle && (put->doom != KVT_OK || put->state == PUT_FAILED))
            return true;
    }
    return false;
}

enum kvt_status
nvme_put_start(
    struct nvme_tier *nvme, struct tier_batch *batch, uint32_t reserve_count, uint32_t last_of)
{
    uint32_t pages = 0, number = 0;
    struct segment *segment, *sealed;
    struct extent place;
    struct nvme_put *put = NULL;
    bool is_doomed = nvme_is_doomed(nvme);
    enum kvt_status status;

    if (nvme->options.read_only)
        return failure_set(KVT_E_READONLY, 0, "nvme tier: it was opened for reading only");
    KVT_TRY(batch_check(nvme, batch, &pages));
    KVT_TRY(root_choose(nvme, pages, reserve_count, last_of, &number));
    KVT_TRY(put_take(nvme, &put));
    status = segment_run_take(nvme->table, number, pages,
        root_reserve(number, reserve_count, last_of), &segment, &place.page, &sealed);
    if (status != KVT_OK) {
        put_return(nvme, put);
        return status;
    }
    place.segment = segment->number;
    place.generation = segment->generation;
    put_init(put, batch, segment);
    segment->writer_count++;
    batch->header = place;
    put_push(nvme, put, place, pages);
    if (is_doomed)
        put_doom(nvme, put, KVT_E_STATE);
    return KVT_OK;
}

enum kvt_status
nvme_recycle(struct nvme_tier *nvme, struct segment *segment, struct tier_batch *batch)
{
    struct nvme_root *root = &nvme->roots[segment_root(segment->number)];
    struct extent place = {
        .segment = segment->number, .generation = segment_generation_next(segment)};
    struct nvme_put *put = NULL;

    if (batch->block_count != 0 || batch->kill_count > BATCH_KILLS_MAX)
        return failure_set(KVT_E_INVAL, 0, "nvme tier: a recycle header with %u blocks, %u kills",
            batch->block_count, batch->kill_count);
    if (segment->state != SEGMENT_RECYCLING || segment->generation == UINT32_MAX)
        return failure_set(KVT_E_STATE, 0,
            "nvme tier: segment 0x%x is %s in generation %u and cannot be recycled",
            segment->number, segment_state_name(segment->state), segment->generation);
    if (root->is_read_only)
        return failure_set(
            KVT_E_READONLY, 0, "nvme tier: root %u takes no writes", segment_root(segment->number));
    if (segment->reader_count != 0 || segment->writer_count != 0)
        return failure_set(
            KVT_E_BUSY, 0, "nvme tier: segment 0x%x has transfers in flight", segment->number);
    KVT_TRY(put_take(nvme, &put));
    put_init(put, batch, segment);
    put->is_recycle = true;
    put->copy_pages = batch->kill_count == 0 ? 1 : 0;
    put_push(nvme, put, place, put->header_pages);
    return KVT_OK;
}

/* --- Written ---------------------------------------------------------------------------------- */

/*
 * The put fails, and so do those behind it, but recycle headers: who gets success for one knows
 * that all before it are durable, and that in its segment none of those that failed stands before
 * it.
 */
static void
followers_doom(struct nvme_tier *nvme, struct nvme_put *put)
{
    for (struct nvme_put *next = put->next; next != NULL; next = next->next) {
        if (!next->is_recycle && !put->is_recycle)
            put_doom(nvme, next, KVT_E_STATE);
    }
}

/* A write found no space, or no memory. Others that were in flight with it are no further try. */
static void
lack_note(const struct nvme_tier *nvme, struct nvme_root *root, enum kvt_status status)
{
    uint32_t doublings =
        root->lack_count < LACK_DOUBLINGS_MAX ? root->lack_count : LACK_DOUBLINGS_MAX;
    uint64_t now_ns = env_now(nvme->env);

    if (root->lack_count > 0 && now_ns < root->lack_until_ns)
        return;
    root->lack_count++;
    root->lack_status = status;
    root->lack_until_ns = now_ns + (LACK_PAUSE_NS << doublings);
}

/* What a failed write costs: its segment, and a pause, or, after several in a row, the root. */
static void
write_failed(struct nvme_tier *nvme, struct nvme_put *put)
{
    struct segment *segment = put->segment;
    struct nvme_root *root = &nvme->roots[segment_root(segment->number)];

    if (put->op.transfer.status == KVT_E_NOSPC || put->op.transfer.status == KVT_E_NOMEM)
        lack_note(nvme, root, put->op.transfer.status);
    if (put->op.transfer.status == KVT_E_IO && ++root->write_failure_count >= WRITE_FAILURES_MAX)
        root->is_read_only = true;
    if (nvme->options.logger != NULL)
        log_line(nvme->options.logger, root->is_read_only ? LOG_ERROR : LOG_WARN, "nvme",
            "event=write_failed root=%u segment=%u page=%llu status=%s errno=%d read_only=%d",
            segment_root(segment->number), segment_index(segment->number),
            (unsigned long long)put->op.transfer.offset / PAGE_BYTES,
            kvt_status_name(put->op.transfer.status), put->op.transfer.error, root->is_read_only);
    if (segment->state == SEGMENT_ACTIVE)
        segment_seal(nvme->table, segment);
    put_fail(put, put->op.transfer.status);
    followers_doom(nvme, put);
}

void
nvme_put_written(struct nvme_tier *nvme, struct nvme_put *put)
{
    struct nvme_root *root = &nvme->roots[segment_root(put->segment->number)];

    KVT_ASSERT(put->state == PUT_WRITING);
    if (put->op.transfer.status != KVT_OK) {
        write_failed(nvme, put);
        return;
    }
    root->write_failure_count = 0;
    /* A recycle header overwrites what is there: that takes no space (but in a sparse file). */
    if (!put->is_recycle)
        root->lack_count = 0;
    if (put->doom != KVT_OK) {
        put_fail(put, put->doom);
        return;
    }
    put->state = PUT_WRITTEN;
    put_check(put);
}

/* --- Synced ----------------------------------------------------------------------------------- */

/* Start a sync for the puts of a root that are WRITTEN, if there are any. */
static void
sync_start(struct nvme_tier *nvme, struct nvme_root *root)
{
    bool is_wanted = false;

    KVT_ASSERT(!root->sync_is_pending);
    for (struct nvme_put *put = nvme->put_first; put != NULL; put = put->next) {
        if (put->op.transfer.file != root->file || put->state != PUT_WRITTEN)
            continue;
        put->sync_number = root->sync_number + 1;
        is_wanted = true;
    }
    if (!is_wanted)
        return;
    nvme_op_init(nvme, &root->sync, NVME_OP_SYNC, root);
    root->sync_is_pending = true;
    root->sync_number++;
    lane_push(root->lane, &root->sync.transfer);
}

void
nvme_syncs_start(struct nvme_tier *nvme)
{
    for (uint32_t i = 0; i < nvme->root_count; i++) {
        if (!nvme->roots[i].sync_is_pending)
            sync_start(nvme, &nvme->roots[i]);
    }
}

/* What a failed sync costs: all that the file got since its last good sync. */
static void
sync_failed(struct nvme_tier *nvme, struct nvme_root *root)
{
    uint32_t number = (uint32_t)(root - nvme->roots);
    uint64_t now_ns = env_now(nvme->env);
    struct segment *active;
    struct nvme_put *first = NULL;
    uint32_t lost_count = 0;

    for (struct nvme_put *put = nvme->put_first; put != NULL; put = put->next) {
        if (put->op.transfer.file != root->file)
            continue;
        if (put->state != PUT_WRITTEN && put->state != PUT_WRITING)
            continue;
        put_doom(nvme, put, KVT_E_IO);
        if (first == NULL && !put->is_recycle)
            first = put;
        lost_count++;
    }
    if (first != NULL)
        followers_doom(nvme, first);
    active = segment_active(nvme->table, number);
    if (active != NULL)
        segment_seal(nvme->table, active);
    if (root->sync_failure_count > 0 && now_ns - root->sync_failed_ns < SYNC_FAILURE_WINDOW_NS)
        root->is_read_only = true;
    root->sync_failure_count++;
    root->sync_failed_ns = now_ns;
    if (nvme->options.logger != NULL)
        log_line(nvme->options.logger, LOG_ERROR, "nvme",
            "event=sync_failed root=%u errno=%d lost_batches=%u failures=%u read_only=%d", number,
            root->sync.transfer.error, lost_count, root->sync_failure_count, root->is_read_only);
}

void
nvme_put_synced(struct nvme_tier *nvme, struct nvme_root *root)
{
    KVT_ASSERT(root->sync_is_pending);
    root->sync_is_pending = false;
    if (root->sync.transfer.status != KVT_OK) {
        sync_failed(nvme, root);
        return;
    }
    for (struct nvme_put *put = nvme->put_first; put != NULL; put = put->next) {
        if (put->op.transfer.file != root->file)
            continue;
        if (put->state == PUT_WRITTEN && put->sync_number == root->sync_number) {
            put->state = PUT_SYNCED;
            put_check(put);
        }
    }
}

/* --- Answers ---------------------------------------------------------------------------------- */

static void
put_answer(struct nvme_tier *nvme, struct nvme_put *put)
{
    struct tier_batch *batch = put->batch;
    struct segment *segment = put->segment;

    put_check(put);
    for (uint32_t i = 0; i < batch->block_count; i++) {
        batch->blocks[i].status = put->status;
        if (put->status != KVT_OK)
            batch->blocks[i].record.extent = (struct extent){0};
    }
    batch->status = put->status;
    if (!put->is_recycle) {
        KVT_ASSERT(segment->writer_count > 0);
        segment->writer_count--;
    } else if (put->status == KVT_OK) {
        segment->fill_page = put->header_pages + put->copy_pages;
    }
    put_return(nvme, put);
    tier_answer(nvme->env, batch);
}

/* Answer what is finished, in the order of put: one that is not holds back those behind it. */
void
nvme_puts_answer(struct nvme_tier *nvme)
{
    while (nvme->put_first != NULL) {
        struct nvme_put *put = nvme->put_first;

        if (put->state != PUT_SYNCED && put->state != PUT_FAILED)
            return;
        nvme->put_first = put->next;
        if (nvme->put_first == NULL)
            nvme->put_last = NULL;
        put_answer(nvme, put);
    }
}
