/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvtool_rates.h - what the owner of a store did between two of its pages, per second.
 */
#ifndef KVTOOL_RATES_H
#define KVTOOL_RATES_H

#include "json_writer.h"
#include "kvtier/kvtier_unstable.h"

struct rates {
    double seconds;              /* Between the two pages; 0: there was only one, or the same. */
    double read_seconds;         /* When the later one was read. */
    struct kvt_stats per_second; /* Of every counter; rounded. */
    double lookups;
    double hit_percent; /* Of the lookups; so are the next. */
    double hit_hbm_percent, hit_host_percent, hit_nvme_percent;
    double memory_bytes; /* Read from HBM and HOST. */
    double nvme_bytes;
    double get_misses;
    double put_bytes, durable_bytes, relocated_bytes;
    double commits;
    double evictions; /* Of all tiers. */
    double hbm_evictions, host_evictions, nvme_evictions;
    double drops;
    double corrupt, read_failed, put_refused;
};

/* rates_of - `before` NULL: all zero. A page of another process, or one that was not renewed,
 * counts as no time. */
void rates_of(struct rates *rates_out, const struct kvt_live *before, const struct kvt_live *now);

/* rates_print_json - "rates" {...}, by the counters' names. */
void rates_print_json(struct json *json, const struct rates *rates);

#endif /* KVTOOL_RATES_H */
