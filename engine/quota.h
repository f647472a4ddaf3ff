/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quota.h - counts of what callers may have out at most.
 */
#ifndef KVT_ENGINE_QUOTA_H
#define KVT_ENGINE_QUOTA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* quota_take - one more is out (any). False: there are `max`, and there were no more meanwhile: one
 * that is refused keeps no other out, whose place has just become free. acquire: who is counted
 * sees what the one before had done when it was counted down with release. */
static inline bool
quota_take(_Atomic uint32_t *count, uint32_t max)
{
    uint32_t before = atomic_load_explicit(count, memory_order_relaxed);

    do {
        if (before >= max)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(
        count, &before, before + 1, memory_order_acquire, memory_order_relaxed));
    return true;
}

#endif /* KVT_ENGINE_QUOTA_H */
