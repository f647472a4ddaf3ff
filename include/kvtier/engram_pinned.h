/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engram_pinned.h - Engram tables in pinned host memory: read by devices as they are, and by other
 * processes without a second copy. Part of kvtier.h, whose rules hold.
 *
 * What is pinned are pages of the table's file, verified once: the first so many rows. Devices of
 * the store read them over the bus; fetches (engram_tables.h) of these rows read no file. They stay
 * until the table is closed.
 */
#ifndef KVTIER_ENGRAM_PINNED_H
#define KVTIER_ENGRAM_PINNED_H

#include "kvtier/engram_tables.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVT_ENGRAM_ROWS_ALL UINT64_MAX

/* --- 1. Pinning ------------------------------------------------------------------------------- */

enum kvt_engram_pin_flags {
    KVT_ENGRAM_PIN_SHARED = 1, /* In memory that others may map: kvt_engram_share(). */
};

/*
 * kvt_engram_pin - rows 0 .. `row_count` - 1 (KVT_ENGRAM_ROWS_ALL: all), rounded up to whole pages
 * of rows, are read into host memory that every device of the store knows. It takes 4096 bytes for
 * each rows_per_page rows. Nothing is pinned unless this returns KVT_OK.
 *
 * KVT_E_INVAL: NULL, a flag, no rows, more than the table has. KVT_E_STATE: some are pinned
 * already. KVT_E_CORRUPT: a page is damaged. KVT_E_UNSUPPORTED: KVT_ENGRAM_PIN_SHARED, and the
 * system has no such memory. KVT_E_NOMEM, KVT_E_IO.
 * Threads: serial for one table; fetches of it may be under way. Ownership: nothing changes hands.
 * Blocks: for the reads, and in the driver.
 */
KVT_CHECKED enum kvt_status kvt_engram_pin(kvt_engram *table, uint64_t row_count, uint32_t flags);

/* --- 2. Sharing ------------------------------------------------------------------------------- */

/*
 * kvt_engram_share - a file of the pinned rows that other processes may map to read: its
 * descriptor, to be handed on (over a socket, or to a child, by a dup() of before the fork: it is
 * closed there, and by exec). Nobody can write to it, cut or lengthen it. The rows live as long as
 * somebody has them mapped or the file open, whatever becomes of this process or of the table.
 *
 * KVT_E_INVAL: NULL. KVT_E_STATE: nothing is pinned with KVT_ENGRAM_PIN_SHARED.
 * Threads: any. Ownership: the descriptor is the table's, until that is closed. Blocks: never.
 */
KVT_CHECKED enum kvt_status kvt_engram_share(kvt_engram *table, int *descriptor_out);

/*
 * kvt_engram_open_shared - the table whose pinned rows another process shares, in a store of this
 * one, which need not have it: no row is copied. Each page is verified first. The table has these
 * rows and no others: a fetch, gather or kvt_engram_read() of them works, kvt_engram_verify() does
 * not (KVT_E_UNSUPPORTED), and kvt_engram_share() shares them on.
 *
 * Devices of this store know the memory where they can register what may only be read; otherwise a
 * gather on them is KVT_E_UNSUPPORTED.
 *
 * KVT_E_INVAL: NULL; the descriptor is of nothing that kvt_engram_share() gave (it could be cut
 * under us, say). KVT_E_CORRUPT: its head, or a page, is damaged. KVT_E_FORMAT: of a later version.
 * KVT_E_UNSUPPORTED: in a simulation. KVT_E_NOMEM, KVT_E_IO.
 * Threads: any. Ownership: borrows `descriptor`; gives *table_out, see kvt_engram_close(). Blocks:
 * for as long as looking at all rows takes.
 */
KVT_CHECKED enum kvt_status kvt_engram_open_shared(
    kvt_store *store, int descriptor, kvt_engram **table_out);

/* --- 3. Gathering ----------------------------------------------------------------------------- */

enum kvt_engram_gather_flags {
    KVT_ENGRAM_VALUES = 1, /* As bfloat16 numbers (kvt_engram_dequantise()), not as bytes. */
};

#define KVT_ENGRAM_GATHER_FINE UINT64_MAX /* The verdict on ids that are all in range. */

/*
 * Row ids[i] of the pinned ones becomes the i-th of the destination. Start from all zero. On the
 * host: ids and destination are the host's memory, both regions {0}, and stream and verdict NULL.
 * On a device: the destination lies in a region of it.
 */
struct kvt_engram_selection {
    kvt_engram *table;
    const uint32_t *ids;
    uint64_t count;        /* On a device 1 or more. */
    void *destination;     /* Row after row, without gaps; values at a multiple of 2. */
    uint64_t capacity;     /* Bytes of it. */
    kvt_region region;     /* Of the destination and of the verdict. */
    kvt_region ids_region; /* Of the same device, or of the host. */
    void *stream;          /* cudaStream_t: what it does is ordered as a kernel's work there. */
    /* On a device: gets KVT_ENGRAM_GATHER_FINE, or which id is the first that is out of range. At a
     * multiple of 8. */
    uint64_t *verdict;
    uint32_t flags;     /* enum kvt_engram_gather_flags */
    uint32_t reserved0; /* Must be zero. */
};

/*
 * kvt_engram_gather - rows by their numbers: on the host at once; on a device by a kernel on
 * `stream` that reads the pinned memory over the bus. Both give the same bits.
 *
 * Of a table of more than about 1 GB a device reads rows in rising order several times as fast as
 * in any other: neighbours share pages, and its address translation knows only so many (seen on an
 * H200, 5.5 GB: 145 against 38 million rows a second). A plan with KVT_ENGRAM_UNIQUE has them so.
 *
 * All ids are looked at before the first row is written: with one out of range nothing is. On a
 * device that is found there: a first kernel leaves the verdict, and the one that writes rows reads
 * it before it does anything.
 *
 * KVT_E_INVAL: NULL; nothing is pinned; on the host an id that is not below the pinned rows; too
 * little capacity, a flag, a region; KVT_ENGRAM_VALUES of rows that are no E4M3 with E8M0; the
 * default stream. KVT_E_UNSUPPORTED: built without nvcc, or the device could not register the
 * memory. KVT_E_GPU, KVT_E_NOMEM.
 * Threads: any. Ownership: borrows on the host; on a device ids, destination, verdict, their
 * regions and the table are the stream's until it is past the gather. Blocks: on the host for the
 * copy; else never, but for the driver.
 */
KVT_CHECKED enum kvt_status kvt_engram_gather(const struct kvt_engram_selection *gather);

#ifdef __cplusplus
}
#endif

#endif /* KVTIER_ENGRAM_PINNED_H */
