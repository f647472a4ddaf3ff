/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_cuda_word.c - streams that wait for a word in memory of the host, and what may not be done
 * to a stream that is being captured.
 */
#include "device_cuda_internal.h"
#include "failure.h"
#include "try.h"

enum kvt_status
cuda_stream_look(
    struct device_cuda *device, cudaStream_t stream, enum cudaStreamCaptureStatus *capture_out)
{
    return cuda_check_foreign(
        device, cudaStreamIsCapturing(stream, capture_out), "look at a stream");
}

enum kvt_status
cuda_capture_check(struct device_cuda *device, cudaStream_t stream)
{
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;

    for (uint32_t i = 0; i < DEVICE_LANE_COUNT; i++) {
        if (stream == device->streams[i])
            return KVT_OK;
    }
    KVT_TRY(cuda_stream_look(device, stream, &capture));
    if (capture != cudaStreamCaptureStatusNone) {
        return failure_set(KVT_E_INVAL, 0,
            "The stream %p is being captured into a graph: nothing can be queued on it.",
            (void *)stream);
    }
    return KVT_OK;
}

enum kvt_status
cuda_word_check(struct device_cuda *device, const void *word, uint64_t size)
{
    const struct device_range *range;
    bool is_right;

    (void)pthread_mutex_lock(&device->mutex);
    range = device_ranges_find(&device->ranges, address_of(word), size);
    is_right = range != NULL && device_range_is_host(range->kind) && address_of(word) % size == 0;
    (void)pthread_mutex_unlock(&device->mutex);
    if (is_right)
        return KVT_OK;
    return failure_set(KVT_E_INVAL, 0, "%p is no word in host memory that was registered.", word);
}

/* In the device's scope. */
static enum kvt_status
word_wait(
    struct device_cuda *device, cudaStream_t stream, const _Atomic uint32_t *word, uint32_t value)
{
    int is_same = 0;
    CUresult result;

    KVT_TRY(cuda_capture_check(device, stream));
    KVT_TRY(cuda_check(device,
        cudaDeviceGetAttribute(
            &is_same, cudaDevAttrCanUseHostPointerForRegisteredMem, device->ordinal),
        "tell how it addresses the host's memory"));
    if (!is_same) {
        return failure_set(KVT_E_UNSUPPORTED, 0,
            "Device %d has another address than the host for memory of the host.", device->ordinal);
    }
    result = device->driver.wait_value(stream, address_of(word), value, CU_STREAM_WAIT_VALUE_GEQ);
    /* The numbers of the driver's errors are those of the runtime's. */
    return cuda_check_foreign(device, (cudaError_t)result, "let a stream wait for a word");
}

enum kvt_status
device_cuda_stream_wait_word(
    struct device *base, void *stream, const _Atomic uint32_t *word, uint32_t value)
{
    struct device_cuda *device = device_cuda_of(base);
    struct cuda_scope scope;
    enum kvt_status status;

    KVT_TRY(cuda_stream_check(stream));
    KVT_TRY(cuda_word_check(device, (const void *)(uintptr_t)word, sizeof(*word)));
    if (device->driver.wait_value == NULL) {
        return failure_set(KVT_E_UNSUPPORTED, 0,
            "The NVIDIA driver has no function cuStreamWaitValue32(): no stream can wait for a "
            "word.");
    }
    KVT_TRY(cuda_enter(device, &scope));
    status = word_wait(device, stream, word, value);
    cuda_leave(&scope);
    return status;
}
