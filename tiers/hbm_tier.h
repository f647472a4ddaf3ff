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
 * a slot and registered host memory) serves conformance, and takes memory for each batch. A
 * tier_place of this tier: segment = 0, page = slot number, generation = slot generation.
 *
 * What the vtable adds: a place counts from the answer of its put until it is dropped; a get of it
 * before or after is a miss. The slot of a place that is dropped while copies of the vtable's are
 * in flight is given back with the last of them. Each block has its own status; one whose put
 * failed has no place. Batches are answered by hbm_step(), puts that all go well in their order.
 *
 * A device that is lost: its slots can still be given back, every move is answered with KVT_E_GPU,
 * and puts are refused with it. Nothing else of the process is touched, but what such a move was to
 * write in host memory must not be used before the tier is closed.
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
    uint64_t
        capacity_bytes;    /* Rounded up to 2 MiB. 0: no slots (hbm_slab() is NULL), only copies. */
    size_t slot_bytes_max; /* As slab_open(). */
    void *arena;           /* Host memory that copies will use; registered in runs of at most */
    size_t arena_size;     /* 1 GiB, which no slot of a slab crosses. NULL: none. */
    /* Set when the device does not let go of the arena: it must stay mapped until the process ends
     * (host_unregister(), device.h). NULL: nobody asks. Must outlive the tier. */
    bool *is_arena_kept;
    bool is_engines_only; /* DEVICE_PLAN_ENGINES; otherwise it is measured what is faster. */
    bool is_shared;       /* Other processes can map the memory. KVT_E_UNSUPPORTED: they cannot. */
};

/*
 * hbm_open - open the device, take its memory, register the arena. KVT_E_UNSUPPORTED: no such
 * device. KVT_E_NOMEM names the size that could not be had. KVT_E_GPU, KVT_E_INVAL as slab_open().
 * `env`, the context and the arena must outlive the tier.
 */
enum kvt_status hbm_open(
    const struct kvt_env *env, const struct hbm_options *options, struct hbm_tier **hbm_out);

/* hbm_step - take what the mover did for puts and gets of the vtable, and answer them. The loop
 * calls it when woken. False: there was nothing. Moves of the engine's own do not need it. */
bool hbm_step(struct hbm_tier *hbm);

/* hbm_peer_open - let copies of `hbm` read the slots of `other`, another device's tier; errors and
 * *is_faster_out as peer_register (device.h). KVT_E_UNSUPPORTED, too: that one has no slots, or
 * they are shared with other processes.
 * hbm_peer_close - before either is closed. */
enum kvt_status hbm_peer_open(struct hbm_tier *hbm, struct hbm_tier *other, bool *is_faster_out);
void hbm_peer_close(struct hbm_tier *hbm, struct hbm_tier *other);

struct tier *hbm_as_tier(struct hbm_tier *hbm);
struct slab *hbm_slab(struct hbm_tier *hbm); /* Its addresses are the device's. */
struct device *hbm_device(struct hbm_tier *hbm);
struct device_mover *hbm_mover(struct hbm_tier *hbm);
/* Of memory that is shared: the descriptor that stands for it, the tier's; negative: it is not. */
int hbm_descriptor(const struct hbm_tier *hbm, uint64_t *size_out);

#endif /* KVT_TIERS_HBM_TIER_H */
