/* SPDX-License-Identifier: Apache-2.0 */
/*
 * micro_lookup.c - kvt_lookup() of 1,000 random 32-byte keys among many entries, under a lease, and
 * the release of that lease.
 *
 * The store, its loop and both calls are the real ones. Only the entries are not blocks: 20 million
 * blocks would be 80 GB of the smallest slots, so that the loop is made to put entries without
 * bytes into its map. A lookup does not see the difference: it never reads what a copy holds.
 *
 * Wall time counts what the machine does besides; the time of the thread does not.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rng.h"
#include "statistics.h"
#include "store_internal.h"

enum {
    CALLER_KEY_BYTES = 32,
    LOOKUP_KEYS = 1000,
    LOOKUP_COUNT = 3000,
    SLICE_ENTRIES = 1 << 16, /* Put in one step of the loop. */
    ENTRIES_DEFAULT = 20000000,
};

/* What the loop puts into the map. */
struct fill {
    uint32_t namespace_id;
    uint64_t next;
    uint64_t end;
    bool is_refused;
};

struct times {
    uint64_t lookup_wall[LOOKUP_COUNT];
    uint64_t lookup_thread[LOOKUP_COUNT];
    uint64_t release_wall[LOOKUP_COUNT];
    uint64_t release_thread[LOOKUP_COUNT];
};

struct bench {
    kvt_store *store;
    kvt_namespace ns;
    uint64_t entries;
    uint8_t bytes[LOOKUP_KEYS][CALLER_KEY_BYTES];
    struct kvt_key keys[LOOKUP_KEYS];
    struct times times;
    uint64_t hit_count;
};

static uint64_t
clock_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
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

/* --- Filling ---------------------------------------------------------------------------------- */

static bool
entry_put(struct kvt_store *store, uint32_t namespace_id, uint64_t i)
{
    uint8_t bytes[CALLER_KEY_BYTES];
    struct block_key key;
    uint32_t number = ENTRY_NONE;

    caller_key(i, bytes);
    if (!key_init(&key, store->file.secret, namespace_id, 0, bytes, sizeof(bytes)) ||
        residency_insert(
            store->map, key_fingerprint(store->fingerprint_seed, &key), &key, &number) != KVT_OK ||
        entries_reserve(store->entries, number) != KVT_OK)
        return false;
    residency_publish(store->map, number, TIER_HOST);
    return true;
}

/* The loop. */
static bool
fill_run(struct kvt_store *store, void *context)
{
    struct fill *fill = context;

    for (uint32_t i = 0; i < SLICE_ENTRIES && fill->next < fill->end && !fill->is_refused; i++)
        fill->is_refused = !entry_put(store, fill->namespace_id, fill->next++);
    residency_collect(store->map);
    return true;
}

static bool
bench_fill(struct bench *bench)
{
    struct fill fill = {.namespace_id = bench->ns.id, .end = bench->entries};

    while (fill.next < fill.end && !fill.is_refused)
        loop_call(bench->store, fill_run, &fill);
    return !fill.is_refused;
}

static bool
bench_open(struct bench *bench, const char *path)
{
    struct kvt_options options = KVT_OPTIONS_INIT;

    options.host_capacity_bytes = 64 << 20;
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    options.entry_count_max = bench->entries;
    return kvt_open(path, &options, &bench->store) == KVT_OK &&
           kvt_namespace_open(bench->store, "micro", "", 0, &bench->ns) == KVT_OK;
}

/* --- Measuring -------------------------------------------------------------------------------- */

static bool
bench_once(struct bench *bench, struct rng *rng, size_t round)
{
    struct times *times = &bench->times;
    uint8_t tiers[LOOKUP_KEYS];
    uint32_t leading = 0;
    kvt_lease lease = {0};
    enum kvt_status status;
    uint64_t wall[3];
    uint64_t thread[3];

    for (size_t i = 0; i < LOOKUP_KEYS; i++)
        caller_key(rng_next(rng) % bench->entries, bench->bytes[i]);
    thread[0] = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    wall[0] = clock_ns(CLOCK_MONOTONIC);
    status = kvt_lookup(bench->store, bench->ns, bench->keys, LOOKUP_KEYS, tiers, &leading, &lease);
    wall[1] = clock_ns(CLOCK_MONOTONIC);
    thread[1] = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    kvt_lease_release(bench->store, lease);
    wall[2] = clock_ns(CLOCK_MONOTONIC);
    thread[2] = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    times->lookup_wall[round] = wall[1] - wall[0];
    times->lookup_thread[round] = thread[1] - thread[0];
    times->release_wall[round] = wall[2] - wall[1];
    times->release_thread[round] = thread[2] - thread[1];
    bench->hit_count += leading;
    return status == KVT_OK;
}

static bool
bench_measure(struct bench *bench)
{
    struct rng rng = {.state = 7};

    for (size_t i = 0; i < LOOKUP_KEYS; i++)
        bench->keys[i] = (struct kvt_key){.bytes = bench->bytes[i], .length = CALLER_KEY_BYTES};
    for (size_t i = 0; i < LOOKUP_COUNT; i++) {
        if (!bench_once(bench, &rng, i))
            return false;
    }
    return true;
}

static void
times_print(const char *name, uint64_t *times)
{
    printf(", \"%s_p50_ns\": %" PRIu64 ", \"%s_p99_ns\": %" PRIu64, name,
        number_percentile(times, LOOKUP_COUNT, 0.5), name,
        number_percentile(times, LOOKUP_COUNT, 0.99));
}

static void
bench_print(struct bench *bench)
{
    printf("{\"entries\": %" PRIu64, bench->entries);
    times_print("lookup_1000", bench->times.lookup_wall);
    times_print("lookup_1000_thread", bench->times.lookup_thread);
    times_print("release_1000", bench->times.release_wall);
    times_print("release_1000_thread", bench->times.release_thread);
    printf(", \"hit_share\": %.6f}\n", (double)bench->hit_count / LOOKUP_COUNT / LOOKUP_KEYS);
}

int
main(int argc, char **argv)
{
    struct bench *bench = calloc(1, sizeof(*bench));
    bool is_fine = false;

    if (bench != NULL)
        bench->entries = argc > 2 ? strtoull(argv[2], NULL, 10) : ENTRIES_DEFAULT;
    if (bench == NULL || argc < 2 || argc > 3 || bench->entries == 0) {
        fprintf(stderr, "usage: micro_lookup DIR [ENTRIES]  (a new store is made in DIR;"
                        " default 20000000 entries)\n");
        free(bench);
        return 2;
    }
    is_fine = bench_open(bench, argv[1]) && bench_fill(bench) && bench_measure(bench);
    if (is_fine)
        bench_print(bench);
    else
        fprintf(stderr, "micro_lookup: %s\n", failure_last()->text);
    kvt_abort(bench->store);
    free(bench);
    return is_fine ? 0 : 1;
}
