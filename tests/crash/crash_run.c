/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_run.c - the steps of a workload (crash_run.h).
 */
#include "crash_run.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "kvtier/kvtier_unstable.h"

enum {
    ROOM_TRIES = 30, /* Each adds two outcomes: ORACLE_OUTCOMES_MAX. */
};

void
run_fail(const char *format, ...)
{
    struct kvt_error error;
    va_list rest;

    kvt_last_error(&error);
    va_start(rest, format);
    vfprintf(stderr, format, rest);
    va_end(rest);
    fprintf(stderr, " (last failure: %s)\n", error.text);
    _exit(1);
}

static void
mark(struct run *run, const char *verb, uint64_t a, uint64_t b)
{
    char line[96];

    snprintf(line, sizeof(line), "%s %" PRIu64 " %" PRIu64, verb, a, b);
    run->mark(line);
}

void
run_options(const struct workload *workload, const char *dir, struct run_paths *paths,
    struct kvt_options *options_out)
{
    struct kvt_options options = KVT_OPTIONS_INIT;

    snprintf(paths->store, sizeof(paths->store), "%s/store", dir);
    for (uint32_t i = 0; i < workload->root_count; i++) {
        snprintf(paths->roots[i], sizeof(paths->roots[i]), "%s/root%u", dir, i);
        paths->list[i] = paths->roots[i];
    }
    options.host_capacity_bytes = workload->host_bytes != 0 ? workload->host_bytes : 4 << 20;
    options.nvme_capacity_bytes = workload->nvme_bytes != 0 ? workload->nvme_bytes : 16 << 20;
    options.segment_bytes = 1 << 20;
    options.block_bytes_max = RUN_BLOCK_BYTES_MAX;
    if (workload->hbm_bytes != 0) {
        options.hbm_capacity_bytes = workload->hbm_bytes;
        options.device_kind = KVT_DEVICE_EMULATION;
    }
    options.index_map_bytes = workload->map_bytes != 0 ? workload->map_bytes : 1 << 20;
    options.entry_count_max = 1 << 16;
    options.event_count_max = DEPARTURES_EVENTS;
    options.io_engine = workload->io_engine != 0 ? workload->io_engine : KVT_IO_THREADS;
    if (workload->io_engine == RUN_IO_AUTO)
        options.io_engine = KVT_IO_AUTO;
    options.worker_count = 1;
    options.relaxed_interval_ns = 20 * UINT64_C(1000000);
    if (workload->root_count > 0) {
        options.roots = paths->list;
        options.root_count = workload->root_count;
    }
    *options_out = options;
}

enum kvt_status
run_open_namespaces(kvt_store *store, kvt_namespace namespaces_out[])
{
    static const char *const names[ORACLE_NAMESPACES] = {"first", "second"};

    for (uint32_t i = 0; i < ORACLE_NAMESPACES; i++) {
        enum kvt_status status =
            kvt_namespace_open(store, names[i], "a model", 7, &namespaces_out[i]);
        if (status != KVT_OK)
            return status;
    }
    return KVT_OK;
}

static void
mark_departure(void *context, uint32_t key, enum departure what)
{
    struct run *run = context;

    if (!run->workload->may_leave)
        run_fail("key %u: %s, of a tier that is never full", key, departure_marks[what]);
    mark(run, departure_marks[what], key, 0);
}

static void
mark_departures(struct run *run)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};

    mark(run, "look", 0, 0);
    if (kvt_stats_get(run->store, &stats) != KVT_OK)
        run_fail("kvt_stats_get");
    if (stats.corrupt_count != 0 || stats.read_failed_count != 0)
        run_fail("the store met %" PRIu64 " damaged and %" PRIu64 " unreadable blocks",
            stats.corrupt_count, stats.read_failed_count);
    if (!departures_read(&run->departures, run->store, run->namespaces, mark_departure, run))
        run_fail("events were lost");
    mark(run, "looked", 0, 0);
}

uint8_t *
run_device_take(kvt_store *store, uint64_t size, kvt_region *region_out)
{
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HBM, .size = size};
    enum kvt_status status = kvt_device_alloc(store, 0, size, &about.address);

    if (status == KVT_OK)
        status = kvt_region_register(store, &about, region_out);
    if (status != KVT_OK)
        run_fail("memory of the device: %s", kvt_status_name(status));
    return about.address;
}

static void
device_give(struct run *run)
{
    kvt_device_free(
        run->store, 0, run->device_pool, (uint64_t)RUN_DEVICE_BLOCKS * RUN_BLOCK_BYTES_MAX);
    run->device_pool = NULL;
}

void
run_open(struct run *run, uint32_t flags)
{
    struct kvt_options options;
    struct run_paths paths;

    run_options(run->workload, run->dir, &paths, &options);
    options.flags = flags;
    enum kvt_status status = kvt_open(paths.store, &options, &run->store);
    if (status != KVT_OK)
        run_fail("kvt_open gave %s", kvt_status_name(status));
    mark(run, "open", 0, 0);
    run->may_fail = false;
    memset(&run->departures, 0, sizeof(run->departures));
    status = run_open_namespaces(run->store, run->namespaces);
    if (status != KVT_OK)
        run_fail("kvt_namespace_open gave %s", kvt_status_name(status));
    if (run->workload->hbm_bytes != 0)
        run->device_pool = run_device_take(
            run->store, (uint64_t)RUN_DEVICE_BLOCKS * RUN_BLOCK_BYTES_MAX, &run->region);
}

void
run_close(struct run *run)
{
    run_flush(run);
    if (!departures_settle(run->store))
        run_fail("the store does not come to rest");
    mark_departures(run);
    device_give(run);
    enum kvt_status status = kvt_close(run->store);
    if (status != KVT_OK)
        run_fail("kvt_close gave %s", kvt_status_name(status));
    run->store = NULL;
}

void
run_abort(struct run *run)
{
    mark_departures(run);
    if (run->workload->may_leave)
        run_fail("what leaves before an abort is told by nobody");
    device_give(run);
    kvt_abort(run->store);
    run->store = NULL;
    run->relaxed_count = 0;
}

static kvt_namespace
namespace_of(const struct run *run, uint32_t key)
{
    return run->namespaces[key / ORACLE_NAMESPACE_KEYS];
}

/* A full disk may refuse whatever needs it, and a store whose index it has refused takes nothing
 * more in that life. */
static bool
is_tolerated(const struct run *run, enum kvt_status status)
{
    return run->may_fail && (status == KVT_E_NOSPC || status == KVT_E_META || status == KVT_E_IO ||
                                status == KVT_E_READONLY);
}

/* Which of the puts are acknowledged. */
static void
confirm_put(struct run *run, struct run_pending *pending)
{
    struct kvt_result results[RUN_BATCH_MAX], visible[RUN_BATCH_MAX];

    if (pending->ticket == NULL)
        return;
    enum kvt_status status = kvt_ticket_wait(pending->ticket, KVT_STAGE_DURABLE, KVT_FOREVER);
    if (status == KVT_OK)
        status = kvt_ticket_results(pending->ticket, KVT_STAGE_DURABLE, results, pending->count);
    if (status == KVT_OK)
        status = kvt_ticket_results(pending->ticket, KVT_STAGE_DONE, visible, pending->count);
    if (status != KVT_OK)
        run_fail("a put's stage 2 gave %s", kvt_status_name(status));
    mark_departures(run); /* Of what was there before. */
    for (uint32_t i = 0; i < pending->count; i++) {
        enum kvt_status result = results[i].status;
        /* A put that met a block shares that block's outcome: the version is not its own. */
        if (result == KVT_OK && visible[i].status == KVT_EXISTS)
            continue;
        if (result == KVT_OK) {
            run->acknowledged = pending->version[i];
            mark(run, "put_ok", pending->key[i], pending->version[i]);
        } else if (result != KVT_EXISTS && result != KVT_MISS && !is_tolerated(run, result))
            run_fail("a put of key %u gave %s", pending->key[i], kvt_status_name(result));
    }
    kvt_ticket_free(pending->ticket);
}

/* With an HBM tier all blocks but each fourth are born there. */
static void
put_from_device(struct run *run, uint32_t i, struct kvt_put *put)
{
    uint8_t *source = run->device_pool + (size_t)i * RUN_BLOCK_BYTES_MAX;
    enum kvt_status status;

    if (run->device_pool == NULL || i >= RUN_DEVICE_BLOCKS || i % 4 == 3)
        return;
    status = kvt_device_write(run->store, 0, source, put->source, put->length);
    if (status != KVT_OK)
        run_fail("kvt_device_write gave %s", kvt_status_name(status));
    put->source = source;
    put->region = run->region;
    put->tier = KVT_TIER_HBM;
}

/* Submit blocks with new versions, and wait until they are visible. */
static struct run_pending
put_begin(
    struct run *run, uint32_t first, uint32_t count, enum kvt_durability durability, uint32_t flags)
{
    static uint8_t source[RUN_BATCH_MAX][RUN_BLOCK_BYTES_MAX];
    const struct workload *workload = run->workload;
    uint32_t low = workload->block_low != 0 ? workload->block_low : 4096;
    uint32_t high = workload->block_high != 0 ? workload->block_high : 24576;
    struct payload_key keys[RUN_BATCH_MAX], parents[RUN_BATCH_MAX];
    struct kvt_put puts[RUN_BATCH_MAX] = {0};
    struct run_pending pending = {.count = count};
    struct kvt_submit submit = {0};

    for (uint32_t i = 0; i < count; i++) {
        pending.key[i] = first + i;
        pending.version[i] = ++run->version;
        payload_key_make(&keys[i], first + i);
        puts[i].key = keys[i].key;
        if (run->is_chained && first + i > 0) {
            payload_key_make(&parents[i], first + i - 1);
            puts[i].parent = &parents[i].key;
        }
        puts[i].length = payload_length(first + i, run->version, low, high);
        /* Some blocks are made of parts. */
        puts[i].part_count = puts[i].length % 3 == 0 ? 3 : 1;
        puts[i].source = source[i];
        puts[i].flags = flags;
        payload_fill(source[i], puts[i].length, first + i, run->version);
        put_from_device(run, i, &puts[i]);
        /* A block that is only in memory, or fails, takes the place of one that a crash would have
         * left: the kill of that one may be durable, and nothing promises that the new one is. */
        if ((flags & KVT_PUT_REPLACE) != 0 && (durability == KVT_MEMORY || run->may_fail))
            mark(run, "del", first + i, 0);
        mark(run, "put", first + i, run->version);
    }
    enum kvt_status status = kvt_put_submit(
        run->store, namespace_of(run, first), puts, count, durability, &submit, &pending.ticket);
    if (status == KVT_OK)
        status = kvt_ticket_wait(pending.ticket, KVT_STAGE_DONE, KVT_FOREVER);
    else
        pending.count = 0;
    if (status != KVT_OK && !is_tolerated(run, status))
        run_fail("a put gave %s", kvt_status_name(status));
    return pending;
}

static void
put(struct run *run, uint32_t first, uint32_t count, enum kvt_durability durability, uint32_t flags)
{
    struct run_pending pending = put_begin(run, first, count, durability, flags);

    if (durability == KVT_SYNC)
        confirm_put(run, &pending);
    else if (durability == KVT_MEMORY)
        kvt_ticket_free(pending.ticket);
    else if (run->relaxed_count < RUN_TICKETS_MAX)
        run->relaxed[run->relaxed_count++] = pending;
    else
        run_fail("too many relaxed puts");
    mark_departures(run);
}

void
run_put(struct run *run, uint32_t first, uint32_t count, enum kvt_durability durability)
{
    put(run, first, count, durability, 0);
}

void
run_replace(struct run *run, uint32_t first, uint32_t count, enum kvt_durability durability)
{
    put(run, first, count, durability, KVT_PUT_REPLACE);
}

void
run_disk_full(struct run *run, const char *part, uint64_t skip, uint64_t count)
{
    run->may_fail = true;
    run->index_may_fail = strcmp(part, RUN_DATA_FILES) != 0;
    (void)run->full(part, skip, count);
}

void
run_disk_room(struct run *run, uint32_t key)
{
    uint64_t version = run->version;

    if (run->full(NULL, 0, 0) == 0)
        run_fail("the disk was never full");
    run_flush(run);
    for (int i = 0; i < ROOM_TRIES && !run->index_may_fail; i++) {
        run_replace(run, key, 1, KVT_SYNC);
        if (run->acknowledged > version)
            return;
        usleep(300000); /* A store leaves a disk without room alone for seconds. */
    }
    if (!run->index_may_fail)
        run_fail("a disk that has room again takes nothing");
}

void
run_claim(struct run *run, uint32_t key)
{
    mark(run, "put", key, ++run->version);
    mark(run, "put_ok", key, run->version);
}

void
run_flush(struct run *run)
{
    enum kvt_status status = kvt_flush(run->store);

    if (status != KVT_OK && !is_tolerated(run, status))
        run_fail("kvt_flush gave %s", kvt_status_name(status));
    for (uint32_t i = 0; i < run->relaxed_count; i++)
        confirm_put(run, &run->relaxed[i]);
    run->relaxed_count = 0;
    mark_departures(run);
}

static kvt_ticket *
delete_begin(struct run *run, uint32_t first, uint32_t count)
{
    struct payload_key keys[RUN_BATCH_MAX];
    struct kvt_key list[RUN_BATCH_MAX];
    struct kvt_submit submit = {0};
    kvt_ticket *ticket = NULL;

    for (uint32_t i = 0; i < count; i++) {
        payload_key_make(&keys[i], first + i);
        list[i] = keys[i].key;
        mark(run, "del", first + i, 0);
    }
    enum kvt_status status =
        kvt_delete_submit(run->store, namespace_of(run, first), list, count, &submit, &ticket);
    if (status != KVT_OK && !is_tolerated(run, status))
        run_fail("a delete gave %s", kvt_status_name(status));
    return ticket;
}

static void
confirm_delete(struct run *run, kvt_ticket *ticket, uint32_t first, uint32_t count)
{
    struct kvt_result results[RUN_BATCH_MAX];

    if (ticket == NULL)
        return;
    enum kvt_status status = kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, KVT_FOREVER);
    if (status == KVT_OK)
        status = kvt_ticket_results(ticket, KVT_STAGE_DURABLE, results, count);
    if (status != KVT_OK)
        run_fail("a delete gave %s", kvt_status_name(status));
    for (uint32_t i = 0; i < count; i++) {
        if (results[i].status == KVT_OK || results[i].status == KVT_MISS)
            mark(run, "del_ok", first + i, 0);
        else if (!is_tolerated(run, results[i].status))
            run_fail("a delete of key %u gave %s", first + i, kvt_status_name(results[i].status));
    }
    kvt_ticket_free(ticket);
    mark_departures(run);
}

void
run_delete(struct run *run, uint32_t first, uint32_t count)
{
    confirm_delete(run, delete_begin(run, first, count), first, count);
}

void
run_overlap(struct run *run, uint32_t first, uint32_t count)
{
    struct run_pending one = put_begin(run, first, count, KVT_SYNC, 0);
    usleep(rng_below(&run->rng, 300)); /* Now this, now that of the put's steps is under way. */
    kvt_ticket *ticket = delete_begin(run, first, count);
    struct run_pending two = put_begin(run, first, count, KVT_SYNC, 0);
    struct run_pending three = put_begin(run, first, 1, KVT_SYNC, KVT_PUT_REPLACE);

    confirm_put(run, &one);
    confirm_delete(run, ticket, first, count);
    confirm_put(run, &two);
    confirm_put(run, &three);
    mark_departures(run);
}

void
run_clear(struct run *run, uint32_t number)
{
    mark(run, "clear", number, 0);
    enum kvt_status status = kvt_namespace_clear(run->store, run->namespaces[number]);
    if (status != KVT_OK && !is_tolerated(run, status))
        run_fail("kvt_namespace_clear gave %s", kvt_status_name(status));
    if (status == KVT_OK)
        mark(run, "clear_ok", number, 0);
    mark_departures(run);
}

static void
move_blocks(struct run *run, uint32_t first, uint32_t count, uint32_t tier, bool is_up)
{
    struct kvt_prefetch how = {.struct_size = sizeof(how), .tier = tier};
    kvt_namespace ns = namespace_of(run, first);
    struct payload_key keys[RUN_BATCH_MAX];
    struct kvt_key list[RUN_BATCH_MAX];
    struct kvt_result results[RUN_BATCH_MAX];
    kvt_ticket *ticket = NULL;

    for (uint32_t i = 0; i < count; i++) {
        payload_key_make(&keys[i], first + i);
        list[i] = keys[i].key;
    }
    enum kvt_status status =
        is_up ? kvt_prefetch_submit(run->store, ns, list, count, &how, NULL, &ticket)
              : kvt_demote_submit(run->store, ns, list, count, tier, NULL, &ticket);
    if (status == KVT_OK)
        status = kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER);
    if (status == KVT_OK)
        status = kvt_ticket_results(ticket, KVT_STAGE_DONE, results, count);
    if (status != KVT_OK)
        run_fail("a move gave %s", kvt_status_name(status));
    for (uint32_t i = 0; i < count; i++) {
        if (results[i].status < 0)
            run_fail("a move of key %u gave %s", first + i, kvt_status_name(results[i].status));
    }
    kvt_ticket_free(ticket);
    mark_departures(run);
}

void
run_demote(struct run *run, uint32_t first, uint32_t count, uint32_t tier)
{
    move_blocks(run, first, count, tier, false);
}

void
run_prefetch(struct run *run, uint32_t first, uint32_t count, uint32_t tier)
{
    move_blocks(run, first, count, tier, true);
}

void
run_get(struct run *run, uint32_t first, uint32_t count)
{
    static uint8_t target[65536];

    for (uint32_t i = 0; i < count; i++) {
        struct payload_key key;
        payload_key_make(&key, first + i);
        struct kvt_get get = {.key = key.key, .destination = target, .capacity = sizeof(target)};
        struct kvt_submit submit = {0};
        struct kvt_result result;
        kvt_ticket *ticket = NULL;
        uint64_t version;
        memset(target, 0xA5, sizeof(target));
        enum kvt_status status =
            kvt_get_submit(run->store, namespace_of(run, first), &get, 1, &submit, &ticket);
        if (status == KVT_OK)
            status = kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER);
        if (status == KVT_OK)
            status = kvt_ticket_results(ticket, KVT_STAGE_DONE, &result, 1);
        if (status != KVT_OK || (result.status != KVT_OK && result.status != KVT_MISS))
            run_fail("a get of key %u failed", first + i);
        if (result.status == KVT_OK &&
            !payload_is_right(target, result.length, first + i, &version))
            run_fail("wrong bytes in key %u", first + i);
        kvt_ticket_free(ticket);
    }
}
