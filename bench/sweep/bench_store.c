/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_store.c - a store that a benchmark makes: opening, looking, closing. bench_moves.c puts and
 * reads.
 */
#include "bench_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "complain.h"
#include "directory.h"

enum {
    PAGE_BYTES = 4096,
    SCAN_COUNT = 256,
};

bool
bench_store_open(struct bench_store *bench)
{
    struct kvt_options options = KVT_OPTIONS_INIT;
    enum kvt_status status = KVT_OK;

    options.host_capacity_bytes = bench->host_bytes;
    options.nvme_capacity_bytes = bench->nvme_bytes;
    options.segment_bytes = bench->segment_bytes;
    status = kvt_open(bench->path, &options, &bench->store);
    if (status != KVT_OK) {
        complain_status(status, "cannot open %s", bench->path);
        return false;
    }
    status = kvt_namespace_open(bench->store, "bench", "", 0, &bench->ns);
    if (status == KVT_OK)
        status = kvt_queue_create(bench->store, &bench->queue);
    if (status != KVT_OK)
        complain_status(status, "cannot set up %s", bench->path);
    return status == KVT_OK;
}

bool
bench_store_new(struct bench_store *bench)
{
    bench->stride_bytes = (bench->block_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    bench->pool_count = (uint32_t)(BENCH_POOL_BYTES / bench->stride_bytes);
    bench->next_number = 0;
    if (bench->sources.bytes == NULL && (!huge_buffer_take(&bench->sources, BENCH_POOL_BYTES) ||
                                            !huge_buffer_take(&bench->targets, BENCH_POOL_BYTES))) {
        complain("there is no memory for 128 MiB of buffers");
        return false;
    }
    for (uint32_t i = 0; i < bench->pool_count; i++)
        pattern_fill(i, bench->sources.bytes + i * bench->stride_bytes, bench->block_bytes);
    return directory_remove(bench->path) && bench_store_open(bench);
}

bool
bench_store_close(struct bench_store *bench)
{
    enum kvt_status status = KVT_OK;

    if (bench->queue != NULL)
        status = kvt_queue_destroy(bench->queue);
    bench->queue = NULL;
    if (status == KVT_OK)
        status = kvt_close(bench->store);
    else
        kvt_abort(bench->store); /* A failed run left tickets behind. */
    bench->store = NULL;
    memset(bench->tickets, 0, sizeof(bench->tickets));
    if (status != KVT_OK)
        complain_status(status, "cannot close %s", bench->path);
    return status == KVT_OK;
}

void
bench_store_end(struct bench_store *bench)
{
    if (bench->store != NULL && !bench_store_close(bench))
        complain("%s is removed all the same", bench->path);
    huge_buffer_put(&bench->sources);
    huge_buffer_put(&bench->targets);
    if (!bench->keeps_files)
        directory_remove(bench->path);
}

bool
bench_choice_create(struct bench_choice *choice, uint32_t room)
{
    choice->numbers = calloc(room, sizeof(*choice->numbers));
    choice->offsets = calloc(room, sizeof(*choice->offsets));
    choice->count = 0;
    choice->room = room;
    if (choice->numbers != NULL && choice->offsets != NULL)
        return true;
    complain("there is no memory for a list of %u blocks", room);
    bench_choice_destroy(choice);
    return false;
}

void
bench_choice_destroy(struct bench_choice *choice)
{
    free(choice->numbers);
    free(choice->offsets);
    memset(choice, 0, sizeof(*choice));
}

/* Takes those of the scanned entries that are wanted. The low 24 bits of a segment's number are its
 * place in the file of its root, and there is one root. */
static void
entries_choose(struct bench_choice *choice, const struct kvt_scan_entry *entries, uint32_t count,
    enum kvt_tiers tier, uint64_t segment_bytes)
{
    for (uint32_t i = 0; i < count && choice->count < choice->room; i++) {
        bool matches = tier == KVT_TIER_HOST ? (entries[i].tiers & KVT_TIER_HOST) != 0
                                             : entries[i].tiers == (uint8_t)tier;
        bool is_on_disk = (entries[i].tiers & KVT_TIER_NVME) != 0;

        if (!matches || entries[i].key_length != PATTERN_KEY_BYTES ||
            !pattern_key_number(entries[i].key, &choice->numbers[choice->count]))
            continue;
        choice->offsets[choice->count] = is_on_disk
                                             ? (entries[i].segment & 0xFFFFFF) * segment_bytes +
                                                   (uint64_t)entries[i].page * PAGE_BYTES
                                             : 0;
        choice->count++;
    }
}

bool
bench_store_settle(struct bench_store *bench)
{
    const struct timespec pause = {.tv_sec = 1};
    uint64_t before = UINT64_MAX;

    for (;;) {
        struct kvt_stats stats = {.struct_size = sizeof(stats)};
        enum kvt_status status = kvt_stats_get(bench->store, &stats);

        if (status != KVT_OK) {
            complain_status(status, "no statistics of %s", bench->path);
            return false;
        }
        if (stats.nvme_evict_count == before)
            return true;
        before = stats.nvme_evict_count;
        nanosleep(&pause, NULL);
    }
}

bool
bench_store_resident(struct bench_store *bench, enum kvt_tiers tier, struct bench_choice *choice)
{
    struct kvt_options options = {.struct_size = sizeof(options)};
    enum kvt_status status = kvt_options_get(bench->store, &options);
    uint64_t cursor = 0;

    choice->count = 0;
    while (status == KVT_OK && choice->count < choice->room) {
        struct kvt_scan_entry entries[SCAN_COUNT];
        uint32_t count = 0;

        status = kvt_scan(bench->store, &cursor, entries, SCAN_COUNT, &count);
        if (status == KVT_OK)
            entries_choose(choice, entries, count, tier, options.segment_bytes);
    }
    if (status < 0)
        complain_status(status, "cannot list the blocks of %s", bench->path);
    else if (choice->count == 0)
        complain("no block is %s", tier == KVT_TIER_HOST ? "in HOST" : "on NVMe only");
    return status >= 0 && choice->count > 0;
}

static uint64_t
clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t
bench_store_lookup(struct bench_store *bench, uint32_t *found_out)
{
    struct kvt_key keys[BENCH_LOOKUP_KEYS];
    uint8_t tiers[BENCH_LOOKUP_KEYS];
    kvt_lease lease = {0};
    uint64_t start = 0;
    uint64_t elapsed = 0;
    enum kvt_status status = KVT_OK;

    for (uint32_t i = 0; i < BENCH_LOOKUP_KEYS; i++) {
        pattern_key(pattern_mix(bench->random++) % bench->next_number, bench->keys[i]);
        keys[i] = (struct kvt_key){.bytes = bench->keys[i], .length = PATTERN_KEY_BYTES};
    }
    start = clock_ns();
    status = kvt_lookup(bench->store, bench->ns, keys, BENCH_LOOKUP_KEYS, tiers, NULL, &lease);
    kvt_lease_release(bench->store, lease);
    elapsed = clock_ns() - start;
    if (status != KVT_OK) {
        complain_status(status, "a lookup of %d keys failed", BENCH_LOOKUP_KEYS);
        return 0;
    }
    *found_out = 0;
    for (uint32_t i = 0; i < BENCH_LOOKUP_KEYS; i++)
        *found_out += tiers[i] != 0;
    return elapsed > 0 ? elapsed : 1;
}
