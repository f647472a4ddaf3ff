/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage.h - what the process has taken of the machine, and what the system's page cache keeps of a
 * folder's files.
 */
#ifndef BENCH_USAGE_H
#define BENCH_USAGE_H

#include <stdbool.h>
#include <stdint.h>

/* All threads of the process together, since it began. */
struct usage {
    double cpu_seconds;  /* User and system. */
    uint64_t read_bytes; /* That the kernel had from storage for it (/proc/self/io). */
};

/* usage_now - false when the kernel does not account reads: read_bytes is 0 then. */
bool usage_now(struct usage *usage_out);

/* page_cache_drop - whatever the page cache holds of the files below `directory`, once it is
 * written. False: complained. */
bool page_cache_drop(const char *directory);

/* storage_settle - waits until the file system of `directory` has written what was given to it. */
void storage_settle(const char *directory);

#endif /* BENCH_USAGE_H */
