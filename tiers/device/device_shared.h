/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_shared.h - the slabs of a device that other processes may use, or that they took.
 *
 * Threads   serial: guarded by the device's mutex.
 */
#ifndef KVT_TIERS_DEVICE_SHARED_H
#define KVT_TIERS_DEVICE_SHARED_H

#include "device_ranges.h"
#include "fork_descriptor.h"

struct device_shared {
    struct device_shared *next;
    struct device_range range;        /* As it stands in the device's table: SLAB or ADOPTED. */
    int descriptor;                   /* The device's own; negative: none. */
    struct fork_descriptor fork_item; /* device_cuda_share.c: with a descriptor. */
};

/* device_shared_take - the one that starts at `start` leaves the list; NULL: there is none. */
static inline struct device_shared *
device_shared_take(struct device_shared **first, uint64_t start)
{
    struct device_shared **link = first;
    struct device_shared *found;

    while (*link != NULL && (*link)->range.start != start)
        link = &(*link)->next;
    found = *link;
    if (found != NULL)
        *link = found->next;
    return found;
}

static inline void
device_shared_add(struct device_shared **first, struct device_shared *shared)
{
    shared->next = *first;
    *first = shared;
}

#endif /* KVT_TIERS_DEVICE_SHARED_H */
