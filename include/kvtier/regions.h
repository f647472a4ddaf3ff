/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regions.h - memory of the caller that copies may go to and come from directly. Part of kvtier.h,
 * whose rules hold.
 */
#ifndef KVTIER_REGIONS_H
#define KVTIER_REGIONS_H

#include "kvtier/kvtier.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kvt_region_options {
    uint32_t struct_size; /* sizeof(struct kvt_region_options) */
    uint32_t tier;        /* KVT_TIER_HBM: memory of a device; KVT_TIER_HOST: host memory. */
    void *address;        /* Host memory: whole pages of 4096 bytes. */
    uint64_t size;        /* 1..; host memory: at most 1 GiB. */
    uint32_t device;      /* KVT_TIER_HBM: of which device. */
    uint32_t reserved0;   /* Must be zero. */
};

/*
 * kvt_region_register - memory of the caller that blocks may be copied from and to without a stop
 * in between. Host memory is registered with (and pinned for) every device of the store. When the
 * program has pinned it already (cudaHostRegister(), cudaHostAlloc()), it must stay so, all of it,
 * until it is unregistered here: holes of less than 2 MiB are not noticed, and a device that meets
 * memory that is not pinned is lost, with all others of the process.
 *
 * KVT_E_INVAL: a bound; no such device; memory that is not this device's own (managed memory is
 * not), or host memory that is not made of whole pages; memory that overlaps another region (what
 * kvt_device_alloc() gave may). Of another store of the process host memory may be a region too,
 * from the same byte to the same byte: it stays pinned until the last of them forgets it.
 * KVT_E_UNSUPPORTED: host memory, and the store has no device.
 * KVT_E_NOSPC: KVT_REGIONS_MAX - 1 regions are registered. KVT_E_NOMEM (also of memory that the
 * kernel or the driver does not pin, a file's say), KVT_E_GPU: the memory is no region; when the
 * sentence says that it must not be freed, see below.
 * Threads: any. Ownership: borrows `options`; keeps the memory until it is unregistered, and gives
 * *region_out. Blocks: in the driver, for host memory in proportion to its size.
 *
 * kvt_region_unregister - forget it. Id 0 does nothing; kvt_close() forgets all that are left.
 *
 * KVT_E_GPU: it is forgotten, but a device, one that is lost mostly, does not let go of the host
 * memory and may still use it. It must be neither freed nor unmapped before the process ends: what
 * is mapped at its address next would be taken for it. Of regions that kvt_close() forgets the log
 * says so.
 * KVT_E_INVAL: a stale id. KVT_E_STATE: puts or gets that name it have not reached stage 1, a
 * layout lies in it, rows of N-gram tables are on their way there, or an open load names it.
 * Threads: any. Ownership: takes `region` when KVT_OK or KVT_E_GPU. Blocks: in the driver; of host
 * memory for all streams of all devices of the store (kvt_hold_submit() says who must not).
 */
KVT_CHECKED enum kvt_status kvt_region_register(
    kvt_store *store, const struct kvt_region_options *options, kvt_region *region_out);
KVT_CHECKED enum kvt_status kvt_region_unregister(kvt_store *store, kvt_region region);

#ifdef __cplusplus
}
#endif

#endif /* KVTIER_REGIONS_H */
