/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_rates.c - what the owner of a store did between two of its pages, per second.
 */
#include "kvtool_rates.h"

#include <string.h>

#include "progress.h"

/* Gauges go down as well: they have no rate. */
static bool
is_gauge(const char *name)
{
    size_t length = strlen(name);

    return length > 4 && strcmp(name + length - 4, "_now") == 0;
}

static double
rise(uint64_t before, uint64_t now, double seconds)
{
    return now > before && seconds > 0 ? (double)(now - before) / seconds : 0;
}

/* Time between the writing of both. */
static double
seconds_between(const struct kvt_live *before, const struct kvt_live *now, double passed)
{
    double seconds = passed + ((double)before->age_ns - (double)now->age_ns) * 1e-9;

    if (before->pid != now->pid || before->start_time != now->start_time ||
        before->sequence >= now->sequence || seconds <= 0)
        return 0;
    return seconds;
}

void
rates_of(struct rates *rates_out, const struct kvt_live *before, const struct kvt_live *now)
{
    double read_seconds = clock_seconds();
    double passed = read_seconds - rates_out->read_seconds;
    double seconds = 0;
    double hits = 0;

    memset(rates_out, 0, sizeof(*rates_out));
    rates_out->read_seconds = read_seconds;
    if (before == NULL)
        return;
    seconds = seconds_between(before, now, passed);
    rates_out->seconds = seconds;
#define RISE(name) rise(before->stats.name, now->stats.name, seconds)
#define PER_SECOND(name, text) rates_out->per_second.name = (uint64_t)(RISE(name) + 0.5);
    KVT_COUNTERS(PER_SECOND)
#undef PER_SECOND
    rates_out->lookups = RISE(lookup_count);
    rates_out->hit_hbm_percent = RISE(lookup_hit_hbm_count);
    rates_out->hit_host_percent = RISE(lookup_hit_host_count);
    rates_out->hit_nvme_percent = RISE(lookup_hit_nvme_count);
    hits = rates_out->hit_hbm_percent + rates_out->hit_host_percent + rates_out->hit_nvme_percent;
    if (rates_out->lookups > 0) {
        rates_out->hit_percent = 100 * hits / rates_out->lookups;
        rates_out->hit_hbm_percent *= 100 / rates_out->lookups;
        rates_out->hit_host_percent *= 100 / rates_out->lookups;
        rates_out->hit_nvme_percent *= 100 / rates_out->lookups;
    }
    rates_out->memory_bytes = RISE(get_hbm_bytes) + RISE(get_host_bytes);
    rates_out->nvme_bytes = RISE(get_nvme_bytes);
    rates_out->get_misses = RISE(get_miss_count);
    rates_out->put_bytes = RISE(put_bytes);
    rates_out->durable_bytes = RISE(durable_bytes);
    rates_out->relocated_bytes = RISE(nvme_relocate_bytes);
    rates_out->commits = RISE(commit_count);
    rates_out->hbm_evictions = RISE(hbm_evict_count);
    rates_out->host_evictions = RISE(host_evict_count);
    rates_out->nvme_evictions = RISE(nvme_evict_count);
    rates_out->drops = RISE(host_drop_count) + RISE(hbm_drop_count);
    rates_out->evictions = rates_out->hbm_evictions + rates_out->host_evictions +
                           rates_out->nvme_evictions + rates_out->drops;
    rates_out->corrupt = RISE(corrupt_count);
    rates_out->read_failed = RISE(read_failed_count);
    rates_out->put_refused = RISE(put_refused_count);
#undef RISE
}

void
rates_print_json(struct json *json, const struct rates *rates)
{
    json_object_begin(json, "rates");
#define PRINT(name, text) \
    if (!is_gauge(#name)) \
        json_number(json, #name, rates->per_second.name);
    KVT_COUNTERS(PRINT)
#undef PRINT
    json_object_end(json);
}
