/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_cuda_peers.c - slabs of other GPUs that this one reads by itself, over NVLink or PCIe.
 *
 * Access is the process's, of one context to all memory of the other: it is enabled when it is
 * first needed and stays, because others of this process may have come to rely on it.
 */
#include <inttypes.h>

#include "device_cuda_internal.h"
#include "failure.h"
#include "try.h"

enum {
    TRIED_BYTES_MAX = 16 << 20,
    CALLS = 4, /* In flight: what the mover has. */
    ROUNDS = 3,
};

/* --- 1. Reaching it --------------------------------------------------------------------------- */

static enum kvt_status
access_enable(struct device_cuda *device, const struct device_cuda *other)
{
    int can_reach = 0;
    cudaError_t error;

    KVT_TRY(cuda_check_foreign(device,
        cudaDeviceCanAccessPeer(&can_reach, device->ordinal, other->ordinal), "tell its peers"));
    if (!can_reach)
        return failure_set(KVT_E_UNSUPPORTED, 0, "Device %d does not reach device %d.",
            device->ordinal, other->ordinal);
    error = cudaDeviceEnablePeerAccess(other->ordinal, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
        (void)cudaGetLastError();
        return KVT_OK;
    }
    /* Without NVSwitch a device has 8 peers, of all processes. */
    if (error == cudaErrorTooManyPeers || error == cudaErrorPeerAccessUnsupported)
        return cuda_fail(KVT_E_UNSUPPORTED, device, error, "reach a peer");
    return cuda_check_foreign(device, error, "reach a peer");
}

static bool
slab_is_there(struct device_cuda *device, const void *slab, uint64_t size)
{
    const struct device_range *range;
    bool is_there;

    (void)pthread_mutex_lock(&device->mutex);
    range = size == 0 ? NULL : device_ranges_find(&device->ranges, address_of(slab), size);
    is_there = range != NULL && range->kind == DEVICE_RANGE_SLAB;
    (void)pthread_mutex_unlock(&device->mutex);
    return is_there;
}

/* --- 2. Which is nearer ----------------------------------------------------------------------- */

/* The best time of a few for CALLS copies of one run, ns. */
static enum kvt_status
copies_time(struct device_cuda *device, const struct device_piece *piece, uint64_t *best_ns_out)
{
    cudaStream_t stream = device->streams[DEVICE_IN];

    *best_ns_out = UINT64_MAX;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t begin_ns = env_now(&device->env);
        uint64_t ns;

        for (uint32_t i = 0; i < CALLS; i++)
            KVT_TRY(device_cuda_copy(&device->device, stream, piece, 1));
        KVT_TRY(cuda_stream_await(device, stream));
        ns = env_now(&device->env) - begin_ns;
        if (ns < *best_ns_out)
            *best_ns_out = ns;
    }
    return KVT_OK;
}

/* From host memory that is pinned for this, of `size` bytes. */
static enum kvt_status
host_time(struct device_cuda *device, void *memory, uint64_t size, uint64_t *ns_out)
{
    struct device *base = &device->device;
    void *host = env_map(&device->env, size);
    enum kvt_status status;

    if (host == NULL)
        return failure_set(KVT_E_NOMEM, 0, "No memory to measure copies with.");
    status = base->ops->host_register(base, host, size);
    if (status == KVT_OK) {
        status = copies_time(device, &(struct device_piece){memory, host, size}, ns_out);
        if (base->ops->host_unregister(base, host, size) != KVT_OK)
            return KVT_E_GPU; /* It stays mapped. */
    }
    env_unmap(&device->env, host, size);
    return status;
}

/* The host is measured once, beside the first peer: all slabs of a store are of one size. */
static enum kvt_status
sources_compare(
    struct device_cuda *device, void *memory, const void *slab, uint64_t size, bool *is_faster_out)
{
    uint64_t peer_ns;

    if (device->host_ns == 0 || device->host_ns_bytes != size) {
        KVT_TRY(host_time(device, memory, size, &device->host_ns));
        device->host_ns_bytes = size;
    }
    KVT_TRY(copies_time(device, &(struct device_piece){memory, slab, size}, &peer_ns));
    *is_faster_out = peer_ns < device->host_ns;
    return KVT_OK;
}

static enum kvt_status
peer_measure(struct device_cuda *device, const void *slab, uint64_t slab_size, bool *is_faster_out)
{
    struct device *base = &device->device;
    uint64_t size = slab_size < TRIED_BYTES_MAX ? slab_size : TRIED_BYTES_MAX;
    void *memory;
    enum kvt_status status;

    KVT_TRY(base->ops->slab_take(base, size, &memory));
    status = sources_compare(device, memory, slab, size, is_faster_out);
    base->ops->slab_put(base, memory, size);
    return status;
}

/* --- 3. What stands in struct kvt_device_ops -------------------------------------------------- */

static enum kvt_status
peer_add(
    struct device_cuda *device, const struct device_cuda *other, const struct device_range *range)
{
    struct cuda_scope scope;
    enum kvt_status status;

    KVT_TRY(cuda_enter(device, &scope));
    status = access_enable(device, other);
    cuda_leave(&scope);
    if (status != KVT_OK)
        return status;
    return cuda_range_add(device, range);
}

enum kvt_status
device_cuda_peer_register(
    struct device *base, struct device *other, void *slab, uint64_t size, bool *is_faster_out)
{
    struct device_cuda *device = device_cuda_of(base);
    const struct device_range range = {address_of(slab), size, DEVICE_RANGE_PEER};
    enum kvt_status status;

    *is_faster_out = false;
    if (other == base || !slab_is_there(device_cuda_of(other), slab, size))
        return failure_set(
            KVT_E_INVAL, 0, "%" PRIu64 " bytes at %p are no slab of another device.", size, slab);
    KVT_TRY(peer_add(device, device_cuda_of(other), &range));
    status = peer_measure(device, slab, size, is_faster_out);
    if (status != KVT_OK)
        device_cuda_peer_unregister(base, slab, size);
    return status;
}

void
device_cuda_peer_unregister(struct device *base, void *slab, uint64_t size)
{
    struct device_cuda *device = device_cuda_of(base);
    const struct device_range range = {address_of(slab), size, DEVICE_RANGE_PEER};
    bool is_there;

    is_there = cuda_range_remove(device, &range);
    KVT_ASSERT(is_there);
}
