/* SPDX-License-Identifier: Apache-2.0 */
/*
 * live.c - gathers what an open store shows to other programs, and has it written.
 *
 * Owns      the board, and one struct kvt_live: the loop's, but while a job is under way the
 *           worker's.
 * Threads   the loop, and one worker at a time.
 *
 *              live_step()            job_run() has ended, live_step() sees it
 *     IDLE --------------> WRITING ------------------------------------------> IDLE
 *
 * The job comes back to an inbox of its own and wakes nobody: else each page would be work that
 * makes the next one due.
 */
#include "live.h"

#include <stdio.h>

#include "store_internal.h"

static const uint64_t busy_ns = 100 * 1000 * 1000;   /* Between two pages. */
static const uint64_t quiet_ns = 1000 * 1000 * 1000; /* Between two looks when nothing is done. */

enum {
    BLOCKS_SEEN_MAX = 8192,   /* In leases, for one page: some 100 us of the loop's time. */
    LEASES_WALKED_MAX = 8192, /* For one page, free ones too: as much. */
};

/* A walk over all leases that are out: where there are many places it takes several pages. */
struct lease_round {
    uint32_t cursor; /* 0: it begins. */
    uint32_t shown_count;
    uint64_t change_count; /* When it began. */
    uint64_t seen_count;
    uint64_t oldest_ns;
    uint64_t hbm_bytes, host_bytes, nvme_bytes;
    struct kvt_live_lease leases[KVT_LIVE_LEASES_MAX];
};

struct live {
    struct kvt_store *store;
    struct board *board;
    struct crew_job job;
    struct inbox done;
    struct task *nobody; /* NULL: whom the job wakes. */
    bool is_writing;
    bool is_due;           /* Something was done since the last page. */
    uint64_t looked_ns;    /* Of the last page or look. */
    uint64_t summed_ns;    /* When live bytes were summed last. */
    uint64_t live_bytes;   /* Of all segments, then. */
    uint64_t lookup_count; /* In the last page; so is the next. */
    uint64_t lease_out_count;
    uint64_t page_ns; /* When what `shown` says was so. */
    struct lease_round round;
    struct kvt_live shown;
    uint8_t page[LIVE_PAGE_BYTES_MAX];
};

/* --- The worker ------------------------------------------------------------------------------- */

static void
job_run(struct crew_job *job)
{
    struct live *live = CONTAINER_OF(job, struct live, job);
    size_t size;

    stats_counts(live->store, &live->shown.stats);
    size = live_page_write(live->page, &live->shown, live->page_ns);
    live->store->env.board->write(live->board, live->page, size);
}

/* --- The loop: gathering ---------------------------------------------------------------------- */

static void
name_show(struct kvt_store *store, uint32_t id, char *name_out, size_t size)
{
    const struct namespace_state *state = namespace_at(store, id);
    size_t length = state == NULL ? 0 : strlen(state->name);

    if (length >= size)
        length = size - 1;
    if (length > 0)
        memcpy(name_out, state->name, length);
}

static void
lease_show(struct kvt_store *store, const struct lease *lease, uint32_t first, uint64_t now_ns)
{
    struct lease_round *round = &store->live->round;
    struct kvt_live_lease *show = &round->leases[round->shown_count++];
    struct block_key key;

    memset(show, 0, sizeof(*show));
    residency_key(store->map, lease->numbers[first], &key);
    show->age_ns = lease->taken_ns < now_ns ? now_ns - lease->taken_ns : 0;
    show->ns.id = key.namespace_id;
    show->component = key.component;
    show->tiers = lease->tiers[first];
    show->is_hashed = key.form == KEY_HASHED;
    show->key_length = key.length;
    memcpy(show->key, key.bytes, key.length < sizeof(show->key) ? key.length : sizeof(show->key));
    name_show(store, key.namespace_id, show->namespace_name, sizeof(show->namespace_name));
    for (uint32_t i = first; i < lease->count; i++)
        show->block_count += lease->numbers[i] != ENTRY_NONE;
}

/* Adds the lease's blocks up; returns the first, or its count. */
static uint32_t
lease_sum(struct kvt_store *store, const struct lease *lease)
{
    struct lease_round *round = &store->live->round;
    uint32_t first = lease->count;

    for (uint32_t i = 0; i < lease->count; i++) {
        uint64_t length;

        if (lease->numbers[i] == ENTRY_NONE)
            continue;
        if (first == lease->count)
            first = i;
        length = residency_at(store->map, lease->numbers[i])->length;
        round->hbm_bytes += (lease->tiers[i] & KVT_TIER_HBM) != 0 ? length : 0;
        round->host_bytes += (lease->tiers[i] & KVT_TIER_HOST) != 0 ? length : 0;
        round->nvme_bytes += (lease->tiers[i] & KVT_TIER_NVME) != 0 ? length : 0;
    }
    return first;
}

/* Goes on with the round as far as one page may. True: it is over. */
static bool
leases_walk(struct kvt_store *store, uint64_t count, uint64_t now_ns)
{
    struct lease_round *round = &store->live->round;
    uint32_t end = round->cursor + LEASES_WALKED_MAX;
    uint64_t blocks_seen = 0;

    while (blocks_seen < BLOCKS_SEEN_MAX && round->seen_count < count) {
        const struct lease *lease = lease_next(store, &round->cursor, end);
        uint64_t age_ns;
        uint32_t first;

        if (lease == NULL)
            return round->cursor == 0;
        age_ns = lease->taken_ns < now_ns ? now_ns - lease->taken_ns : 0;
        first = lease_sum(store, lease);
        if (age_ns > round->oldest_ns)
            round->oldest_ns = age_ns;
        if (first < lease->count && round->shown_count < KVT_LIVE_LEASES_MAX)
            lease_show(store, lease, first, now_ns);
        round->seen_count++;
        blocks_seen += lease->count;
    }
    return round->seen_count >= count;
}

/* How many were taken, and given back, until now. */
static uint64_t
leases_change_count(const struct kvt_store *store, uint64_t out_count)
{
    return 2 * atomic_load_explicit(&store->counters.lease_count, memory_order_relaxed) - out_count;
}

static void
round_show(const struct lease_round *round, struct kvt_live *shown)
{
    shown->lease_seen_count = round->seen_count;
    shown->lease_oldest_ns = round->oldest_ns;
    shown->leased_hbm_bytes = round->hbm_bytes;
    shown->leased_host_bytes = round->host_bytes;
    shown->leased_nvme_bytes = round->nvme_bytes;
    shown->lease_shown_count = round->shown_count;
    memcpy(shown->leases, round->leases, round->shown_count * sizeof(round->leases[0]));
}

/* What is shown of leases is what the last whole round saw. A store at rest ends its round, and
 * makes another one where they changed in its course. */
static void
leases_gather(struct kvt_store *store, uint64_t now_ns)
{
    struct live *live = store->live;
    struct lease_round *round = &live->round;
    uint64_t count = atomic_load_explicit(&store->lease_out_count, memory_order_relaxed);
    uint64_t change_count = leases_change_count(store, count);

    if (round->cursor == 0) {
        memset(round, 0, offsetof(struct lease_round, leases));
        round->change_count = change_count;
    }
    live->shown.lease_count = count;
    live->is_due = !leases_walk(store, count, now_ns);
    lease_look_end(store);
    if (live->is_due)
        return;
    round_show(round, &live->shown);
    round->cursor = 0;
    live->is_due = round->change_count != change_count;
}

static void
shown_gather(struct kvt_store *store, uint64_t now_ns)
{
    struct live *live = store->live;
    struct kvt_live *shown = &live->shown;

    if (live->shown.sequence == 0 || now_ns - live->summed_ns >= quiet_ns) {
        live->summed_ns = now_ns;
        live->live_bytes = stats_live_bytes(store);
    }
    memset(&shown->stats, 0, sizeof(shown->stats));
    shown->stats.struct_size = sizeof(shown->stats);
    stats_gauges(store, &shown->stats);
    shown->stats.nvme_live_bytes_now = live->live_bytes;
    shown->sequence++;
    shown->health = atomic_load_explicit(&store->health, memory_order_relaxed);
    shown->work[KVT_LIVE_TICKETS] =
        atomic_load_explicit(&store->ticket_count, memory_order_relaxed);
    shown->work[KVT_LIVE_FILLS] = store->fills_in_flight;
    shown->work[KVT_LIVE_READS] = store->reads_in_flight;
    shown->work[KVT_LIVE_COPIES] = store->copies_in_flight;
    shown->work[KVT_LIVE_IMAGES] = store->images_in_flight;
    shown->work[KVT_LIVE_MOVES] = store->devices.in_flight;
    leases_gather(store, now_ns);
}

/* --- The loop: when --------------------------------------------------------------------------- */

/* Callers look things up, and take leases, without the loop. */
static bool
callers_were_busy(const struct kvt_store *store)
{
    return store->live->lookup_count !=
               atomic_load_explicit(&store->counters.lookup_count, memory_order_relaxed) ||
           store->live->lease_out_count !=
               atomic_load_explicit(&store->lease_out_count, memory_order_relaxed);
}

static void
page_start(struct kvt_store *store)
{
    struct live *live = store->live;

    live->is_due = false;
    live->lookup_count = atomic_load_explicit(&store->counters.lookup_count, memory_order_relaxed);
    live->lease_out_count = atomic_load_explicit(&store->lease_out_count, memory_order_relaxed);
    live->page_ns = store->now_ns;
    shown_gather(store, store->now_ns);
    live->is_writing = true;
    crew_submit(store->crew, &live->job);
}

void
live_step(struct kvt_store *store, bool was_busy, uint64_t *next_ns_out)
{
    struct live *live = store->live;
    uint64_t next_ns;

    if (live == NULL)
        return;
    live->is_due = live->is_due || was_busy;
    if (live->is_writing && inbox_take(&live->done) != NULL)
        live->is_writing = false;
    next_ns = live->looked_ns + (live->is_due ? busy_ns : quiet_ns);
    if (store->now_ns >= next_ns) {
        live->looked_ns = store->now_ns;
        if (!live->is_writing && (live->is_due || callers_were_busy(store)))
            page_start(store);
        next_ns = live->looked_ns + (live->is_due ? busy_ns : quiet_ns);
    }
    if (next_ns < *next_ns_out)
        *next_ns_out = next_ns;
}

/* --- Opening and closing ---------------------------------------------------------------------- */

enum kvt_status
live_open(struct kvt_store *store)
{
    struct process_id self;
    struct live *live;
    enum kvt_status status;

    if (store->env.board == NULL || store->is_read_only)
        return KVT_OK;
    live = env_take(&store->env, sizeof(*live));
    if (live == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for a page of %zu bytes", sizeof(*live));
    status = store->env.board->open(store->env.board_context, store->dir, LIVE_NAME, &live->board);
    if (status != KVT_OK) {
        log_line(&store->logger, LOG_WARN, "live", "event=not_shown status=%s text=\"%s\"",
            kvt_status_name(status), failure_last()->text);
        env_put(&store->env, live, sizeof(*live));
        return KVT_OK;
    }
    live->store = store;
    live->job.run = job_run;
    live->job.done = &live->done;
    live->job.done_task = &live->nobody;
    live->is_due = true;
    store->env.board->self(store->env.board_context, &self);
    live->shown.pid = self.pid;
    live->shown.start_time = self.start_time;
    memcpy(live->shown.program, self.program, sizeof(self.program));
    (void)snprintf(live->shown.version, sizeof(live->shown.version), "%s", kvt_version());
    live->shown.opened_wall_ns = store->env.clock->wall_ns(store->env.clock_context);
    live->shown.options = store->options;
    store->live = live;
    return KVT_OK;
}

void
live_close(struct kvt_store *store)
{
    struct live *live = store->live;

    if (live == NULL)
        return;
    store->live = NULL;
    store->env.board->close(live->board);
    env_put(&store->env, live, sizeof(*live));
}
