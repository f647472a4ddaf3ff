/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels.cu - the kernel that gathers and scatters runs of bytes between pinned host memory and
 * the memory of the device, or within that, and those that gather rows of a table by their numbers;
 * their launchers.
 *
 * A warp takes up to 32 chunks, one for each lane, and copies all their words together: word i of
 * the warp is that of the chunk in whose range i falls, so that every lane has work whatever the
 * sizes are. Several loads are under way in each lane before the first is stored: over the bus one
 * takes more than a microsecond. Words are the widest that both addresses allow; the warp goes
 * through its chunks once for each width that occurs.
 *
 * A gather is two kernels on one stream: the first looks at every id and lowers the verdict to the
 * first that is out of range; the second reads the verdict before anything else, and writes only
 * when it is fine. Rows as they are go the way of chunks. For rows of numbers a warp has a row at a
 * time, each lane eight numbers of it: what it asks for is on its way before the row before is
 * written.
 */
#include "copy_kernel.h"
#include "gather_kernel.h"

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

/* The chunks of a warp's lanes, together. */
__device__ __forceinline__ void
group_copy(const copy_chunk &chunk, uint32_t lane)
{
    uint64_t source = copy_chunk_source(chunk);
    copy_split split = copy_chunk_split(chunk);
    uint32_t tail = copy_chunk_size(chunk) - split.head - split.body;

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

        /* On its way while this group is copied. */
        next = chunk_read(chunks, index + stride, lane < group && index + stride < count);
        group_copy(chunk, lane);
    }
}

/* --- Gathering -------------------------------------------------------------------------------- */

constexpr uint32_t VALUES = 8; /* Of a lane at a time. */

__global__ void __launch_bounds__(1024, 1) ids_check(gather_work work)
{
    uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;

    for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < work.count;
         i += stride) {
        if (work.ids[i] >= work.row_count)
            atomicMin(reinterpret_cast<unsigned long long *>(work.verdict),
                static_cast<unsigned long long>(i));
    }
}

__device__ __forceinline__ bool
is_fine(const gather_work &work)
{
    return *reinterpret_cast<const volatile uint64_t *>(work.verdict) == GATHER_FINE;
}

/* Rows as they are. */
__global__ void __launch_bounds__(1024, 1) rows_gather(gather_work work)
{
    uint32_t lane = threadIdx.x % LANES;
    uint64_t warp = (static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / LANES;
    uint64_t stride = static_cast<uint64_t>(gridDim.x) * (blockDim.x / LANES) * LANES;

    if (!is_fine(work))
        return;
    for (uint64_t first = warp * LANES; first < work.count; first += stride) {
        uint64_t index = first + lane;
        copy_chunk chunk = {0, 0}; /* Of no bytes. */

        if (index < work.count)
            chunk =
                copy_chunk_make(reinterpret_cast<uint64_t>(work.target) + index * work.row_bytes,
                    reinterpret_cast<uint64_t>(gather_row(&work, work.ids[index])), work.row_bytes);
        group_copy(chunk, lane);
    }
}

/* Eight numbers of one scale, from an address of eight and to one of sixteen bytes. */
__device__ __forceinline__ void
values_store(uint2 bytes, uint32_t scale, uint16_t *target)
{
    uint32_t words[VALUES / 2];

#pragma unroll
    for (uint32_t i = 0; i < VALUES / 2; i++) {
        uint32_t pair = (i < 2 ? bytes.x : bytes.y) >> (i % 2 * 16);

        words[i] = gather_value(pair & 0xFF, scale) |
                   static_cast<uint32_t>(gather_value(pair >> 8 & 0xFF, scale)) << 16;
    }
    __stcs(reinterpret_cast<uint4 *>(target), make_uint4(words[0], words[1], words[2], words[3]));
}

/* Rows of numbers, where eights of them and of addresses allow it. */
__global__ void __launch_bounds__(1024, 1) values_gather(gather_work work)
{
    uint64_t lanes_a_row = work.value_count / VALUES;
    uint64_t total = work.count * lanes_a_row;
    uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    uint64_t at = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    uint32_t group = work.value_count / work.scale_count;

    if (!is_fine(work))
        return;
    for (; at < total; at += stride * LOADS) {
        uint2 bytes[LOADS];
        uint32_t scales[LOADS];

#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            uint64_t here = at + i * stride;

            if (here < total) {
                const uint8_t *row = gather_row(&work, work.ids[here / lanes_a_row]);
                uint32_t first = static_cast<uint32_t>(here % lanes_a_row) * VALUES;

                bytes[i] = __ldcs(reinterpret_cast<const uint2 *>(row + first));
                scales[i] = row[work.value_count + first / group];
            }
        }
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            uint64_t here = at + i * stride;

            if (here < total)
                values_store(
                    bytes[i], scales[i], reinterpret_cast<uint16_t *>(work.target) + here * VALUES);
        }
    }
}

/* Any others: number by number. */
__global__ void __launch_bounds__(1024, 1) values_gather_singly(gather_work work)
{
    uint64_t total = work.count * work.value_count;
    uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    uint64_t at = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    uint32_t group = work.value_count / work.scale_count;

    if (!is_fine(work))
        return;
    for (; at < total; at += stride) {
        const uint8_t *row = gather_row(&work, work.ids[at / work.value_count]);
        uint32_t i = static_cast<uint32_t>(at % work.value_count);
        uint16_t value = gather_value(row[i], row[work.value_count + i / group]);

        /* The target need not be even. */
        work.target[at * 2] = static_cast<uint8_t>(value);
        work.target[at * 2 + 1] = static_cast<uint8_t>(value >> 8);
    }
}

bool
has_eights(const gather_work &work)
{
    uint32_t group = work.value_count / work.scale_count;
    uint64_t source = reinterpret_cast<uint64_t>(work.pages);
    uint64_t target = reinterpret_cast<uint64_t>(work.target);

    return group % VALUES == 0 && work.row_bytes % 8 == 0 && source % 8 == 0 && target % 16 == 0;
}

} // namespace

cudaError_t
copy_kernel_load(void)
{
    const void *const kernels[] = {reinterpret_cast<const void *>(copy_chunks),
        reinterpret_cast<const void *>(ids_check), reinterpret_cast<const void *>(rows_gather),
        reinterpret_cast<const void *>(values_gather),
        reinterpret_cast<const void *>(values_gather_singly)};
    cudaFuncAttributes attributes;
    cudaError_t error = cudaSuccess;

    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]) && error == cudaSuccess; i++)
        error = cudaFuncGetAttributes(&attributes, kernels[i]);
    return error;
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

cudaError_t
gather_kernel_launch(
    const struct gather_work *work, const struct copy_grid *grid, cudaStream_t stream)
{
    gather_work parameter = *work;
    void *arguments[] = {&parameter};
    const void *kernel = reinterpret_cast<const void *>(rows_gather);
    cudaError_t error = cudaMemsetAsync(work->verdict, 0xFF, sizeof(*work->verdict), stream);

    if (error != cudaSuccess)
        return error;
    error = cudaLaunchKernel(reinterpret_cast<const void *>(ids_check), dim3(grid->block_count),
        dim3(grid->thread_count), arguments, 0, stream);
    if (error != cudaSuccess)
        return error;
    if (work->value_count > 0)
        kernel = reinterpret_cast<const void *>(
            has_eights(parameter) ? values_gather : values_gather_singly);
    return cudaLaunchKernel(
        kernel, dim3(grid->block_count), dim3(grid->thread_count), arguments, 0, stream);
}
