/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_arguments.h - the command line of micro programs that copy from and to a device:
 * PROGRAM [cuda|emulation] [MIB] [ROUNDS].
 */
#ifndef BENCH_MICRO_DEVICE_ARGUMENTS_H
#define BENCH_MICRO_DEVICE_ARGUMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "device.h"

enum {
    DEVICE_ROUNDS_MAX = 101,
};

struct device_arguments {
    const struct kvt_device_ops *ops; /* NULL: not in this build, or no such device. */
    uint64_t total_bytes;             /* A power of two: 2 to 512 MiB; 256 if not said. */
    uint32_t round_count;             /* 1 to DEVICE_ROUNDS_MAX; 11 if not said. */
};

/* device_arguments_read - false: said on stderr how to call the program. */
bool device_arguments_read(
    const char *program, int argc, char **argv, struct device_arguments *arguments_out);

#endif /* BENCH_MICRO_DEVICE_ARGUMENTS_H */
