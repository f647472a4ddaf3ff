/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strays.c - batches without a commit, made void. See strays.h.
 */
#include "strays.h"

#include "batch_header.h"
#include "store_internal.h"

enum {
    FACTS_BATCH = 1024, /* Segments in a transaction. */
};

/* --- FREE segments ---------------------------------------------------------------------------- */

static enum kvt_status
facts_commit(struct kvt_store *store, const struct index_segment *facts, uint32_t count)
{
    const struct index_batch batch = {.segments = facts, .segment_count = count};

    return count == 0 ? KVT_OK : index_commit_growing(store->index, &batch);
}

static enum kvt_status
segment_pass_over(struct kvt_store *store, struct segment *segment)
{
    bool has_batches = false;

    KVT_TRY(nvme_has_batches(store->nvme, segment, &has_batches));
    if (has_batches) {
        bool is_restored =
            segment_restore(store->segments, &(struct segment){.number = segment->number,
                                                 .generation = segment->generation,
                                                 .state = SEGMENT_RECYCLING,
                                                 .batch_number = segment->batch_number});

        KVT_ASSERT(is_restored);
        (void)is_restored;
        return KVT_OK;
    }
    segment->generation++;
    /* Page 0 may hold the header of the generation that was passed over. */
    if (segment->fill_page == 0)
        segment->fill_page = SEGMENT_HEAD_PAGES_MAX;
    return KVT_OK;
}

enum kvt_status
strays_recycle(struct kvt_store *store)
{
    struct index_segment *facts = NULL;
    struct segment *segment;
    uint32_t cursor = 0;
    uint32_t count = 0;
    enum kvt_status status = KVT_OK;

    if (store->nvme == NULL)
        return KVT_OK;
    facts = env_take(&store->env, FACTS_BATCH * sizeof(*facts));
    if (facts == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory to look at free segments");
    while (status == KVT_OK && (segment = segment_next(store->segments, &cursor)) != NULL) {
        if (segment->state != SEGMENT_FREE || segment->generation >= UINT32_MAX - 1)
            continue;
        status = segment_pass_over(store, segment);
        segment_facts(segment, &facts[count++]);
        if (status == KVT_OK && count == FACTS_BATCH) {
            status = facts_commit(store, facts, count);
            count = 0;
        }
    }
    if (status == KVT_OK)
        status = facts_commit(store, facts, count);
    env_put(&store->env, facts, FACTS_BATCH * sizeof(*facts));
    return status;
}

/* --- Void entries ----------------------------------------------------------------------------- */

struct search {
    struct kvt_store *store;
    const struct segment *segment;
    uint32_t count;
    enum kvt_status status;
};

/* Where batches without a commit may stand. A root may have many that were ACTIVE: the last one of
 * an earlier life is noted as something else only when its facts change. A segment that is
 * RECYCLING gets its recycle header, which voids them, only when something is written. */
static bool
segment_is_suspect(const struct segment *segment)
{
    return segment->was_active || segment->state == SEGMENT_RECYCLING;
}

static bool
batch_visit(void *visitor, const struct batch_header *header, const struct block_record *records,
    const struct tier_kill *kills)
{
    struct search *search = visitor;
    const struct commit_kill kill = {.extent = header->extent};

    (void)records;
    (void)kills;
    if (header->is_recycle || header->sequence <= search->segment->batch_number)
        return true;
    search->status = commit_kill(search->store, &kill);
    search->count++;
    return search->status == KVT_OK;
}

/* The loop, which has nothing else to do yet: queue the void entries. */
static bool
search_run(struct kvt_store *store, void *context)
{
    struct search *search = context;
    struct segment *segment;
    uint32_t cursor = 0;

    while (search->status == KVT_OK && (segment = segment_next(store->segments, &cursor)) != NULL) {
        uint32_t generation = 0;
        uint64_t damaged_pages = 0;
        enum kvt_status status;

        if (!segment_is_suspect(segment))
            continue;
        search->segment = segment;
        status = nvme_scan(
            store->nvme, segment->number, batch_visit, search, &generation, &damaged_pages);
        search->status = status_keep(search->status, status);
    }
    return true;
}

enum kvt_status
strays_void(struct kvt_store *store)
{
    struct search search = {.store = store};

    if (store->is_read_only)
        return KVT_OK;
    loop_call(store, search_run, &search);
    KVT_TRY(search.status);
    if (search.count > 0 && store_flush(store) != KVT_OK)
        log_line(&store->logger, LOG_WARN, "strays", "event=not_void batches=%u text=\"%s\"",
            search.count, failure_last()->text);
    return KVT_OK;
}
