/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inbox.h - how threads hand each other work: many producers, one consumer, no lock, no limit.
 *
 * A producer pushes a node that is embedded in what it hands over; the consumer takes everything
 * at once, oldest first. Bounds come from the pools the nodes are taken from. Pushing does not
 * wake anybody: the producer wakes the consumer's task when inbox_push() says that the inbox was
 * empty.
 *
 * Memory order: (I1) push releases, take acquires: what a producer wrote before the push is
 * visible to the consumer.
 */
#ifndef KVT_BASE_INBOX_H
#define KVT_BASE_INBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct inbox_node {
    struct inbox_node *next; /* Owned by the inbox between push and take. */
};

struct inbox {
    _Atomic(struct inbox_node *) newest;
};

#define CONTAINER_OF(pointer, type, member) \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

static inline bool
inbox_push(struct inbox *inbox, struct inbox_node *node)
{
    struct inbox_node *newest = atomic_load_explicit(&inbox->newest, memory_order_relaxed);

    do {
        node->next = newest;
    } while (!atomic_compare_exchange_weak_explicit(
        &inbox->newest, &newest, node, memory_order_release, memory_order_relaxed));
    return newest == NULL;
}

/* inbox_take - all nodes, oldest first, linked by `next`; NULL when there are none. */
static inline struct inbox_node *
inbox_take(struct inbox *inbox)
{
    struct inbox_node *node;
    struct inbox_node *oldest = NULL;

    if (atomic_load_explicit(&inbox->newest, memory_order_relaxed) == NULL)
        return NULL;
    node = atomic_exchange_explicit(&inbox->newest, NULL, memory_order_acquire);
    while (node != NULL) {
        struct inbox_node *next = node->next;

        node->next = oldest;
        oldest = node;
        node = next;
    }
    return oldest;
}

/* inbox_is_empty - a hint: staleness costs one more look. */
static inline bool
inbox_is_empty(struct inbox *inbox)
{
    return atomic_load_explicit(&inbox->newest, memory_order_relaxed) == NULL;
}

#endif /* KVT_BASE_INBOX_H */
