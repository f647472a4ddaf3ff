/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commit_internal.h - what commit.c (blocks and batches), commit_take.c (which blocks a batch has),
 * commit_group.c (transactions) and commit_kills.c (kills) share.
 *
 * Threads   the loop.
 */
#ifndef KVT_ENGINE_COMMIT_INTERNAL_H
#define KVT_ENGINE_COMMIT_INTERNAL_H

#include "commit_batch.h"
#include "kill_queue.h"
#include "store_internal.h"

enum {
    BATCH_COUNT = COMMIT_GROUP_MAX,
    GROUPS_OUT_MAX = 2,               /* The second saves the first a sync (committer.h). */
    GROUP_COUNT = GROUPS_OUT_MAX + 1, /* And one that goes ahead of a relocation. */
    WRITING_MAX = 3,       /* While one is synced the next is written, and one waits for it. */
    BATCH_BYTES = 8 << 20, /* A fuller batch gains nothing (measured). */
    ATTEMPTS_MAX = 2,
    COMMIT_KILLS_START = 2 * BATCH_COUNT * COMMIT_KILLS_MAX,
    KILL_PLACES = 2 * COMMIT_KILLS_MAX, /* Of a batch; a power of two. */
    KILLED_HEADS = 2048,                /* Of chains of flights that all batches have. */
};

_Static_assert(KILLED_HEADS >= BATCH_COUNT * COMMIT_BLOCKS_MAX, "their chains are short");

enum batch_state {
    BATCH_IDLE,
    BATCH_WRITING,
    BATCH_WRITTEN,
    BATCH_COMMITTING,
};

struct batch {
    struct batch_owner owner;
    enum batch_state state;
    struct batch *next; /* WRITTEN: the one that was written after it. */
    struct tier_batch tier_batch;
    struct tier_block blocks[COMMIT_BLOCKS_MAX];
    struct flight *flights[COMMIT_BLOCKS_MAX];
    uint32_t crcs[COMMIT_BLOCKS_MAX];
    struct tier_kill tier_kills[COMMIT_KILLS_MAX];
    struct kill_item kills[COMMIT_KILLS_MAX];
    uint16_t kill_places[KILL_PLACES]; /* While it has kills: commit_kills_note(). */
    uint32_t count, kill_count;
    uint32_t tier_kill_count; /* Those of the flights, void entries of others, its own. */
};

/* A transaction of batches: out while it has batches or a change. */
struct commit_group {
    struct commit_job job;
    struct batch *batches[COMMIT_GROUP_MAX]; /* COMMITTING, in order. */
    uint32_t count;
    struct segment_change *change; /* NULL: none. */
    struct index_work work;
    struct index_batch index_batch;
};

struct commit {
    struct batch *batches;                      /* BATCH_COUNT */
    struct commit_group *groups;                /* GROUP_COUNT */
    uint32_t group_count;                       /* Of them, out. */
    struct batch *written_first, *written_last; /* WRITTEN, in order. */
    struct segment_change *change;              /* Waits for a transaction; NULL: none. */
    struct flight *oldest, *newest;             /* QUEUED and WRITING, in order. */
    uint32_t queued_count;
    uint64_t queued_bytes;
    uint64_t due_ns;          /* The earliest of what waits. */
    uint64_t order;           /* Of the kill that came last. */
    uint64_t batch_bytes_max; /* Payload that fits into any free segment with its header. */
    struct kill_queue kills;  /* Waiting, in order. */
    uint64_t told_due_ns;     /* When told ones are tried again, if nothing comes. */
    uint32_t held_count;      /* Kills that travel with flights, or will come of killed ones. */
    uint32_t segment_last[STORE_ROOTS_MAX]; /* In which the root's last batch was written. */
    bool is_stalled;                        /* No room on NVMe; reclaiming. */
    uint64_t lack_until_ns;                 /* No space on the disks: none is written until then. */
    bool is_last_try;                       /* The store is being closed. */
    enum kvt_status lost_status; /* Why a kill was lost in this life; KVT_OK: none was. */
    bool is_record_left;         /* The index may have the record of a copy whose kill was lost. */
    /* Flights whose block is gone while it is written, by their fingerprints: of a key the last one
     * first. */
    struct flight *killed[KILLED_HEADS];
};

/* commit_flight_settle - the flight's work for durability is over, one way or the other: its
 * waiters learn how. */
void commit_flight_settle(struct kvt_store *store, struct flight *flight, enum kvt_status status);

/* commit_flight_bury - a copy that was written, and perhaps committed, but whose block was deleted
 * meanwhile. When its kill cannot be remembered: as commit_bury(). */
void commit_flight_bury(
    struct kvt_store *store, struct flight *flight, const struct commit_kill *kill);

/* commit_batch_take - the batch's flights, of those that are QUEUED: as many as fit, of any or, but
 * for SEGMENT_NONE, of those that replace in that segment. commit_uncount - the flight is QUEUED no
 * longer. */
void commit_batch_take(struct kvt_store *store, struct batch *batch, uint32_t segment);
void commit_uncount(struct kvt_store *store, const struct flight *flight);

/* commit_kills_due - the kills that wait, and nobody was told of; at the last try all of them. */
uint32_t commit_kills_due(const struct commit *commit);

/* commit_kills_note - the batch has its kills: from now on commit_kill_find() knows where they
 * are. */
void commit_kills_note(struct batch *batch);

/* commit_voids_travelling - the void entries of batches that are WRITING; at most `room`. Returns
 * how many; entries_out NULL: that alone. */
uint32_t commit_voids_travelling(
    const struct commit *commit, struct tier_kill *entries_out, uint32_t room);

/* kill_item_entry - as it stands in a header. */
static inline struct tier_kill
kill_item_entry(const struct kill_item *item)
{
    return (struct tier_kill){.extent = item->kill.extent,
        .fingerprint = item->kill.fingerprint,
        .sequence = item->sequence};
}

/* commit_kill_find - a kill of that key that waits or travels, or a void entry, whose batch may
 * have a copy; NULL. The first that waits, or else of the first batch that has one. */
const struct kill_item *commit_kill_find(const struct commit *commit, struct hash128 fingerprint);

/* commit_killed_add - the flight's block is gone while it is written. Room is kept for the kill of
 * its copy, if there is some: there is behind commit_kill_reserve(). commit_killed_remove: the
 * flight ends. */
void commit_killed_add(struct kvt_store *store, struct flight *flight);
void commit_killed_remove(struct kvt_store *store, struct flight *flight);

/* commit_batch_end - -> IDLE; commit_batch_fail: after everything of it has failed for good. */
void commit_batch_end(struct kvt_store *store, struct batch *batch);
void commit_batch_fail(struct kvt_store *store, struct batch *batch, enum kvt_status status);

/* commit_replaces_in - the flight's block takes the place of a copy in that segment. */
static inline bool
commit_replaces_in(const struct flight *flight, uint32_t segment)
{
    return flight->has_replaced && flight->replaced.extent.segment == segment;
}

/*
 * commit_batch_ahead - NVMe has no room for batches, and copies in that segment, which is being
 * reclaimed, live until the blocks that replace them are durable: these blocks go ahead of all
 * others, into the room that is kept for reclaiming. Nothing else keeps the segment: it is given
 * back when they are durable. KVT_E_NOSPC: not even there is room. KVT_MISS: none is QUEUED.
 * KVT_NOT_READY: every batch is under way, or the disks have no space now. After any other failure
 * they have failed.
 */
enum kvt_status commit_batch_ahead(struct kvt_store *store, uint32_t segment);

/* commit_group_add - WRITING -> WRITTEN: the next transaction takes the batch. */
void commit_group_add(struct kvt_store *store, struct batch *batch);

/* commit_group_step - the next transaction, when fewer than two are out: of all batches that are
 * WRITTEN by now (one sync answers several), or, when none is out, of a segment's change alone if
 * no batch will take it. While one with such a change is out there is no other: the facts of that
 * segment are not yet in memory. */
bool commit_group_step(struct kvt_store *store);

/* commit_kill_lose - the kill of a copy could not be remembered, and the index may have its record:
 * kill_lost_count, commit_doubt(), and no delete at all is promised in this life. */
void commit_kill_lose(struct kvt_store *store);

/* commit_kills_tell - nothing can be written now: whoever waits for a kill, in `batch` or behind
 * it, is told. All but echoes stay, in their order, and are tried again with the next batch, or
 * after a pause: dropped, each would be a block that comes back with the next open, while this life
 * goes on with the same key. */
void commit_kills_tell(struct kvt_store *store, struct batch *batch, enum kvt_status status);

/* commit_kill_answer - the kill is durable, or will never be: whoever waits for it is told. With a
 * failure, too, if it goes with another of its key, and a kill was lost in this life. */
void commit_kill_answer(
    struct kvt_store *store, const struct kill_item *item, enum kvt_status status);

#endif /* KVT_ENGINE_COMMIT_INTERNAL_H */
