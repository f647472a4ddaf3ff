/* SPDX-License-Identifier: Apache-2.0 */
/*
 * micro_memory.c - what an entry costs in memory of the process: in the map without its key, and in
 * the table of its states (entries.h).
 *
 * The growth of the process's anonymous memory (RssAnon) while entries are put in, divided by their
 * number. Keys are of 32 bytes and lie in slots of 40. The table doubles at powers of two, so that
 * the dearest moment is looked for too: the largest growth at any count, arrays that were replaced
 * a moment ago left out (they are collected first).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "entries.h"
#include "process_memory.h"
#include "residency.h"
#include "rng.h"

enum {
    CALLER_KEY_BYTES = 32,
    KEY_SLOT_BYTES = 40,
    WARM_ENTRIES = 1 << 16, /* Put before the first look: what a small map costs is known then. */
    LOOK_ENTRIES = 1 << 13, /* Entries between two looks. */
    ENTRIES_DEFAULT = 1 << 20, /* Whole chunks: half of one would count for a byte an entry. */
};

static const uint8_t secret[HASH_SECRET_BYTES] = {1};

struct memory_bench {
    struct kvt_env env;
    struct residency *map;
    struct entries *states;
    uint64_t entries;
    double entry_bytes;      /* At the end. */
    double entry_bytes_most; /* At the dearest count from half of the end on. */
    uint64_t most_at;
    double state_bytes;
};

static bool
entry_put(struct memory_bench *bench, uint64_t i)
{
    struct rng rng = {.state = i * 0xD1342543DE82EF95u};
    uint8_t bytes[CALLER_KEY_BYTES];
    struct block_key key;
    uint32_t number = ENTRY_NONE;

    for (size_t at = 0; at < sizeof(bytes); at += sizeof(uint64_t)) {
        uint64_t word = rng_next(&rng);

        memcpy(bytes + at, &word, sizeof(word));
    }
    if (!key_init(&key, secret, 1, 0, bytes, sizeof(bytes)) ||
        residency_insert(bench->map, key_fingerprint(7, &key), &key, &number) != KVT_OK)
        return false;
    residency_publish(bench->map, number, TIER_NVME);
    return true;
}

/* Growth since `before` for each of `count` entries, the keys' slots left out. */
static double
growth(uint64_t before, uint64_t count)
{
    return ((double)process_anonymous_bytes() - (double)before) / (double)count - KEY_SLOT_BYTES;
}

static bool
map_measure(struct memory_bench *bench)
{
    uint64_t before = 0;

    for (uint64_t i = 0; i < WARM_ENTRIES + bench->entries; i++) {
        uint64_t count = i - WARM_ENTRIES;

        if (i == WARM_ENTRIES)
            before = process_anonymous_bytes();
        if (i > WARM_ENTRIES && i % LOOK_ENTRIES == 0) {
            for (uint32_t turn = 0; turn < 3; turn++)
                residency_collect(bench->map);
            bench->entry_bytes = growth(before, count);
            if (count >= bench->entries / 2 && bench->entry_bytes > bench->entry_bytes_most) {
                bench->entry_bytes_most = bench->entry_bytes;
                bench->most_at = count;
            }
        }
        if (!entry_put(bench, i))
            return false;
    }
    for (uint32_t turn = 0; turn < 3; turn++)
        residency_collect(bench->map);
    bench->entry_bytes = growth(before, bench->entries);
    return true;
}

static bool
states_measure(struct memory_bench *bench)
{
    uint64_t before = 0;

    for (uint32_t i = 0; i < WARM_ENTRIES + bench->entries; i++) {
        if (i == WARM_ENTRIES)
            before = process_anonymous_bytes();
        if (entries_reserve(bench->states, i) != KVT_OK)
            return false;
    }
    bench->state_bytes =
        ((double)process_anonymous_bytes() - (double)before) / (double)bench->entries;
    return true;
}

int
main(int argc, char **argv)
{
    struct memory_bench bench = {
        .entries = argc > 1 ? strtoull(argv[1], NULL, 10) : ENTRIES_DEFAULT};
    bool is_fine = false;

    env_host(&bench.env);
    is_fine = bench.entries > 0 && bench.entries < UINT32_MAX / 2 &&
              residency_open(&bench.env, bench.entries + WARM_ENTRIES, &bench.map) == KVT_OK &&
              entries_open(&bench.env, bench.map, &bench.states) == KVT_OK && map_measure(&bench) &&
              states_measure(&bench);
    if (is_fine)
        printf("{\"entries\": %" PRIu64 ", \"entry_bytes\": %.1f, \"entry_bytes_most\": %.1f, "
               "\"most_at_entries\": %" PRIu64 ", \"key_slot_bytes\": %d, \"state_bytes\": %.1f}\n",
            bench.entries, bench.entry_bytes, bench.entry_bytes_most, bench.most_at, KEY_SLOT_BYTES,
            bench.state_bytes);
    else
        fprintf(stderr, "usage: micro_memory [ENTRIES]  (1 to 2147483646, and memory for them)\n");
    entries_close(bench.states);
    residency_close(bench.map);
    return is_fine ? 0 : 1;
}
