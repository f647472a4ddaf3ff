/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fetch.c - one block, or some of its parts, read from NVMe, verified, decoded.
 *
 * What is read, by how the block is stored (tiers/image.h) and what of it is wanted:
 *
 *   plain           whole   into HOST's slot, or straight into the destination (TRANSIENT, aligned;
 *                           a last page that it does not hold into the tail)
 *   trailer, raw    whole   into HOST's slot; the last pages, with the trailer, into the tail
 *                   parts   their pages into a stage, the trailer into the tail: one read when
 *                           little lies between them, else two at once
 *   encoded         whole   into a stage and the tail, decoded into HOST's slot, or (TRANSIENT)
 *                           into the destination
 *                   parts   the trailer into the tail; then the parts' pages, which it names, into
 *                           a stage
 *
 * A stage is a slot of HOST that holds stored bytes. Whole blocks that are read into a slot become
 * a HOST copy, unless the get was TRANSIENT; meanwhile the entry has a flight, and a second get of
 * the block waits for it. What is decoded for memory that is spread (layout.h), and not into a HOST
 * copy, is decoded into one more slot. Of the last page before the trailer, what belongs to parts
 * is moved from the tail behind the other pages, so that every part lies in one piece.
 *
 * A TRANSIENT get into memory of a device takes its bytes from a stage, or from the slot they were
 * decoded to: the device copies them when they are verified. So many of these stages are in use at
 * a time as keep a disk busy; HOST is for others, too. Bulk prefetches have such a window, too: a
 * get of a block that waits for its turn there reads it itself.
 *
 * What was read straight into the destination and is wrong there may be right on the disk: it is
 * read once more, into a stage, and judged by that. When reclaiming has moved the block under the
 * read, what is wrong where it was says nothing of the copy that it has now: that is read.
 *
 * Not here  what a worker does with the bytes that came (fetch_verify.c).
 * Threads   the loop.
 */
#include "fetch_internal.h"
#include "get.h"
#include "store_internal.h"

enum {
    TAILS_KEEP_MAX = 64,       /* Free ones of a page. */
    SENT_BYTES_MAX = 64 << 20, /* Of blocks on their way to devices through stages. */
    BULK_BYTES_MAX = 16 << 20, /* Of those that bulk prefetches read: what a lane has in flight. */
};

/* --- Life ------------------------------------------------------------------------------------- */

static size_t
tail_taken_bytes(const struct fetch *fetch)
{
    return (size_t)(fetch->tail_pages + 1) * PAGE_BYTES;
}

/* All but its slots and its pin. */
static void
fetch_free(struct kvt_store *store, struct fetch *fetch)
{
    if (fetch->tail_pages == 1)
        pool_put(&store->tail_pool, fetch->tail_taken);
    else if (fetch->tail_taken != NULL)
        env_put(&store->env, fetch->tail_taken, tail_taken_bytes(fetch));
    if (fetch->window != NULL)
        fetch->window->bytes -= fetch->shape.length;
    KVT_ASSERT(!fetch->has_copy);
    pool_put(&store->fetch_pool, fetch);
}

static void
fetch_destroy(struct kvt_store *store, struct fetch *fetch)
{
    fetch_slots_put(store, fetch);
    entry_unpin(store, fetch->entry);
    fetch_free(store, fetch);
}

/* It was never begun. Who waits for room tries again when there may be more of it: not for what the
 * try itself had, or the loop would have no rest. */
static void
fetch_abandon(struct kvt_store *store, struct fetch *fetch)
{
    fetch_slots_untake(store, fetch);
    lease_unpin(store, fetch->entry);
    fetch_free(store, fetch);
}

/* For the pages of the image from the one with byte `from` on. */
static bool
tail_take(struct kvt_store *store, struct fetch *fetch, uint32_t from)
{
    fetch->tail_page = from / PAGE_BYTES;
    fetch->tail_pages = pages_of(fetch->shape.stored_length) - fetch->tail_page;
    fetch->tail_taken = fetch->tail_pages == 1 ? pool_take(&store->tail_pool)
                                               : env_take(&store->env, tail_taken_bytes(fetch));
    if (fetch->tail_taken == NULL)
        return false;
    fetch->tail = (uint8_t *)fetch->tail_taken + (PAGE_BYTES - 1);
    fetch->tail -= (uintptr_t)fetch->tail % PAGE_BYTES;
    return true;
}

/* NULL: no memory. */
static struct fetch *
fetch_create(struct kvt_store *store, struct op *op, uint32_t number)
{
    const struct entry *entry = residency_at(store->map, number);
    struct fetch *fetch = pool_take(&store->fetch_pool);

    if (fetch == NULL)
        return NULL;
    fetch->op = op;
    fetch->is_transient = op_is_transient(op);
    fetch->is_sent = fetch->is_transient && op->memory_device >= 0;
    fetch->is_bulk = op->ticket->is_bulk;
    fetch->window = fetch->is_sent ? &store->sends : fetch->is_bulk ? &store->bulks : NULL;
    if (fetch->window != NULL)
        fetch->window->bytes += entry->length;
    fetch->entry = number;
    fetch->shape = (struct image_shape){.length = entry->length,
        .stored_length = entry->stored_length,
        .part_count = entry_parts(entry),
        .has_trailer = entry->has_trailer != 0,
        .checksum = entry->checksum};
    (void)part_range_of(op, entry, &fetch->range);
    residency_pin(store->map, number);
    if (!fetch->shape.has_trailer || tail_take(store, fetch, image_trailer_at(&fetch->shape)))
        return fetch;
    fetch_abandon(store, fetch);
    return NULL;
}

/* --- Its end ---------------------------------------------------------------------------------- */

/* Whether the operation would read all of the block, as the one that it waits for. */
static bool
reads_all(const struct op *op, const struct entry *entry)
{
    struct part_range range;

    return op->ticket->kind != TICKET_GET || (op->memory_device >= 0 && !op_is_transient(op)) ||
           (part_range_of(op, entry, &range) && range.is_whole);
}

/* The read has failed, and the block is still there: who waited for it, and would make the same
 * read again, one after the other, has its answer. */
static void
waiters_share(const struct op_list *waiters, const struct entry *entry)
{
    for (struct op *op = waiters->first; op != NULL; op = op->next)
        op->is_brought = op->is_brought || reads_all(op, entry);
}

static bool
fetch_is_resident(const struct kvt_store *store, const struct fetch *fetch)
{
    const struct entry *entry = residency_at(store->map, fetch->entry);

    return word_state(atomic_load_explicit(&entry->word, memory_order_relaxed)) == ENTRY_RESIDENT;
}

/*
 * The copy that was read is bad. A block that is nowhere else leaves the store; of one that came to
 * HOST meanwhile, or that HBM has, only this copy goes, or, while others have the block pinned,
 * nothing: who reads that copy next finds it again. True: HOST has the block.
 */
static bool
copy_condemn(struct kvt_store *store, const struct fetch *fetch)
{
    uint32_t number = fetch->entry;
    unsigned tiers = entry_tiers(store, number);

    if (!fetch_is_resident(store, fetch) || (tiers & (TIER_HOST | TIER_HBM)) == 0) {
        entry_quarantine(store, number);
        return false;
    }
    /* The read's own pin is not to be in the way; the entry stays, the loop alone frees it. */
    entry_unpin(store, number);
    (void)entry_nvme_condemn(store, number);
    residency_pin(store->map, number);
    return (tiers & TIER_HOST) != 0;
}

/* Before the answer: whoever has it finds the bad copy no more, and the damage counted. `op` may be
 * NULL. */
static void
fetch_condemn(struct kvt_store *store, const struct fetch *fetch)
{
    bool is_in_host = copy_condemn(store, fetch);

    if (is_in_host && fetch->op != NULL)
        get_begin(store, fetch->op); /* From there, at once. */
    else
        get_miss(store, fetch->op);
}

/* The read into a slot is over: that becomes the HOST copy or is given back. Who waited for it is
 * returned. */
static struct op_list
copy_settle(struct kvt_store *store, struct fetch *fetch)
{
    struct entry *entry = residency_at(store->map, fetch->entry);
    struct flight *flight = fetch->flight;
    struct op_list waiters;
    bool is_there = fetch_is_resident(store, fetch);
    bool is_kept = fetch->is_right && !fetch->is_transient && is_there;

    waiters = flight->waiters;
    flight->waiters = (struct op_list){NULL, NULL};
    flight_destroy(store, flight);
    fetch->has_copy = false;
    if (is_kept) {
        entry_copy_add(store, fetch->entry, POLICY_HOST, fetch->copy, KVT_REASON_RAISED);
    } else {
        entry_unprepare(store, fetch->entry);
        room_put(store, POLICY_HOST, fetch->copy);
    }
    if (fetch->status != KVT_OK && is_there)
        waiters_share(&waiters, entry);
    return waiters;
}

static void
fetch_end(struct kvt_store *store, struct fetch *fetch)
{
    struct window *window = fetch->window;
    enum kvt_status status = fetch->status;
    struct op_list waiters = {NULL, NULL};
    uint8_t turn = fetch->turn;

    if (fetch->flight != NULL)
        waiters = copy_settle(store, fetch);
    fetch_destroy(store, fetch); /* Its pin is not to be in the way of who goes on. */
    ops_restart(store, &waiters, status);
    work_end(store, &store->reads_in_flight, turn);
    if (window != NULL)
        window_restart(store, window);
}

static void
fetch_sent(struct kvt_store *store, struct device_job *job)
{
    struct fetch *fetch = CONTAINER_OF(job, struct fetch, device_job);

    fetch->op->is_queued = job->move.is_marked;
    if (job->move.status == KVT_OK)
        get_answer(store, fetch->op, &fetch->range, KVT_TIER_NVME);
    else
        op_finish(store, fetch->op, job->move.status);
    fetch_end(store, fetch);
}

/* What was found, to the memory of the device. */
static void
fetch_send(struct kvt_store *store, struct fetch *fetch)
{
    fetch->device_job.finish = fetch_sent;
    get_send(store, fetch->op, &fetch->range, fetch->found, &fetch->device_job);
}

/* There was no memory to read the block or to decode it: nothing is known of its bytes. */
static void
fetch_starve(struct kvt_store *store, struct fetch *fetch)
{
    fetch->status = KVT_E_NOMEM;
    if (fetch->op != NULL)
        op_finish(store, fetch->op, KVT_E_NOMEM);
}

static bool fetch_again(struct kvt_store *store, struct fetch *fetch);
static void image_read(struct kvt_store *store, struct fetch *fetch);

/* The bytes that came into memory of ours are wrong. Those of a block that was moved meanwhile are
 * of the copy that it has left: it is read where it is. That ends: each time takes one more
 * reclaiming that moves the block within one read of it. */
static void
fetch_wrong(struct kvt_store *store, struct fetch *fetch)
{
    const struct resident was = {.number = fetch->entry, .extent = fetch->extent};

    entry_corrupt_note(store, fetch->entry, TIER_NVME, &fetch->extent);
    /* While its pin lasts the block has a copy on NVMe. */
    if (fetch_is_resident(store, fetch) && !resident_is_there(store, &was)) {
        image_read(store, fetch);
        return;
    }
    fetch_condemn(store, fetch);
    fetch_end(store, fetch);
}

/* A part takes as long as the pages of the block that it stands in: a rate of its bytes alone would
 * have whole blocks take hours. */
static uint64_t
loaded_bytes(const struct fetch *fetch)
{
    uint64_t pages_bytes = round_up(fetch->range.length, PAGE_BYTES);

    return pages_bytes < fetch->shape.length ? pages_bytes : fetch->shape.length;
}

static void
fetch_verified(struct kvt_store *store, struct job *job)
{
    struct fetch *fetch = CONTAINER_OF(job, struct fetch, job);

    store->nvme_meter.bytes += loaded_bytes(fetch);
    if (fetch->decode_ns > 0) {
        COUNT(store, codec_decode_bytes, fetch->range.length);
        histogram_add(&store->latencies.decode_ns, fetch->decode_ns);
    }
    if (fetch->is_right && fetch->is_sent) {
        fetch_send(store, fetch);
        return;
    }
    if (fetch->is_right) {
        get_answer(store, fetch->op, &fetch->range, KVT_TIER_NVME);
    } else if (fetch->is_failed) {
        fetch_starve(store, fetch);
    } else if (fetch->is_direct) {
        if (fetch_again(store, fetch))
            return;
        get_miss(store, fetch->op);
    } else {
        fetch_wrong(store, fetch);
        return;
    }
    fetch_end(store, fetch);
}

static void
fetch_verify(struct kvt_store *store, struct fetch *fetch)
{
    fetch->job.store = store;
    fetch->job.crew.run = fetch_run;
    fetch->job.finish = fetch_verified;
    fetch->job.crew.is_short =
        fetch->range.length <= SHORT_JOB_BYTES && !image_is_encoded(&fetch->shape);
    loop_job(store, &fetch->job);
}

/* --- Reading ---------------------------------------------------------------------------------- */

static void pages_read(struct kvt_store *store, struct fetch *fetch, uint32_t from, uint32_t to);

/* The trailer of an encoded block is there: it says where the parts lie. */
static void
trailer_arrived(struct kvt_store *store, struct fetch *fetch)
{
    struct image_part parts[RECORD_PARTS_MAX];
    const struct image_part *first = &parts[fetch->range.first];
    const struct image_part *last = first + fetch->range.count - 1;
    uint32_t trailer_at = image_trailer_at(&fetch->shape);

    fetch->is_trailer = false;
    if (image_trailer_read(&fetch->shape, fetch->tail + trailer_at % PAGE_BYTES, parts) != KVT_OK) {
        fetch_wrong(store, fetch);
        return;
    }
    pages_read(store, fetch, first->offset, last->offset + last->stored_length);
}

static void
fetch_arrived(struct kvt_store *store, struct tier_batch *batch)
{
    struct fetch *fetch = CONTAINER_OF(batch->user, struct fetch, owner);
    enum kvt_status status = batch->blocks[0].status;

    if (batch->block_count == 2)
        status = status_keep(status, batch->blocks[1].status);
    if (status == KVT_OK && fetch->is_trailer) {
        trailer_arrived(store, fetch);
        return;
    }
    if (status == KVT_OK) {
        fetch_verify(store, fetch);
        return;
    }
    if (status == KVT_E_NOMEM) {
        fetch_starve(store, fetch);
    } else {
        COUNT(store, read_failed_count, status != KVT_MISS);
        fetch->status = status;
        get_miss(store, fetch->op);
    }
    fetch_end(store, fetch);
}

/* Pages of the image, from `first` on; the tail's behind them, if they are to come with it. */
static void
block_add(
    struct kvt_store *store, struct fetch *fetch, uint32_t first, uint32_t pages, bool has_tail)
{
    const struct entry *entry = residency_at(store->map, fetch->entry);
    struct tier_block *block = &fetch->blocks[fetch->tier_batch.block_count++];

    memset(block, 0, sizeof(*block));
    /* Where the block is now: it may have been moved since its trailer was read. */
    fetch->extent = entry_extent(entry);
    block->record.extent = fetch->extent;
    block->record.extent.page += first;
    block->memory = fetch->memory;
    if (has_tail) {
        block->tail = fetch->tail;
        block->tail_pages = fetch->tail_pages;
    }
    block->record.stored_length = (pages + block->tail_pages) * PAGE_BYTES;
}

static void
blocks_read(struct kvt_store *store, struct fetch *fetch)
{
    struct tier *tier = nvme_as_tier(store->nvme);
    enum kvt_status status = tier->ops->get(tier, &fetch->tier_batch);

    if (status == KVT_OK)
        return;
    for (uint32_t i = 0; i < fetch->tier_batch.block_count; i++)
        fetch->blocks[i].status = status;
    fetch_arrived(store, &fetch->tier_batch);
}

static void
batch_reset(struct kvt_store *store, struct fetch *fetch)
{
    fetch->owner.finish = fetch_arrived;
    fetch->tier_batch = (struct tier_batch){.blocks = fetch->blocks,
        .urgent = !fetch->is_bulk,
        .done = &store->batches_done,
        .done_task = &store->loop_task,
        .user = &fetch->owner};
}

/* The pages of the image's bytes `from`..`to` to the memory, and the tail if it is not there. */
static void
pages_read(struct kvt_store *store, struct fetch *fetch, uint32_t from, uint32_t to)
{
    bool has_tail = fetch->tail != NULL;
    bool is_encoded_part = image_is_encoded(&fetch->shape) && !fetch->range.is_whole;
    bool wants_tail = has_tail && !is_encoded_part;
    uint32_t first = from / PAGE_BYTES;
    uint32_t end = pages_of(to);

    if (has_tail && end > fetch->tail_page)
        end = fetch->tail_page;
    if (wants_tail && fetch->tail_page - end <= GAP_PAGES)
        end = fetch->tail_page;
    fetch->first_page = first;
    batch_reset(store, fetch);
    if (wants_tail && end == fetch->tail_page) {
        block_add(store, fetch, first, end - first, true);
    } else {
        if (end > first)
            block_add(store, fetch, first, end - first, false);
        if (wants_tail)
            block_add(store, fetch, fetch->tail_page, 0, true);
    }
    if (fetch->tier_batch.block_count == 0)
        fetch_verify(store, fetch);
    else
        blocks_read(store, fetch);
}

/* What is wanted of the image, from the trailer on. */
static void
image_read(struct kvt_store *store, struct fetch *fetch)
{
    const struct part_range *range = &fetch->range;
    uint32_t from = (uint32_t)range->offset;

    if (!image_is_encoded(&fetch->shape)) {
        pages_read(store, fetch, from, from + (uint32_t)range->length);
    } else if (range->is_whole) {
        pages_read(store, fetch, 0, image_trailer_at(&fetch->shape));
    } else {
        fetch->is_trailer = true;
        batch_reset(store, fetch);
        block_add(store, fetch, fetch->tail_page, 0, true);
        blocks_read(store, fetch);
    }
}

static void
fetch_read(struct kvt_store *store, struct fetch *fetch)
{
    fetch->turn = work_begin(store, &store->reads_in_flight);
    image_read(store, fetch);
}

/* --- Room ------------------------------------------------------------------------------------- */

/* Whether the read may go straight into the caller's memory. */
static bool
fetch_is_direct(const struct fetch *fetch)
{
    const struct op *op = fetch->op;

    return fetch->is_transient && !fetch->is_sent && op->layout == NULL &&
           !fetch->shape.has_trailer && ((uintptr_t)op->destination & (PAGE_BYTES - 1)) == 0;
}

/* The last page bounces off the tail when the destination does not hold all of it. */
static enum kvt_status
direct_take(struct kvt_store *store, struct fetch *fetch)
{
    uint32_t length = fetch->shape.length;

    fetch->memory = fetch->op->destination;
    fetch->is_direct = true;
    if (fetch->op->length >= round_up(length, PAGE_BYTES) || tail_take(store, fetch, length))
        return KVT_OK;
    return failure_set(KVT_E_NOMEM, 0, "no memory for the last page of a block");
}

/* Wrong bytes in memory that the caller can write prove nothing, and a quarantine is for ever: they
 * are read into memory of ours. False: there is no room for them now, and the block stays. */
static bool
fetch_again(struct kvt_store *store, struct fetch *fetch)
{
    fetch->is_direct = false;
    if (fetch_stage_take(store, fetch, false) != KVT_OK)
        return false;
    pages_read(store, fetch, 0, (uint32_t)fetch->range.length);
    return true;
}

static enum kvt_status
fetch_room(struct kvt_store *store, struct fetch *fetch)
{
    bool is_encoded = image_is_encoded(&fetch->shape);
    bool is_bring =
        fetch->op->ticket->kind != TICKET_GET || (fetch->op->memory_device >= 0 && !fetch->is_sent);
    enum kvt_status status;

    if (!is_bring && fetch_is_direct(fetch))
        return direct_take(store, fetch);
    if (is_encoded || !fetch->range.is_whole || fetch->is_sent)
        KVT_TRY(fetch_stage_take(store, fetch, true));
    if (!is_bring &&
        (!fetch->range.is_whole || fetch->is_sent || (is_encoded && fetch->is_transient)))
        return fetch_decoded_take(store, fetch);
    status = fetch_copy_take(store, fetch);
    /* It can be decoded without: then no copy stays. */
    if (status == KVT_E_NOSPC && is_encoded && !is_bring)
        return fetch_decoded_take(store, fetch);
    return status;
}

/* A fetch with all that it needs; NULL: `op` was answered, or waits for room. */
static struct fetch *
fetch_open(struct kvt_store *store, struct op *op, uint32_t number)
{
    struct fetch *fetch = fetch_create(store, op, number); /* Its pin keeps the entry. */
    enum kvt_status status;

    if (fetch == NULL) {
        op_finish(store, op, KVT_E_NOMEM);
        return NULL;
    }
    /* A device takes its parts from HOST, which has whole blocks. */
    if (op->memory_device >= 0 && !fetch->is_sent)
        fetch->range = (struct part_range){
            .count = fetch->shape.part_count, .length = fetch->shape.length, .is_whole = true};
    status = fetch_room(store, fetch);
    if (status == KVT_OK)
        return fetch;
    fetch_abandon(store, fetch);
    if (status == KVT_NOT_READY)
        room_wait(store, POLICY_HOST, op);
    else
        op_finish(store, op, status);
    return NULL;
}

void
fetch_get(struct kvt_store *store, struct op *op, uint32_t number)
{
    struct fetch *fetch;

    if (op->memory_device >= 0 && window_waits(&store->sends, op))
        return;
    fetch = fetch_open(store, op, number);
    if (fetch == NULL)
        return;
    ticket_part_begin(store, op, number);
    entry_touch(store, number);
    fetch_read(store, fetch);
}

void
get_bring(struct kvt_store *store, struct op *op, uint32_t number)
{
    struct fetch *fetch;

    fetch = fetch_open(store, op, number);
    if (fetch == NULL)
        return;
    fetch->op = NULL;
    fetch->is_transient = false;
    op->is_brought = true;
    op_await(store, op, number);
    fetch_read(store, fetch);
}

void
fetches_open(struct kvt_store *store)
{
    window_init(store, &store->sends, SENT_BYTES_MAX);
    window_init(store, &store->bulks, BULK_BYTES_MAX);
    pool_init(&store->fetch_pool, &store->env, sizeof(struct fetch), WORK_KEEP_MAX);
    pool_init(&store->tail_pool, &store->env, 2 * PAGE_BYTES, TAILS_KEEP_MAX);
}
