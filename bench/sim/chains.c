/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chains.c - a trace as the simulator walks it.
 */
#include "chains.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A year: what counts time in ticks has room for it. */
#define SPAN_MS_MAX (UINT64_C(366) * 24 * 3600 * 1000)

/* From ids to blocks: open addressing, at most half full. */
struct id_table {
    uint64_t *ids;
    uint32_t *blocks; /* BLOCK_NONE: the place is empty. */
    size_t mask;
};

static bool
id_table_open(struct id_table *table, uint64_t unique_count)
{
    size_t room = 1024;

    while (room < 2 * unique_count)
        room *= 2;
    table->mask = room - 1;
    table->ids = calloc(room, sizeof(*table->ids));
    table->blocks = malloc(room * sizeof(*table->blocks));
    if (table->ids == NULL || table->blocks == NULL)
        return false;
    memset(table->blocks, 0xFF, room * sizeof(*table->blocks));
    return true;
}

static void
id_table_close(struct id_table *table)
{
    free(table->ids);
    free(table->blocks);
}

/* The id's block, where it stands; BLOCK_NONE there: it is new. */
static uint32_t *
id_table_find(struct id_table *table, uint64_t id)
{
    size_t at = (size_t)(id * UINT64_C(0x9E3779B97F4A7C15) >> 20) & table->mask;

    while (table->blocks[at] != BLOCK_NONE && table->ids[at] != id)
        at = (at + 1) & table->mask;
    table->ids[at] = id;
    return &table->blocks[at];
}

/* --- In the order of time --------------------------------------------------------------------- */

static int
time_compare(const void *left, const void *right, void *context)
{
    const struct trace_request *requests = context;
    uint32_t a = *(const uint32_t *)left;
    uint32_t b = *(const uint32_t *)right;
    uint64_t a_time = requests[a].timestamp_ms;
    uint64_t b_time = requests[b].timestamp_ms;

    if (a_time != b_time)
        return a_time < b_time ? -1 : 1;
    return (a > b) - (a < b); /* As they stand in the trace. */
}

static void
order_fill(struct chains *chains)
{
    for (uint32_t i = 0; i < chains->request_count; i++)
        chains->order[i] = i;
    qsort_r(chains->order, chains->request_count, sizeof(*chains->order), time_compare,
        chains->trace->requests);
}

/* From the first request to the last. */
static uint64_t
times_span_ms(struct chains *chains)
{
    const struct trace_request *requests = chains->trace->requests;

    chains->start_ms = requests[chains->order[0]].timestamp_ms;
    return requests[chains->order[chains->request_count - 1]].timestamp_ms - chains->start_ms;
}

struct chain
chains_at(const struct chains *chains, uint32_t request)
{
    const struct trace_request *source = &chains->trace->requests[chains->order[request]];

    return (struct chain){
        .request = request,
        .id_start = source->id_start,
        .blocks = &chains->blocks[source->id_start],
        .next_uses = &chains->next_uses[source->id_start],
        .count = source->id_count,
        .now_ns = (source->timestamp_ms - chains->start_ms) * 1000000u,
        .tokens = source->input_length,
    };
}

/* --- Blocks ----------------------------------------------------------------------------------- */

/* False: an id has another parent than before. */
static bool
request_number(struct chains *chains, struct id_table *table, uint32_t request)
{
    const struct trace_request *source = &chains->trace->requests[chains->order[request]];
    uint32_t parent = BLOCK_NONE;

    for (uint32_t i = 0; i < source->id_count; i++) {
        uint32_t *block = id_table_find(table, chains->trace->ids[source->id_start + i]);

        if (*block == BLOCK_NONE) {
            *block = chains->block_count++;
            chains->parents[*block] = parent;
            chains->depths[*block] = i;
        } else if (chains->parents[*block] != parent) {
            return false;
        }
        parent = chains->blocks[source->id_start + i] = *block;
    }
    return true;
}

/* From the last request to the first. */
static void
next_uses_fill(struct chains *chains, uint32_t *uses)
{
    memset(uses, 0xFF, chains->block_count * sizeof(*uses));
    for (uint32_t request = chains->request_count; request-- > 0;) {
        const struct trace_request *source = &chains->trace->requests[chains->order[request]];

        for (size_t i = source->id_start; i < source->id_start + source->id_count; i++) {
            chains->next_uses[i] = uses[chains->blocks[i]];
            uses[chains->blocks[i]] = request;
        }
    }
}

static bool
chains_allocate(struct chains *chains)
{
    const struct trace *trace = chains->trace;
    size_t unique_count = trace->unique_count + 1;

    chains->blocks = malloc((trace->id_count + 1) * sizeof(*chains->blocks));
    chains->next_uses = malloc((trace->id_count + 1) * sizeof(*chains->next_uses));
    chains->parents = malloc(unique_count * sizeof(*chains->parents));
    chains->depths = malloc(unique_count * sizeof(*chains->depths));
    chains->order = malloc((trace->request_count + 1) * sizeof(*chains->order));
    return chains->blocks != NULL && chains->next_uses != NULL && chains->parents != NULL &&
           chains->depths != NULL && chains->order != NULL;
}

/* What is wrong; NULL: all is numbered. *request_out is where. */
static const char *
chains_fill(struct chains *chains, struct id_table *table, uint32_t *request_out)
{
    uint32_t *uses;

    if (chains->trace->unique_count >= BLOCK_NONE)
        return "the trace has too many blocks";
    if (!chains_allocate(chains) || !id_table_open(table, chains->trace->unique_count))
        return "there is no memory to number the trace's blocks";
    order_fill(chains);
    if (times_span_ms(chains) > SPAN_MS_MAX)
        return "the trace's requests lie more than a year apart";
    for (uint32_t request = 0; request < chains->request_count; request++) {
        if (!request_number(chains, table, request)) {
            *request_out = chains->order[request] + 1;
            return "a block follows another one than it did before: ids must name whole prefixes";
        }
    }
    uses = malloc((chains->block_count + 1) * sizeof(*uses));
    if (uses == NULL)
        return "there is no memory to look ahead in the trace";
    next_uses_fill(chains, uses);
    free(uses);
    return NULL;
}

bool
chains_create(
    struct chains *chains_out, const struct trace *trace, char message[TRACE_MESSAGE_BYTES])
{
    struct id_table table = {0};
    uint32_t request = 0;
    const char *wrong;

    *chains_out = (struct chains){.trace = trace, .request_count = (uint32_t)trace->request_count};
    wrong = chains_fill(chains_out, &table, &request);
    id_table_close(&table);
    if (wrong == NULL)
        return true;
    if (request > 0)
        snprintf(
            message, TRACE_MESSAGE_BYTES, "request %" PRIu32 " of the trace: %s", request, wrong);
    else
        snprintf(message, TRACE_MESSAGE_BYTES, "%s", wrong);
    chains_destroy(chains_out);
    return false;
}

void
chains_destroy(struct chains *chains)
{
    free(chains->blocks);
    free(chains->next_uses);
    free(chains->parents);
    free(chains->depths);
    free(chains->order);
    memset(chains, 0, sizeof(*chains));
}
