/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compute_kernel.cu - see compute_kernel.h.
 */
#include <cuda_runtime.h>

#include "compute_kernel.h"

enum {
    BLOCKS = 128,
    THREADS = 128,
    ROUNDS = 256, /* Between two looks at the clock. */
};

static __device__ uint64_t
timer_ns(void)
{
    uint64_t now_ns;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now_ns));
    return now_ns;
}

static __global__ void
compute(uint64_t duration_ns, float *never)
{
    const uint64_t begin_ns = timer_ns();
    float value = static_cast<float>(threadIdx.x);

    while (timer_ns() - begin_ns < duration_ns) {
        for (int i = 0; i < ROUNDS; i++)
            value = value * 0.999F + 1.0F;
    }
    /* It stays below 1000; the compiler does not know. */
    if (value > 1e30F)
        *never = value;
}

int
compute_stream_create(void **stream_out)
{
    cudaStream_t stream = nullptr;
    cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);

    *stream_out = stream;
    return static_cast<int>(error);
}

void
compute_stream_destroy(void *stream)
{
    if (stream != nullptr)
        (void)cudaStreamDestroy(static_cast<cudaStream_t>(stream));
}

int
compute_start(void *stream, uint64_t duration_ns)
{
    compute<<<BLOCKS, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(duration_ns, nullptr);
    return static_cast<int>(cudaGetLastError());
}
