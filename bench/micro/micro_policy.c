/* SPDX-License-Identifier: Apache-2.0 */
/*
 * micro_policy.c - how long the default policy takes to name the copy that goes next, with a
 * million entries in HOST.
 *
 * Chains of eight blocks come, as many as leave; between them chains that are there are used again.
 * So leaves are of many classes and ages, and what a decision needs lies in memory, not in caches.
 * Only victim() is timed; the map's work and the policy's bookkeeping stand between two decisions.
 * Two readings of the clock, one behind the other, are timed in the same places: what a decision's
 * figures have of the clock's.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "failure.h"
#include "policy.h"
#include "residency.h"
#include "rng.h"
#include "statistics.h"

enum {
    ENTRIES_DEFAULT = 1000000,
    CHAIN_BLOCKS = 8,
    USES_A_CHAIN = 2, /* Chains used again for each that comes. */
    DECISIONS = 400000,
    CHAIN_MS = 4, /* Between two that come: a million blocks come in eight minutes. */
};

struct bench {
    struct kvt_env env;
    struct residency *map;
    struct entries *entries;
    struct policy *policy;
    struct rng rng;
    uint64_t key_count;
    uint64_t now_ns;
    uint32_t copy_count, copies_max;
    uint32_t *ends; /* The last block of a chain that came; it may have left. */
    uint32_t end_count;
    uint64_t *times, *clock_times;
    uint32_t time_count;
};

static uint64_t
clock_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* --- Blocks ----------------------------------------------------------------------------------- */

static bool
block_come(struct bench *bench, uint32_t parent, uint32_t depth, uint32_t *number_out)
{
    struct rng rng = {.state = ++bench->key_count};
    struct block_key key = {.namespace_id = 1, .length = sizeof(bench->key_count)};
    const struct hash128 print = {.low = rng_next(&rng), .high = rng_next(&rng)};
    const struct policy_ops *ops = bench->policy->ops;

    memcpy(key.bytes, &bench->key_count, sizeof(bench->key_count));
    if (residency_insert(bench->map, print, &key, number_out) != KVT_OK ||
        entries_reserve(bench->entries, *number_out) != KVT_OK)
        return false;
    entries_link(bench->entries, *number_out, parent);
    entries_at(bench->entries, *number_out)->depth = depth;
    ops->arrive(bench->policy, number_out, 1, bench->now_ns);
    if (ops->prepare(bench->policy, *number_out) != KVT_OK)
        return false;
    residency_publish(bench->map, *number_out, TIER_HOST);
    ops->add(bench->policy, POLICY_HOST, *number_out);
    bench->copy_count++;
    return true;
}

static void
block_go(struct bench *bench, uint32_t number)
{
    (void)residency_doom(bench->map, number);
    bench->policy->ops->remove(bench->policy, POLICY_HOST, number);
    bench->policy->ops->leave(bench->policy, number, true);
    entries_unlink(bench->entries, number);
    (void)residency_release(bench->map, number);
    bench->copy_count--;
}

static bool
chain_come(struct bench *bench)
{
    uint32_t number = ENTRY_NONE;

    for (uint32_t i = 0; i < CHAIN_BLOCKS; i++) {
        if (!block_come(bench, number, i, &number))
            return false;
    }
    bench->ends[bench->key_count / CHAIN_BLOCKS % bench->end_count] = number;
    return true;
}

/* What is left of a chain that came is used; young ones more often than old ones. */
static void
chain_use(struct bench *bench)
{
    uint64_t came = bench->key_count / CHAIN_BLOCKS;
    uint64_t most = came < bench->end_count ? came : bench->end_count;
    uint64_t back = rng_below(&bench->rng, 1 + rng_below(&bench->rng, (uint32_t)most));
    uint32_t number = bench->ends[(came - back) % bench->end_count];
    uint32_t chain[CHAIN_BLOCKS];
    uint32_t first = CHAIN_BLOCKS;

    while (first > 0 && number != ENTRY_NONE &&
           entries_has_copy(bench->entries, POLICY_HOST, number)) {
        chain[--first] = number;
        number = entries_parent(bench->entries, number);
    }
    if (first < CHAIN_BLOCKS)
        bench->policy->ops->request(
            bench->policy, &chain[first], CHAIN_BLOCKS - first, bench->now_ns);
}

/* --- Decisions -------------------------------------------------------------------------------- */

static bool
decision_make(struct bench *bench)
{
    uint64_t start = clock_ns();
    uint64_t begin = clock_ns();
    uint32_t victim = bench->policy->ops->victim(bench->policy, POLICY_HOST, ENTRY_NONE);
    uint64_t end = clock_ns();

    if (victim == ENTRY_NONE)
        return false;
    bench->clock_times[bench->time_count] = begin - start;
    bench->times[bench->time_count++] = end - begin;
    block_go(bench, victim);
    return true;
}

static bool
bench_run(struct bench *bench)
{
    while (bench->time_count < DECISIONS) {
        bench->now_ns += (uint64_t)CHAIN_MS * 1000000;
        if (!chain_come(bench))
            return false;
        for (uint32_t i = 0; i < USES_A_CHAIN; i++)
            chain_use(bench);
        while (bench->copy_count > bench->copies_max && bench->time_count < DECISIONS) {
            if (!decision_make(bench))
                return false;
        }
        residency_collect(bench->map);
    }
    return true;
}

/* A score asks what each of the others would cost (eviction.md's figures). */
static const struct policy_costs costs = {
    .host_load_ns = 1340000,
    .nvme_load_ns = 6700000,
    .recompute_ns = 18000000,
    .recompute_depth_ns = 300000,
    .nvme_write_price_ns = 4000000,
};

static bool
bench_open(struct bench *bench)
{
    enum kvt_status status;

    env_host(&bench->env);
    bench->end_count = bench->copies_max / CHAIN_BLOCKS + 1;
    bench->ends = calloc(bench->end_count, sizeof(*bench->ends));
    bench->times = calloc(DECISIONS, sizeof(*bench->times));
    bench->clock_times = calloc(DECISIONS, sizeof(*bench->clock_times));
    bench->now_ns = 1000000000;
    if (bench->ends == NULL || bench->times == NULL || bench->clock_times == NULL)
        return false;
    status = residency_open(&bench->env, 2 * (uint64_t)bench->copies_max, &bench->map);
    if (status == KVT_OK)
        status = entries_open(&bench->env, bench->map, &bench->entries);
    if (status == KVT_OK)
        status = policy_default_ops.open(&bench->env, bench->entries, &bench->policy);
    if (status == KVT_OK)
        policy_default_ops.costs_set(bench->policy, &costs);
    return status == KVT_OK;
}

static void
bench_close(struct bench *bench)
{
    policy_default_ops.close(bench->policy);
    entries_close(bench->entries);
    residency_close(bench->map);
    free(bench->clock_times);
    free(bench->times);
    free(bench->ends);
}

/* --- Figures ---------------------------------------------------------------------------------- */

static void
times_print(const char *name, uint64_t *times)
{
    printf(", \"%s_p50_ns\": %" PRIu64 ", \"%s_p99_ns\": %" PRIu64 ", \"%s_p999_ns\": %" PRIu64,
        name, number_percentile(times, DECISIONS, 0.5), name,
        number_percentile(times, DECISIONS, 0.99), name,
        number_percentile(times, DECISIONS, 0.999));
}

int
main(int argc, char **argv)
{
    struct bench bench = {.copies_max = ENTRIES_DEFAULT, .rng = {.state = 11}};
    bool is_fine;

    if (argc > 1)
        bench.copies_max = (uint32_t)strtoul(argv[1], NULL, 10);
    if (argc > 2 || bench.copies_max == 0 || bench.copies_max > UINT32_MAX / 4) {
        fprintf(stderr, "usage: micro_policy [ENTRIES]  (default 1000000)\n");
        return 2;
    }
    is_fine = bench_open(&bench) && bench_run(&bench);
    if (is_fine) {
        printf("{\"entries\": %" PRIu32, bench.copies_max);
        times_print("decision", bench.times);
        times_print("clock", bench.clock_times);
        printf("}\n");
    } else {
        fprintf(stderr, "micro_policy: %s\n", failure_last()->text);
    }
    bench_close(&bench);
    return is_fine ? 0 : 1;
}
