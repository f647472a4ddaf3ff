/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_readiness.c - puts, gets and leases in the order of the caller's own stream on a real GPU:
 * the host waits for nothing until the end of a round, then every byte is compared.
 *
 * A round: copies on the caller's stream fill the pages of new blocks, and the puts wait for them;
 * some blocks are demoted; gets bring them part after part into poisoned pages, behind work of the
 * caller's stream that still reads these; the stream waits for each part and copies it on; at last
 * it reads leased blocks in place, which nothing may reuse before.
 *
 * Usage: gpu_readiness [ROUNDS]. Exit code 0: all passed; 1: not; 77: there is no GPU, and why. The
 * store lies below /dev/shm, or KVT_TEST_TMP. No cmocka.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "device_cuda.h"
#include "failure.h"
#include "gpu_must.h"
#include "payload.h"
#include "stop_on_proof.h"
#include "store_host.h"
#include "stream_order.h"

enum {
    ROUNDS_DEFAULT = 100,
    COUNT = 24, /* Blocks of a round. */
    PARTS = 8,
    PART_BYTES = 5000, /* No whole number of pages. */
    BLOCK_BYTES = PARTS * PART_BYTES,
    ALL_BYTES = COUNT * BLOCK_BYTES,
    POISON = 0xA5,
    DELAY_BYTES = 256 << 20, /* Filled on the stream, so that it is behind the host. */
};

/* Memory of the device, each for a round's blocks, and of the host. */
struct rig {
    kvt_store *store;
    kvt_namespace ns;
    kvt_region region;
    cudaStream_t stream;
    cudaEvent_t event;
    uint8_t *pages; /* The region: what is put, and where gets go. */
    uint8_t *copied, *leased, *delay;
    uint8_t *host_in, *host_out; /* Pinned. */
    uint64_t not_ready_count, in_place_count;
};

static void
rig_open(struct rig *rig, struct real_host *host)
{
    struct kvt_options options = host_options_large();
    struct kvt_region_options region = {
        .struct_size = sizeof(region), .tier = KVT_TIER_HBM, .size = ALL_BYTES};

    host_options_add_hbm(&options);
    options.device_kind = KVT_DEVICE_CUDA;
    MUST(!real_host_init(host, &options));
    MUST(cudaStreamCreateWithFlags(&rig->stream, cudaStreamNonBlocking));
    MUST(cudaEventCreateWithFlags(&rig->event, cudaEventDisableTiming));
    MUST(cudaMalloc((void **)&rig->pages, ALL_BYTES));
    MUST(cudaMalloc((void **)&rig->copied, ALL_BYTES));
    MUST(cudaMalloc((void **)&rig->leased, ALL_BYTES));
    MUST(cudaMalloc((void **)&rig->delay, DELAY_BYTES));
    MUST(cudaHostAlloc((void **)&rig->host_in, ALL_BYTES, cudaHostAllocDefault));
    MUST(cudaHostAlloc((void **)&rig->host_out, ALL_BYTES, cudaHostAllocDefault));
    MUST(kvt_open(host->path, &host->options, &rig->store));
    MUST(kvt_namespace_open(rig->store, "readiness", "", 0, &rig->ns));
    region.address = rig->pages;
    MUST(kvt_region_register(rig->store, &region, &rig->region));
}

static void
rig_close(struct rig *rig, struct real_host *host)
{
    MUST(kvt_region_unregister(rig->store, rig->region));
    MUST(kvt_close(rig->store));
    MUST(cudaFreeHost(rig->host_out));
    MUST(cudaFreeHost(rig->host_in));
    MUST(cudaFree(rig->delay));
    MUST(cudaFree(rig->leased));
    MUST(cudaFree(rig->copied));
    MUST(cudaFree(rig->pages));
    MUST(cudaEventDestroy(rig->event));
    MUST(cudaStreamDestroy(rig->stream));
    real_host_deinit(host);
}

/* The caller's stream has work in front of what comes now, and then the event. */
static void
stream_delay(struct rig *rig)
{
    for (int i = 0; i < 8; i++)
        MUST(cudaMemsetAsync(rig->delay, i, DELAY_BYTES, rig->stream));
}

static uint64_t
number_of(uint64_t round, uint32_t i)
{
    return round * COUNT + i;
}

/* --- A round ---------------------------------------------------------------------------------- */

/* The pages are filled late, and the puts know it. */
static void
blocks_put(struct rig *rig, uint64_t round)
{
    struct payload_key names[COUNT];
    struct kvt_put puts[COUNT];
    struct kvt_result results[COUNT];
    kvt_ticket *ticket;

    MUST(cudaMemset(rig->pages, POISON, ALL_BYTES));
    stream_delay(rig);
    for (uint32_t i = 0; i < COUNT; i++) {
        payload_key_make(&names[i], number_of(round, i));
        payload_fill(rig->host_in + i * BLOCK_BYTES, BLOCK_BYTES, number_of(round, i), 1);
        puts[i] = (struct kvt_put){.key = names[i].key,
            .source = rig->pages + i * BLOCK_BYTES,
            .length = BLOCK_BYTES,
            .region = rig->region,
            .part_count = PARTS,
            .tier = i % 3 == 0 ? KVT_TIER_HOST : KVT_TIER_HBM};
    }
    MUST(cudaMemcpyAsync(rig->pages, rig->host_in, ALL_BYTES, cudaMemcpyHostToDevice, rig->stream));
    MUST(cudaEventRecord(rig->event, rig->stream));
    MUST(blocks_put_behind(rig->store, rig->ns, puts, COUNT, rig->event, &ticket));
    /* The source may be reused after stage 1. */
    MUST(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER));
    MUST(cudaMemsetAsync(rig->pages, POISON, ALL_BYTES, rig->stream));
    MUST(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, KVT_FOREVER));
    MUST(kvt_ticket_results(ticket, KVT_STAGE_DURABLE, results, COUNT));
    for (uint32_t i = 0; i < COUNT; i++)
        MUST(results[i].status);
    kvt_ticket_free(ticket);
}

/* Every third block is on NVMe only, the others where they were put. */
static void
blocks_demote(struct rig *rig, uint64_t round)
{
    for (uint32_t i = 1; i < COUNT; i += 3) {
        struct payload_key name;
        struct kvt_result result;
        kvt_ticket *ticket;

        payload_key_make(&name, number_of(round, i));
        MUST(kvt_demote_submit(rig->store, rig->ns, &name.key, 1, KVT_TIER_NVME, NULL, &ticket));
        MUST(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER));
        MUST(kvt_ticket_results(ticket, KVT_STAGE_DONE, &result, 1));
        MUST(result.status);
        kvt_ticket_free(ticket);
    }
}

/* The destinations are still read by the caller's stream when the gets are submitted; what the
 * stream does with a part comes behind its copy. */
static void
blocks_get(struct rig *rig, uint64_t round)
{
    struct kvt_submit submit = {.wait_event = rig->event};
    struct payload_key names[COUNT];
    struct kvt_get gets[COUNT];
    kvt_ticket *ticket;

    for (uint32_t i = 0; i < COUNT; i++) {
        payload_key_make(&names[i], number_of(round, i));
        gets[i] = (struct kvt_get){.key = names[i].key,
            .destination = rig->pages + i * BLOCK_BYTES,
            .capacity = BLOCK_BYTES,
            .region = rig->region,
            .flags = KVT_GET_BY_PART,
            .part_count = PARTS};
    }
    stream_delay(rig);
    MUST(
        cudaMemcpyAsync(rig->leased, rig->pages, ALL_BYTES, cudaMemcpyDeviceToDevice, rig->stream));
    MUST(cudaEventRecord(rig->event, rig->stream));
    MUST(kvt_get_submit(rig->store, rig->ns, gets, COUNT, &submit, &ticket));
    for (uint32_t part = 0; part < PARTS; part++) {
        enum kvt_status status = kvt_ticket_stream_wait(ticket, part, 0, rig->stream);

        rig->not_ready_count += status == KVT_NOT_READY;
        if (status == KVT_NOT_READY)
            status = layer_await(ticket, part, rig->stream);
        MUST(status);
        MUST(cudaMemcpy2DAsync(rig->copied + part * PART_BYTES, BLOCK_BYTES,
            rig->pages + part * PART_BYTES, BLOCK_BYTES, PART_BYTES, COUNT,
            cudaMemcpyDeviceToDevice, rig->stream));
    }
    /* Freed while copies may still run. */
    kvt_ticket_free(ticket);
    MUST(cudaMemcpyAsync(
        rig->host_out, rig->leased, ALL_BYTES, cudaMemcpyDeviceToHost, rig->stream));
    MUST(cudaStreamSynchronize(rig->stream));
    for (uint32_t i = 0; i < ALL_BYTES; i++)
        MUST(rig->host_out[i] != POISON);
}

static void
blocks_compare(struct rig *rig, uint64_t round, const uint8_t *memory, uint32_t count)
{
    uint64_t version;

    MUST(cudaMemcpyAsync(rig->host_out, memory, ALL_BYTES, cudaMemcpyDeviceToHost, rig->stream));
    MUST(cudaStreamSynchronize(rig->stream));
    for (uint32_t i = 0; i < count; i++)
        MUST(!payload_is_right(
            rig->host_out + i * BLOCK_BYTES, BLOCK_BYTES, number_of(round, i), &version));
}

static void
read_launch(void *context, const void *address, uint64_t length)
{
    struct rig *rig = context;

    MUST(cudaMemcpyAsync(rig->leased + rig->in_place_count++ % COUNT * BLOCK_BYTES, address, length,
        cudaMemcpyDeviceToDevice, rig->stream));
}

/* Blocks that the gets raised into HBM are read there while the next ones push them out. */
static void
blocks_lease(struct rig *rig, uint64_t round)
{
    const struct kernel kernel = {.launch = read_launch, .context = rig};
    struct kvt_prefetch how = {.struct_size = sizeof(how), .tier = KVT_TIER_HBM};
    struct payload_key names[COUNT];
    struct kvt_key keys[COUNT];
    kvt_ticket *ticket;
    kvt_lease lease;
    uint32_t used;

    for (uint32_t i = 0; i < COUNT; i++) {
        payload_key_make(&names[i], number_of(round, i));
        keys[i] = names[i].key;
    }
    MUST(kvt_prefetch_submit(rig->store, rig->ns, keys, COUNT, &how, NULL, &ticket));
    MUST(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER));
    kvt_ticket_free(ticket);
    MUST(kvt_lookup(rig->store, rig->ns, keys, COUNT, NULL, NULL, &lease));
    rig->in_place_count -= rig->in_place_count % COUNT;
    stream_delay(rig);
    MUST(lease_read_in_place(rig->store, lease, COUNT, rig->stream, &kernel, &used));
    MUST(used != COUNT);
    /* The stream has only begun: the blocks are given up, as far as the lease lets them go. */
    MUST(kvt_delete_submit(rig->store, rig->ns, keys, COUNT, NULL, &ticket));
    MUST(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER));
    kvt_ticket_free(ticket);
}

int
main(int argc, char **argv)
{
    uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : ROUNDS_DEFAULT;
    static struct real_host host;
    static struct rig rig;
    uint32_t count;

    if (device_cuda_ops.count(NULL, &count) != KVT_OK) {
        printf("skipped: %s\n", failure_last()->text);
        return 77;
    }
    stop_on_proof();
    rig_open(&rig, &host);
    for (uint64_t round = 0; round < rounds; round++) {
        blocks_put(&rig, round);
        blocks_demote(&rig, round);
        blocks_get(&rig, round);
        blocks_compare(&rig, round, rig.copied, COUNT);
        blocks_lease(&rig, round);
        if (round > 0 && round % 2 == 0)
            continue; /* The next round's puts come while the lease is read. */
        blocks_compare(&rig, round, rig.leased, COUNT);
    }
    MUST(cudaStreamSynchronize(rig.stream));
    rig_close(&rig, &host);
    printf("passed: %" PRIu64 " rounds of %d blocks of %d parts; %" PRIu64
           " parts were not ready when they were asked for first\n",
        rounds, COUNT, PARTS, rig.not_ready_count);
    return 0;
}
