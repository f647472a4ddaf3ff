/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sticky_kernel.cu - a kernel that writes where nothing is: from then on every call of CUDA in this
 * process fails.
 */
#include <cuda_runtime.h>

#include "sticky_kernel.h"

static __global__ void
write_astray(int *target)
{
    *target = 1;
}

int
sticky_provoke(void)
{
    cudaError_t error;

    write_astray<<<1, 1>>>(reinterpret_cast<int *>(static_cast<uintptr_t>(4096)));
    error = cudaDeviceSynchronize();
    if (error == cudaSuccess)
        return 0;
    /* It stays: asking again does not make it go away. */
    (void)cudaGetLastError();
    return cudaDeviceSynchronize() == cudaSuccess ? 0 : static_cast<int>(error);
}
