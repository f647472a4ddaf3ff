/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_block.c - single blocks, waited for, and runs of them with many under way.
 */
#include "kvtool_block.h"

#include <stdlib.h>
#include <string.h>

#include "complain.h"

enum {
    PAGE_BYTES = 4096
};

static uint64_t
whole_pages(uint64_t length)
{
    return (length + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

/* --- One block -------------------------------------------------------------------------------- */

/* The result of a ticket of one block: of stage 1, and of stage 2 when it has one. Frees it. */
static enum kvt_status
ticket_finish(kvt_ticket *ticket, uint32_t stage, struct kvt_result *result_out)
{
    struct kvt_result durable = {0};
    enum kvt_status status = kvt_ticket_wait(ticket, stage, KVT_FOREVER);

    if (status == KVT_OK)
        status = kvt_ticket_results(ticket, KVT_STAGE_DONE, result_out, 1);
    if (status == KVT_OK && stage == KVT_STAGE_DURABLE)
        status = kvt_ticket_results(ticket, KVT_STAGE_DURABLE, &durable, 1);
    kvt_ticket_free(ticket);
    if (status != KVT_OK)
        return status;
    if (result_out->status < 0 || stage == KVT_STAGE_DONE)
        return result_out->status;
    if (durable.status != KVT_OK && durable.status != KVT_EXISTS)
        return durable.status;
    return result_out->status;
}

static enum kvt_status
block_get_once(kvt_store *store, kvt_namespace ns, const struct kvt_key *key, struct block *block)
{
    struct kvt_get get = {
        .key = *key,
        .destination = block->bytes,
        .capacity = block->capacity,
        .flags = KVT_GET_TRANSIENT,
    };
    kvt_ticket *ticket = NULL;
    enum kvt_status status = kvt_get_submit(store, ns, &get, 1, NULL, &ticket);

    return status != KVT_OK ? status : ticket_finish(ticket, KVT_STAGE_DONE, &block->result);
}

static bool
block_resize(struct block *block, uint64_t length)
{
    free(block->bytes);
    block->capacity = whole_pages(length);
    block->bytes = aligned_alloc(PAGE_BYTES, block->capacity);
    return block->bytes != NULL;
}

enum kvt_status
block_get(kvt_store *store, kvt_namespace ns, const struct kvt_key *key, struct block *block)
{
    enum kvt_status status = KVT_OK;

    if (block->bytes == NULL && !block_resize(block, PAGE_BYTES))
        return KVT_E_NOMEM;
    status = block_get_once(store, ns, key, block);
    if (status != KVT_E_INVAL || block->result.length <= block->capacity ||
        block->result.length > KVT_BLOCK_BYTES_MAX)
        return status;
    if (!block_resize(block, block->result.length))
        return KVT_E_NOMEM;
    return block_get_once(store, ns, key, block);
}

void
block_free(struct block *block)
{
    free(block->bytes);
    memset(block, 0, sizeof(*block));
}

enum kvt_status
block_put(kvt_store *store, kvt_namespace ns, const struct kvt_put *put)
{
    struct kvt_result result = {0};
    kvt_ticket *ticket = NULL;
    enum kvt_status status = kvt_put_submit(store, ns, put, 1, KVT_SYNC, NULL, &ticket);

    return status != KVT_OK ? status : ticket_finish(ticket, KVT_STAGE_DURABLE, &result);
}

/* --- Many, by their keys ---------------------------------------------------------------------- */

static enum kvt_status
batch_delete(kvt_store *store, kvt_namespace ns, const struct kvt_key *keys, uint32_t count,
    uint64_t *gone_out)
{
    struct kvt_result *results = calloc(count, sizeof(*results));
    kvt_ticket *ticket = NULL;
    enum kvt_status status = results == NULL ? KVT_E_NOMEM : KVT_OK;

    if (status == KVT_OK)
        status = kvt_delete_submit(store, ns, keys, count, NULL, &ticket);
    if (status == KVT_OK)
        status = kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, KVT_FOREVER);
    if (status == KVT_OK)
        status = kvt_ticket_results(ticket, KVT_STAGE_DONE, results, count);
    for (uint32_t i = 0; status == KVT_OK && i < count; i++) {
        *gone_out += results[i].status == KVT_OK;
        if (results[i].status < 0)
            status = results[i].status;
    }
    if (status == KVT_OK)
        status = kvt_ticket_results(ticket, KVT_STAGE_DURABLE, results, count);
    for (uint32_t i = 0; status == KVT_OK && i < count; i++) {
        if (results[i].status < 0)
            status = results[i].status;
    }
    kvt_ticket_free(ticket);
    free(results);
    return status;
}

enum kvt_status
blocks_delete(kvt_store *store, kvt_namespace ns, const struct kvt_key *keys, uint32_t count)
{
    uint64_t gone = 0;

    for (uint32_t at = 0; at < count;) {
        uint32_t part = count - at < KVT_BATCH_MAX ? count - at : KVT_BATCH_MAX;
        enum kvt_status status = batch_delete(store, ns, keys + at, part, &gone);

        if (status != KVT_OK)
            return status;
        at += part;
    }
    return gone > 0 ? KVT_OK : KVT_MISS;
}

enum kvt_status
blocks_are_there(kvt_store *store, kvt_namespace ns, const struct kvt_key *keys, uint32_t count)
{
    uint8_t tiers[1024];

    for (uint32_t at = 0; at < count;) {
        uint32_t part = count - at < sizeof(tiers) ? count - at : (uint32_t)sizeof(tiers);
        enum kvt_status status = kvt_lookup(store, ns, keys + at, part, tiers, NULL, NULL);

        if (status != KVT_OK)
            return status;
        for (uint32_t i = 0; i < part; i++) {
            if ((tiers[i] & KVT_TIER_NVME) == 0)
                return KVT_MISS;
        }
        at += part;
    }
    return KVT_OK;
}

/* --- Lanes ------------------------------------------------------------------------------------ */

bool
lanes_open(struct lanes *lanes, kvt_store *store, uint64_t block_bytes)
{
    uint64_t size = whole_pages(block_bytes);
    uint64_t count = LANES_BYTES / size;

    memset(lanes, 0, sizeof(*lanes));
    lanes->store = store;
    lanes->block_bytes = size;
    lanes->count = count < 2 ? 2 : count > LANE_COUNT_MAX ? LANE_COUNT_MAX : (uint32_t)count;
    for (uint32_t i = 0; i < lanes->count; i++) {
        lanes->lanes[i].bytes = aligned_alloc(PAGE_BYTES, size);
        if (lanes->lanes[i].bytes == NULL) {
            complain("there is no memory for %u blocks of %llu bytes", lanes->count,
                (unsigned long long)size);
            lanes_close(lanes);
            return false;
        }
    }
    return true;
}

void
lanes_close(struct lanes *lanes)
{
    for (uint32_t i = 0; i < lanes->count; i++) {
        uint64_t length = 0;

        (void)lane_wait(&lanes->lanes[i], &length);
        free(lanes->lanes[i].bytes);
        lanes->lanes[i].bytes = NULL;
    }
    lanes->count = 0;
}

struct lane *
lanes_at(struct lanes *lanes, uint64_t number)
{
    return &lanes->lanes[number % lanes->count];
}

enum kvt_status
lane_put(struct lanes *lanes, struct lane *lane, kvt_namespace ns, const struct kvt_put *put)
{
    return kvt_put_submit(lanes->store, ns, put, 1, KVT_SYNC, NULL, &lane->ticket);
}

enum kvt_status
lane_get(struct lanes *lanes, struct lane *lane, kvt_namespace ns, const struct kvt_key *key)
{
    struct kvt_get get = {
        .key = *key,
        .destination = lane->bytes,
        .capacity = lanes->block_bytes,
        .flags = KVT_GET_TRANSIENT,
    };

    return kvt_get_submit(lanes->store, ns, &get, 1, NULL, &lane->ticket);
}

enum kvt_status
lane_wait(struct lane *lane, uint64_t *length_out)
{
    struct kvt_result result = {0};
    kvt_ticket *ticket = lane->ticket;
    enum kvt_status status = KVT_OK;

    *length_out = 0;
    if (ticket == NULL)
        return KVT_OK;
    lane->ticket = NULL;
    /* A get has no second stage, and says so at once. */
    status = kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, KVT_FOREVER);
    status =
        ticket_finish(ticket, status == KVT_E_INVAL ? KVT_STAGE_DONE : KVT_STAGE_DURABLE, &result);
    *length_out = result.length;
    return status;
}
