/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_fetch.c - rows of open tables to memory of callers: kvt_engram_fetch_submit(), and the
 * actor that reads pages for all fetches of a store.
 *
 * Owns      an io lane, PAGES_IN_FLIGHT pages of memory, the targets that wait.
 * How       A target has its rows in rising order (the plan's), so that the rows of a page are
 *           neighbours. The actor keeps every page of its memory in flight as long as some target
 *           has rows left, the one with the earliest deadline first; what arrives is verified and
 *           its rows are copied where they belong. Nothing is allocated after the submission.
 * Threads   Callers make fetches and wait for them; everything else is the actor's.
 *
 * A target is WAITING (rows left to ask for; in the actor's list), then ARRIVING (all asked for),
 * then settled. Memory order:
 *   (F1) is_settled: released with the target's answer and all rows, acquired by who waits. It is
 *        the actor's last touch of the fetch: it may be freed at once, hence the gate is the
 *        reader's.
 */
#include "engram_set.h"

#include "io_lane.h"

enum {
    PAGES_IN_FLIGHT = 512, /* A 2 MiB page of memory. */
};

struct target {
    struct inbox_node node;
    struct target *next; /* WAITING, the earliest deadline first. */
    struct kvt_engram_fetch *fetch;
    kvt_engram *table;
    struct kvt_engram_rows rows;
    uint8_t *destination, *states;
    uint64_t deadline_ns;
    bool is_once;
    /* The actor's until it is settled: */
    uint32_t asked; /* Rows for which pages were asked. */
    uint32_t pages_in_flight;
    uint64_t lost_count; /* Rows of the destination. */
    enum kvt_status status;
    _Atomic uint32_t is_settled; /* (F1) */
};

struct kvt_engram_fetch {
    struct kvt_store *store;
    struct kvt_engram_fetch *next, *previous; /* In the set's list. */
    uint32_t count;
    struct target targets[KVT_ENGRAM_LAYERS_MAX];
};

/* One page in flight. */
struct page_read {
    struct transfer transfer;
    struct iovec piece;
    struct target *target;
    uint32_t page;
    uint32_t row_first, row_end; /* In the plan's rows. */
    struct page_read *next_free;
};

struct engram_reader {
    struct kvt_env env;
    struct kvt_store *store; /* Its counters and log. */
    struct lane *lane;
    struct task *task;
    uint8_t *memory;
    struct inbox targets; /* any pushes */
    struct inbox done;    /* the lane pushes */
    struct gate gate;     /* any waits: a target was settled. */
    struct page_read reads[PAGES_IN_FLIGHT];
    struct page_read *free;
    uint32_t in_flight;
    struct target *waiting;
    _Atomic uint32_t is_stopping; /* Cancel what waits. */
    _Atomic uint32_t is_idle;     /* ... and nothing is in flight any more. */
};

/* --- 1. Rows (actor) -------------------------------------------------------------------------- */

/* The rows of a page that arrived, or why they did not. */
static void
rows_deliver(struct target *target, const struct page_read *read, enum kvt_engram_row_state state)
{
    const struct engram_head *head = &target->table->head;
    size_t row_bytes = head->profile.row_bytes;
    uint32_t base = read->page * head->rows_per_page;
    const uint8_t *page = read->piece.iov_base;

    for (uint32_t j = read->row_first; j < read->row_end; j++) {
        size_t offset = (target->rows.rows[j] - base) * row_bytes;
        uint32_t first = target->is_once ? j : target->rows.firsts[j];
        uint32_t end = target->is_once ? j + 1 : target->rows.firsts[j + 1];

        for (uint32_t k = first; k < end; k++) {
            uint32_t place = target->is_once ? k : target->rows.slots[k];

            if (state == KVT_ENGRAM_ROW_THERE)
                memcpy(target->destination + place * row_bytes, page + offset, row_bytes);
            else
                target->lost_count++;
            if (target->states != NULL)
                target->states[place] = (uint8_t)state;
        }
    }
}

static void
target_settle(struct engram_reader *reader, struct target *target)
{
    /* (F1) release: pairs with the acquire in kvt_engram_fetch_wait(). */
    atomic_store_explicit(&target->is_settled, 1, memory_order_release);
    gate_post(&reader->env, &reader->gate);
}

static bool
target_is_finished(const struct target *target)
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

static void
page_arrived(struct engram_reader *reader, struct page_read *read)
{
    struct target *target = read->target;
    enum kvt_engram_row_state state = KVT_ENGRAM_ROW_THERE;
    enum kvt_status status = read->transfer.status;

    COUNT(reader->store, engram_page_count, 1);
    if (status != KVT_OK) {
        page_lose(reader, read, "page_unreadable");
        state = KVT_ENGRAM_ROW_UNREADABLE;
        status = KVT_E_IO;
    } else if (!engram_page_is_intact(&target->table->head, read->page, read->piece.iov_base)) {
        page_lose(reader, read, "page_damaged");
        state = KVT_ENGRAM_ROW_DAMAGED;
        status = KVT_E_CORRUPT;
    }
    rows_deliver(target, read, state);
    if (target->status == KVT_OK)
        target->status = status;
    target->pages_in_flight--;
    reader->in_flight--;
    read->next_free = reader->free;
    reader->free = read;
    if (target_is_finished(target))
        target_settle(reader, target);
}

/* --- 2. Pages (actor) ------------------------------------------------------------------------- */

/* The target's next page into free memory. */
static struct page_read *
page_ask(struct engram_reader *reader, struct target *target)
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
    reader->in_flight++;
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

static bool
pages_ask(struct engram_reader *reader)
{
    struct transfer *transfers[PAGES_IN_FLIGHT];
    uint32_t count = 0;

    while (reader->free != NULL && reader->waiting != NULL) {
        struct target *target = reader->waiting;

        transfers[count++] = &page_ask(reader, target)->transfer;
        if (target->asked == target->rows.row_count)
            reader->waiting = target->next;
    }
    if (count > 0)
        lane_push_many(reader->lane, transfers, count);
    return count > 0;
}

/* --- 3. Targets (actor) ----------------------------------------------------------------------- */

/* Behind those whose deadline is not later. */
static void
target_enlist(struct engram_reader *reader, struct target *target)
{
    struct target **link = &reader->waiting;

    if (target_is_finished(target)) {
        target_settle(reader, target);
        return;
    }
    while (*link != NULL && (*link)->deadline_ns <= target->deadline_ns)
        link = &(*link)->next;
    target->next = *link;
    *link = target;
}

/* What was not asked for is not read. */
static void
target_cancel(struct engram_reader *reader, struct target *target)
{
    struct page_read rest = {.row_first = target->asked, .row_end = target->rows.row_count};

    rest.page = target->rows.rows[rest.row_first] / target->table->head.rows_per_page;
    rows_deliver(target, &rest, KVT_ENGRAM_ROW_NOT_READ);
    target->asked = target->rows.row_count;
    if (target->status == KVT_OK)
        target->status = KVT_CANCELLED;
    if (target_is_finished(target))
        target_settle(reader, target);
}

static bool
targets_take(struct engram_reader *reader)
{
    struct inbox_node *node = inbox_take(&reader->targets);
    bool is_busy = node != NULL;

    while (node != NULL) {
        struct target *target = CONTAINER_OF(node, struct target, node);

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

static void
reader_stop_step(struct engram_reader *reader)
{
    while (reader->waiting != NULL) {
        struct target *target = reader->waiting;

        reader->waiting = target->next;
        target_cancel(reader, target);
    }
    if (reader->in_flight == 0) {
        atomic_store_explicit(&reader->is_idle, 1, memory_order_release);
        gate_post(&reader->env, &reader->gate);
    }
}

static bool
reader_step(void *context, uint64_t now_ns, uint64_t *next_ns_out)
{
    struct engram_reader *reader = context;
    bool is_busy;

    (void)now_ns;
    *next_ns_out = UINT64_MAX;
    is_busy = answers_take(reader);
    is_busy = targets_take(reader) || is_busy;
    if (atomic_load_explicit(&reader->is_stopping, memory_order_acquire) != 0)
        reader_stop_step(reader);
    return pages_ask(reader) || is_busy;
}

/* --- 4. The reader's life --------------------------------------------------------------------- */

enum kvt_status
engram_reader_open(struct kvt_store *store, struct engram_reader **reader_out)
{
    const struct kvt_env *env = &store->env;
    struct engram_reader *reader = env_map(env, sizeof(*reader));
    struct actor actor = {.name = "kvt-engram", .step = reader_step, .context = reader};
    size_t memory_bytes = (size_t)PAGES_IN_FLIGHT * PAGE_BYTES;
    enum kvt_status status;

    if (reader == NULL)
        return failure_set(KVT_E_NOMEM, 0, "engram: no memory for a reader");
    reader->env = *env;
    reader->store = store;
    reader->memory = env_map(env, memory_bytes);
    status = reader->memory != NULL
                 ? KVT_OK
                 : failure_set(KVT_E_NOMEM, 0, "engram: no memory for %zu bytes", memory_bytes);
    for (uint32_t i = 0; i < PAGES_IN_FLIGHT && status == KVT_OK; i++) {
        struct page_read *read = &reader->reads[i];

        read->piece.iov_base = reader->memory + (size_t)i * PAGE_BYTES;
        read->piece.iov_len = PAGE_BYTES;
        read->next_free = reader->free;
        reader->free = read;
    }
    if (status == KVT_OK)
        status = lane_open(env, "kvt-io-engram", reader->memory, memory_bytes, &reader->lane);
    if (status == KVT_OK)
        status = env->sched->start(env->sched_context, &actor, &reader->task);
    if (status != KVT_OK) {
        struct failure failure = *failure_last();

        engram_reader_close(reader);
        failure_copy(&failure);
        return status;
    }
    *reader_out = reader;
    return KVT_OK;
}

void
engram_reader_close(struct engram_reader *reader)
{
    struct kvt_env env;

    if (reader == NULL)
        return;
    env = reader->env;
    if (reader->task != NULL) {
        atomic_store_explicit(&reader->is_stopping, 1, memory_order_release);
        for (;;) {
            uint32_t seen = atomic_load_explicit(&reader->gate.value, memory_order_acquire);

            env_wake(&env, reader->task);
            if (atomic_load_explicit(&reader->is_idle, memory_order_acquire) != 0)
                break;
            gate_wait(&env, &reader->gate, seen, UINT64_MAX);
        }
    }
    lane_close(reader->lane);
    if (reader->task != NULL)
        env.sched->stop(env.sched_context, reader->task);
    if (reader->memory != NULL)
        env_unmap(&env, reader->memory, (size_t)PAGES_IN_FLIGHT * PAGE_BYTES);
    env_unmap(&env, reader, sizeof(*reader));
}

/* --- 5. Fetches (any) ------------------------------------------------------------------------- */

/* Whether the plan's layer hashes to the rows of this table. */
static enum kvt_status
layer_check(const struct kvt_engram_hasher *hasher, uint32_t index, const struct engram_head *head)
{
    const struct engram_layer *layer = &hasher->layers[index];
    const struct kvt_engram_profile *profile = &head->profile;
    bool is_same =
        layer->number == profile->layers[0].number && hasher->order_max == profile->order_max &&
        hasher->head_count == profile->head_count && hasher->class_count == profile->class_count &&
        hasher->pad_class == profile->pad_class;

    for (uint32_t s = 0; is_same && s < hasher->order_max; s++)
        is_same = layer->multipliers[s] == profile->layers[0].multipliers[s];
    for (uint32_t i = 0; is_same && i < hasher->column_count; i++)
        is_same = layer->buckets[i].prime == profile->layers[0].primes[i];
    if (!is_same)
        return failure_set(KVT_E_INVAL, 0,
            "the plan's layer %u and the table %s are not of one profile", layer->number,
            head->name);
    if (!bytes_are_zero(hasher->class_map_sha256, sizeof(hasher->class_map_sha256)) &&
        !bytes_are_zero(profile->class_map_sha256, sizeof(profile->class_map_sha256)) &&
        memcmp(hasher->class_map_sha256, profile->class_map_sha256,
            sizeof(profile->class_map_sha256)) != 0)
        return failure_set(
            KVT_E_INVAL, 0, "the table %s was made for another class map", head->name);
    return KVT_OK;
}

static enum kvt_status
target_make(
    const kvt_engram_plan *plan, const struct kvt_engram_target *from, struct target *target)
{
    uint64_t rows;

    if (from->layer_index >= plan->hasher->layer_count)
        return failure_set(KVT_E_INVAL, 0, "the plan has no layer %u", from->layer_index);
    if ((from->flags & ~(uint32_t)KVT_ENGRAM_ONCE) != 0)
        return failure_set(
            KVT_E_INVAL, 0, "flags 0x%x: only KVT_ENGRAM_ONCE is known", from->flags);
    KVT_TRY(layer_check(plan->hasher, from->layer_index, &from->table->head));
    KVT_TRY(kvt_engram_plan_rows(plan, from->layer_index, &target->rows));
    target->is_once = (from->flags & KVT_ENGRAM_ONCE) != 0;
    rows = target->is_once ? target->rows.row_count : target->rows.slot_count;
    if (rows > 0 &&
        (from->destination == NULL || from->capacity / from->table->head.profile.row_bytes < rows))
        return failure_set(KVT_E_INVAL, 0,
            "%llu rows of %u bytes do not fit a destination of %llu bytes",
            (unsigned long long)rows, from->table->head.profile.row_bytes,
            (unsigned long long)from->capacity);
    target->table = from->table;
    target->destination = from->destination;
    target->states = from->states;
    target->deadline_ns = from->deadline_ns == 0 ? UINT64_MAX : from->deadline_ns;
    return KVT_OK;
}

static enum kvt_status
submit_check(const kvt_engram_plan *plan, const struct kvt_engram_target *targets, uint32_t count)
{
    if (plan == NULL || targets == NULL || count == 0 || count > KVT_ENGRAM_LAYERS_MAX)
        return failure_set(KVT_E_INVAL, 0, "plan or targets is NULL, or %u targets are not 1..%u",
            count, KVT_ENGRAM_LAYERS_MAX);
    if (!plan->is_unique)
        return failure_set(KVT_E_INVAL, 0, "the plan was filled without KVT_ENGRAM_UNIQUE");
    for (uint32_t i = 0; i < count; i++) {
        if (targets[i].table == NULL)
            return failure_set(KVT_E_INVAL, 0, "targets[%u].table is NULL", i);
        if (targets[i].table->store != targets[0].table->store)
            return failure_set(KVT_E_INVAL, 0, "targets[%u].table is of another store", i);
    }
    return store_enter(targets[0].table->store);
}

/* From here on the store and the tables know of it. */
static void
fetch_start(struct kvt_engram_fetch *fetch)
{
    struct engram_set *set = fetch->store->engrams;
    uint32_t count = fetch->count; /* The last target may be settled before this returns. */

    pthread_mutex_lock(&set->lock);
    fetch->next = set->fetches;
    if (fetch->next != NULL)
        fetch->next->previous = fetch;
    set->fetches = fetch;
    pthread_mutex_unlock(&set->lock);
    for (uint32_t i = 0; i < count; i++)
        atomic_fetch_add_explicit(&fetch->targets[i].table->fetch_count, 1, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) {
        if (inbox_push(&set->reader->targets, &fetch->targets[i].node))
            env_wake(&fetch->store->env, set->reader->task);
    }
}

enum kvt_status
kvt_engram_fetch_submit(const kvt_engram_plan *plan, const struct kvt_engram_target *targets,
    uint32_t count, kvt_engram_fetch **fetch_out)
{
    struct kvt_engram_fetch *fetch;
    enum kvt_status status = KVT_OK;

    if (fetch_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "fetch_out is NULL");
    *fetch_out = NULL;
    KVT_TRY(submit_check(plan, targets, count));
    fetch = env_take(&targets[0].table->store->env, sizeof(*fetch));
    if (fetch == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for a fetch");
    fetch->store = targets[0].table->store;
    fetch->count = count;
    for (uint32_t i = 0; i < count && status == KVT_OK; i++) {
        fetch->targets[i].fetch = fetch;
        status = target_make(plan, &targets[i], &fetch->targets[i]);
    }
    if (status != KVT_OK) {
        env_put(&fetch->store->env, fetch, sizeof(*fetch));
        return status;
    }
    *fetch_out = fetch;
    fetch_start(fetch);
    return KVT_OK;
}

/* False: not within the time. */
static bool
target_wait(struct kvt_engram_fetch *fetch, const struct target *target, uint64_t until_ns)
{
    const struct kvt_env *env = &fetch->store->env;
    struct gate *gate = &fetch->store->engrams->reader->gate;

    for (;;) {
        uint32_t seen = atomic_load_explicit(&gate->value, memory_order_acquire);

        /* (F1) acquire: pairs with the release in target_settle(). */
        if (atomic_load_explicit(&target->is_settled, memory_order_acquire) != 0)
            return true;
        if (until_ns != UINT64_MAX && env_now(env) >= until_ns)
            return false;
        gate_wait(env, gate, seen, until_ns);
    }
}

enum kvt_status
kvt_engram_fetch_wait(
    kvt_engram_fetch *fetch, uint32_t index, uint64_t timeout_ns, uint64_t *lost_out)
{
    const struct target *target;

    if (fetch == NULL || index >= fetch->count)
        return failure_set(KVT_E_INVAL, 0, "fetch is NULL, or has no target %u", index);
    KVT_TRY(store_enter(fetch->store));
    target = &fetch->targets[index];
    if (!target_wait(fetch, target, env_until(&fetch->store->env, timeout_ns)))
        return KVT_LATE;
    if (lost_out != NULL)
        *lost_out = target->lost_count;
    if (target->status == KVT_OK)
        return KVT_OK;
    return failure_set(target->status, 0, "%llu rows of the table %s %s",
        (unsigned long long)target->lost_count, target->table->head.name,
        target->status == KVT_E_CORRUPT ? "lie in damaged pages, or could not be read"
        : target->status == KVT_E_IO    ? "could not be read"
                                        : "were not read any more");
}

/* Every target is settled. */
void
engram_fetch_destroy(struct kvt_engram_fetch *fetch)
{
    struct engram_set *set = fetch->store->engrams;

    pthread_mutex_lock(&set->lock);
    if (fetch->next != NULL)
        fetch->next->previous = fetch->previous;
    if (fetch->previous != NULL)
        fetch->previous->next = fetch->next;
    else
        set->fetches = fetch->next;
    pthread_mutex_unlock(&set->lock);
    for (uint32_t i = 0; i < fetch->count; i++)
        atomic_fetch_sub_explicit(&fetch->targets[i].table->fetch_count, 1, memory_order_release);
    env_put(&fetch->store->env, fetch, sizeof(*fetch));
}

void
kvt_engram_fetch_free(kvt_engram_fetch *fetch)
{
    if (fetch == NULL || store_enter(fetch->store) == KVT_E_STATE)
        return;
    for (uint32_t i = 0; i < fetch->count; i++)
        (void)target_wait(fetch, &fetch->targets[i], UINT64_MAX);
    engram_fetch_destroy(fetch);
}
