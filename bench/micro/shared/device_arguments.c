/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_arguments.c - which device, how many bytes, how many rounds.
 */
#include "device_arguments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef KVT_WITH_CUDA
#    include "device_cuda.h"
#endif
#include "device_host.h"

enum {
    TOTAL_MIB_DEFAULT = 256,
    TOTAL_MIB_MAX = 512, /* In and out lie in one registration. */
    ROUNDS_DEFAULT = 11,
};

/* NULL: not in this build, or no such device. */
static const struct kvt_device_ops *
device_choose(const char *name)
{
#ifdef KVT_WITH_CUDA
    uint32_t count = 0;

    if (strcmp(name, "emulation") != 0 && device_cuda_ops.count(NULL, &count) == KVT_OK)
        return &device_cuda_ops;
#endif
    return strcmp(name, "cuda") == 0 ? NULL : &device_host_ops;
}

bool
device_arguments_read(
    const char *program, int argc, char **argv, struct device_arguments *arguments_out)
{
    const char *name = argc > 1 ? argv[1] : "";
    uint64_t total_mib = argc > 2 ? strtoull(argv[2], NULL, 10) : TOTAL_MIB_DEFAULT;
    uint64_t rounds = argc > 3 ? strtoull(argv[3], NULL, 10) : ROUNDS_DEFAULT;
    bool is_named = argc < 2 || strcmp(name, "cuda") == 0 || strcmp(name, "emulation") == 0;

    if (!is_named || argc > 4 || total_mib < 2 || total_mib > TOTAL_MIB_MAX ||
        (total_mib & (total_mib - 1)) != 0 || rounds == 0 || rounds > DEVICE_ROUNDS_MAX) {
        fprintf(stderr,
            "usage: %s [cuda|emulation] [MIB] [ROUNDS]  (MIB a power of two, 2 to 512; 1 to %d "
            "rounds)\n",
            program, DEVICE_ROUNDS_MAX);
        return false;
    }
    *arguments_out = (struct device_arguments){.ops = device_choose(name),
        .total_bytes = total_mib << 20,
        .round_count = (uint32_t)rounds};
    return true;
}
