/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move.h - a block's way between memory tiers: down from HBM to HOST, up from HOST to HBM.
 *
 * Owns      the flight of the entry while it is LOWERING or RAISING, the slot it goes to until it
 *           is a copy, one pin of the entry.
 * Not here  NVMe (commit.c, get.c), who is to be moved (room.c, prefetch.c).
 * Threads   the loop; checksums run on workers.
 *
 * A move down ends with a checksum: a block that was born in HBM gets its own there; one that came
 * from below must still have the one it had, or its HBM copy is wrong and the block is dropped.
 */
#ifndef KVT_ENGINE_MOVE_H
#define KVT_ENGINE_MOVE_H

#include <stdbool.h>

#include "kvtier/kvtier.h"
#include "slab.h"

struct kvt_store;
struct patience;

/*
 * move_down, move_up - begin to copy the block: it has a copy in HBM and none in HOST, or one in
 * HOST and none in HBM; and no flight. Who waits for the end puts itself into the flight's waiters.
 *
 * KVT_NOT_READY (move_down): no slot yet, room is being made (room_wait() for HOST). KVT_E_NOSPC,
 * KVT_E_NOMEM, KVT_E_GPU: it cannot be. `patience` is of who waits. `slot` is in the device's HBM,
 * and the block's with KVT_OK.
 */
enum kvt_status move_down(struct kvt_store *store, uint32_t number, struct patience *patience);
enum kvt_status move_up(
    struct kvt_store *store, uint32_t number, uint32_t device, struct slot slot);

/* move_down_within - in a search for room in HBM, which the block would leave for namespace `asker`
 * (0: nobody's). `is_last`: nothing is waited for, but for what this lets go in HOST. */
enum kvt_status move_down_within(
    struct kvt_store *store, uint32_t number, uint32_t asker, bool is_last);

#endif /* KVT_ENGINE_MOVE_H */
