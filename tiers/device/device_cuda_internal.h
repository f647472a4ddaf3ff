/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_cuda_internal.h - what the files of the CUDA device share.
 */
#ifndef KVT_TIERS_DEVICE_CUDA_INTERNAL_H
#define KVT_TIERS_DEVICE_CUDA_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include "copy_kernel.h"
#include "copy_planner.h"
#include "device_cuda.h"
#include "device_ranges.h"
#include "device_shared.h"
#include "env.h"

/* Of the driver, found through the runtime: nothing is linked against libcuda. */
struct cuda_driver {
    PFN_cuDeviceGet_v2000 device_get;
    PFN_cuDevicePrimaryCtxRetain_v7000 primary_retain;
    PFN_cuDevicePrimaryCtxRelease_v11000 primary_release;
    PFN_cuCtxPushCurrent_v4000 push;
    PFN_cuCtxPopCurrent_v4000 pop;
    PFN_cuStreamWaitValue32_v11070 wait_value; /* NULL: it has none. */
};

/* The same, for what several processes use (device_cuda_share.c); NULL until it is needed. */
struct cuda_share_driver {
    PFN_cuDeviceGetUuid_v11040 device_uuid;
    PFN_cuDeviceGetAttribute_v2000 device_attribute;
    PFN_cuMemGetAllocationGranularity_v10020 granularity;
    PFN_cuMemAddressReserve_v10020 reserve;
    PFN_cuMemAddressFree_v10020 unreserve;
    PFN_cuMemCreate_v10020 create;
    PFN_cuMemRelease_v10020 release;
    PFN_cuMemMap_v10020 map;
    PFN_cuMemUnmap_v10020 unmap;
    PFN_cuMemSetAccess_v10020 set_access;
    PFN_cuMemExportToShareableHandle_v10020 export;
    PFN_cuMemImportFromShareableHandle_v10020 import;
    PFN_cuStreamWriteValue64_v11070 word_write;
    PFN_cuStreamWaitValue64_v11070 word_wait; /* Found last. */
};

enum {
    CUDA_LISTS_MAX = 16,               /* Twice what the mover has in flight. */
    CUDA_LIST_CHUNKS = 16384,          /* Of one list: 256 KiB. */
    CUDA_RUNS_KEPT = CUDA_LIST_CHUNKS, /* Calls of more pieces take memory. */
};

enum cuda_list_state {
    CUDA_LIST_FREE,
    CUDA_LIST_TAKEN,  /* A call fills it; or its kernel cannot be asked for. */
    CUDA_LIST_QUEUED, /* A kernel reads it until its event is reached. */
};

/* A list of chunks for the kernel, in pinned memory. */
struct cuda_list {
    struct copy_chunk *chunks; /* CUDA_LIST_CHUNKS */
    cudaEvent_t event;
    _Atomic int state; /* enum cuda_list_state; who finds it QUEUED may take it to look. */
};

/* count == 0: the kernel cannot be used here. Without the lists, constant after open. */
struct cuda_lists {
    struct cuda_list lists[CUDA_LISTS_MAX];
    uint32_t count;
    _Atomic uint32_t next; /* The one that was queued longest ago, most likely. */
    void *memory;
};

/* The runs of a call as cudaMemcpyBatchAsync() takes them, and between what they lie. */
struct cuda_runs {
    void **targets;
    const void **sources;
    size_t *sizes;
    uint8_t *ways; /* enum copy_way */
    uint32_t count;
};

struct device_cuda {
    struct device device; /* First. */
    struct kvt_env env;   /* This and the next five: set at open, then constant. */
    int ordinal;
    struct cuda_driver driver;
    CUdevice handle;
    CUcontext context; /* The primary one, which the runtime uses too. */
    cudaStream_t streams[DEVICE_LANE_COUNT];
    _Atomic bool is_lost; /* Relaxed: who sees it late gets the same error from CUDA. */
    struct cuda_lists lists;
    uint64_t host_ns, host_ns_bytes; /* device_cuda_peers.c; serial. 0: not measured. */
    struct cuda_runs kept;           /* Memory for the runs of a call... */
    _Atomic bool is_kept_taken;      /* ...of one at a time. */
    pthread_mutex_t mutex;
    struct device_ranges ranges;           /* guarded by: mutex */
    struct copy_planner planner;           /* guarded by: mutex */
    struct device_shared *shared;          /* Slabs of `ranges`. guarded by: mutex */
    struct cuda_share_driver share_driver; /* guarded by: mutex */
};

/* What a call found on the calling thread. */
struct cuda_scope {
    struct device_cuda *device;
    enum cudaStreamCaptureMode capture_mode;
};

static inline struct device_cuda *
device_cuda_of(struct device *device)
{
    return (struct device_cuda *)device;
}

static inline bool
cuda_is_lost(const struct device_cuda *device)
{
    return atomic_load_explicit(&device->is_lost, memory_order_relaxed);
}

/*
 * cuda_enter - make the device's context the thread's, and let the thread make calls that a
 * capture into a graph, by other threads of the host, would forbid. cuda_leave - as it was before.
 * KVT_E_GPU: the device is lost; CUDA was not touched, and there is nothing to leave.
 */
enum kvt_status cuda_enter(struct device_cuda *device, struct cuda_scope *scope_out);
/* cuda_enter_context - the same with a context of another device, whichever of them is lost. */
enum kvt_status cuda_enter_context(
    struct device_cuda *device, CUcontext context, struct cuda_scope *scope_out);
/* cuda_enter_lost - the same for what is given back, and for events: a device that the library has
 * declared lost is asked all the same, as CUDA may live on, and hold what is the host's. */
enum kvt_status cuda_enter_lost(struct device_cuda *device, struct cuda_scope *scope_out);
void cuda_leave(const struct cuda_scope *scope);

/* device_cuda_errors.c. The class of an error. KVT_E_GPU: it stays, or nobody knows. */
enum kvt_status status_from_cuda(cudaError_t error);

/* cuda_fail - that status, and a sentence. */
enum kvt_status cuda_fail(
    enum kvt_status status, const struct device_cuda *device, cudaError_t error, const char *what);
/* cuda_check - KVT_OK for cudaSuccess; otherwise a sentence, and the device may be lost by it. */
enum kvt_status cuda_check(struct device_cuda *device, cudaError_t error, const char *what);
/* cuda_check_foreign - the same of a call with a handle or memory of the caller's, that queues no
 * copy: an error that nobody knows is KVT_E_INVAL while the device's own stream can be asked. In
 * the device's scope. */
enum kvt_status cuda_check_foreign(struct device_cuda *device, cudaError_t error, const char *what);
enum kvt_status cuda_lose(struct device_cuda *device, cudaError_t error, const char *what);

/* The legacy default stream waits for all others, and is no stream of ours. */
enum kvt_status cuda_stream_check(const void *stream);

/* cuda_range_add, cuda_range_remove - with the mutex; as device_ranges_add() and _remove(). */
enum kvt_status cuda_range_add(struct device_cuda *device, const struct device_range *range);
bool cuda_range_remove(struct device_cuda *device, const struct device_range *range);

/* cuda_lanes_await - until the lanes have done all that was queued; the device may be lost. An
 * error: CUDA does not say so. In the device's scope. */
enum kvt_status cuda_lanes_await(struct device_cuda *device);

/* cuda_stream_await - until all that was queued on it has been done. Outside of a scope. */
enum kvt_status cuda_stream_await(struct device_cuda *device, cudaStream_t stream);

/* A copy onto a stream that is being captured into a graph is not made now, and an event that is
 * recorded there tells nothing: KVT_E_INVAL. In the device's scope. */
enum kvt_status cuda_capture_check(struct device_cuda *device, cudaStream_t stream);

/* Whether a stream can be asked anything; and if it is being captured. In the device's scope. */
enum kvt_status cuda_stream_look(
    struct device_cuda *device, cudaStream_t stream, enum cudaStreamCaptureStatus *capture_out);

/* device_cuda_word.c. cuda_word_check - KVT_OK: host memory that was registered, at a place where
 * so many bytes can be written at once. */
enum kvt_status cuda_word_check(struct device_cuda *device, const void *word, uint64_t size);
enum kvt_status device_cuda_stream_wait_word(
    struct device *device, void *stream, const _Atomic uint32_t *word, uint32_t value);

/* A function of the driver, by its name. KVT_E_UNSUPPORTED: it has none. */
enum kvt_status driver_find(const char *name, void *function_out);

/* device_cuda_share.c */
extern const struct device_share_ops device_cuda_share_ops;
/* Give a slab back that is shared or adopted; false: it is none of these. */
bool cuda_shared_put(struct device_cuda *device, const void *address);

/* device_cuda_copy.c */
enum kvt_status device_cuda_copy(
    struct device *device, void *stream, const struct device_piece *pieces, uint32_t count);
enum kvt_status cuda_runs_keep(struct device_cuda *device); /* KVT_E_NOMEM */
void cuda_runs_free(struct device_cuda *device);

/* --- device_cuda_lists.c: what the kernel reads. In the device's scope. ----------------------- */

/* Load the kernel and take the memory of its lists. KVT_OK with count 0: this build or this device
 * cannot use it. */
enum kvt_status cuda_lists_open(struct device_cuda *device);
/* Wait for the kernels that read them, and free them, as long as the device is there. */
void cuda_lists_close(struct device_cuda *device);

/* A list that nobody reads; NULL: all are in use, or CUDA does not say. */
struct cuda_list *cuda_list_take(struct device_cuda *device);
/* It was not queued. */
void cuda_list_put(struct cuda_list *list);
/* Start the kernel on the list's first `count` chunks. An error: it was not started, or the device
 * is lost. */
enum kvt_status cuda_list_queue(struct device_cuda *device, struct cuda_list *list, uint32_t count,
    const struct copy_plan *plan, cudaStream_t stream);

/* device_cuda_host.c */
enum kvt_status device_cuda_host_register(struct device *device, void *memory, uint64_t size);
enum kvt_status device_cuda_host_unregister(struct device *device, void *memory, uint64_t size);
void device_cuda_host_abandon(struct device *device, void *memory, uint64_t size);

/* device_cuda_peers.c */
enum kvt_status device_cuda_peer_register(
    struct device *device, struct device *other, void *slab, uint64_t size, bool *is_faster_out);
void device_cuda_peer_unregister(struct device *device, void *slab, uint64_t size);

/* device_cuda_gather.c */
enum kvt_status device_cuda_gather(
    struct device *device, void *stream, const struct device_gather *gather);

/* device_cuda_measure.c */
enum kvt_status device_cuda_plan(
    struct device *device, enum device_plan_choice choice, struct device_plan *plan_out);

#endif /* KVT_TIERS_DEVICE_CUDA_INTERNAL_H */
