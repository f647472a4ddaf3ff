/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commit.c - the queue of what shall be durable, and the batches that are written.
 *
 * See commit.h for the states. Threads: the loop.
 */
#include "commit.h"

#include "batch_header.h"
#include "commit_internal.h"

enum kvt_status
commit_open(struct kvt_store *store)
{
    struct commit *commit = env_take(&store->env, sizeof(*commit));

    store->commit = commit;
    if (commit == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for group commit");
    commit->batches = env_take(&store->env, BATCH_COUNT * sizeof(*commit->batches));
    commit->groups = env_take(&store->env, GROUP_COUNT * sizeof(*commit->groups));
    if (!kill_queue_open(&commit->kills, &store->env, COMMIT_KILLS_START) ||
        commit->batches == NULL || commit->groups == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for write batches");
    commit->due_ns = UINT64_MAX;
    commit->batch_bytes_max =
        (uint64_t)(store->file.segment_pages - SEGMENT_HEAD_PAGES_MAX - BATCH_HEADER_PAGES_MAX) *
        PAGE_BYTES;
    if (commit->batch_bytes_max > BATCH_BYTES)
        commit->batch_bytes_max = BATCH_BYTES;
    for (uint32_t i = 0; i < STORE_ROOTS_MAX; i++)
        commit->segment_last[i] = SEGMENT_NONE;
    return KVT_OK;
}

void
commit_close(struct kvt_store *store)
{
    struct commit *commit = store->commit;

    if (commit == NULL)
        return;
    kill_queue_close(&commit->kills, &store->env);
    env_put(&store->env, commit->groups, GROUP_COUNT * sizeof(*commit->groups));
    env_put(&store->env, commit->batches, BATCH_COUNT * sizeof(*commit->batches));
    env_put(&store->env, commit, sizeof(*commit));
    store->commit = NULL;
}

/* --- The queue -------------------------------------------------------------------------------- */

/* What the block keeps from being reused in HOST. */
static uint64_t
flight_dirty_bytes(const struct kvt_store *store, const struct flight *flight)
{
    return (uint64_t)pages_of(residency_at(store->map, flight->entry)->length) * PAGE_BYTES;
}

static void
queue_count(struct kvt_store *store, struct flight *flight)
{
    struct commit *commit = store->commit;

    flight->state = FLIGHT_QUEUED;
    commit->queued_count++;
    commit->queued_bytes += imaging_bytes(store, flight);
    if (flight->due_ns < commit->due_ns)
        commit->due_ns = flight->due_ns;
}

void
commit_uncount(struct kvt_store *store, const struct flight *flight)
{
    struct commit *commit = store->commit;

    commit->queued_count--;
    commit->queued_bytes -= imaging_bytes(store, flight);
}

void
commit_queue(struct kvt_store *store, struct flight *flight, uint64_t due_ns)
{
    struct commit *commit = store->commit;

    flight->due_ns = due_ns;
    flight->older = commit->newest;
    flight->newer = NULL;
    if (commit->newest == NULL)
        commit->oldest = flight;
    else
        commit->newest->newer = flight;
    commit->newest = flight;
    residency_pin(store->map, flight->entry);
    store->dirty_bytes += flight_dirty_bytes(store, flight);
    if (!imaging_begin(store, flight))
        queue_count(store, flight);
}

void
commit_ready(struct kvt_store *store, struct flight *flight)
{
    queue_count(store, flight);
}

void
commit_flight_settle(struct kvt_store *store, struct flight *flight, enum kvt_status status)
{
    struct commit *commit = store->commit;
    uint32_t entry = flight->entry;
    bool is_given_up =
        status < 0 && flight->is_demotion && !flight->is_asked_for && !flight->is_killed;
    struct op_list waiters = flight->waiters;
    struct op *op;

    commit_replace_end(store, flight);
    flight->waiters = (struct op_list){NULL, NULL};
    if (flight->is_killed)
        commit_killed_remove(store, flight);
    if (flight->older == NULL)
        commit->oldest = flight->newer;
    else
        flight->older->newer = flight->newer;
    if (flight->newer == NULL)
        commit->newest = flight->older;
    else
        flight->newer->older = flight->older;
    store->dirty_bytes -= flight_dirty_bytes(store, flight);
    imaging_end(store, flight);
    while ((op = op_list_take(&flight->durable_waiters)) != NULL) {
        if (status == KVT_OK)
            histogram_add(&store->latencies.put_durable_ns, ticket_age_ns(store, op->ticket));
        op_reach(store, op, 2, status);
    }
    flight_destroy(store, flight);
    entry_unpin(store, entry);
    /* Room was wanted, and NVMe did not take it. */
    if (is_given_up && entry_drop(store, entry, false, KVT_REASON_EVICTED))
        COUNT(store, host_drop_count, 1);
    ops_restart(store, &waiters, status);
}

void
commit_hurry(struct kvt_store *store, struct flight *flight, uint64_t due_ns)
{
    if (flight->due_ns > due_ns)
        flight->due_ns = due_ns;
    if (flight->state == FLIGHT_QUEUED && store->commit->due_ns > due_ns)
        store->commit->due_ns = due_ns;
}

void
commit_hurry_all(struct kvt_store *store)
{
    if (store->commit->due_ns > store->now_ns)
        store->commit->due_ns = store->now_ns;
}

bool
commit_cancel(
    struct kvt_store *store, struct flight *flight, enum kvt_status status, struct op *waiter)
{
    bool is_kept;

    if (flight->state == FLIGHT_WRITING) {
        if (!flight->is_killed)
            commit_killed_add(store, flight);
        if (waiter != NULL)
            op_list_add(&flight->kill_waiters, waiter);
        return true;
    }
    KVT_ASSERT(flight_is_waiting(flight));
    is_kept = flight->has_replaced;
    flight->replaced.waiter = waiter;
    /* A batch with the block itself may have failed, and count in a rebuild all the same. */
    flight->replaced.sequence = store->sequence;
    if (flight->state == FLIGHT_QUEUED)
        commit_uncount(store, flight);
    commit_flight_settle(store, flight, status);
    return is_kept;
}

/* --- Closing a batch -------------------------------------------------------------------------- */

static uint32_t
batches_in(const struct commit *commit, enum batch_state state)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < BATCH_COUNT; i++)
        count += commit->batches[i].state == state;
    return count;
}

/* What is put behind one that will fail fails with it, and its blocks would be put again behind
 * others of these: without an end, as long as there are segments. */
static bool
batch_may_close(const struct kvt_store *store)
{
    const struct commit *commit = store->commit;

    return batches_in(commit, BATCH_WRITING) < WRITING_MAX && batches_in(commit, BATCH_IDLE) > 0 &&
           !nvme_is_doomed(store->nvme);
}

static bool
batch_is_due(const struct kvt_store *store)
{
    const struct commit *commit = store->commit;
    uint32_t writing_count = batches_in(commit, BATCH_WRITING);

    if (commit->queued_count + commit->kills.count == 0 || commit->is_stalled ||
        !batch_may_close(store) || commit->lack_until_ns > store->now_ns)
        return false;
    if (commit->queued_count + commit_kills_due(commit) == 0)
        return commit->told_due_ns <= store->now_ns;
    if (commit->queued_count >= COMMIT_BLOCKS_MAX ||
        commit->queued_bytes >= commit->batch_bytes_max ||
        commit_kills_due(commit) >= COMMIT_KILLS_MAX)
        return true;
    if (commit->due_ns > store->now_ns)
        return false;
    return writing_count == 0 || store->now_ns - commit->due_ns >= store->options.batch_delay_ns;
}

/* Those that wait go with the next batch: nothing else may come that is due. */
static void
kills_hurry(struct kvt_store *store)
{
    struct commit *commit = store->commit;

    if (commit_kills_due(commit) > 0 && commit->due_ns > store->now_ns)
        commit->due_ns = store->now_ns;
}

/* The kills of what its blocks replace, void entries that others have, then those that wait. */
static void
batch_fill_kills(struct kvt_store *store, struct batch *batch)
{
    struct commit *commit = store->commit;
    uint32_t count = 0;
    uint32_t room;

    for (uint32_t i = 0; i < batch->count; i++) {
        const struct commit_kill *kill = &batch->flights[i]->replaced;

        if (batch->flights[i]->has_replaced)
            batch->tier_kills[count++] = (struct tier_kill){.extent = kill->extent,
                .fingerprint = kill->fingerprint,
                .sequence = kill->sequence};
    }
    count += commit_voids_travelling(commit, batch->tier_kills + count, COMMIT_KILLS_MAX - count);
    room = COMMIT_KILLS_MAX - count;
    batch->kill_count = commit->kills.count < room ? commit->kills.count : room;
    for (uint32_t i = 0; i < batch->kill_count; i++) {
        const struct kill_item *item = &batch->kills[i];

        kill_queue_take(&commit->kills, &batch->kills[i]);
        batch->tier_kills[count++] = kill_item_entry(item);
    }
    batch->tier_kill_count = count;
    commit_kills_note(batch);
    kills_hurry(store);
}

static void
batch_fill(struct kvt_store *store, struct batch *batch)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        uint32_t entry = batch->flights[i]->entry;
        struct tier_block *block = &batch->blocks[i];

        memset(block, 0, sizeof(*block));
        entry_record(store, entry, &block->record);
        block->record.sequence = sequence_next(store);
        imaging_fill(store, batch->flights[i], block);
    }
    batch_fill_kills(store, batch);
}

/* Put the batch's flights and kills back where they came from. */
static void
batch_return(struct kvt_store *store, struct batch *batch)
{
    struct commit *commit = store->commit;

    for (uint32_t i = 0; i < batch->count; i++)
        queue_count(store, batch->flights[i]);
    kill_queue_return(&commit->kills, batch->kills, batch->kill_count);
    kills_hurry(store);
    batch->count = batch->kill_count = 0;
}

void
commit_batch_end(struct kvt_store *store, struct batch *batch)
{
    const struct segment *segment = segment_at(store->segments, batch->tier_batch.header.segment);

    batch->count = batch->kill_count = 0;
    batch->state = BATCH_IDLE;
    if (segment != NULL && segment->state == SEGMENT_SEALED)
        segment_changed(store->segments); /* commit_uses() */
    store->room_changed = true;
    commit_unstall(store);
}

void
commit_batch_fail(struct kvt_store *store, struct batch *batch, enum kvt_status status)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        struct flight *flight = batch->flights[i];
        struct op *waiter;

        while ((waiter = op_list_take(&flight->kill_waiters)) != NULL)
            op_reach(store, waiter, 2, status);
        commit_flight_settle(store, flight, status);
    }
    if ((status == KVT_E_NOSPC || status == KVT_E_NOMEM) && !store->commit->is_last_try)
        commit_kills_tell(store, batch, status);
    for (uint32_t i = 0; i < batch->kill_count; i++)
        commit_kill_answer(store, &batch->kills[i], status);
    commit_batch_end(store, batch);
}

static void batch_written(struct kvt_store *store, struct tier_batch *tier_batch);

/* NVMe has no room for a batch. True: something is under way that ends in commit_unstall(). */
static bool
room_is_coming(struct kvt_store *store)
{
    nvme_room_lacks(store);
    if (reclaim_want(store) || batches_in(store->commit, BATCH_IDLE) < BATCH_COUNT ||
        nvme_room_waits(store))
        return true;
    return nvme_room_again(store) && reclaim_want(store);
}

/* One that is IDLE; NULL: all are under way. */
static struct batch *
batch_idle(struct commit *commit)
{
    for (uint32_t i = 0; i < BATCH_COUNT; i++) {
        if (commit->batches[i].state == BATCH_IDLE)
            return &commit->batches[i];
    }
    return NULL;
}

/* The disks have no space. KVT_NOT_READY: what the batch has taken waits again, for the next try;
 * else that was tried for long, and it has failed. */
static enum kvt_status
batch_put_off(struct kvt_store *store, struct batch *batch)
{
    struct nvme_lack lack;

    if (nvme_lack(store->nvme, &lack) && lack.is_lasting) {
        commit_batch_fail(store, batch, lack.status);
        return KVT_E_BUSY;
    }
    /* The end of a try that is under way goes on with what is stalled. */
    store->commit->is_stalled = store->commit->is_stalled || lack.until_ns == UINT64_MAX;
    store->commit->lack_until_ns = lack.until_ns == UINT64_MAX ? 0 : lack.until_ns;
    batch_return(store, batch);
    return KVT_NOT_READY;
}

/* What the batch has taken goes to the tier. KVT_E_NOSPC: it still has it; KVT_NOT_READY: that
 * waits again; after any other refusal that has failed. */
static enum kvt_status
batch_send(struct kvt_store *store, struct batch *batch, bool is_ahead)
{
    struct tier *tier = nvme_as_tier(store->nvme);
    enum kvt_status status;

    batch_fill(store, batch);
    batch->owner.finish = batch_written;
    batch->tier_batch = (struct tier_batch){.blocks = batch->blocks,
        .block_count = batch->count,
        .kills = batch->tier_kills,
        .kill_count = batch->tier_kill_count,
        .sequence = commit_batch_number(store),
        .done = &store->batches_done,
        .done_task = &store->loop_task,
        .user = &batch->owner};
    status = is_ahead ? nvme_put_reserved(store->nvme, &batch->tier_batch, NVME_ROOT_NONE)
                      : tier->ops->put(tier, &batch->tier_batch);
    if (status == KVT_E_BUSY)
        return batch_put_off(store, batch);
    if (status == KVT_OK) {
        batch->state = BATCH_WRITING;
    } else if (status != KVT_E_NOSPC) {
        commit_batch_fail(store, batch, status);
    }
    return status;
}

static bool
batch_close(struct kvt_store *store)
{
    struct batch *batch = batch_idle(store->commit);
    enum kvt_status status;

    if (batch == NULL)
        return false;
    commit_batch_take(store, batch, SEGMENT_NONE);
    status = batch_send(store, batch, false);
    if (status == KVT_E_NOSPC && room_is_coming(store)) {
        store->commit->is_stalled = true;
        batch_return(store, batch);
        return false;
    }
    nvme_room_found(store);
    if (status != KVT_E_NOSPC)
        return status != KVT_NOT_READY;
    commit_batch_fail(store, batch, KVT_E_NOSPC);
    return true;
}

enum kvt_status
commit_batch_ahead(struct kvt_store *store, uint32_t segment)
{
    struct batch *batch = batch_idle(store->commit);
    enum kvt_status status;

    if (batch == NULL || nvme_is_doomed(store->nvme))
        return KVT_NOT_READY;
    commit_batch_take(store, batch, segment);
    if (batch->count == 0) {
        kills_hurry(store);
        return KVT_MISS;
    }
    status = batch_send(store, batch, true);
    if (status == KVT_E_NOSPC)
        batch_return(store, batch);
    return status;
}

/* --- Answers ---------------------------------------------------------------------------------- */

void
commit_flight_bury(struct kvt_store *store, struct flight *flight, const struct commit_kill *kill)
{
    struct commit_kill each = *kill;
    bool is_first = true;
    struct op *waiter;

    commit_killed_remove(store, flight); /* The first kill gets the room that it kept. */
    commit_replace_end(store, flight);   /* Before the waiters' own. */
    do {
        waiter = op_list_take(&flight->kill_waiters);
        each.waiter = waiter;
        if (waiter == NULL && !is_first)
            break;
        if (commit_kill(store, &each) != KVT_OK) {
            if (is_first)
                commit_kill_lose(store);
            if (waiter != NULL)
                op_reach(store, waiter, 2, KVT_E_NOMEM);
        }
        each.is_indexed = false;
        is_first = false;
    } while (waiter != NULL);
    commit_flight_settle(store, flight, KVT_MISS);
}

/* The write or the sync failed: what can be tried again is, and what was written shall not count.
 * No kills of its copies: these would hide the copies that its blocks were to replace as well. */
static void
batch_retry(struct kvt_store *store, struct batch *batch)
{
    enum kvt_status status = batch->tier_batch.status;
    bool is_lack = status == KVT_E_NOSPC || status == KVT_E_NOMEM;
    uint32_t count = batch->count;
    struct flight *flights[COMMIT_BLOCKS_MAX];

    COUNT(store, batch_failed_count, 1);
    memcpy(flights, batch->flights, count * sizeof(struct flight *));
    commit_void(store, &batch->tier_batch);
    batch->count = 0;
    batch_return(store, batch);
    commit_batch_end(store, batch);
    for (uint32_t i = 0; i < count; i++) {
        struct flight *flight = flights[i];
        struct commit_kill kill = {.extent = batch->tier_batch.header,
            .sequence = batch->blocks[i].record.sequence,
            .fingerprint = residency_at(store->map, flight->entry)->fingerprint};

        if (flight->is_killed) {
            commit_flight_bury(store, flight, &kill);
            continue;
        }
        /* One that failed behind another may be in order. */
        if (status != KVT_E_STATE)
            flight->attempt_count++;
        if (flight->attempt_count < ATTEMPTS_MAX)
            queue_count(store, flight);
        else
            commit_flight_settle(store, flight, is_lack ? status : KVT_E_IO);
    }
}

static void
batch_written(struct kvt_store *store, struct tier_batch *tier_batch)
{
    struct batch *batch = CONTAINER_OF(tier_batch->user, struct batch, owner);

    KVT_ASSERT(batch->state == BATCH_WRITING);
    if (tier_batch->status != KVT_OK) {
        batch_retry(store, batch);
        return;
    }
    COUNT(store, batch_count, 1);
    commit_group_add(store, batch);
}

/* --- The rest --------------------------------------------------------------------------------- */

/* Nothing can become durable: whoever waits is told. */
static void
queue_fail(struct kvt_store *store, enum kvt_status status)
{
    struct commit *commit = store->commit;
    struct flight *flight = commit->oldest;

    while (flight != NULL) {
        struct flight *newer = flight->newer;

        if (flight->state == FLIGHT_QUEUED)
            commit_uncount(store, flight);
        if (flight_is_waiting(flight))
            commit_flight_settle(store, flight, status);
        flight = newer;
    }
    while (commit->kills.count > 0) {
        struct kill_item item;

        kill_queue_take(&commit->kills, &item);
        commit_kill_answer(store, &item, status);
    }
    commit->is_stalled = false;
    commit->due_ns = UINT64_MAX;
    store->room_changed = true;
}

void
commit_failed(struct kvt_store *store)
{
    COUNT(store, commit_failed_count, 1);
    store_health_set(store, KVT_HEALTH_META_READONLY);
    commit_doubt(store, KVT_E_META);
    queue_fail(store, KVT_E_META);
}

void
commit_unstall(struct kvt_store *store)
{
    store->commit->is_stalled = false;
}

uint64_t
commit_batch_bytes_max(const struct kvt_store *store)
{
    return store->commit->batch_bytes_max;
}

uint64_t
commit_batch_number(struct kvt_store *store)
{
    return ++store->batch_sequence;
}

bool
commit_uses(struct kvt_store *store, uint32_t segment)
{
    const struct commit *commit = store->commit;

    for (uint32_t i = 0; i < BATCH_COUNT; i++) {
        if (commit->batches[i].state != BATCH_IDLE &&
            commit->batches[i].tier_batch.header.segment == segment)
            return true;
    }
    return false;
}

void
commit_abandon(struct kvt_store *store)
{
    queue_fail(store, KVT_MISS);
}

/* What this life still wrote would have the numbers of the next one, and look newer than that. */
static void
numbers_check(struct kvt_store *store)
{
    uint64_t limit = ((uint64_t)(store->file.open_epoch + 1) << EPOCH_SHIFT) - NUMBERS_LEFT;

    if (store->sequence < limit && store->batch_sequence < limit)
        return;
    log_line(&store->logger, LOG_ERROR, "commit",
        "event=numbers_used_up text=\"2^40 records or batches since the open: open it again\"");
    store_health_set(store, KVT_HEALTH_META_READONLY);
}

bool
commit_step(struct kvt_store *store)
{
    struct commit *commit = store->commit;
    uint32_t health = atomic_load_explicit(&store->health, memory_order_relaxed);

    if (imaging_step(store) || commit_group_step(store))
        return true;
    if ((health & KVT_HEALTH_META_READONLY) == 0)
        numbers_check(store);
    if (commit->queued_count + commit->kills.count == 0)
        return false;
    if (store->is_draining) {
        queue_fail(store, KVT_MISS); /* It became visible while the abort waited for it. */
        return true;
    }
    if (store->nvme == NULL || (health & KVT_HEALTH_READ_ONLY) != 0) {
        queue_fail(store, KVT_E_READONLY);
        return true;
    }
    if ((health & KVT_HEALTH_META_READONLY) != 0) {
        queue_fail(store, KVT_E_META);
        return true;
    }
    if (!batch_is_due(store))
        return false;
    return batch_close(store);
}

uint64_t
commit_next_ns(struct kvt_store *store)
{
    const struct commit *commit = store->commit;

    uint32_t writing_count = batches_in(commit, BATCH_WRITING);

    if (commit->queued_count + commit->kills.count == 0)
        return UINT64_MAX;
    if (commit->lack_until_ns > store->now_ns)
        return commit->lack_until_ns;
    if (commit->is_stalled)
        return UINT64_MAX;
    /* Until a batch ends nothing can be closed, however late it is: its end wakes the loop. */
    if (!batch_may_close(store))
        return UINT64_MAX;
    if (commit->queued_count + commit_kills_due(commit) == 0)
        return commit->told_due_ns;
    if (writing_count == 0)
        return commit->due_ns;
    return commit->due_ns == UINT64_MAX ? UINT64_MAX
                                        : commit->due_ns + store->options.batch_delay_ns;
}

bool
commit_is_idle(struct kvt_store *store)
{
    const struct commit *commit = store->commit;

    return commit->oldest == NULL && commit_kills_due(commit) == 0 &&
           batches_in(commit, BATCH_IDLE) == BATCH_COUNT;
}

bool
commit_is_at_rest(struct kvt_store *store)
{
    return commit_is_idle(store) && store->commit->kills.count == 0;
}

void
commit_try_last(struct kvt_store *store)
{
    store->commit->is_last_try = true;
    commit_hurry_all(store);
}
