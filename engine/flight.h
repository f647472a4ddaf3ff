/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flight.h - what is under way for one entry: at most one flight an entry.
 *
 * Owns      the list of operations that wait for it, and one pin of the entry in every state but
 *           FILLING, so that neither the entry nor the copy it works on goes away.
 * Threads   the loop.
 *
 * States, and the function that makes each move:
 *
 *              commit_queue()         commit_batch_take()         batch_committed()
 *   FILLING ----------------> QUEUED -------------------> WRITING -----------------> (none)
 *      |   \                   |  ^ ^                        |
 *      |    +-> IMAGING --------|--|-+ commit_ready()        |
 *      |           |            |  |                         |
 *      | put_filled():         |  |  batch_retry(): failed, first time
 *      | MEMORY, or failed     |  +--------------------------+
 *      v           v            v commit_cancel(): deleted, cleared or dropped meanwhile
 *    (none)      (none)       (none)
 *
 *   READING ----------------> (none)          get_verified(), or the read failed
 *   LOWERING, RAISING ------> (none)          move_end() (move.c)
 *
 *   FILLING   The entry is FILLING; a worker copies into its slot. Nobody can see it.
 *   IMAGING   As QUEUED, but what will be written is not how HOST has it, and is still to be made
 *             (imaging.h).
 *   QUEUED    The entry is RESIDENT with a HOST copy and without an NVMe copy; waits for a batch.
 *             Flights begin so, too: of blocks that leave HOST, that a put finds in HOST, and whose
 *             copy on NVMe was bad (entry_nvme_condemn(); then has_replaced).
 *   WRITING   In a batch that is being written or committed. The entry may have been doomed since:
 *             then its record is killed when the batch is answered.
 *   READING   The entry has an NVMe copy and no HOST copy; its bytes are read into a slot of HOST.
 *   LOWERING  The entry has an HBM copy and no HOST copy; its bytes are copied into a slot of HOST.
 *   RAISING   The entry has a HOST copy and no HBM copy; its bytes are copied into a slot of HBM.
 */
#ifndef KVT_ENGINE_FLIGHT_H
#define KVT_ENGINE_FLIGHT_H

#include "request.h"

enum flight_state {
    FLIGHT_FILLING,
    FLIGHT_IMAGING,
    FLIGHT_QUEUED,
    FLIGHT_WRITING,
    FLIGHT_READING,
    FLIGHT_LOWERING,
    FLIGHT_RAISING,
};

/* One copy that shall never come back; or, with a zero fingerprint, a batch whose header stands at
 * `extent` and which shall not count. */
struct commit_kill {
    struct extent extent;
    struct hash128 fingerprint;
    uint64_t sequence; /* Records of the key up to this one are dead; 0: all written so far. */
    bool is_indexed;   /* The index has its record (with this CRC): delete it. */
    uint32_t record_crc;
    uint32_t stored_length; /* Of the copy, if the index has it. */
    struct op *waiter;      /* Its stage 2 is reached when the kill is durable; or NULL. */
};

struct image;

struct flight {
    enum flight_state state;
    uint32_t entry;
    uint8_t turn;                           /* patience.h */
    struct op_list waiters;                 /* Every state but QUEUED: for its end. */
    struct op_list durable_waiters;         /* For stage 2. */
    struct flight *newer, *older;           /* IMAGING, QUEUED and WRITING: in order. */
    struct flight *image_next, *image_last; /* IMAGING without an image: wait for a turn. */
    struct image *image;                    /* NULL: none, or none yet. */
    uint64_t due_ns;
    uint32_t attempt_count;
    struct commit_kill replaced; /* has_replaced: the copy on NVMe that its block takes the place
                                     * of. It dies in the commit that makes the block durable. */
    bool has_replaced;           /* FILLING, IMAGING, QUEUED, WRITING */
    struct op_list kill_waiters; /* WRITING: deletes that came meanwhile. */
    bool is_killed;              /* WRITING: deleted or cleared meanwhile. */
    bool is_room_kept;           /* is_killed: for the kill of its copy. */
    struct flight *killed_next;  /* is_killed: commit_killed_add(). */
    bool is_demotion;  /* A MEMORY block that leaves HOST: nobody waits, it may be dropped ... */
    bool is_asked_for; /* ... but not for a kvt_demote_submit(): then it stays. */
};

/* flight_is_coming - at its end the block may have a copy in HOST that it has not now. */
static inline bool
flight_is_coming(const struct flight *flight)
{
    return flight->state == FLIGHT_FILLING || flight->state == FLIGHT_READING ||
           flight->state == FLIGHT_LOWERING;
}

/* flight_is_waiting - for a batch. */
static inline bool
flight_is_waiting(const struct flight *flight)
{
    return flight->state == FLIGHT_IMAGING || flight->state == FLIGHT_QUEUED;
}

/* flight_is_commit - it waits for a batch, or is in one. */
static inline bool
flight_is_commit(const struct flight *flight)
{
    return flight_is_waiting(flight) || flight->state == FLIGHT_WRITING;
}

/* flight_replaces - its block takes the place of that copy. */
static inline bool
flight_replaces(const struct flight *flight, const struct extent *extent)
{
    return flight->has_replaced && flight->replaced.extent.segment == extent->segment &&
           flight->replaced.extent.generation == extent->generation &&
           flight->replaced.extent.page == extent->page;
}

struct kvt_store;

/* flight_create - and set the entry's flight; NULL when there is no memory. */
struct flight *flight_create(struct kvt_store *store, uint32_t entry, enum flight_state state);

/* flight_destroy - the entry has no flight afterwards; the lists must be empty. */
void flight_destroy(struct kvt_store *store, struct flight *flight);

#endif /* KVT_ENGINE_FLIGHT_H */
