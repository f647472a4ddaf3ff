/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_rename.h - a second subject whose behaviour is known: a file replaced by write, sync,
 * rename and sync of the directory is always whole; leaving out either sync must be seen.
 */
#ifndef KVT_TESTS_CRASH_RENAME_H
#define KVT_TESTS_CRASH_RENAME_H

#include "crash_run.h"

void rename_steps(struct run *run);
void rename_steps_without_file_sync(struct run *run);
void rename_steps_without_dir_sync(struct run *run);
bool rename_verify(
    const char *path, const struct oracle *oracle, char *problem, size_t problem_size);

#endif /* KVT_TESTS_CRASH_RENAME_H */
