/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc32c.c - the CRC of small records: Castagnoli's polynomial, reflected (RFC 3720, B.4).
 *
 * Threads   any.
 */
#include <string.h>

#include "hash.h"

#if defined(__x86_64__)
#    include <nmmintrin.h>
#endif

/* The reflected polynomial 0x82F63B78 divided by each value of four bits. */
static const uint32_t nibble_table[16] = {0x00000000, 0x105EC76F, 0x20BD8EDE, 0x30E349B1,
    0x417B1DBC, 0x5125DAD3, 0x61C69362, 0x7198540D, 0x82F63B78, 0x92A8FC17, 0xA24BB5A6, 0xB21572C9,
    0xC38D26C4, 0xD3D3E1AB, 0xE330A81A, 0xF36E6F75};

uint32_t
crc32c_portable(uint32_t crc, const void *bytes, size_t size)
{
    const uint8_t *from = bytes;

    crc = ~crc;
    for (size_t i = 0; i < size; i++) {
        crc ^= from[i];
        crc = (crc >> 4) ^ nibble_table[crc & 15];
        crc = (crc >> 4) ^ nibble_table[crc & 15];
    }
    return ~crc;
}

#if defined(__x86_64__)

__attribute__((target("sse4.2"))) static uint32_t
crc32c_instruction(uint32_t crc, const void *bytes, size_t size)
{
    const uint8_t *from = bytes;
    uint64_t wide = ~crc;

    for (; size >= 8; size -= 8, from += 8) {
        uint64_t word;

        memcpy(&word, from, sizeof(word));
        wide = _mm_crc32_u64(wide, word);
    }
    crc = (uint32_t)wide;
    for (; size > 0; size--, from++)
        crc = _mm_crc32_u8(crc, *from);
    return ~crc;
}

uint32_t
crc32c(uint32_t crc, const void *bytes, size_t size)
{
    if (__builtin_cpu_supports("sse4.2"))
        return crc32c_instruction(crc, bytes, size);
    return crc32c_portable(crc, bytes, size);
}

#else

uint32_t
crc32c(uint32_t crc, const void *bytes, size_t size)
{
    return crc32c_portable(crc, bytes, size);
}

#endif
