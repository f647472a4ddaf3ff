/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layouts.h - how the bytes of a block are spread over memory of the caller: strided runs, as in
 * the paged KV pools of serving engines. Part of kvtier.h, whose rules hold.
 *
 * A run is `piece_count` pieces of `piece_bytes` bytes, `piece_stride` bytes from one to the next.
 * The bytes of a block are those of its runs, in their order. A layout is a list of runs that holds
 * for many slots of a pool: in slot s every piece lies s x slot_stride bytes further on.
 *
 * A pool of one tensor [2 (K, V), pages, page_bytes] for each layer, a block being one page of all
 * layers, is one run a layer: piece_count 2, piece_bytes and slot_stride page_bytes, piece_stride
 * pages x page_bytes; the page's number is the slot. With one part a layer (struct kvt_put) each
 * layer can be read alone, to its own place.
 *
 * A put or get names a layout and a slot, or runs of its own (struct kvt_put, struct kvt_get). A
 * put's length must be that of the layout's block; of a get the block must be so long: else its
 * result is KVT_E_INVAL, with the true length. Two gets of one call may not name the same slot of
 * the same layout. That slots share no bytes with each other, nor runs with other destinations, is
 * the caller's to see to beyond that.
 */
#ifndef KVTIER_LAYOUTS_H
#define KVTIER_LAYOUTS_H

#include "kvtier/kvtier.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVT_LAYOUTS_MAX 1024u /* Layouts registered at a time. */
#define KVT_RUNS_MAX 1024u    /* Runs of a layout. */
#define KVT_PIECES_MAX 16384u /* Pieces of a block. */

struct kvt_run {
    void *address;         /* Of its first piece, in slot 0. */
    kvt_region region;     /* Where all its pieces lie; {0}: ordinary host memory. */
    uint32_t piece_count;  /* 1..KVT_PIECES_MAX */
    uint64_t piece_bytes;  /* 1..block_bytes_max */
    uint64_t piece_stride; /* At least piece_bytes. With one piece: 0 too. */
    uint64_t slot_stride;  /* At least piece_bytes. With one slot: 0 too. */
};

struct kvt_layout_options {
    uint32_t struct_size;       /* sizeof(struct kvt_layout_options) */
    uint32_t run_count;         /* 1..KVT_RUNS_MAX */
    const struct kvt_run *runs; /* All in memory of one device, or all in host memory: devices copy
                                 * from and to it when all of it lies in regions. */
    uint32_t slot_count;        /* 1.. */
    uint32_t reserved0;         /* Must be zero. */
};

/*
 * kvt_layout_register - a layout, for puts and gets that name it and a slot.
 *
 * KVT_E_INVAL: a bound; a piece of some slot does not lie in its region, or lies behind the end of
 * the address space; two pieces of a slot overlap, or runs whose slot_strides differ reach, in all
 * their slots, into each other's memory; a block would have more than KVT_PIECES_MAX pieces or
 * block_bytes_max bytes. KVT_E_UNSUPPORTED: runs in memory of several devices, or of a device
 * and the host. KVT_E_NOSPC: KVT_LAYOUTS_MAX - 1 layouts are registered. KVT_E_NOMEM.
 * Threads: any. Ownership: borrows `options` and its runs; keeps the regions (none of them can be
 * unregistered before the layout) and the memory until it is unregistered; gives *layout_out.
 * Blocks: never.
 *
 * kvt_layout_unregister - forget it. Id 0 does nothing; kvt_close() forgets all that are left.
 *
 * KVT_E_INVAL: a stale id. KVT_E_STATE: puts or gets that name it have not reached stage 1.
 * Threads: any. Ownership: takes `layout` when KVT_OK. Blocks: never.
 */
KVT_CHECKED enum kvt_status kvt_layout_register(
    kvt_store *store, const struct kvt_layout_options *options, kvt_layout *layout_out);
KVT_CHECKED enum kvt_status kvt_layout_unregister(kvt_store *store, kvt_layout layout);

#ifdef __cplusplus
}
#endif

#endif /* KVTIER_LAYOUTS_H */
