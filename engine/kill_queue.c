/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kill_queue.c - the kills that wait. See kill_queue.h.
 */
#include "kill_queue.h"

#include "array.h"
#include "failure.h"

bool
kill_queue_open(struct kill_queue *queue, const struct kvt_env *env, uint32_t capacity)
{
    queue->slots = env_take(env, capacity * sizeof(*queue->slots));
    queue->capacity = queue->slots == NULL ? 0 : capacity;
    return queue->slots != NULL;
}

void
kill_queue_close(struct kill_queue *queue, const struct kvt_env *env)
{
    env_put(env, queue->slots, queue->capacity * sizeof(*queue->slots));
    *queue = (struct kill_queue){0};
}

/* --- The index -------------------------------------------------------------------------------- */

/* Where the number of the first of that fingerprint is, or would be. */
static uint32_t *
first_link(const struct kill_queue *queue, struct hash128 fingerprint)
{
    /* Fingerprints are uniform. */
    uint32_t *link = &queue->slots[fingerprint.low % queue->capacity].head;

    while (*link != 0 && !hash128_equal(queue->slots[*link].item.kill.fingerprint, fingerprint))
        link = &queue->slots[*link].other;
    return link;
}

static void
index_add(struct kill_queue *queue, uint32_t number)
{
    struct kill_slot *slots = queue->slots;
    struct kill_slot *slot = &slots[number];
    uint32_t *link = first_link(queue, slot->item.kill.fingerprint);
    uint32_t first = *link;
    uint32_t at;

    slot->alike = 0;
    if (first == 0 || slots[first].item.order > slot->item.order) {
        slot->alike = first;
        slot->alike_last = first == 0 ? number : slots[first].alike_last;
        slot->other = first == 0 ? 0 : slots[first].other;
        *link = number;
        return;
    }
    at = slots[first].alike_last;
    if (slots[at].item.order > slot->item.order) {
        for (at = first; slots[slots[at].alike].item.order <= slot->item.order;)
            at = slots[at].alike;
    } else {
        slots[first].alike_last = number;
    }
    slot->alike = slots[at].alike;
    slots[at].alike = number;
}

/* The first that waits: so it is the first of its fingerprint. */
static void
index_remove(struct kill_queue *queue, uint32_t number)
{
    const struct kill_slot *slot = &queue->slots[number];
    uint32_t *link = first_link(queue, slot->item.kill.fingerprint);

    KVT_ASSERT(*link == number);
    if (slot->alike == 0) {
        *link = slot->other;
        return;
    }
    queue->slots[slot->alike].alike_last = slot->alike_last;
    queue->slots[slot->alike].other = slot->other;
    *link = slot->alike;
}

/* Of all that wait. */
static void
index_build(struct kill_queue *queue)
{
    for (uint32_t i = 0; i < queue->capacity; i++)
        queue->slots[i].head = 0;
    for (uint32_t at = queue->first; at != 0; at = queue->slots[at].next)
        index_add(queue, at);
}

bool
kill_queue_grow(struct kill_queue *queue, const struct kvt_env *env)
{
    struct kill_slot *grown =
        array_grow(env, queue->slots, &queue->capacity, sizeof(*queue->slots));

    if (grown == NULL)
        return false;
    queue->slots = grown;
    index_build(queue);
    return true;
}

/* --- The queue -------------------------------------------------------------------------------- */

/* Behind `previous`; 0: before all. Returns its number. */
static uint32_t
item_insert(struct kill_queue *queue, uint32_t previous, const struct kill_item *item)
{
    uint32_t *link = previous == 0 ? &queue->first : &queue->slots[previous].next;
    uint32_t number = queue->spare;

    if (number != 0)
        queue->spare = queue->slots[number].next;
    else
        number = ++queue->used_count;
    KVT_ASSERT(number < queue->capacity);
    queue->slots[number].item = *item;
    queue->slots[number].next = *link;
    *link = number;
    if (queue->last == previous)
        queue->last = number;
    queue->count++;
    index_add(queue, number);
    return number;
}

void
kill_queue_add(struct kill_queue *queue, const struct kill_item *item)
{
    (void)item_insert(queue, queue->last, item);
}

void
kill_queue_return(struct kill_queue *queue, const struct kill_item *items, uint32_t count)
{
    uint32_t previous = 0;
    uint32_t next = queue->first;

    for (uint32_t i = 0; i < count; i++) {
        while (next != 0 && queue->slots[next].item.order <= items[i].order) {
            previous = next;
            next = queue->slots[next].next;
        }
        previous = item_insert(queue, previous, &items[i]);
    }
}

static void
slot_spare(struct kill_queue *queue, uint32_t number)
{
    queue->slots[number].next = queue->spare;
    queue->spare = number;
    queue->count--;
}

void
kill_queue_take(struct kill_queue *queue, struct kill_item *item_out)
{
    uint32_t number = queue->first;

    KVT_ASSERT(number != 0);
    *item_out = queue->slots[number].item;
    index_remove(queue, number);
    queue->first = queue->slots[number].next;
    if (queue->first == 0)
        queue->last = 0;
    slot_spare(queue, number);
}

void
kill_queue_echoes_drop(struct kill_queue *queue)
{
    uint32_t *link = &queue->first;

    queue->last = 0;
    while (*link != 0) {
        uint32_t number = *link;

        if (queue->slots[number].item.is_echo) {
            *link = queue->slots[number].next;
            slot_spare(queue, number);
        } else {
            queue->last = number;
            link = &queue->slots[number].next;
        }
    }
    index_build(queue);
}

const struct kill_item *
kill_queue_find(const struct kill_queue *queue, struct hash128 fingerprint)
{
    uint32_t number = queue->first;

    if (number == 0)
        return NULL;
    if (queue->slots[number].item.order != 0)
        number = *first_link(queue, fingerprint);
    return number == 0 ? NULL : &queue->slots[number].item;
}
