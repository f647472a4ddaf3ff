/* SPDX-License-Identifier: Apache-2.0 */
/*
 * huge_buffer.h - memory on huge pages where the system gives them, touched: what reads into it
 * costs no page faults and few TLB misses.
 */
#ifndef BENCH_HUGE_BUFFER_H
#define BENCH_HUGE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct huge_buffer {
    uint8_t *bytes; /* Aligned to 2 MiB. */
    size_t size;    /* A multiple of 2 MiB. */
};

/* huge_buffer_take - at least `size` bytes. False: no memory. */
bool huge_buffer_take(struct huge_buffer *buffer_out, size_t size);
void huge_buffer_put(struct huge_buffer *buffer);

#endif /* BENCH_HUGE_BUFFER_H */
