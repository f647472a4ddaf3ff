/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kill_queue.h - the kills that wait, in their order, which of them is the first of its key, and
 * which of them nobody was told of.
 *
 * Owns      the slots of kills: those that wait are linked in their order, and those of them that
 *           are not told once more. Of each fingerprint the first stands in a hash table whose
 *           heads lie in the slots, and the others behind it.
 * Not here  when a kill is written, and who waits for it (commit_kills.c).
 * Memory    what kill_queue_grow() has taken; nothing else can fail.
 * Costs     kill_queue_find(), _add(), _take() and _tell() do not depend on how many wait.
 *
 * Threads   the loop.
 */
#ifndef KVT_ENGINE_KILL_QUEUE_H
#define KVT_ENGINE_KILL_QUEUE_H

#include "flight.h"

/* A kill that waits, or travels in a batch. */
struct kill_item {
    struct commit_kill kill;
    uint64_t sequence;
    uint64_t order; /* 0: a void entry, which goes first. */
    bool is_told;   /* That it is not durable: it is tried again, and nobody waits for that. */
    bool is_echo;   /* Of one before it, which stays when this one is told: it goes then. */
};

/* Slots are named by their numbers, from 1; 0: none. */
struct kill_slot {
    struct kill_item item;
    uint32_t next;           /* That waits; of a spare one: that is spare. */
    uint32_t previous;       /* That waits. */
    uint32_t next_untold;    /* Of one that is not told. */
    uint32_t alike;          /* The next of its fingerprint. */
    uint32_t alike_previous; /* The one before it; of the first of a fingerprint: the last. */
    uint32_t other; /* Of the first of a fingerprint: the first of another in its bucket. */
    uint32_t head;  /* Of the bucket that has this slot's number, from 0. */
};

/* All zero: empty, without memory. */
struct kill_queue {
    struct kill_slot *slots;
    uint32_t capacity; /* One more than it holds. */
    uint32_t count;
    uint32_t untold_count;
    uint32_t first, last;               /* That wait. */
    uint32_t first_untold, last_untold; /* Told ones may stand before, between and behind them. */
    uint32_t spare;                     /* Used once, and not now; ... */
    uint32_t used_count;                /* ... those above it never were. */
};

/* kill_queue_open - for `capacity` less one. False: no memory. kill_queue_grow: for twice as many;
 * false: no memory, and nothing has changed. */
bool kill_queue_open(struct kill_queue *queue, const struct kvt_env *env, uint32_t capacity);
bool kill_queue_grow(struct kill_queue *queue, const struct kvt_env *env);
void kill_queue_close(struct kill_queue *queue, const struct kvt_env *env);

/* kill_queue_add - one that is not told, behind all that wait, and of no lower order. There is
 * room. */
void kill_queue_add(struct kill_queue *queue, const struct kill_item *item);

/* kill_queue_return - some that are in their order, each behind those that wait and are not of a
 * higher one. There is room. */
void kill_queue_return(struct kill_queue *queue, const struct kill_item *items, uint32_t count);

/* kill_queue_take - the first; there is one. */
void kill_queue_take(struct kill_queue *queue, struct kill_item *item_out);

/* kill_queue_tell - the first that is not told is told from now on, and has no waiter any more; an
 * echo goes. False: all are. */
bool kill_queue_tell(struct kill_queue *queue, struct op **waiter_out);

/* kill_queue_find - the first that is a void entry, or of that fingerprint; NULL. */
const struct kill_item *kill_queue_find(const struct kill_queue *queue, struct hash128 fingerprint);

#endif /* KVT_ENGINE_KILL_QUEUE_H */
