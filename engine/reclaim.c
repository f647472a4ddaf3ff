/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reclaim.c - one segment at a time back to FREE. See reclaim.h for the states.
 */
#include "reclaim.h"

#include "array.h"
#include "store_internal.h"
#include "victim.h"
#include "victim_scan.h"

enum {
    AGAIN_DIVISOR = 5, /* Of what is admitted so much may be written again. */
};

enum reclaim_state {
    RECLAIM_IDLE,
    RECLAIM_RELOCATING,
    RECLAIM_DELETING,
    RECLAIM_HEADING,
    RECLAIM_WRITING,
    RECLAIM_FREEING,
};

/* A copy that has left NVMe with the victim. Those of a bucket are linked by their indexes + 1; 0:
 * none. */
struct dropped {
    struct commit_kill kill;
    uint32_t next; /* Of its bucket. */
    uint32_t head; /* Of the bucket that has this one's index. */
};

struct reclaim {
    struct kvt_store *store;
    enum reclaim_state state;
    struct segment *victim;
    struct victim_scan *scan; /* Of the victim. */
    struct tier_kill *kills;  /* The scan's: those that are still needed. */
    uint32_t kill_count;
    struct resident *residents; /* Those to be written again first. */
    uint32_t resident_count, resident_capacity;
    uint32_t survivor_count;
    uint64_t credit_bytes; /* That may be written again. */
    uint32_t moved_count;  /* Survivors that relocate.c has dealt with. */
    uint32_t erase_end;    /* Behind the last page to be written over; 0: none is. */
    bool takes_last;       /* victim_is_last() */
    struct dropped *dropped;
    uint32_t dropped_count, dropped_capacity;
    struct segment_change change;
    struct batch_owner owner;
    struct tier_batch batch;
    struct op_list settlers; /* Deletes that wait for the end. */
    bool has_lacked;         /* Nothing was begun for a while: nvme_lack(). */
    bool has_failed;         /* The index refused: nothing more is reclaimed. */
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
    env_put(env, reclaim->residents, reclaim->resident_capacity * sizeof(*reclaim->residents));
    env_put(env, reclaim->dropped, reclaim->dropped_capacity * sizeof(*reclaim->dropped));
    env_put(env, reclaim, sizeof(*reclaim));
    store->reclaim = NULL;
}

bool
reclaim_is_idle(const struct kvt_store *store)
{
    return store->reclaim == NULL ||
           (store->reclaim->state == RECLAIM_IDLE && !victim_scan_is_reading(store));
}

static bool
reclaim_is_allowed(const struct kvt_store *store)
{
    return store->nvme != NULL && !store->reclaim->has_failed && !store->is_draining &&
           (atomic_load_explicit(&store->health, memory_order_relaxed) &
               (KVT_HEALTH_META_READONLY | KVT_HEALTH_READ_ONLY)) == 0;
}

/* --- What has left NVMe with the victim ------------------------------------------------------- */

static uint32_t *
dropped_head(const struct reclaim *reclaim, struct hash128 fingerprint)
{
    /* Fingerprints are uniform. */
    return &reclaim->dropped[fingerprint.low % reclaim->dropped_capacity].head;
}

static void
dropped_add(struct reclaim *reclaim, const struct commit_kill *kill)
{
    struct dropped *dropped = &reclaim->dropped[reclaim->dropped_count];
    uint32_t *head = dropped_head(reclaim, kill->fingerprint);

    dropped->kill = *kill;
    dropped->next = *head;
    *head = ++reclaim->dropped_count;
}

static void
dropped_forget(struct reclaim *reclaim)
{
    for (uint32_t i = 0; i < reclaim->dropped_count; i++)
        *dropped_head(reclaim, reclaim->dropped[i].kill.fingerprint) = 0;
    reclaim->dropped_count = 0;
}

/* Room to note each of the victim's blocks; none is noted yet. False: no memory. */
static bool
dropped_reserve(struct kvt_store *store)
{
    struct reclaim *reclaim = store->reclaim;

    while (reclaim->dropped_capacity < reclaim->resident_count) {
        struct dropped *grown =
            array_grow(&store->env, reclaim->dropped, &reclaim->dropped_capacity, sizeof(*grown));

        if (grown == NULL)
            return false;
        reclaim->dropped = grown;
    }
    return true;
}

/* The segment will not be FREE: what has left it is dead only when its kills are durable. */
static void
dropped_bury(struct kvt_store *store)
{
    const struct reclaim *reclaim = store->reclaim;

    for (uint32_t i = 0; i < reclaim->dropped_count; i++)
        commit_bury(store, &reclaim->dropped[i].kill);
}

bool
reclaim_has_dropped(const struct kvt_store *store, struct hash128 fingerprint)
{
    const struct reclaim *reclaim = store->reclaim;
    uint32_t at;

    if (reclaim == NULL || reclaim->dropped_count == 0)
        return false;
    at = *dropped_head(reclaim, fingerprint);
    while (at != 0 && !hash128_equal(reclaim->dropped[at - 1].kill.fingerprint, fingerprint))
        at = reclaim->dropped[at - 1].next;
    return at != 0;
}

/* --- Ends ------------------------------------------------------------------------------------- */

static void
reclaim_end(struct kvt_store *store)
{
    struct reclaim *reclaim = store->reclaim;
    struct op *op;

    reclaim->state = RECLAIM_IDLE;
    dropped_forget(reclaim);
    victim_scan_end(reclaim->scan);
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
    victim->was_unreadable = false;
    dropped_bury(store);
    reclaim_end(store);
}

/* What cannot be read may be read another time: it is given up when that fails, too. */
static void
reclaim_put_off(struct kvt_store *store, const char *reason)
{
    struct segment *victim = store->reclaim->victim;

    reclaim_let_go(store, reason);
    victim->was_unreadable = true;
}

/* The index refused: no segment can become FREE until the next open. */
static void
reclaim_give_up(struct kvt_store *store)
{
    store->reclaim->has_failed = true;
    dropped_bury(store);
    reclaim_end(store);
}

void
reclaim_settle(struct kvt_store *store, struct op *op)
{
    KVT_ASSERT(store->reclaim->dropped_count > 0);
    op_list_add(&store->reclaim->settlers, op);
}

/* --- What is in the victim -------------------------------------------------------------------- */

/*
 * Whether the copy that it names is the block's, still, or will be until what replaces it is
 * durable. So it is where a rebuild has found torn what was in the kill's batch
 * (rebuild_choose.c). In another batch it would count.
 */
static bool
kill_is_vain(struct kvt_store *store, const struct tier_kill *kill)
{
    uint32_t number = residency_find_fingerprint(store->map, kill->fingerprint);
    const struct flight *flight;

    if (number == ENTRY_NONE)
        return false;
    if (resident_is_there(store, &(struct resident){.number = number, .extent = kill->extent}))
        return true;
    flight = entries_at(store->entries, number)->flight;
    return flight != NULL && flight_replaces(flight, &kill->extent);
}

/* A kill is needed until the copy that it names is void: its segment's generation has passed. Those
 * of a victim that is RECYCLING already are durable elsewhere: that came before. So they are of one
 * that was let go behind its last group of them. */
static void
kills_filter(struct reclaim *reclaim)
{
    bool are_elsewhere =
        reclaim->victim->state == SEGMENT_RECYCLING || reclaim->victim->are_kills_elsewhere;
    uint32_t kept_count = 0;
    uint32_t count;

    reclaim->kills = victim_scan_kills(reclaim->scan, &count);
    for (uint32_t i = 0; i < count && !are_elsewhere; i++) {
        const struct tier_kill kill = reclaim->kills[i];
        const struct segment *segment = segment_at(reclaim->store->segments, kill.extent.segment);

        /* A higher one: of its segment a rebuild could not read what is newest. */
        if (segment != NULL && segment != reclaim->victim &&
            segment->generation <= kill.extent.generation && !kill_is_vain(reclaim->store, &kill))
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
    uint64_t bytes = reclaim->victim->held_bytes;
    uint32_t trace_count;
    const struct victim_trace *traces = victim_scan_traces(reclaim->scan, &trace_count);

    reclaim->resident_count = 0;
    for (uint32_t i = 0; i < trace_count; i++) {
        const struct victim_trace *trace = &traces[i];
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

/*
 * Its blocks are found all the same (residents_search()); what its kills named is not. Nothing is
 * in doubt for that (commit_doubt()): no later open, and no delete, could mend it, and as long as
 * the page cannot be read a rebuild would not find these kills where they are, either.
 */
static void
unreadable_tell(struct kvt_store *store)
{
    const struct reclaim *reclaim = store->reclaim;
    uint32_t end = victim_scan_unreadable(reclaim->scan);

    /* RECYCLING: what its kills named is known elsewhere (kills_filter()). */
    if (end == 0 || reclaim->victim->state == SEGMENT_RECYCLING)
        return;
    COUNT(store, kill_lost_count, 1);
    log_line(&store->logger, LOG_WARN, "reclaim",
        "event=header_unreadable segment=%u page=%u text=\"a rebuild may bring back what a "
        "header there had killed\"",
        reclaim->victim->number, end - 1);
}

/* The oldest scan that is READY tells what is in its segment, which is reclaimed now. */
static bool
reclaim_start(struct kvt_store *store)
{
    struct reclaim *reclaim = store->reclaim;

    KVT_ASSERT(reclaim->state == RECLAIM_IDLE);
    reclaim->scan = victim_scan_take(store);
    if (reclaim->scan == NULL)
        return false;
    reclaim->victim = victim_scan_segment(reclaim->scan);
    reclaim->state = RECLAIM_RELOCATING;
    reclaim->moved_count = 0;
    if (!victim_is_writable(store, reclaim->victim)) {
        reclaim_let_go(store, "its root takes no writes any more");
        return true;
    }
    if (victim_scan_status(reclaim->scan) != KVT_OK) {
        reclaim_let_go(store, "its headers could not be scanned");
        return true;
    }
    if (victim_scan_unreadable(reclaim->scan) > 0 && !reclaim->victim->was_unreadable) {
        reclaim_put_off(store, "a page that may be a header could not be read");
        return true;
    }
    reclaim->erase_end = victim_scan_unreadable(reclaim->scan);
    unreadable_tell(store);
    kills_filter(reclaim);
    if (reclaim->victim->state == SEGMENT_SEALED &&
        !victim_gains(store, reclaim->victim, reclaim->kill_count)) {
        reclaim_let_go(store, "its kills are needed: it gains too little");
        return true;
    }
    if (!residents_find(store) || !dropped_reserve(store)) {
        reclaim_let_go(store, "no memory for its blocks");
        return true;
    }
    reclaim->takes_last = victim_is_last(store, reclaim->victim);
    reclaim->survivor_count = victim_survivors(store, reclaim->residents, reclaim->resident_count,
        reclaim->takes_last, &reclaim->credit_bytes);
    if (reclaim->survivor_count == VICTIM_UNMOVABLE)
        reclaim_let_go(store, "its blocks find no room elsewhere, or another costs less");
    return true;
}

/* --- Emptying --------------------------------------------------------------------------------- */

/* Take the block's NVMe copy away, and with it the block when that was its last. False: it is
 * pinned, or its namespace has no more than its share any more. */
static bool
resident_drop(struct kvt_store *store, const struct resident *resident)
{
    struct reclaim *reclaim = store->reclaim;
    const struct entry *entry = residency_at(store->map, resident->number);
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);
    struct commit_kill kill = entry_kill(store, resident->number, NULL);
    bool is_dropped;

    if (shares_hold(store, resident->number, SHARE_NVME, 0))
        return false;
    kill.sequence = entry->sequence; /* A newer copy may come before it is buried. */
    is_dropped = word_tiers(word) != TIER_NVME
                     ? entry_nvme_release(store, resident->number)
                     : entry_drop(store, resident->number, false, KVT_REASON_RECLAIMED);
    if (!is_dropped)
        return false;
    dropped_add(reclaim, &kill);
    COUNT(store, nvme_evict_count, 1);
    return true;
}

/* What is still in the victim goes, the last first (victim_survivors()); what may not go will be
 * moved. False: there is such. */
static bool
victim_empty(struct kvt_store *store)
{
    struct reclaim *reclaim = store->reclaim;
    uint32_t kept_first = reclaim->resident_count; /* They are gathered at the end. */
    uint32_t kept_count;

    for (uint32_t i = reclaim->resident_count; i-- > 0;) {
        const struct resident resident = reclaim->residents[i];

        if (!resident_is_there(store, &resident) || resident_drop(store, &resident))
            continue;
        reclaim->residents[--kept_first] = resident;
    }
    kept_count = reclaim->resident_count - kept_first;
    if (kept_count > 0)
        memmove(reclaim->residents, &reclaim->residents[kept_first],
            kept_count * sizeof(*reclaim->residents));
    reclaim->resident_count = reclaim->survivor_count = kept_count;
    reclaim->moved_count = 0;
    if (kept_count == 0)
        return true;
    /* What has left stays in the index until these have moved, too: no kill of a newer copy of its
     * key may be durable before its own. */
    dropped_bury(store);
    dropped_forget(reclaim);
    return false;
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
    KVT_ASSERT(reclaim->victim->live_bytes == 0);
    segment_recycle_begin(store->segments, reclaim->victim);
    segment_facts(reclaim->victim, &reclaim->change.facts);
    reclaim->change.is_emptied = true;
    reclaim->change.finish = delete_finish;
    reclaim->state = RECLAIM_DELETING;
    commit_segment(store, &reclaim->change);
}

/* For a group with all that is left to be written: nvme_put_reserved(). */
static uint32_t
last_of(const struct reclaim *reclaim)
{
    bool is_last = reclaim->kill_count == 0 || reclaim->takes_last;

    return is_last ? segment_root(reclaim->victim->number) : NVME_ROOT_NONE;
}

/* The next group, or what comes after the last one. False: it must wait. A group does while a put
 * is to fail, with which it would (nvme_is_doomed()): the answer to that wakes the loop. */
static bool
relocate_next(struct kvt_store *store)
{
    struct reclaim *reclaim = store->reclaim;
    enum kvt_status status = relocate_status_take(store);

    if (!reclaim_is_allowed(store)) {
        reclaim_let_go(store, "the store is closed, or takes no commits");
    } else if (status == KVT_NOT_READY) {
        reclaim_put_off(store, "a block could not be read");
    } else if (status != KVT_OK) {
        reclaim_let_go(store, status == KVT_E_NOMEM ? "no memory to read or write a block"
                                                    : "a block could not be written elsewhere");
    } else if (!victim_is_writable(store, reclaim->victim)) {
        reclaim_let_go(store, "its root takes no more writes");
    } else if ((reclaim->moved_count < reclaim->survivor_count || reclaim->kill_count > 0) &&
               nvme_is_doomed(store->nvme)) {
        return false;
    } else if (reclaim->moved_count < reclaim->survivor_count) {
        reclaim->moved_count += relocate_start(store, reclaim->residents + reclaim->moved_count,
            reclaim->survivor_count - reclaim->moved_count, last_of(reclaim));
    } else if (reclaim->kill_count > 0) {
        uint32_t count =
            reclaim->kill_count < COMMIT_KILLS_MAX ? reclaim->kill_count : COMMIT_KILLS_MAX;

        reclaim->kill_count -= count;
        relocate_kills(store, reclaim->kills + reclaim->kill_count, count, last_of(reclaim));
    } else {
        reclaim->victim->are_kills_elsewhere = true;
        if (!commit_replace_leave(store, reclaim->victim->number))
            return false;
        if (victim_empty(store))
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
    reclaim->victim->was_unreadable = false;
    COUNT(store, segment_recycle_count, 1);
    victim_spare_none(store);
    reclaim_end(store);
}

/*
 * No header in the victim, whatever nobody could read of it, may void its next fill: zeros take the
 * place of each such page, behind the header that hides all of them now. The next one makes them
 * durable. The loop stands still for these: a disk with bad pages is slower still.
 */
static void
headers_erase(struct kvt_store *store)
{
    struct reclaim *reclaim = store->reclaim;

    if (nvme_pages_erase(store->nvme, reclaim->victim, reclaim->erase_end) != KVT_OK) {
        reclaim_let_go(store, "what cannot be read in it cannot be written over, either");
        return;
    }
    reclaim->erase_end = 0;
    reclaim->state = RECLAIM_HEADING;
}

static void
head_finish(struct kvt_store *store, struct tier_batch *batch)
{
    struct reclaim *reclaim = store->reclaim;

    KVT_ASSERT(reclaim->state == RECLAIM_WRITING);
    if (batch->status != KVT_OK) {
        /* The segment stays RECYCLING; it has its turn again, at the latest at the next open. */
        reclaim_let_go(store, "its recycle header could not be written");
        return;
    }
    if (reclaim->erase_end > 0) {
        headers_erase(store);
        return;
    }
    segment_facts(reclaim->victim, &reclaim->change.facts);
    reclaim->change.facts.state = SEGMENT_FREE;
    reclaim->change.facts.generation = segment_generation_next(reclaim->victim);
    reclaim->change.facts.batch_number = batch->sequence;
    reclaim->change.is_emptied = false;
    reclaim->change.finish = free_finish;
    reclaim->state = RECLAIM_FREEING;
    commit_segment(store, &reclaim->change);
}

/* Of a generation above all that were read now. False: readers are still there. */
static bool
head_start(struct kvt_store *store)
{
    struct reclaim *reclaim = store->reclaim;
    enum kvt_status status;

    if (reclaim->victim->reader_count > 0)
        return false;
    reclaim->victim->generation_seen = victim_scan_generation(reclaim->scan);
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
        reclaim_let_go(store, "its root takes no writes any more, or there is no memory");
    return true;
}

void
reclaim_admitted(struct kvt_store *store, uint64_t bytes)
{
    uint64_t most = store->options.nvme_capacity_bytes / AGAIN_DIVISOR;
    uint64_t credit_bytes = store->reclaim->credit_bytes + bytes / AGAIN_DIVISOR;

    store->reclaim->credit_bytes = credit_bytes < most ? credit_bytes : most;
}

/* --- The loop's calls ------------------------------------------------------------------------- */

bool
reclaim_want(struct kvt_store *store)
{
    if (!reclaim_is_idle(store))
        return true;
    if (!reclaim_is_allowed(store))
        return false;
    return victim_scan_is_ready(store) || victim_scan_start(store, false) ||
           (victim_spare_unreadable(store) && victim_scan_start(store, false));
}

/* Headers are read ahead while another segment is being reclaimed. Only while something is written:
 * a store at rest is left as it is. */
static bool
begin_step(struct kvt_store *store)
{
    bool is_idle = store->reclaim->state == RECLAIM_IDLE;
    struct nvme_lack lack;

    if (!reclaim_is_allowed(store) || commit_is_at_rest(store))
        return false;
    /* Nothing could be written elsewhere: each victim would be passed over for that. */
    if (nvme_lack(store->nvme, &lack)) {
        store->reclaim->has_lacked = true;
        return false;
    }
    if (store->reclaim->has_lacked) {
        store->reclaim->has_lacked = false;
        victim_spare_none(store);
    }
    return victim_scan_ahead(store, is_idle) || (is_idle && reclaim_start(store));
}

bool
reclaim_step(struct kvt_store *store)
{
    bool has_begun = begin_step(store);

    switch (store->reclaim->state) {
    case RECLAIM_RELOCATING:
        return (relocate_is_idle(store) && relocate_next(store)) || has_begun;
    case RECLAIM_HEADING:
        return head_start(store) || has_begun;
    case RECLAIM_IDLE:
    case RECLAIM_DELETING:
    case RECLAIM_WRITING:
    case RECLAIM_FREEING:
        break;
    }
    return has_begun;
}
