/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease.h - leases: blocks that a lookup found and that stay where they are until it is released.
 *
 * Owns      the table of leases: each {entries pinned, generation}. A free lease is on a lock-free
 *           stack; a lease that is out belongs to its holder; a released one travels to the loop,
 *           which counts its blocks as used and puts it back on the stack. When as many travel as
 *           there are spare places, it goes back to the stack at once.
 * Not here  what is looked up (lookup.c, match.c).
 * Threads   any.
 */
#ifndef KVT_ENGINE_LEASE_H
#define KVT_ENGINE_LEASE_H

#include "kvtier/kvtier.h"
#include "request.h"

enum {
    LEASE_INLINE = 64, /* Entries a lease holds without an array of its own. */
    /* Places beside those of lease_count_max, for leases that were released and of which the loop
     * does not know yet: what callers give back in the millisecond that one of its steps may take.
     * Memory that is touched only when so many were. */
    LEASE_SPARE = 4096,
};

struct lease_table;

struct lease {
    struct message message;
    uint64_t taken_ns; /* Set before it is out. */
    _Atomic uint32_t generation;
    _Atomic uint32_t next; /* Free stack: how far the next is behind the one beside this. */
    uint32_t count;
    uint32_t capacity;
    uint32_t *numbers; /* Of entries, pinned; ENTRY_NONE for misses. */
    uint8_t *tiers;
    void *wait_event; /* Released after work of a device: the end of that. */
    struct device_job wait_job;
    uint32_t inline_numbers[LEASE_INLINE];
    uint8_t inline_tiers[LEASE_INLINE];
};

enum kvt_status leases_open(struct kvt_store *store);
void leases_close(struct kvt_store *store);

/* lease_begin - a lease of `count` blocks, for its caller to fill. KVT_E_NOSPC (lease_count_max),
 * KVT_E_NOMEM. */
enum kvt_status lease_begin(struct kvt_store *store, uint32_t count, struct lease **lease_out);

/* lease_keep - it is out since then, and this is its id; lease_cancel: it has pinned nothing. */
kvt_lease lease_keep(struct kvt_store *store, struct lease *lease, uint64_t now_ns);
void lease_cancel(struct kvt_store *store, struct lease *lease);

/* lease_current - the lease behind an id that is out, or NULL and a sentence. */
struct lease *lease_current(struct kvt_store *store, kvt_lease id);

/*
 * lease_next - walk the leases that are out: *cursor starts at 0. NULL when it is at `end`, or at
 * the end of all: then it is 0 again. One is whole until the next is asked for, or
 * lease_look_end(); a release may be under way.
 * Threads: the loop.
 */
const struct lease *lease_next(struct kvt_store *store, uint32_t *cursor, uint32_t end);
void lease_look_end(struct kvt_store *store);

/* lease_unpin - give one pin of an entry back. */
void lease_unpin(struct kvt_store *store, uint32_t number);

#endif /* KVT_ENGINE_LEASE_H */
