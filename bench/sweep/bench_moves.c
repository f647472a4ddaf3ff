/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_moves.c - puts and reads of a benchmark's store, with a fixed number of tickets out.
 */
#include <string.h>

#include "bench_store.h"
#include "complain.h"
#include "progress.h"

enum {
    COMPARED_END_BYTES = 64
}; /* Of each end of a block, on the way. */

static const uint64_t patience_ns = UINT64_C(60) * 1000000000;

static const uint8_t *
source_of(const struct bench_store *bench, uint64_t number)
{
    return bench->sources.bytes + number % bench->pool_count * bench->stride_bytes;
}

/* The destination of a block of a ticket. Every block of the depth has its share of the
 * destinations, and takes the next of them in each turn. */
static uint8_t *
target_at(const struct bench_store *bench, const struct bench_ticket *ticket, uint32_t block)
{
    uint64_t turn = ticket->turn % (bench->pool_count / bench->depth);
    uint64_t place = ticket->place + block + turn * bench->depth;

    return bench->targets.bytes + place * bench->stride_bytes;
}

/* One completion. False: complained. */
static bool
completion_next(struct bench_store *bench, struct kvt_completion *done)
{
    uint32_t count = 0;
    enum kvt_status status = kvt_queue_poll(bench->queue, done, 1, patience_ns, &count);

    if (status == KVT_LATE)
        complain("nothing completed for 60 seconds: the store is stuck");
    else if (status != KVT_OK)
        complain_status(status, "cannot poll the queue");
    return status == KVT_OK && count == 1;
}

static bool
results_take(struct bench_ticket *ticket, uint32_t stage, struct kvt_result *results)
{
    enum kvt_status status = kvt_ticket_results(ticket->ticket, stage, results, ticket->count);

    if (status != KVT_OK)
        complain_status(status, "a ticket has no results");
    return status == KVT_OK;
}

static void
ticket_release(struct bench_ticket *ticket)
{
    kvt_ticket_free(ticket->ticket);
    ticket->ticket = NULL;
}

/* Submits one batch of new blocks. */
static bool
batch_submit(struct bench_store *bench, struct bench_ticket *ticket)
{
    const struct kvt_submit submit = {.queue = bench->queue, .user = ticket};
    uint64_t count = BENCH_BATCH_BYTES / bench->stride_bytes;
    enum kvt_status status = KVT_OK;

    if (count > BENCH_BATCH_BLOCKS_MAX)
        count = BENCH_BATCH_BLOCKS_MAX;
    if (bench->batch_blocks > 0 && count > bench->batch_blocks)
        count = bench->batch_blocks;
    if (count == 0)
        count = 1;
    ticket->count = (uint32_t)count;
    for (uint32_t i = 0; i < ticket->count; i++) {
        uint64_t number = bench->next_number++;

        pattern_key(number, bench->keys[i]);
        bench->puts[i] = (struct kvt_put){
            .key = {.bytes = bench->keys[i], .length = PATTERN_KEY_BYTES},
            .source = source_of(bench, number),
            .length = bench->block_bytes,
        };
    }
    status = kvt_put_submit(
        bench->store, bench->ns, bench->puts, ticket->count, KVT_SYNC, &submit, &ticket->ticket);
    if (status != KVT_OK)
        complain_status(status, "the store refuses a put of %u blocks", ticket->count);
    return status == KVT_OK;
}

/* All blocks of the batch must be durable. */
static bool
batch_finish(struct bench_ticket *ticket)
{
    static struct kvt_result results[BENCH_BATCH_BLOCKS_MAX];

    if (!results_take(ticket, KVT_STAGE_DURABLE, results))
        return false;
    for (uint32_t i = 0; i < ticket->count; i++) {
        if (results[i].status != KVT_OK) {
            complain("a put did not become durable: %s", kvt_status_name(results[i].status));
            return false;
        }
    }
    ticket_release(ticket);
    return true;
}

double
bench_store_put(struct bench_store *bench, uint64_t bytes, double seconds)
{
    double start = clock_seconds();
    uint64_t submitted_bytes = 0;
    uint32_t out = 0;

    for (; out < BENCH_TICKET_MAX && submitted_bytes < bytes; out++) {
        if (!batch_submit(bench, &bench->tickets[out]))
            return -1;
        submitted_bytes += bench->tickets[out].count * bench->block_bytes;
    }
    while (out > 0) {
        struct kvt_completion done;
        struct bench_ticket *ticket = NULL;

        if (!completion_next(bench, &done))
            return -1;
        if (done.stage != KVT_STAGE_DURABLE)
            continue;
        ticket = done.user;
        if (!batch_finish(ticket))
            return -1;
        out--;
        if (submitted_bytes >= bytes || clock_seconds() - start >= seconds)
            continue;
        if (!batch_submit(bench, ticket))
            return -1;
        submitted_bytes += ticket->count * bench->block_bytes;
        out++;
    }
    return (double)submitted_bytes / (clock_seconds() - start);
}

static bool
read_submit(
    struct bench_store *bench, struct bench_ticket *ticket, const struct bench_choice *choice)
{
    const struct kvt_submit submit = {.queue = bench->queue, .user = ticket};
    enum kvt_status status = KVT_OK;

    ticket->turn++;
    for (uint32_t i = 0; i < ticket->count; i++) {
        uint64_t number = choice->numbers[pattern_mix(bench->random++) % choice->count];

        ticket->numbers[i] = number;
        pattern_key(number, bench->keys[i]);
        bench->gets[i] = (struct kvt_get){
            .key = {.bytes = bench->keys[i], .length = PATTERN_KEY_BYTES},
            .destination = target_at(bench, ticket, i),
            .capacity = bench->stride_bytes,
            .flags = KVT_GET_TRANSIENT,
        };
        memset(target_at(bench, ticket, i), PATTERN_POISON, COMPARED_END_BYTES);
    }
    status = kvt_get_submit(
        bench->store, bench->ns, bench->gets, ticket->count, &submit, &ticket->ticket);
    if (status != KVT_OK)
        complain_status(status, "the store refuses a get of %u blocks", ticket->count);
    return status == KVT_OK;
}

static uint64_t
differing_bytes(const uint8_t *left, const uint8_t *right, uint64_t size)
{
    uint64_t count = 0;

    if (memcmp(left, right, size) == 0)
        return 0;
    for (uint64_t i = 0; i < size; i++)
        count += left[i] != right[i];
    return count;
}

/* Compares the ends of each block, or all of it. */
static bool
read_finish(struct bench_store *bench, struct bench_ticket *ticket, bool is_last)
{
    static struct kvt_result results[BENCH_BATCH_BLOCKS_MAX];
    uint64_t length = bench->block_bytes;
    uint64_t end = length < COMPARED_END_BYTES ? length : COMPARED_END_BYTES;

    if (!results_take(ticket, KVT_STAGE_DONE, results))
        return false;
    for (uint32_t i = 0; i < ticket->count; i++) {
        const uint8_t *source = source_of(bench, ticket->numbers[i]);
        const uint8_t *target = target_at(bench, ticket, i);

        if (results[i].status != KVT_OK)
            bench->miss_count++;
        else if (is_last)
            bench->wrong_bytes += differing_bytes(target, source, length);
        else
            bench->wrong_bytes +=
                differing_bytes(target, source, end) +
                differing_bytes(target + length - end, source + length - end, end);
    }
    ticket_release(ticket);
    return true;
}

/* Waits for one ticket; submits it again while there is time. False: complained. */
static bool
read_step(struct bench_store *bench, const struct bench_choice *choice, bool is_last, uint32_t *out,
    uint64_t *done_bytes)
{
    struct kvt_completion done;
    struct bench_ticket *ticket = NULL;

    if (!completion_next(bench, &done))
        return false;
    ticket = done.user;
    if (!read_finish(bench, ticket, is_last))
        return false;
    *done_bytes += ticket->count * bench->block_bytes;
    if (!is_last)
        return read_submit(bench, ticket, choice);
    --*out;
    return true;
}

double
bench_store_read(
    struct bench_store *bench, const struct bench_choice *choice, uint32_t depth, double seconds)
{
    uint32_t tickets = depth < BENCH_TICKET_MAX ? depth : BENCH_TICKET_MAX;
    double start = clock_seconds();
    double elapsed = 0;
    uint64_t done_bytes = 0;
    uint32_t out = 0;

    bench->depth = depth;
    for (uint32_t place = 0; out < tickets; out++) {
        struct bench_ticket *ticket = &bench->tickets[out];

        ticket->count = depth / tickets + (out < depth % tickets);
        ticket->place = place;
        place += ticket->count;
        if (!read_submit(bench, ticket, choice))
            return -1;
    }
    while (out > 0) {
        /* Draining is short of `depth`, and compares all: it does not count. */
        if (elapsed < seconds)
            elapsed = clock_seconds() - start;
        if (elapsed >= seconds) {
            uint64_t ignored = 0;

            if (!read_step(bench, choice, true, &out, &ignored))
                return -1;
        } else if (!read_step(bench, choice, false, &out, &done_bytes)) {
            return -1;
        }
    }
    return (double)done_bytes / elapsed;
}
