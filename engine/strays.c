/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strays.c - finding copies without a commit, and killing them. See strays.h.
 */
#include "strays.h"

#include "array.h"
#include "batch_header.h"
#include "store_internal.h"

enum {
    UNCOMMITTED_BATCHES = 8, /* Fewer can be under way in one segment (commit.c, relocate.c). */
};

struct stray {
    struct commit_kill kill;
    uint32_t batch; /* Counted from the first of the segment. */
};

struct search {
    struct kvt_store *store;
    struct stray *strays;
    uint32_t count, capacity;
    uint32_t batch_count;
    enum kvt_status status;
};

/* Whether the map has this very copy. */
static bool
copy_is_live(struct kvt_store *store, struct hash128 fingerprint, const struct block_record *record)
{
    uint32_t number = residency_find(store->map, fingerprint, &record->key);
    const struct entry *entry;

    if (number == ENTRY_NONE)
        return false;
    entry = residency_at(store->map, number);
    return entry->segment == record->extent.segment && entry->page == record->extent.page &&
           entry->extent_generation == record->extent.generation;
}

static enum kvt_status
record_look(struct search *search, const struct block_record *record)
{
    struct kvt_store *store = search->store;
    struct hash128 fingerprint = key_fingerprint(store->fingerprint_seed, &record->key);

    if (copy_is_live(store, fingerprint, record))
        return KVT_OK;
    if (search->count == search->capacity) {
        struct stray *grown =
            array_grow(&store->env, search->strays, &search->capacity, sizeof(*grown));

        if (grown == NULL)
            return failure_set(KVT_E_NOMEM, 0, "no memory for the copies that a crash left");
        search->strays = grown;
    }
    search->strays[search->count++] = (struct stray){
        .kill = {.extent = record->extent,
            .fingerprint = fingerprint,
            .sequence = record->sequence},
        .batch = search->batch_count,
    };
    return KVT_OK;
}

static bool
batch_visit(void *visitor, const struct batch_header *header, const struct block_record *records,
    const struct tier_kill *kills)
{
    struct search *search = visitor;

    (void)kills;
    for (uint32_t i = 0; i < header->block_count && search->status == KVT_OK; i++)
        search->status = record_look(search, &records[i]);
    search->batch_count++;
    return search->status == KVT_OK;
}

static enum kvt_status
segment_search(struct search *search, uint32_t segment)
{
    uint32_t generation = 0;
    uint64_t damaged_pages = 0;

    search->count = 0;
    search->batch_count = 0;
    KVT_TRY(
        nvme_scan(search->store->nvme, segment, batch_visit, search, &generation, &damaged_pages));
    KVT_TRY(search->status);
    for (uint32_t i = 0; i < search->count; i++) {
        if (search->strays[i].batch + UNCOMMITTED_BATCHES >= search->batch_count)
            KVT_TRY(commit_kill(search->store, &search->strays[i].kill));
    }
    return KVT_OK;
}

enum kvt_status
strays_kill(struct kvt_store *store)
{
    struct search search = {.store = store};
    enum kvt_status status = KVT_OK;

    for (uint32_t root = 0; root < store->file.root_count && status == KVT_OK; root++) {
        uint32_t segment = store->active_at_crash[root];

        if (segment != SEGMENT_NONE)
            status = segment_search(&search, segment);
    }
    env_put(&store->env, search.strays, search.capacity * sizeof(*search.strays));
    return status;
}
