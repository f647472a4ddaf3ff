/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue_internal.h - what the rest of the engine needs of queues.
 */
#ifndef KVT_ENGINE_QUEUE_INTERNAL_H
#define KVT_ENGINE_QUEUE_INTERNAL_H

#include "request.h"

/* queue_is_of - whether it was made for this store (any). */
bool queue_is_of(const struct kvt_queue *queue, const struct kvt_store *store);

/* queue_expect - `count` completions will come (any). */
void queue_expect(struct kvt_queue *queue, uint32_t count);

/* queue_deliver - here is one; the queue holds its reference of the ticket (loop). */
void queue_deliver(struct kvt_queue *queue, struct completion *completion);

/* queues_wake - the store is poisoned: who waits for the descriptor of a queue is told (any).
 * queues_close - those that an abort made void. */
void queues_wake(struct kvt_store *store);
void queues_close(struct kvt_store *store);

#endif /* KVT_ENGINE_QUEUE_INTERNAL_H */
