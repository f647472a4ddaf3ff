/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process_event.c - events that several processes see, and the end of waits for dead ones
 * (processes.h).
 */
#include "processes.h"
#include "store_internal.h"

/* Above every record, and so that the difference of both is positive: CUDA compares by that. */
#define REACHED_ALL ((uint64_t)INT64_MAX)
#define RECORD_MAX (REACHED_ALL - 1)

static const uint64_t WATCH_NS = 20 * 1000 * 1000; /* Between two looks at makers. */
/* The same when the number is reached: somebody could take that back. */
static const uint64_t CALM_NS = 1000 * 1000 * 1000;
/* From the number in the page until the device says so too: it is written just before. */
static const uint64_t DONE_NS = 100 * 1000 * 1000;
static const uint64_t LOOK_NS_MIN = 10 * 1000, LOOK_NS_MAX = 1000 * 1000;

struct kvt_shared_event {
    struct kvt_shared_event *next; /* In the watch. */
    struct process_watch *watch;
    kvt_store *store; /* Or the import. */
    kvt_import *import;
    uint32_t device_number; /* Of the store. */
    struct device *device;
    struct shared_page page;
    bool is_known;   /* The device knows the page. */
    uint64_t waited; /* The last record that a stream was to wait for. guarded by: watch->lock */
    uint64_t wait_count; /* Of them all, since it was opened. guarded by: watch->lock */
    /* Held over the calls that queue a record, which block when the stream is full: what ends the
     * waits of that stream does not take it. */
    pthread_mutex_t record_lock;
    _Atomic uint64_t queued; /* Numbers that streams were given to write. Set under record_lock. */
    void *stream;            /* Of the last one. guarded by: record_lock */
    void *done;              /* The maker's: an event of the device behind the last one. */
    bool is_unsure;          /* `done` is not behind it. guarded by: record_lock */
};

static struct process_words *
words_of(const struct kvt_shared_event *event)
{
    return event->page.memory;
}

static _Atomic uint64_t *
reached_of(const struct kvt_shared_event *event)
{
    return (_Atomic uint64_t *)&words_of(event)->reached;
}

static bool
is_maker(const struct kvt_shared_event *event)
{
    return event->page.life != NULL;
}

/* --- 1. What has become of a record ----------------------------------------------------------- */

/* What is not reached by now never will be. */
static void
event_break(const struct kvt_shared_event *event)
{
    atomic_store_explicit(&words_of(event)->is_broken, 1, memory_order_relaxed);
    /* Release: who sees the number sees that it stands for nothing. */
    atomic_store_explicit(reached_of(event), REACHED_ALL, memory_order_release);
}

static bool
maker_is_gone(const struct kvt_shared_event *event)
{
    const struct kvt_env *env = event->watch->env;

    return !env->memory->page_is_made(env->memory_context, &event->page);
}

static enum kvt_status
never_reached(void)
{
    return failure_set(KVT_CANCELLED, 0,
        "the maker of the event, or one who waited for it, is gone: it will never be reached");
}

/* By the page: as the devices of others see it. */
static bool
number_is_reached(const struct kvt_shared_event *event, uint64_t record)
{
    /* Acquire: what was copied before it was written is seen by the calling thread. */
    return device_number_is_reached(
        atomic_load_explicit(reached_of(event), memory_order_acquire), record);
}

/* Of another's event: KVT_OK, KVT_LATE, KVT_CANCELLED. */
static enum kvt_status
event_look(const struct kvt_shared_event *event, uint64_t record)
{
    /* First, so that the last word of a maker that goes now is read behind it. */
    bool is_gone = maker_is_gone(event);
    bool is_reached = record == 0 || number_is_reached(event, record);

    if (atomic_load_explicit(&words_of(event)->is_broken, memory_order_relaxed) != 0)
        return never_reached();
    if (record > RECORD_MAX)
        return failure_set(KVT_CANCELLED, 0, "no maker has counted to record %llu of the event",
            (unsigned long long)record);
    if (is_reached)
        return KVT_OK;
    if (!is_gone)
        return KVT_LATE;
    event_break(event);
    return never_reached();
}

/* Of another's event. */
static uint64_t
record_of(const struct kvt_shared_event *event)
{
    return atomic_load_explicit(&words_of(event)->recorded, memory_order_acquire);
}

static uint64_t
queued_of(const struct kvt_shared_event *event)
{
    return atomic_load_explicit(&event->queued, memory_order_relaxed);
}

static enum kvt_status
event_enter(const struct kvt_shared_event *event)
{
    if (event == NULL)
        return failure_set(KVT_E_INVAL, 0, "event is NULL");
    return event->import != NULL ? import_enter(event->import) : store_enter(event->store);
}

/* What its device said, unchanged. */
static enum kvt_status
event_answer(const struct kvt_shared_event *event, enum kvt_status status)
{
    return event->import != NULL ? status
                                 : device_answer(event->store, event->device_number, status);
}

/* The same of an event that this process makes: its device knows. */
static enum kvt_status
done_look(const struct kvt_shared_event *event, uint64_t record)
{
    enum kvt_status status = event->device->ops->event_query(event->device, event->done);

    if (status != KVT_NOT_READY)
        return event_answer(event, status);
    /* When it was recorded again meanwhile, `done` is behind that. */
    return queued_of(event) != record && number_is_reached(event, record) ? KVT_OK : KVT_LATE;
}

/* Until the last record is reached, or the time has come. Who has seen the number in the page is
 * not told KVT_LATE by its maker, whose device says so a moment later. */
static enum kvt_status
event_await(const struct kvt_shared_event *event, uint64_t until_ns)
{
    const struct kvt_env *env = event->watch->env;
    uint64_t record = is_maker(event) ? queued_of(event) : record_of(event);
    uint64_t patience_ns = is_maker(event) ? env_until(env, DONE_NS) : 0;
    uint64_t look_ns = LOOK_NS_MIN;
    struct gate gate = {0};
    enum kvt_status status;

    while ((status = is_maker(event) ? done_look(event, record) : event_look(event, record)) ==
           KVT_LATE) {
        uint64_t now_ns = env_now(env);
        uint64_t look_until_ns = env_until(env, look_ns);

        KVT_TRY(event_enter(event)); /* The store may be poisoned. */
        if (now_ns >= until_ns && (now_ns >= patience_ns || !number_is_reached(event, record)))
            return failure_set(KVT_LATE, 0, "the event was not reached in time");
        if (now_ns < until_ns && until_ns < look_until_ns)
            look_until_ns = until_ns;
        gate_wait(env, &gate, 0, look_until_ns);
        look_ns = look_ns * 2 < LOOK_NS_MAX ? look_ns * 2 : LOOK_NS_MAX;
    }
    return status;
}

/* --- 2. The watch ----------------------------------------------------------------------------- */

void
process_watch_init(struct process_watch *watch, const struct kvt_env *env)
{
    watch->env = env;
    (void)pthread_mutex_init(&watch->lock, NULL);
}

uint32_t
process_watch_count(struct process_watch *watch)
{
    uint32_t count;

    (void)pthread_mutex_lock(&watch->lock);
    count = watch->count;
    (void)pthread_mutex_unlock(&watch->lock);
    return count;
}

/* How long until it must be looked at again; UINT64_MAX: no stream ever waited for it. */
static uint64_t
event_watch(const struct kvt_shared_event *event)
{
    enum kvt_status status;

    if (event->waited == 0)
        return UINT64_MAX;
    status = event_look(event, event->waited);
    if (status == KVT_CANCELLED)
        event_break(event);
    return status == KVT_OK ? CALM_NS : WATCH_NS;
}

static bool
watch_step(void *context, uint64_t now_ns, uint64_t *next_ns_out)
{
    struct process_watch *watch = context;
    uint64_t rest_ns = UINT64_MAX;

    (void)pthread_mutex_lock(&watch->lock);
    for (struct kvt_shared_event *event = watch->first; event != NULL; event = event->next) {
        uint64_t event_ns = event_watch(event);

        rest_ns = event_ns < rest_ns ? event_ns : rest_ns;
    }
    (void)pthread_mutex_unlock(&watch->lock);
    *next_ns_out = rest_ns == UINT64_MAX ? UINT64_MAX : now_ns + rest_ns;
    return false;
}

/* The watch's lock is held. */
static enum kvt_status
watch_start(struct process_watch *watch)
{
    const struct actor actor = {.name = "kvt-processes", .step = watch_step, .context = watch};

    if (watch->task != NULL)
        return KVT_OK;
    return watch->env->sched->start(watch->env->sched_context, &actor, &watch->task);
}

/* The page stays mapped until the process ends; the event ends for everybody all the same. */
static void
page_leave(struct kvt_shared_event *event)
{
    const struct kvt_env *env = event->watch->env;

    event->page.memory = NULL;
    env->memory->page_end(env->memory_context, &event->page);
}

/* A lost device may still write to the page, or look at it. */
static void
page_keep(struct kvt_shared_event *event)
{
    if (event->store != NULL)
        devices_kept_log(event->store, event->page.memory, PAGE_BYTES);
    page_leave(event);
}

/* Streams of callers may still write to the page, or look at it: it stays pinned, too. That costs
 * 4 KiB; a device that writes to what is no longer ours costs more. */
static void
page_abandon(struct kvt_shared_event *event)
{
    event->device->ops->host_abandon(event->device, event->page.memory, PAGE_BYTES);
    event->is_known = event->is_unsure = false;
    page_leave(event);
}

static void
event_free(struct kvt_shared_event *event)
{
    const struct kvt_env *env = event->watch->env;

    if (event->is_unsure)
        page_abandon(event);
    if (event->done != NULL)
        event->device->ops->event_destroy(event->device, event->done);
    if (event->is_known && event->device->ops->host_unregister(
                               event->device, event->page.memory, PAGE_BYTES) != KVT_OK)
        page_keep(event);
    if (event->page.memory != NULL)
        env->memory->page_end(env->memory_context, &event->page);
    (void)pthread_mutex_destroy(&event->record_lock);
    env_put(env, event, sizeof(*event));
}

/* What streams wait for ends with who would look after it. Records are left as they are: whoever
 * waits for one sees that its maker is gone. */
static void
wait_end(const struct kvt_shared_event *event)
{
    if (event->waited > 0 && event_look(event, event->waited) == KVT_LATE)
        event_break(event);
}

/* True: no work of a stream uses the page any more. Of waits nobody knows. */
static bool
page_is_left(const struct kvt_shared_event *event)
{
    enum kvt_status status = KVT_OK;

    if (is_maker(event))
        status = event->device->ops->event_query(event->device, event->done);
    return event->waited == 0 && !event->is_unsure && (status == KVT_OK || status == KVT_E_GPU);
}

void
process_waits_end(struct process_watch *watch)
{
    (void)pthread_mutex_lock(&watch->lock);
    for (struct kvt_shared_event *event = watch->first; event != NULL; event = event->next)
        wait_end(event);
    (void)pthread_mutex_unlock(&watch->lock);
}

void
process_watch_close(struct process_watch *watch)
{
    if (watch->task != NULL)
        watch->env->sched->stop(watch->env->sched_context, watch->task);
    watch->task = NULL;
    for (struct kvt_shared_event *event = watch->first; event != NULL; event = event->next)
        wait_end(event);
    while (watch->first != NULL) {
        struct kvt_shared_event *event = watch->first;

        watch->first = event->next;
        if (!page_is_left(event))
            page_abandon(event);
        event_free(event);
    }
    watch->count = 0;
}

void
process_watch_deinit(struct process_watch *watch)
{
    (void)pthread_mutex_destroy(&watch->lock);
}

/* --- 3. Making and opening -------------------------------------------------------------------- */

/* KVT_OK: what the side names can be used. */
static enum kvt_status
side_enter(const struct kvt_side *side)
{
    if (side == NULL || (side->store == NULL) == (side->import == NULL))
        return failure_set(KVT_E_INVAL, 0, "a side is a store or an import");
    if (side->import != NULL) {
        if (side->device != 0 || side->reserved0 != 0)
            return failure_set(KVT_E_INVAL, 0, "device and reserved0 of an import are 0");
        return import_enter(side->import);
    }
    KVT_TRY(store_enter(side->store));
    if (!device_is_open(side->store, side->device) || side->reserved0 != 0)
        return failure_set(KVT_E_INVAL, 0,
            "device %u is not one of the store's (device_mask), or reserved0 is not 0",
            side->device);
    return KVT_OK;
}

static enum kvt_status
event_take(const struct kvt_side *side, struct kvt_shared_event **event_out)
{
    struct process_watch *watch =
        side->import != NULL ? &side->import->watch : &side->store->processes;
    struct device *device = side->import != NULL
                                ? side->import->device
                                : hbm_device(side->store->devices.tiers[side->device]);
    struct kvt_shared_event *event;

    if (device->ops->share == NULL || watch->env->memory->page_make == NULL)
        return failure_set(KVT_E_UNSUPPORTED, 0, "there is no memory here that others may map");
    event = env_take(watch->env, sizeof(*event));
    if (event == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for an event");
    event->watch = watch;
    event->store = side->store;
    event->import = side->import;
    event->device_number = side->device;
    event->device = device;
    (void)pthread_mutex_init(&event->record_lock, NULL);
    *event_out = event;
    return KVT_OK;
}

/* Whoever looks for it finds it from now on; or it is freed. */
static enum kvt_status
event_publish(struct kvt_shared_event *event, enum kvt_status status)
{
    struct process_watch *watch = event->watch;

    if (status == KVT_OK)
        status = event_answer(event,
            event->device->ops->host_register(event->device, event->page.memory, PAGE_BYTES));
    if (status != KVT_OK) {
        struct failure failure = *failure_last();

        event_free(event);
        failure_copy(&failure);
        return status;
    }
    event->is_known = true;
    (void)pthread_mutex_lock(&watch->lock);
    event->next = watch->first;
    watch->first = event;
    watch->count++;
    (void)pthread_mutex_unlock(&watch->lock);
    return KVT_OK;
}

enum kvt_status
kvt_shared_event_create(const struct kvt_side *side, struct kvt_share *share_out,
    int *descriptor_out, kvt_shared_event **event_out)
{
    struct kvt_shared_event *event;
    const struct kvt_env *env;
    enum kvt_status status;

    if (event_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "event_out is NULL");
    *event_out = NULL;
    if (share_out == NULL || descriptor_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "share_out or descriptor_out is NULL");
    KVT_TRY(side_enter(side));
    KVT_TRY(event_take(side, &event));
    env = event->watch->env;
    status = env->memory->page_make(env->memory_context, &event->page);
    if (status == KVT_OK) {
        struct process_words *words = words_of(event);

        words->magic = PROCESS_WORDS_MAGIC;
        words->version = PROCESS_WORDS_VERSION;
        env->random->fill(env->random_context, &words->number, sizeof(words->number));
        status = event_answer(event, event->device->ops->event_create(event->device, &event->done));
    }
    KVT_TRY(event_publish(event, status));
    *share_out = (struct kvt_share){.kind = KVT_SHARE_EVENT, .number = words_of(event)->number};
    share_seal(share_out);
    *descriptor_out = event->page.descriptor;
    *event_out = event;
    return KVT_OK;
}

static enum kvt_status
words_check(const struct kvt_shared_event *event, const struct kvt_share *share)
{
    const struct process_words *words = words_of(event);

    if (words->magic != PROCESS_WORDS_MAGIC)
        return failure_set(KVT_E_INVAL, 0, "the descriptor stands for no event");
    if (words->version != PROCESS_WORDS_VERSION)
        return failure_set(KVT_E_FORMAT, 0, "the event is of version %u", words->version);
    if (words->number != share->number)
        return failure_set(KVT_E_INVAL, 0, "the descriptor stands for another event");
    return KVT_OK;
}

enum kvt_status
kvt_shared_event_open(const struct kvt_side *side, const struct kvt_share *share, int descriptor,
    kvt_shared_event **event_out)
{
    struct kvt_shared_event *event;
    const struct kvt_env *env;
    enum kvt_status status;

    if (event_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "event_out is NULL");
    *event_out = NULL;
    KVT_TRY(side_enter(side));
    KVT_TRY(share_check(share, KVT_SHARE_EVENT));
    KVT_TRY(event_take(side, &event));
    env = event->watch->env;
    status = env->memory->page_adopt(env->memory_context, descriptor, &event->page);
    if (status == KVT_OK)
        status = words_check(event, share);
    KVT_TRY(event_publish(event, status));
    *event_out = event;
    return KVT_OK;
}

/* --- 4. Recording and waiting ----------------------------------------------------------------- */

/* The record lock is held. */
static enum kvt_status
record_queue(struct kvt_shared_event *event, void *stream)
{
    const struct kvt_device_ops *ops = event->device->ops;
    struct process_words *words = words_of(event);
    uint64_t number = queued_of(event) + 1;

    /* Two streams could write their numbers in the wrong order. */
    if (stream != event->stream && number > 1) {
        enum kvt_status status = event->is_unsure ? KVT_LATE : event_await(event, 0);

        if (status == KVT_LATE)
            return failure_set(KVT_E_STATE, 0,
                "the record before this one, on another stream, has not been reached");
        KVT_TRY(status);
    }
    KVT_TRY(ops->share->word_write(event->device, stream, &words->reached, number));
    atomic_store_explicit(&event->queued, number, memory_order_relaxed);
    event->stream = stream;
    event->is_unsure = true;
    KVT_TRY(ops->event_record(event->device, event->done, stream));
    event->is_unsure = false;
    /* Release: who hears of the record by another way finds it here. */
    atomic_store_explicit(&words->recorded, number, memory_order_release);
    return KVT_OK;
}

enum kvt_status
kvt_shared_event_record(kvt_shared_event *event, void *stream)
{
    enum kvt_status status;

    KVT_TRY(event_enter(event));
    if (!is_maker(event))
        return failure_set(KVT_E_INVAL, 0, "the event is recorded by the process that made it");
    KVT_TRY(device_stream_keep_check(stream));
    (void)pthread_mutex_lock(&event->record_lock);
    status = record_queue(event, stream);
    (void)pthread_mutex_unlock(&event->record_lock);
    return event_answer(event, status);
}

/* A wait of a stream. */
struct stream_wait {
    uint64_t record, number; /* The event's wait_count. */
    uint64_t waited;         /* The event's, before. */
};

/* KVT_LATE: a stream may wait for the record, and the watch looks after it from now on. */
static enum kvt_status
wait_begin(struct kvt_shared_event *event, struct stream_wait *wait_out)
{
    struct process_watch *watch = event->watch;
    uint64_t record = record_of(event);
    enum kvt_status status = event_look(event, record);

    if (status != KVT_LATE)
        return status;
    (void)pthread_mutex_lock(&watch->lock);
    status = watch_start(watch);
    if (status == KVT_OK) {
        *wait_out = (struct stream_wait){
            .record = record, .number = ++event->wait_count, .waited = event->waited};
        event->waited = record > event->waited ? record : event->waited;
        env_wake(watch->env, watch->task);
    }
    (void)pthread_mutex_unlock(&watch->lock);
    return status == KVT_OK ? KVT_LATE : status;
}

/* No stream waits for it after all: others' waits are not to end for its sake. Whether one that
 * began meanwhile, perhaps for the same record, does wait is not known here. */
static void
wait_undo(struct kvt_shared_event *event, const struct stream_wait *wait)
{
    (void)pthread_mutex_lock(&event->watch->lock);
    if (event->wait_count == wait->number)
        event->waited = wait->waited;
    (void)pthread_mutex_unlock(&event->watch->lock);
}

enum kvt_status
kvt_shared_event_stream_wait(kvt_shared_event *event, void *stream)
{
    struct stream_wait wait = {0};
    enum kvt_status status;

    KVT_TRY(event_enter(event));
    if (stream == NULL)
        return failure_set(KVT_E_INVAL, 0, "stream is NULL: the default stream is refused");
    if (is_maker(event))
        return event_answer(
            event, event->device->ops->stream_wait(event->device, stream, event->done));
    status = wait_begin(event, &wait);
    /* Without a lock: it blocks when the stream is full, perhaps of waits that the watch ends. */
    if (status == KVT_LATE) {
        status = event->device->ops->share->word_wait(
            event->device, stream, &words_of(event)->reached, wait.record);
        if (status != KVT_OK)
            wait_undo(event, &wait);
    }
    return event_answer(event, status);
}

enum kvt_status
kvt_shared_event_wait(kvt_shared_event *event, uint64_t timeout_ns)
{
    KVT_TRY(event_enter(event));
    return event_await(event, env_until(event->watch->env, timeout_ns));
}

/* --- 5. The end ------------------------------------------------------------------------------- */

enum kvt_status
kvt_shared_event_close(kvt_shared_event *event)
{
    struct kvt_shared_event **link;

    if (event == NULL)
        return KVT_OK;
    KVT_TRY(event_enter(event));
    if (is_maker(event)) {
        enum kvt_status status = event_await(event, 0);

        if (status == KVT_LATE)
            return failure_set(KVT_E_STATE, 0, "the last record of the event has not been reached");
        if (status != KVT_E_GPU)
            KVT_TRY(status);
    }
    (void)pthread_mutex_lock(&event->watch->lock);
    link = &event->watch->first;
    while (*link != event)
        link = &(*link)->next;
    *link = event->next;
    event->watch->count--;
    (void)pthread_mutex_unlock(&event->watch->lock);
    event_free(event);
    return KVT_OK;
}
