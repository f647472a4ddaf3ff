/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sticky_kernel.h - an error of CUDA that stays, on purpose.
 */
#ifndef KVT_TESTS_STICKY_KERNEL_H
#define KVT_TESTS_STICKY_KERNEL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* sticky_provoke - the error's code, which every later call gives; 0: there was none. */
int sticky_provoke(void);

#ifdef __cplusplus
}
#endif

#endif /* KVT_TESTS_STICKY_KERNEL_H */
