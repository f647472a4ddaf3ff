/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_measure.c - blocks from HOST and from NVMe to memory of a device, and an open.
 *
 * Block n has the key pattern_key(n) and the bytes of pattern n modulo the pool's size.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "complain.h"
#include "directory.h"
#include "disk_probe.h"
#include "gpu_bench.h"
#include "huge_buffer.h"
#include "kvtier/kvtier_unstable.h"
#include "kvtier/scanning.h"
#include "pattern.h"
#include "progress.h"
#include "statistics.h"

enum {
    FLIGHTS = 8, /* Batches that are out at once. */
    BATCH_MAX = 256,
    POOL_BYTES = 64 << 20,
    COPY_TIMES = 8,
    SCAN_COUNT = 256,
    PAGE_BYTES = 4096,
    HOST_BLOCK_BYTES = 64 << 10,
    NVME_BLOCK_BYTES = 1 << 20,
    NVME_BATCH = 16,
    NVME_TURNS = 8,
};

struct flight {
    kvt_ticket *ticket; /* NULL: free. */
    uint64_t numbers[BATCH_MAX];
    uint8_t keys[BATCH_MAX][PATTERN_KEY_BYTES];
    struct kvt_get gets[BATCH_MAX];
    struct kvt_result results[BATCH_MAX];
};

/* A store, and memory of its device for all flights. */
struct bench {
    kvt_store *store;
    kvt_namespace ns;
    char path[512];
    uint64_t block_bytes, block_count;
    uint32_t batch;
    struct huge_buffer pool; /* Patterns; a region. */
    kvt_region pool_region, region;
    uint8_t *memory;
    uint64_t memory_bytes;
    struct flight *flights;
    uint64_t next; /* Of the gets: which is next. */
};

static bool
is_fine(enum kvt_status status, const char *what)
{
    if (status < KVT_OK || status == KVT_MISS)
        complain_status(status, "%s", what);
    return status >= KVT_OK && status != KVT_MISS;
}

static const uint8_t *
pattern_at(const struct bench *bench, uint64_t number)
{
    return bench->pool.bytes + number % (POOL_BYTES / bench->block_bytes) * bench->block_bytes;
}

/* --- A store ---------------------------------------------------------------------------------- */

static bool
memory_take(struct bench *bench)
{
    struct kvt_region_options about = {.struct_size = sizeof(about), .tier = KVT_TIER_HBM};
    void *address = NULL;

    bench->memory_bytes = FLIGHTS * bench->batch * bench->block_bytes;
    if (bench->memory_bytes < POOL_BYTES)
        bench->memory_bytes = POOL_BYTES;
    if (!is_fine(kvt_device_alloc(bench->store, 0, bench->memory_bytes, &address),
            "cannot take memory of the device"))
        return false;
    bench->memory = address;
    about.address = address;
    about.size = bench->memory_bytes;
    if (!is_fine(kvt_region_register(bench->store, &about, &bench->region), "no region"))
        return false;
    about.tier = KVT_TIER_HOST;
    about.address = bench->pool.bytes;
    about.size = POOL_BYTES;
    return is_fine(kvt_region_register(bench->store, &about, &bench->pool_region), "no region");
}

static bool
bench_open(struct bench *bench, struct kvt_options *options)
{
    options->device_mask = 1;
    if (!is_fine(gpu_calls_open(bench->path, options, &bench->store), "cannot open a store"))
        return false;
    return is_fine(kvt_namespace_open(bench->store, "gpu", "", 0, &bench->ns), "no namespace") &&
           memory_take(bench);
}

static bool
bench_close(struct bench *bench)
{
    enum kvt_status status;

    if (bench->store == NULL)
        return true;
    status = kvt_region_unregister(bench->store, bench->region);
    if (status == KVT_OK)
        status = kvt_region_unregister(bench->store, bench->pool_region);
    kvt_device_free(bench->store, 0, bench->memory, bench->memory_bytes);
    bench->memory = NULL;
    if (status == KVT_OK)
        status = kvt_close(bench->store);
    else
        kvt_abort(bench->store);
    bench->store = NULL;
    return is_fine(status, "cannot close a store");
}

/* All blocks, in batches. */
static bool
blocks_put(struct bench *bench, enum kvt_durability durability)
{
    struct flight *flight = &bench->flights[0];
    uint32_t stage = durability == KVT_MEMORY ? KVT_STAGE_DONE : KVT_STAGE_DURABLE;
    struct kvt_put puts[NVME_BATCH];

    for (uint64_t done = 0; done < bench->block_count;) {
        kvt_ticket *ticket;
        uint32_t count = 0;
        enum kvt_status status;

        for (; count < NVME_BATCH && done < bench->block_count; count++, done++) {
            pattern_key(done, flight->keys[count]);
            puts[count] =
                (struct kvt_put){.key = {.bytes = flight->keys[count], .length = PATTERN_KEY_BYTES},
                    .source = pattern_at(bench, done),
                    .length = bench->block_bytes};
        }
        status = kvt_put_submit(bench->store, bench->ns, puts, count, durability, NULL, &ticket);
        if (!is_fine(status, "cannot put"))
            return false;
        status = kvt_ticket_wait(ticket, stage, KVT_FOREVER);
        if (status == KVT_OK)
            status = kvt_ticket_results(ticket, stage, flight->results, count);
        kvt_ticket_free(ticket);
        for (uint32_t i = 0; i < count && status == KVT_OK; i++)
            status = flight->results[i].status;
        if (!is_fine(status, "a block was not put"))
            return false;
    }
    return true;
}

/* --- Gets ------------------------------------------------------------------------------------- */

/* Blocks far from each other: the step and the number of blocks have no common factor. */
static bool
flight_submit(struct bench *bench, uint32_t index, kvt_queue *queue)
{
    const struct kvt_submit submit = {.queue = queue, .user = &bench->flights[index]};
    struct flight *flight = &bench->flights[index];

    for (uint32_t i = 0; i < bench->batch; i++) {
        flight->numbers[i] = bench->next++ * 7919 % bench->block_count;
        pattern_key(flight->numbers[i], flight->keys[i]);
        flight->gets[i] =
            (struct kvt_get){.key = {.bytes = flight->keys[i], .length = PATTERN_KEY_BYTES},
                .destination =
                    bench->memory + ((uint64_t)index * bench->batch + i) * bench->block_bytes,
                .capacity = bench->block_bytes,
                .flags = KVT_GET_TRANSIENT, /* From NVMe without a copy in HOST. */
                .region = bench->region};
    }
    return is_fine(kvt_get_submit(bench->store, bench->ns, flight->gets, bench->batch, &submit,
                       &flight->ticket),
        "cannot get");
}

static bool
flight_take(struct bench *bench, struct flight *flight)
{
    enum kvt_status status =
        kvt_ticket_results(flight->ticket, KVT_STAGE_DONE, flight->results, bench->batch);

    kvt_ticket_free(flight->ticket);
    flight->ticket = NULL;
    for (uint32_t i = 0; i < bench->batch && status == KVT_OK; i++)
        status = flight->results[i].status;
    return is_fine(status, "a block did not come");
}

/* What the last batches brought, a block of each. */
static bool
flights_compare(struct bench *bench, uint64_t *wrong_out)
{
    uint8_t *bytes = malloc(bench->block_bytes);
    bool is_read = bytes != NULL;

    for (uint32_t i = 0; i < FLIGHTS && is_read; i++) {
        const uint8_t *wanted = pattern_at(bench, bench->flights[i].numbers[bench->batch - 1]);

        is_read =
            is_fine(kvt_device_read(bench->store, 0, bytes,
                        bench->flights[i].gets[bench->batch - 1].destination, bench->block_bytes),
                "cannot read from the device");
        for (uint64_t j = 0; j < bench->block_bytes && is_read; j++)
            *wrong_out += bytes[j] != wanted[j];
    }
    free(bytes);
    return is_read;
}

/* Batches back to back until `blocks` have come or the time is over. Below 0: complained. */
static double
blocks_get(struct bench *bench, uint64_t blocks, double seconds, uint64_t *got_out)
{
    uint64_t begin_ns = clock_ns(), end_ns = begin_ns + (uint64_t)(seconds * 1e9);
    uint64_t asked = 0, got = 0;
    kvt_queue *queue = NULL;
    bool is_right = is_fine(kvt_queue_create(bench->store, &queue), "no queue");

    for (uint32_t i = 0; i < FLIGHTS && is_right; i++, asked += bench->batch)
        is_right = flight_submit(bench, i, queue);
    while (is_right && got < asked) {
        struct kvt_completion done[FLIGHTS];
        uint32_t count = 0;

        is_right =
            is_fine(kvt_queue_poll(queue, done, FLIGHTS, KVT_FOREVER, &count), "no completion");
        for (uint32_t i = 0; i < count && is_right; i++) {
            struct flight *flight = done[i].user;

            is_right = flight_take(bench, flight);
            got += bench->batch;
            if (is_right && asked + bench->batch <= blocks && clock_ns() < end_ns) {
                is_right = flight_submit(bench, (uint32_t)(flight - bench->flights), queue);
                asked += bench->batch;
            }
        }
    }
    *got_out = got;
    end_ns = clock_ns();
    if (is_right)
        is_right = is_fine(kvt_queue_destroy(queue), "a queue is in use");
    return is_right ? (double)(got * bench->block_bytes) * 1e9 / (double)(end_ns - begin_ns + 1)
                    : -1;
}

/* The best of a few. Below 0: complained. */
static double
copy_measure(struct bench *bench)
{
    double best = 0;

    for (uint32_t i = 0; i < COPY_TIMES; i++) {
        uint64_t begin_ns = clock_ns();
        double rate;

        if (!is_fine(
                kvt_device_write(bench->store, 0, bench->memory, bench->pool.bytes, POOL_BYTES),
                "cannot copy to the device"))
            return -1;
        rate = (double)POOL_BYTES * 1e9 / (double)(clock_ns() - begin_ns + 1);
        if (rate > best)
            best = rate;
    }
    return best;
}

/* --- The figures ------------------------------------------------------------------------------ */

static bool
host_measure(struct bench *bench, const struct gpu_plan *plan, struct gpu_figures *figures)
{
    struct kvt_options options = KVT_OPTIONS_INIT;
    struct gpu_calls before, after;
    uint64_t loop_ns, mover_ns, got;
    double after_copy;

    bench->block_bytes = HOST_BLOCK_BYTES;
    bench->batch = BATCH_MAX;
    bench->block_count = plan->host_bytes / HOST_BLOCK_BYTES;
    options.host_capacity_bytes = plan->host_bytes + plan->host_bytes / 4 + (64 << 20);
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    options.block_bytes_max = HOST_BLOCK_BYTES;
    options.device_kind = plan->device_kind;
    if (!bench_open(bench, &options) || !blocks_put(bench, KVT_MEMORY) ||
        !is_fine(kvt_options_get(bench->store, &options), "no options"))
        return false;
    figures->is_emulated = options.device_kind == KVT_DEVICE_EMULATION;
    figures->copy_bytes_per_s = copy_measure(bench);
    if (figures->copy_bytes_per_s < 0 || blocks_get(bench, UINT64_MAX, plan->seconds / 4, &got) < 0)
        return false;
    gpu_calls_get(&before);
    loop_ns = gpu_thread_ns("kvt-loop");
    mover_ns = gpu_thread_ns("kvt-mover");
    figures->host_bytes_per_s = blocks_get(bench, UINT64_MAX, plan->seconds, &got);
    loop_ns = gpu_thread_ns("kvt-loop") - loop_ns;
    mover_ns = gpu_thread_ns("kvt-mover") - mover_ns;
    gpu_calls_get(&after);
    figures->loop_ns_per_block = (double)loop_ns / (double)(got + 1);
    figures->mover_ns_per_block = (double)mover_ns / (double)(got + 1);
    figures->steady = (struct gpu_calls){after.memory_count - before.memory_count,
        after.pin_count - before.pin_count, after.event_count - before.event_count};
    if (figures->host_bytes_per_s < 0 || !flights_compare(bench, &figures->wrong_bytes))
        return false;
    after_copy = copy_measure(bench); /* Over what was compared. */
    if (after_copy > figures->copy_bytes_per_s)
        figures->copy_bytes_per_s = after_copy;
    return after_copy >= 0 && bench_close(bench);
}

/* Where the blocks lie in the data file: what was never written is not read from the disk at all.
 * The low 24 bits of a segment's number are its place in the file of the one root. NULL:
 * complained. */
static uint64_t *
places_find(const struct bench *bench, uint64_t segment_bytes)
{
    uint64_t *places = calloc(bench->block_count, sizeof(*places));
    enum kvt_status status = places == NULL ? KVT_E_NOMEM : KVT_OK;
    uint64_t cursor = 0, found = 0;

    while (status == KVT_OK && found < bench->block_count) {
        struct kvt_scan_entry entries[SCAN_COUNT];
        uint32_t count = 0;

        status = kvt_scan(bench->store, &cursor, entries, SCAN_COUNT, &count);
        for (uint32_t i = 0; i < count && status == KVT_OK && found < bench->block_count; i++)
            places[found++] = (entries[i].segment & 0xFFFFFF) * segment_bytes +
                              (uint64_t)entries[i].page * PAGE_BYTES;
    }
    if (status >= 0 && found == bench->block_count)
        return places;
    complain_status(status, "cannot list %" PRIu64 " blocks", bench->block_count);
    free(places);
    return NULL;
}

/* --- Blocks on NVMe beside the disk, in turns ------------------------------------------------- */

/* The data file, read where the blocks lie. */
struct disk {
    struct disk_probe probe;
    struct disk_read_plan plan;
};

/* Below 0: complained. */
static double
disk_measure(struct disk *disk)
{
    double rate = disk_probe_read(&disk->probe, &disk->plan);

    if (rate < 0)
        complain("%s", disk->probe.message);
    return rate;
}

/* With the depth at which it is fastest. */
static bool
disk_open(struct disk *disk, const char *path, double seconds)
{
    static const uint32_t depths[] = {4, 8, 16};
    uint32_t best_depth = 0;
    double best = 0;
    struct stat facts;

    if (stat(path, &facts) != 0) {
        complain("cannot read %s: %s", path, strerror(errno));
        return false;
    }
    if (!disk_probe_open(&disk->probe, path)) {
        complain("%s", disk->probe.message);
        return false;
    }
    disk->plan.end_bytes = (uint64_t)facts.st_size;
    disk->plan.seconds = seconds;
    for (uint32_t i = 0; i < 3; i++) {
        double rate;

        disk->plan.depth = depths[i];
        rate = disk_measure(disk);
        if (rate < 0) {
            disk_probe_close(&disk->probe);
            return false;
        }
        if (rate > best) {
            best = rate;
            best_depth = depths[i];
        }
    }
    disk->plan.depth = best_depth;
    return true;
}

/* Each turn of the blocks stands between two of the disk, whose speed drifts. */
static bool
turns_measure(struct bench *bench, struct disk *disk, double seconds, struct gpu_figures *figures)
{
    double blocks[NVME_TURNS], disks[NVME_TURNS], shares[NVME_TURNS];
    double before = disk_measure(disk);

    for (uint32_t i = 0; i < NVME_TURNS; i++) {
        uint64_t got;
        double after;

        if (before < 0)
            return false;
        blocks[i] = blocks_get(bench, UINT64_MAX, seconds, &got);
        if (blocks[i] < 0)
            return false;
        after = disk_measure(disk);
        disks[i] = (before + after) / 2;
        shares[i] = blocks[i] / disks[i];
        before = after;
    }
    figures->nvme_bytes_per_s = median(blocks, NVME_TURNS);
    figures->disk_bytes_per_s = median(disks, NVME_TURNS);
    figures->nvme_share = median(shares, NVME_TURNS);
    return before >= 0;
}

static bool
nvme_measure(struct bench *bench, const struct gpu_plan *plan, struct gpu_figures *figures)
{
    struct kvt_options options = KVT_OPTIONS_INIT;
    struct disk disk = {.plan = {.piece_bytes = NVME_BLOCK_BYTES, .is_random = true}};
    uint64_t *places = NULL;
    char file[600];
    bool is_right;

    bench->block_bytes = NVME_BLOCK_BYTES;
    bench->batch = NVME_BATCH;
    bench->block_count = plan->nvme_bytes / NVME_BLOCK_BYTES;
    bench->next = 0;
    options.host_capacity_bytes = 512 << 20;
    options.nvme_capacity_bytes = 2 * plan->nvme_bytes + (256 << 20);
    options.segment_bytes = 64 << 20;
    options.block_bytes_max = NVME_BLOCK_BYTES;
    options.device_kind = plan->device_kind;
    options.worker_count = 4;
    snprintf(file, sizeof(file), "%s/data/data.00", bench->path);
    /* Opened again, HOST has nothing. */
    is_right = bench_open(bench, &options) && blocks_put(bench, KVT_SYNC) && bench_close(bench) &&
               bench_open(bench, &options);
    if (is_right)
        places = places_find(bench, options.segment_bytes);
    disk.plan.offsets = places;
    disk.plan.offset_count = (uint32_t)bench->block_count;
    is_right = places != NULL && disk_open(&disk, file, plan->seconds / NVME_TURNS);
    if (is_right) {
        is_right = turns_measure(bench, &disk, plan->seconds / NVME_TURNS, figures);
        disk_probe_close(&disk.probe);
    }
    free(places);
    return is_right && flights_compare(bench, &figures->wrong_bytes) && bench_close(bench);
}

/* --- Files, and an open ----------------------------------------------------------------------- */

/* A file of so many bytes that were really written. */
static bool
file_write(const struct bench *bench, const char *path, uint64_t bytes)
{
    int descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool is_written = descriptor >= 0;

    for (uint64_t done = 0; done < bytes && is_written; done += POOL_BYTES)
        is_written =
            pwrite(descriptor, bench->pool.bytes, POOL_BYTES, (off_t)done) == (ssize_t)POOL_BYTES;
    is_written = is_written && fsync(descriptor) == 0;
    if (!is_written)
        complain("cannot write %s: %s", path, strerror(errno));
    if (descriptor >= 0)
        close(descriptor);
    return is_written;
}

static bool
file_measure(const struct bench *bench, const struct gpu_plan *plan, struct gpu_figures *figures)
{
    char file[600];
    struct load_plan load = {.directory = plan->directory,
        .path = file,
        .chunk_bytes = 16 << 20,
        .host_bytes = 256 << 20,
        .device_kind = plan->device_kind,
        .rounds = 3,
        .seconds = plan->seconds};
    bool is_right;

    snprintf(file, sizeof(file), "%s/gpu-file", plan->directory);
    is_right = file_write(bench, file, plan->nvme_bytes) && load_measure(&load, &figures->load);
    (void)unlink(file);
    figures->wrong_bytes += figures->load.wrong_bytes;
    free(figures->load.chunks);
    figures->load.chunks = NULL;
    return is_right;
}

static bool
open_measure(struct bench *bench, const struct gpu_plan *plan, struct gpu_figures *figures)
{
    struct kvt_options options = KVT_OPTIONS_INIT;
    uint64_t begin_ns, got;
    bool is_right;

    bench->block_bytes = HOST_BLOCK_BYTES;
    bench->batch = 1;
    bench->block_count = 1;
    bench->next = 0;
    options.host_capacity_bytes = plan->pinned_bytes;
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    options.block_bytes_max = HOST_BLOCK_BYTES;
    options.device_kind = plan->device_kind;
    begin_ns = clock_ns();
    is_right = bench_open(bench, &options);
    figures->open_ns = (double)(clock_ns() - begin_ns);
    is_right = is_right && blocks_put(bench, KVT_MEMORY) && blocks_get(bench, 1, 1, &got) >= 0;
    figures->first_use_ns = (double)(clock_ns() - begin_ns);
    return is_right && bench_close(bench);
}

bool
gpu_measure(const struct gpu_plan *plan, struct gpu_figures *figures)
{
    struct bench bench = {.store = NULL};
    bool is_right = false;

    *figures = (struct gpu_figures){0};
    bench.flights = calloc(FLIGHTS, sizeof(*bench.flights));
    if (bench.flights == NULL || !huge_buffer_take(&bench.pool, POOL_BYTES) ||
        snprintf(bench.path, sizeof(bench.path), "%s/gpu-store", plan->directory) >=
            (int)sizeof(bench.path)) {
        complain("there is no memory, or %s is too long", plan->directory);
    } else {
        pattern_fill(1, bench.pool.bytes, POOL_BYTES);
        (void)directory_remove(bench.path);
        is_right = host_measure(&bench, plan, figures);
        (void)directory_remove(bench.path);
        is_right =
            is_right && nvme_measure(&bench, plan, figures) && file_measure(&bench, plan, figures);
        (void)directory_remove(bench.path);
        is_right = is_right && open_measure(&bench, plan, figures);
    }
    if (bench.store != NULL)
        kvt_abort(bench.store); /* A run that failed. */
    (void)directory_remove(bench.path);
    huge_buffer_put(&bench.pool);
    free(bench.flights);
    return is_right;
}
