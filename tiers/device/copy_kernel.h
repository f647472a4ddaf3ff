/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_kernel.h - starting the copy kernel (kernels.cu).
 *
 * A build without nvcc has copy_kernel_none.c instead, where both calls are cudaErrorNotSupported.
 */
#ifndef KVT_TIERS_COPY_KERNEL_H
#define KVT_TIERS_COPY_KERNEL_H

#include <cuda_runtime_api.h>

#include "copy_chunk.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How much of the device a kernel takes: never sized by the work. */
struct copy_grid {
    uint32_t block_count;
    uint32_t thread_count; /* Of a block: a multiple of 32, at most 1024. */
};

/* Have the kernels on the current context's device, this one and those of gather_kernel.h, so that
 * no launch has to load one: that may wait until all streams are idle, and one of them may wait for
 * what the launch is to bring. */
cudaError_t copy_kernel_load(void);

/*
 * Copy `count` chunks, which must not overlap, in any order. The list lies in memory that the
 * device can read, and may change when the kernel has ended. The chunks' addresses are the
 * device's: of its own memory, or of host memory that it has mapped.
 */
cudaError_t copy_kernel_launch(const struct copy_chunk *chunks, uint32_t count,
    const struct copy_grid *grid, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* KVT_TIERS_COPY_KERNEL_H */
