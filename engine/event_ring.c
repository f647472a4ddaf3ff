/* SPDX-License-Identifier: Apache-2.0 */
/*
 * event_ring.c - writing and reading the last events (event_ring.h).
 */
#include "event_ring.h"

#include "store_internal.h"

enum {
    EVENT_WORDS = sizeof(struct kvt_event) / sizeof(uint64_t),
};

_Static_assert(sizeof(struct kvt_event) % sizeof(uint64_t) == 0, "an event is copied by words");

struct event_place {
    _Atomic uint64_t sequence; /* Of the event in it; 0: none, or it is being written. */
    _Atomic uint64_t words[EVENT_WORDS];
};

struct event_ring {
    struct event_place *places;
    uint64_t count; /* A power of two. */
    _Atomic uint64_t newest;
};

enum kvt_status
event_ring_open(struct kvt_store *store)
{
    struct event_ring *ring;

    if (store->options.event_count_max == 0)
        return KVT_OK;
    ring = env_take(&store->env, sizeof(*ring));
    if (ring == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for events");
    store->event_ring = ring;
    ring->count = store->options.event_count_max;
    ring->places = env_take(&store->env, ring->count * sizeof(*ring->places));
    if (ring->places == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for %llu events (event_count_max)",
            (unsigned long long)ring->count);
    return KVT_OK;
}

void
event_ring_close(struct kvt_store *store)
{
    struct event_ring *ring = store->event_ring;

    if (ring == NULL)
        return;
    env_put(&store->env, ring->places, ring->count * sizeof(*ring->places));
    env_put(&store->env, ring, sizeof(*ring));
    store->event_ring = NULL;
}

/* --- Writing ---------------------------------------------------------------------------------- */

static void
place_write(struct event_place *place, const struct kvt_event *event)
{
    uint64_t words[EVENT_WORDS];

    memcpy(words, event, sizeof(words));
    /* (V1) */
    atomic_store_explicit(&place->sequence, 0, memory_order_relaxed);
    for (uint32_t i = 0; i < EVENT_WORDS; i++)
        atomic_store_explicit(&place->words[i], words[i], memory_order_release);
    atomic_store_explicit(&place->sequence, event->sequence, memory_order_release);
}

void
event_add(struct kvt_store *store, uint32_t number, unsigned tier, enum kvt_event_kind kind,
    enum kvt_event_reason reason)
{
    struct event_ring *ring = store->event_ring;
    struct kvt_event event;
    struct block_key key;

    if (ring == NULL)
        return;
    residency_key(store->map, number, &key);
    memset(&event, 0, sizeof(event));
    event.sequence = atomic_load_explicit(&ring->newest, memory_order_relaxed) + 1;
    event.ns.id = key.namespace_id;
    event.kind = (uint8_t)kind;
    event.tier = (uint8_t)tier;
    event.reason = (uint8_t)reason;
    event.is_hashed = key.form == KEY_HASHED;
    event.component = key.component;
    event.key_length = key.length;
    memcpy(event.key, key.bytes, key.length);
    event.length = residency_at(store->map, number)->length;
    place_write(&ring->places[event.sequence & (ring->count - 1)], &event);
    atomic_store_explicit(&ring->newest, event.sequence, memory_order_release);
}

/* --- Reading ---------------------------------------------------------------------------------- */

/* False: the ring has gone over it. */
static bool
place_read(struct event_place *place, uint64_t sequence, struct kvt_event *event_out)
{
    uint64_t words[EVENT_WORDS];

    /* (V1) */
    if (atomic_load_explicit(&place->sequence, memory_order_acquire) != sequence)
        return false;
    for (uint32_t i = 0; i < EVENT_WORDS; i++)
        words[i] = atomic_load_explicit(&place->words[i], memory_order_acquire);
    if (atomic_load_explicit(&place->sequence, memory_order_relaxed) != sequence)
        return false;
    memcpy(event_out, words, sizeof(*event_out));
    return true;
}

enum kvt_status
kvt_events_read(kvt_store *store, uint64_t *cursor, struct kvt_event *events_out,
    uint32_t count_max, uint32_t *count_out)
{
    struct event_ring *ring;
    uint64_t newest;
    uint32_t count = 0;

    if (cursor == NULL || events_out == NULL || count_max == 0 || count_out == NULL)
        return failure_set(
            KVT_E_INVAL, 0, "cursor, events_out or count_out is NULL, or count_max is 0");
    KVT_TRY(store_enter(store));
    ring = store->event_ring;
    if (ring == NULL)
        return failure_set(KVT_E_UNSUPPORTED, 0, "the store was opened without event_count_max");
    newest = atomic_load_explicit(&ring->newest, memory_order_acquire);
    if (*cursor > newest)
        return failure_set(KVT_E_INVAL, 0, "cursor %llu: the newest event is %llu",
            (unsigned long long)*cursor, (unsigned long long)newest);
    while (count < count_max && *cursor + count < newest) {
        uint64_t sequence = *cursor + count + 1;

        if (!place_read(&ring->places[sequence & (ring->count - 1)], sequence, &events_out[count]))
            break;
        count++;
    }
    *count_out = count;
    if (count > 0) {
        *cursor += count;
        return KVT_OK;
    }
    if (*cursor == newest)
        return KVT_MISS;
    *cursor = newest;
    return KVT_OVERRUN;
}
