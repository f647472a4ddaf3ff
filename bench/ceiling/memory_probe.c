/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_probe.c - how fast one core copies and hashes memory that is in no cache.
 */
#include "memory_probe.h"

#include <string.h>
#include <xxhash.h>

#include "pattern.h"
#include "progress.h"

double
memory_probe_copy(struct huge_buffer *buffer, uint64_t piece_bytes, double seconds)
{
    uint64_t half = buffer->size / 2;
    uint64_t pieces = half / piece_bytes;
    double start = clock_seconds();
    double elapsed = 0;
    uint64_t done_bytes = 0;

    for (uint64_t i = 0; pieces > 0 && elapsed < seconds; i++) {
        uint64_t from = pattern_mix(i) % pieces * piece_bytes;
        uint64_t to = half + pattern_mix(~i) % pieces * piece_bytes;

        memcpy(buffer->bytes + to, buffer->bytes + from, piece_bytes);
        done_bytes += piece_bytes;
        elapsed = clock_seconds() - start;
    }
    return elapsed > 0 ? (double)done_bytes / elapsed : 0;
}

double
memory_probe_hash(struct huge_buffer *buffer, uint64_t piece_bytes, double seconds)
{
    uint64_t pieces = buffer->size / piece_bytes;
    double start = clock_seconds();
    double elapsed = 0;
    uint64_t done_bytes = 0;
    uint64_t sum = 0;

    for (uint64_t i = 0; pieces > 0 && elapsed < seconds; i++) {
        XXH128_hash_t hash =
            XXH3_128bits(buffer->bytes + pattern_mix(i) % pieces * piece_bytes, piece_bytes);

        sum += hash.low64;
        done_bytes += piece_bytes;
        elapsed = clock_seconds() - start;
    }
    buffer->bytes[0] ^= (uint8_t)sum; /* The sum is used, so no hash can be left out. */
    return elapsed > 0 ? (double)done_bytes / elapsed : 0;
}
