/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_tier.h - the HOST tier: one arena of memory on huge pages, cut into slots.
 *
 * Owns      the arena and its slab. The arena is also what io queues adopt.
 * Threads   the loop thread; slab_address() of a taken slot any thread.
 *
 * The engine mostly works with slots directly (a put reserves one, a read lands in one); the tier
 * vtable (put and get copy between a slot and other memory) serves conformance and later tiers.
 * A tier_place of this tier: segment = 0, page = slot number, generation = slot generation.
 */
#ifndef KVT_TIERS_HOST_TIER_H
#define KVT_TIERS_HOST_TIER_H

#include "slab.h"
#include "tier.h"

struct host_tier;

/*
 * host_open - map and touch `capacity_bytes` (rounded up to 2 MiB), so that later uses never wait
 * for the kernel to find a page; with several actors when it is large. Nothing locks the arena:
 * what registers it with a device or with io_uring does. The slab uses the whole superblocks of it.
 * KVT_E_NOMEM names the size that could not be had. KVT_E_INVAL as slab_open().
 */
enum kvt_status host_open(const struct kvt_env *env, uint64_t capacity_bytes, size_t slot_bytes_max,
    struct host_tier **host_out);

struct tier *host_as_tier(struct host_tier *host);
struct slab *host_slab(struct host_tier *host);
void *host_arena(struct host_tier *host, size_t *size_out);
/* host_arena_keep - a device may still use it: closing leaves it mapped, until the process ends. */
void host_arena_keep(struct host_tier *host);

#endif /* KVT_TIERS_HOST_TIER_H */
