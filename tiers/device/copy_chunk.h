/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_chunk.h - an entry of the list that the copy kernel walks, and how one is cut into accesses.
 *
 * Read by C and by CUDA (kernels.cu), so that a test can walk a list as the kernel does.
 *
 * An entry has 16 bytes, because a list of rows crosses the bus beside them: 6 % of rows of 264 B.
 */
#ifndef KVT_TIERS_COPY_CHUNK_H
#define KVT_TIERS_COPY_CHUNK_H

#include <stdint.h>

#ifdef __CUDACC__
#    define COPY_SHARED static __host__ __device__ inline
#else
#    define COPY_SHARED static inline
#endif

enum {
    COPY_ADDRESS_BITS = 48,
    COPY_CHUNK_BYTES_MAX = 32768, /* Below 2^16: the size lies above the address. */
};

struct copy_chunk {
    uint64_t target;
    uint64_t source_and_size; /* The size in the upper 16 bits. */
};

/*
 * How a chunk is copied: `head` single bytes, then `body` bytes by words of `width`, at addresses
 * that are multiples of it on both sides, then the other bytes singly. width: 1, 4, 8 or 16.
 */
struct copy_split {
    uint32_t width;
    uint32_t head;
    uint32_t body;
};

COPY_SHARED struct copy_chunk
copy_chunk_make(uint64_t target, uint64_t source, uint32_t size)
{
    struct copy_chunk chunk;

    chunk.target = target;
    chunk.source_and_size = source | (uint64_t)size << COPY_ADDRESS_BITS;
    return chunk;
}

COPY_SHARED uint64_t
copy_chunk_source(struct copy_chunk chunk)
{
    return chunk.source_and_size & (((uint64_t)1 << COPY_ADDRESS_BITS) - 1);
}

COPY_SHARED uint32_t
copy_chunk_size(struct copy_chunk chunk)
{
    return (uint32_t)(chunk.source_and_size >> COPY_ADDRESS_BITS);
}

COPY_SHARED struct copy_split
copy_chunk_split(struct copy_chunk chunk)
{
    /* Words can be aligned on both sides when the addresses differ by whole words. */
    uint32_t difference = (uint32_t)(chunk.target ^ chunk.source_and_size);
    uint32_t size = copy_chunk_size(chunk);
    struct copy_split split;

    split.width = 1;
    if ((difference & 3) == 0)
        split.width = 4;
    if ((difference & 7) == 0)
        split.width = 8;
    if ((difference & 15) == 0)
        split.width = 16;
    split.head = (0u - (uint32_t)chunk.target) & (split.width - 1);
    if (split.head > size)
        split.head = size;
    split.body = (size - split.head) & ~(split.width - 1);
    return split;
}

#endif /* KVT_TIERS_COPY_CHUNK_H */
