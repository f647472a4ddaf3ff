/* SPDX-License-Identifier: Apache-2.0 */
/*
 * victim_scan.c - headers of victims, read ahead. See victim_scan.h for the states.
 */
#include "victim_scan.h"

#include "array.h"
#include "batch_header.h"
#include "store_internal.h"
#include "victim.h"

enum {
    SCAN_COUNT = 3, /* One whose victim is reclaimed, and two ahead. */
    READER_COUNT = 2,
};

static const uint64_t ahead_again_ns = UINT64_C(1000) * 1000 * 1000;

enum scan_state {
    SCAN_IDLE,
    SCAN_READING,
    SCAN_READY,
    SCAN_TAKEN,
};

struct victim_scan {
    struct job job;
    struct kvt_store *store;
    enum scan_state state;
    uint64_t order; /* Rises with every start. */
    struct segment *victim;
    enum kvt_status status;
    uint32_t unreadable_end;
    uint32_t generation;
    struct victim_trace *traces;
    uint32_t trace_count, trace_capacity;
    struct tier_kill *kills;
    uint32_t kill_count, kill_capacity;
};

struct victim_scans {
    struct crew *crew; /* NULL: nothing is ever reclaimed. */
    uint64_t order;
    uint64_t vain_change_count; /* victim_scan_ahead() was in vain at that count of changes: ... */
    uint64_t again_ns;          /* ... until then, unless it rises. */
    struct victim_scan scans[SCAN_COUNT];
};

/* --- Life ------------------------------------------------------------------------------------- */

enum kvt_status
victim_scan_open(struct kvt_store *store)
{
    struct victim_scans *scans = env_take(&store->env, sizeof(*scans));

    if (scans == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for reading segments");
    store->victim_scans = scans;
    for (uint32_t i = 0; i < SCAN_COUNT; i++)
        scans->scans[i].store = store;
    if (store->nvme == NULL || store->is_read_only)
        return KVT_OK;
    return crew_open(&store->env, "kvt-scan", READER_COUNT, &scans->crew);
}

void
victim_scan_stop(struct kvt_store *store)
{
    if (store->victim_scans == NULL)
        return;
    crew_close(store->victim_scans->crew);
    store->victim_scans->crew = NULL;
}

void
victim_scan_close(struct kvt_store *store)
{
    struct victim_scans *scans = store->victim_scans;
    const struct kvt_env *env = &store->env;

    if (scans == NULL)
        return;
    KVT_ASSERT(scans->crew == NULL);
    for (uint32_t i = 0; i < SCAN_COUNT; i++) {
        struct victim_scan *scan = &scans->scans[i];

        env_put(env, scan->traces, scan->trace_capacity * sizeof(*scan->traces));
        env_put(env, scan->kills, scan->kill_capacity * sizeof(*scan->kills));
    }
    env_put(env, scans, sizeof(*scans));
    store->victim_scans = NULL;
}

/* --- Reading (its own threads) ---------------------------------------------------------------- */

static enum kvt_status
trace_add(struct victim_scan *scan, const struct block_record *record)
{
    const struct kvt_store *store = scan->store;

    if (scan->trace_count == scan->trace_capacity) {
        struct victim_trace *grown =
            array_grow(&store->env, scan->traces, &scan->trace_capacity, sizeof(*grown));

        if (grown == NULL)
            return failure_set(KVT_E_NOMEM, 0, "no memory for the records of a segment");
        scan->traces = grown;
    }
    scan->traces[scan->trace_count++] = (struct victim_trace){
        key_fingerprint(store->fingerprint_seed, &record->key), record->extent.page};
    return KVT_OK;
}

static enum kvt_status
kill_add(struct victim_scan *scan, const struct tier_kill *kill)
{
    if (scan->kill_count == scan->kill_capacity) {
        struct tier_kill *grown =
            array_grow(&scan->store->env, scan->kills, &scan->kill_capacity, sizeof(*grown));

        if (grown == NULL)
            return failure_set(KVT_E_NOMEM, 0, "no memory for the kills of a segment");
        scan->kills = grown;
    }
    scan->kills[scan->kill_count++] = *kill;
    return KVT_OK;
}

static bool
scan_visit(void *visitor, const struct batch_header *header, const struct block_record *records,
    const struct tier_kill *kills)
{
    struct victim_scan *scan = visitor;
    enum kvt_status status = KVT_OK;

    if (header->sequence > scan->victim->batch_number)
        return true; /* A crash left it without a commit: it does not count. */
    for (uint32_t i = 0; i < header->block_count && status == KVT_OK; i++)
        status = trace_add(scan, &records[i]);
    for (uint32_t i = 0; i < header->kill_count && status == KVT_OK; i++)
        status = kill_add(scan, &kills[i]);
    scan->status = status;
    return status == KVT_OK;
}

static void
scan_run(struct crew_job *crew_job)
{
    struct job *job = CONTAINER_OF(crew_job, struct job, crew);
    struct victim_scan *scan = CONTAINER_OF(job, struct victim_scan, job);
    struct nvme_scan_result result = {0};
    enum kvt_status status =
        nvme_scan(scan->store->nvme, scan->victim->number, scan_visit, scan, &result);

    scan->status = status_keep(scan->status, status);
    scan->unreadable_end = result.unreadable_end;
    scan->generation = result.generation;
}

/* --- The loop's calls ------------------------------------------------------------------------- */

static void
scan_finish(struct kvt_store *store, struct job *job)
{
    struct victim_scan *scan = CONTAINER_OF(job, struct victim_scan, job);

    (void)store;
    KVT_ASSERT(scan->state == SCAN_READING);
    scan->state = SCAN_READY;
}

static struct victim_scan *
scan_oldest(const struct kvt_store *store, enum scan_state state)
{
    struct victim_scan *oldest = NULL;

    for (uint32_t i = 0; i < SCAN_COUNT; i++) {
        struct victim_scan *scan = &store->victim_scans->scans[i];

        if (scan->state == state && (oldest == NULL || scan->order < oldest->order))
            oldest = scan;
    }
    return oldest;
}

bool
victim_scan_start(struct kvt_store *store, bool is_for_shortage)
{
    struct victim_scan *scan = scan_oldest(store, SCAN_IDLE);
    struct segment *victim;

    if (scan == NULL || store->victim_scans->crew == NULL)
        return false;
    victim = victim_unfinished(store);
    if (victim == NULL)
        victim = victim_choose(store, is_for_shortage);
    if (victim == NULL)
        return false;
    victim->is_claimed = true;
    scan->victim = victim;
    scan->order = ++store->victim_scans->order;
    scan->trace_count = 0;
    scan->kill_count = 0;
    scan->status = KVT_OK;
    scan->state = SCAN_READING;
    scan->job.crew.run = scan_run;
    scan->job.finish = scan_finish;
    loop_job_on(store, store->victim_scans->crew, &scan->job);
    return true;
}

static bool
is_any_root_short(const struct kvt_store *store)
{
    for (uint32_t root = 0; root < store->file.root_count; root++) {
        if (victim_root_is_short(store, root))
            return true;
    }
    return false;
}

/*
 * It is asked in each step of the loop, and walks over all segments. A walk that was in vain would
 * be so again until one of these comes, each of which the segments' count of changes tells:
 *   - A segment becomes SEALED or RECYCLING, or FREE ones become fewer: its state changes.
 *   - It is not passed over any more: victim_spare_none(), victim_spare_unreadable(), or it becomes
 *     RECYCLING.
 *   - It is not claimed any more; a scan is IDLE again, its root may be short, and a reclaim has
 *     ended: victim_scan_end().
 *   - It is SEALED, and the last batch in it ends: commit_batch_end(). That of a relocation ends
 *     before its reclaim does.
 * Not told is that most of what SEALED segments hold is dead, where those of a root that is not
 * short come into question: that is looked for once in a second. Nobody waits for it. Who finds no
 * room asks reclaim_want(), which searches each time.
 */
bool
victim_scan_ahead(struct kvt_store *store, bool is_idle)
{
    struct victim_scans *scans = store->victim_scans;
    uint64_t change_count = segment_change_count(store->segments);

    if (scans->vain_change_count == change_count && store->now_ns < scans->again_ns)
        return false;
    if ((is_any_root_short(store) || (is_idle && victim_unfinished(store) != NULL)) &&
        victim_scan_start(store, true))
        return true;
    scans->vain_change_count = change_count;
    scans->again_ns = store->now_ns + ahead_again_ns;
    return false;
}

uint32_t
victim_scan_count(const struct kvt_store *store, uint32_t root)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < SCAN_COUNT; i++) {
        const struct victim_scan *scan = &store->victim_scans->scans[i];

        count += scan->state != SCAN_IDLE && segment_root(scan->victim->number) == root;
    }
    return count;
}

bool
victim_scan_is_ready(const struct kvt_store *store)
{
    return scan_oldest(store, SCAN_READY) != NULL;
}

bool
victim_scan_is_reading(const struct kvt_store *store)
{
    return scan_oldest(store, SCAN_READING) != NULL;
}

struct victim_scan *
victim_scan_take(struct kvt_store *store)
{
    struct victim_scan *scan = scan_oldest(store, SCAN_READY);

    if (scan != NULL)
        scan->state = SCAN_TAKEN;
    return scan;
}

void
victim_scan_end(struct victim_scan *scan)
{
    KVT_ASSERT(scan->state == SCAN_TAKEN);
    scan->victim->is_claimed = false;
    scan->state = SCAN_IDLE;
    segment_changed(scan->store->segments);
}

struct segment *
victim_scan_segment(const struct victim_scan *scan)
{
    return scan->victim;
}

enum kvt_status
victim_scan_status(const struct victim_scan *scan)
{
    return scan->status;
}

uint32_t
victim_scan_unreadable(const struct victim_scan *scan)
{
    return scan->unreadable_end;
}

uint32_t
victim_scan_generation(const struct victim_scan *scan)
{
    return scan->generation;
}

const struct victim_trace *
victim_scan_traces(const struct victim_scan *scan, uint32_t *count_out)
{
    *count_out = scan->trace_count;
    return scan->traces;
}

struct tier_kill *
victim_scan_kills(struct victim_scan *scan, uint32_t *count_out)
{
    *count_out = scan->kill_count;
    return scan->kills;
}
