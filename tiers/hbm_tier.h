/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hbm_tier.h - the HBM tier of one device: its memory, cut into slots, and what moves bytes to and
 * from them.
 *
 * Owns      the device handle, one slab of its memory, the mover (device_mover.h).
 * Not here  which block lies in which slot, and when a slot may be used again: a slot that is given
 *           back must have no copy in flight and no reader (the engine's pins and leases).
 * Threads   the loop thread; hbm_slot_address() of a taken slot any thread.
 *
 * The engine mostly works with slots and moves directly; the tier vtable (put and get copy between
 * a slot and registered host memory) serves conformance. A tier_place of this tier: segment = 0,
 * page = slot number, generation = slot generation.
 *
 * A device that is lost: its slots can still be given back, every move is answered with KVT_E_GPU,
 * and puts are refused with it. Nothing else of the process is touched.
 */
#ifndef KVT_TIERS_HBM_TIER_H
#define KVT_TIERS_HBM_TIER_H

#include "device_mover.h"
#include "slab.h"
#include "tier.h"

struct hbm_tier;

struct hbm_options {
    const struct kvt_device_ops *ops;
    void *context; /* Of the ops. */
    uint32_t ordinal;
    uint64_t capacity_bytes; /* Rounded up to 2 MiB. */
    size_t slot_bytes_max;   /* As slab_open(). */
    void *arena;             /* Host memory that copies will use; registered in runs of at most */
    size_t arena_size;       /* 1 GiB, which no slot of a slab crosses. NULL: none. */
};

/*
 * hbm_open - open the device, take its memory, register the arena. KVT_E_UNSUPPORTED: no such
 * device. KVT_E_NOMEM names the size that could not be had. KVT_E_GPU, KVT_E_INVAL as slab_open().
 */
enum kvt_status hbm_open(
    const struct kvt_env *env, const struct hbm_options *options, struct hbm_tier **hbm_out);

struct tier *hbm_as_tier(struct hbm_tier *hbm);
struct slab *hbm_slab(struct hbm_tier *hbm); /* Its addresses are the device's. */
struct device *hbm_device(struct hbm_tier *hbm);
struct device_mover *hbm_mover(struct hbm_tier *hbm);

#endif /* KVT_TIERS_HBM_TIER_H */
