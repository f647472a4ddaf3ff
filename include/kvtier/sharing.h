/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sharing.h - blocks in HBM that other processes read where they lie, and events that put streams
 * of several processes in order. Part of kvtier.h, whose rules hold.
 *
 * The owner of a store hands out two things, each as a struct kvt_share of plain data and a file
 * descriptor that belongs to it, over a Unix socket (SCM_RIGHTS) or to a child: the HBM tier of a
 * device, once (kvt_hbm_export()), and events. A forked child has none of the library's own, which
 * would keep the memory (one that is forked while a GPU's is made may): for a child dup() it
 * before. What else travels is small:
 * kvt_lease_export() says where a leased block lies.
 *
 *   owner                                        reader, which has no store
 *   kvt_hbm_export()             share, fd -->   kvt_import_open()
 *   kvt_shared_event_create()    share, fd -->   kvt_shared_event_open()
 *   ...
 *   kvt_shared_event_record()    locator -->     kvt_shared_event_stream_wait(), then its kernels
 *                                                read at kvt_import_address()
 *   kvt_lease_release()          <-- "done"
 *
 * For the way back the reader makes an event, and the owner's stream waits for that, so that
 * kvt_lease_release_after() of this stream ends the lease when the reader's kernels have ended.
 *
 * Death     Memory lives as long as anybody has it mapped, whoever dies. When the maker of an event
 *           is gone, waits for what it recorded and what will never be reached end, as those of
 *           kvt_shared_event_wait() say, within a tenth of a second (but see Trust). A reader that
 *           dies costs nobody anything but its leases: who serves it sees its socket hang up, and
 *           releases them; until then their slots stay as they are.
 * Trust     Imported memory is for reading: the library's copies never write to it, and nobody can
 *           in the emulation, or on a GPU whose driver takes access to read alone. Who has the
 *           descriptor of an event can end waits of others for it, before it is reached too; its
 *           maker believes its own device alone. Who has it can also make waits outlive the maker:
 *           the maker's death is seen by a lock of the descriptor's file, and any other lock of
 *           that file (fcntl, of an open file description) looks the same. Then waits of others,
 *           their streams' too, end when it lets go of the lock, or dies; those of a store by
 *           kvt_abort(). And it can take the page away from under the event's words (a hole in the
 *           file, fallocate()): then a stream may wait for ever, whatever anybody does, kvt_abort()
 *           too. So give it to nobody who may not make you wait.
 */
#ifndef KVTIER_SHARING_H
#define KVTIER_SHARING_H

#include "kvtier/kvtier.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kvt_locator; /* direct.h */

typedef struct kvt_import kvt_import;
typedef struct kvt_shared_event kvt_shared_event;

#define KVT_SHARE_MAGIC 0x5348564Bu /* "KVHS" */

enum kvt_share_kind {
    KVT_SHARE_HBM = 1,
    KVT_SHARE_EVENT = 2,
};

/* What a descriptor stands for, for another process of this machine. Carried as it is. */
struct kvt_share {
    uint32_t magic;        /* KVT_SHARE_MAGIC */
    uint32_t struct_size;  /* sizeof(struct kvt_share) where it was made. */
    uint32_t kind;         /* enum kvt_share_kind */
    uint32_t device_kind;  /* enum kvt_device_kind */
    uint32_t device;       /* Its number in the owner's store, as in locators. */
    uint32_t check;        /* Of all of it. */
    uint8_t device_id[16]; /* The GPU's UUID: its number may be another in each process. */
    uint8_t store[16];     /* HBM: of which store, as in locators. */
    uint64_t bytes;        /* HBM */
    uint64_t number;       /* Event: which. */
};

/* --- 1. Memory -------------------------------------------------------------------------------- */

/*
 * kvt_hbm_export - the HBM tier of a device, for other processes to read.
 *
 * KVT_E_INVAL: NULL, no such device. KVT_E_STATE: the store was opened without KVT_OPEN_SHARE_HBM.
 * KVT_E_GPU: the device is lost.
 * Threads: any. Ownership: the descriptor is the store's, until that is closed (a socket, or dup(),
 * makes another); the memory lives on where it is imported. Blocks: never, but for the driver.
 */
KVT_CHECKED enum kvt_status kvt_hbm_export(
    kvt_store *store, uint32_t device, struct kvt_share *share_out, int *descriptor_out);

/*
 * kvt_import_open - map what another process exported. Needs no store; opens the device. It is of
 * one life of the owner's store: import again what the next one exports.
 *
 * KVT_E_FORMAT: the share is damaged, or of another version. KVT_E_INVAL: NULL; it is an event; the
 * descriptor stands for no memory, or not for that of the share; this process has no device of that
 * identity. KVT_E_UNSUPPORTED: no such kind of device here. KVT_E_GPU, KVT_E_NOMEM, KVT_E_IO.
 * Threads: any. Ownership: borrows `share` and `descriptor`; gives *import_out, see
 * kvt_import_close(). Blocks: in the driver.
 */
KVT_CHECKED enum kvt_status kvt_import_open(
    const struct kvt_share *share, int descriptor, kvt_import **import_out);

/*
 * kvt_import_device - the number that the device has in this process.
 *
 * KVT_E_INVAL: NULL. KVT_E_STATE: in a forked child.
 * Threads: any. Ownership: borrows. Blocks: never.
 */
KVT_CHECKED enum kvt_status kvt_import_device(kvt_import *import, uint32_t *device_out);

/*
 * kvt_import_address - where a leased block lies in this process: memory of the device, for its
 * kernels and copies to read. Of the locator only the bounds are believed; whether its lease is
 * out, its owner knows (kvt_locator_check()).
 *
 * KVT_E_INVAL: NULL; a locator of another store, device or tier, or that ends behind the memory.
 * KVT_E_STATE: in a forked child.
 * Threads: any. Ownership: the address is good until kvt_import_close(), its bytes while the
 * owner's lease is out. Blocks: never.
 */
KVT_CHECKED enum kvt_status kvt_import_address(
    kvt_import *import, const struct kvt_locator *locator, const void **address_out);

/*
 * kvt_import_read - copy a leased block to host memory, after nothing but what the caller has
 * waited for.
 *
 * KVT_E_INVAL, KVT_E_STATE: as kvt_import_address(); a capacity below the block's length.
 * KVT_E_GPU: the device is lost. KVT_E_NOMEM.
 * Threads: any; one read of an import at a time. Ownership: borrows. Blocks: until it is done.
 */
KVT_CHECKED enum kvt_status kvt_import_read(
    kvt_import *import, const struct kvt_locator *locator, void *target, uint64_t capacity);

/*
 * kvt_import_close - unmap it. Nothing, on no stream, may be using its addresses. NULL does
 * nothing.
 *
 * KVT_E_STATE: it has open events: nothing changed; or in a forked child, which only forgets it.
 * Threads: serial; no other call with it may be running. Ownership: takes `import` when KVT_OK.
 * Blocks: in the driver, for all streams of the device.
 */
KVT_CHECKED enum kvt_status kvt_import_close(kvt_import *import);

/* --- 2. Events -------------------------------------------------------------------------------- */

/* Where a process uses the device: through a store of its own, or through an import. One of both;
 * start from all zero. */
struct kvt_side {
    kvt_store *store;
    kvt_import *import;
    uint32_t device;    /* Of the store; with an import 0. */
    uint32_t reserved0; /* Must be zero. */
};

/*
 * kvt_shared_event_create - an event that this process records, and that others wait for. One that
 * was never recorded counts as reached.
 *
 * KVT_E_INVAL: NULL; not one of store and import; no such device. KVT_E_STATE: in a forked child.
 * KVT_E_UNSUPPORTED: there is no memory here that others may map. KVT_E_GPU, KVT_E_NOMEM, KVT_E_IO.
 * Threads: any. Ownership: borrows `side`, keeps what it names; the descriptor is the event's;
 * gives *event_out, see kvt_shared_event_close(). Blocks: in the driver.
 */
KVT_CHECKED enum kvt_status kvt_shared_event_create(const struct kvt_side *side,
    struct kvt_share *share_out, int *descriptor_out, kvt_shared_event **event_out);

/*
 * kvt_shared_event_open - an event that another process made. Its device may be another.
 *
 * KVT_E_FORMAT: the share is damaged, or of another version. KVT_E_INVAL: as
 * kvt_shared_event_create(); it is memory; the descriptor stands for no event, or for another one.
 * KVT_E_STATE, KVT_E_UNSUPPORTED, KVT_E_GPU, KVT_E_NOMEM, KVT_E_IO.
 * Threads: any. Ownership: borrows `side`, keeps what it names; borrows `share` and `descriptor`;
 * gives *event_out, see kvt_shared_event_close(). Blocks: in the driver.
 */
KVT_CHECKED enum kvt_status kvt_shared_event_open(const struct kvt_side *side,
    const struct kvt_share *share, int descriptor, kvt_shared_event **event_out);

/*
 * kvt_shared_event_record - it is reached when the work that was queued on `stream` before this
 * call has been done. Only the last record counts, but a wait keeps to the one that it was asked
 * for. Tell others of the record after this call.
 *
 * KVT_E_INVAL: NULL, an event that was opened, the default stream (NULL), a stream that is being
 * captured into a graph, cudaStreamPerThread (the next record's stream is compared with this one,
 * and in another thread that is another stream). KVT_E_STATE: the record before this one, on
 * another stream, has not been reached: nothing changed; or in a forked child. KVT_E_GPU: the
 * device is lost. KVT_E_NOMEM.
 * Threads: any. Ownership: `stream` is a cudaStream_t of the device. Blocks: never, but for the
 * driver.
 */
KVT_CHECKED enum kvt_status kvt_shared_event_record(kvt_shared_event *event, void *stream);

/*
 * kvt_shared_event_stream_wait - work that is submitted to `stream` from now on waits, on the
 * device, until the event is reached. When that can never be any more, because the process that was
 * to reach it is gone, the stream goes on all the same: ask kvt_shared_event_wait() before what
 * came behind is believed.
 *
 * KVT_OK: the stream waits, or there is nothing to wait for. KVT_CANCELLED: it will never be
 * reached; nothing was queued. KVT_E_INVAL: NULL, the default stream (NULL), a stream that is being
 * captured into a graph. KVT_E_STATE: in a forked child. KVT_E_GPU: the device is lost.
 * KVT_E_NOMEM.
 * Threads: any. Ownership: `stream` is a cudaStream_t of the device. Blocks: never, but for the
 * driver.
 */
KVT_CHECKED enum kvt_status kvt_shared_event_stream_wait(kvt_shared_event *event, void *stream);

/*
 * kvt_shared_event_wait - wait, at most `timeout_ns` (0: only look), until the last record is
 * reached.
 *
 * KVT_OK: what was queued before it has been done. KVT_LATE: not yet. KVT_CANCELLED: its maker has
 * closed it or is gone, or a store whose streams waited for it was aborted, and it will never be
 * reached; or what stands there cannot be a record.
 * KVT_E_GPU: this process made it, and the device is lost, with the work of all its streams.
 * KVT_E_INVAL: NULL. KVT_E_STATE: in a forked child.
 * Threads: any. Ownership: nothing changes hands. Blocks: as asked.
 */
KVT_CHECKED enum kvt_status kvt_shared_event_wait(kvt_shared_event *event, uint64_t timeout_ns);

/*
 * kvt_shared_event_close - no stream of this process may still wait for it. Who made it ends it for
 * everybody. kvt_close() and kvt_import_close() need all events closed; kvt_abort() makes them
 * void: when streams of this process wait for one of another, their waits end, and with them, for
 * good, the event, for everybody and for later records too, as when its maker is gone; the maker
 * makes another. What streams may still use of an event, 4 KiB of pinned memory, stays until the
 * process ends. NULL does nothing.
 *
 * KVT_E_STATE: this process made it, and its last record has not been reached: nothing changed (but
 * on a device that is lost, with the work of all its streams, it is closed); or in a forked child.
 * Threads: serial; no other call with it may be running. Ownership: takes `event` when KVT_OK.
 * Blocks: in the driver, for all streams of the device.
 */
KVT_CHECKED enum kvt_status kvt_shared_event_close(kvt_shared_event *event);

#ifdef __cplusplus
}
#endif

#endif /* KVTIER_SHARING_H */
