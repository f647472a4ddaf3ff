/* SPDX-License-Identifier: Apache-2.0 */
/*
 * damage.h - changes one byte of a block in the files of a closed peer, whatever their format: so
 * that it can be seen whether the comparison, or the peer, notices.
 */
#ifndef BENCH_DAMAGE_H
#define BENCH_DAMAGE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * damage_block - finds the beginning of block `number` in the files below `directory` and inverts a
 * byte behind it, in every place where it is found. False: complained (it is nowhere).
 */
bool damage_block(const char *directory, uint64_t number, uint64_t block_bytes);

#endif /* BENCH_DAMAGE_H */
