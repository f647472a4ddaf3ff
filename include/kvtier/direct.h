/* SPDX-License-Identifier: Apache-2.0 */
/*
 * direct.h - pinned memory of the HOST tier in the caller's hands: to write blocks without a copy,
 * to read them, to tell others where they are. Part of kvtier.h, whose rules hold.
 */
#ifndef KVTIER_DIRECT_H
#define KVTIER_DIRECT_H

#include "kvtier/kvtier.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Memory for one block that is not there yet. */
typedef struct kvt_reservation kvt_reservation;

/*
 * kvt_reserve - memory of HOST for the block that `put` describes: *address_out, put->length bytes
 * from a multiple of 4096 on, for the caller to fill. What is in it before is undefined. The put
 * has no source and no region, and goes to HOST. Nobody sees the block before kvt_commit().
 *
 * Reserved memory is taken from HOST as leased copies are: nothing moves it, and with all of HOST
 * reserved nothing else finds room.
 *
 * KVT_E_BUSY: room is being made, or may come with what is in flight: ask again, within a second.
 * KVT_E_BUSY, too: request_count_max reservations are out.
 * KVT_E_NOSPC: every slot of HOST is leased, pinned, reserved, or others' by their share.
 * KVT_E_INVAL as kvt_put_submit(). KVT_E_NOMEM.
 * Threads: any. Ownership: borrows `put`; gives *reservation_out, see kvt_commit() and
 * kvt_discard(). Blocks: until the loop has answered.
 */
KVT_CHECKED enum kvt_status kvt_reserve(kvt_store *store, kvt_namespace ns,
    const struct kvt_put *put, void **address_out, kvt_reservation **reservation_out);

/*
 * kvt_commit - put the block whose bytes were written into the reservation: its memory becomes the
 * block's. As kvt_put_submit() of one block with that durability, whose source may not be touched
 * any more. When the block is there already (KVT_EXISTS), or the put fails or is cancelled, the
 * memory goes back to the store.
 *
 * KVT_E_INVAL, KVT_E_UNSUPPORTED, KVT_E_BUSY, KVT_E_NOMEM, KVT_E_READONLY as kvt_put_submit(): the
 * reservation is as before.
 * Threads: serial for one reservation. Ownership: takes `reservation` when KVT_OK; gives
 * *ticket_out. Blocks: never. Completion: as kvt_put_submit().
 */
KVT_CHECKED enum kvt_status kvt_commit(kvt_reservation *reservation, enum kvt_durability durability,
    const struct kvt_submit *submit, kvt_ticket **ticket_out);

/*
 * kvt_discard - give the reservation's memory back; there will be no block. NULL does nothing.
 * Threads: serial for one reservation. Ownership: takes `reservation`. Blocks: never.
 */
KVT_API void kvt_discard(kvt_reservation *reservation);

/*
 * kvt_map - lease one block in HOST, where it is brought first if it is not there: its address and
 * length. The rest is as for a lease of kvt_lookup() with this one key.
 *
 * KVT_MISS: no tier has the block, or it could not be read, or its only copy was a lost device's,
 * or it was put anew many times while it was brought.
 * KVT_LATE: it has not come within `timeout_ns` (0: it had to be there). KVT_E_NOSPC: no room in
 * HOST, or lease_count_max (two are held for a moment). KVT_E_BUSY: request_count_max.
 * KVT_E_INVAL as kvt_lookup(). KVT_E_NOMEM.
 * Threads: any. Ownership: borrows `key`; gives *lease_out; the address is good until that is
 * released. Blocks: as asked.
 */
KVT_CHECKED enum kvt_status kvt_map(kvt_store *store, kvt_namespace ns, const struct kvt_key *key,
    uint64_t timeout_ns, kvt_lease *lease_out, const void **address_out, uint64_t *length_out);

/*
 * Where a leased copy is, as plain data that others may carry: 64 bytes without a pointer. Those
 * who got it may use the copy while the lease is out: kvt_locator_check(), by the process that has
 * the store open, says whether it is.
 */
struct kvt_locator {
    uint8_t store[16]; /* Its uuid. */
    uint64_t lease;
    uint64_t offset; /* In the memory of HOST, or of HBM of the device. */
    uint64_t length; /* Payload bytes. */
    uint64_t proof;  /* Of all of it, by this store in this life. */
    uint32_t tier;   /* KVT_TIER_HOST or KVT_TIER_HBM. */
    uint32_t device; /* KVT_TIER_HBM: of which device. */
    uint32_t index;  /* In the lease. */
    uint32_t reserved0;
};

/*
 * kvt_lease_export - the copy of the i-th key of the lease in `tier`, as a locator.
 *
 * KVT_MISS, KVT_E_INVAL, KVT_E_GPU as kvt_lease_address().
 * Threads: any. Ownership: borrows `locator_out`; the lease stays the caller's. Blocks: never.
 */
KVT_CHECKED enum kvt_status kvt_lease_export(kvt_store *store, kvt_lease lease, uint32_t index,
    uint32_t tier, struct kvt_locator *locator_out);

/*
 * kvt_locator_check - whether a locator can be used: by this store, since it was opened, and with
 * its lease still out. It may come from anywhere: no byte of it is believed without its proof.
 *
 * KVT_OK: the copy is there as long as the lease is. KVT_MISS: the lease was released; another
 * store made it, or an earlier life of this one; it was damaged; its device is lost. KVT_E_INVAL:
 * a NULL.
 * Threads: any. Ownership: borrows. Blocks: never.
 */
KVT_CHECKED enum kvt_status kvt_locator_check(kvt_store *store, const struct kvt_locator *locator);

#ifdef __cplusplus
}
#endif

#endif /* KVTIER_DIRECT_H */
