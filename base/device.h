/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.h - an accelerator behind a vtable: its memory, streams, events and batched copies.
 *
 * Implementations: tiers/device/device_cuda.c (the CUDA runtime) and tiers/device/device_host.c
 * (the emulation: ordinary memory, streams that are late, for machines without a GPU and for
 * tests). Code above tiers/device knows no other name of either.
 *
 * Words
 *   stream   work on one stream runs in the order of its submission; streams run beside each other.
 *            A stream is a `void *`: one of the device's own (device_stream) or a caller's (a
 *            cudaStream_t, or an emulation's stream). The legacy default stream (NULL) is refused.
 *   event    a point in a stream's work: recorded at its end, reached when all that was submitted
 *            to the stream before has been done. A `void *`: a cudaEvent_t, or an emulation's. An
 *            event that was never recorded counts as reached. It may be recorded again; then only
 *            the last record counts, but a wait keeps to the record that it was asked for.
 *   piece    one contiguous run of bytes to be copied. Either end may be a slab of the device, or
 *            other memory of it or of the host that was registered with it; its source also a slab
 *            of a peer, another device, that was registered with it. Pieces of one call may
 *            run in any order: what one of them writes, no other may read or write (the emulation
 *            refuses it).
 *
 * What a copy reads may not change, and what it writes may not be touched or relied on, from the
 * submission until an event that was recorded behind it has been reached. Work of the device that
 * is ordered behind the copy (on its stream, or on one that waits for such an event) may use both.
 *
 * Errors    KVT_E_GPU: the device is lost (an error that stays: every later call fails alike);
 *           nothing is known about transfers in flight. Events go on where streams of callers do:
 *           of them it means that no stream of the device goes on. KVT_E_INVAL: a pointer, stream
 *           or event that is not the device's, which it outlives (CUDA believes a caller's stream
 *           and event, and finds many of those that were destroyed, not all).
 *           KVT_E_NOMEM: memory of the device or of the host.
 * Threads   any, unless a function says otherwise. No call waits for transfers but device close,
 *           and host_unregister() of a lost device.
 */
#ifndef KVT_BASE_DEVICE_H
#define KVT_BASE_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kvtier/status.h"

struct device_share_ops;
struct kvt_env;

/* What CUDA has for streams that have no handle. */
enum {
    DEVICE_STREAM_LEGACY = 1,     /* cudaStreamLegacy: as NULL. */
    DEVICE_STREAM_PER_THREAD = 2, /* cudaStreamPerThread: in each thread another one. */
};

enum device_lane {
    DEVICE_IN,  /* Host to device. */
    DEVICE_OUT, /* Device to host. */
    DEVICE_LANE_COUNT,
};

struct device_piece {
    void *target;
    const void *source;
    uint64_t size; /* > 0 */
};

struct device_info {
    char name[64]; /* "NVIDIA H200", "emulation". */
    uint64_t memory_bytes;
    uint64_t free_bytes; /* Of it, now. */
};

/* How copies between the host and the device are made. */
struct device_plan {
    /* Of each direction: shorter runs are copied by a kernel, which takes a few of the device's
     * processors from others, when a call has several of them; longer ones, and with 0 all, by the
     * copy engines. */
    uint64_t kernel_below_bytes[DEVICE_LANE_COUNT];
    bool is_measured; /* On this machine; otherwise they are those of another one. */
};

/* Rows of a table by their numbers: row ids[i] becomes the i-th of the target. */
struct device_gather {
    const uint32_t *ids; /* Of the device, or registered. */
    uint64_t count;      /* > 0 */
    /* The table, from one page of 4096 bytes on: memory of the device, or host memory that was
     * registered in one or more runs; rows_per_page rows at the beginning of each page. */
    const void *pages;
    uint32_t row_count; /* Ids are below it. */
    uint32_t rows_per_page;
    uint32_t row_bytes;
    uint32_t value_count; /* 0: rows as they are. Else so many E4M3 numbers a row ... */
    uint32_t scale_count; /* ... and E8M0 scales behind them, to bfloat16. */
    void *target;         /* Of the device, as what follows. */
    /* At a multiple of 8. Gets UINT64_MAX, or which id is the first that is out of range: then
     * nothing is written to the target. */
    uint64_t *verdict;
};

enum device_plan_choice {
    DEVICE_PLAN_KEEP,    /* As it is: what open found. */
    DEVICE_PLAN_ENGINES, /* The processors are left alone. */
    DEVICE_PLAN_MEASURE, /* Try both ways, with 16 MiB, for 200 ms at most. */
};

/* The first member of every implementation. */
struct device {
    const struct kvt_device_ops *ops;
};

struct kvt_device_ops {
    const char *name; /* "cuda", "emulation" */

    /* How many can be opened. KVT_E_UNSUPPORTED: none, and the sentence says why (no driver, no
     * device, a driver that is too old). Makes no context on any device. */
    enum kvt_status (*count)(void *context, uint32_t *count_out);

    /* Open device `ordinal`. Makes its context and the streams of its lanes. */
    enum kvt_status (*open)(
        void *context, const struct kvt_env *env, uint32_t ordinal, struct device **device_out);
    /* Waits for what is in flight (of a lost device as far as that answers), and frees streams;
     * slabs, registrations and events must have been given back. NULL is fine. */
    void (*close)(struct device *device);
    enum kvt_status (*info)(struct device *device, struct device_info *info_out);

    /* Memory of the device, aligned to 2 MiB. Its bytes are undefined, and the host must not touch
     * them but through copies. */
    enum kvt_status (*slab_take)(struct device *device, uint64_t size, void **address_out);
    void (*slab_put)(struct device *device, void *address, uint64_t size);

    /* Let copies use memory of the device that somebody else took (cudaMalloc). Memory that lies in
     * a slab can be used anyway: then this changes nothing. KVT_E_INVAL: it is no memory of this
     * device, or overlaps what was registered. Unregister: no copy of it may be in flight. */
    enum kvt_status (*memory_register)(struct device *device, void *memory, uint64_t size);
    void (*memory_unregister)(struct device *device, void *memory, uint64_t size);

    /* Let copies use host memory at full speed: whole pages, at most 1 GiB in one call. A copy's
     * piece lies in one registration. KVT_E_INVAL: not so; or memory of which another device of the
     * process has registered a part, or more (the same range it may); or that one keeps, as below.
     * It is pinned until the last of them lets go of it. Unregister: no transfer of it may be in
     * flight, unless the device is lost; then it waits for them. KVT_E_GPU: the device does not let
     * go of the memory. It is registered no more, but must stay mapped until the process ends: the
     * device may still use it, and what is mapped there next would be taken for it. */
    enum kvt_status (*host_register)(struct device *device, void *memory, uint64_t size);
    enum kvt_status (*host_unregister)(struct device *device, void *memory, uint64_t size);
    /* Instead of host_unregister() where work of callers' streams may still use the memory: the
     * device knows it no more, but it stays pinned, and the caller never unmaps it. */
    void (*host_abandon)(struct device *device, void *memory, uint64_t size);

    /* Let copies of this device read a slab of `other`, an open device of the same implementation;
     * *is_faster_out: they took less time than copies from host memory that was registered, tried
     * now, briefly. KVT_E_UNSUPPORTED: the two do not reach each other, or have too many peers.
     * KVT_E_INVAL: no such slab. KVT_E_NOMEM. Unregister, before the slab is given back: no copy of
     * it may be in flight. Threads: one device, one call at a time. */
    enum kvt_status (*peer_register)(struct device *device, struct device *other, void *slab,
        uint64_t size, bool *is_faster_out);
    void (*peer_unregister)(struct device *device, void *slab, uint64_t size);

    void *(*stream)(struct device *device, enum device_lane lane); /* The device's own. */

    /* Queue copies on `stream`, 1 or more. An error: none of them was queued, or the device is
     * lost. The pieces are read during the call only. */
    enum kvt_status (*copy)(
        struct device *device, void *stream, const struct device_piece *pieces, uint32_t count);

    /* How copies are made from now on. NULL: there is but one way. To measure, no copy may be in
     * flight or be queued meanwhile; when it cannot be done, nothing changes. KVT_E_GPU. */
    enum kvt_status (*plan)(
        struct device *device, enum device_plan_choice choice, struct device_plan *plan_out);

    /* Queue a gather on `stream`. NULL: there is no such thing. KVT_E_UNSUPPORTED: not in this
     * build. Everything that it names is as what a copy reads and writes. */
    enum kvt_status (*gather)(
        struct device *device, void *stream, const struct device_gather *gather);

    enum kvt_status (*event_create)(struct device *device, void **event_out);
    void (*event_destroy)(struct device *device, void *event); /* NULL is fine. Not waited for. */
    enum kvt_status (*event_record)(struct device *device, void *event, void *stream);
    /* KVT_OK: reached; what the copies before it wrote is visible to the calling thread.
     * KVT_NOT_READY: not yet. */
    enum kvt_status (*event_query)(struct device *device, void *event);
    /* Later work of `stream` waits until `event` is reached (its last record at this moment). */
    enum kvt_status (*stream_wait)(struct device *device, void *stream, void *event);
    /*
     * Later work of `stream` waits until *word is `value`, or one of the 2^31 - 1 that follow it.
     * What was written before a release store of such a value is seen by that work. The word lies
     * in one registration of host memory, and must stay there until the stream has passed.
     *
     * Whoever waits so knows nothing of what will write the word: nothing that has to happen before
     * may be ordered behind this work, on any stream. KVT_E_INVAL: no such word; the stream is
     * being captured. KVT_E_UNSUPPORTED: the device or its driver has no such wait, or another
     * address for the word than the host.
     */
    enum kvt_status (*stream_wait_word)(
        struct device *device, void *stream, const _Atomic uint32_t *word, uint32_t value);

    const struct device_share_ops *share; /* device_share.h */
};

/* device_word_is_reached - what the stream waits for, of a word that was read. */
static inline bool
device_word_is_reached(uint32_t word, uint32_t value)
{
    return word - value <= UINT32_MAX / 2;
}

#endif /* KVT_BASE_DEVICE_H */
