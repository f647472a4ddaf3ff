/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_kinds.c - CUDA where this build has it and the machine a device, or the emulation.
 */
#include "device_kinds.h"

#include <stddef.h>

#include "device_host.h"
#include "failure.h"
#ifdef KVT_WITH_CUDA
#    include "device_cuda.h"
#endif

static enum kvt_status
cuda_probe(const struct kvt_device_ops **ops_out)
{
#ifdef KVT_WITH_CUDA
    uint32_t count;
    enum kvt_status status = device_cuda_ops.count(NULL, &count);

    if (status == KVT_OK)
        *ops_out = &device_cuda_ops;
    return status;
#else
    (void)ops_out;
    return failure_set(KVT_E_UNSUPPORTED, 0, "this build has no CUDA device");
#endif
}

enum kvt_status
device_choose(enum device_choice choice, const struct kvt_device_ops **ops_out)
{
    enum kvt_status status = KVT_E_UNSUPPORTED;

    if (choice != DEVICE_EMULATED)
        status = cuda_probe(ops_out);
    if (status == KVT_OK || choice == DEVICE_CUDA)
        return status;
    *ops_out = &device_host_ops;
    return KVT_OK;
}
