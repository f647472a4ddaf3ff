/* SPDX-License-Identifier: Apache-2.0 */
/*
 * holds.c - words that streams wait for, and statuses beside them (holds.h).
 *
 * A hold costs a ticket that has none one look at a count, when it is done; and the loop one
 * comparison in each of its steps.
 */
#include "holds.h"

#include "kvtier/kvtier_unstable.h"
#include "store_internal.h"

enum {
    STATUSES_A_LINE = HOLD_LINE_BYTES / sizeof(int32_t),
    MEMORY_BYTES = HOLD_LINES * HOLD_LINE_BYTES,
    RECORD_ATTEMPTS = 16, /* When a store ends: of a device that finds no memory. */
};

static const uint64_t CLOSE_POLL_NS = 20000;

struct kvt_hold {
    struct message submitted; /* To the loop. */
    struct message ended;     /* The same. */
    struct kvt_store *store;
    struct kvt_hold *next;     /* Of those that are free, or (the loop's) that wait. */
    struct kvt_hold *above;    /* The next one in memory; guarded by: mutex */
    uint32_t line, line_count; /* Where its memory lies. */
    bool is_out;               /* kvt_hold_free() was not called; guarded by: mutex */
    uint32_t device;
    void *stream;
    uint64_t deadline_ns; /* UINT64_MAX: none. */
    uint32_t count;       /* Statuses. */
    _Atomic uint32_t *word;
    int32_t *statuses;
    /* The loop's from the submission on. */
    struct kvt_ticket *ticket; /* NULL: settled. */
    bool is_ended;
    bool has_event;  /* is_ended: it was recorded. Without it the device is lost. */
    bool is_passing; /* The mover asks for it. */
    struct device_job job;
    void *events[POLICY_DEVICES_MAX]; /* Each made when it is needed first. */
};

struct hold_table {
    pthread_mutex_t mutex;
    uint8_t *memory;
    uint32_t device_mask;    /* That know the memory. */
    struct kvt_hold *free;   /* The one used last first; guarded by: mutex */
    struct kvt_hold *lowest; /* In memory, of those that have some; guarded by: mutex */
    struct kvt_hold holds[KVT_HOLDS_MAX];
};

/* --- 1. The table (any) ----------------------------------------------------------------------- */

/* There is no loop yet that could go on without a device. */
static enum kvt_status
memory_share(struct kvt_store *store, struct hold_table *table)
{
    for (uint32_t i = 0; i < POLICY_DEVICES_MAX; i++) {
        struct device *device;

        if (!device_is_open(store, i))
            continue;
        device = hbm_device(store->devices.tiers[i]);
        KVT_TRY(device->ops->host_register(device, table->memory, MEMORY_BYTES));
        table->device_mask |= 1u << i;
    }
    return KVT_OK;
}

enum kvt_status
holds_open(struct kvt_store *store)
{
    struct hold_table *table;

    store->holds.look_ns = UINT64_MAX;
    if (store->devices.mask == 0)
        return KVT_OK;
    table = env_take(&store->env, sizeof(*table));
    store->holds.table = table;
    if (table == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for holds");
    pthread_mutex_init(&table->mutex, NULL);
    for (uint32_t i = KVT_HOLDS_MAX; i > 0; i--) {
        table->holds[i - 1].store = store;
        table->holds[i - 1].next = table->free;
        table->free = &table->holds[i - 1];
    }
    table->memory = env_map(&store->env, MEMORY_BYTES);
    if (table->memory == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for holds");
    return memory_share(store, table);
}

/* The first gap that it fits into. The mutex is held. */
static bool
place_take(struct hold_table *table, struct kvt_hold *hold, uint32_t line_count)
{
    struct kvt_hold **link = &table->lowest;
    uint32_t line = 0;

    while (*link != NULL && (*link)->line - line < line_count) {
        line = (*link)->line + (*link)->line_count;
        link = &(*link)->above;
    }
    if (HOLD_LINES - line < line_count)
        return false;
    hold->line = line;
    hold->line_count = line_count;
    hold->above = *link;
    *link = hold;
    return true;
}

static void
place_put(struct hold_table *table, const struct kvt_hold *hold)
{
    struct kvt_hold **link = &table->lowest;

    while (*link != hold)
        link = &(*link)->above;
    *link = hold->above;
}

static enum kvt_status
hold_take(struct hold_table *table, uint32_t count, struct kvt_hold **hold_out)
{
    uint32_t line_count = 1 + (count + STATUSES_A_LINE - 1) / STATUSES_A_LINE;
    struct kvt_hold *hold;
    bool has_place = false;

    pthread_mutex_lock(&table->mutex);
    hold = table->free;
    if (hold != NULL)
        has_place = place_take(table, hold, line_count);
    if (has_place) {
        table->free = hold->next;
        hold->is_out = true;
    }
    pthread_mutex_unlock(&table->mutex);
    if (hold == NULL)
        return failure_set(KVT_E_NOSPC, 0,
            "%u holds are out, or their streams have not passed (KVT_HOLDS_MAX)", KVT_HOLDS_MAX);
    if (!has_place)
        return failure_set(
            KVT_E_NOSPC, 0, "there is no room for %u statuses beside those of other holds", count);
    hold->count = count;
    hold->word = (_Atomic uint32_t *)(void *)(table->memory + hold->line * HOLD_LINE_BYTES);
    hold->statuses = (int32_t *)(void *)(table->memory + (hold->line + 1) * HOLD_LINE_BYTES);
    *hold_out = hold;
    return KVT_OK;
}

static void
hold_put(struct kvt_hold *hold)
{
    struct hold_table *table = hold->store->holds.table;

    pthread_mutex_lock(&table->mutex);
    place_put(table, hold);
    hold->is_out = false;
    hold->next = table->free;
    table->free = hold;
    pthread_mutex_unlock(&table->mutex);
}

/* --- 2. Waiting ------------------------------------------------------------------------------- */

/* Of block `i`, whose parts may have operations of their own; `left`: when one is not over. */
static enum kvt_status
block_status(const struct kvt_ticket *ticket, uint32_t i, enum kvt_status left)
{
    for (uint32_t at = i; at < ticket->count; at += ticket->block_count) {
        if (!ticket->ops[at].is_reached[0])
            return left;
    }
    return ticket_block_op(ticket, KVT_STAGE_DONE, i)->status[0];
}

/* Any thread, of a ticket that nobody changes meanwhile. NULL: nothing is known of its gets. */
static void
word_write(struct kvt_hold *hold, const struct kvt_ticket *ticket, enum kvt_status left)
{
    for (uint32_t i = 0; i < hold->count; i++)
        hold->statuses[i] = ticket == NULL ? left : block_status(ticket, i, left);
    /* (H2) release: whoever sees the word, the device first of all, sees the statuses. */
    atomic_store_explicit(hold->word, 1, memory_order_release);
}

static void hold_pass(struct kvt_store *store, struct kvt_hold *hold);

/* The hold leaves the list that `link` is of. */
static void
hold_settle(struct kvt_store *store, struct kvt_hold **link, enum kvt_status left)
{
    struct kvt_hold *hold = *link;
    struct kvt_ticket *ticket = hold->ticket;

    *link = hold->next;
    word_write(hold, ticket, left);
    hold->ticket = NULL;
    ticket->hold_count--;
    ticket_release(ticket);
    if (hold->is_ended)
        hold_pass(store, hold);
}

/* After every change of the list. */
static void
holds_look(struct kvt_store *store)
{
    struct holds *holds = &store->holds;

    holds->look_ns = UINT64_MAX;
    for (const struct kvt_hold *hold = holds->waiting; hold != NULL; hold = hold->next) {
        KVT_ASSERT_SLOW(hold->ticket->hold_count > 0 && hold->ticket->left[0] > 0);
        if (hold->deadline_ns < holds->look_ns)
            holds->look_ns = hold->deadline_ns;
    }
}

void
holds_reach(struct kvt_store *store, struct kvt_ticket *ticket)
{
    struct kvt_hold **link = &store->holds.waiting;

    KVT_ASSERT(ticket->left[0] == 0);
    while (*link != NULL && ticket->hold_count > 0) {
        if ((*link)->ticket == ticket)
            hold_settle(store, link, KVT_CANCELLED); /* None is left. */
        else
            link = &(*link)->next;
    }
    holds_look(store);
}

bool
holds_step(struct kvt_store *store)
{
    struct kvt_hold **link = &store->holds.waiting;

    if (store->holds.look_ns > store->now_ns)
        return false;
    while (*link != NULL) {
        if ((*link)->deadline_ns <= store->now_ns)
            hold_settle(store, link, KVT_LATE);
        else
            link = &(*link)->next;
    }
    holds_look(store);
    return true;
}

void
holds_cancel(struct kvt_store *store)
{
    while (store->holds.waiting != NULL)
        hold_settle(store, &store->holds.waiting, KVT_CANCELLED);
    holds_look(store);
}

static void
hold_submit_deliver(struct kvt_store *store, struct message *message)
{
    struct kvt_hold *hold = CONTAINER_OF(message, struct kvt_hold, submitted);
    struct kvt_ticket *ticket = hold->ticket;

    ticket->hold_count++;
    hold->next = store->holds.waiting;
    store->holds.waiting = hold;
    /* It was done meanwhile: then it may go with the hold's reference. */
    if (ticket->left[0] == 0)
        hold_settle(store, &store->holds.waiting, KVT_CANCELLED); /* None is left. */
    holds_look(store);
}

/* --- 3. The end ------------------------------------------------------------------------------- */

static void
hold_passed(struct kvt_store *store, struct device_job *job)
{
    struct kvt_hold *hold = CONTAINER_OF(job, struct kvt_hold, job);

    (void)store;
    hold->is_passing = false;
    hold_put(hold);
}

/* It is settled and ended: it is given back when the stream has done what it was to do. */
static void
hold_pass(struct kvt_store *store, struct kvt_hold *hold)
{
    if (!hold->has_event) {
        hold_put(hold);
        return;
    }
    hold->is_passing = true;
    hold->job.device = hold->device;
    hold->job.is_firm = true;
    hold->job.finish = hold_passed;
    device_job_wait(store, &hold->job, hold->events[hold->device]);
}

static void
hold_end_deliver(struct kvt_store *store, struct message *message)
{
    struct kvt_hold *hold = CONTAINER_OF(message, struct kvt_hold, ended);

    hold->is_ended = true;
    if (hold->ticket == NULL)
        hold_pass(store, hold);
}

/* --- 4. Closing (any) ------------------------------------------------------------------------- */

/* Until its stream has done what was submitted: that may read the hold's memory. */
static void
hold_await(struct kvt_store *store, const struct kvt_hold *hold)
{
    struct device *device = hbm_device(store->devices.tiers[hold->device]);
    void *event = hold->events[hold->device];
    enum kvt_status status = KVT_OK;
    struct gate gate = {0};

    if (hold->is_out) {
        uint32_t attempts = 0;

        do
            status = device->ops->event_record(device, event, hold->stream);
        while (status == KVT_E_NOMEM && ++attempts < RECORD_ATTEMPTS);
    }
    while (status == KVT_OK && device->ops->event_query(device, event) == KVT_NOT_READY)
        gate_wait(&store->env, &gate, 0, env_now(&store->env) + CLOSE_POLL_NS);
}

static void
hold_events_destroy(struct kvt_store *store, struct kvt_hold *hold)
{
    for (uint32_t i = 0; i < POLICY_DEVICES_MAX; i++) {
        struct device *device;

        if (hold->events[i] == NULL || hold->is_passing)
            continue;
        device = hbm_device(store->devices.tiers[i]);
        device->ops->event_destroy(device, hold->events[i]);
    }
}

void
holds_release(struct kvt_store *store)
{
    struct hold_table *table = store->holds.table;

    if (table == NULL)
        return;
    /* Its tickets may be anything. */
    for (struct kvt_hold *hold = table->lowest; hold != NULL; hold = hold->above) {
        if (atomic_load_explicit(hold->word, memory_order_relaxed) == 0)
            word_write(hold, NULL, KVT_CANCELLED);
    }
}

void
holds_stop(struct kvt_store *store)
{
    struct hold_table *table = store->holds.table;

    if (table == NULL || table->memory == NULL)
        return;
    holds_release(store); /* The store may have broken since. */
    for (const struct kvt_hold *hold = table->lowest; hold != NULL; hold = hold->above)
        hold_await(store, hold);
    for (uint32_t i = 0; i < KVT_HOLDS_MAX; i++)
        hold_events_destroy(store, &table->holds[i]);
    if (devices_memory_unshare(store, table->memory, MEMORY_BYTES, table->device_mask))
        env_unmap(&store->env, table->memory, MEMORY_BYTES);
    table->memory = NULL;
}

void
holds_close(struct kvt_store *store)
{
    struct hold_table *table = store->holds.table;

    if (table == NULL)
        return;
    pthread_mutex_destroy(&table->mutex);
    env_put(&store->env, table, sizeof(*table));
    store->holds.table = NULL;
}

/* --- 5. Calls (any) --------------------------------------------------------------------------- */

static enum kvt_status
submit_check(const struct kvt_ticket *ticket, uint32_t device)
{
    if (ticket->kind != TICKET_GET)
        return failure_set(KVT_E_INVAL, 0, "the ticket is not one of gets");
    if (!device_is_open(ticket->store, device))
        return failure_set(
            KVT_E_INVAL, 0, "device %u is not one of the store's (device_mask)", device);
    if (device_is_lost(ticket->store, device))
        return failure_set(KVT_E_GPU, 0, "device %u is lost", device);
    return KVT_OK;
}

/* The stream waits; or the ticket is done, and there is nothing to wait for. */
static enum kvt_status
hold_begin(struct kvt_hold *hold, struct kvt_ticket *ticket)
{
    struct kvt_store *store = hold->store;
    struct device *device = hbm_device(store->devices.tiers[hold->device]);
    void **event = &hold->events[hold->device];

    if (*event == NULL)
        KVT_TRY(device_answer(store, hold->device, device->ops->event_create(device, event)));
    /* (Q2) acquire: the results are there. */
    if (atomic_load_explicit(&ticket->stage, memory_order_acquire) > 0) {
        word_write(hold, ticket, KVT_CANCELLED); /* None is left. */
        return KVT_OK;
    }
    for (uint32_t i = 0; i < hold->count; i++)
        hold->statuses[i] = KVT_NOT_READY;
    atomic_store_explicit(hold->word, 0, memory_order_relaxed);
    KVT_TRY(device_answer(
        store, hold->device, device->ops->stream_wait_word(device, hold->stream, hold->word, 1)));
    hold->ticket = ticket;
    atomic_fetch_add_explicit(&ticket->reference_count, 1, memory_order_relaxed);
    hold->submitted.deliver = hold_submit_deliver;
    loop_send(store, &hold->submitted);
    return KVT_OK;
}

enum kvt_status
kvt_hold_submit(
    kvt_ticket *ticket, uint32_t device, void *stream, uint64_t deadline_ns, kvt_hold **hold_out)
{
    struct kvt_store *store;
    struct kvt_hold *hold = NULL;
    enum kvt_status status;

    if (hold_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "hold_out is NULL");
    *hold_out = NULL;
    if (ticket == NULL)
        return failure_set(KVT_E_INVAL, 0, "ticket is NULL");
    KVT_TRY(device_stream_keep_check(stream));
    store = ticket->store;
    KVT_TRY(store_enter(store));
    KVT_TRY(submit_check(ticket, device));
    KVT_TRY(hold_take(store->holds.table, ticket->block_count, &hold));
    hold->device = device;
    hold->stream = stream;
    hold->deadline_ns = deadline_ns == 0 ? UINT64_MAX : deadline_ns;
    hold->ticket = NULL;
    hold->is_ended = false;
    status = hold_begin(hold, ticket);
    if (status != KVT_OK) {
        hold_put(hold);
        return status;
    }
    atomic_fetch_add_explicit(&store->holds.out_count, 1, memory_order_relaxed);
    *hold_out = hold;
    return KVT_OK;
}

/* False: it was not. */
static bool
hold_out_set(struct kvt_hold *hold, bool is_out)
{
    struct hold_table *table = hold->store->holds.table;
    bool was_out;

    pthread_mutex_lock(&table->mutex);
    was_out = hold->is_out;
    hold->is_out = is_out;
    pthread_mutex_unlock(&table->mutex);
    return was_out;
}

const int32_t *
kvt_hold_statuses(const kvt_hold *hold)
{
    /* They are memory that a forked child lacks. */
    if (hold == NULL || store_enter(hold->store) == KVT_E_STATE)
        return NULL;
    return hold->statuses;
}

enum kvt_status
kvt_hold_free(kvt_hold *hold)
{
    struct kvt_store *store;
    struct device *device;
    enum kvt_status status;

    if (hold == NULL)
        return KVT_OK;
    store = hold->store;
    KVT_TRY(store_enter(store));
    if (!hold_out_set(hold, false))
        return failure_set(KVT_E_INVAL, 0, "the hold was freed before");
    device = hbm_device(store->devices.tiers[hold->device]);
    status = device_answer(store, hold->device,
        device->ops->event_record(device, hold->events[hold->device], hold->stream));
    if (status != KVT_OK && status != KVT_E_GPU) {
        (void)hold_out_set(hold, true);
        return status;
    }
    hold->has_event = status == KVT_OK;
    hold->ended.deliver = hold_end_deliver;
    loop_send(store, &hold->ended);
    /* Now, not when the loop has it: the caller may close the store next. */
    atomic_fetch_sub_explicit(&store->holds.out_count, 1, memory_order_relaxed);
    return status;
}
