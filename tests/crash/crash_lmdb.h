/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_lmdb.h - a subject whose behaviour is known, to show that the crash harness can tell right
 * from wrong: plain LMDB never loses a commit that it synced, and loses some with MDB_NOSYNC.
 */
#ifndef KVT_TESTS_CRASH_LMDB_H
#define KVT_TESTS_CRASH_LMDB_H

#include "crash_run.h"

void lmdb_steps(struct run *run);
void lmdb_steps_unsynced(struct run *run);
bool lmdb_verify(const char *path, const struct oracle *oracle, char *problem, size_t problem_size);

#endif /* KVT_TESTS_CRASH_LMDB_H */
