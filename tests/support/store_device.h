/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_device.h - a device of a store, for work of the test's own on it.
 */
#ifndef KVT_TESTS_STORE_DEVICE_H
#define KVT_TESTS_STORE_DEVICE_H

#include "device.h"
#include "kvtier/kvtier.h"

/* store_device - device `number`, which is one of the store's (device_mask). */
struct device *store_device(kvt_store *store, uint32_t number);

#endif /* KVT_TESTS_STORE_DEVICE_H */
