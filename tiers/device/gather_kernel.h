/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gather_kernel.h - starting the kernels that gather rows (kernels.cu).
 *
 * A build without nvcc has copy_kernel_none.c instead, where the call is cudaErrorNotSupported.
 */
#ifndef KVT_TIERS_GATHER_KERNEL_H
#define KVT_TIERS_GATHER_KERNEL_H

#include <cuda_runtime_api.h>

#include "copy_kernel.h"
#include "gather_row.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Queue a gather: the verdict is set, then every id is looked at, then, by a kernel that begins by
 * reading the verdict, the rows are written or nothing is. The addresses are the device's.
 */
cudaError_t gather_kernel_launch(
    const struct gather_work *work, const struct copy_grid *grid, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* KVT_TIERS_GATHER_KERNEL_H */
