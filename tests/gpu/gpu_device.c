/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_device.c - the CUDA device on real GPUs: the list of tests/support/device_checks.c, and what
 * it promises to a host that uses CUDA itself.
 *
 * Usage: gpu_device. Exit code 0: all passed; 1: not; 77: there is no GPU, and why. No cmocka.
 */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include <sys/mman.h>

#include <cuda_runtime_api.h>

#include "device_checks.h"
#include "device_cuda.h"
#include "device_cuda_internal.h"
#include "failure.h"
#include "stop_on_proof.h"

enum {
    KIB = 1024,
    MIB = 1024 * KIB,
};

static void
pass_real(struct device_rig *rig)
{
    (void)rig;
    (void)sched_yield();
}

/* --- 1. A host that uses CUDA itself ---------------------------------------------------------- */

static bool
thread_is_left_as_it_was(struct device_rig *rig)
{
    int before = -1;
    int after = -1;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
    void *slab = NULL;

    RIG_CHECK(cudaGetDevice(&before) == cudaSuccess);
    RIG_CHECK(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
    RIG_CHECK(device_rig_copy(rig, rig->in, rig->slab, rig->host, MIB) == KVT_OK);
    RIG_CHECK(device_rig_drain(rig, rig->in));
    /* What fails, and what is not ready, is not the host's last error. */
    RIG_CHECK(rig->ops->slab_take(rig->device, UINT64_C(1) << 50, &slab) == KVT_E_NOMEM);
    RIG_CHECK(cudaPeekAtLastError() == cudaSuccess);
    RIG_CHECK(cudaGetDevice(&after) == cudaSuccess && after == before);
    RIG_CHECK(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
    RIG_CHECK(mode == cudaStreamCaptureModeThreadLocal);
    return true;
}

/* The host's stream, and an event of the host's, go with the device's. */
static bool
streams_and_events_of_the_host_are_taken(struct device_rig *rig)
{
    uint8_t *back = rig->host + RIG_CHUNK_BYTES;
    cudaStream_t stream = NULL;
    cudaEvent_t event = NULL;

    RIG_CHECK(cudaSetDevice((int)rig->ordinal) == cudaSuccess);
    RIG_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    RIG_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
    device_rig_fill(rig->host, MIB, 4);
    RIG_CHECK(device_rig_copy(rig, stream, rig->slab, rig->host, MIB) == KVT_OK);
    RIG_CHECK(
        cudaMemcpyAsync(rig->slab + MIB, rig->slab, MIB, cudaMemcpyDefault, stream) == cudaSuccess);
    RIG_CHECK(cudaEventRecord(event, stream) == cudaSuccess);
    RIG_CHECK(rig->ops->stream_wait(rig->device, rig->out, event) == KVT_OK);
    RIG_CHECK(device_rig_copy(rig, rig->out, back, rig->slab + MIB, MIB) == KVT_OK);
    RIG_CHECK(device_rig_drain(rig, rig->out));
    RIG_CHECK(rig->ops->event_query(rig->device, event) == KVT_OK);
    RIG_CHECK(device_rig_is_filled(back, MIB, 4));
    RIG_CHECK(cudaEventDestroy(event) == cudaSuccess);
    RIG_CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    return true;
}

/* A capture of the strictest kind, of this very thread: our calls neither fail nor end it. */
static bool
capture_of_the_host_is_not_disturbed(struct device_rig *rig)
{
    uint8_t *back = rig->host + RIG_CHUNK_BYTES;
    cudaStream_t stream = NULL;
    cudaGraph_t graph = NULL;
    void *slab = NULL;
    void *event = NULL;

    RIG_CHECK(cudaSetDevice((int)rig->ordinal) == cudaSuccess);
    RIG_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    RIG_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
    RIG_CHECK(rig->ops->slab_take(rig->device, MIB, &slab) == KVT_OK);
    RIG_CHECK(rig->ops->event_create(rig->device, &event) == KVT_OK);
    device_rig_fill(rig->host, MIB, 6);
    RIG_CHECK(device_rig_copy(rig, rig->in, slab, rig->host, MIB) == KVT_OK);
    RIG_CHECK(device_rig_copy(rig, rig->in, back, slab, MIB) == KVT_OK);
    RIG_CHECK(device_rig_drain(rig, rig->in));
    RIG_CHECK(device_rig_is_filled(back, MIB, 6));
    RIG_CHECK(device_rig_copy(rig, stream, slab, rig->host, MIB) == KVT_E_INVAL);
    rig->ops->event_destroy(rig->device, event);
    rig->ops->slab_put(rig->device, slab, MIB);
    RIG_CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess && graph != NULL);
    RIG_CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    RIG_CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    return true;
}

/* Thousands of scattered pieces in a call, both lanes at once, many calls in flight. */
static bool
large_batches_arrive(struct device_rig *rig)
{
    enum {
        COUNT = 2 * RIG_CHUNK_BYTES / (4 * KIB),
        SIZE = 4 * KIB - 256,
        ROUNDS = 20,
    };
    static struct device_piece in[COUNT / 2];
    static struct device_piece out[COUNT / 2];
    uint8_t *back = rig->host + RIG_CHUNK_BYTES;
    const struct kvt_device_ops *ops = rig->ops;

    device_rig_fill(rig->host, RIG_CHUNK_BYTES, 8);
    for (uint32_t i = 0; i < COUNT / 2; i++) {
        uint32_t slot = (i * 181) % (COUNT / 2);

        in[i] = (struct device_piece){rig->slab + slot * 4 * KIB, rig->host + i * 4 * KIB, SIZE};
        out[i] = (struct device_piece){back + i * 4 * KIB, rig->slab + slot * 4 * KIB, SIZE};
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        RIG_CHECK(ops->stream_wait(rig->device, rig->in, rig->event) == KVT_OK);
        RIG_CHECK(ops->copy(rig->device, rig->in, in, COUNT / 2) == KVT_OK);
        RIG_CHECK(ops->event_record(rig->device, rig->event, rig->in) == KVT_OK);
        RIG_CHECK(ops->stream_wait(rig->device, rig->out, rig->event) == KVT_OK);
        RIG_CHECK(ops->copy(rig->device, rig->out, out, COUNT / 2) == KVT_OK);
        RIG_CHECK(ops->event_record(rig->device, rig->event, rig->out) == KVT_OK);
    }
    RIG_CHECK(device_rig_await(rig, rig->event));
    for (uint32_t i = 0; i < COUNT / 2; i++)
        RIG_CHECK(memcmp(back + i * 4 * KIB, rig->host + i * 4 * KIB, SIZE) == 0);
    return true;
}

/* Rooms change places again and again, on the way in and on the way out, by more calls than there
 * are lists, each with a list of its own: what a kernel reads while it changes shows at the end. */
static bool
calls_far_ahead_of_the_device_keep_their_lists(struct device_rig *rig)
{
    enum {
        ROOM = 4 * KIB,
        SIZE = ROOM - 96, /* So that no two touch. */
        COUNT = RIG_CHUNK_BYTES / ROOM,
        CALLS = 96,
    };
    static struct device_piece pieces[COUNT];
    static uint32_t place[COUNT]; /* Of what lay in each room at first. */
    static uint8_t first[RIG_CHUNK_BYTES];

    device_rig_fill(first, RIG_CHUNK_BYTES, 12);
    memcpy(rig->host, first, RIG_CHUNK_BYTES);
    for (uint32_t i = 0; i < COUNT; i++)
        place[i] = i;
    for (uint32_t call = 0; call < CALLS; call++) {
        bool is_in = call % 2 == 0;
        /* In from where the call before took it, out to one of the other two areas in turn. */
        uint8_t *area = rig->host + (uint64_t)RIG_CHUNK_BYTES * ((call + 1) / 2 % 3);
        uint8_t *from = is_in ? area : rig->slab;
        uint8_t *to = is_in ? rig->slab : area;

        for (uint32_t i = 0; i < COUNT; i++) {
            uint32_t next = (i * (2 * call + 3) + 7 * call) % COUNT;

            pieces[i] = (struct device_piece){to + next * ROOM, from + i * ROOM, SIZE};
        }
        for (uint32_t i = 0; i < COUNT; i++)
            place[i] = (place[i] * (2 * call + 3) + 7 * call) % COUNT;
        RIG_CHECK(rig->ops->copy(rig->device, rig->in, pieces, COUNT) == KVT_OK);
    }
    RIG_CHECK(device_rig_drain(rig, rig->in));
    /* CALLS / 2 % 3 == 0: the last call's area is the first one's. */
    for (uint32_t i = 0; i < COUNT; i++)
        RIG_CHECK(memcmp(rig->host + place[i] * ROOM, first + i * ROOM, SIZE) == 0);
    return true;
}

/* Copies to `chunk` are under way when the library declares `other` lost; CUDA lives on. */
static bool
chunk_leaves_lost_device(struct device_rig *rig, struct device_rig *other, uint8_t *chunk)
{
    const struct kvt_device_ops *ops = rig->ops;
    enum kvt_status status;
    void *slab = NULL;

    RIG_CHECK(ops->host_register(other->device, chunk, RIG_CHUNK_BYTES) == KVT_OK);
    RIG_CHECK(ops->slab_take(other->device, RIG_CHUNK_BYTES, &slab) == KVT_OK);
    other->out = ops->stream(other->device, DEVICE_OUT);
    device_rig_fill(chunk, RIG_CHUNK_BYTES, 3);
    RIG_CHECK(device_rig_copy(other, other->out, slab, chunk, RIG_CHUNK_BYTES) == KVT_OK);
    for (uint32_t i = 0; i < 64; i++)
        RIG_CHECK(device_rig_copy(other, other->out, chunk, slab, RIG_CHUNK_BYTES) == KVT_OK);
    atomic_store(&device_cuda_of(other->device)->is_lost, true);
    status = ops->host_unregister(other->device, chunk, RIG_CHUNK_BYTES);
    /* Nothing of it comes late, and what is the device's own stays with it. */
    RIG_CHECK(cudaStreamQuery(other->out) == cudaSuccess);
    ops->slab_put(other->device, slab, RIG_CHUNK_BYTES);
    RIG_CHECK(status == KVT_OK);
    return true;
}

static bool
memory_of_a_device_declared_lost_can_be_mapped_anew(struct device_rig *rig)
{
    const struct kvt_device_ops *ops = rig->ops;
    struct device_rig other = *rig;
    uint8_t *chunk = rig->host + RIG_HOST_BYTES - RIG_CHUNK_BYTES;
    bool is_right;

    RIG_CHECK(ops->open(rig->context, rig->env, rig->ordinal, &other.device) == KVT_OK);
    is_right = chunk_leaves_lost_device(rig, &other, chunk);
    ops->close(other.device);
    RIG_CHECK(is_right);
    /* Other pages at the same address: what is read and written there is theirs. */
    RIG_CHECK(munmap(chunk, RIG_CHUNK_BYTES) == 0);
    RIG_CHECK(mmap(chunk, RIG_CHUNK_BYTES, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == chunk);
    RIG_CHECK(ops->host_register(rig->device, chunk, RIG_CHUNK_BYTES) == KVT_OK);
    device_rig_fill(chunk, MIB, 4);
    RIG_CHECK(device_rig_copy(rig, rig->in, rig->slab, chunk, MIB) == KVT_OK);
    RIG_CHECK(device_rig_copy(rig, rig->in, chunk + MIB, rig->slab, MIB) == KVT_OK);
    RIG_CHECK(device_rig_drain(rig, rig->in));
    RIG_CHECK(device_rig_is_filled(chunk + MIB, MIB, 4));
    RIG_CHECK(ops->host_unregister(rig->device, chunk, RIG_CHUNK_BYTES) == KVT_OK);
    return true;
}

/* Also one that is made and recorded by then: it is reached when what was queued has been done. */
static bool
event_of_lost_device_is_reached(struct device_rig *rig, struct device_rig *other, uint8_t *chunk)
{
    const struct kvt_device_ops *ops = rig->ops;
    uint32_t late_count = 0;
    enum kvt_status status;
    void *slab = NULL;
    void *event = NULL;

    RIG_CHECK(ops->host_register(other->device, chunk, RIG_CHUNK_BYTES) == KVT_OK);
    RIG_CHECK(ops->slab_take(other->device, RIG_CHUNK_BYTES, &slab) == KVT_OK);
    other->out = ops->stream(other->device, DEVICE_OUT);
    for (uint32_t i = 0; i < 64; i++)
        RIG_CHECK(device_rig_copy(other, other->out, chunk, slab, RIG_CHUNK_BYTES) == KVT_OK);
    atomic_store(&device_cuda_of(other->device)->is_lost, true);
    RIG_CHECK(ops->event_create(other->device, &event) == KVT_OK);
    RIG_CHECK(ops->event_record(other->device, event, other->out) == KVT_OK);
    while ((status = ops->event_query(other->device, event)) == KVT_NOT_READY)
        late_count++;
    RIG_CHECK(status == KVT_OK && late_count > 0);
    RIG_CHECK(cudaStreamQuery(other->out) == cudaSuccess);
    ops->event_destroy(other->device, event);
    RIG_CHECK(device_rig_copy(other, other->out, chunk, slab, MIB) == KVT_E_GPU);
    RIG_CHECK(ops->host_unregister(other->device, chunk, RIG_CHUNK_BYTES) == KVT_OK);
    ops->slab_put(other->device, slab, RIG_CHUNK_BYTES);
    return true;
}

static bool
events_of_a_device_declared_lost_go_on(struct device_rig *rig)
{
    struct device_rig other = *rig;
    bool is_right;

    RIG_CHECK(rig->ops->open(rig->context, rig->env, rig->ordinal, &other.device) == KVT_OK);
    is_right =
        event_of_lost_device_is_reached(rig, &other, rig->host + RIG_HOST_BYTES - RIG_CHUNK_BYTES);
    rig->ops->close(other.device);
    return is_right;
}

/* CUDA says of it that the context is destroyed (709), which is not so. */
static bool
event_that_the_host_destroyed_costs_no_device(struct device_rig *rig)
{
    const struct kvt_device_ops *ops = rig->ops;
    cudaEvent_t event;

    RIG_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
    RIG_CHECK(cudaEventDestroy(event) == cudaSuccess);
    RIG_CHECK(ops->event_query(rig->device, event) == KVT_E_INVAL);
    RIG_CHECK(ops->stream_wait(rig->device, rig->in, event) == KVT_E_INVAL);
    RIG_CHECK(ops->event_record(rig->device, event, rig->in) == KVT_E_INVAL);
    device_rig_fill(rig->host, MIB, 5);
    RIG_CHECK(device_rig_copy(rig, rig->in, rig->slab, rig->host, MIB) == KVT_OK);
    RIG_CHECK(device_rig_drain(rig, rig->in));
    return true;
}

static const struct device_check gpu_checks[] = {
    {.name = "thread_is_left_as_it_was", .run = thread_is_left_as_it_was},
    {.name = "streams_and_events_of_the_host_are_taken",
        .run = streams_and_events_of_the_host_are_taken},
    {.name = "capture_of_the_host_is_not_disturbed", .run = capture_of_the_host_is_not_disturbed},
    {.name = "event_that_the_host_destroyed_costs_no_device",
        .run = event_that_the_host_destroyed_costs_no_device},
    {.name = "large_batches_arrive", .run = large_batches_arrive},
    {.name = "calls_far_ahead_of_the_device_keep_their_lists",
        .run = calls_far_ahead_of_the_device_keep_their_lists},
    {.name = "events_of_a_device_declared_lost_go_on",
        .run = events_of_a_device_declared_lost_go_on},
    {.name = "memory_of_a_device_declared_lost_can_be_mapped_anew",
        .run = memory_of_a_device_declared_lost_can_be_mapped_anew},
};

/* --- 2. The program's own memory -------------------------------------------------------------- */

static enum kvt_status
own_memory_take(struct device *device, uint64_t size, void **memory_out)
{
    (void)device; /* The current one: main() has set it. */
    return cudaMalloc(memory_out, size) == cudaSuccess ? KVT_OK : KVT_E_NOMEM;
}

static void
own_memory_put(struct device *device, void *memory, uint64_t size)
{
    (void)device;
    (void)size;
    (void)cudaFree(memory);
}

/* --- 3. The program --------------------------------------------------------------------------- */

static uint32_t
checks_run(struct device_rig *rig, const struct device_check *checks, size_t count)
{
    uint32_t failed = 0;

    for (size_t i = 0; i < count; i++) {
        bool is_right;

        if (!device_check_fits(&checks[i], rig))
            continue;
        is_right = device_check_run(&checks[i], rig);
        printf("%s  device %u  %s\n", is_right ? "ok    " : "FAILED", rig->ordinal, checks[i].name);
        (void)fflush(stdout);
        failed += !is_right;
    }
    return failed;
}

int
main(void)
{
    struct kvt_env env;
    uint32_t count = 0;
    uint32_t failed = 0;

    stop_on_proof();
    env_host(&env);
    if (device_cuda_ops.count(NULL, &count) != KVT_OK) {
        printf("SKIPPED: %s\n", failure_last()->text);
        return 77;
    }
    for (uint32_t ordinal = 0; ordinal < count; ordinal++) {
        struct device_rig rig = {.ops = &device_cuda_ops,
            .env = &env,
            .ordinal = ordinal,
            .pass = pass_real,
            .memory_take = own_memory_take,
            .memory_put = own_memory_put,
            .has_threads = true};

        if (cudaSetDevice((int)ordinal) != cudaSuccess)
            return 1;

        failed += checks_run(&rig, device_checks, DEVICE_CHECK_COUNT);
        failed += checks_run(&rig, gpu_checks, sizeof(gpu_checks) / sizeof(gpu_checks[0]));
    }
    printf("%u devices, %u checks failed\n", count, failed);
    return failed == 0 ? 0 : 1;
}
