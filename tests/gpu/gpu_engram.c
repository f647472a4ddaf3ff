/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_engram.c - rows of N-gram tables on a real GPU: fetched into its memory behind a stream that
 * waits, kept there by a cache, and gathered from pinned memory by its kernels. Every byte is
 * compared with the host's.
 *
 * Then rates: rows of 264 bytes gathered over the bus, as they are and as bfloat16, and fetched
 * from pinned pages, from files and from the GPU's own memory.
 *
 * Usage: gpu_engram [ROWS] (of the table; default 1000000: 280 MB). Exit code 0: all passed; 1:
 * not; 77: there is no GPU, and why. The store lies below /dev/shm, or KVT_TEST_TMP. No cmocka.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda_runtime_api.h>

#include "device_cuda.h"
#include "engram_rig.h"
#include "failure.h"
#include "gpu_must.h"
#include "kvtier/kvtier.h"
#include "rng.h"
#include "stop_on_proof.h"
#include "store_host.h"

enum {
    ROWS_DEFAULT = 1000000,
    ROW_BYTES = 264,
    VALUES = 256,
    COLUMNS = 24,
    TOKENS = 1024,
    SLOTS = TOKENS * COLUMNS,
    ROUNDS = 20,
    TIMED_ROWS = 1 << 20,
    COPY_BYTES = 256 << 20,
    POISON = 0xA5,
    CACHE_PLANS = 4, /* Of 24,576 rows each, in turns. */
    CACHE_BYTES_SMALL = 4 << 20,
    CACHE_BYTES_LARGE = 64 << 20,
};

#define ROWS_BYTES ((size_t)SLOTS * ROW_BYTES)
#define VALUES_BYTES ((size_t)SLOTS * VALUES * 2)
#define DEVICE_BYTES (2 * VALUES_BYTES)

struct rig {
    kvt_store *store;
    struct kvt_engram_profile profile;
    kvt_engram_hasher *hasher;
    kvt_engram_plan *plan;
    kvt_engram *table;
    kvt_region region;
    cudaStream_t stream;
    uint8_t *device; /* The region: ids, verdict, then the target. */
    uint8_t *host, *wanted;
    uint32_t *ids;
    uint32_t row_count;
};

static double
seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* --- 1. The table ----------------------------------------------------------------------------- */

static void
row_make(uint64_t row, uint8_t *bytes)
{
    struct rng rng = {.state = row};

    for (uint32_t i = 0; i < ROW_BYTES; i += 8) {
        uint64_t word = rng_next(&rng);

        memcpy(bytes + i, &word, 8);
    }
}

static enum kvt_status
rows_read(void *context, uint64_t row_first, uint64_t row_count, void *rows_out)
{
    uint8_t *rows = rows_out;

    (void)context;
    for (uint64_t i = 0; i < row_count; i++)
        row_make(row_first + i, rows + i * ROW_BYTES);
    return KVT_OK;
}

static void
table_make(struct rig *rig, uint32_t rows)
{
    struct kvt_engram_source source = {.struct_size = sizeof(source),
        .flags = KVT_ENGRAM_IMPORT_UNREAD,
        .name = "t",
        .profile = &rig->profile,
        .read = rows_read};

    MUST(kvt_engram_profile_get(KVT_ENGRAM_DEEPSEEK_V41_FLASH, &rig->profile));
    rig->profile.layer_count = 1;
    memset(&rig->profile.layers[1], 0, sizeof(rig->profile.layers[1]));
    for (uint32_t c = 0; c < COLUMNS; c++) {
        rig->profile.layers[0].primes[c] = rows / COLUMNS - 2 * COLUMNS + 2 * c;
        rig->profile.layers[0].offsets[c] = rig->row_count;
        rig->row_count += rig->profile.layers[0].primes[c];
    }
    rig->profile.layers[0].row_count = rig->row_count;
    MUST(kvt_engram_import(rig->store, &source));
    MUST(kvt_engram_open(rig->store, "t", &rig->table));
    MUST(kvt_engram_hasher_open(&rig->profile, NULL, 0, &rig->hasher));
    MUST(kvt_engram_plan_create(rig->hasher, TOKENS, &rig->plan));
}

static void
rig_open(struct rig *rig, struct real_host *host, uint32_t rows)
{
    struct kvt_options options = host_options_large();
    struct kvt_region_options region = {
        .struct_size = sizeof(region), .tier = KVT_TIER_HBM, .size = DEVICE_BYTES};
    void *memory;

    host_options_add_hbm(&options);
    options.device_kind = KVT_DEVICE_CUDA;
    MUST(!real_host_init(host, &options));
    MUST(kvt_open(host->path, &host->options, &rig->store));
    MUST(cudaStreamCreateWithFlags(&rig->stream, cudaStreamNonBlocking));
    MUST(cudaMalloc(&memory, DEVICE_BYTES));
    rig->device = memory;
    region.address = memory;
    MUST(kvt_region_register(rig->store, &region, &rig->region));
    MUST(cudaHostAlloc(&memory, DEVICE_BYTES, cudaHostAllocDefault));
    rig->host = memory;
    rig->wanted = malloc(DEVICE_BYTES);
    rig->ids = malloc(SLOTS * sizeof(*rig->ids));
    MUST(rig->wanted == NULL || rig->ids == NULL);
    table_make(rig, rows);
}

static void
rig_close(struct rig *rig, struct real_host *host)
{
    kvt_engram_plan_destroy(rig->plan);
    kvt_engram_hasher_close(rig->hasher);
    MUST(kvt_engram_close(rig->table));
    MUST(kvt_region_unregister(rig->store, rig->region));
    MUST(cudaFreeHost(rig->host));
    MUST(cudaFree(rig->device));
    MUST(cudaStreamDestroy(rig->stream));
    free(rig->wanted);
    free(rig->ids);
    MUST(kvt_close(rig->store));
    real_host_deinit(host);
}

static void
plan_fill(struct rig *rig, uint64_t seed)
{
    static uint32_t tokens[TOKENS];
    const struct kvt_engram_sequence sequence = {.tokens = tokens, .token_count = TOKENS};
    struct rng rng = {.state = seed};

    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = rng_below(&rng, rig->profile.class_count);
    MUST(kvt_engram_plan_fill(rig->plan, &sequence, 1, KVT_ENGRAM_UNIQUE));
}

/* --- 2. Fetches ------------------------------------------------------------------------------- */

/* Ask, let the stream wait, copy back on it: the host waits for nothing else. */
static void
fetch_run(struct rig *rig, bool is_compared)
{
    const struct kvt_engram_target target = {.table = rig->table,
        .destination = rig->device,
        .capacity = ROWS_BYTES,
        .region = rig->region,
        .deadline_ns = 1};
    struct kvt_engram_rows rows;
    kvt_engram_fetch *fetch;
    enum kvt_status status;

    if (is_compared)
        MUST(cudaMemsetAsync(rig->device, POISON, ROWS_BYTES, rig->stream));
    MUST(cudaStreamSynchronize(rig->stream));
    MUST(kvt_engram_fetch_submit(rig->plan, &target, 1, &fetch));
    while ((status = kvt_engram_fetch_stream_wait(fetch, 0, rig->stream)) == KVT_NOT_READY)
        (void)sched_yield();
    MUST(status);
    if (is_compared)
        MUST(cudaMemcpyAsync(
            rig->host, rig->device, ROWS_BYTES, cudaMemcpyDeviceToHost, rig->stream));
    MUST(cudaStreamSynchronize(rig->stream));
    MUST(kvt_engram_fetch_wait(fetch, 0, KVT_FOREVER, NULL));
    kvt_engram_fetch_free(fetch);
    if (!is_compared)
        return;
    MUST(kvt_engram_plan_rows(rig->plan, 0, &rows));
    for (uint32_t i = 0; i < SLOTS; i++)
        row_make(rows.rows[rows.inverse[i]], rig->wanted + (size_t)i * ROW_BYTES);
    MUST(memcmp(rig->host, rig->wanted, ROWS_BYTES) != 0);
}

static void
fetches_run(struct rig *rig, const char *from)
{
    double begin;

    for (uint32_t i = 0; i < ROUNDS; i++) {
        plan_fill(rig, i);
        fetch_run(rig, true);
    }
    begin = seconds_now();
    for (uint32_t i = 0; i < ROUNDS; i++)
        fetch_run(rig, false);
    printf("{\"what\": \"fetch to the device\", \"from\": \"%s\", \"rows\": %d, "
           "\"rows_per_s\": %.0f}\n",
        from, SLOTS, (double)SLOTS * ROUNDS / (seconds_now() - begin));
}

static struct kvt_stats
stats_of(const struct rig *rig)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};

    MUST(kvt_stats_get(rig->store, &stats));
    return stats;
}

/* The same few plans again and again: with room for them their rows come from the GPU's memory,
 * with little, rows drive each other out. What is compared is kept whether it pays or not; what is
 * timed, as it is judged. */
static void
cached_fetches_run(struct rig *rig, uint64_t capacity_bytes)
{
    struct kvt_stats before, after;
    uint64_t hits = stats_of(rig).engram_cache_device_hit_count;
    double begin;

    MUST(kvt_engram_close(rig->table));
    MUST(kvt_engram_open(rig->store, "t", &rig->table));
    MUST(kvt_engram_cache_device(rig->table, 0, capacity_bytes));
    for (uint32_t i = 0; i < 3 * ROUNDS; i++) {
        plan_fill(rig, i % CACHE_PLANS);
        engram_rig_cache_on(rig->table, 0);
        fetch_run(rig, true);
    }
    MUST(stats_of(rig).engram_cache_device_hit_count == hits);
    before = stats_of(rig);
    begin = seconds_now();
    for (uint32_t i = 0; i < ROUNDS; i++) {
        plan_fill(rig, i % CACHE_PLANS);
        fetch_run(rig, false);
    }
    begin = seconds_now() - begin;
    after = stats_of(rig);
    printf("{\"what\": \"fetch to the device\", \"from\": \"files, cache on the device\", "
           "\"cache_bytes\": %" PRIu64 ", \"rows\": %d, \"rows_per_s\": %.0f, \"hits\": %" PRIu64
           ", \"pages\": %" PRIu64 ", \"worth_ns\": %" PRIu64 ", \"cost_ns\": %" PRIu64 "}\n",
        capacity_bytes, SLOTS, (double)SLOTS * ROUNDS / begin,
        after.engram_cache_device_hit_count - before.engram_cache_device_hit_count,
        after.engram_page_count - before.engram_page_count, after.engram_cache_device_worth_ns_now,
        after.engram_cache_device_cost_ns_now);
}

/* --- 3. Gathers ------------------------------------------------------------------------------- */

static uint64_t *
verdict_of(struct rig *rig)
{
    return (uint64_t *)(void *)(rig->device + VALUES_BYTES);
}

static struct kvt_engram_selection
gather_of(struct rig *rig, bool is_values, uint32_t shift)
{
    return (struct kvt_engram_selection){.table = rig->table,
        .ids = (const uint32_t *)(void *)(rig->device + VALUES_BYTES + 4096),
        .count = SLOTS - 16,
        .destination = rig->device + shift,
        .capacity = VALUES_BYTES - shift,
        .region = rig->region,
        .ids_region = rig->region,
        .stream = rig->stream,
        .verdict = verdict_of(rig),
        .flags = is_values ? KVT_ENGRAM_VALUES : 0};
}

/* The same on the host and on the device; `shift`: how far from where words are aligned. */
static void
gather_compare(struct rig *rig, bool is_values, uint32_t shift, int64_t wrong_at)
{
    struct kvt_engram_selection gather = gather_of(rig, is_values, shift);
    uint64_t verdict = 0;

    if (wrong_at >= 0)
        rig->ids[wrong_at] = rig->row_count;
    memset(rig->wanted, POISON, VALUES_BYTES);
    MUST(cudaMemsetAsync(rig->device, POISON, VALUES_BYTES, rig->stream));
    MUST(cudaMemcpyAsync((void *)(uintptr_t)gather.ids, rig->ids, SLOTS * sizeof(*rig->ids),
        cudaMemcpyHostToDevice, rig->stream));
    MUST(kvt_engram_gather(&gather));
    MUST(
        cudaMemcpyAsync(rig->host, rig->device, VALUES_BYTES, cudaMemcpyDeviceToHost, rig->stream));
    MUST(cudaMemcpyAsync(&verdict, gather.verdict, 8, cudaMemcpyDeviceToHost, rig->stream));
    MUST(cudaStreamSynchronize(rig->stream));
    gather.ids = rig->ids;
    gather.destination = rig->wanted + shift;
    gather.region.id = gather.ids_region.id = 0;
    gather.stream = NULL;
    gather.verdict = NULL;
    if (wrong_at < 0) {
        MUST(kvt_engram_gather(&gather));
        MUST(verdict != KVT_ENGRAM_GATHER_FINE);
    } else {
        MUST(kvt_engram_gather(&gather) != KVT_E_INVAL);
        MUST(verdict != (uint64_t)wrong_at);
        rig->ids[wrong_at] = 0;
    }
    MUST(memcmp(rig->host, rig->wanted, VALUES_BYTES) != 0);
}

/* One large copy from pinned memory: bytes a second of the bus. */
static double
bus_rate(uint8_t *target)
{
    double best = 0;
    void *source;

    MUST(cudaHostAlloc(&source, COPY_BYTES, cudaHostAllocDefault));
    memset(source, 1, COPY_BYTES);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        double begin = seconds_now(), rate;

        MUST(cudaMemcpy(target, source, COPY_BYTES, cudaMemcpyHostToDevice));
        rate = COPY_BYTES / (seconds_now() - begin);
        best = rate > best ? rate : best;
    }
    MUST(cudaFreeHost(source));
    return best;
}

/* Rows of ids that are drawn from the whole table: far more than caches hold, and in any order more
 * pages than the device's address translation does. */
static void
gather_time(struct rig *rig, uint8_t *memory, kvt_region region, const char *order, bool is_values)
{
    uint64_t verdict = 0;
    const struct kvt_engram_selection gather = {.table = rig->table,
        .ids = (const uint32_t *)(void *)(memory + 4096),
        .count = TIMED_ROWS,
        .destination = memory + 4096 + TIMED_ROWS * sizeof(uint32_t),
        .capacity = (uint64_t)TIMED_ROWS * VALUES * 2,
        .region = region,
        .ids_region = region,
        .stream = rig->stream,
        .verdict = (uint64_t *)(void *)memory,
        .flags = is_values ? KVT_ENGRAM_VALUES : 0};
    double bus = bus_rate(gather.destination), begin, rate;

    MUST(kvt_engram_gather(&gather));
    MUST(cudaStreamSynchronize(rig->stream));
    begin = seconds_now();
    for (uint32_t i = 0; i < ROUNDS; i++)
        MUST(kvt_engram_gather(&gather));
    MUST(cudaStreamSynchronize(rig->stream));
    rate = (double)gather.count * ROUNDS / (seconds_now() - begin);
    MUST(cudaMemcpy(&verdict, memory, sizeof(verdict), cudaMemcpyDeviceToHost));
    MUST(verdict != KVT_ENGRAM_GATHER_FINE);
    printf("{\"what\": \"gather\", \"ids\": \"%s\", \"values\": %s, \"rows\": %" PRIu64
           ", \"of\": %u, \"rows_per_s\": %.0f, \"bytes_per_s\": %.0f, "
           "\"copy_bytes_per_s\": %.0f, \"share\": %.3f}\n",
        order, is_values ? "true" : "false", gather.count, rig->row_count, rate, rate * ROW_BYTES,
        bus, rate * ROW_BYTES / bus);
}

static int
id_compare(const void *a, const void *b)
{
    const uint32_t *left = a, *right = b;

    return (*left > *right) - (*left < *right);
}

static void
gathers_time(struct rig *rig)
{
    const size_t ids_bytes = TIMED_ROWS * sizeof(uint32_t);
    struct kvt_region_options about = {.struct_size = sizeof(about),
        .tier = KVT_TIER_HBM,
        .size = 4096 + ids_bytes + (size_t)TIMED_ROWS * VALUES * 2};
    uint32_t *ids = malloc(ids_bytes);
    struct rng rng = {.state = 10};
    kvt_region region;

    MUST(ids == NULL);
    for (uint32_t i = 0; i < TIMED_ROWS; i++)
        ids[i] = rng_below(&rng, rig->row_count);
    MUST(cudaMalloc(&about.address, about.size));
    MUST(kvt_region_register(rig->store, &about, &region));
    for (uint32_t sorted = 0; sorted < 2; sorted++) {
        const char *order = sorted != 0 ? "sorted" : "random";

        if (sorted != 0)
            qsort(ids, TIMED_ROWS, sizeof(*ids), id_compare);
        MUST(cudaMemcpy((uint8_t *)about.address + 4096, ids, ids_bytes, cudaMemcpyHostToDevice));
        gather_time(rig, about.address, region, order, false);
        gather_time(rig, about.address, region, order, true);
    }
    MUST(kvt_region_unregister(rig->store, region));
    MUST(cudaFree(about.address));
    free(ids);
}

static void
gathers_run(struct rig *rig)
{
    static const uint32_t shifts[] = {0, 8, 4, 2, 16, 6};
    struct rng rng = {.state = 9};

    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < SLOTS; i++)
            rig->ids[i] = rng_below(&rng, rig->row_count);
        gather_compare(rig, round % 2 == 0, shifts[round % 6], -1);
        gather_compare(rig, round % 2 == 0, shifts[round % 6], rng_below(&rng, SLOTS - 16));
    }
    gathers_time(rig);
}

int
main(int argc, char **argv)
{
    uint32_t rows = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : ROWS_DEFAULT;
    static struct real_host host;
    static struct rig rig;
    uint32_t count = 0;

    stop_on_proof();
    if (device_cuda_ops.count(NULL, &count) != KVT_OK) {
        printf("gpu_engram: skipped: %s\n", failure_last()->text);
        return 77;
    }
    rig_open(&rig, &host, rows);
    fetches_run(&rig, "files");
    cached_fetches_run(&rig, CACHE_BYTES_SMALL);
    cached_fetches_run(&rig, CACHE_BYTES_LARGE);
    MUST(kvt_engram_pin(rig.table, KVT_ENGRAM_ROWS_ALL, 0));
    fetches_run(&rig, "pinned pages");
    gathers_run(&rig);
    rig_close(&rig, &host);
    printf("gpu_engram: all passed\n");
    return 0;
}
