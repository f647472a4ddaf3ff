/* SPDX-License-Identifier: Apache-2.0 */
/*
 * phase.h - chains whose requests wait for something outside: kvt_phase_set().
 *
 * Owns      what is remembered of each wait: a ticket of prefetches, not yet sent, whose operations
 *           say which blocks go back to which HBM.
 * Threads   the loop.
 *
 * The life of a wait:
 *
 *            wait_begin()             time is short: phases_step()
 *   (none) ---------------> WAITING ---------------------------------> sent, and forgotten
 *                              |     PREFILL, DECODE: waits_resume()
 *                              |
 *                              +--> replaced by the same wait, closed: wait_drop()
 *
 *   WAITING   Its prefetches have not begun; the ticket has one reference, the wait's. The ticket
 *             of its demotions was sent (if it has any), and has reached its stage or not.
 *
 * phases_check() asserts these facts.
 */
#ifndef KVT_ENGINE_PHASE_H
#define KVT_ENGINE_PHASE_H

#include <stdbool.h>
#include <stdint.h>

struct kvt_store;
struct kvt_ticket;

enum {
    PHASE_WAITS_SHARE = 4, /* One in so many of request_count_max may be a wait's. */
};

struct wait {
    struct wait *next;
    struct kvt_ticket *down; /* Its demotions. */
    struct kvt_ticket *up;   /* Its prefetches. */
    uint64_t chain;          /* Hash of its keys, ... */
    uint32_t key_count;      /* ... and how many they are. */
    uint64_t resume_ns;
    uint64_t look_ns; /* When to see whether it is time; UINT64_MAX: never. */
};

/* All waits of a store. */
struct phases {
    struct wait *first;
    uint32_t wait_count;
    uint32_t block_count; /* That are remembered. */
    uint64_t look_ns;     /* When phases_step() has something to do; UINT64_MAX: nothing. */
};

void phases_open(struct kvt_store *store);

/* phases_step - send what shall be back soon; true when there was any. */
bool phases_step(struct kvt_store *store);

/* phases_end - forget all waits; or, when the loop has ended, free them. */
void phases_end(struct kvt_store *store);

#endif /* KVT_ENGINE_PHASE_H */
