/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reclaim.c - one segment at a time back to FREE. See reclaim.h for the states.
 */
#include "reclaim.h"

#include "array.h"
#include "batch_header.h"
#include "store_internal.h"
#include "victim.h"

enum {
    FREE_WANTED = 3, /* Segments of a root: the reserve, and one to write into. */
};

enum reclaim_state {
    RECLAIM_IDLE,
    RECLAIM_SCANNING,
    RECLAIM_RELOCATING,
    RECLAIM_DELETING,
    RECLAIM_HEADING,
    RECLAIM_WRITING,
    RECLAIM_FREEING,
};

/* A record in a header of the victim; its block may be long gone. */
struct trace {
    struct hash128 fingerprint;
    uint32_t page;
};

struct reclaim {
    struct kvt_store *store;
    enum reclaim_state state;
    struct segment *victim;
    struct job scan;
    enum kvt_status scan_status;
    struct trace *traces;
    uint32_t trace_count, trace_capacity;
    struct tier_kill *kills;
    uint32_t kill_count, kill_capacity;
    struct resident *residents; /* Those to be written again first. */
    uint32_t resident_count, resident_capacity;
    uint32_t survivor_count;
    uint32_t moved_count; /* Survivors that relocate.c has dealt with. */
    struct segment_change change;
    struct batch_owner owner;
    struct tier_batch batch;
    struct op_list settlers; /* Deletes that wait for the end. */
    bool has_failed;         /* The index or the disk refused: nothing more is reclaimed. */
};

enum kvt_status
reclaim_open(struct kvt_store *store)
{
    store->reclaim = env_take(&store->env, sizeof(*store->reclaim));
    if (store->reclaim == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for reclaiming");
    store->reclaim->store = store;
    return KVT_OK;
}

void
reclaim_close(struct kvt_store *store)
{
    struct reclaim *reclaim = store->reclaim;
    const struct kvt_env *env = &store->env;

    if (reclaim == NULL)
        return;
    env_put(env, reclaim->traces, reclaim->trace_capacity * sizeof(*reclaim->traces));
    env_put(env, reclaim->kills, reclaim->kill_capacity * sizeof(*reclaim->kills));
    env_put(env, reclaim->residents, reclaim->resident_capacity * sizeof(*reclaim->residents));
    env_put(env, reclaim, sizeof(*reclaim));
    store->reclaim = NULL;
}

bool
reclaim_is_idle(const struct kvt_store *store)
{
    return store->reclaim == NULL || store->reclaim->state == RECLAIM_IDLE;
}

static bool
reclaim_is_allowed(const struct kvt_store *store)
{
    return store->nvme != NULL && !store->reclaim->has_failed && !store->is_draining &&
           (atomic_load_explicit(&store->health, memory_order_relaxed) &
               (KVT_HEALTH_META_READONLY | KVT_HEALTH_READ_ONLY)) == 0;
}

/* --- Ends ------------------------------------------------------------------------------------- */

static void
reclaim_end(struct kvt_store *store)
{
    struct reclaim *reclaim = store->reclaim;
    struct op *op;

    reclaim->state = RECLAIM_IDLE;
    while ((op = op_list_take(&reclaim->settlers)) != NULL)
        delete_settle(store, op);
    commit_unstall(store);
}

/* The victim stays as it is, and others have their turn. */
static void
reclaim_let_go(struct kvt_store *store, const char *reason)
{
    struct segment *victim = store->reclaim->victim;

    log_line(&store->logger, LOG_INFO, "reclaim",
        "event=passed_over segment=%u live_bytes=%llu reason=\"%s\"", victim->number,
        (unsigned long long)victim->live_bytes, reason);
    victim->is_passed_over = true;
    reclaim_end(store);
}

/* The index or the disk refused: the segment stays as it is until the next open. */
static void
reclaim_give_up(struct kvt_store *store)
{
    store->reclaim->has_failed = true;
    reclaim_end(store);
}

bool
reclaim_settle(struct kvt_store *store, struct op *op)
{
    if (reclaim_is_idle(store))
        return false;
    op_list_add(&store->reclaim->settlers, op);
    return true;
}

/* --- Scanning (a worker) ---------------------------------------------------------------------- */

static enum kvt_status
trace_add(struct reclaim *reclaim, const struct block_record *record)
{
    const struct kvt_store *store = reclaim->store;

    if (reclaim->trace_count == reclaim->trace_capacity) {
        struct trace *grown =
            array_grow(&store->env, reclaim->traces, &reclaim->trace_capacity, sizeof(*grown));

        if (grown == NULL)
            return failure_set(KVT_E_NOMEM, 0, "no memory for the records of a segment");
        reclaim->traces = grown;
    }
    reclaim->traces[reclaim->trace_count++] =
        (struct trace){key_fingerprint(store->fingerprint_seed, &record->key), record->extent.page};
    return KVT_OK;
}

static enum kvt_status
kill_add(struct reclaim *reclaim, const struct tier_kill *kill)
{
    if (reclaim->kill_count == reclaim->kill_capacity) {
        struct tier_kill *grown = array_grow(
            &reclaim->store->env, reclaim->kills, &reclaim->kill_capacity, sizeof(*grown));

        if (grown == NULL)
            return failure_set(KVT_E_NOMEM, 0, "no memory for the kills of a segment");
        reclaim->kills = grown;
    }
    reclaim->kills[reclaim->kill_count++] = *kill;
    return KVT_OK;
}

static bool
scan_visit(void *visitor, const struct batch_header *header, const struct block_record *records,
    const struct tier_kill *kills)
{
    struct reclaim *reclaim = visitor;
    enum kvt_status status = KVT_OK;

    if (header->sequence > reclaim->victim->batch_number)
        return true; /* A crash left it without a commit: it does not count. */
    for (uint32_t i = 0; i < header->block_count && status == KVT_OK; i++)
        status = trace_add(reclaim, &records[i]);
    for (uint32_t i = 0; i < header->kill_count && status == KVT_OK; i++)
        status = kill_add(reclaim, &kills[i]);
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

/* --- What is in the victim -------------------------------------------------------------------- */

/* A kill is needed until the copy that it names is void: its segment's generation has passed. */
static void
kills_filter(struct reclaim *reclaim)
{
    uint32_t kept_count = 0;

    for (uint32_t i = 0; i < reclaim->kill_count; i++) {
        const struct tier_kill kill = reclaim->kills[i];
        const struct segment *segment = segment_at(reclaim->store->segments, kill.extent.segment);

        if (segment != NULL && segment != reclaim->victim &&
            segment->generation == kill.extent.generation)
            reclaim->kills[kept_count++] = kill;
    }
    reclaim->kill_count = kept_count;
}

/* Take the entry in when it is in the victim. False: no memory. */
static bool
resident_add(struct kvt_store *store, uint32_t number, uint32_t page)
{
    struct reclaim *reclaim = store->reclaim;
    const struct resident resident = {
        .number = number, .extent = {reclaim->victim->number, reclaim->victim->generation, page}};

    if (!resident_is_there(store, &resident))
        return true;
    if (reclaim->resident_count == reclaim->resident_capacity) {
        struct resident *grown = array_grow(
            &store->env, reclaim->residents, &reclaim->resident_capacity, sizeof(*grown));

        if (grown == NULL)
            return false;
        reclaim->residents = grown;
    }
    reclaim->residents[reclaim->resident_count++] = resident;
    return true;
}

/* A header that cannot be read hides its records: then every entry is asked where it is. */
static bool
residents_search(struct kvt_store *store)
{
    uint32_t limit = residency_number_limit(store->map);

    store->reclaim->resident_count = 0;
    for (uint32_t number = 0; number < limit; number++) {
        if (!resident_add(store, number, residency_at(store->map, number)->page))
            return false;
    }
    return true;
}

/* False: no memory. */
static bool
residents_find(struct kvt_store *store)
{
    struct reclaim *reclaim = store->reclaim;
    uint64_t bytes = 0;

    reclaim->resident_count = 0;
    for (uint32_t i = 0; i < reclaim->trace_count; i++) {
        const struct trace *trace = &reclaim->traces[i];
        uint32_t number = residency_find_fingerprint(store->map, trace->fingerprint);

        if (number != ENTRY_NONE && !resident_add(store, number, trace->page))
            return false;
    }
    for (uint32_t i = 0; i < reclaim->resident_count; i++)
        bytes += (uint64_t)pages_of(
                     residency_at(store->map, reclaim->residents[i].number)->stored_length) *
                 PAGE_BYTES;
    return bytes == reclaim->victim->live_bytes || residents_search(store);
}

static void
scan_finish(struct kvt_store *store, struct job *job)
{
    struct reclaim *reclaim = store->reclaim;

    (void)job;
    KVT_ASSERT(reclaim->state == RECLAIM_SCANNING);
    if (reclaim->scan_status != KVT_OK) {
        reclaim_let_go(store, "its headers could not be scanned");
        return;
    }
    kills_filter(reclaim);
    if (!residents_find(store)) {
        reclaim_let_go(store, "no memory for its blocks");
        return;
    }
    reclaim->survivor_count = victim_survivors(store, reclaim->residents, reclaim->resident_count);
    if (reclaim->survivor_count == VICTIM_UNMOVABLE) {
        reclaim_let_go(store, "too many of its blocks are pinned");
        return;
    }
    reclaim->moved_count = 0;
    reclaim->state = RECLAIM_RELOCATING;
}

static void
reclaim_start(struct kvt_store *store, struct segment *victim)
{
    struct reclaim *reclaim = store->reclaim;

    KVT_ASSERT(reclaim->state == RECLAIM_IDLE);
    reclaim->victim = victim;
    reclaim->trace_count = 0;
    reclaim->kill_count = 0;
    reclaim->scan_status = KVT_OK;
    reclaim->scan.crew.run = scan_run;
    reclaim->scan.finish = scan_finish;
    reclaim->state = RECLAIM_SCANNING;
    loop_job(store, &reclaim->scan);
}

/* --- Emptying --------------------------------------------------------------------------------- */

/* Take the block's NVMe copy away, and with it the block when that was its last. False: pinned. */
static bool
resident_drop(struct kvt_store *store, const struct resident *resident)
{
    uint64_t word = atomic_load_explicit(
        &residency_at(store->map, resident->number)->word, memory_order_relaxed);
    bool is_dropped = (word_tiers(word) & TIER_HOST) != 0
                          ? entry_nvme_release(store, resident->number)
                          : entry_drop(store, resident->number, false);

    if (is_dropped)
        COUNT(store, nvme_evict_count, 1);
    return is_dropped;
}

/* What is still in the victim goes; what is pinned will be moved. False: there is such. */
static bool
victim_empty(struct kvt_store *store)
{
    struct reclaim *reclaim = store->reclaim;
    uint32_t kept_count = 0;

    for (uint32_t i = 0; i < reclaim->resident_count; i++) {
        const struct resident resident = reclaim->residents[i];

        if (resident_is_there(store, &resident) && !resident_drop(store, &resident))
            reclaim->residents[kept_count++] = resident;
    }
    reclaim->resident_count = reclaim->survivor_count = kept_count;
    reclaim->moved_count = 0;
    return kept_count == 0;
}

static void
delete_finish(struct kvt_store *store, struct segment_change *change, enum kvt_status status)
{
    (void)change;
    KVT_ASSERT(store->reclaim->state == RECLAIM_DELETING);
    if (status == KVT_OK)
        store->reclaim->state = RECLAIM_HEADING;
    else
        reclaim_give_up(store);
}

static void
victim_emptied(struct kvt_store *store)
{
    struct reclaim *reclaim = store->reclaim;

    if (reclaim->victim->state == SEGMENT_RECYCLING) {
        /* Left over from a crash: its records are gone from the index. */
        reclaim->state = RECLAIM_HEADING;
        return;
    }
    KVT_ASSERT(reclaim->victim->live_bytes == 0 && reclaim->victim->use_count == 0);
    segment_recycle_begin(store->segments, reclaim->victim);
    segment_facts(reclaim->victim, &reclaim->change.facts);
    reclaim->change.is_emptied = true;
    reclaim->change.finish = delete_finish;
    reclaim->state = RECLAIM_DELETING;
    commit_segment(store, &reclaim->change);
}

/* The next group, or what comes after the last one. False: it must wait. */
static bool
relocate_next(struct kvt_store *store)
{
    struct reclaim *reclaim = store->reclaim;

    if (!reclaim_is_allowed(store)) {
        reclaim_let_go(store, "the store is closed, or takes no commits");
    } else if (relocate_status_take(store) != KVT_OK) {
        reclaim_let_go(store, "a block could not be written elsewhere");
    } else if (reclaim->moved_count < reclaim->survivor_count) {
        reclaim->moved_count += relocate_start(store, reclaim->residents + reclaim->moved_count,
            reclaim->survivor_count - reclaim->moved_count);
    } else if (reclaim->kill_count > 0) {
        uint32_t count =
            reclaim->kill_count < COMMIT_KILLS_MAX ? reclaim->kill_count : COMMIT_KILLS_MAX;

        reclaim->kill_count -= count;
        relocate_kills(store, reclaim->kills + reclaim->kill_count, count);
    } else if (!commit_replace_leave(store, reclaim->victim->number)) {
        return false;
    } else if (victim_empty(store)) {
        victim_emptied(store);
    }
    return true;
}

/* --- The recycle header ----------------------------------------------------------------------- */

static void
free_finish(struct kvt_store *store, struct segment_change *change, enum kvt_status status)
{
    struct reclaim *reclaim = store->reclaim;

    KVT_ASSERT(reclaim->state == RECLAIM_FREEING);
    if (status != KVT_OK) {
        reclaim_give_up(store);
        return;
    }
    segment_free(store->segments, reclaim->victim);
    reclaim->victim->batch_number = change->facts.batch_number;
    COUNT(store, segment_recycle_count, 1);
    victim_spare_none(store);
    reclaim_end(store);
}

static void
head_finish(struct kvt_store *store, struct tier_batch *batch)
{
    struct reclaim *reclaim = store->reclaim;

    KVT_ASSERT(reclaim->state == RECLAIM_WRITING);
    if (batch->status != KVT_OK) {
        /* The segment stays RECYCLING, the next open tries again. */
        reclaim_give_up(store);
        return;
    }
    segment_facts(reclaim->victim, &reclaim->change.facts);
    reclaim->change.facts.state = SEGMENT_FREE;
    reclaim->change.facts.generation++;
    reclaim->change.facts.batch_number = batch->sequence;
    reclaim->change.is_emptied = false;
    reclaim->change.finish = free_finish;
    reclaim->state = RECLAIM_FREEING;
    commit_segment(store, &reclaim->change);
}

/* False: readers are still there. */
static bool
head_start(struct kvt_store *store)
{
    struct reclaim *reclaim = store->reclaim;
    enum kvt_status status;

    reclaim->owner.finish = head_finish;
    reclaim->batch = (struct tier_batch){.sequence = commit_batch_number(store),
        .done = &store->batches_done,
        .done_task = &store->loop_task,
        .user = &reclaim->owner};
    status = nvme_recycle(store->nvme, reclaim->victim, &reclaim->batch);
    if (status == KVT_E_BUSY)
        return false;
    if (status == KVT_OK)
        reclaim->state = RECLAIM_WRITING;
    else
        reclaim_give_up(store);
    return true;
}

/* --- The loop's calls ------------------------------------------------------------------------- */

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

bool
reclaim_want(struct kvt_store *store)
{
    struct segment *victim;

    if (!reclaim_is_idle(store))
        return true;
    if (!reclaim_is_allowed(store))
        return false;
    victim = victim_unfinished(store);
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
    switch (store->reclaim->state) {
    case RECLAIM_RELOCATING:
        return relocate_is_idle(store) && relocate_next(store);
    case RECLAIM_HEADING:
        return head_start(store);
    case RECLAIM_IDLE:
        /* Only while something is written: a store at rest is left as it is. */
        return reclaim_is_allowed(store) && !commit_is_idle(store) &&
               (room_is_short(store) || victim_unfinished(store) != NULL) && reclaim_want(store);
    case RECLAIM_SCANNING:
    case RECLAIM_DELETING:
    case RECLAIM_WRITING:
    case RECLAIM_FREEING:
        return false;
    }
    return false;
}
