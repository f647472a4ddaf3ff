/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_load.c - what callers do with a load: waiting for chunks, releasing them, the end.
 *
 * Threads   any.
 */
#include "file_load.h"

/* --- 1. Using a load -------------------------------------------------------------------------- */

/* Under the set's lock. KVT_E_INVAL: it is not open. */
static enum kvt_status
load_find(const struct load_set *set, kvt_load id, struct load **load_out)
{
    uint64_t index = (id.id & ((1u << LOAD_INDEX_BITS) - 1)) - 1; /* Of 0: out of bounds. */

    *load_out = index < KVT_LOADS_MAX ? set->slots[index] : NULL;
    if (*load_out == NULL || (*load_out)->is_closing ||
        set->generations[index] != id.id >> LOAD_INDEX_BITS)
        return failure_set(KVT_E_INVAL, 0, "the load was closed, or never opened");
    return KVT_OK;
}

/* Whether there is such a chunk: KVT_E_INVAL. */
static enum kvt_status
chunk_number_check(const struct load *load, uint32_t number)
{
    if (number < load->chunk_count)
        return KVT_OK;
    return failure_set(KVT_E_INVAL, 0, "chunk %u: the load has %u", number, load->chunk_count);
}

enum kvt_status
kvt_load_chunk_count(kvt_store *store, kvt_load id, uint32_t *count_out)
{
    struct load *load;
    enum kvt_status status;

    if (count_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "count_out is NULL");
    KVT_TRY(store_enter(store));
    pthread_mutex_lock(&store->loads->lock);
    status = load_find(store->loads, id, &load);
    if (status == KVT_OK)
        *count_out = load->chunk_count;
    pthread_mutex_unlock(&store->loads->lock);
    return status;
}

/* What became of the chunk; KVT_LATE: it is not settled. */
static enum kvt_status
chunk_outcome(const struct load *load, uint32_t number)
{
    const struct load_chunk *chunk = &load->chunks[number];

    if (chunk->state == LOAD_RELEASED)
        return failure_set(KVT_E_STATE, 0, "chunk %u was released", number);
    if (chunk->state != LOAD_SETTLED)
        return KVT_LATE;
    if (chunk->status == KVT_OK || chunk->status == KVT_CANCELLED)
        return chunk->status;
    return failure_set(chunk->status, 0, "chunk %u, %llu bytes from %llu on, could not be %s",
        number, (unsigned long long)load_chunk_size(load, number),
        (unsigned long long)load_chunk_offset(load, number),
        chunk->status == KVT_E_IO      ? "read: the disk failed, or the file has become shorter"
        : chunk->status == KVT_E_NOMEM ? "read, or copied to the device: there was no memory"
                                       : "copied to the device");
}

/* Of all that were not released: the first that is not KVT_OK. */
static enum kvt_status
load_outcome(const struct load *load)
{
    enum kvt_status status = KVT_OK;

    if (load->settled_count < load->chunk_count)
        return KVT_LATE;
    for (uint32_t i = 0; i < load->chunk_count && status == KVT_OK; i++) {
        if (load->chunks[i].state == LOAD_SETTLED)
            status = chunk_outcome(load, i);
    }
    return status;
}

static void
chunk_tell(const struct load *load, uint32_t number, struct kvt_load_chunk *chunk_out)
{
    const struct load_chunk *chunk = &load->chunks[number];

    if (chunk_out == NULL)
        return;
    *chunk_out = (struct kvt_load_chunk){.address = load_chunk_address(load, chunk),
        .offset = load_chunk_offset(load, number),
        .size = load_chunk_size(load, number)};
    if (chunk->state != LOAD_SETTLED)
        return;
    chunk_out->read_begin_ns = chunk->read_begin_ns;
    chunk_out->read_end_ns = chunk->read_end_ns;
    chunk_out->copy_begin_ns = chunk->copy_begin_ns;
    chunk_out->copy_end_ns = chunk->copy_end_ns;
}

/* One look. */
static enum kvt_status
load_look(struct load_set *set, kvt_load id, uint32_t number, struct kvt_load_chunk *chunk_out)
{
    struct load *load;

    KVT_TRY(load_find(set, id, &load));
    if (number == KVT_LOAD_ALL)
        return load_outcome(load);
    KVT_TRY(chunk_number_check(load, number));
    KVT_TRY(chunk_outcome(load, number));
    chunk_tell(load, number, chunk_out);
    return KVT_OK;
}

enum kvt_status
kvt_load_wait(kvt_store *store, kvt_load id, uint32_t chunk, uint64_t timeout_ns,
    struct kvt_load_chunk *chunk_out)
{
    struct load_set *set;
    uint64_t until_ns;

    KVT_TRY(store_enter(store));
    set = store->loads;
    until_ns = env_until(&store->env, timeout_ns);
    for (;;) {
        uint32_t seen = atomic_load_explicit(&set->gate.value, memory_order_acquire);
        enum kvt_status status;

        pthread_mutex_lock(&set->lock);
        status = load_look(set, id, chunk, chunk_out);
        pthread_mutex_unlock(&set->lock);
        if (status != KVT_LATE)
            return status;
        if (until_ns != UINT64_MAX && env_now(&store->env) >= until_ns)
            return KVT_LATE;
        KVT_TRY(store_enter(store));
        store_gate_wait(store, &set->gate, seen, until_ns);
    }
}

/* Of a chunk that is on its way: KVT_LATE, and *mark_out, when all of its copies were queued.
 * KVT_OK: it is settled. */
static enum kvt_status
chunk_mark_get(const struct load *load, uint32_t number, struct device_mark *mark_out)
{
    const struct load_chunk *chunk = &load->chunks[number];
    struct kvt_store *store = load->store;
    struct device_mover *mover = hbm_mover(store->devices.tiers[load->device]);
    enum kvt_status status = chunk_outcome(load, number);

    if (status != KVT_LATE)
        return status;
    /* (D2) acquire: the calls that the mark names are known. */
    if (chunk->asked < chunk->part_count || chunk->status != KVT_OK ||
        atomic_load_explicit(&chunk->mark.queued_count, memory_order_acquire) < chunk->part_count)
        return KVT_NOT_READY;
    if (device_mover_is_lost(mover))
        return failure_set(KVT_E_GPU, 0, "device %u is lost", load->device);
    for (uint32_t i = 0; i < DEVICE_LANE_COUNT; i++)
        atomic_init(
            &mark_out->call[i], atomic_load_explicit(&chunk->mark.call[i], memory_order_relaxed));
    return KVT_LATE;
}

enum kvt_status
kvt_load_stream_wait(
    kvt_store *store, kvt_load id, uint32_t number, void *stream, struct kvt_load_chunk *chunk_out)
{
    struct kvt_load_chunk chunk = {0};
    struct device_mark mark = {0};
    uint32_t device = 0;
    struct load *load;
    enum kvt_status status;

    if (stream == NULL)
        return failure_set(KVT_E_INVAL, 0, "stream is NULL: the default stream waits for all");
    KVT_TRY(store_enter(store));
    pthread_mutex_lock(&store->loads->lock);
    status = load_find(store->loads, id, &load);
    if (status == KVT_OK)
        status = chunk_number_check(load, number);
    if (status == KVT_OK)
        status = chunk_mark_get(load, number, &mark);
    if (status == KVT_OK || status == KVT_LATE) {
        device = load->device;
        chunk_tell(load, number, &chunk);
    }
    pthread_mutex_unlock(&store->loads->lock);
    /* Without the lock: it blocks while the stream is full. */
    if (status == KVT_LATE)
        status = device_answer(store, device,
            device_mover_wait(hbm_mover(store->devices.tiers[device]), &mark, stream));
    if (status == KVT_OK && chunk_out != NULL)
        *chunk_out = chunk;
    return status;
}

enum kvt_status
kvt_load_cancel(kvt_store *store, kvt_load id)
{
    struct load *load;
    enum kvt_status status;
    bool is_news = false;

    KVT_TRY(store_enter(store));
    pthread_mutex_lock(&store->loads->lock);
    status = load_find(store->loads, id, &load);
    if (status == KVT_OK)
        is_news = load_give_up(load);
    pthread_mutex_unlock(&store->loads->lock);
    if (is_news)
        gate_post(&store->env, &store->loads->gate);
    return status;
}

/* --- 2. Giving back --------------------------------------------------------------------------- */

static void
chunk_release(struct load *load, struct load_chunk *chunk)
{
    if (chunk->place != LOAD_PLACE_NONE) {
        uint32_t last = (load->place_first + load->place_free) % load->place_count;

        load->places[last] = chunk->place;
        load->place_free++;
        chunk->place = LOAD_PLACE_NONE;
    }
    chunk->state = LOAD_RELEASED;
    load->released_count++;
    load_chunk_check(chunk);
}

static enum kvt_status
chunk_release_check(const struct load *load, uint32_t number)
{
    KVT_TRY(chunk_number_check(load, number));
    if (load->chunks[number].state == LOAD_RELEASED)
        return failure_set(
            KVT_E_STATE, 0, "chunk %u was released before, or is named twice", number);
    if (load->chunks[number].state != LOAD_SETTLED)
        return failure_set(KVT_E_STATE, 0, "chunk %u is still to come", number);
    return KVT_OK;
}

/* All of them, or none: those before a bad one get back what they had. */
static enum kvt_status
chunks_release(struct load *load, const uint32_t *chunks, uint32_t count)
{
    enum kvt_status status = KVT_OK;
    uint32_t checked;

    for (checked = 0; checked < count && status == KVT_OK; checked++) {
        status = chunk_release_check(load, chunks[checked]);
        if (status == KVT_OK)
            load->chunks[chunks[checked]].state = LOAD_RELEASED; /* To find one named twice. */
    }
    for (uint32_t i = 0; status != KVT_OK && i + 1 < checked; i++)
        load->chunks[chunks[i]].state = LOAD_SETTLED;
    for (uint32_t i = 0; status == KVT_OK && i < count; i++)
        chunk_release(load, &load->chunks[chunks[i]]);
    return status;
}

static enum kvt_status
chunks_release_all(struct load *load)
{
    if (load->settled_count < load->chunk_count)
        return failure_set(
            KVT_E_STATE, 0, "%u chunks are still to come", load->chunk_count - load->settled_count);
    for (uint32_t i = 0; i < load->chunk_count; i++) {
        if (load->chunks[i].state == LOAD_SETTLED)
            chunk_release(load, &load->chunks[i]);
    }
    return KVT_OK;
}

enum kvt_status
kvt_load_release(kvt_store *store, kvt_load id, const uint32_t *chunks, uint32_t count)
{
    struct load *load;
    void *memory = NULL;
    uint64_t size = 0;
    uint32_t device = 0;
    enum kvt_status status;

    KVT_TRY(store_enter(store));
    if ((chunks == NULL) != (count == 0))
        return failure_set(
            KVT_E_INVAL, 0, "chunks %p and count %u do not agree", (const void *)chunks, count);
    pthread_mutex_lock(&store->loads->lock);
    status = load_find(store->loads, id, &load);
    if (status == KVT_OK)
        status = count == 0 ? chunks_release_all(load) : chunks_release(load, chunks, count);
    if (status == KVT_OK && load->released_count == load->chunk_count) {
        memory = load->memory;
        size = load->own_bytes;
        device = load->device;
        load->own_bytes = 0;
    }
    pthread_mutex_unlock(&store->loads->lock);
    if (status != KVT_OK)
        return status;
    if (size > 0)
        load_memory_put(store, device, memory, size);
    load_reader_wake(store->loads->reader); /* Others may have a place now. */
    return KVT_OK;
}

/* Out of the list of those that are read. Under the set's lock. */
static void
load_delist(struct load_set *set, const struct load *load)
{
    struct load **link = &set->loads;

    while (*link != load)
        link = &(*link)->next;
    *link = load->next;
}

/* Nobody finds it from now on; what is in flight is waited for. KVT_E_POISONED: or ends with the
 * store, as the load does. */
static enum kvt_status
load_end(struct kvt_store *store, kvt_load id, struct load **load_out)
{
    struct load_set *set = store->loads;
    enum kvt_status status;

    pthread_mutex_lock(&set->lock);
    status = load_find(set, id, load_out);
    if (status == KVT_OK) {
        (*load_out)->is_closing = true;
        (void)load_give_up(*load_out);
    }
    pthread_mutex_unlock(&set->lock);
    if (status != KVT_OK)
        return status;
    gate_post(&store->env, &set->gate); /* Who waits for it does so in vain. */
    for (;;) {
        uint32_t seen = atomic_load_explicit(&set->gate.value, memory_order_acquire);
        uint32_t in_flight;

        pthread_mutex_lock(&set->lock);
        in_flight = (*load_out)->in_flight;
        pthread_mutex_unlock(&set->lock);
        if (in_flight == 0)
            return KVT_OK;
        KVT_TRY(store_enter(store));
        store_gate_wait(store, &set->gate, seen, UINT64_MAX);
    }
}

enum kvt_status
kvt_load_close(kvt_store *store, kvt_load id)
{
    uint64_t index = (id.id & ((1u << LOAD_INDEX_BITS) - 1)) - 1;
    struct load_set *set;
    struct load *load;

    if (id.id == 0)
        return KVT_OK;
    KVT_TRY(store_enter(store));
    set = store->loads;
    KVT_TRY(load_end(store, id, &load));
    pthread_mutex_lock(&set->life_lock);
    pthread_mutex_lock(&set->lock);
    load_delist(set, load);
    set->slots[index] = NULL;
    set->generations[index]++;
    set->open_count--;
    pthread_mutex_unlock(&set->lock);
    load_stages_put(store);
    pthread_mutex_unlock(&set->life_lock);
    load_free(load);
    return KVT_OK;
}
