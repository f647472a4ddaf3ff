/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_sharing.c - HBM of a real GPU in two processes: one owns the store, the other reads blocks
 * where they lie, by the library's copies and by its own; events put their streams in order, both
 * ways; then each of them is killed, and the other goes on.
 *
 * A round: the owner's stream writes a block anew, late, behind the reader's last copy of it; the
 * reader's stream copies it behind the owner's event. The owner's host waits for neither device.
 *
 * Usage: gpu_sharing [ROUNDS [write]]. With `write` a process of its own tries to write to the
 * imported memory, at last, and it is said what came of it (its context does not survive a
 * refusal). Exit code 0: all passed; 1: not; 77: there is no GPU, or it cannot be shared, and why.
 * Nothing takes longer than WATCHDOG_S. The stores lie below /dev/shm, or KVT_TEST_TMP. No cmocka.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#include "device_cuda.h"
#include "failure.h"
#include "gpu_must.h"
#include "gpu_processes.h"
#include "payload.h"
#include "stop_on_proof.h"
#include "store_host.h"

enum {
    ROUNDS_DEFAULT = 100,
    COUNT = 16,
    BLOCK_BYTES = 200000,
    ALL_BYTES = COUNT * BLOCK_BYTES,
    HBM_BYTES = 512 << 20,
    DELAY_BYTES = 256 << 20, /* Filled on a stream, so that it is behind the host. */
    SPEED_BYTES = 256 << 20,
    SPEED_ROUNDS = 40,
    LATE = 3, /* The block that an owner writes anew for an hour. */
};

static const uint64_t BOUND_NS = UINT64_C(2000) * 1000 * 1000;

/* --- 1. An owner ------------------------------------------------------------------------------ */

struct owner {
    struct real_host host;
    kvt_store *store;
    kvt_namespace ns;
    kvt_region region;
    cudaStream_t stream;
    uint8_t *pages, *delay; /* Of the device. */
    uint8_t *staging;       /* Pinned. */
    kvt_lease lease;
    kvt_shared_event *event;
};

static struct kvt_side
owner_side(const struct owner *owner)
{
    return (struct kvt_side){.store = owner->store};
}

/* KVT_E_UNSUPPORTED: the device cannot be shared. */
static enum kvt_status
owner_open(struct owner *owner)
{
    struct kvt_options options = host_options_large();
    struct kvt_region_options region = {
        .struct_size = sizeof(region), .tier = KVT_TIER_HBM, .size = ALL_BYTES};
    enum kvt_status status;

    options.hbm_capacity_bytes = HBM_BYTES;
    options.device_kind = KVT_DEVICE_CUDA;
    options.flags = KVT_OPEN_SHARE_HBM;
    MUST(!real_host_init(&owner->host, &options));
    status = kvt_open(owner->host.path, &owner->host.options, &owner->store);
    if (status == KVT_E_UNSUPPORTED) {
        real_host_deinit(&owner->host);
        return status;
    }
    MUST(status);
    MUST(cudaStreamCreateWithFlags(&owner->stream, cudaStreamNonBlocking));
    MUST(cudaMalloc((void **)&owner->pages, ALL_BYTES));
    MUST(cudaMalloc((void **)&owner->delay, DELAY_BYTES));
    MUST(cudaHostAlloc((void **)&owner->staging, ALL_BYTES, cudaHostAllocDefault));
    MUST(kvt_namespace_open(owner->store, "sharing", "", 0, &owner->ns));
    region.address = owner->pages;
    MUST(kvt_region_register(owner->store, &region, &owner->region));
    return KVT_OK;
}

/* Blocks of version 1 in HBM, all leased. */
static void
owner_fill(struct owner *owner)
{
    struct payload_key names[COUNT];
    struct kvt_key keys[COUNT];
    struct kvt_put puts[COUNT];
    struct kvt_result results[COUNT];
    kvt_ticket *ticket;

    for (uint32_t i = 0; i < COUNT; i++) {
        payload_key_make(&names[i], i);
        keys[i] = names[i].key;
        payload_fill(owner->staging + i * BLOCK_BYTES, BLOCK_BYTES, i, 1);
        puts[i] = (struct kvt_put){.key = keys[i],
            .source = owner->pages + i * BLOCK_BYTES,
            .length = BLOCK_BYTES,
            .region = owner->region,
            .tier = KVT_TIER_HBM};
    }
    MUST(cudaMemcpy(owner->pages, owner->staging, ALL_BYTES, cudaMemcpyHostToDevice));
    MUST(kvt_put_submit(owner->store, owner->ns, puts, COUNT, KVT_MEMORY, NULL, &ticket));
    MUST(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER));
    MUST(kvt_ticket_results(ticket, KVT_STAGE_DONE, results, COUNT));
    for (uint32_t i = 0; i < COUNT; i++)
        MUST(results[i].status);
    kvt_ticket_free(ticket);
    MUST(kvt_lookup(owner->store, owner->ns, keys, COUNT, NULL, NULL, &owner->lease));
}

static struct kvt_locator
owner_locate(struct owner *owner, uint64_t number)
{
    struct kvt_locator locator;

    MUST(kvt_lease_export(owner->store, owner->lease, (uint32_t)number, KVT_TIER_HBM, &locator));
    return locator;
}

static void
owner_close(struct owner *owner)
{
    MUST(cudaStreamSynchronize(owner->stream));
    kvt_lease_release(owner->store, owner->lease);
    MUST(kvt_shared_event_close(owner->event));
    MUST(kvt_region_unregister(owner->store, owner->region));
    MUST(kvt_close(owner->store));
    MUST(cudaFreeHost(owner->staging));
    MUST(cudaFree(owner->delay));
    MUST(cudaFree(owner->pages));
    MUST(cudaStreamDestroy(owner->stream));
    real_host_deinit(&owner->host);
}

/* The block's bytes become those of the version, when the stream comes to it. */
static void
owner_write(struct owner *owner, uint64_t number, uint64_t version)
{
    /* The last version may still be on its way from its place. */
    uint8_t *staged = owner->staging + version % COUNT * BLOCK_BYTES;
    uint8_t *page = owner->pages + version % COUNT * BLOCK_BYTES;
    const void *address;
    uint64_t length;

    payload_fill(staged, BLOCK_BYTES, number, version);
    MUST(kvt_lease_address(
        owner->store, owner->lease, (uint32_t)number, KVT_TIER_HBM, &address, &length));
    MUST(cudaMemcpyAsync(page, staged, BLOCK_BYTES, cudaMemcpyHostToDevice, owner->stream));
    MUST(cudaMemcpyAsync(
        (void *)(uintptr_t)address, page, length, cudaMemcpyDeviceToDevice, owner->stream));
}

static void CUDART_CB
an_hour(void *context)
{
    (void)context;
    (void)sleep(3600);
}

/* --- 2. A reader ------------------------------------------------------------------------------ */

struct reader {
    kvt_import *import;
    kvt_shared_event *theirs, *own;
    cudaStream_t stream;
    uint8_t *copied, *early; /* Of the device. */
    uint8_t *host;           /* Pinned. */
    uint64_t early_count;    /* Reads without waiting that found another version. */
};

static void
reader_open(struct reader *reader, const struct message *message)
{
    uint32_t device;

    MUST(kvt_import_open(&message->share, message->descriptor, &reader->import));
    MUST(close(message->descriptor));
    MUST(kvt_import_device(reader->import, &device));
    MUST(cudaSetDevice((int)device));
    MUST(cudaStreamCreateWithFlags(&reader->stream, cudaStreamNonBlocking));
    MUST(cudaMalloc((void **)&reader->copied, BLOCK_BYTES));
    MUST(cudaMalloc((void **)&reader->early, BLOCK_BYTES));
    MUST(cudaHostAlloc((void **)&reader->host, BLOCK_BYTES, cudaHostAllocDefault));
}

static void
reader_close(struct reader *reader)
{
    MUST(cudaStreamSynchronize(reader->stream));
    MUST(kvt_shared_event_close(reader->theirs));
    MUST(kvt_shared_event_close(reader->own));
    MUST(kvt_import_close(reader->import));
    MUST(cudaFreeHost(reader->host));
    MUST(cudaFree(reader->early));
    MUST(cudaFree(reader->copied));
    MUST(cudaStreamDestroy(reader->stream));
}

static bool
is_version(const uint8_t *bytes, uint64_t number, uint64_t version)
{
    uint64_t found = 0;

    return payload_is_right(bytes, BLOCK_BYTES, number, &found) && found == version;
}

/* By the library, to the host. 0: it is the version. */
static int
reader_read(
    struct reader *reader, const struct kvt_locator *locator, uint64_t number, uint64_t version)
{
    MUST(kvt_import_read(reader->import, locator, reader->host, BLOCK_BYTES));
    return !is_version(reader->host, number, version);
}

/* One copy that does not wait, one behind the owner's event; and then the reader's is recorded. */
static int
reader_copy(struct reader *reader, const struct kvt_locator *locator)
{
    const void *address;

    MUST(kvt_import_address(reader->import, locator, &address));
    MUST(cudaMemcpyAsync(
        reader->early, address, BLOCK_BYTES, cudaMemcpyDeviceToDevice, reader->stream));
    MUST(kvt_shared_event_stream_wait(reader->theirs, reader->stream));
    MUST(cudaMemcpyAsync(
        reader->copied, address, BLOCK_BYTES, cudaMemcpyDeviceToDevice, reader->stream));
    return (int)kvt_shared_event_record(reader->own, reader->stream);
}

static bool
device_is_version(struct reader *reader, const uint8_t *memory, uint64_t number, uint64_t version)
{
    MUST(
        cudaMemcpyAsync(reader->host, memory, BLOCK_BYTES, cudaMemcpyDeviceToHost, reader->stream));
    MUST(cudaStreamSynchronize(reader->stream));
    return is_version(reader->host, number, version);
}

/* GB/s read. */
static double
copies_time(struct reader *reader, uint8_t *target, const void *source)
{
    uint64_t begin_ns;

    MUST(cudaMemcpyAsync(target, source, SPEED_BYTES, cudaMemcpyDeviceToDevice, reader->stream));
    MUST(cudaStreamSynchronize(reader->stream));
    begin_ns = now_ns();
    for (int i = 0; i < SPEED_ROUNDS; i++)
        MUST(
            cudaMemcpyAsync(target, source, SPEED_BYTES, cudaMemcpyDeviceToDevice, reader->stream));
    MUST(cudaStreamSynchronize(reader->stream));
    return (double)SPEED_BYTES * SPEED_ROUNDS / (double)(now_ns() - begin_ns);
}

static void
reader_speed(struct reader *reader, struct message *message)
{
    struct kvt_locator all = message->locator;
    uint8_t *target, *source;
    const void *address;

    /* Of a locator only the bounds matter here. */
    all.offset = 0;
    all.length = SPEED_BYTES;
    MUST(kvt_import_address(reader->import, &all, &address));
    MUST(cudaMalloc((void **)&target, SPEED_BYTES));
    MUST(cudaMalloc((void **)&source, SPEED_BYTES));
    message->speeds[0] = copies_time(reader, target, address);
    message->speeds[1] = copies_time(reader, target, source);
    MUST(cudaFree(source));
    MUST(cudaFree(target));
}

/* 0: it was written. */
static int
reader_write(struct reader *reader, const struct kvt_locator *locator)
{
    const void *address;
    cudaError_t error;

    MUST(kvt_import_address(reader->import, locator, &address));
    error = cudaMemsetAsync((void *)(uintptr_t)address, 0, 64, reader->stream);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(reader->stream);
    return (int)error;
}

/* --- 3. What the other process does ----------------------------------------------------------- */

static struct owner peer_owner;
static struct reader peer_reader;

static void
owner_do(struct message *message)
{
    struct owner *owner = &peer_owner;

    if (message->what == OWN) {
        MUST(owner_open(owner));
        owner_fill(owner);
        MUST(kvt_hbm_export(owner->store, 0, &message->share, &message->descriptor));
        memcpy(message->path, owner->host.path, sizeof(message->path));
    } else if (message->what == LOCATE) {
        message->locator = owner_locate(owner, message->number);
    } else { /* RECORD */
        MUST(cudaLaunchHostFunc(owner->stream, an_hour, NULL));
        owner_write(owner, message->number, message->version);
        MUST(kvt_shared_event_record(owner->event, owner->stream));
    }
}

static void
reader_do(struct message *message)
{
    struct reader *reader = &peer_reader;

    if (message->what == HBM) {
        reader_open(reader, message);
        message->descriptor = -1;
    } else if (message->what == READ) {
        message->status = reader_read(reader, &message->locator, message->number, message->version);
    } else if (message->what == COPY) {
        message->status = reader_copy(reader, &message->locator);
    } else if (message->what == CHECK) {
        message->status =
            !device_is_version(reader, reader->copied, message->number, message->version);
        reader->early_count +=
            !device_is_version(reader, reader->early, message->number, message->version);
        message->number = reader->early_count;
    } else if (message->what == SPEED) {
        reader_speed(reader, message);
    } else if (message->what == WRITE) {
        message->status = reader_write(reader, &message->locator);
    } else { /* STUCK */
        MUST(cudaLaunchHostFunc(reader->stream, an_hour, NULL));
        MUST(kvt_shared_event_record(reader->own, reader->stream));
    }
}

static void
event_do(struct message *message)
{
    bool is_owner = peer_owner.store != NULL;
    const struct kvt_side side = {.store = peer_owner.store, .import = peer_reader.import};

    if (message->what == EVENT) {
        MUST(kvt_shared_event_open(
            &side, &message->share, message->descriptor, &peer_reader.theirs));
        MUST(close(message->descriptor));
        message->descriptor = -1;
        return;
    }
    MUST(kvt_shared_event_create(&side, &message->share, &message->descriptor,
        is_owner ? &peer_owner.event : &peer_reader.own));
}

static int
peer_main(void)
{
    struct message message;

    while (message_receive(PEER_SOCKET, &message)) {
        message.status = 0;
        if (message.what == EVENT || message.what == MAKE)
            event_do(&message);
        else if (message.what == OWN || message.what == LOCATE || message.what == RECORD)
            owner_do(&message);
        else if (message.what == CLOSE && peer_owner.store != NULL)
            owner_close(&peer_owner);
        else if (message.what == CLOSE)
            reader_close(&peer_reader);
        else
            reader_do(&message);
        if (!message_send(PEER_SOCKET, &message))
            return 1;
    }
    return 0;
}

/* --- 4. The checks ---------------------------------------------------------------------------- */

static struct peer
reader_start(struct owner *owner)
{
    struct peer peer = peer_start();
    struct message message = message_of(HBM, 0, 0);

    MUST(kvt_hbm_export(owner->store, 0, &message.share, &message.descriptor));
    MUST(ask(&peer, message).status);
    return peer;
}

static struct message
about_block(struct owner *owner, enum what what, uint64_t number, uint64_t version)
{
    struct message message = message_of(what, number, version);

    message.locator = owner_locate(owner, number);
    return message;
}

static kvt_shared_event *
event_get(const struct peer *peer, const struct kvt_side *side)
{
    struct message message = ask(peer, message_of(MAKE, 0, 0));
    kvt_shared_event *event;

    MUST(message.status);
    MUST(kvt_shared_event_open(side, &message.share, message.descriptor, &event));
    MUST(close(message.descriptor));
    return event;
}

static void
rounds_run(struct owner *owner, uint64_t rounds)
{
    const struct kvt_side side = owner_side(owner);
    struct peer peer = reader_start(owner);
    kvt_shared_event *finished = event_get(&peer, &side);
    struct message message = message_of(EVENT, 0, 0);

    for (uint64_t i = 0; i < COUNT; i++)
        MUST(ask(&peer, about_block(owner, READ, i, 1)).status);
    MUST(kvt_shared_event_create(&side, &message.share, &message.descriptor, &owner->event));
    MUST(ask(&peer, message).status);
    for (uint64_t round = 0; round < rounds; round++) {
        /* The same block again and again, then the next one. */
        uint64_t number = round / 8 % COUNT, version = 2 + round;

        /* Nothing is written before the reader's stream is past its last copy. */
        MUST(kvt_shared_event_stream_wait(finished, owner->stream));
        for (int i = 0; i < 4; i++)
            MUST(cudaMemsetAsync(owner->delay, i, DELAY_BYTES, owner->stream));
        owner_write(owner, number, version);
        MUST(kvt_shared_event_record(owner->event, owner->stream));
        if (round > 0)
            MUST(ask(&peer, message_of(CHECK, (round - 1) / 8 % COUNT, version - 1)).status);
        MUST(ask(&peer, about_block(owner, COPY, number, version)).status);
    }
    message = ask(&peer, message_of(CHECK, (rounds - 1) / 8 % COUNT, rounds + 1));
    MUST(message.status);
    printf("%" PRIu64 " rounds in order; %" PRIu64 " reads that did not wait found other bytes\n",
        rounds, message.number);
    message = ask(&peer, about_block(owner, SPEED, 0, 0));
    printf("copied within the device: %.0f GB/s from imported memory, %.0f GB/s from its own\n",
        message.speeds[0], message.speeds[1]);
    peer_close(&peer);
    MUST(kvt_shared_event_close(finished));
    /* Its maker's readers are gone: that changes nothing for it. */
    MUST(kvt_shared_event_record(owner->event, owner->stream));
    MUST(kvt_shared_event_wait(owner->event, KVT_FOREVER));
}

static void
a_reader_is_killed(struct owner *owner, uint64_t round)
{
    const struct kvt_side side = owner_side(owner);
    struct peer peer = reader_start(owner);
    kvt_shared_event *finished = event_get(&peer, &side);
    uint64_t begin_ns;

    MUST(ask(&peer, message_of(STUCK, 0, 0)).status);
    MUST(kvt_shared_event_wait(finished, 1000000) != KVT_LATE);
    MUST(kvt_shared_event_stream_wait(finished, owner->stream));
    owner_write(owner, round, 1000 + round);
    begin_ns = now_ns();
    peer_kill(&peer);
    MUST(cudaStreamSynchronize(owner->stream));
    MUST(now_ns() - begin_ns > BOUND_NS);
    printf("a killed reader was noticed after %.1f ms\n", (double)(now_ns() - begin_ns) / 1e6);
    MUST(kvt_shared_event_wait(finished, KVT_FOREVER) != KVT_CANCELLED);
    MUST(kvt_shared_event_stream_wait(finished, owner->stream) != KVT_CANCELLED);
    MUST(kvt_shared_event_close(finished));
    /* Another reader finds what was written meanwhile. */
    peer = reader_start(owner);
    MUST(ask(&peer, about_block(owner, READ, round, 1000 + round)).status);
    peer_close(&peer);
}

/* Here is the reader. */
static void
an_owner_dies(bool is_killed)
{
    static struct reader reader;
    static struct real_host gone;
    struct peer peer = peer_start();
    struct message message = ask(&peer, message_of(OWN, 0, 0));
    struct kvt_locator locators[COUNT];
    struct kvt_side side = {0};
    uint64_t begin_ns;

    MUST(message.status);
    reader = (struct reader){0};
    reader_open(&reader, &message);
    side.import = reader.import;
    reader.theirs = event_get(&peer, &side);
    for (uint64_t i = 0; i < COUNT; i++) {
        locators[i] = ask(&peer, message_of(LOCATE, i, 0)).locator;
        MUST(reader_read(&reader, &locators[i], i, 1));
    }
    if (is_killed) {
        MUST(ask(&peer, message_of(RECORD, LATE, 2)).status);
        MUST(kvt_shared_event_wait(reader.theirs, 1000000) != KVT_LATE);
        MUST(kvt_shared_event_stream_wait(reader.theirs, reader.stream));
        begin_ns = now_ns();
        peer_kill(&peer);
        memcpy(gone.path, message.path, sizeof(gone.path));
        real_host_deinit(&gone);
        MUST(cudaStreamSynchronize(reader.stream));
        MUST(now_ns() - begin_ns > BOUND_NS);
        printf("a killed owner was noticed after %.1f ms\n", (double)(now_ns() - begin_ns) / 1e6);
        MUST(kvt_shared_event_wait(reader.theirs, KVT_FOREVER) != KVT_CANCELLED);
        MUST(kvt_shared_event_stream_wait(reader.theirs, reader.stream) != KVT_CANCELLED);
    } else {
        peer_close(&peer);
        MUST(kvt_shared_event_wait(reader.theirs, KVT_FOREVER));
    }
    for (int pass = 0; pass < 3; pass++) {
        for (uint64_t i = 0; i < COUNT; i++) {
            if (i != LATE || !is_killed)
                MUST(reader_read(&reader, &locators[i], i, 1));
        }
    }
    reader_close(&reader);
}

static void
a_reader_writes(struct owner *owner)
{
    struct peer peer = reader_start(owner);
    struct message message = ask(&peer, about_block(owner, WRITE, 0, 0));

    printf("a write to imported memory: %s\n", message.status == 0
                                                   ? "done (it can be written)"
                                                   : cudaGetErrorName((cudaError_t)message.status));
    peer_kill(&peer);
}

int
main(int argc, char **argv)
{
    static struct owner owner;
    uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : ROUNDS_DEFAULT;
    uint32_t count;

    watchdog_begin();
    stop_on_proof();
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 2 && strcmp(argv[1], "--peer") == 0)
        return peer_main();
    if (device_cuda_ops.count(NULL, &count) != KVT_OK) {
        printf("skipped: %s\n", failure_last()->text);
        return 77;
    }
    if (owner_open(&owner) == KVT_E_UNSUPPORTED) {
        printf("skipped: %s\n", failure_last()->text);
        return 77;
    }
    owner_fill(&owner);
    rounds_run(&owner, rounds == 0 ? 1 : rounds);
    for (uint64_t i = 0; i < 3; i++)
        a_reader_is_killed(&owner, i);
    an_owner_dies(true);
    an_owner_dies(false);
    if (argc > 2 && strcmp(argv[2], "write") == 0)
        a_reader_writes(&owner);
    owner_close(&owner);
    printf("passed: %" PRIu64 " rounds, %d blocks\n", rounds, COUNT);
    return 0;
}
