/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay_run.c - replays requests, and verifies what was acknowledged before a crash.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "complain.h"
#include "replay.h"

enum {
    ANSWERED_COUNT = 1000
}; /* Keys that a reopened store must answer to count as open. */

/* The chain of one request, as kvtier wants it. */
struct chain {
    uint8_t (*bytes)[PATTERN_KEY_BYTES];
    struct kvt_key *keys;
    uint8_t *tiers;
    uint64_t *hits; /* Numbers of the hits of one tier. */
};

static bool
chain_create(struct chain *chain, uint32_t count)
{
    chain->bytes = calloc(count, sizeof(*chain->bytes));
    chain->keys = calloc(count, sizeof(*chain->keys));
    chain->tiers = calloc(count, sizeof(*chain->tiers));
    chain->hits = calloc(count, sizeof(*chain->hits));
    if (chain->bytes != NULL && chain->keys != NULL && chain->tiers != NULL && chain->hits != NULL)
        return true;
    complain("there is no memory for %u keys", count);
    return false;
}

static void
chain_destroy(struct chain *chain)
{
    free(chain->bytes);
    free(chain->keys);
    free(chain->tiers);
    free(chain->hits);
}

static void
chain_fill(struct chain *chain, const uint64_t *numbers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        pattern_key(numbers[i], chain->bytes[i]);
        chain->keys[i] = (struct kvt_key){.bytes = chain->bytes[i], .length = PATTERN_KEY_BYTES};
    }
}

/* The tier that a block is read from: the uppermost. */
static uint32_t
tier_of(uint8_t tiers)
{
    if ((tiers & KVT_TIER_HBM) != 0)
        return KVT_TIER_HBM;
    return (tiers & KVT_TIER_HOST) != 0 ? KVT_TIER_HOST : KVT_TIER_NVME;
}

/* Counts what the lookup said. */
static void
request_count(struct replay_totals *totals, const struct trace_request *request, uint32_t leading)
{
    uint64_t tokens = (uint64_t)leading * TRACE_BLOCK_TOKENS;

    totals->request_count++;
    totals->block_count += request->id_count;
    totals->input_tokens += request->input_length;
    totals->saved_tokens += tokens < request->input_length ? tokens : request->input_length;
}

/* Reads and counts the hits of one tier. */
static bool
hits_read(struct replay *replay, const uint64_t *numbers, const struct chain *chain,
    uint32_t leading, uint32_t tier)
{
    struct replay_totals *totals = &replay->totals;
    uint32_t count = 0;

    for (uint32_t i = 0; i < leading; i++) {
        if (tier_of(chain->tiers[i]) == tier)
            chain->hits[count++] = numbers[i];
    }
    if (tier == KVT_TIER_HBM) {
        totals->hit_hbm_count += count;
        return flights_read(&replay->flights, chain->hits, count, &totals->hbm_to_caller);
    }
    if (tier == KVT_TIER_HOST) {
        totals->hit_host_count += count;
        return flights_read(&replay->flights, chain->hits, count, &totals->host_to_caller);
    }
    totals->hit_nvme_count += count;
    return flights_read(&replay->flights, chain->hits, count, &totals->nvme_to_caller);
}

/* Reads the hits, a tier at a time so that each path's time is its own, and keeps the rest. The
 * lease is held by the caller. */
static bool
blocks_move(struct replay *replay, const struct trace_request *request, const struct chain *chain,
    uint32_t leading)
{
    const uint64_t *numbers = replay->trace.ids + request->id_start;
    struct replay_totals *totals = &replay->totals;
    const struct flight_chain missing = {numbers, chain->tiers, leading, request->id_count};

    return hits_read(replay, numbers, chain, leading, KVT_TIER_HBM) &&
           hits_read(replay, numbers, chain, leading, KVT_TIER_HOST) &&
           hits_read(replay, numbers, chain, leading, KVT_TIER_NVME) &&
           flights_write(&replay->flights, &missing,
               replay->settings->hbm_bytes > 0 ? &totals->caller_to_hbm : &totals->caller_to_host);
}

/* Asks for the hits below HBM to be brought up: whoever used them will want them again. */
static bool
hits_raise(struct replay *replay, struct chain *chain, uint32_t leading)
{
    const struct kvt_prefetch how = {
        .struct_size = sizeof(how), .tier = KVT_TIER_HBM, .flags = KVT_PREFETCH_BULK};
    kvt_ticket *ticket = NULL;
    enum kvt_status status = KVT_OK;
    uint32_t count = 0;

    for (uint32_t i = 0; i < leading; i++) {
        if (tier_of(chain->tiers[i]) != KVT_TIER_HBM)
            chain->keys[count++] = chain->keys[i];
    }
    if (count > 0)
        status =
            kvt_prefetch_submit(replay->store, replay->ns, chain->keys, count, &how, NULL, &ticket);
    if (status != KVT_OK && status != KVT_E_BUSY) {
        complain_status(status, "the store refuses a prefetch of %u blocks", count);
        return false;
    }
    kvt_ticket_free(ticket);
    return true;
}

static bool
request_replay(struct replay *replay, const struct trace_request *request, struct chain *chain)
{
    uint32_t leading = 0;
    kvt_lease lease = {0};
    enum kvt_status status = KVT_OK;
    bool is_fine = false;

    chain_fill(chain, replay->trace.ids + request->id_start, request->id_count);
    if (request->id_count > 0)
        status = kvt_lookup(replay->store, replay->ns, chain->keys, request->id_count, chain->tiers,
            &leading, &lease);
    if (status != KVT_OK) {
        complain_status(status, "a lookup of %u keys failed", request->id_count);
        return false;
    }
    request_count(&replay->totals, request, leading);
    is_fine = blocks_move(replay, request, chain, leading) &&
              (replay->settings->hbm_bytes == 0 || hits_raise(replay, chain, leading));
    kvt_lease_release(replay->store, lease);
    return is_fine;
}

/* Passes on what became durable because it moved down. What was put to be durable has tickets. */
static bool
shown_write(struct replay *replay)
{
    const struct replay_settings *settings = replay->settings;

    return settings->acks_fd < 0 ||
           (settings->durability != KVT_MEMORY && settings->durable_every == 1) ||
           acks_write_shown(&replay->flights);
}

/* The end that --kill-at asked for: nothing is closed, nothing is flushed but what was printed. */
static void
kill_self(struct replay *replay)
{
    fflush(stdout);
    if (kvt_stats_get(replay->store, &replay->stats) == KVT_OK)
        (void)replay_report(replay); /* What failed was said; the signal comes all the same. */
    fflush(stdout);
    kill(getpid(), SIGKILL);
}

static bool
range_replay(struct replay *replay, struct chain *chain, struct progress *progress)
{
    const struct replay_settings *settings = replay->settings;
    double start = clock_seconds();

    for (uint64_t i = settings->resume_at; i < settings->request_end; i++) {
        replay->flights.durability =
            i % settings->durable_every == 0 ? settings->durability : KVT_MEMORY;
        if (!request_replay(replay, &replay->trace.requests[i], chain))
            return false;
        progress_at(progress, i + 1);
        replay->totals.elapsed_seconds = clock_seconds() - start;
        if (i + 1 == settings->kill_at) {
            progress_end(progress);
            if (!shown_write(replay))
                return false;
            kill_self(replay);
        }
    }
    if (!flights_drain(&replay->flights))
        return false;
    replay->totals.elapsed_seconds = clock_seconds() - start;
    return shown_write(replay);
}

bool
replay_requests(struct replay *replay)
{
    const struct replay_settings *settings = replay->settings;
    struct progress progress;
    struct chain chain = {0};
    bool is_fine = chain_create(&chain, TRACE_CHAIN_MAX);

    progress_begin(&progress, "replay", PROGRESS_COUNT, settings->resume_at, settings->request_end);
    replay->flights.get_flags = 0;
    is_fine = is_fine && range_replay(replay, &chain, &progress);
    progress_end(&progress);
    chain_destroy(&chain);
    return is_fine;
}

bool
replay_answered(struct replay *replay, const uint64_t *numbers, uint64_t count)
{
    uint32_t asked = count < ANSWERED_COUNT ? (uint32_t)count : ANSWERED_COUNT;
    struct chain chain = {0};
    enum kvt_status status = KVT_E_NOMEM;

    if (chain_create(&chain, asked)) {
        chain_fill(&chain, numbers, asked);
        status = kvt_lookup(replay->store, replay->ns, chain.keys, asked, chain.tiers, NULL, NULL);
        if (status != KVT_OK)
            complain_status(status, "a lookup of %u keys failed", asked);
    }
    chain_destroy(&chain);
    return status == KVT_OK;
}

bool
replay_verify(struct replay *replay, const uint64_t *numbers, uint64_t count)
{
    struct replay_verified *verified = &replay->verified;
    struct replay_totals *totals = &replay->totals;
    uint32_t chunk = replay->flights.chunk_blocks * FLIGHT_BUFFER_COUNT;
    struct progress progress;
    double start = clock_seconds();
    bool is_fine = true;

    progress_begin(&progress, "verify", PROGRESS_COUNT, 0, count);
    replay->flights.get_flags = KVT_GET_TRANSIENT;
    for (uint64_t done = 0; is_fine && done < count; done += chunk) {
        uint64_t left = count - done;

        is_fine = flights_read(&replay->flights, numbers + done,
            left < chunk ? (uint32_t)left : chunk, &totals->nvme_to_caller);
        progress_at(&progress, done);
    }
    progress_end(&progress);
    verified->key_count = count;
    verified->read_seconds = clock_seconds() - start;
    verified->lost_count = totals->leased_miss_count + totals->read_refused_count;
    verified->wrong_block_count = totals->wrong_block_count;
    verified->wrong_bytes = totals->wrong_bytes;
    verified->read_bytes = totals->host_to_caller.bytes + totals->nvme_to_caller.bytes;
    memset(totals, 0, sizeof(*totals)); /* The replay that may follow counts its own. */
    return is_fine;
}

bool
replay_is_fine(const struct replay *replay)
{
    return replay->totals.wrong_bytes == 0 && replay->totals.leased_miss_count == 0 &&
           replay->totals.durable_failed_count == 0 && replay->verified.wrong_bytes == 0 &&
           replay->verified.lost_count == 0;
}
