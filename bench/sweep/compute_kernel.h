/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compute_kernel.h - a kernel that computes for a given time, on a stream of its own.
 *
 * Statuses are CUDA's own numbers, 0: fine. Threads: serial.
 */
#ifndef BENCH_COMPUTE_KERNEL_H
#define BENCH_COMPUTE_KERNEL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

int compute_stream_create(void **stream_out);
void compute_stream_destroy(void *stream); /* NULL is fine. */

/* compute_start - a block of 128 threads for each processor of a large device multiplies for so
 * long; others find room beside it. Does not wait. */
int compute_start(void *stream, uint64_t duration_ns);

#ifdef __cplusplus
}
#endif

#endif /* BENCH_COMPUTE_KERNEL_H */
