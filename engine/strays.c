/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strays.c - batches without a commit, taken away. See strays.h.
 */
#include "strays.h"

#include "array.h"
#include "batch_header.h"
#include "store_internal.h"

enum {
    FACTS_BATCH = 1024, /* Segments in a transaction. */
    ROOM_TRIES = 8, /* Segments that are searched for room, at most: reads keep an open waiting, */
    ROOM_BAD = 2,   /* ... and those that fail do longer. */
};

/* --- FREE segments ---------------------------------------------------------------------------- */

static enum kvt_status
facts_commit(struct kvt_store *store, const struct index_segment *facts, uint32_t count)
{
    const struct index_batch batch = {.segments = facts, .segment_count = count};

    return count == 0 ? KVT_OK : index_commit_growing(store->index, &batch);
}

/* When a header is not durable the store is in doubt, and the next open writes them all again; but
 * what was searched has no batch that the header would have to void. */
static enum kvt_status
void_note(struct kvt_store *store, bool was_searched, enum kvt_status status)
{
    if (status != KVT_OK) {
        if (!was_searched)
            commit_doubt(store, status);
        log_line(&store->logger, LOG_WARN, "strays", "event=not_voided status=%s text=\"%s\"",
            kvt_status_name(status), failure_last()->text);
    }
    return status;
}

/*
 * Its next fill is of a higher generation, and a header says so: no batch in it counts any more,
 * wherever it stands. *void_status: of the headers so far; behind one that could not be written no
 * other is tried, as a disk that fails takes seconds for each.
 */
static void
segment_pass_over(struct kvt_store *store, struct segment *segment, bool was_searched,
    enum kvt_status *void_status)
{
    uint64_t number = commit_batch_number(store);

    segment->generation++;
    /* Pages 0 and 1 are that header's. */
    if (segment->fill_page == 0)
        segment->fill_page = SEGMENT_HEAD_PAGES_MAX;
    if (*void_status == KVT_OK)
        *void_status = void_note(store, was_searched,
            nvme_segment_void(store->nvme, segment, segment->generation, number));
    if (*void_status == KVT_OK)
        segment->batch_number = number;
}

enum kvt_status
strays_recycle(struct kvt_store *store, bool was_searched)
{
    struct index_segment *facts = NULL;
    struct segment *segment;
    uint32_t cursor = 0;
    uint32_t count = 0;
    enum kvt_status status = KVT_OK;
    enum kvt_status void_status = KVT_OK;

    if (store->nvme == NULL)
        return KVT_OK;
    facts = env_take(&store->env, FACTS_BATCH * sizeof(*facts));
    if (facts == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory to look at free segments");
    while (status == KVT_OK && (segment = segment_next(store->segments, &cursor)) != NULL) {
        if (segment->state != SEGMENT_FREE || segment->generation >= UINT32_MAX - 1)
            continue;
        segment_pass_over(store, segment, was_searched, &void_status);
        segment_facts(segment, &facts[count++]);
        if (count == FACTS_BATCH) {
            status = facts_commit(store, facts, count);
            count = 0;
        }
    }
    if (void_status == KVT_OK)
        (void)void_note(store, was_searched, nvme_files_sync(store->nvme));
    if (status == KVT_OK)
        status = facts_commit(store, facts, count);
    env_put(&store->env, facts, FACTS_BATCH * sizeof(*facts));
    return status;
}

/* --- Segments with blocks --------------------------------------------------------------------- */

/* What the headers of one segment say. */
struct search {
    struct kvt_store *store;
    struct extent *strays;
    uint32_t stray_count, stray_capacity;
    /* Of the batch that was committed last, or of one that is RECYCLING the recycle header, which
     * hides older fills: nothing behind it is needed. 0: its header was not found. */
    uint32_t end_page;
    enum kvt_status status;
};

/* Where batches without a commit may stand. A root may have many that were ACTIVE: the last one of
 * an earlier life is noted as something else only when its facts change. In a segment that is
 * RECYCLING no batch counts any more; but the recycle header that its reclaim owes comes only when
 * something is written. */
static bool
segment_is_suspect(const struct segment *segment)
{
    return segment->was_active || segment->state == SEGMENT_RECYCLING;
}

static enum kvt_status
stray_add(struct search *search, const struct extent *header)
{
    if (search->stray_count == search->stray_capacity) {
        struct extent *grown = array_grow(
            &search->store->env, search->strays, &search->stray_capacity, sizeof(*grown));

        if (grown == NULL)
            return failure_set(KVT_E_NOMEM, 0, "no memory to note %u batches", search->stray_count);
        search->strays = grown;
    }
    search->strays[search->stray_count++] = *header;
    return KVT_OK;
}

static bool
batch_visit(void *visitor, const struct batch_header *header, const struct block_record *records,
    const struct tier_kill *kills)
{
    struct search *search = visitor;
    const struct segment *segment = segment_at(search->store->segments, header->extent.segment);
    bool is_recycling = segment->state == SEGMENT_RECYCLING;
    uint64_t committed = is_recycling ? 0 : segment->batch_number;

    (void)records;
    (void)kills;
    if (header->sequence > committed && !header->is_recycle)
        search->status = stray_add(search, &header->extent);
    else if (is_recycling ? header->is_recycle : header->sequence == committed)
        search->end_page = header->extent.page + header->total_pages;
    return search->status == KVT_OK;
}

/*
 * No header of the strays shall count any more. In a segment that is RECYCLING one header hides all
 * at once: one after the other, a cut could leave a copy, and not the kill of it that stands behind
 * it there and nowhere else. `generation`: the highest that was found.
 */
static enum kvt_status
strays_hide(struct search *search, const struct segment *segment, uint32_t generation)
{
    struct nvme_tier *nvme = search->store->nvme;

    if (generation < segment->generation)
        generation = segment->generation;
    if (segment->state == SEGMENT_RECYCLING && generation < UINT32_MAX - 1) {
        KVT_TRY(
            nvme_segment_void(nvme, segment, generation + 1, commit_batch_number(search->store)));
        search->end_page = 2; /* The header and its copy. */
        return KVT_OK;
    }
    for (uint32_t i = 0; i < search->stray_count; i++)
        KVT_TRY(nvme_header_erase(nvme, &search->strays[i]));
    return KVT_OK;
}

/* Find the strays of a segment. */
static enum kvt_status
strays_find(struct search *search, const struct segment *segment, struct nvme_scan_result *result)
{
    search->stray_count = search->end_page = 0;
    KVT_TRY(nvme_scan(search->store->nvme, segment->number, batch_visit, search, result));
    return search->status;
}

/* Let none of them stand. */
static enum kvt_status
strays_end(struct search *search, const struct segment *segment, uint32_t generation)
{
    if (search->stray_count > 0)
        search->status = strays_hide(search, segment, generation);
    /* What an open whose process was killed has left, zeros or a recycle header that hides others,
     * strays_recycle() has synced. Behind an orderly end nothing is in doubt: whatever has left a
     * segment that is RECYCLING has kills elsewhere (dropped_bury(), reclaim.c), or was erased. */
    if (search->status == KVT_OK && search->stray_count > 0)
        search->status = nvme_files_sync(search->store->nvme);
    return search->status;
}

/* *unreadable_end_out: behind the last page that may be a stray and cannot be read; 0: there is
 * none. */
static enum kvt_status
strays_search(struct search *search, const struct segment *segment, uint32_t *unreadable_end_out)
{
    struct nvme_scan_result result;

    KVT_TRY(strays_find(search, segment, &result));
    (void)strays_end(search, segment, result.generation);
    *unreadable_end_out = result.unreadable_end > search->end_page ? result.unreadable_end : 0;
    return search->status;
}

/* Write over what cannot be read, and all before it that is not needed: a disk has another sector
 * for a bad one then. False: it is not known where that begins. */
static bool
unreadable_erase(struct search *search, const struct segment *segment, uint32_t end)
{
    if (search->end_page == 0)
        return false;
    for (uint32_t page = search->end_page; page < end && search->status == KVT_OK; page++)
        search->status = nvme_header_erase(
            search->store->nvme, &(struct extent){segment->number, segment->generation, page});
    if (search->status == KVT_OK)
        search->status = nvme_files_sync(search->store->nvme);
    return true;
}

static enum kvt_status
strays_erase(struct search *search, const struct segment *segment)
{
    uint32_t end;

    KVT_TRY(strays_search(search, segment, &end));
    if (end > 0 && unreadable_erase(search, segment, end) && search->status == KVT_OK)
        KVT_TRY(strays_search(search, segment, &end));
    if (end > 0 && search->status == KVT_OK)
        search->status = failure_set(KVT_E_IO, 0,
            "segment 0x%x: page %u cannot be read, and may be the header of a batch without a "
            "commit",
            segment->number, end - 1);
    return search->status;
}

/* The segment takes batches again, behind its last one, unless another of its root has more room:
 * nothing but what was committed stands in it now. */
static void
segment_continue(struct search *search, struct segment *segment)
{
    struct segment_table *table = search->store->segments;
    struct segment *active = segment_active(table, segment_root(segment->number));

    if (segment->state != SEGMENT_SEALED || search->end_page == 0 ||
        search->end_page == segment_pages(table) ||
        (active != NULL && active->fill_page <= search->end_page))
        return;
    if (active != NULL)
        segment_seal(table, active);
    /* Page 1 may be the copy of the recycle header. */
    segment_resume(table, segment, search->end_page > 1 ? search->end_page : 2);
}

/* This life began with a rebuild that could not read all. */
static bool
has_unread(const struct kvt_store *store)
{
    return atomic_load_explicit(&store->counters.recover_unread_count, memory_order_relaxed) > 0;
}

static bool
root_lacks_room(const struct kvt_store *store, uint32_t root)
{
    return segment_count_in(store->segments, root, SEGMENT_FREE) +
               (segment_active(store->segments, root) != NULL) <
           RECLAIM_RESERVE;
}

static bool
is_half_empty(const struct segment_table *table, const struct segment *segment)
{
    return segment != NULL && segment->fill_page <= segment_pages(table) / 2;
}

/* The SEALED segment of a root that has got its last batch before that number, and after all
 * others: what failed has closed those that came last. NULL: there is none. */
static struct segment *
last_filled(struct kvt_store *store, uint32_t root, uint64_t before)
{
    struct segment *last = NULL;
    struct segment *segment;
    uint32_t cursor = 0;

    while ((segment = segment_next(store->segments, &cursor)) != NULL) {
        if (segment_root(segment->number) == root && segment->state == SEGMENT_SEALED &&
            segment->void_count == 0 && segment->batch_number > 0 &&
            segment->batch_number < before &&
            (last == NULL || segment->batch_number > last->batch_number))
            last = segment;
    }
    return last;
}

/* The index has it as ACTIVE before it takes a batch: where that has no commit, the next open looks
 * for it here. */
static void
active_commit(struct kvt_store *store, struct segment *active)
{
    struct index_segment facts;

    segment_facts(active, &facts);
    if (facts_commit(store, &facts, 1) == KVT_OK)
        return;
    segment_seal(store->segments, active);
    log_line(&store->logger, LOG_ERROR, "strays", "event=not_continued segment=%u text=\"%s\"",
        active->number, failure_last()->text);
    commit_failed(store);
}

/*
 * Writes that failed have closed what the root had for reclaiming, and its kills and what is pinned
 * need room: there is some behind the last batch of such a segment, which goes on being filled. One
 * of which something cannot be read, or of which the index knows another generation than the disk,
 * stays as it is, and nothing is in doubt for that: there may be batches that a rebuild could not
 * read, and that count for another.
 */
static void
room_find(struct kvt_store *store, uint32_t root)
{
    struct search search = {.store = store};
    struct segment *active = segment_active(store->segments, root);
    const struct segment *before = active;
    uint64_t number = UINT64_MAX;
    uint32_t bad_count = 0;

    for (uint32_t i = 0; i < ROOM_TRIES && bad_count < ROOM_BAD && search.status == KVT_OK &&
                         !is_half_empty(store->segments, active);
         i++) {
        struct segment *segment = last_filled(store, root, number);
        struct nvme_scan_result result;

        if (segment == NULL)
            break;
        number = segment->batch_number;
        if (strays_find(&search, segment, &result) != KVT_OK)
            break;
        bad_count += result.unreadable_end > 0;
        if (result.unreadable_end == 0 && result.generation == segment->generation &&
            strays_end(&search, segment, result.generation) == KVT_OK)
            segment_continue(&search, segment);
        active = segment_active(store->segments, root);
    }
    if (active != before)
        active_commit(store, active);
    env_put(&store->env, search.strays, search.stray_capacity * sizeof(*search.strays));
}

/* The loop, which does nothing else yet: no batch is written where another is sought, and no
 * segment that may be ACTIVE again is reclaimed. */
static bool
search_run(struct kvt_store *store, void *context)
{
    struct search *search = context;
    struct segment *segment;
    uint32_t cursor = 0;

    while ((segment = segment_next(store->segments, &cursor)) != NULL) {
        if (!segment_is_suspect(segment))
            continue;
        if (search->status == KVT_OK)
            search->status = strays_erase(search, segment);
        if (search->status != KVT_OK)
            continue; /* What was ACTIVE stays so in the index: the next open looks again. */
        if (segment->was_active)
            segment->void_count--;
        segment_continue(search, segment);
    }
    if (search->status != KVT_OK) {
        commit_doubt(store, search->status);
        log_line(&store->logger, LOG_WARN, "strays", "event=not_erased status=%s text=\"%s\"",
            kvt_status_name(search->status), failure_last()->text);
    }
    for (uint32_t root = 0; root < store->file.root_count; root++) {
        if (search->status == KVT_OK && root_lacks_room(store, root) && !has_unread(store))
            room_find(store, root);
    }
    store->seeks_strays = false;
    return true;
}

void
strays_remove(struct kvt_store *store)
{
    struct search search = {.store = store};

    if (!store->seeks_strays)
        return;
    loop_call(store, search_run, &search);
    env_put(&store->env, search.strays, search.stray_capacity * sizeof(*search.strays));
}
