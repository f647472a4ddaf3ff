/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bytes.h - little-endian fields at byte offsets (big-endian where LMDB must sort), and sizes.
 */
#ifndef KVT_BASE_BYTES_H
#define KVT_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    PAGE_BYTES = 4096,
};

static inline void
put_u16(void *target, uint16_t value)
{
    uint8_t *to = target;

    to[0] = (uint8_t)value;
    to[1] = (uint8_t)(value >> 8);
}

static inline void
put_u32(void *target, uint32_t value)
{
    uint8_t *to = target;

    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> (8 * i));
}

static inline void
put_u64(void *target, uint64_t value)
{
    uint8_t *to = target;

    for (int i = 0; i < 8; i++)
        to[i] = (uint8_t)(value >> (8 * i));
}

static inline void
put_u32_big(void *target, uint32_t value)
{
    put_u32(target, __builtin_bswap32(value));
}

static inline uint16_t
get_u16(const void *source)
{
    const uint8_t *from = source;

    return (uint16_t)(from[0] | from[1] << 8);
}

static inline uint32_t
get_u32(const void *source)
{
    const uint8_t *from = source;

    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 |
           (uint32_t)from[3] << 24;
}

static inline uint64_t
get_u64(const void *source)
{
    return (uint64_t)get_u32(source) | (uint64_t)get_u32((const uint8_t *)source + 4) << 32;
}

static inline uint32_t
get_u32_big(const void *source)
{
    return __builtin_bswap32(get_u32(source));
}

static inline bool
bytes_are_zero(const void *bytes, size_t size)
{
    const uint8_t *from = bytes;

    for (size_t i = 0; i < size; i++) {
        if (from[i] != 0)
            return false;
    }
    return true;
}

/* Whole pages that hold `size` bytes. size <= 2^43. */
static inline uint32_t
pages_of(uint64_t size)
{
    return (uint32_t)((size + PAGE_BYTES - 1) / PAGE_BYTES);
}

/* `alignment` is a power of two; the result must not overflow. */
static inline uint64_t
round_up(uint64_t size, uint64_t alignment)
{
    return (size + alignment - 1) & ~(alignment - 1);
}

#endif /* KVT_BASE_BYTES_H */
