/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_store.c - whole stores with an HBM tier on a real GPU: random operations against the model
 * (workload.h), with tiers that hold everything and tiers that do not; where there are
 * two GPUs every other store has both.
 *
 * Usage: gpu_store [SEEDS [OPERATIONS]]. Exit code 0: all passed; 1: not; 77: there is no GPU, and
 * why. Stores lie below /dev/shm, or KVT_TEST_TMP. No cmocka.
 */
#include <stdio.h>
#include <stdlib.h>

#include "device_cuda.h"
#include "failure.h"
#include "stop_on_proof.h"
#include "store_host.h"
#include "workload.h"

enum {
    SEEDS_DEFAULT = 20,
    OPERATIONS_DEFAULT = 500,
    DEVICE_PERCENT = 70,
    SPREAD_PERCENT = 40,
    REOPEN_EVERY = 60, /* Operations, on average. */
};

/* What the runs must have seen. */
struct seen {
    uint64_t hbm_gets, peer_gets, lowered, raised, evicted;
};

static void
seen_add(struct workload *work, struct seen *seen)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};

    if (work->store == NULL || kvt_stats_get(work->store, &stats) != KVT_OK)
        return;
    seen->hbm_gets += stats.get_hbm_count;
    seen->peer_gets += stats.get_peer_count;
    seen->lowered += stats.hbm_lower_count;
    seen->raised += stats.hbm_raise_count;
    seen->evicted += stats.hbm_evict_count;
}

static void
life(struct workload *work, uint32_t operation_count, struct seen *seen)
{
    if (workload_open(work, 0, false) != KVT_OK)
        return;
    for (uint32_t i = 0; i < operation_count && workload_step(work); i++) {
        if (rng_below(&work->rng, REOPEN_EVERY) != 0)
            continue;
        workload_settle(work);
        seen_add(work, seen);
        (void)workload_close(work);
        if (work->model.failure[0] != '\0' || workload_open(work, 0, false) != KVT_OK)
            return;
    }
    workload_settle(work);
    workload_verify(work);
    seen_add(work, seen);
    (void)workload_close(work);
}

static bool
run(uint64_t seed, uint32_t operation_count, bool is_small, uint32_t device_count,
    struct seen *seen)
{
    struct kvt_options options = is_small ? host_options_small() : host_options_large();
    struct workload *work = calloc(1, sizeof(*work));
    struct workload_host reach;
    struct real_host host;
    bool is_right;

    host_options_add_hbm(&options);
    options.device_kind = KVT_DEVICE_CUDA;
    options.device_mask = device_count > 1 && seed % 2 == 1 ? 3 : 1;
    if (work == NULL || !real_host_init(&host, &options)) {
        fprintf(stderr, "no memory, or no directory for a store\n");
        free(work);
        return false;
    }
    reach = real_host_of(&host);
    workload_init(work, &reach, seed, is_small ? SMALL_KEYS : LARGE_KEYS,
        is_small ? SMALL_SHIFT : LARGE_SHIFT);
    work->evicts = is_small;
    work->device_percent = DEVICE_PERCENT;
    work->spread_percent = SPREAD_PERCENT;
    life(work, operation_count, seen);
    is_right = work->model.failure[0] == '\0';
    if (!is_right)
        fprintf(stderr, "seed %llu, %s tiers: %s\n", (unsigned long long)seed,
            is_small ? "small" : "large", work->model.failure);
    kvt_abort(work->store); /* NULL unless the run failed. */
    workload_abandon(work);
    free(work);
    real_host_deinit(&host);
    return is_right;
}

int
main(int argc, char **argv)
{
    uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : SEEDS_DEFAULT;
    uint32_t operations = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : OPERATIONS_DEFAULT;
    struct seen seen = {0};
    uint32_t count;
    bool is_right = true;

    if (device_cuda_ops.count(NULL, &count) != KVT_OK) {
        printf("skipped: %s\n", failure_last()->text);
        return 77;
    }
    stop_on_proof();
    for (uint64_t seed = 1; seed <= seeds && is_right; seed++)
        is_right =
            run(seed, operations, false, count, &seen) && run(seed, operations, true, count, &seen);
    printf("%s: %llu seeds; %llu gets from HBM (%llu by a peer), %llu blocks lowered, %llu raised, "
           "%llu evicted\n",
        is_right ? "passed" : "FAILED", (unsigned long long)seeds,
        (unsigned long long)seen.hbm_gets, (unsigned long long)seen.peer_gets,
        (unsigned long long)seen.lowered, (unsigned long long)seen.raised,
        (unsigned long long)seen.evicted);
    if (seen.hbm_gets == 0 || seen.lowered == 0 || seen.raised == 0 || seen.evicted == 0)
        is_right = false;
    return is_right ? 0 : 1;
}
