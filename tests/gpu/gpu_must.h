/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_must.h - calls of kvtier and of CUDA without which a program for GPUs cannot go on.
 */
#ifndef KVT_TESTS_GPU_MUST_H
#define KVT_TESTS_GPU_MUST_H

#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime_api.h>

#include "kvtier/kvtier.h"

/* It gives 0, or the process ends, with what it gave. */
#define MUST(call) must((int)(call), #call, __FILE__, __LINE__)

static inline void
must(int code, const char *what, const char *file, int line)
{
    struct kvt_error error;

    if (code == 0)
        return;
    kvt_last_error(&error);
    fprintf(stderr, "%s:%d: %s gave %d (%s, %s)\n", file, line, what, code, error.text,
        cudaGetErrorString(cudaGetLastError()));
    exit(1);
}

#endif /* KVT_TESTS_GPU_MUST_H */
