/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_inside.h - parts of a store that no header of ours shows, as its tests reach them.
 */
#ifndef KVT_TESTS_STORE_INSIDE_H
#define KVT_TESTS_STORE_INSIDE_H

#include <stdbool.h>

#include "device.h"
#include "kvtier/kvtier.h"

/* store_device - device `number`, which is one of the store's (device_mask). */
struct device *store_device(kvt_store *store, uint32_t number);

/* store_has_lost_root - a root takes no writes any more in this life. In a simulated world alone:
 * nothing else looks at the store meanwhile. */
bool store_has_lost_root(kvt_store *store);

#endif /* KVT_TESTS_STORE_INSIDE_H */
