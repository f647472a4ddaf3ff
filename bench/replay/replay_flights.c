/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay_flights.c - the tickets of a replay: reads that are compared when they arrive, writes that
 * are acknowledged when they are durable.
 *
 * Invariants
 *   (1) A buffer belongs to one flight from submission to stage 1, and to none otherwise.
 *   (2) Every flight that is not free has a ticket whose last completion is still to come.
 *   (3) undurable_bytes is what was put and has not reached stage 2; a new put waits while it is
 *       above the limit, so that HOST never has to drop a block for want of clean ones.
 *   (4) A key is written to acks_fd only after its stage 2 said so.
 */
#include <stdlib.h>
#include <string.h>

#include "complain.h"
#include "replay.h"

enum {
    PAGE_BYTES = 4096,
    POLL_COUNT = 64,
};

static const uint64_t patience_ns = UINT64_C(60) * 1000000000; /* Then something is stuck. */

static bool
arrays_create(struct flights *flights)
{
    flights->flights = calloc(FLIGHT_COUNT, sizeof(*flights->flights));
    flights->keys = calloc(FLIGHT_BLOCKS_MAX, sizeof(*flights->keys));
    flights->parents = calloc(FLIGHT_BLOCKS_MAX, sizeof(*flights->parents));
    flights->parent_keys = calloc(FLIGHT_BLOCKS_MAX, sizeof(*flights->parent_keys));
    flights->gets = calloc(FLIGHT_BLOCKS_MAX, sizeof(*flights->gets));
    flights->puts = calloc(FLIGHT_BLOCKS_MAX, sizeof(*flights->puts));
    return flights->flights != NULL && flights->keys != NULL && flights->parents != NULL &&
           flights->parent_keys != NULL && flights->gets != NULL && flights->puts != NULL &&
           huge_buffer_take(&flights->memory, flights->buffer_bytes * FLIGHT_BUFFER_COUNT);
}

bool
flights_create(struct flights *flights, const struct replay_settings *settings, kvt_store *store,
    kvt_namespace ns, struct replay_totals *totals)
{
    enum kvt_status status = KVT_OK;

    memset(flights, 0, sizeof(*flights));
    flights->store = store;
    flights->ns = ns;
    flights->totals = totals;
    flights->block_bytes = settings->block_bytes;
    flights->stride_bytes = (settings->block_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    flights->buffer_bytes =
        flights->stride_bytes > FLIGHT_BUFFER_BYTES ? flights->stride_bytes : FLIGHT_BUFFER_BYTES;
    flights->chunk_blocks = (uint32_t)(flights->buffer_bytes / flights->stride_bytes);
    if (flights->chunk_blocks > FLIGHT_BLOCKS_MAX)
        flights->chunk_blocks = FLIGHT_BLOCKS_MAX;
    flights->undurable_limit_bytes = settings->host_bytes / 4;
    flights->durability = settings->durability;
    flights->acks_fd = settings->acks_fd;
    flights->buffer_free_mask = (1u << FLIGHT_BUFFER_COUNT) - 1;
    for (uint32_t i = 0; i < FLIGHT_COUNT; i++)
        flights->free_list[flights->free_count++] = FLIGHT_COUNT - 1 - i;
    if (!arrays_create(flights)) {
        complain("there is no memory for the buffers");
        flights_destroy(flights);
        return false;
    }
    status = kvt_queue_create(store, &flights->queue);
    if (status != KVT_OK) {
        complain_status(status, "cannot create a queue");
        flights_destroy(flights);
        return false;
    }
    return true;
}

void
flights_destroy(struct flights *flights)
{
    if (flights->queue != NULL && kvt_queue_destroy(flights->queue) != KVT_OK)
        complain("the queue has completions that nobody took");
    huge_buffer_put(&flights->memory);
    free(flights->flights);
    free(flights->keys);
    free(flights->parents);
    free(flights->parent_keys);
    free(flights->gets);
    free(flights->puts);
    memset(flights, 0, sizeof(*flights));
}

static uint8_t *
block_place(const struct flights *flights, int buffer, uint32_t index)
{
    return flights->memory.bytes + (uint64_t)buffer * flights->buffer_bytes +
           index * flights->stride_bytes;
}

static void
buffer_release(struct flights *flights, struct flight *flight)
{
    flights->buffer_free_mask |= 1u << flight->buffer;
    flight->buffer = -1;
}

static void
flight_release(struct flights *flights, struct flight *flight)
{
    kvt_ticket_free(flight->ticket);
    flight->ticket = NULL;
    flight->kind = FLIGHT_FREE;
    flights->free_list[flights->free_count++] = (uint32_t)(flight - flights->flights);
}

/* Waits for a free flight with a buffer. NULL: complained. */
static struct flight *
flight_take(struct flights *flights, enum flight_kind kind, uint32_t count)
{
    struct flight *flight = NULL;

    while (flights->free_count == 0 || flights->buffer_free_mask == 0) {
        if (!flights_pump(flights, patience_ns))
            return NULL;
    }
    flight = &flights->flights[flights->free_list[--flights->free_count]];
    flight->kind = kind;
    flight->count = count;
    flight->buffer = __builtin_ctz(flights->buffer_free_mask);
    flights->buffer_free_mask &= ~(1u << flight->buffer);
    return flight;
}

/* Compares what a get brought. */
static void
get_compare(struct flights *flights, struct flight *flight, const struct kvt_result *results)
{
    struct replay_totals *totals = flights->totals;
    double start = clock_seconds();

    for (uint32_t i = 0; i < flight->count; i++) {
        uint64_t wrong = 0;

        if (results[i].status != KVT_OK) {
            totals->leased_miss_count += results[i].status == KVT_MISS;
            totals->read_refused_count += results[i].status != KVT_MISS;
            continue;
        }
        totals->read_count++;
        if (results[i].tier == KVT_TIER_NVME)
            totals->nvme_to_caller.bytes += results[i].length;
        else
            totals->host_to_caller.bytes += results[i].length;
        wrong = results[i].length != flights->block_bytes
                    ? flights->block_bytes
                    : pattern_wrong_bytes(flight->numbers[i],
                          block_place(flights, flight->buffer, i), flights->block_bytes);
        totals->wrong_bytes += wrong;
        totals->wrong_block_count += wrong > 0;
    }
    totals->verify_seconds += clock_seconds() - start;
}

static void
put_visible(struct flights *flights, struct flight *flight, const struct kvt_result *results)
{
    struct replay_totals *totals = flights->totals;

    for (uint32_t i = 0; i < flight->count; i++) {
        totals->put_refused_count += results[i].status < 0;
        totals->put_count += results[i].status == KVT_OK;
    }
    flights->puts_visible_out--;
    buffer_release(flights, flight);
}

/* Passes on the keys that are durable now. */
static bool
put_durable(struct flights *flights, struct flight *flight, const struct kvt_result *results)
{
    uint64_t durable[FLIGHT_BLOCKS_MAX];
    uint32_t count = 0;

    for (uint32_t i = 0; i < flight->count; i++) {
        if (results[i].status == KVT_OK || results[i].status == KVT_EXISTS)
            durable[count++] = flight->numbers[i];
        flights->totals->dropped_count += results[i].status == KVT_MISS;
        flights->totals->durable_failed_count += results[i].status < 0;
    }
    flights->totals->acknowledged_count += count;
    flights->undurable_bytes -= flight->count * flights->block_bytes;
    return flights->acks_fd < 0 || acks_write(flights->acks_fd, durable, count);
}

static bool
completion_take(struct flights *flights, const struct kvt_completion *done)
{
    struct flight *flight = done->user;
    struct kvt_result results[FLIGHT_BLOCKS_MAX];
    enum kvt_status status =
        kvt_ticket_results(flight->ticket, done->stage, results, flight->count);
    bool is_fine = true;

    if (status != KVT_OK) {
        complain_status(status, "a ticket has no results");
        return false;
    }
    if (flight->kind == FLIGHT_GET) {
        get_compare(flights, flight, results);
        flights->gets_out--;
        buffer_release(flights, flight);
        flight_release(flights, flight);
        return true;
    }
    if (done->stage == KVT_STAGE_DONE) {
        put_visible(flights, flight, results);
        if (flights->durability == KVT_MEMORY)
            flight_release(flights, flight);
        return true;
    }
    is_fine = put_durable(flights, flight, results);
    flight_release(flights, flight);
    return is_fine;
}

bool
flights_pump(struct flights *flights, uint64_t timeout_ns)
{
    struct kvt_completion done[POLL_COUNT];
    uint32_t count = 0;
    enum kvt_status status = kvt_queue_poll(flights->queue, done, POLL_COUNT, timeout_ns, &count);

    if (status == KVT_LATE && timeout_ns < patience_ns)
        return true;
    if (status == KVT_LATE) {
        complain("nothing completed for 60 seconds: the store is stuck");
        return false;
    }
    if (status != KVT_OK) {
        complain_status(status, "cannot poll the queue");
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!completion_take(flights, &done[i]))
            return false;
    }
    return true;
}

bool
flights_drain(struct flights *flights)
{
    while (flights->free_count < FLIGHT_COUNT) {
        if (!flights_pump(flights, patience_ns))
            return false;
    }
    return true;
}

static struct kvt_key
key_make(uint8_t bytes[PATTERN_KEY_BYTES], uint64_t number)
{
    pattern_key(number, bytes);
    return (struct kvt_key){.bytes = bytes, .length = PATTERN_KEY_BYTES};
}

/* Hands a flight to the store; takes it back when the store refuses. */
static bool
flight_submit(struct flights *flights, struct flight *flight)
{
    const struct kvt_submit submit = {.queue = flights->queue, .user = flight};
    enum kvt_status status =
        flight->kind == FLIGHT_GET
            ? kvt_get_submit(flights->store, flights->ns, flights->gets, flight->count, &submit,
                  &flight->ticket)
            : kvt_put_submit(flights->store, flights->ns, flights->puts, flight->count,
                  flights->durability, &submit, &flight->ticket);

    if (status == KVT_OK)
        return true;
    complain_status(status, "the store refuses a %s of %u blocks",
        flight->kind == FLIGHT_GET ? "get" : "put", flight->count);
    buffer_release(flights, flight);
    flight_release(flights, flight);
    return false;
}

static bool
flight_get(struct flights *flights, const uint64_t *numbers, uint32_t count)
{
    struct flight *flight = flight_take(flights, FLIGHT_GET, count);
    double start = clock_seconds();

    if (flight == NULL)
        return false;
    memset(block_place(flights, flight->buffer, 0), PATTERN_POISON, count * flights->stride_bytes);
    for (uint32_t i = 0; i < count; i++) {
        flight->numbers[i] = numbers[i];
        flights->gets[i] = (struct kvt_get){
            .key = key_make(flights->keys[i], numbers[i]),
            .destination = block_place(flights, flight->buffer, i),
            .capacity = flights->stride_bytes,
            .flags = flights->get_flags,
        };
    }
    flights->totals->verify_seconds += clock_seconds() - start;
    if (!flight_submit(flights, flight))
        return false;
    flights->gets_out++;
    return true;
}

bool
flights_read(struct flights *flights, const uint64_t *numbers, uint32_t count)
{
    for (uint32_t start = 0; start < count; start += flights->chunk_blocks) {
        uint32_t left = count - start;

        if (!flight_get(flights, numbers + start,
                left < flights->chunk_blocks ? left : flights->chunk_blocks))
            return false;
    }
    while (flights->gets_out > 0) {
        if (!flights_pump(flights, patience_ns))
            return false;
    }
    return true;
}

/* Adds one block of the chain to a flight. */
static void
put_fill(struct flights *flights, struct flight *flight, const uint64_t *numbers, uint32_t position)
{
    uint32_t i = flight->count++;
    uint8_t *source = block_place(flights, flight->buffer, i);
    double start = clock_seconds();

    pattern_fill(numbers[position], source, flights->block_bytes);
    flights->totals->verify_seconds += clock_seconds() - start;
    flight->numbers[i] = numbers[position];
    if (position > 0)
        flights->parent_keys[i] = key_make(flights->parents[i], numbers[position - 1]);
    flights->puts[i] = (struct kvt_put){
        .key = key_make(flights->keys[i], numbers[position]),
        .parent = position > 0 ? &flights->parent_keys[i] : NULL,
        .source = source,
        .length = flights->block_bytes,
        .depth = position,
        .token_start = position * TRACE_BLOCK_TOKENS,
        .token_count = TRACE_BLOCK_TOKENS,
    };
}

/* Submits the next puts of the chain, at most one ticket's; *position moves on. */
static bool
flight_put(struct flights *flights, const struct flight_chain *chain, uint32_t *position)
{
    struct flight *flight = flight_take(flights, FLIGHT_PUT, 0);

    if (flight == NULL)
        return false;
    for (; *position < chain->end && flight->count < flights->chunk_blocks; (*position)++) {
        if (chain->tiers[*position] == 0)
            put_fill(flights, flight, chain->numbers, *position);
    }
    if (flight->count == 0) {
        buffer_release(flights, flight);
        flight_release(flights, flight);
        return true;
    }
    if (!flight_submit(flights, flight))
        return false;
    flights->totals->caller_to_host.bytes += flight->count * flights->block_bytes;
    flights->puts_visible_out++;
    if (flights->durability != KVT_MEMORY)
        flights->undurable_bytes += flight->count * flights->block_bytes;
    return true;
}

bool
flights_write(struct flights *flights, const struct flight_chain *chain)
{
    for (uint32_t position = chain->start; position < chain->end;) {
        double start = clock_seconds();

        while (flights->undurable_bytes > flights->undurable_limit_bytes) {
            if (!flights_pump(flights, patience_ns))
                return false;
        }
        flights->totals->durable_wait_seconds += clock_seconds() - start;
        if (!flight_put(flights, chain, &position))
            return false;
    }
    while (flights->puts_visible_out > 0) {
        if (!flights_pump(flights, patience_ns))
            return false;
    }
    return flights_pump(flights, 0);
}
