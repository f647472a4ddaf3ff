/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_cuda_errors.c - what an error of CUDA means for its device.
 *
 * Errors    those that CUDA does not forget, and those that nobody knows, take the device out of
 *           service: from then on every call answers KVT_E_GPU without a call of CUDA, but those of
 *           events, since streams of callers may go on. What a lost device holds of its own is left
 *           to the driver, which frees it with the process. Host memory is not the device's: it is
 *           asked to let go of that, and has to say so.
 *
 * Callers   give handles and memory, and CUDA believes them. Of an event that its caller destroyed
 *           it says that the context is destroyed (709, seen on an H100), while all else goes on.
 *           So where an error that nobody knows may be of what a caller gave, the device's own
 *           stream is asked (cuda_check_foreign()).
 */
#include "device_cuda_internal.h"
#include "failure.h"

enum kvt_status
status_from_cuda(cudaError_t error)
{
    /* Not a switch over the enum: CUDA has a hundred codes, and newer drivers return others. */
    static const struct {
        cudaError_t error;
        enum kvt_status status;
    } known[] = {
        {cudaSuccess, KVT_OK},
        {cudaErrorNotReady, KVT_NOT_READY},
        {cudaErrorMemoryAllocation, KVT_E_NOMEM},
        {cudaErrorInvalidValue, KVT_E_INVAL},
        {cudaErrorInvalidDevice, KVT_E_INVAL},
        {cudaErrorInvalidDevicePointer, KVT_E_INVAL},
        {cudaErrorInvalidResourceHandle, KVT_E_INVAL},
        {cudaErrorHostMemoryAlreadyRegistered, KVT_E_INVAL},
        {cudaErrorHostMemoryNotRegistered, KVT_E_INVAL},
        {cudaErrorStreamCaptureUnsupported, KVT_E_INVAL},
        {cudaErrorStreamCaptureInvalidated, KVT_E_INVAL},
        {cudaErrorStreamCaptureIsolation, KVT_E_INVAL},
        {cudaErrorStreamCaptureImplicit, KVT_E_INVAL},
        {cudaErrorCapturedEvent, KVT_E_INVAL},
        {cudaErrorInsufficientDriver, KVT_E_UNSUPPORTED},
        {cudaErrorNoDevice, KVT_E_UNSUPPORTED},
        {cudaErrorNotSupported, KVT_E_UNSUPPORTED},
        {cudaErrorNotPermitted, KVT_E_UNSUPPORTED},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (known[i].error == error)
            return known[i].status;
    }
    return KVT_E_GPU;
}

enum kvt_status
cuda_fail(
    enum kvt_status status, const struct device_cuda *device, cudaError_t error, const char *what)
{
    /* So that the host's next look at its last error does not find ours. */
    (void)cudaGetLastError();
    return failure_set(status, (int)error, "CUDA cannot %s on device %d: %s (%s, %d).", what,
        device->ordinal, cudaGetErrorString(error), cudaGetErrorName(error), (int)error);
}

enum kvt_status
cuda_lose(struct device_cuda *device, cudaError_t error, const char *what)
{
    atomic_store_explicit(&device->is_lost, true, memory_order_relaxed);
    return cuda_fail(KVT_E_GPU, device, error, what);
}

enum kvt_status
cuda_check(struct device_cuda *device, cudaError_t error, const char *what)
{
    enum kvt_status status = status_from_cuda(error);

    if (status == KVT_OK)
        return KVT_OK;
    if (status == KVT_E_GPU)
        return cuda_lose(device, error, what);
    return cuda_fail(status, device, error, what);
}

/* An error that stays is what every call in the context says. */
static bool
context_is_alive(const struct device_cuda *device)
{
    cudaError_t error = cudaStreamQuery(device->streams[DEVICE_IN]);

    return error == cudaSuccess || error == cudaErrorNotReady;
}

enum kvt_status
cuda_check_foreign(struct device_cuda *device, cudaError_t error, const char *what)
{
    if (status_from_cuda(error) == KVT_E_GPU && context_is_alive(device))
        return cuda_fail(KVT_E_INVAL, device, error, what);
    return cuda_check(device, error, what);
}
