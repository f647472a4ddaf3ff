/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_hold.c - streams that wait for gets which have not begun, on a real GPU: whatever ends the
 * gets lets them go on, what they find is what the statuses say, and no call of the host that waits
 * for all streams stands in the way of the copies.
 *
 * A gate, a function of the host on a stream of its own, holds the gets back until the program
 * opens it: so the hold is always there first. Every hold has a deadline: a deadlock with the host
 * ends there, as KVT_LATE, and is named. What hangs all the same is ended by an alarm.
 *
 * Usage: gpu_hold [ROUNDS [MS]]. MS: how long what takes milliseconds may take before it counts as
 * stuck (1000; under compute-sanitizer, which lets one call of a process wait for another, 30000).
 * Exit code 0: all passed; 1: not; 77: there is no GPU, and why. The store lies below /dev/shm, or
 * KVT_TEST_TMP. No cmocka.
 */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#include "device_cuda.h"
#include "failure.h"
#include "gpu_must.h"
#include "kvtier/kvtier_unstable.h"
#include "payload.h"
#include "stop_on_proof.h"
#include "store_host.h"

enum {
    ROUNDS_DEFAULT = 100,
    PATIENCE_MS_DEFAULT = 1000,
    ABORT_ROUNDS = 10,
    COUNT = 24, /* Blocks of a round. */
    PARTS = 8,
    BLOCK_BYTES = PARTS * 5000, /* No whole number of pages. */
    ALL_BYTES = COUNT * BLOCK_BYTES,
    POISON = 0xA5,
    CROWD = 32,    /* Streams that wait at once: more than the hardware has queues. */
    CROWD_FEW = 4, /* And no more. */
    SCRATCH_BYTES = 1 << 16,
    HANG_SECONDS = 60,
};

#define MS UINT64_C(1000000)
#define DEADLINE_NS (5000 * MS)

/* Memory of the device, each for a round's blocks, and of the host. */
struct rig {
    kvt_store *store;
    kvt_namespace ns;
    kvt_region region;
    cudaStream_t stream, gate_stream;
    cudaStream_t crowd[CROWD];
    cudaEvent_t event;
    uint8_t *pages;            /* The region: where gets go. */
    uint8_t *copied, *scratch; /* What the stream found there, ... */
    int32_t *statuses;         /* ... and which statuses. */
    uint8_t *host_out;         /* Pinned: both. */
    int32_t *host_statuses;
    struct payload_key names[COUNT];
    struct kvt_get gets[COUNT];
    kvt_ticket *ticket;
    kvt_hold *hold;
    _Atomic bool is_open;
    uint32_t failure_count, waiting_count;
    uint64_t patience_ns;
};

static struct rig rig;
static const char *_Atomic phase = "opening";

/* --- 1. Time ---------------------------------------------------------------------------------- */

static uint64_t
now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 * MS + (uint64_t)now.tv_nsec;
}

static void
rest(uint64_t duration_ns)
{
    const struct timespec duration = {.tv_sec = (time_t)(duration_ns / (1000 * MS)),
        .tv_nsec = (long)(duration_ns % (1000 * MS))};

    (void)nanosleep(&duration, NULL);
}

static void
alarm_heard(int signal)
{
    const char *what = atomic_load(&phase);
    static const char text[] = ": hangs\n";

    (void)signal;
    if (write(STDERR_FILENO, what, strlen(what)) < 0 ||
        write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
        _exit(2);
    _exit(1);
}

static void
phase_begin(const char *name)
{
    atomic_store(&phase, name);
    (void)alarm(HANG_SECONDS);
}

static void
complain(const char *what)
{
    fprintf(stderr, "%s: %s\n", atomic_load(&phase), what);
    rig.failure_count++;
}

/* --- 2. The store ----------------------------------------------------------------------------- */

static void
store_open(struct real_host *host)
{
    struct kvt_region_options about = {
        .struct_size = sizeof(about), .tier = KVT_TIER_HBM, .size = ALL_BYTES};

    MUST(kvt_open(host->path, &host->options, &rig.store));
    MUST(kvt_namespace_open(rig.store, "holds", "", 0, &rig.ns));
    about.address = rig.pages;
    MUST(kvt_region_register(rig.store, &about, &rig.region));
}

static void
rig_open(struct real_host *host)
{
    struct kvt_options options = host_options_large();

    host_options_add_hbm(&options);
    options.device_kind = KVT_DEVICE_CUDA;
    MUST(!real_host_init(host, &options));
    MUST(cudaStreamCreateWithFlags(&rig.stream, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&rig.gate_stream, cudaStreamNonBlocking));
    for (uint32_t i = 0; i < CROWD; i++)
        MUST(cudaStreamCreateWithFlags(&rig.crowd[i], cudaStreamNonBlocking));
    MUST(cudaEventCreateWithFlags(&rig.event, cudaEventDisableTiming));
    MUST(cudaMalloc((void **)&rig.pages, ALL_BYTES));
    MUST(cudaMalloc((void **)&rig.copied, ALL_BYTES));
    MUST(cudaMalloc((void **)&rig.scratch, SCRATCH_BYTES));
    MUST(cudaMalloc((void **)&rig.statuses, COUNT * sizeof(*rig.statuses)));
    MUST(cudaHostAlloc((void **)&rig.host_out, ALL_BYTES, cudaHostAllocDefault));
    MUST(cudaHostAlloc(
        (void **)&rig.host_statuses, COUNT * sizeof(*rig.host_statuses), cudaHostAllocDefault));
    store_open(host);
}

static void
rig_close(struct real_host *host)
{
    MUST(kvt_region_unregister(rig.store, rig.region));
    MUST(kvt_close(rig.store));
    MUST(cudaFreeHost(rig.host_statuses));
    MUST(cudaFreeHost(rig.host_out));
    MUST(cudaFree(rig.statuses));
    MUST(cudaFree(rig.copied));
    MUST(cudaFree(rig.scratch));
    MUST(cudaFree(rig.pages));
    MUST(cudaEventDestroy(rig.event));
    for (uint32_t i = 0; i < CROWD; i++)
        MUST(cudaStreamDestroy(rig.crowd[i]));
    MUST(cudaStreamDestroy(rig.gate_stream));
    MUST(cudaStreamDestroy(rig.stream));
    real_host_deinit(host);
}

static void
blocks_put(void)
{
    static uint8_t bytes[COUNT][BLOCK_BYTES];
    struct kvt_put puts[COUNT];
    kvt_ticket *ticket;

    for (uint32_t i = 0; i < COUNT; i++) {
        payload_key_make(&rig.names[i], i);
        payload_fill(bytes[i], BLOCK_BYTES, i, 1);
        puts[i] = (struct kvt_put){.key = rig.names[i].key,
            .source = bytes[i],
            .length = BLOCK_BYTES,
            .part_count = PARTS};
    }
    MUST(kvt_put_submit(rig.store, rig.ns, puts, COUNT, KVT_SYNC, NULL, &ticket));
    MUST(kvt_ticket_wait(ticket, KVT_STAGE_DURABLE, KVT_FOREVER));
    kvt_ticket_free(ticket);
}

/* All blocks are on NVMe only, and the pages have none. */
static void
round_begin(void)
{
    struct kvt_key keys[COUNT];
    kvt_ticket *ticket;

    for (uint32_t i = 0; i < COUNT; i++)
        keys[i] = rig.names[i].key;
    MUST(kvt_demote_submit(rig.store, rig.ns, keys, COUNT, KVT_TIER_NVME, NULL, &ticket));
    MUST(kvt_ticket_wait(ticket, KVT_STAGE_DONE, KVT_FOREVER));
    kvt_ticket_free(ticket);
    MUST(cudaMemsetAsync(rig.pages, POISON, ALL_BYTES, rig.stream));
    MUST(cudaMemsetAsync(rig.copied, 0, ALL_BYTES, rig.stream));
    MUST(cudaStreamSynchronize(rig.stream));
    memset(rig.host_out, 0, ALL_BYTES);
    memset(rig.host_statuses, 0x77, COUNT * sizeof(*rig.host_statuses));
}

/* --- 3. Gets, holds, and what stands behind them ---------------------------------------------- */

static void CUDART_CB
gate_keep(void *context)
{
    (void)context;
    while (!atomic_load(&rig.is_open))
        rest(MS / 10);
}

/* Gets that begin when the gate is open. */
static void
gets_submit(uint32_t flags, bool is_gated)
{
    struct kvt_submit submit = {.wait_event = is_gated ? rig.event : NULL};

    if (is_gated) {
        atomic_store(&rig.is_open, false);
        MUST(cudaLaunchHostFunc(rig.gate_stream, gate_keep, NULL));
        MUST(cudaEventRecord(rig.event, rig.gate_stream));
    }
    for (uint32_t i = 0; i < COUNT; i++)
        rig.gets[i] = (struct kvt_get){.key = rig.names[i].key,
            .destination = rig.pages + i * BLOCK_BYTES,
            .capacity = BLOCK_BYTES,
            .region = rig.region,
            .flags = flags,
            .part_count = (flags & KVT_GET_BY_PART) != 0 ? PARTS : 0};
    MUST(kvt_get_submit(rig.store, rig.ns, rig.gets, COUNT, &submit, &rig.ticket));
}

/* The stream waits, and then takes what it finds away. */
static void
hold_submit(uint32_t flags, uint64_t deadline_ns)
{
    uint32_t part = (flags & KVT_GET_BY_PART) != 0 ? PARTS - 1 : KVT_PART_ALL;
    const size_t statuses_bytes = COUNT * sizeof(*rig.statuses);

    rig.waiting_count +=
        kvt_ticket_stream_wait(rig.ticket, part, 0, rig.gate_stream) == KVT_NOT_READY;
    MUST(kvt_hold_submit(rig.ticket, 0, rig.stream, now_ns() + deadline_ns, &rig.hold));
    MUST(cudaMemcpyAsync(rig.statuses, kvt_hold_statuses(rig.hold), statuses_bytes,
        cudaMemcpyHostToDevice, rig.stream));
    MUST(cudaMemcpyAsync(rig.copied, rig.pages, ALL_BYTES, cudaMemcpyDeviceToDevice, rig.stream));
    MUST(cudaMemcpyAsync(
        rig.host_statuses, rig.statuses, statuses_bytes, cudaMemcpyDeviceToHost, rig.stream));
    MUST(cudaMemcpyAsync(rig.host_out, rig.copied, ALL_BYTES, cudaMemcpyDeviceToHost, rig.stream));
}

static void
stream_await(void)
{
    MUST(cudaStreamSynchronize(rig.stream));
}

/* Each status is one of the two; where it is KVT_OK the block was there. */
static void
statuses_check(enum kvt_status wanted, enum kvt_status also)
{
    uint32_t other_count = 0, wrong_count = 0;
    char text[160];

    for (uint32_t i = 0; i < COUNT; i++) {
        int32_t status = rig.host_statuses[i];
        uint64_t version;

        if (status != wanted && status != also) {
            if (other_count++ == 0)
                (void)snprintf(text, sizeof(text), "block %u has the status %s, not %s", i,
                    kvt_status_name((enum kvt_status)status), kvt_status_name(wanted));
        } else if (status == KVT_OK) {
            wrong_count +=
                !payload_is_right(rig.host_out + i * BLOCK_BYTES, BLOCK_BYTES, i, &version);
        }
    }
    if (other_count > 0)
        complain(text);
    if (wrong_count > 0)
        complain("a block whose status is KVT_OK was not in place");
}

static void
round_end(void)
{
    MUST(kvt_ticket_wait(rig.ticket, KVT_STAGE_DONE, KVT_FOREVER));
    kvt_ticket_free(rig.ticket);
    MUST(kvt_hold_free(rig.hold));
}

/* --- 4. What lets a stream go on -------------------------------------------------------------- */

/* Hold and ticket are freed at once; the host waits for nothing but the stream. */
static void
blocks_come(uint64_t rounds)
{
    static const uint32_t flags[] = {
        0, KVT_GET_TRANSIENT, KVT_GET_BY_PART, KVT_GET_BY_PART | KVT_GET_TRANSIENT};

    for (uint64_t round = 0; round < rounds; round++) {
        uint32_t which = flags[round % 4];
        bool is_gated = round % 3 == 0;

        phase_begin("blocks come from NVMe");
        round_begin();
        gets_submit(which, is_gated);
        hold_submit(which, DEADLINE_NS);
        MUST(kvt_hold_free(rig.hold));
        if (is_gated)
            rest(2 * MS);
        if (is_gated && cudaStreamQuery(rig.stream) != cudaErrorNotReady)
            complain("the stream did not wait");
        kvt_ticket_free(rig.ticket);
        atomic_store(&rig.is_open, true);
        stream_await();
        statuses_check(KVT_OK, KVT_OK);
    }
}

static void
a_block_is_missing(void)
{
    phase_begin("a block is missing");
    round_begin();
    payload_key_make(&rig.names[3], 1000);
    gets_submit(0, true);
    hold_submit(0, DEADLINE_NS);
    atomic_store(&rig.is_open, true);
    stream_await();
    statuses_check(KVT_OK, KVT_MISS);
    if (rig.host_statuses[3] != KVT_MISS || rig.host_out[3 * BLOCK_BYTES] != POISON)
        complain("the block that is not there is no miss");
    round_end();
    payload_key_make(&rig.names[3], 3);
}

static void
gets_are_cancelled(void)
{
    phase_begin("gets are cancelled");
    for (uint32_t i = 0; i < 10; i++) {
        round_begin();
        gets_submit(i % 2 == 0 ? 0 : KVT_GET_BY_PART, true);
        hold_submit(i % 2 == 0 ? 0 : KVT_GET_BY_PART, DEADLINE_NS);
        MUST(kvt_ticket_cancel(rig.ticket));
        stream_await();
        statuses_check(KVT_CANCELLED, KVT_CANCELLED);
        atomic_store(&rig.is_open, true);
        round_end();
    }
}

static void
deadlines_pass(void)
{
    phase_begin("deadlines pass");
    for (uint32_t i = 0; i < 10; i++) {
        uint64_t begin_ns, took_ns;

        round_begin();
        gets_submit(0, true);
        begin_ns = now_ns();
        hold_submit(0, 20 * MS);
        stream_await();
        took_ns = now_ns() - begin_ns;
        statuses_check(KVT_LATE, KVT_LATE);
        if (took_ns < 20 * MS || took_ns > rig.patience_ns)
            complain("the stream went on at another time than the deadline's");
        atomic_store(&rig.is_open, true);
        round_end();
    }
}

/* --- 5. Calls of the host that wait for all streams ------------------------------------------- */

static void
call_synchronize(void)
{
    MUST(cudaDeviceSynchronize());
}

/* What the calls below take, and give back. */
static void *taken, *host_taken;

static void
call_malloc(void)
{
    MUST(cudaMalloc(&taken, 64 << 20));
}

static void
call_free(void)
{
    MUST(cudaFree(taken));
    taken = NULL;
}

static void
call_host_alloc(void)
{
    MUST(cudaHostAlloc(&host_taken, 4 << 20, cudaHostAllocDefault));
}

static void
call_host_free(void)
{
    MUST(cudaFreeHost(host_taken));
    host_taken = NULL;
}

static void
call_default_stream(void)
{
    MUST(cudaMemset(rig.copied, 0, ALL_BYTES));
    MUST(cudaStreamSynchronize(cudaStreamLegacy));
}

static void
call_pageable_copy(void)
{
    static uint8_t bytes[SCRATCH_BYTES];

    MUST(cudaMemcpy(rig.scratch, bytes, sizeof(bytes), cudaMemcpyHostToDevice));
    MUST(cudaMemcpy(bytes, rig.scratch, sizeof(bytes), cudaMemcpyDeviceToHost));
}

static void
call_streams(void)
{
    cudaStream_t stream;
    cudaEvent_t event;

    MUST(cudaStreamCreate(&stream));
    MUST(cudaEventCreate(&event));
    MUST(cudaEventRecord(event, stream));
    MUST(cudaEventSynchronize(event));
    MUST(cudaEventDestroy(event));
    MUST(cudaStreamDestroy(stream));
}

static void *
call_thread(void *context)
{
    void (*const *call)(void) = context;

    MUST(cudaSetDevice(0));
    (*call)();
    return NULL;
}

/* The call begins while the stream waits and nothing was read; then the copies are to come.
 * `is_freeing`: it waits for the device with a lock that every copy of the store needs, so that
 * the deadline, which is a short one, is what ends it. */
static void
call_run(const char *name, void (*call)(void), bool is_freeing, uint32_t round)
{
    uint64_t deadline_ns = is_freeing ? DEADLINE_NS / 10 : DEADLINE_NS;
    uint64_t begin_ns;
    pthread_t thread;

    phase_begin(name);
    round_begin();
    gets_submit(round % 2 == 0 ? 0 : KVT_GET_TRANSIENT, true);
    hold_submit(0, deadline_ns);
    MUST(pthread_create(&thread, NULL, call_thread, (void *)(uintptr_t)&call));
    rest(20 * MS);
    begin_ns = now_ns();
    atomic_store(&rig.is_open, true);
    stream_await();
    MUST(pthread_join(thread, NULL));
    /* KVT_LATE: the store could copy nothing before the deadline. */
    statuses_check(KVT_OK, is_freeing ? KVT_LATE : KVT_OK);
    if (now_ns() - begin_ns > rig.patience_ns)
        complain("it took far too long");
    round_end();
}

static void
host_waits(void)
{
    static const struct {
        const char *name;
        void (*call)(void);
        bool is_freeing;
    } calls[] = {
        {"cudaDeviceSynchronize() while a stream waits", call_synchronize, false},
        {"cudaMalloc() while a stream waits", call_malloc, false},
        {"cudaFree() while a stream waits", call_free, true},
        {"cudaHostAlloc() while a stream waits", call_host_alloc, false},
        {"cudaFreeHost() while a stream waits", call_host_free, true},
        {"the default stream while another one waits", call_default_stream, false},
        {"copies of pageable memory while a stream waits", call_pageable_copy, false},
        {"new streams and events while a stream waits", call_streams, false},
    };

    for (uint32_t round = 0; round < 4; round++) {
        for (uint32_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
            call_run(calls[i].name, calls[i].call, calls[i].is_freeing, round);
    }
}

/* As many streams as the hardware has queues for, or more: then the store's copies may stand behind
 * those who wait for them, until the deadline. */
static void
crowd_run(const char *name, uint32_t count, bool is_large, uint32_t round)
{
    uint64_t deadline_ns = is_large ? DEADLINE_NS / 10 : DEADLINE_NS;
    kvt_hold *holds[CROWD];

    phase_begin(name);
    round_begin();
    gets_submit(round % 2 == 0 ? 0 : KVT_GET_TRANSIENT, true);
    for (uint32_t i = 0; i < count; i++)
        MUST(kvt_hold_submit(rig.ticket, 0, rig.crowd[i], now_ns() + deadline_ns, &holds[i]));
    atomic_store(&rig.is_open, true);
    for (uint32_t i = 0; i < count; i++) {
        int32_t status;

        MUST(cudaStreamSynchronize(rig.crowd[i]));
        status = kvt_hold_statuses(holds[i])[0];
        if (status != KVT_OK && !(is_large && status == KVT_LATE))
            complain("the gets came after the deadline: their copies stood behind those who "
                     "wait for them");
        MUST(kvt_hold_free(holds[i]));
    }
    MUST(kvt_ticket_wait(rig.ticket, KVT_STAGE_DONE, KVT_FOREVER));
    hold_submit(0, DEADLINE_NS);
    stream_await();
    statuses_check(KVT_OK, KVT_OK);
    round_end();
}

static void
a_crowd_waits(void)
{
    for (uint32_t round = 0; round < 4; round++) {
        crowd_run("a few streams wait at once", CROWD_FEW, false, round);
        crowd_run("32 streams wait at once", CROWD, true, round);
    }
}

/* --- 6. Abort --------------------------------------------------------------------------------- */

/* With reads and copies under way, or none yet. */
static void
stores_are_aborted(struct real_host *host)
{
    for (uint32_t round = 0; round < ABORT_ROUNDS; round++) {
        phase_begin("a store is aborted");
        round_begin();
        gets_submit(round % 2 == 0 ? 0 : KVT_GET_TRANSIENT, false);
        hold_submit(0, DEADLINE_NS);
        if (round % 3 == 1)
            rest(MS / 10);
        kvt_abort(rig.store);
        if (cudaStreamQuery(rig.stream) != cudaSuccess)
            complain("an abort came back before the stream had passed");
        stream_await();
        statuses_check(KVT_OK, KVT_CANCELLED);
        store_open(host);
    }
}

int
main(int argc, char **argv)
{
    uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : ROUNDS_DEFAULT;
    uint64_t patience_ms = argc > 2 ? strtoull(argv[2], NULL, 10) : PATIENCE_MS_DEFAULT;
    static struct real_host host;
    uint32_t count;

    if (device_cuda_ops.count(NULL, &count) != KVT_OK) {
        printf("skipped: %s\n", failure_last()->text);
        return 77;
    }
    stop_on_proof();
    rig.patience_ns = patience_ms * MS;
    (void)signal(SIGALRM, alarm_heard);
    phase_begin("opening");
    rig_open(&host);
    blocks_put();
    blocks_come(rounds);
    a_block_is_missing();
    gets_are_cancelled();
    deadlines_pass();
    host_waits();
    a_crowd_waits();
    stores_are_aborted(&host);
    phase_begin("closing");
    rig_close(&host);
    if (rig.failure_count > 0) {
        printf("failed: %" PRIu32 " complaints, see above\n", rig.failure_count);
        return 1;
    }
    printf("passed: %" PRIu64 " rounds of %d blocks from NVMe, and what else lets a stream go on; "
           "%" PRIu32 " holds were submitted before any copy was queued\n",
        rounds, COUNT, rig.waiting_count);
    return 0;
}
