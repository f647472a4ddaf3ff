/* SPDX-License-Identifier: Apache-2.0 */
/*
 * number_list.h - numbers of a command line, separated by commas.
 */
#ifndef BENCH_NUMBER_LIST_H
#define BENCH_NUMBER_LIST_H

#include <stdbool.h>
#include <stdint.h>

/* number_list_read - at most `room` numbers of 1 to `limit`, with K, M, G or T or none. False: one
 * of them is none, or out of bounds, or there are too many. */
bool number_list_read(
    const char *text, uint64_t limit, uint64_t *numbers_out, uint32_t room, uint32_t *count_out);

#endif /* BENCH_NUMBER_LIST_H */
