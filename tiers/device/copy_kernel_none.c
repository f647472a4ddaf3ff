/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_kernel_none.c - in place of kernels.cu, in builds without nvcc: copy engines do everything,
 * and nothing is gathered.
 */
#include "copy_kernel.h"
#include "gather_kernel.h"

cudaError_t
copy_kernel_load(void)
{
    return cudaErrorNotSupported;
}

cudaError_t
copy_kernel_launch(const struct copy_chunk *chunks, uint32_t count, const struct copy_grid *grid,
    cudaStream_t stream)
{
    (void)chunks;
    (void)count;
    (void)grid;
    (void)stream;
    return cudaErrorNotSupported;
}

cudaError_t
gather_kernel_launch(
    const struct gather_work *work, const struct copy_grid *grid, cudaStream_t stream)
{
    (void)work;
    (void)grid;
    (void)stream;
    return cudaErrorNotSupported;
}
