/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process_event.c - events that several processes see, and the end of waits for dead ones
 * (processes.h).
 */
#include "processes.h"
#include "store_internal.h"

/* Above every record, and so that the difference of both is positive: CUDA compares by that. */
#define REACHED_ALL ((uint64_t)INT64_MAX)

static const uint64_t WATCH_NS = 20 * 1000 * 1000; /* Between two looks at makers. */
static const uint64_t LOOK_NS_MIN = 10 * 1000, LOOK_NS_MAX = 1000 * 1000;

struct kvt_shared_event {
    struct kvt_shared_event *next; /* In the watch. */
    struct process_watch *watch;
    kvt_store *store; /* Or the import. */
    kvt_import *import;
    uint32_t device_number; /* Of the store. */
    struct device *device;
    struct shared_page page;
    bool is_known;      /* The device knows the page. */
    bool is_waited_for; /* By a stream, which must not wait for ever. guarded by: watch->lock */
    void *stream;       /* Of the last record. guarded by: watch->lock */
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

/* KVT_OK, KVT_LATE, KVT_CANCELLED. */
static enum kvt_status
event_look(const struct kvt_shared_event *event, uint64_t record)
{
    /* First, so that the last word of a maker that goes now is read behind it. */
    bool is_gone = maker_is_gone(event);
    /* Acquire: what was copied before it was written is seen by the calling thread. */
    bool is_reached = atomic_load_explicit(reached_of(event), memory_order_acquire) >= record;

    if (atomic_load_explicit(&words_of(event)->is_broken, memory_order_relaxed) != 0)
        return failure_set(
            KVT_CANCELLED, 0, "the maker of the event is gone, and it will never be reached");
    if (is_reached)
        return KVT_OK;
    if (!is_gone)
        return KVT_LATE;
    event_break(event);
    return failure_set(
        KVT_CANCELLED, 0, "the maker of the event is gone, and it will never be reached");
}

static uint64_t
record_of(const struct kvt_shared_event *event)
{
    return atomic_load_explicit(&words_of(event)->recorded, memory_order_acquire);
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

/* True: some stream may still wait. */
static bool
event_watch(struct kvt_shared_event *event)
{
    enum kvt_status status;

    if (!event->is_waited_for)
        return false;
    status = event_look(event, record_of(event));
    if (status == KVT_CANCELLED)
        event_break(event);
    event->is_waited_for = status != KVT_OK;
    return event->is_waited_for;
}

static bool
watch_step(void *context, uint64_t now_ns, uint64_t *next_ns_out)
{
    struct process_watch *watch = context;

    *next_ns_out = UINT64_MAX;
    (void)pthread_mutex_lock(&watch->lock);
    for (struct kvt_shared_event *event = watch->first; event != NULL; event = event->next) {
        if (event_watch(event))
            *next_ns_out = now_ns + WATCH_NS;
    }
    (void)pthread_mutex_unlock(&watch->lock);
    return false;
}

/* The lock is held. */
static enum kvt_status
watch_start(struct process_watch *watch)
{
    const struct actor actor = {.name = "kvt-processes", .step = watch_step, .context = watch};

    if (watch->task != NULL)
        return KVT_OK;
    return watch->env->sched->start(watch->env->sched_context, &actor, &watch->task);
}

static void
event_free(struct kvt_shared_event *event)
{
    const struct kvt_env *env = event->watch->env;

    if (event->is_known)
        event->device->ops->host_unregister(event->device, event->page.memory, PAGE_BYTES);
    if (event->page.memory != NULL)
        env->memory->page_end(env->memory_context, &event->page);
    env_put(env, event, sizeof(*event));
}

void
process_watch_close(struct process_watch *watch)
{
    if (watch->task != NULL)
        watch->env->sched->stop(watch->env->sched_context, watch->task);
    watch->task = NULL;
    while (watch->first != NULL) {
        struct kvt_shared_event *event = watch->first;

        watch->first = event->next;
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

/* The lock is held. */
static enum kvt_status
record_queue(struct kvt_shared_event *event, void *stream)
{
    struct process_words *words = words_of(event);
    uint64_t last = record_of(event);

    /* Two streams could write their numbers in the wrong order. */
    if (stream != event->stream &&
        atomic_load_explicit(reached_of(event), memory_order_acquire) < last)
        return failure_set(
            KVT_E_STATE, 0, "the record before this one, on another stream, has not been reached");
    KVT_TRY(
        event->device->ops->share->word_write(event->device, stream, &words->reached, last + 1));
    event->stream = stream;
    /* Release: who hears of the record by another way finds it here. */
    atomic_store_explicit(&words->recorded, last + 1, memory_order_release);
    return KVT_OK;
}

enum kvt_status
kvt_shared_event_record(kvt_shared_event *event, void *stream)
{
    enum kvt_status status;

    KVT_TRY(event_enter(event));
    if (!is_maker(event))
        return failure_set(KVT_E_INVAL, 0, "the event is recorded by the process that made it");
    if (stream == NULL)
        return failure_set(KVT_E_INVAL, 0, "stream is NULL: the default stream is refused");
    (void)pthread_mutex_lock(&event->watch->lock);
    status = record_queue(event, stream);
    (void)pthread_mutex_unlock(&event->watch->lock);
    return event_answer(event, status);
}

/* The lock is held. */
static enum kvt_status
wait_queue(struct kvt_shared_event *event, void *stream)
{
    uint64_t record = record_of(event);
    enum kvt_status status = event_look(event, record);

    if (status != KVT_LATE)
        return status;
    KVT_TRY(watch_start(event->watch));
    KVT_TRY(event->device->ops->share->word_wait(
        event->device, stream, &words_of(event)->reached, record));
    event->is_waited_for = true;
    env_wake(event->watch->env, event->watch->task);
    return KVT_OK;
}

enum kvt_status
kvt_shared_event_stream_wait(kvt_shared_event *event, void *stream)
{
    enum kvt_status status;

    KVT_TRY(event_enter(event));
    if (stream == NULL)
        return failure_set(KVT_E_INVAL, 0, "stream is NULL: the default stream is refused");
    (void)pthread_mutex_lock(&event->watch->lock);
    status = wait_queue(event, stream);
    (void)pthread_mutex_unlock(&event->watch->lock);
    return event_answer(event, status);
}

enum kvt_status
kvt_shared_event_wait(kvt_shared_event *event, uint64_t timeout_ns)
{
    struct gate gate = {0};
    uint64_t look_ns = LOOK_NS_MIN;
    uint64_t record, until_ns;
    const struct kvt_env *env;
    enum kvt_status status;

    KVT_TRY(event_enter(event));
    env = event->watch->env;
    record = record_of(event);
    until_ns = env_until(env, timeout_ns);
    while ((status = event_look(event, record)) == KVT_LATE) {
        uint64_t look_until_ns = env_until(env, look_ns);

        if (env_now(env) >= until_ns)
            return failure_set(KVT_LATE, 0, "the event was not reached in time");
        gate_wait(env, &gate, 0, look_until_ns < until_ns ? look_until_ns : until_ns);
        look_ns = look_ns * 2 < LOOK_NS_MAX ? look_ns * 2 : LOOK_NS_MAX;
    }
    return status;
}

/* --- 5. The end ------------------------------------------------------------------------------- */

static bool
device_is_gone(const struct kvt_shared_event *event)
{
    struct device_info info;

    return event_answer(event, event->device->ops->info(event->device, &info)) == KVT_E_GPU;
}

enum kvt_status
kvt_shared_event_close(kvt_shared_event *event)
{
    struct kvt_shared_event **link;

    if (event == NULL)
        return KVT_OK;
    KVT_TRY(event_enter(event));
    if (is_maker(event) && event_look(event, record_of(event)) == KVT_LATE &&
        !device_is_gone(event))
        return failure_set(KVT_E_STATE, 0, "the last record of the event has not been reached");
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
