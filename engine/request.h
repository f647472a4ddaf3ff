/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.h - tickets, their operations, and queues.
 *
 * A ticket is one submission of n operations. The caller's thread fills it and sends it to the
 * loop; the loop writes each operation's outcome, and when all have reached a stage it publishes
 * the stage once: results are written before `stage` is raised (release), read after it was seen
 * (acquire).
 *
 * Life of a ticket, by references: one of the caller (until kvt_ticket_free), one of the loop
 * (until the last stage), one of each completion that lies in a queue.
 *
 * As one of request_count_max it counts as long as somebody has a claim: its caller, and the loop,
 * which gives its own up before it tells the last stage, or leaves it to who collects that from a
 * queue. So who was told, and frees the ticket, may submit another at once.
 */
#ifndef KVT_ENGINE_REQUEST_H
#define KVT_ENGINE_REQUEST_H

#include "crew.h"
#include "devices.h"
#include "hash.h"
#include "kvtier/kvtier.h"
#include "patience.h"
#include "slab.h"
#include "ticket_parts.h"
#include "tier.h"

struct kvt_store;
struct layout;

enum ticket_kind {
    TICKET_PUT,
    TICKET_GET,
    TICKET_DELETE,
    TICKET_PREFETCH,
    TICKET_DEMOTE,
};

/* What is sent to the loop: the loop calls `deliver` with it. Embedded first in what it carries. */
struct message {
    struct inbox_node node;
    void (*deliver)(struct kvt_store *store, struct message *message);
};

/* Where an operation's memory lies: a device (0..7), or one of these. */
enum {
    MEMORY_PLAIN = -1,  /* Host memory that no device knows. */
    MEMORY_PINNED = -2, /* Host memory in a region. */
};

/* A block that is put anew while an operation waits for its move is looked for again, but not for
 * ever: others may put it without end. Eight times is no chance any more. */
enum {
    OP_LOSSES_MAX = 8,
};

/* One block of a ticket. The loop's, from the submission to the last stage. */
struct op {
    struct kvt_ticket *ticket;
    struct op *next, *previous; /* In the one list that it waits in (room, flight). */
    struct op_list *list;       /* That list, between steps of the loop; NULL: it waits in none. */
    struct block_key key;
    struct hash128 fingerprint;
    uint32_t near;            /* Entry that most likely is its block's, or ENTRY_NONE. */
    uint32_t namespace_epoch; /* Seen at submission. */
    uint32_t flags;           /* The caller's. */
    struct entry_use moved;   /* The entry that it last waited for, and of which alone the next five
                               * say something (op_look()). number_more 0: none yet. */
    bool is_brought;          /* Its block was read into HOST for it once, or it joined a read that
                               * failed: not a second time. */
    bool is_lowered;          /* The same: copied down from HBM, or that could not begin. */
    bool is_raised;           /* Prefetch: and from there to HBM. */
    bool is_written;          /* Demote: and from there to NVMe. */
    bool is_direct;           /* Put: the caller has written the bytes into a slot of HOST ... */
    bool is_queued;           /* Its copy was counted in its part's mark. */
    bool has_slot;            /* ... which is the operation's: no fill has it yet. Prefetch: one of
                               * HBM, for what it brings. */
    bool is_reached[2];       /* Stage 1, stage 2. */
    enum kvt_status status[2];
    enum kvt_status moved_status; /* Of the last copy, read or write that it waited for. */
    uint32_t loss_count;          /* How often its block was put anew while it waited. */
    struct patience patience;     /* While it waits for room. */
    uint32_t tier;
    uint32_t slot;   /* has_slot: its number. */
    uint64_t length; /* Put: payload; get: capacity, then payload. */
    const void *source;
    void *destination;
    struct layout *layout; /* How the memory is spread (source and destination are NULL then); kept
                            * until stage 1. NULL: it is one run. */
    uint32_t layout_slot;
    kvt_region region;    /* Kept until stage 1; 0: none. */
    int8_t memory_device; /* Of source or destination. */
    uint8_t device;       /* Put, HBM first; prefetch: which one. */
    uint8_t target;       /* enum kvt_tiers: put: kept first; prefetch, demote: where to. */
    struct hash128 parent;
    uint32_t depth, token_start, token_count, recompute_us, importance;
    uint16_t class_id;
    uint8_t hint;
    uint16_t part_first, part_count; /* Put: part_count, 1..; get: which; 0, 0: the whole block. */
};

struct completion {
    struct inbox_node node;
    struct kvt_ticket *ticket;
    uint32_t stage;
};

struct kvt_ticket {
    struct message message; /* To the loop. */
    struct message cancel;  /* The same, once at most: is_cancelled. */
    struct kvt_store *store;
    enum ticket_kind kind;
    enum kvt_durability durability;
    uint32_t count;       /* Operations: block_count x part_total. */
    uint32_t block_count; /* As submitted. */
    uint32_t slot_count;  /* Operations that there is memory for; parts may lie in the last. */
    uint16_t part_first, part_total; /* is_by_part: which; else 0, 1. */
    bool is_by_part;
    int8_t mark_device;        /* parts: device whose copies are marked; -1: none. */
    uint8_t device_mask;       /* Gets: whose memory destinations lie in. */
    struct ticket_part *parts; /* part_total; NULL: nobody can ask. */
    struct entry_use *uses;    /* By part: of each block the entry that its parts are read from. */
    struct ticket_part whole;  /* The one of a ticket that is not by part. */
    uint32_t last_stage;
    uint32_t left[2]; /* Operations that have not reached the stage. */
    uint64_t submit_ns;
    struct kvt_queue *queue;
    void *user;
    struct completion completions[2];
    void *wait_event;     /* NULL: none. */
    uint64_t deadline_ns; /* Prefetch: nothing is started later. */
    bool is_bulk;         /* Prefetch: its reads give way to others. */
    struct device_job wait_job;
    bool is_waiting;                  /* For that event. */
    struct kvt_ticket *older, *newer; /* flush.c: two stages, from delivery to the last of them. */
    uint64_t flush_number;
    uint32_t hold_count; /* That wait for it. */
    _Atomic uint32_t is_cancelled;
    _Atomic uint32_t stage; /* Reached. */
    _Atomic uint32_t reference_count;
    _Atomic uint32_t claim_count;
    _Atomic uint32_t is_freed; /* By the caller. */
    struct gate gate;
    struct kvt_ticket *next, *previous; /* In ticket_pool.c: free ones, or those that are out. */
    struct op ops[];
};

/* op_is_transient - a get that leaves no copy in HOST. */
static inline bool
op_is_transient(const struct op *op)
{
    return op->ticket->kind == TICKET_GET && (op->flags & KVT_GET_TRANSIENT) != 0;
}

/* op_is_outrun - its block was put anew so often that it is a miss. */
static inline bool
op_is_outrun(const struct op *op)
{
    return op->loss_count >= OP_LOSSES_MAX;
}

/* op_moved_status - what an operation is told whose block could not be brought to where it should
 * be: that it found no memory or no room, else `otherwise`. */
static inline enum kvt_status
op_moved_status(const struct op *op, enum kvt_status otherwise)
{
    return op->moved_status == KVT_E_NOMEM || op->moved_status == KVT_E_NOSPC ? op->moved_status
                                                                              : otherwise;
}

/*
 * op_reach - operation `op` has reached stage 1 or 2 with `status` (loop). After the last stage the
 * operation may be gone. Stage 1 is reached before stage 2.
 */
void op_reach(struct kvt_store *store, struct op *op, uint32_t stage, enum kvt_status status);

/* op_finish - every stage that is still open, with one status (loop). Of a get nothing came: it has
 * the length 0. */
void op_finish(struct kvt_store *store, struct op *op, enum kvt_status status);

/* op_slot_put - give back the slot that it has, if any. */
void op_slot_put(struct kvt_store *store, struct op *op);

/* op_cancel - of one that is in no list and not at work: it ends with KVT_CANCELLED (loop). */
void op_cancel(struct kvt_store *store, struct op *op);

/* op_memory_unuse - nothing touches the operation's memory any more: region and layout are let go.
 * By op_reach(), or for a ticket that was never sent (any). */
void op_memory_unuse(struct kvt_store *store, struct op *op);

/* A first-in first-out list of operations, linked by `next`. An operation that waits can be taken
 * out by kvt_ticket_cancel() until its stage 1 is reached: whoever moves a whole list to another
 * place does so operation by operation. */
struct op_list {
    struct op *first, *last;
};
void op_list_add(struct op_list *list, struct op *op);
struct op *op_list_take(struct op_list *list); /* NULL when empty. */
/* op_list_append - `others` were taken out of `list` together, and come back behind what it has. */
void op_list_append(struct op_list *list, struct op_list *others);

/* ticket_create - for `count` operations; KVT_E_BUSY, KVT_E_NOMEM. ticket_create_by_part - for each
 * of `part_total` parts of `count` blocks. */
enum kvt_status ticket_create(struct kvt_store *store, enum ticket_kind kind, uint32_t count,
    const struct kvt_submit *submit, struct kvt_ticket **ticket_out);
enum kvt_status ticket_create_by_part(struct kvt_store *store, uint32_t count, uint16_t part_total,
    const struct kvt_submit *submit, struct kvt_ticket **ticket_out);
void ticket_release(struct kvt_ticket *ticket);
/* ticket_unclaim - one claim less. ticket_drop - the caller's claim and reference, or those that
 * the engine has in its place. */
void ticket_unclaim(struct kvt_ticket *ticket);
void ticket_drop(struct kvt_ticket *ticket);
/* ticket_disown - it is no caller's: its reference is the engine's own, and closes nothing off. */
void ticket_disown(struct kvt_ticket *ticket);
void ticket_send(struct kvt_ticket *ticket);

/* ticket_block_op - the operation that speaks for block `i`, which may have one for each of its
 * parts, all of which have reached the stage: the first with an error; where there is none, the
 * first that has another status than KVT_OK. */
const struct op *ticket_block_op(const struct kvt_ticket *ticket, uint32_t stage, uint32_t i);

/* ticket_status - of a stage that was reached, what a completion tells: the first of its results
 * that is an error, KVT_OK (any). */
enum kvt_status ticket_status(const struct kvt_ticket *ticket, uint32_t stage);

/* ticket_await - until `fact`, which is told through the ticket's gate, is `least` or more (any).
 * KVT_LATE: not within `timeout_ns`. */
enum kvt_status ticket_await(
    struct kvt_ticket *ticket, const _Atomic uint32_t *fact, uint32_t least, uint64_t timeout_ns);

#endif /* KVT_ENGINE_REQUEST_H */
