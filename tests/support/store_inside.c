/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_inside.c - see store_inside.h.
 */
#include "store_inside.h"

#include "hbm_tier.h"
#include "store_internal.h"

struct device *
store_device(kvt_store *store, uint32_t number)
{
    return hbm_device(store->devices.tiers[number]);
}

bool
store_has_lost_root(kvt_store *store)
{
    for (uint32_t root = 0; root < store->file.root_count; root++) {
        if (!nvme_root_is_writable(store->nvme, root))
            return true;
    }
    return false;
}
