/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pins.c - the table of pins: a heap ordered by their ends, and a hash table that says where in the
 * heap an entry's pin is.
 *
 * The hash table is open: an entry's place is the first free one behind its hash, and a place that
 * comes free is filled from behind, so that no gap hides another. It holds heap index + 1; 0: free.
 */
#include "pins.h"

#include "store_internal.h"

enum {
    PINS_FIRST = 64,
    PLACES_PER_PIN = 2,
};

struct pin {
    uint64_t until_ns;
    uint32_t number;
    uint32_t bytes; /* Whole pages. */
};

struct pins {
    struct pin *heap; /* The earliest end first. */
    uint32_t count, capacity;
    uint32_t *places; /* capacity * PLACES_PER_PIN, a power of two. */
    uint64_t bytes;
};

enum kvt_status
pins_open(struct kvt_store *store)
{
    store->pins = env_take(&store->env, sizeof(*store->pins));
    if (store->pins == NULL)
        return failure_set(KVT_E_NOMEM, 0, "no memory for pins");
    return KVT_OK;
}

static void
arrays_put(struct kvt_store *store, struct pin *heap, uint32_t *places, uint32_t capacity)
{
    env_put(&store->env, heap, capacity * sizeof(*heap));
    env_put(&store->env, places, (size_t)capacity * PLACES_PER_PIN * sizeof(*places));
}

void
pins_close(struct kvt_store *store)
{
    struct pins *pins = store->pins;

    if (pins == NULL)
        return;
    arrays_put(store, pins->heap, pins->places, pins->capacity);
    env_put(&store->env, pins, sizeof(*pins));
    store->pins = NULL;
}

/* --- Places ----------------------------------------------------------------------------------- */

static uint32_t
place_first(const struct pins *pins, uint32_t number)
{
    return (uint32_t)(number * UINT64_C(0x9E3779B97F4A7C15) >> 32) &
           (pins->capacity * PLACES_PER_PIN - 1);
}

static uint32_t
place_next(const struct pins *pins, uint32_t place)
{
    return (place + 1) & (pins->capacity * PLACES_PER_PIN - 1);
}

/* The entry's place, or the free one that it would have. There is one: the table is half empty. */
static uint32_t
place_of(const struct pins *pins, uint32_t number)
{
    uint32_t place = place_first(pins, number);

    while (pins->places[place] != 0 && pins->heap[pins->places[place] - 1].number != number)
        place = place_next(pins, place);
    return place;
}

/* Whether `place` lies on the way from `first` to `last`, both included. */
static bool
place_is_between(uint32_t first, uint32_t place, uint32_t last)
{
    return first <= last ? first <= place && place <= last : first <= place || place <= last;
}

/* A place comes free: what was put behind it because it was taken moves up. */
static void
place_free(struct pins *pins, uint32_t place)
{
    uint32_t gap = place;

    for (uint32_t at = place_next(pins, gap); pins->places[at] != 0; at = place_next(pins, at)) {
        uint32_t first = place_first(pins, pins->heap[pins->places[at] - 1].number);

        if (!place_is_between(first, gap, at))
            continue;
        pins->places[gap] = pins->places[at];
        gap = at;
    }
    pins->places[gap] = 0;
}

/* --- The heap --------------------------------------------------------------------------------- */

static void
heap_swap(struct pins *pins, uint32_t a, uint32_t b)
{
    uint32_t place_a = place_of(pins, pins->heap[a].number);
    uint32_t place_b = place_of(pins, pins->heap[b].number);
    struct pin pin = pins->heap[a];

    pins->heap[a] = pins->heap[b];
    pins->heap[b] = pin;
    pins->places[place_a] = b + 1;
    pins->places[place_b] = a + 1;
}

static void
heap_up(struct pins *pins, uint32_t i)
{
    for (; i > 0 && pins->heap[i].until_ns < pins->heap[(i - 1) / 2].until_ns; i = (i - 1) / 2)
        heap_swap(pins, i, (i - 1) / 2);
}

static void
heap_down(struct pins *pins, uint32_t i)
{
    for (;;) {
        uint32_t least = i;

        for (uint32_t child = 2 * i + 1; child <= 2 * i + 2 && child < pins->count; child++) {
            if (pins->heap[child].until_ns < pins->heap[least].until_ns)
                least = child;
        }
        if (least == i)
            return;
        heap_swap(pins, i, least);
        i = least;
    }
}

static void
heap_remove(struct pins *pins, uint32_t i)
{
    uint32_t last = pins->count - 1;

    if (i != last)
        heap_swap(pins, i, last);
    place_free(pins, place_of(pins, pins->heap[last].number));
    pins->bytes -= pins->heap[last].bytes;
    pins->count = last;
    if (i == last)
        return;
    heap_up(pins, i);
    heap_down(pins, i);
}

/* --- Asking ----------------------------------------------------------------------------------- */

static const struct pin *
pin_find(const struct pins *pins, uint32_t number)
{
    uint32_t index;

    if (pins->count == 0)
        return NULL;
    index = pins->places[place_of(pins, number)];
    return index == 0 ? NULL : &pins->heap[index - 1];
}

bool
pins_hold(const struct kvt_store *store, uint32_t number)
{
    const struct pin *pin = pin_find(store->pins, number);

    return pin != NULL && pin->until_ns > store->now_ns;
}

bool
pins_has(const struct kvt_store *store, uint32_t number)
{
    return pin_find(store->pins, number) != NULL;
}

uint64_t
pins_count(const struct kvt_store *store)
{
    return store->pins->count;
}

uint64_t
pins_bytes(const struct kvt_store *store)
{
    return store->pins->bytes;
}

bool
pins_are_within(struct kvt_store *store)
{
    return store->pins->bytes <= store->options.pin_bytes_max;
}

/* --- Changing --------------------------------------------------------------------------------- */

static enum kvt_status
pins_grow(struct kvt_store *store, uint32_t capacity)
{
    struct pins *pins = store->pins;
    struct pin *heap = env_take(&store->env, capacity * sizeof(*heap));
    uint32_t *places = env_take(&store->env, (size_t)capacity * PLACES_PER_PIN * sizeof(*places));

    if (heap == NULL || places == NULL) {
        arrays_put(store, heap, places, capacity);
        return failure_set(KVT_E_NOMEM, 0, "no memory for %u pins", capacity);
    }
    if (pins->count > 0)
        memcpy(heap, pins->heap, pins->count * sizeof(*heap));
    arrays_put(store, pins->heap, pins->places, pins->capacity);
    pins->heap = heap;
    pins->places = places;
    pins->capacity = capacity;
    for (uint32_t i = 0; i < pins->count; i++)
        pins->places[place_of(pins, heap[i].number)] = i + 1;
    return KVT_OK;
}

enum kvt_status
pins_reserve(struct kvt_store *store, uint32_t count)
{
    uint64_t wanted = (uint64_t)store->pins->count + count;
    uint64_t capacity = store->pins->capacity == 0 ? PINS_FIRST : store->pins->capacity;

    while (capacity < wanted)
        capacity *= 2;
    if (capacity > UINT32_MAX / PLACES_PER_PIN / 2)
        return failure_set(KVT_E_NOMEM, 0, "%llu pins", (unsigned long long)wanted);
    return capacity == store->pins->capacity ? KVT_OK : pins_grow(store, (uint32_t)capacity);
}

void
pins_set(struct kvt_store *store, uint32_t number, uint64_t until_ns)
{
    struct pins *pins = store->pins;
    uint32_t place = place_of(pins, number);
    uint32_t i = pins->places[place];

    if (i == 0) {
        KVT_ASSERT(pins->count < pins->capacity);
        i = ++pins->count;
        pins->heap[i - 1] = (struct pin){
            .number = number,
            .bytes = (uint32_t)round_up(residency_at(store->map, number)->length, PAGE_BYTES),
        };
        pins->places[place] = i;
        pins->bytes += pins->heap[i - 1].bytes;
    }
    pins->heap[i - 1].until_ns = until_ns;
    heap_up(pins, i - 1);
    heap_down(pins, pins->places[place_of(pins, number)] - 1);
}

void
pins_drop(struct kvt_store *store, uint32_t number)
{
    const struct pin *pin = pin_find(store->pins, number);

    if (pin == NULL)
        return;
    heap_remove(store->pins, (uint32_t)(pin - store->pins->heap));
    store->room_changed = true;
}

bool
pins_step(struct kvt_store *store)
{
    struct pins *pins = store->pins;
    uint32_t before = pins->count;

    while (pins->count > 0 && pins->heap[0].until_ns <= store->now_ns)
        heap_remove(pins, 0);
    if (pins->count == before)
        return false;
    store->room_changed = true;
    return true;
}

uint64_t
pins_next_ns(const struct kvt_store *store)
{
    return store->pins->count == 0 ? UINT64_MAX : store->pins->heap[0].until_ns;
}
