/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_cuda.h - accelerators through the CUDA runtime, linked statically: a program that has it
 * starts on a machine without a driver, and count() says what is missing.
 *
 * Threads   as base/device.h: every call sets the calling thread's device first, and puts back what
 *           it found.
 *
 * Absent (the symbol too) in builds without the CUDA toolkit: KVT_WITH_CUDA is not defined then.
 */
#ifndef KVT_TIERS_DEVICE_CUDA_H
#define KVT_TIERS_DEVICE_CUDA_H

#include "device.h"

extern const struct kvt_device_ops device_cuda_ops; /* Context: NULL. */

#endif /* KVT_TIERS_DEVICE_CUDA_H */
