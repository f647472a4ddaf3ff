/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commit.h - group commit: from blocks that shall be durable to a commit of the index.
 *
 * Owns      the queue of blocks that wait, the kills that wait, the batches under way.
 * Not here  the index's thread (committer.h), reclaiming (reclaim.h).
 * Threads   the loop.
 *
 * States of a batch, and the function that makes each move:
 *
 *   IDLE --batch_close()--> WRITING --commit_group_add()--> WRITTEN --group_submit()--> COMMITTING
 *     ^                        |                                                          |
 *     +--batch_written():------+                             group_committed()            |
 *     |  write or sync failed                                                             |
 *     +-----------------------------------------------------------------------------------+
 *
 *   IDLE        Empty.
 *   WRITING     The tier has it: header and payloads are written and synced.
 *   WRITTEN     Durable as bytes. A transaction of earlier batches is out.
 *   COMMITTING  Which of its blocks still count was decided; the committer has the transaction.
 *
 * While a transaction of batches is out, others that are WRITTEN wait, and the next transaction
 * takes them all, in the order in which they were closed: the two syncs of a commit are shared
 * when batches are written faster than they are committed.
 *
 * A batch is closed at once when none is WRITING, else when it is full (256 blocks or 8 MiB) or its
 * oldest block has waited batch_delay_ns. commit_take.c says which blocks it takes.
 */
#ifndef KVT_ENGINE_COMMIT_H
#define KVT_ENGINE_COMMIT_H

#include "flight.h"
#include "tier.h"

struct commit;
struct index_work;
struct segment_change;

enum kvt_status commit_open(struct kvt_store *store);
void commit_close(struct kvt_store *store); /* Nothing may be under way. */

/*
 * commit_queue - -> QUEUED, or IMAGING first: make the flight's entry, RESIDENT in HOST, durable by
 * `due_ns`. The flight takes a pin of it.
 */
void commit_queue(struct kvt_store *store, struct flight *flight, uint64_t due_ns);

/* commit_ready - IMAGING -> QUEUED. */
void commit_ready(struct kvt_store *store, struct flight *flight);

/* commit_hurry - due no later than `due_ns`; commit_hurry_all: everything is due now. */
void commit_hurry(struct kvt_store *store, struct flight *flight, uint64_t due_ns);
void commit_hurry_all(struct kvt_store *store);

/*
 * commit_cancel - the block was deleted, cleared or dropped. IMAGING, QUEUED: the flight ends, its
 * waiters get `status`, and false is returned: nothing of it is on disk. WRITING: true; the copy
 * that is being written will be killed when its batch is answered, and `waiter` (a delete, may be
 * NULL) is then told. So it is, when the kill is durable, if the block was to take the place of
 * another copy.
 */
bool commit_cancel(
    struct kvt_store *store, struct flight *flight, enum kvt_status status, struct op *waiter);

/* commit_kill - remember a kill of everything that was written for its key so far; a store that is
 * opened for reading only has none. KVT_E_NOMEM. */
enum kvt_status commit_kill(struct kvt_store *store, const struct commit_kill *kill);

/* commit_kill_reserve - the next commit_kill(), or commit_replace(), will not fail, if no operation
 * was begun in between: it may take the room. KVT_E_NOMEM. */
enum kvt_status commit_kill_reserve(struct kvt_store *store);

/* commit_bury - commit_kill() for a copy that nobody waits for; when it cannot be remembered (no
 * memory) the next open may bring that copy back: kill_lost_count, commit_doubt(), and no delete is
 * promised in this life, since the copy may be an older one of its key. */
void commit_bury(struct kvt_store *store, const struct commit_kill *kill);

/*
 * commit_void - a batch whose write or sync failed may be on the disk all the same: say in the next
 * batch that it does not count (strays.h has the crash before that). When it cannot be remembered
 * (no memory) a rebuild may take it for good: kill_lost_count, and commit_doubt().
 */
void commit_void(struct kvt_store *store, const struct tier_batch *batch);

/* commit_voids - the void entries that are not durable yet, which each batch with blocks says
 * again: whoever finds one that was put behind the answer of a batch that failed knows of that. At
 * most `room`; returns how many; entries_out NULL: that alone. */
uint32_t commit_voids(const struct kvt_store *store, struct tier_kill *entries_out, uint32_t room);

/* commit_doubt - what was once written for any key may come back: deletes that have nothing of
 * their own to make durable fail with `status` from now on, also those that wait already. */
void commit_doubt(struct kvt_store *store, enum kvt_status status);

/* commit_is_in_doubt - commit_doubt() was called: the next open is to do what it does after a
 * crash. */
bool commit_is_in_doubt(const struct kvt_store *store);

/*
 * commit_kill_settle - a delete has nothing of its own to make durable; but a block of its key may
 * be gone and not durably so. `waiter` reaches stage 2 with `status` at once, or when that is
 * durable; with a failure if a kill was lost in this life, or there is no memory to wait.
 */
void commit_kill_settle(
    struct kvt_store *store, struct hash128 fingerprint, enum kvt_status status, struct op *waiter);

/*
 * commit_replace - the flight's block takes the place of a copy: its kill travels with the block,
 * so that a crash leaves one of the two. After commit_kill_reserve(). commit_replace_end: the block
 * does not become durable (now), and the kill, if there is one, goes on alone.
 */
void commit_replace(struct kvt_store *store, struct flight *flight, const struct commit_kill *kill);
void commit_replace_end(struct kvt_store *store, struct flight *flight);

/* commit_replace_take - the block leaves what it was to replace to another. False: there is
 * nothing. */
bool commit_replace_take(
    struct kvt_store *store, struct flight *flight, struct commit_kill *kill_out);

/* commit_replace_leave - the copies in that segment whose place blocks will take leave it with the
 * batches of these blocks. When there is no room for batches these blocks go first, with some of
 * the room that is kept for reclaiming; and when that is not enough the copies are evicted: a crash
 * may then leave neither. True: none is left; else ask again after the next step. */
bool commit_replace_leave(struct kvt_store *store, uint32_t segment);

bool commit_step(struct kvt_store *store);
uint64_t commit_next_ns(struct kvt_store *store); /* When it must be called again. */

/* commit_is_idle - nothing queued, nothing under way, but for kills that could not be written and
 * are tried again; commit_is_at_rest: not even these. commit_try_last: from now on what cannot be
 * written is given up. */
bool commit_is_idle(struct kvt_store *store);
bool commit_is_at_rest(struct kvt_store *store);
void commit_try_last(struct kvt_store *store);

/* commit_kill_mark - a point in the order of kills; commit_kills_have_passed: all before it, also
 * those that nobody has asked for, are durable, or their failure was told. */
uint64_t commit_kill_mark(const struct kvt_store *store);
bool commit_kills_have_passed(const struct kvt_store *store, uint64_t mark);

/* commit_uses - a batch in that segment was written and is not yet committed. */
bool commit_uses(struct kvt_store *store, uint32_t segment);

/* commit_writes - a batch in that segment is in no transaction yet. */
bool commit_writes(struct kvt_store *store, uint32_t segment);

/* commit_batch_number - the next number of a write batch; commit_batch_bytes_max: the most payload
 * that one takes, unless it is a single block. */
uint64_t commit_batch_number(struct kvt_store *store);
uint64_t commit_batch_bytes_max(const struct kvt_store *store);

/* commit_touch - a batch was written: the facts of its segment are to be committed, and those of
 * the segment that was closed for it. Batches are committed in the order of their numbers. */
void commit_touch(struct kvt_store *store, struct index_work *work, const struct tier_batch *batch);

/* commit_segment - the change goes with the next transaction of batches, so that its syncs cost
 * nothing; at once when no batch is being written. One at a time. */
void commit_segment(struct kvt_store *store, struct segment_change *change);

/* commit_unstall - there may be room on NVMe again. */
void commit_unstall(struct kvt_store *store);

/* commit_abandon - what is QUEUED is given up (abort): whoever waits is told KVT_MISS. */
void commit_abandon(struct kvt_store *store);

/* commit_failed - the index refused a commit, which may be on the disk all the same, for good:
 * META_READONLY, and deletes are in doubt. */
void commit_failed(struct kvt_store *store);

#endif /* KVT_ENGINE_COMMIT_H */
