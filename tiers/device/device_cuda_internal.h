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

#include "device_cuda.h"
#include "device_ranges.h"
#include "env.h"

/* Of the driver, found through the runtime: nothing is linked against libcuda. */
struct cuda_driver {
    PFN_cuDeviceGet_v2000 device_get;
    PFN_cuDevicePrimaryCtxRetain_v7000 primary_retain;
    PFN_cuDevicePrimaryCtxRelease_v11000 primary_release;
    PFN_cuCtxPushCurrent_v4000 push;
    PFN_cuCtxPopCurrent_v4000 pop;
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
    pthread_mutex_t mutex;
    struct device_ranges ranges; /* guarded by: mutex */
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

/*
 * cuda_enter - make the device's context the thread's, and let the thread make calls that a
 * capture into a graph, by other threads of the host, would forbid. cuda_leave - as it was before.
 * KVT_E_GPU: the device is lost; CUDA was not touched, and there is nothing to leave.
 */
enum kvt_status cuda_enter(struct device_cuda *device, struct cuda_scope *scope_out);
void cuda_leave(const struct cuda_scope *scope);

/* The class of an error. KVT_E_GPU: it stays, or nobody knows. */
enum kvt_status status_from_cuda(cudaError_t error);

/* cuda_check - KVT_OK for cudaSuccess; otherwise a sentence, and the device may be lost by it. */
enum kvt_status cuda_check(struct device_cuda *device, cudaError_t error, const char *what);
enum kvt_status cuda_lose(struct device_cuda *device, cudaError_t error, const char *what);

/* The legacy default stream waits for all others, and is no stream of ours. */
enum kvt_status cuda_stream_check(const void *stream);

/* device_cuda_copy.c */
enum kvt_status device_cuda_copy(
    struct device *device, void *stream, const struct device_piece *pieces, uint32_t count);

#endif /* KVT_TIERS_DEVICE_CUDA_INTERNAL_H */
