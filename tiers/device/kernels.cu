/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.cu - the kernel that gathers and scatters runs of bytes between pinned host memory and
 * the memory of the device, or within that, and its launcher.
 *
 * A warp takes up to 32 chunks, one for each lane, and copies all their words together: word i of
 * the warp is that of the chunk in whose range i falls, so that every lane has work whatever the
 * sizes are. Several loads are under way in each lane before the first is stored: over the bus one
 * takes more than a microsecond. Words are the widest that both addresses allow; the warp goes
 * through its chunks once for each width that occurs.
 */
#include "copy_kernel.h"

namespace
{

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr uint32_t LANES = 32;
constexpr int LOADS = 4; /* Under way in a lane. */

/*
 * Copy `count` words from `source` to `target`, as the lane says, for all 32 lanes. Nothing is read
 * twice, so it passes the caches by.
 */
template <typename word>
__device__ __forceinline__ void
words_copy(uint32_t count, uint64_t target, uint64_t source, uint32_t lane)
{
    uint32_t end = count; /* Number of the warp's word behind the lane's last. */
    uint32_t total;

#pragma unroll
    for (uint32_t step = 1; step < LANES; step *= 2) {
        uint32_t before = __shfl_up_sync(ALL_LANES, end, step);

        if (lane >= step)
            end += before;
    }
    total = __shfl_sync(ALL_LANES, end, LANES - 1);
    /* Where word 0 of the warp would lie: word i then lies i words on, whoever has it. */
    target -= static_cast<uint64_t>(end - count) * sizeof(word);
    source -= static_cast<uint64_t>(end - count) * sizeof(word);
    for (uint32_t first = lane; first - lane < total; first += LANES * LOADS) {
        word values[LOADS];
        uint32_t owners[LOADS]; /* The lane that has this word: the first that ends behind it. */

#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            uint32_t index = first + i * LANES;
            uint64_t from;

            owners[i] = 0;
#pragma unroll
            for (uint32_t step = LANES / 2; step > 0; step /= 2) {
                if (__shfl_sync(ALL_LANES, end, owners[i] + step - 1) <= index)
                    owners[i] += step;
            }
            from = __shfl_sync(ALL_LANES, source, owners[i]) + index * sizeof(word);
            if (index < total)
                values[i] = __ldcs(reinterpret_cast<const word *>(from));
        }
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            uint32_t index = first + i * LANES;
            uint64_t to = __shfl_sync(ALL_LANES, target, owners[i]) + index * sizeof(word);

            if (index < total)
                __stcs(reinterpret_cast<word *>(to), values[i]);
        }
    }
}

/* The lanes whose chunks go by this word. */
template <typename word>
__device__ __forceinline__ void
bodies_copy(const copy_split &split, uint64_t target, uint64_t source, uint32_t lane)
{
    uint32_t count = split.width == sizeof(word) ? split.body / sizeof(word) : 0;

    if (__any_sync(ALL_LANES, count > 0))
        words_copy<word>(count, target + split.head, source + split.head, lane);
}

__device__ __forceinline__ copy_chunk
chunk_read(const copy_chunk *chunks, uint32_t index, bool is_there)
{
    uint4 bits = make_uint4(0, 0, 0, 0); /* Of no bytes. */

    if (is_there)
        bits = __ldcs(reinterpret_cast<const uint4 *>(chunks + index));
    return {
        static_cast<uint64_t>(bits.y) << 32 | bits.x, static_cast<uint64_t>(bits.w) << 32 | bits.z};
}

__global__ void __launch_bounds__(1024, 1)
    copy_chunks(const copy_chunk *chunks, uint32_t count, uint32_t group)
{
    uint32_t lane = threadIdx.x % LANES;
    uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    uint32_t stride = gridDim.x * (blockDim.x / LANES) * group;
    uint32_t index = warp * group + lane;
    copy_chunk next = chunk_read(chunks, index, lane < group && index < count);

    for (; index - lane < count; index += stride) {
        copy_chunk chunk = next;
        uint64_t source = copy_chunk_source(chunk);
        copy_split split = copy_chunk_split(chunk);
        uint32_t tail = copy_chunk_size(chunk) - split.head - split.body;

        /* On its way while this group is copied. */
        next = chunk_read(chunks, index + stride, lane < group && index + stride < count);
        bodies_copy<uint4>(split, chunk.target, source, lane);
        bodies_copy<uint2>(split, chunk.target, source, lane);
        bodies_copy<uint32_t>(split, chunk.target, source, lane);
        bodies_copy<uint8_t>(split, chunk.target, source, lane);
        if (__any_sync(ALL_LANES, split.head + tail > 0)) {
            uint32_t behind = split.head + split.body;

            words_copy<uint8_t>(split.head, chunk.target, source, lane);
            words_copy<uint8_t>(tail, chunk.target + behind, source + behind, lane);
        }
    }
}

} // namespace

cudaError_t
copy_kernel_load(void)
{
    cudaFuncAttributes attributes;

    return cudaFuncGetAttributes(&attributes, copy_chunks);
}

cudaError_t
copy_kernel_launch(
    const copy_chunk *chunks, uint32_t count, const copy_grid *grid, cudaStream_t stream)
{
    uint32_t warp_count = grid->block_count * (grid->thread_count / LANES);
    uint32_t group = (count + warp_count - 1) / warp_count;
    void *arguments[] = {&chunks, &count, &group};

    if (group > LANES)
        group = LANES;
    return cudaLaunchKernel(reinterpret_cast<const void *>(copy_chunks), dim3(grid->block_count),
        dim3(grid->thread_count), arguments, 0, stream);
}
