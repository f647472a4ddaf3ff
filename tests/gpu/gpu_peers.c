/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_peers.c - blocks in HBM of one GPU that are read to memory of another: every byte is
 * compared, and the rate stands beside that of the same blocks from HOST and of one large copy.
 *
 * Usage: gpu_peers [ROUNDS]. Exit code 0: all passed; 1: not; 77: there are no two GPUs, or they do
 * not reach each other, and why. The store lies below /dev/shm, or KVT_TEST_TMP. No cmocka.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda_runtime_api.h>

#include "device_cuda.h"
#include "failure.h"
#include "gpu_must.h"
#include "payload.h"
#include "stop_on_proof.h"
#include "store_host.h"

enum {
    ROUNDS_DEFAULT = 5,
    BATCH = 256,
    POOL_BYTES = 512 << 20, /* Of each device: all blocks of a round. */
    BLOCK_BYTES_MAX = 1 << 20,
    POISON = 0xA5,
};

struct rig {
    kvt_store *store;
    kvt_namespace ns;
    kvt_region regions[2];
    uint8_t *pools[2];
    uint8_t *host; /* Pinned, POOL_BYTES. */
    uint64_t version;
};

static double
seconds_now(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static struct kvt_stats
stats_of(struct rig *rig)
{
    struct kvt_stats stats = {.struct_size = sizeof(stats)};

    MUST(kvt_stats_get(rig->store, &stats));
    return stats;
}

static void
rig_open(struct rig *rig, struct real_host *host)
{
    struct kvt_options options = KVT_OPTIONS_INIT;
    double begin;

    options.device_kind = KVT_DEVICE_CUDA;
    options.device_mask = 3;
    options.block_bytes_max = BLOCK_BYTES_MAX;
    options.segment_bytes = (uint64_t)4 * BLOCK_BYTES_MAX;
    options.host_capacity_bytes = (uint64_t)POOL_BYTES * 2;
    options.hbm_capacity_bytes = (uint64_t)POOL_BYTES * 2;
    options.nvme_capacity_bytes = KVT_CAPACITY_NONE;
    if (!real_host_init(host, &options)) {
        fprintf(stderr, "no directory for a store\n");
        exit(1);
    }
    begin = seconds_now();
    MUST(kvt_open(host->path, &options, &rig->store));
    printf("{\"open_ms\": %.0f}\n", (seconds_now() - begin) * 1e3);
    MUST(kvt_namespace_open(rig->store, "peers", "", 0, &rig->ns));
    MUST(cudaHostAlloc((void **)&rig->host, POOL_BYTES, cudaHostAllocPortable));
    for (int i = 0; i < 2; i++) {
        struct kvt_region_options about = {.struct_size = sizeof(about),
            .tier = KVT_TIER_HBM,
            .device = (uint32_t)i,
            .size = POOL_BYTES};

        MUST(cudaSetDevice(i));
        MUST(cudaMalloc((void **)&rig->pools[i], POOL_BYTES));
        about.address = rig->pools[i];
        MUST(kvt_region_register(rig->store, &about, &rig->regions[i]));
    }
}

static void
rig_close(struct rig *rig, struct real_host *host)
{
    for (int i = 0; i < 2; i++)
        MUST(kvt_region_unregister(rig->store, rig->regions[i]));
    MUST(kvt_close(rig->store));
    for (int i = 0; i < 2; i++)
        MUST(cudaFree(rig->pools[i]));
    MUST(cudaFreeHost(rig->host));
    real_host_deinit(host);
}

/* `count` blocks of `size` bytes each, born in HBM of device 0. */
static void
blocks_put(struct rig *rig, uint32_t count, uint64_t size)
{
    rig->version++;
    for (uint32_t i = 0; i < count; i++)
        payload_fill(rig->host + i * size, size, i, rig->version);
    MUST(cudaMemcpy(rig->pools[0], rig->host, count * size, cudaMemcpyHostToDevice));
    for (uint32_t first = 0; first < count; first += BATCH) {
        struct payload_key names[BATCH];
        struct kvt_put puts[BATCH];
        struct kvt_result results[BATCH];
        kvt_ticket *ticket;

        for (uint32_t i = 0; i < BATCH; i++) {
            payload_key_make(&names[i], first + i);
            puts[i] = (struct kvt_put){.key = names[i].key,
                .source = rig->pools[0] + (first + i) * size,
                .length = size,
                .region = rig->regions[0],
                .flags = KVT_PUT_REPLACE,
                .tier = KVT_TIER_HBM};
        }
        MUST(kvt_put_submit(rig->store, rig->ns, puts, BATCH, KVT_MEMORY, NULL, &ticket));
        MUST(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER));
        MUST(kvt_ticket_results(ticket, KVT_STAGE_DONE, results, BATCH));
        for (uint32_t i = 0; i < BATCH; i++)
            MUST(results[i].status);
        kvt_ticket_free(ticket);
    }
}

static void
batch_submit(struct rig *rig, uint32_t first, uint64_t size, kvt_ticket **ticket_out)
{
    struct payload_key names[BATCH];
    struct kvt_get gets[BATCH];

    for (uint32_t i = 0; i < BATCH; i++) {
        payload_key_make(&names[i], first + i);
        gets[i] = (struct kvt_get){.key = names[i].key,
            .destination = rig->pools[1] + (first + i) * size,
            .capacity = size,
            .region = rig->regions[1]};
    }
    MUST(kvt_get_submit(rig->store, rig->ns, gets, BATCH, NULL, ticket_out));
}

/* All of them to memory of device 1, over poison; bytes a second. */
static double
blocks_get(struct rig *rig, uint32_t count, uint64_t size, uint32_t tier)
{
    kvt_ticket *tickets[POOL_BYTES / BATCH / (64 << 10)];
    uint32_t ticket_count = 0;
    double begin, seconds;

    MUST(cudaSetDevice(1));
    MUST(cudaMemset(rig->pools[1], POISON, count * size));
    MUST(cudaDeviceSynchronize());
    begin = seconds_now();
    for (uint32_t first = 0; first < count; first += BATCH)
        batch_submit(rig, first, size, &tickets[ticket_count++]);
    for (uint32_t i = 0; i < ticket_count; i++)
        MUST(kvt_ticket_wait(tickets[i], KVT_STAGE_DONE, KVT_FOREVER));
    seconds = seconds_now() - begin;
    for (uint32_t i = 0; i < ticket_count; i++) {
        struct kvt_result results[BATCH];

        MUST(kvt_ticket_results(tickets[i], KVT_STAGE_DONE, results, BATCH));
        for (uint32_t j = 0; j < BATCH; j++) {
            if (results[j].status != KVT_OK || results[j].tier != tier) {
                fprintf(stderr, "block %u: status %d, from tier %u\n", i * BATCH + j,
                    (int)results[j].status, results[j].tier);
                exit(1);
            }
        }
        kvt_ticket_free(tickets[i]);
    }
    MUST(cudaMemcpy(rig->host, rig->pools[1], count * size, cudaMemcpyDeviceToHost));
    for (uint32_t i = 0; i < count; i++) {
        uint64_t version = 0;

        if (!payload_is_right(rig->host + i * size, size, i, &version) || version != rig->version) {
            fprintf(stderr, "block %u has wrong bytes\n", i);
            exit(1);
        }
    }
    return (double)(count * size) / seconds;
}

/* One large copy between the two, as the driver makes it. */
static double
copy_rate(struct rig *rig)
{
    double begin, seconds;

    MUST(cudaSetDevice(1));
    MUST(cudaMemcpyPeer(rig->pools[1], 1, rig->pools[0], 0, POOL_BYTES));
    MUST(cudaDeviceSynchronize());
    begin = seconds_now();
    for (int i = 0; i < 8; i++)
        MUST(cudaMemcpyPeerAsync(rig->pools[1], 1, rig->pools[0], 0, POOL_BYTES, 0));
    MUST(cudaDeviceSynchronize());
    seconds = seconds_now() - begin;
    return 8.0 * POOL_BYTES / seconds;
}

static void
blocks_lower(struct rig *rig, uint32_t count)
{
    for (uint32_t first = 0; first < count; first += BATCH) {
        struct payload_key names[BATCH];
        struct kvt_key keys[BATCH];
        kvt_ticket *ticket;

        for (uint32_t i = 0; i < BATCH; i++) {
            payload_key_make(&names[i], first + i);
            keys[i] = names[i].key;
        }
        MUST(kvt_demote_submit(rig->store, rig->ns, keys, BATCH, KVT_TIER_HOST, NULL, &ticket));
        MUST(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER));
        kvt_ticket_free(ticket);
    }
}

static int
size_run(struct rig *rig, uint64_t size, uint32_t rounds)
{
    uint32_t count = (uint32_t)(POOL_BYTES / size);
    double copy = copy_rate(rig);

    for (uint32_t round = 0; round < rounds; round++) {
        uint64_t peers = stats_of(rig).get_peer_count;
        double peer, from_host;

        blocks_put(rig, count, size);
        peer = blocks_get(rig, count, size, KVT_TIER_HBM);
        if (stats_of(rig).get_peer_count - peers != count) {
            fprintf(stderr, "the blocks did not come from the peer\n");
            return 1;
        }
        blocks_lower(rig, count);
        from_host = blocks_get(rig, count, size, KVT_TIER_HOST);
        printf("{\"block_bytes\": %" PRIu64
               ", \"peer_gbs\": %.1f, \"host_gbs\": %.1f, \"peer_copy_gbs\": %.1f}\n",
            size, peer * 1e-9, from_host * 1e-9, copy * 1e-9);
    }
    return 0;
}

int
main(int argc, char **argv)
{
    uint32_t rounds = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : ROUNDS_DEFAULT;
    struct rig rig = {.store = NULL};
    struct real_host host;
    int can_reach = 0;
    uint32_t count;
    int code;

    if (device_cuda_ops.count(NULL, &count) != KVT_OK) {
        printf("skipped: %s\n", failure_last()->text);
        return 77;
    }
    if (count < 2 || cudaDeviceCanAccessPeer(&can_reach, 1, 0) != cudaSuccess || !can_reach) {
        printf("skipped: %u GPUs, and the second does not reach the first\n", count);
        return 77;
    }
    stop_on_proof();
    rig_open(&rig, &host);
    code = size_run(&rig, 1 << 20, rounds);
    if (code == 0)
        code = size_run(&rig, 64 << 10, rounds);
    rig_close(&rig, &host);
    printf("%s\n", code == 0 ? "passed" : "FAILED");
    return code;
}
