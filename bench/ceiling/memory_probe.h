/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_probe.h - how fast one core copies and hashes memory that is in no cache.
 */
#ifndef BENCH_MEMORY_PROBE_H
#define BENCH_MEMORY_PROBE_H

#include <stdint.h>

#include "huge_buffer.h"

/* Pieces of `piece_bytes` from random places of one half of the buffer to the other; bytes per
 * second that arrive. */
double memory_probe_copy(struct huge_buffer *buffer, uint64_t piece_bytes, double seconds);

/* XXH3-128 of pieces at random places; bytes per second. */
double memory_probe_hash(struct huge_buffer *buffer, uint64_t piece_bytes, double seconds);

#endif /* BENCH_MEMORY_PROBE_H */
