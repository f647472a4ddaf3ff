/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_measure.c - loading a file to memory of a device, in turns with what bounds it: reads of the
 * same file with nothing behind them, and one large copy from pinned memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "complain.h"
#include "directory.h"
#include "disk_probe.h"
#include "kvtier/kvtier_unstable.h"
#include "load_bench.h"
#include "progress.h"
#include "statistics.h"

enum {
    COPY_BYTES = 256 << 20, /* One piece: 5 ms of a PCIe 5 bus. */
    COPY_TIMES = 5,
    HOST_BYTES_MIN = 8 << 20,
    READ_BYTES = 1 << 20,
    PAGE_BYTES = 4096,
};

struct load_bench {
    const struct load_plan *plan;
    kvt_store *store;
    char store_path[512];
    struct huge_buffer host; /* A region. */
    kvt_region host_region;
    uint8_t *memory; /* Of the device. */
    uint64_t memory_bytes;
    uint64_t copy_bytes;
    int descriptor; /* The file, to compare with. */
};

static double
rate_of(uint64_t bytes, uint64_t begin_ns)
{
    return (double)bytes * 1e9 / (double)(clock_ns() - begin_ns + 1);
}

/* --- Ceilings --------------------------------------------------------------------------------- */

/* The best of a few depths. Below 0: complained. */
static double
disk_measure(const struct load_plan *plan, const struct load_range *range, bool *is_direct_out)
{
    static const uint32_t depths[] = {4, 8, 16};
    struct disk_probe probe;
    double best = -1;

    if (!disk_probe_open(&probe, plan->path)) {
        complain("cannot measure reads of %s: %s", plan->path, probe.message);
        return -1;
    }
    *is_direct_out = probe.is_direct;
    for (uint32_t i = 0; i < sizeof(depths) / sizeof(depths[0]); i++) {
        struct disk_read_plan reads = {.end_bytes = range->offset + range->length,
            .piece_bytes = READ_BYTES,
            .depth = depths[i],
            .seconds = plan->seconds / 3};
        double rate;

        while (reads.piece_bytes > PAGE_BYTES && reads.piece_bytes > reads.end_bytes)
            reads.piece_bytes /= 2;
        rate = disk_probe_read(&probe, &reads);
        if (rate > best)
            best = rate;
    }
    if (best < 0)
        complain("cannot measure reads of %s: %s", plan->path, probe.message);
    disk_probe_close(&probe);
    return best;
}

/* The best of a few: the ceiling is what the bus can. Below 0: complained. */
static double
copy_measure(struct load_bench *bench)
{
    double best = 0;

    for (uint32_t i = 0; i < COPY_TIMES; i++) {
        uint64_t begin_ns = clock_ns();
        enum kvt_status status =
            kvt_device_write(bench->store, 0, bench->memory, bench->host.bytes, bench->copy_bytes);
        double rate = rate_of(bench->copy_bytes, begin_ns);

        if (status != KVT_OK) {
            complain_status(status, "cannot copy to the device");
            return -1;
        }
        if (rate > best)
            best = rate;
    }
    return best;
}

/* --- Loading ---------------------------------------------------------------------------------- */

/* Compare a chunk with the file; bytes that differ are counted. False: complained. */
static bool
chunk_compare(struct load_bench *bench, const struct kvt_load_chunk *chunk, uint64_t *wrong_out)
{
    uint64_t half = bench->host.size / 2;

    for (uint64_t done = 0; done < chunk->size; done += half) {
        uint64_t size = chunk->size - done < half ? chunk->size - done : half;
        uint8_t *wanted = bench->host.bytes + half;

        if (kvt_device_read(bench->store, 0, bench->host.bytes, (uint8_t *)chunk->address + done,
                size) != KVT_OK ||
            pread(bench->descriptor, wanted, size, (off_t)(chunk->offset + done)) !=
                (ssize_t)size) {
            complain("cannot compare what was loaded");
            return false;
        }
        for (uint64_t i = 0; i < size; i++)
            *wrong_out += bench->host.bytes[i] != wanted[i];
    }
    return true;
}

/* Chunk after chunk, each released when it was used. False: complained. */
static bool
chunks_take(struct load_bench *bench, kvt_load load, uint64_t begin_ns, bool is_compared,
    struct load_figures *figures)
{
    for (uint32_t i = 0; i < figures->chunk_count; i++) {
        struct kvt_load_chunk *chunk = &figures->chunks[i];
        enum kvt_status status = kvt_load_wait(bench->store, load, i, KVT_FOREVER, chunk);

        if (status != KVT_OK) {
            complain_status(status, "cannot load a chunk");
            return false;
        }
        if (i == 0)
            figures->first_chunk_ns = (double)(clock_ns() - begin_ns);
        if (is_compared && !chunk_compare(bench, chunk, &figures->wrong_bytes))
            return false;
        status = kvt_load_release(bench->store, load, &i, 1);
        if (status != KVT_OK) {
            complain_status(status, "cannot release a chunk");
            return false;
        }
    }
    return true;
}

/* Bytes per second; below 0: complained. */
static double
load_once(struct load_bench *bench, bool is_compared, struct load_figures *figures)
{
    const struct kvt_file_load_options options = {.struct_size = sizeof(options),
        .offset = figures->range.offset,
        .length = figures->range.length,
        .chunk_bytes = bench->plan->chunk_bytes,
        .destination = bench->memory,
        .capacity = bench->memory_bytes};
    uint64_t begin_ns = clock_ns();
    double rate = -1;
    kvt_load load;
    enum kvt_status status = kvt_file_load(bench->store, bench->plan->path, &options, &load);

    if (status != KVT_OK) {
        complain_status(status, "cannot load %s", bench->plan->path);
        return -1;
    }
    if (chunks_take(bench, load, begin_ns, is_compared, figures))
        rate = rate_of(figures->range.length, begin_ns);
    status = kvt_load_close(bench->store, load);
    if (status != KVT_OK)
        complain_status(status, "cannot end a load");
    return status == KVT_OK ? rate : -1;
}

/* --- One run ---------------------------------------------------------------------------------- */

static bool
bench_store_open(struct load_bench *bench, struct load_figures *figures)
{
    const struct load_plan *plan = bench->plan;
    struct kvt_options options = KVT_OPTIONS_INIT;
    enum kvt_status status;

    options.host_capacity_bytes = plan->host_bytes;
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    options.device_mask = 1;
    options.device_kind = plan->device_kind;
    status = kvt_open(bench->store_path, &options, &bench->store);
    if (status == KVT_OK)
        status = kvt_options_get(bench->store, &options);
    if (status != KVT_OK) {
        complain_status(status, "cannot open a store in %s", bench->store_path);
        return false;
    }
    figures->is_emulated = options.device_kind == KVT_DEVICE_EMULATION;
    return true;
}

static bool
bench_memory_take(struct load_bench *bench, const struct load_range *range)
{
    uint64_t wanted = bench->plan->memory_bytes;
    struct kvt_region_options about = {.struct_size = sizeof(about), .tier = KVT_TIER_HOST};
    void *address = NULL;
    enum kvt_status status;

    bench->memory_bytes = wanted == 0 || wanted > range->length ? range->length : wanted;
    bench->copy_bytes = bench->memory_bytes < COPY_BYTES ? bench->memory_bytes : COPY_BYTES;
    if (!huge_buffer_take(&bench->host,
            bench->copy_bytes < HOST_BYTES_MIN ? HOST_BYTES_MIN : bench->copy_bytes)) {
        complain("no memory for a buffer to copy from");
        return false;
    }
    memset(bench->host.bytes, 1, bench->host.size);
    about.address = bench->host.bytes;
    about.size = bench->host.size;
    status = kvt_device_alloc(bench->store, 0, bench->memory_bytes, &address);
    bench->memory = address;
    if (status == KVT_OK)
        status = kvt_region_register(bench->store, &about, &bench->host_region);
    if (status != KVT_OK)
        complain_status(status, "cannot take %llu bytes of the device, or register a buffer",
            (unsigned long long)bench->memory_bytes);
    return status == KVT_OK;
}

static bool
rounds_run(struct load_bench *bench, struct load_figures *figures)
{
    double loads[LOAD_ROUNDS_MAX], firsts[LOAD_ROUNDS_MAX];
    double disks[LOAD_ROUNDS_MAX], copies[LOAD_ROUNDS_MAX];
    uint32_t rounds = bench->plan->rounds;

    if (load_once(bench, true, figures) < 0)
        return false;
    for (uint32_t i = 0; i < rounds; i++) {
        disks[i] = disk_measure(bench->plan, &figures->range, &figures->is_direct);
        copies[i] = disks[i] < 0 ? -1 : copy_measure(bench);
        loads[i] = copies[i] < 0 ? -1 : load_once(bench, false, figures);
        firsts[i] = figures->first_chunk_ns;
        if (loads[i] < 0)
            return false;
    }
    figures->load_bytes_per_s = median(loads, rounds);
    figures->first_chunk_ns = median(firsts, rounds);
    figures->disk_bytes_per_s = median(disks, rounds);
    figures->copy_bytes_per_s = median(copies, rounds);
    figures->overlap = load_overlap(figures->chunks, figures->chunk_count);
    return true;
}

static void
bench_close(struct load_bench *bench)
{
    enum kvt_status status;

    if (bench->store != NULL) {
        status = kvt_region_unregister(bench->store, bench->host_region);
        if (status != KVT_OK)
            complain_status(status, "a buffer is still in use");
        kvt_device_free(bench->store, 0, bench->memory, bench->memory_bytes);
        status = kvt_close(bench->store);
        if (status != KVT_OK)
            complain_status(status, "cannot close the store");
    }
    huge_buffer_put(&bench->host);
    (void)directory_remove(bench->store_path);
    if (bench->descriptor >= 0)
        close(bench->descriptor);
}

bool
load_measure(const struct load_plan *plan, struct load_figures *figures)
{
    struct load_bench bench = {.plan = plan, .descriptor = -1};
    bool is_measured = false;
    uint64_t length;

    *figures = (struct load_figures){0};
    if (!load_range_find(plan->path, &figures->range))
        return false;
    length = figures->range.length;
    if (length == 0 || (length - 1) / plan->chunk_bytes >= KVT_LOAD_CHUNKS_MAX) {
        complain("%s has nothing to load, or more than %u chunks", plan->path, KVT_LOAD_CHUNKS_MAX);
        return false;
    }
    if (figures->range.offset + length < PAGE_BYTES) {
        complain(
            "%s is too short to measure: reads are of %d bytes or more", plan->path, PAGE_BYTES);
        return false;
    }
    figures->chunk_count = (uint32_t)((length - 1) / plan->chunk_bytes + 1);
    figures->chunks = calloc(figures->chunk_count, sizeof(*figures->chunks));
    bench.descriptor = open(plan->path, O_RDONLY | O_CLOEXEC);
    if (figures->chunks == NULL || bench.descriptor < 0 ||
        snprintf(bench.store_path, sizeof(bench.store_path), "%s/load-store", plan->directory) >=
            (int)sizeof(bench.store_path)) {
        complain("cannot begin: %s", strerror(errno));
        if (bench.descriptor >= 0)
            close(bench.descriptor);
        return false;
    }
    (void)directory_remove(bench.store_path);
    is_measured = bench_store_open(&bench, figures) && bench_memory_take(&bench, &figures->range) &&
                  rounds_run(&bench, figures);
    bench_close(&bench);
    return is_measured;
}
