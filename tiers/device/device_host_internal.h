/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_host_internal.h - what the files of the emulation share: devices, streams, their work.
 *
 * Threads   one mutex per device guards everything that is not noted otherwise. It is held while
 *           one step of a copy moves its bytes (at most COPY_STEP_BYTES), so that work which was
 *           given up never touches memory again; never while a launch runs.
 *
 * Order     every copy and launch has a number in its stream. A clock is a number for each stream:
 *           "all work up to these". A stream's clock says what its next work is ordered behind; a
 *           record takes it, a wait adds the record's. So "is this copy ordered behind that one",
 *           and "which copies does this event vouch for", are one comparison.
 */
#ifndef KVT_TIERS_DEVICE_HOST_INTERNAL_H
#define KVT_TIERS_DEVICE_HOST_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "device_host.h"
#include "device_ranges.h"
#include "device_shared.h"
#include "env.h"
#include "rng.h"

enum {
    COPY_STEP_BYTES = 128 * 1024,
    LAUNCH_USES_MAX = 4,
};

/* The number of the last work of each stream that is meant. */
struct host_clock {
    uint64_t sequence[DEVICE_HOST_STREAMS_MAX];
};

struct host_piece {
    uint8_t *target; /* Addresses that the process can use, not those of the device. */
    const uint8_t *source;
    uint64_t size;
    bool is_shaded;     /* The target is poisoned for AddressSanitizer. */
    bool is_poison_due; /* The target is filled with poison when the copy begins. */
};

/* The pieces of one copy. */
struct host_batch {
    struct host_batch *shaded_next; /* In device->shaded. */
    uint32_t reference_count;       /* The work, and device->shaded. */
    uint32_t stream_index;
    uint64_t sequence;
    uint64_t size; /* Of all pieces. */
    uint32_t piece_count;
    uint32_t piece_at;  /* What is copied next... */
    uint64_t offset_at; /* ...from here in it. */
    bool is_begun;
    bool is_given_up; /* Its memory is gone: nothing of it may be touched. */
    struct host_piece pieces[];
};

enum host_work_kind {
    HOST_WORK_COPY,
    HOST_WORK_LAUNCH,
    HOST_WORK_RECORD,
    HOST_WORK_WAIT,
    HOST_WORK_WORD_WRITE,
    HOST_WORK_WORD_WAIT,
};

struct host_launch {
    void (*run)(void *context, void *memory);
    void *context;
    uint8_t *memory;
    struct device_range uses[LAUNCH_USES_MAX]; /* Memory that it may read or write. */
    uint32_t use_count;
    bool is_running;
    bool is_given_up;
    void *owned; /* Freed with the work. NULL: nothing. */
    size_t owned_bytes;
};

/* A word in memory of the host, which may be gone when the device is lost. */
struct host_word {
    void *address; /* _Atomic uint64_t, which only grows; not is_wide: _Atomic uint32_t, a wait. */
    uint64_t value;
    bool is_wide;
};

struct host_work {
    struct host_work *next;
    enum host_work_kind kind;
    bool has_due;
    uint64_t due_ns;            /* Not before this; when has_due. */
    uint64_t sequence;          /* COPY, LAUNCH */
    struct host_batch *batch;   /* COPY */
    struct host_record *record; /* RECORD, WAIT */
    struct host_launch launch;  /* LAUNCH */
    struct host_word word;      /* WORD_WRITE, WORD_WAIT */
};

/* One recording of an event. */
struct host_record {
    struct host_work work;    /* In its stream's queue until it is reached. */
    uint32_t reference_count; /* The event, the queue, and those who wait for it. */
    bool is_reached;
    bool is_seen;     /* event_query() said so. */
    uint64_t seen_ns; /* When event_query() will say so; once it is reached. */
    struct host_clock clock;
};

struct host_event {
    struct host_record *record; /* The last one; at first one that is reached and seen. */
};

struct host_stream {
    struct device_host *device; /* Set at create, then constant. */
    uint32_t index;             /* Set at create, then constant. */
    struct task *task;          /* NULL: stopped, nobody may wake it. */
    struct host_work *first;    /* What is being done, or next. */
    struct host_work *last;
    struct host_clock clock; /* What the next work is ordered behind. */
    uint64_t seen_ns_min;    /* No later record of this stream is seen earlier. */
    struct rng rng;          /* Of the one who steps. */
};

struct device_host {
    struct device device;              /* First. */
    struct kvt_env env;                /* Set at open, then constant. */
    struct device_host_config *config; /* NULL: all zero. */
    uint32_t ordinal;
    uint64_t delay_ns_max;
    uint64_t memory_bytes;
    _Atomic bool is_lost; /* Relaxed: seeing it late is as if the device were lost later. */

    pthread_mutex_t mutex;
    struct gate progress; /* Posted when a work is done. */
    bool is_closing;      /* Delays are over. */
    uint64_t used_bytes;  /* Of memory_bytes. */
    struct device_ranges ranges;
    struct device_ranges foreign;                         /* Taken by device_host_memory_take(). */
    struct device_shared *shared;                         /* Slabs of `ranges`. */
    struct host_stream *streams[DEVICE_HOST_STREAMS_MAX]; /* First the lanes'. */
    uint64_t sequences[DEVICE_HOST_STREAMS_MAX]; /* Of the last work; outlive the streams. */
    struct host_batch *shaded;                   /* Batches that AddressSanitizer guards. */
};

static inline struct device_host *
device_host_of(struct device *device)
{
    return (struct device_host *)device;
}

static inline void
device_host_lock(struct device_host *device)
{
    (void)pthread_mutex_lock(&device->mutex);
}

static inline void
device_host_unlock(struct device_host *device)
{
    (void)pthread_mutex_unlock(&device->mutex);
}

/* Addresses that the process can use. */
static inline void
host_launch_use(struct host_launch *launch, uint64_t start, uint64_t size)
{
    launch->uses[launch->use_count++] = (struct device_range){start, size, DEVICE_RANGE_SLAB};
}

/* device_host_call - count a call; what it must fail with, or KVT_OK. Without the mutex. */
enum kvt_status device_host_call(struct device_host *device);

/* --- device_host_memory.c: what stands in struct kvt_device_ops ------------------------------- */

enum kvt_status device_host_slab_take(struct device *device, uint64_t size, void **address_out);
void device_host_slab_put(struct device *device, void *address, uint64_t size);
enum kvt_status device_host_memory_register(struct device *device, void *memory, uint64_t size);
void device_host_memory_unregister(struct device *device, void *memory, uint64_t size);
enum kvt_status device_host_host_register(struct device *device, void *memory, uint64_t size);
enum kvt_status device_host_host_unregister(struct device *device, void *memory, uint64_t size);
void device_host_host_abandon(struct device *device, void *memory, uint64_t size);
enum kvt_status device_host_peer_register(
    struct device *device, struct device *other, void *slab, uint64_t size, bool *is_faster_out);
void device_host_peer_unregister(struct device *device, void *slab, uint64_t size);

/* Memory of a slab of the device, which the caller unmaps; false: there is no such slab. */
bool host_slab_leave(struct device_host *device, struct device_ranges *ranges,
    const struct device_range *range, void **memory_out);

/* --- device_host_word.c: without the mutex ---------------------------------------------------- */

/* A work of that kind; KVT_E_INVAL: no such stream, no such word. */
enum kvt_status host_word_queue(
    struct device *device, void *stream, enum host_work_kind kind, struct host_word word);
enum kvt_status device_host_stream_wait_word(
    struct device *device, void *stream, const _Atomic uint32_t *word, uint32_t value);

/* --- device_host_share.c ---------------------------------------------------------------------- */

extern const struct device_share_ops device_host_share_ops;

/* Give a slab back that is shared or adopted; false: it is none of these. */
bool host_shared_put(struct device_host *device, const void *address);

/* --- device_host_gather.c --------------------------------------------------------------------- */

enum kvt_status device_host_gather(
    struct device *device, void *stream, const struct device_gather *gather);

/* --- device_host_stream.c: streams, their work; all under the mutex but create and close ------ */

enum kvt_status host_stream_create(struct device_host *device, struct host_stream **stream_out);
/* Stop all streams, do what they still have to do, and free them. */
void host_streams_close(struct device_host *device);
/* NULL, and a sentence: it is no stream of this device. */
struct host_stream *host_stream_find(struct device_host *device, const void *stream);
/* A work to be filled in and pushed; NULL, and a sentence. Without the mutex. */
struct host_work *host_work_take(struct device_host *device, enum host_work_kind kind);
void host_work_put(struct device_host *device, struct host_work *work);
void host_stream_push(struct host_stream *stream, struct host_work *work);
/* Reached and seen, with one reference; NULL, and a sentence. Without the mutex. */
struct host_record *host_record_take(struct device_host *device);
void host_record_release(struct device_host *device, struct host_record *record);
/* Is there unfinished work that the next one of `stream` is ordered behind, and that uses this? */
bool host_stream_has_use(const struct host_stream *stream, const struct device_range *range);
/* Give up copies and launches in flight that use this memory; how many there were. Waits for a
 * launch that is running. */
uint32_t host_works_give_up(struct device_host *device, const struct device_range *range);

/* --- device_host_copy.c: batches; all under the mutex but create ------------------------------ */

/* memcpy(), and the host's side may be shaded. Without the mutex. */
void host_bytes_move(uint8_t *target, const uint8_t *source, uint64_t size);
/* Pieces as they were given, checked against each other; one reference. */
enum kvt_status host_batch_create(struct device_host *device, const struct device_piece *pieces,
    uint32_t count, struct host_batch **batch_out);
/* Turn the caller's addresses into the process's; each end lies in one slab or registration. */
enum kvt_status host_batch_resolve(struct device_host *device, struct host_batch *batch);
/* Before it is pushed on `stream`: poison its targets. */
void host_batch_poison(struct host_stream *stream, struct host_batch *batch);
/* One step of copying; true: that was the last. */
bool host_batch_step(struct host_batch *batch, struct rng *rng);
bool host_batch_uses(const struct host_batch *batch, const struct device_range *range);
void host_batch_release(struct device_host *device, struct host_batch *batch);
/* The calling thread has seen all work up to `clock` done. */
void host_shades_release(struct device_host *device, const struct host_clock *clock);
/* Host memory that leaves the device. */
void host_shades_forget(struct device_host *device, const struct device_range *range);

#endif /* KVT_TIERS_DEVICE_HOST_INTERNAL_H */
