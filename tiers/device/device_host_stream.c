/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_host_stream.c - streams of the emulation: actors that do the queued work, late.
 *
 * Owns      the queue of each stream, and the records of events.
 * Threads   device_host_internal.h. A stream is stepped by its task, and by whoever closes the
 *           device, after the task has ended.
 *
 * The life of a work: pushed; it becomes the first; a copy or a launch then gets a moment before
 * which it does nothing, and a copy another one after each step; when it is done it is popped. A
 * wait at the head of its queue sleeps until the stream that reaches the record wakes it.
 *
 * No stream waits for ever for a record: what is waited for was queued before the wait was. A word
 * in memory of the host is looked at again and again: nobody tells who waits for it.
 */
#include <inttypes.h>
#include <string.h>

#include "bytes.h"
#include "device_host_internal.h"
#include "device_share.h"
#include "failure.h"

static const uint64_t WORD_POLL_NS = 20000;

/* --- 1. Work ---------------------------------------------------------------------------------- */

struct host_work *
host_work_take(struct device_host *device, enum host_work_kind kind)
{
    struct host_work *work = env_take(&device->env, sizeof(*work));

    if (work == NULL) {
        (void)failure_set(KVT_E_NOMEM, 0, "No memory for the work of a stream.");
        return NULL;
    }
    work->kind = kind;
    return work;
}

void
host_work_put(struct device_host *device, struct host_work *work)
{
    if (work == NULL)
        return;
    if (work->kind == HOST_WORK_RECORD) {
        host_record_release(device, work->record); /* It is in that. */
        return;
    }
    host_batch_release(device, work->batch);
    host_record_release(device, work->record);
    env_put(&device->env, work->launch.owned, work->launch.owned_bytes);
    env_put(&device->env, work, sizeof(*work));
}

struct host_record *
host_record_take(struct device_host *device)
{
    struct host_record *record = env_take(&device->env, sizeof(*record));

    if (record == NULL) {
        (void)failure_set(KVT_E_NOMEM, 0, "No memory for the record of an event.");
        return NULL;
    }
    record->work.kind = HOST_WORK_RECORD;
    record->work.record = record;
    record->reference_count = 1;
    record->is_reached = record->is_seen = true;
    return record;
}

void
host_record_release(struct device_host *device, struct host_record *record)
{
    if (record != NULL && --record->reference_count == 0)
        env_put(&device->env, record, sizeof(*record));
}

static bool
launch_uses(const struct host_launch *launch, const struct device_range *range)
{
    for (uint32_t i = 0; i < launch->use_count; i++) {
        if (spans_overlap(launch->uses[i].start, launch->uses[i].size, range->start, range->size))
            return true;
    }
    return false;
}

static bool
work_uses(const struct host_work *work, const struct device_range *range)
{
    switch (work->kind) {
    case HOST_WORK_COPY:
        return host_batch_uses(work->batch, range);
    case HOST_WORK_LAUNCH:
        return launch_uses(&work->launch, range);
    case HOST_WORK_WORD_WRITE:
    case HOST_WORK_WORD_WAIT:
        return spans_overlap(address_of(work->word.address),
            work->word.is_wide ? sizeof(uint64_t) : sizeof(uint32_t), range->start, range->size);
    case HOST_WORK_RECORD:
    case HOST_WORK_WAIT:
        break;
    }
    return false;
}

bool
host_stream_has_use(const struct host_stream *stream, const struct device_range *range)
{
    for (uint32_t i = 0; i < DEVICE_HOST_STREAMS_MAX; i++) {
        const struct host_stream *other = stream->device->streams[i];
        const struct host_work *work = other == NULL ? NULL : other->first;

        for (; work != NULL; work = work->next) {
            if (work->sequence <= stream->clock.sequence[i] && work_uses(work, range))
                return true;
        }
    }
    return false;
}

static bool
launch_runs_in(const struct device_host *device, const struct device_range *range)
{
    for (uint32_t i = 0; i < DEVICE_HOST_STREAMS_MAX; i++) {
        const struct host_stream *stream = device->streams[i];
        const struct host_work *work = stream == NULL ? NULL : stream->first;

        if (work != NULL && work->launch.is_running && work_uses(work, range))
            return true;
    }
    return false;
}

/* Sleep until some work is done; the mutex is open meanwhile. */
static void
progress_await(struct device_host *device)
{
    uint32_t seen = atomic_load_explicit(&device->progress.value, memory_order_acquire);

    device_host_unlock(device);
    gate_wait(&device->env, &device->progress, seen, UINT64_MAX);
    device_host_lock(device);
}

uint32_t
host_works_give_up(struct device_host *device, const struct device_range *range)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < DEVICE_HOST_STREAMS_MAX; i++) {
        struct host_stream *stream = device->streams[i];
        struct host_work *work = stream == NULL ? NULL : stream->first;

        for (; work != NULL; work = work->next) {
            if (!work_uses(work, range))
                continue;
            count++;
            work->launch.is_given_up = true;
            if (work->batch != NULL)
                work->batch->is_given_up = true;
        }
    }
    while (launch_runs_in(device, range))
        progress_await(device);
    return count;
}

/* --- 2. The queue of a stream ----------------------------------------------------------------- */

void
host_stream_push(struct host_stream *stream, struct host_work *work)
{
    struct device_host *device = stream->device;

    if (work->kind == HOST_WORK_COPY || work->kind == HOST_WORK_LAUNCH) {
        work->sequence = ++device->sequences[stream->index];
        stream->clock.sequence[stream->index] = work->sequence;
    }
    if (work->batch != NULL) {
        work->batch->sequence = work->sequence;
        work->batch->stream_index = stream->index;
    }
    if (work->kind == HOST_WORK_RECORD)
        work->record->clock = stream->clock;
    if (work->kind == HOST_WORK_WAIT) {
        for (uint32_t i = 0; i < DEVICE_HOST_STREAMS_MAX; i++) {
            if (stream->clock.sequence[i] < work->record->clock.sequence[i])
                stream->clock.sequence[i] = work->record->clock.sequence[i];
        }
    }
    work->next = NULL;
    if (stream->first == NULL)
        stream->first = work;
    else
        stream->last->next = work;
    stream->last = work;
    env_wake(&device->env, stream->task);
}

/* A moment that the seed puts up to the longest delay behind `now_ns`. */
static uint64_t
moment_behind(struct host_stream *stream, uint64_t now_ns)
{
    const struct device_host *device = stream->device;
    uint64_t delay_ns;

    if (device->delay_ns_max == 0 || device->is_closing)
        return now_ns;
    delay_ns = rng_next(&stream->rng) % (device->delay_ns_max + 1);
    return delay_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + delay_ns;
}

static void
waiters_wake(struct device_host *device, const struct host_record *record)
{
    for (uint32_t i = 0; i < DEVICE_HOST_STREAMS_MAX; i++) {
        struct host_stream *stream = device->streams[i];

        if (stream != NULL && stream->task != NULL && stream->first != NULL &&
            stream->first->kind == HOST_WORK_WAIT && stream->first->record == record)
            env_wake(&device->env, stream->task);
    }
}

/* The first work is done. What is seen of a record is never seen before what it is behind. */
static void
stream_pop(struct host_stream *stream, uint64_t now_ns)
{
    struct device_host *device = stream->device;
    struct host_work *work = stream->first;
    struct host_record *record = work->record;
    uint64_t seen_ns = 0;

    if (work->kind == HOST_WORK_RECORD)
        seen_ns = moment_behind(stream, now_ns);
    else if (work->kind == HOST_WORK_WAIT)
        seen_ns = record->seen_ns;
    if (stream->seen_ns_min < seen_ns)
        stream->seen_ns_min = seen_ns;
    stream->first = work->next;
    if (work->kind == HOST_WORK_RECORD) {
        record->seen_ns = stream->seen_ns_min;
        record->is_reached = true;
        waiters_wake(device, record);
    }
    host_work_put(device, work);
    gate_post(&device->env, &device->progress);
}

/* --- 3. Steps --------------------------------------------------------------------------------- */

static bool
word_is_reached(const struct device_host *device, const struct host_word *word)
{
    if (device->is_closing || atomic_load_explicit(&device->is_lost, memory_order_relaxed))
        return true;
    /* Acquire: what was written before the word is seen by the work behind it. */
    if (word->is_wide)
        return device_number_is_reached(
            atomic_load_explicit((const _Atomic uint64_t *)word->address, memory_order_acquire),
            word->value);
    return device_word_is_reached(
        atomic_load_explicit((const _Atomic uint32_t *)word->address, memory_order_acquire),
        (uint32_t)word->value);
}

/* May the first work do its next step? If not, *next_ns_out says when to look again. */
static bool
work_is_ready(struct host_stream *stream, uint64_t now_ns, uint64_t *next_ns_out)
{
    struct host_work *work = stream->first;

    switch (work->kind) {
    case HOST_WORK_RECORD:
        return true;
    case HOST_WORK_WAIT:
        return work->record->is_reached;
    case HOST_WORK_WORD_WAIT:
        if (word_is_reached(stream->device, &work->word))
            return true;
        *next_ns_out = moment_behind(stream, now_ns + WORD_POLL_NS);
        return false;
    case HOST_WORK_COPY:
    case HOST_WORK_LAUNCH:
    case HOST_WORK_WORD_WRITE:
        break;
    }
    if (!work->has_due) {
        work->due_ns = moment_behind(stream, now_ns);
        work->has_due = true;
    }
    if (now_ns >= work->due_ns || stream->device->is_closing)
        return true;
    *next_ns_out = work->due_ns;
    return false;
}

/* The mutex is open while it runs: it is the caller's code. */
static void
launch_step(struct device_host *device, struct host_launch *launch)
{
    if (launch->is_given_up || atomic_load_explicit(&device->is_lost, memory_order_relaxed))
        return;
    launch->is_running = true;
    device_host_unlock(device);
    launch->run(launch->context, launch->memory);
    device_host_lock(device);
    launch->is_running = false;
}

static void
word_set(struct device_host *device, const struct host_word *word)
{
    /* Release: who sees the number, in whichever process, sees what was copied before. */
    if (!atomic_load_explicit(&device->is_lost, memory_order_relaxed))
        atomic_store_explicit((_Atomic uint64_t *)word->address, word->value, memory_order_release);
}

/* True: the first work is done. */
static bool
work_step(struct host_stream *stream)
{
    struct host_work *work = stream->first;

    switch (work->kind) {
    case HOST_WORK_RECORD:
    case HOST_WORK_WAIT:
    case HOST_WORK_WORD_WAIT:
        return true;
    case HOST_WORK_WORD_WRITE:
        word_set(stream->device, &work->word);
        return true;
    case HOST_WORK_LAUNCH:
        launch_step(stream->device, &work->launch);
        return true;
    case HOST_WORK_COPY:
        break;
    }
    /* What a lost device still does, nobody knows. */
    if (atomic_load_explicit(&stream->device->is_lost, memory_order_relaxed) &&
        rng_below(&stream->rng, 2) == 0)
        return true;
    return host_batch_step(work->batch, &stream->rng);
}

static bool
stream_step(void *context, uint64_t now_ns, uint64_t *next_ns_out)
{
    struct host_stream *stream = context;
    bool is_ready = false;

    *next_ns_out = UINT64_MAX;
    device_host_lock(stream->device);
    if (stream->first != NULL)
        is_ready = work_is_ready(stream, now_ns, next_ns_out);
    if (is_ready) {
        if (work_step(stream))
            stream_pop(stream, now_ns);
        else
            stream->first->due_ns = moment_behind(stream, now_ns);
    }
    device_host_unlock(stream->device);
    return is_ready;
}

/* --- 4. Streams ------------------------------------------------------------------------------- */

/* A generator for each stream, so that on threads too each makes the same choices. */
static void
stream_rng_seed(struct host_stream *stream)
{
    const struct device_host *device = stream->device;
    struct rng rng = {device->config == NULL ? 0 : device->config->seed};

    for (uint32_t i = 0; i <= device->ordinal; i++)
        stream->rng.state = rng_next(&rng);
    rng = stream->rng;
    for (uint32_t i = 0; i <= stream->index; i++)
        stream->rng.state = rng_next(&rng);
}

static bool
stream_place(struct host_stream *stream)
{
    struct device_host *device = stream->device;

    for (uint32_t i = 0; i < DEVICE_HOST_STREAMS_MAX; i++) {
        if (device->streams[i] != NULL)
            continue;
        stream->index = i;
        stream_rng_seed(stream);
        device->streams[i] = stream;
        return true;
    }
    return false;
}

/* Its task ends, and nobody can wake it any more. */
static void
stream_stop(struct host_stream *stream)
{
    struct device_host *device = stream->device;
    struct task *task = stream->task;

    stream->task = NULL;
    device_host_unlock(device);
    device->env.sched->stop(device->env.sched_context, task);
    device_host_lock(device);
}

enum kvt_status
host_stream_create(struct device_host *device, struct host_stream **stream_out)
{
    struct host_stream *stream = env_take(&device->env, sizeof(*stream));
    struct actor actor = {.name = "kvt-stream", .step = stream_step, .context = stream};
    enum kvt_status status = KVT_OK;
    bool is_placed;

    *stream_out = NULL;
    if (stream == NULL)
        return failure_set(KVT_E_NOMEM, 0, "No memory for a stream.");
    stream->device = device;
    device_host_lock(device);
    is_placed = stream_place(stream);
    if (!is_placed) {
        status = failure_set(KVT_E_BUSY, 0, "The emulated device has %d streams, and no more.",
            DEVICE_HOST_STREAMS_MAX);
    } else {
        /* Under the mutex: the stream is found by others now, who would wake its task. */
        status = device->env.sched->start(device->env.sched_context, &actor, &stream->task);
        if (status != KVT_OK)
            device->streams[stream->index] = NULL;
    }
    device_host_unlock(device);
    if (status != KVT_OK)
        env_put(&device->env, stream, sizeof(*stream));
    else
        *stream_out = stream;
    return status;
}

struct host_stream *
host_stream_find(struct device_host *device, const void *stream)
{
    for (uint32_t i = 0; i < DEVICE_HOST_STREAMS_MAX; i++) {
        if (stream != NULL && device->streams[i] == stream)
            return device->streams[i];
    }
    (void)failure_set(KVT_E_INVAL, 0, "%p is no stream of the emulated device %" PRIu32 ".", stream,
        device->ordinal);
    return NULL;
}

void
device_host_stream_destroy(struct device *base, void *handle)
{
    struct device_host *device = (struct device_host *)base;
    struct host_stream *stream;

    if (handle == NULL)
        return;
    device_host_lock(device);
    stream = host_stream_find(device, handle);
    /* The lanes' streams go with the device. */
    KVT_ASSERT(stream != NULL && stream->index >= DEVICE_LANE_COUNT);
    if (stream == NULL || stream->index < DEVICE_LANE_COUNT) {
        device_host_unlock(device);
        return;
    }
    while (stream->first != NULL)
        progress_await(device);
    stream_stop(stream);
    device->streams[stream->index] = NULL;
    device_host_unlock(device);
    env_put(&device->env, stream, sizeof(*stream));
}

void
host_streams_close(struct device_host *device)
{
    bool is_busy = true;

    device_host_lock(device);
    device->is_closing = true;
    for (uint32_t i = 0; i < DEVICE_HOST_STREAMS_MAX; i++) {
        if (device->streams[i] != NULL)
            stream_stop(device->streams[i]);
    }
    device_host_unlock(device);
    /* What is left is done here, stream by stream, as far as each one comes. */
    while (is_busy) {
        is_busy = false;
        for (uint32_t i = 0; i < DEVICE_HOST_STREAMS_MAX; i++) {
            uint64_t next_ns;

            if (device->streams[i] != NULL &&
                stream_step(device->streams[i], env_now(&device->env), &next_ns))
                is_busy = true;
        }
    }
    for (uint32_t i = 0; i < DEVICE_HOST_STREAMS_MAX; i++) {
        struct host_stream *stream = device->streams[i];

        if (stream == NULL)
            continue;
        KVT_ASSERT(stream->first == NULL);
        device->streams[i] = NULL;
        env_put(&device->env, stream, sizeof(*stream));
    }
}
