/* SPDX-License-Identifier: Apache-2.0 */
/*
 * micro_lookup.c - a lookup of 1,000 random 32-byte keys among many entries, as kvt_lookup() does:
 * keys are taken in and fingerprinted, found, pinned under a lease, and unpinned.
 *
 * It fills the residency map itself: 20 million blocks would be 80 GB of the smallest slots.
 *
 * Usage: micro_lookup [ENTRIES]   default 20000000. One JSON object on stdout.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "env.h"
#include "hash.h"
#include "residency.h"
#include "rng.h"

enum {
    CALLER_KEY_BYTES = 32,
    LOOKUP_KEYS = 1000,
    LOOKUP_COUNT = 3000,
    ENTRIES_DEFAULT = 20000000,
};

static const uint64_t seed = 0x5DEECE66D1CE4E5Bu;
static const uint8_t secret[HASH_SECRET_BYTES] = {1};

/* What one lookup works on: the caller's keys, and what becomes of them. */
struct lookup {
    uint8_t caller_keys[LOOKUP_KEYS][CALLER_KEY_BYTES];
    struct block_key keys[LOOKUP_KEYS];
    struct hash128 fingerprints[LOOKUP_KEYS];
    uint32_t numbers[LOOKUP_KEYS];
    uint8_t tiers[LOOKUP_KEYS];
};

static uint64_t
clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The n-th key: 32 bytes that look random. */
static void
caller_key(uint64_t number, uint8_t bytes_out[CALLER_KEY_BYTES])
{
    struct rng rng = {.state = number * 0xD1342543DE82EF95u};

    for (size_t i = 0; i < CALLER_KEY_BYTES; i += sizeof(uint64_t)) {
        uint64_t word = rng_next(&rng);

        memcpy(bytes_out + i, &word, sizeof(word));
    }
}

static bool
map_fill(struct residency *map, uint64_t entries)
{
    for (uint64_t i = 0; i < entries; i++) {
        uint8_t bytes[CALLER_KEY_BYTES];
        struct block_key key;
        uint32_t number = ENTRY_NONE;

        caller_key(i, bytes);
        if (!key_init(&key, secret, 1, 0, bytes, sizeof(bytes)) ||
            residency_insert(map, key_fingerprint(seed, &key), &key, &number) != KVT_OK)
            return false;
        residency_publish(map, number, TIER_HOST);
        if (i % 4096 == 0)
            residency_collect(map);
    }
    return true;
}

/* One timed lookup; *hits_out counts what was found. */
static uint64_t
lookup_once(struct residency *map, struct lookup *lookup, uint64_t *hits_out)
{
    uint64_t start = clock_ns();

    for (size_t i = 0; i < LOOKUP_KEYS; i++) {
        if (!key_init(&lookup->keys[i], secret, 1, 0, lookup->caller_keys[i], CALLER_KEY_BYTES))
            return 0;
        lookup->fingerprints[i] = key_fingerprint(seed, &lookup->keys[i]);
    }
    *hits_out += residency_find_pin(
        map, lookup->fingerprints, lookup->keys, LOOKUP_KEYS, lookup->numbers, lookup->tiers);
    for (size_t i = 0; i < LOOKUP_KEYS; i++) {
        if (lookup->numbers[i] != ENTRY_NONE)
            residency_unpin(map, lookup->numbers[i]);
    }
    return clock_ns() - start;
}

static int
time_compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;

    return (a > b) - (a < b);
}

static void
lookups_measure(struct residency *map, uint64_t entries, struct lookup *lookup, uint64_t *times)
{
    struct rng rng = {.state = 7};
    uint64_t hits = 0;

    for (size_t i = 0; i < LOOKUP_COUNT; i++) {
        for (size_t j = 0; j < LOOKUP_KEYS; j++)
            caller_key(rng_next(&rng) % entries, lookup->caller_keys[j]);
        times[i] = lookup_once(map, lookup, &hits);
    }
    qsort(times, LOOKUP_COUNT, sizeof(*times), time_compare);
    printf("{\"entries\": %" PRIu64 ", \"lookup_1000_p50_ns\": %" PRIu64
           ", \"lookup_1000_p99_ns\": %" PRIu64 ", \"hit_share\": %.6f}\n",
        entries, times[LOOKUP_COUNT / 2], times[LOOKUP_COUNT / 100 * 99],
        (double)hits / LOOKUP_COUNT / LOOKUP_KEYS);
}

int
main(int argc, char **argv)
{
    uint64_t entries = argc > 1 ? strtoull(argv[1], NULL, 10) : ENTRIES_DEFAULT;
    struct lookup *lookup = calloc(1, sizeof(*lookup));
    uint64_t *times = calloc(LOOKUP_COUNT, sizeof(*times));
    struct residency *map = NULL;
    struct kvt_env env = {0};
    bool is_fine = false;

    env_host(&env);
    if (lookup != NULL && times != NULL && entries > 0 && entries <= UINT32_MAX / 2 &&
        residency_open(&env, entries, &map) == KVT_OK) {
        is_fine = map_fill(map, entries);
        if (is_fine)
            lookups_measure(map, entries, lookup, times);
        residency_close(map);
    }
    if (!is_fine)
        fprintf(stderr, "micro_lookup: there is no memory for %" PRIu64 " entries\n", entries);
    free(lookup);
    free(times);
    return is_fine ? 0 : 1;
}
