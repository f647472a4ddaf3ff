/* SPDX-License-Identifier: Apache-2.0 */
/*
 * event_ring.h - the last events, for readers that the loop does not wait for.
 *
 * Owns      a ring of event_count_max events; the sequence numbers.
 * Not here  when something is an event: wherever a tier bit of a RESIDENT entry changes (copies.c,
 *           entry.c, commit_group.c).
 * Threads   event_add() the loop, kvt_events_read() any.
 *
 * A place of the ring is read without a lock: its sequence number is looked at before and after.
 * (V1) The writer voids the number, writes the event's words (release), then the new number
 *      (release). A reader that saw a new word (acquire) sees at the end that the old number is
 *      void: what it gives away is whole.
 */
#ifndef KVT_ENGINE_EVENT_RING_H
#define KVT_ENGINE_EVENT_RING_H

#include "kvtier/kvtier.h"

struct event_ring;
struct kvt_store;

/* event_ring_open - nothing when event_count_max is 0. After the recovery: what that finds is no
 * event. */
enum kvt_status event_ring_open(struct kvt_store *store);
void event_ring_close(struct kvt_store *store);

/* event_add - a copy of the entry, in one of enum residency_tier, came or went. Its key and length
 * are still those of the block. */
void event_add(struct kvt_store *store, uint32_t number, unsigned tier, enum kvt_event_kind kind,
    enum kvt_event_reason reason);

#endif /* KVT_ENGINE_EVENT_RING_H */
