/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory.h - the folders that a benchmark makes and removes.
 */
#ifndef BENCH_DIRECTORY_H
#define BENCH_DIRECTORY_H

#include <stdbool.h>

/* directory_make - makes `path` when it is missing. False: complained. */
bool directory_make(const char *path);

/* directory_remove - and everything in it. True when it is gone. */
bool directory_remove(const char *path);

#endif /* BENCH_DIRECTORY_H */
