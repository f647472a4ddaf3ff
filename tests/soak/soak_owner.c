/* SPDX-License-Identifier: Apache-2.0 */
/*
 * soak_owner.c - the process of a soak that owns the store (soak.h).
 *
 * Each of its threads has its own keys (number % THREADS), its own queue, and its part of the
 * requests that move bytes. Half of these are gets and half puts: neither waits for the other, as
 * the readers and writers of a serving host do not, so that the disk is full whatever the store
 * lets pass first. Of a key at most one request is out, until its last stage.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "kvtier/kvtier.h"
#include "pattern.h"
#include "rng.h"
#include "soak.h"
#include "store_audit.h"

enum {
    THREADS = 2,
    BUFFERS = SOAK_DEPTH / THREADS / 2, /* Of a thread: gets, or puts, that move bytes. */
    FLIGHTS = 512,                      /* Of a thread: puts that wait for their commit, besides. */
    PICKS = 16,                         /* Tries to find a key that is there. */
    POLL_NS = 100000000,
    SYNC_PERCENT = 25, /* Of the puts; the others are RELAXED. */
    HEAD_WORDS = 4,
    REST_TRIES = 5000, /* Of a millisecond. */
};

#define HEAD_MAGIC UINT64_C(0x736F616B626C6B31)

struct buffers {
    uint8_t *free[BUFFERS];
    uint32_t free_count;
};

struct flight {
    kvt_ticket *ticket;
    uint64_t key;
    uint64_t version; /* Of a put; 0: a get. */
    uint64_t sure;    /* Of a get: what was acknowledged when it was submitted. */
    uint8_t *buffer;  /* NULL: its bytes have moved. */
    struct buffers *buffers;
    uint8_t key_bytes[PATTERN_KEY_BYTES];
};

struct worker {
    struct owner *owner;
    uint32_t number;
    struct rng rng;
    kvt_queue *queue;
    struct flight flights[FLIGHTS];
    struct flight *free_flights[FLIGHTS];
    uint32_t free_flight_count;
    struct buffers get_buffers, put_buffers;
};

struct owner {
    const struct soak_plan *plan;
    struct soak_board *board;
    kvt_store *store;
    kvt_namespace ns;
    bool *busy; /* Of each key: a request is out. */
    pthread_barrier_t barrier;
    uint64_t probed_get_bytes, probed_put_bytes; /* At the last probe. */
    uint64_t moved_bytes;                        /* That the board knows of. */
    _Atomic uint64_t leases[SOAK_RECENT];        /* Ids, of the blocks of board->recent. */
    struct worker workers[THREADS];
};

uint64_t
soak_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t
soak_board_bytes(const struct soak_plan *plan)
{
    return sizeof(struct soak_board) + plan->key_count * sizeof(struct soak_key);
}

uint64_t
soak_block_length(uint64_t key)
{
    return (uint64_t)SOAK_BLOCK_LOW << (pattern_mix(key) % SOAK_BLOCK_SIZES);
}

void
soak_complain(struct soak_board *board, _Atomic uint64_t *counter, const char *format, ...)
{
    va_list rest;

    va_start(rest, format);
    if (atomic_fetch_add(counter, 1) == 0 && board->text[0] == 0)
        vsnprintf(board->text, sizeof(board->text), format, rest);
    va_end(rest);
}

/* --- Blocks ----------------------------------------------------------------------------------- */

static uint64_t
block_number(uint64_t key, uint64_t version)
{
    return pattern_mix(key) ^ version;
}

static void
block_fill(uint8_t *target, uint64_t key, uint64_t version)
{
    const uint64_t head[HEAD_WORDS] = {HEAD_MAGIC, key, version, soak_block_length(key)};

    memcpy(target, head, sizeof(head));
    pattern_fill(block_number(key, version), target + sizeof(head), head[3] - sizeof(head));
}

/* The version of a block that was read; 0: these are not its bytes. */
static uint64_t
block_version(const uint8_t *bytes, uint64_t length, uint64_t key)
{
    uint64_t head[HEAD_WORDS];

    memcpy(head, bytes, sizeof(head));
    if (head[0] != HEAD_MAGIC || head[1] != key || head[3] != length ||
        length != soak_block_length(key))
        return 0;
    uint64_t wrong = pattern_wrong_bytes(
        block_number(key, head[2]), bytes + sizeof(head), length - sizeof(head));
    return wrong == 0 ? head[2] : 0;
}

/* --- Requests --------------------------------------------------------------------------------- */

static struct kvt_key
flight_key(const struct flight *flight)
{
    return (struct kvt_key){.bytes = flight->key_bytes, .length = PATTERN_KEY_BYTES};
}

static void
flight_begin(struct worker *worker, struct flight *flight, struct buffers *buffers, uint64_t key)
{
    flight->key = key;
    flight->version = 0;
    flight->ticket = NULL;
    flight->sure = atomic_load(&worker->owner->board->keys[key].sure);
    flight->buffers = buffers;
    flight->buffer = buffers->free[--buffers->free_count];
    pattern_key(key, flight->key_bytes);
    worker->owner->busy[key] = true;
}

static void
flight_buffer_give(struct flight *flight)
{
    if (flight->buffer != NULL)
        flight->buffers->free[flight->buffers->free_count++] = flight->buffer;
    flight->buffer = NULL;
}

static void
flight_end(struct worker *worker, struct flight *flight)
{
    flight_buffer_give(flight);
    kvt_ticket_free(flight->ticket);
    worker->owner->busy[flight->key] = false;
    worker->free_flights[worker->free_flight_count++] = flight;
}

static void
refuse(struct worker *worker, struct flight *flight, const char *what, enum kvt_status status)
{
    struct soak_board *board = worker->owner->board;
    struct kvt_error error;

    kvt_last_error(&error);
    soak_complain(board, &board->failed_count, "%s of key %llu gave %s (%s)", what,
        (unsigned long long)flight->key, kvt_status_name(status), error.text);
}

/* A key of this worker that is free, and there when `is_present`. False: none was found. */
static bool
pick_key(struct worker *worker, bool is_present, uint64_t *key_out)
{
    struct owner *owner = worker->owner;
    uint32_t own = (uint32_t)(owner->plan->key_count / THREADS);

    for (uint32_t i = 0; i < PICKS; i++) {
        uint64_t key = (uint64_t)rng_below(&worker->rng, own) * THREADS + worker->number;
        if (owner->busy[key])
            continue;
        if (is_present && atomic_load(&owner->board->keys[key].is_present) == 0)
            continue;
        *key_out = key;
        return true;
    }
    return false;
}

static void
get_submit(struct worker *worker, uint64_t key)
{
    struct flight *flight = worker->free_flights[--worker->free_flight_count];
    struct kvt_submit submit = {.queue = worker->queue, .user = flight};
    struct kvt_get get = {.flags = KVT_GET_TRANSIENT, .capacity = SOAK_BLOCK_MAX};

    flight_begin(worker, flight, &worker->get_buffers, key);
    get.key = flight_key(flight);
    get.destination = flight->buffer;
    memset(flight->buffer, PATTERN_POISON, 64);
    enum kvt_status status =
        kvt_get_submit(worker->owner->store, worker->owner->ns, &get, 1, &submit, &flight->ticket);
    if (status != KVT_OK) {
        refuse(worker, flight, "a get", status);
        flight_end(worker, flight);
    }
}

static void
put_submit(struct worker *worker, uint64_t key)
{
    struct flight *flight = worker->free_flights[--worker->free_flight_count];
    struct kvt_submit submit = {.queue = worker->queue, .user = flight};
    struct kvt_put put = {.flags = KVT_PUT_REPLACE, .length = soak_block_length(key)};
    bool is_sync = rng_below(&worker->rng, 100) < SYNC_PERCENT;

    flight_begin(worker, flight, &worker->put_buffers, key);
    flight->version = atomic_fetch_add(&worker->owner->board->keys[key].asked, 1) + 1;
    block_fill(flight->buffer, key, flight->version);
    put.key = flight_key(flight);
    put.source = flight->buffer;
    enum kvt_status status = kvt_put_submit(worker->owner->store, worker->owner->ns, &put, 1,
        is_sync ? KVT_SYNC : KVT_RELAXED, &submit, &flight->ticket);
    if (status != KVT_OK) {
        refuse(worker, flight, "a put", status);
        flight_end(worker, flight);
    }
}

/* --- Answers ---------------------------------------------------------------------------------- */

static void
get_answered(struct worker *worker, struct flight *flight, const struct kvt_result *result)
{
    struct soak_board *board = worker->owner->board;
    struct soak_key *key = &board->keys[flight->key];

    if (result->status == KVT_MISS) {
        atomic_store(&key->is_present, 0); /* Evicted. */
        atomic_fetch_add(&board->miss_count, 1);
        return;
    }
    if (result->status != KVT_OK) {
        refuse(worker, flight, "a get", result->status);
        return;
    }
    uint64_t version = block_version(flight->buffer, result->length, flight->key);
    if (version < flight->sure || version == 0 || version > atomic_load(&key->asked))
        soak_complain(board, &board->wrong_count,
            "WRONG BYTES: key %llu was read as version %llu, acknowledged is %llu",
            (unsigned long long)flight->key, (unsigned long long)version,
            (unsigned long long)flight->sure);
    else
        atomic_store(&key->sure, version); /* It is on disk: nothing older may come again. */
    atomic_fetch_add(&board->hit_count, 1);
    atomic_fetch_add(&board->get_bytes, result->length);
}

/* It is one of the last that were acknowledged. A lease keeps it from being evicted: after a kill
 * it must be there. */
static void
recent_note(struct owner *owner, const struct flight *flight)
{
    struct soak_board *board = owner->board;
    struct kvt_key key = flight_key(flight);
    kvt_lease lease;

    if (kvt_lookup(owner->store, owner->ns, &key, 1, NULL, NULL, &lease) != KVT_OK) {
        soak_complain(
            board, &board->failed_count, "a lookup of key %llu", (unsigned long long)flight->key);
        return;
    }
    if (lease.id == 0) {
        atomic_fetch_add(&board->gone_count, 1); /* Evicted already. */
        return;
    }
    uint64_t slot = atomic_fetch_add(&board->recent_count, 1) % SOAK_RECENT;
    struct soak_recent *recent = &board->recent[slot];
    atomic_store(&recent->version, 0); /* A kill in the middle leaves one that does not count. */
    lease.id = atomic_exchange(&owner->leases[slot], lease.id);
    kvt_lease_release(owner->store, lease);
    atomic_store(&recent->key, flight->key);
    atomic_store(&recent->version, flight->version);
}

static void
put_durable(struct worker *worker, struct flight *flight, const struct kvt_result *result)
{
    struct soak_board *board = worker->owner->board;
    struct soak_key *key = &board->keys[flight->key];

    if (result->status != KVT_OK) {
        refuse(worker, flight, "a put", result->status);
        return;
    }
    atomic_store(&key->sure, flight->version);
    atomic_store(&key->is_present, 1);
    recent_note(worker->owner, flight);
    atomic_fetch_add(&board->put_count, 1);
    atomic_fetch_add(&board->put_bytes, soak_block_length(flight->key));
}

static void
stall_note(struct soak_board *board)
{
    uint64_t now_ns = soak_now_ns();
    uint64_t last_ns = atomic_exchange(&board->last_ns, now_ns);
    uint64_t longest = atomic_load(&board->stall_ns);

    /* Two threads ask the clock, and come here in any order. */
    uint64_t gap = now_ns > last_ns ? now_ns - last_ns : 0;
    while (gap > longest && !atomic_compare_exchange_weak(&board->stall_ns, &longest, gap))
        continue;
}

static void
answered(struct worker *worker, const struct kvt_completion *done)
{
    struct flight *flight = done->user;
    struct kvt_result result;
    enum kvt_status status = kvt_ticket_results(done->ticket, done->stage, &result, 1);

    stall_note(worker->owner->board);
    if (status != KVT_OK) {
        refuse(worker, flight, "the results", status);
    } else if (flight->version == 0) {
        get_answered(worker, flight, &result);
        flight_end(worker, flight);
    } else if (done->stage == KVT_STAGE_DONE) {
        if (result.status != KVT_OK)
            refuse(worker, flight, "a put's first stage", result.status);
        flight_buffer_give(flight);
    } else {
        put_durable(worker, flight, &result);
        flight_end(worker, flight);
    }
}

static void
collect(struct worker *worker)
{
    struct kvt_completion done[64];
    uint32_t count = 0;
    enum kvt_status status = kvt_queue_poll(worker->queue, done, 64, POLL_NS, &count);

    if (status != KVT_OK && status != KVT_LATE)
        soak_complain(worker->owner->board, &worker->owner->board->failed_count, "a poll gave %s",
            kvt_status_name(status));
    for (uint32_t i = 0; i < count; i++)
        answered(worker, &done[i]);
}

/* --- The process ------------------------------------------------------------------------------ */

static void
submit_some(struct worker *worker)
{
    uint64_t key;

    while (worker->get_buffers.free_count > 0 && worker->free_flight_count > 0 &&
           pick_key(worker, true, &key))
        get_submit(worker, key);
    while (worker->put_buffers.free_count > 0 && worker->free_flight_count > 0 &&
           pick_key(worker, false, &key))
        put_submit(worker, key);
}

/* What the store says of itself, for the watcher. */
static void
facts_note(struct owner *owner)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};
    uint32_t health = 0;

    if (kvt_stats_get(owner->store, &stats) != KVT_OK ||
        kvt_health(owner->store, &health) != KVT_OK)
        soak_complain(owner->board, &owner->board->failed_count, "no statistics");
    if (stats.corrupt_count + stats.read_failed_count + stats.kill_lost_count +
            stats.entry_leak_count + stats.recover_dropped_count + stats.recover_rebuilt_count !=
        0)
        soak_complain(owner->board, &owner->board->failed_count,
            "the store counts damaged or unreadable blocks, or lost what it should remember");
    atomic_fetch_add(&owner->board->moved_bytes, stats.nvme_relocate_bytes - owner->moved_bytes);
    owner->moved_bytes = stats.nvme_relocate_bytes;
    atomic_store(&owner->board->pin_bytes, stats.pin_bytes_now);
    atomic_store(&owner->board->health,
        health & ~(uint32_t)(KVT_HEALTH_IO_THREADS | KVT_HEALTH_DEVICE_EMULATED));
}

/* Nobody uses the store; what it still does for itself ends soon. */
static void
accounts_check(struct owner *owner, bool looks_at_headers)
{
    struct store_audit audit = {.is_unused = true, .looks_at_headers = looks_at_headers};
    bool is_judged = store_audit(owner->store, &audit);

    for (int i = 0; i < REST_TRIES && !is_judged; i++) {
        usleep(1000);
        is_judged = store_audit(owner->store, &audit);
    }
    if (!is_judged)
        soak_complain(owner->board, &owner->board->failed_count, "the store does not come to rest");
    else if (audit.failure[0] != '\0')
        soak_complain(owner->board, &owner->board->failed_count, "%s", audit.failure);
}

/* Nothing is under way: what the disk gives for the mix of the time since the last probe. */
static void
probe(struct owner *owner)
{
    struct soak_board *board = owner->board;
    uint64_t get_bytes = atomic_load(&board->get_bytes) - owner->probed_get_bytes;
    uint64_t put_bytes = atomic_load(&board->put_bytes) - owner->probed_put_bytes;
    double all = (double)(get_bytes + put_bytes);

    facts_note(owner);
    accounts_check(owner, false);
    atomic_store(
        &board->probe_rate, soak_probe(owner->plan->dir, all > 0 ? (double)put_bytes / all : 0.5,
                                owner->plan->probe_ns));
    owner->probed_get_bytes += get_bytes;
    owner->probed_put_bytes += put_bytes;
    atomic_fetch_add(&board->probe_count, 1);
}

/* What was acknowledged last counts no longer as recent. */
static void
recents_forget(struct owner *owner)
{
    for (uint32_t i = 0; i < SOAK_RECENT; i++) {
        atomic_store(&owner->board->recent[i].version, 0);
        kvt_lease_release(owner->store, (kvt_lease){.id = atomic_exchange(&owner->leases[i], 0)});
    }
}

/* Let what is out end; the first thread then does what it alone does, while the others wait. */
static void
pause_for(struct worker *worker, uint64_t *running_from_ns)
{
    struct owner *owner = worker->owner;
    struct soak_board *board = owner->board;

    if (worker->number == 0 && kvt_flush(owner->store) != KVT_OK)
        soak_complain(board, &board->failed_count, "kvt_flush");
    while (worker->free_flight_count < FLIGHTS)
        collect(worker);
    pthread_barrier_wait(&owner->barrier);
    if (worker->number == 0) {
        uint64_t now_ns = soak_now_ns();
        atomic_fetch_add(&board->running_ns, now_ns - *running_from_ns);
        atomic_store(&board->state, SOAK_PAUSED);
        recents_forget(owner);
        probe(owner);
        atomic_store(&board->probe_wanted, 0);
        atomic_store(&board->last_ns, soak_now_ns());
        atomic_store(&board->state, SOAK_RUNNING);
        *running_from_ns = soak_now_ns();
    }
    pthread_barrier_wait(&owner->barrier);
}

static void *
worker_main(void *context)
{
    struct worker *worker = context;
    struct soak_board *board = worker->owner->board;
    uint64_t running_from_ns = soak_now_ns();

    while (atomic_load(&board->end_wanted) == 0) {
        /* Once around, both threads see the same: the pause ends in a barrier. */
        if (atomic_load(&board->probe_wanted) != 0)
            pause_for(worker, &running_from_ns);
        submit_some(worker);
        collect(worker);
    }
    while (worker->free_flight_count < FLIGHTS)
        collect(worker);
    return NULL;
}

/* Whether a block is there; what it holds is judged like any other read. */
static bool
recent_is_there(struct owner *owner, uint64_t key)
{
    struct worker *worker = &owner->workers[0];
    uint64_t hits = atomic_load(&owner->board->hit_count);

    get_submit(worker, key);
    while (worker->free_flight_count < FLIGHTS)
        collect(worker);
    return atomic_load(&owner->board->hit_count) > hits;
}

/* The blocks that were acknowledged last before a kill, and leased, are there. */
static void
recent_check(struct owner *owner)
{
    struct soak_board *board = owner->board;

    for (uint32_t i = 0; i < SOAK_RECENT; i++) {
        uint64_t version = atomic_load(&board->recent[i].version);
        uint64_t key = atomic_load(&board->recent[i].key);

        if (version == 0)
            continue;
        if (recent_is_there(owner, key))
            atomic_fetch_add(&board->kept_count, 1);
        else
            soak_complain(board, &board->lost_count,
                "key %llu, version %llu was acknowledged and is gone after a kill",
                (unsigned long long)key, (unsigned long long)version);
        atomic_store(&board->recent[i].version, 0);
    }
}

static bool
owner_open(struct owner *owner)
{
    struct kvt_options options = KVT_OPTIONS_INIT;
    const struct soak_plan *plan = owner->plan;
    struct soak_board *board = owner->board;
    char path[600];

    snprintf(path, sizeof(path), "%s/store", plan->dir);
    options.nvme_capacity_bytes = plan->nvme_bytes;
    options.host_capacity_bytes = plan->host_bytes;
    options.block_bytes_max = SOAK_BLOCK_MAX;
    options.relaxed_interval_ns = 100000000;
    enum kvt_status status = kvt_open(path, &options, &owner->store);
    if (status == KVT_OK)
        status = kvt_namespace_open(owner->store, "soak", "a model", 7, &owner->ns);
    if (status != KVT_OK) {
        struct kvt_error error;
        kvt_last_error(&error);
        soak_complain(board, &board->failed_count, "the store does not open: %s", error.text);
    }
    return status == KVT_OK;
}

static bool
buffers_ready(struct buffers *buffers)
{
    size_t size = (size_t)BUFFERS * SOAK_BLOCK_MAX;
    uint8_t *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        return false;
    (void)madvise(memory, size, MADV_HUGEPAGE);
    for (uint32_t i = 0; i < BUFFERS; i++)
        buffers->free[buffers->free_count++] = memory + (size_t)i * SOAK_BLOCK_MAX;
    return true;
}

static bool
worker_ready(struct owner *owner, uint32_t number)
{
    struct worker *worker = &owner->workers[number];

    worker->owner = owner;
    worker->number = number;
    worker->rng.state = (owner->plan->seed + atomic_load(&owner->board->life)) * THREADS + number;
    if (!buffers_ready(&worker->get_buffers) || !buffers_ready(&worker->put_buffers) ||
        kvt_queue_create(owner->store, &worker->queue) != KVT_OK)
        return false;
    for (uint32_t i = 0; i < FLIGHTS; i++)
        worker->free_flights[worker->free_flight_count++] = &worker->flights[i];
    return true;
}

int
soak_own(const struct soak_plan *plan, struct soak_board *board)
{
    static struct owner owner;
    pthread_t threads[THREADS];

    owner.plan = plan;
    owner.board = board;
    owner.probed_get_bytes = atomic_load(&board->get_bytes);
    owner.probed_put_bytes = atomic_load(&board->put_bytes);
    owner.busy = calloc(plan->key_count, sizeof(*owner.busy));
    if (owner.busy == NULL || pthread_barrier_init(&owner.barrier, NULL, THREADS) != 0 ||
        !owner_open(&owner))
        return 1;
    for (uint32_t i = 0; i < THREADS; i++) {
        if (!worker_ready(&owner, i))
            return 1;
    }
    recent_check(&owner);
    atomic_store(&board->last_ns, soak_now_ns());
    atomic_store(&board->state, SOAK_RUNNING);
    for (uint32_t i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, worker_main, &owner.workers[i]) != 0)
            return 1;
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        if (kvt_queue_destroy(owner.workers[i].queue) != KVT_OK)
            return 1;
    }
    recents_forget(&owner);
    if (kvt_flush(owner.store) != KVT_OK)
        soak_complain(board, &board->failed_count, "kvt_flush");
    accounts_check(&owner, true);
    atomic_store(&board->state, SOAK_CLOSED);
    return kvt_close(owner.store) == KVT_OK ? 0 : 1;
}
