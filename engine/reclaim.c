/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reclaim.c - one segment at a time back to FREE. See reclaim.h for the states.
 */
#include "reclaim.h"

#include "batch_header.h"
#include "store_internal.h"

enum {
    RECORDS_START = 1024,
    FREE_WANTED = 3, /* Segments of a root: the reserve, and one to write into. */
};

enum reclaim_state {
    RECLAIM_IDLE,
    RECLAIM_SCANNING,
    RECLAIM_DELETING,
    RECLAIM_HEADING,
    RECLAIM_WRITING,
    RECLAIM_FREEING,
};

struct reclaim {
    struct kvt_store *store;
    enum reclaim_state state;
    struct segment *victim;
    struct job scan;
    enum kvt_status scan_status;
    struct block_record *records;
    uint32_t record_count, record_capacity;
    struct tier_kill kills[BATCH_KILLS_MAX];
    uint32_t kill_count;
    struct commit_job job;
    struct index_segment facts;
    struct batch_owner owner;
    struct tier_batch batch;
    bool has_failed; /* The index or the disk refused: nothing more is reclaimed. */
};

enum kvt_status
reclaim_open(struct kvt_store *store)
{
    struct reclaim *reclaim = env_take(&store->env, sizeof(*reclaim));

    store->reclaim = reclaim;
    if (reclaim == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for reclaiming");
    reclaim->store = store;
    reclaim->records = env_take(&store->env, RECORDS_START * sizeof(*reclaim->records));
    if (reclaim->records == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for reclaiming");
    reclaim->record_capacity = RECORDS_START;
    return KVT_OK;
}

void
reclaim_close(struct kvt_store *store)
{
    struct reclaim *reclaim = store->reclaim;

    if (reclaim == NULL)
        return;
    env_put(&store->env, reclaim->records, reclaim->record_capacity * sizeof(*reclaim->records));
    env_put(&store->env, reclaim, sizeof(*reclaim));
    store->reclaim = NULL;
}

bool
reclaim_is_idle(struct kvt_store *store)
{
    return store->reclaim == NULL || store->reclaim->state == RECLAIM_IDLE;
}

static bool
store_takes_commits(const struct kvt_store *store)
{
    return store->nvme != NULL && (atomic_load_explicit(&store->health, memory_order_relaxed) &
                                      (KVT_HEALTH_META_READONLY | KVT_HEALTH_READ_ONLY)) == 0;
}

/* --- Which ------------------------------------------------------------------------------------ */

/* Add up when the blocks of each segment were used last. */
static void
uses_add_up(struct kvt_store *store)
{
    uint32_t limit = residency_number_limit(store->map);
    struct segment *segment;
    uint32_t cursor = 0;

    while ((segment = segment_next(store->segments, &cursor)) != NULL) {
        segment->use_sum = 0;
        segment->use_count = 0;
    }
    for (uint32_t number = 0; number < limit; number++) {
        const struct entry *entry = residency_at(store->map, number);
        uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);

        if (word_state(word) != ENTRY_RESIDENT || (word_tiers(word) & TIER_NVME) == 0)
            continue;
        segment = segment_at(store->segments, entry->segment);
        segment->use_sum += policy_at(store->policy, number)->last_use_s;
        segment->use_count++;
    }
}

static bool
segment_is_eligible(struct kvt_store *store, const struct segment *segment)
{
    return segment->state == SEGMENT_SEALED && segment->writer_count == 0 &&
           segment->generation < UINT32_MAX - 1 && !commit_uses(store, segment->number);
}

/* The SEALED segment whose blocks were, on average, used longest ago; an empty one first of all, and
 * of equals the one that is filled least. */
static struct segment *
victim_choose(struct kvt_store *store)
{
    struct segment *segment;
    struct segment *victim = NULL;
    uint64_t lowest = UINT64_MAX;
    uint32_t cursor = 0;

    uses_add_up(store);
    while ((segment = segment_next(store->segments, &cursor)) != NULL) {
        uint64_t mean = segment->use_count == 0 ? 0 : 1 + segment->use_sum / segment->use_count;

        if (!segment_is_eligible(store, segment))
            continue;
        if (victim == NULL || mean < lowest ||
            (mean == lowest && segment->live_bytes < victim->live_bytes)) {
            victim = segment;
            lowest = mean;
        }
    }
    return victim;
}

/* A segment that a crash left RECYCLING. */
static struct segment *
unfinished_find(struct kvt_store *store)
{
    struct segment *segment;
    uint32_t cursor = 0;

    while ((segment = segment_next(store->segments, &cursor)) != NULL) {
        if (segment->state == SEGMENT_RECYCLING && segment->generation < UINT32_MAX - 1)
            return segment;
    }
    return NULL;
}

static bool
room_is_short(const struct kvt_store *store)
{
    uint64_t share = 100 - store->options.nvme_high_percent;

    for (uint32_t root = 0; root < store->file.root_count; root++) {
        uint64_t total = store->file.root_bytes[root] / PAGE_BYTES / store->file.segment_pages;
        uint64_t wanted = total * share / 100;

        if (wanted < FREE_WANTED)
            wanted = FREE_WANTED;
        if (segment_count_in(store->segments, root, SEGMENT_FREE) < wanted)
            return true;
    }
    return false;
}

/* --- Scanning --------------------------------------------------------------------------------- */

static enum kvt_status
record_keep(struct reclaim *reclaim, const struct block_record *record)
{
    const struct kvt_env *env = &reclaim->store->env;

    if (reclaim->record_count == reclaim->record_capacity) {
        uint32_t capacity = reclaim->record_capacity * 2;
        struct block_record *records = env_take(env, capacity * sizeof(*records));

        if (records == NULL)
            return failure_set(KVT_E_NOMEM, 0, "no memory to reclaim a segment");
        memcpy(records, reclaim->records, reclaim->record_count * sizeof(*records));
        env_put(env, reclaim->records, reclaim->record_capacity * sizeof(*records));
        reclaim->records = records;
        reclaim->record_capacity = capacity;
    }
    reclaim->records[reclaim->record_count++] = *record;
    return KVT_OK;
}

static bool
scan_visit(void *visitor, const struct batch_header *header, const struct block_record *records,
    const struct tier_kill *kills)
{
    struct reclaim *reclaim = visitor;
    enum kvt_status status = KVT_OK;

    for (uint32_t i = 0; i < header->block_count && status == KVT_OK; i++)
        status = record_keep(reclaim, &records[i]);
    for (uint32_t i = 0; i < header->kill_count && status == KVT_OK; i++) {
        const struct segment *segment =
            segment_at(reclaim->store->segments, kills[i].extent.segment);

        /* A kill is needed until the copy that it names is void: its segment's generation passed.
         * Generations only rise, so that a stale look keeps one too many. */
        if (segment == NULL || segment == reclaim->victim ||
            segment->generation != kills[i].extent.generation)
            continue;
        if (reclaim->kill_count == BATCH_KILLS_MAX)
            status = failure_set(KVT_E_NOSPC, 0, "more kills than a recycle header holds");
        else
            reclaim->kills[reclaim->kill_count++] = kills[i];
    }
    reclaim->scan_status = status;
    return status == KVT_OK;
}

static void
scan_run(struct crew_job *crew_job)
{
    struct job *job = CONTAINER_OF(crew_job, struct job, crew);
    struct reclaim *reclaim = CONTAINER_OF(job, struct reclaim, scan);
    uint32_t generation;
    uint64_t damaged_pages;
    enum kvt_status status = nvme_scan(reclaim->store->nvme, reclaim->victim->number, scan_visit,
        reclaim, &generation, &damaged_pages);

    reclaim->scan_status = status_keep(reclaim->scan_status, status);
}

/* --- Dropping and deleting -------------------------------------------------------------------- */

/* Take the block's NVMe copy away, and with it the block when that was its last. False: pinned. */
static bool
block_drop(struct kvt_store *store, const struct block_record *record)
{
    struct hash128 fingerprint = key_fingerprint(store->fingerprint_seed, &record->key);
    uint32_t number = residency_find(store->map, fingerprint, &record->key);
    struct entry *entry;
    uint64_t word;

    if (number == ENTRY_NONE)
        return true;
    entry = residency_at(store->map, number);
    word = atomic_load_explicit(&entry->word, memory_order_relaxed);
    if ((word_tiers(word) & TIER_NVME) == 0 || entry->segment != record->extent.segment ||
        entry->page != record->extent.page || entry->extent_generation != record->extent.generation)
        return true;
    if ((word_tiers(word) & TIER_HOST) != 0) {
        if (!residency_tier_clear(store->map, number, TIER_NVME))
            return false;
        extent_forget(store, &record->extent, record->stored_length);
    } else if (!entry_drop(store, number, false)) {
        return false;
    }
    COUNT(store, nvme_evict_count, 1);
    return true;
}

static enum kvt_status
delete_run(struct kvt_store *store, struct commit_job *job)
{
    struct reclaim *reclaim = CONTAINER_OF(job, struct reclaim, job);
    uint32_t deleted_count = 0;

    return store->index->ops->delete_range(
        store->index, &reclaim->facts, 0, UINT32_MAX, &deleted_count);
}

/* The index refused: the segment stays as it is until the next open. */
static void
reclaim_give_up(struct kvt_store *store)
{
    store->reclaim->state = RECLAIM_IDLE;
    store->reclaim->has_failed = true;
    commit_failed(store);
}

static void
delete_finish(struct kvt_store *store, struct commit_job *job)
{
    if (job->status != KVT_OK) {
        reclaim_give_up(store);
        return;
    }
    store->reclaim->state = RECLAIM_HEADING;
}

static void
scan_finish(struct kvt_store *store, struct job *job)
{
    struct reclaim *reclaim = store->reclaim;
    bool is_whole = reclaim->scan_status == KVT_OK;

    (void)job;
    if (reclaim->victim->state == SEGMENT_RECYCLING) {
        /* Left over from a crash: its records are gone from the index. */
        reclaim->state = RECLAIM_HEADING;
        return;
    }
    for (uint32_t i = 0; i < reclaim->record_count && is_whole; i++)
        is_whole = block_drop(store, &reclaim->records[i]);
    if (!is_whole || reclaim->victim->live_bytes != 0) {
        /* Somebody reads a block of it: its turn comes again. */
        reclaim->state = RECLAIM_IDLE;
        return;
    }
    segment_recycle_begin(store->segments, reclaim->victim);
    segment_facts(reclaim->victim, &reclaim->facts);
    reclaim->job.run = delete_run;
    reclaim->job.finish = delete_finish;
    reclaim->state = RECLAIM_DELETING;
    committer_submit(store->committer, &reclaim->job);
}

static void
reclaim_start(struct kvt_store *store, struct segment *victim)
{
    struct reclaim *reclaim = store->reclaim;

    reclaim->victim = victim;
    reclaim->record_count = 0;
    reclaim->kill_count = 0;
    reclaim->scan_status = KVT_OK;
    reclaim->scan.crew.run = scan_run;
    reclaim->scan.finish = scan_finish;
    reclaim->state = RECLAIM_SCANNING;
    loop_job(store, &reclaim->scan);
}

/* --- The recycle header ----------------------------------------------------------------------- */

static enum kvt_status
free_run(struct kvt_store *store, struct commit_job *job)
{
    struct reclaim *reclaim = CONTAINER_OF(job, struct reclaim, job);
    struct index_batch batch = {.segments = &reclaim->facts, .segment_count = 1};

    return index_commit_growing(store->index, &batch);
}

static void
free_finish(struct kvt_store *store, struct commit_job *job)
{
    struct reclaim *reclaim = store->reclaim;

    if (job->status != KVT_OK) {
        reclaim_give_up(store);
        return;
    }
    segment_free(store->segments, reclaim->victim);
    COUNT(store, segment_recycle_count, 1);
    reclaim->state = RECLAIM_IDLE;
}

static void
head_finish(struct kvt_store *store, struct tier_batch *batch)
{
    struct reclaim *reclaim = store->reclaim;

    if (batch->status != KVT_OK) {
        /* The disk refused; the segment stays RECYCLING, the next open tries again. */
        reclaim->has_failed = true;
        reclaim->state = RECLAIM_IDLE;
        return;
    }
    segment_facts(reclaim->victim, &reclaim->facts);
    reclaim->facts.state = SEGMENT_FREE;
    reclaim->facts.generation++;
    reclaim->job.run = free_run;
    reclaim->job.finish = free_finish;
    reclaim->state = RECLAIM_FREEING;
    committer_submit(store->committer, &reclaim->job);
}

/* False: readers are still there. */
static bool
head_start(struct kvt_store *store)
{
    struct reclaim *reclaim = store->reclaim;
    enum kvt_status status;

    reclaim->owner.finish = head_finish;
    reclaim->batch = (struct tier_batch){.kills = reclaim->kills,
        .kill_count = reclaim->kill_count,
        .sequence = commit_batch_number(store),
        .done = &store->batches_done,
        .done_task = &store->loop_task,
        .user = &reclaim->owner};
    status = nvme_recycle(store->nvme, reclaim->victim, &reclaim->batch);
    if (status == KVT_E_BUSY)
        return false;
    if (status == KVT_OK) {
        reclaim->state = RECLAIM_WRITING;
    } else {
        reclaim->has_failed = true;
        reclaim->state = RECLAIM_IDLE;
    }
    return true;
}

/* --- The loop's calls ------------------------------------------------------------------------- */

bool
reclaim_want(struct kvt_store *store)
{
    struct reclaim *reclaim = store->reclaim;
    struct segment *victim;

    if (reclaim->state != RECLAIM_IDLE)
        return true;
    if (reclaim->has_failed || store->is_draining || !store_takes_commits(store))
        return false;
    victim = unfinished_find(store);
    if (victim == NULL)
        victim = victim_choose(store);
    if (victim == NULL)
        return false;
    reclaim_start(store, victim);
    return true;
}

bool
reclaim_step(struct kvt_store *store)
{
    struct reclaim *reclaim = store->reclaim;

    if (reclaim->state == RECLAIM_HEADING)
        return head_start(store);
    if (reclaim->state != RECLAIM_IDLE || reclaim->has_failed || store->is_draining ||
        !store_takes_commits(store) || commit_is_idle(store))
        return false;
    /* Only while something is written: a store at rest is left as it is. */
    return (room_is_short(store) || unfinished_find(store) != NULL) && reclaim_want(store);
}
