/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waiters.c - callers' threads that are asleep in a call of the store (waiters.h).
 */
#include "store_internal.h"

struct waiter {
    struct waiter *next, *previous;
    struct gate *gate;
};

void
waiters_init(struct waiters *waiters)
{
    pthread_mutex_init(&waiters->lock, NULL);
    waiters->first = NULL;
}

void
waiters_deinit(struct waiters *waiters)
{
    pthread_mutex_destroy(&waiters->lock);
}

static void
waiter_add(struct waiters *waiters, struct waiter *waiter)
{
    pthread_mutex_lock(&waiters->lock);
    waiter->next = waiters->first;
    if (waiter->next != NULL)
        waiter->next->previous = waiter;
    waiters->first = waiter;
    pthread_mutex_unlock(&waiters->lock);
}

static void
waiter_remove(struct waiters *waiters, struct waiter *waiter)
{
    pthread_mutex_lock(&waiters->lock);
    if (waiter->next != NULL)
        waiter->next->previous = waiter->previous;
    if (waiter->previous != NULL)
        waiter->previous->next = waiter->next;
    else
        waiters->first = waiter->next;
    pthread_mutex_unlock(&waiters->lock);
}

void
store_gate_wait(struct kvt_store *store, struct gate *gate, uint32_t seen, uint64_t until_ns)
{
    struct waiter waiter = {.gate = gate};

    waiter_add(&store->waiters, &waiter);
    /* Poisoned before it was added: waiters_wake() may have missed it. Else the gate is posted. */
    if (!store_is_poisoned(store))
        gate_wait(&store->env, gate, seen, until_ns);
    waiter_remove(&store->waiters, &waiter);
}

void
waiters_wake(struct kvt_store *store)
{
    struct waiters *waiters = &store->waiters;

    pthread_mutex_lock(&waiters->lock);
    for (struct waiter *waiter = waiters->first; waiter != NULL; waiter = waiter->next)
        gate_post(&store->env, waiter->gate);
    pthread_mutex_unlock(&waiters->lock);
}
