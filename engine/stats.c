/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stats.c - reading counters, gauges, latencies and the options in force.
 */
#include "engram_set.h"
#include "file_load.h"

static void
latency_read(const struct histogram *histogram, struct kvt_latency *latency_out)
{
    latency_out->count = atomic_load_explicit(&histogram->count, memory_order_relaxed);
    latency_out->sum_ns = atomic_load_explicit(&histogram->sum, memory_order_relaxed);
    latency_out->max_ns = atomic_load_explicit(&histogram->max, memory_order_relaxed);
    latency_out->p50_ns = histogram_at(histogram, 0.5);
    latency_out->p99_ns = histogram_at(histogram, 0.99);
    latency_out->p999_ns = histogram_at(histogram, 0.999);
}

uint64_t
stats_live_bytes(struct kvt_store *store)
{
    struct segment *segment;
    uint64_t live_bytes = 0;
    uint32_t cursor = 0;

    while ((segment = segment_next(store->segments, &cursor)) != NULL)
        live_bytes += segment->live_bytes;
    return live_bytes;
}

/* Of some ids the namespace may be lost. */
static uint64_t
namespaces_count(struct kvt_store *store)
{
    uint32_t id_max = atomic_load_explicit(&store->namespace_count, memory_order_acquire);
    uint64_t count = 0;

    for (uint32_t id = 1; id <= id_max; id++)
        count += namespace_at(store, id) != NULL;
    return count;
}

void
stats_gauges(struct kvt_store *store, struct kvt_stats *stats)
{
    struct tier_usage usage = {0};

    stats->entry_count_now = residency_count(store->map);
    stats->lease_count_now =
        atomic_load_explicit(&store->lease_out_count, memory_order_relaxed) +
        atomic_load_explicit(&store->lease_waiting_count, memory_order_relaxed);
    stats->host_capacity_bytes_now = slab_capacity(store->slab);
    stats->host_used_bytes_now = slab_used(store->slab);
    for (uint32_t i = 0; i < POLICY_DEVICES_MAX; i++) {
        const struct slab *slab = place_slab(store, place_of_device(i));

        stats->hbm_capacity_bytes_now += slab == NULL ? 0 : slab_capacity(slab);
        stats->hbm_used_bytes_now += slab == NULL ? 0 : slab_used(slab);
    }
    stats->load_device_bytes_now = loads_device_bytes(store);
    stats->host_dirty_bytes_now = store->dirty_bytes;
    stats->reservation_count_now =
        atomic_load_explicit(&store->reservation_count, memory_order_relaxed);
    stats->pin_count_now = pins_count(store);
    stats->pin_bytes_now = pins_bytes(store);
    stats->engram_pinned_bytes_now = engrams_pinned_bytes(store);
    stats->namespace_count_now = namespaces_count(store);
    if (store->nvme == NULL)
        return;
    nvme_as_tier(store->nvme)->ops->usage(nvme_as_tier(store->nvme), &usage);
    stats->nvme_capacity_bytes_now = usage.capacity_bytes;
    stats->nvme_used_bytes_now = usage.used_bytes;
}

void
stats_counts(const struct kvt_store *store, struct kvt_stats *stats)
{
#define READ_COUNTER(name, text) \
    stats->name += atomic_load_explicit(&store->counters.name, memory_order_relaxed);
    KVT_COUNTERS(READ_COUNTER)
#undef READ_COUNTER
#define READ_LATENCY(name, text) latency_read(&store->latencies.name, &stats->name);
    KVT_LATENCIES(READ_LATENCY)
#undef READ_LATENCY
}

/* The loop: what only it may look at. */
static bool
gauges_run(struct kvt_store *store, void *context)
{
    struct kvt_stats *stats = context;

    stats_gauges(store, stats);
    stats->nvme_live_bytes_now = stats_live_bytes(store);
    return true;
}

enum kvt_status
kvt_stats_get(kvt_store *store, struct kvt_stats *stats_out)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};
    uint32_t size;

    KVT_TRY(store_enter(store));
    if (stats_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "stats_out is NULL");
    size = stats_out->struct_size;
    if (size < 8 || size > 65536)
        return failure_set(KVT_E_INVAL, 0, "struct_size %u is not in 8..65536", size);
    stats_counts(store, &stats);
    loop_call(store, gauges_run, &stats);
    if (size > sizeof(stats))
        memset((char *)stats_out + sizeof(stats), 0, size - sizeof(stats));
    memcpy(stats_out, &stats, size < sizeof(stats) ? size : sizeof(stats));
    stats_out->struct_size = size;
    return KVT_OK;
}

enum kvt_status
kvt_options_get(kvt_store *store, struct kvt_options *options_out)
{
    uint32_t size;

    KVT_TRY(store_enter(store));
    if (options_out == NULL)
        return failure_set(KVT_E_INVAL, 0, "options_out is NULL");
    size = options_out->struct_size;
    if (size < 8 || size > 4096)
        return failure_set(KVT_E_INVAL, 0, "struct_size %u is not in 8..4096", size);
    if (size > sizeof(store->options))
        memset((char *)options_out + sizeof(store->options), 0, size - sizeof(store->options));
    memcpy(options_out, &store->options,
        size < sizeof(store->options) ? size : sizeof(store->options));
    options_out->struct_size = size;
    return KVT_OK;
}
