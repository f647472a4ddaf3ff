/* SPDX-License-Identifier: Apache-2.0 */
/*
 * costs.c - what the store has measured of loading and computing, told to the policy.
 *
 * Loads are those that kvt_estimate() answers with: time that bytes were on their way. What
 * computing a block costs callers say when they put it; of one whose caller did not, it is what the
 * others cost on average.
 *
 * Threads   the loop.
 */
#include "store_internal.h"

static const uint64_t interval_ns = UINT64_C(1000000000);
static const double mean_gain = 1.0 / 64;

/* A meter counts half of what it has counted when it reaches either: many reads of a fast disk, or
 * a while of a slow one. What came in between, as an hour for which the process was stopped with a
 * read under way, is forgotten in a few gigabytes. */
static const uint64_t meter_bytes_max = UINT64_C(1) << 30;
static const uint64_t meter_busy_ns_max = UINT64_C(10) * 1000 * 1000 * 1000;
static const double load_ns_max = 1e18; /* What a meter may tell: 31 years, which 64 bits hold. */

void
load_meter_age(struct load_meter *meter)
{
    while (meter->bytes >= meter_bytes_max || meter->busy_ns >= meter_busy_ns_max) {
        meter->bytes /= 2;
        meter->busy_ns /= 2;
    }
}

uint64_t
load_meter_ns(const struct load_meter *meter, uint64_t bytes)
{
    double load_ns;

    if (meter->bytes == 0 || meter->busy_ns == 0)
        return 0;
    load_ns = (double)bytes * (double)meter->busy_ns / (double)meter->bytes;
    return (uint64_t)(load_ns < load_ns_max ? load_ns : load_ns_max);
}

void
costs_note(struct kvt_store *store, const struct op *op)
{
    double *mean = &store->recompute_mean_us;

    store->put_mean_bytes +=
        ((double)op->length - store->put_mean_bytes) * (store->put_mean_bytes == 0 ? 1 : mean_gain);
    if (op->recompute_us != 0)
        *mean += (op->recompute_us - *mean) * (*mean == 0 ? 1 : mean_gain);
}

void
costs_note_demotion(struct kvt_store *store, uint64_t length)
{
    double *mean = &store->demote_mean_bytes;

    *mean += ((double)length - *mean) * (*mean == 0 ? 1 : mean_gain);
}

void
costs_step(struct kvt_store *store)
{
    uint64_t bytes = (uint64_t)store->put_mean_bytes;
    double budget = (double)store->options.nvme_write_bytes_per_second;
    struct policy_costs costs;

    if (bytes == 0 || store->now_ns - store->costs_told_ns < interval_ns)
        return;
    store->costs_told_ns = store->now_ns;
    costs = (struct policy_costs){
        .host_load_ns = load_meter_ns(&store->host_meter, bytes),
        .nvme_load_ns = load_meter_ns(&store->nvme_meter, bytes),
        .recompute_ns = (uint64_t)(store->recompute_mean_us * 1000),
    };
    costs.nvme_writes_per_second_max =
        budget / (store->demote_mean_bytes > 0 ? store->demote_mean_bytes : store->put_mean_bytes);
    store->policy->ops->costs_set(store->policy, &costs);
}
