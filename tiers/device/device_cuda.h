/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_cuda.h - accelerators through the CUDA runtime, linked statically: a program that has it
 * starts on a machine without a driver, and count() says what is missing.
 *
 * Threads   as base/device.h. Every call pushes the device's primary context and pops it again: the
 *           calling thread's device, its contexts and a capture into a graph stay as they were.
 * Believed  streams and events (they may be the host's), and that the pieces of a call do not
 *           overlap. Addresses are checked: a piece lies in one slab or one registration.
 * Lost      an error that stays, or that nobody knows, loses the device: later calls do not touch
 *           CUDA, and what it held is the driver's until the process ends.
 *
 * Absent (the symbol too) in builds without the CUDA toolkit: KVT_WITH_CUDA is not defined then.
 */
#ifndef KVT_TIERS_DEVICE_CUDA_H
#define KVT_TIERS_DEVICE_CUDA_H

#include "device.h"

extern const struct kvt_device_ops device_cuda_ops; /* Context: NULL. */

#endif /* KVT_TIERS_DEVICE_CUDA_H */
