/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay_flights.c - the tickets of a replay: waves of reads that are compared when all of them
 * have arrived, waves of writes, whose blocks are acknowledged when they are durable.
 *
 * A wave is as many tickets as there are buffers. Its bytes are made before the clock of its path
 * starts, and compared after it has stopped: the rate of a path is the store's alone.
 *
 * Invariants
 *   (1) A buffer belongs to one flight: of a write from when it is filled to stage 1, of a read
 *       from when it is poisoned until it was compared.
 *   (2) Every flight that is not free, but those of a wave that was not sent, has a ticket.
 *   (3) undurable_bytes is what was put to be durable and has not reached stage 2; a new wave waits
 *       while it is above the limit, so that HOST always has clean blocks to drop.
 *   (4) A key is written to acks_fd only after the store said that its block is durable.
 */
#include <stdlib.h>
#include <string.h>

#include "complain.h"
#include "replay.h"

enum {
    PAGE_BYTES = 4096,
    POLL_COUNT = 64,
    WAVE_BLOCKS_MAX = FLIGHT_BLOCKS_MAX * FLIGHT_BUFFER_COUNT,
};

static const uint64_t patience_ns = UINT64_C(60) * 1000000000; /* Then something is stuck. */

static bool
arrays_create(struct flights *flights)
{
    flights->flights = calloc(FLIGHT_COUNT, sizeof(*flights->flights));
    flights->keys = calloc(WAVE_BLOCKS_MAX, sizeof(*flights->keys));
    flights->parents = calloc(WAVE_BLOCKS_MAX, sizeof(*flights->parents));
    flights->parent_keys = calloc(WAVE_BLOCKS_MAX, sizeof(*flights->parent_keys));
    flights->gets = calloc(WAVE_BLOCKS_MAX, sizeof(*flights->gets));
    flights->puts = calloc(WAVE_BLOCKS_MAX, sizeof(*flights->puts));
    flights->results = calloc(WAVE_BLOCKS_MAX, sizeof(*flights->results));
    return flights->flights != NULL && flights->keys != NULL && flights->parents != NULL &&
           flights->parent_keys != NULL && flights->gets != NULL && flights->puts != NULL &&
           flights->results != NULL &&
           huge_buffer_take(&flights->memory, flights->buffer_bytes * FLIGHT_BUFFER_COUNT);
}

/* What a run needs of the store. False: complained. */
static bool
store_prepare(struct flights *flights, bool has_hbm)
{
    enum kvt_status status = kvt_queue_create(flights->store, &flights->queue);

    if (status != KVT_OK) {
        complain_status(status, "cannot create a queue");
        return false;
    }
    return !has_hbm || device_pool_create(&flights->pool, flights->store, flights->memory.bytes,
                           flights->buffer_bytes * FLIGHT_BUFFER_COUNT);
}

bool
flights_create(struct flights *flights, const struct replay_settings *settings, kvt_store *store,
    kvt_namespace ns, struct replay_totals *totals)
{
    bool is_fine = false;

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
    flights->acks_fd = settings->acks_fd;
    flights->buffer_free_mask = (1u << FLIGHT_BUFFER_COUNT) - 1;
    for (uint32_t i = 0; i < FLIGHT_COUNT; i++)
        flights->free_list[flights->free_count++] = FLIGHT_COUNT - 1 - i;
    is_fine = arrays_create(flights);
    if (!is_fine)
        complain("there is no memory for the buffers");
    is_fine = is_fine && store_prepare(flights, settings->hbm_bytes > 0);
    if (!is_fine)
        flights_destroy(flights);
    return is_fine;
}

void
flights_destroy(struct flights *flights)
{
    if (flights->queue != NULL && kvt_queue_destroy(flights->queue) != KVT_OK)
        complain("the queue has completions that nobody took");
    device_pool_destroy(&flights->pool);
    huge_buffer_put(&flights->memory);
    free(flights->flights);
    free(flights->keys);
    free(flights->parents);
    free(flights->parent_keys);
    free(flights->gets);
    free(flights->puts);
    free(flights->results);
    memset(flights, 0, sizeof(*flights));
}

/* --- Buffers and flights ---------------------------------------------------------------------- */

static uint64_t
block_offset(const struct flights *flights, int buffer, uint32_t index)
{
    return (uint64_t)buffer * flights->buffer_bytes + index * flights->stride_bytes;
}

static uint8_t *
block_place(const struct flights *flights, int buffer, uint32_t index)
{
    return flights->memory.bytes + block_offset(flights, buffer, index);
}

/* Whether reads go to the device: those of the replay do, those that verify go to the host. */
static bool
reads_go_to_device(const struct flights *flights)
{
    return flights->pool.address != NULL && (flights->get_flags & KVT_GET_TRANSIENT) == 0;
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

/* Waits for a free flight with a buffer, which joins the wave. NULL: complained. */
static struct flight *
flight_take(struct flights *flights, enum flight_kind kind)
{
    struct flight *flight = NULL;

    while (flights->free_count == 0 || flights->buffer_free_mask == 0) {
        if (!flights_pump(flights, patience_ns))
            return NULL;
    }
    flight = &flights->flights[flights->free_list[--flights->free_count]];
    flight->kind = kind;
    flight->count = 0;
    flight->durability = flights->durability;
    flight->buffer = __builtin_ctz(flights->buffer_free_mask);
    flights->buffer_free_mask &= ~(1u << flight->buffer);
    flights->wave[flights->wave_count++] = flight;
    return flight;
}

/* --- Completions ------------------------------------------------------------------------------ */

static void
put_visible(struct flights *flights, struct flight *flight, const struct kvt_result *results)
{
    struct replay_totals *totals = flights->totals;

    for (uint32_t i = 0; i < flight->count; i++) {
        totals->put_refused_count += results[i].status < 0;
        totals->put_count += results[i].status == KVT_OK;
    }
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
    flights->wave_out -= done->stage == KVT_STAGE_DONE;
    if (flight->kind == FLIGHT_GET) {
        memcpy(&flights->results[flight->buffer * FLIGHT_BLOCKS_MAX], results,
            flight->count * sizeof(*results));
        return true;
    }
    if (done->stage == KVT_STAGE_DONE) {
        put_visible(flights, flight, results);
        if (flight->durability == KVT_MEMORY)
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

/* --- Waves ------------------------------------------------------------------------------------ */

static struct kvt_key
key_make(uint8_t bytes[PATTERN_KEY_BYTES], uint64_t number)
{
    pattern_key(number, bytes);
    return (struct kvt_key){.bytes = bytes, .length = PATTERN_KEY_BYTES};
}

static bool
flight_submit(struct flights *flights, struct flight *flight)
{
    const struct kvt_submit submit = {.queue = flights->queue, .user = flight};
    uint32_t first = (uint32_t)flight->buffer * FLIGHT_BLOCKS_MAX;
    enum kvt_status status =
        flight->kind == FLIGHT_GET
            ? kvt_get_submit(flights->store, flights->ns, flights->gets + first, flight->count,
                  &submit, &flight->ticket)
            : kvt_put_submit(flights->store, flights->ns, flights->puts + first, flight->count,
                  flight->durability, &submit, &flight->ticket);

    if (status == KVT_OK)
        return true;
    complain_status(status, "the store refuses a %s of %u blocks",
        flight->kind == FLIGHT_GET ? "get" : "put", flight->count);
    return false;
}

/* Sends the wave and waits until it has arrived: the time of a path. False: complained. */
static bool
wave_run(struct flights *flights, struct replay_path *path)
{
    double start = clock_seconds();

    for (uint32_t i = 0; i < flights->wave_count; i++) {
        if (!flight_submit(flights, flights->wave[i]))
            return false;
        flights->wave_out++;
    }
    while (flights->wave_out > 0) {
        if (!flights_pump(flights, patience_ns))
            return false;
    }
    path->busy_seconds += clock_seconds() - start;
    return true;
}

/* --- Reads ------------------------------------------------------------------------------------ */

/* Poisons the next blocks' places and adds their reads to the wave. */
static bool
get_prepare(struct flights *flights, const uint64_t *numbers, uint32_t count)
{
    struct flight *flight = flight_take(flights, FLIGHT_GET);
    bool to_device = reads_go_to_device(flights);
    double start = clock_seconds();
    double filled = 0;
    uint64_t offset = 0;

    if (flight == NULL)
        return false;
    flight->count = count;
    offset = block_offset(flights, flight->buffer, 0);
    memset(flights->memory.bytes + offset, PATTERN_POISON, count * flights->stride_bytes);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = (uint32_t)flight->buffer * FLIGHT_BLOCKS_MAX + i;
        uint64_t place = block_offset(flights, flight->buffer, i);

        flight->numbers[i] = numbers[i];
        flights->gets[at] = (struct kvt_get){
            .key = key_make(flights->keys[at], numbers[i]),
            .destination =
                to_device ? device_pool_at(&flights->pool, place) : flights->memory.bytes + place,
            .capacity = flights->stride_bytes,
            .flags = flights->get_flags,
        };
        if (to_device)
            flights->gets[at].region = flights->pool.region;
    }
    filled = clock_seconds();
    flights->totals->verify_seconds += filled - start;
    if (!to_device)
        return true;
    if (!device_pool_write(&flights->pool, offset, count * flights->stride_bytes))
        return false;
    flights->totals->hbm_pool_seconds += clock_seconds() - filled;
    return true;
}

static void
block_compare(struct flights *flights, const struct flight *flight, uint32_t i)
{
    const struct kvt_result *result =
        &flights->results[flight->buffer * FLIGHT_BLOCKS_MAX + (int)i];
    struct replay_totals *totals = flights->totals;
    uint64_t wrong = flights->block_bytes;

    if (result->status != KVT_OK) {
        totals->leased_miss_count += result->status == KVT_MISS;
        totals->read_refused_count += result->status != KVT_MISS;
        return;
    }
    totals->read_count++;
    if (result->tier == KVT_TIER_HBM)
        totals->hbm_to_caller.bytes += result->length;
    else if (result->tier == KVT_TIER_NVME)
        totals->nvme_to_caller.bytes += result->length;
    else
        totals->host_to_caller.bytes += result->length;
    if (result->length == flights->block_bytes)
        wrong = pattern_wrong_bytes(
            flight->numbers[i], block_place(flights, flight->buffer, i), flights->block_bytes);
    totals->wrong_bytes += wrong;
    totals->wrong_block_count += wrong > 0;
}

/* Looks at what the wave brought. */
static bool
wave_compare(struct flights *flights)
{
    bool from_device = reads_go_to_device(flights);

    for (uint32_t i = 0; i < flights->wave_count; i++) {
        struct flight *flight = flights->wave[i];
        double start = clock_seconds();
        double brought = start;

        if (from_device &&
            !device_pool_read(&flights->pool, block_offset(flights, flight->buffer, 0),
                flight->count * flights->stride_bytes))
            return false;
        brought = clock_seconds();
        flights->totals->hbm_pool_seconds += from_device ? brought - start : 0;
        for (uint32_t j = 0; j < flight->count; j++)
            block_compare(flights, flight, j);
        flights->totals->verify_seconds += clock_seconds() - brought;
        buffer_release(flights, flight);
        flight_release(flights, flight);
    }
    return true;
}

bool
flights_read(
    struct flights *flights, const uint64_t *numbers, uint32_t count, struct replay_path *path)
{
    for (uint32_t start = 0; start < count;) {
        flights->wave_count = 0;
        while (start < count && flights->wave_count < FLIGHT_BUFFER_COUNT) {
            uint32_t left = count - start;
            uint32_t taken = left < flights->chunk_blocks ? left : flights->chunk_blocks;

            if (!get_prepare(flights, numbers + start, taken))
                return false;
            start += taken;
        }
        if (!wave_run(flights, path) || !wave_compare(flights))
            return false;
    }
    return true;
}

/* --- Writes ----------------------------------------------------------------------------------- */

/* Adds one block of the chain to a flight. */
static void
put_fill(struct flights *flights, struct flight *flight, const uint64_t *numbers, uint32_t position)
{
    uint32_t i = flight->count++;
    uint32_t at = (uint32_t)flight->buffer * FLIGHT_BLOCKS_MAX + i;
    uint64_t place = block_offset(flights, flight->buffer, i);
    bool in_hbm = flights->pool.address != NULL;

    pattern_fill(numbers[position], flights->memory.bytes + place, flights->block_bytes);
    flight->numbers[i] = numbers[position];
    if (position > 0)
        flights->parent_keys[at] = key_make(flights->parents[at], numbers[position - 1]);
    flights->puts[at] = (struct kvt_put){
        .key = key_make(flights->keys[at], numbers[position]),
        .parent = position > 0 ? &flights->parent_keys[at] : NULL,
        .source = in_hbm ? device_pool_at(&flights->pool, place) : flights->memory.bytes + place,
        .length = flights->block_bytes,
        .depth = position,
        .token_start = position * TRACE_BLOCK_TOKENS,
        .token_count = TRACE_BLOCK_TOKENS,
        .tier = in_hbm ? KVT_TIER_HBM : KVT_TIER_HOST,
    };
    if (in_hbm)
        flights->puts[at].region = flights->pool.region;
}

/* Adds the next puts of the chain to the wave, at most one ticket's; *position moves on. */
static bool
put_prepare(struct flights *flights, const struct flight_chain *chain, uint32_t *position)
{
    struct flight *flight = flight_take(flights, FLIGHT_PUT);
    double start = clock_seconds();
    double filled = 0;
    uint64_t offset = 0;

    if (flight == NULL)
        return false;
    for (; *position < chain->end && flight->count < flights->chunk_blocks; (*position)++) {
        if (chain->tiers[*position] == 0)
            put_fill(flights, flight, chain->numbers, *position);
    }
    filled = clock_seconds();
    flights->totals->verify_seconds += filled - start;
    if (flight->count == 0) {
        flights->wave_count--;
        buffer_release(flights, flight);
        flight_release(flights, flight);
        return true;
    }
    if (flight->durability != KVT_MEMORY)
        flights->undurable_bytes += flight->count * flights->block_bytes;
    flights->wave_bytes += flight->count * flights->block_bytes;
    offset = block_offset(flights, flight->buffer, 0);
    if (flights->pool.address == NULL)
        return true;
    if (!device_pool_write(&flights->pool, offset, flight->count * flights->stride_bytes))
        return false;
    flights->totals->hbm_pool_seconds += clock_seconds() - filled;
    return true;
}

bool
flights_write(struct flights *flights, const struct flight_chain *chain, struct replay_path *path)
{
    for (uint32_t position = chain->start; position < chain->end;) {
        double start = clock_seconds();

        while (flights->undurable_bytes > flights->undurable_limit_bytes) {
            if (!flights_pump(flights, patience_ns))
                return false;
        }
        flights->totals->durable_wait_seconds += clock_seconds() - start;
        flights->wave_count = 0;
        flights->wave_bytes = 0;
        do {
            if (!put_prepare(flights, chain, &position))
                return false;
        } while (position < chain->end && flights->wave_count < FLIGHT_BUFFER_COUNT &&
                 flights->undurable_bytes <= flights->undurable_limit_bytes);
        path->bytes += flights->wave_bytes;
        if (!wave_run(flights, path))
            return false;
    }
    return flights_pump(flights, 0);
}
