/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_device.c - the devices of a store, as its tests reach them.
 */
#include "store_device.h"

#include "hbm_tier.h"
#include "store_internal.h"

struct device *
store_device(kvt_store *store, uint32_t number)
{
    return hbm_device(store->devices.tiers[number]);
}
