/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_scatter.h - checks of device_checks.h: thousands of pieces of odd sizes at odd places.
 */
#ifndef KVT_TESTS_DEVICE_SCATTER_H
#define KVT_TESTS_DEVICE_SCATTER_H

#include "device_rig.h"

/* In and out at the same time, many calls in flight; every byte of both sides is compared. */
bool odd_pieces_go_both_ways_at_once(struct device_rig *rig);

/* From memory of the device to memory of the device, from one byte to 32 KiB. */
bool odd_pieces_within_the_device_arrive(struct device_rig *rig);

#endif /* KVT_TESTS_DEVICE_SCATTER_H */
