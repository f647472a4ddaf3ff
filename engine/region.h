/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region.h - memory of callers that devices copy from and to.
 *
 * Owns      the table of regions: which addresses, of which device, how many operations and
 *           layouts use it.
 * Threads   any.
 *
 * (R3) of use_word.h: of an unregister and a new use at the same time one sees the other; and an
 * unregister that is refused, because something uses the region, is seen by nobody.
 */
#ifndef KVT_ENGINE_REGION_H
#define KVT_ENGINE_REGION_H

#include "kvtier/kvtier.h"
#include "request.h"

struct region_table;

enum kvt_status regions_open(struct kvt_store *store);
/* regions_close - host memory that is still registered is given back to its devices. */
void regions_close(struct kvt_store *store);

/* region_use - note in the operation where its memory lies, and keep the region until
 * region_unuse(). region_hold: the same without an operation, until region_let_go(). KVT_E_INVAL:
 * no such region, or the memory does not lie in it. */
enum kvt_status region_use(
    struct kvt_store *store, struct op *op, kvt_region region, const struct iovec *memory);
enum kvt_status region_hold(
    struct kvt_store *store, kvt_region region, const struct iovec *memory, int *memory_device_out);
void region_unuse(struct kvt_store *store, struct op *op);

/* region_hold_host - the region of host memory that all of this lies in, so that one copy of a
 * device may name it; it is kept until region_let_go(). {0}: there is none. */
kvt_region region_hold_host(struct kvt_store *store, const void *memory, uint64_t size);
void region_let_go(struct kvt_store *store, kvt_region region);

#endif /* KVT_ENGINE_REGION_H */
