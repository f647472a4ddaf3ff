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
 */
#ifndef KVT_ENGINE_REQUEST_H
#define KVT_ENGINE_REQUEST_H

#include "crew.h"
#include "hash.h"
#include "kvtier/kvtier.h"
#include "slab.h"
#include "tier.h"

struct kvt_store;

enum ticket_kind {
    TICKET_PUT,
    TICKET_GET,
    TICKET_DELETE,
};

/* What is sent to the loop: the loop calls `deliver` with it. Embedded first in what it carries. */
struct message {
    struct inbox_node node;
    void (*deliver)(struct kvt_store *store, struct message *message);
};

/* One block of a ticket. The loop's, from the submission to the last stage. */
struct op {
    struct kvt_ticket *ticket;
    struct op *next; /* In the one list that it waits in (room, flight). */
    struct block_key key;
    struct hash128 fingerprint;
    uint32_t namespace_epoch; /* Seen at submission. */
    uint32_t flags;           /* The caller's. */
    bool is_reached[2];       /* Stage 1, stage 2. */
    enum kvt_status status[2];
    uint32_t tier;
    uint64_t length; /* Put: payload; get: capacity, then payload. */
    const void *source;
    void *destination;
    struct hash128 parent;
    uint32_t depth, token_start, token_count, recompute_us, importance;
    uint16_t class_id;
    uint8_t hint;
};

struct completion {
    struct inbox_node node;
    struct kvt_ticket *ticket;
    uint32_t stage;
};

struct kvt_ticket {
    struct message message; /* To the loop. */
    struct kvt_store *store;
    enum ticket_kind kind;
    enum kvt_durability durability;
    uint32_t count;
    uint32_t last_stage;
    uint32_t left[2]; /* Operations that have not reached the stage. */
    enum kvt_status first_error[2];
    uint64_t submit_ns;
    struct kvt_queue *queue;
    void *user;
    struct completion completions[2];
    _Atomic uint32_t stage; /* Reached. */
    _Atomic uint32_t reference_count;
    _Atomic uint32_t is_freed; /* By the caller. */
    struct gate gate;
    size_t size; /* Of this allocation. */
    struct op ops[];
};

/*
 * op_reach - operation `op` has reached stage 1 or 2 with `status` (loop). After the last stage the
 * operation may be gone. Stage 1 is reached before stage 2.
 */
void op_reach(struct kvt_store *store, struct op *op, uint32_t stage, enum kvt_status status);

/* op_finish - every stage that is still open, with one status (loop). */
void op_finish(struct kvt_store *store, struct op *op, enum kvt_status status);

/* A first-in first-out list of operations, linked by `next`. */
struct op_list {
    struct op *first, *last;
};
void op_list_add(struct op_list *list, struct op *op);
struct op *op_list_take(struct op_list *list); /* NULL when empty. */

/* ticket_create - for `count` operations; KVT_E_BUSY, KVT_E_NOMEM. */
enum kvt_status ticket_create(struct kvt_store *store, enum ticket_kind kind, uint32_t count,
    const struct kvt_submit *submit, struct kvt_ticket **ticket_out);
void ticket_release(struct kvt_ticket *ticket);
void ticket_send(struct kvt_ticket *ticket);

#endif /* KVT_ENGINE_REQUEST_H */
