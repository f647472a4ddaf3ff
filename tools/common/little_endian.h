/* SPDX-License-Identifier: Apache-2.0 */
/*
 * little_endian.h - numbers in files, lowest byte first.
 */
#ifndef TOOLS_LITTLE_ENDIAN_H
#define TOOLS_LITTLE_ENDIAN_H

#include <stdint.h>

static inline void
store_u32(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> (8 * i));
}

static inline void
store_u64(uint8_t *to, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        to[i] = (uint8_t)(value >> (8 * i));
}

static inline uint32_t
load_u32(const uint8_t *from)
{
    uint32_t value = 0;

    for (int i = 3; i >= 0; i--)
        value = value << 8 | from[i];
    return value;
}

static inline uint64_t
load_u64(const uint8_t *from)
{
    return load_u32(from) | (uint64_t)load_u32(from + 4) << 32;
}

#endif /* TOOLS_LITTLE_ENDIAN_H */
