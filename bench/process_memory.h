/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process_memory.h - what this process takes of the machine's memory.
 */
#ifndef BENCH_PROCESS_MEMORY_H
#define BENCH_PROCESS_MEMORY_H

#include <stdint.h>

/* process_anonymous_bytes - memory of the process that no file backs; 0: unknown. */
uint64_t process_anonymous_bytes(void);

#endif /* BENCH_PROCESS_MEMORY_H */
