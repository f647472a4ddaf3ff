/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_kvtier.c - kvtier as one of the peers, through its public header only.
 *
 * A caller submits its batch and waits for it. Gets are TRANSIENT, straight into the caller's
 * memory, so that HOST keeps nothing of them and each is read from NVMe; checksums are verified.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "complain.h"
#include "kvtier/kvtier.h"
#include "pattern.h"
#include "peer.h"

static const uint64_t host_bytes = UINT64_C(256) << 20;

/* What one caller's calls need. */
struct submission {
    uint8_t keys[PEER_BATCH_MAX][PATTERN_KEY_BYTES];
    struct kvt_put puts[PEER_BATCH_MAX];
    struct kvt_get gets[PEER_BATCH_MAX];
    struct kvt_result results[PEER_BATCH_MAX];
};

struct kvtier_state {
    kvt_store *store;
    kvt_namespace ns;
    uint64_t block_bytes;
    struct submission submissions[PEER_CALLERS_MAX];
};

/* Half as much again, and some: batch headers, and the mark above which segments are reclaimed. */
static uint64_t
capacity_for(const struct peer_place *place)
{
    uint64_t bytes = place->block_bytes * place->block_count;

    return (bytes + bytes / 2 + (UINT64_C(512) << 20)) >> 20 << 20;
}

static void *
kvtier_open(const struct peer_place *place)
{
    struct kvt_options options = KVT_OPTIONS_INIT;
    struct kvtier_state *state = calloc(1, sizeof(*state));
    enum kvt_status status = KVT_OK;

    if (state == NULL) {
        complain("there is no memory");
        return NULL;
    }
    state->block_bytes = place->block_bytes;
    options.host_capacity_bytes = host_bytes;
    options.nvme_capacity_bytes = capacity_for(place);
    status = kvt_open(place->directory, &options, &state->store);
    if (status == KVT_OK)
        status = kvt_namespace_open(state->store, "vs", "", 0, &state->ns);
    if (status == KVT_OK)
        return state;
    complain_status(status, "cannot open the store %s", place->directory);
    kvt_abort(state->store);
    free(state);
    return NULL;
}

/* Waits for the last stage and takes its results. */
static bool
ticket_finish(kvt_ticket *ticket, uint32_t stage, struct kvt_result *results, uint32_t count)
{
    enum kvt_status status = kvt_ticket_wait(ticket, stage, KVT_FOREVER);

    if (status == KVT_OK)
        status = kvt_ticket_results(ticket, stage, results, count);
    kvt_ticket_free(ticket);
    if (status != KVT_OK)
        complain_status(status, "a ticket of the store has no results");
    return status == KVT_OK;
}

static bool
kvtier_put(void *opened, uint32_t caller, const struct peer_block *blocks, uint32_t count)
{
    struct kvtier_state *state = opened;
    struct submission *submission = &state->submissions[caller];
    kvt_ticket *ticket = NULL;
    enum kvt_status status = KVT_OK;

    for (uint32_t i = 0; i < count; i++) {
        pattern_key(blocks[i].number, submission->keys[i]);
        submission->puts[i] = (struct kvt_put){
            .key = {.bytes = submission->keys[i], .length = PATTERN_KEY_BYTES},
            .source = blocks[i].bytes,
            .length = state->block_bytes,
        };
    }
    status =
        kvt_put_submit(state->store, state->ns, submission->puts, count, KVT_SYNC, NULL, &ticket);
    if (status != KVT_OK) {
        complain_status(status, "the store refuses a put of %u blocks", count);
        return false;
    }
    if (!ticket_finish(ticket, KVT_STAGE_DURABLE, submission->results, count))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        if (submission->results[i].status == KVT_OK)
            continue;
        complain("a put of the store did not become durable: %s",
            kvt_status_name(submission->results[i].status));
        return false;
    }
    return true;
}

static bool
kvtier_get(void *opened, uint32_t caller, struct peer_block *blocks, uint32_t count)
{
    struct kvtier_state *state = opened;
    struct submission *submission = &state->submissions[caller];
    kvt_ticket *ticket = NULL;
    enum kvt_status status = KVT_OK;

    for (uint32_t i = 0; i < count; i++) {
        pattern_key(blocks[i].number, submission->keys[i]);
        submission->gets[i] = (struct kvt_get){
            .key = {.bytes = submission->keys[i], .length = PATTERN_KEY_BYTES},
            .destination = blocks[i].bytes,
            .capacity = state->block_bytes,
            .flags = KVT_GET_TRANSIENT,
        };
    }
    status = kvt_get_submit(state->store, state->ns, submission->gets, count, NULL, &ticket);
    if (status != KVT_OK) {
        complain_status(status, "the store refuses a get of %u blocks", count);
        return false;
    }
    if (!ticket_finish(ticket, KVT_STAGE_DONE, submission->results, count))
        return false;
    for (uint32_t i = 0; i < count; i++)
        blocks[i].is_refused = submission->results[i].status != KVT_OK ||
                               submission->results[i].length != state->block_bytes;
    return true;
}

static bool
kvtier_close(void *opened)
{
    struct kvtier_state *state = opened;
    enum kvt_status status = kvt_close(state->store);

    if (status != KVT_OK)
        complain_status(status, "cannot close the store");
    if (status == KVT_E_STATE)
        kvt_abort(state->store);
    free(state);
    return status == KVT_OK;
}

static void
kvtier_describe(const struct peer_place *place, struct peer_facts *facts_out)
{
    snprintf(facts_out->version, sizeof(facts_out->version), "%s", kvt_version());
    snprintf(facts_out->settings, sizeof(facts_out->settings),
        "HOST of 256 MiB, O_DIRECT, XXH3-128 verified, no codec, a batch is a ticket of %u blocks, "
        "puts SYNC, gets TRANSIENT into the caller's huge pages",
        place->batch_blocks);
}

const struct peer peer_kvtier = {
    .name = "kvtier",
    .put_callers = {1, 2, 4},
    .get_callers = {1, 2, 4, 8, 16},
    .open = kvtier_open,
    .put_batch = kvtier_put,
    .get_batch = kvtier_get,
    .close = kvtier_close,
    .describe = kvtier_describe,
};
