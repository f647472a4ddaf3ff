/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flush.h - the tickets that still have something to make durable, and what could not be, for
 * kvt_flush().
 *
 * Threads   the loop; flush_kills() the thread that opens.
 */
#ifndef KVT_ENGINE_FLUSH_H
#define KVT_ENGINE_FLUSH_H

#include <stdint.h>

struct kvt_store;
struct kvt_ticket;

/* Tickets with two stages, from their delivery to the last stage, in the order of delivery. */
struct flush_list {
    struct kvt_ticket *oldest, *newest;
    uint64_t last_number;   /* Of the ticket that was delivered last. */
    uint64_t failure_count; /* Puts and deletes that could not be made durable, ... */
    uint64_t told_count;    /* ... and how many of them a flush has told. */
};

/* flush_expect - a flush that begins from now on waits for the ticket; flush_settle: none does. */
void flush_expect(struct kvt_store *store, struct kvt_ticket *ticket);
void flush_settle(struct kvt_store *store, struct kvt_ticket *ticket);

/* flush_kills - the kills that the engine has of its own are durable, or have failed
 * (commit_doubt()); for who opens a store: there is no ticket yet. */
void flush_kills(struct kvt_store *store);

/* flush_fail - a put or delete could not be made durable: the next flush tells.
 * flush_untold_count - how many no flush has told yet. */
void flush_fail(struct kvt_store *store);
uint64_t flush_untold_count(const struct kvt_store *store);

#endif /* KVT_ENGINE_FLUSH_H */
