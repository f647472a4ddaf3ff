/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waiters.h - callers' threads that are asleep in a call of the store, and what wakes all of them:
 * a proof that failed. Who answered them otherwise may have been what broke.
 *
 * Owns      the list of those that are asleep; their gates belong to what they wait for.
 * Threads   any.
 */
#ifndef KVT_ENGINE_WAITERS_H
#define KVT_ENGINE_WAITERS_H

#include <pthread.h>

#include "env.h"

struct kvt_store;
struct waiter;

struct waiters {
    pthread_mutex_t lock;
    struct waiter *first;
};

void waiters_init(struct waiters *waiters);
void waiters_deinit(struct waiters *waiters);

/* store_gate_wait - gate_wait(), but not in a poisoned store, and it ends when the store is
 * poisoned. Like that it may return for nothing: look again at what is waited for, and behind it
 * at store_enter(). */
void store_gate_wait(struct kvt_store *store, struct gate *gate, uint32_t seen, uint64_t until_ns);

/* waiters_wake - all of them, behind the mark that the store is poisoned. */
void waiters_wake(struct kvt_store *store);

#endif /* KVT_ENGINE_WAITERS_H */
