/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier.h - the vtable of a tier: a place for copies of blocks.
 *
 * A tier moves bytes between itself and pinned memory, in batches, asynchronously, and knows
 * nothing of keys' meaning, of other tiers or of importance. The engine's loop thread makes all
 * calls and takes all answers out of one inbox; a tier may use other threads inside.
 *
 *   put     give each block of the batch a place, move the bytes there, make them durable as far
 *           as the tier can (NVME: written and synced; the index commit is the engine's). A block
 *           whose status is not KVT_OK has no place afterwards.
 *   get     bring bytes back. A place whose generation has passed gives KVT_MISS. Whether the
 *           bytes are right is the caller's to prove by checksum: a tier reports only what it saw.
 *   drop    the place may be reused once the tier's own rules allow.
 *
 * Implementations: host_tier.h, nvme_tier.h, tier_null.c (accepts all, returns KVT_MISS: shows the
 * engine's own cost), tests/support/tier_fake.h (scripted faults). tests/conform runs one list of
 * checks over all of them.
 */
#ifndef KVT_TIERS_TIER_H
#define KVT_TIERS_TIER_H

#include "block_record.h"
#include "inbox.h"
#include "kvtier/status.h"

/* The place of one copy. HOST: segment 0, page = slot number. Zero generation: nowhere. */
struct tier_place {
    struct extent extent;
};

/*
 * One block of a batch. Memory is 4 KiB aligned and padded: whole pages may be read or written.
 * Of the record a put reads everything and fills the extent; a get reads extent and stored_length.
 * NVME: the last `tail_pages` pages of the stored bytes may lie elsewhere, in `tail`.
 */
struct tier_block {
    struct block_record record;
    void *memory;           /* put: source; get: target. Unused when all pages are the tail's. */
    void *tail;             /* The last pages; tail_pages 0: unused. */
    uint32_t tail_pages;    /* Other tiers than NVME: 0. */
    enum kvt_status status; /* out */
    void *user;
};

/* A delete or replace to be remembered with the batch (NVME only; others ignore it). */
struct tier_kill {
    struct extent extent;       /* The copy that is dead; a void entry: the header of its batch. */
    struct hash128 fingerprint; /* Of its key; zero: a void entry. */
    uint64_t sequence;          /* Every record of that key up to this one is dead; a void entry: of
                                 * its batch. */
};

/* The caller's memory; the tier's from put/get until it lies in `done`. */
struct tier_batch {
    struct inbox_node node;
    struct tier_block *blocks;
    uint32_t block_count;
    const struct tier_kill *kills;
    uint32_t kill_count;
    uint32_t urgent;   /* get: ahead of bulk transfers. */
    uint64_t sequence; /* put: the batch's number, rising. */
    struct inbox *done;
    struct task *const *done_task;
    struct extent header;   /* out: where the batch's header stands (NVME). */
    enum kvt_status status; /* put with kills and no blocks: whether the header is durable. */
    void *user;
    void *tier_private;
};

struct tier_usage {
    uint64_t capacity_bytes;
    uint64_t used_bytes; /* Taken places, padding included. */
    uint64_t free_bytes; /* What puts can still take without a reclaim. */
};

struct tier;

struct tier_ops {
    const char *name;
    /* KVT_OK: the batch will lie in `done` exactly once. Negative: it never will, and nothing was
     * taken (KVT_E_NOSPC: no room; KVT_E_BUSY: nvme_lack(); KVT_E_READONLY; KVT_E_NOMEM;
     * KVT_E_INVAL). */
    enum kvt_status (*put)(struct tier *tier, struct tier_batch *batch);
    enum kvt_status (*get)(struct tier *tier, struct tier_batch *batch);
    void (*drop)(struct tier *tier, const struct tier_place *place);
    void (*usage)(struct tier *tier, struct tier_usage *usage_out);
    /* Nothing may be in flight. NULL is fine. */
    void (*close)(struct tier *tier);
};

/* The first member of every implementation. */
struct tier {
    const struct tier_ops *ops;
};

struct kvt_env;

/* tier_answer - for implementations: hand a batch back. It must not be touched afterwards. */
void tier_answer(const struct kvt_env *env, struct tier_batch *batch);

/* tier_null_open - accepts every put, keeps nothing, misses every get. */
enum kvt_status tier_null_open(const struct kvt_env *env, struct tier **tier_out);

#endif /* KVT_TIERS_TIER_H */
