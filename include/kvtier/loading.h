/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loading.h - files to memory of a device, chunk by chunk: weights, adapters, tables. Part of
 * kvtier.h, whose rules hold.
 *
 * A load reads a range of any file (not one of the store's), past the page cache where its file
 * system can, into staging memory, which is a part of the HOST tier, and copies it to the device
 * from there; both go on at once. It is cut into chunks of one size (the last may be shorter),
 * which come in order. A chunk is settled when its bytes are in place, or when it is known that
 * they will not be: one that could not be read costs no other. The first can be used while the
 * others come.
 *
 * Staging memory is taken with the first load that is open and given back with the last: at most an
 * eighth of HOST and 32 MiB, which all loads share. Nothing is verified: the file has no checksums
 * that the store knows.
 */
#ifndef KVTIER_LOADING_H
#define KVTIER_LOADING_H

#include "kvtier/kvtier.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Id 0: none. A closed one is refused, whatever was opened since. */
typedef struct kvt_load {
    uint64_t id;
} kvt_load;

#define KVT_LOADS_MAX 64u          /* Open at a time, in a store. */
#define KVT_LOAD_CHUNKS_MAX 65536u /* Of one load. */
#define KVT_LOAD_ALL UINT32_MAX    /* Every chunk. */
#define KVT_LOAD_TO_END UINT64_MAX /* The file's length at that moment, less the offset. */
#define KVT_LOAD_CHUNK_DEFAULT (16u << 20)

/* What to load where. Start from all zero. */
struct kvt_file_load_options {
    uint32_t struct_size; /* sizeof(struct kvt_file_load_options) */
    uint32_t device;
    uint64_t offset; /* In the file; offset and length need no alignment. */
    uint64_t length; /* Or KVT_LOAD_TO_END. 0: no chunk at all. */
    /* Whole pages of 4096 bytes, so that there are at most KVT_LOAD_CHUNKS_MAX chunks. 0:
     * KVT_LOAD_CHUNK_DEFAULT. */
    uint64_t chunk_bytes;
    void *destination; /* Memory of the device. NULL: the load takes some, and gives it back when
                        * all chunks were released, or when it is closed. */
    /* Of the destination, or what the load takes at most; 0 (without a destination): enough for all
     * chunks. With room for all of them chunk i lies chunk_bytes * i behind the first. With less,
     * but room for one: a chunk comes when an earlier one was released. */
    uint64_t capacity;
    kvt_region region;  /* In which the destination lies. {0}: it is registered for the load. */
    uint32_t reserved0; /* Must be zero. */
};

/* A chunk in memory of the device. Moments of CLOCK_MONOTONIC: when its first read was asked for,
 * its last had come; its first copy was asked for, its last was seen to have ended. */
struct kvt_load_chunk {
    void *address;
    uint64_t offset; /* In the file. */
    uint64_t size;
    uint64_t read_begin_ns, read_end_ns;
    uint64_t copy_begin_ns, copy_end_ns;
};

/*
 * kvt_file_load - begin to load a range of the file at `path`; links are followed.
 *
 * KVT_MISS: there is no such file. KVT_E_INVAL: NULL, a bound, no regular file, a range that ends
 * behind the file's end, no such device; memory that is not the device's, does not lie in the
 * region, or overlaps a region that was not named. KVT_E_NOSPC: KVT_LOADS_MAX loads are open, no
 * further region can be registered, or leases and requests hold all of HOST. KVT_E_PERMISSION: of
 * the file, or of a folder on the way to it, which need not be readable. KVT_E_IO: the disk, or the
 * file was replaced again and again. KVT_E_NOMEM (the host's memory, or the device's), KVT_E_GPU.
 * Threads: any. Ownership: borrows `path` and `options`; keeps the destination until the load is
 * closed; gives *load_out, see kvt_load_close(). Blocks: for the file's open, in the driver, and
 * with the first load until HOST has given up the staging memory.
 */
KVT_CHECKED enum kvt_status kvt_file_load(kvt_store *store, const char *path,
    const struct kvt_file_load_options *options, kvt_load *load_out);

/*
 * kvt_load_chunk_count - into how many chunks it was cut.
 *
 * KVT_E_INVAL: NULL, or no open load.
 * Threads: any. Ownership: borrows. Blocks: never.
 */
KVT_CHECKED enum kvt_status kvt_load_chunk_count(
    kvt_store *store, kvt_load load, uint32_t *count_out);

/*
 * kvt_load_wait - wait, at most `timeout_ns` (0: only look), until `chunk` is settled, or, with
 * KVT_LOAD_ALL, every chunk that was not released. *chunk_out (may be NULL) says where it lies;
 * with KVT_LOAD_ALL it is not written.
 *
 * KVT_OK: its bytes are in place; what is submitted to any stream from now on may use them.
 * KVT_LATE: not yet. KVT_CANCELLED: it was given up. KVT_E_IO: the device failed, or the file has
 * become shorter. KVT_E_NOMEM: the read or the copy found no memory. KVT_E_GPU: the device is
 * lost. All of these: what is in its place is undefined. KVT_E_STATE: it was released.
 * KVT_E_INVAL: no open load, or no such chunk. With KVT_LOAD_ALL: the first of these that a chunk
 * got.
 * Threads: any. Ownership: nothing changes hands. Blocks: as asked.
 */
KVT_CHECKED enum kvt_status kvt_load_wait(kvt_store *store, kvt_load load, uint32_t chunk,
    uint64_t timeout_ns, struct kvt_load_chunk *chunk_out);

/*
 * kvt_load_stream_wait - work that is submitted to `stream` from now on waits, on the device, until
 * `chunk` has been copied. The host does not wait. *chunk_out (may be NULL) says where it will lie;
 * the moments in it are not known yet.
 *
 * KVT_OK: the stream waits, or there is nothing to wait for any more. KVT_NOT_READY: some of its
 * copy was not queued yet: nothing has changed, ask again. KVT_CANCELLED, KVT_E_IO, KVT_E_NOMEM,
 * KVT_E_GPU, KVT_E_STATE: as kvt_load_wait(). KVT_E_INVAL: the default stream (NULL), a stream that
 * is being captured, no open load, no such chunk.
 * Threads: any. Ownership: `stream` is a cudaStream_t of the load's device. Blocks: never, but for
 * the driver.
 */
KVT_CHECKED enum kvt_status kvt_load_stream_wait(kvt_store *store, kvt_load load, uint32_t chunk,
    void *stream, struct kvt_load_chunk *chunk_out);

/*
 * kvt_load_cancel - chunks that are not being read and copied as a whole already are given up. What
 * is settled stays as it is. To cancel twice does nothing.
 *
 * KVT_E_INVAL: no open load.
 * Threads: any. Ownership: nothing changes hands. Blocks: never.
 */
KVT_CHECKED enum kvt_status kvt_load_cancel(kvt_store *store, kvt_load load);

/*
 * kvt_load_release - the bytes of these chunks are not needed any more: their places are for later
 * chunks. `chunks` NULL and `count` 0: all that were not released. Nothing, on no stream, may be
 * using them. A chunk that has failed or was cancelled is released like any other.
 *
 * KVT_E_STATE: one of them is not settled, or was released before, or is named twice: nothing
 * changed. KVT_E_INVAL: no open load, no such chunk, NULL: nothing changed.
 * Threads: any. Ownership: takes the chunks when KVT_OK. Blocks: in the driver, for all streams of
 * the device, when the last chunk's memory is the load's own.
 */
KVT_CHECKED enum kvt_status kvt_load_release(
    kvt_store *store, kvt_load load, const uint32_t *chunks, uint32_t count);

/*
 * kvt_load_close - the end of a load: it is cancelled, and memory that it took is given back.
 * Id 0 does nothing. kvt_close() needs all loads closed; kvt_abort() makes them void.
 *
 * KVT_E_INVAL: it is not open.
 * Threads: any; who waits for the load meanwhile gets KVT_E_INVAL. Ownership: takes `load` when
 * KVT_OK; the destination is the caller's again. Blocks: for what is being read and copied, and in
 * the driver, for all streams of the device when memory is given back.
 */
KVT_CHECKED enum kvt_status kvt_load_close(kvt_store *store, kvt_load load);

#ifdef __cplusplus
}
#endif

#endif /* KVTIER_LOADING_H */
