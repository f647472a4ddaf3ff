/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_reader.c - the actor of engram_reader.h.
 *
 * How       A target has its rows in rising order (the plan's), so that the rows of a page are
 *           neighbours. The actor keeps every page of its memory in flight as long as some target
 *           has rows left, the one with the earliest deadline first; what arrives is verified and
 *           its rows are copied where they belong. Nothing is allocated after the submission.
 * Threads   the actor, but engram_reader_open() and engram_reader_close().
 */
#include "engram_reader.h"

enum {
    MEMORY_BYTES = PAGES_IN_FLIGHT * PAGE_BYTES,
    TELL_ROWS = 16, /* Of a cache's sample, between two looks at its counts. */
};

#define PIECES_BYTES (sizeof(struct device_piece) * PAGES_IN_FLIGHT * PAGE_PIECES)

/* --- 1. Pages that arrive --------------------------------------------------------------------- */

void
engram_target_settle(struct engram_reader *reader, struct fetch_target *target)
{
    /* The caller may unregister it as soon as he sees the answer. */
    if (target->region.id != 0)
        region_let_go(reader->store, target->region);
    /* (F1) release: pairs with the acquire in kvt_engram_fetch_wait(). */
    atomic_store_explicit(&target->is_settled, 1, memory_order_release);
    gate_post(&reader->env, &reader->gate);
}

static bool
target_is_finished(const struct fetch_target *target)
{
    return target->asked == target->rows.row_count && target->pages_in_flight == 0;
}

/* For the operator. */
static void
page_lose(struct engram_reader *reader, const struct page_read *read, const char *event)
{
    COUNT(reader->store, engram_page_lost_count, 1);
    log_line(&reader->store->logger, LOG_ERROR, "engram", "event=%s table=%s page=%u errno=%d",
        event, read->target->table->head.name, read->page, read->transfer.error);
}

/* Its rows are where they belong, or will never be. */
static void
page_finish(struct engram_reader *reader, struct page_read *read, enum kvt_engram_row_state state,
    enum kvt_status status)
{
    struct fetch_target *target = read->target;

    engram_rows_note(target, read, state);
    if (target->status == KVT_OK)
        target->status = status;
    target->pages_in_flight--;
    reader->in_flight--;
    read->next_free = reader->free;
    reader->free = read;
    engram_target_look(target);
    if (target_is_finished(target))
        engram_target_settle(reader, target);
}

/* Its bytes are right. */
static void
page_deliver(struct engram_reader *reader, struct page_read *read)
{
    struct fetch_target *target = read->target;

    if (target->device >= 0) {
        reader->ways[read->is_within ? WAY_WITHIN : WAY_IN].in_flight++;
        engram_rows_send(reader, read);
        engram_target_look(target);
    } else {
        engram_rows_copy(target, read);
        page_finish(reader, read, KVT_ENGRAM_ROW_THERE, KVT_OK);
    }
}

static void
page_fail(struct engram_reader *reader, struct page_read *read, enum kvt_engram_row_state state)
{
    bool is_damaged = state == KVT_ENGRAM_ROW_DAMAGED;

    page_lose(reader, read, is_damaged ? "page_damaged" : "page_unreadable");
    if (read->target->device >= 0)
        read->target->pages_unsent--;
    page_finish(reader, read, state, is_damaged ? KVT_E_CORRUPT : read->transfer.status);
}

static struct engram_cache *
host_cache(const struct fetch_target *target)
{
    return atomic_load_explicit(&target->table->cache, memory_order_acquire); /* (F4) */
}

/* The caches take what was verified. */
static void
rows_keep(struct engram_reader *reader, struct page_read *read)
{
    const struct engram_head *head = &read->target->table->head;
    struct engram_cache *cache = host_cache(read->target);

    engram_rows_keep(reader, read);
    for (uint32_t j = read->row_first; cache != NULL && j < read->row_end; j++) {
        uint32_t row = read->target->rows.rows[j];

        engram_cache_keep(cache, row,
            read->bytes +
                (size_t)(row - read->page * head->rows_per_page) * head->profile.row_bytes);
    }
}

static void
page_arrived(struct engram_reader *reader, struct page_read *read)
{
    COUNT(reader->store, engram_page_count, 1);
    reader->ways[WAY_FILE].in_flight--;
    reader->ways[WAY_FILE].busy_count++;
    if (read->transfer.status != KVT_OK) {
        page_fail(reader, read, KVT_ENGRAM_ROW_UNREADABLE);
    } else if (!engram_page_is_intact(&read->target->table->head, read->page, read->bytes)) {
        page_fail(reader, read, KVT_ENGRAM_ROW_DAMAGED);
    } else {
        rows_keep(reader, read);
        page_deliver(reader, read);
    }
}

static void
page_copied(struct engram_reader *reader, struct page_read *read)
{
    struct way_clock *way = &reader->ways[read->is_within ? WAY_WITHIN : WAY_IN];
    bool is_last = engram_rows_go_on(reader, read);

    engram_target_look(read->target);
    if (!is_last)
        return;
    way->in_flight--;
    way->busy_count += read->row_end - read->row_first;
    engram_rows_end(reader, read);
    page_finish(reader, read,
        read->copied_status == KVT_OK ? KVT_ENGRAM_ROW_THERE : KVT_ENGRAM_ROW_NOT_COPIED,
        read->copied_status);
}

/* --- 2. Pages that are asked for -------------------------------------------------------------- */

/* The target's next page into free memory. */
static struct page_read *
page_ask(struct engram_reader *reader, struct fetch_target *target)
{
    const uint32_t *rows = target->rows.rows;
    uint32_t rows_per_page = target->table->head.rows_per_page;
    struct page_read *read = reader->free;
    uint32_t end = target->asked + 1;
    uint64_t page_end;

    reader->free = read->next_free;
    read->target = target;
    read->page = rows[target->asked] / rows_per_page;
    page_end = ((uint64_t)read->page + 1) * rows_per_page;
    while (end < target->rows.row_count && rows[end] < page_end)
        end++;
    read->row_first = target->asked;
    read->row_end = end;
    target->asked = end;
    target->pages_in_flight++;
    if (target->device >= 0)
        target->pages_unsent++;
    reader->in_flight++;
    read->bytes = read->piece.iov_base;
    read->cache = NULL;
    read->is_within = read->is_kept = false;
    read->transfer = (struct transfer){.kind = IO_READ,
        .class = LANE_URGENT,
        .file = target->table->file,
        .offset = engram_page_offset(read->page),
        .pieces = &read->piece,
        .piece_count = 1,
        .done = &reader->done,
        .done_task = &reader->task};
    return read;
}

/* Whether the page is pinned; then it has its bytes. */
static bool
page_find_pinned(struct engram_reader *reader, struct page_read *read)
{
    const struct fetch_target *target = read->target;
    const struct engram_pin *pin = &target->table->pin;

    if (read->page >= engram_pin_pages(pin))
        return false;
    COUNT(reader->store, engram_pinned_page_count, 1);
    if (target->device < 0 || (pin->device_mask >> target->device & 1) != 0)
        read->bytes = engram_pin_page(pin, read->page);
    else /* A device that cannot read it where it is. */
        memcpy(read->piece.iov_base, engram_pin_page(pin, read->page), PAGE_BYTES);
    return true;
}

/* Lost devices have no cache. */
static struct engram_cache_device *
device_cache(const struct engram_reader *reader, const struct fetch_target *target)
{
    struct engram_cache_device *cache;

    if (target->device < 0)
        return NULL;
    cache = atomic_load_explicit(
        &target->table->device_caches[target->device], memory_order_acquire); /* (F4) */
    if (cache != NULL && !cache->is_lost &&
        device_is_lost(reader->store, (uint32_t)target->device)) {
        bool was_on = cache->judge.is_on;

        engram_cache_device_lose(cache);
        engram_cache_device_tell(reader->store, cache, was_on);
    }
    return cache;
}

static void
device_cache_judge(struct engram_reader *reader, struct engram_cache_device *cache,
    const struct engram_judge *host, bool was_on)
{
    const struct cache_prices prices = {.page_ns = reader->ways[WAY_FILE].each_ns,
        .in_ns = reader->ways[WAY_IN].each_ns,
        .within_ns = reader->ways[WAY_WITHIN].each_ns,
        .host_ns = host == NULL ? 0 : host->cost_ns};

    if (engram_cache_device_judge(cache, &prices) || cache->judge.counts.seen_count >= TELL_ROWS)
        engram_cache_device_tell(reader->store, cache, was_on);
}

/* Whether the device's cache has every row of the page that is wanted; then they are held there.
 * Each is looked for, so that the sample is one of all rows. */
static bool
page_find_on_device(struct engram_reader *reader, struct page_read *read)
{
    const struct fetch_target *target = read->target;
    struct engram_cache *host = host_cache(target);
    bool is_whole = true, was_on;

    read->cache = device_cache(reader, target);
    if (read->cache == NULL)
        return false;
    was_on = read->cache->judge.is_on;
    for (uint32_t j = read->row_first; j < read->row_end; j++)
        is_whole = engram_cache_device_find(
                       read->cache, target->rows.rows[j], host == NULL ? NULL : &host->judge) &&
                   is_whole;
    read->is_within = is_whole;
    for (uint32_t j = read->row_first; is_whole && j < read->row_end; j++) {
        engram_cache_device_hold(read->cache, target->rows.rows[j]);
        if (host != NULL)
            engram_judge_pass(&host->judge, target->rows.rows[j]);
    }
    device_cache_judge(reader, read->cache, host == NULL ? NULL : &host->judge, was_on);
    return is_whole;
}

/* Whether the cache had every row of the page that is wanted; then they are in its memory. Each is
 * looked for, so that the sample is one of all rows. */
static bool
page_find_cached(struct engram_reader *reader, struct page_read *read)
{
    const struct fetch_target *target = read->target;
    const struct engram_head *head = &target->table->head;
    struct engram_cache *cache = host_cache(target);
    uint8_t *page = read->piece.iov_base;
    bool is_whole = true, was_on;

    if (cache == NULL)
        return false;
    was_on = cache->judge.is_on;
    for (uint32_t j = read->row_first; j < read->row_end; j++) {
        uint32_t row = target->rows.rows[j];
        uint32_t place = row - read->page * head->rows_per_page;

        is_whole = engram_cache_find(cache, row, page + (size_t)place * head->profile.row_bytes) &&
                   is_whole;
    }
    if (engram_cache_judge(cache, reader->ways[WAY_FILE].each_ns) ||
        cache->judge.counts.seen_count >= TELL_ROWS)
        engram_cache_tell(reader->store, cache, was_on);
    if (is_whole)
        engram_rows_keep(reader, read);
    return is_whole;
}

static bool
pages_ask(struct engram_reader *reader)
{
    struct transfer *transfers[PAGES_IN_FLIGHT];
    uint32_t count = 0, asked_count = 0;

    for (; asked_count < PAGES_IN_FLIGHT; asked_count++) {
        struct fetch_target *target = reader->waiting;
        struct page_read *read;

        if (reader->free == NULL || target == NULL)
            break;
        read = page_ask(reader, target);
        if (target->asked == target->rows.row_count)
            reader->waiting = target->next;
        if (page_find_pinned(reader, read) || page_find_on_device(reader, read) ||
            page_find_cached(reader, read))
            page_deliver(reader, read);
        else
            transfers[count++] = &read->transfer;
    }
    reader->ways[WAY_FILE].in_flight += count;
    if (count > 0)
        lane_push_many(reader->lane, transfers, count);
    return asked_count > 0;
}

/* --- 3. Targets ------------------------------------------------------------------------------- */

/* Behind those whose deadline is not later. */
static void
target_enlist(struct engram_reader *reader, struct fetch_target *target)
{
    struct fetch_target **link = &reader->waiting;

    if (target_is_finished(target)) {
        engram_target_settle(reader, target);
        return;
    }
    while (*link != NULL && (*link)->deadline_ns <= target->deadline_ns)
        link = &(*link)->next;
    target->next = *link;
    *link = target;
}

/* What was not asked for is not read. */
static void
target_cancel(struct engram_reader *reader, struct fetch_target *target)
{
    struct page_read rest = {.row_first = target->asked, .row_end = target->rows.row_count};

    rest.page = target->rows.rows[rest.row_first] / target->table->head.rows_per_page;
    engram_rows_note(target, &rest, KVT_ENGRAM_ROW_NOT_READ);
    target->asked = target->rows.row_count;
    if (target->status == KVT_OK)
        target->status = KVT_CANCELLED;
    engram_target_look(target);
    if (target_is_finished(target))
        engram_target_settle(reader, target);
}

static bool
targets_take(struct engram_reader *reader)
{
    struct inbox_node *node = inbox_take(&reader->targets);
    bool is_busy = node != NULL;

    while (node != NULL) {
        struct fetch_target *target = CONTAINER_OF(node, struct fetch_target, node);

        node = node->next; /* A settled target may be freed at once. */
        target_enlist(reader, target);
    }
    return is_busy;
}

static bool
answers_take(struct engram_reader *reader)
{
    struct inbox_node *node = inbox_take(&reader->done);
    bool is_busy = node != NULL;

    while (node != NULL) {
        struct transfer *transfer = CONTAINER_OF(node, struct transfer, node);

        node = node->next;
        page_arrived(reader, CONTAINER_OF(transfer, struct page_read, transfer));
    }
    return is_busy;
}

static bool
copies_take(struct engram_reader *reader)
{
    struct inbox_node *node = inbox_take(&reader->copied);
    bool is_busy = node != NULL;

    while (node != NULL) {
        struct device_move *move = CONTAINER_OF(node, struct device_move, node);

        node = node->next;
        page_copied(reader, CONTAINER_OF(move, struct page_read, move));
    }
    return is_busy;
}

static void
reader_stop_step(struct engram_reader *reader)
{
    while (reader->waiting != NULL) {
        struct fetch_target *target = reader->waiting;

        reader->waiting = target->next;
        target_cancel(reader, target);
    }
    if (reader->in_flight == 0) {
        atomic_store_explicit(&reader->is_idle, 1, memory_order_release);
        gate_post(&reader->env, &reader->gate);
    }
}

/* The time in which something was in flight, shared out among what came the way that was furthest
 * from its end: what another way took beside it, it would have taken anyway. */
static void
reader_clock(struct engram_reader *reader, uint64_t now_ns)
{
    uint64_t passed_ns = now_ns - reader->step_ns;

    reader->step_ns = now_ns;
    for (uint32_t i = 0; i < WAY_COUNT; i++) {
        struct way_clock *way = &reader->ways[i];

        if (way->in_flight > 0) {
            way->busy_ns += passed_ns;
            passed_ns = 0;
        }
        if (way->busy_count >= PAGES_IN_FLIGHT) {
            way->each_ns = way->busy_ns / way->busy_count + 1;
            way->busy_ns = way->busy_count = 0;
        }
    }
}

static bool
reader_step(void *context, uint64_t now_ns, uint64_t *next_ns_out)
{
    struct engram_reader *reader = context;
    bool is_busy;

    reader_clock(reader, now_ns);
    *next_ns_out = UINT64_MAX;
    is_busy = answers_take(reader);
    is_busy = copies_take(reader) || is_busy;
    is_busy = targets_take(reader) || is_busy;
    if (atomic_load_explicit(&reader->is_stopping, memory_order_acquire) != 0)
        reader_stop_step(reader);
    return pages_ask(reader) || is_busy;
}

/* --- 4. The reader's life --------------------------------------------------------------------- */

/* The pages, and what is needed to copy them to devices. */
static enum kvt_status
reader_memory_take(struct engram_reader *reader)
{
    struct kvt_store *store = reader->store;

    reader->memory = env_map(&reader->env, MEMORY_BYTES);
    if (reader->memory == NULL)
        return failure_set(KVT_E_NOMEM, 0, "engram: no memory for %d bytes", MEMORY_BYTES);
    if (store->devices.mask != 0) {
        reader->pieces = env_map(&reader->env, PIECES_BYTES);
        if (reader->pieces == NULL)
            return failure_set(KVT_E_NOMEM, 0, "engram: no memory for %zu bytes", PIECES_BYTES);
        KVT_TRY(devices_memory_share(store, reader->memory, MEMORY_BYTES, &reader->device_mask));
    }
    for (uint32_t i = 0; i < PAGES_IN_FLIGHT; i++) {
        struct page_read *read = &reader->reads[i];

        read->piece.iov_base = reader->memory + (size_t)i * PAGE_BYTES;
        read->piece.iov_len = PAGE_BYTES;
        if (reader->pieces != NULL)
            read->pieces = reader->pieces + (size_t)i * PAGE_PIECES;
        read->next_free = reader->free;
        reader->free = read;
    }
    return KVT_OK;
}

enum kvt_status
engram_reader_open(struct kvt_store *store, struct engram_reader **reader_out)
{
    const struct kvt_env *env = &store->env;
    struct engram_reader *reader = env_map(env, sizeof(*reader));
    struct actor actor = {.name = "kvt-engram", .step = reader_step, .context = reader};
    struct proof_handler handler;
    enum kvt_status status;

    if (reader == NULL)
        return failure_set(KVT_E_NOMEM, 0, "engram: no memory for a reader");
    reader->env = *env;
    reader->store = store;
    handler = store_proofs_set(store);
    status = reader_memory_take(reader);
    if (status == KVT_OK)
        status = lane_open(env, "kvt-io-engram", reader->memory, MEMORY_BYTES, &reader->lane);
    if (status == KVT_OK)
        status = env->sched->start(env->sched_context, &actor, &reader->task);
    (void)proof_handler_set(handler);
    if (status != KVT_OK) {
        struct failure failure = *failure_last();

        engram_reader_close(reader);
        engram_reader_free(reader);
        failure_copy(&failure);
        return status;
    }
    *reader_out = reader;
    return KVT_OK;
}

void
engram_reader_close(struct engram_reader *reader)
{
    struct kvt_env *env;

    if (reader == NULL)
        return;
    env = &reader->env;
    if (reader->task != NULL) {
        atomic_store_explicit(&reader->is_stopping, 1, memory_order_release);
        for (;;) {
            uint32_t seen = atomic_load_explicit(&reader->gate.value, memory_order_acquire);

            env_wake(env, reader->task);
            if (atomic_load_explicit(&reader->is_idle, memory_order_acquire) != 0)
                break;
            gate_wait(env, &reader->gate, seen, UINT64_MAX);
        }
    }
    lane_close(reader->lane);
    reader->lane = NULL;
    if (reader->memory != NULL)
        reader->is_memory_kept = !devices_memory_unshare(
            reader->store, reader->memory, MEMORY_BYTES, reader->device_mask);
}

void
engram_reader_free(struct engram_reader *reader)
{
    struct kvt_env env;

    if (reader == NULL)
        return;
    env = reader->env;
    if (reader->task != NULL)
        env.sched->stop(env.sched_context, reader->task);
    if (reader->memory != NULL && !reader->is_memory_kept)
        env_unmap(&env, reader->memory, MEMORY_BYTES);
    if (reader->pieces != NULL)
        env_unmap(&env, reader->pieces, PIECES_BYTES);
    env_unmap(&env, reader, sizeof(*reader));
}
