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
        slot->alike_previous = first == 0 ? number : slots[first].alike_previous;
        slot->other = first == 0 ? 0 : slots[first].other;
        if (first != 0)
            slots[first].alike_previous = number;
        *link = number;
        return;
    }
    at = slots[first].alike_previous;
    if (slots[at].item.order > slot->item.order) {
        for (at = first; slots[slots[at].alike].item.order <= slot->item.order;)
            at = slots[at].alike;
    }
    slot->alike = slots[at].alike;
    slot->alike_previous = at;
    slots[at].alike = number;
    slots[slot->alike == 0 ? first : slot->alike].alike_previous = number;
}

static void
index_remove(struct kill_queue *queue, uint32_t number)
{
    struct kill_slot *slots = queue->slots;
    const struct kill_slot *slot = &slots[number];
    uint32_t *link = first_link(queue, slot->item.kill.fingerprint);
    uint32_t first = *link;

    KVT_ASSERT(first != 0);
    if (first != number) {
        slots[slot->alike_previous].alike = slot->alike;
        slots[slot->alike == 0 ? first : slot->alike].alike_previous = slot->alike_previous;
        return;
    }
    if (slot->alike == 0) {
        *link = slot->other;
        return;
    }
    slots[slot->alike].alike_previous = slot->alike_previous;
    slots[slot->alike].other = slot->other;
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
    queue->slots[number].previous = previous;
    if (*link == 0)
        queue->last = number;
    else
        queue->slots[*link].previous = number;
    *link = number;
    queue->count++;
    index_add(queue, number);
    return number;
}

/* Somewhere behind `previous`, which is not told either; 0: anywhere. */
static void
untold_insert(struct kill_queue *queue, uint32_t previous, uint32_t number)
{
    struct kill_slot *slots = queue->slots;
    uint32_t next = previous == 0 ? queue->first_untold : slots[previous].next_untold;

    while (next != 0 && slots[next].item.order <= slots[number].item.order) {
        previous = next;
        next = slots[next].next_untold;
    }
    slots[number].next_untold = next;
    if (previous == 0)
        queue->first_untold = number;
    else
        slots[previous].next_untold = number;
    if (next == 0)
        queue->last_untold = number;
    queue->untold_count++;
}

static void
untold_take(struct kill_queue *queue)
{
    queue->first_untold = queue->slots[queue->first_untold].next_untold;
    if (queue->first_untold == 0)
        queue->last_untold = 0;
    queue->untold_count--;
}

void
kill_queue_add(struct kill_queue *queue, const struct kill_item *item)
{
    uint32_t number = item_insert(queue, queue->last, item);

    KVT_ASSERT(!item->is_told);
    untold_insert(queue, queue->last_untold, number);
}

void
kill_queue_return(struct kill_queue *queue, const struct kill_item *items, uint32_t count)
{
    uint32_t previous = 0;
    uint32_t previous_untold = 0;
    uint32_t next = queue->first;

    for (uint32_t i = 0; i < count; i++) {
        while (next != 0 && queue->slots[next].item.order <= items[i].order) {
            previous = next;
            next = queue->slots[next].next;
        }
        previous = item_insert(queue, previous, &items[i]);
        if (!items[i].is_told) {
            untold_insert(queue, previous_untold, previous);
            previous_untold = previous;
        }
    }
}

static void
item_remove(struct kill_queue *queue, uint32_t number)
{
    struct kill_slot *slot = &queue->slots[number];

    index_remove(queue, number);
    if (slot->previous == 0)
        queue->first = slot->next;
    else
        queue->slots[slot->previous].next = slot->next;
    if (slot->next == 0)
        queue->last = slot->previous;
    else
        queue->slots[slot->next].previous = slot->previous;
    slot->next = queue->spare;
    queue->spare = number;
    queue->count--;
}

void
kill_queue_take(struct kill_queue *queue, struct kill_item *item_out)
{
    uint32_t number = queue->first;

    KVT_ASSERT(number != 0);
    *item_out = queue->slots[number].item;
    if (number == queue->first_untold)
        untold_take(queue);
    item_remove(queue, number);
}

bool
kill_queue_tell(struct kill_queue *queue, struct op **waiter_out)
{
    uint32_t number = queue->first_untold;
    struct kill_item *item;

    *waiter_out = NULL;
    if (number == 0)
        return false;
    untold_take(queue);
    item = &queue->slots[number].item;
    *waiter_out = item->kill.waiter;
    item->kill.waiter = NULL;
    item->is_told = true;
    if (item->is_echo)
        item_remove(queue, number);
    return true;
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
